# SPDX-License-Identifier: BSD-2-Clause
"""At the gatehouses: who comes to the gate, and whether what they ask for is at hand behind it."""
import asyncio
import collections
import itertools
import mmap
import multiprocessing
import os
import queue
import random
import select
import selectors
import socket
import struct
import threading
import time

import numpy as np

from stranger import CPU, child, decode, job, parse

PAGE, MIB, ASK = 4096, 1 << 20, 1024


def took(f):
    """Seconds that f takes, once it is warm."""
    f()
    begin = time.monotonic()
    f()
    return time.monotonic() - begin


def reach(path):
    """A connection to who will listen there."""
    link = socket.socket(socket.AF_UNIX)
    while True:
        try:
            link.connect(path)
            return link
        except OSError:
            time.sleep(0.02)


def knock(s):
    """Somebody at the gate who has a request ready at any time."""
    link = reach(s.path("gate"))
    s.told("go")
    while True:
        link.sendall(bytes(ASK))


def gate(s):
    """Lets the one who knocks in."""
    with socket.socket(socket.AF_UNIX) as door:
        door.bind(s.path("gate"))
        door.listen()
        return door.accept()[0]


def asked(link):
    """The next request, whole."""
    return link.recv(ASK, socket.MSG_WAITALL)


def serve(answer):
    """A TCP server, a thread for each connection; returns its port."""
    door = socket.create_server(("127.0.0.1", 0))

    def admit():
        while True:
            threading.Thread(target=answer, args=(door.accept()[0],), daemon=True).start()
    threading.Thread(target=admit, daemon=True).start()
    return door.getsockname()[1]


# ---- the data is late


def muniment_room(s):
    """A far feature store: WATCH gives the version, GET the features, EXEC tells whether that version still holds."""
    late, between = (float(word) / 1e3 for word in s.told("late").split())
    version = itertools.count()
    state = [next(version)]

    def answer(link):
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while ask := link.recv(5, socket.MSG_WAITALL):
            verb, seen = struct.unpack("<cI", ask)
            time.sleep(late)
            if verb == b"G":
                link.sendall(bytes(32 << 10))
            else:
                link.sendall(struct.pack("<I", state[0] if verb == b"W" else state[0] == seen))

    def materialise():
        while True:
            time.sleep(s.random.expovariate(1 / between))
            state[0] = next(version)
    threading.Thread(target=materialise, daemon=True).start()
    s.tell("port", serve(answer))
    knock(s)


@job(outside=muniment_room, data="network_bound main_thread_loading", demand="no_demand",
     rest="sync_bound launch_bound")
def changed_password(s):
    """A ranking service at full load that reads features by optimistic transactions, as of Redis: to blame are these,
    as a materialiser writes the same hash, so that EXEC often fails and all questions go to the far store again."""
    ms, share, tries = s.ms("gpu_ms", 10, 35), s.ms("store_share", 0.5, 1.5), s.ms("tries", 1.6, 2.6)
    late = ms * share / tries / 3
    between = 3 * late / np.log(tries)
    s.tell("late", "%f %f" % (late / 5, between * 20) if s.fix else "%f %f" % (late, between))
    gpu, store, link = s.gpu(ms), socket.create_connection(("127.0.0.1", int(s.told("port")))), gate(s)

    def ask(verb, seen, size):
        store.sendall(struct.pack("<cI", verb, seen))
        return store.recv(size, socket.MSG_WAITALL)

    def features():
        while True:
            seen, = struct.unpack("<I", ask(b"W", 0, 4))
            found = ask(b"G", 0, 32 << 10)
            if ask(b"E", seen, 4) != bytes(4):
                return np.frombuffer(found, np.uint8)
    s.go()
    while True:
        with s.during("demand"):
            asked(link)
        s.step(gpu, features)


def doorkeeper(s, link, cost, lean):
    """Turns requests into tokens, and all of a conversation's tokens into text again whenever there is a new one."""
    people, length = gate(s), itertools.cycle(range(1, 9))
    for _ in range(2):
        asked(people)
        link.send(np.zeros(8000, np.int64))
    while True:
        link.recv()
        parse(cost * 0.85 * (0.1 if lean else next(length) / 4.5))  # the answer so far, anew from its first token
        asked(people)
        parse(cost * 0.15)
        link.send(np.zeros(8000, np.int64))


