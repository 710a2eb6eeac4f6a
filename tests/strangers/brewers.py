# SPDX-License-Identifier: BSD-2-Clause
"""At the brewers': services that answer, and batches that are scored, by ten ways from who asks to the device."""
import collections
import concurrent.futures
import contextlib
import ctypes
import functools
import http.client
import http.server
import itertools
import json
import mmap
import multiprocessing
import os
import queue
import random
import socket
import struct
import threading
import time
import zlib

import numpy as np

from stranger import CPU, child, decode, job, parse

PAGE, MIB, PACKET = 4096, 1 << 20, 1 << 16
FUTEX, FUTEX_WAIT, FUTEX_WAKE = {"x86_64": 202, "aarch64": 98}.get(os.uname().machine), 0, 1
LIBC = ctypes.CDLL(None)


def once(f):
    """Seconds that f takes."""
    begin = time.monotonic()
    f()
    return time.monotonic() - begin


def took(f):
    """The same, once it is warm."""
    f()
    return once(f)


def packets():
    """Two ends of a socket that keeps messages apart."""
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


class Web(http.server.BaseHTTPRequestHandler):
    """Keeps connections, and no log."""
    protocol_version, disable_nagle_algorithm = "HTTP/1.1", True

    def answer(self, status, body=b""):
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


# ---- the input is late


def deal(links):
    """Has prompts without end, and deals them out by turns."""
    chance = random.Random(1)
    for link in itertools.cycle(links):
        link.send(chance.randbytes(chance.randint(1000, 4000)))


def tokenize(prompts, tokens, work, cost):
    """Takes a share of the prompts, and sends their ids to the engine."""
    while prompt := prompts.recv(PACKET):
        work(cost)
        tokens.send(np.frombuffer(prompt, np.uint8).astype(np.int32))


@job(data="slow_worker", rest="sync_bound launch_bound")
def cold_kettle(s):
    """Continuous batching of prompts with short answers, which a front process deals out to a pool of tokenizers, and
    which are admitted first come, first served; to blame is the one tokenizer whose image lacks the compiled library,
    and that does in Python what the others do in C, so that all wait for its prompts."""
    ms, tokens, seats = s.ms("gpu_ms", 8, 15), s.int("tokens", 2, 3), s.int("seats", 8, 16)
    pool = s.int("tokenizers", 2, 3)
    odd, slow = s.int("odd", 0, pool - 1), ms * tokens * s.ms("slow_share", 1.7, 2.8)
    gpu, dealt, links = s.gpu(ms), [], []
    for n in range(pool):
        prompts, theirs = packets()
        mine, ids = packets()
        lame = n == odd and not s.fix
        pid = child(tokenize, theirs, ids, parse if lame else decode, slow if lame else slow * 0.1).pid
        dealt.append(prompts)
        links.append(mine)
        if n == odd:
            s.supplier(pid)
    child(deal, dealt)
    turn, running = 0, []

    def admit(flags=0):
        nonlocal turn
        ids = np.frombuffer(links[turn].recv(PACKET, flags), np.int32)
        turn = (turn + 1) % pool
        return ids
    s.go()
    while True:
        s.mark()
        fresh = []
        if not running:
            with s.during("data"):
                fresh.append(admit())
        with contextlib.suppress(BlockingIOError):
            while len(running) + len(fresh) < seats:
                fresh.append(admit(socket.MSG_DONTWAIT))
        s.train(gpu, np.concatenate(fresh) if fresh else None)
        running = [left - 1 for left in running + [tokens] * len(fresh) if left > 1]


