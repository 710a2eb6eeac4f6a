# SPDX-License-Identifier: BSD-2-Clause
"""Small labs and plants: loaders by hand, of threads mostly, and loops that grew over years."""
import collections
import concurrent.futures
import ctypes
import hashlib
import itertools
import json
import mmap
import os
import queue
import random
import signal
import socket
import subprocess
import threading
import time
from ctypes import byref, c_double, c_size_t, c_void_p

import numpy as np

from stranger import CPU, child, decode, job, parse

PRCTL = ctypes.CDLL(None).prctl


def dies_with(parent):
    """For Popen: what it starts is killed when the thread that started it ends."""
    def before_exec():
        PRCTL(1, int(signal.SIGKILL))
        if os.getppid() != parent:
            os._exit(0)
    return before_exec


def in_thread(f, *more):
    threading.Thread(target=f, args=more, daemon=True).start()


# ---- threads of the training process make the batches


@job(data="slow_item", threads=True, rest="sync_bound launch_bound")
def frost_frames(j):
    """Orchard cameras: a pool's futures are taken in order, and a few frames are panoramas."""
    ms, launches = j.ms("gpu_ms", 10, 26), j.int("launches", 16, 60)
    size, accumulate = j.int("floats", 60000, 500000), j.int("accumulate", 2, 3)
    usual, rare = ms * j.ms("usual_share", 0.1, 0.25), ms * j.ms("rare_times", 16, 26)
    every, ahead = j.int("every", 14, 24), j.int("ahead", 2, 3)
    gpu = j.gpu(ms, 4 * size, launches)
    pool = concurrent.futures.ThreadPoolExecutor(2)

    def frame(cost):
        decode(cost)
        return np.zeros(size, np.float32)

    def costs():
        while True:
            for _ in range(every + j.random.randint(-3, 3)):
                yield usual
            yield usual if j.fix else rare
    cost, held = costs(), []
    pending = collections.deque(pool.submit(frame, next(cost)) for _ in range(ahead))
    j.go()
    while True:
        j.mark()
        for _ in range(accumulate):
            j.mark("micro")
            with j.during("data"):
                pending.append(pool.submit(frame, next(cost)))
                x = pending.popleft().result()
            gpu.upload(x.ctypes.data, x.nbytes)
            gpu.forward()
            gpu.backward()
            held.append(x)  # until the device has read it
        gpu.optimizer()
        gpu.loss_item()
        held.clear()


class Shelf:
    """Batches by number: who is too far ahead waits, and they are taken in order."""

    def __init__(self, room):
        self.room, self.next, self.have = room, 0, {}
        self.change = threading.Condition()

    def put(self, n, batch):
        with self.change:
            self.change.wait_for(lambda: n < self.next + self.room)
            self.have[n] = batch
            self.change.notify_all()

    def take(self):
        with self.change:
            self.change.wait_for(lambda: self.next in self.have)
            batch = self.have.pop(self.next)
            self.next += 1
            self.change.notify_all()
        return batch


@job(data="slow_worker", threads=True, rest="sync_bound launch_bound")
def station_shares(j):
    """Seismometers shared out among threads; the stations of one have five times the samples."""
    ms, threads = j.ms("gpu_ms", 12, 45), j.int("threads", 2, 3)
    size, slow_one = j.int("floats", 50000, 400000), j.int("slow_one", 0, threads - 1)
    usual = ms * threads * j.ms("usual_share", 0.1, 0.25)
    slow = ms * threads * j.ms("slow_share", 1.5, 2.4)
    gpu, shelf = j.gpu(ms, 4 * size), Shelf(2 * threads)

    def window(mine):
        cost = slow if mine == slow_one and not j.fix else usual
        for n in itertools.count(mine, threads):
            decode(cost)
            shelf.put(n, np.zeros(size, np.float32))
    for mine in range(threads):
        in_thread(window, mine)
    j.loop(gpu, shelf.take)


RESAMPLE = r"""
#include <stddef.h>
#include <stdint.h>
#include <time.h>

static double used(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return t.tv_sec * 1e3 + t.tv_nsec / 1e6;
}

void resample(const int16_t *in, float *out, size_t n, double ms)
{
    double end = used() + ms;
    do {
        for (size_t i = 0; i + 1 < n; i++)
            out[i] = 0.5f * (in[i] + in[i + 1]);
    } while (used() < end);
}
"""


def built(j, source):
    """A C library of the job's own."""
    c, so = os.path.abspath(j.path("native.c")), os.path.abspath(j.path("native.so"))
    with open(c, "w", encoding="utf-8") as f:
        f.write(source)
    subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", so, c], check=True)
    return ctypes.CDLL(so)


