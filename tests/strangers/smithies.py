# SPDX-License-Identifier: BSD-2-Clause
"""Jobs that surprise: ordinary things that nobody thinks of beforehand."""
import asyncio
import concurrent.futures
import ctypes
import hashlib
import itertools
import multiprocessing
import os
import queue
import random
import signal
import socket
import subprocess
import threading
import time
import zipfile

import numpy as np

from stranger import CPU, child, decode, job, mortal, parse


def shape(s, most=0.75):
    """A step's length, and what of it the device gets."""
    step = s.ms("step_ms", 12, 100)
    return step, round(step * s.ms("device_share", 0.08, most), 3)


def supply(out, cost, size=50000):
    while True:
        decode(cost)
        out.put(np.zeros(size, np.float32))


def program(words, **more):
    """A program in another language, which dies with the job."""
    parent = os.getpid()
    return subprocess.Popen(words, stdout=subprocess.PIPE,
                            preexec_fn=lambda: mortal(parent), **more)


# ---- the data


@job(data=CPU, rest="sync_bound launch_bound")
def drift_monitor(s):
    """A thread that looks for drift takes its batches out of the queue of the training loop."""
    step, ms = shape(s)
    gpu, out = s.gpu(ms), multiprocessing.Queue(maxsize=4)
    s.supplier(child(supply, out, step * 0.6).pid)

    def monitor():
        while True:
            np.histogram(out.get(), 32)
            time.sleep(step / 1e3)
    threading.Thread(target=monitor, daemon=True).start()
    s.loop(gpu, out.get)


def annotators(s):
    """They answer after a while what the samples show."""
    late, spread = float(s.told("late")), s.ms("sigma", 0.05, 0.3)
    door = socket.create_server(("127.0.0.1", 0))
    s.tell("port", door.getsockname()[1])
    stream = door.accept()[0].makefile("rwb")
    chance = random.Random(1)
    while stream.read(256):
        time.sleep(late / 1e3 * chance.lognormvariate(0, spread))
        stream.write(bytes(64))
        stream.flush()


@job(outside=annotators, data="network_bound main_thread_loading",
     rest="sync_bound launch_bound")
def label_oracle(s):
    """Active learning: the loop asks a service for labels of what the model doubts most."""
    step, ms = shape(s)
    gpu = s.gpu(ms)
    s.tell("late", step - ms)
    link = socket.create_connection(("127.0.0.1", int(s.told("port"))))
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    stream, chance = link.makefile("rwb"), np.random.default_rng(1)
    samples = np.zeros((2000, 1024), np.float32)

    def labelled():
        ids = np.argsort(chance.random(2000))[:64].astype(np.int32)
        stream.write(ids.tobytes())
        stream.flush()
        stream.read(64)
        return samples[ids]
    s.loop(gpu, labelled)


def shards(out, cheap, dear, length):
    for n in itertools.count():
        for _ in range(length):
            decode(dear if n % 2 else cheap)
            out.put(np.zeros(60000, np.float32))


@job(data=CPU, rest="sync_bound launch_bound")
def mixed_codecs(s):
    """Every other shard was packed with a codec that takes far longer to undo."""
    step, ms = shape(s, most=0.55)
    gpu, out = s.gpu(ms), multiprocessing.Queue(maxsize=4)
    cheap = ms * s.ms("cheap_share", 0.2, 0.6)
    s.supplier(child(shards, out, cheap, step, s.int("shard", 6, 20)).pid)
    s.loop(gpu, out.get)


def take(path, pause):
    """A lock file, as one takes it where flock() cannot be trusted."""
    while True:
        try:
            return os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
        except FileExistsError:
            time.sleep(pause)


def compact(path, hold, pause):
    while True:
        take(path + ".lock", pause / 4)
        parse(hold)
        with open(path, "wb") as f:
            f.write(bytes(1 << 16))
        os.unlink(path + ".lock")
        time.sleep(pause * 1.5)


def look_up(out, path, cost, pause):
    while True:
        take(path + ".lock", pause)
        with open(path, "rb") as f:
            f.read()
        os.unlink(path + ".lock")
        decode(cost)
        out.put(np.zeros(40000, np.float32))


@job(data="lock_bound", rest="sync_bound launch_bound")
def compactor_lock(s):
    """A compactor rewrites the index under a lock file, for which the loader tries and tries."""
    step, ms = shape(s, most=0.6)
    gpu, out, path = s.gpu(ms), multiprocessing.Queue(maxsize=2), s.path("index")
    pause = step * s.ms("retry_share", 0.02, 0.05) / 1e3
    with open(path, "wb") as f:
        f.write(bytes(1 << 16))
    child(compact, path, step * 0.95, pause)
    child(look_up, out, path, step * 0.12, pause)
    s.loop(gpu, out.get)


AWK = """BEGIN {
    for (;;) {
        for (k = 0; k < 2000; k++) {
            for (i = 0; i < n; i++) x = (x * 69069 + 1) % 4294967296
            printf "%d ", x
        }
        print ""
        fflush()
    }
}"""


