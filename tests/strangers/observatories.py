# SPDX-License-Identifier: BSD-2-Clause
"""Jobs whose batches pass through several hands on their way from the sky to the loop."""
import collections
import gzip
import itertools
import mmap
import multiprocessing
import os
import queue
import random
import select
import socket
import struct
import subprocess
import threading
import time
import zlib

import numpy as np

from stranger import CPU, child, decode, job, parse


def timed(f, times=4):
    """The least time that a call takes, in milliseconds."""
    spent = []
    for _ in range(times):
        begin = time.monotonic()
        f()
        spent.append((time.monotonic() - begin) * 1e3)
    return min(spent)


def frames(out, cost, size):
    while True:
        decode(cost)
        out.put(np.zeros(size, np.float32))


def kept_up(s, ms, low, high):
    """The get of a queue that a process fills in a part of the time that the device needs."""
    out = multiprocessing.Queue(maxsize=4)
    child(frames, out, ms * s.ms("load_share", low, high), 50000)
    return out.get


# ---- the data


@job(data="cpu_bound lock_bound", rest="sync_bound launch_bound")
def twin_domes(s):
    """Frames of two domes are interleaved in long blocks; each dome's process may be a little ahead."""
    ms, block, ahead = s.ms("gpu_ms", 8, 25), s.int("block", 8, 16), s.int("ahead", 1, 2)
    cost = ms * s.ms("load_share", 1.6, 2.8)
    gpu, domes = s.gpu(ms), [multiprocessing.Queue(maxsize=ahead) for _ in range(2)]
    for out in domes:
        child(frames, out, cost / 5 if s.fix else cost, 50000)

    def interleave():
        for n in itertools.count():
            yield domes[n // block % 2].get()  # the other one soon has no room, and stands still
    s.loop(gpu, interleave().__next__)


def plate_archive(s):
    """Sends plates when it has both parts of a request: the head, and the list."""
    door = socket.create_server(("127.0.0.1", 0))
    s.tell("port", door.getsockname()[1])

    def serve(link):
        stream = link.makefile("rb")
        while len(head := stream.read(8)) == 8:
            count, size = struct.unpack("<II", head)
            stream.read(8 * count)
            link.sendall(bytes(size))
    while True:
        threading.Thread(target=serve, args=(door.accept()[0],), daemon=True).start()


def ask_plates(link, count, size):
    link.sendall(struct.pack("<II", count, size))
    link.sendall(bytes(8 * count))  # Nagle holds it until the head's acknowledgement, which is delayed
    body = np.empty(size, np.uint8)
    link.recv_into(body, size, socket.MSG_WAITALL)
    return body


def fetch_plates(out, port, count, size, at_once):
    link = socket.create_connection(("127.0.0.1", port))
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, at_once)
    while True:
        out.put(ask_plates(link, count, size))


@job(outside=plate_archive, data="network_bound too_few_workers", rest="sync_bound launch_bound")
def plate_letters(s):
    """A process asks an archive nearby for plates, each time with two short messages, ahead of the loop."""
    port, count, size = int(s.told("port")), s.int("plates", 8, 64), s.int("kib", 16, 200) << 10
    with socket.create_connection(("127.0.0.1", port)) as link:
        spent = [timed(lambda: ask_plates(link, count, size), 1) for _ in range(32)]
    late = sum(spent[16:]) / 16  # the first ones are acknowledged at once
    gpu = s.gpu(s.keep("gpu_ms", round(max(5, late * s.ms("gpu_share", 0.25, 0.65)), 2)))
    out = multiprocessing.Queue(maxsize=3)
    s.supplier(child(fetch_plates, out, port, count, size, int(s.fix)).pid)
    s.loop(gpu, out.get)


def camera(loop, visitors, cost, size):
    while True:
        decode(cost)
        x = np.zeros(size, np.float32)
        loop.put(x)
        visitors.put(x)


def screen(visitors, cost):
    while True:
        visitors.get()
        parse(cost)


@job(data=CPU, rest="sync_bound launch_bound")
def public_screen(s):
    """A camera's process gives each batch to the loop, and to a process that draws it for visitors."""
    ms = s.ms("gpu_ms", 8, 40)
    draw = ms * s.ms("draw_share", 1.5, 2.8)
    loop, visitors = multiprocessing.Queue(maxsize=2), multiprocessing.Queue(maxsize=s.int("room", 1, 3))
    gpu = s.gpu(ms)
    child(camera, loop, visitors, ms * s.ms("load_share", 0.3, 0.6), 50000)
    # The camera waits for room in the visitors' queue, and the loop for the camera.
    s.supplier(child(screen, visitors, draw / 10 if s.fix else draw).pid)
    s.loop(gpu, loop.get)


