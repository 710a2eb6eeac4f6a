# SPDX-License-Identifier: BSD-2-Clause
"""Jobs in which the loader is not the whole story: what else a trainer does, or suffers."""
import collections
import concurrent.futures
import ctypes
import http.client
import http.server
import itertools
import json
import multiprocessing
import os
import random
import signal
import socket
import struct
import threading
import time
from ctypes import byref, c_void_p

import numpy as np

from stranger import CPU, decode, job, parse


def mortal(number=signal.SIGKILL):
    """The calling process gets this signal when the one that forked it ends."""
    parent = os.getppid()
    ctypes.CDLL(None).prctl(1, int(number))
    if os.getppid() != parent:
        os._exit(0)


def apart(f, *more):
    """Calls f in a process of its own, which dies with this one."""
    def run():
        mortal()
        f(*more)
    p = multiprocessing.Process(target=run, daemon=True)
    p.start()
    return p.pid


def supply(out, cost, size):
    while True:
        decode(cost)
        out.put(np.zeros(size, np.float32))


def supplied(cost, size=50000, workers=1):
    """An ordinary loader: processes that decode, and a queue. Returns get and the pids."""
    out = multiprocessing.Queue(maxsize=4)
    return out.get, [apart(supply, out, cost, size) for _ in range(workers)]


def kept_up(j, gpu_ms):
    """A loader that needs a small part of what the GPU needs."""
    return supplied(gpu_ms * j.ms("load_share", 0.05, 0.25))[0]


# ---- what the training thread does, or waits for


@job(data=CPU, host="host_bound", rest="transfer_bound sync_bound")
def zero_offload(j):
    """The optimizer is offloaded: gradients come down, Adam runs in numpy, weights go up."""
    ms, floats = j.ms("gpu_ms", 15, 80), j.int("mib", 2, 16) << 18
    gpu, batch = j.gpu(ms, input_bytes=4 * floats), kept_up(j, ms)
    grad, m, v, tmp = (np.zeros(floats, np.float32) for _ in range(4))
    weights = np.ones(floats, np.float32)

    def adam():
        np.multiply(m, 0.9, m)
        np.add(m, np.multiply(grad, 0.1, tmp), m)
        np.multiply(v, 0.999, v)
        np.multiply(grad, grad, tmp)
        np.add(v, np.multiply(tmp, 0.001, tmp), v)
        np.add(np.sqrt(v, tmp), 1e-8, tmp)
        np.divide(m, tmp, tmp)
        np.subtract(weights, np.multiply(tmp, 1e-3, tmp), weights)
    j.go()
    while True:
        j.mark()
        with j.during("data"):
            x = batch()
        gpu.upload(x.ctypes.data, x.nbytes)
        gpu.forward()
        gpu.backward()
        if j.fix:
            gpu.optimizer()
        else:
            gpu.check(gpu.lib.cudaMemcpy(grad.ctypes.data, gpu.input, grad.nbytes, 2))
            with j.during("host"):
                adam()
            gpu.upload(weights.ctypes.data, weights.nbytes)  # not page-locked
        gpu.loss_item()


@job(host="host_bound sync_bound", rest="sync_bound launch_bound host_bound")
def speculative(j):
    """Speculative decoding: a draft model guesses token by token, a large one checks them all."""
    guesses, few, many = j.int("guesses", 2, 6), j.int("few", 8, 40), j.int("many", 30, 150)
    draft = j.gpu(j.ms("draft_ms", 1, 4), launches=few)
    target = j.gpu(j.ms("target_ms", 10, 60), launches=many)
    mask_ms, accept_ms = j.ms("grammar_ms", 0.1, 3), j.ms("accept_ms", 0.2, 12)
    ids = np.zeros(guesses + 1, np.int64)
    j.go()
    while True:
        j.mark()
        draft.enter_thread()
        for _ in range(guesses):
            j.mark("micro")
            draft.launch(0, few)
            if not j.fix:  # else the device samples, and only the end of a round is read
                draft.loss_item()
                with j.during("host"):
                    parse(mask_ms)  # which tokens a JSON schema allows next
        target.enter_thread()
        target.upload(ids.ctypes.data, ids.nbytes)
        target.launch(1, many)
        target.loss_item()
        if not j.fix:
            with j.during("host"):
                parse(accept_ms)  # rejection sampling, detokenising, the answer's stream


