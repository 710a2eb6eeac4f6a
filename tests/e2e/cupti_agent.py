#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""The in-target agent on the stand-in of CUPTI, loaded by CUDA itself
(CUDA_INJECTION64_PATH) and driven by tests/e2e/agent_drive: what it tells
against the device's own log, and what happens when things go wrong.

    cupti_agent.py [--seeds N]      random jobs of build/sim/gpujob; needs a build
"""

import argparse
import os
import re
import signal
import subprocess
import sys
import tempfile
import time

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.environ.get("BUILD", os.path.join(TOP, "build"))
AGENT = os.path.abspath(os.path.join(BUILD, "libpipetrace_agent.so"))
DRIVE = os.path.join(BUILD, "tests/e2e/agent_drive")
CUDA = os.path.abspath(os.path.join(BUILD, "sim/cuda"))
WORK = ("kernel", "h2d", "d2h", "d2d", "h2h", "memset")
KINDS = {1: "kernel", 3: "memset"}
COPIES = {0: "h2h", 1: "h2d", 2: "d2h", 3: "d2d"}
NEAR_NS = 20000      # of two clocks, on a machine that does other things too
RETIRED_S = 4        # from the tracer's end
results = []


def ok(name, good, detail=""):
    results.append(bool(good))
    print("%s %s%s" % ("ok" if good else "not ok", name, "" if good else ": " + str(detail)),
          flush=True)


class Job:
    """A job on the simulated GPU with the agent loaded into it."""

    def __init__(self, tmp, argv, **env):
        self.log = os.path.join(tmp, "truth.%p.csv")
        env = dict(os.environ, LD_LIBRARY_PATH=CUDA, CUDA_INJECTION64_PATH=AGENT,
                   PT_SIM_LOG=self.log, **env)
        self.p = subprocess.Popen(argv, env=env, stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE, text=True)
        self.pid = self.p.pid

    def truth(self):
        """[(op, start, end, device)], once it has ended."""
        rows = []
        with open(self.log.replace("%p", str(self.pid)), encoding="utf-8") as f:
            for line in f:
                v = line.rstrip("\n").split(",")
                if v[0] in WORK:
                    rows.append((v[0], int(v[3]), int(v[4]), int(v[8]) if len(v) > 8 else 0))
        return rows

    def end(self, sig=signal.SIGTERM):
        if self.p.poll() is None and sig:
            self.p.send_signal(sig)
        try:
            out, err = self.p.communicate(timeout=30)
        except subprocess.TimeoutExpired:
            self.p.kill()
            out, err = self.p.communicate()
            ok("the job ends by itself", False, err)
        return self.p.returncode, out, err


def drive(pid, ms, *more, limit=40):
    """(status, records by kind, cover, names, status line) of one use."""
    done = subprocess.run([DRIVE, str(pid), str(ms)] + list(more), capture_output=True,
                          text=True, timeout=limit, check=False)
    acts, names, cover, status = [], {}, None, {}
    for line in done.stdout.splitlines():
        v = line.split(" ")
        if v[0] == "act" and v[1] == "6":
            cover = (int(v[2]), int(v[3]), int(v[8]))
        elif v[0] == "act":
            acts.append(dict(zip(("what", "begin", "end", "device", "stream", "correlation",
                                  "graph", "bytes", "detail", "flags"), map(int, v[1:11])),
                             name=v[11]))
        elif v[0] == "name":
            names[v[1]] = " ".join(v[2:])
        elif v[0] == "status":
            status = dict(re.findall(r"(\w+)=(\S*)", line.split(" said=")[0]))
            status["said"] = line.split(" said=")[1]
    return done.returncode, acts, cover, names, status


def union(spans, low, high):
    total, end = 0, low
    for a, b in sorted(spans):
        a, b = max(a, end), min(b, high)
        if b > a:
            total += b - a
            end = b
    return total


def compare(name, job, acts, cover):
    """Every piece of work that began and ended in the stretch, and no other."""
    work = [(KINDS.get(a["what"]) or COPIES[a["detail"]], a["begin"], a["end"], a["device"])
            for a in acts if a["what"] <= 3]
    if not work or not cover:
        ok(name + ": records came", False, (len(work), cover))
        return
    truth = job.truth()
    low, high = min(w[1] for w in work) - NEAR_NS, cover[1] - NEAR_NS
    for op in WORK:
        said = sorted((b, e) for o, b, e, _ in work if o == op and e < high)
        true = sorted((b, e) for o, b, e, _ in truth if o == op and low <= b and e < high)
        # a stream that drains what was queued before adds work that nobody told
        if len(said) < len(true):
            extra = len(true) - len(said)
            early = [t for t in true[:extra] if t[0] < said[0][0] - NEAR_NS] if said else []
            true = true[len(early):]
        if not said and not true:
            continue
        off = max((max(abs(a[0] - b[0]), abs(a[1] - b[1])) for a, b in zip(said, true)), default=0)
        ok("%s: %d %s" % (name, len(true), op), len(said) == len(true) and off < NEAR_NS,
           "%d told, %d happened, times off by %d ns" % (len(said), len(true), off))
    for device in sorted({w[3] for w in work}):
        first = max(min(w[1] for w in work if w[3] == device and w[0] == op)
                    for op in {w[0] for w in work if w[3] == device})
        # what was under way when the measuring ended has no record
        high = min([b for _, b, e, d in truth if d == device and first < b < high <= e] + [high])
        wall = high - first
        said = union([(b, e) for _, b, e, d in work if d == device], first, high) / wall
        true = union([(b, e) for _, b, e, d in truth if d == device], first, high) / wall
        ok("%s: device %d busy %.2f %%" % (name, device, 100 * true), abs(said - true) <= 0.01,
           "%.2f %%" % (100 * said))


def simjob(*more):
    return [os.path.join(BUILD, "sim/simjob"), "--api", "over", "--seconds", "20", "--workers", "0",
            "--item-cpu-us", "300"] + list(more)


def right(tmp):
    """Every version's layouts; graphs, several devices, pageable and pinned memory."""
    for name, argv, env in (
            ("13", simjob(), {"PT_SIM_CUPTI_VERSION": "13"}),
            ("12, pinned", simjob("--pinned"), {"PT_SIM_CUPTI_VERSION": "12"}),
            ("11, graphs", simjob("--graph"), {"PT_SIM_CUPTI_VERSION": "11"}),
            ("3 devices", simjob("--devices", "3"), {"PT_SIM_DEVICES": "3"}),
            ("its own clock, 80 ppm off", simjob(), {
                "PT_SIM_CUPTI_FAIL": "notimestamp",
                "PT_SIM_CUPTI_CLOCK": "-987654321012345:80"})):
        job = Job(tmp, argv, **env)
        time.sleep(0.7)
        code, acts, cover, names, status = drive(job.pid, 1500)
        again = drive(job.pid, 600)
        code_job, _, err = job.end()
        ok(name + ": the job ended as told", code_job in (0, -signal.SIGTERM), (code_job, err))
        ok(name + ": runs and stops", code == 0 and status.get("state") == "3" and
           status["lost"] == "0", status)
        compare(name, job, acts, cover)
        ok(name + ": and once more", again[4].get("state") == "3" and
           sum(a["what"] == 1 for a in again[1]) > 50, again[4])
        ok(name + ": clock", status.get("callback") == str(int("clock" not in name)), status)
        copies = [a for a in acts if a["what"] == 2]
        ok(name + ": memory", copies and all(bool(a["flags"] & 1) == ("pinned" not in name)
                                             for a in copies if a["detail"] == 1), copies[:2])
        ok(name + ": graph", all(bool(a["flags"] & 2) == ("graphs" in name)
                                 for a in acts if a["what"] == 1))
        ok(name + ": kernels have names", names and all(
            a["name"] in names for a in acts if a["what"] == 1), names)


