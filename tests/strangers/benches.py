# SPDX-License-Identifier: BSD-2-Clause
"""Loops without a loader: one thread computes all in memory, batches or something else."""
import bisect
import collections
import functools
import io
import itertools
import json
import math
import os
import random
import re
import threading
import time
import zlib

import numpy as np

from stranger import child, decode, job, parse

REST = "sync_bound launch_bound host_bound"


def sized(ms, unit):
    """How many calls of unit take about so many milliseconds on this machine."""
    unit()
    begin, n = time.thread_time_ns(), 0
    while time.thread_time_ns() < begin + 40e6:
        unit()
        n += 1
    return max(1, round(ms * 1e6 * n / (time.thread_time_ns() - begin)))


def shares(s, low=0.07, high=0.7):
    """A step's milliseconds on the device, and those in the loop's own code."""
    whole, device = s.ms("step_ms", 9, 90), s.ms("device_share", low, high)
    return whole * device, whole * (1 - device)


def down(gpu, array):
    gpu.check(gpu.lib.cudaMemcpy(array.ctypes.data, gpu.input, array.nbytes, 2))


def resident(gpu, array):
    """What lies on the device from the start."""
    gpu.upload(array.ctypes.data, array.nbytes)
    gpu.sync(True)


def burn():
    """Somebody's other script, with the lowest priority."""
    os.nice(19)
    while True:
        parse(40)


# ---- a batch is made at the top of the loop


PIECES = "PNBRQKpnbrqk"
STRAIGHT, SLANTED = [(0, 1), (1, 0), (0, -1), (-1, 0)], [(1, 1), (1, -1), (-1, 1), (-1, -1)]
RAYS = {"r": STRAIGHT, "b": SLANTED, "q": STRAIGHT + SLANTED}


def position(chance):
    return "/".join("".join(chance.choice(PIECES + "." * 20) for _ in range(8))
                    for _ in range(8))


def planes(text, out):
    """A plane for each piece, and two that count by how many a square is attacked."""
    out[:] = 0
    squares = {(y, x): c for y, line in enumerate(text.split("/"))
               for x, c in enumerate(line) if c != "."}
    for (y, x), c in squares.items():
        out[PIECES.index(c), y, x] = 1
        for dy, dx in RAYS.get(c.lower(), ()):
            v, u = y + dy, x + dx
            while 0 <= v < 8 and 0 <= u < 8:
                out[12 + c.islower(), v, u] += 1
                if (v, u) in squares:
                    break
                v, u = v + dy, u + dx


@job(data="main_thread_loading", host="host_bound", rest=REST)
def chess_planes(s):
    """Chess positions kept as text are turned into planes at the top of each step."""
    ms, own = shares(s)
    chance = random.Random(s.int("book_seed", 1, 1000))
    book = [position(chance) for _ in range(s.int("book", 200, 2000))]
    one = np.zeros((14, 8, 8), np.uint8)
    size = sized(own, lambda: planes(chance.choice(book), one))
    x = np.zeros((size, 14, 8, 8), np.uint8)
    gpu = s.gpu(ms, input_bytes=x.nbytes)
    s.go()
    while True:
        s.mark()
        with s.during("data"):
            for out in x:
                planes(chance.choice(book), out)
        s.train(gpu, x)


def corrupt(fact, facts, entities, many, chance):
    """A fact, and so many like it that are not known to be true."""
    head, relation, tail = fact
    row = [head, relation, tail]
    while len(row) < 3 + many:
        other = chance.randrange(entities)
        false = (other, relation, tail) if chance.random() < 0.5 else (head, relation, other)
        if false not in facts:
            row.append(other)
    return row


