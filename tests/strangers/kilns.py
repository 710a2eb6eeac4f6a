# SPDX-License-Identifier: BSD-2-Clause
"""Loops of one process that do all in memory: some make batches, others have better to do."""
import bisect
import collections
import contextlib
import csv
import functools
import heapq
import io
import itertools
import math
import os
import pickle
import random
import statistics
import struct
import threading
import time
import zlib

import numpy as np

from stranger import child, decode, job, parse

LOADING, REST = "main_thread_loading", "sync_bound launch_bound host_bound"


def shares(s, ahead=False):
    """Milliseconds of a step for the device and for the loop; ahead: both at the same time."""
    step, device = s.ms("step_ms", 7, 100), s.int("device_percent", 5, 80) / 100
    own = step if ahead else step * (1 - device)
    return step * device, own / 10 if s.fix else own


def often(work, ms):
    """How many calls take so long."""
    costs = []
    for _ in range(25):
        begin = time.perf_counter_ns()
        work()
        costs.append(time.perf_counter_ns() - begin)
    return max(1, round(ms * 1e6 / statistics.median(costs)))


def aside(work, ms):
    """Something else on the same machine, which nobody waits for."""
    os.nice(19)
    while True:
        work(ms)


# ---- they make their batches


@job(data=LOADING, host="host_bound", rest=REST)
def genome_windows(s):
    """A genome model: windows of a genome in memory are turned round, cut in k-mers and masked."""
    gpu_ms, cost = shares(s, ahead=True)
    gpu, every, chance = s.gpu(gpu_ms), s.int("item_every", 1, 6), random.Random(2)
    genome = bytes(chance.choices(b"ACGT", k=1 << 19))
    pairs, length = bytes.maketrans(b"ACGT", b"TGCA"), s.one("length", 128, 256, 512)
    k, masked = s.int("k", 3, 8), s.int("masked_percent", 10, 30) / 100

    def window():
        at = chance.randrange(len(genome) - length)
        piece = genome[at:at + length]
        if chance.random() < 0.5:
            piece = piece.translate(pairs)[::-1]
        ids = [1 + hash(piece[i:i + k]) % 4095 for i in range(length - k)]
        for i in chance.sample(range(len(ids)), int(masked * len(ids))):
            ids[i] = 0
        return np.array(ids, np.int16)
    rows = often(window, cost)
    s.go()
    for n in itertools.count(1):
        s.mark()
        with s.during("data"):
            x = np.stack([window() for _ in range(rows)])
        s.train(gpu, x, item=n % every == 0)


@job(data=LOADING, host="host_bound", rest=REST)
def order_books(s):
    """Messages of an exchange are replayed for the next step, between backward and optimizer."""
    gpu_ms, cost = shares(s, ahead=True)
    gpu, burst, chance = s.gpu(gpu_ms), s.int("burst", 40, 200), random.Random(3)
    tape = b"".join(struct.pack("<?hH", chance.random() < 0.5, chance.randint(-200, 200),
                                max(chance.randint(-20, 90), 0)) for _ in range(40000))
    sides, at = ({}, {}), 0

    def snapshot():
        nonlocal at
        for side, price, size in struct.iter_unpack("<?hH", tape[at:at + 5 * burst]):
            if size:
                sides[side][price] = size
            else:
                sides[side].pop(price, None)
        at = (at + 5 * burst) % len(tape)
        return (heapq.nlargest(8, sides[0].items()) + heapq.nsmallest(8, sides[1].items()))
    rows = often(snapshot, cost)

    def books():
        return np.array([snapshot() for _ in range(rows)], np.float32)
    x = books()
    s.go()
    while True:
        s.mark()
        gpu.upload(x.ctypes.data, x.nbytes)
        gpu.forward()
        gpu.backward()
        with s.during("data"):
            x = books()
        gpu.optimizer()
        gpu.loss_item()


