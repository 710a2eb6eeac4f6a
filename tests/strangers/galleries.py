# SPDX-License-Identifier: BSD-2-Clause
"""Jobs with two troubles at once: a main one, and a lesser one beside or behind it."""
import collections
import concurrent.futures
import contextlib
import itertools
import multiprocessing
import os
import pickle
import signal
import socket
import struct
import threading
import time

import numpy as np

from stranger import CPU, child, decode, job, mortal, parse


def split(s, low=0.4, high=4.5, longest=30):
    """A step's time on the device, and the larger and the lesser part of what is lost, in ms."""
    ms, lost = s.ms("gpu_ms", 8, longest), s.ms("lost_share", low, high)
    part = s.ms("part", 0.2, 0.25)
    return ms, ms * lost * (1 - part), ms * lost * part


def far_store(s):
    """A store far away, which answers each request late."""
    late = float(s.told("late")) / 1e3
    door = socket.create_server(("127.0.0.1", 0))
    s.tell("port", door.getsockname()[1])

    def serve(link):
        while ask := link.recv(4):
            time.sleep(late)
            link.sendall(bytes(struct.unpack("<I", ask)[0]))
    while True:
        threading.Thread(target=serve, args=(door.accept()[0],), daemon=True).start()


def reach(port):
    return socket.create_connection(("127.0.0.1", port)).makefile("rwb")


def fetch(stream, size):
    stream.write(struct.pack("<I", size))
    stream.flush()
    return stream.read(size)


# ---- the data, and something beside it


def scan_reader(s, link, path, ms):
    fd, at = os.open(path, os.O_RDONLY), 0
    pieces = os.path.getsize(path) >> 13
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
    while link.recv_bytes():
        rows, end = [], time.monotonic() + ms / 1e3
        while not rows or time.monotonic() < end:
            rows.append(os.pread(fd, 8192, at << 13))
            at = (at + 1013) % pieces
        link.send_bytes(b"".join(rows[:32]))
        s.cold(path)


@job(data="io_bound", host="host_bound", rest="sync_bound launch_bound")
def herbarium_scans(s):
    """A process reads pieces of scans all over a cold file when asked; the loop counts metrics."""
    ms, reads, count = split(s, longest=18)
    gpu, (here, there) = s.gpu(ms), multiprocessing.Pipe()
    path = s.data_file("herbarium", 40)
    s.supplier(child(scan_reader, s, there, path, reads / 10 if s.fix else reads).pid)
    s.go()
    while True:
        s.mark()
        with s.during("data"):
            here.send_bytes(b"next")
            x = np.frombuffer(here.recv_bytes(), np.uint8)
        s.train(gpu, x)
        with s.during("host"):
            parse(count)