def random_jobs(tmp, seeds):
    for seed in range(1, seeds + 1):
        job = Job(tmp, [os.path.join(BUILD, "sim/gpujob"), "--seed", str(seed), "--seconds", "20"])
        time.sleep(0.7)
        if job.p.poll() is not None:
            ok("job %d runs" % seed, False, job.p.communicate())
            continue
        code, acts, cover, _, status = drive(job.pid, 1500)
        job.end()
        if code == 1 and not acts:
            continue # one of HIP: CUDA's driver is not in it
        compare("job %d" % seed, job, acts, cover)
        ok("job %d: nothing lost" % seed, status.get("lost") == "0", status)


def faults(tmp):
    job = Job(tmp, simjob(), PT_SIM_CUPTI_FAIL="nobuffer")
    time.sleep(0.7)
    _, acts, cover, _, status = drive(job.pid, 1500)
    job.end()
    # What was queued before, or is under way at the end, has no record to be dropped.
    low = min((x["begin"] for x in acts if x["what"] <= 3), default=0) - NEAR_NS
    true = sum(low <= b and e < cover[1] - NEAR_NS for _, b, e, _ in job.truth()) if cover else 0
    got = sum(a["what"] <= 3 for a in acts)
    ok("drops are counted", int(status["dropped"]) > 0 and cover[2] == int(status["lost"]) and
       got < true <= got + int(status["dropped"]), (status, got, true))
    for fail, why, said in (("inuse", "2", "not known"), ("inuse", "2", "Nsight Systems"), ("enable", "3", "PRIVILEGES"),
                            ("subscribe", "3", "cuptiSubscribe"), ("version", "3", "Version")):
        # CUDA 13's, already loaded, says who it is
        more = {"LD_PRELOAD": os.path.join(CUDA, "libcupti.so.13")} if "Nsight" in said else {}
        job = Job(tmp, simjob(), PT_SIM_CUPTI_FAIL=fail, **more)
        _, acts, _, _, status = drive(job.pid, 1000)
        ok(fail + ": refused, and said why", status.get("state") == "4" and status["why"] == why and
           said in status["said"] and not acts, status)
        code, _, err = job.end()
        ok(fail + ": the job goes on", code in (0, -signal.SIGTERM), err)
    job = Job(tmp, simjob("--seconds", "7"), PT_SIM_CUPTI_FAIL="hang")
    _, _, _, _, status = drive(job.pid, 500)
    code, out, err = job.end(0)
    ok("a flush that hangs: the job ends by itself", code == 0 and "steps" in out + err and
       status.get("state") != "3", (code, status, err))


