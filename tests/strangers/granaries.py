# SPDX-License-Identifier: BSD-2-Clause
"""In the granaries: how training data lies in files, stores and caches, and by which ways it is read."""
import collections
import concurrent.futures
import contextlib
import fcntl
import functools
import hashlib
import heapq
import http.client
import http.server
import itertools
import mmap
import multiprocessing
import multiprocessing.connection
import os
import queue
import random
import socket
import socketserver
import struct
import threading
import time
import zlib

import numpy as np

from stranger import CPU, child, decode, job, mortal

PAGE, MIB = 4096, 1 << 20


def once(f):
    """Seconds that f takes."""
    begin = time.monotonic()
    f()
    return time.monotonic() - begin


def took(f):
    """The same, once it is warm."""
    f()
    return once(f)


def put(out, cost):
    while True:
        decode(cost)
        out.put(np.zeros(20000, np.float32))


def sown(cost):
    """A loader that keeps up: a process and a queue."""
    out = multiprocessing.Queue(maxsize=4)
    child(put, out, cost)
    return out.get


def threaded(cost):
    """Another one: a thread of the trainer."""
    out = queue.Queue(4)
    threading.Thread(target=put, args=(out, cost), daemon=True).start()
    return out.get


# ---- the data is late


def sorted_runs(s, runs, lines):
    """Runs as an external sort leaves them on the disk: records by a random key."""
    chance, paths = random.Random(1), [s.path("run-%d" % n) for n in range(runs)]
    for path in paths:
        with open(path, "w", encoding="ascii") as out:
            out.writelines(sorted("%016x %d a record's words\n" % (chance.getrandbits(64), chance.randrange(256))
                                  for _ in range(lines)))
    return paths


def merged(paths):
    """All records in the order of their keys, pass after pass."""
    while True:
        with contextlib.ExitStack() as stack:
            yield from heapq.merge(*[stack.enter_context(open(path, "rb")) for path in paths])


def labels(records, many):
    return np.fromiter((int(record.split(None, 2)[1]) for record in itertools.islice(records, many)), np.uint8, many)


def winnow(end, paths, many):
    records = merged(paths)
    with os.fdopen(end, "wb") as out:
        while True:
            out.write(labels(records, many).tobytes())
            out.flush()


