# SPDX-License-Identifier: BSD-2-Clause
"""Signwriters' jobs: the loaders of today's systems, remade small, each with the hand-over that it really has."""
import collections
import concurrent.futures
import contextlib
import http.client
import http.server
import itertools
import mmap
import multiprocessing
import multiprocessing.connection
import operator
import os
import queue
import random
import re
import socket
import struct
import threading
import time
import zlib

import numpy as np

from stranger import CPU, child, decode, job, parse

PAGE = 4096


def once(f):
    """Seconds that f takes."""
    begin = time.monotonic()
    f()
    return time.monotonic() - begin


def took(f):
    """The same, once it is warm."""
    f()
    return once(f)


def shared_rows(rows, size):
    """Rows of floats in memory that is shared with children."""
    return np.frombuffer(multiprocessing.RawArray("f", rows * size), np.float32).reshape(rows, size)


# ---- the data is late


ROW = 8192


def shops(s):
    """Two nodes of a key-value store, far away; all that the first one had has moved to the second."""
    late = float(s.told("late")) / 1e3
    doors = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
    old, new = (door.getsockname()[1] for door in doors)

    def serve(link, answer):
        with link:
            link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            time.sleep(late)
            link.sendall(b"+")  # it has seen the password
            while link.recv(8, socket.MSG_WAITALL):
                time.sleep(late)
                link.sendall(answer)

    def attend(door, answer):
        while True:
            threading.Thread(target=serve, args=(door.accept()[0], answer), daemon=True).start()
    threading.Thread(target=attend, args=(doors[0], b"-" + struct.pack("<H", new)), daemon=True).start()
    s.tell("ports", "%d %d" % (old, new))
    attend(doors[1], b"$" + bytes(ROW))


def connected(port):
    link = socket.create_connection(("127.0.0.1", port))
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    link.recv(1)
    return link


def asked(link, key):
    link.sendall(struct.pack("<Q", key))
    kind = link.recv(1)
    return kind, link.recv(2 if kind == b"-" else ROW, socket.MSG_WAITALL)


def enquire(out, port, many):
    """A client that follows a MOVED, but does not remember it."""
    home, keys = connected(port), itertools.count()
    while True:
        rows = []
        for key in itertools.islice(keys, many):
            kind, row = asked(home, key)
            if kind == b"-":
                with connected(*struct.unpack("<H", row)) as link:
                    _, row = asked(link, key)
            rows.append(row)
        out.put(np.frombuffer(b"".join(rows), np.uint8))


@job(outside=shops, data="network_bound", rest="sync_bound launch_bound")
def moved_shops(s):
    """A feature store as a Redis cluster is one, asked key by key by a process; to blame is its old map of slots, as
    the far node that it names answers MOVED, and for each key a connection is opened to the one that has it."""
    ms, many = s.ms("gpu_ms", 8, 40), s.int("keys", 4, 10)
    s.tell("late", ms * s.ms("ask_share", 1.6, 2.6) / many / 3)  # to be sent away, to be let in, to be answered
    gpu, out = s.gpu(ms), multiprocessing.Queue(maxsize=3)
    old, new = map(int, s.told("ports").split())
    s.supplier(child(enquire, out, new if s.fix else old, many).pid)
    s.loop(gpu, out.get)


GROUP = 4 * PAGE


def heads(table, groups):
    """The level of each row group, which is the first byte of its header."""
    return np.frombuffer(table, np.uint8)[groups * GROUP]


