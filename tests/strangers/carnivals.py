# SPDX-License-Identifier: BSD-2-Clause
"""At the carnival: the training recipes of today, with agents, adapters, teachers and tenants, as teams run them."""
import functools
import hashlib
import http.client
import http.server
import io
import itertools
import json
import mmap
import multiprocessing
import multiprocessing.connection
import os
import queue
import random
import signal
import sqlite3
import subprocess
import threading
import time
import tty

import numpy as np

from stranger import CPU, child, decode, job, mortal, parse

MIB, H2D, D2H = 1 << 20, 1, 2


def took(f, clock=time.thread_time):
    """Milliseconds that f takes once it is warm; of this thread's CPU, where no other clock is given."""
    f()
    begin = clock()
    f()
    return max((clock() - begin) * 1e3, 1e-3)


# ---- the data is late


def cut(db, talk, place, size):
    """A window of a recording that is one BLOB, as by incremental I/O."""
    with db.blobopen("talks", "pcm", talk, readonly=True) as blob:
        blob.seek(place)
        return blob.read(size)


def dance(link, path, talks, length, windows, size):
    db, chance = sqlite3.connect(path), random.Random(1)
    while True:
        link.send_bytes(b"".join(cut(db, chance.randint(1, talks), chance.randrange(length // 2, length - size), size)
                                 for _ in range(windows)))


@job(data=CPU, rest="sync_bound launch_bound")
def conga_line(s):
    """Speech: a process cuts windows out of recordings that are BLOBs of one SQLite file, cached by now; to blame is
    their length, for to come to a window's place SQLite goes along the chain of all the pages before it."""
    ms, talks, length, size = s.ms("gpu_ms", 10, 40), 4, s.int("mib", 3, 6) * MIB, s.int("kib", 4, 16) << 10
    path = s.path("talks.db")
    db = sqlite3.connect(path)
    db.executescript("PRAGMA journal_mode=OFF; CREATE TABLE talks (id INTEGER PRIMARY KEY, pcm BLOB)")
    db.executemany("INSERT INTO talks (pcm) VALUES (zeroblob(?))", [(length,)] * talks)
    db.commit()
    each = took(lambda: [cut(db, n + 1, length // 4 * 3, size) for n in range(talks)]) / talks
    db.close()
    windows = s.keep("windows", min(max(round(ms * s.ms("cut_share", 1.5, 2.6) / each), 2), 1000))
    mine, theirs = multiprocessing.Pipe(duplex=False)
    gpu = s.gpu(ms)
    s.supplier(child(dance, theirs, path, talks, length, max(windows // 8, 1) if s.fix else windows, size).pid)
    s.loop(gpu, lambda: np.frombuffer(mine.recv_bytes(), np.int16).astype(np.float32))


def teacher(s):
    """A large model elsewhere: it streams what it thinks of a prompt, token by token."""
    pace = float(s.told("pace")) / 1e3
    event = b"data: %s\n\n" % json.dumps({"top_logprobs": [round(-n / 7, 4) for n in range(20)]}).encode()

    class Desk(http.server.BaseHTTPRequestHandler):
        protocol_version, disable_nagle_algorithm = "HTTP/1.1", True

        def do_POST(self):
            ask = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            for _ in range(ask["max_tokens"]):
                time.sleep(pace)
                self.wfile.write(b"%x\r\n%s\r\n" % (len(event), event))
            self.wfile.write(b"0\r\n\r\n")

        def log_message(self, *_):
            pass
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Desk)
    s.tell("port", server.server_address[1])
    server.serve_forever()


def listen(out, port, tokens):
    link = http.client.HTTPConnection("127.0.0.1", port)
    ask = json.dumps({"prompt": "once upon a time", "max_tokens": tokens, "stream": True})
    while True:
        link.request("POST", "/v1/completions", ask)
        out.put(np.array([json.loads(line[6:])["top_logprobs"] for line in link.getresponse()
                          if line.startswith(b"data: ")], np.float32))


@job(outside=teacher, data="network_bound too_few_workers", rest="sync_bound launch_bound")
def fortune_teller(s):
    """Distillation with accumulation: a process has a teacher's service stream its best guesses for each token as
    server-sent events, one answer at a time; to blame is the teacher, whose tokens come at leisure."""
    ms, parts, tokens = s.ms("gpu_ms", 12, 45), s.int("micro_batches", 2, 4), s.int("tokens", 8, 24)
    s.tell("pace", ms * s.ms("late_share", 1.5, 2.8) / tokens / (20 if s.fix else 1))
    gpu, out = s.gpu(ms), multiprocessing.Queue(maxsize=3)
    s.supplier(child(listen, out, int(s.told("port")), tokens).pid)
    s.go()
    while True:
        s.mark()
        for _ in range(parts):
            s.mark("micro")
            with s.during("data"):
                x = out.get()
            gpu.upload(x.ctypes.data, x.nbytes)
            gpu.forward()
            gpu.backward()
        gpu.optimizer()
        gpu.loss_item()


class Sealed(io.RawIOBase):
    """A packed file of a store, as a file system in Python opens it: what is read is unpacked on the way."""

    def __init__(self, cost):
        self.cost = cost

    def readable(self):
        return True

    def readinto(self, view):
        decode(self.cost)
        view[:] = bytes(len(view))
        return len(view)


@job(data="lock_bound", threads=True, rest="sync_bound launch_bound")
def turnstile(s):
    """Pre-training: threads take block after block of packed tokens from one file, which unpacks in C; to blame is
    the lock that an io.BufferedReader has, and holds while its raw file works, so that one unpacks at a time."""
    ms, threads, block = s.ms("gpu_ms", 8, 40), s.int("threads", 2, 3), 1 << s.int("block_bits", 15, 17)
    cost = ms * s.ms("unpack_share", 1.4, 2.4)
    gpu, out = s.gpu(ms), queue.Queue(maxsize=4)
    shared = io.BufferedReader(Sealed(cost), block)

    def take():
        tokens = io.BufferedReader(Sealed(cost / 4), block) if s.fix else shared
        while True:
            x = np.frombuffer(tokens.read(block), np.uint16).astype(np.int32)
            decode(ms * 0.05)  # documents are told apart
            out.put(x)
    for _ in range(threads):
        threading.Thread(target=take, daemon=True).start()
    s.loop(gpu, out.get)


SEEDS, FANOUT, HUBS, NODES = 32, 10, 2, 500


def pick(chance, begin, end, fanout):
    """A sample of a node's edges in one pass over all of them, as by Algorithm R."""
    kept, draw = list(range(begin, begin + fanout)), chance.random
    for n in range(fanout, end - begin):
        at = int(draw() * (n + 1))
        if at < fanout:
            kept[at] = begin + n
    return kept


def ride(first, starts, edges, every, bell, made, used, slots):
    """Samples each second batch's neighbours; in some of these batches there is a hub."""
    chance = random.Random(first)
    for turn in itertools.count(first, 2):
        seeds = [chance.randrange(HUBS, NODES) for _ in range(SEEDS)]
        if turn % every == 0:
            seeds[0] = chance.randrange(HUBS)
        nodes = edges[np.array([pick(chance, starts[node], starts[node + 1], FANOUT) for node in seeds])]
        with bell:
            bell.wait_for(lambda: made[first] == used[first])
            slots[first] = nodes
            made[first] += 1
            bell.notify_all()


@job(data="slow_item", rest="sync_bound launch_bound")
def carousel_hub(s):
    """Graph sampling by two processes in turn, which hand over by a shared condition; to blame are a few nodes that
    everybody is connected with: a pass over all edges of such a hub takes long, whichever process meets it."""
    ms, every = s.ms("gpu_ms", 8, 25), s.one("every", 7, 9, 11)
    each = took(lambda: pick(random.Random(1), 0, 50000, FANOUT)) / 50000
    few = max(int(ms * s.ms("load_share", 0.1, 0.35) / SEEDS / each), FANOUT + 2)
    many = 2 * few if s.fix else int(ms * s.ms("hub_steps", 9, 14) / each)
    starts = [0, *itertools.accumulate([many] * HUBS + [few] * (NODES - HUBS))]
    edges = np.random.default_rng(1).integers(0, NODES, starts[-1], np.int32)
    bell, gpu = multiprocessing.Condition(), s.gpu(ms)
    made, used = multiprocessing.RawArray("q", 2), multiprocessing.RawArray("q", 2)
    slots = np.frombuffer(multiprocessing.RawArray("i", 2 * SEEDS * FANOUT), np.int32).reshape(2, SEEDS, FANOUT)
    for n in range(2):
        child(ride, n, starts, edges, every, bell, made, used, slots)
    turn = itertools.cycle(range(2))

    def obtain():
        n = next(turn)
        with bell:
            bell.wait_for(lambda: made[n] > used[n])
            nodes = slots[n].copy()
            used[n] += 1
            bell.notify_all()
        return nodes
    s.loop(gpu, obtain)


def play(n, cost, steps, frame, made, used, seats):
    """Plays unrolls of some steps; a world that is shown keeps to its frames, as render_mode="human" has it."""
    for turn in itertools.count():
        for _ in range(steps):
            begin = time.monotonic()
            parse(cost / steps)
            time.sleep(max(frame - (time.monotonic() - begin), 0))
        while made[n] - used[n] >= 2:
            time.sleep(0.0005)
        seats[n, turn % 2] = turn
        made[n] += 1


@job(data="slow_worker", rest="sync_bound launch_bound")
def vip_box(s):
    """PPO: three actors leave unrolls in shared memory, where the learner polls a count for each and takes one of
    everybody's; to blame is `render_mode="human" if idx == 0`, by which one of them sleeps until its next frame."""
    ms, shown, steps = s.ms("gpu_ms", 8, 40), s.int("shown", 0, 2), s.int("unroll", 4, 12)
    frame, cost = ms * s.ms("frames_share", 1.5, 2.6) / steps / 1e3, ms * s.ms("play_share", 0.06, 0.2)
    made, used = multiprocessing.RawArray("q", 3), multiprocessing.RawArray("q", 3)
    seats = np.frombuffer(multiprocessing.RawArray("f", 3 * 2 * 8000), np.float32).reshape(3, 2, 8000)
    gpu = s.gpu(ms)
    for n in range(3):
        pid = child(play, n, cost, steps, frame if n == shown and not s.fix else 0, made, used, seats).pid
        if n == shown:
            s.supplier(pid)

    def obtain():
        parts = []
        for n in range(3):
            while made[n] == used[n]:
                time.sleep(0.0002)
            parts.append(seats[n, used[n] % 2].copy())
            used[n] += 1
        return np.stack(parts)
    s.loop(gpu, obtain)


def push(out, turns, delay, cost):
    """An agent at a shell, driven as by pexpect: delaybeforesend, a line, what the shell says to that."""
    shell = subprocess.Popen(["sh"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                             preexec_fn=functools.partial(mortal, os.getpid()))
    while True:
        talk = bytearray(8192)
        for turn in range(turns):
            time.sleep(delay)
            shell.stdin.write(b"echo turn %d of %d\n" % (turn, turns))
            shell.stdin.flush()
            said = shell.stdout.readline()
            talk[64 * turn:64 * turn + len(said)] = said
        parse(cost)  # the chat template, the loss mask
        out.put(np.frombuffer(talk, np.uint8).astype(np.int64))


@job(data="too_few_workers", rest="sync_bound launch_bound")
def coin_pusher(s):
    """Agents learn to use a shell: each process has a shell of its own, types a turn's line and reads what comes at
    once; to blame is pexpect's delaybeforesend, a pause before each line, which the few processes sleep through."""
    ms, workers, turns = s.ms("gpu_ms", 12, 45), s.int("agents", 1, 2), s.int("turns", 4, 10)
    delay = ms * s.ms("delay_share", 1.5, 2.8) * workers / turns / 1e3
    gpu, out = s.gpu(ms), multiprocessing.Queue(maxsize=3)
    pids = [child(push, out, turns, delay / 15 if s.fix else delay, ms * 0.04).pid for _ in range(workers)]
    if workers == 1:
        s.supplier(pids[0])
    s.loop(gpu, out.get)


def show(terminal, size, most):
    """A renderer in a container that was started with -t: its views are ready, and it writes them when asked."""
    views = memoryview(bytes(most))
    while os.read(terminal, 1):
        left = views[:size.value]
        while left:
            left = left[os.write(terminal, left):]


@job(data="ipc_bound main_thread_loading", rest="sync_bound launch_bound")
def peep_box(s):
    """LoRA on views of an object that a renderer in a container has ready, asked for one step ahead; to blame is the
    terminal that it was given, `docker run -it`, which hands the bytes to the loop a few thousand at a time."""
    ms, share, most = s.ms("gpu_ms", 8, 25), s.ms("terminal_share", 0.5, 1.5), 48 * MIB
    mine, terminal = os.openpty()
    tty.setraw(terminal)
    size, gpu = multiprocessing.RawValue("q", MIB), s.gpu(ms)
    child(show, terminal, size, most)

    def take(x):
        left = memoryview(x)
        while left:
            left = left[os.readv(mine, [left]):]
        return x

    def ask():
        os.write(mine, b"n")
    some = np.zeros(MIB, np.uint8)
    each = took(lambda: (ask(), take(some)), time.monotonic) / MIB
    size.value = s.keep("bytes", min(max(int(ms * share / each), 64 << 10), most)) // (20 if s.fix else 1)
    view = np.zeros(size.value, np.uint8)

    def obtain():
        take(view)
        ask()
        return view
    ask()
    s.loop(gpu, obtain)


def packed(path, rows):
    """A file of prices as by savez_compressed, opened."""
    np.savez_compressed(path, prices=np.random.default_rng(1).integers(0, 60, (rows, 16)).astype(np.float32))
    return np.load(path)


@job(data="main_thread_loading", rest="sync_bound launch_bound")
def costume_trunk(s):
    """Forecasting from windows that get longer and start anew; to blame is `trunk["prices"][rows]` in the loop, as
    what np.load() gives for an .npz file unpacks the whole array each time that one asks for it by its name."""
    ms, period, many = s.ms("gpu_ms", 10, 40), s.int("stage_steps", 5, 25), s.int("batch", 16, 48)
    few = packed(s.path("few.npz"), 40000)
    each = took(lambda: few["prices"]) / 40000
    rows = s.keep("rows", max(int(ms * s.ms("unpack_share", 0.5, 1.4) / each), 2000))
    trunk, gpu = packed(s.path("prices.npz"), rows), s.gpu(ms)
    steps, chance = itertools.count(), np.random.default_rng(2)
    kept = trunk["prices"] if s.fix else None

    def obtain():
        window = (24, 48, 96)[next(steps) // period % 3]
        place = chance.integers(0, rows - window, many)[:, None] + np.arange(window)
        return kept[place] if s.fix else trunk["prices"][place]
    s.loop(gpu, obtain)


def pitched(fd, begin, size, flags):
    """What a few users have in a shard of the table, which is mapped for that and forgotten again."""
    with mmap.mmap(fd, size, flags=flags, prot=mmap.PROT_READ, offset=begin) as tent:
        rows = tent[4096:4096 + 512]
    os.posix_fadvise(fd, begin, size, os.POSIX_FADV_DONTNEED)
    return rows


def pitch(out, path, shards, size, flags):
    with open(path, "rb", buffering=0) as f:
        places = itertools.cycle(range(0, os.path.getsize(path), size))
        while True:
            rows = b"".join(pitched(f.fileno(), next(places), size, flags) for _ in range(shards))
            out.put(np.frombuffer(rows, np.uint8).astype(np.float32))


@job(data="page_fault_io io_bound", rest="sync_bound launch_bound")
def big_top(s):
    """A recommender whose embeddings lie in shards on the disk, more than memory holds; to blame is MAP_POPULATE in
    the process that looks rows up, for mmap() then waits for all pages of a shard, of which a row or two are used."""
    ms, share, size = s.ms("gpu_ms", 6, 18), s.ms("map_share", 1.6, 2.8), s.one("shard_mib", 1, 2) * MIB
    path, flags = s.data_file("big_top", 64), mmap.MAP_SHARED | mmap.MAP_POPULATE
    with open(path, "rb", buffering=0) as f:
        begin = time.monotonic()
        for n in range(16):
            pitched(f.fileno(), n * size, size, flags)
        each = (time.monotonic() - begin) * 1e3 / 16
    s.cold(path)
    shards = s.keep("shards", min(max(round(ms * share / each), 1), 300))
    gpu, out = s.gpu(ms), multiprocessing.Queue(maxsize=4)
    s.supplier(child(pitch, out, path, shards, size, mmap.MAP_SHARED if s.fix else flags).pid)
    s.loop(gpu, out.get)


# ---- not for data


def put(out, cost):
    while True:
        decode(cost)
        out.put(np.zeros(20000, np.float32))


def veiled(change, guest, guests, turn):
    """A client's change under the masks that it has with each of the others, which cancel out in the sum."""
    total = change.copy()
    for other in range(guests):
        if other != guest:
            pair = b"%d %d %d" % (turn, min(guest, other), max(guest, other))
            mask = np.frombuffer(hashlib.shake_256(pair).digest(change.nbytes), np.uint32)
            total += mask if other > guest else -mask
    return total


@job(data=CPU, host="host_bound", rest="sync_bound launch_bound")
def masked_ball(s):
    """Federated rounds with secure aggregation, simulated on one device; after a client's few local steps the loop
    hashes out a mask with each of the other clients: to blame are these masks, while a process keeps up."""
    ms, every, guests = s.ms("gpu_ms", 8, 35), s.int("local_steps", 1, 4), s.int("clients", 4, 10)
    some = np.zeros(20000, np.uint32)
    each = took(lambda: veiled(some, 0, guests, 0)) / len(some)
    size = s.keep("parameters", max(int(ms * every * s.ms("mask_share", 0.45, 1.3) / each), 1000))
    gpu, out = s.gpu(ms, input_bytes=max(4 * size, MIB)), multiprocessing.Queue(maxsize=4)
    child(put, out, ms * s.ms("load_share", 0.1, 0.4))
    change, total = np.zeros(size, np.uint32), np.zeros(size, np.uint32)
    s.go()
    for n in itertools.count(1):
        s.step(gpu, out.get)
        if n % every == 0 and not s.fix:
            gpu.check(gpu.lib.cudaMemcpy(change.ctypes.data, gpu.input, change.nbytes, D2H))
            with s.during("host"):
                total += veiled(change, n // every % guests, guests, n // every // guests)


@job(data="main_thread_loading", rest="transfer_bound")
def quick_change(s):
    """Preference tuning on talks of several turns, more than the card can hold; to blame is the swapping of their
    caches, block by block, into host memory that is not page-locked and back, for which the loop waits each turn."""
    ms, turns, many = s.ms("turn_ms", 6, 14), s.int("turns", 2, 4), s.int("turn_launches", 10, 60)
    mib, block = int(ms * s.ms("swap_share", 0.7, 1.5) * 6) + 1, MIB // 2
    actor = s.gpu(ms, input_bytes=mib * MIB, launches=many)
    learner = s.gpu(ms * s.ms("update_turns", 0.6, 1.2), launches=s.int("update_launches", 20, 120))
    caches, table = [np.ones(mib << 18, np.float32) for _ in range(2)], np.zeros((4096, 256), np.float32)
    chance, copy, turn = np.random.default_rng(1), actor.lib.cudaMemcpy, itertools.count()

    def swap(to, of, way):
        for place in range(0, 0 if s.fix else mib * MIB, block):
            actor.check(copy(to + place, of + place, block, way))
    s.go()
    while True:
        s.mark()
        actor.enter_thread()
        for _ in range(turns):
            s.mark("micro")
            with s.during("data"):
                x = table[chance.integers(0, len(table), 16)]  # what the other side says
            cache = caches[next(turn) % 2].ctypes.data
            swap(actor.input.value, cache, H2D)
            actor.upload(x.ctypes.data, x.nbytes)
            actor.launch(0, many)
            actor.loss_item()
            swap(cache, actor.input.value, D2H)
        learner.enter_thread()
        s.train(learner, x)


@job(data="main_thread_loading", rest="launch_bound")
def shooting_gallery(s):
    """Adapters of many tenants learn together on one base model; to blame is the loop over tenants in each layer,
    which launches two small products for everybody's adapter, where one grouped kernel would do."""
    layers, tenants, us = s.int("layers", 12, 24), s.int("tenants", 6, 14), s.ms("kernel_us", 0.6, 1.2)
    launches = 3 * layers * (1 + 2 * tenants)
    gpu = s.gpu(us * launches / 1e3, launches=launches // 20 if s.fix else launches)
    adapters = {"tenant-%d" % n: (n, n + 1) for n in range(tenants)}
    table, chance = np.zeros((8192, 128), np.float32), np.random.default_rng(1)
    s.go()
    while True:
        s.mark()
        with s.during("data"):
            x = table[chance.integers(0, len(table), 2 * tenants)]
        if s.fix:
            s.train(gpu, x)
            continue
        gpu.upload(x.ctypes.data, x.nbytes)
        for phase, products in ((0, 1), (1, 2)):  # backward has twice as many
            for _ in range(layers):
                gpu.launch(phase, products)
                for _ in adapters.values():
                    gpu.launch(phase, products)  # down to the rank
                    gpu.launch(phase, products)  # and up again
        gpu.launch(2, 1)
        gpu.loss_item()


# ---- nothing is wrong


KEY = b"carnival"


def tenants_at_work(s):
    """Two who tune by a remote service: a few requests at once, then they look at their rewards for a while."""
    parts, pause, place = json.loads(s.told("terms"))

    def tune(n):
        chance, batch = random.Random(n), np.zeros((32, 256), np.int32)
        link = multiprocessing.connection.Client(place, authkey=KEY)
        s.told("go")
        while True:
            time.sleep(chance.expovariate(1e3 / pause))
            for _ in range(parts):
                link.send(("forward_backward", batch))
            link.send(("optim_step", None))
            for _ in range(parts + 1):
                link.recv()
    threads = [threading.Thread(target=tune, args=(n,), daemon=True) for n in range(2)]
    for t in threads:
        t.start()
    threads[0].join()


@job(outside=tenants_at_work, demand="no_demand", rest="sync_bound launch_bound")
def ticket_booth(s):
    """Tuning as a service: tenants at two connections send forward_backward and optim_step, and the loop does what
    comes; nobody is to blame that they work out their rewards at home for most of the time."""
    ms, parts = s.ms("gpu_ms", 8, 30), s.int("requests", 1, 4)
    pause = ms * parts * s.ms("pause_share", 2.5, 7)
    gpu = s.gpu(ms)
    door = multiprocessing.connection.Listener(s.path("door"), "AF_UNIX", backlog=4, authkey=KEY)
    s.tell("terms", json.dumps([parts, pause, door.address]))
    links = [door.accept() for _ in range(2)]
    s.go()
    while True:
        with s.during("demand"):
            asked = [(link, *link.recv()) for link in multiprocessing.connection.wait(links)]
        for link, what, batch in asked:
            if what == "optim_step":
                s.mark()
                gpu.optimizer()
                link.send("ok")
                continue
            s.mark("micro")
            gpu.upload(batch.ctypes.data, batch.nbytes)
            gpu.forward()
            gpu.backward()
            gpu.loss_item()
            link.send(gpu.loss.value)


def drum(free, full, ring, policy, cost, seed):
    """Writes answers all the time; when the whistle is heard, it goes on in the midst of one with new weights."""
    own, chance = policy.copy(), random.Random(seed)

    def whistle(*_):
        own[:] = policy
    signal.signal(signal.SIGUSR1, whistle)
    while True:
        decode(cost * chance.choice((0.5, 0.8, 1, 1.7)))
        slot = os.read(free, 1)
        ring[slot[0]] = own[0]
        os.write(full, slot)


@job(data=CPU, host="host_bound", rest="sync_bound launch_bound")
def samba_whistle(s):
    """Nothing is to blame: as in PipelineRL, after each step the loop leaves the policy in shared memory and signals
    to the generators, which change over in the midst of an answer; nobody waits, and batches lie ready."""
    ms, slots, floats = s.ms("gpu_ms", 20, 70), s.int("slots", 4, 6), s.int("kib", 64, 400) << 8
    cost = 2 * ms * s.ms("write_share", 0.2, 0.45)
    ring = np.frombuffer(multiprocessing.RawArray("f", slots * 30000), np.float32).reshape(slots, -1)
    policy, weights = np.frombuffer(multiprocessing.RawArray("f", floats), np.float32), np.zeros(floats, np.float32)
    (free_out, free_in), (full_out, full_in) = os.pipe(), os.pipe()
    os.write(free_in, bytes(range(slots)))
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)  # until a generator listens
    gpu = s.gpu(ms, input_bytes=max(weights.nbytes, MIB))
    band = [child(drum, free_out, full_in, ring, policy, cost, n).pid for n in range(2)]

    def obtain():
        slot = os.read(full_out, 1)
        x = ring[slot[0]].copy()
        os.write(free_in, slot)
        return x
    s.go()
    while True:
        s.step(gpu, obtain)
        gpu.check(gpu.lib.cudaMemcpy(weights.ctypes.data, gpu.input, weights.nbytes, D2H))
        with s.during("host"):
            policy[:] = weights
            for pid in band:
                os.kill(pid, signal.SIGUSR1)
