# SPDX-License-Identifier: BSD-2-Clause
"""Loops as companies and labs run them today, with what surrounds them there."""
import asyncio
import collections
import concurrent.futures
import contextlib
import ctypes
import http.client
import http.server
import itertools
import json
import lzma
import mmap
import multiprocessing
import os
import queue
import random
import sqlite3
import subprocess
import threading
import time

import numpy as np

from stranger import CPU, child, decode, job, parse


def piped(out, cost, size):
    batch = np.zeros(size, np.uint8)
    while True:
        decode(cost)
        out.send_bytes(batch)


def in_time(j, ms):
    """A loader process that sends bytes through a pipe and is fast enough."""
    mine, theirs = multiprocessing.Pipe(duplex=False)
    child(piped, theirs, ms * j.ms("load_share", 0.05, 0.25), j.int("kib", 200, 700) << 10)
    return lambda: np.frombuffer(mine.recv_bytes(), np.uint8)


class Quiet(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def answer(self, status, body=b""):
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def serve(j, handler):
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.handle_error = lambda *_: None  # the job has ended
    j.tell("port", server.server_address[1])
    server.serve_forever()


# ---- the device is busy


@job(data="main_thread_loading", rest="sync_bound launch_bound")
def memmap_packed(j):
    """LLM pre-training over packed tokens; the file is mapped anew for each batch, but cached."""
    gpu = j.gpu(j.ms("gpu_ms", 22, 95), input_bytes=4 << 20)
    rows, context, mib = j.int("rows", 24, 128), j.one("context", 512, 1024), j.int("mib", 16, 48)
    path, dice = j.path("train.bin"), np.random.default_rng(j.int("dice", 1, 1000))
    for _ in range(mib):
        with open(path, "ab") as f:
            f.write(dice.integers(0, 50257, 1 << 19, np.uint16))

    def get_batch():
        with j.during("data"):
            tokens = np.memmap(path, np.uint16, "r")  # one that is kept grows in RSS
            starts = dice.integers(0, len(tokens) - context - 1, rows)
            return np.stack([tokens[i:i + context + 1].astype(np.int64) for i in starts])
    j.go()
    x = get_batch()
    while True:
        j.mark()
        j.train(gpu, x, item=False)
        x = get_batch()  # while the device works
        gpu.loss_item()


def controller(j):
    """A control plane that holds each heartbeat's answer back, in case it has an order."""
    late = j.ms("poll_ms", 30, 900)

    class Handler(Quiet):
        def do_POST(self):
            self.rfile.read(int(self.headers["Content-Length"]))
            time.sleep(late / 1e3)
            self.answer(200, b'{"order": null}')
    serve(j, Handler)


@job(outside=controller, data=CPU, rest="sync_bound launch_bound")
def heartbeat_poll(j):
    """A thread sends heartbeats and waits long for each answer; another samples /proc."""
    ms = j.ms("gpu_ms", 20, 90)
    gpu, batch, every = j.gpu(ms), in_time(j, ms), j.ms("sample_ms", 20, 200) / 1e3
    state, samples, port = {"step": 0}, collections.deque(maxlen=256), int(j.told("port"))

    def beat():
        link = http.client.HTTPConnection("127.0.0.1", port)
        while True:
            link.request("POST", "/heartbeat", json.dumps({**state, "system": list(samples)}))
            json.loads(link.getresponse().read())

    def sample():
        while True:
            for name in ("stat", "status", "io"):
                with contextlib.suppress(OSError), open("/proc/self/" + name, "rb") as f:
                    samples.append(len(f.read()))
            time.sleep(every)
    for f in (beat, sample):
        threading.Thread(target=f, daemon=True).start()
    j.go()
    while True:
        j.step(gpu, batch)
        state["step"] += 1


RESAMPLER = r"""
#include <stddef.h>
#include <time.h>

static double cpu_ms(void)
{
	struct timespec t;
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return t.tv_sec * 1e3 + t.tv_nsec / 1e6;
}

/* 44.1 kHz to 16 kHz, 32 taps a phase; clip after clip until the batch is full. */
void resample(const float *in, float *out, size_t n, const float *taps, double ms)
{
	for (double end = cpu_ms() + ms; cpu_ms() < end;)
		for (size_t i = 0; i < n; i++) {
			size_t at = i * 441 / 160;
			float sum = 0;
			for (int k = 0; k < 32; k++)
				sum += in[at + k] * taps[i * 441 % 160 * 32 + k];
			out[i] = sum;
		}
}
"""


@job(data=CPU, threads=True, rest="sync_bound launch_bound")
def resample_pool(j):
    """Speech: a pool of threads resamples in C; the loop waits for it with steps queued."""
    ms, every = j.ms("gpu_ms", 18, 80), j.int("log_every", 4, 10)
    gpu, threads, floats = j.gpu(ms), j.int("threads", 1, 2), j.int("kfloats", 60, 250) << 10
    cost = ms * j.ms("load_share", 0.3, 0.6) * threads
    with open(j.path("resample.c"), "w", encoding="ascii") as f:
        f.write(RESAMPLER)
    subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", j.path("resample.so"),
                    j.path("resample.c")], check=True)
    lib = ctypes.CDLL(j.path("resample.so"))
    lib.resample.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p,
                             ctypes.c_double]
    dice = np.random.default_rng(1)
    taps, wave = dice.random(160 * 32, np.float32), dice.random(4096 * 3, np.float32)

    def make():
        out = np.zeros(floats, np.float32)
        lib.resample(wave.ctypes.data, out.ctypes.data, 4096, taps.ctypes.data, cost)
        return out
    pool = concurrent.futures.ThreadPoolExecutor(threads, "resample")
    pending = collections.deque(pool.submit(make) for _ in range(threads + 1))

    def batch():
        pending.append(pool.submit(make))
        return pending.popleft().result()
    j.go()
    for n in itertools.count(1):
        j.mark()
        with j.during("data"):
            x = batch()
        j.train(gpu, x, item=n % every == 0)


