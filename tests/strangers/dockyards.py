# SPDX-License-Identifier: BSD-2-Clause
"""In the dockyards: what surrounds a job in production, as sidecars, replicas, leases, quotas, probes and logs."""
import fcntl
import gzip
import hashlib
import http.client
import http.server
import itertools
import json
import logging
import logging.handlers
import mmap
import multiprocessing
import os
import random
import selectors
import signal
import socket
import threading
import time
import zlib

import numpy as np

from stranger import CPU, child, decode, job, parse

PAGE, MIB, CARGO, ENDLESS = 4096, 1 << 20, 48 << 10, 10**9


def took(f, times=3):
    """Seconds that f takes on the average, once it is warm."""
    f()
    begin = time.monotonic()
    for _ in range(times):
        f()
    return (time.monotonic() - begin) / times


# ---- how batches come


class Quay:
    """Slots of a memfd that processes share; the numbers of the empty and of the full ones go through two pipes."""

    def __init__(self, slots=3, floats=50000):
        fd = os.memfd_create("quay")
        os.ftruncate(fd, 4 * slots * floats)
        self.slots = np.frombuffer(mmap.mmap(fd, 0), np.float32).reshape(slots, floats)
        self.empty, self.full = os.pipe(), os.pipe()
        os.write(self.empty[1], bytes(range(slots)))

    def land(self, value):
        slot = os.read(self.empty[0], 1)
        self.slots[slot[0]] = value
        os.write(self.full[1], slot)

    def take(self):
        slot = os.read(self.full[0], 1)
        x = self.slots[slot[0]].copy()
        os.write(self.empty[1], slot)
        return x


def landed(s, ms):
    """A process that keeps up, and a quay."""
    quay, cost = Quay(), ms * s.ms("load_share", 0.1, 0.35)

    def unload():
        while True:
            decode(cost)
            quay.land(1)
    child(unload)
    return quay.take


def replicas(s):
    """A store's replicas, with a door and a lateness each; the first may shed load after so many answers."""
    most, *lates = map(float, s.told("replicas").split())
    doors = [socket.create_server(("127.0.0.1", 0)) for _ in lates]
    s.tell("ports", " ".join(str(door.getsockname()[1]) for door in doors))

    def serve(link, late, most):
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for given in itertools.cycle(range(most + 1)):
            link.recv(1)
            if given == most:
                link.sendall(b"n")
            else:
                time.sleep(late / 1e3)
                link.sendall(b"y" + bytes(CARGO))
    for n, (door, late) in enumerate(zip(doors, lates)):  # a client each
        threading.Thread(target=serve, args=(door.accept()[0], late, ENDLESS if n else int(most))).start()
    signal.pause()


def ask(link):
    """A batch, or None if the replica has enough to do."""
    link.sendall(b"g")
    return link.recv(CARGO, socket.MSG_WAITALL) if link.recv(1) == b"y" else None


# ---- the data is late


