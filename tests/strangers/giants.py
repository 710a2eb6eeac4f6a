# SPDX-License-Identifier: BSD-2-Clause
"""Very long steps of large models, and very short ones of small models."""
import itertools
import mmap
import multiprocessing
import os
import queue
import random
import signal
import socket
import struct
import threading
import time

import numpy as np

from stranger import CPU, child, decode, job, mortal, parse


def shared(size):
    """Memory that children share with this process."""
    return np.frombuffer(mmap.mmap(-1, size), np.uint8)


# ---- steps of 300 to 1500 ms


def fill(free, ready, rooms, cost):
    while True:
        n = free.get()
        decode(cost)
        rooms[n].fill(1)
        ready.put(n)


@job(data=CPU, rest="sync_bound launch_bound")
def recomputed_blocks(s):
    """Activations are recomputed, thousands of kernels a step; two processes fill large slots."""
    ms, every = s.ms("gpu_ms", 250, 800), s.one("item_every", 1, 4, 10)
    size, cost = s.int("mib", 20, 60) << 20, ms * s.ms("load_share", 0.05, 0.5)
    gpu = s.gpu(ms, input_bytes=size, launches=s.int("launches", 2000, 6000))
    rooms = [shared(size) for _ in range(4)]
    free, ready = multiprocessing.Queue(), multiprocessing.Queue()
    for n in range(4):
        free.put(n)
    for _ in range(2):
        child(fill, free, ready, rooms, cost)
    evaluate, last = s.int("evaluate_every", 4, 8), None
    s.go()
    for n in itertools.count(1):
        s.mark()
        with s.during("data"):
            room = ready.get()
        if last is not None:
            free.put(last)
        last = room
        gpu.upload(rooms[room].ctypes.data, size)
        gpu.forward()
        gpu.forward()  # once more, as only the blocks' inputs were kept
        gpu.backward()
        gpu.optimizer()
        if n % every == 0:
            gpu.loss_item()
        if n % evaluate == 0:
            gpu.forward()  # the holdout is on the device
            gpu.loss_item()


def unpack(out, opening, cost, length, size):
    batch = np.ones(size, np.uint8)
    while True:
        decode(opening)  # all names and offsets, before the first sample can be found
        for _ in range(length):
            decode(cost)
            out.put(batch)


@job(data="slow_item " + CPU, rest="sync_bound launch_bound")
def packed_directory(s):
    """A process reads shards of a few batches each, whose packed directory takes a second."""
    ms, length = s.ms("gpu_ms", 250, 380), s.int("shard_batches", 4, 6)
    opening, cost = ms * s.ms("opening_share", 3.2, 5), ms * s.ms("load_share", 0.05, 0.2)
    size = s.int("mib", 1, 4) << 20
    gpu = s.gpu(ms, input_bytes=size, launches=s.int("launches", 100, 1500))
    out = multiprocessing.Queue(maxsize=1)
    s.supplier(child(unpack, out, opening, cost, length, size).pid)
    s.loop(gpu, out.get)


@job(host="host_bound", rest="transfer_bound sync_bound")
def layerwise_states(s):
    """Micro-batches add up; then each layer's gradient comes down, and its weights go up again."""
    floats, layers = 1 << 19, s.int("layers", 24, 48)
    ms, micros = s.ms("gpu_ms", 150, 450), s.int("micros", 2, 6)
    gpu = s.gpu(ms / micros, input_bytes=4 * floats, launches=s.int("launches", 100, 600))
    grad, tmp = np.ones(floats, np.float32), np.ones(floats, np.float32)
    states = [np.ones((3, floats), np.float32) for _ in range(layers)]
    tokens = np.zeros(s.int("tokens", 1000, 8000), np.int64)

    def adam(m, v, weights):
        np.multiply(m, 0.9, m)
        np.add(m, np.multiply(grad, 0.1, tmp), m)
        np.multiply(v, 0.999, v)
        np.multiply(grad, grad, tmp)
        np.add(v, np.multiply(tmp, 0.001, tmp), v)
        np.add(np.sqrt(v, tmp), 1e-8, tmp)
        np.divide(m, tmp, tmp)
        np.subtract(weights, np.multiply(tmp, 1e-3, tmp), weights)
    s.go()
    while True:
        s.mark()
        for _ in range(micros):
            s.mark("micro")
            gpu.upload(tokens.ctypes.data, tokens.nbytes)
            gpu.forward()
            gpu.backward()
        gpu.loss_item()
        for m, v, weights in states:
            gpu.check(gpu.lib.cudaMemcpy(grad.ctypes.data, gpu.input, grad.nbytes, 2))
            with s.during("host"):
                adam(m, v, weights)
            gpu.upload(weights.ctypes.data, weights.nbytes)


