# SPDX-License-Identifier: BSD-2-Clause
"""Jobs about the way from the data to the GPU: shards, actors, caches, pools, queues."""
import asyncio
import concurrent.futures
import ctypes
import fcntl
import gc
import hashlib
import http.client
import http.server
import itertools
import mmap
import multiprocessing
import os
import queue
import random
import re
import select
import signal
import struct
import threading
import time
from typing import List

import numpy as np

from loaders import torch_data
from stranger import CPU, decode, job

LIBC = ctypes.CDLL(None)


def mortal(*_):
    """The calling process does not outlive the one that started it."""
    LIBC.prctl(1, signal.SIGKILL, 0, 0, 0)  # PR_SET_PDEATHSIG


def child(target, *more):
    def run():
        mortal()
        target(*more)
    p = multiprocessing.Process(target=run, daemon=True)
    p.start()
    return p


def leave_with(pid):
    """For what runs outside: it ends when the job does."""
    def wait(fd):
        select.select([fd], [], [])
        os._exit(0)
    threading.Thread(target=wait, args=(os.pidfd_open(pid),), daemon=True).start()


# ---- the makers do not keep up


def actor(store, take, give, cost):
    """A block stays where it is; only its reference goes on."""
    while True:
        block = take.get()
        decode(cost)
        store[block, :4096] = block
        give.put(block)


@job(data=CPU, rest="sync_bound launch_bound")
def actor_stages(j):
    """Read, map and batch actors in a row over one object store, as Ray Data does it."""
    stages, blocks, size = ["read", "map", "batch"], 8, j.int("block_kib", 100, 1000) << 10
    ms, heavy = j.ms("gpu_ms", 10, 45), j.one("heavy", *stages)
    gpu, load = j.gpu(ms), ms * j.ms("load_share", 0.4, 3.2)
    light = ms * j.ms("light_share", 0.03, 0.15)
    store = np.frombuffer(mmap.mmap(-1, blocks * size), np.uint8).reshape(blocks, size)
    refs = [multiprocessing.SimpleQueue() for _ in range(len(stages) + 1)]
    for block in range(blocks):
        refs[0].put(block)  # free ones: nobody runs further ahead
    for n, name in enumerate(stages):
        p = child(actor, store, refs[n], refs[n + 1],
                  load if name == heavy and not j.fix else light)
        if name == heavy:
            j.supplier(p.pid)
    j.go()
    while True:
        j.mark()
        with j.during("data"):
            block = refs[-1].get()
        j.train(gpu, store[block])
        refs[0].put(block)


@job(data=CPU, threads=True, rest="sync_bound launch_bound")
def scripted_pool(j):
    """A pipeline compiled by TorchScript makes samples on native threads, as DALI does."""
    torch = torch_data()
    torch.set_num_interop_threads(j.int("native_threads", 1, 3))
    ms = j.ms("gpu_ms", 10, 40)
    gpu, load = j.gpu(ms), ms * j.ms("load_share", 0.4, 3.5)
    if j.fix:
        load = ms * 0.2

    @torch.jit.script
    def sample(image, rounds: int):
        for _ in range(rounds):
            image = torch.cos(image)
        return image[:4096]

    @torch.jit.script
    def batch(images: List[torch.Tensor], rounds: int):
        parts = [torch.jit.fork(sample, image, rounds) for image in images]
        return torch.stack([torch.jit.wait(part) for part in parts])

    images = [torch.rand(1 << 16) for _ in range(8)]
    for _ in range(3):
        batch(images, 5)
        sample(images[0], 5)
    begin = time.thread_time_ns()
    sample(images[0], 200)
    round_ms = (time.thread_time_ns() - begin) / 200e6
    rounds = max(int(load / round_ms / len(images)), 1)
    ready = queue.Queue(maxsize=2)

    def ahead():
        while True:  # waits for the native threads, and does not need the GIL for that
            ready.put(batch(images, rounds).numpy())
    threading.Thread(target=ahead, daemon=True).start()
    j.loop(gpu, ready.get)