def text_of(path, sectors, keep):
    """A document's text, as old word processors keep it: each sector tells where the next one is."""
    fd, sector, pieces = os.open(path, os.O_RDONLY), 0, []
    for _ in range(sectors):
        piece = os.pread(fd, PAGE, sector * PAGE)
        pieces.append(piece[:100])
        sector = int.from_bytes(piece[:4], "little") % (MIB // PAGE)
    if not keep:
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(fd)
    return b"".join(pieces)


def walk(names, folder):
    """Names all files of a folder, again and again, as find does."""
    with open(names, "w", encoding="utf-8") as out:
        while True:
            with os.scandir(folder) as entries:
                out.writelines(entry.path + "\n" for entry in entries)


def extract(names, texts, sectors, keep):
    with open(names, encoding="utf-8") as lines:
        for line in lines:
            os.write(texts, text_of(line.rstrip("\n"), sectors, keep))


@job(data="io_bound", rest="sync_bound launch_bound")
def barley_letters(s):
    """An archive of letters is embedded, as by `find | catdoc | embed`: one process walks through the folder, the next
    opens file after file and writes its text into the loop's pipe; to blame is the disk, as no file is in memory, and
    a text lies all over its file, in a chain of sectors that are read one by one."""
    ms, share, sectors = s.ms("gpu_ms", 8, 25), s.ms("read_share", 1.6, 2.8), s.int("sectors", 4, 8)
    paths, gpu = [s.data_file("barley_letters/%02d.doc" % n, 1) for n in range(48)], s.gpu(ms)
    each = took(lambda: [text_of(path, sectors, False) for path in paths]) / len(paths)
    many = s.keep("letters", min(max(int(ms * share / 1e3 / each), 4), 1000))
    for path in paths if s.fix else ():
        with open(path, "rb") as f:
            f.read()
    (names, named), (texts, written) = os.pipe(), os.pipe()
    child(walk, named, os.path.dirname(paths[0]))
    s.supplier(child(extract, names, written, sectors, s.fix).pid)
    for end in names, named, written:
        os.close(end)
    stream, x = os.fdopen(texts, "rb"), np.zeros(many * sectors * 100, np.uint8)

    def obtain():
        stream.readinto(x)
        return x.astype(np.float32)
    s.loop(gpu, obtain)


def column(chunk):
    """The values of a column chunk, which are kept as differences and packed."""
    return np.cumsum(np.frombuffer(zlib.decompress(chunk), np.int16), dtype=np.float32)


def write_table(path, chunk, columns, groups):
    """Returns, for each row group, where the column chunks begin."""
    with open(path, "wb") as f:
        places = []
        for _ in range(groups):
            places.append([])
            for _ in range(columns):
                places[-1].append(f.tell())
                f.write(chunk)
    return places


def scan(link, credit, path, places, size, needed, read):
    """Opens the columns to be read of one row group after the other, and hands on those that are needed."""
    fd = os.open(path, os.O_RDONLY)
    for group in itertools.cycle(places):
        credit.acquire()
        table = {n: column(os.pread(fd, size, group[n])) for n in read}
        memory = os.memfd_create("rows")
        os.write(memory, np.stack([table[n] for n in needed]))
        socket.send_fds(link, [b"r"], [memory])
        os.close(memory)


@job(data=CPU, rest="sync_bound launch_bound")
def lauter_columns(s):
    """All customers are scored from a wide columnar file in the page cache, which a process scans row group by row
    group, ahead of the loop, to which it hands memfds; to blame is a reader without `columns=`, so that the process
    inflates and decodes each column of the table, for the sake of a few that the model needs."""
    ms, share, needed = s.ms("gpu_ms", 8, 30), s.ms("scan_share", 1.6, 2.8), s.int("needed", 3, 6)
    gpu, chunk = s.gpu(ms), zlib.compress(np.random.default_rng(1).integers(-20, 20, 32768, np.int16).tobytes())
    columns = int(ms * share / 1e3 / took(lambda: [column(chunk) for _ in range(10)]) * 10)
    columns = s.keep("columns", min(max(columns, 12), 800))
    wanted, path = s.random.sample(range(columns), needed), s.path("customers")
    places, (mine, theirs), credit = write_table(path, chunk, columns, 4), packets(), multiprocessing.Semaphore(3)
    read = wanted if s.fix else range(columns)
    s.supplier(child(scan, theirs, credit, path, places, len(chunk), wanted, read).pid)

    def obtain():
        _, (memory,), _, _ = socket.recv_fds(mine, 1, 1)
        x = np.frombuffer(mmap.mmap(memory, 0), np.float32)
        os.close(memory)
        credit.release()
        return x
    s.loop(gpu, obtain)


class Ring:
    """Slots in shared memory for one who fills and one who empties; each waits for the other's count by a futex."""
    FILLED, EMPTIED = range(2)

    def __init__(self, slots, floats):
        self.slots = np.frombuffer(mmap.mmap(-1, 4 * slots * floats), np.float32).reshape(slots, floats)
        self.counts = np.frombuffer(mmap.mmap(-1, PAGE), np.uint32)

    def futex(self, which, operation, value):
        place = ctypes.c_void_p(self.counts.ctypes.data + 4 * which)
        LIBC.syscall(ctypes.c_long(FUTEX), place, operation, value, None, None, 0)

    def past(self, which, value):
        """Waits until the count is no longer this one."""
        while self.counts[which] == value:
            self.futex(which, FUTEX_WAIT, value)

    def add(self, which):
        self.counts[which] += 1
        self.futex(which, FUTEX_WAKE, 1)


def decode_film(ring, cost, cut, every):
    """Decodes into slot after slot; where a new shot begins, no picture can refer to the last one."""
    slots = len(ring.slots)
    for n in itertools.count():
        ring.past(Ring.EMPTIED, n - slots)
        decode(cut if n % every == every - 1 else cost)
        ring.slots[n % slots] = n
        ring.add(Ring.FILLED)


@job(data="slow_item", rest="sync_bound launch_bound")
def bottling_film(s):
    """Films of a bottling line are searched for faults; a decoder process leaves some pictures at a time in a ring in
    shared memory, with counts and futexes, mostly well in time; to blame are the few groups of pictures with a cut,
    which refer to nothing that is decoded already, and take many times as long."""
    ms, every, slots = s.ms("gpu_ms", 8, 20), s.int("every", 7, 11), s.int("slots", 2, 3)
    cost, cut = ms * s.ms("decode_share", 0.1, 0.4), ms * s.ms("cut_steps", 10, 15)
    gpu, ring, numbers = s.gpu(ms), Ring(slots, 50000), itertools.count()
    s.supplier(child(decode_film, ring, cost, cost if s.fix else cut, every).pid)

    def obtain():
        n = next(numbers)
        ring.past(Ring.FILLED, n)
        x = ring.slots[n % slots].copy()
        ring.add(Ring.EMPTIED)
        return x
    s.loop(gpu, obtain)


def touch(path, pages):
    """Has some pages of a file come by faults."""
    chance = random.Random(2)
    with open(path, "rb") as f, mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ) as table:
        table.madvise(mmap.MADV_RANDOM)
        for _ in range(pages):
            table[chance.randrange(len(table) // PAGE) * PAGE]


def serve_features(link, path, kept, warm):
    """Answers with the features of some customers: the last ones asked for are kept, all are in a mapped table."""
    fd = os.open(path, os.O_RDONLY)
    while warm and os.read(fd, MIB):
        pass
    table = mmap.mmap(fd, 0, access=mmap.ACCESS_READ)
    table.madvise(mmap.MADV_RANDOM)

    @functools.lru_cache(kept)
    def features(customer):
        return np.frombuffer(table, np.uint8, 64, customer * PAGE).astype(np.float32)
    while True:
        customers = np.frombuffer(link.recv_bytes(), np.int64)
        link.send_bytes(np.concatenate([features(customer) for customer in customers.tolist()]))
        if not warm:  # others need the memory as well
            table.madvise(mmap.MADV_DONTNEED)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)


@job(data="page_fault_io", rest="sync_bound launch_bound")
def malt_bins(s):
    """Baskets are scored with features of their customers, which a process is asked for one batch ahead; regulars are
    found in its LRU cache, at once; to blame are the misses, which go to a mapped table, larger than memory, where
    each customer has a page of its own, that has to come from the disk."""
    ms, share, regulars = s.ms("gpu_ms", 8, 25), s.ms("miss_share", 1.9, 3), s.int("regulars", 60, 150)
    path, gpu, chance = s.data_file("malt_bins", 64), s.gpu(ms), np.random.default_rng(1)
    each = once(lambda: touch(path, 300)) / 300
    s.cold(path)
    misses = s.keep("misses", min(max(int(ms * share / 1e3 / each), 16), 3000))
    hits, everyone, (mine, theirs) = s.int("hits", 200, 400), 64 * MIB // PAGE, multiprocessing.Pipe()
    s.supplier(child(serve_features, theirs, path, 2000, s.fix).pid)

    def ask():
        mine.send_bytes(np.append(chance.integers(0, regulars, hits), chance.integers(regulars, everyone, misses)))

    def obtain():
        x = np.frombuffer(mine.recv_bytes(), np.float32)
        ask()
        return x
    ask()
    s.loop(gpu, obtain)


def spring_office(s):
    """A far service that gives so many answers a second; who came too early is kept for a while and then sent away."""
    pace, guard, body = float(s.told("pace")) / 1e3, threading.Lock(), bytes(24 << 10)
    patience, due = pace * 0.6, time.monotonic()

    class Counter(Web):
        def do_GET(self):
            nonlocal due
            with guard:
                begin = time.monotonic()
                wait = max(due - begin, 0)
                served = wait <= patience
                if served:
                    due = begin + wait + pace
            time.sleep(min(wait, patience))
            if served:
                self.answer(200, body)
            else:
                self.answer(429)
    office = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Counter)
    s.tell("port", office.server_address[1])
    office.serve_forever()


