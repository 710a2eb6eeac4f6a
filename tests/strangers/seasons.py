# SPDX-License-Identifier: BSD-2-Clause
"""Jobs whose trouble comes and goes, changes within seconds, or has two parts."""
import collections
import concurrent.futures
import itertools
import multiprocessing
import multiprocessing.connection
import os
import queue
import random
import socket
import struct
import subprocess
import sys
import threading
import time

import numpy as np

from stranger import CPU, child, decode, job, mortal, parse

SHARDS = """
import sys, time, zlib
light, heavy, few, many, size = map(float, sys.argv[1:])
blob = zlib.compress(bytes(range(256)) * 512)
while True:
    for n in range(int(many)):
        cost = heavy if 0 <= n - many // 3 < few else light
        end = time.thread_time() + cost / 1e3
        while time.thread_time() < end:
            zlib.decompress(blob)
        sys.stdout.buffer.write(bytes(int(size)))
        sys.stdout.buffer.flush()
"""


def ramp(n, period, top):
    """From 1 up to top, and then from 1 again."""
    return 1 + (top - 1) * (n % period) / (period - 1)


def answers(late):
    """A server on a port of its own; late(chance) is how many ms an answer takes."""
    door = socket.create_server(("127.0.0.1", 0))

    def serve(link, n):
        chance = random.Random(n)
        while ask := link.recv(4):
            time.sleep(late(chance) / 1e3)
            link.sendall(bytes(struct.unpack("<I", ask)[0]))

    def accept():
        for n in itertools.count():
            threading.Thread(target=serve, args=(door.accept()[0], n), daemon=True).start()
    return door.getsockname()[1], accept


def ask(stream, size):
    stream.write(struct.pack("<I", size))
    stream.flush()
    return stream.read(size)


def connect(port):
    return socket.create_connection(("127.0.0.1", port)).makefile("rwb")


# ---- the data, at times


def scenes(out, cost, tiles, passes):
    while True:
        for n in range(passes):
            for _ in range(tiles):
                decode(0.2 if n else cost)
                out.put(np.zeros(40000, np.float32))


@job(data=CPU, rest="sync_bound launch_bound")
def first_crop(s):
    """A process decodes a scene's tiles once, then cuts further crops of them from memory."""
    ms = s.ms("gpu_ms", 7, 27)
    gpu, cost = s.gpu(ms), ms * s.ms("decode_share", 2.2, 4)
    tiles, passes = s.int("tiles", 8, 16), s.int("passes", 2, 3)
    out = multiprocessing.Queue(maxsize=2)
    s.supplier(child(scenes, out, cost / 10 if s.fix else cost, tiles, passes).pid)
    s.loop(gpu, out.get)


def keep_store(link, light, every, pause):
    for n in itertools.count(1):
        size, = struct.unpack("<I", link.recv(4))
        decode(light)
        if n % every == 0:
            decode(pause)  # what was deleted is thrown out, and the rest packed closer
        link.sendall(bytes(size))


@job(data=CPU + " slow_item", rest="sync_bound launch_bound")
def store_compacts(s):
    """A thread asks a store in a process, which compacts itself after every so many answers."""
    ms, every = s.ms("gpu_ms", 6, 20), s.int("every", 12, 25)
    gpu, light = s.gpu(ms), ms * s.ms("light_share", 0.1, 0.5)
    pause, size = ms * every * s.ms("compact_share", 0.7, 3), s.int("kib", 20, 400) << 10
    ready, (mine, theirs) = queue.Queue(maxsize=2), socket.socketpair()
    s.supplier(child(keep_store, theirs, light, every, 1 if s.fix else pause).pid)
    stream = mine.makefile("rwb")

    def ahead():
        while True:
            ready.put(np.frombuffer(ask(stream, size), np.uint8))
    threading.Thread(target=ahead, daemon=True).start()
    s.loop(gpu, ready.get)


def unseen(out, cost, period, top):
    for n in itertools.count():
        decode(cost * ramp(n, period, top))
        out.put(np.zeros(30000, np.float32))


