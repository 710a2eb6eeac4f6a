# SPDX-License-Identifier: BSD-2-Clause
"""Jobs out of today's workshops: feeds, trainers and habits that know no DataLoader."""
import collections
import concurrent.futures
import ctypes
import faulthandler
import functools
import io
import itertools
import json
import mmap
import multiprocessing
import multiprocessing.connection
import os
import queue
import random
import socket
import struct
import subprocess
import tarfile
import threading
import time

import numpy as np

from stranger import CPU, child, decode, job, mortal, now, parse


class Ring:
    """Batches in shared memory, handed over with two semaphores."""

    def __init__(self, kib, slots=4):
        shape = (slots, kib << 8)
        self.cells = np.frombuffer(mmap.mmap(-1, slots * kib << 10), np.float32).reshape(shape)
        self.free, self.full = multiprocessing.Semaphore(slots), multiprocessing.Semaphore(0)
        self.turn = itertools.cycle(range(slots))

    def fill(self, cost):
        while True:
            self.free.acquire()
            decode(cost)
            self.cells[next(self.turn)] = 1
            self.full.release()

    def take(self):
        self.full.acquire()
        x = self.cells[next(self.turn)].copy()
        self.free.release()
        return x


def ringed(j, ms, low=0.05, high=0.3):
    """A process that needs this share of the device's time for a batch: take, and its pid."""
    ring = Ring(j.int("batch_kib", 200, 2000))
    return ring.take, child(ring.fill, ms * j.ms("load_share", low, high)).pid


# ---- a supplier that is too slow


def actor(store, size, cost, link):
    """Maps blocks, each into a place of the store that nobody reads."""
    places = np.frombuffer(store, np.uint8)
    while True:
        place = link.recv()
        decode(cost)
        places[place * size:(place + 1) * size] = place
        link.send(place)


def raylet(one, other):
    """Passes on what the two say, and nothing else."""
    while True:
        for link in multiprocessing.connection.wait([one, other]):
            (other if link is one else one).send(link.recv())


@job(data=CPU, host="host_bound", rest="sync_bound launch_bound")
def object_store_blocks(j):
    """Ray-like: an actor maps blocks in shared memory, a raylet tells where; the loop also logs."""
    ms, per_block = j.ms("gpu_ms", 8, 45), j.int("batches_per_block", 1, 4)
    load, log = ms * j.ms("load_share", 1.8, 3), ms * j.ms("log_share", 0.03, 0.3)
    batch, places = j.int("batch_kib", 50, 700) << 10, 3
    store = mmap.mmap(-1, places * per_block * batch)
    ours, left = multiprocessing.Pipe()
    right, theirs = multiprocessing.Pipe()
    j.supplier(child(actor, store, per_block * batch,
                     (load / 10 if j.fix else load) * per_block, theirs).pid)
    child(raylet, left, right)
    gpu = j.gpu(ms, input_bytes=4 << 20)
    rows = np.frombuffer(store, np.uint8).reshape(places, per_block, batch)

    def iterate():
        for place in range(places):
            ours.send(place)
        while True:
            place = ours.recv()
            for x in rows[place]:
                yield x.astype(np.float32)
            ours.send(place)
    batches = iterate()
    j.go()
    while True:
        j.step(gpu, lambda: next(batches))
        with j.during("host"):
            parse(log)


