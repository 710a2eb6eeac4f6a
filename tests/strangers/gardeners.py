# SPDX-License-Identifier: BSD-2-Clause
"""In the garden: plain scripts by the standard library's own means, as they are left running for the night."""
import asyncio
import concurrent.futures
import csv
import functools
import http.client
import http.server
import itertools
import json
import logging
import logging.handlers
import math
import multiprocessing
import multiprocessing.pool
import os
import pickle
import queue
import random
import sched
import select
import socket
import socketserver
import struct
import subprocess
import sys
import tempfile
import threading
import time
import warnings
import xmlrpc.client
import xmlrpc.server

import numpy as np

from stranger import CPU, child, decode, job, mortal, parse

MIB = 1 << 20


def took(f):
    """Seconds that f takes once it is warm."""
    f()
    begin = time.monotonic()
    f()
    return time.monotonic() - begin


def notes(many):
    """A gardener's notes as JSON."""
    return json.dumps([{"id": n, "name": "rose %d" % n, "height": n % 97, "beds": [n % 12, n % 7]}
                       for n in range(many)])


def notes_for(ms):
    """As many notes as json takes so long to read."""
    text = notes(40000)
    return max(int(40000 * ms / 1e3 / took(lambda: json.loads(text))), 10)


# ---- the data is late


TEXTS, ROWS, LENGTH = 1000, 32, 640


def tokenize(pipe, path, cost, key_of):
    """Puts batches of tokens together, all of which the cache is meant to have, and pickles them into a pipe."""
    with open(path, encoding="ascii") as f:
        cache = json.load(f)
    with os.fdopen(pipe, "wb") as out:
        for first in itertools.count(0, ROWS):
            batch = []
            for n in range(first, first + ROWS):
                tokens = cache.get(key_of(n % TEXTS))
                if tokens is None:
                    parse(cost)
                    tokens = [n % TEXTS] * LENGTH
                batch.append(tokens)
            pickle.dump(np.array(batch, np.int32), out)
            out.flush()


@job(data=CPU, rest="sync_bound launch_bound")
def smudged_labels(s):
    """A process pickles batches of tokens into a pipe, and has a cache of all texts' tokens, a dict from a JSON file;
    to blame is that it tokenizes each text anew, in Python, as JSON has made strings of the keys, which are numbers."""
    ms, path = s.ms("gpu_ms", 8, 40), s.path("tokens.json")
    cost, gpu = ms * s.ms("tokenize_share", 1.4, 2.6) / ROWS, s.gpu(ms)
    with open(path, "w", encoding="ascii") as f:
        json.dump({n: [n] * LENGTH for n in range(TEXTS)}, f)
    mine, theirs = os.pipe()
    s.supplier(child(tokenize, theirs, path, cost, str if s.fix else int).pid)
    os.close(theirs)
    stream = os.fdopen(mine, "rb")
    s.loop(gpu, lambda: pickle.load(stream))


@functools.lru_cache
def plan_of(path):
    with open(path, encoding="ascii") as f:
        return json.load(f)


class Bed(socketserver.StreamRequestHandler):
    """Answers one question, in a process of its own."""

    def handle(self):
        mortal(self.server.keeper)
        n, = struct.unpack("<I", self.rfile.read(4))
        plan = plan_of(self.server.path)
        self.wfile.write(np.full(20000, plan[n % len(plan)]["height"], np.float32).tobytes())


def keep_beds(server, warm):
    server.keeper = os.getpid()
    if warm:
        plan_of(server.path)
    server.serve_forever()


@job(data=CPU + " loader_restart", rest="sync_bound launch_bound")
def annual_beds(s):
    """A thread asks a data server, a child of the job, for one batch after another, on a connection each; to blame is
    that this is a ForkingTCPServer: what answers is a fresh fork, whose lru_cache is empty, so that it parses the
    index before it can answer, and then ends."""
    ms = s.ms("gpu_ms", 12, 40)
    records, gpu, out = notes_for(ms * s.ms("index_share", 1.5, 2.6)), s.gpu(ms), queue.Queue(2)
    server = socketserver.ForkingTCPServer(("127.0.0.1", 0), Bed)
    server.path, address = s.path("plan.json"), server.server_address
    with open(server.path, "w", encoding="ascii") as f:
        f.write(notes(records))
    child(keep_beds, server, s.fix)
    server.server_close()

    def fetch():
        for n in itertools.count():
            with socket.create_connection(address) as link, link.makefile("rwb") as stream:
                stream.write(struct.pack("<I", n))
                stream.flush()
                x = np.frombuffer(stream.read(80000), np.float32)
            out.put(x)
    threading.Thread(target=fetch, daemon=True).start()
    s.loop(gpu, out.get)


