#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""Stacks at the entry of a `with` are marked as such, and no others.

    withlock.py [--all]

A job waits for a plain lock, and for a queue, 50 ms each, in turns. Of its stacks in the record
stream only those have the mark whose function enters the lock. With --all in each CPython of pyenv
from 3.8 to 3.13, too. Needs root and a build.
"""
import argparse
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
LINE, STACK, WITH = (496, 77), (48, 78), 4  # sizes and kinds: bpf/records.def
HEADER = 32


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


def judge(python, name):
    with tempfile.TemporaryDirectory() as tmp:
        path = os.path.join(tmp, "stream.raw")
        with Child([python, "-c", JOB]) as job:
            time.sleep(1)
            p = subprocess.run([PIPETRACE, "-p", str(job.pid), "-d", "3", "--raw-stream=" + path],
                               capture_output=True, timeout=60, check=False)
        if p.returncode or not os.path.exists(path):
            print("not ok %s: status %d, %s" % (name, p.returncode, p.stderr.decode()[-200:]))
            return 1
        with open(path, "rb") as f:
            names = marked(f.read())
    # in others that enter one a thread may be met on its way
    good = "under_lock" in names and not set(names) & {"from_queue", "feed", "Condition.wait"}
    print("%s %s: marked in %s" % (
        "ok" if good else "not ok", name, " and ".join(names) or "none"))
    return not good


def main():
    args = argparse.ArgumentParser()
    args.add_argument("--all", action="store_true")
    failed, n = judge("/usr/bin/python3", "the system's"), 1
    if args.parse_args().all:
        for path in sorted(glob.glob(os.path.expanduser("~/.pyenv/versions/3.*/bin/python"))):
            version = path.split("/")[-3]
            if 8 <= int(version.split(".")[1]) <= 13:
                failed += judge(path, version)
                n += 1
    print("%d passed, %d failed, 0 skipped" % (n - failed, failed))
    return bool(failed)


sys.exit(main())