@job(outside=spring_office, data="network_bound", rest="sync_bound launch_bound")
def spring_permits(s):
    """Measurements of springs are scored, which threads get block by block from a far service, some batches ahead; to
    blame is its rate limit, for all of them together: a call that comes too early hangs, is answered with 429, and is
    made again at once, until its turn has come."""
    ms, threads, blocks = s.ms("gpu_ms", 14, 40), s.int("threads", 1, 2), s.int("blocks", 1, 2)
    share = s.ms("limit_share", 1.6, 2.7)
    s.tell("pace", ms * (0.2 if s.fix else share) / blocks)
    gpu, out, port = s.gpu(ms), queue.Queue(3), int(s.told("port"))

    def block(link):
        status = 429
        while status == 429:
            link.request("GET", "/measurements")
            answer = link.getresponse()
            status, body = answer.status, answer.read()
        return body

    def fetch():
        link = http.client.HTTPConnection("127.0.0.1", port)
        while True:
            body = b"".join(block(link) for _ in range(blocks))
            out.put(np.frombuffer(body, np.uint8).astype(np.float32))
    for _ in range(threads):
        threading.Thread(target=fetch, daemon=True).start()
    s.loop(gpu, out.get)


# ---- results hold up the loop


def photograph(out, cost):
    while True:
        decode(cost)
        out.put(np.zeros((8, 5000), np.float32))


