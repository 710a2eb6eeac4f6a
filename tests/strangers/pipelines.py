# SPDX-License-Identifier: BSD-2-Clause
"""Jobs whose batches pass through several hands, or through hands not written in Python."""
import asyncio
import collections
import contextlib
import ctypes
import fcntl
import gzip
import itertools
import multiprocessing
import os
import queue
import random
import selectors
import socket
import subprocess
import threading
import time
from multiprocessing import shared_memory

import numpy as np

from stranger import CPU, decode, job, parse

# ---- not Python


@job(data=CPU, rest="sync_bound launch_bound")
def gzip_stream(j):
    """Raw records from packed shards: cat | gzip -dc, read by the loop or by a thread."""
    gpu, size = j.gpu(j.ms("gpu_ms", 4, 40)), j.int("kib", 800, 6000) << 10
    noise = np.random.default_rng(j.int("noise", 1, 99)).integers(0, 50, 8 << 20, np.uint8)
    shard = j.path("shard")
    with open(shard, "wb") as f:
        f.write(noise.tobytes() if j.fix else gzip.compress(noise.tobytes(), 1))
    feed = subprocess.Popen(["sh", "-c", "while cat %s; do :; done" % shard],
                            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    unpack = subprocess.Popen(["cat"] if j.fix else ["gzip", "-dc"], stdin=feed.stdout,
                              stdout=subprocess.PIPE)
    feed.stdout.close()
    j.supplier(unpack.pid)
    ready = queue.Queue(maxsize=2)

    def read():
        return np.frombuffer(unpack.stdout.read(size), np.uint8)

    def reader():
        while True:
            ready.put(read())
    obtain = read
    if j.one("reader", "loop", "thread") == "thread":
        threading.Thread(target=reader, daemon=True).start()
        obtain = ready.get
    j.loop(gpu, obtain)


NATIVE = """
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define DEPTH 4
static pthread_mutex_t door = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t filled = PTHREAD_COND_INITIALIZER, freed = PTHREAD_COND_INITIALIZER;
static unsigned char *slots[DEPTH];
static unsigned head, tail;
static size_t size;
static double cost;

static double spent(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return t.tv_sec * 1e3 + t.tv_nsec / 1e6;
}

static void *augment(void *number)
{
    unsigned seed = (unsigned)(size_t)number + 1;
    unsigned char *image = calloc(1, size);
    for (;;) {
        double end = spent() + cost * (0.6 + 0.8 * rand_r(&seed) / RAND_MAX);
        while (spent() < end)
            for (size_t i = 1; i < 20000 && i < size; i++)
                image[i] = image[i - 1] * 31 + image[i] + seed;
        pthread_mutex_lock(&door);
        while (head - tail == DEPTH)
            pthread_cond_wait(&freed, &door);
        memcpy(slots[head++ % DEPTH], image, size);
        pthread_cond_signal(&filled);
        pthread_mutex_unlock(&door);
    }
    return NULL;
}

void pipeline_start(int threads, size_t bytes, double ms)
{
    size = bytes;
    cost = ms;
    for (int i = 0; i < DEPTH; i++)
        slots[i] = malloc(bytes);
    for (int i = 0; i < threads; i++) {
        pthread_t t;
        pthread_create(&t, NULL, augment, (void *)(size_t)i);
    }
}

void pipeline_next(unsigned char *to)
{
    pthread_mutex_lock(&door);
    while (head == tail)
        pthread_cond_wait(&filled, &door);
    memcpy(to, slots[tail++ % DEPTH], size);
    pthread_cond_signal(&freed);
    pthread_mutex_unlock(&door);
}
"""


@job(data=CPU, rest="sync_bound launch_bound")
def native_pipeline(j):
    """A library in C decodes in threads of its own, as DALI does; Python asks it by ctypes."""
    gpu, size = j.gpu(j.ms("gpu_ms", 4, 30)), j.int("kib", 100, 1000) << 10
    cost, threads = j.ms("image_ms", 30, 150), j.int("threads", 1, 3)
    with open(j.path("native.c"), "w", encoding="ascii") as f:
        f.write(NATIVE)
    subprocess.run(["cc", "-O1", "-shared", "-fPIC", "-pthread", "-o", j.path("native.so"),
                    j.path("native.c")], check=True, stdin=subprocess.DEVNULL)
    native, x = ctypes.CDLL(j.path("native.so")), np.zeros(size, np.uint8)
    native.pipeline_start(threads, ctypes.c_size_t(size),
                          ctypes.c_double(cost / 10 if j.fix else cost))
    j.go()
    while True:
        j.mark()
        with j.during("data"):
            native.pipeline_next(ctypes.c_void_p(x.ctypes.data))
        j.train(gpu, x)


# ---- one at a time


@contextlib.contextmanager
def locked_file(path):
    with open(path, "ab") as f:
        fcntl.flock(f, fcntl.LOCK_EX)
        yield


def extract(out, alone, seek, unpack, after):
    while True:
        with alone():
            time.sleep(seek / 1e3)  # a changer of tapes or discs
            decode(unpack)
        decode(after)
        out.put(np.zeros(40000, np.float32))


@job(data="lock_bound", rest="sync_bound launch_bound")
def one_lock(j):
    """Worker processes of which only one may use the archive: a shared lock or flock()."""
    gpu = j.gpu(j.ms("gpu_ms", 4, 25))
    seek, unpack = j.ms("seek_ms", 15, 60), j.ms("unpack_ms", 5, 20)
    after, lock = j.ms("after_ms", 0.5, 4), multiprocessing.Lock()
    alone = {"shared": lambda: lock, "file": lambda: locked_file(j.path("archive.lock")),
             "none": contextlib.nullcontext}
    how, out = j.one("lock", "shared", "file"), multiprocessing.Queue(maxsize=4)
    for _ in range(j.int("workers", 2, 4)):
        multiprocessing.Process(target=extract, daemon=True, args=(
            out, alone["none" if j.fix else how], seek, unpack, after)).start()
    j.loop(gpu, out.get)


# ---- fetch, then decode

RAW = 60000


def answering(j, wait):
    """A server of raw items; who asks with a capital letter does not wait."""
    async def serve(reader, writer):
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                if await reader.readexactly(1) == b"g":
                    await wait()
                writer.write(bytes(RAW))
                await writer.drain()

    async def main():
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        j.tell("port", server.sockets[0].getsockname()[1])
        await server.serve_forever()
    asyncio.run(main())


def near_store(j):
    late = j.ms("latency_ms", 1, 5) / 1e3
    answering(j, lambda: asyncio.sleep(late))


def capped_store(j):
    """So many bytes a second for all together."""
    each, due = j.ms("item_ms", 25, 90) / 1e3, [time.monotonic()]

    async def wait():
        due[0] = max(due[0], time.monotonic()) + each
        await asyncio.sleep(due[0] - time.monotonic())
    answering(j, wait)


def decoder(raw, out, cost):
    while True:
        x = np.frombuffer(raw.get(), np.uint8)
        decode(cost)
        out.put(x[:RAW // 4].astype(np.float32))


def fetched(j, cost, fetchers, decoders, ask):
    """Threads fetch, processes decode: the queue at the end."""
    raw, out = multiprocessing.Queue(maxsize=6), multiprocessing.Queue(maxsize=4)
    for _ in range(decoders):
        multiprocessing.Process(target=decoder, args=(raw, out, cost), daemon=True).start()
    port = int(j.told("port"))

    def fetch():
        link = socket.create_connection(("127.0.0.1", port))
        stream = link.makefile("rb")
        while True:
            link.sendall(ask)
            raw.put(stream.read(RAW))
    for _ in range(fetchers):
        threading.Thread(target=fetch, daemon=True).start()
    return out


@job(outside=near_store, data=CPU, rest="sync_bound launch_bound")
def fetch_decode(j):
    """Threads fetch from a store nearby, processes decode what they bring, at length."""
    gpu, cost = j.gpu(j.ms("gpu_ms", 4, 40)), j.ms("decode_ms", 25, 120)
    out = fetched(j, cost / 10 if j.fix else cost, j.int("fetchers", 2, 4),
                  j.int("decoders", 1, 3), b"g")
    j.loop(gpu, out.get)


@job(outside=capped_store, data="network_bound", rest="sync_bound launch_bound")
def capped_fetch(j):
    """The same, but the store gives all its clients together a fixed rate."""
    gpu, cost = j.gpu(j.ms("gpu_ms", 4, 30)), j.ms("decode_ms", 1, 8)
    out = fetched(j, cost, j.int("fetchers", 2, 6), j.int("decoders", 1, 2),
                  b"G" if j.fix else b"g")
    j.loop(gpu, out.get)


# ---- memory in common


def ring_producer(name, slots, size, cost):
    memory = shared_memory.SharedMemory(name)
    at = np.ndarray((2,), np.int64, memory.buf)
    while True:
        decode(cost)
        while at[0] - at[1] >= slots:
            time.sleep(0.0005)
        np.ndarray((size,), np.uint8, memory.buf, 16 + at[0] % slots * size)[:] = at[0] & 255
        at[0] += 1


@job(data=CPU + " gpu_starved", rest="sync_bound launch_bound")
def spinning_ring(j):
    """A ring in shared memory without a lock; the loop spins until its head moves."""
    gpu, cost = j.gpu(j.ms("gpu_ms", 4, 40)), j.ms("batch_ms", 15, 90)
    size, slots = j.int("kib", 50, 1000) << 10, j.int("slots", 2, 8)
    memory = shared_memory.SharedMemory(create=True, size=16 + slots * size)
    at = np.ndarray((2,), np.int64, memory.buf)
    at[:] = 0
    p = multiprocessing.Process(target=ring_producer, daemon=True, args=(
        memory.name, slots, size, cost / 10 if j.fix else cost))
    p.start()
    j.supplier(p.pid)
    while at[0] == 0:
        time.sleep(0.01)
    memory.unlink()
    j.go()
    while True:
        j.mark()
        with j.during("data"):
            while at[0] == at[1]:
                pass
            x = np.ndarray((size,), np.uint8, memory.buf, 16 + at[1] % slots * size)
        j.train(gpu, x)
        at[1] += 1


def fat_maker(out, free, memory, size):
    for n in itertools.count():
        if memory is None:
            out.put(np.full(size, n & 255, np.uint8))
        else:
            slot = free.get()
            np.ndarray((size,), np.uint8, memory.buf, slot * size)[:] = n & 255
            out.put(slot)


@job(data="ipc_bound", rest="sync_bound launch_bound")
def fat_queue(j):
    """Whole volumes are pickled into a multiprocessing.Queue; making them costs nothing."""
    gpu, size, slots = j.gpu(j.ms("gpu_ms", 3, 15)), j.int("mib", 8, 32) << 20, 4
    out, free, memory = multiprocessing.Queue(maxsize=2), multiprocessing.Queue(), None
    if j.fix:
        memory = shared_memory.SharedMemory(create=True, size=slots * size)
        memory.unlink()
        for n in range(slots):
            free.put(n)
    for _ in range(j.int("makers", 1, 2)):
        multiprocessing.Process(target=fat_maker, args=(out, free, memory, size),
                                daemon=True).start()
    j.go()
    while True:
        j.mark()
        with j.during("data"):
            x = slot = out.get()
            if memory:
                x = np.ndarray((size,), np.uint8, memory.buf, slot * size)
        j.train(gpu, x)
        if memory:
            free.put(slot)


# ---- a server of memories


def replay(j):
    """Keeps what two actors push, and draws a batch by priority for who asks."""
    cost = j.ms("draw_ms", 12, 90)
    door = socket.socket()
    door.bind(("127.0.0.1", 0))
    door.listen()
    for n in range(2):
        if os.fork() == 0:
            link = socket.create_connection(door.getsockname())
            while True:
                time.sleep(0.02)
                link.sendall(b"p" * 64)
    j.tell("pid", os.getpid())
    j.tell("port", door.getsockname()[1])
    ready, kept = selectors.DefaultSelector(), collections.deque(maxlen=10000)
    ready.register(door, selectors.EVENT_READ)
    while True:
        for key, _ in ready.select():
            if key.fileobj is door:
                ready.register(door.accept()[0], selectors.EVENT_READ)
                continue
            asked = key.fileobj.recv(64)
            if not asked:
                ready.unregister(key.fileobj)
            elif asked[:1] == b"p":
                kept.append(asked)
            for letter in asked.replace(b"p", b"").decode():
                parse(cost / 10 if letter == "q" else cost)
                key.fileobj.sendall(bytes(200000))


@job(outside=replay, data=CPU, rest="sync_bound launch_bound")
def replay_server(j):
    """The learner asks a replay server for the next batch while it trains on this one."""
    gpu, ahead = j.gpu(j.ms("gpu_ms", 4, 40)), j.int("ahead", 1, 3)
    j.supplier(int(j.told("pid")))
    link = socket.create_connection(("127.0.0.1", int(j.told("port"))))
    stream, ask = link.makefile("rb"), b"q" if j.fix else b"s"
    j.go()
    link.sendall(ask * ahead)
    while True:
        j.mark()
        with j.during("data"):
            link.sendall(ask)
            x = np.frombuffer(stream.read(200000), np.uint8)
        j.train(gpu, x)


# ---- PyTorch, and a pool for each epoch


@job(data="slow_item", rest="sync_bound launch_bound")
def rare_volume(j):
    """One scan of the set is hundreds of times as large; it comes once in every pass."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    import torch
    gpu = j.gpu(j.ms("gpu_ms", 13, 22))
    scan, huge = j.ms("scan_ms", 0.4, 1.2), j.ms("huge_ms", 350, 600)
    scans, fix = j.int("scans", 120, 160), j.fix

    class Scans(torch.utils.data.Dataset):
        def __len__(self):
            return 10**5

        def __getitem__(self, i):
            turn, n = divmod(i, scans)
            decode(huge if n == random.Random(turn).randrange(scans) and not fix else scan)
            return torch.zeros(3, 48, 48)
    batches = iter(torch.utils.data.DataLoader(Scans(), j.int("batch", 3, 4),
                                               num_workers=j.int("workers", 2, 3)))
    j.loop(gpu, lambda: next(batches).numpy())


def read_index(cost):
    parse(cost)


def easy_or_hard(args):
    n, cost = args
    decode(cost)
    return np.full(20000, n & 255, np.float32)


@job(data="loader_restart", rest="sync_bound launch_bound")
def pool_per_epoch(j):
    """A curriculum: each short epoch has a pool of its own, whose workers read the index."""
    gpu = j.gpu(j.ms("gpu_ms", 6, 20))
    cost, index = j.ms("item_ms", 0.5, 4), j.ms("index_ms", 150, 500)
    steps, workers = j.int("steps", 10, 35), j.int("workers", 1, 2)
    pool = None
    j.go()
    for epoch in itertools.count():
        for n in range(steps):
            j.mark()
            with j.during("data"):
                if n == 0:
                    if pool and not j.fix:
                        pool.close()
                        pool.join()
                    if not (pool and j.fix):
                        pool = multiprocessing.Pool(workers, read_index, (index,))
                    level = cost * (1 + 0.1 * (epoch % 5))
                    batches = pool.imap(easy_or_hard, ((i, level) for i in range(steps)))
                x = next(batches)
            j.train(gpu, x)


# ---- the input is there


def staged_decoder(link, cost, spread, size):
    chance = random.Random(size)
    while True:
        decode(cost * chance.uniform(1 - spread, 1 + spread))
        link.send_bytes(bytes(size))


@job(data=CPU, rest="sync_bound launch_bound")
def kept_up(j):
    """A thread stages three page-locked buffers ahead of the loop; the decoder keeps up."""
    ms, size = j.ms("gpu_ms", 40, 120), j.int("kib", 50, 900) << 10
    gpu, cost = j.gpu(ms), ms * j.ms("share", 0.1, 0.5)
    mine, theirs = multiprocessing.Pipe()
    multiprocessing.Process(target=staged_decoder, daemon=True, args=(
        theirs, cost / 10 if j.fix else cost, j.ms("spread", 0.05, 0.8), size)).start()
    buffers = [np.ctypeslib.as_array((ctypes.c_ubyte * size).from_address(gpu.host_buffer(size)))
               for _ in range(3)]
    empty, full = queue.Queue(), queue.Queue()
    for b in buffers:
        empty.put(b)

    def stage():
        while True:
            b = empty.get()
            mine.recv_bytes_into(b)
            full.put(b)
    threading.Thread(target=stage, daemon=True).start()
    j.go()
    while True:
        empty.put(j.step(gpu, full.get))


def to_files(out, folder, number, cost):
    for n in itertools.count():
        decode(cost)
        path = os.path.join(folder, "%d-%d.npy" % (number, n))
        x = np.lib.format.open_memmap(path, "w+", np.float32, (64, 1000))
        x[:] = n & 255
        x.flush()
        del x
        out.put(path)


@job(data=CPU, host="host_bound", rest="sync_bound launch_bound")
def own_work(j):
    """Mapped files from a pool lie ready, as joblib's; the loop averages weights and logs."""
    gpu, cost = j.gpu(j.ms("gpu_ms", 4, 30)), j.ms("batch_ms", 1, 8)
    own, weights = j.ms("own_ms", 12, 80), np.ones(j.int("weights", 10000, 500000), np.float32)
    out, mean = multiprocessing.Queue(maxsize=6), weights.copy()
    for n in range(j.int("workers", 1, 2)):
        multiprocessing.Process(target=to_files, args=(out, j.folder, n, cost),
                                daemon=True).start()
    j.go()
    while True:
        j.mark()
        with j.during("data"):
            path = out.get()
            x = np.load(path, mmap_mode="r")
            os.unlink(path)
        j.train(gpu, x)
        with j.during("host"):
            mean += 0.01 * (weights - mean)
            parse(0.2 if j.fix else own)
