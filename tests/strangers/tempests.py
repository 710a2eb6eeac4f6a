# SPDX-License-Identifier: BSD-2-Clause
"""Jobs whose surroundings are to blame, or only look as if they were."""
import itertools
import mmap
import multiprocessing
import multiprocessing.connection
import os
import random
import resource
import signal
import socket
import threading
import time
import tracemalloc

import numpy as np

from stranger import CPU, child, decode, job, parse


def send(link, cost):
    while True:
        decode(cost)
        link.send(np.zeros(4096, np.float32))


def maker(f, *more):
    """A process with a pipe of its own, into which three batches fit: where they come out, and its pid."""
    ours, theirs = multiprocessing.Pipe(duplex=False)
    p = child(f, theirs, *more)
    theirs.close()
    return ours, p.pid


def makers(count, f, *more):
    """Several, asked by turns: how to get a batch, and their pids."""
    links, pids = zip(*[maker(f, *more) for _ in range(count)])
    turn = itertools.cycle(links)
    return lambda: next(turn).recv(), pids


def kept_up(s, ms):
    """A loader that needs a small part of what the GPU needs."""
    return makers(1, send, ms * s.ms("load_share", 0.05, 0.25))[0]


def each(f, times):
    """How many milliseconds a call takes here."""
    begin = time.perf_counter()
    for _ in range(times):
        f()
    return (time.perf_counter() - begin) * 1e3 / times


def whole(path):
    """Into the page cache."""
    with open(path, "rb") as f:
        while f.read(1 << 20):
            pass


# ---- what befalls the makers


def limit(pid, cycle, share):
    while True:
        os.kill(pid, signal.SIGCONT)
        time.sleep(cycle * share / 1e3)
        os.kill(pid, signal.SIGSTOP)
        time.sleep(cycle * (1 - share) / 1e3)


# At first slow_worker alone; that hung_worker names who stops a process was added with its answer.
@job(data="slow_worker hung_worker", rest="sync_bound launch_bound")
def short_leash(s):
    """Makers asked by turns; on one of them somebody set a cpulimit, which stops it again and again."""
    ms, count = s.ms("gpu_ms", 8, 40), s.int("makers", 2, 3)
    gpu, cost = s.gpu(ms), ms * count * s.ms("load_share", 0.22, 0.35)
    cycle, share, one = s.ms("cycle_ms", 40, 120), s.ms("run_share", 0.08, 0.13), s.int("one", 0, count - 1)
    batch, pids = makers(count, send, cost)
    if not s.fix:
        child(limit, pids[one], cycle, share)
    s.supplier(pids[one])
    s.loop(gpu, batch)


def export(core, busy, pause):
    os.sched_setaffinity(0, {core})
    while True:
        parse(busy)
        time.sleep(pause / 1e3)


def send_lowly(link, core, cost):
    os.sched_setaffinity(0, {core})
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    send(link, cost)


@job(data="cpu_oversubscribed", rest="sync_bound launch_bound")
def last_lifeboat(s):
    """A script starts the loader with SCHED_IDLE, on a core where an exporter works most of the time."""
    ms = s.ms("gpu_ms", 10, 40)
    gpu, cost = s.gpu(ms), ms * s.ms("load_share", 0.5, 0.8)
    busy, duty = s.ms("busy_ms", 20, 60), s.ms("duty", 0.66, 0.8)
    cores = os.sched_getaffinity(0)
    child(export, max(cores), busy, busy * (1 / duty - 1))
    batch, pids = makers(1, send_lowly, min(cores) if s.fix else max(cores), cost)
    s.supplier(pids[0])
    s.loop(gpu, batch)


def squall(period, part):
    while True:
        time.sleep(period - time.time() % period)
        end = time.time() + period * part
        while time.time() < end:
            parse(2)


def send_nicely(link, cost, nice):
    os.nice(nice)
    send(link, cost)


@job(data="cpu_oversubscribed", rest="host_bound sync_bound launch_bound")
def hourly_squalls(s):
    """Four reports start by the clock and take both cores for a while; the loader is niced."""
    ms = s.ms("gpu_ms", 8, 25)
    gpu, cost = s.gpu(ms), ms * s.ms("load_share", 0.35, 0.6)
    period, part = s.ms("period_s", 0.9, 1.8), s.ms("part", 0.32, 0.42)
    batch, pids = makers(1, send_nicely, cost, s.int("nice", 10, 15))
    s.supplier(pids[0])
    if not s.fix:
        for _ in range(4):
            child(squall, period, part)
    s.loop(gpu, batch)


