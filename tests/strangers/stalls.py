# SPDX-License-Identifier: BSD-2-Clause
"""What stops a GPU beside loading: where there is a loader here, it is good enough."""
import contextlib
import fcntl
import itertools
import os
import queue
import signal
import subprocess
import sys
import threading
import time

import numpy as np

from loaders import torch_data
from loops import feeder
from stranger import CPU, job, parse


def good_loader(j, gpu_ms):
    """Batches from a process that needs a small part of what the GPU needs."""
    batches, _ = feeder(gpu_ms * j.ms("load_share", 0.05, 0.25))
    return batches.get


def begin_step(j, gpu, batch):
    j.mark()
    with j.during("data"):
        x = batch()
    gpu.upload(x.ctypes.data, x.nbytes)


# ---- the device and how it is called


@job(data=CPU, rest="transfer_bound")
def cpu_offload(j):
    """A model larger than the card: a layer's weights are copied up just before it runs."""
    ms, layers = j.ms("gpu_ms", 20, 80), j.int("layers", 4, 12)
    copy_ms = ms * j.ms("copy_share", 0.05, 1.5) / layers
    weights = np.zeros(int(copy_ms * 3e6), np.float32)  # 12 GB/s, and not page-locked
    each = j.int("kernels", 3, 12)
    gpu = j.gpu(ms, input_bytes=weights.nbytes, launches=each * layers)
    batch = good_loader(j, ms)
    j.go()
    while True:
        begin_step(j, gpu, batch)
        for _ in range(layers):
            if not j.fix:  # else they stay where they are
                gpu.upload(weights.ctypes.data, weights.nbytes)
            gpu.launch(0, each)
        gpu.loss_item()


@job(data=CPU, rest="sync_bound")
def norm_items(j):
    """Gradients are clipped layer by layer, and each layer's norm is read by .item()."""
    ms, layers = j.ms("gpu_ms", 8, 30), j.int("layers", 10, 80)
    gpu, clipped = j.gpu(ms, launches=5 * layers), 0
    batch = good_loader(j, ms)
    j.go()
    while True:
        begin_step(j, gpu, batch)
        gpu.launch(0, layers)
        gpu.launch(1, 2 * layers)
        for _ in range(layers):
            gpu.launch(2, 1)  # the norm
            if not j.fix:     # else the device compares, as clip_grad_norm_ does
                gpu.loss_item()
                clipped += gpu.loss.value > 1
            gpu.launch(2, 1)  # the scaling
        gpu.loss_item()


@job(data=CPU, rest="launch_bound")
def tensor_by_tensor(j):
    """Adam with foreach=False: thousands of launches of a few microseconds for each step."""
    torch = torch_data()
    ms, tensors = j.ms("gpu_ms", 6, 50), j.int("tensors", 60, 500)
    gpu, tiny, every = j.gpu(ms), j.ms("tiny_us", 1.5, 4), j.int("item_every", 5, 30)
    state = [(torch.zeros(1), torch.zeros(1), torch.ones(1)) for _ in range(tensors)]
    usual, batch = gpu.kernel_ns, good_loader(j, ms)

    def lasting(us):
        gpu.kernel_ns = int(us * 1e3)
        gpu.enter_thread()

    def adam():
        """Each operation is dispatched for real, on one element, and launched."""
        for m, v, w in state:
            for operation in (lambda: m.mul_(0.9), lambda: m.add_(0.1), lambda: v.mul_(0.999),
                              lambda: v.addcmul_(m, m, value=0.001), v.sqrt,
                              lambda: w.addcdiv_(m, v, value=-1e-3)):
                operation()
                gpu.launch(2, 1)
    j.go()
    for n in itertools.count(1):
        begin_step(j, gpu, batch)
        lasting(usual / 1e3)
        gpu.forward()
        gpu.backward()
        lasting(tiny * tensors * 6 / 8 if j.fix else tiny)
        if j.fix:
            gpu.launch(2, 8)  # the same work, fused
        else:
            adam()
        if n % every == 0:
            gpu.loss_item()


# ---- the host between two stages


