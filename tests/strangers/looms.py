# SPDX-License-Identifier: BSD-2-Clause
"""At the looms: jobs whose own code weaves samplers, caches, packers and passes of a model together."""
import asyncio
import bisect
import collections
import concurrent.futures
import fcntl
import http.client
import http.server
import itertools
import json
import multiprocessing
import os
import queue
import random
import re
import signal
import socket
import socketserver
import struct
import threading
import time
import xmlrpc.client
import xmlrpc.server
import zlib

import numpy as np

from stranger import CPU, child, decode, job

PAGE, MIB, D2H = 4096, 1 << 20, 2


def took(f):
    """Seconds that f takes once it is warm."""
    f()
    begin = time.monotonic()
    f()
    return time.monotonic() - begin


# ---- loaders that keep up


def put(out, cost):
    while True:
        decode(cost)
        out.put(np.zeros(20000, np.float32))


def queued(cost):
    """A process and a queue."""
    out = multiprocessing.Queue(maxsize=4)
    child(put, out, cost)
    return out


def belled(cost, slots=3, size=50000):
    """A process fills slots of shared memory; two eventfds count the empty and the full ones."""
    ring = np.frombuffer(multiprocessing.RawArray("f", slots * size), np.float32).reshape(slots, size)
    free, full = os.eventfd(slots, os.EFD_SEMAPHORE), os.eventfd(0, os.EFD_SEMAPHORE)
    turn = itertools.count()

    def fill():
        for n in itertools.count():
            decode(cost)
            os.eventfd_read(free)
            ring[n % slots] = n
            os.eventfd_write(full, 1)

    def take():
        os.eventfd_read(full)
        x = ring[next(turn) % slots].copy()
        os.eventfd_write(free, 1)
        return x
    child(fill)
    return take


# ---- the data is late


class Kept(xmlrpc.server.SimpleXMLRPCRequestHandler):
    protocol_version = "HTTP/1.1"  # connections are kept


class Office(socketserver.ThreadingMixIn, xmlrpc.server.SimpleXMLRPCServer):
    daemon_threads = True


def pattern_office(s):
    """A job's master, elsewhere, which deals out ranges of records and has to think of each."""
    late, dealt = float(s.told("late")) / 1e3, itertools.count()
    office = Office(("127.0.0.1", 0), Kept, logRequests=False)

    def task(worker, done):
        time.sleep(late)
        first = next(dealt) * 64
        return [first, first + 64]
    office.register_function(task)
    s.tell("port", office.server_address[1])
    office.serve_forever()


def draw(out, port, worker, cost):
    master, done = xmlrpc.client.ServerProxy("http://127.0.0.1:%d" % port), 0
    while True:
        first, last = master.task(worker, done)
        decode(cost)
        done = last
        out.put(np.full((last - first, 300), first, np.float32))


@job(outside=pattern_office, data="network_bound too_few_workers", rest="sync_bound launch_bound")
def draw_boy(s):
    """Elastic training with dynamic sharding: a worker reports a range of records as done, and only then gets the
    next from the job's master; the records are at hand, and to blame is the master, which answers late."""
    ms, workers = s.ms("gpu_ms", 10, 40), s.int("workers", 1, 2)
    late = ms * s.ms("late_share", 1.35, 2.6) * workers
    s.tell("late", late / 20 if s.fix else late)
    gpu, out, port = s.gpu(ms), multiprocessing.Queue(maxsize=3), int(s.told("port"))
    pids = [child(draw, out, port, n, ms * 0.04).pid for n in range(workers)]
    if workers == 1:
        s.supplier(pids[0])
    s.loop(gpu, out.get)


