# SPDX-License-Identifier: BSD-2-Clause
"""Jobs with what a tired engineer left in the loop or in the loader on a Friday, at a price or at none."""
import contextlib
import csv
import http.server
import logging
import logging.handlers
import multiprocessing
import multiprocessing.managers
import os
import queue
import random
import socket
import struct
import sys
import threading
import time
from ctypes import addressof, c_int

import numpy as np

from stranger import CPU, child, decode, job, mortal, parse


def batch():
    return np.zeros(50000, np.float32)


def supply(out, cost):
    while True:
        decode(cost)
        out.put(batch())


def in_time(s, ms):
    """A loader that needs a small part of what the GPU needs."""
    out = multiprocessing.Queue(maxsize=4)
    child(supply, out, ms * s.ms("load_share", 0.05, 0.3))
    return out.get


# ---- in the loader


@job(data=CPU, rest="sync_bound launch_bound")
def oat_sieve(s):
    """For each item a process seeds its generator with very much of /dev/urandom, and augments a little."""
    ms, items = s.ms("gpu_ms", 12, 70), s.int("items", 2, 12)
    gpu, seeding = s.gpu(ms), ms * s.ms("seed_share", 1.15, 2.2) / items
    augment, out = ms * s.ms("augment_share", 0.1, 0.35) / items, multiprocessing.Queue(maxsize=4)
    if s.fix:
        seeding /= 20

    def make():
        fd = os.open("/dev/urandom", os.O_RDONLY)
        while True:
            x = batch()
            for n in range(items):
                end = time.thread_time_ns() + int(seeding * 1e6)
                while time.thread_time_ns() < end:
                    seed = os.read(fd, 1 << 16)
                x[n] = np.random.default_rng(list(seed[:32])).random()
                decode(augment)
            out.put(x)
    s.supplier(child(make).pid)
    s.loop(gpu, out.get)


@job(data=CPU, rest="sync_bound launch_bound")
def bridle_path(s):
    """A process tokenises ahead, in which the trace function of somebody's debugger was left on."""
    ms = s.ms("gpu_ms", 12, 70)
    gpu, cost = s.gpu(ms), ms * s.ms("load_share", 1.3, 2.4)
    stops = {("model.py", 10 * n) for n in range(s.int("breakpoints", 1, 30))}
    text, out = "a horse is a horse " * s.int("phrases", 10, 60), multiprocessing.Queue(maxsize=4)

    def hook(frame, event, _):
        if event == "line" and (frame.f_code.co_filename, frame.f_lineno) in stops:
            print("stopped at", frame.f_lineno)
        return hook

    def tokens(text):
        found, begin = [], 0
        for n, c in enumerate(text):
            if c == " ":
                found.append(hash(text[begin:n]) % 30000)
                begin = n + 1
        return found

    def make():
        sys.settrace(hook)
        begin = time.thread_time()
        for _ in range(20):
            tokens(text)
        texts = max(round(cost / 1e3 * 20 / (time.thread_time() - begin)), 1)
        if s.fix:
            sys.settrace(None)
        while True:
            for _ in range(texts):
                tokens(text)
            out.put(batch())
    s.supplier(child(make).pid)
    s.loop(gpu, out.get)


@job(data="main_thread_loading", rest="sync_bound launch_bound")
def stud_book(s):
    """The samples lie in memory; to find a batch's few, the loop parses the whole index, a CSV file, anew."""
    ms, size = s.ms("gpu_ms", 10, 70), s.int("batch", 8, 48)
    gpu, cost = s.gpu(ms), ms * s.ms("index_share", 0.35, 1.5)
    foals = np.ones((512, 4096), np.float32)

    def write(many):
        with open(s.path("index.csv"), "w", encoding="ascii") as f:
            f.write("name,sire,dam,place\n")
            f.writelines("foal%d,sire%d,dam%d,%d\n" % (n, n % 97, n % 89, n % 512) for n in range(many))

    def read():
        with open(s.path("index.csv"), newline="", encoding="ascii") as f:
            return {row["name"]: row for row in csv.DictReader(f)}
    write(3000)
    read()
    begin = time.thread_time()
    read()
    many = max(int(cost / 1e3 * 3000 / (time.thread_time() - begin)), 100)
    write(many)
    known = read()

    def gather():
        index = known if s.fix else read()
        names = ["foal%d" % s.random.randrange(many) for _ in range(size)]
        return foals[[int(index[name]["place"]) for name in names]]
    s.loop(gpu, gather)