@job(data="slow_worker", threads=True, rest="lock_bound", beside="lock_bound")
def old_recordings(j):
    """Speech: two threads resample in C, a third reads an old archive in Python; round robin."""
    ms, launches = j.ms("gpu_ms", 28, 50), j.int("launches", 1, 2)
    size = j.int("floats", 50000, 200000)
    usual, slow = 3 * ms * j.ms("usual_share", 0.05, 0.2), 3 * ms * j.ms("slow_share", 2, 2.8)
    native = built(j, RESAMPLE)
    native.resample.argtypes, native.resample.restype = [c_void_p, c_void_p, c_size_t,
                                                         c_double], None
    gpu, sound = j.gpu(ms, 4 * size, launches), np.ones(size, np.int16)
    archives = [queue.Queue(2) for _ in range(3)]

    def speak(out, old):
        while True:
            x = np.zeros(size, np.float32)
            if old:
                parse(slow)
            else:
                native.resample(sound.ctypes.data, x.ctypes.data, size, usual)
            out.put(x)
    for n, out in enumerate(archives):
        in_thread(speak, out, n == 2 and not j.fix)
    turn = itertools.cycle(archives)
    j.loop(gpu, lambda: next(turn).get())


@job(data="lock_bound", threads=True, rest="sync_bound launch_bound")
def turn_first(j):
    """Pathology: to keep the tiles' order threads wait for their turn, and only then decode."""
    ms, threads = j.ms("gpu_ms", 14, 60), j.int("threads", 3, 4)
    size, cost = j.int("floats", 60000, 600000), ms * j.ms("cost_share", 1.5, 1.8)
    gpu, out = j.gpu(ms, 4 * size), queue.Queue(4)
    turn, serving = threading.Condition(), [0]

    def tile():
        decode(cost)
        return np.zeros(size, np.float32)

    def cut(mine):
        for n in itertools.count(mine, threads):
            x = tile() if j.fix else None
            with turn:
                turn.wait_for(lambda: serving[0] == n)
            out.put(tile() if x is None else x)
            with turn:
                serving[0] = n + 1
                turn.notify_all()
    for mine in range(threads):
        in_thread(cut, mine)
    j.loop(gpu, out.get)


