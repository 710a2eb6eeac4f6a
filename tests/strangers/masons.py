# SPDX-License-Identifier: BSD-2-Clause
"""Among masons: where the bytes come from, out of storage and memory of all kinds, and what is laid beside them."""
import fcntl
import hashlib
import itertools
import mmap
import multiprocessing
import os
import queue
import random
import socket
import socketserver
import struct
import subprocess
import threading
import time
import zipfile

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


def heat(fd):
    """Brings a file into memory."""
    for at in range(0, os.fstat(fd).st_size, MIB):
        os.pread(fd, MIB, at)


def forget(fd):
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)


def put(out, cost):
    while True:
        decode(cost)
        out.put(np.zeros(20000, np.float32))


# ---- the data is late


def quarried(store, view, many):
    """Small files named by their sums, and a version of the set: a folder of links to them."""
    os.mkdir(view)
    for n in range(many):
        name = hashlib.sha256(b"%d" % n).hexdigest()
        folder = os.path.join(store, "objects", name[:2])
        os.makedirs(folder, exist_ok=True)
        with open(os.path.join(folder, name), "wb") as f:
            f.write(bytes(512))
        os.symlink(os.path.join(folder, name), os.path.join(view, "%05d.png" % n))
    return [os.path.join(view, name) for name in sorted(os.listdir(view))]


def admitted(path, root):
    """A file's bytes, if its link leads to where it may."""
    real = os.path.realpath(path)
    if os.path.commonpath([real, root]) != root:
        raise PermissionError(path)
    with open(real, "rb") as f:
        return f.read()


def lay_links(link, paths, root, many, packed):
    turn = itertools.cycle(paths)
    with open(packed, "rb") as pack:
        while True:
            if packed != os.devnull:
                stones = [os.pread(pack.fileno(), 512, n % 300 * 512) for n in range(many)]
            else:
                stones = [admitted(path, root) for path in itertools.islice(turn, many)]
            link.send_bytes(b"".join(stones))


@job(data=CPU, rest="sync_bound launch_bound")
def keystone_links(s):
    """A versioned data set, as DVC lays it out: a folder of links into a store of objects named by their sums, all in
    the page cache; to blame is the process that resolves each link, part by part, and opens each of the small files."""
    ms, share, store = s.ms("gpu_ms", 8, 30), s.ms("open_share", 1.5, 2.8), os.path.realpath(s.path("store"))
    paths, gpu, packed = quarried(store, s.path("view"), 300), s.gpu(ms), os.devnull
    each = took(lambda: [admitted(path, store) for path in paths]) / len(paths)
    many = s.keep("files", max(int(ms * share / 1e3 / each), 8))
    if s.fix:
        packed = s.path("pack")
        np.zeros(300 * 512, np.uint8).tofile(packed)
    mine, theirs = multiprocessing.Pipe(duplex=False)
    s.supplier(child(lay_links, theirs, paths, store, many, packed).pid)
    s.loop(gpu, lambda: np.frombuffer(mine.recv_bytes(), np.uint8))


def section(fd, many, at):
    """One column of pages through a cube of `many` rows."""
    stride, x = 64 * MIB // PAGE // many, np.empty((many, PAGE), np.uint8)
    for n in range(many):
        os.preadv(fd, [x[n]], (n * stride + at % stride) * PAGE)
    return x


@job(data="io_bound", rest="sync_bound launch_bound")
def cross_seam(s):
    """Seismic cubes, stored line by line, of which a thread reads sections across ahead of the loop; to blame is the
    disk, as a section has a page in each line, memory keeps none, and there is one read at a time."""
    ms, share = s.ms("gpu_ms", 8, 25), s.ms("read_share", 1.6, 2.8)
    path, gpu, out = s.data_file("cross_seam", 64), s.gpu(ms), queue.Queue(2)
    fd = os.open(path, os.O_RDONLY)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
    each = once(lambda: section(fd, 400, 7)) / 400
    many = s.keep("lines", min(max(int(ms * share / 1e3 / each), 16), 3000))
    forget(fd)
    if s.fix:
        heat(fd)

    def hew():
        for at in itertools.count():
            if s.fix:  # there is a copy that is turned round
                x = np.frombuffer(os.pread(fd, many * PAGE, at % 7 * PAGE), np.uint8)
            else:
                x = section(fd, many, at * 3)
                forget(fd)
            out.put(x)
    threading.Thread(target=hew, daemon=True).start()
    s.loop(gpu, out.get)


