"""Jobs whose loops do something between the batches, fed by loaders of their own making."""
import itertools
import multiprocessing
import os
import queue
import random
import socket
import struct
import threading
import time
import zlib

import numpy as np

from stranger import BLOB, CPU, child, decode, job, mortal, parse


def supply(out, cost):
    while True:
        decode(cost)
        out.put(np.zeros(50000, np.float32))


def supplied(cost, workers=1):
    """Processes that decode, and a queue. Returns get and the pids."""
    out = multiprocessing.Queue(maxsize=4)
    return out.get, [child(supply, out, cost).pid for _ in range(workers)]


def thread(f, *more):
    threading.Thread(target=f, args=more, daemon=True).start()


# ---- the data


def push(port, cost, group, size):
    link = socket.create_connection(("127.0.0.1", port))
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    while True:
        for _ in range(group):
            decode(cost)
            link.sendall(bytes(size))
        link.recv(1)


@job(data=CPU, rest="sync_bound launch_bound")
def pack_mules(s):
    """Accumulation; a process connects to the loop, pushes a group of batches and awaits a word."""
    ms, group, size = s.ms("gpu_ms", 8, 30), s.int("group", 2, 6), s.int("kib", 50, 500) << 10
    gpu, cost = s.gpu(ms), ms * s.ms("load_share", 1.4, 2.5)
    door, batch = socket.create_server(("127.0.0.1", 0)), np.zeros(size, np.uint8)
    s.supplier(child(push, door.getsockname()[1], cost / 5 if s.fix else cost, group, size).pid)
    link = door.accept()[0]
    s.go()
    while True:
        s.mark()
        for n in range(group):
            s.mark("micro")
            with s.during("data"):
                link.recv_into(batch, size, socket.MSG_WAITALL)
            if n == group - 1:
                link.sendall(b"+")
            gpu.upload(batch.ctypes.data, size)
            gpu.forward()
            gpu.backward()
        gpu.optimizer()
        gpu.loss_item()


def spring(s):
    """A feature service on another host, whose answer to each key comes late."""
    late, spread = float(s.told("late")) / 1e3, s.ms("sigma", 0.05, 0.4)
    door = socket.create_server(("127.0.0.1", 0))
    s.tell("port", door.getsockname()[1])

    def serve(link, n):
        chance = random.Random(n)
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while link.recv(4):
            time.sleep(late * chance.lognormvariate(0, spread))
            link.sendall(bytes(4096))
    for n in itertools.count():
        thread(serve, door.accept()[0], n)


@job(outside=spring, data="network_bound too_few_workers slow_item", rest="sync_bound launch_bound")
def spring_water(s):
    """A thread keeps features in a cache, which goes stale as a whole; then each key is asked for again."""
    ms, rows, fresh = s.ms("gpu_ms", 8, 24), s.int("rows", 8, 16), s.int("fresh_batches", 20, 40)
    gpu, keys = s.gpu(ms), rows * s.int("keys_by_rows", 5, 9)
    late = ms * s.ms("late_share", 4, 8) / rows
    s.tell("late", late / 10 if s.fix else late)
    stream = socket.create_connection(("127.0.0.1", int(s.told("port")))).makefile("rwb")
    out = queue.Queue(maxsize=2)

    def ask(key):
        stream.write(struct.pack("<I", key))
        stream.flush()
        return np.frombuffer(stream.read(4096), np.float32)

    def gather():
        cache, chance = {}, random.Random(1)
        for n in itertools.count():
            if n % fresh == 0:
                cache.clear()
            drawn = chance.choices(range(keys), k=rows)
            for key in drawn:
                if key not in cache:
                    cache[key] = ask(key)
            out.put(np.stack([cache[key] for key in drawn]))
    thread(gather)
    s.loop(gpu, out.get)