@job(data="io_bound slow_worker", threads=True, rest="sync_bound launch_bound")
def scattered_traces(j):
    """Two threads read one survey, in turn: shots lie in one piece, midpoints all over the file."""
    ms, trace, rows = j.ms("gpu_ms", 10, 35), 16 << 10, j.int("rows", 16, 64)
    late = 2 * ms * j.ms("late_share", 1.6, 3)
    chance, traces = random.Random(j.int("midpoints", 1, 1 << 30)), (48 << 20) // trace
    gpu = j.gpu(ms, rows * trace)
    survey = os.open(j.data_file("orchards-survey.sgy", 48), os.O_RDONLY)
    os.posix_fadvise(survey, 0, 0, os.POSIX_FADV_RANDOM)

    def read(first, count):
        # a real survey has terabytes and is never in memory
        os.posix_fadvise(survey, first * trace, count * trace, os.POSIX_FADV_DONTNEED)
        return np.frombuffer(os.pread(survey, count * trace, first * trace), np.int32)

    def scattered(fold):
        gather = np.zeros((rows, trace // 4), np.int32)
        for n in range(fold):
            gather[n % rows] += read(chance.randrange(traces), 1)
        return gather

    def shot(_):
        return read(chance.randrange(traces - rows), rows)
    begin = time.monotonic()
    scattered(100)
    each = (time.monotonic() - begin) * 10  # ms
    fold = min(max(round(late / each), 8), 6000)
    readers = [(concurrent.futures.ThreadPoolExecutor(1), f)
               for f in (shot, shot if j.fix else scattered)]
    turn = itertools.cycle(readers)

    def ask():
        reader, f = next(turn)
        return reader.submit(f, fold)
    pending = collections.deque(ask() for _ in range(4))

    def obtain():
        x = pending.popleft().result()
        pending.append(ask())
        return x
    j.loop(gpu, obtain)


# ---- what the training thread does beside, with its data in time


def film(link, cost, size):
    frame = bytes(size)
    while True:
        decode(cost)
        link.sendall(frame)


@job(data=CPU, child="host_bound", rest="sync_bound launch_bound")
def cell_guard(j):
    """A welding cell: after each step or two the loop runs a tool that tells the temperature."""
    ms, every = j.ms("gpu_ms", 12, 50), j.int("every", 1, 2)
    tool_ms = ms * every * j.ms("tool_share", 0.4, 1.3)
    size, share = j.int("kib", 200, 480) << 10, j.ms("load_share", 0.1, 0.4)
    mine, theirs = socket.socketpair()
    child(film, theirs, ms * share, size)
    theirs.close()
    gpu, frame, warm = j.gpu(ms, size), np.zeros(size, np.uint8), 0.0
    tool = ["/bin/sh", "-c",
            "read -r t rest < /proc/loadavg; echo $t; exec sleep %.4f" % (tool_ms / 1e3)]

    def obtain():
        mine.recv_into(frame, size, socket.MSG_WAITALL)
        return frame
    j.go()
    for n in itertools.count(1):
        j.step(gpu, obtain)
        if n % every == 0 and not j.fix:
            with j.during("child"):
                told = subprocess.check_output(tool, stdin=subprocess.DEVNULL,
                                               preexec_fn=dies_with(os.getpid()))
                warm = 0.9 * warm + 0.1 * float(told)


@job(data="main_thread_loading page_fault_io", host="host_bound",
     rest="transfer_bound sync_bound")
def audit_trail(j):
    """Screening under regulation: each few steps all weights are read back and hashed."""
    ms, every, piece = j.ms("gpu_ms", 14, 45), j.int("every", 1, 3), 4 << 20
    hash_ms, rows = ms * every * j.ms("hash_share", 0.5, 1.4), j.int("rows", 128, 400)
    chance = np.random.default_rng(j.int("shuffle", 1, 1 << 30))
    gpu, weights = j.gpu(ms, piece), np.ones(piece, np.uint8)
    begin = time.thread_time()
    for _ in range(4):
        hashlib.sha256(weights).digest()
    pieces = max(round(hash_ms / ((time.thread_time() - begin) * 250)), 1)
    chance.integers(0, 256, (4096, 4096), np.uint8).tofile(j.path("fingerprints.bin"))
    table = np.asarray(np.memmap(j.path("fingerprints.bin"), np.uint8, "r", shape=(4096, 4096)))
    trail = open(j.path("audit.log"), "w", encoding="utf-8")
    table.sum()  # it is in memory from here on
    j.go()
    for n in itertools.count(1):
        j.step(gpu, lambda: table[chance.integers(0, 4096, rows)])
        if n % every or j.fix:
            continue
        digest = hashlib.sha256()
        for _ in range(pieces):
            gpu.check(gpu.lib.cudaMemcpy(weights.ctypes.data, gpu.input, piece, 2))
            with j.during("host"):
                digest.update(weights)
        with j.during("host"):
            trail.write(digest.hexdigest() + "\n")
            trail.flush()


@job(data=CPU, threads=True, host="host_bound", rest="sync_bound launch_bound")
def live_recipe(j):
    """Before each step a plant's recipe file is read anew: somebody might have edited a rate."""
    ms, size = j.ms("gpu_ms", 15, 60), j.int("floats", 60000, 300000)
    recipe_ms = ms * j.ms("recipe_share", 0.35, 1.2)
    load_ms = ms * j.ms("load_share", 0.1, 0.35)
    gpu, out, path = j.gpu(ms, 4 * size), queue.Queue(6), j.path("recipe.json")

    def write(entries):
        rules = [{"layer": "block.%d.weight" % i,
                  "points": [[k * 1000, 0.1 / (i + k + 1)] for k in range(8)]}
                 for i in range(entries)]
        with open(path, "w", encoding="utf-8") as f:
            json.dump(rules, f)

    def rates(step):
        with open(path, encoding="utf-8") as f:
            rules = json.load(f)
        return {r["layer"]: max((p for p in r["points"] if p[0] <= step), default=[0, 0.1])[1]
                for r in rules}

    def photograph():
        while True:
            decode(load_ms)
            out.put(np.zeros(size, np.float32))
    write(300)
    begin = time.thread_time()
    for _ in range(3):
        rate = rates(0)
    write(max(round(300 * recipe_ms / ((time.thread_time() - begin) * 1e3 / 3)), 20))
    edited = os.stat(path).st_mtime_ns
    in_thread(photograph)
    j.go()
    for n in itertools.count():
        j.step(gpu, out.get)
        with j.during("host"):
            if not j.fix or os.stat(path).st_mtime_ns != edited:
                rate = rates(n)
            if not rate:
                raise ValueError("the recipe is empty")


@job(data="main_thread_loading", rest="launch_bound host_bound")
def bond_loop(j):
    """Messages between atoms, bond by bond: Python looks up each bond and launches its kernel."""
    bonds, atoms = j.int("bonds", 500, 900), j.int("atoms", 250, 400)
    ms, size = bonds * j.ms("kernel_us", 8, 12) / 1e3, j.int("floats", 50000, 100000)
    gpu = j.gpu(ms, 4 * size, 24 if j.fix else bonds)
    library = np.zeros((32, size), np.float32)
    j.go()
    for n in itertools.count():
        j.mark()
        with j.during("data"):
            x = library[n % 32]
        if j.fix:  # all bonds at once, as a sparse product
            j.train(gpu, x)
            continue
        gpu.upload(x.ctypes.data, x.nbytes)
        for bond in range(bonds):
            near = sorted((atom * 7919 + bond + n) % 97 for atom in range(atoms))
            gpu.launch(0 if 2 * bond < bonds else 1, 1 if near else 0)
        gpu.loss_item()


# ---- the device is busy


@job(data=CPU, threads=True, rest="sync_bound launch_bound")
def unordered_crew(j):
    """Scenes in any order, for two models on two streams: one thread is slow and nobody waits."""
    ms, size = j.ms("gpu_ms", 20, 70), j.int("floats", 60000, 500000)
    usual, ages = ms * j.ms("usual_share", 0.15, 0.4), ms * j.ms("ages_times", 10, 30)
    fields = j.gpu(ms, 4 * size, j.int("field_launches", 10, 60))
    clouds = j.gpu(ms * j.ms("cloud_share", 0.3, 0.8), 4 * size, j.int("cloud_launches", 10, 40))
    lib, side, out = fields.lib, c_void_p(), queue.Queue(8)
    fields.check(lib.cudaStreamCreate(byref(side)))
    clouds.stream = side

    def scene(cost):
        full = 0
        while True:
            decode(cost)
            x = np.zeros(size, np.float32)
            while True:
                try:
                    out.put(x, timeout=0.02)
                    break
                except queue.Full:
                    full += 1
    for cost in (usual, ages, usual):
        in_thread(scene, cost)
    j.go()
    while True:
        j.mark()
        with j.during("data"):
            x = out.get()
        clouds.enter_thread()
        j.train(clouds, x, item=False)
        fields.enter_thread()
        j.train(fields, x)
        clouds.sync(False)


@job(data="main_thread_loading", rest="sync_bound launch_bound")
def under_kernels(j):
    """Speech: the main thread itself makes the next batch, while the kernels of this one run."""
    ms, size = j.ms("gpu_ms", 25, 100), j.int("floats", 60000, 400000)
    gpu, cost = j.gpu(ms, 4 * size, j.int("launches", 10, 60)), ms * j.ms("share", 0.3, 0.7)
    every, rounds = j.int("validate_every", 20, 60), j.int("rounds", 3, 8)
    held_out = np.zeros(size, np.float32)

    def features():
        parse(cost)
        return np.zeros(size, np.float32)
    x = features()
    j.go()
    for n in itertools.count(1):
        j.mark()
        j.train(gpu, x, item=False)
        with j.during("data"):
            coming = features()
        gpu.loss_item()
        x = coming
        if n % every == 0:
            for _ in range(rounds):
                j.mark("micro")
                gpu.upload(held_out.ctypes.data, held_out.nbytes)
                gpu.forward()
                gpu.loss_item()


SLOTS = 4


def play(ring, size, free, full, cost):
    game = bytes(size)
    for n in itertools.count():
        parse(cost)
        os.eventfd_read(free)
        ring[n % SLOTS * size:(n % SLOTS + 1) * size] = game
        os.eventfd_write(full, 1)


@job(data=CPU, rest="sync_bound launch_bound")
def restarting_helper(j):
    """Games come in time by shared memory; a thread restarts a recorder that ends all the time."""
    ms, size = j.ms("gpu_ms", 20, 90), j.int("kib", 200, 2000) << 10
    cost, life = ms * j.ms("load_share", 0.1, 0.5), j.ms("life_ms", 20, 150) / 1e3
    pause = j.ms("pause_ms", 50, 200) / 1e3
    ring = mmap.mmap(-1, SLOTS * size)
    free, full = os.eventfd(SLOTS, os.EFD_SEMAPHORE), os.eventfd(0, os.EFD_SEMAPHORE)
    child(play, ring, size, free, full, cost)
    gpu, games = j.gpu(ms, size), np.frombuffer(ring, np.uint8).reshape(SLOTS, size)

    def supervise():
        with open(j.path("supervisor.log"), "w", encoding="utf-8") as log:
            while True:
                recorder = subprocess.Popen(["sleep", "%.3f" % life], stdin=subprocess.DEVNULL,
                                            preexec_fn=dies_with(os.getpid()))
                log.write("recorder ended with %d, restarting\n" % recorder.wait())
                log.flush()
                os.fsync(log.fileno())
                time.sleep(pause)
    in_thread(supervise)
    j.go()
    for n in itertools.count():
        j.mark()
        with j.during("data"):
            os.eventfd_read(full)
        j.train(gpu, games[n % SLOTS])
        os.eventfd_write(free, 1)