@job(data="main_thread_loading", rest="sync_bound launch_bound")
def variable_stars(s):
    """A star's nights are packed text files, which the loop has programs unpack and put in order of time."""
    nights, lines, chance = s.int("nights", 2, 5), s.int("lines", 1500, 5000), random.Random(1)
    paths = [s.path("night-%d.gz" % n) for n in range(nights)]
    for path in paths:
        with gzip.open(path, "wt", encoding="ascii") as f:
            f.writelines("%.6f %.3f\n" % (chance.uniform(0, 1e4), chance.gauss(12, 1)) for _ in range(lines))

    def curve():
        unpack = subprocess.Popen(["gzip", "-dc", *paths], stdout=subprocess.PIPE)
        text = subprocess.run(["sort", "-n"], stdin=unpack.stdout, stdout=subprocess.PIPE, check=True).stdout
        unpack.stdout.close()
        unpack.wait()
        return np.array(list(map(float, text.split())), np.float32)
    gpu = s.gpu(s.keep("gpu_ms", round(max(5, timed(curve) * s.ms("gpu_share", 0.4, 1.5)), 2)))
    np.save(s.path("curve.npy"), curve())
    s.loop(gpu, (lambda: np.load(s.path("curve.npy"))) if s.fix else curve)


def porter(out, cost, size, pause):
    while True:
        decode(cost)
        while out.full():
            time.sleep(pause / 1e3)
        out.put(np.zeros(size, np.float32))


@job(data="too_few_workers", rest="sync_bound launch_bound")
def night_porter(s):
    """A quick process that finds a short queue full tries again after a while, in which it runs empty."""
    ms, depth = s.ms("gpu_ms", 8, 35), s.int("depth", 1, 2)
    cost = ms * s.ms("load_share", 0.05, 0.25)
    pause = ms * (depth + 1) * s.ms("pause_share", 1.4, 2.4)  # the loop has one besides
    gpu, out = s.gpu(ms), multiprocessing.Queue(maxsize=depth)
    s.supplier(child(porter, out, cost, 50000, pause / 20 if s.fix else pause).pid)
    s.loop(gpu, out.get)


def expose(out, sky, cost):
    for n in itertools.count():
        decode(cost)
        out.put(sky[n % len(sky)])


def pack(plates, out, level):
    while True:
        out.put(zlib.compress(plates.get(), level))


@job(data=CPU + " ipc_bound", rest="sync_bound launch_bound")
def plate_crates(s):
    """Counts of photons go from a reader to a packer that compresses them for the way, and to the loop."""
    photons, pixels = s.int("photons", 40, 400), s.int("kilopixels", 64, 256) << 10
    sky = np.random.default_rng(1).poisson(photons, (4, pixels)).astype(np.uint16)
    cost = timed(lambda: zlib.compress(sky[0], 9))
    ms = s.keep("gpu_ms", round(max(5, cost / s.ms("pack_share", 1.4, 2.6)), 2))
    gpu, plates, crates = s.gpu(ms), multiprocessing.Queue(maxsize=2), multiprocessing.Queue(maxsize=2)
    child(expose, plates, sky, ms * s.ms("load_share", 0.1, 0.4))
    s.supplier(child(pack, plates, crates, 0 if s.fix else 9).pid)  # 0: only copied
    s.loop(gpu, lambda: np.frombuffer(zlib.decompress(crates.get()), np.uint16))


def origin(asks, out, pixels):
    sky = np.ones(pixels, np.float32)
    while True:
        out.send({"frame": sky[:asks.recv()], "stamps": []})


def stamp(received, out, office):
    while True:
        x = received.recv()
        x["stamps"].append((office, time.time()))
        out.send(x)


@job(data="ipc_bound", rest="sync_bound launch_bound")
def night_stamps(s):
    """A frame is asked for one step ahead and comes through processes that only note when they had it."""
    pixels, offices = s.int("mib", 3, 10) << 18, s.int("offices", 2, 3)
    told, asks = multiprocessing.Pipe(duplex=False)
    last, out = multiprocessing.Pipe(duplex=False)
    child(origin, told, out, pixels)
    for n in range(offices):
        before, (last, out) = last, multiprocessing.Pipe(duplex=False)
        child(stamp, before, out, n)

    def whole():
        asks.send(pixels)
        last.recv()
    gpu = s.gpu(s.keep("gpu_ms", round(max(5, timed(whole) * s.ms("gpu_share", 0.25, 0.65)), 2)))
    wanted = pixels // 20 if s.fix else pixels
    asks.send(wanted)

    def obtain():
        x = last.recv()["frame"]
        asks.send(wanted)
        return x
    s.loop(gpu, obtain)


def summit(line):
    night = bytes(1 << 20)
    while True:
        os.write(line, night)


