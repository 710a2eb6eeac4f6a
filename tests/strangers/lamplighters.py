# SPDX-License-Identifier: BSD-2-Clause
"""Lamplighters' rounds: the loops of well-known trainers and generators, with the hand-overs that they have."""
import bisect
import ctypes
import hashlib
import itertools
import mmap
import multiprocessing
import multiprocessing.connection
import os
import queue
import random
import socket
import threading
import time

import numpy as np

from stranger import CPU, child, decode, job, parse

MIB, H2D, D2H = 1 << 20, 1, 2


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
        out.put(np.zeros(50000, np.float32))


def supplied(cost):
    """A loader: a process and a queue."""
    out = multiprocessing.Queue(maxsize=4)
    child(put, out, cost)
    return out.get


class SideStream:
    """Uploads batches ahead, by a thread and a stream of its own, from two pinned buffers to two of the device."""

    def __init__(self, gpu, get, size):
        self.gpu, self.get, self.side, self.last = gpu, get, ctypes.c_void_p(), None
        self.free, self.ready = queue.Queue(), queue.Queue()
        gpu.check(gpu.lib.cudaStreamCreate(ctypes.byref(self.side)))
        for _ in range(2):
            event, place = ctypes.c_void_p(), ctypes.c_void_p()
            gpu.check(gpu.lib.cudaEventCreate(ctypes.byref(event)))
            gpu.check(gpu.lib.cudaMalloc(ctypes.byref(place), size))
            pinned = (ctypes.c_ubyte * size).from_address(gpu.host_buffer(size))
            self.free.put((event, place, np.frombuffer(pinned, np.float32)))
        threading.Thread(target=self.fill, daemon=True).start()

    def fill(self):
        gpu, lib = self.gpu, self.gpu.lib
        while True:
            x = self.get()
            event, place, pinned = buffer = self.free.get()
            pinned[:x.size] = x
            gpu.check(lib.cudaMemcpyAsync(place, pinned.ctypes.data, x.nbytes, H2D, self.side))
            gpu.check(lib.cudaEventRecord(event, self.side))
            self.ready.put(buffer)

    def take(self):
        """Has the device wait for the next batch; the step with the one before is over."""
        if self.last:
            self.free.put(self.last)
        self.last = self.ready.get()
        self.gpu.check(self.gpu.lib.cudaStreamWaitEvent(self.gpu.stream, self.last[0], 0))


# ---- the data is late


MASK, MOST_MASKS = (480, 640), 96


def map_pictures(link, cost, many):
    """Maps a picture whenever it is told a number: the picture, and a mask for each object in it."""
    masks = list(np.ones((many, *MASK), bool))
    while True:
        n = link.recv()
        decode(cost)
        link.send((n % 5 < 3, np.zeros(3000, np.float32), masks))


def pictures(links):
    """Mapped pictures in the order of their numbers, of which each worker is told two ahead."""
    numbers = itertools.count()
    for link in links * 2:
        link.send(next(numbers))
    for link in itertools.cycle(links):
        yield link.recv()
        link.send(next(numbers))


def alike(mapped, many):
    """Batches of pictures that are all wide, or all tall, with what the mask head shall see of their masks."""
    groups = {False: [], True: []}
    for wide, picture, masks in mapped:
        group = groups[wide]
        group.append((picture, masks))
        if len(group) == many:
            yield np.concatenate([part.ravel() for picture, masks in group
                                  for part in (picture, *(mask[::20, ::20].astype(np.float32) for mask in masks))])
            group.clear()


@job(data="ipc_bound", rest="sync_bound launch_bound")
def wide_streets(s):
    """A detector's trainer, whose workers map single pictures, which the loop groups by their aspect ratio; to blame
    is that each object's mask comes as a bitmap of the picture's size, pickled, through the worker's pipe."""
    ms, share, many = s.ms("gpu_ms", 8, 25), s.ms("hand_over_share", 0.8, 2), s.int("batch", 2, 6)
    workers = s.int("workers", 1, 2)
    mine, theirs = multiprocessing.Pipe()
    probe = child(map_pictures, theirs, 0, 32)
    each = took(lambda: (mine.send(0), mine.recv())) / 32
    probe.kill()
    probe.join()
    masks = s.keep("masks", min(max(int(ms * share / 1e3 / each / many), 2), MOST_MASKS))
    links = []
    for _ in range(workers):
        mine, theirs = multiprocessing.Pipe()
        child(map_pictures, theirs, ms * 0.1 / many, 1 if s.fix else masks)
        links.append(mine)
    gpu, batches = s.gpu(ms), alike(pictures(links), many)
    s.loop(gpu, lambda: next(batches))


