# SPDX-License-Identifier: BSD-2-Clause
"""Data paths as companies build them for themselves, without PyTorch's DataLoader."""
import asyncio
import collections
import concurrent.futures
import contextlib
import functools
import gzip
import http.client
import http.server
import io
import itertools
import json
import multiprocessing
import multiprocessing.managers
import os
import pickle
import queue
import random
import socket
import sqlite3
import struct
import threading
import time
import zipfile
import zlib

import numpy as np

from stranger import CPU, child, decode, job, mortal


def took(f, *more):
    """How many milliseconds a call takes, the best of three."""
    def once():
        begin = time.monotonic()
        f(*more)
        return (time.monotonic() - begin) * 1e3
    return min(once() for _ in range(3))


def ahead(make, depth):
    """A prefetch queue, filled by a thread."""
    ready = queue.Queue(depth)

    def fill():
        while True:
            ready.put(make())
    threading.Thread(target=fill, daemon=True).start()
    return ready.get


def steady(s, gpu_ms, floats=50000):
    """A process that decodes in a part of the time that the device needs."""
    out, cost = multiprocessing.Queue(4), gpu_ms * s.ms("load_share", 0.08, 0.4)

    def make():
        while True:
            decode(cost)
            out.put(np.ones(floats, np.float32))
    child(make)
    return out.get


def serve(door, late):
    """Whoever connects asks for so many bytes, and has them after about so many ms."""
    def talk(link, n):
        chance = random.Random(n)
        while question := link.recv(64):
            time.sleep(late / 1e3 * chance.lognormvariate(0, 0.15))
            link.sendall(bytes(*struct.unpack_from("<I", question)))
    for n in itertools.count():
        threading.Thread(target=talk, args=(door.accept()[0], n), daemon=True).start()


def ask(link, size, offset=0):
    link.sendall(struct.pack("<IQ", size, offset))
    return link.recv(size, socket.MSG_WAITALL)


def web(s, respond):
    """A web server; respond makes the body of an answer from the handler of the request."""
    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version, disable_nagle_algorithm = "HTTP/1.1", True

        def do_GET(self):
            body = respond(self)
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_POST = do_GET

        def log_message(self, *_):
            pass

    class Server(http.server.ThreadingHTTPServer):
        request_queue_size = 64
    server = Server(("127.0.0.1", 0), Handler)
    s.tell("port", server.server_address[1])
    server.serve_forever()


# ---- files


def search(fd, keys, pages, page, chance):
    """Which half is next depends on the page in the middle, so no probe can begin before the last."""
    for _ in range(keys):
        key, low, high = chance.randrange(pages), 0, pages
        while high - low > 1:
            middle = (low + high) // 2
            os.pread(fd, page, middle * page)
            low, high = (middle, high) if key >= middle else (low, middle)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)  # there are other tenants


@job(data="io_bound", rest="sync_bound launch_bound")
def card_drawer(s):
    """A process finds its keys by bisection in a sorted index on the disk, of which nothing is kept."""
    ms, page, mib = s.ms("gpu_ms", 15, 50), s.one("page_kib", 4, 8, 16) << 10, 128
    load = ms * s.ms("load_share", 1.7, 3.5) / (8 if s.fix else 1)
    fd, pages = os.open(s.data_file("ateliers.index", mib), os.O_RDONLY), (mib << 20) // page
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
    each = took(search, fd, 8, pages, page, random.Random(0)) / 8
    keys, floats = s.keep("keys", max(1, round(load / each))), s.int("kib", 16, 400) << 8
    out = multiprocessing.Queue(3)

    def look_up():
        chance = random.Random(1)
        while True:
            search(fd, keys, pages, page, chance)
            out.put(np.zeros(floats, np.float32))
    s.supplier(child(look_up).pid)
    s.loop(s.gpu(ms), out.get)


opened = functools.lru_cache(zipfile.ZipFile)


def take_out(path, names, keep):
    archive = (opened if keep else zipfile.ZipFile)(path)
    return np.frombuffer(b"".join(map(archive.read, names)), np.uint8)