class RowTrainer:
    """Learns to tell which fields of a table's row were changed."""
    def __init__(self, s, gpu, cost):
        self.s, self.gpu, self.chance = s, gpu, random.Random(4)
        columns = s.int("columns", 8, 40)
        self.lines = [",".join("%.3f" % self.chance.gauss(0, 1) for _ in range(columns))
                      for _ in range(4000)]
        self.edges = [statistics.NormalDist().inv_cdf(i / 32) for i in range(1, 32)]
        self.rows = often(self.row, cost)

    def row(self):
        line, other = next(csv.reader(self.chance.sample(self.lines, 1))), None
        bins = [bisect.bisect(self.edges, float(field)) for field in line]
        for i in range(len(bins)):
            if self.chance.random() < 0.15:
                other = other or self.chance.choice(self.lines).split(",")
                bins[i] = bisect.bisect(self.edges, float(other[i]))
        return bins

    def prepare(self):
        with self.s.during("data"):
            return np.array([self.row() for _ in range(self.rows)], np.uint8)

    def learn(self, x):
        self.s.train(self.gpu, x, item=False)

    def fit(self):
        x = self.prepare()
        while True:
            self.s.mark()
            self.learn(x)
            x = self.prepare()
            self.gpu.loss_item()


@job(data=LOADING, host="host_bound", rest=REST)
def census_rows(s):
    """A trainer's methods read CSV rows in memory after the optimizer; a niced script runs too."""
    gpu_ms, cost = shares(s, ahead=True)
    child(aside, parse, 30)
    trainer = RowTrainer(s, s.gpu(gpu_ms), cost)
    s.go()
    trainer.fit()


@job(data=LOADING, host="host_bound", rest=REST)
def decision_paths(s):
    """Offline RL with accumulation: a generator unpickles paths and sums up rewards to come."""
    gpu_ms, cost = shares(s)
    micro, length = s.int("micro", 2, 4), s.int("length", 20, 60)
    gpu, chance = s.gpu(gpu_ms / micro), random.Random(5)
    paths = []
    for _ in range(100):
        path = [([chance.random() for _ in range(6)], chance.randrange(4), chance.random())
                for _ in range(length + chance.randint(0, 60))]
        paths.append(zlib.compress(pickle.dumps(path), 1))

    def piece():
        path, won, rows = pickle.loads(zlib.decompress(chance.choice(paths))), 0.0, []
        for state, action, reward in reversed(path):
            won += reward
            rows.append([won, action, *state])
        end = chance.randint(length, len(rows))
        return rows[end - length:end][::-1]

    def batches(rows):
        while True:
            yield np.array([piece() for _ in range(rows)], np.float32)
    ready = batches(often(piece, cost / micro))
    s.go()
    while True:
        s.mark()
        for _ in range(micro):
            s.mark("micro")
            with s.during("data"):
                x = next(ready)
            gpu.upload(x.ctypes.data, x.nbytes)
            gpu.forward()
            gpu.backward()
        gpu.optimizer()
        gpu.loss_item()


def batched(ms):
    """Makes of a function that gives a sample one that gives a batch, in about that time."""
    def wrap(sample):
        rows = often(sample, ms)
        return functools.wraps(sample)(lambda: np.stack([sample() for _ in range(rows)]))
    return wrap


def thinned(points, far):
    """The points without those that lie near the line between others."""
    (ax, ay), (bx, by) = points[0], points[-1]
    dx, dy, most, at = bx - ax, by - ay, 0.0, 0
    reach = math.hypot(dx, dy) or 1.0
    for i in range(1, len(points) - 1):
        off = abs(dx * (points[i][1] - ay) - dy * (points[i][0] - ax)) / reach
        if off > most:
            most, at = off, i
    if most <= far:
        return [points[0], points[-1]]
    return thinned(points[:at + 1], far)[:-1] + thinned(points[at:], far)


@job(data=LOADING, host="host_bound", rest=REST)
def stroke_canvas(s):
    """Sketches: strokes are thinned by recursion and drawn, when the last step's loss is read."""
    gpu_ms, cost = shares(s)
    gpu, chance, far = s.gpu(gpu_ms), random.Random(6), s.ms("far", 0.3, 2)
    drawings = []
    for _ in range(200):
        points = [(16.0, 16.0)]
        for _ in range(chance.randint(20, 50)):
            points.append(tuple(min(31.0, max(0.0, v + chance.uniform(-4, 4)))
                                for v in points[-1]))
        drawings.append(points)

    @batched(cost)
    def sketches():
        points, canvas = chance.choice(drawings), bytearray(1024)
        if chance.random() < 0.5:
            points = [(31 - x, y) for x, y in points]
        kept = thinned(points, far)
        for (ax, ay), (bx, by) in zip(kept, kept[1:]):
            n = 1 + int(max(abs(bx - ax), abs(by - ay)))
            for i in range(n + 1):
                canvas[32 * int(ay + (by - ay) * i / n) + int(ax + (bx - ax) * i / n)] = 255
        return np.frombuffer(canvas, np.uint8)
    x = sketches()
    s.go()
    while True:
        s.mark()
        s.train(gpu, x)
        with s.during("data"):
            x = sketches()