@job(data=CPU, rest="sync_bound launch_bound")
def awk_features(s):
    """Features are worked out by an old awk script, whose lines the loop reads from a pipe."""
    step, ms = shape(s)
    gpu, tries, begin = s.gpu(ms), 400000, time.monotonic()
    subprocess.run(["awk", "BEGIN { for (i = 0; i < %d; i++) x = (x * 69069 + 1) %% 4294967296 }"
                    % tries], check=True)
    each = (time.monotonic() - begin) * 1e3 / tries
    p = program(["awk", "-v", "n=%d" % max(step / each / 2000, 1), AWK])
    s.supplier(p.pid)
    s.loop(gpu, lambda: np.array(p.stdout.readline().split(), np.float32))


def pour(end):
    ready = bytes(1 << 20)
    while True:
        os.write(end, ready)


@job(data="ipc_bound", rest="sync_bound launch_bound")
def small_blocks(s):
    """Batches lie ready, but come through a dd that somebody left with a tiny block size."""
    step, ms = shape(s)
    gpu, (theirs, mine) = s.gpu(ms, input_bytes=8 << 20), os.pipe()
    child(pour, mine)
    p = program(["dd", "bs=%d" % s.one("block", 64, 128, 256), "status=none"], stdin=theirs)
    os.close(mine)
    os.close(theirs)
    p.stdout.read(1 << 18)
    begin = time.monotonic()
    p.stdout.read(1 << 20)
    rate = (1 << 20) / (time.monotonic() - begin) / 1e3
    x = np.zeros(int(min(rate * (step - ms), 8 << 20)) // 4, np.float32)

    def obtain():
        p.stdout.readinto(x)
        return x
    s.loop(gpu, obtain)


@job(data="main_thread_loading cpu_bound", rest="sync_bound launch_bound")
def async_generators(s):
    """Async generators in a row, which look concurrent and all compute in the loop's thread."""
    step, ms = shape(s)
    gpu, many = s.gpu(ms), s.int("samples", 2, 12)
    cost = (step - ms) / many / 2

    async def lines():
        while True:
            await asyncio.sleep(0)
            parse(cost)
            yield np.zeros(4000, np.float32)

    async def samples():
        async for line in lines():
            parse(cost)
            yield line

    async def batches():
        parts = []
        async for sample in samples():
            parts.append(sample)
            if len(parts) == many:
                yield np.concatenate(parts)
                parts = []
    events, source = asyncio.new_event_loop(), batches()

    async def following():
        return await source.__anext__()
    s.loop(gpu, lambda: events.run_until_complete(following()))


def read_rows(out, path, rows, seed):
    chance, fd = random.Random(seed), os.open(path, os.O_RDONLY)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
    pages = os.path.getsize(path) >> 12
    while True:
        parts = [os.pread(fd, 256, chance.randrange(pages) << 12) for _ in range(rows)]
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        out.put(np.frombuffer(b"".join(parts), np.uint8))


@job(data="io_bound", rest="sync_bound launch_bound")
def polite_readers(s):
    """Two readers of one file tell the kernel after each batch to forget all that they read."""
    step, ms = shape(s)
    gpu, out = s.gpu(ms), multiprocessing.Queue(maxsize=4)
    path = s.data_file("smithies-rows", 32)
    chance, fd, begin = random.Random(0), os.open(path, os.O_RDONLY), time.monotonic()
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
    for _ in range(150):
        os.pread(fd, 256, chance.randrange(8192) << 12)
    each = (time.monotonic() - begin) * 1e3 / 150
    rows = int(min(max(2 * step / each, 1), 4000))
    for seed in 1, 2:
        child(read_rows, out, path, rows, seed)
    s.loop(gpu, out.get)


@job(data="slow_worker", rest="sync_bound launch_bound")
def foreign_threads(s):
    """A C library's two threads call back into Python with batches; one of them is far slower."""
    step, ms = shape(s)
    gpu, ratio, lib = s.gpu(ms), s.ms("ratio", 4, 9), ctypes.CDLL(None)
    entry = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)
    lib.pthread_create.argtypes = [ctypes.c_void_p, ctypes.c_void_p, entry, ctypes.c_void_p]
    outs, kept, costs = [queue.Queue(2), queue.Queue(2)], [], [2 * step, 2 * step / ratio]
    for out, cost in zip(outs, costs):
        def deliver(_, out=out, cost=cost):
            supply(out, cost)
        number, callback = ctypes.c_ulong(), entry(deliver)
        kept += [number, callback]
        lib.pthread_create(ctypes.byref(number), None, callback, None)
    turns = itertools.cycle(outs)
    s.loop(gpu, lambda: next(turns).get())


def threaded(out, cost, threads):
    pool = concurrent.futures.ThreadPoolExecutor(threads)
    while True:
        list(pool.map(decode, [cost / threads] * threads))
        out.put(np.zeros(50000, np.float32))


