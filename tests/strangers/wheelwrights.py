# SPDX-License-Identifier: BSD-2-Clause
"""At the wheelwrights': training scripts as most people write them, round and round, mostly with torch's DataLoader."""
import csv
import itertools
import json
import math
import multiprocessing
import multiprocessing.pool
import os
import pickle
import queue
import random
import sqlite3
import struct
import threading
import time
import zlib

import numpy as np

from stranger import CPU, child, decode, job, mortal

MIB = 1 << 20


def once(f):
    """Seconds that f takes."""
    begin = time.monotonic()
    f()
    return time.monotonic() - begin


def took(f):
    """The same, once it is warm."""
    f()
    return once(f)


def pytorch():
    """Only for the jobs that use it."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    import torch
    return torch


def loader(data, batch, workers, **more):
    parent = os.getpid()
    more = dict({"persistent_workers": workers > 0}, **more)
    return pytorch().utils.data.DataLoader(data, batch, num_workers=workers, worker_init_fn=lambda _: mortal(parent),
                                           **more)


def endless(batches):
    """Epoch after epoch; the workers start at once."""
    first = iter(batches)
    return itertools.chain(first, itertools.chain.from_iterable(itertools.repeat(batches)))


def pids(batches):
    return [worker.pid for worker in batches._iterator._workers]


class Crates:
    """A data set that costs little."""

    def __init__(self, cost):
        self.cost = cost

    def __len__(self):
        return 1 << 16

    def __getitem__(self, n):
        decode(self.cost)
        return np.full(5000, n % 10, np.float32)


def easy(s, ms, batch=4):
    """A DataLoader with a worker or two that keeps up."""
    workers = s.int("workers", 1, 2)
    batches = endless(loader(Crates(ms * s.ms("load_share", 0.1, 0.3) * workers / batch), batch, workers, shuffle=True))
    return lambda: next(batches).numpy()


# ---- the data is late


@job(data="main_thread_loading", rest="sync_bound launch_bound")
def felloe_ledger(s):
    """Sensor readings by `DataLoader(dataset, batch_size)` and nothing more: to blame is the IterableDataset, whose
    csv.DictReader and float() run in the loop, as num_workers is 0 when nobody sets it."""
    torch = pytorch()
    ms, columns, chance = s.ms("gpu_ms", 10, 40), s.int("columns", 8, 20), random.Random(1)
    share, path, gpu = s.ms("read_share", 0.55, 1.3), s.path("readings.csv"), s.gpu(ms)
    with open(path, "w", newline="", encoding="ascii") as f:
        out = csv.writer(f)
        out.writerow(["c%d" % n for n in range(columns)] + ["label"])
        for _ in range(10000):
            out.writerow(["%.4f" % chance.gauss(0, 1) for _ in range(columns)] + [chance.randrange(9)])

    class Readings(torch.utils.data.IterableDataset):
        def __iter__(self):
            with open(path, newline="", encoding="ascii") as f:
                for row in csv.DictReader(f):
                    label = int(row.pop("label"))
                    yield torch.tensor([float(value) for value in row.values()]), label
    some = endless(loader(Readings(), 1000, 0))
    each = took(lambda: next(some)) / 1000
    many = s.keep("rows", min(max(int(ms * share / 1e3 / each), 16), 5000))
    batches = endless(loader(Readings(), many, 0))
    if s.fix:  # they are kept as tensors
        batches = itertools.cycle([next(batches) for _ in range(2)])
    s.loop(gpu, lambda: next(batches)[0].numpy())


def as_png(pixels):
    """Rows of RGB bytes, each as its difference to the one above."""
    def chunk(kind, body):
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
    up = pixels.copy()
    up[1:] -= pixels[:-1]
    height, width = pixels.shape[0], pixels.shape[1] // 3
    lines = np.concatenate([np.full((height, 1), 2, np.uint8), up], 1)
    return b"".join([b"\x89PNG\r\n\x1a\n", chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)),
                     chunk(b"IDAT", zlib.compress(lines.tobytes())), chunk(b"IEND", b"")])


def from_png(path):
    with open(path, "rb") as f:
        body = f.read()
    place, parts, width, height = 8, [], 0, 0
    while place < len(body):
        size, kind = struct.unpack_from(">I4s", body, place)
        if kind == b"IHDR":
            width, height = struct.unpack_from(">II", body, place + 8)
        elif kind == b"IDAT":
            parts.append(body[place + 8:place + 8 + size])
        place += size + 12
    lines = np.frombuffer(zlib.decompress(b"".join(parts)), np.uint8).reshape(height, 1 + 3 * width)
    return np.add.accumulate(lines[:, 1:], axis=0, dtype=np.uint8).reshape(height, width, 3)


class PictureFolder:
    """As torchvision's ImageFolder, with RandomCrop, RandomHorizontalFlip, ColorJitter, ToTensor, Normalize."""

    def __init__(self, paths, side):
        self.paths, self.side = paths, side

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, n):
        torch = pytorch()
        x = from_png(self.paths[n])
        top, left = torch.randint(0, len(x) - self.side + 1, (2,)).tolist()
        x = x[top:top + self.side, left:left + self.side]
        if torch.rand(()).item() < 0.5:
            x = x[:, ::-1]
        x = torch.from_numpy(np.ascontiguousarray(x)).permute(2, 0, 1).float().div(255)
        x = (x * (0.8 + 0.4 * torch.rand(()))).clamp(0, 1)
        return (x - 0.45) / 0.22, n % 10


