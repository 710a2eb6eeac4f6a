# SPDX-License-Identifier: BSD-2-Clause
"""At the saddlers': training jobs as research groups and small companies stitch them together."""
import collections
import contextlib
import copy
import itertools
import multiprocessing
import os
import queue
import random
import signal
import socket
import struct
import subprocess
import sys
import threading
import time

import numpy as np

from stranger import CPU, child, decode, job, mortal

PAGE, MIB = 4096, 1 << 20


def took(f):
    """Seconds that f takes once it is warm."""
    f()
    begin = time.monotonic()
    f()
    return time.monotonic() - begin


def slotted(cost, slots=3, size=50000):
    """A loader that keeps up: a process fills slots of shared memory, which two semaphores count."""
    ring = np.frombuffer(multiprocessing.RawArray("f", slots * size), np.float32).reshape(slots, size)
    free, full = multiprocessing.Semaphore(slots), multiprocessing.Semaphore(0)
    turn = itertools.cycle(range(slots))

    def fill():
        for slot in itertools.cycle(range(slots)):
            decode(cost)
            free.acquire()
            ring[slot] = slot
            full.release()

    def take():
        full.acquire()
        x = ring[next(turn)].copy()
        free.release()
        return x
    child(fill)
    return take


# ---- the data is late


def negatives(chance, items, known, many):
    """An item for each positive pair, popular ones more often."""
    return [chance.choices(items, **known)[0] for _ in range(many)]


def girth(link, items, known, many):
    chance, x = random.Random(1), np.zeros(20000, np.float32)
    while True:
        x[:many] = negatives(chance, items, known, many)
        link.send(x)


@job(data=CPU, rest="sync_bound launch_bound")
def weighed_girths(s):
    """A recommender with sampled negatives: a process draws one for each positive pair, and sends batches as packets
    of a Unix socket; to blame is random.choices(items, weights), which for each draw sums up all weights anew. Fix:
    cum_weights."""
    ms, share, items = s.ms("gpu_ms", 8, 35), s.ms("draw_share", 1.6, 2.6), range(8000)
    weights = [1 / (n + 10) for n in items]
    slow, quick = {"weights": weights}, {"cum_weights": list(itertools.accumulate(weights))}
    each = took(lambda: negatives(random.Random(2), items, slow, 30)) / 30
    many = s.keep("pairs", min(max(int(ms * share / 1e3 / each), 8), 20000))
    mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    gpu, x = s.gpu(ms), np.zeros(20000, np.float32)
    s.supplier(child(girth, theirs, items, quick if s.fix else slow, many).pid)

    def obtain():
        mine.recv_into(x)
        return x
    s.loop(gpu, obtain)


ROW, NODES, TOGETHER = 256, 1000, 50


def partition(s):
    """The server of a graph's partition, elsewhere: sends nodes' features as fast as its line can."""
    pause = float(s.told("pause"))
    door = socket.create_server(("127.0.0.1", 0))
    s.tell("port", door.getsockname()[1])
    link, _ = door.accept()
    asks = link.makefile("rb")
    while head := asks.read(4):
        many, = struct.unpack("<I", head)
        asks.read(8 * many)
        for first in range(0, many, TOGETHER):
            rows = min(TOGETHER, many - first)
            time.sleep(pause * rows)
            link.sendall(bytes(rows * ROW))