# ---- something other than data


@job(data=CPU, lock="lock_bound", rest="sync_bound launch_bound transfer_bound")
def ema_lock(j):
    """A thread averages the weights on the host; holding the lock that the loop publishes under."""
    ms, floats = j.ms("gpu_ms", 8, 35), j.int("kfloats", 128, 768) << 10
    gpu, batch = j.gpu(ms, input_bytes=4 * floats), in_time(j, ms)
    hold = ms * j.ms("hold_share", 1.7, 3.2)
    weights, shadow, part = (np.ones(floats, np.float32) for _ in range(3))
    lock, fresh = threading.Lock(), threading.Event()

    def average(of):
        end = time.thread_time() + hold / 1e3
        while time.thread_time() < end:  # for each of the model's parts
            np.multiply(of, 1e-4, part)
            np.multiply(shadow, 0.9999, shadow)
            np.add(shadow, part, shadow)

    def averaging():
        while True:
            fresh.wait()
            fresh.clear()
            if j.fix:
                with lock:
                    copy = weights.copy()
                average(copy)
            else:
                with lock:
                    average(weights)
    threading.Thread(target=averaging, name="ema", daemon=True).start()
    j.go()
    while True:
        j.step(gpu, batch)
        with j.during("lock"):
            lock.acquire()
        gpu.check(gpu.lib.cudaMemcpy(weights.ctypes.data, gpu.input, weights.nbytes, 2))
        lock.release()
        fresh.set()


@job(data="main_thread_loading", host="host_bound",
     rest="sync_bound launch_bound")
