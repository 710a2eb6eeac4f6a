# SPDX-License-Identifier: BSD-2-Clause
"""Jobs that feed a GPU in the ways of today's libraries, rebuilt by hand."""
import asyncio
import collections
import concurrent.futures
import io
import itertools
import mmap
import multiprocessing
import os
import queue
import random
import resource
import signal
import socket
import struct
import tarfile
import threading
import time
import zlib

import numpy as np

from stranger import CPU, child, decode, job, parse


def timed(f, times):
    """Milliseconds that one call takes, on average."""
    begin = time.monotonic()
    for _ in range(times):
        f()
    return (time.monotonic() - begin) * 1e3 / times


def make(out, work, cost, size):
    while True:
        work(cost)
        out.put(np.zeros(size, np.float32))


def store(s):
    """Sends as many bytes as it is asked for, after a while."""
    late = float(s.told("late"))
    door = socket.create_server(("127.0.0.1", 0))
    s.tell("port", door.getsockname()[1])

    def serve(link):
        while ask := link.recv(4):
            time.sleep(late / 1e3)
            link.sendall(bytes(struct.unpack("<I", ask)[0]))
    while True:
        threading.Thread(target=serve, args=(door.accept()[0],), daemon=True).start()


# ---- from files


@job(outside=store, data="network_bound", ckpt="checkpoint_stall",
     rest="sync_bound launch_bound")
def stream_then_save(s):
    """Shards are downloaded ahead to a small cache on disk; the state is saved now and then."""
    ms, per = s.ms("gpu_ms", 10, 60), s.int("batches_per_shard", 12, 40)
    s.tell("late", ms * per * s.ms("late_share", 0.1, 0.4))
    size, port, gpu = s.int("kib", 16, 120) << 10, int(s.told("port")), s.gpu(ms)
    state, ready = np.ones(s.int("state_mib", 6, 32) << 18, np.float32), queue.Queue(maxsize=2)

    def download():
        stream = socket.create_connection(("127.0.0.1", port)).makefile("rwb")
        for n in itertools.count():
            stream.write(struct.pack("<I", size * per))
            stream.flush()
            name = s.path("shard-%d" % (n % 5))
            with open(name, "wb") as f:
                f.write(stream.read(size * per))
            ready.put(name)

    def batches():
        while True:
            name = ready.get()
            with open(name, "rb") as f:
                for _ in range(per):
                    yield np.frombuffer(f.read(size), np.uint8)
            os.unlink(name)

    def save():
        with open(s.path("state.part"), "wb") as f:
            np.save(f, state)
            f.flush()
            os.fsync(f.fileno())
        os.replace(s.path("state.part"), s.path("state.npy"))
    threading.Thread(target=download, daemon=True).start()
    every = s.keep("every", max(2, round(timed(save, 2) / ms / s.ms("save_share", 0.3, 1.2))))
    stream = batches()
    s.go()
    for n in itertools.count(1):
        s.step(gpu, lambda: next(stream))
        if n % every == 0 and not s.fix:
            with s.during("ckpt"):
                save()


def untar(out, paths, cost):
    while True:
        random.shuffle(paths)
        for path in paths:
            with tarfile.open(path) as tar:
                for member in tar:
                    x = np.frombuffer(tar.extractfile(member).read(), np.uint8)
                    decode(cost)
                    out.put(x)


@job(data=CPU, rest="sync_bound launch_bound")
def tar_reservoir(s):
    """Two processes walk tar files; the loop draws from a reservoir that they keep filled."""
    ms, size = s.ms("gpu_ms", 20, 100), s.int("kib", 30, 250) << 10
    gpu, cost = s.gpu(ms, launches=s.int("launches", 10, 60)), ms * s.ms("load_share", 0.1, 0.4)
    paths = [s.path("part-%d.tar" % n) for n in range(3)]
    for path in paths:
        with tarfile.open(path, "w") as tar:
            for n in range(20):
                info = tarfile.TarInfo("%06d.img" % n)
                info.size = size
                tar.addfile(info, io.BytesIO(os.urandom(size)))
    out = multiprocessing.Queue(maxsize=6)
    for _ in range(2):
        child(untar, out, list(paths), cost)
    held = [out.get() for _ in range(s.int("reservoir", 10, 40))]

    def draw():
        n = random.randrange(len(held))
        x, held[n] = held[n], out.get()
        return x
    s.loop(gpu, draw)