def send_briefly(link, opening, cost, seconds):
    """What `ulimit -t` leaves of a maker."""
    signal.signal(signal.SIGXCPU, lambda *_: os._exit(1))
    if seconds:
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 2))
    parse(opening)
    send(link, cost)


@job(data="loader_restart", rest="sync_bound launch_bound")
def sand_glass(s):
    """A ulimit on CPU time ends the loader every second or two, and the next one opens all anew."""
    ms = s.ms("gpu_ms", 10, 28)
    gpu, cost, opening = s.gpu(ms), ms * s.ms("load_share", 0.5, 0.8), s.ms("opening_ms", 350, 550)

    def start():
        return maker(send_briefly, opening, cost, 0 if s.fix else 1)[0]
    link = start()

    def batch():
        nonlocal link
        while True:
            try:
                return link.recv()
            except (EOFError, OSError):
                link.close()
                link = start()
    s.loop(gpu, batch)


# ---- what befalls their data


def directory(s):
    """A name server that far too many ask."""
    late, chance = float(s.told("late_ms")) / 1e3, random.Random(1)
    door = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    door.bind(("127.0.0.1", 0))
    s.tell("port", door.getsockname()[1])
    while True:
        name, who = door.recvfrom(100)
        threading.Timer(late * chance.lognormvariate(0, 0.2), door.sendto, (name, who)).start()


def look_up(link, name):
    while True:
        try:
            link.send(name)
            while link.recv(100) != name:
                pass
            return
        except OSError:
            time.sleep(0.05)  # lost, or nobody is there: once more


def send_located(out, port, items, cost):
    link = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    link.connect(("127.0.0.1", port))
    link.settimeout(1)
    for n in itertools.count():
        for i in range(items):
            look_up(link, b"item-%d.volume" % (n * items + i))
        decode(cost)
        out.send(np.zeros(4096, np.float32))


@job(outside=directory, data="network_bound too_few_workers", rest="sync_bound launch_bound")
def lighthouse_keeper(s):
    """Items lie near, but a name server is asked over UDP for the place of each, one by one, and is slow."""
    ms, count, items = s.ms("gpu_ms", 10, 40), s.int("makers", 1, 3), s.int("items", 1, 5)
    gpu, late = s.gpu(ms), ms * count * s.ms("late_share", 1.4, 3)
    s.tell("late_ms", late / items / (20 if s.fix else 1))
    batch, pids = makers(count, send_located, int(s.told("port")), items, ms * 0.08)
    if count == 1:
        s.supplier(pids[0])
    s.loop(gpu, batch)


def backup(s):
    """Has the kernel drop what it copied, with the pages that others need."""
    fd, pause = os.open(s.told("copied"), os.O_RDONLY), s.ms("pause_ms", 10, 40) / 1e3
    while True:
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        time.sleep(pause)


