# SPDX-License-Identifier: BSD-2-Clause
"""The ordinary training scripts of small teams, each with one mistake or one honest limit."""
import asyncio
import collections
import concurrent.futures
import functools
import itertools
import mmap
import multiprocessing
import os
import queue
import random
import socket
import sqlite3
import struct
import threading
import time

import numpy as np

from stranger import CPU, child, decode, job, mortal, now, parse


def torch_alone():
    """PyTorch, that computes in the calling thread only."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    import torch
    torch.set_num_threads(1)
    return torch


def loader(torch, data, **more):
    """A DataLoader, with one worker if nothing else is said; its workers die with this process."""
    parent = os.getpid()
    more.setdefault("num_workers", 1)
    return torch.utils.data.DataLoader(data, multiprocessing_context="fork",
                                       worker_init_fn=lambda _: mortal(parent), **more)


def forever(batches):
    """Epoch after epoch."""
    while True:
        yield from batches


def only_child():
    return multiprocessing.active_children()[0].pid


# ---- data


@job(data="loader_restart slow_first_batch", host="host_bound sync_bound", rest="sync_bound launch_bound")
def spare_wicks(s):
    """Rehearsal against forgetting: a few older samples join a batch, by next(iter(old_loader))."""
    torch = torch_alone()
    ms, every, rows = s.ms("gpu_ms", 10, 40), s.int("every", 1, 2), s.int("rows", 8, 32)
    index, note = s.ms("index_ms", 15, 60), ms * s.ms("note_share", 0.03, 0.12)
    fresh_ms, old_ms = ms * s.ms("load_share", 0.1, 0.3), s.ms("old_ms", 0.5, 3)

    class Samples(torch.utils.data.IterableDataset):
        def __init__(self, cost):
            self.cost = cost

        def __iter__(self):
            parse(index)  # which samples there are
            while True:
                decode(self.cost)
                yield torch.zeros(rows, 3, 64, 64)
    gpu = s.gpu(ms, 4 << 20)
    fresh = iter(loader(torch, Samples(fresh_ms), batch_size=None))
    old = loader(torch, Samples(old_ms), batch_size=None)
    kept = iter(old) if s.fix else None
    next(fresh)
    s.go()
    for n in itertools.count():
        s.mark()
        with s.during("data"):
            x = next(fresh)
            if n % every == 0:
                x = torch.cat([x, next(kept if s.fix else iter(old))])
            x = x.numpy()
        s.train(gpu, x)
        with s.during("host"):
            parse(note)  # a line for the log


@job(data=CPU, host="host_bound sync_bound", rest="sync_bound launch_bound")
def oil_ration(s):
    """Decoded pictures go to an LRU cache a little smaller than the epoch, which is read in order."""
    torch = torch_alone()
    ms, batch = s.ms("gpu_ms", 10, 45), s.int("batch", 4, 16)
    cost = ms * s.ms("load_share", 1.3, 2.8) / batch / (5 if s.fix else 1)
    epoch, every = batch * s.int("epoch_steps", 12, 40), s.int("average_every", 2, 6)
    weights = np.ones(s.int("weights_mib", 1, 8) << 18, np.float32)
    average, tmp = weights.copy(), weights.copy()

    @functools.lru_cache(maxsize=int(epoch * s.ms("kept_share", 0.6, 0.95)))
    def picture(n):
        decode(cost)
        return torch.full((3, 64, 96), float(n))

    class Pictures(torch.utils.data.Dataset):
        def __len__(self):
            return epoch

        def __getitem__(self, n):
            return picture(n)
    gpu = s.gpu(ms, 2 << 20)
    batches = forever(loader(torch, Pictures(), batch_size=batch, persistent_workers=True))
    next(batches)
    s.supplier(only_child())
    s.go()
    for n in itertools.count(1):
        s.step(gpu, lambda: next(batches).numpy())
        if n % every == 0:
            with s.during("host"):
                np.multiply(average, 0.99, average)
                np.add(average, np.multiply(weights, 0.01, tmp), average)


def soundings(path, rows):
    """Pieces of a file that is mapped for them; it stands for one larger than memory."""
    with open(path, "rb") as f:
        m = mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ)
        m.madvise(mmap.MADV_RANDOM)
        pieces = np.frombuffer(m, np.uint8).reshape(-1, 4096)
        x = np.ascontiguousarray(pieces[rows, :1024])
        del pieces, m
        os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    return x


@job(data="page_fault_io", ckpt="checkpoint_stall", rest="sync_bound launch_bound")
def sounding_lead(s):
    """Images are at hand, their depths in a mapped array; a sampler hands a worker rows at random."""
    torch = torch_alone()
    ms, every = s.ms("gpu_ms", 12, 45), s.int("save_every", 20, 60)
    cost, own = ms * s.ms("load_share", 1.6, 3), ms * s.ms("picture_share", 0.1, 0.25)
    path, state = s.data_file("sounding_lead", 256), np.ones(s.int("kib", 200, 2000) << 8, np.float32)
    trial = np.random.default_rng(1).integers(0, 65536, 400)
    begin = now()
    soundings(path, trial)
    each = (now() - begin) / 1e6 / len(trial)
    rows = s.keep("rows", int(min(max(cost / (5 if s.fix else 1) / each, 64), 6000)))

    class Depths(torch.utils.data.Dataset):
        def __len__(self):
            return 65536

        def __getitem__(self, these):
            decode(own)
            return torch.from_numpy(soundings(path, these))
    data, kit = Depths(), torch.utils.data
    order = kit.BatchSampler(kit.RandomSampler(data), rows, drop_last=True)
    gpu = s.gpu(ms, 6 << 20)
    batches = forever(loader(torch, data, batch_size=None, sampler=order, persistent_workers=True))
    next(batches)
    s.supplier(only_child())
    s.go()
    for n in itertools.count(1):
        s.step(gpu, lambda: next(batches).numpy())
        if n % every == 0:
            with s.during("ckpt"):
                np.save(s.path("state.npy"), state)


def make_batch(table, n, rows, cost):
    decode(cost)
    if table is None:  # it was there before the fork
        return np.zeros((rows, 512), np.float32)
    n = n * rows % (len(table) - rows)
    return table[n:n + rows].copy()


@job(data="ipc_bound", rest="lock_bound ipc_bound")
def rope_ladder(s):
    """A ProcessPoolExecutor is some batches ahead; submit(make_batch, table, n) sends the whole table."""
    ms, rows, ahead = s.ms("gpu_ms", 8, 20), s.int("rows", 64, 512), s.int("ahead", 2, 3)
    cost, own = ms * s.ms("table_share", 2.2, 4), ms * s.ms("own_share", 0.08, 0.25)
    gpu = s.gpu(ms, launches=s.int("launches", 10, 60))
    pool = concurrent.futures.ProcessPoolExecutor(1, multiprocessing.get_context("fork"),
                                                  mortal, (os.getpid(),))
    trial = np.ones((16 * 512, 512), np.float32)  # 16 MiB
    for n in range(2):  # the second time counts
        begin = now()
        pool.submit(make_batch, trial, n, rows, 0).result()
    each = (now() - begin) / 1e6 / 16
    mib = s.keep("mib", int(min(max(cost / each, 8), 64)))
    table = None if s.fix else np.ones((mib * 512, 512), np.float32)
    number = itertools.count()

    def submit():
        return pool.submit(make_batch, table, next(number), rows, own)
    pending = collections.deque(submit() for _ in range(ahead))

    def obtain():
        pending.append(submit())
        return pending.popleft().result()
    s.loop(gpu, obtain)


def flag_station(s):
    """A service for features: it takes a while over each answer, and has time for many at once."""
    late = float(s.told("late")) / 1e3
    door = socket.create_server(("127.0.0.1", 0))
    s.tell("port", door.getsockname()[1])

    def serve(link, chance):
        while ask := link.recv(4):
            time.sleep(late * chance.uniform(0.7, 1.3))
            link.sendall(bytes(struct.unpack("<I", ask)[0]))
    for n in itertools.count():
        threading.Thread(target=serve, args=(door.accept()[0], random.Random(n)), daemon=True).start()


@job(outside=flag_station, data="network_bound too_few_workers", host="host_bound sync_bound",
     rest="sync_bound launch_bound")
def signal_flags(s):
    """An asyncio feed gathers all samples of a batch at once, through a client that blocks."""
    ms, samples, size = s.ms("gpu_ms", 12, 45), s.int("samples", 3, 8), s.int("kib", 40, 250) << 10
    late, own = ms * s.ms("late_share", 1.4, 3) / samples, ms * s.ms("own_share", 0.08, 0.3) / samples
    every, table = s.int("log_every", 5, 20), s.ms("table_ms", 1, 8)
    s.tell("late", late / 8 if s.fix else late)
    gpu, port, out = s.gpu(ms, 2 << 20), int(s.told("port")), queue.Queue(2)
    streams = [socket.create_connection(("127.0.0.1", port)).makefile("rwb") for _ in range(samples)]

    async def sample(stream):
        stream.write(struct.pack("<I", size))
        stream.flush()
        body = stream.read(size)
        decode(own)
        return np.frombuffer(body, np.uint8)

    async def feed():
        while True:
            out.put(np.stack(await asyncio.gather(*map(sample, streams))))
    threading.Thread(target=lambda: asyncio.run(feed()), daemon=True).start()
    s.go()
    for n in itertools.count(1):
        s.step(gpu, out.get)
        if n % every == 0:
            with s.during("host"):
                parse(table)


@job(data="too_few_workers", rest="sync_bound launch_bound")
def pilot_cutter(s):
    """Map tiles, all cached by now; the client of each worker still pauses after each of them."""
    torch = torch_alone()
    ms, workers, tiles = s.ms("gpu_ms", 10, 45), s.int("workers", 1, 2), s.int("tiles", 2, 8)
    pause = ms * s.ms("pause_share", 1.3, 2.8) * workers / tiles / (8 if s.fix else 1)
    own = ms * s.ms("own_share", 0.08, 0.25) * workers / tiles

    class Views(torch.utils.data.IterableDataset):
        def __iter__(self):
            who, cache = torch.utils.data.get_worker_info(), {}
            for n in itertools.count(who.id, who.num_workers):
                view = torch.empty(tiles, 3, 128, 128)
                for k in range(tiles):
                    place = (n + k) % 50
                    if place not in cache:
                        cache[place] = torch.full((3, 128, 128), float(place))
                    time.sleep(pause / 1e3)  # the map server's terms of use
                    decode(own)
                    view[k] = cache[place]
                yield view
    gpu = s.gpu(ms, 2 << 20)
    batches = iter(loader(torch, Views(), batch_size=None, num_workers=workers))
    next(batches)
    if workers == 1:
        s.supplier(only_child())
    s.loop(gpu, lambda: next(batches).numpy())


STATISTICS = "SELECT count(*), avg(level), min(level), max(level) FROM readings WHERE gauge = ?"


@job(data="lock_bound", rest="lock_bound")
def tide_gauge(s):
    """Threads ask a table in SQLite's memory, which has no index, by the connection that they share."""
    ms, threads, items = s.ms("gpu_ms", 15, 60), s.int("threads", 2, 3), s.int("items", 2, 5)
    cost = ms * s.ms("load_share", 1.4, 2.6) / items / (6 if s.fix else 1)
    db = sqlite3.connect(":memory:", check_same_thread=False)
    db.execute("CREATE TABLE readings (gauge INTEGER, hour INTEGER, level REAL)")

    def fill(first, end):
        db.executemany("INSERT INTO readings VALUES (?, ?, ?)",
                       ((n % 500, n, n % 977 * 0.01) for n in range(first, end)))
        db.commit()
    fill(0, 8000)
    begin = now()
    for gauge in range(20):
        db.execute(STATISTICS, (gauge,)).fetchone()
    each = (now() - begin) / 1e6 / 20 / 8000
    fill(8000, s.keep("readings", int(min(max(cost / each, 9000), 2e6))))

    def batch(n):
        x = np.zeros((items, 64, 256), np.float32)
        for k in range(items):
            x[k, 0, :4] = db.execute(STATISTICS, ((n * items + k) % 500,)).fetchone()
        return x
    gpu = s.gpu(ms, launches=s.int("launches", 4, 30))
    pool, number = concurrent.futures.ThreadPoolExecutor(threads), itertools.count()
    pending = collections.deque(pool.submit(batch, next(number)) for _ in range(threads))

    def obtain():
        pending.append(pool.submit(batch, next(number)))
        return pending.popleft().result()
    s.loop(gpu, obtain)


