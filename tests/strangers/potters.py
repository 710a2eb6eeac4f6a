# SPDX-License-Identifier: BSD-2-Clause
"""In a pottery: jobs in which something makes a noise, and something else is to blame."""
import concurrent.futures
import contextlib
import ctypes
import errno
import hashlib
import itertools
import multiprocessing
import os
import queue
import random
import signal
import socket
import struct
import threading
import time
import tty

import numpy as np

from stranger import CPU, child, decode, job, mortal, parse

PAGE, MIB, D2H = 4096, 1 << 20, 2


def took(f):
    """Seconds that f takes once it is warm."""
    f()
    begin = time.monotonic()
    f()
    return time.monotonic() - begin


def fill(view, read_into):
    """Reads until all of the view has come."""
    while view:
        got = read_into(view)
        if not got:
            raise EOFError
        view = view[got:]


def scattered(path):
    """A descriptor of a file of which single pages are read."""
    fd = os.open(path, os.O_RDONLY)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
    return fd


def pages(fd, places):
    return b"".join(os.pread(fd, PAGE, place) for place in places)


def forget(fd):
    """Nothing of the file stays in memory."""
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)


def page_ms(s, path):
    """What a page costs that the disk has to bring."""
    fd, chance = scattered(path), random.Random(2)
    count, begin = os.path.getsize(path) // PAGE, time.monotonic()
    pages(fd, [PAGE * chance.randrange(count) for _ in range(400)])
    each = (time.monotonic() - begin) * 1e3 / 400
    os.close(fd)
    s.cold(path)
    return each


def send(link, cost, batch):
    while True:
        decode(cost)
        link.send(batch)


def sent(cost, batch):
    """A process sends batches through a pipe, whose end is returned."""
    mine, theirs = multiprocessing.Pipe(duplex=False)
    child(send, theirs, cost, batch)
    return mine


def recount():
    """A report of no hurry."""
    os.nice(19)
    while True:
        parse(50)


# ---- what System V has: the kernel keeps it until somebody removes it

libc = ctypes.CDLL(None, use_errno=True)
libc.semop.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t]
libc.msgsnd.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
libc.msgrcv.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_long, ctypes.c_int]
libc.msgrcv.restype = ctypes.c_ssize_t
PRIVATE, REMOVE = 0, 0


def settled(call, *args):
    """A call of libc, made again when a signal ended it."""
    while True:
        result = call(*args)
        if result >= 0:
            return result
        if ctypes.get_errno() != errno.EINTR:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def at_end(call, *args):
    """A process makes this call when the job has ended."""
    parent = os.getpid()
    if os.fork():
        return
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    mortal(parent, signal.SIGTERM)
    signal.sigwait({signal.SIGTERM})
    call(*args)
    os._exit(0)


class Operation(ctypes.Structure):
    _fields_ = [("place", ctypes.c_ushort), ("change", ctypes.c_short), ("flags", ctypes.c_short)]


class Seat:
    """A semaphore for one."""

    def __init__(self):
        self.key = settled(libc.semget, PRIVATE, 1, 0o600)
        at_end(libc.semctl, self.key, 0, REMOVE)
        self.change(1)

    def change(self, by):
        settled(libc.semop, self.key, ctypes.byref(Operation(0, by, 0)), 1)

    def __enter__(self):
        self.change(-1)

    def __exit__(self, *_):
        self.change(1)


class Letter(ctypes.Structure):
    _fields_ = [("kind", ctypes.c_long), ("number", ctypes.c_long)]


class Letters:
    """A message queue, from which letters are taken by their kind."""
    size = ctypes.sizeof(ctypes.c_long)  # of what follows the kind

    def __init__(self):
        self.key = settled(libc.msgget, PRIVATE, 0o600)
        at_end(libc.msgctl, self.key, REMOVE, None)

    def send(self, kind, number=0):
        settled(libc.msgsnd, self.key, ctypes.byref(Letter(kind, number)), self.size, 0)

    def take(self, kind):
        letter = Letter()
        settled(libc.msgrcv, self.key, ctypes.byref(letter), self.size, kind, 0)
        return letter.number


# ---- the data is late


