# SPDX-License-Identifier: BSD-2-Clause
"""Jobs that are fed in ways of their own: most of the numbers let the device starve, and some
of them do not, as the share of the load in a step is drawn on both sides of one."""
import ctypes
import http.client
import http.server
import itertools
import mmap
import multiprocessing
import os
import queue
import socket
import subprocess
import threading
import time
import zlib

import numpy as np

from loaders import torch_data
from stranger import CPU, decode, job

# ---- over the network


def hub(j):
    """Serves pages of rows over HTTP, at the rate of a far line."""
    rows, row, each = map(float, j.told("page").split())

    class Pages(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self):
            self.send_response(200)
            self.send_header("Content-Length", str(int(rows * row)))
            self.end_headers()
            due = time.monotonic()
            for _ in range(int(rows)):
                due += each / 1e3
                time.sleep(max(due - time.monotonic(), 0))
                self.wfile.write(bytes(int(row)))

        def log_message(self, *_):
            pass
    server = http.server.HTTPServer(("127.0.0.1", 0), Pages)
    j.tell("port", server.server_address[1])
    server.serve_forever()


@job(outside=hub, data="network_bound", rest="sync_bound launch_bound")
def hub_rows(j):
    """A dataset is streamed from a hub, page by page; a thread shuffles it in a buffer."""
    ms, many, row = j.ms("gpu_ms", 8, 40), j.int("batch", 4, 16), j.int("kib", 4, 40) << 10
    gpu, rows, deep = j.gpu(ms), j.int("page", 20, 100), many * j.int("buffer", 2, 8)
    each = ms / many * j.ms("line_share", 0.4, 3)
    j.tell("page", "%d %d %f" % (rows, row, each / 10 if j.fix else each))
    port, ready = int(j.told("port")), queue.Queue(maxsize=3)

    def stream():
        link = http.client.HTTPConnection("127.0.0.1", port)
        for offset in itertools.count(0, rows):
            link.request("GET", "/rows?offset=%d&length=%d" % (offset, rows))
            page = link.getresponse()
            for _ in range(rows):
                yield np.frombuffer(page.read(row), np.uint8)

    def shuffled():
        buffer, batch = [], []
        for x in stream():
            if len(buffer) < deep:
                buffer.append(x)
                continue
            at = j.random.randrange(deep)
            batch.append(buffer[at])
            buffer[at] = x
            if len(batch) == many:
                ready.put(np.stack(batch))
                batch = []
    j.go()
    threading.Thread(target=shuffled, daemon=True).start()
    while True:
        j.step(gpu, ready.get)


# ---- programs in C

# Renders frames, into a ring (its semaphores come first) or to the standard output.
FRAMES = """
#include <fcntl.h>
#include <semaphore.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

static double spent(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return t.tv_sec * 1e3 + t.tv_nsec / 1e6;
}

static void render(unsigned char *to, size_t size, double cost)
{
    unsigned x = 1;
    for (double end = spent() + cost; spent() < end;)
        for (size_t n = 0; n < 20000; n++)
            to[n * 64 % size] += x = x * 1664525 + 1013904223;
}

static void ring(const char *path, double cost, size_t size, size_t slots)
{
    int fd = open(path, O_RDWR);
    char *at = mmap(NULL, 4096 + slots * size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    sem_t *empty = (sem_t *)at, *filled = (sem_t *)(at + 64);
    for (size_t n = 0;; n++) {
        while (sem_wait(empty))
            ;
        render((unsigned char *)at + 4096 + n % slots * size, size, cost);
        sem_post(filled);
    }
}

static void stream(size_t frames, double cost, size_t size)
{
    char *frame = calloc(1, size);
    while (frames--) {
        render((unsigned char *)frame, size, cost);
        for (size_t done = 0; done < size;) {
            ssize_t wrote = write(1, frame + done, size - done);
            if (wrote <= 0)
                return;
            done += wrote;
        }
    }
}

int main(int n, char **args)
{
    double cost = atof(args[2]);
    if (n > 4)
        ring(args[1], cost, atol(args[3]), atol(args[4]));
    else
        stream(atol(args[1]), cost, atol(args[3]));
    return 0;
}
"""


def frames_program(j):
    subprocess.run(["cc", "-O1", "-pthread", "-xc", "-o", j.path("frames"), "-"], check=True,
                   input=FRAMES, text=True)
    return j.path("frames")


