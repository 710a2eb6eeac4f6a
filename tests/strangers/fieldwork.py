# SPDX-License-Identifier: BSD-2-Clause
"""Jobs of people who build no frameworks: their own files, wires, threads and terminals."""
import asyncio
import bz2
import collections
import concurrent.futures
import ctypes
import fcntl
import gzip
import itertools
import json
import mmap
import multiprocessing
import os
import queue
import random
import socket
import sqlite3
import struct
import subprocess
import sys
import threading
import time
import tty
import zlib
from ctypes import byref, c_void_p

import numpy as np

import job_gpu
from stranger import CPU, child, decode, job, mortal, now

SET_PIPE_SIZE = 1031


def spend(ms, work):
    """Calls work again and again until the thread has computed for so long."""
    end = time.thread_time_ns() + int(ms * 1e6)
    while True:
        result = work()
        if time.thread_time_ns() >= end:
            return result


def compiled(j, name, text):
    source, library = j.path(name + ".c"), j.path(name + ".so")
    with open(source, "w", encoding="ascii") as f:
        f.write(text)
    subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-pthread", "-o", library, source],
                   check=True)
    return ctypes.CDLL(library)


def read_full(fd, view):
    while view:
        got = os.readv(fd, [view])
        if got == 0:
            raise EOFError
        view = view[got:]


