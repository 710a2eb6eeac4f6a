# SPDX-License-Identifier: BSD-2-Clause
"""Jobs of a clockmaker: what the loop does beside its data is at work together with feeding of every kind."""
import asyncio
import collections
import concurrent.futures
import ctypes
import fcntl
import itertools
import json
import multiprocessing
import multiprocessing.connection
import os
import pickle
import queue
import signal
import smtplib
import socket
import threading
import time
import xmlrpc.client
import xmlrpc.server

import numpy as np

from stranger import CPU, child, decode, job, mortal, parse

D2H = 2


# ---- how batches come


def put(out, cost):
    while True:
        decode(cost)
        out.put(np.zeros(50000, np.float32))


def queued(cost):
    """A process and a queue. Returns get and the pid."""
    out = multiprocessing.Queue(maxsize=4)
    return out.get, child(put, out, cost).pid


def threaded(cost):
    """A thread of the trainer, three batches ahead."""
    out = queue.Queue(3)
    threading.Thread(target=put, args=(out, cost), daemon=True).start()
    return out.get


def promised(cost):
    """Futures of an executor with one thread."""
    pool, due = concurrent.futures.ThreadPoolExecutor(1), collections.deque()

    def make():
        decode(cost)
        return np.zeros(50000, np.float32)

    def take():
        while len(due) < 4:
            due.append(pool.submit(make))
        return due.popleft().result()
    return take


def send(out, cost):
    while True:
        decode(cost)
        out.send(np.zeros(40000, np.float32))


def wired(cost):
    """Two processes with a pipe each; whose pipe has something is read."""
    ends = []
    for _ in range(2):
        mine, theirs = multiprocessing.Pipe(duplex=False)
        child(send, theirs, 2 * cost)
        ends.append(mine)
    return lambda: multiprocessing.connection.wait(ends)[0].recv()


def slotted(cost, slots=3):
    """A process fills slots of shared memory, which two semaphores count."""
    ring = np.frombuffer(multiprocessing.RawArray("f", slots * 50000), np.float32).reshape(slots, -1)
    free, full = multiprocessing.Semaphore(slots), multiprocessing.Semaphore(0)
    turn = itertools.count()

    def fill():
        for n in itertools.count():
            decode(cost)
            free.acquire()
            ring[n % slots] = n
            full.release()

    def take():
        full.acquire()
        x = ring[next(turn) % slots].copy()
        free.release()
        return x
    child(fill)
    return take


def light(s, ms, high=0.4):
    """What a batch costs to a loader that keeps up."""
    return ms * s.ms("load_share", 0.1, high)


# ---- the loop does something else


def mail_hub(s):
    """Takes mail, and takes its time over each command."""
    late = float(s.told("late")) / 1e3
    door = socket.create_server(("127.0.0.1", 0))
    s.tell("port", door.getsockname()[1])
    answers = {b"DATA": b"354 go on\r\n", b"QUIT": b"221 bye\r\n"}
    while True:
        link, _ = door.accept()
        with link, link.makefile("rb") as lines:
            time.sleep(late)
            link.sendall(b"220 hub\r\n")
            letter = False
            for line in lines:
                if letter and line != b".\r\n":
                    continue
                word = line[:4].upper()
                letter = word == b"DATA"
                time.sleep(late)
                link.sendall(answers.get(word, b"250 ok\r\n"))


@job(outside=mail_hub, data=CPU, host="host_bound", rest="sync_bound launch_bound")
def hour_chimes(s):
    """The loop itself mails each new best loss, for which the hub is asked seven times: to blame is this
    callback, while a thread has batches ready."""
    ms, every = s.ms("gpu_ms", 8, 35), s.int("every", 1, 4)
    s.tell("late", ms * every * s.ms("mail_share", 0.35, 2) / 7)
    gpu, batch, port = s.gpu(ms), threaded(light(s, ms)), int(s.told("port"))
    s.go()
    for n in itertools.count(1):
        s.step(gpu, batch)
        if n % every == 0 and not s.fix:
            with s.during("host"), smtplib.SMTP("127.0.0.1", port, local_hostname="clock") as hub:
                hub.sendmail("run@clock", ["me@clock"],
                             "Subject: step %d\r\n\r\nA new best: %f\r\n" % (n, gpu.loss.value))


