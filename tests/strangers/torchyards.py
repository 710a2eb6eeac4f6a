# SPDX-License-Identifier: BSD-2-Clause
"""Jobs on torch.utils.data, with loaders, samplers and collate functions as people use them."""
import functools
import gzip
import http.client
import http.server
import itertools
import multiprocessing
import os
import queue
import random
import threading
import time

import numpy as np

from stranger import CPU, decode, job, mortal, now, parse


def stays(parent, _):
    mortal(parent)


def bound():
    """A worker_init_fn, which a spawned worker can have as well: it dies with this process."""
    return functools.partial(stays, os.getpid())


def endless(loader):
    while True:
        yield from loader


def shuffled(n):
    """A sampler without an end: each row once in a pass, the passes follow without a break."""
    chance = random.Random(n)
    while True:
        order = list(range(n))
        chance.shuffle(order)
        yield from order


class Crops:
    """Pictures in memory, which are decoded in C and cropped."""

    def __init__(self, n, cost, side=32):
        self.n, self.cost, self.side = n, cost, side

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        decode(self.cost)
        return np.full((3, self.side, self.side), i % 7, np.float32)


# ---- what the workers do, or wait for


@job(data="io_bound too_few_workers", rest="sync_bound launch_bound")
def slide_patches(s):
    """Pathology: DataLoader workers read small patches all over a slide that is never cached."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    import torch
    ms, workers = s.ms("gpu_ms", 5, 14), s.int("workers", 1, 2)
    size, mib = s.one("patch_kib", 8, 16, 32) << 10, 40
    fd = os.open(s.data_file("slide.bin", mib), os.O_RDONLY)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)

    class Patches:
        def __len__(self):
            return (mib << 20) // size

        def __getitem__(self, i):
            patch = os.pread(fd, size, i * size)
            if not s.fix:
                os.posix_fadvise(fd, i * size, size, os.POSIX_FADV_DONTNEED)
            return np.frombuffer(patch, np.uint8)[:1024]
    patches, begin = Patches(), now()
    for i in range(16):
        patches[i * 37]
    each = (now() - begin) / 16e6
    many = s.keep("patches", min(max(int(
        ms * s.ms("load_share", 1.4, 7) * workers / each), 2), 400))
    gpu = s.gpu(ms)
    batches = iter(torch.utils.data.DataLoader(
        patches, many, num_workers=workers, worker_init_fn=bound(),
        sampler=torch.utils.data.RandomSampler(patches, replacement=True, num_samples=1 << 30),
        collate_fn=lambda rows: torch.from_numpy(np.stack(rows))))
    s.loop(gpu, lambda: next(batches).numpy())


def thumbnails(s):
    """An image server, which takes its time and now and then has none."""
    late = float(s.told("late"))

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version, disable_nagle_algorithm = "HTTP/1.1", True

        def do_GET(self):
            chance = random.Random(self.path + str(now()))
            body = bytes(16 << 10)
            time.sleep(late / 1e3 * chance.lognormvariate(0, 0.2))
            self.send_response(503 if chance.random() < 0.01 else 200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    s.tell("port", server.server_address[1])
    server.serve_forever()


@job(outside=thumbnails, data="network_bound too_few_workers", rest="sync_bound launch_bound")
def thumbnail_http(s):
    """DataLoader workers get thumbnails over HTTP one by one, each on a kept connection."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    import torch
    ms, workers, many = s.ms("gpu_ms", 5, 28), s.int("workers", 1, 3), s.int("batch", 2, 8)
    late = ms * s.ms("late_share", 1.4, 4) * workers / many
    s.tell("late", late / 10 if s.fix else late)
    port = int(s.told("port"))

    class Thumbnails:
        link = None

        def __len__(self):
            return 5000

        def __getitem__(self, i):
            self.link = self.link or http.client.HTTPConnection("127.0.0.1", port)
            while True:
                self.link.request("GET", "/%d.jpg" % i)
                answer = self.link.getresponse()
                body = answer.read()
                if answer.status == 200:
                    break
                time.sleep(0.002)
            decode(0.2)
            return np.frombuffer(body, np.uint8)
    gpu = s.gpu(ms)
    batches = iter(torch.utils.data.DataLoader(
        Thumbnails(), many, sampler=shuffled(5000), num_workers=workers,
        worker_init_fn=bound(), prefetch_factor=s.int("prefetch", 1, 4)))
    s.loop(gpu, lambda: next(batches).numpy())


