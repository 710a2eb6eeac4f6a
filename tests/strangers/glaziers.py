# SPDX-License-Identifier: BSD-2-Clause
"""At the glaziers': pipelines of several stages, each with its buffers, of which one pane is missing."""
import collections
import hashlib
import heapq
import itertools
import mmap
import multiprocessing
import os
import queue
import random
import selectors
import socket
import struct
import threading
import time

import numpy as np

from stranger import CPU, child, decode, job

PAGE, MIB = 4096, 1 << 20
ORDER, SHEET = 16, 8192
ROWS = 32


def took(f):
    """Seconds that f takes once it is warm."""
    f()
    begin = time.monotonic()
    f()
    return time.monotonic() - begin


def ahead(receive, depth=2):
    """A thread of the trainer that receives so many batches ahead of the loop."""
    kept = queue.Queue(depth)

    def run():
        while True:
            kept.put(receive())
    threading.Thread(target=run, daemon=True).start()
    return kept.get


def supply(out, cost, shape):
    while True:
        decode(cost)
        out.put(np.ones(shape, np.float32))


def supplied(cost, shape):
    """A process and a queue."""
    out = multiprocessing.Queue(maxsize=4)
    child(supply, out, cost, shape)
    return out.get


def blow(link, credit, cost):
    while True:
        decode(cost)
        credit.acquire()
        link.send_bytes(bytes(24 << 10))


def blowers(costs):
    """A process for each cost, with a pipe and room for two; returns the near ends and the pids."""
    ends, pids = [], []
    for cost in costs:
        mine, theirs = multiprocessing.Pipe(duplex=False)
        credit = multiprocessing.Semaphore(2)
        pids.append(child(blow, theirs, credit, cost).pid)
        ends.append((mine, credit))
    return ends, pids


def take(link, credit):
    part = np.frombuffer(link.recv_bytes(), np.float32)
    credit.release()
    return part


# ---- the data is late


def best_fit(lengths):
    """Row, place and length of each document, where it leaves the least room."""
    room = 3 * sum(lengths) // (2 * ROWS) + 100
    left, places = [room] * ROWS, []
    for length in sorted(lengths, reverse=True):
        fits = [(space - length, row) for row, space in enumerate(left) if space >= length]
        space, row = min(fits)
        places.append((row, room - left[row], length))
        left[row] = space
    return np.array(places, np.int32)


def tokenize(out, many, cost, seed):
    chance = np.random.default_rng(seed)
    while True:
        decode(cost)
        out.put(chance.integers(1, 100, many))


def fit_rows(documents, out, parts):
    while True:
        out.put(best_fit(np.concatenate([documents.get() for _ in range(parts)]).tolist()))


