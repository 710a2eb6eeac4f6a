# SPDX-License-Identifier: BSD-2-Clause
"""In the cooperages: tickets at a platform team's desk, each of which says no more than 'my GPU is slow'."""
import contextlib
import ctypes
import inspect
import itertools
import multiprocessing
import os
import queue
import random
import select
import signal
import socket
import socketserver
import sys
import threading
import time

import numpy as np

from stranger import CPU, child, decode, job, mortal, parse

PAGE, MIB = 4096, 1 << 20


def once(f, clock=time.thread_time):
    """Seconds that f takes, of this thread's computing or by another clock."""
    begin = clock()
    f()
    return clock() - begin


def took(f):
    """The same, once it is warm."""
    f()
    return max(once(f), 1e-7)


def put(out, cost, size):
    while True:
        decode(cost)
        out.put(np.zeros(size, np.float32))


def stocked(cost, size=20000):
    """A loader that keeps up: a process and a queue."""
    out = multiprocessing.Queue(maxsize=4)
    child(put, out, cost, size)
    return out.get


# ---- the data is late


def reverberate(link, room):
    """Has each clip sound as in a room, whose impulse response is laid over every sample of it."""
    clip = np.linspace(-1, 1, 16 << 10, dtype=np.float32)
    while True:
        link.send(np.convolve(clip, room, "full")[:len(clip)].astype(np.float32).tobytes())


@job(data=CPU, rest="sync_bound launch_bound")
def echoing_hogshead(s):
    """Speech, to which a process adds the echo of a room, and sends it as packets of a Unix socket; to blame is the
    convolution, which is a sum over all of the response for each sample, where a Fourier transform was meant."""
    ms, share = s.ms("gpu_ms", 8, 35), s.ms("echo_share", 1.5, 2.6)
    clip, room = np.ones(16 << 10, np.float32), np.ones(400, np.float32)
    taps = max(int(400 * ms * share / 1e3 / took(lambda: np.convolve(clip, room))), 6)
    room = np.ones(s.keep("taps", taps // 6 if s.fix else taps), np.float32)
    mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    gpu = s.gpu(ms)
    s.supplier(child(reverberate, theirs, room).pid)
    theirs.close()
    s.loop(gpu, lambda: np.frombuffer(mine.recv(64 << 10), np.float32))


def head_of(link):
    """The lines of a request, up to the empty one."""
    size = 0
    for line in iter(link.readline, b"\r\n"):
        if not line:
            return None
        if line.startswith(b"Content-Length"):
            size = int(line.split()[1])
    return size


class Features(socketserver.StreamRequestHandler):
    """A feature service of old: it has not heard of Expect, and reads on."""
    disable_nagle_algorithm = True

    def handle(self):
        with contextlib.suppress(ConnectionError):
            for size in iter(lambda: head_of(self.rfile), None):
                users = np.frombuffer(self.rfile.read(size), np.int64)
                values = np.repeat(users.astype(np.float32), 8).tobytes()
                self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(values) + values)


class Service(socketserver.ThreadingMixIn, socketserver.TCPServer):
    daemon_threads = True


def features(s):
    service = Service(("127.0.0.1", 0), Features)
    s.tell("port", service.server_address[1])
    service.serve_forever()


def post(link, stream, users, patience):
    """As curl posts what is large: the head first, and the body when the server says 100, or when time is up."""
    link.sendall(b"POST /features HTTP/1.1\r\nHost: features\r\nExpect: 100-continue\r\nContent-Length: %d\r\n\r\n"
                 % users.nbytes)
    if select.select([link], [], [], patience)[0]:
        head_of(stream)
    link.sendall(users)
    return np.frombuffer(stream.read(head_of(stream)), np.float32)


@job(outside=features, data="network_bound", rest="sync_bound launch_bound")
def unanswered_knock(s):
    """Scores of all users, offline; a thread posts their numbers to a feature service, some batches ahead, which is
    quick; to blame is Expect: 100-continue, which it never answers, so that the client waits as long as it may."""
    ms, users = s.ms("gpu_ms", 10, 40), np.arange(s.int("users", 1000, 4000))
    patience, gpu, out = ms * s.ms("patience_share", 1.4, 2.6) / 1e3, s.gpu(ms), queue.Queue(3)
    link = socket.create_connection(("127.0.0.1", int(s.told("port"))))
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    stream = link.makefile("rb")

    def ask():
        while True:
            out.put(post(link, stream, users, patience / 6 if s.fix else patience))
    threading.Thread(target=ask, daemon=True).start()
    s.loop(gpu, out.get)


def newest_first(fd, end, size):
    """Records of a page each, from the end of the log to its beginning, and then once more."""
    for place in itertools.cycle(range(end - size, -1, -size)):
        yield os.pread(fd, size, place)


def peel(end, path, many, warm):
    """Learns what the newest clicks were; the next job on this node finds the page cache as it was."""
    fd, whole = os.open(path, os.O_RDONLY), os.path.getsize(path)
    while warm and os.read(fd, MIB):
        pass
    records = newest_first(fd, whole, PAGE)
    with os.fdopen(end, "wb", buffering=0) as out:
        while True:
            heads = b"".join(record[:8] for record in itertools.islice(records, many))
            out.write(np.resize(np.frombuffer(heads, np.uint8), 16 << 10).tobytes())
            if not warm:
                os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)


