# SPDX-License-Identifier: BSD-2-Clause
"""Jobs that feed their device as the big frameworks do, with the machinery made by hand."""
import ctypes
import fcntl
import http.client
import http.server
import itertools
import json
import mmap
import multiprocessing
import os
import queue
import random
import sqlite3
import statistics
import subprocess
import threading
import time

import numpy as np

from stranger import CPU, child, decode, job, now

NATIVE = r"""
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

static double clock_ms(clockid_t id)
{
	struct timespec t;
	clock_gettime(id, &t);
	return t.tv_sec * 1e3 + t.tv_nsec / 1e6;
}

static uint32_t chance(uint32_t *x)
{
	*x ^= *x << 13, *x ^= *x >> 17, *x ^= *x << 5;
	return *x;
}

static void turns(long n, uint8_t *out, size_t size)
{
	uint32_t x = 2463534242u;
	size_t at = 0;
	while (n-- > 0) {
		out[at] = chance(&x);
		if (++at == size)
			at = 0;
	}
}

static double per_ms = 1;

__attribute__((constructor)) static void calibrate(void)
{
	static uint8_t scratch[1 << 16];
	for (int i = 0; i < 8; i++) {
		double t = clock_ms(CLOCK_THREAD_CPUTIME_ID);
		turns(500000, scratch, sizeof scratch);
		t = 500000 / (clock_ms(CLOCK_THREAD_CPUTIME_ID) - t);
		per_ms = t > per_ms ? t : per_ms;
	}
}

static inline void churn(double ms, uint8_t *out, size_t size)
{
	turns(ms * per_ms, out, size);
}

static inline uint8_t *pages_of(size_t size)
{
	return mmap(NULL, size, PROT_READ | PROT_WRITE,
		    MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
}

static inline void spawn(void *(*f)(void *), long n, const char *name)
{
	pthread_t t;
	pthread_create(&t, NULL, f, (void *)n);
	pthread_setname_np(t, name);
	pthread_detach(t);
}
"""
FILE_MIB, PAGE, ROW = 32, 4096, 128


def built(j, source):
    with open(j.path("harbour.c"), "w", encoding="ascii") as f:
        f.write(NATIVE + source)
    subprocess.run(["cc", "-O2", "-pthread", "-shared", "-fPIC", "-o", j.path("harbour.so"),
                    j.path("harbour.c")], check=True)
    lib = ctypes.CDLL(j.path("harbour.so"))
    lib.next_batch.restype = ctypes.c_void_p
    lib.release.restype, lib.release.argtypes = None, [ctypes.c_void_p]
    return lib


def native_loop(j, gpu, lib, size):
    j.go()
    while True:
        j.mark()
        with j.during("data"):
            batch = lib.next_batch()
        gpu.upload(batch, size)
        lib.release(batch)
        j.train(gpu)


def feed(out, cost, floats):
    while True:
        decode(cost)
        out.put(np.zeros(floats, np.float32))


def steady(j, ms):
    """A loader process that needs a small part of the time that the device needs."""
    out = multiprocessing.Queue(4)
    child(feed, out, ms * j.ms("load_share", 0.08, 0.3), j.int("kfloats", 50, 150) * 1000)
    return out.get


# ---- stages, of which the slow one is not next to the loop