@job(data=CPU, child="host_bound checkpoint_stall", host="host_bound checkpoint_stall",
     rest="sync_bound")
def fork_saves(j):
    """Checkpoints by a forked child, which packs and writes; the one before must have ended."""
    ms, every, pack = j.ms("gpu_ms", 8, 50), j.int("every", 6, 30), j.ms("pack_ms", 40, 700)
    gpu, batch = j.gpu(ms), kept_up(j, ms)
    state, saver = np.ones(j.int("mib", 4, 32) << 18, np.float32), 0

    def save(path):
        mortal()
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        decode(pack)
        with open(path, "wb") as f:
            f.write(state)
            f.flush()
            os.fsync(f.fileno())
        os._exit(0)
    j.go()
    for n in itertools.count(1):
        j.step(gpu, batch)
        if n % every:
            continue
        if saver:
            with j.during("child"):
                ended, _ = os.waitpid(saver, os.WNOHANG if j.fix else 0)
            if not ended:
                continue  # this checkpoint is left out
        with j.during("host"):
            saver = os.fork()
            if saver == 0:
                save(j.path("state.ckpt"))


def evaluator(j):
    """Tries each checkpoint on a GPU of its own, and writes whether to go on."""
    late = j.ms("verdict_ms", 15, 250)
    for n in itertools.count(1):
        j.told("asked-%d" % n)
        time.sleep(late / 1e3)
        j.tell("verdict-%d" % n, "go on")


