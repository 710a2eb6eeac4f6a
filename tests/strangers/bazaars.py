# SPDX-License-Identifier: BSD-2-Clause
"""Jobs that infer, generate, search, play or clean: more on a device than the plain training."""
import itertools
import json
import multiprocessing
import multiprocessing.connection
import os
import queue
import random
import select
import signal
import socket
import threading
import time
import zlib

import numpy as np

from stranger import CPU, child, decode, job, mortal, parse


def supply(out, cost, size):
    while True:
        decode(cost)
        out.put(np.zeros(size, np.uint8))


# ---- the next batch is late


@job(data="slow_worker", host="host_bound sync_bound", rest="sync_bound launch_bound")
def prompt_waves(s):
    """Offline answers in waves: a tokenizer for each language by turns, prefill, then decoding."""
    first, token = s.ms("prefill_ms", 6, 20), s.ms("token_ms", 2, 6)
    tokens, spell = s.int("tokens", 3, 8), s.ms("spell_ms", 0.05, 0.3)
    prefill = s.gpu(first, launches=s.int("many", 20, 100))
    step = s.gpu(token, launches=s.int("few", 8, 30))
    wave = first + tokens * token
    cost, late = wave * s.ms("quick", 0.1, 0.3), 3 * wave * s.ms("late", 1.4, 2.6)
    queues = [multiprocessing.Queue(maxsize=2) for _ in range(3)]
    lame, size = s.int("lame", 0, 2), s.int("kib", 16, 128) << 10
    pids = [child(supply, q, late if n == lame and not s.fix else cost, size).pid
            for n, q in enumerate(queues)]
    s.supplier(pids[lame])
    s.go()
    for q in itertools.cycle(queues):
        s.mark()
        with s.during("data"):
            x = q.get()
        prefill.enter_thread()
        s.train(prefill, x)
        step.enter_thread()
        for _ in range(tokens):
            s.mark("micro")
            s.train(step)
            with s.during("host"):
                parse(spell)  # the token's text, stop words


def level(link, move, build, length, left):
    """An environment; when an episode ends it builds another level."""
    frame = bytes(40000)
    while True:
        link.recv_bytes()
        left -= 1
        if left:
            parse(move)
        else:
            parse(build)
            left = length
        link.send_bytes(frame)


@job(data="slow_item", rest="sync_bound launch_bound")
def level_resets(s):
    """A policy learns from three environments in processes, whose levels are built at a reset."""
    ms, move = s.ms("gpu_ms", 8, 20), s.ms("move_ms", 0.2, 0.6)
    every, share = s.int("every", 8, 14), s.ms("build_share", 0.5, 1.2)
    gpu, links = s.gpu(ms), []
    build = move if s.fix else every * (ms + move) * share
    for n in range(3):
        mine, theirs = multiprocessing.Pipe()
        child(level, theirs, move, build, 3 * every, (n + 1) * every)
        links.append(mine)

    def moved():
        for link in links:
            link.send_bytes(b"left")
        return np.frombuffer(b"".join([link.recv_bytes() for link in links]), np.uint8)
    s.loop(gpu, moved)


def cluster(s):
    """A simulation that runs elsewhere and sends each field when it is computed."""
    pause, size = json.loads(s.told("plan"))
    door, chance = socket.create_server(("127.0.0.1", 0)), random.Random(3)
    s.tell("port", door.getsockname()[1])
    link, field = door.accept()[0], bytes(size)
    while True:
        time.sleep(pause / 1e3 * chance.uniform(0.8, 1.2))
        link.sendall(field)


def receive(out, port, size):
    stream = socket.create_connection(("127.0.0.1", port)).makefile("rb")
    while True:
        out.put(np.frombuffer(stream.read(size), np.uint8))


@job(outside=cluster, data="network_bound", rest="sync_bound launch_bound")
def pushed_fields(s):
    """An emulator learns from fields that a simulation on a cluster sends while it runs."""
    ms, size = s.ms("gpu_ms", 10, 45), s.int("kib", 32, 500) << 10
    pause = ms * (0.4 if s.fix else s.ms("pause_share", 1.4, 4))
    gpu = s.gpu(ms)
    s.tell("plan", json.dumps([pause, size]))
    port, out = int(s.told("port")), multiprocessing.Queue(maxsize=4)
    s.supplier(child(receive, out, port, size).pid)
    s.loop(gpu, out.get)


def player(link, frames):
    while True:
        link.send(frames)


