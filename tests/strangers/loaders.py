# SPDX-License-Identifier: BSD-2-Clause
"""Jobs whose interesting part is where the batches come from."""
import asyncio
import collections
import concurrent.futures
import io
import itertools
import multiprocessing
import os
import queue
import re
import socket
import sqlite3
import struct
import subprocess
import sys
import tarfile
import threading
import time
from multiprocessing import shared_memory

import numpy as np

from stranger import BUILD, CPU, decode, job, parse

# ---- pools


def fill(i):
    slot = i % pool_slots
    decode(pool_cost)
    np.ndarray((pool_bytes,), np.uint8, pool_memory.buf, slot * pool_bytes)[:] = i & 255
    return slot


@job(data=CPU, rest="sync_bound launch_bound")
def imap_shm(j):
    """multiprocessing.Pool.imap; the batches stand in shared memory."""
    global pool_memory, pool_bytes, pool_cost, pool_slots
    gpu, pool_cost = j.gpu(j.ms("gpu_ms", 5, 120)), j.ms("batch_ms", 10, 150)
    pool_bytes, pool_slots = j.int("kib", 100, 4000) << 10, 64
    pool_memory = shared_memory.SharedMemory(create=True, size=pool_slots * pool_bytes)
    pool_memory.unlink()
    with multiprocessing.Pool(j.int("workers", 1, 4)) as pool:
        j.go()
        batches = pool.imap(fill, range(4000))
        while True:
            j.mark()
            with j.during("data"):
                slot = next(batches)
                x = np.ndarray((pool_bytes,), np.uint8, pool_memory.buf, slot * pool_bytes)
            j.train(gpu, x)


def load_pickled(i, cost, size):
    decode(cost)
    return {"x": np.full(size, i & 255, np.uint8), "label": i % 10}


@job(data=CPU, rest="sync_bound launch_bound")
def executor(j):
    """ProcessPoolExecutor: a deque of futures is kept full."""
    gpu, cost = j.gpu(j.ms("gpu_ms", 5, 120)), j.ms("batch_ms", 20, 150)
    size, workers = j.int("kib", 20, 800) << 10, j.int("workers", 1, 4)
    ahead, every = collections.deque(), j.int("item_every", 1, 10)
    with concurrent.futures.ProcessPoolExecutor(workers) as pool:
        list(pool.map(abs, range(workers)))
        j.go()
        for n in itertools.count():
            j.mark()
            with j.during("data"):
                while len(ahead) < 2 * workers:
                    ahead.append(pool.submit(load_pickled, n, cost, size))
                batch = ahead.popleft().result()
            j.train(gpu, batch["x"], item=n % every == 0)


# ---- from elsewhere


def store(j):
    """An object store that answers late."""
    late, spread = j.ms("latency_ms", 15, 200), j.ms("sigma", 0.1, 0.6)

    async def serve(reader, writer):
        while True:
            size = struct.unpack("<I", await reader.readexactly(4))[0]
            await asyncio.sleep(late / 1e3 * j.random.lognormvariate(0, spread))
            writer.write(bytes(size))
            await writer.drain()

    async def main():
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        j.tell("port", server.sockets[0].getsockname()[1])
        await server.serve_forever()
    asyncio.run(main())


@job(outside=store, data="network_bound too_few_workers", rest="sync_bound launch_bound")
def asyncio_loader(j):
    """An event loop in a thread fetches from an object store, K requests at once."""
    gpu, port = j.gpu(j.ms("gpu_ms", 5, 80)), int(j.told("port"))
    size, flight = j.int("kib", 8, 500) << 10, j.int("in_flight", 1, 8)
    ready = queue.Queue(maxsize=8)

    async def fetcher():
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        while True:
            writer.write(struct.pack("<I", size))
            body = await reader.readexactly(size)
            while ready.full():
                await asyncio.sleep(0.002)
            ready.put(np.frombuffer(body, np.uint8))

    async def main():
        await asyncio.gather(*(fetcher() for _ in range(flight)))
    j.go()
    threading.Thread(target=asyncio.run, args=(main(),), daemon=True).start()
    while True:
        j.step(gpu, ready.get)


