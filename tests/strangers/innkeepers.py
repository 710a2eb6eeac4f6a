# SPDX-License-Identifier: BSD-2-Clause
"""At the inn: models that serve, with customers outside of the job, doors, waiters, kitchens and what lies between."""
import collections
import fcntl
import itertools
import mmap
import multiprocessing
import multiprocessing.connection
import os
import queue
import random
import select
import selectors
import signal
import socket
import struct
import threading
import time

import numpy as np

from stranger import CPU, child, decode, job, mortal, parse

PAGE, MIB, H2D = 4096, 1 << 20, 1
ASK, ANSWER, CHUNK = 512, 64, 32 << 10


def took(f):
    """Seconds that f takes once it is warm."""
    f()
    begin = time.monotonic()
    f()
    return time.monotonic() - begin


# ---- customers


def talk(s, link, chance=None, pause=0.0):
    """Asks, reads the answer, and asks again, at once or after a pause."""
    s.told("go")
    while True:
        if pause:
            time.sleep(chance.expovariate(1 / pause))
        link.sendall(b"POST /v1/answer HTTP/1.1\r\nContent-Length: 464\r\n\r\n".ljust(ASK))
        if not link.recv(ANSWER, socket.MSG_WAITALL):
            return


def crowd(many, f):
    """Threads that call f, each with its number."""
    for n in range(many):
        threading.Thread(target=f, args=(n,), daemon=True).start()
    while True:
        signal.pause()


def regulars(s):
    """Customers with a connection each, who ask again as soon as they are answered."""
    def regular(_):
        with socket.socket(socket.AF_UNIX) as link:
            link.connect(s.path("door"))
            talk(s, link)
    crowd(int(s.told("customers")), regular)


def callers(s):
    """Customers who ask over TCP, now and then."""
    many, pause, port = s.told("callers").split()

    def caller(n):
        with socket.create_connection(("127.0.0.1", int(port))) as link:
            talk(s, link, random.Random(n), float(pause) / 1e3)
    crowd(int(many), caller)


def opened(s, many):
    """A door for so many regulars."""
    door = socket.socket(socket.AF_UNIX)
    door.bind(s.path("door"))
    door.listen(many)
    s.tell("customers", many)
    return door


# ---- ways from the door to the loop


def front(door, put, back, check):
    """A process that reads what customers ask, checks it, passes it on, and sends them the answers."""
    desk, links = selectors.DefaultSelector(), {}
    desk.register(door, selectors.EVENT_READ)
    desk.register(back, selectors.EVENT_READ)
    while True:
        for key, _ in desk.select():
            if key.fileobj is door:
                try:
                    link = door.accept()[0]
                except BlockingIOError:
                    continue  # another process was quicker
                links[link.fileno()] = link
                desk.register(link, selectors.EVENT_READ)
            elif key.fileobj is back:
                for fd in back.recv():
                    links[fd].sendall(bytes(ANSWER))
            elif ask := key.fileobj.recv(ASK, socket.MSG_WAITALL):
                put((key.fd, check(ask)))
            else:
                desk.unregister(key.fileobj)


def fronted(door, check):
    """Starts one. Returns its pid, what takes the next request from it, and what gives it answers."""
    (mine, theirs), (back, answer) = multiprocessing.Pipe(duplex=False), multiprocessing.Pipe(duplex=False)
    return child(front, door, theirs.send, back, check).pid, mine.recv, answer.send


def hall(door, many):
    """A thread of the server for each customer. Returns the queue of what they ask."""
    asked = queue.Queue()

    def wait_on():
        link, answer = door.accept()[0], queue.SimpleQueue()
        while ask := link.recv(ASK, socket.MSG_WAITALL):
            asked.put((answer, ask))
            link.sendall(answer.get())
    for _ in range(many):
        threading.Thread(target=wait_on, daemon=True).start()
    return asked


def gathered(slips, most, patience):
    """A batch: what is asked within a window that opens with the first request."""
    batch, end = [slips.get()], time.monotonic() + patience
    while len(batch) < most:
        try:
            batch.append(slips.get(timeout=max(end - time.monotonic(), 0)))
        except queue.Empty:
            break
    return batch


def receptions(door, check):
    """Two front processes at one door. Returns the queue of what is asked, and what gives out a batch's answers."""
    slips, answers = multiprocessing.Queue(), []
    door.setblocking(False)
    for n in range(2):
        back, answer = multiprocessing.Pipe(duplex=False)
        child(front, door, lambda slip, n=n: slips.put((n, *slip)), back, check)
        answers.append(answer.send)

    def give(batch):
        for n, answer in enumerate(answers):
            fds = [fd for front_n, fd, _ in batch if front_n == n]
            if fds:
                answer(fds)
    return slips, give


