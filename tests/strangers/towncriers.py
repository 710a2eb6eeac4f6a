# SPDX-License-Identifier: BSD-2-Clause
"""Town criers: jobs that answer, speak and recite, as inference and generation systems are deployed."""
import asyncio
import collections
import concurrent.futures
import hashlib
import itertools
import mmap
import multiprocessing
import os
import pickle
import queue
import random
import select
import signal
import socket
import struct
import threading
import time

import numpy as np

from stranger import CPU, child, decode, job, mortal, parse

PAGE, MIB, BLOCK = 4096, 1 << 20, 16 << 10
ADAPTER = 8 * MIB


def once(f):
    """Seconds that f takes."""
    begin = time.monotonic()
    f()
    return time.monotonic() - begin


def took(f):
    """The same, once it is warm."""
    f()
    return once(f)


def device(s, ms):
    return s.gpu(ms, launches=s.int("launches", 8, 36))


def send_frame(link, body):
    link.sendall(struct.pack("<I", len(body)) + body)


def framed(stream):
    return stream.read(*struct.unpack("<I", stream.read(4)))


def core_input(link, depth, make=bytes):
    """What an engine's core has for its socket: a thread that reads frames, and a queue."""
    inbox, stream = queue.Queue(depth), link.makefile("rb")

    def read():
        while True:
            inbox.put(make(framed(stream)))
    threading.Thread(target=read, daemon=True).start()
    return inbox


# ---- requests are there, but not yet for the device


def sightseers(address, many):
    """Each has a picture described as soon as it has got the last one's description."""
    def ask():
        with socket.socket(socket.AF_UNIX) as link:
            link.connect(address)
            while True:
                link.sendall(b"p" * 64)
                if not link.recv(64):
                    return
    threads = [threading.Thread(target=ask) for _ in range(many)]
    for t in threads:
        t.start()
    threads[0].join()


def api_server(door, core, cost):
    """Makes a tensor of each request's picture, and passes it on to the engine's core."""
    waiting, numbers, tensor = {}, itertools.count(), bytes(96 << 10)

    async def serve():
        answers, out = await asyncio.open_unix_connection(sock=core)

        async def request(reader, writer):
            while len(await reader.read(64)):
                decode(cost)
                n = next(numbers)
                waiting[n] = asyncio.get_running_loop().create_future()
                out.write(struct.pack("<II", 4 + len(tensor), n) + tensor)
                await waiting[n]
                writer.write(b"a" * 32)
        server = await asyncio.start_unix_server(request, sock=door)
        async with server:
            while True:
                n, = struct.unpack("<I", await answers.readexactly(4))
                waiting.pop(n).set_result(None)
    asyncio.run(serve())


@job(data=CPU, rest="sync_bound launch_bound")
def illuminated_notices(s):
    """An engine's core behind an API server, with customers enough; to blame is the API server, whose one event loop
    itself decodes and resizes the picture of each request before the core gets it."""
    ms = s.ms("gpu_ms", 10, 30)
    cost, many = ms * s.ms("picture_share", 1.6, 2.8), s.int("customers", 5, 8)
    gpu, door = device(s, ms), socket.socket(socket.AF_UNIX)
    door.bind(s.path("api"))
    door.listen()
    mine, theirs = socket.socketpair()
    s.supplier(child(api_server, door, theirs, cost / 10 if s.fix else cost).pid)
    child(sightseers, s.path("api"), many)
    inbox = core_input(mine, 8)
    s.go()
    while True:
        s.mark()
        with s.during("data"):
            body = inbox.get()
        s.train(gpu, np.frombuffer(body, np.uint8, offset=4))
        mine.sendall(body[:4])


def petitioners(link, every):
    """Requests without end, most of them with a schema that is known."""
    for n in itertools.count(1):
        link.send({"prompt": [7] * 200, "schema": 0 if n % every else n})


def compiled(ask, cost, heavy):
    """A request's tokens, and the automaton of its schema."""
    decode(heavy if ask["schema"] else cost)
    return np.zeros(20000, np.int32)


