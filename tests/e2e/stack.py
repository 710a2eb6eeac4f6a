#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""`pipetrace stack` against what the interpreter itself says of its frames.

    stack.py [--all] [--seconds S] [-v]

still:  every thread of a job stays in a place that it told: calls, generators, sort keys,
        deep recursion, code from a string, names that are not ASCII, line tables in their
        long forms; in a process of its own and in one that is forked, spawned or comes
        from a fork server. Each frame's name, file and line are compared.
moving: functions that compute, sleep and read for times that the job measures; the shares
        by function (the lines of it) are within 3 points where 1,100 looks were made, and
        beside that within the interval of so few (5 points without --all: by chance alone
        one in 15 is beyond 3).
sleeping: sleeps of 20 to 400 ms; the time of each line is within 2 % of the job's own in
        26 s.
crowd:  128 processes; the looks stay within their budget.

With --all in each CPython of pyenv from 3.8 on, too. Needs a build.
"""
import argparse
import ast
import glob
import json
import math
import os
import re
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))
from badinput_tools import PIPETRACE, Child, decode  # noqa: E402
from noise import pressure_s  # noqa: E402

JOB = os.path.join(HERE, "stackjob.py")
METHODS = ("plain", "fork", "spawn", "forkserver")
POINTS = 3.0
MANY, LEAST = 1100, 300  # looks that bear it; fewer are not judged
opts = None
counts = {"ok": 0, "not ok": 0, "skip": 0}


def say(good, what, why=""):
    key = good if isinstance(good, str) else "ok" if good else "not ok"
    counts[key] += 1
    print("%s %s%s" % (key, what, ": " + why if why and key != "ok" else ""), flush=True)


def stack(*args, limit=60, user=()):
    p = subprocess.run([*user, PIPETRACE, "stack", *args], capture_output=True, timeout=limit,
                       check=False)
    return p.returncode, decode(p.stdout), decode(p.stderr)


def frames_told(text):
    """{tid: [[name, file, line]]} of what is printed."""
    threads, frames = {}, None
    for line in text.splitlines():
        m = re.match(r"  thread (\d+) ", line)
        if m:
            frames = threads.setdefault(int(m.group(1)), [])
        elif line.startswith("      ") and frames is not None:
            name, rest = line.split(None, 1)
            file, _, number = rest.rpartition(":")
            frames.append([name, file, int(number)])
    return threads


def still(python, name, method):
    n = 11 * (1 if method == "plain" else 2)
    with tempfile.TemporaryFile("w+") as out:
        with Child([python, JOB, "still", method], stdout=out, stderr=out) as job:
            end = time.monotonic() + 60
            truth = ""
            while truth.count("\n") < n and job.poll() is None and time.monotonic() < end:
                time.sleep(0.1)
                out.seek(0)
                truth = out.read()
            time.sleep(0.2)  # from the telling to the sleeping
            status, text, err = stack("-p", str(job.pid))
            alive = job.poll() is None
    try:
        true = {t["tid"]: t["frames"] for t in map(json.loads, truth.splitlines())}
    except ValueError:
        say(False, "%s %s" % (name, method), "the job: " + truth[-300:])
        return
    told = frames_told(text)
    wrong = [] if len(true) == n else ["%d threads of %d told their frames" % (len(true), n)]
    if status or not alive:
        wrong.append("status %d, %s; the job lives: %s" % (status, err.strip(), alive))
    for tid, frames in true.items():
        got = told.get(tid)
        if got != frames:
            at = next((i for i, (a, b) in enumerate(zip(got or [], frames)) if a != b), 0)
            wrong.append("%s: frame %d of %d is %s" % (frames[0], at, len(frames), (
                got or ["none"])[at]))
    say(not wrong, "%s %s: %d frames of %d threads" % (
        name, method, sum(map(len, true.values())), len(true)), "; ".join(wrong[:4]))


def functions():
    """[(name, first line, last line)] of the job's file."""
    with open(JOB, encoding="utf-8") as f:
        tree = ast.parse(f.read())
    return [(d.name, d.lineno, d.end_lineno) for d in tree.body if isinstance(d, ast.FunctionDef)]