def weave_strip(path, shape, n, cost, whole, free, full):
    """Fills its strip of each batch in place, with a record lock on the file."""
    cloth = np.memmap(path, np.float32, "r+", shape=shape)
    size = cloth[0, 0].nbytes
    with open(path, "r+b") as f:
        for slot in itertools.cycle(range(shape[0])):
            free.acquire()
            decode(cost * 0.1)
            place = () if whole else (size, (slot * shape[1] + n) * size)
            fcntl.lockf(f, fcntl.LOCK_EX, *place)
            decode(cost)
            cloth[slot, n] = slot
            fcntl.lockf(f, fcntl.LOCK_UN, *place)
            full.release()


@job(data="lock_bound", rest="sync_bound launch_bound")
def common_selvedge(s):
    """Processes render a strip each of every batch, in place, in one mapped file; to blame is lockf() without a
    range, which locks all of the file and not the own strip, so that one renders at a time."""
    ms, weavers, slots = s.ms("gpu_ms", 8, 40), s.int("weavers", 2, 3), s.int("slots", 2, 3)
    cost, path, shape = ms * s.ms("render_share", 1.4, 2.6) / weavers, s.path("cloth"), (slots, weavers, 20000)
    cloth = np.memmap(path, np.float32, "w+", shape=shape)
    free = [multiprocessing.Semaphore(slots) for _ in range(weavers)]
    full = [multiprocessing.Semaphore(0) for _ in range(weavers)]
    gpu, turn = s.gpu(ms), itertools.cycle(range(slots))
    for n in range(weavers):
        child(weave_strip, path, shape, n, cost / 3 if s.fix else cost, not s.fix, free[n], full[n])

    def obtain():
        slot = next(turn)
        for strip in full:
            strip.acquire()
        x = np.array(cloth[slot])
        for strip in free:
            strip.release()
        return x
    s.loop(gpu, obtain)


def own_arc(link, cost):
    """Owns the keys of its arc of the ring, and opens those that it is asked for."""
    while True:
        keys = link.recv()
        decode(cost * len(keys))
        link.send(np.zeros((len(keys), 256), np.uint8))


@job(data="slow_worker", rest="sync_bound launch_bound")
def heddle_ring(s):
    """Three processes own samples by consistent hashing, and open them two batches ahead; to blame is a ring
    without virtual nodes, on which one of them owns an arc so long that it has most of each batch to open."""
    ms, many, longest = s.ms("gpu_ms", 10, 45), s.int("batch", 24, 48), s.int("longest", 0, 2)
    share, arc = s.ms("open_share", 1.4, 2.4), s.ms("arc", 0.62, 0.72)  # as the hosts' names happen to hash
    arcs = [1 / 3 if s.fix else arc if n == longest else (1 - arc) / 2 for n in range(3)]
    cost = ms * share / many / (4 if s.fix else arc)
    ends, gpu, links, chance = list(itertools.accumulate(arcs))[:2], s.gpu(ms), [], random.Random(1)
    for n in range(3):
        mine, theirs = multiprocessing.Pipe()
        pid = child(own_arc, theirs, cost).pid
        links.append(mine)
        if n == longest:
            s.supplier(pid)

    def ask():
        shares = [[], [], []]
        for _ in range(many):
            key = b"sample-%08d" % chance.randrange(10**8)
            shares[bisect.bisect(ends, zlib.crc32(key) / 2**32)].append(key)
        for link, keys in zip(links, shares):
            link.send(keys)

    def obtain():
        ask()
        return np.concatenate([link.recv() for link in links])
    for _ in range(2):
        ask()
    s.loop(gpu, obtain)


def unravel(out, first, cost, every, patience, words):
    """Cleans texts by a regular expression; one that takes too long is left out, as an alarm tells."""
    def give_up(*_):
        raise TimeoutError
    signal.signal(signal.SIGALRM, give_up)
    for n in itertools.count(first, 2):
        text = "a" * 70 + "!" if n % every == 0 else "warp and weft " * 20
        try:
            signal.setitimer(signal.ITIMER_REAL, patience)
            clean = words.match(text) is not None
            signal.setitimer(signal.ITIMER_REAL, 0)
        except TimeoutError:
            clean = False
        decode(cost)
        out.put(np.full(20000, clean, np.float32))