@job(data=CPU, rest="sync_bound launch_bound")
def fitted_quarries(s):
    """Pre-training: two processes tokenize documents into one queue, first come first served, the next one packs them
    into rows, and a thread of the trainer takes the rows in two batches ahead; to blame is the packing process, which
    for each document looks in Python for the row with the tightest fit."""
    ms, share, parts = s.ms("gpu_ms", 8, 25), s.ms("pack_share", 1.5, 2.6), s.int("parts", 4, 8)
    cost, gpu = ms * share * s.ms("load_share", 0.2, 0.4) / parts, s.gpu(ms)
    some = np.random.default_rng(0).integers(1, 100, 1000).tolist()
    each = took(lambda: best_fit(some)) / 1000
    many = s.keep("documents", max(int(ms * share / 1e3 / each / parts), 12))
    documents, out = multiprocessing.Queue(maxsize=32), multiprocessing.Queue(maxsize=2)
    for seed in (1, 2):
        child(tokenize, documents, many // 6 if s.fix else many, cost, seed)
    s.supplier(child(fit_rows, documents, out, parts).pid)
    s.loop(gpu, ahead(out.get))


def interleave(ends, out):
    while True:
        out.put(np.concatenate([take(*end) for end in ends]))


@job(data="slow_worker", rest="sync_bound launch_bound")
def ruby_glass(s):
    """Two models in turns: the second has a loader that keeps up, the first one's batches are put together by a
    process from one part of each of three workers; to blame is the one worker whose shard has a far costlier codec."""
    first_ms, second_ms = s.ms("first_ms", 6, 15), s.ms("second_ms", 6, 15)
    both, ruby = first_ms + second_ms, s.int("ruby", 0, 2)
    slow, quick = both * s.ms("ruby_share", 1.6, 2.6), both * s.ms("clear_share", 0.1, 0.25)
    first, second = s.gpu(first_ms), s.gpu(second_ms)
    ends, pids = blowers([slow if n == ruby and not s.fix else quick for n in range(3)])
    s.supplier(pids[ruby])
    joined = multiprocessing.Queue(maxsize=2)
    child(interleave, ends, joined)
    other = supplied(both * s.ms("load_share", 0.15, 0.35), 20000)
    s.go()
    while True:
        first.enter_thread()
        s.step(first, joined.get)
        second.enter_thread()
        s.step(second, other)


def bucketed(seed, guards, arena, filled, out, cost, hold):
    """Adds text after text to its length's bucket, and hands over the buckets that are full."""
    chance = random.Random(seed)
    while True:
        decode(cost)
        n, full = chance.randrange(len(arena)), None
        with guards[n]:
            decode(hold)
            arena[n, filled[n]] = seed
            filled[n] += 1
            if filled[n] == len(arena[n]):
                full, filled[n] = arena[n].copy(), 0
        if full is not None:
            out.put(full)


@job(data="lock_bound", rest="sync_bound launch_bound")
def grozing_iron(s):
    """Three processes sort texts into buckets by length, which lie in shared memory; a full bucket is a batch, and
    goes through a queue to a thread of the trainer; to blame is the one lock for all of the buckets, under which a
    process also recodes what it adds."""
    ms, share = s.ms("gpu_ms", 8, 30), s.ms("hold_share", 1.5, 2.6)
    buckets, rows = s.int("buckets", 2, 4), s.int("rows", 4, 8)
    hold, gpu, out = ms * share / rows, s.gpu(ms), multiprocessing.Queue(maxsize=2)
    arena = np.frombuffer(multiprocessing.RawArray("f", buckets * rows * 2500), np.float32)
    arena, filled = arena.reshape(buckets, rows, 2500), multiprocessing.RawArray("i", buckets)
    one = multiprocessing.Lock()
    guards = [multiprocessing.Lock() if s.fix else one for _ in range(buckets)]
    for seed in range(3):
        child(bucketed, seed, guards, arena, filled, out, hold * 0.1, hold / 4 if s.fix else hold)
    s.loop(gpu, ahead(out.get))


def far_glassworks(s):
    """Answers each order a while after it has come, however many others are under way."""
    late = float(s.told("late")) / 1e3
    door = socket.create_server(("127.0.0.1", 0))
    s.tell("port", door.getsockname()[1])
    link, due = door.accept()[0], queue.SimpleQueue()
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def deliver():
        while True:
            time.sleep(max(due.get() - time.monotonic(), 0))
            link.sendall(bytes(SHEET))
    threading.Thread(target=deliver, daemon=True).start()
    while link.recv(ORDER, socket.MSG_WAITALL):
        due.put(time.monotonic() + late)


def order_sheets(port, window, link):
    """Has so many orders under way, on one connection."""
    with socket.create_connection(("127.0.0.1", port)) as far:
        far.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        far.sendall(bytes(ORDER * window))
        while sheet := far.recv(SHEET, socket.MSG_WAITALL):
            far.sendall(bytes(ORDER))
            link.send_bytes(sheet)


def cut_sheets(link, out, sheets, cost):
    while True:
        parts = [link.recv_bytes() for _ in range(sheets)]
        decode(cost)
        out.put(np.frombuffer(b"".join(parts), np.uint8))


@job(outside=far_glassworks, data="network_bound too_few_workers", rest="sync_bound launch_bound")
def ordered_sheets(s):
    """A process streams chunks from a far store, with a small window of requests under way on one connection, and
    pipes them to a busy one that unpacks several for a batch; to blame is the store, which takes long to answer."""
    ms, window, sheets = s.ms("gpu_ms", 10, 35), s.int("window", 2, 4), s.int("sheets", 6, 12)
    late = ms * s.ms("late_share", 1.5, 2.8) * window / sheets
    s.tell("late", late / 15 if s.fix else late)
    gpu, port, out = s.gpu(ms), int(s.told("port")), multiprocessing.Queue(maxsize=2)
    mine, theirs = multiprocessing.Pipe(duplex=False)
    s.supplier(child(order_sheets, port, window, theirs).pid)
    child(cut_sheets, mine, out, sheets, ms * s.ms("cut_share", 0.2, 0.5))
    s.loop(gpu, out.get)


def publish(link, batch):
    while True:
        link.send_bytes(batch)


def publish_all(links, batch):
    """A thread for each subscriber."""
    for link in links[1:]:
        threading.Thread(target=publish, args=(link, batch), daemon=True).start()
    publish(links[0], batch)


@job(data="ipc_bound", rest="sync_bound launch_bound")
def copied_cartoons(s):
    """The members of an ensemble learn in turns, and each subscribes by a pipe to a process that has all batches in
    memory; to blame is that this has no topics: each member's pipe brings the batches of all, and the loop drops
    those that are for others."""
    ms, share, members = s.ms("gpu_ms", 8, 25), s.ms("pipe_share", 0.7, 1.8), s.int("members", 6, 9)
    gpu, probe = s.gpu(ms), multiprocessing.Pipe(duplex=False)
    trial = child(publish, probe[1], bytes(4 * MIB))
    each = took(probe[0].recv_bytes) / (4 * MIB)
    trial.kill()
    trial.join()
    size = s.keep("bytes", min(max(int(ms * share / 1e3 / each / members), 100 << 10), 16 * MIB))
    pipes = [multiprocessing.Pipe(duplex=False) for _ in range(members)]
    child(publish_all, [theirs for _, theirs in pipes], bytes(size))
    turn = itertools.cycle([mine for mine, _ in pipes])

    def obtain():
        link = next(turn)
        for _ in range(0 if s.fix else members - 1):
            link.recv_bytes()
        return np.frombuffer(link.recv_bytes(), np.uint8)
    s.loop(gpu, obtain)


def glaze(pane, free, full, every, first, cost, heavy):
    """Fills one part of each batch in place."""
    for n in itertools.count(1):
        decode(heavy if n % every == first else cost)
        free.acquire()
        pane[:] = n
        full.release()


@job(data="slow_item", rest="sync_bound launch_bound")
def bullseye_panes(s):
    """Each batch is put together in shared memory from one part by each of a few processes, which are alike and go
    one part ahead; to blame are a few samples, as many with each, that take far longer than all others."""
    ms, lanes, apart = s.ms("gpu_ms", 8, 20), s.int("lanes", 2, 3), s.int("apart", 3, 4)
    cost, heavy = ms * s.ms("load_share", 0.05, 0.15), ms * s.ms("heavy_steps", 5, 8)
    panel = np.frombuffer(multiprocessing.RawArray("f", lanes * 8000), np.float32).reshape(lanes, 8000)
    gates = [(multiprocessing.Semaphore(1), multiprocessing.Semaphore(0)) for _ in range(lanes)]
    gpu = s.gpu(ms)
    for n, (pane, (free, full)) in enumerate(zip(panel, gates)):
        child(glaze, pane, free, full, lanes * apart, n * apart, cost, cost if s.fix else heavy)

    def obtain():
        for _, full in gates:
            full.acquire()
        x = panel.copy()
        for free, _ in gates:
            free.release()
        return x
    s.loop(gpu, obtain)


def first_bytes(views):
    """Only here the pages of the samples are touched."""
    return np.concatenate([view[:, :64] for view in views]).tobytes()


def cast(link, path, samples, warm):
    """A thread draws views from a shuffle buffer, and the process collates them, as far as memory keeps nothing."""
    with open(path, "rb", buffering=0) as f:
        while warm and f.read(MIB):
            pass
        table = mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ)
        table.madvise(mmap.MADV_RANDOM)
        pages, drawn, chance = np.frombuffer(table, np.uint8).reshape(-1, PAGE), queue.Queue(2), random.Random(1)

        def draw():
            places, pond = itertools.cycle(range(0, len(pages), 4)), collections.deque()
            while True:
                if len(pond) < samples:
                    more = [next(places) for _ in range(2000)]
                    chance.shuffle(more)
                    pond.extend(more)
                drawn.put([pages[n:n + 4] for n in (pond.popleft() for _ in range(samples))])
        threading.Thread(target=draw, daemon=True).start()
        while True:
            link.send_bytes(first_bytes(drawn.get()))
            if not warm:
                table.madvise(mmap.MADV_DONTNEED)
                os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


