# SPDX-License-Identifier: BSD-2-Clause
"""At the embroidery frames: plain scripts with pools, queues, generators and callbacks, as people write them daily."""
import asyncio
import collections
import concurrent.futures
import csv
import itertools
import json
import math
import multiprocessing
import os
import queue
import random
import re
import shutil
import struct
import threading
import time

import numpy as np

from stranger import CPU, child, decode, job, mortal

MIB = 1 << 20


def took(f):
    """Seconds that f takes once it is warm."""
    f()
    begin = time.monotonic()
    f()
    return time.monotonic() - begin


# ---- the data is late


class RunningNorm:
    """Normalises frames by the mean and the variance of all that came so far, for all threads of a loader."""

    def __init__(self, bands):
        self.count, self.mean, self.var = 1e-4, np.zeros(bands, np.float32), np.ones(bands, np.float32)
        self.lock = threading.Lock()

    def update(self, x):
        total, step = self.count + len(x), x.mean(axis=0) - self.mean
        spread = self.var * self.count + x.var(axis=0) * len(x) + step**2 * (self.count * len(x) / total)
        self.mean, self.var, self.count = self.mean + step * (len(x) / total), spread / total, total

    def apply(self, x):
        return (x - self.mean) / np.sqrt(self.var + 1e-8)

    def __call__(self, x):
        with self.lock:
            self.update(x)
            return self.apply(x)


@job(data="lock_bound", rest="sync_bound launch_bound")
def shared_tambour(s):
    """A ThreadPoolExecutor is some batches ahead, its futures in a deque; to blame is the lock of the running
    normaliser that all threads share, as it is held for the whole of a recording's statistics and scaling."""
    ms, threads, share = s.ms("gpu_ms", 10, 35), s.int("threads", 2, 4), s.ms("norm_share", 1.5, 2.4)
    song, chance = np.random.default_rng(1).standard_normal((8192, 128), np.float32), random.Random(1)
    norm, gpu = RunningNorm(128), s.gpu(ms)
    many = s.keep("recordings", max(round(ms * share / 1e3 / took(lambda: norm(song[:2048]))), 1))
    scaled = norm.apply if s.fix else norm  # else its statistics are frozen

    def recording():
        first = chance.randrange(6144)
        return song[first:first + 2048] * np.float32(chance.uniform(0.8, 1.2))

    def make():
        return np.stack([scaled(recording())[:64].copy() for _ in range(many)])
    pool, due = concurrent.futures.ThreadPoolExecutor(threads), collections.deque()

    def obtain():
        while len(due) < threads + 2:
            due.append(pool.submit(make))
        return due.popleft().result()
    s.loop(gpu, obtain)


VOLUME = None  # in each of the pool's processes


def adopt(parent, volume):
    global VOLUME
    mortal(parent)
    VOLUME = volume


def cut(place):
    first, many = place
    return VOLUME[first:first + many]


