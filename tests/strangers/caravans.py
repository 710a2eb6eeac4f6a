# SPDX-License-Identifier: BSD-2-Clause
"""Caravans: training in the age of language models and agents, where much travels together and somebody is late."""
import http.client
import http.server
import itertools
import math
import mmap
import multiprocessing
import multiprocessing.connection
import os
import queue
import random
import socket
import struct
import threading
import time
import zlib

import numpy as np

from stranger import CPU, child, decode, job, mortal, parse

PAGE, MIB, D2H = 4096, 1 << 20, 2


def took(f):
    """Seconds that f takes once it is warm."""
    f()
    begin = time.monotonic()
    f()
    return time.monotonic() - begin


def ringed(make, slots=3, size=40000):
    """A process calls make() and fills slots of shared memory, whose numbers go to and fro in two pipes.
    Returns get and the pid."""
    ring = np.frombuffer(mmap.mmap(-1, 4 * slots * size), np.float32).reshape(slots, size)
    (free, give_back), (full, bring) = os.pipe(), os.pipe()
    os.write(give_back, bytes(range(slots)))

    def fill():
        for n in itertools.count():
            make()
            slot = os.read(free, 1)
            ring[slot[0]] = n
            os.write(bring, slot)

    def take():
        slot = os.read(full, 1)
        x = ring[slot[0]].copy()
        os.write(give_back, slot)
        return x
    return take, child(fill).pid


def kept_up(s, ms, high=0.4):
    """Such a process, which needs a small part of what the device needs."""
    cost = ms * s.ms("load_share", 0.1, high)
    return ringed(lambda: decode(cost))[0]


# ---- the data is late


def night_court(s):
    """A judge's server that puts questions together: it waits for 16 of them, or until a window is over."""
    window, asked = float(s.told("late")) / 1e3, queue.Queue()

    class Desk(http.server.BaseHTTPRequestHandler):
        protocol_version, disable_nagle_algorithm = "HTTP/1.1", True

        def do_POST(self):
            self.rfile.read(int(self.headers["Content-Length"]))
            done = threading.Event()
            asked.put(done)
            done.wait()
            self.send_response(200)
            self.send_header("Content-Length", "4")
            self.end_headers()
            self.wfile.write(b"0.71")

        def log_message(self, *_):
            pass
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Desk)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    s.tell("port", server.server_address[1])
    while True:
        batch = [asked.get()]
        end = time.monotonic() + window
        try:
            while len(batch) < 16:
                batch.append(asked.get(timeout=max(end - time.monotonic(), 1e-5)))
        except queue.Empty:
            pass
        for done in batch:
            done.set()


def roll_out(out, port, answers, cost):
    link = http.client.HTTPConnection("127.0.0.1", port)
    link.connect()
    link.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    while True:
        scores = np.zeros((answers, 4000), np.float32)
        for row in scores:
            decode(cost)
            link.request("POST", "/judge", b"Which of the two answers is better? " * 20)
            row[:] = float(link.getresponse().read())
        out.put(scores)


@job(outside=night_court, data="network_bound too_few_workers", rest="sync_bound launch_bound")
def night_judge(s):
    """RL with a judge behind HTTP, whose server puts questions together; to blame is its window, which it waits
    out for each question, as the few actors ask for one verdict at a time and never fill its batch."""
    ms, actors, answers = s.ms("gpu_ms", 10, 40), s.int("actors", 1, 3), s.int("answers", 2, 4)
    late = ms * s.ms("late_share", 1.4, 2.8) * actors / answers
    s.tell("late", late / 20 if s.fix else late)
    gpu, out, port = s.gpu(ms), multiprocessing.Queue(maxsize=3), int(s.told("port"))
    pids = [child(roll_out, out, port, answers, late * 0.04).pid for _ in range(actors)]
    if actors == 1:
        s.supplier(pids[0])
    s.loop(gpu, out.get)


def drink(end, wells, docs, cost, popular, seed, apart):
    """Cleans documents; what is known of a source's boilerplate is shared, under the lock of the source's stripe."""
    chance = random.Random(seed)
    while True:
        for _ in range(docs):
            source = "web" if chance.random() < popular else "source-%d" % chance.randrange(40)
            well = wells[zlib.crc32(source.encode()) % len(wells)]
            if apart:
                decode(cost)
                with well:
                    pass  # what is new of it
            else:
                with well:
                    decode(cost)
        end.send(np.zeros(10000, np.float32))


