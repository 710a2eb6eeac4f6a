# SPDX-License-Identifier: BSD-2-Clause
"""At the bookbinders': training stacks of today, each with its own processes and its own way to hand batches over."""
import collections
import fcntl
import functools
import itertools
import math
import mmap
import multiprocessing
import multiprocessing.connection
import os
import queue
import random
import socket
import struct
import subprocess
import sys
import threading
import time
from multiprocessing.managers import SyncManager

import numpy as np

from stranger import CPU, child, decode, job, mortal

PAGE, MIB, D2H = 4096, 1 << 20, 2


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

TOKENS = 1 << 20


def map_index(path):
    """The index of a corpus: sixteen bytes for each document, and no reading ahead."""
    with open(path, "rb") as f:
        pages = mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ)
    pages.madvise(mmap.MADV_RANDOM)
    return pages, np.frombuffer(pages, np.uint32).reshape(-1, 4)


def document(index, n):
    """Where the tokens of a document begin, and how many they are: 128 on average."""
    begin, _, length, _ = index[n].tolist()
    return begin % (TOKENS - 256), 32 + length % 193


def gather(out, path, budget, in_memory):
    """Packs whole documents, in shuffled order; what it has seen of the mapped index does not stay in memory."""
    tokens, chance, fd = np.arange(TOKENS, dtype=np.int32), random.Random(1), os.open(path, os.O_RDONLY)
    pages, index = map_index(path)
    if in_memory:
        index = np.fromfile(path, np.uint32).reshape(-1, 4)
    while True:
        packed, filled = [], 0
        while filled < budget:
            begin, length = document(index, chance.randrange(len(index)))
            packed.append(tokens[begin:begin + length])
            filled += length
        out.send(np.concatenate(packed)[:budget])
        if not in_memory:
            pages.madvise(mmap.MADV_DONTNEED)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)


@job(data="page_fault_io", rest="sync_bound launch_bound")
def gathered_signatures(s):
    """Pre-training on packed documents, whose tokens are in memory; a thread stages what a packing process sends; to
    blame is the mapped index, which memory does not keep, so that each document's entry is a fault on the disk."""
    ms, share, path = s.ms("gpu_ms", 8, 25), s.ms("pack_share", 1.6, 3), s.data_file("signatures.idx", 64)
    pages, index = map_index(path)
    places = [s.random.randrange(len(index)) for _ in range(300)]
    each = once(lambda: [document(index, n) for n in places]) / len(places)
    pages.madvise(mmap.MADV_DONTNEED)
    s.cold(path)
    many = s.keep("documents", min(max(int(ms * share / 1e3 / each), 16), 3000))
    mine, theirs = multiprocessing.Pipe(duplex=False)
    s.supplier(child(gather, theirs, path, 128 * many, s.fix).pid)
    gpu, staged = s.gpu(ms), queue.Queue(2)

    def stage():
        while True:
            staged.put(mine.recv())
    threading.Thread(target=stage, daemon=True).start()
    s.loop(gpu, staged.get)


LETTERS = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
RANKS = {bytes(pair): n for n, pair in enumerate(itertools.product(LETTERS, repeat=2))}
WORDS = [bytes(word) for word in itertools.product(b"bdfgklmn", b"aeiou", b"lmnrst", b"aeo")]
NEVER = len(RANKS)


def letters(chance, size):
    return bytes(chance.choices(LETTERS, k=size))


def merged(word):
    """Byte pair encoding of a word: again and again all its pairs are looked at, and the first by rank is merged."""
    parts = [word[i:i + 1] for i in range(len(word))]
    while len(parts) > 1:
        ranks = [RANKS.get(a + b, NEVER) for a, b in zip(parts, parts[1:])]
        best = min(ranks)
        if best == NEVER:
            break
        i = ranks.index(best)
        parts[i:i + 2] = [parts[i] + parts[i + 1]]
    return parts


