#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""The operations table of live jobs against the device's own log: how often
each thing ran, how many bytes, how long on the device with CUPTI's stand-in and
without; and --sort and --top.

    operations.py [NAME...]

Needs root and a build. Ends with "N passed, N failed, N skipped".
"""
import collections
import json
import os
import subprocess
import sys
import tempfile

from held import traced

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.environ.get("BUILD", os.path.join(TOP, "build"))
PIPETRACE = os.path.join(BUILD, "pipetrace")
SIMJOB = os.path.join(BUILD, "sim/simjob")
STEPS = 500
JOB = ["--steps", str(STEPS), "--hold", "--workers", "1", "--item-cpu-us", "20",
       "--launches", "25", "--kernel-us", "50"]
NAMES = {"h2d": "host to device", "d2h": "device to host"}
EXACT = 0.01  # of the time

Case = collections.namedtuple("Case", "name job trace")
CASES = [
    Case("plain", [], []),
    Case("cupti", [], ["--cupti"]),
    Case("graph", ["--graph"], []),
    Case("graph_cupti", ["--graph"], ["--cupti"]),
    Case("driver", ["--api", "over"], []),
]


def device_log(path):
    """{operation: [how many, bytes, seconds]}"""
    of = collections.defaultdict(lambda: [0, 0, 0.0])
    with open(path, encoding="utf-8") as f:
        for line in f:
            v = line.split(",")
            if v[0] in ("kernel", "h2d", "d2h"):
                x = of[v[0]]
                x[0] += 1
                x[1] += int(v[5])
                x[2] += (int(v[4]) - int(v[3])) / 1e9
    return of


def run(case, tmp):
    log, out = os.path.join(tmp, "gpu.csv"), os.path.join(tmp, "r.json")
    rec = os.path.join(tmp, "r.rec")
    env = dict(os.environ, PT_SIM_LOG=log, LD_LIBRARY_PATH=os.path.join(BUILD, "sim/cuda"))
    job = subprocess.Popen([SIMJOB, *JOB, *case.job], env=env, stdin=subprocess.PIPE,
                           stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        if "pid" not in job.stdout.readline():
            raise ValueError("the job did not start")
        t = traced(job, [PIPETRACE, "-p", str(job.pid), "--json", out, "-o", rec, "--sort",
                         "calls", "--top", "3"] + case.trace, 90)
        status = job.wait(30)
    finally:
        job.kill()
        job.wait()
        job.stdout.close()
        job.stdin.close()
    if t.returncode or status:
        raise ValueError("pipetrace %d, the job %d: %s" % (t.returncode, status, t.stderr[-300:]))
    with open(out, encoding="utf-8") as f:
        return json.load(f), t.stdout, rec, device_log(log)


def judge(case, report, text, rec, log):
    wrong = []
    ops = report["operations"]
    kernels = [o for o in ops if o["kind"] == "kernel"]
    if report["capture"]["lost"]["total"]:
        wrong.append("records were lost")

    def same(what, told, true):
        if told != true:
            wrong.append("%s: %s, truth %s" % (what, told, true))

    def time(what, rows, true):
        if not case.trace:
            if any(o["gpu_s"] is not None or o["certainty"] for o in rows):
                wrong.append("%s: a device time out of nothing" % what)
            return
        # The agent comes while the job runs: of what a graph ran before that
        # not even the functions are known.
        told = [o for o in rows if o["gpu_s"] is not None]
        calls = sum(o["calls"] for o in told)
        if calls < 0.5 * sum(o["calls"] for o in rows):
            wrong.append("%s: most have no time" % what)
            return
        seconds, true = sum(o["gpu_s"] for o in told), true * calls / sum(
            o["calls"] for o in rows)
        if abs(seconds - true) > EXACT * true:
            wrong.append("%s: %.4f s, truth %.4f s" % (what, seconds, true))

    same("kernels", sum(o["calls"] or 0 for o in kernels), log["kernel"][0])
    same("kernels in gpu[]", report["gpu"][0]["kernels"], log["kernel"][0])
    time("kernels", kernels, log["kernel"][2])
    for op, name in NAMES.items():
        rows = [o for o in ops if o["kind"] == "copy" and o["name"] == name]
        same(name, [(o["calls"], o["bytes"]) for o in rows], [tuple(log[op][:2])])
        time(name, rows, log[op][2])
    if sum(o["calls"] for o in ops if o["kind"] == "copy") != log["h2d"][0] + log["d2h"][0]:
        wrong.append("other copies than there were")
    launch = next(o for o in ops if o["name"] in ("cudaLaunchKernel", "cuLaunchKernel"))
    same("launches", launch["calls"], 25 if "--graph" in case.job else log["kernel"][0])
    if launch["total_s"] is not None or launch["mean_us"] is not None:
        wrong.append("a host time that nobody watched")
    told = [o["calls"] for o in ops]
    if told != sorted(told, reverse=True):
        wrong.append("not by calls")
    lines = text[text.index("Operations"):].split("\n\n")[0].splitlines()
    if len(lines) != 3 + min(3, len(ops)) + (len(ops) > 3) or max(map(len, lines)) > 80:
        wrong.append("the table: %r" % lines)
    again = subprocess.run([PIPETRACE, "report", rec, "--json", "-", "--sort", "name"],
                           stdin=subprocess.DEVNULL, capture_output=True, timeout=60, check=True)
    by_name = json.loads(again.stdout)["operations"]
    if sorted(map(json.dumps, by_name)) != sorted(map(json.dumps, ops)):
        wrong.append("the recorded file tells something else")
    names = [o["name"] for o in by_name]
    if names != sorted(names):
        wrong.append("not by name")
    return wrong


def main():
    if os.geteuid() != 0:
        print("needs root")
        return 77
    if not os.path.exists(SIMJOB):
        print("needs a build")
        return 77
    passed = failed = 0
    for c in [c for c in CASES if len(sys.argv) < 2 or c.name in sys.argv[1:]]:
        with tempfile.TemporaryDirectory(prefix="pipetrace-operations-") as tmp:
            try:
                wrong = judge(c, *run(c, tmp))
            except (OSError, ValueError, StopIteration, subprocess.SubprocessError) as e:
                wrong = [repr(e)]
        passed, failed = passed + (not wrong), failed + bool(wrong)
        print("%s %s%s" % ("not ok" if wrong else "ok", c.name,
                           ": " + "; ".join(wrong) if wrong else ""), flush=True)
    print("%d passed, %d failed, 0 skipped" % (passed, failed))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
