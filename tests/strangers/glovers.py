# SPDX-License-Identifier: BSD-2-Clause
"""Among the glovers: servers of models, learners from play, and what stands before and behind them."""
import asyncio
import collections
import contextlib
import fcntl
import itertools
import multiprocessing
import os
import queue
import random
import selectors
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import zlib

import numpy as np

from stranger import CPU, child, decode, job, parse

MIB, D2H = 1 << 20, 2


def took(f):
    """Seconds that f takes once it is warm."""
    f()
    begin = time.monotonic()
    f()
    return time.monotonic() - begin


def thread(f, *more):
    threading.Thread(target=f, args=more, daemon=True).start()


def packets():
    """Two ends that send whole messages, as ZeroMQ's do."""
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


def crowd(s, call):
    """Clients, each with a thread and a connection."""
    port, many = int(s.told("port")), s.int("clients", 20, 28)
    s.told("go")
    for n in range(many):
        thread(call, socket.create_connection(("127.0.0.1", port)), random.Random(n))
    signal.pause()


# ---- a server of a language model

WORDS = 32000


def callers(s):
    """Each asks again as soon as it has its answer."""
    words = int(s.told("words"))

    def call(link, chance):
        stream = link.makefile("rwb")
        while True:
            stream.write(b" ".join(b"w%d" % n for n in chance.choices(range(WORDS), k=words)) + b"\n")
            stream.flush()
            stream.readline()
    crowd(s, call)


def reception(door, engine, texts):
    """Tokenises what is asked, and brings the answers back."""
    numbers, waiting = itertools.count(), {}

    def serve(link):
        stream = link.makefile("rwb")
        for line in stream:
            n, answer = next(numbers), queue.SimpleQueue()
            waiting[n] = answer
            tokens = np.array([zlib.crc32(word) % WORDS for word in line.split()], np.int32)
            engine.send(struct.pack("<i", n) + tokens.tobytes())
            stream.write(answer.get() + b"\n")
            stream.flush()

    def deliver():
        while packet := texts.recv(MIB):
            waiting.pop(struct.unpack_from("<i", packet)[0]).put(packet[4:])
    thread(deliver)
    while True:
        thread(serve, door.accept()[0])


def detokenize(tokens, texts):
    words = collections.defaultdict(list)
    while packet := tokens.recv(MIB):
        for number, token, last in struct.iter_unpack("<iii", packet):
            words[number].append(b"w%d" % token)
            if last:
                texts.send(struct.pack("<i", number) + b" ".join(words.pop(number)))


class Sequence:
    def __init__(self, packet, left):
        self.number, = struct.unpack_from("<i", packet)
        self.tokens, self.left = np.frombuffer(packet, np.int32, offset=4).tolist(), left


def penalize(tokens, logits, penalty):
    """Makes words less likely that were said before; tokens may come more than once."""
    for token in set(tokens):
        logit = logits[token]
        logits[token] = logit / penalty if logit > 0 else logit * penalty


@job(outside=callers, host="host_bound", demand="no_demand", rest="sync_bound launch_bound")
def measured_hands(s):
    """An LLM server of three processes with packets in between: one tokenises, the loop batches continuously, one
    detokenises, and callers queue up; to blame is a logits processor in the loop, the penalty for repetitions, which
    for each token of each sequence goes through all words of its long prompt and answer, in Python."""
    ms, slots, share = s.ms("token_ms", 10, 35), s.int("slots", 6, 12), s.ms("penalty_share", 0.6, 1.6)
    logits, chance = np.ones((slots, WORDS), np.float32), random.Random(1)
    some = chance.choices(range(WORDS), k=4000)
    each = took(lambda: penalize(some, logits[0], 1.1)) / 4000
    words = s.keep("words", min(max(int(ms * share / 1e3 / each / slots), 100), 16000))
    door, gpu = socket.create_server(("127.0.0.1", 0), backlog=64), s.gpu(ms, input_bytes=logits.nbytes)
    (inbox, asked), (tokens, outbox), (texts, told) = packets(), packets(), packets()
    child(reception, door, asked, texts)
    child(detokenize, tokens, told)
    s.tell("words", words)
    s.tell("port", door.getsockname()[1])
    running = []

    def admit(flags=0):
        running.append(Sequence(inbox.recv(MIB, flags), chance.randint(20, 60)))
    s.go()
    while True:
        if not running:
            with s.during("demand"):
                admit()
        s.mark()
        with s.during("host"):
            with contextlib.suppress(BlockingIOError):
                while len(running) < slots:
                    admit(socket.MSG_DONTWAIT)
            ids = np.array([one.tokens[-1] for one in running])
        s.train(gpu, ids, item=s.fix)  # else the logits come down, not the device's choice
        if not s.fix:
            gpu.check(gpu.lib.cudaMemcpy(logits.ctypes.data, gpu.input, len(running) * logits[0].nbytes, D2H))
        with s.during("host"):
            for one, row in zip(running, logits):
                if not s.fix:
                    penalize(one.tokens, row, 1.1)
                one.tokens.append(chance.randrange(WORDS))
                one.left -= 1
            outbox.send(b"".join(struct.pack("<iii", one.number, one.tokens[-1], not one.left) for one in running))
            running = [one for one in running if one.left]