def valley(line, out, per_byte):
    """A relay that keeps to a bandwidth, as trickle and pv -L do."""
    while True:
        piece = os.read(line, 1 << 16)
        os.write(out, piece)
        time.sleep(len(piece) * per_byte)


@job(data="too_few_workers ipc_bound", rest="sync_bound launch_bound")
def summit_line(s):
    """Frames lie ready in a process, and pass a relay with a limit of bandwidth; a thread takes them in."""
    ms, size = s.ms("gpu_ms", 10, 40), s.int("pieces", 8, 24) << 16
    share = 0.05 if s.fix else s.ms("line_share", 1.4, 3)
    gpu, (top, upper), (lower, out) = s.gpu(ms), os.pipe(), os.pipe()
    child(summit, upper)
    s.supplier(child(valley, top, out, ms / 1e3 * share / size).pid)
    ready = queue.Queue(maxsize=2)

    def intake():
        with os.fdopen(lower, "rb") as f:
            while True:
                ready.put(np.frombuffer(f.read(size), np.uint8))
    threading.Thread(target=intake, daemon=True).start()
    s.loop(gpu, ready.get)


def count_at(f, place):
    return struct.unpack("<Q", os.pread(f, 8, place))[0]


def recorder(path, slots, size, cost):
    f = os.open(path, os.O_RDWR)
    for n in itertools.count():
        decode(cost)
        while n - count_at(f, 8) >= slots:
            time.sleep(0.002)
        os.pwrite(f, bytes(size), 16 + n % slots * size)
        os.pwrite(f, struct.pack("<Q", n + 1), 0)


@job(data=CPU, rest="sync_bound launch_bound")
def chart_recorder(s):
    """A file is a ring of batches: a process writes it, the loop reads it, each polls the other's count."""
    ms, slots, size = s.ms("gpu_ms", 8, 40), s.int("slots", 3, 6), s.int("kib", 64, 400) << 10
    cost, poll = ms * s.ms("load_share", 1.4, 2.8), s.ms("poll_ms", 0.3, 2) / 1e3
    gpu, path, order = s.gpu(ms), s.path("chart"), itertools.count()
    f = os.open(path, os.O_RDWR | os.O_CREAT)
    os.ftruncate(f, 16 + slots * size)  # how many were written, how many read, and the slots
    s.supplier(child(recorder, path, slots, size, cost / 5 if s.fix else cost).pid)

    def obtain():
        n = next(order)
        while count_at(f, 0) <= n:
            time.sleep(poll)
        x = np.frombuffer(os.pread(f, size, 16 + n % slots * size), np.uint8)
        os.pwrite(f, struct.pack("<Q", n + 1), 8)
        return x
    s.loop(gpu, obtain)


def turn_over(f, size, reads):
    """Blocks come back from the disk, and one goes there."""
    slots = os.fstat(f).st_size // size
    blocks = [os.pread(f, size, random.randrange(slots) * size) for _ in range(reads)]
    os.pwrite(f, blocks[0], random.randrange(slots) * size)
    os.fdatasync(f)
    os.posix_fadvise(f, 0, 0, os.POSIX_FADV_DONTNEED)
    return np.frombuffer(b"".join(b[:4096] for b in blocks), np.uint8)


def cellar(out, f, size, reads):
    while True:
        out.put(turn_over(f, size, reads))


@job(data="io_bound", rest="sync_bound launch_bound")
def glass_cellar(s):
    """A process shuffles more plates than memory holds: a file keeps them, written and read in turn."""
    ms, size = s.ms("gpu_ms", 6, 20), s.int("pages", 16, 64) << 12
    f = os.open(s.data_file("observatories", 96), os.O_RDWR)
    os.posix_fadvise(f, 0, 0, os.POSIX_FADV_RANDOM)
    one, more = timed(lambda: turn_over(f, size, 1)), timed(lambda: turn_over(f, size, 17))
    wanted = ms * s.ms("load_share", 1.5, 2.8) - one
    reads = s.keep("reads", max(1, min(64, 1 + round(wanted / max((more - one) / 16, 0.02)))))
    gpu, out = s.gpu(ms), multiprocessing.Queue(maxsize=3)
    maker = child(frames, out, 1, 20000) if s.fix else child(cellar, out, f, size, reads)
    s.supplier(maker.pid)
    s.loop(gpu, out.get)


# ---- not the data


