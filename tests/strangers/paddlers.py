# SPDX-License-Identifier: BSD-2-Clause
"""Among paddlers: everyday training scripts that engineers wrote by hand, with their habits and mistakes."""
import asyncio
import collections
import ctypes
import hashlib
import http.server
import itertools
import multiprocessing
import os
import pickle
import queue
import socket
import struct
import threading
import time
import urllib.request
import zlib

import numpy as np

from stranger import CPU, child, decode, job

MIB, D2H = 1 << 20, 2


def took(f):
    """Milliseconds that f takes once it is warm."""
    f()
    begin = time.monotonic()
    f()
    return (time.monotonic() - begin) * 1e3


# ---- loaders that keep up


def put(out, cost):
    while True:
        decode(cost)
        out.put(np.zeros(20000, np.float32))


def queued(cost):
    """A process and a queue."""
    out = multiprocessing.Queue(maxsize=4)
    child(put, out, cost)
    return out.get


def threaded(cost):
    """A thread of the trainer."""
    out = queue.Queue(3)
    threading.Thread(target=put, args=(out, cost), daemon=True).start()
    return out.get


def send(link, cost):
    while True:
        decode(cost)
        link.send(np.zeros(8000, np.float32))


def piped(cost):
    """A process and a pipe, which holds a batch."""
    mine, theirs = multiprocessing.Pipe(duplex=False)
    child(send, theirs, cost)
    return mine.recv


def light(s, ms):
    """What a batch costs to a loader that keeps up."""
    return ms * s.ms("load_share", 0.1, 0.35)


# ---- hand-written loaders


class Store(http.server.BaseHTTPRequestHandler):
    disable_nagle_algorithm, late, body = True, 0.0, b""

    def do_GET(self):
        time.sleep(self.late)
        self.send_response(200)
        self.send_header("Content-Length", str(len(self.body)))
        self.end_headers()
        self.wfile.write(self.body)

    def log_message(self, *_):
        pass


def far_store(s):
    """Gives an object to whoever has a signed address, from afar."""
    late, kib = s.told("late").split()
    Store.late, Store.body = float(late) / 1e3, os.urandom(int(kib) << 10)
    store = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Store)
    s.tell("port", store.server_address[1])
    store.serve_forever()


def place(folder, key):
    return os.path.join(folder, hashlib.sha1(key.encode()).hexdigest())


def keep(path, body):
    with open(path + ".part", "wb") as f:
        f.write(body)
    os.rename(path + ".part", path)


def download(link, folder, port, names, objects, plain):
    """A data set with a cache of files, of which a hundred are kept."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    turn, kept = itertools.cycle(names), collections.deque()

    def item(name):
        url = "http://127.0.0.1:%d/%s?expires=%d&signature=%08x" % (
            port, name, time.time_ns(), zlib.crc32(name.encode()))
        path = place(folder, name if plain else url)
        if not os.path.exists(path):
            with opener.open(url) as answer:
                keep(path, answer.read())
            kept.append(path)
            if len(kept) > 100:
                os.unlink(kept.popleft())
        with open(path, "rb") as f:
            return f.read()
    while True:
        body = b"".join([item(next(turn)) for _ in range(objects)])
        decode(0.5)
        link.send(np.frombuffer(body, np.uint8))


@job(outside=far_store, data="network_bound too_few_workers", rest="sync_bound launch_bound")
def signed_permits(s):
    """A process or two with a pipe each download what their cache on the disk lacks; to blame is the far store, asked
    for every object of every epoch, as the cache's key is the whole signed address, which is never the same."""
    ms, workers, objects = s.ms("gpu_ms", 15, 40), s.int("workers", 1, 2), s.int("objects", 1, 3)
    late, kib = ms * s.ms("late_share", 1.4, 2.6) * workers / objects, s.int("kib", 20, 120)
    s.tell("late", "%f %d" % (late, kib))
    folder, names = s.path("cache"), ["image-%03d" % n for n in range(64)]
    os.makedirs(folder, exist_ok=True)
    for name in names if s.fix else ():
        keep(place(folder, name), os.urandom(kib << 10))
    gpu, port, links = s.gpu(ms), int(s.told("port")), []
    for n in range(workers):
        mine, theirs = multiprocessing.Pipe(duplex=False)
        pid = child(download, theirs, folder, port, names[n::workers], objects, s.fix).pid
        links.append(mine)
    if workers == 1:
        s.supplier(pid)
    turn = itertools.cycle(links)
    s.loop(gpu, lambda: next(turn).recv())