@job(data=CPU, host="host_bound", rest="sync_bound launch_bound")
def second_taster(s):
    """Labels are read in two stages: a small model tells where there might be words, a large one reads those places
    of a batch that are hard, if there are any; a process has pictures in time, and to blame is the loop, which between
    the models gathers the small one's pixels into boxes, in Python."""
    small_ms, large_ms, hard = s.ms("small_ms", 5, 12), s.ms("large_ms", 8, 24), s.ms("hard", 0.4, 0.8)
    small = s.gpu(small_ms, launches=s.int("small_launches", 8, 40))
    large, ms = s.gpu(large_ms, launches=s.int("large_launches", 30, 120)), small_ms + hard * large_ms
    boxes, chance, out = ms * s.ms("boxes_share", 0.6, 1.8), random.Random(1), multiprocessing.Queue(maxsize=3)
    child(photograph, out, ms * s.ms("load_share", 0.1, 0.4))
    s.go()
    while True:
        s.mark()
        with s.during("data"):
            pictures = out.get()
        small.enter_thread()
        s.train(small, pictures)
        with s.during("host"):
            if not s.fix:  # else the device does it
                parse(boxes)
            crops = pictures[:chance.randint(1, len(pictures))] if chance.random() < hard else None
        if crops is not None:
            s.mark("micro")
            large.enter_thread()
            s.train(large, crops)


