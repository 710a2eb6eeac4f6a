# SPDX-License-Identifier: BSD-2-Clause
"""Jobs as a tired engineer leaves them: what stands beside the loop is guilty, or only looks so."""
import asyncio
import collections
import concurrent.futures
import copy
import fcntl
import itertools
import json
import multiprocessing
import os
import queue
import random
import socket
import struct
import threading
import time
import zipfile

import numpy as np

from stranger import CPU, child, decode, job, parse


def background(f, *more):
    threading.Thread(target=f, args=more, daemon=True).start()


def supply(put, cost, size):
    """An ordinary maker: it decodes, and hands over."""
    while True:
        decode(cost)
        put(np.zeros(size, np.float32))


# ---- the data, in ways that do not look like it


@job(data="main_thread_loading", rest="sync_bound launch_bound")
def lost_wax(s):
    """Diffusion: a frozen text encoder turns the prompts of each step into states, by torch on the CPU."""
    import torch
    torch.set_num_threads(s.one("torch_threads", 1, 2))
    ms, width = s.ms("gpu_ms", 12, 70), s.one("width", 64, 96, 128)
    gpu, cost = s.gpu(ms), ms * s.ms("encode_share", 0.4, 1.2) / (10 if s.fix else 1)
    table = torch.nn.Embedding(5000, width)
    layer = torch.nn.TransformerEncoderLayer(width, 4, 4 * width, batch_first=True).eval()

    def encode(deep):
        with torch.inference_mode():
            h = table(torch.randint(5000, (4, 77)))
            for _ in range(deep):
                h = layer(h)
        return h.numpy()
    encode(5)
    begin = time.monotonic()
    encode(20)
    deep = max(1, round(cost * 20 / 1e3 / (time.monotonic() - begin)))
    s.loop(gpu, lambda: encode(deep))


def ram(pages, meet, cost):
    for n in itertools.count():
        decode(cost)
        pages[n % 2][:] = n % 251
        meet.wait()


@job(data=CPU, rest="sync_bound launch_bound")
def core_box(s):
    """Two shared pages: a process fills one while the other is learnt from, and both meet at a barrier."""
    ms, size = s.ms("gpu_ms", 8, 50), s.int("kib", 50, 1000) << 8
    gpu, cost = s.gpu(ms), ms * s.ms("fill_share", 1.3, 2.8) / (8 if s.fix else 1)
    pages = [np.frombuffer(multiprocessing.RawArray("f", size), np.float32) for _ in range(2)]
    meet = multiprocessing.Barrier(2)
    s.supplier(child(ram, pages, meet, cost).pid)
    s.go()
    for n in itertools.count():
        s.mark()
        with s.during("data"):
            meet.wait()  # from here on the other page is filled
            x = pages[n % 2]
        s.train(gpu, x)


def alloy_store(s):
    """A feature store: it reads a question's head, then its body, and answers at once."""
    door = socket.create_server(("127.0.0.1", 0))
    s.tell("port", door.getsockname()[1])
    link = door.accept()[0]
    asked = link.makefile("rb")
    while head := asked.read(8):
        keys, size = struct.unpack("<II", head)
        asked.read(keys)
        link.sendall(bytes(size))


def assay(out, port, questions, keys, size, at_once):
    link = socket.create_connection(("127.0.0.1", port))
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, at_once)
    answers = link.makefile("rb")
    while True:
        parts = []
        for _ in range(questions):
            link.sendall(struct.pack("<II", keys, size))
            link.sendall(bytes(keys))  # held back until the head is acknowledged, which is delayed
            parts.append(answers.read(size))
        out.put(np.frombuffer(b"".join(parts), np.uint8))