@job(data=CPU, host="host_bound", rest="sync_bound launch_bound")
def returned_watches(s):
    """A table of the worst examples is logged each step: to blame is the loop's callback, which reads their
    pictures once more from the cold disk and decodes them, and not the loader, which keeps up."""
    ms, mib = s.ms("gpu_ms", 8, 35), 64
    gpu, (batch, _) = s.gpu(ms), queued(light(s, ms))
    fd = os.open(s.data_file("watches.bin", mib), os.O_RDONLY)
    worst, size = s.int("worst", 3, 16), s.int("pages", 4, 24) * 4096
    cost = ms * s.ms("table_share", 0.3, 1.3) / worst
    s.go()
    while True:
        s.step(gpu, batch)
        if s.fix:
            continue
        with s.during("host"):
            for _ in range(worst):
                place = s.random.randrange(0, (mib << 20) - size, 4096)
                os.pread(fd, size, place)
                os.posix_fadvise(fd, place, size, os.POSIX_FADV_DONTNEED)
                decode(cost)


@job(data=CPU, host="host_bound checkpoint_stall", rest="sync_bound launch_bound")
def lengthening_days(s):
    """Each step's scores are appended to one .npy file by loading it, joining and saving it anew: to blame is
    this result file, which the loop reads and writes whole, and not the two processes at their pipes."""
    ms = s.ms("gpu_ms", 8, 30)
    gpu, batch, path = s.gpu(ms), wired(light(s, ms)), s.path("scores.npy")
    fresh = np.ones((s.int("rows", 4, 48), 256), np.float32)
    np.save(path, np.zeros((s.int("mib", 6, 24) << 10, 256), np.float32))
    s.go()
    while True:
        s.step(gpu, batch)
        if not s.fix:
            with s.during("host"):
                np.save(path, np.concatenate([np.load(path), fresh]))


def night_copy(path, hold, pause):
    """A backup that locks the folder while it packs what lies there."""
    while True:
        with open(path, "rb") as f:
            fcntl.flock(f, fcntl.LOCK_EX)
            decode(hold)
        time.sleep(pause / 1e3)


@job(data=CPU, lock="lock_bound host_bound checkpoint_stall", ckpt="checkpoint_stall",
     rest="sync_bound launch_bound")
def winding_key(s):
    """Small snapshots go to a folder that a backup has locked most of the time: to blame is the lock, which
    the loop waits for before it saves, as batches lie ready in shared memory."""
    ms, every = s.ms("gpu_ms", 8, 25), s.int("every", 1, 4)
    hold = ms * every * (0.01 if s.fix else s.ms("hold_share", 1.3, 3.5))
    pause = ms * every * s.ms("pause_share", 0.1, 0.3)
    gpu, batch = s.gpu(ms), slotted(light(s, ms))
    state = np.ones(s.int("kib", 100, 1000) << 8, np.float32)
    with open(s.path("folder.lock"), "wb") as door:
        child(night_copy, s.path("folder.lock"), hold, pause)
        s.go()
        for n in itertools.count(1):
            s.step(gpu, batch)
            if n % every == 0:
                with s.during("lock"):
                    fcntl.flock(door, fcntl.LOCK_EX)
                with s.during("ckpt"):
                    np.save(s.path("state.npy"), state)
                fcntl.flock(door, fcntl.LOCK_UN)


@job(data=CPU, rest="transfer_bound")
def exchange_movement(s):
    """Averaged weights are kept on the host, and swapped with the live ones for a look at held-out data: to
    blame are these copies down and up, which block the loop, while a thread has batches ready."""
    ms, mib = s.ms("gpu_ms", 6, 16), s.int("mib", 48, 144)
    gpu, batch = s.gpu(ms, input_bytes=mib << 20), promised(light(s, ms))
    live, mean = (np.ones(mib << 18, np.float32) for _ in range(2))
    s.go()
    while True:
        s.step(gpu, batch)
        if not s.fix:
            gpu.check(gpu.lib.cudaMemcpy(live.ctypes.data, gpu.input, live.nbytes, D2H))
            gpu.upload(mean.ctypes.data, mean.nbytes)
            gpu.forward()
            gpu.loss_item()
            gpu.upload(live.ctypes.data, live.nbytes)


