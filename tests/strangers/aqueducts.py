# SPDX-License-Identifier: BSD-2-Clause
"""Input pipelines of several stages, one of which (or the loop) is slower than the others."""
import ctypes
import fcntl
import gzip
import itertools
import mmap
import multiprocessing
import os
import queue
import random
import signal
import socket
import struct
import subprocess
import threading
import time

import numpy as np

from stranger import CPU, child, decode, job, mortal, parse


def nap(ms):
    time.sleep(ms / 1e3)


def stage(take, work, cost, give):
    """Any stage: takes a piece, works on it, hands it on."""
    while True:
        x = take()
        work(cost)
        give(x)


def thread(f, *more):
    threading.Thread(target=f, args=more, daemon=True).start()


def fresh(size):
    """What a first stage takes: a piece that lies in memory."""
    return lambda: np.zeros(size, np.float32)


def pair_of(first, first_ms, second, second_ms, size, room=2):
    """Two processes in a row with a bounded queue behind each; returns get."""
    a, b = (multiprocessing.Queue(maxsize=room) for _ in range(2))
    child(stage, fresh(size), first, first_ms, a.put)
    child(stage, a.get, second, second_ms, b.put)
    return b.get


def far_store(s):
    """Answers each request for so many bytes after a while, each connection by itself."""
    late, spread = float(s.told("late")), s.ms("sigma", 0.05, 0.3)
    door = socket.create_server(("127.0.0.1", 0))
    s.tell("port", door.getsockname()[1])

    def serve(link, n):
        chance = random.Random(n)
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while ask := link.recv(4):
            nap(late * chance.lognormvariate(0, spread))
            link.sendall(bytes(struct.unpack("<I", ask)[0]))
    for n in itertools.count():
        thread(serve, door.accept()[0], n)


def asker(port, size):
    """Returns a function that asks the store for an array and waits for it."""
    stream = socket.create_connection(("127.0.0.1", port)).makefile("rwb")

    def ask():
        stream.write(struct.pack("<I", 4 * size))
        stream.flush()
        return np.frombuffer(stream.read(4 * size), np.float32)
    return ask


# ---- a stage far from the loop, or next to it, is too slow


def radar_fetch(port, size, out):
    stage(asker(port, size), decode, 0.3, out.put)


@job(outside=far_store, data="network_bound too_few_workers", rest="sync_bound launch_bound")
def rain_radar(s):
    """Processes fetch radar sweeps from afar, another unpacks them, a thread pins them."""
    ms, workers, size = s.ms("gpu_ms", 8, 45), s.int("workers", 1, 2), s.int("kib", 40, 400) << 8
    gpu, period = s.gpu(ms), ms * s.ms("late_share", 1.5, 4)
    unpack = period * s.ms("unpack_share", 0.2, 0.75)
    s.tell("late", ms * 0.1 if s.fix else period * workers)
    raw, flat = (multiprocessing.Queue(maxsize=3) for _ in range(2))
    pinned, port = queue.Queue(2), int(s.told("port"))
    for _ in range(workers):
        child(radar_fetch, port, size, raw)
    child(stage, raw.get, decode, ms * 0.1 if s.fix else unpack, flat.put)
    locked = ctypes.c_float * size
    ring = [np.frombuffer(locked.from_address(gpu.host_buffer(4 * size)), np.float32)
            for _ in range(5)]

    def pin():
        for n in itertools.count():
            np.copyto(ring[n % 5], flat.get())
            pinned.put(ring[n % 5])
    thread(pin)
    s.loop(gpu, pinned.get)


def stamp(take, catalogue, own, give):
    """Each batch gets its numbers from the catalogue, under the catalogue's lock."""
    with open(catalogue, "ab") as f:
        while True:
            x = take()
            decode(own)
            fcntl.flock(f, fcntl.LOCK_EX)
            decode(0.3)
            fcntl.flock(f, fcntl.LOCK_UN)
            give(x)


def revise(catalogue, hold):
    """Revises the catalogue again and again, and lets go of it for a moment only."""
    with open(catalogue, "ab") as f:
        while True:
            fcntl.flock(f, fcntl.LOCK_EX)
            nap(hold * 0.8)
            decode(hold * 0.2)
            fcntl.flock(f, fcntl.LOCK_UN)
            nap(hold * 0.05)


