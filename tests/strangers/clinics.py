# SPDX-License-Identifier: BSD-2-Clause
"""Twins: two jobs each with the same loop and the same symptom, and another cause."""
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

# ---- three threads that fetch, and a queue that is empty


def archive(s):
    """An archive of scans in another building."""
    late = float(s.told("late"))
    door = socket.create_server(("127.0.0.1", 0))
    s.tell("port", door.getsockname()[1])

    def serve(link, n):
        chance = random.Random(n)
        while ask := link.recv(4):
            size, = struct.unpack("<I", ask)
            time.sleep(late / 1e3 * chance.lognormvariate(0, 0.1))
            link.sendall(bytes(size))
    for n in itertools.count():
        threading.Thread(target=serve, args=(door.accept()[0], n), daemon=True).start()


def fetched(s, late, unpack):
    s.tell("late", late)
    out, port, size = queue.Queue(4), int(s.told("port")), s.int("kib", 8, 200) << 10

    def fetch():
        stream = socket.create_connection(("127.0.0.1", port)).makefile("rwb")
        while True:
            stream.write(struct.pack("<I", size))
            stream.flush()
            body = stream.read(size)
            unpack()
            out.put(np.frombuffer(body, np.uint8))
    for _ in range(3):
        threading.Thread(target=fetch, daemon=True).start()
    return out.get


@job(outside=archive, data="network_bound too_few_workers", rest="sync_bound launch_bound")
def other_building(s):
    """Three threads fetch scans from an archive that answers late, and unpack them at once."""
    ms = s.ms("gpu_ms", 8, 40)
    gpu, pace = s.gpu(ms), ms * s.ms("pace", 1.3, 4)
    s.loop(gpu, fetched(s, 3 * pace, lambda: decode(0.05 * ms)))


@job(outside=archive, data="lock_bound", rest="sync_bound launch_bound")
def only_seat(s):
    """Three threads fetch scans soon, and unpack them with a licence that has one seat."""
    ms = s.ms("gpu_ms", 8, 40)
    gpu, pace = s.gpu(ms), ms * s.ms("pace", 1.3, 4)
    seat = threading.Lock()

    def unpack():
        with seat:
            decode(pace)
    s.loop(gpu, fetched(s, 0.1 * pace, unpack))


# ---- a DataLoader with three workers, of whose batches now and then one is late


def strips(s, ms, slow, late):
    """Heart strips; slow tells by the worker and the strip's number which take long."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    import torch
    size, quick, parent = s.int("floats", 20000, 200000), ms * 0.05, os.getpid()

    class Strips(torch.utils.data.Dataset):
        def __len__(self):
            return 1 << 20

        def __getitem__(self, n):
            worker = torch.utils.data.get_worker_info().id
            decode(late if slow(worker, n) else quick)
            return torch.zeros(size)
    gpu = s.gpu(ms)
    return gpu, iter(torch.utils.data.DataLoader(Strips(), None, num_workers=3,
                                                 worker_init_fn=lambda _: mortal(parent)))


@job(data="slow_worker", rest="sync_bound launch_bound")
def tired_nurse(s):
    """Heart strips from three workers, one of which was left with the slow build of the codec."""
    ms, tired = s.ms("gpu_ms", 8, 30), s.int("tired", 0, 2)
    late = 3 * ms * (1 + s.ms("wait_share", 0.3, 2))
    gpu, batches = strips(s, ms, lambda worker, n: worker == tired, late)
    s.supplier(batches._workers[tired].pid)
    s.loop(gpu, lambda: next(batches).numpy())


@job(data="slow_item", rest="sync_bound launch_bound")
def day_long_strips(s):
    """Heart strips from three workers, in order; a few strips were recorded for a whole day."""
    ms, period = s.ms("gpu_ms", 8, 30), s.one("period", 7, 8, 10, 11)
    late = ms * (6 + period * s.ms("wait_share", 0.3, 2))  # six are on their way
    gpu, batches = strips(s, ms, lambda worker, n: n % period == period - 1, late)
    s.loop(gpu, lambda: next(batches).numpy())


# ---- three processes by turns, each with a slot in shared memory and two semaphores


def slots(s, parts, width, cost=0, core=None):
    """A batch comes in so many parts through its maker's slot."""
    def fill(area, free, full):
        if core is not None:
            os.sched_setaffinity(0, {core})
        slot, own = np.frombuffer(area, np.float32), np.ones(width, np.float32)
        while True:
            decode(cost)
            for _ in range(parts):
                free.acquire()
                slot[:] = own
                full.release()
    makers = []
    for _ in range(3):
        area = multiprocessing.RawArray("f", width)
        free, full = multiprocessing.Semaphore(1), multiprocessing.Semaphore(0)
        child(fill, area, free, full)
        makers.append((np.frombuffer(area, np.float32), free, full))
    turns, batch = itertools.cycle(makers), np.zeros((parts, width), np.float32)

    def obtain():
        slot, free, full = next(turns)
        for row in batch:
            full.acquire()
            row[:] = slot
            free.release()
        return batch
    return obtain