@job(data="slow_worker cpu_bound", rest="sync_bound launch_bound")
def rope_team(s):
    """Each camera has a thread that decodes its view; they meet at a barrier, one has a panorama."""
    ms, team = s.ms("gpu_ms", 10, 50), s.int("cameras", 2, 3)
    gpu, heavy = s.gpu(ms), ms * s.ms("panorama_share", 1.5, 2.6) / (5 if s.fix else 1)
    light = heavy * s.ms("other_share", 0.35, 0.5) / (team - 1)
    views, out, wide = [None] * team, queue.Queue(maxsize=2), s.random.randrange(team)
    barrier = threading.Barrier(team, action=lambda: out.put(np.concatenate(views)))

    def camera(n):
        while True:
            decode(heavy if n == wide else light)
            views[n] = np.zeros(20000, np.float32)
            barrier.wait()
    for n in range(team):
        thread(camera, n)
    s.loop(gpu, out.get)


@job(data="main_thread_loading", rest="sync_bound")
def walking_stick(s):
    """Generators in a row: a thread runs ahead at the source, but the loop warps behind it."""
    ms, depth = s.ms("gpu_ms", 10, 60), s.int("depth", 2, 8)
    gpu, read_ms = s.gpu(ms), ms * s.ms("read_share", 0.05, 0.3)
    warp_ms = ms * s.ms("warp_share", 0.5, 1.6) / (20 if s.fix else 1)
    flow = np.random.default_rng(1).integers(0, 60000, 60000)

    def read():
        while True:
            decode(read_ms)
            yield np.zeros(60000, np.float32)

    def ahead(source):
        out = queue.Queue(maxsize=depth)

        def run():
            for x in source:
                out.put(x)
        thread(run)
        while True:
            yield out.get()

    def warped(source):
        for x in source:
            end = time.thread_time_ns() + int(warp_ms * 1e6)
            while time.thread_time_ns() < end:
                x = np.take(x, flow)
            yield x
    batches = warped(ahead(read()))
    s.go()
    while True:
        s.mark()
        with s.during("data"):
            x = next(batches)
        gpu.upload(x.ctypes.data, x.nbytes)
        gpu.forward()
        gpu.backward()
        gpu.loss_item()  # the gradient's norm, to clip by
        gpu.optimizer()


def teach(out, cost):
    while True:
        decode(cost)  # the teacher's forward, on the CPU
        out.put(np.zeros((64, 1000), np.float32))


@job(data=CPU, rest="sync_bound launch_bound")
def second_guide(s):
    """Distillation: images lie ready; a process brings their soft labels later than the forward."""
    ms = s.ms("student_ms", 10, 60)
    gpu, cost = s.gpu(ms), ms * s.ms("teacher_share", 1.4, 2.8)
    images, _ = supplied(ms * s.ms("image_share", 0.05, 0.3))
    labels = multiprocessing.Queue(maxsize=2)
    s.supplier(child(teach, labels, cost / 5 if s.fix else cost).pid)
    s.go()
    while True:
        s.mark()
        with s.during("data"):
            x = images()
        gpu.upload(x.ctypes.data, x.nbytes)
        gpu.forward()
        with s.during("data"):
            y = labels.get()
        gpu.upload(y.ctypes.data, y.nbytes)
        gpu.backward()
        gpu.optimizer()
        gpu.loss_item()


@job(data="too_few_workers", rest="sync_bound launch_bound")
def noon_bell(s):
    """A thread fills a shelf with batches at fixed times, and the loop empties it long before."""
    ms, shelf = s.ms("gpu_ms", 8, 30), s.int("shelf", 2, 6)
    gpu, make_ms = s.gpu(ms), ms * s.ms("make_share", 0.02, 0.1)
    period = ms * shelf * s.ms("period_share", 1.5, 2.6) / (5 if s.fix else 1)
    out, stop = queue.Queue(), threading.Event()

    def refill():
        while not stop.wait(period / 1e3):
            for _ in range(shelf - out.qsize()):
                decode(make_ms)
                out.put(np.zeros(50000, np.float32))
    thread(refill)
    s.loop(gpu, out.get)


def carry(slot, free, full, cost):
    batch = np.frombuffer(slot, np.float32)
    while True:
        free.acquire()
        decode(cost)
        batch[:] = 1
        full.release()