@job(outside=alloy_store, data="network_bound too_few_workers", rest="sync_bound launch_bound")
def tapping_bar(s):
    """A process asks a quick store nearby, but sends the head and the body of a question one by one."""
    gpu, out = s.gpu(s.ms("gpu_ms", 8, 30)), multiprocessing.Queue(s.int("ahead", 1, 4))
    s.supplier(child(assay, out, int(s.told("port")), s.int("questions", 1, 3), s.int("keys", 40, 900),
                     s.int("kib", 4, 48) << 10, int(s.fix)).pid)
    s.loop(gpu, out.get)


def cast_pigs(slots, free, full, cost, as_array):
    picture = np.random.default_rng(1).random(len(slots[0]), np.float32)
    for n in itertools.count():
        decode(cost)
        free.acquire()
        if as_array:
            np.frombuffer(slots[n % 2].get_obj(), np.float32)[:] = picture
        else:
            slots[n % 2][:] = picture.tolist()
        full.release()


@job(data="ipc_bound main_thread_loading", rest="sync_bound launch_bound")
def pig_iron(s):
    """Batches lie ready in two multiprocessing.Arrays, which the loop takes out as lists of floats."""
    ms, floats = s.ms("gpu_ms", 12, 40), s.int("floats", 150000, 500000)
    gpu, slots = s.gpu(ms), [multiprocessing.Array("f", floats) for _ in range(2)]
    free, full = multiprocessing.Semaphore(2), multiprocessing.Semaphore(0)
    child(cast_pigs, slots, free, full, ms * s.ms("load_share", 0.05, 0.2), s.fix)
    s.go()
    for n in itertools.count():
        s.mark()
        with s.during("data"):
            full.acquire()
            if s.fix:
                x = np.frombuffer(slots[n % 2].get_obj(), np.float32).copy()
            else:
                x = np.array(slots[n % 2][:], np.float32)
            free.release()
        s.train(gpu, x)


def shovel(out, path, width, cost):
    record = struct.Struct("<%df" % width)
    with open(path, "rb", buffering=0) as f:
        while True:
            rows, end = [], time.thread_time() + cost / 1e3
            while time.thread_time() < end:
                for _ in range(50):
                    rows.append(record.unpack(f.read(record.size)))
            if f.tell() > os.fstat(f.fileno()).st_size // 2:
                f.seek(0)
            out.put(np.array(rows, np.float32))


@job(data=CPU, rest="sync_bound launch_bound")
def coke_heap(s):
    """A process reads small records one by one from a file that is cached, and opened without a buffer."""
    ms, width = s.ms("gpu_ms", 8, 35), s.one("width", 4, 8, 16)
    gpu, cost = s.gpu(ms), ms * s.ms("read_share", 1.2, 2.4) / (10 if s.fix else 1)
    np.arange(400000 * width, dtype=np.float32).tofile(s.path("records.bin"))
    out = multiprocessing.Queue(3)
    s.supplier(child(shovel, out, s.path("records.bin"), width, cost).pid)
    s.loop(gpu, out.get)


def mould(link, index, work, size, times):
    parse(index)  # the archive's index
    for _ in range(times):
        decode(work)
        link.send_bytes(bytes(size))


@job(data="loader_restart main_thread_loading", rest="sync_bound launch_bound")
def casting_pit(s):
    """For each batch the loop starts two processes, one for each half; they read an index first, and end."""
    ms, size = s.ms("gpu_ms", 15, 80), s.int("kib", 8, 100) << 10
    gpu, index, work = s.gpu(ms), ms * s.ms("index_share", 0.25, 0.9), ms * s.ms("work_share", 0.02, 0.08)

    def hire():
        mine, theirs = multiprocessing.Pipe(duplex=False)
        hand = child(mould, theirs, index, work, size, 10**9 if s.fix else 1)
        theirs.close()
        return mine, hand
    crew = []
    s.go()
    while True:
        s.mark()
        with s.during("data"):
            crew = crew or [hire(), hire()]
            x = np.frombuffer(b"".join([mine.recv_bytes() for mine, _ in crew]), np.float32)
            if not s.fix:
                for mine, hand in crew:
                    hand.join()
                    mine.close()
                crew = []
        s.train(gpu, x)


