# SPDX-License-Identifier: BSD-2-Clause
"""Jobs of which one is soon sure why the device idles, and is mistaken: a printing house."""
import collections
import importlib
import itertools
import mmap
import multiprocessing
import os
import random
import signal
import socket
import struct
import sys
import threading
import time

import numpy as np

from stranger import CPU, child, decode, job, mortal, parse


def supply(out, cost):
    while True:
        decode(cost)
        out.put(np.zeros(20000, np.float32))


def kept_up(s, ms):
    """A loader that needs a part of what the GPU needs."""
    out = multiprocessing.Queue(4)
    child(supply, out, ms * s.ms("load_share", 0.1, 0.5))
    return out.get


def rummage():
    """Busy with something that nobody waits for."""
    os.nice(5)
    while True:
        decode(15)
        time.sleep(0.015)


def connect(port):
    return socket.create_connection(("127.0.0.1", int(port)))


def ask(link, size):
    """One byte goes out, so many come back."""
    link.sendall(b"?")
    return link.recv(size, socket.MSG_WAITALL)


def answer(s, name, pause, size):
    """The other side of it: tells its port, and answers one client."""
    door = socket.create_server(("127.0.0.1", 0))
    s.tell(name, door.getsockname()[1])
    link = door.accept()[0]
    while link.recv(1):
        time.sleep(pause)
        link.sendall(bytes(size))


# ---- the data is late, but not as it seems


def by_tray(credit, out, cost):
    while True:
        for _ in range(credit.recv()):
            decode(cost)
            out.put(np.zeros(20000, np.float32))


@job(data=CPU, host="host_bound sync_bound", rest="sync_bound")
def galley_trays(s):
    """A process may fill a tray of batches, and the next one only when the loop has used up all of it."""
    ms, tray = s.ms("gpu_ms", 15, 70), s.int("tray", 3, 6)
    cost, metrics = ms * s.ms("cost_share", 1.15, 1.8), ms * s.ms("metrics_share", 0.2, 0.6)
    gpu, out = s.gpu(ms), multiprocessing.Queue()
    theirs, credit = multiprocessing.Pipe(duplex=False)
    s.supplier(child(by_tray, theirs, out, cost / 10 if s.fix else cost).pid)
    s.go()
    for n in itertools.count():
        s.mark()
        with s.during("data"):
            if n % tray == 0:
                credit.send(tray)
            x = out.get()
        s.train(gpu, x, item=False)
        with s.during("host"):
            parse(metrics)  # while the kernels run
        gpu.loss_item()


def gathering(link, size, cost, pause):
    """Makes what it is asked for in a thread; what is made leaves by a timer."""
    rack = collections.deque()

    def work():
        while True:
            link.recv()
            decode(cost)
            rack.append(bytes(size))
    threading.Thread(target=work, daemon=True).start()
    while True:
        time.sleep(pause)
        while rack:
            link.send_bytes(rack.popleft())


@job(data="too_few_workers ipc_bound", rest="sync_bound")
def drying_racks(s):
    """A process soon has the batch asked for one step ahead, but its output is flushed by a timer only."""
    ms, size = s.ms("gpu_ms", 12, 60), s.int("kib", 20, 100) << 10
    pause, cost = ms * s.ms("flush_share", 1.5, 3), ms * s.ms("cost_share", 0.1, 0.4)
    gpu = s.gpu(ms)
    link, theirs = multiprocessing.Pipe()
    s.supplier(child(gathering, theirs, size, cost, (ms * 0.05 if s.fix else pause) / 1e3).pid)
    s.go()
    link.send(0)
    for n in itertools.count(1):
        s.mark()
        with s.during("data"):
            x = np.frombuffer(link.recv_bytes(), np.uint8)
            link.send(n)
        s.train(gpu, x)


def shuffled(seed, keys):
    chance = random.Random(seed)
    while True:
        yield from chance.sample(range(keys), keys)