@job(data="main_thread_loading", host="host_bound", rest=REST)
def corrupt_triples(s):
    """Link prediction: a generator draws false triples for true ones; a niced script runs too."""
    ms, own = shares(s)
    child(burn)
    entities, many = s.int("entities", 500, 5000), s.int("negatives", 8, 48)
    chance = random.Random(s.int("graph_seed", 1, 1000))
    known = [(chance.randrange(entities), chance.randrange(20), chance.randrange(entities))
             for _ in range(20000)]
    facts = set(known)

    def one():
        return corrupt(chance.choice(known), facts, entities, many, chance)
    size, every = sized(own, one), s.int("report_every", 10, 40)

    def batches():
        while True:
            yield np.array([one() for _ in range(size)], np.int32)
    gpu, source, losses = s.gpu(ms), batches(), collections.deque(maxlen=100)
    log = io.StringIO()
    s.go()
    for n in itertools.count(1):
        s.mark()
        with s.during("data"):
            x = next(source)
        s.train(gpu, x)
        losses.append(gpu.loss.value)
        if n % every == 0:
            with s.during("host"):
                log.seek(0)
                log.write(" ".join("%.4f" % v for v in sorted(losses)))


UNARY, BINARY = ["sin", "cos", "tanh"], ["+", "-", "*"]


def grow(chance, depth):
    """A random formula of one variable."""
    if depth == 0 or chance.random() < 0.1:
        return chance.choice(["x", round(chance.uniform(-3, 3), 2)])
    if chance.random() < 0.3:
        return chance.choice(UNARY), grow(chance, depth - 1)
    return chance.choice(BINARY), grow(chance, depth - 1), grow(chance, depth - 1)


def value(tree, x):
    if tree == "x":
        return x
    if not isinstance(tree, tuple):
        return np.full_like(x, tree)
    args = [value(t, x) for t in tree[1:]]
    if tree[0] in UNARY:
        return getattr(np, tree[0])(args[0])
    if tree[0] == "*":
        return np.tanh(args[0]) * args[1]
    return args[0] + args[1] if tree[0] == "+" else args[0] - args[1]


@job(data="main_thread_loading", host="host_bound", rest=REST)
def grown_formulas(s):
    """Symbolic regression: formulas are grown and evaluated, for one micro-batch after another."""
    ms, own = shares(s, high=0.42)
    chance, depth = random.Random(s.int("formula_seed", 1, 1000)), s.int("depth", 3, 5)
    micro, points = s.int("micro", 2, 4), np.linspace(-2, 2, 64, dtype=np.float32)

    def sample(_):
        return value(grow(chance, depth), points)
    size = sized(own / micro, lambda: sample(0))
    gpu = s.gpu(ms / micro)
    s.go()
    for _epoch in itertools.count():
        for _step in range(100):
            s.mark()
            for _ in range(micro):
                s.mark("micro")
                with s.during("data"):
                    x = np.stack(list(map(sample, range(size))))
                gpu.upload(x.ctypes.data, x.nbytes)
                gpu.forward()
                gpu.backward()
            gpu.optimizer()
            gpu.loss_item()


# ---- a batch is made elsewhere in the loop's body


def blend(images, i, k, weight, shift):
    """Two pictures in one; the second is mirrored and moved, and has a hole."""
    other = np.roll(images[k][:, ::-1], (shift, shift), (0, 1)).astype(np.float32)
    other[shift:shift + 16, shift:shift + 16] = 0
    both = images[i] * np.float32(weight) + other * np.float32(1 - weight)
    curve = np.power(both / np.float32(255), np.float32(0.5 + weight))
    return (curve * 255).astype(np.uint8)


@job(data="main_thread_loading", host="host_bound", rest=REST)
def blend_midway(s):
    """Pictures in memory are mixed in pairs for the next step, between forward and backward."""
    ms, own = shares(s, high=0.6)
    side, chance = s.one("side", 48, 64, 80), random.Random(s.int("mix_seed", 1, 1000))
    images = np.random.default_rng(2).integers(0, 255, (300, side, side, 3), np.uint8)

    def sample():
        return blend(images, chance.randrange(300), chance.randrange(300),
                     chance.betavariate(0.4, 0.4), chance.randrange(side - 16))
    size = sized(own, sample)

    def batch():
        return np.stack([sample() for _ in range(size)])
    x = batch()
    gpu = s.gpu(ms, input_bytes=min(x.nbytes, 8 << 20))
    s.go()
    while True:
        s.mark()
        gpu.upload(x.ctypes.data, x.nbytes)
        gpu.forward()
        with s.during("data"):
            following = batch()
        gpu.backward()
        gpu.optimizer()
        gpu.loss_item()
        x = following