@job(data="cpu_oversubscribed", rest="sync_bound launch_bound")
def bunk_room(s):
    """Three makers fill slots of shared memory; a start script has put all of them on one core."""
    ms, width = s.ms("gpu_ms", 8, 40), s.int("floats", 20000, 300000)
    cost, gpu = ms * s.ms("pace", 1.3, 4), s.gpu(ms)
    s.loop(gpu, slots(s, 1, width, cost, max(os.sched_getaffinity(0))))


@job(data="ipc_bound", rest="sync_bound launch_bound")
def dose_by_dose(s):
    """Three makers have batches ready; row by row they pass through slots of shared memory."""
    parts, width = s.int("rows", 250, 900), s.int("floats", 200, 1500)
    gpu = s.gpu(parts * s.ms("gpu_ms_per_row", 0.015, 0.06), input_bytes=4 * parts * width)
    s.loop(gpu, slots(s, parts, width))


# ---- Python at the top of each step


def at_the_top(s, kind, size):
    ms = s.ms("gpu_ms", 6, 20)
    gpu, cost = s.gpu(ms), ms * s.ms("top_share", 0.3, 8)
    s.go()
    while True:
        s.mark()
        with s.during(kind):
            parse(cost)
            x = np.zeros(size, np.float32)
        s.train(gpu, x)


@job(data="main_thread_loading", rest="sync_bound launch_bound")
def spelled_letters(s):
    """Doctors' letters in memory are parsed and spelled out for each step by the loop itself."""
    at_the_top(s, "data", s.int("floats", 30000, 250000))


@job(host="host_bound", rest="sync_bound launch_bound")
def weighed_answers(s):
    """All letters lie on the device; the last step's answers are weighed before the next one."""
    at_the_top(s, "host", 64)  # the rows' numbers


# ---- layer by layer, with some Python for each, and a device that is half idle