@job(data="main_thread_loading", rest="sync_bound")
def folded_sheets(s):
    """A thread decodes ahead into a small cache, but by another seed: the loop finds little there."""
    ms, keys, room = s.ms("gpu_ms", 15, 70), s.int("keys", 400, 4000), s.int("room", 4, 12)
    cost, rest = ms * s.ms("cost_share", 0.25, 0.9), s.ms("rest_share", 0.4, 1.2)
    seed = s.int("seed", 2, 999)  # the loop has 1
    gpu, cache = s.gpu(ms), collections.OrderedDict()
    if s.fix:
        cost /= 10

    def load(_key):
        decode(cost)
        return np.zeros(30000, np.float32)

    def run_ahead():
        for key in shuffled(seed, keys):
            cache[key] = load(key)
            if len(cache) > room:
                cache.popitem(last=False)
            time.sleep(cost * rest / 1e3)

    def obtain():
        key = next(order)
        x = cache.pop(key, None)
        return load(key) if x is None else x
    order = shuffled(1, keys)
    threading.Thread(target=run_ahead, daemon=True).start()
    s.loop(gpu, obtain)


class Uncut:
    """An image that is opened, and decoded when somebody wants its pixels, as with PIL."""

    def __init__(self, cost):
        self.packed, self.cost = bytes(20000), cost

    @property
    def pixels(self):
        decode(self.cost)
        return np.frombuffer(self.packed, np.uint8)


def opening(out, images, check, cost):
    while True:
        decode(check)  # headers, checksums, duplicates
        out.put([Uncut(cost) for _ in range(images)])


@job(data="main_thread_loading", rest="sync_bound")
def uncut_pages(s):
    """Busy processes check and open images in time; the pixels are decoded where they are first touched."""
    ms, workers, images = s.ms("gpu_ms", 25, 90), s.int("workers", 1, 2), s.int("images", 2, 6)
    check, cost = ms * s.ms("check_share", 0.3, 0.6) * workers, ms * s.ms("cost_share", 0.3, 1.1) / images
    gpu, out = s.gpu(ms), multiprocessing.Queue(4)
    for _ in range(workers):
        child(opening, out, images, check, 0 if s.fix else cost)
    s.loop(gpu, lambda: np.stack([image.pixels for image in out.get()]))


def type_foundry(s):
    """A store that is far away."""
    late, size = float(s.told("late")) / 1e3, int(s.told("size"))
    answer(s, "port", late, size)


def cast(ring, port, size):
    link, counts = connect(port), np.frombuffer(ring, np.int64, 2)
    for n in itertools.count():
        body = ask(link, size)
        while n - counts[1] >= 4:
            time.sleep(0.001)
        begin = 4096 + n % 4 * size
        ring[begin:begin + size] = body
        counts[0] = n + 1


def sort(ring, out, size, cost):
    counts = np.frombuffer(ring, np.int64, 2)
    for n in itertools.count():
        while counts[0] <= n:
            pass
        decode(cost)
        begin = 4096 + n % 4 * size
        out.put(np.frombuffer(ring[begin:begin + size], np.uint8))
        counts[1] = n + 1


@job(outside=type_foundry, data="network_bound too_few_workers", rest="sync_bound")
def restless_apprentice(s):
    """A process waits for a far store; the next spins until the ring between them has something."""
    ms, size = s.ms("gpu_ms", 10, 50), s.int("kib", 16, 200) << 10
    late, cost = ms * s.ms("late_share", 1.35, 3), ms * s.ms("sort_share", 0.03, 0.12)
    gpu = s.gpu(ms)
    s.tell("late", ms * 0.1 if s.fix else late)
    s.tell("size", size)
    ring, out, port = mmap.mmap(-1, 4096 + 4 * size), multiprocessing.Queue(2), s.told("port")
    s.supplier(child(cast, ring, port, size).pid)
    child(sort, ring, out, size, cost)
    s.loop(gpu, out.get)


@job(data="cpu_oversubscribed", rest="sync_bound launch_bound host_bound")
def narrow_loft(s):
    """A script binds the job to one core: a thread of the trainer packs statistics, a maker decodes."""
    ms, size = s.ms("gpu_ms", 30, 90), s.ms("pack_ms", 8, 40)
    cost = ms * s.ms("cost_share", 0.7, 0.95)
    gpu, out = s.gpu(ms), multiprocessing.Queue(4)
    if not s.fix:  # the device is there already and is not bound
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})

    def pack():
        while True:
            decode(size)
            if s.fix:
                time.sleep(size / 500)
    s.supplier(child(supply, out, cost).pid)
    threading.Thread(target=pack, daemon=True).start()
    s.loop(gpu, out.get)


SHEET = 80000


def chancery(s):
    """It renews privileges after some time, and hands out sheets at once."""
    late = float(s.told("late")) / 1e3
    threading.Thread(target=answer, args=(s, "sheets", 0, SHEET), daemon=True).start()
    answer(s, "office", late, 64)