LINE = re.compile(r"(\d+)-(\d+)-(\d+) (\d+):(\d+):(\d+) (\w+) ([\w.]+)\[(\d+)\]: (\{.*\})$")
LEVELS = {"DEBUG": 0, "INFO": 1, "WARNING": 2, "ERROR": 3}


def log_line(chance):
    body = json.dumps({"took": chance.random(), "path": "/a/%d" % chance.randrange(99),
                       "codes": [chance.randrange(600) for _ in range(6)]})
    return "2021-%02d-%02d %02d:%02d:%02d %s unit.%s[%d]: %s" % (
        chance.randint(1, 12), chance.randint(1, 28), chance.randrange(24),
        chance.randrange(60), chance.randrange(60), chance.choice(list(LEVELS)),
        chance.choice("abcdef"), chance.randrange(30000), body)


def features(line):
    got = LINE.match(line).groups()
    body = json.loads(got[9])
    words = [zlib.crc32(w.encode()) % 4096 for w in (got[7], body["path"])]
    return ([int(v) for v in got[:6]] + [LEVELS[got[6]], int(got[8])] + words
            + [body["took"]] + body["codes"])


@job(data="main_thread_loading", host="host_bound", rest=REST)
def parsed_lines(s):
    """Anomalies in logs: a trainer's methods parse the next lines after the optimizer's launch."""
    ms, own = shares(s, high=0.42)
    chance = random.Random(s.int("log_seed", 1, 1000))
    lines = [log_line(chance) for _ in range(4000)]
    size, every = sized(own, lambda: features(chance.choice(lines))), s.int("every", 20, 60)

    class Trainer:
        def __init__(self):
            self.gpu, self.done, self.mean = s.gpu(ms), 0, 0.0
            self.batch = self.prepare()

        def prepare(self):
            with s.during("data"):
                rows = [features(chance.choice(lines)) for _ in range(size)]
                return np.array(rows, np.float32)

        def training_step(self):
            self.gpu.upload(self.batch.ctypes.data, self.batch.nbytes)
            self.gpu.forward()
            self.gpu.backward()
            self.gpu.optimizer()

        def finish(self):
            self.gpu.loss_item()
            self.done += 1
            if self.done % every == 0:
                with s.during("host"):
                    self.mean = float(self.batch.mean())

        def fit(self):
            while True:
                s.mark()
                self.training_step()
                self.batch = self.prepare()
                self.finish()
    trainer = Trainer()
    s.go()
    trainer.fit()


# ---- a batch, and something else


def swing(state):
    """Double pendulums: how angles and speeds change."""
    a, b, va, vb = state
    d = a - b
    below = 3 - np.cos(2 * d)
    return np.stack([va, vb, (-19.6 * np.sin(a) - 9.8 * np.sin(a - 2 * b) - 2 * np.sin(d)
                              * (vb * vb + va * va * np.cos(d))) / below,
                     2 * np.sin(d) * (2 * va * va + 19.6 * np.cos(a)
                                      + vb * vb * np.cos(d)) / below])


def advance(state, h=0.002):
    k1 = swing(state)
    k2 = swing(state + h / 2 * k1)
    k3 = swing(state + h / 2 * k2)
    return state + h / 6 * (k1 + 2 * k2 + 2 * k3 + swing(state + h * k3))