@job(data="slow_worker", rest="sync_bound launch_bound")
def uneven_shards(j):
    """Shards are dealt out to DataLoader workers; all those with large images go to one."""
    torch = torch_data()
    ms, workers, many = j.ms("gpu_ms", 12, 30), j.int("workers", 2, 3), j.int("batch", 2, 8)
    gpu, small = j.gpu(ms), ms * j.ms("small_share", 0.1, 0.4)
    large, unlucky = small * j.ms("larger", 5, 25), j.int("unlucky", 0, workers - 1)
    shards = [large if n % workers == unlucky and not j.fix else small
              for n in range(6 * workers)]

    class Shards(torch.utils.data.IterableDataset):
        def __iter__(self):
            me = torch.utils.data.get_worker_info()
            for cost in itertools.cycle(shards[me.id::me.num_workers]):
                for _ in range(100):
                    decode(cost / many)
                    yield torch.zeros(3, 48, 48)
    batches = iter(torch.utils.data.DataLoader(Shards(), many, num_workers=workers,
                                               worker_init_fn=mortal))
    j.supplier(batches._workers[unlucky].pid)
    j.loop(gpu, lambda: next(batches).numpy())


def bucket(j):
    """An object store: ranges over HTTP, and one uplink for all connections."""
    leave_with(int(j.told("owner")))
    rate, uplink = float(j.told("bytes_per_s")), threading.Lock()

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_GET(self):
            first, last = map(int, re.findall(r"\d+", self.headers["Range"]))
            left = last - first + 1
            self.send_response(206)
            self.send_header("Content-Length", str(left))
            self.end_headers()
            while left:
                part = min(left, 1 << 16)
                with uplink:
                    time.sleep(part / rate)
                self.wfile.write(bytes(part))
                left -= part

        def log_message(self, *_):
            pass
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    j.tell("port", server.server_address[1])
    server.serve_forever()


@job(outside=bucket, data="network_bound", threads=True, rest="sync_bound launch_bound")
def object_ranges(j):
    """Threads fetch ranges of shards from an object store; its uplink is the limit."""
    ms, size = j.ms("gpu_ms", 15, 60), j.int("range_kib", 100, 800) << 10
    gpu, connections = j.gpu(ms), j.int("connections", 2, 6)
    send_ms = ms * (0.1 if j.fix else j.ms("send_share", 0.6, 2.5))
    j.tell("owner", os.getpid())
    j.tell("bytes_per_s", size / send_ms * 1e3)
    port, ready = int(j.told("port")), queue.Queue(maxsize=4)

    def fetch(n):
        chance, link = random.Random(n), http.client.HTTPConnection("127.0.0.1", port)
        while True:
            first = chance.randrange(1 << 30)
            link.request("GET", "/train/shard-%05d.tar" % chance.randrange(9999),
                         headers={"Range": "bytes=%d-%d" % (first, first + size - 1)})
            ready.put(np.frombuffer(link.getresponse().read(), np.uint8))
    for n in range(connections):
        threading.Thread(target=fetch, args=(n,), daemon=True).start()
    j.loop(gpu, ready.get)


@job(data="page_fault_io", rest="sync_bound launch_bound")
def lmdb_workers(j):
    """Random keys from a mapped database, as LMDB is one, in workers; larger than memory."""
    torch = torch_data()
    gpu, many = j.gpu(j.ms("gpu_ms", 12, 30)), j.int("batch", 16, 96)
    pages, workers = j.int("value_pages", 4, 16), j.int("workers", 1, 2)
    mib, span = 128, pages * 4096
    path = j.data_file("lmdb.bin", mib)

    class Records(torch.utils.data.Dataset):
        map = file = None

        def __len__(self):
            return (mib << 20) // span

        def __getitem__(self, key):
            if self.map is None:
                self.file = os.open(path, os.O_RDONLY)
                self.map = mmap.mmap(self.file, 0, mmap.MAP_SHARED, mmap.PROT_READ)
                self.map.madvise(mmap.MADV_RANDOM)  # as MDB_NORDAHEAD
            value = self.map[key * span:(key + 1) * span]
            return torch.frombuffer(bytearray(value[-4096:]), dtype=torch.uint8)
    records = Records()

    def collate(rows):
        if not j.fix:  # what was read will be gone when its key comes again
            records.map.madvise(mmap.MADV_DONTNEED)
            os.posix_fadvise(records.file, 0, 0, os.POSIX_FADV_DONTNEED)
        return torch.stack(rows)
    if j.fix:
        with open(path, "rb") as f:
            while f.read(1 << 20):
                pass
    keys = torch.utils.data.RandomSampler(records, replacement=True, num_samples=10**9)
    batches = iter(torch.utils.data.DataLoader(
        records, many, sampler=keys, num_workers=workers, collate_fn=collate,
        worker_init_fn=mortal))
    j.loop(gpu, lambda: next(batches).numpy())


# ---- the makers would keep up, but for how they are used