LATENT = 4 * 32 * 32 * 4


def gather(fd, latents, chance):
    """Reads as many latents as there is room for, from anywhere in the cache."""
    count = os.fstat(fd).st_size // LATENT
    for latent in latents:
        os.preadv(fd, [latent], chance.randrange(count) * LATENT)


def read_latents(link, slots, path, warm):
    """Fills slot after slot, as far as the other side has given them back."""
    chance = random.Random(1)
    with open(path, "rb", buffering=0) as f:
        os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_RANDOM)
        while warm and f.read(MIB):
            pass
        for slot in itertools.cycle(slots):
            link.recv(1)
            gather(f.fileno(), slot, chance)
            link.send(b"r")
            if not warm:
                os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


@job(data="io_bound", rest="sync_bound launch_bound")
def oil_cellar(s):
    """Diffusion on latents that were cached on the disk, as the autoencoder is slow: a process gathers them at random
    into slots of shared memory, two ahead; to blame is the disk, as the cache is far larger than memory."""
    ms, share = s.ms("gpu_ms", 10, 30), s.ms("read_share", 1.6, 3)
    path, probe = s.data_file("oil_cellar", 64), np.zeros((300, LATENT), np.uint8)
    with open(path, "rb", buffering=0) as f:
        os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_RANDOM)
        each = once(lambda: gather(f.fileno(), probe, random.Random(2))) / len(probe)
    many = s.keep("latents", min(max(int(ms * share / 1e3 / each), 16), 800))
    s.cold(path)
    slots = np.frombuffer(multiprocessing.RawArray("B", 3 * many * LATENT), np.uint8).reshape(3, many, LATENT)
    mine, theirs = socket.socketpair()
    s.supplier(child(read_latents, theirs, slots, path, s.fix).pid)
    gpu, turn = s.gpu(ms), itertools.cycle(slots)

    def obtain():
        mine.send(b"f")  # the slot of the step before
        mine.recv(1)
        return next(turn)
    mine.send(b"ff")
    s.loop(gpu, obtain)


BUCKETS = [4, 6, 8, 11, 15]


def by_length(chance, most):
    """Lengths of cuts in seconds, batch by batch: whose bucket has enough of them is next."""
    buckets = [[] for _ in range(len(BUCKETS) + 1)]
    while True:
        seconds = min(chance.lognormvariate(2, 0.5), 30)
        n = bisect.bisect(BUCKETS, seconds)
        buckets[n].append(seconds)
        if sum(buckets[n]) >= most:
            yield buckets[n]
            buckets[n] = []


def load_cuts(orders, out, every, cost, seek):
    """Reads cuts; now and then one of them is late in a long recording that cannot be sought in."""
    while True:
        n, cuts = orders.get()
        decode(seek if n % every == 0 else cost)
        out.put((n, np.zeros((len(cuts), int(max(cuts) * 100)), np.float32)))


@job(data="slow_item", rest="sync_bound launch_bound")
def far_corner(s):
    """Speech: a sampler in the loop fills buckets by length and sends lists of cuts to two workers by turns, whose
    batches are put in order; to blame are a few cuts, before which hours of a recording have to be decoded."""
    ms, every = s.ms("gpu_ms", 8, 25), s.one("every", 7, 9, 11)
    cost, seek = ms * s.ms("load_share", 0.1, 0.4), ms * s.ms("seek_steps", 9, 14)
    batches, out = by_length(random.Random(1), s.int("seconds", 200, 400)), multiprocessing.Queue()
    orders, numbers, due, early = [], itertools.count(1), itertools.count(1), {}
    for _ in range(2):
        orders.append(multiprocessing.SimpleQueue())
        child(load_cuts, orders[-1], out, every, cost, cost if s.fix else seek)
    gpu = s.gpu(ms)

    def order():
        n = next(numbers)
        orders[n % 2].put((n, next(batches)))

    def obtain():
        n = next(due)
        while n not in early:
            number, x = out.get()
            early[number] = x
        order()
        return early.pop(n)
    for _ in range(4):
        order()
    s.loop(gpu, obtain)


