# SPDX-License-Identifier: BSD-2-Clause
"""At the watchmakers': loops whose steps are not alike, by turns, in bursts, by cycles, cold and then warm."""
import itertools
import multiprocessing
import multiprocessing.connection
import os
import queue
import random
import socket
import threading
import time

import numpy as np

from stranger import CPU, child, decode, job

PAGE, MIB = 4096, 1 << 20


def once(f):
    """Milliseconds that f takes."""
    begin = time.monotonic()
    f()
    return (time.monotonic() - begin) * 1e3


# ---- loaders that keep up


def put(out, cost):
    while True:
        decode(cost)
        out.put(np.zeros(20000, np.float32))


def queued(cost, depth=4):
    """A process and a queue. Returns get and the pid."""
    out = multiprocessing.Queue(maxsize=depth)
    return out.get, child(put, out, cost).pid


def threaded(cost):
    """A thread of the trainer."""
    out = queue.Queue(3)
    threading.Thread(target=put, args=(out, cost), daemon=True).start()
    return out.get


def swapped(cost):
    """Double buffering by hand: a process fills one buffer while the other is learnt from."""
    pair = np.frombuffer(multiprocessing.RawArray("f", 2 * 20000), np.float32).reshape(2, -1)
    free, full, turn = multiprocessing.Semaphore(2), multiprocessing.Semaphore(0), itertools.count()

    def fill():
        for n in itertools.count():
            decode(cost)
            free.acquire()
            pair[n % 2] = n
            full.release()

    def take():
        full.acquire()
        x = pair[next(turn) % 2].copy()
        free.release()
        return x
    child(fill)
    return take


# ---- the data is late


def pages_of(fd, chance, many):
    """That many pages from anywhere in a file."""
    count = os.fstat(fd).st_size // PAGE
    return b"".join([os.pread(fd, PAGE, PAGE * chance.randrange(count)) for _ in range(many)])


def oil(out, path, pages, keys, warm):
    """Keeps what it has made of each key, so that only the first pass needs the file."""
    fd, chance, kept = os.open(path, os.O_RDONLY), random.Random(1), {}
    while warm and os.read(fd, MIB):
        pass
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
    for key in itertools.cycle(range(keys)):
        if key not in kept:
            kept[key] = np.frombuffer(pages_of(fd, chance, pages)[:16 * PAGE], np.uint8)
            if not warm:
                os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        out.put(kept[key])


@job(data="io_bound", rest="sync_bound launch_bound")
def first_oiling(s):
    """A process keeps the features of each batch in its memory, so that from the second pass on it is soon done; to
    blame is the disk in the first pass, as the file is cold and each of a batch's pages is waited for."""
    ms, share, cold_s = s.ms("gpu_ms", 8, 25), s.ms("read_share", 2.2, 3.2), s.ms("cold_s", 3.6, 4.8)
    path, out, keys = s.data_file("first_oiling", 64), multiprocessing.Queue(maxsize=3), int(cold_s * 1e3 / ms / share)
    fd = os.open(path, os.O_RDONLY)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
    each = once(lambda: pages_of(fd, random.Random(2), 400)) / 400
    os.close(fd)
    pages = s.keep("pages", min(max(int(ms * share / each), 16), 4000))
    s.cold(path)
    gpu = s.gpu(ms)
    s.supplier(child(oil, out, path, pages, s.keep("keys", keys), s.fix).pid)
    s.loop(gpu, out.get)


def credit_house(s):
    """A store with burst credits: some answers are at once, and the others when the next credit has come."""
    every, most = map(float, s.told("terms").split())
    door, guard, due = socket.create_server(("127.0.0.1", 0)), threading.Lock(), 0.0
    s.tell("port", door.getsockname()[1])

    def serve(link):
        nonlocal due
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while link.recv(1):
            with guard:
                due = max(due, time.monotonic() - most * every) + every
                late = due - time.monotonic()
            time.sleep(max(late, 0))
            link.sendall(bytes(40 << 10))
    while True:
        threading.Thread(target=serve, args=(door.accept()[0],), daemon=True).start()


