# SPDX-License-Identifier: BSD-2-Clause
"""In the lumberyards: how data and work move in batch production lines, as of recommenders, tables, time series,
maps, simulations in the loop, and of data that is written while it is trained on."""
import concurrent.futures
import contextlib
import ctypes
import fcntl
import itertools
import math
import multiprocessing
import os
import queue
import random
import resource
import selectors
import signal
import socket
import struct
import threading
import time
import zlib

import numpy as np

from stranger import CPU, child, decode, job, mortal

PAGE, MIB = 4096, 1 << 20


def once(f):
    """Seconds that f takes."""
    begin = time.monotonic()
    f()
    return time.monotonic() - begin


def took(f):
    """The same, once it is warm, and nothing is in its way."""
    return min(once(f) for _ in range(4))


def put(out, cost):
    while True:
        decode(cost)
        out.put(np.zeros(20000, np.float32))


# ---- the data is late


def row_of(helper, fd, page, place):
    """A row, at once if its page lies in memory; else a helping thread waits for it."""
    try:
        os.preadv(fd, [page], place, os.RWF_NOWAIT)
        return page[:16]
    except BlockingIOError:
        return helper.submit(os.pread, fd, PAGE, place).result()[:16]


def rows_of(fds, many):
    """Batches of rows from each part of a table, at random; nothing is read ahead."""
    chance, page, helper = random.Random(1), bytearray(PAGE), concurrent.futures.ThreadPoolExecutor(1)
    pages = [(fd, os.fstat(fd).st_size // PAGE) for fd in fds]
    for fd in fds:
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
    while True:
        yield b"".join(row_of(helper, fd, page, chance.randrange(size) * PAGE) for fd, size in pages
                       for _ in range(many))


def season(link, parts, many, warm):
    fds = [os.open(part, os.O_RDONLY) for part in parts]
    while warm and os.read(fds[-1], MIB):
        pass
    for rows in rows_of(fds, many):
        link.send(rows)
        if not warm:
            os.posix_fadvise(fds[-1], 0, 0, os.POSIX_FADV_DONTNEED)


@job(data="io_bound slow_file", rest="sync_bound launch_bound")
def green_boards(s):
    """A table that is appended to day by day, from which a process asks for row after row by RWF_NOWAIT, and has a
    thread wait where there is none; to blame is today's part, which its writer put past the page cache."""
    ms, share = s.ms("gpu_ms", 8, 25), s.ms("read_share", 1.8, 3)
    new, old = s.data_file("green_boards", 64), s.path("old")
    np.ones(4 * MIB, np.uint8).tofile(old)
    fd = os.open(new, os.O_RDONLY)
    while os.read(fd, MIB):  # a disk is quicker the second time, where it has a cache of its own
        pass
    s.cold(new)
    trial = rows_of([fd], 200)
    each = took(lambda: next(trial)) / 200
    many = s.keep("rows", min(max(int(ms * share / 1e3 / each), 16), 3000))
    s.cold(new)
    mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    gpu = s.gpu(ms)
    s.supplier(child(season, theirs, (old, new), many, s.fix).pid)
    s.loop(gpu, lambda: np.frombuffer(mine.recv(1 << 17), np.uint8))


def saw(out, near, far, warp, blend, patience, seed):
    """Warps its own tile and blends the seam with the other's; whoever cannot have both in time lets go of one."""
    chance = random.Random(seed)
    while True:
        with near:
            decode(warp)
            both = far.acquire(timeout=patience * chance.uniform(0.85, 1.15))
            if both:
                decode(blend)
                far.release()
        if both:
            out.put(np.zeros(20000, np.float32))
        else:
            time.sleep(warp * chance.uniform(0.2, 0.6) / 1e3)


@job(data="lock_bound", rest="sync_bound launch_bound")
def crossed_saws(s):
    """Accumulation over a mosaic of maps; two processes blend its halves along their seam, for which each locks its
    own half and then the other's; to blame is this order, a deadlock that only a timeout dissolves, time and again."""
    ms, parts = s.ms("gpu_ms", 8, 35), s.int("micro_batches", 1, 4)
    patience, cost = ms * s.ms("patience_share", 1.5, 2.8) / 1e3, ms * s.ms("warp_share", 0.25, 0.4)
    halves, out = [multiprocessing.Lock() for _ in range(2)], multiprocessing.Queue(maxsize=3)
    gpu = s.gpu(ms)
    for n in range(2):
        near, far = halves if s.fix else (halves[n], halves[1 - n])
        child(saw, out, near, far, cost, cost / 6, patience, n)
    s.go()
    while True:
        s.mark()
        for _ in range(parts):
            s.mark("micro")
            with s.during("data"):
                x = out.get()
            gpu.upload(x.ctypes.data, x.nbytes)
            gpu.forward()
            gpu.backward()
        gpu.optimizer()
        gpu.loss_item()


ANSWER = 16 << 10


def three_replicas(s):
    """A feature store on three continents, of which one is the trainer's."""
    late, doors = float(s.told("late")) / 1e3, [socket.create_server(("127.0.0.1", 0)) for _ in range(3)]

    def serve(door, pause):
        link = door.accept()[0]
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with contextlib.suppress(ConnectionError):
            while ask := link.recv(4, socket.MSG_WAITALL):
                time.sleep(pause)
                link.sendall(ask.ljust(ANSWER, b"\0"))
    threads = [threading.Thread(target=serve, args=(door, late if n else late / 40)) for n, door in enumerate(doors)]
    for thread in threads:
        thread.start()
    s.tell("ports", " ".join(str(door.getsockname()[1]) for door in doors))
    threads[0].join()


def raft(out, ports, views, quorum, cost):
    """Asks all replicas at once for each view, and goes on when enough of them have answered."""
    watch, body, links = selectors.DefaultSelector(), {}, []
    for port in ports:
        link = socket.create_connection(("127.0.0.1", port))
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        watch.register(link, selectors.EVENT_READ)
        links.append(link)
    for n in itertools.count():
        ask, there = struct.pack("<I", n), 0
        for link in links:
            link.sendall(ask)
        while there < quorum:
            for key, _ in watch.select():
                answer = key.fileobj.recv(ANSWER, socket.MSG_WAITALL)
                there += answer[:4] == ask  # else it is late, for a question before
                body[n % views] = answer
        if n % views == views - 1:
            decode(cost)
            out.send_bytes(b"".join(body.values()))


@job(outside=three_replicas, data="network_bound too_few_workers", rest="sync_bound launch_bound")
def far_rafts(s):
    """A recommender, whose loss is read now and then; a process asks all three replicas of a feature store for each
    view, and needs a quorum; to blame is that two must agree, for one is near and the second answer comes from afar."""
    ms, views, every = s.ms("gpu_ms", 12, 40), s.int("views", 2, 5), s.int("read_every", 2, 6)
    s.tell("late", ms * s.ms("late_share", 1.4, 2.8) / views)
    gpu, ports = s.gpu(ms), s.told("ports").split()
    mine, theirs = multiprocessing.Pipe(duplex=False)
    s.supplier(child(raft, theirs, ports[:1] if s.fix else ports, views, 1 if s.fix else 2, ms * 0.05).pid)
    s.go()
    for n in itertools.count(1):
        s.mark()
        with s.during("data"):
            x = np.frombuffer(mine.recv_bytes(), np.uint8)
        s.train(gpu, x, item=n % every == 0)


LIBC, MOST = ctypes.CDLL(None), 8192


class Message(ctypes.Structure):
    """As System V's message queues have them; the kernel admits bodies of 8 KiB, and two such at a time."""
    _fields_ = [("kind", ctypes.c_long), ("body", ctypes.c_char * MOST)]


def solver(chips, parent):
    """Has its fields ready, and sends as much of them as it is asked for; at its end it takes the queue away."""
    signal.signal(signal.SIGTERM, lambda *_: (LIBC.msgctl(chips, 0, None), os._exit(0)))
    mortal(parent, signal.SIGTERM)
    ask, part = Message(), Message(2, b"\1" * MOST)
    while LIBC.msgrcv(chips, ctypes.byref(ask), MOST, 1, 0) >= 0:
        left = int(ask.body)
        while left > 0 and LIBC.msgsnd(chips, ctypes.byref(part), min(left, MOST), 0) == 0:
            left -= MOST


@job(data="ipc_bound main_thread_loading", rest="sync_bound launch_bound")
def message_chips(s):
    """A surrogate of a hydraulic solver of old, which has its fields ready and is asked one batch ahead; to blame is
    its coupler of 1995, by which they come in System V messages of 8 KiB, from a queue with room for two."""
    ms, share = s.ms("gpu_ms", 8, 25), s.ms("hand_over_share", 0.6, 1.6)
    chips, ask, part, x = LIBC.msgget(0, 0o600), Message(1), Message(), np.zeros(64 * MIB, np.uint8)
    chip = np.frombuffer(part, np.uint8)[Message.body.offset:]
    child(solver, chips, os.getpid())

    def order(size):
        ask.body = b"%d" % size
        LIBC.msgsnd(chips, ctypes.byref(ask), len(ask.body) + 1, 0)

    def take(size):
        for place in range(0, size, MOST):
            LIBC.msgrcv(chips, ctypes.byref(part), MOST, 2, 0)
            x[place:place + MOST] = chip
        return x[:size]
    each = took(lambda: (order(MIB), take(MIB))) / (MIB // MOST)
    many = s.keep("messages", min(max(int(ms * share / 1e3 / each), 16), len(x) // MOST) // (8 if s.fix else 1))
    gpu = s.gpu(ms)

    def obtain():
        field = take(many * MOST)
        order(many * MOST)
        return field
    order(many * MOST)
    s.loop(gpu, obtain)


def sprout(state, grow):
    """Forks a process that goes on from this state, on pages of its own, and waits for its end."""
    parent = os.getpid()
    if os.fork() == 0:
        mortal(parent)
        np.multiply(state, np.float32(1.01), state)
        grow()
        os._exit(0)
    os.wait()


def stump(end, floats, cost, size):
    """A simulator after its long spin-up, from which each scenario sprouts."""
    state = np.ones(floats, np.float32)

    def grow():
        decode(cost)
        os.write(end, bytes(size))
    while True:
        sprout(state, grow)


@job(data=CPU + " loader_restart", rest="sync_bound launch_bound")
def coppice_shoots(s):
    """Scenarios of a weather that all start from one spun-up state: a warm simulator forks for each, which computes,
    writes into a pipe and ends; to blame is this, as one runs at a time, and copies each page of the state first."""
    ms, share, size = s.ms("gpu_ms", 10, 35), s.ms("scenario_share", 1.4, 2.6), s.int("kib", 40, 200) << 10
    some = np.ones(16 << 18, np.float32)
    bare = took(lambda: sprout(some[:1], int)) * 1e3
    each = max(took(lambda: sprout(some, int)) * 1e3 - bare, 0.1) / 16
    mib = s.keep("mib", min(max(int(ms * share * s.ms("copy_part", 0.3, 0.6) / each), 1), 96))
    cost = max(ms * share - mib * each - bare, 0.1)
    if s.fix:
        mib, cost = max(mib // 6, 1), cost / 6
    mine, theirs = os.pipe()
    gpu, x = s.gpu(ms), np.zeros(size, np.uint8)
    child(stump, theirs, mib << 18, cost, size)
    os.close(theirs)
    stream = os.fdopen(mine, "rb")

    def obtain():
        stream.readinto(x)
        return x
    s.loop(gpu, obtain)


PARTIAL = 40000


def yardman(door, most, cost):
    """Serves each customer in a thread, and keeps all connections; when it may have no more, nobody hears the door."""
    kept = []

    def serve(link):
        while link.recv(1):
            decode(cost)
            link.sendall(bytes(PARTIAL))
        if not most:
            link.close()

    def hear():
        while True:
            try:
                link = door.accept()[0]
            except OSError:
                return  # too many open files, as some log says
            if most:
                kept.append(link)
            threading.Thread(target=serve, args=(link,), daemon=True).start()
    if most:
        used = set(map(int, os.listdir("/proc/self/fd")))
        limit = next(itertools.islice((n for n in itertools.count() if n not in used), most, None))
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    threading.Thread(target=hear, daemon=True).start()
    signal.pause()


def carter(out, place, batches):
    """Connects anew for each partition of a table."""
    while True:
        with socket.socket(socket.AF_UNIX) as link:
            link.connect(place)
            for _ in range(batches):
                link.sendall(b"n")
                out.put(np.frombuffer(link.recv(PARTIAL, socket.MSG_WAITALL), np.uint8))


@job(data="hung_worker", rest="sync_bound launch_bound")
def deaf_yardman(s):
    """Two workers by turns ask a table service that is soon done, on a new connection for each partition; to blame is
    a leak: when it has no descriptor left, its accept loop ends, and who is next waits for ever for an answer."""
    ms, batches = s.ms("gpu_ms", 10, 40), s.int("partition", 3, 8)
    most = int(s.ms("life_s", 1.8, 3) * 1e3 / ms / batches) + 2
    gpu, cost, place = s.gpu(ms), ms * s.ms("load_share", 0.1, 0.3), s.path("yard")
    door, outs = socket.socket(socket.AF_UNIX), [multiprocessing.Queue(maxsize=1) for _ in range(2)]
    door.bind(place)
    door.listen()
    child(yardman, door, 0 if s.fix else most, cost)
    for out in outs:
        child(carter, out, place, batches)
    turn = itertools.cycle(outs)
    s.loop(gpu, lambda: next(turn).get())


# ---- not for data


@job(data="main_thread_loading", rest="sync_bound launch_bound")
def plumb_lines(s):
    """A solver in the loop: a network corrects a flow, whose pressure the device finds by conjugate gradients; to
    blame is that after each of these many small iterations the residual is read back, to see whether it is enough."""
    kernels, us, most = s.int("kernels", 4, 8), s.ms("kernel_us", 4, 12), s.int("iterations", 60, 160)
    solve = s.gpu(kernels * us / 1e3, launches=kernels)
    network = s.gpu(s.ms("network_ms", 2, 6), launches=s.int("network_launches", 10, 60))
    flows, chance, tolerance = np.zeros((64, 1 << 16), np.float32), np.random.default_rng(1), -1.0
    s.go()
    while True:
        s.mark()
        with s.during("data"):
            x = flows[chance.integers(0, len(flows))]
        network.enter_thread()
        network.upload(x.ctypes.data, x.nbytes)
        network.forward()
        solve.enter_thread()
        for n in range(1, most):
            solve.launch(n % 2, kernels)
            if not s.fix or n % 20 == 0:
                solve.loss_item()
                if solve.loss.value < tolerance:
                    break
        network.enter_thread()
        network.backward()
        network.optimizer()
        network.loss_item()


def inspector(path, hold, pause, seed):
    """Looks for drift in the table and tells a far board of it, with a shared lock all the while."""
    chance = random.Random(seed)
    with open(path, "rb") as table:
        while True:
            fcntl.flock(table, fcntl.LOCK_SH)
            decode(hold * 0.25)
            time.sleep(hold * 0.75 / 1e3)
            fcntl.flock(table, fcntl.LOCK_UN)
            time.sleep(pause * chance.uniform(0.6, 1.4) / 1e3)


@job(data=CPU, lock="lock_bound host_bound", host="host_bound", rest="sync_bound launch_bound")
def log_jam(s):
    """Boosting with networks: each step or few the rows' residuals go back into the table, with batches in time; to
    blame is its lock, which two inspectors share by turns, so that the loop, which wants it alone, hardly gets it."""
    ms, every = s.ms("gpu_ms", 8, 30), s.int("every", 1, 3)
    hold, path, out = ms * every * s.ms("hold_share", 0.5, 1.2), s.path("table"), queue.Queue(4)
    np.zeros(4 * MIB, np.uint8).tofile(path)
    for n in range(2):
        child(inspector, path, hold / 10 if s.fix else hold, 0.6 * hold, n)
    gpu, residuals, chance = s.gpu(ms), np.ones(s.int("kib", 8, 64) << 8, np.float32), random.Random(1)
    threading.Thread(target=put, args=(out, ms * s.ms("load_share", 0.1, 0.3)), daemon=True).start()
    with open(path, "r+b", buffering=0) as table:
        s.go()
        for n in itertools.count(1):
            s.step(gpu, out.get)
            if n % every == 0:
                with s.during("lock"):
                    fcntl.flock(table, fcntl.LOCK_EX)
                with s.during("host"):
                    os.pwrite(table.fileno(), residuals, chance.randrange(512) * PAGE)
                fcntl.flock(table, fcntl.LOCK_UN)


def foresters(s):
    """They call after a storm: which trees are down in these tiles?"""
    rate = s.ms("rate", 1.2, 4)
    s.told("open")
    calls = os.open(s.path("calls"), os.O_WRONLY)
    s.told("go")
    with contextlib.suppress(BrokenPipeError):
        while True:
            time.sleep(s.random.expovariate(rate))
            os.write(calls, b"%d %d %d\n" % (s.random.randrange(64), s.random.randrange(64), s.random.randint(2, 8)))


@job(outside=foresters, demand="no_demand", data="main_thread_loading", host="host_bound",
     rest="sync_bound launch_bound")
def windfall_calls(s):
    """Maps of storm damage: a dispatcher writes lines into a named pipe, for each of which the loop goes over some
    tiles of a mosaic in memory, and saves the map; nobody is to blame that calls are few."""
    gpu, mosaic = s.gpu(s.ms("gpu_ms", 4, 14)), np.ones((64, 64, 8192), np.uint8)
    os.mkfifo(s.path("calls"))
    calls, down = os.fdopen(os.open(s.path("calls"), os.O_RDWR), "r", encoding="ascii", buffering=1), np.zeros(8)
    s.tell("open", "")
    s.go()
    while True:
        with s.during("demand"):
            row, column, many = map(int, calls.readline().split())
        for n in range(many):
            s.mark()
            with s.during("data"):
                tile = mosaic[row, (column + n) % 64]
            s.train(gpu, tile, item=False)
        gpu.loss_item()
        with s.during("host"):
            down[:many] = gpu.loss.value
            np.save(s.path("map.npy"), down)


# ---- nothing is wrong


def clerk(path, credit, size, cost):
    """Appends record after record: first what it will be, and then the record, by halves."""
    body = random.Random(1).randbytes(size)
    with open(path, "ab", buffering=0) as log:
        while True:
            credit.acquire()
            log.write(struct.pack("<II", size, zlib.crc32(body)))
            decode(cost)
            log.write(body[:size // 2])
            decode(cost)
            log.write(body[size // 2:])


def follow(fd, out, pause):
    """Reads a log that is being written; a record that is torn is tried again."""
    place = 0
    while True:
        head = os.pread(fd, 8, place)
        size, right = struct.unpack("<II", head) if len(head) == 8 else (0, 1)
        body = os.pread(fd, size, place + 8)
        if zlib.crc32(body) != right:
            time.sleep(pause)
            continue
        place += 8 + size
        out.put(np.frombuffer(body, np.uint8))


@job(data=CPU, rest="sync_bound launch_bound")
def torn_bark(s):
    """Nothing is to blame: a thread follows a log to its end, where nearly each record is torn when it comes, so that
    it sleeps and tries again all the time; but the clerk who writes is always some batches ahead of the loop."""
    ms, ahead, size = s.ms("gpu_ms", 14, 60), s.int("ahead", 4, 8), s.int("kib", 8, 40) << 10
    path, out, credit = s.path("log"), queue.SimpleQueue(), multiprocessing.Semaphore(ahead)
    fd = os.open(path, os.O_RDONLY | os.O_CREAT, 0o600)
    gpu = s.gpu(ms)
    child(clerk, path, credit, size, ms * s.ms("write_share", 0.15, 0.5) / 2)
    threading.Thread(target=follow, args=(fd, out, s.ms("retry_ms", 0.7, 4) / 1e3), daemon=True).start()

    def obtain():
        x = out.get()
        credit.release()
        return x
    s.loop(gpu, obtain)


SLOTS, RECORD = 4096, 16 << 10


def gauges(fd, written, pause):
    """Sensors, whose readings are written whether anybody reads them or not."""
    readings = random.Random(1).randbytes(RECORD)
    for n in itertools.count():
        os.pwrite(fd, readings, n % SLOTS * RECORD)
        written.value = n + 1
        time.sleep(pause)


def alarm(path, written, learnt):
    """Complains that the trainer falls behind."""
    with open(path, "w", encoding="ascii") as out:
        while True:
            out.write("WARNING %f: %d behind\n" % (time.time(), written.value - learnt.value))
            out.flush()
            os.fsync(out.fileno())
            time.sleep(0.25)


@job(data="main_thread_loading", host="host_bound checkpoint_stall", rest="sync_bound launch_bound")
def growing_pile(s):
    """Nothing is to blame but the device: readings of a plant are written faster than they can be learnt from, an
    alarm tells how far the loop is behind, and the loop itself reads them, soon, and notes every few how far it is."""
    ms, every = s.ms("gpu_ms", 15, 60), s.int("note_every", 2, 8)
    fd = os.open(s.path("readings"), os.O_RDWR | os.O_CREAT, 0o600)
    notes = os.open(s.path("offset"), os.O_WRONLY | os.O_CREAT, 0o600)
    written, learnt, gpu = multiprocessing.RawValue("q"), multiprocessing.RawValue("q"), s.gpu(ms)
    child(gauges, fd, written, ms * s.ms("pace", 0.35, 0.75) / 1e3)
    child(alarm, s.path("alarms"), written, learnt)

    def obtain():
        while written.value <= learnt.value:
            time.sleep(0.001)
        learnt.value = max(learnt.value, written.value - SLOTS // 2)  # else it has been written over
        return np.frombuffer(os.pread(fd, RECORD, learnt.value % SLOTS * RECORD), np.uint8)
    s.go()
    for n in itertools.count(1):
        s.step(gpu, obtain)
        learnt.value += 1
        if n % every == 0:
            with s.during("host"):
                os.pwrite(notes, b"%d" % learnt.value, 0)


@job(data=CPU, rest="sync_bound launch_bound")
def kiln_weeks(s):
    """Nothing is to blame: a process takes longer for a batch than the device, but after some steps the item tower
    embeds the whole catalogue anew on the device, which takes about as long, and meanwhile the queue gets full."""
    ms, steps = s.ms("gpu_ms", 10, 40), s.int("steps", 4, 8)
    passes = math.ceil(steps * s.ms("catalogue_share", 0.75, 1.2) / 0.375)
    gpu, out = s.gpu(ms), multiprocessing.Queue(maxsize=steps + 2)
    child(put, out, ms * s.ms("load_share", 1.08, 1.22))
    s.go()
    while True:
        for _ in range(steps):
            s.step(gpu, out.get)
        for _ in range(passes):
            s.mark("micro")
            gpu.forward()


## Theme
# Late: green_boards: io_bound (one file); its maker waits for a thread of its own, and that one for the disk.
# Late: crossed_saws: lock_bound; each holds a lock while it waits for the other's with a timeout, and then sleeps.
# Late: far_rafts: network_bound; its one select() ends by an early answer, and it is the second that counts.
# Late: message_chips: ipc_bound; System V messages have no descriptor, and loop and sender wait by turns.
# Late: coppice_shoots: cpu_bound or loader_restart; who computes lives for one batch, half of it in copied pages.
# Late: deaf_yardman: hung_worker; connect() and send() succeed, the service lives on, and the worker is in recv().
# Not for data: plumb_lines: sync_bound; hundreds of tiny syncs a step, which must not be taken for steps.
# Not for data: log_jam: lock_bound; no holder keeps the lock for long, it is their overlap; the loader looks busy.
# Not for data: windfall_calls: no_demand; waiting to read a named pipe is here not waiting for data.
# Healthy: torn_bark: balanced; the thread that feeds the loop polls and sleeps all the time, the queue is never empty.
# Healthy: growing_pile: balanced; the loop reads what is written meanwhile, by itself; a process syncs alarms.
# Healthy: kiln_weeks: balanced; the loader is busier than a step is long, which only the whole cycle hides.
