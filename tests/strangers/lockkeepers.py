# SPDX-License-Identifier: BSD-2-Clause
"""Lock-keepers at night: what those who are on call find in training jobs that were fast when they went home."""
import ctypes
import gc
import http.client
import http.server
import itertools
import mmap
import multiprocessing
import os
import queue
import random
import signal
import socket
import threading
import time
import urllib.parse
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from stranger import CPU, child, decode, job, parse

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


def put(out, cost):
    while True:
        decode(cost)
        out.put(np.zeros(20000, np.float32))


def queued(cost):
    """A loader that keeps up: a process and a queue."""
    out = multiprocessing.Queue(maxsize=4)
    child(put, out, cost)
    return out.get


def threaded(cost):
    """Another one: a thread of the trainer."""
    out = queue.Queue(4)
    threading.Thread(target=put, args=(out, cost), daemon=True).start()
    return out.get


# ---- the data is late


def log_passage(link, path, reads, work):
    """Reads records, which memory has, while a thread of the process counts what they were about."""
    def count():
        while True:
            work(20)
    fd, chance = os.open(path, os.O_RDONLY), random.Random(1)
    threading.Thread(target=count, daemon=True).start()
    while True:
        link.send_bytes(b"".join(os.pread(fd, 512, 512 * chance.randrange(2048)) for _ in range(reads)))


@job(data="lock_bound", rest="sync_bound launch_bound")
def gossiping_mate(s):
    """A process takes a few records from a cached file for each batch, which is next to nothing; to blame is a thread
    for drift statistics, in Python, that was put beside it: after each read the interpreter's lock is its own again,
    and it keeps that for the whole switch interval."""
    ms = s.ms("gpu_ms", 12, 40)
    reads = s.keep("reads", max(round(ms * s.ms("read_share", 1.5, 2.6) / 5) - 1, 2))  # one more is the write
    path, gpu = s.path("passages"), s.gpu(ms)
    np.ones(MIB, np.uint8).tofile(path)
    mine, theirs = multiprocessing.Pipe(duplex=False)
    s.supplier(child(log_passage, theirs, path, reads, decode if s.fix else parse).pid)
    s.loop(gpu, lambda: np.frombuffer(mine.recv_bytes(), np.uint8))


def keep_house(link, cost, many, limit):
    """Makes batches, and tidies up where it has more objects than it should."""
    annotations = [[] for _ in range(many)]
    while True:
        decode(cost)
        link.send(np.zeros(10000, np.float32))
        if len(annotations) > limit:
            for _ in range(3):  # finalizers may leave something
                gc.collect()


@job(data="slow_worker", rest="sync_bound launch_bound")
def anxious_keeper(s):
    """Two workers by turns, with a guard against leaks that collects garbage after a batch when there is too much on
    the heap; to blame is the one worker whose shard has so many annotations that it is above the limit for ever, and
    walks all of them after each batch, in vain."""
    ms, loud = s.ms("gpu_ms", 10, 25), s.int("above", 0, 1)
    share, cost, ends = s.ms("collect_share", 1.5, 2.3), ms * s.ms("load_share", 0.1, 0.4), []
    gpu = s.gpu(ms)
    bare = took(gc.collect)
    heap = [[] for _ in range(200000)]
    each = max(took(gc.collect) - bare, 1e-3) / len(heap)
    del heap
    many = s.keep("annotations", min(max(int((2 * ms * share / 3e3 - bare) / each), 10000), 1500000))
    for n in range(2):
        mine, theirs = multiprocessing.Pipe(duplex=False)
        pid = child(keep_house, theirs, cost, many if n == loud else 1000, many if s.fix else 1000).pid
        ends.append(mine)
        if n == loud:
            s.supplier(pid)
    turn = itertools.cycle(ends)
    s.loop(gpu, lambda: next(turn).recv())


def resident():
    """Pages of files that this process has in its memory."""
    with open("/proc/self/statm", encoding="ascii") as f:
        return int(f.read().split()[2])


