#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""Validate reports against docs/report.schema.json, and comparisons against
docs/diff.schema.json: each says by its own "schema" which it is.

usage: schema_check.py REPORT.json...

Exit status: 0 all valid, 1 one is not (or is no JSON), 2 bad usage or an
unreadable file, 77 python3-jsonschema is missing (skip).
"""
import json
import os
import sys

DOCS = os.path.join(os.path.dirname(os.path.abspath(__file__)),
                    "..", "..", "docs")


def no_constant(name):
    raise ValueError("%s is not JSON" % name)


def main(paths):
    if not paths:
        print(__doc__, file=sys.stderr)
        return 2
    try:
        from jsonschema import Draft202012Validator
    except ImportError as e:
        print("schema_check: no python3-jsonschema (%s)" % e, file=sys.stderr)
        return 77
    status = 0
    try:
        validators = {}
        for kind in ("report", "diff"):
            with open(os.path.join(DOCS, kind + ".schema.json"),
                      encoding="utf-8") as f:
                schema = json.load(f)
            Draft202012Validator.check_schema(schema)
            validators[kind] = Draft202012Validator(schema)
        for path in paths:
            with open(path, encoding="utf-8") as f:
                text = f.read()
            try:
                report = json.loads(text, parse_constant=no_constant)
            except ValueError as e:
                print("%s: not JSON: %s" % (path, e), file=sys.stderr)
                status = 1
                continue
            kind = "report"
            if isinstance(report, dict) and \
                    str(report.get("schema")).startswith("pipetrace.diff/"):
                kind = "diff"
            for e in validators[kind].iter_errors(report):
                where = "/".join(str(p) for p in e.absolute_path)
                print("%s: /%s: %s" % (path, where, e.message[:300]),
                      file=sys.stderr)
                status = 1
    except (OSError, UnicodeDecodeError) as e:
        print("schema_check: %s" % e, file=sys.stderr)
        return 2
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
