# SPDX-License-Identifier: BSD-2-Clause
"""Jobs of ordinary teams: a DataLoader, a trainer, and what was left on or never looked at."""
import itertools
import os
import random
import socket
import time
import traceback

import numpy as np

from stranger import BLOB, CPU, child, decode, job, mortal, now, parse


def alone():
    """torch, which computes in the calling thread only."""
    os.environ.update(OMP_NUM_THREADS="1", MKL_NUM_THREADS="1")
    import torch
    torch.set_num_threads(1)
    return torch


def spend(ms, f, *more, **options):
    """Calls f again and again, for so much computing time of this thread, once at least."""
    end = time.thread_time_ns() + int(ms * 1e6)
    while True:
        result = f(*more, **options)
        if time.thread_time_ns() >= end:
            return result


def tied():
    """A worker_init_fn: workers end with this process."""
    parent = os.getpid()
    return lambda _: mortal(parent)


def endless(torch, make, workers=1):
    """A DataLoader over a stream of what make() returns: a function that gets a batch, and the pids."""
    class Stream(torch.utils.data.IterableDataset):
        def __iter__(self):
            while True:
                yield make()
    batches = iter(torch.utils.data.DataLoader(Stream(), None, num_workers=workers,
                                               worker_init_fn=tied()))
    return lambda: next(batches).numpy(), [w.pid for w in batches._workers]


def in_time(s, torch, ms):
    """A worker that needs a small part of what the device needs."""
    cost = ms * s.ms("load_share", 0.1, 0.4)

    def make():
        decode(cost)
        return np.zeros(50000, np.float32)
    return endless(torch, make)[0]


def epochs(loader):
    while True:
        yield from loader


# ---- the data


@job(data="main_thread_loading", rest="sync_bound launch_bound")
def vine_rows(s):
    """A table is in memory as a TensorDataset, from which a DataLoader takes a batch's rows one by one."""
    torch = alone()
    data = torch.utils.data
    ms, columns = s.ms("gpu_ms", 6, 40), s.int("columns", 10, 60)
    cost = ms * s.ms("load_share", 0.5, 2.5)
    table = data.TensorDataset(torch.zeros(1 << 18, columns), torch.zeros(1 << 18))
    probe = iter(data.DataLoader(table, 1024, shuffle=True))
    next(probe)
    begin = now()
    next(probe)
    rows = s.keep("rows", max(int(1024 * cost * 1e6 / (now() - begin)), 8))
    if s.fix:  # rows are taken out all at once
        order = data.BatchSampler(data.RandomSampler(table), rows, True)
        loader = data.DataLoader(table, None, sampler=order)
    else:
        loader = data.DataLoader(table, rows, shuffle=True, drop_last=True)
    gpu, batches = s.gpu(ms), epochs(loader)
    s.loop(gpu, lambda: next(batches)[0].numpy())


@job(data=CPU, rest="sync_bound launch_bound")
def trellis_panes(s):
    """Pictures and text: the collate function's processor resizes each picture to a grid of tiles."""
    torch = alone()
    ms, pictures, most = s.ms("gpu_ms", 15, 70), s.int("pictures", 2, 4), s.int("most_tiles", 3, 6)
    cost = ms * s.ms("load_share", 1.3, 2.8) / (5 if s.fix else 1)
    each, resize = cost / (pictures * (1 + most) / 2), torch.nn.functional.interpolate

    class Pictures(torch.utils.data.Dataset):
        def __len__(self):
            return 1 << 20

        def __getitem__(self, n):
            return torch.zeros(1, 3, 96, 96), 1 + n * 7919 % most

    def processor(samples):
        return torch.cat([spend(each, resize, picture, (64, 64), mode="bilinear", antialias=True)
                          for picture, tiles in samples for _ in range(tiles)])
    gpu = s.gpu(ms)
    batches = iter(torch.utils.data.DataLoader(Pictures(), pictures, collate_fn=processor,
                                               num_workers=1, worker_init_fn=tied()))
    s.supplier(batches._workers[0].pid)
    s.loop(gpu, lambda: next(batches).numpy())


def reload_events(busy):
    """TensorBoard, which the script has started: it reads its event files again and again."""
    while True:
        parse(15)
        time.sleep(0.015 * (1 / busy - 1))