# ---- their data lies on the device


@job(host="host_bound", rest=REST)
def privacy_ledger(s):
    """Private training: a decorator reckons what each group has spent before a step runs."""
    gpu_ms, cost = shares(s)
    child(aside, decode, 20)
    gpu, rate, noise = s.gpu(gpu_ms), s.ms("rate", 0.001, 0.05), s.ms("noise", 0.8, 3)
    top, limit, spent = s.int("orders", 8, 24), s.ms("limit", 2, 20), collections.Counter()

    def moment(group):
        """What a step adds to the group's loss of privacy, at the best order."""
        sigma, best = noise * (1 + group % 7 / 10), math.inf
        for order in range(2, top):
            terms = [math.lgamma(order + 1) - math.lgamma(k + 1) - math.lgamma(order - k + 1)
                     + k * math.log(rate) + (order - k) * math.log1p(-rate)
                     + (k * k - k) / (2 * sigma * sigma) for k in range(order + 1)]
            high = max(terms)
            whole = high + math.log(sum(math.exp(t - high) for t in terms))
            best = min(best, whole / (order - 1))
        return best
    groups = often(lambda: moment(3), cost)

    def accounted(step):
        @functools.wraps(step)
        def run():
            s.mark()
            with s.during("host"):
                for group in range(groups):
                    spent[group] += moment(group)
                    if spent[group] > limit:
                        spent[group] = 0.0  # others take its place
            step()
        return run

    @accounted
    def step():
        s.train(gpu)
    s.go()
    while True:
        step()


@job(host="host_bound", rest=REST)
def supernet_paths(s):
    """Architecture search: a generator breeds the path of a supernet that each step trains."""
    gpu_ms, cost = shares(s)
    gpu, chance = s.gpu(gpu_ms), random.Random(8)
    layers, many = s.int("layers", 8, 32), s.int("population", 40, 160)
    prices = [[chance.uniform(1, 9) for _ in range(5)] for _ in range(layers)]

    def price(genes):
        return sum(row[g] for row, g in zip(prices, genes))
    people = []
    for _ in range(many):
        genes = [chance.randrange(5) for _ in range(layers)]
        people.append((genes, price(genes), chance.random()))

    def breed():
        """A child of two, and how many others are both cheaper and better."""
        a, b = chance.sample(people, 2)
        genes = [chance.choice(pair) for pair in zip(a[0], b[0])]
        genes[chance.randrange(layers)] = chance.randrange(5)
        paid, loss = price(genes), (a[2] + b[2]) / 2
        return sum(1 for p in people if p[1] <= paid and p[2] <= loss), genes

    def evolution(tries):
        while True:
            yield min(breed() for _ in range(tries))[1]
    paths = evolution(often(breed, cost))
    s.go()
    while True:
        s.mark()
        with s.during("host"):
            genes = next(paths)
            mask = np.array(genes, np.uint8)
        s.train(gpu, mask)
        people[chance.randrange(many)] = genes, price(genes), chance.random()


@job(host="host_bound sync_bound", rest=REST)
def expert_seats(s):
    """A mixture of experts: after forward the groups' seats are auctioned, then comes backward."""
    gpu_ms, cost = shares(s)
    gpu, chance = s.gpu(gpu_ms), random.Random(9)
    experts, groups, turn = s.int("experts", 8, 64), s.int("groups", 32, 256), 0
    wishes = [[chance.random() for _ in range(experts)] for _ in range(groups)]
    prices, seats = [0.0] * experts, np.zeros(groups, np.int32)

    def bid():
        nonlocal turn
        first = second = -math.inf
        row, at = wishes[turn % groups], 0
        for e in range(experts):
            gain = row[e] - prices[e]
            if gain > first:
                first, second, at = gain, first, e
            elif gain > second:
                second = gain
        prices[at] += first - second + 1e-3
        seats[turn % groups] = at
        turn += 1
    bids = often(bid, cost)
    s.go()
    while True:
        s.mark()
        gpu.forward()
        gpu.loss_item()  # how much each group wants each expert
        with s.during("host"):
            prices[:] = [0.0] * experts
            for _ in range(bids):
                bid()
        gpu.upload(seats.ctypes.data, seats.nbytes)
        gpu.backward()
        gpu.optimizer()