@job(data=CPU, rest="sync_bound launch_bound")
def full_trough(s):
    """An IterableDataset goes through list(), so that all of a short epoch is made before its first batch."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    import torch
    ms, epoch = s.ms("gpu_ms", 10, 40), s.int("epoch", 9, 18)
    gpu, cost, parent = s.gpu(ms), ms * s.ms("load_share", 0.5, 0.8), os.getpid()
    work = s.one("work", decode, parse)
    s.keep("work", work.__name__)

    class Epochs(torch.utils.data.IterableDataset):
        def made(self):
            for _ in range(epoch):
                work(cost)
                yield torch.zeros(50000)

        def __iter__(self):
            while True:
                yield from self.made() if s.fix else list(self.made())
    batches = iter(torch.utils.data.DataLoader(Epochs(), None, num_workers=1,
                                               worker_init_fn=lambda _: mortal(parent)))
    s.supplier(batches._workers[0].pid)
    s.loop(gpu, lambda: next(batches).numpy())


def collector(s):
    """Takes log records over HTTP, and is not in a hurry to say so."""
    late, spread = float(s.told("late")) / 1e3, s.ms("sigma", 0.05, 0.3)

    class Take(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            self.rfile.read(int(self.headers["Content-Length"]))
            time.sleep(late * random.lognormvariate(0, spread))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_):
            pass
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Take)
    s.tell("port", server.server_address[1])
    server.serve_forever()


@job(outside=collector, data="network_bound too_few_workers", rest="sync_bound launch_bound")
def stable_diary(s):
    """A process decodes with ease, but logs each item by logging's HTTPHandler, to a collector far away."""
    ms, items = s.ms("gpu_ms", 14, 80), s.int("items", 1, 4)
    gpu, late = s.gpu(ms), ms * s.ms("late_share", 1.25, 2.8) / items
    s.tell("late", late / 20 if s.fix else late)
    own, port = ms * s.ms("decode_share", 0.05, 0.25) / items, s.told("port")
    out = multiprocessing.Queue(maxsize=4)

    def make():
        log = logging.Logger("loader")
        log.addHandler(logging.handlers.HTTPHandler("127.0.0.1:" + port, "/log", "POST"))
        while True:
            for n in range(items):
                decode(own)
                log.info("item %d is read", n)
            out.put(batch())
    s.supplier(child(make).pid)
    s.loop(gpu, out.get)


def hatch(s):
    """Answers at once, and closes each connection after an answer."""
    door = socket.create_server(("127.0.0.1", 0), backlog=16)
    size = int(s.told("size"))
    s.tell("port", door.getsockname()[1])
    while True:
        link = door.accept()[0]
        with link, contextlib.suppress(OSError):
            if link.recv(4):
                link.sendall(bytes(size))


@job(outside=hatch, data="too_few_workers", rest="sync_bound launch_bound")
def stubborn_mule(s):
    """Processes ask on the connection of the last answer, which is closed; they sleep, connect, ask again."""
    ms, workers, items = s.ms("gpu_ms", 12, 70), s.int("workers", 1, 2), s.int("items", 1, 4)
    gpu, pause = s.gpu(ms), ms * s.ms("pause_share", 1.3, 3) * workers / items
    own, size = ms * s.ms("decode_share", 0.05, 0.2) * workers, s.int("kib", 4, 64) << 10
    s.tell("size", size)
    place, out = ("127.0.0.1", int(s.told("port"))), multiprocessing.Queue(maxsize=4)

    def ask(link):
        with contextlib.suppress(OSError):
            link.sendall(b"next")
            return link.recv(size, socket.MSG_WAITALL)
        return b""

    def make():
        link = socket.create_connection(place)
        while True:
            for _ in range(items):
                while not ask(link):
                    link.close()
                    if not s.fix:
                        time.sleep(pause / 1e3)
                    link = socket.create_connection(place)
            decode(own)
            out.put(batch())
    makers = [child(make).pid for _ in range(workers)]
    if workers == 1:
        s.supplier(makers[0])
    s.loop(gpu, out.get)


@job(data="lock_bound", rest="sync_bound launch_bound")
def tack_room(s):
    """Processes decode from one archive with the Lock() of a Manager held, as a Pool takes no other."""
    ms, workers = s.ms("gpu_ms", 10, 60), s.int("workers", 2, 4)
    gpu, cost = s.gpu(ms), ms * s.ms("load_share", 1.3, 2.6)
    after, out = cost * s.ms("after_part", 0.02, 0.12), multiprocessing.Queue(maxsize=4)
    manager = multiprocessing.managers.SyncManager(address=s.path("archive"))  # else in /tmp
    manager.start(mortal, (os.getpid(),))
    lock = manager.Lock()

    def make():
        while True:
            with lock:
                decode(cost / 5 if s.fix else cost)
            decode(after)
            out.put(batch())
    for _ in range(workers):
        child(make)
    s.loop(gpu, out.get)


