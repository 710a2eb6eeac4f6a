# SPDX-License-Identifier: BSD-2-Clause
"""Jobs of clinics, in pairs: the same loop and the same step, held up by something else."""
import fcntl
import itertools
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


def step_of(s, low=20, high=110):
    """What the device needs of a step, and how long all of it is to take."""
    step = s.ms("step_ms", low, high)
    return step * s.ms("device_share", 0.1, 0.75), step


def bring(out, cost, size):
    while True:
        decode(cost)
        out.send_bytes(np.zeros(size, np.float32))


def brought(cost, size=50000):
    """A process that makes one batch ahead, and a pipe. Returns what receives, and its pid."""
    mine, theirs = multiprocessing.Pipe(duplex=False)
    p = child(bring, theirs, cost, size)
    return lambda: np.frombuffer(mine.recv_bytes(), np.float32), p.pid


# ---- a thread is asked one ahead, and its answer awaited: a batch, or a verdict


def ask_thread(s, kind, floats):
    ms, step = step_of(s)
    gpu, cost = s.gpu(ms, launches=s.int("launches", 10, 60)), ms / 5 if s.fix else step
    asked, answers = queue.Queue(), queue.Queue()

    def work():
        while True:
            n = asked.get()
            decode(cost)
            answers.put(np.full(floats, n, np.float32))
    threading.Thread(target=work, daemon=True).start()
    s.go()
    asked.put(0)
    for n in itertools.count(1):
        s.mark()
        with s.during(kind):
            x = answers.get()
        asked.put(n)
        s.train(gpu, x)


@job(data=CPU, threads=True, rest="sync_bound launch_bound")
def ecg_windows(s):
    """A thread filters the next window of an electrocardiogram in C, asked one step ahead."""
    ask_thread(s, "data", s.int("floats", 10000, 200000))


@job(child="host_bound", rest="sync_bound launch_bound")
def dose_verdicts(s):
    """Patients lie on the device; a thread simulates each step's doses, and the next awaits it."""
    ask_thread(s, "child", 16)  # factors for the learning rates


# ---- every few steps a process is started and joined: it saves, or examines


def note_down(path, blocks, cost):
    with open(path, "wb", buffering=0) as f:
        for block in blocks:
            decode(cost / len(blocks))
            f.write(block)


def hold_now_and_then(s, kind, blocks):
    ms, step = step_of(s, 15, 60)
    every = s.int("every", 4, 10)
    cost = every * (step - ms)
    gpu = s.gpu(ms, launches=s.int("launches", 10, 60))
    batch, _ = brought(ms * s.ms("load_share", 0.05, 0.3))
    s.go()
    for n in itertools.count(1):
        s.step(gpu, batch)
        if n % every == 0:
            with s.during(kind):
                p = child(note_down, s.path("noted"), blocks, cost / 20 if s.fix else cost)
                p.join()


@job(data=CPU, ckpt="checkpoint_stall host_bound", rest="sync_bound launch_bound")
def splint_archive(s):
    """Every few steps a forked process packs and writes the weights, and the loop joins it."""
    state = np.ones(s.int("mib", 4, 32) << 18, np.float32)
    hold_now_and_then(s, "ckpt", np.array_split(state, 16))


@job(data=CPU, child="host_bound", rest="sync_bound launch_bound")
def splint_review(s):
    """Every few steps a forked process scores held-out fractures, and the loop joins it."""
    hold_now_and_then(s, "child", [b'{"fracture": 0.91}\n'] * 16)


# ---- three processes on one core, each slow: for the registry, or for that core


def registry(s):
    """Where the samples are kept; some way off."""
    late = float(s.told("late"))
    door = socket.create_server(("127.0.0.1", 0))
    s.tell("port", door.getsockname()[1])

    def serve(link, n):
        chance = random.Random(n)
        while ask := link.recv(4):
            size, = struct.unpack("<I", ask)
            time.sleep(late / 1e3 * chance.uniform(0.8, 1.2))
            link.sendall(bytes(size))
    for n in itertools.count():
        threading.Thread(target=serve, args=(door.accept()[0], n), daemon=True).start()


def run_errands(out, port, size, cost):
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    stream = socket.create_connection(("127.0.0.1", port)).makefile("rwb")
    while True:
        stream.write(struct.pack("<I", size))
        stream.flush()
        body = stream.read(size)
        decode(cost)
        out.put(np.frombuffer(body, np.uint8))


def three_errands(s, far):
    ms, step = step_of(s)
    gpu, size = s.gpu(ms, launches=s.int("launches", 10, 60)), s.int("kib", 8, 200) << 10
    late, cost = (3 * step, 0.5) if far else (0.2, step)
    if s.fix:
        late, cost = min(late, ms / 2), min(cost, ms / 5)
    s.tell("late", late)
    out, port = multiprocessing.Queue(maxsize=3), int(s.told("port"))
    for _ in range(3):
        child(run_errands, out, port, size, cost)
    s.loop(gpu, out.get)


@job(outside=registry, data="network_bound too_few_workers", rest="sync_bound launch_bound")
def lab_courier(s):
    """Three processes pinned to one core ask a registry for samples, and it answers late."""
    three_errands(s, True)


@job(outside=registry, data="cpu_oversubscribed", rest="sync_bound launch_bound")
def lab_bench(s):
    """Three processes pinned to one core ask a registry, which is quick, and decode at length."""
    three_errands(s, False)


# ---- three processes fill a slot of shared memory each, in turn: one late, or all by turns


def mount_slides(slot, free, full, first, cost):
    x = np.frombuffer(slot, np.float32)
    for n in itertools.count(first, 3):
        free.acquire()
        decode(cost(n))
        x[:] = n
        full.release()


