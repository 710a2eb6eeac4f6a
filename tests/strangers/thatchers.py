# SPDX-License-Identifier: BSD-2-Clause
"""Among thatchers: jobs whose input has a shape, with trees, diamonds, chains, pools and ways back."""
import fcntl
import itertools
import multiprocessing
import multiprocessing.connection
import os
import queue
import random
import signal
import socket
import struct
import threading
import time

import numpy as np

from stranger import CPU, child, decode, job, mortal

PAGE, MIB = 4096, 1 << 20
FLOATS = 20000  # of a batch
FOREVER = 1 << 40


def took(f):
    """Seconds that f takes once it is warm."""
    f()
    begin = time.monotonic()
    f()
    return time.monotonic() - begin


def forked(f, *more):
    """A process that calls f and dies with the one that forked it, which may be a child itself. Returns its pid."""
    parent, pid = os.getpid(), os.fork()
    if pid == 0:
        try:
            mortal(parent)
            f(*more)
        finally:
            os._exit(1)
    return pid


def foreman(roles, one_for_all):
    """A supervisor: who ends is started again, by one_for_all together with all the others."""
    crew = {}
    while True:
        for role in roles:
            if role not in crew.values():
                crew[forked(*role)] = role
        ended, _ = os.wait()
        del crew[ended]
        if one_for_all:
            for pid in crew:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
            crew.clear()


def packets():
    """Two ends, between which a batch is one packet, and a few of them find room."""
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


def unpacked(link):
    return np.frombuffer(link.recv(4 * FLOATS), np.float32)


def slotted(slots, floats):
    """Slots of shared memory, and what counts the empty and the full ones."""
    ring = np.frombuffer(multiprocessing.RawArray("f", slots * floats), np.float32).reshape(slots, floats)
    return ring, multiprocessing.Semaphore(slots), multiprocessing.Semaphore(0)


def infer(gpu, x):
    gpu.upload(x.ctypes.data, x.nbytes)
    gpu.launch(0, gpu.launches)
    gpu.loss_item()


def lay(link, index, cost):
    """A decoder, which reads its index first."""
    decode(index)
    while True:
        decode(cost)
        link.send(np.zeros(FLOATS, np.float32))


# ---- the data is late


