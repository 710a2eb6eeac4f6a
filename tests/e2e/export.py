#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""Export of a live recording: the streams' slices against the device's own log, the
arrows from calls to their work.

    export.py

A random job on the simulated GPU runs with the stand-in of CUPTI. Needs root and a
build. Ends with "N passed, N failed, N skipped".
"""
import bisect
import collections
import json
import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.environ.get("BUILD", os.path.join(TOP, "build"))
sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(TOP, "tests/export"))
import wire  # noqa: E402
from held import traced  # noqa: E402

PIPETRACE = os.path.join(BUILD, "pipetrace")
GPUJOB = os.path.join(BUILD, "sim/gpujob")
CUDA = os.path.abspath(os.path.join(BUILD, "sim/cuda"))
NEAR_NS = 20000  # two clocks, on a machine that does other things too
KINDS = {"kernel": "kernel", "memset": "gpu_memset", "h2d": "gpu_memcpy", "d2h": "gpu_memcpy",
         "d2d": "gpu_memcpy", "h2h": "gpu_memcpy"}
SEED = 3
results = []


def ok(name, good, detail=""):
    results.append(bool(good))
    print("%s %s%s" % ("ok" if good else "not ok", name,
                       "" if good else ": " + str(detail)[:600]), flush=True)
    return good


def record(tmp):
    """(recording, the device's log) of some seconds of a job."""
    log, out = os.path.join(tmp, "truth.csv"), os.path.join(tmp, "rec")
    env = dict(os.environ, LD_LIBRARY_PATH=CUDA, PT_SIM_LOG=log)
    job = subprocess.Popen([GPUJOB, "--seed", str(SEED), "--seconds", "120", "--api", "over"],
                           env=env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    try:
        time.sleep(1)
        done = subprocess.run([PIPETRACE, "record", "-p", str(job.pid), "--cupti", "-d", "3",
                               "-o", out], stdin=subprocess.DEVNULL, capture_output=True,
                              timeout=60, check=False)
        ok("record with --cupti", done.returncode == 0, done.stderr)
        ok("the job goes on", job.poll() is None)
    finally:
        job.send_signal(signal.SIGTERM)
        try:
            job.wait(20)
        except subprocess.TimeoutExpired:
            job.kill()
            job.wait()
    work = []
    with open(log, encoding="utf-8") as f:
        for line in f:
            v = line.split(",")
            if v[0] in KINDS:
                work.append((KINDS[v[0]], int(v[3]), int(v[4])))
    return out, sorted(work, key=lambda w: w[1])


def check_work(name, got, log):
    """Every slice is a piece of the log's work, and none of those between the first and
    the last lacks."""
    got = sorted(got, key=lambda w: w[1])
    if not ok(name + ": work of the device", len(got) > 1000, len(got)):
        return
    first, last = got[0][1] - NEAR_NS, got[-1][1] + NEAR_NS
    want = [w for w in log if first <= w[1] <= last]
    # work that stands at either edge, by less than the clocks tell
    edge = sum(min(abs(w[1] - first), abs(w[1] - last)) <= 2 * NEAR_NS for w in log)
    ok(name + ": as many as the log has", abs(len(want) - len(got)) <= edge,
       (len(got), len(want)))
    # The nearest, not the first near one: kernels begin every 5 us, and one more at an
    # edge would shift all that follow.
    wrong = 0
    for cat in set(KINDS.values()):
        a = [w for w in got if w[0] == cat]
        b = [w for w in log if w[0] == cat]
        begins, used = [w[1] for w in b], set()
        for w in a:
            at = bisect.bisect(begins, w[1])
            k = min((i for i in range(max(at - 3, 0), min(at + 3, len(b))) if i not in used),
                    key=lambda i: abs(b[i][1] - w[1]) + abs(b[i][2] - w[2]), default=None)
            if k is None or abs(b[k][1] - w[1]) > NEAR_NS or abs(b[k][2] - w[2]) > NEAR_NS:
                wrong += 1
            used.add(k)
    ok(name + ": when the log says", not wrong, "%d of %d" % (wrong, len(got)))


def check_arrows(name, pairs):
    """(call's name, call's begin, work's kind, work's begin)"""
    fits = {"kernel": "Launch", "gpu_memcpy": "Memcpy", "gpu_memset": "Memset"}
    wrong = [p for p in pairs if fits[p[2]] not in p[0] or p[3] < p[1] - NEAR_NS]
    ok(name + ": arrows from calls to their work", len(pairs) > 1000 and not wrong, wrong[:3])


# Ranges of a program, from two threads, with texts that are hard to print.
RANGES = r"""
import ctypes, json, sys, threading, time
gpu, x = ctypes.CDLL(sys.argv[1]), ctypes.CDLL(sys.argv[2])
x.nvtxRangeStartA.restype = ctypes.c_uint64
x.nvtxRangeEnd.argtypes = [ctypes.c_uint64]
log = []
def run(text, n):
    for i in range(n):
        begin = time.monotonic_ns()
        x.nvtxRangePushA(text)
        x.nvtxRangePushA(b"inner")
        gpu.cudaDeviceSynchronize()
        time.sleep(0.004)
        x.nvtxRangePop()
        handle = x.nvtxRangeStartA(b"across")
        time.sleep(0.004)
        x.nvtxRangePop()
        x.nvtxRangeEnd(handle)
        log.append((text.decode(), begin, time.monotonic_ns()))
        time.sleep(0.002)
gpu.cudaDeviceSynchronize()
print("ready", flush=True)
sys.stdin.readline()
other = threading.Thread(target=run, args=("é \";<b>".encode(), 150))
other.start()
run(b"outer", 150)
other.join()
print(json.dumps(log), flush=True)
"""
EDGE_NS = 2000000  # the log's clock is read beside the calls, not in them


def check_ranges(tmp):
    out, p = os.path.join(tmp, "ranges"), os.path.join(tmp, "ranges.pf")
    with subprocess.Popen([sys.executable, "-c", RANGES, CUDA + "/libcudart.so.12",
                           CUDA + "/libnvToolsExt.so.1"], stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE, text=True,
                          env=dict(os.environ, LD_LIBRARY_PATH=CUDA)) as job:
        try:
            job.stdout.readline()
            traced(job, [PIPETRACE, "record", "-p", str(job.pid), "-o", out], 60)
            log = json.loads(job.stdout.readline())
        finally:
            job.kill()
    done = subprocess.run([PIPETRACE, "export", "--perfetto", p, out], capture_output=True,
                          timeout=60, check=False)
    if not ok("export of ranges", done.returncode == 0, done.stderr):
        return
    with open(p, "rb") as f:
        trace = wire.Trace(f.read())
    slices = [(e, end) for e, end in trace.slices() if e.cat == "nvtx"]
    count = collections.Counter(e.name for e, _ in slices)
    texts = sorted({l[0] for l in log})
    # without handles some have a begin alone
    across = sum(e.name == "across" for e in trace.events)
    ok("ranges: each, by its text", len(texts) == 2 and all(count[t] == 150 for t in texts) and
       count["inner"] == across == 300, (count, across))
    wrong = 0
    for text in texts:
        want = sorted(l[1:] for l in log if l[0] == text)
        got = sorted((e.ts, end) for e, end in slices if e.name == text)
        wrong += sum(not (w[0] - EDGE_NS <= g[0] <= g[1] <= w[1] + EDGE_NS)
                     for g, w in zip(got, want))
    ok("ranges: when the log says", not wrong, wrong)
    parents = {e.name: trace.tracks[trace.tracks[e.track]["parent"]] for e in trace.events
               if e.cat == "nvtx"}
    ok("ranges: on their threads", parents["outer"]["tid"] == job.pid and
       parents[texts[1]]["tid"] not in (None, job.pid) and parents["across"]["process"],
       parents)


def main():
    if os.geteuid():
        print("exporting a live recording needs root")
        return 77
    with tempfile.TemporaryDirectory(prefix="pipetrace-export-") as tmp:
        check_ranges(tmp)
        rec, log = record(tmp)
        p, c, s = (os.path.join(tmp, x) for x in ("p", "c", "s"))
        done = subprocess.run([PIPETRACE, "export", "--perfetto", p, "--chrome", c,
                               "--sqlite", s, rec], stdin=subprocess.DEVNULL,
                              capture_output=True, timeout=120, check=False)
        ok("export", done.returncode == 0 and not done.stderr, done.stderr)
        with open(p, "rb") as f:
            trace = wire.Trace(f.read())
        slices = trace.slices()
        work = [(e.cat, e.ts, end) for e, end in slices if e.cat in KINDS.values()]
        check_work("perfetto", work, log)
        made = {f: e for e in trace.events for f in e.out}
        check_arrows("perfetto", [(made[e.into[0]].name, made[e.into[0]].ts, e.cat, e.ts)
                                  for e, _ in slices if e.cat in KINDS.values() and e.into])
        with open(c, encoding="utf-8") as f:
            doc = json.load(f)
        events = [e for e in doc["traceEvents"] if e["ph"] == "X"]
        count = collections.Counter(e["cat"] for e in events)
        same = collections.Counter(w[0] for w in work)
        ok("chrome: the same work", all(count[k] == same[k] for k in same), (count, same))
        calls = {e["args"]["correlation"] for e in events if e["cat"].startswith("cuda_") and
                 "correlation" in e.get("args", {})}
        joined = sum(e["args"]["correlation"] in calls for e in events if e["cat"] == "kernel")
        flows = collections.Counter(e["ph"] for e in doc["traceEvents"]
                                    if e.get("cat") == "ac2g")
        ok("chrome: kernels and calls share a correlation", joined > 1000 and
           flows["s"] == flows["f"] == len(calls), (joined, flows, len(calls)))
        db = sqlite3.connect(s)
        rows = dict(db.execute("SELECT kind, count(*) FROM device_work GROUP BY kind"))
        db.close()
        ok("sqlite: the same work", rows.get("kernel") == same["kernel"] and
           rows.get("copy", 0) == same["gpu_memcpy"], rows)
    bad = results.count(False)
    print("%d passed, %d failed, 0 skipped" % (len(results) - bad, bad))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