def sample(out, port, once):
    """Samples neighbours, and has the features of all of them sent."""
    chance = np.random.default_rng(1)
    graph = chance.zipf(1.5, (20000, 10)) % 20000  # most edges lead to few nodes
    with socket.create_connection(("127.0.0.1", port)) as link:
        while True:
            nodes = graph[chance.integers(0, len(graph), NODES // 10)].ravel()
            back = np.arange(len(nodes))
            if once:
                nodes, back = np.unique(nodes, return_inverse=True)
            link.sendall(struct.pack("<I", len(nodes)) + nodes.astype(np.int64).tobytes())
            rows = np.zeros((len(nodes), ROW), np.uint8)
            link.recv_into(rows, rows.nbytes, socket.MSG_WAITALL)
            out.put(rows[back])


@job(outside=partition, data="network_bound", rest="sync_bound launch_bound")
def repeated_buckles(s):
    """A graph network over several machines: a process samples neighbours, and a partition's server sends their
    features over a narrow line; to blame is this transfer, as a hub that was sampled a hundred times is sent a
    hundred times. Fix: each node once."""
    ms = s.ms("gpu_ms", 8, 40)
    s.tell("pause", ms * s.ms("transfer_share", 1.5, 2.6) / 1e3 / NODES)
    gpu, out, port = s.gpu(ms), multiprocessing.Queue(maxsize=3), int(s.told("port"))
    s.supplier(child(sample, out, port, s.fix).pid)
    s.loop(gpu, out.get)


class Budget:
    """MiB that all processes together may use for volumes."""

    def __init__(self, mib):
        self.left, self.change = multiprocessing.RawValue("q", mib), multiprocessing.Condition()

    @contextlib.contextmanager
    def lent(self, mib):
        with self.change:
            self.change.wait_for(lambda: self.left.value >= mib)
            self.left.value -= mib
        yield
        with self.change:
            self.left.value += mib
            self.change.notify_all()


def open_patient(out, budget, claim, cost):
    while True:
        decode(cost * 0.05)  # the header
        with budget.lent(claim):
            decode(cost)
        out.put(np.zeros((40, 40, 40), np.float32))


@job(data="lock_bound", rest="sync_bound launch_bound")
def single_cinch(s):
    """Medical volumes from two processes by turns, which share a budget of memory under a condition; to blame is the
    budget, as a volume claims eight bytes a voxel and needs four: there is room for one claim, and one process
    decodes while the other waits."""
    ms, mib = s.ms("gpu_ms", 10, 45), s.int("volume_mib", 270, 480)
    cost, budget = ms * s.ms("decode_share", 1.45, 1.6), Budget(1000)
    gpu, outs = s.gpu(ms), [multiprocessing.Queue(maxsize=1) for _ in range(2)]
    for out in outs:
        child(open_patient, out, budget, mib if s.fix else 2 * mib, cost)
    turn = itertools.cycle(outs)
    s.loop(gpu, lambda: next(turn).get())


def standardised(labs, groups):
    """How far each value is from what is usual in the group that it fits best."""
    nearest = np.full(labs.shape, np.inf)
    for mean, spread in groups:
        nearest = np.minimum(nearest, abs(labs - mean) / spread)
    return nearest.astype(np.float32)


def hospital(link, labs, groups):
    while True:
        link.send(standardised(labs, groups))


@job(data="slow_worker", rest="sync_bound launch_bound")
def mixed_hide(s):
    """Laboratory values of three hospitals, each with a process and a pipe, by turns; to blame is the one hospital
    that once wrote "n/a" into its table, which was thus read with dtype=object: all its arithmetic is Python's,
    number by number."""
    ms, odd, chance = s.ms("gpu_ms", 8, 40), s.int("odd", 0, 2), random.Random(1)
    groups = [(chance.gauss(5, 1), chance.uniform(0.5, 2)) for _ in range(400)]
    labs = np.random.default_rng(1).normal(5, 2, (1000, 20))
    objects = labs.astype(object)
    each = took(lambda: standardised(objects, groups[:4])) / 4
    many = s.keep("groups", min(max(round(3 * ms * s.ms("standardise_share", 1.6, 2.6) / 1e3 / each), 2), 400))
    gpu, links = s.gpu(ms), []
    for n in range(3):
        mine, theirs = multiprocessing.Pipe(duplex=False)
        pid = child(hospital, theirs, objects if n == odd and not s.fix else labs, groups[:many]).pid
        links.append(mine)
        if n == odd:
            s.supplier(pid)
    turn = itertools.cycle(links)
    s.loop(gpu, lambda: next(turn).recv())


def effective(msa):
    """What each sequence counts for: one over how many of the family are much like it."""
    return np.array([1 / np.count_nonzero((msa == row).mean(1) > 0.8) for row in msa])


def align(first, bell, credit, folder, depths, every):
    """Leaves every second family's features as a file, and rings."""
    chance = np.random.default_rng(first)
    common, deep = [chance.integers(0, 21, (depth, 256), np.uint8) for depth in depths]
    for n in itertools.count(first, 2):
        msa = common if n % every else deep
        features = (effective(msa)[:80, None] * msa[:80]).astype(np.float32)
        credit.acquire()
        np.save(os.path.join(folder, "%d.npy" % n), features)
        os.write(bell, b"f")


@job(data="slow_item", rest="sync_bound launch_bound")
def deep_stitching(s):
    """Protein families, whose features two processes leave as files by turns, and ring by a pipe; to blame are a few
    families with very many sequences, as each is weighed by a comparison with all the others. Fix: a family is cut
    to a depth before, and not after it."""
    ms, every = s.ms("gpu_ms", 8, 25), s.one("every", 7, 9, 11)
    chance = np.random.default_rng(2)
    some = chance.integers(0, 21, (200, 256), np.uint8)
    pair = took(lambda: effective(some)) / len(some) ** 2

    def depth(cost):
        return max(int((cost / 1e3 / pair) ** 0.5), 16)
    common = s.keep("depth", depth(ms * s.ms("load_share", 0.1, 0.4)))
    deep = s.keep("deep", depth(ms * s.ms("deep_steps", 10, 14)))
    gpu, makers = s.gpu(ms), []
    for n in range(2):
        heard, bell = os.pipe()
        credit = multiprocessing.Semaphore(1)
        child(align, n, bell, credit, s.folder, (common, common if s.fix else deep), every)
        makers.append((heard, credit))
    numbers = itertools.count()

    def obtain():
        n = next(numbers)
        heard, credit = makers[n % 2]
        os.read(heard, 1)
        x = np.load(s.path("%d.npy" % n))
        os.unlink(s.path("%d.npy" % n))
        credit.release()
        return x
    s.loop(gpu, obtain)


def put_away(fd, block, rows, durable):
    os.pwrite(fd, rows, block * PAGE)
    if durable:
        os.fdatasync(fd)


def embeddings(link, path, room, durable):
    """Has the rows that were used last in memory; for others the oldest are put away into the file."""
    fd = os.open(path, os.O_RDWR)
    while os.read(fd, MIB):  # from here on the page cache has it
        pass
    kept = collections.OrderedDict((block, os.pread(fd, PAGE, block * PAGE)) for block in range(room))
    while True:
        asked = np.frombuffer(link.recv_bytes(), np.int64).tolist()
        for block in asked:
            if block not in kept:
                put_away(fd, *kept.popitem(last=False), durable)
                kept[block] = os.pread(fd, PAGE, block * PAGE)
            kept.move_to_end(block)
        link.send_bytes(b"".join(kept[block][:1024] for block in asked))


@job(data="io_bound", rest="sync_bound launch_bound")
def damp_saddlebags(s):
    """A recommender whose embeddings outgrow memory: a parameter server on the same host keeps the newest rows, the
    rest is in a file, and the loop looks up one batch ahead; to blame is that the server syncs each block that it
    puts away, before it reads another in its place."""
    ms, share = s.ms("gpu_ms", 8, 30), s.ms("look_up_share", 1.6, 2.6)
    path, hot, room, blocks = s.data_file("damp_saddlebags", 16), 64, 2048, 4096
    fd = os.open(path, os.O_RDWR)
    each = took(lambda: [put_away(fd, n * 37, bytes(PAGE), True) for n in range(20)]) / 20
    os.close(fd)
    many = s.keep("cold_blocks", min(max(round(ms * share / 1e3 / each), 1), 1500))
    mine, theirs = multiprocessing.Pipe()
    gpu, cold = s.gpu(ms), itertools.cycle([*range(room, blocks), *range(hot, room)])
    s.supplier(child(embeddings, theirs, path, room, not s.fix).pid)

    def ask():
        keys = [*range(hot), *itertools.islice(cold, many)]
        mine.send_bytes(np.array(keys, np.int64).tobytes())

    def obtain():
        rows = mine.recv_bytes()
        ask()
        return np.frombuffer(rows, np.uint8)
    ask()
    s.loop(gpu, obtain)


RESAMPLER = """
import signal, sys
import numpy as np
signal.signal(signal.SIGPIPE, signal.SIG_DFL)
clips, taps, batch = int(sys.argv[1]), np.hanning(161), np.zeros(20000, np.float32)
clip = np.random.default_rng(1).random(30000)
while True:
    for _ in range(clips):
        batch[:10000] = np.convolve(clip, taps, "same")[::3]
    sys.stdout.buffer.write(batch)
    sys.stdout.buffer.flush()
"""


@job(data=CPU + " rank_straggler", peer="rank_straggler", rest="sync_bound launch_bound")
def uneven_stirrups(s):
    """Speech on two ranks, each with a program that writes its samples into a pipe, as ffmpeg does, which swap
    gradients over a Unix socket; to blame is the second rank's resampler: its half of the corpus was recorded at
    three times the rate, and has to be filtered clip by clip."""
    ms, launches = s.ms("gpu_ms", 10, 40), s.int("launches", 10, 100)
    clip, taps = np.ones(30000), np.hanning(161)
    each = took(lambda: np.convolve(clip, taps, "same"))
    clips = s.keep("clips", max(round(ms * s.ms("resample_share", 1.6, 2.5) / 1e3 / each), 1))
    ends, parent = socket.socketpair(), os.getpid()
    for rank in range(2):
        if os.fork():
            continue
        mortal(parent, signal.SIGTERM)  # it has a log to write
        s.rank(rank)
        link, gradients, theirs = ends[rank], bytes(32 << 10), bytearray(32 << 10)
        ends[1 - rank].close()
        gpu, high = s.gpu(ms, launches=launches), rank == 1 and not s.fix
        program = subprocess.Popen([sys.executable, "-c", RESAMPLER, str(clips if high else 0)],
                                   stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
        if rank == 1:
            s.supplier(program.pid)
        program.stdout.peek(1)  # it has begun
        s.told("go")
        while True:
            s.step(gpu, lambda: np.frombuffer(program.stdout.read(80000), np.float32))
            with s.during("peer"):
                link.sendall(gradients)
                link.recv_into(theirs, len(theirs), socket.MSG_WAITALL)
    s.go()
    signal.pause()


def copied_scenes(records, copied):
    """As Detectron's mapper: what a transform changes must not be the record itself."""
    for record in itertools.cycle(records):
        record = copied(record)
        record["boxes"] = np.array([a["bbox"] for a in record["annotations"]], np.float32)
        yield record


@job(data="main_thread_loading", rest="sync_bound launch_bound")
def copied_patterns(s):
    """Detection in a notebook: a process has pictures ready in slots of shared memory, and a generator in the loop
    brings their annotations; to blame is this generator's copy.deepcopy() of each record with all its polygons. Fix:
    a copy of the outer dict."""
    ms, share = s.ms("gpu_ms", 8, 30), s.ms("copy_share", 0.6, 1.4)
    take, gpu = slotted(ms * s.ms("load_share", 0.1, 0.3)), s.gpu(ms)
    records = [{"file": "%d.jpg" % n, "height": 480, "width": 640, "annotations": [
        {"bbox": [1.0 * n, 2.0 * k, 3.0, 4.0], "category": k, "crowd": 0, "polygons": [[float(n + k)] * 24]}
        for k in range(20)]} for n in range(200)]
    each = took(lambda: [copy.deepcopy(record) for record in records[:10]]) / 10
    many = s.keep("scenes", min(max(round(ms * share / 1e3 / each), 1), 500))
    scenes = copied_scenes(records, dict if s.fix else copy.deepcopy)

    def obtain():
        boxes = np.concatenate([scene["boxes"] for scene in itertools.islice(scenes, many)])
        x = take()
        x[:boxes.size] = boxes.ravel()
        return x
    s.loop(gpu, obtain)


# ---- not for data


def diffused(levels, k=0.1):
    """An implicit step of diffusion, by Thomas's algorithm; a level is a number, or an array of all columns."""
    ratio, value, swept, after, column = 0.0, 0.0, [], 0.0, []
    for level in levels:
        pivot = 1 + 2 * k + k * ratio
        ratio, value = -k / pivot, (level + k * value) / pivot
        swept.append((ratio, value))
    for ratio, value in reversed(swept):
        after = value - ratio * after
        column.append(after)
    return column[::-1]


@job(data=CPU, host="host_bound", rest="sync_bound launch_bound")
def stitched_columns(s):
    """A learned closure beside an ocean model: the network corrects the columns of water, then the loop has them
    diffuse; to blame is this solver, column by column and level by level in Python, while a process has batches
    ready. Fix: all columns at once."""
    ms, share = s.ms("gpu_ms", 8, 30), s.ms("solve_share", 0.6, 1.6)
    batch, gpu = slotted(ms * s.ms("load_share", 0.1, 0.4)), s.gpu(ms)
    each = took(lambda: [diffused([20.0] * 64) for _ in range(20)]) / 20
    many = s.keep("columns", max(round(ms * share / 1e3 / each), 4))
    ocean, sea = [[20.0] * 64 for _ in range(many)], np.full((64, many), 20.0)
    s.go()
    while True:
        s.step(gpu, batch)
        with s.during("host"):
            if s.fix:
                sea = np.array(diffused(sea))
            else:
                ocean = [diffused(column) for column in ocean]


# ---- nothing is wrong


KEYS, ROWS = 1024, 64 << 10


def far_table(s):
    """A parameter server, far away: each answer comes late, but many may be on their way."""
    late, due = float(s.told("late")) / 1e3, queue.SimpleQueue()
    door = socket.create_server(("127.0.0.1", 0))
    s.tell("port", door.getsockname()[1])
    link, _ = door.accept()

    def answer():
        while True:
            time.sleep(max(due.get() + late - time.monotonic(), 0))
            link.sendall(bytes(ROWS))
    threading.Thread(target=answer, daemon=True).start()
    while link.recv(KEYS, socket.MSG_WAITALL):
        due.put(time.monotonic())


@job(outside=far_table, data="network_bound", rest="sync_bound launch_bound")
def long_reins(s):
    """Nothing is to blame: the loop itself looks embeddings up at a parameter server, which is so far away that each
    answer takes as long as some steps; but it asks on one connection for twice as many steps ahead, and so always
    finds the next answer in the socket."""
    ms, steps = s.ms("gpu_ms", 12, 40), s.int("late_steps", 3, 6)
    s.tell("late", ms * steps / (10 if s.fix else 1))
    gpu, link = s.gpu(ms), socket.create_connection(("127.0.0.1", int(s.told("port"))))
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    x, chance = np.zeros(ROWS, np.uint8), np.random.default_rng(1)

    def ask():
        link.sendall(chance.integers(0, 1 << 31, KEYS // 4, np.int32))

    def obtain():
        link.recv_into(x, ROWS, socket.MSG_WAITALL)
        ask()
        return x
    for _ in range(2 * steps):
        ask()
    s.loop(gpu, obtain)