@job(data="lock_bound", rest="sync_bound launch_bound")
def one_well(s):
    """Processes clean a mix of corpora by state that all of them share, under locks striped by source; to blame is
    the one stripe in which nearly all documents fall, since the mixture's weights have moved to the web crawl."""
    ms, workers, docs = s.ms("gpu_ms", 8, 40), s.int("workers", 2, 3), s.int("docs", 4, 12)
    cost, popular = ms * s.ms("clean_share", 1.6, 2.6) / docs, s.ms("web_weight", 0.9, 0.97)
    gpu, ends, wells = s.gpu(ms), [], [multiprocessing.Lock() for _ in range(8)]
    for n in range(workers):
        mine, theirs = multiprocessing.Pipe(duplex=False)
        child(drink, theirs, wells, docs, cost / 4 if s.fix else cost, popular, n, s.fix)
        ends.append(mine)
    s.loop(gpu, lambda: multiprocessing.connection.wait(ends)[0].recv())


def travelled(cost):
    """The stream of batches from its very beginning: texts are cleaned, numbered and cut."""
    for n in itertools.count():
        parse(cost)
        yield np.full((16, 512), n, np.int64)


@job(data="main_thread_loading", rest="sync_bound launch_bound")
def retraced_route(s):
    """Elastic training: every few steps the membership changes, and the stream is opened anew; to blame is its state,
    a mere count, by which the loop makes and drops all earlier batches, as by skip_first_batches()."""
    ms, every, part = s.ms("gpu_ms", 10, 40), s.int("every", 2, 5), s.ms("make_share", 0.02, 0.04)
    gone, cost = int(s.ms("skip_share", 0.5, 1.1) * every / part), ms * part
    gpu, steps, state = s.gpu(ms), itertools.count(), {}

    def obtain():
        n = next(steps)
        if n % every == 0:
            behind = 0 if s.fix else gone + n % gone  # an earlier run was here before
            state["stream"] = itertools.islice(travelled(cost), behind, None)
        return next(state["stream"])
    s.loop(gpu, obtain)


def read_bare(path, flags, places, slot):
    """Reads pages at these places right into a buffer; the path is opened once for all of them."""
    fd = os.open(path, flags)
    try:
        for n, place in enumerate(places):
            os.preadv(fd, [slot[n * PAGE:(n + 1) * PAGE]], place)
    finally:
        os.close(fd)