def overlap(box, others):
    low, high = np.maximum(box[:2], others[:, :2]), np.minimum(box[2:], others[:, 2:])
    common = np.prod(np.clip(high - low, 0, None), axis=1)
    areas = np.prod(others[:, 2:] - others[:, :2], axis=1)
    return common / (np.prod(box[2:] - box[:2]) + areas - common)


def suppressed(boxes, scores, most=0.5):
    order, kept = scores.argsort()[::-1], []
    while len(order):
        kept.append(order[0])
        rest = order[1:]
        order = rest[overlap(boxes[order[0]], boxes[rest]) < most]
    return boxes[kept]


@job(data=CPU, host="host_bound", rest="sync_bound")
def cpu_nms(j):
    """A two-stage detector: its proposals come down, numpy suppresses some, the rest go up."""
    ms, many = j.ms("gpu_ms", 15, 80), j.int("proposals", 20, 600)
    gpu, batch = j.gpu(ms), good_loader(j, ms)
    chance = np.random.default_rng(j.int("image", 1, 999))
    corners = chance.uniform(0, 800, (many, 2))
    boxes = np.hstack([corners, corners + chance.uniform(20, 120, (many, 2))]).astype(np.float32)
    scores, raw = chance.random(many), np.empty_like(boxes)
    j.go()
    while True:
        begin_step(j, gpu, batch)
        gpu.forward()
        if not j.fix:  # else the device suppresses
            gpu.check(gpu.lib.cudaMemcpy(raw.ctypes.data, gpu.input, raw.nbytes, 2))
            with j.during("host"):
                regions = suppressed(boxes, scores)
            gpu.upload(regions.ctypes.data, regions.nbytes)
        gpu.backward()  # the heads
        gpu.optimizer()
        gpu.loss_item()


PROGRAM = "print(sorted(range(%d), key=lambda i: i * 7919 %% 10007)[0])"