@job(data="lock_bound", rest="sync_bound launch_bound")
def green_sand(s):
    """Threads add noise to scans in numpy, without the interpreter; it comes from numpy's one generator."""
    ms, threads, scans = s.ms("gpu_ms", 8, 40), s.int("threads", 2, 4), s.int("scans", 4, 12)
    gpu, cost = s.gpu(ms), ms * s.ms("noise_share", 1.4, 2.6) / (8 if s.fix else 1)
    np.random.normal(size=100000)
    begin = time.thread_time()
    np.random.normal(size=500000)
    pixels = max(1000, int(cost / 1e3 / (time.thread_time() - begin) * 500000 / scans))
    clean, ready = np.ones(pixels, np.float32), queue.Queue(threads)

    def spoil():
        while True:
            x = np.empty((scans, pixels), np.float32)
            for row in x:  # the generator has a lock, which is held while it draws
                np.add(clean, np.random.normal(0, 4, pixels), out=row, casting="same_kind")
            ready.put(x)
    for _ in range(threads):
        background(spoil)
    s.loop(gpu, ready.get)


# ---- not the data, but near it


def stoke(link, cost, size):
    while True:
        decode(cost)
        link.sendall(bytes(size))


@job(data="host_bound", host="host_bound sync_bound", rest="sync_bound launch_bound")
def shift_whistle(s):
    """A trainer in asyncio: after each step it yields to the other tasks, of which one draws a dashboard."""
    ms, size = s.ms("gpu_ms", 15, 80), s.int("kib", 4, 32) << 10
    gpu, draw = s.gpu(ms), ms * s.ms("draw_share", 0.3, 0.9) / (20 if s.fix else 1)
    ours, theirs = socket.socketpair()
    child(stoke, theirs, ms * s.ms("load_share", 0.05, 0.3), size)
    theirs.close()

    async def receive(batches):
        stream, _ = await asyncio.open_unix_connection(sock=ours, limit=1 << 20)
        while True:
            await batches.put(np.frombuffer(await stream.readexactly(size), np.uint8))

    async def dashboard():
        while True:
            parse(draw)
            await asyncio.sleep(0)

    async def trainer():
        batches = asyncio.Queue(16)
        tasks = [asyncio.create_task(receive(batches))]
        while batches.qsize() < 4:
            await asyncio.sleep(0.01)
        tasks.append(asyncio.create_task(dashboard()))
        s.go()
        while True:
            s.mark()
            with s.during("data"):
                x = await batches.get()
            s.train(gpu, x)
            with s.during("host"):
                await asyncio.sleep(0)
    asyncio.run(trainer())


def far_tracker(s):
    """An experiment tracker in another region: a line of metrics, a word."""
    late = float(s.told("late")) / 1e3
    door = socket.create_server(("127.0.0.1", 0))
    s.tell("port", door.getsockname()[1])
    link = door.accept()[0]
    for _ in link.makefile("rb"):
        time.sleep(late)
        link.sendall(b"kept\n")


@job(outside=far_tracker, data=CPU, host="host_bound", rest="sync_bound launch_bound")
def weigh_bridge(s):
    """One thread is ahead with batches; another posts each step's metrics afar, and its queue is full."""
    ms = s.ms("gpu_ms", 10, 60)
    late, load = ms * s.ms("late_share", 1.3, 2.5), ms * s.ms("load_share", 0.05, 0.3)
    gpu, ready, notes = s.gpu(ms), queue.Queue(4), queue.Queue(s.int("room", 1, 4))
    s.tell("late", late / 10 if s.fix else late)
    link = socket.create_connection(("127.0.0.1", int(s.told("port"))))

    def post():
        answers = link.makefile("rb")
        while True:
            link.sendall(json.dumps(notes.get()).encode() + b"\n")
            answers.readline()
    background(supply, ready.put, load, 50000)
    background(post)
    s.go()
    for n in itertools.count(1):
        s.step(gpu, ready.get)
        with s.during("host"):
            notes.put({"step": n, "loss": gpu.loss.value, "time": time.time()})


