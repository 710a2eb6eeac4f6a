# SPDX-License-Identifier: BSD-2-Clause
"""What a strange job needs beside its own code: drawn numbers, a device, a clocked log.

A log has a row (kind, begin, end) for all that its author knows of a step: `data` while
the loop obtains a batch, `demand` while nobody asks, `host`, `lock`, `child` for other work
between GPU calls, `ckpt`, `peer` for waiting for another rank; `step` and `micro` are
moments. Times are CLOCK_MONOTONIC nanoseconds. What no row has is `rest`.
"""
import ctypes
import importlib
import json
import math
import multiprocessing
import os
import random
import signal
import sys
import time
import zlib

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.environ.get("BUILD", os.path.join(TOP, "build"))
sys.path.insert(0, os.path.join(TOP, "tests/e2e"))

import job_gpu  # noqa: E402

now = time.monotonic_ns
JOBS = {}
THEMES = ["serving", "loaders", "loops", "pipelines", "habits", "shapes", "sources", "stalls", "feeds", "others",
          "natives", "habitats", "workshops", "fieldwork", "studios", "orchards", "harbours",
          "frames", "benches", "kilns", "ferries", "quarries", "smithies", "torchyards",
          "mirages", "recipes", "seasons", "giants", "convoys", "galleries",
          "aqueducts", "clinics", "bazaars", "wards", "rehearsals", "tempests",
          "trails", "ateliers", "observatories", "foundries",
          "lighthouses", "printworks", "vineyards", "archives",
          "glasshouses", "mailrooms", "theatres", "stables",
          "bakeries", "railways", "weirs", "clocks",
          "harvests", "looms", "carnivals", "dockyards",
          "marshes", "tanneries",
          "granaries", "caravans",
          "ropewalks", "apothecaries",
          "lumberyards", "newsrooms",
          "cooperages", "courthouses", "aviaries",
          "gatehouses", "mints", "hostels",
          "fairgrounds", "playwrights", "lockkeepers",
          "shipwrights", "chandlers", "wheelwrights",
          "beekeepers", "watchmakers", "masons", "innkeepers",
          "toolsmiths", "towncriers", "gymnasts", "paddlers", "milliners", "cobblers",
          "glovers", "saddlers", "cartwrights",
          "bookbinders", "potters", "brewers", "thatchers", "falconers", "embroiderers",
          "glaziers", "coopers", "lamplighters", "gardeners", "signwriters"]
RECORD = json.dumps([{"id": i, "words": ["alpha", "beta", str(i)] * 4} for i in range(12)])
BLOB = zlib.compress(random.Random(1).randbytes(48 << 10) * 4)
# The three that mean "the makers compute": which one is decided by the cores left free and
# by the run queue, as the kernel counts them.
CPU = "cpu_bound cpu_oversubscribed too_few_workers"


def job(outside=None, threads=False, **accept):
    """Registers a job; accept: for each kind of row the verdicts that are right where that
    kind leaves the device idle most; beside: which may be told as well."""
    def register(f):
        f.accept = {kind: set(ids.split()) for kind, ids in accept.items()}
        f.outside, f.threads = outside, threads
        if f.__name__ in JOBS and f.__module__ in THEMES:
            raise ValueError("two jobs are called " + f.__name__)
        JOBS[f.__name__] = f
        return f
    return register


def parse(ms):
    """Python that computes and keeps the interpreter's lock."""
    end = time.thread_time_ns() + int(ms * 1e6)
    while time.thread_time_ns() < end:
        json.loads(RECORD)


def decode(ms):
    """A C library that computes without the interpreter's lock."""
    end = time.thread_time_ns() + int(ms * 1e6)
    while time.thread_time_ns() < end:
        zlib.decompress(BLOB)


def mortal(parent, number=signal.SIGKILL):
    """The calling process gets this signal when its parent ends."""
    ctypes.CDLL(None).prctl(1, int(number))
    if os.getppid() != parent:
        os._exit(0)


def child(f, *more):
    """A process that calls f and dies with this one."""
    parent = os.getpid()

    def run():
        mortal(parent)
        f(*more)
    p = multiprocessing.Process(target=run, daemon=True)
    p.start()
    return p


class Row:
    """A stretch of the loop; of the owner's main thread, so they do not overlap."""
    __slots__ = ("log", "kind", "begin")

    def __init__(self, log, kind):
        self.log, self.kind = log, kind

    def __enter__(self):
        self.begin, self.log.open = now(), self

    def __exit__(self, *_):
        self.log.open = None
        self.log.rows.append((self.kind, self.begin, now()))


