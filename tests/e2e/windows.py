#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""Parts of a capture, by time, by steps and by a schedule, on a live job: each
against the job's own log of that time, and from the recorded file as live.

Needs root and a build with `make e2e`. Ends with "N passed, N failed, N skipped".
"""
import contextlib
import json
import os
import signal
import struct
import sys
import tempfile
import time

import truth
from badinput_tools import PIPETRACE, SIMJOB, Child, run

results = []
HOT = {5, 6, 7, 8, 11, 12}  # off-CPU, GPU calls, reads: what is quiet in a wait
ATTACH_S = 3.0              # a busy machine takes so long to attach, at most


def ok(name, good, detail=""):
    results.append(bool(good))
    print("%s %s%s" % ("ok" if good else "not ok", name,
                       "" if good else ": " + str(detail)), flush=True)
    return good


@contextlib.contextmanager
def job(log):
    with Child([SIMJOB, "--workers", "2", "--seconds", "120", "--truth=" + log]) as target:
        end = time.monotonic() + 10
        while time.monotonic() < end:
            with open("/proc/%d/maps" % target.pid) as f:
                if "libcudart" in f.read():
                    break
            time.sleep(0.05)
        time.sleep(0.5)
        yield target


def read(path):
    with open(path, "rb") as f:
        return f.read()


def loads(run_of):
    return json.loads(run_of.out) if run_of.status == 0 else None


def near(name, log, begin, end, steps, share):
    """Steps and data wait of a part, by the job's log."""
    t = truth.Truth(log, begin, end)
    # an edge that cuts a step may be told on either side, as in any capture
    ok("%s: %s steps, %d by the job's log" % (name, steps, t.count()),
       steps is not None and abs(steps - t.count()) <= truth.EDGE_STEPS)
    slack = max(truth.WAIT_SHARE * t.wait_share(),
                truth.WAIT_STEP_MS * 1e6 * max(t.count(), 1) / (end - begin))
    ok("%s: waits %.3f of it, %.3f by the log" % (name, share, t.wait_share()),
       abs(share - t.wait_share()) <= slack, slack)


def check_window(tmp):
    log, path = os.path.join(tmp, "log"), os.path.join(tmp, "w")
    with job(log) as target:
        r = run(["record", "-p", str(target.pid), "-d", "6", "-o", path], limit=30)
        ok("recorded", r.status == 0, r.describe())
        whole = loads(run(["report", path, "--json", "-", "--print-steps", "100000"]))
        target.send_signal(signal.SIGTERM)
        target.wait(10)
    begin = whole["capture"]["begin_ns"]
    for text, a, b in (("1s..3s", 1.0, 3.0), ("500ms..5500ms", 0.5, 5.5), ("4..", 4.0, None)):
        r = loads(run(["report", path, "--window", text, "--json", "-"]))
        lo = begin + int(a * 1e9)
        hi = begin + int(b * 1e9) if b else whole["capture"]["end_ns"]
        ok("window %s is %s" % (text, r and r["capture"]["duration"]),
           r and r["capture"]["begin_ns"] == lo and r["capture"]["end_ns"] == hi)
        near(text, log, lo, hi, r["steps"]["count"], r["breakdown"]["data_wait"]["share"])
    r = run(["report", path, "--window", "100s..200s"])
    ok("no such window", r.status == 1 and len(r.lines) == 1 and "lasts" in r.err, r.describe())
    some = loads(run(["report", path, "--steps", "5..14", "--json", "-", "--print-steps", "99"]))
    ok("ten steps", some and some["steps"]["count"] == 10, some and some["steps"])
    same = [s for s in whole["steps"]["list"] if 5 <= s["index"] <= 14]
    ok("the same ten", [s["begin_ns"] for s in same] ==
       [s["begin_ns"] for s in some["steps"]["list"]])
    near("steps 5..14", log, some["capture"]["begin_ns"], some["capture"]["end_ns"],
         some["steps"]["count"], some["breakdown"]["data_wait"]["share"])
    r = run(["report", path, "--steps", "100000.."])
    ok("no such step", r.status == 1 and len(r.lines) == 1 and "steps were found" in r.err,
       r.describe())


def check_live_steps(tmp):
    log, path = os.path.join(tmp, "log2"), os.path.join(tmp, "s")
    with job(log) as target:
        r = run(["-p", str(target.pid), "-d", "60", "--steps", "10..29", "-o", path,
                 "--json", path + ".json"], limit=70)
        ok("a trace that stops by itself", r.status == 0, r.describe())
        ok("the job goes on", target.poll() is None)
        target.send_signal(signal.SIGTERM)
        target.wait(10)
    with open(path + ".json", encoding="utf-8") as f:
        live = json.load(f)
    ok("it was stopped behind step 29", live["steps"]["count"] == 20 and
       live["capture"]["duration"] < 50, live["steps"])
    near("steps 10..29", log, live["capture"]["begin_ns"], live["capture"]["end_ns"],
         live["steps"]["count"], live["breakdown"]["data_wait"]["share"])
    run(["report", path, "--steps", "10..29", "--json", path + ".again"])
    ok("the same from the file", read(path + ".json") == read(path + ".again"))


def hot_records(path):
    """Times of the records that a quiet time must not have."""
    data, at, out = read(path), 16, []
    while at + 32 <= len(data):
        size, kind, _, flags, ts = struct.unpack_from("<HHHHQ", data, at)
        if kind in HOT and not (kind == 5 and flags & 1):
            out.append(ts)
        at += size
    return out


