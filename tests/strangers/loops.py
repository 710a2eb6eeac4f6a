# SPDX-License-Identifier: BSD-2-Clause
"""Jobs whose interesting part is the training loop."""
import ctypes
import itertools
import json
import multiprocessing
import os
import pickle
import signal
import socket
import subprocess
import threading
import time
from ctypes import byref, c_void_p

import numpy as np

from stranger import CPU, decode, job, parse


@job(ckpt="checkpoint_stall", rest="sync_bound launch_bound host_bound")
def checkpoints(j):
    """The model is pickled to disk and flushed every N steps."""
    gpu, every = j.gpu(j.ms("gpu_ms", 5, 80)), j.int("every", 8, 40)
    state = [np.ones(j.int("mib", 5, 120) << 18, np.float32)]
    path = os.path.join(os.path.dirname(j.data_file("rows.bin", 768)), "last.ckpt")
    x = np.zeros(100000, np.float32)
    j.go()
    for n in itertools.count(1):
        j.mark()
        j.train(gpu, x)
        if n % every == 0:
            with j.during("ckpt"), open(path, "wb") as f:
                pickle.dump(state, f, protocol=4)
                f.flush()
                os.fsync(f.fileno())


def feeding(out, cost, size):
    while True:
        decode(cost)
        out.put(np.zeros(size, np.float32))


def feeder(cost, size=50000, ahead=4):
    out = multiprocessing.Queue(maxsize=ahead)
    p = multiprocessing.Process(target=feeding, args=(out, cost, size), daemon=True)
    p.start()
    return out, p.pid


@job(data=CPU, host="host_bound", rest="sync_bound launch_bound host_bound")
def evals(j):
    """Validation every N steps: its own loader, forward only, a metric in Python."""
    gpu, every = j.gpu(j.ms("gpu_ms", 5, 60)), j.int("every", 10, 40)
    train, _ = feeder(j.ms("train_ms", 2, 30))
    check, _ = feeder(j.ms("eval_ms", 10, 80))
    batches, metric = j.int("eval_batches", 3, 12), j.ms("metric_ms", 10, 400)
    j.go()
    for n in itertools.count(1):
        j.step(gpu, train.get)
        if n % every == 0:
            for _ in range(batches):
                j.mark("micro")
                with j.during("data"):
                    x = check.get()
                gpu.upload(x.ctypes.data, x.nbytes)
                gpu.forward()
                gpu.loss_item()
            with j.during("host"):
                parse(metric)


def logger(link, cost):
    while True:
        json.dumps(link.recv())
        time.sleep(cost / 1e3)  # a server that is far away
        link.send("ok")


@job(host="host_bound", rest="sync_bound launch_bound host_bound")
def ask_logger(j):
    """Metrics go to a logging process over a pipe, and its answer is waited for."""
    gpu, (mine, theirs) = j.gpu(j.ms("gpu_ms", 5, 120)), multiprocessing.Pipe()
    multiprocessing.Process(target=logger, args=(theirs, j.ms("log_ms", 2, 60)),
                            daemon=True).start()
    x = np.zeros(100000, np.float32)
    j.go()
    for n in itertools.count():
        j.mark()
        j.train(gpu, x)
        with j.during("host"):
            mine.send({"step": n, "loss": gpu.loss.value})
            mine.recv()


def reduce_with(link, grads):
    """Each sends its gradients and takes the other's."""
    sender = threading.Thread(target=link.sendall, args=(grads,))
    sender.start()
    left = len(grads)
    while left:
        left -= len(link.recv(min(left, 1 << 20)))
    sender.join()


