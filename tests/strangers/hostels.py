# SPDX-License-Identifier: BSD-2-Clause
"""In the hostels: data loaders as ordinary teams write them by hand, each with one bottleneck, or with none."""
import collections
import concurrent.futures
import concurrent.futures.process
import contextlib
import fcntl
import functools
import heapq
import itertools
import logging
import logging.handlers
import mmap
import multiprocessing
import multiprocessing.managers
import os
import queue
import random
import shutil
import socket
import subprocess
import sys
import threading
import time
import zipfile

import numpy as np

from stranger import CPU, child, decode, job, mortal

SPAN = 4096


def took(f, clock=time.thread_time):
    """Seconds that f takes once it is warm, without those of others."""
    f()
    begin = clock()
    f()
    return clock() - begin


def ahead(submit, depth):
    """A deque of futures, kept full; what is ready is taken in order."""
    numbers, due = itertools.count(), collections.deque()

    def obtain():
        while len(due) < depth:
            due.append(submit(next(numbers)))
        return due.popleft()
    return obtain


# ---- the data is late


def shower(lock, held, own):
    """A task of the pool: the lock came with it, pickled."""
    with lock:
        decode(held)
    decode(own)
    return np.zeros(20000, np.float32)


@job(data="lock_bound", rest="sync_bound launch_bound")
def single_shower(s):
    """A Pool whose tasks unpack, some batches ahead; as a Lock refuses to be pickled into a task, it is a manager's;
    to blame is this lock, which each worker holds while it unpacks from the shared archive."""
    ms, workers = s.ms("gpu_ms", 10, 35), s.int("workers", 2, 3)
    held, own = ms * s.ms("held_share", 1.4, 2.4), ms * s.ms("own_share", 0.2, 0.5)
    manager = multiprocessing.managers.SyncManager()
    manager.start(mortal, (os.getpid(),))
    lock = manager.Lock()
    pool = multiprocessing.Pool(workers, mortal, (os.getpid(),))
    gpu = s.gpu(ms)
    future = ahead(lambda n: pool.apply_async(shower, (lock, held / 6 if s.fix else held, own)), workers + 2)
    s.loop(gpu, lambda: future().get())


def guest(n, cost, last):
    """Makes a batch, or meets the memory limit."""
    decode(cost)
    if last:
        os._exit(137)
    return np.full(20000, n, np.float32)


def move_in(parent, index):
    mortal(parent)
    decode(index)


@job(data="loader_restart", rest="sync_bound launch_bound")
def evicted_guests(s):
    """A ProcessPoolExecutor, and `except BrokenProcessPool:` makes a new one and submits again what was lost; to
    blame is what breaks it every few batches, a worker over its memory limit, as a new pool first reads its index."""
    ms, every = s.ms("gpu_ms", 8, 25), s.int("every", 5, 9)
    cost, index = ms * s.ms("load_share", 0.1, 0.3), ms * every * s.ms("index_share", 0.4, 0.9)
    gpu, numbers, due = s.gpu(ms), itertools.count(1), collections.deque()

    def opened():
        return concurrent.futures.ProcessPoolExecutor(2, initializer=move_in, initargs=(os.getpid(), index))

    def ask(n, again=False):
        return n, pool.submit(guest, n, cost, n % every == 0 and not again and not s.fix)

    def obtain():
        nonlocal pool
        while True:
            try:
                while len(due) < 3:
                    due.append(ask(next(numbers)))
                x = due[0][1].result()
                due.popleft()
                return x
            except concurrent.futures.process.BrokenProcessPool:
                pool.shutdown(wait=False)
                pool, lost = opened(), list(due)
                due.clear()
                due.extend(ask(n, True) for n, _ in lost)
    pool = opened()
    due.append(ask(next(numbers)))
    s.loop(gpu, obtain)


def cubbies(path, warm):
    """A function that reads letters by their places: past the page cache, where the file system has that."""
    page = mmap.mmap(-1, SPAN)
    try:
        fd = os.open(path, os.O_RDONLY | (0 if warm else os.O_DIRECT))
    except OSError:
        fd = os.open(path, os.O_RDONLY)

    def letters(places):
        bodies = []
        for place in places:
            os.preadv(fd, [page], place * SPAN)
            bodies.append(page[:64])
        if not warm:
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        return np.frombuffer(b"".join(bodies), np.uint8)
    return letters


def in_windows(pool, load, width):
    """As it is often written: a few futures at a time, and each window is used up before the next is submitted."""
    while True:
        for done in concurrent.futures.as_completed([pool.submit(load) for _ in range(width)]):
            yield done.result()