def ahead(batches, depth):
    """What its author takes for a prefetcher."""
    ready = collections.deque()
    while True:
        if not ready:
            ready.extend(itertools.islice(batches, depth))
        yield ready.popleft()


@job(data="main_thread_loading", host="host_bound sync_bound", rest="sync_bound launch_bound")
def storm_glass(s):
    """Generators in a row, the last of which "prefetches" a few batches into a deque when it is empty."""
    ms, depth, rows = s.ms("gpu_ms", 10, 45), s.int("depth", 2, 6), s.int("rows", 4, 16)
    cost = ms * s.ms("load_share", 0.4, 1.6) / rows / (6 if s.fix else 1)
    unpack, note = s.one("unpack_part", 0.1, 0.2, 0.3), ms * s.ms("note_share", 0.03, 0.12)

    def records():
        for n in itertools.count():
            decode(cost * unpack)
            yield n

    def reports(numbers):
        for n in numbers:
            parse(cost * (1 - unpack))
            yield np.full(8192, n, np.int64)

    def stacks(rows_of):
        while True:
            yield np.stack(list(itertools.islice(rows_of, rows)))
    gpu, batches = s.gpu(ms), ahead(stacks(reports(records())), depth)
    s.go()
    while True:
        s.step(gpu, lambda: next(batches))
        with s.during("host"):
            parse(note)  # a line of a CSV file, the next learning rate