@job(data=CPU, threads=True, rest="sync_bound launch_bound")
def column_groups(s):
    """A thread reads a columnar file by row groups and inflates column after column in C."""
    columns, kib = s.int("columns", 4, 12), s.int("kib_per_column", 200, 500)
    chance, index, path = np.random.default_rng(1), [], s.path("table.col")
    with open(path, "wb") as f:
        for _ in range(2):
            group = []
            for _ in range(columns):
                packed = zlib.compress(chance.integers(0, 16, kib << 10, np.uint8).data, 1)
                group.append((f.tell(), len(packed)))
                f.write(packed)
            index.append(group)
    file, ready = os.open(path, os.O_RDONLY), queue.Queue(maxsize=2)

    def read(group):
        return np.concatenate([np.frombuffer(zlib.decompress(os.pread(file, size, at)), np.uint8)
                               for at, size in group])
    ms = s.keep("gpu_ms", timed(lambda: read(index[0]), 3) * s.ms("gpu_share", 0.1, 0.7))
    gpu = s.gpu(ms, columns * kib << 10)

    def ahead():
        for group in itertools.cycle(index):
            ready.put(read(group[:1] if s.fix else group))  # only the column that is used
    threading.Thread(target=ahead, daemon=True).start()
    s.loop(gpu, ready.get)


@job(data="main_thread_loading page_fault_io io_bound", rest="sync_bound launch_bound")
def token_crops(s):
    """Random crops of a cold file of tokens, which is mapped anew for each batch by the loop."""
    path, block = s.data_file("ferry_tokens.bin", 48), s.one("block", 256, 512, 1024)
    chance = np.random.default_rng(s.int("order", 1, 10000))

    def crops(n):
        tokens = np.memmap(path, np.uint16, "r")
        at = chance.integers(0, len(tokens) - block, n)
        x = np.stack([tokens[i:i + block].astype(np.int64) for i in at])
        del tokens
        if not s.fix:
            s.cold(path)  # there is no memory to keep it
        return x
    one = timed(lambda: crops(16), 3) / 16
    many = s.keep("crops", min(max(round(s.ms("wait_ms", 8, 60) / one), 2), 400))
    wait = min(timed(lambda: crops(many), 3), 80)
    gpu = s.gpu(s.keep("gpu_ms", max(wait * s.ms("gpu_share", 0.1, 1.2), 2)), many * block * 8)
    if s.fix:
        with open(path, "rb") as f:
            f.read()
    s.loop(gpu, lambda: crops(many))


def look_up(out, path, index, keys, costs):
    with open(path, "rb") as f:
        values = mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ)
    while True:
        for key in keys:
            at, size, kind = index[key]
            x = np.frombuffer(values[at:at + size], np.uint8)
            decode(costs[kind])
            out.put(x)


@job(data="slow_item", rest="sync_bound launch_bound")
def mapped_giants(s):
    """Two workers look up keys in a mapped store, in order; a few of the values are giants."""
    ms, rare, size = s.ms("gpu_ms", 8, 25), s.int("rare", 12, 22), s.int("kib", 10, 90) << 10
    costs = [ms * s.ms("load_share", 0.15, 0.4), ms * s.ms("giant_steps", 8, 13)]
    if s.fix:
        costs[1] = costs[0]
    gpu, index, keys = s.gpu(ms), {}, list(range(rare * 12))
    with open(s.path("store.kv"), "wb") as f:
        for key in keys:
            index[key] = (f.tell(), size, key % rare == 0)
            f.write(os.urandom(size))
    s.random.shuffle(keys)
    outs = [multiprocessing.Queue(maxsize=2) for _ in range(2)]
    for n, out in enumerate(outs):
        child(look_up, out, s.path("store.kv"), index, keys[n::2], costs)
    turn = itertools.cycle(outs)
    s.loop(gpu, lambda: next(turn).get())


