# SPDX-License-Identifier: BSD-2-Clause
"""At the toolsmiths': the processes, threads and calls of well-known input frameworks, made anew by hand."""
import asyncio
import collections
import concurrent.futures
import fcntl
import functools
import itertools
import mmap
import multiprocessing
import os
import queue
import random
import signal
import socket
import struct
import threading
import time

import numpy as np

from stranger import CPU, child, decode, job, mortal, parse

PAGE, MIB, PIECE = 4096, 1 << 20, 64 << 10


def once(f):
    """Seconds that f takes."""
    begin = time.monotonic()
    f()
    return time.monotonic() - begin


def took(f):
    """The same, once it is warm."""
    f()
    return once(f)


def thread(f, *more):
    threading.Thread(target=f, args=more, daemon=True).start()


def few(s):
    """So that no job makes too many calls."""
    return s.int("launches", 8, 30)


def fill(link, room):
    """Receives until the room is full."""
    view = memoryview(room).cast("B")
    while len(view):
        n = link.recv_into(view)
        if n == 0:
            raise EOFError
        view = view[n:]
    return room


def received(link, size):
    return fill(link, bytearray(size))


# ---- the data is late


RECORDS, LONG, BLOCK = 512, 2048, 16 << 10


def far_store(s):
    """Has one file, records and their offsets at its end, and gives ranges of it, far away."""
    late = float(s.told("late")) / 1e3
    whole = os.urandom(RECORDS * LONG) + b"".join(struct.pack("<Q", n * LONG) for n in range(RECORDS))
    door = socket.create_server(("127.0.0.1", 0))
    s.tell("port", door.getsockname()[1])

    def serve(link):
        while True:
            begin, end = struct.unpack("<QQ", received(link, 16))
            time.sleep(late)
            part = whole[begin:end]
            link.sendall(struct.pack("<Q", len(part)) + part)
    while True:
        thread(serve, door.accept()[0])


class AheadFile:
    """A far file with a cache of the block that was read last."""

    def __init__(self, fetch):
        self.fetch, self.begin, self.block = fetch, 0, b""

    def read(self, begin, size):
        if begin < self.begin or begin + size > self.begin + len(self.block):
            self.begin, self.block = begin, self.fetch(begin, begin + BLOCK)
        at = begin - self.begin
        return self.block[at:at + size]


def jaws(out, port, first, many, two):
    loop = asyncio.new_event_loop()
    thread(loop.run_forever)

    def sync(coroutine):
        return asyncio.run_coroutine_threadsafe(coroutine, loop).result()
    reader, writer = sync(asyncio.open_connection("127.0.0.1", port))

    async def cat_range(begin, end):
        writer.write(struct.pack("<QQ", begin, end))
        size, = struct.unpack("<Q", await reader.readexactly(8))
        return await reader.readexactly(size)
    records = AheadFile(lambda begin, end: sync(cat_range(begin, end)))
    offsets = AheadFile(records.fetch) if two else records

    def record(n):
        place, = struct.unpack("<Q", offsets.read(RECORDS * LONG + 8 * (n % RECORDS), 8))
        return records.read(place, LONG)
    numbers = itertools.count(first)
    while True:
        out.put(np.frombuffer(b"".join(record(next(numbers)) for _ in range(many)), np.uint8))


