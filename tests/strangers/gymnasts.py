# SPDX-License-Identifier: BSD-2-Clause
"""Among gymnasts: worlds that are played, searched and solved for a model, and physics on the device itself."""
import collections
import ctypes
import fcntl
import itertools
import mmap
import multiprocessing
import os
import random
import select
import signal
import socket
import struct
import threading
import time
import zlib

import numpy as np

from stranger import CPU, child, decode, job, mortal

PAGE, MIB, D2H = 4096, 1 << 20, 2
LIBC = ctypes.CDLL(None)


def once(f):
    """Seconds that f takes."""
    begin = time.monotonic()
    f()
    return time.monotonic() - begin


def took(f):
    """The same, once it is warm."""
    f()
    return once(f)


# ---- the data is late


def forecast(loop, n, states, credit, cost):
    """A member of the ensemble; that its state is there it tells by a real-time signal."""
    for slot in itertools.cycle(range(len(states))):
        credit.acquire()
        decode(cost)
        states[slot, n] = slot
        LIBC.tgkill(loop, loop, signal.SIGRTMIN + 1 + n)  # for the main thread, which has it blocked


@job(data="slow_worker", rest="sync_bound launch_bound")
def uneven_bars(s):
    """Assimilation by a learned filter: an ensemble's members are processes that leave states in shared memory, and
    each has a real-time signal that the loop awaits; to blame is one member, which alone runs a nested finer grid."""
    ms, members = s.ms("gpu_ms", 10, 45), 3
    nested, share = s.int("nested", 0, members - 1), s.ms("nested_share", 1.5, 2.6)
    cost = ms * s.ms("forecast_share", 0.08, 0.2)
    bells = [{signal.SIGRTMIN + 1 + n} for n in range(members)]
    signal.pthread_sigmask(signal.SIG_BLOCK, set().union(*bells))
    gpu, turn = s.gpu(ms), itertools.cycle((0, 1))
    states = np.frombuffer(multiprocessing.RawArray("f", 2 * members * 20000), np.float32).reshape(2, members, -1)
    credits = [multiprocessing.Semaphore(2) for _ in range(members)]
    for n, credit in enumerate(credits):
        finer = n == nested and not s.fix
        pid = child(forecast, os.getpid(), n, states, credit, ms * share if finer else cost).pid
        if n == nested:
            s.supplier(pid)

    def obtain():
        for bell in bells:
            signal.sigwaitinfo(bell)
        x = states[next(turn)].copy()
        for credit in credits:
            credit.release()
        return x
    s.loop(gpu, obtain)


def shared_mutex():
    """A pthread mutex for all processes that inherit it, as C++ worlds have it in shared memory."""
    place, kind = multiprocessing.RawArray(ctypes.c_byte, 64), ctypes.create_string_buffer(64)
    LIBC.pthread_mutexattr_init(kind)
    LIBC.pthread_mutexattr_setpshared(kind, 1)
    LIBC.pthread_mutex_init(place, kind)
    return place


def roll_out(mutex, frames, cost, arena, free, full):
    """Plays an unroll into a slot of the arena; in each frame it seeks paths on the mesh."""
    while True:
        slot = os.read(free, 1)[0]
        for _ in range(frames):
            decode(cost * 0.15)
            LIBC.pthread_mutex_lock(mutex)
            decode(cost)
            LIBC.pthread_mutex_unlock(mutex)
        arena[slot] = slot
        os.write(full, bytes([slot]))


@job(data="lock_bound", rest="sync_bound launch_bound")
def chalk_bowl(s):
    """As in Sample Factory, rollout processes fill slots of shared memory whose numbers go round in two pipes; to
    blame is the mutex of the one navigation mesh that they share, held for as long as paths are sought on it."""
    ms, players, frames = s.ms("gpu_ms", 10, 40), s.int("players", 2, 3), s.int("frames", 3, 6)
    cost, slots = ms * s.ms("path_share", 1.5, 2.6) / frames, players + 2
    arena = np.frombuffer(multiprocessing.RawArray("f", slots * 25000), np.float32).reshape(slots, -1)
    (free, freed), (full, filled), mutexes = os.pipe(), os.pipe(), [shared_mutex() for _ in range(players)]
    os.write(freed, bytes(range(slots)))
    gpu = s.gpu(ms)
    for n in range(players):
        child(roll_out, mutexes[n if s.fix else 0], frames, cost / 3 if s.fix else cost, arena, free, filled)

    def obtain():
        number = os.read(full, 1)
        x = arena[number[0]].copy()
        os.write(freed, number)
        return x
    s.loop(gpu, obtain)