@job(data="rank_straggler", peer="rank_straggler", beside=CPU, rest="sync_bound launch_bound")
def socket_ranks(j):
    """Two ranks that exchange gradients over a socket; the loader of one is slow."""
    ms, slow = j.ms("gpu_ms", 5, 60), j.ms("slow_load_ms", 30, 200)
    grads, fast = bytes(j.int("grad_kib", 50, 3000) << 10), j.ms("load_ms", 1, 5)
    launches, links, pids = j.int("launches", 10, 80), socket.socketpair(), []
    for n in range(2):
        pid = os.fork()
        pids.append(pid)
        if pid:
            continue
        j.rank(n)
        gpu, link = j.gpu(ms, launches=launches), links[n]
        batches, _ = feeder(slow if n else fast)
        j.told("go")
        while True:
            j.step(gpu, batches.get)
            with j.during("peer"):
                reduce_with(link, grads)
    for link in links:
        link.close()
    j.go()
    signal.pause()


@job(data=CPU, rest="sync_bound launch_bound")
def hidden_loader(j):
    """The loader takes long and the GPU longer."""
    ms = j.ms("gpu_ms", 40, 120)
    gpu = j.gpu(ms)
    batches, _ = feeder(ms * j.ms("load_share", 0.3, 0.9), j.int("floats", 1000, 300000))
    every = j.int("item_every", 1, 8)
    j.go()
    for n in itertools.count():
        j.mark()
        with j.during("data"):
            x = batches.get()
        j.train(gpu, x, item=n % every == 0)


@job(data=CPU, rest="transfer_bound sync_bound launch_bound")
def streams(j):
    """The next batch is copied on a stream of its own while this one computes."""
    size = j.int("mib", 1, 48) << 20
    gpu = j.gpu(j.ms("gpu_ms", 5, 60), input_bytes=2 * size)
    lib = gpu.lib
    batches, _ = feeder(j.ms("load_ms", 1, 25), 1000)
    side, copied, used = c_void_p(), c_void_p(), c_void_p()
    gpu.check(lib.cudaStreamCreate(byref(side)))
    for event in (copied, used):
        gpu.check(lib.cudaEventCreate(byref(event)))
    pinned = [gpu.host_buffer(size) for _ in range(2)]

    def prefetch(n):
        with j.during("data"):
            batches.get()
        ctypes.memset(pinned[n % 2], n & 255, 4096)
        gpu.check(lib.cudaStreamWaitEvent(side, used, 0))
        gpu.check(lib.cudaMemcpyAsync(gpu.input, c_void_p(pinned[n % 2]),
                                      ctypes.c_size_t(size), 1, side))
        gpu.check(lib.cudaEventRecord(copied, side))
    j.go()
    prefetch(0)
    for n in itertools.count(1):
        j.mark()
        gpu.check(lib.cudaStreamWaitEvent(gpu.stream, copied, 0))
        gpu.forward()
        gpu.backward()
        prefetch(n)
        gpu.optimizer()
        gpu.check(lib.cudaEventRecord(used, gpu.stream))
        gpu.sync(False)


def staged(out, first, second, turn):
    begin = None
    for _ in itertools.count():
        begin = begin or time.monotonic()
        decode(first if time.monotonic() - begin < turn else second)
        out.put(np.zeros(50000, np.float32))


@job(data=CPU, rest="sync_bound launch_bound")
def phases(j):
    """After a warm-up the images get larger: another loader, other kernels."""
    small, large = j.gpu(j.ms("small_ms", 4, 30)), j.gpu(j.ms("large_ms", 10, 80), launches=60)
    turn, out = j.ms("turn_s", 2, 4), multiprocessing.Queue(maxsize=4)
    first, second = j.ms("small_load_ms", 2, 40), j.ms("large_load_ms", 10, 120)
    j.go()
    multiprocessing.Process(target=staged, args=(out, first, second, turn), daemon=True).start()
    begin = time.monotonic()
    while True:
        j.mark()
        with j.during("data"):
            x = out.get()
        late = time.monotonic() - begin > turn
        gpu = large if late else small
        gpu.enter_thread()
        j.train(gpu, x)


