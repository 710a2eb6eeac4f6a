# SPDX-License-Identifier: BSD-2-Clause
"""At the milliners': input pipelines that somebody in the house wrote by hand."""
import asyncio
import collections
import concurrent.futures
import ctypes
import fcntl
import http.server
import io
import itertools
import mmap
import multiprocessing
import os
import queue
import random
import socket
import sqlite3
import struct
import subprocess
import sys
import tarfile
import threading
import time

import numpy as np

from stranger import CPU, child, decode, job, mortal

PAGE, MIB = 4096, 1 << 20


def once(f):
    """Seconds that f takes."""
    begin = time.monotonic()
    f()
    return time.monotonic() - begin


def took(f):
    """The same, once it is warm."""
    f()
    return once(f)


def read_full(stream, view):
    """Fills the view from a stream that may give less."""
    view = memoryview(view).cast("B")
    while view:
        view = view[stream.readinto(view):]


# ---- the data is late


def curl(jobs, table, done, told, cost, every, heavy):
    """Takes the next number from the queue of all, and puts what it makes where the number belongs."""
    places = len(done)
    while True:
        n = jobs.get()
        decode(heavy if n % every == 0 else cost)
        with told:
            table[n % places] = n
            done[n % places] = n
            told.notify_all()


@job(data="slow_item", rest="sync_bound launch_bound")
def creased_plumes(s):
    """Two processes share a queue of numbers, and a table in shared memory with a condition puts the batches in order
    again; to blame are a few recordings that come in an old codec, and take as long as a dozen others."""
    ms, every, places = s.ms("gpu_ms", 8, 25), s.int("every", 7, 11), s.int("places", 3, 4)
    cost, heavy = ms * s.ms("load_share", 0.1, 0.4), ms * s.ms("heavy_steps", 9, 14)
    table = np.frombuffer(multiprocessing.RawArray("f", places * 20000), np.float32).reshape(places, 20000)
    done = np.frombuffer(multiprocessing.RawArray("q", places), np.int64)
    done[:] = -1
    jobs, told, numbers, gpu = multiprocessing.SimpleQueue(), multiprocessing.Condition(), itertools.count(1), s.gpu(ms)
    for _ in range(2):
        child(curl, jobs, table, done, told, cost, every, cost if s.fix else heavy)

    def obtain():
        n = next(numbers)
        with told:
            while done[n % places] != n:
                told.wait()
            x = table[n % places].copy()
        jobs.put(n + places)
        return x
    for n in range(1, places + 1):
        jobs.put(n)
    s.loop(gpu, obtain)


@job(data="lock_bound", rest="sync_bound launch_bound")
def hand_mirror(s):
    """Double buffering, by two threads with two events each, which look up features as readers of a C library's
    reader-writer lock; to blame is the refresher, which keeps it as a writer all the while it builds a new index."""
    ms, index = s.ms("gpu_ms", 10, 35), (ctypes.c_long * 8)()
    build, pause = 3 * ms * s.ms("build_share", 1.5, 2.4), ms * s.ms("pause_share", 0.2, 0.4) / 1e3
    cost, libc, gpu = ms * s.ms("load_share", 0.04, 0.1), ctypes.CDLL(None), s.gpu(ms)
    buffers, turn = np.zeros((2, 20000), np.float32), itertools.cycle(range(2))
    empty, full = [threading.Event() for _ in range(2)], [threading.Event() for _ in range(2)]
    libc.pthread_rwlock_init(index, None)

    def fill(n):
        while True:
            empty[n].wait()
            empty[n].clear()
            libc.pthread_rwlock_rdlock(index)
            decode(cost)
            libc.pthread_rwlock_unlock(index)
            buffers[n] += 1
            full[n].set()

    def refresh():
        while True:
            if s.fix:
                decode(build)
            libc.pthread_rwlock_wrlock(index)
            if not s.fix:
                decode(build)
            libc.pthread_rwlock_unlock(index)
            time.sleep(pause)

    def obtain():
        n = next(turn)
        full[n].wait()
        full[n].clear()
        x = buffers[n].copy()
        empty[n].set()
        return x
    for n in range(2):
        empty[n].set()
        threading.Thread(target=fill, args=(n,), daemon=True).start()
    threading.Thread(target=refresh, daemon=True).start()
    s.loop(gpu, obtain)