@job(data="main_thread_loading", host="host_bound", rest=REST)
def pendulum_paths(s):
    """The loop averages the last weights at its top, and simulates pendulums at its end."""
    ms, own = shares(s)
    part, systems = s.ms("paths_part", 0.2, 0.8), s.int("systems", 64, 512)
    rng = np.random.default_rng(s.int("start_seed", 1, 1000))

    def start():
        return rng.uniform(-2, 2, (4, systems))
    first = start()
    steps = sized(own * part, lambda: advance(first))
    some = rng.standard_normal((9, 1024), np.float32)
    tensors = sized(own * (1 - part), lambda: np.median(some, 0))
    last = np.zeros((9, tensors, 1024), np.float32)
    shadow = np.zeros((tensors, 1024), np.float32)
    gpu = s.gpu(ms, input_bytes=max(shadow.nbytes, 1 << 20))
    resident(gpu, rng.standard_normal((tensors, 1024), np.float32))

    def simulate():
        state, path = start(), []
        for n in range(steps):
            state = advance(state)
            if n % 8 == 0:
                path.append(state)
        return np.array(path, np.float32)
    x = simulate()
    s.go()
    for n in itertools.count():
        s.mark()
        down(gpu, last[n % 9])
        with s.during("host"):
            for k in range(tensors):
                shadow[k] += 0.1 * (np.median(last[:, k], 0) - shadow[k])
        s.train(gpu, x)
        with s.during("data"):
            x = simulate()


class SumTree:
    """Priorities of transitions, and the sums above them."""

    def __init__(self, leaves):
        self.leaves, self.sums = leaves, [0.0] * (2 * leaves)
        for n in range(leaves):
            self.set(n, 1.0)

    def set(self, n, priority):
        n += self.leaves
        change = priority - self.sums[n]
        while n:
            self.sums[n] += change
            n //= 2

    def find(self, mass):
        n = 1
        while n < self.leaves:
            n *= 2
            if mass > self.sums[n]:
                mass -= self.sums[n]
                n += 1
        return n - self.leaves


@job(data="main_thread_loading", host="host_bound", rest=REST)
def sum_tree(s):
    """Replay lies on the device: a tree of priorities draws its rows, then takes their errors."""
    ms, own = shares(s)
    chance, tree = random.Random(s.int("tree_seed", 1, 1000)), SumTree(1 << s.int("bits", 12, 15))
    surplus, spread = s.int("draws_of_each", 1, 8), s.int("neighbours", 1, 8)

    def draw():
        return max(tree.find(chance.random() * tree.sums[1]) for _ in range(surplus))

    def update(n, error):
        for k in range(spread):
            tree.set((n + k) % tree.leaves, (0.01 + error) * 0.8 ** k)
    size = sized(own, lambda: update(draw(), chance.random()))
    gpu = s.gpu(ms, input_bytes=max(1 << 20, 8 * size))
    resident(gpu, np.random.default_rng(3).random(1 << 18, np.float32))
    errors = np.zeros(size, np.float32)
    s.go()
    while True:
        s.mark()
        with s.during("data"):
            rows = np.array([draw() for _ in range(size)], np.int32)
        s.train(gpu, rows)
        down(gpu, errors)
        with s.during("host"):
            found = np.clip(np.abs(np.nan_to_num(errors)), 0, 1).tolist()
            for n, error in zip(rows.tolist(), found):
                update(n, error * 0.5 + chance.random() * 0.5)


def regrade(grades, loss):
    """Each topic's moving grade, and the weights that follow from all of them."""
    rank = {k: n for n, k in enumerate(sorted(grades, key=grades.get))}
    weights, total = [], 0.0
    for k, grade in grades.items():
        grades[k] = 0.98 * grade + 0.02 * abs(math.sin(k * loss))
        total += math.exp(-3 * abs(rank[k] / len(grades) - 0.6)) * (1.1 - grade)
        weights.append(total)
    return weights