def terminal(source, pace):
    """A console at the far end of a slow line."""
    while True:
        os.read(source, 512)
        time.sleep(pace)


def foreman(board, lock, sink, pause, after):
    """Draws everybody's bars: 8 KiB of them."""
    while True:
        with lock:
            text = (b"%d steps" % board[0]).ljust(64) * 128
            if not after:
                os.write(sink, text)
        if after:
            os.write(sink, text)
        time.sleep(pause)


@job(data=CPU, lock="lock_bound host_bound", rest="sync_bound launch_bound")
def slag_ladle(s):
    """Each step is counted on a shared board; a process draws it on a slow line, with the board's lock."""
    ms, pause = s.ms("gpu_ms", 10, 60), s.ms("pause_ms", 1, 4) / 1e3
    gpu, hold = s.gpu(ms), ms * s.ms("draw_share", 1.3, 2.5)
    board, lock = multiprocessing.RawArray("Q", 4), multiprocessing.Lock()
    source, sink = os.pipe()
    fcntl.fcntl(sink, fcntl.F_SETPIPE_SZ, 4096)
    child(terminal, source, hold / 16 / 1e3)
    child(foreman, board, lock, sink, pause, s.fix)
    mine, theirs = multiprocessing.Pipe(duplex=False)
    child(supply, theirs.send, ms * s.ms("load_share", 0.05, 0.3), s.int("floats", 5000, 50000))
    s.go()
    while True:
        s.step(gpu, mine.recv)
        with s.during("lock"), lock:
            board[0] += 1


@job(data=CPU, host="host_bound", rest="sync_bound launch_bound")
def blast_bellows(s):
    """A governor thread shuts a gate now and then, for a power budget; another unzips batches in time."""
    ms, kib = s.ms("gpu_ms", 8, 40), s.int("kib", 40, 400)
    gpu, period = s.gpu(ms), ms * s.ms("period_steps", 4, 12) / 1e3
    shut = 0 if s.fix else period * s.ms("shut_share", 0.35, 0.6)
    gate, ready, members = threading.Event(), queue.Queue(3), 40
    with zipfile.ZipFile(s.path("train.zip"), "w", zipfile.ZIP_DEFLATED) as z:
        for n in range(members):
            z.writestr("%d.raw" % n, random.Random(n).randbytes(256) * 4 * kib)

    def govern():
        while True:
            gate.set()
            time.sleep(period - shut)
            if shut:
                gate.clear()
                time.sleep(shut)

    def unzip():
        with zipfile.ZipFile(s.path("train.zip")) as z:
            for n in itertools.cycle(range(members)):
                ready.put(np.frombuffer(z.read("%d.raw" % n), np.uint8))
    background(govern)
    background(unzip)
    s.go()
    while True:
        with s.during("host"):
            gate.wait()
        s.step(gpu, ready.get)


@job(data=CPU, ckpt="checkpoint_stall host_bound", rest="sync_bound launch_bound")
def type_metal(s):
    """Each few steps a copy of the state goes to a thread that packs and writes, with room for one more."""
    ms, every = s.ms("gpu_ms", 10, 45), s.int("every", 3, 8)
    gpu, pack = s.gpu(ms), ms * every * s.ms("pack_share", 1.4, 2.5) / (10 if s.fix else 1)
    state, box, out = np.ones(s.int("mib", 2, 12) << 18, np.float32), queue.Queue(1), multiprocessing.Queue(4)
    child(supply, out.put, ms * s.ms("load_share", 0.05, 0.3), 50000)

    def save():
        while True:
            pieces = np.array_split(box.get(), 8)
            with open(s.path("state.part"), "wb") as f:
                for piece in pieces:
                    decode(pack / 8)
                    f.write(piece)
            os.replace(s.path("state.part"), s.path("state.ckpt"))
    background(save)
    s.go()
    for n in itertools.count(1):
        s.step(gpu, out.get)
        if n % every == 0:
            with s.during("ckpt"):
                box.put(state.copy())