class Piped:
    """Raw batches from a process, through a pipe in which a few lie ready."""

    def __init__(self, j, ms, low, high):
        self.size = j.int("batch_kib", 200, 800) << 10
        self.fd, end = os.pipe()
        fcntl.fcntl(end, SET_PIPE_SIZE, 1 << 20)
        child(self.write, end, ms * j.ms("load_share", low, high))
        os.close(end)

    def write(self, fd, cost):
        batch = bytes(self.size)
        with open(fd, "wb", buffering=0) as f:
            while True:
                decode(cost)
                left = memoryview(batch)
                while left:
                    left = left[f.write(left):]

    def take(self):
        x = np.empty(self.size // 4, np.float32)
        read_full(self.fd, memoryview(x).cast("B"))
        return x


# ---- the data comes too late


class ChunkedFile:
    """Shuffled and deflated chunks; one lock around all, the filters too, as in HDF5."""

    def __init__(self, path):
        self.lock, self.file = threading.Lock(), open(path, "rb")
        self.file.seek(-4, os.SEEK_END)
        size, = struct.unpack("<I", self.file.read(4))
        self.file.seek(-4 - size, os.SEEK_END)
        self.index = json.loads(self.file.read(size))

    def __getitem__(self, n):
        with self.lock:
            at, size = self.index[n]
            self.file.seek(at)
            planes = np.frombuffer(zlib.decompress(self.file.read(size)), np.uint8)
            return planes.reshape(4, -1).T.copy().view(np.float32).ravel()

    @staticmethod
    def write(path, chunks):
        index = []
        with open(path, "wb") as f:
            for chunk in chunks:
                planes = chunk.view(np.uint8).reshape(-1, 4).T.copy()
                index.append((f.tell(), f.write(zlib.compress(planes.tobytes(), 1))))
            f.write(json.dumps(index).encode())
            f.write(struct.pack("<I", len(json.dumps(index))))


@job(data="lock_bound", threads=True, rest="sync_bound launch_bound")
def chunked_store(j):
    """A climate model's output: threads read its chunks through one handle, under its lock."""
    ms, readers = j.ms("gpu_ms", 10, 50), j.int("readers", 2, 4)
    held = ms * j.ms("held_share", 1.5, 2.1)
    own = held * j.ms("own_share", 0.05, 0.2)
    chunk, per_batch, chunks = j.int("chunk_kib", 64, 200) << 8, j.int("per_batch", 3, 8), 32
    field = np.random.default_rng(j.int("field", 0, 999))
    ChunkedFile.write(j.path("run.chunks"), (
        field.normal(0, 0.1, chunk).cumsum().round(2).astype(np.float32) for _ in range(chunks)))
    ready, shared = queue.Queue(maxsize=j.int("ahead", 1, 3)), ChunkedFile(j.path("run.chunks"))

    def read(seed):
        store = ChunkedFile(j.path("run.chunks")) if j.fix else shared
        chance = random.Random(seed)
        while True:
            x, slot = np.empty((per_batch, chunk), np.float32), itertools.cycle(range(per_batch))

            def patch():
                x[next(slot)] = store[chance.randrange(chunks)]
            for _ in range(per_batch):
                spend(held / per_batch, patch)
            spend(own, lambda: np.subtract(x, x.mean(), x))
            ready.put(x)
    gpu = j.gpu(ms, input_bytes=4 << 20)
    for n in range(readers):
        threading.Thread(target=read, args=(n,), daemon=True).start()
    j.loop(gpu, ready.get)


class Cases:
    """An async iterator: some cases ahead are in the executor's hands."""

    def __init__(self, load, threads, ahead):
        self.pool, self.load = concurrent.futures.ThreadPoolExecutor(threads), load
        self.numbers = itertools.count()
        self.pending = collections.deque(self.submit() for _ in range(ahead))

    def submit(self):
        return asyncio.get_running_loop().run_in_executor(
            self.pool, self.load, next(self.numbers))

    def __aiter__(self):
        return self

    async def __anext__(self):
        self.pending.append(self.submit())
        return await self.pending.popleft()


@job(data=CPU, threads=True, host="host_bound", rest="sync_bound launch_bound")
def nifti_async(j):
    """Medical volumes from .nii.gz, in an async iterator's executor; the loop counts Dice."""
    ms, threads = j.ms("gpu_ms", 10, 45), j.int("threads", 1, 2)
    cost, patches = ms * j.ms("load_share", 1.6, 2.6) * threads, j.int("patches", 1, 3)
    dice_ms, side = ms * j.ms("dice_share", 0.05, 0.3), j.int("side", 40, 64)
    if j.fix:
        cost /= 10
    shape, scan = (j.int("slices", 24, 36), side, side), np.random.default_rng(1)
    paths = [j.path("case.%s.nii.gz" % name) for name in ("t1", "t2", "flair", "seg")]
    for path in paths:
        with gzip.open(path, "wb") as f:
            f.write(bytes(352))
            f.write((scan.normal(0, 30, shape).cumsum(2)).astype(np.int16).tobytes())

    def volume(path):
        with gzip.open(path, "rb") as f:
            f.seek(352)
            v = np.frombuffer(f.read(), np.int16).astype(np.float32)
        return (v - v.mean()) / (v.std() + 1e-6)

    def load(number):
        x = [spend(cost / patches, lambda: volume(paths[(number + n) % len(paths)]))
             for n in range(patches)]
        return np.stack(x)

    def dice(a, b):
        return 2 * np.count_nonzero(a & b) / (np.count_nonzero(a) + np.count_nonzero(b) + 1)
    gpu, seg = j.gpu(ms, input_bytes=4 << 20), volume(paths[3]) > 0

    async def fit():
        cases = Cases(load, threads, j.int("ahead", 2, 4)).__aiter__()
        j.go()
        while True:
            j.mark()
            with j.during("data"):
                x = await cases.__anext__()
            j.train(gpu, x)
            with j.during("host"):
                spend(dice_ms, lambda: dice(seg, x[0] > 0))
    asyncio.run(fit())


REPLAY = r"""
import itertools
import struct
import sys
import time
import zlib

path, size, cost = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
with open(path, "rb") as f:
    bag = f.read()


def chunks():
    while True:
        at = 0
        while at < len(bag):
            size, = struct.unpack_from("<I", bag, at)
            yield zlib.decompress(bag[at + 4:at + 4 + size])
            at += 4 + size


def frames():
    source = chunks()
    while True:
        end, frame = time.thread_time() + cost, bytearray()
        while len(frame) < size or time.thread_time() < end:
            chunk, near = next(source), 0
            for stamp, topic, x, y, z in struct.iter_unpack("<qIfff", chunk):
                if topic & 1 and x * x + y * y + z * z < 1:
                    near += 1
            frame += chunk
        yield frame[:size]


for frame in frames():
    sys.stdout.buffer.write(frame)
    sys.stdout.buffer.flush()
"""


@job(data="cpu_oversubscribed", host="host_bound",
     rest="sync_bound launch_bound host_bound cpu_oversubscribed")
def bags_on_one_core(j):
    """A robot's logs: two replay programs, on the core to which a script has pinned all."""
    ms = j.ms("gpu_ms", 15, 50)
    each, size = ms * j.ms("replay_share", 0.8, 1.2), j.int("frame_kib", 100, 300) << 10
    map_ms = ms * j.ms("map_share", 0.01, 0.08)
    gpu, point = j.gpu(ms, input_bytes=4 << 20), random.Random(j.int("order", 0, 999))
    with open(j.path("replay.py"), "w", encoding="ascii") as f:
        f.write(REPLAY)
    for topic in "lidar", "camera":
        with open(j.path(topic + ".bag"), "wb") as f:
            for n in range(8):
                chunk = zlib.compress(b"".join(struct.pack(
                    "<qIfff", n, point.randrange(4), *(point.uniform(-1, 1) for _ in "xyz"))
                    for _ in range(2000)))
                f.write(struct.pack("<I", len(chunk)) + chunk)
    if not j.fix:  # the device's own threads are there already
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    parent = os.getpid()
    replays = [subprocess.Popen(
        [sys.executable, j.path("replay.py"), j.path(topic + ".bag"), str(size), str(each / 1e3)],
        stdout=subprocess.PIPE, preexec_fn=lambda: mortal(parent))
        for topic in ("lidar", "camera")]
    for replay in replays:
        fcntl.fcntl(replay.stdout, SET_PIPE_SIZE, 1 << 20)
    grid = np.zeros((64, 64), np.float32)

    def obtain():
        x = np.empty((2, size), np.uint8)
        for row, replay in zip(x, replays):
            read_full(replay.stdout.fileno(), memoryview(row))
        return x
    obtain()
    j.go()
    while True:
        j.step(gpu, obtain)
        with j.during("host"):
            spend(map_ms, lambda: np.maximum(grid * 0.99, 0, grid))


AUDIO = r"""
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

typedef int (*Callback)(const int16_t *pcm, long frames);

static Callback callback;
static long frames, coded_size;
static int64_t block_us;
static const uint8_t *coded;
static int16_t *pcm;
static int step[89];

static int64_t cpu_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return t.tv_sec * 1000000LL + t.tv_nsec / 1000;
}

static int within(int value, int low, int high)
{
    return value < low ? low : value > high ? high : value;
}

static void adpcm(long at)
{
    static const int adjust[8] = {-1, -1, -1, -1, 2, 4, 6, 8};
    int value = 0, index = 0;
    for (long i = 0; i < frames; i++) {
        int nibble = coded[(at + i / 2) % coded_size] >> (i % 2 * 4) & 15;
        int delta = step[index] * (2 * (nibble & 7) + 1) >> 3;
        value = within(value + (nibble & 8 ? -delta : delta), -32768, 32767);
        index = within(index + adjust[nibble & 7], 0, 88);
        pcm[i] = value;
    }
}

static void *stream(void *unused)
{
    pthread_setname_np(pthread_self(), "audio_io");
    for (long at = 0;; at += frames / 2) {
        int64_t end = cpu_us() + block_us;
        do
            adpcm(at);
        while (cpu_us() < end);
        while (callback(pcm, frames))
            usleep(2000);
    }
}

void open_stream(Callback f, const uint8_t *data, long size, long n, long us)
{
    callback = f, coded = data, coded_size = size, frames = n, block_us = us;
    pcm = calloc(n, sizeof *pcm);
    int64_t scaled = 7 << 16;
    for (int i = 0; i < 89; i++, scaled = scaled * 11 / 10)
        step[i] = scaled >> 16;
    pthread_t thread;
    if (pthread_create(&thread, NULL, stream, NULL))
        abort();
}
"""


@job(data=CPU, threads=True, rest="sync_bound launch_bound")
def audio_callback(j):
    """Speech: an audio library's thread decodes and calls back; the loop polls a ring buffer."""
    ms, blocks, cells = j.ms("gpu_ms", 8, 45), j.int("blocks", 4, 16), j.int("cells", 2, 4)
    cost, poll = ms * j.ms("codec_share", 1.5, 2.6), j.ms("poll_ms", 0.5, 3) / 1e3
    if j.fix:
        cost /= 10
    frames = (j.int("batch_kib", 200, 1600) << 8) // blocks
    window, capacity = frames * blocks, frames * blocks * cells
    ring, coded = np.zeros(capacity, np.int16), os.urandom(1 << 20)
    written = taken = 0

    @ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_int16), ctypes.c_long)
    def on_audio(pcm, count):
        nonlocal written
        if written + count - taken > capacity:
            return 1
        at = written % capacity
        ring[at:at + count] = np.ctypeslib.as_array(pcm, (count,))
        written += count
        return 0

    def obtain():
        nonlocal taken
        while written - taken < window:
            time.sleep(poll)
        at = taken % capacity
        x = ring[at:at + window].astype(np.float32)
        taken += window
        return x
    gpu, audio = j.gpu(ms, input_bytes=4 << 20), compiled(j, "audio", AUDIO)
    audio.open_stream(on_audio, coded, ctypes.c_long(len(coded)), ctypes.c_long(frames),
                      ctypes.c_long(int(1e3 * cost / blocks)))
    j.loop(gpu, obtain)