def serve(s, gpu, take, answer):
    """The loop of a server that has always somebody to serve: what it waits for is what a request needs."""
    s.go()
    while True:
        with s.during("data"):
            customer, x = take()
        s.mark()
        s.train(gpu, np.frombuffer(x, np.uint8))
        answer([customer])


# ---- nobody asks


@job(outside=callers, demand="no_demand", rest="sync_bound launch_bound")
def overflow_inn(s):
    """A replica for hedged requests behind two front processes: a balancer asks it only for what the first replica
    has not answered in time; nobody is to blame that this is little."""
    ms, many, patience = s.ms("gpu_ms", 10, 35), s.int("callers", 4, 8), s.ms("window_ms", 0.5, 1.5) / 1e3
    pause = many * ms / s.ms("asked_share", 0.3, 0.7)
    gpu, door, cost = s.gpu(ms), socket.create_server(("127.0.0.1", 0)), ms * 0.03

    def check(ask):
        parse(cost)
        return ask
    slips, give = receptions(door, check)
    s.tell("callers", "%d %f %d" % (many, pause / 15 if s.fix else pause, door.getsockname()[1]))
    s.go()
    while True:
        with s.during("demand"):
            batch = gathered(slips, 8, patience)
        s.mark()
        s.train(gpu, np.frombuffer(b"".join(ask for _, _, ask in batch), np.uint8))
        give(batch)


def speakers(s):
    """Callers on the phone: of each one's voice there is a packet every 20 ms."""
    calls, tick, port = s.told("speakers").split()
    line = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    line.connect(("127.0.0.1", int(port)))
    s.told("go")
    due = time.monotonic()
    for n in itertools.count():
        for call in range(int(calls)):
            line.send(struct.pack("<HI", call, n) + bytes(314))
        due += float(tick) / 1e3
        time.sleep(max(due - time.monotonic(), 0))