# ---- an ensemble with a backend in Python

SCAN = 4096


def senders(s):
    def call(link, chance):
        scan = chance.randbytes(SCAN)
        while True:
            link.sendall(scan)
            link.recv(1)
    crowd(s, call)


def backend(shelf, asked, done, cost):
    """Decodes what lies on the shelf, place by place."""
    for place in itertools.cycle(shelf):
        asked.acquire()
        decode(cost)
        place[:] = place[0]
        done.release()


@job(outside=senders, data=CPU, rest="sync_bound launch_bound")
def one_stitcher(s):
    """An inference server with an ensemble: threads take scans from sockets, a backend process in Python decodes them
    in shared memory, told by semaphores, and the loop batches what is ready and does not wait for more; requests
    queue up, and to blame is the decoding, by the only instance of that backend."""
    ms, most, places = s.ms("scan_ms", 8, 25), s.int("batch", 4, 8), s.int("places", 4, 8)
    cost, gpu = ms * s.ms("decode_share", 1.6, 3), s.gpu(ms)
    shelf = np.frombuffer(multiprocessing.RawArray("f", places * 20000), np.float32).reshape(places, 20000)
    asked, done, free = multiprocessing.Semaphore(0), multiprocessing.Semaphore(0), threading.Semaphore(places)
    s.supplier(child(backend, shelf, asked, done, cost / 6 if s.fix else cost).pid)
    requests, placed, ready = queue.SimpleQueue(), queue.SimpleQueue(), queue.Queue()
    door = socket.create_server(("127.0.0.1", 0), backlog=64)

    def serve(link):
        stream = link.makefile("rb")
        while scan := stream.read(SCAN):
            requests.put((scan, link))

    def accept():
        while True:
            thread(serve, door.accept()[0])

    def place_scans():
        for place in itertools.cycle(shelf):
            scan, link = requests.get()
            free.acquire()
            place.view(np.uint8)[:SCAN] = np.frombuffer(scan, np.uint8)
            placed.put(link)
            asked.release()

    def collect():
        for place in itertools.cycle(shelf):
            done.acquire()
            ready.put((place.copy(), placed.get()))
            free.release()
    for f in accept, place_scans, collect:
        thread(f)
    s.tell("port", door.getsockname()[1])
    s.go()
    while True:
        s.mark()
        with s.during("data"):
            batch = [ready.get()]
            with contextlib.suppress(queue.Empty):
                while len(batch) < most:
                    batch.append(ready.get_nowait())
            x = np.stack([pixels for pixels, _ in batch])
        gpu.upload(x.ctypes.data, x.nbytes)
        for _ in batch:
            gpu.launch(0, gpu.launches)
        gpu.loss_item()
        for _, link in batch:
            link.sendall(b"k")


# ---- learning from play

ITEMS, STEPS = 8, 4096


def chunk(size, chance):
    """Steps of an episode, as they are kept."""
    return zlib.compress(chance.integers(0, 8, size, np.uint8).tobytes(), 1)


def replay(door, first):
    """A table of chunks; connections insert some, or have some drawn."""
    table, chance = collections.deque([first], maxlen=64), random.Random(1)

    def serve(link):
        stream = link.makefile("rwb")
        while kind := stream.read(1):
            if kind == b"i":
                table.append(stream.read(*struct.unpack("<I", stream.read(4))))
                continue
            for _ in range(ITEMS):
                drawn = chance.choice(table)
                stream.write(struct.pack("<I", len(drawn)) + drawn)
            stream.flush()
    while True:
        thread(serve, door.accept()[0])


