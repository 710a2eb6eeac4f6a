# SPDX-License-Identifier: BSD-2-Clause
"""Along a river: how the training code of today feeds itself, by the libraries that people use."""
import asyncio
import functools
import hashlib
import io
import itertools
import mmap
import multiprocessing
import multiprocessing.connection
import os
import pickle
import queue
import random
import socket
import threading
import time
import zlib

import numpy as np

from stranger import CPU, child, decode, job, mortal, parse

PAGE, ASKED, ANSWERED = 4096, 2048, 16


def supply(out, cost, size):
    while True:
        decode(cost)
        out.put(np.zeros(size, np.float32))


def busy_loader(j, ms):
    """A process with much to do that keeps up."""
    out = multiprocessing.Queue(maxsize=4)
    child(supply, out, ms * j.ms("load_share", 0.3, 0.65), 50000)
    return out.get


def took(f):
    """Seconds that f takes once it is warm."""
    f()
    begin = time.monotonic()
    f()
    return time.monotonic() - begin


def far_side(j):
    """A server that is far away: it answers each question after a while."""
    late, spread = float(j.told("late")) / 1e3, j.ms("spread", 0.05, 0.3)
    door = socket.create_server(("127.0.0.1", 0))
    j.tell("port", door.getsockname()[1])

    def serve(link, n):
        chance, stream = random.Random(n), link.makefile("rwb")
        while stream.read(ASKED):
            time.sleep(late * chance.lognormvariate(0, spread))
            stream.write(bytes(ANSWERED))
            stream.flush()
    for n in itertools.count():
        threading.Thread(target=serve, args=(door.accept()[0], n), daemon=True).start()


# ---- the data is late


class Scan:
    """An image that is decoded when its pixels are first asked for."""

    def __init__(self, cost):
        self.cost = cost

    @functools.cached_property
    def pixels(self):
        return self.decoded()

    def decoded(self):
        decode(self.cost)
        return np.zeros(10000, np.float32)


@job(data="lock_bound", rest="sync_bound launch_bound")
def eel_gates(j):
    """Threads decode images in C, each its own, by a functools.cached_property; to blame is the one lock
    that this has, up to Python 3.11, for all objects of a class, so that one thread decodes at a time."""
    ms, threads, images = j.ms("gpu_ms", 8, 40), j.int("threads", 2, 3), j.int("images", 2, 6)
    cost = ms * j.ms("load_share", 1.3, 2.3) / images
    gpu, out = j.gpu(ms), queue.Queue(maxsize=4)

    def fill():
        while True:
            scans = [Scan(cost / 4 if j.fix else cost) for _ in range(images)]
            out.put(np.stack([scan.decoded() if j.fix else scan.pixels for scan in scans]))
    for _ in range(threads):
        threading.Thread(target=fill, daemon=True).start()
    j.loop(gpu, out.get)


def climb(out, threads, cost, records):
    """A worker as grain has them, with threads that read records ahead, in any order."""
    numbers, kept = itertools.count(), queue.Queue(maxsize=2 * records)

    def read():
        for n in numbers:
            parse(cost)
            kept.put(np.full(4000, n, np.float32))
    for _ in range(threads):
        threading.Thread(target=read, daemon=True).start()
    while True:
        out.put(np.stack([kept.get() for _ in range(records)]))


@job(data=CPU + " lock_bound", threads=True, rest="sync_bound launch_bound")
def salmon_ladder(j):
    """The only worker process parses records in many reading threads, as with grain's ReadOptions; to blame
    is that it is Python that parses, so that the worker's interpreter has its threads take turns."""
    ms, threads, records = j.ms("gpu_ms", 8, 40), j.int("read_threads", 4, 16), j.int("records", 4, 24)
    cost = ms * j.ms("load_share", 1.3, 2.8) / records
    gpu, out = j.gpu(ms), multiprocessing.Queue(maxsize=4)
    j.supplier(child(climb, out, threads, cost / 10 if j.fix else cost, records).pid)
    j.loop(gpu, out.get)


