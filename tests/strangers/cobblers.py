# SPDX-License-Identifier: BSD-2-Clause
"""At the cobblers': the device idles for reasons other than input, or not at all, while loaders look guilty."""
import concurrent.futures
import ctypes
import fcntl
import itertools
import multiprocessing
import os
import queue
import select
import signal
import socket
import struct
import threading
import time
import tty
from fractions import Fraction

import numpy as np

from stranger import CPU, child, decode, job, mortal, parse

D2H, SIZE = 2, 40000


def took(f):
    """Seconds that f takes once it is warm."""
    f()
    begin = time.monotonic()
    f()
    return time.monotonic() - begin


def down(gpu, array):
    """A blocking copy from the device."""
    gpu.check(gpu.lib.cudaMemcpy(array.ctypes.data, gpu.input, array.nbytes, D2H))


# ---- loaders that keep up


def light(s, ms):
    return ms * s.ms("load_share", 0.1, 0.35)


def put(out, cost):
    while True:
        decode(cost)
        out.put(np.zeros(SIZE, np.float32))


def queued(cost):
    """A process and a queue."""
    out = multiprocessing.Queue(maxsize=4)
    child(put, out, cost)
    return out.get


def threaded(cost):
    """A thread of the trainer."""
    out = queue.Queue(3)
    threading.Thread(target=put, args=(out, cost), daemon=True).start()
    return out.get


def send(out, cost):
    while True:
        decode(cost)
        out.send_bytes(np.zeros(SIZE, np.float32))


def piped(cost):
    """A process at the other end of a pipe, which has room for a few batches."""
    mine, theirs = multiprocessing.Pipe(duplex=False)
    fcntl.fcntl(mine.fileno(), fcntl.F_SETPIPE_SZ, 1 << 20)
    child(send, theirs, cost)
    return lambda: np.frombuffer(mine.recv_bytes(), np.float32)


def slotted(cost, slots=4):
    """A process fills slots of shared memory, which two semaphores count."""
    ring = np.frombuffer(multiprocessing.RawArray("f", slots * SIZE), np.float32).reshape(slots, SIZE)
    free, full = multiprocessing.Semaphore(slots), multiprocessing.Semaphore(0)
    turn = itertools.count()

    def fill():
        for n in itertools.count():
            decode(cost)
            free.acquire()
            ring[n % slots] = n
            full.release()

    def take():
        full.acquire()
        x = ring[next(turn) % slots].copy()
        free.release()
        return x
    child(fill)
    return take


def spool(link, folder, cost):
    for n in itertools.count():
        decode(cost)
        np.save("%s.%d.npy" % (folder, n), np.zeros(SIZE, np.float32))
        link.sendall(b"%d" % n)
        if n >= 5:
            link.recv(1)


def spooled(folder, cost):
    """A process leaves files in the page cache and tells their numbers, six ahead."""
    mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    child(spool, theirs, folder, cost)

    def take():
        name = "%s.%d.npy" % (folder, int(mine.recv(16)))
        x = np.load(name)
        os.unlink(name)
        mine.send(b"k")
        return x
    return take


# ---- the loop computes


def range_code(symbols, starts):
    """How many bytes a range coder makes of the symbols."""
    low, span, out = 0, 1 << 32, bytearray()
    for symbol in symbols:
        begin, end = starts[symbol], starts[symbol + 1]
        low, span = low + (span * begin >> 12), span * (end - begin) >> 12
        while span < 1 << 24:
            out.append(low >> 24 & 255)
            low, span = low << 8 & 0xffffffff, span << 8
    return len(out)