def far_tables(s):
    """Knows how each endgame ends, and is far away."""
    late = float(s.told("late")) / 1e3
    door = socket.create_server(("127.0.0.1", 0))
    s.tell("port", door.getsockname()[1])

    def serve(link):
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while link.recv(64):
            time.sleep(late)
            link.sendall(b"draw")
    while True:
        threading.Thread(target=serve, args=(door.accept()[0],), daemon=True).start()


def self_play(out, port, probes, cost):
    """Searches trees, and has the tables judge what comes down to a few pieces."""
    with socket.create_connection(("127.0.0.1", port)) as link:
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while True:
            decode(cost)
            for _ in range(probes):
                link.sendall(b"8/8/8/4k3/8/8/3QK3/8 w - - 0 1")
                link.recv(64)
            out.send(bytes(60000))


@job(outside=far_tables, data="network_bound too_few_workers", rest="sync_bound launch_bound")
def judges_phone(s):
    """Self-play with tree search by a process or two, which send positions as packets of one socket; to blame are the
    endgame tables, for they lie on another machine, and the search asks for one position after the other."""
    ms, players, probes = s.ms("gpu_ms", 10, 40), s.int("players", 1, 2), s.int("probes", 3, 8)
    late = ms * s.ms("late_share", 1.5, 2.6) * players / probes
    s.tell("late", late / 20 if s.fix else late)
    gpu, cost, port = s.gpu(ms), ms * s.ms("search_share", 0.05, 0.15) * players, int(s.told("port"))
    mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    pids = [child(self_play, theirs, port, probes, cost).pid for _ in range(players)]
    if players == 1:
        s.supplier(pids[0])
    s.loop(gpu, lambda: np.frombuffer(mine.recv(1 << 16), np.uint8))


def columns(field, chance, many):
    """What the first guess has at each observation's place, on two levels."""
    pages, values = len(field) // PAGE // 2, []
    for _ in range(many):
        low = chance.randrange(pages) * PAGE
        high = low + pages * PAGE
        values += [field[low:low + 16], field[high:high + 16]]
    return b"".join(values)


def observe(path, half, pipe, many, warm):
    """Goes through the observations of a hemisphere; the field is let go of after each window."""
    size, chance = os.path.getsize(path) // 2, random.Random(half)
    with open(path, "rb", buffering=0) as f, open(pipe, "wb", buffering=0) as out:
        fcntl.fcntl(out.fileno(), fcntl.F_SETPIPE_SZ, max(2 * 32 * many, PAGE))
        while warm and f.read(MIB):
            pass
        with mmap.mmap(f.fileno(), size, access=mmap.ACCESS_READ, offset=half * size) as field:
            field.madvise(mmap.MADV_RANDOM)
            while True:
                out.write(columns(field, chance, many))
                if not warm:
                    field.madvise(mmap.MADV_DONTNEED)
                    os.posix_fadvise(f.fileno(), half * size, size, os.POSIX_FADV_DONTNEED)


@job(data="page_fault_io", rest="sync_bound launch_bound")
def foam_pit(s):
    """Weather: for each window two processes, a hemisphere each, take the first guess at the observations' places out
    of a mapped field, and write that into named pipes; to blame are the field's pages, of which memory has none."""
    ms, share = s.ms("gpu_ms", 10, 25), s.ms("guess_share", 1.5, 2.5)
    path = s.data_file("foam_pit", 64)
    with open(path, "rb") as f, mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ) as field:
        field.madvise(mmap.MADV_RANDOM)
        each = once(lambda: columns(field, random.Random(9), 200)) / 200
    many = s.keep("observations", min(max(int(ms * share / 1e3 / each), 16), 1500))
    s.cold(path)
    gpu, x, pipes = s.gpu(ms), np.zeros((2, 32 * many), np.uint8), []
    for half in range(2):
        name = s.path("half-%d" % half)
        os.mkfifo(name)
        child(observe, path, half, name, many, s.fix)
        pipes.append(open(name, "rb"))

    def obtain():
        for pipe, part in zip(pipes, x):
            pipe.readinto(part)
        return x
    s.loop(gpu, obtain)


