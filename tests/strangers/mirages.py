# SPDX-License-Identifier: BSD-2-Clause
"""Jobs that look starved and are not, and some that look healthy and starve a little."""
import collections
import itertools
import json
import mmap
import multiprocessing
import os
import queue
import random
import signal
import socket
import struct
import sys
import threading
import time

import numpy as np

from stranger import CPU, child, decode, job, mortal, parse


def dozer(out, cost, nap, size):
    """Makes batches ahead, and looks now and then whether there is room for one."""
    while True:
        decode(cost)
        while out.full():
            time.sleep(nap)
        out.put(np.zeros(size, np.float32))


def dozers(s, ms, workers=1):
    """Makers that need a small part of what the device needs; returns get."""
    out = multiprocessing.Queue(maxsize=4)
    cost = ms * s.ms("load_share", 0.05, 0.25) * workers
    nap, size = min(s.ms("nap_ms", 1, 20), ms) / 1e3, s.int("floats", 5000, 60000)
    for _ in range(workers):
        child(dozer, out, cost, nap, size)
    return out.get


# ---- the loop, or what it asks, holds up the device


@job(host="host_bound", rest="sync_bound")
def preview_rate(s):
    """A scene is fitted for a live viewer; the loop sleeps until the next frame is due."""
    period, share = s.ms("period_ms", 12, 110), s.ms("share", 0.08, 0.7)
    gpu = s.gpu(period * share, launches=s.int("launches", 5, 40))
    pose = np.zeros(12, np.float32)
    s.go()
    due = time.monotonic()
    while True:
        s.mark()
        s.train(gpu, pose)  # the rays are drawn on the device
        if s.fix:
            continue
        due = max(due + period / 1e3, time.monotonic())
        with s.during("host"):
            time.sleep(max(due - time.monotonic(), 0))


def advisor(s):
    """Fits a model to all trials, and says with which rates to try next."""
    late, chance = float(s.told("late")), random.Random(3)
    door = socket.create_server(("127.0.0.1", 0))
    s.tell("port", door.getsockname()[1])
    link = door.accept()[0]
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for line in link.makefile("rb"):
        trial = json.loads(line)["trial"]
        time.sleep(late / 1e3 * chance.uniform(0.8, 1.2))
        link.sendall(json.dumps({"trial": trial + 1, "rates": [0.1] * 8}).encode() + b"\n")