@job(data="ipc_bound", rest="sync_bound launch_bound")
def float_frames(s):
    """Upscaling: a process sends its frames as doubles through a pipe; a thread writes results."""
    ms, mib = s.ms("gpu_ms", 5, 25), s.int("mib", 6, 24)
    gpu = s.gpu(ms, input_bytes=mib << 20)
    mine, theirs = multiprocessing.Pipe(duplex=False)
    frames = np.zeros(mib << 17, np.uint8 if s.fix else np.float64)
    child(player, theirs, frames)
    larger, picture = queue.Queue(maxsize=8), bytes(60000)

    def write():
        with open(os.devnull, "wb") as f:
            while True:
                f.write(zlib.compress(larger.get(), 1))
    threading.Thread(target=write, daemon=True).start()
    s.go()
    while True:
        s.step(gpu, mine.recv)
        if not larger.full():
            larger.put(picture)


@job(data="main_thread_loading", host="host_bound", rest="sync_bound launch_bound")
def scratch_cells(s):
    """A notebook's cell unpacks each batch in its loop, and draws the curves every few steps."""
    ms, every = s.ms("gpu_ms", 10, 60), s.int("every", 5, 12)
    cost = ms * (0.03 if s.fix else s.ms("unpack_share", 0.35, 1.6))
    gpu, draw, losses = s.gpu(ms), s.ms("draw_ms", 10, 60), []
    canvas = np.zeros((400, 600, 3), np.uint8)

    def unpack():
        decode(cost)
        return np.zeros(100000, np.float32)

    def heartbeat():
        while True:
            time.sleep(0.5)
    threading.Thread(target=heartbeat, daemon=True).start()
    s.go()
    for n in itertools.count(1):
        s.step(gpu, unpack)
        losses.append(gpu.loss.value)
        if n % every == 0:
            with s.during("host"):
                parse(draw)
                with open(s.path("curves.png"), "wb") as f:
                    f.write(zlib.compress(canvas.tobytes(), 1))


def search(link, cost, seed):
    """Plays against itself: walks down its tree, and has the leaves evaluated."""
    chance, leaves = random.Random(seed), bytes(20000)
    while True:
        parse(cost * chance.uniform(0.6, 1.4))
        link.send_bytes(leaves)
        link.recv_bytes()


@job(data=CPU, rest="sync_bound launch_bound")
def tree_leaves(s):
    """Self-play: processes search trees, and one loop evaluates the leaves of all of them."""
    ms, many = s.ms("gpu_ms", 6, 25), s.int("searchers", 1, 3)
    cost = ms * many * (0.02 if s.fix else s.ms("search_share", 1.5, 4))
    gpu, links, pids = s.gpu(ms), [], []
    for n in range(many):
        mine, theirs = multiprocessing.Pipe()
        pids.append(child(search, theirs, cost, n).pid)
        links.append(mine)
    if many == 1:
        s.supplier(pids[0])
    s.go()
    while True:
        s.mark()
        with s.during("data"):
            ready = multiprocessing.connection.wait(links)
            leaves = np.frombuffer(b"".join([r.recv_bytes() for r in ready]), np.uint8)
        s.train(gpu, leaves)
        for link in ready:
            link.send_bytes(b"value and policy")


def unpack_items(out, path, cost, n):
    """Reads a raw item of the collection and decodes it."""
    fd, chance = os.open(path, os.O_RDONLY), random.Random(n)
    while True:
        item = os.pread(fd, 1 << 17, chance.randrange(16) << 17)
        decode(cost)
        out.put(np.frombuffer(item, np.uint8))


@job(data=CPU, rest="sync_bound launch_bound")
def scrub_crew(s):
    """A collection is cleaned: a crew of processes decodes, a model says what is worth keeping."""
    ms, crew = s.ms("gpu_ms", 15, 55), s.int("crew", 5, 7)
    cores = len(os.sched_getaffinity(0))
    cost = ms * cores * (0.1 if s.fix else s.ms("decode_share", 1.35, 2.5))
    gpu, out, kept = s.gpu(ms), multiprocessing.Queue(maxsize=4), 0
    with open(s.path("items"), "wb") as f:
        f.write(random.Random(2).randbytes(2 << 20))
    for n in range(crew):
        child(unpack_items, out, s.path("items"), cost, n)
    s.go()
    while True:
        s.step(gpu, out.get)
        kept += gpu.loss.value > 0.5


# ---- it is not the data


