# SPDX-License-Identifier: BSD-2-Clause
"""At the coopers': storage and feeding libraries as they are inside, each with its own way to hand a batch over."""
import asyncio
import collections
import concurrent.futures
import fcntl
import http.client
import http.server
import io
import itertools
import json
import mmap
import multiprocessing
import os
import queue
import random
import signal
import socket
import socketserver
import struct
import subprocess
import sys
import tarfile
import threading
import time
import zlib

import numpy as np

from stranger import CPU, child, decode, job, mortal, parse

PAGE, MIB = 4096, 1 << 20
SIZE = struct.Struct("<I")


def once(f):
    """Seconds that f takes."""
    begin = time.monotonic()
    f()
    return time.monotonic() - begin


def took(f):
    """The same, once it is warm."""
    f()
    return once(f)


def send_frame(stream, body):
    stream.write(SIZE.pack(len(body)))
    stream.write(body)
    stream.flush()


def read_frame(stream):
    return stream.read(SIZE.unpack(stream.read(SIZE.size))[0])


# ---- the data is late

PARTS, MEMBERS, PICTURE = 8, 64, 20 << 10


class Mirror(http.server.BaseHTTPRequestHandler):
    """Gives out ranges of a shard, and at times says that it is overloaded."""
    protocol_version, disable_nagle_algorithm = "HTTP/1.1", True

    def do_GET(self):
        first, last = map(int, self.headers["Range"].removeprefix("bytes=").split("-"))
        well = self.server.chance.random() > 0.06
        if well:
            time.sleep(self.server.late)
        body = self.server.shard[first:last + 1] if well else b""
        self.send_response(206 if well else 503)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def mirrors(s):
    """Two of them, elsewhere, with the same tar shard."""
    shard, ports = io.BytesIO(), []
    with tarfile.open(fileobj=shard, mode="w") as tar:
        for n in range(MEMBERS):
            info = tarfile.TarInfo("%06d.img" % n)
            info.size = PICTURE
            tar.addfile(info, io.BytesIO(os.urandom(PICTURE)))
    for late in s.told("late").split():
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Mirror)
        server.late, server.shard, server.chance = float(late) / 1e3, shard.getvalue(), random.Random(late)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        ports.append(server.server_address[1])
    s.tell("mirrors", json.dumps({"ports": ports, "size": len(shard.getvalue())}))
    signal.pause()


class Billets:
    """A shard as a file, whose parts may still be under way."""

    def __init__(self, parts):
        self.parts = iter(parts)

    def read(self, _):
        part = next(self.parts, None)
        return part.result() if part else b""