def three_slots(s, ms, cost, late=None):
    gpu, floats = s.gpu(ms, launches=s.int("launches", 10, 60)), s.int("floats", 4000, 200000)
    crew = []
    for n in range(3):
        slot = multiprocessing.RawArray("f", floats)
        free, full = multiprocessing.Semaphore(1), multiprocessing.Semaphore(0)
        p = child(mount_slides, slot, free, full, n, cost)
        crew.append((np.frombuffer(slot, np.float32), free, full))
        if n == late:
            s.supplier(p.pid)
    s.go()
    for x, free, full in itertools.cycle(crew):
        s.mark()
        with s.during("data"):
            full.acquire()
        s.train(gpu, x)
        free.release()


@job(data="slow_worker", rest="sync_bound launch_bound")
def elder_microscope(s):
    """Three processes fill slots by turns, and one of them has an older codec to undo."""
    ms, step = step_of(s, 20, 60)
    quick, late = ms * s.ms("quick_share", 0.1, 0.5), s.int("late", 0, 2)
    long = quick if s.fix else 3 * step - ms
    three_slots(s, ms, lambda n: long if n % 3 == late else quick, late)


@job(data="slow_item", rest="sync_bound launch_bound")
def thick_smears(s):
    """Three processes fill slots by turns, and some smears, dealt to all, take long to decode."""
    ms, step = step_of(s, 20, 60)
    quick, every = ms * s.ms("quick_share", 0.1, 0.5), s.one("every", 5, 7, 8)
    long = quick if s.fix else every * (step - ms) + 2 * ms
    three_slots(s, ms, lambda n: quick if n % every else long)


# ---- two workers of a DataLoader: half of each sample waits for a lock, or all of it computes


def two_workers(s, locked):
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    import torch
    ms, step = step_of(s)
    gpu, side = s.gpu(ms, launches=s.int("launches", 10, 60)), s.int("side", 64, 256)
    cost, parent = ms / 4 if s.fix else step, os.getpid()
    s.tell("atlas", "")

    class Instruments(torch.utils.data.IterableDataset):
        def __iter__(self):
            with open(s.path("atlas"), "rb") as f:
                while True:
                    if locked:
                        fcntl.flock(f, fcntl.LOCK_EX)
                        decode(cost)
                        fcntl.flock(f, fcntl.LOCK_UN)
                    else:
                        decode(2 * cost)
                    yield torch.zeros(side, side)
    batches = iter(torch.utils.data.DataLoader(Instruments(), None, num_workers=2,
                                               worker_init_fn=lambda _: mortal(parent)))
    s.loop(gpu, lambda: next(batches).numpy())


@job(data="lock_bound", rest="sync_bound launch_bound")
def single_autoclave(s):
    """Two DataLoader workers decode images, each with the advisory lock of one atlas held."""
    two_workers(s, True)


@job(data=CPU, rest="sync_bound launch_bound")
def double_rinse(s):
    """Two DataLoader workers decode images of twice the cost, with no lock between them."""
    two_workers(s, False)


# ---- two ranks, of which the second comes late to each barrier: by its own code, or its loader


def two_ranks(s, own):
    ms, step = step_of(s)
    launches, quick = s.int("launches", 10, 60), ms * s.ms("load_share", 0.05, 0.2)
    parent, door = os.getpid(), socket.create_server(("127.0.0.1", 0))
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
        late = rank == 1 and not s.fix
        gpu = s.gpu(ms, launches=launches)
        batch, pid = brought(step if late and not own else quick)
        if late and not own:
            s.supplier(pid)
        s.told("go")
        while True:
            s.step(gpu, batch)
            if late and own:
                with s.during("host"):
                    parse(step - ms)  # a stitch count for each sample, in Python
            with s.during("peer"):
                link.sendall(b"b")
                link.recv(1)
    s.go()
    signal.pause()


@job(data=CPU, host="host_bound rank_straggler", peer="rank_straggler host_bound",
     rest="sync_bound launch_bound")
def tardy_surgeon(s):
    """Two ranks meet each step over TCP; the second counts stitches in Python before it comes."""
    two_ranks(s, True)


@job(data=CPU + " rank_straggler", peer="rank_straggler", rest="sync_bound launch_bound")
def tardy_theatre(s):
    """Two ranks meet each step over TCP; the second one's loader process decodes longer films."""
    two_ranks(s, False)


# ---- a step that grows and begins anew: its batch grows, or what is read back of it


def growing(s):
    """Returns a device, how long a piece takes, and the number of pieces of each step."""
    ms, step = step_of(s, 20, 90)
    span = s.int("span", 8, 20)
    piece = (step - ms) / (2 + (span - 1) / 2)
    gpu = s.gpu(ms, launches=s.int("launches", 10, 60))
    return gpu, piece / 20 if s.fix else piece, (2 + n % span for n in itertools.count())


@job(data="main_thread_loading", rest="sync_bound launch_bound")
def swelling_charts(s):
    """The loop itself parses a step's fever charts, of which there are more from step to step."""
    gpu, piece, counts = growing(s)
    s.go()
    for count in counts:
        s.mark()
        with s.during("data"):
            x = np.zeros((count, 4096), np.float32)
            for row in x:
                parse(piece)
                row[:] = count
        s.train(gpu, x)


@job(host="host_bound sync_bound", rest="sync_bound host_bound launch_bound")
def swelling_tests(s):
    """Charts lie on the device; test by test a score is read and judged, and tests are added."""
    gpu, piece, counts = growing(s)
    rows = np.zeros(64, np.int64)
    s.go()
    for count in counts:
        s.mark()
        s.train(gpu, rows, item=False)
        for _ in range(count):
            gpu.launch(2, 1)
            gpu.loss_item()
            with s.during("host"):
                parse(piece)  # is the test passed, and by whom
