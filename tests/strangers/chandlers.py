# SPDX-License-Identifier: BSD-2-Clause
"""At the chandlers': jobs that have it all in one process, where threads make the batches beside the loop."""
import collections
import concurrent.futures
import ctypes
import heapq
import itertools
import logging
import mmap
import os
import queue
import random
import socket
import struct
import sys
import threading
import time
import zlib

import numpy as np

from stranger import CPU, decode, job, parse

PAGE, MIB, BLOCK, H2D = 4096, 1 << 20, 8192, 1


def once(f):
    """Seconds that f takes."""
    begin = time.monotonic()
    f()
    return time.monotonic() - begin


def apart(f, *more):
    """Calls f in a thread that ends with the job."""
    threading.Thread(target=f, args=more, daemon=True).start()


def stocked(cost, places=4):
    """A thread some batches ahead: a queue without a limit, and a semaphore that is one."""
    room, shelf = threading.BoundedSemaphore(places), queue.SimpleQueue()

    def make():
        while True:
            room.acquire()
            decode(cost)
            shelf.put(np.zeros(30000, np.float32))

    def take():
        x = shelf.get()
        room.release()
        return x
    apart(make)
    return take


def promised(cost, ahead=3):
    """An executor's futures, asked for some batches ahead."""
    pool, due = concurrent.futures.ThreadPoolExecutor(2), collections.deque()

    def make():
        decode(cost)
        return np.zeros(30000, np.float32)

    def take():
        while len(due) <= ahead:
            due.append(pool.submit(make))
        return due.popleft().result()
    return take


# ---- the data is late


@job(data="io_bound", rest="sync_bound launch_bound")
def candle_orders(s):
    """Threads take orders from a PriorityQueue, by batch and then by place, and read every 37th page of a volume
    for each; the loop waits until its batch is whole, and to blame is the disk, as memory does not hold the volumes."""
    ms, share, threads = s.ms("gpu_ms", 8, 25), s.ms("read_share", 1.7, 3), s.int("threads", 2, 3)
    parts, ahead, count = s.int("parts", 3, 8), s.int("ahead", 2, 3), 64 * MIB // PAGE
    path = s.data_file("candle_orders", 64)
    fd = os.open(path, os.O_RDONLY)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)

    def read(place, pages):
        return b"".join([os.pread(fd, PAGE, (place + 37 * n) % count * PAGE) for n in range(pages)])
    with concurrent.futures.ThreadPoolExecutor(threads) as pool:
        each = once(lambda: list(pool.map(read, range(0, 15000, 1000), [40] * 15))) / 600
    pages = s.keep("pages", min(max(int(ms * share / 1e3 / each / parts), 4), 400))
    s.cold(path)
    while s.fix and os.read(fd, MIB):
        pass
    orders, whole, news, chance = queue.PriorityQueue(), collections.defaultdict(list), threading.Condition(), s.random
    gpu, turn = s.gpu(ms), itertools.count()

    def serve():
        while True:
            batch, place = orders.get()
            part = np.frombuffer(read(place, pages), np.uint8)
            if not s.fix:
                os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            with news:
                whole[batch].append(part)
                if len(whole[batch]) == parts:
                    news.notify()

    def order(batch):
        for _ in range(parts):
            orders.put((batch, chance.randrange(count)))

    def obtain():
        n = next(turn)
        order(n + ahead)
        with news:
            news.wait_for(lambda: len(whole[n]) == parts)
            return np.concatenate(whole.pop(n))
    for n in range(ahead):
        order(n)
    for _ in range(threads):
        apart(serve)
    s.loop(gpu, obtain)


@job(data="page_fault_io", rest="sync_bound launch_bound")
def tallow_sheets(s):
    """A thread has a store of records mapped, and fills a ring with their labels when each record's sum is right, as
    C without the interpreter finds it: to blame are the pages, for which the sum waits, as none is in memory."""
    ms, share, places = s.ms("gpu_ms", 8, 25), s.ms("check_share", 1.7, 3), s.int("places", 2, 4)
    fd, chance = os.open(s.data_file("tallow_sheets", 64), os.O_RDONLY), random.Random(1)
    base = mmap.mmap(fd, 0, access=mmap.ACCESS_READ)
    base.madvise(mmap.MADV_RANDOM)
    view, count = memoryview(base), len(base) // BLOCK

    def label():
        at = chance.randrange(count) * BLOCK
        return zlib.crc32(view[at:at + BLOCK]) & 255

    def forget():
        base.madvise(mmap.MADV_DONTNEED)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    many = int(ms * share / 1e3 / once(lambda: [label() for _ in range(200)]) * 200)
    many = s.keep("records", min(max(many, 8), 3000))
    forget()
    while s.fix and os.read(fd, MIB):
        pass
    ring, free, full = np.zeros((places, many), np.uint8), threading.Semaphore(places), threading.Semaphore(0)
    gpu, turn = s.gpu(ms), itertools.cycle(ring)

    def fill():
        for place in itertools.cycle(ring):
            labels = [label() for _ in range(many)]
            if not s.fix:
                forget()
            free.acquire()
            place[:] = labels
            full.release()

    def obtain():
        full.acquire()
        x = next(turn).copy()
        free.release()
        return x
    apart(fill)
    s.loop(gpu, obtain)