@job(data="slow_item", rest="sync_bound launch_bound")
def unwonted_statutes(s):
    """Structured output: two threads have each request's grammar ready before it is admitted, first come, first
    served; to blame are the few requests with a schema never seen, whose long compilation those behind wait for."""
    ms, every = s.ms("gpu_ms", 10, 25), s.int("every", 7, 11)
    cost, heavy = ms * s.ms("known_share", 0.05, 0.25), ms * s.ms("compile_steps", 9, 14)
    gpu, (mine, theirs) = device(s, ms), multiprocessing.Pipe(duplex=False)
    child(petitioners, theirs, every)
    pool, due = concurrent.futures.ThreadPoolExecutor(2), collections.deque()

    def admit():
        while len(due) < 4:
            due.append(pool.submit(compiled, mine.recv(), cost, cost if s.fix else heavy))
        return due.popleft().result()
    admit()
    s.loop(gpu, admit)


def strips(path, tenant, many, keep):
    """Of each matrix of a tenant's adapter the part that this rank computes with."""
    stride = ADAPTER // PAGE // many * PAGE
    with open(path, "rb") as f:
        with mmap.mmap(f.fileno(), ADAPTER, mmap.MAP_SHARED, mmap.PROT_READ, offset=tenant * ADAPTER) as adapter:
            adapter.madvise(mmap.MADV_RANDOM)
            parts = b"".join(adapter[n * stride:n * stride + 256] for n in range(many))
        if not keep:
            os.posix_fadvise(f.fileno(), tenant * ADAPTER, ADAPTER, os.POSIX_FADV_DONTNEED)
    return parts


def wardrobe(link, free, ring, path, many, keep):
    """Lays out the adapter of who asks next in a slot of shared memory."""
    chance = random.Random(1)
    if keep:
        with open(path, "rb") as f:
            while f.read(MIB):
                pass
    for slot in itertools.cycle(range(len(ring))):
        free.acquire()
        ring[slot] = np.frombuffer(strips(path, chance.randrange(8), many, keep), np.uint8)
        link.send(bytes([slot]))


@job(data="page_fault_io", rest="sync_bound launch_bound")
def borrowed_robes(s):
    """A base model with an adapter for each of many tenants, who ask all the time; to blame is the process that lays
    the next one's adapter out: it slices it from a mapped file that memory does not hold, by a page fault a strip."""
    ms, share, path = s.ms("gpu_ms", 10, 30), s.ms("fault_share", 1.7, 2.8), s.data_file("borrowed_robes", 64)
    gpu = device(s, ms)
    each = took(lambda: [strips(path, n, 300, False) for n in (1, 2)]) / 600
    many = s.keep("strips", min(max(int(ms * share / 1e3 / each), 16), 2000))
    s.cold(path)
    ring = np.frombuffer(multiprocessing.RawArray("B", 2 * many * 256), np.uint8).reshape(2, -1)
    mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    free = multiprocessing.Semaphore(2)
    s.supplier(child(wardrobe, theirs, free, ring, path, many, s.fix).pid)

    def obtain():
        x = ring[mine.recv(1)[0]].copy()
        free.release()
        return x
    s.loop(gpu, obtain)


def block_store(s):
    """Has keys and values by the hash of a block and of all before it, in another building."""
    late = float(s.told("late")) / 1e3
    door = socket.create_server(("127.0.0.1", 0))
    s.tell("port", door.getsockname()[1])

    def serve(link):
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with link.makefile("rb") as asks:
            while head := asks.read(4):
                many, = struct.unpack("<I", head)
                asks.read(32 * many)
                time.sleep(late)
                link.sendall(bytes(BLOCK * many))
    while True:
        threading.Thread(target=serve, args=(door.accept()[0],), daemon=True).start()


def chain(n, blocks):
    """The hashes of a prompt's blocks."""
    key = b"prompt %d" % n
    for _ in range(blocks):
        key = hashlib.sha256(key).digest()
        yield key


def connector(link, out, blocks, at_once):
    """Gets what the store has of the next prompt."""
    answers = link.makefile("rb")
    for n in itertools.count():
        keys, found = list(chain(n, blocks)), []
        for some in [keys] if at_once else [[key] for key in keys]:
            link.sendall(struct.pack("<I", len(some)) + b"".join(some))
            found.append(answers.read(BLOCK * len(some)))
        out.put(np.frombuffer(b"".join(found), np.uint8))


@job(outside=block_store, data="network_bound", rest="sync_bound launch_bound")
def chained_summonses(s):
    """Prompts with long common beginnings, whose keys and values a connector's thread gets from a far store two ahead;
    to blame is how it asks: for a block only when the one before it has been found, at a round trip each."""
    ms, blocks = s.ms("gpu_ms", 12, 38), s.int("blocks", 6, 14)
    s.tell("late", ms * s.ms("late_share", 1.6, 2.8) / blocks)
    gpu, out = device(s, ms), queue.Queue(2)
    link = socket.create_connection(("127.0.0.1", int(s.told("port"))))
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    threading.Thread(target=connector, args=(link, out, blocks, s.fix), daemon=True).start()
    s.loop(gpu, out.get)