@job(data="main_thread_loading", host="host_bound", rest=REST)
def lesson_plan(s):
    """Exercises by topic: first all grades are worked out anew, then packed exercises opened."""
    ms, own = shares(s)
    part, topics = s.ms("plan_part", 0.15, 0.8), s.int("topics", 40, 200)
    chance, epoch = random.Random(s.int("lesson_seed", 1, 1000)), s.int("epoch", 50, 300)
    book = [zlib.compress(json.dumps({"text": [chance.randrange(9999) for _ in range(200)],
                                      "topic": k}).encode()) for k in range(topics)]
    subjects = [{k: chance.random() for k in range(topics)} for _ in range(8)]
    rounds = sized(own * part, lambda: regrade(subjects[0], 1.0))

    def exercise(weights):
        k = bisect.bisect_left(weights, chance.random() * weights[-1])
        return json.loads(zlib.decompress(book[min(k, topics - 1)]))["text"]
    weights = regrade(subjects[0], 1.0)
    size = sized(own * (1 - part), lambda: exercise(weights))
    gpu = s.gpu(ms)
    s.go()
    for _ in itertools.count():
        seen = 0
        for _ in range(epoch):
            s.mark()
            with s.during("host"):
                for n in range(rounds):
                    weights = regrade(subjects[n % 8], chance.random())
            with s.during("data"):
                x = np.array([exercise(weights) for _ in range(size)], np.int32)
            s.train(gpu, x)
            seen += len(x)


# ---- nothing of the kind: the data lies on the device


def misfit(losses, power):
    """How far the losses are from falling with this power of the step."""
    xs = [(n + 1.0) ** -power for n in range(len(losses))]
    x_mean, mean = sum(xs) / len(xs), sum(losses) / len(xs)
    slope = (sum((x - x_mean) * (y - mean) for x, y in zip(xs, losses))
             / sum((x - x_mean) ** 2 for x in xs))
    return sum((y - mean - slope * (x - x_mean)) ** 2 for x, y in zip(xs, losses))


@job(host="host_bound", rest=REST)
def fitted_rate(s):
    """A curve is fitted to the last losses at the top of each step, for the learning rate."""
    ms, own = shares(s)
    chance, window = random.Random(s.int("loss_seed", 1, 1000)), s.int("window", 50, 250)
    losses = collections.deque((2 / (n + 1) + chance.random() / 9 for n in range(window)), window)
    tries = sized(own, lambda: misfit(losses, 0.5))
    powers, rate = [0.1 + 0.9 * n / tries for n in range(tries)], np.zeros(1, np.float32)
    gpu = s.gpu(ms)
    resident(gpu, np.zeros(1 << 18, np.float32))
    s.go()
    while True:
        s.mark()
        with s.during("host"):
            rate[0] = 1e-3 * min(powers, key=lambda p: misfit(losses, p))
        s.train(gpu, rate)
        losses.append(chance.random() / 9)


def alike(a, b):
    """Whether two heads say the same, or one of them nothing sensible."""
    lost = not (np.isfinite(a).all() and np.isfinite(b).all())
    near = (a * b).sum() / np.sqrt((a * a).sum() * (b * b).sum() + 1e-9)
    apart = np.abs(np.sort(a) - np.sort(b)).max()
    return bool(lost or near > 0.999 or apart < 1e-6 or zlib.crc32(a) == zlib.crc32(b))


@job(host="host_bound", rest=REST)
def stale_checks(s):
    """An ensemble: what its heads said in the last step is compared before the next one begins."""
    ms, own = shares(s)
    child(burn)
    heads, width = s.int("heads", 8, 64), s.one("width", 512, 1024, 2048)
    chance = random.Random(s.int("pair_seed", 1, 1000))
    said = np.random.default_rng(4).standard_normal((heads, width), np.float32)
    pairs = sized(own, lambda: alike(said[0], said[1]))
    gpu = s.gpu(ms)
    resident(gpu, said)
    collapsed = 0
    s.go()
    while True:
        s.mark()
        with s.during("host"):
            for _ in range(pairs):
                i, k = chance.sample(range(heads), 2)
                collapsed += alike(said[i], said[k])
        s.train(gpu)
        down(gpu, said)


def wins(columns, col, who):
    """Whether the last stone of this column is one of four in a line."""
    row = len(columns[col]) - 1
    for dc, dr in ((1, 0), (0, 1), (1, 1), (1, -1)):
        line = 1
        for sign in (1, -1):
            c, r = col + sign * dc, row + sign * dr
            while 0 <= c < 7 and 0 <= r < len(columns[c]) and columns[c][r] == who:
                line, c, r = line + 1, c + sign * dc, r + sign * dr
        if line >= 4:
            return True
    return False