@job(host="host_bound", rest=REST)
def clip_thresholds(s):
    """Training for int8: a context manager seeks each layer's threshold after the optimizer."""
    gpu_ms, cost = shares(s, ahead=True)
    gpu, every, n = s.gpu(gpu_ms), s.int("item_every", 1, 5), 0
    rng, count = np.random.default_rng(10), s.int("layers", 6, 40)
    sampled = s.one("sampled", 1024, 4096)
    layers = [rng.standard_normal(sampled, np.float32) for _ in range(count)]
    best = [(math.inf, 0.0)] * count

    def attempt():
        nonlocal n
        layer, limit = layers[n % count], 0.5 + n // count % 40 / 10
        rough = np.clip(np.rint(layer * (127 / limit)), -128, 127) * (limit / 127)
        error = float(np.square(layer - rough).mean())
        best[n % count] = min(best[n % count], (error, limit))
        n += 1
    attempts = often(attempt, cost)

    @contextlib.contextmanager
    def calibrated():
        yield
        with s.during("host"):
            best[:] = [(math.inf, 0.0)] * count
            for _ in range(attempts):
                attempt()
    s.go()
    for step in itertools.count(1):
        s.mark()
        with calibrated():
            s.train(gpu, item=False)
        if step % every == 0:
            gpu.loss_item()


# ---- both


def parts(s, cost):
    """The loop's time for batches, and for all else."""
    part = s.int("data_percent", 10, 90) / 100
    return cost * part, cost * (1 - part)


@job(data=LOADING, host="host_bound", rest=REST)
def subword_merges(s):
    """Translation: first a table of losses by length is written, at the end words are merged."""
    gpu_ms, cost = shares(s)
    data_ms, host_ms = parts(s, cost)
    gpu, chance, drop = s.gpu(gpu_ms), random.Random(11), s.ms("dropout", 0.02, 0.2)
    letters = "etaoinshrd"
    known = list(letters) + [a + b for a in letters for b in letters]
    ranks = {pair: chance.random() for pair in itertools.product(known, known)
             if chance.random() < 0.4}
    words = ["".join(chance.choices(letters, k=chance.randint(3, 14))) for _ in range(3000)]
    losses = [collections.deque((chance.random() for _ in range(48)), 48) for _ in range(20)]
    table, ids = io.StringIO(), []

    def merge():
        pieces = list(chance.choice(words))
        while True:
            pairs = [(ranks[p], i) for i, p in enumerate(zip(pieces, pieces[1:]))
                     if p in ranks and chance.random() > drop]
            if not pairs:
                ids.extend(hash(p) % 32000 for p in pieces)
                return
            i = min(pairs)[1]
            pieces[i:i + 2] = [pieces[i] + pieces[i + 1]]

    def line():
        bucket = chance.randrange(len(losses))
        order = sorted(losses[bucket])
        table.write("%5d %9.4f %9.4f %9.4f %-40s\n" % (
            bucket, statistics.fmean(order), order[24], order[-1], "#" * int(40 * order[24])))
    many, lines = often(merge, data_ms), often(line, host_ms)
    x = np.array(ids, np.int32)
    s.go()
    for n in itertools.count():
        s.mark()
        with s.during("host"):
            table.seek(0)
            table.truncate()
            loss = gpu.loss.value
            losses[n % len(losses)].append(loss if 0 <= loss <= 1 else 1.0)
            for _ in range(lines):
                line()
        s.train(gpu, x)
        with s.during("data"):
            ids.clear()
            for _ in range(many):
                merge()
            x = np.array(ids, np.int32)