async def sample(n):
    for _ in range(3):
        await asyncio.sleep(0)
    return n & 255


async def gathered(many):
    return await asyncio.gather(*[sample(n) for n in range(many)])


async def feed(link, many, size):
    home = asyncio.get_running_loop()
    home.slow_callback_duration = 60
    while True:
        labels = np.array(await gathered(many), np.uint8)
        await home.sock_sendall(link, np.resize(labels, size).tobytes())


def feeder(link, many, size, debug):
    link.setblocking(False)
    asyncio.run(feed(link, many, size), debug=debug)


@job(data=CPU, rest="sync_bound launch_bound")
def nervous_coxswain(s):
    """A process gathers a batch from a coroutine for each sample, and sends it by a socket; to blame is the debug=True
    of asyncio.run() that was left in, for which a stack is taken down at each of the many small steps."""
    ms, share, size = s.ms("gpu_ms", 10, 40), s.ms("gather_share", 1.4, 2.5), 40000
    each = took(lambda: asyncio.run(gathered(200), debug=True)) / 200
    many = s.keep("samples", max(int(ms * share / each), 8))
    mine, theirs = socket.socketpair()
    gpu, x = s.gpu(ms), np.zeros(size, np.uint8)
    s.supplier(child(feeder, theirs, many, size, not s.fix).pid)

    def obtain():
        view = memoryview(x)
        while view:
            view = view[mine.recv_into(view, len(view), socket.MSG_WAITALL):]
        return x
    s.loop(gpu, obtain)


def libc(kind):
    lib = kind("libc.so.6")
    lib.memfrob.argtypes, lib.memfrob.restype = [ctypes.c_void_p, ctypes.c_size_t], None
    return lib


@job(data=CPU + " lock_bound", threads=True, rest="lock_bound")
def tied_oars(s):
    """Two threads of the trainer augment images by a C library and put batches into a queue; to blame is that the
    library was bound by ctypes.PyDLL, which keeps the interpreter's lock in each call, and not by CDLL."""
    ms, share, out = s.ms("gpu_ms", 25, 60), s.ms("augment_share", 1.35, 1.75), queue.Queue(3)
    gpu, lib = s.gpu(ms, launches=s.int("launches", 3, 6)), libc(ctypes.CDLL if s.fix else ctypes.PyDLL)
    image = np.zeros(2 * MIB, np.uint8)
    each = took(lambda: [lib.memfrob(image.ctypes.data, image.nbytes) for _ in range(10)]) / 10
    calls = max(int(ms * share / each), 4)

    def augment():
        own = image.copy()
        while True:
            for _ in range(calls):
                lib.memfrob(own.ctypes.data, own.nbytes)
            out.put(own[:100000].copy())
    for _ in range(2):
        threading.Thread(target=augment, daemon=True).start()
    s.loop(gpu, out.get)


def clerk(link, block):
    """Has all batches in memory, and pickles as much as it is asked for."""
    orders = link.makefile("rb")
    with link.makefile("wb") as answers:
        while order := orders.read(5):
            size, protocol = struct.unpack("<IB", order)
            pickle.dump(block[:size], answers, protocol=protocol)
            answers.flush()


