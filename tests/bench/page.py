#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""The tables of docs/performance.md, from what tests/bench/run kept.

    tests/bench/page.py FILE           writes them into the page, and FILE beside this script
    tests/bench/page.py --check        are they what the kept file says?

A table stands between `<!-- bench: PART -->` and `<!-- end -->`; the words around it are
written by hand. A part that FILE has not keeps its table.
"""
import json
import math
import os
import re
import shutil
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
TOP = os.path.dirname(os.path.dirname(HERE))
PAGE = os.path.join(TOP, "docs/performance.md")
KEPT = os.path.join(HERE, "measured.json")
MARK = re.compile(r"(<!-- bench: (\w+) -->\n).*?(<!-- end -->)", re.S)
MET = {"yes": "met", "no": "**missed**", "open": "not told"}


def number(v, like=None):
    """Three figures that mean something; all of a row to the same place."""
    if v is None:
        return "?"
    size = abs(like if like is not None else v)
    places = 0 if size >= 100 else 1 if size >= 10 else 2 if size >= 0.1 else 3
    if size < 1e-9:
        places = 2
    text = "{:,.{}f}".format(v, places)
    return re.sub(r"^-(0(\.0+)?)$", r"\1", text)


def span(low, high, like):
    return "%s to %s" % (number(low, like), number(high, like))


def cells(r):
    if "not_run" in r:
        return [r["what"], "not run: " + r["not_run"], "", "", ""]
    value = number(r["value"])
    if r["low"] is not None:
        value += " (%s)" % span(r["low"], r["high"], r["value"])
    like = r["value"]
    floor = r.get("floor")
    if floor and not any(math.isnan(v) for v in floor):
        floor = span(*floor, like=like) if floor[0] != floor[1] else number(floor[0], like)
    bar = "%s: %s" % (r["bar"].replace("<=", "≤").replace(">=", "≥"), MET[r["met"]]) \
        if r.get("bar") else ""
    return [r["what"], value + " " + r["unit"], floor or "", str(r["n"] or ""), bar]


def table(part):
    rows, notes = part["rows"], any(r.get("note") for r in part["rows"])
    head = ["", "95 % of the mean", "noise floor", "n", "bar"]
    lines = [cells(r) for r in rows]
    keep = [i for i in range(len(head)) if i < 2 or any(c[i] for c in lines)]
    if notes:
        lines = [c + [r.get("note") or ""] for c, r in zip(lines, rows)]
        head.append("")
        keep.append(len(head) - 1)
    out = ["", "| %s |" % " | ".join(head[i] for i in keep), "|" + "---|" * len(keep)]
    for c in lines:
        out.append("| %s |" % " | ".join(c[i].replace("|", "\\|") for i in keep))
    asked = {}
    for r in rows:
        if r.get("command"):
            asked.setdefault(r["what"].split(": ", 1)[1], r["command"])
    if asked:
        out += ["", "What the others were asked for:", ""]
        out += ["- %s: `%s`" % pair for pair in asked.items()]
    return "`%s`\n" % part["command"] + "\n".join(out) + "\n"


def about(kept):
    m = kept["machine"]
    return "Measured at %s on %s%d cores (%s, %d GiB), Linux %s, %s.\n" % (
        kept["commit"], "a virtual machine of " if m["virtual"] else "", m["cores"],
        m["processor"], m["memory_gib"], m["kernel"], m["system"])


def fill(text, kept):
    def put(m):
        name = m.group(2)
        if name == "machine":
            return m.group(1) + about(kept) + m.group(3)
        part = kept["parts"].get(name)
        return m.group(1) + table(part) + m.group(3) if part else m.group(0)
    return MARK.sub(put, text)


def plain(name, part):
    """For a terminal."""
    lines = ["", "%s (%d s): %s" % (name, part["seconds"], part["command"])]
    for r in part["rows"]:
        c = cells(r)
        lines.append("  %-62s %-44s %s" % (c[0], c[1], "  ".join(
            [c[2] and "floor " + c[2], c[4], r.get("note") or ""]).rstrip()))
    return "\n".join(lines)


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    check = sys.argv[1] == "--check"
    with open(KEPT if check else sys.argv[1], encoding="utf-8") as f:
        kept = json.load(f)
    with open(PAGE, encoding="utf-8") as f:
        text = f.read()
    made = fill(text, kept)
    if check:
        return 0 if made == text else "docs/performance.md is not what tests/bench/page.py makes"
    with open(PAGE, "w", encoding="utf-8") as f:
        f.write(made)
    if os.path.abspath(sys.argv[1]) != KEPT:
        shutil.copyfile(sys.argv[1], KEPT)
    return 0


if __name__ == "__main__":
    sys.exit(main())
