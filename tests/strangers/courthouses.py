# SPDX-License-Identifier: BSD-2-Clause
"""At court: jobs with two plausible culprits, of which the clocks acquit one."""
import collections
import encodings.aliases
import faulthandler
import heapq
import inspect
import itertools
import logging
import logging.handlers
import multiprocessing
import os
import pickle
import queue
import random
import select
import signal
import socket
import struct
import threading
import time
import zlib

import numpy as np

from stranger import CPU, child, decode, job, mortal, parse

MIB, HEADER = 1 << 20, 128


def took(f):
    """Seconds that f takes once it is warm."""
    f()
    begin = time.monotonic()
    f()
    return time.monotonic() - begin


def put(out, cost):
    while True:
        decode(cost)
        out.put(np.zeros(20000, np.float32))


def busy(s, ms):
    """A suspect that is innocent: a loader process with much to do that keeps up."""
    out = multiprocessing.Queue(maxsize=4)
    child(put, out, ms * s.ms("load_share", 0.4, 0.65))
    return out.get


def every_now_and_then(pause, f, *more):
    """A process that does something beside the training, with the lowest priority."""
    def run():
        os.nice(19)
        while True:
            time.sleep(pause)
            f(*more)
    return child(run)


# ---- the data is late


def registry(s):
    """A store far away, which answers a whole question at once, and knows nothing of 100-continue."""
    door = socket.create_server(("127.0.0.1", 0))
    s.tell("port", door.getsockname()[1])
    answer = bytes(80000)

    def serve(link):
        stream = link.makefile("rwb")
        while stream.read(HEADER) and stream.read(HEADER):
            stream.write(answer)
            stream.flush()
    while True:
        threading.Thread(target=serve, args=(door.accept()[0],), daemon=True).start()


def summon(out, port, patience, cost):
    """Sends a question's header, waits whether the store wants the rest, and sends it for all that."""
    link = socket.create_connection(("127.0.0.1", port))
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    header = b"POST /batch HTTP/1.1\r\nExpect: 100-continue\r\n".ljust(HEADER)
    for n in itertools.count():
        link.sendall(header)
        select.select([link], [], [], patience)
        link.sendall((b"keys of batch %d" % n).ljust(HEADER))
        x = np.frombuffer(link.recv(80000, socket.MSG_WAITALL), np.float32)
        decode(cost)
        out.put(x)


@job(outside=registry, data="network_bound", rest="sync_bound launch_bound")
def unanswered_summons(s):
    """A process asks a store for batches, while a warmer beside it hashes all that is cached; the warmer is innocent,
    to blame is `Expect: 100-continue`, as curl has it: the store never says that word, and it is waited for."""
    ms, share = s.ms("gpu_ms", 8, 35), s.ms("patience_share", 1.6, 3)
    gpu, out, pages = s.gpu(ms), multiprocessing.Queue(maxsize=3), bytes(4 * MIB)
    every_now_and_then(s.ms("pause", 0.02, 0.08), zlib.crc32, pages)
    patience = ms * share / 1e3 / (6 if s.fix else 1)
    s.supplier(child(summon, out, int(s.told("port")), patience, ms * s.ms("decode_share", 0.05, 0.2)).pid)
    s.loop(gpu, out.get)


@job(data="lock_bound ipc_bound", rest="sync_bound launch_bound")
def stolen_subpoena(s):
    """A thread makes each batch when it is asked, which is soon done, and is innocent; to blame is notify() on the one
    condition: it wakes an exporter that counts batches, as this waits longest, and the loop sleeps its time out."""
    ms, share, cost = s.ms("gpu_ms", 8, 35), s.ms("time_out_share", 1.6, 3), s.ms("make_share", 0.1, 0.25)
    gpu, changed, asked, shelf, seen = s.gpu(ms), threading.Condition(), threading.Semaphore(0), [], [0]

    def make():
        while True:
            asked.acquire()
            decode(ms * cost)
            with changed:
                shelf.append(np.zeros(20000, np.float32))
                if s.fix:
                    changed.notify_all()
                else:
                    changed.notify()

    def export():
        with changed:
            while changed.wait():
                seen[0] += len(shelf)

    def obtain():
        asked.release()
        with changed:
            while not shelf:
                changed.wait(ms * share / 1e3)
            return shelf.pop()
    for f in (export, make):
        threading.Thread(target=f, daemon=True).start()
    s.loop(gpu, obtain)


def pooled(table, chance, bags, many):
    """Embeddings of a few bags of words, each bag summed up."""
    return np.stack([table[chance.integers(0, len(table), many)].sum(0) for _ in range(bags)])