@job(data=CPU, threads=True, rest="sync_bound launch_bound")
def semaphore_ring(j):
    """A renderer in C, started by the trainer, fills a ring; two semaphores count the slots."""
    ms, size, slots = j.ms("gpu_ms", 5, 40), j.int("kib", 50, 1000) << 10, j.int("slots", 2, 6)
    gpu, cost = j.gpu(ms), ms * j.ms("render_share", 0.4, 3)
    libc, path = ctypes.CDLL(None), j.path("ring")
    with open(path, "wb+") as f:
        f.truncate(4096 + slots * size)
        ring = mmap.mmap(f.fileno(), 0)
    empty = ctypes.c_void_p(ctypes.addressof(ctypes.c_char.from_buffer(ring)))
    filled = ctypes.c_void_p(empty.value + 64)
    libc.sem_init(empty, 1, slots)
    libc.sem_init(filled, 1, 0)
    renderer = subprocess.Popen([frames_program(j), path, str(cost / 10 if j.fix else cost),
                                 str(size), str(slots)])
    j.supplier(renderer.pid)
    j.go()
    for n in itertools.count():
        j.mark()
        with j.during("data"):
            while libc.sem_wait(filled):
                pass
            x = np.frombuffer(ring, np.uint8, size, 4096 + n % slots * size)
        j.train(gpu, x)
        libc.sem_post(empty)


@job(data=CPU, rest="sync_bound launch_bound")
def clip_workers(j):
    """Each DataLoader worker starts a decoder for each video, and reads raw frames from it."""
    torch = torch_data()
    ms, size = j.ms("gpu_ms", 10, 40), j.one("frame", 112 * 112 * 3, 224 * 224 * 3)
    clip, many = j.int("frames", 4, 12), j.int("batch", 1, 3)
    gpu, clips, workers = j.gpu(ms), j.int("clips", 3, 10), j.int("workers", 1, 2)
    cost = ms * workers * j.ms("decode_share", 0.4, 2) / clip / many
    command = [frames_program(j), str(clip * clips), str(cost / 10 if j.fix else cost), str(size)]

    class Videos(torch.utils.data.IterableDataset):
        def __iter__(self):
            while True:
                with subprocess.Popen(command, stdout=subprocess.PIPE) as decoder:
                    for _ in range(clips):
                        raw = bytearray(decoder.stdout.read(size * clip))
                        yield torch.frombuffer(raw, dtype=torch.uint8)
    batches = iter(torch.utils.data.DataLoader(Videos(), many, num_workers=workers))
    j.loop(gpu, lambda: next(batches).numpy())


# ---- chunks and stages


@job(data=CPU, rest="sync_bound launch_bound")
def one_of_chunk(j):
    """A chunked array, as Zarr keeps it: for one row a worker unpacks the chunk around it."""
    torch = torch_data()
    gpu, wide, rows = j.gpu(j.ms("gpu_ms", 10, 50)), 8192, j.int("chunk_rows", 10, 150)
    many, workers = j.int("batch", 4, 16), j.int("workers", 1, 2)
    rows, chance = 1 if j.fix else rows, np.random.default_rng(7)
    for n in range(12):
        walk = np.cumsum(chance.integers(-3, 4, (rows, wide)), 1).astype(np.int16)
        with open(j.path("t2m.%d.0" % n), "wb") as f:
            f.write(zlib.compress(walk.tobytes(), 1))

    class Fields(torch.utils.data.Dataset):
        def __len__(self):
            return 10**6

        def __getitem__(self, i):
            with open(j.path("t2m.%d.0" % (i % 12)), "rb") as f:
                chunk = np.frombuffer(zlib.decompress(f.read()), np.int16)
            return torch.from_numpy(chunk.reshape(rows, wide)[i % rows].copy())
    batches = iter(torch.utils.data.DataLoader(Fields(), many, shuffle=True,
                                               num_workers=workers))
    j.loop(gpu, lambda: next(batches).numpy())


def read_samples(out, cost, size):
    while True:
        decode(cost)
        out.sendall(bytes(size))


def collate(links, out, many, cost, size):
    while True:
        batch = [links[n % len(links)].read(size) for n in range(many)]
        decode(cost)
        out.sendall(b"".join(batch))


@job(data=CPU, rest="sync_bound launch_bound")
def two_stages(j):
    """Readers send samples to a collator, and that batches to the loop, over Unix sockets."""
    ms, readers = j.ms("gpu_ms", 8, 40), j.int("readers", 1, 2)
    many, size = readers * j.int("batch", 2, 6), j.int("kib", 20, 200) << 10
    gpu, slow, rest = j.gpu(ms), j.one("slow", "readers", "collator"), ms * j.ms("rest", 0.1, 0.3)
    cost = ms * j.ms("slow_share", 0.5, 2.5) / (10 if j.fix else 1)
    reading, collating = (cost, rest) if slow == "readers" else (rest, cost)
    pids, links, (mine, theirs) = [], [], socket.socketpair()
    for _ in range(readers):
        link, out = socket.socketpair()
        p = multiprocessing.Process(target=read_samples, daemon=True,
                                    args=(out, reading * readers / many, size))
        p.start()
        pids.append(p.pid)
        links.append(link.makefile("rb"))
    p = multiprocessing.Process(target=collate, daemon=True,
                                args=(links, theirs, many, collating, size))
    p.start()
    if slow == "collator":
        j.supplier(p.pid)
    elif readers == 1:
        j.supplier(pids[0])
    stream = mine.makefile("rb")
    j.loop(gpu, lambda: np.frombuffer(stream.read(many * size), np.uint8))


