#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""What a job does to the GPU is counted once, whichever library it uses and
through however many one call passes.

simjob runs on the stand-ins of the GPU libraries: CUDA's runtime alone, a
runtime that goes on to the driver, the driver alone, runtime and driver mixed,
libraries loaded while the trace runs, HIP, graphs, NCCL. The device's own log
says how many kernels and copies there were; the report must say the same,
exactly.

    layers.py [NAME...] [--repeat N]

Needs root and a build. Ends with "N passed, N failed, N skipped".
"""

import argparse
import collections
import json
import os
import subprocess
import sys
import tempfile
import time

from badinput_tools import breakpoints
from held import traced

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PIPETRACE = os.path.join(TOP, "build/pipetrace")
SIMJOB = os.path.join(TOP, "build/sim/simjob")
STORM = os.path.join(TOP, "build/tests/e2e/storm")
STEPS, HOLD_MS = 40, 800
# A device that the job waits for, so that its calls are close together.
JOB = ["--steps", str(STEPS), "--hold", "--hold-ms", str(HOLD_MS), "--workers", "1",
       "--item-cpu-us", "20", "--launches", "25", "--kernel-us", "50"]

Case = collections.namedtuple("Case", "name args trace env")


def case(name, args, trace="", env=None):
    return Case(name, args.split(), trace.split(), env or {})


CASES = [
    case("runtime", "--api runtime"),
    case("over", "--api over"),
    case("over_light", "--api over", "--mode light"),
    case("driver", "--api driver"),
    case("mixed", "--api mixed"),
    case("late_runtime", "--api runtime --late 10"),
    case("late_over", "--api over --late 10"),
    case("late_driver", "--api driver --late 10"),
    case("late_mixed", "--api mixed --late 10"),
    case("perf_mixed", "--api mixed --late 10", "--no-uprobe-multi"),
    case("pinned_mixed", "--api mixed --pinned --sync-every 7"),
    case("hip", "--api hip"),
    case("devices", "--api runtime --devices 3"),
    case("devices_mixed", "--api mixed --devices 2"),
    case("graph", "--api runtime --graph"),
    case("graph_over", "--api over --graph"),
    case("graph_hip", "--api hip --graph"),
    case("nccl", "--api over --collectives 2", env={"PT_SIM_NCCL_HOLD_US": "4000"}),
    case("nccl_runtime", "--api runtime --collectives 1"),
    case("rccl", "--api hip --collectives 1"),
]


class Broken(Exception):
    """The run could not be judged."""


def device_log(path):
    """{operation: how many}, bytes copied, synchronising calls; kernels of each
    device are counted as "kernel 0", "kernel 1", ... too."""
    ops, size, syncs = collections.Counter(), 0, 0
    column = None
    with open(path) as f:
        for line in f:
            if line.startswith("# lost"):
                raise Broken("the device's log has gaps")
            v = line.strip().split(",")
            if v[0] == "op" and "device" in v:
                column = v.index("device")
            if line[0] == "#" or v[0] == "op":
                continue
            if v[0] == "host":
                syncs += "Synchronize" in v[7]
                continue
            ops[v[0]] += 1
            if column and v[0] == "kernel":
                ops["kernel " + v[column]] += 1
            if v[0] in ("h2d", "d2h", "d2d", "h2h"):
                size += int(v[5])
    return ops, size, syncs


def trace(c, tmp):
    """(report, the device's log); the trace covers every call of the job."""
    log, out = os.path.join(tmp, "gpu.csv"), os.path.join(tmp, "report.json")
    env = dict(os.environ, PT_SIM_LOG=log, **c.env)
    with open(os.path.join(tmp, "job.out"), "w+") as said:
        job = subprocess.Popen([SIMJOB, *JOB, *c.args], env=env, text=True,
                               stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=said)
        try:
            if "pid" not in job.stdout.readline():
                raise Broken("the job did not start")
            t = traced(job, [PIPETRACE, "-p", str(job.pid), "--json", out, *c.trace], 90)
            status = job.wait(30)
        finally:
            if job.poll() is None:
                job.kill()
                job.wait()
            job.stdout.close()
            job.stdin.close()
        said.seek(0)
        if status:
            raise Broken("the job failed: " + said.read().strip()[-200:])
    if t.returncode:
        raise Broken("pipetrace: " + t.stderr.strip()[-200:])
    with open(out) as f:
        return json.load(f), device_log(log)


def judge(c, report, log):
    """What is wrong, as a list of sentences."""
    ops, size, syncs = log
    devices = int(c.args[c.args.index("--devices") + 1]) \
        if "--devices" in c.args else 1
    if len(report["gpu"]) != devices:
        return ["%d devices in the report" % len(report["gpu"])]
    g = report["gpu"][0]
    wrong = []

    def total(get):
        return sum(get(d) for d in report["gpu"])

    def same(what, told, true):
        if told != true:
            wrong.append("%s: %s, truth %s" % (what, told, true))

    if not ops["kernel"]:
        wrong.append("the job launched nothing")
    if report["capture"]["lost"]["total"]:
        wrong.append("records were lost: %s" % report["capture"]["lost"])
    same("kernels", total(lambda d: d["kernels"]), ops["kernel"])
    for d in report["gpu"] if devices > 1 else []:
        same("kernels of device %d" % d["index"], d["kernels"],
             ops["kernel %d" % d["index"]])
    same("h2d", total(lambda d: d["copies"]["h2d"]), ops["h2d"])
    same("d2h", total(lambda d: d["copies"]["d2h"]), ops["d2h"])
    same("bytes", total(lambda d: d["copies"]["bytes"]), size)
    same("syncs", total(lambda d: d["syncs"]), syncs)
    graph = "--graph" in c.args
    same("graph launches", g["graph_launches"], STEPS if graph else 0)
    per_step = int(c.args[c.args.index("--collectives") + 1]) \
        if "--collectives" in c.args else 0
    batch = 32 * 224 * 224 * 3 // 4 * 4
    same("collectives", g["collectives"]["calls"], STEPS * per_step)
    same("their bytes", g["collectives"]["bytes"], STEPS * per_step * batch)
    held = STEPS * per_step * int(c.env.get("PT_SIM_NCCL_HOLD_US", 0)) / 1e6
    told = report["breakdown"]["collective"]["seconds"]
    # A sleep is never shorter, and on a busy machine seldom half as long again.
    if not held <= told <= held * 1.5 + (0.05 if per_step else 0):
        wrong.append("in collectives: %.3f s, at least %.3f s" % (told, held))
    return wrong


def storm(tmp, how):
    """A program that launches by the runtime in bursts: once its launches were seen to
    reach the driver, no launch of the runtime stays hooked; nothing may be missed or
    counted twice meanwhile. late: a library comes that calls the driver directly; threads:
    four of them launch; apart: the runtime goes another way than by the driver's hook."""
    cuda = os.path.join(TOP, "build/sim/cuda")
    log, out = os.path.join(tmp, "gpu.csv"), os.path.join(tmp, "report.json")
    env = dict(os.environ, PT_SIM_LOG=log, PT_SIM_KERNEL_NS="10")
    runtime, late, apart = os.path.join(cuda, "libcudart.so.12"), how == "late", how == "apart"
    if apart:
        runtime = os.path.join(TOP, "build/sim/libcudart.so.12")
        env["LD_PRELOAD"] = os.path.join(cuda, "libcuda.so.1")
    if how == "threads":
        env["STORM_THREADS"] = "4"
    job = subprocess.Popen([STORM, runtime, "4"] + [os.path.join(cuda, "libnccl.so.2")] * late,
                           env=env, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        pid = int(job.stdout.readline())
        t = subprocess.Popen([PIPETRACE, "-p", str(pid), "--json", out], text=True,
                             stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        next((line for line in t.stderr if "attached to" in line), None)
        wrong, later, driver = [], False, False
        at_first = "cudaLaunchKernel" in breakpoints(pid, runtime)[0]
        job.stdin.close()
        begin = time.monotonic()
        while job.poll() is None and time.monotonic() < begin + 20:
            hooked, _ = breakpoints(pid, runtime)
            below, _ = breakpoints(pid, os.path.join(cuda, "libcuda.so.1"))
            since = time.monotonic() - begin
            later |= 2.5 < since < 3.5 and "cudaLaunchKernel" in hooked
            driver |= 2.5 < since < 3.5 and "cuLaunchKernel" in below
            time.sleep(0.2)
        said = job.stdout.read().split()
        t.communicate(timeout=60)
    finally:
        job.kill()
        job.wait()
        job.stdout.close()
    if t.returncode or job.returncode:
        raise Broken("pipetrace ended with %s, the job with %s"
                     % (t.returncode, job.returncode))
    with open(out) as f:
        g = json.load(f)["gpu"][0]
    launches, collectives = int(said[1]), int(said[3])
    # apart, two devices write into the log
    kernels = launches if apart else device_log(log)[0]["kernel"]
    if not at_first:
        wrong.append("the runtime's launch was never hooked")
    if later != apart:
        wrong.append("the runtime's launch %s hooked" % ("stays" if later else "is no longer"))
    if not driver:
        wrong.append("the driver's launch does not stay hooked")
    if not launches + collectives == kernels == g["kernels"]:
        wrong.append("kernels: %s, truth %d, of the job's own count %d"
                     % (g["kernels"], kernels, launches + collectives))
    if g["collectives"]["calls"] != collectives or (late and not collectives):
        wrong.append("collectives: %s, truth %d"
                     % (g["collectives"]["calls"], collectives))
    return wrong, kernels


def main():
    p = argparse.ArgumentParser()
    p.add_argument("names", nargs="*")
    p.add_argument("--repeat", type=int, default=1)
    o = p.parse_args()
    if os.geteuid() != 0:
        print("needs root")
        return 77
    if not os.path.exists(SIMJOB):
        print("needs a build")
        return 77
    passed = failed = 0
    for c in [c for c in CASES if not o.names or c.name in o.names]:
        for _ in range(o.repeat):
            with tempfile.TemporaryDirectory(prefix="pipetrace-layers-") as tmp:
                try:
                    report, log = trace(c, tmp)
                    wrong = judge(c, report, log)
                except (Broken, OSError, ValueError,
                        subprocess.TimeoutExpired) as e:
                    wrong, log = [str(e)], ({"kernel": 0}, 0, 0)
            passed, failed = passed + (not wrong), failed + bool(wrong)
            print("%s %s: %d kernels%s" % (
                "not ok" if wrong else "ok", c.name, log[0]["kernel"],
                "; " + "; ".join(wrong) if wrong else ""), flush=True)
    for name in ("one_trap", "one_trap_late", "one_trap_threads", "one_trap_apart"):
        if o.names and name not in o.names:
            continue
        with tempfile.TemporaryDirectory(prefix="pipetrace-layers-") as tmp:
            kernels = 0
            try:
                wrong, kernels = storm(tmp, name.rsplit("_", 1)[-1])
            except (Broken, OSError, ValueError, IndexError,
                    subprocess.TimeoutExpired) as e:
                wrong = [str(e)]
        passed, failed = passed + (not wrong), failed + bool(wrong)
        print("%s %s: %d kernels%s" % (
            "not ok" if wrong else "ok", name, kernels,
            "; " + "; ".join(wrong) if wrong else ""), flush=True)
    print("%d passed, %d failed, 0 skipped" % (passed, failed))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