def held_document(n):
    return {"key": "doc-%07d" % n, "shard": n % 97, "span": [n, n + 511], "tokens": list(range(n, n + 6))}


def load_manifest(out, cost, held, snapshots):
    """A worker that tells its state with each batch: its shuffle buffer, and its generator's."""
    chance, buffer = random.Random(1), [held_document(n) for n in range(held)]
    for n in itertools.count():
        for _ in range(32):
            buffer[chance.randrange(held)] = held_document(chance.randrange(10**6))
        decode(cost)
        state = {"step": n, "rng": chance.getstate(), "buffer": list(buffer)} if snapshots else {"step": n}
        out.put((np.zeros(20000, np.float32), state))


@job(data="ipc_bound", rest="sync_bound launch_bound")
def barge_manifest(j):
    """A StatefulDataLoader that snapshots at every step: a batch is soon made, and to blame is the state of
    the worker that goes with it, a shuffle buffer of many small dicts, pickled and unpickled each time."""
    ms, share = j.ms("gpu_ms", 8, 35), j.ms("hand_over_share", 0.4, 1.5)
    gpu, blob = j.gpu(ms), pickle.dumps([held_document(n) for n in range(3000)])
    held = max(int(3000 * ms * share / 1e3 / took(lambda: pickle.loads(blob))), 100)
    out, last = multiprocessing.Queue(maxsize=4), {}
    child(load_manifest, out, ms * 0.1, held, not j.fix)

    def obtain():
        x, last["state"] = out.get()
        return x
    j.loop(gpu, obtain)


def fingerprint(known, closure):
    """As Hugging Face's datasets do it by dill, which pickles in Python."""
    out = io.BytesIO()
    pickle._Pickler(out).dump(closure)
    return hashlib.sha256(known + out.getvalue()).digest()


@job(data="main_thread_loading", rest="sync_bound launch_bound")
def lock_ledger(j):
    """A curriculum calls dataset.filter() every step or few, whose result is cached already; to blame is
    the loop itself, which pickles and hashes the function's large vocabulary to find the cache's name."""
    ms, every = j.ms("gpu_ms", 10, 50), j.int("stage_steps", 1, 4)
    stage_ms, gpu = ms * j.ms("hash_share", 0.35, 1.4) * every, j.gpu(ms)
    few = {"token %d" % n: n for n in range(1000)}
    many = max(int(1000 * stage_ms / 1e3 / took(lambda: fingerprint(b"", few))), 10)
    vocabulary = {"token %d" % n: n for n in range(many)}
    table, chance, steps = np.zeros((8192, 512), np.float32), np.random.default_rng(1), itertools.count()
    state = {"fingerprint": b""}

    def obtain():
        if next(steps) % every == 0 and not j.fix:  # else new_fingerprint= is given
            state["fingerprint"] = fingerprint(state["fingerprint"], vocabulary)
        return table[chance.integers(0, len(table), 64)]
    j.loop(gpu, obtain)