def layers(s, low, high, each):
    many, kernel = s.int("layers", 20, 60), s.ms("kernel_ms", 0.3, 0.8)
    gpu, own = s.gpu(many * kernel, launches=many), kernel * s.ms("own_share", low, high)
    rows = np.zeros(64, np.int64)
    s.go()
    while True:
        s.mark()
        gpu.upload(rows.ctypes.data, rows.nbytes)
        for n in range(many):
            with s.during("host"):
                parse(own)
            gpu.launch(3 * n // many, 1)
            if each or n == many - 1:
                gpu.loss_item()


@job(host="sync_bound", rest="sync_bound")
def knee_reflexes(s):
    """A small note is made for each layer, and after its kernel its norm is read by .item()."""
    layers(s, 0.3, 0.7, True)


@job(host="launch_bound host_bound", rest="launch_bound host_bound")
def bedside_notes(s):
    """A long note is made for each layer before its kernel; only the step's loss is read."""
    layers(s, 1.4, 4, False)


# ---- every few steps a message to a process, whose answer is waited for at a pipe


def packs(asked, answer, cost, path):
    """Packs and writes what it gets, and says so."""
    while True:
        state = asked.recv_bytes()
        pieces = range(0, len(state), 1 << 18)
        with open(path, "wb") as f:
            for at in pieces:
                decode(cost / len(pieces))
                f.write(state[at:at + (1 << 18)])
        answer.send_bytes(bytes(4))


def unpacks(asked, answer, cost, size):
    """Has the next block under way when it is asked for it."""
    while True:
        decode(cost)
        asked.recv_bytes()
        answer.send_bytes(bytes(size))


def errands(s, gpu, every, kind, ask, answer, message, pick):
    s.go()
    for n in itertools.count():
        s.mark()
        if n % every == 0:
            with s.during(kind):
                ask.send_bytes(message)
                got = answer.recv_bytes()
        s.train(gpu, pick(got, n % every))


def pipes(helper, *more):
    asked, ask = multiprocessing.Pipe(duplex=False)
    answer, reply = multiprocessing.Pipe(duplex=False)
    return child(helper, asked, reply, *more).pid, ask, answer


@job(ckpt="checkpoint_stall host_bound", rest="sync_bound launch_bound")
def vaulted_weights(s):
    """Every few steps the weights go to a process that packs and writes them, and answers then."""
    ms, every = s.ms("gpu_ms", 8, 30), s.int("every", 3, 8)
    pause, state = ms * every * s.ms("wait_share", 0.3, 3), bytes(s.int("mib", 2, 8) << 20)
    _, ask, answer = pipes(packs, pause, s.path("weights.vault"))
    rows = np.zeros(64, np.int64)
    errands(s, s.gpu(ms), every, "ckpt", ask, answer, state, lambda got, n: rows)


@job(data=CPU, rest="sync_bound launch_bound")
def boxed_slides(s):
    """Every few steps the next block of batches is asked of a process that is still unpacking."""
    ms, every = s.ms("gpu_ms", 8, 30), s.int("every", 3, 8)
    pause, size = ms * every * s.ms("wait_share", 0.3, 3), s.int("kib", 50, 400) << 10
    pid, ask, answer = pipes(unpacks, pause + ms * every, every * size)
    s.supplier(pid)
    errands(s, s.gpu(ms), every, "data", ask, answer, b"next",
            lambda got, n: np.frombuffer(got, np.uint8, size, n * size))


# ---- two ranks, which meet after each step; one comes late


def theatre(s, late):
    """late tells by the rank and the step who has a protocol to write."""
    ms, launches = s.ms("gpu_ms", 8, 35), s.int("launches", 10, 80)
    protocol, ends, parent = ms * s.ms("late_share", 0.4, 4), socket.socketpair(), os.getpid()
    for rank in range(2):
        if os.fork():
            continue
        mortal(parent, signal.SIGTERM)  # it has a log to write
        s.rank(rank)
        link, gpu, rows = ends[rank], s.gpu(ms, launches=launches), np.zeros(64, np.int64)
        s.told("go")
        for n in itertools.count():
            s.mark()
            s.train(gpu, rows)
            if late(rank, n):
                with s.during("host"):
                    parse(protocol)
            with s.during("peer"):
                link.sendall(bytes(4096))
                link.recv(4096, socket.MSG_WAITALL)
    s.go()
    signal.pause()


@job(host="rank_straggler host_bound", peer="rank_straggler host_bound",
     rest="sync_bound launch_bound")
def late_surgeon(s):
    """Two ranks meet after each step over a socket; one always writes a protocol first."""
    tardy = s.int("tardy", 0, 1)
    theatre(s, lambda rank, n: rank == tardy)


@job(host="host_bound", peer="host_bound", rest="sync_bound launch_bound")
def surgeons_in_turns(s):
    """Two ranks meet after each step over a socket; they take turns at writing a protocol."""
    first = s.int("first", 0, 1)
    theatre(s, lambda rank, n: (rank + n) % 2 == first)