ROW, SHORTEST, LONGEST = 2048, 100, 500  # tokens


def documents(tokens, chance, many):
    """Documents from anywhere in the mapped file, as bytes of two for each token."""
    found = []
    for _ in range(many):
        size = chance.randint(SHORTEST, LONGEST)
        first = chance.randrange(len(tokens) // 2 - size)
        found.append(tokens[2 * first:2 * (first + size)])
    return found


def read_documents(link, path, warm):
    chance = random.Random(1)
    with open(path, "rb", buffering=0) as f, mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ) as tokens:
        while warm and f.read(MIB):
            pass
        tokens.madvise(mmap.MADV_RANDOM)
        for n in itertools.count(1):
            link.send(documents(tokens, chance, 32))
            if n % 8 == 0 and not warm:
                tokens.madvise(mmap.MADV_DONTNEED)
                os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def pack(link, out, rows):
    """Lays documents one behind the other, and never across two rows."""
    batch, row, at = np.zeros((rows, ROW), np.uint16), 0, 0
    while True:
        for document in map(np.frombuffer, link.recv(), itertools.repeat(np.uint16)):
            if at + len(document) > ROW:
                row, at = row + 1, 0
            if row == rows:
                out.put(batch)
                batch, row = np.zeros((rows, ROW), np.uint16), 0
            batch[row, at:at + len(document)] = document
            at += len(document)


@job(data="page_fault_io", rest="sync_bound launch_bound")
def mapped_lanes(s):
    """Pre-training on one mapped file of tokens: a process takes documents in shuffled order and pipes them to
    another that packs them into rows; to blame are the file's pages, of which memory has none when they are touched."""
    ms, share = s.ms("gpu_ms", 10, 30), s.ms("read_share", 1.6, 3)
    path = s.data_file("mapped_lanes", 64)
    with open(path, "rb") as f, mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ) as tokens:
        tokens.madvise(mmap.MADV_RANDOM)
        each = once(lambda: documents(tokens, random.Random(2), 300)) / 300
    s.cold(path)
    rows = s.keep("rows", min(max(int(ms * share / 1e3 / each / 6.3), 8), 600))  # 6.3 documents fit into one
    out, (docs, found) = multiprocessing.Queue(maxsize=2), multiprocessing.Pipe(duplex=False)
    s.supplier(child(read_documents, found, path, s.fix).pid)
    child(pack, docs, out, rows)
    s.loop(s.gpu(ms), out.get)


TABLE = 1 << 18


def hashed(rows):
    """Where in the table each column's value has its embedding: each of them is hashed with its column."""
    return np.array([[int.from_bytes(hashlib.blake2b(b"%d=%s" % (column, value), digest_size=4).digest(), "little")
                      % TABLE for column, value in enumerate(row.split(b"\t"))] for row in rows])


def read_clicks(out, cost, clicks):
    while True:
        decode(cost)
        out.put(clicks)


@job(data="main_thread_loading", rest="sync_bound launch_bound")
def numbered_posts(s):
    """A recommender with one table of hashed embeddings in host memory; a process has the log's lines in time; to
    blame is the loop, which hashes each column of each line in Python before it can look anything up."""
    ms, columns, chance = s.ms("gpu_ms", 10, 35), s.int("columns", 8, 26), random.Random(1)
    share = s.ms("hash_share", 0.5, 1.6)

    def lines(many):
        return [b"\t".join(b"%x" % chance.getrandbits(32) for _ in range(columns)) for _ in range(many)]
    some = lines(200)
    each = took(lambda: hashed(some)) / len(some)
    clicks = lines(s.keep("rows", min(max(int(ms * share / 1e3 / each), 32), 6000)))
    table, out = np.ones((TABLE, 8), np.float32), multiprocessing.Queue(maxsize=4)
    # The fix is a log whose columns were hashed when it was written.
    child(read_clicks, out, ms * s.ms("load_share", 0.1, 0.4), hashed(clicks) if s.fix else b"\n".join(clicks))
    gpu = s.gpu(ms)

    def obtain():
        batch = out.get()
        return table[batch if s.fix else hashed(batch.split(b"\n"))].mean(axis=1)
    s.loop(gpu, obtain)


