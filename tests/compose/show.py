#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""What a kept job really did: show.py STEM [FROM_MS [STEPS]]

Times are ms since the capture began. Each wait for a batch lists what the thread that
made the batch did meanwhile; "|" lines are the report's steps. Ends with what the log
says of the whole window.
"""
import json
import os
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../e2e"))

import logs  # noqa: E402


def line(r, t0, indent):
    cpu = "" if r.cpu is None else " cpu %.1f" % (r.cpu / 1e6)
    print("%s%9.1f %9.1f  %7.1f ms %-8s %s%s%s" % (
        indent, (r.begin - t0) / 1e6, (r.end - t0) / 1e6, (r.end - r.begin) / 1e6, r.kind,
        "%d:%d" % r.who, cpu, "" if r.batch is None else "  batch %d" % r.batch))


def makers(log, row, t0, depth=1):
    """The last stage that had this batch, and what it did in the wait."""
    rows = log.before(row)
    if not rows or depth > 4:
        return
    last = max(rows, key=lambda r: r.end)
    print("%smade by %d:%d from %.1f to %.1f" % (
        "    " * depth, *last.who, (last.begin - t0) / 1e6, (last.end - t0) / 1e6))
    for r in log.lines[last.who]:
        if r.begin < row.end and r.end > row.begin and r.end - r.begin > 100000:
            line(r, t0, "    " * depth)
            if r.kind == "take":
                makers(log, r, t0, depth + 1)


def summary(truth):
    print("\nwait %.3f, device busy %.3f, steps %s" % (
        truth.wait_share(), truth.busy_share(), sorted(truth.steps())))
    print("losses: " + ", ".join("%s %.3f" % i for i in truth.losses().items()
                                 if i[1] > 0.004))
    print("causes: " + ", ".join("%s %.2f" % i for i in truth.causes().most_common()
                                 if i[1] > 0.004))
    print("suppliers: " + ", ".join("%d:%d %.2f" % (*w, s)
                                    for s, w in truth.suppliers()[:6]))
    print("slow worker %s, slow items %s, lock held and asked for %s, free cores %.2f" % (
        truth.slow_worker(), truth.slow_items(), truth.lock_share(), truth.free_cores()))
    print("right roots: " + ", ".join(sorted(truth.roots())))


def main(stem, begin_ms=0.0, steps=6):
    with open(stem + ".meta.json", encoding="utf-8") as f:
        meta = json.load(f)
    with open(stem + ".json", encoding="utf-8") as f:
        report = json.load(f)
    log, c = logs.Log(stem + ".truth.jsonl"), report["capture"]
    t0 = c["begin_ns"]
    print({k: v for k, v in meta["spec"].items() if not isinstance(v, list)})
    for rank in sorted(log.trainers):
        t = logs.Truth(log, meta["spec"], t0, c["end_ns"], stem, rank, meta["cores"],
                       meta["foreign"])
        print("\nrank %d, %d:%d" % (rank, *t.main))
        told = sorted(report["steps"].get("list") or [], key=lambda s: s["begin_ns"])
        left = steps
        for r in sorted(t.rows, key=lambda r: r.begin):
            if (r.begin - t0) / 1e6 < begin_ms or r.kind in logs.TIMELINE and \
                    r.end - r.begin < 100000:
                continue
            line(r, t0, "")
            if r.kind == "obtain":
                makers(log, r, t0)
            if r.kind in ("step", "micro"):
                for s in told:
                    if r.begin <= s["begin_ns"] < r.end:
                        print("  | told: step %d begins at %.1f, wait %s ms, %s, by %s" % (
                            s["index"], (s["begin_ns"] - t0) / 1e6, s["data_wait_ms"],
                            s["cause"], s["worker"]))
                left -= 1
                if not left:
                    break
        summary(t)
    print("\ntold: " + ", ".join("%s/%s/%s" % (v["id"], v["severity"], v["certainty"])
                                 for v in report["verdicts"]))
    print("told causes: " + ", ".join("%s %.2f by %s (%s)" % (
        x["cause"], x["share"] or 0, x["subject"], x["what"])
        for x in (report["data_wait"]["causes"] or [])[:8]))


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    main(sys.argv[1], *map(float, sys.argv[2:]))