@job(data="main_thread_loading", rest="sync_bound launch_bound")
def mixing_weir(j):
    """WebLoader(...).unbatched().map(f).shuffle(n).batched(m): the workers keep up, and to blame is what
    comes after them: the loop itself takes their batches apart, maps, shuffles and stacks each sample."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    import torch
    ms, many, workers = j.ms("gpu_ms", 10, 50), j.int("batch", 8, 48), j.int("workers", 1, 2)
    caption, side = ms * j.ms("map_share", 0.3, 1.2) / many, j.int("side", 32, 80)
    cost, pond_size = ms * j.ms("load_share", 0.05, 0.25) * workers, many * j.int("pond", 1, 4)
    chance, parent = random.Random(1), os.getpid()

    class Shards(torch.utils.data.IterableDataset):
        def __iter__(self):
            while True:
                decode(cost)
                yield torch.zeros(many, 3, side, side, dtype=torch.uint8)

    def mapped(batches):
        for batch in batches:
            for sample in batch.numpy():
                parse(caption)
                yield np.subtract(sample, 127, dtype=np.float32)

    def shuffled(samples):
        pond = []
        for sample in samples:
            pond.append(sample)
            if len(pond) > pond_size:
                i = chance.randrange(len(pond))
                pond[i], pond[-1] = pond[-1], pond[i]
                yield pond.pop()
    gpu = j.gpu(ms)
    loader = iter(torch.utils.data.DataLoader(Shards(), None, num_workers=workers,
                                              worker_init_fn=lambda _: mortal(parent)))
    samples = shuffled(mapped(loader))

    def obtain():
        if j.fix:
            return next(loader).numpy()
        return np.stack([next(samples) for _ in range(many)])
    j.loop(gpu, obtain)


def play(out, port, unroll, cost):
    """An actor without a model: each observation goes to the policy, which answers with an action."""
    stream = socket.create_connection(("127.0.0.1", port)).makefile("rwb")
    while True:
        frames = np.zeros((unroll, ASKED), np.uint8)
        for frame in frames:
            parse(cost)
            stream.write(frame.tobytes())
            stream.flush()
            stream.read(ANSWERED)
        out.put(frames.astype(np.float32))


@job(outside=far_side, data="network_bound too_few_workers", rest="sync_bound launch_bound")
def pilot_questions(j):
    """RL as in SEED: actors send a learner their unrolls, and ask a policy server for each of their actions;
    to blame is the server's distance, for the few actors play next to nothing and wait for answers."""
    ms, actors, unroll = j.ms("gpu_ms", 12, 45), j.int("actors", 1, 3), j.int("unroll", 4, 14)
    late = ms * j.ms("late_share", 1.3, 3) * actors / unroll
    j.tell("late", late / 15 if j.fix else late)
    gpu, out, port = j.gpu(ms), multiprocessing.Queue(maxsize=3), int(j.told("port"))
    pids = [child(play, out, port, unroll, late * 0.04).pid for _ in range(actors)]
    if actors == 1:
        j.supplier(pids[0])
    j.loop(gpu, out.get)


@job(outside=far_side, data="network_bound main_thread_loading", rest="sync_bound launch_bound")
def ferry_bells(j):
    """An agent learns to use tools: answers are generated turn by turn, and after each the loop runs asyncio
    until all of its tool calls have come back; to blame is the far sandbox, for which the loop waits."""
    turns, talks, many = j.int("turns", 2, 5), j.int("rollouts", 2, 6), j.int("turn_launches", 10, 60)
    ms = j.ms("turn_ms", 8, 30)
    actor, learner = j.gpu(ms, launches=many), j.gpu(j.ms("update_ms", 10, 40))
    late = ms * j.ms("late_share", 0.5, 1.8)
    j.tell("late", late / 20 if j.fix else late)
    port, loop = int(j.told("port")), asyncio.new_event_loop()
    links = [loop.run_until_complete(asyncio.open_connection("127.0.0.1", port)) for _ in range(talks)]

    async def call(reader, writer):
        writer.write(bytes(ASKED))
        return await reader.readexactly(ANSWERED)

    async def calls():
        return await asyncio.gather(*(call(*link) for link in links))
    seen = np.zeros(ANSWERED * talks, np.uint8)
    j.go()
    while True:
        j.mark()
        actor.enter_thread()
        for _ in range(turns):
            j.mark("micro")
            actor.upload(seen.ctypes.data, seen.nbytes)
            actor.launch(0, many)
            actor.loss_item()
            with j.during("data"):
                seen = np.frombuffer(b"".join(loop.run_until_complete(calls())), np.uint8)
        learner.enter_thread()
        j.train(learner, seen)


def sift(out, path, pages, advice, cold):
    """Goes through a mapped shard in order; before the next pass nothing of it is in memory."""
    while True:
        with open(path, "rb") as f, mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ) as shard:
            shard.madvise(advice)
            for begin in range(0, len(shard) - pages * PAGE, pages * PAGE):
                out.put(np.frombuffer(shard, np.uint8, pages * PAGE, begin)[::PAGE].astype(np.float32))
        cold(path)