@job(data=CPU, threads=True, ckpt="checkpoint_stall host_bound", rest="sync_bound launch_bound")
def block_files(s):
    """A tokenizer thread keeps up; each few steps every block is packed into a file of its own."""
    ms, every = s.ms("gpu_ms", 300, 550), s.int("save_every", 2, 4)
    blocks, save = s.int("blocks", 6, 12), ms * s.ms("save_share", 1.2, 2.5)
    gpu, cost = s.gpu(ms, launches=s.int("launches", 50, 400)), ms * s.ms("load_share", 0.05, 0.3)
    weights, texts = np.ones(s.int("mib", 1, 3) << 18, np.float32), queue.Queue(maxsize=4)

    def tokenize():
        while True:
            decode(cost)
            texts.put(np.zeros((8, 8192), np.int64))
    threading.Thread(target=tokenize, daemon=True).start()
    s.go()
    for n in itertools.count(1):
        s.step(gpu, texts.get)
        if n % every == 0:
            with s.during("ckpt"):
                for block in range(blocks):
                    decode(save / blocks)
                    with open(s.path("block-%d.bin" % block), "wb") as f:
                        f.write(weights)


def regrid(free, ready, room, cost):
    while True:
        decode(cost)
        room.fill(1)
        ready.put(1)
        free.get()


@job(data="slow_worker", rest="sync_bound launch_bound")
def wind_fields(s):
    """Three processes by turns bring weather fields of tens of MB; one has the finest grid."""
    ms, size = s.ms("gpu_ms", 200, 400), s.int("mib", 20, 70) << 20
    costs = [ms * s.ms("load_share", 0.1, 0.35)] * 3
    slow = s.int("slow", 0, 2)
    costs[slow] = ms * s.ms("slow_share", 3.5, 6)
    gpu = s.gpu(ms, input_bytes=size, launches=s.int("launches", 50, 2000))
    desks = []
    for n in range(3):
        desk = multiprocessing.SimpleQueue(), multiprocessing.SimpleQueue(), shared(size)
        p = child(regrid, *desk, costs[n])
        desks.append(desk)
        if n == slow:
            s.supplier(p.pid)
    s.go()
    for free, ready, room in itertools.cycle(desks):
        s.mark()
        with s.during("data"):
            ready.get()
        s.train(gpu, room)
        free.put(1)


@job(host="host_bound rank_straggler", peer="rank_straggler host_bound", rest="sync_bound")
def document_losses(s):
    """Two ranks with long sequences meet each step; one first sums up losses by document."""
    ms, launches = s.ms("gpu_ms", 250, 700), s.int("launches", 200, 3000)
    late, who = ms * s.ms("late_share", 0.3, 1.1), s.int("late_rank", 0, 1)
    tokens = np.zeros(s.int("tokens", 8000, 64000), np.int64)
    door, parent = socket.create_server(("127.0.0.1", 0)), os.getpid()
    for rank in range(2):
        if os.fork():
            continue
        mortal(parent, signal.SIGTERM)  # it has a log to write
        s.rank(rank)
        if rank == 0:
            link = door.accept()[0]
        else:
            link = socket.create_connection(door.getsockname())
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        gpu = s.gpu(ms, launches=launches)
        s.told("go")
        while True:
            s.mark()
            s.train(gpu, tokens)
            if rank == who:
                with s.during("host"):
                    parse(late)
            with s.during("peer"):
                link.sendall(b"b")
                link.recv(1)
    s.go()
    signal.pause()


ROW = 8192