def mirrors(s):
    """Two mirrors of an object store: one is near, the other on another continent."""
    def serve(link, late):
        while ask := link.recv(4):
            time.sleep(late / 1e3 * random.uniform(0.7, 1.3))
            link.sendall(bytes(struct.unpack("<I", ask)[0]))

    def listen(door, late):
        while True:
            background(serve, door.accept()[0], late)
    late = [float(t) for t in s.told("late").split()]
    doors = [socket.create_server(("127.0.0.1", 0)) for _ in late]
    s.tell("ports", " ".join(str(d.getsockname()[1]) for d in doors))
    background(listen, doors[0], late[0])
    listen(doors[1], late[1])


@job(outside=mirrors, data="network_bound too_few_workers", rest="sync_bound launch_bound")
def twin_cupolas(s):
    """Threads ask two mirrors for each batch ahead of time; the first answer counts, the other is dropped."""
    ms, lanes, size = s.ms("gpu_ms", 20, 90), s.int("lanes", 2, 4), s.int("kib", 8, 300) << 10
    gpu, near = s.gpu(ms), ms * lanes * s.ms("near_share", 0.25, 0.6)
    s.tell("late", "%f %f" % (near, near * s.ms("far_times", 4, 9)))
    here = threading.local()

    def connect(port):
        here.link = socket.create_connection(("127.0.0.1", port)).makefile("rwb")

    def fetch():
        here.link.write(struct.pack("<I", size))
        here.link.flush()
        return here.link.read(size)
    pools = [concurrent.futures.ThreadPoolExecutor(lanes, initializer=connect, initargs=(int(p),))
             for p in s.told("ports").split()]

    def race():
        return [p.submit(fetch) for p in pools]
    ahead = collections.deque(race() for _ in range(lanes))

    def first():
        ahead.append(race())
        done, late = concurrent.futures.wait(ahead.popleft(),
                                             return_when=concurrent.futures.FIRST_COMPLETED)
        for f in late:
            f.cancel()
        return np.frombuffer(done.pop().result(), np.uint8)
    s.loop(gpu, first)


@job(data="main_thread_loading", host="host_bound sync_bound", rest="sync_bound launch_bound")
def bell_founder(s):
    """Before each step the optimizer's nested settings are copied deeply, so that it can be undone."""
    ms, rows = s.ms("gpu_ms", 12, 70), s.int("rows", 500, 20000)
    gpu, cost = s.gpu(ms), ms * s.ms("copy_share", 0.3, 0.9) / (10 if s.fix else 1)

    def groups(many):
        return [{"lr": 1e-3, "betas": (0.9, 0.999), "names": ["layer.%d.%d" % (n, i) for i in range(6)],
                 "norms": [s.random.random() for _ in range(20)]} for n in range(many)]
    few = groups(200)
    copy.deepcopy(few)
    begin = time.thread_time()
    copy.deepcopy(few)
    settings = groups(max(1, int(cost / 1e3 / (time.thread_time() - begin) * 200)))
    data, kept = np.zeros((64, rows), np.float32), collections.deque(maxlen=3)

    def shuffled():
        while True:
            yield from (data[i] for i in s.random.sample(range(64), 64))
    batches = shuffled()
    s.go()
    while True:
        with s.during("host"):
            kept.append(copy.deepcopy(settings))
        s.step(gpu, lambda: next(batches))
        if not gpu.loss.value < 1e9:  # a step that went wrong
            settings = kept[0]
