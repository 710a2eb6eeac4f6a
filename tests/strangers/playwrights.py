# SPDX-License-Identifier: BSD-2-Clause
"""Playwrights: what a device does that is no plain supervised training: it acts, answers, samples, distils, seeks."""
import collections
import hashlib
import itertools
import multiprocessing
import os
import pickle
import queue
import random
import socket
import sqlite3
import threading
import time

import numpy as np

from stranger import CPU, child, decode, job, parse

PAGE, MIB = 4096, 1 << 20


def once(f):
    """Seconds that f takes."""
    begin = time.monotonic()
    f()
    return time.monotonic() - begin


def took(f):
    """The same, once it is warm."""
    f()
    return once(f)


def put(out, cost, size):
    while True:
        decode(cost)
        out.put(np.zeros(size, np.float32))


def sent(cost, size=20000):
    """A loader that keeps up: a process and a queue."""
    out = multiprocessing.Queue(maxsize=4)
    child(put, out, cost, size)
    return out.get


def threaded(cost, size=20000):
    """Another one: a thread of the job."""
    out = queue.Queue(4)
    threading.Thread(target=put, args=(out, cost, size), daemon=True).start()
    return out.get


# ---- the data is late


def act(link, cost, length):
    """Plays, and sends each episode: where the arm was, and what it had then reached."""
    chance = np.random.default_rng(2)
    while True:
        decode(cost)
        link.send(chance.random((length, 6), np.float32))


@job(data="main_thread_loading", rest="sync_bound launch_bound")
def rewritten_endings(s):
    """A robot arm learns from hindsight, and a process brings episodes in time; to blame is the loop's own sampler,
    which gives each transition a later goal of its episode and finds the reward anew, one by one, in Python."""
    ms, share, length = s.ms("gpu_ms", 8, 35), s.ms("relabel_share", 0.5, 1.2), s.int("episode", 30, 80)
    chance, draws, place, gpu = random.Random(1), np.random.default_rng(1), itertools.count(), s.gpu(ms)
    episodes = draws.random((200, length, 6), np.float32)
    link, theirs = multiprocessing.Pipe(duplex=False)
    child(act, theirs, ms * s.ms("play_share", 0.2, 0.5), length)

    def compute_reward(reached, goal):
        return float(np.linalg.norm(reached - goal) < 0.05)

    def one_by_one(many):
        batch = np.empty((many, 7), np.float32)
        for row in batch:
            episode, t = episodes[chance.randrange(200)], chance.randrange(length)
            goal = episode[chance.randrange(t, length), 3:]
            row[:3], row[3:6], row[6] = episode[t, :3], goal, compute_reward(episode[t, 3:], goal)
        return batch

    def at_once(many):
        n, t = draws.integers(0, 200, many), draws.integers(0, length, many)
        goals = episodes[n, draws.integers(t, length), 3:]
        rewards = np.linalg.norm(episodes[n, t, 3:] - goals, axis=1) < 0.05
        return np.column_stack([episodes[n, t, :3], goals, rewards]).astype(np.float32)
    each = took(lambda: one_by_one(500)) / 500
    many, sample = s.keep("transitions", max(int(ms * share / 1e3 / each), 16)), at_once if s.fix else one_by_one

    def obtain():
        if link.poll():
            episodes[next(place) % 200] = link.recv()
        return sample(many)
    s.loop(gpu, obtain)


DONE, WANTED, FIRST = '{"page": %d, "lang": "en", "embedded": true}', '{"page": %d, "lang": "en"}', 10**9


def library(path):
    db = sqlite3.connect(path)
    for pragma in "journal_mode=MEMORY", "synchronous=OFF", "locking_mode=EXCLUSIVE", "cache_size=-65536":
        db.execute("PRAGMA " + pragma).fetchall()
    db.execute("CREATE TABLE IF NOT EXISTS docs (id INTEGER PRIMARY KEY, body TEXT, meta TEXT)")
    return db


def add(db, numbers, meta):
    with db:
        db.executemany("INSERT INTO docs VALUES (?, 'a scene', ?)", ((n, meta % n) for n in numbers))


def unread(db, many, last):
    """The next documents: those after the last one, or those that are not marked."""
    if last:
        return db.execute("SELECT id, body FROM docs WHERE id > ? ORDER BY id LIMIT ?", (last, many)).fetchall()
    return db.execute("SELECT id, body FROM docs WHERE json_extract(meta, '$.embedded') IS NULL ORDER BY id LIMIT ?",
                      (many,)).fetchall()