@job(data=LOADING, host="host_bound", rest=REST)
def risk_sets(s):
    """Survival: events are set against patients at risk, then all are ranked; a thread packs."""
    gpu_ms, cost = shares(s)
    data_ms, host_ms = parts(s, cost)
    gpu, chance, rng = s.gpu(gpu_ms), random.Random(12), np.random.default_rng(12)
    patients, others = s.int("patients", 800, 4000), s.int("others", 4, 24)
    table = rng.random((patients, 16), np.float32)
    times = np.sort(rng.random(patients))
    risks, after = rng.random(patients), times.tolist()
    old, pause = rng.integers(0, 30, 1 << 20, np.uint8).tobytes(), s.ms("pause_ms", 1, 40) / 1e3

    def event():
        at = bisect.bisect(after, chance.random() * after[-others - 2])
        return table[[at] + chance.sample(range(at + 1, patients), others)]

    def agreement():
        at = chance.randrange(patients)
        later = times > times[at]
        return int(np.count_nonzero(later & (risks < risks[at]))), int(np.count_nonzero(later))

    def pack():
        while True:
            zlib.compress(old, 6)
            time.sleep(pause)
    events, ranked = often(event, data_ms), often(agreement, host_ms)
    threading.Thread(target=pack, daemon=True).start()
    s.go()
    while True:
        s.mark()
        with s.during("data"):
            x = np.stack([event() for _ in range(events)])
        s.train(gpu, x)
        with s.during("host"):
            pairs = [agreement() for _ in range(ranked)]
            risks[chance.randrange(patients)] = (sum(p[0] for p in pairs)
                                                 / max(sum(p[1] for p in pairs), 1))


class Percentiles:
    """A callback: how each channel's last outputs were spread."""
    def __init__(self, ms):
        self.window, self.n = np.random.default_rng(14).random((8, 512), np.float32), 0
        self.channels = often(self.channel, ms)

    def channel(self):
        self.n += 1
        return np.percentile(self.window[self.n % 8], (1, 25, 50, 75, 99))

    def after_step(self, loss):
        self.window[self.n % 8, self.n % 512] = loss
        for _ in range(self.channels):
            self.channel()


class Patience:
    """A callback: ends a run, and so begins the next, when the loss no longer falls."""
    def __init__(self, most):
        self.most, self.best, self.bad = most, math.inf, 0

    def after_step(self, loss):
        self.bad = 0 if loss < self.best else self.bad + 1
        if self.bad > self.most:
            self.best, self.bad = math.inf, 0
        self.best = min(self.best, loss)


@job(data=LOADING, host="host_bound", rest=REST)
def sonar_pings(s):
    """Echoes are simulated and transformed; callbacks follow, and each N steps an evaluation."""
    gpu_ms, cost = shares(s)
    data_ms, host_ms = parts(s, cost)
    gpu, rng, chance = s.gpu(gpu_ms), np.random.default_rng(13), random.Random(13)
    every, tests, length = s.int("every", 8, 40), s.int("tests", 1, 4), s.one("length", 1024, 2048)
    t = np.arange(length) / length
    chirp = np.fft.rfft(np.sin(2 * np.pi * (40 + 200 * t) * t) * (t < 0.1))

    def ping():
        echo = rng.normal(0, 0.05, length)
        echo[rng.integers(0, length, 6)] += rng.random(6)
        heard = np.fft.irfft(np.fft.rfft(echo) * chirp).reshape(16, -1)
        return np.log1p(np.abs(np.fft.rfft(heard, axis=1))).astype(np.float32)

    def area():
        """The area under the curve of some scores."""
        scores = sorted((chance.random(), chance.random() < 0.5) for _ in range(100))
        seen = won = 0
        for _, true in scores:
            seen, won = (seen, won + seen) if true else (seen + 1, won)
        return won / max(seen * (100 - seen), 1)
    pings, areas = often(ping, data_ms), often(area, s.ms("area_ms", 0.3, 6))
    callbacks = [Percentiles(host_ms), Patience(s.int("patience", 20, 200))]

    def evaluate():
        for _ in range(tests):
            s.mark("micro")
            gpu.forward()  # the test set is on the device
            gpu.loss_item()
            with s.during("host"):
                for _ in range(areas):
                    area()
    s.go()
    for n in itertools.count(1):
        s.mark()
        with s.during("data"):
            x = np.stack([ping() for _ in range(pings)])
        s.train(gpu, x)
        with s.during("host"):
            for callback in callbacks:
                callback.after_step(gpu.loss.value)
        if n % every == 0:
            evaluate()
