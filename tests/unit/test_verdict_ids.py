#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""Nobody but its own file names a verdict: what views must know of one stands in its line of
user/report/verdicts.def. Looks at every string in user/; and the schema promises the same."""

import glob
import json
import os
import re
import sys

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
LIST = os.path.join(TOP, "user/report/verdicts.def")
HOME = os.path.join(TOP, "user/analysis/verdicts/")
# Names of other things, too: a cause, and a state that the HTML's timeline draws.
OTHERS = {"no_demand", "gpu_starved"}
STRING = re.compile(r"\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'")


def main():
    with open(LIST, encoding="utf-8") as f:
        ids = set(re.findall(r"^PT_VERDICT\((\w+),", f.read(), re.M))
    wrong = [] if len(ids) >= 28 else ["the list was not understood"]
    word = re.compile(r"\b(%s)\b" % "|".join(sorted(ids - OTHERS)))
    for path in sorted(glob.glob(TOP + "/user/**/*", recursive=True)):
        # report.def documents fields: that is prose
        if path.startswith(HOME) or not re.search(r"\.([ch]|js)$", path):
            continue
        with open(path, encoding="utf-8") as f:
            for n, line in enumerate(f, 1):
                for m in STRING.finditer(line):
                    if word.search(m.group(0)):
                        wrong.append("%s:%d: %s" % (os.path.relpath(path, TOP), n, m.group(0)))
    with open(os.path.join(TOP, "docs/report.schema.json"), encoding="utf-8") as f:
        verdict = json.load(f)["$defs"]["verdict"]["properties"]
    for key in "id", "consequence_of":
        promised = set(verdict[key]["enum"]) - {None}
        if promised != ids:
            wrong.append("docs/report.schema.json, %s: %s" % (key, sorted(promised ^ ids)))
    for name in sorted(ids):
        if not os.path.exists(HOME + name + ".c"):
            wrong.append("%s: no file in user/analysis/verdicts" % name)
    print("\n".join(["not ok " + w for w in wrong]) or
          "ok %d verdicts, each known to its file and its line alone" % len(ids))
    print("%d passed, %d failed, 0 skipped" % (not wrong, len(wrong)))
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