WALKS = r"""
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>

static const int32_t *indptr, *indices;
static long nodes, count;
static int pool;
static int64_t part_us;
static uint32_t seed;
static int32_t *out;
static pthread_barrier_t begin, done;

static int64_t cpu_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return t.tv_sec * 1000000LL + t.tv_nsec / 1000;
}

static uint32_t any(uint32_t *s)
{
    *s ^= *s << 13;
    *s ^= *s >> 17;
    return *s ^= *s << 5;
}

static void walk(int part)
{
    long share = count / pool, at = 0, full = 0;
    int32_t *mine = out + part * share;
    uint32_t s = (seed * pool + part) * 2654435761u | 1;
    int64_t end = cpu_us() + part_us;
    do {
        for (int i = 0; i < 128; i++) {
            int32_t node = any(&s) % nodes;
            for (int hop = 0; hop < 3; hop++) {
                int32_t degree = indptr[node + 1] - indptr[node];
                node = indices[indptr[node] + any(&s) % degree];
            }
            mine[at++] = node;
            if (at == share)
                at = 0, full = 1;
        }
    } while (!full || cpu_us() < end);
}

static void *helper(void *part)
{
    pthread_setname_np(pthread_self(), "walker");
    for (;;) {
        pthread_barrier_wait(&begin);
        walk((int)(intptr_t)part);
        pthread_barrier_wait(&done);
    }
}

void start(const int32_t *p, const int32_t *i, long n, int threads)
{
    indptr = p, indices = i, nodes = n, pool = threads;
    pthread_barrier_init(&begin, NULL, pool);
    pthread_barrier_init(&done, NULL, pool);
    for (int part = 1; part < pool; part++) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, helper, (void *)(intptr_t)part))
            abort();
    }
}

void sample(int32_t *ids, long n, int number, long us)
{
    out = ids, count = n, seed = number, part_us = us;
    pthread_barrier_wait(&begin);
    walk(0);
    pthread_barrier_wait(&done);
}
"""


