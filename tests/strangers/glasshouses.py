# SPDX-License-Identifier: BSD-2-Clause
"""Jobs of laboratories and small companies, in which the way that the loop is written decides."""
import asyncio
import collections
import itertools
import multiprocessing
import multiprocessing.managers
import os
import queue
import random
import socket
import struct
import threading
import time

import numpy as np

from stranger import CPU, child, decode, job, mortal, parse


def made(cost, workers=1, ahead=4, rows=64, columns=800):
    """Processes that decode, and a queue. Returns it and the pids."""
    out = multiprocessing.Queue(ahead)

    def make():
        while True:
            decode(cost)
            out.put(np.zeros((rows, columns), np.float32))
    return out, [child(make).pid for _ in range(workers)]


def thread(f, *more):
    t = threading.Thread(target=f, args=more, daemon=True)
    t.start()
    return t


# ---- the data


@job(data=CPU, rest="sync_bound launch_bound")
def warm_benches(s):
    """Data echoing: each batch of a process is used several times, shuffled anew, but that is not enough."""
    ms, echoes = s.ms("gpu_ms", 6, 25), s.int("echoes", 2, 4)
    cost = ms * echoes * s.ms("load_share", 1.35, 2.5)
    gpu, (out, pids) = s.gpu(ms), made(cost / 5 if s.fix else cost, ahead=2)
    s.supplier(pids[0])
    chance = np.random.default_rng(1)
    s.go()
    for n in itertools.count():
        s.mark()
        with s.during("data"):
            x = out.get() if n % echoes == 0 else x[chance.permutation(len(x))]
        s.train(gpu, x)


def open_drawer(order):
    cost, side = order
    decode(cost)
    return np.zeros((side, side, 3), np.uint8)


@job(data=CPU, rest="sync_bound launch_bound")
def seed_drawers(s):
    """Pictures of mixed sizes by Pool.imap in chunks; a semaphore in the generator holds it back."""
    ms, chunk = s.ms("gpu_ms", 6, 25), s.int("chunk", 2, 6)
    cost, spread = ms * s.ms("load_share", 1.35, 2.5), s.ms("spread", 0.05, 0.4)
    gpu = s.gpu(ms)
    if s.fix:
        cost /= 5
    room = threading.Semaphore(2 * chunk)  # else imap would go through all orders at once

    def orders():
        while True:
            room.acquire()
            size = s.random.uniform(1 - spread, 1 + spread)
            yield cost * size, int(160 * size)
    pool = multiprocessing.Pool(1, mortal, (os.getpid(),))
    s.supplier(multiprocessing.active_children()[0].pid)
    pictures = pool.imap(open_drawer, orders(), chunk)

    def obtain():
        x = next(pictures)
        room.release()
        return x
    s.loop(gpu, obtain)