@job(data="io_bound", rest="sync_bound launch_bound")
def topmost_stave(s):
    """A recommender that learns from the newest clicks first: a process reads the log of them from its end, record
    by record; to blame is this direction, in which the kernel never reads ahead, so that each page is waited for."""
    ms, share = s.ms("gpu_ms", 8, 25), s.ms("read_share", 1.7, 3)
    path, gpu = s.data_file("topmost_stave", 64), s.gpu(ms)
    records = newest_first(os.open(path, os.O_RDONLY), 64 * MIB, PAGE)
    each = once(lambda: list(itertools.islice(records, 400)), time.monotonic) / 400
    many = s.keep("reads", min(max(int(ms * share / 1e3 / each), 16), 4000))
    s.cold(path)
    mine, theirs = os.pipe()
    s.supplier(child(peel, theirs, path, many, s.fix).pid)
    os.close(theirs)
    stream = os.fdopen(mine, "rb", buffering=16 << 10)

    def obtain():
        return np.frombuffer(stream.read(16 << 10), np.uint8)
    s.loop(gpu, obtain)


@job(data="main_thread_loading", rest="sync_bound launch_bound")
def shuffled_staves(s):
    """Two views of a large table, all of which is in memory, are learnt from in turn; to blame is how the loop draws
    its few rows, by numpy's choice(replace=False) of old, which puts all numbers of rows in a new order for that."""
    ms, share, many = s.ms("gpu_ms", 8, 30), s.ms("draw_share", 0.5, 1.1), s.int("rows", 500, 4000)
    chance, models = np.random.RandomState(1), [s.gpu(ms), s.gpu(ms, launches=s.int("other_launches", 10, 100))]
    each = took(lambda: chance.choice(400000, many, replace=False)) / 400000
    table = np.ones((s.keep("table", max(int(ms * share / 1e3 / each), 5000)), 4), np.float32)

    def drawn():
        return table[chance.randint(0, len(table), many) if s.fix else chance.choice(len(table), many, replace=False)]
    s.go()
    for model in itertools.cycle(models):
        model.enter_thread()
        s.step(model, drawn)


class Customer:
    """Whose chat it is: the key of a dict."""
    __slots__ = ("tenant", "number", "whole")

    def __init__(self, tenant, number, whole=False):
        self.tenant, self.number, self.whole = tenant, number, whole

    def __eq__(self, other):
        return self.tenant == other.tenant and self.number == other.number

    def __hash__(self):
        return hash((self.tenant, self.number) if self.whole else self.tenant)


def found(table, keys, many):
    return sum(table[key] for key in itertools.islice(keys, many))


def customers(tenants, whole):
    """A table of customers by their key, and keys without end."""
    table = {Customer(n % tenants, n, whole): n for n in range(1000)}
    chance = random.Random(1)
    numbers = (chance.randrange(1000) for _ in itertools.count())
    return table, (Customer(n % tenants, n, whole) for n in numbers)