@job(data="lock_bound", rest="sync_bound launch_bound")
def one_hosepipe(s):
    """ThreadPool.imap() is a few batches ahead, and a C library decodes without the interpreter's lock; to blame is
    a lock of the script's own around all of the decoding: to silence the library there is a catch_warnings() inside,
    which is not safe in threads, and so one thread decodes at a time."""
    ms, threads = s.ms("gpu_ms", 8, 40), s.int("threads", 2, 3)
    cost, gpu = ms * s.ms("load_share", 1.4, 2.6), s.gpu(ms)
    quiet, credit = threading.Lock(), threading.Semaphore(threads + 1)

    def load(n):
        if s.fix:  # a filter was set once and for all, and the cores suffice
            decode(cost / 4)
        else:
            with quiet, warnings.catch_warnings():
                warnings.simplefilter("ignore")
                decode(cost)
        return np.full(20000, n, np.float32)

    def numbers():
        for n in itertools.count():
            credit.acquire()
            yield n
    pool = multiprocessing.pool.ThreadPool(threads)
    batches = pool.imap(load, numbers())

    def obtain():
        x = next(batches)
        credit.release()
        return x
    s.loop(gpu, obtain)


DIGGER = """
import array, json, sys
texts = [open(path, encoding="ascii").read() for path in sys.argv[1:]]
for line in sys.stdin:
    many = len(json.loads(texts[int(line)]))
    sys.stdout.buffer.write(array.array("f", [many]) * 16000)
    sys.stdout.buffer.flush()
"""


@job(data="slow_item", rest="sync_bound launch_bound")
def stubborn_root(s):
    """Two helper programs, which the loop has started by asyncio and asks by turns and ahead, parse an item of JSON
    for each batch; to blame are a few items with very many notes, as the loop takes the answers in order."""
    ms, every = s.ms("gpu_ms", 8, 25), s.one("every", 9, 11, 13)
    small, large = ms * s.ms("load_share", 0.1, 0.4), ms * s.ms("slow_steps", 8, 11)
    paths, gpu, home = [s.path("short.json"), s.path("long.json")], s.gpu(ms), asyncio.new_event_loop()
    for path, cost in zip(paths, (small, small if s.fix else large)):
        with open(path, "w", encoding="ascii") as f:
            f.write(notes(notes_for(cost)))

    async def start():
        return await asyncio.create_subprocess_exec(sys.executable, "-c", DIGGER, *paths,
                                                    stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    helpers = [home.run_until_complete(start()) for _ in range(2)]
    turn = itertools.count()

    def ask(n):
        helpers[n % 2].stdin.write(b"1\n" if n % every == every - 1 else b"0\n")

    def obtain():
        n = next(turn)
        x = home.run_until_complete(helpers[n % 2].stdout.readexactly(64000))
        ask(n + 2)
        return np.frombuffer(x, np.float32)
    for n in range(2):
        ask(n)
    s.loop(gpu, obtain)


def nursery(s):
    """A shop that is far away, and sends the pictures of its roses."""
    late = float(s.told("late")) / 1e3

    class Shop(http.server.BaseHTTPRequestHandler):
        protocol_version, disable_nagle_algorithm = "HTTP/1.1", True

        def do_GET(self):
            time.sleep(late * random.lognormvariate(0, 0.2))
            self.send_response(200)
            self.send_header("Content-Length", "20000")
            self.end_headers()
            self.wfile.write(bytes(20000))

        def log_message(self, *_):
            pass
    shop = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Shop)
    s.tell("port", shop.server_address[1])
    shop.serve_forever()


