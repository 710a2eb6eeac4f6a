# SPDX-License-Identifier: BSD-2-Clause
"""Jobs that are fed as data frameworks do it, with the mechanics written out by hand."""
import collections
import concurrent.futures
import hashlib
import itertools
import math
import mmap
import multiprocessing
import os
import random
import socket
import struct
import threading
import time
import zlib
from ctypes import byref, c_ubyte, c_void_p

import numpy as np

from stranger import CPU, child, decode, job, mortal, parse

PIECE = bytes(256 << 10)


class Bounded:
    """What stands between two stages: room for a few elements, and a condition."""

    def __init__(self, room):
        self.items, self.room, self.turn = collections.deque(), room, threading.Condition()

    def put(self, item):
        with self.turn:
            self.turn.wait_for(lambda: len(self.items) < self.room)
            self.items.append(item)
            self.turn.notify_all()

    def get(self):
        with self.turn:
            self.turn.wait_for(lambda: self.items)
            item = self.items.popleft()
            self.turn.notify_all()
            return item


def thread(f, *more):
    threading.Thread(target=f, args=more, daemon=True).start()


def digest(ms):
    """Checksums, without the interpreter's lock."""
    end = time.thread_time_ns() + int(ms * 1e6)
    while time.thread_time_ns() < end:
        hashlib.sha256(PIECE).digest()


def supply(out, cost, size=40000):
    while True:
        decode(cost)
        out.put(np.zeros(size, np.float32))


# ---- the data


@job(data=CPU, rest="sync_bound launch_bound")
def trap_door(s):
    """Two DataLoader workers keep a shuffle buffer each; when it runs low, they unpack a whole shard."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    import torch
    ms, size = s.ms("gpu_ms", 8, 25), s.int("batch", 4, 32)
    gulp, low = s.int("batches_a_shard", 6, 10), s.int("low", 1, 3)
    cost = ms * 2 * gulp * s.ms("shard_share", 0.8, 1.2) / (5 if s.fix else 1)
    parent = os.getpid()

    class Shuffled(torch.utils.data.IterableDataset):
        def __iter__(self):
            buffer, chance = collections.deque(), random.Random(1)
            while True:
                if len(buffer) < low * size:
                    decode(cost)
                    buffer.extend(chance.sample(range(gulp * size), gulp * size))
                x = torch.zeros(size, 2048)
                x[:, 0] = torch.tensor([buffer.popleft() for _ in range(size)])
                yield x
    gpu = s.gpu(ms)
    batches = iter(torch.utils.data.DataLoader(Shuffled(), None, num_workers=2, prefetch_factor=2,
                                               worker_init_fn=lambda _: mortal(parent)))
    s.loop(gpu, lambda: next(batches).numpy())


def tiered_store(s):
    """An object store; the first shard lies on a slower tier."""
    usual, coldest = (float(x) / 1e3 for x in s.told("late").split())
    door = socket.create_server(("127.0.0.1", 0))
    s.tell("port", door.getsockname()[1])

    def serve(link):
        while ask := link.recv(8):
            shard, size = struct.unpack("<II", ask)
            time.sleep(usual if shard else coldest)
            link.sendall(bytes(size))
    while True:
        thread(serve, door.accept()[0])


@job(outside=tiered_store, data="network_bound slow_worker", rest="sync_bound launch_bound")
def dress_circle(s):
    """As in tf.data, readers are interleaved in a fixed order, mapped, batched; one shard is cold."""
    ms, readers = s.ms("gpu_ms", 10, 45), s.int("readers", 3, 4)
    usual, coldest = ms * s.ms("usual_share", 0.1, 0.35), ms * s.ms("cold_share", 1.5, 3)
    unpack, size = ms * s.ms("unpack_share", 0.01, 0.06), s.int("kib", 16, 120) << 10
    s.tell("late", "%f %f" % (usual, usual if s.fix else coldest))
    gpu, port = s.gpu(ms), int(s.told("port"))
    opened, ready = [Bounded(2) for _ in range(readers)], Bounded(2)
    pool = concurrent.futures.ThreadPoolExecutor(2)

    def read(shard):
        stream = socket.create_connection(("127.0.0.1", port)).makefile("rwb")
        while True:
            stream.write(struct.pack("<II", shard, size))
            stream.flush()
            opened[shard].put(stream.read(size))

    def decoded(body):
        decode(unpack)
        return np.frombuffer(body, np.uint8)

    def batch():
        while True:
            ready.put(np.concatenate(list(pool.map(decoded, [o.get() for o in opened]))))
    for shard in range(readers):
        thread(read, shard)
    thread(batch)
    s.loop(gpu, ready.get)


def far_node(s):
    """Another node's object manager: it sends an object chunk by chunk, each when it is asked for."""
    late = float(s.told("late")) / 1e3
    door = socket.create_server(("127.0.0.1", 0))
    s.tell("port", door.getsockname()[1])
    link = door.accept()[0]
    while ask := link.recv(8):
        time.sleep(late)
        link.sendall(bytes(struct.unpack("<II", ask)[1]))


