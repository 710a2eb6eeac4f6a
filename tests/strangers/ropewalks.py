# SPDX-License-Identifier: BSD-2-Clause
"""In the ropewalks: loaders as the libraries of the field build them, and what home-grown copies make of that."""
import collections
import concurrent.futures
import ctypes
import fcntl
import heapq
import http.client
import http.server
import itertools
import multiprocessing
import multiprocessing.connection
import os
import queue
import random
import signal
import socket
import threading
import time
from ctypes import byref, c_void_p

import numpy as np

from stranger import CPU, child, decode, job, mortal, parse

MIB = 1 << 20


def took(f):
    """Seconds that f takes where nothing disturbs it."""
    def once():
        begin = time.monotonic()
        f()
        return time.monotonic() - begin
    return min(once() for _ in range(7))


def put(out, cost):
    while True:
        decode(cost)
        out.put(np.zeros(20000, np.float32))


def laid(cost):
    """A loader that keeps up: a process and a queue."""
    out = multiprocessing.Queue(maxsize=4)
    child(put, out, cost)
    return out.get


# ---- the data is late


def strand(link, setup, cost):
    """An actor: its constructor loads a tokenizer and its merges, then it maps batch after batch."""
    decode(setup)
    while True:
        decode(cost)
        link.send(np.zeros(20000, np.float32))


@job(data="loader_restart slow_first_batch", rest="sync_bound launch_bound")
def flapping_pool(s):
    """An autoscaled actor pool as in Ray Data, with a minimum of no actor at all: to blame is that its only actor is
    let go whenever enough batches wait, and the next one's constructor takes longer than these last."""
    ms, enough, tick = s.ms("gpu_ms", 9, 25), s.int("enough", 3, 6), s.ms("tick_ms", 1, 4) / 1e3
    setup, cost = ms * s.ms("setup_steps", 2, 6), ms * s.ms("map_share", 0.1, 0.35)
    gpu, ready = s.gpu(ms), queue.Queue(enough + 1)

    def autoscale():
        while True:
            mine, theirs = multiprocessing.Pipe(duplex=False)
            actor = child(strand, theirs, setup, cost)
            theirs.close()
            while s.fix or ready.qsize() < enough:
                ready.put(mine.recv())
            actor.kill()
            actor.join()
            mine.close()
            while not ready.empty():
                time.sleep(tick)
    threading.Thread(target=autoscale, daemon=True).start()
    s.loop(gpu, ready.get)


class Hub(http.server.BaseHTTPRequestHandler):
    """Far away: tells where a file's bytes are to be had today."""
    protocol_version, disable_nagle_algorithm, late, cdn = "HTTP/1.1", True, 0.0, 0

    def do_GET(self):
        time.sleep(self.late)
        self.send_response(302)
        self.send_header("Location", "http://127.0.0.1:%d/blobs%s" % (self.cdn, self.path))
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


class Edge(Hub):
    """Close by: has the bytes."""
    def do_GET(self):
        first, last = map(int, self.headers["Range"][6:].split("-"))
        self.send_response(206)
        self.send_header("Content-Length", str(last - first + 1))
        self.end_headers()
        self.wfile.write(bytes(last - first + 1))


def far_hub(s):
    Hub.late = float(s.told("late")) / 1e3
    edge = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Edge)
    threading.Thread(target=edge.serve_forever, daemon=True).start()
    Hub.cdn = edge.server_address[1]
    hub = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    s.tell("port", hub.server_address[1])
    hub.serve_forever()


def row_groups(out, port, parts, keep):
    """Reads the row groups of a batch, each a range of another file, and follows where it is sent."""
    links, known = {}, {}

    def get(place, path, head):
        link = links.setdefault(place, http.client.HTTPConnection("127.0.0.1", place))
        link.request("GET", path, headers=head)
        answer = link.getresponse()
        return answer, answer.read()
    for n in itertools.count():
        rows = []
        for part in range(parts):
            path, head = "/part-%d" % part, {"Range": "bytes=%d-%d" % (n << 14, (n + 1 << 14) - 1)}
            where = known.get(path) if keep else None
            if where is None:
                where = known[path] = get(port, path, head)[0].getheader("Location")
            place, blob = where[len("http://127.0.0.1:"):].split("/", 1)
            rows.append(get(int(place), "/" + blob, head)[1])
        out.put(np.frombuffer(b"".join(rows), np.uint8))