def broker(link, cost, unconfirmed):
    """Delivers messages, of which so many may be unconfirmed."""
    message = np.zeros(20000, np.float32)
    for n in itertools.count():
        decode(cost)
        if n >= unconfirmed:
            link.recv(1)
        link.send(message)


def publish(path, scores):
    """Leaves the results as packed lines, which outlive a crash, and are there as a whole or not at all."""
    lines = [json.dumps({"sample": n, "score": score, "passed": score > 0.5}) for n, score in enumerate(scores)]
    with open(path + ".part", "wb") as f:
        f.write(zlib.compress("\n".join(lines).encode()))
        f.flush()
        os.fsync(f.fileno())
    os.rename(path + ".part", path)


@job(data=CPU, host="host_bound checkpoint_stall", rest="sync_bound launch_bound")
def excise_ledger(s):
    """Messages with samples are scored exactly once: a message is confirmed, and the next one taken, when its results
    are safe; the broker is some messages ahead, and to blame is the loop, which itself writes the results as lines,
    packs them, and syncs the file to the disk."""
    ms, share = s.ms("gpu_ms", 8, 30), s.ms("publish_share", 0.6, 1.8)
    gpu, (mine, theirs), chance = s.gpu(ms), packets(), np.random.default_rng(1)
    each = took(lambda: publish(s.path("first"), chance.random(1000).tolist())) / 1000
    rows = s.keep("rows", min(max(int(ms * share / 1e3 / each), 20), 20000))
    child(broker, theirs, ms * s.ms("load_share", 0.1, 0.4), s.int("unconfirmed", 3, 6))
    s.go()
    for n in itertools.count():
        s.mark()
        with s.during("data"):
            x = np.frombuffer(mine.recv(1 << 17), np.float32)
        s.train(gpu, x)
        with s.during("host"):
            scores = chance.random(rows)
            if s.fix:
                scores.tofile(s.path("results-%02d" % (n % 50)))
            else:
                publish(s.path("results-%02d" % (n % 50)), scores.tolist())
        mine.send(b"c")


# ---- nobody asks


def guests(s):
    """A few people who ask now and then, and a balancer that asks all the time whether the service is there."""
    many, pause, port = int(s.told("guests")), float(s.told("pause")) / 1e3, int(s.told("port"))
    s.told("go")

    def ask(seed):
        link, chance = http.client.HTTPConnection("127.0.0.1", port), random.Random(seed)
        while True:
            time.sleep(chance.expovariate(1 / pause))
            link.request("POST", "/classify", b"which beer goes with this? " * chance.randint(1, 100))
            link.getresponse().read()
    for n in range(many):
        threading.Thread(target=ask, args=(n,), daemon=True).start()
    balancer = http.client.HTTPConnection("127.0.0.1", port)
    while True:
        balancer.request("GET", "/healthz")
        balancer.getresponse().read()
        time.sleep(0.03)


class Desk:
    """The front's end of the socket to the model: many threads ask, one hears the answers."""

    def __init__(self, link):
        self.link, self.guard, self.due, self.numbers = link, threading.Lock(), {}, itertools.count()
        threading.Thread(target=self.hear, daemon=True).start()

    def hear(self):
        while packet := self.link.recv(PACKET):
            self.due.pop(packet[:4]).set_result(packet[4:])

    def ask(self, text):
        done = concurrent.futures.Future()
        with self.guard:
            number = struct.pack("<I", next(self.numbers))
            self.due[number] = done
            self.link.send(number + text)
        return done.result()


class Front(Web):
    def do_GET(self):
        self.answer(204)

    def do_POST(self):
        self.answer(200, self.server.desk.ask(self.rfile.read(int(self.headers["Content-Length"]))))


def serve_front(server, link):
    server.desk = Desk(link)
    server.serve_forever()