def prick(link, path, many, cost, footer):
    """Seeks row groups of the level that is learnt now, and has a pool decode them; keeps no page of the file."""
    pool, chance, level = concurrent.futures.ThreadPoolExecutor(2), np.random.default_rng(1), 100  # of 256
    with open(path, "rb") as f:
        table = mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ)
        table.madvise(mmap.MADV_RANDOM)

        def decoded(group):
            decode(cost)
            return np.frombuffer(table, np.uint8, GROUP, group * GROUP).astype(np.float32)
        while True:
            groups = chance.permutation(len(table) // GROUP)[:many]
            levels = heads(table, groups) if footer is None else footer[groups]
            link.send(np.concatenate(list(pool.map(decoded, groups[levels > level][:2]))))
            table.madvise(mmap.MADV_DONTNEED)
            os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


@job(data="page_fault_io", rest="sync_bound launch_bound")
def pounce_holes(s):
    """A process maps a columnar file and filters its row groups by level, of which a pool decodes two; to blame is that
    a group's statistics are in its own header and not in the footer: each that is looked at is a page from the disk."""
    ms, share = s.ms("gpu_ms", 8, 25), s.ms("filter_share", 1.7, 3)
    path, gpu = s.data_file("pounce_holes", 64), s.gpu(ms)
    with open(path, "rb") as f, mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ) as table:
        table.madvise(mmap.MADV_RANDOM)
        groups = np.arange(len(table) // GROUP)
        some = np.random.default_rng(2).permutation(groups)[:300]
        each = once(lambda: heads(table, some)) / len(some)
        footer = heads(table, groups) if s.fix else None
    many = s.keep("groups", min(max(int(ms * share / 1e3 / each), 32), len(groups)))
    s.cold(path)
    mine, theirs = multiprocessing.Pipe(duplex=False)
    s.supplier(child(prick, theirs, path, many, ms * s.ms("decode_share", 0.05, 0.2), footer).pid)
    s.loop(gpu, mine.recv)


class Racks(queue.Queue):
    """Texts go in one by one, and batches of texts of about the same length come out."""

    def __init__(self, many, collate):
        super().__init__(maxsize=3)
        self.many, self.collate = many, collate

    def _init(self, maxsize):
        self.racks, self.ready = collections.defaultdict(list), collections.deque()

    def _qsize(self):
        return len(self.ready)

    def _put(self, text):
        length = len(text) // 600
        self.racks[length].append(text)
        if len(self.racks[length]) == self.many:
            self.ready.append(self.collate(self.racks.pop(length)))

    def _get(self):
        return self.ready.popleft()


@job(data="lock_bound", rest="sync_bound launch_bound")
def lettering_racks(s):
    """Three threads bring texts into buckets by length, made as a subclass of queue.Queue; to blame is that _put()
    collates a bucket that is full: it has the queue's mutex all that time, for which all other threads wait."""
    ms, many = s.ms("gpu_ms", 8, 40), s.int("batch", 8, 16)
    cost, text_cost = ms * s.ms("collate_share", 1.5, 2.4), ms * s.ms("text_share", 0.05, 0.2) / many
    tokens, gpu = np.ones(2400, np.float32), s.gpu(ms)

    def collate(texts):
        decode(cost / 2 if s.fix else cost)
        x = np.zeros((len(texts), max(map(len, texts))), np.float32)
        for row, text in zip(x, texts):
            row[:len(text)] = text
        return x
    racks, out = Racks(many, list if s.fix else collate), queue.Queue(3)

    def bring(n):
        chance = random.Random(n)
        while True:
            decode(text_cost)
            racks.put(tokens[:chance.randrange(1200, 2400)])

    def collates():
        while True:
            out.put(collate(racks.get()))
    for n in range(3):
        threading.Thread(target=bring, args=(n,), daemon=True).start()
    for _ in range(2 if s.fix else 0):
        threading.Thread(target=collates, daemon=True).start()
    s.loop(gpu, out.get if s.fix else racks.get)


def hand_out(links, every):
    """Reads encoded pictures, of which a few are progressive, and deals them out."""
    baseline, progressive = (bytes([coats]) * (16 << 10) for coats in (0, 1))
    for n, link in zip(itertools.count(1), itertools.cycle(links)):
        link.send_bytes(baseline if n % every else progressive)


def paint(link, slots, free, full, cost, progressive):
    for slot in itertools.cycle(slots):
        picture = link.recv_bytes()
        decode(progressive if picture[0] else cost)
        free.acquire()
        slot[:] = picture[0]
        full.release()


@job(data="slow_item", rest="sync_bound launch_bound")
def many_coats(s):
    """As in DALI, a reader feeds two decoders, processes with two slots of shared memory each, and pictures keep their
    order; to blame are a few pictures that are progressive, and are gone through again for each of their scans."""
    ms, every = s.ms("gpu_ms", 8, 25), s.one("every", 7, 9, 11)
    cost, progressive = ms * s.ms("load_share", 0.1, 0.4), ms * s.ms("scans_steps", 9, 14)
    gpu, decoders, links = s.gpu(ms), [], []
    for _ in range(2):
        mine, theirs = multiprocessing.Pipe(duplex=False)
        slots, free, full = shared_rows(2, 50000), multiprocessing.Semaphore(2), multiprocessing.Semaphore(0)
        child(paint, mine, slots, free, full, cost, cost if s.fix else progressive)
        links.append(theirs)
        decoders.append((itertools.cycle(slots), free, full))
    child(hand_out, links, every)
    turn = itertools.cycle(decoders)

    def obtain():
        slots, free, full = next(turn)
        full.acquire()
        x = next(slots).copy()
        free.release()
        return x
    s.loop(gpu, obtain)


class Strips(http.server.BaseHTTPRequestHandler):
    """Streams rows that are in memory: /rows/N has a chunk for each of them, /whole/N one for all."""
    protocol_version, disable_nagle_algorithm, wbufsize = "HTTP/1.1", True, 1 << 16
    row = bytes(256)

    def do_GET(self):
        _, way, many = self.path.split("/")
        chunks = [self.row * int(many)] if way == "whole" else itertools.repeat(self.row, int(many))
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for chunk in chunks:
            self.wfile.write(b"%x\r\n%b\r\n" % (len(chunk), chunk))
        self.wfile.write(b"0\r\n\r\n")

    def log_message(self, *_):
        pass


@job(data="ipc_bound main_thread_loading", rest="sync_bound launch_bound")
def paper_strips(s):
    """A table server on this machine has all rows in memory, and streams a batch that is asked for one step ahead; to
    blame is a generator of rows, for which each is a chunk of the answer that http.client reads in the loop."""
    ms, share = s.ms("gpu_ms", 8, 25), s.ms("stream_share", 0.6, 1.6)
    server = http.server.HTTPServer(("127.0.0.1", 0), Strips)
    link, gpu = http.client.HTTPConnection("127.0.0.1", server.server_address[1]), s.gpu(ms)
    child(server.serve_forever)
    server.server_close()

    def ask(way, rows):
        link.request("GET", "/%s/%d" % (way, rows))

    def take():
        return np.frombuffer(link.getresponse().read(), np.uint8)
    each = took(lambda: (ask("rows", 2000), take())) / 2000
    way, rows = "whole" if s.fix else "rows", s.keep("rows", min(max(int(ms * share / 1e3 / each), 100), 16000))

    def obtain():
        x = take()
        ask(way, rows)
        return x
    ask(way, rows)
    s.loop(gpu, obtain)


RULES = [r"(?<=\w)(?:n't|'ll|ing|ed)%d(?=\s|[.,;]|$)" % n for n in range(700)]  # re keeps 512 of them
TEXT = "a board over a shop has to be read from the far side of the street, by somebody who passes. " * 3


def spell(link, rules, many):
    """A sidecar, which splits words by the rules of a text's language before it looks them up."""
    rules = itertools.cycle(rules)
    while True:
        texts = link.recv()
        x = np.zeros((len(texts), 1500), np.float32)
        for row, text in zip(x, texts):
            for rule in itertools.islice(rules, many):
                text = re.sub(rule, " #", text)
            row[:len(text)] = np.frombuffer(text.encode(), np.uint8)
        link.send(x)


@job(data=CPU, rest="sync_bound launch_bound")
def spelling_rules(s):
    """A thread has texts tokenised by a sidecar process, a batch at a time and two ahead; to blame is that the sidecar
    has more rules than re keeps compiled: re.sub() is given them as strings, and compiles each of them anew."""
    ms, batch = s.ms("gpu_ms", 8, 40), s.int("batch", 14, 24)
    each = once(lambda: [re.sub(rule, " #", TEXT) for rule in RULES[:100]]) / 100
    many = s.keep("rules", max(round(ms * s.ms("spell_share", 1.5, 2.6) / 1e3 / each / batch), 1))
    rules = [re.compile(rule) for rule in RULES] if s.fix else RULES
    mine, theirs = multiprocessing.Pipe()
    gpu, out = s.gpu(ms), queue.Queue(2)
    s.supplier(child(spell, theirs, rules, many).pid)

    def dictate():
        while True:
            mine.send([TEXT] * batch)
            out.put(mine.recv())
    threading.Thread(target=dictate, daemon=True).start()
    s.loop(gpu, out.get)


LAYERS = 6


def draw_keys(link, many):
    """The sampler."""
    chance = random.Random(1)
    while True:
        link.send([chance.randrange(10**9) for _ in range(many)])


def scrape(fd, pages, key, layers):
    """Looks for a key in one sorted run after the other; where it would be there is told by a hash."""
    for layer in layers:
        place = layer * pages + zlib.crc32(b"%d" % key, layer) % pages
        record = os.pread(fd, 1024, place * PAGE)
    return record


def restore(keys, out, path, filtered):
    """Reads what the sampler asks for; all keys have sunk to the last run by now. Nothing stays in memory."""
    fd, pages = os.open(path, os.O_RDONLY), os.path.getsize(path) // PAGE // LAYERS
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
    layers = range(LAYERS - 1 if filtered else 0, LAYERS)
    while True:
        records = [scrape(fd, pages, key, layers) for key in keys.recv()]
        out.put(np.frombuffer(b"".join(records), np.uint8).astype(np.float32))
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)