# ---- in the loop; the loader keeps up


@job(data=CPU, rest="transfer_bound sync_bound host_bound")
def rosette_pins(s):
    """After forward the labels are looked up by list.index() and moved to the device, one by one."""
    ms, share = s.ms("gpu_ms", 10, 60), s.ms("label_share", 0.35, 1.2)
    gpu, get = s.gpu(ms), in_time(s, ms)
    classes = ["class %d" % n for n in range(s.int("classes", 20, 400))]
    number = {name: n for n, name in enumerate(classes)}

    def move(names):
        for name in names:
            label = c_int(classes.index(name))
            gpu.check(gpu.lib.cudaMemcpy(gpu.input, addressof(label), 4, 1))
    begin = time.monotonic()
    move(s.random.choices(classes, k=300))
    each = (time.monotonic() - begin) / 300
    labels = s.random.choices(classes, k=max(50, min(2500, int(share * ms / 1e3 / each))))
    s.go()
    while True:
        s.mark()
        with s.during("data"):
            x = get()
        gpu.upload(x.ctypes.data, x.nbytes)
        gpu.forward()
        if s.fix:
            at_once = np.array([number[name] for name in labels], np.int32)
            gpu.upload(at_once.ctypes.data, at_once.nbytes)
        else:
            move(labels)
        gpu.backward()
        gpu.optimizer()
        gpu.loss_item()


def resolver(s):
    """A name server that answers late; beside it a socket that takes metrics, and loses them."""
    late, spread = float(s.told("late")) / 1e3, s.ms("sigma", 0.05, 0.4)
    door, sink = (socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(2))
    door.bind(("127.0.0.1", 0))
    sink.bind(("127.0.0.1", 0))
    s.tell("ports", "%d %d" % (door.getsockname()[1], sink.getsockname()[1]))
    while True:
        question, who = door.recvfrom(512)
        time.sleep(late * random.lognormvariate(0, spread))
        door.sendto(question[:2] + b"\x81\x80" + question[4:] + bytes(16), who)


@job(outside=resolver, data=CPU, host="host_bound", rest="sync_bound")
def hoof_beats(s):
    """A metrics client as of statsd: for each datagram it asks the name server anew where to send it."""
    ms, every = s.ms("gpu_ms", 12, 80), s.int("every", 1, 3)
    gpu, kinds = s.gpu(ms), s.one("kinds", (1,), (1, 28))  # A, or A and AAAA
    late, get = ms * every * s.ms("late_share", 0.25, 1.3) / len(kinds), in_time(s, ms)
    s.tell("late", late / 20 if s.fix else late)
    names, metrics = (("127.0.0.1", int(port)) for port in s.told("ports").split())
    statsd, n = socket.socket(socket.AF_INET, socket.SOCK_DGRAM), 0

    def resolve(kind):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as link:
            link.settimeout(3)
            link.connect(names)
            link.send(struct.pack(">6H", n & 0xffff, 0x100, 1, 0, 0, 0)
                      + b"\7metrics\6stable\5local\0" + struct.pack(">2H", kind, 1))
            link.recv(512)
    s.go()
    while True:
        s.step(gpu, get)
        n += 1
        if n % every == 0:
            with s.during("host"), contextlib.suppress(OSError):
                for kind in kinds:
                    resolve(kind)
                statsd.sendto(b"loss:%f|g" % gpu.loss.value, metrics)


@job(data=CPU, child="host_bound", rest="sync_bound transfer_bound")
def pony_portraits(s):
    """Every step or few a process draws a preview of the results, and the loop waits for the picture."""
    ms, every = s.ms("gpu_ms", 12, 80), s.int("every", 1, 4)
    gpu, get = s.gpu(ms), in_time(s, ms)
    cost = ms * every * s.ms("draw_share", 0.25, 1.3) / (20 if s.fix else 1)
    results = np.zeros((s.int("shown", 2, 16), 64, 64), np.float32)
    side, (mine, theirs) = s.int("side", 200, 700), multiprocessing.Pipe()

    def draw():
        while True:
            theirs.recv()
            parse(cost)  # axes, titles, a grid of them
            theirs.send(np.zeros((side, side, 3), np.uint8))
    child(draw)
    n = 0
    s.go()
    while True:
        s.step(gpu, get)
        n += 1
        if n % every == 0:
            gpu.check(gpu.lib.cudaMemcpy(results.ctypes.data, gpu.input, results.nbytes, 2))
            with s.during("child"):
                mine.send(results)
                preview = mine.recv()
            preview.max()