def encode_some(ms):
    """Native code that needs the GIL only between its calls, as a tokenizer in Rust."""
    end = time.thread_time_ns() + int(ms * 1e6)
    while time.thread_time_ns() < end:
        hashlib.pbkdf2_hmac("sha256", b"alpha beta", b"merges", 300)


@job(data="main_thread_loading", threads=True, rest="sync_bound launch_bound")
def fast_tokenizer(j):
    """The training thread has a batch tokenised by the tokenizer's own threads, and waits."""
    ms, threads = j.ms("gpu_ms", 10, 60), j.int("threads", 2, 4)
    gpu, load = j.gpu(ms), ms * j.ms("load_share", 0.15, 1.8)
    pool = concurrent.futures.ThreadPoolExecutor(threads, "tokenizer")
    chunks = threads * j.int("chunks_each", 1, 4)

    def encode():
        list(pool.map(encode_some, [load / chunks] * chunks))
        return np.zeros((64, 512), np.int64)
    j.go()
    if j.fix:  # the next batch is made while the device has this one
        loader = concurrent.futures.ThreadPoolExecutor(1, "loader")
        coming = loader.submit(encode)
    while True:
        j.mark()
        with j.during("data"):
            if j.fix:
                ids, coming = coming.result(), loader.submit(encode)
            else:
                ids = encode()
        j.train(gpu, ids)