def load_scene(parent, cost):
    """A fresh engine reads its meshes and builds what it needs to find contacts."""
    mortal(parent)
    decode(cost)


def episode(cost):
    decode(cost)
    return np.zeros(20000, np.float32)


@job(data="loader_restart", rest="sync_bound launch_bound")
def spring_floor(s):
    """Episodes are tasks of a multiprocessing.Pool, some of them asked for ahead; to blame is maxtasksperchild, set
    since the physics engine leaks: after a few episodes a new process loads the scene, which takes long."""
    ms, life = s.ms("gpu_ms", 12, 30), s.int("life", 6, 10)
    load, cost = ms * life * s.ms("load_share", 0.9, 1.8), ms * s.ms("episode_share", 0.1, 0.3)
    gpu, due = s.gpu(ms), collections.deque()
    pool = multiprocessing.Pool(1, load_scene, (os.getpid(), load), None if s.fix else life)

    def obtain():
        while len(due) < 3:
            due.append(pool.apply_async(episode, (cost,)))
        return due.popleft().get()
    s.loop(gpu, obtain)


def hand(link, size):
    """Sends a block as PyTorch shares a tensor: memory of its own, whose descriptor goes over the socket."""
    fd = os.memfd_create("block")
    os.write(fd, bytes(size))
    socket.send_fds(link, [struct.pack("<I", size)], [fd])
    os.close(fd)


def grasp(link):
    head, fds, _, _ = socket.recv_fds(link, 4, 1)
    with mmap.mmap(fds[0], struct.unpack("<I", head)[0], access=mmap.ACCESS_READ) as block:
        content = block[:]
    os.close(fds[0])
    return content


def sample_graph(link, credit, arrays, size):
    while True:
        credit.acquire()
        for _ in range(arrays):
            hand(link, size)


@job(data="ipc_bound main_thread_loading", rest="sync_bound launch_bound")
def relay_baton(s):
    """A graph network: a process has sampled subgraphs ready, each of them some hundred small arrays for the types of
    edges; to blame is that each array comes in a memory of its own, which the loop maps, copies and closes."""
    ms, share, size = s.ms("gpu_ms", 8, 20), s.ms("hand_over_share", 1, 2.6), s.int("kib", 2, 8) << 10
    mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    each = took(lambda: [(hand(theirs, size), grasp(mine)) for _ in range(200)]) / 200
    arrays = s.keep("arrays", min(max(int(ms * share / 1e3 / each), 64), 3000))
    if s.fix:
        arrays, size = 1, size * arrays
    gpu, credit = s.gpu(ms), multiprocessing.Semaphore(2)
    child(sample_graph, theirs, credit, arrays, size)

    def obtain():
        x = np.frombuffer(b"".join([grasp(mine) for _ in range(arrays)]), np.uint8)
        credit.release()
        return x
    s.loop(gpu, obtain)


def relax(threads, sweeps, cost, fields, turn, made, used):
    """A solver whose threads have a part of the domain each, and meet after each sweep."""
    meet = threading.Barrier(threads)

    def part(n):
        while True:
            if n == 0:
                with turn:
                    turn.wait_for(lambda: made.value < used.value + len(fields))
            meet.wait()
            for _ in range(sweeps):
                decode(cost)
                meet.wait()
            if n == 0:
                fields[made.value % len(fields)] = sweeps
                with turn:
                    made.value += 1
                    turn.notify()
    for n in range(1, threads):
        threading.Thread(target=part, args=(n,), daemon=True).start()
    part(0)


