# SPDX-License-Identifier: BSD-2-Clause
"""Input pipelines of several processes or threads, in the shapes that training stacks have."""
import concurrent.futures
import gzip
import itertools
import mmap
import multiprocessing
import os
import queue
import random
import socket
import sqlite3
import struct
import subprocess
import sys
import threading
import time
from ctypes import byref, c_void_p, memmove

import numpy as np

from stranger import CPU, child, decode, job, mortal, parse


def paces(s, low=0.06, high=0.75, longest=110):
    """What a step takes on the device, and in all."""
    step = s.ms("step_ms", 12, longest)
    return step * s.ms("device_share", low, high), step


def make(out, cost, floats):
    while True:
        decode(cost)
        out.put(np.zeros(floats, np.float32))


# ---- the data is late


@job(data="main_thread_loading cpu_bound", rest="sync_bound launch_bound")
def padded_stacks(s):
    """Workers of a DataLoader bring raw graphs; the loop pads and stacks them in Python."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    import torch
    ms, step = paces(s)
    collate, parent = (step - ms) / (20 if s.fix else 1), os.getpid()
    load, many = step * s.ms("load_share", 0.1, 0.4), s.int("graphs", 8, 48)

    class Graphs(torch.utils.data.IterableDataset):
        def __iter__(self):
            chance = random.Random(1)
            while True:
                decode(load)
                yield [np.ones(chance.randint(50, 1000), np.float32) for _ in range(many)]
    gpu = s.gpu(ms)
    raw = iter(torch.utils.data.DataLoader(
        Graphs(), None, num_workers=2, collate_fn=lambda graphs: graphs,
        worker_init_fn=lambda _: mortal(parent)))

    def batch():
        graphs, rows = next(raw), np.zeros((many, 1000), np.float32)
        parse(collate)
        for row, graph in zip(rows, graphs):
            row[:len(graph)] = graph
        return rows
    s.loop(gpu, batch)


@job(data="ipc_bound", rest="sync_bound launch_bound")
def nested_records(s):
    """A DataLoader's workers have scenes in memory, and return them as nested dicts and lists."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    import torch
    gpu, parent = s.gpu(s.ms("gpu_ms", 3, 18)), os.getpid()
    objects, workers = s.int("objects", 5000, 16000), s.int("workers", 1, 2)
    scenes = [[{"id": "%d-%d" % (n, i), "box": [i + 0.1, i + 0.2, i + 0.3, i + 0.4],
                "tags": {"class": i % 80, "score": i / 7, "parts": [i, i + 1000, i + 2000]}}
               for i in range(objects)] for n in range(2)]
    packed = np.zeros((objects, 8), np.float32)

    class Scenes(torch.utils.data.Dataset):
        def __len__(self):
            return 10**9

        def __getitem__(self, n):
            return np.zeros(20000, np.float32), packed if s.fix else scenes[n % 2]
    batches = iter(torch.utils.data.DataLoader(
        Scenes(), None, num_workers=workers, collate_fn=lambda pair: pair,
        worker_init_fn=lambda _: mortal(parent)))
    last = {}

    def batch():
        image, last["scene"] = next(batches)
        return image
    s.loop(gpu, batch)


FILLER = """
import mmap, os, sys, time, zlib
fd, first, size, cost = map(int, sys.argv[1:])
ring, blob = mmap.mmap(fd, 0), zlib.compress(bytes(range(256)) * 800)
turn = 0
while os.read(0, 1):
    end = time.thread_time_ns() + cost
    while time.thread_time_ns() < end:
        zlib.decompress(blob)
    begin = (first + turn) * size
    ring[begin:begin + size] = bytes(size)
    turn = 1 - turn
    os.write(1, b"x")
"""


