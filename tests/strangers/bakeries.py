# SPDX-License-Identifier: BSD-2-Clause
"""A bakery by night: how batches are made ahead, ordered, tried again, mixed and handed over."""
import base64
import collections
import concurrent.futures
import itertools
import multiprocessing
import os
import random
import socket
import struct
import threading
import time

import numpy as np

from stranger import CPU, child, decode, job, mortal, parse

H2D = 1


def bake(out, cost, floats):
    while True:
        decode(cost)
        out.put(np.zeros(floats, np.float32))


def in_time(s, ms, low, high, floats=40000):
    """A process that needs this share of a step for each batch, and a short queue."""
    out = multiprocessing.Queue(maxsize=4)
    child(bake, out, ms * s.ms("load_share", low, high), floats)
    return out.get


# ---- nothing is wrong


def bake_on(out, cost, floats):
    while True:
        decode(cost)
        out.send(np.zeros(floats, np.float32))


@job(data=CPU, rest="sync_bound launch_bound")
def stale_rolls(s):
    """A process bakes without pause, a thread keeps the freshest few and drops older ones; no harm."""
    ms = s.ms("gpu_ms", 12, 70)
    gpu, cost = s.gpu(ms), ms * s.ms("load_share", 0.2, 0.5)
    ours, theirs = multiprocessing.Pipe(duplex=False)
    child(bake_on, theirs, cost, s.int("kib", 50, 200) << 8)
    shelf, some = collections.deque(maxlen=s.int("shelf", 3, 8)), threading.Condition()

    def carry():
        while True:
            x = ours.recv()
            with some:
                shelf.append(x)
                some.notify()

    def freshest():
        with some:
            some.wait_for(lambda: shelf)
            return shelf.pop()
    threading.Thread(target=carry, daemon=True).start()
    s.loop(gpu, freshest)


def bake_every_other(out, first, cost, spoilt):
    for n in itertools.count(first, 2):
        for _ in range(3 if n % spoilt == 0 else 1):
            decode(cost)
        out.put((n, np.zeros(40000, np.float32)))


@job(data=CPU, rest="sync_bound launch_bound")
def spare_dough(s):
    """Two makers, put in order; now and then one bakes a batch thrice, but is far enough ahead."""
    ms = s.ms("gpu_ms", 12, 70)
    gpu, cost = s.gpu(ms), 2 * ms * s.ms("load_share", 0.12, 0.3)
    out, spoilt = multiprocessing.Queue(maxsize=s.int("ahead", 8, 16)), s.one("spoilt", 9, 11, 13)
    for first in (0, 1):
        child(bake_every_other, out, first, cost, spoilt)
    numbers, early = itertools.count(), {}

    def in_order():
        n = next(numbers)
        while n not in early:
            m, x = out.get()
            early[m] = x
        return early.pop(n)
    s.loop(gpu, in_order)


# ---- it looks like the data, and is not


def bake_again(out, back, cost):
    kept = collections.deque(maxlen=200)
    while True:
        while not back.empty():
            kept.extend(back.get())
        decode(cost)
        out.put((len(kept), np.zeros(40000, np.float32)))


