# SPDX-License-Identifier: BSD-2-Clause
"""Jobs as on a railway: what else lives in the process or beside it, and whether it holds up the loop."""
import asyncio
import cProfile
import gc
import hashlib
import http.client
import http.server
import itertools
import multiprocessing
import os
import queue
import random
import signal
import socket
import threading
import time
import weakref
from ctypes import byref, c_void_p

import numpy as np

from stranger import CPU, child, decode, job, mortal, parse


def supply(out, cost, size):
    while True:
        decode(cost)
        out.put(np.zeros(size, np.float32))


def supplied(cost, size=50000, depth=4):
    """An ordinary loader: a process that decodes, and a queue. Returns get and the pid."""
    out = multiprocessing.Queue(maxsize=depth)
    return out.get, child(supply, out, cost, size).pid


def kept_up(s, gpu_ms):
    """A loader that needs a small part of what the GPU needs."""
    return supplied(gpu_ms * s.ms("load_share", 0.05, 0.25))[0]


# ---- locks


class Line:
    """Many readers or one writer; who reads does not make way for a writer that waits."""

    def __init__(self):
        self.moved, self.readers, self.writing = threading.Condition(), 0, False

    def enter(self):
        with self.moved:
            self.moved.wait_for(lambda: not self.writing)
            self.readers += 1

    def leave(self):
        with self.moved:
            self.readers -= 1
            self.moved.notify_all()

    def claim(self):
        with self.moved:
            self.moved.wait_for(lambda: not self.readers)
            self.writing = True

    def clear(self):
        with self.moved:
            self.writing = False
            self.moved.notify_all()


@job(data=CPU, lock="lock_bound host_bound", rest="sync_bound launch_bound")
def single_line(s):
    """Two threads answer from the live weights under read locks; to blame is the write lock, for which
    the loop waits before each optimizer step until no reader is there."""
    ms = s.ms("gpu_ms", 10, 45)
    gpu, batch = s.gpu(ms), kept_up(s, ms)
    answer = ms * s.ms("answer_share", 0.35, 1)
    pause, line = answer * s.ms("pause_share", 0.6, 1.5) / 1e3, Line()
    read = Line() if s.fix else line  # as if they had a copy

    def serve(chance):
        while True:
            read.enter()
            decode(answer)
            read.leave()
            time.sleep(pause * chance.uniform(0.5, 1.5))
    for n in range(2):
        threading.Thread(target=serve, args=(random.Random(n),), daemon=True).start()
    s.go()
    while True:
        s.mark()
        with s.during("data"):
            x = batch()
        gpu.upload(x.ctypes.data, x.nbytes)
        gpu.forward()
        gpu.backward()
        gpu.loss_item()
        with s.during("lock"):
            line.claim()
        gpu.optimizer()
        line.clear()


@job(data="lock_bound", rest="sync_bound launch_bound")
def platform_gauge(s):
    """A thread has batches ready in a queue.Queue; to blame is a gauge thread, which checks what waits there
    with the queue's own mutex held, so that get() has to wait for a lock and not for a batch."""
    ms = s.ms("gpu_ms", 12, 45)
    gpu, load = s.gpu(ms), ms * s.ms("load_share", 0.05, 0.2)
    hold, pause = ms * s.ms("hold_share", 1.2, 2.5), ms * s.ms("pause_share", 0.08, 0.3) / 1e3
    size, ready = s.int("floats", 10000, 200000), queue.Queue(maxsize=8)

    def make():
        while True:
            decode(load)
            ready.put(np.zeros(size, np.float32))

    def gauge():
        while True:
            with threading.Lock() if s.fix else ready.mutex:
                decode(hold)
            time.sleep(pause)
    threading.Thread(target=make, daemon=True).start()
    while not ready.full():
        time.sleep(0.01)
    threading.Thread(target=gauge, daemon=True).start()
    s.loop(gpu, ready.get)


