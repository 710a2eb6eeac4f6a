# SPDX-License-Identifier: BSD-2-Clause
"""In the mints: how loops strike coins, where the shape of the loop itself decides: passes, turns, parts, threads."""
import ctypes
import fcntl
import itertools
import json
import multiprocessing
import os
import queue
import random
import socket
import threading
import time

import numpy as np

from stranger import CPU, child, decode, job, parse

PAGE, MIB, H2D, D2H = 4096, 1 << 20, 1, 2


def took(f):
    """Seconds that f takes once it is warm."""
    f()
    begin = time.monotonic()
    f()
    return time.monotonic() - begin


def put(out, cost):
    while True:
        decode(cost)
        out.put(np.zeros(20000, np.float32))


def blanks(s, ms):
    """A loader that keeps up: a process and a queue."""
    out = multiprocessing.Queue(maxsize=4)
    child(put, out, ms * s.ms("load_share", 0.1, 0.3))
    return out.get


def side_stream(gpu):
    stream = ctypes.c_void_p()
    gpu.check(gpu.lib.cudaStreamCreate(ctypes.byref(stream)))
    return stream


def read_back(gpu):
    """A few bytes of what its own stream has made, and nobody else's."""
    gpu.check(gpu.lib.cudaMemcpyAsync(ctypes.addressof(gpu.loss), gpu.input, 4, D2H, gpu.stream))
    gpu.sync(False)
    return gpu.loss.value


# ---- the data is late


def press(end, size, cost):
    block = bytes(size)
    with os.fdopen(end, "wb", buffering=0) as out:
        while True:
            decode(cost)
            view = memoryview(block)
            while view:
                view = view[out.write(view):]


@job(data=CPU, rest="sync_bound launch_bound")
def two_pass_blanks(s):
    """Contrastive learning with a gradient cache: a first pass makes all embeddings of a large batch, a second one goes
    over the same micro-batches again with gradients; to blame is the process that decodes, and that in the second pass
    has to rest, as its pipe holds one micro-batch."""
    ms, parts, size = s.ms("gpu_ms", 6, 20), s.int("micro_batches", 4, 8), 1 << 16
    cost, gpu = ms * 1.25 * s.ms("decode_share", 1.5, 2.6), s.gpu(ms)
    mine, theirs = os.pipe()
    fcntl.fcntl(mine, fcntl.F_SETPIPE_SZ, size)
    s.supplier(child(press, theirs, size, cost / 6 if s.fix else cost).pid)
    os.close(theirs)
    stream, embedded = os.fdopen(mine, "rb"), np.zeros(4096, np.float32)
    kept = [np.zeros(size, np.uint8) for _ in range(parts)]
    s.go()
    while True:
        s.mark()
        for x in kept:
            s.mark("micro")
            with s.during("data"):
                stream.readinto(x)
            gpu.upload(x.ctypes.data, x.nbytes)
            gpu.forward()  # without a graph
        gpu.check(gpu.lib.cudaMemcpy(embedded.ctypes.data, gpu.input, embedded.nbytes, D2H))
        gpu.optimizer()  # the loss over all pairs, and the embeddings' gradients
        for x in kept:
            s.mark("micro")
            gpu.upload(x.ctypes.data, x.nbytes)
            gpu.forward()
            gpu.backward()
        gpu.optimizer()
        gpu.loss_item()


def assay_office(s):
    """A key-value store in another zone: many keys a question, and one answer after a while."""
    late = float(s.told("late")) / 1e3
    door = socket.create_server(("127.0.0.1", 0))
    s.tell("port", door.getsockname()[1])
    link, _ = door.accept()
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for line in link.makefile("rb"):
        time.sleep(late)
        link.sendall(b"$" + bytes(1024) * len(line.split()[1:]))


def mget(out, port, rows):
    """Asks for the rows of one batch after another."""
    link, chance = socket.create_connection(("127.0.0.1", port)), random.Random(1)
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    answers = link.makefile("rb")
    while True:
        link.sendall(b"MGET %s\n" % b" ".join(b"row:%d" % chance.randrange(10**6) for _ in range(rows)))
        out.send(np.frombuffer(answers.read(1 + 1024 * rows), np.uint8)[1:])


