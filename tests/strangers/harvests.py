# SPDX-License-Identifier: BSD-2-Clause
"""Harvests: teams that gather their data while they train, from sites, sensors, players and annotators."""
import asyncio
import fcntl
import ftplib
import heapq
import html.parser
import itertools
import multiprocessing
import multiprocessing.connection
import os
import random
import select
import shutil
import socket
import sqlite3
import struct
import threading
import time
import xmlrpc.client
import xmlrpc.server

import numpy as np

from stranger import CPU, child, decode, job, parse

PAGE, GRID, SHEAF, GONE = 4096, 256 << 10, 16 << 10, 0xffffffff


def took(f):
    """Seconds that f takes at best."""
    laps = [(time.monotonic(), f(), time.monotonic()) for _ in range(3)]
    return min(end - begin for begin, _, end in laps)


def between(low, value, high):
    return max(low, min(int(value), high))


def crowd(f, many):
    """A thread for each of many, which never end."""
    threads = [threading.Thread(target=f, args=(n,), daemon=True) for n in range(many)]
    for t in threads:
        t.start()
    threads[0].join()


def fill(folder, numbers, body):
    for n in numbers:
        with open(os.path.join(folder, "%07d.raw" % n), "wb") as f:
            f.write(body)


def in_time(s, ms):
    """A process that gathers with ease, and a pipe. Returns recv."""
    (mine, theirs), cost = multiprocessing.Pipe(duplex=False), ms * s.ms("load_share", 0.1, 0.35)

    def gather():
        while True:
            decode(cost)
            theirs.send(np.zeros(32 << 10, np.float32))
    child(gather)
    return mine.recv


# ---- the data is late


def weather_office(s):
    """An FTP server that is far away: it takes its time over each command, and sends a file at once."""
    late, door, gate = float(s.told("late")) / 1e3, *(socket.create_server(("127.0.0.1", 0)) for _ in range(2))
    s.tell("port", door.getsockname()[1])
    link, _ = door.accept()
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    link.sendall(b"220 office\r\n")
    for line in link.makefile("rb"):
        time.sleep(late)
        if line.startswith(b"PASV"):
            link.sendall(b"227 Entering Passive Mode (127,0,0,1,%d,%d)\r\n" % divmod(gate.getsockname()[1], 256))
        elif line.startswith(b"RETR"):
            link.sendall(b"150 coming\r\n")
            with gate.accept()[0] as data:
                data.sendall(bytes(GRID))
            link.sendall(b"226 done\r\n")
        else:
            link.sendall(b"230 ok\r\n")


@job(outside=weather_office, data="network_bound too_few_workers", rest="sync_bound launch_bound")
def rain_almanac(s):
    """Nowcasting with accumulation: one process gets each new radar grid from a weather office by ftplib; to
    blame is the office's distance, for which it waits at TYPE, at PASV and at RETR of each file."""
    ms, parts = s.ms("gpu_ms", 10, 40), s.int("accumulate", 1, 4)
    late = ms * s.ms("late_share", 1.5, 3) / 3
    s.tell("late", late / 15 if s.fix else late)
    gpu, out, port = s.gpu(ms), multiprocessing.Queue(maxsize=3), int(s.told("port"))

    def retrieve():
        office = ftplib.FTP()
        office.connect("127.0.0.1", port)
        office.login()
        for n in itertools.count():
            pieces = []
            office.retrbinary("RETR radar-%06d.grb" % n, pieces.append)
            decode(ms * 0.05)
            out.put(np.frombuffer(b"".join(pieces), np.uint8))
    s.supplier(child(retrieve).pid)
    s.go()
    while True:
        s.mark()
        for _ in range(parts):
            s.mark("micro")
            with s.during("data"):
                x = out.get()
            gpu.upload(x.ctypes.data, x.nbytes)
            gpu.forward()
            gpu.backward()
        gpu.optimizer()
        gpu.loss_item()


