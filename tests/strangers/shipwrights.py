# SPDX-License-Identifier: BSD-2-Clause
"""At the shipwrights': several ranks and several processes build one model, around more than one device."""
import fcntl
import itertools
import multiprocessing
import multiprocessing.connection
import os
import queue
import signal
import socket
import threading
import time

import numpy as np

from stranger import CPU, child, decode, job, mortal, parse

D2H, ASKED, SHARD, GRADIENT = 2, 64, 40000, bytes(16384)


# ---- ranks, and how they meet


def launched(s, ranks, train):
    """As torchrun: forks the ranks, has all of them ready, and then only waits for them."""
    parent = os.getpid()
    for rank in range(ranks):
        if os.fork() == 0:
            mortal(parent, signal.SIGTERM)  # it has a log to write
            s.rank(rank)
            train(rank)
            os._exit(1)
    for rank in range(ranks):
        s.told("up-%d" % rank)
    s.go()
    while True:
        signal.pause()


def begin(s):
    """A rank is set up."""
    s.tell("up-%d" % s.number, "")
    s.told("go")


def star(ranks):
    """All-reduce by way of the first rank, over pipes."""
    pairs = [multiprocessing.Pipe() for _ in range(1, ranks)]

    def meet(rank):
        if rank:
            pairs[rank - 1][1].send_bytes(GRADIENT)
            pairs[rank - 1][1].recv_bytes()
            return
        for mine, _ in pairs:
            mine.recv_bytes()
        for mine, _ in pairs:
            mine.send_bytes(GRADIENT)
    return meet


def board(ranks, size=8192):
    """All-reduce in shared memory, between two barriers."""
    rows = np.frombuffer(multiprocessing.RawArray("f", ranks * size), np.float32).reshape(ranks, size)
    gate = multiprocessing.Barrier(ranks)

    def meet(rank):
        rows[rank] = rank
        gate.wait()
        rows.sum(0)
        gate.wait()
    return meet


def cabled(door, rank):
    """Two ranks swap gradients over TCP."""
    link = socket.create_connection(door.getsockname()) if rank else door.accept()[0]
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def meet():
        link.sendall(GRADIENT)
        link.recv(len(GRADIENT), socket.MSG_WAITALL)
    return meet


def put(out, cost, size=20000):
    while True:
        decode(cost)
        out.put(np.zeros(size, np.float32))


def queued(cost, size=20000):
    """A loader process of this rank, that keeps up."""
    out = multiprocessing.Queue(maxsize=4)
    child(put, out, cost, size)
    return out.get


# ---- the data is late


def hew(out, parts, mine, cost):
    """Makes the batch of all ranks, of which its own one takes a part."""
    while True:
        batch = []
        for _ in range(parts):
            decode(cost)
            batch.append(np.zeros(20000, np.float32))
        out.put(batch[mine])


@job(data=CPU, rest="sync_bound launch_bound")
def every_plank(s):
    """Two of a job's many ranks are on this node, with a worker each: to blame is a script without a distributed
    sampler, so that each worker decodes the batch of the whole job, and throws away what is for other ranks."""
    ms, launches, world = s.ms("gpu_ms", 10, 40), s.int("launches", 10, 80), s.one("world", 4, 6, 8)
    cost, meet = ms * s.ms("load_share", 1.4, 2.3) / world, star(2)

    def train(rank):
        gpu, out, parts = s.gpu(ms, launches=launches), multiprocessing.Queue(maxsize=3), 1 if s.fix else world
        child(hew, out, parts, rank % parts, cost)
        begin(s)
        while True:
            s.step(gpu, out.get)
            with s.during("peer"):
                meet(rank)
    launched(s, 2, train)