@job(data=CPU, host="host_bound", rest="sync_bound launch_bound")
def second_bake(s):
    """A busy oven keeps up; after each step the loop sorts out in Python which loaves go back in."""
    ms = s.ms("gpu_ms", 8, 35)
    gpu, cost = s.gpu(ms), ms * s.ms("load_share", 0.3, 0.7)
    sort_ms = ms * s.ms("sort_share", 0.35, 1.6)
    out, back, loaves = multiprocessing.Queue(maxsize=4), multiprocessing.Queue(), s.int("loaves", 8, 64)
    child(bake_again, out, back, cost)
    s.go()
    while True:
        s.step(gpu, lambda: out.get()[1])
        with s.during("host"):
            parse(0.1 if s.fix else sort_ms)
            back.put(sorted(s.random.sample(range(5000), loaves))[:loaves // 2])


@job(data=CPU, rest="transfer_bound launch_bound sync_bound host_bound")
def crumb_copies(s):
    """A busy oven keeps up; the loop shuffles by a small blocking copy to the device for each row."""
    ms, width = s.ms("gpu_ms", 5, 20), s.one("row_bytes", 128, 256)
    rows = int(ms * s.int("rows_a_ms", 120, 300))
    gpu = s.gpu(ms, input_bytes=rows * width)
    batch = in_time(s, ms, 0.2, 0.6, floats=rows * width // 4)
    chance, copy = np.random.default_rng(1), gpu.lib.cudaMemcpy
    orders = [(chance.permutation(rows) * width).tolist() for _ in range(8)]
    s.go()
    for n in itertools.count():
        s.mark()
        with s.during("data"):
            x = batch()
        if s.fix:
            s.train(gpu, x)
            continue
        source, target = x.ctypes.data, gpu.input.value
        for place, offset in enumerate(orders[n % 8]):
            gpu.check(copy(target + place * width, source + offset, width, H2D))
        s.train(gpu)


# ---- what is made, and made again


def bake_until_good(out, cost, trays, burnt, seed):
    chance = random.Random(seed)
    while True:
        while True:
            for _ in range(trays):
                decode(cost / trays)
            if chance.random() >= burnt:
                break
        out.put(np.zeros(40000, np.float32))


@job(data=CPU + " slow_item", rest="sync_bound launch_bound")
def burnt_batch(s):
    """One process decodes, and decodes a whole batch anew if one tin was spoilt: it computes too much."""
    ms = s.ms("gpu_ms", 8, 35)
    gpu, cost = s.gpu(ms), ms * s.ms("clean_share", 1.05, 1.6)
    burnt, out = s.ms("burnt", 0.25, 0.5), multiprocessing.Queue(maxsize=3)
    if s.fix:
        cost, burnt = cost / 5, 0
    p = child(bake_until_good, out, cost, s.int("trays", 4, 12), burnt, s.random.random())
    s.supplier(p.pid)
    s.loop(gpu, out.get)


def bake_tray(out, heat, cost, good):
    parse(heat)
    for _ in range(good):
        decode(cost)
        out.send(np.zeros(40000, np.float32))


@job(data="loader_restart", rest="sync_bound launch_bound")
def fallen_souffle(s):
    """A bad record ends the loader every few batches; an except clause starts it anew, at length."""
    ms, good = s.ms("gpu_ms", 6, 25), s.int("good", 4, 12)
    gpu, cost = s.gpu(ms), ms * s.ms("load_share", 0.1, 0.4)
    heat = 0.5 if s.fix else ms * good * s.ms("heat_share", 0.4, 1.5)

    def start():
        ours, theirs = multiprocessing.Pipe(duplex=False)
        child(bake_tray, theirs, heat, cost, good)
        theirs.close()
        return ours
    feed = start()

    def once_more():
        nonlocal feed
        while True:
            try:
                return feed.recv()
            except EOFError:
                feed.close()
                feed = start()
    s.loop(gpu, once_more)


def roll(cost):
    decode(cost)
    return np.zeros(40000, np.float32)


@job(data=CPU + " slow_item", rest="sync_bound launch_bound")
def wedding_cakes(s):
    """A pool makes batches in time, but big orders for a report queue in the same pool before them."""
    ms, every, tiers = s.ms("gpu_ms", 8, 25), s.int("every", 5, 10), s.one("tiers", 2, 4)
    gpu, cost, cake = s.gpu(ms), ms * s.ms("load_share", 0.2, 0.6), ms * s.ms("cake_share", 5, 9)
    pool = concurrent.futures.ProcessPoolExecutor(2, initializer=mortal, initargs=(os.getpid(),))
    ahead = collections.deque(pool.submit(roll, cost) for _ in range(2))
    for ready in list(ahead):
        ready.result()
    s.go()
    for n in itertools.count(1):
        if n % every == 0 and not s.fix:
            for _ in range(tiers):
                pool.submit(decode, cake)
        ahead.append(pool.submit(roll, cost))
        s.step(gpu, lambda: ahead.popleft().result())


# ---- who waits for whom


def bake_with(out, bowls, cost):
    while True:
        for bowl in bowls:
            bowl.acquire()
        decode(cost)
        for bowl in bowls:
            bowl.release()
        out.put(np.zeros(40000, np.float32))


@job(data="lock_bound", rest="sync_bound launch_bound")
def two_bowls(s):
    """Three makers and three locked bowls, of which each dough takes two: only one of them ever works."""
    ms = s.ms("gpu_ms", 8, 35)
    gpu, cost = s.gpu(ms), ms * s.ms("load_share", 1.35, 2.8)
    out, bowls = multiprocessing.Queue(maxsize=3), [multiprocessing.Lock() for _ in range(3)]
    for n in range(3):
        mine = sorted((n, (n + 1) % 3))  # all take them in one order
        child(bake_with, out, [bowls[k] for k in mine], cost / 5 if s.fix else cost)
    s.loop(gpu, out.get)


def tell_marks(out, beat, slots):
    for mark in itertools.count(slots, slots):
        decode(beat)
        out.send(mark)


@job(data="slow_worker " + CPU, rest="sync_bound launch_bound")
def proofing_mark(s):
    """Two sources have batches waiting, given out up to the mark that a third, far slower, reached."""
    ms, slots = s.ms("gpu_ms", 6, 25), s.int("slots", 1, 4)
    gpu, cost = s.gpu(ms), ms * s.ms("load_share", 0.1, 0.3)
    beat = ms * slots * s.ms("beat_share", 1.35, 2.8) / (10 if s.fix else 1)
    quick = []
    for _ in range(2):
        ours, theirs = multiprocessing.Pipe(duplex=False)
        child(bake_on, theirs, cost, 40000)
        quick.append(ours)
    marks, theirs = multiprocessing.Pipe(duplex=False)
    s.supplier(child(tell_marks, theirs, beat, slots).pid)
    numbers, mark = itertools.count(1), 0

    def released():
        nonlocal mark
        n = next(numbers)
        while n > mark:
            mark = marks.recv()
        return quick[n % 2].recv()
    s.loop(gpu, released)


def bake_till(out, cost, until, word):
    for n in itertools.count():
        if n == until:
            word.recv()
        decode(cost)
        out.send(np.zeros(40000, np.float32))


@job(data="hung_worker", rest="sync_bound launch_bound")
def absent_baker(s):
    """Three makers are asked by turns, with patience; one waits for ever for a word that nobody sends."""
    ms = s.ms("gpu_ms", 6, 25)
    gpu, cost = s.gpu(ms), ms * s.ms("load_share", 0.2, 0.7)
    patience, until = ms * s.ms("patience_share", 0.9, 3.5) / 1e3, s.int("until", 3, 10)
    absent, counters, words = s.int("absent", 0, 2), [], []
    for n in range(3):
        ours, theirs = multiprocessing.Pipe(duplex=False)
        heard, mouth = multiprocessing.Pipe(duplex=False)
        child(bake_till, theirs, cost, until if n == absent and not s.fix else -1, heard)
        counters.append(ours)
        words.append((heard, mouth))  # open, but silent
    turns = itertools.cycle(counters)

    def patient():
        while True:
            counter = next(turns)
            if counter.poll(patience):
                return counter.recv()
    s.loop(gpu, patient)


# ---- how it is fetched and handed over


def depot(s):
    """Sends the asked parts of a batch as datagrams, of which the way there loses some."""
    loss, chance, body = float(s.told("loss")), random.Random(1), bytes(1400)
    door = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    door.bind(("127.0.0.1", 0))
    s.tell("port", door.getsockname()[1])
    while True:
        ask, whom = door.recvfrom(4096)
        n, *parts = struct.unpack("<%dI" % (len(ask) // 4), ask)
        for part in parts:
            if chance.random() >= loss:
                door.sendto(struct.pack("<II", n, part) + body, whom)


def collect(out, port, parts, patience):
    link = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    link.connect(("127.0.0.1", port))
    link.settimeout(patience)
    for n in itertools.count():
        got = {}
        while len(got) < parts:
            missing = [k for k in range(parts) if k not in got]
            link.send(struct.pack("<%dI" % (1 + len(missing)), n, *missing))
            try:
                while len(got) < parts:
                    tin = link.recv(2048)
                    batch, part = struct.unpack_from("<II", tin)
                    if batch == n:
                        got[part] = tin[8:]
            except TimeoutError:
                pass  # what is missing is asked for again
        out.put(np.frombuffer(b"".join(got[k] for k in range(parts)), np.uint8))


@job(outside=depot, data="network_bound too_few_workers", rest="sync_bound launch_bound")
def lost_tins(s):
    """Datagrams with parts of batches get lost on the network; a process waits long to ask again."""
    ms = s.ms("gpu_ms", 8, 30)
    gpu, patience = s.gpu(ms), ms * s.ms("patience_share", 1.3, 2) / 1e3
    loss, parts = s.ms("loss", 0.1, 0.25), s.int("parts", 20, 48)
    s.tell("loss", 0 if s.fix else loss)
    out = multiprocessing.Queue(maxsize=3)
    s.supplier(child(collect, out, int(s.told("port")), parts, patience).pid)
    s.loop(gpu, out.get)


def sieve(out, path, cost, seed):
    fd, chance = os.open(path, os.O_RDONLY), random.Random(seed)
    blocks = os.fstat(fd).st_size >> 14
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
    while True:
        end = time.monotonic() + cost / 1e3
        while time.monotonic() < end:
            flour = os.pread(fd, 1 << 14, chance.randrange(blocks) << 14)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        out.put(np.frombuffer(flour * 8, np.uint8))


@job(data="io_bound too_few_workers", rest="sync_bound launch_bound")
def bran_sieve(s):
    """A process reads cold records all over a file and drops most of them: it waits for the disk."""
    ms = s.ms("gpu_ms", 8, 35)
    gpu, cost = s.gpu(ms), ms * s.ms("load_share", 1.35, 2.8)
    path, out = s.data_file("bran", 96), multiprocessing.Queue(maxsize=3)
    p = child(sieve, out, path, cost / 8 if s.fix else cost, s.random.random())
    s.supplier(p.pid)
    s.loop(gpu, out.get)


def wrap(fd, size):
    bag = base64.b64encode(os.urandom(size)) + b"\n"
    with open(fd, "wb") as street:
        while True:
            street.write(bag)
            street.flush()


@job(data="ipc_bound main_thread_loading", rest="sync_bound launch_bound")
def paper_bags(s):
    """Ready batches are printed as base64, line by line, into a pipe: the hand-over takes the time."""
    ms = s.ms("gpu_ms", 8, 35)
    gpu, size = s.gpu(ms), int(ms * s.ms("kib_a_ms", 100, 350)) << 10
    if s.fix:
        size //= 20
    mine, theirs = os.pipe()
    child(wrap, theirs, size)
    street = open(mine, "rb")
    s.loop(gpu, lambda: np.frombuffer(base64.b64decode(street.readline()), np.uint8))


def bring(out, cost, loaves):
    while True:
        decode(cost)
        out.put([np.zeros(2000, np.float32) for _ in range(loaves)])


@job(data="main_thread_loading", rest="sync_bound launch_bound")
def twin_loaves(s):
    """Candidates come in time; the loop itself seeks near duplicates of each, in Python, for a batch."""
    ms, loaves = s.ms("gpu_ms", 8, 35), s.int("loaves", 8, 48)
    gpu, cost = s.gpu(ms), ms * s.ms("load_share", 0.1, 0.4)
    compare = ms * s.ms("compare_share", 0.4, 1.8) / loaves / (20 if s.fix else 1)
    out = multiprocessing.Queue(maxsize=4)
    child(bring, out, cost, loaves)

    def unlike():
        fresh = []
        for loaf in out.get():
            parse(compare)
            fresh.append(loaf)
        return np.stack(fresh)
    s.loop(gpu, unlike)