@job(data="loader_restart", beside="slow_item", rest="sync_bound launch_bound")
def touring_shows(s):
    """Short epochs of a DataLoader that keeps no worker, and in each of them one huge picture."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    import torch
    ms, index, huge = split(s, 0.8, 3, 18)
    gpu, steps, side = s.gpu(ms), s.int("epoch", 5, 8), s.int("side", 24, 96)
    index, huge = index * steps, huge * steps + 2 * ms  # two batches are under way
    where, parent = 4 * (steps // 2 + 1), os.getpid()

    class Pictures(torch.utils.data.Dataset):
        def __len__(self):
            return 4 * steps

        def __getitem__(self, i):
            parse(huge if i == where else 0.2)
            return torch.zeros(3, side, side)

    def opened(_):
        mortal(parent)
        parse(index)  # which pictures there are
    loader = torch.utils.data.DataLoader(Pictures(), 4, num_workers=1, worker_init_fn=opened,
                                         persistent_workers=s.fix)
    batches = itertools.chain.from_iterable(itertools.repeat(loader))
    s.loop(gpu, lambda: next(batches).numpy())


def exhibits(orders, out, count):
    records = [{"id": i, "at": (i, i / 2), "name": "exhibit %d" % i, "tags": [i, i + 1]}
               for i in range(count)]
    while True:
        first = orders.get() % count
        out.put(records[first:] + records[:first])


def curator(orders):
    for n in itertools.count():
        orders.put(n * 37)


@job(data="ipc_bound", host="host_bound", rest="sync_bound launch_bound")
def nested_vitrines(s):
    """One queue brings orders to a process, another its many small records to a loop with sums."""
    ms, opening, sums = split(s, longest=22)
    gpu, orders = s.gpu(ms), multiprocessing.Queue(maxsize=2)
    out = multiprocessing.Queue(maxsize=2)
    packed = pickle.dumps([{"id": i, "at": (i, i / 2), "name": "exhibit %d" % i,
                            "tags": [i, i + 1]} for i in range(5000)])
    begin = time.perf_counter()
    for _ in range(3):
        pickle.loads(packed)
    each = (time.perf_counter() - begin) * 1e3 / 15000
    child(curator, orders)
    child(exhibits, orders, out, max(int(opening / (10 if s.fix else 1) / each), 20))

    def obtain():
        return np.array([r["id"] for r in out.get()[:512]], np.int64)
    s.go()
    while True:
        s.step(gpu, obtain)
        with s.during("host"):
            parse(sums)


def archivist(link, ms):
    while link.recv(100):
        time.sleep(ms / 1e3)
        link.send(b"noted")


@job(data="main_thread_loading cpu_bound", host="host_bound", rest="sync_bound launch_bound")
def label_copy(s):
    """The loop itself parses the labels of a batch, and reports each step to a sleepy process."""
    ms, reads, answer = split(s)
    gpu, (here, there) = s.gpu(ms), socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    length = s.one("length", 64, 128, 256)
    child(archivist, there, answer)

    def obtain():
        parse(reads / 10 if s.fix else reads)
        return np.zeros((32, length), np.int64)
    s.go()
    while True:
        s.step(gpu, obtain)
        with s.during("host"):
            here.send(b"loss")
            here.recv(100)


# ---- the data, and something that hides behind it


def tray(out, ms, size):
    while True:
        decode(ms)
        out.put(np.zeros(size, np.float32))


@job(data="slow_worker", rest="sync_bound launch_bound")
def moth_trays(s):
    """Workers have a queue each, one is far slower; it works on while the state is saved."""
    ms, waits, saves = split(s)
    gpu, workers, size = s.gpu(ms), s.int("workers", 2, 4), s.int("kib", 20, 600) << 8
    slow = workers * (ms + waits + saves)
    fast, lame = slow / s.int("times", 6, 12), s.int("lame", 0, workers - 1)
    every, state = workers * s.int("rounds", 2, 3), np.ones(s.int("mib", 1, 4) << 18, np.float32)
    queues = [multiprocessing.Queue(maxsize=2) for _ in range(workers)]
    for n, q in enumerate(queues):
        maker = child(tray, q, slow if n == lame and not s.fix else fast, size)
        if n == lame:
            s.supplier(maker.pid)
    turns = itertools.cycle(queues)
    s.go()
    for n in itertools.count(1):
        s.step(gpu, lambda: next(turns).get())
        if n % every == 0:
            with s.during("ckpt"):
                decode(saves * every)  # the state is packed
                np.save(s.path("moths.npy"), state)


def loan(out, port, size, hold, lock):
    stream = reach(port)
    while True:
        body = fetch(stream, size)
        with lock:
            decode(hold)
        out.put(np.frombuffer(body, np.uint8))


@job(outside=far_store, data="lock_bound", rest="sync_bound launch_bound")
def tapestry_loans(s):
    """Three processes fetch from a far store, and then decode under a lock for all of them."""
    ms, hold, more = split(s)
    gpu, hold, size = s.gpu(ms), ms + hold + more, s.int("kib", 20, 300) << 10
    s.tell("late", hold * s.ms("late_share", 0.25, 0.35))
    out, port = multiprocessing.Queue(maxsize=4), int(s.told("port"))
    lock = contextlib.nullcontext() if s.fix else multiprocessing.Lock()
    for _ in range(3):
        child(loan, out, port, size, hold, lock)
    s.loop(gpu, out.get)


def print_fetcher(link, port, size):
    stream = reach(port)
    while True:
        link.send_bytes(fetch(stream, size))


def print_packer(link, out, ms):
    while True:
        body = link.recv_bytes()
        decode(ms)
        out.put(np.frombuffer(body, np.uint8))


@job(outside=far_store, data="network_bound", rest="sync_bound launch_bound")
def print_room(s):
    """A process fetches prints from a far store, one at a time, and a second one decodes them."""
    ms, late, more = split(s)
    gpu, late, size = s.gpu(ms), ms + late + more, s.int("kib", 20, 200) << 10
    s.tell("late", late / 10 if s.fix else late)
    (end, begin), port = multiprocessing.Pipe(duplex=False), int(s.told("port"))
    out = multiprocessing.Queue(maxsize=3)
    child(print_fetcher, begin, port, size)
    child(print_packer, end, out, late * s.ms("pack_share", 0.65, 0.85))
    s.loop(gpu, out.get)


def wing(slots, free, full, ms):
    for n in itertools.count():
        free.acquire()
        decode(ms)
        slots[n % len(slots)] += 1
        full.release()


@job(data=CPU + " slow_worker", rest="sync_bound launch_bound")
def twin_wings(s):
    """A batch is half paintings, half busts, which two processes decode; the loop ranks busts."""
    ms, waits, ranks = split(s)
    gpu, floats, heavy = s.gpu(ms), s.int("kib", 20, 400) << 8, ms + waits + ranks
    x, sources = np.zeros(2 * floats, np.float32), []
    for cost in (heavy / s.int("times", 5, 10), heavy / 10 if s.fix else heavy):
        raw = multiprocessing.RawArray("f", 2 * floats)
        slots = np.frombuffer(raw, np.float32).reshape(2, floats)
        free, full = multiprocessing.Semaphore(2), multiprocessing.Semaphore(0)
        maker = child(wing, slots, free, full, cost)
        sources.append((slots, free, full))
    s.supplier(maker.pid)
    taken = itertools.count()

    def obtain():
        n = next(taken) % 2
        for half, (slots, free, full) in zip((x[:floats], x[floats:]), sources):
            full.acquire()
            half[:] = slots[n]
            free.release()
        return x
    s.go()
    while True:
        s.step(gpu, obtain)
        with s.during("host"):
            parse(ranks)  # by likeness, while both of the processes work on


@job(outside=far_store, data="cpu_oversubscribed", rest="sync_bound launch_bound")
def crowded_cloakroom(s):
    """All workers of a DataLoader are pinned to one core; each asks for labels, then augments."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    import torch
    ms, cost, more = split(s, 0.5)
    gpu, cost, workers = s.gpu(ms), ms + cost + more, s.int("workers", 3, 4)
    s.tell("late", cost * s.ms("late_share", 0.2, 0.3))
    port, parent, side = int(s.told("port")), os.getpid(), s.int("side", 32, 200)
    cores = os.sched_getaffinity(0)

    class Coats(torch.utils.data.IterableDataset):
        def __iter__(self):
            stream = reach(port)
            while True:
                fetch(stream, 400)
                decode(cost)
                yield torch.zeros(4, 3, side, side)

    def started(_):
        mortal(parent)
        os.sched_setaffinity(0, cores if s.fix else {max(cores)})
    batches = iter(torch.utils.data.DataLoader(Coats(), None, num_workers=workers,
                                               prefetch_factor=2, worker_init_fn=started))
    s.loop(gpu, lambda: next(batches).numpy())