def knead(link, seat, path, reads, cost, first):
    """Reads pages all over a cold file, and unpacks them where a decoder of old has its one seat."""
    fd, chance, count = scattered(path), random.Random(first), os.path.getsize(path) // PAGE
    while True:
        pages(fd, [PAGE * chance.randrange(count) for _ in range(reads)])
        forget(fd)
        with seat:
            decode(cost)
        link.send(bytes(80000))


@job(data="lock_bound", rest="sync_bound launch_bound")
def one_pugmill(s):
    """Three processes read records from a cold disk, unpack them, and send batches as packets of one socket; the
    disk is innocent, and to blame is the decoder's semaphore of System V, by which one at a time unpacks."""
    ms, cost_share, read_share = s.ms("gpu_ms", 10, 35), s.ms("unpack_share", 1.6, 2.6), s.ms("read_share", 0.4, 0.8)
    path, gpu, cost = s.data_file("one_pugmill", 64), s.gpu(ms), ms * cost_share
    reads = s.keep("reads", min(max(int(ms * read_share / page_ms(s, path)), 2), 1000))
    seat = contextlib.nullcontext() if s.fix else Seat()
    mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    for n in range(3):  # the decoder's next version is quicker, too
        child(knead, theirs, seat, path, reads, cost * 0.5 if s.fix else cost, n)
    s.loop(gpu, lambda: np.frombuffer(mine.recv(80000), np.float32))


WINDOW, UPDATE = 65535, b"more"


def far_spring(s):
    """A service far away, which streams what it is asked for, a window at a time."""
    late, window = s.told("late").split()
    late, window, door = float(late) / 1e3, int(window), socket.create_server(("127.0.0.1", 0))
    s.tell("port", door.getsockname()[1])
    link, _ = door.accept()
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    while ask := link.recv(4, socket.MSG_WAITALL):
        left, = struct.unpack("<I", ask)
        while left:
            time.sleep(late)
            link.sendall(bytes(window))
            left -= window
            if left:
                link.recv(len(UPDATE), socket.MSG_WAITALL)


def jug(out, port, size, window, cost):
    """A client of gRPC, more or less: it receives a batch while a thread opens the one before."""
    link, came = socket.create_connection(("127.0.0.1", port)), queue.Queue(2)
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def opened():
        while True:
            body = came.get()
            decode(cost)
            out.send_bytes(body)
    threading.Thread(target=opened, daemon=True).start()
    while True:
        body = bytearray(size)
        link.sendall(struct.pack("<I", size))
        for begin in range(0, size, window):
            fill(memoryview(body)[begin:begin + window], link.recv_into)
            if begin + window < size:
                link.sendall(UPDATE)
        came.put(body)


@job(outside=far_spring, data="network_bound too_few_workers", rest="sync_bound launch_bound")
def narrow_spout(s):
    """A process with much to decode has a far service stream batches, beside a niced report that takes a core; both
    are innocent, and to blame is the stream's window of 64 KiB, as each further window is awaited from afar."""
    ms, windows = s.ms("gpu_ms", 10, 35), s.int("windows", 5, 9)
    size, late = windows * WINDOW, ms * s.ms("late_share", 1.5, 3) / windows
    window = size if s.fix else WINDOW
    s.tell("late", "%f %d" % (late, window))
    gpu, port, (mine, theirs) = s.gpu(ms), int(s.told("port")), multiprocessing.Pipe(duplex=False)
    s.supplier(child(jug, theirs, port, size, window, ms * s.ms("open_share", 0.35, 0.6)).pid)
    child(recount)
    s.loop(gpu, lambda: np.frombuffer(mine.recv_bytes(), np.uint8))


ORDER, READY = 1, 2  # a batch's own kind is its number after READY


def mend(letters, ring, every, cost, amphora):
    """Takes orders, and says of each batch by its kind that it lies in the ring."""
    while True:
        n = letters.take(ORDER)
        decode(amphora if n % every == every - 1 else cost)
        ring[n % len(ring)] = n
        letters.send(READY + n)


