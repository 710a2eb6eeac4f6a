# SPDX-License-Identifier: BSD-2-Clause
"""In the newsrooms: how language, speech, search and serving jobs are fed and driven."""
import collections
import concurrent.futures
import contextlib
import ctypes
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

import numpy as np

from stranger import CPU, child, decode, job, mortal, parse

PAGE, MIB = 4096, 1 << 20


def once(f):
    """Seconds that f takes."""
    begin = time.monotonic()
    f()
    return time.monotonic() - begin


def write(out, cost):
    while True:
        decode(cost)
        out.put(np.zeros(20000, np.float32))


def desk(cost):
    """A loader that keeps up: a process and a queue."""
    out = multiprocessing.Queue(maxsize=4)
    child(write, out, cost)
    return out.get


def side_desk(cost):
    """Another one: a thread of the trainer."""
    out = queue.Queue(4)
    threading.Thread(target=write, args=(out, cost), daemon=True).start()
    return out.get


# ---- the data is late


def broker(s):
    """Has all records at hand; but a member who polls too seldom is expelled, and its group is slow to let it in."""
    limit, late = (float(word) / 1e3 for word in s.told("limits").split())
    door = socket.create_server(("127.0.0.1", 0))
    s.tell("port", door.getsockname()[1])

    def serve(link):
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        seen = time.monotonic()
        while ask := link.recv(5):
            many, expelled = struct.unpack("<xI", ask)[0], False
            if ask[:1] == b"j":
                time.sleep(late)
            elif ask[:1] == b"p":
                expelled = time.monotonic() - seen > limit
            link.sendall(b"e" if expelled else b"k" + bytes(many))
            seen = time.monotonic()
    while True:
        threading.Thread(target=serve, args=(door.accept()[0],), daemon=True).start()


def stringer(out, port, chunk, cost):
    """A consumer: polls for a chunk of records, and polls again when all of them are handed over."""
    def member():
        stream = socket.create_connection(("127.0.0.1", port)).makefile("rwb")

        def ask(word, many=0):
            stream.write(word + struct.pack("<I", many))
            stream.flush()
            return stream.read(1) == b"k" and (stream.read(many) or b"k")
        return ask
    poll, beat = member(), member()

    def heartbeats():
        while beat(b"h"):
            time.sleep(0.05)
    threading.Thread(target=heartbeats, daemon=True).start()
    while True:
        records = poll(b"p", chunk << 14)
        if not records:
            poll(b"j")
            continue
        for n in range(chunk):
            decode(cost)
            out.put(np.frombuffer(records, np.uint8, 1 << 14, n << 14))


@job(outside=broker, data="network_bound", beside="slow_item", rest="sync_bound launch_bound")
def expelled_stringer(s):
    """Training on an event log as of Kafka: a process polls for records, and hands them to the loop one batch after
    another; to blame is max.poll.records, as the device learns so long from a chunk that the broker expels the
    consumer, though its heartbeats go on; and to join the group again takes as long as its other members need."""
    ms, chunk, share = s.ms("gpu_ms", 8, 25), s.int("chunk", 5, 9), s.ms("join_share", 0.5, 1.5)
    s.tell("limits", "%f %f" % (0.45 * ms * chunk, ms * (2 + chunk * share)))
    gpu, port, out = s.gpu(ms), int(s.told("port")), multiprocessing.Queue(maxsize=1)
    s.supplier(child(stringer, out, port, 1 if s.fix else chunk, ms * s.ms("parse_share", 0.05, 0.2)).pid)
    s.loop(gpu, out.get)


class Compositor:
    """A tokenizer with threads of its own, which are switched off in a process that was forked after their use."""

    def __init__(self, threads):
        self.threads, self.pool, self.alone = threads, None, False
        os.register_at_fork(after_in_child=self.forked)

    def forked(self):
        self.alone = self.pool is not None

    def encode(self, parts, cost):
        if self.alone:
            ids = [decode(cost) for _ in range(parts)]
        else:
            self.pool = self.pool or concurrent.futures.ThreadPoolExecutor(self.threads)
            ids = list(self.pool.map(decode, [cost] * parts))
        return np.zeros((len(ids), 1000), np.int64)


