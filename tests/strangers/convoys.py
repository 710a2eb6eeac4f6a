# SPDX-License-Identifier: BSD-2-Clause
"""Jobs of several ranks on one machine, as people launch them, and what holds them up."""
import fcntl
import functools
import itertools
import mmap
import multiprocessing
import multiprocessing.connection
import os
import queue
import random
import signal
import socket
import struct
import subprocess
import sys
import threading
import time

import numpy as np

from stranger import CPU, child, decode, job, mortal, parse


def forked(s, many):
    """Forks the ranks: comes back in each of them, and never in the one that forked."""
    parent = os.getpid()
    for rank in range(many):
        if os.fork():
            continue
        mortal(parent, signal.SIGTERM)  # it has a log to write
        s.rank(rank)
        return rank
    await_all(s, many)


def await_all(s, many):
    """What a launcher does."""
    for rank in range(many):
        s.told("ready-%d" % rank)
    s.go()
    while True:
        signal.pause()


def ready(s, rank):
    s.tell("ready-%d" % rank, os.getpid())
    s.told("go")


def launching():
    return "CONVOY_RANK" not in os.environ


def launched(s, many, shell=False):
    """Starts the ranks as programs: comes back in each of them, and never in the launcher."""
    if not launching():
        mortal(int(os.environ["CONVOY_PARENT"]), signal.SIGTERM)
        s.rank(int(os.environ["CONVOY_RANK"]))
        return s.number
    program = [sys.executable, *sys.orig_argv[1:]]
    if shell:
        script = ('for n in %s; do CONVOY_RANK=$n CONVOY_PARENT=$$ "$@" & done; wait'
                  % " ".join(map(str, range(many))))
        start(["sh", "-c", script, "sh", *program], {})
    else:
        for rank in range(many):
            start(program, {"CONVOY_RANK": str(rank), "CONVOY_PARENT": str(os.getpid())})
    await_all(s, many)


def start(command, more):
    number = signal.SIGTERM if more else signal.SIGKILL
    subprocess.Popen(command, stdin=subprocess.DEVNULL, env={**os.environ, **more},
                     preexec_fn=functools.partial(mortal, os.getpid(), number))


class Commons:
    """Gradients in shared memory, in two buffers by turns, and a barrier."""

    def __init__(self, many, floats):
        room = mmap.mmap(-1, 8 * many * floats)
        self.slots = np.frombuffer(room, np.float32).reshape(2, many, floats)
        self.barrier, self.n = multiprocessing.Barrier(many), 0

    def swap(self, s):
        self.n += 1
        slots = self.slots[self.n % 2]
        slots[s.number] = self.n
        with s.during("peer"):
            self.barrier.wait()
        return slots.sum(0)


class Link:
    """Gradients over a socket to the only other rank."""

    def __init__(self, link, size):
        self.link, self.size, self.incoming = link, size, link.makefile("rb")

    def swap(self, s):
        with s.during("peer"):
            self.link.sendall(bytes(self.size))
            return np.frombuffer(self.incoming.read(self.size), np.uint8)


def learn(s, gpu, x, way):
    """A step's GPU part, with a swap before the optimizer."""
    if x is not None:
        gpu.upload(x.ctypes.data, x.nbytes)
    gpu.forward()
    gpu.backward()
    gpu.loss_item()
    total = way.swap(s)
    gpu.upload(total.ctypes.data, total.nbytes)
    gpu.optimizer()


def maker(out, cost, floats):
    while True:
        decode(cost)
        out.put(np.zeros(floats, np.float32))


def loader(cost, workers=1, floats=20000, depth=4):
    """Processes that decode, and a queue. Returns get and the last one's pid."""
    out = multiprocessing.Queue(maxsize=depth)
    for _ in range(workers):
        pid = child(maker, out, cost, floats).pid
    return out.get, pid


def each(s, gpu, batch, way):
    while True:
        s.mark()
        with s.during("data"):
            x = batch()
        learn(s, gpu, x, way)


# ---- the data: of one rank, or of all


@job(data="main_thread_loading cpu_bound rank_straggler",
     peer="rank_straggler main_thread_loading", rest="sync_bound launch_bound")