@job(outside=guests, demand="no_demand", host="host_bound", rest="sync_bound launch_bound")
def taproom_window(s):
    """A classifier behind an HTTP front in a process of its own, with a thread for each connection, which numbers the
    requests and hands them over a Unix socket; the loop takes what has come, and answers; the front is asked all the
    time whether it is alive, but nobody is to blame that few want to know something."""
    ms, many, most = s.ms("gpu_ms", 10, 30), s.int("guests", 3, 6), s.int("most", 4, 16)
    pause = many * ms * s.ms("calm", 1.5, 2.6)
    gpu, (mine, theirs) = s.gpu(ms), packets()
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Front) as server:
        child(serve_front, server, theirs)
        s.tell("guests", many)
        s.tell("pause", 0.1 if s.fix else pause)
        s.tell("port", server.server_address[1])
    s.go()
    while True:
        with s.during("demand"):
            asked = [mine.recv(PACKET)]
        with contextlib.suppress(BlockingIOError):
            while len(asked) < most:
                asked.append(mine.recv(PACKET, socket.MSG_DONTWAIT))
        s.mark()
        with s.during("host"):
            x = np.zeros((len(asked), 4096), np.float32)
            for row, packet in zip(x, asked):
                row[:len(packet) - 4] = np.frombuffer(packet, np.uint8, offset=4)
        s.train(gpu, x)
        with s.during("host"):
            for packet in asked:
                mine.send(packet[:4] + b'{"beer": "stout"}')


PICTURE = 4096


def visitors(s):
    """A gateway with one connection for all visitors of a shop; each page of it has a few pictures."""
    pause, pictures, port = float(s.told("pause")) / 1e3, int(s.told("pictures")), int(s.told("port"))
    link, chance, window = socket.create_connection(("127.0.0.1", port)), random.Random(1), threading.Semaphore(64)

    def hear():
        while answers := link.recv(PACKET):
            window.release(len(answers))
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    threading.Thread(target=hear, daemon=True).start()
    s.told("go")
    while True:
        time.sleep(chance.expovariate(1 / pause))
        for _ in range(chance.randint(2, pictures)):
            window.acquire()
            link.sendall(bytes(PICTURE))


@job(outside=visitors, demand="no_demand", host="host_bound", rest="sync_bound launch_bound")
def half_pints(s):
    """Pictures of a shop's pages are rated on demand, by a dynamic batcher as Triton has it: a thread receives them,
    another makes a batch when it is full or its first picture has waited for a short while, and the loop takes batch
    by batch from a queue of one; nobody is to blame that pages are seldom opened."""
    ms, most, pictures = s.ms("gpu_ms", 10, 35), s.int("most", 8, 16), s.int("pictures", 4, 8)
    limit, pause = ms * s.ms("limit_share", 0.05, 0.15) / 1e3, ms * s.ms("calm", 1.6, 2.8)
    gpu, waiting, news, batches = s.gpu(ms), collections.deque(), threading.Condition(), queue.Queue(1)
    s.tell("pause", 0.05 if s.fix else pause)
    s.tell("pictures", pictures)
    with socket.create_server(("127.0.0.1", 0)) as door:
        s.tell("port", door.getsockname()[1])
        link = door.accept()[0]
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def receive():
        stream = link.makefile("rb")
        while picture := stream.read(PICTURE):
            with news:
                waiting.append(picture)
                news.notify()

    def make_batches():
        while True:
            with news:
                news.wait_for(lambda: waiting)
                news.wait_for(lambda: len(waiting) >= most, limit)
                batch = [waiting.popleft() for _ in range(min(most, len(waiting)))]
            batches.put(batch)
    for work in receive, make_batches:
        threading.Thread(target=work, daemon=True).start()
    s.go()
    while True:
        with s.during("demand"):
            batch = batches.get()
        s.mark()
        with s.during("host"):
            x = np.frombuffer(b"".join(batch), np.uint8).astype(np.float32)
        s.train(gpu, x)
        with s.during("host"):
            link.sendall(bytes(len(batch)))
