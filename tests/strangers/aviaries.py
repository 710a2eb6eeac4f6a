# SPDX-License-Identifier: BSD-2-Clause
"""Aviaries: science and engineering on a GPU, with the processes that such teams keep around it."""
import ctypes
import fcntl
import gzip
import itertools
import math
import mmap
import multiprocessing
import os
import queue
import random
import select
import selectors
import signal
import socket
import struct
import subprocess
import threading
import time
import zlib

import numpy as np

from stranger import CPU, child, decode, job, mortal, parse

PAGE, MIB = 4096, 1 << 20


def took(f):
    """Seconds that f takes once it is warm."""
    f()
    begin = time.monotonic()
    f()
    return time.monotonic() - begin


def shell(script, *words, name="sh"):
    """A script of a shell whose output is a pipe of ours; it dies with the job."""
    parent = os.getpid()
    return subprocess.Popen([name, "-c", script, *words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                            preexec_fn=lambda: mortal(parent))


def cast(link, cost):
    while True:
        decode(cost)
        link.send_bytes(bytes(80000))


def kept_up(s, ms):
    """A process that is ahead by as much as a pipe holds."""
    mine, theirs = multiprocessing.Pipe(duplex=False)
    child(cast, theirs, ms * s.ms("load_share", 0.1, 0.4))
    return lambda: np.frombuffer(mine.recv_bytes(), np.uint8)


# ---- the data is late


def alignments(path, many):
    """Reads of a genome as lines of a fixed width, in the order in which they were sequenced."""
    chance = random.Random(1)
    with open(path, "w", encoding="ascii") as f:
        f.writelines("read%08d chr%02d %09d ok\n" % (n, chance.randrange(23), chance.randrange(10**9))
                     for n in range(many))
    return os.path.getsize(path) // many


@job(data=CPU, rest="sync_bound launch_bound")
def moulting_reads(s):
    """Reads of a genome come through a shell's pipe, region by region; to blame is the `sort` in there, which gives
    nothing before it has a whole region, and then all of its batches at once."""
    ms, share, batches = s.ms("gpu_ms", 8, 25), s.ms("sort_share", 1.6, 3), s.int("batches", 2, 5)
    gpu, path, script = s.gpu(ms), s.path("region"), "LC_ALL=C sort --parallel=1 -k2,2 -k3,3n \"$0\""
    width = alignments(path, 40000)
    each = took(lambda: shell(script, path).communicate()) / 40000
    many = s.keep("reads", max(int(ms * share / 1e3 / each) // (6 if s.fix else 1), 64))
    alignments(path, many * batches)
    stream, x = shell("while :; do %s; done" % script, path).stdout, np.zeros(many * width, np.uint8)

    def obtain():
        stream.readinto(x)
        return x
    s.loop(gpu, obtain)


BOOK = 1 << 15  # its levels; the word before them counts changes, and is odd during one


def feed(book, mean):
    """Changes the book whenever the exchange does."""
    chance = random.Random(1)
    for n in itertools.count():
        time.sleep(chance.expovariate(1e3 / mean))
        book[0] += 1
        book[1 + n % BOOK] = n
        book[0] += 1


def features(link, book, cost, copied):
    """Works on a state of the book that no change has touched, as a sequence lock tells."""
    while True:
        before = int(book[0])
        levels = book[1:]
        if copied:
            levels = levels.copy()
        else:
            decode(cost)
        if before % 2 or before != book[0]:
            continue
        if copied:
            decode(cost)
        link.send_bytes(np.resize(levels, 10000).tobytes())


@job(data=CPU, rest="sync_bound launch_bound")
def starling_book(s):
    """Trading: a feed handler keeps an order book in shared memory under a sequence lock; to blame is the process that
    works out features from the live book instead of a copy, and starts again whenever it has changed meanwhile."""
    ms, tries = s.ms("gpu_ms", 8, 30), s.ms("tries", 3, 6)
    cost = ms * s.ms("feature_share", 1.6, 2.6) / tries
    book = np.frombuffer(mmap.mmap(-1, 8 * (BOOK + 1)), np.int64)
    mine, theirs = multiprocessing.Pipe(duplex=False)
    gpu = s.gpu(ms)
    child(feed, book, cost / math.log(tries))
    s.supplier(child(features, theirs, book, cost / 3 if s.fix else cost, s.fix).pid)
    s.loop(gpu, lambda: np.frombuffer(mine.recv_bytes(), np.int64))


def scheduler(s):
    """Looks at its queue once in a while; what it finds runs elsewhere, soon, and leaves a file."""
    door, waiting, readers = socket.create_server(("127.0.0.1", 0)), [], selectors.DefaultSelector()
    readers.register(door, selectors.EVENT_READ)
    s.tell("port", door.getsockname()[1])
    period = float(s.told("period")) / 1e3
    cycle = time.monotonic() + period
    while True:
        for key, _ in readers.select(max(cycle - time.monotonic(), 0)):
            if key.fileobj is door:
                readers.register(door.accept()[0], selectors.EVENT_READ)
            elif line := key.fileobj.recv(100):
                waiting.append((key.fileobj, line.decode().split()[1]))
            else:
                readers.unregister(key.fileobj)
        if time.monotonic() >= cycle:
            cycle = time.monotonic() + period
            for link, path in waiting:
                np.ones(20000, np.float32).tofile(path)
                link.sendall(b"COMPLETED\n")
            waiting.clear()


@job(outside=scheduler, data="network_bound too_few_workers", rest="sync_bound launch_bound")
def roosting_queue(s):
    """Finite elements: a surrogate learns from solver runs that threads submit to a cluster's scheduler; a run is
    short and leaves its field in a file, and to blame is the scheduler, which starts runs only once in each cycle."""
    ms, threads, share = s.ms("gpu_ms", 10, 35), s.int("threads", 1, 3), s.ms("cycle_share", 1.5, 2.8)
    gpu, out, port = s.gpu(ms), queue.Queue(2), int(s.told("port"))
    s.tell("period", ms * share * threads / (6 if s.fix else 1))

    def submit(n):
        path = s.path("field-%d" % n)
        with socket.create_connection(("127.0.0.1", port)) as link:
            while True:
                link.sendall(b"sbatch %s\n" % path.encode())
                link.recv(100)
                out.put(np.fromfile(path, np.float32))
    for n in range(threads):
        threading.Thread(target=submit, args=(n,), daemon=True).start()
    s.loop(gpu, out.get)


def states(fd, blocks):
    """A model's states from the last one to the first, again and again; memory keeps none of them."""
    last = os.path.getsize(fd) // PAGE
    for back in itertools.count(1):
        place = -back % last * PAGE
        yield zlib.crc32(os.pread(fd, PAGE, place))
        if back % blocks == 0:
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)


def adjoint(link, path, many):
    fd = os.open(path, os.O_RDONLY)
    sums = states(fd, many)
    while True:
        link.send(np.fromiter(itertools.islice(sums, many), np.uint32, many).tobytes().ljust(64 << 10, b"\0"))


@job(data="io_bound", rest="sync_bound launch_bound")
def backward_hummingbird(s):
    """Weather, with an adjoint model: a process reads a run's states from a file that memory does not keep, and hands
    them on as packets; to blame is its way, from the last state to the first, for which no disk reads ahead."""
    ms, share = s.ms("gpu_ms", 8, 25), s.ms("read_share", 1.7, 3)
    gpu, path = s.gpu(ms), s.data_file("backward_hummingbird", 64)
    some = states(os.open(path, os.O_RDONLY), 400)
    each = took(lambda: sum(itertools.islice(some, 400))) / 400
    many = s.keep("states", min(max(int(ms * share / 1e3 / each) // (6 if s.fix else 1), 8), 4000))
    s.cold(path)
    mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    s.supplier(child(adjoint, theirs, path, many).pid)
    s.loop(gpu, lambda: np.frombuffer(mine.recv(64 << 10), np.uint8))


def bases(path, members):
    """A packed reference, of members with 256 KiB each."""
    plain = np.random.default_rng(1).choice(np.frombuffer(b"ACGT", np.uint8), 256 << 10).tobytes()
    with open(path, "wb") as f:
        f.write(gzip.compress(plain, 1) * members)


@job(data="lock_bound", rest="sync_bound launch_bound")
def shared_nestbox(s):
    """Genomics by shell scripts: two or three unpack regions of a reference, each into a pipe, and the loop reads from
    any that has one; to blame is their `flock` around this, from when the tool had a scratch file."""
    ms, share, shells = s.ms("gpu_ms", 10, 35), s.ms("unpack_share", 1.4, 2.4), s.int("shells", 2, 3)
    gpu, path, size = s.gpu(ms), s.path("reference.gz"), 32 << 10
    script = "gzip -dc \"$0\" | tail -c %d" % size
    bases(path, 64)
    each = took(lambda: shell(script, path).communicate()) / 64
    bases(path, s.keep("members", max(int(ms * share / 1e3 / each) // (6 if s.fix else 1), 1)))
    if not s.fix:
        script = "flock \"$0.lock\" sh -c '%s' \"$0\"" % script
    ends = [shell("while :; do %s; done" % script, path).stdout for _ in range(shells)]
    x = np.zeros(size, np.uint8)

    def obtain():
        end, part = select.select(ends, [], [])[0][0], memoryview(x)
        while part:
            part = part[os.readv(end.fileno(), [part]):]
        return x
    s.loop(gpu, obtain)


# ---- not for data


def refined(cells, marked):
    """Splits the marked triangles at the midpoints of their edges, which neighbours share."""
    edges = np.sort(cells[:, [0, 1, 1, 2, 2, 0]].reshape(-1, 2), axis=1)
    known, midpoint = np.unique(edges, axis=0, return_inverse=True)
    middle = midpoint.reshape(-1, 3) + cells.max() + 1
    split = np.column_stack([cells[marked, 0], middle[marked, 0], middle[marked, 2]])
    return np.concatenate([cells[~marked], split]), len(known)


@job(data=CPU, host="host_bound", rest="sync_bound launch_bound")
def branching_perches(s):
    """A solver for finite elements with a learned part, whose loads come in time; to blame is the loop, which refines
    the mesh where the last error was large, and for that sorts all edges anew, in numpy."""
    ms, share, every = s.ms("gpu_ms", 8, 30), s.ms("refine_share", 0.45, 1.4), s.int("every", 1, 3)
    gpu, batch, chance = s.gpu(ms), kept_up(s, ms), np.random.default_rng(1)

    def mesh(size):
        return chance.integers(0, size, (size, 3)), chance.random(size) < 0.2
    each = took(lambda: refined(*mesh(3000))) / 3000
    cells, marked = mesh(s.keep("cells", max(int(ms * every * share / 1e3 / each), 30)))
    s.go()
    for n in itertools.count(1):
        s.step(gpu, batch)
        if n % every == 0 and not s.fix:
            with s.during("host"):
                refined(cells, marked)


@job(rest="sync_bound launch_bound host_bound")
def rejected_eggs(s):
    """Chemical kinetics as a neural ODE, with all states on the device; to blame is its solver with adaptive steps:
    Python puts six stages together by a tableau, reads the error, chooses the next step, and does some anew."""
    stage_us, controller = s.ms("stage_us", 60, 400), s.ms("controller_share", 1.2, 2.6)
    gpu, chance = s.gpu(20 * stage_us / 1e3, launches=80), random.Random(s.drawn["stage_us"])
    between, start = stage_us / 1e3 * controller, np.zeros(2000, np.float32)

    def attempted(size):
        for _ in range(6):
            gpu.launch(0, 4)
            parse(between / (6 if s.fix else 1))
        gpu.loss_item()  # the error
        return chance.random() > size
    s.go()
    while True:
        s.mark()
        gpu.upload(start.ctypes.data, start.nbytes)
        done, size = 0.0, 0.3
        while done < 1:
            s.mark("micro")
            if attempted(size):
                done, size = done + size, min(size * 1.5, 0.5)
            else:
                size *= 0.5
        gpu.backward()
        gpu.optimizer()
        gpu.loss_item()


@job(host="host_bound rank_straggler", peer="rank_straggler host_bound", rest="sync_bound launch_bound")
def uneven_wings(s):
    """Flow around a wing, two domains on two devices; after each step they swap their halo in shared memory, told by
    semaphores; to blame is the partition: one domain has most of the cells whose wall model runs on the host."""
    ms, share, small = s.ms("gpu_ms", 8, 30), s.ms("wall_share", 0.6, 1.6), s.ms("small_part", 0.05, 0.25)
    launches, large, parent = s.int("launches", 10, 80), s.int("large", 0, 1), os.getpid()
    halos = np.frombuffer(mmap.mmap(-1, 8 * 20000), np.float32).reshape(2, 2, -1)
    there = [multiprocessing.Semaphore(0), multiprocessing.Semaphore(0)]
    for rank in range(2):
        if os.fork():
            continue
        mortal(parent, signal.SIGTERM)
        s.rank(rank)
        gpu, field = s.gpu(ms, launches=launches), np.zeros((8, 50000), np.float32)
        wall = ms * share * (small if rank != large or s.fix else 1)
        s.told("go")
        for n in itertools.count():
            s.step(gpu, lambda: field[n % 8])
            with s.during("host"):
                decode(wall)
                halos[n % 2, rank] = n
            there[rank].release()
            with s.during("peer"):
                there[1 - rank].acquire()
            field[n % 8, :10000] = halos[n % 2, 1 - rank]
    s.go()
    signal.pause()


class Letters:
    """A POSIX message queue."""
    lib, size = ctypes.CDLL(None, use_errno=True), 4096

    def __init__(self, name):
        self.name, shape = name.encode(), (ctypes.c_long * 8)(0, 8, self.size)
        self.end = self.lib.mq_open(self.name, os.O_RDWR | os.O_CREAT, 0o600, shape)
        if self.end < 0:
            raise OSError(ctypes.get_errno(), "mq_open")
        self.place = ctypes.create_string_buffer(self.size)

    def put(self, letter):
        while self.lib.mq_send(self.end, letter, ctypes.c_size_t(len(letter)), 0) < 0:
            pass

    def get(self):
        while (size := self.lib.mq_receive(self.end, self.place, ctypes.c_size_t(self.size), None)) < 0:
            pass
        return self.place.raw[:size]

    def unlink(self):
        """No one else finds it from here on, and it goes with the last who has it."""
        self.lib.mq_unlink(self.name)


def desk(s):
    """Traders, who ask for a price now and then, and mostly for a few on end."""
    rate, name = s.ms("rate", 1.5, 5), s.told("open")
    questions, answers = Letters(name + "-q"), Letters(name + "-a")
    s.tell("opened", "")
    s.told("go")
    while True:
        time.sleep(s.random.expovariate(rate))
        for _ in range(s.random.randint(1, 3)):
            questions.put(struct.pack("<5d", *(s.random.random() for _ in range(5))))
            answers.get()


@job(outside=desk, demand="no_demand", host="host_bound", rest="sync_bound launch_bound")
def silent_parrot(s):
    """Option prices by simulated paths: a gateway of old puts questions into a POSIX message queue, and takes answers
    from another; nobody is to blame that the desk has few questions."""
    gpu, passes, name = s.gpu(s.ms("gpu_ms", 8, 25)), s.int("passes", 1, 4), "/parrot-%d" % os.getpid()
    questions, answers, grid = Letters(name + "-q"), Letters(name + "-a"), np.linspace(-3, 3, 20000)
    s.tell("open", name)
    s.told("opened")
    questions.unlink()
    answers.unlink()
    s.go()
    while True:
        with s.during("demand"):
            asked = questions.get()
        with s.during("host"):
            spot, strike, rate, sigma, years = struct.unpack("<5d", asked)
            x = (spot * np.exp(rate * years + sigma * grid) - strike).astype(np.float32)
        for _ in range(passes):
            s.mark()
            s.train(gpu, x)
        answers.put(struct.pack("<d", gpu.loss.value))


# ---- nothing is wrong


def beam(ring, free, full, burst, period, cost):
    """Fills places as long as a spill lasts; what finds none is lost."""
    turn, begin = 0, time.monotonic()
    while True:
        for _ in range(burst):
            decode(cost)
            if free.acquire(block=False):
                ring[turn % len(ring)] = turn
                turn += 1
                full.release()
        begin += period
        time.sleep(max(begin - time.monotonic(), 0))


@job(data=CPU, rest="sync_bound launch_bound")
def feeding_hours(s):
    """Nothing is to blame: an accelerator's beam comes in spills with long pauses between, in which the process that
    fills the ring sleeps, and in a spill it drops events; but the ring holds more than a pause's batches."""
    ms, burst = s.ms("gpu_ms", 10, 35), s.int("burst", 5, 12)
    cost, period = ms * s.ms("event_share", 0.1, 0.3), ms / 1e3 * burst * s.ms("period_share", 0.55, 0.75)
    ring = np.frombuffer(mmap.mmap(-1, 2 * burst * 40000), np.uint8).reshape(2 * burst, -1)
    free, full, turn = multiprocessing.Semaphore(2 * burst), multiprocessing.Semaphore(0), itertools.cycle(ring)
    gpu = s.gpu(ms)
    child(beam, ring, free, full, burst, period, cost)

    def obtain():
        full.acquire()
        x = next(turn).copy()
        free.release()
        return x
    s.loop(gpu, obtain)


DATAGRAM, WINDOW = 1024, 512


def antennas(s):
    """Samples of many antennas, in volleys that no socket's buffer has room for."""
    port, volley = int(s.told("port")), s.int("volley", 40, 120)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as out:
        for n in itertools.count():
            for part in range(volley):
                out.sendto(struct.pack("<II", n, part).ljust(DATAGRAM, b"s"), ("127.0.0.1", port))
            time.sleep(0.005)


def receiver(door, ring, reached):
    """Writes what comes over the oldest, whoever reads."""
    while True:
        door.recv_into(ring[reached.value % WINDOW])
        reached.value += 1


@job(outside=antennas, data="network_bound main_thread_loading", rest="sync_bound launch_bound")
def lost_feathers(s):
    """Nothing is to blame: interference in an array's stream is learnt online; many datagrams are lost, others are
    written over before anybody looks, but each step takes the newest window out of shared memory and waits for none."""
    gpu, many = s.gpu(s.ms("gpu_ms", 10, 40)), s.int("window", 60, 200)
    ring, reached = np.frombuffer(mmap.mmap(-1, WINDOW * DATAGRAM), np.uint8), multiprocessing.RawValue("q", 0)
    ring = ring.reshape(WINDOW, DATAGRAM)
    door = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    door.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 32 << 10)
    door.bind(("127.0.0.1", 0))
    s.tell("port", door.getsockname()[1])
    child(receiver, door, ring, reached)
    s.loop(gpu, lambda: ring[np.arange(reached.value - many, reached.value) % WINDOW])


@job(data=CPU, rest="sync_bound launch_bound")
def two_beaks(s):
    """Nothing is to blame: a microscope's stacks come through `tee`, which also feeds a checksum program, so that the
    pipe is as slow as the sums; but they take less time than the device, and a thread reads ahead."""
    ms, share, path = s.ms("gpu_ms", 12, 40), s.ms("sum_share", 0.2, 0.45), s.path("stacks")
    gpu, out = s.gpu(ms), queue.Queue(3)
    np.random.default_rng(1).integers(0, 256, 8 * MIB, np.uint8).tofile(path)
    each = took(lambda: shell("sha256sum \"$0\"", path).communicate()) / (8 * MIB)
    size = s.keep("bytes", min(max(int(ms * share / 1e3 / each), PAGE), 16 * MIB))
    stream = shell("while :; do cat \"$0\"; done | tee >(sha256sum > /dev/null)", path, name="bash").stdout
    fcntl.fcntl(stream, fcntl.F_SETPIPE_SZ, MIB)

    def read():
        while True:
            x = np.empty(size, np.uint8)
            stream.readinto(x)
            out.put(x)
    threading.Thread(target=read, daemon=True).start()
    s.loop(gpu, out.get)


## Theme
# moulting_reads: cpu_bound or its kin (sort computes); hard: a new process for each burst, whose batches come at once.
# starling_book: cpu_bound or its kin (work done anew); hard: no lock is seen, as a sequence lock makes no system call.
# roosting_queue: network_bound; hard: the scheduler idles as well, it answers only when its cycle is over.
# backward_hummingbird: io_bound; hard: reads are as regular as can be, and each is still a trip to the disk.
# shared_nestbox: lock_bound; hard: the lock's holders and waiters are programs that live for one batch, below shells.
# branching_perches: host_bound; hard: only numpy sorts, with pauses of several steps, and a pipe is waited for as well.
# rejected_eggs: sync_bound or launch_bound; hard: a step has a varying number of reads, and none of them is its end.
# uneven_wings: rank_straggler; hard: ranks meet by semaphores in anonymous memory, as a loader's ring would.
# silent_parrot: no_demand; hard: requests come by mq_receive, not by a socket.
# feeding_hours: balanced; hard: the maker sleeps most of the time, and drops what finds no room.
# lost_feathers: balanced; hard: a busy receiver and lost datagrams look like a network that is too slow.
# two_beaks: balanced; hard: the pipe's writer waits most of the time, and programs compute behind it.