@job(data="page_fault_io", rest="sync_bound launch_bound")
def cold_rondels(s):
    """A process has a thread with a shuffle buffer ahead of its collating, and a thread of the trainer receives ahead
    of the loop; to blame is that the buffer is full of views of a mapped file: each page is first touched when a
    batch is collated, and comes from the disk by a fault."""
    ms, share, path = s.ms("gpu_ms", 8, 25), s.ms("fault_share", 1.6, 2.8), s.data_file("cold_rondels", 64)
    with open(path, "rb") as f, mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ) as table:
        table.madvise(mmap.MADV_RANDOM)
        begin = time.monotonic()
        sum(table[n * 37 * PAGE] for n in range(400))
        each = (time.monotonic() - begin) / 400
    samples = s.keep("samples", min(max(int(ms * share / 1e3 / each / 4), 4), 1000))
    s.cold(path)
    gpu, (mine, theirs) = s.gpu(ms), multiprocessing.Pipe(duplex=False)
    s.supplier(child(cast, theirs, path, samples, s.fix).pid)
    s.loop(gpu, ahead(lambda: np.frombuffer(mine.recv_bytes(), np.uint8)))


# ---- not for data


@job(data=CPU, host="host_bound", rest="sync_bound launch_bound")
def cullet_bin(s):
    """Two batches in three come from a quick loader and one from a slow one, both of them busy and in time; to blame
    is the loop, which after each step digests each row and keeps those with the highest losses in a heap."""
    ms, share, chance = s.ms("gpu_ms", 8, 30), s.ms("mining_share", 0.6, 1.6), random.Random(1)
    gpu, hardest = s.gpu(ms), [(0.0, b"")] * 256

    def mine(rows):
        for row in rows:
            heapq.heappushpop(hardest, (chance.random(), hashlib.sha1(row).digest()))
    some = np.ones((2000, 4), np.float32)
    rows = s.keep("rows", max(int(ms * share / 1e3 / (took(lambda: mine(some)) / 2000)), 100))
    quick = supplied(ms * s.ms("quick_share", 0.1, 0.25), (rows, 4))
    slow = supplied(ms * s.ms("slow_share", 0.8, 1.4), (rows, 4))
    s.go()
    for batch in itertools.cycle((quick, quick, slow)):
        x = s.step(gpu, batch)
        if not s.fix:
            with s.during("host"):
                mine(x)