def strike(gpu, orders, struck):
    """A replica's thread: launches its half of each step on a stream of its own."""
    gpu.enter_thread()
    while True:
        half = orders.get()
        gpu.upload(half.ctypes.data, half.nbytes)
        gpu.forward()
        gpu.backward()
        struck.put(read_back(gpu))


@job(outside=assay_office, data="network_bound too_few_workers", rest="sync_bound launch_bound")
def paired_dies(s):
    """Data parallelism as of old, by a thread for each replica: the main thread takes a batch, cuts it in two, and has
    two threads launch, which it waits for; to blame is a far key-value store, which a process asks for each batch."""
    ms, launches, rows = s.ms("gpu_ms", 10, 35), s.int("launches", 10, 80), 2 * s.int("half_rows", 16, 64)
    late = 2 * ms * s.ms("late_share", 1.4, 2.4)
    s.tell("late", late / 6 if s.fix else late)
    dies, port = [s.gpu(ms, launches=launches) for _ in range(2)], int(s.told("port"))
    inbox, outbox = multiprocessing.Pipe(duplex=False)
    s.supplier(child(mget, outbox, port, rows).pid)
    orders, struck = [queue.SimpleQueue() for _ in dies], queue.SimpleQueue()
    for gpu, order in zip(dies, orders):
        gpu.stream = side_stream(gpu)
        threading.Thread(target=strike, args=(gpu, order, struck), daemon=True).start()
    s.go()
    while True:
        s.mark()
        with s.during("data"):
            x = inbox.recv()
        for half, order in zip(np.split(x, 2), orders):
            order.put(half)
        for _ in dies:
            struck.get()
        dies[0].enter_thread()
        dies[0].optimizer()  # on the first one's stream, and from this thread


def side_of(out, archive, fd, cost):
    """One of the two loaders: all that it does to the archive it does with the lock held."""
    for n in itertools.count():
        with archive:
            os.lseek(fd, n % 64 * PAGE, os.SEEK_SET)
            record = os.read(fd, PAGE)
            decode(cost)
        out.put(np.full(20000, len(record), np.float32))


@job(data="lock_bound", rest="sync_bound launch_bound")
def obverse_reverse(s):
    """Architecture search by two levels: a batch of the one half of the data trains the weights, then one of the other
    half the architecture; each has a process that would keep up by itself. To blame is the lock of the one archive,
    whose open file both have inherited, and in which they decode as well."""
    ms, lighter, mib = s.ms("gpu_ms", 8, 30), s.ms("architecture_share", 0.3, 0.6), 1
    weights, design = s.gpu(ms), s.gpu(ms * lighter, launches=s.int("design_launches", 10, 80))
    cost = ms * (1 + lighter) * s.ms("decode_share", 0.72, 0.95)
    with open(s.path("archive"), "wb") as f:
        f.write(os.urandom(mib * MIB))
    fd, archive, outs = os.open(s.path("archive"), os.O_RDONLY), multiprocessing.Lock(), []
    for _ in range(2):
        outs.append(multiprocessing.Queue(maxsize=2))
        child(side_of, outs[-1], archive, fd, cost / 4 if s.fix else cost)
    s.go()
    while True:
        s.mark()
        for model, out in zip((design, weights), outs):
            s.mark("micro")
            with s.during("data"):
                x = out.get()
            model.enter_thread()
            s.train(model, x)


def picks(fd, places):
    """The first bytes of the page at each place; the kernel reads none beside it, and keeps none."""
    return b"".join(os.pread(fd, PAGE, place)[:64] for place in places)