def read_scripts(out, path, many, keyset):
    """Takes documents out of the table, marks them, and puts their tokens into the queue."""
    db, last = library(path), FIRST - 1
    for first in itertools.count(FIRST + many, many):
        rows = unread(db, many, last if keyset else None)
        last = rows[-1][0]
        with db:
            db.executemany("UPDATE docs SET meta = ? WHERE id = ?", [(DONE % n, n) for n, _ in rows])
        add(db, range(first, first + many), WANTED)  # more are written all the time
        out.put(np.full((len(rows), 512), len(rows[0][1]), np.int32))


@job(data=CPU, rest="sync_bound launch_bound")
def unread_scripts(s):
    """A back-fill of embeddings, whose texts a process takes from a table in SQLite, all of it in memory; to blame is
    its query for rows not marked in their JSON, without an index: it looks at all that are done already, each time."""
    ms, share, many = s.ms("gpu_ms", 8, 30), s.ms("query_share", 1.5, 2.6), s.int("batch", 4, 8)
    path, some, gpu = s.path("corpus.db"), 20000, s.gpu(ms)
    db = library(path)
    add(db, range(some), DONE)
    add(db, range(FIRST, FIRST + many), WANTED)
    each = took(lambda: unread(db, many, None)) / some
    rows = s.keep("rows", min(int(ms * share / 1e3 / each), 400000))
    add(db, range(some, rows), DONE)
    db.close()
    out = multiprocessing.Queue(maxsize=4)
    s.supplier(child(read_scripts, out, path, many, s.fix).pid)
    s.loop(gpu, out.get)


def far_set(s):
    """A set of keys, far away: it takes a line for each key, and tells whether that is new."""
    late, seen = float(s.told("late")) / 1e3, set()
    door = socket.create_server(("127.0.0.1", 0))
    s.tell("port", door.getsockname()[1])

    def serve(link):
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while asked := link.recv(1 << 16):
            time.sleep(late)
            answer = b""
            for line in asked.splitlines():
                answer += b":%d\r\n" % (line not in seen)
                seen.add(line)
            link.sendall(answer)
    while True:
        threading.Thread(target=serve, args=(door.accept()[0],), daemon=True).start()


def consume(out, port, many, pipelined):
    """Goes through a stream that delivers an event at least once, and leaves out what was seen before."""
    chance, link = random.Random(1), socket.create_connection(("127.0.0.1", port))
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    answers = link.makefile("rb")
    stream = (n - (chance.randrange(1, 20) if chance.random() < 0.1 else 0) for n in itertools.count(20))

    def fresh(events):
        link.sendall(b"".join(b"SADD seen %d\r\n" % n for n in events))
        return [n for n in events if answers.readline() == b":1\r\n"]
    while True:
        batch = []
        while len(batch) < many:
            batch += fresh(list(itertools.islice(stream, many - len(batch) if pipelined else 1)))
        out.put(np.full((many, 2000), batch[0] % 97, np.float32))


@job(outside=far_set, data="network_bound too_few_workers", rest="sync_bound launch_bound")
def repeated_lines(s):
    """Online learning from a stream of clicks, which are at hand; to blame is how a process leaves out what comes
    twice: it asks a far set for event after event, and has its answer before it asks for the next one."""
    ms, many = s.ms("gpu_ms", 12, 40), s.int("events", 4, 12)
    s.tell("late", ms * s.ms("late_share", 1.4, 2.6) / many)
    gpu, out, port = s.gpu(ms), multiprocessing.Queue(maxsize=4), int(s.told("port"))
    s.supplier(child(consume, out, port, many, s.fix).pid)
    s.loop(gpu, out.get)


def follow(out, path, places, many, warm):
    """Reads what one camera has seen, then another; no page that it has read stays in memory."""
    fd, turn = os.open(path, os.O_RDONLY), itertools.cycle(places)
    while warm and os.read(fd, MIB):
        pass
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
    while True:
        clip = b"".join([os.pread(fd, PAGE, place) for place in itertools.islice(turn, many)])
        out.put(np.frombuffer(clip, np.uint8)[::64].astype(np.float32))
        if not warm:
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)