def scraping(s):
    """A monitoring system that asks for the metrics far too often."""
    pause = s.ms("pause_ms", 8, 50) / 1e3
    link = http.client.HTTPConnection("127.0.0.1", int(s.told("port")))
    s.told("go")
    while True:
        link.request("GET", "/metrics")
        link.getresponse().read()
        time.sleep(pause)


@job(outside=scraping, data="lock_bound", threads=True, rest="lock_bound")
def enquiry_office(s):
    """The loader keeps up; to blame is the interpreter's lock: a thread of the trainer answers scrapes, and
    writes thousands of series as text in Python, while the loop wants to launch."""
    ms, render = s.ms("gpu_ms", 12, 50), s.ms("render_ms", 40, 160)
    gpu, batch = s.gpu(ms, launches=s.int("launches", 6, 12)), kept_up(s, ms)

    class Metrics(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self):
            (decode if s.fix else parse)(render)
            body = b"train_loss 0.5\n" * 400
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Metrics)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    s.tell("port", server.server_address[1])
    s.loop(gpu, batch)


# ---- saving


def dispatcher(s):
    """A batch system that says again and again that the job may soon have to go, and lets it stay."""
    pid, pause = int(s.told("pid")), float(s.told("pause")) / 1e3
    s.told("go")
    while os.path.exists("/proc/%d" % pid):
        os.kill(pid, signal.SIGUSR1)
        time.sleep(pause * s.random.uniform(0.6, 1.4))


@job(outside=dispatcher, data=CPU, ckpt="checkpoint_stall host_bound", rest="sync_bound launch_bound")
def red_signal(s):
    """The loader keeps up; to blame are the emergency checkpoints, which the loop packs and writes at the end
    of a step whenever a SIGUSR1 of the batch system has announced a preemption that never follows."""
    ms, pause = s.ms("gpu_ms", 8, 40), s.ms("pause_ms", 80, 350)
    gpu, batch = s.gpu(ms), kept_up(s, ms)
    pack, blocks = pause * s.ms("pack_share", 0.35, 1.4), s.int("blocks", 4, 16)
    block, warned = np.ones(s.int("kib", 100, 800) << 8, np.float32), []
    signal.signal(signal.SIGUSR1, lambda *_: None if s.fix else warned.append(1))
    s.tell("pause", pause)
    s.tell("pid", os.getpid())
    s.go()
    while True:
        s.step(gpu, batch)
        if not warned:
            continue
        warned.clear()
        with s.during("ckpt"):
            with open(s.path("preempted.part"), "wb", buffering=0) as f:
                for _ in range(blocks):
                    decode(pack / blocks)
                    f.write(block)
                os.fsync(f.fileno())
            os.rename(s.path("preempted.part"), s.path("preempted.ckpt"))


@job(data=CPU, ckpt="checkpoint_stall host_bound", rest="sync_bound launch_bound")
def sealed_wagons(s):
    """The loader keeps up; to blame are checkpoints that are synced, dropped from the page cache, and read
    back by the loop to compare their digest: files are read, but it is not data."""
    ms, every = s.ms("gpu_ms", 12, 40), s.int("every", 2, 6)
    gpu, batch = s.gpu(ms), kept_up(s, ms)
    state, path = np.random.default_rng(1).random(s.int("mib", 24, 64) << 17), s.path("state.ckpt")
    seal = hashlib.sha256(state).digest()
    s.go()
    for n in itertools.count(1):
        s.step(gpu, batch)
        if n % every or s.fix:
            continue
        with s.during("ckpt"):
            with open(path, "wb", buffering=0) as f:
                f.write(state)
            s.cold(path)
            digest = hashlib.sha256()
            with open(path, "rb", buffering=0) as f:
                while block := f.read(1 << 20):
                    digest.update(block)
            assert digest.digest() == seal