@job(data="io_bound", rest="sync_bound launch_bound")
def mail_cubbies(s):
    """Letters at random from one file, by threads, window by window with as_completed(), in a generator; to blame is
    the disk, as somebody opened the file with O_DIRECT, to be easy on the page cache, which would have held it."""
    ms, share, threads = s.ms("gpu_ms", 8, 25), s.ms("read_share", 1.8, 3), s.int("threads", 1, 2)
    mib, gpu, own, chance = 48, s.gpu(ms), threading.local(), random.Random(1)
    path, letters = s.data_file("mail_cubbies", mib), (mib << 20) // SPAN
    some, pool = cubbies(path, False), concurrent.futures.ThreadPoolExecutor(threads)

    def trial():
        some([chance.randrange(letters) for _ in range(150)])
    each = min(pool.submit(took, trial, time.monotonic).result() for _ in range(4)) / 150
    many = s.keep("letters", min(max(round(ms * share * threads / 1e3 / each), 2), 4000))

    def load():
        if not hasattr(own, "letters"):
            own.letters = cubbies(path, s.fix)
        return own.letters([chance.randrange(letters) for _ in range(many)])
    batches = in_windows(pool, load, s.int("window", 4, 8))
    s.loop(gpu, lambda: next(batches))


def registry(s):
    """A database far away, whose cursors stay with it."""
    late = float(s.told("late")) / 1e3
    door = socket.create_server(("127.0.0.1", 0))
    s.tell("port", door.getsockname()[1])
    link, _ = door.accept()
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    with contextlib.suppress(ConnectionError):
        while ask := link.recv(1):
            time.sleep(late)
            link.sendall(bytes(256 * ask[0]))


class Cursor:
    """As DB-API 2.0 has it, with its default."""
    arraysize = 1

    def __init__(self, port):
        self.link = socket.create_connection(("127.0.0.1", port))
        self.answers = self.link.makefile("rb")

    def fetchmany(self, size=None):
        size = size or self.arraysize
        self.link.sendall(bytes([size]))
        body = self.answers.read(256 * size)
        return [body[n:n + 256] for n in range(0, len(body), 256)]


def receptionist(port, size, many, rooms, free, full):
    """Fills two halves of shared memory by turns, each with an event for either side."""
    cursor = Cursor(port)
    cursor.arraysize = size
    for n in itertools.cycle(range(2)):
        rows = []
        while len(rows) < many:
            rows += cursor.fetchmany()
        free[n].wait()
        free[n].clear()
        rooms[n] = np.frombuffer(b"".join(rows[:many]), np.uint8)
        full[n].set()


@job(outside=registry, data="network_bound", rest="sync_bound launch_bound")
def slow_reception(s):
    """A process reads a far database by a cursor on the server, into two halves of shared memory with mp.Events; to
    blame is fetchmany() without a size: it asks for `cursor.arraysize` rows, which is one, and waits for each."""
    ms, late = s.ms("gpu_ms", 8, 30), s.ms("late_ms", 0.5, 2)
    many = s.keep("rows", max(round(ms * s.ms("fetch_share", 1.5, 2.8) / (late + 0.15)), 6))
    s.tell("late", late)
    rooms = np.frombuffer(multiprocessing.RawArray("B", 2 * 256 * many), np.uint8).reshape(2, -1)
    free, full = ([multiprocessing.Event() for _ in range(2)] for _ in range(2))
    for event in free:
        event.set()
    gpu, port, turn = s.gpu(ms), int(s.told("port")), itertools.cycle(range(2))
    s.supplier(child(receptionist, port, 6 if s.fix else 1, many, rooms, free, full).pid)

    def obtain():
        n = next(turn)
        full[n].wait()
        full[n].clear()
        x = rooms[n].copy()
        free[n].set()
        return x
    s.loop(gpu, obtain)


def clean(word):
    low = word.lower()
    if low.endswith("s"):
        low = low[:-1]
    low = low.strip(".")
    return len(low)


def cleaned(many):
    return np.fromiter((clean("Guests.") for _ in range(many)), np.int64, many)


def covered():
    """A trace function that counts lines, as for a coverage report."""
    lines = collections.Counter()

    def trace(frame, _event, _more):
        lines[os.path.basename(frame.f_code.co_filename), frame.f_lineno] += 1
        return trace
    return trace