@job(outside=nursery, data="network_bound main_thread_loading", rest="sync_bound launch_bound")
def seed_catalogue(s):
    """A generator expression has a batch's pictures fetched by pool.map(), a thread for each, and looks as if it were
    ahead; to blame is the far server: the generator is lazy, and the loop waits in next() for the whole way."""
    ms, pictures = s.ms("gpu_ms", 14, 40), s.int("pictures", 3, 5)
    late = ms * s.ms("late_share", 0.6, 1.6)
    s.tell("late", late / 20 if s.fix else late)
    gpu, port, own = s.gpu(ms), int(s.told("port")), threading.local()

    def connect():
        own.link = http.client.HTTPConnection("127.0.0.1", port)

    def fetch(n):
        own.link.request("GET", "/roses/%d.raw" % n)
        return np.frombuffer(own.link.getresponse().read(), np.uint8)
    pool = concurrent.futures.ThreadPoolExecutor(pictures, initializer=connect)
    batches = (np.concatenate(list(pool.map(fetch, range(first, first + pictures))))
               for first in itertools.count(0, pictures))
    s.loop(gpu, lambda: next(batches))


class Barrow(socketserver.BaseRequestHandler):
    """Has leaves enough in memory, and sends as many bytes of them as it is asked for."""

    def handle(self):
        leaves = memoryview(bytes(12 * MIB))
        while ask := self.request.recv(8, socket.MSG_WAITALL):
            self.request.sendall(leaves[:struct.unpack("<Q", ask)[0]])


def raked(link, size):
    body = b""
    while len(body) < size:
        body += link.recv(4096)
    return np.frombuffer(body, np.uint8)


def swept(link, size):
    x = np.empty(size, np.uint8)
    view = memoryview(x)
    while view:
        view = view[link.recv_into(view):]
    return x


