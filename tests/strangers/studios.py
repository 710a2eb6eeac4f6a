# SPDX-License-Identifier: BSD-2-Clause
"""Jobs of studios and back rooms: caches, helper programs, evaluations, rounds, loggers."""
import collections
import concurrent.futures
import dbm.dumb
import fcntl
import functools
import gzip
import itertools
import logging
import mmap
import multiprocessing
import os
import pickle
import random
import shelve
import socket
import sqlite3
import subprocess
import sys
import threading
import time
import traceback
import zlib

import numpy as np

from stranger import CPU, child, decode, job, mortal, now, parse


def takes(f, times):
    """What a call costs on this machine: the median, in milliseconds."""
    spent = []
    for _ in range(times):
        begin = now()
        f()
        spent.append(now() - begin)
    return sorted(spent)[times // 2] / 1e6


def shared(slots, size):
    """Memory that this process and its children share, as so many rows of bytes."""
    return np.frombuffer(mmap.mmap(-1, slots * size), np.uint8).reshape(slots, size)


# ---- caches and stores


QUERY = ("SELECT body FROM passages WHERE id BETWEEN ? AND ? AND body LIKE ? "
         "ORDER BY length(body) DESC LIMIT 32")


@job(data="main_thread_loading", rest="sync_bound launch_bound")
def rerank(j):
    """A re-ranker: the loop itself asks SQLite, whose pages are warm, for all the candidates."""
    ms, share = j.ms("gpu_ms", 10, 55), j.ms("query_share", 0.4, 1.6)
    chance, many, part = random.Random(j.int("texts", 1, 9999)), 6000, 400
    gpu, db = j.gpu(ms), sqlite3.connect(j.path("passages.db"))
    words = ["term%d" % n for n in range(400)]
    db.execute("DROP TABLE IF EXISTS passages")
    db.execute("CREATE TABLE passages (id INTEGER PRIMARY KEY, body TEXT)")
    with db:
        db.executemany("INSERT INTO passages (body) VALUES (?)",
                       ((" ".join(chance.choices(words, k=200)),) for _ in range(many)))

    def candidates(queries):
        pairs = np.zeros((64, 2048), np.uint16)
        for n in range(queries):
            first = chance.randint(1, many - part)
            like = "%%%s %%%s %%" % tuple(chance.sample(words, 2))
            hits = db.execute(QUERY, (first, first + part, like)).fetchall()
            for row, (body,) in enumerate(hits, n):
                text = np.frombuffer(body.encode()[:2048], np.uint8)
                pairs[row % 64, :len(text)] = text
        return pairs
    one = takes(functools.partial(candidates, 1), 9)
    queries = j.keep("queries", max(1, round(ms * share / one)))
    ready = candidates(queries)
    j.loop(gpu, lambda: ready if j.fix else candidates(queries))


WINDOW = 4096


def cutting(free, full, slots, many, clip, seed):
    """Fills the free slots with windows of clips."""
    chance = random.Random(seed)
    while True:
        n = os.read(free, 1)[0]
        for i in range(many):
            body = clip()
            at = chance.randrange(len(body) - WINDOW)
            slots[n, i * WINDOW:(i + 1) * WINDOW] = np.frombuffer(body, np.uint8, WINDOW, at)
        os.write(full, bytes([n]))


@job(data="io_bound too_few_workers", rest="sync_bound launch_bound")
def cold_features(j):
    """Audio features in a dbm file that is never in the page cache; a process cuts windows."""
    ms, share = j.ms("gpu_ms", 8, 40), j.ms("load_share", 1.3, 3)
    size, seed = j.one("kib", 32, 64) << 10, j.int("order", 1, 9999)
    keys, chance = (48 << 20) // size, random.Random(seed)
    data, stem = os.path.abspath(j.data_file("studios-features.dat", 48)), j.path("features")
    if not os.path.lexists(stem + ".dat"):
        os.symlink(data, stem + ".dat")
    with open(stem + ".dir", "w", encoding="latin-1") as f:
        f.writelines("%r, %r\n" % (str(k), (k * size, size)) for k in range(keys))
    db, fd = dbm.dumb.open(stem, "r"), os.open(data, os.O_RDONLY)

    def clip():
        key = chance.randrange(keys)
        body = db[str(key)]
        # So that a data set larger than the memory does not push out what others need.
        os.posix_fadvise(fd, key * size, size, os.POSIX_FADV_DONTNEED)
        return body
    many = j.keep("windows", min(500, max(1, round(ms * share / takes(clip, 41)))))
    warm = [db[str(k)] for k in range(keys)] if j.fix else []
    slots = shared(4, max(many * WINDOW, 1 << 18))
    gpu, free, full = j.gpu(ms, input_bytes=slots[0].nbytes), os.pipe(), os.pipe()
    j.supplier(child(cutting, free[0], full[1], slots, many,
                     functools.partial(chance.choice, warm) if j.fix else clip, seed).pid)
    os.write(free[1], bytes(range(4)))
    j.go()
    while True:
        j.mark()
        with j.during("data"):
            n = os.read(full[0], 1)[0]
        j.train(gpu, slots[n])
        os.write(free[1], bytes([n]))


def borrowing(out, stem, keys, hold, own, mode, seed):
    """Opens the shelf under its lock for each clip, as it is not made for several users."""
    chance, lock = random.Random(seed), open(stem + ".lock", "w", encoding="ascii")
    while True:
        fcntl.flock(lock, mode)
        with shelve.Shelf(dbm.dumb.open(stem, "r")) as shelf:
            clip = shelf[str(chance.randrange(keys))]
            decode(hold)
        fcntl.flock(lock, fcntl.LOCK_UN)
        decode(own)
        out.put(clip)


@job(data="lock_bound", rest="sync_bound launch_bound")
def shelf_lock(j):
    """Two processes share a warm shelve cache under a file lock, and unpack while they hold it."""
    ms, keys, kib = j.ms("gpu_ms", 8, 50), 16, j.int("kib", 200, 800)
    hold, own = ms * j.ms("hold_share", 1.4, 2.4), ms * j.ms("own_share", 0.1, 0.25)
    gpu, stem, seed = j.gpu(ms), j.path("shelf"), j.int("order", 1, 9999)
    with shelve.Shelf(dbm.dumb.open(stem, "n")) as shelf:
        for k in range(keys):
            shelf[str(k)] = np.full(kib << 8, k, np.float32)
    mode, hold = (fcntl.LOCK_SH, hold / 4) if j.fix else (fcntl.LOCK_EX, hold)
    out = multiprocessing.Queue(maxsize=4)
    for n in range(2):
        child(borrowing, out, stem, keys, hold, own, mode, seed + n)
    j.loop(gpu, out.get)


# ---- who makes the data, and how it comes


def packed(chance):
    """A sequence of packed texts, and what is known of them."""
    lengths = [chance.randint(300, 4000) for _ in range(10)]
    return {"ids": chance.randbytes(128), "lengths": lengths, "score": chance.random(),
            "source": "shard-%d" % chance.randrange(10**6),
            "spans": [(n, n + 300) for n in lengths[:4]]}


def packing(pipe, rows, plain):
    for k in itertools.count():
        first = k * 37 % len(rows)
        mine = rows[first:] + rows[:first]
        if plain:
            pipe.send_bytes(b"".join(r["ids"] for r in mine))
        else:
            pipe.send(mine)


@job(data="ipc_bound", rest="sync_bound launch_bound")
def token_packer(j):
    """A packer has its sequences ready, but sends thousands of small objects through a pipe."""
    ms, share = j.ms("gpu_ms", 6, 32), j.ms("unpickle_share", 0.4, 1.1)
    gpu, chance = j.gpu(ms), random.Random(j.int("texts", 1, 9999))
    sample = pickle.dumps([packed(chance) for _ in range(500)])
    one = takes(functools.partial(pickle.loads, sample), 21) / 500
    many = j.keep("sequences", min(20000, max(100, round(ms * share / one))))
    mine, theirs = multiprocessing.Pipe(duplex=False)
    child(packing, theirs, [packed(chance) for _ in range(many)], j.fix)

    def obtain():
        if j.fix:
            return np.frombuffer(mine.recv_bytes(), np.uint8)
        return np.frombuffer(b"".join(r["ids"] for r in mine.recv()), np.uint8)
    j.loop(gpu, obtain)


def serving(pipe, setup, batches, cost, size):
    """A client's data: opened, then sent batch by batch."""
    parse(setup)
    body = bytes(size)
    for _ in range(batches) if batches else itertools.count():
        decode(cost)
        pipe.send_bytes(body)


@job(data="loader_restart slow_first_batch", host="host_bound", rest="sync_bound launch_bound")
def federated(j):
    """Federated rounds on one device: for each client's turn a process opens its data anew."""
    ms, clients, batches = j.ms("gpu_ms", 8, 25), j.int("clients", 2, 4), j.int("batches", 4, 12)
    setup = ms * batches * j.ms("setup_share", 0.4, 1.2)
    cost, size = ms * j.ms("load_share", 0.05, 0.3), j.int("kib", 200, 1000) << 10
    gpu, updates = j.gpu(ms), np.ones((clients, 1 << 17), np.float32)

    def opened(many):
        mine, theirs = multiprocessing.Pipe(duplex=False)
        p = child(serving, theirs, setup, many, cost, size)
        theirs.close()
        return p, mine
    kept = [opened(0) for _ in range(clients)] if j.fix else []
    for _, mine in kept:
        mine.poll(None)
    j.go()
    while True:
        for c in range(clients):
            for n in range(batches):
                j.mark()
                with j.during("data"):
                    if n == 0:
                        p, mine = kept[c] if j.fix else opened(batches)
                    x = np.frombuffer(mine.recv_bytes(), np.uint8)
                j.train(gpu, x)
            if not j.fix:
                with j.during("data"):
                    p.join()
                    p.close()
                    mine.close()
        with j.during("host"):
            updates[:] = updates.mean(axis=0)


SLOTS = 4


class Ring:
    """Clips in shared memory, and how many were made and taken; both sides poll."""

    def __init__(self, size):
        self.head = np.frombuffer(mmap.mmap(-1, 4096), np.int64)
        self.clips = shared(SLOTS, size)

    def fill(self, cost):
        while True:
            while self.head[0] - self.head[1] == SLOTS:
                time.sleep(0.001)
            decode(cost)
            made = int(self.head[0])
            self.clips[made % SLOTS] = made & 255
            self.head[0] = made + 1

    def get(self):
        while self.head[0] == self.head[1]:
            time.sleep(0.0005)
        return self.clips[int(self.head[1]) % SLOTS]

    def free(self):
        self.head[1] += 1


@job(data="slow_worker", rest="sync_bound launch_bound")
def two_cameras(j):
    """Video from two cameras in turn, decoded into rings; one stream takes far longer."""
    ms, size = j.ms("gpu_ms", 8, 40), j.int("kib", 300, 2000) << 10
    quick, slow = ms * j.ms("quick_share", 0.2, 0.5), ms * j.ms("slow_share", 3, 5)
    gpu, late = j.gpu(ms, input_bytes=size), j.one("late", 0, 1)
    rings = [Ring(size) for _ in range(2)]
    pids = [child(ring.fill, slow if n == late and not j.fix else quick).pid
            for n, ring in enumerate(rings)]
    j.supplier(pids[late])
    j.go()
    for ring in itertools.cycle(rings):
        j.step(gpu, ring.get)
        ring.free()


def solved(cost, size):
    """An exercise is good for training once a solver has found its answer."""
    parse(cost)
    return np.zeros(size >> 2, np.float32)


@job(data="slow_item", rest="sync_bound launch_bound")
def hard_exercises(j):
    """Synthetic exercises, solved by a pool of two processes, in order; a few are very hard."""
    ms, rare, depth = j.ms("gpu_ms", 8, 30), j.int("one_in", 8, 16), j.int("ahead", 3, 6)
    quick, size = ms * j.ms("quick_share", 0.1, 0.4), j.int("kib", 200, 1000) << 10
    hard = ms * (depth + rare * j.ms("hard_share", 0.4, 1.2))
    gpu, chance = j.gpu(ms), random.Random(j.int("exercises", 1, 9999))
    pool = concurrent.futures.ProcessPoolExecutor(2, initializer=mortal,
                                                  initargs=(os.getpid(),))
    list(pool.map(time.sleep, [0.1, 0.1]))
    ahead = collections.deque()

    def ask():
        is_hard = chance.random() * rare < 1 and not j.fix
        ahead.append(pool.submit(solved, hard if is_hard else quick, size))

    def obtain():
        ask()
        return ahead.popleft().result()
    for _ in range(depth):
        ask()
    j.loop(gpu, obtain)


# ---- slow, and not for the data


PROGRAM = """import time
end = time.process_time() + %.4f
while time.process_time() < end:
    sorted(range(1000), reverse=True)
print("passed")
"""


@job(child="host_bound", rest="sync_bound launch_bound host_bound")
def code_benchmark(j):
    """A code benchmark: the model writes a program, and the loop waits while its tests run."""
    tokens, few, ms = j.int("tokens", 4, 10), j.int("few", 8, 40), j.ms("token_ms", 2, 6)
    program = PROGRAM % (ms * tokens * j.ms("test_share", 0.2, 1) / 1e3)
    gpu, prompt = j.gpu(ms, launches=few), np.zeros(1 << 16, np.int64)
    own, score = functools.partial(mortal, os.getpid()), {True: 0, False: 0}
    later = collections.deque(maxlen=1000)
    j.go()
    while True:
        j.mark()
        for n in range(tokens):
            j.mark("micro")
            j.train(gpu, None if n else prompt, item=False)  # the next token stays there
        gpu.loss_item()
        if j.fix:
            later.append(program)  # all of them run when the model is done
            continue
        with j.during("child"):
            p = subprocess.run([sys.executable, "-I", "-S", "-c", program], timeout=60,
                               stdout=subprocess.PIPE, preexec_fn=own)
            score[p.stdout == b"passed\n"] += 1


class Lines(logging.Handler):
    """Keeps what is logged until a thread ships it."""

    def __init__(self):
        super().__init__()
        self.lines = []

    def emit(self, record):
        self.lines.append(self.format(record))


def collecting(link, late):
    """Where the logs of all studios go; it takes its time to say that it has them."""
    while link.recv(1 << 16):
        time.sleep(late / 1e3)
        link.sendall(b"k")


@job(data="main_thread_loading", lock="lock_bound", rest="sync_bound launch_bound")
def shared_logger(j):
    """A thread ships the log and keeps the handler's lock until the collector has answered."""
    ms = j.ms("gpu_ms", 8, 50)
    late, pause = ms * j.ms("late_share", 1.2, 2.5), ms * j.ms("pause_share", 0.1, 0.4) / 1e3
    gpu, handler, log = j.gpu(ms), Lines(), logging.getLogger("studio")
    log.setLevel(logging.INFO)
    log.propagate = False
    log.addHandler(handler)
    corpus = np.zeros((16, j.int("kib", 200, 800) << 10), np.uint8)
    mine, theirs = socket.socketpair()
    child(collecting, theirs, late)

    def send(text):
        mine.sendall(text.encode() + b"\n")
        mine.recv(1)

    def ship():
        while True:
            time.sleep(pause)
            with handler.lock:
                text = "\n".join(handler.lines)
                handler.lines.clear()
                if not j.fix:
                    send(text)
            if j.fix:
                send(text)
    threading.Thread(target=ship, daemon=True).start()
    j.go()
    for n in itertools.count():
        j.step(gpu, corpus[n % 16].copy)
        with j.during("lock"):
            log.info("step %d, loss %.4f", n, gpu.loss.value)


# ---- the device is busy


@job(data="main_thread_loading " + CPU, rest="sync_bound launch_bound")
def helpers_ahead(j):
    """A program unpacks each clip; the loop starts it two batches ahead, while the GPU works."""
    ms, size = j.ms("gpu_ms", 30, 100), j.int("kib", 200, 1200) << 10
    gpu, clips = j.gpu(ms, input_bytes=size), 6
    sound = np.random.default_rng(j.int("sound", 1, 9999))
    for n in range(clips):
        with gzip.open(j.path("clip-%d.gz" % n), "wb", 1) as f:
            f.write(sound.integers(0, 16, size, np.uint8).tobytes())
    own, running = functools.partial(mortal, os.getpid()), collections.deque()

    def start(n):
        raw = j.path("clip-%d.raw" % (n % 4))
        with open(raw, "wb") as f:
            running.append((raw, subprocess.Popen(
                ["gzip", "-dc", j.path("clip-%d.gz" % (n % clips))], stdout=f, preexec_fn=own)))
    start(0)
    start(1)
    j.go()
    for n in itertools.count(2):
        j.mark()
        with j.during("data"):
            raw, p = running.popleft()
            p.wait()
            x = np.fromfile(raw, np.uint8)
        j.train(gpu, x, item=False)
        with j.during("data"):
            start(n)
        gpu.loss_item()


@job(data="main_thread_loading", host="host_bound", rest="sync_bound launch_bound")
def embed_corpus(j):
    """Embeds a corpus: while the GPU has a batch, the loop tokenises the next one itself."""
    ms, rows = j.ms("gpu_ms", 20, 90), j.int("rows", 64, 256)
    cost, length = ms * j.ms("tokenise_share", 0.3, 0.7), j.one("length", 256, 512)
    gpu = j.gpu(ms, input_bytes=2 << 20)
    out = np.zeros((rows, 768), np.float32)
    vectors = np.lib.format.open_memmap(j.path("vectors.npy"), "w+", np.float32,
                                        (32, rows, 768))

    def tokenise():
        parse(cost)
        return np.ones((rows, length), np.int64)
    x = tokenise()
    j.go()
    for n in itertools.count():
        j.mark()
        j.train(gpu, x, item=False)
        with j.during("data"):
            following = tokenise()
        gpu.check(gpu.lib.cudaMemcpy(out.ctypes.data, gpu.input, out.nbytes, 2))
        x = following
        with j.during("host"):
            vectors[n % 32] = out


@job(host="host_bound", rest="sync_bound launch_bound")
def distilled_set(j):
    """Dataset distillation, all on the device; a watchdog, a bar and metrics run beside it."""
    inner, ms = j.int("inner", 4, 8), j.ms("inner_ms", 6, 12)
    draw, side = inner * ms * j.ms("draw_share", 0.2, 0.5), j.int("side", 64, 256)
    period, every = j.ms("watch_ms", 10, 100) / 1e3, j.ms("export_ms", 50, 500) / 1e3
    gpu = j.gpu(ms, launches=j.int("few", 10, 60))
    images = np.random.default_rng(j.int("images", 1, 9999)).integers(
        0, 40, (side, side, 3), np.uint8)
    beat, bar = {"step": 0, "at": now()}, open(os.devnull, "w", encoding="ascii")

    def watch():
        while True:
            time.sleep(period)
            stacks = [traceback.extract_stack(frame, 6)
                      for frame in sys._current_frames().values()]
            if now() - beat["at"] > 120e9:
                print("hangs at", stacks, file=sys.stderr)

    def export():
        while True:
            time.sleep(every)
            with open(j.path("studio.prom.part"), "w", encoding="ascii") as f:
                f.write("".join("studio_%s %d\n" % item for item in beat.items()))
                f.flush()
                os.fsync(f.fileno())
            os.rename(j.path("studio.prom.part"), j.path("studio.prom"))
    for f in (watch, export):
        threading.Thread(target=f, daemon=True).start()
    j.go()
    for n in itertools.count():
        j.mark()
        for k in range(inner):
            j.mark("micro")
            j.train(gpu, item=False)
            bar.write("\rstep %d: %d/%d %s" % (n, k + 1, inner, "#" * k))
            bar.flush()
        with j.during("host"):  # the images of the step before, while the device works
            decode(draw)
            with open(j.path("images-%d.png" % (n % 8)), "wb") as f:
                f.write(zlib.compress(images, 1))
        gpu.loss_item()
        beat.update(step=n, at=now())