@job(data=CPU, rest="sync_bound launch_bound")
def parcel_office(s):
    """A pool's task opens the zip archive and reads its long directory, for a few members each time."""
    path, few = s.path("scans.zip"), s.int("few", 8, 48)
    names = ["scan-%06d" % n for n in range(s.int("members", 3000, 14000))]
    with zipfile.ZipFile(path, "w") as archive:
        for name in names:
            archive.writestr(name, bytes(1024))
    cost = s.keep("open_ms", round(took(take_out, path, names[:few], False), 2))
    pool = concurrent.futures.ProcessPoolExecutor(1, initializer=mortal, initargs=(os.getpid(),))
    s.supplier(pool.submit(os.getpid).result())

    def submit():
        return pool.submit(take_out, path, s.random.sample(names, few), s.fix)
    pending = {submit() for _ in range(s.int("ahead", 2, 4))}

    def obtain():
        done, _ = concurrent.futures.wait(pending, return_when=concurrent.futures.FIRST_COMPLETED)
        first = done.pop()
        pending.remove(first)
        pending.add(submit())
        return first.result()
    s.loop(s.gpu(s.keep("gpu_ms", max(5, cost / s.ms("load_share", 1.4, 2.8)))), obtain)


def wind(path, size):
    with gzip.open(path) as f:
        f.seek(size)


@job(data=CPU, rest="sync_bound launch_bound")
def long_scroll(s):
    """A process seeks records at random in a gzip file, which is inflated from its start for each."""
    path, size, reads = s.path("scroll.gz"), s.int("mib", 5, 14) << 20, s.int("reads", 2, 4)
    with gzip.open(path, "wb", 1) as f:
        f.write(np.random.default_rng(1).integers(0, 16, size, np.uint8).tobytes())
    cost = s.keep("cost_ms", round(took(wind, path, size) * reads / 3, 2))  # a third, forth and back
    kib, (receiver, sender) = s.int("kib", 2, 12), multiprocessing.Pipe(duplex=False)

    def read():
        chance = random.Random(1)
        with gzip.open(path) as f:
            if s.fix:
                f = io.BytesIO(f.read())
            while True:
                records = []
                for _ in range(reads):
                    f.seek(chance.randrange(size - (kib << 10)))
                    records.append(f.read(kib << 10))
                sender.send_bytes(b"".join(records))
    s.supplier(child(read).pid)
    gpu = s.gpu(s.keep("gpu_ms", max(5, cost / s.ms("load_share", 1.4, 2.6))))
    s.loop(gpu, lambda: np.frombuffer(receiver.recv_bytes(), np.uint8))


@job(data="main_thread_loading", rest="sync_bound launch_bound")
def raffle_drum(s):
    """The loop draws rows by ORDER BY random(), for which SQLite goes through the whole table."""
    rows, many, width = s.int("rows", 20000, 110000), s.int("batch", 16, 200), s.int("bytes", 64, 256)
    db = sqlite3.connect(s.path("items.db"))
    db.execute("CREATE TABLE items (id INTEGER PRIMARY KEY, pixels BLOB)")
    db.executemany("INSERT INTO items VALUES (?, ?)", ((n, bytes(width)) for n in range(rows)))
    db.commit()

    def draw():
        if s.fix:
            ids = s.random.sample(range(rows), many)
            found = db.execute("SELECT pixels FROM items WHERE id IN (%s)" % ",".join("?" * many), ids)
        else:
            found = db.execute("SELECT pixels FROM items ORDER BY random() LIMIT ?", (many,))
        return np.frombuffer(b"".join(row[0] for row in found), np.uint8)
    cost = took(lambda: db.execute("SELECT pixels FROM items ORDER BY random() LIMIT ?", (many,)).fetchall())
    s.loop(s.gpu(s.keep("gpu_ms", max(5, cost / s.ms("load_share", 0.4, 2)))), draw)


# ---- services


def porter(s):
    """Has one key, to be taken if it is there, as by Redis' SET NX, and to be given back."""
    key, door = threading.Lock(), socket.create_server(("127.0.0.1", 0))
    s.tell("port", door.getsockname()[1])

    def talk(link):
        while word := link.recv(1):
            if word == b"t":
                link.sendall(b"1" if key.acquire(blocking=False) else b"0")
            else:
                key.release()
                link.sendall(b"1")
    while True:
        threading.Thread(target=talk, args=(door.accept()[0],), daemon=True).start()