@job(data=CPU, rest="sync_bound launch_bound")
def foot_bridge(s):
    """One slot of shared memory, which a process may fill again when the step's loss has been read."""
    ms, every = s.ms("gpu_ms", 10, 60), s.int("evaluate_every", 8, 20)
    gpu, cost = s.gpu(ms), ms * s.ms("load_share", 0.6, 2)
    slot = multiprocessing.RawArray("f", s.int("kib", 50, 1000) << 8)
    free, full = multiprocessing.Semaphore(1), multiprocessing.Semaphore(0)
    s.supplier(child(carry, slot, free, full, cost / 5 if s.fix else cost).pid)
    batch = np.frombuffer(slot, np.float32)
    s.go()
    for n in itertools.count(1):
        s.mark()
        with s.during("data"):
            full.acquire()
        gpu.upload(batch.ctypes.data, batch.nbytes)
        if s.fix:
            free.release()
        s.train(gpu)
        if not s.fix:
            free.release()
        if n % every == 0:  # the held-out set lies on the device
            for _ in range(3):
                gpu.forward()
            gpu.loss_item()


@job(data="lock_bound", threads=True, rest="lock_bound")
def camp_radio(s):
    """A thread inflates record after record; another reckons error bars in Python all the time."""
    ms = s.ms("graph_ms", 8, 25)
    gpu, out = s.gpu(ms, launches=1), queue.Queue(maxsize=3)
    records = s.keep("records", round((ms + 20) * s.ms("records_share", 1.5, 2.5) / 5))

    def inflate():
        while True:
            rows = [zlib.decompress(BLOB) for _ in range(records)]
            out.put(np.frombuffer(rows[0], np.uint8))

    def bootstrap():
        while True:
            parse(20)
    thread(inflate)
    if not s.fix:
        thread(bootstrap)
    s.loop(gpu, out.get)


def choose(told, out, select, each, steps):
    while True:
        told.recv()
        parse(select)  # all samples are ranked by loss, the easy ones left out
        for _ in range(steps):
            decode(each)
            out.put(np.zeros(50000, np.float32))


@job(data=CPU + " slow_item slow_first_batch", rest="sync_bound launch_bound")
def summer_pasture(s):
    """Short epochs of hard samples; a process chooses them when it has the last epoch's losses."""
    ms, steps = s.ms("gpu_ms", 8, 25), s.int("steps", 6, 12)
    gpu, each = s.gpu(ms), ms * s.ms("load_share", 0.1, 0.4)
    select = ms * steps * s.ms("select_share", 0.4, 0.7)
    told, losses = multiprocessing.Pipe(duplex=False)
    out = multiprocessing.Queue(maxsize=4)
    s.supplier(child(choose, told, out, select / 20 if s.fix else select, each, steps).pid)
    s.go()
    seen = []
    while True:
        losses.send(seen)
        seen = []
        for _ in range(steps):
            s.step(gpu, out.get)
            seen.append(gpu.loss.value)


def sight(cost):
    decode(cost)
    return np.zeros(8000, np.float32)


@job(data=CPU + " main_thread_loading", rest="sync_bound launch_bound")
def trail_crew(s):
    """For each batch the loop calls Pool.map() on its items, and waits until all have come back."""
    ms, items = s.ms("gpu_ms", 10, 60), s.int("items", 4, 12)
    gpu = s.gpu(ms)
    cost = 2 * ms * s.ms("load_share", 0.5, 1.6) / items / (10 if s.fix else 1)
    pool = multiprocessing.Pool(2, mortal, (os.getpid(),))

    def batch():
        costs = [cost * s.random.uniform(0.7, 1.3) for _ in range(items)]
        return np.stack(pool.map(sight, costs, chunksize=1))
    s.loop(gpu, batch)


# ---- not the data


