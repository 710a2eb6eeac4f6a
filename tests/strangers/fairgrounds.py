# SPDX-License-Identifier: BSD-2-Clause
"""On fairgrounds: how the libraries that people train with feed them, each made again in small."""
import concurrent.futures
import ctypes
import functools
import heapq
import itertools
import json
import mmap
import multiprocessing
import os
import queue
import random
import socket
import struct
import subprocess
import sys
import threading
import time
import zlib

import numpy as np

from stranger import child, decode, job, mortal

PAGE, MIB, RECORD = 4096, 1 << 20, 1024
LIBC = ctypes.CDLL(None)


def once(f):
    """Seconds that f takes."""
    begin = time.monotonic()
    f()
    return time.monotonic() - begin


def took(f):
    """The same, once it is warm."""
    f()
    return once(f)


def start(*functions):
    for f in functions:
        threading.Thread(target=f, daemon=True).start()


# ---- the data is late


@job(data="page_fault_io", rest="sync_bound launch_bound")
def ghost_train(s):
    """As FFCV with os_cache: an iterator's thread has compiled code in a thread or two copy samples from a mapped file
    into banks of memory; to blame are the pages, as the order is random and memory keeps nothing of the file."""
    ms, threads, share = s.ms("gpu_ms", 8, 25), s.int("threads", 1, 2), s.ms("read_share", 1.7, 3)
    path, chance, out = s.data_file("ghost_train", 64), random.Random(1), queue.Queue(3)
    f, pool, gpu = open(path, "rb"), concurrent.futures.ThreadPoolExecutor(threads), s.gpu(ms)
    beton = mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ)
    beton.madvise(mmap.MADV_RANDOM)
    view = np.frombuffer(beton, np.uint8)
    first, pages = view.ctypes.data, len(view) // PAGE

    def gather(bank, places):
        to = bank.ctypes.data
        for n, place in enumerate(places):
            ctypes.memmove(to + n * PAGE, first + place * PAGE, PAGE)

    def ride(bank):
        list(pool.map(gather, bank, [chance.choices(range(pages), k=len(part)) for part in bank]))

    def forget():
        beton.madvise(mmap.MADV_DONTNEED)
        os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    trial = np.zeros((threads, 300, PAGE), np.uint8)
    each = once(lambda: ride(trial)) / 300
    many = s.keep("samples", min(max(int(ms * share / 1e3 / each), 16), 2000))
    banks = [np.zeros((threads, many, PAGE), np.uint8) for _ in range(5)]
    forget()
    while s.fix and f.read(MIB):
        pass

    def epoch():
        for bank in itertools.cycle(banks):
            ride(bank)
            if not s.fix:
                forget()
            out.put(bank)
    start(epoch)
    s.loop(gpu, out.get)


