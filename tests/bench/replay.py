#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""How fast a stream becomes a diagnosis, and what it takes in memory.

    tests/bench/replay.py [--program FILE] [--records N] [STREAM...]

Each recording (tests/golden by default; .raw, or .raw.xz) is repeated with its
times moved on until there are N records (3 million), which then are fed and
analysed on one core. Reading files is not counted. Prints nanoseconds a
record for each part, records per second, and bytes on the heap for each
record, thread and step. Nothing passes or fails here; no root.
"""
import argparse
import glob
import os
import statistics
import subprocess
import sys
import tempfile

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(TOP, "tests"))
from kept import unpack  # noqa: E402

GOAL = 4.0  # million records per second
EXPORT_GOAL = 1.0  # million events per second


def main():
    ap = argparse.ArgumentParser(description="Measure replay and analysis.")
    ap.add_argument("--program", default=os.path.join(TOP, "build/tests/bench/replay"))
    ap.add_argument("--records", type=int, default=3000000)
    ap.add_argument("--export", action="store_true",
                    help="measure the timeline formats instead: million events a second")
    ap.add_argument("stream", nargs="*")
    args = ap.parse_args()
    streams = args.stream or sorted(glob.glob(os.path.join(TOP, "tests/golden/*.raw.xz")))
    rows = []
    with tempfile.TemporaryDirectory(prefix="pipetrace-bench-") as tmp:
        for path in streams:
            name = os.path.basename(path).split(".raw")[0]
            if path.endswith(".xz"):
                path = unpack(path, os.path.join(tmp, name))
            done = subprocess.run([args.program] + ["-e"] * args.export +
                                  ["-n", str(args.records), path],
                                  stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, check=True)
            head, row = done.stdout.decode().splitlines()
            if not rows:
                print(" ".join("%11s" % c for c in head.split("\t")))
            row = row.split("\t")
            rows.append(row)
            print(" ".join("%11s" % c for c in [name[:11]] + row[1:]), flush=True)
            if os.path.dirname(path) == tmp:
                os.unlink(path)
    if args.export:
        rates = [float(r[3]) for r in rows]
        print("million events per second, Perfetto: median %.2f, lowest %.2f; goal %.1f" % (
            statistics.median(rates), min(rates), EXPORT_GOAL))
        return 0
    rates = [float(r[7]) for r in rows]
    print("million records per second: median %.2f, lowest %.2f, highest %.2f; goal %.1f: %s" % (
        statistics.median(rates), min(rates), max(rates), GOAL,
        "reached by all" if min(rates) >= GOAL else "missed by %d of %d" % (
            sum(r < GOAL for r in rates), len(rates))))
    print("heap: %.0f bytes a record (median); a thread's and a step's share by job above" %
          statistics.median(float(r[8]) for r in rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