@job(outside=far_store, data="network_bound too_few_workers", rest="sync_bound launch_bound")
def loose_jaws(s):
    """As with fsspec, a worker's calls become coroutines of one event loop in a thread; to blame is the far store, as
    the readahead cache holds one block, which each look at the offsets at the file's end throws away."""
    ms, workers, many = s.ms("gpu_ms", 12, 40), s.int("workers", 1, 2), s.int("records", 3, 8)
    s.tell("late", ms * s.ms("late_share", 1.4, 2.7) * workers / (2 * many))
    gpu, out, port = s.gpu(ms, launches=few(s)), multiprocessing.Queue(maxsize=4), int(s.told("port"))
    pids = [child(jaws, out, port, n * RECORDS // 2, many, s.fix).pid for n in range(workers)]
    if workers == 1:
        s.supplier(pids[0])
    s.loop(gpu, out.get)


class PrivatePool:
    """Threads that call what is scheduled."""

    def __init__(self, threads):
        self.work, self.ready = collections.deque(), threading.Condition()
        for _ in range(threads):
            thread(self.run)

    def schedule(self, f):
        with self.ready:
            self.work.append(f)
            self.ready.notify()

    def run(self):
        while True:
            with self.ready:
                while not self.work:
                    self.ready.wait()
                f = self.work.popleft()
            f()


class ParallelMap:
    """A runner keeps so many calls under way, whose results are taken in order."""

    def __init__(self, pool, calls, cost):
        self.pool, self.calls, self.cost = pool, calls, cost
        self.results, self.changed = collections.deque(), threading.Condition()
        thread(self.run)

    def run(self):
        while True:
            slot = []
            with self.changed:
                while len(self.results) >= self.calls:
                    self.changed.wait()
                self.results.append(slot)
            self.pool.schedule(functools.partial(self.call, slot))

    def call(self, slot):
        decode(self.cost)
        with self.changed:
            slot.append(np.zeros(10000, np.float32))
            self.changed.notify_all()

    def get(self):
        with self.changed:
            while not self.results or not self.results[0]:
                self.changed.wait()
            x = self.results.popleft()[0]
            self.changed.notify_all()
        return x


@job(data="too_few_workers cpu_bound", rest="sync_bound launch_bound")
def tap_wrench(s):
    """As in tf.data, a runner keeps eight calls of map under way, and batch and prefetch follow in a thread; to blame
    is options.threading.private_threadpool_size = 1, left from a shared host, so that one thread makes all calls."""
    ms, records = s.ms("gpu_ms", 12, 40), s.int("records", 2, 6)
    cost, gpu, out = ms * s.ms("map_share", 1.5, 2.5) / records, s.gpu(ms, launches=few(s)), queue.Queue(2)
    mapped = ParallelMap(PrivatePool(2 if s.fix else 1), 8, cost / 3 if s.fix else cost)

    def prefetch():
        while True:
            out.put(np.stack([mapped.get() for _ in range(records)]))
    thread(prefetch)
    s.loop(gpu, out.get)


def stages(cost):
    """An executor: a stage that has two threads crop, a stage that puts together, queues between them."""
    fed, cropped, ready = queue.Queue(), queue.Queue(), queue.Queue(2)
    pool = concurrent.futures.ThreadPoolExecutor(2)

    def crop(samples):
        decode(cost / 2)
        return np.stack(samples)

    def cpu_stage():
        while True:
            samples = fed.get()
            half = len(samples) // 2
            cropped.put(list(pool.map(crop, (samples[:half], samples[half:]))))

    def mixed_stage():
        while True:
            ready.put(np.concatenate(cropped.get()))
    thread(cpu_stage)
    thread(mixed_stage)
    return fed.put, ready.get


@job(data="main_thread_loading", rest="sync_bound launch_bound")
def hand_drill(s):
    """As in DALI, an executor's stages on native threads are two batches ahead; to blame is fn.external_source without
    parallel=True, whose callback in Python is run for each sample by next(), in the loop."""
    ms, samples = s.ms("gpu_ms", 12, 40), s.int("samples", 4, 16)
    cost = ms * s.ms("source_share", 0.6, 1.5) / samples
    gpu, (feed, share_outputs) = s.gpu(ms, launches=few(s)), stages(ms * s.ms("crop_share", 0.1, 0.3))

    def source(n):
        parse(cost / 15 if s.fix else cost)
        return np.full(4000, n, np.float32)

    def schedule_run():
        feed([source(n) for n in range(samples)])

    def obtain():
        schedule_run()
        return share_outputs()
    for _ in range(2):
        schedule_run()
    s.loop(gpu, obtain)


def pieces(fd, first, many):
    return [os.pread(fd, PAGE, (first + n) * PAGE) for n in range(many)]


def scattered(path):
    fd = os.open(path, os.O_RDONLY)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
    return fd


def restore(link, path, many):
    """An IO worker: brings an object back from the spill file, and hands its memory over."""
    fd = scattered(path)
    while True:
        place, = struct.unpack("<I", received(link, 4))
        block = os.memfd_create("object")
        os.ftruncate(block, many * PAGE)
        with mmap.mmap(block, many * PAGE) as room:
            for piece in pieces(fd, place * many, many):
                room.write(piece)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        socket.send_fds(link, [b"r"], [block])
        os.close(block)


def raylet(door, io, keeps):
    """Gives objects by their descriptors, and has those restored that the store has no room for."""
    client, held = door.accept()[0], {}
    while True:
        place, = struct.unpack("<I", received(client, 4))
        if place not in held:
            io.sendall(struct.pack("<I", place))
            held[place] = socket.recv_fds(io, 1, 1)[1][0]
        socket.send_fds(client, [b"g"], [held[place]])
        if not keeps:
            os.close(held.pop(place))


@job(data="io_bound", rest="sync_bound launch_bound")
def spilled_nails(s):
    """As in Ray Data, a raylet passes blocks in shared memory as descriptors, one ahead of the loop; to blame is the
    spill file on the disk, from which an IO worker restores each, as the object store is far too small."""
    ms, share = s.ms("gpu_ms", 10, 25), s.ms("restore_share", 1.7, 3)
    path, gpu = s.data_file("spilled_nails", 64), s.gpu(ms, launches=few(s))
    fd = scattered(path)
    each = once(lambda: pieces(fd, 0, 400)) / 400
    many = s.keep("pages", min(max(int(ms * share / 1e3 / each), 16), 3000))
    s.cold(path)
    blocks = min(64 * MIB // PAGE // many, 24)
    door, (mine, theirs) = socket.socket(socket.AF_UNIX), socket.socketpair()
    door.bind(s.path("raylet"))
    door.listen()
    s.supplier(child(restore, theirs, path, many).pid)
    child(raylet, door, mine, s.fix)
    link, order = socket.socket(socket.AF_UNIX), itertools.cycle(range(blocks))
    link.connect(s.path("raylet"))

    def ask():
        link.sendall(struct.pack("<I", next(order)))

    def obtain():
        block = socket.recv_fds(link, 1, 1)[1][0]
        ask()
        with mmap.mmap(block, many * PAGE, prot=mmap.PROT_READ) as room:
            x = np.frombuffer(room.read(), np.uint8)
        os.close(block)
        return x
    ask()
    for _ in range(blocks if s.fix else 0):
        obtain()
    s.loop(gpu, obtain)


def hammer(asked, out, threads, cost):
    """A worker whose tokenizer spreads each batch over threads of its own."""
    pool = concurrent.futures.ThreadPoolExecutor(threads)
    while True:
        n = asked.get()
        list(pool.map(decode, [cost] * threads))
        out.put((n, np.zeros(20000, np.int64)))


@job(data=CPU, rest="sync_bound launch_bound")
def many_hammers(s):
    """A DataLoader as it is inside, with index queues, one queue of results, a pinning thread and an order; to blame
    is with_transform, by which texts are tokenised each time, with TOKENIZERS_PARALLELISM=true in each worker."""
    ms, workers, threads = s.ms("gpu_ms", 12, 40), s.int("workers", 2, 3), s.int("threads", 4, 8)
    cost, gpu = 2 * ms * s.ms("tokenize_share", 1.3, 2.1) / threads, s.gpu(ms, launches=few(s))
    out, pinned, early = multiprocessing.Queue(), queue.Queue(), {}
    asked, sent, turn = [multiprocessing.Queue() for _ in range(workers)], itertools.count(), itertools.count()
    for indices in asked:
        child(hammer, indices, out, threads, cost / 6 if s.fix else cost)

    def pin():
        while True:
            n, x = out.get()
            pinned.put((n, x.copy()))
    thread(pin)

    def ask():
        n = next(sent)
        asked[n % workers].put(n)

    def obtain():
        n = next(turn)
        while n not in early:
            k, x = pinned.get()
            early[k] = x
        ask()
        return early.pop(n)
    for _ in range(2 * workers):
        ask()
    s.loop(gpu, obtain)


def push(link, frame):
    head = struct.pack("<BQ", 2, len(frame))
    while True:
        link.sendall(head)
        link.sendall(frame)


def device(pulled, pushed):
    """Takes a frame from each in turn and sends it on, as a proxy of ZeroMQ does."""
    room = memoryview(bytearray(PIECE))
    for link in itertools.cycle(pulled):
        head = received(link, 9)
        pushed.sendall(head)
        left = struct.unpack("<BQ", head)[1]
        while left:
            n = link.recv_into(room, min(left, PIECE))
            if n == 0:
                return
            pushed.sendall(room[:n])
            left -= n


def hop(pair, room):
    for _ in range(64):
        pair[0].sendall(room)
        fill(pair[1], room)


@job(data="ipc_bound", rest="sync_bound launch_bound")
def pipe_wrench(s):
    """As in Petastorm, workers have decoded row groups at hand and push them as ZeroMQ frames, which an I/O thread of
    the trainer takes; to blame is the way, through two sockets and a streamer device between, for all of the pixels."""
    ms, share = s.ms("gpu_ms", 10, 18), s.ms("hand_over_share", 1.4, 2.2)
    gpu, pair, room = s.gpu(ms, launches=few(s)), socket.socketpair(), bytearray(PIECE)
    each = took(lambda: hop(pair, room)) / 64 / PIECE
    size = s.keep("bytes", PIECE if s.fix else min(max(int(ms * share / 1e3 / each), MIB), 96 * MIB))
    frame, ring, out = np.ones(size, np.uint8), [np.ones(size, np.uint8) for _ in range(3)], queue.Queue(1)
    links = [socket.socketpair() for _ in range(2)]
    mine, theirs = socket.socketpair()
    for _, pushed in links:
        child(push, pushed, frame)
    s.supplier(child(device, [pulled for pulled, _ in links], theirs).pid)

    def io_thread():
        for x in itertools.cycle(ring):
            received(mine, 9)
            out.put(fill(mine, x))
    thread(io_thread)
    s.loop(gpu, out.get)


@job(data="lock_bound", rest="sync_bound launch_bound")
def one_handle(s):
    """A thread reads chunks of one HDF5 file ahead, which costs little; to blame is the library's one lock for all
    files, which a second thread holds, as it archives activations in another file, through the gzip filter."""
    ms, reads = s.ms("gpu_ms", 10, 40), s.int("reads", 1, 3)
    hold, cost = ms * s.ms("hold_share", 1.3, 2.2) / reads, ms * s.ms("read_share", 0.1, 0.2) / reads
    gpu, out, phil = s.gpu(ms, launches=few(s)), queue.Queue(2), threading.RLock()
    other = threading.RLock() if s.fix else phil

    def chunk():
        with phil:
            decode(cost)
        decode(cost)  # its type is converted
        return np.zeros(10000, np.float32)

    def read():
        while True:
            out.put(np.stack([chunk() for _ in range(reads)]))

    def archive():
        while True:
            decode(0.4)
            with other:
                decode(hold)
    thread(read)
    thread(archive)
    s.loop(gpu, out.get)


def serve_elements(door, cost):
    """A worker of the data service: a thread makes elements, two ahead, and a connection gives them out."""
    buffer = queue.Queue(2)

    def make():
        while True:
            decode(cost)
            buffer.put(bytes(80000))
    thread(make)
    link = door.accept()[0]
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    while True:
        received(link, 8)
        element = buffer.get()
        link.sendall(struct.pack("<I", len(element)) + element)


def fetch_elements(port, results):
    link = socket.create_connection(("127.0.0.1", port))
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for n in itertools.count():
        link.sendall(struct.pack("<Q", n))
        size, = struct.unpack("<I", received(link, 4))
        results.put(np.frombuffer(received(link, size), np.uint8))


@job(data="slow_worker", rest="sync_bound launch_bound")
def dull_blade(s):
    """As with tf.data's service and coordinated reads, a thread for each worker fetches elements, which are taken
    strictly by turns; to blame is one worker, which alone has a snapshot to compress beside its elements."""
    ms, workers = s.ms("gpu_ms", 12, 40), s.int("workers", 2, 3)
    fast, slow = ms * s.ms("fast_share", 0.2, 0.45) * workers, ms * s.ms("slow_share", 1.5, 2.5) * workers
    gpu, dull = s.gpu(ms, launches=few(s)), s.int("dull", 0, workers - 1)
    doors, results = [socket.create_server(("127.0.0.1", 0)) for _ in range(workers)], []
    for n, door in enumerate(doors):
        pid = child(serve_elements, door, slow if n == dull and not s.fix else fast).pid
        if n == dull:
            s.supplier(pid)
    for door in doors:
        results.append(queue.Queue(1))
        thread(fetch_elements, door.getsockname()[1], results[-1])
    turn = itertools.cycle(results)
    s.loop(gpu, lambda: next(turn).get())


def documents(tokens, begins, lengths, order, first, many):
    """A sample of packed documents, by the index maps."""
    found = [tokens[begins[n]:begins[n] + lengths[n]] for n in order[first:first + many]]
    return np.concatenate(found)


@job(data="main_thread_loading rank_straggler", peer="rank_straggler main_thread_loading",
     rest="sync_bound launch_bound")
def brass_template(s):
    """As in Megatron, of two tensor-parallel ranks the first alone reads, and broadcasts sizes and tokens; to blame is
    its loop, which itself packs samples of thousands of tiny documents, by three index maps, with no workers."""
    ms, share, launches = s.ms("gpu_ms", 12, 35), s.ms("pack_share", 0.55, 1.4), few(s)
    chance, most = np.random.default_rng(1), 200000
    lengths = chance.integers(4, 12, most)
    begins = np.cumsum(lengths) - lengths
    tokens, order = np.ones(int(lengths.sum()), np.uint16), chance.permutation(most)
    maps = tokens, begins, lengths, order
    each = took(lambda: documents(*maps, 0, 4000)) / 4000
    many = s.keep("documents", min(max(int(ms * share / 1e3 / each), 100), most // 2))
    door, parent = socket.create_server(("127.0.0.1", 0)), os.getpid()
    for rank in range(2):
        if os.fork():
            continue
        mortal(parent, signal.SIGTERM)  # it has a log to write
        s.rank(rank)
        link = socket.create_connection(door.getsockname()) if rank else door.accept()[0]
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        gpu = s.gpu(ms, launches=launches)

        def packed(n):
            x = tokens[:8 * many] if s.fix else documents(*maps, n * many % (most - many), many)
            link.sendall(struct.pack("<Q", x.nbytes))
            link.sendall(x)
            return x

        def broadcast(_):
            size, = struct.unpack("<Q", received(link, 8))
            return np.frombuffer(received(link, size), np.uint16)
        s.told("go")
        for n in itertools.count():
            s.step(gpu, functools.partial(broadcast if rank else packed, n))
            with s.during("peer"):
                link.sendall(b"b")
                received(link, 1)
    s.go()
    while True:
        signal.pause()


# ---- not for data


def savable(out, link, path, cost, state_cost):
    """A worker that makes batches, and in a thread answers when its state is asked for."""
    guard = threading.Lock()

    def answer():
        while True:
            n = link.recv()
            with guard:
                parse(state_cost)
                with open(path, "wb") as f:
                    f.write(bytes(PIECE))
                    f.flush()
                    os.fsync(f.fileno())
            link.send(n)
    thread(answer)
    while True:
        with guard:
            decode(cost)
        out.put(np.zeros(20000, np.float32))


@job(data=CPU, ckpt="checkpoint_stall host_bound", rest="sync_bound launch_bound")
def stock_taking(s):
    """As in Energon, the loader can be saved, and its workers have batches ready; to blame is that every step or few
    the loop asks each worker for its state, and waits until all have packed their buffers into synced files."""
    ms, every, workers = s.ms("gpu_ms", 12, 35), s.int("every", 1, 3), s.int("workers", 1, 2)
    cost, state_cost = ms * s.ms("load_share", 0.1, 0.3), ms * s.ms("state_share", 0.6, 1.5) * every
    gpu, out, links = s.gpu(ms, launches=few(s)), multiprocessing.Queue(maxsize=4), []
    for n in range(workers):
        mine, theirs = multiprocessing.Pipe()
        child(savable, out, theirs, s.path("state-%d" % n), cost, state_cost)
        links.append(mine)
    s.go()
    for n in itertools.count(1):
        s.step(gpu, out.get)
        if n % every == 0 and not s.fix:
            with s.during("ckpt"):
                for link in links:
                    link.send(n)
                for link in links:
                    link.recv()


# ---- nothing is wrong


def taken(line):
    """Waits as nodes do, a little while again and again."""
    while True:
        try:
            return line.get(timeout=0.02)
        except queue.Empty:
            pass


@job(data="too_few_workers cpu_bound", rest="sync_bound launch_bound")
def feeler_gauge(s):
    """Nothing is to blame: as with torchdata's nodes, one thread numbers samples, three map, one sorts, one batches and
    one pins, and each waits with a short timeout for the one before, again and again; but batches lie ready."""
    ms, many = s.ms("gpu_ms", 28, 70), s.int("batch", 4, 8)
    cost, gpu, gate = ms * s.ms("map_share", 0.25, 0.5) / many, s.gpu(ms, launches=few(s)), threading.Semaphore(2 * many)
    numbered, mapped, ordered = queue.Queue(), queue.Queue(), queue.Queue()
    batched, pinned = queue.Queue(2), queue.Queue(2)

    def number():
        for n in itertools.count():
            while not gate.acquire(timeout=0.02):
                pass
            numbered.put(n)

    def apply():
        while True:
            n = taken(numbered)
            decode(cost)
            mapped.put((n, np.full(10000, n, np.float32)))

    def sort():
        early = {}
        for n in itertools.count():
            while n not in early:
                k, x = taken(mapped)
                early[k] = x
            ordered.put(early.pop(n))

    def row():
        x = taken(ordered)
        gate.release()
        return x

    def batch():
        while True:
            batched.put(np.stack([row() for _ in range(many)]))

    def pin():
        while True:
            pinned.put(taken(batched).copy())
    for f in (number, apply, apply, apply, sort, batch, pin):
        thread(f)
    s.loop(gpu, lambda: taken(pinned))


def borrow(n, out, guard, table, path, slots, cost):
    """A reader of the database: for each transaction it looks for a slot that no living reader has."""
    chance = random.Random(n)
    looks = [struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, slot, 1, 0) for slot in range(slots)]
    with open(table, "r+b") as f, open(path, "rb") as base, mmap.mmap(base.fileno(), 0, prot=mmap.PROT_READ) as pages:
        fcntl.lockf(f, fcntl.LOCK_EX, 1, n)
        while True:
            with guard:
                for look in looks:
                    fcntl.fcntl(f, fcntl.F_GETLK, look)
            values = [pages[chance.randrange(len(pages) // PAGE) * PAGE] for _ in range(500)]
            decode(cost)
            out.put(np.resize(np.array(values, np.float32), 20000))


@job(data="lock_bound", rest="sync_bound launch_bound")
def borrowed_pliers(s):
    """Nothing is to blame: as with LMDB, readers begin each transaction under the lock of the table of readers, which
    is full of dead ones' slots, so that all are tried by fcntl() while the others wait; but they are batches ahead."""
    ms, readers, slots = s.ms("gpu_ms", 25, 70), s.int("readers", 2, 3), s.int("slots", 300, 1500)
    cost, gpu = ms * s.ms("load_share", 0.15, 0.4), s.gpu(ms, launches=few(s))
    out, guard = multiprocessing.Queue(maxsize=4), multiprocessing.Lock()
    table, path = s.path("lock.mdb"), s.path("data.mdb")
    for name, size in ((table, PAGE), (path, 8 * MIB)):
        np.ones(size, np.uint8).tofile(name)
    for n in range(readers):
        child(borrow, n, out, guard, table, path, slots, cost)
    s.loop(gpu, out.get)