def pictures(ports, size):
    """The members of shard after shard, with the next shard's parts asked for ahead."""
    own, length = threading.local(), -(-size // PARTS)

    def connect():
        own.links = [http.client.HTTPConnection("127.0.0.1", port) for port in ports]

    def fetch(part):
        place = "bytes=%d-%d" % (part * length, min((part + 1) * length, size) - 1)
        for attempt in itertools.count(part):
            link = own.links[attempt % len(ports)]
            link.request("GET", "/shard.tar", headers={"Range": place})
            answer = link.getresponse()
            body = answer.read()
            if answer.status == 206:
                return body
            time.sleep(0.005)
    pool = concurrent.futures.ThreadPoolExecutor(3, initializer=connect)

    def order():
        return Billets([pool.submit(fetch, part) for part in range(PARTS)])
    ahead = order()
    while True:
        shard, ahead = ahead, order()
        with tarfile.open(fileobj=shard, mode="r|") as tar:
            for member in tar:
                yield tar.extractfile(member).read()


def join_billets(link, ports, size, many, pond_size):
    chance, pond, batch = random.Random(1), [], []
    for picture in pictures(ports, size):
        pond.append(picture)
        if len(pond) > pond_size:
            batch.append(pond.pop(chance.randrange(len(pond))))
        if len(batch) == many:
            link.send_bytes(b"".join(batch))
            batch.clear()


@job(outside=mirrors, data="network_bound too_few_workers", rest="sync_bound launch_bound")
def split_billets(s):
    """A process streams tar shards through a shuffle buffer to a pipe; three threads get a shard's parts by range
    requests, with retries, from two mirrors by turns; to blame is the mirror that is far away, for which the tar
    reader waits, as it needs the parts in order."""
    ms, near = s.ms("gpu_ms", 12, 30), s.ms("near_ms", 1, 4)
    late = 3 * ms * s.ms("late_share", 1.6, 2.7) - near  # three threads, and a batch is a part of each mirror
    s.tell("late", "%f %f" % (near, near if s.fix else late))
    gpu, place = s.gpu(ms), json.loads(s.told("mirrors"))
    mine, theirs = multiprocessing.Pipe(duplex=False)
    many = MEMBERS * 2 // PARTS
    s.supplier(child(join_billets, theirs, place["ports"], place["size"], many, s.int("pond", 16, 64)).pid)
    s.loop(gpu, lambda: np.frombuffer(mine.recv_bytes(), np.uint8))


def as_rows(table):
    """As pyarrow's Table.to_pylist()."""
    return [dict(zip(table, row)) for row in zip(*(column.tolist() for column in table.values()))]


def dense(rows):
    return np.array([list(row.values()) for row in rows], np.float32)


def unpack(chunk):
    return np.frombuffer(zlib.decompress(chunk), np.float32)


@job(data="main_thread_loading", rest="sync_bound launch_bound")
def numbered_staves(s):
    """A columnar file in memory, of whose next row group two threads unpack a column each, in time; to blame is the
    loop, which has the columns made into a list of dicts, row by row, and these into an array again."""
    ms, share, columns = s.ms("gpu_ms", 8, 35), s.ms("rows_share", 0.6, 1.4), s.int("columns", 5, 9)
    names, gpu = ["feature_%d" % n for n in range(columns)], s.gpu(ms)
    few = {name: np.zeros(1000, np.float32) for name in names}
    many = s.keep("rows", max(int(ms * share / 1e3 / (took(lambda: dense(as_rows(few))) / 1000)), 200))
    stored = [[zlib.compress(np.arange(n, n + many, dtype=np.float32).tobytes(), 1) for _ in names] for n in range(3)]
    groups, pool = itertools.cycle(stored), concurrent.futures.ThreadPoolExecutor(2)

    def order():
        return {name: pool.submit(unpack, chunk) for name, chunk in zip(names, next(groups))}
    ahead = order()

    def obtain():
        nonlocal ahead
        group, ahead = ahead, order()
        table = {name: due.result() for name, due in group.items()}
        return np.column_stack(list(table.values())) if s.fix else dense(as_rows(table))
    s.loop(gpu, obtain)


BLOCK = 16 << 10


def load(fd, window, places):
    for row, place in zip(window, places):
        os.preadv(fd, [row], place * BLOCK)


@job(data="io_bound", rest="sync_bound launch_bound")
def seasoning_stacks(s):
    """As with FFCV's quasi-random order, a thread reads windows of blocks into a few slots, and the loop shuffles
    within a window; a condition has the counts of both; to blame is the disk, as memory never has the file."""
    ms, share, mib = s.ms("gpu_ms", 8, 25), s.ms("read_share", 1.7, 3), 64
    path, chance, gpu = s.data_file("seasoning_stacks", mib), np.random.default_rng(1), s.gpu(ms)
    fd, shuffle = os.open(path, os.O_RDONLY), np.random.default_rng(2)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)

    def places(many):
        return chance.choice(mib * MIB // BLOCK, many, replace=False).tolist()
    trial = np.zeros((200, BLOCK), np.uint8)
    each = once(lambda: load(fd, trial, places(200))) / 200
    many = s.keep("blocks", min(max(int(ms * share / 1e3 / each), 8), 3000))
    s.cold(path)
    while s.fix and os.read(fd, MIB):
        pass
    windows, turned = np.zeros((s.int("slots", 2, 3), many, BLOCK), np.uint8), threading.Condition()
    loaded = used = 0

    def room():
        return loaded < used + len(windows)

    def read_ahead():
        nonlocal loaded
        while True:
            with turned:
                turned.wait_for(room)
            load(fd, windows[loaded % len(windows)], places(many))
            if not s.fix:
                os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            with turned:
                loaded += 1
                turned.notify_all()

    def obtain():
        nonlocal used
        with turned:
            turned.wait_for(lambda: loaded > used)
        x = windows[used % len(windows)][shuffle.permutation(many), :512]
        with turned:
            used += 1
            turned.notify_all()
        return x
    threading.Thread(target=read_ahead, daemon=True).start()
    s.loop(gpu, obtain)


HEAD = struct.Struct("<cQQ")


class Rickhouse(socketserver.StreamRequestHandler):
    """An object store: P puts an object as soon as there is room for it, G gets one, which makes room."""
    objects, changed, places = {}, threading.Condition(), 2

    def room(self):
        return len(self.objects) < self.places

    def handle(self):
        while head := self.rfile.read(HEAD.size):
            verb, ref, size = HEAD.unpack(head)
            if verb == b"P":
                body = self.rfile.read(size)
                with self.changed:
                    self.changed.wait_for(self.room)
                    self.objects[ref] = body
                self.wfile.write(b"k")
            else:
                with self.changed:
                    body = self.objects.pop(ref)
                    self.changed.notify_all()
                self.wfile.write(HEAD.pack(b"O", ref, len(body)))
                self.wfile.write(body)


class Rickhouses(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True


def filler(mailbox, store, most, cost):
    """An actor: for each message it makes a block, puts it into the store, and answers with the reference."""
    block = memoryview(np.ones(most, np.uint8))
    with socket.socket(socket.AF_UNIX) as link:
        link.connect(store)
        for ref in itertools.count():
            size = mailbox.recv()
            decode(cost)
            link.sendall(HEAD.pack(b"P", ref, size))
            link.sendall(block[:size])
            link.recv(1)
            mailbox.send(ref)


@job(data="ipc_bound", rest="sync_bound launch_bound")
def rolled_casks(s):
    """Actors with an object store, which is a process and has few places: one actor is asked one block ahead, soon
    makes it, puts it there and answers with a reference; to blame is the way of these large blocks, which cannot be
    mapped in this container, but go through the store's sockets, in and out."""
    ms, share, most = s.ms("gpu_ms", 8, 25), s.ms("hand_over_share", 0.6, 1.3), 48 * MIB
    gpu, store = s.gpu(ms), Rickhouses(s.path("store"), Rickhouse)
    mine, theirs = multiprocessing.Pipe()
    child(store.serve_forever)
    store.server_close()
    child(filler, theirs, s.path("store"), most, ms * 0.05)
    link = socket.socket(socket.AF_UNIX)
    link.connect(s.path("store"))
    stream = link.makefile("rb")

    def get(ref):
        link.sendall(HEAD.pack(b"G", ref, 0))
        return stream.read(HEAD.unpack(stream.read(HEAD.size))[2])

    def trial():
        mine.send(16 * MIB)
        ref = mine.recv()
        return once(lambda: get(ref))
    trial()
    size = s.keep("bytes", min(max(int(ms * share / 1e3 / trial() * 16 * MIB), MIB), most))
    if s.fix:  # only the columns that are learnt from
        size //= 20

    def obtain():
        body = get(mine.recv())
        mine.send(size)
        return np.frombuffer(body, np.uint8)
    mine.send(size)
    s.loop(gpu, obtain)


def looked_up(base, rows):
    """The begins of records that have a page each."""
    return np.frombuffer(base, np.uint8).reshape(-1, PAGE)[rows, :256]


def fill(path):
    """What else is to be cached arrives little by little, for another segment."""
    with open(path, "wb", buffering=0) as segment:
        for n in itertools.count():
            segment.seek(n % 256 * (32 << 10))
            segment.write(os.urandom(32 << 10))
            time.sleep(0.02)


def cache_daemon(door, path, fresh, many, warm):
    """Answers from a mapped segment while it fills another one, for whose sake it keeps little in memory."""
    threading.Thread(target=fill, args=(fresh,), daemon=True).start()
    chance, stream = np.random.default_rng(1), door.accept()[0].makefile("rwb")
    with open(path, "rb", buffering=0) as f, mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ) as base:
        while warm and f.read(MIB):
            pass
        base.madvise(mmap.MADV_RANDOM)
        while stream.read(1):
            send_frame(stream, looked_up(base, chance.integers(0, len(base) // PAGE, many)).tobytes())
            if not warm:
                base.madvise(mmap.MADV_DONTNEED)
                os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


@job(data="page_fault_io", rest="sync_bound launch_bound")
def weeping_vat(s):
    """The node's cache daemon fills one segment while it answers from another, by a Unix socket and one batch ahead;
    to blame is that it lets go of the segment's pages after each answer, as the fills shall have the memory: nearly
    each record is on a mapped page that comes from the disk."""
    ms, share = s.ms("gpu_ms", 8, 25), s.ms("look_up_share", 1.7, 3)
    path, chance, gpu = s.data_file("weeping_vat", 64), np.random.default_rng(2), s.gpu(ms)
    with open(path, "rb") as f, mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ) as base:
        base.madvise(mmap.MADV_RANDOM)
        rows = chance.integers(0, len(base) // PAGE, 300)
        each = once(lambda: looked_up(base, rows)) / 300
    many = s.keep("records", min(max(int(ms * share / 1e3 / each), 16), 4000))
    s.cold(path)
    door, link = socket.socket(socket.AF_UNIX), socket.socket(socket.AF_UNIX)
    door.bind(s.path("cache"))
    door.listen()
    s.supplier(child(cache_daemon, door, path, s.path("fresh"), many, s.fix).pid)
    link.connect(s.path("cache"))
    stream = link.makefile("rb")

    def obtain():
        x = np.frombuffer(read_frame(stream), np.uint8)
        link.sendall(b"g")
        return x
    link.sendall(b"g")
    s.loop(gpu, obtain)


SHAVINGS = 48 << 10


def far_forest(s):
    """A store that is far away."""
    late = float(s.told("late")) / 1e3
    door = socket.create_server(("127.0.0.1", 0))
    s.tell("port", door.getsockname()[1])

    def serve(link):
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while link.recv(1):
            time.sleep(late)
            link.sendall(bytes(SHAVINGS))
    while True:
        threading.Thread(target=serve, args=(door.accept()[0],), daemon=True).start()


@job(outside=far_forest, data=CPU, threads=True, rest="sync_bound launch_bound")
def lone_adze(s):
    """Coroutines in a thread's event loop fetch from a far store, enough of them and well ahead, and hand what they
    get to an executor; batches lie in a deque, which a semaphore counts, and room is given back by
    call_soon_threadsafe(); to blame is the decoding in the executor, which has one thread."""
    ms, fetchers = s.ms("gpu_ms", 8, 40), s.int("fetchers", 5, 8)
    cost = ms * s.ms("decode_share", 1.5, 2.7) / (10 if s.fix else 1)
    s.tell("late", ms * s.ms("late_share", 1, 2.5))
    gpu, port, home = s.gpu(ms), int(s.told("port")), asyncio.new_event_loop()
    pool, room = concurrent.futures.ThreadPoolExecutor(1), asyncio.Semaphore(fetchers + 2)
    ready, full = collections.deque(), threading.Semaphore(0)

    def decoded(body):
        decode(cost)
        return np.frombuffer(body, np.uint8).astype(np.float32)

    async def fetch():
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        while True:
            await room.acquire()
            writer.write(b"g")
            body = await reader.readexactly(SHAVINGS)
            ready.append(await home.run_in_executor(pool, decoded, body))
            full.release()

    async def fetch_all():
        await asyncio.gather(*(fetch() for _ in range(fetchers)))

    def obtain():
        full.acquire()
        x = ready.popleft()
        home.call_soon_threadsafe(room.release)
        return x
    threading.Thread(target=home.run_until_complete, args=(fetch_all(),), daemon=True).start()
    s.loop(gpu, obtain)


# Undoes the deltas of a recording: in comes how many samples it has, out goes a frame with the first of them.
HELPER = """
import array, struct, sys
numpy = None
if sys.argv[1] == "numpy":
    import numpy

def summed(deltas):
    if numpy:
        return numpy.cumsum(deltas, dtype=numpy.uint16)
    value, samples = 0, array.array("H")
    for delta in deltas:
        value = value + delta & 0xFFFF
        samples.append(value)
    return samples

while order := sys.stdin.buffer.read(4):
    many, = struct.unpack("<I", order)
    body = memoryview(summed(array.array("H", bytes(2 * many)))).cast("B")[:80000]
    sys.stdout.buffer.write(struct.pack("<I", len(body)) + body)
    sys.stdout.buffer.flush()
"""


def hired(by):
    """A helper that undoes deltas by numpy, or by hand; it ends when its stdin does."""
    helper = subprocess.Popen([sys.executable, "-c", HELPER, by], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    fcntl.fcntl(helper.stdout, fcntl.F_SETPIPE_SZ, 1 << 18)
    return helper


def ask(helper, many):
    helper.stdin.write(SIZE.pack(many))
    helper.stdin.flush()


@job(data="slow_worker", rest="sync_bound launch_bound")
def blunt_croze(s):
    """Persistent helper programs undo the deltas of recordings, asked by turns and ahead, by frames with their length
    through pipes; to blame is the one that found no numpy where it was started, and sums up in plain Python."""
    ms, share, helpers = s.ms("gpu_ms", 8, 35), s.ms("sum_share", 1.6, 2.7), s.int("helpers", 2, 3)
    gpu, blunt = s.gpu(ms), s.int("blunt", 0, helpers - 1)
    with hired("hand") as trial:
        def sum_up():
            ask(trial, 100000)
            read_frame(trial.stdout)
        each = took(sum_up) / 100000
    many = s.keep("samples", max(int(helpers * ms * share / 1e3 / each), 40000))
    crew = [hired("hand" if n == blunt and not s.fix else "numpy") for n in range(helpers)]
    s.supplier(crew[blunt].pid)
    turn = itertools.cycle(crew)

    def obtain():
        helper = next(turn)
        x = np.frombuffer(read_frame(helper.stdout), np.uint16)
        ask(helper, many)
        return x
    for helper in crew:
        ask(helper, many)
    s.loop(gpu, obtain)


def journeyman(end, index, batches, cost):
    """A worker for one epoch."""
    parse(index)
    with os.fdopen(end, "wb") as out:
        for _ in range(batches):
            decode(cost)
            send_frame(out, bytes(80000))


def zygote(link, index, preloads, batches, cost):
    """Forks a worker for each pipe that it is handed."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps them
    parent = os.getpid()
    if preloads:
        parse(index)
    while True:
        _, (end,), _, _ = socket.recv_fds(link, 1, 1)
        if os.fork() == 0:
            try:
                mortal(parent)
                journeyman(end, 0 if preloads else index, batches, cost)
            finally:
                os._exit(0)
        os.close(end)


@job(data="loader_restart", rest="sync_bound launch_bound")
def day_labourers(s):
    """Short epochs, for each of which a zygote, that is warm, forks new workers; it is handed a pipe's end for each by
    SCM_RIGHTS, from which the loop reads frames by turns; to blame are these new starts, as the zygote does not have
    the index, and each worker reads it first."""
    ms, workers, batches = s.ms("gpu_ms", 8, 25), s.int("workers", 1, 2), s.int("batches", 4, 6)
    index, cost = ms * workers * batches * s.ms("index_share", 0.6, 1.6), ms * s.ms("load_share", 0.1, 0.3) * workers
    gpu, (link, theirs) = s.gpu(ms), socket.socketpair()
    child(zygote, theirs, index, s.fix, batches, cost)

    def start():
        mine, end = os.pipe()
        socket.send_fds(link, [b"e"], [end])
        os.close(end)
        return os.fdopen(mine, "rb")

    def epochs():
        while True:
            streams = [start() for _ in range(workers)]
            for _ in range(batches):
                for stream in streams:
                    yield np.frombuffer(read_frame(stream), np.float32)
            for stream in streams:
                stream.close()
    frames = epochs()
    s.loop(gpu, lambda: next(frames))


# ---- not for data


def store_reader(link, store, slot, many, cost, seed):
    """Each batch is one read transaction, which is short."""
    chance = np.random.default_rng(seed)
    while True:
        rows = chance.integers(0, len(store), many)
        with slot:
            x = store[rows]
        decode(cost)
        link.send(x)


def hot_copy(slot, hold, pause):
    """Copies the whole store, again and again, each time in one read transaction."""
    while True:
        with slot:
            decode(hold)
        time.sleep(pause / 1e3)


@job(data=CPU, lock="lock_bound host_bound", rest="sync_bound launch_bound")
def open_bungs(s):
    """A key-value store in a memory map, where each reader has a slot with a lock of its own and a writer takes all
    of them; two readers send batches in time, as packets of one socket; to blame is a hot copy's long transaction,
    for whose slot the loop waits, when after a step or few it writes its samples' losses back."""
    ms, every = s.ms("gpu_ms", 8, 25), s.int("every", 1, 3)
    hold = ms * every * s.ms("hold_share", 1.5, 3) / (100 if s.fix else 1)
    pause, cost = ms * every * s.ms("pause_share", 0.1, 0.3), ms * s.ms("load_share", 0.1, 0.3)
    store = np.memmap(s.path("store"), np.float32, "w+", shape=(8192, 128))
    slots, gpu = [multiprocessing.Lock() for _ in range(3)], s.gpu(ms)
    mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    for n in range(2):
        child(store_reader, theirs, store, slots[n], s.int("batch", 100, 200), 2 * cost, n)
    child(hot_copy, slots[2], hold, pause)
    chance = np.random.default_rng(3)
    s.go()
    for n in itertools.count(1):
        s.step(gpu, lambda: np.frombuffer(mine.recv(1 << 18), np.float32))
        if n % every == 0:
            with s.during("lock"):
                for slot in slots:
                    slot.acquire()
            store[chance.integers(0, len(store), 100), 0] = gpu.loss.value
            for slot in slots:
                slot.release()


class Dispatcher(socketserver.StreamRequestHandler):
    """Knows the workers, and deals out splits to them."""
    workers, splits = [], itertools.count()

    def handle(self):
        for line in self.rfile:
            question = json.loads(line)
            if "register" in question:
                self.workers.append(question["register"])
            answer = next(self.splits) if "split" in question else self.workers
            self.wfile.write(json.dumps(answer).encode() + b"\n")


class Dispatchers(socketserver.ThreadingMixIn, socketserver.TCPServer):
    daemon_threads = True


def told_by(dispatcher, **question):
    dispatcher.write(json.dumps(question).encode() + b"\n")
    dispatcher.flush()
    return json.loads(dispatcher.readline())


def data_worker(address, cost):
    """Registers itself, and makes an element of its next split when a client asks."""
    door, dispatcher = socket.create_server(("127.0.0.1", 0)), socket.create_connection(address).makefile("rwb")
    told_by(dispatcher, register=door.getsockname()[1])
    link, _ = door.accept()
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    stream = link.makefile("rwb")
    while stream.read(1):
        split = told_by(dispatcher, split="next")
        decode(cost)
        send_frame(stream, np.full(20000, split, np.float32).tobytes())


def nearest(features, centres):
    return ((features[:, None] - centres) ** 2).sum(2).argmin(1)


@job(data=CPU, host="host_bound", rest="sync_bound launch_bound")
def cellar_stewards(s):
    """A service of data workers, which ask their dispatcher for splits; a client's thread for each of them fetches
    ahead into one queue, in time; to blame is the loop, which after a step or few gives all features of a bank new
    pseudo-labels, as DeepCluster does, by numpy."""
    ms, every, share = s.ms("gpu_ms", 8, 35), s.int("every", 1, 3), s.ms("label_share", 0.6, 1.5)
    cost, gpu, out = 2 * ms * s.ms("load_share", 0.2, 0.5), s.gpu(ms), queue.Queue(4)
    chance = np.random.default_rng(1)
    centres, few = chance.random((16, 32), np.float32), chance.random((4000, 32), np.float32)
    each = took(lambda: nearest(few, centres)) / len(few)
    many = s.keep("features", min(max(int(ms * every * share / 1e3 / each), 64), 40000))
    bank = chance.random((many, 32), np.float32)
    dispatchers = Dispatchers(("127.0.0.1", 0), Dispatcher)
    address = dispatchers.server_address
    child(dispatchers.serve_forever)
    dispatchers.server_close()
    for _ in range(2):
        child(data_worker, address, cost)
    dispatcher = socket.create_connection(address).makefile("rwb")
    while len(ports := told_by(dispatcher, list="workers")) < 2:
        time.sleep(0.01)

    def fetch(port):
        stream = socket.create_connection(("127.0.0.1", port)).makefile("rwb")
        while True:
            stream.write(b"g")
            stream.flush()
            out.put(np.frombuffer(read_frame(stream), np.float32))
    for port in ports:
        threading.Thread(target=fetch, args=(port,), daemon=True).start()
    s.go()
    for n in itertools.count(1):
        s.step(gpu, out.get)
        if n % every == 0 and not s.fix:
            with s.during("host"):
                nearest(bank, centres)
