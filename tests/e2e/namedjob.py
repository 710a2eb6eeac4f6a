#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""A training loop that only its stack of Python explains: no files, no workers, no sockets.

    namedjob.py CUDART KIND SEED SECONDS

It obtains its batches by computing or sleeping, in one of several ways of writing a loop, or
works as much for itself; KIND says which. Prints READY, and at its end JSON: [monotonic s, s
in the iterator, s of the loop's own], noted at each step.
"""
import json
import random
import sys
import time

import job_gpu

NOTES, TOOK = [], [0.0, 0.0]
KINDS = ("generator", "map", "next", "enumerated", "sleeps", "metrics", "logger", "evaluation",
         "optimizer", "both")
DATA = KINDS[:5]


def timed(what):
    def wrap(f):
        def inner(*args):
            begin = time.monotonic()
            out = f(*args)
            TOOK[what] += time.monotonic() - begin
            return out
        return inner
    return wrap


def compute(seconds):
    end = time.thread_time() + seconds
    n = 0
    while time.thread_time() < end:
        n += 1
    return n


@timed(0)
def make(seconds):
    return compute(seconds)


@timed(0)
def fetch(seconds):
    time.sleep(seconds)


@timed(1)
def metrics(seconds):
    return compute(seconds)


@timed(1)
def log(seconds):
    time.sleep(seconds)


@timed(1)
def evaluate(seconds):
    return [compute(x) for x in (seconds / 4 for _ in range(4))]


@timed(1)
def update(seconds):
    for part in (seconds / 8 for _ in range(8)):
        compute(part)


def batches(seconds, get):
    while True:
        yield get(seconds)


class Loader:
    def __init__(self, seconds):
        self.seconds = seconds

    def __iter__(self):
        return self

    def __next__(self):
        return make(self.seconds)


class Loop:
    def __init__(self, gpu, kind, rnd, until):
        self.gpu, self.kind, self.until, self.steps = gpu, kind, until, 0
        self.work = rnd.uniform(0.015, 0.04)
        self.every = rnd.randint(4, 12)

    def step(self):
        gpu = self.gpu
        for k in range(20):
            gpu.check(gpu.lib.cudaLaunchKernel(gpu.kernels[0][k % 8], gpu.grid, gpu.block,
                                               gpu.args, 0, gpu.stream))
        gpu.check(gpu.lib.cudaStreamSynchronize(gpu.stream))
        self.steps += 1
        NOTES.append([time.monotonic()] + TOOK)
        if self.steps == 10:
            print("READY", flush=True)
        return time.monotonic() > self.until

    def own(self):
        if self.kind in ("metrics", "both"):
            metrics(self.work if self.kind == "metrics" else self.work / 3)
        elif self.kind == "logger" and self.steps % self.every == 0:
            log(self.work * self.every)
        elif self.kind == "evaluation" and self.steps % self.every == 0:
            evaluate(self.work * self.every)
        elif self.kind == "optimizer":
            update(self.work)

    def over(self, loader):
        for _ in loader:
            if self.step():
                return
            self.own()

    def by_next(self, loader):
        it = iter(loader)
        while not self.step():
            next(it)

    def run(self):
        if self.kind in ("generator", "both"):
            self.over(batches(self.work, make))
        elif self.kind == "map":
            self.over(map(make, iter(lambda: self.work, None)))
        elif self.kind == "next":
            self.by_next(Loader(self.work))
        elif self.kind == "enumerated":
            self.over(enumerate(zip(range(1 << 30), Loader(self.work))))
        elif self.kind == "sleeps":
            self.over(batches(self.work, fetch))
        else:
            self.over(range(1 << 30))


if __name__ == "__main__":
    Loop(job_gpu.Gpu(sys.argv[1], random.Random(sys.argv[3]).uniform(100, 400), 20, 4096),
         sys.argv[2], random.Random(sys.argv[3]), time.monotonic() + float(sys.argv[4])).run()
    print(json.dumps(NOTES))