def read_block(fd, size, block, chance):
    os.pread(fd, block, chance.randrange(size // block) * block)


def send_blocks(link, fd, size, block, many, cost, seed):
    chance = random.Random(seed)
    while True:
        for _ in range(many):
            read_block(fd, size, block, chance)
        decode(cost)
        link.send(np.zeros(4096, np.float32))


@job(outside=backup, data="io_bound", rest="sync_bound launch_bound")
def falling_barometer(s):
    """Blocks at random of a file that memory would hold, if a backup did not drop it from the cache."""
    ms, block, mib = s.ms("gpu_ms", 8, 30), s.one("block", 4096, 8192, 16384), 96
    gpu, path, share = s.gpu(ms), s.data_file("tempests-blocks", mib), s.ms("load_share", 1.6, 3)
    fd = os.open(path, os.O_RDONLY)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
    here = each(lambda: read_block(fd, mib << 20, block, s.random), 200)
    if s.fix:
        whole(path)
        s.tell("other", "")
    s.tell("copied", s.path("other") if s.fix else path)
    many = max(1, round(ms * share / here))
    batch, pids = makers(1, send_blocks, fd, mib << 20, block, many, ms * 0.08, s.int("seed", 1, 1000))
    s.supplier(pids[0])
    s.loop(gpu, batch)


def mapped(path):
    with open(path, "rb") as f:
        tree = mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ)
    tree.madvise(mmap.MADV_RANDOM)
    return tree


def publish(index, versions, cold, pause):
    for version in itertools.cycle(versions):
        cold(version)  # it was written with O_DIRECT, say
        os.symlink(version, index + ".new")
        os.rename(index + ".new", index)
        time.sleep(pause / 1e3)


def send_leaves(link, index, many, cost, seed):
    chance, seen, tree = random.Random(seed), None, None
    while True:
        version = os.stat(index).st_ino
        if version != seen:
            seen, tree = version, mapped(index)
        for _ in range(many):
            tree[chance.randrange(len(tree))]
        decode(cost)
        link.send(np.zeros(4096, np.float32))


@job(data="page_fault_io", rest="sync_bound launch_bound")
def shifting_sandbank(s):
    """A maker looks things up in a mapped index, of which another process keeps publishing a new version."""
    ms, share, pause = s.ms("gpu_ms", 8, 30), s.ms("load_share", 1.8, 3.2), s.ms("publish_ms", 120, 350)
    gpu, index = s.gpu(ms), s.path("index")
    versions = [s.data_file("tempests-index-" + name, 96) for name in "ab"]
    tree = mapped(versions[0])
    here = each(lambda: tree[s.random.randrange(len(tree))], 200)
    tree.close()
    os.symlink(versions[1], index)
    if s.fix:
        whole(versions[1])  # and it stays
    else:
        child(publish, index, versions, s.cold, pause)
    many = max(1, round(ms * share / here))
    batch, pids = makers(1, send_leaves, index, many, ms * 0.08, s.int("seed", 1, 1000))
    s.supplier(pids[0])
    s.loop(gpu, batch)


def tidy(s):
    """Empties a scratch folder by the clock."""
    folder, pause = s.told("folder"), float(s.told("pause_ms")) / 1e3
    while True:
        for name in os.listdir(folder):
            if name.endswith(".npy"):
                os.unlink(os.path.join(folder, name))
        time.sleep(pause)


def cached(path, cost):
    try:
        return np.load(path)
    except FileNotFoundError:
        decode(cost)
    with open(path + ".part", "wb") as f:
        np.save(f, np.zeros(4096, np.float32))
    os.rename(path + ".part", path)
    return np.zeros(4096, np.float32)


def send_cached(link, paths, cost):
    chance = random.Random(1)
    while True:
        link.send(cached(chance.choice(paths), cost))


@job(outside=tidy, data=CPU, rest="sync_bound launch_bound")
def swept_deck(s):
    """Decoded images are cached in a scratch folder, which a cleaner empties before they are used again."""
    ms, keys = s.ms("gpu_ms", 8, 40), s.int("keys", 12, 40)
    gpu, cost = s.gpu(ms), ms * s.ms("load_share", 1.5, 2.8)
    for name in "scratch", "other":
        os.mkdir(s.path(name))
    s.tell("pause_ms", cost * s.ms("sweep_share", 1, 3))
    s.tell("folder", s.path("other" if s.fix else "scratch"))
    paths = [s.path("scratch/%d.npy" % n) for n in range(keys)]
    if s.fix:
        for path in paths:
            cached(path, 0)
    batch, pids = makers(1, send_cached, paths, cost)
    s.supplier(pids[0])
    s.loop(gpu, batch)


# ---- what befalls the training process


def snapshots(s, hold, pause):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # it must not leave its parent stopped
    parent = os.getppid()
    s.told("go")
    while True:
        time.sleep(pause / 1e3)
        os.kill(parent, signal.SIGSTOP)
        time.sleep(hold / 1e3)
        os.kill(parent, signal.SIGCONT)


@job(data=CPU, rest="host_bound insufficient_data")
def held_breath(s):
    """A snapshot tool stops the trainer again and again, to copy its memory; the loader keeps up."""
    ms, hold = s.ms("gpu_ms", 8, 35), s.ms("hold_ms", 90, 300)
    gpu, batch, pause = s.gpu(ms), kept_up(s, ms), hold * s.ms("pause_share", 0.8, 2)
    if not s.fix:
        child(snapshots, s, hold, pause)
    s.loop(gpu, batch)


def syslog(s):
    """Puts each line on a slow disk before it takes the next."""
    door = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    door.bind(s.path("log"))
    s.tell("bound", "")
    late = float(s.told("late_ms")) / 1e3
    while True:
        door.recv(4096)
        time.sleep(late)


@job(outside=syslog, data=CPU, host="host_bound", rest="sync_bound launch_bound")
def drift_bottles(s):
    """Each step's lines go to syslog as datagrams, which wait for room as it takes its time over each."""
    ms, lines = s.ms("gpu_ms", 10, 50), s.int("lines", 4, 12)
    gpu, batch = s.gpu(ms), kept_up(s, ms)
    s.tell("late_ms", ms * s.ms("late_share", 1.5, 3) / lines)
    s.told("bound")
    link = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    link.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8192)
    link.connect(s.path("log"))
    s.go()
    for n in itertools.count():
        s.step(gpu, batch)
        with s.during("host"):
            for i in range(lines):
                try:
                    link.send(b"<14>train: step %d metric %d %f" % (n, i, gpu.loss.value),
                              socket.MSG_DONTWAIT if s.fix else 0)
                except OSError:
                    break  # no room: these are left out