@job(data="slow_item", rest="sync_bound launch_bound")
def lone_amphora(s):
    """Two processes mesh scans of sherds some batches ahead; a message queue has orders, and batches by number as the
    kind. A thread syncs the log without pause and is innocent; to blame are the few scans of whole vessels."""
    ms, every, ahead = s.ms("gpu_ms", 8, 22), s.int("every", 7, 10), s.int("ahead", 3, 4)
    cost, amphora = ms * s.ms("load_share", 0.1, 0.4), ms * s.ms("amphora_steps", 10, 14)
    ring = np.frombuffer(multiprocessing.RawArray("f", ahead * 20000), np.float32).reshape(ahead, -1)
    gpu, letters, numbers = s.gpu(ms), Letters(), itertools.count()
    for _ in range(2):
        child(mend, letters, ring, every, cost, cost if s.fix else amphora)
    for n in range(ahead):
        letters.send(ORDER, n)

    def log():
        with open(s.path("finds.log"), "w", encoding="ascii") as out:
            while True:
                out.write("%f loss %f\n" % (time.time(), gpu.loss.value))
                out.flush()
                os.fsync(out.fileno())
                time.sleep(0.001)

    def obtain():
        n = next(numbers)
        letters.take(READY + n)
        x = ring[n % ahead].copy()
        letters.send(ORDER, n + ahead)
        return x
    threading.Thread(target=log, daemon=True).start()
    s.loop(gpu, obtain)


def prepare(link, prepared):
    while True:
        prepared()
        link.send(np.zeros(20000, np.float32))


def shelve(link, shelf):
    while True:
        shelf.put(link.recv())