@job(outside=far_hub, data="network_bound too_few_workers", rest="sync_bound launch_bound")
def forwarded_hemp(s):
    """Parquet files are streamed from a hub by a process, range by range, a few batches ahead, and the bytes come from
    nearby; to blame is the hub, as each range is asked for there, and it is far and only redirects to that place."""
    ms, parts = s.ms("gpu_ms", 12, 40), s.int("parts", 2, 5)
    s.tell("late", ms * s.ms("late_share", 1.3, 2.8) / parts)
    gpu, out = s.gpu(ms), multiprocessing.Queue(3)
    child(row_groups, out, int(s.told("port")), parts, s.fix)
    s.loop(gpu, out.get)


@job(data="lock_bound", rest="sync_bound launch_bound")
def one_capstan(s):
    """Threads extract a batch's archives into a cache, a few ahead, each with a descriptor of its own for the lock
    file, as filelock has it; to blame is that this is flock() on one file for the whole folder, not one an archive."""
    ms, threads, archives = s.ms("gpu_ms", 10, 40), s.int("threads", 2, 3), s.int("archives", 1, 4)
    cost = ms * s.ms("extract_share", 1.4, 2.6) / archives / (3 if s.fix else 1)
    gpu, numbers, due = s.gpu(ms), itertools.count(), collections.deque()

    def extracted(n):
        for archive in range(archives):
            decode(cost * 0.1)  # its name is a hash of where it came from
            with open(s.path("%d.lock" % ((n * archives + archive) % 64 if s.fix else 0)), "w", encoding="ascii") as f:
                fcntl.flock(f, fcntl.LOCK_EX)
                decode(cost)
        return np.zeros(20000, np.float32)
    pool = concurrent.futures.ThreadPoolExecutor(threads)

    def obtain():
        while len(due) <= threads:
            due.append(pool.submit(extracted, next(numbers)))
        return due.popleft().result()
    s.loop(gpu, obtain)


def live_rows(deletes):
    """Which rows of a group are still there, when all its delete files are put together."""
    gone = np.unique(np.concatenate(deletes))
    live = np.ones(len(gone) * 8, bool)
    live[gone % len(live)] = False
    return np.flatnonzero(live)


def merge_on_read(out, plain, every, deletes):
    for n in itertools.count(1):
        decode(plain)
        rows = live_rows(deletes) if n % every == 0 else np.arange(20000)
        out.put(rows[:20000].astype(np.float32))


