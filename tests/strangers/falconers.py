# SPDX-License-Identifier: BSD-2-Clause
"""With the falconers: jobs that are fed over sockets by the services of a data platform, each by its own protocol."""
import asyncio
import base64
import hashlib
import http.client
import http.server
import itertools
import json
import multiprocessing
import os
import queue
import random
import select
import socket
import struct
import threading
import time
import zlib

import numpy as np

from stranger import CPU, child, decode, job

KIB, MIB, D2H = 1 << 10, 1 << 20, 2


def took(f):
    """Seconds that f takes once it is warm."""
    f()
    begin = time.monotonic()
    f()
    return time.monotonic() - begin


def dial(port):
    link = socket.create_connection(("127.0.0.1", port))
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return link


def welcome(door, serve):
    """Serves each connection in a thread."""
    while True:
        link, _ = door.accept()
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        threading.Thread(target=serve, args=(link,), daemon=True).start()


def attend(s, serve):
    """The same, for a service outside of the job, which is told the port."""
    door = socket.create_server(("127.0.0.1", 0))
    s.tell("port", door.getsockname()[1])
    welcome(door, serve)


class Quiet(http.server.BaseHTTPRequestHandler):
    protocol_version, disable_nagle_algorithm = "HTTP/1.1", True

    def log_message(self, *_):
        pass


def attend_http(s, handler):
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    s.tell("port", server.server_address[1])
    server.serve_forever()


# ---- the data is late


QOS, DELIVERY, ACK = struct.Struct(">H"), struct.Struct(">QI"), struct.Struct(">Q")


def far_broker(s):
    """Delivers while fewer messages than the client's prefetch count wait for their ack; an ack takes its time."""
    late, size = json.loads(s.told("line"))

    def serve(link):
        stream, credits = link.makefile("rb"), queue.SimpleQueue()

        def deliver():
            for tag in itertools.count(1):
                time.sleep(max(credits.get() - time.monotonic(), 0))
                link.sendall(DELIVERY.pack(tag, size) + bytes(size))
        prefetch, = QOS.unpack(stream.read(QOS.size))
        for _ in range(prefetch):
            credits.put(0.0)
        threading.Thread(target=deliver, daemon=True).start()
        while stream.read(ACK.size):
            credits.put(time.monotonic() + late)
    attend(s, serve)


@job(outside=far_broker, data="network_bound", rest="sync_bound launch_bound")
def short_creance(s):
    """Batches are messages of a far broker, as by AMQP: a thread has the connection, and the loop wakes it by a pipe
    to confirm a message after its step; to blame is a prefetch count of one, so that only then the next sets out."""
    ms, size = s.ms("gpu_ms", 10, 35), s.int("kib", 80, 400) * KIB
    s.tell("line", json.dumps([ms * s.ms("late_share", 0.6, 2) / 1e3, size]))
    gpu, link = s.gpu(ms), dial(int(s.told("port")))
    inbox, acks, (woken, waker) = queue.SimpleQueue(), queue.SimpleQueue(), os.pipe()
    link.sendall(QOS.pack(16 if s.fix else 1))

    def drive():
        received = bytearray()
        while True:
            ready, _, _ = select.select([link, woken], [], [])
            if woken in ready:
                for _ in os.read(woken, 100):
                    link.sendall(ACK.pack(acks.get()))
            if link not in ready:
                continue
            news = link.recv(64 * KIB)
            if not news:
                return
            received += news
            while len(received) >= DELIVERY.size:
                tag, length = DELIVERY.unpack_from(received)
                end = DELIVERY.size + length
                if len(received) < end:
                    break
                inbox.put((tag, np.frombuffer(received[DELIVERY.size:end], np.uint8)))
                del received[:end]
    threading.Thread(target=drive, daemon=True).start()
    s.go()
    while True:
        s.mark()
        with s.during("data"):
            tag, x = inbox.get()
        s.train(gpu, x)
        acks.put(tag)
        os.write(waker, b"a")