DECODER = """
import sys
sys.path.insert(0, %r)
from stranger import decode
while True:
    decode(%f)
    sys.stdout.buffer.write(bytes(%d))
"""


@job(data=CPU + " ipc_bound", rest="sync_bound launch_bound")
def video_pipe(j):
    """A decoder in a subprocess writes raw frames to a pipe, as ffmpeg does."""
    gpu, frames = j.gpu(j.ms("gpu_ms", 5, 120)), j.int("frames", 2, 16)
    size = j.one("frame", 224 * 224 * 3, 320 * 240 * 3, 640 * 360 * 3)
    code = DECODER % (os.path.dirname(os.path.abspath(__file__)), j.ms("frame_ms", 1, 12), size)
    ffmpeg = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    j.supplier(ffmpeg.pid)
    j.go()
    while True:
        j.mark()
        with j.during("data"):
            clip = np.frombuffer(ffmpeg.stdout.read(size * frames), np.uint8)
        j.train(gpu, clip)


def feature_store(j):
    """Answers "next" with a batch that it joins on the spot."""
    cost = j.ms("join_ms", 5, 100)
    door = socket.socket(socket.AF_UNIX)
    door.bind(j.path("sock"))
    door.listen()
    j.tell("pid", os.getpid())
    link = door.accept()[0]
    while link.recv(1):
        parse(cost)
        link.sendall(struct.pack("<I", 300000) + bytes(300000))


@job(outside=feature_store, data=CPU, rest="sync_bound launch_bound")
def unix_service(j):
    """Batches from a feature store of another process tree, over a Unix socket."""
    gpu, ahead = j.gpu(j.ms("gpu_ms", 5, 120)), j.int("ahead", 0, 3)
    j.supplier(int(j.told("pid")))
    link = socket.socket(socket.AF_UNIX)
    link.connect(j.path("sock"))
    stream = link.makefile("rb")
    j.go()
    link.sendall(b"n" * ahead)
    while True:
        j.mark()
        with j.during("data"):
            link.sendall(b"n")
            batch = stream.read(struct.unpack("<I", stream.read(4))[0])
        j.train(gpu, np.frombuffer(batch, np.uint8))


# ---- files


def rows_of(path, seed, many):
    """Random rows of a mapped file, none twice."""
    x = np.memmap(path, np.uint8, "r").reshape(-1, 4096)
    x._mmap.madvise(1)  # MADV_RANDOM
    order = np.random.default_rng(seed).permutation(len(x))
    for i in range(0, len(order) - many, many):
        yield x[order[i:i + many]]


def rows_process(out, *more):
    for batch in rows_of(*more):
        out.put(batch[:, :256].copy())


@job(data="page_fault_io main_thread_loading", rest="sync_bound launch_bound")
def mmap_rows(j):
    """A memory-mapped array of embeddings, rows at random, cold."""
    gpu, many = j.gpu(j.ms("gpu_ms", 5, 60)), j.int("rows", 30, 500)
    path, where = j.data_file("rows.bin", 768), j.one("where", "main", "process")
    if where == "main":
        batches = rows_of(path, 5, many)
    else:
        out = multiprocessing.Queue(maxsize=4)
        multiprocessing.Process(target=rows_process, args=(out, path, 5, many),
                                daemon=True).start()
        batches = (out.get() for _ in itertools.count())
    j.go()
    while True:
        j.mark()
        with j.during("data"):
            x = next(batches)
        j.train(gpu, x)


def torch_data():
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    import torch
    return torch


