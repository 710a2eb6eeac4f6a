#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""What the driver says of its devices (NVML), and what when it says nothing.

simjob publishes its simulated device, the stand-in of libnvidia-ml tells the
tracer of it. Held against the device's own log: utilisation; against what was
ordered: clocks, throttle reasons, processes. A driver that never answers, none
at all, and a tracer that is killed must leave a report, in time, and nothing
behind.

    nvml.py [NAME...]

Needs root and a build. Ends with "N passed, N failed, N skipped".
"""
import collections
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.environ.get("BUILD", os.path.join(TOP, "build"))
PIPETRACE = os.path.join(BUILD, "pipetrace")
SIMJOB = os.path.join(BUILD, "sim/simjob")
CUDA = os.path.join(BUILD, "sim/cuda")
SECONDS = 4
UTIL_NEAR = 0.06  # samples of some tenths of a second against the whole

Case = collections.namedtuple("Case", "name env jobs job_args")
CASES = [
    Case("busy", {}, 1, "--item-cpu-us 20"),
    Case("idle", {}, 1, "--item-cpu-us 2000"),
    Case("shared", {}, 2, "--item-cpu-us 500"),
    Case("throttled", {"PT_SIM_NVML_THROTTLE": "0x4c"}, 1, "--item-cpu-us 500"),
    Case("no_util", {"PT_SIM_NVML_FAIL": "util"}, 1, "--item-cpu-us 500"),
    Case("no_driver", {"PT_SIM_NVML_FAIL": "init"}, 1, "--item-cpu-us 500"),
    Case("hang", {"PT_SIM_NVML_FAIL": "hang"}, 1, "--item-cpu-us 500"),
    Case("no_library", {"LD_LIBRARY_PATH": "/nonexistent"}, 1, "--item-cpu-us 500"),
    Case("killed", {"PT_SIM_NVML_FAIL": "hang"}, 1, "--item-cpu-us 500"),
]


def children(pid):
    try:
        with open("/proc/%d/task/%d/children" % (pid, pid), encoding="ascii") as f:
            return [int(x) for x in f.read().split()]
    except OSError:
        return []


def is_helper(pid):
    try:
        with open("/proc/%d/cmdline" % pid, "rb") as f:
            return f.read().split(b"\0")[1:2] == [b"__nvml"]
    except OSError:
        return False


def busy_share(path, begin, end):
    """Union of the device's work in the window, by its own log. (A real driver
    counts kernels alone; the stand-in publishes all that the device does.)"""
    spans = []
    with open(path, encoding="utf-8") as f:
        for line in f:
            v = line.split(",")
            if v[0] in ("kernel", "h2d", "d2h", "d2d", "memset"):
                spans.append((int(v[3]), int(v[4])))
    total, at = 0, begin
    for b, e in sorted(spans):
        b, e = max(b, at), min(e, end)
        if e > b:
            total += e - b
            at = e
    return total / (end - begin)


def start_job(case, tmp, i):
    env = dict(os.environ, PT_SIM_NVML=os.path.join(tmp, "state"),
               PT_SIM_LOG=os.path.join(tmp, "gpu%d.csv" % i))
    return subprocess.Popen([SIMJOB, "--seconds", "120", "--workers", "1"]
                            + case.job_args.split(), env=env, stdin=subprocess.DEVNULL,
                            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def trace(case, tmp, pid):
    """(status, seconds, standard error, the helper's pid)"""
    env = dict(os.environ, PT_SIM_NVML=os.path.join(tmp, "state"))
    env["LD_LIBRARY_PATH"] = CUDA
    env.update(case.env)
    begin = time.monotonic()
    t = subprocess.Popen([PIPETRACE, "-p", str(pid), "-d", str(SECONDS), "--json",
                          os.path.join(tmp, "r.json"), "-o", os.path.join(tmp, "r.rec")],
                         env=env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                         stderr=subprocess.PIPE, text=True)
    helper = 0
    try:
        while not helper and time.monotonic() < begin + 3 and t.poll() is None:
            helper = next((c for c in children(t.pid) if is_helper(c)), 0)
            time.sleep(0.005)
        if case.name == "killed":
            time.sleep(0.7)
            t.kill()
        err = t.communicate(timeout=SECONDS + 20)[1]
    finally:
        if t.poll() is None:
            t.kill()
            t.wait()
    return t.returncode, time.monotonic() - begin, err, helper


def judge(case, tmp, pid, report, again):
    wrong = []
    g = report["gpu"][0]
    told = ("uuid", "name", "utilization", "clocks", "throttle", "processes",
            "traced_processes", "memory")
    if [g[k] for k in told] != [again["gpu"][0][k] for k in told] \
            or report["series"] != again["series"]:
        wrong.append("the recorded file tells something else")
    limits = {x["what"]: x["reason"] for x in report["capture"]["limits"]}
    silent = {"no_driver": "no working driver", "hang": "did not answer",
              "no_library": "is not there"}.get(case.name)
    if silent:
        if silent not in limits.get("nvml", ""):
            wrong.append("the limit says: %s" % limits.get("nvml"))
        if [g[k] for k in told[:7]] != [None, None, None,
                                        {"sm_mhz": None, "sm_max_mhz": None},
                                        None, None, None]:
            wrong.append("figures without a source: %s" % [g[k] for k in told])
        return wrong
    if "nvml" in limits or "gpu.memory" in limits:
        wrong.append("a limit although it answered")
    if not re.fullmatch(r"GPU-[-0-9a-f]{36}", g["uuid"] or ""):
        wrong.append("uuid %s" % g["uuid"])
    if (g["processes"], g["traced_processes"]) != (case.jobs, 1):
        wrong.append("%s processes, %s traced" % (g["processes"], g["traced_processes"]))
    if not 0 < g["memory"]["peak"] <= g["memory"]["total"] == 16 << 30:
        wrong.append("memory %s" % g["memory"])
    want = ["sw_power_cap", "hw_slowdown", "hw_thermal_slowdown"] \
        if case.name == "throttled" else []
    if g["throttle"] != want:
        wrong.append("throttle %s" % g["throttle"])
    mhz, top = g["clocks"]["sm_mhz"]["mean"], g["clocks"]["sm_max_mhz"]
    if (mhz < top) != bool(want):
        wrong.append("%s of %s MHz" % (mhz, top))
    u = g["utilization"]
    points = [p["gpu_util"] for p in report["series"] if p["gpu_util"] is not None]
    if case.name == "no_util":
        if u is not None or points:
            wrong.append("a utilisation that was refused")
        return wrong
    if not u or u["count"] < SECONDS - 1 or len(points) < SECONDS - 1:
        wrong.append("too few samples: %s, %s" % (u, points))
    elif case.jobs == 1:
        true = busy_share(os.path.join(tmp, "gpu0.csv"), report["capture"]["begin_ns"],
                          report["capture"]["end_ns"])
        print("# %s: utilisation %.3f, truth %.3f" % (case.name, u["mean"], true))
        if abs(u["mean"] - true) > UTIL_NEAR:
            wrong.append("utilisation %.3f, truth %.3f" % (u["mean"], true))
    return wrong


def run(case, tmp):
    jobs = []
    try:
        jobs = [start_job(case, tmp, i) for i in range(case.jobs)]
        time.sleep(1)
        status, took, err, helper = trace(case, tmp, jobs[0].pid)
        alive = jobs[0].poll() is None
    finally:
        for j in jobs:
            j.terminate()
            j.wait()
    wrong = []
    if not alive:
        wrong.append("the job ended")
    time.sleep(0.2)
    # Where nothing answers it ends sooner than one can look.
    if case.name not in ("no_library", "no_driver") and not helper:
        wrong.append("no helper was seen")
    if helper and is_helper(helper):
        wrong.append("the helper is left")
        os.kill(helper, signal.SIGKILL)
    if case.name == "killed":
        return wrong
    if status:
        return wrong + ["status %d: %s" % (status, err[-300:])]
    if took > SECONDS + 6:
        wrong.append("it took %.1f s" % took)
    again = os.path.join(tmp, "again.json")
    subprocess.run([PIPETRACE, "report", os.path.join(tmp, "r.rec"), "--json", again],
                   check=True, timeout=60, stdin=subprocess.DEVNULL,
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    with open(os.path.join(tmp, "r.json"), encoding="utf-8") as f, \
            open(again, encoding="utf-8") as h:
        return wrong + judge(case, tmp, jobs[0].pid, json.load(f), json.load(h))


def main():
    if os.geteuid() != 0:
        print("needs root")
        return 77
    if not os.path.exists(os.path.join(CUDA, "libnvidia-ml.so.1")):
        print("needs a build")
        return 77
    passed = failed = 0
    for c in [c for c in CASES if len(sys.argv) < 2 or c.name in sys.argv[1:]]:
        with tempfile.TemporaryDirectory(prefix="pipetrace-nvml-") as tmp:
            try:
                wrong = run(c, tmp)
            except (OSError, ValueError, subprocess.SubprocessError) as e:
                wrong = [str(e)]
        passed, failed = passed + (not wrong), failed + bool(wrong)
        print("%s %s%s" % ("not ok" if wrong else "ok", c.name,
                           ": " + "; ".join(wrong) if wrong else ""), flush=True)
    print("%d passed, %d failed, 0 skipped" % (passed, failed))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