def exchange(line, calls, packets, out):
    """Puts the packets of all calls in order, and hands on a stretch of time when it is whole."""
    heard = collections.defaultdict(dict)
    while True:
        packet, caller = line.recvfrom(2048)
        call, n = struct.unpack_from("<HI", packet)
        stretch = heard[n // packets]
        stretch[call, n] = packet[6:]
        if len(stretch) == calls * packets:
            out.send((caller, b"".join(stretch[place] for place in sorted(stretch))))
            for old in [number for number in heard if number <= n // packets]:
                del heard[old]  # with those of which something was lost


@job(outside=speakers, demand="no_demand", rest="sync_bound launch_bound")
def night_switchboard(s):
    """Calls are transcribed while people talk: a process puts their UDP packets in order, and the loop takes a
    stretch of all calls at a time; nobody is to blame that people do not talk any faster."""
    calls, packets = s.int("calls", 2, 6), s.int("packets", 3, 5)
    ms = 20 * packets * s.ms("gpu_share", 0.3, 0.6)
    line = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    line.bind(("127.0.0.1", 0))
    (mine, theirs), gpu = multiprocessing.Pipe(duplex=False), s.gpu(ms)
    child(exchange, line, calls, packets, theirs)
    # fixed: these are recordings, which are played as fast as they can be transcribed
    s.tell("speakers", "%d %f %d" % (calls, 1.08 * ms / packets if s.fix else 20, line.getsockname()[1]))
    s.go()
    while True:
        with s.during("demand"):
            caller, heard = mine.recv()
        s.mark()
        s.train(gpu, np.frombuffer(heard, np.int16))
        line.sendto(b"what was said", caller)


# ---- everybody asks, but what a request needs is late


def policed(s):
    """A vendor's guard, which is far away, and customers enough."""
    late, parent = float(s.told("late")) / 1e3, os.getpid()
    if os.fork() == 0:
        mortal(parent)
        door, chance = socket.create_server(("127.0.0.1", 0)), random.Random(1)
        s.tell("guard", door.getsockname()[1])
        link = door.accept()[0]
        while link.recv(ASK, socket.MSG_WAITALL):
            time.sleep(late * chance.lognormvariate(0, 0.2))
            link.sendall(b"y")
        os._exit(0)
    regulars(s)


@job(outside=policed, data="network_bound too_few_workers", rest="sync_bound launch_bound")
def door_policy(s):
    """A chat model with customers enough, behind a front process; to blame is the guard, a vendor's service that is
    far away, which the front asks about each prompt, one at a time, before the loop may have it."""
    ms = s.ms("gpu_ms", 10, 40)
    late = ms * s.ms("late_share", 1.5, 2.7)
    s.tell("late", late / 15 if s.fix else late)
    gpu, door = s.gpu(ms), opened(s, s.int("customers", 6, 12))
    guard = socket.create_connection(("127.0.0.1", int(s.told("guard"))))

    def check(prompt):
        guard.sendall(prompt)
        guard.recv(1)
        return prompt
    pid, take, answer = fronted(door, check)
    s.supplier(pid)
    serve(s, gpu, take, answer)


def valet(links, rooms, out, path, warm):
    """Reads what a guest asks, and brings the blocks of the guest's state from the disk to the guest's room."""
    chance, count, desk = random.Random(1), os.path.getsize(path) // PAGE, select.poll()
    numbers = {link.fileno(): n for n, link in enumerate(links)}
    for fd in numbers:
        desk.register(fd, select.POLLIN)
    luggage = os.open(path, os.O_RDONLY)
    os.posix_fadvise(luggage, 0, 0, os.POSIX_FADV_RANDOM)
    while warm and os.read(luggage, MIB):
        pass
    while True:
        for fd, _ in desk.poll():
            n = numbers[fd]
            if not links[n].recv(ASK, socket.MSG_WAITALL):
                desk.unregister(fd)
                continue
            for block in rooms[n]:
                os.preadv(luggage, [block], PAGE * chance.randrange(count))
            if not warm:
                os.posix_fadvise(luggage, 0, 0, os.POSIX_FADV_DONTNEED)
            out.send(n)


@job(outside=regulars, data="io_bound", rest="sync_bound launch_bound")
def returning_guests(s):
    """Talks go on after a while, and a process brings the keys and values of who asks next from an SSD into shared
    memory, while the loop answers; to blame is the disk, where a talk's small blocks lie all over the file."""
    ms, share, many = s.ms("gpu_ms", 8, 25), s.ms("read_share", 1.6, 3), s.int("guests", 3, 6)
    path, chance = s.data_file("luggage", 64), random.Random(2)
    with open(path, "rb", buffering=0) as f:
        os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_RANDOM)
        begin = time.monotonic()
        for _ in range(400):
            os.pread(f.fileno(), PAGE, PAGE * chance.randrange(64 * MIB // PAGE))
        each = (time.monotonic() - begin) * 1e3 / 400
    blocks = s.keep("blocks", min(max(int(ms * share / each), 16), 3000))
    s.cold(path)
    rooms = np.frombuffer(mmap.mmap(-1, many * blocks * PAGE), np.uint8).reshape(many, blocks, PAGE)
    gpu, door, (mine, theirs) = s.gpu(ms), opened(s, many), multiprocessing.Pipe(duplex=False)
    links = [door.accept()[0] for _ in range(many)]
    s.supplier(child(valet, links, rooms, theirs, path, s.fix).pid)

    def take():
        n = mine.recv()
        return n, rooms[n]
    serve(s, gpu, take, lambda served: links[served[0]].sendall(bytes(ANSWER)))


def passers_by(s):
    """Customers who come anew with each request."""
    def passer_by(_):
        while True:
            with socket.socket(socket.AF_UNIX) as link:
                link.connect(s.path("door"))
                link.sendall(bytes(ASK))
                link.recv(ANSWER, socket.MSG_WAITALL)
    crowd(int(s.told("customers")), passer_by)


def doorman(door, bell, cost, apart, loop):
    """Serves one customer after the other: accepts, reads, unpacks, hands on to the loop, answers."""
    while True:
        with bell:
            link = door.accept()[0]
            ask = link.recv(ASK, socket.MSG_WAITALL)
            if not apart:
                decode(cost)
        if apart:
            decode(cost)
        loop.send(ask)
        loop.recv()
        with link:
            link.sendall(bytes(ANSWER))


@job(outside=passers_by, data="lock_bound", rest="sync_bound launch_bound")
def shared_doorbell(s):
    """Three pre-forked processes take a picture each from customers, who queue at the door; to blame is the lock for
    accept(), against thundering herds, which each of them keeps until it has unpacked the picture, too."""
    ms = s.ms("gpu_ms", 10, 40)
    cost, bell, ends = ms * s.ms("unpack_share", 1.5, 2.4), multiprocessing.Lock(), []
    gpu, door = s.gpu(ms), opened(s, s.int("customers", 8, 14))
    for _ in range(3):
        mine, theirs = multiprocessing.Pipe()
        child(doorman, door, bell, cost / 3 if s.fix else cost, s.fix, theirs)
        ends.append(mine)

    def take():
        end = multiprocessing.connection.wait(ends)[0]
        return end, end.recv()
    serve(s, gpu, take, lambda served: served[0].send(True))


def handed_over(clip):
    """A clip goes through a pipe, from thread to thread."""
    mine, theirs = multiprocessing.Pipe(duplex=False)
    sender = threading.Thread(target=theirs.send, args=(clip,))
    sender.start()
    mine.recv()
    sender.join()


@job(outside=regulars, data="ipc_bound", rest="sync_bound launch_bound")
def dumb_waiter(s):
    """Questions about well-known videos, whose frames a front process has in memory, unpacked and scaled; to blame
    is the way to the loop: with each question the frames are pickled and go through a pipe, as doubles."""
    ms, share = s.ms("gpu_ms", 8, 25), s.ms("hand_over_share", 0.9, 2)
    floats = int(2 * MIB * ms * share / 1e3 / took(lambda: handed_over(np.zeros(2 * MIB))))
    floats = min(max(floats, MIB // 8), 6 * MIB)
    clip = np.ones(s.keep("floats", floats // 12 if s.fix else floats))
    gpu = s.gpu(ms)
    _, take, answer = fronted(opened(s, s.int("customers", 4, 9)), lambda ask: clip)
    serve(s, gpu, take, answer)


def retell(take, put, cost, turns):
    """Renders a talk, all that was said in it, by the model's template, and tokenises the whole."""
    for n in itertools.count():
        customer, _ = take()
        decode(cost * (0.75 + 0.5 * (n % turns) / turns))
        put((customer, np.zeros(4000, np.int64)))


@job(outside=regulars, data=CPU, rest="sync_bound launch_bound")
def long_memories(s):
    """Assistants that talk all day: a front process has requests enough and hands them to another that tokenises; to
    blame is this one, which begins at the first word again for each turn of a talk that gets longer."""
    ms, turns = s.ms("gpu_ms", 10, 40), s.int("turns", 5, 20)
    cost = ms * (0.12 if s.fix else s.ms("tokenise_share", 1.6, 2.6))
    gpu, door = s.gpu(ms), opened(s, s.int("customers", 6, 12))
    _, asked, answer = fronted(door, lambda ask: ask)
    mine, theirs = multiprocessing.Pipe(duplex=False)
    s.supplier(child(retell, asked, theirs.send, cost, turns).pid)
    serve(s, gpu, mine.recv, answer)


# ---- requests are there, and the loop is held up


def listeners(s):
    """Players of streams without an end; the first of them has a narrow line."""
    many, pause = s.told("players").split()

    def player(n):
        with socket.socket(socket.AF_UNIX) as link:
            link.connect(s.path("door"))
            link.sendall(bytes(ASK))
            while link.recv(CHUNK, socket.MSG_WAITALL):
                if n == 0:
                    time.sleep(float(pause) / 1e3)
    crowd(int(many), player)


@job(outside=listeners, host="host_bound", rest="sync_bound launch_bound")
def lingering_diner(s):
    """Speech for a few endless streams at once, a piece for each of them in a step; to blame is how the loop sends
    the pieces, by a sendall() that blocks, so that all wait for the one listener with a narrow line."""
    ms, many = s.ms("gpu_ms", 8, 35), s.int("players", 3, 6)
    gpu, door, pieces = s.gpu(ms), opened(s, many), bytes(CHUNK)
    s.tell("players", "%d %f" % (many, 0 if s.fix else ms * s.ms("line_share", 1.6, 2.8)))
    links = [door.accept()[0] for _ in range(many)]
    for link in links:
        link.recv(ASK, socket.MSG_WAITALL)  # what it wants to hear
        link.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, CHUNK // 2)  # so that nobody hears old news
    words = np.zeros(8192, np.int64)
    s.go()
    while True:
        s.mark()
        s.train(gpu, words)
        with s.during("host"):
            for link in links:
                link.sendall(pieces)


@job(outside=regulars, demand="no_demand", rest="transfer_bound")
def changing_cooks(s):
    """A server with two models, of which the device has room for one, and requests enough in its threads' queue; to
    blame is that they are served as they come: for each one the other model is copied to the device again."""
    ms, many = s.ms("gpu_ms", 6.5, 7.5), s.int("customers", 4, 8)
    mib = int(12 * ms * s.ms("swap_share", 0.55, 0.95)) + 1
    gpu, models = s.gpu(ms, input_bytes=mib << 20), [np.full(mib << 18, n, np.float32) for n in range(2)]
    asked = hall(opened(s, many), many)
    s.go()
    for n in itertools.count():
        with s.during("demand"):
            answer, ask = asked.get()
        s.mark()
        if not s.fix:  # else there is room for both
            weights = models[n % 2]
            gpu.check(gpu.lib.cudaMemcpy(gpu.input, weights.ctypes.data, weights.nbytes, H2D))
        s.train(gpu, np.frombuffer(ask, np.uint8))
        answer.put(bytes(ANSWER))


def backfill(s):
    """Scores old rows at night by the server's code, thus with the same lease; and customers enough."""
    hold, pause = (float(word) / 1e3 for word in s.told("hold").split())
    parent = os.getpid()
    if os.fork() == 0:
        mortal(parent)
        s.told("go")
        with open(s.path("lease"), "wb") as lease:
            while True:
                fcntl.flock(lease, fcntl.LOCK_EX)
                time.sleep(hold)  # the warehouse sends the next rows
                fcntl.flock(lease, fcntl.LOCK_UN)
                time.sleep(pause)
    regulars(s)


@job(outside=backfill, demand="no_demand", lock="lock_bound host_bound", host="host_bound",
     rest="sync_bound launch_bound")
def pantry_key(s):
    """A server and a nightly back-fill share a device by a lock on a file; to blame is this lock, which the back-fill
    takes before it asks for its rows, so that the server waits for it with requests in its hands."""
    ms, many = s.ms("gpu_ms", 10, 35), s.int("customers", 6, 12)
    hold = ms * (0.03 if s.fix else s.ms("hold_share", 0.7, 2))
    s.tell("hold", "%f %f" % (hold, ms * 0.2))
    gpu, asked = s.gpu(ms), hall(opened(s, many), many)
    with open(s.path("lease"), "wb") as lease:
        s.go()
        while True:
            with s.during("demand"):
                batch = gathered(asked, 2, 1e-3)
            s.mark()
            with s.during("lock"):
                fcntl.flock(lease, fcntl.LOCK_EX)
            s.train(gpu, np.frombuffer(b"".join(ask for _, ask in batch), np.uint8))
            fcntl.flock(lease, fcntl.LOCK_UN)
            with s.during("host"):
                parse(ms * 0.04)  # the answers as JSON
                for answer, _ in batch:
                    answer.put(bytes(ANSWER))


# ---- nothing is wrong


@job(outside=regulars, demand="no_demand", rest="sync_bound launch_bound")
def full_house(s):
    """Nothing is to blame: two front processes tokenise for more customers than the device can serve, and a thread
    has put the next batch together, often in vain until its window ends, while this one is computed."""
    ms, most, patience = s.ms("gpu_ms", 25, 80), s.int("batch", 2, 6), s.ms("window_ms", 2, 15) / 1e3
    cost, ready = ms * s.ms("tokenise_share", 0.15, 0.45) / most, queue.Queue(1)
    gpu, door = s.gpu(ms), opened(s, 4 * most)

    def check(ask):
        decode(cost)
        return ask
    slips, give = receptions(door, check)

    def gather():
        while True:
            ready.put(gathered(slips, most, patience))
    threading.Thread(target=gather, daemon=True).start()
    s.go()
    while True:
        with s.during("demand"):
            batch = ready.get()
        s.mark()
        s.train(gpu, np.frombuffer(b"".join(ask for _, _, ask in batch), np.uint8))
        give(batch)


def shelve(rows, cost):
    while True:
        decode(cost)
        rows.put(np.zeros(20000, np.float32))


@job(outside=callers, data=CPU, rest="sync_bound launch_bound")
def odd_jobs(s):
    """Nothing is to blame: few customers ask, and each of them is served next, but whenever nobody waits the loop
    takes a batch of a back-fill instead, of which a process has enough ready."""
    ms, many = s.ms("gpu_ms", 18, 70), s.int("callers", 2, 5)
    pause, cost = many * ms / s.ms("asked_share", 0.1, 0.4), ms * s.ms("load_share", 0.15, 0.45)
    gpu, rows, door = s.gpu(ms), multiprocessing.Queue(maxsize=4), socket.create_server(("127.0.0.1", 0))
    child(shelve, rows, cost)
    asked = hall(door, many)
    s.tell("callers", "%d %f %d" % (many, pause, door.getsockname()[1]))
    s.go()
    while True:
        try:
            answer, ask = asked.get_nowait()
            x = np.frombuffer(ask, np.uint8)
        except queue.Empty:
            answer = None
            with s.during("data"):
                x = rows.get()
        s.mark()
        s.train(gpu, x)
        if answer is not None:
            answer.put(bytes(ANSWER))