@job(data="io_bound ipc_bound", rest="sync_bound launch_bound")
def sqlite_reads(j):
    """Samples by random key from SQLite, in DataLoader workers, cold."""
    torch = torch_data()
    path = os.path.join(os.path.dirname(j.data_file("rows.bin", 768)), "samples.db")
    keys = 25000
    if not os.path.exists(path):
        base = sqlite3.connect(path + ".part")
        base.execute("create table s (k integer primary key, v blob)")
        base.executemany("insert into s values (?, ?)",
                         ((k, os.urandom(12000)) for k in range(keys)))
        base.commit()
        base.close()
        os.rename(path + ".part", path)
    if not j.fix:
        j.cold(path)

    class Samples(torch.utils.data.Dataset):
        base = None

        def __len__(self):
            return keys

        def __getitem__(self, k):
            if self.base is None:
                self.base = sqlite3.connect("file:%s?mode=ro" % path, uri=True)
            v, = self.base.execute("select v from s where k = ?", (k,)).fetchone()
            return torch.frombuffer(bytearray(v), dtype=torch.uint8)
    gpu = j.gpu(j.ms("gpu_ms", 5, 40))
    loader = torch.utils.data.DataLoader(Samples(), j.int("batch", 8, 128), shuffle=True,
                                         num_workers=j.int("workers", 1, 3))
    j.go()
    while True:
        batches = iter(loader)
        while True:
            j.mark()
            with j.during("data"):
                x = next(batches, None)
            if x is None:
                break
            j.train(gpu, x.numpy())


@job(data=CPU, rest="sync_bound launch_bound")
def tar_shards(j):
    """WebDataset by hand: each worker walks its own tar shards in order."""
    torch = torch_data()
    shards, cost = [], j.ms("sample_ms", 0.5, 10)
    for n in range(4):
        shards.append(j.path("shard-%d.tar" % n))
        with tarfile.open(shards[-1], "w") as tar:
            for i in range(800):
                body = os.urandom(j.random.randint(5000, 30000))
                head = tarfile.TarInfo("%06d.jpg" % i)
                head.size = len(body)
                tar.addfile(head, io.BytesIO(body))

    class Shards(torch.utils.data.IterableDataset):
        def __iter__(self):
            me = torch.utils.data.get_worker_info()
            for path in itertools.cycle(shards[me.id::me.num_workers]):
                with tarfile.open(path, "r|") as tar:
                    for head in tar:
                        tar.extractfile(head).read()
                        decode(cost)
                        yield torch.zeros(3, 64, 64)
    gpu = j.gpu(j.ms("gpu_ms", 5, 120))
    batches = iter(torch.utils.data.DataLoader(Shards(), j.int("batch", 4, 32),
                                               num_workers=j.int("workers", 1, 4)))
    j.go()
    while True:
        j.mark()
        with j.during("data"):
            x = next(batches)
        j.train(gpu, x.numpy())


def texts_file(j):
    path = j.path("corpus.txt")
    words = ["".join(j.random.choices("abcdefghijklmnop", k=j.random.randint(2, 9)))
             for _ in range(3000)]
    with open(path, "w", encoding="utf-8") as f:
        for _ in range(30000):
            f.write(" ".join(j.random.choices(words, k=40)) + ".\n")
    return path, {w: i for i, w in enumerate(words)}


@job(data="main_thread_loading", rest="sync_bound launch_bound")
def tokenize_main(j):
    """Lines of a text file, tokenised on the fly in the training thread."""
    gpu, many = j.gpu(j.ms("gpu_ms", 5, 120)), j.int("batch", 32, 1500)
    path, vocabulary = texts_file(j)
    word = re.compile(r"\w+|[^\w\s]")

    def batches():
        while True:
            with open(path, encoding="utf-8") as f:
                while True:
                    lines = list(itertools.islice(f, many))
                    if len(lines) < many:
                        break
                    ids = [[vocabulary.get(w, 0) for w in word.findall(s.lower())][:64]
                           for s in lines]
                    yield np.array([x + [0] * (64 - len(x)) for x in ids], np.int64)
    source = batches()
    j.go()
    while True:
        j.mark()
        with j.during("data"):
            x = next(source)
        j.train(gpu, x)