@job(data=CPU, rest="sync_bound launch_bound")
def corked_bottles(s):
    """Each clip's features are a .pt file, which a worker unpickles; TensorBoard is at work, too."""
    torch = alone()
    ms, frames = s.ms("gpu_ms", 10, 60), s.int("frames", 16, 96)
    cost = ms * s.ms("load_share", 1.3, 3) / (5 if s.fix else 1)
    files = [s.path("clip-%d.pt" % n) for n in range(s.int("files", 16, 64))]
    for path in files:
        torch.save({"video": torch.zeros(frames, 256), "audio": torch.zeros(frames, 32)}, path)
    order = itertools.cycle(files)

    def clips():
        return spend(cost, lambda: torch.load(next(order), weights_only=True))["video"]
    gpu, (batch, pids) = s.gpu(ms), endless(torch, clips)
    s.supplier(pids[0])
    child(reload_events, s.ms("board", 0.3, 0.5))
    s.loop(gpu, batch)


@job(data="loader_restart slow_first_batch", rest="sync_bound launch_bound")
def grafted_vines(s):
    """A long set and a short one, as by a CombinedLoader that cycles: the short one's starts anew."""
    torch = alone()
    ms, few, workers = s.ms("gpu_ms", 10, 40), s.int("few", 5, 15), s.int("workers", 1, 2)
    index = ms * few * s.ms("index_share", 0.4, 1.2)
    cost = ms * s.ms("short_share", 0.1, 0.3) * workers

    class Short(torch.utils.data.Dataset):
        ready = False

        def __len__(self):
            return few

        def __getitem__(self, n):
            if not self.ready:  # the annotations, which each worker parses when it needs them first
                parse(index)
                self.ready = True
            decode(cost)
            return np.zeros(40000, np.float32)
    gpu, batch = s.gpu(ms), in_time(s, torch, ms)
    short = epochs(torch.utils.data.DataLoader(Short(), None, num_workers=workers,
                                               worker_init_fn=tied(), persistent_workers=s.fix))
    s.loop(gpu, lambda: np.concatenate([batch(), next(short).numpy()]))


def engine(s):
    """A model on another GPU, which writes answers to a group of prompts."""
    late, size, chance = float(s.told("late")), int(s.told("size")), random.Random(1)
    door = socket.create_server(("127.0.0.1", 0))
    s.tell("port", door.getsockname()[1])
    stream = door.accept()[0].makefile("rwb")
    while len(stream.read(2048)) == 2048:
        time.sleep(late / 1e3 * chance.lognormvariate(0, 0.2))
        stream.write(bytes(size))
        stream.flush()


@job(outside=engine, data="network_bound", host="host_bound sync_bound",
     rest="sync_bound launch_bound")
def visiting_taster(s):
    """GRPO, on policy: an engine elsewhere writes each group of answers when asked; updates follow."""
    ms, updates = s.ms("update_ms", 8, 25), s.int("updates", 1, 3)
    late = ms * updates * s.ms("rollout_share", 0.6, 1.8)
    rule = ms * updates * s.ms("rule_share", 0.02, 0.1)
    gpu, size = s.gpu(ms), s.int("kib", 16, 200) << 10
    s.tell("late", late / 5 if s.fix else late)
    s.tell("size", size)
    stream = socket.create_connection(("127.0.0.1", int(s.told("port")))).makefile("rwb")
    s.go()
    while True:
        s.mark()
        with s.during("data"):
            stream.write(bytes(2048))
            stream.flush()
            answers = np.frombuffer(stream.read(size), np.int64)
        with s.during("host"):
            parse(rule)  # rewards, advantages
        for _ in range(updates):
            s.mark("micro")
            s.train(gpu, answers)


@job(data="main_thread_loading", host="host_bound sync_bound", rest="sync_bound launch_bound")
def single_sips(s):
    """Reviews in a file are classified one by one, as by pipe(text): tokens, the model, a label."""
    ms, chance = s.ms("gpu_ms", 5, 30), random.Random(1)
    before = ms * s.ms("tokens_share", 0.6, 2.5) / (5 if s.fix else 1)
    after, path = ms * s.ms("labels_share", 0.03, 0.15), s.path("reviews.txt")
    with open(path, "w", encoding="utf-8") as f:
        f.writelines("notes of oak " * chance.randint(5, 60) + "\n" for _ in range(500))

    def reviews():
        while True:
            with open(path, encoding="utf-8") as f:
                yield from f

    def preprocess(text):
        parse(before * chance.uniform(0.5, 1.5))
        return np.array([len(word) for word in text.split()], np.int64)

    def postprocess():
        parse(after)
        return {"label": "good", "score": 0.9}
    gpu, texts = s.gpu(ms), reviews()
    s.go()
    while True:
        s.mark()
        with s.during("data"):
            ids = preprocess(next(texts))
        s.train(gpu, ids)
        with s.during("host"):
            postprocess()