def snore(out, many, traced):
    if traced:
        sys.settrace(covered())
    while True:
        x = cleaned(many)
        out.put(np.resize(x, 20000))


@job(data="slow_worker", rest="sync_bound launch_bound")
def snoring_guest(s):
    """Workers clean texts in Python, each with a SimpleQueue, and are asked by turns; to blame is one of them, for
    which somebody left the measuring of coverage on: a trace function is called for each line that it runs."""
    ms, workers, share = s.ms("gpu_ms", 10, 35), s.int("workers", 2, 3), s.ms("clean_share", 1.5, 2.3)
    gpu, snorer, queues = s.gpu(ms), s.int("snorer", 0, workers - 1), []
    sys.settrace(covered())
    each = took(lambda: cleaned(2000)) / 2000
    sys.settrace(None)
    many = s.keep("words", max(round(ms * share * workers / 1e3 / each), 20))
    for n in range(workers):
        queues.append(multiprocessing.SimpleQueue())
        pid = child(snore, queues[-1], many, n == snorer and not s.fix).pid
        if n == snorer:
            s.supplier(pid)
    turn = itertools.cycle(queues)
    s.loop(gpu, lambda: next(turn).get())


def grown(pipe, size, part):
    """A frame, part by part; `+=` on bytes copies all that is there already."""
    frame = b""
    while len(frame) < size:
        frame += pipe.read(min(part, size - len(frame)))
    return np.frombuffer(frame, np.uint8)


def at_once(pipe, size, _):
    frame = np.empty(size, np.uint8)
    pipe.readinto(frame)
    return frame


@job(data="main_thread_loading ipc_bound", rest="sync_bound launch_bound")
def growing_tab(s):
    """A player in a subprocess has the next raw frame ready in a pipe that is large enough, and the loop reads it in
    small parts; to blame is the loop's `frame += part`, which copies the frame so far for each part."""
    ms, share, path = s.ms("gpu_ms", 10, 30), s.ms("join_share", 0.7, 1.5), s.path("clip.raw")
    np.ones(16 << 20, np.uint8).tofile(path)
    parent, size, gpu = os.getpid(), s.int("kib", 700, 900) << 10, s.gpu(ms)
    player = subprocess.Popen(["sh", "-c", "while cat %s; do :; done" % path], stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, preexec_fn=lambda: mortal(parent))
    pipe = player.stdout
    fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, 1 << 20)
    each = min(took(lambda: grown(pipe, size, 4096)) for _ in range(3))
    part = s.keep("part", min(max(int(4096 * each / (ms * share / 1e3)), 256), 16384))
    read = at_once if s.fix else grown
    s.loop(gpu, lambda: read(pipe, size, part))


def allot(labels, people, each, chance):
    """So many people, so many pictures of each: all labels are looked through for every one of them."""
    beds = []
    for person in chance.sample(range(500), people):
        beds.append(chance.choices(np.flatnonzero(labels == person), k=each))
    return np.concatenate(beds)


@job(threads=True, data=CPU, rest="sync_bound launch_bound")
def bed_allotment(s):
    """Metric learning: a sampler thread chooses people and pictures, a pool of threads takes these from a memory
    map, a queue holds the futures; to blame is the sampler, which looks through all labels for each person."""
    ms, share = s.ms("gpu_ms", 10, 35), s.ms("choose_share", 1.5, 2.6)
    labels, chance = np.random.default_rng(1).integers(0, 500, 600000, np.int32), random.Random(1)
    gpu, rows = s.gpu(ms), np.memmap(s.path("rows.bin"), np.float32, "w+", shape=(4096, 256))
    rows[:] = 1
    one = took(lambda: allot(labels, 40, 4, chance)) / 40
    people = s.keep("people", min(max(round(ms * share / 1e3 / one), 2), 480))
    if s.fix:
        labels = labels[:100000]
    pool, futures = concurrent.futures.ThreadPoolExecutor(2), queue.Queue(2)

    def sample():
        while True:
            futures.put(pool.submit(lambda beds: rows[beds % 4096], allot(labels, people, 4, chance)))
    threading.Thread(target=sample, daemon=True).start()
    s.loop(gpu, lambda: futures.get().result())


# ---- not for data


def serve_beds(out, cost):
    while True:
        decode(cost)
        out.send_bytes(bytes(80000))