def families(s, out, path, rows):
    fd, chance, order = os.open(path, os.O_RDONLY), random.Random(1), []
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
    while True:
        batch = []
        for _ in range(rows):
            if not order:
                s.cold(path)  # the real file is far larger than memory
                order = list(range(os.fstat(fd).st_size // ROW))
                chance.shuffle(order)
            batch.append(os.pread(fd, ROW, order.pop() * ROW)[:256])
        out.put(np.frombuffer(b"".join(batch), np.uint8))


@job(data="io_bound too_few_workers", rest="sync_bound launch_bound")
def protein_families(s):
    """A process reads each batch's aligned sequences all over a file that is not in memory."""
    ms, path = s.ms("gpu_ms", 200, 450), s.data_file("families.bin", 40)
    fd, begin = os.open(path, os.O_RDONLY), time.monotonic()
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
    for n in range(100):
        os.pread(fd, ROW, n * 51 * ROW)
    row_ms = max((time.monotonic() - begin) * 10, 0.02)
    rows = int(ms * s.ms("load_share", 1.6, 3) / row_ms) + 1
    gpu = s.gpu(ms, input_bytes=256 * rows, launches=s.int("launches", 100, 2000))
    out = multiprocessing.Queue(maxsize=1)
    s.supplier(child(families, s, out, path, rows).pid)
    s.loop(gpu, out.get)


# ---- steps of 1 to 4 ms


@job(data="main_thread_loading host_bound", rest="sync_bound launch_bound")
def gridworld_actions(s):
    """One action, one move of a small world in Python, one update of a small network."""
    gpu = s.gpu(s.ms("gpu_ms", 0.3, 1), launches=s.int("launches", 8, 20))
    move, seen = s.ms("move_ms", 0.6, 2.4), np.zeros(s.int("cells", 64, 1024), np.float32)

    def world():
        parse(move)
        return seen
    s.loop(gpu, world)


@job(rest="sync_bound launch_bound")
def arm_by_arm(s):
    """A bandit: the score of each arm is worked out by tiny kernels, and read by .item()."""
    few, arms = s.int("few", 3, 6), s.int("arms", 14, 20)
    gpu = s.gpu(few * s.ms("kernel_us", 8, 20) / 1e3, launches=few)
    context = np.zeros(s.int("features", 16, 128), np.float32)
    s.go()
    while True:
        s.mark()
        gpu.upload(context.ctypes.data, context.nbytes)
        best = 0.0
        for _ in range(arms):
            gpu.launch(0, few)
            gpu.loss_item()
            best = max(best, gpu.loss.value)
        gpu.launch(1, few)


def far_tables(s):
    """The tables of users and of items, on another machine."""
    late, door = s.ms("late_ms", 0.25, 0.9) / 1e3, socket.create_server(("127.0.0.1", 0))
    s.tell("port", door.getsockname()[1])
    link = door.accept()[0]
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    while ask := link.recv(4):
        time.sleep(late)
        link.sendall(bytes(struct.unpack("<I", ask)[0]))


@job(outside=far_tables, data="network_bound main_thread_loading", rest="sync_bound launch_bound")
def two_hops(s):
    """A recommender's loop asks a server for users' vectors, and with them for those of items."""
    users, items = s.int("users_kib", 1, 4) << 10, s.int("items_kib", 4, 24) << 10
    gpu = s.gpu(s.ms("gpu_ms", 0.4, 1.4), launches=s.int("launches", 5, 20))
    link = socket.create_connection(("127.0.0.1", int(s.told("port"))))
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def ask(size):
        link.sendall(struct.pack("<I", size))
        return link.recv(size, socket.MSG_WAITALL)
    s.loop(gpu, lambda: np.frombuffer(ask(users) + ask(items), np.uint8))


@job(data="lock_bound", threads=True, rest="sync_bound launch_bound")
def basket_cache(s):
    """Threads take shoppers' baskets from a cache, and unpack them with its lock held."""
    ms, threads = s.ms("gpu_ms", 0.5, 1.4), s.int("threads", 2, 4)
    held, after = ms * s.ms("held_share", 1.6, 2.6), ms * s.ms("after_share", 0.1, 0.4)
    gpu, out = s.gpu(ms, launches=s.int("launches", 4, 12)), queue.Queue(maxsize=4)
    cache, size = threading.Lock(), s.int("kib", 4, 64) << 10

    def shop():
        while True:
            with cache:
                decode(held)
            decode(after)
            out.put(np.zeros(size, np.uint8))
    for _ in range(threads):
        threading.Thread(target=shop, daemon=True).start()
    s.loop(gpu, out.get)


def twin(link, cost):
    while True:
        seed = link.recv()
        parse(cost)
        link.send(float(seed))


@job(data=CPU, rest="sync_bound launch_bound")
def perturbed_twins(s):
    """Evolution strategies: processes rate perturbed policies, then the device moves the mean."""
    processes, cost = s.one("processes", 1, 2, 4), s.ms("policy_ms", 0.3, 0.7)
    gpu, links = s.gpu(s.ms("gpu_ms", 0.3, 1), launches=s.int("launches", 4, 16)), []
    for _ in range(processes):
        mine, theirs = multiprocessing.Pipe()
        child(twin, theirs, 4 * cost / processes)
        links.append(mine)

    def fitness():
        for n, link in enumerate(links):
            link.send(n)
        return np.array([link.recv() for link in links], np.float32)
    s.loop(gpu, fitness)


@job(data=CPU, threads=True, rest="sync_bound launch_bound")
def impressions(s):
    """A captured graph learns from ad impressions, which a thread gathers from memory in time."""
    ms, every, rows = s.ms("graph_ms", 1.5, 3.5), s.int("item_every", 2, 8), s.int("rows", 64, 512)
    gpu, out = s.gpu(ms, launches=1), queue.Queue(maxsize=8)
    table, draw = np.ones((20000, 64), np.float32), np.random.default_rng(1)

    def gather():
        while True:
            out.put(table[draw.integers(0, len(table), rows)])
    threading.Thread(target=gather, daemon=True).start()
    s.go()
    for n in itertools.count(1):
        s.mark()
        with s.during("data"):
            x = out.get()
        s.train(gpu, x, item=n % every == 0)


def fields(out, many):
    batch = {"field-%d" % n: np.zeros(8 + n % 50, np.float32) for n in range(many)}
    while True:
        out.put(batch)


@job(data="ipc_bound", rest="sync_bound launch_bound")
def ragged_fields(s):
    """Two processes have batches ready, and send them as hundreds of small arrays by a queue."""
    gpu = s.gpu(s.ms("gpu_ms", 0.3, 1.2), launches=s.int("launches", 4, 16))
    out, many = multiprocessing.Queue(maxsize=4), s.int("fields", 250, 500)
    for _ in range(2):
        child(fields, out, many)
    s.loop(gpu, lambda: np.concatenate(list(out.get().values())))