def hoop(link, tenants, whole, many, cost):
    table, keys = customers(tenants, whole)
    while True:
        decode(cost)
        link.send(np.full(30000, found(table, keys, many), np.float32))


@job(data="slow_worker", rest="sync_bound launch_bound")
def single_hoop(s):
    """Fine-tuning on chats, for which workers, asked by turns, look customers up in a dict; to blame is the worker
    of the one large tenant, as a key's __hash__ is its tenant's only, and all of its customers are in one bucket."""
    ms, workers, share = s.ms("gpu_ms", 10, 40), s.int("workers", 2, 3), s.ms("look_up_share", 1.5, 2.5)
    large, cost, links = s.int("large", 0, workers - 1), ms * s.ms("load_share", 0.05, 0.2), []
    table, keys = customers(1, False)
    each = took(lambda: found(table, keys, 400)) / 400
    many, gpu = s.keep("customers", max(int(ms * share * workers / 1e3 / each), 16)), s.gpu(ms)
    for n in range(workers):
        mine, theirs = multiprocessing.Pipe(duplex=False)
        pid = child(hoop, theirs, 1 if n == large else 1000, s.fix, many, cost).pid
        links.append(mine)
        if n == large:
            s.supplier(pid)
    turn = itertools.cycle(links)
    s.loop(gpu, lambda: next(turn).recv())


# ---- not for data


