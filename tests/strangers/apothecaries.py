# SPDX-License-Identifier: BSD-2-Clause
"""At the apothecaries: what else sits in and beside a training or inference loop."""
import collections
import concurrent.futures
import fcntl
import heapq
import http.client
import http.server
import inspect
import itertools
import json
import math
import mmap
import multiprocessing
import multiprocessing.connection
import os
import queue
import random
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import zlib

import numpy as np

from stranger import CPU, child, decode, job, parse

KIB, FRAME = 1 << 10, 4 << 10


def once(f):
    """Seconds that f takes."""
    begin = time.monotonic()
    f()
    return time.monotonic() - begin


def took(f):
    """The same, once it is warm and nothing comes between."""
    return min(once(f) for _ in range(4))


def put(out, cost):
    while True:
        decode(cost)
        out.put(np.zeros(20000, np.float32))


def dispensed(cost):
    """A loader that keeps up: a process and a queue."""
    out = multiprocessing.Queue(maxsize=4)
    child(put, out, cost)
    return out.get


def prompt(address):
    """A connection that sends at once what it is given."""
    link = socket.create_connection(address)
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return link


def whole(link, size):
    return link.recv(size, socket.MSG_WAITALL)


# ---- the data is late


def herbals(terms):
    """For each term the passages in which it stands, with its weight in them."""
    chance = random.Random(1)
    return [[(chance.randrange(20000), chance.random()) for _ in range(chance.randint(20, 200))]
            for _ in range(terms)]


def nearest(postings, query):
    """The passages that match best, term by term, as BM25 has it."""
    scores = {}
    for term in query:
        for passage, weight in postings[term]:
            scores[passage] = scores.get(passage, 0.0) + weight
    return heapq.nlargest(4, scores, key=scores.get)


def retrieve(end, postings, queries, known):
    chance, passages = random.Random(2), np.zeros((20000, 128), np.uint8)
    while True:
        asked = [chance.sample(range(len(postings)), 20) for _ in range(queries)]
        found = [known or nearest(postings, query) for query in asked]
        end.send(passages[np.ravel(found)[:500]].tobytes())


@job(data=CPU, rest="sync_bound launch_bound")
def herb_index(s):
    """A language model that looks up neighbours of each chunk while it trains, which a process seeks and sends as one
    packet; to blame is this search, by lists of postings in Python, that could have been made once for all epochs."""
    ms, share, postings = s.ms("gpu_ms", 10, 40), s.ms("search_share", 1.4, 2.6), herbals(1500)
    each = took(lambda: [nearest(postings, range(n, n + 20)) for n in range(0, 1480, 37)]) / 40
    queries = s.keep("queries", max(int(ms * share / 1e3 / each), 2))
    mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    s.supplier(child(retrieve, theirs, postings, queries, [1, 2, 3, 4] if s.fix else None).pid)
    theirs.close()
    s.loop(s.gpu(ms), lambda: np.frombuffer(mine.recv(64 * KIB), np.uint8))


def engine(s):
    """Generates groups of answers on other machines, and says how each was rated."""
    late, chance = float(s.told("late")) / 1e3, random.Random(3)
    door = socket.create_server(("127.0.0.1", 0))
    s.tell("port", door.getsockname()[1])
    link = door.accept()[0]
    while ask := link.recv(8):
        groups, good = struct.unpack("<If", ask)
        time.sleep(late * chance.lognormvariate(0, 0.15))
        odds = [chance.choice([0.4, 0.7]) if chance.random() < good else chance.randint(0, 1) for _ in range(groups)]
        rated = [[chance.random() < odd for _ in range(8)] for odd in odds]
        link.sendall(b"".join(bytes(one) + bytes(2 * KIB) for one in rated))


def sift(end, port, need, good, surplus):
    """Asks for as many groups as are missing, until there are enough whose answers are not all alike."""
    link, kept = prompt(("127.0.0.1", port)), []
    while True:
        while len(kept) < need:
            ask = surplus or need - len(kept)
            link.sendall(struct.pack("<If", ask, good))
            for _ in range(ask):
                group = whole(link, 8 + 2 * KIB)
                if len(set(group[:8])) > 1:
                    kept.append(group)
        end.send_bytes(b"".join(kept[:need]))
        del kept[:need]


