# SPDX-License-Identifier: BSD-2-Clause
"""In the marshes: the first look deceives, as what is waited for is not what holds up the job, or does no harm."""
import concurrent.futures
import http.client
import itertools
import json
import mmap
import multiprocessing
import os
import random
import selectors
import socket
import threading
import time

import numpy as np

from stranger import CPU, child, decode, job, parse

PAGE, MIB, FRAME, H2D = 4096, 1 << 20, 32 << 10, 1


class Ring:
    """Slots of shared memory; one eventfd counts the empty ones, another one the full ones."""

    def __init__(self, slots, floats=50000):
        memory = multiprocessing.RawArray("f", slots * floats)
        self.rows = np.frombuffer(memory, np.float32).reshape(slots, floats)
        self.empty, self.full = os.eventfd(slots, os.EFD_SEMAPHORE), os.eventfd(0, os.EFD_SEMAPHORE)
        self.turn = itertools.cycle(range(slots))  # each side has its own

    def put(self, value):
        os.eventfd_read(self.empty)
        self.rows[next(self.turn)] = value
        os.eventfd_write(self.full, 1)

    def take(self):
        os.eventfd_read(self.full)
        x = self.rows[next(self.turn)].copy()
        os.eventfd_write(self.empty, 1)
        return x


# ---- the data is late


def supply(out, cost):
    while True:
        decode(cost)
        out.put(np.zeros(30000, np.float32))


def canary(out, pause):
    """A second run on the same stream of batches, with a device of its own."""
    while True:
        out.get()
        time.sleep(pause / 1e3)


@job(data=CPU, rest="sync_bound launch_bound")
def stepping_stones(s):
    """A canary run with other settings takes its batches out of the same queue, and as it waits in there with the
    readers' lock held, the loop waits for that lock half of the time; to blame is the one process that decodes."""
    ms = s.ms("gpu_ms", 8, 40)
    cost, pause = ms * s.ms("load_share", 1.25, 1.7), ms * s.ms("canary_share", 1.2, 2.5)
    gpu, out = s.gpu(ms), multiprocessing.Queue(maxsize=2)
    s.supplier(child(supply, out, cost / 5 if s.fix else cost).pid)
    child(canary, out, pause)
    s.loop(gpu, out.get)


def cut_turf(out, tokens, cost, size):
    """Works with a token only, as a child of make does, and gives it back."""
    take, give = tokens
    while True:
        token = os.read(take, 1)
        decode(cost)
        os.write(give, token)
        out.send(bytes(size))


@job(data="lock_bound", rest="sync_bound launch_bound")
def turf_tokens(s):
    """Three decoders keep to make's jobserver, whose pipe has a byte for each that may work; to blame is a `-j2` in a
    start script, which leaves one byte in the pipe, so that one decodes and two wait for it in read()."""
    ms, workers = s.ms("gpu_ms", 8, 40), 3
    cost, size = ms * s.ms("load_share", 1.45, 2.6), s.int("kib", 40, 110) << 10
    mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    gpu, tokens = s.gpu(ms), os.pipe()
    os.write(tokens[1], b"+" * (workers if s.fix else 1))
    for _ in range(workers):
        child(cut_turf, theirs, tokens, cost / 4 if s.fix else cost, size)
    s.loop(gpu, lambda: np.frombuffer(mine.recv(1 << 18), np.float32))


def page_ms(path, mapped):
    """What a page at random takes that is not in memory, by a fault or by a read."""
    chance, size = random.Random(2), os.path.getsize(path)
    with open(path, "rb", buffering=0) as f, mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ) as shard:
        shard.madvise(mmap.MADV_RANDOM)
        os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_RANDOM)
        begin = time.monotonic()
        for place in [chance.randrange(0, size, PAGE) for _ in range(400)]:
            _ = shard[place] if mapped else os.pread(f.fileno(), PAGE, place)
        return (time.monotonic() - begin) * 1e3 / 400