GRAPH = r"""
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

typedef struct {
    char **item;
    int size, head, used;
    pthread_mutex_t mutex;
    pthread_cond_t more, room;
} Queue;

static Queue records, examples, batches;
static int file, per_batch, map_us, batch_us;
static size_t element, file_size;

static void make(Queue *q, int size)
{
    q->item = calloc(size, sizeof *q->item);
    q->size = size;
    pthread_mutex_init(&q->mutex, NULL);
    pthread_cond_init(&q->more, NULL);
    pthread_cond_init(&q->room, NULL);
}

static void put(Queue *q, char *item)
{
    pthread_mutex_lock(&q->mutex);
    while (q->used == q->size)
        pthread_cond_wait(&q->room, &q->mutex);
    q->item[(q->head + q->used++) % q->size] = item;
    pthread_cond_signal(&q->more);
    pthread_mutex_unlock(&q->mutex);
}

static char *take(Queue *q)
{
    pthread_mutex_lock(&q->mutex);
    while (q->used == 0)
        pthread_cond_wait(&q->more, &q->mutex);
    char *item = q->item[q->head];
    q->head = (q->head + 1) % q->size;
    q->used--;
    pthread_cond_signal(&q->room);
    pthread_mutex_unlock(&q->mutex);
    return item;
}

static int64_t cpu_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return t.tv_sec * 1000000LL + t.tv_nsec / 1000;
}

static void compute(char *data, size_t size, int us)
{
    int64_t end = cpu_us() + us;
    uint32_t hash = 1;
    size = size < 16384 ? size : 16384;
    while (cpu_us() < end)
        for (size_t i = 0; i < size; i++)
            data[i] ^= (hash = hash * 31 + (unsigned char)data[i]) >> 24;
}

static void *reader(void *unused)
{
    pthread_setname_np(pthread_self(), "graph_source");
    for (size_t at = 0;; at = (at + element) % (file_size - element)) {
        char *record = malloc(element);
        if (pread(file, record, element, at) < 0)
            abort();
        put(&records, record);
    }
}

static void *mapper(void *unused)
{
    pthread_setname_np(pthread_self(), "graph_map");
    for (;;) {
        char *record = take(&records);
        compute(record, element, map_us);
        put(&examples, record);
    }
}

static void *batcher(void *unused)
{
    pthread_setname_np(pthread_self(), "graph_batch");
    for (;;) {
        char *batch = malloc(element * per_batch);
        for (int i = 0; i < per_batch; i++) {
            char *example = take(&examples);
            memcpy(batch + i * element, example, element);
            free(example);
        }
        compute(batch, element * per_batch, batch_us);
        put(&batches, batch);
    }
}

static void start(void *(*f)(void *))
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, f, NULL))
        abort();
}

void run(const char *path, long bytes, int mappers, int n, int map, int batch, int depth)
{
    file = open(path, O_RDONLY);
    file_size = lseek(file, 0, SEEK_END);
    per_batch = n, map_us = map, batch_us = batch, element = bytes / n;
    make(&records, 2 * n);
    make(&examples, 2 * n);
    make(&batches, depth);
    start(reader);
    start(batcher);
    while (mappers--)
        start(mapper);
}

void get_next(char *out)
{
    char *batch = take(&batches);
    memcpy(out, batch, element * per_batch);
    free(batch);
}
"""


@job(data=CPU, threads=True, rest="sync_bound launch_bound")
def native_graph(j):
    """tf.data-like: native threads read, map and batch, with bounded buffers between them."""
    ms, mappers, n = j.ms("gpu_ms", 8, 45), j.int("mappers", 1, 2), j.int("per_batch", 4, 16)
    slow, brisk = ms * j.ms("slow_share", 1.5, 3), ms * j.ms("brisk_share", 0.05, 0.25)
    mapping, batching = ((slow, brisk) if j.one("slow_stage", "map", "batch") == "map"
                         else (brisk, slow))
    if j.fix:
        mapping, batching = mapping / 10, batching / 10
    size, depth = (j.int("batch_kib", 200, 2000) << 10) // n * n, j.int("prefetch", 1, 4)
    with open(j.path("graph.c"), "w", encoding="ascii") as f:
        f.write(GRAPH)
    subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-pthread", "-o", j.path("graph.so"),
                    j.path("graph.c")], check=True)
    with open(j.path("records"), "wb") as f:
        f.write(os.urandom(4 << 20))
    gpu, graph = j.gpu(ms, input_bytes=4 << 20), ctypes.CDLL(j.path("graph.so"))
    graph.run(j.path("records").encode(), ctypes.c_long(size), mappers, n,
              int(1e3 * mapping * mappers / n), int(1e3 * batching), depth)

    def get_next():
        x = np.empty(size, np.uint8)
        graph.get_next(ctypes.c_void_p(x.ctypes.data))
        return x
    j.loop(gpu, get_next)


def opened(path, parent):
    """What a URL "pipe:cat shard.tar" stands for."""
    with subprocess.Popen(["cat", path], stdout=subprocess.PIPE,
                          preexec_fn=functools.partial(mortal, parent)) as p:
        with tarfile.open(fileobj=p.stdout, mode="r|") as tar:
            for member in tar:
                yield member.name, tar.extractfile(member).read()


