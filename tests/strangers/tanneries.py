# SPDX-License-Identifier: BSD-2-Clause
"""In the tanneries: jobs in which it matters who is whose process, and what was inherited from whom."""
import collections
import concurrent.futures
import contextlib
import fcntl
import http.client
import http.server
import itertools
import mmap
import multiprocessing
import os
import select
import signal
import socket
import threading
import time
import urllib.parse

import numpy as np

from stranger import CPU, child, decode, job, mortal

PAGE, FLOATS, BLOCK = 4096, 20000, 48 << 10


def put(out, cost):
    while True:
        decode(cost)
        out.put(np.zeros(FLOATS, np.float32))


def queued(cost):
    """A process and a queue."""
    out = multiprocessing.Queue(maxsize=4)
    child(put, out, cost)
    return out.get


def pour(fd, data):
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view):]


def leash(pid):
    """The calling process ends when that one does, whose child it is not."""
    fd = os.pidfd_open(pid)

    def watch():
        select.select([fd], [], [])
        os._exit(0)
    threading.Thread(target=watch, daemon=True).start()


def daemon(f, *more):
    """Calls f in a process that is nobody's child, in a session of its own. Returns its pid."""
    starter, (told, tell) = os.getpid(), os.pipe()
    middle = os.fork()
    if middle == 0:
        try:
            os.setsid()
            if os.fork() == 0:
                leash(starter)
                os.write(tell, b"%d" % os.getpid())
                f(*more)
        finally:
            os._exit(0)
    os.waitpid(middle, 0)
    os.close(tell)
    return int(os.read(told, 20))


# ---- the data is late


@job(data=CPU, rest="sync_bound launch_bound")
def beamhouse_keeper(s):
    """A container's first process opens the data set, forks the trainer and stays its only loader; to blame is this
    parent, which decodes for longer than a step takes, and passes the numbers of two shared vats by pipes."""
    ms, vats = s.ms("gpu_ms", 10, 45), 2
    cost, keeper = ms * s.ms("load_share", 1.4, 2.6), os.getpid()
    hides = np.frombuffer(mmap.mmap(-1, vats * 4 * FLOATS), np.float32).reshape(vats, FLOATS)
    empty, full = os.pipe(), os.pipe()
    if os.fork() == 0:
        mortal(keeper, signal.SIGTERM)  # it has a log to write
        s.rank(0)
        s.supplier(keeper)
        gpu = s.gpu(ms)
        os.write(empty[1], bytes(range(vats)))

        def obtain():
            vat = os.read(full[0], 1)
            x = hides[vat[0]].copy()
            os.write(empty[1], vat)
            return x
        s.told("go")
        while True:
            s.step(gpu, obtain)
    s.go()
    for n in itertools.count():
        decode(cost / 10 if s.fix else cost)
        vat = os.read(empty[0], 1)
        hides[vat[0]] = n
        os.write(full[1], vat)


def salt_mine(s):
    """A file system afar, spoken to as WebHDFS is: its name node says late which node has a block."""
    late = float(s.told("late")) / 1e3

    class Node(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_GET(self):
            body = b""
            if self.path.startswith("/webhdfs/"):
                time.sleep(late)
                self.send_response(307)
                self.send_header("Location", "http://%s/blocks/%s" % (self.headers["Host"], self.path[-8:]))
            else:
                body = bytes(BLOCK)
                self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Node)
    s.tell("port", server.server_address[1])
    server.serve_forever()


def cart(door, port, blocks, cost):
    """A node's cache daemon, which asks for block after block and sends a batch of them to who has called."""
    link, numbers = door.accept()[0], itertools.count()
    names, data = (http.client.HTTPConnection("127.0.0.1", port) for _ in range(2))
    while True:
        load = []
        for _ in range(blocks):
            names.request("GET", "/webhdfs/v1/salt/%08d" % next(numbers))
            answer = names.getresponse()
            answer.read()
            data.request("GET", urllib.parse.urlsplit(answer.getheader("Location")).path)
            load.append(data.getresponse().read())
        decode(cost)
        link.sendall(b"".join(load))


@job(outside=salt_mine, data="network_bound too_few_workers", rest="sync_bound launch_bound")
def salt_wagon(s):
    """A trainer starts the node's cache daemon by a double fork where there is none, and hands it the listening
    socket; to blame is the far name node, which the daemon asks for each block's place, one by one."""
    ms, blocks = s.ms("gpu_ms", 14, 45), s.int("blocks", 2, 4)
    late = ms * s.ms("late_share", 1.4, 2.6) / blocks
    s.tell("late", late / 20 if s.fix else late)
    port, door, link = int(s.told("port")), socket.socket(socket.AF_UNIX), socket.socket(socket.AF_UNIX)
    door.bind(s.path("sock"))
    door.listen()
    s.supplier(daemon(cart, door, port, blocks, ms * 0.04))
    door.close()
    link.connect(s.path("sock"))
    gpu, x = s.gpu(ms), np.zeros(blocks * BLOCK, np.uint8)

    def obtain():
        view = memoryview(x)
        while view:
            view = view[link.recv_into(view, len(view), socket.MSG_WAITALL):]
        return x
    s.loop(gpu, obtain)