def local_store(link, port, shared, size, chunk):
    """Pulls the next object into one of two places, and tells which."""
    far = socket.create_connection(("127.0.0.1", port)).makefile("rwb")
    for n in itertools.count():
        link.recv(1)
        for at in range(0, size, chunk):
            far.write(struct.pack("<II", at, chunk))
            far.flush()
            shared[n % 2 * size + at:n % 2 * size + at + chunk] = far.read(chunk)
        link.send(bytes([n % 2]))


@job(outside=far_node, data="network_bound too_few_workers", rest="sync_bound launch_bound")
def fly_loft(s):
    """Objects by reference, one step ahead; a local store pulls each from a far node by chunks."""
    ms, chunks, chunk = s.ms("gpu_ms", 10, 40), s.int("chunks", 5, 14), s.int("kib", 8, 64) << 10
    late, size = ms * s.ms("pull_share", 1.7, 3.5) / chunks, chunks * chunk
    s.tell("late", late / 5 if s.fix else late)
    gpu, port = s.gpu(ms), int(s.told("port"))
    shared, (mine, theirs) = mmap.mmap(-1, 2 * size), socket.socketpair()
    s.supplier(child(local_store, theirs, port, shared, size, chunk).pid)
    objects = [np.frombuffer(shared, np.uint8, size, n * size) for n in range(2)]

    def get():
        reference = mine.recv(1)[0]
        mine.send(b"?")  # the next one
        return objects[reference]
    mine.send(b"?")
    s.loop(gpu, get)


@job(data="main_thread_loading", rest="sync_bound launch_bound")
def orchestra_pit(s):
    """A thread has row groups ready, read and checked; the loop inflates one before it slices it."""
    ms, rows = s.ms("gpu_ms", 8, 40), s.int("batches_a_group", 3, 9)
    check = ms * rows * s.ms("check_share", 0.05, 0.3)
    inflate = ms * rows * s.ms("inflate_share", 0.35, 1.3) / (15 if s.fix else 1)
    gpu, groups, slices = s.gpu(ms), Bounded(2), collections.deque()

    def prefetch():
        while True:
            digest(check)
            groups.put(np.zeros((rows * 256, 64), np.float32))

    def batch():
        if not slices:
            group = groups.get()
            decode(inflate)  # all columns of it
            slices.extend(np.split(group, rows))
        return slices.popleft()
    thread(prefetch)
    s.loop(gpu, batch)


def metered_store(s):
    """A quota for each connection: so many documents a second, else 429 and a Retry-After."""
    rate, grain = (float(x) for x in s.told("quota").split())
    door = socket.create_server(("127.0.0.1", 0))
    s.tell("port", door.getsockname()[1])

    def serve(link):
        chance, most, last = random.Random(1), max(4, 2 * rate * grain), time.monotonic()
        tokens = most
        while link.recv(4):
            t = time.monotonic()
            tokens, last = min(most, tokens + rate * (t - last)), t
            if tokens < 1:
                later = math.ceil((1 - tokens) / rate / grain) * grain
                link.sendall(struct.pack("<If", 0, later))
            else:
                tokens, length = tokens - 1, chance.randint(100, 900)
                link.sendall(struct.pack("<If", length, 0) + bytes(2 * length))
    while True:
        thread(serve, door.accept()[0])