def mortar(fd, turn, records, size):
    """Lays records into the cache, each of which has to survive a crash."""
    for _ in range(records):
        os.pwrite(fd, bytes(size), next(turn) * size % (32 * MIB))
        os.fdatasync(fd)


def wet(link, fd, records, size, cost, kept):
    turn = itertools.count()
    while True:
        decode(cost)
        if kept:
            mortar(fd, turn, records, size)
        link.send(np.zeros(20000, np.float32))


@job(data="io_bound", rest="sync_bound launch_bound")
def wet_mortar(s):
    """In the first epoch a process puts each record that it has unpacked into a local cache, before it hands over the
    batch; the unpacking is quick, and to blame is the sync after each record, for which it waits for the disk."""
    ms, share, size = s.ms("gpu_ms", 10, 30), s.ms("sync_share", 1.4, 2.4), s.int("kib", 16, 64) << 10
    fd, gpu = os.open(s.data_file("wet_mortar", 32), os.O_RDWR), s.gpu(ms)
    each = took(lambda: mortar(fd, itertools.count(), 16, size)) / 16
    records = s.keep("records", min(max(round(ms * share / 1e3 / each), 1), 1000))
    mine, theirs = multiprocessing.Pipe(duplex=False)
    s.supplier(child(wet, theirs, fd, records, size, ms * 0.1, not s.fix).pid)
    s.loop(gpu, mine.recv)


def course(base, chance, many):
    """The lines around random places of a text: from each it goes back to the last line's end, and on to the next."""
    lines = []
    for _ in range(many):
        place = chance.randrange(PAGE, len(base) - PAGE)
        begin = base.rfind(b"\n", place - PAGE, place) + 1
        end = base.find(b"\n", place, place + PAGE)
        lines.append(base[begin:min(max(end, begin), begin + 128)])
    return b"".join(lines)


def ragged(out, path, many, warm):
    chance = random.Random(1)
    with open(path, "rb", buffering=0) as f, mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ) as base:
        base.madvise(mmap.MADV_RANDOM)
        if warm:
            heat(f.fileno())
        while True:
            out.put(course(base, chance, many))
            if not warm:
                base.madvise(mmap.MADV_DONTNEED)
                forget(f.fileno())


@job(data="page_fault_io", rest="sync_bound launch_bound")
def ragged_courses(s):
    """Lines of a corpus without an index: a process has the text mapped, jumps to random places and seeks the line's
    ends from there by rfind() and find(); to blame are the pages on which it lands, which memory does not have."""
    ms, share = s.ms("gpu_ms", 8, 25), s.ms("seek_share", 1.6, 2.8)
    path, gpu, out = s.data_file("ragged_courses", 64), s.gpu(ms), multiprocessing.Queue(maxsize=2)
    with open(path, "rb") as f, mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ) as base:
        base.madvise(mmap.MADV_RANDOM)
        each = once(lambda: course(base, random.Random(2), 300)) / 300
    many = s.keep("lines", min(max(int(ms * share / 1e3 / each), 16), 4000))
    s.cold(path)
    s.supplier(child(ragged, out, path, many, s.fix).pid)
    s.loop(gpu, lambda: np.frombuffer(out.get(), np.uint8))