def picture_cache(asks, out):
    """An API server that has its pictures' tensors at hand."""
    while True:
        body = memoryview(pickle.dumps(np.zeros(asks.recv() // 4, np.float32)))
        out.sendall(struct.pack("<I", len(body)))
        for place in range(0, len(body), 8192):
            out.sendall(body[place:place + 8192])


def router(inward, onward):
    """Passes on what comes, to the only replica that there is."""
    while piece := inward.recv(8192):
        onward.sendall(piece)


@job(data="ipc_bound", rest="sync_bound launch_bound")
def painted_banners(s):
    """A vision model's engine, asked by an API server that has all pictures as tensors already; to blame is that each
    tensor is pickled and goes through two sockets and a router between, as both sides do not keep the same cache."""
    ms, share = s.ms("gpu_ms", 10, 20), s.ms("hand_over_share", 1.6, 2.6)
    gpu, (asks, asked) = device(s, ms), multiprocessing.Pipe()
    api, front = socket.socketpair()
    back, core = socket.socketpair()
    child(picture_cache, asked, api)
    child(router, front, back)
    inbox = core_input(core, 1, pickle.loads)

    def pass_on(size, many):
        for _ in range(many):
            asks.send(size)
        for _ in range(many):
            inbox.get()
    each = took(lambda: pass_on(MIB, 8)) / 8
    size = s.keep("bytes", min(max(int(MIB * ms * share / 1e3 / each), 64 << 10), 24 * MIB))
    kept, size = np.zeros(size // 4, np.float32), 64 if s.fix else size

    def obtain():
        asks.send(size)
        x = inbox.get()
        return kept if s.fix else x
    for _ in range(2):
        asks.send(size)
    s.loop(gpu, obtain)


# ---- what the engine does, or waits for, between two iterations


def shm_client(address, region, n, bell):
    """Puts its tensor into its region, says so, and waits for the answer."""
    link = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    link.connect(address)
    while True:
        region[:] = n
        link.send(bytes([n]))
        os.eventfd_read(bell)


@job(demand="no_demand", host="host_bound no_demand", rest="sync_bound launch_bound")
def waiting_quorum(s):
    """A model server whose few clients have tensors in shared memory and ask again at once; to blame is its dynamic
    batcher, which holds them back for max_queue_delay, as they are too few for the preferred batch size."""
    ms, clients, preferred = s.ms("gpu_ms", 10, 35), s.int("clients", 2, 4), s.one("preferred", 8, 16, 32)
    delay = ms * s.ms("delay_share", 0.7, 2) / 1e3
    delay, gpu = 0 if s.fix else delay, device(s, ms)
    regions = np.frombuffer(multiprocessing.RawArray("f", clients * 20000), np.float32).reshape(clients, -1)
    door, bells = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM), [os.eventfd(0) for _ in range(clients)]
    door.bind(s.path("requests"))
    for n, bell in enumerate(bells):
        child(shm_client, s.path("requests"), regions[n], n, bell)
    s.go()
    while True:
        s.mark()
        with s.during("demand"):
            asked = [door.recv(1)[0]]
        with s.during("host"):
            end = time.monotonic() + delay
            while len(asked) < preferred and select.select([door], [], [], max(end - time.monotonic(), 0))[0]:
                asked.append(door.recv(1)[0])
            batch = regions[asked]
        s.train(gpu, batch)
        for n in asked:
            os.eventfd_write(bells[n], 1)


def scanned(tokens, n):
    """What followed when the last n tokens came up the last time."""
    tail = tokens[-n:]
    for place in range(len(tokens) - n - 1, -1, -1):
        if tokens[place:place + n] == tail:
            return tokens[place + n:place + n + 4]
    return []


def indexed(tokens, n, index):
    """The same, from a table that is kept as the tokens come."""
    tail = tuple(tokens[-n:])
    place, index[tail] = index.get(tail), len(tokens)
    return tokens[place:place + 4] if place else []


@job(host="host_bound", rest="sync_bound launch_bound")
def echoed_phrases(s):
    """Speculative decoding without a draft model: guesses are what followed the same n-gram earlier in the text; to
    blame is the loop, which seeks it in Python through all the tokens of each sequence before each verification."""
    ms, length, n = s.ms("gpu_ms", 10, 35), s.int("prompt", 1500, 6000), s.int("n", 2, 4)
    share, chance, gpu = s.ms("search_share", 0.65, 2), np.random.default_rng(1), device(s, ms)
    some = chance.integers(0, 50000, length).tolist()
    each = took(lambda: [scanned(some, n) for _ in range(10)]) / 10
    many = s.keep("sequences", min(max(int(ms * share / 1e3 / each), 4), 512))
    texts = [chance.integers(0, 50000, length).tolist() for _ in range(many)]
    tables, ids = [{} for _ in texts], np.zeros((many, 5), np.int64)
    s.go()
    while True:
        s.mark()
        with s.during("host"):
            for row, (tokens, table) in enumerate(zip(texts, tables)):
                guess = indexed(tokens, n, table) if s.fix else scanned(tokens, n)
                ids[row, 1:1 + len(guess)] = guess
        s.train(gpu, ids)
        for tokens in texts:
            tokens.append(s.random.randrange(50000))
            if len(tokens) > length + 200:
                del tokens[length:]


def sweep(lock, ledger, cost, inside, pause):
    """Packs blocks that nobody has used for long for the host's memory, and notes where they are."""
    while True:
        if not inside:
            decode(cost)
        with lock:
            if inside:
                decode(cost)
            ledger.append(ledger.popleft())
        time.sleep(pause / 1e3)


@job(lock="lock_bound host_bound", rest="sync_bound launch_bound")
def swept_ledger(s):
    """Keys and values are offloaded to host memory by a thread, which packs them in C; to blame is the block table's
    lock, which it holds while it packs, and which the loop needs to give each sequence its next block."""
    ms = s.ms("gpu_ms", 10, 32)
    hold, pause = ms * s.ms("pack_share", 1.6, 2.8), ms * s.ms("pause_share", 0.1, 0.3)
    gpu, lock, ledger = device(s, ms), threading.Lock(), collections.deque(range(5000))
    sequences = np.zeros(s.int("sequences", 8, 64), np.int64)
    threading.Thread(target=sweep, args=(lock, ledger, hold, not s.fix, pause), daemon=True).start()
    s.go()
    while True:
        s.mark()
        with s.during("lock"):
            lock.acquire()
        for n in range(len(sequences)):
            sequences[n] = ledger[0]
            ledger.rotate(-1)
        lock.release()
        s.train(gpu, sequences)


def tokenize(out, cost):
    while True:
        parse(cost)
        out.put(np.zeros(8000, np.int64))


def evict(leaves, many, clock, by_age):
    """Makes room in the tree of prefixes: who was used last the longest ago has to go."""
    for _ in range(many):
        leaf = leaves[clock % len(leaves)] if by_age else min(leaves, key=lambda leaf: leaf["used"])
        leaf["used"] = clock = clock + 1
    return clock


@job(data=CPU, host="rank_straggler host_bound", peer="rank_straggler host_bound", rest="sync_bound launch_bound")
def two_heralds(s):
    """Two data-parallel ranks of an engine that have to step together for their experts' sake, and requests in time;
    to blame is the second one, whose customers' tree of prefixes is full: it evicts leaf by leaf, each by a min()."""
    ms, launches = s.ms("gpu_ms", 10, 35), s.int("launches", 8, 36)
    leaves = [{"used": n} for n in range(s.int("leaves", 800, 3000))]
    share, cost = s.ms("evict_share", 0.8, 2.2), ms * s.ms("tokenize_share", 0.05, 0.15)
    clock = evict(leaves, 10, len(leaves), False)
    each = once(lambda: evict(leaves, 20, clock, False)) / 20
    many = s.keep("evictions", max(int(ms * share / 1e3 / each), 4))
    meet, parent = multiprocessing.Barrier(2), os.getpid()
    for rank in range(2):
        if os.fork():
            continue
        mortal(parent, signal.SIGTERM)
        s.rank(rank)
        gpu, requests = s.gpu(ms, launches=launches), multiprocessing.Queue(maxsize=4)
        child(tokenize, requests, cost)
        s.told("go")
        while True:
            s.mark()
            with s.during("data"):
                x = requests.get()
            if rank == 1:
                with s.during("host"):
                    clock = evict(leaves, many, clock, s.fix)
            with s.during("peer"):
                meet.wait()
            s.train(gpu, x)
    s.go()
    signal.pause()


# ---- nobody asks


def listeners(s):
    """Calls that are played as they come, and ask for a piece when the last one has been heard."""
    piece, calls, port = float(s.told("piece")) / 1e3, int(s.told("calls")), int(s.told("port"))
    s.told("go")

    def hear(n):
        link = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        link.connect(("127.0.0.1", port))
        link.settimeout(2)
        time.sleep(piece * n / calls)
        due = time.monotonic()
        while True:
            link.send(b"more")
            try:
                link.recv(1 << 16)
            except TimeoutError:
                continue
            due += piece
            time.sleep(max(due - time.monotonic(), 0))
    threads = [threading.Thread(target=hear, args=(n,)) for n in range(calls)]
    for t in threads:
        t.start()
    threads[0].join()


@job(outside=listeners, demand="no_demand", rest="sync_bound launch_bound")
def unhurried_listeners(s):
    """Speech is synthesised piece by piece for a few calls, over UDP; nobody is to blame that the device idles: it is
    faster than people talk, and a call asks for its next piece when the last one has been played."""
    ms, calls = s.ms("gpu_ms", 10, 38), s.int("calls", 3, 6)
    piece = ms * calls * s.ms("piece_share", 1.6, 2.8)
    gpu, door = device(s, ms), socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    door.bind(("127.0.0.1", 0))
    s.tell("piece", 0 if s.fix else piece)
    s.tell("calls", calls)
    s.tell("port", door.getsockname()[1])
    codes, sound = np.zeros(2000, np.int64), bytes(s.int("kib", 4, 40) << 10)
    s.go()
    while True:
        s.mark()
        with s.during("demand"):
            _, call = door.recvfrom(16)
        s.train(gpu, codes)
        door.sendto(sound, call)


# ---- nothing is wrong


def prompter(link, cost):
    while True:
        parse(cost)
        send_frame(link, bytes(16000))


def detokenize(link, cost):
    """Turns the answers so far into text, and takes its time."""
    stream = link.makefile("rb")
    while framed(stream):
        parse(cost)


@job(data=CPU, rest="sync_bound launch_bound")
def hoarse_herald(s):
    """Nothing is to blame: an engine's detokenizer is slower than the engine and never rests, but the thread before
    it sends only the newest state of the answers and drops what is older; a process has prompts in time."""
    ms = s.ms("gpu_ms", 20, 70)
    gpu, (mine, theirs), (out, far) = device(s, ms), socket.socketpair(), socket.socketpair()
    child(prompter, theirs, ms * s.ms("tokenize_share", 0.1, 0.4))
    child(detokenize, far, ms * s.ms("detokenize_share", 1.3, 3))
    inbox, newest, bell = core_input(mine, 4), collections.deque(maxlen=1), threading.Event()

    def cry():
        while True:
            bell.wait()
            bell.clear()
            send_frame(out, newest[-1])
    threading.Thread(target=cry, daemon=True).start()
    answers = bytes(s.int("kib", 4, 32) << 10)
    s.go()
    while True:
        s.mark()
        with s.during("data"):
            x = np.frombuffer(inbox.get(), np.uint8)
        s.train(gpu, x)
        newest.append(answers)
        bell.set()


def orators(link, think):
    """Asks at leisure, when the last answer is complete."""
    while True:
        send_frame(link, b"tell me something " * 20)
        link.recv(16)
        time.sleep(think)


@job(rest="sync_bound launch_bound")
def long_speeches(s):
    """Nothing is to blame: an engine's few customers seldom ask, so that its sockets and their threads sleep nearly
    all the time, but their answers are long, one has a whole book written, and the device always has a token to do."""
    ms, length = s.ms("gpu_ms", 14, 60), s.int("tokens", 30, 90)
    gpu, arrived, customers = device(s, ms), queue.Queue(), []

    def listen(n, stream):
        while True:
            arrived.put((n, framed(stream)))
    for n in range(s.int("customers", 2, 4)):
        mine, theirs = socket.socketpair()
        child(orators, theirs, s.ms("think_s_%d" % n, 0.5, 3))
        customers.append(mine)
    for n, link in enumerate(customers):
        threading.Thread(target=listen, args=(n, link.makefile("rb")), daemon=True).start()
    running, book = {}, np.zeros(4000, np.int64)
    s.go()
    while True:
        s.mark()
        while not arrived.empty():
            n, prompt = arrived.get()
            running[n] = length
            gpu.upload(np.frombuffer(prompt, np.uint8).ctypes.data, len(prompt))
        s.train(gpu, book)
        for n in list(running):
            running[n] -= 1
            if not running[n]:
                customers[n].sendall(b"end")
                del running[n]