@job(data="slow_item", rest="sync_bound launch_bound")
def frayed_ends(s):
    """A table as of Iceberg, merged as it is read, by a process with a short queue; to blame are its few row groups
    that were often corrected: before one is given out, all its delete files are put together. Fix: compaction."""
    ms, every, files = s.ms("gpu_ms", 8, 22), s.int("every", 8, 13), s.int("files", 4, 12)
    plain, merge, gpu = ms * s.ms("read_share", 0.1, 0.4), ms * s.ms("merge_steps", 9, 14), s.gpu(ms)
    chance = np.random.default_rng(1)
    sample = [chance.integers(0, 1 << 40, 200000 // files) for _ in range(files)]
    many = s.keep("deletes", int(200000 * merge / 1e3 / took(lambda: live_rows(sample))))
    deletes = [chance.integers(0, 1 << 40, (1000 if s.fix else many) // files) for _ in range(files)]
    out = multiprocessing.Queue(3)
    s.supplier(child(merge_on_read, out, plain, every, deletes).pid)
    s.loop(gpu, out.get)


def peek(pid, rows, into):
    """Copies rows of another process, given as a table of addresses and lengths, to one buffer."""
    call, at = ctypes.CDLL(None, use_errno=True).process_vm_readv, into.ctypes.data
    call.argtypes = [ctypes.c_int, c_void_p, ctypes.c_ulong, c_void_p, ctypes.c_ulong, ctypes.c_ulong]
    call.restype = ctypes.c_ssize_t
    for first in range(0, len(rows), 1024):
        some = rows[first:first + 1024]
        here = np.array([at, some[:, 1].sum()], np.uint64)
        got = call(pid, here.ctypes.data, 1, some.ctypes.data, len(some), 0)
        if got < 0:
            raise OSError(ctypes.get_errno(), "process_vm_readv")
        at += got


def yarn_store(link, row, gather):
    """Has all rows in memory, and tells where those of the next batch are when it is asked for that many."""
    table, chance = np.ones((32 * MIB // row, row), np.uint8), np.random.default_rng(1)
    while True:
        picked = chance.integers(0, len(table), link.recv())
        if gather:
            batch = table[picked]  # kept until the next one is asked for
            where = np.array([[batch.ctypes.data, batch.nbytes]], np.uint64)
        else:
            where = np.empty((len(picked), 2), np.uint64)
            where[:, 0], where[:, 1] = table.ctypes.data + picked * row, row
        link.send_bytes(where.tobytes())


@job(data="ipc_bound", rest="sync_bound launch_bound")
def ready_yarns(s):
    """A process has all samples in memory, and says one batch ahead where those of a batch lie; to blame is how the
    loop gets them, row by row by process_vm_readv(), as an object store with cross-memory attach does it."""
    ms, share, row = s.ms("gpu_ms", 8, 25), s.ms("hand_over_share", 0.5, 1.6), s.one("row", 64, 128, 256)
    mine, theirs = multiprocessing.Pipe()
    store, gpu = child(yarn_store, theirs, row, s.fix), s.gpu(ms)
    into = np.zeros(64 * MIB, np.uint8)

    def take(many):
        where = np.frombuffer(mine.recv_bytes(), np.uint64).reshape(-1, 2)
        peek(store.pid, where, into)
        return into[:many * row]

    def sample():
        mine.send(20000)
        mine.poll(None)
        begin = time.monotonic()
        take(20000)
        return time.monotonic() - begin
    each = 4e-7 if s.fix else max(min(sample() for _ in range(7)) / 20000, 1e-8)
    many = s.keep("rows", min(int(ms * share / 1e3 / each), len(into) // row))

    def obtain():
        x = take(many)[:MIB]
        mine.send(many)
        return x
    mine.send(many)
    s.loop(gpu, obtain)


def encoded(path, batch):
    """Numbers for the categories of a column; the table of uniques lies in a file, in order of frequency."""
    uniques = np.load(path)
    order = np.argsort(uniques)
    return order[np.searchsorted(uniques, batch, sorter=order) % len(order)]


def categorify(out, paths, keep):
    batch, kept = np.arange(2000) * 7919, {}
    while True:
        columns = []
        for path in paths:
            if keep and path not in kept:
                uniques = np.load(path)
                kept[path] = uniques, np.argsort(uniques)
            if keep:
                uniques, order = kept[path]
                columns.append(order[np.searchsorted(uniques, batch, sorter=order) % len(order)])
            else:
                columns.append(encoded(path, batch))
        out.put(np.stack(columns).astype(np.int32))


@job(data=CPU, rest="sync_bound launch_bound")
def unwound_hanks(s):
    """A process numbers the categories of a click log's columns, as NVTabular's Categorify; to blame is its setting
    that keeps no table of uniques: for each batch it loads each column's from a cached file, and sorts it."""
    ms, columns, share = s.ms("gpu_ms", 8, 30), s.int("columns", 3, 8), s.ms("encode_share", 1.4, 2.6)
    gpu, chance = s.gpu(ms), np.random.default_rng(1)
    np.save(s.path("probe.npy"), chance.integers(0, 1 << 40, 40000))
    each = took(lambda: [encoded(s.path("probe.npy"), np.arange(2000) * 7919) for _ in range(5)]) / 5 / 40000
    many = s.keep("uniques", min(max(int(ms * share / 1e3 / columns / each), 2000), 600000))
    paths = [s.path("uniques-%d.npy" % n) for n in range(columns)]
    for path in paths:
        np.save(path, chance.integers(0, 1 << 40, many))
    out = multiprocessing.Queue(4)
    s.supplier(child(categorify, out, paths, s.fix).pid)
    s.loop(gpu, out.get)


# ---- not for data


def controller(link, poll):
    """Looks after its workers: asks each again and again whether it has something to report."""
    while True:
        time.sleep(poll)
        link.send("poll")
        link.recv()


@job(data=CPU, host="host_bound", rest="sync_bound launch_bound")
def foreman_rounds(s):
    """A training function in a thread, as Ray Train runs it, with batches in time; to blame is report(), which waits
    until the controller has fetched the figures, and that only comes round by a fixed interval."""
    ms, every = s.ms("gpu_ms", 10, 40), s.int("every", 1, 2)
    poll, batch = ms * s.ms("poll_steps", 1.5, 2.5) / 1e3, laid(ms * s.ms("load_share", 0.1, 0.4))
    mine, theirs = multiprocessing.Pipe()
    child(controller, theirs, poll)
    results, fetched, gpu = queue.Queue(1), threading.Semaphore(0), s.gpu(ms)

    def report(figures):
        if s.fix:
            while not results.empty():
                results.get()  # only the latest are of interest
        results.put(figures)
        if not s.fix:
            fetched.acquire()

    def train_func():
        gpu.enter_thread()
        for n in itertools.count(1):
            s.step(gpu, batch)
            if n % every == 0:
                with s.during("host"):
                    report({"step": n, "loss": gpu.loss.value})
    s.go()
    threading.Thread(target=train_func, daemon=True).start()
    while True:
        mine.recv()
        try:
            mine.send(results.get_nowait())
            fetched.release()
        except queue.Empty:
            mine.send(None)


@job(data=CPU, host="sync_bound host_bound", rest="sync_bound launch_bound host_bound")
def ragged_hackles(s):
    """Clicks with list columns, ready in time; to blame is how these are made dense, as Merlin's loader does it on the
    device: column after column its longest list is read by .item(), before Python shapes the next one."""
    ms, columns, few = s.ms("gpu_ms", 5, 20), s.int("columns", 8, 20), s.int("few", 2, 6)
    own = ms * s.ms("shape_share", 0.4, 1.3) / columns
    gpu, dense = s.gpu(ms), s.gpu(s.ms("dense_ms", 0.05, 0.3), launches=few)
    batch = laid(ms * s.ms("load_share", 0.1, 0.4))
    s.go()
    while True:
        s.mark()
        with s.during("data"):
            x = batch()
        dense.enter_thread()
        dense.upload(x.ctypes.data, x.nbytes)
        for _ in range(columns):
            dense.launch(0, few)
            if not s.fix:  # else all columns have one fixed length, to which they are padded
                dense.loss_item()
                with s.during("host"):
                    parse(own)
        gpu.enter_thread()
        s.train(gpu)


def dealt(sizes, ranks):
    """Shards for each rank, the largest first to whoever has least so far."""
    hands, least = [[] for _ in range(ranks)], [(0, rank) for rank in range(ranks)]
    for size, shard in sorted(((size, shard) for shard, size in enumerate(sizes)), reverse=True):
        so_far, rank = heapq.heappop(least)
        hands[rank].append(shard)
        heapq.heappush(least, (so_far + size, rank))
    return hands


@job(data=CPU, host="host_bound rank_straggler", peer="rank_straggler host_bound", rest="sync_bound launch_bound")
def dealt_strands(s):
    """Ranks with a quick loader each, which meet after each step; to blame is the first one, which at each short
    epoch's end deals out all shards anew by their sizes, in Python, while the others wait for their hands."""
    ms, ranks, every = s.ms("gpu_ms", 10, 35), s.int("ranks", 2, 3), s.int("epoch_steps", 3, 8)
    launches, share, parent = s.int("launches", 10, 80), s.ms("deal_share", 0.35, 1.2), os.getpid()
    cost, chance = ms * s.ms("load_share", 0.05, 0.15), random.Random(1)
    each = took(lambda: dealt([chance.randrange(1 << 20) for _ in range(5000)], ranks)) / 5000
    sizes = [chance.randrange(1 << 20) for _ in range(s.keep("shards", int(ms * every * share / 1e3 / each)))]
    pairs = [multiprocessing.Pipe() for _ in range(ranks - 1)]
    for rank in range(ranks):
        if os.fork():
            continue
        mortal(parent, signal.SIGTERM)
        s.rank(rank)
        gpu, batch = s.gpu(ms, launches=launches), laid(cost)
        s.told("go")
        for n in itertools.count(1):
            s.step(gpu, batch)
            due, hands = n % every == 0 and not s.fix, [None] * ranks  # fixed: the first deal is kept
            if rank == 0 and due:
                with s.during("host"):
                    hands = dealt(sizes, ranks)
            with s.during("peer"):
                if rank:
                    pairs[rank - 1][1].send("here")
                    pairs[rank - 1][1].recv()
                else:
                    for link, _ in pairs:
                        link.recv()
                    for (link, _), hand in zip(pairs, hands[1:]):
                        link.send(hand)
    s.go()
    signal.pause()


class Stream:
    """An iterable data set of records that a manifest names, one a line."""
    def __init__(self, manifest, source):
        self.manifest, self.source = manifest, source

    def __iter__(self):
        while True:
            yield self.source()

    def __len__(self):
        with open(self.manifest, encoding="ascii") as f:
            return sum(1 for line in f if not line.startswith("#"))


@job(data=CPU, host="host_bound", rest="sync_bound launch_bound")
def measured_rope(s):
    """Batches of a stream come in time; to blame is a trainer's progress bar, as of Lightning, which after each step
    or two asks for len(loader): the stream's author has that count all lines of the manifest."""
    ms, every, share = s.ms("gpu_ms", 8, 30), s.int("every", 1, 2), s.ms("count_share", 0.4, 1.3)
    gpu, path = s.gpu(ms), s.path("manifest.tsv")
    stream = Stream(path, laid(ms * s.ms("load_share", 0.1, 0.4)))

    def write(lines):
        with open(path, "w", encoding="ascii") as f:
            f.writelines("shard-%05d.tar\t%08d\n" % (n // 500, n) for n in range(lines))
    write(40000)
    write(s.keep("lines", int(40000 * ms * every * share / 1e3 / took(lambda: len(stream)))))
    batches, total = iter(stream), len(stream)
    s.go()
    for n in itertools.count(1):
        s.step(gpu, lambda: next(batches))
        if n % every == 0:
            with s.during("host"):
                "%d/%d" % (n, total if s.fix else len(stream))


# ---- nothing is wrong


def dead_store(s):
    """A store that takes every question and answers none."""
    door, links = socket.create_server(("127.0.0.1", 0)), []
    s.tell("port", door.getsockname()[1])
    while True:
        links.append(door.accept()[0])


def corpus(link, cost, port):
    """A source of the mix; one of them asks a store for its shard first."""
    if port:
        with socket.create_connection(("127.0.0.1", port)) as store:
            store.sendall(b"shard 0\n")
            store.recv(1)
    while True:
        decode(cost)
        link.send(np.zeros(12000, np.float32))


@job(outside=dead_store, data=CPU, rest="sync_bound launch_bound")
def snagged_line(s):
    """Nothing is to blame: a mix of corpora takes the next batch from whichever source has one, as RandomMix does for
    the longest; one source's store has hung since the start, and the others bring enough."""
    ms, live = s.ms("gpu_ms", 15, 60), s.int("live", 2, 3)
    cost, port, ends = ms * s.ms("load_share", 0.3, 0.8), int(s.told("port")), []
    snagged, gpu, chance = s.int("snagged", 0, live), s.gpu(ms), random.Random(1)
    for n in range(live + 1):
        mine, theirs = multiprocessing.Pipe(duplex=False)
        child(corpus, theirs, cost, port if n == snagged and not s.fix else 0)
        ends.append(mine)
    s.loop(gpu, lambda: chance.choice(multiprocessing.connection.wait(ends)).recv())


@job(data=CPU, rest="sync_bound launch_bound")
def shared_spindle(s):
    """Nothing is to blame: as with DALI's operators on the device, a thread has each batch augmented by kernels on a
    stream of its own, and waits for them; the loop waits for it, but the device is at work all the while."""
    ms, share, few = s.ms("gpu_ms", 12, 40), s.ms("augment_share", 0.6, 1.6), s.int("few", 6, 40)
    encoded_batch, ready = laid(ms * s.ms("load_share", 0.1, 0.35)), queue.Queue(1)
    gpu, augment = s.gpu(ms), s.gpu(ms * (0.2 if s.fix else share), launches=few)
    side = c_void_p()
    gpu.check(gpu.lib.cudaStreamCreate(byref(side)))
    augment.stream = side

    def pipeline():
        augment.enter_thread()
        x = encoded_batch()
        while True:
            augment.upload(x.ctypes.data, x.nbytes)
            augment.launch(0, few)
            x = encoded_batch()
            augment.sync(False)
            ready.put(True)
    threading.Thread(target=pipeline, daemon=True).start()
    s.go()
    gpu.enter_thread()
    while True:
        s.mark()
        with s.during("data"):
            ready.get()
        s.train(gpu)