STAGES = r"""
#define ITEMS 16
struct item {
	uint8_t *bytes;
	long number;
};

struct belt {
	pthread_mutex_t lock;
	pthread_cond_t filled, emptied;
	struct item *at[ITEMS];
	unsigned in, out, depth;
};

static struct item items[ITEMS];
static struct belt spare, raw, mapped, ordered, ready;
static size_t size;
static double read_ms, map_ms, pin_ms;
static uint8_t *records, *base;

static void belt_open(struct belt *b, unsigned depth)
{
	pthread_mutex_init(&b->lock, NULL);
	pthread_cond_init(&b->filled, NULL);
	pthread_cond_init(&b->emptied, NULL);
	b->in = b->out = 0;
	b->depth = depth;
}

static void lay(struct belt *b, struct item *i)
{
	pthread_mutex_lock(&b->lock);
	while (b->in - b->out == b->depth)
		pthread_cond_wait(&b->emptied, &b->lock);
	b->at[b->in++ % ITEMS] = i;
	pthread_cond_signal(&b->filled);
	pthread_mutex_unlock(&b->lock);
}

static struct item *lift(struct belt *b)
{
	pthread_mutex_lock(&b->lock);
	while (b->in == b->out)
		pthread_cond_wait(&b->filled, &b->lock);
	struct item *i = b->at[b->out++ % ITEMS];
	pthread_cond_signal(&b->emptied);
	pthread_mutex_unlock(&b->lock);
	return i;
}

static void *interleave(void *arg)
{
	for (long n = 0;; n++) {
		struct item *i = lift(&spare);
		memcpy(i->bytes, records, size);
		churn(read_ms, i->bytes, size);
		i->number = n;
		lay(&raw, i);
	}
	return arg;
}

static void *map(void *arg)
{
	for (;;) {
		struct item *i = lift(&raw);
		churn(map_ms, i->bytes, size);
		lay(&mapped, i);
	}
	return arg;
}

static void *restore(void *arg)
{
	struct item *held[ITEMS] = {0}, *i;
	for (long next = 0;;) {
		i = lift(&mapped);
		held[i->number % ITEMS] = i;
		while ((i = held[next % ITEMS])) {
			held[next++ % ITEMS] = NULL;
			lay(&ordered, i);
		}
	}
	return arg;
}

static void *pin(void *arg)
{
	for (;;) {
		struct item *i = lift(&ordered);
		churn(pin_ms, i->bytes, size);
		lay(&ready, i);
	}
	return arg;
}

uint8_t *next_batch(void)
{
	return lift(&ready)->bytes;
}

void release(uint8_t *bytes)
{
	lay(&spare, &items[(bytes - base) / size]);
}

void start(size_t bytes, int mappers, double reads, double maps, double pins)
{
	size = bytes, read_ms = reads, map_ms = maps, pin_ms = pins;
	records = pages_of(size);
	base = pages_of(size * ITEMS);
	belt_open(&spare, ITEMS);
	belt_open(&raw, 3);
	belt_open(&mapped, 2);
	belt_open(&ordered, 2);
	belt_open(&ready, 2);
	for (int i = 0; i < ITEMS; i++) {
		items[i].bytes = base + i * size;
		lay(&spare, &items[i]);
	}
	spawn(interleave, 0, "interleave");
	while (mappers--)
		spawn(map, mappers, "parallel_map");
	spawn(restore, 0, "in_order");
	spawn(pin, 0, "pin_memory");
}
"""


@job(data=CPU, threads=True, rest="sync_bound launch_bound")
def berth_stages(j):
    """tf.data in C: interleave, map, order and pin on threads; one of the far stages is slow."""
    ms, size = j.ms("gpu_ms", 8, 40), j.int("kib", 200, 1500) << 10
    gpu, slow = j.gpu(ms, input_bytes=size), j.one("slow_stage", "interleave", "map")
    mappers, late = j.int("mappers", 1, 2), j.ms("late", 1.5, 2.4)
    quick, pin = ms * j.ms("quick_share", 0.05, 0.15), ms * j.ms("pin_share", 0.02, 0.06)
    reads, maps = quick, quick * mappers
    if slow == "interleave" and not j.fix:
        reads = ms * late
    elif not j.fix:
        maps = ms * late * mappers
    lib = built(j, STAGES)
    lib.start(ctypes.c_size_t(size), mappers, ctypes.c_double(reads), ctypes.c_double(maps),
              ctypes.c_double(pin))
    native_loop(j, gpu, lib, size)