@job(data="lock_bound", rest="sync_bound launch_bound")
def guarded_archive(s):
    """An archive's reader is not safe: its data set decodes with a lock that all workers share."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    import torch
    ms, workers, many = s.ms("gpu_ms", 5, 16), s.int("workers", 2, 4), s.int("batch", 4, 12)
    cost = ms * s.ms("load_share", 1.35, 6) / many
    lock = multiprocessing.Lock()

    class Archive(Crops):
        def __getitem__(self, i):
            with lock:
                return super().__getitem__(i)
    archive = Archive(20000, cost / 10 if s.fix else cost)
    gpu = s.gpu(ms)
    batches = iter(torch.utils.data.DataLoader(
        archive, many, sampler=shuffled(20000), num_workers=workers, worker_init_fn=bound()))
    s.loop(gpu, lambda: next(batches).numpy())


@job(data="slow_item slow_file", rest="sync_bound launch_bound")
def marathon_talk(s):
    """Talks as files in the page cache; one of them is many times as long, and comes each pass."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    import torch
    ms, talks = s.ms("gpu_ms", 6, 16), s.int("talks", 20, 36)
    usual, giant = ms * s.ms("usual_share", 0.15, 0.5), ms * s.ms("giant_share", 15, 28)
    longest = s.int("longest", 0, talks - 1)
    for n in range(talks):
        times = giant / usual if n == longest and not s.fix else 1
        with open(s.path("talk-%d.flac" % n), "wb") as f:
            f.write(bytes(int(20000 * times)))

    class Talks:
        def __len__(self):
            return talks

        def __getitem__(self, i):
            with open(s.path("talk-%d.flac" % i), "rb") as f:
                sound = f.read()
            decode(usual * len(sound) / 20000)
            return torch.zeros(1, 16000)
    gpu = s.gpu(ms)
    batches = iter(torch.utils.data.DataLoader(
        Talks(), 1, sampler=shuffled(talks), num_workers=2, worker_init_fn=bound()))
    s.loop(gpu, lambda: next(batches).numpy())


@job(data="slow_worker", rest="sync_bound launch_bound")
def third_shard(s):
    """An IterableDataset gives each worker a shard; one shard was packed with a costly codec."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    import torch
    ms, workers = s.ms("gpu_ms", 6, 35), s.int("workers", 2, 3)
    lame = s.int("lame", 0, workers - 1)
    quick = ms * workers * s.ms("quick_share", 0.05, 0.15)
    slow = quick if s.fix else ms * workers * s.ms("slow_share", 1.35, 3)

    class Shards(torch.utils.data.IterableDataset):
        def __iter__(self):
            cost = slow if torch.utils.data.get_worker_info().id == lame else quick
            while True:
                decode(cost)
                yield torch.zeros(32, 1024)
    gpu = s.gpu(ms)
    batches = iter(torch.utils.data.DataLoader(
        Shards(), None, num_workers=workers, worker_init_fn=bound()))
    s.supplier(batches._workers[lame].pid)
    s.loop(gpu, lambda: next(batches).numpy())


@job(data=CPU, rest="sync_bound launch_bound")
def semi_supervised(s):
    """Two loaders, zipped: few labelled images, and others that are augmented at length."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    import torch
    ms, workers, many = s.ms("gpu_ms", 6, 30), s.int("workers", 1, 3), s.int("batch", 4, 16)
    cores = min(workers, len(os.sched_getaffinity(0)))
    cost = ms * s.ms("load_share", 1.35, 3.5) * cores / many
    gpu = s.gpu(ms)
    few = torch.utils.data.DataLoader(
        Crops(4000, ms * 0.1 / many), many, sampler=shuffled(4000), num_workers=1,
        worker_init_fn=bound())
    others = torch.utils.data.DataLoader(
        Crops(40000, cost / 10 if s.fix else cost), many, sampler=shuffled(40000),
        num_workers=workers, worker_init_fn=bound(), prefetch_factor=s.int("prefetch", 1, 3))
    pairs = zip(few, others)
    s.loop(gpu, lambda: torch.cat(next(pairs)).numpy())


# ---- how batches come over