@job(data="slow_item", rest="sync_bound launch_bound")
def knotted_yarn(s):
    """Two processes clean texts, by turns; to blame are a few texts on which the regular expression tries all
    ways to split a long word, until an alarm ends that, which anybody's texts may have."""
    ms, every = s.ms("gpu_ms", 8, 25), s.one("every", 7, 9, 11)
    patience, cost = ms * s.ms("patience_steps", 9, 14) / 1e3, ms * s.ms("load_share", 0.1, 0.4)
    words = re.compile(r"(?:\w+\s)*$" if s.fix else r"(?:\w+\s?)+$")
    gpu, outs = s.gpu(ms), [multiprocessing.Queue(maxsize=1) for _ in range(2)]
    for n, out in enumerate(outs):
        child(unravel, out, n, cost, every, patience, words)
    turn = itertools.cycle(outs)
    s.loop(gpu, lambda: next(turn).get())


@job(data=CPU, threads=True, rest="sync_bound launch_bound")
def lease_rods(s):
    """Accumulation; a task in a pool of two threads makes the next micro-batch and has each view made by a task of
    the same pool, for which it waits: to blame are the views, decoded by the one thread that is left."""
    ms, parts, views = s.ms("gpu_ms", 10, 45), s.int("micro_batches", 2, 5), s.int("views", 4, 10)
    cost, gpu = ms * s.ms("view_share", 1.35, 2.4) / views, s.gpu(ms)
    pool = concurrent.futures.ThreadPoolExecutor(2)
    other = concurrent.futures.ThreadPoolExecutor(2) if s.fix else pool

    def view():
        decode(cost / 4 if s.fix else cost)
        return np.zeros(5000, np.float32)

    def scene():
        return np.stack([due.result() for due in [other.submit(view) for _ in range(views)]])
    ahead = pool.submit(scene)
    s.go()
    while True:
        s.mark()
        for _ in range(parts):
            s.mark("micro")
            with s.during("data"):
                x = ahead.result()
                ahead = pool.submit(scene)
            gpu.upload(x.ctypes.data, x.nbytes)
            gpu.forward()
            gpu.backward()
        gpu.optimizer()
        gpu.loss_item()


def place_of(n, size, half, keys):
    """Where the n-th sample of a shuffle lies: a Feistel network, walked on while it leads outside."""
    mask = (1 << half) - 1
    while True:
        left, right = n >> half, n & mask
        for key in keys:
            left, right = right, left ^ (zlib.crc32(right.to_bytes(4, "little"), key) & mask)
        n = left << half | right
        if n < size:
            return n


@job(data="main_thread_loading", rest="sync_bound launch_bound")
def broken_twill(s):
    """A shuffler without a table of indices, for samples that lie in memory sorted by difficulty; to blame is its
    cipher in plain Python, in the loop, which walks far where the curriculum admits only the easy ones."""
    ms, half, period = s.ms("gpu_ms", 10, 40), 8, s.int("stage_steps", 5, 25)
    sizes = [int(share * (1 << 2 * half)) for share in (0.25, 0.32, 0.4)]
    keys, gpu = [s.random.getrandbits(32) for _ in range(6)], s.gpu(ms)
    each = took(lambda: [place_of(n, sizes[-1], half, keys) for n in range(2000)]) / 2000
    many = max(int(ms * s.ms("shuffle_share", 0.5, 1.4) / 1e3 / each), 16)
    table, drawn, steps = np.zeros((sizes[-1], 64), np.float32), itertools.count(), itertools.count()
    chance = np.random.default_rng(1)

    def obtain():
        size = sizes[next(steps) // period % 3]
        if s.fix:
            return table[chance.integers(0, size, many)]
        return table[[place_of(next(drawn) % size, size, half, keys) for _ in range(many)]]
    s.loop(gpu, obtain)


def throw(link, path, pages, warm):
    """Sends the records that are next, each a page, from the file to the socket, and keeps nothing."""
    chance, count = random.Random(1), os.path.getsize(path) // PAGE
    with open(path, "rb", buffering=0) as f:
        fd = f.fileno()
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
        while warm and f.read(MIB):
            pass
        while True:
            for _ in range(pages):
                place, sent = PAGE * chance.randrange(count), 0
                while sent < PAGE:
                    sent += os.sendfile(link.fileno(), fd, place + sent, PAGE - sent)
            if not warm:
                os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)