@job(data="main_thread_loading", threads=True, host="host_bound",
     rest="sync_bound launch_bound")
def neighbour_pool(j):
    """A graph network: the loop calls a sampler with native threads; it also ranks, in Python."""
    ms, nodes = j.ms("gpu_ms", 10, 60), j.int("nodes_k", 60, 200) << 10
    each, gather = ms * j.ms("walk_share", 0.6, 1), j.int("gather", 4, 16)
    count, width = j.int("ids_k", 2, 6) << 10, j.int("width", 32, 64)
    rank_ms, scores = ms * j.ms("rank_share", 0.03, 0.3), [n * 7919 % 997 for n in range(1000)]
    chance = np.random.default_rng(j.int("graph", 0, 999))
    indptr = np.concatenate([[0], chance.integers(2, 20, nodes).cumsum()]).astype(np.int32)
    indices = chance.integers(0, nodes, indptr[-1]).astype(np.int32)
    features = np.ones((nodes, width), np.float32)
    walks, numbers = compiled(j, "walks", WALKS), itertools.count()
    walks.start(c_void_p(indptr.ctypes.data), c_void_p(indices.ctypes.data),
                ctypes.c_long(nodes), 2)

    def sample():
        ids = np.empty(count, np.int32)
        walks.sample(c_void_p(ids.ctypes.data), ctypes.c_long(count), next(numbers),
                     ctypes.c_long(int(1e3 * each)))
        return np.concatenate([features[part] for part in np.array_split(ids, gather)])
    gpu, ready = j.gpu(ms, input_bytes=4 << 20), queue.Queue(maxsize=2)

    def ahead():
        while True:
            ready.put(sample())
    if j.fix:
        threading.Thread(target=ahead, daemon=True).start()
    obtain = ready.get if j.fix else sample
    j.go()
    while True:
        j.step(gpu, obtain)
        with j.during("host"):
            spend(rank_ms, lambda: sorted(scores))