@job(data="ipc_bound main_thread_loading", rest="sync_bound launch_bound")
def raked_heap(s):
    """A process has batches in memory and is asked for each one ahead, by a Unix socket; to blame is how the loop takes
    them in, by `body += link.recv(4096)`, which copies all that has come so far with each small piece."""
    ms, share = s.ms("gpu_ms", 8, 25), s.ms("receive_share", 0.5, 1.5)
    gpu, server = s.gpu(ms), socketserver.UnixStreamServer(s.path("barrow"), Barrow)
    child(server.handle_request)
    server.server_close()
    link = socket.socket(socket.AF_UNIX)
    link.connect(s.path("barrow"))

    def ask(size):
        link.sendall(struct.pack("<Q", size))
    each = took(lambda: (ask(MIB), raked(link, MIB)))
    size = int(MIB * math.sqrt(ms * share / 1e3 / each))  # it grows with the square
    size, take = s.keep("bytes", min(max(size, MIB // 4), 12 * MIB)), swept if s.fix else raked

    def obtain():
        x = take(link, size)
        ask(size)
        return x
    ask(size)
    s.loop(gpu, obtain)


@job(data="main_thread_loading", rest="sync_bound launch_bound")
def weighed_seeds(s):
    """All samples are in memory, and the loop itself draws a batch's by their weights; to blame is random.choices(),
    called for each sample with `weights`, all of which it adds up each time, where cum_weights would do."""
    ms, many = s.ms("gpu_ms", 8, 40), s.int("batch", 16, 48)
    cost, gpu, chance = ms * s.ms("draw_share", 0.5, 1.4) / many, s.gpu(ms), random.Random(1)
    each = took(lambda: chance.choices(range(20000), [1.5] * 20000))
    samples = s.keep("samples", max(int(20000 * cost / 1e3 / each), 1000))
    weights = [chance.random() for _ in range(samples)]
    total, table = list(itertools.accumulate(weights)), np.zeros((4096, 800), np.float32)

    def draw():
        if s.fix:
            return chance.choices(range(samples), cum_weights=total)[0]
        return chance.choices(range(samples), weights)[0]
    s.loop(gpu, lambda: table[[draw() % len(table) for _ in range(many)]])


# ---- not for data


def dig(link, cost):
    while True:
        decode(cost)
        link.send(np.zeros(20000, np.float32))


@job(data=CPU, host="host_bound", rest="sync_bound launch_bound")
def sundial_wait(s):
    """Every few steps a row for a CSV file falls due a moment later, by a sched.scheduler, while a process has the next
    batch ready at its pipe; to blame is the loop's scheduler.run(), which without blocking=False sleeps till then."""
    ms, every = s.ms("gpu_ms", 8, 40), s.int("every", 1, 4)
    delay, cost = ms * every * s.ms("delay_share", 0.5, 1.8) / 1e3, ms * s.ms("load_share", 0.1, 0.4)
    gpu, (mine, theirs), dial = s.gpu(ms), multiprocessing.Pipe(duplex=False), sched.scheduler()
    child(dig, theirs, cost)
    with open(s.path("losses.csv"), "w", encoding="ascii", newline="") as f:
        table = csv.writer(f)
        s.go()
        for n in itertools.count(1):
            s.step(gpu, mine.recv)
            with s.during("host"):
                if n % every == 0:
                    dial.enter(delay, 1, table.writerow, ([n, gpu.loss.value],))
                dial.run(blocking=not s.fix)


# ---- nothing is wrong


PAGER = """
import ctypes, sys, time
ctypes.CDLL(None).prctl(1, 9)
for line in sys.stdin:
    time.sleep(float(sys.argv[1]))
"""


def harden(out, folder, cost):
    """Leaves each batch in a temporary file, and tells its name."""
    while True:
        decode(cost)
        fd, path = tempfile.mkstemp(".npy", dir=folder)
        with os.fdopen(fd, "wb") as f:
            np.save(f, np.zeros(20000, np.float32))
        out.put(path)


@job(data=CPU, host="host_bound", rest="sync_bound launch_bound")
def cold_frame(s):
    """Nothing is to blame: a process leaves batches in temporary files, which cost next to nothing and are there in
    time; each step is logged at length for a pager that is slow to show it, but by a QueueHandler, so that only the
    QueueListener's thread stands at the pager's full pipe."""
    ms, pause = s.ms("gpu_ms", 14, 40), s.ms("pause_ms", 25, 80) / 1e3
    cost, gpu, out = ms * s.ms("load_share", 0.25, 0.55), s.gpu(ms), multiprocessing.Queue(maxsize=4)
    child(harden, out, s.folder, cost)
    with subprocess.Popen([sys.executable, "-c", PAGER, "0" if s.fix else str(pause)], stdin=subprocess.PIPE,
                          stdout=subprocess.DEVNULL, text=True) as pager:
        lines, log = queue.SimpleQueue(), logging.getLogger("cold_frame")
        log.setLevel(logging.INFO)
        log.propagate = False
        log.addHandler(logging.handlers.QueueHandler(lines))
        logging.handlers.QueueListener(lines, logging.StreamHandler(pager.stdin)).start()
        figures = {"bed.%02d.gradient" % n: n / 7 for n in range(40)}

        def obtain():
            path = out.get()
            x = np.load(path)
            os.unlink(path)
            return x
        s.go()
        for n in itertools.count():
            s.step(gpu, obtain)
            with s.during("host"):
                log.info("step %d %s", n, json.dumps(figures))


def neighbours(s):
    """Somebody who asks now and then what grows there."""
    pause, port = float(s.told("pause")), int(s.told("port"))
    desk, picture = xmlrpc.client.ServerProxy("http://127.0.0.1:%d" % port), xmlrpc.client.Binary(bytes(20000))
    s.told("go")
    while True:
        time.sleep(pause * s.random.expovariate(1))
        desk.recognise(picture)


@job(outside=neighbours, demand="no_demand", rest="sync_bound launch_bound host_bound")
def rose_advice(s):
    """A model behind a SimpleXMLRPCServer, which has but one thread, the loop's own, and knows a flower by a crop or
    few of its picture; nobody is to blame that people seldom ask."""
    gpu, crops, pause = s.gpu(s.ms("gpu_ms", 8, 25)), s.int("crops", 1, 3), s.ms("pause_s", 0.12, 0.35)
    server = xmlrpc.server.SimpleXMLRPCServer(("127.0.0.1", 0), logRequests=False)

    def recognise(picture):
        x = np.frombuffer(picture.data, np.uint8)
        for _ in range(crops):
            s.mark()
            s.train(gpu, x)
        return "rose"
    server.register_function(recognise)
    s.tell("pause", 0 if s.fix else pause)
    s.tell("port", server.server_address[1])
    s.go()
    while True:
        with s.during("demand"):
            select.select([server], [], [])
        server.handle_request()