def environment(link, cost, seed):
    chance = np.random.default_rng(seed)
    while True:
        link.recv()
        parse(cost * chance.uniform(0.5, 2))
        link.send((np.zeros((4, 84, 84), np.uint8), 0.0, False))


@job(data=CPU, rest="sync_bound launch_bound host_bound")
def vector_env(j):
    """PPO with environments in processes: actions go out, observations come back."""
    gpu, many = j.gpu(j.ms("policy_ms", 2, 20)), j.int("environments", 1, 6)
    cost, links = j.ms("env_ms", 1, 20), []
    for n in range(many):
        mine, theirs = multiprocessing.Pipe()
        multiprocessing.Process(target=environment, args=(theirs, cost, n), daemon=True).start()
        links.append(mine)
    seen = np.zeros((many, 4, 84, 84), np.uint8)
    j.go()
    while True:
        j.mark()
        j.train(gpu, seen)  # the policy; .item() brings the actions
        with j.during("data"):
            for link in links:
                link.send(1)
            seen = np.stack([link.recv()[0] for link in links])


@job(data=CPU, rest="sync_bound launch_bound")
def gan(j):
    """Two networks in turns, each with a loader of its own."""
    g, d = j.gpu(j.ms("generator_ms", 3, 40)), j.gpu(j.ms("critic_ms", 3, 40), launches=45)
    noise, _ = feeder(j.ms("noise_ms", 0.5, 10), 10000)
    images, _ = feeder(j.ms("images_ms", 3, 80))
    critics = j.int("critics", 1, 5)
    j.go()
    while True:
        j.mark()
        for _ in range(critics):
            j.mark("micro")
            with j.during("data"):
                x = images.get()
            d.enter_thread()
            j.train(d, x, item=False)
        with j.during("data"):
            z = noise.get()
        g.enter_thread()
        j.train(g, z)


@job(child="host_bound checkpoint_stall", ckpt="checkpoint_stall",
     rest="sync_bound launch_bound host_bound")
def packed_checkpoint(j):
    """Every N steps the model is saved and gzip is run on it, and waited for."""
    gpu, every = j.gpu(j.ms("gpu_ms", 5, 60)), j.int("every", 10, 60)
    state = np.random.default_rng(1).standard_normal(j.int("kib", 200, 4000) << 7)
    x, path = np.zeros(100000, np.float32), j.path("model.npy")
    j.go()
    for n in itertools.count(1):
        j.mark()
        j.train(gpu, x)
        if n % every == 0:
            with j.during("ckpt"):
                np.save(path, state)
            with j.during("child"):
                subprocess.run(["gzip", "-kf", path], check=True)


def parameters(j):
    """Adds what it gets to the weights and sends them back, at its own pace."""
    late = j.ms("apply_ms", 1, 60)
    door = socket.socket()
    door.bind(("127.0.0.1", 0))
    door.listen()
    j.tell("port", door.getsockname()[1])
    link = door.accept()[0]
    size = int(j.told("size"))
    while True:
        left = size
        while left:
            left -= len(link.recv(min(left, 1 << 20)))
        decode(late)
        link.sendall(bytes(size))


@job(outside=parameters, peer="host_bound rank_straggler", rest="sync_bound launch_bound")
def parameter_server(j):
    """Gradients go to a parameter server, weights come back; the data lies on the device."""
    size = j.int("kib", 20, 2000) << 10
    gpu = j.gpu(j.ms("gpu_ms", 5, 80), input_bytes=size)
    link = socket.create_connection(("127.0.0.1", int(j.told("port"))))
    j.tell("size", size)
    weights = bytearray(size)
    j.go()
    while True:
        j.mark()
        j.train(gpu)
        with j.during("peer"):
            link.sendall(weights)
            view = memoryview(weights)
            while view:
                view = view[link.recv_into(view):]
        gpu.upload((ctypes.c_char * size).from_buffer(weights), size)