@job(data="main_thread_loading", rest="sync_bound launch_bound")
def memory_collate(j):
    """All samples are in memory; the collate function pads and masks in Python."""
    gpu, many = j.gpu(j.ms("gpu_ms", 5, 120)), j.int("batch", 64, 3000)
    samples = [{"ids": j.random.choices(range(30000), k=j.random.randint(5, 60)),
                "label": j.random.randint(0, 9)} for _ in range(5000)]

    def collate(rows):
        longest = max(len(r["ids"]) for r in rows)
        ids = [r["ids"] + [0] * (longest - len(r["ids"])) for r in rows]
        mask = [[int(i > 0) for i in row] for row in ids]
        return np.array(ids, np.int64), np.array(mask, np.int8), [r["label"] for r in rows]
    j.go()
    for n in itertools.count():
        j.mark()
        with j.during("data"):
            if n == 0 or not j.fix:
                ids, _, _ = collate(j.random.choices(samples, k=many))
        j.train(gpu, ids)


# ---- threads


@job(data=CPU, threads=True, rest=CPU)
def accumulation(j):
    """Gradient accumulation; a thread reads and parses ahead."""
    gpu, micro = j.gpu(j.ms("gpu_ms", 4, 50)), j.int("micro", 2, 8)
    cost, ready = j.ms("parse_ms", 4, 60), queue.Queue(maxsize=j.int("ahead", 2, 10))

    def prefetch():
        while True:
            parse(cost)
            ready.put(np.zeros(100000, np.float32))
    if j.fix:
        ready = multiprocessing.Queue(maxsize=4)
        multiprocessing.Process(target=prefetch, daemon=True).start()
    else:
        threading.Thread(target=prefetch, daemon=True).start()
    j.go()
    while True:
        j.mark()
        for n in range(micro):
            j.mark("micro")
            with j.during("data"):
                x = ready.get()
            j.train(gpu, x, item=n == micro - 1)


@job(data="lock_bound", threads=True, rest="sync_bound launch_bound")
def producer_lock(j):
    """Threads share one archive handle, and its lock, as with h5py."""
    gpu, cost = j.gpu(j.ms("gpu_ms", 5, 80)), j.ms("under_lock_ms", 8, 80)
    after, archive = j.ms("after_ms", 0.5, 6), threading.Lock()
    ready = queue.Queue(maxsize=6)

    def produce():
        while True:
            with archive:
                decode(cost)
            decode(after)
            ready.put(np.zeros(50000, np.float32))
    for _ in range(j.int("threads", 2, 6) * (2 if j.fix else 1)):
        threading.Thread(target=produce, daemon=True).start()
    j.go()
    while True:
        j.step(gpu, ready.get)


@job(data="lock_bound cpu_bound", threads=True, host="host_bound lock_bound", rest="lock_bound")
def gil_prefetch(j):
    """A prefetch thread and the loop's own Python want the interpreter's lock."""
    gpu, cost = j.gpu(j.ms("gpu_ms", 5, 60)), j.ms("parse_ms", 8, 60)
    own, ready = j.ms("own_ms", 3, 40), queue.Queue(maxsize=4)

    def prefetch():
        while True:
            parse(cost)
            ready.put(np.zeros(100000, np.float32))
    if j.fix:
        ready = multiprocessing.Queue(maxsize=4)
    for _ in range(j.int("threads", 1, 3)):
        (multiprocessing.Process if j.fix else threading.Thread)(
            target=prefetch, daemon=True).start()
    j.go()
    while True:
        j.step(gpu, ready.get)
        with j.during("host"):
            parse(own)  # schedules, moving averages, a progress bar


