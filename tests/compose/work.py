# SPDX-License-Identifier: BSD-2-Clause
"""What the making of one batch costs, phase by phase."""

import fcntl
import hashlib
import http.client
import mmap
import os
import random
import subprocess
import time

import numpy as np

from journal import cpu_now, journal, now, phase

BLOCK = bytes(65536)
CHUNK = 128 * 1024


def compute(ns):
    """In C, the interpreter's lock released."""
    until = cpu_now() + ns
    while cpu_now() < until:
        hashlib.sha256(BLOCK).digest()


def compute_python(ns):
    until, x = cpu_now() + ns, 0
    while cpu_now() < until:
        for i in range(200):
            x = (x * 31 + i) & 0xffff
    return x


def read_dropped(path):
    fd = os.open(path, os.O_RDONLY)
    try:
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        while os.read(fd, CHUNK):
            pass
    finally:
        os.close(fd)


def read_direct(path):
    fd = os.open(path, os.O_RDONLY | os.O_DIRECT)
    try:
        with mmap.mmap(-1, CHUNK) as buffer:
            while os.readv(fd, [buffer]):
                pass
    finally:
        os.close(fd)


def read_mapped(path):
    with open(path, "rb") as f:
        os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        with mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ) as m:
            m.madvise(mmap.MADV_RANDOM)  # a fault for each page
            return sum(m[at] for at in range(0, len(m), mmap.PAGESIZE))


class Worker:
    """One maker of batches, a thread or a process, number `index`."""

    def __init__(self, spec, index, locks):
        self.spec, self.index, self.locks = spec, index, locks
        self.rng = random.Random("%s/%d" % (spec["seed"], index))
        self.made, self.born = 0, now()
        self.conn = self.file = None
        self.size = spec["batch_kb"] * 1024

    def factor(self):
        """How many times the usual this batch costs."""
        s, f = self.spec, 1 + 0.1 * (2 * self.rng.random() - 1)
        skew, n, x = s["skew"], s["skew_n"], s["skew_factor"]
        if skew == "one_slow" and self.index == 0:
            f *= x
        elif skew == "tail" and self.rng.random() < 1 / n:
            f *= x
        elif skew == "nth" and self.made % n == n - 1:
            f *= x
        elif skew == "growing":
            f *= 1 + (x - 1) * min((now() - s["begin"]) / 20e9, 1)
        return f

    def under_lock(self, batch, kind, ns):
        work = self.spec["work"]
        asked = now()
        if work == "lock_thread":
            self.locks["thread"].acquire()
        elif work == "lock_mp":
            self.locks["mp"].acquire()
        else:
            if self.file is None:  # a lock of a description of one's own
                self.file = open(self.spec["lock_file"], "r+b")
            if work == "lock_fcntl":
                fcntl.lockf(self.file, fcntl.LOCK_EX)
            else:
                fcntl.flock(self.file, fcntl.LOCK_EX)
        held = now()
        journal().add("lock", asked, held, 0, batch)
        if kind == "sleep":
            with phase("sleep", batch):
                time.sleep(ns / 1e9)
        else:
            with phase("cpu", batch):
                compute(ns)
        journal().add("held", held, now(), 0, batch)
        if work == "lock_thread":
            self.locks["thread"].release()
        elif work == "lock_mp":
            self.locks["mp"].release()
        elif work == "lock_fcntl":
            fcntl.lockf(self.file, fcntl.LOCK_UN)
        else:
            fcntl.flock(self.file, fcntl.LOCK_UN)

    def fetch(self, ns):
        if self.conn is None:
            self.conn = http.client.HTTPConnection("127.0.0.1", self.spec["http_port"],
                                                   timeout=30)
        self.conn.request("GET", "/%d" % (ns // 1000))
        self.conn.getresponse().read()

    def gzip(self, batch, ns):
        """So many bytes as cost that much; what the child computed is its own count."""
        size = max(int(ns / 1e6 * self.spec["gzip_kb_ms"]), 1) * 1024
        begin = now()
        child = subprocess.Popen(["head -c %d %s | gzip -6 -c >/dev/null" % (
            size, self.spec["gzip_file"])], shell=True, stdin=subprocess.DEVNULL)
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = status
        journal().add("child", begin, now(), int((usage.ru_utime + usage.ru_stime) * 1e9),
                      batch, child.pid)

    def files(self, factor):
        paths, n = self.spec["files"], max(round(self.spec["reads"] * factor), 1)
        return [paths[self.rng.randrange(len(paths))] for _ in range(n)]

    def work(self, batch):
        s, f = self.spec, self.factor()
        ns, kind = int(s["cost_ms"] * 1e6 * f), s["work"]
        if kind == "cpu":
            with phase("cpu", batch):
                compute(ns)
        elif kind == "gil":
            with phase("cpu", batch):
                compute_python(ns)
        elif kind == "sleep":
            with phase("sleep", batch):
                time.sleep(ns / 1e9)
        elif kind in ("read", "direct", "mapped"):
            one = {"read": read_dropped, "direct": read_direct, "mapped": read_mapped}[kind]
            with phase("fault" if kind == "mapped" else "read", batch):
                for path in self.files(f):
                    one(path)
        elif kind == "http":
            with phase("net", batch):
                self.fetch(ns)
        elif kind == "subprocess":
            self.gzip(batch, ns)
        elif kind.startswith("lock"):
            self.under_lock(batch, "sleep" if kind == "lock_sleep" else "cpu", ns)
        with phase("cpu", batch):
            compute(int(s["base_ms"] * 1e6))
            return np.full(self.size, batch & 127, dtype=np.uint8)

    def make(self):
        """(number of the batch, its bytes)."""
        batch = self.index * 10**9 + now() // 1000 % 10**9  # one only, over restarts
        begin = now()
        data = self.work(batch)
        self.made += 1
        journal().add("made", begin, now(), None, batch, self.index)
        return batch, data


def transform(spec, batch, data):
    """What a helper does to a batch: some computing, and a copy."""
    begin = now()
    with phase("cpu", batch):
        compute(int(spec["helper_ms"] * 1e6))
        data = data.copy() if hasattr(data, "copy") else bytes(data)
    journal().add("formed", begin, now(), None, batch)
    return data