@job(data="slow_worker", rest="sync_bound launch_bound")
def seen_list(s):
    """Two workers by turns; one searches a list of what it saw, which grows until cleared."""
    ms, period = s.ms("gpu_ms", 5, 15), s.int("period", 18, 40)
    gpu, cost, top = s.gpu(ms), ms * s.ms("share", 0.7, 0.9), s.ms("top", 6.5, 8)
    outs = [multiprocessing.Queue(maxsize=2) for _ in range(2)]
    child(unseen, outs[0], cost, period, 1)
    s.supplier(child(unseen, outs[1], cost, period, 1 if s.fix else top).pid)
    turn = itertools.cycle(outs)
    s.loop(gpu, lambda: next(turn).get())


@job(data="lock_bound", rest="sync_bound launch_bound")
def index_rebuild(s):
    """Threads look up rows under a lock, which a thread holds while it rebuilds the index."""
    ms, threads = s.ms("gpu_ms", 7, 40), s.int("threads", 2, 3)
    gpu, cost = s.gpu(ms), ms * s.ms("load_share", 0.2, 0.45)
    hold = max(s.ms("rebuild_ms", 200, 600), 12 * ms)
    pause = hold * s.ms("pause_share", 0.3, 0.9) / 1e3
    ready, index = queue.Queue(maxsize=2), threading.Lock()

    def rebuild():
        while True:
            if s.fix:
                decode(hold)
            with index:
                decode(0.3 if s.fix else hold)
            time.sleep(pause)

    def look_up():
        while True:
            with index:
                decode(0.3)
            decode(cost)
            ready.put(np.zeros(40000, np.float32))
    for f in [rebuild] + [look_up] * threads:
        threading.Thread(target=f, daemon=True).start()
    s.loop(gpu, ready.get)


def open_archive(parent, cost):
    mortal(parent)
    decode(cost)


def crop(cost):
    decode(cost)
    return np.zeros(40000, np.float32)


@job(data="loader_restart", rest="sync_bound launch_bound")
def recycled_pool(s):
    """A pool's workers are replaced after a few tasks, and each opens the archive first."""
    ms, workers, tasks = s.ms("gpu_ms", 6, 20), s.int("workers", 1, 2), s.int("tasks", 3, 6)
    cost = ms * s.ms("load_share", 0.05, 0.2)
    opening = ms * tasks * workers * s.ms("open_share", 1.4, 2.8)
    pool = multiprocessing.Pool(workers, open_archive, (os.getpid(), opening),
                                None if s.fix else tasks)
    gpu, ahead = s.gpu(ms), collections.deque()

    def batch():
        while len(ahead) < 2 + workers:
            ahead.append(pool.apply_async(crop, (cost,)))
        return ahead.popleft().get()
    s.loop(gpu, batch)


def one_in_ten(s):
    """A service, one in ten of whose answers comes from a cold tier."""
    quick, cold = s.ms("quick_ms", 0.5, 3), float(s.told("cold"))
    port, accept = answers(lambda chance: cold if chance.random() < 0.1 else quick)
    s.tell("port", port)
    accept()


@job(outside=one_in_ten, data="network_bound slow_item too_few_workers",
     rest="sync_bound launch_bound")
def tenth_answer(s):
    """Threads ask a service a few batches ahead, in order; one answer in ten takes far longer."""
    ms, threads = s.ms("gpu_ms", 6, 20), s.int("threads", 2, 3)
    gpu, cold = s.gpu(ms), ms * s.ms("cold_share", 10, 22)
    s.tell("cold", 2 if s.fix else cold)
    port, size, own = int(s.told("port")), s.int("kib", 8, 300) << 10, threading.local()
    pool, ahead = concurrent.futures.ThreadPoolExecutor(threads), collections.deque()

    def fetch():
        if not hasattr(own, "stream"):
            own.stream = connect(port)
        return np.frombuffer(ask(own.stream, size), np.uint8)

    def batch():
        while len(ahead) <= threads:
            ahead.append(pool.submit(fetch))
        return ahead.popleft().result()
    s.loop(gpu, batch)


def far_shards(s):
    """A store whose every answer takes the same time."""
    late = float(s.told("late"))
    port, accept = answers(lambda _: late)
    s.tell("port", port)
    accept()