def light_vessel(s):
    """An instrument out at sea that gives a block for each datagram that asks for one."""
    late, door = float(s.told("late")) / 1e3, socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    door.bind(("127.0.0.1", 0))
    s.tell("port", door.getsockname()[1])
    while True:
        ask, who = door.recvfrom(64)
        time.sleep(late)
        door.sendto(ask + bytes(BLOCK), who)


@job(outside=light_vessel, data="network_bound", rest="sync_bound launch_bound")
def pilot_packets(s):
    """Learning at an instrument that speaks as in TFTP: a thread asks for block after block of its frames by datagrams,
    the next when the last is there; to blame is the way there and back, which each block costs anew."""
    ms, blocks = s.ms("gpu_ms", 12, 40), s.int("blocks", 5, 14)
    late = ms * s.ms("late_share", 1.4, 2.8) / blocks
    s.tell("late", late / 15 if s.fix else late)
    wire = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    wire.connect(("127.0.0.1", int(s.told("port"))))
    wire.settimeout(2)
    gpu, frames, changed = s.gpu(ms), collections.deque(), threading.Condition()

    def block(n):
        ask = struct.pack("!HI", 4, n % 2**32)
        wire.send(ask)
        while True:
            try:
                answer = wire.recv(BLOCK + 64)
            except TimeoutError:
                wire.send(ask)  # one of the two got lost
                continue
            if answer.startswith(ask):
                return answer[len(ask):]

    def receive():
        numbers = itertools.count()
        while True:
            frame = np.frombuffer(b"".join([block(next(numbers)) for _ in range(blocks)]), np.uint8)
            with changed:
                changed.wait_for(lambda: len(frames) < 3)
                frames.append(frame)
                changed.notify()

    def obtain():
        with changed:
            changed.wait_for(lambda: frames)
            x = frames.popleft()
            changed.notify()
        return x
    apart(receive)
    s.loop(gpu, obtain)


class PackedTrail(logging.Handler):
    """Keeps an audit's lines packed, and by logging's rules packs under the handler's lock."""

    def __init__(self, cost):
        super().__init__()
        self.cost, self.lines = cost, 0

    def emit(self, record):
        decode(self.cost)
        self.lines += 1


@job(data="lock_bound", rest="sync_bound launch_bound")
def inventory_clerk(s):
    """Threads decode samples in C and enter each in an audit's log, with its thumbnail: to blame is the handler, which
    packs what it gets, as Handler.handle() lets one thread at a time in, and the others stand before its lock."""
    ms, threads, samples = s.ms("gpu_ms", 10, 40), s.int("threads", 2, 3), s.int("samples", 3, 7)
    packing = ms * s.ms("pack_share", 1.5, 2.6) / samples
    cost, gpu, out = ms * s.ms("load_share", 0.1, 0.35) / samples, s.gpu(ms), queue.Queue(3)
    audit = logging.getLogger("audit")
    audit.setLevel(logging.INFO)
    audit.propagate = False
    audit.addHandler(PackedTrail(packing / 20 if s.fix else packing))

    def make():
        while True:
            batch = np.zeros((samples, 5000), np.float32)
            for n, sample in enumerate(batch):
                decode(cost)
                sample += n
                audit.info("sample %d of %d", n, samples)
            out.put(batch)
    for _ in range(threads):
        apart(make)
    s.loop(gpu, out.get)