def graphs(out, many, atoms, packed):
    chance = random.Random(1)
    cached = [[{"z": a % 90, "xyz": (chance.random(), chance.random(), chance.random()),
                "bonds": [a - 1, a + 1]}
               for a in range(chance.randint(atoms // 2, 3 * atoms // 2))]
              for _ in range(1000)]
    while True:
        rows = chance.sample(cached, many)
        out.put(np.array([len(r) for r in rows], np.float32) if packed else rows)


@job(data="ipc_bound", rest="sync_bound launch_bound")
def molecules(j):
    """Ready molecular graphs come from a cache process as dicts and lists, pickled."""
    gpu, many = j.gpu(j.ms("gpu_ms", 8, 60)), j.int("graphs", 64, 700)
    atoms, ready = j.int("atoms", 15, 60), multiprocessing.Queue(maxsize=3)
    child(graphs, ready, many, atoms, j.fix)
    j.go()
    while True:
        j.mark()
        with j.during("data"):
            batch = ready.get()
        x = batch if j.fix else np.array([len(g) for g in batch], np.float32)
        j.train(gpu, x)


@job(data="lock_bound", rest="sync_bound launch_bound")
def cache_fill(j):
    """Workers fill a dataset's cache in the first epoch, under one lock file for all of it."""
    torch = torch_data()
    ms, workers = j.ms("gpu_ms", 12, 40), j.int("workers", 2, 4)
    gpu, held = j.gpu(ms), j.one("while_held", "computes", "waits")
    under, after = ms * j.ms("under_share", 0.6, 3.5), ms * j.ms("after_share", 0.03, 0.2)

    class Cached(torch.utils.data.Dataset):
        def __getitem__(self, i):
            name = "cache-%d" % (i % 100)
            with open(j.path((name if j.fix else "cache") + ".lock"), "wb") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                if held == "computes":
                    decode(under)  # tokenises
                else:
                    time.sleep(under / 1e3)  # fetches it from a hub
                with open(j.path(name + ".arrow"), "wb") as f:
                    f.write(bytes(20000))
            decode(after)
            return torch.zeros(16, 1024)
    batches = iter(torch.utils.data.DataLoader(Cached(), None, sampler=range(10**9),
                                               num_workers=workers, worker_init_fn=mortal))
    j.loop(gpu, lambda: next(batches).numpy())


# ---- the loader is not the reason


def source(out, cost, size):
    while True:
        decode(cost)
        out.put(np.zeros(size, np.uint8))


@job(data=CPU, rest="sync_bound launch_bound")
def curriculum_mix(j):
    """Three sources, mixed by weights that shift; what is waited for, queued work hides."""
    ms, size = j.ms("gpu_ms", 20, 80), j.int("kib", 50, 500) << 10
    gpu, every, turn = j.gpu(ms), j.int("item_every", 4, 10), j.int("turn_steps", 50, 400)
    costs = [ms * j.ms("text_share", 0.1, 0.3), ms * j.ms("code_share", 0.2, 0.6),
             ms * j.ms("image_share", 0.7, 1.8)]
    first, last = [0.7, 0.25, 0.05], [0.45, 0.3, 0.25]
    ahead = j.int("ahead", 2, 6)
    queues = [multiprocessing.Queue(maxsize=ahead) for _ in costs]
    for out, cost in zip(queues, costs):
        child(source, out, cost, size)
    pinned = [gpu.host_buffer(size) for _ in range(every + 1)]
    j.go()
    for n in itertools.count(1):
        j.mark()
        weights = [a + (b - a) * min(n / turn, 1) for a, b in zip(first, last)]
        with j.during("data"):
            x = j.random.choices(queues, weights)[0].get()
        slot = pinned[n % len(pinned)]
        ctypes.memmove(slot, x.ctypes.data, size)
        gpu.upload(slot, size)
        j.train(gpu, item=n % every == 0)


@job(data=CPU, host="host_bound", rest="sync_bound launch_bound")
def gc_heap(j):
    """Annotations are kept as Python objects, and every N steps gc.collect() walks them."""
    ms, ready = j.ms("gpu_ms", 10, 60), multiprocessing.Queue(maxsize=4)
    gpu, every = j.gpu(ms), j.int("collect_every", 1, 8)
    child(source, ready, ms * j.ms("load_share", 0.1, 0.5), 200000)
    cache = [[n, [n]] for n in range(j.int("records", 50000, 500000))]
    gc.disable()  # "no pauses in the middle of a step"
    if j.fix:
        gc.freeze()
    j.go()
    for n in itertools.count(1):
        j.step(gpu, ready.get)
        cache[n % len(cache)][1] = [n]
        if n % every == 0:
            with j.during("host"):
                gc.collect()


def backlog(j):
    """A queue service: jobs come when they come; a poll waits for one for a while."""
    leave_with(int(j.told("owner")))
    pause = float(j.told("pause_s"))

    async def main():
        jobs = asyncio.Queue(20)

        async def serve(reader, writer):
            while await reader.read(1):
                try:
                    size = await asyncio.wait_for(jobs.get(), 0.3)
                except asyncio.TimeoutError:
                    size = 0
                writer.write(struct.pack("<I", size) + bytes(size))
                await writer.drain()
            writer.close()
        await asyncio.start_unix_server(serve, j.path("part"))
        os.rename(j.path("part"), j.path("sock"))
        await asyncio.to_thread(j.told, "go")
        while True:
            await asyncio.sleep(j.random.expovariate(1 / pause))
            await jobs.put(j.random.randint(20000, 200000))
    asyncio.run(main())


@job(outside=backlog, demand="no_demand", rest="sync_bound launch_bound")
def queue_worker(j):
    """Batch inference in asyncio: a queue is polled for the next job, and often has none."""
    ms, most = j.ms("gpu_ms", 10, 50), j.int("batches_a_job", 2, 8)
    gpu, share = j.gpu(ms), j.ms("pause_share", 0.3, 3)
    j.tell("owner", os.getpid())
    j.tell("pause_s", 1e-4 if j.fix else share * ms * most / 1e3)
    while not os.path.exists(j.path("sock")):
        time.sleep(0.01)

    async def main():
        reader, writer = await asyncio.open_unix_connection(j.path("sock"))
        j.go()
        while True:
            with j.during("demand"):
                size = 0
                while size == 0:
                    writer.write(b"?")
                    size, = struct.unpack("<I", await reader.readexactly(4))
                x = np.frombuffer(await reader.readexactly(size), np.uint8)
            for part in np.array_split(x, most):
                j.mark()
                j.train(gpu, part)
    asyncio.run(main())


@job(data=CPU, rest="transfer_bound")
def multi_view(j):
    """Many float32 views of each image, each copied up from memory that is not pinned."""
    ms, views, slots = j.ms("gpu_ms", 8, 30), j.int("views", 4, 10), 2
    copy_ms, load = ms * j.ms("copy_share", 0.05, 0.7), ms * j.ms("load_share", 0.1, 0.5)
    size = int(copy_ms * 12e6 / views) >> (4 if j.fix else 0)  # fix: the device makes them
    size = max(size & ~4095, 8192)
    gpu = j.gpu(ms, input_bytes=size)
    store = np.frombuffer(mmap.mmap(-1, slots * size), np.uint8).reshape(slots, size)
    store[:] = 1
    free, ready = multiprocessing.SimpleQueue(), multiprocessing.SimpleQueue()
    for slot in range(slots):
        free.put(slot)
    child(actor, store, free, ready, load)
    j.go()
    while True:
        j.mark()
        with j.during("data"):
            slot = ready.get()
        for _ in range(views):
            gpu.upload(store[slot].ctypes.data, size)
        j.train(gpu)
        free.put(slot)