def correlate(mib):
    pairs = np.empty(mib << 18, np.float32)
    pairs.fill(1)
    return float(pairs[-1])


@job(data=CPU, host="host_bound sync_bound", rest="sync_bound launch_bound")
def fresh_snow(s):
    """A statistic after each step takes a large new array, whose pages the kernel has to clear."""
    ms, share = s.ms("gpu_ms", 8, 30), s.ms("clear_share", 0.5, 1.5)
    gpu, batch = s.gpu(ms), kept_up(s, ms)
    # From 32 MiB on malloc gives each array back to the kernel.
    mib = min(max(round(ms * share / (each(lambda: correlate(64), 4) / 64)), 40), 256)
    s.go()
    while True:
        s.step(gpu, batch)
        if not s.fix:
            with s.during("host"):
                correlate(mib)


@job(rest="lock_bound")
def weather_balloon(s):
    """All data is on the device; a thread takes tracemalloc snapshots again and again, to find a leak."""
    gpu = s.gpu(s.ms("gpu_ms", 10, 40), launches=s.int("launches", 15, 50))
    share, x = s.ms("pause_share", 0.3, 1), np.zeros(4096, np.float32)
    tracemalloc.start()
    heap = [str(n) for n in range(s.int("objects", 15000, 50000))]

    def look():
        return tracemalloc.take_snapshot().statistics("lineno")[:10]
    pause = each(look, 2) * share / 1e3

    def watch():
        while heap:
            look()
            time.sleep(pause)
    if not s.fix:
        threading.Thread(target=watch, daemon=True).start()
    s.go()
    while True:
        s.mark()
        s.train(gpu, x)


# ---- what looks like harm, and is none


def send_moored(link, cost, stop):
    decode(cost)
    if stop:
        os.kill(os.getpid(), signal.SIGSTOP)
    send(link, cost)


@job(data=CPU, rest="sync_bound launch_bound")
def moored_boat(s):
    """Makers with time to spare, whose batches come in any order; a debugger left one of them stopped."""
    ms, count = s.ms("gpu_ms", 10, 60), s.int("running", 1, 2)
    gpu, cost = s.gpu(ms), ms * count * s.ms("load_share", 0.2, 0.5)
    links = [maker(send_moored, cost, n == 0 and not s.fix)[0] for n in range(count + 1)]

    def batch():
        return s.random.choice(multiprocessing.connection.wait(links)).recv()
    s.loop(gpu, batch)


def send_from_below(link, core, cost):
    os.sched_setaffinity(0, {core})
    send_nicely(link, cost, 19)


@job(data=CPU, rest="sync_bound launch_bound")
def calm_eye(s):
    """Two makers of nice 19 wait for a core that they share with a busy exporter, and yet keep up."""
    ms = s.ms("gpu_ms", 10, 40)
    gpu, cost = s.gpu(ms), ms * 2 * s.ms("load_share", 0.15, 0.28)
    busy, duty, core = s.ms("busy_ms", 8, 22), s.ms("duty", 0.42, 0.55), max(os.sched_getaffinity(0))
    if not s.fix:
        child(export, core, busy, busy * (1 / duty - 1))
    batch, _ = makers(2, send_from_below, core, cost)
    s.loop(gpu, batch)