OBJECT, PIECE = 2 * MIB, 256 * KIB


class Transcoder(Quiet):
    """Sends a range of an object or, where it unpacks the object on the way, all of it; all share one uplink."""
    pause, unpacks, uplink = 0.0, True, threading.Lock()

    def do_GET(self):
        first, last = map(int, self.headers["Range"].removeprefix("bytes=").split("-"))
        size = OBJECT if self.unpacks else last + 1 - first
        if self.unpacks:
            self.send_response(200)
        else:
            self.send_response(206)
            self.send_header("Content-Range", "bytes %d-%d/%d" % (first, last, OBJECT))
        self.send_header("Content-Length", str(size))
        self.end_headers()
        for _ in range(size // PIECE):
            with self.uplink:
                time.sleep(self.pause)
            self.wfile.write(bytes(PIECE))


def packed_store(s):
    Transcoder.pause, Transcoder.unpacks = json.loads(s.told("store"))
    attend_http(s, Transcoder)


def carve(out, port, cost):
    chance, link = random.Random(1), http.client.HTTPConnection("127.0.0.1", port)
    while True:
        first = chance.randrange(0, OBJECT, PIECE)
        wanted = {"Range": "bytes=%d-%d" % (first, first + PIECE - 1)}
        link.request("GET", "/shard-%03d" % chance.randrange(1000), headers=wanted)
        answer = link.getresponse()
        body = answer.read()
        if answer.status == 200:
            body = body[first:first + PIECE]
        decode(cost)
        out.put(np.frombuffer(body, np.uint8))


@job(outside=packed_store, data="network_bound", rest="sync_bound launch_bound")
def whole_quarry(s):
    """A process reads ranges of shards in an object store over HTTP, ahead of the loop; to blame is the store, which
    unpacks what was uploaded with Content-Encoding: gzip, ignores Range for that, and sends all on a slow line."""
    ms, share = s.ms("gpu_ms", 8, 35), s.ms("line_share", 1.5, 2.8)
    s.tell("store", json.dumps([ms * share / 1e3 * PIECE / OBJECT, not s.fix]))
    gpu, out = s.gpu(ms), multiprocessing.Queue(maxsize=3)
    s.supplier(child(carve, out, int(s.told("port")), ms * s.ms("decode_share", 0.03, 0.1)).pid)
    s.loop(gpu, out.get)


FRAME, WINDOW = 16 * KIB, 64 * KIB
HEAD, UPDATE = struct.Struct(">IB"), struct.Struct(">I")


def far_stream(s):
    """Streams samples in frames, as many as the caller's window has room for; an update of that takes its time."""
    late = float(s.told("late"))

    def serve(link):
        stream, updates, frame = link.makefile("rb"), queue.SimpleQueue(), HEAD.pack(FRAME, 0) + bytes(FRAME)

        def pour():
            window = 0
            while True:
                while window < FRAME:
                    due, more = updates.get()
                    time.sleep(max(due - time.monotonic(), 0))
                    window += more
                link.sendall(frame)
                window -= FRAME
        threading.Thread(target=pour, daemon=True).start()
        while update := stream.read(UPDATE.size):
            updates.put((time.monotonic() + late, *UPDATE.unpack(update)))
    attend(s, serve)


def drink(port, window, ring, free, full):
    """Reads the stream into the ring's slots, and makes room in the window when half of it is used up."""
    link, used = dial(port), 0
    stream = link.makefile("rb")
    link.sendall(UPDATE.pack(window))
    for slot in itertools.cycle(ring):
        free.acquire()
        for begin in range(0, len(slot), FRAME):
            length, _ = HEAD.unpack(stream.read(HEAD.size))
            stream.readinto(slot[begin:begin + length])
            used += length
            if used >= window // 2:
                link.sendall(UPDATE.pack(used))
                used = 0
        full.release()


@job(outside=far_stream, data="network_bound too_few_workers", rest="sync_bound launch_bound")
def tight_jesses(s):
    """A process has a far service stream batches to it, as by gRPC, into slots of shared memory; to blame is the
    flow-control window, left at 64 KiB for a long line, so that a batch takes several round trips."""
    ms, windows, slots = s.ms("gpu_ms", 8, 35), s.int("windows", 3, 8), s.int("slots", 2, 4)
    s.tell("late", ms * s.ms("stream_share", 1.5, 2.8) / windows / 1e3)
    ring = np.frombuffer(multiprocessing.RawArray("B", slots * windows * WINDOW), np.uint8).reshape(slots, -1)
    free, full, turn = multiprocessing.Semaphore(slots), multiprocessing.Semaphore(0), itertools.cycle(ring)
    gpu, window = s.gpu(ms), 64 * WINDOW if s.fix else WINDOW
    s.supplier(child(drink, int(s.told("port")), window, ring, free, full).pid)

    def obtain():
        full.acquire()
        x = next(turn).copy()
        free.release()
        return x
    s.loop(gpu, obtain)


class Desk(Quiet):
    """A data API: whoever asks again before the interval of its token is over is sent away."""
    intervals, due = [], {}

    def do_GET(self):
        token, begin = int(self.headers["Authorization"].removeprefix("Bearer ")), time.monotonic()
        status, body = 429, b""
        if begin >= self.due.get(token, 0):
            self.due[token] = begin + self.intervals[token]
            status, body = 200, bytes(80000)
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def data_api(s):
    Desk.intervals = json.loads(s.told("intervals"))
    attend_http(s, Desk)


def request(out, port, token, base):
    """Asks for batch after batch; when it is sent away, it comes again after twice as long each time."""
    chance, link = random.Random(token), http.client.HTTPConnection("127.0.0.1", port)
    while True:
        for attempt in itertools.count():
            link.request("GET", "/next", headers={"Authorization": "Bearer %d" % token})
            answer = link.getresponse()
            body = answer.read()
            if answer.status == 200:
                break
            time.sleep(base * 2 ** attempt * chance.uniform(0.8, 1.2))
        out.put(np.frombuffer(body, np.float32))


@job(outside=data_api, data="slow_worker", rest="sync_bound launch_bound")
def hooded_tiercel(s):
    """Three workers by turns ask a data API over HTTP, each with a token of its own, and back off when they are told
    429; to blame is the one whose token is of the free tier, so that it backs off for each of its batches."""
    ms, hooded = s.ms("gpu_ms", 8, 22), s.int("hooded", 0, 2)
    base = 3 * ms * s.ms("back_off_share", 1.5, 2.4) / 7 / 1e3  # it comes again after 1, 3 and 7 times that
    s.tell("intervals", json.dumps([5 * base if n == hooded and not s.fix else ms / 2e3 for n in range(3)]))
    gpu, port, outs = s.gpu(ms), int(s.told("port")), [multiprocessing.Queue(maxsize=2) for _ in range(3)]
    pids = [child(request, out, port, n, base).pid for n, out in enumerate(outs)]
    s.supplier(pids[hooded])
    turn = itertools.cycle(outs)
    s.loop(gpu, lambda: next(turn).get())


MESSAGE, ROW = struct.Struct(">cI"), 256


def near_database(s):
    """Answers each FETCH from a cursor with so many rows."""
    late = float(s.told("late"))

    def serve(link):
        stream = link.makefile("rb")
        while fetch := stream.read(MESSAGE.size):
            _, rows = MESSAGE.unpack(fetch)
            time.sleep(late)
            link.sendall(MESSAGE.pack(b"D", rows * ROW) + bytes(rows * ROW))
    attend(s, serve)


@job(outside=near_database, data="lock_bound", rest="sync_bound launch_bound")
def single_gauntlet(s):
    """Threads read batches from a database nearby by cursors, and unpack them in C; to blame is their pool with one
    connection, which a thread keeps while it unpacks block after block, so that the others wait for it."""
    ms, threads, fetches = s.ms("gpu_ms", 10, 40), s.int("threads", 2, 3), s.int("fetches", 2, 6)
    cost = ms * s.ms("unpack_share", 1.35, 1.65) / fetches
    s.tell("late", cost * 0.1 / 1e3)
    gpu, out, pool = s.gpu(ms), queue.Queue(maxsize=4), queue.LifoQueue()
    pool.put(dial(int(s.told("port"))))

    def fetched(link):
        for _ in range(fetches):
            link.sendall(MESSAGE.pack(b"F", 100))
            _, size = MESSAGE.unpack(link.recv(MESSAGE.size, socket.MSG_WAITALL))
            yield link.recv(size, socket.MSG_WAITALL)

    def unpacked(block):
        decode(cost)
        return np.frombuffer(block, np.float32)

    def fill():
        while True:
            link = pool.get()
            blocks = fetched(link)
            if s.fix:
                blocks = list(blocks)
                pool.put(link)
            x = np.concatenate([unpacked(block) for block in blocks])
            if not s.fix:
                pool.put(link)
            out.put(x)
    for _ in range(threads):
        threading.Thread(target=fill, daemon=True).start()
    s.loop(gpu, out.get)


SAMPLES = 400


def far_origin(s):
    """Has what a cache may lack; of the masks that it is asked for there are none."""
    late = float(s.told("late"))

    def serve(link):
        for _ in link.makefile("rb"):
            time.sleep(late)
            link.sendall(b"404 0\n")
    attend(s, serve)


def keep(door, origin, knows_absent):
    """A cache with all images and the masks that exist; for other paths it asks the origin, and keeps what is sent."""
    shelf = {b"/%d.png\n" % n: bytes(20 * KIB) for n in range(SAMPLES)}
    for n in range(SAMPLES):
        if n % 4 == 0:
            shelf[b"/%d.mask\n" % n] = bytes(2 * KIB)
        elif knows_absent:
            shelf[b"/%d.mask\n" % n] = b""

    def serve(link):
        upstream = dial(origin)
        answers = upstream.makefile("rb")
        for path in link.makefile("rb"):
            body = shelf.get(path)
            if body is None:
                upstream.sendall(path)
                status, size = answers.readline().split()
                body = answers.read(int(size))
                if status == b"200":
                    shelf[path] = body
            link.sendall(b"%d %d\n" % (200 if body else 404, len(body)) + body)
    welcome(door, serve)


def swing(out, port, begins, many):
    """Gets a batch's images one by one, and with each its mask, if it has one."""
    link = dial(port)
    stream = link.makefile("rb")

    def get(path):
        link.sendall(path)
        _, size = stream.readline().split()
        return stream.read(int(size))
    for begin in begins:
        parts = []
        for n in range(begin, begin + many):
            parts += get(b"/%d.png\n" % (n % SAMPLES)), get(b"/%d.mask\n" % (n % SAMPLES))
        out.put(np.frombuffer(b"".join(parts), np.uint8))


@job(outside=far_origin, data="network_bound too_few_workers", rest="sync_bound launch_bound")
def empty_lure(s):
    """A worker or two get images and optional masks from the job's own cache process, which has all of them; to blame
    is that it keeps no 404, and asks the far origin once more for each of the many masks that do not exist."""
    ms, workers, many = s.ms("gpu_ms", 10, 40), s.int("workers", 1, 2), 4 * s.int("quads", 1, 3)
    s.tell("late", ms * s.ms("late_share", 1.4, 2.4) * workers / (many * 3 // 4) / 1e3)
    gpu, out, origin = s.gpu(ms), multiprocessing.Queue(maxsize=3), int(s.told("port"))
    door = socket.create_server(("127.0.0.1", 0))
    child(keep, door, origin, s.fix)
    for n in range(workers):
        child(swing, out, door.getsockname()[1], itertools.count(n * many, workers * many), many)
    door.close()
    s.loop(gpu, out.get)


CALL, COUNT = struct.Struct(">BI"), struct.Struct(">I")
COUNT_ROWS, FETCH_ROWS = 1, 2


def run_statements(door, cost, size, keeps):
    """A query engine, which runs a statement to count its rows and, if it has not kept them, again to send them."""
    def serve(link):
        stream, results = link.makefile("rb"), {}
        while head := stream.read(CALL.size):
            method, length = CALL.unpack(head)
            statement = stream.read(length)
            rows = results.pop(statement, None)
            if rows is None:
                decode(cost)
                rows = bytes(size)
            if method == FETCH_ROWS:
                link.sendall(rows)
                continue
            if keeps:
                results[statement] = rows
            link.sendall(COUNT.pack(len(rows)))
    welcome(door, serve)


@job(data=CPU, rest="sync_bound launch_bound")
def double_stoop(s):
    """A thread asks a query engine, a process of the job, for the next batches by remote calls: for the count, so as
    to have room, and then for the rows; to blame is the engine, which computes each result for both of them."""
    ms, size = s.ms("gpu_ms", 10, 40), s.int("kib", 80, 400) * KIB
    cost, gpu, out = ms * s.ms("query_share", 1.5, 1.85) / 2, s.gpu(ms), queue.Queue(maxsize=3)
    door = socket.create_server(("127.0.0.1", 0))
    s.supplier(child(run_statements, door, cost, size, s.fix).pid)
    link = dial(door.getsockname()[1])
    door.close()

    def ask():
        stream = link.makefile("rb")
        for n in itertools.count():
            statement = b"SELECT * FROM flights WHERE hour = %d" % n
            link.sendall(CALL.pack(COUNT_ROWS, len(statement)) + statement)
            count, = COUNT.unpack(stream.read(COUNT.size))
            x = np.empty(count, np.uint8)
            link.sendall(CALL.pack(FETCH_ROWS, len(statement)) + statement)
            stream.readinto(x)
            out.put(x)
    threading.Thread(target=ask, daemon=True).start()
    s.loop(gpu, out.get)


# ---- not for data


KEYS, WIDTH = 640, 32
MGET = b"*%d\r\n$4\r\nMGET\r\n" % (KEYS + 1)
KEY, HSET = b"$8\r\n%08d\r\n", b"*4\r\n$4\r\nHSET\r\n$8\r\n%08d\r\n$1\r\nv\r\n$%d\r\n%s\r\n"
VALUE = np.dtype([("head", "S6"), ("vector", "f4", WIDTH), ("end", "S2")])


def feature_server(s):
    """Speaks as Redis does: it answers MGET after a while, and takes what is written by whoever wants no replies."""
    late, values = float(s.told("late")), np.zeros(KEYS, VALUE)
    values["head"], values["end"] = b"$128\r\n", b"\r\n"
    reply = b"*%d\r\n" % KEYS + values.tobytes()

    def serve(link):
        stream = link.makefile("rb")
        while stream.read(len(MGET)) == MGET:
            stream.read(KEYS * len(KEY % 0))
            time.sleep(late)
            link.sendall(reply)
        while link.recv(MIB):
            pass
    attend(s, serve)


def look_up(out, port):
    link, chance = dial(port), random.Random(1)
    stream = link.makefile("rb")
    while True:
        link.sendall(MGET + b"".join(KEY % chance.randrange(10**8) for _ in range(KEYS)))
        stream.readline()
        values = np.frombuffer(stream.read(KEYS * VALUE.itemsize), VALUE)
        out.put(np.ascontiguousarray(values["vector"]))


def written(vectors):
    """The commands that set these vectors, as text."""
    commands = []
    for key, vector in enumerate(vectors.tolist()):
        text = b",".join([b"%.4e" % value for value in vector])
        commands.append(HSET % (key, len(text), text))
    return b"".join(commands)


@job(outside=feature_server, data="network_bound", host="host_bound", rest="sync_bound launch_bound")
def weighing_perch(s):
    """A process asks a feature server for the vectors of each batch, in time; to blame is the loop, which after each
    step writes the vectors that have changed back to the server, and puts the commands together in Python."""
    ms, share = s.ms("gpu_ms", 8, 28), s.ms("write_share", 0.5, 1.6)
    s.tell("late", ms * s.ms("late_share", 0.1, 0.4) / 1e3)
    each = took(lambda: written(np.zeros((200, WIDTH), np.float32))) / 200
    rows = s.keep("rows", min(max(int(ms * share / 1e3 / each), 20), 8000))
    gpu, port, out = s.gpu(ms), int(s.told("port")), multiprocessing.Queue(maxsize=4)
    child(look_up, out, port)
    writer, vectors = dial(port), np.zeros((rows, WIDTH), np.float32)
    writer.sendall(b"CLIENT REPLY OFF\r\n")
    gpu.upload(vectors.ctypes.data, vectors.nbytes)
    s.go()
    while True:
        s.step(gpu, out.get)
        if not s.fix:  # else another job writes them, from a checkpoint
            gpu.check(gpu.lib.cudaMemcpy(vectors.ctypes.data, gpu.input, vectors.nbytes, D2H))
            with s.during("host"):
                writer.sendall(written(vectors))


BODY = 80000


def lease_registry(s):
    """Leases parts of a stream, gives the records of a part to its holder, and is told when a part is done."""
    late, tokens = float(s.told("late")), itertools.count(1)

    def serve(link):
        for line in link.makefile("rb"):
            word, *_ = line.split()
            if word == b"READ":
                time.sleep(late)
                link.sendall(bytes(BODY))
            else:
                link.sendall(b"%d\n" % next(tokens) if word == b"ACQUIRE" else b"OK\n")
    attend(s, serve)


def hunt(out, port, steps):
    """Holds the lease of the next part while the last one is still learnt from."""
    link = dial(port)
    stream = link.makefile("rb")
    while True:
        link.sendall(b"ACQUIRE %d\n" % steps)
        token = int(stream.readline())
        for n in range(steps):
            link.sendall(b"READ %d %d\n" % (token, n))
            out.put((token, n == steps - 1, np.frombuffer(stream.read(BODY), np.float32)))


@job(outside=lease_registry, data="network_bound", ckpt="checkpoint_stall host_bound", host="host_bound",
     rest="sync_bound launch_bound")
def fenced_mews(s):
    """A registry leases a stream part by part to a process, which has batches ready; to blame is the loop: it may give
    a part back only when the state is safe, so that each few steps it packs, writes and syncs the state."""
    ms, steps, share = s.ms("gpu_ms", 10, 25), s.int("part_steps", 3, 6), s.ms("save_share", 0.5, 1.3)
    s.tell("late", ms * s.ms("late_share", 0.1, 0.3) / 1e3)
    chance = np.random.default_rng(1)
    piece = chance.standard_normal(16 * KIB, np.float32)
    pieces = s.keep("pieces", max(round(ms * steps * share / 1e3 / took(lambda: zlib.compress(piece))), 1))
    state = np.split(chance.standard_normal(pieces * len(piece), np.float32), pieces)
    gpu, port, out = s.gpu(ms), int(s.told("port")), multiprocessing.Queue(maxsize=4)
    child(hunt, out, port, 50 * steps if s.fix else steps)
    registry = dial(port).makefile("rwb")

    def save(token):
        with open(s.path("state.part"), "wb") as f:
            f.write(b"%d\n" % token)
            for weights in state:
                f.write(zlib.compress(weights))
            f.flush()
            os.fsync(f.fileno())
        os.rename(s.path("state.part"), s.path("state"))
    s.go()
    while True:
        s.mark()
        with s.during("data"):
            token, last, x = out.get()
        s.train(gpu, x)
        if last:
            with s.during("ckpt"):
                save(token)
            with s.during("host"):
                registry.write(b"COMMIT %d\n" % token)
                registry.flush()
                registry.readline()


# ---- nobody asks


TEXT, PING, PONG = 1, 9, 10


def framed(kind, body, masked=False):
    """A frame of a web socket, short ones only; a client's has a mask."""
    head = bytearray(struct.pack(">BB", 128 | kind, len(body)) if len(body) < 126 else
                     struct.pack(">BBH", 128 | kind, 126, len(body)))
    if masked:
        mask = os.urandom(4)
        head[1] |= 128
        body = mask + bytes(byte ^ mask[n % 4] for n, byte in enumerate(body))
    return bytes(head) + body


def workspace(s):
    """Pushes what people write to an app as it comes, and a ping when it has been quiet for a while."""
    rate, quiet = float(s.told("rate")), 0.2
    door = socket.create_server(("127.0.0.1", 0))
    s.tell("port", door.getsockname()[1])
    link, _ = door.accept()
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    lines = iter(link.makefile("rb").readline, b"\r\n")
    key = dict(line.strip().split(b": ") for line in lines if b": " in line)[b"Sec-WebSocket-Key"]
    accept = base64.b64encode(hashlib.sha1(key + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest())
    link.sendall(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                 b"Sec-WebSocket-Accept: %s\r\n\r\n" % accept)

    def listen():
        while link.recv(64 * KIB):
            pass
    threading.Thread(target=listen, daemon=True).start()
    s.told("go")
    for n in itertools.count():
        pause = s.random.expovariate(rate)
        while pause > quiet:
            time.sleep(quiet)
            link.sendall(framed(PING, b"ping"))
            pause -= quiet
        time.sleep(pause)
        event = {"envelope": n, "text": "what has the falcon caught? " * s.random.randint(1, 40)}
        link.sendall(framed(TEXT, json.dumps(event).encode()))


async def joined(port):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET /link HTTP/1.1\r\nHost: workspace\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                 b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: %s\r\n\r\n" % base64.b64encode(os.urandom(16)))
    await reader.readuntil(b"\r\n\r\n")
    return reader, writer


async def listening(reader, writer, asked):
    """Answers pings, confirms each envelope at once, and passes it on."""
    while True:
        kind, size = await reader.readexactly(2)
        if size == 126:
            size, = struct.unpack(">H", await reader.readexactly(2))
        body = await reader.readexactly(size)
        if kind & 15 == PING:
            writer.write(framed(PONG, body, masked=True))
        else:
            event = json.loads(body)
            writer.write(framed(TEXT, json.dumps({"confirmed": event["envelope"]}).encode(), masked=True))
            asked.put(event)


@job(outside=workspace, demand="no_demand", host="host_bound", rest="sync_bound launch_bound")
def silent_bells(s):
    """An app in a chat workspace: what people write to it is pushed over a web socket, which an event loop in a thread
    keeps, and the loop takes it from a queue and answers; nobody is to blame that little is written."""
    ms, passes = s.ms("gpu_ms", 8, 30), s.int("passes", 1, 2)
    busy = s.ms("busy_share", 0.15, 0.4)
    s.tell("rate", (3 if s.fix else busy) * 1e3 / (ms * passes))
    gpu, home, asked = s.gpu(ms), asyncio.new_event_loop(), queue.SimpleQueue()
    reader, writer = home.run_until_complete(joined(int(s.told("port"))))
    threading.Thread(target=home.run_forever, daemon=True).start()
    link = asyncio.run_coroutine_threadsafe(listening(reader, writer, asked), home)
    s.go()
    while not link.done():
        with s.during("demand"):
            event = asked.get()
        with s.during("host"):
            x = np.zeros(20000, np.float32)
            letters = np.frombuffer(event["text"].encode(), np.uint8)
            x[:len(letters)] = letters
        for _ in range(passes):
            s.mark()
            s.train(gpu, x)
        answer = json.dumps({"envelope": event["envelope"], "text": "a vole"}).encode()
        home.call_soon_threadsafe(writer.write, framed(TEXT, answer, masked=True))