@job(data="page_fault_io", rest="sync_bound launch_bound")
def silt_pages(j):
    """A process reads a cold mapped shard in order; to blame is the map's MADV_RANDOM, a default meant for
    shuffled reads, for without any reading ahead each page is a fault that waits for the disk."""
    ms, share = j.ms("gpu_ms", 6, 25), j.ms("read_share", 1.4, 3)
    path = j.data_file("silt", 64)
    with open(path, "rb") as f, mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ) as shard:
        shard.madvise(mmap.MADV_RANDOM)
        begin = time.monotonic()
        np.frombuffer(shard, np.uint8, 400 * PAGE)[::PAGE].sum()
        each = (time.monotonic() - begin) / 400
    pages = j.keep("pages", min(max(int(ms * share / 1e3 / each), 20), 4000))
    j.cold(path)
    gpu, out = j.gpu(ms), multiprocessing.Queue(maxsize=4)
    advice = mmap.MADV_SEQUENTIAL if j.fix else mmap.MADV_RANDOM
    j.supplier(child(sift, out, path, pages, advice, j.cold).pid)
    j.loop(gpu, out.get)


@job(data="too_few_workers cpu_bound", rest="sync_bound launch_bound")
def sluice_tuner(j):
    """Threads decode in C, and a tuner like tf.data's AUTOTUNE sets how many; to blame is its small budget of
    memory, for which it takes the second thread away again as soon as that has begun to help."""
    ms, period = j.ms("gpu_ms", 10, 45), j.ms("period_s", 0.25, 0.6)
    cost, gpu, out = ms * j.ms("load_share", 1.5, 2.6), j.gpu(ms), queue.Queue(maxsize=3)
    tuned = {"threads": 2 if j.fix else 1}

    def work(number):
        while number < tuned["threads"]:
            decode(cost / 4 if j.fix else cost)
            out.put(np.zeros(50000, np.float32))

    def start(number):
        t = threading.Thread(target=work, args=(number,), daemon=True)
        t.start()
        return t

    def tune():
        helper = None
        while True:
            time.sleep(2 * period)
            tuned["threads"] = 2
            if helper is None or not helper.is_alive():
                helper = start(1)
            time.sleep(period)
            tuned["threads"] = 1
    for number in range(tuned["threads"]):
        start(number)
    if not j.fix:
        threading.Thread(target=tune, daemon=True).start()
    j.loop(gpu, out.get)


def crop(cost):
    decode(cost)
    return np.zeros(50000, np.float32)


@job(data=CPU + " lock_bound", threads=True, rest="lock_bound")
def towline_callbacks(j):
    """A Pool crops with ease, and apply_async(callback=collate) brings its results; to blame is the callback,
    for the one thread of the pool that receives results does all of the collating, in Python."""
    ms, launches = j.ms("gpu_ms", 15, 60), j.int("launches", 1, 4)
    cost, gpu = ms * j.ms("collate_share", 1.2, 2.2), j.gpu(ms, launches=launches)
    pool, out = multiprocessing.Pool(2, mortal, (os.getpid(),)), queue.Queue()

    def collate(part):
        parse(cost / 12 if j.fix else cost)
        out.put(part)

    def ask():
        pool.apply_async(crop, (ms * 0.2,), callback=collate)
    for _ in range(4):
        ask()

    def obtain():
        x = out.get()
        ask()
        return x
    j.loop(gpu, obtain)


# ---- not for data


@job(data=CPU, host="host_bound", rest="sync_bound launch_bound")
def dredger_turns(j):
    """Low-rank training as by GaLore, with a busy loader that keeps up; to blame is the loop, which every few
    steps takes gradients down and finds their projections anew by numpy's SVD."""
    ms, every = j.ms("gpu_ms", 12, 50), j.int("every", 2, 6)
    gpu, batch = j.gpu(ms), busy_loader(j, ms)
    gradient = np.random.default_rng(1).standard_normal((j.int("rows", 128, 512), 64), np.float32)
    each = took(lambda: np.linalg.svd(gradient, full_matrices=False))
    layers = max(round(ms * j.ms("svd_share", 0.35, 1.2) * every / 1e3 / each), 1)
    down = np.zeros_like(gradient)
    j.go()
    for n in itertools.count(1):
        j.step(gpu, batch)
        if n % every == 0 and not j.fix:
            gpu.check(gpu.lib.cudaMemcpy(down.ctypes.data, gpu.input, down.nbytes, 2))
            with j.during("host"):
                for _ in range(layers):
                    np.linalg.svd(gradient, full_matrices=False)