def privileged(out, office, sheets, every, cost):
    office, sheets, chance = connect(office), connect(sheets), random.Random(every)
    while True:
        ask(office, 64)
        for _ in range(chance.randint(every * 2 // 3, every * 4 // 3)):
            body = ask(sheets, SHEET)
            decode(cost)
            out.put(np.frombuffer(body, np.uint8))


@job(outside=chancery, data="network_bound slow_item", rest="sync_bound")
def royal_privilege(s):
    """A process fetches soon and decodes in time; but its credentials last for a few batches only."""
    ms, every, share = s.ms("gpu_ms", 10, 40), s.int("every", 7, 14), s.ms("cost_share", 0.25, 0.5)
    late = every * ms * (1 - share + s.ms("excess", 0.3, 0.8))
    gpu, out = s.gpu(ms), multiprocessing.Queue(4)
    s.tell("late", late / 10 if s.fix else late)
    s.supplier(child(privileged, out, s.told("office"), s.told("sheets"), every, ms * share).pid)
    s.loop(gpu, out.get)


# ---- no want of data


def stamp_office(s):
    """It takes its time, and answers with a long paper."""
    late, size = float(s.told("late")) / 1e3, int(s.told("size"))
    answer(s, "port", late, size)


@job(outside=stamp_office, data=CPU, host="host_bound", rest="sync_bound")
def stamp_duty(s):
    """Every few steps the loop renews a licence: a server answers late, with a long list of rights."""
    ms, every, size = s.ms("gpu_ms", 12, 60), s.int("every", 1, 4), s.int("kib", 100, 900) << 10
    late = every * ms * s.ms("late_share", 0.35, 1.2)
    gpu, batch = s.gpu(ms), kept_up(s, ms)
    s.tell("late", late / 20 if s.fix else late)
    s.tell("size", size)
    link = connect(s.told("port"))
    s.go()
    for n in itertools.count(1):
        s.step(gpu, batch)
        if n % every == 0:
            with s.during("host"):
                ask(link, size)


def fount(functions):
    """A module as a code generator writes it."""
    return "".join("def f%d(x, y):\n    return [x * i + y for i in range(%d) if i %% 3]\n" % (n, n)
                   for n in range(functions))


@job(data=CPU, host="host_bound sync_bound", rest="sync_bound launch_bound")
def new_founts(s):
    """The task changes every few steps; its generated module is imported where the step first needs it."""
    ms, every = s.ms("gpu_ms", 15, 60), s.int("every", 1, 3)
    cost = every * ms * s.ms("import_share", 0.3, 0.9)
    gpu, batch = s.gpu(ms), kept_up(s, ms)
    for _ in range(3):  # the last one counts
        begin = time.thread_time()
        compile(fount(200), "fount", "exec")
        took = time.thread_time() - begin
    functions = int(200 * cost / 1e3 / took)
    folder = os.path.abspath(s.folder)
    with open(os.path.join(folder, "fount.py"), "w", encoding="ascii") as f:
        f.write(fount(max(functions // 15 if s.fix else functions, 1)))
    for n in range(50):
        name = os.path.join(folder, "fount_%d.py" % n)
        if not os.path.lexists(name):
            os.symlink("fount.py", name)
    sys.path.insert(0, folder)
    sys.dont_write_bytecode = True
    importlib.invalidate_caches()
    s.go()
    for n in itertools.count():
        s.mark()
        with s.during("data"):
            x = batch()
        gpu.upload(x.ctypes.data, x.nbytes)
        if n % every == 0:
            with s.during("host"):
                name = "fount_%d" % (n // every % 50)
                importlib.import_module(name)
                del sys.modules[name]
        gpu.forward()
        gpu.backward()
        gpu.optimizer()
        gpu.loss_item()


def receive(link):
    while link.recv(1 << 16):
        pass


@job(data=CPU, host="host_bound", rest="sync_bound")
def penny_post(s):
    """Each step's results go to a service, whose client keeps to a rate; an archivist rummages meanwhile."""
    ms, letters, size = s.ms("gpu_ms", 10, 50), s.int("letters", 1, 4), s.int("bytes", 200, 20000)
    pause = ms * s.ms("rate_share", 1.35, 2.4) / letters / 1e3
    gpu, batch, due = s.gpu(ms), kept_up(s, ms), 0
    link, theirs = socket.socketpair()
    child(receive, theirs)
    child(rummage)
    if s.fix:
        pause /= 30
    s.go()
    while True:
        s.step(gpu, batch)
        with s.during("host"):
            for _ in range(letters):
                time.sleep(max(due - time.monotonic(), 0))
                due = time.monotonic() + pause
                link.sendall(bytes(size))


@job(host="host_bound sync_bound", rest="sync_bound launch_bound")
def inspector_visits(s):
    """All data is on the device; a sampling profiler was left on, and a timer's signals end in the loop."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM})  # the doorman gets them
    ms = s.ms("gpu_ms", 12, 70)
    period, cost = ms * s.ms("period_share", 0.3, 1.1) / 1e3, ms * s.ms("visit_share", 0.4, 1)
    gpu = s.gpu(ms)
    if s.fix:
        cost /= 15
    child(rummage)

    def visit(*_):
        with s.during("host"):
            parse(cost)
        signal.setitimer(signal.ITIMER_REAL, period)

    def doorman():
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGALRM})
        while True:
            time.sleep(1)
    signal.signal(signal.SIGALRM, visit)
    threading.Thread(target=doorman, daemon=True).start()
    s.go()
    signal.setitimer(signal.ITIMER_REAL, period)
    while True:
        s.mark()
        s.train(gpu)


def cast_plate(path, plate, cost):
    decode(cost)
    with open(path, "wb") as f:
        f.write(plate)
        f.flush()
        os.fsync(f.fileno())


@job(data=CPU, ckpt="checkpoint_stall host_bound", rest="sync_bound")
def stereo_plates(s):
    """Every few steps a pool of two packs and writes the parts of the state, and the loop waits for all."""
    ms, every, plates = s.ms("gpu_ms", 15, 45), s.int("every", 6, 16), s.int("plates", 2, 4)
    cost = every * ms * s.ms("save_share", 0.35, 1) / ((plates + 1) // 2)
    state = bytes(s.int("kib", 200, 1000) << 10)
    gpu = s.gpu(ms)
    batch = kept_up(s, ms)
    pool = multiprocessing.Pool(2, mortal, (os.getpid(),))
    work = [(s.path("plate-%d" % n), state, cost / 15 if s.fix else cost) for n in range(plates)]
    s.go()
    for n in itertools.count(1):
        s.step(gpu, batch)
        if n % every == 0:
            with s.during("ckpt"):
                saved = pool.starmap_async(cast_plate, work, 1)
                if not s.fix:
                    saved.wait()


@job(data=CPU, host="host_bound checkpoint_stall", rest="sync_bound")
def day_book(s):
    """Each step is entered in a journal; a thread gathers entries for a while, and then syncs them."""
    ms, size = s.ms("gpu_ms", 12, 60), s.int("entry_bytes", 100, 4000)
    gather = ms * s.ms("gather_share", 0.35, 1.3) / 1e3
    gpu, batch = s.gpu(ms), kept_up(s, ms)
    change, entries, kept = threading.Condition(), [], 0

    def keep():
        nonlocal kept
        with open(s.path("day_book"), "wb") as f:
            while True:
                with change:
                    change.wait_for(lambda: entries)
                time.sleep(gather)
                with change:
                    page = entries[:]
                    entries.clear()
                f.write(b"".join(page))
                f.flush()
                os.fsync(f.fileno())
                with change:
                    kept += len(page)
                    change.notify_all()
    threading.Thread(target=keep, daemon=True).start()
    s.go()
    for n in itertools.count(1):
        s.step(gpu, batch)
        with s.during("host"), change:
            entries.append(struct.pack("<Q", n) + bytes(size))
            change.notify_all()
            if not s.fix:
                change.wait_for(lambda: kept >= n)


def stock(out, lead, cost):
    for n in itertools.count():
        if n >= lead:  # what came before was kept from the last epoch
            decode(cost)
        out.put(np.zeros(2000, np.float32))


@job(data=CPU, rest="sync_bound launch_bound")
def paper_store(s):
    """A maker is always busy and slower than the loop, but hundreds of batches ahead of it."""
    ms, lead = s.ms("gpu_ms", 45, 110), s.int("lead", 300, 500)
    cost = ms * s.ms("cost_share", 1.1, 1.6)
    gpu, out = s.gpu(ms), multiprocessing.Queue(lead)
    child(stock, out, lead, cost / 5 if s.fix else cost)
    child(rummage)
    while out.qsize() < lead:
        time.sleep(0.01)
    s.loop(gpu, out.get)