@job(data=CPU + " rank_straggler", peer="rank_straggler", rest="sync_bound launch_bound")
def mould_loft(s):
    """Pipeline parallel, with a few batches under way: the first stage's images and what it sends are early; to blame
    is the loader of the last stage, which draws the masks that the loss is taken against, for too long."""
    ms, launches, ahead = s.ms("gpu_ms", 10, 40), s.int("launches", 10, 80), s.int("ahead", 2, 3)
    images = ms * s.ms("image_share", 0.08, 0.25)
    masks = ms * s.ms("mask_share", 1.45, 2.5) / (5 if s.fix else 1)
    links = multiprocessing.Pipe()

    def first(gpu, link, batch):
        down = np.zeros(4096, np.float32)
        for n in itertools.count():
            s.mark()
            with s.during("data"):
                x = batch()
            gpu.upload(x.ctypes.data, x.nbytes)
            gpu.forward()
            gpu.check(gpu.lib.cudaMemcpy(down.ctypes.data, gpu.input, down.nbytes, D2H))
            with s.during("peer"):
                link.send_bytes(down.tobytes())
                back = np.frombuffer(link.recv_bytes() if n >= ahead else GRADIENT, np.uint8)
            gpu.upload(back.ctypes.data, back.nbytes)
            gpu.backward()
            gpu.optimizer()

    def last(gpu, link, batch):
        while True:
            s.mark()
            with s.during("peer"):
                felt = np.frombuffer(link.recv_bytes(), np.uint8)
            with s.during("data"):
                x = batch()
            gpu.upload(felt.ctypes.data, felt.nbytes)
            s.train(gpu, x)
            with s.during("peer"):
                link.send_bytes(GRADIENT)

    def train(stage):
        gpu, out = s.gpu(ms, launches=launches), multiprocessing.Queue(maxsize=3)
        pid = child(put, out, masks if stage else images).pid
        if stage:
            s.supplier(pid)
        begin(s)
        (last if stage else first)(gpu, links[stage], out.get)
    launched(s, 2, train)


def fell(link, cost):
    while True:
        decode(cost)
        link.send_bytes(bytes(SHARD))


def gauge(inlets, outlets, cost):
    """Takes messages as they come, opens each to see that it is whole, and deals them to the ranks by turns."""
    turn = itertools.cycle(outlets)
    while True:
        for inlet in multiprocessing.connection.wait(inlets):
            message = inlet.recv_bytes()
            decode(cost)
            next(turn).send_bytes(message)


@job(data=CPU, rest="sync_bound launch_bound")
def timber_gauger(s):
    """Two loaders, a broker, two ranks: the loaders mostly wait to be rid of their batches; to blame is the broker
    between, a single process that decompresses each message for its checksum before it passes it on."""
    ms, launches = s.ms("gpu_ms", 10, 40), s.int("launches", 10, 80)
    light, meet = ms * s.ms("load_share", 0.05, 0.2), star(2)
    cost = ms * s.ms("check_share", 1.4, 2.4) / 2 / (10 if s.fix else 1)
    ins, outs = [multiprocessing.Pipe() for _ in range(2)], [multiprocessing.Pipe() for _ in range(2)]
    for _, theirs in ins:
        child(fell, theirs, light)
    broker = child(gauge, [mine for mine, _ in ins], [theirs for _, theirs in outs], cost).pid

    def train(rank):
        gpu, link = s.gpu(ms, launches=launches), outs[rank][0]
        s.supplier(broker)
        begin(s)
        while True:
            s.step(gpu, lambda: np.frombuffer(link.recv_bytes(), np.uint8))
            with s.during("peer"):
                meet(rank)
    launched(s, 2, train)


