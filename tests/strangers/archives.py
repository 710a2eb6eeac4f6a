# SPDX-License-Identifier: BSD-2-Clause
"""Jobs about where data lie: archives, indices, stores, caches, formats, and what only looks like them."""
import bisect
import contextlib
import hashlib
import itertools
import json
import multiprocessing
import os
import random
import selectors
import signal
import socket
import sqlite3
import struct
import threading
import time
import zipfile
import zlib

import numpy as np

from stranger import CPU, child, decode, job, parse

PAGES = np.arange(1 << 16, dtype="<u4").tobytes()  # what a store has
SLOT = 4096


def browse(path, out, cost):
    """Reads members of an archive out of order; zipfile checks their sums."""
    chance = random.Random(1)
    with zipfile.ZipFile(path) as archive:
        names = archive.namelist()
        while True:
            record = archive.read(chance.choice(names))
            decode(cost)
            out.put(np.frombuffer(record, np.uint8))


def kept_up(s, ms):
    """A loader that needs a small part of what the GPU needs. Returns get."""
    path, size = s.path("archive.zip"), s.int("member_kib", 16, 128) << 10
    with zipfile.ZipFile(path, "w") as archive:
        for n in range(s.int("members", 50, 300)):
            archive.writestr("%05d" % n, os.urandom(size))
    out = multiprocessing.Queue(maxsize=4)
    child(browse, path, out, ms * s.ms("load_share", 0.05, 0.35))
    return out.get


def stacks(s):
    """A store in another building: each request for a page is answered a little late."""
    late, spread = float(s.told("late")), s.ms("sigma", 0.05, 0.3)
    door = socket.create_server(("127.0.0.1", 0))
    s.tell("port", door.getsockname()[1])

    def serve(link, n):
        chance = random.Random(n)
        while ask := link.recv(8, socket.MSG_WAITALL):
            time.sleep(late / 1e3 * chance.lognormvariate(0, spread))
            link.sendall(PAGES[:struct.unpack("<II", ask)[1]])
    for n in itertools.count():
        threading.Thread(target=serve, args=(door.accept()[0], n), daemon=True).start()


def asker(port):
    """A connection to a store."""
    stream = socket.create_connection(("127.0.0.1", port)).makefile("rwb")

    def ask(number, size):
        stream.write(struct.pack("<II", number, size))
        stream.flush()
        return stream.read(size)
    return ask


# ---- the data


def climb(out, port, levels, size, samples, seed):
    ask, chance = asker(port), random.Random(seed)
    while True:
        batch = []
        for _ in range(samples):
            key, node = chance.getrandbits(40), 0
            for _ in range(levels):  # no page is kept, not even the root
                keys = np.frombuffer(ask(node, 4096), "<u4")
                node = (node << 10 | int(np.searchsorted(keys, key & 1023))) % (1 << 32)
                key >>= 10
            batch.append(np.frombuffer(ask(node, size), np.uint8))
        out.put(np.stack(batch))


@job(outside=stacks, data="network_bound too_few_workers", rest="sync_bound launch_bound")
def library_stairs(s):
    """Records are found by a B-tree whose pages lie in a far store, and are asked for from the root down."""
    ms, workers = s.ms("gpu_ms", 10, 45), s.int("workers", 1, 3)
    levels, samples, size = s.int("levels", 2, 4), s.int("samples", 1, 4), s.int("kib", 4, 64) << 10
    gpu, late = s.gpu(ms), ms * s.ms("load_share", 1.3, 3.2) * workers / (samples * (levels + 1))
    s.tell("late", late / 10 if s.fix else late)
    out, port = multiprocessing.Queue(maxsize=4), int(s.told("port"))
    pids = [child(climb, out, port, levels, size, samples, n).pid for n in range(workers)]
    if workers == 1:
        s.supplier(pids[0])
    s.loop(gpu, out.get)


def derive(ms, salt):
    """A key from a passphrase; computes without the interpreter's lock."""
    key, end = b"swordfish", time.thread_time_ns() + int(ms * 1e6)
    while time.thread_time_ns() < end:
        key = hashlib.pbkdf2_hmac("sha256", key, salt, 300)
    return hashlib.sha256(key).digest()