# ---- the loop's own


@job(data="main_thread_loading", rest="sync_bound launch_bound")
def epoch_cache(j):
    """No workers, but a cache: in the first epoch the loop decodes all, later on nothing."""
    ms, share, many = j.ms("gpu_ms", 6, 30), j.ms("load_share", 0.8, 3), j.int("batch", 4, 16)
    gpu, first = j.gpu(ms), j.ms("first_epoch_ms", 1500, 4000)
    files = int(first / (ms + ms * share)) * many
    cost, blank = ms * share / many, np.zeros(3 * 64 * 64, np.uint8)
    cache = dict.fromkeys(range(files), blank) if j.fix else {}
    for n in range(40):
        with open(j.path("%d.jpg" % n), "wb") as f:
            f.write(bytes(j.random.randint(20000, 200000)))

    def item(i):
        if i not in cache:
            with open(j.path("%d.jpg" % (i % 40)), "rb") as f:
                f.read()
            decode(cost)
            cache[i] = blank.copy()
        return cache[i]

    def batches():
        order = list(range(files))
        while True:
            j.random.shuffle(order)
            for n in range(0, files, many):
                yield np.stack([item(i) for i in order[n:n + many]])
    source = batches()
    j.loop(gpu, lambda: next(source))


@job(data="main_thread_loading host_bound", host="host_bound", rest="sync_bound launch_bound")
def loss_priorities(j):
    """Samples lie in memory; which are next is drawn by their last losses, from all of them."""
    gpu, total = j.gpu(j.ms("gpu_ms", 5, 25)), int(j.ms("thousands", 60, 2000) * 1e3)
    many, chance = j.int("batch", 32, 256), np.random.default_rng(3)
    priority, store = chance.random(total), np.zeros((5000, 1024), np.float32)
    sums = np.cumsum(priority)

    def drawn():
        if j.fix:  # sums that are kept, if a little old
            return np.searchsorted(sums, chance.random(many) * sums[-1])
        return chance.choice(total, many, replace=False, p=priority / priority.sum())
    j.go()
    while True:
        j.mark()
        with j.during("data"):
            rows = drawn()
            x = store[rows % len(store)]
        j.train(gpu, x)
        with j.during("host"):
            priority[rows] = abs(gpu.loss.value) + chance.random(len(rows))


# ---- side by side


@job(data=CPU, threads=True, rest="sync_bound launch_bound")
def upload_thread(j):
    """A thread decodes the next batch and uploads it on its own stream to the second buffer."""
    ms, size = j.ms("gpu_ms", 8, 50), j.int("kib", 100, 2000) << 10
    gpu, cost = j.gpu(ms, input_bytes=2 * size), ms * j.ms("decode_share", 0.2, 2)
    lib, side, cost = gpu.lib, ctypes.c_void_p(), cost / 10 if j.fix else cost
    gpu.check(lib.cudaStreamCreate(ctypes.byref(side)))
    empty, full, pinned = queue.Queue(), queue.Queue(), gpu.host_buffer(size)

    def prefetch():
        while True:
            decode(cost)
            ctypes.memset(pinned, 1, size)
            slot = empty.get()
            gpu.check(lib.cudaMemcpyAsync(gpu.input.value + slot * size, pinned, size, 1, side))
            gpu.check(lib.cudaStreamSynchronize(side))
            full.put(slot)
    for slot in range(2):
        empty.put(slot)
    threading.Thread(target=prefetch, daemon=True).start()
    j.go()
    while True:
        j.mark()
        with j.during("data"):
            slot = full.get()
        j.train(gpu)
        empty.put(slot)


@job(data=CPU + " slow_worker", rest="sync_bound launch_bound")
def weighted_mix(j):
    """Each batch comes from one of three loaders, drawn by weight; one of them is heavy."""
    torch = torch_data()
    ms, many, weight = j.ms("gpu_ms", 8, 30), j.int("batch", 2, 8), j.ms("weight", 0.25, 0.6)
    gpu, heavy, light = j.gpu(ms), ms * j.ms("heavy_share", 0.6, 3) / weight, ms * 0.1

    class Source(torch.utils.data.IterableDataset):
        def __init__(self, cost):
            self.cost = cost

        def __iter__(self):
            while True:
                decode(self.cost)
                yield torch.zeros((3, 64, 64), dtype=torch.uint8)
    mix = [iter(torch.utils.data.DataLoader(Source(cost / many), many, num_workers=1))
           for cost in (heavy / 10 if j.fix else heavy, light, light)]
    j.supplier(mix[0]._workers[0].pid)

    def batch():
        n = 0 if j.random.random() < weight else j.random.randint(1, 2)
        return next(mix[n]).numpy()
    j.loop(gpu, batch)