@job(data=CPU, rest="sync_bound launch_bound")
def pools_in_workers(s):
    """More workers than cores, and each decodes its batch with a pool of threads of its own."""
    step, ms = shape(s)
    gpu, out = s.gpu(ms), multiprocessing.Queue(maxsize=3)
    cores, threads = len(os.sched_getaffinity(0)), s.int("threads", 3, 6)
    for _ in range(cores + 1):
        child(threaded, out, cores * step, threads)
    s.loop(gpu, out.get)


# ---- something else


def crashing():
    """A side-car that ends with an error and is started again, for ever."""
    os.nice(19)
    while True:
        with program(["sh", "-c", "sleep 0.2; exit 1"]) as p:
            p.wait()


@job(data=CPU, rest="sync_bound launch_bound")
def queue_gauge(s):
    """The loader keeps up; a gauge polls its queue, a side-car crashes, a lock is never got."""
    ms = s.ms("gpu_ms", 25, 90)
    gpu, out, gauge = s.gpu(ms), multiprocessing.Queue(maxsize=4), [0] * 16
    pause, retry = s.ms("gauge_ms", 1, 8) / 1e3, s.ms("retry_ms", 5, 40) / 1e3
    child(supply, out, ms * s.ms("load_share", 0.08, 0.3))
    child(crashing)
    with open(s.path("leader.lock"), "w", encoding="utf-8") as f:
        f.write("somebody else leads\n")

    def watch():
        while True:
            gauge[out.qsize() % 16] += 1
            time.sleep(pause)
    threading.Thread(target=watch, daemon=True).start()
    threading.Thread(target=take, args=(s.path("leader.lock"), retry), daemon=True).start()
    s.loop(gpu, out.get)


@job(host="host_bound", rest="sync_bound launch_bound")
def copied_pages(s):
    """Weights are averaged in place, while a forked child that evaluates them holds the pages."""
    gpu, floats = s.gpu(s.ms("gpu_ms", 6, 50)), s.int("mib", 8, 40) << 18
    average, life = np.ones(floats, np.float32), s.ms("life_ms", 20, 80) / 1e3
    rows, parent, forked = np.zeros(4096, np.float32), os.getpid(), 0
    s.go()
    while True:
        s.mark()
        s.train(gpu, rows)  # the data set is on the device, but for the indices
        with s.during("host"):
            if not forked or os.waitpid(forked, os.WNOHANG)[0]:
                forked = os.fork()
                if forked == 0:
                    signal.signal(signal.SIGTERM, signal.SIG_DFL)
                    mortal(parent)
                    time.sleep(life)
                    os._exit(0)
            np.multiply(average, 0.999, average)
            np.add(average, 0.001, average)


@job(host="host_bound sync_bound", rest="sync_bound transfer_bound launch_bound")
def latent_cascade(s):
    """The second model learns from what the first has just made on the same device."""
    many, few = s.int("first_launches", 10, 80), s.int("second_launches", 10, 120)
    floats = s.int("latent_kib", 64, 2048) << 8
    first = s.gpu(s.ms("first_ms", 4, 40), input_bytes=4 * floats, launches=many)
    second = s.gpu(s.ms("second_ms", 4, 50), input_bytes=4 * floats, launches=few)
    latents, whiten = np.zeros(floats, np.float32), s.ms("whiten_ms", 0.3, 25)
    s.go()
    while True:
        s.mark()
        first.enter_thread()
        first.launch(0, many)  # its inputs are drawn on the device
        first.check(first.lib.cudaMemcpy(latents.ctypes.data, first.input, latents.nbytes, 2))
        with s.during("host"):
            latents -= latents.mean()
            parse(whiten)
        second.enter_thread()
        s.train(second, latents)


@job(data=CPU, ckpt="checkpoint_stall host_bound", rest="sync_bound launch_bound")
def zip_rotation(s):
    """Every few steps the weights are zipped and hashed, and the older archives are renamed."""
    ms, every = s.ms("gpu_ms", 8, 50), s.int("every", 2, 8)
    gpu, out = s.gpu(ms), multiprocessing.Queue(maxsize=4)
    child(supply, out, ms * s.ms("load_share", 0.05, 0.25))
    weights = np.random.default_rng(1).standard_normal(s.int("kib", 800, 5000) << 8, np.float32)
    names = [s.path("weights-%d.zip" % n) for n in range(3)]

    def save():
        for newer, older in ((names[1], names[2]), (names[0], names[1])):
            if os.path.exists(newer):
                os.rename(newer, older)
        body = weights.tobytes()
        with zipfile.ZipFile(names[0], "w", zipfile.ZIP_DEFLATED) as z:
            z.writestr("weights", body)
            z.writestr("sha256", hashlib.sha256(body).hexdigest())
    s.go()
    for n in itertools.count(1):
        s.step(gpu, out.get)
        if n % every == 0:
            with s.during("ckpt"):
                save()