def prospect(columns, who, depth):
    """What the best move is worth, by trying all of them."""
    best = -1
    for col in range(7):
        if len(columns[col]) < 6:
            columns[col].append(who)
            if wins(columns, col, who):
                worth = 1
            else:
                worth = -prospect(columns, -who, depth - 1) if depth else 0
            columns[col].pop()
            best = max(best, worth)
    return best


class Game:
    def __init__(self, chance):
        self.chance, self.score = chance, 0.0
        self.columns, self.who = [[] for _ in range(7)], 1

    def move(self):
        open_columns = [c for c in range(7) if len(self.columns[c]) < 6]
        rated = []
        for col in open_columns:
            self.columns[col].append(self.who)
            worth = -prospect(self.columns, -self.who, 0)
            self.columns[col].pop()
            rated.append((worth, self.chance.random(), col))
        col = max(rated)[2]
        self.columns[col].append(self.who)
        won = wins(self.columns, col, self.who)
        if won or all(len(c) == 6 for c in self.columns):
            self.score = 0.9 * self.score + 0.1 * self.who * won
            self.columns, self.who = [[] for _ in range(7)], -1
        self.who = -self.who


@job(host="host_bound", rest=REST)
def played_score(s):
    """The policy learns from games on the device; after each step a match in Python rates it."""
    ms, own = shares(s)
    game, score = Game(random.Random(s.int("game_seed", 1, 1000))), np.zeros(2, np.float32)
    moves = sized(own, game.move)
    gpu = s.gpu(ms)
    resident(gpu, np.zeros(1 << 18, np.float32))
    s.go()
    while True:
        s.mark()
        s.train(gpu, score)
        with s.during("host"):
            for _ in range(moves):
                game.move()
            score[:] = game.score, game.score ** 2