@job(data="io_bound", rest="sync_bound launch_bound")
def root_cellar(s):
    """Whale clicks: a process answers for the hydrophones' archive, and hands clips on by sendfile() from the
    recordings to a socket; to blame is the disk, for which it waits inside of sendfile(), clip after clip."""
    ms, share, path = s.ms("gpu_ms", 8, 30), s.ms("read_share", 1.5, 3), s.data_file("cellar", 96)
    fd, clicks = os.open(path, os.O_RDONLY), list(range(0, 96 << 20, PAGE))
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)  # nothing is read ahead
    random.Random(1).shuffle(clicks)
    begin = time.monotonic()
    for click in clicks[-300:]:
        os.pread(fd, PAGE, click)
    each = (time.monotonic() - begin) / 300
    clips = s.keep("clips", between(20, ms * share / 1e3 / each, 4000)) // (10 if s.fix else 1)
    gpu, (mine, theirs), batch = s.gpu(ms), socket.socketpair(), bytearray(clips * PAGE)

    def archive():
        while True:
            s.cold(path)  # it is larger than memory, as it were
            for click in clicks:
                os.sendfile(theirs.fileno(), fd, click, PAGE)
    s.supplier(child(archive).pid)

    def obtain():
        mine.recv_into(batch, len(batch), socket.MSG_WAITALL)
        return np.frombuffer(batch, np.uint8)
    s.loop(gpu, obtain)


@job(data="lock_bound", rest="sync_bound launch_bound")
def olive_press(s):
    """Live cells: a process for each microscope locks the table of stages while its own comes to rest; to blame
    is a lockf() without a range: it locks all of the table, so that one stage moves and the others wait."""
    ms, stages, fields = s.ms("gpu_ms", 10, 40), s.int("stages", 3, 4), s.int("fields", 1, 4)
    settle = ms * s.ms("settle_share", 1.4, 2.5) / fields / 1e3 / (10 if s.fix else 1)
    cost = ms * s.ms("decode_share", 0.05, 0.2) / fields
    with open(s.path("stages"), "wb") as f:
        f.write(bytes(8 * stages))
    gpu, links = s.gpu(ms), []
    door = multiprocessing.connection.Listener(s.path("fields"), "AF_UNIX", backlog=8)

    def microscope(number):
        link, fd = multiprocessing.connection.Client(s.path("fields")), os.open(s.path("stages"), os.O_RDWR)
        span = (8, 8 * number) if s.fix else ()
        while True:
            for _ in range(fields):
                fcntl.lockf(fd, fcntl.LOCK_EX, *span)
                os.pwrite(fd, struct.pack("<d", time.monotonic()), 8 * number)
                time.sleep(settle)
                fcntl.lockf(fd, fcntl.LOCK_UN, *span)
                decode(cost)
            link.send(np.zeros(40000, np.float32))
    for number in range(stages):
        child(microscope, number)
        links.append(door.accept())
    s.loop(gpu, lambda: multiprocessing.connection.wait(links)[0].recv())


def browsers(s):
    """Players' browsers, which send what they saw: masked, as RFC 6455 demands of clients."""
    size, port = int(s.told("size")), int(s.told("port"))
    frame = struct.pack("!BBQ4s", 0x82, 0xff, size, b"corn") + bytes(size)

    def play(_):
        link = socket.create_connection(("127.0.0.1", port))
        while True:
            link.sendall(frame)
    crowd(play, s.int("players", 2, 5))


def by_byte(data, mask):
    return bytes(byte ^ mask[i & 3] for i, byte in enumerate(data))


