# SPDX-License-Identifier: BSD-2-Clause
"""At the cartwrights': the data libraries that people train with, rebuilt in miniature, and what they trip over."""
import collections
import contextlib
import fcntl
import io
import itertools
import mmap
import multiprocessing
import multiprocessing.connection
import os
import queue
import random
import selectors
import socket
import sqlite3
import struct
import tarfile
import threading
import time
import zlib

import numpy as np

from stranger import CPU, child, decode, job

PAGE, MIB = 4096, 1 << 20
SAMPLE = 16 << 10
SHARD = 8 * SAMPLE


def once(f):
    """Seconds that f takes."""
    begin = time.monotonic()
    f()
    return time.monotonic() - begin


def took(f):
    """The same, once it is warm."""
    f()
    return once(f)


# ---- the data is late


def depot(s):
    """A far store: a shard's number comes, and after a while its bytes go."""
    late, body = float(s.told("late")) / 1e3, bytes(SHARD)
    door = socket.create_server(("127.0.0.1", 0))
    s.tell("port", door.getsockname()[1])
    link, _ = door.accept()
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    with link, link.makefile("rb") as asked:
        while asked.read(4):
            time.sleep(late)
            link.sendall(body)


def stream(out, port, folder, shards, limit, many):
    """Goes through a shuffled epoch; a shard that is not in the cache has it fetched, and the coldest goes."""
    os.mkdir(folder)
    chance, kept = random.Random(1), collections.OrderedDict()
    with socket.create_connection(("127.0.0.1", port)) as link, link.makefile("rb") as store:
        def local(n):
            if n not in kept:
                link.sendall(struct.pack("<I", n))
                body = store.read(SHARD)
                kept[n] = os.path.join(folder, "shard.%05d.mds" % n)
                with open(kept[n], "wb") as f:
                    f.write(body)
                if len(kept) > limit:
                    os.unlink(kept.popitem(last=False)[1])
            kept.move_to_end(n)
            return kept[n]

        def sample():
            with open(local(chance.randrange(shards)), "rb") as f:
                f.seek(chance.randrange(SHARD // SAMPLE) * SAMPLE)
                return np.frombuffer(f.read(SAMPLE), np.uint8)
        for n in range(limit):
            local(n)
        while True:
            out.put(np.stack([sample() for _ in range(many)]))


@job(outside=depot, data="network_bound", rest="sync_bound launch_bound")
def small_shed(s):
    """As with MosaicML's Streaming, a worker has downloaded shards in a local cache; to blame is `cache_limit`, far
    below what a block of the shuffle spans: a shard is thrown out before its next sample, and comes from afar anew."""
    ms, many, shards = s.ms("gpu_ms", 10, 35), s.int("samples", 3, 8), s.int("shards", 9, 18)
    limit = shards // 3
    s.tell("late", ms * s.ms("fetch_share", 1.6, 2.8) / many / (1 - limit / shards))
    gpu, out, port = s.gpu(ms), multiprocessing.Queue(maxsize=3), int(s.told("port"))
    s.supplier(child(stream, out, port, s.path("cache"), shards, shards if s.fix else limit, many).pid)
    out.get()  # from here on the cache has what it may hold
    s.loop(gpu, out.get)


def write_shard(path, samples):
    with tarfile.open(path, "w") as tar:
        for n in range(samples):
            member = tarfile.TarInfo("%06d.npy" % n)
            member.size = SAMPLE
            tar.addfile(member, io.BytesIO(bytes(SAMPLE)))


def read_shards(paths):
    for path in itertools.cycle(paths):
        with tarfile.open(path, "r|") as tar:
            for member in tar:
                yield tar.extractfile(member).read()


def shuffled(samples, chance, size):
    pond = list(itertools.islice(samples, size))
    for sample in samples:
        place = chance.randrange(size)
        pond[place], sample = sample, pond[place]
        yield sample


def haul(out, shards, many, cost):
    """A worker with its part of the shards, which may be none."""
    samples = shuffled(read_shards(shards), random.Random(1), 64)

    def decoded(sample):
        decode(cost)
        return np.frombuffer(sample, np.float32)
    while shards:
        out.put(np.stack([decoded(next(samples)) for _ in range(many)]))
    out.put(None)


@job(data=CPU, rest="sync_bound launch_bound")
def lone_shaft(s):
    """WebDataset with a shuffle buffer and split_by_worker in two or three workers; to blame is that the set has but
    one tar shard: the first worker decodes everything, and the others found nothing to do and have ended."""
    ms, workers, many = s.ms("gpu_ms", 10, 40), s.int("workers", 2, 3), s.int("samples", 8, 24)
    cost, rota = ms * s.ms("decode_share", 1.5, 1.9) / many, collections.deque()
    shards = [s.path("train-%06d.tar" % n) for n in range(workers if s.fix else 1)]
    for path in shards:
        write_shard(path, 100)
    gpu = s.gpu(ms)
    for n in range(workers):
        out = multiprocessing.Queue(maxsize=2)
        rota.append((child(haul, out, shards[n::workers], many, cost), out))
    if not s.fix:
        s.supplier(rota[0][0].pid)

    def obtain():
        while True:
            worker, out = rota.popleft()
            x = out.get()
            if x is not None:
                rota.append((worker, out))
                return x
            worker.join()
    s.loop(gpu, obtain)


def verify(path, hold, pause, aside):
    """Goes through the cache, hashes what lies there, and takes away what is broken, with the lock for writers."""
    with open(path, "rb") as lock:
        while True:
            if aside:
                decode(hold)
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not aside:
                decode(hold)
            fcntl.flock(lock, fcntl.LOCK_UN)
            time.sleep(pause)


def unload(out, path, shard, many, cost):
    """Reads each sample with the lock for readers, lest its shard is taken away meanwhile, and decodes it without."""
    chance = random.Random(1)
    with open(path, "rb") as lock, open(shard, "rb") as f:
        def sample():
            place = chance.randrange(SHARD // SAMPLE) * SAMPLE
            fcntl.flock(lock, fcntl.LOCK_SH)
            body = os.pread(f.fileno(), SAMPLE, place)
            fcntl.flock(lock, fcntl.LOCK_UN)
            decode(cost)
            return np.frombuffer(body, np.uint8)
        while True:
            out.put(np.stack([sample() for _ in range(many)]))


@job(data="lock_bound", rest="sync_bound launch_bound")
def padlocked_barn(s):
    """A worker reads samples from a node's cache of shards with LOCK_SH on its lock file, which costs next to nothing;
    to blame is the cache's janitor, which hashes shard after shard with LOCK_EX, and keeps the reader out meanwhile."""
    ms, many = s.ms("gpu_ms", 12, 35), s.int("samples", 3, 6)
    hold, cost = ms * s.ms("hold_share", 1.5, 2.6) / many, ms * 0.2 / many
    gpu, out, path, shard = s.gpu(ms), multiprocessing.Queue(maxsize=3), s.path("cache.lock"), s.path("shard.bin")
    for name, size in ((path, 0), (shard, SHARD)):
        with open(name, "wb") as f:
            f.write(bytes(size))
    child(verify, path, hold, cost / 2e3, s.fix)
    child(unload, out, path, shard, many, cost)
    s.loop(gpu, out.get)


def ford(s):
    """A Redis server, elsewhere, which does one command after the other; some dashboards ask it for KEYS."""
    scan, dashboards = s.told("scan").split()
    door, ready, record = socket.create_server(("127.0.0.1", 0)), selectors.DefaultSelector(), bytes(SAMPLE)
    ready.register(door, selectors.EVENT_READ)

    def look():
        with socket.create_connection(door.getsockname()) as link:
            while True:
                link.sendall(b"KEYS\n")
                link.recv(64)
    for _ in range(int(dashboards)):
        threading.Thread(target=look, daemon=True).start()
    s.tell("port", door.getsockname()[1])
    while True:
        for key, _ in ready.select():
            if key.fileobj is door:
                link, _ = door.accept()
                link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                ready.register(link, selectors.EVENT_READ)
                continue
            command = key.fileobj.recv(64)
            if command == b"LPOP\n":
                key.fileobj.sendall(record)
            elif command:
                time.sleep(float(scan) / 1e3)
                key.fileobj.sendall(b"+OK\n")
            else:
                ready.unregister(key.fileobj)


@job(outside=ford, data="network_bound", rest="sync_bound launch_bound")
def crowded_ford(s):
    """A thread pops samples off a list in a far Redis, which has plenty of them; to blame is that server, which has
    one thread for all commands, and does the KEYS of some dashboards all the time, before each LPOP."""
    ms, many, dashboards = s.ms("gpu_ms", 10, 35), s.int("samples", 3, 6), s.int("dashboards", 2, 3)
    scan = ms * s.ms("wait_share", 1.6, 2.8) / many / dashboards
    s.tell("scan", "%f %d" % (scan / 25 if s.fix else scan, dashboards))  # with SCAN they take a little each time
    gpu, out, port = s.gpu(ms), queue.Queue(2), int(s.told("port"))

    def drive():
        with socket.create_connection(("127.0.0.1", port)) as link, link.makefile("rb") as answers:
            def pop():
                link.sendall(b"LPOP\n")
                return np.frombuffer(answers.read(SAMPLE), np.uint8)
            while True:
                out.put(np.stack([pop() for _ in range(many)]))
    threading.Thread(target=drive, daemon=True).start()
    s.loop(gpu, out.get)


def rows_of(path, chance, many):
    """The first byte of rows at random; the table is mapped for as long as this takes."""
    with open(path, "rb") as f, mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ) as table:
        table.madvise(mmap.MADV_RANDOM)
        return np.frombuffer(table, np.uint8)[chance.integers(0, len(table) // PAGE, many) * PAGE]


def pick(out, path, many):
    chance = np.random.default_rng(1)
    while True:
        out.put(rows_of(path, chance, many).astype(np.float32))


def sweep(path, pause):
    """Keeps the page cache small, lest it count towards the container's memory."""
    with open(path, "rb") as f:
        while True:
            os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            time.sleep(pause)


@job(data="page_fault_io", rest="sync_bound launch_bound")
def swept_yard(s):
    """As with Hugging Face's datasets, a process takes rows at random from an Arrow file, mapped anew for each batch;
    to blame are its page faults, which wait for the disk, as a sidecar drops the file from memory again and again."""
    ms, share, path = s.ms("gpu_ms", 8, 25), s.ms("read_share", 1.8, 3), s.data_file("swept_yard", 64)
    each = once(lambda: rows_of(path, np.random.default_rng(2), 400)) / 400
    many = s.keep("rows", min(max(int(ms * share / 1e3 / each), 16), 3000))
    s.cold(path)
    gpu, out = s.gpu(ms), multiprocessing.Queue(maxsize=4)
    if s.fix:
        with open(path, "rb") as f:
            while f.read(MIB):
                pass
    else:
        child(sweep, path, s.ms("pause_ms", 10, 30) / 1e3)
    s.supplier(child(pick, out, path, many).pid)
    s.loop(gpu, out.get)


def dispatch(door, addresses):
    """Tells a client which workers have a task for it, whenever it gives a sign of life."""
    with door.accept() as client:
        while client.recv():
            client.send(addresses)


def give(door, element, cost):
    with door.accept() as client:
        while client.recv_bytes():
            decode(cost)
            client.send_bytes(element)


@job(data="main_thread_loading", rest="sync_bound launch_bound")
def roped_bales(s):
    """As with tf.data's service: a dispatcher names two workers, and a thread for each has elements fetched ahead; to
    blame is the service's compression, meant for a network that is not there, which the loop itself has to undo."""
    ms, share, doors = s.ms("gpu_ms", 10, 30), s.ms("inflate_share", 0.55, 1.5), []
    raw = np.random.default_rng(1).integers(0, 16, MIB, np.uint8)
    packed = zlib.compress(raw, 1)
    each = took(lambda: zlib.decompress(packed)) / MIB
    size = s.keep("bytes", min(max(int(ms * share / 1e3 / each), 64 << 10), 16 * MIB))
    raw = np.resize(raw, size).tobytes()
    element = raw if s.fix else zlib.compress(raw, 1)
    for name in ("dispatcher", "worker-0", "worker-1"):
        doors.append(multiprocessing.connection.Listener(s.path(name), "AF_UNIX"))
    gpu, out = s.gpu(ms), queue.Queue(2)
    child(dispatch, doors[0], [door.address for door in doors[1:]])
    for door in doors[1:]:
        child(give, door, element, ms * 0.1)

    def fetch(address):
        with multiprocessing.connection.Client(address) as worker:
            while True:
                worker.send_bytes(b"GetElement")
                out.put(worker.recv_bytes())

    def beat():
        while True:
            time.sleep(0.1)
            desk.send("ClientHeartbeat")
            desk.recv()
    desk = multiprocessing.connection.Client(doors[0].address)
    desk.send("GetOrCreateIteration")
    for address in desk.recv():
        threading.Thread(target=fetch, args=(address,), daemon=True).start()
    threading.Thread(target=beat, daemon=True).start()

    def obtain():
        body = out.get()
        return np.frombuffer(body if s.fix else zlib.decompress(body), np.uint8)
    s.loop(gpu, obtain)


def ranges(topics, members):
    """Kafka's RangeAssignor: topic by topic a range for each member, and what is left over goes to the first ones."""
    shares = [[] for _ in range(members)]
    for topic, partitions in topics.items():
        each, more = divmod(partitions, members)
        numbers = iter(range(partitions))
        for n, share in enumerate(shares):
            share += [(topic, p) for p in itertools.islice(numbers, each + (n < more))]
    return shares


def round_robin(topics, members):
    partitions = [(topic, p) for topic, many in topics.items() for p in range(many)]
    return [partitions[n::members] for n in range(members)]


def consume(out, folder, partitions, cost):
    """Polls each of its partitions for the records of the next window."""
    logs = [os.open(os.path.join(folder, "%s-%d.log" % at), os.O_RDONLY) for at in partitions]
    for n in itertools.count():
        records = []
        for log in logs:
            records.append(np.frombuffer(os.pread(log, SAMPLE, n % 8 * SAMPLE), np.uint8))
            decode(cost)
        out.put(np.stack(records))


@job(data="slow_worker", rest="sync_bound launch_bound")
def lead_ox(s):
    """A group of three Kafka consumers, whose records of a time window make up a batch; to blame is the range assignor:
    most topics have one partition, and it gives each of these to the first consumer, which has far more to decode."""
    ms, single, members = s.ms("gpu_ms", 10, 40), s.int("single_topics", 6, 8), 3
    topics = {"clicks": members, "views": members} | {"shop.%d" % n: 1 for n in range(single)}
    shares, folder = (round_robin if s.fix else ranges)(topics, members), s.path("logs")
    cost = ms * s.ms("decode_share", 1.5, 2.3) / (single + 2) / (3 if s.fix else 1)
    os.mkdir(folder)
    for at in itertools.chain.from_iterable(shares):
        with open(os.path.join(folder, "%s-%d.log" % at), "wb") as log:
            log.write(bytes(SHARD))
    gpu, outs = s.gpu(ms), [multiprocessing.Queue(maxsize=2) for _ in range(members)]
    pids = [child(consume, out, folder, share, cost).pid for out, share in zip(outs, shares)]
    s.supplier(pids[0])
    s.loop(gpu, lambda: np.concatenate([out.get() for out in outs]))


# ---- not for data


def interleave(out, odds, cost):
    """Takes the next batch from one of several corpora, by their probabilities."""
    chance = random.Random(1)
    corpora = [itertools.count(n << 20) for n in range(len(odds))]
    while True:
        corpus, = chance.choices(corpora, odds)
        decode(cost)
        out.put(np.full(20000, next(corpus), np.float32))


def edits(said, heard):
    """How many words differ, by Levenshtein's table."""
    row = list(range(len(heard) + 1))
    for n, word in enumerate(said, 1):
        last, row[0] = row[0], n
        for k, other in enumerate(heard, 1):
            last, row[k] = row[k], min(row[k] + 1, row[k - 1] + 1, last + (word != other))
    return row[-1]


@job(data=CPU, host="host_bound", rest="sync_bound launch_bound")
def load_tallies(s):
    """Speech, as with `interleave_datasets` in a process, which is in time; to blame is the loop, which after each step
    works out the word error rate of all that the model has heard, word by word in plain Python."""
    ms, share, chance = s.ms("gpu_ms", 10, 35), s.ms("metric_share", 0.55, 1.6), random.Random(1)
    odds, length = [0.6, 0.3, 0.1], s.int("words", 12, 30)
    said = [chance.choices("one two three four five six seven".split(), k=length) for _ in range(16)]
    heard = [chance.sample(words, length) for words in said]

    def errors(texts):
        return sum(edits(said[n % 16], heard[n % 16]) for n in range(texts)) / texts / length
    texts = s.keep("texts", max(int(ms * share / 1e3 / took(lambda: errors(16)) * 16), 2))
    gpu, out = s.gpu(ms), multiprocessing.Queue(maxsize=4)
    child(interleave, out, odds, ms * s.ms("load_share", 0.1, 0.4))
    s.go()
    while True:
        s.step(gpu, out.get)
        with s.during("host"):
            errors(1 if s.fix else texts)  # a glance at one of them is enough


# ---- nothing is wrong


CLAIM = """UPDATE jobs SET state = 'taken' WHERE id IN (SELECT id FROM jobs WHERE state = 'new' ORDER BY id LIMIT 4)
           RETURNING id, body"""


def customers(s):
    """Put jobs into the table, and notify who listens."""
    rate = float(s.told("open"))
    base = sqlite3.connect(s.path("board.db"), isolation_level=None)
    s.told("go")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as bell:
        bell.connect(s.path("bell"))
        bell.setblocking(False)
        while True:
            time.sleep(s.random.expovariate(rate))
            base.execute("INSERT INTO jobs (state, body) VALUES ('new', ?)", (bytes(SAMPLE),))
            with contextlib.suppress(BlockingIOError):  # then it is told already
                bell.send(b"jobs")


@job(outside=customers, demand="no_demand", host="host_bound", rest="sync_bound launch_bound")
def hire_board(s):
    """Batch inference by a table of jobs in a database, as with SKIP LOCKED and LISTEN: the loop claims what is new, or
    else waits to be notified, and writes down what came out; nobody is to blame that few jobs are put there."""
    ms, passes, rate = s.ms("gpu_ms", 8, 25), s.int("passes", 1, 3), s.ms("rate", 2, 6)
    gpu = s.gpu(ms)
    base = sqlite3.connect(s.path("board.db"), isolation_level=None)
    base.execute("PRAGMA journal_mode = WAL")
    base.execute("PRAGMA synchronous = OFF")
    base.execute("CREATE TABLE jobs (id INTEGER PRIMARY KEY, state TEXT, body BLOB)")
    base.execute("CREATE INDEX fresh ON jobs (state, id)")
    bell = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    bell.bind(s.path("bell"))
    s.tell("open", 5200 / ms / passes if s.fix else rate)
    s.go()
    while True:
        with s.during("demand"):
            while not (jobs := base.execute(CLAIM).fetchall()):
                bell.recv(16)
        with s.during("host"):
            x = np.frombuffer(b"".join(body for _, body in jobs), np.uint8)
        for _ in range(passes):
            s.mark()
            s.train(gpu, x)
        with s.during("host"):
            base.executemany("UPDATE jobs SET state = 'done', body = NULL WHERE id = ?", [(n,) for n, _ in jobs])


def act(link, store, cost):
    """An actor, which leaves each block in the slot that it was told."""
    while True:
        slot = link.recv()
        decode(cost)
        store[slot] = slot
        link.send(slot)


@job(data=CPU, rest="sync_bound launch_bound")
def yard_master(s):
    """Nothing is to blame: as in Ray Data, a scheduling thread gives tasks to actors while the object store has room,
    and then holds them back; one actor is far slower, but blocks are taken in any order, and some always wait."""
    ms, actors, slots = s.ms("gpu_ms", 20, 40), 3, s.int("slots", 6, 8)
    cost, slow = 2 * ms * s.ms("load_share", 0.2, 0.4), 1 if s.fix else s.ms("slow", 3, 6)
    store = np.frombuffer(multiprocessing.RawArray("f", slots * 50000), np.float32).reshape(slots, -1)
    gpu, out, free, idle = s.gpu(ms), queue.Queue(), collections.deque(range(slots)), collections.deque()
    for n in range(actors):
        mine, theirs = multiprocessing.Pipe()
        child(act, theirs, store, cost if n else cost * slow)
        idle.append(mine)

    def schedule():
        busy = []
        while True:
            while idle and free:
                idle[0].send(free.popleft())
                busy.append(idle.popleft())
            for link in multiprocessing.connection.wait(busy, 0.01):
                out.put(link.recv())
                busy.remove(link)
                idle.append(link)
    threading.Thread(target=schedule, daemon=True).start()

    def obtain():
        slot = out.get()
        x = store[slot].copy()
        free.append(slot)
        return x
    s.loop(gpu, obtain)