@job(data="io_bound", rest="sync_bound launch_bound")
def paint_layers(s):
    """A sampler process hands keys to another, which gets them out of a store of sorted runs, as an LSM tree is one; to
    blame are the reads from the disk, a page of each run for each key, as the store was built without filters."""
    ms, share = s.ms("gpu_ms", 8, 25), s.ms("read_share", 1.7, 3)
    path, gpu = s.data_file("paint_layers", 64), s.gpu(ms)
    fd = os.open(path, os.O_RDONLY)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
    pages = os.path.getsize(path) // PAGE // LAYERS
    each = once(lambda: [scrape(fd, pages, key, range(LAYERS)) for key in range(60)]) / 60
    os.close(fd)
    many = s.keep("keys", min(max(int(ms * share / 1e3 / each), 4), 600))
    s.cold(path)
    (keys, drawn), out = multiprocessing.Pipe(duplex=False), multiprocessing.Queue(maxsize=3)
    child(draw_keys, drawn, many)
    s.supplier(child(restore, keys, out, path, s.fix).pid)
    s.loop(gpu, out.get)


# ---- not for data


def graph(out, seconds, cost):
    """A source, a parallel map and a batch, with bounded buffers between them; tells what each stage takes."""
    read, mapped = queue.Queue(4), queue.Queue(4)

    def source():
        for n in itertools.count():
            read.put(n)

    def work():
        while True:
            n = read.get()
            seconds[1] = once(lambda: decode(cost))
            mapped.put(np.full(20000, n, np.float32))
    for stage in (source, work, work):
        threading.Thread(target=stage, daemon=True).start()
    while True:
        x = mapped.get()
        seconds[2] = once(lambda: out.send(x))


