#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""Stacks at the entry of a `with` are marked as such, and no others; and the interpreter's own lock
is where the stream says that its state lies.

    withlock.py [--all]

A job waits for a plain lock, and for a queue, 50 ms each, in turns. Of its stacks in the record
stream only those have the mark whose function enters the lock. With --all in each CPython of pyenv
from 3.8 to 3.13, too. Of a job whose threads ask for the interpreter all the time each sleep that
its switch interval ends is on a word of that state. Needs root and a build.
"""
import argparse
import csv
import glob
import os
import struct
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))
from badinput_tools import PIPETRACE, Child  # noqa: E402

JOB = """
import queue, threading, time
lock, q = threading.Lock(), queue.Queue()
def hold():
    while True:
        with lock:
            time.sleep(0.05)
        time.sleep(0.005)
def feed():
    while True:
        time.sleep(0.05)
        q.put(1)
for f in hold, feed:
    threading.Thread(target=f, daemon=True).start()
def under_lock():
    with lock:
        pass
def from_queue():
    q.get()
end = time.monotonic() + 60
while time.monotonic() < end:
    under_lock()
    from_queue()
"""
ASKS = """
import threading
def ask():
    while True:
        sum(range(2000))
for _ in range(2):
    threading.Thread(target=ask, daemon=True).start()
ask()
"""
LINE, STACK, WITH = (496, 77), (48, 78), 4  # sizes and kinds: bpf/records.def
HEADER = 32
STATE = (48, 83)
SWITCH_S = (0.0049, 0.007)  # sys.getswitchinterval() is 5 ms
ASKED_MIN = 50


def records(stream, kind):
    """Of all records of that kind what is behind the header."""
    head, at = struct.pack("<HH", *kind), -1
    while (at := stream.find(head, at + 1)) >= 0:
        if at + kind[0] <= len(stream):
            yield stream[at + HEADER:at + kind[0]]


def marked(stream):
    """Names of the functions whose stacks have the mark."""
    names = {struct.unpack_from("<I", r)[0]: r[16:].split(b"\0")[0].decode(errors="replace")
             for r in records(stream, LINE)}
    stacks = [struct.unpack("<4I", r) for r in records(stream, STACK)]
    return sorted({names.get(line, "?") for _, _, line, flags in stacks if flags & WITH})


def traced(python, job, tmp):
    """The stream of some seconds of that job; None, with a line that says why not."""
    path = os.path.join(tmp, "stream.raw")
    with Child([python, "-c", job]) as child:
        time.sleep(1)
        p = subprocess.run([PIPETRACE, "-p", str(child.pid), "-d", "3", "--raw-stream=" + path],
                           capture_output=True, timeout=60, check=False)
    if p.returncode or not os.path.exists(path):
        print("not ok status %d, %s" % (p.returncode, p.stderr.decode()[-200:]))
        return None
    with open(path, "rb") as f:
        return f.read()


def judge(python, name):
    with tempfile.TemporaryDirectory() as tmp:
        stream = traced(python, JOB, tmp)
    names = marked(stream) if stream else []
    # in others that enter one a thread may be met on its way
    good = "under_lock" in names and not set(names) & {"from_queue", "feed", "Condition.wait"}
    print("%s %s: marked in %s" % (
        "ok" if good else "not ok", name, " and ".join(names) or "none"))
    return not good


def switches(folder):
    """The addresses slept on for the switch interval, and woken by nobody."""
    with open(os.path.join(folder, "off_cpu.csv"), encoding="utf-8") as f:
        for r in csv.DictReader(f):
            ns = int(r["ready_ns"] or 0) - int(r["begin_ns"] or 0)
            if r["state"] == "futex" and not r["waker_tid"] and \
                    SWITCH_S[0] <= ns / 1e9 <= SWITCH_S[1]:
                yield int(r["object"])


def judge_state(python, name):
    with tempfile.TemporaryDirectory() as tmp:
        stream = traced(python, ASKS, tmp)
        states = [struct.unpack("<QII", r) for r in records(stream or b"", STATE)]
        slept = []
        if states:
            subprocess.run([PIPETRACE, "export", os.path.join(tmp, "stream.raw"),
                            "--csv=" + os.path.join(tmp, "csv")], check=True, timeout=60,
                           stdout=subprocess.DEVNULL)
            slept = list(switches(os.path.join(tmp, "csv")))
    begin, size, minor = states[0] if states else (0, 0, 0)
    inside = sum(begin <= at < begin + size for at in slept)
    good = len(states) == 1 and len(slept) >= ASKED_MIN and inside == len(slept)
    print("%s %s: the state of 3.%d has %d of %d words that threads asked for" % (
        "ok" if good else "not ok", name, minor, inside, len(slept)))
    return not good


def main():
    args = argparse.ArgumentParser()
    args.add_argument("--all", action="store_true")
    pythons = [("/usr/bin/python3", "the system's")]
    if args.parse_args().all:
        for path in sorted(glob.glob(os.path.expanduser("~/.pyenv/versions/3.*/bin/python"))):
            version = path.split("/")[-3]
            if 8 <= int(version.split(".")[1]) <= 13:
                pythons.append((path, version))
    failed = sum(judge(*p) + judge_state(*p) for p in pythons)
    print("%d passed, %d failed, 0 skipped" % (2 * len(pythons) - failed, failed))
    return bool(failed)


sys.exit(main())