@job(data="io_bound", rest="sync_bound launch_bound")
def bare_saddle(s):
    """Distillation from a teacher's top guesses that were kept in a small file, read at random in every epoch; to
    blame is O_DIRECT, meant to spare the page cache, so that the one process waits for the disk each time."""
    ms, share, mib, slots = s.ms("gpu_ms", 8, 25), s.ms("read_share", 1.6, 3), 64, 2
    path, chance = s.data_file("saddle", mib), random.Random(1)
    flags = os.O_RDONLY if s.fix else os.O_RDONLY | os.O_DIRECT

    def draw(many):
        return [PAGE * chance.randrange(mib * MIB // PAGE) for _ in range(many)]
    trial = memoryview(mmap.mmap(-1, 400 * PAGE))
    begin = time.monotonic()
    read_bare(path, os.O_RDONLY | os.O_DIRECT, draw(400), trial)
    each = (time.monotonic() - begin) * 1e3 / 400
    pages = s.keep("pages", min(max(int(ms * share / each), 16), 4000))
    shared = memoryview(mmap.mmap(-1, slots * pages * PAGE))
    views = [shared[n * pages * PAGE:(n + 1) * pages * PAGE] for n in range(slots)]
    free, full = multiprocessing.Semaphore(slots), multiprocessing.Semaphore(0)
    gpu, turn = s.gpu(ms), itertools.cycle(views)

    def ride():
        if s.fix:
            with open(path, "rb") as f:
                while f.read(MIB):
                    pass
        for view in itertools.cycle(views):
            free.acquire()
            read_bare(path, flags, draw(pages), view)
            full.release()
    s.supplier(child(ride).pid)

    def obtain():
        full.acquire()
        x = np.array(next(turn))
        free.release()
        return x
    s.loop(gpu, obtain)


def was_seen(bits, gram, count):
    """A Bloom filter's answer: whether all of the gram's seven bits are set."""
    for key in range(7):
        place = zlib.crc32(gram, key * 0x9E3779B1 & 0xFFFFFFFF) % count
        if not bits[place >> 3] >> (place & 7) & 1:
            return False
    return True


def grams(chance, many):
    return [chance.randbytes(13) for _ in range(many)]


def sieve(end, path, many, cold):
    """Drops what the filter has seen; the filter is larger than the memory that is left."""
    chance, count = random.Random(2), os.path.getsize(path) * 8
    while True:
        with open(path, "rb") as f, mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ) as bits:
            bits.madvise(mmap.MADV_RANDOM)
            kept = sum(not was_seen(bits, gram, count) for gram in grams(chance, many))
        if cold:
            cold(path)
        end.send(np.full(15000, kept, np.float32).tobytes())


@job(data="page_fault_io", rest="sync_bound launch_bound")
def spice_sieve(s):
    """Texts are deduplicated as they come: a process looks each of their n-grams up in a Bloom filter; to blame is
    that this lies in a mapped file which memory does not hold, so that each bit is a page fault that waits."""
    ms, share, path = s.ms("gpu_ms", 8, 25), s.ms("read_share", 1.5, 3), s.data_file("spice", 64)
    chance = random.Random(1)
    with open(path, "rb") as f, mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ) as bits:
        bits.madvise(mmap.MADV_RANDOM)
        begin = time.monotonic()
        for gram in grams(chance, 200):
            was_seen(bits, gram, len(bits) * 8)
        each = (time.monotonic() - begin) * 1e3 / 200
    many = s.keep("grams", min(max(int(ms * share / each), 10), 3000))
    s.cold(path)
    mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    gpu = s.gpu(ms)
    s.supplier(child(sieve, theirs, path, many // 10 if s.fix else many, None if s.fix else s.cold).pid)
    s.loop(gpu, lambda: np.frombuffer(mine.recv(1 << 17), np.float32))


PIECE = 16 << 10


def far_camp(s):
    """Two peers of a swarm: each gives away so many pieces, and then chokes whoever asks, as it is others' turn."""
    quota, shut = s.told("late").split()
    doors = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
    s.tell("port", " ".join(str(door.getsockname()[1]) for door in doors))

    def give(door):
        link, _ = door.accept()
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        piece, stream = b"P" + bytes(PIECE), link.makefile("rb")
        while True:
            link.sendall(b"U")
            for _ in range(int(quota)):
                if not stream.read(4):
                    return
                link.sendall(piece)
            link.sendall(b"C")
            time.sleep(float(shut) / 1e3)
    peers = [threading.Thread(target=give, args=(door,), daemon=True) for door in doors]
    for peer in peers:
        peer.start()
    for peer in peers:
        peer.join()


def leech(out, ports, pieces, cost):
    """Asks both peers for pieces, by a thread for each, and puts batches together."""
    numbers, here = itertools.count(), queue.Queue(maxsize=pieces)

    def fetch(port):
        link = socket.create_connection(("127.0.0.1", port))
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        stream = link.makefile("rb")
        for number in numbers:
            link.sendall(struct.pack("<I", number))
            while (word := stream.read(1)) != b"P":
                if not word:
                    return
            here.put(stream.read(PIECE))
    for port in ports:
        threading.Thread(target=fetch, args=(port,), daemon=True).start()
    while True:
        body = b"".join(here.get() for _ in range(pieces))
        decode(cost)
        out.put(np.frombuffer(body, np.uint8))


@job(outside=far_camp, data="network_bound too_few_workers", rest="sync_bound launch_bound")
def gate_toll(s):
    """Shards are spread over a swarm, as by BitTorrent, and a process gathers a batch's pieces from two peers; to
    blame are the peers, which choke it after a few pieces, for longer than the device needs for these."""
    ms, ahead, half = s.ms("gpu_ms", 10, 40), s.int("batches_a_turn", 1, 2), s.int("half_pieces", 4, 12)
    shut = ahead * ms * s.ms("choke_share", 1.5, 2.8)
    s.tell("late", "%d %f" % (ahead * half, shut / 20 if s.fix else shut))
    gpu, out = s.gpu(ms), multiprocessing.Queue(maxsize=3)
    s.supplier(child(leech, out, [int(p) for p in s.told("port").split()], 2 * half, ms * 0.04).pid)
    s.loop(gpu, out.get)


@job(data=CPU, rest="sync_bound launch_bound")
def retold_tales(s):
    """Agents' talks of many turns, of which a process fills slots of shared memory; to blame is that it renders and
    tokenises each whole talk anew at every turn, as a chat template takes all messages or none."""
    ms, turns, times = s.ms("gpu_ms", 8, 40), s.int("turns", 8, 14), s.int("talks_a_turn", 1, 2)
    talks = [n % turns for n in range(turns * times)]  # how far each one is
    unit = ms * s.ms("render_share", 1.35, 2.6) / (times * turns * (turns + 1) / 2)

    def tell():
        for n, turn in enumerate(talks):
            parse(unit if s.fix else unit * (turn + 1))
            talks[n] = (turn + 1) % turns
    gpu, (batch, pid) = s.gpu(ms), ringed(tell)
    s.supplier(pid)
    s.loop(gpu, batch)


def march(out, chief, place, cost, duty):
    """A worker; the first to bind the name leads, and keeps the books of the mixture for all of them."""
    post = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        post.bind(place)
        chief.value = os.getpid()
        leads = True
    except OSError:
        leads = False
    while True:
        if leads:
            parse(duty)  # counts by corpus, weights, who is still alive, the state to resume from
        decode(cost)
        out.put(np.zeros(20000, np.float32))


@job(data="slow_worker", rest="sync_bound launch_bound")
def lead_camel(s):
    """Workers asked by turns elect a leader among themselves, whoever binds a name first; to blame is the leader,
    which for every batch of its own also keeps the books of the whole mixture, in Python."""
    ms, workers = s.ms("gpu_ms", 8, 35), s.int("workers", 3, 4)
    cost, duty = ms * s.ms("load_share", 0.1, 0.2) * workers, ms * s.ms("duty_share", 1.4, 2.2) * workers
    gpu, chief, outs = s.gpu(ms), multiprocessing.Value("l", 0), []
    for _ in range(workers):
        outs.append(multiprocessing.Queue(maxsize=1))
        child(march, outs[-1], chief, "\0caravan-%d" % os.getpid(), cost, duty / 20 if s.fix else duty)
    while not chief.value:
        time.sleep(0.01)
    s.supplier(chief.value)
    turn = itertools.cycle(outs)
    s.loop(gpu, lambda: next(turn).get())


# ---- not for data


def odds(tries, right):
    """pass@k for all k, without bias and exact, by binomials as integers of any length."""
    return [1 - math.comb(tries - right, k) / math.comb(tries, k) for k in range(1, tries, max(tries // 12, 1))]


@job(data=CPU, host="host_bound", rest="sync_bound launch_bound")
def bazaar_odds(s):
    """RL on exercises, with batches in time; to blame is the loop, which after each step or few draws the curve of
    pass@k for every exercise of its table, by exact binomials of what was tried and what was right."""
    ms, every, tries = s.ms("gpu_ms", 10, 40), s.int("every", 1, 4), s.int("tries", 128, 400)
    gpu, batch = s.gpu(ms), kept_up(s, ms)
    each = took(lambda: [odds(tries, n % 9 + 1) for n in range(36)]) / 36
    exercises = s.keep("exercises", max(int(ms * s.ms("curve_share", 0.45, 1.4) * every / 1e3 / each), 4))
    s.go()
    for n in itertools.count(1):
        s.step(gpu, batch)
        if n % every == 0 and not s.fix:
            with s.during("host"):
                curves = [odds(tries, (n + m) % 9 + 1) for m in range(exercises)]
                np.mean(curves, 0).tolist()


@job(data=CPU, rest="transfer_bound")
def swapped_loads(s):
    """A generator of rollouts with more sequences than room for their keys and values, and prompts in time; to blame
    is the preemption by swapping: every few iterations some blocks come down and others go up, not page-locked."""
    ms, every = s.ms("gpu_ms", 6, 12), s.int("every", 1, 2)
    mib = int(every * ms * s.ms("swap_share", 0.6, 1.2) * 6) + 1
    gpu, batch = s.gpu(ms, input_bytes=mib * MIB), kept_up(s, ms)
    resting, waiting = (np.ones(mib << 18, np.float32) for _ in range(2))
    s.go()
    while True:
        for _ in range(every):
            s.step(gpu, batch)
        if s.fix:
            gpu.forward()  # they are prefilled anew
            continue
        gpu.check(gpu.lib.cudaMemcpy(resting.ctypes.data, gpu.input, resting.nbytes, D2H))
        gpu.upload(waiting.ctypes.data, waiting.nbytes)
        resting, waiting = waiting, resting


# ---- nothing is wrong


def carry(out, index, cost, end):
    """A worker on a spot machine: it reads its index, works, and ends with a whole batch when its time is over."""
    decode(index)
    while time.monotonic() < end:
        decode(cost)
        out.put(np.zeros(30000, np.float32))
    out.close()
    out.join_thread()
    os._exit(0)


def hire(out, index, cost, stay, away):
    """Starts a worker whenever there is a spot machine, which is soon taken away again."""
    chance, me = random.Random(1), os.getpid()
    while True:
        time.sleep(away / 1e3 * chance.uniform(0.5, 1.5))
        end = time.monotonic() + stay / 1e3 * chance.uniform(0.5, 1.5)
        porter = os.fork()
        if porter == 0:
            mortal(me)
            carry(out, index, cost, end)
        os.waitpid(porter, 0)


@job(data=CPU, rest="sync_bound launch_bound")
def hired_porters(s):
    """Nothing is to blame: an elastic loader, whose workers on spot machines come, read their index, and are soon
    taken away again; but one worker stays, and it alone brings batches in time."""
    ms, out = s.ms("gpu_ms", 14, 60), multiprocessing.Queue(maxsize=6)
    gpu, cost = s.gpu(ms), ms * s.ms("load_share", 0.15, 0.4)
    child(carry, out, 0, cost, math.inf)
    child(hire, out, s.ms("index_ms", 30, 150), cost, s.ms("stay_ms", 300, 900), s.ms("away_ms", 150, 500))
    s.loop(gpu, out.get)


def travellers(s):
    """Agents that ask again and again; most questions have been asked before."""
    port, fresh, think = int(s.told("port")), s.ms("fresh", 0.05, 0.12), s.ms("think_s", 0.04, 0.07)
    s.told("go")

    def ask(seed):
        chance = random.Random(seed)
        with socket.create_connection(("127.0.0.1", port)) as link, link.makefile("rb") as lines:
            for n in itertools.count():
                time.sleep(chance.expovariate(1 / think))
                known = n and chance.random() > fresh
                link.sendall(b"how far is oasis %d?\n" % (chance.randrange(20) if known else n * 1000 + seed))
                if not lines.readline():
                    return
    threads = [threading.Thread(target=ask, args=(seed,), daemon=True) for seed in range(3)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()


@job(outside=travellers, demand="no_demand", rest="sync_bound launch_bound")
def known_answers(s):
    """A model server for agents with a cache of answers before it: threads reply at once to what was asked before,
    and the loop sees the few new questions; nobody is to blame that the model has little to do."""
    gpu, most = s.gpu(s.ms("token_ms", 5, 12)), s.int("tokens", 3, 6)
    door, answers, new = socket.create_server(("127.0.0.1", 0)), {}, queue.Queue()

    def attend(link):
        with link, link.makefile("rb") as lines:
            for question in lines:
                if question not in answers:
                    done = threading.Event()
                    new.put((question, done))
                    done.wait()
                link.sendall(answers[question])

    def receive():
        while True:
            threading.Thread(target=attend, args=(door.accept()[0],), daemon=True).start()
    threading.Thread(target=receive, daemon=True).start()
    s.tell("port", door.getsockname()[1])
    s.go()
    while True:
        with s.during("demand"):
            question, done = new.get()
        s.mark()
        prompt = np.frombuffer(question, np.uint8)
        for n in range(most):
            s.mark("micro")
            s.train(gpu, prompt if n == 0 else None)
        answers[question] = b"%d tokens\n" % most
        done.set()