def pack(out, port, rows, length, tokenize):
    stream, pile = socket.create_connection(("127.0.0.1", port)).makefile("rwb"), np.zeros(0, np.uint16)
    while True:
        while len(pile) < rows * length:
            stream.write(b"next")
            stream.flush()
            size, later = struct.unpack("<If", stream.read(8))
            if size == 0:
                time.sleep(later)
                continue
            text = stream.read(2 * size)
            parse(tokenize)
            pile = np.concatenate((pile, np.frombuffer(text, np.uint16)))
        out.put(pile[:rows * length].reshape(rows, length))
        pile = pile[rows * length:]


@job(outside=metered_store, data="network_bound too_few_workers", rest="sync_bound launch_bound")
def prompt_book(s):
    """A process packs documents until sequences are full; a store with a quota has it come again."""
    ms, rows, length = s.ms("gpu_ms", 15, 60), s.int("rows", 2, 6), 2048
    documents = rows * length / 500
    rate = documents / (ms * s.ms("quota_share", 1.4, 3) / 1e3)
    s.tell("quota", "%f %f" % (5 * rate if s.fix else rate, s.ms("grain_ms", 4, 20) / 1e3))
    gpu, port, out = s.gpu(ms), int(s.told("port")), multiprocessing.Queue(2)
    tokenize = ms * s.ms("tokenize_share", 0.1, 0.25) / documents
    s.supplier(child(pack, out, port, rows, length, tokenize).pid)
    s.loop(gpu, out.get)


TABLE = list(range(256))
for _ in range(8):
    TABLE = [c >> 1 ^ 0x82F63B78 * (c & 1) for c in TABLE]