# ---- from processes


def world(frames, cost, act, done, seed):
    chance = random.Random(seed)
    while True:
        act.acquire()
        parse(cost * chance.uniform(0.9, 1.1))
        frames[seed] += 1
        done.release()


@job(data="slow_worker", rest="sync_bound launch_bound")
def lockstep_arena(s):
    """Environments step together and leave frames in shared memory; one has far more in it."""
    ms, many, floats = s.ms("gpu_ms", 6, 38), s.int("worlds", 3, 4), s.int("floats", 2000, 30000)
    quick, slow = ms * s.ms("quick_share", 0.04, 0.12), ms * s.ms("slow_share", 0.7, 2)
    frames = np.frombuffer(multiprocessing.RawArray("f", many * floats), np.float32)
    frames, gpu = frames.reshape(many, floats), s.gpu(ms)
    acts = [multiprocessing.Semaphore(0) for _ in range(many)]
    dones = [multiprocessing.Semaphore(0) for _ in range(many)]
    full = s.random.randrange(many)
    for n in range(many):
        cost = slow if n == full and not s.fix else quick
        p = child(world, frames, cost, acts[n], dones[n], n)
        if n == full:
            s.supplier(p.pid)

    def together():
        for act in acts:
            act.release()
        for done in dones:
            done.acquire()
        return frames.copy()
    s.loop(gpu, together)


def joined():
    """Both ends of a TCP connection."""
    door = socket.create_server(("127.0.0.1", 0))
    one = socket.create_connection(door.getsockname())
    other = door.accept()[0]
    for end in one, other:
        end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return one, other


@job(data="io_bound", rest="sync_bound launch_bound")
def provenance_chain(s):
    """Read, note and pack are processes in a row; the second syncs a line for each sample."""
    size, file = s.int("kib", 8, 32) << 10, os.open(s.data_file("ferry_ledger", 1), os.O_RDWR)
    place = itertools.count()

    def note():
        os.pwrite(file, os.urandom(128), next(place) * 128 % (1 << 20))
        if not s.fix:
            os.fsync(file)
    one = timed(note, 12)
    many = s.keep("samples", min(max(round(s.ms("wait_ms", 10, 60) / one), 2), 32))
    ms = max(many * one * s.ms("gpu_share", 0.1, 0.7), 2)
    gpu = s.gpu(s.keep("gpu_ms", min(ms, 60)), many * size)
    (read_out, note_in), (note_out, pack_in), (pack_out, end) = joined(), joined(), joined()

    def reader():
        while True:
            decode(0.2)
            read_out.sendall(bytes(size))

    def noter():
        stream = note_in.makefile("rb")
        while True:
            sample = stream.read(size)
            note()
            note_out.sendall(sample)

    def packer():
        stream = pack_in.makefile("rb")
        while True:
            pack_out.sendall(b"".join([stream.read(size) for _ in range(many)]))
    child(reader)
    s.supplier(child(noter).pid)
    child(packer)
    stream = end.makefile("rb")
    s.loop(gpu, lambda: np.frombuffer(stream.read(many * size), np.uint8))


def leaky(link, room, leak, cost, index_ms):
    parse(index_ms)  # where each sample lies
    with open("/proc/self/statm", encoding="ascii") as f:
        most = int(f.read().split()[0]) * mmap.PAGESIZE + room
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    held = []
    try:
        while True:
            held.append(bytearray(leak))
            decode(cost)
            link.send_bytes(bytes(100000))
    except MemoryError:
        os._exit(1)


