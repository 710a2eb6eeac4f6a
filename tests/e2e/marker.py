#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""--step-marker: a C job, a Python job that calls a C function, a job that
pipetrace starts, both attach doors, a replay, and names that do not exist.
Boundaries are compared with the job's own log. Needs root and a build.
"""
import json
import os
import subprocess
import sys
import tempfile
import time

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.environ.get("BUILD", os.path.join(TOP, "build"))
PIPETRACE = os.path.join(BUILD, "pipetrace")
SIMJOB = os.path.join(BUILD, "sim/simjob")
NEAR_NS = 2000000  # the log's clock is read beside the call, not in it
results = []

PYTHON_JOB = r"""
import ctypes, hashlib, os, sys, time
gpu = ctypes.CDLL(sys.argv[1])
log = open(sys.argv[2], "w")
device, host = ctypes.c_void_p(), ctypes.create_string_buffer(65536)
gpu.cudaMalloc(ctypes.byref(device), ctypes.c_size_t(65536))
end = time.monotonic() + 300  # it is told to end before
while time.monotonic() < end:
    log.write("%d\n" % time.monotonic_ns())
    log.flush()
    os.getppid()                         # the marker, in the C library
    hashlib.sha256(b"x" * 20000000)      # "loading"
    gpu.cudaMemcpy(device, host, ctypes.c_size_t(65536), 1)
    gpu.cudaDeviceSynchronize()
"""


def ok(name, good, detail=""):
    results.append(bool(good))
    print("%s %s%s" % ("ok" if good else "not ok", name, "" if good else ": " + str(detail)),
          flush=True)


def trace(argv, limit=60):
    done = subprocess.run([PIPETRACE] + argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, timeout=limit, check=False)
    return done.returncode, done.stdout.decode(), done.stderr.decode()


def judge(name, report, begins):
    """Every logged begin of the window is a step's, and no other."""
    low, high = report["capture"]["begin_ns"], report["capture"]["end_ns"]
    true = [t for t in begins if low + NEAR_NS < t < high - NEAR_NS]
    told = [s["begin_ns"] for s in report["steps"]["list"]]
    told = [t for t in told if low + NEAR_NS < t < high - NEAR_NS]
    ok(name + ": steps come from the marker", report["steps"]["source"] == "marker",
       report["steps"]["source"])
    ok(name + ": as many as the job logged", len(true) > 10 and abs(len(true) - len(told)) <= 1,
       "%d told, %d logged" % (len(told), len(true)))
    off = [min((abs(t - x) for x in told), default=1 << 60) for t in true]
    near = sum(d < NEAR_NS for d in off)
    ok(name + ": where the job logged them", near >= 0.98 * len(true),
       "%d of %d" % (near, len(true)))
    parts = report["breakdown"]
    if name == "Python":  # it reads nothing: its loading, by its place, if enough looks tell
        worked = sum(p["seconds"] or 0 for p in parts["host"].values())
        ok(name + ": its own work is found as before",
           worked + parts["data_wait"]["seconds"] > 0.1, parts)
    else:
        ok(name + ": its waits are found as before", parts["data_wait"]["seconds"] > 0.1,
           parts["data_wait"])


def logged(path):
    """Begins of the C job's waits: it asks its loader for a batch."""
    with open(path, encoding="utf-8") as f:
        rows = [json.loads(line) for line in f if line.rstrip().endswith("}")]
    return [r["wait_begin"] for r in rows if "step" in r]


def c_job(tmp, doors):
    log = os.path.join(tmp, "c.truth.jsonl")
    job = subprocess.Popen([SIMJOB, "--workers", "2", "--item-cpu-us", "4000", "--seconds", "300",
                            "--truth", log], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                           stderr=subprocess.DEVNULL)
    found = []
    try:
        time.sleep(1.5)
        for name, more in doors:
            raw = os.path.join(tmp, "c.raw")
            status, out, err = trace(["-p", str(job.pid), "-d", "2.5", "--step-marker",
                                      "simjob:job_loader_next", "--json", "-", "--print-steps",
                                      "100000", "--raw-stream", raw] + more)
            ok(name + ": ends with status 0", status == 0, err)
            found.append((name, json.loads(out)))
            status, out, err = trace(["report", "--raw-stream", raw, "--json", "-",
                                      "--print-steps", "100000"])
            ok(name + ": replayed, the same steps", status == 0 and
               [s["begin_ns"] for s in json.loads(out)["steps"]["list"]] ==
               [s["begin_ns"] for s in found[-1][1]["steps"]["list"]], err)
        for wrong, status, word in (("nonsuch_function", 1, "no function"),
                                    ("libnone:job_loader_next", 1, "no function"),
                                    ("", 2, "--step-marker"), ("lib:", 2, "--step-marker")):
            got, out, err = trace(["-p", str(job.pid), "-d", "1", "--step-marker", wrong])
            ok("marker %r: status %d and one sentence" % (wrong, status),
               got == status and word in err and err.count("\n") == 1 and not out,
               "%d: %s" % (got, err))
    finally:
        job.terminate()
        job.wait()
    begins = logged(log)
    for name, report in found:
        judge(name, report, begins)


def python_job(tmp):
    log = os.path.join(tmp, "python.log")
    job = subprocess.Popen([sys.executable, "-c", PYTHON_JOB,
                            os.path.join(BUILD, "sim/libcudart.so.12"), log],
                           stdin=subprocess.DEVNULL)
    try:
        time.sleep(1.5)
        status, out, err = trace(["-p", str(job.pid), "-d", "2.5", "--step-marker",
                                  "libc.so:getppid", "--json", "-", "--print-steps", "100000"])
    finally:
        job.terminate()
        job.wait()
    ok("Python: ends with status 0", status == 0, err)
    with open(log, encoding="ascii") as f:
        judge("Python", json.loads(out), [int(line) for line in f if line.endswith("\n")])


def started(tmp):
    log = os.path.join(tmp, "s.truth.jsonl")
    status, out, err = trace(["--json", "-", "--print-steps", "100000", "--step-marker",
                              "job_loader_next", "--", SIMJOB, "--workers", "2", "--item-cpu-us",
                              "4000", "--seconds", "4", "--truth", log])
    ok("started: ends with status 0", status == 0, err)
    report = json.loads(out[out.index("{"):])
    # hooked within a second or two of the job's start: the begins behind that
    first = report["steps"]["list"][0]["begin_ns"] if report["steps"]["list"] else 0
    ok("started: hooked early", first - report["capture"]["begin_ns"] < 2.5e9, first)
    report["capture"]["begin_ns"] = max(first - 1, report["capture"]["begin_ns"])
    judge("started", report, logged(log))


def main():
    if os.geteuid() != 0:
        print("needs root")
        return 77
    if not os.access(PIPETRACE, os.X_OK) or not os.access(SIMJOB, os.X_OK):
        print("build/pipetrace is not built")
        return 1
    with tempfile.TemporaryDirectory(prefix="pipetrace-marker-") as tmp:
        c_job(tmp, (("C", []), ("C, perf door", ["--no-uprobe-multi"])))
        python_job(tmp)
        started(tmp)
    print("%d passed, %d failed, 0 skipped" % (sum(results), len(results) - sum(results)))
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