@job(data="lock_bound", threads=True, rest="sync_bound launch_bound")
def rate_limited(j):
    """Downloader threads under a limiter of N requests a second for all of them."""
    gpu, rate = j.gpu(j.ms("gpu_ms", 5, 60)), j.ms("per_second", 8, 60)
    lock, due, ready = threading.Lock(), [time.monotonic()], queue.Queue(maxsize=8)

    def limit():
        with lock:
            due[0] = max(due[0] + 1 / rate, time.monotonic())
            time.sleep(max(due[0] - time.monotonic(), 0))

    def download():
        while True:
            limit()
            decode(1)
            ready.put(np.zeros(50000, np.float32))
    for _ in range(j.int("threads", 2, 5) * (3 if j.fix else 1)):
        threading.Thread(target=download, daemon=True).start()
    j.go()
    while True:
        j.step(gpu, ready.get)


@job(data=CPU + " slow_item", threads=True, rest="sync_bound launch_bound")
def queue_of_one(j):
    """Items of very uneven cost through a queue that holds one."""
    gpu, ready = j.gpu(j.ms("gpu_ms", 10, 80)), queue.Queue(maxsize=1)
    middle, spread = j.ms("item_ms", 5, 60), j.ms("sigma", 0.3, 1.3)

    def prefetch():
        while True:
            decode(min(middle * j.random.lognormvariate(0, spread), 600))
            ready.put(np.zeros(100000, np.float32))
    threading.Thread(target=prefetch, daemon=True).start()
    j.go()
    while True:
        j.step(gpu, ready.get)


# ---- workers


def own_worker(out, sleep_ms, cpu_ms):
    while True:
        time.sleep(sleep_ms / 1e3)
        decode(cpu_ms)
        out.put(np.zeros(60000, np.float32))


@job(data="slow_worker", rest="sync_bound launch_bound")
def slow_worker(j):
    """Home-made workers with a queue each, asked in turn; one is on a bad node."""
    gpu, workers = j.gpu(j.ms("gpu_ms", 5, 40)), j.int("workers", 2, 5)
    sleep, slow = j.ms("fetch_ms", 5, 50), j.int("slow", 0, workers - 1)
    factor, queues = j.ms("factor", 2, 8), []
    for n in range(workers):
        queues.append(multiprocessing.Queue(maxsize=2))
        p = multiprocessing.Process(target=own_worker, daemon=True, args=(
            queues[-1], sleep * (factor if n == slow and not j.fix else 1), 2))
        p.start()
        if n == slow:
            j.supplier(p.pid)
    j.go()
    for n in itertools.count():
        j.step(gpu, queues[n % workers].get)


def growing_worker(link, cost, grow):
    for n in itertools.count():
        decode(cost * (1 + grow * n))
        link.send_bytes(bytes(200000))


@job(data=CPU, rest="sync_bound launch_bound")
def curriculum(j):
    """Items get harder as training goes on; one loader process over a Pipe."""
    gpu, cost = j.gpu(j.ms("gpu_ms", 10, 60)), j.ms("first_ms", 4, 30)
    mine, theirs = multiprocessing.Pipe()
    p = multiprocessing.Process(target=growing_worker, daemon=True,
                                args=(theirs, cost, j.ms("grow", 0.005, 0.05)))
    p.start()
    j.supplier(p.pid)
    j.go()
    while True:
        j.mark()
        with j.during("data"):
            x = np.frombuffer(mine.recv_bytes(), np.uint8)
        j.train(gpu, x)


# ---- by way of a third


def managed_worker(out, cost):
    while True:
        decode(cost)
        out.put(np.zeros(30000, np.float32))