@job(outside=knock, data=CPU, rest="sync_bound launch_bound")
def double_doorkeeper(s):
    """A language model behind a process that tokenises requests, of which there are plenty, and streams the answers;
    to blame is the latter: for each new token it turns all of the answer into text again, and prompts wait for it."""
    ms, share = s.ms("gpu_ms", 10, 40), s.ms("text_share", 1.5, 2.6)
    mine, theirs = multiprocessing.Pipe()
    gpu = s.gpu(ms)
    s.supplier(child(doorkeeper, s, theirs, ms * share, s.fix).pid)
    s.go()
    while True:
        s.step(gpu, mine.recv)
        mine.send(b"\1" * 64)


def first_alive(writs, many):
    """The oldest entries that are not deleted; each search begins at the head, as a fresh iterator does."""
    found = []
    for _ in range(many):
        key = next(key for key, alive in writs.items() if alive)
        writs[key] = False  # a tombstone, until it is compacted
        found.append(key)
    return found


def chancery(s, link, dead, many):
    """Joins impressions with their outcomes, by a state store in which the newest entries are alive."""
    people, number = gate(s), itertools.count()
    writs = collections.OrderedDict((next(number), False) for _ in range(dead))
    while True:
        asked(people)
        writs.update((next(number), True) for _ in range(many))
        found = first_alive(writs, many)
        while len(writs) > dead:
            writs.popitem(last=False)
        link.send_bytes(np.resize(np.array(found, np.float32), 40000).tobytes())


@job(outside=knock, data=CPU, rest="sync_bound launch_bound")
def buried_writs(s):
    """An online learner: events are never lacking, and a process joins them by a state store, as RocksDB is one; to
    blame is the store's pile of tombstones, which each search for the oldest entry goes through from the head."""
    ms, share, many = s.ms("gpu_ms", 8, 30), s.ms("join_share", 1.5, 2.6), s.int("joined", 8, 40)
    some = collections.OrderedDict((key, key >= 20000) for key in range(21000))
    each = took(lambda: first_alive(some, 5)) / 5 / 20000
    dead = s.keep("tombstones", max(int(ms * share / 1e3 / many / each) // (6 if s.fix else 1), 100))
    mine, theirs = multiprocessing.Pipe(duplex=False)
    gpu = s.gpu(ms)
    s.supplier(child(chancery, s, theirs, dead, many).pid)
    s.loop(gpu, lambda: np.frombuffer(mine.recv_bytes(), np.float32))


def climb(graph, chance, hops):
    """A walk through a graph of neighbours, a page for each: only a page that was read tells the next one."""
    pages = len(graph) // PAGE
    at, seen = chance.randrange(pages), bytearray()
    for _ in range(hops):
        near = struct.unpack_from("<16I", graph, at * PAGE)
        at = min(near, key=lambda n: (n ^ at) & 0xffff) % pages
        seen += graph[at * PAGE:at * PAGE + 16]
    return seen


def turret(link, path, hops, warm):
    """Finds candidates for each question."""
    with open(path, "rb", buffering=0) as f, mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ) as graph:
        chance = random.Random(1)
        while warm and f.read(MIB):
            pass
        graph.madvise(mmap.MADV_RANDOM)
        while link.recv(ASK):
            link.send(climb(graph, chance, hops))
            if not warm:
                graph.madvise(mmap.MADV_DONTNEED)
                os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


@job(outside=knock, data="page_fault_io", demand="no_demand", rest="sync_bound launch_bound")
def winding_stairs(s):
    """A re-ranker at full load, whose candidates a process finds one request ahead by walking a graph of neighbours;
    to blame is that this is mapped and not in memory: each hop is a page from the disk, and leads to the next."""
    ms, share = s.ms("gpu_ms", 8, 25), s.ms("walk_share", 1.7, 3)
    path = s.data_file("winding_stairs", 64)
    with open(path, "rb") as f, mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ) as graph:
        graph.madvise(mmap.MADV_RANDOM)
        begin = time.monotonic()
        climb(graph, random.Random(2), 300)
        each = (time.monotonic() - begin) / 300
    hops = s.keep("hops", min(max(int(ms * share / 1e3 / each), 16), 3000))
    s.cold(path)
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    gpu = s.gpu(ms)
    s.supplier(child(turret, theirs, path, hops, s.fix).pid)
    link = gate(s)
    ours.send(bytes(ASK))  # of the warm-up
    s.go()
    while True:
        with s.during("demand"):
            ask = asked(link)
        s.mark()
        with s.during("data"):
            x = np.frombuffer(ours.recv(64 << 10), np.uint8)
            ours.send(ask)
        s.train(gpu, x)