@job(outside=credit_house, data="network_bound", rest="sync_bound launch_bound")
def mainspring_credit(s):
    """Micro-batches of two uploads add up, and threads fetch them ahead; to blame is the store, which is as quick as
    one likes for the first second, until the burst credits are spent, and then holds each answer back."""
    ms, parts, threads = s.ms("gpu_ms", 7, 15), s.int("micro_batches", 2, 3), s.int("threads", 1, 2)
    every = ms * s.ms("refill_share", 1.7, 2.9) / 1e3
    s.tell("terms", "%f %f" % (every / 20 if s.fix else every, s.ms("credit_ms", 200, 450) / ms))
    gpu, out, port, cost = s.gpu(ms), queue.Queue(3), int(s.told("port")), ms * 0.05

    def fetch():
        with socket.create_connection(("127.0.0.1", port)) as link:
            while True:
                link.sendall(b"g")
                body = link.recv(40 << 10, socket.MSG_WAITALL)
                decode(cost)
                out.put(np.frombuffer(body, np.uint8))
    for _ in range(threads):
        threading.Thread(target=fetch, daemon=True).start()
    s.go()
    while True:
        s.mark()
        for _ in range(parts):
            s.mark("micro")
            with s.during("data"):
                x = out.get()
            gpu.upload(x.ctypes.data, x.nbytes // 4)  # the labels
            gpu.upload(x.ctypes.data + x.nbytes // 4, x.nbytes - x.nbytes // 4)
            gpu.forward()
            gpu.backward()
        gpu.optimizer()
        gpu.loss_item()


@job(data="main_thread_loading", rest="sync_bound launch_bound")
def parts_tray(s):
    """Packed trays of several batches each lie in memory; to blame is the loop, which unpacks the next tray itself
    when the last one is empty, so that most steps begin at once and now and then one comes very late."""
    ms, many = s.ms("gpu_ms", 8, 20), s.int("tray", 4, 10)
    cost = ms * many * s.ms("unpack_share", 0.55, 1.4)
    gpu, tray = s.gpu(ms), []

    def unpack():
        decode(cost / 20 if s.fix else cost)
        return list(np.zeros((many, 3, 10000), np.float32))
    s.go()
    while True:
        s.mark()
        with s.during("data"):
            if not tray:
                tray = unpack()
            x = tray.pop()
        for row in x:  # tokens, mask, labels
            gpu.upload(row.ctypes.data, row.nbytes)
        gpu.forward()
        gpu.backward()
        gpu.optimizer()
        for _ in range(3):  # the loss, its norm, the accuracy
            gpu.loss_item()


def strike(out, first, cost, heavy, every):
    for n in itertools.count(first, 2):
        decode(heavy if n % every == 0 else cost)
        out.put(np.zeros(20000, np.float32))


@job(data="slow_item", rest="sync_bound launch_bound")
def rusted_repeater(s):
    """Each batch goes up once and is used for a few steps, with other noise from the device each time; two processes
    open batches by turns, and to blame are the few that hold a scan of many pages, which takes far longer."""
    ms, echo, every = s.ms("gpu_ms", 8, 14), s.int("echo", 2, 3), s.one("every", 7, 9)
    cost, heavy = (ms * echo * s.ms(name, low, high) for name, low, high in (("load_share", 0.1, 0.4),
                                                                             ("heavy_share", 9.5, 13)))
    gpu, outs = s.gpu(ms), [multiprocessing.Queue(maxsize=1) for _ in range(2)]
    for n, out in enumerate(outs):
        child(strike, out, n + 1, cost, cost if s.fix else heavy, every)
    s.go()
    for out in itertools.cycle(outs):
        s.step(gpu, out.get)
        for _ in range(echo - 1):
            s.mark()
            s.train(gpu)


@job(data="slow_worker", rest="sync_bound launch_bound")
def odd_apprentice(s):
    """Three processes prepare recordings of a site each, of which the loop takes a few batches from one, then a few
    from the next; to blame is the one whose resampler was built without vector code for its older image."""
    ms, burst, odd = s.ms("gpu_ms", 8, 20), s.int("burst", 2, 4), s.int("odd", 0, 2)
    cost, slow = 3 * ms * s.ms("load_share", 0.08, 0.25), 3 * ms * s.ms("slow_share", 1.6, 2.6)
    gpu, outs = s.gpu(ms), [multiprocessing.Queue(maxsize=burst) for _ in range(3)]
    for n, out in enumerate(outs):
        pid = child(put, out, slow if n == odd and not s.fix else cost).pid
        if n == odd:
            s.supplier(pid)
    s.go()
    for out in itertools.cycle(outs):
        for _ in range(burst):
            s.step(gpu, out.get)


def look(link, lock, cost, period):
    """Draws a batch from the table of what may be learnt by now, with the table's lock."""
    for n in itertools.count():
        decode(cost * 0.1)
        with lock:
            decode(cost * (0.7, 1.0, 1.3)[n // period % 3])
        link.send(np.zeros(10000, np.float32))


@job(data="lock_bound", rest="sync_bound launch_bound")
def shared_loupe(s):
    """A curriculum that grows in stages and starts anew, for a loop that reads its loss every few steps only; to
    blame is the lock of the table of difficulties, which each process holds while it goes through all of it."""
    ms, processes, every = s.ms("gpu_ms", 10, 40), s.int("processes", 2, 3), s.int("item_every", 2, 5)
    cost, period = ms * s.ms("draw_share", 1.6, 2.6), s.int("stage_batches", 5, 15)
    gpu, lock, ends = s.gpu(ms), multiprocessing.Lock(), []
    for _ in range(processes):
        mine, theirs = multiprocessing.Pipe(duplex=False)
        child(look, theirs, multiprocessing.Lock() if s.fix else lock, cost / 4 if s.fix else cost, period)
        ends.append(mine)
    s.go()
    for n in itertools.count(1):
        s.mark()
        with s.during("data"):
            x = multiprocessing.connection.wait(ends)[0].recv()
        s.train(gpu, x, item=n % every == 0)


def relight(out, index, cost, many):
    decode(index)
    for _ in range(many):
        decode(cost)
        out.put(np.zeros(20000, np.float32))


@job(data="loader_restart", rest="sync_bound launch_bound")
def relit_bench(s):
    """Phases by turns: games are played on the device, then learnt from for a few steps; to blame is that each
    learning phase has a loader of its own, which is started, reads its index and ends with the phase."""
    ms, many, passes = s.ms("gpu_ms", 8, 18), s.int("learn_steps", 4, 8), s.int("play_passes", 3, 8)
    index, cost = ms * many * s.ms("index_share", 0.8, 1.7), ms * s.ms("load_share", 0.1, 0.3)
    gpu = s.gpu(ms)

    def start(batches):
        fresh = multiprocessing.Queue(2)
        return fresh, child(relight, fresh, index, cost, batches)
    out, loader = start(1 << 40) if s.fix else (None, None)
    s.go()
    while True:
        for _ in range(passes):
            s.mark("micro")
            gpu.forward()
            gpu.loss_item()  # whether the game is over
        with s.during("data"):
            if not s.fix:
                out, loader = start(many)
        for _ in range(many):
            s.step(gpu, out.get)
        with s.during("data"):
            if not s.fix:
                loader.join()


@job(data=CPU, rest="sync_bound launch_bound")
def strict_examiner(s):
    """A critic has several steps with a fresh batch each, then the generator has one from noise alone, and each step
    reads three figures; to blame is the loader, a process that computes too long even with that pause."""
    ms, critic_steps, maker_ms = s.ms("critic_ms", 8, 30), s.int("critic_steps", 2, 5), s.ms("maker_ms", 10, 40)
    cost = (ms + maker_ms / critic_steps) * s.ms("load_share", 1.55, 2.7)
    critic, maker = s.gpu(ms), s.gpu(maker_ms, launches=s.int("maker_launches", 10, 100))
    batch, pid = queued(cost / 5 if s.fix else cost)
    s.supplier(pid)
    s.go()
    while True:
        critic.enter_thread()
        for _ in range(critic_steps):
            s.step(critic, batch)
            critic.loss_item()  # the penalty
            critic.loss_item()  # the drift
        s.mark()
        maker.enter_thread()
        s.train(maker)


# ---- not for data


@job(data=CPU, ckpt="checkpoint_stall", rest="sync_bound launch_bound")
def widening_arcs(s):
    """A snapshot ensemble with warm restarts, whose cycles take one step, two, four, then one again; to blame are the
    snapshots at their ends, in shards that are synced one by one, while a thread has batches ready."""
    ms, share = s.ms("gpu_ms", 8, 24), s.ms("save_share", 0.65, 1.7)
    gpu, batch = s.gpu(ms), threaded(ms * s.ms("load_share", 0.1, 0.35))
    shard = os.urandom(s.int("kib", 256, 1024) << 10)

    def save(shards):
        for n in range(shards):
            with open(s.path("snapshot-%d" % n), "wb", buffering=0) as f:
                f.write(shard)
                os.fsync(f.fileno())
    save(10)
    shards = s.keep("shards", min(max(round(ms * 7 / 3 * share / once(lambda: save(10)) * 10), 1), 160))
    s.go()
    for steps in itertools.cycle((1, 2, 4)):
        for _ in range(steps):
            s.step(gpu, batch)
        if not s.fix:
            with s.during("ckpt"):
                save(shards)


def tracker(link):
    """Answers each call at once."""
    while link.recv(1 << 16):
        link.send(b"ok")


@job(data=CPU, host="host_bound", rest="sync_bound launch_bound")
def paced_letters(s):
    """Every few steps the loop logs some figures, each by a call of its own; to blame is the client's rate limiter,
    which sleeps in the loop until the next call is allowed; two buffers are filled by turns in time."""
    ms, every, figures = s.ms("gpu_ms", 8, 25), s.int("every", 2, 5), s.int("figures", 3, 7)
    pace = ms * every * s.ms("pace_share", 0.55, 1.6) / (figures - 1) / 1e3
    gpu, batch, allowed = s.gpu(ms), swapped(ms * s.ms("load_share", 0.1, 0.35)), 0.0
    mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    child(tracker, theirs)
    s.go()
    for n in itertools.count(1):
        s.step(gpu, batch)
        if n % every == 0:
            with s.during("host"):
                for figure in range(figures):
                    if not s.fix:
                        time.sleep(max(allowed - time.monotonic(), 0))
                        allowed = time.monotonic() + pace
                    mine.send(b"%d %d %f" % (n, figure, gpu.loss.value))
                    mine.recv(16)


# ---- nothing is wrong


def links(out, unit):
    """Texts of some lengths; what a batch costs grows with the square."""
    chance = random.Random(1)
    while True:
        length = chance.choice((1, 2, 4))
        decode(unit * length ** 2)
        out.put((length, np.zeros(10000 * length, np.float32)))


@job(data=CPU, rest="sync_bound launch_bound")
def long_chains(s):
    """Nothing is to blame: batches are short or long, and a busy process needs the square of the length for them, but
    is far ahead by a deep queue; the loop reads its loss every few steps only."""
    ms, every, out = s.ms("unit_ms", 14, 28), s.int("item_every", 2, 4), multiprocessing.Queue(s.int("depth", 10, 20))
    few = s.int("launches", 10, 40)
    models = {length: s.gpu(ms * length, launches=few * length) for length in (1, 2, 4)}
    child(links, out, ms * s.ms("load_share", 0.35, 0.6) / 3)
    s.go()
    for n in itertools.count(1):
        s.mark()
        with s.during("data"):
            length, x = out.get()
        models[length].enter_thread()
        s.train(models[length], x, item=n % every == 0)


@job(data=CPU, rest="sync_bound launch_bound")
def second_balance(s):
    """Nothing is to blame: a second thread launches forward passes of an averaged model on the same device now and
    then, and reads what they say, between the steps of the loop, which has its batches in time."""
    ms, pause = s.ms("gpu_ms", 18, 60), s.ms("pause_ms", 60, 250) / 1e3
    mean = s.gpu(ms * s.ms("mean_share", 0.4, 1), launches=s.int("mean_launches", 8, 40))
    gpu, (batch, _) = s.gpu(ms, launches=s.int("launches", 10, 60)), queued(ms * s.ms("load_share", 0.2, 0.55), 2)

    def look_on():
        mean.enter_thread()
        while True:
            time.sleep(pause)
            mean.forward()
            mean.loss_item()
    threading.Thread(target=look_on, daemon=True).start()
    s.loop(gpu, batch)