@job(data=CPU, rest="sync_bound launch_bound host_bound")
def manager_queue(j):
    """Workers and trainer meet at a multiprocessing.Manager().Queue()."""
    gpu, cost = j.gpu(j.ms("gpu_ms", 5, 100)), j.ms("batch_ms", 10, 120)
    ready = multiprocessing.Manager().Queue(maxsize=8)
    for _ in range(j.int("workers", 1, 3)):
        multiprocessing.Process(target=managed_worker, args=(ready, cost), daemon=True).start()
    j.go()
    while True:
        j.step(gpu, ready.get)


def broker(j):
    """A list server, as Redis is one, and two preprocessing processes that push to it."""
    cost = j.ms("prepare_ms", 10, 150)
    for _ in range(2):
        if os.fork() == 0:
            j.told("port")
            link = socket.create_connection(("127.0.0.1", int(j.told("port"))))
            while True:
                decode(cost)
                link.sendall(b"P" + bytes(80000))
                link.recv(1)
    items, popping = asyncio.Queue(16), asyncio.Lock()

    async def serve(reader, writer):
        while True:
            if await reader.readexactly(1) == b"P":
                await items.put(await reader.readexactly(80000))
                writer.write(b"+")
            else:
                async with popping:
                    writer.write(await items.get())
            await writer.drain()

    async def main():
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        j.tell("port", server.sockets[0].getsockname()[1])
        await server.serve_forever()
    asyncio.run(main())


@job(outside=broker, data=CPU, rest="sync_bound launch_bound")
def broker_pop(j):
    """Batches are popped from a broker, to which preprocessing elsewhere pushes them."""
    gpu = j.gpu(j.ms("gpu_ms", 5, 80))
    link = socket.create_connection(("127.0.0.1", int(j.told("port"))))
    stream = link.makefile("rb")
    j.go()
    while True:
        j.mark()
        with j.during("data"):
            link.sendall(b"G")
            x = np.frombuffer(stream.read(80000), np.uint8)
        j.train(gpu, x)


def spool(j):
    cost = j.ms("prepare_ms", 10, 120)
    for n in itertools.count():
        parse(cost)
        while n - int(j.told("taken") if os.path.exists(j.path("taken")) else 0) > 8:
            time.sleep(0.005)
        np.save(j.path("part.npy"), np.zeros(40000, np.float32))
        os.rename(j.path("part.npy"), j.path("%06d.npy" % n))


@job(outside=spool, data="gpu_starved host_bound main_thread_loading",
     rest="sync_bound launch_bound")
def polled_folder(j):
    """A spool folder is polled for the next file, which another program writes."""
    gpu, poll = j.gpu(j.ms("gpu_ms", 5, 80)), j.ms("poll_ms", 1, 20) / 1e3
    j.go()
    for n in itertools.count():
        j.mark()
        with j.during("data"):
            path = j.path("%06d.npy" % n)
            while not os.path.exists(path):
                time.sleep(poll)
            x = np.load(path)
            os.unlink(path)
            j.tell("taken", n)
        j.train(gpu, x)


@job(data="main_thread_loading io_bound", rest="sync_bound launch_bound")
def audio_main(j):
    """Sound files, opened and decoded one by one in the training thread."""
    many, cost = j.int("batch", 2, 24), j.ms("file_ms", 0.3, 6)
    gpu, folder = j.gpu(j.ms("gpu_ms", 5, 80)), j.path("wav")
    if j.one("where", "disk", "memory") == "disk":
        folder = os.path.join(BUILD, "strangers/wav")
    os.makedirs(folder, exist_ok=True)
    for n in range(200):
        with open(os.path.join(folder, "%03d.wav" % n), "wb") as f:
            f.write(bytes(j.random.randint(20000, 200000)))

    def load(n):
        with open(os.path.join(folder, "%03d.wav" % n), "rb") as f:
            f.read()
        decode(cost)
        return np.zeros(8000, np.float32)
    j.go()
    while True:
        j.mark()
        with j.during("data"):
            x = np.stack([load(j.random.randrange(200)) for _ in range(many)])
        j.train(gpu, x)