def far_profiles(s):
    """A store that tells about a customer after a while, and those who knock."""
    late = float(s.told("late")) / 1e3

    def answer(link):
        while link.recv(4, socket.MSG_WAITALL):
            time.sleep(late)
            link.sendall(bytes(80 << 10))
    s.tell("port", serve(answer))
    knock(s)


def one_ring(s, out, port, tasks):
    """An asyncio front: as many requests at once as there are tasks, which share a connection and thus its lock."""
    async def guard(people, turn, store, lock, results):
        while True:
            async with turn:
                await people.readexactly(ASK)
            async with lock:
                store[1].write(b"user")
                profile = await store[0].readexactly(80 << 10)
            results.write(profile)
            await results.drain()

    async def front():
        people = (await asyncio.open_connection(sock=gate(s)))[0]
        store = await asyncio.open_connection("127.0.0.1", port, limit=MIB)
        results = (await asyncio.open_connection(sock=out))[1]
        results.transport.set_write_buffer_limits(0)
        turn, lock = asyncio.Lock(), asyncio.Lock()
        await asyncio.gather(*(guard(people, turn, store, lock, results) for _ in range(tasks)))
    asyncio.run(front())


@job(outside=far_profiles, data="network_bound lock_bound too_few_workers", rest="sync_bound launch_bound")
def one_key_ring(s):
    """An asyncio front has many requests at work, each of which asks a far store for a profile; to blame is an
    asyncio.Lock around a connection that all of them share, held while the answer is awaited: it is one at a time."""
    ms, tasks = s.ms("gpu_ms", 10, 40), s.int("tasks", 4, 16)
    late = ms * s.ms("late_share", 1.4, 2.8)
    s.tell("late", late / 6 if s.fix else late)
    gpu, port = s.gpu(ms), int(s.told("port"))
    ours, theirs = socket.socketpair()
    s.supplier(child(one_ring, s, theirs, port, tasks).pid)
    theirs.close()
    s.loop(gpu, lambda: np.frombuffer(ours.recv(80 << 10, socket.MSG_WAITALL), np.uint8))


def wicket(door, cost):
    """A pre-forked worker: accepts, says who it is, and prepares what it is asked for."""
    ways = selectors.DefaultSelector()
    ways.register(door, selectors.EVENT_READ)
    while True:
        for key, _ in ways.select():
            if key.fileobj is door:
                link = door.accept()[0]
                link.sendall(struct.pack("<I", os.getpid()))
                ways.register(link, selectors.EVENT_READ)
            elif key.fileobj.recv(4):
                decode(cost)
                key.fileobj.sendall(bytes(64 << 10))
            else:
                ways.unregister(key.fileobj)
                key.fileobj.close()


def wickets(workers, cost):
    """Workers that listen at one port, each by itself: the kernel's hash says who gets a connection."""
    place, pids = ("127.0.0.1", 0), []
    for _ in range(workers):
        door = socket.create_server(place, reuse_port=True)
        place = door.getsockname()
        pids.append(child(wicket, door, cost).pid)
        door.close()
    return place, pids


@job(data=CPU, rest="sync_bound launch_bound")
def crowded_wicket(s):
    """Pre-labelling for a labelling tool: pre-forked workers listen at one port by SO_REUSEPORT, and prepare images;
    to blame is that the few connections that are kept all fell to one of them, and the others have nothing to do."""
    ms, workers, many = s.ms("gpu_ms", 10, 40), s.int("workers", 2, 3), s.int("connections", 2, 4)
    cost, gpu, links = ms * s.ms("prepare_share", 1.5, 2.6), s.gpu(ms), []
    place, pids = wickets(workers, cost / 6 if s.fix else cost)
    s.supplier(s.one("lot", *pids[:2]))
    while len(links) < many:
        link = socket.create_connection(place)
        if s.fix or struct.unpack("<I", link.recv(4, socket.MSG_WAITALL))[0] == s.facts["supplier"]:
            links.append(link)
        else:
            link.close()
    if s.fix:
        for link in links:
            link.recv(4, socket.MSG_WAITALL)
    turn = itertools.cycle(links)
    for link in links:
        link.sendall(b"next")

    def obtain():
        link = next(turn)
        x = np.frombuffer(link.recv(64 << 10, socket.MSG_WAITALL), np.uint8)
        link.sendall(b"next")
        return x
    s.loop(gpu, obtain)