class Stranger:
    def __init__(self, name, seed, folder, fix):
        self.name, self.folder, self.fix = name, folder, fix
        self.random = random.Random("%s/%s" % (seed, name))
        self.drawn, self.rows, self.facts, self.open = {}, [], {}, None
        self.owner, self.number = os.getpid(), None
        self.at_end = None
        signal.signal(signal.SIGTERM, self.end)

    # ---- numbers

    def keep(self, name, value):
        self.drawn[name] = value
        return value

    def ms(self, name, low, high):
        """Uniform on a logarithmic scale."""
        return self.keep(name, round(math.exp(self.random.uniform(
            math.log(low), math.log(high))), 2))

    def int(self, name, low, high):
        return self.keep(name, self.random.randint(low, high))

    def one(self, name, *values):
        return self.keep(name, self.random.choice(values))

    # ---- the device

    def gpu(self, ms, input_bytes=1 << 20, launches=None):
        launches = launches or self.int("launches", 10, 150)
        gpu = job_gpu.Gpu(os.path.join(BUILD, "sim/libcudart.so.12"),
                          ms * 1e3 / launches, launches, input_bytes)
        self.at_end = getattr(gpu.lib, "ptreal_end", None)
        return gpu

    @staticmethod
    def train(gpu, array=None, item=True):
        """A step's GPU part, as PyTorch calls it."""
        if array is not None:
            gpu.upload(array.ctypes.data, array.nbytes)
        gpu.forward()
        gpu.backward()
        gpu.optimizer()
        if item:
            gpu.loss_item()

    def step(self, gpu, obtain):
        self.mark()
        with self.during("data"):
            x = obtain()
        self.train(gpu, x)
        return x

    def loop(self, gpu, obtain):
        """The plainest one: a batch, a step."""
        self.go()
        while True:
            self.step(gpu, obtain)

    # ---- the log

    def during(self, kind):
        return Row(self, kind)

    def mark(self, kind="step"):
        t = now()
        self.rows.append((kind, t, t))

    def supplier(self, pid):
        """Who makes more than half of the wait."""
        self.facts["supplier"] = pid

    def rank(self, n):
        """Called by the process of a rank: from here on it has its own log."""
        self.owner, self.number, self.rows = os.getpid(), n, []

    def end(self, *_):
        if os.getpid() == self.owner:
            if self.open:
                self.rows.append((self.open.kind, self.open.begin, now()))
            if self.at_end:
                self.at_end()
            path = os.path.join(self.folder, "log.%d.json" % os.getpid())
            with open(path + ".part", "w", encoding="utf-8") as f:
                json.dump({"job": self.name, "pid": os.getpid(), "rank": self.number,
                           "drawn": self.drawn, "facts": self.facts, "rows": self.rows}, f)
            os.rename(path + ".part", path)
        os._exit(0)

    # ---- meeting others

    def path(self, name):
        return os.path.join(self.folder, name)

    def tell(self, name, text):
        with open(self.path(name + ".part"), "w", encoding="utf-8") as f:
            f.write(str(text))
        os.rename(self.path(name + ".part"), self.path(name))

    def told(self, name):
        while not os.path.exists(self.path(name)):
            time.sleep(0.01)
        with open(self.path(name), encoding="utf-8") as f:
            return f.read()

    def go(self):
        """Hold here until the tracer is attached."""
        print("READY", flush=True)
        os.read(0, 100)  # sys.stdin has a lock, that a process forked meanwhile would have for ever
        self.tell("go", "")

    def data_file(self, name, mib):
        """A file on the disk with bytes that do not compress, out of the page cache."""
        path = os.path.join(BUILD, "strangers", name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        if not os.path.exists(path) or os.path.getsize(path) != mib << 20:
            with open(path, "wb") as f:
                for _ in range(mib):
                    f.write(os.urandom(1 << 20))
        return self.cold(path)

    @staticmethod
    def cold(path):
        fd = os.open(path, os.O_RDONLY)
        os.fsync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)
        return path


def themes():
    """They register their jobs; one that lies elsewhere is named by its path."""
    for name in THEMES + os.environ.get("STRANGERS", "").split():
        sys.path.insert(0, os.path.dirname(name) or os.path.join(TOP, "tests/strangers"))
        importlib.import_module(os.path.basename(name))


def main():
    name, seed, folder, role = sys.argv[1:5]
    themes()
    s = Stranger(name, seed, folder, role == "fixed")
    f = JOBS[name]
    (f.outside if role == "outside" else f)(s)


if __name__ == "__main__":
    sys.modules["stranger"] = sys.modules["__main__"]
    main()
