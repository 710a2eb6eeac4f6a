# SPDX-License-Identifier: BSD-2-Clause
"""Loops in the shapes of today's code bases: what feeds them, and what they wait for."""
import contextlib
import ctypes
import fcntl
import http.client
import http.server
import itertools
import json
import mmap
import multiprocessing
import os
import random
import selectors
import signal
import socket
import sqlite3
import struct
import threading
import time
from ctypes import byref, c_void_p

import numpy as np

from stranger import child, decode, job, mortal, parse

FRAME = struct.Struct("<II")


def connect(port):
    link = socket.create_connection(("127.0.0.1", port))
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return link


def accepting(door, serve):
    """A thread of its own for each that comes."""
    def answer(link):
        with contextlib.suppress(OSError):  # the job has ended
            serve(link)
    while True:
        link = door.accept()[0]
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        threading.Thread(target=answer, args=(link,), daemon=True).start()


class Ring:
    """Batches in shared memory, for one process that makes them and one that takes them."""

    def __init__(self, slots, size):
        memory = mmap.mmap(-1, slots * size)
        self.slots = [np.frombuffer(memory, np.uint8, size, n * size) for n in range(slots)]
        self.free, self.full = (multiprocessing.Semaphore(n) for n in (slots, 0))
        self.put_at, self.get_at = itertools.cycle(self.slots), itertools.cycle(self.slots)
        self.taken = False

    def put(self, value):
        self.free.acquire()
        next(self.put_at)[:] = value
        self.full.release()

    def get(self):
        if self.taken:
            self.free.release()  # the one before has been uploaded
        self.full.acquire()
        self.taken = True
        return next(self.get_at)


# ---- pre-training


def tokenise(out, cost, book, chance, seed):
    """Packs documents into sequences; now and then one of them is a whole book."""
    dice = random.Random(seed)
    while True:
        parse(book if dice.random() < chance else cost * dice.uniform(0.7, 1.3))
        out.put(seed % 256)


@job(data="slow_item", rest="sync_bound launch_bound")
def packed_books(j):
    """LLM pre-training: two tokenisers pack documents in turn, and some documents are books."""
    ms, books = j.ms("gpu_ms", 8, 24), 1 / j.int("a_book_in", 14, 24)
    cost, book = ms * j.ms("load_share", 0.2, 0.6), ms * j.ms("book_share", 16, 28)
    gpu, size, seed = j.gpu(ms, input_bytes=4 << 20), j.int("ktokens", 64, 512) << 12, j.int(
        "dice", 1, 1000)
    if j.fix:
        books = 0  # they were cut into chapters beforehand
    outs = [Ring(2, size) for _ in range(2)]
    for n, out in enumerate(outs):
        child(tokenise, out, cost, book, books, seed + n)
    turns = itertools.cycle(outs)
    j.loop(gpu, lambda: next(turns).get())


# ---- reinforcement learning


def reward_model(j):
    """A reward model on somebody else's GPU, behind HTTP."""
    late, spread = float(j.told("late")), j.ms("sigma", 0.05, 0.3)
    dice = random.Random(j.int("dice", 1, 1000))

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_POST(self):
            texts = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            time.sleep(late / 1e3 * dice.lognormvariate(0, spread))
            body = json.dumps([len(t) % 7 / 7 for t in texts]).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.handle_error = lambda *_: None  # the job has ended
    j.tell("port", server.server_address[1])
    server.serve_forever()


@job(outside=reward_model, data="main_thread_loading", host="host_bound network_bound",
     rest="sync_bound launch_bound")