@job(host="host_bound", child="host_bound", rest="sync_bound")
def rule_rewards(j):
    """GRPO: generated answers are checked by a rule or by running them, then learnt from."""
    ms, checker = j.ms("gpu_ms", 20, 90), j.one("checker", "rule", "sandbox")
    gpu, behind = j.gpu(ms), j.one("one_step_behind", True, False)
    programs, rule_ms = j.int("programs", 1, 3), ms * j.ms("rule_share", 0.05, 1.5)
    prompts = np.zeros((64, 512), np.int64)

    def check():
        if j.fix:
            return
        if checker == "rule":
            with j.during("host"):
                parse(rule_ms)
            return
        with j.during("child"):
            for n in range(programs):
                subprocess.run([sys.executable, "-ISc", PROGRAM % (1000 + n)], check=True,
                               stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    j.go()
    while True:
        j.mark()
        gpu.upload(prompts.ctypes.data, prompts.nbytes)
        gpu.forward()  # generates
        if behind:
            check()  # the answers of the step before, while the device is at the next
        else:
            gpu.loss_item()
            check()
        gpu.backward()
        gpu.optimizer()
        if behind:
            gpu.loss_item()


# ---- other programs


def terminal(j):
    """Shows what comes through a pipe, over a slow line."""
    late = float(j.told("line"))
    with open(j.path("output"), "rb", buffering=0) as f:
        while f.read(4096):
            time.sleep(late / 1e3)


@job(outside=terminal, data=CPU, host="host_bound", rest="sync_bound")
def slow_tty(j):
    """A table of all metrics is printed each step, and the terminal shows it slowly."""
    ms, metrics = j.ms("gpu_ms", 15, 60), j.int("metrics", 40, 200)
    gpu, batch = j.gpu(ms), good_loader(j, ms)
    row = "| %-40s | %12.6f | %8d |\n"
    table = len(row % ("", 0, 0)) * metrics
    os.mkfifo(j.path("output"))
    j.tell("line", ms * j.ms("line_share", 0.3, 3) * 4096 / table)
    with open(j.path("output"), "w", encoding="ascii") as out:
        j.go()
        for n in itertools.count():
            j.step(gpu, batch)
            if n % (100 if j.fix else 1) == 0:
                with j.during("host"):
                    out.writelines(row % ("train/metric_%d" % m, gpu.loss.value, n)
                                   for m in range(metrics))
                    out.flush()


@contextlib.contextmanager
def flocked(path):
    with open(path + ".flock", "w", encoding="ascii") as f:
        fcntl.flock(f, fcntl.LOCK_EX)
        yield


@contextlib.contextmanager
def backed_off(path):
    """The lock of those who do not trust flock() on a network file system."""
    for n in itertools.count():
        try:
            os.close(os.open(path + ".lock", os.O_CREAT | os.O_EXCL))
            break
        except FileExistsError:
            time.sleep(min(2 ** n, 32) / 1e3)
    try:
        yield
    finally:
        os.unlink(path + ".lock")


LOCKS = {"flock": flocked, "back-off": backed_off}


def other_run(j):
    """Another run of the sweep, which rewrites the table of results at leisure."""
    how, hold, pause = j.told("lock").split()
    while True:
        with LOCKS[how](j.path("results.csv")):
            time.sleep(float(hold) / 1e3)
        time.sleep(float(pause) / 1e3)


@job(outside=other_run, data=CPU, lock="lock_bound host_bound", rest="sync_bound")
def sweep_lock(j):
    """Runs of a sweep add their results to one table, under a lock file."""
    ms, every = j.ms("gpu_ms", 12, 50), j.int("every", 1, 5)
    gpu, batch, how = j.gpu(ms), good_loader(j, ms), j.one("lock", *LOCKS)
    hold = j.ms("hold_ms", 10, 120)
    j.tell("lock", "%s %f %f" % (how, hold, hold * j.ms("pause_share", 0.5, 4)))
    mine = j.path("mine.csv" if j.fix else "results.csv")
    j.go()
    for n in itertools.count(1):
        j.step(gpu, batch)
        if n % every == 0:
            with j.during("lock"), LOCKS[how](mine), open(mine, "a", encoding="ascii") as f:
                f.write("%d,%f\n" % (n, gpu.loss.value))


@job(peer="rank_straggler", data=CPU, rest="sync_bound")
def throttled_rank(j):
    """Tensor parallel over gloo: the first rank passes the batch on; the other's GPU is hot."""
    torch = torch_data()
    import torch.distributed as ranks
    ms, launches = j.ms("gpu_ms", 8, 40), j.int("launches", 10, 80)
    hot_ms = ms * j.ms("slower", 1.05, 2.5)
    sums, shape = torch.zeros(j.int("sums_kib", 20, 400) << 8), 50000
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    for n in range(2):
        if os.fork():
            continue
        j.rank(n)
        gpu = j.gpu(hot_ms if n and not j.fix else ms, launches=launches)
        batch = None if n else good_loader(j, ms)
        ranks.init_process_group("gloo", init_method="file://" + j.path("meeting"), rank=n,
                                 world_size=2)
        x = torch.zeros(shape)
        ranks.broadcast(x, 0)
        j.told("go")
        while True:
            j.mark()
            if batch:
                with j.during("data"):
                    x = torch.from_numpy(batch())
            with j.during("peer"):
                ranks.broadcast(x, 0)
            j.train(gpu, x.numpy())
            with j.during("peer"):
                ranks.all_reduce(sums)
    j.go()
    signal.pause()


# ---- other threads


@job(data="lock_bound", threads=True, rest="lock_bound")
def polling_logger(j):
    """A logger's thread asks its queue again and again without a pause, and so keeps the lock."""
    ms, launches = j.ms("gpu_ms", 10, 90), j.int("launches", 4, 16)
    gpu, batch, records = j.gpu(ms, launches=launches), good_loader(j, ms), queue.Queue()
    path = j.path("metrics.log")

    def logging():
        with open(path, "a", encoding="ascii") as f:
            while True:
                try:
                    record = records.get() if j.fix else records.get_nowait()
                except queue.Empty:
                    continue
                f.write("%d %f\n" % record)
    threading.Thread(target=logging, daemon=True).start()
    j.go()
    for n in itertools.count():
        j.step(gpu, batch)
        records.put((n, gpu.loss.value))