def check_schedule(tmp):
    log, path = os.path.join(tmp, "log3"), os.path.join(tmp, "x")
    with job(log) as target:
        r = run(["-p", str(target.pid), "--schedule", "wait=1s,warmup=500ms,active=2s,repeat=3",
                 "-o", path, "--raw-stream", path + ".raw", "--json", path + ".json"], limit=60)
        ok("three rounds", r.status == 0, r.describe())
        ok("the job goes on", target.poll() is None)
        target.send_signal(signal.SIGTERM)
        target.wait(10)
    with open(path + ".json", encoding="utf-8") as f:
        live = json.load(f)
    rows = live["windows"]
    ok("three active parts", len(rows) == 3 and [w["reported"] for w in rows] ==
       [False, False, True], rows)
    for i, w in enumerate(rows):
        ok("part %d lasts %.2f s" % (i, w["duration"]), 1.9 < w["duration"] < 3.0)
        near("part %d" % i, log, w["begin_ns"], w["end_ns"], w["steps"], w["data_wait_share"])
    ok("the report is of the last", live["capture"]["begin_ns"] == rows[2]["begin_ns"] and
       live["capture"]["end_ns"] == rows[2]["end_ns"])
    hot = hot_records(path + ".raw")
    active = sum(any(w["begin_ns"] <= t < w["end_ns"] for w in rows) for t in hot)
    quiet = sum(any(a["end_ns"] + 100e6 <= t < b["begin_ns"] - 700e6
                    for a, b in zip(rows, rows[1:])) for t in hot)
    ok("%d records in the active parts, %d in the waits" % (active, quiet),
       active > 300 and quiet * 100 <= active)
    run(["report", path, "--json", path + ".again"])
    ok("the same from the file", read(path + ".json") == read(path + ".again"))
    first = loads(run(["report", path, "--window", "%.6f..%.6f" % (
        rows[0]["at"], rows[0]["at"] + rows[0]["duration"]), "--json", "-"]))
    ok("the first part by its time", first and
       abs(first["breakdown"]["data_wait"]["share"] - rows[0]["data_wait_share"]) < 0.02, first)


def check_halved(tmp):
    """An active part that is too long to be held: its end, live as from the file."""
    log, path = os.path.join(tmp, "log5"), os.path.join(tmp, "h")
    with job(log) as target:
        r = run(["-p", str(target.pid), "--schedule", "active=4s,repeat=2", "--piece-bytes",
                 "300000", "-o", path, "--json", path + ".json"], limit=60)
        ok("two long rounds", r.status == 0, r.describe())
        target.send_signal(signal.SIGTERM)
        target.wait(10)
    with open(path + ".json", encoding="utf-8") as f:
        rows = json.load(f)["windows"]
    ok("of each the end", len(rows) == 2 and all(0.5 < w["duration"] < 3.9 for w in rows), rows)
    for i, w in enumerate(rows):
        near("the end of part %d" % i, log, w["begin_ns"], w["end_ns"], w["steps"],
             w["data_wait_share"])
    run(["report", path, "--json", path + ".again"])
    ok("the same from the file", read(path + ".json") == read(path + ".again"))


def check_at(tmp):
    with job(os.path.join(tmp, "log4")) as target:
        pid = str(target.pid)
        r = run(["-p", pid, "-d", "1", "--at", "/5s", "--json", "-"], limit=40)
        at = int(loads(r)["capture"]["begin_unix_ns"]) if r.status == 0 else -1
        ok("begun %.2f s behind a multiple of 5 s" % ((at % 5000000000) / 1e9),
           0 <= at and at % 5000000000 < ATTACH_S * 1e9, r.describe())
        before = time.time()
        r = run(["-p", pid, "-d", "1", "--at", "+2s", "--json", "-"], limit=40)
        at = -1
        if r.status == 0:
            at = int(loads(r)["capture"]["begin_unix_ns"]) / 1e9 - before
        ok("begun after %.2f s" % at, 2.0 <= at < 2.0 + ATTACH_S, r.describe())
        with Child([PIPETRACE, "-p", pid, "--at", "+50s"]) as tracer:
            time.sleep(1)
            tracer.send_signal(signal.SIGINT)
            ok("interrupted before it began", tracer.wait(5) == 1)
        ok("the job goes on", target.poll() is None)


def check_usage(_tmp):
    for args in (["--schedule", "active=1s", "--steps", "1..2"],
                 ["--schedule", "active=1s", "-d", "auto"],
                 ["--schedule", "active=1s", "--cupti"],
                 ["--schedule", "wait=1s"], ["--at", "5"], ["--steps", "5"]):
        r = run(["-p", "1"] + args)
        ok(" ".join(args), r.status == 2 and len(r.lines) == 1 and not r.out, r.describe())
    r = run(["record", "-p", "1", "-o", "/tmp/x", "--schedule", "active=5"])
    ok("record does not count steps", r.status == 2 and len(r.lines) == 1, r.describe())


def main():
    if os.geteuid() != 0:
        print("needs root")
        return 77
    for name in (PIPETRACE, SIMJOB):
        if not os.path.exists(name):
            print("%s is not built (make e2e)" % os.path.basename(name))
            return 77
    with tempfile.TemporaryDirectory(prefix="pipetrace-windows-") as tmp:
        check_usage(tmp)
        check_window(tmp)
        check_live_steps(tmp)
        check_schedule(tmp)
        check_halved(tmp)
        check_at(tmp)
    failed = results.count(False)
    print("%d passed, %d failed, 0 skipped" % (len(results) - failed, failed))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