def quay(j):
    """An object store that answers byte ranges late, or sends them slowly."""
    wait, how = j.told("quay").split()
    wait, body = float(wait) / 1e3, bytes(1 << 20)

    class Store(http.server.BaseHTTPRequestHandler):
        protocol_version, disable_nagle_algorithm = "HTTP/1.1", True

        def do_GET(self):
            first, last = map(int, self.headers["Range"].split("=")[1].split("-"))
            many, pieces, begin = last - first + 1, 10, time.monotonic()
            if how == "answer":
                time.sleep(wait)
            self.send_response(206)
            self.send_header("Content-Length", str(many))
            self.end_headers()
            for n in range(pieces):
                if how == "send":
                    due = begin + wait * (n + 1) / pieces
                    time.sleep(max(due - time.monotonic(), 0))
                self.wfile.write(body[n * many // pieces:(n + 1) * many // pieces])

        def log_message(self, *_):
            pass
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Store)
    j.tell("port", server.server_address[1])
    server.serve_forever()


def tow(port, folder, parts, size):
    """Brings shards into the cache folder, range by range, three ahead at most."""
    link = http.client.HTTPConnection("127.0.0.1", port)
    for n in itertools.count():
        while len(os.listdir(folder)) > 2:
            time.sleep(0.005)
        path = "%s/%08d" % (folder, n)
        with open(path + ".part", "wb") as f:
            for part in range(parts):
                at = (n * parts + part) * size
                link.request("GET", "/train.mds",
                             headers={"Range": "bytes=%d-%d" % (at, at + size - 1)})
                f.write(link.getresponse().read())
        os.rename(path + ".part", path)


def unload(out, folder, parts, size, cost):
    for n in itertools.count():
        path = "%s/%08d" % (folder, n)
        while not os.path.exists(path):
            time.sleep(0.007)
        with open(path, "rb") as f:
            for _ in range(parts):
                decode(cost)
                out.put(np.frombuffer(f.read(size), np.uint8))
        os.unlink(path)


@job(outside=quay, data="network_bound too_few_workers", rest="sync_bound launch_bound")
def barge_shards(j):
    """A streaming dataset: one process downloads shards, another polls for them and unpacks."""
    ms, size = j.ms("gpu_ms", 10, 45), j.int("kib", 200, 500) << 10
    gpu, parts, late = j.gpu(ms), j.int("parts", 1, 3), j.ms("late", 1.7, 2.8)
    how, cost = j.one("slow_to", "answer", "send"), ms * j.ms("unpack_share", 0.05, 0.2)
    folder, out = j.path("shards"), multiprocessing.Queue(2)
    os.mkdir(folder)
    j.tell("quay", "%f %s" % (ms * (0.2 if j.fix else late), how))
    port = int(j.told("port"))
    j.supplier(child(tow, port, folder, parts, size).pid)
    child(unload, out, folder, parts, size, cost)
    j.loop(gpu, out.get)


def reorder(chance, lengths):
    """Shuffled, then by length so that a batch needs little padding."""
    order = list(range(len(lengths)))
    chance.shuffle(order)
    order.sort(key=lengths.__getitem__)
    return order


def reorder_quick(chance, lengths):
    order = chance.permutation(len(lengths))
    return order[np.argsort(lengths[order], kind="stable")]


def draw_rows(out, lengths, steps, cost, floats, seed, quick):
    if quick:
        chance, f = np.random.default_rng(seed), reorder_quick
    else:
        chance, lengths, f = random.Random(seed), lengths.tolist(), reorder
    while True:
        order = f(chance, lengths)
        for n in range(steps):
            decode(cost)
            out.put(np.full(floats, order[n], np.float32))


def collate(rows, out, cost):
    while True:
        x = rows.get()
        decode(cost)
        out.put(x)


@job(data="slow_item " + CPU, rest="sync_bound launch_bound")
def manifest_reshuffle(j):
    """Two processes in a row; the far one sorts a large manifest in Python after each epoch."""
    ms, floats = j.ms("gpu_ms", 8, 20), j.int("kfloats", 50, 150) * 1000
    gpu, steps, late = j.gpu(ms), j.int("epoch_steps", 15, 30), j.ms("late", 0.7, 1.3)
    cost, seed = ms * j.ms("load_share", 0.05, 0.15), j.int("order_seed", 1, 10**6)
    trial, chance, best = [n * 7919 % 509 for n in range(200000)], random.Random(seed), 1e9
    for _ in range(2):
        begin = now()
        reorder(chance, trial)
        best = min(best, (now() - begin) / 1e6 / len(trial))
    # The buffers hold seven batches or so.
    rows = j.keep("rows", max(20000, min(1500000, int(ms * (7 + steps * late) / best))))
    lengths = np.random.default_rng(seed).integers(1, 512, rows).astype(np.int16)
    drawn, out = multiprocessing.Queue(3), multiprocessing.Queue(2)
    j.supplier(child(draw_rows, drawn, lengths, steps, cost, floats, seed, j.fix).pid)
    child(collate, drawn, out, cost)
    out.get()  # the first order has been made
    j.loop(gpu, out.get)


# ---- makers, of whom one is slow, or who wait for one another


def sailor(link, cost, size):
    state = np.zeros(size, np.uint8)
    while True:
        state[:64] = link.recv() % 251
        decode(cost)
        link.send_bytes(state)


@job(data="slow_worker", rest="sync_bound launch_bound")
def roll_call_actors(j):
    """Ray-like actors with two calls in flight each, got in turn; one is far slower."""
    ms, size, crew = j.ms("gpu_ms", 8, 30), j.int("kib", 200, 400) << 10, j.int("crew", 3, 4)
    gpu, late, slow = j.gpu(ms), j.ms("late", 1.5, 2.4), j.int("slow", 0, crew - 1)
    quick, links = ms * j.ms("quick_share", 0.1, 0.4), []
    x = np.zeros(size, np.uint8)
    for n in range(crew):
        theirs, mine = multiprocessing.Pipe()
        late_one = n == slow and not j.fix
        p = child(sailor, theirs, ms * late * crew if late_one else quick, size)
        if n == slow:
            j.supplier(p.pid)
        mine.send(n)
        mine.send(n + crew)
        links.append(mine)
    turn = itertools.cycle(links)

    def obtain():
        link = next(turn)
        link.recv_bytes_into(x)
        link.send(len(j.rows))
        return x
    j.loop(gpu, obtain)


def sluice(out, stream, gate, cpu, card, own, size):
    """gate: the file with the place in the stream, which is locked meanwhile."""
    stream, at = os.open(stream, os.O_RDONLY), 0
    length = os.fstat(stream).st_size
    gate = gate and os.open(gate, os.O_RDWR)
    while True:
        if gate:
            fcntl.lockf(gate, fcntl.LOCK_EX)
            at = int.from_bytes(os.pread(gate, 8, 0), "little")
        block = os.pread(stream, size, at % length)
        decode(cpu)
        time.sleep(card / 1e3)
        at += size
        if gate:
            os.pwrite(gate, at.to_bytes(8, "little"), 0)
            fcntl.lockf(gate, fcntl.LOCK_UN)
        decode(own)
        out.put(np.frombuffer(block, np.uint8))


@job(data="lock_bound", rest="sync_bound launch_bound")
def sluice_gzip(j):
    """Three processes share one compressed stream: who inflates the next block has a lockf."""
    ms, size = j.ms("gpu_ms", 10, 40), j.one("kib", 256, 512) << 10
    gpu, held = j.gpu(ms), ms * j.ms("late", 1.6, 2.2)
    card, own = held * j.ms("card_share", 0.5, 0.7), ms * j.ms("own_share", 0.03, 0.12)
    stream, gate, out = j.path("stream.gz"), j.path("stream.at"), multiprocessing.Queue(4)
    with open(stream, "wb") as f:
        f.write(j.random.randbytes(1 << 20) * 4)
    with open(gate, "wb") as f:
        f.write(bytes(8))
    for _ in range(3):  # in the fixed job each has a stream of its own
        child(sluice, out, stream, None if j.fix else gate, held - card, card, own, size)
    j.loop(gpu, out.get)


class Undertow:
    """Rows of a table on the disk, looked up one by one past the page cache."""

    def __init__(self, path, seed):
        self.file, self.page = os.open(path, os.O_RDONLY | os.O_DIRECT), mmap.mmap(-1, PAGE)
        self.view, self.chance = np.frombuffer(self.page, np.uint8, ROW), random.Random(seed)

    def rows(self, many, together=1):
        rows = np.empty((many, ROW), np.uint8)
        for n in range(0, many, together):
            at = self.chance.randrange((FILE_MIB << 20) // PAGE)
            os.preadv(self.file, [self.page], at * PAGE)
            rows[n:n + together] = self.view
        return rows

    def each(self):
        """Milliseconds a row."""
        spans = []
        for _ in range(20):
            begin = now()
            self.rows(20)
            spans.append((now() - begin) / 20e6)
        return statistics.median(spans)


def look_up(out, path, seed, many, together):
    table = Undertow(path, seed)
    while True:
        out.put(table.rows(many, together))


@job(data="io_bound slow_worker too_few_workers", rest="sync_bound launch_bound")
def two_currents(j):
    """Two loaders mixed by weight: one has batches waiting, the rarer one reads row by row."""
    ms, share = j.ms("gpu_ms", 8, 20), j.ms("weight", 0.25, 0.45)
    gpu, late, seed = j.gpu(ms), j.ms("late", 1.6, 2.4), j.int("table_seed", 1, 10**6)
    path = j.data_file("harbours.bin", FILE_MIB)
    each = Undertow(path, seed).each()
    many = j.keep("reads", max(60, min(16000, int(ms * late / share / each))))
    often, rare = steady(j, ms), multiprocessing.Queue(3)
    j.supplier(child(look_up, rare, path, seed + 1, many, 20 if j.fix else 1).pid)
    j.loop(gpu, lambda: rare.get() if j.random.random() < share else often())


# ---- the batches come in time, and the loop is slow for something else


@job(data=CPU, threads=True, host="host_bound lock_bound", rest="sync_bound transfer_bound")
def ballast_adam(j):
    """A thread of the process updates offloaded weights, and the loop waits for it each step."""
    ms, size = j.ms("gpu_ms", 12, 60), j.int("kib", 300, 800) << 10
    gpu, share = j.gpu(ms, input_bytes=1 << 20), j.ms("update_share", 0.6, 0.9)
    cost, path = ms * j.ms("load_share", 0.05, 0.2), j.data_file("harbours.bin", FILE_MIB)
    down = np.zeros(1 << 16, np.float32)
    grad, m, v, w, t = (np.ones(1 << 18, np.float32) for _ in range(5))
    batches, todo, done = queue.Queue(4), queue.SimpleQueue(), queue.SimpleQueue()

    def update():
        np.multiply(m, 0.9, out=m)
        np.add(m, grad, out=m)
        np.multiply(grad, grad, out=t)
        np.multiply(v, 0.99, out=v)
        np.add(v, t, out=v)
        np.sqrt(v, out=t)
        np.add(t, 1e-6, out=t)
        np.divide(m, t, out=t)
        np.subtract(w, t, out=w)
    spans = []
    for _ in range(8):
        begin = now()
        update()
        spans.append((now() - begin) / 1e6)
    groups = j.keep("groups", max(1, round(ms * share / min(spans))))

    def optimize():
        while True:
            todo.get()
            for _ in range(groups):
                update()
            done.put(None)

    def read():
        file = os.open(path, os.O_RDONLY)
        for n in itertools.count():
            block = os.pread(file, size, n * size % (FILE_MIB << 20))
            decode(cost)
            batches.put(np.frombuffer(block, np.uint8))
    for f in optimize, read:
        threading.Thread(target=f, daemon=True).start()
    if j.fix:
        done.put(None)  # from here on the weights are one step old, and nobody waits
    j.go()
    while True:
        j.mark()
        with j.during("data"):
            x = batches.get()
        gpu.upload(x.ctypes.data, x.nbytes)
        gpu.forward()
        gpu.backward()
        gpu.check(gpu.lib.cudaMemcpy(down.ctypes.data, gpu.input, down.nbytes, 2))
        todo.put(None)
        with j.during("host"):
            done.get()
        gpu.upload(w.ctypes.data, down.nbytes)
        gpu.optimizer()


def ledger(j):
    db = sqlite3.connect(j.path("runs.db"), timeout=60, isolation_level=None)
    db.execute("PRAGMA journal_mode=MEMORY")
    db.execute("PRAGMA synchronous=OFF")
    return db


def dashboard(j):
    """Shows the runs, and keeps its transaction open until the page has been sent."""
    hold, pause = map(float, j.told("ledger").split())
    db = ledger(j)
    j.told("go")
    while True:
        db.execute("BEGIN EXCLUSIVE")
        db.execute("SELECT tag, AVG(value) FROM (SELECT * FROM scalars ORDER BY rowid DESC"
                   " LIMIT 200) GROUP BY tag").fetchall()
        decode(hold * 0.1)
        time.sleep(hold * 0.9 / 1e3)
        db.execute("COMMIT")
        time.sleep(pause / 1e3)


@job(outside=dashboard, data=CPU, lock="lock_bound host_bound", rest="sync_bound launch_bound")
def harbour_ledger(j):
    """Each step writes its scalars into a SQLite file, which a dashboard locks again and again."""
    ms, tags = j.ms("gpu_ms", 15, 30), j.int("tags", 3, 20)
    gpu, batch = j.gpu(ms), steady(j, ms)
    hold, pause = ms * j.ms("hold", 1.2, 2), ms * j.ms("pause", 0.8, 1.5)
    db = ledger(j)
    db.execute("CREATE TABLE scalars (step, tag, value)")
    rows = queue.SimpleQueue()

    def write(into, values):
        into.execute("BEGIN EXCLUSIVE")
        into.executemany("INSERT INTO scalars VALUES (?, ?, ?)", values)
        into.execute("COMMIT")

    def write_all():
        own = ledger(j)
        while True:
            write(own, rows.get())
    if j.fix:
        db.close()
        threading.Thread(target=write_all, daemon=True).start()
    j.tell("ledger", "%f %f" % (hold, pause))
    j.go()
    for n in itertools.count():
        j.step(gpu, batch)
        with j.during("lock"):
            values = [(n, tag, float(gpu.loss.value)) for tag in range(tags)]
            if j.fix:
                rows.put(values)
            else:
                write(db, values)


def voyage(mailbox, out, episode):
    """An environment that runs in real time; new weights are looked for between episodes."""
    while True:
        news = False
        while mailbox.poll():
            mailbox.recv_bytes()
            news = True
        if news:
            mailbox.send_bytes(b"ok")
        time.sleep(episode * 0.95 / 1e3)
        decode(episode * 0.05)
        try:
            out.put_nowait(np.zeros(84 * 84, np.float32))
        except queue.Full:
            pass  # the learner has enough


@job(data="main_thread_loading", host="host_bound", rest="sync_bound launch_bound")
def convoy_ack(j):
    """Off-policy RL: replay never waits, but each step waits until all actors have the weights."""
    ms, many = j.ms("gpu_ms", 12, 50), j.int("batch", 16, 48)
    gpu, episode = j.gpu(ms, input_bytes=2 << 20), ms * j.ms("episode", 1.8, 2.8)
    weights, actors = bytes(j.int("weights_kib", 8, 30) << 10), j.int("actors", 2, 3)
    out, mail = multiprocessing.Queue(8), []
    replay = [np.zeros(84 * 84, np.float32) for _ in range(64)]
    for _ in range(actors):
        theirs, mine = multiprocessing.Pipe()
        child(voyage, theirs, out, episode)
        mail.append(mine)
    j.go()
    while True:
        j.mark()
        with j.during("data"):
            try:
                while True:
                    replay.append(out.get_nowait())
            except queue.Empty:
                pass
            del replay[:-64]
            x = np.stack(j.random.sample(replay, many))
        j.train(gpu, x)
        with j.during("host"):
            for link in mail:
                link.send_bytes(weights)
            for link in mail:
                if not j.fix:
                    link.recv_bytes()
                while j.fix and link.poll():
                    link.recv_bytes()


def fill(shared, made, room, cost):
    for n in itertools.count():
        room.acquire()
        decode(cost)
        shared[n % len(shared)] = n % 251
        made.release()


@job(data=CPU, child="host_bound", host="host_bound", rest="sync_bound launch_bound")
def gauge_probe(j):
    """Every few steps the loop runs a program that tells the device's temperature, and waits."""
    ms, size = j.ms("gpu_ms", 12, 45), j.int("kib", 300, 2000) << 10
    gpu, every, late = j.gpu(ms, input_bytes=size), j.int("every", 1, 3), j.ms("late", 0.6, 1.3)
    cost, depth = ms * j.ms("load_share", 0.08, 0.3), j.int("depth", 3, 5)
    probe, options, last = j.path("smi.sh"), j.path("options.json"), None
    with open(probe, "w", encoding="ascii") as f:
        f.write("read -r up </proc/uptime\nsleep %.4f\necho \"$up, 71, 40536\"\n"
                % (ms * every * late / 1e3))
    with open(options, "w", encoding="ascii") as f:
        json.dump({"lr": 1e-3, "clip": 1.0, "notes": "x" * 2000}, f)
    shared = np.frombuffer(mmap.mmap(-1, size * depth), np.uint8).reshape(depth, size)
    made, room = multiprocessing.Semaphore(0), multiprocessing.Semaphore(depth)
    child(fill, shared, made, room, cost)
    j.go()
    for n in itertools.count():
        j.mark()
        with j.during("data"):
            made.acquire()
            x = shared[n % depth]
        j.train(gpu, x)
        room.release()
        with j.during("host"):
            with open(options, encoding="ascii") as f:
                json.load(f)
        if n % every:
            continue
        with j.during("child"):
            if not j.fix:
                subprocess.run(["sh", probe], stdout=subprocess.PIPE, check=False)
            elif last is None or last.poll() is not None:
                last = subprocess.Popen(["sh", probe], stdout=subprocess.DEVNULL)


# ---- nothing is wrong, and it looks as if


@job(data=CPU, threads=True, host="host_bound", rest="sync_bound launch_bound")
def tugboat_dispatch(j):
    """As in JAX a thread dispatches, the loop waits for room; a mapped cache fills up meanwhile."""
    ms, floats = j.ms("gpu_ms", 20, 90), j.int("kfloats", 60, 400) * 1000
    gpu, cost = j.gpu(ms, input_bytes=4 * floats), ms * j.ms("load_share", 0.35, 0.65)
    items, flight = j.int("items", 10, 24), threading.Semaphore(j.int("in_flight", 2, 3))
    chance, batches = random.Random(j.int("order_seed", 1, 10**6)), queue.Queue(4)
    cache = np.memmap(j.path("cache.f32"), np.float32, "w+", shape=(items, floats))
    work = queue.SimpleQueue()

    def load():
        full, order = set(), list(range(items))
        while True:
            chance.shuffle(order)
            for i in order:
                if i not in full:
                    decode(cost)
                    cache[i] = i
                    full.add(i)
                batches.put(np.array(cache[i]))

    def dispatch():
        gpu.enter_thread()
        while True:
            j.train(gpu, work.get())
            flight.release()
    for f in load, dispatch:
        threading.Thread(target=f, daemon=True).start()
    j.go()
    while True:
        j.mark()
        with j.during("data"):
            x = batches.get()
        with j.during("host"):
            flight.acquire()
        work.put(x)


COMPLETIONS = r"""
#define PAGE 4096
#define SLOTS 8
static int file, reads;
static uint32_t pages;
static uint8_t *base;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t is_asked = PTHREAD_COND_INITIALIZER;
static int wanted[SLOTS];
static unsigned asked, begun, reaped;
static _Atomic unsigned completed;
static _Atomic int done[SLOTS];

static int read_page(uint8_t *to, uint32_t *x)
{
	return pread(file, to, PAGE, (off_t)(chance(x) % pages) * PAGE) != PAGE;
}

static void *reader(void *arg)
{
	uint32_t x = 1000003u * (uint32_t)((long)arg + 1);
	for (;;) {
		pthread_mutex_lock(&lock);
		while (asked == begun)
			pthread_cond_wait(&is_asked, &lock);
		int n = wanted[begun++ % SLOTS];
		pthread_mutex_unlock(&lock);
		for (int i = 0; i < reads; i++)
			read_page(base + ((size_t)n * reads + i) * PAGE, &x);
		unsigned place = atomic_fetch_add(&completed, 1) % SLOTS;
		atomic_store(&done[place], n + 1);
	}
	return arg;
}

static void ask(int n)
{
	pthread_mutex_lock(&lock);
	wanted[asked++ % SLOTS] = n;
	pthread_cond_broadcast(&is_asked); /* one would do */
	pthread_mutex_unlock(&lock);
}

uint8_t *next_batch(void)
{
	int n;
	while ((n = atomic_exchange(&done[reaped % SLOTS], 0)) == 0)
		usleep(200);
	reaped++;
	return base + (size_t)(n - 1) * reads * PAGE;
}

void release(uint8_t *bytes)
{
	ask((bytes - base) / ((size_t)reads * PAGE));
}

double prepare(const char *path)
{
	file = open(path, O_RDONLY | O_DIRECT | O_CLOEXEC);
	if (file < 0)
		return -1;
	pages = lseek(file, 0, SEEK_END) / PAGE;
	uint8_t *page = pages_of(PAGE);
	uint32_t x = 7u;
	double t = clock_ms(CLOCK_MONOTONIC);
	for (int i = 0; i < 400; i++)
		if (read_page(page, &x))
			return -1;
	return (clock_ms(CLOCK_MONOTONIC) - t) / 400;
}

void start(int threads, int count)
{
	reads = count;
	base = pages_of((size_t)SLOTS * reads * PAGE);
	for (int i = 0; i < SLOTS; i++)
		ask(i);
	while (threads--)
		spawn(reader, threads, "io_pool");
}
"""


@job(data="io_bound too_few_workers", threads=True, rest="sync_bound launch_bound")
def dock_completions(j):
    """A C pool reads page by page from the disk all the time, its ring is polled; it keeps up."""
    ms, share, threads = j.ms("gpu_ms", 20, 80), j.ms("load_share", 0.2, 0.4), j.int("pool", 3, 6)
    lib = built(j, COMPLETIONS)
    lib.prepare.restype = ctypes.c_double
    each = lib.prepare(j.data_file("harbours.bin", FILE_MIB).encode())
    if each <= 0:
        raise OSError("the file cannot be read past the page cache")
    reads = j.keep("reads", max(8, min(1000, int(ms * share / each))))
    gpu = j.gpu(ms, input_bytes=reads * PAGE)
    lib.start(threads, reads)
    native_loop(j, gpu, lib, reads * PAGE)