def claim(link, path, cost, report, leaks):
    """Claims the next range under a lock, has a helper report that, and lets go of the lock, as it thinks."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # helpers are not waited for
    me = os.getpid()
    while True:
        decode(cost)
        fd = os.open(path, os.O_RDWR)
        fcntl.flock(fd, fcntl.LOCK_EX)
        number = int(os.pread(fd, 8, 0)) + 1
        os.pwrite(fd, b"%08d" % number, 0)
        if os.fork() == 0:
            mortal(me)
            if not leaks:
                os.close(fd)
            time.sleep(report)
            os._exit(0)
        os.close(fd)
        link.send(np.full(FLOATS, number, np.float32))


@job(data="lock_bound", rest="sync_bound launch_bound")
def loft_latch(s):
    """Two workers claim ranges in a file under flock(), and fork a short-lived helper that reports each claim afar;
    to blame is the descriptor that a helper inherits, by which the lock is held until the helper has ended."""
    ms, path = s.ms("gpu_ms", 10, 45), s.path("claims")
    cost, report = ms * s.ms("load_share", 0.1, 0.3), ms * s.ms("report_share", 1.5, 2.8) / 1e3
    with open(path, "wb") as f:
        f.write(b"%08d" % 0)
    gpu, ends = s.gpu(ms), []
    for _ in range(2):
        mine, theirs = multiprocessing.Pipe(duplex=False)
        child(claim, theirs, path, cost, report, not s.fix)
        ends.append(mine)
    turn = itertools.cycle(ends)
    s.loop(gpu, lambda: next(turn).recv())


def unpack(fd, batches, cost):
    for _ in range(batches):
        decode(cost)
        pour(fd, bytes(4 * FLOATS))


def soak(link, batches, cost, life, leaks):
    """For each shard a process is forked that unpacks it into a pipe, which is read to its end."""
    me = os.getpid()
    for shard in itertools.count(1):
        out, into = os.pipe()
        unpacker = os.fork()
        if unpacker == 0:
            mortal(me)
            unpack(into, batches, cost)
            os._exit(0)
        if shard == life and os.fork() == 0:  # from here on somebody looks after the scratch folder
            mortal(me)
            if not leaks:
                os.close(into)
            while True:
                time.sleep(0.5)
        os.close(into)
        with open(out, "rb") as hides:
            while body := hides.read(4 * FLOATS):
                link.send(np.frombuffer(body, np.float32))
        os.waitpid(unpacker, 0)


@job(data="hung_worker", rest="sync_bound launch_bound")
def dripping_hide(s):
    """Two workers by turns, each of which forks an unpacker for every shard and reads its pipe until the end; to
    blame is a housekeeper forked in between, which inherits the pipe's other end: for one worker no end comes."""
    ms, life_s, batches = s.ms("gpu_ms", 12, 40), s.ms("life_s", 1.6, 2.6), s.int("shard_batches", 4, 8)
    cost, life = 2 * ms * s.ms("load_share", 0.1, 0.3), max(round(life_s * 500 / ms / batches), 2)
    gpu, ends, leaky = s.gpu(ms), [], s.int("leaky", 0, 1)
    for n in range(2):
        mine, theirs = multiprocessing.Pipe(duplex=False)
        pid = child(soak, theirs, batches, cost, life if n == leaky else 0, not s.fix).pid
        ends.append(mine)
        if n == leaky:
            s.supplier(pid)
    turn = itertools.cycle(ends)
    s.loop(gpu, lambda: next(turn).recv())


@job(data="main_thread_loading", rest="sync_bound launch_bound")
def fleshing_knife(s):
    """The next batch is a task of a small pool, and the loop takes a task back by cancel() and makes the batch itself
    where nobody has begun; to blame is that loop, for the pool's threads are at slow uploads of previews always."""
    ms, upload = s.ms("gpu_ms", 10, 45), s.ms("upload_s", 0.4, 1.2)
    cost, backlog = ms * s.ms("load_share", 0.5, 1.6), s.int("backlog", 6, 10)
    pool, uploads, gpu = concurrent.futures.ThreadPoolExecutor(2), collections.deque(), s.gpu(ms)
    makers = concurrent.futures.ThreadPoolExecutor(2) if s.fix else pool

    def make():
        decode(cost / 4 if s.fix else cost)
        return np.zeros(FLOATS, np.float32)

    def top_up():
        while uploads and uploads[0].done():
            uploads.popleft()
        while len(uploads) < backlog:
            uploads.append(pool.submit(time.sleep, upload))  # the share is far away
    s.go()
    top_up()
    ahead = makers.submit(make)

    def obtain():
        nonlocal ahead
        x = make() if ahead.cancel() else ahead.result()
        ahead = makers.submit(make)
        return x
    while True:
        s.step(gpu, obtain)
        with s.during("host"):
            top_up()