@job(data="io_bound", rest="sync_bound launch_bound")
def entangled_plots(s):
    """Last night's video is searched, camera after camera, by a process that reads and one loop; to blame is how the
    recorder wrote it, a page of each camera in turn, so that one camera's pages lie all over the cold file."""
    ms, share, cameras = s.ms("gpu_ms", 8, 25), s.ms("read_share", 1.7, 3), s.int("cameras", 6, 12)
    path, gpu = s.data_file("entangled_plots", 64), s.gpu(ms)
    places = [page * PAGE for camera in range(cameras) for page in range(camera, 64 * MIB // PAGE, cameras)]
    fd = os.open(path, os.O_RDONLY)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
    each = once(lambda: [os.pread(fd, PAGE, place) for place in places[:400]]) / 400
    many = s.keep("reads", min(max(int(ms * share / 1e3 / each), 16), 4000))
    s.cold(path)
    out = multiprocessing.Queue(maxsize=3)
    s.supplier(child(follow, out, path, places, many, s.fix).pid)
    s.loop(gpu, out.get)


def cast(out, counts, graphs, cost, merged, seed):
    """Draws subgraphs of a large graph, and counts how often it has drawn each node, for the weights in the loss."""
    chance, seen = np.random.default_rng(seed), np.frombuffer(counts.get_obj(), np.int64)
    guard = multiprocessing.Lock() if merged else counts.get_lock()
    while True:
        for _ in range(graphs):
            decode(cost * 0.15)
            nodes = chance.integers(0, len(seen), 300)
            with guard:
                decode(cost)
                np.add.at(seen, nodes, 1)
        out.put(np.zeros(20000, np.float32))


@job(data="lock_bound", rest="sync_bound launch_bound")
def cast_tally(s):
    """Processes draw subgraphs as GraphSAINT does; to blame is the lock of the multiprocessing.Array in which all of
    them count how often a node was drawn: it is held for the whole of the count, so that the others wait."""
    ms, processes, graphs = s.ms("gpu_ms", 8, 35), s.int("processes", 2, 3), s.int("graphs", 3, 8)
    cost, gpu = ms * s.ms("count_share", 1.5, 2.6) / graphs, s.gpu(ms)
    counts, out = multiprocessing.Array("q", 50000), multiprocessing.Queue(maxsize=4)
    for n in range(processes):
        child(cast, out, counts, graphs, cost / 3 if s.fix else cost, s.fix, n)
    s.loop(gpu, out.get)


def improvise(link, load, cost, rounds):
    """An engine for rollouts: it loads the policy's weights, warms up, and answers that many batches of prompts."""
    decode(load)
    for _ in range(rounds):
        decode(cost)
        link.send(np.zeros(20000, np.float32))


@job(data="loader_restart", rest="sync_bound launch_bound")
def recast_company(s):
    """RLHF: a process answers prompts, faster than the loop learns; to blame is how it gets the new policy after some
    steps: it ends, and another one is started, that loads and warms up for as long as these steps take."""
    ms, steps = s.ms("gpu_ms", 12, 30), s.int("steps_per_policy", 3, 6)
    load, cost = ms * steps * s.ms("load_share", 0.6, 1.5), ms * s.ms("answer_share", 0.1, 0.3)
    rounds, gpu = 10**9 if s.fix else steps, s.gpu(ms)  # fixed: the weights are handed to the one that runs

    def start():
        mine, theirs = multiprocessing.Pipe(duplex=False)
        engine = child(improvise, theirs, load, cost, rounds)
        theirs.close()
        return mine, engine
    (link, engine), left = start(), rounds

    def obtain():
        nonlocal link, engine, left
        if left == 0:
            engine.join()
            link.close()
            (link, engine), left = start(), rounds
        left -= 1
        return link.recv()
    s.loop(gpu, obtain)


# ---- not for data


class Sequence:
    """A request in the batch: full blocks of 16 tokens, a rest, and how many tokens are still to come."""

    def __init__(self, tokens, left):
        self.blocks = [tuple(tokens[n:n + 16]) for n in range(0, len(tokens), 16)]
        self.rest, self.left, self.names = [], left, [b""]

    def name(self, kept):
        """Names for the cache of prefixes: a block's depends on all blocks before it."""
        if not kept:
            del self.names[1:]
        for block in self.blocks[len(self.names) - 1:]:
            self.names.append(hashlib.sha256(pickle.dumps((self.names[-1], block))).digest())
        return self.names[-1]

    def add(self, token):
        self.left -= 1
        self.rest.append(token)
        if len(self.rest) == 16:
            self.blocks.append(tuple(self.rest))
            self.rest = []


def ask(requests, cost, tokens):
    """The server's front: takes requests, of which there are more than enough, and tokenises them."""
    chance = np.random.default_rng(1)
    while True:
        decode(cost)
        requests.put(chance.integers(0, 32000, tokens, np.int32))


@job(data=CPU, host="host_bound", rest="sync_bound launch_bound")
def recited_prologues(s):
    """A language model's server with continuous batching, and requests in time from a process; to blame is the loop's
    scheduler, which before each token hashes all blocks of all running sequences anew, for the cache of prefixes."""
    ms, share, slots = s.ms("token_ms", 10, 30), s.ms("hash_share", 0.55, 1.4), s.int("sequences", 12, 32)
    gpu, chance, requests = s.gpu(ms), random.Random(1), multiprocessing.Queue(maxsize=8)
    some = Sequence(list(range(8000)), 1)
    each = took(lambda: some.name(False)) / len(some.blocks)
    blocks = s.keep("blocks", max(int(ms * share / 1e3 / each / slots), 4))
    child(ask, requests, ms * s.ms("front_share", 0.1, 0.4), 16 * blocks)
    running = [Sequence(requests.get().tolist(), chance.randrange(10, 120)) for _ in range(slots)]
    s.go()
    while True:
        s.mark()
        for n, sequence in enumerate(running):
            if sequence.left == 0:
                with s.during("data"):
                    tokens = requests.get()
                with s.during("host"):
                    running[n] = Sequence(tokens.tolist(), chance.randrange(20, 120))
        with s.during("host"):
            names = [sequence.name(s.fix) for sequence in running]
            ids = np.frombuffer(b"".join(names), np.uint8)
        s.train(gpu, ids)
        with s.during("host"):
            for sequence in running:
                sequence.add(chance.randrange(32000))


def eager(gpu, operations, places):
    """A forward pass as it is written: operation by operation, each with a place for its result."""
    for n in range(operations):
        free = places.setdefault(512 << n % 5, [0])
        place = free.pop()
        gpu.launch(n % 3, 1)
        free.append(place)


@job(data=CPU, rest="launch_bound host_bound")
def hasty_prompter(s):
    """Speculative decoding that samples on the device and reads back once a round; prompts are in time, and to blame
    is the small draft model, which is not captured: its tiny kernels run faster than Python launches them."""
    ms, share, guesses = s.ms("target_ms", 7, 16), s.ms("launch_share", 0.9, 1.8), s.int("guesses", 3, 6)
    many, prompts = s.int("target_launches", 30, 120), sent(ms * s.ms("load_share", 0.1, 0.4), 2000)
    places, target, probe = {}, s.gpu(ms, launches=many), s.gpu(0.2, launches=200)
    each = took(lambda: eager(probe, 600, places)) / 600
    probe.loss_item()
    operations = s.keep("operations", max(int(ms * share / 1e3 / each / guesses), 50))
    draft = s.gpu(operations * each * 1e3 * 0.25, launches=1 if s.fix else operations)
    s.go()
    while True:
        with s.during("data"):
            x = prompts()
        for _ in range(s.random.randint(5, 20)):
            s.mark()
            draft.enter_thread()
            draft.upload(x.ctypes.data, x.nbytes)
            for _ in range(guesses):
                if s.fix:
                    draft.launch(0, 1)  # the graph of a whole pass
                else:
                    eager(draft, operations, places)
            target.enter_thread()
            target.launch(1, many)
            target.loss_item()


@job(data=CPU, rest="transfer_bound")
def shifted_scenery(s):
    """Pictures from prompts, which a thread has ready; to blame is offloading by whole models on a card that is large
    enough: for each picture the text encoder's and then the denoiser's weights go up, from pageable memory."""
    denoise, steps, share = s.ms("denoise_ms", 2, 5), s.int("denoise_steps", 4, 8), s.ms("copy_share", 0.6, 1.4)
    ms, gpu, weights = denoise * (steps + 0.5), s.gpu(denoise, input_bytes=8 * MIB), np.ones((6, 8 * MIB), np.uint8)
    prompts, turn = threaded(ms * s.ms("load_share", 0.1, 0.3), 4000), itertools.cycle(weights)

    def move(modules):
        for module in itertools.islice(turn, modules):
            gpu.upload(module.ctypes.data, module.nbytes)
    each = took(lambda: (move(6), gpu.loss_item())) / 6
    modules = s.keep("modules", max(round(ms * share / 1e3 / each), 3))
    s.go()
    while True:
        s.mark()
        with s.during("data"):
            x = prompts()
        if not s.fix:
            move(modules // 3)
        gpu.upload(x.ctypes.data, x.nbytes)
        gpu.launch(2, gpu.launches // 2)  # the text encoder
        if not s.fix:
            move(modules - modules // 3)
        for _ in range(steps):
            s.mark("micro")
            s.train(gpu, item=False)
        gpu.loss_item()


@job(data="lock_bound", threads=True, rest="lock_bound")
def rival_drafts(s):
    """A search over kinds of models, in one process: a network on the device in the main thread, baselines in a thread
    beside it; to blame are these, which are Python and keep the interpreter's lock, while batches come in time."""
    ms, launches = s.ms("gpu_ms", 15, 40), s.int("launches", 4, 9)
    gpu, batch = s.gpu(ms, launches=launches), sent(ms * s.ms("load_share", 0.1, 0.4), 4000)
    fit, scores = decode if s.fix else parse, collections.deque(maxlen=100)  # fixed: a baseline in C

    def baselines():
        for n in itertools.count():
            fit(20 + n % 7 * 10)
            scores.append(n % 13)
    threading.Thread(target=baselines, daemon=True).start()
    s.loop(gpu, batch)


# ---- nothing is wrong


def score(link, cost):
    """A teacher on the CPU: it is sent answers, and says how it would have gone on, token by token."""
    while True:
        tokens = link.recv()
        decode(cost)
        link.send(np.zeros((len(tokens), 16), np.float32))


@job(data=CPU, rest="sync_bound launch_bound")
def stern_dramaturg(s):
    """Nothing is to blame: a student is taught by its own answers, which a teacher's process gets only when they are
    written, and never has anything ready; but it has scored them before the step on the last ones is over."""
    ms, gpu_launches = s.ms("gpu_ms", 25, 70), s.int("launches", 16, 100)
    gpu, answers = s.gpu(ms, launches=gpu_launches), np.zeros(800, np.int64)
    link, theirs = multiprocessing.Pipe()
    child(score, theirs, ms * s.ms("teacher_share", 0.3, 0.6))
    link.send(answers)
    s.go()
    while True:
        s.mark()
        with s.during("data"):
            x = link.recv()
        s.mark("micro")
        gpu.launch(0, gpu_launches // 8)
        gpu.loss_item()  # the student's next answers
        link.send(answers)
        s.train(gpu, x)


FIELD = 8192


def climates(s):
    """Simulations on a cluster: each sends a field to the learner whenever it has got so far."""
    pause, port = s.ms("pause_s", 0.1, 0.5), int(s.told("port"))
    s.told("go")

    def simulate(n):
        chance = random.Random(n)
        with socket.create_connection(("127.0.0.1", port)) as link:
            while True:
                time.sleep(chance.expovariate(1 / pause))
                link.sendall(np.full(FIELD, n, np.float32).tobytes())
    threads = [threading.Thread(target=simulate, args=(n,)) for n in range(3)]
    for t in threads:
        t.start()
    threads[0].join()


@job(outside=climates, data="network_bound main_thread_loading", rest="sync_bound launch_bound")
def revived_plays(s):
    """Nothing is to blame: a surrogate learns while simulations run, whose fields come far too slowly for it, and the
    threads that receive them wait all the time; but the loop draws from all that came so far, again and again."""
    ms, rows = s.ms("gpu_ms", 25, 75), s.int("batch", 4, 12)
    gpu, door, guard = s.gpu(ms), socket.create_server(("127.0.0.1", 0)), threading.Lock()
    fields, chance, draws = np.ones((256, FIELD), np.float32), random.Random(1), np.random.default_rng(1)

    def receive(link):
        with link.makefile("rb") as stream:
            while field := stream.read(4 * FIELD):
                with guard:
                    fields[chance.randrange(len(fields))] = np.frombuffer(field, np.float32)

    def accept():
        while True:
            threading.Thread(target=receive, args=(door.accept()[0],), daemon=True).start()
    threading.Thread(target=accept, daemon=True).start()
    s.tell("port", door.getsockname()[1])

    def obtain():
        with guard:
            return fields[draws.integers(0, len(fields), rows)]
    s.loop(gpu, obtain)