@job(data=CPU, host="host_bound checkpoint_stall", rest="sync_bound launch_bound")
def lobby_ledger(s):
    """A process has batches ready in a pipe; to blame is the loop's log, a RotatingFileHandler with a small maxBytes
    and a large backupCount, which for nearly each step renames all the files that it keeps."""
    ms, every, share = s.ms("gpu_ms", 8, 25), s.int("every", 1, 2), s.ms("rename_share", 0.5, 1.3)
    inn, theirs = multiprocessing.Pipe(duplex=False)
    gpu, cost, folder, log = s.gpu(ms), ms * s.ms("load_share", 0.1, 0.3), s.path("ledger"), logging.getLogger("lobby")
    os.mkdir(folder)
    log.propagate = False

    def handler(files):
        for n in range(1, files + 1):
            with open(os.path.join(folder, "log.%d" % n), "wb"):
                pass
        return logging.handlers.RotatingFileHandler(os.path.join(folder, "log"), maxBytes=100, backupCount=files)
    each = took(handler(300).doRollover) / 300
    files = s.keep("files", min(max(round(ms * every * share / 1e3 / each), 30), 8000))
    shutil.rmtree(folder)
    os.mkdir(folder)
    log.addHandler(handler(2 if s.fix else files))
    child(serve_beds, theirs, cost)
    s.go()
    for n in itertools.count(1):
        s.step(gpu, lambda: np.frombuffer(inn.recv_bytes(), np.uint8))
        if n % every == 0:
            with s.during("host"):
                log.error("step %d: loss %f, and some more that is of interest" + " " * 80, n, gpu.loss.value)


def make_beds(walls, free, full, cost):
    for wall in itertools.cycle(walls):
        decode(cost)
        free.acquire()
        wall[::4096] += 1
        full.release()


