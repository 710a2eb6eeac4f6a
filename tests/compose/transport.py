# SPDX-License-Identifier: BSD-2-Clause
"""Ways for batches to reach the trainer. Each: start(), get() → (batch, bytes),
stop(); the makers are threads, processes of the job, or processes of nobody's."""

import collections
import concurrent.futures
import ctypes
import mmap
import multiprocessing as mp
import multiprocessing.connection
import os
import queue
import signal
import socket
import struct
import threading
import time

import numpy as np

from journal import die_with_parent, journal, now, phase
from work import Worker, transform

AHEAD = 2  # batches that a maker may be ahead
HEAD = struct.Struct("<QQ")
WAIT_S = 20
fork = mp.get_context("fork")


def taken(get):
    """What a stage waits for from the one before it."""
    begin = now()
    got = get()
    journal().add("take", begin, now(), 0, got[0])
    return got


def make_for_ever(spec, worker, send):
    """One maker; with a helper, the loading is a thread of its own before it."""
    if not spec["helper"]:
        while True:
            batch, data = worker.make()
            with phase("put", batch):
                send(batch, data)
    inner = queue.Queue(AHEAD)

    def load():
        while True:
            got = worker.make()
            with phase("put", got[0]):
                inner.put(got)

    threading.Thread(target=load, daemon=True).start()
    while True:
        batch, data = taken(inner.get)
        data = transform(spec, batch, data)
        with phase("put", batch):
            send(batch, data)


def send_bytes(conn, batch, data):
    conn.sendall(HEAD.pack(batch, len(data)))
    conn.sendall(memoryview(data))


def receive(conn):
    head = conn.recv(HEAD.size, socket.MSG_WAITALL)
    if len(head) < HEAD.size:
        raise ConnectionError("the data service is gone")
    batch, size = HEAD.unpack(head)
    data = bytearray(size)
    view = memoryview(data)
    while view:
        n = conn.recv_into(view)
        if not n:
            raise ConnectionError("the data service is gone")
        view = view[n:]
    return batch, data


class Source:
    def __init__(self, spec, locks):
        self.spec, self.locks = spec, locks
        self.size = spec["batch_kb"] * 1024
        self.workers = spec["workers"]

    def start(self):
        pass

    def stop(self):
        pass


class Inline(Source):
    def start(self):
        self.worker = Worker(self.spec, 0, self.locks)

    def get(self):
        return self.worker.make()


class Threads(Source):
    def start(self):
        self.q = queue.Queue(AHEAD * self.workers)
        for i in range(self.workers):
            w = Worker(self.spec, i, self.locks)
            threading.Thread(target=make_for_ever, daemon=True, args=(
                self.spec, w, lambda batch, data: self.q.put((batch, data)))).start()

    def get(self):
        return self.q.get(timeout=WAIT_S)


_here = threading.local()


def _enter(spec, locks, counter, process):
    if process:
        die_with_parent()
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
    with counter.get_lock():
        _here.worker = Worker(spec, counter.value % spec["workers"], locks)
        counter.value += 1


def _enter_process(spec, locks, counter):
    global _process
    _enter(spec, locks, counter, True)
    _process = _here.worker


def _task(_):
    return _here.worker.make()


def _task_process(_):
    return _process.make()


class Pool(Source):
    """concurrent.futures, results in order."""

    process = False

    def start(self):
        counter = fork.Value("i", 0)
        if self.process:
            self.pool = concurrent.futures.ProcessPoolExecutor(
                self.workers, fork, _enter_process, (self.spec, self.locks, counter))
        else:
            self.pool = concurrent.futures.ThreadPoolExecutor(
                self.workers, "pool", _enter, (self.spec, self.locks, counter, False))
        self.task = _task_process if self.process else _task
        self.ahead = collections.deque(
            self.pool.submit(self.task, 0) for _ in range(AHEAD * self.workers))

    def get(self):
        result = self.ahead.popleft().result(WAIT_S)
        self.ahead.append(self.pool.submit(self.task, 0))
        return result

    def stop(self):
        for f in self.ahead:
            f.cancel()
        self.pool.shutdown(wait=True)


class ProcessPool(Pool):
    process = True


class Processes(Source):
    """Processes of the job, one kind of channel each."""

    def start(self):
        self.prepare()
        # anew: who was ended at a restart may have held it
        self.locks = dict(self.locks, mp=fork.Lock())
        self.children = [fork.Process(target=self.child, args=(i,), daemon=True)
                         for i in range(self.workers)]
        for c in self.children:
            c.start()

    def child(self, index):
        die_with_parent()
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        make_for_ever(self.spec, Worker(self.spec, index, self.locks),
                      self.sender(index))

    def stop(self):
        for c in self.children:
            c.terminate()
        for c in self.children:
            c.join(5)