@job(data=CPU, threads=True, rest="sync_bound launch_bound")
def human_pyramid(s):
    """A phase field's surrogate learns from a solver that runs along, one process with threads in C, and leaves fields
    in shared memory under a condition; to blame are its sweeps, which compute for longer than the device learns."""
    ms, threads, sweeps = s.ms("gpu_ms", 12, 45), s.int("threads", 2, 3), s.int("sweeps", 4, 8)
    cost = ms * s.ms("solve_share", 1.5, 2.4) * 2 / threads / sweeps
    fields = np.frombuffer(multiprocessing.RawArray("f", 2 * 50000), np.float32).reshape(2, -1)
    turn, made, used = multiprocessing.Condition(), multiprocessing.RawValue("q", 0), multiprocessing.RawValue("q", 0)
    gpu = s.gpu(ms)
    s.supplier(child(relax, threads, sweeps, cost / 4 if s.fix else cost, fields, turn, made, used).pid)

    def obtain():
        with turn:
            turn.wait_for(lambda: made.value > used.value)
        x = fields[used.value % 2].copy()
        with turn:
            used.value += 1
            turn.notify()
        return x
    s.loop(gpu, obtain)


# ---- not for data


def neighbours(atoms):
    """Pairs that are near each other, along the order of their cells."""
    cells = atoms.astype(np.int64)
    ordered = atoms[np.argsort((cells[:, 0] * 16 + cells[:, 1]) * 16 + cells[:, 2], kind="stable")]
    pairs = []
    for hop in range(1, 13):
        apart = ordered[hop:] - ordered[:-hop]
        pairs.append(np.flatnonzero((apart * apart).sum(1) < 0.25))
    return np.concatenate(pairs).astype(np.int32)


@job(host="host_bound", rest="sync_bound launch_bound")
def pommel_turns(s):
    """Molecular dynamics with a learned force, all of it on the device; to blame is the list of neighbours, for which
    every few steps the positions come down and the loop sorts atoms into cells and seeks pairs in numpy."""
    ms, every, share = s.ms("gpu_ms", 1.2, 3), s.int("every", 8, 16), s.ms("list_share", 0.5, 1.4)
    chance = np.random.default_rng(1)
    some = chance.random((20000, 3), np.float32) * 16
    each = took(lambda: neighbours(some)) / len(some)
    many = s.keep("atoms", min(max(int(ms * every * share / 1e3 / each), 2000), 400000))
    atoms = chance.random((many, 3), np.float32) * 16
    down = np.zeros_like(atoms)
    gpu = s.gpu(ms, input_bytes=max(MIB, atoms.nbytes), launches=s.int("launches", 8, 24))
    s.go()
    while True:
        s.mark()
        for _ in range(every):
            s.mark("micro")
            s.train(gpu, item=False)
        if s.fix:  # the device finds the pairs
            gpu.loss_item()
            continue
        gpu.check(gpu.lib.cudaMemcpy(down.ctypes.data, gpu.input, down.nbytes, D2H))
        with s.during("host"):
            pairs = neighbours(atoms)
        gpu.upload(pairs.ctypes.data, pairs.nbytes)