def develop(link, cost):
    """Develops one camera's part of each picture."""
    while True:
        decode(cost)
        link.send(np.zeros(FLOATS // 4, np.float32))


def pair(links, half, cost):
    """Joins two cameras' parts in a slot."""
    ring, free, full = half
    for slot in itertools.cycle(ring):
        parts = [link.recv() for link in links]
        decode(cost)
        free.acquire()
        np.concatenate(parts, out=slot)
        full.release()


def cap(halves, link):
    """Joins the two halves, and sends the whole."""
    for n in itertools.count():
        whole = []
        for ring, free, full in halves:
            full.acquire()
            whole.append(ring[n % len(ring)].copy())
            free.release()
        link.send(np.concatenate(whole))


@job(data="slow_worker", rest="sync_bound launch_bound")
def gathered_ridge(s):
    """Roofs from the air by four cameras: a tree of processes, where four develop a camera each, two join a pair
    through pipes, and one joins these halves out of shared memory and sends packets; to blame is one of the four
    leaves, which was left with a slow build of the developer, so that all the joining waits for its part."""
    ms, slow = s.ms("gpu_ms", 8, 40), s.int("slow", 0, 3)
    light, heavy = ms * s.ms("light_share", 0.08, 0.2), ms * s.ms("heavy_share", 1.5, 2.6)
    halves, leaves = [slotted(2, FLOATS // 2) for _ in range(2)], []
    for n in range(4):
        mine, theirs = multiprocessing.Pipe(duplex=False)
        pid = child(develop, theirs, heavy if n == slow and not s.fix else light).pid
        leaves.append(mine)
        if n == slow:
            s.supplier(pid)
    for n, half in enumerate(halves):
        child(pair, leaves[2 * n:2 * n + 2], half, light / 2)
    mine, theirs = packets()
    child(cap, halves, theirs)
    s.loop(s.gpu(ms), lambda: unpacked(mine))


def comb(link, first, every, cost, again):
    """Makes every other batch; before the next one it combs again what was sent back."""
    x = np.zeros(FLOATS, np.float32)
    for n in itertools.count(first, 2):
        while link.poll():
            number = link.recv()
            decode(again)
            link.send((number, True, x))
        decode(cost)
        link.send((n, n % every > 0, x))


def inspect(links, out):
    """Lets sound batches pass in their order; the others go back to who made them."""
    kept = {}
    for n in itertools.count(1):
        link = links[n % 2]
        while n not in kept:
            number, sound, x = link.recv()
            if sound:
                kept[number] = x
            else:
                link.send(number)
        out.send(kept.pop(n))


@job(data="slow_item", rest="sync_bound launch_bound")
def twice_combed(s):
    """A deep ensemble, all of whose members learn from each batch; two processes make batches by turns, and a third
    inspects them in order and sends some back; to blame are these few batches, whose maker takes very long to make
    them again with great care, while all that is ready waits behind them in the inspector's order."""
    ms, every = s.ms("gpu_ms", 8, 20), s.one("every", 7, 9, 11)
    cost, again = ms * s.ms("load_share", 0.15, 0.4), ms * s.ms("again_steps", 10, 14)
    links = []
    for n in range(2):
        mine, theirs = multiprocessing.Pipe()
        child(comb, theirs, 2 - n, every, cost, cost if s.fix else again)
        links.append(mine)
    mine, theirs = packets()
    child(inspect, links, theirs)
    members = [s.gpu(ms / 2) for _ in range(2)]
    s.go()
    while True:
        s.mark()
        with s.during("data"):
            x = unpacked(mine)
        for member in members:
            member.enter_thread()
            s.train(member, x)


def climb(link, root, branches, seed, floats, cost, crab):
    """Goes down the tree from latch to latch, and works at a leaf."""
    chance = random.Random(seed)
    while True:
        decode(cost * 0.1)
        root.acquire()
        with chance.choice(branches):
            if crab:
                root.release()
            decode(cost)
            if not crab:
                root.release()
        link.send(np.zeros(floats, np.float32))


def pack(link, many, ring, free, full):
    """Packs leaves into a batch, whoever brings them."""
    for slot in itertools.cycle(ring):
        leaves = [link.recv(4 * FLOATS) for _ in range(many)]
        free.acquire()
        slot[:] = np.frombuffer(b"".join(leaves), np.float32)
        full.release()


@job(data="lock_bound", rest="sync_bound launch_bound")
def kept_ladder(s):
    """Three processes look words up in a prefix tree that they share and that has a latch at each node, and unpack
    the leaves; a packer takes these as packets of one socket and fills slots for the loop; to blame is the root's
    latch, which is kept all the way down until the leaf is unpacked, so that only one process is in the tree."""
    ms, many = s.ms("gpu_ms", 8, 40), s.one("leaves", 4, 5, 8, 10)
    cost = ms * s.ms("unpack_share", 1.5, 2.5) / many
    root, branches = multiprocessing.Lock(), [multiprocessing.Lock() for _ in range(8)]
    mine, theirs = packets()
    for n in range(3):
        child(climb, theirs, root, branches, n, FLOATS // many, cost / 2 if s.fix else cost, s.fix)
    ring, free, full = slotted(2, FLOATS)
    child(pack, mine, many, ring, free, full)
    turn = itertools.cycle(ring)

    def obtain():
        full.acquire()
        x = next(turn).copy()
        free.release()
        return x
    s.loop(s.gpu(ms), obtain)


def far_rick(s):
    """A store that is far away, and has one connection to the machine."""
    late, chance = float(s.told("late")) / 1e3, random.Random(1)
    door = socket.create_server(("127.0.0.1", 0))
    s.tell("port", door.getsockname()[1])
    link, _ = door.accept()
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    while link.recv(8, socket.MSG_WAITALL):
        time.sleep(late * chance.lognormvariate(0, 0.1))
        link.sendall(bytes(4 * FLOATS))


def cart(port, links):
    """A sidecar: all that leaves the machine goes through it, one question after the other."""
    with socket.create_connection(("127.0.0.1", port)) as far, far.makefile("rb") as answers:
        far.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while True:
            for link in multiprocessing.connection.wait(links):
                far.sendall(link.recv_bytes())
                link.send_bytes(answers.read(4 * FLOATS))


def unload(sidecar, out, numbers, cost):
    for n in numbers:
        sidecar.send_bytes(struct.pack("<Q", n))
        body = sidecar.recv_bytes()
        decode(cost)
        out.send(np.frombuffer(body, np.float32))


@job(outside=far_rick, data="network_bound", rest="sync_bound launch_bound")
def one_carter(s):
    """Processes unpack batches, which a thread of the trainer takes in any order; for what they unpack they ask a
    sidecar, as in a service mesh, which is set to one request at a time; to blame is the far store behind it, for
    whose answer the sidecar waits, and with it whoever asks: more processes would only queue there."""
    ms, processes = s.ms("gpu_ms", 8, 40), s.int("processes", 2, 3)
    cost, late = ms * s.ms("unpack_share", 0.1, 0.3), ms * s.ms("late_share", 1.5, 2.6)
    s.tell("late", late / 20 if s.fix else late)
    port, askers, ends, staged = int(s.told("port")), [], [], queue.Queue(2)
    for n in range(processes):
        ours, theirs = multiprocessing.Pipe()
        mine, out = multiprocessing.Pipe(duplex=False)
        child(unload, theirs, out, itertools.count(n, processes), cost)
        askers.append(ours)
        ends.append(mine)
    s.supplier(child(cart, port, askers).pid)

    def receive():
        while True:
            for end in multiprocessing.connection.wait(ends):
                staged.put(end.recv())
    threading.Thread(target=receive, daemon=True).start()
    s.loop(s.gpu(ms), staged.get)


def thicken(source, sink, most, last):
    """Adds its column, which lies in memory, to what it gets, and hands on all; the last one picks some rows."""
    own = np.ones(most, np.uint8)
    while True:
        size, columns = source.recv()
        columns.append(own[:size])
        sink.send(np.concatenate([column[:FLOATS] for column in columns]) if last else (size, columns))


@job(data="ipc_bound", rest="sync_bound launch_bound")
def growing_nitch(s):
    """Customers are scored by columns that four processes have in memory, a chain that is asked one batch ahead:
    each adds its own column, and the last one picks the few rows that are due and sends them to the loop; to blame
    is what goes from one to the next, all rows of a growing bundle of columns, pickled and unpickled each time."""
    ms, share, most = s.ms("gpu_ms", 8, 20), s.ms("hand_on_share", 1.7, 2.8), 16 * MIB
    source, first = multiprocessing.Pipe(duplex=False)
    for last in (False, False, False, True):
        following, sink = multiprocessing.Pipe(duplex=False)
        child(thicken, source, sink, most, last)
        source = following

    def ask(size):
        first.send((size, []))
    each = took(lambda: (ask(4 * MIB), source.recv())) * 1e3 / (4 * MIB)
    size = s.keep("bytes", min(max(int(ms * share / each), MIB), most) // (20 if s.fix else 1))
    gpu = s.gpu(ms)
    ask(size)
    s.go()
    while True:
        s.mark()
        with s.during("data"):
            x = source.recv()
            ask(size)
        infer(gpu, x)


@job(data="loader_restart", rest="sync_bound launch_bound")
def whole_gang(s):
    """A supervisor process keeps a decoder, which sends packets to the loop, and a small reporter that nobody waits
    for and that fails every now and then; to blame are the decoder's restarts: by the supervisor's strategy,
    one_for_all, it is killed with each failure of the reporter, and reads its long index anew."""
    ms, index = s.ms("gpu_ms", 8, 16), s.ms("index_ms", 180, 320)
    life, cost = index * s.ms("life_share", 1.5, 2.2) / 1e3, ms * s.ms("load_share", 0.1, 0.3)
    mine, theirs = packets()
    child(foreman, [(lay, theirs, index, cost), (time.sleep, life)], not s.fix)
    s.loop(s.gpu(ms), lambda: unpacked(mine))


def rick(link, path, pages):
    """A shard: it reads a little of each page that it is asked for, and has none of them in memory."""
    fd = os.open(path, os.O_RDONLY)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
    while True:
        wanted, warm = link.recv()
        if not warm:
            os.posix_fadvise(fd, pages.start * PAGE, len(pages) * PAGE, os.POSIX_FADV_DONTNEED)
        link.send_bytes(b"".join([os.pread(fd, PAGE, n * PAGE)[:16] for n in wanted]))


def yard(home, links, parts):
    """A coordinator: it asks all shards for their share of a batch, and gathers what they answer."""
    chance = np.random.default_rng(1)
    while True:
        many, warm = home.recv()
        for link, pages in zip(links, parts):
            link.send((chance.permutation(pages)[:many].tolist(), warm))
        home.send_bytes(b"".join([link.recv_bytes() for link in links]))


@job(data="io_bound", rest="sync_bound launch_bound")
def three_ricks(s):
    """Embeddings are scored offline, which a coordinator, asked one batch ahead, gathers from three shards, each a
    process with a part of the keys; they have equal shares, and are asked at the same time; to blame is the disk,
    from which each shard reads page by page, as nothing of the store is in memory."""
    ms, share, path = s.ms("gpu_ms", 8, 25), s.ms("read_share", 1.7, 2.8), s.data_file("three_ricks", 64)
    third = 64 * MIB // PAGE // 3
    parts, links = [range(n * third, (n + 1) * third) for n in range(3)], []
    for pages in parts:
        mine, theirs = multiprocessing.Pipe()
        child(rick, theirs, path, pages)
        links.append(mine)
    home, theirs = multiprocessing.Pipe()
    child(yard, theirs, links, parts)

    def take():
        return np.frombuffer(home.recv_bytes(), np.uint8)
    each = took(lambda: (home.send((200, False)), take())) * 1e3 / 200
    many = s.keep("reads", min(max(int(ms * share / each), 16), 4000))
    with open(path, "rb", buffering=0) as f:
        while s.fix and f.read(MIB):
            pass
    gpu = s.gpu(ms)
    home.send((many, s.fix))
    s.go()
    while True:
        s.mark()
        with s.during("data"):
            x = take()
            home.send((many, s.fix))
        infer(gpu, x)


class Orders:
    """A queue of numbers in shared memory, from which its owner takes, and others steal."""

    def __init__(self, room):
        self.lock, self.numbers = multiprocessing.Lock(), multiprocessing.RawArray("q", room)
        self.ends = multiprocessing.RawArray("q", 2)

    def put(self, n):
        with self.lock:
            self.numbers[self.ends[1] % len(self.numbers)] = n
            self.ends[1] += 1

    def take(self):
        """The oldest number, or None."""
        with self.lock:
            first, last = self.ends
            if first == last:
                return None
            self.ends[0] += 1
            return self.numbers[first % len(self.numbers)]


def poach(queues, work, link, cost):
    """Takes an order from the first of the queues, which is its own, or else from another."""
    while True:
        work.acquire()
        n = next(filter(None, (orders.take() for orders in itertools.cycle(queues))))
        decode(cost)
        link.send((n, np.zeros(FLOATS, np.float32)))


def bind(queues, work, links, out, window):
    """Gives three orders of four to the first queue, and puts what comes back in order."""
    numbers, kept = itertools.count(1), {}

    def order():
        n = next(numbers)
        queues[n % 4 == 0].put(n)
        work.release()
    for _ in range(window):
        order()
    for n in itertools.count(1):
        while n not in kept:
            for link in multiprocessing.connection.wait(links):
                number, x = link.recv()
                kept[number] = x
        out.send(kept.pop(n))
        order()


@job(data=CPU, rest="sync_bound launch_bound")
def hazel_poachers(s):
    """Two processes with a queue of orders each in shared memory; a third gives most orders to the first, puts the
    batches in order and sends them on; the unequal shares do no harm, for who has no order steals one of the
    other's, and the locks are soon free again; to blame is the decoding, which takes both all of their time."""
    ms, window = s.ms("gpu_ms", 8, 40), s.int("window", 6, 10)
    cost = 2 * ms * s.ms("load_share", 1.5, 2.4)
    queues, work, links = [Orders(window) for _ in range(2)], multiprocessing.Semaphore(0), []
    for own in (queues, queues[::-1]):
        mine, theirs = multiprocessing.Pipe(duplex=False)
        child(poach, own, work, theirs, cost / 4 if s.fix else cost)
        links.append(mine)
    mine, theirs = packets()
    child(bind, queues, work, links, theirs, window)
    s.loop(s.gpu(ms), lambda: unpacked(mine))


# ---- not for data


def watch(ring, free, full, cost):
    """Reads what is published, slot by slot, at its own pace."""
    for slot in itertools.cycle(ring):
        full.acquire()
        slot.sum()
        decode(cost)
        free.release()


@job(data=CPU, host="host_bound", rest="sync_bound launch_bound")
def slowest_gable(s):
    """Each step's results are published in one ring of shared memory, as with the Disruptor, from which three
    processes read at their own pace, while a busy decoder has batches in time; to blame is the loop's publishing,
    which never overwrites what anybody still has to read, and so waits for the slowest reader, an auditor."""
    ms, slots = s.ms("gpu_ms", 8, 40), s.int("slots", 2, 6)
    light, heavy = ms * s.ms("light_share", 0.05, 0.15), ms * s.ms("audit_share", 1.5, 2.6)
    ring, _, _ = slotted(slots, FLOATS)
    readers = [(multiprocessing.Semaphore(slots), multiprocessing.Semaphore(0)) for _ in range(3)]
    for cost, (free, full) in zip((light, light if s.fix else heavy, light), readers):
        child(watch, ring, free, full, cost)
    mine, theirs = packets()
    child(lay, theirs, 0, ms * s.ms("load_share", 0.2, 0.5))
    gpu = s.gpu(ms)
    s.go()
    for slot in itertools.cycle(ring):
        s.step(gpu, lambda: unpacked(mine))
        with s.during("host"):
            for free, _ in readers:
                free.acquire()
            slot[:] = gpu.loss.value
            for _, full in readers:
                full.release()


# ---- nothing is wrong


def deal(sinks, cost):
    """Gives each record to all branches."""
    while True:
        decode(cost)
        record = np.zeros(FLOATS // 4, np.float32)
        for sink in sinks:
            sink.send(record)


def slope(source, sink, start, cost, life):
    """A branch: its process makes ready, and ends after so many records."""
    decode(start)
    for _ in range(life):
        record = source.recv()
        decode(cost)
        sink.send(np.repeat(record, 2))


def join(sources, sink):
    while True:
        sink.send(np.concatenate([source.recv() for source in sources]))


@job(data="loader_restart", rest="sync_bound launch_bound")
def two_slopes(s):
    """Nothing is to blame: a process gives each record to two branches, whose results another one joins and puts
    into a large pipe; one branch is busy, and the other stands still most of the time, ends after some records
    because it leaks, and is started again at length; but some batches lie in the pipe meanwhile."""
    ms, life, start = s.ms("gpu_ms", 22, 40), s.int("life", 10, 16), s.ms("start_steps", 1, 2)
    costs = ms * s.ms("busy_share", 0.3, 0.5), ms * s.ms("idle_share", 0.1, 0.2)
    lives, starts = (FOREVER, FOREVER if s.fix else life), (0, ms * start)
    sinks, sources = [], []
    for cost, first, last in zip(costs, starts, lives):
        record, dealt = multiprocessing.Pipe(duplex=False)
        result, made = multiprocessing.Pipe(duplex=False)
        child(foreman, [(slope, record, made, first, cost, last)], False)
        sinks.append(dealt)
        sources.append(result)
    child(deal, sinks, ms * 0.05)
    mine, theirs = multiprocessing.Pipe(duplex=False)
    fcntl.fcntl(theirs.fileno(), fcntl.F_SETPIPE_SZ, 1 << 19)
    child(join, sources, theirs)
    s.loop(s.gpu(ms), mine.recv)