@job(outside=evaluator, data=CPU, host="host_bound", rest="sync_bound")
def stop_flag(j):
    """Early stopping: each N steps the loop polls for a file with the evaluator's verdict."""
    ms, every = j.ms("gpu_ms", 10, 60), j.int("every", 2, 15)
    gpu, batch, poll = j.gpu(ms), kept_up(j, ms), j.ms("poll_ms", 1, 25) / 1e3
    j.go()
    for n in itertools.count(1):
        j.step(gpu, batch)
        if n % every == 0:
            with j.during("host"):
                ask, answer = "asked-%d" % (n // every), j.path("verdict-%d" % (n // every))
                j.tell(ask, n)
                if j.fix:
                    continue  # it will be killed from outside when it should stop
                while not os.path.exists(answer):
                    time.sleep(poll)
                os.unlink(answer)
                os.unlink(j.path(ask))


@job(data=CPU, host="host_bound rank_straggler", peer="rank_straggler host_bound",
     rest="sync_bound")
def rank0_reports(j):
    """Two ranks meet at a barrier over TCP; the first makes a report before it comes."""
    ms, launches = j.ms("gpu_ms", 8, 40), j.int("launches", 10, 80)
    report, every = j.ms("report_ms", 4, 100), j.int("every", 1, 4)
    load_ms = ms * j.ms("load_share", 0.05, 0.15)
    door = socket.socket()
    door.bind(("127.0.0.1", 0))
    door.listen()
    for rank in range(2):
        if os.fork():
            continue
        mortal(signal.SIGTERM)  # it has a log to write
        j.rank(rank)
        if rank == 0:
            link = door.accept()[0]
        else:
            link = socket.create_connection(door.getsockname())
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        gpu, batch = j.gpu(ms, launches=launches), supplied(load_ms)[0]
        j.told("go")
        for n in itertools.count(1):
            j.step(gpu, batch)
            if rank == 0 and n % every == 0 and not j.fix:
                with j.during("host"):
                    parse(report)  # BLEU, a table, a few samples as HTML
            with j.during("peer"):
                link.sendall(b"b")
                link.recv(1)
    j.go()
    signal.pause()


# ---- what others do to it


@job(data="lock_bound", threads=True, rest="lock_bound")
def mask_outlines(j):
    """Segmentation in batches: threads turn masks into outlines, in Python, beside the loop."""
    ms, launches = j.ms("gpu_ms", 12, 90), j.int("launches", 4, 10)
    gpu, batch = j.gpu(ms, launches=launches), kept_up(j, ms)
    threads, cost = j.int("threads", 1, 2), ms * j.ms("outline_share", 0.05, 1.5)
    work = decode if j.fix else parse  # a C library that lets go of the lock, or Python
    pool, pending = concurrent.futures.ThreadPoolExecutor(threads), collections.deque()
    j.go()
    while True:
        j.mark()
        with j.during("data"):
            x = batch()
        gpu.upload(x.ctypes.data, x.nbytes)
        gpu.launch(0, launches)
        gpu.loss_item()  # the masks
        while pending and pending[0].done():
            pending.popleft()
        if len(pending) <= threads:  # else these are left out: a preview only
            pending.append(pool.submit(work, cost))


def neighbours(j):
    """Other trials of the sweep, on the same core."""
    many, pause = j.int("neighbours", 1, 3), j.ms("pause_ms", 1, 30) / 1e3
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    j.told("go")
    for _ in range(many - 1):
        if os.fork() == 0:
            mortal()
            break
    while True:
        parse(15)
        time.sleep(pause)


@job(outside=neighbours, host="host_bound", rest="host_bound sync_bound")
def packed_trials(j):
    """A trial that a scheduler pinned to one core with others; its metrics wait for their turn."""
    gpu, own = j.gpu(j.ms("gpu_ms", 10, 60)), j.ms("own_ms", 0.5, 15)
    cores = os.sched_getaffinity(0)  # the device is there already and is not pinned
    os.sched_setaffinity(0, {min(cores) if j.fix else max(cores)})
    x = np.zeros(100000, np.float32)  # the data set is on the device, but for this
    j.go()
    while True:
        j.mark()
        j.train(gpu, x)
        with j.during("host"):
            parse(own)


# ---- the device is busy


def probing(j):
    """What asks whether the job is alive, as Kubernetes and Prometheus do."""
    rate, chance = j.ms("probes", 1, 20), random.Random(1)
    link = http.client.HTTPConnection("127.0.0.1", int(j.told("port")))
    j.told("go")
    while True:
        link.request("GET", chance.choice(["/healthz", "/metrics"]))
        link.getresponse().read()
        time.sleep(chance.expovariate(rate))


@job(outside=probing, data=CPU, rest="sync_bound")
def graph_replay(j):
    """A step is one replay of a captured graph; a web server in a thread answers probes."""
    ms, every = j.ms("graph_ms", 20, 140), j.int("item_every", 1, 8)
    gpu, (batch, _) = j.gpu(ms, launches=1), supplied(ms * j.ms("load_share", 0.05, 0.5))
    state = {"step": 0, "loss": 0.0}

    class Probe(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self):
            body = json.dumps(state).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Probe)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    j.tell("port", server.server_address[1])
    j.go()
    for n in itertools.count(1):
        j.mark()
        with j.during("data"):
            x = batch()
        j.train(gpu, x, item=n % every == 0)
        state.update(step=n, loss=gpu.loss.value)