@job(data=CPU, ckpt="checkpoint_stall host_bound", rest="sync_bound launch_bound")
def shunting_yard(s):
    """Nothing is to blame: every few steps the loop packs and writes the weights that it has on the host, but
    only after it has launched a step, whose kernels take longer than that."""
    ms, every = s.ms("gpu_ms", 25, 80), s.int("every", 1, 4)
    gpu, batch = s.gpu(ms), kept_up(s, ms)
    pack = ms * s.ms("pack_share", 0.2, 0.6)
    state = np.ones(s.int("kib", 100, 1500) << 8, np.float32)
    s.go()
    for n in itertools.count(1):
        s.mark()
        with s.during("data"):
            x = batch()
        s.train(gpu, x, item=False)
        if n % every == 0 and not s.fix:
            with s.during("ckpt"):
                decode(pack)
                with open(s.path("weights-%d.bin" % (n // every % 3)), "wb", buffering=0) as f:
                    f.write(state)
        gpu.loss_item()


@job(data=CPU, peer="host_bound sync_bound", rest="sync_bound launch_bound")
def block_posts(s):
    """Two equal ranks meet by files in a shared folder, as with a file store; neither is late, and to
    blame is the pause that the one which comes first sleeps between two looks at the folder."""
    ms, launches = s.ms("gpu_ms", 10, 40), s.int("launches", 10, 80)
    poll = (1 if s.fix else ms * s.ms("poll_share", 0.7, 2.5)) / 1e3
    load = ms * s.ms("load_share", 0.05, 0.15)
    os.mkdir(s.path("posts"))
    post, parent = os.path.join(s.path("posts"), "%d.%d"), os.getpid()
    for rank in range(2):
        if os.fork():
            continue
        mortal(parent, signal.SIGTERM)  # it has a log to write
        s.rank(rank)
        gpu, batch, chance = s.gpu(ms, launches=launches), supplied(load)[0], random.Random(rank)
        s.told("go")
        for n in itertools.count():
            s.step(gpu, batch)
            gpu.launch(2, chance.randint(0, 1))  # now and then a bucket more
            gpu.sync(False)
            with s.during("peer"):
                open(post % (n, rank), "wb").close()
                while not os.path.exists(post % (n, 1 - rank)):
                    time.sleep(poll)
                if n:
                    os.unlink(post % (n - 1, rank))  # the other one is past it
    s.go()
    signal.pause()


# ---- helpers that take what the loader needs, or live in it


@job(data=CPU, host="host_bound", rest="sync_bound launch_bound")
def overdue_trains(s):
    """The loader alone would nearly keep up; to blame are evaluations on the CPU, started every few steps as
    processes, of which the older ones have not ended yet: the loader has to share the cores with them."""
    ms, every = s.ms("gpu_ms", 10, 40), s.int("every", 3, 8)
    gpu, cost = s.gpu(ms), ms * s.ms("load_share", 0.8, 1.2)
    score, running = ms * every * s.ms("overdue", 2, 4), []
    batch, pid = supplied(cost / 4 if s.fix else cost)
    s.supplier(pid)
    s.go()
    for n in itertools.count():
        s.step(gpu, batch)
        if n % every or s.fix:
            continue
        with s.during("host"):
            running = [p for p in running if p.is_alive()]
            if len(running) < 4:  # else this one is left out
                running.append(child(decode, score))


def sweep(out, cost, own, size, fix):
    """Notes are kept as Python objects, and the collector walks all of them after each batch."""
    notes, took = [], 0.0
    while took < cost and not fix:
        notes.extend({"box": [n, n], "label": (n, [n])} for n in range(5000))
        begin = time.thread_time()
        gc.collect()
        took = 1e3 * (time.thread_time() - begin)
    out.put(None)
    while True:
        decode(own)
        gc.collect(0 if fix else 2)
        out.put(np.zeros(size, np.float32))


@job(data=CPU, rest="sync_bound launch_bound")
def ash_pit(s):
    """A loader process decodes in time; to blame is gc.collect(), which it calls after each batch against a
    leak of old, and which computes: it walks the notes of the whole data set."""
    ms = s.ms("gpu_ms", 10, 40)
    gpu, out = s.gpu(ms), multiprocessing.Queue(maxsize=3)
    cost, own = ms * s.ms("collect_share", 1.1, 2.4), ms * s.ms("decode_share", 0.15, 0.4)
    maker = child(sweep, out, cost, own, s.int("floats", 10000, 100000), s.fix)
    s.supplier(maker.pid)
    out.get()
    s.loop(gpu, out.get)


def tap(wheel):
    return wheel + 1


def tap_all(wheels):
    n = 0
    for _ in range(wheels):
        n = tap(n)


def tapping(out, wheels, profiled, size):
    profile = cProfile.Profile()  # it ends with its last reference
    if profiled:
        profile.enable()
    while True:
        tap_all(wheels)
        out.put(np.zeros(size, np.float32))


@job(data="slow_worker", rest="sync_bound launch_bound")
def wheel_tapper(s):
    """Two or three equal loader processes take turns; to blame is one of them, in which somebody left
    cProfile on, so that the same Python takes it several times as long."""
    ms, many = s.ms("gpu_ms", 10, 40), s.int("workers", 2, 3)
    gpu, size, left = s.gpu(ms), s.int("floats", 10000, 100000), s.int("profiled", 0, many - 1)
    profile = cProfile.Profile()
    profile.enable()
    begin = time.thread_time()
    tap_all(100000)
    each = (time.thread_time() - begin) * 1e3 / 100000
    profile.disable()
    wheels = int(many * ms * s.ms("late_share", 1.4, 2.2) / each)
    queues = [multiprocessing.Queue(maxsize=2) for _ in range(many)]
    makers = [child(tapping, q, wheels, n == left and not s.fix, size)
              for n, q in enumerate(queues)]
    s.supplier(makers[left].pid)
    turn = itertools.cycle(queues)
    s.loop(gpu, lambda: next(turn).get())


def leading(out, link, cost, size):
    for n in itertools.count():
        decode(cost)
        link.send(n)
        out.put(np.zeros(size, np.float32))


def standing_by(out, told, link, cost, size):
    """Makes what the first one makes, and throws it away as long as the first one lives."""
    link.close()
    try:
        while True:
            told.recv()
            decode(cost)
    except EOFError:
        supply(out, cost, size)


@job(data=CPU, rest="sync_bound launch_bound")
def relief_crew(s):
    """Nothing is to blame: a loader process keeps up, a second one makes each batch as well, to take over if
    the first one dies, and a thread arms a new watchdog timer again and again."""
    ms = s.ms("gpu_ms", 25, 80)
    gpu, cost, size = s.gpu(ms), ms * s.ms("load_share", 0.2, 0.45), s.int("floats", 10000, 200000)
    out, (told, link) = multiprocessing.Queue(maxsize=4), multiprocessing.Pipe(duplex=False)
    child(leading, out, link, cost, size)
    child(standing_by, out, told, link, cost, size)
    link.close()
    told.close()
    pause = s.ms("pause_ms", 10, 60) / 1e3

    def watch():
        while True:
            timer = threading.Timer(60, os.abort)
            timer.daemon = True
            timer.start()
            time.sleep(pause)
            timer.cancel()
    threading.Thread(target=watch, daemon=True).start()
    s.loop(gpu, out.get)


# ---- the process itself


class Wagon:
    """A batch that is accounted for when nobody holds it any more."""

    def __init__(self, load, account, cost):
        self.load = load
        weakref.finalize(self, account, cost)


@job(data=CPU, host="host_bound", rest="sync_bound launch_bound")
def brake_van(s):
    """A busy loader process keeps up; to blame is a finalizer of each batch, which runs Python in the loop's
    thread when the loop lets go of it, to enter its samples in the books."""
    ms = s.ms("gpu_ms", 10, 45)
    gpu, batch = s.gpu(ms), supplied(ms * s.ms("load_share", 0.5, 0.8), depth=6)[0]
    cost = ms * (0.01 if s.fix else s.ms("account_share", 0.3, 1.3))
    s.go()
    while True:
        s.mark()
        with s.during("data"):
            wagon = Wagon(batch(), parse, cost)
        s.train(gpu, wagon.load)
        with s.during("host"):
            wagon = None


@job(data=CPU, rest="sync_bound launch_bound")
def shared_track(s):
    """Nothing is to blame: a thread evaluates on a stream of its own all the time, so that a training step
    may take longer than it would alone, but the device has work and the loader keeps up."""
    ms = s.ms("gpu_ms", 25, 70)
    gpu, many = s.gpu(ms, launches=s.int("launches", 10, 80)), s.int("exam_launches", 5, 30)
    exam = s.gpu(ms * s.ms("exam_share", 0.2, 0.7), launches=many)
    batch, score = kept_up(s, ms), s.ms("score_ms", 0.5, 4)
    pause, held_out = s.ms("pause_ms", 2, 30) / 1e3, np.zeros(20000, np.float32)
    exam.stream = c_void_p()
    exam.check(exam.lib.cudaStreamCreate(byref(exam.stream)))

    def evaluate():
        exam.enter_thread()
        while not s.fix:
            exam.upload(held_out.ctypes.data, held_out.nbytes)
            exam.launch(0, many)
            exam.sync(False)
            decode(score)
            time.sleep(pause)
    gpu.enter_thread()
    threading.Thread(target=evaluate, daemon=True).start()
    s.loop(gpu, batch)


def passengers(s):
    """Most of them ask what somebody has asked before."""
    rate, fresh, port = float(s.told("rate")), float(s.told("fresh")), int(s.told("port"))
    s.told("go")

    def one(n):
        chance = random.Random(n)
        link = socket.create_connection(("127.0.0.1", port))
        answers, seen = link.makefile("rb"), 0
        while True:
            time.sleep(chance.expovariate(rate / 4))
            new = not seen or chance.random() < fresh
            link.sendall(b"%d/%d\n" % (n, seen if new else chance.randrange(seen)))
            answers.readline()
            seen += new
    for n in range(3):
        threading.Thread(target=one, args=(n,), daemon=True).start()
    one(3)


@job(outside=passengers, demand="no_demand", rest="sync_bound launch_bound host_bound")
def booking_hall(s):
    """A model server with many clients; nobody is to blame that its device idles: an event loop in a thread
    answers most questions from a cache, and few are left for the model."""
    ms, fresh, load = s.ms("gpu_ms", 10, 50), s.ms("fresh", 0.04, 0.2), s.ms("load", 0.12, 0.45)
    gpu, look = s.gpu(ms, launches=s.int("launches", 10, 40)), s.ms("look_ms", 0.05, 0.3)
    s.tell("rate", min(load / fresh / ms * 1e3, 400))
    s.tell("fresh", fresh)
    asked, known = queue.Queue(), {}

    async def answer(reader, writer):
        while question := await reader.readline():
            parse(look)
            if question not in known:
                done = asyncio.get_running_loop().create_future()
                asked.put((done.get_loop(), done))
                known[question] = await done
            writer.write(known[question])

    async def serve():
        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        s.tell("port", server.sockets[0].getsockname()[1])
        await server.serve_forever()
    threading.Thread(target=asyncio.run, args=(serve(),), daemon=True).start()
    s.go()
    while True:
        with s.during("demand"):
            loop, done = asked.get()
        s.mark()
        s.train(gpu, np.zeros((8, 128), np.int64))
        loop.call_soon_threadsafe(done.set_result, b"platform nine\n")