@job(data=CPU, ckpt="checkpoint_stall host_bound", host="host_bound", rest="sync_bound launch_bound")
def towpath_tenants(j):
    """LoRA for many tenants on one base model, with batches in time; to blame is the loop, which at each
    change of tenant packs the adapter into an .npz file, and only then reads the next one's."""
    ms, every, tenants = j.ms("gpu_ms", 12, 50), j.int("turn_steps", 1, 4), j.int("tenants", 3, 8)
    gpu, batch, chance = j.gpu(ms), busy_loader(j, ms), np.random.default_rng(1)
    piece = chance.standard_normal(16 << 8, np.float32)
    each = took(lambda: zlib.compress(piece)) / 16
    kib = min(max(int(ms * j.ms("swap_share", 0.35, 1.2) * every / 1e3 / each), 8), 6000)
    adapter = chance.standard_normal(kib << 8, np.float32)
    paths = [j.path("tenant-%d.npz" % n) for n in range(tenants)]
    for path in paths:
        np.savez_compressed(path, lora=adapter)
    j.go()
    for n in itertools.count(1):
        j.step(gpu, batch)
        if n % every == 0:
            turn = n // every
            if not j.fix:  # else all adapters stay in memory
                with j.during("ckpt"):
                    np.savez_compressed(paths[(turn - 1) % tenants], lora=adapter)
                with j.during("host"), np.load(paths[turn % tenants]) as saved:
                    adapter = saved["lora"]
            gpu.upload(adapter.ctypes.data, adapter.nbytes)


# ---- nothing is wrong


@job(data="ipc_bound", rest="sync_bound launch_bound")
def mill_pond(j):
    """Nothing is to blame: workers share a multiprocessing.SimpleQueue, with no buffer but its pipe, so that
    one stands in write() with the lock held and the others wait for that; but a batch is always there."""
    ms, workers = j.ms("gpu_ms", 22, 80), j.int("workers", 2, 3)
    gpu, out = j.gpu(ms), multiprocessing.SimpleQueue()
    cost, size = ms * j.ms("load_share", 0.2, 0.5) * workers, j.int("floats", 20000, 80000)
    for _ in range(workers):
        child(supply, out, cost, size)
    j.loop(gpu, out.get)


def swim(link, cost, pause):
    """An environment: what it sees goes out, an action comes in."""
    while True:
        link.send(np.zeros((64, 84), np.float32))
        link.recv()
        parse(cost)
        time.sleep(pause)


@job(data=CPU, host="host_bound", rest="sync_bound launch_bound")
def otter_rounds(j):
    """Nothing is to blame: as in EnvPool, asynchronous, each step takes the first few environments that
    are ready; the others play meanwhile, and for the one that is far slower nobody ever waits."""
    ms, wants = j.ms("gpu_ms", 22, 75), j.int("wants", 2, 4)
    gpu, cost = j.gpu(ms), ms * j.ms("play_share", 0.12, 0.4) / wants
    pause, away = ms * j.ms("slow_steps", 2, 6) / 1e3, []
    for n in range(2 * wants + 1):
        mine, theirs = multiprocessing.Pipe()
        child(swim, theirs, cost, 0 if n else pause)
        away.append(mine)
    j.go()
    while True:
        j.mark()
        frames, here = [], []
        with j.during("data"):
            while len(here) < wants:
                for link in multiprocessing.connection.wait(away)[:wants - len(here)]:
                    frames.append(link.recv())
                    away.remove(link)
                    here.append(link)
            x = np.stack(frames)
        j.train(gpu, x)
        with j.during("host"):
            for link in here:
                link.send(1)
            away += here