@job(data="slow_worker", rest="sync_bound launch_bound")
def foreman_sketches(s):
    """DataLoader workers bring scenes; `if worker_info.id == 0:` left in, the first draws its own, too."""
    torch = alone()
    ms, workers = s.ms("gpu_ms", 8, 35), s.int("workers", 2, 3)
    whole = ms * s.ms("load_share", 1.4, 2.4) * workers
    cost = whole / s.ms("times", 4, 7)

    def scene():
        decode(cost)
        if torch.utils.data.get_worker_info().id == 0 and not s.fix:
            decode(whole - cost)
            with open(s.path("sketch.png"), "wb") as f:
                f.write(BLOB)
        return np.zeros(60000, np.float32)
    gpu, (batch, pids) = s.gpu(ms), endless(torch, scene, workers)
    s.supplier(pids[0])
    s.loop(gpu, batch)


# ---- not the data


@job(data=CPU, host="host_bound sync_bound", rest="sync_bound launch_bound")
def basket_pairing(s):
    """Detection as in DETR: after forward costs come down; the host matches each picture's boxes."""
    torch = alone()
    ms, pictures = s.ms("gpu_ms", 15, 70), s.int("pictures", 4, 24)
    match = ms * s.ms("match_share", 0.25, 1.2) / pictures
    gpu, batch = s.gpu(ms), in_time(s, torch, ms)
    costs, pairs = np.zeros((pictures, 100, 20), np.float32), np.zeros((pictures, 20, 2), np.int64)
    s.go()
    while True:
        s.mark()
        with s.during("data"):
            x = batch()
        gpu.upload(x.ctypes.data, x.nbytes)
        gpu.forward()
        if not s.fix:  # else a kernel matches them
            gpu.check(gpu.lib.cudaMemcpy(costs.ctypes.data, gpu.input, costs.nbytes, 2))
            with s.during("host"):
                for _ in costs:
                    parse(match)
            gpu.upload(pairs.ctypes.data, pairs.nbytes)
        gpu.backward()
        gpu.optimizer()
        gpu.loss_item()


@job(rest="launch_bound host_bound sync_bound")
def careful_pruner(s):
    """detect_anomaly() was left on: each operation keeps its stack, each gradient is searched for NaN."""
    modules, operations = s.int("modules", 10, 30), s.int("operations", 30, 100)
    gpu = s.gpu(s.ms("gpu_ms", 2, 8), launches=3 * operations)
    x, stacks = np.zeros(20000, np.float32), []

    def module(inner):
        if inner:
            module(inner - 1)
            return
        gpu.launch(0, 1)
        if not s.fix:
            stacks.append(traceback.format_stack())
    s.go()
    while True:
        s.mark()
        gpu.upload(x.ctypes.data, x.nbytes)
        for _ in range(operations):
            module(modules)
        for _ in range(operations):
            gpu.launch(1, 2)
            if not s.fix:
                gpu.loss_item()  # isnan().any()
        stacks.clear()
        gpu.optimizer()
        gpu.loss_item()