@job(data="main_thread_loading", rest="sync_bound launch_bound")
def pipe_shards(j):
    """WebDataset-like, without workers: tar shards from a pipe, a shuffle buffer, decoding."""
    ms, n = j.ms("gpu_ms", 8, 45), j.int("per_batch", 4, 16)
    cost = ms * j.ms("decode_share", 0.5, 2) / n / (10 if j.fix else 1)
    size = (j.int("batch_kib", 200, 700) << 10) // n
    shards, samples = j.int("shards", 2, 4), min(j.int("samples", 40, 160), (10 << 20) // size)
    chance, buffered = random.Random(j.int("order", 0, 999)), j.int("buffer", 20, 100)
    for shard in range(shards):
        with tarfile.open(j.path("shard-%d.tar" % shard), "w") as tar:
            for sample in range(samples):
                for kind, body in ("json", b'{"caption": "a page"}'), ("bin", os.urandom(size)):
                    info = tarfile.TarInfo("%06d.%s" % (sample, kind))
                    info.size = len(body)
                    tar.addfile(info, io.BytesIO(body))

    def raw():
        while True:
            half = {}
            for name, body in opened(j.path("shard-%d.tar" % chance.randrange(shards)),
                                     os.getpid()):
                half[name.rpartition(".")[2]] = body
                if len(half) == 2:
                    yield half
                    half = {}

    def shuffled():
        buffer = []
        for sample in raw():
            buffer.append(sample)
            if len(buffer) > buffered:
                n = chance.randrange(len(buffer))
                buffer[n], buffer[-1] = buffer[-1], buffer[n]
                yield buffer.pop()

    def decoded():
        for sample in shuffled():
            json.loads(sample["json"])
            decode(cost)
            yield np.frombuffer(sample["bin"], np.uint8)
    source, gpu = decoded(), j.gpu(ms, input_bytes=4 << 20)
    next(source)  # fills the buffer
    j.loop(gpu, lambda: np.stack(list(itertools.islice(source, n))).astype(np.float32))


def simulate(ms, kib):
    """Euler's method; the stiffer the equation, the smaller the steps."""
    end, x = time.thread_time_ns() + int(ms * 1e6), np.full(256, 0.5)
    while time.thread_time_ns() < end:
        x += 1e-3 * x * (1 - x)
    return np.resize(x, kib << 8).astype(np.float32)


@job(data="slow_item", rest="sync_bound launch_bound")
def stiff_simulator(j):
    """Simulation-based inference: two simulators, in order; a few parameters are stiff."""
    ms, kib = j.ms("gpu_ms", 6, 30), j.int("batch_kib", 200, 1500)
    quick, share = ms * j.ms("quick_share", 0.1, 0.3), j.ms("stiff_share", 8, 20)
    stiff = ms if j.fix else ms * share  # else the simulator gives up
    group, chance = int(1.2 * share), random.Random(j.int("order", 0, 999))

    def costs():
        while True:
            at = chance.randrange(group)
            yield from (stiff if n == at else quick for n in range(group))
    pool = concurrent.futures.ProcessPoolExecutor(2, initializer=mortal,
                                                  initargs=(os.getpid(),))
    cost = costs()
    ahead = collections.deque(pool.submit(simulate, next(cost), kib) for _ in range(3))

    def obtain():
        ahead.append(pool.submit(simulate, next(cost), kib))
        return ahead.popleft().result()
    obtain()
    j.loop(j.gpu(ms, input_bytes=4 << 20), obtain)


def row_groups(j):
    """A data service that answers late, and some requests never."""
    late, lost = (float(word) for word in j.told("plan").split())
    door, asked = socket.create_server(("127.0.0.1", 0)), itertools.count(1)
    j.tell("port", door.getsockname()[1])

    def serve(link, n):
        chance = random.Random(n)
        while ask := link.recv(8):
            if lost and next(asked) % lost == 0:
                link.recv(1)  # until the client hangs up
                break
            time.sleep(late / 1e3 * chance.uniform(0.8, 1.2))
            try:
                link.sendall(bytes(struct.unpack("<Q", ask)[0]))
            except OSError:
                break
        link.close()
    for n in itertools.count():
        threading.Thread(target=serve, args=(door.accept()[0], n), daemon=True).start()


@job(outside=row_groups, data="network_bound too_few_workers", threads=True,
     rest="sync_bound launch_bound")
def retrying_reader(j):
    """A thread asks a data service for row groups; with no answer in time it asks again."""
    ms, parts, size = j.ms("gpu_ms", 8, 40), j.int("parts", 2, 5), j.int("batch_kib", 200, 2000)
    late, lost = ms * j.ms("late_share", 1.4, 2.2) / parts, j.int("lost_one_in", 5, 12)
    backoff, size = j.ms("backoff_ms", 1, 4), (size << 10) // parts
    if j.fix:
        late, lost = late / 10, 0
    j.tell("plan", "%f %d" % (late, lost))
    port, ready = int(j.told("port")), queue.Queue(maxsize=j.int("prefetch", 1, 3))

    def connected():
        link = socket.create_connection(("127.0.0.1", port), timeout=max(3 * late, 12) / 1e3)
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return link

    def ask(link, where):
        link.sendall(struct.pack("<Q", size))
        while where:
            got = link.recv_into(where)
            if got == 0:
                raise ConnectionError
            where = where[got:]

    def read():
        link = None
        while True:
            batch = np.empty(parts * size, np.uint8)
            for part in range(parts):
                while True:
                    try:
                        link = link or connected()
                        ask(link, memoryview(batch)[part * size:(part + 1) * size])
                        break
                    except OSError:
                        if link:
                            link.close()
                        link = None
                        time.sleep(backoff / 1e3)
            ready.put(batch)
    gpu = j.gpu(ms, input_bytes=4 << 20)
    threading.Thread(target=read, daemon=True).start()
    j.loop(gpu, ready.get)


# ---- a loop that is slow by itself


class Callback:
    def on_substep_end(self, state):
        pass

    def on_step_end(self, state):
        pass


class StateFile(Callback):
    """trainer_state.json with the whole history of the logs, after each step."""

    def __init__(self, path, ms):
        self.path, self.ms, self.history = path, ms, collections.deque(maxlen=50)

    def on_step_end(self, state):
        self.history.append(dict(state))
        parse(self.ms)  # a history of some thousand rows
        with open(self.path + ".part", "w", encoding="utf-8") as f:
            json.dump(list(self.history), f)
        os.rename(self.path + ".part", self.path)


class EarlyStop(Callback):
    """Has the metric got better? It is computed in Python, from texts."""

    def __init__(self, every, ms):
        self.every, self.ms, self.best = every, ms, None

    def on_step_end(self, state):
        if state["step"] % self.every == 0:
            parse(self.ms * self.every)
            self.best = min(self.best or state["loss"], state["loss"])


class Progress(Callback):
    """The file that a dashboard reads."""

    def __init__(self, path):
        self.path = path

    def on_substep_end(self, state):
        with open(self.path, "w", encoding="ascii") as f:
            f.write("%(step)d %(loss)g\n" % state)


@job(data=CPU, host="host_bound", rest="sync_bound launch_bound")
def trainer_callbacks(j):
    """Like Hugging Face's Trainer, with accumulation; one of its callbacks is slow."""
    ms, accumulate = j.ms("gpu_ms", 5, 25), j.int("accumulate", 1, 3)
    slow, brisk = ms * accumulate * j.ms("slow_share", 0.4, 1.3), j.ms("brisk_ms", 0.1, 0.5)
    every, which = j.int("early_every", 1, 6), j.one("slow", "state", "early")
    if j.fix:
        slow = brisk
    take, gpu = ringed(j, ms)[0], j.gpu(ms, input_bytes=4 << 20)
    callbacks = [Progress(j.path("progress")),
                 StateFile(j.path("state.json"), slow if which == "state" else brisk),
                 EarlyStop(every, slow if which == "early" else brisk)]
    state = {"step": 0, "loss": 0.0, "lr": 1e-4}
    j.go()
    while True:
        j.mark()
        for _ in range(accumulate):
            j.mark("micro")
            with j.during("data"):
                x = take()
            gpu.upload(x.ctypes.data, x.nbytes)
            gpu.forward()
            gpu.backward()
            for callback in callbacks:
                callback.on_substep_end(state)
        gpu.optimizer()
        gpu.loss_item()
        with j.during("host"):
            state.update(step=state["step"] + 1, loss=gpu.loss.value)
            for callback in callbacks:
                callback.on_step_end(state)


def reward_model(link, ms):
    """Has a device of its own: little of its time is spent on a core."""
    while True:
        answers = link.recv_bytes()
        parse(ms * 0.15)
        time.sleep(ms * 0.85 / 1e3)
        link.send_bytes(answers[:256])


@job(data=CPU, child="host_bound", rest="sync_bound launch_bound")
def ppo_reward(j):
    """RLHF: answers are generated, a process with the reward model scores them, then PPO."""
    long, brief = j.ms("generate_ms", 6, 30), j.ms("update_ms", 4, 10)
    epochs, tokens = j.int("epochs", 1, 4), j.int("tokens", 4, 24)
    total = long + epochs * brief
    score, lag = total * j.ms("score_share", 0.35, 1), 1 if j.fix else 0
    link, theirs = multiprocessing.Pipe()
    child(reward_model, theirs, score)
    take = ringed(j, total, 0.02, 0.1)[0]
    policy = j.gpu(long, launches=tokens * j.int("launches_per_token", 1, 6))
    learner = j.gpu(brief, launches=j.int("update_launches", 10, 60), input_bytes=4 << 20)
    answers, rewards, waiting = np.zeros(8000, np.int64), np.zeros(64, np.float32), 0
    j.go()
    while True:
        j.mark()
        with j.during("data"):
            prompts = take()
        policy.enter_thread()
        policy.upload(prompts.ctypes.data, prompts.nbytes)
        for _ in range(tokens):
            policy.launch(0, policy.launches // tokens)
        policy.loss_item()
        with j.during("child"):
            link.send_bytes(answers)
            waiting += 1
            while waiting > lag:  # with a lag, PPO learns from the answers before
                rewards = np.frombuffer(link.recv_bytes(), np.float32)
                waiting -= 1
        learner.enter_thread()
        learner.upload(rewards.ctypes.data, rewards.nbytes)
        for _ in range(epochs):
            j.mark("micro")
            j.train(learner, item=False)
        learner.loss_item()


@job(data=CPU, host="host_bound", rest="transfer_bound sync_bound launch_bound")
def tables_on_host(j):
    """A recommender: its embedding tables are in host memory, looked up and updated there."""
    ms, rows = j.ms("gpu_ms", 8, 45), j.int("rows_k", 40, 120) << 10
    look_ms, update_ms = ms * j.ms("look_share", 0.1, 0.4), ms * j.ms("update_share", 0.4, 1.2)
    take, gpu = ringed(j, ms)[0], j.gpu(ms, input_bytes=4 << 20)
    table, grads = np.ones((rows, 64), np.float32), np.zeros((2048, 64), np.float32)
    ids = np.random.default_rng(1).integers(0, rows, (64, 2048))

    def look_up(ids):
        end = time.thread_time_ns() + int(look_ms * 1e6)
        while True:
            bags = table[ids].reshape(-1, 16, 64).sum(1)
            if time.thread_time_ns() >= end:
                return bags

    def update(ids):
        end = time.thread_time_ns() + int(update_ms * 1e6)
        for at in itertools.cycle(range(0, 2048, 64)):
            np.subtract.at(table, ids[at:at + 64], grads[at:at + 64])
            if time.thread_time_ns() >= end:
                break
    j.go()
    for n in itertools.count():
        j.mark()
        with j.during("data"):
            dense = take()
        gpu.upload(dense.ctypes.data, dense.nbytes)
        gpu.forward()  # the part that needs no tables
        if not j.fix:
            with j.during("host"):
                bags = look_up(ids[n % 64])
            gpu.upload(bags.ctypes.data, bags.nbytes)
        gpu.backward()
        gpu.optimizer()
        gpu.loss_item()
        if not j.fix:
            gpu.check(gpu.lib.cudaMemcpy(grads.ctypes.data, gpu.input, grads.nbytes, 2))
            with j.during("host"):
                update(ids[n % 64])


@job(data=CPU, host="host_bound sync_bound", rest="sync_bound launch_bound host_bound")
def clip_per_layer(j):
    """Each layer's gradient norm is read; Python finds its clipping and its learning rate."""
    ms, layers = j.ms("gpu_ms", 8, 70), j.int("layers", 5, 40)
    each = ms * j.ms("clip_share", 0.35, 1) / layers
    take, gpu = ringed(j, ms, 0.1, 0.5)[0], j.gpu(ms, input_bytes=4 << 20)
    norms = j.gpu(0.03 * layers, launches=layers)
    j.go()
    while True:
        j.mark()
        with j.during("data"):
            x = take()
        gpu.enter_thread()
        gpu.upload(x.ctypes.data, x.nbytes)
        gpu.forward()
        gpu.backward()
        norms.enter_thread()
        for _ in range(layers):
            norms.launch(2, 1)
            if not j.fix:
                norms.loss_item()
                with j.during("host"):
                    parse(each)
        gpu.enter_thread()
        gpu.optimizer()
        gpu.loss_item()


@job(data=CPU, ckpt="checkpoint_stall", rest="sync_bound launch_bound")
def shards_fsynced(j):
    """A sharded checkpoint, each file synced to slow storage; the loader lags a little too."""
    ms, every, size = j.ms("gpu_ms", 8, 40), j.int("every", 4, 12), j.int("shard_kib", 64, 1024)
    save_ms = ms * every * j.ms("save_share", 0.6, 1.3)
    take, pid = ringed(j, ms, 1.1, 1.25)
    j.supplier(pid)
    gpu, shard = j.gpu(ms, input_bytes=4 << 20), np.ones(size << 8, np.float32)

    def save():
        end = now() + int(save_ms * 1e6)
        for n in itertools.count():
            path = j.path("shard-%d" % (n % 16))
            with open(path + ".part", "wb") as f:
                f.write(shard)
                f.flush()
                os.fsync(f.fileno())
            os.rename(path + ".part", path)
            if now() >= end:
                break
    j.go()
    for n in itertools.count(1):
        j.step(gpu, take)
        if n % every == 0 and not j.fix:
            with j.during("ckpt"):
                save()


# ---- nothing is wrong


@job(data="main_thread_loading", rest="sync_bound launch_bound")
def windows_ahead(j):
    """Time series: the loop itself cuts windows from a columnar file, while the device works."""
    ms, columns, rows = j.ms("gpu_ms", 25, 100), j.int("columns", 8, 24), j.int("rows_k", 64, 256)
    length, cost = j.int("length", 96, 512), ms * j.ms("window_share", 0.3, 0.7)
    rows, chance = rows << 10, np.random.default_rng(j.int("order", 0, 999))
    with open(j.path("columns"), "wb") as f:
        for n in range(columns):
            f.write(np.full(rows, n, np.float32))
    table = np.memmap(j.path("columns"), np.float32, "r", shape=(columns, rows))
    gpu = j.gpu(ms, input_bytes=4 << 20)

    def windows():
        end = time.thread_time_ns() + int(cost * 1e6)
        at = chance.integers(0, rows - length, 64)[:, None] + np.arange(length)
        x = np.stack([column[at] for column in np.asarray(table)])
        for column in itertools.cycle(x):
            column -= np.cumsum(column, 1) / length  # rolling means, and the like
            if time.thread_time_ns() >= end:
                return x
    x = windows()
    j.go()
    while True:
        j.mark()
        j.train(gpu, x, item=False)
        with j.during("data"):
            x = windows()  # for the next step
        gpu.loss_item()


@job(data=CPU, rest="sync_bound launch_bound")
def noisy_watchdog(j):
    """A healthy loop; threads watch it, dump its stacks and sync a progress file all the time."""
    ms, every = j.ms("gpu_ms", 20, 100), j.int("item_every", 1, 6)
    poll, dump = j.ms("poll_ms", 2, 15), j.int("dump_every", 10, 60)
    pause = j.ms("sync_ms", 50, 500)
    take, gpu = ringed(j, ms, 0.1, 0.6)[0], j.gpu(ms, input_bytes=4 << 20)
    lock, beat = threading.Condition(), {"step": 0, "at": now()}

    def watch():
        with open(j.path("stacks"), "w", encoding="utf-8") as log:
            for n in itertools.count(1):
                with lock:
                    lock.wait(poll / 1e3)
                    late = now() - beat["at"] > 30e9
                for task in os.listdir("/proc/self/task"):
                    with open("/proc/self/task/%s/stat" % task, encoding="ascii") as f:
                        f.read()
                if late or n % dump == 0:
                    log.seek(0)
                    faulthandler.dump_traceback(log)

    def report():
        while True:
            with open(j.path("progress.part"), "w", encoding="utf-8") as f:
                json.dump(beat, f)
                f.flush()
                os.fsync(f.fileno())
            os.rename(j.path("progress.part"), j.path("progress"))
            time.sleep(pause / 1e3)
    for f in watch, report:
        threading.Thread(target=f, daemon=True).start()
    j.go()
    for n in itertools.count(1):
        j.mark()
        with j.during("data"):
            x = take()
        j.train(gpu, x, item=n % every == 0)
        with lock:
            beat.update(step=n, at=now())
            lock.notify_all()
