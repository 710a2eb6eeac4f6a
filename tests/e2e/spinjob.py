#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""Threads or processes that compute in three functions, for times that they know themselves.

    spinjob.py thread|fork|spawn N

Prints READY and its pid. For each line on standard input it prints what they took so far, s of
their own CPU time: heavy, middle, light of each in turn. The end of the input ends it. Any CPython
from 3.8 on runs it.
"""
import json
import multiprocessing
import os
import random
import sys
import threading
import time

CPU = time.thread_time


def heavy(until):
    n = 0
    while CPU() < until:
        n = n * 3 + 1 & 0xffff
    return n


def middle(until):
    n = 0
    while CPU() < until:
        n = n * 5 + 1 & 0xffff
    return n


def light(until):
    n = 0
    while CPU() < until:
        n = n * 7 + 1 & 0xffff
    return n


def deep(levels, until):
    return deep(levels - 1, until) if levels else light(until)


def work(sums, i):
    own = random.Random(i)
    # shorter than the time between two samples, so that each tells something new
    parts = (heavy, 0.0018), (middle, 0.0009), (lambda t: deep(10, t), 0.0003)
    while True:
        for k, (part, mean) in enumerate(parts):
            begin = CPU()
            # of many lengths, so that no clock keeps step with them
            part(begin + mean * own.uniform(0.5, 1.5))
            sums[3 * i + k] += CPU() - begin
        if own.random() < 0.02:
            time.sleep(0.003)


def start(method, n):
    if method == "thread":
        sums = [0.0] * 3 * n
        made = [threading.Thread(target=work, args=(sums, i), daemon=True) for i in range(n)]
    else:
        ctx = multiprocessing.get_context(method)
        sums = ctx.Array("d", 3 * n, lock=False)
        made = [ctx.Process(target=work, args=(sums, i), daemon=True) for i in range(n)]
    for m in made:
        m.start()
    return sums, made


def main():
    sums, made = start(sys.argv[1], int(sys.argv[2]))
    while not all(sums):
        time.sleep(0.05)
    print("READY %d" % os.getpid(), flush=True)
    for _ in sys.stdin:
        print(json.dumps(list(sums)), flush=True)
    for m in made:
        if sys.argv[1] != "thread":
            m.kill()
    os._exit(0)


if __name__ == "__main__":
    main()