def study_storage(j):
    """A sweep in one process: each step is reported to SQLite, and a pruner reads all of them."""
    ms, steps = j.ms("gpu_ms", 8, 45), j.int("steps", 20, 60)
    gpu, propose_ms = j.gpu(ms), ms * j.ms("propose_share", 0.5, 4)
    prune_ms, kept = ms * j.ms("prune_share", 0.3, 1.2), j.int("trials_kept", 20, 60)
    features = np.random.default_rng(1).random((4096, j.int("columns", 200, 900)), np.float32)
    dice, rows = random.Random(j.int("dice", 1, 1000)), j.int("batch", 256, 512)
    db = sqlite3.connect(j.path("study.db"), isolation_level=None)
    db.execute("CREATE TABLE reports (trial INTEGER, step INTEGER, value REAL)")
    db.execute("CREATE INDEX at ON reports (step)")

    def should_prune(trial, step):
        db.execute("INSERT INTO reports VALUES (?, ?, ?)", (trial, step, dice.random()))
        seen = [v for v, in db.execute("SELECT value FROM reports WHERE step = ?", (step,))]
        parse(prune_ms)  # each trial's JSON attributes, for the percentile
        return len(seen) > 8 and seen[-1] < sorted(seen)[len(seen) // 10]
    j.go()
    for trial in itertools.count():
        with j.during("host"):
            parse(propose_ms)  # TPE
            db.execute("DELETE FROM reports WHERE trial < ?", (trial - kept,))
        order = np.random.default_rng(trial).permutation(len(features))
        for step in range(steps):
            at = step * rows % (len(order) - rows)
            j.step(gpu, lambda: features[order[at:at + rows]])
            if not j.fix:  # else trials run to their end and are written then
                with j.during("host"):
                    if should_prune(trial, step):
                        break


def upstream(j):
    """A crawler that drops a file of work into the spool now and then."""
    pause, size = float(j.told("pause")) / 1e3, int(j.told("size"))
    spool, dice = j.told("spool"), random.Random(j.int("dice", 1, 1000))
    body = os.urandom(size)
    for n in itertools.count():
        with contextlib.suppress(OSError):  # the job has ended
            while len(os.listdir(spool)) > 8:
                time.sleep(0.002)
            with open(os.path.join(spool, "%08d.part" % n), "wb") as f:
                f.write(body)
            os.rename(f.name, os.path.join(spool, "%08d.todo" % n))
        if pause:
            time.sleep(pause * dice.lognormvariate(0, 0.3))


@job(outside=upstream, demand="no_demand host_bound insufficient_data",
     data="main_thread_loading", host="host_bound",
     rest="sync_bound launch_bound")
def spool_poll(j):
    """Offline inference: polls a spool folder for work, claims it, and appends answers."""
    ms, poll = j.ms("gpu_ms", 10, 60), j.ms("poll_ms", 1, 10) / 1e3
    gpu, spool = j.gpu(ms, input_bytes=2 << 20), j.path("work")
    os.mkdir(spool)
    pause = (ms + 5) * j.ms("pause_share", 1.7, 5)
    j.tell("pause", 0 if j.fix else pause)
    j.tell("size", j.int("kib", 200, 1500) << 10)
    j.tell("spool", spool)
    answers = open(j.path("answers.jsonl"), "w", encoding="utf-8")
    j.go()
    while True:
        with j.during("demand"):
            while not (todo := sorted(n for n in os.listdir(spool) if n.endswith(".todo"))):
                time.sleep(poll)
        for name in todo:
            j.mark()
            with j.during("data"):
                mine = os.path.join(spool, name[:8] + ".mine")
                os.rename(os.path.join(spool, name), mine)
                x = np.fromfile(mine, np.uint8)
            j.train(gpu, x)
            with j.during("host"):
                answers.write(json.dumps({"file": name, "score": gpu.loss.value}) + "\n")
                os.unlink(mine)


# ---- the data


@job(data="main_thread_loading slow_first_batch", rest="sync_bound launch_bound")
def shuffle_fill(j):
    """A generator unpacks .xz shards into a shuffle buffer, which each epoch fills anew."""
    ms, steps = j.ms("gpu_ms", 8, 40), j.int("steps", 8, 25)
    gpu, fill_ms = j.gpu(ms), ms * steps * j.ms("fill_share", 0.5, 1.6)
    one_ms, size = ms * j.ms("one_share", 0.01, 0.06), j.int("kib", 200, 900) << 10
    dice, text = random.Random(j.int("dice", 1, 1000)), b"".join(
        b"%d the quick brown fox %x\n" % (n, n * n) for n in range(12000))
    paths = [j.path("shard-%d.xz" % n) for n in range(4)]
    for path in paths:
        with lzma.open(path, "wb", preset=1) as f:
            f.write(text)
    shards = itertools.cycle(paths)

    def documents(cost):
        end, found = time.thread_time() + cost / 1e3, []
        while time.thread_time() < end or not found:
            with open(next(shards), "rb") as f:
                unpack, packed = lzma.LZMADecompressor(), f.read()
            while not unpack.eof and time.thread_time() < end:
                found += unpack.decompress(packed, 1 << 14).splitlines()[:64]
                packed = b""
            found.append(b"")
        return found

    def samples():
        buffer = []
        while True:  # epochs
            if not buffer or not j.fix:
                buffer = documents(fill_ms)[:4096]
            for _ in range(steps):
                fresh = documents(one_ms)
                batch = np.zeros(size, np.uint8)
                for n in range(64):
                    at = dice.randrange(len(buffer))
                    line, buffer[at] = buffer[at], fresh[n % len(fresh)]
                    batch[n * 128:n * 128 + len(line)] = np.frombuffer(line, np.uint8)
                yield batch
    source = samples()
    j.loop(gpu, lambda: next(source))


@job(data=CPU, threads=True, rest="sync_bound launch_bound")
def window_swap(j):
    """Forecasting: a thread cuts windows from a long series into one of two buffers, by turns."""
    ms, length = j.ms("gpu_ms", 8, 40), j.one("length", 512, 1024, 2048)
    gpu, cost = j.gpu(ms, input_bytes=4 << 20), ms * j.ms("load_share", 1.4, 3)
    if j.fix:
        cost /= 8
    series = np.random.default_rng(1).standard_normal(4 << 20, np.float32).cumsum()
    dice, rows = np.random.default_rng(j.int("dice", 1, 1000)), j.int("windows", 100, 400)
    buffers = [np.zeros((rows, length), np.float32) for _ in range(2)]
    turn, ready = threading.Condition(), [False, False]
    windows = np.lib.stride_tricks.sliding_window_view(series, length)

    def cut():
        for at in itertools.cycle((0, 1)):
            with turn:
                while ready[at]:
                    turn.wait(5)
            end = time.thread_time() + cost / 1e3
            while time.thread_time() < end:
                few = windows[dice.integers(0, len(windows), 32)]
                few = few - few.mean(1, keepdims=True)
                few /= few.std(1, keepdims=True) + 1e-6
                row = dice.integers(0, rows - 32)
                buffers[at][row:row + 32] = few
            with turn:
                ready[at] = True
                turn.notify()
    threading.Thread(target=cut, daemon=True).start()
    j.go()
    for at in itertools.cycle((0, 1)):
        j.mark()
        with j.during("data"), turn:
            while not ready[at]:
                turn.wait(5)
        j.train(gpu, buffers[at])
        with turn:
            ready[at] = False
            turn.notify()


def key_values(j):
    """A key-value server of features, in the manner of memcached."""
    late, spread = float(j.told("late")) / 1e3, j.ms("sigma", 0.02, 0.2)
    dice = random.Random(j.int("dice", 1, 1000))

    async def answer(reader, writer):
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            while line := await reader.readline():
                _, key, size = line.split()
                await asyncio.sleep(late * dice.lognormvariate(0, spread))
                writer.write(b"VALUE %s 0 %s\r\n" % (key, size) + bytes(int(size)))
                await writer.drain()

    async def main():
        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        j.tell("port", server.sockets[0].getsockname()[1])
        await server.serve_forever()
    asyncio.run(main())


@job(outside=key_values, data="network_bound too_few_workers", threads=True,
     rest="sync_bound launch_bound")
def kv_features(j):
    """A recommender: a thread's asyncio loop looks up users, then items, then their features."""
    ms, links = j.ms("gpu_ms", 8, 40), j.int("links", 2, 8)
    gpu, size = j.gpu(ms), (j.int("kib", 200, 800) << 10) // links
    late = ms * j.ms("late_share", 1.6, 3.5) / 3
    j.tell("late", late / 20 if j.fix else late)
    port, loop, free = int(j.told("port")), asyncio.new_event_loop(), []
    threading.Thread(target=loop.run_forever, name="lookups", daemon=True).start()

    async def connect():
        for _ in range(links):
            free.append(await asyncio.open_connection("127.0.0.1", port))

    async def get(link, key, many):
        reader, writer = link
        writer.write(b"get %s %d\r\n" % (key, many))
        await reader.readline()
        return await reader.readexactly(many)

    async def fetch(n):
        user = await get(free[0], b"user:%d" % n, 400)
        items = await get(free[0], b"items:%d" % len(user), 4000)
        parts = await asyncio.gather(*(
            get(link, b"feature:%d:%d" % (k, len(items)), size) for k, link in enumerate(free)))
        return np.frombuffer(b"".join(parts), np.uint8)

    def start(what):
        return asyncio.run_coroutine_threadsafe(what, loop)
    start(connect()).result()
    numbers = itertools.count()
    ahead = collections.deque([start(fetch(next(numbers)))])

    def batch():
        x = ahead.popleft().result()
        ahead.append(start(fetch(next(numbers))))
        return x
    j.loop(gpu, batch)


def play(counters, slots, cost, seed):
    dice = random.Random(seed)
    while True:
        parse(cost * dice.uniform(0.8, 1.2))  # the game, in Python
        while counters[0] - counters[1] >= len(slots):
            time.sleep(0.0005)
        slots[int(counters[0]) % len(slots)][:] = seed
        counters[0] += 1


@job(data=CPU, rest="sync_bound launch_bound")
def shm_learner(j):
    """An RL learner polls rings in shared memory, which actors fill; nobody calls anybody."""
    ms, actors = j.ms("gpu_ms", 8, 40), j.int("actors", 1, 2)
    gpu, size = j.gpu(ms), j.int("kib", 200, 1000) << 10
    cost, nap = ms * j.ms("play_share", 1.3, 3) * actors, j.ms("nap_ms", 0.2, 2) / 1e3
    if j.fix:
        cost /= 8
    rings = []
    for n in range(actors):
        memory = mmap.mmap(-1, 4096 + 4 * size)
        ring = np.frombuffer(memory, np.int64, 2), [
            np.frombuffer(memory, np.uint8, size, 4096 + k * size) for k in range(4)]
        pid = child(play, *ring, cost, n + 1).pid
        rings.append(ring)
    if actors == 1:
        j.supplier(pid)
    x = np.zeros(size, np.uint8)

    def rollout():
        while True:
            for counters, slots in rings:
                if counters[1] < counters[0]:
                    x[:] = slots[int(counters[1]) % len(slots)]
                    counters[1] += 1
                    return x
            time.sleep(nap)
    j.loop(gpu, rollout)


def overloaded(j):
    """An object store; for some keys it answers 503 until it was asked often enough."""
    one_in, size = int(j.told("one_in")), int(j.told("size"))
    dice, left, lock = random.Random(j.int("dice", 1, 1000)), {}, threading.Lock()
    body = bytes(size)

    class Handler(Quiet):
        def do_GET(self):
            with lock:
                if self.path not in left:
                    left[self.path] = 3 if one_in and dice.randrange(one_in) == 0 else 0
                left[self.path] -= 1
                refused = left[self.path] >= 0
            if refused:
                self.answer(503)
            else:
                self.answer(200, body)
    serve(j, Handler)


def fetching(out, port, base, cost):
    link = http.client.HTTPConnection("127.0.0.1", port)

    def get(key):
        for attempt in itertools.count():
            link.request("GET", "/%d" % key)
            answer = link.getresponse()
            body = answer.read()
            if answer.status == 200:
                return body
            time.sleep(base * 2 ** attempt)
    for key in itertools.count():
        x = np.frombuffer(get(key), np.uint8)
        decode(cost)
        out.put(x)


@job(outside=overloaded, data="slow_item too_few_workers", rest="sync_bound launch_bound")
def retry_backoff(j):
    """A data set that retries: few objects answer 503 three times, and each time it sleeps more."""
    ms, one_in = j.ms("gpu_ms", 8, 26), j.int("one_in", 12, 20)
    gpu, cost = j.gpu(ms), ms * j.ms("load_share", 0.15, 0.45)
    base = ms / 1e3 * j.ms("backoff_share", 16, 26) / 7
    j.tell("size", j.int("kib", 200, 700) << 10)
    j.tell("one_in", 0 if j.fix else one_in)
    out = multiprocessing.Queue(maxsize=2)
    j.supplier(child(fetching, out, int(j.told("port")), base, cost).pid)
    j.loop(gpu, out.get)


@job(data="lock_bound", threads=True, rest="lock_bound")
def jsonl_pool(j):
    """JSON lines are parsed in a ThreadPoolExecutor, which Python's lock makes one thread."""
    ms, threads = j.ms("gpu_ms", 12, 60), j.int("threads", 2, 4)
    gpu, size = j.gpu(ms, launches=j.int("launches", 4, 10)), j.int("kib", 200, 900) << 10
    cost, done = ms * j.ms("load_share", 1.3, 2.8), queue.SimpleQueue()

    def lines():
        if j.fix:
            decode(cost * 0.3)  # a parser in C++ that lets go of the lock
        else:
            parse(cost)
        done.put(np.zeros(size, np.uint8))
    pool = concurrent.futures.ThreadPoolExecutor(threads, "jsonl")
    for _ in range(threads + 1):
        pool.submit(lines)

    def batch():
        x = done.get()
        pool.submit(lines)
        return x
    j.loop(gpu, batch)
