# SPDX-License-Identifier: BSD-2-Clause
"""With the beekeepers: the loop waits, but not for data, which is ready by then."""
import collections
import concurrent.futures
import gc
import hashlib
import itertools
import mmap
import multiprocessing
import multiprocessing.connection
import os
import queue
import random
import signal
import socket
import sqlite3
import struct
import subprocess
import threading
import time
import zlib

import numpy as np

from stranger import CPU, child, decode, job, mortal

PAGE, MIB = 4096, 1 << 20


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
        out.put(np.zeros(30000, np.float32))


def queued(cost):
    """A process and a queue."""
    out = multiprocessing.Queue(maxsize=4)
    child(put, out, cost)
    return out.get


def threaded(cost):
    """A thread of the job."""
    out = queue.Queue(4)
    threading.Thread(target=put, args=(out, cost), daemon=True).start()
    return out.get


def send(link, cost):
    while True:
        decode(cost)
        link.send(np.zeros(30000, np.float32))


def piped(cost):
    """A process and a pipe."""
    mine, theirs = multiprocessing.Pipe(duplex=False)
    child(send, theirs, cost)
    return mine.recv


def pour(link, cost):
    body = bytes(80000)
    while True:
        decode(cost)
        link.sendall(body)


def socketed(cost):
    """A process and a socket, whose buffer has room for two batches."""
    mine, theirs = socket.socketpair()
    child(pour, theirs, cost)

    def take():
        x = np.zeros(80000, np.uint8)
        view = memoryview(x)
        while view:
            view = view[mine.recv_into(view, len(view), socket.MSG_WAITALL):]
        return x
    return take


def slotted(cost, slots=3):
    """A process fills slots of shared memory, which two semaphores count."""
    ring = np.frombuffer(multiprocessing.RawArray("f", slots * 30000), np.float32).reshape(slots, -1)
    free, full, turn = multiprocessing.Semaphore(slots), multiprocessing.Semaphore(0), itertools.count()

    def fill():
        for n in itertools.count():
            decode(cost)
            free.acquire()
            ring[n % slots] = n
            full.release()

    def take():
        full.acquire()
        x = ring[next(turn) % slots].copy()
        free.release()
        return x
    child(fill)
    return take


def light(s, ms):
    """What a batch costs to a loader that keeps up."""
    return ms * s.ms("load_share", 0.1, 0.3)


# ---- the loop waits for something else


@job(data=CPU, host="host_bound", rest="sync_bound launch_bound")
def brood_charts(s):
    """A thread draws what the last steps have found, in C; to blame is the loop's join() on the thread's queue, as the
    plots share one global figure, while another thread has batches ready in a queue of the same kind."""
    ms, every = s.ms("gpu_ms", 8, 30), s.int("every", 1, 3)
    cost, charts = ms * every * s.ms("draw_share", 0.55, 1.8), queue.Queue()
    gpu, batch = s.gpu(ms), threaded(light(s, ms))

    def draw():
        while True:
            charts.get()
            decode(cost / 20 if s.fix else cost)
            charts.task_done()
    threading.Thread(target=draw, daemon=True).start()
    s.go()
    for n in itertools.count(1):
        s.step(gpu, batch)
        if n % every == 0:
            with s.during("host"):
                charts.put((n, gpu.loss.value))
                charts.join()