def grpo_rewards(j):
    """GRPO: a group of rollouts on the device, rewards asked for over HTTP, then an update."""
    ms, tokens, launches = j.ms("update_ms", 8, 30), j.int("tokens", 30, 120), j.int(
        "launches", 40, 120)
    gpu, group = j.gpu(ms, launches=launches, input_bytes=4 << 20), j.int("group", 8, 64)
    per_token = max(int(launches * j.ms("rollout_share", 0.8, 3) / tokens), 1)
    whole = ms * (1 + per_token * tokens / launches)
    late, prompt_ms = whole * j.ms("late_share", 0.4, 1.5), whole * j.ms("prompt_share", 0.04, 0.08)
    j.tell("late", late)
    ids, advantages = np.zeros((group, tokens), np.int64), np.zeros((group, 1024), np.float32)
    link, pad = http.client.HTTPConnection("127.0.0.1", int(j.told("port"))), "so " * 40

    def rewards():
        texts = [pad[:3 * int(i) or 60] for i in range(group)]
        link.request("POST", "/score", json.dumps(texts))
        answer = json.loads(link.getresponse().read())
        return (np.array(answer) - np.mean(answer)) / (np.std(answer) + 1e-6)
    j.go()
    while True:
        j.mark()
        with j.during("data"):
            parse(prompt_ms)  # the chat template
        for _ in range(tokens):
            gpu.launch(0, per_token)
        gpu.check(gpu.lib.cudaMemcpy(ids.ctypes.data, gpu.input, ids.nbytes, 2))
        if not j.fix:  # else a rule that the device evaluates
            with j.during("host"):
                advantages[:] = rewards()[:, None]
        j.train(gpu, advantages)


# ---- inference


def crowd(j):
    """As many open requests as there are people; who gets an answer asks again."""
    people, dice = j.int("people", 40, 120), random.Random(j.int("dice", 1, 1000))
    link = connect(int(j.told("port")))

    def ask():
        link.sendall(FRAME.pack(dice.randint(10, 900), dice.randint(5, 120)))
    for _ in range(people):
        ask()
    answers = link.makefile("rb")
    with contextlib.suppress(OSError):  # the job has ended
        while answers.read(FRAME.size):
            ask()