@job(outside=browsers, data=CPU + " lock_bound", threads=True, rest="sync_bound launch_bound")
def husking_bee(s):
    """A game's bots learn from replays that players' browsers send over web sockets; to blame is the server, whose
    library was installed without its C part: its threads unmask each frame in Python, byte by byte."""
    ms, each = s.ms("gpu_ms", 10, 40), took(lambda: by_byte(bytes(20000), b"corn")) / 20000
    s.tell("size", between(1000, ms * s.ms("unmask_share", 1.4, 2.6) / 1e3 / each, 8 << 20))
    gpu, out, door = s.gpu(ms), multiprocessing.Queue(maxsize=3), socket.create_server(("127.0.0.1", 0))

    def attend(link):
        stream = link.makefile("rb")
        while head := stream.read(14):
            _, _, size, mask = struct.unpack("!BBQ4s", head)
            body = stream.read(size)
            out.put(np.frombuffer(body if s.fix else by_byte(body, mask), np.uint8))

    def serve():
        while True:
            threading.Thread(target=attend, args=(door.accept()[0],), daemon=True).start()
    s.supplier(child(serve).pid)
    s.tell("port", door.getsockname()[1])
    s.loop(gpu, out.get)


class Grain(html.parser.HTMLParser):
    """Keeps the text of a page and drops its tags."""
    kept = ""

    def handle_data(self, data):
        self.kept += data


DOCUMENT = "".join('<div class="row r%d"><p>Rye, <b>wheat</b> &amp; <a href="/f/%d">oats</a></p></div>\n' % (n, n)
                   for n in range(20))


def strip(pages):
    for _ in range(pages):
        grain = Grain()
        grain.feed(DOCUMENT)
        grain.close()


