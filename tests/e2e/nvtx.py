#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""Ranges that a program names with NVTX, where the library exports functions.

A Python job on the simulated runtime and a stand-in of libnvToolsExt pushes,
pops, starts, ends and marks, nested, from two threads, in domains, with
registered texts, with too many pops and with ranges that never end; it logs
what it did on the clock that pipetrace uses. The operations table must say the
same: with a profiler's handles and without, by both attach doors, for a library
loaded late, and again from the recorded file.

    nvtx.py [NAME...]

Needs root and a build. Ends with "N passed, N failed, N skipped".
"""
import collections
import json
import os
import subprocess
import sys
import tempfile
import time

from held import traced

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.environ.get("BUILD", os.path.join(TOP, "build"))
PIPETRACE = os.path.join(BUILD, "pipetrace")
LONG = "a text that is longer than a record holds " * 5
NASTY = "\033[31mred\nline"
ROUND_S = 2e-6       # of the figures in the report

JOB = r"""
import ctypes, json, os, sys, threading, time
gpu = ctypes.CDLL(sys.argv[1])
device, host = ctypes.c_void_p(), ctypes.create_string_buffer(65536)
gpu.cudaMalloc(ctypes.byref(device), ctypes.c_size_t(65536))
late = float(sys.argv[4])
print("ready", flush=True)
if late:
    sys.stdin.readline()
for i in range(int(late * 50)):   # a job already, without ranges
    time.sleep(0.015)
    gpu.cudaMemcpy(device, host, ctypes.c_size_t(65536), 1)
    gpu.cudaDeviceSynchronize()
x = ctypes.CDLL(sys.argv[2])
time.sleep(0.3)   # what is called before the hooks are there nobody sees
for f in ("nvtxRangeStartA", "nvtxDomainRangeStartEx", "nvtxRangeStartEx"):
    getattr(x, f).restype = ctypes.c_uint64
x.nvtxRangeEnd.argtypes = [ctypes.c_uint64]
x.nvtxDomainCreateA.restype = x.nvtxDomainRegisterStringA.restype = ctypes.c_void_p
LONG, NASTY = json.loads(sys.argv[5])

class Attr(ctypes.Structure):
    _fields_ = [("version", ctypes.c_uint16), ("size", ctypes.c_uint16),
                ("category", ctypes.c_uint32), ("colorType", ctypes.c_int32),
                ("color", ctypes.c_uint32), ("payloadType", ctypes.c_int32),
                ("reserved0", ctypes.c_int32), ("payload", ctypes.c_uint64),
                ("messageType", ctypes.c_int32), ("message", ctypes.c_void_p)]

def attr(text=None, handle=None):
    a = Attr(2, ctypes.sizeof(Attr))
    a.messageType = 1 if text else 3
    a.keep = text
    a.message = ctypes.cast(ctypes.c_char_p(text), ctypes.c_void_p) if text else handle
    return a

log = []
now = time.monotonic_ns
domain = ctypes.c_void_p(x.nvtxDomainCreateA(b"data"))
registered = x.nvtxDomainRegisterStringA(domain, b"registered text")
by_handle = attr(handle=registered)
by_text = attr(b"attributes")
other = attr(b"in a domain")

def ended(text, t, u, call, *args):
    # The clock is read on both sides of each call: [t,u] holds the begin.
    v = now()
    call(*args)
    log.append((text, t, u, v, now()))

class pushed:
    def __init__(self, text): self.text = text
    def __enter__(self):
        self.t = now()
        x.nvtxRangePushA(self.text.encode())
        self.u = now()
    def __exit__(self, *a):
        ended(self.text, self.t, self.u, x.nvtxRangePop)