@job(outside=far_store, data="slow_item", rest="sync_bound launch_bound")
def triptych_panels(s):
    """Threads ask a far store two batches ahead, in order; some panels take long to decode."""
    ms, waits, more = split(s, 0.5, 4, 20)
    gpu, every, size = s.gpu(ms), s.int("every", 5, 8), s.int("kib", 10, 200) << 10
    long = (waits + more) * every + 2 * ms  # two batches are under way
    s.tell("late", ms * s.ms("late_share", 0.4, 0.8))
    port, mine = int(s.told("port")), threading.local()

    def panel(n):
        if not hasattr(mine, "stream"):
            mine.stream = reach(port)
        body = fetch(mine.stream, size)
        decode(long if n % every == 0 and not s.fix else 0.5)
        return np.frombuffer(body, np.uint8)
    pool, numbers = concurrent.futures.ThreadPoolExecutor(2), itertools.count(1)
    pending = collections.deque(pool.submit(panel, next(numbers)) for _ in range(2))

    def obtain():
        x = pending.popleft().result()
        pending.append(pool.submit(panel, next(numbers)))
        return x
    s.loop(gpu, obtain)


# ---- not the data in the first place


@job(host="sync_bound host_bound", data="main_thread_loading cpu_bound",
     rest="sync_bound launch_bound host_bound")