class Tokenizer:
    """Byte pair encoding, word by word, in Python."""

    def __init__(self, chance):
        syllables = [a + b for a in "bdfgklmnprst" for b in "aeiou"]
        self.words = ["".join(chance.choices(syllables, k=chance.randint(1, 5)))
                      for _ in range(2000)]
        pieces = collections.Counter(
            word[i:i + n] for word in self.words for n in (2, 3, 4)
            for i in range(len(word) - n + 1))
        self.ranks = {piece: n for n, (piece, _) in enumerate(pieces.most_common(4000))}
        self.chance = chance

    def encode(self, word):
        parts = list(word)
        while len(parts) > 1:
            rank, at = min((self.ranks.get(a + b, 1 << 20), n)
                           for n, (a, b) in enumerate(zip(parts, parts[1:])))
            if rank == 1 << 20:
                break
            parts[at:at + 2] = [parts[at] + parts[at + 1]]
        return [self.ranks.get(part, 0) for part in parts]

    def text(self):
        return [i for word in self.chance.choices(self.words, k=6) for i in self.encode(word)]


@job(data="lock_bound", threads=True, rest="lock_bound")
def tokenizing_collate(j):
    """An LLM is tuned: two threads tokenize and collate, in Python; the graphs are captured."""
    ms, launches = j.ms("gpu_ms", 20, 70), j.int("launches", 1, 5)
    cost, rows = ms * j.ms("token_share", 1.5, 2.5), j.int("rows", 8, 48)
    length, ready = j.one("length", 1024, 2048), queue.Queue(maxsize=j.int("ahead", 1, 4))

    def collate(seed):
        tokenizer = Tokenizer(random.Random(seed))
        while True:
            batch = np.zeros((3, rows, length), np.int64)  # tokens, mask, labels
            for row in range(rows):
                if j.fix:
                    decode(cost / 3 / rows)  # a native one, which lets go of the lock
                    continue
                ids = spend(cost / rows, tokenizer.text)
                batch[:, row, :len(ids)] = ids
            ready.put(batch)
    gpu = j.gpu(ms, launches=launches, input_bytes=4 << 20)
    for n in range(2):
        threading.Thread(target=collate, args=(n,), daemon=True).start()
    j.go()
    while True:
        j.mark()
        with j.during("data"):
            x = ready.get()
        gpu.upload(x.ctypes.data, x.nbytes)
        gpu.launch(0, launches)
        gpu.loss_item()


def station(door, frames, shared):
    """Has its pictures in memory; sends one in tiles, each of which must be confirmed."""
    link = door.accept()[0]
    for frame in itertools.cycle(frames):
        tile, tiles = struct.unpack("<II", link.recv(8))
        if not tiles:
            shared[:len(frame)] = frame
            link.send(b"k")
        for at in range(0, tile * tiles, tile):
            link.send(frame[at:at + tile])
            link.recv(1)