@job(data=CPU, rest="sync_bound launch_bound")
def painted_panels(s):
    """Pictures from a folder for small micro-batches that add up, by a DataLoader with a worker or two, a timeout and
    shuffle=True; to blame is what the workers have to do for each: inflate a PNG, undo its filter, augment."""
    ms, parts, workers = s.ms("gpu_ms", 10, 30), s.int("micro_batches", 1, 3), s.int("workers", 1, 2)
    share, side, gpu = s.ms("load_share", 1.4, 2.2), s.int("side", 160, 224), s.gpu(ms)
    chance = np.random.default_rng(1)
    paths = [s.path("panel-%d.png" % n) for n in range(100)]
    for path in paths:
        with open(path, "wb") as f:
            f.write(as_png(np.cumsum(chance.integers(0, 9, (side, 3 * side)), 1).astype(np.uint8)))
    folder = PictureFolder(paths * 200, 64)
    each = took(lambda: [folder[n] for n in range(50)]) / 50
    many = s.keep("pictures", max(int(ms * share * workers / 1e3 / each) // (6 if s.fix else 1), 4))
    pictures = loader(folder, many, workers, shuffle=True, drop_last=True, timeout=60)
    batches = endless(pictures)
    if workers == 1:
        s.supplier(pids(pictures)[0])
    s.go()
    while True:
        s.mark()
        for _ in range(parts):
            s.mark("micro")
            with s.during("data"):
                x = next(batches)[0].numpy()
            gpu.upload(x.ctypes.data, x.nbytes)
            gpu.forward()
            gpu.backward()
        gpu.optimizer()
        gpu.loss_item()


ALONE, CROWD = [(0.5, 0.5)], [(0.01, 0.01), (0.5, 0.5), (0.99, 0.99)]


def find_crop(chance, centres, tries):
    """A part of the picture with all boxes' centres in it."""
    for _ in range(tries):
        width, height = chance.uniform(0.4, 0.95), chance.uniform(0.4, 0.95)
        left, top = chance.uniform(0, 1 - width), chance.uniform(0, 1 - height)
        if all(left < x < left + width and top < y < top + height for x, y in centres):
            return left, top, width, height
    return 0.0, 0.0, 1.0, 1.0


class Streets:
    """Pictures with boxes; the file was shuffled when it was written."""

    def __init__(self, cost, every, tries):
        self.cost, self.every, self.tries, self.chance = cost, every, tries, random.Random(1)

    def __len__(self):
        return 1 << 20

    def __getitem__(self, n):
        decode(self.cost)
        crop = find_crop(self.chance, CROWD if n % self.every == self.every - 1 else ALONE, self.tries)
        return np.full((64, 64), crop[2], np.float32)


@job(data="slow_item", rest="sync_bound launch_bound")
def crowded_waggon(s):
    """Detection with two DataLoader workers, whose transform tries random crops until one has all boxes in it; to blame
    are a few pictures with a box in each corner, for which there is none, and it tries for very long."""
    ms, batch, every = s.ms("gpu_ms", 8, 25), s.int("batch", 4, 6), s.one("every", 7, 9, 11)
    cost, long_s = ms * s.ms("load_share", 0.1, 0.4) / batch, ms * s.ms("crop_steps", 9, 14) / 1e3
    gpu, chance = s.gpu(ms), random.Random(2)
    each = took(lambda: find_crop(chance, CROWD, 4000)) / 4000
    tries = s.keep("tries", 40 if s.fix else max(int(long_s / each), 1000))
    batches = endless(loader(Streets(cost, every * batch, tries), batch, 2))
    s.loop(gpu, lambda: next(batches).numpy())


def pieces(word, vocabulary):
    """The longest piece that is known, then the next, as WordPiece does it."""
    begin, ids = 0, []
    while begin < len(word):
        end = len(word)
        while end > begin + 1 and word[begin:end] not in vocabulary:
            end -= 1
        ids.append(vocabulary.get(word[begin:end], 0))
        begin = end
    return ids


def tokens(text, vocabulary, most=128):
    ids = [n for word in text.split() for n in pieces(word, vocabulary)][:most]
    return ids + [0] * (most - len(ids))


@job(data="slow_worker", rest="sync_bound launch_bound")
def longest_spokes(s):
    """Reviews by an IterableDataset that gives each of three workers a range of them, as in PyTorch's documentation; to
    blame is that the file is sorted by length: one has all the long ones, tokenised whole, and truncated then."""
    torch = pytorch()
    ms, batch, slow, chance = s.ms("gpu_ms", 10, 30), s.int("batch", 8, 24), s.one("slow", 0, 2), random.Random(1)
    share, gpu, letters = s.ms("load_share", 1.45, 2.3), s.gpu(ms), "etaoinshrdlucmfw"
    words = ["".join(chance.choices(letters, k=chance.randint(6, 10))) for _ in range(300)]
    vocabulary = {piece: n for n, piece in enumerate(a + b for a in letters for b in [""] + list(letters))}
    each = took(lambda: [tokens(" ".join(words), vocabulary) for _ in range(10)]) / 3000
    long = s.keep("words", max(int(ms * share * 3 / 1e3 / each / batch), 200)) // (4 if s.fix else 1)
    lengths = [long // 8] * 40 + [long // 7] * 40 + [long] * 40
    texts = [" ".join(chance.choices(words, k=length)) for length in lengths]
    if slow == 0:
        texts.reverse()

    class Reviews(torch.utils.data.IterableDataset):
        def __iter__(self):
            me = torch.utils.data.get_worker_info()
            per_worker = math.ceil(len(texts) / me.num_workers)
            mine = texts[me.id * per_worker:(me.id + 1) * per_worker]
            if s.fix:
                mine = texts[me.id::me.num_workers]
            while True:
                for text in mine:
                    yield torch.tensor(tokens(text, vocabulary))
    reviews = loader(Reviews(), batch, 3)
    batches = endless(reviews)
    s.supplier(pids(reviews)[slow])
    s.loop(gpu, lambda: next(batches).numpy())


class Patches:
    """Samples that get harder; the level is told to the persistent workers by shared memory."""

    def __init__(self, level, cost, whole):
        self.level, self.cost, self.whole = level, cost, whole

    def __len__(self):
        return 1 << 16

    def cut(self, n, level):
        decode(self.cost)
        return np.full(5000, n % 10 + level, np.float32)

    def __getitem__(self, n):
        if self.whole:
            with self.level.get_lock():
                return self.cut(n, self.level.value)
        return self.cut(n, self.level.value)


@job(data="lock_bound", lock="lock_bound", rest="sync_bound launch_bound")
def shared_calipers(s):
    """A curriculum, whose level the loop sets in a multiprocessing.Value now and then, for persistent workers; to blame
    is `with self.level.get_lock():` around all of __getitem__, so that one worker augments at a time."""
    ms, batch, workers = s.ms("gpu_ms", 8, 35), s.int("batch", 4, 8), s.int("workers", 2, 3)
    cost, level = ms * s.ms("load_share", 1.4, 2.4) / batch, multiprocessing.Value("i", 1)
    gpu, patches = s.gpu(ms), Patches(level, cost / 3 if s.fix else cost, not s.fix)
    batches = endless(loader(patches, batch, workers, shuffle=True))
    s.go()
    for n in itertools.count(1):
        s.step(gpu, lambda: next(batches).numpy())
        if n % 200 == 0:
            with s.during("lock"):
                level.value += 1


class Records:
    """Records of a fixed size in one file; memory does not keep what was read."""

    def __init__(self, path, size, warm):
        self.path, self.size, self.warm = path, size, warm

    def __len__(self):
        return 1 << 16  # as many as if the file were so long

    def __getitem__(self, n):
        with open(self.path, "rb") as f:
            x = np.fromfile(f, np.uint8, self.size, offset=n * self.size % (64 * MIB))
            if not self.warm:
                os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        return x[::16].copy()


@job(data="io_bound", rest="sync_bound launch_bound")
def sawpit_records(s):
    """Shuffled records of a binary file, larger than memory, each by open() and np.fromfile(offset=...) in the only
    DataLoader worker; to blame is the disk, for which the worker waits record by record."""
    ms, share, size = s.ms("gpu_ms", 8, 25), s.ms("read_share", 1.5, 2.6), s.one("kib", 32, 64) << 10
    path, gpu, chance = s.data_file("sawpit_records", 64), s.gpu(ms), random.Random(1)
    cold = Records(path, size, False)
    each = once(lambda: [cold[chance.randrange(len(cold))] for _ in range(200)]) / 200
    many = s.keep("records", min(max(int(ms * share / 1e3 / each), 8), 1000))
    s.cold(path)
    if s.fix:
        with open(path, "rb") as f:
            while f.read(MIB):
                pass
    records = loader(Records(path, size, s.fix), many, 1, shuffle=True, drop_last=True)
    batches = endless(records)
    s.supplier(pids(records)[0])
    s.loop(gpu, lambda: next(batches).numpy())


class Images:
    """All of them are in memory."""

    def __init__(self):
        self.images = np.ones((100, 96, 96, 3), np.float32)

    def __len__(self):
        return 20000

    def __getitem__(self, n):
        return self.images[n % 100], n % 10


def numpy_collate(samples):
    """As in JAX's tutorial, which has no use for tensors."""
    images, labels = zip(*samples)
    return np.stack(images), np.array(labels)


def pack(link):
    while size := link.recv():
        link.send(np.ones(size, np.uint8))


@job(data="ipc_bound", rest="sync_bound launch_bound")
def wide_rims(s):
    """A JAX script that takes images in memory from a DataLoader with a worker; to blame is collate_fn=numpy_collate,
    as arrays, unlike tensors, do not go by shared memory, but pickled through the queue's pipe."""
    ms, share, images = s.ms("gpu_ms", 7, 12), s.ms("hand_over_share", 0.9, 1.8), Images()
    mine, theirs = multiprocessing.Pipe()
    packer, gpu = child(pack, theirs), s.gpu(ms)
    each = took(lambda: (mine.send(8 * MIB), mine.recv())) / (8 * MIB)
    mine.send(0)
    packer.join()
    size = min(max(int(ms * share / 1e3 / each), MIB), 10 * MIB) // (20 if s.fix else 1)
    many = s.keep("images", max(size // images.images[0].nbytes, 1))
    batches = endless(loader(images, many, 1, shuffle=True, collate_fn=numpy_collate))
    s.loop(gpu, lambda: next(batches)[0])


class Classes:
    """Reads its index when a sample is first asked for, in each worker."""

    def __init__(self, path, cost):
        self.path, self.cost, self.index = path, cost, None

    def __len__(self):
        return 1 << 16

    def __getitem__(self, n):
        if self.index is None:
            with open(self.path, "rb") as f:
                self.index = pickle.load(f)
        _, label, _ = self.index[n % len(self.index)]
        decode(self.cost)
        return np.full(5000, label, np.float32)


def entries(many):
    return [("class-%03d/%06d.png" % (n % 100, n), n % 100, (n, n + 7)) for n in range(many)]


@job(data="loader_restart", rest="sync_bound launch_bound")
def spare_axles(s):
    """Few-shot learning: each episode is a `DataLoader(Subset(dataset, picked), num_workers=...)` of its own, for a few
    batches; to blame is that its workers are started anew each time, and unpickle the data set's index first."""
    ms, steps, workers = s.ms("gpu_ms", 12, 30), s.int("episode_steps", 3, 6), s.int("workers", 1, 2)
    open_s, batch, chance = ms * steps * s.ms("open_share", 0.5, 1.1) / 1e3, s.int("batch", 4, 8), random.Random(1)
    gpu, cost, path, some = s.gpu(ms), ms * 0.1 * workers / batch, s.path("index.pickle"), pickle.dumps(entries(20000))
    each = took(lambda: pickle.loads(some)) / 20000
    with open(path, "wb") as f:
        pickle.dump(entries(s.keep("entries", min(max(int(open_s / each), 1000), 120000))), f)
    classes = Classes(path, cost)

    def episode():
        if s.fix:
            return endless(loader(classes, batch, workers, shuffle=True))
        picked = chance.sample(range(len(classes)), steps * batch)
        subset = pytorch().utils.data.Subset(classes, picked)
        return iter(loader(subset, batch, workers, persistent_workers=False))

    def obtain():
        nonlocal batches
        x = next(batches, None)
        if x is None:
            batches = episode()
            x = next(batches)
        return x.numpy()
    batches = episode()
    s.loop(gpu, obtain)


# ---- not for data


def write_history(path, history):
    with open(path, "w", encoding="ascii") as f:
        json.dump(history, f, indent=2)


@job(data=CPU, host="host_bound checkpoint_stall", rest="sync_bound launch_bound")
def chalk_tally(s):
    """A DataLoader keeps up; to blame is the loop's log: after each step or two it adds to a list of metrics, and has
    json.dump(..., indent=2) write all of the history anew, which is Python for each figure."""
    ms, every, path = s.ms("gpu_ms", 8, 30), s.int("every", 1, 2), s.path("history.json")
    share, gpu, batch = s.ms("history_share", 0.5, 1.4), s.gpu(ms), easy(s, ms)

    def entry(n):
        return {"step": n, "loss": gpu.loss.value + 1 / (n + 1), "lr": 1e-3 / (n + 7), "accuracy": n % 97 / 97}
    some = [entry(n) for n in range(500)]
    each = took(lambda: write_history(path, some)) / 500
    many = s.keep("entries", max(int(ms * every * share / 1e3 / each), 50))
    history = [entry(n) for n in range(many)]
    s.go()
    for n in itertools.count(many):
        s.step(gpu, batch)
        if n % every == 0 and not s.fix:
            with s.during("host"):
                history.append(entry(n))
                del history[:-many]  # the resumed run's
                write_history(path, history)


@job(data=CPU, ckpt="checkpoint_stall", rest="sync_bound launch_bound")
def proven_wheel(s):
    """Early stopping, with a DataLoader that keeps up: every few steps a held-out batch is tried, and as the loss still
    falls each time, to blame is torch.save() of the model and its optimizer as the best so far."""
    torch = pytorch()
    ms, every, share = s.ms("gpu_ms", 10, 20), s.int("every", 1, 3), s.ms("save_share", 0.6, 1.3)
    gpu, batch, path, held_out = s.gpu(ms), easy(s, ms), s.path("best.pt"), np.zeros(20000, np.float32)

    def state(mib):
        return {name: {"layer.%d" % n: torch.ones(mib << 13) for n in range(16)} for name in ("model", "optimizer")}

    def save(best):
        torch.save(best, path + ".part")
        os.replace(path + ".part", path)
    some = state(8)
    each = took(lambda: save(some)) / 8
    best = state(s.keep("mib", min(max(int(ms * every * share / 1e3 / each), 2), 48)))
    s.go()
    for n in itertools.count(1):
        s.step(gpu, batch)
        if n % every == 0:
            s.mark("micro")
            gpu.upload(held_out.ctypes.data, held_out.nbytes)
            gpu.forward()
            gpu.loss_item()
            if not s.fix:
                with s.during("ckpt"):
                    save(best)


# ---- nothing is wrong


class Rows:
    """Samples are BLOBs in SQLite; each worker has a connection of its own, opened when it is first needed."""

    def __init__(self, path, many, cost):
        self.path, self.many, self.cost, self.link = path, many, cost, None

    def __len__(self):
        return 1 << 16

    def __getitem__(self, n):
        if self.link is None:
            self.link = sqlite3.connect("file:%s?mode=ro" % self.path, uri=True)
        body, = self.link.execute("SELECT body FROM samples WHERE id = ?", (n % self.many,)).fetchone()
        decode(self.cost)
        return np.frombuffer(zlib.decompress(body), np.float32).copy()


@job(data=CPU, host="host_bound", rest="sync_bound launch_bound")
def seasoned_elm(s):
    """Nothing is to blame: two DataLoader workers read rows of SQLite in time, an average of the weights is kept, and
    now and then a few held-out batches come from another loader, whose worker is kept."""
    torch = pytorch()
    ms, batch, every = s.ms("gpu_ms", 50, 110), s.int("batch", 4, 8), s.int("validate_every", 25, 40)
    cost, path, gpu = ms * s.ms("load_share", 0.1, 0.25) * 2 / batch, s.path("samples.db"), s.gpu(ms)
    with sqlite3.connect(path) as link:
        link.execute("CREATE TABLE samples (id INTEGER PRIMARY KEY, body BLOB)")
        link.executemany("INSERT INTO samples VALUES (?, ?)",
                         ((n, zlib.compress(np.full(5000, n, np.float32).tobytes())) for n in range(500)))
    link.close()
    batches = endless(loader(Rows(path, 500, cost), batch, 2, shuffle=True))
    held_out = loader(Rows(path, 500, cost / 2), batch, 1, sampler=range(3 * batch))
    weights, mean = [torch.ones(2000) for _ in range(8)], [torch.zeros(2000) for _ in range(8)]
    for _ in held_out:  # the sanity check before the first epoch
        pass
    s.go()
    for n in itertools.count(1):
        s.step(gpu, lambda: next(batches).numpy())
        with s.during("host"):
            for w, m in zip(weights, mean):
                m.mul_(0.999).add_(w, alpha=0.001)
        if n % every == 0:
            with s.during("data"):
                trial = iter(held_out)
            while True:
                with s.during("data"):
                    x = next(trial, None)
                if x is None:
                    break
                s.mark("micro")
                x = x.numpy()
                gpu.upload(x.ctypes.data, x.nbytes)
                gpu.forward()
                gpu.loss_item()


class Batches:
    """A Sequence: its n-th batch is an .npy file."""

    def __init__(self, paths, cost):
        self.paths, self.cost, self.order = paths, cost, list(range(len(paths)))

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, n):
        x = np.load(self.paths[self.order[n]])
        decode(self.cost)
        return x.astype(np.float32)

    def on_epoch_end(self):
        random.shuffle(self.order)


class OrderedEnqueuer:
    """As Keras has it, with threads: results are got in the order in which they were asked for."""

    def __init__(self, sequence, workers, ahead):
        self.sequence, self.results = sequence, queue.Queue(ahead)
        self.pool = multiprocessing.pool.ThreadPool(workers)
        threading.Thread(target=self.run, daemon=True).start()

    def run(self):
        while True:
            for n in range(len(self.sequence)):
                self.results.put(self.pool.apply_async(self.sequence.__getitem__, (n,)))
            self.sequence.on_epoch_end()

    def get(self):
        return self.results.get().get()


@job(data=CPU, host="host_bound", rest="sync_bound launch_bound")
def hooped_sequence(s):
    """Nothing is to blame: as by Keras's fit(), an OrderedEnqueuer with a few threads loads a Sequence of .npy files
    well ahead of the loop, whose callbacks write a line to a CSV file and look whether to stop early."""
    ms, workers, ahead = s.ms("gpu_ms", 40, 110), s.int("workers", 1, 3), s.int("max_queue_size", 4, 10)
    cost, gpu, best, waited = ms * s.ms("load_share", 0.15, 0.5), s.gpu(ms), math.inf, 0
    paths = [s.path("batch-%d.npy" % n) for n in range(60)]
    for n, path in enumerate(paths):
        np.save(path, np.full((32, 40, 40), n, np.uint8))
    batches = OrderedEnqueuer(Batches(paths, cost), workers, ahead)
    with open(s.path("training.csv"), "w", newline="", encoding="ascii") as f:
        log = csv.writer(f)
        s.go()
        for n in itertools.count(1):
            s.step(gpu, batches.get)
            with s.during("host"):
                loss = gpu.loss.value + 1 / n
                log.writerow([n, loss, best, waited])
                f.flush()
                best, waited = min(best, loss), 0 if loss < best else waited + 1