@job(data=CPU, ckpt="checkpoint_stall", rest="sync_bound launch_bound")
def lora_short(j):
    """LoRA on short chats: a DataLoader packs them in time; small adapters are saved."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    import torch
    ms, every = j.ms("gpu_ms", 30, 130), j.int("save_every", 10, 50)
    workers, length = j.int("workers", 1, 2), j.one("length", 128, 256, 512)
    pack = ms * j.ms("load_share", 0.05, 0.4) * workers
    adapters = np.ones(j.int("kib", 200, 2000) << 8, np.float32)

    class Chats(torch.utils.data.IterableDataset):
        def __iter__(self):
            while True:
                parse(pack)  # the template, the tokens, the mask
                yield torch.zeros(16, length, dtype=torch.int64)
    gpu = j.gpu(ms)
    batches = iter(torch.utils.data.DataLoader(Chats(), None, num_workers=workers,
                                               worker_init_fn=lambda _: mortal()))
    j.go()
    for n in itertools.count(1):
        j.step(gpu, lambda: next(batches).numpy())
        if n % every == 0:
            with j.during("ckpt"):
                np.save(j.path("adapters.npy"), adapters)


@job(data=CPU, rest="sync_bound launch_bound")
def distillation(j):
    """A teacher labels the next batch on its own stream while the student learns from this."""
    ms = j.ms("student_ms", 20, 90)
    student = j.gpu(ms, launches=j.int("student_launches", 20, 150))
    many = j.int("teacher_launches", 10, 60)
    teacher = j.gpu(j.ms("teacher_ms", 4, 40), launches=many)
    batch, _ = supplied(ms * j.ms("load_share", 0.1, 0.6))
    lib, side, labels = student.lib, c_void_p(), c_void_p()
    student.check(lib.cudaStreamCreate(byref(side)))
    student.check(lib.cudaEventCreate(byref(labels)))
    teacher.stream = side

    def label():
        with j.during("data"):
            x = batch()
        teacher.enter_thread()
        teacher.upload(x.ctypes.data, x.nbytes)
        teacher.launch(0, many)
        teacher.check(lib.cudaEventRecord(labels, side))
    j.go()
    label()
    while True:
        j.mark()
        student.check(lib.cudaStreamWaitEvent(student.stream, labels, 0))
        student.enter_thread()
        j.train(student, item=False)
        label()
        student.loss_item()


# ---- the data after all, and something loud that does no harm


@job(data=CPU, rest="sync_bound launch_bound")
def async_saves(j):
    """The loader is too slow; a thread saves snapshots all the time, which costs nothing."""
    ms, workers = j.ms("gpu_ms", 8, 45), j.int("workers", 1, 2)
    cost = ms * j.ms("load_share", 1.25, 3) * workers
    gpu, (batch, pids) = j.gpu(ms), supplied(cost / 10 if j.fix else cost, workers=workers)
    if workers == 1:
        j.supplier(pids[0])
    state, pause = np.ones(j.int("mib", 4, 24) << 18, np.float32), j.ms("pause_ms", 20, 300)

    def save():
        while True:
            with open(j.path("snapshot.part"), "wb", buffering=0) as f:
                f.write(state)
                os.fsync(f.fileno())
            os.rename(j.path("snapshot.part"), j.path("snapshot"))
            time.sleep(pause / 1e3)
    threading.Thread(target=save, daemon=True).start()
    j.loop(gpu, batch)


def bucket(j):
    """An object store that is far away."""
    late, spread = float(j.told("late")), j.ms("sigma", 0.05, 0.4)
    door = socket.create_server(("127.0.0.1", 0))
    j.tell("port", door.getsockname()[1])

    def serve(link, n):
        chance = random.Random(n)
        while ask := link.recv(4):
            size, = struct.unpack("<I", ask)
            time.sleep(late / 1e3 * chance.lognormvariate(0, spread))
            link.sendall(bytes(size))
    for n in itertools.count():
        threading.Thread(target=serve, args=(door.accept()[0], n), daemon=True).start()


def fetch(out, port, size):
    stream = socket.create_connection(("127.0.0.1", port)).makefile("rwb")
    while True:
        stream.write(struct.pack("<I", size))
        stream.flush()
        body = stream.read(size)
        decode(1)
        out.put(np.frombuffer(body, np.uint8))


def rescore():
    """An old checkpoint is scored again, on the CPU."""
    os.nice(19)
    while True:
        parse(50)


@job(outside=bucket, data="network_bound too_few_workers", rest="sync_bound launch_bound")
def far_bucket(j):
    """Loader processes wait for an object store; a niced child burns a core and harms none."""
    ms, workers = j.ms("gpu_ms", 8, 42), j.int("workers", 1, 3)
    gpu, late = j.gpu(ms), ms * j.ms("late_share", 1.3, 3.5) * workers
    j.tell("late", ms * 0.1 if j.fix else late)
    out, port, size = multiprocessing.Queue(maxsize=4), int(j.told("port")), j.int("kib", 8, 400)
    pids = [apart(fetch, out, port, size << 10) for _ in range(workers)]
    if workers == 1:
        j.supplier(pids[0])
    apart(rescore)
    j.loop(gpu, out.get)