def witness(link, credit, table, bags, many, confer):
    """Has a batch pooled; confers after it is on its way."""
    chance = np.random.default_rng(1)
    while True:
        credit.acquire()
        link.send(pooled(table, chance, bags, many))
        if confer:
            confer.send_bytes(b"a warning")
            confer.recv_bytes()


def slow_counsel(link, seconds):
    while True:
        word = link.recv_bytes()
        time.sleep(seconds)
        link.send_bytes(word)


@job(data="slow_worker", rest="sync_bound launch_bound")
def sidelong_witness(s):
    """Three workers by turns pool rows of a table; one waits most of the time for a log collector, but after its batch
    is sent, and is innocent; to blame is another one, whose copy of the table lies column by column in memory."""
    ms, bags, share = s.ms("gpu_ms", 8, 30), s.int("bags", 20, 60), s.ms("pool_share", 1.6, 2.6)
    gpu, rows, ends = s.gpu(ms), np.ones((65536, 256), np.float32), []
    columns, (mine, theirs) = np.asfortranarray(rows), multiprocessing.Pipe()
    each = took(lambda: pooled(columns, np.random.default_rng(2), bags, 400)) / 400
    many = s.keep("words", max(int(3 * ms * share / 1e3 / each), 2))
    child(slow_counsel, theirs, 3 * ms * s.ms("confer_share", 0.4, 0.7) / 1e3)
    talker = s.int("talker", 0, 1)
    for n in range(3):
        receive, send = multiprocessing.Pipe(duplex=False)
        credit, table = multiprocessing.Semaphore(2), columns if n == 2 and not s.fix else rows
        pid = child(witness, send, credit, table, bags, many, mine if n == talker else None).pid
        ends.append((receive, credit))
    s.supplier(pid)
    turn = itertools.cycle(ends)

    def obtain():
        receive, credit = next(turn)
        x = receive.recv()
        credit.release()
        return x
    s.loop(gpu, obtain)


def file_of(size):
    return zlib.compress(random.Random(size).randbytes(size), 1)


def court_of_records(s):
    """A store that is far away, but not so far that one question at a time would be too slow."""
    late, door = float(s.told("late")) / 1e3, socket.create_server(("127.0.0.1", 0))
    s.tell("port", door.getsockname()[1])
    link, answer = door.accept()[0], file_of(int(s.told("size")))
    while link.recv(1):
        time.sleep(late)
        link.sendall(answer)


def inflated(packed, piece):
    """In pieces, so as not to trust what a header says; each copies all that is still packed."""
    inflate, out, rest = zlib.decompressobj(), [], packed
    while not inflate.eof:
        out.append(inflate.decompress(rest, piece))
        rest = inflate.unconsumed_tail
    return b"".join(out)


def appeal(out, port, length, piece):
    """A thread fetches ahead; the process's own thread unpacks."""
    link, packed = socket.create_connection(("127.0.0.1", port)), queue.Queue(3)

    def fetch():
        while True:
            link.sendall(b"?")
            packed.put(link.recv(length, socket.MSG_WAITALL))
    threading.Thread(target=fetch, daemon=True).start()
    while True:
        x = inflated(packed.get(), piece)
        out.put(np.frombuffer(x, np.uint8, 40000))


@job(outside=court_of_records, data=CPU, rest="sync_bound launch_bound")
def long_appeal(s):
    """A process waits for a far store in one thread, ahead of time, so that the store is innocent; to blame is how the
    answer is inflated, a small piece after the other, as each call copies zlib's unconsumed tail, over and over."""
    ms, share, piece = s.ms("gpu_ms", 8, 30), s.ms("inflate_share", 1.5, 2.6), s.int("piece", 400, 900)
    gpu, first, sample = s.gpu(ms), 400000, file_of(400000)
    cost = took(lambda: inflated(sample, piece))  # by the square of the size
    size = s.keep("size", max(int(first * (ms * share / 1e3 / cost) ** 0.5), 50000))
    length, out = len(file_of(size)), multiprocessing.Queue(maxsize=3)
    s.tell("size", size)
    s.tell("late", ms * s.ms("late_share", 0.3, 0.6))
    s.supplier(child(appeal, out, int(s.told("port")), length, size if s.fix else piece).pid)
    s.loop(gpu, out.get)


CODECS = sorted({name for name in encodings.aliases.aliases.values() if name.startswith(("cp", "iso8859", "mac"))})