# ---- there as well, and nobody would notice


@job(data="io_bound", rest="sync_bound launch_bound")
def salt_lick(s):
    """A process puts each item in a cache on the disk, with an fsync(), and is ahead all the same."""
    ms, most = s.ms("gpu_ms", 60, 160), s.int("items", 1, 16)
    gpu, share = s.gpu(ms), s.ms("sync_share", 0.15, 0.4)
    own, block = ms * s.ms("decode_share", 0.05, 0.25), os.urandom(s.int("kib", 8, 128) << 10)
    out = multiprocessing.Queue(maxsize=4)

    def make():
        fd = os.open(s.path("cache"), os.O_RDWR | os.O_CREAT, 0o600)

        def keep(n):
            os.pwrite(fd, block, n % 32 * len(block))
            if not s.fix:
                os.fsync(fd)
        for n in range(32):  # so that all of its blocks are there
            os.pwrite(fd, block, n * len(block))
        os.fsync(fd)
        begin = time.monotonic()
        for n in range(8):
            keep(n)
        items = max(1, min(most, int(share * ms / 1e3 * 8 / (time.monotonic() - begin))))
        while True:
            decode(own)
            for n in range(items):
                keep(n)
            out.put(batch())
    child(make)
    s.loop(gpu, out.get)


@job(data=CPU, rest="sync_bound launch_bound")
def double_harness(s):
    """Each item is decoded to verify it, then again, and logged over a socket; a queue of one; in time."""
    ms, items = s.ms("gpu_ms", 35, 140), s.int("items", 2, 10)
    gpu, cost = s.gpu(ms), ms * s.ms("load_share", 0.4, 0.68) / items
    out, door = multiprocessing.Queue(maxsize=1), socket.create_server(("127.0.0.1", 0))

    def take():
        link = door.accept()[0]
        while link.recv(1 << 16):
            pass

    def make():
        log = logging.Logger("loader")
        log.addHandler(logging.handlers.SocketHandler("127.0.0.1", door.getsockname()[1]))
        while True:
            for n in range(items):
                if not s.fix:
                    decode(cost / 2)
                    log.info("item %d is sound", n)
                decode(cost / 2)
                log.info("item %d is read", n)
            out.put(batch())
    child(take)
    child(make)
    s.loop(gpu, out.get)


@job(data=CPU, host="host_bound sync_bound", rest="sync_bound launch_bound")
def vet_round(s):
    """torch's gradcheck() of a few layers in each step, on the CPU, but while the device is at work."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    import torch
    torch.set_num_threads(1)
    ms = s.ms("gpu_ms", 45, 150)
    gpu, get, check = s.gpu(ms), in_time(s, ms), ms / 1e3 * s.ms("check_share", 0.2, 0.6)
    if s.fix:
        check /= 5
    layer = torch.nn.Linear(s.int("wide", 2, 4), s.int("high", 1, 3)).double()
    x = torch.ones(1, layer.in_features, dtype=torch.float64, requires_grad=True)
    torch.autograd.gradcheck(layer, x)
    s.go()
    while True:
        s.mark()
        with s.during("data"):
            images = get()
        s.train(gpu, images, item=False)
        with s.during("host"):
            end = time.thread_time() + check
            while time.thread_time() < end:
                torch.autograd.gradcheck(layer, x)
        gpu.loss_item()


@job(data="lock_bound", rest="sync_bound launch_bound")
def paddock_gate(s):
    """Threads pass a semaphore that admits one, and sleep there for a rate limit of old; they are ahead."""
    ms, threads = s.ms("gpu_ms", 35, 150), s.int("threads", 2, 4)
    gpu, pause = s.gpu(ms), ms / 1e3 * s.ms("pause_share", 0.25, 0.6)
    own = ms * s.ms("decode_share", 0.05, 0.25)
    gate, out = threading.Semaphore(1), queue.Queue(maxsize=s.int("ahead", 2, 6))
    if s.fix:
        pause /= 5

    def make():
        while True:
            with gate:
                time.sleep(pause)
            decode(own)
            out.put(batch())
    for _ in range(threads):
        threading.Thread(target=make, daemon=True).start()
    s.loop(gpu, out.get)