@job(data="io_bound", rest="sync_bound launch_bound")
def flying_shuttle(s):
    """Replay of logged games: a process draws records at random and has sendfile() bring them from the file to the
    loop's socket; to blame is the disk, as the log is not in memory, and each page is waited for."""
    ms, share = s.ms("gpu_ms", 8, 25), s.ms("read_share", 1.6, 3)
    path, chance = s.data_file("shuttle", 64), random.Random(2)
    with open(path, "rb", buffering=0) as f:
        os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_RANDOM)
        begin = time.monotonic()
        for _ in range(400):
            os.pread(f.fileno(), PAGE, PAGE * chance.randrange(64 * MIB // PAGE))
        each = (time.monotonic() - begin) * 1e3 / 400
    pages = s.keep("pages", min(max(int(ms * share / each), 16), 4000))
    s.cold(path)
    mine, theirs = socket.socketpair()
    gpu, x = s.gpu(ms), np.zeros(pages * PAGE, np.uint8)
    s.supplier(child(throw, theirs, path, pages, s.fix).pid)

    def obtain():
        view = memoryview(x)
        while view:
            view = view[mine.recv_into(view, len(view), socket.MSG_WAITALL):]
        return x
    s.loop(gpu, obtain)


def wind(out, diary, life, cost):
    """Makes as many batches as it may, so that what leaks is freed, and says that it is done."""
    with diary:
        pass  # here it enters its number
    for _ in range(life):
        decode(cost)
        out.put(np.zeros(20000, np.float32))
    out.put(None)


@job(data="hung_worker", rest="sync_bound launch_bound")
def jammed_pirn(s):
    """Workers end after a number of batches, and others are forked in their place, while a thread keeps a diary in a
    far folder: to blame is a fork with the diary's lock held, so that the new worker waits for that for ever."""
    ms, life_s = s.ms("gpu_ms", 10, 40), s.ms("life_s", 1.8, 3)
    life, cost, diary = int(life_s * 500 / ms), 2 * ms * s.ms("load_share", 0.1, 0.3), threading.Lock()
    gpu, turn, workers = s.gpu(ms), itertools.cycle((0, 1)), []

    def start(batches):
        out = multiprocessing.Queue(maxsize=2)
        return out, child(wind, out, threading.Lock() if s.fix else diary, batches, cost).pid

    def write():
        with open(s.path("diary"), "w", encoding="ascii") as out:
            while True:
                with diary:
                    out.write("%f %d\n" % (time.time(), len(workers)))
                    out.flush()
                    time.sleep(0.05)  # until the folder has it

    def obtain():
        n = next(turn)
        x = workers[n][0].get()
        if x is None:
            workers[n] = start(life)
            s.supplier(workers[n][1])
            x = workers[n][0].get()
        return x
    workers += [start(life * (n + 1)) for n in range(2)]
    threading.Thread(target=write, daemon=True).start()
    s.loop(gpu, obtain)


def pour(link, most):
    """Has the states of many steps in memory, and gives as many bytes of them as it is asked for."""
    block = memoryview(bytes(most))
    while ask := link.recv(8, socket.MSG_WAITALL):
        link.sendall(block[:struct.unpack("<Q", ask)[0]])


@job(data="ipc_bound main_thread_loading", rest="sync_bound launch_bound")
def narrow_reed(s):
    """Layer-wise distillation: a process has the teacher's states in memory, and is asked one batch ahead; to blame
    is how they come, by asyncio's StreamReader in the loop, piece by piece through its small buffer."""
    ms, share, most = s.ms("gpu_ms", 8, 25), s.ms("stream_share", 0.5, 1.5), 96 * MIB
    mine, theirs = socket.socketpair()
    gpu, home = s.gpu(ms), asyncio.new_event_loop()
    child(pour, theirs, most)
    reader, writer = home.run_until_complete(asyncio.open_unix_connection(sock=mine))

    def ask(size):
        writer.write(struct.pack("<Q", size))

    def take(size):
        return home.run_until_complete(reader.readexactly(size))
    each = took(lambda: (ask(8 * MIB), take(8 * MIB))) * 1e3 / (8 * MIB)
    size = s.keep("bytes", min(max(int(ms * share / each), MIB), most))
    if s.fix:
        size //= 20

    def obtain():
        body = take(size)
        ask(size)
        return np.frombuffer(body, np.uint8)
    ask(size)
    s.loop(gpu, obtain)


# ---- not for data


RULES = [(r"norm\d?\.(weight|bias)$", 0.0), (r"\.bias$", 0.0), (r"^embed|lm_head", 0.1),
         (r"layers\.(?:[0-9]|1[0-5])\.experts", 0.5), (r"experts\.\d+\.w[13]\.", 0.8), (r".", 1.0)]


def grouped(names):
    """Which parameters learn at which rate: the first rule that fits decides."""
    groups = collections.defaultdict(list)
    for name in names:
        for pattern, factor in RULES:
            if re.search(pattern, name):
                groups[factor].append(name)
                break
    return groups


@job(data=CPU, host="host_bound", rest="sync_bound launch_bound")
def name_tapes(s):
    """A model of many experts, thawed bit by bit: to blame is the loop, which after each step tries regular
    expressions on all parameters' names for the optimizer's groups, while slots are filled in time."""
    ms, share = s.ms("gpu_ms", 8, 30), s.ms("group_share", 0.4, 1.5)
    gpu, batch = s.gpu(ms), belled(ms * s.ms("load_share", 0.1, 0.4))

    def parameters(many):
        return ["layers.%d.experts.%d.w%d.weight" % (n // 384, n // 3 % 128, n % 3 + 1) for n in range(many)]
    some = parameters(3000)
    each = took(lambda: grouped(some)) / len(some)
    names = parameters(s.keep("parameters", max(int(ms * share / 1e3 / each), 100)))
    s.go()
    while True:
        s.step(gpu, batch)
        if not s.fix:
            with s.during("host"):
                grouped(names)


@job(data=CPU, host="host_bound", rest="transfer_bound")
def cloth_inspector(s):
    """After a step or two held-out batches are looked at: to blame is .cpu() on all of their logits, for a metric
    that takes a glance at them, and a copy that blocks the loop; a thread has batches ready."""
    ms, every, looks = s.ms("gpu_ms", 6, 12), s.int("every", 1, 2), s.int("looks", 2, 4)
    mib = int((every + looks * 0.375) * ms * s.ms("logits_share", 0.6, 1.2) * 12 / looks) + 1
    gpu, out, cost = s.gpu(ms, input_bytes=mib * MIB), queue.Queue(4), ms * s.ms("load_share", 0.1, 0.3)
    threading.Thread(target=put, args=(out, cost), daemon=True).start()
    logits, held_out, right = np.ones(mib << 18, np.float32), np.zeros(20000, np.float32), 0
    size = 4096 if s.fix else logits.nbytes  # else the device finds the largest
    s.go()
    while True:
        for _ in range(every):
            s.step(gpu, out.get)
        for _ in range(looks):
            s.mark("micro")
            gpu.upload(held_out.ctypes.data, held_out.nbytes)
            gpu.forward()
            gpu.check(gpu.lib.cudaMemcpy(logits.ctypes.data, gpu.input, size, D2H))
            with s.during("host"):
                right += int(np.count_nonzero(logits[:32768].reshape(32, -1).argmax(1) == 7))


@job(data="main_thread_loading", rest="launch_bound")
def thread_counter(s):
    """Training on noisy labels: each sample has a backward of its own, layer by layer, so that its gradient can be
    clipped before it is added; to blame is the launching of all these kernels, which take next to nothing."""
    samples, layers, us = s.int("samples", 16, 32), s.int("layers", 14, 24), s.ms("kernel_us", 0.8, 1.5)
    launches = samples * layers * 3
    gpu = s.gpu(us * launches / 1e3, launches=launches // 20 if s.fix else launches)
    table, chance = np.zeros((8192, 128), np.float32), np.random.default_rng(1)
    s.go()
    while True:
        s.mark()
        with s.during("data"):
            x = table[chance.integers(0, len(table), samples)]
        if s.fix:  # as by vmap
            s.train(gpu, x)
            continue
        gpu.upload(x.ctypes.data, x.nbytes)
        for _ in range(samples):
            for _ in range(layers):
                gpu.launch(0, 1)
                gpu.launch(1, 1)  # the norm
                gpu.launch(2, 1)  # it is scaled, and added
        gpu.loss_item()


# ---- nothing is wrong


@job(data=CPU, rest="sync_bound launch_bound")
def two_beams(s):
    """Nothing is to blame: two models share a device, and the loop takes a step of the one whenever it has a batch,
    which is seldom, as they are costly; else it is the turn of the other, which has batches waiting."""
    rare_ms, ms = s.ms("rare_ms", 25, 80), s.ms("gpu_ms", 25, 80)
    rare, gpu = s.gpu(rare_ms, launches=s.int("rare_launches", 10, 80)), s.gpu(ms)
    seldom = queued(rare_ms * s.ms("rare_share", 1.5, 2.5))
    often = queued(ms * s.ms("load_share", 0.1, 0.3))
    s.go()
    while True:
        s.mark()
        with s.during("data"):
            model, out = (gpu, often) if seldom.empty() else (rare, seldom)
            x = out.get()
        model.enter_thread()
        s.train(model, x)


def reviewers(s):
    """People who look at what the model was unsure of, and say what it is."""
    rate, port = s.ms("rate", 1.5, 5), int(s.told("port"))
    link = http.client.HTTPConnection("127.0.0.1", port)
    s.told("go")
    for n in itertools.count():
        time.sleep(s.random.expovariate(rate))
        link.request("POST", "/verdict", json.dumps({"sample": n, "label": n % 9}).encode())
        link.getresponse().read()


@job(outside=reviewers, demand="no_demand", data="main_thread_loading", rest="sync_bound launch_bound")
def piece_orders(s):
    """A labelling tool learns at once: a verdict that is posted wakes the loop, which takes a few steps on it and on
    older ones from memory; nobody is to blame that people need a while for the next."""
    gpu, updates = s.gpu(s.ms("gpu_ms", 6, 16)), s.int("updates", 2, 4)
    news, verdicts, chance = threading.Condition(), [], np.random.default_rng(1)
    table = np.zeros((8192, 256), np.float32)

    class Desk(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self):
            verdict = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            with news:
                verdicts.append(verdict)
                news.notify()
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_):
            pass
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Desk)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    s.tell("port", server.server_address[1])
    s.go()
    while True:
        with s.during("demand"), news:
            while not verdicts:
                news.wait()
            fresh = [verdict["sample"] % len(table) for verdict in verdicts]
            verdicts.clear()
        for _ in range(updates):
            s.mark()
            with s.during("data"):
                rows = chance.integers(0, len(table), 128)
                rows[:len(fresh)] = fresh[:len(rows)]
                x = table[rows]
            s.train(gpu, x)