def second():
    t = now()
    x.nvtxRangePushA(b"never ends")
    log.append(("never ends", t, now(), 0, 0))
    while running:
        t = now()
        a = x.nvtxRangeStartA(b"overlap 1")
        t2 = now()
        time.sleep(0.003)
        u = now()
        b = x.nvtxRangeStartA(b"overlap 2")
        u2 = now()
        time.sleep(0.003)
        ended("overlap 1", t, t2, x.nvtxRangeEnd, a)
        time.sleep(0.003)
        ended("overlap 2", u, u2, x.nvtxRangeEnd, b)
        time.sleep(0.003)

running = True
thread = threading.Thread(target=second)
thread.start()
end = time.monotonic() + float(sys.argv[3])
while time.monotonic() < end:
    x.nvtxRangePop()              # one too many
    with pushed("step"):
        with pushed("load"):
            time.sleep(0.008)
        with pushed(LONG):
            gpu.cudaMemcpy(device, host, ctypes.c_size_t(65536), 1)
        with pushed(NASTY):
            gpu.cudaDeviceSynchronize()
        with pushed("outer"):
            with pushed("outer"): # its time counts once
                time.sleep(0.002)
        t = now()
        x.nvtxRangePushEx(ctypes.byref(by_text))
        t2 = now()
        time.sleep(0.001)
        u = now()
        x.nvtxDomainRangePushEx(domain, ctypes.byref(other))
        u2 = now()
        time.sleep(0.001)
        if domain:                # crossing ones, of two domains
            ended("attributes", t, t2, x.nvtxRangePop)
            ended("in a domain", u, u2, x.nvtxDomainRangePop, domain)
        else:
            ended("in a domain", u, u2, x.nvtxRangePop)
            ended("attributes", t, t2, x.nvtxRangePop)
        if registered:
            t = now()
            x.nvtxDomainRangePushEx(domain, ctypes.byref(by_handle))
            t2 = now()
            time.sleep(0.001)
            ended("registered text", t, t2, x.nvtxDomainRangePop, domain)
        t = now()
        x.nvtxMarkA(b"mark")
        log.append(("mark", t, now(), -1, -1))
running = False
thread.join()
with open(sys.argv[6], "w") as f:
    json.dump(log, f)