@job(data=CPU, rest="sync_bound launch_bound")
def winnowed_runs(s):
    """Accumulation; the epoch's order is made by external sorting, of which a process does the last part, record by
    record on the way to the loop's pipe; to blame is this merging of the runs by heapq, in Python."""
    ms, parts, runs = s.ms("gpu_ms", 8, 30), s.int("micro_batches", 1, 4), s.int("runs", 6, 24)
    share, paths, gpu = s.ms("merge_share", 1.4, 2.6), sorted_runs(s, runs, 40000 // runs), s.gpu(ms)
    some = merged(paths)
    each = took(lambda: labels(some, 4000)) / 4000
    many = s.keep("records", max(int(ms * share / 1e3 / each) // (6 if s.fix else 1), 16))
    mine, theirs = os.pipe()
    fcntl.fcntl(mine, fcntl.F_SETPIPE_SZ, 1 << 18)
    s.supplier(child(winnow, theirs, paths, many).pid)
    os.close(theirs)
    stream, x = os.fdopen(mine, "rb"), np.zeros(many, np.uint8)
    s.go()
    while True:
        s.mark()
        for _ in range(parts):
            s.mark("micro")
            with s.during("data"):
                stream.readinto(x)
            gpu.upload(x.ctypes.data, x.nbytes)
            gpu.forward()
            gpu.backward()
        gpu.optimizer()
        gpu.loss_item()


def direct(path):
    """A descriptor that goes past the page cache, where the file system has that."""
    try:
        return os.open(path, os.O_RDONLY | os.O_DIRECT)
    except OSError:
        return os.open(path, os.O_RDONLY)


def pick(fd, page, places):
    """A few bytes from the page at each place."""
    picked = []
    for place in places:
        os.preadv(fd, [page], place)
        picked.append(page[:16])
    return picked


def join_columns(address, columns, newest, many, cached):
    """Puts rows together from a file for each column."""
    chance, page, fds = random.Random(1), mmap.mmap(-1, PAGE), [os.open(path, os.O_RDONLY) for path in columns]
    last, pages = os.open(newest, os.O_RDONLY) if cached else direct(newest), os.path.getsize(newest) // PAGE
    while cached and os.read(last, MIB):
        pass
    with multiprocessing.connection.Client(address) as link:
        while True:
            row = chance.randrange(MIB // PAGE) * PAGE
            rows = [os.pread(fd, PAGE, row) for fd in fds]
            rows += pick(last, page, [chance.randrange(pages) * PAGE for _ in range(many)])
            link.send_bytes(b"".join(rows))
            if not cached:
                os.posix_fadvise(last, 0, 0, os.POSIX_FADV_DONTNEED)


@job(data="slow_file io_bound", rest="sync_bound launch_bound")
def odd_bin(s):
    """A process joins the columns of a table, each of which has its file, all in memory but for the newest one; to
    blame is this one, which is large, is opened with O_DIRECT for that, and is read page by page from the disk."""
    ms, share, columns = s.ms("gpu_ms", 8, 25), s.ms("read_share", 1.7, 3), s.int("columns", 3, 7)
    newest, chance, gpu = s.data_file("odd_bin", 64), random.Random(2), s.gpu(ms)
    places = [chance.randrange(64 * MIB // PAGE) * PAGE for _ in range(400)]
    each = once(lambda: pick(direct(newest), mmap.mmap(-1, PAGE), places)) / 400
    many = s.keep("reads", min(max(int(ms * share / 1e3 / each), 16), 4000))
    s.cold(newest)
    paths = [s.path("column-%d" % n) for n in range(columns)]
    for path in paths:
        np.ones(MIB, np.uint8).tofile(path)
    door = multiprocessing.connection.Listener(s.path("join"), "AF_UNIX")
    s.supplier(child(join_columns, door.address, paths, newest, many, s.fix).pid)
    link = door.accept()
    s.loop(gpu, lambda: np.frombuffer(link.recv_bytes(), np.uint8))


class Keys(http.server.BaseHTTPRequestHandler):
    """Unwraps a key, far away."""
    protocol_version, disable_nagle_algorithm, late = "HTTP/1.1", True, 0.0

    def do_POST(self):
        wrapped = self.rfile.read(int(self.headers["Content-Length"]))
        time.sleep(self.late)
        self.send_response(200)
        self.send_header("Content-Length", "32")
        self.end_headers()
        self.wfile.write(hashlib.sha256(wrapped).digest())

    def log_message(self, *_):
        pass


def key_office(s):
    Keys.late = float(s.told("late")) / 1e3
    office = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Keys)
    s.tell("port", office.server_address[1])
    office.serve_forever()


@job(outside=key_office, data="network_bound too_few_workers", rest="sync_bound launch_bound")
def sealed_chutes(s):
    """Threads open row groups ahead, as of an encrypted Parquet file that is in memory; to blame is the key service,
    which is far away and is asked for the key of each column chunk, as no unwrapped key is kept."""
    ms, threads, columns = s.ms("gpu_ms", 12, 40), s.int("threads", 1, 3), s.int("columns", 3, 7)
    s.tell("late", ms * s.ms("late_share", 1.4, 2.8) * threads / columns)
    gpu, port, own = s.gpu(ms), int(s.told("port")), threading.local()
    chunks = [np.frombuffer(os.urandom(32 << 10), np.uint8) for _ in range(columns)]

    def key_of(wrapped):
        if not hasattr(own, "link"):
            own.link = http.client.HTTPConnection("127.0.0.1", port)
        own.link.request("POST", "/unwrap", wrapped)
        return np.frombuffer(own.link.getresponse().read(), np.uint8)
    unwrapped = functools.cache(key_of) if s.fix else key_of

    def opened(n):
        return np.concatenate([chunk ^ np.resize(unwrapped(b"%d, %d" % (0 if s.fix else n, column)), len(chunk))
                               for column, chunk in enumerate(chunks)])
    pool, numbers, due = concurrent.futures.ThreadPoolExecutor(threads), itertools.count(), collections.deque()

    def obtain():
        while len(due) <= threads:
            due.append(pool.submit(opened, next(numbers)))
        return due.popleft().result()
    s.loop(gpu, obtain)


def auger(link, locks, numbers, blocks, cost, spread):
    """Unpacks blocks into a cache that all share; a block's place tells which lock guards it."""
    for n in numbers:
        for block in range(blocks):
            place = (n * blocks + block) * PAGE
            decode(cost * 0.15)  # its header and its sum
            with locks[(place // PAGE if spread else place) % len(locks)]:
                decode(cost)
        link.send(np.zeros(10000, np.float32))


@job(data="lock_bound", rest="sync_bound launch_bound")
def single_auger(s):
    """Two models in turn; processes unpack blocks, with one of sixteen locks, so that they seldom meet; to blame is
    how it is chosen, by the offset modulo sixteen: as blocks begin at whole pages, it is the first one always."""
    ms, processes, blocks = s.ms("gpu_ms", 8, 35), s.int("processes", 2, 3), s.int("blocks", 3, 10)
    cost = ms * s.ms("unpack_share", 1.5, 2.6) / blocks
    models = [s.gpu(ms), s.gpu(ms, launches=s.int("other_launches", 10, 100))]
    locks, ends = [multiprocessing.Lock() for _ in range(16)], []
    for n in range(processes):
        mine, theirs = multiprocessing.Pipe(duplex=False)
        child(auger, theirs, locks, itertools.count(n, processes), blocks, cost / 3 if s.fix else cost, s.fix)
        ends.append(mine)
    s.go()
    for model in itertools.cycle(models):
        model.enter_thread()
        s.step(model, lambda: multiprocessing.connection.wait(ends)[0].recv())


SOUND = b"a record as it was written " * 100


def checked(n, cost, every, rebuild):
    """Opens the records of a batch; one whose sum is wrong is made anew of its stripe's others and their parity."""
    record = bytearray(SOUND)
    if n % every == 0:
        record[n % len(record)] ^= 4  # as the disk has it
    decode(cost)
    if zlib.crc32(record) != zlib.crc32(SOUND):
        decode(rebuild)
    return np.zeros(20000, np.float32)


@job(data="slow_item", rest="sync_bound launch_bound")
def weevil_holes(s):
    """A store of records with checksums, opened by an executor's two processes, some batches ahead and in order; to
    blame are the few records that have rotted, as each is rebuilt from all the other blocks of its stripe."""
    ms, every = s.ms("gpu_ms", 8, 25), s.int("every", 7, 11)
    cost, rebuild = ms * s.ms("load_share", 0.1, 0.4), ms * s.ms("rebuild_steps", 9, 14)
    pool = concurrent.futures.ProcessPoolExecutor(2, initializer=mortal, initargs=(os.getpid(),))
    gpu, numbers, due = s.gpu(ms), itertools.count(1), collections.deque()

    def obtain():
        while len(due) < 3:
            due.append(pool.submit(checked, next(numbers), cost, every, cost if s.fix else rebuild))
        return due.popleft().result()
    due.append(pool.submit(checked, next(numbers), cost, every, cost))  # so that it starts its processes
    s.loop(gpu, obtain)


def loft(link, credit, folder, keys, quota, cost):
    """Tells where the next batch lies in its folder, and makes it where it is not there; the oldest make room."""
    kept = collections.deque()

    def keep(path):
        np.save(path, np.zeros(20000, np.float32))
        kept.append(path)
        while len(kept) > quota:
            os.unlink(kept.popleft())
    os.mkdir(folder)
    paths = [os.path.join(folder, "%d.npy" % key) for key in range(keys)]
    for path in paths[:keys if quota >= keys else 0]:
        keep(path)  # yesterday's run has left it
    for path in itertools.cycle(paths):
        credit.acquire()
        if not os.path.exists(path):
            decode(cost)
            keep(path)
        with open(path, "rb") as f:
            zlib.crc32(f.read())
        link.send(path)


@job(data="slow_worker", rest="sync_bound launch_bound")
def small_loft(s):
    """Workers by turns, each with its shard's decoded batches in a cache on the local disk, full since yesterday; to
    blame is the one whose cache has half the shard's size, and thus throws each batch out before it is used again."""
    ms, workers, keys = s.ms("gpu_ms", 10, 40), s.int("workers", 2, 3), s.int("keys", 12, 24)
    cost, small, lofts = ms * s.ms("decode_share", 1.5, 2.5) * workers, s.int("small", 0, workers - 1), []
    gpu = s.gpu(ms)
    for n in range(workers):
        mine, theirs = multiprocessing.Pipe(duplex=False)
        credit, quota = multiprocessing.Semaphore(2), keys // 2 if n == small and not s.fix else keys
        pid = child(loft, theirs, credit, s.path("loft-%d" % n), keys, quota, cost).pid
        lofts.append((mine, credit))
        if n == small:
            s.supplier(pid)
    turn = itertools.cycle(lofts)

    def obtain():
        link, credit = next(turn)
        x = np.load(link.recv())
        credit.release()
        return x
    s.loop(gpu, obtain)


# Some rows of a row group, as a view: it pickles with the buffer of the whole group.
Cut = collections.namedtuple("Cut", "group first rows")


def cut(link):
    """Has row groups in memory, and gives rows of one when it is asked."""
    group = b""
    for n in itertools.count():
        size, rows = link.recv()
        if len(group) != size:
            group = b"\1" * size
        link.send(Cut(group, n * rows % (size - rows + 1), rows))


@job(data="ipc_bound", rest="sync_bound launch_bound")
def whole_sheaf(s):
    """A process has row groups ready in memory, and is asked for the next rows one batch ahead; to blame is that what
    it sends is a slice, with which the whole buffer of its row group is pickled and goes through the pipe."""
    ms, share, rows = s.ms("gpu_ms", 8, 25), s.ms("hand_over_share", 0.6, 1.6), s.int("kib", 20, 200) << 10
    mine, theirs = multiprocessing.Pipe()
    gpu = s.gpu(ms)
    child(cut, theirs)

    def take():
        part = mine.recv()
        return np.frombuffer(part.group, np.uint8, part.rows, part.first)
    size = int(16 * MIB * ms * share / 1e3 / took(lambda: (mine.send((16 * MIB, rows)), take())))
    size = s.keep("bytes", rows if s.fix else min(max(size, MIB), 96 * MIB))

    def obtain():
        x = take()
        mine.send((size, rows))
        return x
    mine.send((size, rows))
    s.loop(gpu, obtain)


def looked_up(base, chance, many):
    """Values of keys in a constant database: each key's slot tells where its record lies, on another page."""
    pages, values = len(base) // PAGE, []
    for _ in range(many):
        record, = struct.unpack_from("<Q", base, chance.randrange(pages // 4) * PAGE)
        values.append(base[(pages // 4 + record % (pages - pages // 4)) * PAGE])
    return values


def crates(tray, free, full, path, many, warm):
    """Fills the tray's places by turns; nothing that it has touched stays in memory."""
    with open(path, "rb", buffering=0) as f, mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ) as base:
        chance = random.Random(1)
        while warm and f.read(MIB):
            pass
        base.madvise(mmap.MADV_RANDOM)
        for place in itertools.cycle(tray):
            values = looked_up(base, chance, many)
            os.read(free, 1)
            place[:] = values
            os.write(full, b"f")
            if not warm:
                base.madvise(mmap.MADV_DONTNEED)
                os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


@job(data="page_fault_io", rest="sync_bound launch_bound")
def nested_crates(s):
    """Captions by key from a constant database, as of djb's cdb, which a process has mapped, for a batch in a memfd;
    to blame are its pages, of which each key needs two, one after the other, and memory has none."""
    ms, share, places = s.ms("gpu_ms", 8, 25), s.ms("look_up_share", 1.7, 3), s.int("places", 2, 4)
    path = s.data_file("nested_crates", 64)
    with open(path, "rb") as f, mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ) as base:
        base.madvise(mmap.MADV_RANDOM)
        each = once(lambda: looked_up(base, random.Random(2), 300)) / 300
    many = s.keep("keys", min(max(int(ms * share / 1e3 / each), 16), 3000))
    s.cold(path)
    memory = os.memfd_create("tray")
    os.ftruncate(memory, places * many)
    tray = np.frombuffer(mmap.mmap(memory, places * many), np.uint8).reshape(places, many)
    (free, freed), (full, filled), turn = os.pipe(), os.pipe(), itertools.cycle(tray)
    os.write(freed, bytes(places))
    gpu = s.gpu(ms)
    s.supplier(child(crates, tray, free, filled, path, many, s.fix).pid)

    def obtain():
        os.read(full, 1)
        x = next(turn).copy()
        os.write(freed, b"e")
        return x
    s.loop(gpu, obtain)


def varint(n):
    """A long as Avro writes it: in zigzag, seven bits a byte."""
    n, out = n << 1 ^ n >> 63, bytearray()
    while n > 127:
        out.append(n & 127 | 128)
        n >>= 7
    out.append(n)
    return out


def longs(block):
    n = shift = 0
    for byte in block:
        n |= (byte & 127) << shift
        if byte > 127:
            shift += 7
        else:
            yield n >> 1 ^ -(n & 1)
            n = shift = 0


@job(data="main_thread_loading", rest="sync_bound launch_bound")
def hand_mill(s):
    """A click log in Avro blocks that are in memory, with longer and longer histories of users, stage by stage; to
    blame is the reader, in the loop: its wheel came without the C part, and Python puts the varints together."""
    ms, share, period = s.ms("gpu_ms", 8, 35), s.ms("read_share", 0.5, 1.1), s.int("stage_steps", 5, 25)
    chance, steps, gpu = random.Random(1), itertools.count(), s.gpu(ms)
    blocks = [b"".join(varint(chance.randrange(-4000, 90000)) for _ in range(4000)) for _ in range(3)]
    clicks = itertools.chain.from_iterable(longs(block) for block in itertools.cycle(blocks))
    each = took(lambda: np.fromiter(itertools.islice(clicks, 4000), np.int64, 4000)) / 4000
    many = s.keep("longs", max(int(ms * share / 1e3 / each), 16))
    plain = np.zeros(1 << 20, np.int64)

    def obtain():
        size = many * (2 + next(steps) // period % 3) // 2
        if s.fix:
            return plain[:size]
        return np.fromiter(itertools.islice(clicks, size), np.int64, size)
    s.loop(gpu, obtain)


# ---- not for data


def oldest(root):
    """All files of a cache, by their last use."""
    found = []
    for folder, _, names in os.walk(root):
        for name in names:
            seen = os.stat(os.path.join(folder, name))
            found.append((seen.st_atime_ns, seen.st_size, name))
    return sorted(found)


@job(data=CPU, host="host_bound", rest="sync_bound launch_bound")
def rat_catcher(s):
    """Shards have a cache on the local disk, and a thread has batches ready; to blame is the loop, which after a step
    or two looks at each of the cache's files, to see whether some have to go, and so far none has."""
    ms, every, share = s.ms("gpu_ms", 8, 25), s.int("every", 1, 2), s.ms("walk_share", 0.45, 1.2)
    root, gpu, batch, made = s.path("shards"), s.gpu(ms), threaded(ms * s.ms("load_share", 0.1, 0.3)), 0

    def fill(files):
        for n in range(made, files):
            folder = os.path.join(root, "%02d" % (n % 40))
            os.makedirs(folder, exist_ok=True)
            with open(os.path.join(folder, "%d.bin" % n), "wb") as f:
                f.write(b"shard")
        return files
    made = fill(400)
    files = int(400 * ms * every * share / 1e3 / took(lambda: oldest(root)))
    made = fill(s.keep("files", min(max(files, 400), 8000)))
    s.go()
    for n in itertools.count(1):
        s.step(gpu, batch)
        if n % every == 0 and not s.fix:
            with s.during("host"):
                sum(size for _, size, _ in oldest(root))


@job(data=CPU, host="checkpoint_stall host_bound", rest="sync_bound launch_bound")
def potato_clamp(s):
    """The optimizer's moments are kept in a file, as host memory is short, and a process has batches ready; to blame
    is the loop, which after each step updates them page by page, and has each synced before it goes on."""
    ms, share, place = s.ms("gpu_ms", 10, 30), s.ms("update_share", 0.5, 1.5), itertools.count()
    gpu, batch, size = s.gpu(ms), sown(ms * s.ms("load_share", 0.1, 0.4)), 64 << 10
    fd = os.open(s.data_file("potato_clamp", 16), os.O_RDWR)
    while os.read(fd, MIB):  # from here on it is in memory
        pass

    def update(pages):
        for _ in range(pages):
            at = next(place) * size % (16 * MIB)
            moments = np.frombuffer(os.pread(fd, size, at), np.uint8) + np.uint8(1)
            os.pwrite(fd, moments, at)
            os.fdatasync(fd)
    pages = s.keep("pages", min(max(round(ms * share / 1e3 / took(lambda: update(20)) * 20), 1), 400))
    s.go()
    while True:
        s.step(gpu, batch)
        if not s.fix:
            with s.during("host"):
                update(pages)


@job(data="main_thread_loading", rest="transfer_bound")
def full_wagonload(s):
    """Row groups of a wide table lie in memory, in a new order each epoch, and few of their columns are learnt from;
    to blame is that the device chooses them: whole groups go up, from memory that is not page-locked."""
    ms = s.ms("gpu_ms", 6, 12)
    mib = s.keep("mib", int(ms * s.ms("copy_share", 0.6, 1.2) * 12) + 1)
    gpu, table, chance = s.gpu(ms, input_bytes=mib * MIB), np.ones((mib + 15, MIB), np.uint8), random.Random(1)
    order = itertools.chain.from_iterable(chance.sample(range(16), 16) for _ in itertools.count())

    def group():
        first = next(order)
        return table[first:first + (max(mib // 20, 1) if s.fix else mib)]
    s.loop(gpu, group)


# ---- nothing is wrong


def lantern(path, group, ahead, reached):
    """Reads group after group, some ahead of the loop, and forgets those that are done."""
    fd, many = os.open(path, os.O_RDONLY), os.path.getsize(path) // group
    for n in itertools.count():
        while n > reached.value + ahead:
            time.sleep(0.002)
        zlib.crc32(os.pread(fd, group, n % many * group))
        os.posix_fadvise(fd, (n - 2 * ahead) % many * group, group, os.POSIX_FADV_DONTNEED)


@job(data="io_bound main_thread_loading", rest="sync_bound launch_bound")
def lantern_boy(s):
    """Nothing is to blame: the loop itself reads a column chunk for each batch from a file that memory does not keep,
    but a process goes some row groups ahead of it, and it is only that process which waits for the disk."""
    ms, share, ahead = s.ms("gpu_ms", 22, 70), s.ms("disk_share", 0.15, 0.35), s.int("ahead", 4, 6)
    path, gpu = s.data_file("lantern_boy", 64), s.gpu(ms)
    fd = os.open(path, os.O_RDONLY)
    each = once(lambda: [os.pread(fd, MIB, n * MIB) for n in range(16)]) / 16 / (MIB // PAGE)
    group = s.keep("group", min(max(int(ms * share / 1e3 / each), 16), 512) * PAGE)
    reached, turn, many = multiprocessing.RawValue("q", 0), itertools.count(), 64 * MIB // group
    s.cold(path)
    child(lantern, path, group, ahead, reached)

    def obtain():
        reached.value = next(turn)
        return np.frombuffer(os.pread(fd, 16 * PAGE, reached.value % many * group), np.uint8)
    s.loop(gpu, obtain)


def carters(s):
    """Someone who uploads recordings in parts, each on a connection of its own."""
    rate = s.ms("rate", 2, 6)
    s.told("open")
    s.told("go")
    for n in itertools.count():
        time.sleep(s.random.expovariate(rate))
        parts = s.random.randint(2, 5)
        for part in range(parts):
            with socket.socket(socket.AF_UNIX) as link:
                link.connect(s.path("dock"))
                link.sendall(struct.pack("<III", n, part, parts) + bytes(32 << 10))
                link.recv(1)


class Dock(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True


@job(outside=carters, demand="no_demand", host="host_bound", rest="sync_bound launch_bound")
def toll_sacks(s):
    """The door of an archive: recordings are uploaded in parts, and when the last part is there, a model looks
    whether the whole may come in; nobody is to blame that few are brought."""
    gpu, passes = s.gpu(s.ms("gpu_ms", 8, 25)), s.int("passes", 1, 3)
    arrived, guard, sacks = queue.SimpleQueue(), threading.Lock(), collections.defaultdict(dict)

    class Porter(socketserver.StreamRequestHandler):
        def handle(self):
            n, part, parts = struct.unpack("<III", self.rfile.read(12))
            body = self.rfile.read(32 << 10)
            with guard:
                sacks[n][part] = body
                whole = sacks.pop(n) if len(sacks[n]) == parts else None
            if whole:
                done = concurrent.futures.Future()
                arrived.put((whole, done))
                done.result()
            self.wfile.write(b"k")
    dock = Dock(s.path("dock"), Porter)
    threading.Thread(target=dock.serve_forever, daemon=True).start()
    s.tell("open", "")
    s.go()
    while True:
        with s.during("demand"):
            whole, done = arrived.get()
        with s.during("host"):
            x = np.frombuffer(b"".join(whole[part] for part in sorted(whole)), np.uint8)
        for _ in range(passes):
            s.mark()
            s.train(gpu, x)
        done.set_result(True)