def connected(path):
    link = socket.socket(socket.AF_UNIX)
    link.connect(path)
    return link.makefile("rwb")


def act(path, size, pause, seed):
    """Plays a game that has a clock of its own, and inserts what it saw."""
    stream, chance = connected(path), np.random.default_rng(seed)
    while True:
        time.sleep(pause)
        packed = chunk(size, chance)
        stream.write(b"i" + struct.pack("<I", len(packed)) + packed)
        stream.flush()


@job(data=CPU, threads=True, rest="sync_bound launch_bound")
def whole_hides(s):
    """Off-policy RL: actors insert compressed chunks of episodes into a replay server, and a thread of the learner
    asks it ahead for some; to blame is what this has to inflate: chunks of a great many steps each, of which a
    sampled sequence is a small part, so that nearly all of it is thrown away."""
    ms, share, pause = s.ms("gpu_ms", 8, 25), s.ms("inflate_share", 1.6, 3), s.ms("episode_s", 0.3, 0.6)
    packed = chunk(MIB, np.random.default_rng(0))
    each = took(lambda: zlib.decompress(packed)) / MIB
    size = min(max(int(ms * share / 1e3 / each / ITEMS), 16 * STEPS), 4 * MIB)
    size = s.keep("chunk", size // 8 if s.fix else size)
    path, door, out, gpu = s.path("replay"), socket.socket(socket.AF_UNIX), queue.Queue(2), s.gpu(ms)
    door.bind(path)
    door.listen()
    child(replay, door, chunk(size, np.random.default_rng(0)))
    for n in range(2):
        child(act, path, size, pause, n)

    def sample():
        stream, chance = connected(path), random.Random(1)
        stream.write(b"s")
        while True:
            stream.flush()
            chunks = [stream.read(*struct.unpack("<I", stream.read(4))) for _ in range(ITEMS)]
            stream.write(b"s")
            stream.flush()
            out.put(np.stack([np.frombuffer(zlib.decompress(one), np.uint8, STEPS, chance.randrange(size - STEPS))
                              for one in chunks]).astype(np.float32))
    thread(sample)
    s.loop(gpu, out.get)


LEAVES = bytes(8 * 17 * 19 * 19)


def search(link, walk, cost):
    """Goes down the tree with virtual losses until it has some leaves, and needs their values to go on."""
    while True:
        walk(cost)
        link.send(LEAVES)
        link.recv(64)


@job(data="slow_worker", rest="sync_bound launch_bound")
def hand_cutter(s):
    """Self-play: processes search a game each and send leaves as packets, and the loop evaluates those of all games
    together; to blame is one of the processes, which did not find the compiled generator of moves, and silently
    took the one in Python."""
    ms, games = s.ms("gpu_ms", 12, 40), s.int("games", 2, 3)
    cost, times, slow = ms * s.ms("search_share", 0.08, 0.14), s.int("times", 11, 18), s.int("slow", 0, games - 1)
    gpu, links = s.gpu(ms), []
    for n in range(games):
        mine, theirs = packets()
        python = n == slow and not s.fix
        pid = child(search, theirs, parse if python else decode, cost * times if python else cost).pid
        if python:
            s.supplier(pid)
        links.append(mine)
    s.go()
    while True:
        s.mark()
        with s.during("data"):
            leaves = np.frombuffer(b"".join([link.recv(len(LEAVES)) for link in links]), np.uint8)
        s.train(gpu, leaves)
        for link in links:
            link.send(b"values")


@contextlib.contextmanager
def locked(file):
    fcntl.flock(file, fcntl.LOCK_EX)
    try:
        yield
    finally:
        fcntl.flock(file, fcntl.LOCK_UN)


def grade(answers, verdicts, path, cost, short):
    """Says whether answers are right; the verdicts are kept, as answers come again."""
    with open(path, "r+b", buffering=0) as kept:
        while True:
            answer, right = answers.get(), struct.pack("<B", 1)
            at = answer % 4096
            with locked(kept):
                os.pread(kept.fileno(), 1, at)
                if not short:
                    parse(cost)
                    os.pwrite(kept.fileno(), right, at)
            if short:
                parse(cost)
                with locked(kept):
                    os.pwrite(kept.fileno(), right, at)
            verdicts.put((answer, 1.0))


@job(data="lock_bound", rest="sync_bound launch_bound")
def locked_gauge(s):
    """RL from verifiable rewards, asynchronous: the loop hands out the answers that it generates, learns from older
    ones meanwhile, and two processes grade; to blame is the flock() on the file of known verdicts, which a grader
    holds not only to look one up but while it works it out, so that the other one waits."""
    ms, group = s.ms("gpu_ms", 10, 40), s.int("group", 4, 8)
    cost = ms * s.ms("grade_share", 1.6, 1.95) / group
    answers, verdicts, path = multiprocessing.SimpleQueue(), multiprocessing.SimpleQueue(), s.path("verdicts")
    with open(path, "wb") as f:
        f.write(bytes(4096))
    for _ in range(2):
        child(grade, answers, verdicts, path, cost, s.fix)
    numbers, gpu = itertools.count(), s.gpu(ms)

    def hand_out():
        for n in itertools.islice(numbers, group):
            answers.put(n)
    hand_out()
    hand_out()
    s.go()
    while True:
        s.mark()
        with s.during("data"):
            rewards = np.array([verdicts.get()[1] for _ in range(group)], np.float32)
            x = np.repeat(rewards, 4096)
        s.train(gpu, x)
        hand_out()


# ---- images, sound, video

TENSOR, STATES, SIDE = 128 << 10, 20000, 192


def orders(out):
    for n in itertools.count():
        out.send("a pair of gloves, number %d" % n)


def read_weights(fd, names, states):
    for name in names:
        states += np.frombuffer(os.pread(fd, TENSOR, name * TENSOR), np.uint8, STATES)


def encode_text(prompts, out, path, names, resident):
    """Encodes prompts on the CPU; afterwards memory is for the others."""
    fd, states = os.open(path, os.O_RDONLY), np.zeros(STATES, np.float32)
    for n in itertools.count():
        prompt = prompts.recv()
        if n == 0 or not resident:
            states[:] = len(prompt)
            read_weights(fd, names, states)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        out.send_bytes(states)


def write_images(images, folder):
    for n in itertools.count():
        image = images.recv_bytes()
        with open(os.path.join(folder, "image-%d.png" % (n % 20)), "wb") as f:
            f.write(zlib.compress(image, 1))


@job(data="io_bound", host="host_bound", rest="sync_bound launch_bound")
def carried_lasts(s):
    """A service of a diffusion model with few steps: a process takes orders, one encodes their texts, the loop
    denoises, one writes the images; orders queue up, and to blame is the text encoder, which is to save memory: for
    each prompt it reads its weights again, tensor by tensor, from a file of which memory keeps nothing."""
    steps, few, share = s.int("denoise_steps", 3, 6), s.int("few", 10, 30), s.ms("read_share", 1.6, 3)
    ms = s.ms("gpu_ms", 10, 25)
    path, states = s.data_file("carried_lasts", 64), np.zeros(STATES, np.float32)
    names = sorted(range(64 * MIB // TENSOR), key=str)  # by name, so that 10 comes before 2
    fd = os.open(path, os.O_RDONLY)
    begin = time.monotonic()
    read_weights(fd, names[:100], states)
    each = (time.monotonic() - begin) / 100
    many = s.keep("tensors", min(max(int(ms * share / 1e3 / each), 4), len(names)))
    s.cold(path)
    gpu = s.gpu(ms / steps, launches=few)
    (prompts, ordered), (texts, encoded), (images, made) = [multiprocessing.Pipe(duplex=False) for _ in range(3)]
    child(orders, ordered)
    s.supplier(child(encode_text, prompts, encoded, path, names[:many], s.fix).pid)
    child(write_images, images, s.folder)
    image = np.random.default_rng(1).integers(0, 16, (SIDE, SIDE, 3), np.uint8).tobytes()
    s.go()
    while True:
        s.mark()
        with s.during("data"):
            x = np.frombuffer(texts.recv_bytes(), np.float32)
        gpu.upload(x.ctypes.data, x.nbytes)
        for _ in range(steps):
            s.mark("micro")
            gpu.launch(0, few)
        gpu.loss_item()
        with s.during("host"):
            made.send_bytes(image)


SOUND = 6400


def phones(s):
    """People who speak; their telephones send what they say piece by piece."""
    port, many, piece = int(s.told("port")), int(s.told("phones")), float(s.told("piece")) / 1e3
    s.told("go")

    def speak(n):
        link = socket.create_connection(("127.0.0.1", port))
        time.sleep(piece * n / many)
        due = time.monotonic()
        while True:
            due += piece
            time.sleep(max(due - time.monotonic(), 0))
            link.sendall(bytes(SOUND))
            with contextlib.suppress(BlockingIOError):
                link.recv(4096, socket.MSG_DONTWAIT)  # the words so far
    for n in range(many):
        thread(speak, n)
    signal.pause()


def gateway(door, engine, cost):
    """Puts the pieces of each stream together, filters them, and brings the words back."""
    ready, streams, heard = selectors.DefaultSelector(), [], []
    ready.register(door, selectors.EVENT_READ)
    ready.register(engine, selectors.EVENT_READ)
    while True:
        for key, _ in ready.select():
            if key.fileobj is door:
                streams.append(door.accept()[0])
                heard.append(bytearray())
                ready.register(streams[-1], selectors.EVENT_READ, len(heard) - 1)
            elif key.fileobj is engine:
                packet = engine.recv(4096)
                streams[struct.unpack_from("<i", packet)[0]].sendall(packet[4:])
            else:
                sound = heard[key.data]
                sound += key.fileobj.recv(SOUND)
                if len(sound) >= SOUND:
                    decode(cost)
                    engine.send(struct.pack("<i", key.data) + sound[:SOUND])
                    del sound[:SOUND]


@job(outside=phones, demand="no_demand", rest="sync_bound launch_bound")
def spoken_orders(s):
    """Recognition of speech as it is spoken: a gateway process puts the sound of some telephones together, and the
    loop takes all pieces that are there at once; nobody is to blame that people speak no faster."""
    ms, many = s.ms("gpu_ms", 8, 25), s.int("phones", 3, 6)
    piece = many * ms / s.ms("busy", 0.3, 0.6)
    gpu, door, (mine, theirs) = s.gpu(ms), socket.create_server(("127.0.0.1", 0)), packets()
    child(gateway, door, theirs, ms * 0.1)
    s.tell("piece", piece / 4 if s.fix else piece)  # recordings, that can be sent faster
    s.tell("phones", many)
    s.tell("port", door.getsockname()[1])
    s.go()
    while True:
        s.mark()
        with s.during("demand"):
            pieces = [mine.recv(MIB)]
            with contextlib.suppress(BlockingIOError):
                while len(pieces) < many:
                    pieces.append(mine.recv(MIB, socket.MSG_DONTWAIT))
        s.train(gpu, np.frombuffer(b"".join([piece[4:] for piece in pieces]), np.int16).astype(np.float32))
        for piece in pieces:
            mine.send(piece[:4] + b"a pair of gloves")


def camera(link, pixels):
    """A decoder in hardware leaves frames in this memory; they are sent on."""
    frame = np.ones(pixels, np.uint8)
    for n in itertools.count():
        frame[0] = n % 256
        link.send(frame)


@job(data="ipc_bound", rest="sync_bound launch_bound")
def raw_skins(s):
    """Analysis of recorded video: a process for each camera has frames decoded in hardware and sends them through a
    pipe, one of each camera makes a batch; to blame is that whole raw frames are pickled and go through the pipes,
    where the model looks at a small region only, which the loop cuts out."""
    ms, cameras, region = s.ms("gpu_ms", 8, 25), s.int("cameras", 2, 3), s.int("region", 80, 200) << 10
    share, links, gpu = s.ms("hand_over_share", 0.7, 1.7), [], s.gpu(ms)
    mine, theirs = multiprocessing.Pipe(duplex=False)
    trial = child(camera, theirs, 16 * MIB)
    each = took(mine.recv) / (16 * MIB)
    trial.kill()
    trial.join()
    size = s.keep("pixels", region if s.fix else min(max(int(ms * share / 1e3 / each / cameras), MIB), 48 * MIB))
    for _ in range(cameras):
        mine, theirs = multiprocessing.Pipe(duplex=False)
        child(camera, theirs, size)
        links.append(mine)
    s.loop(gpu, lambda: np.concatenate([link.recv()[:region] for link in links]))


PROGRAM = """
import sys, time, zlib
size, cost, maker = int(sys.argv[1]), float(sys.argv[2]) / 1e3, sys.argv[3] == "decode"
packed = zlib.compress(bytes(range(256)) * 200)
while maker or sys.stdin.buffer.read(size):
    end = time.thread_time() + cost
    while time.thread_time() < end:
        zlib.decompress(packed)
    if maker:
        sys.stdout.buffer.write(bytes(size))
        sys.stdout.buffer.flush()
"""


def program(size, cost, kind, **ends):
    """A program in a pipe; it ends when the pipe does."""
    return subprocess.Popen([sys.executable, "-c", PROGRAM, str(size), str(cost), kind],
                            stderr=subprocess.DEVNULL, **ends)


@job(data=CPU, host="host_bound", rest="sync_bound launch_bound")
def patient_seamstress(s):
    """Nothing is to blame: a film is made larger between two programs, one that decodes into a pipe and one that
    encodes from another; both have much to do, but the first waits for room in its pipe, and the second for frames."""
    ms, frame = s.ms("gpu_ms", 20, 40), np.zeros(20000, np.float32)
    cost, encode, gpu = ms * s.ms("decode_share", 0.3, 0.6), ms * s.ms("encode_share", 0.2, 0.4), s.gpu(ms)
    source = program(frame.nbytes, cost / 2 if s.fix else cost, "decode",
                     stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    sink = program(frame.nbytes, encode, "encode", stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
    for pipe in source.stdout, sink.stdin:
        fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, 1 << 18)
    s.go()
    while True:
        s.mark()
        with s.during("data"):
            source.stdout.readinto(frame)
        s.train(gpu, frame)
        with s.during("host"):
            sink.stdin.write(frame)
            sink.stdin.flush()


# ---- a ranking service

FEATURES = 4096


def store(s):
    """A feature store that is far away, asked in the way of Redis."""
    late, spread = float(s.told("late")) / 1e3, s.ms("spread", 0.05, 0.3)
    door = socket.create_server(("127.0.0.1", 0))
    s.tell("port", door.getsockname()[1])

    def serve(link, n):
        stream, chance = link.makefile("rwb"), random.Random(n)
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for line in stream:
            keys = line.split()[1:]
            time.sleep(late * chance.lognormvariate(0, spread))
            stream.write(b"*%d\r\n" % len(keys) + b"$%d\r\n%b\r\n" % (FEATURES, bytes(FEATURES)) * len(keys))
            stream.flush()
    for n in itertools.count():
        thread(serve, door.accept()[0], n)


async def ask(reader, writer, keys):
    writer.write(b"MGET %b\r\n" % b" ".join(keys))
    found = []
    for _ in range(int((await reader.readline())[1:])):
        size = int((await reader.readline())[1:])
        found.append((await reader.readexactly(size + 2))[:size])
    return found


async def hydrate(end, port, lanes, items, together):
    """Puts the features of users and items to requests, some at a time."""
    _, out = await asyncio.open_connection(sock=end)
    out.transport.set_write_buffer_limits(0)
    requests, turn = itertools.count(), asyncio.Lock()

    async def lane():
        link = await asyncio.open_connection("127.0.0.1", port)
        for n in requests:
            keys = [b"user:%d" % n] + [b"item:%d" % (n * 31 + i) for i in range(items)]
            if together:
                found = await ask(*link, keys)
            else:
                found = [part for key in keys for part in await ask(*link, [key])]
            async with turn:
                out.write(b"".join(found))
                await out.drain()
    await asyncio.gather(*(lane() for _ in range(lanes)))


@job(outside=store, data="network_bound too_few_workers", rest="sync_bound launch_bound")
def button_errands(s):
    """A ranking model sees recorded requests again: an asyncio process puts their features to them, a few requests at
    a time, and streams them to the loop; to blame is the feature store, which is far away and is asked for the
    user's and then each item's features one by one, where one question would do for all."""
    ms, lanes, items = s.ms("gpu_ms", 10, 40), s.int("lanes", 1, 3), s.int("items", 4, 9)
    s.tell("late", ms * s.ms("late_share", 1.6, 3) * lanes / (items + 1))
    port, gpu, (mine, theirs) = int(s.told("port")), s.gpu(ms), socket.socketpair()
    theirs.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 16 << 10)
    s.supplier(child(lambda: asyncio.run(hydrate(theirs, port, lanes, items, s.fix))).pid)
    theirs.close()
    stream, x = mine.makefile("rb"), np.zeros((items + 1) * FEATURES // 4, np.float32)

    def obtain():
        stream.readinto(x)
        return x
    s.loop(gpu, obtain)
