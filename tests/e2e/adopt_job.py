#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""The processes of adopt.py: a job, and who serves it from outside of its tree.

    adopt_job.py job DIR PORT           asks each service in a thread of its own
    adopt_job.py tcp PORT N MS          a service of N processes that take MS milliseconds
                                        for each request, and one that deals out
    adopt_job.py unix PATH | shm PATH   one process each
    adopt_job.py client PORT            asks the TCP service, too, and nobody else
    adopt_job.py signals PID | idle     bystanders

Everything runs until it is killed, or for a minute.
"""
import ctypes
import mmap
import os
import signal
import socket
import struct
import sys
import threading
import time

LIMIT_S = 60
WORK_S = 0.002
LIBC = ctypes.CDLL(None, use_errno=True)
FUTEX, WAIT, WAKE = 202, 0, 1


def answer(conn, seconds=WORK_S):
    while conn.recv(1):
        time.sleep(seconds)
        conn.sendall(b"x" * 4096)


def take(conn, size):
    while size:
        size -= len(conn.recv(size))


def ask(conn):
    while True:
        conn.sendall(b"?")
        take(conn, 4096)
        time.sleep(0.001)


# ---- services ---------------------------------------------------------------

def tcp(port, n, seconds):
    parts = []
    for _ in range(n):
        ours, theirs = socket.socketpair()
        if not os.fork():
            ours.close()
            for other in parts:
                other.close()
            answer(theirs, seconds)
            os._exit(0)
        theirs.close()
        parts.append(ours)
    with socket.create_server(("127.0.0.1", port)) as s:
        print("ready", flush=True)
        lock = threading.Lock()

        def serve(conn):
            with conn:
                turn = 0
                while conn.recv(1):
                    with lock:
                        part = parts[turn % n]
                        turn += 1
                        part.sendall(b"?")
                        take(part, 4096)
                    conn.sendall(b"x" * 4096)

        while True:
            conn, _ = s.accept()
            threading.Thread(target=serve, args=(conn,), daemon=True).start()


def unix(path):
    with socket.socket(socket.AF_UNIX) as s:
        s.bind(path)
        s.listen()
        print("ready", flush=True)
        while True:
            conn, _ = s.accept()
            threading.Thread(target=answer, args=(conn,), daemon=True).start()


class Words:
    """Two words in a file that processes share."""

    def __init__(self, path):
        with open(path, "r+b") as f:
            self.map = mmap.mmap(f.fileno(), 4096)
        self.at = ctypes.addressof(ctypes.c_char.from_buffer(self.map))

    def get(self, i):
        return struct.unpack_from("=I", self.map, 4 * i)[0]

    def raise_to(self, i, value):
        struct.pack_into("=I", self.map, 4 * i, value)
        LIBC.syscall(FUTEX, ctypes.c_void_p(self.at + 4 * i), WAKE, 1, None, None, 0)

    def await_change(self, i, old):
        while self.get(i) == old:
            LIBC.syscall(FUTEX, ctypes.c_void_p(self.at + 4 * i), WAIT, old, None, None, 0)


def shm(path):
    words = Words(path)
    print("ready", flush=True)
    seen = words.get(0)
    while True:
        words.await_change(0, seen)
        seen = words.get(0)
        time.sleep(WORK_S)
        words.raise_to(1, seen)


# ---- the job ------------------------------------------------------------------

def ask_tcp(port):
    ask(socket.create_connection(("127.0.0.1", port)))


def ask_unix(path):
    conn = socket.socket(socket.AF_UNIX)
    conn.connect(path)
    ask(conn)


def ask_shm(path):
    words, turn = Words(path), 0
    while True:
        turn += 1
        words.raise_to(0, turn)
        words.await_change(1, turn - 1)
        time.sleep(0.001)


def job(where, port):
    signal.signal(signal.SIGUSR1, lambda *_: None)
    for target, arg in ((ask_tcp, int(port)), (ask_unix, where + "/unix"),
                        (ask_shm, where + "/words")):
        threading.Thread(target=target, args=(arg,), daemon=True).start()
    if not os.fork():  # one of the tree, that wakes it like a service
        ask_unix(where + "/unix")
    print("ready", flush=True)
    while True:  # here the signals come in
        time.sleep(0.05)


def signals(pid):
    print("ready", flush=True)
    while True:
        os.kill(int(pid), signal.SIGUSR1)
        time.sleep(0.02)


def idle():
    print("ready", flush=True)
    time.sleep(LIMIT_S)


def main():
    signal.alarm(LIMIT_S)
    what, args = sys.argv[1], sys.argv[2:]
    if what == "tcp":
        tcp(int(args[0]), int(args[1]), float(args[2]) / 1e3)
    elif what == "client":
        print("ready", flush=True)
        ask_tcp(int(args[0]))
    else:
        {"unix": unix, "shm": shm, "job": job, "signals": signals, "idle": idle}[what](*args)


main()