def dealt_by_first(s):
    """The first of three ranks unpacks each batch in its loop and deals the others their parts."""
    ms, launches = s.ms("gpu_ms", 8, 40), s.int("launches", 10, 100)
    share, size = s.ms("unpack_share", 0.3, 2.5), s.int("kib", 20, 120) << 10
    cost = ms * (0.03 if s.fix else share)
    way, links = Commons(3, s.int("floats", 500, 8000)), [socket.socketpair() for _ in range(2)]
    rank = forked(s, 3)
    incoming = links[rank - 1][1].makefile("rb") if rank else None

    def part():
        if rank:
            return np.frombuffer(incoming.read(size), np.uint8)
        decode(cost)
        for mine, _ in links:
            mine.sendall(bytes(size))
        return np.zeros(size, np.uint8)
    gpu = s.gpu(ms, launches=launches)
    ready(s, rank)
    each(s, gpu, part, way)


def driver(out, path, want, size):
    """Reads as many blocks for a batch as this drive needs so long for."""
    fd, chance = os.open(path, os.O_RDONLY), random.Random(11)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
    blocks = os.fstat(fd).st_size // size

    def read():
        at = chance.randrange(blocks) * size
        block = os.pread(fd, size, at)
        os.posix_fadvise(fd, at, size, os.POSIX_FADV_DONTNEED)
        return block
    begin = time.monotonic()
    for _ in range(20):
        read()
    one = (time.monotonic() - begin) / 20
    many = max(1, min(round(want / 1e3 / one), 1000))
    while True:
        for _ in range(many):
            block = read()
        out.put(np.frombuffer(block, np.uint8))


@job(data="io_bound too_few_workers rank_straggler", peer="rank_straggler io_bound",
     rest="sync_bound launch_bound")
def slow_drive_rank(s):
    """Two ranks with a loader each; the second one's shard lies on the disk and not in memory."""
    ms, launches = s.ms("gpu_ms", 8, 40), s.int("launches", 10, 100)
    share, size = s.ms("read_share", 1.3, 3.5), s.one("block_kib", 16, 32, 64, 128) << 10
    load = ms * s.ms("load_share", 0.04, 0.15)
    way, path = Commons(2, s.int("floats", 500, 8000)), s.data_file("convoys.bin", 32)
    rank = forked(s, 2)
    if rank == 1 and not s.fix:
        out = multiprocessing.Queue(maxsize=3)
        s.supplier(child(driver, out, path, ms * share, size).pid)
        batch = out.get
    else:
        batch, _ = loader(load)
    gpu = s.gpu(ms, launches=launches)
    ready(s, rank)
    each(s, gpu, batch, way)


def stumbler(out, light, heavy, every):
    for n in itertools.count():
        decode(heavy if n % every == 0 else light)
        out.put(np.zeros(20000, np.float32))


@job(data="slow_item rank_straggler " + CPU, peer="rank_straggler slow_item",
     rest="sync_bound launch_bound")
def stages_apart(s):
    """A model in two stages, a batch in each; a few items of the first one's loader are long."""
    ms, launches = s.ms("gpu_ms", 5, 20), s.int("launches", 10, 100)
    every, share, light = s.int("every", 4, 6), s.ms("share", 1.15, 1.8), ms * 0.25
    heavy = light if s.fix else (ms * share - light) * every
    size, ends = s.int("kib", 8, 64) << 10, socket.socketpair()
    rank = forked(s, 2)
    link, incoming = ends[rank], ends[rank].makefile("rb")
    gpu = s.gpu(ms, launches=launches)

    def other():
        with s.during("peer"):
            x = np.frombuffer(incoming.read(size), np.uint8)
        gpu.upload(x.ctypes.data, x.nbytes)
    if rank == 0:
        out = multiprocessing.Queue(maxsize=3)
        s.supplier(child(stumbler, out, light, heavy, every).pid)
        ready(s, rank)
        for n in itertools.count():
            s.mark()
            with s.during("data"):
                x = out.get()
            gpu.upload(x.ctypes.data, x.nbytes)
            gpu.forward()
            gpu.loss_item()  # the activations
            link.sendall(bytes(size))
            if n:
                other()  # the gradients of the batch before
                gpu.backward()
                gpu.optimizer()
    ready(s, rank)
    while True:
        s.mark()
        other()
        gpu.forward()
        gpu.backward()
        gpu.optimizer()
        gpu.loss_item()
        link.sendall(bytes(size))


def pantry(ends, cost, size):
    """Answers one after another, whoever has asked."""
    chance = random.Random(13)
    while True:
        asking = multiprocessing.connection.wait(ends)
        chance.shuffle(asking)
        for end in asking:
            end.recv()
            decode(cost)
            end.send_bytes(bytes(size))