def flood(link, path, pages, batches, passes, cost, cold):
    """Goes through a partition some times, each time in another order, and then through the next one."""
    chance, x = np.random.default_rng(1), np.zeros(60000, np.float32)
    while True:
        with open(path, "rb", buffering=0) as f, mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ) as shard:
            while not cold and f.read(MIB):
                pass
            shard.madvise(mmap.MADV_RANDOM)
            table = np.frombuffer(shard, np.uint8)
            rows = chance.permutation(len(table) // PAGE)[:pages * batches] * PAGE
            for _ in range(passes):
                for places in np.split(chance.permutation(rows), batches):
                    x[:pages] = table[places]
                    decode(cost)
                    link.send(x)
            del table
        if cold:
            cold(path)  # the next partition is not in memory yet


@job(data="page_fault_io", rest="sync_bound launch_bound")
def tidal_flats(s):
    """Online training goes two or three times through each small partition of a mapped table, with accumulation; the
    later passes are quick, and to blame is each first one, whose pages are in no memory yet."""
    ms, parts = s.ms("gpu_ms", 6, 16), s.int("micro_batches", 2, 4)
    share, batches, passes = s.ms("fault_share", 2.6, 4.2), s.int("batches", 5, 8), s.int("passes", 2, 3)
    path = s.data_file("flats", 96)
    most = 96 * MIB // PAGE // batches
    pages = s.keep("pages", min(max(int(ms * share / page_ms(path, True)), 16), most))
    s.cold(path)
    cost, gpu = ms * s.ms("load_share", 0.1, 0.3), s.gpu(ms)
    mine, theirs = multiprocessing.Pipe(duplex=False)
    s.supplier(child(flood, theirs, path, pages, batches, passes, cost, None if s.fix else s.cold).pid)
    s.go()
    while True:
        s.mark()
        for _ in range(parts):
            s.mark("micro")
            with s.during("data"):
                x = mine.recv()
            gpu.upload(x.ctypes.data, x.nbytes)
            gpu.forward()
            gpu.backward()
        gpu.optimizer()
        gpu.loss_item()


def walk(ring, path, steps, cost, nap, warm):
    """Random walks on a graph in a file, in which a node is a page with its neighbours' numbers."""
    chance, count = random.Random(1), os.path.getsize(path) // PAGE
    with open(path, "rb", buffering=0) as f:
        fd = f.fileno()
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
        while warm and f.read(MIB):
            pass
        while True:
            node = chance.randrange(count)
            for n in range(steps):
                edge = n % 512 * 8
                node = int.from_bytes(os.pread(fd, PAGE, node * PAGE)[edge:edge + 8], "little") % count
            decode(cost)  # pairs of nodes, and false ones
            time.sleep(nap / 1e3)  # so that others have their turn at the disk
            ring.put(node)
            if not warm:
                os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)


@job(data="io_bound", rest="sync_bound launch_bound")
def bog_walks(s):
    """Node embeddings: a process reads, computes and sleeps by turns for each batch; to blame is the reading, as it
    walks at random over a graph on a cold disk, where each page tells which one is next."""
    ms, share = s.ms("gpu_ms", 8, 25), s.ms("read_share", 1.7, 3)
    path = s.data_file("bog", 64)
    steps = s.keep("steps", min(max(int(ms * share / page_ms(path, False)), 16), 4000))
    s.cold(path)
    cost, nap = ms * s.ms("pair_share", 0.08, 0.18), ms * s.ms("nap_share", 0.08, 0.18)
    gpu, ring = s.gpu(ms), Ring(2)
    s.supplier(child(walk, ring, path, steps, cost, nap, s.fix).pid)
    s.loop(gpu, ring.take)


def narrow_store(s):
    """A store with a narrow uplink, which sends all streams that a client has opened over its one connection."""
    own, mirrored, frame_ms = json.loads(s.told("plan"))
    door = socket.create_server(("127.0.0.1", 0))
    s.tell("port", door.getsockname()[1])
    link, _ = door.accept()
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    while link.recv(1):
        for _ in range(own):
            for kind in b"m" * mirrored + b"b":
                time.sleep(frame_ms / 1e3)
                link.sendall(bytes([kind]) + bytes(FRAME))


def unplait(ring, port, own):
    """Asks for batches two ahead, and tells their frames from those of the mirror, which it keeps elsewhere."""
    link, mirror = socket.create_connection(("127.0.0.1", port)), bytearray(FRAME)
    stream = link.makefile("rb")
    link.sendall(b"nn")
    while True:
        frames = []
        while len(frames) < own:
            kind, frame = stream.read(1), stream.read(FRAME)
            if len(frame) < FRAME:
                return
            if kind == b"b":
                frames.append(frame)
            else:
                mirror[:] = frame
        ring.put(np.frombuffer(b"".join(frames), np.float32))
        link.sendall(b"n")