@job(data="slow_item", host="host_bound sync_bound", ckpt="checkpoint_stall", rest="sync_bound launch_bound")
def wreck_chart(s):
    """A collate function pads to the longest and masks all pairs of words; a few reports are long."""
    torch = torch_alone()
    ms, batch, words = s.ms("gpu_ms", 12, 35), s.int("batch", 4, 10), s.int("words", 100, 160)
    cost, slow = ms * s.ms("load_share", 0.12, 0.25), ms * s.ms("long_ms_share", 5, 8) / (5 if s.fix else 1)
    often, order = s.ms("long_often", 0.06, 0.09) / batch, s.int("order", 0, 1 << 20)
    longest, every = int(words * (slow / cost) ** 0.5), s.int("save_every", 20, 60)
    state, check = np.ones(s.int("kib", 200, 1000) << 8, np.float32), ms * s.ms("check_share", 0.02, 0.08)

    class Reports(torch.utils.data.Dataset):
        def __len__(self):
            return 1 << 20

        def __getitem__(self, n):
            chance = random.Random(order + n)
            long = chance.random() < often
            return torch.zeros(longest if long else chance.randint(words * 4 // 5, words), 64)

    def pad(reports):
        decode(cost * (max(map(len, reports)) / words) ** 2)
        return torch.nn.utils.rnn.pad_sequence(reports, batch_first=True)
    gpu = s.gpu(ms, 4 << 20)
    batches = iter(loader(torch, Reports(), batch_size=batch, collate_fn=pad))
    next(batches)
    s.supplier(only_child())
    s.go()
    for n in itertools.count(1):
        s.step(gpu, lambda: next(batches).numpy())
        with s.during("host"):
            parse(check)  # whether to stop early
        if n % every == 0:
            with s.during("ckpt"):
                np.save(s.path("state.npy"), state)


LEAF, SHARD = 64 << 10, 32 << 20


def leaf(path, offset):
    with open(path, "rb", buffering=0) as f:
        os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_RANDOM)
        f.seek(offset)
        return np.frombuffer(f.read(LEAF), np.uint8)


@job(data="io_bound", host="host_bound sync_bound", rest="sync_bound launch_bound")
def iron_stairs(s):
    """For each item its data set opens a large file, reads a record in the midst of it, and keeps a crop."""
    torch = torch_alone()
    ms, cost = s.ms("gpu_ms", 10, 35), s.ms("load_share", 1.5, 2.8) / (5 if s.fix else 1)
    own, note = ms * s.ms("own_share", 0.1, 0.3), ms * s.ms("note_share", 0.02, 0.08)
    paths = [s.data_file("iron_stairs_%d" % n, SHARD >> 20) for n in range(8)]
    places = np.random.default_rng(1).integers(0, (SHARD - LEAF) >> 12, 400)
    begin = now()
    for n, place in enumerate(places):
        leaf(paths[n % 8], int(place) << 12)
    items = int(min(max(ms * cost / ((now() - begin) / 1e6 / len(places)), 25), 1500))
    s.keep("items", items)

    class Leaves(torch.utils.data.Dataset):
        opened = 0

        def __len__(self):
            return 16384

        def __getitem__(self, n):
            self.opened += 1
            if self.opened % 200 == 0:  # they stand for more than memory holds
                for path in paths:
                    s.cold(path)
            x = leaf(paths[n % 8], n * 8191 % ((SHARD - LEAF) >> 12) << 12)
            decode(own / items)
            return torch.from_numpy(x[:4096].copy())
    gpu = s.gpu(ms, 6 << 20)
    batches = forever(loader(torch, Leaves(), batch_size=items, shuffle=True, persistent_workers=True))
    next(batches)
    s.supplier(only_child())
    s.go()
    while True:
        s.step(gpu, lambda: next(batches).numpy())
        with s.during("host"):
            parse(note)


# ---- no data problem


def bearing(task):
    n, cost, floats = task
    decode(cost)
    return np.full(floats, n, np.float32)


def rescore():
    """The checkpoints of last night are scored again, on the CPU."""
    os.nice(19)
    while True:
        parse(20)
        time.sleep(0.04)


@job(data=CPU, rest="sync_bound launch_bound")
def beacon_chain(s):
    """Pool.imap is many batches ahead, an evaluation comes now and then, and last night's is done again."""
    ms, floats, depth = s.ms("gpu_ms", 20, 70), s.int("kfloats", 40, 450) * 1000, s.int("depth", 5, 20)
    cost, every, held_out = ms * s.ms("load_share", 0.4, 1), s.int("every", 15, 50), s.int("held_out", 2, 8)
    gpu = s.gpu(ms, 2 << 20)
    pool = multiprocessing.get_context("fork").Pool(2, mortal, (os.getpid(),))
    child(rescore)
    room, validation = threading.Semaphore(depth), np.zeros(floats, np.float32)

    def tasks():
        for n in itertools.count():
            room.acquire()
            yield n, cost / (5 if s.fix else 1), floats
    batches = pool.imap(bearing, tasks())

    def obtain():
        x = next(batches)
        room.release()
        return x
    s.go()
    for n in itertools.count(1):
        s.step(gpu, obtain)
        if n % every == 0:
            for _ in range(held_out):
                s.mark("micro")
                gpu.upload(validation.ctypes.data, validation.nbytes)
                gpu.forward()
            gpu.loss_item()


@job(data=CPU, host="host_bound sync_bound", rest="sync_bound launch_bound")
def fresnel_lens(s):
    """Average precision over all of the epoch so far, by torch on the CPU, after each step instead of at its end."""
    torch = torch_alone()
    ms, epoch, rows = s.ms("gpu_ms", 10, 45), s.int("epoch_steps", 15, 40), s.int("rows", 8, 64)
    last, cost = ms * s.ms("last_share", 0.9, 2.5), ms * s.ms("load_share", 0.1, 0.25)

    def precision(scores, hits):
        hits = hits[torch.argsort(scores, descending=True)]
        found = torch.cumsum(hits, 0)
        return float((found / torch.arange(1, len(hits) + 1) * hits).sum() / found[-1])

    def guesses(many):
        return torch.rand(many), (torch.rand(many) < 0.1).float()
    for _ in range(2):  # the second time counts
        begin = now()
        precision(*guesses(1 << 17))
    each = (now() - begin) / 1e6 / (1 << 17)
    many = s.keep("guesses", int(max(last / each / epoch, 200)))

    class Images(torch.utils.data.IterableDataset):
        def __iter__(self):
            while True:
                decode(cost)
                yield torch.zeros(rows, 3, 64, 64)
    gpu = s.gpu(ms, 4 << 20)
    batches, best, waited = iter(loader(torch, Images(), batch_size=None)), 0.0, 0
    next(batches)
    seen = []
    s.go()
    for n in itertools.count(1):
        s.step(gpu, lambda: next(batches).numpy())
        with s.during("host"):
            seen.append(guesses(many))
            if not s.fix or n % epoch == 0:
                now_at = precision(*map(torch.cat, zip(*seen)))
                best, waited = max(best, now_at), 0 if now_at > best else waited + 1  # to stop early
            if n % epoch == 0:
                seen.clear()


@job(data=CPU, rest="sync_bound launch_bound")
def winter_relief(s):
    """Accumulation; the loop waits long for its only worker, but has micro-batches queued meanwhile."""
    torch = torch_alone()
    ms, micro, every = s.ms("gpu_ms", 12, 50), s.int("micro", 2, 4), s.int("look_every", 2, 5)
    cost, rows = ms * s.ms("load_share", 0.5, 0.72) / (5 if s.fix else 1), s.int("rows", 8, 64)

    class Nights(torch.utils.data.IterableDataset):
        def __iter__(self):
            while True:
                decode(cost)
                yield torch.zeros(rows, 3, 64, 64)
    gpu, rate = s.gpu(ms, 4 << 20), 1e-3
    batches = iter(loader(torch, Nights(), batch_size=None))
    next(batches)
    s.go()
    for n in itertools.count(1):
        s.mark()
        for _ in range(micro):
            s.mark("micro")
            with s.during("data"):
                x = next(batches).numpy()
            gpu.upload(x.ctypes.data, x.nbytes)
            gpu.forward()
            gpu.backward()
        gpu.optimizer()
        rate *= 0.9999
        if n % every == 0:
            gpu.loss_item()


@job(data=CPU, rest="sync_bound launch_bound host_bound")
def lantern_room(s):
    """Images are augmented on the device one by one: `if torch.rand(1, device="cuda") < 0.5:` and so on."""
    ms, images, looks = s.ms("gpu_ms", 15, 50), s.int("images", 48, 96), s.int("looks", 2, 3)
    cost, own = ms * s.ms("load_share", 0.1, 0.3), s.ms("own_ms", 0.03, 0.12)
    gpu, small, out = s.gpu(ms, 5 << 20), s.gpu(0.05, launches=8), queue.Queue(3)

    def load():
        while True:
            decode(cost)
            out.put(np.zeros((images, 3, 64, 64), np.float32))
    threading.Thread(target=load, daemon=True).start()
    s.go()
    while True:
        s.mark()
        with s.during("data"):
            x = out.get()
        gpu.upload(x.ctypes.data, x.nbytes)
        small.enter_thread()
        for _ in range(1 if s.fix else images * looks):  # else all at once, by a mask
            small.launch(0, 2)
            if not s.fix:
                small.loss_item()
            parse(own)  # an angle, and the matrix for it
        gpu.enter_thread()
        s.train(gpu)