def guessed(letter):
    """The text of a letter in an unknown encoding: that of all in which it has the most letters."""
    best = (0, "")
    for codec in CODECS:
        try:
            text = letter.decode(codec)
        except (UnicodeDecodeError, LookupError):
            continue
        best = max(best, (sum(c.isalpha() for c in text), text))
    return best[1]


def translate(link, numbers, every, letters, cost):
    """Most letters are in UTF-8."""
    for n in numbers:
        letter = letters[n % every == 0]
        decode(cost)
        try:
            text = letter.decode("utf-8")
        except UnicodeDecodeError:
            text = guessed(letter)
        link.send(np.resize(np.frombuffer(text.encode("utf-16"), np.uint8), 40000))


@job(data="slow_item", rest="sync_bound launch_bound")
def sworn_translations(s):
    """Two workers by turns read letters, and a scheduler's job takes a core now and then; it is innocent, and to blame
    are the few letters that are not in UTF-8, for each of which a worker tries all codecs that Python has."""
    ms, every, cost = s.ms("gpu_ms", 8, 25), s.one("every", 7, 9, 11), s.ms("load_share", 0.1, 0.4)
    odd, gpu, ends = bytes(random.Random(1).choices(range(161, 255), k=2000)), s.gpu(ms), []
    many = ms * s.ms("guess_steps", 9, 14) / 1e3 / took(lambda: guessed(odd)) * len(odd)
    odd, plain = np.resize(np.frombuffer(odd, np.uint8), int(many) // (8 if s.fix else 1)).tobytes(), b"a letter" * 400
    every_now_and_then(s.ms("pause", 0.2, 0.5), decode, s.ms("report_ms", 20, 50))
    for n in range(2):
        mine, theirs = multiprocessing.Pipe(duplex=False)
        child(translate, theirs, itertools.count(n + 1, 2), every, (plain, odd), ms * cost)
        ends.append(mine)
    turn = itertools.cycle(ends)
    s.loop(gpu, lambda: next(turn).recv())


# ---- not for data


class Stenographer(logging.handlers.QueueListener):
    """A thread that takes the log down, and has each line on the disk before the next."""

    def handle(self, record):
        self.handlers[0].write(record.getMessage() + "\n")
        self.handlers[0].flush()
        os.fsync(self.handlers[0].fileno())


@job(data=CPU, host="host_bound", rest="sync_bound launch_bound")
def verbose_stenographer(s):
    """A thread writes the log and syncs each line of it, but nobody waits for it, and it is innocent; to blame is the
    loop, which asks inspect.stack() who has called, for each line: that looks up the source of all frames."""
    ms, share = s.ms("gpu_ms", 8, 30), s.ms("stack_share", 0.5, 1.6)
    log, lines = logging.getLogger("court"), queue.Queue()
    log.setLevel(logging.INFO)
    log.addHandler(logging.handlers.QueueHandler(lines))
    log.propagate = False

    def say(word, value):
        log.info("%s: %s %.4f", "trainer" if s.fix else inspect.stack()[1].function, word, value)
    each = took(lambda: [inspect.stack()[1].function for _ in range(10)]) / 10
    many = s.keep("lines", min(max(round(ms * share / 1e3 / each), 1), 60))
    gpu, batch = s.gpu(ms), busy(s, ms)
    with open(s.path("court.log"), "w", encoding="ascii") as out:
        Stenographer(lines, out).start()
        s.go()
        while True:
            s.step(gpu, batch)
            with s.during("host"):
                for n in range(many):
                    say("norm of layer %d is" % n, 1 / (n + 1))


def collective(n):
    """What a flight recorder keeps of one."""
    return {"seq": n, "op": "all_reduce", "sizes": [n, 64], "frames": ["step:%d" % i for i in range(n, n + 8)]}


@job(data=CPU, host="host_bound rank_straggler", peer="rank_straggler host_bound", rest="sync_bound launch_bound")
def missing_juror(s):
    """Two ranks meet after each step; the first one's loader works hard, but is ahead and innocent; to blame is the
    second one, in which a flight recorder was left on: it pickles its ring of past collectives before each."""
    ms, launches, share = s.ms("gpu_ms", 8, 30), s.int("launches", 10, 80), s.ms("dump_share", 0.5, 1.6)
    kept = [collective(n) for n in range(500)]
    size = s.keep("ring", int(500 * ms * share / 1e3 / took(lambda: pickle.dumps(kept))))
    ring, parent = collections.deque(map(collective, range(size)), maxlen=size), os.getpid()
    load = ms * s.ms("load_share", 0.4, 0.65)
    for rank, link in enumerate(multiprocessing.Pipe()):
        if os.fork():
            continue
        mortal(parent, signal.SIGTERM)
        s.rank(rank)
        gpu, out = s.gpu(ms, launches=launches), multiprocessing.Queue(maxsize=4)
        child(put, out, load if rank == 0 else load / 8)
        s.told("go")
        while True:
            s.step(gpu, out.get)
            if rank == 1 and not s.fix:
                with s.during("host"):
                    ring.append(collective(ring[-1]["seq"] + 1))
                    with open(s.path("flight"), "wb") as f:
                        f.write(pickle.dumps(list(ring)))
            with s.during("peer"):
                link.send_bytes(b"sum")
                link.recv_bytes()
    s.go()
    signal.pause()


@job(data=CPU, rest="transfer_bound")
def returned_exhibit(s):
    """A loader process pickles its batches through a queue and is always busy, but in time, and innocent; to blame is
    a table of relative positions that is no registered buffer: each step has it sent to the device from the host."""
    ms = s.ms("gpu_ms", 6, 12)
    table = np.zeros((s.keep("mib", int(ms * s.ms("copy_share", 0.5, 1.2) * 12) + 1), MIB), np.uint8)
    gpu, batch = s.gpu(ms, input_bytes=table.nbytes), busy(s, ms)
    s.go()
    while True:
        s.mark()
        with s.during("data"):
            x = batch()
        gpu.upload(x.ctypes.data, x.nbytes)
        if not s.fix:
            gpu.upload(table.ctypes.data, table.nbytes)
        gpu.forward()
        gpu.backward()
        gpu.optimizer()
        gpu.loss_item()


def docket(s):
    """A broker: those messages that the other consumer took and never confirmed come back after a time-out."""
    rate, hidden, burst = s.ms("rate", 1, 3), s.ms("hidden_ms", 250, 700) / 1e3, s.int("burst", 3, 8)
    door, due, coming = socket.socket(socket.AF_UNIX), [], time.monotonic()
    door.bind(s.path("broker"))
    door.listen()
    s.tell("open", "")
    link, n = door.accept()[0], 0
    while link.recv(1):
        while not due or due[0][0] > time.monotonic():
            if time.monotonic() >= coming:
                coming += s.random.expovariate(rate)
                for n in range(n + 1, n + 1 + burst):  # the other one was asking already
                    heapq.heappush(due, (time.monotonic() + (hidden if s.random.random() < 0.8 else 0), n))
            time.sleep(0.002)
        link.sendall(struct.pack("<I", heapq.heappop(due)[1]))


@job(outside=docket, demand="no_demand", host="host_bound", rest="sync_bound launch_bound")
def adjourned_hearing(s):
    """A service that takes requests from a broker and has a slow log, in a thread, which is innocent; to blame is a
    consumer that is gone: the broker has given it most requests, and offers them anew only after a time-out."""
    gpu, passes, cost = s.gpu(s.ms("gpu_ms", 5, 15)), s.int("passes", 1, 2), s.ms("tokenise_ms", 0.3, 2)
    lines, link = queue.SimpleQueue(), socket.socket(socket.AF_UNIX)

    def log():
        with open(s.path("served.log"), "wb") as out:
            while True:
                out.write(lines.get())
                out.flush()
                os.fsync(out.fileno())
    threading.Thread(target=log, daemon=True).start()
    s.told("open")
    link.connect(s.path("broker"))
    s.go()
    while True:
        with s.during("demand"):
            link.sendall(b"r")
            number, = struct.unpack("<I", link.recv(4, socket.MSG_WAITALL))
        with s.during("host"):
            parse(cost)
        for _ in range(passes):
            s.mark()
            s.train(gpu, np.zeros(4096, np.float32))
        lines.put(b"%d is answered\n" % number)


# ---- nothing is wrong


def sit(out, bell, cost, many):
    """Makes batches until the shelf is full, and then rests until the bell is rung."""
    while True:
        for _ in range(many):
            decode(cost)
            out.put(np.zeros(20000, np.float32))
        bell.acquire()


@job(data=CPU, rest="sync_bound launch_bound")
def recess_bell(s):
    """Nothing is to blame: a loader rests for long while its shelf gets empty, and then takes a core for itself, but
    the bell rings at a low mark, early enough; a warmer that reads the set all the time does no harm either."""
    ms, low, many = s.ms("gpu_ms", 12, 45), s.int("low_mark", 3, 5), s.int("sitting", 8, 20)
    gpu, out, bell, left = s.gpu(ms), multiprocessing.Queue(), multiprocessing.Semaphore(1), [0]
    child(sit, out, bell, ms * s.ms("load_share", 0.3, 0.6), many)
    every_now_and_then(s.ms("pause", 0.02, 0.08), zlib.crc32, bytes(8 * MIB))
    left[0] = 2 * many

    def obtain():
        left[0] -= 1
        if left[0] == low:
            bell.release()
            left[0] += many
        return out.get()
    s.loop(gpu, obtain)


def accused(link, path, cost):
    """A loader that tells where it stands whenever it is asked by a signal."""
    with open(path, "w", encoding="ascii") as out:
        faulthandler.register(signal.SIGUSR1, out, all_threads=True)
        link.send(None)
        while True:
            decode(cost)
            link.send(np.zeros(40000, np.float32))


def accuse(pid, pause):
    """Takes a process that sleeps for one that hangs, and has it print its stacks."""
    while True:
        time.sleep(pause)
        with open("/proc/%d/stat" % pid, encoding="ascii") as f:
            if f.read().rsplit(")", 1)[1].split()[0] == "S":
                os.kill(pid, signal.SIGUSR1)


@job(data=CPU, rest="sync_bound launch_bound")
def loud_accuser(s):
    """Nothing is to blame: a watchdog process finds the loader asleep in a full pipe nearly whenever it looks, says
    that it hangs, and sends it a signal, for which it prints its stacks; the next batch is ready all the same."""
    ms, (mine, theirs) = s.ms("gpu_ms", 12, 45), multiprocessing.Pipe(duplex=False)
    loader = child(accused, theirs, s.path("stacks"), ms * s.ms("load_share", 0.2, 0.55))
    gpu = s.gpu(ms)
    mine.recv()
    child(accuse, loader.pid, s.ms("pause", 0.004, 0.02))
    s.loop(gpu, mine.recv)


def stamped(out, cost, slow):
    """A loader whose container has the wrong time."""
    while True:
        decode(cost)
        out.put((time.time() - slow, np.zeros(20000, np.float32)))


def substitute(called, cost):
    """Makes the batch again, for nobody."""
    os.nice(19)
    while True:
        called.acquire()
        decode(cost)


@job(data=CPU, rest="sync_bound launch_bound")
def courthouse_clock(s):
    """Nothing is to blame: each batch seems to be late, is logged as late, and has a niced substitute make it once
    more; but it is only the clock that is slow, by which the loader stamps its batches, and they come in time."""
    ms, share, slow = s.ms("gpu_ms", 12, 45), s.ms("load_share", 0.25, 0.55), s.ms("slow_ms", 200, 900) / 1e3
    gpu, out, called = s.gpu(ms), multiprocessing.Queue(maxsize=3), multiprocessing.Semaphore(0)
    child(stamped, out, ms * share, slow)
    child(substitute, called, ms * share)
    ear, mouth = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)

    def log():
        with open(s.path("late.log"), "wb") as f:
            while True:
                f.write(ear.recv(200))
    child(log)

    def obtain():
        stamp, x = out.get()
        if time.time() - stamp > slow / 2:
            mouth.send(b"a batch was late by %.3f s\n" % (time.time() - stamp))
            called.release()
        return x
    s.loop(gpu, obtain)