@job(outside=engine, data="network_bound too_few_workers", rest="sync_bound launch_bound")
def rejected_pills(s):
    """Dynamic sampling as in DAPO: groups whose answers are all right or all wrong teach nothing, and a process asks
    the far engine for others; to blame is that engine, asked again and again for just those that are missing."""
    ms, need, good = s.ms("gpu_ms", 15, 50), s.int("groups", 6, 10), s.one("good", 0.35, 0.5, 0.65)
    rounds = 0.5 - sum(1 / n for n in range(1, need + 1)) / math.log(1 - good)  # for a batch, on average
    s.tell("late", ms * s.ms("late_share", 1.4, 2.8) / rounds)
    mine, theirs = multiprocessing.Pipe(duplex=False)
    port, gpu = int(s.told("port")), s.gpu(ms)
    s.supplier(child(sift, theirs, port, need, good, 8 * need if s.fix else 0).pid)
    theirs.close()
    s.loop(gpu, lambda: np.frombuffer(mine.recv_bytes(), np.uint8))


def world(end, token, seed, play, render):
    """Plays with the weights it has; to render, it needs the one context."""
    chance = random.Random(seed)
    while True:
        for _ in range(8):
            parse(play / 8 * chance.uniform(0.7, 1.3))
            os.eventfd_read(token)
            decode(render / 8)
            os.eventfd_write(token, 1)
        end.send_bytes(bytes(8 * 84 * 84))


@job(data="lock_bound", rest="sync_bound launch_bound")
def one_mortar(s):
    """Worlds in processes send unrolls of rendered frames, taken in any order; to blame is the one rendering context,
    lent out frame by frame by an eventfd that counts as a semaphore, as it had to be while there was one screen."""
    ms, worlds = s.ms("gpu_ms", 12, 45), s.int("worlds", 2, 4)
    play, render = ms * s.ms("play_share", 0.1, 0.25), ms * s.ms("render_share", 1.4, 2.4)
    token, gpu, ends = os.eventfd(1, os.EFD_SEMAPHORE), s.gpu(ms), []
    for n in range(worlds):
        mine, theirs = multiprocessing.Pipe(duplex=False)
        child(world, theirs, token, n, play, render / 4 if s.fix else render)
        ends.append(mine)

    def obtain():
        ready = multiprocessing.connection.wait(ends)
        return np.frombuffer(s.random.choice(ready).recv_bytes(), np.uint8)
    s.loop(gpu, obtain)


def steep(slots, rung, credit, policy):
    """Augments batch after batch, op by op of its policy, into two places by turns."""
    for n in itertools.count():
        credit.acquire()
        for cost in policy:
            decode(cost)
        slots[n % 2] += 1
        os.write(rung, b"b")


@job(data="slow_worker", rest="sync_bound launch_bound")
def bitter_policy(s):
    """Population-based augmentation: each worker tries a policy of its own on its part of the set, and they are asked
    by turns; to blame is one of them, whose policy has grown by mutation to many times as many operations."""
    ms, workers, steps = s.ms("gpu_ms", 10, 35), s.int("workers", 2, 4), s.int("operations", 2, 5)
    grown, odd = ms * s.ms("policy_share", 1.5, 2.6) * workers, s.int("odd", 0, workers - 1)
    brief, vats, gpu = ms * s.ms("brief_share", 0.15, 0.35), [], s.gpu(ms)
    for n in range(workers):
        slots = np.frombuffer(mmap.mmap(-1, 128 * KIB), np.uint8).reshape(2, 64 * KIB)
        (bell, rung), credit = os.pipe(), multiprocessing.Semaphore(2)
        long = n == odd and not s.fix
        policy = [grown / (5 * steps)] * (5 * steps) if long else [brief / steps] * steps
        pid = child(steep, slots, rung, credit, policy).pid
        vats.append((bell, credit, itertools.cycle(slots)))
        if long:
            s.supplier(pid)
    turn = itertools.cycle(vats)

    def obtain():
        bell, credit, slots = next(turn)
        os.read(bell, 1)
        x = next(slots).copy()
        credit.release()
        return x
    s.loop(gpu, obtain)


def serve_labels(door):
    """Has the soft labels of all batches in memory."""
    link, labels = door.accept()[0], memoryview(bytes(2000 * FRAME))
    while ask := whole(link, 4):
        link.sendall(labels[:struct.unpack("<I", ask)[0] * FRAME])


def far_end(door, labels):
    """Takes the answer from the server and sends it on, each frame when the last one has been confirmed."""
    tunnel, server = door.accept()[0], prompt(labels)
    while ask := whole(tunnel, 4):
        server.sendall(ask)
        for _ in range(struct.unpack("<I", ask)[0]):
            tunnel.sendall(whole(server, FRAME))
            whole(tunnel, 8)


def near_end(door, far):
    link, tunnel = door.accept()[0], prompt(far)
    while ask := whole(link, 4):
        tunnel.sendall(ask)
        for n in range(struct.unpack("<I", ask)[0]):
            link.sendall(whole(tunnel, FRAME))
            tunnel.sendall(struct.pack("<Q", n))


