# SPDX-License-Identifier: BSD-2-Clause
"""The data side of a scenario's job: every batch carries what was done for it.

A batch's truth travels with it, as integers: pid, begin and end of its making,
the CPU time of its thread, the number of items and the duration of each, then
the phases in order, four numbers each: kind, begin, end (CLOCK_MONOTONIC ns)
and the thread's CPU ns in it. A phase's time that its thread did not compute
is what the kind says; a "cpu" phase's is the run queue. A row of kind FILE is no
phase: the number of the file that the reading before it read, its bytes and its ns.
"""

import ctypes
import mmap
import os
import random
import socket
import struct
import time

import numpy as np
import torch
from torch.utils.data import Dataset, default_collate, get_worker_info

import job_data

READ, CPU, SLEEP, LOCK, NET, FAULT, FILE = range(7)
KINDS = ("read", "cpu", "sleep", "lock", "net", "fault")

# Phases of the batch in the making; one batch is made at a time per process.
pending = []


class Phase:
    """with Phase(KIND): ... notes the stretch in `pending`."""

    def __init__(self, kind):
        self.kind = kind

    def __enter__(self):
        self.begin, self.cpu = time.monotonic_ns(), time.thread_time_ns()

    def __exit__(self, *_):
        cpu = time.thread_time_ns() - self.cpu
        pending.extend((self.kind, self.begin, time.monotonic_ns(), cpu))


def read_mapped(path):
    """Touch a file's pages through a mapping, its cached pages dropped."""
    with open(path, "rb") as f:
        os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        with mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ) as m:
            m.madvise(mmap.MADV_RANDOM)  # no read-ahead: a fault per page
            body = bytearray()
            for at in range(0, len(m), mmap.PAGESIZE):
                body += m[at:at + mmap.PAGESIZE]
            body = bytes(body)
        os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    return body


def note_file(number, body):
    """Behind the phase in which it was read."""
    pending.extend((FILE, number, len(body), pending[-2] - pending[-3]))


class Pack:
    """Records in one large file, fetched in one of several orders; each reader
    goes through a part of its own, in order or by strides."""

    def __init__(self, path, args):
        self.path, self.args = path, args
        self.size = os.path.getsize(path)
        self.pid = None

    def open(self):
        info = get_worker_info()
        self.pid = os.getpid()
        self.fd = os.open(self.path, os.O_RDONLY)
        self.map = np.memmap(self.path, dtype=np.uint8, mode="r") \
            if self.args.cache == "mapped" else None
        if self.map is not None:  # a disk may read megabytes around each fault
            self.map._mmap.madvise(mmap.MADV_RANDOM)
        part = self.size // (info.num_workers if info else 1)
        self.begin = self.at = (info.id if info else 0) * part
        self.end = self.begin + part
        self.rng = random.Random(self.args.seed * 31 + self.pid)

    def length(self):
        kib = self.args.record_kb
        if self.args.access == "stride":
            return kib << 10
        return self.rng.randrange(kib << 9, 3 * kib << 9)

    def read(self):
        if self.pid != os.getpid():
            self.open()
        n = self.length()
        if self.args.access == "random":
            self.at = self.rng.randrange(self.size - n)
        elif self.at + n > self.end:
            self.at = self.begin
        if self.map is not None:
            body = self.map[self.at:self.at + n].tobytes()
            self.map._mmap.madvise(mmap.MADV_DONTNEED)  # else none can be dropped
        else:
            body = os.pread(self.fd, n, self.at)
        if self.args.cache in ("dropped", "mapped"):
            if self.args.access != "seq":
                os.posix_fadvise(self.fd, 0, 0, os.POSIX_FADV_DONTNEED)
            elif self.at > self.begin:  # not what was read ahead
                os.posix_fadvise(self.fd, self.begin, self.at - self.begin,
                                 os.POSIX_FADV_DONTNEED)
        self.at += n
        if self.args.access == "stride":
            self.at += 7 * n
        return body


def vary_files(directory, count, low_kb, high_kb):
    """Files of many sizes, written once."""
    rng, paths = random.Random(low_kb * 1000 + high_kb), []
    for i in range(count):
        size = rng.randrange(low_kb << 10, high_kb << 10)
        path = os.path.join(directory, "vary-%d-%d-%05d.bin" % (low_kb, high_kb, i))
        paths.append(path)
        if not os.path.exists(path) or os.path.getsize(path) != size:
            with open(path, "wb") as f:
                f.write(os.urandom(size))
                f.flush()
                os.fsync(f.fileno())
    return paths


class Remote:
    """Fetches bytes from a server over a socket of its own per process."""

    def __init__(self, port):
        self.port = port
        self.sock = None
        self.pid = None

    def get(self, size):
        if self.pid != os.getpid():
            self.sock = socket.create_connection(("127.0.0.1", self.port))
            self.pid = os.getpid()
        self.sock.sendall(struct.pack("<Q", size))
        left = size
        while left:
            part = self.sock.recv(min(left, 1 << 16))
            if not part:
                raise ConnectionError("the data server is gone")
            left -= len(part)


