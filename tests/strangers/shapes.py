# SPDX-License-Identifier: BSD-2-Clause
"""Jobs of a shape that the other themes lack: much of what stops them is no wait for data."""
import contextlib
import itertools
import multiprocessing
import os
import queue
import signal
import socket
import sqlite3
import subprocess
import threading
import time

import numpy as np

from loaders import torch_data
from loops import feeder
from stranger import BUILD, CPU, decode, job, parse


def on_disk(name):
    folder = os.path.join(BUILD, "strangers")
    os.makedirs(folder, exist_ok=True)
    return os.path.join(folder, name)


# ---- the loop loads


@job(data="main_thread_loading host_bound", rest="sync_bound launch_bound")
def arrow_map(j):
    """Rows of a column file in shuffled order, a map() function on each; no workers."""
    ms, many, width = j.ms("gpu_ms", 8, 40), j.int("batch", 16, 64), 128
    gpu, cost = j.gpu(ms), ms * j.ms("map_share", 0.5, 2) / many
    ends = np.cumsum([j.random.randint(100, 900) for _ in range(20000)])
    with open(on_disk("texts.arrow"), "wb") as f:
        f.write((b"some words of a text " * (ends[-1] // 20 + 1))[:ends[-1]])
    how, fd = j.one("opened", "mapped", "read"), os.open(f.name, os.O_RDONLY)
    column = np.memmap(f.name, np.uint8, "r")

    def tokenised(i):
        begin, end = int(ends[i - 1]), int(ends[i])
        raw = column[begin:end].tobytes() if how == "mapped" else os.pread(fd, end - begin, begin)
        parse(cost)
        return [len(w) for w in raw.decode().split()][:width]

    def batch():
        x = np.zeros((many, width), np.int64)
        for row in x:
            ids = tokenised(j.random.randrange(1, len(ends)))
            row[:len(ids)] = ids
        return x
    ready = batch() if j.fix else None
    j.loop(gpu, lambda: ready if j.fix else batch())


@job(data="main_thread_loading", rest="sync_bound launch_bound")
def eval_in_loop(j):
    """Training has its workers; the loader of the evaluation was left without any."""
    torch = torch_data()
    ms, every, batches = j.ms("gpu_ms", 8, 25), j.int("every", 8, 24), j.int("batches", 3, 10)
    gpu, many = j.gpu(ms), j.int("batch", 4, 12)
    cost = ms * every * j.ms("eval_share", 0.5, 1.5) / batches / many
    for n in range(60):
        with open(j.path("%d.img" % n), "wb") as f:
            f.write(bytes(j.random.randint(20000, 200000)))

    class Files(torch.utils.data.Dataset):
        def __init__(self, each):
            self.each = each

        def __len__(self):
            return 10**6

        def __getitem__(self, i):
            with open(j.path("%d.img" % (i % 60)), "rb") as file:
                raw = file.read()
            decode(self.each)
            return torch.full((3, 48, 48), len(raw) & 255, dtype=torch.uint8)
    train = iter(torch.utils.data.DataLoader(Files(ms * 0.3 / many), many,
                                             num_workers=j.int("workers", 1, 2)))
    check = torch.utils.data.DataLoader(Files(cost / 10 if j.fix else cost), many)
    j.go()
    for n in itertools.count(1):
        j.step(gpu, next(train).numpy)
        if n % every:
            continue
        with j.during("data"):
            held_out = iter(check)
        for _ in range(batches):
            j.mark("micro")
            with j.during("data"):
                x = next(held_out).numpy()
            gpu.upload(x.ctypes.data, x.nbytes)
            gpu.forward()
            gpu.loss_item()


@job(data="main_thread_loading host_bound", rest="sync_bound launch_bound")
def reshuffle(j):
    """Epochs are cut short; each begins with a new order of the whole index."""
    torch = torch_data()
    gpu, steps = j.gpu(j.ms("gpu_ms", 6, 15)), j.int("steps", 10, 25)
    how, millions = j.one("sampler", "shuffle", "weighted"), j.ms("millions", 1.5, 4)

    class Rows(torch.utils.data.Dataset):
        def __len__(self):
            return int(millions * 1e6)

        def __getitem__(self, i):
            return torch.zeros(5000)

    class Lazy:
        def __iter__(self):
            return (j.random.randrange(10**6) for _ in itertools.count())
    weights = torch.rand(len(Rows()) // 4, dtype=torch.double)
    sampler = {"shuffle": lambda: torch.utils.data.RandomSampler(Rows()),
               "weighted": lambda: torch.utils.data.WeightedRandomSampler(weights, len(weights)),
               "lazy": Lazy}["lazy" if j.fix else how]()
    loader = torch.utils.data.DataLoader(Rows(), 16, sampler=sampler, persistent_workers=True,
                                         num_workers=j.int("workers", 1, 2))
    next(iter(loader))
    j.go()
    while True:
        for n in range(steps):
            j.mark()
            with j.during("data"):
                if n == 0:
                    batches = iter(loader)
                x = next(batches).numpy()
            j.train(gpu, x)


# ---- others make it


@job(data=CPU, threads=True, rest="sync_bound launch_bound")
def unequal_shards(j):
    """Shards of a stream, one for each worker; all but one are short and soon at an end."""
    torch = torch_data()
    ms, many, short = j.ms("gpu_ms", 10, 25), j.int("batch", 4, 8), j.int("short", 6, 20)
    cost, fix, longest = ms * j.ms("load_share", 1.3, 1.6) / many, j.fix, j.int("longest", 0, 1)

    class Stream(torch.utils.data.IterableDataset):
        def __iter__(self):
            me = torch.utils.data.get_worker_info().id
            for _ in itertools.count() if fix or me == longest else range(short * many):
                decode(cost)
                yield torch.zeros((3, 48, 48), dtype=torch.uint8)
    gpu = j.gpu(ms)
    batches = iter(torch.utils.data.DataLoader(Stream(), many, num_workers=2))
    j.loop(gpu, lambda: next(batches).numpy())


SOLVER = """
#include <fcntl.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static double spent(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return t.tv_sec * 1e3 + t.tv_nsec / 1e6;
}

int main(int n, char **args)
{
    double cost = n > 3 ? atof(args[2]) : 1;
    size_t size = n > 3 ? atol(args[3]) : 1;
    int out = open(args[1], O_WRONLY);
    volatile unsigned char *field = calloc(1, size);
    for (;;) {
        for (double end = spent() + cost; spent() < end;)
            for (size_t i = 1; i < size && i < 20000; i++)
                field[i] = field[i - 1] * 31 + field[i] + 7;
        for (size_t done = 0; done < size;) {
            ssize_t wrote = write(out, (void *)(field + done), size - done);
            if (wrote <= 0)
                return 1;
            done += wrote;
        }
    }
}
"""


def solver(j):
    """A simulation in C, of another batch script, writes its fields to a named pipe."""
    with open(j.path("solver.c"), "w", encoding="ascii") as f:
        f.write(SOLVER)
    subprocess.run(["cc", "-O1", "-o", j.path("solver"), f.name], check=True)
    j.tell("pid", os.getpid())
    os.execv(j.path("solver"), ["solver", j.path("fields")] + j.told("field").split())


@job(outside=solver, data=CPU, threads=True, rest="sync_bound launch_bound")
def surrogate(j):
    """A surrogate model learns from a running simulation in C, through a named pipe."""
    ms, size = j.ms("gpu_ms", 5, 30), j.int("kib", 100, 2000) << 10
    cost, reader = ms * j.ms("solver_share", 1.4, 4), j.one("reader", "loop", "thread")
    gpu, ready = j.gpu(ms), queue.Queue(maxsize=2)
    os.mkfifo(j.path("fields"))
    j.supplier(int(j.told("pid")))
    j.tell("field", "%f %d" % (cost / 10 if j.fix else cost, size))
    fields = open(j.path("fields"), "rb")

    def read():
        return np.frombuffer(fields.read(size), np.uint8)

    def reading():
        while True:
            ready.put(read())
    if reader == "thread":
        threading.Thread(target=reading, daemon=True).start()
    j.loop(gpu, read if reader == "loop" else ready.get)


def world(seen, n, begin, done, cost):
    chance = np.random.default_rng(n)
    while True:
        begin.acquire()
        parse(cost * chance.uniform(0.6, 1.4))
        seen[n] = n
        done.release()


@job(data=CPU, threads=True, rest="sync_bound launch_bound")
def worlds(j):
    """Environments in shared memory, started and awaited by semaphores; one or two groups."""
    ms, groups, each = j.ms("policy_ms", 6, 20), j.int("groups", 1, 2), j.int("worlds", 1, 2)
    gpu, cost = j.gpu(ms), ms * j.ms("world_share", 1.5, 4)
    shape, begins = (groups * each, 4, 84, 84), []
    seen = np.frombuffer(multiprocessing.RawArray("B", int(np.prod(shape))), np.uint8)
    seen, dones = seen.reshape(shape), [multiprocessing.Semaphore(0) for _ in range(groups)]
    for n in range(groups * each):
        begins.append(multiprocessing.Semaphore(1))
        multiprocessing.Process(target=world, daemon=True, args=(
            seen, n, begins[n], dones[n // each], cost / 10 if j.fix else cost)).start()
    j.go()
    for n in itertools.count():
        mine = slice(n % groups * each, (n % groups + 1) * each)
        j.mark()
        with j.during("data"):
            for _ in range(each):
                dones[n % groups].acquire()
        j.train(gpu, seen[mine])
        for begin in begins[mine]:
            begin.release()


def mirror(j):
    """Shards over a line of a fixed rate; who asks with a capital letter has a faster one."""
    size, took = map(float, j.told("shard").split())
    door = socket.create_server(("127.0.0.1", 0))
    j.tell("port", door.getsockname()[1])
    link = door.accept()[0]
    while True:
        pause = took if link.recv(1) == b"g" else took / 10
        for _ in range(16):
            time.sleep(pause / 16e3)
            link.sendall(bytes(int(size) // 16))


def downloads(port, ask, size, stem, out):
    link = socket.create_connection(("127.0.0.1", port))
    stream = link.makefile("rb")
    for n in itertools.count():
        link.sendall(ask)
        with open("%s-%d" % (stem, n % 4), "wb") as f:
            f.write(stream.read(size))
        out.put(f.name)


@job(outside=mirror, data="network_bound", rest="sync_bound launch_bound")
def shard_download(j):
    """Shards are downloaded one ahead to the local disk; the loop reads through each."""
    ms, many, row = j.ms("gpu_ms", 5, 15), j.int("batches", 12, 40), j.int("kib", 50, 300) << 10
    gpu, size, where = j.gpu(ms), many * row // 16 * 16, j.one("by", "thread", "process")
    j.tell("shard", "%d %f" % (size, ms * many * j.ms("line_share", 1.5, 2.5)))
    process = where == "process"
    shards = multiprocessing.Queue(maxsize=1) if process else queue.Queue(maxsize=1)
    port = int(j.told("port"))
    j.go()
    (multiprocessing.Process if process else threading.Thread)(
        target=downloads, daemon=True,
        args=(port, b"G" if j.fix else b"g", size, on_disk("shard"), shards)).start()
    while True:
        for n in range(many):
            j.mark()
            with j.during("data"):
                if n == 0:
                    path = shards.get()
                x = np.fromfile(path, np.uint8, row, offset=n * row)
                if n == many - 1:
                    os.unlink(path)
            j.train(gpu, x)


@job(data=CPU, rest="sync_bound launch_bound")
def two_trainers(j):
    """Two runs of a sweep, a GPU each, and one loader process for both."""
    ms, launches = j.ms("gpu_ms", 8, 30), j.int("launches", 10, 80)
    share = j.ms("load_share", 0.9, 2)
    batches, pid = feeder(ms * share / (10 if j.fix else 1))
    j.supplier(pid)
    for n in range(2):
        if os.fork():
            continue
        j.rank(n)
        gpu = j.gpu(ms * (1 + 0.2 * n), launches=launches)
        j.told("go")
        while True:
            j.step(gpu, batches.get)
    j.go()
    signal.pause()


# ---- no wait for data


def packer(results, cost, flushes, path):
    with open(path, "wb") as f:
        for n in itertools.count():
            x, end = results.get(), time.monotonic() + cost / 1e3
            if not flushes:
                decode(cost)
            while flushes and time.monotonic() < end:
                f.seek(n % 64 * x.nbytes)
                f.write(x)
                f.flush()
                os.fsync(f.fileno())


@job(data=CPU, host="host_bound", ckpt="checkpoint_stall host_bound",
     rest="sync_bound launch_bound host_bound")
def late_writer(j):
    """Offline inference: the input lies ready, and the queue to the writer is full."""
    ms, kib = j.ms("gpu_ms", 8, 30), j.int("kib", 50, 500)
    gpu, cost = j.gpu(ms), ms * j.ms("writer_share", 1.5, 3)
    batches, _ = feeder(ms * 0.1)
    what, where = j.one("writer", "packs", "flushes"), j.one("in", "thread", "process")
    process, out = where == "process", np.zeros(kib << 8, np.float32)
    results = multiprocessing.Queue(maxsize=3) if process else queue.Queue(maxsize=3)
    (multiprocessing.Process if process else threading.Thread)(
        target=packer, daemon=True, args=(results, cost / 10 if j.fix else cost,
                                          what == "flushes", on_disk("results.bin"))).start()
    j.go()
    while True:
        j.mark()
        with j.during("data"):
            x = batches.get()
        gpu.upload(x.ctypes.data, x.nbytes)
        gpu.forward()
        gpu.backward()
        gpu.check(gpu.lib.cudaMemcpy(out.ctypes.data, gpu.input, min(out.nbytes, 1 << 20), 2))
        with j.during("ckpt" if what == "flushes" else "host"):
            results.put(out.copy())


@job(data=CPU, ckpt="checkpoint_stall host_bound", rest="sync_bound launch_bound host_bound")
def sqlite_tracker(j):
    """An experiment tracker on SQLite: each metric of each step is a transaction."""
    gpu, metrics = j.gpu(j.ms("gpu_ms", 5, 15)), j.int("metrics", 6, 16)
    batches, _ = feeder(j.ms("load_ms", 0.5, 3))
    for end in ("", "-journal"):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(on_disk("runs.db") + end)
    base = sqlite3.connect(on_disk("runs.db"))
    base.execute("create table metrics (name text, step integer, value real)")
    base.commit()
    j.go()
    for n in itertools.count(1):
        j.step(gpu, batches.get)
        if n % (100 if j.fix else 1) == 0:
            with j.during("ckpt"):
                for m in range(metrics):
                    base.execute("insert into metrics values (?, ?, ?)",
                                 ("metric %d" % m, n, gpu.loss.value))
                    base.commit()


@job(ckpt="checkpoint_stall rank_straggler", peer="rank_straggler checkpoint_stall",
     rest="sync_bound launch_bound")
def rank0_saves(j):
    """Two ranks over gloo; the first alone saves every few steps, and the other waits."""
    torch = torch_data()
    import torch.distributed as ranks
    ms, every, mib = j.ms("gpu_ms", 8, 16), j.int("every", 4, 9), j.int("mib", 40, 90)
    launches, grads = j.int("launches", 10, 80), torch.zeros(j.int("grad_kib", 20, 400) << 8)
    x, flushed = np.zeros(100000, np.float32), j.one("flushed", True, False)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    for n in range(2):
        if os.fork():
            continue
        j.rank(n)
        gpu, model = j.gpu(ms, launches=launches), {"weights": torch.ones(mib << 18)}
        ranks.init_process_group("gloo", init_method="file://" + j.path("meeting"), rank=n,
                                 world_size=2)
        ranks.all_reduce(grads)
        j.told("go")
        for step in itertools.count(1):
            j.mark()
            j.train(gpu, x)
            with j.during("peer"):
                ranks.all_reduce(grads)
            if n == 0 and step % every == 0 and not j.fix:
                with j.during("ckpt"), open(on_disk("rank0.pt"), "wb") as f:
                    torch.save(model, f)
                    if flushed:
                        f.flush()
                        os.fsync(f.fileno())
    j.go()
    signal.pause()


OBSERVED = 16384


def robot(j):
    """Sends what it sees by its own clock, and takes what it is told to do."""
    wire, port, period = j.told("robot").split()
    link = socket.socket(type=socket.SOCK_DGRAM if wire == "udp" else socket.SOCK_STREAM)
    link.connect(("127.0.0.1", int(port)))
    j.told("go")
    due = time.monotonic()
    while True:
        link.sendall(bytes(OBSERVED))
        due = max(due + float(period) / 1e3, time.monotonic())
        time.sleep(max(due - time.monotonic(), 0))
        with contextlib.suppress(BlockingIOError):
            link.recv(4096, socket.MSG_DONTWAIT)


@job(outside=robot, demand="no_demand", rest="sync_bound launch_bound host_bound")
def robot_policy(j):
    """A policy answers a robot, which sends an observation so many times a second."""
    ms, wire = j.ms("gpu_ms", 6, 25), j.one("wire", "udp", "tcp")
    gpu, period = j.gpu(ms), ms * j.ms("period_share", 1.6, 4)
    door = socket.socket(type=socket.SOCK_DGRAM if wire == "udp" else socket.SOCK_STREAM)
    door.bind(("127.0.0.1", 0))
    if wire == "tcp":
        door.listen()
    j.tell("robot", "%s %d %f" % (wire, door.getsockname()[1], period / 10 if j.fix else period))
    link = door.accept()[0] if wire == "tcp" else door
    j.go()
    while True:
        with j.during("demand"):
            if wire == "udp":
                seen, whom = door.recvfrom(OBSERVED)
            else:
                seen, whom = link.recv(OBSERVED, socket.MSG_WAITALL), None
        j.mark()
        j.train(gpu, np.frombuffer(seen, np.uint8))
        if whom:
            door.sendto(bytes(64), whom)
        else:
            link.sendall(bytes(64))


# ---- nothing is wrong


@job(data=CPU, host="host_bound", rest="sync_bound launch_bound")
def token_batches(j):
    """Batches by length, the longest take five times as long; the host works meanwhile."""
    ms, every = j.ms("gpu_ms", 15, 50), j.int("item_every", 8, 20)
    gpu, own = j.gpu(ms), ms * j.ms("own_share", 0.1, 0.4)
    batches, _ = feeder(ms * j.ms("load_share", 0.1, 0.4))
    usual = gpu.kernel_ns
    j.go()
    for n in itertools.count():
        j.mark()
        with j.during("data"):
            x = batches.get()
        gpu.kernel_ns = int(usual * j.random.choice((0.6, 0.7, 0.8, 0.9, 3)))
        gpu.enter_thread()
        j.train(gpu, x, item=n % every == 0)
        with j.during("host"):
            parse(own)


@job(data="network_bound", rest="sync_bound launch_bound")
def far_but_ahead(j):
    """Each batch takes its worker long, as the store is far away; there are enough of them."""
    torch = torch_data()
    ms, workers, many = j.ms("gpu_ms", 35, 100), j.int("workers", 3, 5), j.int("batch", 2, 8)
    gpu, late = j.gpu(ms), ms * workers * j.ms("late_share", 0.3, 0.7) / many

    class Far(torch.utils.data.Dataset):
        def __len__(self):
            return 10**6

        def __getitem__(self, i):
            time.sleep(late / 1e3)
            decode(0.3)
            return torch.zeros((3, 64, 64), dtype=torch.uint8)
    batches = iter(torch.utils.data.DataLoader(Far(), many, num_workers=workers,
                                               persistent_workers=True))
    j.loop(gpu, lambda: next(batches).numpy())