def compose(link, compositor, parts, cost):
    while True:
        link.send(compositor.encode(parts, cost))


@job(data=CPU, rest="sync_bound launch_bound")
def lone_compositor(s):
    """A process tokenises by a library that has threads for this; to blame is that the script measured a text's length
    with it before it forked the process, where the library thus works in one thread to be safe, as a warning said."""
    ms, parts, share = s.ms("gpu_ms", 8, 35), s.int("parts", 2, 6), s.ms("encode_share", 1.5, 2.6)
    compositor, cost, gpu = Compositor(2), ms * share / parts, s.gpu(ms)
    if s.fix:
        cost /= 3  # and no use before the fork
    else:
        compositor.encode(1, 0.1)
    mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    s.supplier(child(compose, theirs, compositor, parts, cost).pid)
    x, door = np.zeros((parts, 1000), np.int64), select.poll()
    door.register(mine, select.POLLIN)

    def obtain():
        while not door.poll(5000):
            print("still no batch", flush=True)
        mine.recv_into(x)
        return x
    s.loop(gpu, obtain)


class Index:
    """A lock for many readers or one writer: no new reader may enter while a writer waits."""

    def __init__(self):
        self.gate, self.guard, self.room = (multiprocessing.Lock() for _ in range(3))
        self.inside = multiprocessing.RawValue("i")

    def enter(self, change):
        with self.guard:
            if self.inside.value == 0:
                self.room.acquire()
            self.inside.value += change
            if self.inside.value == 0:
                self.room.release()

    @contextlib.contextmanager
    def reading(self):
        with self.gate:
            self.enter(1)
        yield
        self.enter(-1)

    @contextlib.contextmanager
    def writing(self):
        with self.gate, self.room:
            yield


def search(index, out, cost):
    while True:
        with index.reading():
            decode(cost)
        out.put(np.zeros(10000, np.float32))


def analyse(index, hold, pause):
    """Somebody's report: one long query, whose rows go to a slow client."""
    while True:
        with index.reading():
            time.sleep(hold / 1e3)
        time.sleep(pause / 1e3)


def refresh(index, cost, pause):
    while True:
        time.sleep(pause / 1e3)
        with index.writing():
            decode(cost)


@job(data="lock_bound", rest="sync_bound launch_bound")
def standing_query(s):
    """Training with retrieval from an index that is refreshed meanwhile: a process searches it under a read lock, and
    is quick; to blame is a report's long query, as the refresher waits for its end and nobody may enter before it."""
    ms, hold, pause = s.ms("gpu_ms", 8, 30), s.ms("query_steps", 7, 13), s.ms("refresh_steps", 0.5, 1.5)
    index, out, gpu = Index(), multiprocessing.SimpleQueue(), s.gpu(ms)
    child(search, index, out, ms * s.ms("search_share", 0.05, 0.2))
    child(analyse, index, ms * hold / (8 if s.fix else 1), ms * 0.3)
    child(refresh, index, ms * s.ms("write_share", 0.1, 0.3), ms * pause)
    s.loop(gpu, out.get)


class Postings:
    """Lists of documents in a file: what memory has is read at once, the rest by a thread for this."""

    def __init__(self, path):
        self.fd, self.page = os.open(path, os.O_RDONLY), memoryview(bytearray(PAGE))
        self.pool = concurrent.futures.ThreadPoolExecutor(1)
        os.posix_fadvise(self.fd, 0, 0, os.POSIX_FADV_RANDOM)

    def missing(self, place):
        try:
            return os.preadv(self.fd, [self.page], place, os.RWF_NOWAIT) < PAGE
        except OSError:  # it is not in memory, or the file system cannot tell
            return True

    def read(self, places):
        absent = [place for place in places if self.missing(place)]
        if absent:
            self.pool.submit(lambda: [os.pread(self.fd, PAGE, place) for place in absent]).result()

    def forget(self):
        os.posix_fadvise(self.fd, 0, 0, os.POSIX_FADV_DONTNEED)