@job(data="ipc_bound", rest="sync_bound launch_bound")
def tiles_confirmed(j):
    """A time-lapse of images that lie ready, over a Unix socket, tile by tile with a handshake."""
    ms, size = j.ms("gpu_ms", 10, 40), j.int("batch_kib", 300, 2000) << 10
    move_ms = ms * j.ms("move_share", 0.6, 1.6)
    door = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    door.bind(j.path("station"))
    door.listen()
    shared = mmap.mmap(-1, size)
    child(station, door, [memoryview(os.urandom(size)) for _ in range(4)], shared)
    link = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    link.connect(j.path("station"))

    def receive(tile, tiles):
        x = np.empty(tile * tiles, np.uint8)
        view = memoryview(x)
        link.send(struct.pack("<II", tile, tiles))
        for at in range(0, tile * tiles, tile):
            link.recv_into(view[at:at + tile])
            link.send(b"+")
        return x

    def trip():
        begin = now()
        receive(4096, 64)
        return (now() - begin) / 64
    tiles = int(move_ms * 1e6 / min(trip() for _ in range(20)))  # whatever this machine's pace
    tile = size // min(tiles, size // 256)
    tiles = j.keep("tiles", size // tile)

    def obtain():
        if not j.fix:
            return receive(tile, tiles)
        link.send(struct.pack("<II", 1, 0))
        link.recv(1)
        return np.frombuffer(shared, np.uint8).copy()
    j.loop(j.gpu(ms, input_bytes=4 << 20), obtain)


# ---- something else takes the time


def terminal(master, rate):
    """At the far end of a thin line: shows so many bytes a second."""
    due = now()
    while True:
        due = max(due, now()) + int(len(os.read(master, 400)) / rate * 1e9)
        time.sleep(max(due - now(), 0) / 1e9)


@job(data=CPU, host="host_bound", rest="sync_bound launch_bound")
def slow_pty(j):
    """A table of metrics, drawn anew for each step, on a terminal that is slow to show it."""
    ms, lines = j.ms("gpu_ms", 12, 50), j.int("lines", 25, 70)
    show_ms = ms * j.ms("show_share", 1.6, 2.6)
    feed, gpu = Piped(j, ms, 0.3, 0.8), j.gpu(ms, input_bytes=4 << 20)

    def table(n):
        bar = "#" * (n % 40)
        rows = ["\x1b[2K\x1b[36mlayer.%02d\x1b[0m |%-40s| norm %9.6f lr %.2e \x1b[33m%8d\x1b[0m"
                % (i, bar, (n * i) % 997 / 997, 1e-4, n) for i in range(lines)]
        return "\x1b[H" + "\r\n".join(rows)
    master, slave = os.openpty()
    tty.setraw(slave)
    child(terminal, master, len(table(0)) / show_ms * 1e3)
    screen = open(slave, "w", encoding="ascii")
    j.go()
    for n in itertools.count(1):
        j.step(gpu, feed.take)
        if not j.fix or n % 50 == 0:
            with j.during("host"):
                screen.write(table(n))
                screen.flush()


@job(data="main_thread_loading", host="host_bound", rest="sync_bound launch_bound")
def holdout_on_cpu(j):
    """After each short epoch the holdout is unpacked and judged on the CPU, by the loop itself."""
    ms, epoch, rounds = j.ms("gpu_ms", 10, 45), j.int("epoch_steps", 6, 20), j.int("rounds", 3, 8)
    judge_ms = ms * epoch * j.ms("judge_share", 0.5, 1.1) / rounds
    unpack_ms = judge_ms * j.ms("unpack_share", 0.1, 0.35)
    feed, gpu = Piped(j, ms, 0.1, 0.5), j.gpu(ms, input_bytes=4 << 20)
    fields = np.random.default_rng(j.int("fields", 0, 999))
    for n in range(rounds):
        np.savez_compressed(j.path("holdout-%d.npz" % n),
                            x=fields.normal(0, 1, (8, 64, 64)).round(1).astype(np.float32))
    kernel = np.exp(-np.arange(64 * 33) / 500).reshape(64, 33)

    def unpack(n):
        with np.load(j.path("holdout-%d.npz" % n)) as z:
            return z["x"]

    def infer(x):
        return np.maximum(np.fft.irfft2(np.fft.rfft2(x) * kernel), 0).mean()
    j.go()
    while True:
        for _ in range(epoch):
            j.step(gpu, feed.take)
        if j.fix:
            gpu.forward()  # on the device, where it is done in no time
            gpu.loss_item()
            continue
        for n in range(rounds):
            with j.during("data"):
                x = spend(unpack_ms, lambda: unpack(n))
            with j.during("host"):
                spend(judge_ms, lambda: infer(x))


def study(path):
    db = sqlite3.connect(path, timeout=60, isolation_level=None)
    db.execute("PRAGMA journal_mode = MEMORY")
    db.execute("PRAGMA synchronous = OFF")
    return db


def other_trial(j):
    """Another host's trial: it thinks within its transactions."""
    hold, pause = j.ms("hold_ms", 40, 110) / 1e3, j.ms("pause_ms", 30, 60) / 1e3
    db = study(j.told("study"))
    j.told("go")
    for n in itertools.count():
        db.execute("BEGIN IMMEDIATE")
        db.execute("INSERT OR REPLACE INTO reports VALUES (?, ?)", (-1 - n % 100, 0.5))
        time.sleep(hold)
        db.execute("COMMIT")
        time.sleep(pause)


@job(outside=other_trial, data=CPU, lock="host_bound lock_bound", rest="sync_bound launch_bound")
def trial_storage(j):
    """A trial of a search writes its score to SQLite, whose file another trial often locks."""
    ms, every = j.ms("gpu_ms", 12, 50), j.int("report_every", 1, 2)
    feed, gpu = Piped(j, ms, 0.1, 0.6), j.gpu(ms, input_bytes=4 << 20)
    db = study(j.path("study.db"))
    db.execute("CREATE TABLE reports (step INTEGER PRIMARY KEY, score REAL)")
    j.tell("study", j.path("study.db"))
    scores = queue.Queue()

    def report(db, n, score):
        db.execute("INSERT OR REPLACE INTO reports VALUES (?, ?)", (n % 1000, score))

    def reporter():
        own = study(j.path("study.db"))
        while True:
            report(own, *scores.get())
    if j.fix:
        threading.Thread(target=reporter, daemon=True).start()
    j.go()
    for n in itertools.count(1):
        j.step(gpu, feed.take)
        if n % every == 0:
            with j.during("lock"):
                if j.fix:
                    scores.put((n, gpu.loss.value))
                else:
                    report(db, n, gpu.loss.value)


# ---- nothing is wrong


def bursts(link, cells, cost):
    """Makes some batches when asked, and never before."""
    while True:
        link.recv()
        for cell in cells:
            decode(cost)
            cell[:] = 1
        link.send(len(cells))


@job(data=CPU, rest="sync_bound launch_bound")
def burst_dispatch(j):
    """JAX-like: a burst of batches is asked for when the last one's steps have been dispatched."""
    ms, burst = j.ms("gpu_ms", 15, 50), j.int("burst", 3, 6)
    cost, every = ms * j.ms("load_share", 0.35, 0.65), j.int("log_every_bursts", 30, 90)
    floats = j.int("batch_kib", 200, 1000) << 8
    cells = np.frombuffer(mmap.mmap(-1, burst * floats * 4), np.float32).reshape(burst, floats)
    link, theirs = multiprocessing.Pipe()
    child(bursts, theirs, cells, cost)
    gpu = j.gpu(ms, input_bytes=4 * floats)
    pinned, ends = job_gpu.PinnedPool(gpu, burst + 1), [c_void_p() for _ in range(burst)]
    for end in ends:
        gpu.check(gpu.lib.cudaEventCreate(byref(end)))
    numbers = itertools.count()

    def dispatch(x):
        n = next(numbers)
        j.mark()
        end = ends[n % burst]
        if n >= burst:  # not more steps under way than a burst has
            gpu.check(gpu.lib.cudaEventSynchronize(end))
        buffer = pinned.take(x.nbytes)
        np.copyto(np.frombuffer(buffer, np.float32), x)
        gpu.upload(ctypes.addressof(buffer), x.nbytes)
        gpu.forward()
        gpu.backward()
        gpu.optimizer()
        gpu.check(gpu.lib.cudaEventRecord(end, gpu.stream))
    j.go()
    for n in itertools.count(1):
        with j.during("data"):
            link.send(burst)
            link.recv()
        for x in cells:
            dispatch(x)
        if n % every == 0:
            gpu.loss_item()


def archive(pause):
    """Packs old episodes when nobody needs the core."""
    os.nice(19)
    episodes = bytes(range(256)) * 400
    while True:
        bz2.compress(episodes)
        time.sleep(pause / 1e3)


@job(data=CPU, host="host_bound", rest="sync_bound launch_bound")
def rolling_context(j):
    """A world model: its context is copied about on the host all the time, beside the device."""
    ms, floats = j.ms("gpu_ms", 25, 90), j.int("context_mib", 3, 12) << 18
    copies, step = ms * j.ms("copy_share", 0.25, 0.5), j.int("fresh_kib", 50, 500) << 8
    feed, gpu = Piped(j, ms, 0.15, 0.5), j.gpu(ms, input_bytes=4 << 20)
    child(archive, j.ms("pause_ms", 1, 50))
    pinned = np.frombuffer(job_gpu.PinnedPool(gpu, 1).take(feed.size), np.float32)
    context, fresh = np.zeros(floats, np.float32), np.ones(step, np.float32)

    def roll():
        nonlocal context
        context = np.concatenate([context[step:], fresh])
    x = feed.take()
    j.go()
    while True:
        j.mark()
        np.copyto(pinned, x)
        j.train(gpu, pinned, item=False)
        with j.during("host"):
            spend(copies, roll)
        with j.during("data"):
            x = feed.take()
        gpu.loss_item()