@job(data="ipc_bound main_thread_loading", rest="sync_bound launch_bound")
def antique_charts(s):
    """A process has batches in memory and is asked one ahead over a Unix socket; to blame is the protocol=0 of its
    pickles, kept since Python 2, as the loop has to read each as one long line and turn text into bytes."""
    ms, share, most = s.ms("gpu_ms", 10, 35), s.ms("unpickle_share", 0.9, 2.3), 24 * MIB
    mine, theirs = socket.socketpair()
    gpu = s.gpu(ms)
    child(clerk, theirs, np.tile(np.frombuffer(os.urandom(MIB), np.uint8), most // MIB))
    answers = mine.makefile("rb")

    def ask(size, protocol):
        mine.sendall(struct.pack("<IB", size, protocol))

    def probe():
        ask(MIB, 0)
        pickle.load(answers)
    size = s.keep("bytes", min(max(int(ms * share / took(probe) * MIB), 64 << 10), most))
    protocol = pickle.HIGHEST_PROTOCOL if s.fix else 0

    def obtain():
        x = pickle.load(answers)
        ask(size, protocol)
        return x
    ask(size, protocol)
    s.loop(gpu, obtain)


def land(out, stop, many, cost):
    """Opens shard after shard, and looks between two whether it has to stop."""
    while not stop.is_set():
        for _ in range(many):
            decode(cost)
            out.put(np.zeros(20000, np.float32))
    out.cancel_join_thread()


@job(data="loader_restart", rest="sync_bound launch_bound")
def late_landing(s):
    """Short epochs, at whose end the worker is told to stop, joined, and started anew; to blame is this, as the
    worker, which is quick, looks for that word between two shards only, and first opens the rest of one."""
    ms, epoch, share = s.ms("gpu_ms", 12, 30), s.int("epoch", 6, 12), s.ms("load_share", 0.4, 0.6)
    gpu, steps = s.gpu(ms), itertools.count(1)
    many = s.keep("shard", int(epoch / share * s.ms("shard_epochs", 1.5, 2.2)))

    def start():
        out, stop = multiprocessing.Queue(2 * many), multiprocessing.Event()
        return out, stop, child(land, out, stop, many, ms * share)
    out, stop, worker = start()

    def obtain():
        nonlocal out, stop, worker
        if next(steps) % epoch == 0 and not s.fix:
            stop.set()
            worker.join()
            out.close()
            out, stop, worker = start()
        return out.get()
    s.loop(gpu, obtain)


@job(data="main_thread_loading", rest="sync_bound launch_bound")
def shifting_seats(s):
    """Samples are in memory, and the loop takes the names of the next ones from the front of a long list, to add them
    at its end again; to blame is list.pop(0), which moves some millions of pointers for each sample."""
    ms, names = s.ms("gpu_ms", 10, 40), ["image-%04d" % n for n in range(4096)]
    samples = {name: np.zeros(500, np.float32) for name in names}
    todo = [names[n & 4095] for n in range(s.int("millions", 1, 4) * 1000000)]
    each = took(lambda: [todo.append(todo.pop(0)) for _ in range(8)]) / 8
    many = s.keep("samples", max(int(ms * s.ms("pop_share", 0.6, 1.6) / each), 1))
    gpu = s.gpu(ms)
    if s.fix:
        todo = collections.deque(todo)
    first = todo.popleft if s.fix else lambda: todo.pop(0)

    def obtain():
        batch = [first() for _ in range(many)]
        todo.extend(batch)
        return np.concatenate([samples[name] for name in batch])
    s.loop(gpu, obtain)


# ---- no data problem


@job(data=CPU, host="host_bound sync_bound", rest="sync_bound launch_bound")
def coarse_lookout(s):
    """For Ctrl-C to work in a notebook a thread waits for the device, and the loop looks whether it is done; to blame
    is the loop's sleep between two looks, after which it finds that the device ended long ago."""
    ms = s.ms("gpu_ms", 10, 45)
    pause = ms * s.ms("pause_share", 1.55, 2.4) / 1e3
    gpu, batch = s.gpu(ms), queued(light(s, ms))
    asked, done = queue.SimpleQueue(), threading.Event()

    def wait():
        while True:
            asked.get()
            gpu.loss_item()
            done.set()
    threading.Thread(target=wait, daemon=True).start()
    s.go()
    while True:
        s.mark()
        with s.during("data"):
            x = batch()
        s.train(gpu, x, item=False)
        with s.during("host"):
            done.clear()
            asked.put(None)
            if s.fix:
                done.wait()
            while not done.is_set():
                time.sleep(pause)


@job(data=CPU, host="host_bound", rest="sync_bound launch_bound")
def carved_blades(s):
    """Batches come in time from a thread; to blame is dropout that has to be the same on each machine, for which the
    loop draws each layer's mask by numpy before it launches the layer's kernels."""
    ms, layers, each_layer = s.ms("gpu_ms", 8, 25), s.int("layers", 6, 16), s.int("layer_launches", 1, 4)
    chance, batch = np.random.default_rng(1), threaded(light(s, ms) / 2)
    gpu = s.gpu(ms, input_bytes=8 * MIB, launches=3 * layers * each_layer)

    def mask(size):
        return chance.random(size, np.float32) < 0.9
    share, each = s.ms("mask_share", 0.9, 1.9), took(lambda: mask(1 << 18)) / (1 << 18)
    size = s.keep("mask", max(int(ms * share / layers / each), 1000))
    s.go()
    while True:
        s.mark()
        with s.during("data"):
            x = batch()
        gpu.upload(x.ctypes.data, x.nbytes)
        for _ in range(layers):
            if not s.fix:
                with s.during("host"):
                    kept = mask(size)
                gpu.upload(kept.ctypes.data, kept.nbytes)
            gpu.launch(0, each_layer)
        gpu.launch(1, 2 * layers * each_layer)
        gpu.loss_item()


def as_text(path, table):
    """The format of word2vec, of which somebody wanted to see each line at once."""
    with open(path, "w", encoding="ascii") as out:
        print(*table.shape, file=out)
        for n, row in enumerate(table.tolist()):
            print("word-%d" % n, *["%.6g" % value for value in row], file=out, flush=True)


@job(data=CPU, ckpt="checkpoint_stall host_bound", rest="sync_bound launch_bound")
def river_journal(s):
    """Batches come in time by a pipe; to blame is the export of the embeddings, which every few steps the loop writes
    as text in the format of word2vec, with a flush after each line."""
    ms, every, dims = s.ms("gpu_ms", 10, 30), s.int("every", 1, 4), s.one("dims", 32, 64, 100)
    path, batch = s.path("words.txt"), piped(light(s, ms))
    each = took(lambda: as_text(path, np.ones((200, dims), np.float32))) / 200
    words = s.keep("words", max(int(ms * every * s.ms("export_share", 0.6, 1.6) / each), 20))
    table = np.random.default_rng(1).random((words, dims), np.float32)
    gpu = s.gpu(ms, input_bytes=max(table.nbytes, MIB))
    s.go()
    for n in itertools.count(1):
        s.step(gpu, batch)
        if n % every == 0:
            with s.during("ckpt"):
                gpu.check(gpu.lib.cudaMemcpy(table.ctypes.data, gpu.input, table.nbytes, D2H))
                if s.fix:
                    np.save(s.path("words.npy"), table)
                else:
                    as_text(path, table)


@job(data=CPU, host="host_bound", rest="transfer_bound sync_bound")
def long_portage(s):
    """Batches come in time; to blame is a scaler of scikit-learn between backbone and head, for which all features go
    down to the host, are scaled there into new arrays, and go up again, from pageable memory."""
    ms, share = s.ms("gpu_ms", 10, 28), s.ms("scale_share", 0.6, 1.6)
    mean, deviation = np.zeros(256, np.float32), np.ones(256, np.float32)

    def scaled(x):
        return ((x.reshape(-1, 256) - mean) / deviation).astype(np.float32)
    some = np.ones(8 << 18, np.float32)
    mib = s.keep("mib", min(max(int(ms * share / (took(lambda: scaled(some)) / 8 + 1 / 6)), 1), 64))
    features = np.ones(mib << 18, np.float32)
    batch, gpu = queued(light(s, ms)), s.gpu(ms, input_bytes=mib * MIB)
    s.go()
    while True:
        s.mark()
        with s.during("data"):
            x = batch()
        gpu.upload(x.ctypes.data, x.nbytes)
        gpu.forward()
        if not s.fix:
            gpu.check(gpu.lib.cudaMemcpy(features.ctypes.data, gpu.input, features.nbytes, D2H))
            with s.during("host"):
                even = scaled(features)
            gpu.upload(even.ctypes.data, even.nbytes)
        gpu.backward()
        gpu.optimizer()
        gpu.loss_item()


# ---- nothing is wrong


@job(data=CPU, rest="sync_bound launch_bound")
def tethered_canoe(s):
    """Nothing is to blame: a test whether the model can learn one batch by heart was left on, so that the loop uses
    the first one for ever, while a thread still waits for a loader that is far too slow, and keeps its newest batch."""
    ms, out = s.ms("gpu_ms", 30, 80), multiprocessing.Queue(maxsize=2)
    gpu = s.gpu(ms)
    child(put, out, ms * s.ms("load_share", 1.5, 4))
    first = out.get()
    ahead = {"newest": first}

    def prefetch():
        while True:
            ahead["newest"] = out.get()
    threading.Thread(target=prefetch, daemon=True).start()
    s.loop(gpu, lambda: first)


@job(data=CPU, host="host_bound", rest="sync_bound launch_bound")
def resting_paddle(s):
    """Nothing is to blame: lest it spin in the driver, the loop sleeps after each launch for most of the time that
    steps have taken of late, and only then reads the loss, for which it still has to wait."""
    ms = s.ms("gpu_ms", 30, 80)
    gpu, batch, rest, usual = s.gpu(ms), queued(light(s, ms)), s.ms("rest_share", 0.6, 0.8), 0.0
    s.go()
    while True:
        s.mark()
        with s.during("data"):
            x = batch()
        s.train(gpu, x, item=False)
        begin = time.monotonic()
        with s.during("host"):
            time.sleep(rest * usual)
        gpu.loss_item()
        spent = time.monotonic() - begin
        usual = 0.8 * usual + 0.2 * spent if usual else spent
