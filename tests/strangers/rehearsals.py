# SPDX-License-Identifier: BSD-2-Clause
"""Well-known training scripts as people write them by hand: with environments, actors, miners and sweeps."""
import collections
import concurrent.futures
import math
import mmap
import multiprocessing
import multiprocessing.connection
import os
import pickle
import random
import socket
import threading
import time
import timeit

import numpy as np

from stranger import CPU, child, decode, job, mortal, parse


def supply(out, cost, size):
    while True:
        decode(cost)
        out.put(np.zeros(size, np.float32))


def supplied(cost, size=50000):
    """A process that decodes, and a queue. Returns get and the process."""
    out = multiprocessing.Queue(maxsize=4)
    return out.get, child(supply, out, cost, size)


def download(gpu, array):
    """What tensor.cpu() does."""
    gpu.check(gpu.lib.cudaMemcpy(array.ctypes.data, gpu.input, array.nbytes, 2))


def takes(f):
    """How many ms a call of f takes on this machine."""
    return min(timeit.repeat(f, number=1, repeat=5)) * 1e3


# ---- the data: environments and actors


def engine(port, cost, size):
    """A game engine: it connects back to who started it, and speaks first."""
    link = socket.create_connection(("127.0.0.1", port))
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    actions = link.makefile("rb")
    while True:
        decode(cost)  # physics, then the agents' cameras
        link.sendall(bytes(size))
        actions.read(64)


@job(data=CPU, rest="sync_bound launch_bound")
def puppet_engine(s):
    """As with ML-Agents, a game engine connects back, sends what it sees, and is answered with actions."""
    ms, size = s.ms("gpu_ms", 10, 50), s.int("kib", 32, 900) << 10
    cost, gpu = ms * s.ms("engine_share", 1.2, 2.6), s.gpu(ms)
    door = socket.create_server(("127.0.0.1", 0))
    s.supplier(child(engine, door.getsockname()[1], cost / 6 if s.fix else cost, size).pid)
    link = door.accept()[0]
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    eyes = link.makefile("rb")
    s.go()
    while True:
        s.mark()
        with s.during("data"):
            seen = np.frombuffer(eyes.read(size), np.uint8)
        gpu.upload(seen.ctypes.data, seen.nbytes)
        gpu.forward()
        gpu.loss_item()  # the actions; the engine goes on while the device learns
        link.sendall(bytes(64))
        gpu.backward()
        gpu.optimizer()


def emulate(link, hz, frames, play, seed):
    """An emulator that nobody told to run faster than the real machine."""
    at = time.monotonic() + random.Random(seed).random() * frames / hz
    while True:
        for _ in range(frames):
            decode(play)
            at += 1 / hz
            time.sleep(max(at - time.monotonic(), 0))
        link.send_bytes(bytes(7056 * frames))


@job(data="too_few_workers", rest="sync_bound launch_bound")
def matinee_hall(s):
    """A replay table with a rate limiter: so many samples for each insert; emulators keep to their clock."""
    ms, players, hz = s.ms("gpu_ms", 8, 40), s.int("players", 2, 4), s.one("hz", 30, 50, 60)
    frames = math.ceil(ms * s.ms("slack", 1.6, 3.2) * players * hz / 1e3)
    gpu, play, links = s.gpu(ms), s.ms("play_ms", 0.1, 0.5), []
    for n in range(players):
        mine, theirs = multiprocessing.Pipe(duplex=False)
        child(emulate, theirs, 5 * hz if s.fix else hz, frames, play, n)
        links.append(mine)
    table, room, credit = collections.deque(maxlen=64), threading.Condition(), [0]

    def insert():
        while True:
            for link in multiprocessing.connection.wait(links):
                chunk = np.frombuffer(link.recv_bytes(), np.uint8)
                with room:
                    table.append(chunk)
                    credit[0] = min(credit[0] + 1, 4)
                    room.notify()
    threading.Thread(target=insert, daemon=True).start()

    def sample():
        with room:
            room.wait_for(lambda: credit[0])
            credit[0] -= 1
            return np.stack(s.random.choices(table, k=4))
    s.loop(gpu, sample)