class Queues(Processes):
    def prepare(self):
        self.q = fork.Queue(AHEAD * self.workers)

    def sender(self, index):
        return lambda batch, data: self.q.put((batch, data))

    def get(self):
        return self.q.get(timeout=WAIT_S)


class Pipes(Processes):
    """A socket pair for each worker; read in turn, or whoever is ready first."""

    def prepare(self):
        self.pairs = [fork.Pipe() for _ in range(self.workers)]
        self.ready, self.next = collections.deque(), 0

    def sender(self, index):
        conn = self.pairs[index][1]
        return lambda batch, data: (conn.send_bytes(HEAD.pack(batch, len(data))),
                                    conn.send_bytes(data))

    def get(self):
        if self.spec["in_turn"]:
            self.ready.append(self.pairs[self.next % self.workers][0])
            self.next += 1
        elif not self.ready:
            self.ready.extend(mp.connection.wait([p[0] for p in self.pairs], WAIT_S))
        conn = self.ready.popleft()
        batch, _ = HEAD.unpack(conn.recv_bytes())
        return batch, conn.recv_bytes()


class Slots(Processes):
    """Batches in shared memory, AHEAD slots a worker, taken in turn."""

    def prepare(self):
        n = self.workers
        self.stride = self.size + mmap.PAGESIZE
        self.memory = mmap.mmap(-1, n * AHEAD * self.stride)
        self.next, self.at = 0, [0] * n
        self.signals()

    def signals(self):
        self.free = [fork.Semaphore(AHEAD) for _ in range(self.workers)]
        self.full = [fork.Semaphore(0) for _ in range(self.workers)]

    def wait_free(self, i):
        self.free[i].acquire()

    def post_full(self, i):
        self.full[i].release()

    def wait_full(self, i):
        if not self.full[i].acquire(timeout=WAIT_S):
            raise TimeoutError("no batch")

    def post_free(self, i):
        self.free[i].release()

    def sender(self, index):
        state = [0]

        def send(batch, data):
            self.wait_free(index)
            base = (index * AHEAD + state[0] % AHEAD) * self.stride
            self.memory[base:base + 8] = struct.pack("<Q", batch)
            self.memory[base + 64:base + 64 + self.size] = memoryview(data)
            state[0] += 1
            self.post_full(index)

        return send

    def get(self):
        i = self.next % self.workers
        self.next += 1
        self.wait_full(i)
        base = (i * AHEAD + self.at[i] % AHEAD) * self.stride
        self.at[i] += 1
        batch, = struct.unpack("<Q", self.memory[base:base + 8])
        data = self.memory[base + 64:base + 64 + self.size]
        self.post_free(i)
        return batch, data


class EventFds(Slots):
    def signals(self):
        flag = os.EFD_SEMAPHORE
        self.free = [os.eventfd(AHEAD, flag) for _ in range(self.workers)]
        self.full = [os.eventfd(0, flag) for _ in range(self.workers)]

    @staticmethod
    def read(fd):
        while True:
            try:
                return os.eventfd_read(fd)
            except InterruptedError:
                pass

    def wait_free(self, i):
        self.read(self.free[i])

    def post_full(self, i):
        os.eventfd_write(self.full[i], 1)

    def wait_full(self, i):
        self.read(self.full[i])

    def post_free(self, i):
        os.eventfd_write(self.free[i], 1)


class Conditions(Slots):
    """One mp.Condition (a lock between processes) for all."""

    def signals(self):
        self.turn = fork.Condition(fork.Lock())
        self.count = fork.RawArray("q", 2 * self.workers)

    def change(self, wait_at, post_at, by):
        with self.turn:
            if wait_at is not None:
                low = AHEAD if wait_at % 2 == 0 else 0
                ok = (lambda: self.count[wait_at] < low) if wait_at % 2 == 0 else \
                    (lambda: self.count[wait_at - 1] > 0)
                if not self.turn.wait_for(ok, WAIT_S):
                    raise TimeoutError("no batch")
            if post_at is not None:
                self.count[post_at] += by
                self.turn.notify_all()

    def wait_free(self, i):
        self.change(2 * i, None, 0)

    def post_full(self, i):
        self.change(None, 2 * i, 1)

    def wait_full(self, i):
        self.change(2 * i + 1, None, 0)

    def post_free(self, i):
        self.change(None, 2 * i, -1)