def by_turns(out, port, size, cost, run):
    stream = connect(port)
    while True:
        for _ in range(run):
            out.put(np.frombuffer(ask(stream, size), np.uint8))
        for _ in range(run):
            decode(cost)
            out.put(np.zeros(size, np.uint8))


@job(outside=far_shards, data=CPU + " network_bound", rest="sync_bound launch_bound")
def far_then_packed(s):
    """A process takes shards by turns: one lies on a far store, the next near but packed."""
    ms, run = s.ms("gpu_ms", 6, 30), s.int("run", 6, 15)
    gpu, share = s.gpu(ms), s.ms("share", 1.6, 3.6)
    cost = ms * (0.2 if s.fix else share)
    s.tell("late", cost)
    out, port = multiprocessing.Queue(maxsize=2), int(s.told("port"))
    size = s.int("kib", 20, 400) << 10
    s.supplier(child(by_turns, out, port, size, cost, run).pid)
    s.loop(gpu, out.get)


def augment(out, parent, cost):
    mortal(parent)
    while True:
        decode(cost)
        out.put(np.zeros(40000, np.float32))


@job(data=CPU, rest="sync_bound launch_bound")
def reservoir_drains(s):
    """A spawned process is too slow; its queue is full at first, and gains in validations."""
    ms, steps, checks = s.ms("gpu_ms", 6, 20), s.int("steps", 25, 40), s.int("checks", 5, 10)
    cost = ms * (1 + checks / steps) * s.ms("load_share", 1.5, 2.5)
    gpu, depth = s.gpu(ms), s.int("depth", 8, 16)
    spawn = multiprocessing.get_context("spawn")
    out = spawn.Queue(maxsize=depth)
    p = spawn.Process(target=augment, daemon=True,
                      args=(out, os.getpid(), cost / 10 if s.fix else cost))
    p.start()
    s.supplier(p.pid)
    while out.qsize() < depth:
        time.sleep(0.01)
    s.go()
    while True:
        for _ in range(steps):
            s.step(gpu, out.get)
        for _ in range(checks):  # what it is validated on lies on the device
            s.mark("micro")
            gpu.launch(0, gpu.launches)
            gpu.loss_item()


@job(data="main_thread_loading", rest="sync_bound launch_bound")
def longer_and_longer(s):
    """The loop tokenises its own texts, which get longer for some steps, then short again."""
    ms, period, top = s.ms("gpu_ms", 5, 20), s.int("period", 15, 40), s.ms("top", 6, 12)
    gpu, cost, length = s.gpu(ms), ms * s.ms("short_share", 0.15, 0.35), s.int("length", 64, 512)
    numbers = itertools.count()

    def batch():
        longer = ramp(next(numbers), period, 1 if s.fix else top)
        parse(cost * longer)
        return np.zeros((16, int(length * longer)), np.int64)
    s.loop(gpu, batch)