def crc32c(data):
    """As a library does it whose extension could not be built."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = TABLE[(crc ^ byte) & 255] ^ crc >> 8
    return crc ^ 0xFFFFFFFF


def verified(out, cost, size):
    record = random.Random(1).randbytes(1 << 10)
    while True:
        end = time.thread_time_ns() + int(cost * 1e6)
        while time.thread_time_ns() < end:
            crc32c(record)
        out.send_bytes(bytes(size))


@job(data=CPU, rest="sync_bound launch_bound")
def velvet_rope(s):
    """A process checks the CRC-32C of each record, as TFRecords have it, but byte by byte in Python."""
    ms, size = s.ms("gpu_ms", 8, 50), s.int("kib", 8, 48) << 10
    cost = ms * s.ms("check_share", 1.3, 2.8) / (5 if s.fix else 1)
    gpu, (inlet, outlet) = s.gpu(ms), multiprocessing.Pipe(duplex=False)
    s.supplier(child(verified, outlet, cost, size).pid)
    s.loop(gpu, lambda: np.frombuffer(inlet.recv_bytes(), np.uint8))


@job(data=CPU + " lock_bound", rest="lock_bound", threads=True)
def limelight_gel(s):
    """tf.data by hand: two threads map in C, then comes a py_function; the model is a captured graph."""
    ms, mib = s.ms("gpu_ms", 30, 80), s.int("mib", 1, 4)
    gpu = s.gpu(ms, launches=s.int("graphs", 1, 3))
    cost = ms * s.ms("python_share", 1.8, 3) / (20 if s.fix else 1)
    bundle = zlib.compress(random.Random(1).randbytes(16 << 10) * (64 * mib), 1)
    read, mapped, ready = Bounded(4), Bounded(4), Bounded(2)

    def source():
        while True:
            read.put(bundle)

    def native():
        while True:
            mapped.put(np.frombuffer(zlib.decompress(read.get()), np.uint8)[:200000])

    def py_function():
        while True:
            x = mapped.get()
            parse(cost)
            ready.put(x)
    for stage in source, native, native, py_function:
        thread(stage)
    s.loop(gpu, ready.get)


def evicting(out, entries, cost):
    """A cache of the most used, which looks through all it has for the one to go."""
    uses, fresh = {n: 1 + n * 7919 % 97 for n in range(entries)}, itertools.count(entries)

    def admit():
        del uses[min(uses, key=uses.get)]
        uses[next(fresh)] = 2
    begin = time.thread_time_ns()
    for _ in range(3):
        admit()
    misses = max(1, round(3e6 * cost / (time.thread_time_ns() - begin)))
    while True:
        for _ in range(misses):
            admit()
        out.put(np.zeros(40000, np.float32))


@job(data=CPU, rest="sync_bound launch_bound")
def cloak_ticket(s):
    """A process keeps a cache of samples; for each that it admits, it seeks the least used of all."""
    ms, entries = s.ms("gpu_ms", 12, 50), s.int("entries", 12000, 40000)
    cost = ms * s.ms("evict_share", 1.3, 2.8) / (5 if s.fix else 1)
    gpu, out = s.gpu(ms), multiprocessing.Queue(3)
    s.supplier(child(evicting, out, entries, cost).pid)
    s.loop(gpu, out.get)


# ---- not the data


@job(data=CPU, rest="sync_bound launch_bound")
def gilded_box(s):
    """Two sources by exact weights: the rare one needs some steps for a batch, and has them."""
    ms, rarity = s.ms("gpu_ms", 12, 45), s.int("one_in", 5, 12)
    gpu, usual = s.gpu(ms), multiprocessing.Queue(3)
    rare = multiprocessing.Queue(s.int("room", 3, 6))
    child(supply, usual, ms * s.ms("usual_share", 0.08, 0.25))
    child(supply, rare, ms * rarity * s.ms("rare_share", 0.3, 0.6))
    turns = itertools.cycle([usual] * (rarity - 1) + [rare])
    s.loop(gpu, lambda: next(turns).get())


@job(data="main_thread_loading", rest="sync_bound launch_bound")
def opera_glasses(s):
    """A stream copies, one computes; the loop inflates row groups itself, but is some steps ahead."""
    ms, rows, ahead = s.ms("gpu_ms", 15, 50), s.int("batches_a_group", 5, 9), s.int("ahead", 3, 4)
    inflate, size = ms * s.ms("inflate_steps", 1.1, 2), s.int("kib", 64, 900) << 10
    gpu, copies, computes = s.gpu(ms), c_void_p(), c_void_p()
    lib, check = gpu.lib, gpu.check
    arrived, used, buffers = ([c_void_p() for _ in range(ahead)] for _ in range(3))
    for stream in copies, computes:
        check(lib.cudaStreamCreate(byref(stream)))
    gpu.stream = computes
    for event in arrived + used:
        check(lib.cudaEventCreate(byref(event)))
    for event, buffer in zip(used, buffers):
        check(lib.cudaEventRecord(event, computes))
        check(lib.cudaMalloc(byref(buffer), size))
    staged = [np.frombuffer((c_ubyte * size).from_address(gpu.host_buffer(size)), np.uint8)
              for _ in range(ahead)]
    slices = collections.deque()
    s.go()
    for k in itertools.cycle(range(ahead)):
        s.mark()
        with s.during("data"):
            if not slices:
                decode(inflate)
                slices.extend(np.zeros((rows, size), np.uint8))
            np.copyto(staged[k], slices.popleft())
        check(lib.cudaStreamWaitEvent(copies, used[k], 0))
        check(lib.cudaMemcpyAsync(buffers[k], staged[k].ctypes.data, size, 1, copies))
        check(lib.cudaEventRecord(arrived[k], copies))
        check(lib.cudaStreamWaitEvent(computes, arrived[k], 0))
        s.train(gpu, item=False)
        check(lib.cudaEventRecord(used[k], computes))
        check(lib.cudaStreamSynchronize(copies))  # not for this step, but for who had its buffer


def mixture(out, inlet, cost):
    weights, chance = [1.0] * 3, random.Random(1)
    while True:
        while inlet.poll():
            weights = inlet.recv()
        source = chance.choices(range(len(weights)), weights)[0]
        decode(cost)
        out.put(np.full(40000, source, np.float32))


@job(data=CPU, host="host_bound sync_bound", rest="sync_bound launch_bound")
def casting_vote(s):
    """As in DoReMi, after each step the loop weighs the domains anew, and tells the mixer."""
    ms, domains = s.ms("gpu_ms", 8, 40), s.int("domains", 4, 20)
    own = ms * s.ms("weigh_share", 0.35, 1.5) / (10 if s.fix else 1)
    gpu, out, (inlet, outlet) = s.gpu(ms), multiprocessing.Queue(4), multiprocessing.Pipe(duplex=False)
    child(mixture, out, inlet, ms * s.ms("load_share", 0.1, 0.3))
    weights, losses = np.ones(domains), np.random.default_rng(1)
    s.go()
    while True:
        s.step(gpu, out.get)
        with s.during("host"):
            parse(own)  # each domain's excess, smoothed over the steps before
            weights *= np.exp(0.01 * losses.standard_normal(domains))
            weights /= weights.sum()
            outlet.send(weights.tolist())


def shared_store(link, batches, seal):
    """Tells at once where a batch is; what is put, it packs before it calls it sealed."""
    for n in itertools.count():
        if link.recv(1) == b"p":
            decode(seal)
        link.send(bytes([n // 2 % batches]))


@job(data=CPU, host="host_bound", rest="sync_bound launch_bound transfer_bound")
def ghost_light(s):
    """An object store tells at once where a batch is; each step's features are put there and sealed."""
    ms, batches, size = s.ms("gpu_ms", 8, 45), s.int("batches", 4, 16), s.int("kib", 32, 500) << 10
    seal = ms * s.ms("seal_share", 0.35, 1.5) / (10 if s.fix else 1)
    gpu, (mine, theirs) = s.gpu(ms), socket.socketpair()
    shared = np.frombuffer(mmap.mmap(-1, (batches + 1) * size), np.uint8).reshape(-1, size)
    child(shared_store, theirs, batches, seal)
    features = shared[batches]

    def ask(what):
        mine.send(what)
        return mine.recv(1)[0]
    s.go()
    while True:
        s.mark()
        with s.during("data"):
            x = shared[ask(b"g")]
        s.train(gpu, x, item=False)
        gpu.check(gpu.lib.cudaMemcpy(features.ctypes.data, gpu.input, size, 2))
        with s.during("host"):
            ask(b"p")