@job(outside=narrow_store, data="network_bound", rest="sync_bound launch_bound")
def choked_culvert(s):
    """A process asks a store for batches two ahead, and the store answers at once; to blame is its narrow uplink, on
    which a mirror of the next data set shares the connection, so that a batch's frames stand behind its many."""
    ms, own, mirrored = s.ms("gpu_ms", 12, 40), s.int("frames", 2, 4), s.int("mirrored", 2, 3)
    frame_ms = ms * s.ms("send_share", 1.4, 2.4) / (own * (mirrored + 1))
    s.tell("plan", json.dumps([own, 0 if s.fix else mirrored, frame_ms]))
    gpu, ring, port = s.gpu(ms), Ring(2, own * FRAME // 4), int(s.told("port"))
    s.supplier(child(unplait, ring, port, own).pid)
    s.loop(gpu, ring.take)


def fill(ring, cost, every=1, first=0):
    """The first of so many batches costs more than the others."""
    for n in itertools.count():
        if n % every == 0:
            decode(first)  # from here on it is in the cache
        decode(cost)
        ring.put(n)


@job(data="slow_item", rest="sync_bound launch_bound")
def warbler_voices(s):
    """Speech, speaker by speaker: a process fills two slots, and with a speaker's vector in its cache is far quicker
    than the device; to blame is the first batch of each new speaker, from which the vector has to be worked out."""
    ms, every = s.ms("gpu_ms", 8, 20), s.int("batches_each", 16, 22)
    cost, enrol = ms * s.ms("load_share", 0.1, 0.22), ms * every * s.ms("enrol_share", 0.5, 0.7)
    gpu, ring = s.gpu(ms), Ring(2)
    s.supplier(child(fill, ring, cost, every, 0 if s.fix else enrol).pid)
    s.loop(gpu, ring.take)


def brood(path, blocks, cost, size):
    with open(path, "wb") as out:
        while True:
            for _ in range(blocks):
                decode(cost)
            out.write(bytes(size))
            out.flush()


@job(data="slow_worker", rest="sync_bound launch_bound")
def crowded_nest(s):
    """Three processes by turns, each with a named pipe, look at their start how much memory is left; to blame is the
    one that finds too little to keep its shard unpacked, and for each batch unpacks all its blocks again."""
    ms, blocks, last = s.ms("gpu_ms", 10, 40), s.int("blocks", 9, 14), s.int("last", 0, 2)
    cost, size = 3 * ms * s.ms("load_share", 1.5, 2.4) / blocks, s.int("kib", 100, 300) << 10
    gpu, ends = s.gpu(ms), []
    for n in range(3):
        path = s.path("nest-%d" % n)
        os.mkfifo(path)
        pid = child(brood, path, blocks if n == last and not s.fix else 1, cost, size).pid
        ends.append(open(path, "rb"))
        if n == last:
            s.supplier(pid)
    turn = itertools.cycle(ends)
    s.loop(gpu, lambda: np.frombuffer(next(turn).read(size), np.uint8))


def considerate(link, path, cost, rest):
    """Keeps to a part of a core: when it has worked, it sleeps for so many times as long."""
    with open(path, "rb", buffering=0) as f:
        while True:
            link.recv_bytes()
            begin = time.process_time()
            f.seek(0)
            body = f.read(MIB)
            decode(cost)
            link.send_bytes(body[:160000])
            time.sleep(rest * (time.process_time() - begin))


@job(data="too_few_workers", rest="sync_bound launch_bound")
def tide_gate(s):
    """Two networks in turn and one process, asked two batches ahead, which reads what is cached, decodes, and sleeps;
    to blame is the sleeping, by which it keeps to a fifth of a core, as was agreed when others worked there, too."""
    critic_ms, generator_ms = s.ms("critic_ms", 8, 30), s.ms("generator_ms", 8, 30)
    cost, rest = (critic_ms + generator_ms) / 2 * s.ms("work_share", 0.35, 0.5), s.ms("rest", 3.2, 5)
    with open(s.path("clips"), "wb") as f:
        f.write(os.urandom(MIB))
    critic, generator = s.gpu(critic_ms), s.gpu(generator_ms)
    mine, theirs = multiprocessing.Pipe()
    s.supplier(child(considerate, theirs, s.path("clips"), cost, 0 if s.fix else rest).pid)

    def obtain():
        mine.send_bytes(b"n")
        return np.frombuffer(mine.recv_bytes(), np.uint8)
    for _ in range(2):
        mine.send_bytes(b"n")
    s.go()
    for gpu in itertools.cycle((critic, generator)):
        gpu.enter_thread()
        s.step(gpu, obtain)


class Bounded:
    """Two threads and a bound: where nobody is free, who submits a task runs it himself, if he is not patient."""

    def __init__(self, room):
        self.pool, self.room = concurrent.futures.ThreadPoolExecutor(2), threading.Semaphore(room)

    def run(self, f, *more):
        try:
            return f(*more)
        finally:
            self.room.release()

    def submit(self, f, *more, patient=False):
        if self.room.acquire(blocking=patient):
            return self.pool.submit(self.run, f, *more)
        done = concurrent.futures.Future()
        done.set_result(f(*more))
        return done


def view(cost):
    decode(cost)
    return np.zeros(8000, np.float32)


@job(data="main_thread_loading", rest="sync_bound launch_bound")
def pond_dipping(s):
    """Views of the next batch are submitted to a pool, whose rejected tasks run in the caller; to blame is the loop,
    in which nearly all are decoded, for slow uploads of samples to a gallery sleep in the pool's two threads."""
    ms, views, upload = s.ms("gpu_ms", 10, 45), s.int("views", 4, 12), s.ms("upload_ms", 300, 900) / 1e3
    cost, gpu = ms * s.ms("view_share", 0.5, 1.6) / views, s.gpu(ms)
    pool = Bounded(64 if s.fix else 2)

    def gallery():
        while True:
            pool.submit(time.sleep, upload, patient=True)
    if not s.fix:
        threading.Thread(target=gallery, daemon=True).start()

    def ask():
        return [pool.submit(view, cost) for _ in range(views)]
    ahead = ask()

    def obtain():
        nonlocal ahead
        x = np.stack([due.result() for due in ahead])
        ahead = ask()
        return x
    s.loop(gpu, obtain)


# ---- not for data


@job(rest="transfer_bound")
def mud_barges(s):
    """The data set is larger than the card, on which lies a part of it, from which batches are drawn; to blame is the
    next part, which every step or two is copied up from memory that is not page-locked, and blocks the loop."""
    ms, every = s.ms("gpu_ms", 4, 8), s.int("every", 1, 2)
    mib = s.keep("mib", int(12 * ms * every * s.ms("copy_share", 0.5, 1.1)) + 1)
    gpu, store = s.gpu(ms, input_bytes=mib * MIB), np.ones((mib + 16) << 18, np.float32)
    size = mib * MIB // 20 if s.fix else mib * MIB  # else a part is used for longer
    s.go()
    for n in itertools.count(1):
        s.mark()
        s.train(gpu)
        if n % every == 0:
            begin = store.ctypes.data + n // every % 17 * MIB
            gpu.check(gpu.lib.cudaMemcpy(gpu.input, begin, size, H2D))


def metadata(s):
    """An instance's metadata service, which has much to do."""
    late = float(s.told("late")) / 1e3
    door = socket.create_server(("127.0.0.1", 0))
    s.tell("port", door.getsockname()[1])
    while True:
        link, _ = door.accept()
        with link, link.makefile("rb") as lines:
            for line in lines:
                if line == b"\r\n":  # so a request ends
                    time.sleep(late)
                    link.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nnone")


def to_be_stopped(port):
    """Whether there is a notice for this spot instance; first a token is asked for, then the notice."""
    link = http.client.HTTPConnection("127.0.0.1", port)
    link.request("PUT", "/latest/api/token", headers={"X-aws-ec2-metadata-token-ttl-seconds": "60"})
    token = link.getresponse().read().decode()
    link.request("GET", "/latest/meta-data/spot/instance-action", headers={"X-aws-ec2-metadata-token": token})
    notice = link.getresponse().read()
    link.close()
    return notice != b"none"


@job(outside=metadata, data=CPU, host="host_bound", rest="sync_bound launch_bound")
def fen_notice(s):
    """Before it takes a batch the loop asks the metadata service whether its spot instance has to stop; to blame
    is that question, first for a token, then for the notice, while a process has batches ready."""
    ms, every = s.ms("gpu_ms", 8, 35), s.int("every", 1, 4)
    s.tell("late", ms * every * s.ms("notice_share", 0.45, 1.8) / 2)
    gpu, ring, port = s.gpu(ms), Ring(3), int(s.told("port"))
    child(fill, ring, ms * s.ms("load_share", 0.1, 0.4))
    s.go()
    for n in itertools.count():
        if n % every == 0 and not s.fix:  # else a thread asks
            with s.during("host"):
                to_be_stopped(port)
        s.step(gpu, ring.take)


@job(rest="launch_bound")
def coarse_nets(s):
    """Multigrid training of video: for a stretch small clips, for a shorter one large clips, all on the device; to
    blame are the stretches with the small ones, whose kernels end before the next are launched."""
    layers, us, ms = s.int("layers", 100, 170), s.ms("kernel_us", 0.5, 0.9), s.ms("fine_ms", 6, 12)
    coarse_steps, fine_steps = s.int("coarse_steps", 25, 50), s.int("fine_steps", 3, 6)
    launches = layers * 12
    coarse = s.gpu(us * launches / 1e3, launches=launches // 20 if s.fix else launches)
    fine = s.gpu(ms)
    s.go()
    while True:
        coarse.enter_thread()
        for _ in range(coarse_steps):
            s.mark()
            if s.fix:  # as by a compiler that fuses kernels
                s.train(coarse)
                continue
            for phase in range(3):
                for _ in range(4 * layers):
                    coarse.launch(phase, 1)
            coarse.loss_item()
        fine.enter_thread()
        for _ in range(fine_steps):
            s.mark()
            s.train(fine)


# ---- nothing is wrong


def prepare(link, cost):
    while True:
        link.recv_bytes()
        decode(cost)
        link.send_bytes(bytes(160000))


@job(data=CPU, lock="lock_bound host_bound", rest="sync_bound launch_bound")
def still_water(s):
    """Nothing is to blame: in each step the loop waits first for a lock, with which a thread packs the last weights,
    and then for a batch that it has just asked for, but both while the kernels of the step run."""
    ms = s.ms("gpu_ms", 24, 80)
    cost, hold = ms * s.ms("load_share", 0.4, 0.62), ms * s.ms("hold_share", 0.15, 0.35)
    mine, theirs = multiprocessing.Pipe()
    child(prepare, theirs, cost)
    gpu, lock, begun, seen = s.gpu(ms), threading.Lock(), threading.Semaphore(0), 0

    def pack():
        while True:
            begun.acquire()
            with lock:
                decode(hold)
    threading.Thread(target=pack, daemon=True).start()
    mine.send_bytes(b"n")
    x = np.frombuffer(mine.recv_bytes(), np.uint8)
    s.go()
    while True:
        s.mark()
        mine.send_bytes(b"n")
        begun.release()
        s.train(gpu, x, item=False)
        with s.during("lock"), lock:
            seen += 1
        with s.during("data"):
            x = np.frombuffer(mine.recv_bytes(), np.uint8)
        gpu.loss_item()


def harness(s):
    """Asks, and rates the answer in Python for a while, before it asks the next question."""
    think, chance = float(s.told("think")), random.Random(1)
    link = socket.create_connection(("127.0.0.1", int(s.told("port"))))
    s.told("go")
    link.sendall(b"ask\n")
    for _ in link.makefile("rb"):
        parse(think * chance.uniform(0.6, 1.4))
        link.sendall(b"ask\n")


def prune(pause):
    """Keeps the cache of prefixes in order, for which nobody waits."""
    os.nice(15)
    while True:
        decode(20)
        time.sleep(pause / 1e3)


@job(outside=harness, demand="no_demand", rest="sync_bound launch_bound")
def patient_heron(s):
    """A model server by selectors whose only client is an evaluation harness, that computes for long on each answer;
    both look busy, as a niced process prunes a cache, but nobody is to blame that there are few questions."""
    ms, tokens = s.ms("token_ms", 5, 14), s.int("tokens", 3, 8)
    s.tell("think", ms * tokens * s.ms("think_share", 2.5, 6))
    gpu, tick = s.gpu(ms), s.ms("tick_ms", 40, 200) / 1e3
    child(prune, s.ms("pause_ms", 20, 60))
    door, events, ticks = socket.create_server(("127.0.0.1", 0)), selectors.DefaultSelector(), 0
    s.tell("port", door.getsockname()[1])
    link = door.accept()[0]
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    events.register(link, selectors.EVENT_READ)
    prompt = np.zeros(4096, np.int64)
    s.go()
    while True:
        asked = []
        with s.during("demand"):
            for key, _ in events.select(tick):
                if key.fileobj.recv(64):
                    asked.append(key.fileobj)
                else:
                    events.unregister(key.fileobj)
        ticks += not asked
        for link in asked:
            s.mark()
            for n in range(tokens):
                s.mark("micro")
                s.train(gpu, prompt if n == 0 else None)
                link.sendall(b"x")
            link.sendall(b"\n")
