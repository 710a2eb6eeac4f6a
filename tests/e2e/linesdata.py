# SPDX-License-Identifier: BSD-2-Clause
"""The dataset of linesjob.py: where each function's time goes is known to itself."""
import multiprocessing
import time

CPU, WALL = time.thread_time, time.monotonic
# s: augment and decode on a core, fetch in its sleep and the way back, the sleep alone
SUMS = multiprocessing.get_context("spawn").Array("d", 4)


def charge(i, seconds):
    with SUMS.get_lock():
        SUMS[i] += seconds


class RandomAugment:
    def __call__(self, x):
        begin = CPU()
        while CPU() < begin + 0.006: x = -x  # noqa: E701  one line has it all
        charge(0, CPU() - begin)
        return x


class Decode:
    def __call__(self, x):
        begin = CPU()
        while CPU() < begin + 0.002: x = -x  # noqa: E701
        charge(1, CPU() - begin)
        return x


def fetch(x):
    begin = WALL()
    time.sleep(0.01)
    charge(2, WALL() - begin)
    charge(3, 0.01)
    return x


class Images:
    def __init__(self):
        self.sums = SUMS  # a spawned worker is handed it
        self.steps = [fetch, Decode(), RandomAugment()]

    def __len__(self):
        return 1000000

    def __getitem__(self, i):
        global SUMS
        SUMS = self.sums
        x = float(i)
        for step in self.steps:
            x = step(x)
        return x