@job(data=CPU, host="host_bound", rest="sync_bound launch_bound")
def coded_welts(s):
    """Learned image compression with a rate that is to be exact: between forward and backward the latents come down,
    and to blame is the loop's range coder in plain Python; a process has batches ready in a queue."""
    ms, share = s.ms("gpu_ms", 8, 40), s.ms("coder_share", 0.55, 2.2)
    gpu, batch = s.gpu(ms), queued(light(s, ms))
    starts = [16 * n * n for n in range(17)]
    guess = np.random.default_rng(1).integers(0, 16, 20000, np.uint8)
    each = took(lambda: range_code(guess.tolist(), starts)) / len(guess)
    latents = np.zeros(s.keep("latents", min(max(int(ms * share / 1e3 / each), 1000), 1 << 20)), np.uint8)
    noise = np.resize(guess, len(latents))
    s.go()
    while True:
        s.mark()
        with s.during("data"):
            x = batch()
        gpu.upload(x.ctypes.data, x.nbytes)
        gpu.forward()
        down(gpu, latents)
        if not s.fix:  # else the device estimates the rate
            with s.during("host"):
                range_code(((latents + noise) & 15).tolist(), starts)
        gpu.backward()
        gpu.optimizer()
        gpu.loss_item()


def align(frames, path):
    """The best way of a text and its blanks through the frames, and the label of each frame."""
    best = np.full(len(path) + 2, -1e30, np.float32)
    best[2] = 0
    came = np.empty((len(frames), len(path)), np.int8)
    for n, row in enumerate(frames):
        ways = np.stack([best[2:], best[1:-1], best[:-2]])
        came[n] = ways.argmax(0)
        best[2:] = ways.max(0) + row[path]
    place, labels = len(path) - 1, []
    for row in came[::-1]:
        labels.append(path[place])
        place = max(place - int(row[place]), 0)
    return labels


@job(data=CPU, host="host_bound", rest="sync_bound launch_bound")
def pegged_heels(s):
    """Speech with labels by frame, which are drawn anew from what the model thinks: to blame is the loop's forced
    alignment, frame by frame in numpy, between forward and backward; a thread has batches ready."""
    ms, share, many = s.ms("gpu_ms", 8, 35), s.ms("align_share", 0.55, 2.2), s.int("frames", 40, 90)
    gpu, batch = s.gpu(ms), threaded(light(s, ms))
    chance = np.random.default_rng(1)
    frames, path = chance.standard_normal((many, 48)).astype(np.float32), chance.integers(0, 48, 24)
    each = min(took(lambda: align(frames, path)) for _ in range(5))
    talks = s.keep("talks", max(round(ms * share / 1e3 / each), 1))
    s.go()
    while True:
        s.mark()
        with s.during("data"):
            x = batch()
        gpu.upload(x.ctypes.data, x.nbytes)
        gpu.forward()
        if not s.fix:  # else the labels of old are good enough
            down(gpu, frames)
            with s.during("host"):
                labels = np.array([align(frames, path) for _ in range(talks)])
            gpu.upload(labels.ctypes.data, labels.nbytes)
        gpu.backward()
        gpu.optimizer()
        gpu.loss_item()


def added(a, b):
    """The unit of a product."""
    return {base: a.get(base, Fraction(0)) + b.get(base, Fraction(0)) for base in sorted(a.keys() | b.keys())}


def checked(columns):
    """Whether each column of an operation's result has the unit that it should."""
    force = {"kg": Fraction(1), "m": Fraction(1), "s": Fraction(-2)}
    way = {"m": Fraction(1, 2), "s": Fraction(1, 2)}
    return all(added(force, way)["kg"] == 1 for _ in range(columns))