def average(door):
    """The aggregator: takes both models, gives the mean of them."""
    streams = [door.accept()[0].makefile("rwb") for _ in range(2)]
    while True:
        models = [np.frombuffer(f.read(1 << 16), np.uint8) for f in streams]
        mean = (models[0] // 2 + models[1] // 2).tobytes()
        for f in streams:
            f.write(mean)
            f.flush()


@job(data=CPU, peer="rank_straggler", rest="sync_bound launch_bound")
def silo_rounds(s):
    """Federated rounds of two hospitals, a process and a device each; one has an older device."""
    ms, launches = s.ms("gpu_ms", 8, 22), s.int("launches", 10, 80)
    local, lag = s.int("local_steps", 2, 6), s.ms("lag", 1.5, 3)
    load = ms * s.ms("load_share", 0.05, 0.15)
    door, parent = socket.create_server(("127.0.0.1", 0)), os.getpid()
    child(average, door)
    for n in range(2):
        if os.fork():
            continue
        mortal(parent, signal.SIGTERM)  # it has a log to write
        s.rank(n)
        stream = socket.create_connection(door.getsockname()).makefile("rwb")
        gpu = s.gpu(ms * lag if n and not s.fix else ms, launches=launches)
        if n == 0:  # its records are many; those of the other lie on the device
            out = multiprocessing.Queue(maxsize=4)
            child(supply, out, load, 60000)
        s.told("go")
        for step in itertools.count(1):
            if n == 0:
                s.step(gpu, out.get)
            else:
                s.mark()
                s.train(gpu)
            if step % local == 0:
                with s.during("peer"):
                    stream.write(bytes(1 << 16))
                    stream.flush()
                    stream.read(1 << 16)
    s.go()
    signal.pause()


@job(lock="lock_bound host_bound", rest="sync_bound launch_bound")
def acquisition_fit(s):
    """Trials take turns in one process; a thread fits a surrogate to the table they report to."""
    ms, trials = s.ms("gpu_ms", 8, 38), s.int("trials", 2, 6)
    gpu, fit, pause = s.gpu(ms), ms * s.ms("fit_share", 1.5, 4), s.ms("pause_ms", 1, 4) / 1e3
    table, lock = [], threading.Lock()

    def surrogate():
        while True:
            if s.fix:
                decode(fit)  # it works on a copy
            with lock:
                del table[:-1000]
                if not s.fix:
                    decode(fit)
            time.sleep(pause)
    threading.Thread(target=surrogate, daemon=True).start()
    s.go()
    for n in itertools.count():
        s.mark()
        s.train(gpu)  # the data set is on the device
        with s.during("lock"):
            lock.acquire()
        table.append((n % trials, gpu.loss.value))
        lock.release()


def checker(link, cost):
    """Says of each picture whether it may be shown."""
    while True:
        link.recv_bytes()
        decode(cost)
        link.send_bytes(b"safe")


@job(child="host_bound", rest="sync_bound launch_bound")
def checked_pictures(s):
    """Diffusion: after its denoising steps each picture goes to a safety checker on the CPU."""
    ms, k = s.ms("denoise_ms", 3, 8), s.int("denoise_steps", 4, 10)
    gpu, cost = s.gpu(ms, launches=s.int("launches", 10, 60)), ms * k * s.ms("check", 0.3, 1.2)
    mine, theirs = multiprocessing.Pipe()
    child(checker, theirs, cost)
    noise, asked = np.zeros(s.int("kib", 8, 64) << 10, np.uint8), 0
    s.go()
    while True:
        s.mark()
        gpu.upload(noise.ctypes.data, noise.nbytes)
        for _ in range(k):
            s.mark("micro")
            s.train(gpu, item=False)
        gpu.loss_item()
        with s.during("child"):
            if asked and s.fix:
                mine.recv_bytes()  # what was said of the picture before
            mine.send_bytes(noise)
            asked += 1
            if not s.fix:
                mine.recv_bytes()


@job(ckpt="checkpoint_stall host_bound", host="host_bound", rest="sync_bound launch_bound")
def publish_policy(s):
    """Post-training: answers are generated and rated by a rule, learnt from, the policy saved."""
    token, batch = s.ms("token_ms", 2, 5), s.ms("batch_ms", 6, 14)
    tokens, batches = s.int("tokens", 5, 10), s.int("batches", 2, 3)
    sampler = s.gpu(token, launches=s.int("few", 8, 30))
    learner = s.gpu(batch, launches=s.int("many", 20, 100))
    rule = s.ms("rule_ms", 0.3, 1.5)
    pack = (tokens * token + batches * batch) * s.ms("pack_share", 0.35, 0.9)
    part, answers = bytes(1 << 17), np.zeros(8000, np.int64)
    s.go()
    for n in itertools.count(1):
        s.mark()
        sampler.enter_thread()
        for _ in range(tokens):
            s.mark("micro")
            s.train(sampler)
        with s.during("host"):
            parse(rule)
        learner.enter_thread()
        for _ in range(batches):
            s.mark("micro")
            s.train(learner, answers)
        if not s.fix or n % 50 == 0:
            with s.during("ckpt"):
                with open(s.path("policy.part"), "wb") as f:
                    for _ in range(8):
                        decode(pack / 8)  # each layer is packed
                        f.write(part)
                os.replace(s.path("policy.part"), s.path("policy"))


def judging(door, cost):
    """Reads an answer, thinks, says a mark."""
    stream = door.accept()[0].makefile("rwb")
    while True:
        stream.read(2000)
        decode(cost)
        stream.write(b"7")
        stream.flush()


@job(host="host_bound", rest="sync_bound launch_bound")
def judged_meanwhile(s):
    """A judge at a socket marks a group's answers while others are generated and learnt from."""
    ms, group = s.ms("answer_ms", 12, 30), s.int("group", 2, 4)
    launches = s.int("launches", 10, 80)
    sampler = s.gpu(ms, launches=launches)
    learner = s.gpu(s.ms("learn_ms", 12, 40), launches=launches)
    door = socket.create_server(("127.0.0.1", 0))
    child(judging, door, ms * s.ms("judge_share", 0.1, 0.4))
    stream = socket.create_connection(door.getsockname()).makefile("rwb")
    prompts, answer = np.zeros(4000, np.int64), bytes(2000)
    s.go()
    for n in itertools.count():
        s.mark()
        for _ in range(group):
            s.mark("micro")
            sampler.enter_thread()
            s.train(sampler, prompts)
            with s.during("host"):
                stream.write(answer)
                stream.flush()
        if n:
            with s.during("host"):
                stream.read(group)  # the marks of the group before
        s.mark("micro")
        learner.enter_thread()
        s.train(learner)


def encode(frames, cost, path):
    """Encodes what the device has scaled; the file is begun anew now and then."""
    while True:
        with open(path, "wb") as f:
            for _ in range(100):
                frames.get()
                decode(cost)
                f.write(bytes(20000))


@job(data=CPU, host="host_bound", rest="sync_bound launch_bound")
def transcode_ladder(s):
    """Transcoding: one process decodes, the device scales to three sizes, another encodes."""
    ms, size = s.ms("gpu_ms", 25, 120), s.int("kib", 50, 300) << 10
    gpu, frames = s.gpu(ms), multiprocessing.Queue(maxsize=4)
    scaled, small = multiprocessing.Queue(maxsize=8), bytes(30000)
    child(supply, frames, ms * s.ms("decode_share", 0.1, 0.5), size)
    child(encode, scaled, ms * s.ms("encode_share", 0.1, 0.5), s.path("ladder"))
    s.go()
    while True:
        s.step(gpu, frames.get)
        with s.during("host"):
            scaled.put(small)


def microphones(s):
    """People who speak now and then; each phrase is sent when it has been said."""
    port, many, pause = json.loads(s.told("plan"))
    links = [socket.create_connection(("127.0.0.1", port)) for _ in range(many)]
    chance = random.Random(4)
    s.told("go")
    while True:
        time.sleep(pause / 1e3 * chance.uniform(0.6, 1.4))
        chance.choice(links).sendall(bytes(6400))


@job(outside=microphones, demand="no_demand", host="host_bound sync_bound",
     rest="sync_bound launch_bound host_bound")
def live_captions(s):
    """Speech is recognised as it arrives from microphones, each of which has a connection."""
    ms, many = s.ms("gpu_ms", 5, 25), s.int("microphones", 2, 6)
    gpu, spell, share = s.gpu(ms), s.ms("spell_ms", 0.2, 1), s.ms("load", 0.15, 0.6)
    door = socket.create_server(("127.0.0.1", 0))
    s.tell("plan", json.dumps([door.getsockname()[1], many, ms / share]))
    links = [door.accept()[0] for _ in range(many)]
    s.go()
    while True:
        with s.during("demand"):
            ready, _, _ = select.select(links, [], [])
            sound = b"".join([link.recv(6400) for link in ready])
        s.mark()
        s.train(gpu, np.frombuffer(sound, np.uint8))
        with s.during("host"):
            parse(spell)  # the words, their times