@job(data=CPU, child="host_bound", rest="sync_bound launch_bound")
def wax_press(s):
    """Scores of a whole catalogue, offline, as lines of text into a gzip that was started once; to blame is gzip, for
    which the loop waits in write(), as the pipe is soon full; slots of shared memory have batches ready."""
    ms, share, parent = s.ms("gpu_ms", 12, 35), s.ms("press_share", 0.8, 1.8), os.getpid()
    gpu, batch, chance = s.gpu(ms), slotted(light(s, ms)), random.Random(1)
    lines = b"".join(b"%d\t%.6f\n" % (n, chance.random()) for n in range(60000))
    size = int(ms * share / 1e3 / took(lambda: zlib.compress(lines, 6)) * len(lines))
    size = s.keep("bytes", min(max(size, 100 << 10), 8 * MIB)) // (20 if s.fix else 1)
    lines = (lines * (size // len(lines) + 1))[:size]
    press = subprocess.Popen(["gzip", "-6"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
                             preexec_fn=lambda: mortal(parent))
    s.go()
    while True:
        s.step(gpu, batch)
        with s.during("child"):
            press.stdin.write(lines)
            press.stdin.flush()


def ledger_keeper(s):
    """Ships the ledger's new rows to a far place, with the transaction open meanwhile."""
    hold, pause = (float(word) / 1e3 for word in s.told("hold").split())
    ledger = sqlite3.connect(s.path("ledger.db"), isolation_level=None, timeout=60)
    while True:
        ledger.execute("BEGIN IMMEDIATE")
        time.sleep(hold)
        ledger.execute("COMMIT")
        time.sleep(pause)


@job(outside=ledger_keeper, data=CPU, lock="host_bound lock_bound", rest="sync_bound launch_bound")
def hive_ledger(s):
    """Each step's result is a row in SQLite; to blame is a shipping program, elsewhere, that keeps its transaction
    open while it sends, so that the loop's BEGIN IMMEDIATE finds the base locked; batches wait in a pipe."""
    ms, hold, pause = s.ms("gpu_ms", 8, 16), s.ms("hold_ms", 32, 60), s.ms("pause_ms", 32, 42)
    gpu, batch = s.gpu(ms), piped(light(s, ms))
    ledger = sqlite3.connect(s.path("ledger.db"), isolation_level=None, timeout=60)
    ledger.execute("PRAGMA synchronous=OFF")
    ledger.execute("CREATE TABLE steps (n INTEGER, loss REAL)")
    s.tell("hold", "%f %f" % (1 if s.fix else hold, pause))
    s.go()
    for n in itertools.count():
        s.step(gpu, batch)
        with s.during("lock"):
            ledger.execute("BEGIN IMMEDIATE")
        with s.during("host"):
            ledger.execute("INSERT INTO steps VALUES (?, ?)", (n, gpu.loss.value))
            ledger.execute("COMMIT")


@job(data=CPU, child="host_bound", rest="sync_bound launch_bound")
def sorted_combs(s):
    """Predictions have to leave in the order of their keys, for which the loop runs sort(1) on each part and waits
    until it ends; to blame is this program, and not the process whose queue has batches ready."""
    ms, every, share = s.ms("gpu_ms", 14, 40), s.int("every", 1, 2), s.ms("sort_share", 0.6, 1.8)
    gpu, batch, parent, chance = s.gpu(ms), queued(light(s, ms)), os.getpid(), random.Random(1)
    clean = dict(os.environ, LC_ALL="C")

    def in_order(text):
        return subprocess.run(["sort", "--parallel=1", "-k1,1"], input=text, stdout=subprocess.PIPE, check=True,
                              env=clean, preexec_fn=lambda: mortal(parent)).stdout

    def predictions(many):
        return b"".join(b"hive-%08x\t%.5f\n" % (chance.getrandbits(32), chance.random()) for _ in range(many))
    some, least = predictions(20000), took(lambda: in_order(b"a\n"))
    each = max(took(lambda: in_order(some)) - least, 1e-4) / 20000
    many = int((ms * every * share / 1e3 - least) / each)
    text = predictions(s.keep("lines", min(max(many, 500), 200000)))
    s.go()
    for n in itertools.count(1):
        s.step(gpu, batch)
        if n % every == 0 and not s.fix:
            with s.during("child"):
                in_order(text)


def counting_house(s):
    """Keeps counters, as Redis does, at a distance: it answers each line after a while."""
    late, totals = float(s.told("late")) / 1e3, collections.Counter()
    door = socket.create_server(("127.0.0.1", 0))
    s.tell("port", door.getsockname()[1])
    link, _ = door.accept()
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for line in link.makefile("rb"):
        _, key, many = line.split()
        totals[key] += int(many)
        time.sleep(late)
        link.sendall(b":%d\r\n" % totals[key])


@job(outside=counting_house, data=CPU, host="host_bound", rest="sync_bound launch_bound")
def honey_tithe(s):
    """Batch inference for several tenants, who pay by the token: after each batch the loop counts up each tenant's
    meter at a far store, one INCRBY after the other; to blame is the store, while a socket has batches ready."""
    ms, tenants = s.ms("gpu_ms", 8, 35), s.int("tenants", 3, 8)
    late = ms * s.ms("meter_share", 0.55, 1.9) / tenants
    s.tell("late", late / 20 if s.fix else late)
    gpu, batch = s.gpu(ms), socketed(light(s, ms))
    meter = socket.create_connection(("127.0.0.1", int(s.told("port"))))
    meter.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    answers = meter.makefile("rb")
    s.go()
    for n in itertools.count(1):
        s.step(gpu, batch)
        with s.during("host"):
            for tenant in range(tenants):
                meter.sendall(b"INCRBY tokens:%d %d\r\n" % (tenant, n % 97 + tenant))
                answers.readline()


def power_broker(s):
    """Shares a rack's power out, and needs a while to find out how much is left."""
    late = float(s.told("late")) / 1e3
    with multiprocessing.connection.Listener(s.path("broker"), "AF_UNIX") as door:
        s.tell("open", "")
        with door.accept() as link:
            while True:
                watts = link.recv()
                time.sleep(late)
                link.send(watts)


@job(outside=power_broker, data=CPU, host="host_bound", rest="sync_bound launch_bound")
def smoker_permit(s):
    """A rack with little power, where the loop may take its next step when a broker has granted the watts for it; to
    blame is the broker, which answers late on a Connection, just as the loader has its batches ready on another."""
    ms = s.ms("gpu_ms", 8, 40)
    late = ms * s.ms("grant_share", 0.55, 2)
    s.tell("late", late / 20 if s.fix else late)
    gpu, batch = s.gpu(ms), piped(light(s, ms))
    s.told("open")
    broker = multiprocessing.connection.Client(s.path("broker"), "AF_UNIX")
    s.go()
    while True:
        with s.during("host"):
            broker.send(300)
            broker.recv()
        s.step(gpu, batch)


def signer(asked, signed, rounds):
    """Has the key, and signs what it gets, with a stretched key for each."""
    while True:
        n, report = asked.get()
        signed.put((n, hashlib.pbkdf2_hmac("sha256", report, b"hive %d" % n, rounds)))


@job(data=CPU, child="host_bound", rest="sync_bound launch_bound")
def comb_signet(s):
    """Findings of a hospital's model are signed before the next batch begins, by a process that alone has the key; to
    blame is this process, whose answers the loop gets from a queue like that in which batches are ready."""
    ms, reports = s.ms("gpu_ms", 8, 35), s.int("reports", 1, 5)
    share, each = s.ms("sign_share", 0.55, 1.8), took(lambda: hashlib.pbkdf2_hmac("sha256", b"a", b"b", 20000)) / 20000
    rounds = max(int(ms * share / 1e3 / each / reports), 20)
    gpu, batch = s.gpu(ms), queued(light(s, ms))
    asked, signed = multiprocessing.Queue(), multiprocessing.Queue()
    child(signer, asked, signed, max(rounds // 20, 1) if s.fix else rounds)
    s.go()
    while True:
        s.step(gpu, batch)
        with s.during("child"):
            for n in range(reports):
                asked.put((n, b"nothing was found " * 50))
            for _ in range(reports):
                signed.get()


@job(data=CPU, host="host_bound rank_straggler", peer="rank_straggler host_bound", rest="sync_bound launch_bound")
def tandem_hives(s):
    """Two ranks with batches in time, which swap gradients after each step; to blame is the second one, which alone
    keeps a long history of small lists, and calls gc.collect() before it comes, while the first one waits."""
    ms, launches = s.ms("gpu_ms", 8, 20), s.int("launches", 10, 80)
    share, cost, parent = s.ms("garbage_share", 0.55, 1.5), light(s, ms), os.getpid()
    for rank, link in enumerate(multiprocessing.Pipe()):
        if os.fork():
            continue
        mortal(parent, signal.SIGTERM)
        s.rank(rank)
        gpu, batch, history = s.gpu(ms, launches=launches), queued(cost), []
        if rank == 1:
            gc.freeze()  # so that only what comes from here on is looked through
            history += [[None] for _ in range(400000)]
            each = took(gc.collect) / 400000
            many = s.keep("lists", min(max(int(ms * share / 1e3 / each), 1000), 1500000))
            history[:] = [[None] for _ in range(many)]
        gradients = bytes(20000)
        s.told("go")
        while True:
            s.step(gpu, batch)
            if rank == 1 and not s.fix:
                with s.during("host"):
                    gc.collect()
            with s.during("peer"):
                if rank == 0:
                    link.send_bytes(gradients)
                link.recv_bytes()
                if rank == 1:
                    link.send_bytes(gradients)
    s.go()
    signal.pause()


@job(data=CPU, ckpt="checkpoint_stall host_bound", rest="sync_bound launch_bound")
def sealed_cells(s):
    """What a model says goes into the pages of a mapped file, that must outlive a crash; to blame is the loop, which
    flushes each page that it has written and waits for the disk, while a DataLoader's worker keeps up."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    import torch
    ms, share, place = s.ms("gpu_ms", 14, 40), s.ms("flush_share", 0.55, 1.4), itertools.count()
    cost, parent = light(s, ms), os.getpid()

    class Frames(torch.utils.data.IterableDataset):
        def __iter__(self):
            while True:
                decode(cost)
                yield torch.zeros(30000)
    with open(s.data_file("sealed_cells", 16), "r+b") as f:
        cells = mmap.mmap(f.fileno(), 0)
    for at in range(0, len(cells), PAGE):  # from here on it is in memory
        cells[at]

    def seal(pages, flush):
        for n in itertools.islice(place, pages):
            at = n * 16 * PAGE % len(cells)
            cells[at:at + 8] = struct.pack("<Q", n + 1)
            if flush:
                cells.flush(at, PAGE)
    each = took(lambda: seal(20, True)) / 20
    pages = s.keep("pages", min(max(round(ms * share / 1e3 / each), 1), 400))
    gpu = s.gpu(ms)
    batches = iter(torch.utils.data.DataLoader(Frames(), None, num_workers=1,
                                               worker_init_fn=lambda _: mortal(parent)))
    s.go()
    while True:
        s.step(gpu, lambda: next(batches).numpy())
        with s.during("ckpt"):
            seal(pages, not s.fix)


def callers(s):
    """Hives with a microphone, which send what they hear when it is loud."""
    gap, port = s.told("calls").split()
    s.told("go")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as link:
        for n in itertools.count():
            time.sleep(s.random.expovariate(1e3 / float(gap)))
            link.sendto(struct.pack("<I", n) + bytes(8000), ("127.0.0.1", int(port)))


def take_calls(front, calls, cost):
    """Makes a spectrogram of each."""
    while True:
        sound = front.recv(1 << 16)
        decode(cost)
        calls.put(np.frombuffer(sound[4:], np.uint8).astype(np.float32))


@job(outside=callers, demand="no_demand", data=CPU, rest="sync_bound launch_bound")
def idle_swarm(s):
    """A service hears whether bees are about to swarm: a process takes calls and puts them into a queue, and the loop
    compares each with known sounds, of which a thread has batches ready; nobody is to blame that few hives call."""
    ms, share = s.ms("gpu_ms", 8, 30), s.ms("gap_share", 1.7, 3.4)
    gap = ms * (0.3 if s.fix else share)
    gpu, calls = s.gpu(ms), multiprocessing.Queue(maxsize=8)
    front = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    front.bind(("127.0.0.1", 0))
    child(take_calls, front, calls, ms * 0.03)
    batch = threaded(light(s, ms))
    s.tell("calls", "%f %d" % (gap, front.getsockname()[1]))
    s.go()
    while True:
        with s.during("demand"):
            sound = calls.get()
        s.mark()
        with s.during("data"):
            x = batch()
        gpu.upload(sound.ctypes.data, sound.nbytes)
        s.train(gpu, x)


# ---- nothing is wrong


def taste(n, cost):
    """How good a step's answers were."""
    decode(cost)
    return n % 7 / 7


@job(data=CPU, host="host_bound", rest="sync_bound launch_bound")
def late_tasting(s):
    """Nothing is to blame: an executor's processes rate each step's answers, and the loop waits for a rating in every
    step, but for that of three steps ago, which is there by then; slots of shared memory have batches ready."""
    ms = s.ms("gpu_ms", 30, 80)
    cost, due, score = ms * s.ms("rate_share", 0.2, 0.6), collections.deque(), 0.0
    gpu, batch = s.gpu(ms), slotted(light(s, ms))
    pool = concurrent.futures.ProcessPoolExecutor(2, initializer=mortal, initargs=(os.getpid(),))
    pool.submit(taste, 0, 1).result()  # so that it starts its processes
    s.go()
    for n in itertools.count(1):
        s.step(gpu, batch)
        with s.during("host"):
            due.append(pool.submit(taste, n, cost))
            if len(due) > 3:
                score += due.popleft().result()


@job(outside=counting_house, data=CPU, host="host_bound", rest="sync_bound launch_bound")
def calm_apiary(s):
    """Nothing is to blame: in each step the loop tells a far store what it used and waits long for the answer, but
    after all kernels were launched, so that the device works meanwhile; a socket has batches ready."""
    ms = s.ms("gpu_ms", 25, 80)
    s.tell("late", ms * s.ms("answer_share", 0.2, 0.5))
    gpu, batch = s.gpu(ms), socketed(light(s, ms))
    store = socket.create_connection(("127.0.0.1", int(s.told("port"))))
    store.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    answers = store.makefile("rb")
    s.go()
    for n in itertools.count(1):
        s.mark()
        with s.during("data"):
            x = batch()
        s.train(gpu, x, item=False)
        with s.during("host"):
            store.sendall(b"INCRBY samples %d\r\n" % (n % 64))
            answers.readline()
        gpu.loss_item()