def envelopes(path, size, out):
    with open(path, "rb") as f:
        while True:
            record = f.read(size)
            if len(record) == size:
                out.send_bytes(record)
            else:
                f.seek(0)


def unseal(sealed, out, cost):
    while True:
        record = np.frombuffer(sealed.recv_bytes(), np.uint8)
        key = np.frombuffer(derive(cost, record[:16].tobytes()), np.uint8)
        out.send_bytes(record ^ np.tile(key, record.size // key.size))


def check(letters, out):
    while True:
        letter = letters.recv_bytes()
        zlib.crc32(letter)
        out.put(np.frombuffer(letter, np.uint8))


@job(data=CPU, rest="sync_bound launch_bound")
def sealed_letters(s):
    """Read, decrypt, check are processes in a row; for each record a key is derived from a phrase."""
    ms, size = s.ms("gpu_ms", 8, 45), s.int("kib", 32, 400) << 10
    gpu, cost = s.gpu(ms), ms * s.ms("load_share", 1.25, 3)
    path = s.path("letters.bin")
    with open(path, "wb") as f:
        f.write(os.urandom(s.int("mib", 4, 24) << 20))
    sealed, post = multiprocessing.Pipe(duplex=False)
    letters, opened = multiprocessing.Pipe(duplex=False)
    out = multiprocessing.Queue(maxsize=4)
    child(envelopes, path, size, post)
    s.supplier(child(unseal, sealed, opened, cost / 10 if s.fix else cost).pid)
    child(check, letters, out)
    s.loop(gpu, out.get)


def album(path, out, total, page, pages, by_key):
    db, last = sqlite3.connect(path), 0
    while True:
        rows = []
        for _ in range(pages):
            if by_key:
                rows += db.execute("SELECT body FROM visits WHERE id > ? ORDER BY id LIMIT ?", (last, page))
            else:  # SQLite goes through all rows before
                rows += db.execute("SELECT body FROM visits ORDER BY id LIMIT ? OFFSET ?", (page, last))
            last = last + page if last + page < total else 0
        out.put(np.frombuffer(b"".join(body for body, in rows), np.uint8))


@job(data=CPU, rest="sync_bound launch_bound")
def guest_book(s):
    """A process goes through a cached table of SQLite page by page, by LIMIT and OFFSET."""
    ms, total, epoch = s.ms("gpu_ms", 12, 45), s.int("rows", 60000, 120000), s.int("epoch", 20, 40)
    gpu, cost, path = s.gpu(ms), ms * s.ms("load_share", 1.4, 3), s.path("visits.db")
    db = sqlite3.connect(path)
    db.execute("PRAGMA synchronous = OFF")
    db.execute("CREATE TABLE visits (id INTEGER PRIMARY KEY, body BLOB)")
    db.executemany("INSERT INTO visits (body) VALUES (?)", ((os.urandom(64),) for _ in range(total)))
    db.commit()
    through = []
    for _ in range(3):
        begin = time.monotonic()
        db.execute("SELECT body FROM visits ORDER BY id LIMIT 1 OFFSET ?", (total - 1,)).fetchall()
        through.append(1e3 * (time.monotonic() - begin))
    db.close()
    pages = max(1, round(cost / (min(through) / 2)))  # half of the table is gone through for one
    out = multiprocessing.Queue(maxsize=4)
    s.supplier(child(album, path, out, total, max(1, total // (pages * epoch)), pages, s.fix).pid)
    s.loop(gpu, out.get)


def annex(s):
    """A store behind a narrow line, which all its clients share."""
    rate, line = float(s.told("rate")), threading.Lock()
    door = socket.create_server(("127.0.0.1", 0))
    s.tell("port", door.getsockname()[1])

    def serve(link):
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while ask := link.recv(8, socket.MSG_WAITALL):
            left = struct.unpack("<II", ask)[1]
            while left:
                piece = PAGES[:min(left, 1 << 17)]
                with line:
                    time.sleep(len(piece) / rate)
                link.sendall(piece)
                left -= len(piece)
    while True:
        threading.Thread(target=serve, args=(door.accept()[0],), daemon=True).start()


def leaf_through(out, port, block, size, records, seed):
    """By a file-like object that fetches and keeps the whole block around what is read."""
    ask, chance, number, held = asker(port), random.Random(seed), None, b""
    while True:
        batch = []
        for _ in range(records):
            at = chance.randrange(1 << 20) * size
            if number != at // block:
                number = at // block
                held = ask(number, block)
            batch.append(np.frombuffer(held, np.uint8, size, at % block))
        out.put(np.stack(batch))


@job(outside=annex, data="network_bound", rest="sync_bound launch_bound")
def reading_room(s):
    """Small records at random of a far file, whose client fetches a large block around each of them."""
    ms, workers, records = s.ms("gpu_ms", 12, 50), s.int("workers", 1, 2), s.int("records", 1, 3)
    size, block = s.one("record_kib", 4, 8, 16) << 10, s.one("block_kib", 256, 512, 1024) << 10
    gpu, load = s.gpu(ms), ms * s.ms("load_share", 1.3, 3)
    s.tell("rate", records * block / (load / 1e3))
    out, port = multiprocessing.Queue(maxsize=4), int(s.told("port"))
    pids = [child(leaf_through, out, port, size if s.fix else block, size, records, n).pid
            for n in range(workers)]
    if workers == 1:
        s.supplier(pids[0])
    s.loop(gpu, out.get)


def visitor(out, guard, tags, rows, port, keys, samples, fix, seed):
    ask, chance, slots = asker(port), random.Random(seed), len(tags)
    shelf = np.frombuffer(rows, np.uint8).reshape(slots, SLOT)
    while True:
        batch = np.empty((samples, SLOT), np.uint8)
        for row in batch:
            key = chance.randrange(keys)
            slot = key % slots
            early = ask(key, SLOT) if fix and tags[slot] != key else None
            with guard:
                if tags[slot] != key:
                    shelf[slot] = np.frombuffer(early or ask(key, SLOT), np.uint8)
                    tags[slot] = key
                row[:] = shelf[slot]
        out.put(batch)


@job(outside=stacks, data="lock_bound", beside="network_bound", rest="sync_bound launch_bound")
def common_drawer(s):
    """Processes share a cache; who misses asks a far store with the cache's lock held."""
    ms, workers, samples = s.ms("gpu_ms", 10, 40), s.int("workers", 3, 4), s.int("samples", 4, 10)
    slots, per_slot = s.int("slots", 200, 2000), s.int("keys_per_slot", 2, 5)
    gpu, load = s.gpu(ms), ms * s.ms("load_share", 1.4, 2.2)
    s.tell("late", load / (samples * (1 - 1 / per_slot)))
    tags, rows = multiprocessing.RawArray("i", [-1] * slots), multiprocessing.RawArray("B", slots * SLOT)
    guard, out, port = multiprocessing.Lock(), multiprocessing.Queue(maxsize=4), int(s.told("port"))
    for n in range(workers):
        child(visitor, out, guard, tags, rows, port, slots * per_slot, samples, s.fix, n)
    s.loop(gpu, out.get)


@job(data="main_thread_loading", rest="sync_bound launch_bound")
def microfilm_reels(s):
    """The loop seeks frames in a mapped file by an index, takes dark off in place, stretches contrast."""
    ms, frames, width = s.ms("gpu_ms", 10, 50), 4096, s.one("width", 1024, 2048, 4096)
    gpu, cost = s.gpu(ms), ms * s.ms("load_share", 0.5, 2)
    chance, path = np.random.default_rng(1), s.path("reels.bin")
    chance.integers(40, 4096, (frames, width), np.int16).tofile(path)
    keys, dark = np.sort(chance.integers(0, 1 << 40, frames)), np.full(width, s.int("dark", 5, 40), np.int16)

    def obtain(count):
        at = np.searchsorted(keys, keys[chance.integers(0, frames, count)])
        reel = np.memmap(path, np.int16, "c", shape=(frames, width))
        reel[at] -= dark  # in place: pages are copied on write
        x = np.asarray(reel[at], np.float32)
        low, high = np.percentile(x, (1, 99), axis=1, keepdims=True)
        return np.clip((x - low) / (high - low), 0, 1).astype(np.float32)
    took = []
    for _ in range(4):
        begin = time.monotonic()
        obtain(64)
        took.append(1e3 * (time.monotonic() - begin) / 64)
    many = int((cost / 25 if s.fix else cost) / min(took))
    s.loop(gpu, lambda: obtain(min(max(many, 1), frames)))


def weir(s):
    """A store with a quota: so many requests in each stretch of time, at once, and then none."""
    quota, window = s.told("quota").split()
    quota, window = int(quota), float(window)
    door = socket.create_server(("127.0.0.1", 0))
    s.tell("port", door.getsockname()[1])
    link = door.accept()[0]
    used, end = 0, time.monotonic() + window
    while ask := link.recv(8, socket.MSG_WAITALL):
        if used >= quota:
            time.sleep(max(end - time.monotonic(), 0))
        if time.monotonic() >= end:
            used, end = 0, time.monotonic() + window
        used += 1
        link.sendall(PAGES[:struct.unpack("<II", ask)[1]])
    signal.pause()


def sketches(out, cost, size):
    for key in itertools.count():
        decode(cost)
        out.send((key, np.zeros(size, np.uint8)))


def legends(out, port, size):
    ask, chance, key = asker(port), random.Random(1), 0
    while True:
        out.send((key, np.frombuffer(ask(key, size), np.uint8)))
        key += chance.randint(1, 3)  # not every sketch has one


def join(left, right, out, size):
    a, b, batch = left.recv(), right.recv(), []
    while True:
        if a[0] < b[0]:
            a = left.recv()
        elif b[0] < a[0]:
            b = right.recv()
        else:
            batch.append(np.concatenate([a[1], b[1]]))
            a, b = left.recv(), right.recv()
            if len(batch) == size:
                out.put(np.stack(batch))
                batch = []


@job(outside=weir, data="network_bound", rest="sync_bound launch_bound")
def matched_halves(s):
    """Two sorted sources are joined by key: one unpacks in time, the other has a quota at its store."""
    ms, size, per_window = s.ms("gpu_ms", 12, 50), s.int("batch", 2, 8), s.int("batches_per_window", 1, 3)
    gpu, window = s.gpu(ms), per_window * ms * s.ms("load_share", 1.4, 3) / 1e3
    unpack = ms * s.ms("unpack_share", 0.2, 0.5) / (2 * size)
    s.tell("quota", "%d %f" % (per_window * size * (10 if s.fix else 1), window))
    port, kib = int(s.told("port")), s.int("kib", 1, 16)
    left, first = multiprocessing.Pipe(duplex=False)
    right, second = multiprocessing.Pipe(duplex=False)
    out = multiprocessing.Queue(maxsize=4)
    child(sketches, first, unpack, kib << 10)
    s.supplier(child(legends, second, port, kib << 10).pid)
    child(join, left, right, out, size)
    s.loop(gpu, out.get)


# ---- what only looks like it


def enter(index, chance, ms):
    """Adds a page's words to their postings, which are kept in order."""
    end = time.thread_time_ns() + int(ms * 1e6)
    while time.thread_time_ns() < end:
        postings = index[chance.randrange(len(index))]
        bisect.insort(postings, chance.getrandbits(30))
        if len(postings) > 1000:
            del postings[::2]


@job(data=CPU, host="host_bound sync_bound", rest="sync_bound launch_bound")
def wet_ink(s):
    """An archive is indexed: pages come from a zip in time, the loop enters their words after a step."""
    ms, words = s.ms("gpu_ms", 10, 60), s.int("words", 50, 500)
    gpu, batch, cost = s.gpu(ms), kept_up(s, ms), ms * s.ms("enter_share", 0.4, 2)
    index, chance = [[] for _ in range(words)], random.Random(1)
    s.go()
    while True:
        s.step(gpu, batch)
        with s.during("host"):
            enter(index, chance, cost / 20 if s.fix else cost)


@job(data=CPU, host="sync_bound host_bound", rest="sync_bound launch_bound host_bound")
def frame_headers(s):
    """The device unpacks blocks of an archive; the size of each is read, to know where the next begins."""
    ms, blocks, few = s.ms("gpu_ms", 8, 40), s.int("blocks", 6, 24), s.int("block_launches", 2, 6)
    block_ms = s.ms("block_ms", 0.3, 1.5)
    header = (ms + blocks * block_ms) * s.ms("header_share", 0.4, 1.2) / blocks
    unpack, gpu = s.gpu(block_ms, launches=few), s.gpu(ms)
    batch = kept_up(s, ms)
    s.go()
    while True:
        s.mark()
        with s.during("data"):
            x = batch()
        unpack.enter_thread()
        unpack.upload(x.ctypes.data, x.nbytes)
        for _ in range(blocks):
            unpack.launch(0, few)
            if not s.fix:  # else the sizes stand in a table at the archive's end
                unpack.loss_item()
                with s.during("host"):
                    parse(header)
        gpu.enter_thread()
        s.train(gpu)


@job(data=CPU, host="host_bound", rest="sync_bound launch_bound")
def old_timetable(s):
    """An archived log of events is replayed at the pace at which it was recorded; its records lie ready."""
    ms = s.ms("gpu_ms", 8, 55)
    gpu, batch, period = s.gpu(ms), kept_up(s, ms), ms * s.ms("period_share", 1.5, 3) / 1e3
    gaps = np.random.default_rng(1).uniform(0.6, 1.4, 10**5) * (period / 10 if s.fix else period)
    stamps = np.cumsum(gaps).tolist()
    s.go()
    begin = time.monotonic()
    for stamp in stamps:
        s.step(gpu, batch)
        with s.during("host"):
            time.sleep(max(begin + stamp - time.monotonic(), 0))


@job(data=CPU, lock="lock_bound", rest="sync_bound launch_bound")
def attic_shelves(s):
    """Features of each step go to a cache; a thread packs the oldest of them with the cache's lock held."""
    ms = s.ms("gpu_ms", 8, 40)
    gpu, batch, guard, shelves = s.gpu(ms), kept_up(s, ms), threading.Lock(), {}
    hold, pause = ms * s.ms("hold_share", 1, 3), ms * s.ms("pause_share", 0.2, 0.8) / 1e3

    def spill():
        with open(s.path("spilled"), "wb") as f:
            while True:
                with contextlib.nullcontext() if s.fix else guard:
                    decode(hold)
                    for key in list(shelves)[:-64]:
                        f.write(shelves.pop(key))
                f.seek(0)
                time.sleep(pause)
    threading.Thread(target=spill, daemon=True).start()
    s.go()
    for n in itertools.count():
        x = s.step(gpu, batch)
        with s.during("lock"):
            guard.acquire()
        shelves[n] = x[:64].tobytes()
        guard.release()


@job(data=CPU, ckpt="checkpoint_stall host_bound", rest="sync_bound launch_bound")
def deposit_boxes(s):
    """Every few steps the state goes to a store of blocks named by their sums; known ones are skipped."""
    ms, every, live = s.ms("gpu_ms", 8, 40), s.int("every", 3, 9), s.int("live_blocks", 4, 12)
    gpu, batch, boxes = s.gpu(ms), kept_up(s, ms), s.path("boxes")
    blocks = np.random.default_rng(1).random((live + s.int("frozen_blocks", 2, 12),
                                              s.int("block_kib", 128, 512) << 8), np.float32)
    pack, kept = ms * every * s.ms("pack_share", 0.3, 1) / live, set()
    os.makedirs(boxes)

    def put(name, block):
        with open(s.path("part"), "wb") as f:
            f.write(block)
            f.flush()
            os.fsync(f.fileno())
        os.rename(s.path("part"), os.path.join(boxes, name))

    def save():
        blocks[:live] += 1  # learnt; the others are frozen
        names = [hashlib.sha256(block).hexdigest() for block in blocks]
        for name, block in zip(names, blocks):
            if name not in kept:
                decode(pack)
                put(name, block)
        put("manifest", "\n".join(names).encode())
        for name in kept.difference(names):
            os.unlink(os.path.join(boxes, name))
        kept.clear()
        kept.update(names)
    save()
    s.go()
    for n in itertools.count(1):
        s.step(gpu, batch)
        if n % (every * 20 if s.fix else every) == 0:
            with s.during("ckpt"):
                save()


def readers(s):
    """A few people who look at a map, and then ask for what resembles it."""
    pause, port = float(s.told("pause")), int(s.told("port"))

    def visit(n):
        chance, link = random.Random(n), socket.create_connection(("127.0.0.1", port))
        while True:
            time.sleep(chance.expovariate(1 / pause))
            link.sendall(struct.pack("<I", chance.getrandbits(16)))
            link.recv(64)
    s.told("go")
    for n in range(s.int("readers", 1, 3)):
        threading.Thread(target=visit, args=(n,), daemon=True).start()
    signal.pause()


@job(outside=readers, demand="no_demand", host="host_bound sync_bound",
     rest="sync_bound launch_bound host_bound")
def map_counter(s):
    """A search in an archive of maps: each question is embedded, then looked up in SQLite, and answered."""
    gpu, pause = s.gpu(s.ms("gpu_ms", 6, 25)), s.ms("pause_s", 0.08, 0.25)
    db = sqlite3.connect(":memory:")
    db.execute("CREATE TABLE maps (id INTEGER PRIMARY KEY, cell INTEGER)")
    db.executemany("INSERT INTO maps (cell) VALUES (?)",
                   [(s.random.getrandbits(16),) for _ in range(s.int("maps", 1000, 10000))])
    door, select = socket.create_server(("127.0.0.1", 0)), selectors.DefaultSelector()
    select.register(door, selectors.EVENT_READ)
    s.tell("pause", pause / 20 if s.fix else pause)
    s.tell("port", door.getsockname()[1])
    s.go()
    while True:
        with s.during("demand"):
            ready = select.select()
        for key, _ in ready:
            link = key.fileobj
            if link is door:
                select.register(door.accept()[0], selectors.EVENT_READ)
                continue
            ask = link.recv(4)
            if not ask:
                select.unregister(link)
                continue
            cell, = struct.unpack("<I", ask)
            s.mark()
            s.train(gpu, np.full(4096, cell, np.int32))
            with s.during("host"):
                found = db.execute("SELECT id FROM maps ORDER BY abs(cell - ?) LIMIT 5", (cell,))
                link.sendall(json.dumps(found.fetchall()).encode()[:64])


def borrow(out, guard, port, glance, size, cost, seed):
    ask, chance = asker(port), random.Random(seed)
    while True:
        with guard:
            decode(glance)  # the catalogue, which all share
        record = ask(chance.getrandbits(30), size)
        decode(cost)
        hashlib.sha256(record).digest()
        out.put(np.frombuffer(record, np.uint8))


def scrub(burst, pause):
    """Old records are checked for rot."""
    os.nice(19)
    while True:
        derive(burst, b"salt")
        time.sleep(pause)


@job(outside=stacks, data="network_bound too_few_workers", rest="sync_bound launch_bound")
def quiet_vault(s):
    """Processes share a catalogue under a lock and ask a far store, well ahead; a niced one scrubs."""
    ms, workers = s.ms("gpu_ms", 15, 70), s.int("workers", 2, 3)
    gpu, late = s.gpu(ms, launches=s.int("launches", 10, 50)), ms * s.ms("late_share", 0.1, 0.4) * workers
    glance, cost = ms * s.ms("glance_share", 0.02, 0.08), ms * s.ms("unpack_share", 0.05, 0.2)
    s.tell("late", late)
    guard, out = multiprocessing.Lock(), multiprocessing.Queue(maxsize=s.int("ahead", 8, 24))
    port, size = int(s.told("port")), s.int("kib", 16, 200) << 10
    for n in range(workers):
        child(borrow, out, guard, port, glance, size, cost, n)
    burst = s.ms("burst_ms", 5, 60)
    child(scrub, burst, burst * s.ms("pause_share", 0.8, 2) / 1e3)
    s.loop(gpu, out.get)