@job(data="slow_worker", rest="sync_bound launch_bound")
def weighed_lumps(s):
    """Three processes by turns, each with a thread of the trainer that receives ahead; one waits for the disk most of
    the time and is innocent; to blame is the one whose manifest asks for SHA-256 sums of all that it reads."""
    ms, first, block = s.ms("gpu_ms", 10, 35), s.int("first", 0, 2), os.urandom(256 << 10)
    gpu, path, turn_ms = s.gpu(ms), s.data_file("weighed_lumps", 64), 3 * ms
    sums = turn_ms * s.ms("sum_share", 1.5, 2.6) / 1e3 / took(lambda: hashlib.sha256(block).digest())
    sums = s.keep("sums", max(round(sums), 1))
    reads = s.keep("reads", min(max(int(turn_ms * s.ms("read_share", 0.35, 0.6) / page_ms(s, path)), 4), 4000))
    cost, fd, chance, shelves = turn_ms * s.ms("load_share", 0.1, 0.3), scattered(path), random.Random(1), []

    def plain():
        decode(cost)

    def verified():
        for _ in range(sums):
            hashlib.sha256(block).digest()

    def from_disk():
        pages(fd, [PAGE * chance.randrange(64 * MIB // PAGE) for _ in range(reads)])
        forget(fd)
    kinds = [plain if s.fix else verified, from_disk, plain]
    for n in range(3):
        mine, theirs = multiprocessing.Pipe(duplex=False)
        pid = child(prepare, theirs, kinds[(first + n) % 3]).pid
        if (first + n) % 3 == 0:
            s.supplier(pid)
        shelves.append((mine, queue.Queue(2)))
    for shelf in shelves:
        threading.Thread(target=shelve, args=shelf, daemon=True).start()
    turn = itertools.cycle([shelf for _, shelf in shelves])
    s.loop(gpu, lambda: next(turn).get())


class Shelf:
    """Groups of pages for several threads: whoever asks for one first reads it, and the others wait for that."""

    def __init__(self, fd, groups):
        self.fd, self.groups, self.guard, self.reads = fd, groups, threading.Lock(), {}

    def group(self, n):
        with self.guard:
            mine = n not in self.reads
            read = self.reads.setdefault(n, concurrent.futures.Future())
        if mine:
            read.set_result(pages(self.fd, self.groups[n]))
        return read.result()

    def column(self, place):
        return np.concatenate([np.frombuffer(self.group(n), np.uint8)[place::64] for n in range(len(self.groups))])


def stack(out, path, many, warm):
    """Three threads cut a column each out of the same groups, which are scattered over the file."""
    fd, chance, count = scattered(path), random.Random(1), os.path.getsize(path) // PAGE
    while warm and os.read(fd, MIB):
        pass
    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        while True:
            shelf = Shelf(fd, [[PAGE * chance.randrange(count) for _ in range(16)] for _ in range(many)])
            out.put(np.concatenate(list(pool.map(shelf.column, range(3)))))
            if not warm:
                forget(fd)


@job(data="io_bound", rest="sync_bound launch_bound")
def damp_cellar(s):
    """Threads of a process need the same groups of pages; who asks first reads one, and the others wait for that, so
    that most wait for another thread; these waits are innocent, and to blame is the disk, as no page is cached."""
    ms, share, path = s.ms("gpu_ms", 8, 22), s.ms("read_share", 1.6, 3), s.data_file("damp_cellar", 64)
    many = s.keep("groups", min(max(int(ms * share / 16 / page_ms(s, path)), 2), 250))
    gpu, out = s.gpu(ms), multiprocessing.Queue(maxsize=3)
    s.supplier(child(stack, out, path, many, s.fix).pid)
    s.loop(gpu, out.get)


SIDE, SLICES, ROOM = 160, 16, 64


def far_archive(s):
    """A hospital's archive, which is asked for slices by the dozen, and answers after a while."""
    late, door = float(s.told("late")) / 1e3, socket.create_server(("127.0.0.1", 0))
    s.tell("port", door.getsockname()[1])
    link, _ = door.accept()
    while link.recv(1):
        time.sleep(late)
        link.sendall(bytes(SLICES * SIDE * SIDE * 8))


def rebuilt(echoes, maps, coils):
    """A picture of what all coils have measured: the root of the sum of squares."""
    total = np.zeros((SIDE, SIDE))
    for coil in range(coils):
        image = np.fft.ifft2(echoes * maps[coil % len(maps)])
        total += image.real ** 2 + image.imag ** 2
    return np.sqrt(total)


def scan(port, maps, coils, ring, free, full):
    """A thread keeps a large shuffle buffer full, from which slices are drawn and rebuilt."""
    buffer, change, chance = [], threading.Condition(), random.Random(1)
    link = socket.create_connection(("127.0.0.1", port))

    def fetch():
        while True:
            link.sendall(b"n")
            body = bytearray(SLICES * SIDE * SIDE * 8)
            fill(memoryview(body), link.recv_into)
            with change:
                change.wait_for(lambda: len(buffer) + SLICES <= ROOM)
                buffer.extend(np.frombuffer(body, np.complex64).reshape(SLICES, SIDE, SIDE))
                change.notify_all()
    threading.Thread(target=fetch, daemon=True).start()
    for picture in itertools.cycle(ring):
        with change:
            change.wait_for(lambda: buffer)
            echoes = buffer.pop(chance.randrange(len(buffer)))
            change.notify_all()
        image = rebuilt(echoes, maps, coils)
        free.acquire()
        picture[:] = image
        full.release()


@job(outside=far_archive, data=CPU, rest="sync_bound launch_bound")
def heavy_glaze(s):
    """Magnetic resonance: a thread of a process waits long for a far archive, but a large shuffle buffer is full all
    the time; to blame is the process's own work, a Fourier transform in numpy for each coil of a slice."""
    ms, share, places = s.ms("gpu_ms", 10, 35), s.ms("rebuild_share", 1.6, 3), s.int("places", 2, 4)
    s.tell("late", ms * SLICES * s.ms("late_share", 0.25, 0.5))
    maps = np.random.default_rng(1).standard_normal((8, SIDE, SIDE)).astype(np.complex64)
    each = took(lambda: rebuilt(maps[0], maps, 16)) * 1e3 / 16
    coils = s.keep("coils", max(round(ms * share / each), 8))
    ring = np.frombuffer(multiprocessing.RawArray("f", places * SIDE * SIDE), np.float32).reshape(places, SIDE, SIDE)
    free, full, turn = multiprocessing.Semaphore(places), multiprocessing.Semaphore(0), itertools.cycle(ring)
    gpu, port = s.gpu(ms), int(s.told("port"))
    s.supplier(child(scan, port, maps, coils // 8 if s.fix else coils, ring, free, full).pid)

    def obtain():
        full.acquire()
        x = next(turn).copy()
        free.release()
        return x
    s.loop(gpu, obtain)


SIZE = struct.Struct("<Q")


def sketch(fd, cost, most):
    """A program for people at a terminal: it is told how much to draw, and has drawings ready."""
    drawings, ask = queue.Queue(3), bytearray(SIZE.size)

    def draw():
        paper = memoryview(bytes(most))
        while True:
            decode(cost)
            drawings.put(paper)
    threading.Thread(target=draw, daemon=True).start()
    while True:
        fill(memoryview(ask), lambda view: os.readv(fd, [view]))
        rest = drawings.get()[:SIZE.unpack(ask)[0]]
        while rest:
            rest = rest[os.write(fd, rest):]


@job(data="ipc_bound", rest="sync_bound launch_bound")
def speaking_hatch(s):
    """A simulator made for a terminal is driven through a pty, as by pexpect, and asked one batch ahead; its thread
    that draws works hard but is in time, and to blame is the pty, in whose small buffer a batch goes by kilobytes."""
    ms, share, most = s.ms("gpu_ms", 10, 25), s.ms("hand_over_share", 0.8, 1.8), 32 * MIB
    cost, gpu, (fd, end) = ms * s.ms("draw_share", 0.2, 0.45), s.gpu(ms), os.openpty()
    tty.setraw(end)
    child(sketch, end, cost, most)

    def ask(size):
        os.write(fd, SIZE.pack(size))

    def take(into):
        fill(memoryview(into), lambda view: os.readv(fd, [view]))
    some = np.empty(MIB, np.uint8)
    each = took(lambda: (ask(MIB), take(some))) * 1e3 / MIB
    x = np.empty(s.keep("bytes", min(max(int(ms * share / each), 64 << 10), most)), np.uint8)
    if s.fix:
        mine, theirs = socket.socketpair()
        child(sketch, theirs.fileno(), cost, most)
        fd = mine.fileno()

    def obtain():
        take(x)
        ask(x.nbytes)
        return x
    ask(x.nbytes)
    s.loop(gpu, obtain)


def as_of(times, values, asked):
    """For each moment that is asked for, the last values before it."""
    return values[np.searchsorted(times, asked, side="right") - 1]


@job(data="main_thread_loading", rest="sync_bound launch_bound")
def painted_borders(s):
    """Fraud: a busy process sends events in time, which a thread of the trainer takes in, asleep most of the time; both
    are innocent, and to blame is the loop, which joins each event to its account's values as of then, in numpy."""
    ms, share, chance = s.ms("gpu_ms", 10, 35), s.ms("join_share", 0.6, 2), np.random.default_rng(1)
    times, values = np.sort(chance.random(MIB)), np.ones((MIB, 8), np.float32)
    gpu, some, shelf = s.gpu(ms), chance.random(20000), queue.Queue(4)
    each = took(lambda: as_of(times, values, some)) * 1e3 / len(some)
    events = s.keep("events", min(max(int(ms * share / each), 500), 500000))
    link = sent(ms * s.ms("load_share", 0.4, 0.7), chance.random(events))

    def carry():
        while True:
            if shelf.full() or not link.poll():
                time.sleep(0.002)
            else:
                shelf.put(link.recv())

    def obtain():
        asked = shelf.get()
        return values[:events] if s.fix else as_of(times, values, asked)  # the join may be made once, beforehand
    threading.Thread(target=carry, daemon=True).start()
    s.loop(gpu, obtain)


# ---- not for data


def cracks(rows, width):
    """How many cracks there are: what touches is one, as union-find has it."""
    parent = {}

    def root(place):
        while parent[place] != place:
            parent[place] = place = parent[parent[place]]
        return place
    for y, x in np.argwhere(rows).tolist():
        place = y * (width + 1) + x
        parent[place] = place
        for neighbour in (place - 1, place - width - 1):
            if neighbour in parent:
                parent[root(place)] = root(neighbour)
    return sum(place == above for place, above in parent.items())


def keep(word, state, path, cost):
    """Packs and writes the state when it is told to; nobody waits for it."""
    while True:
        word.recv()
        decode(cost)
        with open(path + ".part", "wb") as f:
            f.write(state)
            f.flush()
            os.fsync(f.fileno())
        os.rename(path + ".part", path)


@job(data=CPU, host="host_bound", rest="sync_bound launch_bound")
def crazed_glaze(s):
    """Faults in glaze: a busy process sends batches in time, another packs and syncs checkpoints, and nobody waits for
    these; to blame is the loop, which after each step counts the cracks in the masks, pixel by pixel in Python."""
    ms, share, every, width = s.ms("gpu_ms", 10, 35), s.ms("count_share", 0.6, 2), s.int("every", 2, 5), 64
    gpu, found = s.gpu(ms), np.random.default_rng(1).random((4000, width)) < 0.3
    rows = int(ms * share / 1e3 / (took(lambda: cracks(found[:200], width)) / 200))
    masks = found[:s.keep("rows", min(max(rows, 16), len(found)))]
    state = np.frombuffer(multiprocessing.RawArray("f", MIB // 4), np.float32)
    down, (word, told) = np.empty_like(masks), multiprocessing.Pipe(duplex=False)
    child(keep, word, state, s.path("state.bin"), ms * every * s.ms("pack_share", 0.2, 0.4))
    link = sent(ms * s.ms("load_share", 0.4, 0.65), np.zeros(20000, np.float32))
    s.go()
    for n in itertools.count(1):
        s.step(gpu, link.recv)
        gpu.check(gpu.lib.cudaMemcpy(down.ctypes.data, gpu.input, down.nbytes, D2H))
        if not s.fix:
            with s.during("host"):
                cracks(masks, width)
        if n % every == 0:
            gpu.check(gpu.lib.cudaMemcpy(state.ctypes.data, gpu.input, state.nbytes, D2H))
            told.send(n)


HEADER = struct.Struct("<BHI")
PUBLISH, PUBACK, PINGREQ, PINGRESP = 3, 4, 12, 13


def packet(link, guard, kind, number=0, body=b""):
    with guard:
        link.sendall(HEADER.pack(kind, number, len(body)) + body)


def packets(link):
    """What comes over a connection, as by MQTT, with simpler headers."""
    with link.makefile("rb") as stream:
        while header := stream.read(HEADER.size):
            kind, number, size = HEADER.unpack(header)
            yield kind, number, stream.read(size)


def kilns(s):
    """A broker, which passes on what kilns publish; only so much of it may be unanswered."""
    rate, door = float(s.told("rate")), socket.create_server(("127.0.0.1", 0))
    s.tell("port", door.getsockname()[1])
    link, guard, room = door.accept()[0], threading.Lock(), threading.Semaphore(20)

    def answers():
        for kind, _, _ in packets(link):
            if kind == PINGREQ:
                packet(link, guard, PINGRESP)
            else:
                room.release()
    threading.Thread(target=answers, daemon=True).start()
    s.told("go")
    for n in itertools.count():
        time.sleep(s.random.expovariate(rate))
        room.acquire()
        packet(link, guard, PUBLISH, n % 65536, bytes(80000))


@job(outside=kilns, demand="no_demand", host="host_bound", rest="sync_bound launch_bound")
def quiet_kiln(s):
    """A service subscribes to kilns at a broker, as by MQTT; a thread pings it all the time, another syncs each result
    to a log, a niced report takes a core, and all are innocent; nobody is to blame that kilns seldom publish."""
    ms, load = s.ms("gpu_ms", 10, 40), s.ms("load", 0.35, 0.6)
    s.tell("rate", load * 1e3 / ms * (8 if s.fix else 1))
    gpu, calls, results, guard = s.gpu(ms), queue.SimpleQueue(), queue.SimpleQueue(), threading.Lock()
    child(recount)
    link = socket.create_connection(("127.0.0.1", int(s.told("port"))))
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def receive():
        for kind, number, body in packets(link):
            if kind == PUBLISH:
                calls.put((number, np.frombuffer(body, np.float32)))

    def ping():
        while True:
            packet(link, guard, PINGREQ)
            time.sleep(0.02)

    def log():
        with open(s.path("results.log"), "w", encoding="ascii") as out:
            while True:
                out.write("%d %f\n" % results.get())
                out.flush()
                os.fsync(out.fileno())
    for f in (receive, ping, log):
        threading.Thread(target=f, daemon=True).start()
    s.go()
    while True:
        with s.during("demand"):
            number, x = calls.get()
        s.mark()
        s.train(gpu, x)
        with s.during("host"):
            results.put((number, gpu.loss.value))
            packet(link, guard, PUBACK, number)