@job(outside=porter, data="lock_bound", rest="sync_bound launch_bound")
def brass_keys(s):
    """Two processes decode, with the lease of one scratch area, which they try for at a key server."""
    ms, part = s.ms("gpu_ms", 15, 50), 5 if s.fix else 1
    under = ms * s.ms("lease_share", 1.4, 2.6) / part
    beyond, poll = under * s.ms("beyond_share", 0.1, 0.3), under * s.ms("poll_share", 0.06, 0.14)
    out, port, floats = multiprocessing.Queue(4), int(s.told("port")), s.int("kib", 16, 400) << 8

    def work():
        link = socket.create_connection(("127.0.0.1", port))

        def key(word):
            link.sendall(word)
            return link.recv(1) == b"1"
        while True:
            while not key(b"t"):
                time.sleep(poll / 1e3)
            decode(under)
            key(b"g")
            decode(beyond)
            out.put(np.zeros(floats, np.float32))
    for _ in range(2):
        child(work)
    s.loop(s.gpu(ms), out.get)


def warehouse(s):
    """An object store that answers ranged requests, after a while."""
    late, chance = float(s.told("late")) / 1e3, random.Random(1)

    def respond(request):
        first, last = map(int, request.headers["Range"].partition("=")[2].split("-"))
        time.sleep(late * chance.uniform(0.8, 1.25))
        return bytes(last - first + 1)
    web(s, respond)


async def get_range(port, first, size):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET /rows.parquet HTTP/1.1\r\nConnection: close\r\nRange: bytes=%d-%d\r\n\r\n"
                 % (first, first + size - 1))
    answer = await reader.read()
    writer.close()
    return answer[-size:]


@job(outside=warehouse, data="network_bound too_few_workers", rest="sync_bound launch_bound")
def pattern_books(s):
    """An asyncio loader reads a far column file: the footer's length, the footer, then all columns."""
    ms, columns, kib = s.ms("gpu_ms", 30, 65), s.int("columns", 2, 5), s.int("kib", 8, 64)
    s.tell("late", ms * (0.05 if s.fix else s.ms("load_share", 1.4, 2.8) / 3))
    port, ready, loop = int(s.told("port")), asyncio.Queue(2), asyncio.new_event_loop()

    async def read():
        while True:
            await get_range(port, 0, 8)
            await get_range(port, 8, 4096)
            parts = await asyncio.gather(*(get_range(port, n << 20, kib << 10) for n in range(columns)))
            await ready.put(np.frombuffer(b"".join(parts), np.uint8))
    threading.Thread(target=loop.run_until_complete, args=(read(),), daemon=True).start()
    s.loop(s.gpu(ms), lambda: asyncio.run_coroutine_threadsafe(ready.get(), loop).result())


def bindery(s):
    """A data warehouse: an export is ordered, its state is asked for, and at last it is fetched."""
    late, size = map(float, s.told("late").split())
    chance, done = random.Random(1), []

    def respond(request):
        if request.command == "POST":
            done.append(time.monotonic() + late / 1e3 * chance.lognormvariate(0, 0.15))
            return b"%d" % (len(done) - 1)
        what, number = request.path.strip("/").split("/")
        if what == "state":
            return b"done" if time.monotonic() >= done[int(number)] else b"running"
        return bytes(int(size))
    web(s, respond)


@job(outside=bindery, data="network_bound too_few_workers", rest="sync_bound launch_bound")
def order_slips(s):
    """A process orders an export at a data warehouse, asks until it is done, and fetches its rows."""
    ms, size = s.ms("gpu_ms", 20, 60), s.int("kib", 16, 400) << 10
    late, poll = ms * s.ms("late_share", 1.4, 2.8), ms * s.ms("poll_share", 0.1, 0.3) / 1e3
    s.tell("late", "%f %d" % (late / 15 if s.fix else late, size))
    out, port = multiprocessing.Queue(3), int(s.told("port"))

    def export():
        link = http.client.HTTPConnection("127.0.0.1", port)

        def call(method, path):
            link.request(method, path)
            return link.getresponse().read()
        while True:
            number = call("POST", "/exports").decode()
            while call("GET", "/state/" + number) != b"done":
                time.sleep(poll)
            out.put(np.frombuffer(call("GET", "/rows/" + number), np.uint8))
    s.supplier(child(export).pid)
    s.loop(s.gpu(ms), out.get)


def archive(s):
    """A database that is far away."""
    late, door = float(s.told("late")), socket.create_server(("127.0.0.1", 0))
    s.tell("port", door.getsockname()[1])
    serve(door, late)