@job(data="loader_restart", rest="sync_bound launch_bound")
def memory_ceiling(s):
    """A worker that leaks has a limit of memory and ends there; a thread starts the next one."""
    ms, items = s.ms("gpu_ms", 6, 30), s.int("items", 10, 20)
    leak, cost = s.int("leak_mib", 2, 6) << 20, ms * s.ms("load_share", 0.15, 0.45)
    index_ms = ms * items * s.ms("index_share", 0.5, 1.3)
    gpu, ready = s.gpu(ms), queue.Queue(maxsize=2)
    room = (1 << 40) if s.fix else (items + 1) * leak
    if s.fix:
        leak = 1

    def supervise():
        while True:
            mine, theirs = multiprocessing.Pipe(duplex=False)
            p = child(leaky, theirs, room, leak, cost, index_ms)
            theirs.close()
            try:
                while True:
                    ready.put(np.frombuffer(mine.recv_bytes(), np.uint8))
            except EOFError:
                mine.close()
                p.join()
    threading.Thread(target=supervise, daemon=True).start()
    ready.get()  # no fork while the loop begins: it might hold a lock for ever
    s.loop(gpu, ready.get)


@job(data="ipc_bound", rest="sync_bound launch_bound")
def cluster_partitions(s):
    """A process sends the clusters of a partitioned graph, features and all, through a queue."""
    nodes = s.int("mib", 4, 20) << 12  # of 64 features each
    features, edges = np.ones((48 << 12, 64), np.float32), np.ones((2, 400000), np.int32)
    labels, out = np.zeros(48 << 12, np.int64), multiprocessing.Queue(maxsize=2)

    def part():
        for n in itertools.count():
            a = n * 997 % (len(features) - nodes)
            b = a + nodes
            out.put((a, b) if s.fix else
                    {"x": features[a:b], "edges": edges[:, :2 * nodes], "y": labels[a:b]})

    def get():
        x = out.get()
        return features[slice(*x)] if s.fix else x["x"]
    child(part)
    for _ in range(3):
        get()
    ms = 20 if s.fix else max(timed(get, 6) * s.ms("gpu_share", 0.1, 0.8), 1)
    s.loop(s.gpu(s.keep("gpu_ms", ms), 4 * features[:nodes].size), get)


@job(data=CPU + " slow_worker", rest="sync_bound launch_bound")
def caption_pairs(s):
    """Contrastive pairs: one process decodes images, another cleans and splits captions."""
    ms = s.ms("gpu_ms", 8, 40)
    quick, slow = ms * s.ms("image_share", 0.1, 0.35), ms * s.ms("caption_share", 1.4, 2.9)
    gpu, size = s.gpu(ms), s.int("floats", 10000, 100000)
    images, captions = multiprocessing.Queue(maxsize=4), multiprocessing.Queue(maxsize=4)
    child(make, images, decode, quick, size)
    s.supplier(child(make, captions, parse, quick if s.fix else slow, 77 * 16).pid)

    def pair():
        image, text = images.get(), captions.get()
        return np.concatenate([image, text])
    s.loop(gpu, pair)


# ---- from threads


@job(data="lock_bound", threads=True, rest="sync_bound launch_bound")
def shared_scratch(s):
    """A pool of threads decodes in C, in order and a few ahead, in one scratch buffer for all."""
    ms, threads = s.ms("gpu_ms", 8, 40), s.int("threads", 3, 4)
    cost, size = ms * s.ms("load_share", 1.4, 2.8), s.int("floats", 10000, 200000)
    gpu, scratch = s.gpu(ms), threading.Lock()
    pool, pending = concurrent.futures.ThreadPoolExecutor(threads), collections.deque()

    def work():
        if s.fix:
            decode(cost / 4)
        else:
            with scratch:
                decode(cost)
        return np.zeros(size, np.float32)

    def ordered():
        while len(pending) < 2 * threads:
            pending.append(pool.submit(work))
        return pending.popleft().result()
    s.loop(gpu, ordered)