@job(data=CPU, rest="sync_bound launch_bound")
def common_pantry(s):
    """Two or three ranks ask one cache process a batch ahead, and it unpacks for each in turn."""
    many, ms, launches = s.int("ranks", 2, 3), s.ms("gpu_ms", 8, 40), s.int("launches", 10, 100)
    share, size = s.ms("unpack_share", 1.3, 3), s.int("kib", 20, 300) << 10
    pipes = [multiprocessing.Pipe() for _ in range(many)]
    cost = ms * (0.15 if s.fix else share) / many
    s.supplier(child(pantry, [theirs for _, theirs in pipes], cost, size).pid)
    way = Commons(many, s.int("floats", 500, 8000))
    rank = forked(s, many)
    mine, gpu = pipes[rank][0], s.gpu(ms, launches=launches)

    def batch():
        x = mine.recv_bytes()
        mine.send("next")
        return np.frombuffer(x, np.uint8)
    ready(s, rank)
    mine.send("first")
    each(s, gpu, batch, way)


def turn_taker(out, path, cost, held):
    """The index may be moved while nobody holds it, so it is held until all is unpacked."""
    with open(path, "r+b") as index:
        while True:
            fcntl.lockf(index, fcntl.LOCK_EX)
            if held:
                decode(cost)
            fcntl.lockf(index, fcntl.LOCK_UN)
            if not held:
                decode(cost)
            out.put(np.zeros(20000, np.float32))


@job(data="lock_bound", rest="sync_bound launch_bound")
def index_by_turns(s):
    """Three ranks with a worker each, which hold a lock on one index file while they unpack."""
    ms, launches = s.ms("gpu_ms", 10, 50), s.int("launches", 10, 100)
    cost = ms * (0.1 if s.fix else s.ms("held_share", 0.45, 0.8))
    way, path = Commons(3, s.int("floats", 500, 8000)), s.path("index")
    with open(path, "wb") as f:
        f.write(bytes(4096))
    rank = forked(s, 3)
    out = multiprocessing.Queue(maxsize=3)
    child(turn_taker, out, path, cost, not s.fix)
    gpu = s.gpu(ms, launches=launches)
    ready(s, rank)
    each(s, gpu, out.get, way)


@job(data=CPU, rest="sync_bound launch_bound")
def crowded_pair(s):
    """A shell starts two runs that never meet, each with as many workers as for a large machine."""
    ms, launches = s.ms("gpu_ms", 8, 40), s.int("launches", 10, 100)
    workers, share = s.int("workers", 2, 3), s.ms("decode_share", 1.3, 3)
    rank = launched(s, 2, shell=True)
    batch, _ = loader(ms * 0.1, 1) if s.fix else loader(ms * share, workers)
    gpu = s.gpu(ms, launches=launches)
    ready(s, rank)
    while True:
        s.step(gpu, batch)


def far_shelf(s):
    """A store at the other end of a long line."""
    late, chance = float(s.told("late")), random.Random(17)
    door = socket.create_server(("127.0.0.1", 0))
    s.tell("port", door.getsockname()[1])
    link = door.accept()[0]
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    asked = link.makefile("rb")
    while ask := asked.read(4):
        time.sleep(late / 1e3 * chance.uniform(0.8, 1.2))
        link.sendall(bytes(struct.unpack("<I", ask)[0]))


def porter(out, port, size):
    link = socket.create_connection(("127.0.0.1", port))
    body = link.makefile("rb")
    while True:
        link.sendall(struct.pack("<I", size))
        out.put(np.frombuffer(body.read(size), np.uint8))


@job(outside=far_shelf, data="network_bound too_few_workers rank_straggler",
     peer="rank_straggler network_bound", rest="sync_bound launch_bound")
def far_member(s):
    """A launcher starts two ranks; the second one's worker fetches its shard from a far store."""
    ms, launches = s.ms("gpu_ms", 8, 40), s.int("launches", 10, 100)
    late, size = ms * s.ms("late_share", 1.3, 3.5), s.int("kib", 8, 300) << 10
    load, packed = ms * s.ms("load_share", 0.04, 0.15), s.int("gradient_kib", 2, 32) << 10
    if launching():
        s.tell("late", ms * 0.1 if s.fix else late)
    rank = launched(s, 2)
    if rank == 0:
        batch, _ = loader(load)
        door = socket.create_server(("127.0.0.1", 0))
        s.tell("meet", door.getsockname()[1])
        link = door.accept()[0]
    else:
        out = multiprocessing.Queue(maxsize=3)
        s.supplier(child(porter, out, int(s.told("port")), size).pid)
        batch, link = out.get, socket.create_connection(("127.0.0.1", int(s.told("meet"))))
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    gpu = s.gpu(ms, launches=launches)
    ready(s, rank)
    each(s, gpu, batch, Link(link, packed))


