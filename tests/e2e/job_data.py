# SPDX-License-Identifier: BSD-2-Clause
"""The data side of the test job: real files, a real Dataset, a real collate.

Every batch carries its own truth: which process made it, when, how much CPU
time its thread used and how long each item took (CLOCK_MONOTONIC nanoseconds).
It travels with the batch, so it stays right whatever order the loader delivers
in.
"""

import io
import mmap
import os
import random
import time

import numpy as np
import torch
from PIL import Image
from torch.utils.data import Dataset, default_collate, get_worker_info

PAGE = 4096
READ_CHUNK = 128 * 1024
META_FIXED = 4  # pid, load begin, load end, load CPU; then item durations


def make_files(directory, count, kib, seed):
    """Write `count` JPEG files of `kib` KiB each; return their paths.

    The picture is noise, so that it decodes at a real cost; bytes behind its
    end marker pad the file to a whole number of pages, which O_DIRECT needs.
    Files of the right size are kept from an earlier run.
    """
    os.makedirs(directory, exist_ok=True)
    size = max(kib * 1024, PAGE) // PAGE * PAGE
    rng = np.random.default_rng(seed)
    paths = []
    made = False
    for i in range(count):
        path = os.path.join(directory, "sample-%05d.jpg" % i)
        paths.append(path)
        if os.path.exists(path) and os.path.getsize(path) == size:
            continue
        made = True
        side = 144
        while True:
            noise = rng.integers(0, 255, (side, side, 3), dtype=np.uint8)
            out = io.BytesIO()
            Image.fromarray(noise).save(out, "JPEG", quality=85)
            if out.tell() <= size:
                break
            side = side * 3 // 4
        body = out.getvalue()
        temporary = path + ".tmp.%d" % os.getpid()
        with open(temporary, "wb") as f:
            f.write(body)
            f.write(rng.bytes(size - len(body)))
            f.flush()
            os.fsync(f.fileno())
        os.rename(temporary, path)
    if made:
        os.sync()  # only clean pages can be dropped from the cache
    return paths


def read_cached(path):
    fd = os.open(path, os.O_RDONLY)
    try:
        return os.read(fd, os.fstat(fd).st_size)
    finally:
        os.close(fd)


def read_dropped(path):
    """Buffered read of a file whose cached pages are dropped first."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        parts = []
        while True:
            part = os.read(fd, READ_CHUNK)
            if not part:
                break
            parts.append(part)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        return b"".join(parts)
    finally:
        os.close(fd)


def read_direct(path):
    """Read past the page cache."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECT)
    try:
        size = os.fstat(fd).st_size
        buf = mmap.mmap(-1, READ_CHUNK)  # page-aligned
        try:
            parts = []
            at = 0
            while at < size:
                n = os.preadv(fd, [buf], at)
                if n <= 0:
                    break
                parts.append(buf[:n])
                at += n
            return b"".join(parts)
        finally:
            buf.close()
    finally:
        os.close(fd)


READERS = {"cached": read_cached, "dropped": read_dropped, "direct": read_direct}


def decode(body):
    with Image.open(io.BytesIO(body)) as picture:
        return np.asarray(picture.convert("RGB"))


class Files(Dataset):
    """Items decoded from files, at a chosen cost.

    cpu_ms: CPU time per item, spent in the decoder (measured on the thread's
    own CPU clock: competing processes stretch it, as they would real work).
    decodes: so many times at least, whatever they take: what is done to the thread
    in its own CPU time stretches that, too.
    slow: (worker id, factor, "cpu" | "sleep") or None.
    """

    def __init__(self, paths, length, args):
        self.paths = paths
        self.length = length
        self.read = READERS[args.cache]
        self.cpu_ns, self.decodes = args.cpu_ms_per_item * 1e6, args.decodes_per_item
        self.sleep_s = args.sleep_ms / 1e3
        self.jitter = args.jitter
        self.slow = args.slow
        self.seed = args.seed
        self.numpy = args.numpy
        self.elements = max(args.tensor_kb * 1024 // args.batch_size // 4, 1)

    def __len__(self):
        return self.length

    def cost(self, index):
        """(CPU ns, sleep s) of this item in this worker."""
        cpu, sleep = self.cpu_ns, self.sleep_s
        if self.jitter:
            rng = random.Random(self.seed * 1000003 + index)
            factor = 1 + self.jitter * (2 * rng.random() - 1)
            cpu, sleep = cpu * factor, sleep * factor
        info = get_worker_info()
        if self.slow and info is not None and info.id == self.slow[0]:
            if self.slow[2] == "cpu":
                cpu *= self.slow[1]
            else:
                sleep += (self.slow[1] - 1) * (cpu / 1e9 + sleep)
        return cpu, sleep

    def __getitem__(self, index):
        begin, begin_cpu = time.monotonic_ns(), time.thread_time_ns()
        cpu, sleep = self.cost(index)
        body = self.read(self.paths[index % len(self.paths)])
        if sleep > 0:
            time.sleep(sleep)
        until = time.thread_time_ns() + cpu
        for _ in range(self.decodes):
            picture = decode(body)
        while time.thread_time_ns() < until:
            picture = decode(body)
        data = np.resize(picture.astype(np.float32) / 255.0, self.elements)
        label = index % 10
        if not self.numpy:
            data = torch.from_numpy(data)
        return data, label, begin, time.monotonic_ns() - begin, begin_cpu


class Collate:
    """Stack a batch and sign it with who made it and when."""

    def __init__(self, numpy):
        self.numpy = numpy

    def __call__(self, samples):
        begin, begin_cpu = samples[0][2], samples[0][4]
        times = [s[3] for s in samples]
        if self.numpy:
            x = np.stack([s[0] for s in samples])
            y = np.asarray([s[1] for s in samples], dtype=np.int64)
        else:
            x = default_collate([s[0] for s in samples])
            y = torch.tensor([s[1] for s in samples])
        meta = [os.getpid(), begin, time.monotonic_ns(),
                time.thread_time_ns() - begin_cpu] + times
        if self.numpy:
            return x, y, np.asarray(meta, dtype=np.int64)
        return x, y, torch.tensor(meta, dtype=torch.int64)