PLAYER = """
import asyncio, http.client, sqlite3, sys, time, xml.dom.minidom, zlib
cost, frames, size = float(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
packed = zlib.compress(bytes(range(256)) * 400)
while frames:
    end = time.thread_time() + cost / 1e3
    while time.thread_time() < end:
        zlib.decompress(packed)
    sys.stdout.buffer.write(bytes(size))
    sys.stdout.buffer.flush()
    frames -= 1
"""


def played(cost, frames, size):
    """What a player makes of one clip; for ever, if it is told -1 frames."""
    with subprocess.Popen([sys.executable, "-I", "-c", PLAYER, str(cost), str(frames), str(size)],
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as player:
        while len(frame := player.stdout.read(size)) == size:
            yield np.frombuffer(frame, np.uint8)


@job(data="loader_restart", rest="sync_bound launch_bound")
def short_ribbons(s):
    """A thread reads raw frames from a player's stdout into a queue, and they are quickly decoded; to blame is that
    each clip, which is short, has a player of its own, which has to start and to load its libraries first."""
    ms, share, size = s.ms("gpu_ms", 8, 20), s.ms("start_share", 1.5, 2.6), s.int("kib", 50, 300) << 10
    start = took(lambda: list(played(0, 1, size))) * 1e3
    frames, gpu, out = s.keep("frames", max(int(start / (ms * share)), 1)), s.gpu(ms), queue.Queue(2)

    def read():
        while True:
            for frame in played(ms * 0.1, -1 if s.fix else frames, size):
                out.put(frame)
    threading.Thread(target=read, daemon=True).start()
    s.loop(gpu, out.get)


class Spool:
    """A ring in mapped memory: a page of counters, places of up to 64 pages, and an eventfd for each direction."""

    def __init__(self, places):
        memory = os.memfd_create("spool")
        size = PAGE * (1 + places * 64)
        os.ftruncate(memory, size)
        mapped = np.frombuffer(mmap.mmap(memory, size), np.uint8)
        self.made, self.taken = mapped[:8].view(np.int64), mapped[64:72].view(np.int64)
        self.places = mapped[PAGE:].reshape(places, 64, PAGE)
        self.free, self.full = os.eventfd(0), os.eventfd(0)

    def put(self, pages):
        while self.made[0] - self.taken[0] == len(self.places):
            os.eventfd_read(self.free)
        self.places[self.made[0] % len(self.places), :len(pages)] = pages
        self.made[0] += 1
        os.eventfd_write(self.full, 1)

    def take(self, pages):
        while self.made[0] == self.taken[0]:
            os.eventfd_read(self.full)
        pages[:] = self.places[self.taken[0] % len(self.places), :len(pages)]
        self.taken[0] += 1
        os.eventfd_write(self.free, 1)


def unwind(spool, grain):
    """Has all of the data in memory."""
    cloth = np.ones((1024, PAGE), np.uint8)
    for n in itertools.count():
        first = n * 64 % 1024
        spool.put(cloth[first:first + grain.value])


@job(data="ipc_bound", rest="sync_bound launch_bound")
def single_pins(s):
    """A process has samples ready, and hands them over by a mapped ring with two counters and two eventfds; to blame
    is that one page fits into a place of the ring, and there are few, so that the two wake each other page by page."""
    ms, share, spool = s.ms("gpu_ms", 8, 25), s.ms("hand_over_share", 0.6, 1.6), Spool(s.int("places", 1, 3))
    grain, gpu = multiprocessing.RawValue("q", 1), s.gpu(ms)
    child(unwind, spool, grain)

    def taken(x):
        for first in range(0, len(x), grain.value):
            spool.take(x[first:first + grain.value])
        return x
    few = np.zeros((512, PAGE), np.uint8)
    each = took(lambda: taken(few)) * 1e3 / len(few)
    x = np.zeros((s.keep("pages", min(max(int(ms * share / each) // 64, 1), 200) * 64), PAGE), np.uint8)
    grain.value = 64 if s.fix else 1
    s.loop(gpu, lambda: taken(x))


RECORD = 16 << 10


def fetch_stage(link, path):
    """Records from a file in memory, a packet each."""
    with open(path, "rb") as f:
        for n in itertools.count():
            link.send(os.pread(f.fileno(), RECORD, n % 64 * RECORD))


def dye_stage(link, fifo, cost):
    """Packets in, records out by a named pipe."""
    with open(fifo, "wb") as out:
        while True:
            record = link.recv(RECORD)
            decode(cost)
            out.write(record)
            out.flush()


def batch_stage(fifo, rack, free, full):
    """Records in, batches out in shared memory."""
    with open(fifo, "rb") as records:
        for place in itertools.cycle(rack):
            free.acquire()
            read_full(records, place)
            full.release()


@job(data=CPU, rest="sync_bound launch_bound")
def dyeing_vat(s):
    """Four stages by four transports: records are fetched and sent as packets, decoded into a named pipe, put together
    in shared memory, and brought to page-locked buffers by a thread; to blame is the second one, which decodes."""
    ms, many, places = s.ms("gpu_ms", 8, 40), s.int("records", 4, 16), s.int("places", 2, 3)
    cost, gpu = ms * s.ms("decode_share", 1.4, 2.6) / many, s.gpu(ms)
    np.ones(64 * RECORD, np.uint8).tofile(s.path("records"))
    os.mkfifo(s.path("dyed"))
    near, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    rack = np.frombuffer(multiprocessing.RawArray("b", places * many * RECORD), np.uint8).reshape(places, -1)
    free, full = multiprocessing.Semaphore(places), multiprocessing.Semaphore(0)
    child(fetch_stage, near, s.path("records"))
    s.supplier(child(dye_stage, far, s.path("dyed"), cost / 5 if s.fix else cost).pid)
    child(batch_stage, s.path("dyed"), rack, free, full)
    size, out = many * RECORD, queue.Queue(1)
    pinned = [np.frombuffer((ctypes.c_ubyte * size).from_address(gpu.host_buffer(size)), np.uint8) for _ in range(4)]

    def bring():
        for place, buffer in zip(itertools.cycle(rack), itertools.cycle(pinned)):
            full.acquire()
            buffer[:] = place
            free.release()
            out.put(buffer)
    threading.Thread(target=bring, daemon=True).start()
    s.loop(gpu, out.get)


def far_hats(s):
    """A store that is far away: it is told a size, and sends as much after a while."""
    late, door = float(s.told("late")) / 1e3, socket.create_server(("127.0.0.1", 0))
    s.tell("port", door.getsockname()[1])

    def serve(link):
        while ask := link.recv(4, socket.MSG_WAITALL):
            time.sleep(late)
            link.sendall(bytes(struct.unpack("<I", ask)[0]))
    while True:
        threading.Thread(target=serve, args=(door.accept()[0],), daemon=True).start()


def fit(out, numbers, folder, lock, port, size, quota, cost):
    """Opens objects by way of the cache that all workers share."""
    store, kept = socket.create_connection(("127.0.0.1", port)), collections.deque()
    stream = store.makefile("rb")
    with open(os.path.join(folder, lock), "w", encoding="ascii") as guard:
        for n in numbers:
            path = os.path.join(folder, "%d.bin" % n)
            fcntl.flock(guard, fcntl.LOCK_EX)
            if not os.path.exists(path):
                store.sendall(struct.pack("<I", size))
                with open(path, "wb") as f:
                    f.write(stream.read(size))
                kept.append(path)
            while len(kept) > quota:
                os.unlink(kept.popleft())
            fcntl.flock(guard, fcntl.LOCK_UN)
            with open(path, "rb") as f:
                x = np.frombuffer(f.read(), np.uint8)
            decode(cost)
            out.put(x)


@job(outside=far_hats, data="lock_bound network_bound", rest="sync_bound launch_bound")
def common_hatstand(s):
    """Workers by turns share a cache of downloads, in which the objects of a first pass are not yet; to blame is the
    flock() for the whole cache, which a worker holds while the far store answers, so that one downloads at a time."""
    ms, workers, size = s.ms("gpu_ms", 10, 40), s.int("workers", 2, 4), s.int("kib", 20, 200) << 10
    late = ms * s.ms("late_share", 1.45, 2.6)
    s.tell("late", late / 3 if s.fix else late)
    folder, port, gpu, outs = s.path("hatstand"), int(s.told("port")), s.gpu(ms), []
    os.mkdir(folder)
    for n in range(workers):
        outs.append(multiprocessing.Queue(maxsize=2))
        child(fit, outs[n], itertools.count(n, workers), folder, "lock-%d" % n if s.fix else "lock", port, size, 16,
              ms * 0.05)
    turn = itertools.cycle(outs)
    s.loop(gpu, lambda: next(turn).get())


def from_table(link, path):
    """One dataset is in SQLite."""
    base, chance = sqlite3.connect(path), random.Random(1)
    while True:
        row, = base.execute("select body from hats where id = ?", (chance.randint(1, 200),)).fetchone()
        link.send_bytes(row)


def from_tar(link, path):
    """Another is a tar file."""
    while True:
        with tarfile.open(path) as shard:
            for member in shard:
                link.send_bytes(shard.extractfile(member).read())


def from_map(link, path, many, warm):
    """The third is mapped, and nothing of it stays in memory."""
    with open(path, "rb", buffering=0) as f, mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ) as shard:
        chance, pages = random.Random(1), len(shard) // PAGE
        while warm and f.read(MIB):
            pass
        shard.madvise(mmap.MADV_RANDOM)
        while True:
            values = bytes([shard[page * PAGE] for page in chance.sample(range(pages), many)])
            link.send_bytes(values.ljust(20000, b"\0"))
            if not warm:
                shard.madvise(mmap.MADV_DONTNEED)
                os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


@job(data="page_fault_io slow_worker", rest="sync_bound launch_bound")
def odd_braid(s):
    """One process per dataset, and the loop draws by weights from whose pipe it takes the next batch; to blame is the
    dataset that is mapped, of whose pages memory has none, while those in SQLite and in a tar file are soon read."""
    ms, share, weight = s.ms("gpu_ms", 8, 18), s.ms("fault_share", 1.6, 2.6), s.ms("weight", 0.3, 0.5)
    path, chance, gpu = s.data_file("odd_braid", 64), random.Random(2), s.gpu(ms)
    with open(path, "rb") as f, mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ) as shard:
        shard.madvise(mmap.MADV_RANDOM)
        places = chance.sample(range(len(shard) // PAGE), 400)
        each = once(lambda: [shard[page * PAGE] for page in places]) / 400
    many = s.keep("pages", min(max(int(ms * share / weight / 1e3 / each), 16), 8000))
    s.cold(path)
    with sqlite3.connect(s.path("hats.db")) as base:
        base.execute("create table hats (id integer primary key, body blob)")
        base.executemany("insert into hats (body) values (?)", [(bytes(20000),)] * 200)
    base.close()
    with tarfile.open(s.path("hats.tar"), "w") as shard:
        for n in range(100):
            member = tarfile.TarInfo("%d.bin" % n)
            member.size = 20000
            shard.addfile(member, io.BytesIO(bytes(20000)))
    ends = [multiprocessing.Pipe(duplex=False) for _ in range(3)]
    child(from_table, ends[0][1], s.path("hats.db"))
    child(from_tar, ends[1][1], s.path("hats.tar"))
    s.supplier(child(from_map, ends[2][1], path, many, s.fix).pid)
    links = [mine for mine, _ in ends]
    weights = [(1 - weight) / 2, (1 - weight) / 2, weight]
    s.loop(gpu, lambda: np.frombuffer(chance.choices(links, weights)[0].recv_bytes(), np.uint8))


class Yards(http.server.BaseHTTPRequestHandler):
    """Gives ranges of objects, far away."""
    protocol_version, disable_nagle_algorithm, late = "HTTP/1.1", True, 0.0

    def do_GET(self):
        first, last = self.headers["Range"].split("=")[1].split("-")
        time.sleep(self.late)
        size = int(last) - int(first) + 1
        self.send_response(206)
        self.send_header("Content-Length", str(size))
        self.end_headers()
        self.wfile.write(bytes(size))

    def log_message(self, *_):
        pass


def yard_store(s):
    Yards.late = float(s.told("late")) / 1e3
    store = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Yards)
    s.tell("port", store.server_address[1])
    store.serve_forever()


class Session:
    """A client that keeps its connections, as aiohttp's."""

    def __init__(self, port):
        self.port, self.idle = port, []

    async def get(self, name, first, last):
        link = self.idle.pop() if self.idle else await asyncio.open_connection("127.0.0.1", self.port)
        reader, writer = link
        writer.write(b"GET /%d HTTP/1.1\r\nHost: store\r\nRange: bytes=%d-%d\r\n\r\n" % (name, first, last))
        head = await reader.readuntil(b"\r\n\r\n")
        body = await reader.readexactly(int(head.lower().split(b"content-length:")[1].split()[0]))
        self.idle.append(link)
        return body


@job(outside=yard_store, data="network_bound too_few_workers", rest="sync_bound launch_bound")
def measured_yards(s):
    """A thread's asyncio loop fetches the next objects by a client like aiohttp's; to blame is the far store, which is
    asked for an object range after range, each when the one before has come, so that a transfer can be resumed."""
    ms, ahead, ranges = s.ms("gpu_ms", 10, 40), s.int("ahead", 1, 3), s.int("ranges", 3, 6)
    late = ms * s.ms("late_share", 1.45, 2.8) * ahead / ranges
    s.tell("late", late / 10 if s.fix else late)
    size, gpu, home = s.int("kib", 8, 40) << 10, s.gpu(ms), asyncio.new_event_loop()
    session, numbers, due = Session(int(s.told("port"))), itertools.count(), collections.deque()

    async def whole(name):
        parts = []
        for n in range(ranges):
            parts.append(await session.get(name, n * size, (n + 1) * size - 1))
        return np.frombuffer(b"".join(parts), np.uint8)

    def obtain():
        while len(due) < ahead:
            due.append(asyncio.run_coroutine_threadsafe(whole(next(numbers)), home))
        x = due.popleft().result()
        due.append(asyncio.run_coroutine_threadsafe(whole(next(numbers)), home))
        return x
    threading.Thread(target=home.run_forever, daemon=True).start()
    s.loop(gpu, obtain)


def hatboxes(chance, depth):
    """A talk with answers to answers."""
    box = []
    for _ in range(depth):
        box = [chance.randrange(30000), box, chance.randrange(30000)]
    return box


def unboxed(box):
    for thing in box:
        if isinstance(thing, list):
            yield from unboxed(thing)
        else:
            yield thing


def ended(talks):
    for talk in talks:
        yield from unboxed(talk)
        yield 2


def known(tokens):
    for token in tokens:
        if token != 1:
            yield token


@job(data="main_thread_loading", rest="sync_bound launch_bound")
def nested_hatboxes(s):
    """Talks are in memory as trees, and the loop packs their tokens into one stream; to blame are its generators, as
    a tree is walked by one inside of another, and each token comes up through as many as its answer is deep."""
    ms, share, depth = s.ms("gpu_ms", 10, 40), s.ms("walk_share", 0.5, 1.4), s.int("depth", 30, 120)
    chance, gpu = random.Random(1), s.gpu(ms)
    talks = [hatboxes(chance, chance.randint(depth // 2, depth)) for _ in range(60)]
    tokens = known(ended(itertools.cycle(talks)))
    each = took(lambda: np.fromiter(itertools.islice(tokens, 6000), np.int64, 6000)) / 6000
    many = s.keep("tokens", max(int(ms * share / 1e3 / each), 64))
    flat, place = np.fromiter(itertools.islice(tokens, 20 * many), np.int64).reshape(20, many), itertools.count()

    def obtain():
        if s.fix:
            return flat[next(place) % 20]
        return np.fromiter(itertools.islice(tokens, many), np.int64, many)
    s.loop(gpu, obtain)


class Request(ctypes.Structure):
    """The C library's struct aiocb."""
    _fields_ = [("fd", ctypes.c_int), ("opcode", ctypes.c_int), ("priority", ctypes.c_int),
                ("buffer", ctypes.c_void_p), ("size", ctypes.c_size_t),
                ("value", ctypes.c_void_p), ("signal", ctypes.c_int), ("notify", ctypes.c_int),
                ("event", ctypes.c_char * 48), ("inner", ctypes.c_char * 32),
                ("offset", ctypes.c_longlong), ("reserved", ctypes.c_char * 32)]


EINPROGRESS, SIGEV_NONE = 115, 1


@job(data="io_bound", rest="sync_bound launch_bound")
def one_thimble(s):
    """The next batch's records are read by aio_read() of the C library, called by ctypes, while the device works; to
    blame is the disk, for this library has a single thread for each file, and asks it for one page after the other."""
    ms, share, libc = s.ms("gpu_ms", 8, 25), s.ms("read_share", 1.7, 3), ctypes.CDLL(None)
    path, chance, gpu = s.data_file("one_thimble", 64), random.Random(1), s.gpu(ms)
    fd, pages = os.open(path, os.O_RDONLY), 64 * MIB // PAGE
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
    places = chance.sample(range(pages), 400)
    each = once(lambda: [os.pread(fd, PAGE, page * PAGE) for page in places]) / 400
    many = s.keep("reads", min(max(int(ms * share / 1e3 / each), 16), 3000))
    s.cold(path)
    while s.fix and os.read(fd, MIB):
        pass
    buffer, requests = np.zeros((many, PAGE), np.uint8), (Request * many)()
    pointers = [ctypes.pointer(request) for request in requests]

    def ask():
        if not s.fix:
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        for n, page in enumerate(chance.sample(range(pages), many)):
            requests[n] = Request(fd=fd, buffer=buffer.ctypes.data + n * PAGE, size=PAGE, notify=SIGEV_NONE,
                                  offset=page * PAGE)
            if libc.aio_read(pointers[n]):
                raise OSError("aio_read")

    def obtain():
        for pointer in pointers:
            while libc.aio_error(pointer) == EINPROGRESS:
                libc.aio_suspend(ctypes.byref(pointer), 1, None)
            libc.aio_return(pointer)
        x = buffer.copy()
        ask()
        return x
    ask()
    s.loop(gpu, obtain)


# ---- nothing is wrong


CARRIER = """
import asyncio, http.client, shutil, sqlite3, sys, xml.dom.minidom
with open(sys.argv[1], "rb") as f:
    shutil.copyfileobj(f, sys.stdout.buffer)
"""


@job(data="loader_restart", rest="sync_bound launch_bound")
def bonnet_parcels(s):
    """Nothing is to blame: for each small tar shard a thread starts a store's command line tool, which is slow to
    start, and walks the tar that this writes to its stdout; but a queue holds more batches than a start takes."""
    ms, many = s.ms("gpu_ms", 30, 70), s.int("batches", 14, 20)
    gpu, out = s.gpu(ms), queue.Queue(16)
    with tarfile.open(s.path("shard.tar"), "w") as shard:
        for n in range(many):
            member = tarfile.TarInfo("%d.npy" % n)
            member.size = 60000
            shard.addfile(member, io.BytesIO(bytes(60000)))

    def walk():
        while True:
            with subprocess.Popen([sys.executable, "-I", "-c", CARRIER, s.path("shard.tar")], stdin=subprocess.DEVNULL,
                                  stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as carrier:
                with tarfile.open(fileobj=carrier.stdout, mode="r|") as shard:
                    for member in shard:
                        out.put(np.frombuffer(shard.extractfile(member).read(), np.uint8))
    threading.Thread(target=walk, daemon=True).start()
    s.loop(gpu, out.get)


STATE = {}


def dress(parent, lock, cost, every, heavy):
    """What a process of the pool keeps."""
    mortal(parent)
    STATE.update(lock=lock, cost=cost, every=every, heavy=heavy, seen=collections.Counter())


def fitted(n):
    decode(STATE["cost"] / 2)
    with STATE["lock"]:
        decode(STATE["heavy"] if n % STATE["every"] == 0 else STATE["cost"] / 2)
        STATE["seen"][n % 97] += 1
    return np.zeros(20000, np.float32)


@job(data="lock_bound slow_item", rest="sync_bound launch_bound")
def crowded_fitting(s):
    """Nothing is to blame: a pool's processes, which an initializer gave one lock, wait for each other at it, longest
    when one has a heavy item there; but tasks are asked for many batches ahead, and all are done in time."""
    ms, every = s.ms("gpu_ms", 30, 70), s.int("every", 6, 10)
    cost, heavy = ms * s.ms("load_share", 0.2, 0.4), ms * s.ms("heavy_steps", 1.5, 2.5)
    state = os.getpid(), multiprocessing.Lock(), cost, every, heavy
    pool = concurrent.futures.ProcessPoolExecutor(2, initializer=dress, initargs=state)
    gpu, numbers, due = s.gpu(ms), itertools.count(1), collections.deque()

    def obtain():
        while len(due) < 9:
            due.append(pool.submit(fitted, next(numbers)))
        return due.popleft().result()
    obtain()
    time.sleep(0.3)
    s.loop(gpu, obtain)