class Ring:
    """Each sends to its right neighbour and waits for its left one, until all have all."""

    def __init__(self, pipes, rank, size):
        self.left, self.right = pipes[rank - 1][0], pipes[rank][1]
        self.hops, self.size = len(pipes) - 1, size

    def swap(self, s):
        with s.during("peer"):
            for _ in range(self.hops):
                self.right.send_bytes(bytes(self.size))
                block = self.left.recv_bytes()
        return np.frombuffer(block, np.uint8)


@job(data="slow_worker rank_straggler", peer="rank_straggler slow_worker",
     rest="sync_bound launch_bound")
def lame_in_ring(s):
    """Three ranks in a ring, with two workers each, asked by turns; one of the six is far slower."""
    ms, launches = s.ms("gpu_ms", 6, 25), s.int("launches", 10, 100)
    quick, share = ms * s.ms("load_share", 0.05, 0.15), s.ms("lame_share", 1.25, 2.5)
    where, size = s.int("lame_rank", 0, 2), s.int("kib", 2, 32) << 10
    pipes = [multiprocessing.Pipe(duplex=False) for _ in range(3)]
    rank = forked(s, 3)
    first, _ = loader(quick, depth=2)
    if rank == where and not s.fix:
        second, pid = loader(2 * ms * share, depth=2)
        s.supplier(pid)
    else:
        second, _ = loader(quick, depth=2)
    turns = itertools.cycle([first, second])
    gpu = s.gpu(ms, launches=launches)
    ready(s, rank)
    each(s, gpu, lambda: next(turns)(), Ring(pipes, rank, size))


def hatch(queues, floats):
    """All is unpacked already and is handed out again and again."""
    volume = np.zeros(floats, np.float32)
    while True:
        for out in queues:
            out.put(volume)


@job(data="ipc_bound", rest="sync_bound launch_bound")
def one_hatch(s):
    """One process hands volumes that it has in memory to two ranks, through a queue for each."""
    ms, launches = s.ms("gpu_ms", 5, 15), s.int("launches", 10, 100)
    floats = s.int("mib", 6, 16) << 18
    if s.fix:
        floats = 1 << 14
    queues = [multiprocessing.Queue(maxsize=2) for _ in range(2)]
    child(hatch, queues, floats)
    way = Commons(2, s.int("floats", 500, 8000))
    rank = forked(s, 2)
    gpu = s.gpu(ms, input_bytes=4 * floats, launches=launches)
    ready(s, rank)
    each(s, gpu, queues[rank].get, way)


# ---- something else than the data


@job(host="host_bound rank_straggler", peer="rank_straggler host_bound", rest="sync_bound")
def held_out_alone(s):
    """After every few steps the first of two ranks tries the held-out set, and the other waits."""
    ms, launches = s.ms("gpu_ms", 6, 25), s.int("launches", 10, 100)
    every, parts, share = s.int("every", 1, 3), s.int("parts", 1, 3), s.ms("share", 0.25, 0.65)
    score = every * ms * share / (1 - share) / parts
    size, ends = s.int("kib", 2, 32) << 10, socket.socketpair()
    rank = forked(s, 2)
    gpu, way = s.gpu(ms, launches=launches), Link(ends[rank], size)
    ready(s, rank)  # both sets lie on the devices
    for n in itertools.count(1):
        s.mark()
        learn(s, gpu, None, way)
        if rank == 0 and n % every == 0 and not s.fix:
            for _ in range(parts):
                s.mark("micro")
                gpu.forward()
                gpu.loss_item()
                with s.during("host"):
                    parse(score)  # spans, matched with the true ones


@job(data="main_thread_loading", peer="rank_straggler", rest="sync_bound launch_bound")
def long_documents(s):
    """Two ranks meet after some micro-batches; one packs short notes, one has long documents."""
    ms, launches = s.ms("gpu_ms", 4, 12), s.int("launches", 10, 100)
    times, longer = s.int("times", 2, 4), s.ms("longer", 1.4, 3.5)
    pack, size = ms * s.ms("pack_share", 0.03, 0.06), s.int("kib", 2, 32) << 10
    ends = socket.socketpair()
    rank = forked(s, 2)
    way, ids = Link(ends[rank], size), np.zeros((8, 512), np.int64)
    gpu = s.gpu(ms * longer if rank == 1 and not s.fix else ms, launches=launches)
    ready(s, rank)
    while True:
        s.mark()
        for _ in range(times):
            s.mark("micro")
            if rank == 0:  # the documents lie on the other's device, a row each
                with s.during("data"):
                    parse(pack)
                gpu.upload(ids.ctypes.data, ids.nbytes)
            gpu.forward()
            gpu.backward()
            gpu.loss_item()
        total = way.swap(s)
        gpu.upload(total.ctypes.data, total.nbytes)
        gpu.optimizer()