@job(outside=store, data=CPU + " lock_bound", threads=True, rest="lock_bound launch_bound")
def answers_on_loop(s):
    """An event loop in a thread asks a quick service, and its coroutines parse the answers."""
    ms, size = s.ms("gpu_ms", 12, 45), s.int("kib", 8, 100) << 10
    gpu, cost = s.gpu(ms, launches=s.int("launches", 3, 6)), ms * s.ms("load_share", 1.1, 2.2)
    s.tell("late", s.ms("late_ms", 0.5, 3))
    port, loop = int(s.told("port")), asyncio.new_event_loop()
    box, many = asyncio.Queue(maxsize=3), s.int("coroutines", 2, 5)

    async def fetch():
        source, sink = await asyncio.open_connection("127.0.0.1", port)
        while True:
            sink.write(struct.pack("<I", size))
            await sink.drain()
            body = await source.readexactly(size)
            parse(cost / 10 if s.fix else cost)
            await box.put(np.frombuffer(body, np.uint8))

    async def all_of_them():
        await asyncio.gather(*[fetch() for _ in range(many)])

    def run():
        asyncio.set_event_loop(loop)
        loop.run_until_complete(all_of_them())
    threading.Thread(target=run, daemon=True).start()
    s.loop(gpu, lambda: asyncio.run_coroutine_threadsafe(box.get(), loop).result())


def prefork(s):
    """A data server: processes that accept on one socket, under one budget; another job asks."""
    late = float(s.told("late")) / 1e3
    door, budget = socket.create_server(("127.0.0.1", 0)), multiprocessing.Lock()
    port = door.getsockname()[1]

    def serve():
        while True:
            link = door.accept()[0]
            link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            while ask := link.recv(4):
                with budget:
                    time.sleep(late)
                link.sendall(bytes(struct.unpack("<I", ask)[0]))

    def other():
        stream = socket.create_connection(("127.0.0.1", port)).makefile("rwb")
        while True:
            stream.write(struct.pack("<I", 4096))
            stream.flush()
            stream.read(4096)
            time.sleep(late / 2)
    for _ in range(3):
        child(serve)
    child(other)
    s.tell("port", port)
    while True:
        signal.pause()


@job(outside=prefork, data="network_bound", rest="sync_bound launch_bound")
def prefork_meter(s):
    """A thread asks a data server ahead, which serves another job too, under one byte budget."""
    ms, size = s.ms("gpu_ms", 6, 35), s.int("kib", 16, 300) << 10
    late, gpu = ms * s.ms("late_share", 0.9, 1.6), s.gpu(ms)
    s.tell("late", late / 10 if s.fix else late)
    port, ready = int(s.told("port")), queue.Queue(maxsize=2)

    def ahead():
        stream = socket.create_connection(("127.0.0.1", port)).makefile("rwb")
        while True:
            stream.write(struct.pack("<I", size))
            stream.flush()
            ready.put(np.frombuffer(stream.read(size), np.uint8))
    threading.Thread(target=ahead, daemon=True).start()
    s.loop(gpu, ready.get)


# ---- in time, and yet


@job(data=CPU, host="sync_bound host_bound", rest="sync_bound launch_bound host_bound")
def expert_counts(s):
    """Mixture of experts: each layer's token counts are read back before its experts start."""
    ms, layers, few = s.ms("gpu_ms", 8, 40), s.int("layers", 6, 16), s.int("few", 3, 8)
    route = ms / layers * s.ms("route_share", 0.25, 1.5)
    gpu, out = s.gpu(ms, launches=2 * layers * few), multiprocessing.Queue(maxsize=4)
    child(make, out, decode, ms * s.ms("load_share", 0.05, 0.25), s.int("floats", 9000, 90000))
    s.go()
    while True:
        s.mark()
        with s.during("data"):
            x = out.get()
        gpu.upload(x.ctypes.data, x.nbytes)
        for _ in range(layers):
            gpu.launch(0, few)
            if not s.fix:
                gpu.loss_item()
                with s.during("host"):
                    parse(route)  # which rows go to which expert
        gpu.launch(1, layers * few)
        gpu.loss_item()
