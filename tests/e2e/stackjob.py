# SPDX-License-Identifier: BSD-2-Clause
"""The job that stack.py looks at, in any CPython from 3.8 on.

    stackjob.py still METHOD    every thread stays where it is; prints what its frames are
    stackjob.py sleeping SECONDS  sleeps of 20 to 400 ms, by three lines
    stackjob.py moving SECONDS  functions that compute, sleep, read and wait for a lock in
                                turn; prints how long each took, by its own clocks

    stackjob.py crowd N         N processes

METHOD: plain, fork, spawn or forkserver: where a second process comes from. What is
printed is a line of JSON for each thread, or the sums of one in the end.
"""
import json
import multiprocessing
import os
import random
import sys
import threading
import time

HELD = threading.Lock()
READ, WRITE = os.pipe()


def tell(depth=1):
    """This thread's frames as the interpreter has them, the innermost first."""
    frames, f = [], sys._getframe(depth)
    while f:
        code = f.f_code
        frames.append([getattr(code, "co_qualname", code.co_name), code.co_filename, f.f_lineno])
        f = f.f_back
    tid = threading.get_native_id()
    os.write(1, (json.dumps({"pid": os.getpid(), "tid": tid, "frames": frames}) + "\n").encode())


# ---- still: each way to be somewhere ------------------------------------------------------

def a_sleep():
    tell(); time.sleep(1000)  # noqa: E702 -- the line told and the line slept on are one


class Reader:
    def a_read(self):
        tell(); os.read(READ, 1)  # noqa: E702

    def __call__(self):
        self.a_read()


def a_lock():
    def inner():
        tell(); HELD.acquire()  # noqa: E702
    inner()


def a_generator():
    def items():
        for i in range(10):
            tell(); time.sleep(1000)  # noqa: E702
            yield i
    for _ in items():
        pass


def a_comprehension():
    return [(tell(), time.sleep(1000)) for _ in range(1)]


def a_key():
    """Python, C (sort), Python."""
    def key(_):
        tell(); time.sleep(1000)  # noqa: E702
    return sorted([2, 1], key=key)


def a_recursion(n=150):
    if n:
        return a_recursion(n - 1)
    tell(); time.sleep(1000)  # noqa: E702


def a_string():
    exec(compile("def of_a_string():\n\n    tell(); time.sleep(1000)\nof_a_string()",
                 "<made of a string>", "exec"), globals())


def nicht_ascii_ü():
    tell(); time.sleep(1000)  # noqa: E702


def a_long_body():
    x = 0
    # lines far apart, in the table's long forms





































































































































































































    x += (1 +
          2); tell(); time.sleep(1000)  # noqa: E702
    return x


WAYS = (a_sleep, Reader(), a_lock, a_generator, a_comprehension, a_key, a_recursion, a_string,
        nicht_ascii_ü, a_long_body)


def stay():
    HELD.acquire()
    threads = [threading.Thread(target=w, daemon=True) for w in WAYS]
    for t in threads:
        t.start()
    tell(); time.sleep(1000)  # noqa: E702


def still(method):
    if method != "plain":
        context = multiprocessing.get_context(method)
        context.Process(target=stay, daemon=True).start()
    stay()


# ---- moving: known times -------------------------------------------------------------------

SUMS = {}


def timed(what):
    begin = time.monotonic()
    what()
    SUMS[what.__name__] = SUMS.get(what.__name__, 0) + time.monotonic() - begin


def compute_much():
    end = time.monotonic() + 0.009
    while time.monotonic() < end:
        sum(i * i for i in range(200))


def compute_little():
    end = time.monotonic() + 0.003
    while time.monotonic() < end:
        sorted(range(500), key=lambda x: -x)


def sleep_some():
    time.sleep(0.005)


def read_some():
    os.read(READ, 1)


def feeder(reader):
    while os.getppid() == reader:
        time.sleep(0.025)
        os.write(WRITE, b"x")


def sleep_in_a_loop():
    for _ in range(3):
        time.sleep(random.uniform(0.02, 0.2))


def sleep_for_a_lock():
    lock = threading.Lock()
    lock.acquire()
    lock.acquire(timeout=random.uniform(0.1, 0.4))


def in_turn(seconds, *functions):
    tell()
    sys.stdin.readline()  # until somebody looks
    begin = time.monotonic()
    while time.monotonic() < begin + seconds:
        for f in functions:
            timed(f)
    print(json.dumps({"seconds": time.monotonic() - begin, "sums": SUMS}), flush=True)


def crowd(n):
    """Processes that compute a little and sleep; they end with this one."""
    me = os.getpid()
    for _ in range(n):
        if not os.fork():
            while os.getppid() == me:
                compute_little()
                time.sleep(0.5)
            return
    tell()
    time.sleep(1000)


if __name__ == "__main__":
    if sys.argv[1] == "still":
        still(sys.argv[2])
    elif sys.argv[1] == "crowd":
        crowd(int(sys.argv[2]))
    elif sys.argv[1] == "sleeping":
        in_turn(float(sys.argv[2]), sleep_in_a_loop, compute_much, sleep_for_a_lock)
    else:
        me = os.getpid()
        if os.fork():  # the feeder is a process, so that no lock of the interpreter is shared
            in_turn(float(sys.argv[2]), compute_much, compute_little, sleep_some, read_some)
        else:
            feeder(me)