@job(data="page_fault_io", rest="sync_bound launch_bound")
def thawed_hold(s):
    """A serverless platform freezes the loader between two passes, and maps the image of its arena when it goes on;
    to blame is that this thaws page by page, so that each sample's first touch waits for the disk."""
    ms, share = s.ms("gpu_ms", 6, 25), s.ms("touch_share", 1.45, 3)
    path = s.data_file("arena", 64)
    with open(path, "rb") as f, mmap.mmap(f.fileno(), 0, mmap.MAP_PRIVATE, mmap.PROT_READ) as arena:
        arena.madvise(mmap.MADV_RANDOM)
        places = iter(random.Random(2).sample(range(len(arena) // PAGE), 401))
        each = took(lambda: arena[PAGE * next(places)], 400)
    pages = s.keep("pages", min(max(int(ms * share / 1e3 / each), 20), 4000))
    s.cold(path)
    if s.fix:  # all of it is read before the loader goes on
        np.fromfile(path, np.uint8)
    gpu, out = s.gpu(ms), multiprocessing.Queue(maxsize=3)

    def thaw():
        while True:
            with open(path, "rb") as f, mmap.mmap(f.fileno(), 0, mmap.MAP_PRIVATE, mmap.PROT_READ) as arena:
                arena.madvise(mmap.MADV_RANDOM)
                places = (PAGE * np.random.permutation(len(arena) // PAGE)).tolist()
                for first in range(0, len(places) - pages + 1, pages):
                    rows = b"".join(arena[place:place + 64] for place in places[first:first + pages])
                    out.put(np.frombuffer(rows, np.uint8))
            if not s.fix:
                s.cold(path)
    s.supplier(child(thaw).pid)
    s.loop(gpu, out.get)


def origin(s):
    """Where the objects come from: asked whether one has changed, it says no, after a while."""
    late = float(s.told("late")) / 1e3

    class Desk(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self):
            time.sleep(late)
            self.send_response(304)
            self.send_header("ETag", self.headers["If-None-Match"])
            self.end_headers()

        def log_message(self, *_):
            pass
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Desk)
    s.tell("port", server.server_address[1])
    server.serve_forever()


@job(outside=origin, data="main_thread_loading network_bound", rest="sync_bound launch_bound")
def tally_clerk(s):
    """All objects lie in the node's cache by now; to blame is its no-cache policy: for each object the loop asks the
    far origin by If-None-Match whether it has changed, and waits for a 304 before it opens the file."""
    ms, objects = s.ms("gpu_ms", 8, 40), s.int("objects", 2, 5)
    s.tell("late", ms * s.ms("late_share", 0.45, 1.8) / objects)
    gpu, desk = s.gpu(ms), http.client.HTTPConnection("127.0.0.1", int(s.told("port")))
    for n in range(24):
        np.full(64 << 10, n, np.uint8).tofile(s.path("object-%d" % n))

    def cached(n):
        if not s.fix:  # else a max-age is believed
            desk.request("GET", "/object/%d" % n, headers={"If-None-Match": '"%d"' % n})
            desk.getresponse().read()
        return np.fromfile(s.path("object-%d" % n), np.uint8)
    s.loop(gpu, lambda: np.concatenate([cached(s.random.randrange(24)) for _ in range(objects)]))


@job(outside=replicas, data="network_bound too_few_workers", rest="sync_bound launch_bound")
def bar_pilot(s):
    """A loader with a circuit breaker: the near replica sheds load after a few answers, for which the breaker stays
    open for a long while; to blame is the far replica, which is asked meanwhile."""
    ms, burst = s.ms("gpu_ms", 8, 30), s.int("burst", 2, 4)
    late, far_calls = ms * s.ms("late_share", 2, 3.6), s.ms("open_calls", 8, 16)
    s.tell("replicas", "%d %f %f" % (ENDLESS if s.fix else burst, ms * 0.1, late))
    gpu, out = s.gpu(ms), multiprocessing.Queue(maxsize=2)
    cool, ports = far_calls * late / 1e3, s.told("ports").split()

    def steer():
        near, far = (socket.create_connection(("127.0.0.1", int(port))) for port in ports)
        closes = 0
        while True:
            body = None
            if time.monotonic() >= closes:
                body = ask(near)
                closes = time.monotonic() + (0 if body else cool)
            body = body or ask(far)
            decode(ms * 0.04)
            out.put(np.frombuffer(body, np.uint8))
    s.supplier(child(steer).pid)
    s.loop(gpu, out.get)


@job(data="lock_bound", rest="sync_bound launch_bound")
def leased_moorings(s):
    """Batches lie ready as files in the page cache; to blame is a mirroring agent, which keeps a lease on each of
    them, as Samba does, so that open() waits until it gives that back, between two files that it packs."""
    ms, floats = s.ms("gpu_ms", 8, 40), s.int("floats", 10000, 60000)
    paths = [s.path("berth-%d" % n) for n in range(s.int("files", 5, 12))]
    for path in paths:
        np.ones(floats, np.float32).tofile(path)
    gpu, out, cost = s.gpu(ms), multiprocessing.Queue(maxsize=2), ms * s.ms("pack_share", 1.4, 2.6)

    def mirror():
        signal.signal(signal.SIGIO, signal.SIG_IGN)
        files = [os.open(path, os.O_RDONLY) for path in paths]
        free = set(files)
        while True:
            for fd in sorted(free):
                try:
                    fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_WRLCK)
                    free.remove(fd)
                except BlockingIOError:  # somebody has it open
                    pass
            decode(cost / 30 if s.fix else cost)  # it packs the next one
            for fd in files:
                if fd not in free and fcntl.fcntl(fd, fcntl.F_GETLEASE) != fcntl.F_WRLCK:  # it is asked for
                    fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_UNLCK)
                    free.add(fd)

    def cast_off():
        for path in itertools.cycle(paths):
            out.put(np.fromfile(path, np.float32))
    child(mirror)
    child(cast_off)
    s.loop(gpu, out.get)


@job(data=CPU, rest="sync_bound launch_bound")
def caulked_stores(s):
    """A prefetch service with a write-through cache, for a run that sees each object once; to blame is the packing
    for this cache, at the highest level, which is done before an object is passed on."""
    ms, workers = s.ms("gpu_ms", 8, 40), s.int("workers", 1, 2)
    body = np.random.default_rng(1).integers(0, 40, 8 * MIB, np.uint8).tobytes()
    each = took(lambda: zlib.compress(body[:128 << 10], 9)) / (128 << 10)
    size = s.keep("bytes", min(int(ms * s.ms("pack_share", 1.45, 2.6) * workers / 1e3 / each), len(body)))
    gpu, quay, body = s.gpu(ms), Quay(), body[:size // 20 if s.fix else size]

    def store_first():
        for n in itertools.count():
            path = s.path("cached-%d-%d" % (os.getpid(), n % 12))
            with open(path + ".part", "wb") as f:
                f.write(zlib.compress(body, 9))
            os.rename(path + ".part", path)
            quay.land(n)
    pids = [child(store_first).pid for _ in range(workers)]
    if workers == 1:
        s.supplier(pids[0])
    s.loop(gpu, quay.take)


@job(data="hung_worker", rest="sync_bound launch_bound")
def foul_anchor(s):
    """Two workers by turns, each with a pipe to a log shipper for its warnings; to blame is one at which the
    shipper's thread has ended over a name that is not UTF-8, so that it waits in write() for ever."""
    ms, life_s, odd = s.ms("gpu_ms", 10, 40), s.ms("life_s", 1.8, 3), s.int("odd", 0, 1)
    life, cost = int(life_s * 500 / ms), 2 * ms * s.ms("load_share", 0.1, 0.3)
    lines = (64 << 10) // 40 // (life // 2) + 1  # in half of its life it fills the pipe
    gpu, outs = s.gpu(ms), [multiprocessing.Queue(maxsize=2) for _ in range(2)]
    pipes = [os.pipe() for _ in outs]

    def follow(lines):
        try:
            for _ in lines:
                pass
        except UnicodeDecodeError:
            pass  # the thread ends, and nobody sees that

    def ship():
        logs = [open(pipe[0], encoding="utf-8", errors="replace" if s.fix else "strict") for pipe in pipes]
        for lines in logs:
            threading.Thread(target=follow, args=(lines,), daemon=True).start()
        signal.pause()

    def work(number):
        for n in itertools.count():
            decode(cost)
            if number == odd and n == life // 2:
                os.write(pipes[number][1], b"W loader: cannot open /data/caf\xe9/0017.jpg\n")
            os.write(pipes[number][1], b"W loader: profile of sample is not sRGB\n" * lines)
            outs[number].put(np.zeros(20000, np.float32))
    child(ship)
    pids = [child(work, number).pid for number in range(2)]
    s.supplier(pids[odd])
    turn = itertools.cycle(outs)
    s.loop(gpu, lambda: next(turn).get())


@job(data="slow_item", rest="sync_bound launch_bound")
def old_seals(s):
    """Two processes decrypt into a spool folder, by turns, and rename each file when it is complete; to blame are the
    few objects that the rotation of keys has left with the old key, for which that is derived anew."""
    ms, every = s.ms("gpu_ms", 8, 25), s.one("every", 7, 9, 11)
    each = took(lambda: hashlib.pbkdf2_hmac("sha256", b"calm", b"sea", 5000)) / 5000
    rounds = 1 if s.fix else max(int(ms * s.ms("derive_steps", 9, 14) / 1e3 / each), 1)
    cost, gpu, turn = ms * s.ms("load_share", 0.1, 0.4), s.gpu(ms), itertools.count()

    def crate(n):
        return s.path("crate-%d" % n)

    def unseal(first):
        for n in itertools.count(first, 2):
            if n % every == 0:
                hashlib.pbkdf2_hmac("sha256", b"fair winds and following seas", b"%d" % n, rounds)
            decode(cost)
            np.full(20000, n, np.float32).tofile(crate(n) + ".part")
            while os.path.exists(crate(n - 2)):
                time.sleep(0.002)
            os.rename(crate(n) + ".part", crate(n))

    def obtain():
        path = crate(next(turn))
        while not os.path.exists(path):
            time.sleep(0.001)
        x = np.fromfile(path, np.float32)
        os.unlink(path)
        return x
    for first in range(2):
        child(unseal, first)
    s.loop(gpu, obtain)


@job(outside=replicas, data="slow_worker network_bound", rest="sync_bound launch_bound")
def sticky_hawser(s):
    """Three workers by turns ask replicas behind a balancer with sticky sessions; to blame is the one whose session
    has gone to another region while a replica was away, and stays there."""
    ms, odd = s.ms("gpu_ms", 8, 40), s.int("odd", 0, 2)
    near = 3 * ms * s.ms("near_share", 0.05, 0.2)
    far = near if s.fix else 3 * ms * s.ms("late_share", 1.4, 2.5)
    s.tell("replicas", "%d " % ENDLESS + " ".join(str(far if n == odd else near) for n in range(3)))
    gpu, ports = s.gpu(ms), s.told("ports").split()
    pipes = [multiprocessing.Pipe(duplex=False) for _ in ports]

    def moor(n):
        link = socket.create_connection(("127.0.0.1", int(ports[n])))
        while True:
            body = ask(link)
            decode(ms * 0.05)
            pipes[n][1].send(np.frombuffer(body, np.uint8))
    s.supplier([child(moor, n).pid for n in range(3)][odd])
    turn = itertools.cycle(pipes)
    s.loop(gpu, lambda: next(turn)[0].recv())


@job(data="io_bound", rest="sync_bound launch_bound")
def hull_inspector(s):
    """A cache daemon is asked one batch ahead and has all records in memory; to blame is its scrubbing on access,
    which reads each record's block past the page cache from the disk, to see whether that still holds it."""
    ms, share = s.ms("gpu_ms", 6, 25), s.ms("read_share", 1.5, 3)
    path, block = s.data_file("hull", 64), mmap.mmap(-1, PAGE)
    np.fromfile(path, np.uint8)  # now it is in memory
    cached, disk = os.open(path, os.O_RDONLY), os.open(path, os.O_RDONLY | os.O_DIRECT)
    each = took(lambda: os.preadv(disk, [block], PAGE * s.random.randrange(16384)), 400)
    pages = s.keep("pages", min(max(int(ms * share / 1e3 / each), 16), 5000))
    mine, theirs = socket.socketpair()
    gpu, x = s.gpu(ms), np.zeros(pages * 512, np.uint8)

    def inspect():
        chance = random.Random(1)
        while theirs.recv(1):
            body = bytearray()
            for place in [PAGE * chance.randrange(16384) for _ in range(pages)]:
                os.preadv(cached if s.fix else disk, [block], place)
                body += zlib.crc32(block).to_bytes(4, "little") + os.pread(cached, 508, place)
            theirs.sendall(body)

    def obtain():
        view = memoryview(x)
        while view:
            view = view[mine.recv_into(view, len(view), socket.MSG_WAITALL):]
        mine.send(b"g")
        return x
    s.supplier(child(inspect).pid)
    mine.send(b"g")
    s.loop(gpu, obtain)


# ---- not for data


@job(data=CPU, host="host_bound", rest="sync_bound launch_bound")
def ship_log(s):
    """Debug logging was left on, with all layers' histograms: to blame is the loop, which writes them as JSON, and
    at each rotation of the log, every step or few, has to gzip it; a process lands batches in time."""
    ms, every, share = s.ms("gpu_ms", 8, 35), s.int("every", 1, 4), s.ms("log_share", 0.45, 1.4)
    gpu, batch, chance = s.gpu(ms), landed(s, ms), random.Random(1)
    some = [chance.random() for _ in range(10000)]
    each = took(lambda: gzip.compress(json.dumps(some).encode(), 9)) / len(some)
    figures = [chance.random() for _ in range(s.keep("bins", max(int(ms * share / 1e3 / each), 200)))]

    def pack(source, target):
        with open(source, "rb") as f, gzip.open(target, "wb", 9) as packed:
            packed.write(f.read())
        os.remove(source)
    handler = logging.handlers.RotatingFileHandler(s.path("train.log"), backupCount=3,
                                                   maxBytes=int((every + 0.5) * len(json.dumps(figures))))
    handler.rotator, handler.namer = pack, "{}.gz".format
    log = logging.Logger("train")
    log.addHandler(handler)
    s.go()
    while True:
        s.step(gpu, batch)
        with s.during("host"):
            log.debug(json.dumps(figures[:20] if s.fix else figures))


def times(c):
    """Multiplication by c in GF(256), as a table."""
    table, all_bytes = np.zeros(256, int), np.arange(256)
    for bit in range(7, -1, -1):
        table = table << 1 ^ (table >> 7) * 0x11d ^ (c >> bit & 1) * all_bytes
    return table.astype(np.uint8)


def with_spares(state, hulls, tables):
    """The state in pieces, and spare ones, from which any lost ones can be worked out."""
    pieces = state[:len(state) // hulls * hulls].reshape(hulls, -1)
    spares = np.zeros((len(tables), pieces.shape[1]), np.uint8)
    for begin in range(0, pieces.shape[1], 64 << 10):
        part = slice(begin, begin + (64 << 10))
        for spare, row in zip(spares, tables):
            for piece, table in zip(pieces, row):
                spare[part] ^= table[piece[part]]
    return [*pieces, *spares]


@job(data=CPU, ckpt="checkpoint_stall host_bound", rest="sync_bound launch_bound")
def spare_hulls(s):
    """Every few steps the state is spread over several node-local stores, with Reed-Solomon pieces against lost
    nodes: to blame is this checkpoint, which the loop encodes and writes, while a process lands batches in time."""
    ms, every, share = s.ms("gpu_ms", 10, 40), s.int("every", 2, 5), s.ms("save_share", 0.45, 1.2)
    hulls, lost = s.int("hulls", 3, 5), s.int("spares", 2, 3)
    gpu, batch = s.gpu(ms), landed(s, ms)
    tables = [[times(1 + n + k * hulls) for n in range(hulls)] for k in range(lost)]
    some = np.arange(hulls << 17, dtype=np.uint32).astype(np.uint8)
    each = took(lambda: with_spares(some, hulls, tables)) / len(some)
    state = np.resize(some, s.keep("bytes", min(max(int(ms * every * share / 1e3 / each), 64 << 10), 64 * MIB)))
    s.go()
    for n in itertools.count(1):
        s.step(gpu, batch)
        if n % every == 0 and not s.fix:
            with s.during("ckpt"):
                for store, piece in enumerate(with_spares(state, hulls, tables)):
                    path = s.path("store-%d.piece" % store)
                    with open(path + ".part", "wb") as f:
                        f.write(piece)
                    os.rename(path + ".part", path)


@job(data=CPU, host="host_bound", rest="sync_bound launch_bound")
def berth_quota(s):
    """Tenants share a card by a vGPU layer, which has the loop sleep before each burst of launches until the job has
    device time left: to blame is this quota, which a daemon grants slice by slice; batches lie ready."""
    ms, bursts, pause = s.ms("gpu_ms", 10, 50), s.int("bursts", 3, 8), s.ms("slice_ms", 4, 12)
    grant, left = pause * (20 if s.fix else s.ms("quota", 0.35, 0.65)), multiprocessing.Value("d", 0)
    gpu, batch = s.gpu(ms), landed(s, ms)

    def grant_time():
        while True:
            time.sleep(pause / 1e3)
            with left.get_lock():
                left.value = min(left.value + grant, 2 * grant)  # two slices may be saved up
    child(grant_time)
    counts = [len(part) for part in np.array_split(range(gpu.launches), bursts)]
    s.go()
    while True:
        s.mark()
        with s.during("data"):
            x = batch()
        gpu.upload(x.ctypes.data, x.nbytes)
        for n, count in enumerate(counts):
            with s.during("host"):
                while left.value <= 0:
                    time.sleep(0.001)
                with left.get_lock():
                    left.value -= ms * count / gpu.launches
            gpu.launch(n * 3 // bursts, count)
        gpu.loss_item()


# ---- nothing is wrong


@job(outside=replicas, data="network_bound", rest="sync_bound launch_bound")
def second_anchor(s):
    """Nothing is to blame: a loader meets refused connections again and again, backs off, fails over and logs each,
    and a niced shipper follows the log; but a batch is always there."""
    ms = s.ms("gpu_ms", 25, 80)
    s.tell("replicas", "%d %f" % (ENDLESS, ms * s.ms("late_share", 0.08, 0.22)))
    gpu, out, dead = s.gpu(ms), multiprocessing.Queue(maxsize=6), socket.socket()
    dead.bind(("127.0.0.1", 0))  # and nobody listens
    pause, cost = ms * s.ms("backoff_share", 0.03, 0.1) / 1e3, ms * s.ms("load_share", 0.05, 0.15)
    log = open(s.path("loader.log"), "w+", buffering=1, encoding="ascii")

    def coast():
        chance, link = random.Random(1), socket.create_connection(("127.0.0.1", int(s.told("ports"))))
        for n in itertools.count():
            for attempt in range(chance.choice([0, 1, 2])):
                try:
                    socket.create_connection(dead.getsockname(), 1).close()
                except OSError as fault:
                    log.write("W batch %d, attempt %d: %s\n" % (n, attempt, fault))
                    time.sleep(pause * (1 << attempt))
            body = ask(link)
            decode(cost)
            out.put(np.frombuffer(body, np.uint8))

    def follow():
        os.nice(15)
        with open(log.name, encoding="ascii") as lines:
            while True:
                if lines.readline():
                    parse(1)  # an event for the collector
                else:
                    time.sleep(0.02)
    child(coast)
    child(follow)
    s.loop(gpu, out.get)


def roads(s):
    """Probes that come many times a second, and a client whose own replica is seldom away."""
    pause, probes = s.ms("pause_s", 0.25, 0.8), s.int("probes", 2, 4)
    s.told("go")

    def join():
        link = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        link.connect(s.path("roads"))
        return link

    def probe(n):
        link, chance = join(), random.Random(n)
        while True:
            link.send(b"ping")
            link.recv(16)
            time.sleep(chance.expovariate(25))
    for n in range(probes):
        threading.Thread(target=probe, args=(n,), daemon=True).start()
    link = join()
    while True:
        time.sleep(s.random.expovariate(1 / pause))
        link.send(bytes([s.random.randint(1, 3)]))
        link.recv(16)


@job(outside=roads, demand="no_demand", rest="sync_bound launch_bound")
def guard_ship(s):
    """A hot standby of a model server: one loop answers the health probes, which never end, and the few requests of a
    client that has failed over; nobody is to blame that there are not more of them."""
    gpu, frames = s.gpu(s.ms("gpu_ms", 15, 40)), np.zeros(20000, np.float32)
    door, selector, asked = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET), selectors.DefaultSelector(), []
    door.bind(s.path("roads"))
    door.listen(8)
    selector.register(door, selectors.EVENT_READ)
    s.go()
    while True:
        with s.during("demand"):
            while not asked:
                for key, _ in selector.select():
                    link = key.fileobj
                    if link is door:
                        selector.register(door.accept()[0], selectors.EVENT_READ)
                        continue
                    words = link.recv(16)
                    if words == b"ping":
                        link.send(b"pong")
                    elif words:
                        asked.append((link, words[0]))
                    else:
                        selector.unregister(link)
        s.mark()
        link, batches = asked.pop()
        for _ in range(batches):
            s.mark("micro")
            s.train(gpu, frames)
        link.send(b"done")