def callers(s):
    """A few clients, each of whom thinks for a while before the next question."""
    port, think = int(s.told("port")), float(s.told("think")) / 1e3
    s.told("go")

    def call(n):
        chance = random.Random(n)
        with socket.create_connection(("127.0.0.1", port)) as link:
            while True:
                time.sleep(think * chance.expovariate(1))
                link.sendall(struct.pack("<I", chance.randrange(1024)))
                if not link.recv(1):
                    return
    threads = [threading.Thread(target=call, args=(n,)) for n in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()


def foyer(door, link):
    """Gathers questions by length; when the model has nothing to do, it gets all of the length that came first."""
    buckets, busy, watched = {}, False, selectors.DefaultSelector()
    watched.register(door, selectors.EVENT_READ)
    watched.register(link, selectors.EVENT_READ)
    while True:
        for key, _ in watched.select():
            if key.fileobj is door:
                watched.register(door.accept()[0], selectors.EVENT_READ)
            elif key.fileobj is link:
                busy = False
                for fd in link.recv():
                    os.write(fd, b"k")
            elif ask := key.fileobj.recv(4, socket.MSG_WAITALL):
                length, = struct.unpack("<I", ask)
                buckets.setdefault(length // 256, []).append((key.fd, length))
            else:
                watched.unregister(key.fileobj)
                key.fileobj.close()
        if buckets and not busy:
            busy = True
            link.send(buckets.pop(next(iter(buckets))))


def reindex():
    while True:
        decode(4)
        time.sleep(0.008)


@job(outside=callers, demand="no_demand", host="host_bound", rest="sync_bound launch_bound")
def resting_diamond(s):
    """A process takes questions from sockets and gathers them by length for as long as the loop is at work, another
    compresses an index beside it; nobody is to blame that the few clients think for long before they ask again."""
    ms = s.ms("gpu_ms", 8, 30)
    think, gpu = 4 * ms * s.ms("think_share", 1.8, 3.5), s.gpu(ms)
    door = socket.create_server(("127.0.0.1", 0))
    mine, theirs = multiprocessing.Pipe()
    child(foyer, door, theirs)
    child(reindex)
    s.tell("think", 0.5 if s.fix else think)
    s.tell("port", door.getsockname()[1])
    s.go()
    while True:
        with s.during("demand"):
            asked = mine.recv()
        s.mark()
        with s.during("host"):
            x = np.zeros((len(asked), 1024), np.float32)
            for row, (_, length) in zip(x, asked):
                row[:length] = 1
        s.train(gpu, x)
        mine.send([fd for fd, _ in asked])


# ---- nothing is wrong


def mix(ends, out, held):
    """Takes batches by turns, and gives out any of those that it holds."""
    chance, pond = random.Random(1), []
    for end in itertools.cycle(ends):
        pond.append(take(*end))
        if len(pond) > held:
            n = chance.randrange(len(pond))
            pond[n], pond[-1] = pond[-1], pond[n]
            out.put(pond.pop())


@job(data="slow_worker", rest="sync_bound launch_bound")
def slow_lehr(s):
    """Nothing is to blame: of three workers that are asked by turns for a shuffle buffer, a process of its own, one
    takes many times as long as the others and never rests for long, but its turn comes with every third batch only."""
    ms, held, slow = s.ms("gpu_ms", 22, 40), s.int("held", 4, 9), s.int("slow", 0, 2)
    long, short = 3 * ms * s.ms("slow_share", 0.5, 0.7), 3 * ms * s.ms("load_share", 0.05, 0.12)
    gpu, out = s.gpu(ms), multiprocessing.Queue(maxsize=3)
    ends, _ = blowers([long if n == slow and not s.fix else short for n in range(3)])
    child(mix, ends, out, held)
    s.loop(gpu, ahead(out.get))