@job(ckpt="checkpoint_stall", rest="sync_bound launch_bound")
def vault_run(s):
    """Lattice gauge theory: trajectories are made on the device and need no data; to blame is the loop's writing of
    configurations, time slice by time slice, in big endian and with a sum, each of which is synced to the disk."""
    ms, every, share = s.ms("gpu_ms", 10, 30), s.int("every", 1, 4), s.ms("write_share", 0.5, 1.5)
    gpu, place, size, mib = s.gpu(ms), itertools.count(), 128 << 10, 32
    links = np.ones(size // 4, np.float32)
    fd = os.open(s.data_file("vault_run", mib), os.O_RDWR)
    while os.read(fd, MIB):  # from here on it is in memory
        pass

    def write(slices):
        for _ in range(slices):
            record = links.byteswap().tobytes()
            zlib.crc32(record)
            os.pwrite(fd, record, next(place) * size % (mib * MIB))
            os.fdatasync(fd)
    slices = int(ms * every * share / 1e3 / took(lambda: write(20)) * 20)
    slices = s.keep("slices", min(max(slices, 1), 200))
    s.go()
    for n in itertools.count(1):
        s.mark()
        s.train(gpu)
        if n % every == 0 and not s.fix:
            gpu.check(gpu.lib.cudaMemcpy(links.ctypes.data, gpu.input, links.nbytes, D2H))
            with s.during("ckpt"):
                write(slices)


def circuit(link, cost):
    """Solves the outer circuit for the electrode's voltage."""
    while current := link.recv(8, socket.MSG_WAITALL):
        decode(cost)
        link.sendall(current)


@job(peer="rank_straggler", child="rank_straggler host_bound", rest="sync_bound launch_bound")
def double_trapeze(s):
    """Particles in cells, two ranks with half of the plasma each, which swap halos over a Unix socket; to blame is the
    second one, at whose end the electrode is: it asks a circuit's solver for the voltage before each of its steps."""
    ms, launches = s.ms("gpu_ms", 10, 40), s.int("launches", 10, 80)
    cost, size = ms * s.ms("circuit_share", 0.7, 1.6), s.int("kib", 16, 128) << 10
    parent = os.getpid()
    for rank, link in enumerate(socket.socketpair()):
        if os.fork():
            continue
        mortal(parent, signal.SIGTERM)
        s.rank(rank)
        gpu, halo, outer = s.gpu(ms, launches=launches), bytes(size), None
        if rank == 1:
            outer, theirs = socket.socketpair()
            child(circuit, theirs, cost / 20 if s.fix else cost)
        s.told("go")
        while True:
            s.mark()
            if outer:
                with s.during("child"):
                    outer.sendall(bytes(8))
                    outer.recv(8, socket.MSG_WAITALL)
            s.train(gpu, np.frombuffer(halo, np.uint8))
            with s.during("peer"):
                if rank == 0:
                    link.sendall(halo)
                halo = link.recv(size, socket.MSG_WAITALL)
                if rank == 1:
                    link.sendall(halo)
    s.go()
    signal.pause()


# ---- nothing is wrong


def world(home, own, cost, life):
    """Has two observations under way; after this life its physics engine never answers again."""
    engine, other = socket.socketpair()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as link, other:
        link.bind(own)
        link.connect(home)
        link.send(bytes(40000))
        link.send(bytes(40000))
        for n in itertools.count():
            link.recv(64)
            if n == life:
                engine.recv(1)
            decode(cost)
            link.send(bytes(40000))


@job(data=CPU, rest="sync_bound launch_bound")
def missing_partner(s):
    """Nothing is to blame: worlds send observations as datagrams, and the loop answers whoever's comes first; after a
    while one of them hangs in its engine for ever, but the two others have enough for the device."""
    ms, life_s = s.ms("gpu_ms", 20, 70), s.ms("life_s", 1, 2.5)
    cost, frozen = ms * s.ms("load_share", 0.2, 0.6), s.int("frozen", 0, 2)
    gpu, life = s.gpu(ms), int(life_s * 1e3 / ms / 3)
    desk = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    desk.bind(s.path("home"))
    for n in range(3):
        child(world, s.path("home"), s.path("w%d" % n), cost, life if n == frozen else -1)

    def obtain():
        seen, who = desk.recvfrom(1 << 16)
        desk.sendto(b"left", who)
        return np.frombuffer(seen, np.uint8)
    s.loop(gpu, obtain)


def viewer(link, pause):
    """Someone who looks at the flow now and then."""
    while True:
        time.sleep(pause)
        link.send(b"show")
        link.recv(1 << 17)


@job(host="host_bound", rest="sync_bound launch_bound")
def steering_rope(s):
    """Nothing is to blame: a flow is computed on the device, without any data; the loop sleeps in select() on a socket
    for steering for most of each step, where hardly anything comes, but the step's kernels run meanwhile."""
    ms = s.ms("gpu_ms", 20, 80)
    patience, pause = ms * s.ms("patience_share", 0.5, 0.85) / 1e3, s.ms("pause_s", 0.2, 1)
    desk, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    gpu, cut = s.gpu(ms), bytes(60000)
    child(viewer, theirs, pause)
    s.go()
    while True:
        s.mark()
        s.train(gpu, item=False)
        with s.during("host"):
            if select.select([desk], [], [], patience)[0]:
                desk.recv(16)
                desk.send(cut)
        gpu.loss_item()