@job(data="slow_worker", rest="sync_bound launch_bound")
def spawned_slots(s):
    """Three interpreters started afresh fill slots of shared memory; the one has larger images."""
    ms, step = paces(s, 0.15, longest=100)
    quick, size = 3 * ms * s.ms("quick_share", 0.1, 0.3), s.int("kib", 40, 800) << 10
    parent = os.getpid()
    costs, which = [quick, quick, quick], s.int("which", 0, 2)
    if not s.fix:
        costs[which] = 3 * step
    gpu, fd = s.gpu(ms), os.memfd_create("slots")
    os.ftruncate(fd, 6 * size)
    ring = mmap.mmap(fd, 0)
    slots = [np.frombuffer(ring, np.uint8, size, i * size) for i in range(6)]
    fillers = []
    for n, cost in enumerate(costs):
        command = [sys.executable, "-c", FILLER] + [
            str(int(x)) for x in (fd, 2 * n, size, cost * 1e6)]
        p = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                             bufsize=0, pass_fds=(fd,), preexec_fn=lambda: mortal(parent))
        p.stdin.write(b"xx")
        fillers.append(p)
    if not s.fix:
        s.supplier(fillers[which].pid)
    s.go()
    for n in itertools.count():
        s.mark()
        filler, slot = fillers[n % 3], slots[n % 3 * 2 + n // 3 % 2]
        with s.during("data"):
            filler.stdout.read(1)
        s.train(gpu, slot)
        filler.stdin.write(b"x")  # it may be filled again


def dispatch(pipes, cost):
    for n in itertools.count():
        parse(cost)  # which samples go together: lengths, labels, what was seen already
        pipes[n % len(pipes)].send(list(range(n, n + 64)))


def obey(pipe, out, cost):
    while True:
        rows = pipe.recv()
        decode(cost)
        out.put(np.zeros((len(rows), 800), np.float32))


@job(data="cpu_bound", rest="sync_bound launch_bound")
def planned_orders(s):
    """One process plans each batch in Python, and sends it to the next of several workers."""
    ms, step = paces(s)
    workers, gpu = s.int("workers", 2, 3), s.gpu(ms)
    cost = step * s.ms("work_share", 0.05, 0.2) * workers
    out, ends = multiprocessing.Queue(maxsize=4), []
    for _ in range(workers):
        theirs, mine = multiprocessing.Pipe(duplex=False)
        child(obey, theirs, out, cost)
        ends.append(mine)
    s.supplier(child(dispatch, ends, ms / 10 if s.fix else step).pid)
    s.loop(gpu, out.get)


def archive(s):
    """An archive that answers each request late."""
    late = float(s.told("late")) / 1e3
    door = socket.create_server(("127.0.0.1", 0))
    s.tell("port", door.getsockname()[1])

    def serve(link, n):
        chance = random.Random(n)
        while ask := link.recv(4):
            time.sleep(late * chance.uniform(0.8, 1.2))
            link.sendall(bytes(struct.unpack("<I", ask)[0]))
    for n in itertools.count():
        threading.Thread(target=serve, args=(door.accept()[0], n), daemon=True).start()


def near(pipe, cost, size):
    while True:
        decode(cost)
        pipe.send_bytes(bytes(size))


def remote(pipe, port, size):
    link = socket.create_connection(("127.0.0.1", port))
    stream = link.makefile("rb")
    while True:
        link.sendall(struct.pack("<I", size))
        pipe.send_bytes(stream.read(size))


def blend(sources, weights, many, out):
    chance = random.Random(3)
    while True:
        drawn = chance.choices(sources, weights, k=many)
        out.put(np.frombuffer(b"".join(p.recv_bytes() for p in drawn), np.uint8))


@job(outside=archive, data="network_bound slow_worker too_few_workers",
     rest="sync_bound launch_bound")
def blend_process(s):
    """A process draws each sample of a batch from one of three others, the third has it sent."""
    ms, step = paces(s)
    many, weight = s.int("samples", 6, 16), s.ms("far_weight", 0.2, 0.5)
    size, gpu = s.int("kib", 4, 40) << 10, s.gpu(ms)
    s.tell("late", (ms * 0.2 if s.fix else step) / (many * weight))
    port, cost = int(s.told("port")), ms * s.ms("near_share", 0.05, 0.2) / many
    pipes = [multiprocessing.Pipe(duplex=False) for _ in range(3)]
    for _, end in pipes[:2]:
        child(near, end, cost, size)
    s.supplier(child(remote, pipes[2][1], port, size).pid)
    out = multiprocessing.Queue(maxsize=3)
    child(blend, [p[0] for p in pipes], [(1 - weight) / 2] * 2 + [weight], many, out)
    s.loop(gpu, out.get)


def claim(path, out, held, after):
    table = sqlite3.connect(path, timeout=60, isolation_level=None)
    table.execute("PRAGMA synchronous = OFF")
    table.execute("PRAGMA journal_mode = MEMORY")
    while True:
        table.execute("BEGIN IMMEDIATE")
        n, = table.execute("SELECT n FROM claims").fetchone()
        body, = table.execute("SELECT body FROM samples WHERE id = ?", (n % 500,)).fetchone()
        parse(held)  # what the body says is checked before it counts as taken
        table.execute("UPDATE claims SET n = n + 1")
        table.execute("COMMIT")
        decode(after)
        out.put(np.frombuffer(body, np.uint8))


@job(data="lock_bound", rest="sync_bound launch_bound")
def claimed_rows(s):
    """Workers claim samples in one SQLite database, and check each within its transaction."""
    ms, step = paces(s, longest=80)
    path, workers, gpu = s.path("claims.db"), s.int("workers", 2, 3), s.gpu(ms)
    after = step * s.ms("after_share", 0.02, 0.15)
    table = sqlite3.connect(path)
    table.execute("PRAGMA synchronous = OFF")
    table.execute("CREATE TABLE claims (n INTEGER)")
    table.execute("CREATE TABLE samples (id INTEGER PRIMARY KEY, body BLOB)")
    table.execute("INSERT INTO claims VALUES (0)")
    table.executemany("INSERT INTO samples VALUES (?, ?)",
                      [(i, bytes(20000)) for i in range(500)])
    table.commit()
    table.close()
    out = multiprocessing.Queue(maxsize=3)
    for _ in range(workers):
        child(claim, path, out, ms / 10 if s.fix else step, after)
    s.loop(gpu, out.get)


def take_number(tickets, room, out, quick, slow, every):
    while True:
        room.acquire()
        with tickets.get_lock():
            n = tickets.value
            tickets.value += 1
        decode(slow if random.Random(n).random() * every < 1 else quick)
        out.put((n, np.zeros(30000, np.float32)))


@job(data="slow_item", rest="sync_bound launch_bound")
def reorder_buffer(s):
    """Three workers take numbers, a buffer restores the order; a few scans are very large."""
    ms, step = paces(s, 0.2, 0.75, longest=45)
    every, ahead = s.int("every", 6, 14), s.int("ahead", 3, 5)
    quick = ms * s.ms("quick_share", 0.2, 0.5)
    slow = quick if s.fix else every * (step - ms) + ahead * ms
    gpu, out, kept = s.gpu(ms), multiprocessing.Queue(), {}
    tickets, room = multiprocessing.Value("q", 0), multiprocessing.Semaphore(ahead)
    for _ in range(3):
        child(take_number, tickets, room, out, quick, slow, every)
    wanted = itertools.count()

    def batch():
        number = next(wanted)
        while number not in kept:
            n, x = out.get()
            kept[n] = x
        room.release()
        return kept.pop(number)
    s.loop(gpu, batch)


def windows(out, cost, many):
    chance = random.Random(5)
    while True:
        lengths = []
        for _ in range(many):
            decode(cost)
            lengths.append(chance.randint(2000, 60000))
        for length in sorted(lengths):
            out.put(np.zeros(length, np.float32))


@job(data=CPU, rest="sync_bound launch_bound")
def length_windows(s):
    """A process decodes a window of texts, sorts it by length, and then gives out its batches."""
    ms, step = paces(s, 0.06, 0.55, longest=60)
    gpu, out = s.gpu(ms), multiprocessing.Queue(maxsize=s.int("depth", 1, 2))
    cost = ms / 20 if s.fix else step - ms
    s.supplier(child(windows, out, cost, s.int("window", 6, 10)).pid)
    s.loop(gpu, out.get)


def tokenizer(door, threads, cost, size):
    def answer(link):
        while link.recv(8):
            parse(cost)
            link.sendall(bytes(size))
    with concurrent.futures.ThreadPoolExecutor(threads) as pool:
        while True:
            pool.submit(answer, door.accept()[0])


@job(data="lock_bound " + CPU, threads=True, rest="sync_bound launch_bound")
def tokenizer_pool(s):
    """A service in Python tokenises the parts of the next batch in threads, asked over sockets."""
    ms, step = paces(s)
    threads, size, gpu = s.int("threads", 2, 5), s.int("kib", 4, 60) << 10, s.gpu(ms)
    door = socket.create_server(("127.0.0.1", 0))
    cost = (ms * 0.2 if s.fix else step) / threads
    s.supplier(child(tokenizer, door, threads, cost, size).pid)
    links = [socket.create_connection(door.getsockname()) for _ in range(threads)]
    answers = [link.makefile("rb") for link in links]

    def ask():
        for link in links:
            link.sendall(b"tokenise")

    def batch():
        ids = b"".join(a.read(size) for a in answers)
        ask()  # for the next one
        return np.frombuffer(ids, np.int32)
    ask()
    s.loop(gpu, batch)


PIPELINE = 'while :; do zcat "$0" | tr a-z A-Z | head -c "$2" >&3; done 3>"$1"'


@job(data=CPU, rest="sync_bound launch_bound")
def shell_fifo(s):
    """A shell unpacks a corpus again and again into a FIFO, which the loop reads."""
    gpu, size, parent = s.gpu(s.ms("gpu_ms", 3, 30)), s.int("kib", 1500, 8000) << 10, os.getpid()
    if s.fix:
        size //= 32
    words = ["w%06d" % s.random.randrange(10**6) for _ in range(300000)]
    with open(s.path("corpus.gz"), "wb") as f:
        f.write(gzip.compress(" ".join(words).encode(), 1) * 12)  # members in a row
    os.mkfifo(s.path("fifo"))
    subprocess.Popen(["sh", "-c", PIPELINE, s.path("corpus.gz"), s.path("fifo"), "24000000"],
                     stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                     preexec_fn=lambda: mortal(parent))
    fifo, text = open(s.path("fifo"), "rb", buffering=0), memoryview(bytearray(size))

    def batch():
        n = 0
        while n < size:
            n += fifo.readinto(text[n:])
        return np.frombuffer(text, np.uint8)[::16].copy()
    s.loop(gpu, batch)


# ---- the data is there in time


def tile(work):
    decode(work)
    return np.zeros(40000, np.float32)


@job(data=CPU, host="host_bound", rest="sync_bound launch_bound")
def loose_tiles(s):
    """Tiles come by Pool.imap_unordered, some take long; a metric in Python follows each step."""
    ms, step = paces(s)
    cost, every = step * s.ms("load_share", 0.1, 0.4), s.int("every", 15, 40)
    room = threading.Semaphore(8)

    def tasks():
        for n in itertools.count(1):
            room.acquire()
            yield cost if n % every else 5 * cost
    gpu = s.gpu(ms)
    pool = multiprocessing.Pool(2, mortal, (os.getpid(),))
    tiles = pool.imap_unordered(tile, tasks())
    s.go()
    for n in itertools.count(1):
        s.mark()
        with s.during("data"):
            x = next(tiles)
            room.release()
        s.train(gpu, x)
        if not s.fix or n % 50 == 0:
            with s.during("host"):
                parse(step - ms)  # matches boxes to boxes


@job(data=CPU, host="sync_bound host_bound", rest="sync_bound launch_bound")
def finite_flags(s):
    """Two workers keep up; after each block the loop reads whether all is finite, and notes it."""
    ms, step = paces(s, 0.15, 0.75)
    blocks, few = s.int("blocks", 5, 16), s.int("block_launches", 2, 8)
    note, load = (step - ms) / blocks, step * s.ms("load_share", 0.1, 0.5)
    gpu, out = s.gpu(ms, launches=blocks * few), multiprocessing.Queue(maxsize=4)
    for _ in range(2):
        child(make, out, load, 50000)
    s.go()
    while True:
        s.mark()
        with s.during("data"):
            x = out.get()
        gpu.upload(x.ctypes.data, x.nbytes)
        for block in range(blocks):
            gpu.launch(block * 2 // blocks, few)
            if not s.fix:  # else one flag for all of them is read at the end
                gpu.loss_item()
                with s.during("host"):
                    parse(note)
        gpu.loss_item()


def resumable(pipe, out, cost):
    where = {"epoch": 0, "sample": 0, "buffer": [bytes(2000)] * 50}

    def answer():
        while True:
            pipe.recv()
            pipe.send(where)
    threading.Thread(target=answer, daemon=True).start()
    while True:
        decode(cost)
        where["sample"] += 1
        out.put(np.zeros(50000, np.float32))


@job(data=CPU, ckpt="checkpoint_stall host_bound", rest="sync_bound launch_bound")
def resumable_loader(s):
    """Every few steps the workers' positions are asked for, and saved with the packed weights."""
    ms, step = paces(s, 0.2, 0.75, longest=80)
    every, load, pipes = s.int("every", 3, 9), ms * s.ms("load_share", 0.2, 1), []
    gpu, out = s.gpu(ms), multiprocessing.Queue(maxsize=4)
    for _ in range(2):
        mine, theirs = multiprocessing.Pipe()
        child(resumable, theirs, out, load)
        pipes.append(mine)
    s.go()
    for n in itertools.count(1):
        s.step(gpu, out.get)
        if n % (50 * every if s.fix else every) == 0:
            with s.during("ckpt"):
                for pipe in pipes:
                    pipe.send("where")
                places = [pipe.recv() for pipe in pipes]
                decode((step - ms) * every)  # stands for packing the weights
                with open(s.path("resume.part"), "w", encoding="utf-8") as f:
                    f.write(" ".join("%(epoch)d/%(sample)d" % p for p in places))
                    f.write("\n" + "0" * 200000)
                os.rename(s.path("resume.part"), s.path("resume"))


@job(data=CPU, host="host_bound", rest="sync_bound launch_bound")
def ready_on_device(s):
    """Processes keep up, and a thread has the next two batches on the device before they count."""
    ms = s.ms("gpu_ms", 15, 110)
    load, workers = ms * s.ms("load_share", 0.1, 0.6), s.int("workers", 1, 2)
    floats, log = s.int("kib", 60, 1500) << 8, ms * s.ms("log_share", 0.005, 0.04)
    gpu, out = s.gpu(ms), multiprocessing.Queue(maxsize=3)
    for _ in range(workers):
        child(make, out, load, floats)
    lib, side, slots = gpu.lib, c_void_p(), []
    gpu.check(lib.cudaStreamCreate(byref(side)))
    free, ready = queue.Queue(), queue.Queue()
    for n in range(2):
        event, place = c_void_p(), c_void_p()
        gpu.check(lib.cudaEventCreate(byref(event)))
        gpu.check(lib.cudaMalloc(byref(place), 4 * floats))
        slots.append((event, place, gpu.host_buffer(4 * floats)))
        free.put(n)

    def stage():
        gpu.enter_thread()
        while True:
            n, x = free.get(), out.get()
            event, place, pinned = slots[n]
            memmove(pinned, x.ctypes.data, x.nbytes)
            gpu.check(lib.cudaMemcpyAsync(place, pinned, 4 * floats, 1, side))
            gpu.check(lib.cudaEventRecord(event, side))
            ready.put(n)
    threading.Thread(target=stage, daemon=True).start()
    s.go()
    while True:
        s.mark()
        with s.during("data"):
            n = ready.get()
        gpu.check(lib.cudaStreamWaitEvent(gpu.stream, slots[n][0], 0))
        s.train(gpu)
        free.put(n)
        with s.during("host"):
            parse(log)