def cpu_percent(interval):
    """As psutil has it: it sleeps for the interval between two looks."""
    def look():
        with open("/proc/stat", encoding="ascii") as f:
            ticks = [int(word) for word in f.readline().split()[1:]]
        return sum(ticks), ticks[3]
    (all_0, idle_0), _, (all_1, idle_1) = look(), time.sleep(interval), look()
    return 100 - 100 * (idle_1 - idle_0) / max(all_1 - all_0, 1)


@job(data=CPU, host="host_bound", rest="sync_bound launch_bound")
def sweep_seconds(s):
    """Each few steps a callback logs how busy the cores are, by cpu_percent(interval=...), which sleeps for
    that time: to blame is this callback in the loop, while a DataLoader's workers keep up."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    import torch
    ms, every, workers = s.ms("gpu_ms", 8, 40), s.int("every", 1, 5), s.int("workers", 1, 2)
    interval = ms * every * s.ms("interval_share", 0.35, 1.8) / 1e3
    cost, parent = light(s, ms) * workers, os.getpid()

    class Movements(torch.utils.data.IterableDataset):
        def __iter__(self):
            while True:
                decode(cost)
                yield torch.zeros(50000)
    gpu = s.gpu(ms)
    batches = iter(torch.utils.data.DataLoader(Movements(), None, num_workers=workers,
                                               worker_init_fn=lambda _: mortal(parent)))
    with open(s.path("usage.csv"), "w", encoding="ascii") as out:
        s.go()
        for n in itertools.count(1):
            s.step(gpu, lambda: next(batches).numpy())
            if n % every == 0 and not s.fix:
                with s.during("host"):
                    out.write("%d,%.1f\n" % (n, cpu_percent(interval)))


@job(data=CPU, host="host_bound", peer="host_bound", rest="sync_bound launch_bound")
def paired_regulators(s):
    """Two equal ranks swap all predictions of a step for a metric, as by all_gather_object(): to blame is
    the making, pickling and unpickling of these objects in both loops, and neither rank is late."""
    ms, launches = s.ms("gpu_ms", 8, 30), s.int("launches", 10, 80)
    rows, cost = int(400 * ms * s.ms("gather_share", 0.4, 1.4)), light(s, ms, 0.2)
    parent = os.getpid()
    for rank, link in enumerate(multiprocessing.Pipe()):
        if os.fork():
            continue
        mortal(parent, signal.SIGTERM)
        s.rank(rank)
        gpu, (batch, _) = s.gpu(ms, launches=launches), queued(cost)
        s.told("go")
        while True:
            s.step(gpu, batch)
            with s.during("host"):
                mine = [0.5] if s.fix else [{"id": n, "score": n / rows, "name": str(n)} for n in range(rows)]
                mine = pickle.dumps(mine)
            with s.during("peer"):
                if rank == 0:
                    link.send_bytes(mine)
                other = link.recv_bytes()
                if rank == 1:
                    link.send_bytes(mine)
            with s.during("host"):
                other = pickle.loads(other)
    s.go()
    signal.pause()


# ---- the data after all


def wind(out, index, cost, heavy, every):
    decode(index)
    for n in itertools.count(1):
        decode(heavy if n % every == 0 else cost)
        out.put(np.zeros(50000, np.float32))


@job(data="loader_restart", beside="slow_item", rest="sync_bound launch_bound")
def barrel_rewinds(s):
    """A watchdog in the loop kills the loader when a batch is a little late, and starts it anew: to blame are
    the restarts, as each loader reads its index first, for much longer than the batch would have taken."""
    ms, every = s.ms("gpu_ms", 8, 20), s.int("every", 6, 14)
    gpu, patience, cost = s.gpu(ms), 1.5 * ms / 1e3, light(s, ms)
    index, heavy = s.ms("index_ms", 70, 220), cost if s.fix else 6 * ms

    def start():
        fresh = multiprocessing.Queue(1)
        return fresh, child(wind, fresh, index, cost, heavy, every)
    out, loader = start()

    def obtain():
        nonlocal out, loader
        try:
            return out.get(timeout=patience)
        except queue.Empty:
            loader.kill()
            loader.join()
            out, loader = start()
            return out.get()
    s.loop(gpu, obtain)


def telegraph(s):
    """A store that is near and a tracker that is far, at one door."""
    near, far = map(float, s.told("late").split())
    door = socket.create_server(("127.0.0.1", 0))
    s.tell("port", door.getsockname()[1])

    def serve(link):
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while ask := link.recv(1):
            time.sleep((near if ask == b"g" else far) / 1e3)
            link.sendall(bytes(200 << 10) if ask == b"g" else b"k")
    while True:
        threading.Thread(target=serve, args=(door.accept()[0],), daemon=True).start()


@job(outside=telegraph, data="network_bound", rest="sync_bound launch_bound")
def common_arbor(s):
    """An event loop in a thread has batches ready from a store nearby, but runs the tracker's coroutine, too:
    to blame is that coroutine's blocking call to a far tracker, during which no batch can be handed over."""
    ms = s.ms("gpu_ms", 8, 40)
    s.tell("late", "%f %f" % (light(s, ms), ms * s.ms("far_share", 0.4, 2)))
    gpu, place = s.gpu(ms), ("127.0.0.1", int(s.told("port")))
    tracker, ready, home = socket.create_connection(place), asyncio.Queue(3), asyncio.new_event_loop()
    cost = ms * s.ms("decode_share", 0.02, 0.1)

    async def feed():
        reader, writer = await asyncio.open_connection(*place)
        while True:
            writer.write(b"g")
            body = await reader.readexactly(200 << 10)
            decode(cost)
            await ready.put(np.frombuffer(body, np.uint8))

    async def report():
        tracker.sendall(b"p")
        tracker.recv(1)
    threading.Thread(target=home.run_forever, daemon=True).start()
    feeding = asyncio.run_coroutine_threadsafe(feed(), home)
    s.go()
    while not feeding.done():
        s.step(gpu, lambda: asyncio.run_coroutine_threadsafe(ready.get(), home).result())
        if not s.fix:
            asyncio.run_coroutine_threadsafe(report(), home)