@job(data=CPU, rest="transfer_bound")
def wall_of_bunks(s):
    """A process has packed sequences ready in shared memory; to blame is that with them comes who may look at whom, a
    dense mask of floats for each head, and not the sequences' lengths: it goes up from pageable memory each step."""
    ms = s.ms("gpu_ms", 6, 12)
    mib = s.keep("mib", int(ms * s.ms("copy_share", 0.6, 1.2) * 12) + 1)
    size = (max(mib // 20, 1) if s.fix else mib) << 20
    gpu = s.gpu(ms, input_bytes=size)
    walls = np.frombuffer(multiprocessing.RawArray("B", 2 * size), np.uint8).reshape(2, -1)
    free, full, turn = multiprocessing.Semaphore(2), multiprocessing.Semaphore(0), itertools.cycle(walls)
    child(make_beds, walls, free, full, ms * s.ms("load_share", 0.1, 0.3))
    s.go()
    while True:
        s.mark()
        with s.during("data"):
            full.acquire()
        gpu.upload(next(turn).ctypes.data, size)
        free.release()
        s.train(gpu)


# ---- nothing is wrong


def trip(n, cost):
    decode(cost * (2 if n % 7 == 0 else 1))
    return np.full(20000, n, np.float32)


@job(data=CPU, rest="sync_bound launch_bound")
def day_trippers(s):
    """Nothing is to blame: a thread reads, its future's callback submits to processes, whose futures' callbacks put
    batches into a heap; they come out of order and some take twice as long, but there are enough on their way."""
    ms, depth = s.ms("gpu_ms", 22, 60), s.int("depth", 6, 9)
    cost, reading = ms * s.ms("load_share", 0.4, 0.8), ms * s.ms("read_share", 0.1, 0.3)
    readers = concurrent.futures.ThreadPoolExecutor(1)
    crew = concurrent.futures.ProcessPoolExecutor(2, initializer=mortal, initargs=(os.getpid(),))
    gpu, numbers, back, home = s.gpu(ms), itertools.count(), threading.Condition(), []
    list(crew.map(decode, [20, 20]))  # so that its processes are the main thread's

    def returned(n, done):
        with back:
            heapq.heappush(home, (n, done.result()))
            back.notify()

    def has_read(n, _):
        crew.submit(trip, n, cost).add_done_callback(functools.partial(returned, n))

    def leave():
        n = next(numbers)
        readers.submit(decode, reading).add_done_callback(functools.partial(has_read, n))

    def obtain(n):
        with back:
            back.wait_for(lambda: home and home[0][0] == n)
            x = heapq.heappop(home)[1]
        leave()
        return x
    for _ in range(depth):
        leave()
    turn = itertools.count()
    s.loop(gpu, lambda: obtain(next(turn)))


def warden(link, path, cost):
    """Sends the rows that it is asked for, out of a mapped file."""
    rows = np.load(path, mmap_mode="r")
    while True:
        beds = link.recv()
        decode(cost)
        link.send_bytes(rows[beds].tobytes())


@job(data=CPU, rest="sync_bound launch_bound")
def room_lists(s):
    """Nothing is to blame: epochs are short, and each needs a new order of a large index, which takes as long as some
    steps; but a thread draws it an epoch ahead, and a process is asked for rows two batches before they count."""
    ms, steps = s.ms("gpu_ms", 22, 60), s.int("epoch_steps", 12, 25)
    chance, pool = np.random.default_rng(1), concurrent.futures.ThreadPoolExecutor(1)
    each = took(lambda: chance.random(100000).argsort()) / 100000
    index = s.keep("index", min(int(ms * s.ms("order_steps", 2, 5) / 1e3 / each), 4000000))
    np.save(s.path("rows.npy"), np.ones((8192, 64), np.float32))
    link, theirs = multiprocessing.Pipe()
    gpu = s.gpu(ms)
    child(warden, theirs, s.path("rows.npy"), ms * s.ms("load_share", 0.1, 0.4))

    def orders():
        coming = pool.submit(lambda: chance.random(index).argsort())
        while True:
            order, coming = coming.result(), pool.submit(lambda: chance.random(index).argsort())
            for n in range(steps):
                yield order[n * 256:n * 256 + 256] % 8192
    beds = orders()

    def obtain():
        x = np.frombuffer(link.recv_bytes(), np.float32)
        link.send(next(beds))
        return x
    for _ in range(2):
        link.send(next(beds))
    s.loop(gpu, obtain)


def spoilt(path, things):
    """An archive, every third member of which does not match its sum any more."""
    with zipfile.ZipFile(path, "w") as box:
        for n in range(things):
            box.writestr("%03d" % n, bytes(20000))
        places = [member.header_offset + 1000 for member in box.infolist()[::3]]
    with open(path, "r+b") as f:
        for place in places:
            f.seek(place)
            f.write(b"mould")
    return path


def finder(out, path, log, cost, seed):
    """A batch of what can be read; the rest is noted, and something else is tried."""
    chance, box = random.Random(seed), zipfile.ZipFile(path)
    with open(log, "a", encoding="ascii", buffering=1) as notes:
        while True:
            decode(cost)
            name = "%03d" % chance.randrange(len(box.infolist()))
            try:
                x = np.frombuffer(box.read(name), np.uint8)
            except zipfile.BadZipFile as wrong:
                notes.write("skipped: %s\n" % wrong)
                continue
            out.put(x)


@job(data=CPU, rest="sync_bound launch_bound")
def lost_property(s):
    """Nothing is to blame: every third member of an archive is damaged, and the two processes that open it decode in
    vain, note that, and try another; but they have time for it, and a JoinableQueue holds enough."""
    ms = s.ms("gpu_ms", 20, 60)
    gpu, cost, path = s.gpu(ms), ms * s.ms("load_share", 0.2, 0.45), spoilt(s.path("found.zip"), 300)
    out = multiprocessing.JoinableQueue(s.int("places", 6, 10))
    for n in range(2):
        child(finder, out, path, s.path("notes"), cost, n)

    def obtain():
        x = out.get()
        out.task_done()
        return x
    s.loop(gpu, obtain)


## Hostels
# single_shower: lock_bound. Hard: the lock is a manager's, so that waiting for it is a read from a socket.
# evicted_guests: loader_restart. Hard: the executor itself ends the other worker; lost work is done again.
# mail_cubbies: io_bound. Hard: threads of the trainer; windows that run dry at their ends look like too few workers.
# slow_reception: network_bound. Hard: many short waits, none of them long, and the loop waits for semaphores.
# snoring_guest: slow_worker. Hard: all compute in Python alike, the peers wait in full pipes, and nobody sleeps.
# growing_tab: main_thread_loading (or ipc_bound). Hard: many reads of a pipe that has all of it; copies in between.
# bed_allotment: one of "the makers compute". Hard: a sampler thread computes, behind a queue of futures.
# lobby_ledger: host_bound (or checkpoint_stall). Hard: thousands of renames, hardly a byte is written.
# wall_of_bunks: transfer_bound. Hard: uploads come from another process's memory, and a semaphore stands before each.
# day_trippers: balanced. Hard: chained callbacks, out of order, with some items of twice the cost.
# room_lists: balanced. Hard: a thread computes long for each epoch, and the loop asks for its future then.
# lost_property: balanced. Hard: failing, busy workers that log their errors.
