#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""What only a stack of Python tells: is it data that the training thread computes, or sleeps
for, or work of its own? Jobs of ten kinds (namedjob.py), each with figures drawn by chance, told
at the first try.

    named.py [--tries N] [--seed S] [--only KIND] [--sample] [--python PATH]
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))
from lines import CUDART, PIPETRACE, at  # noqa: E402
from noise import pressure_s  # noqa: E402
import namedjob  # noqa: E402

SECONDS = 5
SAMPLE = ("map", "logger")
POINTS = 0.06  # of the wall, that a data wait may be off
counts = {"ok": 0, "FAIL": 0, "skip": 0}


def judge(report, notes, kind):
    """Why it is told wrong; None."""
    c = report["capture"]
    begin, end = c["begin_ns"] / 1e9, c["end_ns"] / 1e9
    data, own = (y - x for x, y in zip(at(notes, begin), at(notes, end)))
    true = data / (end - begin)
    told = report["breakdown"]["data_wait"]["share"]
    root = report["verdicts"][0]["id"] if report["verdicts"] else None
    right = "main_thread_loading" if kind in namedjob.DATA or data > own else "host_bound"
    what = "data wait %.1f %% (%.1f %%), root %s" % (100 * told, 100 * true, root)
    if abs(told - true) > POINTS:
        return what
    if root != right and not (kind == "both" and root in ("host_bound", "main_thread_loading")):
        return what + ", not " + right
    if data > 0 and report["data_wait"]["evidence"] != "named":
        return "evidence " + str(report["data_wait"]["evidence"])
    return None


def one(kind, seed, tmp, python):
    out = os.path.join(tmp, "report.json")
    job = subprocess.Popen([python, os.path.join(HERE, "namedjob.py"), CUDART, kind,
                            str(seed), str(SECONDS + 12)], stdout=subprocess.PIPE, text=True)
    try:
        job.stdout.readline()
        before, t0 = pressure_s(), time.monotonic()
        p = subprocess.run([PIPETRACE, "-p", str(job.pid), "-d", str(SECONDS), "--json", out],
                           capture_output=True, text=True, timeout=90)
        waited = ((pressure_s() or 0) - (before or 0)) / (time.monotonic() - t0)
        job.stdout_rest = job.communicate(timeout=60)[0]
    finally:
        job.kill()
        job.wait()
    if p.returncode:
        return "FAIL", p.stderr.strip()
    with open(out, encoding="utf-8") as f:
        report = json.load(f)
    os.remove(out)
    wrong = judge(report, json.loads(job.stdout_rest.splitlines()[-1]), kind)
    if wrong and waited > 0.2:
        return "skip", "the machine's tasks wait for its cores (%s)" % wrong
    return ("FAIL", wrong) if wrong else ("ok", "")


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--tries", type=int, default=1, help="of each kind")
    ap.add_argument("--seed", type=int, default=int(time.time()))
    ap.add_argument("--only", choices=namedjob.KINDS)
    ap.add_argument("--sample", action="store_true", help="two kinds, once")
    ap.add_argument("--python", default=sys.executable, help="that runs the jobs")
    args = ap.parse_args()
    print("seed %d" % args.seed, flush=True)
    with tempfile.TemporaryDirectory() as tmp:
        for i in range(args.tries):
            for k, kind in enumerate(namedjob.KINDS):
                if args.only not in (None, kind) or (args.sample and kind not in SAMPLE):
                    continue
                good, why = one(kind, args.seed + 100 * i + k, tmp, args.python)
                counts[good] += 1
                print("%-4s %s %d%s" % (good, kind, args.seed + 100 * i + k,
                                        ": " + why if why else ""), flush=True)
    print("%d passed, %d failed, %d skipped" % (counts["ok"], counts["FAIL"], counts["skip"]))
    return 1 if counts["FAIL"] else 0


if __name__ == "__main__":
    sys.exit(main())