def fresco_layers(s):
    """Each layer's error is read, and Python decides on it; a DataLoader without workers pads."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    import torch
    ms, decides, pads = split(s)
    layers, few, length = s.int("layers", 10, 30), s.int("few", 2, 5), s.int("length", 50, 400)
    gpu = s.gpu(ms, launches=layers * few)

    def collate(rows):
        parse(pads)
        return torch.zeros(len(rows), length, dtype=torch.int64)
    loader = torch.utils.data.DataLoader(range(16 * 4000), 16, shuffle=True, collate_fn=collate)
    batches = itertools.chain.from_iterable(itertools.repeat(loader))
    s.go()
    while True:
        s.mark()
        with s.during("data"):
            x = next(batches).numpy()
        gpu.upload(x.ctypes.data, x.nbytes)
        for _ in range(layers):
            gpu.launch(0, few)
            if s.fix:
                continue  # the device decides
            gpu.loss_item()
            with s.during("host"):
                parse(decides / layers)
        gpu.optimizer()
        gpu.loss_item()


def copyist(link, ms):
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    while link.recv_bytes():
        decode(ms)
        link.send_bytes(bytes(100000))


@job(host="host_bound rank_straggler", peer="rank_straggler host_bound",
     data="cpu_oversubscribed", rest="sync_bound")
def diptych_ranks(s):
    """Of two ranks one describes its samples each step; both ask helpers that share a core."""
    ms, late, copies = split(s)
    launches, parent = s.int("launches", 10, 80), os.getpid()
    door = socket.create_server(("127.0.0.1", 0))
    for rank in range(2):
        if os.fork():
            continue
        mortal(parent, signal.SIGTERM)  # it has a log to write
        s.rank(rank)
        peer = socket.create_connection(door.getsockname()) if rank else door.accept()[0]
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        gpu, (here, there) = s.gpu(ms, launches=launches), multiprocessing.Pipe()
        child(copyist, there, copies / 2)  # the other one's takes the core as long
        s.told("go")
        while True:
            s.mark()
            with s.during("data"):
                here.send_bytes(b"next")
                x = np.frombuffer(here.recv_bytes(), np.uint8)
            s.train(gpu, x)
            if rank == 1 and not s.fix:
                with s.during("host"):
                    parse(late)
            with s.during("peer"):
                peer.sendall(b"b")
                peer.recv(1)
    s.go()
    signal.pause()


@job(outside=far_store, ckpt="checkpoint_stall host_bound",
     data="network_bound main_thread_loading", rest="sync_bound launch_bound")
def varnish_saves(s):
    """Every few steps the state is packed and written, block by block; the loop asks a store."""
    ms, saves, late = split(s, longest=20)
    gpu, every, size = s.gpu(ms), s.int("every", 4, 8), s.int("kib", 10, 300) << 10
    blocks, block = s.int("blocks", 4, 16), os.urandom(256 << 10)
    s.tell("late", late)
    stream = reach(int(s.told("port")))
    s.go()
    for n in itertools.count(1):
        s.step(gpu, lambda: np.frombuffer(fetch(stream, size), np.uint8))
        if n % every == 0:
            with s.during("ckpt"), open(s.path("varnish.ckpt"), "wb", buffering=0) as f:
                for _ in range(blocks):
                    decode(saves * every / blocks / (10 if s.fix else 1))
                    f.write(block)


@job(host="host_bound", lock="lock_bound host_bound", rest="sync_bound launch_bound")
def docent_notes(s):
    """The loop writes notes on each step; a thread packs weights under a lock that it needs."""
    ms, notes, more = split(s)
    gpu, lock, bell = s.gpu(ms), threading.Lock(), threading.Event()
    weights = np.ones(50000, np.float32)
    last = weights.copy()

    def publish():
        while True:
            bell.wait()
            bell.clear()
            with lock:
                decode(ms + more)  # it begins with the step's kernels
    threading.Thread(target=publish, daemon=True).start()
    s.go()
    while True:
        s.mark()
        bell.set()
        s.train(gpu)
        with s.during("lock"):
            lock.acquire()
        np.copyto(last, weights)
        lock.release()
        with s.during("host"):
            parse(notes / 10 if s.fix else notes)