"""

Case = collections.namedtuple("Case", "name tool late trace")
CASES = [
    Case("tool", True, 0, []),
    Case("no_tool", False, 0, []),
    Case("late", True, 1.5, []),
    Case("perf", True, 0, ["--no-uprobe-multi"]),
]


def shown(text):
    return text.encode()[:95].decode()


def run(case, tmp):
    """(report, the same from the recorded file, what the job logged)"""
    out, rec = os.path.join(tmp, "r.json"), os.path.join(tmp, "r.rec")
    truth = os.path.join(tmp, "truth.json")
    again = os.path.join(tmp, "again.json")
    job = subprocess.Popen(
        ["/usr/bin/python3", "-c", JOB, os.path.join(BUILD, "sim/libcudart.so.13"),
         os.path.join(BUILD, "sim/cuda/libnvToolsExt.so.1"), "5.5", str(case.late),
         json.dumps([LONG, NASTY]), truth],
        env=dict(os.environ, PT_SIM_NVTX_TOOL="1" if case.tool else "0"),
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        if job.stdout.readline() != "ready\n":
            raise ValueError("the job did not start")
        # With handles from before the trace a registered text is not known.
        wait = [] if case.late else ["-d", "3"]
        if not case.late:
            time.sleep(0.7)
        t = traced(job, [PIPETRACE, "-p", str(job.pid), "--json", out, "-o", rec] + wait +
                   case.trace, 60)
        job.wait(30)
    finally:
        job.kill()
        job.wait()
        job.stdout.close()
        job.stdin.close()
    if t.returncode or job.returncode:
        raise ValueError("pipetrace %s, the job %s: %s"
                         % (t.returncode, job.returncode, t.stderr[-300:]))
    subprocess.run([PIPETRACE, "report", rec, "--json", again], check=True, timeout=60,
                   stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                   stderr=subprocess.DEVNULL)
    with open(out, encoding="utf-8") as f, open(again, encoding="utf-8") as g, \
            open(truth, encoding="utf-8") as h:
        return json.load(f), json.load(g), json.load(h)


def enclosed(x, of):
    """Whether it lies in another one of its name, whose time holds its own."""
    return any(y is not x and y[1] <= x[1] and x[4] <= y[4] and y[4] > 0 for y in of)


def least(x, end, log):
    """The least that it lasted inside the trace, ns; one that never ends lasts
    until its thread does, behind the last entry of the log."""
    return max(0, min(x[3] or max(y[3] for y in log), end) - x[2])


def most(x, begin, end):
    return max(0, min(x[4] or end, end) - max(x[1], begin))


def judge(case, report, again, log):
    wrong = []
    begin, end = report["capture"]["begin_ns"], report["capture"]["end_ns"]
    rows = [o for o in report["operations"] if o["kind"] == "nvtx"]
    if rows != [o for o in again["operations"] if o["kind"] == "nvtx"]:
        wrong.append("the recorded file tells something else")
    if any(x["what"] == "nvtx" for x in report["capture"]["limits"]):
        wrong.append("a limit although ranges were seen")
    if len(log) < 500:
        wrong.append("the job did next to nothing")
    if report["capture"]["lost"]["total"]:
        wrong.append("records were lost")
    rows = {o["name"]: o for o in rows}
    for text in sorted({x[0] for x in log}):
        of = [x for x in log if x[0] == text]
        if text == "registered text" and not case.late:
            text = "(no text)"   # registered before the trace
        sure = [x for x in of if begin < x[1] and x[2] < end]
        maybe = [x for x in of if begin <= x[2] and x[1] <= end]
        row = rows.pop(shown(text), None)
        if not sure:
            # begun before the trace: nothing tells its text
            if row and not maybe:
                wrong.append("%r: begun before the trace, and told" % text)
            continue
        if row is None:
            wrong.append("%r is not told" % text)
            continue
        if not len(sure) <= row["calls"] <= len(maybe):
            wrong.append("%r: %d times, truth %d to %d"
                         % (text, row["calls"], len(sure), len(maybe)))
        if of[0][3] == -1 or (text.startswith("overlap") and not case.tool):
            if row["total_s"] is not None or row["mean_us"] is not None:
                wrong.append("%r: a time that nobody can know" % text)
            continue
        low = sum(least(x, end, log) for x in sure if not enclosed(x, maybe)) / 1e9
        high = sum(most(x, begin, end) for x in maybe if not enclosed(x, maybe)) / 1e9
        if not low - ROUND_S <= row["total_s"] <= high + ROUND_S:
            wrong.append("%r: %.6f s, truth %.6f to %.6f"
                         % (text, row["total_s"], low, high))
        if row["cpu_s"] is not None and row["cpu_s"] > row["total_s"] + 1e-6:
            wrong.append("%r: more CPU than time" % text)
    for name in rows:
        wrong.append("%r: the job has no such range" % name)
    return wrong


def main():
    if os.geteuid() != 0:
        print("needs root")
        return 77
    if not os.path.exists(os.path.join(BUILD, "sim/cuda/libnvToolsExt.so.1")):
        print("needs a build")
        return 77
    passed = failed = 0
    for c in [c for c in CASES if len(sys.argv) < 2 or c.name in sys.argv[1:]]:
        with tempfile.TemporaryDirectory(prefix="pipetrace-nvtx-") as tmp:
            try:
                report, again, log = run(c, tmp)
                wrong = judge(c, report, again, log)
                n = len(log)
            except (OSError, ValueError, subprocess.SubprocessError) as e:
                wrong, n = [str(e)], 0
        passed, failed = passed + (not wrong), failed + bool(wrong)
        print("%s %s: %d ranges logged%s" % ("not ok" if wrong else "ok", c.name, n,
                                             "; " + "; ".join(wrong) if wrong else ""),
              flush=True)
    print("%d passed, %d failed, 0 skipped" % (passed, failed))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