def tracers(tmp):
    """Two at once; one that is killed."""
    job = Job(tmp, simjob())
    time.sleep(0.5)
    with subprocess.Popen([DRIVE, str(job.pid), "1500"], stdout=subprocess.DEVNULL) as first:
        time.sleep(0.5)
        ok("a second tracer is refused", drive(job.pid, 500)[0] == 3)
        first.wait(20)
    code, acts, *_ = drive(job.pid, 500, "hold")
    ok("a tracer that dies", code == 9 and len(acts) > 20, (code, len(acts)))
    ok("for the moment nobody noticed", drive(job.pid, 0)[4].get("state") == "2")
    time.sleep(RETIRED_S)
    status = drive(job.pid, 0)[4]
    ok("the agent retires in %d s" % RETIRED_S, status.get("state") == "3" and
       status["why"] == "5", status)
    _, acts, cover, _, status = drive(job.pid, 1000)
    job.end()
    ok("and serves the next one", status.get("state") == "3", status)
    compare("the next one", job, acts, cover)


FORKS = r"""
import ctypes, os, sys, time
gpu = ctypes.CDLL("libcudart.so.12")
gpu.cudaDeviceSynchronize()
for _ in range(5):
    time.sleep(0.3)
    child = os.fork()
    if not child:
        time.sleep(1.5)
        tasks = [open("/proc/self/task/%s/comm" % t).read().strip() for t in os.listdir("/proc/self/task")]
        maps = open("/proc/self/maps").read()
        os._exit(7 if tasks == [tasks[0]] and "pipetrace-agent (deleted)" not in maps else 8)
    for _ in range(200):
        gpu.cudaLaunchKernel(ctypes.c_void_p(1), 1, 1, 1, 1, 1, 1, None, ctypes.c_size_t(0), None)
    gpu.cudaDeviceSynchronize()
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


def forks(tmp):
    job = Job(tmp, [sys.executable, "-c", FORKS])
    time.sleep(0.5)
    drive(job.pid, 3000)
    code, out, err = job.end(0)
    ok("a child of fork has neither thread nor memory of the agent",
       code == 0 and out.split() == ["7"] * 5, (code, out, err))


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--seeds", type=int, default=4)
    p.add_argument("only", nargs="*")
    o = p.parse_args()
    for need in (AGENT, DRIVE, os.path.join(CUDA, "libcupti.so.13")):
        if not os.path.exists(need):
            print("skipped: no " + need)
            return 77
    cases = {"right": right, "random": lambda tmp: random_jobs(tmp, o.seeds),
             "faults": faults, "tracers": tracers, "forks": forks}
    with tempfile.TemporaryDirectory() as tmp:
        for name, case in cases.items():
            if not o.only or name in o.only:
                case(tmp)
    good = sum(results)
    print("%d passed, %d failed, 0 skipped" % (good, len(results) - good))
    return 0 if good == len(results) else 1


if __name__ == "__main__":
    sys.exit(main())