@job(data="slow_worker", rest="sync_bound launch_bound")
def senior_dipper(s):
    """Three threads have a shard and a queue each, and the loop takes from them by turns; to blame is the one that
    came first and has the upkeep of the common cache: after each of its batches it packs what all have put there."""
    ms, first, places = s.ms("gpu_ms", 10, 35), s.int("first", 0, 2), s.int("places", 1, 2)
    cost, upkeep = 3 * ms * s.ms("load_share", 0.08, 0.2), 3 * ms * s.ms("upkeep_share", 1.4, 2.2)
    gpu, queues, recent = s.gpu(ms), [queue.Queue(places) for _ in range(3)], collections.deque(maxlen=12)

    def dip(n):
        while True:
            decode(cost)
            recent.append(np.full(20000, n, np.float32))
            if n == first and not s.fix:
                decode(upkeep)
                recent.clear()
            queues[n].put(np.full(20000, n, np.float32))
    for n in range(3):
        apart(dip, n)
    turn = itertools.cycle(queues)
    s.loop(gpu, lambda: next(turn).get())


@job(data="slow_item", rest="sync_bound launch_bound")
def bent_tapers(s):
    """Two threads cut passages from audio books, a heap puts them in order again, and tokens bound how far they run
    ahead; to blame are the few books without a table for seeking, which are decoded from their first word on."""
    ms, every = s.ms("gpu_ms", 8, 25), s.int("every", 7, 11)
    cost, whole = ms * s.ms("load_share", 0.1, 0.4), ms * s.ms("whole_steps", 9, 14)
    gpu, numbers, turn = s.gpu(ms), itertools.count(1), itertools.count(1)
    tokens, shelf, news = threading.Semaphore(3), [], threading.Condition()

    def cut():
        while True:
            tokens.acquire()
            n = next(numbers)
            decode(whole if n % every == 0 and not s.fix else cost)
            with news:
                heapq.heappush(shelf, (n, np.zeros(20000, np.float32)))
                news.notify()

    def obtain():
        n = next(turn)
        with news:
            news.wait_for(lambda: shelf and shelf[0][0] == n)
            x = heapq.heappop(shelf)[1]
        tokens.release()
        return x
    for _ in range(2):
        apart(cut)
    s.loop(gpu, obtain)


@job(data="main_thread_loading", rest="sync_bound launch_bound")
def late_snuffer(s):
    """A pool fetches one batch ahead, and add_done_callback(collate) is meant to have its threads collate as well: to
    blame is that the loop adds it when it wants the batch: on a future that is done it runs at once, in the loop."""
    ms = s.ms("gpu_ms", 10, 40)
    fetching, cost = ms * s.ms("fetch_share", 0.05, 0.2), ms * s.ms("collate_share", 0.6, 1.4)
    pool, due, done = concurrent.futures.ThreadPoolExecutor(2), collections.deque(), queue.SimpleQueue()
    gpu = s.gpu(ms)

    def fetch():
        decode(fetching)
        return bytes(100000)

    def collate(future):
        decode(cost)
        done.put(np.frombuffer(future.result(), np.uint8))

    def ask():
        due.append(pool.submit(fetch))
        if s.fix:
            due[-1].add_done_callback(collate)

    def obtain():
        ask()
        future = due.popleft()
        if not s.fix:
            future.add_done_callback(collate)
        return done.get()
    ask()
    s.loop(gpu, obtain)


class Background(threading.Thread):
    """As prefetch_generator has it: runs an iterator in a thread, one item ahead."""

    def __init__(self, items):
        super().__init__(daemon=True)
        self.items, self.kept = items, queue.Queue(1)
        self.start()

    def run(self):
        for item in self.items:
            self.kept.put(item)

    def __iter__(self):
        return self

    def __next__(self):
        return self.kept.get()


@job(data=CPU + " lock_bound", threads=True, rest="lock_bound")
def triple_dipping(s):
    """Each of a few generators, which parse, map and filter records, has @background() before it, so that all of them
    may work at once; to blame is that they are Python, as the interpreter's lock has these threads take turns."""
    ms, stages, launches = s.ms("gpu_ms", 25, 50), s.int("stages", 2, 4), s.int("launches", 1, 2)
    cost, gpu = ms * s.ms("parse_share", 1.6, 2.4) / stages, s.gpu(ms, launches=launches)

    def stage(items):
        for item in items:
            parse(cost / 10 if s.fix else cost)
            yield item + 1
    batches = (np.zeros(20000, np.float32) for _ in itertools.count())
    for _ in range(stages):
        batches = Background(stage(batches))
    s.loop(gpu, batches.__next__)


# ---- not for data