@job(outside=archive, data="lock_bound network_bound", rest="sync_bound launch_bound")
def shared_quill(s):
    """Threads ask a far database for the next batches, but their pool of connections has only one."""
    ms, threads, size = s.ms("gpu_ms", 12, 55), s.int("threads", 3, 5), s.int("kib", 16, 300) << 10
    late = ms * s.ms("late_share", 1.4, 3)
    s.tell("late", late / 8 if s.fix else late)
    cost, address = late * s.ms("decode_share", 0.03, 0.15), ("127.0.0.1", int(s.told("port")))
    links = queue.Queue()
    for _ in range(threads if s.fix else 1):
        links.put(socket.create_connection(address))

    def select():
        link = links.get()
        rows = ask(link, size)
        links.put(link)
        decode(cost)
        return np.frombuffer(rows, np.uint8)
    pool = concurrent.futures.ThreadPoolExecutor(threads)
    pending = collections.deque(pool.submit(select) for _ in range(threads + 1))

    def obtain():
        pending.append(pool.submit(select))
        return pending.popleft().result()
    s.loop(s.gpu(ms), obtain)


class Samples:
    """All samples, in the memory of the process that has them."""

    def __init__(self, many, floats):
        self.rows = [np.zeros(floats, np.float32) for _ in range(many)]

    def get(self, n):
        return self.rows[n]

    def stack(self, numbers):
        return np.stack([self.rows[n] for n in numbers])


class Desk(multiprocessing.managers.BaseManager):
    pass


Desk.register("Samples", Samples)


@job(data="ipc_bound", rest="sync_bound launch_bound")
def front_desk(s):
    """The samples lie in a manager's process; a thread gets them by its proxy, one call for each."""
    ms, rows = s.ms("gpu_ms", 10, 45), s.int("rows", 2000, 8000)
    desk = Desk(s.path("desk"))
    desk.start(mortal, (os.getpid(),))
    samples, chance = desk.Samples(rows, s.int("floats", 32, 256)), random.Random(1)
    each = took(lambda: [samples.get(n) for n in range(200)]) / 200
    many = s.keep("batch", max(8, round(ms * s.ms("load_share", 1.5, 3) / each)))

    def make():
        numbers = [chance.randrange(rows) for _ in range(many)]
        return samples.stack(numbers) if s.fix else np.stack([samples.get(n) for n in numbers])
    s.loop(s.gpu(ms), ahead(make, 2))


# ---- what looks like the data, and is not


def gazette(s):
    """A message log, and the coordinator of those who read it, with a port each."""
    late, fetch = float(s.told("late")), s.ms("fetch_ms", 0.3, 2)
    log, group = (socket.create_server(("127.0.0.1", 0)) for _ in range(2))
    s.tell("ports", "%d %d" % (log.getsockname()[1], group.getsockname()[1]))
    threading.Thread(target=serve, args=(log, fetch), daemon=True).start()
    serve(group, late)


@job(outside=gazette, data="network_bound too_few_workers", host="host_bound",
     rest="sync_bound launch_bound")
def stamped_receipts(s):
    """A thread reads a message log ahead, in time; the loop commits its offset, and waits until it is kept."""
    ms, every, size = s.ms("gpu_ms", 14, 60), s.int("commit_every", 1, 3), s.int("kib", 16, 250) << 10
    late = ms * every * s.ms("late_share", 0.4, 1.5)
    s.tell("late", late / 20 if s.fix else late)
    log, group = (socket.create_connection(("127.0.0.1", int(p))) for p in s.told("ports").split())
    cost = ms * s.ms("decode_share", 0.05, 0.3)

    def poll():
        records = ask(log, size)
        decode(cost)
        return np.frombuffer(records, np.uint8)
    gpu, batch = s.gpu(ms), ahead(poll, 3)
    s.go()
    for n in itertools.count(1):
        s.step(gpu, batch)
        if n % every == 0:
            with s.during("host"):
                ask(group, 4, n)