def act(ring, lock, play, pack, apart, seed):
    chance = random.Random(seed)
    while True:
        time.sleep(play / 1e3 * chance.uniform(0.7, 1.3))  # the robot moves in its own time
        if apart:
            decode(pack)
        with lock:
            if not apart:
                decode(pack)  # the frames are packed right where they are to stand
            ring[chance.randrange(len(ring))] = 1


@job(data="lock_bound", rest="sync_bound launch_bound")
def prop_room(s):
    """Replay in shared memory under one lock: actors pack their frames with it held, the learner samples."""
    ms, slots, floats = s.ms("gpu_ms", 8, 45), s.int("slots", 64, 512), s.int("floats", 1000, 6000)
    gpu, lock = s.gpu(ms), multiprocessing.Lock()
    play, pack = ms * s.ms("play_share", 0.4, 1), ms * s.ms("pack_share", 0.6, 1.4)
    ring = np.frombuffer(mmap.mmap(-1, 4 * slots * floats), np.float32).reshape(slots, floats)
    for n in range(2):
        child(act, ring, lock, play, pack, s.fix, n)
    rng = np.random.default_rng(1)

    def sample():
        with lock:
            return ring[rng.integers(slots, size=32)]
    s.loop(gpu, sample)


@job(data="lock_bound cpu_bound", threads=True, rest="sync_bound launch_bound")
def chorus_line(s):
    """A vector environment by a thread for each world; the worlds are plain Python."""
    ms, worlds = s.ms("gpu_ms", 8, 60), s.int("worlds", 2, 4)
    gpu, cost = s.gpu(ms), ms * s.ms("worlds_share", 0.7, 2.5) / worlds
    pool = concurrent.futures.ThreadPoolExecutor(worlds)

    def move(action):
        parse(cost / 25 if s.fix else cost)
        return np.full((84, 84), action, np.uint8)

    def step_all():
        return np.stack(list(pool.map(move, range(worlds))))
    step_all()  # the threads are there from now on
    s.loop(gpu, step_all)


def agents(many):
    return [{"agent": "npc-%d" % n, "place": [n * 0.5, n * 1.5, n * 2.5], "sees": list(range(n, n + 6)),
             "alive": n % 2 == 0} for n in range(many)]


def world(link, many, play):
    info = {"agents": agents(many)}
    while True:
        action = link.recv()
        parse(play)
        link.send((np.full((84, 84), action, np.uint8), 1.0, False, info))


