#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""In which order a job reads its files, and how much of it twice, by each door
to reads that opens here, against the job's own log of offsets and lengths. Also
the memory that there is, against /proc and the job's control group. Needs root
and a build. Prints "N passed, N failed, N skipped".
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
PAGE = 4096
results, skipped = [], 0

# Reads, with rests between the files so that a door's budget is not what is
# tested; logs each call: file, offset, length that came back.
JOB = r"""
import json, os, random, sys, threading, time
d, M, log, lock = sys.argv[1], 1 << 20, [], threading.Lock()
names = ("sequential", "random", "stride", "twice", "shared", "backward")
fds = {}
for n in names:
    with open(d + "/" + n, "wb") as f:
        f.write(os.urandom(8 * M))
    fds[n] = os.open(d + "/" + n, os.O_RDONLY)
sys.stdin.readline()
def note(n, at, size, tid):
    got = len(os.pread(fds[n], size, at))
    with lock:
        log.append((n, at, got, tid))
for i in range(128):
    got = len(os.read(fds["sequential"], 65536))
    log.append(("sequential", i * 65536, got, 0))
rng = random.Random(int(sys.argv[2]))
time.sleep(0.2)
for i in range(200):
    note("random", rng.randrange(0, 1200) * 5000, 5000, 0)
time.sleep(0.2)
for i in range(100):
    note("stride", i * 81920, 8192, 0)
time.sleep(0.2)
for i in range(60):
    note("backward", 8 * M - (i + 1) * 100000, 10000, 0)
time.sleep(0.2)
for _ in range(3):
    for i in range(32):
        note("twice", i * 262144, 262144, 0)
def part(k):
    for i in range(32):
        note("shared", k * 2 * M + i * 65536, 65536, k)
        time.sleep(0.0002)
ts = [threading.Thread(target=part, args=(k,)) for k in range(4)]
[t.start() for t in ts]
[t.join() for t in ts]
print(json.dumps(log), flush=True)
sys.stdin.readline()
"""


def ok(name, good, detail=""):
    results.append(bool(good))
    print("%s %s%s" % ("ok" if good else "not ok", name, "" if good else ": " + str(detail)),
          flush=True)


def union(stretches):
    total = end = 0
    for b, e in sorted(stretches):
        total += max(0, e - max(b, end))
        end = max(e, end)
    return total


def moves(calls):
    """(moves that went on or began again, moves, strides of the others)."""
    on = n = 0
    strides = []
    for (_, a, x, _), (_, b, _, _) in zip(calls, calls[1:]):
        n += 1
        on += b in (a + x, 0)
        if b not in (a + x, 0):
            strides.append(b - a)
    return on, n, strides


def judge(door, report, log):
    files = {os.path.basename(f["path"]): f for f in report["files"] if f["path"]}
    want = {"sequential": "sequential", "random": "random", "stride": "stride",
            "backward": "stride", "twice": "sequential", "shared": "sequential"}
    for name, kind in want.items():
        calls = [c for c in log if c[0] == name]
        f = files.get(name)
        if f is None:
            ok("%s: %s is in the table" % (door, name), False, sorted(files))
            continue
        p = f["pattern"] or {}
        ok("%s: %s is read in that order" % (door, name), p.get("kind") == kind, p)
        per = [moves([c for c in calls if c[3] == t]) for t in {c[3] for c in calls}]
        on, n = sum(m[0] for m in per), sum(m[1] for m in per)
        # pages: a jump of less than two pages is none
        slack = 0.02 if door == "pages" else 1e-6
        ok("%s: %s goes on as often as the job did" % (door, name),
           p and abs(p["sequential"] - on / n) <= slack, "%s, true %f" % (p, on / n))
        if kind == "stride":
            true = max(set(per[0][2]), key=per[0][2].count)
            ok("%s: %s by the job's stride" % (door, name),
               abs((p.get("stride") or 0) - true) < (PAGE if door == "pages" else 1),
               "%s, true %d" % (p, true))
        again = sum(c[2] for c in calls) - union([(c[1], c[1] + c[2]) for c in calls])
        low, high = f["reread_bounds"] or (1, 0)
        ok("%s: %s, what was read again is within the bounds" % (door, name),
           low <= again <= high, "%s, true %d" % (f["reread_bounds"], again))
        if door != "pages":
            ok("%s: %s, what was read again is exact" % (door, name),
               f["reread_bytes"] == again, "%s, true %d" % (f["reread_bytes"], again))