@job(data="ipc_bound", rest="sync_bound launch_bound")
def speaking_tube(s):
    """Distillation from soft labels that a server process has in memory, which a thread asks for ahead; to blame is
    the tunnel of a port forward between them, two processes that confirm each small frame before the next one goes."""
    ms, share, ahead = s.ms("gpu_ms", 12, 40), s.ms("tunnel_share", 1.5, 2.8), s.int("ahead", 1, 3)
    doors = [socket.create_server(("127.0.0.1", 0)) for _ in range(3)]
    names = [door.getsockname() for door in doors]
    child(serve_labels, doors[0])
    if not s.fix:
        child(far_end, doors[1], names[0])
        child(near_end, doors[2], names[1])
    link = prompt(names[0 if s.fix else 2])

    def ask(frames):
        link.sendall(struct.pack("<I", frames))
        return whole(link, frames * FRAME)
    each = 1e-4 if s.fix else took(lambda: ask(300)) / 300
    frames, labels = s.keep("frames", min(max(int(ms * share / 1e3 / each), 8), 2000)), queue.Queue(ahead)

    def feed():
        while True:
            labels.put(np.frombuffer(ask(frames), np.uint8))
    threading.Thread(target=feed, daemon=True).start()
    s.loop(s.gpu(ms), labels.get)


STILL = """
import array, ctypes, fcntl, json, os, sys
import numpy
ctypes.CDLL(None).prctl(1, 9)
parent, end, index, stage, many = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], int(sys.argv[4]), int(sys.argv[5])
if os.getppid() != parent:
    os._exit(0)
with open(index, encoding="ascii") as f:
    chosen = [e for e in json.load(f) if e["level"] <= stage % 8 + 1]
for n in range(many):
    batch = numpy.full(20000, chosen[n % len(chosen)]["id"], numpy.float32)
    left = memoryview(batch.tobytes())
    while left:
        left = left[os.write(end, left):]
sys.argv[4] = str(stage + 1)
os.execv(sys.executable, [sys.executable, "-c", os.environ["STILL"]] + sys.argv[1:])
"""


@job(data="loader_restart", rest="sync_bound launch_bound")
def changed_bottles(s):
    """A loader program has its curriculum from the command line, and for each short stage it replaces itself by exec,
    as servers do when they are to read their settings anew; to blame are its start, its imports and its index."""
    ms, many, size = s.ms("gpu_ms", 10, 25), s.int("stage_batches", 6, 11), s.int("entries", 30000, 90000)
    with open(s.path("index.json"), "w", encoding="ascii") as f:
        json.dump([{"id": n, "level": n % 8, "file": "exercise-%d" % n} for n in range(size)], f)
    mine, theirs = os.pipe()
    fcntl.fcntl(theirs, fcntl.F_SETPIPE_SZ, 256 * KIB)
    loader = subprocess.Popen([sys.executable, "-c", STILL, str(os.getpid()), str(theirs), s.path("index.json"), "0",
                               str(10**9 if s.fix else many)], pass_fds=[theirs], env=dict(os.environ, STILL=STILL))
    s.supplier(loader.pid)
    os.close(theirs)
    stream, gpu = os.fdopen(mine, "rb"), s.gpu(ms)
    s.loop(gpu, lambda: np.frombuffer(stream.read(80000), np.float32))


# ---- not for data


def shelve(end, root, chunks):
    """Saves the state as one small file for each chunk; one that has not changed becomes a link to the last save's."""
    os.nice(10)
    last = None
    for n in itertools.count():
        new = os.path.join(root, "save-%d" % n)
        os.mkdir(new)
        for chunk in range(chunks):
            name = "/%d.zst" % chunk
            if last and chunk % 100 == n % 100:
                with open(new + name, "wb") as f:
                    f.write(b"a chunk of a layer" * 20)
            else:
                os.link(last + name if last else root + "/zeros", new + name)
        end.send(new)
        last = end.recv()