@job(data="lock_bound", rest="sync_bound launch_bound")
def soil_catalogue(s):
    """Fetch, decode, stamp: the last process needs a file lock that a revision mostly holds."""
    ms, size = s.ms("gpu_ms", 10, 50), s.int("kib", 40, 400) << 8
    gpu, hold = s.gpu(ms), ms * s.ms("hold_share", 1.5, 3.5)
    fetch, unpack = (hold * s.ms(n, 0.2, 0.75) for n in ("fetch_share", "decode_share"))
    if s.fix:
        fetch, unpack = ms * 0.3, ms * 0.3
    get = pair_of(nap, fetch, decode, unpack, size)
    out, name = multiprocessing.Queue(maxsize=2), s.path("catalogue")
    child(revise, name + ".new" if s.fix else name, hold)
    child(stamp, get, name, ms * 0.1 if s.fix else hold * 0.15, out.put)
    s.loop(gpu, out.get)


def deal(size, pause, boxes):
    for box in itertools.cycle(boxes):
        nap(pause)
        box.put(np.zeros(size, np.float32))


@job(data="slow_worker", rest="sync_bound launch_bound")
def drone_strips(s):
    """A reader deals strips out to three decoders, asked in turn; one has an older codec."""
    ms, size = s.ms("gpu_ms", 8, 35), s.int("kib", 40, 400) << 8
    gpu, slow = s.gpu(ms), 3 * ms * s.ms("slow_share", 1.5, 3)
    quick, lame = slow * s.ms("quick_share", 0.08, 0.25), s.int("lame", 0, 2)
    pause = slow / 3 * s.ms("reader_share", 0.2, 0.75)
    boxes, outs = ([multiprocessing.Queue(maxsize=2) for _ in range(3)] for _ in range(2))
    child(deal, size, ms * 0.3 if s.fix else pause, boxes)
    for n in range(3):
        cost = ms * 0.3 if s.fix else slow if n == lame else quick
        p = child(stage, boxes[n].get, decode, cost, outs[n].put)
        if n == lame:
            s.supplier(p.pid)
    turn = itertools.cycle(outs)
    s.loop(gpu, lambda: next(turn).get())


def unpack_floods(size, cost, flood, every, out):
    for n in itertools.count():
        decode(flood if n % every == every - 1 else cost)
        out.put(np.zeros(size, np.float32))


@job(data="slow_item", rest="sync_bound launch_bound")
def river_hydrographs(s):
    """One process unpacks, one augments, a place between them; a few records are of floods."""
    ms, size = s.ms("gpu_ms", 10, 30), s.int("kib", 40, 400) << 8
    gpu, every = s.gpu(ms), s.int("every", 11, 16)
    cost, augment = ms * s.ms("unpack_share", 0.2, 0.35), ms * s.ms("augment_share", 0.2, 0.7)
    flood = ms * s.ms("flood_share", 6.5, 9.5)
    raw, out = (multiprocessing.Queue(maxsize=1) for _ in range(2))
    child(unpack_floods, size, cost, cost if s.fix else flood, every, raw)
    child(stage, raw.get, decode, augment, out.put)
    s.loop(gpu, out.get)


def crowded(core, take, cost, give):
    if core is not None:
        os.sched_setaffinity(0, {core})
    stage(take, decode, cost, give)


@job(data="cpu_oversubscribed", rest="sync_bound launch_bound")
def reef_transects(s):
    """A process fetches, several augment; a launch script has put all of these on one core."""
    ms, size = s.ms("gpu_ms", 8, 45), s.int("kib", 40, 400) << 8
    gpu, cost, crew = s.gpu(ms), ms * s.ms("augment_share", 1.5, 3.5), s.int("crew", 3, 5)
    fetch = cost * s.ms("fetch_share", 0.2, 0.7)
    raw, out = (multiprocessing.Queue(maxsize=6) for _ in range(2))
    core = None if s.fix else max(os.sched_getaffinity(0))
    child(stage, fresh(size), nap, ms * 0.2 if s.fix else fetch, raw.put)
    for _ in range(crew):
        child(crowded, core, raw.get, ms * 0.3 if s.fix else cost, out.put)
    s.loop(gpu, out.get)


def fill_slots(slots, cost, free, full):
    for n in itertools.count():
        free.acquire()
        decode(cost)
        slots[n % 2][::1024] = n
        full.put(n % 2)


def send_slots(slots, whole, free, full, link):
    while True:
        n = full.get()
        link.send(slots[n] if whole else n)
        free.release()