class Service(Source):
    """Connections to processes outside of the job, which make the batches."""

    def start(self):
        self.conns, self.next = [], 0
        for address in self.spec["services"]:
            if isinstance(address, str):
                conn = socket.socket(socket.AF_UNIX)
                conn.connect(address)
            else:
                conn = socket.create_connection(("127.0.0.1", address))
                conn.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self.spec["ask"]:
                conn.sendall(b"n" * AHEAD)
            self.conns.append(conn)

    def get(self):
        conn = self.conns[self.next % len(self.conns)]
        self.next += 1
        got = receive(conn)
        if self.spec["ask"]:
            conn.sendall(b"n")
        return got


libc = ctypes.CDLL(None, use_errno=True)
libc.sem_open.restype = ctypes.c_void_p
libc.sem_wait.argtypes = libc.sem_post.argtypes = [ctypes.c_void_p]


def semaphore(name, value):
    p = libc.sem_open(name.encode(), os.O_CREAT, 0o600, value)
    if not p:
        raise OSError(ctypes.get_errno(), "sem_open")
    return p


class Named(Slots):
    """Slots in a file that others have mapped too, with named semaphores."""

    def __init__(self, spec, locks):
        super().__init__(spec, locks)
        self.children = []

    def prepare(self):
        self.stride = self.size + mmap.PAGESIZE
        path = "/dev/shm/" + self.spec["shared"]
        fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        os.ftruncate(fd, self.workers * AHEAD * self.stride)
        self.memory = mmap.mmap(fd, self.workers * AHEAD * self.stride)
        os.close(fd)
        self.next, self.at = 0, [0] * self.workers
        name = "/" + self.spec["shared"]
        self.free = [semaphore("%s.f%d" % (name, i), AHEAD) for i in range(self.workers)]
        self.full = [semaphore("%s.r%d" % (name, i), 0) for i in range(self.workers)]

    def start(self):
        self.prepare()

    def wait_free(self, i):
        while libc.sem_wait(self.free[i]):
            pass  # a signal came

    def post_full(self, i):
        libc.sem_post(self.full[i])

    def wait_full(self, i):
        while libc.sem_wait(self.full[i]):
            pass

    def post_free(self, i):
        libc.sem_post(self.free[i])


class Loader(Source):
    """torch.utils.data.DataLoader, one item a batch."""

    def start(self):
        import torch
        from torch.utils.data import DataLoader, Dataset, get_worker_info

        spec, locks = self.spec, self.locks
        torch.multiprocessing.set_sharing_strategy(spec["sharing"])

        class Batches(Dataset):
            worker = None

            def __len__(self):
                return 10**7

            def __getitem__(self, _):
                if self.worker is None:
                    self.worker = Worker(spec, get_worker_info().id, locks)
                batch, data = self.worker.make()
                return torch.from_numpy(data), batch

        def init(_):
            die_with_parent()
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            torch.set_num_threads(1)

        self.batches = iter(DataLoader(
            Batches(), batch_size=None, num_workers=self.workers, prefetch_factor=AHEAD,
            sampler=range(10**7), worker_init_fn=init, pin_memory=spec["pin"]))

    def get(self):
        data, batch = next(self.batches)
        return int(batch), data.numpy()

    def stop(self):
        self.batches = None


class Feeder(Source):
    """A thread of the trainer that takes each batch before the main thread does."""

    def __init__(self, spec, locks, inner):
        super().__init__(spec, locks)
        self.inner, self.over = inner, False

    def start(self):
        self.inner.start()
        self.q, self.over = queue.Queue(AHEAD), False
        self.thread = threading.Thread(target=self.feed, daemon=True)
        self.thread.start()

    def feed(self):
        try:
            while not self.over:
                batch, data = taken(self.inner.get)
                data = transform(self.spec, batch, data)
                with phase("put", batch):
                    while not self.over:
                        try:
                            self.q.put((batch, data), timeout=0.5)
                            break
                        except queue.Full:
                            pass
        except (queue.Empty, OSError, EOFError, TimeoutError, StopIteration):
            if not self.over:
                raise

    def get(self):
        return self.q.get(timeout=WAIT_S)

    def stop(self):
        self.over = True
        self.thread.join(5)
        self.inner.stop()


KINDS = {"inline": Inline, "pythread": Threads, "threadpool": Pool,
         "procpool": ProcessPool, "loader_fd": Loader, "loader_fs": Loader,
         "mpqueue": Queues, "mppipe": Pipes, "shm_sem": Slots, "shm_lock": Conditions,
         "eventfd": EventFds, "unix_out": Service, "tcp_out": Service, "shm_out": Named}


def source(spec):
    locks = {"thread": threading.Lock(), "mp": fork.Lock()}
    s = KINDS[spec["transport"]](spec, locks)
    for _ in range(spec["feeders"]):
        s = Feeder(spec, locks, s)
    return s