@job(data=CPU, ckpt="checkpoint_stall host_bound", peer="checkpoint_stall host_bound",
     rest="sync_bound launch_bound")
def saves_in_turn(s):
    """Two or three ranks pack and write their parts of the state, one after another."""
    many, ms, launches = s.int("ranks", 2, 3), s.ms("gpu_ms", 6, 20), s.int("launches", 10, 100)
    every, share = s.int("every", 2, 4), s.ms("share", 0.25, 0.6)
    pack = every * ms * share / (1 - share) / many / 4
    load, part = ms * s.ms("load_share", 0.04, 0.15), bytes(s.int("kib", 64, 500) << 10)
    way = Commons(many, s.int("floats", 500, 8000))
    rank = forked(s, many)
    batch, _ = loader(load)
    gpu = s.gpu(ms, launches=launches)

    def save():
        with s.during("ckpt"), open(s.path("part-%d.ckpt" % rank), "wb") as f:
            for _ in range(4):
                decode(pack)
                f.write(part)
    ready(s, rank)
    for n in itertools.count(1):
        s.mark()
        with s.during("data"):
            x = batch()
        learn(s, gpu, x, way)
        if n % every or s.fix:
            continue
        gpu.loss_item()  # the weights must be final
        for turn in range(many):  # the disk shall not be asked for all at once
            if turn == rank:
                save()
            with s.during("peer"):
                way.barrier.wait()


def clerk(door, many, size):
    """Has the weights: takes a gradient from each, and answers all."""
    links = [door.accept()[0] for _ in range(many)]
    for link in links:
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    files, weights = [link.makefile("rb") for link in links], np.zeros(size, np.uint8)
    while True:
        for f in files:
            weights += np.frombuffer(f.read(size), np.uint8)
        for link in links:
            link.sendall(weights.tobytes())


def oar(s, rank, parent, port, size, ms, launches, load):
    signal.signal(signal.SIGTERM, s.end)
    mortal(parent, signal.SIGTERM)
    s.rank(rank)
    link, batches = socket.create_connection(("127.0.0.1", port)), queue.Queue(3)
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def make():
        while True:
            decode(load)
            batches.put(np.zeros(20000, np.float32))
    threading.Thread(target=make, daemon=True).start()
    gpu = s.gpu(ms, launches=launches)
    ready(s, rank)
    each(s, gpu, batches.get, Link(link, size))


@job(data=CPU, rest="sync_bound launch_bound")
def even_oars(s):
    """Two spawned ranks that are alike, a thread that decodes in each, and a parameter server."""
    ms, launches = s.ms("gpu_ms", 25, 110), s.int("launches", 10, 100)
    load, size = ms * s.ms("load_share", 0.05, 0.3), s.int("kib", 4, 64) << 10
    door = socket.create_server(("127.0.0.1", 0))
    child(clerk, door, 2, size)
    spawn, port = multiprocessing.get_context("spawn"), door.getsockname()[1]
    for rank in range(2):
        spawn.Process(target=oar, args=(s, rank, os.getpid(), port, size, ms, launches,
                                        load)).start()
    await_all(s, 2)


@job(host="host_bound sync_bound", peer="sync_bound host_bound",
     rest="sync_bound launch_bound")
def bucket_by_bucket(s):
    """Two equal ranks swap gradients by the bucket, and wait for the device before each."""
    ms, launches = s.ms("gpu_ms", 6, 30), s.int("launches", 30, 150)
    many, share = s.int("buckets", 3, 8), s.ms("pack_share", 0.2, 0.65)
    size, ends = s.int("kib", 2, 32) << 10, socket.socketpair()
    pack = ms * share / (1 - share) / many
    rank = forked(s, 2)
    gpu, way = s.gpu(ms, launches=launches), Link(ends[rank], size)
    ready(s, rank)  # the data lies on the devices
    while True:
        s.mark()
        if s.fix:
            learn(s, gpu, None, way)
            continue
        gpu.forward()
        for n in range(many):
            gpu.launch(1, launches // 2 * (n + 1) // many - launches // 2 * n // many)
            gpu.sync(False)
            with s.during("host"):
                decode(pack)  # to half as many bits, with what was lost before added
            total = way.swap(s)
            gpu.upload(total.ctypes.data, total.nbytes)
        gpu.optimizer()
        gpu.loss_item()