@job(data="ipc_bound", rest="sync_bound launch_bound")
def ocean_grids(s):
    """One process unpacks into shared slots, the next pickles whole grids into a pipe."""
    mib = s.int("mib", 12, 20)
    gpu = s.gpu(mib * s.ms("gpu_share", 0.15, 0.6), launches=s.int("launches", 10, 40))
    unpack = mib * s.ms("unpack_share", 0.1, 0.5)
    memory = mmap.mmap(-1, 2 * mib << 20)
    slots = np.frombuffer(memory, np.float32).reshape(2, -1)
    free, full = multiprocessing.Semaphore(2), multiprocessing.Queue()
    mine, theirs = multiprocessing.Pipe(duplex=False)
    child(fill_slots, slots, unpack * 0.2 if s.fix else unpack, free, full)
    child(send_slots, slots, not s.fix, free, full, theirs)
    s.loop(gpu, lambda: slots[mine.recv()] if s.fix else mine.recv())


# ---- asked for each piece: nothing is ahead


def unpack_when_asked(port, size, cost, link):
    ask = asker(port, size)
    while True:
        link.recv()
        x = ask()
        decode(cost)
        link.send(x)


@job(outside=far_store, data="network_bound", rest="sync_bound launch_bound")
def well_logs(s):
    """The loop asks a process, that asks a store and unpacks: the times add up, most is afar."""
    ms, size = s.ms("gpu_ms", 8, 35), s.int("kib", 20, 200) << 8
    gpu, late = s.gpu(ms), ms * s.ms("late_share", 0.8, 2.2)
    unpack = late * s.ms("unpack_share", 0.2, 0.6)
    s.tell("late", ms * 0.02 if s.fix else late)
    mine, theirs = multiprocessing.Pipe()
    child(unpack_when_asked, int(s.told("port")), size, ms * 0.02 if s.fix else unpack, theirs)

    def obtain():
        mine.send("next")
        return mine.recv()
    s.loop(gpu, obtain)


def codec(link, cost):
    while ask := link.recv(64):
        decode(cost)
        link.sendall(ask)


def cut_clips(link, size, own, out):
    while True:
        parse(own)
        link.sendall(b"clip")
        link.recv(64)
        out.put(np.zeros(size, np.float32))


@job(data=CPU, rest="sync_bound launch_bound")
def sewer_videos(s):
    """A codec answers a process for each clip it cuts: the times add up, most is the codec."""
    ms, size = s.ms("gpu_ms", 8, 45), s.int("kib", 40, 400) << 8
    gpu, share = s.gpu(ms), s.ms("cut_share", 0.2, 0.75)
    cost = ms * (0.4 if s.fix else s.ms("both_share", 1.5, 3.5)) / (1 + share)
    out, (left, right) = multiprocessing.Queue(maxsize=3), socket.socketpair()
    s.supplier(child(codec, right, cost).pid)
    child(cut_clips, left, size, cost * share, out)
    s.loop(gpu, out.get)


def scale_when_asked(link, cost):
    while True:
        x = link.recv()
        decode(cost)
        link.send(x)


@job(data="main_thread_loading cpu_bound", rest="sync_bound launch_bound")
def dam_sensors(s):
    """The loop parses readings that lie ready, then has them scaled: the parsing is most of it."""
    ms, size = s.ms("gpu_ms", 8, 35), s.int("kib", 20, 120) << 8
    gpu, cost = s.gpu(ms), ms * s.ms("parse_share", 0.7, 2.2)
    scale = cost * s.ms("scale_share", 0.2, 0.6)
    if s.fix:
        cost, scale = ms * 0.02, ms * 0.02
    ready, (mine, theirs) = multiprocessing.Queue(maxsize=4), multiprocessing.Pipe()
    child(stage, fresh(size), nap, ms * 0.2, ready.put)
    child(scale_when_asked, theirs, scale)

    def obtain():
        x = ready.get()
        parse(cost)
        mine.send(x)
        return mine.recv()
    s.loop(gpu, obtain)


# ---- ranks


@job(data="rank_straggler gpu_starved", peer="rank_straggler", rest="sync_bound")
def tide_tables(s):
    """Two ranks, each with two stages ahead; a quota has the second one's first stage sleep."""
    ms, launches = s.ms("gpu_ms", 8, 40), s.int("launches", 10, 80)
    size, pace = s.int("kib", 40, 400) << 8, ms * s.ms("pace_share", 1.6, 3.5)
    share, even = s.ms("unpack_share", 0.2, 0.5), ms * s.ms("even_share", 0.1, 0.4)
    door = socket.create_server(("127.0.0.1", 0))
    for rank in range(2):
        parent = os.getpid()
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
        get = pair_of(nap, pace if rank == 1 and not s.fix else even, decode, ms * share, size)
        s.told("go")
        while True:
            s.step(gpu, get)
            with s.during("peer"):
                link.sendall(b"b")
                link.recv(1)
    s.go()
    signal.pause()