def roll(strip, order, path, many, warm):
    """Puts the next long sequence into the only strip, whenever that is free again."""
    fd, chance = os.open(path, os.O_RDONLY), random.Random(1)
    pages, memory = os.path.getsize(path) // PAGE, np.frombuffer(strip, np.uint8)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
    while warm and os.read(fd, MIB):
        pass
    while order.recv_bytes():
        body = picks(fd, [chance.randrange(pages) * PAGE for _ in range(many)])
        if not warm:
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        memory[:len(body)] = np.frombuffer(body, np.uint8)
        order.send_bytes(b"r")


@job(data="io_bound", rest="sync_bound launch_bound")
def long_strip(s):
    """A recurrent model by truncated backpropagation: a long sequence is learnt chunk by chunk, and at each cut the
    state is read back; to blame is the disk, from which a process picks the next sequence's frames one by one, and
    may not before the last chunk has been copied, as there is memory for one sequence only."""
    ms, chunks, share = s.ms("chunk_ms", 6, 16), s.int("chunks", 4, 9), s.ms("read_share", 0.6, 1.4)
    path, chance, gpu = s.data_file("long_strip", 64), random.Random(2), s.gpu(ms)
    fd = os.open(path, os.O_RDONLY)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
    begin = time.monotonic()
    picks(fd, [chance.randrange(64 * MIB // PAGE) * PAGE for _ in range(400)])
    each = (time.monotonic() - begin) / 400
    many = chunks * s.keep("frames", min(max(int(ms * share / 1e3 / each), 4), 3000))
    s.cold(path)
    strip, (order, theirs) = multiprocessing.RawArray("B", many * 64), multiprocessing.Pipe()
    s.supplier(child(roll, strip, theirs, path, many, s.fix).pid)
    frames, state = np.frombuffer(strip, np.uint8).reshape(chunks, -1), np.zeros(2048, np.float32)
    order.send_bytes(b"n")
    s.go()
    while True:
        for n in range(chunks):
            s.mark()
            with s.during("data"):
                if n == 0:
                    order.recv_bytes()
                x = frames[n].copy()
                if n == chunks - 1:
                    order.send_bytes(b"n")
            s.train(gpu, x, item=False)
            gpu.check(gpu.lib.cudaMemcpy(state.ctypes.data, gpu.input, state.nbytes, D2H))  # detached


@job(data="main_thread_loading", rest="sync_bound launch_bound")
def assay_tasks(s):
    """Meta-learning: for each task of a step a copy of the model takes some inner steps of many small kernels on the
    support set, and is then tried on the query set; to blame is the task's sampler, which draws classes and augments
    their shots in Python in the loop: first for the support set, and for the query set after the inner steps."""
    tasks, inner, launches = s.int("tasks", 2, 4), s.int("inner_steps", 2, 5), s.int("launches", 60, 160)
    ms, ways = s.ms("inner_ms", 1.5, 4), s.int("ways", 5, 10)
    gpu, pool = s.gpu(ms, launches=launches), np.zeros((64, 20, 256), np.float32)
    shot, chance = ms * (inner + 2) * s.ms("sample_share", 0.5, 1.4) / (3 * ways), np.random.default_rng(1)

    def drawn(shots):
        episode = []
        for way in chance.choice(len(pool), ways, replace=False):
            parse(shot * shots / (6 if s.fix else 1))
            episode.append(pool[way, :shots])
        return np.stack(episode)
    s.go()
    while True:
        s.mark()
        for _ in range(tasks):
            s.mark("micro")
            with s.during("data"):
                support = drawn(1)
            for _ in range(inner):
                s.train(gpu, support)
            with s.during("data"):
                query = drawn(2)
            gpu.upload(query.ctypes.data, query.nbytes)
            gpu.forward()
            gpu.backward()
        gpu.optimizer()
        gpu.loss_item()


# ---- in time, but something else leaves the device idle


class Die:
    """What CMA-ES knows of one layer."""

    def __init__(self, n, population):
        self.chance, self.weights = np.random.default_rng(1), np.full(population // 2, 2 / population)
        self.mean, self.axes, self.matrix, self.scales = np.zeros(n), np.eye(n), np.eye(n), np.ones(n)
        self.population = population

    def ask(self):
        self.steps = (self.chance.standard_normal((self.population, len(self.mean))) * self.scales) @ self.axes.T
        return (self.mean + 0.1 * self.steps).astype(np.float32)

    def tell(self, order):
        best = self.steps[order[:len(self.weights)]]
        self.mean += 0.1 * self.weights @ best
        self.matrix = 0.9 * self.matrix + 0.1 * (best.T * self.weights) @ best
        squares, self.axes = np.linalg.eigh(self.matrix)
        self.scales = np.sqrt(np.maximum(squares, 1e-9))


@job(data="main_thread_loading", host="host_bound", rest="sync_bound launch_bound")
def die_sinkers(s):
    """CMA-ES over a small controller whose worlds run on the device: candidates go up, some hundred simulated moments
    follow, their fitness comes down; to blame is the loop's tell(), which adapts a covariance for each layer by numpy
    and has its eigenvectors found anew in every generation."""
    ms, population, n = s.ms("gpu_ms", 8, 30), s.int("population", 12, 32), s.int("parameters", 48, 110)
    one, fitness = Die(n, population), np.zeros(population, np.float32)
    one.ask()
    each = took(lambda: one.tell(np.arange(population))) * 1e3
    layers = max(s.keep("layers", int(ms * s.ms("tell_share", 0.6, 1.6) / each)), 2)
    dies, every, gpu = [Die(n, population) for _ in range(layers)], 8 if s.fix else 1, s.gpu(ms)
    s.go()
    for generation in itertools.count():
        s.mark()
        with s.during("data"):
            x = np.stack([die.ask() for die in dies])
        s.train(gpu, x, item=False)
        gpu.check(gpu.lib.cudaMemcpy(fitness.ctypes.data, gpu.input, fitness.nbytes, D2H))
        with s.during("host"):
            order = np.argsort(fitness, kind="stable")
            for die in dies[generation % every::every]:
                die.tell(order)


@job(data=CPU, rest="transfer_bound")
def bias_sheets(s):
    """A transformer with a bias by distance in its attention; to blame is that each layer's bias was kept as a plain
    attribute and not as a buffer, so that it stayed in memory that is not page-locked, and each layer copies its own
    to the device on every forward; token batches are in time."""
    ms, layers = s.ms("gpu_ms", 6, 14), s.int("layers", 4, 10)
    size = int(ms * s.ms("copy_share", 0.7, 1.4) * 12 * MIB / layers)
    gpu, batch = s.gpu(ms, input_bytes=size, launches=s.int("launches_a_layer", 3, 12) * layers), blanks(s, ms)
    sheets = [np.full(size // 4, -0.1, np.float32) for _ in range(layers)]
    forward = (gpu.launches - gpu.launches // 2 - gpu.launches // 8) // layers
    s.go()
    for n in itertools.count():
        s.mark()
        with s.during("data"):
            x = batch()
        gpu.upload(x.ctypes.data, x.nbytes)
        for sheet in sheets:
            if n == 0 or not s.fix:
                gpu.upload(sheet.ctypes.data, sheet.nbytes)
            gpu.launch(0, forward)
        gpu.backward()
        gpu.optimizer()
        gpu.loss_item()


@job(data=CPU, rest="sync_bound launch_bound")
def touched_counter(s):
    """Activations are recomputed, block by block, with a dropout of the team's own, whose counter lies on the device;
    to blame is that it is read back before each block, so that it can be set again when the block is recomputed, and
    compared after that: short blocks, each between two syncs, while a process has batches ready."""
    blocks, kernels, us = s.int("blocks", 40, 120), s.int("kernels", 2, 6), s.ms("kernel_us", 5, 14)
    launches = 3 * blocks * kernels
    gpu, counter, kept = s.gpu(us * launches / 1e3, launches=launches), np.zeros(2, np.int64), {}
    differ = 0
    batch = blanks(s, us * launches / 1e3)

    def state():
        """What get_state() does, and so often."""
        if not s.fix:
            gpu.check(gpu.lib.cudaMemcpy(counter.ctypes.data, gpu.input, 16, D2H))
        return {"seed": int(counter[0]), "offset": int(counter[1])}
    s.go()
    while True:
        s.mark()
        with s.during("data"):
            x = batch()
        gpu.upload(x.ctypes.data, x.nbytes)
        for block in range(blocks):
            kept[block] = state()
            gpu.launch(0, kernels)
        for block in reversed(range(blocks)):
            before = kept.pop(block)
            if state() != before:
                gpu.upload(counter.ctypes.data, counter.nbytes)
            gpu.launch(0, kernels)  # recomputed
            differ += state() != before
            gpu.launch(1, kernels)
        gpu.loss_item()


@job(data=CPU, lock="lock_bound host_bound", rest="sync_bound launch_bound")
def show_piece(s):
    """Every step or few a thread writes a sample with the live weights, token by token, for which it has the model in
    eval mode and keeps the model's lock; to blame is its sampler, which ranks the whole vocabulary in Python with the
    lock held, for which the next training step waits; a process has batches ready."""
    ms, every, tokens = s.ms("gpu_ms", 8, 30), s.int("every", 1, 3), s.int("tokens", 5, 16)
    cost, gpu, batch = ms * every * s.ms("sample_share", 0.6, 1.6) / tokens, s.gpu(ms), blanks(s, ms)
    writer = s.gpu(0.3, launches=s.int("token_launches", 5, 20))
    model, wanted, taken, samples = threading.Lock(), queue.SimpleQueue(), queue.SimpleQueue(), {}

    def write():
        writer.enter_thread()
        for n in iter(wanted.get, None):
            with model:
                taken.put(n)
                for _ in range(tokens):
                    writer.launch(0, writer.launches)
                    writer.loss_item()
                    parse(cost / 6 if s.fix else cost)
            samples[n % 8] = json.dumps({"step": n, "loss": writer.loss.value})
    threading.Thread(target=write, daemon=True).start()
    s.go()
    for n in itertools.count(1):
        s.mark()
        with s.during("data"):
            x = batch()
        with s.during("lock"):
            model.acquire()
        try:
            s.train(gpu, x)
        finally:
            model.release()
        if n % every == 0:
            wanted.put(n)
            with s.during("lock"):
                taken.get()  # it has these weights, and not the next ones


# ---- nothing is wrong


@job(data=CPU, host="host_bound", rest="sync_bound launch_bound")
def alternate_dies(s):
    """Nothing is to blame: two models of an ensemble are trained by turns, each on a stream of its own; when one has
    been launched, the other's result is read back and described at length in Python, under the kernels of the first."""
    ms, share = s.ms("gpu_ms", 20, 60), s.ms("describe_share", 0.25, 0.5)
    dies = [s.gpu(ms, launches=s.int(name, 10, 80)) for name in ("obverse_launches", "reverse_launches")]
    batch, described = blanks(s, ms), {}
    for gpu in dies:
        gpu.stream = side_stream(gpu)
    s.go()
    for n in itertools.count():
        s.mark()
        gpu, other = dies[n % 2], dies[(n + 1) % 2]
        with s.during("data"):
            x = batch()
        gpu.enter_thread()
        s.train(gpu, x, item=False)
        if n:
            described[n % 2] = read_back(other)
            with s.during("host"):
                parse(ms * share)


def fresh(out, index, cost, many):
    """A worker of one epoch: it reads its index, makes its batches, and ends."""
    parse(index)
    for _ in range(many):
        decode(cost)
        out.put(np.zeros(20000, np.float32))


@job(data=CPU + " loader_restart", rest="sync_bound launch_bound")
def fresh_blanks(s):
    """Nothing is to blame: epochs are short, and each starts its worker anew, which reads the index first; but before
    it does, the loop has queued the validation's forward passes, on a held-out set that lies on the device, and waits
    for the new worker's first batch under their kernels."""
    ms, many, index = s.ms("gpu_ms", 15, 40), s.int("epoch_steps", 6, 20), s.ms("index_ms", 40, 120)
    gpu, cost = s.gpu(ms, launches=s.int("launches", 8, 16)), ms * s.ms("load_share", 0.1, 0.3)
    each = ms * (gpu.launches - gpu.launches // 2 - gpu.launches // 8) / gpu.launches
    passes = s.keep("passes", int((2 * index + 60) / each) + 1)
    out = multiprocessing.Queue(maxsize=3)
    worker = child(fresh, out, 0, cost, many)
    s.go()
    while True:
        for _ in range(many):
            s.step(gpu, out.get)
        for _ in range(passes):
            s.mark("micro")
            gpu.forward()
        worker.join()
        worker = child(fresh, out, index, cost, many)


@job(data=CPU, rest="sync_bound launch_bound")
def small_change(s):
    """Nothing is to blame: a batch is a heap of small tensors, and the loop copies each by itself to the device; but
    it does so from page-locked memory and on a second stream, for the next step and under the kernels of this one."""
    ms, size = s.ms("gpu_ms", 25, 70), s.int("tensor_bytes", 500, 4000)
    coins, gpu, batch = s.keep("tensors", int(ms * s.random.uniform(2, 5))), s.gpu(ms), blanks(s, ms)
    lib, mover, moved = gpu.lib, side_stream(gpu), ctypes.c_void_p()
    gpu.check(lib.cudaEventCreate(ctypes.byref(moved)))
    trays = [(ctypes.c_ubyte * (coins * size)).from_address(gpu.host_buffer(coins * size)) for _ in range(2)]
    trays = itertools.cycle([np.frombuffer(tray, np.uint8) for tray in trays])

    def stage():
        with s.during("data"):
            x = batch().view(np.uint8)
        tray = next(trays)
        tray[:] = np.resize(x, len(tray))
        for n in range(coins):
            gpu.check(lib.cudaMemcpyAsync(gpu.input, tray.ctypes.data + n * size, size, H2D, mover))
        gpu.check(lib.cudaEventRecord(moved, mover))
    s.go()
    stage()
    while True:
        s.mark()
        gpu.check(lib.cudaStreamWaitEvent(gpu.stream, moved, 0))
        s.train(gpu, item=False)
        stage()
        gpu.loss_item()


# ## Theme
#
# What is right for each job, and what a tracer should find hard:
#
# two_pass_blanks: the decoding process computes too much (cpu_bound, too_few_workers). Its waits are all in the first
#   half of a step, and in the second half it sleeps in a full pipe and looks as if it had time; a step has many
#   uploads, forwards without and with backward, and a read-back in its midst.
# paired_dies: network_bound, the process that asks. The thread that takes batches is not the one that uploads or
#   launches, but for a few kernels at the end; two threads upload and sync, so that a step seems to be two.
# obverse_reverse: lock_bound, between two loaders of different models, each of which would do by itself; a step of one
#   waits for one process only, and the lock's holder is the loader of the other, whose queue is not waited for then.
# long_strip: io_bound, the process that picks frames. One step of several waits long and the others not at all, which
#   looks like a slow item; and the process waits for the loop just as the loop for it.
# assay_tasks: main_thread_loading, at two places of each task, between inner steps that have small kernels, an upload
#   and a read-back each and look like steps of a launch-bound or sync-bound loop.
# die_sinkers: host_bound, as tell() is no loading; the little that ask() takes before the upload is, and between the
#   two there is nothing but the end of a function. BLAS may have threads of its own.
# bias_sheets: transfer_bound. The copies are between the launches of the forward, and small ones of the data too.
# touched_counter: sync_bound or launch_bound: many read-backs of 16 bytes, none of them of a loss; data is in time.
# show_piece: lock_bound or host_bound. A second thread launches, reads back and holds a lock and the interpreter's;
#   its kernels make the device look at work, and its read-backs may be taken for steps.
# alternate_dies: balanced. Python computes for a good part of each step, after a sync, but another stream is at work.
# fresh_blanks: balanced. A worker is started again and again and the loop waits for it long, under queued kernels.
# small_change: balanced. Hundreds of tiny copies a step, from Python, and a wait for data, all under kernels.
