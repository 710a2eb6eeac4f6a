# SPDX-License-Identifier: BSD-2-Clause
"""Jobs that feed their device the way well-known training recipes do."""
import collections
import concurrent.futures
import http.client
import http.server
import io
import itertools
import json
import multiprocessing
import os
import queue
import random
import subprocess
import sys
import tarfile
import threading
import time
import zlib

import numpy as np

from stranger import CPU, child, job, mortal, parse


def shares(s, low=12, high=90, least=0.05):
    """How long the device works in a step, and how long a step is to take."""
    step = s.ms("step_ms", low, high)
    return step * s.ms("device", least, 0.8), step


def lasting(ms, f):
    """Calls f again and again until it has computed for so long; returns its last result."""
    end = time.thread_time_ns() + int(ms * 1e6)
    while True:
        result = f()
        if time.thread_time_ns() >= end:
            return result


class Quiet(http.server.BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass


# ---- language


@job(data="main_thread_loading", rest="sync_bound launch_bound")
def header_shards(s):
    """Pre-training: a binary shard is read whole, and the starts of its documents are sought."""
    ms, step = shares(s, high=60)
    gpu, batches = s.gpu(ms), s.int("batches", 2, 4)
    seek = (step - ms) * batches / (20 if s.fix else 1)
    tokens = np.random.default_rng(1).integers(0, 50000, 1 << 19).astype(np.uint16)
    tokens[::700] = 50256
    header = np.zeros(256, np.int32)
    header[:3] = 20240520, 1, len(tokens)
    with open(s.path("shard.bin"), "wb") as f:
        f.write(header.tobytes() + tokens.tobytes())

    def crops():
        while True:
            with open(s.path("shard.bin"), "rb") as f:
                count = int(np.frombuffer(f.read(1024), np.int32)[2])
                shard = np.frombuffer(f.read(2 * count), np.uint16)
            starts = lasting(seek, lambda: np.flatnonzero(shard == 50256))
            for _ in range(batches):
                rows = s.random.choices(range(len(starts) - 4), k=8)
                yield np.stack([shard[starts[r]:starts[r] + 1024] for r in rows]).astype(np.int64)
    source = crops()
    s.loop(gpu, lambda: next(source))


@job(data=CPU, rest="sync_bound")
def gpt_blend(s):
    """Three mapped corpora are read in a blended order; a niced child makes the next order."""
    ms, every = s.ms("gpu_ms", 12, 90), s.int("item_every", 1, 8)
    gpu, cost = s.gpu(ms), ms * s.ms("load_share", 0.05, 0.4)
    chance, corpora = np.random.default_rng(1), []
    for n in range(3):
        path = s.path("corpus-%d.bin" % n)
        chance.integers(0, 50000, 1 << 20).astype(np.uint16).tofile(path)
        corpora.append(np.memmap(path, np.uint16, "r"))
    order = chance.choice(3, 4096, p=[0.6, 0.3, 0.1])
    out = multiprocessing.Queue(maxsize=4)

    def row(n):
        tokens = corpora[order[n % len(order)]]
        at = n * 7919 % (len(tokens) - 1025)
        return tokens[at:at + 1025]

    def read():
        for n in itertools.count(0, 8):
            x = lasting(cost, lambda: np.stack([row(n + i) for i in range(8)]).astype(np.int64))
            out.put(x)

    def reorder():
        os.nice(19)
        while True:
            np.argsort(chance.random(200000))
    child(read)
    child(reorder)
    s.go()
    for n in itertools.count(1):
        s.mark()
        with s.during("data"):
            x = out.get()
        s.train(gpu, x, item=n % every == 0)


@job(data=CPU, host="sync_bound host_bound", rest="sync_bound launch_bound host_bound")
def cu_seqlens(s):
    """Fine-tuning on packed sequences: each layer reads the longest one's length by .item()."""
    ms, step = shares(s, 15, 100, least=0.3)
    layers, few = s.int("layers", 6, 20), s.int("few", 2, 8)
    gpu, own = s.gpu(ms / layers, launches=few), (step - ms) / layers
    cost, out = step * s.ms("pack_share", 0.05, 0.3), multiprocessing.Queue(maxsize=4)

    def first_fit():
        room = [2048] * 8
        for length in sorted((random.randint(30, 900) for _ in range(24)), reverse=True):
            for n, free in enumerate(room):
                if free >= length:
                    room[n] -= length
                    break
        return room

    def pack():
        while True:
            lasting(cost, first_fit)
            out.put(np.zeros((8, 2048), np.int64))
    child(pack)
    s.go()
    while True:
        s.mark()
        with s.during("data"):
            x = out.get()
        gpu.upload(x.ctypes.data, x.nbytes)
        for _ in range(layers):
            gpu.launch(0, few)
            if not s.fix:
                gpu.loss_item()  # max_seqlen
            with s.during("host"):
                parse(own)  # a module's hooks and its attention arguments
        gpu.loss_item()


@job(data="ipc_bound", rest="sync_bound launch_bound")
def dense_logits(s):
    """Distillation: a teacher's process sends logits for the whole vocabulary, one batch ahead."""
    ms, size = s.ms("gpu_ms", 3, 20), s.int("mib", 6, 24) << 20
    late = ms * s.ms("teacher_share", 0.1, 0.5) / 1e3
    if s.fix:
        size = 64 << 10  # the few largest
    gpu = s.gpu(ms, input_bytes=size)
    ours, theirs = multiprocessing.Pipe()

    def teach():
        logits = np.ones(size // 4, np.float32)
        while True:
            theirs.recv()
            time.sleep(late)  # the teacher's own device
            theirs.send(logits)
    child(teach)
    ids = np.zeros((8, 128), np.int64)

    def obtain():
        ours.send(ids)  # for the next step
        return ours.recv()
    ours.send(ids)
    s.loop(gpu, obtain)


# ---- images and video


@job(data="slow_item", rest="sync_bound launch_bound")
def mosaic_four(s):
    """Detection: four images and their polygons make a mosaic; a few images show crowds."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    import torch
    ms, every = s.ms("gpu_ms", 6, 14), s.one("every", 9, 11, 13)
    paste, crowd = ms * s.ms("paste_share", 0.1, 0.4), ms * s.ms("crowd_share", 7, 11)
    gpu, me = s.gpu(ms), os.getpid()
    images = np.random.default_rng(1).integers(0, 255, (16, 3, 160, 160)).astype(np.uint8)

    class Mosaics(torch.utils.data.Dataset):
        def __len__(self):
            return 10**6

        def __getitem__(self, i):
            canvas = np.full((3, 320, 320), 114, np.uint8)
            for n in range(4):
                y, x = n // 2 * 160, n % 2 * 160
                canvas[:, y:y + 160, x:x + 160] = images[(7 * i + n) % 16]
            parse(paste if s.fix or i % every else crowd)  # polygons are cut at the edges
            return torch.from_numpy(canvas)
    batches = iter(torch.utils.data.DataLoader(Mosaics(), None, num_workers=2,
                                               worker_init_fn=lambda _: mortal(me)))
    s.loop(gpu, lambda: next(batches).numpy())


@job(data=CPU, rest="sync_bound launch_bound")
def simclr_views(s):
    """Contrastive pairs: processes make two views of each image, into slots of shared memory."""
    ms, step = shares(s)
    workers, size = s.int("workers", 3, 5), 2 * 16 * 3 * 64 * 64
    gpu, cost = s.gpu(ms, input_bytes=4 * size), step * (0.2 if s.fix else 1.6)
    slots = np.frombuffer(multiprocessing.RawArray("f", 6 * size), np.float32).reshape(6, size)
    free, full = multiprocessing.SimpleQueue(), multiprocessing.SimpleQueue()
    image = np.random.default_rng(1).random((3, 96, 96), np.float32)

    def view(chance):
        y, x = chance.randrange(32), chance.randrange(32)
        crop = image[:, y:y + 64, x:x + 64]
        if chance.random() < 0.5:
            crop = crop[:, :, ::-1]
        crop = np.clip(crop * chance.uniform(0.6, 1.4), 0, 1)  # brightness
        return (crop + np.roll(crop, 1, 1) + np.roll(crop, 1, 2)) / 3  # blur

    def work(seed):
        chance = random.Random(seed)
        while True:
            n = free.get()
            pair = slots[n].reshape(2, 16, -1)
            for half in range(2):
                pair[half] = lasting(cost / 2, lambda: view(chance)).ravel()
            full.put(n)
    for n in range(6):
        free.put(n)
    for n in range(workers):
        child(work, n)
    s.go()
    while True:
        s.mark()
        with s.during("data"):
            n = full.get()
        s.train(gpu, slots[n])
        free.put(n)


def store(s):
    """Serves tar shards; its uplink has a fixed rate, whoever asks."""
    pause, uplink, file = float(s.told("pause")), threading.Lock(), io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as tar:
        for n in range(64):
            info = tarfile.TarInfo("%06d.jpg" % n)
            info.size = 32 << 10
            tar.addfile(info, io.BytesIO(bytes(info.size)))
    shard = file.getvalue()

    class Shards(Quiet):
        def do_GET(self):
            self.send_response(200)
            self.send_header("Content-Length", str(len(shard)))
            self.end_headers()
            for at in range(0, len(shard), 16 << 10):
                with uplink:
                    time.sleep(pause)
                self.wfile.write(shard[at:at + (16 << 10)])
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Shards)
    s.tell("port", server.server_address[1])
    server.serve_forever()


@job(outside=store, data="network_bound", rest="sync_bound launch_bound")
def webtar_stream(s):
    """Images: a process streams tar shards over HTTP through a small shuffle buffer."""
    ms, step = shares(s, 15, 90)
    gpu, many = s.gpu(ms), s.int("samples", 2, 12)
    s.tell("pause", step / (2 * many) / 1e3 / (10 if s.fix else 1))
    port, out = int(s.told("port")), multiprocessing.Queue(maxsize=4)

    def samples():
        while True:
            link = http.client.HTTPConnection("127.0.0.1", port)
            link.request("GET", "/shard.tar")
            with tarfile.open(fileobj=link.getresponse(), mode="r|") as tar:
                for member in tar:
                    yield np.frombuffer(tar.extractfile(member).read(), np.uint8)
            link.close()

    def stream():
        kept, batch, chance = [], [], random.Random(1)
        for sample in samples():
            kept.append(sample)
            if len(kept) > 16:
                batch.append(kept.pop(chance.randrange(len(kept))))
            if len(batch) == many:
                out.put(np.stack(batch))
                batch = []
    s.supplier(child(stream).pid)
    s.loop(gpu, out.get)


@job(ckpt="checkpoint_stall host_bound", rest="sync_bound launch_bound")
def aspect_latents(s):
    """Diffusion: a thread reads cached latents by shape; averaged weights are packed on disk."""
    ms, step = shares(s, 12, 50)
    gpu, every = s.gpu(ms), s.int("save_every", 3, 8)
    pack = (step - ms) * every / (20 if s.fix else 1)
    weights = np.random.default_rng(1).random(8192, np.float32).tobytes()
    for n, (h, w) in enumerate([(32, 32), (24, 40), (40, 24), (28, 36)] * 4):
        np.save(s.path("latent-%d.npy" % n), np.zeros((8, 4, h, w), np.float16))
    ready = queue.Queue(maxsize=6)

    def read():
        for n in itertools.count():
            ready.put(np.load(s.path("latent-%d.npy" % (n * 5 % 16))))
    threading.Thread(target=read, daemon=True).start()
    s.go()
    for n in itertools.count(1):
        s.step(gpu, ready.get)
        if n % every == 0:
            with s.during("ckpt"):
                with open(s.path("ema.part"), "wb") as f:
                    lasting(pack, lambda: f.write(zlib.compress(weights, 1)))
                os.rename(s.path("ema.part"), s.path("ema"))


DECODER = """
import sys, time, zlib
cost, thrown, kept, size = (float(a) for a in sys.argv[1:])
packed = zlib.compress(bytes(range(256)) * 64)
while True:
    for n in range(int(thrown + kept)):
        end = time.thread_time() + cost / 1e3
        while time.thread_time() < end:
            zlib.decompress(packed)
        if n >= thrown:
            sys.stdout.buffer.write(bytes(int(size)))
    sys.stdout.buffer.flush()
"""


@job(data=CPU, rest="sync_bound launch_bound")
def keyframe_seeks(s):
    """Video: for each clip a program decodes from the last key frame on, and throws most away."""
    ms, step = shares(s)
    gpu, me = s.gpu(ms), os.getpid()
    thrown, kept, size = s.int("thrown", 6, 24), s.int("kept", 2, 6), s.int("kib", 16, 48) << 10
    cost = step / (thrown + kept) / (10 if s.fix else 1)
    args = [str(a) for a in (cost, thrown, kept, size)]
    decoder = subprocess.Popen([sys.executable, "-c", DECODER] + args, stdin=subprocess.DEVNULL,
                               stdout=subprocess.PIPE, preexec_fn=lambda: mortal(me))
    s.supplier(decoder.pid)
    s.loop(gpu, lambda: np.frombuffer(decoder.stdout.read(kept * size), np.uint8))


# ---- speech


@job(data=CPU, host="host_bound", rest="sync_bound launch_bound")
def fbank_wer(s):
    """Speech: a process makes filterbanks, batched by length; every few steps words are scored."""
    ms, step = shares(s, 20, 90, least=0.1)
    gpu, every = s.gpu(ms), s.int("score_every", 1, 5)
    score = (step - ms) * every / (20 if s.fix else 1)
    cost, out = ms * s.ms("load_share", 0.1, 0.4), multiprocessing.Queue(maxsize=6)
    wave = np.random.default_rng(1).random(16000)
    window, bank = np.hanning(400), np.random.default_rng(2).random((201, 40))

    def frames():
        cut = np.stack([wave[at:at + 400] for at in range(0, 3200, 160)])
        power = np.abs(np.fft.rfft(cut * window)) ** 2
        return np.log((power[:, :, None] * bank).sum(1) + 1e-6)

    def feed():
        chance = random.Random(1)
        while True:
            length = chance.randint(50, 400)
            lasting(cost, frames)
            out.put(np.zeros((1200 // length, length, 40), np.float32))

    def distance(said, heard):
        last = list(range(len(heard) + 1))
        for i, a in enumerate(said, 1):
            now = [i]
            for k, b in enumerate(heard, 1):
                now.append(min(last[k] + 1, now[-1] + 1, last[k - 1] + (a != b)))
            last = now
        return last[-1]
    said, heard = "the cat sat on a mat and ate".split() * 3, "a cat sat on the map".split() * 3
    child(feed)
    s.go()
    for n in itertools.count(1):
        s.step(gpu, out.get)
        if n % every == 0:
            with s.during("host"):
                lasting(score, lambda: distance(said, heard))


# ---- graphs, recommenders, games


@job(data="main_thread_loading", rest="sync_bound launch_bound")
def fanout_gather(s):
    """A graph network: processes sample neighbours; the loop gathers their features itself."""
    ms, step = shares(s)
    gpu, workers = s.gpu(ms), s.int("workers", 1, 2)
    gather = (step - ms) / (20 if s.fix else 1)
    cost = step * workers * s.ms("sample_share", 0.05, 0.3)
    nodes, chance = 150000, np.random.default_rng(1)
    features = np.ones((nodes, 32), np.float32)
    edges = chance.integers(0, nodes, (nodes, 10))
    out = multiprocessing.Queue(maxsize=6)

    def sample(seed):
        mine = np.random.default_rng(seed)

        def hops():
            ids = mine.integers(0, nodes, 32)
            for fanout in (10, 5):
                near = edges[ids, mine.integers(0, 10, (fanout, len(ids)))]
                ids = np.unique(np.concatenate([ids, near.ravel()]))
            return ids
        while True:
            out.put(lasting(cost, hops))
    for n in range(workers):
        child(sample, n)

    def obtain():
        ids = out.get()
        return lasting(gather, lambda: features[ids])
    s.loop(gpu, obtain)


@job(data="lock_bound", threads=True, rest="lock_bound")
def ncf_negatives(s):
    """A recommender: a pool of threads draws items that a user has not seen, in a Python loop."""
    ms, step = shares(s, 30, 100)
    gpu, threads = s.gpu(ms, launches=s.int("launches", 4, 8)), s.int("threads", 2, 3)
    cost, chance = step / (20 if s.fix else 1), random.Random(1)
    seen = {(chance.randrange(500), chance.randrange(2000)) for _ in range(100000)}

    def draw():
        rows = []
        for user in range(64):
            item = chance.randrange(2000)
            while (user, item) in seen:
                item = chance.randrange(2000)
            rows.append((user, item))
        return rows
    pool, ahead = concurrent.futures.ThreadPoolExecutor(threads), collections.deque()

    def obtain():
        while len(ahead) <= threads + 1:
            ahead.append(pool.submit(lasting, cost, draw))
        return np.array(ahead.popleft().result(), np.int64)
    s.loop(gpu, obtain)


def features(s):
    """A feature store in another region."""
    late, chance = float(s.told("late")), random.Random(1)
    body = json.dumps([0.5] * 256).encode()

    class Online(Quiet):
        def do_GET(self):
            time.sleep(late * chance.uniform(0.7, 1.3))
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Online)
    s.tell("port", server.server_address[1])
    server.serve_forever()


@job(outside=features, data="network_bound too_few_workers", rest="sync_bound launch_bound")
def entity_lookups(s):
    """Click rates: threads ask a far feature store view by view, on a new connection each."""
    ms, step = shares(s, 25, 100)
    gpu, threads, views = s.gpu(ms), s.int("threads", 1, 3), s.int("views", 2, 4)
    s.tell("late", step * threads / views / 1e3 / (10 if s.fix else 1))
    port = int(s.told("port"))

    def lookup():
        rows = []
        for n in range(views):
            link = http.client.HTTPConnection("127.0.0.1", port)
            link.request("GET", "/online?view=%d" % n)
            rows.append(json.loads(link.getresponse().read()))
            link.close()
        return np.array(rows, np.float32)
    pool, ahead = concurrent.futures.ThreadPoolExecutor(threads), collections.deque()

    def obtain():
        while len(ahead) <= threads + 1:
            ahead.append(pool.submit(lookup))
        return ahead.popleft().result()
    s.loop(gpu, obtain)


@job(data="main_thread_loading host_bound", rest="sync_bound launch_bound host_bound")
def uniform_replay(s):
    """Off-policy RL in one thread: act, step all environments, draw from the replay, learn."""
    ms, step = shares(s)
    gpu, envs = s.gpu(ms), s.int("envs", 1, 8)
    cost = (step - ms) / (20 if s.fix else 1)
    replay, chance, head = np.zeros((20000, 64), np.float32), np.random.default_rng(1), 0
    s.go()
    while True:
        s.mark()
        gpu.launch(0, 2)  # the policy
        gpu.loss_item()  # its actions
        with s.during("data"):
            for _ in range(envs):
                parse(cost / envs)  # the environment's physics, in Python
                replay[head % 20000] = head
                head += 1
            x = replay[chance.integers(0, min(head, 20000), 256)]
        s.train(gpu, x)