def indexer(orders, cost, samples):
    os.nice(10)
    for epoch in itertools.count():
        parse(cost)  # shards, offsets, lengths
        orders.put(random.Random(epoch).sample(range(samples), samples))


def epochs(orders, out, steps, cost):
    while True:
        orders.get()
        for _ in range(steps):
            decode(cost)
            out.put(np.zeros(40000, np.float32))


@job(data=CPU, ckpt="checkpoint_stall host_bound", rest="sync_bound launch_bound")
def revolving_stage(s):
    """Short epochs: a process has the next one's index in time; at the end of each the state is saved."""
    ms, steps = s.ms("gpu_ms", 10, 30), s.int("steps", 5, 10)
    gpu, orders, out = s.gpu(ms), multiprocessing.Queue(1), multiprocessing.Queue(6)
    child(indexer, orders, ms * steps * s.ms("index_share", 0.2, 0.5), s.int("samples", 500, 5000))
    child(epochs, orders, out, steps, ms * s.ms("load_share", 0.1, 0.3))
    state = np.random.default_rng(1).standard_normal(s.int("mib", 3, 6) << 18, np.float32)
    path = s.path("state.ckpt")
    s.go()
    for n in itertools.count(1):
        s.step(gpu, out.get)
        if n % steps == 0 and not s.fix:
            with s.during("ckpt"):
                packed = zlib.compress(state, 1)
                with open(path + ".part", "wb") as f:
                    f.write(packed)
                    f.flush()
                    os.fsync(f.fileno())
                os.rename(path + ".part", path)


def bucketed(out, edges, size, cost):
    buckets, chance = {edge: [] for edge in edges}, random.Random(1)
    while True:
        length = chance.randint(1, edges[-1])
        bucket = buckets[next(edge for edge in edges if edge >= length)]
        bucket.append(length)
        if len(bucket) == size:
            parse(cost)
            out.put(np.zeros((size, next(edge for edge in edges if edge >= length)), np.int32))
            bucket.clear()


@job(data=CPU, rest="launch_bound")
def paper_moon(s):
    """Texts in buckets by length; a recurrent net is unrolled, with small kernels for each token."""
    longest, kernels, fuse = s.int("longest", 240, 480), s.int("kernels", 8, 16), 40 if s.fix else 1
    gpu = s.gpu(s.ms("kernel_us", 0.8, 2) * fuse, launches=1000)  # that is: this many us for each
    out, edges = multiprocessing.Queue(6), [longest // 2, longest * 3 // 4, longest]
    child(bucketed, out, edges, s.int("batch", 8, 32), s.ms("pad_ms", 0.2, 0.8))
    s.go()
    while True:
        s.mark()
        with s.during("data"):
            x = out.get()
        gpu.upload(x.ctypes.data, x.nbytes)
        gpu.launch(0, x.shape[1] * kernels // fuse)
        gpu.loss_item()