@job(data="ipc_bound", rest="sync_bound launch_bound")
def wide_altarcloths(s):
    """Pool.imap over the places of an epoch: two processes have the volume in memory and just cut from it; to blame
    is the size of what they return, which is pickled into the pool's one pipe and unpickled by its thread."""
    ms, share, epoch = s.ms("gpu_ms", 8, 14), s.ms("hand_over_share", 1.7, 2.4), s.int("epoch", 20, 40)
    volume, gpu, chance = np.ones(40 * MIB // 4, np.float32), s.gpu(ms), random.Random(1)
    pool = multiprocessing.Pool(2, adopt, (os.getpid(), volume))
    each = took(lambda: list(pool.imap(cut, [(0, 8 * MIB // 4)] * 6))) / (6 * 8 * MIB)
    size = min(max(int(ms * share / 1e3 / each), MIB), 32 * MIB)
    many = s.keep("floats", 20000 if s.fix else size // 4)

    def batches():
        while True:
            yield from pool.imap(cut, [(chance.randrange(len(volume) - many), many) for _ in range(epoch)])
    cloths = batches()
    s.loop(gpu, lambda: next(cloths))


def prefetched(batches, ahead):
    """A thread runs the generator, and a queue holds what it is ahead."""
    out = queue.Queue(ahead)

    def run():
        for batch in batches:
            out.put(batch)
    threading.Thread(target=run, daemon=True).start()
    return out.get


def unfolded(path):
    with np.load(path) as chest:
        return chest["pictures"]


def shards(paths):
    for path in itertools.cycle(paths):
        yield unfolded(path)


@job(data=CPU, threads=True, rest="sync_bound launch_bound")
def folded_linen(s):
    """A generator goes through .npz files, a batch in each, behind a prefetch thread with a queue; to blame is
    savez_compressed(), for the only thread inflates each batch for longer than the device learns from it."""
    ms, ahead, share = s.ms("gpu_ms", 10, 30), s.int("ahead", 2, 6), s.ms("inflate_share", 1.5, 2.4)
    chance, trial, gpu = np.random.default_rng(1), s.path("trial.npz"), s.gpu(ms)
    np.savez_compressed(trial, pictures=chance.integers(0, 40, (64, 3, 64, 64), np.uint8))
    many = s.keep("pictures", max(int(ms * share / 1e3 / took(lambda: unfolded(trial)) * 64), 8))
    save, paths = np.savez if s.fix else np.savez_compressed, [s.path("shard-%d.npz" % n) for n in range(4)]
    for path in paths:
        save(path, pictures=chance.integers(0, 40, (many, 3, 64, 64), np.uint8))
    s.loop(gpu, prefetched(shards(paths), ahead))


COLUMNS = ["x%02d" % n for n in range(50)]


def read_part(path):
    if path.endswith(".npy"):
        return np.load(path)
    with open(path, encoding="ascii", newline="") as f:
        return np.array([[float(row[name]) for name in COLUMNS] for row in csv.DictReader(f)], np.float32)


def write_csv(path, rows):
    with open(path, "w", encoding="ascii", newline="") as f:
        out = csv.writer(f)
        out.writerow(COLUMNS)
        out.writerows(rows.astype(float).round(3).tolist())


def sew(tasks, results, path):
    """Reads a part of its own shard for each number that it is given."""
    for n in iter(tasks.get, None):
        results.put((n, read_part(path)))


@job(data="slow_worker", rest="sync_bound launch_bound")
def odd_needle(s):
    """Three processes with a task queue and a shard each, and one queue of results, which the loop puts in order by
    a dict; to blame is the one whose shard was never converted and is CSV still, while the others' are .npy."""
    ms, share, workers = s.ms("gpu_ms", 8, 20), s.ms("parse_share", 1.5, 2.3), 3
    odd, gpu, csv_part, npy_part = s.int("odd", 0, 2), s.gpu(ms), s.path("part.csv"), s.path("part.npy")
    rows = np.random.default_rng(1).standard_normal((500, len(COLUMNS)), np.float32)
    write_csv(csv_part, rows)
    many = s.keep("rows", max(int(ms * share * workers / 1e3 / took(lambda: read_part(csv_part)) * 500), 100))
    rows = np.resize(rows, (many, len(COLUMNS)))
    write_csv(csv_part, rows)
    np.save(npy_part, rows)
    tasks, results = [multiprocessing.Queue() for _ in range(workers)], multiprocessing.Queue()
    for n in range(workers):
        pid = child(sew, tasks[n], results, csv_part if n == odd and not s.fix else npy_part).pid
        if n == odd:
            s.supplier(pid)
    turn, done = itertools.count(), {}

    def ask(n):
        tasks[n % workers].put(n)

    def obtain():
        n = next(turn)
        ask(n + 2 * workers)
        while n not in done:
            number, part = results.get()
            done[number] = part
        return done.pop(n)
    for n in range(2 * workers):
        ask(n)
    s.loop(gpu, obtain)


def read_cold(path):
    """A file's bytes, of which the page cache keeps none, as the set is larger than memory."""
    with open(path, "rb") as f:
        body = f.read()
        os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    return np.frombuffer(body, np.uint8)


@job(data="main_thread_loading io_bound", rest="sync_bound launch_bound")
def linen_chest(s):
    """A file for each picture, and a loop without a loader that opens, reads and crops the files of its next batch
    one by one; to blame is this reading in the loop, as the files lie on the disk and not in memory."""
    ms, share, chance = s.ms("gpu_ms", 10, 35), s.ms("read_share", 0.6, 1.6), random.Random(1)
    paths, gpu = [s.data_file("linen_chest-%02d" % n, 1) for n in range(32)], s.gpu(ms)
    each = took(lambda: [read_cold(path) for path in paths]) / len(paths)
    many = s.keep("files", min(max(round(ms * share / 1e3 / each), 1), 64))
    kept = {path: read_cold(path) for path in paths} if s.fix else {}
    read = kept.__getitem__ if s.fix else read_cold

    def obtain():
        return np.stack([read(path)[:96 * 96 * 3] for path in chance.choices(paths, k=many)])
    s.loop(gpu, obtain)


TOKEN = re.compile(r"\w+|[^\w\s]")


def encode(vocabulary, text):
    return np.array([vocabulary.get(word, 0) for word in TOKEN.findall(text.lower())], np.int32)


def read_talks(out, talks, many):
    """Draws the talks of a batch, which are in memory."""
    chance = random.Random(1)
    while True:
        out.put(chance.choices(talks, k=many))


@job(data="main_thread_loading", rest="sync_bound launch_bound")
def repeated_monogram(s):
    """Fine-tuning on short chats, which a process draws in time; to blame is the loop, which tokenizes them in line,
    and with each of them the same long system prompt anew, before it pads them to a batch."""
    ms, share, chance = s.ms("gpu_ms", 10, 35), s.ms("tokenize_share", 0.6, 1.7), random.Random(2)
    words = ["stitch%d" % n for n in range(5000)]
    vocabulary = {word: n for n, word in enumerate(words, 1)}
    prompt = " ".join(chance.choices(words, k=s.int("prompt_words", 400, 900))) + ".\n"
    talks = [" ".join(chance.choices(words, k=chance.randint(20, 90))) + "?" for _ in range(500)]
    gpu = s.gpu(ms)
    each = took(lambda: [encode(vocabulary, prompt + talk) for talk in talks]) / len(talks)
    many = s.keep("talks", max(round(ms * share / 1e3 / each), 2))
    if s.fix:  # they were tokenized before the run
        talks = [encode(vocabulary, prompt + talk) for talk in talks]
    out = multiprocessing.Queue(maxsize=4)
    child(read_talks, out, talks, many)

    def obtain():
        rows = out.get()
        if not s.fix:
            rows = [encode(vocabulary, prompt + talk) for talk in rows]
        x = np.zeros((many, max(map(len, rows))), np.int32)
        for line, row in zip(x, rows):
            line[:len(row)] = row
        return x
    s.loop(gpu, obtain)


def thread_needle(out, index, cost):
    decode(index)
    while True:
        decode(cost)
        out.put(np.zeros(20000, np.float32))


class Needles:
    """A loader: its processes, each of which reads the index first, and the queue of their batches."""

    def __init__(self, workers, index, cost):
        self.out = multiprocessing.Queue(maxsize=2 * workers)
        self.workers = [child(thread_needle, self.out, index, cost) for _ in range(workers)]

    def stop(self):
        for worker in self.workers:
            worker.kill()
        for worker in self.workers:
            worker.join()


@job(data="loader_restart", host="host_bound", rest="sync_bound launch_bound")
def rethreaded_needles(s):
    """An evaluation every few steps, for which the loader's processes are stopped, to have their memory free; to
    blame is that they are started anew for the step after it, when each has to read its index again."""
    ms, every, passes = s.ms("gpu_ms", 8, 18), s.int("every", 4, 8), s.int("passes", 3, 6)
    workers, index = s.int("workers", 1, 2), ms * every * s.ms("index_share", 0.8, 1.7)
    cost, gpu = ms * workers * s.ms("load_share", 0.1, 0.4), s.gpu(ms)
    held_out, needles = np.ones(50000, np.float32), Needles(workers, index, cost)

    def obtain():
        nonlocal needles
        if needles is None:
            needles = Needles(workers, index, cost)
        return needles.out.get()
    s.go()
    for n in itertools.count(1):
        s.step(gpu, obtain)
        if n % every:
            continue
        if not s.fix:
            with s.during("host"):
                needles.stop()
            needles = None
        for _ in range(passes):
            s.mark("micro")
            gpu.upload(held_out.ctypes.data, held_out.nbytes)
            gpu.forward()
        gpu.loss_item()


# ---- not for data


def stitch(cost):
    decode(cost)
    return np.zeros(50000, np.float32)


def save_tensors(folder, state):
    os.makedirs(folder, exist_ok=True)
    for name, tensor in state.items():
        with open(os.path.join(folder, name + ".npy"), "wb") as f:
            np.save(f, tensor)
            f.flush()
            os.fsync(f.fileno())


@job(data=CPU, ckpt="checkpoint_stall", rest="sync_bound launch_bound")
def careful_backstitch(s):
    """A ProcessPoolExecutor has batches ready; to blame is the checkpoint every few steps, for which the loop writes
    and syncs a file for each tensor, copies the folder under the step's name, and removes the oldest copy."""
    ms, every, share = s.ms("gpu_ms", 8, 20), s.int("every", 3, 8), s.ms("save_share", 0.7, 1.6)
    gpu, cost, kib = s.gpu(ms), ms * s.ms("load_share", 0.1, 0.35), s.int("kib", 16, 64)
    pool = concurrent.futures.ProcessPoolExecutor(1, initializer=mortal, initargs=(os.getpid(),))
    due = collections.deque(pool.submit(stitch, cost) for _ in range(3))
    numbers, kept, last = itertools.count(), collections.deque(), s.path("last")

    def tensors(many):
        return {"layers.%d.weight" % n: np.ones(kib << 8, np.float32) for n in range(many)}

    def save(state):
        save_tensors(last, state)
        kept.append(s.path("save-%d" % next(numbers)))
        shutil.copytree(last, kept[-1])
        if len(kept) > 2:
            shutil.rmtree(kept.popleft())
    some = tensors(8)
    each = took(lambda: save(some)) / len(some)
    state = tensors(s.keep("tensors", min(max(round(ms * every * share / 1e3 / each), 1), 600)))

    def obtain():
        due.append(pool.submit(stitch, cost))
        return due.popleft().result()
    s.go()
    for n in itertools.count(1):
        s.step(gpu, obtain)
        if n % every == 0 and not s.fix:
            with s.during("ckpt"):
                save(state)


# ---- nothing is wrong


SKEIN = 80000


def dye_works(s):
    """A store of skeins that is far away: each question is answered after a while."""
    late = float(s.told("late")) / 1e3
    chance = random.Random(1)

    async def serve(reader, writer):
        while await reader.read(8):
            await asyncio.sleep(late * chance.lognormvariate(0, 0.2))
            writer.write(bytes(SKEIN))
            await writer.drain()

    async def main():
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        s.tell("port", server.sockets[0].getsockname()[1])
        await server.serve_forever()
    asyncio.run(main())


def wind(body, cost):
    decode(cost)
    return np.frombuffer(body, np.float32)


@job(outside=dye_works, data="network_bound", rest="sync_bound launch_bound")
def distant_dyers(s):
    """Nothing is to blame: an asyncio loader in a thread waits some steps long for each answer of a far store, and
    decodes by to_thread(), but it has enough requests under way, each on a connection from its pool."""
    ms, steps = s.ms("gpu_ms", 18, 40), s.ms("late_steps", 2, 4)
    s.tell("late", ms * steps / (10 if s.fix else 1))
    gpu, port, cost = s.gpu(ms), int(s.told("port")), ms * s.ms("decode_share", 0.1, 0.3)
    ahead, numbers, due = math.ceil(2 * steps) + 2, itertools.count(), collections.deque()
    home = asyncio.new_event_loop()
    threading.Thread(target=home.run_forever, daemon=True).start()

    async def connect():
        links = asyncio.LifoQueue()
        for _ in range(ahead):
            links.put_nowait(await asyncio.open_connection("127.0.0.1", port))
        return links
    links = asyncio.run_coroutine_threadsafe(connect(), home).result()

    async def fetch(n):
        reader, writer = link = await links.get()
        writer.write(struct.pack("<Q", n))
        body = await reader.readexactly(SKEIN)
        links.put_nowait(link)
        return await asyncio.to_thread(wind, body, cost)

    def ask():
        due.append(asyncio.run_coroutine_threadsafe(fetch(next(numbers)), home))

    def obtain():
        ask()
        return due.popleft().result()
    for _ in range(ahead - 1):
        ask()
    s.loop(gpu, obtain)


def spin(out, cost):
    while True:
        decode(cost)
        out.put(np.zeros(50000, np.float32))


def metrics_of(truth, logits):
    """The confusion matrix, and what follows from it for each class."""
    classes = logits.shape[1]
    table = np.bincount(truth * classes + logits.argmax(axis=1), minlength=classes**2).reshape(classes, classes)
    hits, real, told = np.diag(table), table.sum(axis=1), table.sum(axis=0)
    return {"accuracy": float(hits.sum() / table.sum()), "recall": (hits / np.maximum(real, 1)).tolist(),
            "iou": (hits / np.maximum(real + told - hits, 1)).tolist()}


@job(data=CPU, host="host_bound", rest="sync_bound launch_bound")
def counted_stitches(s):
    """Nothing is to blame: in each step the loop computes metrics in numpy and writes them as a line of JSON, but of
    the step before, while this one's kernels run; a busy process has the next batch in time."""
    ms, classes, share = s.ms("gpu_ms", 18, 40), s.int("classes", 10, 40), s.ms("metrics_share", 0.25, 0.55)
    chance, gpu, out = np.random.default_rng(1), s.gpu(ms), multiprocessing.Queue(maxsize=4)
    truth, logits = chance.integers(0, classes, 4000), chance.standard_normal((4000, classes), np.float32)
    each = took(lambda: metrics_of(truth, logits)) / len(truth)
    rows = s.keep("rows", max(int(ms * share / 1e3 / each), 100))
    truth, logits = np.resize(truth, rows), np.resize(logits, (rows, classes))
    child(spin, out, ms * s.ms("load_share", 0.4, 0.7))
    with open(s.path("metrics.jsonl"), "w", encoding="ascii") as log:
        s.go()
        for n in itertools.count():
            s.mark()
            with s.during("data"):
                x = out.get()
            s.train(gpu, x, item=False)
            if n and not s.fix:
                with s.during("host"):
                    log.write(json.dumps(dict(metrics_of(truth, logits), step=n - 1)) + "\n")
                    log.flush()
            gpu.loss_item()