def moving(python, name, seconds, mode="moving"):
    with tempfile.TemporaryFile("w+") as out:
        with Child([python, JOB, mode, str(seconds)], stdin=subprocess.PIPE, stdout=out) as job:
            time.sleep(0.5)
            looks = subprocess.Popen([PIPETRACE, "stack", "-p", str(job.pid), "-v", "-d",
                                      str(seconds + 20)], text=True,
                                     stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            time.sleep(1)
            before, begin = pressure_s(), time.monotonic()
            job.stdin.write(b"\n")
            job.stdin.close()
            text, err = looks.communicate(timeout=seconds + 60)
            status = looks.returncode
            waited = (pressure_s() or 0) - (before or 0)
            waited /= time.monotonic() - begin
            job.wait(30)
        out.seek(0)
        lines = out.read().splitlines()
    first, last = json.loads(lines[0]), json.loads(lines[-1])
    what = "%s %s" % (name, mode)
    all_s = sum(last["sums"].values())
    true = {k: 100 * v / all_s for k, v in last["sums"].items()}
    here = text.split("  thread %d: " % first["tid"])[-1].split("\n  thread ")[0]
    here = here.split("\nprocess ")[0]
    looks = int(re.match(r".*; (\d+) looks", here.splitlines()[0]).group(1))
    told = dict.fromkeys(true, 0.0)
    for line in here.splitlines()[1:]:
        m = re.match(r"    (?:running|asleep ) +([\d.]+) % .*:(\d+)$", line)
        for f, begin, end in functions() if m else ():
            if begin <= int(m.group(2)) <= end and f in told:
                told[f] += float(m.group(1))
    shares = sum(told.values())  # the rest was before the begin
    told = {k: 100 * v / max(shares, 1) for k, v in told.items()}
    off = max(abs(told[k] - true[k]) for k in true)
    most = POINTS if opts.all else 5
    if looks < MANY:  # the interval of a share of a quarter, 95 %
        most += 196 * math.sqrt(0.25 * 0.75 / max(looks, LEAST))
    said = "%d looks, %s" % (looks, ", ".join(
        "%s %.1f (%.1f)" % (k, told[k], true[k]) for k in sorted(true)))
    print("     " + said)
    if mode == "sleeping":
        off = max(abs(told[k] / true[k] - 1) * 100 for k in true if k.startswith("sleep"))
        most = 2.0 * max(1, math.sqrt(26 / seconds))
    if status:
        say(False, what, err)
    elif waited > 0.1 and off > most:
        say("skip", what, "tasks waited for the cores %.0f %% of the time" % (100 * waited))
    elif looks < LEAST and mode == "moving":
        say("skip", what, "%d looks" % looks)
    else:
        say(off <= most, what, "%.1f off, at most %.1f" % (off, most))


APART = """import os, time
def inside():
    print(os.getpid(), flush=True)
    time.sleep(60)
inside()
"""


def apart():
    """In a PID name space of its own, as in a container: its threads have other numbers."""
    with Child(["unshare", "--pid", "--fork", "--kill-child", sys.executable, "-c", APART],
               stdout=subprocess.PIPE) as job:
        if job.stdout.readline().strip() != b"1":
            say("skip", "a PID name space of its own", "unshare does not make one")
            return
        status, text, err = stack("-p", str(job.pid))
        say(not status and re.search(r"\n      inside +<string>:4\n", text),
            "a PID name space of its own", text + err)


def crowd(n=128):
    """8 ranks of 16 workers: the looks stay within their hundredth of a core."""
    with Child([sys.executable, JOB, "crowd", str(n)]) as job:
        time.sleep(3)
        before = os.times()
        _, text, err = stack("-p", str(job.pid), "-d", "6")
        after = os.times()
    spent = (after.children_user + after.children_system -
             before.children_user - before.children_system)
    m = re.search(r"(\d+) samples in ([\d.]+) s took (\d+) ms", err)
    seen = text.count("\nprocess ") + text.startswith("process ")
    print("     %d of %d processes, %s, %.2f s of CPU in all" % (
        seen, n + 1, m.group(0) if m else err, spent))
    say(m and int(m.group(3)) <= 13 * float(m.group(2)) and seen == n + 1,
        "%d processes within the budget" % n, text[-200:] + err)


def refused():
    with Child([sys.executable, JOB, "still", "plain"]) as job:
        time.sleep(1)
        _, text, _ = stack("-p", str(job.pid), user=(
            "setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"))
    say("no Python lines: " in text or "cannot" in text, "another user's job is not read",
        text[:300])
    status, text, err = stack("-p", "999999999")
    say(status and err.count("\n") == 1, "a process that is not there", text + err)
    with Child(["sleep", "100"]) as job:
        status, text, err = stack("-p", str(job.pid))
        say(not status and "asleep in clock_nanosleep" in text and "Python" not in text,
            "a program without Python", text + err)
        status, text, err = stack("-p", str(job.pid), "-d", "0.5")
        say(not status and not text and "no Python stack could be read" in err,
            "a program without Python is looked at", text + err)


def pythons(everything):
    found = [("Debian", "/usr/bin/python3")]
    for path in sorted(glob.glob(os.path.expanduser("~/.pyenv/versions/3.*/bin/python"))):
        version = path.split("/")[-3]
        if int(version.split(".")[1]) >= 8 and everything:
            found.append((version, path))
    return found


def main():
    global opts
    p = argparse.ArgumentParser(description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--all", action="store_true")
    p.add_argument("--seconds", type=float, default=26)
    opts = p.parse_args()
    for name, python in pythons(opts.all):
        for method in METHODS:
            still(python, name, method)
        moving(python, name, opts.seconds)
        moving(python, name, opts.seconds, "sleeping")
    crowd()
    refused()
    apart()
    print("%d passed, %d failed, %d skipped" % (counts["ok"], counts["not ok"], counts["skip"]))
    return 1 if counts["not ok"] else 0


if __name__ == "__main__":
    sys.exit(main())