@job(data=CPU, host="host_bound sync_bound", rest="sync_bound launch_bound")
def carbon_copies(s):
    """Batches come in time; at its end each step's batch is packed for a record of what was learnt from."""
    ms = s.ms("gpu_ms", 10, 60)
    cost = ms * s.ms("pack_share", 0.25, 1.3) / (8 if s.fix else 1)
    gpu, batch, copies = s.gpu(ms), steady(s, ms), collections.deque(maxlen=64)

    def pack(x):
        end = time.thread_time_ns() + int(cost * 1e6)
        for begin in itertools.cycle(range(0, len(x) - 4096, 4096)):
            packed = zlib.compress(x[begin:begin + 4096], 6)
            if time.thread_time_ns() >= end:
                return packed
    s.go()
    while True:
        x = s.step(gpu, batch)
        with s.during("host"):
            copies.append(pack(x))


@job(data=CPU, lock="lock_bound", rest="sync_bound launch_bound")
def evening_inventory(s):
    """Batches come in time; each step notes in the cache's index what it used, while a thread recounts it."""
    ms = s.ms("gpu_ms", 10, 50)
    hold, pause = ms * s.ms("hold_share", 1.2, 2.4), ms * s.ms("pause_share", 0.2, 0.6) / 1e3
    gpu, batch, lock, used = s.gpu(ms), steady(s, ms), threading.Lock(), {}

    def recount():
        while True:
            if s.fix:
                decode(hold)  # of a copy
            else:
                with lock:
                    decode(hold)  # sizes and checksums of all that is cached
            time.sleep(pause)
    threading.Thread(target=recount, daemon=True).start()
    s.go()
    for n in itertools.count():
        s.step(gpu, batch)
        with s.during("lock"), lock:
            used[n % 512] = time.monotonic()


@job(data=CPU, ckpt="checkpoint_stall", rest="sync_bound launch_bound")
def sealed_trays(s):
    """Batches come in time; to resume exactly, every few steps the whole shuffle buffer goes to the disk."""
    ms, every = s.ms("gpu_ms", 8, 30), s.int("every", 3, 7)
    buffer = [np.ones(16384, np.float32) for _ in range(s.int("mib", 6, 24) << 4)]
    gpu, batch = s.gpu(ms), steady(s, ms, 16384)

    def draw():
        n = s.random.randrange(len(buffer))
        x, buffer[n] = buffer[n], batch()
        return x
    s.go()
    for n in itertools.count(1):
        s.step(gpu, draw)
        if n % every or s.fix:
            continue
        with s.during("ckpt"):
            with open(s.path("buffer.part"), "wb") as f:
                pickle.dump(buffer, f, 5)
                f.flush()
                os.fsync(f.fileno())
            os.replace(s.path("buffer.part"), s.path("buffer.pickle"))


def develop(ms, floats):
    decode(ms)
    return np.zeros(floats, np.float32)


@job(data=CPU, rest="sync_bound launch_bound")
def busy_corridor(s):
    """A pool keeps up with queued steps; a niced process checks shards, a thread tries a dead mirror."""
    ms, every, floats = s.ms("gpu_ms", 15, 80), s.int("item_every", 2, 6), s.int("kib", 16, 400) << 8
    cost = ms * s.ms("load_share", 0.25, 0.7)
    check, rest, pause = s.ms("check_ms", 8, 60), s.ms("rest_ms", 15, 80), s.ms("retry_ms", 5, 60)
    dead = socket.socket()
    dead.bind(("127.0.0.1", 0))  # and nobody listens
    with open(s.path("manifest.json"), "w", encoding="utf-8") as f:
        json.dump([{"shard": n, "rows": 4096} for n in range(s.int("shards", 50, 600))], f)

    def verify():
        os.nice(19)
        while True:
            decode(check)
            time.sleep(max(rest, check) / 1e3)

    def retry():
        while True:
            with open(s.path("manifest.json"), encoding="utf-8") as f:
                json.load(f)
            with contextlib.suppress(OSError):
                socket.create_connection(dead.getsockname(), 1).close()
            time.sleep(pause / 1e3)
    child(verify)
    pool = multiprocessing.Pool(1, mortal, (os.getpid(),))
    pending = collections.deque(pool.apply_async(develop, (cost, floats)) for _ in range(4))
    threading.Thread(target=retry, daemon=True).start()
    gpu = s.gpu(ms)
    s.go()
    for n in itertools.count(1):
        s.mark()
        with s.during("data"):
            pending.append(pool.apply_async(develop, (cost, floats)))
            x = pending.popleft().get()
        s.train(gpu, x, item=n % every == 0)