# ---- the pipeline keeps up


@job(data=CPU, rest="sync_bound launch_bound")
def lidar_sweeps(s):
    """A thread feeds a program that unpacks, one thins the points; the device takes longer."""
    ms = s.ms("gpu_ms", 25, 150)
    gpu, thin, size = s.gpu(ms), ms * s.ms("thin_share", 0.2, 0.7), s.int("kib", 128, 512) << 10
    packed = gzip.compress(random.Random(1).randbytes(size // 8) * 8, 1)
    parent, out = os.getpid(), queue.Queue(3)
    program = subprocess.Popen(["gzip", "-dc"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                               preexec_fn=lambda: mortal(parent))

    def feed():
        while True:
            program.stdin.write(packed)

    def take():
        return np.frombuffer(program.stdout.read(size), np.uint8)
    thread(feed)
    thread(stage, take, decode, thin, out.put)
    s.loop(gpu, out.get)


@job(data=CPU, host="host_bound", rest="sync_bound launch_bound")
def bird_counts(s):
    """Fetch, decode, collate are each in time; the loop counts species in Python after a step."""
    ms, size = s.ms("gpu_ms", 6, 50), s.int("kib", 40, 400) << 8
    gpu, count = s.gpu(ms), ms * s.ms("count_share", 0.4, 3)
    fetch, unpack = ((ms + count) * s.ms(n, 0.2, 0.7) for n in ("fetch_share", "decode_share"))
    if s.fix:
        count, fetch, unpack = 0, ms * 0.2, ms * 0.4
    get, out = pair_of(nap, fetch, decode, unpack, size, 4), queue.Queue(3)
    thread(stage, get, nap, ms * 0.1, out.put)
    s.go()
    while True:
        s.step(gpu, out.get)
        with s.during("host"):
            parse(count)


@job(data=CPU, ckpt="checkpoint_stall host_bound", rest="sync_bound launch_bound")
def glacier_profiles(s):
    """Two stages keep up; every few steps the loop packs and writes the state block by block."""
    ms, size = s.ms("gpu_ms", 10, 60), s.int("kib", 40, 400) << 8
    gpu, every, blocks = s.gpu(ms), s.int("every", 3, 9), s.int("blocks", 4, 16)
    pack = ms * every * s.ms("pack_share", 0.35, 1.5) / blocks
    fetch, unpack = (ms * s.ms(n, 0.2, 0.7) for n in ("fetch_share", "decode_share"))
    get = pair_of(nap, fetch, decode, unpack, size, 4)
    block = bytes(s.int("kib_block", 64, 512) << 10)
    s.go()
    for n in itertools.count(1):
        s.step(gpu, get)
        if n % every == 0 and not s.fix:
            with s.during("ckpt"), open(s.path("state.part"), "wb") as f:
                for _ in range(blocks):
                    decode(pack)
                    f.write(block)


@job(data=CPU, host="sync_bound host_bound", rest="sync_bound launch_bound")
def plankton_layers(s):
    """Two stages keep up; each layer's scale is read back, and Python decides on the next."""
    ms, layers, each = s.ms("gpu_ms", 8, 60), s.int("layers", 6, 20), s.int("each", 2, 8)
    gpu, think = s.gpu(ms, launches=layers * each), ms * s.ms("think_share", 0.3, 1.5)
    size = s.int("kib", 40, 400) << 8
    fetch, unpack = ((ms + think) * s.ms(n, 0.2, 0.7) for n in ("fetch_share", "decode_share"))
    if s.fix:
        fetch, unpack = ms * 0.3, ms * 0.3
    get = pair_of(nap, fetch, decode, unpack, size, 4)
    s.go()
    while True:
        s.mark()
        with s.during("data"):
            x = get()
        gpu.upload(x.ctypes.data, x.nbytes)
        for _ in range(layers):
            gpu.launch(0, each)
            if not s.fix:  # else the device decides, and only the loss is read
                gpu.loss_item()
                with s.during("host"):
                    parse(think / layers)
        if s.fix:
            gpu.loss_item()