@job(data="ipc_bound", rest="sync_bound launch_bound")
def tensor_bundle(s):
    """Detection: a batch is a list of small tensors, and each has a shared memory of its own."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    import torch
    ms, objects = s.ms("gpu_ms", 5, 14), s.int("objects", 20, 64)

    class Scenes:
        def __len__(self):
            return 3000

        def __getitem__(self, i):
            crops = [torch.full((1, 3, 16, 16), float(i)) for _ in range(objects)]
            return [torch.cat(crops)] if s.fix else crops
    gpu = s.gpu(ms)
    batches = iter(torch.utils.data.DataLoader(
        Scenes(), None, sampler=shuffled(3000), num_workers=s.int("workers", 1, 2),
        worker_init_fn=bound()))
    s.loop(gpu, lambda: torch.cat(next(batches)).numpy())


@job(data="loader_restart", rest="sync_bound launch_bound")
def brief_validation(s):
    """Every few steps there is a short validation, whose loader starts its workers each time."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    import torch
    ms, every, index = s.ms("gpu_ms", 8, 24), s.int("every", 5, 14), s.ms("index_ms", 50, 200)
    many, parent = s.int("valid_batches", 2, 4), os.getpid()

    def opened(_):
        mortal(parent)
        parse(index)  # the worker opens the data set by its index
    gpu = s.gpu(ms)
    train = iter(torch.utils.data.DataLoader(
        Crops(20000, ms * s.ms("load_share", 0.1, 0.3) / 8), 8, sampler=shuffled(20000),
        num_workers=1, worker_init_fn=bound()))
    valid = torch.utils.data.DataLoader(
        Crops(8 * many, 0.1), 8, num_workers=2, worker_init_fn=opened,
        persistent_workers=s.fix)
    s.go()
    for n in itertools.count(1):
        s.step(gpu, lambda: next(train).numpy())
        if n % every:
            continue
        with s.during("data"):
            held = iter(valid)
        for _ in range(many):
            s.mark("micro")
            with s.during("data"):
                x = next(held)
            gpu.upload(x.data_ptr(), x.numel() * x.element_size())
            gpu.forward()
            gpu.loss_item()
        with s.during("data"):
            next(held, None)  # the end: its workers leave
            held = None


# ---- what the training thread does for its batches


@job(data="main_thread_loading", rest="sync_bound launch_bound")
def fitted_batches(s):
    """Workers have next to nothing to do; a batch sampler seeks texts that fill a batch well."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    import torch
    ms, tokens = s.ms("gpu_ms", 6, 40), s.one("tokens", 2048, 4096, 8192)
    cost = ms * s.ms("seek_share", 0.3, 2)
    chance = random.Random(tokens)
    lengths = [chance.randint(16, 512) for _ in range(5000)]

    class Fitted(torch.utils.data.Sampler):
        def __init__(self):
            pass

        def __iter__(self):
            while True:
                room, rows = tokens, []
                if not s.fix:
                    parse(cost)  # tries many sets of rows, the best of them is taken
                while room > 512:
                    rows.append(chance.randrange(5000))
                    room -= lengths[rows[-1]]
                yield rows

    class Texts:
        def __len__(self):
            return 5000

        def __getitem__(self, i):
            return np.zeros(lengths[i], np.int64)
    gpu = s.gpu(ms)
    batches = iter(torch.utils.data.DataLoader(
        Texts(), batch_sampler=Fitted(), num_workers=s.int("workers", 1, 3),
        collate_fn=lambda rows: torch.from_numpy(np.concatenate(rows)),
        worker_init_fn=bound()))
    s.loop(gpu, lambda: next(batches).numpy())


@job(data="main_thread_loading", rest="sync_bound launch_bound")
def note_records(s):
    """No workers; a ConcatDataset of converted notes and of newer ones, which are JSON still."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    import torch
    ms, many = s.ms("gpu_ms", 5, 12), s.int("batch", 6, 24)
    cost = 2 * ms * s.ms("load_share", 0.4, 8) / many
    lengths = [s.random.randint(20, 400) for _ in range(1000)]

    class Converted:
        notes = {i: np.zeros(n, np.int64) for i, n in enumerate(lengths)}

        def __len__(self):
            return 1000

        def __getitem__(self, i):
            return self.notes[i]

    class Newer(Converted):
        def __getitem__(self, i):
            if not s.fix:
                parse(cost)
            return self.notes[i]

    def padded(rows):
        out = torch.zeros(len(rows), max(map(len, rows)), dtype=torch.int64)
        for to, row in zip(out, rows):
            to[:len(row)] = torch.from_numpy(row)
        return out
    gpu = s.gpu(ms)
    notes = torch.utils.data.ConcatDataset([Converted(), Newer()])
    batches = iter(torch.utils.data.DataLoader(
        notes, many, sampler=shuffled(len(notes)), collate_fn=padded))
    s.loop(gpu, lambda: next(batches).numpy())


# ---- the loader keeps up