@job(data="ipc_bound main_thread_loading", host="host_bound", rest="sync_bound launch_bound")
def speaking_clock(s):
    """One XML-RPC service gives out batches that it has ready, and takes each step's metrics: to blame is the
    batches' way as base64 in XML, which the loop asks for and parses itself."""
    gpu, body = s.gpu(s.ms("gpu_ms", 8, 22)), os.urandom(s.int("kib", 400, 1500) << 10)

    class Plain(xmlrpc.server.SimpleXMLRPCRequestHandler):
        encode_threshold = None  # answers are not compressed
    server = xmlrpc.server.SimpleXMLRPCServer(("127.0.0.1", 0), Plain, logRequests=False)
    server.register_function(lambda: xmlrpc.client.Binary(body), "batch")
    server.register_function(lambda n, loss: True, "log")
    desk = xmlrpc.client.ServerProxy("http://127.0.0.1:%d" % server.server_address[1])
    child(server.serve_forever)
    server.server_close()
    s.go()
    for n in itertools.count(1):
        s.step(gpu, lambda: np.frombuffer(body if s.fix else desk.batch().data, np.uint8))
        with s.during("host"):
            desk.log(n, gpu.loss.value)


@job(data=CPU, rest="sync_bound launch_bound")
def second_strike(s):
    """After some steps the averaged model gets its batch norms anew, by forward passes over more batches: to
    blame is the loader, which just keeps up with training, but computes too long for these passes."""
    ms = s.ms("gpu_ms", 8, 35)
    steps, passes = s.int("steps", 1, 3), s.int("passes", 4, 9)
    gpu, (batch, pid) = s.gpu(ms), queued(ms * s.ms("load_share", 0.85, 0.99))
    s.supplier(pid)
    s.go()
    while True:
        for _ in range(steps):
            s.step(gpu, batch)
        if s.fix:
            continue
        for _ in range(passes):
            s.mark("micro")
            with s.during("data"):
                x = batch()
            gpu.upload(x.ctypes.data, x.nbytes)
            gpu.forward()
        gpu.loss_item()