@job(data="slow_file io_bound", rest="sync_bound launch_bound")
def wax_heads(s):
    """Weather by xarray and kerchunk: a virtual array over a file for each year, of which dask's two threads load the
    chunks for a prefetching thread; to blame is the newest year, whose file alone is not in memory."""
    ms, share, years = s.ms("gpu_ms", 8, 25), s.ms("read_share", 1.7, 3), s.int("years", 4, 7)
    newest, chance, out = s.data_file("wax_heads", 64), random.Random(1), queue.Queue(2)
    paths = [s.path("year-%d.nc" % n) for n in range(years)]
    for path in paths:
        np.ones(MIB, np.uint8).tofile(path)
    files = [os.open(path, os.O_RDONLY) for path in paths + [newest]]
    os.posix_fadvise(files[-1], 0, 0, os.POSIX_FADV_RANDOM)
    pool, gpu = concurrent.futures.ThreadPoolExecutor(2), s.gpu(ms)

    def chunks(file, many):
        places = chance.choices(range(os.fstat(file).st_size // PAGE), k=many)
        return b"".join([os.pread(file, PAGE, place * PAGE)[:64] for place in places])
    each = once(lambda: chunks(files[-1], 400)) / 400
    many = s.keep("reads", min(max(int(ms * share / 1e3 / each), 16), 4000))
    s.cold(newest)
    while s.fix and os.read(files[-1], MIB):
        pass

    def prefetch():
        while True:
            x = b"".join(pool.map(chunks, files, [max(many // 4, 4)] * years + [many]))
            if not s.fix:
                os.posix_fadvise(files[-1], 0, 0, os.POSIX_FADV_DONTNEED)
            out.put(np.frombuffer(x, np.uint8))
    start(prefetch)
    s.loop(gpu, out.get)


class WriterMutex:
    """As LMDB has it in lock.mdb: of pthreads, robust, for all processes that map the file."""

    def __init__(self, path):
        with open(path, "w+b") as f:
            f.truncate(PAGE)
            self.memory = mmap.mmap(f.fileno(), PAGE)
        self.at = ctypes.c_void_p(np.frombuffer(self.memory, np.uint8).ctypes.data)
        kind = (ctypes.c_char * 64)()
        LIBC.pthread_mutexattr_init(kind)
        LIBC.pthread_mutexattr_setpshared(kind, 1)
        LIBC.pthread_mutexattr_setrobust(kind, 1)
        LIBC.pthread_mutex_init(self.at, kind)

    def __enter__(self):
        LIBC.pthread_mutex_lock(self.at)

    def __exit__(self, *_):
        LIBC.pthread_mutex_unlock(self.at)


def dodge(out, path, mutex, first, cost, samples, early):
    """Opens samples and puts each into the node's cache, within a transaction that begins early or late."""
    file = os.open(path, os.O_RDWR | os.O_CREAT)
    for n in itertools.count(first):
        batch = np.full((samples, 4000), n, np.float32)
        for sample in batch:
            decode(cost * (0.1 if early else 1.1))
            with mutex:
                if early:
                    decode(cost)
                os.pwrite(file, sample, n % 64 * sample.nbytes)
        out.put(batch)


@job(data="lock_bound", rest="sync_bound launch_bound")
def dodgem_track(s):
    """Processes keep what they have decoded in an LMDB for the runs to come; to blame is that they decode within the
    transaction that writes, as `with env.begin(write=True)` stands too high, and LMDB admits one writer at a time."""
    ms, processes, samples = s.ms("gpu_ms", 8, 40), s.int("processes", 2, 3), s.int("samples", 4, 16)
    cost = ms * s.ms("open_share", 1.5, 2.6) / samples
    gpu, out, mutex = s.gpu(ms), multiprocessing.Queue(maxsize=4), WriterMutex(s.path("lock.mdb"))
    for n in range(processes):
        child(dodge, out, s.path("data.mdb"), mutex, n * 21, cost / 4 if s.fix else cost, samples, not s.fix)
    s.loop(gpu, out.get)


def tiered_log(s):
    """A broker whose older segments lie in an object store: a fetch gets those of one partition only, and late."""
    late, spread = float(s.told("late")) / 1e3, s.ms("spread", 0.05, 0.3)
    door = socket.create_server(("127.0.0.1", 0))
    s.tell("port", door.getsockname()[1])
    link, _ = door.accept()
    asked = link.makefile("rb")
    while ask := asked.read(16):
        partition, offset, size = struct.unpack("<IQI", ask)
        time.sleep(late * s.random.lognormvariate(0, spread))
        link.sendall(struct.pack("<IQI", partition, offset + size, size) + bytes(size))


@job(outside=tiered_log, data="network_bound too_few_workers", rest="sync_bound launch_bound")
def tombola_draw(s):
    """A topic as of Kafka is replayed from its begin: a client's thread fetches from each partition in turn, a batch or
    two ahead; to blame is the far broker with its tiered storage, which is asked for one fetch at a time."""
    ms, partitions, size = s.ms("gpu_ms", 12, 40), s.int("partitions", 2, 5), s.int("kib", 8, 100) << 10
    late = ms * s.ms("late_share", 1.5, 2.8) / partitions
    s.tell("late", late / 20 if s.fix else late)
    gpu, port, out = s.gpu(ms), int(s.told("port")), queue.Queue(2 * partitions)

    def poll():
        stream, offsets = socket.create_connection(("127.0.0.1", port)).makefile("rwb"), [0] * partitions
        for partition in itertools.cycle(range(partitions)):
            stream.write(struct.pack("<IQI", partition, offsets[partition], size))
            stream.flush()
            _, offsets[partition], length = struct.unpack("<IQI", stream.read(16))
            records = stream.read(length)
            zlib.crc32(records)
            out.put(np.frombuffer(records, np.uint8))
    start(poll)
    s.loop(gpu, lambda: np.concatenate([out.get() for _ in range(partitions)]))


def flight(link):
    """Has a table in memory, and streams as many bytes as it is asked for, record batch by record batch."""
    block = memoryview(b"\1" * MIB)
    while ask := link.recv(8, socket.MSG_WAITALL):
        left, = struct.unpack("<Q", ask)
        while left:
            body = block[:left]
            link.sendall(struct.pack("<Q", len(body)))
            link.sendall(body)
            left -= len(body)


@job(data="ipc_bound", rest="sync_bound launch_bound")
def parade_floats(s):
    """As by Arrow Flight: a service process has a wide table in memory, and a thread reads its stream of record batches
    ahead; to blame is that the ticket names no columns, so that all of them come through the socket for a few."""
    ms, share, used = s.ms("gpu_ms", 6, 12), s.ms("stream_share", 1.6, 2.8), s.int("kib", 40, 400) << 10
    (mine, theirs), gpu, out = socket.socketpair(), s.gpu(ms), queue.Queue(2)
    child(flight, theirs)
    table = np.zeros(96 * MIB, np.uint8)

    def take(size):
        mine.sendall(struct.pack("<Q", size))
        view = memoryview(table)[:size]
        while view:
            length, = struct.unpack("<Q", mine.recv(8, socket.MSG_WAITALL))
            part, view = view[:length], view[length:]
            while part:
                part = part[mine.recv_into(part, len(part), socket.MSG_WAITALL):]
    size = int(32 * MIB * ms * share / 1e3 / took(lambda: take(32 * MIB)))
    size = s.keep("bytes", used if s.fix else min(max(size, MIB), 96 * MIB))

    def read():
        while True:
            take(size)
            out.put(table[:used].copy())
    start(read)
    s.loop(gpu, out.get)


TENT = """
import decimal, http.client, json, multiprocessing.connection, sqlite3, sys, zlib
import numpy
link, group = multiprocessing.connection.Connection(int(sys.argv[1])), zlib.compress(bytes(range(256)) * 2000)
try:
    while True:
        n = link.recv()
        link.send(numpy.frombuffer(zlib.decompress(group), numpy.uint8, 80000, n % 400000))
except (EOFError, OSError):
    pass
"""


def pitch():
    """A worker in an interpreter of its own."""
    (mine, theirs), me = multiprocessing.Pipe(), os.getpid()
    program = subprocess.Popen([sys.executable, "-c", TENT, str(theirs.fileno())], stdin=subprocess.DEVNULL,
                               pass_fds=[theirs.fileno()], preexec_fn=lambda: mortal(me))
    theirs.close()
    return mine, program


def passes(workers, batches):
    """The batches of pass after pass; for each there is a pool of workers, which ends with it."""
    while True:
        pool = [pitch() for _ in range(workers)]
        try:
            for n in range(2 * workers):
                pool[n % workers][0].send(n)
            for n in range(batches):
                link, _ = pool[n % workers]
                x = link.recv()
                link.send(n)
                yield x
        finally:
            for link, program in pool:
                link.close()
                program.wait()


@job(data="loader_restart", rest="sync_bound launch_bound")
def pitched_tents(s):
    """As Petastorm's process pool, whose workers are interpreters started afresh: `with make_reader(num_epochs=1)`
    stands within the loop over short epochs, and to blame is that each of these starts them and their imports anew."""
    ms, workers, share = s.ms("gpu_ms", 8, 30), s.int("workers", 1, 2), s.ms("pitch_share", 0.6, 1.8)
    gpu, trial = s.gpu(ms), passes(workers, 1)
    again = took(lambda: next(trial))
    trial.close()
    steps = s.keep("pass_steps", min(max(round(again * 1e3 / ms / share), 2), 40))
    s.loop(gpu, functools.partial(next, passes(workers, 10**9 if s.fix else steps)))


def shard_store(s):
    """Sends shards to all who ask; after a while one of the connections is lost on the way, and nobody is told."""
    life, size, batches, lost = json.loads(s.told("plan"))
    door, silence = socket.create_server(("127.0.0.1", 0)), threading.Event()
    s.tell("port", door.getsockname()[1])

    def lose():
        s.told("go")
        time.sleep(life)
        silence.set()

    def serve(link):
        with link, link.makefile("rb") as lines:
            worker = int(lines.readline())
            for _ in range(batches):
                if worker == lost and silence.is_set():
                    threading.Event().wait()
                link.sendall(bytes(size))
    start(lose)
    while True:
        start(functools.partial(serve, door.accept()[0]))


FETCH = "exec 3<>/dev/tcp/127.0.0.1/$1; echo $2 >&3; exec cat <&3"


@job(outside=shard_store, data="hung_worker", rest="sync_bound launch_bound")
def stalled_swings(s):
    """WebDataset's `pipe:` in two DataLoader workers: a program brings each shard; to blame is a connection that gets
    lost without a word, for the program has no timeout, its worker waits for it for ever, and the loop for that."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    import torch
    ms, batches, lost = s.ms("gpu_ms", 10, 35), s.int("batches", 5, 8), s.int("lost", 0, 1)
    size, cost, parent = s.int("kib", 20, 80) << 10, 2 * ms * s.ms("load_share", 0.1, 0.3), os.getpid()
    s.tell("plan", json.dumps([s.ms("life_s", 1.5, 2.6), size, batches, -1 if s.fix else lost]))
    port = s.told("port")

    class Shards(torch.utils.data.IterableDataset):
        def __iter__(self):
            worker, me = str(torch.utils.data.get_worker_info().id), os.getpid()
            while True:
                with subprocess.Popen(["bash", "-c", FETCH, "fetch", port, worker], stdin=subprocess.DEVNULL,
                                      stdout=subprocess.PIPE, preexec_fn=lambda: mortal(me)) as program:
                    while len(body := program.stdout.read(size)) == size:
                        decode(cost)
                        yield torch.frombuffer(bytearray(body), dtype=torch.uint8)
    gpu = s.gpu(ms)
    loader = iter(torch.utils.data.DataLoader(Shards(), None, num_workers=2,
                                              worker_init_fn=lambda _: mortal(parent)))
    s.supplier(loader._workers[lost].pid)
    s.loop(gpu, lambda: next(loader).numpy())


@job(data="slow_item", rest="sync_bound launch_bound")
def log_flume(s):
    """As torchdata's ParallelMapper with in_order: a semaphore admits a few clips, two threads cut them, one puts them
    in order; to blame are the few files with their index at the end, which are gone through as a whole for a clip."""
    ms, every, room = s.ms("gpu_ms", 8, 25), s.int("every", 7, 11), s.int("max_concurrent", 3, 4)
    cost, whole = ms * s.ms("load_share", 0.1, 0.4), ms * s.ms("whole_steps", 9, 14)
    gpu, places = s.gpu(ms), threading.Semaphore(room)
    asked, done, out = queue.Queue(), queue.Queue(), queue.Queue()

    def source():
        for n in itertools.count(1):
            places.acquire()
            asked.put(n)

    def cut():
        while True:
            n = asked.get()
            decode(whole if n % every == 0 and not s.fix else cost)
            done.put((n, np.zeros(20000, np.float32)))

    def sort():
        heap = []
        for n in itertools.count(1):
            while not heap or heap[0][0] != n:
                heapq.heappush(heap, done.get())
            out.put(heapq.heappop(heap)[1])

    def obtain():
        x = out.get()
        places.release()
        return x
    start(source, cut, cut, sort)
    s.loop(gpu, obtain)


def row_boat(link, share_of, cost):
    """Fills its part of each batch that is scheduled, in place."""
    while True:
        slot = link.recv()
        for sample in share_of[slot]:
            decode(cost)
            sample[:] = slot
        link.send(slot)


@job(data="slow_worker", rest="sync_bound launch_bound")
def swan_boats(s):
    """As DALI's external source with parallel=True: three processes fill a third of each batch each, in shared memory;
    to blame is a sampler that puts a batch's panoramas at the same places always, which are one process's part."""
    ms, samples, slots, late = s.ms("gpu_ms", 10, 45), s.int("samples", 4, 12), s.int("slots", 2, 3), s.int("of", 0, 2)
    light, heavy = ms * s.ms("load_share", 0.08, 0.2) / samples, ms * s.ms("panorama_share", 1.5, 2.5) / samples
    shape, gpu, links = (slots, 3, samples, 3000), s.gpu(ms), []
    memory = np.frombuffer(multiprocessing.RawArray("f", slots * 3 * samples * 3000), np.float32).reshape(shape)
    for n in range(3):
        mine, theirs = multiprocessing.Pipe()
        pid = child(row_boat, theirs, memory[:, n], heavy if n == late and not s.fix else light).pid
        links.append(mine)
        if n == late:
            s.supplier(pid)
    turn = itertools.cycle(range(slots))

    def schedule(slot):
        for link in links:
            link.send(slot)

    def obtain():
        slot = next(turn)
        for link in links:
            link.recv()
        x = memory[slot].copy()
        schedule(slot)
        return x
    for slot in range(slots):
        schedule(slot)
    s.loop(gpu, obtain)


# ---- nothing is wrong with the data


def pop(out, path, warnings, first, size, cost):
    """As with WebDataset's warn_and_continue, which notes that a shard failed, and sleeps."""
    me = os.getpid()
    with open(warnings, "a", encoding="ascii") as log:
        for n in itertools.count(first):
            shard = path if n % 3 else path + ".gone"
            with subprocess.Popen(["sh", "-c", "exec cat " + shard], stdin=subprocess.DEVNULL,
                                  stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                                  preexec_fn=lambda: mortal(me)) as program:
                while len(body := program.stdout.read(size)) == size:
                    decode(cost)
                    out.put(np.frombuffer(body, np.uint8))
            if program.returncode:
                log.write("IOError: cat %s: exit %d\n" % (shard, program.returncode))
                log.flush()
                time.sleep(0.5)


@job(data="loader_restart too_few_workers", rest="sync_bound launch_bound")
def popped_balloons(s):
    """Nothing is to blame: three processes start a program for each shard, every third of which is gone, so that they
    warn and sleep for half a second; but what the others have made meanwhile lasts for longer than that."""
    ms, size, path = s.ms("gpu_ms", 25, 70), s.int("kib", 20, 60) << 10, s.path("shard.tar")
    gpu, out, cost = s.gpu(ms), multiprocessing.Queue(maxsize=32), ms * s.ms("load_share", 0.05, 0.15)
    np.ones(12 * size, np.uint8).tofile(path)
    for n in range(3):
        child(pop, out, path, s.path("warnings-%d" % n), n + 1, size, cost)
    s.loop(gpu, out.get)


def stroll(table, begin, pages):
    return np.frombuffer(table, np.uint8, pages * PAGE, begin)[::PAGE].astype(np.float32)


def wander(out, path, pages):
    """Goes through a mapped table in order; what lies behind leaves memory."""
    size = pages * PAGE
    with open(path, "rb") as f, mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ) as table:
        for n in itertools.count():
            begin = n % (len(table) // size) * size
            out.put(stroll(table, begin, pages))
            table.madvise(mmap.MADV_DONTNEED)
            os.posix_fadvise(f.fileno(), begin, size, os.POSIX_FADV_DONTNEED)


@job(data="page_fault_io", rest="sync_bound launch_bound")
def mirror_maze(s):
    """Nothing is to blame: as with Hugging Face's datasets a process goes through a mapped Arrow file, of which memory
    keeps nothing, and has page faults that wait for the disk all the time; but it goes in order, and is ahead."""
    ms, share, path = s.ms("gpu_ms", 22, 70), s.ms("fault_share", 0.12, 0.3), s.data_file("mirror_maze", 64)
    with open(path, "rb") as f, mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ) as table:
        each = once(lambda: stroll(table, 0, 2048)) / 2048
    pages = s.keep("pages", min(max(int(ms * share / 1e3 / each), 16), 2048))
    s.cold(path)
    gpu, out = s.gpu(ms), multiprocessing.Queue(maxsize=4)
    child(wander, out, path, pages)
    s.loop(gpu, out.get)


def quiet_topic(s):
    """A broker that holds a fetch until there is a record, or for half a second; it takes the answers, too."""
    rate, door = s.ms("rate", 3, 8), socket.create_server(("127.0.0.1", 0))
    s.tell("port", door.getsockname()[1])
    (consumer, _), (producer, _) = door.accept(), door.accept()

    def take():
        while producer.recv(1 << 16):
            pass
    start(take)
    asked = consumer.makefile("rb")
    s.told("go")
    due = time.monotonic() + s.random.expovariate(rate)
    while asked.read(16):
        time.sleep(max(min(due - time.monotonic(), 0.5), 0))
        records = 0
        while due <= time.monotonic():
            records += 1
            due += s.random.expovariate(rate)
        consumer.sendall(struct.pack("<I", records) + bytes(RECORD * records))


@job(outside=quiet_topic, demand="no_demand", host="host_bound", rest="sync_bound launch_bound")
def lonely_kiosk(s):
    """Payments are scored as they are written to a topic as of Kafka, which a client's thread polls; the answers go to
    another topic. Nobody is to blame that few people pay: most fetches come back late, and many with nothing."""
    gpu, passes_each, port = s.gpu(s.ms("gpu_ms", 6, 20)), s.int("passes", 1, 3), int(s.told("port"))
    consumer, producer = [socket.create_connection(("127.0.0.1", port)) for _ in range(2)]
    polled = queue.SimpleQueue()

    def fetch():
        stream = consumer.makefile("rwb")
        while True:
            stream.write(bytes(16))
            stream.flush()
            records, = struct.unpack("<I", stream.read(4))
            if records:
                polled.put(stream.read(RECORD * records))
    start(fetch)
    s.go()
    while True:
        with s.during("demand"):
            payments = polled.get()
        with s.during("host"):
            x = np.frombuffer(payments, np.uint8).reshape(-1, RECORD).astype(np.float32) / np.float32(255)
        for _ in range(passes_each):
            s.mark()
            s.train(gpu, x)
        producer.sendall(bytes(8 * len(x)))
