#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""What a trace costs a job, measured and as the report tells it (capture.target_overhead).

    tests/bench/overhead.py [--pairs N] [--seconds S] [--only WORD] [--options "--mode light"]
                            [--json FILE]

Each job runs once, on the simulated GPU. Stretches of it are traced and not, in turns, each
pair the other way round than the one before; between them nothing is counted, so that
attaching and detaching are in none. Its own log says how many steps each stretch had. A
pair's cost is 1 - traced / untraced; of two untraced stretches beside each other it is the
noise. Prints both with their 95 % intervals of the mean (Student), and the median of what the
reports told. Nothing passes or fails here. Needs root, build/, and a machine with nothing
else to do.
"""
import argparse
import bisect
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.environ.get("BUILD", os.path.join(TOP, "build"))
JOBS = {
    "CPU-saturated": ["--workers", "2", "--item-cpu-us", "1000"],
    "input-bound": ["--workers", "1", "--item-cpu-us", "400", "--read-dir", "DIR"],
    "launch-heavy": ["--workers", "0", "--items", "1", "--item-cpu-us", "1000", "--launches",
                     "200", "--kernel-us", "1"],
}
# Student's t, two-sided 95 %, by degrees of freedom
T95 = [math.nan, 12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23]


class Job:
    def __init__(self, words, tmp):
        self.log = os.path.join(tmp, "truth")
        self.proc = subprocess.Popen(
            [os.path.join(BUILD, "sim/simjob"), "--random-jitter", "0", "--seconds", "0",
             "--truth", self.log] + [os.path.join(tmp, "data") if w == "DIR" else w for w in words],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)

    def ends(self):
        """Of its steps, ns; once it has ended."""
        time.sleep(2) # its log is written in blocks
        self.proc.terminate()
        self.proc.wait()
        out = []
        with open(self.log) as f:
            for line in f:
                try:
                    step = json.loads(line)
                except ValueError:
                    continue # cut by its end
                if "step" in step:
                    out.append(step["compute_end"])
        return out


def rate(ends, stretch):
    """Steps a second, whole and parts of one."""
    def at(ts):
        i = bisect.bisect_right(ends, ts)
        if not 0 < i < len(ends):
            raise SystemExit("overhead: the job's log does not cover a stretch")
        return i + (ts - ends[i - 1]) / (ends[i] - ends[i - 1])
    begin, end = stretch
    return (at(end) - at(begin)) / (end - begin) * 1e9


def traced(job, seconds, options, tmp):
    report = os.path.join(tmp, "report.json")
    r = subprocess.run([os.path.join(BUILD, "pipetrace"), "-p", str(job.proc.pid), "-d",
                        str(seconds), "--json", report] + options,
                       stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                       stderr=subprocess.PIPE)
    if r.returncode:
        raise SystemExit("overhead: " + r.stderr.decode(errors="replace"))
    with open(report) as f:
        cap = json.load(f)["capture"]
    return (cap["begin_ns"], cap["end_ns"]), cap["target_overhead"]


def untraced(seconds):
    begin = time.monotonic_ns()
    time.sleep(seconds)
    return begin, time.monotonic_ns()


def interval(values):
    """Mean, and half of its 95 % interval; percent."""
    n = len(values)
    t = T95[n - 1] if n - 1 < len(T95) else 2.2
    return (100 * statistics.mean(values),
            100 * t * statistics.stdev(values) / math.sqrt(n) if n > 1 else math.nan)


def measure(name, args, tmp):
    job = Job(JOBS[name], tmp)
    pairs, idle, told = [], [], []
    time.sleep(2)
    for turn in range(args.pairs):
        with_it, told_now = None, None
        for what in ("none", "trace", "none") if turn % 2 else ("trace", "none", "none"):
            if what == "trace":
                with_it, told_now = traced(job, args.seconds, args.options.split(), tmp)
            else:
                idle.append((turn, untraced(args.seconds)))
            time.sleep(0.3) # what detaching leaves
        pairs.append(with_it)
        told.append(told_now)
    ends = job.ends()
    cost, noise = [], []
    for turn, with_it in enumerate(pairs):
        beside = [rate(ends, s) for t, s in idle if t == turn]
        cost.append(1 - rate(ends, with_it) / beside[0])
        noise.append(1 - beside[1] / beside[0])
    mean, half = interval(cost)
    zero, floor = interval(noise)
    mid = {k: 100 * statistics.median(t[k] for t in told) for k in ("value", "low", "high")}
    print("%-14s %6.2f +- %.2f %%   %6.2f +- %.2f %%   %.2f (%.2f to %.2f) %%   %s" % (
        name, mean, half, zero, floor, mid["value"], mid["low"], mid["high"],
        "agree" if mean - half <= mid["high"] and mean + half >= mid["low"] else "DIFFER"))
    return {"job": name, "cost": cost, "noise": noise, "told": told}


def main():
    ap = argparse.ArgumentParser(description="What a trace costs a job.")
    ap.add_argument("--pairs", type=int, default=6)
    ap.add_argument("--seconds", type=int, default=5)
    ap.add_argument("--only", default="", help="jobs with this in their name")
    ap.add_argument("--options", default="", help="of pipetrace")
    ap.add_argument("--json", help="also write each pair there")
    args = ap.parse_args()
    if os.geteuid():
        raise SystemExit("overhead: needs root")
    print("%d pairs of %d s, %d cores, Linux %s, pipetrace %s" % (
        args.pairs, args.seconds, os.cpu_count(), os.uname().release, args.options))
    print("%-14s %-17s   %-17s   told" % ("", "measured", "untraced pairs"))
    out = []
    for name in JOBS:
        if args.only in name:
            with tempfile.TemporaryDirectory(prefix="pipetrace-overhead-") as tmp:
                out.append(measure(name, args, tmp))
            sys.stdout.flush()
    if args.json:
        with open(args.json, "w") as f:
            json.dump(out, f, indent=1)


if __name__ == "__main__":
    main()