# ---- nothing is wrong


def dial(link, cost, pause):
    """A page that shows the figures, in no hurry."""
    os.nice(15)
    while True:
        link.recv(1 << 16)
        parse(cost)
        time.sleep(pause / 1e3)


@job(data=CPU, host="host_bound", rest="sync_bound launch_bound")
def secondary_dials(s):
    """Nothing is to blame: the loop offers each step's figures to some slow dials that draw them, but never
    waits, as a dial whose socket is full just misses them, and two processes keep up at their pipes."""
    ms = s.ms("gpu_ms", 14, 60)
    gpu, batch, dials = s.gpu(ms), wired(light(s, ms)), []
    for _ in range(s.int("dials", 2, 4)):
        mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        child(dial, theirs, s.ms("draw_ms", 5, 40), s.ms("pause_ms", 50, 200))
        mine.setblocking(False)
        dials.append(mine)
    missed, figures = 0, {"layer.%d" % n: n / 7 for n in range(40)}
    s.go()
    for n in itertools.count():
        s.step(gpu, batch)
        with s.during("host"):
            line = json.dumps(dict(figures, step=n, missed=missed)).encode()
            for link in dials:
                try:
                    link.send(line)
                except BlockingIOError:
                    missed += 1


def average(shared, path, every):
    """Averages what lies in shared memory, again and again, and keeps it on the disk."""
    live = np.frombuffer(shared, np.float32)
    mean = live.copy()
    with np.errstate(all="ignore"):
        for n in itertools.count(1):
            mean += (live - mean) * np.float32(1e-3)
            if n % every == 0:
                with open(path + ".part", "wb") as f:
                    f.write(mean)
                    f.flush()
                    os.fsync(f.fileno())
                os.rename(path + ".part", path)


@job(data=CPU, rest="sync_bound launch_bound")
def moon_phase(s):
    """Nothing is to blame: the last layer comes down to shared memory at the end of each step, and a process
    averages it there without pause and syncs it to the disk, but nobody waits for that process."""
    ms, floats = s.ms("gpu_ms", 12, 60), s.int("kib", 32, 256) << 8
    shared = multiprocessing.RawArray("f", floats)
    gpu = s.gpu(ms)
    child(average, shared, s.path("mean.bin"), s.int("every", 1000, 6000))
    batch = promised(light(s, ms, 0.5))
    s.go()
    while True:
        s.mark()
        with s.during("data"):
            x = batch()
        s.train(gpu, x, item=False)
        gpu.check(gpu.lib.cudaMemcpy(ctypes.addressof(shared), gpu.input, 4 * floats, D2H))


@job(data=CPU, ckpt="checkpoint_stall", rest="sync_bound launch_bound")
def gridiron_pendulum(s):
    """Nothing is to blame: a checkpoint of host state is made in slices, one a step, which the loop packs
    and writes while the step's kernels run; a busy process fills slots of shared memory in time."""
    ms = s.ms("gpu_ms", 16, 70)
    gpu, batch = s.gpu(ms), slotted(ms * s.ms("load_share", 0.3, 0.7))
    state = np.ones(s.int("mib", 4, 16) << 18, np.float32)
    slices = np.array_split(state, s.int("slices", 12, 40))
    cost, path = ms * s.ms("slice_share", 0.15, 0.5), s.path("state.bin")
    s.go()
    while True:
        with open(path + ".part", "wb", buffering=0) as f:
            for piece in slices:
                s.mark()
                with s.during("data"):
                    x = batch()
                s.train(gpu, x, item=False)
                with s.during("ckpt"):
                    decode(cost)
                    f.write(piece)
                gpu.loss_item()
        os.rename(path + ".part", path)