## Theme
# unanswered_summons    network_bound; the wait is a timed select() in the loader, which ends by its time-out, not by
#                       the store's word, and the warmer beside it is busier than the loader itself.
# stolen_subpoena       lock_bound (or ipc_bound): all threads sleep on futexes; the maker is done early, so that the
#                       wait must not be charged to it, and who took the wake-up is seen only by who woke up.
# sidelong_witness      slow_worker, the third; another one sleeps more than it, but after its batch is sent.
# long_appeal           cpu_bound or one of its kind; the loader's fetching thread waits for the network nearly always,
#                       and only the hand-over between its two threads tells that packed answers lie ready.
# sworn_translations    slow_item; both workers meet such letters, and the scheduler's bursts are as rare as they are.
# verbose_stenographer  host_bound; a thread of the trainer is in fsync() most of the time and its queue grows, so
#                       that checkpoint_stall looks likely; the loop itself only stats and reads source files at times.
# missing_juror         rank_straggler (or host_bound): the first rank has the busy loader, the second one is late.
# returned_exhibit      transfer_bound; the loader is at work for half of the time and its queue is never empty.
# adjourned_hearing     no_demand; a thread syncs a log, and requests come in clumps, by the broker's time-out.
# recess_bell           balanced; the shelf gets nearly empty again and again, and the loader rests for many steps.
# loud_accuser          balanced; signals interrupt the loader's write() many times a second.
# courthouse_clock      balanced; a second process computes as much as the loader, for nobody.