@job(data=CPU, rest="launch_bound host_bound")
def unit_awls(s):
    """A surrogate in physics whose tensors carry units, by a subclass with __torch_function__: to blame is that each
    operation's units are reckoned in Python before its short kernel is launched; slots of shared memory are full."""
    ms, share, operations = s.ms("gpu_ms", 12, 30), s.ms("unit_share", 1.6, 3), s.int("operations", 20, 45)
    gpu, batch = s.gpu(ms, launches=operations), slotted(light(s, ms))
    each = took(lambda: checked(1000)) / 1000
    columns = 0 if s.fix else max(int(ms * share / operations / 1e3 / each), 1)
    s.go()
    while True:
        s.mark()
        with s.during("data"):
            x = batch()
        gpu.upload(x.ctypes.data, x.nbytes)
        for n in range(operations):
            checked(columns)
            gpu.launch(3 * n // operations, 1)
        gpu.loss_item()


# ---- the loop waits, but not for data


def take_roots(gradients, roots, state, turn, cost):
    """Shampoo's inverse roots, block by block."""
    blocks, out = (np.frombuffer(a, np.float32).reshape(-1, 32, 32) for a in (gradients, roots))
    while True:
        with turn:
            while state.value != 1:
                turn.wait()
        end = time.monotonic() + cost / 1e3
        for n in itertools.cycle(range(len(blocks))):
            seed = np.nan_to_num(blocks[n], posinf=0, neginf=0).clip(-1, 1)
            values, vectors = np.linalg.eigh(seed @ seed.T + np.eye(32, dtype=np.float32))
            out[n] = (vectors * values ** -0.25) @ vectors.T
            if time.monotonic() > end:
                break
        with turn:
            state.value = 0
            turn.notify_all()


@job(data=CPU, child="host_bound", rest="sync_bound launch_bound")
def waxed_roots(s):
    """Shampoo with its preconditioners on the host: gradients come down to shared memory, a process takes roots of
    them, and these go up; to blame is this process, for which the loop waits on a condition, while another one's
    batches lie ready."""
    ms = s.ms("gpu_ms", 10, 40)
    cost, floats = ms * s.ms("root_share", 0.5, 2), s.int("blocks", 64, 190) * 32 * 32
    gradients, roots = (multiprocessing.RawArray("f", floats) for _ in range(2))
    state, turn = multiprocessing.RawValue("i", 0), multiprocessing.Condition()
    gpu, batch = s.gpu(ms), queued(light(s, ms))
    child(take_roots, gradients, roots, state, turn, cost)
    s.go()
    while True:
        s.mark()
        with s.during("data"):
            x = batch()
        gpu.upload(x.ctypes.data, x.nbytes)
        gpu.forward()
        gpu.backward()
        gpu.check(gpu.lib.cudaMemcpy(ctypes.addressof(gradients), gpu.input, 4 * floats, D2H))
        with s.during("child"), turn:
            while not s.fix and state.value:  # else the roots of an earlier step do
                turn.wait()
            asked = state.value == 0
            if asked:
                state.value = 1
                turn.notify_all()
            while not s.fix and state.value:
                turn.wait()
        gpu.upload(ctypes.addressof(roots), 4 * floats)
        gpu.optimizer()
        gpu.loss_item()


def draw_bars(bars, screen, rest):
    """An evaluation's bars, drawn under the lock that all bars share."""
    picture = memoryview((b"\x1b[A\r" + b"#" * 123) * 64)
    while True:
        with bars:
            sent = 0
            while sent < len(picture):
                sent += os.write(screen, picture[sent:])
        time.sleep(rest / 1e3)


def show(screen, pause):
    """A far terminal, which shows a page at a time."""
    while os.read(screen, 4096):
        time.sleep(pause / 1e3)


@job(data=CPU, lock="lock_bound host_bound", rest="sync_bound launch_bound")
def tangled_laces(s):
    """A progress bar as tqdm's, whose lock goes over to forked processes; to blame is this lock, which an evaluator
    beside it holds while it draws its own bars on a slow terminal; the loader spools files and is ahead."""
    ms = s.ms("gpu_ms", 10, 40)
    hold, rest = ms * s.ms("draw_share", 1.7, 3), ms * s.ms("rest_share", 0.1, 0.4)
    gpu, batch = s.gpu(ms), spooled(s.path("batch"), light(s, ms))
    bars, (shown, screen) = multiprocessing.RLock(), os.pipe()
    fcntl.fcntl(screen, fcntl.F_SETPIPE_SZ, 4096)
    child(show, shown, (hold + rest) / 2)
    child(draw_bars, multiprocessing.RLock() if s.fix else bars, screen, rest)
    with open(os.devnull, "w", encoding="ascii") as own:
        s.go()
        for n in itertools.count():
            s.step(gpu, batch)
            with s.during("lock"):
                bars.acquire()
            own.write("\r%d: %.3f" % (n, gpu.loss.value))
            bars.release()


def service_manager(s):
    """Reads notifications in its own time, as it has other services, too."""
    late = float(s.told("late")) / 1e3
    door = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    door.bind(s.path("notify"))
    s.tell("manager", "")
    while True:
        text, fds, _, _ = socket.recv_fds(door, 4096, 4)
        if text.startswith(b"BARRIER=1"):
            time.sleep(late)
        for fd in fds:
            os.close(fd)


@job(outside=service_manager, data=CPU, host="host_bound", rest="sync_bound launch_bound")
def master_nod(s):
    """A trainer as a systemd service tells its status after a step or few, by sd_notify() and then
    sd_notify_barrier(): to blame is the barrier, a pipe that the busy manager closes late; batches wait in another."""
    ms, every = s.ms("gpu_ms", 8, 40), s.int("every", 1, 3)
    s.tell("late", ms * every * s.ms("late_share", 0.5, 2.2))
    gpu, batch, link = s.gpu(ms), piped(light(s, ms)), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    s.told("manager")
    link.connect(s.path("notify"))
    s.go()
    for n in itertools.count(1):
        s.step(gpu, batch)
        if n % every:
            continue
        with s.during("host"):
            link.send(b"WATCHDOG=1\nSTATUS=step %d" % n)
            if not s.fix:
                mine, theirs = os.pipe()
                socket.send_fds(link, [b"BARRIER=1"], [theirs])
                os.close(theirs)
                closed = select.poll()
                closed.register(mine, 0)
                closed.poll()
                os.close(mine)


def distances(mask, cost):
    """How far each pixel is from the border of what was found."""
    parse(cost)
    return np.cumsum(mask, 1, np.float32)


@job(data=CPU, child="host_bound", rest="sync_bound launch_bound")
def shaped_uppers(s):
    """Segmentation with a loss by distance from the borders that the model itself has found: between forward and
    backward a pool of processes makes these maps from the masks, and they go up; to blame is the waiting for them,
    and not the loader, another process with full slots."""
    ms, masks = s.ms("gpu_ms", 10, 40), s.int("masks", 2, 4) * 2
    cost = ms * s.ms("maps_share", 0.5, 1.8) * 2 / masks
    gpu, batch = s.gpu(ms), slotted(light(s, ms) / 2)
    pool = concurrent.futures.ProcessPoolExecutor(2, initializer=mortal, initargs=(os.getpid(),))
    found, costs = np.zeros((masks, 64, 64), np.uint8), [cost / 20 if s.fix else cost] * masks
    list(pool.map(distances, found, [1] * masks))
    s.go()
    while True:
        s.mark()
        with s.during("data"):
            x = batch()
        gpu.upload(x.ctypes.data, x.nbytes)
        gpu.forward()
        down(gpu, found)
        with s.during("child"):
            maps = np.stack(list(pool.map(distances, found, costs)))
        gpu.upload(maps.ctypes.data, maps.nbytes)
        gpu.backward()
        gpu.optimizer()
        gpu.loss_item()


@job(data=CPU, peer="rank_straggler", rest="rank_straggler transfer_bound", beside="transfer_bound")
def odd_pair(s):
    """Two ranks with a quick loader each, which meet by semaphores before the optimizer; to blame is the second one,
    whose card has no direct way to the other, so that its buckets come down by blocking copies first."""
    ms, launches, share = s.ms("gpu_ms", 8, 30), s.int("launches", 10, 80), s.ms("bounce_share", 0.6, 1.8)
    cost, parent = light(s, ms) / 2, os.getpid()
    gates = [multiprocessing.Semaphore(0) for _ in range(2)]
    for rank in range(2):
        if os.fork():
            continue
        mortal(parent, signal.SIGTERM)
        s.rank(rank)
        gpu, batch = s.gpu(ms, input_bytes=8 << 20, launches=launches), queued(cost)
        bucket = np.ones(2 << 20, np.float32)
        each = min(took(lambda: down(gpu, bucket)) for _ in range(5))
        buckets = min(max(round(ms * share / 1e3 / each), 1), 100) if rank == 1 and not s.fix else 0
        s.told("go")
        while True:
            s.mark()
            with s.during("data"):
                x = batch()
            gpu.upload(x.ctypes.data, x.nbytes)
            gpu.forward()
            gpu.backward()
            gpu.sync(False)
            for _ in range(buckets):
                down(gpu, bucket)
            with s.during("peer"):
                gates[1 - rank].release()
                gates[rank].acquire()
            gpu.optimizer()
            gpu.loss_item()
    s.go()
    signal.pause()


# ---- nobody asks


def mail_agent(s):
    """A mail server that has each mail looked at by a filter, when there is one."""
    pause, link = float(s.told("pause")) / 1e3, socket.socket(socket.AF_UNIX)
    link.connect(s.path("sock"))
    s.told("go")
    stream = link.makefile("rwb")
    while True:
        time.sleep(s.random.expovariate(1 / pause))
        body = b"Dear customer, " * s.random.randint(10, 400)
        for code, text in ((b"H", b"mx"), (b"M", b"<me@last>"), (b"R", b"<you@awl>"), (b"B", body), (b"E", b"")):
            stream.write(struct.pack(">I", len(text) + 1) + code + text)
            stream.flush()
            stream.read(*struct.unpack(">I", stream.read(4)))


@job(outside=mail_agent, demand="no_demand", data=CPU, rest="sync_bound launch_bound")
def posted_boots(s):
    """A filter for mail, as a milter: it learns from each mail, along with a batch of older ones from a process that
    is always ahead, and then gives its verdict; nobody is to blame that mail does not come more often."""
    ms = s.ms("gpu_ms", 10, 45)
    pause = ms * s.ms("pause_share", 0.7, 2.5)
    gpu, batch, door = s.gpu(ms), piped(light(s, ms)), socket.socket(socket.AF_UNIX)
    door.bind(s.path("sock"))
    door.listen()
    s.tell("pause", pause / 50 if s.fix else pause)
    stream = door.accept()[0].makefile("rwb")

    def answer(code):
        stream.write(struct.pack(">I", 1) + code)
        stream.flush()

    def mail():
        text = b""
        while True:
            size, = struct.unpack(">I", stream.read(4))
            code, rest = stream.read(1), stream.read(size - 1)
            if code == b"E":
                return text
            if code == b"B":
                text += rest
            answer(b"c")
    s.go()
    while True:
        with s.during("demand"):
            text = mail()
        s.mark()
        with s.during("data"):
            x = batch()
        gpu.upload(x.ctypes.data, x.nbytes)
        s.train(gpu, np.frombuffer(text, np.uint8))
        answer(b"r" if gpu.loss.value > 1 else b"a")


def crc(frame):
    """Modbus's checksum."""
    sum_ = 0xffff
    for byte in frame:
        sum_ ^= byte
        for _ in range(8):
            sum_ = sum_ >> 1 ^ 0xa001 if sum_ & 1 else sum_ >> 1
    return frame + struct.pack("<H", sum_)


def read_all(fd, size):
    got = b""
    while len(got) < size:
        got += os.read(fd, size - len(got))
    return got


def conveyor(s):
    """A controller that asks about each shoe on the belt, by a serial line."""
    pause, line = float(s.told("pause")) / 1e3, os.open(s.told("line"), os.O_RDWR | os.O_NOCTTY)
    s.told("go")
    while True:
        time.sleep(pause * s.random.uniform(0.5, 1.5))
        os.write(line, crc(struct.pack(">BBHH", 1, 3, 40, 1)))
        read_all(line, 7)


def film(frames, newest, pause):
    """A camera that keeps the newest frame where all can see it."""
    for n in itertools.count(1):
        frames[n % 4] = n
        newest.value = n
        time.sleep(pause / 1e3)


@job(outside=conveyor, demand="no_demand", data="main_thread_loading", rest="sync_bound launch_bound")
def belt_soles(s):
    """Inspection at a belt: a controller asks about a shoe by Modbus on a serial line, and the loop takes the camera's
    newest frame out of shared memory, for which it never waits; nobody is to blame that the belt is no faster."""
    ms = s.ms("gpu_ms", 12, 50)
    pause = ms * s.ms("pause_share", 0.8, 2.2)
    gpu, (line, other) = s.gpu(ms), os.openpty()
    tty.setraw(other)
    frames = np.frombuffer(multiprocessing.RawArray("f", 4 * SIZE), np.float32).reshape(4, SIZE)
    newest = multiprocessing.RawValue("l", 0)
    child(film, frames, newest, s.ms("frame_ms", 8, 30))
    s.tell("line", os.ttyname(other))
    s.tell("pause", pause / 50 if s.fix else pause)
    s.go()
    while True:
        with s.during("demand"):
            read_all(line, 8)
        s.mark()
        with s.during("data"):
            x = frames[newest.value % 4].copy()
        s.train(gpu, x)
        os.write(line, crc(struct.pack(">BBBH", 1, 3, 2, gpu.loss.value > 1)))


# ---- nothing is wrong


def share_bench(path, cost, burst, out):
    """Decodes a few batches at a time, while it has the decoder."""
    with open(path, "rb") as bench:
        while True:
            fcntl.flock(bench, fcntl.LOCK_EX)
            for _ in range(burst):
                decode(cost)
            fcntl.flock(bench, fcntl.LOCK_UN)
            time.sleep(0.002)
            for _ in range(burst if out else 0):
                out.put(np.zeros(SIZE, np.float32))


@job(data=CPU + " lock_bound", rest="sync_bound launch_bound")
def borrowed_bench(s):
    """Nothing is to blame: a loader shares a hardware decoder with another run's, by flock() and for some batches at
    a time, and stands before that lock for half of its time; but its queue lasts for longer than the other's turn."""
    ms, burst = s.ms("gpu_ms", 20, 80), s.int("burst", 4, 8)
    cost, path = ms * s.ms("load_share", 0.12, 0.25), s.path("bench")
    with open(path, "wb"):
        pass
    gpu, out = s.gpu(ms), multiprocessing.Queue(maxsize=2 * burst)
    child(share_bench, path, cost, burst, out)
    child(share_bench, path, cost, burst, None)
    s.loop(gpu, out.get)


def keep_shelf(link, cost, burst):
    """Makes batches by the burst when the shelf is empty, and says to who asks what there is."""
    shelf = []

    def make():
        while True:
            while shelf:
                time.sleep(0.004)
            fresh = []
            for _ in range(burst):
                decode(cost)
                fresh.append(bytes(4 * SIZE))
            shelf.extend(fresh)
    threading.Thread(target=make, daemon=True).start()
    while link.recv(1):
        body = shelf.pop(0) if shelf else b""
        link.sendall(struct.pack("<I", len(body)) + body)


@job(data=CPU, rest="sync_bound launch_bound")
def patient_errands(s):
    """Nothing is to blame: a thread asks a service again and again whether it has a batch, mostly hears that it has
    none, and sleeps; the service takes most of a core, burst by burst, but the thread's queue outlasts each of them."""
    ms, burst = s.ms("gpu_ms", 18, 70), s.int("burst", 4, 7)
    gpu, out, (mine, theirs) = s.gpu(ms), queue.Queue(2 * burst), socket.socketpair()
    child(keep_shelf, theirs, ms * s.ms("load_share", 0.45, 0.7), burst)
    pause = ms * s.ms("pause_share", 0.1, 0.25) / 1e3

    def ask():
        while True:
            mine.sendall(b"?")
            size, = struct.unpack("<I", mine.recv(4, socket.MSG_WAITALL))
            if size:
                out.put(np.frombuffer(mine.recv(size, socket.MSG_WAITALL), np.float32))
            else:
                time.sleep(pause)
    threading.Thread(target=ask, daemon=True).start()
    s.loop(gpu, out.get)