@job(data=CPU, rest="sync_bound launch_bound")
def staged_accumulation(s):
    """A thread takes batches from the loader, scales them and keeps a few ready; accumulation."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    import torch
    ms, workers, micro = s.ms("gpu_ms", 9, 28), s.int("workers", 1, 2), s.int("micro", 2, 4)
    gpu, ready = s.gpu(ms), queue.Queue(3)
    cost = ms * s.ms("load_share", 0.1, 0.5) * workers / 8
    batches = iter(torch.utils.data.DataLoader(
        Crops(30000, cost), 8, sampler=shuffled(30000), num_workers=workers,
        worker_init_fn=bound()))

    def stage():
        while True:
            ready.put((next(batches) - 3).mul_(0.5))
    threading.Thread(target=stage, daemon=True).start()
    s.go()
    while True:
        s.mark()
        for _ in range(micro):
            s.mark("micro")
            with s.during("data"):
                x = ready.get()
            gpu.upload(x.data_ptr(), x.numel() * x.element_size())
            gpu.forward()
            gpu.backward()
        gpu.optimizer()
        gpu.loss_item()


@job(data=CPU, host="host_bound", rest="sync_bound launch_bound")
def mean_weights(s):
    """A spawned worker and a DistributedSampler; the loop averages weights and counts metrics."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    import torch
    ms, metrics = s.ms("gpu_ms", 8, 40), s.ms("metrics_share", 0.2, 1.8)
    crops = Crops(40000, ms * s.ms("load_share", 0.1, 0.4) / 16)
    weights = torch.ones(s.int("mib", 1, 4) << 18)
    average, gpu = weights.clone(), s.gpu(ms)
    batches = endless(torch.utils.data.DataLoader(
        crops, 16, num_workers=1, persistent_workers=True, multiprocessing_context="spawn",
        sampler=torch.utils.data.DistributedSampler(crops, num_replicas=4, rank=1),
        worker_init_fn=bound()))
    next(batches)
    s.go()
    while True:
        s.step(gpu, lambda: next(batches).numpy())
        if not s.fix:
            with s.during("host"):
                average.mul_(0.999).add_(weights, alpha=0.001)
                parse(ms * metrics)


@job(data=CPU, rest="sync_bound launch_bound")
def hits_by_class(s):
    """Workers with a weighted sampler; each step the hits of each class are read by .item()."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    import torch
    ms, classes = s.ms("gpu_ms", 5, 11), s.int("classes", 40, 150)
    gpu = s.gpu(ms, launches=s.int("launches", 100, 200))
    crops, hits = Crops(8000, ms * s.ms("load_share", 0.1, 0.4) / 8), [0.0] * classes
    weights = [s.random.uniform(0.1, 3) for _ in range(8000)]
    batches = endless(torch.utils.data.DataLoader(
        crops, 8, num_workers=1, persistent_workers=True, worker_init_fn=bound(),
        sampler=torch.utils.data.WeightedRandomSampler(weights, 40000)))
    next(batches)
    s.go()
    while True:
        s.mark()
        with s.during("data"):
            x = next(batches)
        gpu.upload(x.data_ptr(), x.numel() * x.element_size())
        gpu.forward()
        for n in range(classes):
            gpu.launch(1, 1)
            if not s.fix:
                gpu.loss_item()
                hits[n] += gpu.loss.value
        gpu.backward()
        gpu.optimizer()
        gpu.loss_item()


@job(data=CPU, ckpt="checkpoint_stall host_bound", rest="sync_bound launch_bound")
def best_and_last(s):
    """Workers stream windows in time; every few steps two files are saved, through gzip."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    import torch
    ms, every, workers = s.ms("gpu_ms", 8, 40), s.int("every", 3, 12), s.int("workers", 1, 2)
    cost = ms * s.ms("load_share", 0.1, 0.4) * workers
    state, gpu = {"model": torch.randn(s.int("mib", 1, 4) << 18)}, s.gpu(ms)

    class Windows(torch.utils.data.IterableDataset):
        def __iter__(self):
            while True:
                decode(cost)
                yield torch.zeros(16, 2048)
    batches = iter(torch.utils.data.DataLoader(
        Windows(), None, num_workers=workers, worker_init_fn=bound()))
    s.go()
    for n in itertools.count(1):
        s.step(gpu, lambda: next(batches).numpy())
        if n % every or s.fix:
            continue
        with s.during("ckpt"):
            for name in ("last.pt.gz", "best.pt.gz"):
                with gzip.open(s.path(name + ".part"), "wb", 1) as f:
                    torch.save(state, f)
                os.rename(s.path(name + ".part"), s.path(name))