encoded = functools.lru_cache(1 << 16)(merged)  # as tokenizers do, for words that come again


def collate(chats, longest):
    """Tokenizes, cuts and pads."""
    ids = np.zeros((len(chats), 1024), np.int32)
    for row, chat in zip(ids, chats):
        tokens = [RANKS.get(part, NEVER) for word in chat for part in encoded(word[:longest])][:len(row)]
        row[:len(tokens)] = tokens
    return ids


def collating_worker(link, every, blob, longest):
    """Makes the batches whose numbers it is told."""
    while True:
        n = link.recv()
        chance = random.Random(n)
        chats = [chance.choices(WORDS, k=120) for _ in range(16)]
        if n % every == 0:
            chats[chance.randrange(16)][60] = letters(chance, blob)
        link.send(collate(chats, longest))


@job(data="slow_item", rest="sync_bound launch_bound")
def unbroken_word(s):
    """Fine-tuning on chats: two workers tokenize in their collate function, by turns and two batches ahead; to blame
    are a few chats with a pasted blob without any space, one word for which byte pair encoding is quadratic."""
    ms, every, steps = s.ms("gpu_ms", 8, 18), s.one("every", 7, 9, 11), s.ms("blob_steps", 10, 16)
    some = letters(s.random, 600)
    blob = s.keep("blob", int(600 * math.sqrt(ms * steps / 1e3 / took(lambda: merged(some)))))
    longest, links = 64 if s.fix else blob, []  # truncation=True cuts tokens, and not letters
    for _ in range(2):
        mine, theirs = multiprocessing.Pipe()
        child(collating_worker, theirs, every, blob, longest)
        links.append(mine)
    turn = itertools.count(1)
    for n in range(1, 5):
        links[n % 2].send(n)

    def obtain():
        n = next(turn)
        x = links[n % 2].recv()
        links[n % 2].send(n + 4)
        return x
    s.loop(s.gpu(ms), obtain)


def rate(link, cost):
    """A reward model as a service: it scores the answers of a group."""
    while True:
        answers = np.frombuffer(link.recv_bytes(), np.int32).reshape(16, -1)
        decode(cost)
        link.send_bytes(answers.mean(axis=1, dtype=np.float32))


def roll_out(out, raters, cost):
    """Has each group of answers scored by all raters, of which the lowest score counts; two groups are under way."""
    asked = collections.deque()
    while True:
        while len(asked) < 2:
            decode(cost)
            answers = np.ones((16, 1024), np.int32)
            for rater in raters:
                rater.send_bytes(answers)
            asked.append(answers)
        scores = np.min([np.frombuffer(rater.recv_bytes(), np.float32) for rater in raters], axis=0)
        out.put((asked.popleft(), scores))


@job(data="slow_worker", rest="sync_bound launch_bound")
def third_proofreader(s):
    """RL with an ensemble of three reward models, services that a rollout process asks at the same time, so that the
    lowest score counts; to blame is one of the three, whose weights were left in double precision."""
    ms, odd = s.ms("gpu_ms", 8, 35), s.int("odd", 0, 2)
    quick, slow = ms * s.ms("rate_share", 0.1, 0.25), ms * s.ms("odd_share", 1.5, 2.6)
    out, raters = multiprocessing.Queue(maxsize=2), []
    for n in range(3):
        mine, theirs = multiprocessing.Pipe()
        pid = child(rate, theirs, slow if n == odd and not s.fix else quick).pid
        raters.append(mine)
        if n == odd:
            s.supplier(pid)
    child(roll_out, out, raters, ms * 0.1)

    def obtain():
        answers, scores = out.get()
        return answers * (scores - scores.mean())[:, None]
    s.loop(s.gpu(ms), obtain)