@job(data="main_thread_loading rank_straggler", rest="sync_bound launch_bound")
def master_chalk(s):
    """A stream of texts, chunk by chunk, under `with main_process_first()`: to blame is the first rank, which tokenises
    each chunk in its loop and writes it to a file, while the other waits at a barrier to read what was written."""
    ms, launches, every = s.ms("gpu_ms", 10, 40), s.int("launches", 10, 80), s.int("chunk_steps", 2, 4)
    cost, gate, meet = ms * s.ms("chalk_share", 0.5, 1.5) * every, multiprocessing.Barrier(2), board(2)

    def chunk(rank, path):
        if rank == 0:
            if not s.fix:  # else it was done before the job
                parse(cost)
            np.save(path, np.zeros((every, 10000), np.int32))
        gate.wait()
        return np.load(path)

    def train(rank):
        gpu, tokens = s.gpu(ms, launches=launches), None
        begin(s)
        for n in itertools.count():
            s.mark()
            with s.during("data"):
                if n % every == 0:
                    tokens = chunk(rank, s.path("chunk-%d.npy" % (n // every % 2)))
                x = tokens[n % every]
            s.train(gpu, x)
            with s.during("peer"):
                meet(rank)
    launched(s, 2, train)


def far_forest(s):
    """A store that is far away."""
    late = float(s.told("late")) / 1e3
    door = socket.create_server(("127.0.0.1", 0))
    s.tell("port", door.getsockname()[1])

    def serve(link):
        stream = link.makefile("rwb")
        while stream.read(ASKED):
            time.sleep(late)
            stream.write(bytes(SHARD))
            stream.flush()
    while True:
        threading.Thread(target=serve, args=(door.accept()[0],), daemon=True).start()


def fetch(out, port, cost):
    stream = socket.create_connection(("127.0.0.1", port)).makefile("rwb")
    while True:
        stream.write(bytes(ASKED))
        stream.flush()
        body = stream.read(SHARD)
        decode(cost)
        out.put(np.frombuffer(body, np.uint8))


def steward(links, cost):
    """A parameter server: whoever comes with gradients gets the weights as they are."""
    while True:
        for link in multiprocessing.connection.wait(links):
            link.recv_bytes()
            parse(cost)
            link.send_bytes(GRADIENT)


@job(outside=far_forest, data="network_bound too_few_workers", child="host_bound", rest="sync_bound launch_bound")
def lone_sawpit(s):
    """Asynchronous SGD: two ranks with a parameter server, and neither ever waits for the other; the first one's data
    is near, and to blame is the far store from which the second one's only worker gets batch after batch."""
    ms, launches = s.ms("gpu_ms", 12, 40), s.int("launches", 10, 80)
    light, late = ms * s.ms("load_share", 0.05, 0.2), ms * s.ms("late_share", 1.7, 3)
    s.tell("late", late / 20 if s.fix else late)
    port, pairs = int(s.told("port")), [multiprocessing.Pipe() for _ in range(2)]
    child(steward, [mine for mine, _ in pairs], s.ms("apply_ms", 0.1, 0.3))

    def train(rank):
        gpu, out, link = s.gpu(ms, launches=launches), multiprocessing.Queue(maxsize=3), pairs[rank][1]
        if rank:
            s.supplier(child(fetch, out, port, light / 2).pid)
        else:
            child(put, out, light)
        begin(s)
        while True:
            s.step(gpu, out.get)
            with s.during("child"):
                link.send_bytes(GRADIENT)
                link.recv_bytes()
    launched(s, 2, train)


def caulk(out, log, line, cost):
    """Says of each batch that it is made."""
    while True:
        decode(cost)
        os.write(log, line)
        out.put(np.zeros(20000, np.float32))


@job(data="hung_worker", peer="rank_straggler", rest="sync_bound launch_bound")
def tarred_pipe(s):
    """Two ranks with two workers each, by turns; each worker tells its progress line by line, and to blame is one of
    the second rank, whose lines go to a pipe that nobody reads: once that is full it waits in write() for ever."""
    ms, launches, lame = s.ms("gpu_ms", 10, 30), s.int("launches", 10, 80), s.int("lame", 0, 1)
    lines = max(int(s.ms("life_s", 1.8, 3) * 1e3 / ms / 2), 8)  # of the one worker, until it hangs
    line, light, meet = b"." * (4096 // lines - 1) + b"\n", ms * s.ms("load_share", 0.1, 0.3), board(2)
    unread, full = os.pipe()
    fcntl.fcntl(full, fcntl.F_SETPIPE_SZ, 4096)
    void = os.open(os.devnull, os.O_WRONLY)

    def train(rank):
        gpu, outs = s.gpu(ms, launches=launches), [multiprocessing.Queue(maxsize=2) for _ in range(2)]
        for n, out in enumerate(outs):
            hangs = rank == 1 and n == lame and not s.fix
            pid = child(caulk, out, full if hangs else void, line, light).pid
            if hangs:
                s.supplier(pid)
        turn = itertools.cycle(outs)
        begin(s)
        while True:
            s.step(gpu, lambda: next(turn).get())
            with s.during("peer"):
                meet(rank)
    launched(s, 2, train)


# ---- not for data


@job(data="lock_bound", peer="rank_straggler lock_bound", rest="lock_bound rank_straggler")
def yard_clerk(s):
    """Two ranks with loaders that keep up; a thread of the first one writes up all ranks' figures every few steps, and
    to blame is that it does so in Python, for the rank's loop has to ask for the interpreter at every launch."""
    ms, launches, every = s.ms("gpu_ms", 15, 40), s.int("launches", 60, 90), s.int("every", 4, 7)
    report, light, meet = ms * s.ms("report_share", 0.6, 1.4) * every, ms * s.ms("load_share", 0.05, 0.15), star(2)
    desk = queue.Queue()

    def clerk():
        while True:
            desk.get()
            parse(report)

    def train(rank):
        gpu, batch = s.gpu(ms, launches=launches), queued(light, 5000)
        if rank == 0:
            threading.Thread(target=clerk, daemon=True).start()
        begin(s)
        for n in itertools.count(1):
            s.mark()
            with s.during("data"):
                x = batch()
            if rank == 0 and n % every == 0 and not s.fix:
                desk.put(n)
            s.train(gpu, x)
            with s.during("peer"):
                meet(rank)
    launched(s, 2, train)


def keep(link):
    """Has the newest state of a neighbour in memory, should that fail."""
    states = [b"", b""]
    for n in itertools.count():
        states[n % 2] = link.recv_bytes()
        link.send_bytes(b"kept")


@job(data=CPU, ckpt="checkpoint_stall host_bound", rest="sync_bound launch_bound")
def keel_tracings(s):
    """Checkpoints in the neighbour's memory, so that a rank can be replaced at once: to blame is the packing of the
    state, for which both of the two loops stop at the same time; what is packed is soon sent, and no rank is late."""
    ms, launches, every = s.ms("gpu_ms", 10, 40), s.int("launches", 10, 80), s.int("every", 2, 5)
    pack, light, meet = ms * s.ms("pack_share", 0.45, 1.3) * every, ms * s.ms("load_share", 0.05, 0.2), board(2)
    pairs, packed = [multiprocessing.Pipe() for _ in range(2)], bytes(s.int("kib", 40, 300) << 10)
    for _, theirs in pairs:
        child(keep, theirs)

    def train(rank):
        gpu, batch, link = s.gpu(ms, launches=launches), queued(light), pairs[1 - rank][0]
        state = np.zeros(100000, np.float32)
        begin(s)
        for n in itertools.count(1):
            s.step(gpu, batch)
            with s.during("peer"):
                meet(rank)
            if n % every == 0:
                gpu.check(gpu.lib.cudaMemcpy(state.ctypes.data, gpu.input, state.nbytes, D2H))
                with s.during("ckpt"):
                    if not s.fix:
                        decode(pack)
                    link.send_bytes(packed)
                    link.recv_bytes()
    launched(s, 2, train)


@job(data=CPU, host="rank_straggler host_bound sync_bound", peer="rank_straggler host_bound sync_bound",
     rest="sync_bound launch_bound")
def plumb_line(s):
    """Two equal ranks with batches in time; to blame is a debugging hook that somebody left on in the second one, as
    RANK == 1 had once found a NaN: it reads back each layer's norm and makes a line of text of it."""
    ms, layers = s.ms("gpu_ms", 10, 40), s.int("layers", 5, 14)
    light, cost = ms * s.ms("load_share", 0.05, 0.25), ms * s.ms("hook_share", 0.5, 1.5) / layers
    door = socket.create_server(("127.0.0.1", 0))

    def train(rank):
        gpu, batch, meet = s.gpu(ms, launches=8 * layers), queued(light), cabled(door, rank)
        begin(s)
        while True:
            s.mark()
            with s.during("data"):
                x = batch()
            if rank == 0 or s.fix:
                s.train(gpu, x)
            else:
                gpu.upload(x.ctypes.data, x.nbytes)
                for _ in range(layers):
                    gpu.launch(0, 3)
                    gpu.loss_item()
                    with s.during("host"):
                        parse(cost)
                gpu.backward()
                gpu.optimizer()
                gpu.loss_item()
            with s.during("peer"):
                meet()
    launched(s, 2, train)


def tally(links, cost):
    """A key-value store, as ranks have it for their rendezvous."""
    kept = {}
    while True:
        for link in multiprocessing.connection.wait(links):
            key, value = link.recv()
            parse(cost)
            kept[key] = value
            link.send(kept.get(key))


@job(data=CPU, child="host_bound", rest="sync_bound launch_bound")
def tool_tally(s):
    """Elastic training, where each rank says after each step how it is, for an agent to see: to blame is that this goes
    into the rendezvous' store key by key, and the loops wait for its only thread to answer each."""
    ms, launches, keys = s.ms("gpu_ms", 10, 40), s.int("launches", 10, 80), s.int("keys", 6, 20)
    light, meet = ms * s.ms("load_share", 0.05, 0.25), star(2)
    cost, pairs = ms * s.ms("store_share", 0.5, 1.5) / keys / 2, [multiprocessing.Pipe() for _ in range(2)]
    child(tally, [mine for mine, _ in pairs], cost)

    def train(rank):
        gpu, batch, link = s.gpu(ms, launches=launches), queued(light), pairs[rank][1]
        begin(s)
        for n in itertools.count():
            s.step(gpu, batch)
            with s.during("peer"):
                meet(rank)
            with s.during("child"):
                for key in range(1 if s.fix else keys):
                    link.send(("rank%d/layer%d" % (rank, key), n))
                    link.recv()
    launched(s, 2, train)


# ---- nothing is wrong


@job(data=CPU, demand="no_demand", beside="no_demand", rest="sync_bound launch_bound")
def sea_trials(s):
    """Nothing is to blame: a trainer has its batches in time, and on a second device a process tries the held-out set
    whenever there are new weights, which is now and then; that it waits for them holds up nobody."""
    ms, launches = s.ms("gpu_ms", 25, 75), s.int("launches", 10, 80)
    every = max(int(s.ms("every_s", 0.5, 1.2) * 1e3 / ms), 4)
    test_ms, passes, light = s.ms("test_ms", 6, 15), s.int("passes", 5, 14), ms * s.ms("load_share", 0.2, 0.5)
    path = s.path("weights")

    def trainer():
        gpu, batch = s.gpu(ms, launches=launches), queued(light)
        begin(s)
        for n in itertools.count(1):
            s.step(gpu, batch)
            if n % every == 0:
                with s.during("ckpt"):
                    s.tell("weights", "%08d" % n * 1000)

    def tester():
        gpu, held_out = s.gpu(test_ms, launches=launches), np.zeros((passes, 20000), np.float32)
        begin(s)
        while True:
            with s.during("demand"):
                while not os.path.exists(path):
                    time.sleep(0.02)
                with open(path, "rb") as f:
                    weights = np.frombuffer(f.read(), np.uint8)
                os.unlink(path)
            s.mark()
            gpu.upload(weights.ctypes.data, weights.nbytes)
            for x in held_out:
                s.mark("micro")
                gpu.upload(x.ctypes.data, x.nbytes)
                gpu.forward()
            gpu.loss_item()
    launched(s, 2, lambda rank: (tester if rank else trainer)())


def uneven(out, cost, every):
    for n in itertools.count(1):
        decode(3 * cost if n % every == 0 else cost)
        out.put(np.zeros(20000, np.float32))


@job(data=CPU, peer="rank_straggler", rest="sync_bound launch_bound")
def paired_slipways(s):
    """Nothing is to blame: local SGD, for which two ranks meet after every few steps only; one has a quick loader, the
    other's works harder and has a long item now and then, but a deep enough queue that nobody notices."""
    ms, launches, often = s.ms("gpu_ms", 25, 75), s.int("launches", 10, 80), s.int("local_steps", 4, 9)
    quick, cost = ms * s.ms("quick_share", 0.05, 0.15), ms * s.ms("slow_share", 0.25, 0.45)
    rare, door = s.int("rare", 5, 9), socket.create_server(("127.0.0.1", 0))

    def train(rank):
        gpu, out, meet = s.gpu(ms, launches=launches), multiprocessing.Queue(maxsize=8), cabled(door, rank)
        child(uneven, out, cost if rank else quick, rare)
        begin(s)
        for n in itertools.count(1):
            s.step(gpu, out.get)
            if n % often == 0:
                with s.during("peer"):
                    meet()
    launched(s, 2, train)