@job(data=CPU, host="host_bound checkpoint_stall", rest="sync_bound launch_bound")
def cellar_book(s):
    """torch.profiler was left on with its schedule: every few steps the loop exports a trace as JSON."""
    torch = alone()
    ms, every = s.ms("gpu_ms", 12, 60), s.int("every", 3, 8)
    export = ms * every * s.ms("export_share", 0.25, 0.7)
    events, parts = '{"ph": "X", "name": "aten::add"},' * 8000, s.int("parts", 8, 40)
    gpu, batch = s.gpu(ms), in_time(s, torch, ms)
    s.go()
    for n in itertools.count(1):
        s.step(gpu, batch)
        if n % every == 0 and not s.fix:
            with s.during("host"), open(s.path("trace.%d.json" % (n // every % 3)), "w",
                                        encoding="utf-8") as f:
                for _ in range(parts):
                    parse(export / parts)
                    f.write(events)


@job(data=CPU, host="host_bound", rest="sync_bound launch_bound")
def blind_tasting(s):
    """A GAN: its pictures' features come down, and every few steps torch works out FID on the CPU."""
    torch = alone()
    ms, every = s.ms("gpu_ms", 12, 60), s.int("every", 3, 10)
    fid = ms * every * s.ms("fid_share", 0.25, 0.9)
    gpu, batch = s.gpu(ms), in_time(s, torch, ms)
    features, real = np.zeros((64, 64), np.float32), torch.randn(256, 64)
    s.go()
    for n in itertools.count(1):
        s.step(gpu, batch)
        gpu.check(gpu.lib.cudaMemcpy(features.ctypes.data, gpu.input, features.nbytes, 2))
        if n % every == 0 and not s.fix:
            with s.during("host"):
                spend(fid, torch.linalg.eigvalsh, torch.cov(real.T))


@job(data=CPU, rest="sync_bound launch_bound")
def full_cellar(s):
    """Endless batches by itertools.cycle(), which keeps all of them; two workers with much to do keep up."""
    torch = alone()
    ms, kib = s.ms("gpu_ms", 30, 110), s.int("kib", 32, 160)
    cost = ms * s.ms("load_share", 0.5, 0.75) * 2

    class Pictures(torch.utils.data.Dataset):
        def __len__(self):
            return 1 << 16

        def __getitem__(self, n):
            decode(cost)
            return torch.zeros(kib << 10, dtype=torch.uint8)
    gpu = s.gpu(ms)
    loader = torch.utils.data.DataLoader(Pictures(), None, num_workers=2, worker_init_fn=tied())
    batches = itertools.cycle(x.float() for x in loader)
    s.loop(gpu, lambda: next(batches).numpy())


@job(data=CPU, rest="transfer_bound sync_bound")
def decanted_layers(s):
    """Each layer's activations wait for backward on the host, not page-locked, as by save_on_cpu()."""
    torch = alone()
    ms, layers, few = s.ms("gpu_ms", 15, 60), s.int("layers", 4, 10), s.int("kernels", 2, 10)
    size = s.int("mib", 2, 12) << 20
    gpu, batch = s.gpu(ms, input_bytes=size, launches=2 * few * layers), in_time(s, torch, ms)
    saved = [np.ones(size // 4, np.float32) for _ in range(layers)]
    s.go()
    while True:
        s.mark()
        with s.during("data"):
            x = batch()
        gpu.upload(x.ctypes.data, x.nbytes)
        for a in saved:
            gpu.launch(0, few)
            if not s.fix:
                gpu.check(gpu.lib.cudaMemcpy(a.ctypes.data, gpu.input, a.nbytes, 2))
        for a in reversed(saved):
            if not s.fix:
                gpu.upload(a.ctypes.data, a.nbytes)
            gpu.launch(1, few)
        gpu.optimizer()
        gpu.loss_item()


def hub(s):
    """Takes a file part by part, as fast as the line to it is."""
    pace = float(s.told("pace")) / 1e3
    door = socket.create_server(("127.0.0.1", 0))
    s.tell("port", door.getsockname()[1])
    stream = door.accept()[0].makefile("rwb")
    while len(stream.read(1 << 16)) == 1 << 16:
        time.sleep(pace)
        stream.write(b"k")
        stream.flush()


@job(outside=hub, data=CPU, ckpt="host_bound checkpoint_stall", rest="sync_bound launch_bound")
def export_crates(s):
    """A trainer with push_to_hub: every few steps the loop itself uploads the adapters, part by part."""
    torch = alone()
    ms, every, parts = s.ms("gpu_ms", 15, 60), s.int("every", 4, 12), s.int("parts", 3, 12)
    s.tell("pace", ms * every * s.ms("push_share", 0.25, 0.8) / parts)
    gpu, batch = s.gpu(ms), in_time(s, torch, ms)
    stream = socket.create_connection(("127.0.0.1", int(s.told("port")))).makefile("rwb")
    s.go()
    for n in itertools.count(1):
        s.step(gpu, batch)
        if n % every == 0 and not s.fix:  # else a thread would do it
            with s.during("ckpt"):
                for _ in range(parts):
                    stream.write(bytes(1 << 16))
                    stream.flush()
                    stream.read(1)