@job(data="ipc_bound", rest="sync_bound launch_bound")
def stage_whispers(s):
    """SubprocVecEnv: worlds answer over pipes, and put all they know in the info, unread."""
    ms, worlds = s.ms("gpu_ms", 10, 50), s.int("worlds", 1, 3)
    gpu, few = s.gpu(ms), agents(1000)
    unit = takes(lambda: pickle.loads(pickle.dumps(few))) / len(few)
    many = int(ms * s.ms("info_share", 0.7, 1.8) / unit / worlds)
    play, links = ms * s.ms("play_share", 0.01, 0.08), []
    for _ in range(worlds):
        mine, theirs = multiprocessing.Pipe()
        child(world, theirs, many // 40 if s.fix else many, play)
        links.append(mine)

    def step_wait():
        for n, link in enumerate(links):
            link.send(n)
        seen, *_ = zip(*[link.recv() for link in links])
        return np.stack(seen)
    s.loop(gpu, step_wait)


# ---- the data: other trainers


def recite(out, cost, seed):
    chance = random.Random(seed)
    while True:
        frames = int(min(max(chance.lognormvariate(5.6, 0.6), 60), 1200))
        decode(cost * frames / 324)  # 324 are the mean
        out.put(np.zeros((frames, 40), np.float32))


@job(data=CPU, rest="sync_bound launch_bound")
def line_readings(s):
    """Speech: utterances arrive one by one and wait in buckets by length; a full bucket is a batch."""
    ms, mean = s.ms("gpu_ms", 12, 60), s.int("utterances", 4, 12)
    edges, budget = [150, 250, 400, 700][:s.int("edges", 2, 4)], 324 * mean
    gpu, cost = s.gpu(ms), ms * s.ms("load_share", 1.6, 2.8) / mean
    arrived, buckets = multiprocessing.Queue(maxsize=8), [[] for _ in range(len(edges) + 1)]
    s.supplier(child(recite, arrived, cost / 5 if s.fix else cost, s.int("seed", 1, 999)).pid)

    def fill():
        while True:
            x = arrived.get()
            bucket = buckets[sum(len(x) > e for e in edges)]
            if not bucket or sum(map(len, bucket)) + len(x) <= budget:
                bucket.append(x)
                continue
            batch = np.zeros((len(bucket), max(map(len, bucket)), 40), np.float32)
            for row, utterance in zip(batch, bucket):
                row[:len(utterance)] = utterance
            bucket[:] = [x]
            return batch
    s.loop(gpu, fill)


@job(data=CPU, rest="sync_bound launch_bound transfer_bound")
def casting_call(s):
    """Selective training: a small model scores the candidates as they come; one of them is learnt."""
    many, few = s.int("candidates", 3, 6), s.int("score_launches", 10, 60)
    ms, score_ms = s.ms("gpu_ms", 10, 40), s.ms("score_ms", 1.5, 6)
    scorer, gpu = s.gpu(score_ms, launches=few), s.gpu(ms)
    cost = (ms + many * score_ms) * s.ms("load_share", 1.3, 2.5) / many
    candidate, maker = supplied(cost / 5 if s.fix else cost)
    s.supplier(maker.pid)
    s.go()
    while True:
        s.mark()
        scorer.enter_thread()
        pile = []
        for _ in range(many):
            s.mark("micro")
            with s.during("data"):
                x = candidate()
            scorer.upload(x.ctypes.data, x.nbytes)
            scorer.launch(0, few)
            pile.append(x)
        scorer.loss_item()  # the scores of all
        gpu.enter_thread()
        s.train(gpu, s.random.choice(pile), item=False)


@job(data="main_thread_loading", rest="sync_bound launch_bound")
def light_rehearsal(s):
    """A radiance field: each step numpy works out all rays of a picture; a few of them are used."""
    side, count = s.int("side", 280, 640), s.one("rays", 1024, 2048, 4096)
    rng, line = np.random.default_rng(1), np.arange(side, dtype=np.float32)
    views = rng.integers(0, 255, (s.int("views", 4, 12), side * side, 3), np.uint8)
    pose = rng.random((3, 3), np.float32)

    def rays(i, j):
        ahead = np.stack([i / side - 0.5, 0.5 - j / side, np.full_like(i, -1)], -1)
        return np.sum(ahead[..., None, :] * pose, -1)

    def batch(few):
        view = views[rng.integers(len(views))]
        chosen = rng.integers(side * side, size=count) if few else rng.permutation(side * side)[:count]
        if few:
            there = rays(line[chosen % side], line[chosen // side])
        else:
            there = rays(*np.meshgrid(line, line)).reshape(-1, 3)[chosen]
        return np.concatenate([there, view[chosen] / np.float32(255)], 1)
    took = takes(lambda: batch(False))
    gpu = s.gpu(s.keep("gpu_ms", max(took / s.ms("rays_share", 0.5, 2.5), 4)))
    s.loop(gpu, lambda: batch(s.fix))


def seek(link, cost, size):
    while True:
        link.recv_bytes()
        decode(cost)  # the nearest of all passages, but for the right ones
        link.send_bytes(bytes(size))


@job(data=CPU + " host_bound", rest="sync_bound launch_bound transfer_bound")
def understudy_search(s):
    """Contrastive pairs: between forward and backward an index in a process finds the hardest negatives."""
    ms, size = s.ms("gpu_ms", 10, 60), s.int("kib", 64, 512) << 10
    gpu, cost = s.gpu(ms), ms * s.ms("index_share", 0.5, 1.6)
    mine, theirs = multiprocessing.Pipe()
    s.supplier(child(seek, theirs, cost / 20 if s.fix else cost, size).pid)
    pairs, queries = np.zeros((4096, 256), np.float32), np.zeros(64 * 128, np.float32)
    rng = np.random.default_rng(1)
    s.go()
    while True:
        s.mark()
        with s.during("data"):
            x = pairs[rng.integers(len(pairs), size=64)]
        gpu.upload(x.ctypes.data, x.nbytes)
        gpu.forward()
        download(gpu, queries)
        with s.during("data"):
            mine.send_bytes(queries)
            hard = np.frombuffer(mine.recv_bytes(), np.uint8)
        gpu.upload(hard.ctypes.data, hard.nbytes)
        gpu.backward()
        gpu.optimizer()


# ---- not the data


def panoptic(task):
    cost, mask = task
    parse(cost)  # segments are matched, in Python
    return int(mask.sum())


@job(data=CPU, child="host_bound", rest="sync_bound launch_bound")
def review_panel(s):
    """Every few steps the pictures just segmented are scored by a pool of processes; the loader keeps up."""
    ms, every, parts = s.ms("gpu_ms", 10, 40), s.int("every", 2, 6), 2 * s.int("pairs", 2, 6)
    gpu, (batch, _) = s.gpu(ms), supplied(ms * s.ms("load_share", 0.05, 0.2))
    cost = ms * every * s.ms("score_share", 0.3, 0.75) * 2 / parts
    pool = multiprocessing.Pool(2, mortal, (os.getpid(),))
    tasks, pending, n = [(cost, np.ones((200, 200), np.uint8))] * parts, None, 0
    s.go()
    while True:
        s.step(gpu, batch)
        n += 1
        if n % every == 0:
            with s.during("child"):
                if not s.fix:
                    pool.map(panoptic, tasks, 1)
                elif pending is None or pending.ready():  # else these are left out
                    pending = pool.map_async(panoptic, tasks, 1)


@job(data=CPU, host="host_bound sync_bound", rest="transfer_bound sync_bound")
def mirror_wardrobe(s):
    """CycleGAN: photos, paintings, and a history of fakes on the host as bytes, to fool the critic with."""
    images, side = s.int("images", 8, 24), s.one("side", 192, 256)
    fakes = np.zeros((images, 3, side, side), np.float32)
    history = np.zeros((50, 3, side, side), np.uint8)

    def exchange():
        new = (np.clip(fakes, -1, 1) * 127.5 + 127.5).astype(np.uint8)
        for n in range(images):
            if s.random.random() < 0.5:
                old = s.random.randrange(len(history))
                new[n], history[old] = history[old].copy(), new[n].copy()
        return new.astype(np.float32) / np.float32(127.5) - 1
    took = takes(exchange)
    ms = s.keep("gpu_ms", max(took / s.ms("history_share", 0.25, 0.9), 6))
    gpu, (photo, _), (painting, _) = s.gpu(ms, input_bytes=fakes.nbytes), *(
        supplied(ms * s.ms(name, 0.05, 0.25)) for name in ("photo_share", "painting_share"))
    s.go()
    while True:
        s.mark()
        with s.during("data"):
            x, y = photo(), painting()
        gpu.upload(x.ctypes.data, x.nbytes)
        gpu.upload(y.ctypes.data, y.nbytes)
        gpu.forward()
        if not s.fix:  # else the history is on the device
            download(gpu, fakes)
            with s.during("host"):
                shown = exchange()
            gpu.upload(shown.ctypes.data, shown.nbytes)
        gpu.backward()
        gpu.optimizer()
        gpu.loss_item()


def perform(out, cost, pause):
    while True:
        parse(cost)
        time.sleep(pause / 1e3)
        out.put(np.zeros((8, 84, 84), np.uint8))


@job(data="main_thread_loading lock_bound", rest="sync_bound launch_bound")
def repertory_troupe(s):
    """Off-policy: actors play all the time, a thread fills the replay, and the learner draws."""
    players, cost = s.int("players", 1, 2), s.ms("play_ms", 4, 15)
    gpu, out, size = s.gpu(s.ms("gpu_ms", 20, 90)), multiprocessing.Queue(maxsize=8), s.int("batch", 16, 40)
    pause = 5 * cost if s.fix else 0.6 * cost * (players - 1)  # no more than the cores can do
    for _ in range(players):
        child(perform, out, cost, pause)
    replay, rng = np.ones((4096, 84, 84), np.uint8), np.random.default_rng(1)

    def remember():
        at = 0
        while True:
            replay[at:at + 8] = out.get()
            at = (at + 8) % len(replay)
    threading.Thread(target=remember, daemon=True).start()
    s.loop(gpu, lambda: replay[rng.integers(len(replay), size=size)])


@job(data="main_thread_loading", host="host_bound sync_bound",
     rest="transfer_bound sync_bound launch_bound")
def touring_companies(s):
    """Private federated averaging: after a client's few steps its change is clipped, noise added."""
    floats, steps, clients = s.int("mib", 2, 12) << 18, s.int("local_steps", 2, 5), s.int("clients", 3, 8)
    weights, local, change, noise, total = (np.zeros(floats, np.float32) for _ in range(5))
    shards, rng = np.zeros((clients, 2048, 256), np.float32), np.random.default_rng(1)

    def settle():
        np.subtract(local, weights, change)
        norm = float(np.sum(np.square(change, noise)))
        np.multiply(change, min(1, 1 / math.sqrt(norm + 1e-6)), change)
        rng.standard_normal(out=noise, dtype=np.float32)
        np.multiply(noise, 1e-3, noise)
        np.add(total, change, total)
        np.add(total, noise, total)
    took = takes(settle)
    ms = s.keep("gpu_ms", max(took / steps / s.ms("settle_share", 0.3, 1), 4))
    gpu = s.gpu(ms, input_bytes=weights.nbytes)
    s.go()
    while True:
        for shard in shards:
            gpu.upload(weights.ctypes.data, weights.nbytes)
            for _ in range(steps):
                s.step(gpu, lambda: shard[rng.integers(len(shard), size=64)])
            if not s.fix:  # else the device does it
                download(gpu, local)
                with s.during("host"):
                    settle()


@job(data=CPU, host="host_bound sync_bound", rest="sync_bound launch_bound transfer_bound")
def four_leads(s):
    """Population-based training: small models share a batch; at times the worst copies the best."""
    ms, models, every = s.ms("model_ms", 3, 14), s.int("models", 3, 6), s.int("exploit_every", 4, 20)
    batch, _ = supplied(ms * models * s.ms("load_share", 0.2, 0.6))
    best, rng = np.ones(s.int("mib", 1, 4) << 18, np.float32), np.random.default_rng(1)
    gpu, n = s.gpu(ms, input_bytes=best.nbytes, launches=s.int("launches", 60, 300)), 0
    s.go()
    while True:
        s.mark()
        with s.during("data"):
            x = batch()
        gpu.upload(x.ctypes.data, x.nbytes)
        losses = []
        for model in range(models):
            s.mark("micro")
            s.train(gpu, item=not s.fix or model == models - 1)
            losses.append(gpu.loss.value)
        n += 1
        if n % every == 0:
            download(gpu, best)
            with s.during("host"):
                best *= rng.choice(np.array([0.999, 1.001], np.float32), len(best))
            gpu.upload(best.ctypes.data, best.nbytes)