@job(data=CPU, ckpt="checkpoint_stall host_bound", rest="sync_bound launch_bound")
def swept_floor(s):
    """A process saves the state in the background, chunk by chunk, and costs nothing; to blame is the loop, which
    itself removes the oldest of the saves that are kept, as their folders have thousands of small files."""
    ms, every, share = s.ms("gpu_ms", 8, 20), s.int("every", 1, 2), s.ms("remove_share", 0.5, 1.3)
    root, gpu, batch = s.path("saves"), s.gpu(ms), dispensed(ms * s.ms("load_share", 0.05, 0.15))

    def trial(folder):
        for chunk in range(800):
            os.link(root + "/zeros", folder + "/%d" % chunk)
        return once(lambda: shutil.rmtree(folder))
    os.mkdir(root)
    os.mknod(root + "/zeros")  # what a chunk is at first
    each = min(trial(tempfile.mkdtemp(dir=root)) for _ in range(3)) / 800
    chunks = s.keep("chunks", min(max(int(ms * every * share / 1e3 / each), 100), 3000))
    (mine, theirs), kept = multiprocessing.Pipe(), collections.deque()
    child(shelve, theirs, root, chunks)
    sweeper = concurrent.futures.ThreadPoolExecutor(1)
    s.go()
    for n in itertools.count(1):
        s.step(gpu, batch)
        if n % every == 0 and mine.poll():
            kept.append(mine.recv())
            mine.send(kept[-1])
        if len(kept) > 2 and s.fix:
            sweeper.submit(subprocess.run, ["nice", "rm", "-r", kept.popleft()], check=False)
        elif len(kept) > 2:
            with s.during("ckpt"):
                shutil.rmtree(kept.popleft())


ENCODER = """
import ctypes, os, sys, zlib
ctypes.CDLL(None).prctl(1, 9)
packer = zlib.compressobj(6)
with open(sys.argv[1], "wb") as out:
    while frame := os.read(0, 1 << 16):
        out.write(packer.compress(frame))
    out.write(packer.flush())
"""


@job(data=CPU, child="host_bound", rest="sync_bound launch_bound")
def moving_pictures(s):
    """Transitions come in time, and every few steps an episode is filmed, as by a wrapper for environments: to blame
    is the loop, which pushes the frames into an encoder program's pipe at its pace, and waits until it ends."""
    ms, every, share = s.ms("gpu_ms", 12, 40), s.int("every", 3, 8), s.ms("film_share", 0.4, 1.3)
    gpu, batch, size = s.gpu(ms), dispensed(ms * s.ms("load_share", 0.1, 0.4)), 48 * KIB
    frames = np.random.default_rng(1).integers(0, 24, (64, size), np.uint8)

    def film(many):
        program = subprocess.Popen([sys.executable, "-S", "-c", ENCODER, s.path("episode.mp4")], stdin=subprocess.PIPE)
        for n in range(many):
            program.stdin.write(frames[n % 64])
        program.stdin.close()
        return program.wait()
    start = took(lambda: film(1))
    each = max(took(lambda: film(21)) - start, 1e-3) / 20
    many = s.keep("frames", min(max(int((ms * every * share / 1e3 - start) / each), 1), 600))
    s.go()
    for n in itertools.count(1):
        s.step(gpu, batch)
        if n % every == 0 and not s.fix:
            with s.during("child"):
                film(many)


def nested(depth, f, *more):
    return nested(depth - 1, f, *more) if depth else f(*more)


@job(data=CPU, host="host_bound", rest="sync_bound launch_bound")
def labelled_vials(s):
    """A process has batches ready, and after each step a trainer logs the metrics of its heads; to blame is the logger,
    which finds its caller's name by inspect.stack(), and that looks up the source of each frame on the stack."""
    ms, share, layers = s.ms("gpu_ms", 10, 40), s.ms("label_share", 0.4, 1.4), s.int("layers", 3, 12)
    gpu, batch, kept = s.gpu(ms), dispensed(ms * s.ms("load_share", 0.1, 0.4)), {}

    def log(head, value):
        kept[sys._getframe(1).f_code.co_name if s.fix else inspect.stack()[1].function, head] = value

    def report(many):
        for head in range(many):
            log(head, gpu.loss.value)
    each = took(lambda: nested(layers, report, 20)) / 20
    heads = s.keep("heads", 20 if s.fix else max(int(ms * share / 1e3 / each), 1))
    s.go()
    while True:
        s.step(gpu, batch)
        with s.during("host"):
            nested(layers, report, heads)


def gateway(s):
    """The platform's runtime interface: it answers a call for the next invocation when a customer has come."""
    chance, rate, numbers = random.Random(5), float(s.told("rate")), itertools.count()

    class Runtime(http.server.BaseHTTPRequestHandler):
        protocol_version, disable_nagle_algorithm = "HTTP/1.1", True

        def do_GET(self):
            time.sleep(chance.expovariate(rate))  # nobody comes
            self.answer({"id": next(numbers), "text": "is this a rash? " * chance.randint(5, 60)})

        def do_POST(self):
            self.rfile.read(int(self.headers["Content-Length"]))
            self.answer({})

        def answer(self, what):
            body = json.dumps(what).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass
    door = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Runtime)
    s.tell("port", door.server_address[1])
    door.serve_forever()