@job(outside=crowd, demand="no_demand", host="host_bound", rest="sync_bound launch_bound")
def engine_full(j):
    """Continuous batching at full load: each iteration is scheduled while the last one runs."""
    launches, seats = j.int("launches", 20, 100), j.int("seats", 8, 32)
    gpu, plan_ms = j.gpu(j.ms("gpu_ms", 9, 45), launches=launches), j.ms("plan_ms", 0.3, 3)
    lib, ends, tables = gpu.lib, [c_void_p(), c_void_p()], []
    for end in ends:
        gpu.check(lib.cudaEventCreate(byref(end)))
        size = 512 << 10
        locked = (ctypes.c_ubyte * size).from_address(gpu.host_buffer(size))
        tables.append(np.frombuffer(locked, np.int32).reshape(-1, 256))
    door = socket.create_server(("127.0.0.1", 0))
    j.tell("port", door.getsockname()[1])
    link = door.accept()[0]
    poll = selectors.DefaultSelector()
    poll.register(link, selectors.EVENT_READ)
    waiting, running, rest = [], [], b""

    def receive(timeout):
        nonlocal rest
        while poll.select(timeout):
            rest += link.recv(65536)
            whole = len(rest) // FRAME.size * FRAME.size
            waiting.extend(list(f) for f in FRAME.iter_unpack(rest[:whole]))
            rest, timeout = rest[whole:], 0
    j.go()
    for n in itertools.count():
        receive(0)
        while not waiting and not running:
            with j.during("demand"):
                receive(1)
        j.mark()
        with j.during("host"):
            while waiting and len(running) < seats:
                running.append(waiting.pop(0))
            parse(plan_ms)  # blocks of the cache, priorities, preemption
            table = tables[n % 2]
            for row, (length, _) in enumerate(running):
                table[row, :length // 16 + 1] = row
        gpu.upload(table.ctypes.data, table.nbytes)
        gpu.launch(0, launches)
        gpu.check(lib.cudaEventRecord(ends[n % 2], gpu.stream))
        if n:
            gpu.check(lib.cudaEventSynchronize(ends[(n - 1) % 2]))
        for one in running:
            one[1] -= 1
        gone = [one for one in running if one[1] <= 0]
        running = [one for one in running if one[1] > 0]
        link.sendall(b"".join(FRAME.pack(*one) for one in gone))


# ---- recommenders


def table_shards(j):
    """An embedding table in shards; one of them has the popular items."""
    late, hot, dims = float(j.told("late")), j.int("hot", 0, 2), 64
    doors = [socket.create_server(("127.0.0.1", 0)) for _ in range(3)]
    j.tell("ports", " ".join(str(d.getsockname()[1]) for d in doors))
    rows = np.ones((1 << 14, dims), np.float32)

    def serve(link, shard):
        stream, many = link.makefile("rb"), late if shard == hot else late * 0.1
        while head := stream.read(FRAME.size):
            pull, size = FRAME.unpack(head)
            ids = stream.read(size)
            if pull:
                time.sleep(many / 1e3)
                link.sendall(rows[np.frombuffer(ids, np.int32)])
    for shard, door in enumerate(doors):
        threading.Thread(target=accepting, daemon=True, args=(
            door, lambda link, shard=shard: serve(link, shard))).start()
    signal.pause()


@job(outside=table_shards, data="network_bound main_thread_loading",
     host="host_bound network_bound", rest="sync_bound launch_bound")
def embedding_shards(j):
    """Clicks are at hand, their embeddings come from three parameter servers, one of them hot."""
    ms, dims = j.ms("gpu_ms", 7, 45), 64
    gpu, late = j.gpu(ms, input_bytes=4 << 20), ms * j.ms("late_share", 0.5, 2.5)
    j.tell("late", late / 50 if j.fix else late)
    links = [connect(int(p)) for p in j.told("ports").split()]
    streams, many = [k.makefile("rb") for k in links], j.int("ids", 500, 4000)
    ids = np.random.default_rng(j.int("dice", 1, 1000)).integers(
        0, 1 << 14, (64, 3, many), np.int32)
    batch, push = np.zeros((3, many, dims), np.float32), bytes(8 * many)
    turns = itertools.cycle(range(len(ids)))

    def pull():
        for link, want in zip(links, ids[next(turns)]):
            link.sendall(FRAME.pack(1, want.nbytes) + want.tobytes())
        for stream, rows in zip(streams, batch):
            stream.readinto(rows)
        return batch
    j.go()
    while True:
        j.step(gpu, pull)
        with j.during("host"):
            for link in links:
                link.sendall(FRAME.pack(0, len(push)) + push)  # top-k gradients, no answer


# ---- federated learning


def partition(out, set_up, cost, batches, floats):
    """One client's data: an index to parse, then a handful of batches."""
    for _ in itertools.count() if batches is None else (0,):
        parse(set_up)
        for _ in itertools.count() if batches is None else range(batches):
            parse(cost)
            out.send_bytes(np.zeros(floats, np.float32))


@job(data="loader_restart slow_first_batch", rest="sync_bound launch_bound")
def fed_clients(j):
    """A federated simulation: for each client a loader is started for a handful of local steps."""
    ms, local = j.ms("gpu_ms", 8, 26), j.int("local_steps", 6, 14)
    gpu, set_up = j.gpu(ms), ms * local * j.ms("set_up_share", 0.5, 1.5)
    cost, floats = ms * j.ms("load_share", 0.1, 0.4), j.int("kfloats", 60, 120) << 10
    merge = j.int("merge_launches", 2, 12)

    def loader():
        mine, theirs = multiprocessing.Pipe(duplex=False)
        fcntl.fcntl(theirs.fileno(), fcntl.F_SETPIPE_SZ, 1 << 20)  # two batches ahead
        p = child(partition, theirs, set_up, cost, None if j.fix else local, floats)
        theirs.close()
        return p, mine
    p = None
    j.go()
    while True:
        for step in range(local):
            j.mark()
            with j.during("data"):
                if p is None:
                    p, batches = loader()
                x = np.frombuffer(batches.recv_bytes(), np.float32)
                if step == local - 1 and not j.fix:
                    batches.close()
                    p.join()
                    p = None
            j.train(gpu, x)
        gpu.launch(2, merge)  # the client's weights into the average


# ---- a trainer with callbacks


def terminal(j):
    """A terminal at the far end of a slow line: so many bytes a second, no more."""
    mine, theirs = os.openpty()
    j.tell("tty", os.ttyname(theirs))
    rate = float(j.told("rate"))
    j.told("go")
    begin, done = time.monotonic(), 0
    while True:
        may = int((time.monotonic() - begin) * rate) - done
        if may > 0:
            done += len(os.read(mine, may))
        time.sleep(0.004)


def load(out, cost):
    while True:
        decode(cost)
        out.put(1)


@job(outside=terminal, data="too_few_workers", host="host_bound", rest="sync_bound launch_bound")
def slow_terminal(j):
    """A trainer with callbacks; its rich progress bar is drawn on a terminal that is far away."""
    ms, wide = j.ms("gpu_ms", 9, 50), j.int("columns", 80, 200)
    gpu, out = j.gpu(ms), Ring(4, j.int("kib", 200, 1000) << 10)
    child(load, out, ms * j.ms("load_share", 0.05, 0.3))
    smooth, tty = 1.0, os.open(j.told("tty"), os.O_WRONLY | os.O_NOCTTY)

    def bar(n):
        cells = "".join("\x1b[38;2;%03d;%03d;099m━━" % ((c, 255 - c) if c < n % wide else (80, 80))
                        for c in range(0, wide, 2))
        return ("\r\x1b[2K%s\x1b[0m %6d loss=%.3f gnorm=%.3f lr=%.2e" % (
            cells, n, gpu.loss.value, smooth, 1e-4)).encode()
    j.tell("rate", len(bar(0)) / (ms * (1 + j.ms("line_share", 0.7, 2.5)) / 1e3))
    j.go()
    for n in itertools.count(1):
        j.step(gpu, out.get)
        with j.during("host"):  # on_train_batch_end
            smooth = 0.98 * smooth + 0.02 * gpu.loss.value
            if not j.fix or n % 50 == 0:
                text = bar(n)
                while text:
                    text = text[os.write(tty, text):]


# ---- a mixture


def far_corpus(j):
    """The part of the mixture that lies in another region."""
    late, spread = float(j.told("late")), j.ms("sigma", 0.05, 0.3)
    door, dice = socket.create_server(("127.0.0.1", 0)), random.Random(j.int("dice", 1, 1000))
    j.tell("port", door.getsockname()[1])

    def serve(link):
        stream = link.makefile("rb")
        while head := stream.read(FRAME.size):
            _, size = FRAME.unpack(head)
            time.sleep(late / 1e3 * dice.lognormvariate(0, spread))
            link.sendall(bytes(size))
    accepting(door, serve)


def far_source(out, port, size):
    link = connect(port)
    stream = link.makefile("rb")
    for n in itertools.count():
        link.sendall(FRAME.pack(n % 1000, size))
        body = stream.read(size)
        decode(1)
        out.put(np.frombuffer(body, np.uint8))


def near_source(out, path, cost, size):
    while True:
        with open(path, "rb", buffering=0) as f:
            while len(body := f.read(size)) == size:
                decode(cost)
                out.put(np.frombuffer(body, np.uint8))


@job(outside=far_corpus, data="slow_worker network_bound", rest="sync_bound launch_bound")
def mixed_sources(j):
    """Three corpora by turns, a process for each; two lie on the disk, one far away."""
    ms, size = j.ms("gpu_ms", 7, 28), j.int("kib", 200, 1000) << 10
    gpu, late = j.gpu(ms), 3 * ms * j.ms("late_share", 1.8, 3.2)
    j.tell("late", ms * 0.3 if j.fix else late)
    path, outs = j.path("corpus.bin"), [Ring(2, size) for _ in range(3)]
    with open(path, "wb") as f:
        for _ in range(12):
            f.write(os.urandom(1 << 20))
    cost, far = ms * j.ms("load_share", 0.1, 0.5), j.int("far", 0, 2)
    for n, out in enumerate(outs):
        if n == far:
            j.supplier(child(far_source, out, int(j.told("port")), size).pid)
        else:
            child(near_source, out, path, cost, size)
    turns = itertools.cycle(outs)
    j.loop(gpu, lambda: next(turns).get())


# ---- actors


def episode_actor(link, rows, columns):
    """Keeps its episodes as objects, and hands out those that it is asked for."""
    if columns:
        store = [{"reward": np.zeros(rows, np.float32), "action": np.zeros(rows, np.int32)}] * 4
    else:
        store = [[{"t": t + e, "action": t % 17, "reward": t / 7 + e, "legal": [t % 5, t % 3],
                   "done": t % 50 == 49} for t in range(rows)] for e in range(4)]
    while True:
        link.send(store[link.recv() % 4])


@job(data="ipc_bound", rest="sync_bound launch_bound")
def object_episodes(j):
    """Actors hold episodes as lists of dicts; the learner gets them by reference, pickled."""
    gpu, rows = j.gpu(j.ms("gpu_ms", 7, 18)), j.int("rows", 8000, 24000)
    links = []
    for _ in range(j.int("actors", 1, 2)):
        mine, theirs = multiprocessing.Pipe()
        child(episode_actor, theirs, rows, j.fix)
        mine.send(0)  # each works on one ahead
        links.append(mine)
    turns, refs = itertools.cycle(links), itertools.count(1)
    batch = np.zeros((rows, 16), np.float32)

    def get():
        link = next(turns)
        episode = link.recv()
        link.send(next(refs))
        if j.fix:
            batch[:, 0] = episode["reward"]
        else:
            batch[:, 0] = [step["reward"] for step in episode]
        return batch
    j.loop(gpu, get)


# ---- a feature store


def store(j):
    """A feature store: frames on a socket, each answer takes its time."""
    late, spread = float(j.told("late")), j.ms("sigma", 0.02, 0.15)
    door, dice = socket.create_server(("127.0.0.1", 0)), random.Random(j.int("dice", 1, 1000))
    j.tell("port", door.getsockname()[1])

    def serve(link):
        stream = link.makefile("rb")
        while head := stream.read(FRAME.size):
            call, size = FRAME.unpack(head)
            time.sleep(late / 1e3 * dice.lognormvariate(0, spread))
            link.sendall(FRAME.pack(call, size) + bytes(size))
    accepting(door, serve)


@job(outside=store, data="network_bound main_thread_loading",
     rest="sync_bound launch_bound transfer_bound")
def feature_store(j):
    """The loop itself asks a far store for the next batch while the device trains on this one."""
    ms, size = j.ms("gpu_ms", 25, 95), j.int("kib", 200, 1500) << 10
    gpu = j.gpu(ms, input_bytes=2 << 20)
    j.tell("late", ms * j.ms("late_share", 0.3, 0.65))
    link = connect(int(j.told("port")))
    calls, stream = itertools.count(), link.makefile("rb")

    def fetch():
        with j.during("data"):
            link.sendall(FRAME.pack(next(calls) % 1000, size))
            _, length = FRAME.unpack(stream.read(FRAME.size))
            return np.frombuffer(stream.read(length), np.uint8)
    j.go()
    x = fetch()
    while True:
        j.mark()
        j.train(gpu, x, item=False)
        x = fetch()
        gpu.loss_item()


# ---- ranks


@job(data="rank_straggler main_thread_loading", peer="rank_straggler main_thread_loading",
     rest="sync_bound launch_bound")
def sorted_halves(j):
    """Two ranks share a data set sorted by length, in halves: one pads all the long texts."""
    ms, launches = j.ms("gpu_ms", 9, 32), j.int("launches", 10, 90)
    short, long = ms * j.ms("short_share", 0.05, 0.15), ms * j.ms("long_share", 0.7, 2.2)
    if j.fix:
        short = long = min(short, long)  # shuffled first, and tokenised beforehand
    size, slow = j.int("kib", 200, 800) << 10, j.int("slow", 0, 1)
    ends, parent = socket.socketpair(), os.getpid()
    dice = random.Random(j.int("dice", 1, 1000))
    for rank in range(2):
        if os.fork():
            continue
        mortal(parent, signal.SIGTERM)  # it has a log to write
        j.rank(rank)
        ends[1 - rank].close()
        link, gradients, theirs = ends[rank], bytes(256 << 10), bytearray(256 << 10)
        gpu, batch = j.gpu(ms, launches=launches), np.zeros(size, np.uint8)

        def collate():
            parse((long if rank == slow else short) * dice.uniform(0.8, 1.2))
            return batch

        def receive():
            got = 0
            while got < len(theirs):
                got += link.recv_into(memoryview(theirs)[got:])
        j.told("go")
        while True:
            j.mark()
            with j.during("data"):
                x = collate()
            gpu.upload(x.ctypes.data, x.nbytes)
            gpu.forward()
            gpu.backward()
            gpu.loss_item()
            with j.during("peer"):  # in turns, as neither side reads while it writes
                if rank == 0:
                    link.sendall(gradients)
                    receive()
                else:
                    receive()
                    link.sendall(gradients)
            gpu.optimizer()
    j.go()
    signal.pause()


# ---- a database


def materialise(path, hold, gap):
    """Computes features anew, inside a transaction."""
    db = sqlite3.connect(path, timeout=60, isolation_level=None)
    while True:
        db.execute("BEGIN EXCLUSIVE")
        decode(hold)
        db.execute("UPDATE fresh SET t = t + 1")
        db.execute("COMMIT")
        time.sleep(gap / 1e3)


def rows_of(path, out, many):
    db = sqlite3.connect(path, timeout=60, isolation_level=None)
    for n in itertools.count():
        body, = db.execute("SELECT body FROM batches WHERE id = ?", (n % many,)).fetchone()
        out.put(np.frombuffer(body, np.uint8))


@job(data="lock_bound", rest="sync_bound launch_bound")
def sqlite_features(j):
    """Batches are rows of an SQLite file that a second process keeps locked while it computes."""
    ms, many, size = j.ms("gpu_ms", 9, 28), j.int("rows", 16, 48), j.int("kib", 200, 900) << 10
    gpu, path, out = j.gpu(ms), j.path("features.db"), Ring(3, size)
    hold, gap = ms * j.ms("hold_share", 6, 12), j.ms("gap_ms", 20, 50)
    db = sqlite3.connect(path, isolation_level=None)
    if j.fix:
        db.execute("PRAGMA journal_mode = WAL")  # readers see the last state and go on
    db.execute("CREATE TABLE batches (id INTEGER PRIMARY KEY, body BLOB)")
    db.execute("CREATE TABLE fresh (t INTEGER)")
    db.execute("INSERT INTO fresh VALUES (0)")
    for n in range(many):
        db.execute("INSERT INTO batches VALUES (?, zeroblob(?))", (n, size))
    db.close()
    child(materialise, path, hold, gap)
    child(rows_of, path, out, many)
    j.loop(gpu, out.get)


# ---- columns


def row_groups(out, cost, batches):
    """A whole row group is unpacked at once; its batches then come in a burst."""
    while True:
        decode(cost)
        for n in range(batches):
            out.put(n)


@job(data="cpu_bound too_few_workers", rest="sync_bound launch_bound")
def burst_columns(j):
    """Row groups come in bursts into a deep queue; accumulation; a validation each N steps."""
    ms, parts, launches = j.ms("micro_ms", 10, 40), j.int("parts", 2, 4), j.int("launches", 10, 90)
    gpu, group, every = j.gpu(ms, launches=launches), j.int("group", 8, 24), j.int("every", 5, 20)
    forward = launches - launches // 2 - launches // 8
    cost, tries = ms * group * j.ms("load_share", 0.25, 0.65), j.int("validation_steps", 5, 25)
    out = Ring(2 * group, j.int("kib", 200, 1000) << 10)
    child(row_groups, out, cost, group)
    while out.free.get_value():
        time.sleep(0.01)
    j.go()
    for n in itertools.count(1):
        j.mark()
        for _ in range(parts):
            j.mark("micro")
            with j.during("data"):
                x = out.get()
            gpu.upload(x.ctypes.data, x.nbytes)
            gpu.forward()
            gpu.backward()
        gpu.optimizer()
        gpu.loss_item()
        if n % every == 0:
            for _ in range(tries):  # the validation set lies on the device
                j.mark("micro")
                gpu.launch(0, forward)
            gpu.loss_item()