def look_up(link, path, many, cost, warm):
    """Answers each question with the documents found."""
    postings, chance, pages = Postings(path), random.Random(1), os.path.getsize(path) // PAGE
    if warm:
        postings.read(range(0, pages * PAGE, PAGE))
    while link.recv(8, socket.MSG_WAITALL):
        postings.read([chance.randrange(pages) * PAGE for _ in range(many)])
        decode(cost)
        link.sendall(bytes(40000))
        if not warm:
            postings.forget()


@job(data="io_bound", rest="sync_bound launch_bound")
def cold_postings(s):
    """A re-ranker learns from an inverted index: a process is asked one batch ahead, reads what it can with RWF_NOWAIT
    and leaves the rest to its one reading thread; to blame is the disk, as memory keeps none of the lists."""
    ms, share = s.ms("gpu_ms", 8, 25), s.ms("read_share", 1.6, 2.8)
    path, chance = s.data_file("cold_postings", 64), random.Random(2)
    sample = [chance.randrange(64 * MIB // PAGE) * PAGE for _ in range(400)]
    each = once(lambda: Postings(path).read(sample)) / 400
    many = s.keep("lists", min(max(int(ms * share / 1e3 / each), 16), 4000))
    s.cold(path)
    gpu, (mine, theirs) = s.gpu(ms), socket.socketpair()
    s.supplier(child(look_up, theirs, path, many, ms * s.ms("score_share", 0.05, 0.15), s.fix).pid)
    documents, asked = np.zeros(40000, np.uint8), itertools.count()

    def ask():
        mine.sendall(struct.pack("<Q", next(asked)))

    def obtain():
        mine.recv_into(documents, flags=socket.MSG_WAITALL)
        ask()
        return documents
    ask()
    s.loop(gpu, obtain)


LIBC = ctypes.CDLL(None, use_errno=True)


class Piece(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("size", ctypes.c_size_t)]


def attach(pid, rows, addresses):
    """Copies blocks straight out of another process's memory, a call for each."""
    for row, address in zip(rows, addresses):
        mine, theirs = Piece(row.ctypes.data, row.nbytes), Piece(address, row.nbytes)
        if LIBC.process_vm_readv(pid, ctypes.byref(mine), ctypes.c_ulong(1), ctypes.byref(theirs),
                                 ctypes.c_ulong(1), ctypes.c_ulong(0)) != row.nbytes:
            raise OSError(ctypes.get_errno(), "process_vm_readv")


def prefill(link, size):
    """Has keys and values of all prompts in blocks, as prompts share many, and says where they lie."""
    blocks, chance = np.ones((64, size), np.uint8), random.Random(1)
    while True:
        many = link.recv()
        link.send([blocks[chance.randrange(64)].ctypes.data for _ in range(many)])


@job(data="ipc_bound main_thread_loading", rest="sync_bound launch_bound")
def borrowed_columns(s):
    """Decoding apart from prefilling: a process has keys and values ready, and says one batch ahead where they lie; to
    blame is how the loop gets them, block by block with process_vm_readv(), as the host cannot do it otherwise."""
    ms, share, size = s.ms("gpu_ms", 8, 25), s.ms("copy_share", 0.6, 1.6), s.int("block_kib", 64, 512) << 10
    gpu, (mine, theirs) = s.gpu(ms), multiprocessing.Pipe()
    pid = child(prefill, theirs, size).pid
    room = np.zeros((96 * MIB // size, size), np.uint8)  # touched before it is measured
    room[:] = 1
    mine.send(len(room))
    addresses = mine.recv()
    many = int(len(room) * ms * share / 1e3 / min(once(lambda: attach(pid, room, addresses)) for _ in range(3)))
    many = s.keep("blocks", max(min(many, len(room)) // (6 if s.fix else 1), 1))

    def obtain():
        attach(pid, room[:many], mine.recv())
        mine.send(many)
        return room[:many]
    mine.send(many)
    s.loop(gpu, obtain)


# ---- not for data


class Judge(http.server.BaseHTTPRequestHandler):
    """Streams its answer, and leaves the connection open for a while, lest more is asked."""
    linger = 0.0

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        for word in ("the", "second", "is", "better"):
            self.wfile.write(b"data: %s\n\n" % json.dumps({"delta": word}).encode())
        self.wfile.write(b"data: [DONE]\n\n")
        self.wfile.flush()
        time.sleep(self.linger)

    def log_message(self, *_):
        pass


def judge_room(s):
    Judge.linger = float(s.told("linger")) / 1e3
    room = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Judge)
    s.tell("port", room.server_address[1])
    room.serve_forever()


def deltas(port, text, to_end):
    """The words of a judge's answer."""
    link = http.client.HTTPConnection("127.0.0.1", port)
    link.request("POST", "/v1/chat", text)
    with contextlib.closing(link), link.getresponse() as answer:
        for line in answer:
            if line.startswith(b"data: {"):
                yield json.loads(line[6:])["delta"]
            elif line.startswith(b"data: [DONE]") and not to_end:
                return


@job(outside=judge_room, data=CPU, host="host_bound", rest="sync_bound launch_bound")
def lingering_wire(s):
    """Batches come in time, and after a step or few a judge is shown a sample; to blame is the loop's client, which
    reads the stream of events to its end and not to [DONE], and so waits until the judge's server hangs up."""
    ms, every = s.ms("gpu_ms", 8, 35), s.int("every", 1, 4)
    s.tell("linger", ms * every * s.ms("linger_share", 0.4, 1.8))
    gpu, batch, port = s.gpu(ms), side_desk(ms * s.ms("load_share", 0.1, 0.4)), int(s.told("port"))
    verdicts = collections.Counter()
    s.go()
    for n in itertools.count(1):
        s.step(gpu, batch)
        if n % every == 0:
            with s.during("host"):
                verdicts[" ".join(deltas(port, b"which is better? " * 20, not s.fix))] += 1


@job(data=CPU, host="host_bound", rest="sync_bound launch_bound")
def retracted_pages(s):
    """A process has batches ready; when the loss jumps, the loop goes back to the last good state and leaves a batch or
    two out; to blame are these returns, as that state is read from the disk, no longer in memory, and unpacked."""
    ms, every, skip = s.ms("gpu_ms", 8, 30), s.int("every", 3, 8), s.int("skip", 1, 2)
    path, batch = s.data_file("retracted_pages", 64), desk(ms * s.ms("load_share", 0.1, 0.25))
    gpu, fd, cost = s.gpu(ms), os.open(path, os.O_RDONLY), ms * every * s.ms("unpack_share", 0.15, 0.5)
    each = once(lambda: os.pread(fd, 16 * MIB, 0)) / 16
    mib = s.keep("mib", min(max(int(ms * every * s.ms("read_share", 0.25, 0.7) / 1e3 / each), 1), 64))
    s.cold(path)
    s.go()
    for n in itertools.count(1):
        s.step(gpu, batch)
        if n % every == 0 and not s.fix:
            with s.during("host"):
                state = np.frombuffer(os.pread(fd, mib * MIB, 0), np.uint8)
                decode(cost)
                os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            gpu.upload(state.ctypes.data, state.nbytes)
            with s.during("data"):
                for _ in range(skip):
                    batch()


def resampled(seed, scores, times):
    """The metric of so many samples of the scores, drawn with replacement."""
    chance = random.Random(seed)
    return [sum(chance.choices(scores, k=len(scores))) / len(scores) for _ in range(times)]


@job(data=CPU, child="host_bound", host="host_bound", rest="sync_bound launch_bound")
def polled_readers(s):
    """An evaluation harness with many small tasks, whose requests a thread has ready; to blame are the error bars: for
    them the loop has each task's scores drawn anew many times by a pool of processes, and waits for these."""
    ms, batches, share = s.ms("gpu_ms", 8, 30), s.int("batches", 1, 5), s.ms("bootstrap_share", 0.5, 1.6)
    pool = multiprocessing.Pool(2, mortal, (os.getpid(),))
    gpu, batch, scores = s.gpu(ms), side_desk(ms * s.ms("load_share", 0.1, 0.3)), []
    pupils = [n % 7 / 7 for n in range(100)]
    each = once(lambda: resampled(0, pupils, 100)) / 100
    times = s.keep("times", max(int(ms * share / 1e3 / each) // (12 if s.fix else 2), 1))
    seeds = itertools.count()
    s.go()
    while True:
        for n in range(batches):
            s.mark()
            with s.during("data"):
                x = batch()
            gpu.upload(x.ctypes.data, x.nbytes)
            gpu.forward()
            gpu.loss_item()
            scores += [(n + score) / batches for score in pupils]
        with s.during("child"):
            parts = [pool.apply_async(resampled, (next(seeds), scores, times)) for _ in range(4)]
            means = np.concatenate([part.get() for part in parts])
        with s.during("host"):
            s.tell("results.json", json.dumps({"mean": means.mean(), "stderr": means.std()}))
        scores.clear()


@job(data=CPU, host="host_bound sync_bound", rest="sync_bound launch_bound host_bound")
def silent_frames(s):
    """Subtitles by a transducer, whose recordings a process has ready; to blame is its greedy search: after the encoder
    the loop asks of each frame by .item() whether a letter begins there, mostly to hear that it is a blank."""
    ms, launches = s.ms("gpu_ms", 2, 8), s.int("launches", 100, 300)
    frames, joint, cost = s.int("frames", 24, 70), s.int("joint_launches", 2, 6), s.ms("frame_ms", 0.02, 0.15)
    gpu, batch, letters = s.gpu(ms, launches=launches), desk(ms * s.ms("load_share", 0.1, 0.4)), []
    s.go()
    while True:
        s.mark()
        with s.during("data"):
            x = batch()
        gpu.upload(x.ctypes.data, x.nbytes)
        gpu.forward()
        for frame in range(frames // 6 if s.fix else frames):
            s.mark("micro")
            gpu.launch(1, joint)
            gpu.loss_item()
            with s.during("host"):
                parse(cost)
            if s.random.random() < 0.2:
                letters.append(frame)
                gpu.launch(2, joint)  # the predictor
        letters.clear()


# ---- nothing is wrong


@job(data=CPU, host="host_bound", rest="sync_bound launch_bound")
def house_style(s):
    """Nothing is to blame: answers have to keep to a grammar, and for each token the loop itself works out in Python
    which ones are allowed next, but while the model's kernels run, and only the last, small one has to know it."""
    ms, most, prompt = s.ms("token_ms", 14, 45), s.int("tokens", 10, 60), desk(1)
    gpu, cost, allowed = s.gpu(ms), ms * s.ms("mask_share", 0.25, 0.6), np.ones(150000 // 8, np.uint8)
    s.go()
    while True:
        with s.during("data"):
            x = prompt()
        gpu.upload(x.ctypes.data, x.nbytes)
        for _ in range(s.random.randint(2, most)):
            s.mark()
            gpu.forward()
            gpu.backward()
            with s.during("host"):
                parse(cost)
            gpu.upload(allowed.ctypes.data, allowed.nbytes)
            gpu.optimizer()
            gpu.loss_item()


def reporter(link, cost):
    """Looks up passages for two questions."""
    while True:
        questions = link.recv()
        decode(cost)
        link.send([np.full(10000, question, np.float32) for question in questions])


@job(data=CPU, rest="sync_bound launch_bound")
def guessed_headlines(s):
    """Nothing is to blame: a model learns from passages that a process looks up for the two likeliest sequels, while
    it is still busy with the step before; of two one is thrown away, and few are asked for again as both were wrong."""
    ms, wrong = s.ms("gpu_ms", 18, 60), s.int("wrong_every", 9, 15)
    cost, (mine, theirs) = ms * s.ms("look_up_share", 0.3, 0.6), multiprocessing.Pipe()
    gpu = s.gpu(ms)
    child(reporter, theirs, cost)

    def obtain(n):
        guesses = mine.recv()
        if n % wrong == 0:
            mine.send((n,))
            guesses = mine.recv()
        return guesses[n % len(guesses)]
    mine.send((0, 1))
    s.go()
    for n in itertools.count(1):
        s.mark()
        with s.during("data"):
            x = obtain(n)
        gpu.upload(x.ctypes.data, x.nbytes)
        gpu.forward()
        gpu.backward()
        gpu.optimizer()
        mine.send((n, n + 1))
        gpu.loss_item()


def typist(s, place, own, pause, gap):
    """Sends what stands in the box after each key, and reads no answer but the newest."""
    chance = random.Random(own)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as link:
        link.bind(s.path(own))
        link.setblocking(False)
        while True:
            time.sleep(chance.expovariate(1 / pause))
            for letters in range(1, chance.randint(4, 15)):
                time.sleep(gap * chance.uniform(0.5, 1.5))
                with contextlib.suppress(OSError):
                    link.sendto(b"a headline in the making"[:letters], place)
                    while link.recv(4096):
                        pass


def typists(s):
    pause, gap = s.ms("pause_s", 0.3, 1), s.ms("gap_ms", 60, 180) / 1e3
    s.told("go")
    crew = [threading.Thread(target=typist, args=(s, s.path("box"), "typist-%d" % n, pause, gap))
            for n in range(s.int("typists", 2, 4))]
    for t in crew:
        t.start()
    crew[0].join()


@job(outside=typists, demand="no_demand", host="host_bound", rest="sync_bound launch_bound")
def typed_ahead(s):
    """A search that answers while one types: what stands in the box comes as a datagram after each key, of which only
    the newest of each person is embedded and compared with all headlines; nobody is to blame that few are typing."""
    gpu, headlines = s.gpu(s.ms("gpu_ms", 6, 18)), np.ones((s.int("headlines", 1000, 20000), 64), np.float32)
    box = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    box.bind(s.path("box"))
    s.go()
    while True:
        with s.during("demand"):
            text, who = box.recvfrom(200)
        newest = {who: text}
        with s.during("host"), contextlib.suppress(BlockingIOError):
            while True:
                text, who = box.recvfrom(200, socket.MSG_DONTWAIT)
                newest[who] = text
        s.mark()
        with s.during("host"):
            ids = np.zeros((len(newest), 64), np.float32)
            for row, text in zip(ids, newest.values()):
                row[:len(text)] = np.frombuffer(text, np.uint8)
        s.train(gpu, ids)
        with s.during("host"):
            best = (ids @ headlines.T).argmax(axis=1)
            for who, found in zip(newest, best):
                with contextlib.suppress(OSError):
                    box.sendto(b"%d" % found, socket.MSG_DONTWAIT, who)


## Newsrooms
#
# expelled_stringer  network_bound: the loader process waits for the broker's join, in bursts, with heartbeats on
#                    another connection to the same place; hard: it looks like every n-th item being slow.
# lone_compositor    one of the CPU verdicts: a single thread computes; hard: which of the three, by the free cores.
# standing_query     lock_bound: the searcher waits at a gate that the refresher holds, which waits for the report,
#                    which sleeps; hard: the holder itself waits, and who is to blame does not compute or feed the loop.
# cold_postings      io_bound: the loader's main thread waits for its own reading thread, and that for the disk; hard: a
#                    wait through a futex inside of the loader, after many preadv() calls that fail at once.
# borrowed_columns   ipc_bound (or the loop loads itself): neither pipe nor shared memory carries the bytes, but a call
#                    for each block; hard: process_vm_readv() is neither a read nor a wait.
# lingering_wire     host_bound: the loop itself waits for a server, but not for data; hard: not to say network_bound.
# retracted_pages    host_bound: the loop reads a file and unpacks, but no batch; hard: not to say main_thread_loading.
# polled_readers     host_bound: the loop waits for processes between steps; hard: the pool looks like a loader.
# silent_frames      sync_bound, launch_bound or host_bound: tiny kernels, each of them waited for; hard: a step has
#                    dozens of syncs, and where does it begin?
# house_style        balanced: the host is busy for much of each token, but under kernels; hard: not to warn of it.
# guessed_headlines  balanced: the loader is busy half of the time, and asked anew at times; hard: no slow items here.
# typed_ahead        no_demand: datagrams trickle in; hard: not to take those who type for a loader.