@job(outside=gateway, demand="no_demand", host="host_bound", rest="sync_bound launch_bound")
def night_bell(s):
    """A model as a serverless function: the loop asks the platform for the next invocation, which holds the call until
    a customer comes, and posts its answer; nobody is to blame that few come at night."""
    gpu, passes = s.gpu(s.ms("gpu_ms", 8, 30)), s.int("passes", 1, 3)
    s.tell("rate", s.ms("rate", 4, 30))
    link = http.client.HTTPConnection("127.0.0.1", int(s.told("port")))

    def call(method, path, body=None):
        link.request(method, path, body)
        return json.loads(link.getresponse().read())
    s.go()
    while True:
        with s.during("demand"):
            asked = call("GET", "/runtime/invocation/next")
        with s.during("host"):
            ids = np.array([zlib.crc32(word.encode()) % 30000 for word in asked["text"].split()], np.int64)
        for _ in range(passes):
            s.mark()
            gpu.upload(ids.ctypes.data, ids.nbytes)
            gpu.forward()
            gpu.loss_item()
        with s.during("host"):
            call("POST", "/runtime/invocation/%d/response" % asked["id"], json.dumps({"answer": gpu.loss.value}))


# ---- nothing is wrong


def distil(shelf, made, cost):
    while True:
        decode(cost)
        shelf[made.value % len(shelf)] += 1
        made.value += 1


@job(data=CPU, rest="sync_bound launch_bound")
def stoppered_flask(s):
    """Nothing is to blame: a video decoder knows no flow control, and a thread stops it by a signal when the shelf is
    nearly full, and has it go on when that has emptied; it stands still for long, but the loop never finds nothing."""
    ms, share, high = s.ms("gpu_ms", 15, 50), s.ms("load_share", 0.25, 0.6), s.int("high", 7, 10)
    shelf = np.frombuffer(mmap.mmap(-1, 1024 * KIB), np.uint8).reshape(16, 64 * KIB)
    made, gpu, used = multiprocessing.RawValue("q", 0), s.gpu(ms), [0]
    pid = child(distil, shelf, made, ms * share).pid

    def govern():
        for number, due in itertools.cycle([(signal.SIGSTOP, lambda ahead: ahead >= high),
                                            (signal.SIGCONT, lambda ahead: ahead <= 4)]):
            while not due(made.value - used[0]):
                time.sleep(0.002)
            os.kill(pid, number)
    threading.Thread(target=govern, daemon=True).start()

    def obtain():
        while made.value == used[0]:
            time.sleep(0.0005)
        used[0] += 1
        return shelf[(used[0] - 1) % 16].copy()
    s.loop(gpu, obtain)


def infuse(end, gradient, residue, far):
    """Sends the largest part of each gradient to another site, and keeps the rest for the next one."""
    while end.recv():
        residue += gradient
        largest = np.argpartition(np.abs(residue), -1000)[-1000:]
        packed = zlib.compress(residue[largest].tobytes())
        residue[largest] = 0
        time.sleep(far)  # there and back
        end.send(len(packed))


def stir(asked, made, vat, cost):
    while True:
        while made.value == asked.value:  # to lose no time
            pass
        decode(cost)
        vat += 1
        made.value += 1


@job(data=CPU, peer="host_bound", rest="sync_bound launch_bound")
def slow_infusion(s):
    """Nothing is to blame: gradients are compressed and swapped with a far site by a process, but learnt from one step
    late; the loader spins all the time, has never more than one batch, and has it when it is needed."""
    ms, share, far = s.ms("gpu_ms", 25, 70), s.ms("load_share", 0.25, 0.6), s.ms("far_share", 0.2, 0.5)
    gradient, vat = (np.frombuffer(mmap.mmap(-1, 256 * KIB), np.float32) for _ in range(2))
    asked, made = (multiprocessing.RawValue("q", n) for n in (1, 0))
    end, theirs = multiprocessing.Pipe()
    child(infuse, theirs, gradient, np.zeros(64 * KIB, np.float32), ms * far / 1e3)
    child(stir, asked, made, vat, ms * share)
    gpu = s.gpu(ms)

    def obtain():
        while made.value < asked.value:
            time.sleep(0.0002)
        x = vat.copy()
        asked.value += 1
        return x
    s.go()
    for n in itertools.count():
        s.step(gpu, obtain)
        if n:
            with s.during("peer"):
                end.recv()
        gpu.check(gpu.lib.cudaMemcpy(gradient.ctypes.data, gpu.input, gradient.nbytes, 2))
        end.send(n + 1)