# ---- not for data


def forked():
    """Milliseconds that os.fork() takes for who calls it."""
    begin = time.monotonic()
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    took = (time.monotonic() - begin) * 1e3
    os.waitpid(pid, 0)
    return took


@job(data=CPU, host="host_bound", rest="sync_bound launch_bound")
def pelt_tallies(s):
    """Every step or two a process is forked for each metric that is sent away, and nobody waits for it; to blame are
    the forks themselves, as a replay buffer of small pages in the trainer makes each of them take long."""
    ms, every, send = s.ms("gpu_ms", 8, 20), s.int("every", 1, 2), s.ms("send_ms", 8, 25) / 1e3
    share, size = s.ms("fork_share", 0.5, 1.2), s.int("mib", 256, 384) << 20
    batch, gpu, me = queued(ms * s.ms("load_share", 0.1, 0.3)), s.gpu(ms), os.getpid()
    replay = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with contextlib.suppress(OSError):  # a kernel without them
        replay.madvise(mmap.MADV_NOHUGEPAGE)
    np.frombuffer(replay, np.uint8)[::PAGE] = 1
    forked()
    each = sorted(forked() for _ in range(5))[2]
    metrics = s.keep("metrics", min(max(round(ms * every * share / each), 1), 60))
    away = collections.deque()
    s.go()
    for n in itertools.count(1):
        s.step(gpu, batch)
        if n % every:
            continue
        with s.during("host"):
            while away and os.waitpid(away[0], os.WNOHANG)[0]:
                away.popleft()
            for _ in range(1 if s.fix else metrics):
                pid = os.fork()
                if pid == 0:
                    mortal(me)
                    time.sleep(send)
                    os._exit(0)
                away.append(pid)


@job(data="main_thread_loading", rest="launch_bound host_bound")
def rinsing_chain(s):
    """Actor code that has all device calls made by one thread, an executor's, as the context is bound to it; to blame
    is that each small kernel is a task of its own, submitted and waited for, and has long run when the next comes."""
    launches, us = s.int("launches", 120, 320), s.ms("kernel_us", 2, 6)
    gpu = s.gpu(us * launches / 1e3, launches=launches)
    hand = concurrent.futures.ThreadPoolExecutor(1, initializer=gpu.enter_thread)
    table, chance = np.zeros((8192, 128), np.float32), np.random.default_rng(1)

    def call(f, *more):
        return hand.submit(f, *more).result()
    call(gpu.loss_item)
    s.go()
    while True:
        s.mark()
        with s.during("data"):
            x = table[chance.integers(0, len(table), 32)]
        if s.fix:  # a step is one task
            call(s.train, gpu, x)
            continue
        call(gpu.upload, x.ctypes.data, x.nbytes)
        for n in range(launches):
            call(gpu.launch, n * 3 // launches, 1)
        call(gpu.loss_item)


# ---- nothing is wrong


def grind(out, cost):
    while True:
        decode(cost)
        pour(out, bytes(4 * FLOATS))


@job(data=CPU, rest="sync_bound launch_bound")
def bark_mill(s):
    """Nothing is to blame: a launcher makes loader and trainer its children, with a pipe in between, and the trainer
    stops the loader by SIGSTOP when its shelf is full, but has it go on while batches for some steps are left."""
    ms, few, many = s.ms("gpu_ms", 22, 70), s.int("few", 3, 5), s.int("many", 7, 12)
    cost, launcher, (bark, mill) = ms * s.ms("load_share", 0.15, 0.45), os.getpid(), os.pipe()
    miller = child(grind, mill, cost).pid
    if os.fork() == 0:
        mortal(launcher, signal.SIGTERM)  # it has a log to write
        s.rank(0)
        gpu, shelf, news, still = s.gpu(ms), collections.deque(), threading.Condition(), threading.Event()

        def bring():
            with open(bark, "rb") as sacks:
                while True:
                    x = np.frombuffer(sacks.read(4 * FLOATS), np.float32)
                    with news:
                        shelf.append(x)
                        news.notify()
                        if len(shelf) >= many and not still.is_set():
                            still.set()
                            os.kill(miller, signal.SIGSTOP)

        def obtain():
            with news:
                while not shelf:
                    news.wait()
                if len(shelf) <= few and still.is_set():
                    os.kill(miller, signal.SIGCONT)
                    still.clear()
                return shelf.popleft()
        threading.Thread(target=bring, daemon=True).start()
        s.told("go")
        while True:
            s.step(gpu, obtain)
    s.go()
    signal.pause()