def meminfo(key):
    with open("/proc/meminfo", encoding="ascii") as f:
        for line in f:
            if line.startswith(key + ":"):
                return int(line.split()[1]) * 1024
    return None


def memory_group(tmp):
    """A control group with a limit, or (None, None)."""
    for base, name in (("/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
                       ("/sys/fs/cgroup", "memory.max")):
        group = os.path.join(base, "pipetrace-pattern-%d" % os.getpid())
        try:
            os.mkdir(group)
            # "r+": a folder that is no control group has no such file, and gets none
            with open(os.path.join(group, name), "r+", encoding="ascii") as f:
                f.write(str(1 << 30))
            return group
        except OSError:
            if os.path.isdir(group):
                os.rmdir(group)
    return None


def run(door, tmp, seed, group):
    """(report, the job's log), or a reason why not."""
    def enter():
        if group:
            with open(os.path.join(group, "cgroup.procs"), "w", encoding="ascii") as f:
                f.write("0")

    job = subprocess.Popen([sys.executable, "-c", JOB, tmp, str(seed)], stdin=subprocess.PIPE,
                           stdout=subprocess.PIPE, preexec_fn=enter)
    out = os.path.join(tmp, "report.json")
    tracer = subprocess.Popen([PIPETRACE, "-p", str(job.pid), "-d", "60", "--reads", door,
                               "--mode", "full" if door == "syscall" else "standard",
                               "--json", out], stdin=subprocess.DEVNULL,
                              stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    try:
        time.sleep(2.5)  # attached by then, or the counts will not agree
        if tracer.poll() is not None:
            return None, tracer.stderr.read().decode().strip()
        job.stdin.write(b"go\n")
        job.stdin.flush()
        log = json.loads(job.stdout.readline())
        time.sleep(1.2)
        tracer.send_signal(2)
        tracer.wait(30)
        with open(out, encoding="utf-8") as f:
            return json.load(f), log
    finally:
        for p in (tracer, job):
            if p.poll() is None:
                p.kill()
            p.wait()
            for s in (p.stdin, p.stdout, p.stderr):
                if s:
                    s.close()


def main():
    global skipped
    if os.geteuid():
        print("skip: needs root")
        return 77
    for seed, door in enumerate(("fexit", "kprobe", "syscall", "pages"), 1):
        with tempfile.TemporaryDirectory(prefix="pipetrace-patterns-") as tmp:
            group = memory_group(tmp) if door == "pages" else None
            try:
                report, log = run(door, tmp, seed, group)
            finally:
                for _ in range(30):
                    try:
                        if group:
                            os.rmdir(group)
                        break
                    except OSError:
                        time.sleep(0.1)
            if report is None or report["capture"]["hooks"].get("reads") not in (
                    door, {"door": door}):
                told = log if report is None else report["capture"]["hooks"].get("reads")
                print("skip: %s: %s" % (door, str(told)[:150]), flush=True)
                skipped += 1
                continue
            judge(door, report, log)
            m = report["memory"]
            ok(door + ": the machine's memory", m["total"] == meminfo("MemTotal"), m["total"])
            if group:
                ok("the control group's limit", m["limit"] == 1 << 30, m["limit"])
                ok("room is below the limit", 0 < m["room"] <= 1 << 30, m["room"])
                ok("refaults are the group's", m["refaulted_in"] == "cgroup", m)
            elif door == "pages":
                print("skip: memory limit: no control group for memory here")
                skipped += 1
    print("%d passed, %d failed, %d skipped" % (sum(results), len(results) - sum(results),
                                                skipped))
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