# ---- not for data


def distance(one, other):
    """How many words differ, by the usual table."""
    row = list(range(len(other) + 1))
    for i, word in enumerate(one, 1):
        before, row[0] = row[0], i
        for k, second in enumerate(other, 1):
            before, row[k] = row[k], min(row[k] + 1, row[k - 1] + 1, before + (word != second))
    return row[-1]


@job(outside=knock, demand="no_demand", host="host_bound", rest="sync_bound launch_bound")
def stammering_crier(s):
    """Live captions that catch up after an outage, so that audio is always there; to blame is the loop, which after
    each chunk weighs the new words against the last ones in Python, to show only what does not change any more."""
    ms, share = s.ms("gpu_ms", 8, 30), s.ms("weigh_share", 0.4, 1.3)
    said = ["word%d" % n for n in range(2000)]
    each = took(lambda: distance(said[:60], said[1:61])) / 3600
    words = s.keep("words", max(int((ms * share / 1e3 / each) ** 0.5), 8))
    if s.fix:
        words = max(words // 3, 2)
    gpu, link, place = s.gpu(ms), gate(s), itertools.cycle(range(1000))
    s.go()
    while True:
        with s.during("demand"):
            sound = asked(link)
        s.mark()
        s.train(gpu, np.frombuffer(sound, np.uint8))
        at = next(place)
        with s.during("host"):
            distance(said[at:at + words], said[at + 1:at + 1 + words])


def crowd(s):
    """Two callers at a gateway: one has no right to be there and comes all the time, one is seldom and welcome."""
    often, seldom = (float(word) / 1e3 for word in s.told("pace").split())

    def call(word, pause, chance):
        link = reach(s.path("gate"))
        s.told("go")
        while True:
            time.sleep(chance.expovariate(1 / pause))
            link.sendall(word + bytes(ASK - 4))
            link.recv(3, socket.MSG_WAITALL)
    threading.Thread(target=call, args=(b"evil", often, random.Random(1)), daemon=True).start()
    call(b"good", seldom, random.Random(2))


def gateway(s, slot, bell, done, cost):
    """Checks who calls; a request that may pass lies in shared memory when the bell rings."""
    ways, door = selectors.DefaultSelector(), socket.socket(socket.AF_UNIX)
    door.bind(s.path("gate"))
    door.listen()
    ways.register(door, selectors.EVENT_READ)
    while True:
        for key, _ in ways.select():
            if key.fileobj is door:
                ways.register(door.accept()[0], selectors.EVENT_READ)
                continue
            ask = asked(key.fileobj)
            if not ask:
                os._exit(0)
            decode(cost)  # a password's hash, which is slow by intent
            if ask.startswith(b"good"):
                slot[:] = ask
                os.eventfd_write(bell, 1)
                os.eventfd_read(done)
            key.fileobj.sendall(b"200" if ask.startswith(b"good") else b"401")


@job(outside=crowd, demand="no_demand", host="host_bound", rest="sync_bound launch_bound")
def turned_away(s):
    """A model server behind a gateway process, which is busy without pause, as somebody without a password tries all
    the time; nobody is to blame that few requests have the right to pass, and the loop waits for one of those."""
    ms, gap, busy = s.ms("gpu_ms", 8, 25), s.ms("gap_steps", 1.5, 5), s.ms("busy_share", 0.4, 2)
    cost = s.ms("check_ms", 1, 4)
    s.tell("pace", "%f %f" % (cost / busy, ms * gap))
    slot, bell, done, gpu = mmap.mmap(-1, ASK), os.eventfd(0), os.eventfd(0), s.gpu(ms)
    child(gateway, s, slot, bell, done, cost)
    s.go()
    while True:
        with s.during("demand"):
            os.eventfd_read(bell)
        s.mark()
        s.train(gpu, np.frombuffer(slot[:], np.uint8))
        os.eventfd_write(done, 1)


def callers(s):
    """Some calls, whose frames come by UDP every 20 ms, whether somebody speaks or not."""
    port, out = int(s.told("port")), socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    out.connect(("127.0.0.1", port))
    calls = [[n % 2, s.random.randint(5, 60)] for n in range(s.int("calls", 2, 5))]
    s.told("go")
    while True:
        for n, call in enumerate(calls):
            call[1] -= 1
            if call[1] < 0:
                call[0] = 1 - call[0]
                call[1] = s.random.randint(10, 40) if call[0] else s.random.randint(30, 120)
            out.send(struct.pack("<I", n) + bytes([100 * call[0]] * 320))
        time.sleep(0.02)


@job(outside=callers, demand="no_demand", host="host_bound", rest="sync_bound launch_bound")
def drowsy_sentry(s):
    """A voice agent: the loop takes each frame of a few calls, of which most are silent and dropped by their energy;
    only every few frames of speech make a chunk for the model, and nobody is to blame that people think or listen."""
    gpu, frames = s.gpu(s.ms("gpu_ms", 6, 20)), s.int("frames", 5, 10)
    door, heard = socket.socket(socket.AF_INET, socket.SOCK_DGRAM), collections.defaultdict(list)
    door.bind(("127.0.0.1", 0))
    s.tell("port", door.getsockname()[1])

    def speech():
        while True:
            frame = door.recv(512)
            sound = np.frombuffer(frame, np.uint8, offset=4)
            if sound.mean() > 20:
                chunk = heard[frame[:4]]
                chunk.append(sound)
                if len(chunk) == frames:
                    return heard.pop(frame[:4])
    s.go()
    while True:
        with s.during("demand"):
            chunk = speech()
        s.mark()
        s.train(gpu, np.concatenate(chunk))


# ---- nothing is wrong


@job(outside=far_profiles, data="network_bound main_thread_loading", demand="no_demand",
     rest="sync_bound launch_bound")
def default_livery(s):
    """Nothing is to blame: threads ask a far store for features, which come some steps too late, but the loop never
    waits for them: whoever is not in its table yet is scored with defaults, and his features serve the next time."""
    ms, threads, users = s.ms("gpu_ms", 12, 40), s.int("threads", 2, 3), s.int("users", 40, 400)
    s.tell("late", ms * s.ms("late_share", 1.5, 5))
    gpu, port, link = s.gpu(ms), int(s.told("port")), gate(s)
    wanted, known, default = queue.Queue(16), {}, np.zeros(2048, np.float32)

    def ask():
        store = socket.create_connection(("127.0.0.1", port))
        while True:
            user = wanted.get()
            store.sendall(struct.pack("<I", user))
            known[user] = np.frombuffer(store.recv(80 << 10, socket.MSG_WAITALL), np.float32)[:2048]
            if len(known) > users // 2:
                known.pop(next(iter(known)), None)
    for _ in range(threads):
        threading.Thread(target=ask, daemon=True).start()

    def features():
        found = []
        for user in s.random.sample(range(users), 16):
            found.append(known.get(user, default))
            if user not in known and not wanted.full():
                wanted.put(user)
        return np.concatenate(found)
    s.go()
    while True:
        with s.during("demand"):
            asked(link)
        s.step(gpu, features)


def impatient(s):
    """Callers who hang up when it takes them too long, and call again at once."""
    patience = float(s.told("patience")) / 1e3
    s.told("go")

    def call(chance):
        while True:
            link = reach(s.path("gate"))
            link.settimeout(patience * chance.uniform(0.2, 2))
            try:
                while True:
                    link.sendall(bytes(ASK))
                    link.recv(3, socket.MSG_WAITALL)
            except OSError:
                link.close()
    for n in range(16):
        threading.Thread(target=call, args=(random.Random(n),), daemon=True).start()
    threading.Event().wait()


def heard(link):
    """What is asked, or nothing where the caller has hung up."""
    try:
        return asked(link)
    except OSError:
        return b""


def hall(door, line):
    """A thread's event loop: who is there, what he asks, and who has hung up."""
    ways = selectors.DefaultSelector()
    ways.register(door, selectors.EVENT_READ)
    while True:
        for key, _ in ways.select():
            link = key.fileobj
            if link is door:
                ways.register(door.accept()[0], selectors.EVENT_READ)
            elif ask := heard(link):
                line.put((link, ask))
            else:
                ways.unregister(link)
                link.close()


@job(outside=impatient, demand="no_demand", host="host_bound", rest="sync_bound launch_bound")
def rude_callers(s):
    """Nothing is to blame: a model server at full load, whose callers hang up after a while and call again, so that
    many an answer finds nobody; but a new caller always waits, and the device always has a batch."""
    ms, most = s.ms("gpu_ms", 15, 50), s.int("batch", 2, 4)
    s.tell("patience", ms * s.ms("patience_steps", 2, 6))
    gpu, line, door = s.gpu(ms), queue.SimpleQueue(), socket.socket(socket.AF_UNIX)
    door.bind(s.path("gate"))
    door.listen(64)
    threading.Thread(target=hall, args=(door, line), daemon=True).start()

    def waiting():
        batch = []
        while len(batch) < most:
            link, ask = line.get()
            if link.fileno() >= 0:  # he is still there
                batch.append((link, ask))
        return batch
    s.go()
    while True:
        with s.during("demand"):
            batch = waiting()
        s.mark()
        s.train(gpu, np.frombuffer(b"".join(ask for _, ask in batch), np.uint8))
        for link, _ in batch:
            try:
                link.send(b"200")
            except OSError:
                pass


def rare_news(s):
    """Events that come one by one, with pauses of many steps."""
    pause, out = float(s.told("pause")) / 1e3, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    s.told("go")
    while True:
        time.sleep(s.random.expovariate(1 / pause))
        out.sendto(os.urandom(256), s.path("news"))


@job(outside=rare_news, data="main_thread_loading", demand="no_demand", rest="sync_bound launch_bound")
def idle_hands(s):
    """Nothing is to blame: an online learner to which an event comes seldom, as a datagram; before each step it looks
    whether there is one, without waiting, and learns from older events in its memory all the time."""
    ms, pause, many = s.ms("gpu_ms", 10, 35), s.ms("pause_steps", 5, 25), s.int("rows", 32, 256)
    s.tell("pause", ms * pause)
    gpu, chance, number = s.gpu(ms), np.random.default_rng(1), itertools.count()
    table, door = np.zeros((8192, 256), np.uint8), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    door.bind(s.path("news"))
    s.go()
    while True:
        with s.during("demand"):
            while select.select([door], [], [], 0)[0]:
                table[next(number) % len(table)] = np.frombuffer(door.recv(256), np.uint8)
        s.step(gpu, lambda: table[chance.integers(0, len(table), many)])


## Gatehouses
# changed_password: network_bound (or main_thread_loading). Hard: a server with a gate, yet requests are never lacking;
#   the store answers each question evenly, and only how many there are for a batch tells of the failed transactions.
# double_doorkeeper: the front process computes (one of the three). Hard: it serves both directions, and what it
#   computes for the last answer, which the loop itself sent, is what the next prompt waits for.
# buried_writs: the joining process computes. Hard: it has a socket from outside, which always has events, so that
#   neither the network nor a lack of demand is the reason.
# winding_stairs: page_fault_io of the child. Hard: a request comes from outside before each wait; the faults are
#   short and many, in a process that is asked by a packet.
# one_key_ring: network_bound, or the asyncio.Lock, which no system call shows. Hard: an event loop with many tasks
#   that sleeps in epoll_wait, on one socket of three; its other socket, the gate's, always has something to read.
# crowded_wicket: one worker computes, by the kernel's hash. Hard: its peers wait in the same call and do nothing, so
#   they look as if there were no work, and the busy one holds several connections of the loop.
# stammering_crier: host_bound. Hard: it is a server, whose request is read from a socket between step and step.
# turned_away: no_demand. Hard: the loop waits for an eventfd of its own child, which computes all the time, and looks
#   like a slow supplier; the demand is at that child's sockets.
# drowsy_sentry: no_demand. Hard: datagrams come and are read without pause, but most of them make no work.
# default_livery: balanced. Hard: threads wait for a far store all the time, and none of it holds up a step.
# rude_callers: balanced. Hard: connections come, break off and come again; it looks like a troubled server.
# idle_hands: balanced. Hard: a socket to which next to nothing comes is polled before each step.