@job(data=CPU, host="host_bound sync_bound", rest="sync_bound")
def contour_lines(s):
    """L-BFGS: a batch is evaluated again and again; a line search in Python says where."""
    ms, most = s.ms("closure_ms", 4, 15), s.int("closures", 3, 6)
    gpu, search = s.gpu(ms), ms * s.ms("search_share", 0.4, 1.2) / (10 if s.fix else 1)
    batch, _ = supplied((ms + search) * (2 + most) / 2 * s.ms("load_share", 0.3, 0.6))
    s.go()
    while True:
        s.mark()
        with s.during("data"):
            x = batch()
        gpu.upload(x.ctypes.data, x.nbytes)
        for _ in range(s.random.randint(2, most)):
            s.mark("micro")
            gpu.forward()
            gpu.backward()
            gpu.loss_item()
            with s.during("host"):
                parse(search)
            gpu.optimizer()


@job(data=CPU, host="host_bound sync_bound", rest="sync_bound")
def boot_laces(s):
    """Batches add up until the gradients are no longer noisy, as Python estimates after each."""
    ms, most = s.ms("gpu_ms", 6, 40), s.int("most", 3, 8)
    gpu, noise = s.gpu(ms), ms * s.ms("noise_share", 0.35, 1.2) / (10 if s.fix else 1)
    batch, _ = supplied((ms + noise) * s.ms("load_share", 0.4, 0.9), workers=2)
    s.go()
    while True:
        s.mark()
        for n in itertools.count(1):
            s.mark("micro")
            with s.during("data"):
                x = batch()
            gpu.upload(x.ctypes.data, x.nbytes)
            gpu.forward()
            gpu.backward()
            gpu.loss_item()  # norms of the gradient so far
            with s.during("host"):
                parse(noise)
            if n == most or s.random.random() < 0.3:
                break
        gpu.optimizer()


@job(lock="lock_bound", rest="sync_bound")
def trail_map(s):
    """Priorities are set between forward and backward, under the lock of a thread that is ahead."""
    ms, many = s.ms("gpu_ms", 12, 60), s.int("samples", 10000, 200000)
    gpu, cost = s.gpu(ms), ms * s.ms("make_share", 0.8, 2) / (5 if s.fix else 1)
    lock, out, priorities = threading.Lock(), queue.Queue(maxsize=3), np.ones(many, np.float32)

    def make():
        chance = np.random.default_rng(1)
        while True:
            with lock:
                rows = chance.integers(0, many, 256)
                if not s.fix:
                    decode(cost)
            if s.fix:
                decode(cost)
            out.put((rows, np.zeros((256, 200), np.float32)))
    thread(make)
    s.go()
    while True:
        s.mark()
        with s.during("data"):
            rows, x = out.get()
        gpu.upload(x.ctypes.data, x.nbytes)
        gpu.forward()
        gpu.loss_item()  # the samples' losses
        with s.during("lock"):
            with lock:
                weights = 1 / priorities[rows]
                priorities[rows] = 1 + gpu.loss.value
        gpu.upload(weights.ctypes.data, weights.nbytes)
        gpu.backward()
        gpu.optimizer()
        gpu.loss_item()  # for the log


def half(out, barrier, cost, seed):
    chance = random.Random(seed)
    while True:
        decode(cost * chance.uniform(0.7, 1.2))
        barrier.wait()
        out.put(np.zeros(25000, np.float32))


def plot(losses, cost):
    while True:
        losses.recv()
        parse(cost)


@job(data=CPU + " slow_worker", rest="sync_bound launch_bound")
def ridge_walk(s):
    """Two makers of half batches meet at a barrier, one always late and yet in time; a third plots."""
    ms, every = s.ms("gpu_ms", 20, 90), s.int("item_every", 2, 6)
    gpu = s.gpu(ms)
    barrier = multiprocessing.Barrier(2)
    shares = [s.ms("light_share", 0.1, 0.25), s.ms("late_share", 0.5, 0.75)]
    halves = [multiprocessing.Queue(maxsize=4) for _ in shares]
    told, losses = multiprocessing.Pipe(duplex=False)
    for n, share in enumerate(shares):
        child(half, halves[n], barrier, ms * share, n)
    child(plot, told, ms * s.ms("plot_share", 0.05, 0.3))
    s.go()
    for n in itertools.count(1):
        s.mark()
        with s.during("data"):
            x = np.concatenate([out.get() for out in halves])
        s.train(gpu, x, item=n % every == 0)
        losses.send((n, gpu.loss.value))