def sample_neighbours(out, lock, cost, whole):
    """Samples some hops around its seeds, then copies features from the cache that all samplers share."""
    while True:
        decode(cost * 0.15)
        with lock:  # what was found becomes the newest
            if whole:
                decode(cost)
        if not whole:
            decode(cost / 3)
        out.put(np.zeros(50000, np.float32))


@job(data="lock_bound", rest="sync_bound launch_bound")
def only_taper(s):
    """A graph network: sampler processes, then a thread that pins and uploads ahead on a stream of its own; to blame
    is the lock of the samplers' common cache of features, which each holds while it copies all that it found."""
    ms, samplers = s.ms("gpu_ms", 8, 40), s.int("samplers", 2, 3)
    cost, lock = ms * s.ms("copy_share", 1.5, 2.6), multiprocessing.Lock()
    out = multiprocessing.Queue(maxsize=3)
    for _ in range(samplers):
        child(sample_neighbours, out, lock, cost, not s.fix)
    gpu = s.gpu(ms)
    s.loop(gpu, SideStream(gpu, out.get, 200000).take)


def draw_frames(links, frames, cost):
    """The one renderer, with a context and all textures: whoever asks gets a frame, in shared memory."""
    while True:
        for link in multiprocessing.connection.wait(links):
            world = link.recv()
            decode(cost)
            frames[world] += 1
            link.send(world)


def live(link, renderer, world, cost):
    """A world: an action comes in, physics, a frame, and the reward goes out."""
    while True:
        link.recv()
        decode(cost)
        renderer.send(world)
        renderer.recv()
        link.send((0.0, False))


@job(data=CPU, rest="sync_bound launch_bound")
def one_ladder(s):
    """On-policy RL with a process for each world, all in lockstep, and frames in shared memory; the worlds' physics
    are quick, and to blame is the renderer, one process that has to draw the frames of all worlds in turn."""
    ms, worlds, rollout = s.ms("gpu_ms", 8, 35), s.int("worlds", 3, 6), s.int("rollout", 4, 10)
    cost = ms * s.ms("draw_share", 0.7, 1.8) / worlds
    frames = np.frombuffer(multiprocessing.RawArray("f", worlds * 16000), np.float32).reshape(worlds, -1)
    physics, links, contexts = ms * 0.1 / worlds, [], []
    for world in range(worlds):
        mine, theirs = multiprocessing.Pipe()
        context, renderer = multiprocessing.Pipe()
        child(live, theirs, renderer, world, physics)
        links.append(mine)
        contexts.append(context)
    s.supplier(child(draw_frames, contexts, frames, cost / 8 if s.fix else cost).pid)
    gpu = s.gpu(ms)

    def act():
        for link in links:
            link.send(0)
    act()
    s.go()
    while True:
        for _ in range(rollout):
            s.mark()
            with s.during("data"):
                for link in links:
                    link.recv()
            gpu.upload(frames.ctypes.data, frames.nbytes)
            gpu.launch(0, gpu.launches)
            gpu.loss_item()  # the actions
            act()
        s.mark("micro")
        s.train(gpu)


# ---- not for data


def prompts(chance):
    """Prompts in blocks of tokens, as their hashes: one of a few long beginnings, then a question."""
    beginnings = [tuple(chance.getrandbits(60) for _ in range(12)) for _ in range(8)]
    while True:
        yield chance.choice(beginnings)[:chance.randint(6, 12)] + tuple(chance.getrandbits(60) for _ in range(4))


def matched(tree, prompt):
    """How many of a prompt's blocks have their keys and values in the tree already."""
    for depth, block in enumerate(prompt):
        tree = tree.get(block)
        if tree is None:
            return depth
    return len(prompt)


def insert(tree, prompt):
    for block in prompt:
        tree = tree.setdefault(block, {})