def pallets(link, shards, newest, many, warm):
    """Is told a seed, and draws records from any shard."""
    fds = [os.open(path, os.O_RDONLY) for path in shards + [newest]]
    sizes = [os.path.getsize(path) // PAGE for path in shards + [newest]]
    os.posix_fadvise(fds[-1], 0, 0, os.POSIX_FADV_RANDOM)
    for fd in fds if warm else fds[:-1]:  # the list of what is to be warmed
        heat(fd)
    while True:
        chance, records = random.Random(link.recv()), []
        for _ in range(many):
            n = chance.randrange(len(fds))
            records.append(os.pread(fds[n], PAGE, chance.randrange(sizes[n]) * PAGE)[:32])
        link.send_bytes(b"".join(records))
        if not warm:
            forget(fds[-1])


@job(data="slow_file io_bound", rest="sync_bound launch_bound")
def unlisted_pallet(s):
    """A process draws records from a few shards alike, when it is told the next seed; to blame is the newest shard,
    which the list of files that are warmed at the start does not name yet, so that its pages come from the disk."""
    ms, share, old = s.ms("gpu_ms", 8, 25), s.ms("read_share", 1.6, 2.6), s.int("old_shards", 2, 3)
    newest, chance, gpu = s.data_file("unlisted_pallet", 64), random.Random(2), s.gpu(ms)
    fd = os.open(newest, os.O_RDONLY)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
    each = once(lambda: [os.pread(fd, PAGE, chance.randrange(64 * MIB // PAGE) * PAGE) for _ in range(400)]) / 400
    many = s.keep("records", min(max(int(ms * share / 1e3 / each), 16), 3000) * (old + 1))
    s.cold(newest)
    shards = [s.path("shard-%d" % n) for n in range(old)]
    for path in shards:
        np.ones(8 * MIB, np.uint8).tofile(path)
    mine, theirs = multiprocessing.Pipe()
    s.supplier(child(pallets, theirs, shards, newest, many, s.fix).pid)
    seeds = itertools.count(1)

    def obtain():
        x = np.frombuffer(mine.recv_bytes(), np.uint8)
        mine.send(next(seeds))
        return x
    mine.send(0)
    s.loop(gpu, obtain)


def heap(path, members):
    with zipfile.ZipFile(path, "w") as z:
        for n in range(members):
            z.writestr("tile-%06d" % n, b"a tile of the map " * 4)
    return path


def cart(out, path):
    """Opens its archive for a batch, as a handle must not be kept over a fork."""
    for n in itertools.count():
        with zipfile.ZipFile(path) as z:
            tiles = [z.read("tile-%06d" % ((n + i) % 40)) for i in range(8)]
        out.put(np.resize(np.frombuffer(b"".join(tiles), np.uint8), 50000))


@job(data="slow_worker", rest="sync_bound launch_bound")
def gravel_load(s):
    """Workers by turns, each with an archive of its own that it opens for every batch, all in memory; to blame is the
    one whose tiles were never put together into larger members, so that its archive's directory is endless."""
    ms, workers, slow = s.ms("gpu_ms", 8, 22), s.int("workers", 2, 3), s.int("slow", 0, 1)
    share, trial, gpu = s.ms("open_share", 1.5, 2.4), heap(s.path("trial.zip"), 3000), s.gpu(ms)
    each = took(lambda: zipfile.ZipFile(trial).close()) / 3000
    members = s.keep("members", min(max(int(ms * workers * share / 1e3 / each), 500), 30000))
    outs = [multiprocessing.Queue(maxsize=1) for _ in range(workers)]
    for n, out in enumerate(outs):
        path = heap(s.path("tiles-%d.zip" % n), members if n == slow and not s.fix else 40)
        pid = child(cart, out, path).pid
        if n == slow:
            s.supplier(pid)
    turn = itertools.cycle(outs)
    s.loop(gpu, lambda: next(turn).get())


def undelta(out, first, link_ms, short, long, every):
    """An object is a delta to another one, and so on, until one that is there as a whole."""
    for n in itertools.count(first, 2):
        for _ in range(long if n % every == 0 else short):
            decode(link_ms)
        out.put(np.full(20000, n, np.float32))


@job(data="slow_item", rest="sync_bound launch_bound")
def toothed_chain(s):
    """Code models learn from repositories' packs, whose objects are deltas to each other, and two processes undo them
    by turns; to blame are the few objects at the far end of a long chain, as a repack without a depth left them."""
    ms, every, short = s.ms("gpu_ms", 8, 25), s.one("every", 7, 9, 11), s.int("short", 2, 4)
    link_ms = ms * s.ms("load_share", 0.12, 0.4) / short
    long = s.keep("long", round(ms * s.ms("chain_steps", 9, 14) / link_ms))
    gpu, outs = s.gpu(ms), [multiprocessing.Queue(maxsize=1) for _ in range(2)]
    for n, out in enumerate(outs):
        child(undelta, out, n, link_ms, short, short if s.fix else long, every)
    turn = itertools.cycle(outs)
    s.loop(gpu, lambda: next(turn).get())


@job(data="main_thread_loading", rest="sync_bound launch_bound")
def whole_monolith(s):
    """Patches of volumes as from a microscope, all of them in the page cache; to blame is the loop, which reads the
    whole volume into new memory for each step, and then cuts a small patch out of it."""
    ms, share, path = s.ms("gpu_ms", 8, 20), s.ms("read_share", 0.55, 1.3), s.path("volume")
    with open(path, "wb") as f:
        for _ in range(16):
            f.write(bytes([7]) * MIB)
    each = took(lambda: np.fromfile(path, np.uint8)) / 16
    mib, gpu, chance = s.keep("mib", min(max(int(ms * share / 1e3 / each), 3), 96)), s.gpu(ms), random.Random(1)
    with open(path, "wb") as f:
        for _ in range(mib):
            f.write(bytes([7]) * MIB)

    def obtain():
        at = chance.randrange(mib - 1) * MIB
        if s.fix:
            return np.fromfile(path, np.uint8, MIB // 4, offset=at)
        return np.fromfile(path, np.uint8)[at:at + MIB // 4].copy()
    s.loop(gpu, obtain)


WALK, OPEN, READ, CLUNK = range(4)


class Export(socketserver.BaseRequestHandler):
    """Serves files over a long line, in the manner of 9P."""
    late = 0.0

    def handle(self):
        self.request.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while ask := self.request.recv(5, socket.MSG_WAITALL):
            time.sleep(self.late)
            body = bytes(16 << 10 if ask[0] == READ else 16)
            self.request.sendall(struct.pack("<I", len(body)) + body)


class Exporter(socketserver.ThreadingTCPServer):
    daemon_threads = True


def far_yard(s):
    Export.late = float(s.told("late")) / 1e3
    server = Exporter(("127.0.0.1", 0), Export)
    s.tell("port", server.server_address[1])
    server.serve_forever()


def call(link, op, fid):
    link.sendall(struct.pack("<BI", op, fid))
    size, = struct.unpack("<I", link.recv(4, socket.MSG_WAITALL))
    return link.recv(size, socket.MSG_WAITALL)


def knock(out, port, files, cost):
    link, fids = socket.create_connection(("127.0.0.1", port)), itertools.count()
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    while True:
        bodies = []
        for fid in itertools.islice(fids, files):
            bodies.append([call(link, op, fid) for op in (WALK, OPEN, READ, CLUNK)][READ])
        decode(cost)
        out.put(np.frombuffer(b"".join(bodies), np.uint8))


@job(outside=far_yard, data="network_bound too_few_workers", rest="sync_bound launch_bound")
def four_knocks(s):
    """A process reads small files from another machine by a client for 9P in user space; to blame is the line, on
    which each file takes four questions, one after the other: walk, open, read, clunk."""
    ms, files = s.ms("gpu_ms", 10, 40), s.int("files", 2, 4)
    late = ms * s.ms("late_share", 1.4, 2.6) / files / 4
    s.tell("late", late / 20 if s.fix else late)
    gpu, out, port = s.gpu(ms), multiprocessing.Queue(maxsize=2), int(s.told("port"))
    s.supplier(child(knock, out, port, files, ms * 0.05).pid)
    s.loop(gpu, out.get)


# ---- not for data


def point(fd, tensors, size, turn):
    for _ in range(tensors):
        os.pwrite(fd, bytes(size), next(turn) * size % (16 * MIB))


@job(data=CPU, ckpt="checkpoint_stall", rest="sync_bound launch_bound")
def pointed_joints(s):
    """A process has batches ready, and every few steps the state is saved into one file in place; to blame is how
    this file is opened, with O_DSYNC, so that the write of each small tensor waits until the disk has it."""
    ms, every, size = s.ms("gpu_ms", 10, 30), s.int("every", 3, 8), s.int("kib", 4, 32) << 10
    share, path, turn = s.ms("save_share", 0.6, 1.5), s.data_file("pointed_joints", 16), itertools.count()
    gpu, out = s.gpu(ms), multiprocessing.Queue(maxsize=4)
    fd, plain = os.open(path, os.O_RDWR | os.O_DSYNC), os.open(path, os.O_RDWR)
    each = took(lambda: point(fd, 20, size, turn)) / 20
    tensors = s.keep("tensors", min(max(round(ms * every * share / 1e3 / each), 2), 4000))
    child(put, out, ms * s.ms("load_share", 0.1, 0.35))
    s.go()
    for n in itertools.count(1):
        s.step(gpu, out.get)
        if n % every == 0:
            with s.during("ckpt"):
                if s.fix:
                    os.pwrite(plain, bytes(size), 0)  # the rest is taken along by a copy on the device
                else:
                    point(fd, tensors, size, turn)


@job(data=CPU, rest="transfer_bound")
def heavy_lintel(s):
    """A mixture of experts whose weights lie in a mapped file in the page cache, as the device has room for one, and
    batches in time from a thread; to blame is that each chosen expert goes up from there, not page-locked."""
    ms, few, size = s.ms("gpu_ms", 6, 12), s.int("kernels", 3, 8), 8 * MIB
    chosen = s.keep("chosen", max(round(ms * s.ms("copy_share", 0.65, 1.25) * 12 / 8), 2))
    gpu, out = s.gpu(ms, input_bytes=size, launches=chosen * few), queue.Queue(4)
    np.ones(6 * size, np.uint8).tofile(s.path("experts"))
    experts, chance = np.memmap(s.path("experts"), np.uint8, "r", shape=(6, size)), random.Random(1)
    base = experts.ctypes.data
    threading.Thread(target=put, args=(out, ms * s.ms("load_share", 0.1, 0.3)), daemon=True).start()
    s.go()
    while True:
        s.mark()
        with s.during("data"):
            x = out.get()
        gpu.upload(x.ctypes.data, x.nbytes)
        for n in range(chosen):
            if n == 0 or not s.fix:  # else the device keeps them
                gpu.upload(base + chance.randrange(6) * size, size)
            gpu.launch(n % 2, few)
        gpu.loss_item()


# ---- nothing is wrong


DUCT = 'while :; do dd if="$1" bs=64k iflag=direct status=none 2>/dev/null || cat "$1"; done >"$2"'


@job(data="io_bound ipc_bound main_thread_loading", rest="sync_bound launch_bound")
def hollow_duct(s):
    """Nothing is to blame: a shell has dd read shard after shard past the page cache into a named pipe, for which the
    disk is waited for again and again; but the pipe is a wide one, and full before the loop wants its next batch."""
    ms, size, duct = s.ms("gpu_ms", 30, 80), s.int("kib", 60, 200) << 10, s.path("duct")
    path, gpu, parent = s.data_file("hollow_duct", 64), s.gpu(ms), os.getpid()
    os.mkfifo(duct)
    mason = subprocess.Popen(["sh", "-c", DUCT, "sh", path, duct], stdin=subprocess.DEVNULL,
                             preexec_fn=lambda: mortal(parent))
    s.keep("shell", mason.pid)
    with open(duct, "rb") as stream:
        fcntl.fcntl(stream.fileno(), fcntl.F_SETPIPE_SZ, 1 << 20)
        x = np.zeros(size, np.uint8)

        def obtain():
            stream.readinto(x)
            return x
        s.loop(gpu, obtain)