@job(data=CPU, threads=True, rest="sync_bound launch_bound")
def forcing_pots(s):
    """Multi-scale training: for each batch a thread is started one step ahead, and joined; scales change."""
    ms, every = s.ms("gpu_ms", 8, 45), s.int("every", 5, 25)
    cost = ms * s.ms("load_share", 1.5, 2.6) / (5 if s.fix else 1)
    scales = [1, s.ms("smaller", 0.75, 0.95), s.ms("larger", 1.05, 1.4)]
    gpu, pot = s.gpu(ms), []

    def make(scale):
        decode(cost * scale)
        pot.append(np.zeros(int(60000 * scale), np.float32))
    s.go()
    maker = thread(make, 1)
    for n in itertools.count(1):
        s.mark()
        with s.during("data"):
            maker.join()
            x = pot.pop()
        maker = thread(make, scales[n // every % 3])
        s.train(gpu, x)


def cistern(s):
    """A store of samples in another building; one answer each."""
    late, size, spread = float(s.told("late")), int(s.told("size")), s.ms("sigma", 0.05, 0.3)
    door = socket.create_server(("127.0.0.1", 0))
    s.tell("port", door.getsockname()[1])
    link, chance = door.accept()[0], random.Random(3)
    while link.recv(4):
        time.sleep(late / 1e3 * chance.lognormvariate(0, spread))
        link.sendall(bytes(size))


@job(outside=cistern, data="network_bound too_few_workers", rest="sync_bound launch_bound")
def drip_lines(s):
    """An event loop in a thread makes the next batch, but its coroutine awaits sample after sample."""
    ms, samples, size = s.ms("gpu_ms", 10, 45), s.int("samples", 4, 14), s.int("kib", 2, 40) << 10
    late = ms * s.ms("late_share", 1.4, 3) / samples
    gpu = s.gpu(ms)
    s.tell("size", size)
    s.tell("late", late / 8 if s.fix else late)
    port, events = int(s.told("port")), asyncio.new_event_loop()
    thread(events.run_forever)

    def ask(coroutine):
        return asyncio.run_coroutine_threadsafe(coroutine, events)
    reader, writer = ask(asyncio.open_connection("127.0.0.1", port)).result()

    async def batch():
        parts = []
        for _ in range(samples):
            writer.write(struct.pack("<I", s.random.randrange(10**6)))
            parts.append(await reader.readexactly(size))
        return np.frombuffer(b"".join(parts), np.uint8)
    s.go()
    ahead = ask(batch())
    while True:
        s.mark()
        with s.during("data"):
            x = ahead.result()
        ahead = ask(batch())
        s.train(gpu, x)


class ThreadSafe:
    """As it is found on the web: lets threads share a generator."""

    def __init__(self, items):
        self.items, self.lock = items, threading.Lock()

    def __iter__(self):
        return self

    def __next__(self):
        with self.lock:
            return next(self.items)


@job(data="lock_bound", rest="sync_bound launch_bound")
def bee_boxes(s):
    """Threads share a generator, made safe as Keras users do it; it is the generator that decodes."""
    ms, threads = s.ms("gpu_ms", 8, 50), s.int("threads", 2, 4)
    cost, flip = ms * s.ms("load_share", 1.4, 2.8), ms * s.ms("flip_share", 0.03, 0.2)
    gpu, out = s.gpu(ms), queue.Queue(4)

    def frames():
        while True:
            decode(cost / 5 if s.fix else cost)
            yield np.zeros((64, 800), np.float32)

    def run(items):
        for x in items:
            decode(flip)
            out.put(x[:, ::-1].copy())
    shared = ThreadSafe(frames())
    for _ in range(threads):
        thread(run, shared)
    s.loop(gpu, out.get)


@job(data="lock_bound", rest="sync_bound launch_bound")
def frost_lids(s):
    """A prefetch thread keeps up, but unpacks a whole shard inside of `with condition:`, batches or not."""
    ms, shard = s.ms("gpu_ms", 8, 30), s.int("shard", 5, 10)
    cost = ms * s.ms("load_share", 0.5, 0.8)
    gpu, ready, lid = s.gpu(ms), collections.deque(), threading.Condition()

    def unpack():
        decode(cost)
        return np.zeros((64, 800), np.float32)

    def prefetch():
        while True:
            if s.fix:
                with lid:
                    lid.wait_for(lambda: len(ready) <= shard)
                more = [unpack() for _ in range(shard)]
                with lid:
                    ready.extend(more)
                    lid.notify_all()
                continue
            with lid:
                lid.wait_for(lambda: len(ready) <= shard)
                ready.extend(unpack() for _ in range(shard))
                lid.notify_all()

    def obtain():
        with lid:
            lid.wait_for(lambda: ready)
            x = ready.popleft()
            lid.notify_all()
        return x
    thread(prefetch)
    s.loop(gpu, obtain)


@job(data="main_thread_loading", rest="sync_bound launch_bound")
def palm_court(s):
    """A replay buffer is one array: for each new episode of an actor the loop concatenates it anew."""
    ms, rows = s.ms("gpu_ms", 8, 35), s.int("mib", 32, 128) << 8  # a row has 4 KiB
    gpu, new, at = s.gpu(ms), s.int("new", 8, 64), 0
    out, _ = made(ms * s.ms("actor_share", 0.05, 0.3), rows=new, columns=1024)
    replay, chance = np.ones((rows, 1024), np.float32), np.random.default_rng(1)
    s.go()
    while True:
        s.mark()
        with s.during("data"):
            if s.fix:
                at = at + new if at + 2 * new <= rows else 0
                replay[at:at + new] = out.get()
            else:
                replay = np.concatenate([replay[new:], out.get()])
            x = replay[chance.integers(0, rows, 64)]
        s.train(gpu, x)


# More workers could share a batch, cheaper decoding helps as much; ahead of the loss nobody can be.
@job(data="cpu_bound too_few_workers", rest="sync_bound launch_bound")
def pollen_brush(s):
    """Hard examples are mined online: a process gets the losses of each step, chooses, and decodes."""
    ms = s.ms("gpu_ms", 8, 60)
    cost, choose = ms * s.ms("load_share", 0.35, 1.5), s.ms("choose_ms", 0.2, 2)
    gpu, losses = s.gpu(ms), np.zeros(256, np.float32)
    mine, theirs = multiprocessing.Pipe()

    def mine_hard():
        while True:
            hard = np.argsort(theirs.recv())[-64:]
            parse(choose)
            decode(cost / 5 if s.fix else cost)
            theirs.send(np.zeros((len(hard), 800), np.float32))
    s.supplier(child(mine_hard).pid)
    s.go()
    while True:
        s.mark()
        with s.during("data"):
            mine.send(losses)
            x = mine.recv()
        s.train(gpu, x)
        losses[s.random.randrange(256)] = gpu.loss.value


# ---- it looks like the data


@job(data=CPU, host="host_bound sync_bound", rest="sync_bound launch_bound")
def label_stakes(s):
    """For a notebook that shows them the loop puts its figures in a Manager's dict, key by key."""
    ms, keys = s.ms("gpu_ms", 8, 40), ["layer%d/norm" % n for n in range(s.int("keys", 80, 500))]
    gpu, pause = s.gpu(ms), s.ms("pause_ms", 100, 600) / 1e3
    out, _ = made(ms * s.ms("load_share", 0.1, 0.4))
    manager = multiprocessing.managers.SyncManager(s.path("board"))
    manager.start(mortal, (os.getpid(),))
    board = manager.dict()

    def notebook():
        while True:
            board.copy()
            time.sleep(pause)
    child(notebook)
    s.go()
    while True:
        s.step(gpu, out.get)
        with s.during("host"):
            if s.fix:
                board.update(dict.fromkeys(keys, gpu.loss.value))
                continue
            for key in keys:
                board[key] = gpu.loss.value


@job(data=CPU, host="host_bound", rest="sync_bound launch_bound")
def open_vents(s):
    """A generator runs ahead in a thread; the loop still sleeps before each step, to let it catch up."""
    ms = s.ms("gpu_ms", 8, 60)
    gpu, pause = s.gpu(ms), ms * s.ms("pause_share", 0.2, 1) / 1e3
    cost, out = ms * s.ms("load_share", 0.2, 0.7), queue.Queue(s.int("ahead", 2, 6))

    def batches():
        while True:
            decode(cost)
            yield np.zeros((64, 800), np.float32)

    def prefetch():
        for x in batches():
            out.put(x)
    thread(prefetch)
    s.go()
    while True:
        s.step(gpu, out.get)
        if not s.fix:
            with s.during("host"):
                time.sleep(pause)


@job(data=CPU, host="host_bound sync_bound", rest="sync_bound launch_bound")
def dial_round(s):
    """Something leaked once: after each step the loop sums up its own smaps and those of its two loaders."""
    ms, table = s.ms("gpu_ms", 8, 40), s.ms("table_ms", 0.5, 8)
    gpu, every = s.gpu(ms), 20 if s.fix else 1
    out, pids = made(ms * s.ms("load_share", 0.2, 0.9), workers=2)
    seen = collections.deque(maxlen=100)

    def proportional(pid):
        with open("/proc/%d/smaps" % pid, encoding="utf-8", errors="replace") as f:
            return sum(int(line.split()[1]) for line in f if line.startswith("Pss:"))
    s.go()
    for n in itertools.count(1):
        s.step(gpu, out.get)
        if n % every == 0:
            with s.during("host"):
                seen.append([proportional(pid) for pid in (os.getpid(), *pids)])
                parse(table)


@job(data=CPU, host="sync_bound host_bound", rest="sync_bound launch_bound")
def companion_plants(s):
    """Tasks share a trunk: after each one's kernels its loss is read, and Python weighs the tasks anew."""
    tasks, few = s.int("tasks", 3, 8), s.int("task_launches", 4, 24)
    trunk_ms, task_ms = s.ms("trunk_ms", 3, 15), s.ms("task_ms", 1, 5)
    trunk = s.gpu(trunk_ms, launches=s.int("trunk_launches", 16, 80))
    head, weigh = s.gpu(task_ms, launches=few), s.ms("weigh_ms", 0.8, 4)
    out, _ = made((trunk_ms + tasks * task_ms) * s.ms("load_share", 0.2, 0.7))
    s.go()
    while True:
        s.mark()
        with s.during("data"):
            x = out.get()
        trunk.enter_thread()
        trunk.upload(x.ctypes.data, x.nbytes)
        trunk.forward()
        head.enter_thread()
        for _ in range(tasks):
            s.mark("micro")
            head.launch(1, few)
            if not s.fix:  # else they are weighed on the device
                head.loss_item()
                with s.during("host"):
                    parse(weigh)
        trunk.enter_thread()
        trunk.backward()
        trunk.optimizer()
        trunk.loss_item()


@job(rest="sync_bound launch_bound")
def evergreen_row(s):
    """A busy loader is slower than the device; where no new batch is there, the last one is shuffled."""
    ms = s.ms("gpu_ms", 12, 70)
    gpu, (out, _) = s.gpu(ms), made(ms * s.ms("load_share", 1.5, 5), ahead=2)
    chance, x = np.random.default_rng(1), out.get()
    s.go()
    while True:
        s.mark()
        with s.during("data"):
            try:
                x = out.get_nowait()
            except queue.Empty:
                x = x[chance.permutation(len(x))]
        s.train(gpu, x)


def quorum(s):
    """A coordinator, which asks around before it answers."""
    late, spread, chance = float(s.told("late")), s.ms("sigma", 0.05, 0.3), random.Random(2)
    door = socket.create_server(("127.0.0.1", 0))
    s.tell("port", door.getsockname()[1])
    link = door.accept()[0]
    while link.recv(64):
        time.sleep(late / 1e3 * chance.lognormvariate(0, spread))
        link.sendall(b"commit")


@job(outside=quorum, data=CPU, host="host_bound", rest="sync_bound launch_bound")
def frost_warden(s):
    """Micro-batches add up; before it may commit them the loop asks a coordinator who is still alive."""
    ms, many = s.ms("gpu_ms", 6, 22), s.int("micro_batches", 2, 5)
    late = ms * many * s.ms("late_share", 0.2, 0.8)
    gpu, (out, _) = s.gpu(ms), made(ms * s.ms("load_share", 0.3, 0.7))
    s.tell("late", late / 8 if s.fix else late)
    link = socket.create_connection(("127.0.0.1", int(s.told("port"))))
    s.go()
    for n in itertools.count():
        s.mark()
        for _ in range(many):
            s.mark("micro")
            with s.during("data"):
                x = out.get()
            gpu.upload(x.ctypes.data, x.nbytes)
            gpu.forward()
            gpu.backward()
        gpu.loss_item()
        with s.during("host"):
            link.sendall(struct.pack("<I", n))
            link.recv(64)
        gpu.optimizer()