class Items(Dataset):
    """Items at the cost that the arguments ask for, phase by phase."""

    def __init__(self, paths, length, args, lock):
        self.paths, self.length, self.args, self.lock = (paths, length, args,
                                                         lock)
        self.read = read_mapped if args.cache == "mapped" else \
            job_data.READERS[args.cache]
        self.remote = Remote(args.net_port) if args.net_port else None
        self.pack = self.picture = None
        if args.access or args.vary_kb:
            self.picture = job_data.read_cached(args.picture)
        if args.access:
            self.pack = Pack(args.pack, args)
        self.elements = max(args.tensor_kb * 1024 // args.batch_size // 4, 1)
        self.epoch = torch.zeros(1, dtype=torch.int64).share_memory_()

    def __len__(self):
        return self.length

    def cost(self, index):
        """(CPU ns, sleep s, lock s) of this item in this worker."""
        a = self.args
        rng = random.Random(a.seed * 1000003 + index)
        factor = 1 + a.jitter * (2 * rng.random() - 1)
        if a.heavy_share and rng.random() < a.heavy_share:
            factor *= a.heavy_factor
        info = get_worker_info()
        if a.slow and info is not None and info.id == int(a.slow[0]):
            if len(a.slow) < 3 or int(self.epoch[0]) % 2 == int(a.slow[2]):
                factor *= a.slow[1]
        return (a.cpu_ms * 1e6 * factor, a.sleep_ms / 1e3 * factor,
                a.lock_ms / 1e3 * factor)

    def compute(self, body, ns):
        """Decode until that much CPU time is spent; once at least."""
        with Phase(CPU):
            until = time.thread_time_ns() + ns
            picture = job_data.decode(body)
            while time.thread_time_ns() < until:
                picture = job_data.decode(body)
            data = np.resize(picture.astype(np.float32) / 255.0,
                             self.elements)
            return data if self.args.numpy else torch.from_numpy(data)

    def __getitem__(self, index):
        a = self.args
        begin, begin_cpu = time.monotonic_ns(), time.thread_time_ns()
        cpu, sleep, lock = self.cost(index)
        n = len(self.paths) - (1 if a.big_every else 0)
        path = self.paths[index % n]
        big = a.big_every and index % a.big_every == a.seed % a.big_every
        if self.remote:
            with Phase(NET):
                self.remote.get(a.net_kb * 1024)
        with Phase(FAULT if a.cache == "mapped" else READ):
            body = self.pack.read() if self.pack else self.read(path)
        if not self.pack:
            note_file(index % n, body)
        if big:
            with Phase(READ):
                more = job_data.read_dropped(self.paths[-1])
            note_file(n, more)
        body = self.picture or body
        if sleep > 0:
            with Phase(SLEEP):
                time.sleep(sleep)
        if lock > 0:
            with Phase(LOCK):
                self.lock.acquire()
            with Phase(SLEEP if a.lock_sleeps else CPU):
                if a.lock_sleeps:
                    time.sleep(lock)
                else:
                    until = time.thread_time_ns() + lock * 1e9
                    while time.thread_time_ns() < until:
                        pass
            self.lock.release()
        data = self.compute(body, cpu)
        return data, index % 10, begin, time.monotonic_ns() - begin, begin_cpu


class Collate:
    def __init__(self, numpy, parts):
        self.numpy, self.parts = numpy, parts

    def __call__(self, samples):
        with Phase(CPU):
            if self.numpy:
                x = [np.stack([s[0] for s in samples])]
            else:
                whole = default_collate([s[0] for s in samples])
                x = list(whole.chunk(self.parts, dim=1)) \
                    if self.parts > 1 else [whole]
                x = [t.contiguous() for t in x]
        begin, begin_cpu = samples[0][2], samples[0][4]
        meta = [os.getpid(), begin, time.monotonic_ns(),
                time.thread_time_ns() - begin_cpu, len(samples)]
        meta += [s[3] for s in samples] + pending
        pending.clear()
        kind = np.asarray(meta, dtype=np.int64)
        return x, kind if self.numpy else torch.from_numpy(kind)


def unpack(meta):
    """A batch's numbers as the fields of a step record."""
    n = meta[4]
    phases = meta[5 + n:]
    return {"worker": meta[0], "load_begin": meta[1], "load_end": meta[2],
            "load_cpu": meta[3],
            "items": [round(ns / 1e6, 4) for ns in meta[5:5 + n]],
            "phases": [[KINDS[phases[i]]] + phases[i + 1:i + 4]
                       for i in range(0, len(phases), 4)
                       if phases[i] != FILE],
            # [number, bytes, begin, end] of each reading of one
            "files": [[phases[i + 1], phases[i + 2], phases[i - 3], phases[i - 2]]
                      for i in range(4, len(phases), 4) if phases[i] == FILE]}


def big_file(directory, mib):
    """A file of so many MiB, written once."""
    path = os.path.join(directory, "big-%d.bin" % mib)
    if not os.path.exists(path) or os.path.getsize(path) != mib << 20:
        with open(path + ".tmp", "wb") as f:
            for _ in range(mib):
                f.write(os.urandom(1 << 20))
            f.flush()
            os.fsync(f.fileno())
        os.rename(path + ".tmp", path)
    return path


def die_with_parent():
    ctypes.CDLL(None).prctl(1, 15, 0, 0, 0)  # PR_SET_PDEATHSIG, SIGTERM