@job(data=CPU, host="host_bound", rest="sync_bound launch_bound")
def candle_count(s):
    """Batches come in time from a thread, and another works each step's scores into the metrics: to blame is the loop,
    which waits by Queue.join() after each step until that is done, lest a figure be logged a step late."""
    ms = s.ms("gpu_ms", 10, 40)
    cost, gpu = ms * s.ms("count_share", 0.5, 1.6), s.gpu(ms)
    batch, scores, seen = stocked(ms * s.ms("load_share", 0.1, 0.3)), queue.Queue(), collections.Counter()

    def count():
        while True:
            score = scores.get()
            decode(cost)  # ranks, a curve and the area below it
            seen[round(score, 1)] += 1
            scores.task_done()
    apart(count)
    s.go()
    while True:
        s.step(gpu, batch)
        with s.during("host"):
            if not s.fix:
                scores.put(gpu.loss.value)
                scores.join()
            elif scores.empty():
                scores.put(gpu.loss.value)


@job(data=CPU, lock="lock_bound host_bound", host="host_bound", rest="sync_bound launch_bound")
def shared_almanac(s):
    """Two threads score held-out data by a copy of the weights, which the loop renews after each step; to blame is the
    lock for readers and a writer, under which the loop waits until neither reads; batches are there in time."""
    ms = s.ms("gpu_ms", 10, 35)
    hold = ms * s.ms("read_share", 0.5, 1.0)
    pause = hold * s.ms("pause_share", 0.65, 0.9)
    gpu, batch, calm, reading = s.gpu(ms), promised(ms * s.ms("load_share", 0.1, 0.25)), threading.Condition(), set()
    live = np.ones(s.int("kib", 100, 2000) << 8, np.float32)
    shown = live.copy()

    def score(n):
        chance = random.Random(n)
        while True:
            if not s.fix:  # else it has taken a copy
                with calm:
                    reading.add(n)
            decode(hold * chance.uniform(0.6, 1.4))
            with calm:
                reading.discard(n)
                if not reading:
                    calm.notify()
            time.sleep(pause * chance.uniform(0.6, 1.4) / 1e3)
    for n in range(2):
        apart(score, n)
    s.go()
    while True:
        s.step(gpu, batch)
        with s.during("lock"):
            calm.acquire()
            calm.wait_for(lambda: not reading)
        with s.during("host"):
            shown[:] = live
        calm.release()


# ---- nothing is wrong


@job(data=CPU, rest="sync_bound launch_bound")
def twin_moulds(s):
    """Nothing is to blame: loop and thread meet at a threading.Barrier in each step and swap two buffers, and it is the
    thread that waits; another one looks at all stacks a hundred times a second, as a profiler in the process does."""
    ms = s.ms("gpu_ms", 22, 75)
    cost, gpu, meet, turn = ms * s.ms("load_share", 0.25, 0.65), s.gpu(ms), threading.Barrier(2), itertools.count()
    pair, hits = np.zeros((2, s.int("floats", 10000, 100000)), np.float32), collections.Counter()

    def cast():
        for n in itertools.count():
            decode(cost)
            pair[n % 2] = n
            meet.wait()

    def look():
        while True:
            time.sleep(0.01)
            for frame in sys._current_frames().values():
                hits[frame.f_code.co_name] += 1

    def obtain():
        meet.wait()
        return pair[next(turn) % 2]
    apart(cast)
    apart(look)
    s.loop(gpu, obtain)


@job(data=CPU, host="host_bound", rest="sync_bound launch_bound")
def lamp_trimmer(s):
    """Nothing is to blame: a busy thread decodes into page-locked memory and copies on its own stream, ahead; as a
    watchdog the loop has a threading.Timer, thus a new thread, at each step, which it cancels in time."""
    ms, size, places = s.ms("gpu_ms", 25, 75), s.int("kib", 100, 900) << 10, s.int("places", 4, 5)
    gpu, side, free, full = s.gpu(ms), ctypes.c_void_p(), queue.SimpleQueue(), queue.SimpleQueue()
    lib, cost = gpu.lib, ms * s.ms("load_share", 0.3, 0.65)
    gpu.check(lib.cudaStreamCreate(ctypes.byref(side)))
    for _ in range(places):
        there = ctypes.c_void_p()
        gpu.check(lib.cudaMalloc(ctypes.byref(there), size))
        free.put((there, gpu.host_buffer(size)))

    def stage():
        while True:
            there, here = free.get()
            decode(cost)
            ctypes.memset(here, 1, size)
            gpu.check(lib.cudaMemcpyAsync(there, here, size, H2D, side))
            gpu.check(lib.cudaStreamSynchronize(side))
            full.put((there, here))

    def armed():
        timer = threading.Timer(60, os.abort)
        timer.daemon = True
        timer.start()
        return timer
    apart(stage)
    s.go()
    while True:
        s.mark()
        timer = armed()
        with s.during("data"):
            place = full.get()
        s.train(gpu)
        free.put(place)
        with s.during("host"):
            timer.cancel()