def detokenize(link, cost):
    with open(os.devnull, "w", encoding="utf-8") as out:
        while True:
            tokens = link.recv()
            parse(cost)
            out.write(" ".join(map(str, tokens)))


@job(host="host_bound", rest="sync_bound launch_bound")
def sorted_rounds(s):
    """Answers to a file of prompts, by an engine with a radix tree of prefixes and a detokenizer process that it never
    waits for; to blame is the scheduler, which matches and sorts all that wait whenever a place has fallen free."""
    ms, slots, chance = s.ms("gpu_ms", 8, 35), s.int("slots", 32, 64), random.Random(1)
    share, fresh, tree = s.ms("schedule_share", 0.6, 1.5), prompts(chance), {}

    def order(some):
        some.sort(key=lambda prompt: matched(tree, prompt))  # the best one is the last
    some = list(itertools.islice(fresh, 20000))
    for prompt in some[:100]:
        insert(tree, prompt)
    each = took(lambda: order(some)) / len(some)
    waiting = list(itertools.islice(fresh, s.keep("waiting", min(max(int(ms * share / 1e3 / each), 100), 60000))))
    theirs, mine = multiprocessing.Pipe(duplex=False)
    child(detokenize, theirs, ms * s.ms("text_share", 0.1, 0.4))
    gpu, running = s.gpu(ms), []
    s.go()
    while True:
        s.mark()
        with s.during("host"):
            if len(running) < slots and not s.fix:  # else first come, first served
                order(waiting)
            while len(running) < slots:
                prompt = waiting.pop()
                insert(tree, prompt)
                waiting.insert(0, next(fresh))
                running.append(chance.randint(5, 30))  # tokens to come
            tokens = np.array(running)
        gpu.upload(tokens.ctypes.data, tokens.nbytes)
        gpu.launch(0, gpu.launches)
        gpu.loss_item()
        with s.during("host"):
            mine.send(running)
            running = [left - 1 for left in running if left > 1]


@job(data=CPU, host="host_bound", rest="transfer_bound")
def yesterdays_lamps(s):
    """Contrastive learning with a momentum encoder and a long queue of negatives, beside a loader that keeps up; to
    blame is that the queue is on the host, so that all of it goes up in each step, from memory that is not pinned."""
    ms, share, most = s.ms("gpu_ms", 8, 14), s.ms("queue_share", 0.6, 1.3), 192
    crops = supplied(ms * s.ms("load_share", 0.1, 0.4))
    gpu, keys = s.gpu(ms, input_bytes=most * MIB), np.zeros((256, 128), np.float32)

    def lay_out(array):
        gpu.check(gpu.lib.cudaMemcpy(gpu.input, array.ctypes.data, array.nbytes, H2D))
    probe = np.ones(32 * MIB // 4, np.float32)
    each = took(lambda: lay_out(probe)) / 32
    mib = s.keep("mib", min(max(int(ms * share / 1e3 / each), 8), most))
    negatives, oldest = np.ones((mib * MIB // keys[0].nbytes, 128), np.float32), 0
    s.go()
    while True:
        s.mark()
        with s.during("data"):
            x = crops()
        gpu.upload(x.ctypes.data, x.nbytes)
        gpu.forward()  # queries and keys
        if not s.fix:  # else the device has the queue
            lay_out(negatives)
        gpu.backward()
        gpu.optimizer()
        gpu.check(gpu.lib.cudaMemcpy(keys.ctypes.data, gpu.input, keys.nbytes, D2H))
        with s.during("host"):
            negatives[oldest:oldest + len(keys)] = keys
            oldest = (oldest + len(keys)) % len(negatives)


# ---- nothing is wrong


@job(data=CPU, rest="sync_bound launch_bound")
def second_taper(s):
    """Nothing is to blame: a thread uploads what a busy loader process has made on a side stream, one batch ahead of
    the default stream, which waits for it by an event; thread and process wait long, but the loop does not."""
    ms = s.ms("gpu_ms", 15, 40)
    load = ms * s.ms("load_share", 0.4, 0.7)
    get = supplied(load / 2 if s.fix else load)
    gpu = s.gpu(ms)
    s.loop(gpu, SideStream(gpu, get, 200000).take)