def planned(seconds, threads):
    """How many threads each stage should have: all ways to give them out are tried."""
    ways = itertools.product(range(1, threads + 1), repeat=len(seconds))
    return min(ways, key=lambda way: (max(map(operator.truediv, seconds, way)), sum(way)))


@job(data=CPU, host="host_bound", rest="sync_bound launch_bound")
def scaffold_plan(s):
    """A graph as of tf.data in a process, which is in time; to blame is the loop's own tuner for it, a callback that
    after each step or few tries all numbers of threads for all sizes of the buffers, in Python."""
    ms, every = s.ms("gpu_ms", 8, 40), s.int("every", 1, 3)
    (mine, theirs), seconds = multiprocessing.Pipe(), multiprocessing.RawArray("d", [1e-3] * 3)
    gpu, tuned = s.gpu(ms), {}
    child(graph, theirs, seconds, ms * s.ms("load_share", 0.1, 0.4))
    each = took(lambda: planned(list(seconds), 6))
    sizes = s.keep("sizes", max(round(ms * every * s.ms("plan_share", 0.5, 1.3) / 1e3 / each), 1))
    s.go()
    for n in itertools.count(1):
        s.step(gpu, mine.recv)
        if n % every == 0 and not s.fix:
            with s.during("host"):
                for size in range(1, sizes + 1):
                    tuned[size] = planned([stage + 1e-5 / size for stage in seconds], 6)


# ---- nothing is wrong


def shelf(links, places):
    """The store's daemon: gives out places, and tells where an object lies when it is sealed."""
    free, place_of, numbers = list(range(places)), {}, itertools.count()
    makers, wanted, sealed = collections.deque(), {}, set()
    while True:
        for link in multiprocessing.connection.wait(links):
            verb, n = link.recv()
            if verb == "create":
                makers.append(link)
            elif verb == "seal":
                sealed.add(n)
            elif verb == "get":
                wanted[n] = link
            else:
                sealed.remove(n)
                free.append(place_of.pop(n))
        while free and makers:
            n = next(numbers)
            place_of[n] = free.pop()
            makers.popleft().send((n, place_of[n]))
        for n in sealed & wanted.keys():
            wanted.pop(n).send((n, place_of[n]))


