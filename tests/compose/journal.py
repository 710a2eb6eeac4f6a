# SPDX-License-Identifier: BSD-2-Clause
"""What every thread of a composed job writes down, by CLOCK_MONOTONIC.

A thread has a file of its own in COMPOSE_LOG (a folder on tmpfs), mapped once:
a row costs no system call, and is there even when the process is killed. A row
is [kind, begin, end, cpu, batch, more]: cpu is the thread's CPU time in it, or
None where nobody took it.
"""

import contextlib
import ctypes
import json
import mmap
import os
import threading
import time

BYTES = 8 << 20  # sparse: only what is written takes memory
now = time.monotonic_ns
cpu_now = time.thread_time_ns
_local = threading.local()


class Journal:
    def __init__(self):
        folder = os.environ["COMPOSE_LOG"]
        self.pid, self.tid = os.getpid(), threading.get_native_id()
        path = os.path.join(folder, "%d.%d.log" % (self.pid, self.tid))
        fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        os.ftruncate(fd, BYTES)
        self.map = mmap.mmap(fd, BYTES)
        os.close(fd)
        self.at = 0
        self.write({"pid": self.pid, "tid": self.tid})

    def write(self, row):
        text = json.dumps(row, separators=(",", ":")).encode() + b"\n"
        end = self.at + len(text)
        if end <= BYTES:
            self.map[self.at:end] = text
            self.at = end

    def add(self, kind, begin, end, cpu=None, batch=None, more=None):
        self.write([kind, begin, end, cpu, batch, more])


def journal():
    j = getattr(_local, "journal", None)
    if j is None:
        j = _local.journal = Journal()
    return j


def forget():
    _local.journal = None


os.register_at_fork(after_in_child=forget)


@contextlib.contextmanager
def phase(kind, batch=None, more=None):
    begin, cpu = now(), cpu_now()
    yield
    journal().add(kind, begin, now(), cpu_now() - cpu, batch, more)


def collect(folder, path, head):
    """All threads' rows in one file: {"head"}, then {"pid", "tid"} and its rows."""
    with open(path, "w", encoding="utf-8") as out:
        out.write(json.dumps(head) + "\n")
        for name in sorted(os.listdir(folder)):
            with open(os.path.join(folder, name), "rb") as f:
                body = f.read().rstrip(b"\0")
            out.write(body[:body.rfind(b"\n") + 1].decode())


def die_with_parent():
    ctypes.CDLL(None).prctl(1, 9, 0, 0, 0)  # PR_SET_PDEATHSIG, SIGKILL