RESAMPLER = """
import signal
import sys
import numpy as np
signal.signal(signal.SIGPIPE, signal.SIG_DFL)
size, taps = map(int, sys.argv[1:])
window = np.hanning(taps).astype(np.float32)
while len(sound := sys.stdin.buffer.read(4 * size)) == 4 * size:
    smooth = np.convolve(np.frombuffer(sound, np.float32), window, "same")
    sys.stdout.buffer.write(smooth[::3].tobytes())
    sys.stdout.buffer.flush()
"""


def play_back(stdin, sound):
    """Recordings at 48 kHz go into the resampler."""
    while True:
        stdin.write(sound)


@job(data=CPU, rest="sync_bound launch_bound")
def paring_knife(s):
    """Speech at 48 kHz: a process feeds a resampler, a program of which the loop reads 16 kHz; to blame is the program,
    which has a filter of thousands of taps, and computes it for the two samples in three as well that it drops."""
    ms, share, size = s.ms("gpu_ms", 8, 35), s.ms("filter_share", 1.5, 2.8), 60000
    sound, few = np.ones(size, np.float32), np.ones(1024, np.float32)
    each = took(lambda: np.convolve(sound, few, "same")) / len(few)
    taps = s.keep("taps", max(int(ms * share / 1e3 / each) // (6 if s.fix else 1), 32))
    program = subprocess.Popen([sys.executable, "-c", RESAMPLER, str(size), str(taps)], stdin=subprocess.PIPE,
                               stdout=subprocess.PIPE, env=dict(os.environ, OPENBLAS_NUM_THREADS="1"))
    fcntl.fcntl(program.stdout, fcntl.F_SETPIPE_SZ, MIB)
    child(play_back, program.stdin, sound.tobytes())
    program.stdin.close()  # so that only the feeding process holds it, and the program ends with that
    s.supplier(program.pid)
    x = np.zeros(size // 3, np.float32)

    def obtain():
        program.stdout.readinto(x)
        return x
    obtain()  # the program has started
    s.loop(s.gpu(ms), obtain)


KNOWN, NEW, WIDTH = 4000, 12, 64


def feature_service(s):
    """Far away: the vector of an item, or nothing for one that it does not know."""
    late = float(s.told("late")) / 1e3
    door = socket.create_server(("127.0.0.1", 0))
    s.tell("port", door.getsockname()[1])

    def serve(link, n):
        chance, stream = random.Random(n), link.makefile("rwb")
        while ask := stream.read(8):
            time.sleep(late * chance.uniform(0.8, 1.2))
            body = bytes(4 * WIDTH) if struct.unpack("<Q", ask)[0] < KNOWN else b""
            stream.write(struct.pack("<I", len(body)) + body)
            stream.flush()
    for n in itertools.count():
        threading.Thread(target=serve, args=(door.accept()[0], n), daemon=True).start()


def look_up(out, port, seed, new, keep_misses):
    """Joins clicks with the vectors of their items, of which it has a cache."""
    stream, chance = socket.create_connection(("127.0.0.1", port)).makefile("rwb"), random.Random(seed)
    unknown, cache = np.zeros(WIDTH, np.float32), {item: np.ones(WIDTH, np.float32) for item in range(KNOWN)}

    def vector(item):
        if item not in cache:
            stream.write(struct.pack("<Q", item))
            stream.flush()
            body = stream.read(struct.unpack("<I", stream.read(4))[0])
            if body:
                cache[item] = np.frombuffer(body, np.float32)
            elif keep_misses:
                cache[item] = unknown
        return cache.get(item, unknown)
    while True:
        items = chance.choices(range(KNOWN), k=512 - new) + chance.choices(range(KNOWN, KNOWN + NEW), k=new)
        out.put(np.stack([vector(item) for item in items]))


@job(outside=feature_service, data="network_bound too_few_workers", rest="sync_bound launch_bound")
def missing_folios(s):
    """A recommender, whose workers keep the vectors of items in a cache; to blame is the far feature service, asked
    one by one for the few newest items, which it does not know yet, as nothing is kept of an empty answer."""
    ms, workers, new = s.ms("gpu_ms", 8, 35), s.int("workers", 1, 2), s.int("new", 4, 10)
    s.tell("late", ms * s.ms("late_share", 1.5, 2.8) * workers / new)
    out, port = multiprocessing.Queue(maxsize=3), int(s.told("port"))
    pids = [child(look_up, out, port, n, new, s.fix).pid for n in range(workers)]
    if workers == 1:
        s.supplier(pids[0])
    s.loop(s.gpu(ms), out.get)


def frames(out, cost):
    """The camera's side: it is soon done."""
    for n in itertools.count():
        decode(cost)
        out.send((n, np.zeros(20000, np.float32)))


def read_sweeps(fd, places):
    """From each place the points that lie in view."""
    return np.frombuffer(b"".join(os.pread(fd, PAGE, place)[:256] for place in places), np.uint8)


def clouds(out, path, sweeps, warm):
    """The laser scanner's side: a frame's cloud is put together from earlier sweeps, all over the drive's log."""
    chance, count = random.Random(1), os.path.getsize(path) // PAGE
    with open(path, "rb", buffering=0) as f:
        os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_RANDOM)
        while warm and f.read(MIB):
            pass
        for n in itertools.count():
            out.send((n, read_sweeps(f.fileno(), [PAGE * chance.randrange(count) for _ in range(sweeps)])))
            if not warm:
                os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def bind(out, sides):
    """Joins both sides by number, and does not read on from one that is four ahead."""
    parts = {side: {} for side in sides}
    for n in itertools.count():
        while not all(n in early for early in parts.values()):
            for side in multiprocessing.connection.wait([side for side in sides if len(parts[side]) < 4]):
                number, part = side.recv()
                parts[side][number] = part
        out.send_bytes(np.concatenate([early.pop(n).view(np.uint8) for early in parts.values()]))


@job(data="io_bound", rest="sync_bound launch_bound")
def tipped_in_plates(s):
    """Driving, by camera and laser: a process for each, and one that joins them by number; the camera's waits to be
    read from; to blame is the disk, as the laser's process reads sweeps all over a log that is not in memory."""
    ms, share, path = s.ms("gpu_ms", 8, 25), s.ms("read_share", 1.6, 3), s.data_file("plates.log", 64)
    places, fd = [PAGE * s.random.randrange(64 * MIB // PAGE) for _ in range(400)], os.open(path, os.O_RDONLY)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
    each = once(lambda: read_sweeps(fd, places)) / len(places)
    os.close(fd)
    s.cold(path)
    sweeps = s.keep("sweeps", min(max(int(ms * share / 1e3 / each), 16), 4000))
    (camera, from_camera), (laser, from_laser), (mine, joined) = (multiprocessing.Pipe(duplex=False) for _ in range(3))
    child(frames, from_camera, ms * s.ms("camera_share", 0.05, 0.2))
    s.supplier(child(clouds, from_laser, path, sweeps, s.fix).pid)
    child(bind, joined, [camera, laser])
    s.loop(s.gpu(ms), lambda: np.frombuffer(mine.recv_bytes(), np.uint8))


def records(mib):
    """A data set, as a list of its samples."""
    return list(np.ones((16 * mib, 16384), np.float32))


def typeset(out, registry, keep):
    """Draws batches from the data set of the current stage."""
    kept, chance = {}, random.Random(1)
    while True:
        stage = registry["stage"]
        samples = kept[stage] if stage in kept else registry[stage]
        if keep:
            kept[stage] = samples
        out.put(np.stack(chance.sample(samples, 4)))


@job(data="ipc_bound", host="host_bound", rest="sync_bound launch_bound")
def whole_edition(s):
    """A curriculum: every few steps the loop names another data set in a Manager's dict; to blame is the process that
    draws batches, as it has `registry[stage]` pickled and sent by the manager, all of the data set for each batch."""
    ms, every, share = s.ms("gpu_ms", 8, 20), s.int("stage_steps", 4, 10), s.ms("hand_over_share", 1.5, 2.6)
    manager = SyncManager(s.path("registry"))
    manager.start(mortal, (os.getpid(),))
    registry, out = manager.dict(stage=0, some=records(8)), multiprocessing.Queue(maxsize=2)
    each = took(lambda: registry["some"]) / 8
    del registry["some"]
    mib = s.keep("mib", min(max(round(ms * share / 1e3 / each), 1), 64))
    for stage in range(3):
        registry[stage] = records(mib)
    child(typeset, out, registry, s.fix)
    gpu = s.gpu(ms)
    s.go()
    for n in itertools.count(1):
        s.step(gpu, out.get)
        if n % every == 0:
            with s.during("host"):
                registry["stage"] = n // every % 3


# ---- not for data


class Resampler:
    """Noise levels with larger losses are drawn more often: by the mean square of the last losses of each."""

    def __init__(self):
        self.history = np.ones((1000, 32))
        self.weigh()

    def weigh(self):
        weights = np.sqrt(np.mean(self.history ** 2, axis=1)) + 1e-3
        self.chances = weights / weights.sum()

    def note(self, level, loss):
        self.history[level, :-1] = self.history[level, 1:]
        self.history[level, -1] = loss


@job(data=CPU, host="host_bound", rest="sync_bound launch_bound")
def marbled_paper(s):
    """Diffusion on latents that a thread reads from a cache of files, in time; to blame is the loop, which after each
    step notes the samples' losses, and works out the chances of all noise levels anew for each single one."""
    ms, share, resampler = s.ms("gpu_ms", 10, 30), s.ms("weigh_share", 0.6, 1.5), Resampler()
    each = took(lambda: [resampler.weigh() for _ in range(200)]) / 200
    samples = s.keep("samples", max(int(ms * share / 1e3 / each), 16))
    paths, ready, chance = [s.path("latents-%d.npy" % n) for n in range(16)], queue.Queue(3), np.random.default_rng(1)
    for path in paths:
        np.save(path, chance.standard_normal((samples, 256), np.float32))

    def read():
        for path in itertools.cycle(paths):
            ready.put(np.load(path))
    gpu, losses = s.gpu(ms), np.zeros(samples, np.float32)
    threading.Thread(target=read, daemon=True).start()
    levels = chance.choice(1000, samples, p=resampler.chances)
    s.go()
    while True:
        s.mark()
        with s.during("data"):
            x = ready.get()
        gpu.upload(levels.ctypes.data, levels.nbytes)
        s.train(gpu, x, item=False)
        gpu.check(gpu.lib.cudaMemcpy(losses.ctypes.data, gpu.input, losses.nbytes, D2H))
        with s.during("host"):
            for level, loss in zip(levels, np.clip(np.nan_to_num(losses), 0, 10)):
                resampler.note(level, loss)
                if not s.fix:
                    resampler.weigh()
            resampler.weigh()
            levels = chance.choice(1000, samples, p=resampler.chances)


NODES, SEEDS, FANOUTS, CHANNELS = 50000, 128, (8, 4), 32
REACHED = SEEDS * (1 + FANOUTS[0] * (1 + FANOUTS[1]))


def sample(first, edges, slots, free, full):
    """A neighbour sampler: for each batch two hops around its nodes, into the next slot of shared memory."""
    chance = np.random.default_rng(1)
    for slot in itertools.cycle(slots):
        hops = [chance.integers(0, NODES, SEEDS)]
        for fanout in FANOUTS:
            begin, degree = first[hops[-1]], np.diff(first)[hops[-1]]
            picked = (chance.random((len(begin), fanout)) * degree[:, None]).astype(np.int64)
            hops.append(edges[begin[:, None] + picked].ravel())
        free.acquire()
        slot[:] = np.concatenate(hops)
        full.release()


def refresh(table, lock, cost, pause, apart):
    """Embeds nodes anew that no batch has had for long, block by block."""
    for block in itertools.cycle(np.split(table, 50)):
        if apart:
            decode(cost)
        with lock:
            if not apart:
                decode(cost)
            block += np.float32(1e-3)
        time.sleep(pause)


@job(data=CPU, lock="lock_bound host_bound", host="host_bound", rest="sync_bound launch_bound")
def shared_gluepot(s):
    """A graph network with historical embeddings, and a sampler that fills slots of shared memory in time; to blame
    is the table's lock, for which the loop waits after each step, as a refresher embeds whole blocks with it held."""
    ms, slots = s.ms("gpu_ms", 8, 30), s.int("slots", 2, 4)
    cost, pause = ms * s.ms("hold_share", 1.5, 2.8), max(ms * s.ms("pause_share", 0.1, 0.2), 1.5) / 1e3
    table = np.frombuffer(multiprocessing.RawArray("f", NODES * CHANNELS), np.float32).reshape(NODES, CHANNELS)
    ring = np.frombuffer(multiprocessing.RawArray("q", slots * REACHED), np.int64).reshape(slots, REACHED)
    free, full, lock = multiprocessing.Semaphore(slots), multiprocessing.Semaphore(0), multiprocessing.Lock()
    chance, turn = np.random.default_rng(2), itertools.cycle(ring)
    first = np.concatenate([[0], np.cumsum(chance.integers(4, 28, NODES))])
    edges = chance.integers(0, NODES, first[-1])
    child(sample, first, edges, ring, free, full)
    child(refresh, table, lock, cost, pause, s.fix)
    gpu, fresh = s.gpu(ms), np.zeros((SEEDS, CHANNELS), np.float32)
    s.go()
    while True:
        s.mark()
        with s.during("data"):
            full.acquire()
            nodes = next(turn).copy()
            free.release()
            x = table[nodes]  # a little stale, as it may be
        s.train(gpu, x, item=False)
        gpu.check(gpu.lib.cudaMemcpy(fresh.ctypes.data, gpu.input, fresh.nbytes, D2H))
        with s.during("lock"):
            lock.acquire()
        with s.during("host"):
            table[nodes[:SEEDS]] = fresh
        lock.release()


# ---- nothing is wrong


def master(link, cost):
    """A teacher: for pictures it answers with soft labels."""
    while True:
        pictures = np.frombuffer(link.recv_bytes(), np.float32)
        decode(cost)
        link.send_bytes(pictures[::2].copy())


@job(data=CPU, rest="sync_bound launch_bound")
def gilded_edges(s):
    """Nothing is to blame: a teacher's process is asked for a batch's soft labels no sooner than its step begins, and
    the loop waits long for them in each, but has launched the student's forward before, which takes longer still."""
    ms, images = s.ms("gpu_ms", 24, 40), queue.Queue(3)
    share, light = s.ms("teacher_share", 0.14, 0.26), ms * s.ms("load_share", 0.05, 0.2)
    teacher, theirs = multiprocessing.Pipe()
    child(master, theirs, ms * share / (3 if s.fix else 1))
    gpu = s.gpu(ms)

    def load():
        while True:
            decode(light)
            images.put(np.ones(20000, np.float32))
    threading.Thread(target=load, daemon=True).start()
    s.go()
    while True:
        s.mark()
        with s.during("data"):
            x = images.get()
        teacher.send_bytes(x)
        gpu.upload(x.ctypes.data, x.nbytes)
        gpu.forward()
        with s.during("data"):
            labels = np.frombuffer(teacher.recv_bytes(), np.float32)
        gpu.upload(labels.ctypes.data, labels.nbytes)
        gpu.backward()
        gpu.optimizer()
        gpu.loss_item()
