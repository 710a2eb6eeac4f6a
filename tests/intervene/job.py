#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""A training job that changes one thing while it runs: A, B, A, B, ...

    job.py SPEC LOG

SPEC is JSON: cudart, data, seed, sides {"A": {...}, "B": {...}}, order, seconds.
The first A lasts until SIGUSR1, so that it can be traced; each of the others
lasts `seconds`. Prints "READY PID" when the first A has settled. The log is JSON
lines, one for each part: {"side", "begin", "end", "steps": [ns, ...]}, each step
when its batch was taken; times are time.monotonic_ns().
"""
import contextlib
import ctypes
import fcntl
import http.client
import json
import multiprocessing as mp
import os
import random
import signal
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "e2e"))
os.environ.setdefault("OMP_NUM_THREADS", "1")

import job_gpu  # noqa: E402

ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: not without the runner
now = time.monotonic_ns
SETTLE_S = 1.0


def burn(ms):
    until = time.thread_time_ns() + ms * 1e6
    x = 1
    while time.thread_time_ns() < until:
        for _ in range(200):
            x = x * 1103515245 + 12345 & 0x7fffffff
    return x


class Item:
    """What one item takes: `work` is a list of [kind, ms, ...]."""

    def __init__(self, spec, side, lock):
        self.spec, self.side, self.lock = spec, side, lock
        self.rng, self.file, self.http = None, None, None

    def start(self, worker):
        self.worker = worker
        self.rng = random.Random("%s/%d/%d" % (self.spec["seed"], worker, os.getpid()))
        self.file = open(self.spec["lockfile"], "a", encoding="ascii")
        self.paths = sorted(os.path.join(self.spec["data"], n)
                            for n in os.listdir(self.spec["data"])) \
            if self.spec["data"] else []

    def pause(self, ms):
        time.sleep(max(ms, 0) / 1e3)

    def ask(self, port):
        if self.http is None or not self.side.get("keepalive", True):
            self.http = http.client.HTTPConnection("127.0.0.1", port)
        self.http.request("GET", "/")
        self.http.getresponse().read()
        if not self.side.get("keepalive", True):
            self.http.close()

    def read(self):
        fd = os.open(self.rng.choice(self.paths), os.O_RDONLY)
        try:
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            while os.read(fd, 128 << 10):
                pass
        finally:
            os.close(fd)

    def make(self):
        s = self.side
        factor = s.get("slow", 1) if self.worker == 0 else 1
        factor *= 1 + s.get("jitter", 0) * (2 * self.rng.random() - 1)
        if s.get("tail") and self.rng.random() < s["tail"][0]:
            factor *= s["tail"][1]
        for kind, ms in s["work"]:
            ms *= factor
            if kind == "sleep":
                self.pause(ms)
            elif kind == "cpu":
                burn(ms)
            elif kind == "flock":
                fcntl.flock(self.file, fcntl.LOCK_EX)
                self.pause(ms)
                fcntl.flock(self.file, fcntl.LOCK_UN)
            elif kind == "mplock":
                with self.lock:
                    self.pause(ms)
            elif kind == "http":
                self.ask(self.spec["port"])
            elif kind == "disk":
                self.read()


class Dataset:
    def __init__(self, item):
        self.item, self.started = item, False

    def __len__(self):
        return 1 << 22

    def __getitem__(self, i):
        import torch
        if not self.started:
            info = torch.utils.data.get_worker_info()
            self.item.start(info.id if info else 0)
            self.started = True
        self.item.make()
        return torch.zeros(self.item.side.get("tensor_kb", 64) * 256 //
                           self.item.side.get("batch", 1))


def torch_loader(item, side):
    from torch.utils.data import DataLoader
    n = side["workers"]
    return DataLoader(Dataset(item), batch_size=side.get("batch", 1), num_workers=n,
                      persistent_workers=False,
                      prefetch_factor=side.get("prefetch", 2) if n else 2)


class OwnLoader:
    """Worker processes and a pipe each way; batches come in order."""

    def __init__(self, item, side):
        self.n, self.ahead = side["workers"], side.get("prefetch", 2)
        self.batch, self.bytes = side.get("batch", 1), side.get("tensor_kb", 64) << 10
        self.ends, self.procs = [], []
        for w in range(self.n):
            ours, theirs = mp.Pipe() if side.get("socket") else self.pipes()
            p = mp.Process(target=self.work, args=(item, w, theirs), daemon=True)
            p.start()
            self.ends.append(ours)
            self.procs.append(p)

    @staticmethod
    def pipes():
        (a, b), (c, d) = mp.Pipe(False), mp.Pipe(False)

        class End:
            def __init__(self, r, w):
                self.recv_bytes, self.send_bytes = r.recv_bytes, w.send_bytes
        return End(a, d), End(c, b)

    def work(self, item, w, end):
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)
        item.start(w)
        out = bytes(self.bytes)
        while end.recv_bytes() != b"end":
            for _ in range(self.batch):
                item.make()
            end.send_bytes(out)

    def __iter__(self):
        for _ in range(self.ahead):
            for e in self.ends:
                e.send_bytes(b"more")
        k = 0
        while True:
            e = self.ends[k % self.n]
            x = e.recv_bytes()
            e.send_bytes(b"more")
            k += 1
            yield (ctypes.c_char * len(x)).from_buffer_copy(x)

    def close(self):
        for p in self.procs:
            p.kill()
            p.join()


class Job:
    def __init__(self, spec):
        self.spec, self.next, self.told, self.rows = spec, False, False, []
        side = spec["sides"]["A"]
        self.gpu = job_gpu.Gpu(spec["cudart"], side.get("kernel_us", 100),
                               side.get("launches", 20), 1 << 20)
        signal.signal(signal.SIGUSR1, self.on_signal)

    def on_signal(self, *_):
        self.next = True

    def address(self, x):
        return ctypes.addressof(x) if isinstance(x, ctypes.Array) else x.data_ptr()

    def step(self, n, batch, side):
        gpu = self.gpu
        gpu.upload(self.address(batch), side.get("tensor_kb", 64) << 10)
        gpu.forward()
        gpu.backward()
        if side.get("host_cpu_ms"):
            burn(side["host_cpu_ms"])
        gpu.optimizer()
        if side.get("sync_every") and n % side["sync_every"] == 0:
            gpu.sync(False)
        if side.get("after_cpu_ms"):
            burn(side["after_cpu_ms"])
        if side.get("pause_every") and n % side["pause_every"] == 0:
            time.sleep(side["pause_ms"] / 1e3)

    def part(self, name, first):
        side = self.spec["sides"][name]
        if "cores" in side:
            for t in os.listdir("/proc/self/task"):
                with contextlib.suppress(ProcessLookupError):  # a thread may end meanwhile
                    os.sched_setaffinity(int(t), range(side["cores"]))
        item = Item(self.spec, side, mp.Lock())
        loader = OwnLoader(item, side) if side["loader"] == "own" else \
            torch_loader(item, side)
        steps, n, begin = [], 0, now()
        settled = begin + SETTLE_S * 1e9
        end = begin + (60 if first else SETTLE_S + self.spec["seconds"]) * 1e9
        for batch in loader:
            steps.append(now())
            if first and not self.told and steps[-1] > settled:
                self.told = True
                print("READY %d" % os.getpid(), flush=True)
            if steps[-1] >= end or first and self.next:
                break
            self.step(n, batch, side)
            n += 1
        self.gpu.sync(True)
        self.rows.append({"side": name, "begin": begin, "settled": int(settled),
                          "end": now(), "steps": steps})
        if side["loader"] == "own":
            loader.close()

    def run(self, log):
        for i, name in enumerate(self.spec["order"]):
            self.part(name, i == 0)
        with open(log, "w", encoding="ascii") as f:
            for r in self.rows:
                f.write(json.dumps(r) + "\n")


if __name__ == "__main__":
    with open(sys.argv[1], encoding="utf-8") as f:
        Job(json.load(f)).run(sys.argv[2])