@job(outside=advisor, host="host_bound", rest="sync_bound")
def trial_advisor(s):
    """A search for learning rates: after a few steps a service is asked what to try next."""
    ms, every, share = s.ms("gpu_ms", 6, 25), s.int("every", 1, 5), s.ms("share", 0.2, 0.75)
    s.tell("late", 0 if s.fix else every * ms * share / (1 - share))
    gpu = s.gpu(ms)
    link = socket.create_connection(("127.0.0.1", int(s.told("port"))))
    answers, rates = link.makefile("rb"), np.zeros(8, np.float32)
    s.go()
    for n in itertools.count(1):
        s.mark()
        s.train(gpu, rates)  # the table that it learns from lies on the device
        if n % every == 0:
            with s.during("host"):
                score = {"trial": n // every, "loss": gpu.loss.value}
                link.sendall(json.dumps(score).encode() + b"\n")
                rates = np.array(json.loads(answers.readline())["rates"], np.float32)


@job(data=CPU, host="host_bound", rest="sync_bound")
def beam_captions(s):
    """Captions: after each step beams are extended and scored; the makers doze meanwhile."""
    ms, share = s.ms("gpu_ms", 5, 22), s.ms("beam_share", 0.25, 0.8)
    gpu, batch, beams = s.gpu(ms), dozers(s, ms), s.int("beams", 2, 6)
    cost = ms * share / (1 - share) / beams
    s.go()
    while True:
        s.step(gpu, batch)
        if not s.fix:
            with s.during("host"):
                for _ in range(beams):
                    parse(cost)


@job(data=CPU, rest="sync_bound host_bound launch_bound")
def kernel_stopwatch(s):
    """A home-made profiler: each kernel is launched, waited for, and its time is noted."""
    launches, us = s.int("launches", 40, 80), s.ms("kernel_us", 80, 500)
    ms, note = launches * us / 1e3, s.ms("note_ms", 0.03, 0.4)
    gpu, batch = s.gpu(ms, launches=launches), dozers(s, ms)
    times = collections.deque(maxlen=1000)

    def timed(phase, count):
        for _ in range(count):
            begin = time.perf_counter()
            gpu.launch(phase, 1)
            gpu.sync(False)
            times.append((phase, time.perf_counter() - begin))
            parse(note)  # a line of the table, its mean and its spread
    s.go()
    while True:
        s.mark()
        with s.during("data"):
            x = batch()
        if s.fix:
            s.train(gpu, x)
            continue
        gpu.upload(x.ctypes.data, x.nbytes)
        timed(0, launches - launches // 2 - launches // 8)
        timed(1, launches // 2)
        timed(2, launches // 8)
        gpu.loss_item()


@job(host="host_bound rank_straggler", peer="rank_straggler host_bound", rest="sync_bound")
def sparse_gradients(s):
    """Two ranks pack their gradients before they swap them; those of one are far denser."""
    ms, launches = s.ms("gpu_ms", 6, 30), s.int("launches", 10, 100)
    dense, size = s.ms("dense_share", 0.4, 2.5), s.int("kib", 2, 32) << 10
    parent, ends = os.getpid(), socket.socketpair()
    for rank in range(2):
        if os.fork():
            continue
        mortal(parent, signal.SIGTERM)  # it has a log to write
        s.rank(rank)
        link, gpu = ends[rank], s.gpu(ms, launches=launches)
        incoming = link.makefile("rb")
        pack = ms * (dense if rank == 1 and not s.fix else 0.05)
        s.told("go")  # each has its part of the data on its device
        while True:
            s.mark()
            gpu.forward()
            gpu.backward()
            gpu.loss_item()
            with s.during("host"):
                decode(pack)
            with s.during("peer"):
                link.sendall(bytes(size))
                both = np.frombuffer(incoming.read(size), np.uint8)
            gpu.upload(both.ctypes.data, both.nbytes)
            gpu.optimizer()
    s.go()
    while True:
        signal.pause()


def tenant(mine, theirs, turn):
    """Another job on the device; while it has its turn it waits for its own kernels."""
    chance = random.Random(5)
    while True:
        theirs.acquire()
        time.sleep(turn / 1e3 * chance.uniform(0.7, 1.3))
        mine.release()


@job(data=CPU, lock="host_bound lock_bound", rest="sync_bound")
def device_turns(s):
    """Two jobs share a device by turns: a semaphore is taken before each step."""
    ms, share = s.ms("gpu_ms", 6, 25), s.ms("tenant_share", 0.2, 0.75)
    gpu, batch = s.gpu(ms), dozers(s, ms)
    mine, theirs = multiprocessing.Semaphore(1), multiprocessing.Semaphore(0)
    child(tenant, mine, theirs, 0 if s.fix else ms * share / (1 - share))
    s.go()
    while True:
        s.mark()
        with s.during("data"):
            x = batch()
        with s.during("lock"):
            mine.acquire()
        s.train(gpu, x)
        theirs.release()


@job(rest="launch_bound host_bound")
def coverage_hook(s):
    """Small kernels, launched under a trace function that somebody left to count lines."""
    launches, us = s.int("launches", 500, 1500), s.ms("kernel_us", 1.5, 7)
    gpu, every = s.gpu(launches * us / 1e3, launches=launches), s.int("item_every", 2, 8)
    visits, order = collections.Counter(), np.arange(256)

    def visit(frame, *_):
        visits[frame.f_code.co_name, frame.f_lineno] += 1
        return visit
    s.go()
    if not s.fix:
        sys.settrace(visit)
    for n in itertools.count(1):
        s.mark()
        s.train(gpu, order, item=n % every == 0)  # the rows lie on the device


def letters(s):
    """Mail comes in bursts, and not often."""
    pause, most = float(s.told("pause")), int(s.told("most"))
    link, chance = socket.socket(socket.AF_INET, socket.SOCK_DGRAM), random.Random(7)
    link.connect(("127.0.0.1", int(s.told("port"))))
    s.told("go")
    while True:
        for _ in range(chance.randint(1, most)):
            try:
                link.send(b"dear all, " * chance.randint(5, 100))
            except ConnectionError:
                return
        time.sleep(chance.expovariate(1e3 / pause))


@job(outside=letters, demand="no_demand", host="host_bound", rest="sync_bound")
def quiet_inbox(s):
    """Letters are classified as they come, a datagram each; there are few of them."""
    ms, most, share = s.ms("gpu_ms", 6, 25), s.int("burst", 1, 4), s.ms("share", 0.12, 0.5)
    gpu, words = s.gpu(ms), s.ms("words_ms", 0.2, 1)
    door = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    door.bind(("127.0.0.1", 0))
    s.tell("pause", ms * (1 + most) / 2 / share)
    s.tell("most", most)
    s.tell("port", door.getsockname()[1])
    ids = np.zeros(512, np.int64)
    s.go()
    while True:
        with s.during("demand"):
            letter = door.recv(2000)
        s.mark()
        with s.during("host"):
            parse(words)
            ids[:] = len(letter)
        s.train(gpu, ids)


# ---- the device has enough to do


def on_request(link, cost, size):
    while True:
        link.recv()
        decode(cost)
        link.send_bytes(bytes(size))


@job(data=CPU, rest="sync_bound launch_bound")
def asked_just_in_time(s):
    """A worker idles until it is asked, and the loop waits for it under the step's kernels."""
    ms, size = s.ms("gpu_ms", 18, 100), s.int("kib", 50, 500) << 10
    gpu, (mine, other) = s.gpu(ms), multiprocessing.Pipe()
    child(on_request, other, ms * s.ms("load_share", 0.2, 0.65), size)

    def obtain(n):
        mine.send(n)
        return np.frombuffer(mine.recv_bytes(), np.uint8)
    x = obtain(0)
    s.go()
    for n in itertools.count(1):
        s.mark()
        s.train(gpu, x, item=False)
        with s.during("data"):
            x = obtain(n)
        gpu.loss_item()


@job(data=CPU, rest="sync_bound launch_bound")
def dozing_makers(s):
    """Makers sleep as long as the queue is full, which is most of the time."""
    ms = s.ms("gpu_ms", 20, 110)
    s.loop(s.gpu(ms), dozers(s, ms, s.int("workers", 1, 3)))


# ---- the data after all, a little


def sender(link, cost, size):
    while True:
        decode(cost)
        link.send_bytes(bytes(size))


@job(data=CPU, rest="sync_bound launch_bound")
def nearly_enough(s):
    """A process decodes a little slower than the device learns; a thread receives ahead."""
    ms, size = s.ms("gpu_ms", 20, 75), s.int("kib", 20, 300) << 10
    share = s.ms("cost_share", 1.16, 1.36)
    cost = ms * (0.4 if s.fix else share)
    gpu, (mine, other), ready = s.gpu(ms), multiprocessing.Pipe(), queue.Queue(3)
    s.supplier(child(sender, other, cost, size).pid)

    def receive():
        while True:
            ready.put(np.frombuffer(mine.recv_bytes(), np.uint8))
    threading.Thread(target=receive, daemon=True).start()
    s.loop(gpu, ready.get)


def edge(s):
    """A cache at the other end of a slow line."""
    late, chance = float(s.told("late")), random.Random(9)
    door = socket.create_server(("127.0.0.1", 0))
    s.tell("port", door.getsockname()[1])
    link = door.accept()[0]
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    asked = link.makefile("rb")
    while ask := asked.read(4):
        time.sleep(late / 1e3 * chance.uniform(0.9, 1.1))
        link.sendall(bytes(struct.unpack("<I", ask)[0]))


@job(outside=edge, data="network_bound too_few_workers", rest="sync_bound launch_bound")
def edge_cache(s):
    """A thread asks a cache for one batch after another, and is a little too slow."""
    ms, size = s.ms("gpu_ms", 15, 80), s.int("kib", 10, 300) << 10
    share = s.ms("late_share", 1.15, 1.36)
    s.tell("late", ms * (0.3 if s.fix else share))
    gpu, ready = s.gpu(ms), queue.Queue(2)
    link = socket.create_connection(("127.0.0.1", int(s.told("port"))))
    body = link.makefile("rb")

    def ask():
        while True:
            link.sendall(struct.pack("<I", size))
            ready.put(np.frombuffer(body.read(size), np.uint8))
    threading.Thread(target=ask, daemon=True).start()
    s.loop(gpu, ready.get)


@job(data="main_thread_loading", rest="sync_bound launch_bound")
def jigsaw_crops(s):
    """A picture in memory is cut into a jigsaw by the loop itself before each step."""
    ms = s.ms("gpu_ms", 15, 85)
    gpu, cost = s.gpu(ms), ms * s.ms("cut_share", 0.16, 0.36)
    picture, side = np.zeros((512, 512, 3), np.uint8), s.int("side", 32, 128)

    def cut():
        parse(cost)  # which pieces, and how each is turned
        y, x = (s.random.randrange(512 - side) for _ in range(2))
        return np.ascontiguousarray(np.rot90(picture[y:y + side, x:x + side]))
    x = cut()
    s.go()
    while True:
        s.mark()
        if not s.fix:
            with s.during("data"):
                x = cut()
        s.train(gpu, x, item=False)
        if s.fix:  # the next one, while the kernels run
            with s.during("data"):
                x = cut()
        gpu.loss_item()


def bell_ringer(slots, size, empty, full, cost):
    for n in itertools.count():
        os.eventfd_read(empty)
        decode(cost)
        at = n % (len(slots) // size) * size
        slots[at:at + size] = bytes(size)
        os.eventfd_write(full, 1)


@job(data=CPU, rest="sync_bound launch_bound")
def eventfd_bell(s):
    """A process decodes into shared slots, not quite in time; two eventfds count the slots."""
    ms, many, size = s.ms("gpu_ms", 20, 75), s.int("slots", 2, 4), s.int("kib", 20, 400) << 10
    share = s.ms("cost_share", 1.16, 1.36)
    cost = ms * (0.4 if s.fix else share)
    gpu, slots = s.gpu(ms), mmap.mmap(-1, many * size)
    empty = os.eventfd(many, os.EFD_SEMAPHORE)
    full = os.eventfd(0, os.EFD_SEMAPHORE)
    s.supplier(child(bell_ringer, slots, size, empty, full, cost).pid)
    batches = np.frombuffer(slots, np.uint8).reshape(many, size)
    s.go()
    for n in itertools.count():
        s.mark()
        with s.during("data"):
            os.eventfd_read(full)
        s.train(gpu, batches[n % many])
        os.eventfd_write(empty, 1)