def fill(ring, free, full, run, heavy, light):
    for n in itertools.count():
        free.acquire()
        decode(light if n // run % 2 else heavy)
        ring[n % len(ring)] = n
        full.release()


@job(data=CPU, host="host_bound", rest="sync_bound launch_bound")
def half_and_half(s):
    """Large images by shared memory for some steps; small ones next, which the loop scores."""
    ms, run, size = s.ms("gpu_ms", 6, 30), s.int("run", 8, 15), s.int("kib", 20, 500) << 8
    gpu, share = s.gpu(ms), s.ms("share", 1.8, 3)
    heavy, score = ms * (0.2 if s.fix else share), ms * (share - 1) * s.ms("score", 0.7, 1.1)
    free, full = multiprocessing.Semaphore(3), multiprocessing.Semaphore(0)
    ring = np.frombuffer(multiprocessing.RawArray("f", 3 * size), np.float32).reshape(3, size)
    s.supplier(child(fill, ring, free, full, run, heavy, ms * 0.2).pid)
    s.go()
    for n in itertools.count():
        s.mark()
        with s.during("data"):
            full.acquire()
        s.train(gpu, ring[n % 3])
        free.release()
        if n // run % 2 and not s.fix:
            with s.during("host"):
                parse(score)


# ---- not the data


def run_on(out, opening, cost, batches):
    decode(opening)
    for _ in range(batches):
        decode(cost)
        out.put(np.zeros(40000, np.float32))


@job(data=CPU + " loader_restart", rest="sync_bound launch_bound")
def relay_runners(s):
    """Two loaders end after some batches and a thread starts others; the queue stays full."""
    ms, batches = s.ms("gpu_ms", 15, 60), s.int("batches", 12, 40)
    gpu, cost = s.gpu(ms), ms * s.ms("load_share", 0.1, 0.35)
    opening = min(s.ms("open_ms", 60, 250), 0.3 * batches * ms)
    out = multiprocessing.Queue(maxsize=8)

    def start(n):
        return child(run_on, out, opening, cost, batches * (2 + n) // 2)

    def keep():
        runners = [start(0), start(1)]
        while True:
            multiprocessing.connection.wait([p.sentinel for p in runners])
            runners = [p if p.is_alive() else start(n) for n, p in enumerate(runners)]
    threading.Thread(target=keep, daemon=True).start()
    s.loop(gpu, out.get)


@job(data=CPU, rest="sync_bound launch_bound")
def heavy_middle(s):
    """A program unpacks shards into a pipe; each has a costly middle, which a deep queue hides."""
    ms, few, size = s.ms("gpu_ms", 15, 60), s.int("few", 3, 5), s.int("kib", 40, 400) << 10
    gpu, light = s.gpu(ms), ms * s.ms("light_share", 0.1, 0.3)
    heavy, parent, ready = ms * s.ms("heavy_share", 1.5, 2.2), os.getpid(), queue.Queue(16)
    program = subprocess.Popen(
        [sys.executable, "-c", SHARDS] + [str(i) for i in (light, heavy, few, 24, size)],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, preexec_fn=lambda: mortal(parent))

    def ahead():
        while True:
            ready.put(np.frombuffer(program.stdout.read(size), np.uint8))
    threading.Thread(target=ahead, daemon=True).start()
    s.loop(gpu, ready.get)


def in_time(out, cost):
    while True:
        decode(cost)
        out.put(np.zeros(40000, np.float32))


@job(data=CPU, host="host_bound", rest="sync_bound launch_bound")
def odd_chapters(s):
    """A process keeps up; in each second stretch of steps the loop ranks its errors in Python."""
    ms, run = s.ms("gpu_ms", 8, 35), s.int("run", 6, 20)
    gpu, rank = s.gpu(ms), ms * s.ms("rank_share", 0.9, 2.5)
    out = multiprocessing.Queue(maxsize=4)
    child(in_time, out, ms * s.ms("load_share", 0.1, 0.4))
    s.go()
    for n in itertools.count():
        s.step(gpu, out.get)
        if n // run % 2 and not s.fix:
            with s.during("host"):
                parse(rank)


def visitors(s):
    """They come all at once, ask one after the other, and then nobody does for a while."""
    visit, away = s.ms("visit_s", 0.2, 0.6), s.ms("away_s", 0.7, 1.5)
    think, stream = s.ms("think_ms", 0.5, 5) / 1e3, connect(int(s.told("port")))
    s.told("go")
    while True:
        end = time.monotonic() + visit
        while time.monotonic() < end:
            ask(stream, 2048)
            time.sleep(think)
        time.sleep(away)


@job(outside=visitors, demand="no_demand", host="host_bound sync_bound",
     rest="sync_bound launch_bound host_bound")
def visiting_hours(s):
    """A model server whose requests come in waves, with nobody there in between."""
    gpu, words = s.gpu(s.ms("gpu_ms", 5, 40)), s.ms("words_ms", 0.3, 4)
    door = socket.create_server(("127.0.0.1", 0))
    s.tell("port", door.getsockname()[1])
    stream, ids = door.accept()[0].makefile("rwb"), np.zeros(2048, np.int64)
    s.go()
    while True:
        with s.during("demand"):
            size, = struct.unpack("<I", stream.read(4))
        s.mark()
        with s.during("host"):
            parse(words)
        s.train(gpu, ids)
        stream.write(bytes(size))
        stream.flush()