def describe(layer, rng):
    """A layer's gradient in numbers, with the error of its norm by resampling."""
    again = layer[rng.integers(0, len(layer), len(layer))]
    _, exponents = np.frexp(layer)
    spectrum = np.bincount(np.clip(exponents + 150, 0, 300), minlength=301)
    middle = np.partition(np.abs(again), len(again) // 2)[len(again) // 2]
    norms = math.sqrt(float((layer * layer).sum())), math.sqrt(float((again * again).sum()))
    return norms[0], abs(norms[0] - norms[1]), float(middle), int(spectrum.argmax())


def then(more):
    """A decorator: more is called after each call."""
    def wrap(f):
        @functools.wraps(f)
        def both(*args):
            f(*args)
            more()
        return both
    return wrap


@job(host="host_bound", rest=REST)
def gradient_census(s):
    """A hook on backward reads the gradients and describes each layer; a thread packs files."""
    ms, own = shares(s)
    layers, width = s.int("layers", 12, 96), s.one("width", 2048, 4096, 8192)
    rng = np.random.default_rng(s.int("noise_seed", 1, 1000))
    grads = rng.standard_normal((layers, width), np.float32)
    times = sized(own, lambda: describe(grads[0], rng))
    gpu = s.gpu(ms, input_bytes=grads.nbytes)
    resident(gpu, grads)
    pack, pause = s.ms("pack_ms", 2, 20), s.ms("pause_ms", 10, 80) / 1e3
    history = collections.deque(maxlen=2000)

    def packing():
        while True:
            decode(pack)
            time.sleep(pause)

    def census():
        down(gpu, grads)
        with s.during("host"):
            for n in range(times):
                history.append(describe(grads[n % layers], rng))

    @then(census)
    def backward():
        gpu.backward()
    threading.Thread(target=packing, daemon=True).start()
    s.go()
    while True:
        s.mark()
        gpu.forward()
        backward()
        gpu.optimizer()


def class_line(k, truth, told, scores):
    """A class's line in the report: precision, recall, and the area under its curve."""
    hit = sum(t == k and g == k for t, g in zip(truth, told))
    said, real = told.count(k), truth.count(k)
    order = sorted(range(len(scores)), key=scores.__getitem__)
    ranks = sum(n for n, i in enumerate(order, 1) if truth[i] == k)
    area = (ranks - real * (real + 1) / 2) / max(real * (len(truth) - real), 1)
    return "class-%-6d %8.4f %8.4f %8.4f %6d\n" % (k, hit / max(said, 1), hit / max(real, 1),
                                                  area, real)


@job(host="host_bound", rest=REST + " lock_bound", beside="lock_bound")
def class_report(s):
    """Callbacks report on the last step before the next one; evaluations; a thread in Python."""
    ms, own = shares(s)
    chance, samples = random.Random(s.int("label_seed", 1, 1000)), s.int("samples", 150, 600)
    truth = [chance.randrange(20) for _ in range(samples)]
    told = [chance.randrange(20) for _ in range(samples)]
    out = np.random.default_rng(5).standard_normal(samples, np.float32)
    classes = sized(own, lambda: class_line(3, truth, told, out.tolist()))
    every, passes = s.int("eval_every", 20, 80), s.int("eval_passes", 2, 6)
    tick, pause = s.ms("tick_ms", 0.5, 3), s.ms("pause_ms", 20, 90) / 1e3
    gpu = s.gpu(ms, launches=s.int("launches", 4, 14))
    resident(gpu, out)

    def ticking():
        while True:
            parse(tick)  # a dashboard's thread
            time.sleep(pause)

    class Callback:
        def before_step(self, n):
            pass

        def after_step(self, n):
            pass

    class Report(Callback):
        def before_step(self, n):
            with s.during("host"):
                text, scores = io.StringIO(), out.tolist()
                for k in range(classes):
                    text.write(class_line(k % 20, truth, told, scores))
                self.text = text.getvalue()

    class Evaluate(Callback):
        def after_step(self, n):
            if n % every:
                return
            for _ in range(passes):
                s.mark("micro")
                gpu.forward()
                gpu.loss_item()
            with s.during("host"):
                self.first = class_line(0, truth, told, out.tolist())
    callbacks = [Report(), Evaluate()]
    threading.Thread(target=ticking, daemon=True).start()
    s.go()
    for n in itertools.count(1):
        s.mark()
        for c in callbacks:
            c.before_step(n)
        s.train(gpu)
        down(gpu, out)
        for c in callbacks:
            c.after_step(n)


def density(points, x, width):
    return sum(math.exp(-0.5 * ((x - p) / width) ** 2) for p in points) / len(points) + 1e-9


@job(host="host_bound", rest=REST)
def halving_rungs(s):
    """Successive halving by recursion; each step is weighed against all earlier trials."""
    ms, own = shares(s)
    chance, trials = random.Random(s.int("search_seed", 1, 1000)), s.one("trials", 4, 8, 16)
    past, first = s.int("past", 40, 240), s.int("first_steps", 3, 20)
    good = [chance.gauss(-3, 0.4) for _ in range(past)]
    bad = [chance.gauss(-2, 1.5) for _ in range(past)]

    def promise(x):
        return density(good, x, 0.3) / density(bad, x, 0.3)
    many = sized(own, lambda: promise(chance.uniform(-5, 0)))
    gpu = s.gpu(ms)
    resident(gpu, np.zeros(1 << 18, np.float32))

    def trial(rate, steps):
        settings, score = np.array([rate, 0.9, 0.999], np.float32), 0.0
        gpu.upload(settings.ctypes.data, settings.nbytes)
        for _ in range(steps):
            s.mark()
            s.train(gpu)
            with s.during("host"):  # would another one be better?
                score = max(promise(chance.uniform(-5, 0)) for _ in range(many))
        return score * chance.random()

    def rung(rates, steps):
        scores = sorted((trial(rate, steps), rate) for rate in rates)
        kept = [rate for _, rate in scores[len(scores) // 2:]]
        if len(kept) > 1:
            rung(kept, 2 * steps)
    s.go()
    while True:
        rung([chance.uniform(-5, 0) for _ in range(trials)], first)