def enamel(link, arena, cost, thick):
    while True:
        link.send(("create", None))
        n, place = link.recv()
        decode(thick if n % 10 == 9 else cost)
        arena[place] = n
        link.send(("seal", n))


@job(data=CPU, rest="sync_bound launch_bound")
def enamel_shelf(s):
    """Nothing is to blame: two makers create objects in shared memory and seal them, as in plasma; its daemon has them
    wait for a place most of the time, and each tenth object takes some steps, but sealed ones lie ahead of it."""
    ms, places = s.ms("gpu_ms", 16, 40), s.int("places", 7, 9)
    cost, thick = 2 * ms * s.ms("load_share", 0.25, 0.5), ms * s.ms("thick_steps", 2, 3)
    arena, gpu = shared_rows(places, 50000), s.gpu(ms)
    (mine, theirs), *pipes = (multiprocessing.Pipe() for _ in range(3))
    child(shelf, [theirs] + [end for _, end in pipes], places)
    for maker, _ in pipes:
        child(enamel, maker, arena, cost, cost if s.fix else thick)

    def obtain():
        n, place = mine.recv()
        x = arena[place].copy()
        mine.send(("release", n))
        mine.send(("get", n + 1))
        return x
    mine.send(("get", 0))
    s.loop(gpu, obtain)


CUSTOMERS = 4


def customers(s):
    """They send a text each now and then, and wait for its embedding."""
    rate = float(s.told("rate")) / CUSTOMERS
    s.told("open")
    s.told("go")

    def order(n):
        chance = random.Random(n)
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as link:
            link.connect(s.path("counter"))
            while True:
                time.sleep(chance.expovariate(rate))
                link.send(bytes(chance.randint(400, 4000)))
                link.recv(1)
    threads = [threading.Thread(target=order, args=(n,), daemon=True) for n in range(CUSTOMERS)]
    for thread in threads:
        thread.start()
    threads[0].join()


def counter(door, loop, room, patience):
    """Packs tokenised texts into fixed blocks: one leaves when the next text has no room, or after a while."""
    links, block, owners, due = {}, [], [], None

    def leave():
        nonlocal due
        x, tokens = np.zeros(room, np.float32), np.concatenate(block)
        x[:len(tokens)] = tokens
        loop.send((owners[:], x))
        block.clear()
        owners.clear()
        due = None
    while True:
        left = None if due is None else max(due - time.monotonic(), 0)
        for ready in multiprocessing.connection.wait([door, loop, *links.values()], left):
            if ready is door:
                link, _ = door.accept()
                links[link.fileno()] = link
            elif ready is loop:
                for owner in loop.recv():
                    with contextlib.suppress(KeyError, OSError):  # it may have gone
                        links[owner].send(b"k")
            elif text := ready.recv(room):
                if sum(map(len, block)) + len(text) > room:
                    leave()
                parse(0.3)
                block.append(np.frombuffer(text, np.uint8))
                owners.append(ready.fileno())
                due = due or time.monotonic() + patience
            else:
                links.pop(ready.fileno()).close()
        if due and time.monotonic() >= due:
            leave()


@job(outside=customers, demand="no_demand", host="host_bound", rest="sync_bound launch_bound")
def walk_in_orders(s):
    """An embedding service: a front process packs customers' texts into blocks of tokens, lets a block wait a little
    for more of them, and sends the answers out; nobody is to blame that few texts come."""
    ms, launches, rate = s.ms("gpu_ms", 12, 35), s.int("launches", 10, 100), s.ms("rate", 6, 14)
    s.tell("rate", 1e4 if s.fix else rate)
    door = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    door.bind(s.path("counter"))
    door.listen()
    mine, theirs = multiprocessing.Pipe()
    gpu = s.gpu(ms, launches=launches)
    child(counter, door, theirs, 20000, s.ms("patience_ms", 1, 4) / 1e3)
    s.tell("open", "")
    s.go()
    while True:
        s.mark()
        with s.during("demand"):
            owners, x = mine.recv()
        gpu.upload(x.ctypes.data, x.nbytes)
        gpu.launch(0, launches)
        gpu.loss_item()
        with s.during("host"):
            mine.send(owners)