@job(data=CPU, rest="sync_bound launch_bound")
def chaff_fan(s):
    """A page classifier and a small language model learn in turn from what a crawler just brought; to blame are
    the few processes that strip the pages by html.parser, which is Python, tag by tag."""
    ms, makers, each = s.ms("gpu_ms", 12, 45), s.int("makers", 1, 2), took(lambda: strip(5)) / 5
    models = itertools.cycle([s.gpu(ms), s.gpu(ms * s.ms("second_model", 0.5, 1))])
    pages = between(1, ms * s.ms("strip_share", 1.5, 2.7) * makers / 1e3 / each, 10**5)
    floor = np.frombuffer(multiprocessing.RawArray("f", 4 * 40000), np.float32).reshape(4, -1)
    bell, heads = multiprocessing.Condition(), multiprocessing.RawArray("q", 2)

    def winnow():
        while True:
            strip(max(pages // 12, 1) if s.fix else pages)
            with bell:
                bell.wait_for(lambda: heads[0] - heads[1] < len(floor))
                floor[heads[0] % len(floor)] = 1
                heads[0] += 1
                bell.notify_all()
    pids = [child(winnow).pid for _ in range(makers)]
    if makers == 1:
        s.supplier(pids[0])

    def obtain():
        with bell:
            bell.wait_for(lambda: heads[0] > heads[1])
            x = floor[heads[1] % len(floor)].copy()
            heads[1] += 1
            bell.notify_all()
        return x
    s.go()
    for model in models:
        model.enter_thread()
        s.step(model, obtain)


@job(data="slow_worker", rest="sync_bound launch_bound")
def old_oxcart(s):
    """A fleet of robots, each with a bridge and a named pipe, which the loop reads in turn; to blame is the bridge
    of the one robot whose old firmware still talks JSON, while the others' packed records are soon undone."""
    ms, robots = s.ms("gpu_ms", 8, 35), s.int("robots", 3, 4)
    new, old = ms * robots * s.ms("new_share", 0.08, 0.25), ms * robots * s.ms("old_share", 1.7, 2.8)
    behind, size, ways = s.int("behind", 0, robots - 1), s.int("kib", 100, 350) << 10, []
    gpu = s.gpu(ms)

    def bridge(number):
        with open(s.path("robot-%d" % number), "wb", buffering=0) as way:
            fcntl.fcntl(way, fcntl.F_SETPIPE_SZ, 1 << 20)  # a few batches ahead
            while True:
                if number == behind and not s.fix:
                    parse(old)
                else:
                    decode(new)
                way.write(bytes(size))
    for number in range(robots):
        os.mkfifo(s.path("robot-%d" % number))
        pid = child(bridge, number).pid
        if number == behind:
            s.supplier(pid)
        ways.append(open(s.path("robot-%d" % number), "rb"))
    turn = itertools.cycle(ways)
    s.loop(gpu, lambda: np.frombuffer(next(turn).read(size), np.uint8))


def wide_web(s):
    """Many sites; those that are gone let a crawler connect and never say a word."""
    late = float(s.told("late")) / 1e3

    async def site(reader, writer):
        if struct.unpack("<I", await reader.readexactly(4)) == (GONE,):
            await reader.read()  # until the crawler hangs up
        else:
            await asyncio.sleep(late)
            writer.write(bytes(SHEAF))
        writer.close()

    async def serve():
        server = await asyncio.start_server(site, "127.0.0.1", 0)
        s.tell("port", server.sockets[0].getsockname()[1])
        await server.serve_forever()
    asyncio.run(serve())


@job(outside=wide_web, data="slow_item network_bound", rest="sync_bound launch_bound")
def fallow_fields(s):
    """An asyncio crawler gathers a batch's pages, and most batches are soon there; to blame are the few with a
    link to a site that is gone, as these take all of the patience that the crawler's timeout has."""
    ms, links, every = s.ms("gpu_ms", 15, 40), s.int("links", 3, 6), s.int("dead_every", 4, 6)
    patience = ms * s.ms("patience_steps", 8, 13) / 1e3
    s.tell("late", ms * s.ms("late_share", 0.08, 0.2))
    gpu, out, port = s.gpu(ms), multiprocessing.Queue(maxsize=2), int(s.told("port"))

    async def fetch(number):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            writer.write(struct.pack("<I", number))
            return await asyncio.wait_for(reader.readexactly(SHEAF), patience)
        except asyncio.TimeoutError:
            return b""
        finally:
            writer.close()

    async def crawl():
        for n in itertools.count(1):
            numbers = [n * links + i for i in range(links)]
            if n % every == 0 and not s.fix:
                numbers[0] = GONE
            pages = await asyncio.gather(*map(fetch, numbers))
            out.put(np.frombuffer(b"".join(pages), np.uint8))
    s.supplier(child(lambda: asyncio.run(crawl())).pid)
    s.loop(gpu, out.get)


@job(data="main_thread_loading", rest="sync_bound launch_bound")
def hay_needle(s):
    """Camera traps drop pictures into one folder, and each step learns from the newest few; to blame is the loop,
    which to find these lists all pictures of the season and asks for the age of each."""
    ms, few, pause = s.ms("gpu_ms", 10, 40), s.int("few", 4, 16), s.ms("pause_ms", 30, 300) / 1e3
    yard, picture = s.path("yard"), os.urandom(PAGE)
    os.mkdir(yard)

    def newest():
        with os.scandir(yard) as entries:
            return [e.path for e in heapq.nlargest(few, entries, lambda e: e.stat().st_mtime_ns)]
    fill(yard, range(1500), picture)
    each = took(newest) / 1500
    many = s.keep("pictures", between(1500, ms * s.ms("list_share", 0.4, 1.3) / 1e3 / each, 20000))
    fill(yard, range(1500, many), picture)
    gpu, known = s.gpu(ms), newest()

    def camera_traps():
        for n in itertools.count(many):
            time.sleep(pause)
            fill(s.folder, [n], picture)
            os.rename(s.path("%07d.raw" % n), os.path.join(yard, "%07d.raw" % n))
    child(camera_traps)
    s.loop(gpu, lambda: np.stack([np.fromfile(path, np.uint8) for path in (known if s.fix else newest())]))


@job(data="ipc_bound", rest="sync_bound launch_bound")
def harvest_supper(s):
    """Raw frames of a camera are ready at once, and a message bus in between copies each to every subscriber's
    socket, the trainer's last; to blame is this bus, which has served some viewers before its turn comes."""
    size, viewers = s.int("mib", 8, 14) << 20, s.int("viewers", 3, 5)
    lens, inlet = socket.socketpair()
    seats, batch = [socket.socketpair() for _ in range(viewers + 1)], bytearray(size)

    def film():
        while True:
            lens.sendall(batch)

    def view(link):
        while link.recv_into(batch, 1 << 18):
            pass

    def bus():
        while True:
            inlet.recv_into(batch, size, socket.MSG_WAITALL)
            for seat, _ in seats:
                seat.sendall(batch)
    child(film)
    for _, link in seats[:-1]:
        child(view, link)
    s.supplier(child(bus).pid)

    def obtain():
        seats[-1][1].recv_into(batch, size, socket.MSG_WAITALL)
        return np.frombuffer(batch, np.uint8)
    ms = s.keep("gpu_ms", max(took(obtain) * 1e3 / s.ms("bus_share", 1.7, 2.8), 2))
    s.loop(s.gpu(ms), (lambda: np.frombuffer(batch, np.uint8)) if s.fix else obtain)


# ---- not for data


def rescore(frontier, worth):
    frontier[:] = [(rank * 0.9 + worth[host], host, link) for rank, host, link in frontier]
    heapq.heapify(frontier)


@job(data=CPU, host="host_bound", rest="sync_bound launch_bound")
def orchard_ladder(s):
    """A focused crawler has its pages in time; to blame is the loop, which after each step or few ranks all links
    of the frontier anew by what the model thinks of their sites, in Python, and takes out the best."""
    ms, every, chance = s.ms("gpu_ms", 10, 35), s.int("every", 1, 3), random.Random(1)
    gpu, batch, worth = s.gpu(ms), in_time(s, ms), [chance.random() for _ in range(97)]
    frontier = [(chance.random(), n % 97, "https://site/%d" % n) for n in range(3000)]
    each = took(lambda: rescore(frontier, worth)) / 3000
    many = between(3000, ms * every * s.ms("rank_share", 0.35, 1) / 1e3 / each, 300000)
    frontier += [(chance.random(), n % 97, "https://site/%d" % n) for n in range(3000, many)]
    rescore(frontier, worth)
    s.go()
    for n in itertools.count(1):
        s.step(gpu, batch)
        if n % every == 0 and not s.fix:
            with s.during("host"):
                worth[n % 97] = chance.random()
                rescore(frontier, worth)
                heapq.heapreplace(frontier, (1 + chance.random(), n % 97, "https://new/%d" % n))


@job(data=CPU, rest="transfer_bound")
def rolling_sheaves(s):
    """A radio telescope's waterfall: a receiver brings the next row in time, and it is put into a ring on the
    host; to blame is the upload of all the ring, not page-locked, for the sake of that row."""
    ms, most = s.ms("gpu_ms", 5, 14), 192
    gpu, batch, probe = s.gpu(ms, input_bytes=most << 20), in_time(s, ms), np.ones(64 << 18, np.float32)

    def lift():
        gpu.upload(probe.ctypes.data, probe.nbytes)
        gpu.sync(False)
    mib = s.keep("mib", between(16, 64 * ms * s.ms("upload_share", 0.6, 1.6) / 1e3 / took(lift), most))
    ring = np.ones((8 * mib, 32 << 10), np.float32)
    turn = itertools.cycle(range(len(ring)))

    def obtain():
        row = next(turn)
        ring[row] = batch()
        return ring[row] if s.fix else ring
    s.loop(gpu, obtain)


@job(data=CPU, ckpt="checkpoint_stall", rest="sync_bound launch_bound")
def seed_vault(s):
    """Self-play: a process has batches ready, and a folder keeps the episodes; to blame is the loop, which every
    few steps copies that folder by shutil.copytree(), so that each model can be traced to its data."""
    ms, every, yard = s.ms("gpu_ms", 8, 20), s.int("every", 1, 3), s.path("episodes")
    episode, vaults = os.urandom(1 << 20), itertools.cycle([s.path("vault-0"), s.path("vault-1")])

    def trace():
        vault = next(vaults)
        shutil.rmtree(vault, ignore_errors=True)
        shutil.copytree(yard, vault)
    os.mkdir(yard)
    fill(yard, range(8), episode)
    each = took(trace) / 8
    many = s.keep("episodes", between(8, ms * every * s.ms("copy_share", 0.45, 1.1) / 1e3 / each, 64))
    fill(yard, range(8, many), episode)
    gpu, batch = s.gpu(ms), in_time(s, ms)
    s.go()
    for n in itertools.count(1):
        s.step(gpu, batch)
        if n % every == 0 and not s.fix:
            with s.during("ckpt"):
                trace()


# ---- nothing is wrong


@job(data=CPU, rest="sync_bound launch_bound")
def gleaners_basket(s):
    """Nothing is to blame: sensors' readings trickle into SQLite, synced row by row, and the loop looks for new
    ones while its kernels run; it draws from those of old, and a reader never waits for the writer of a WAL."""
    ms, size, pause = s.ms("gpu_ms", 30, 90), s.int("kib", 4, 20) << 10, s.ms("pause_ms", 2, 60) / 1e3
    chance, store, last = random.Random(1), [np.zeros(size, np.uint8) for _ in range(256)], 0

    def basket():
        return sqlite3.connect(s.path("basket.db"), isolation_level=None)

    def glean():
        db = basket()
        for n in itertools.count(1):
            db.execute("INSERT INTO basket VALUES (?, ?)", (n, os.urandom(size)))
            time.sleep(pause)
    db = basket()
    db.execute("PRAGMA journal_mode=WAL")
    db.execute("CREATE TABLE basket (n INTEGER PRIMARY KEY, reading BLOB)")
    db.close()  # it must not be open across the fork
    gpu = s.gpu(ms)
    child(glean)
    db = basket()

    def draw():
        nonlocal last
        for last, reading in db.execute("SELECT n, reading FROM basket WHERE n > ? ORDER BY n LIMIT 8",
                                        (last,)).fetchall():
            store[last % len(store)] = np.frombuffer(reading, np.uint8)
        return np.stack(chance.sample(store, 16))
    x = draw()
    s.go()
    while True:
        s.mark()
        s.train(gpu, x, item=False)
        with s.during("data"):
            x = draw()
        gpu.loss_item()


def annotators(s):
    """People who look at a picture and click on what they want cut out."""
    think, port = s.ms("think_s", 0.25, 0.7), int(s.told("port"))
    s.told("go")

    def label(number):
        chance = random.Random(number)
        tool = xmlrpc.client.ServerProxy("http://127.0.0.1:%d" % port)
        while True:
            for click in range(chance.randint(2, 6)):
                time.sleep(chance.expovariate(1 / think))
                tool.mask(click, chance.random(), chance.random())
    crowd(label, s.int("people", 2, 3))


@job(outside=annotators, demand="no_demand", rest="sync_bound launch_bound host_bound")
def market_stall(s):
    """A labelling tool's server: the first click on a picture has it embedded, each click is answered with a mask;
    nobody is to blame that its device idles, for people take their time between two clicks."""
    gpu, picture = s.gpu(s.ms("gpu_ms", 10, 60)), np.zeros(200000, np.float32)
    server = xmlrpc.server.SimpleXMLRPCServer(("127.0.0.1", 0), logRequests=False)

    def mask(click, x, y):
        s.mark()
        if click == 0:
            gpu.upload(picture.ctypes.data, picture.nbytes)
            gpu.forward()
            gpu.backward()
        point = np.array([x, y], np.float32)
        gpu.upload(point.ctypes.data, point.nbytes)
        gpu.optimizer()
        gpu.loss_item()
        return xmlrpc.client.Binary(bytes(4096))
    server.register_function(mask)
    s.tell("port", server.server_address[1])
    s.go()
    while True:
        with s.during("demand"):
            select.select([server], [], [])
        server.handle_request()