@job(data=CPU, rest="launch_bound")
def hundred_rivets(s):
    """A recommender with a table for each of its many columns, and batches in time; to blame is the ModuleDict that
    holds them, over which the loop goes: each look-up, its backward and its update are launches of next to nothing."""
    columns, us, ms = s.int("columns", 250, 500), s.ms("kernel_us", 0.8, 1.5), s.ms("top_ms", 1, 3)
    tables = {"column_%d" % n: n for n in range(columns // 20 if s.fix else columns)}
    small, top = s.gpu(us * columns * 3 / 1e3, launches=columns * 3), s.gpu(ms, launches=s.int("top_launches", 8, 24))
    batch = stocked((ms + columns * 3 * us / 1e3) * s.ms("load_share", 0.1, 0.3), 2000)
    s.go()
    while True:
        s.mark()
        with s.during("data"):
            x = batch()
        small.enter_thread()
        small.upload(x.ctypes.data, x.nbytes)
        for _ in tables.values():
            small.launch(0, 1)
        top.enter_thread()
        top.forward()
        top.backward()
        small.enter_thread()
        for _ in tables.values():
            small.launch(1, 1)
        for _ in tables.values():
            small.launch(2, 1)
        top.loss_item()


def branded(caller, layer):
    """A line of the log with the place that it comes from."""
    frame = caller()
    return "%s:%d layer %d is fine" % (os.path.basename(frame[0]), frame[1], layer)


def by_stack():
    called = inspect.stack()[2]
    return called.filename, called.lineno


def by_frame():
    called = sys._getframe(2)
    return called.f_code.co_filename, called.f_lineno


@job(data=CPU, host="host_bound", rest="sync_bound launch_bound")
def branded_heads(s):
    """Fine-tuning with callbacks, whose logger puts into each line where it comes from, and batches in time; to blame
    is inspect.stack(), which after each step seeks the source of all callers for each layer's line."""
    ms, share = s.ms("gpu_ms", 8, 30), s.ms("log_share", 0.45, 1.4)
    gpu, batch = s.gpu(ms), stocked(ms * s.ms("load_share", 0.1, 0.35))
    caller = by_frame if s.fix else by_stack

    def callbacks(lines, depth=6):
        if depth:
            return callbacks(lines, depth - 1)
        return [branded(caller, layer) for layer in range(lines)]
    each = took(lambda: callbacks(6)) / 6
    lines = s.keep("lines", max(round(ms * share / 1e3 / each) if not s.fix else 12, 2))
    log = os.open(s.path("train.log"), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    s.go()
    while True:
        s.step(gpu, batch)
        with s.during("host"):
            os.write(log, "\n".join(callbacks(lines)).encode())


def compiled(cost):
    """The compiler's process: it generates code for the device, and is done."""
    decode(cost)


def season(s, length, known, trace, cost):
    """A graph for this length: it is traced in Python, and compiled by a process, unless there is one."""
    if length in known:
        return
    with s.during("host"):
        parse(trace)
    with s.during("child"):
        child(compiled, cost).join()
    known.add(length)


@job(data=CPU, host="rank_straggler host_bound", child="rank_straggler host_bound", peer="rank_straggler host_bound",
     rest="sync_bound launch_bound")
def green_timber(s):
    """Fine-tuning on two nodes that were given different settings; to blame is the second rank, whose batches are not
    padded to a fixed length, so that it compiles its step anew for most of them, and the first one waits."""
    ms, launches, share = s.ms("gpu_ms", 12, 40), s.int("launches", 10, 80), s.ms("compile_share", 0.5, 1.5)
    every, cost, parent = s.int("new_one_in", 1, 3), ms * s.ms("load_share", 0.05, 0.15), os.getpid()
    trace, compiler = ms * every * share * 0.6, ms * every * share * 0.4
    for rank, link in enumerate(socket.socketpair()):
        if os.fork():
            continue
        mortal(parent, signal.SIGTERM)  # it has a log to write
        s.rank(rank)
        gpu, batch, known = s.gpu(ms, launches=launches), stocked(cost), {2048}
        s.told("go")
        for n in itertools.count():
            s.mark()
            with s.during("data"):
                x = batch()
            if rank and not s.fix:
                season(s, n // every + 1, known, trace, compiler)
            s.train(gpu, x)
            with s.during("peer"):
                link.sendall(b"g" * 4096)
                link.recv(4096, socket.MSG_WAITALL)
    s.go()
    signal.pause()


MOVED_TO = 0x80


def scanners(s):
    """Puts a scan into the folder now and then, under another name until all of it is there."""
    rate = s.ms("rate", 2, 6)
    s.told("open")
    s.told("go")
    for n in itertools.count():
        time.sleep(s.random.expovariate(rate))
        part, whole = s.path("scan.part"), s.path("scans/%d.raw" % n)
        np.ones(s.random.randint(20, 200) << 8, np.float32).tofile(part)
        os.rename(part, whole)


def arrived(watch):
    """Names of files that were moved to the folder; sleeps until there is one."""
    events, names = os.read(watch, 8192), []
    while events:
        size = int.from_bytes(events[12:16], sys.byteorder)
        names.append(events[16:16 + size].rstrip(b"\0").decode())
        events = events[16 + size:]
    return names


@job(outside=scanners, demand="no_demand", host="host_bound", rest="sync_bound launch_bound")
def cellar_hatch(s):
    """A hospital's batch inference, which takes up each scan that is put into a folder, as inotify tells; nobody is
    to blame that the device idles, as it was bought for the day and the ticket was written at night."""
    gpu, passes = s.gpu(s.ms("gpu_ms", 8, 25)), s.int("passes", 1, 4)
    libc, folder = ctypes.CDLL(None), s.path("scans")
    os.makedirs(folder, exist_ok=True)
    watch = libc.inotify_init1(0)
    libc.inotify_add_watch(watch, folder.encode(), MOVED_TO)
    s.tell("open", "")
    s.go()
    while True:
        with s.during("demand"):
            names = arrived(watch)
        for name in names:
            with s.during("host"):
                scan = np.fromfile(os.path.join(folder, name), np.float32)
                scan -= scan.mean()
            for _ in range(passes):
                s.mark()
                s.train(gpu, scan)
            with s.during("host"):
                os.unlink(os.path.join(folder, name))


# ---- nothing is wrong


def crackle(ring, made, used, cost):
    """Fills the ring's places, and yields the core again and again while all of them are full."""
    for n in itertools.count():
        decode(cost)
        while n - used.value >= len(ring):
            os.sched_yield()
        ring[n % len(ring)] = n
        made.value = n + 1


@job(data=CPU, rest="sync_bound launch_bound")
def blazing_cresset(s):
    """Nothing is to blame: augmented audio comes by a ring in shared memory, whose maker takes a whole core, but most
    of that is sched_yield() while the ring is full; the model has got larger, and that is why it is slow."""
    ms, places, size = s.ms("gpu_ms", 20, 70), s.int("places", 3, 6), 20000
    memory = multiprocessing.RawArray("f", places * size)
    ring = np.frombuffer(memory, np.float32).reshape(places, size)
    made, used, turn, gpu = multiprocessing.RawValue("q"), multiprocessing.RawValue("q"), itertools.count(), s.gpu(ms)
    child(crackle, ring, made, used, ms * s.ms("augment_share", 0.1, 0.35))

    def obtain():
        n = next(turn)
        while made.value <= n:
            time.sleep(0.0005)
        x = ring[n % places].copy()
        used.value = n + 1
        return x
    s.loop(gpu, obtain)


@job(data="main_thread_loading", rest="sync_bound launch_bound")
def idle_coopers(s):
    """Nothing is to blame: a table fits on the device, which keeps what the loader brought in the first few steps;
    from then on the loop draws numbers of rows only, and nobody asks the workers again, which stay in a full queue."""
    ms, warm, workers = s.ms("gpu_ms", 18, 60), s.int("warm_steps", 3, 9), s.int("workers", 2, 3)
    out, chance, gpu = multiprocessing.Queue(maxsize=4), np.random.default_rng(1), s.gpu(ms)
    for _ in range(workers):
        child(put, out, ms * s.ms("load_share", 0.1, 0.3), 20000)
    many = s.int("rows", 1000, 8000)

    def obtain():
        return chance.integers(0, warm * 20000, many)
    s.go()
    for _ in range(warm):
        s.step(gpu, out.get)
    while True:
        s.step(gpu, obtain)


@job(data=CPU, rest="sync_bound launch_bound")
def trial_fittings(s):
    """Nothing is to blame but cudnn.benchmark: images come in time, but in ever new sizes, and for each of these the
    device first tries all algorithms, with kernels that teach nothing; steps vary, and it is busy throughout."""
    ms, new_one_in, rounds = s.ms("gpu_ms", 15, 50), s.int("new_one_in", 1, 3), s.int("algorithms", 3, 8)
    gpu = s.gpu(ms, launches=s.int("step_launches", 20, 120))
    trial = s.gpu(ms * s.ms("trial_share", 0.1, 0.3), launches=s.int("layers", 4, 12))
    batch, chance, seen = stocked(ms * s.ms("load_share", 0.1, 0.35)), random.Random(1), set()
    s.go()
    for n in itertools.count():
        s.mark()
        with s.during("data"):
            x = batch()
        size = n if chance.randrange(new_one_in) == 0 and not s.fix else 0
        gpu.upload(x.ctypes.data, x.nbytes)
        if size not in seen:
            seen.add(size)
            trial.enter_thread()
            for _ in range(rounds):
                trial.launch(0, trial.launches)
            trial.sync(False)  # whose events tell the quickest
            gpu.enter_thread()
        gpu.forward()
        gpu.backward()
        gpu.optimizer()
        gpu.loss_item()


## Cooperages
# echoing_hogshead: cpu_bound or too_few_workers, by the echo's process; hard: packets of SOCK_SEQPACKET hand over.
# unanswered_knock: network_bound; hard: the service is quick, and the wait is a select() that always runs out of time.
# topmost_stave: io_bound, by the reading process; hard: one file read in strict order, which looks like a stream.
# shuffled_staves: main_thread_loading; hard: no file, no child, no system call while the loop draws its rows.
# single_hoop: slow_worker, the large tenant's; hard: all workers compute the same Python, and none reads anything.
# hundred_rivets: launch_bound; hard: kernels of two sizes in one step, and a copy for each batch beside them.
# branded_heads: host_bound; hard: the loop stats source files all the time, as if it read data.
# green_timber: rank_straggler, the second rank; hard: half of it is a child that ends, which the rank waits for.
# cellar_hatch: no_demand; hard: the loop reads files, and the wait is a plain read() of an inotify descriptor.
# blazing_cresset: balanced; hard: the only maker computes without a pause, as far as the kernel can tell.
# idle_coopers: balanced; hard: workers that deliver a few batches and then never again are not hung.
# trial_fittings: balanced; hard: steps vary by much, with a second synchronisation in some, and no idle device.