@job(data=CPU, child="host_bound", rest="sync_bound launch_bound")
def source_list(s):
    """The stars found in a batch come down as a table, and the loop has a program put it in order."""
    lines, chance = s.int("lines", 3000, 12000), random.Random(1)
    table = "".join("%d %.4f %.4f\n" % (n, chance.uniform(0, 360), chance.uniform(-90, 90))
                    for n in range(lines)).encode()
    rows = np.zeros((lines, 4), np.float32)

    def ordered():
        return subprocess.run(["sort", "-n", "-k2"], input=table, stdout=subprocess.PIPE, check=True).stdout
    ms = s.keep("gpu_ms", round(max(5, timed(ordered) * s.ms("gpu_share", 0.5, 2)), 2))
    gpu, batch = s.gpu(ms), kept_up(s, ms, 0.2, 0.6)
    s.go()
    while True:
        s.mark()
        with s.during("data"):
            x = batch()
        s.train(gpu, x, item=False)
        gpu.check(gpu.lib.cudaMemcpy(rows.ctypes.data, gpu.input, rows.nbytes, 2))
        if not s.fix:  # else the device sorts
            with s.during("child"):
                ordered()


def satellites(s):
    """Three of them report bursts now and then, and wait for a word on each."""
    pause, port = float(s.told("pause")), int(s.told("port"))
    links = [socket.create_connection(("127.0.0.1", port)) for _ in range(3)]
    s.told("go")

    def report(link, n):
        chance = random.Random(n)
        while True:
            time.sleep(chance.expovariate(1 / pause))
            link.sendall(struct.pack("<Q", chance.getrandbits(40)))
            link.recv(8)
    threads = [threading.Thread(target=report, args=(link, n)) for n, link in enumerate(links)]
    for t in threads:
        t.start()
    threads[0].join()


def cutter(orders, cuts, cost):
    while True:
        orders.get()
        decode(cost)
        cuts.put(np.zeros(20000, np.float32))


@job(outside=satellites, demand="no_demand", data=CPU, rest="sync_bound launch_bound host_bound")
def gamma_bursts(s):
    """Satellites report bursts; for each, two processes cut the place out of old and new plates."""
    ms = s.ms("gpu_ms", 10, 40)
    cost, pause = ms * s.ms("cut_share", 0.03, 0.1), ms * s.ms("pause_share", 5, 11)
    orders, cuts = multiprocessing.Queue(), multiprocessing.Queue()
    gpu = s.gpu(ms)
    for _ in range(2):
        child(cutter, orders, cuts, cost)
    door = socket.create_server(("127.0.0.1", 0))
    s.tell("pause", (pause / 100 if s.fix else pause) / 1e3)
    s.tell("port", door.getsockname()[1])
    links = [door.accept()[0] for _ in range(3)]
    s.go()
    while True:
        with s.during("demand"):
            link = select.select(links, [], [])[0][0]
            event = link.recv(8)
        s.mark()
        with s.during("data"):
            for plate in "old", "new":
                orders.put((plate, event))
            x = np.stack([cuts.get() for _ in range(2)])
        s.train(gpu, x)
        link.sendall(bytes(8))


def fields(out, cost, shapes):
    chance = random.Random(1)
    while True:
        decode(cost)
        out.put(np.zeros(chance.randint(1, shapes) << 12, np.float32))


@job(data=CPU, host="host_bound sync_bound", rest="sync_bound launch_bound")
def eyepiece_set(s):
    """Batches of many sizes, in time; a step is compiled for each size, and few versions are kept."""
    ms, shapes, kept = s.ms("gpu_ms", 8, 40), s.int("shapes", 8, 20), s.int("kept", 3, 5)
    compiling = ms * s.ms("compile_share", 1, 4)
    gpu, out, versions = s.gpu(ms), multiprocessing.Queue(maxsize=4), collections.OrderedDict()
    child(fields, out, ms * s.ms("load_share", 0.3, 0.7), shapes)
    s.go()
    while True:
        s.mark()
        with s.during("data"):
            x = out.get()
        gpu.upload(x.ctypes.data, x.nbytes)
        size = 0 if s.fix else len(x)  # 0: all are padded
        if size not in versions:
            with s.during("host"):
                parse(compiling)
            if len(versions) == kept:
                versions.popitem(last=False)
        versions[size] = True
        versions.move_to_end(size)
        s.train(gpu)


def wall(image):
    while True:
        image[::4096].mean()
        decode(5)
        time.sleep(0.03)


@job(data=CPU, rest="transfer_bound sync_bound")
def dirty_beams(s):
    """Radio images: a busy loader keeps up; each result comes down whole, to where a viewer looks at it."""
    ms, floats = s.ms("gpu_ms", 5, 15), s.int("mib", 8, 40) << 18
    gpu, batch = s.gpu(ms, input_bytes=4 * floats), kept_up(s, ms, 0.4, 0.8)
    image = np.frombuffer(mmap.mmap(-1, 4 * floats), np.float32)
    image[:] = 1
    child(wall, image)
    down = image.nbytes // 40 if s.fix else image.nbytes
    s.go()
    while True:
        s.mark()
        with s.during("data"):
            x = batch()
        s.train(gpu, x, item=False)
        gpu.check(gpu.lib.cudaMemcpy(image.ctypes.data, gpu.input, down, 2))