def sound(table, chance, many):
    """The first byte of so many pages."""
    return np.fromiter((table[PAGE * chance.randrange(len(table) // PAGE)] for _ in range(many)), np.uint8, many)


def wade(out, path, many, budget):
    """Looks records up in a map; where it has more of it in memory than the budget, it lets go of all."""
    chance = random.Random(1)
    with open(path, "rb", buffering=0) as f, mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ) as table:
        while not budget and f.read(MIB):
            pass
        table.madvise(mmap.MADV_RANDOM)
        own = resident()
        while True:
            out.put(sound(table, chance, many))
            if budget and resident() > own + budget:
                table.madvise(mmap.MADV_DONTNEED)
                os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


@job(data="page_fault_io", rest="sync_bound launch_bound")
def drained_pound(s):
    """A process looks up embeddings in a mapped file that memory would hold; to blame is its guard against the
    container's limit, written after an alert: it takes the map's pages for a leak, and every few batches lets go of
    them, and of the file's part of the page cache, so that nearly all look-ups wait for the disk."""
    ms, share, batches = s.ms("gpu_ms", 8, 25), s.ms("look_up_share", 1.8, 3.2), s.int("batches", 2, 6)
    path, gpu = s.data_file("drained_pound", 64), s.gpu(ms)
    with open(path, "rb") as f, mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ) as table:
        table.madvise(mmap.MADV_RANDOM)
        each = once(lambda: sound(table, random.Random(2), 400)) / 400
    many = s.keep("keys", min(max(int(ms * share / 1e3 / each), 16), 3000))
    s.cold(path)
    out = multiprocessing.Queue(maxsize=3)
    s.supplier(child(wade, out, path, many, 0 if s.fix else min(many * batches, 3500)).pid)
    s.loop(gpu, out.get)


def far_bank(s):
    """A store behind a gateway, which forgets the first worker's connection after a while, and tells nobody."""
    late, most = float(s.told("late")) / 1e3, int(s.told("most"))
    door = socket.create_server(("127.0.0.1", 0))
    s.tell("port", door.getsockname()[1])

    def serve(link):
        for n in itertools.count():
            who = link.recv(1)
            if not who:
                return
            if who == b"0" and n >= most:
                continue  # the packets go nowhere
            time.sleep(late)
            link.sendall(bytes(64 << 10))
    while True:
        threading.Thread(target=serve, args=(door.accept()[0],), daemon=True).start()


def hail(out, who, port, patience):
    """Asks the store for batch after batch."""
    stream = None
    while True:
        try:
            if stream is None:
                link = socket.create_connection(("127.0.0.1", port))
                link.settimeout(patience)
                stream = link.makefile("rb")
            link.sendall(who)
            out.put(np.frombuffer(stream.read(64 << 10), np.uint8))
        except TimeoutError:
            stream = None  # a new connection


@job(outside=far_bank, data="hung_worker", rest="sync_bound launch_bound")
def dead_tollhouse(s):
    """Two workers by turns ask a store, each by a connection that it keeps, and well in time; to blame is the one
    whose connection is dropped on the way without a word: it has no timeout, and waits for its answer for ever."""
    ms, life_s = s.ms("gpu_ms", 10, 40), s.ms("life_s", 1.8, 3)
    late = 2 * ms * s.ms("late_share", 0.15, 0.4)
    s.tell("late", late)
    s.tell("most", s.keep("most", int(life_s * 500 / ms)))
    gpu, port, outs = s.gpu(ms), int(s.told("port")), [multiprocessing.Queue(maxsize=2) for _ in range(2)]
    patience = max(4 * late / 1e3, 0.1) if s.fix else None
    pids = [child(hail, out, b"%d" % n, port, patience).pid for n, out in enumerate(outs)]
    s.supplier(pids[0])
    turn = itertools.cycle(outs)
    s.loop(gpu, lambda: next(turn).get())


def swell(arena, samples, purge):
    """Uses the arena for sample after sample, as an allocator would that gives all back at once."""
    pages = np.frombuffer(arena, np.uint8)[::PAGE]
    for _ in range(samples):
        pages[:] = 1
        if purge:
            arena.madvise(mmap.MADV_DONTNEED)


def fill_chamber(out, arena, samples, purge, cost):
    while True:
        swell(arena, samples, purge)
        decode(cost)
        out.put(np.zeros(20000, np.float32))


@job(data=CPU, rest="sync_bound launch_bound")
def refilled_chamber(s):
    """A process crops from large volumes, and decodes little; to blame is its allocator, which was told to give
    memory back at once, for a dashboard's sake: for each sample the kernel has to clear all of the scratch area's
    pages anew, fault by fault, of which none waits for a disk."""
    ms, share, mib = s.ms("gpu_ms", 12, 40), s.ms("clear_share", 1.4, 2.6), s.int("scratch_mib", 8, 24)
    gpu, out = s.gpu(ms), multiprocessing.Queue(maxsize=4)
    arena = mmap.mmap(-1, mib * MIB, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    each = took(lambda: swell(arena, 4, True)) / 4
    samples = s.keep("samples", max(round(ms * share / 1e3 / each), 1))
    s.supplier(child(fill_chamber, out, arena, samples, not s.fix, ms * 0.1).pid)
    s.loop(gpu, out.get)


class Region(http.server.BaseHTTPRequestHandler):
    """Has the shard, or knows who has, and is far away then."""
    protocol_version, disable_nagle_algorithm = "HTTP/1.1", True

    def do_GET(self):
        body = b"" if self.server.other else bytes(64 << 10)
        if self.server.other:
            time.sleep(self.server.late)
            self.send_response(307)
            self.send_header("Location", "http://127.0.0.1:%d%s" % (self.server.other, self.path))
        else:
            self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def two_regions(s):
    near, far = (http.server.ThreadingHTTPServer(("127.0.0.1", 0), Region) for _ in range(2))
    near.other, far.other, far.late = None, near.server_address[1], float(s.told("late")) / 1e3
    threading.Thread(target=far.serve_forever, daemon=True).start()
    s.tell("port", far.server_address[1])
    near.serve_forever()


def navigate(out, port, cost, remember):
    """Fetches shard after shard, by way of whom it was told to ask."""
    links, first = {}, port

    def ask(at, path):
        if at not in links:
            links[at] = http.client.HTTPConnection("127.0.0.1", at)
        links[at].request("GET", path)
        answer = links[at].getresponse()
        return answer.getheader("Location"), answer.read()
    for n in itertools.count():
        at, path = first, "/shard-%06d" % n
        there, body = ask(at, path)
        while there:
            at, path = urllib.parse.urlsplit(there).port, urllib.parse.urlsplit(there).path
            there, body = ask(at, path)
        if remember:
            first = at
        decode(cost)
        out.put(np.frombuffer(body, np.uint8))


@job(outside=two_regions, data="network_bound too_few_workers", rest="sync_bound launch_bound")
def wrong_cut(s):
    """The bucket was moved to the region where the job runs, and is near now; to blame is the old region's endpoint
    in the settings, which the workers ask for each object, to be redirected each time after a long way."""
    ms, workers = s.ms("gpu_ms", 12, 40), s.int("workers", 1, 3)
    late = ms * s.ms("late_share", 1.4, 2.8) * workers
    s.tell("late", late)
    gpu, out, port = s.gpu(ms), multiprocessing.Queue(maxsize=3), int(s.told("port"))
    pids = [child(navigate, out, port, ms * 0.04, s.fix).pid for _ in range(workers)]
    if workers == 1:
        s.supplier(pids[0])
    s.loop(gpu, out.get)


def spill(fd, first, pieces):
    """Writes so many pages, from a place on."""
    page = bytes(PAGE)
    for n in range(pieces):
        os.pwrite(fd, page, (first + n) * PAGE)


def raise_paddles(link, free, path, pieces, flags, cost):
    """Unpacks batches to one of three places in a scratch file, and tells to which."""
    fd = os.open(path, os.O_WRONLY | flags)
    for place in itertools.cycle(range(3)):
        free.acquire()
        decode(cost)
        spill(fd, place * pieces, pieces)
        link.send(place)


@job(data="io_bound", rest="sync_bound launch_bound")
def stiff_paddles(s):
    """A process unpacks batches to a scratch file, out of which the loop reads what is in the page cache anyway; to
    blame is that the scratch volume was mounted again with `sync` (here it is O_DSYNC), so that the process waits for
    the disk after each small write."""
    ms, share = s.ms("gpu_ms", 8, 25), s.ms("write_share", 1.5, 2.8)
    path, gpu = s.data_file("stiff_paddles", 24), s.gpu(ms)
    with open(path, "rb", buffering=0) as f:
        while f.read(MIB):  # from here on it is in memory
            pass
    fd = os.open(path, os.O_RDWR | os.O_DSYNC)
    each = took(lambda: spill(fd, 0, 30)) / 30
    pieces = s.keep("writes", min(max(round(ms * share / 1e3 / each), 2), 2000))
    mine, theirs = multiprocessing.Pipe(duplex=False)
    free = multiprocessing.Semaphore(3)
    s.supplier(child(raise_paddles, theirs, free, path, pieces, 0 if s.fix else os.O_DSYNC, ms * 0.08).pid)

    def obtain():
        place = mine.recv()
        x = np.frombuffer(os.pread(fd, min(pieces, 256) * PAGE, place * pieces * PAGE), np.uint8)
        free.release()
        return x
    s.loop(gpu, obtain)


MTU = 1400


def launch_punts(link):
    """Has all in memory, and sends it as it would to another machine."""
    cargo = memoryview(bytes(MTU * 500))
    while True:
        for first in range(0, len(cargo), MTU):
            link.send(cargo[first:first + MTU])


@job(data="ipc_bound", rest="sync_bound launch_bound")
def flat_punts(s):
    """A process has batches ready in memory; to blame is the way to the loop, a protocol that was made for the
    network and now runs over a Unix socket: datagrams no longer than a packet, some thousands for each batch, of
    which the socket holds few, so that both sides wake each other again and again."""
    ms, share = s.ms("gpu_ms", 8, 22), s.ms("hand_over_share", 0.6, 1.6)
    mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    gpu = s.gpu(ms)
    child(launch_punts, theirs)

    def take(x):
        view = memoryview(x)
        for first in range(0, len(x), MTU):
            mine.recv_into(view[first:first + MTU])
        return x
    some = np.zeros(MTU * 2000, np.uint8)
    many = int(2000 * ms * share / 1e3 / took(lambda: take(some)))
    x = np.zeros(MTU * s.keep("datagrams", min(max(many, 100), 40000) // (12 if s.fix else 1)), np.uint8)
    s.loop(gpu, lambda: take(x))


# ---- not for data


def flood(path, done, pieces, cargo):
    """Stages, for each step that is done, so much for the runs of tomorrow."""
    fd, place, most = os.open(path, os.O_WRONLY), 0, os.path.getsize(path)
    for n in itertools.count(1):
        while done.value < n:
            time.sleep(0.001)
        for _ in range(pieces):
            os.pwrite(fd, cargo, place)
            place = (place + len(cargo)) % most


@job(data=CPU, ckpt="checkpoint_stall", rest="sync_bound launch_bound")
def upstream_flood(s):
    """Batches come in time, and every step or few the loop keeps a resume point of a few pages; to blame is that it
    calls syncfs() for that, to be safe, and so waits until all is on the disk that a stager beside it, which nobody
    else waits for, has written to the same file system meanwhile."""
    ms, every, share = s.ms("gpu_ms", 8, 16), s.int("every", 1, 3), s.ms("sync_share", 0.7, 1.5)
    libc, cargo = ctypes.CDLL(None), os.urandom(256 << 10)
    staged, path = s.data_file("upstream_flood", 64), s.data_file("upstream_resume", 1)
    gpu, batch, state = s.gpu(ms), queued(ms * s.ms("load_share", 0.1, 0.3)), bytes(4 * PAGE)
    fd, other = os.open(path, os.O_RDWR), os.open(staged, os.O_WRONLY)

    def flushed():
        for n in range(64):
            os.pwrite(other, cargo, n * len(cargo))
        return once(lambda: libc.syncfs(fd))
    flushed()
    pieces = int(ms * share / 1e3 / max(flushed() / 64, 1e-5))
    pieces = s.keep("pieces", min(max(pieces, 1), 200 // every))
    done = multiprocessing.RawValue("q", 0)
    child(flood, staged, done, pieces, cargo)
    s.go()
    for n in itertools.count(1):
        done.value = n
        s.step(gpu, batch)
        if n % every == 0:
            with s.during("ckpt"):
                os.pwrite(fd, state, 0)
                if s.fix:
                    os.fdatasync(fd)
                else:
                    libc.syncfs(fd)


def push(place, text, pause, chance):
    """Sends metrics; where the collector can't be reached, it is tried three times more, ever later."""
    for attempt in range(4):
        try:
            with socket.create_connection(place, 1) as link:
                link.sendall(text)
                return True
        except OSError:
            if attempt < 3:
                time.sleep(pause * 2**attempt * chance.uniform(0.8, 1.2))
    return False


@job(data=CPU, host="host_bound", rest="sync_bound launch_bound")
def unmanned_tollbooth(s):
    """A thread has batches ready; to blame is the loop's callback for metrics: the collector's pod was removed, each
    push is refused at once, and the callback's client sleeps and tries again before it gives up, step after step."""
    ms, every = s.ms("gpu_ms", 8, 35), s.int("every", 1, 3)
    pause = ms * every * s.ms("back_off_share", 0.5, 1.6) / 7 / 1e3
    gpu, batch, chance = s.gpu(ms), threaded(ms * s.ms("load_share", 0.1, 0.3)), random.Random(1)
    booth, reached = socket.socket(), True
    booth.bind(("127.0.0.1", 0))  # nobody listens
    s.go()
    for n in itertools.count(1):
        s.step(gpu, batch)
        if n % every == 0 and (reached or not s.fix):
            with s.during("host"):
                reached = push(booth.getsockname(), b"loss %f\n" % gpu.loss.value, pause, chance)


# ---- nothing is wrong


def haul(out, threads, cost):
    """Has each batch cropped by a pool that is sized for a larger machine."""
    os.nice(10)
    pool = ThreadPoolExecutor(threads)
    while True:
        list(pool.map(decode, [cost / threads] * threads))
        out.put(np.zeros(20000, np.float32))


@job(data=CPU, rest="sync_bound launch_bound")
def mustered_bargees(s):
    """Nothing is to blame: each loader process has a pool of many more threads than there are cores, as of OpenMP,
    and for each batch all of them crowd the run queue; but they are niced, it soon ends, and batches are ahead."""
    ms, workers, threads = s.ms("gpu_ms", 25, 80), s.int("workers", 1, 2), s.int("threads", 6, 12)
    gpu, out, cost = s.gpu(ms), multiprocessing.Queue(maxsize=4), ms * workers * s.ms("load_share", 0.2, 0.5)
    for _ in range(workers):
        child(haul, out, threads, cost)
    s.loop(gpu, out.get)


def send(link, cost):
    while True:
        decode(cost)
        link.send(np.zeros(10000, np.float32))


def muster(pids, pause, stop):
    """A sampling profiler, which stops one after another to walk its stack."""
    for pid in itertools.cycle(pids):
        time.sleep(pause)
        os.kill(pid, signal.SIGSTOP)
        time.sleep(stop)
        os.kill(pid, signal.SIGCONT)


@job(data=CPU, rest="sync_bound launch_bound")
def inspected_crews(s):
    """Nothing is to blame: after an incident a sampling profiler was left attached to the workers, and stops one or
    another of them most of the time; but these are asked by turns, have little to do, and are always ahead."""
    ms, workers = s.ms("gpu_ms", 20, 70), s.int("workers", 2, 3)
    cost, ends, pids, gpu = ms * workers * s.ms("load_share", 0.06, 0.2), [], [], s.gpu(ms)
    for _ in range(workers):
        mine, theirs = multiprocessing.Pipe(duplex=False)
        pids.append(child(send, theirs, cost).pid)
        ends.append(mine)
    child(muster, pids, s.ms("pause_ms", 2, 4) / 1e3, s.ms("stop_ms", 4, 9) / 1e3)
    turn = itertools.cycle(ends)
    s.loop(gpu, lambda: next(turn).recv())
