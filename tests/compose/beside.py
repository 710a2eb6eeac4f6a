# SPDX-License-Identifier: BSD-2-Clause
"""What a training loop waits for that is no data: each kind has once(), which the
trainer calls every so many steps, and takes about so long."""

import concurrent.futures
import ctypes
import fcntl
import http.client
import multiprocessing
import os
import queue
import signal
import socket
import threading
import time

from journal import die_with_parent
from work import compute

GRADIENTS = 1 << 20
PIPE_BYTES = 4096
F_SETPIPE_SZ = 1031


def child(target, *args):
    if os.fork():
        return
    die_with_parent()
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        target(*args)
    finally:
        os._exit(0)


def receive(conn, size):
    got = bytearray(size)
    view = memoryview(got)
    while len(view):
        n = conn.recv_into(view)
        if not n:
            os._exit(0)
        view = view[n:]
    return got


class Http:
    """A logger that posts the losses and waits until they are written down."""

    def __init__(self, gpu, ms):
        listener = socket.create_server(("127.0.0.1", 0))
        child(self.serve, listener, ms)
        self.conn = http.client.HTTPConnection(*listener.getsockname())
        listener.close()

    @staticmethod
    def serve(listener, ms):
        conn, _ = listener.accept()
        f = conn.makefile("rb")
        while f.readline():
            size = 0
            for line in iter(f.readline, b"\r\n"):
                if line.lower().startswith(b"content-length:"):
                    size = int(line.split(b":")[1])
            f.read(size)
            time.sleep(ms / 1e3)
            conn.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")

    def once(self):
        self.conn.request("POST", "/log", b'{"loss": 1.25}' * 20)
        self.conn.getresponse().read()


class Exchange:
    """A server that keeps the parameters: gradients there, parameters back."""

    def __init__(self, gpu, ms):
        listener = socket.create_server(("127.0.0.1", 0))
        child(self.serve, listener, ms)
        self.conn = socket.create_connection(listener.getsockname())
        listener.close()
        self.gpu, self.on_device = gpu, ctypes.c_void_p()
        gpu.check(gpu.lib.cudaMalloc(ctypes.byref(self.on_device), GRADIENTS))
        self.buffer = (ctypes.c_char * GRADIENTS)()

    @staticmethod
    def serve(listener, ms):
        conn, _ = listener.accept()
        while True:
            got = receive(conn, GRADIENTS)
            compute(ms * 0.3e6)
            time.sleep(ms * 0.7e-3)
            conn.sendall(got)

    def copy(self, to, source, kind):
        self.gpu.check(self.gpu.lib.cudaMemcpy(to, source, GRADIENTS, kind))

    def once(self):
        self.copy(self.buffer, self.on_device, 2)
        self.conn.sendall(self.buffer)
        self.buffer[:] = bytes(receive(self.conn, GRADIENTS))
        self.copy(self.on_device, self.buffer, 1)


class Saver:
    """A process that writes what it is sent, and says so."""

    def __init__(self, gpu, ms):
        self.conn, other = multiprocessing.Pipe()
        self.blob = bytes(2 << 20)
        child(self.serve, other, ms)

    @staticmethod
    def serve(conn, ms):
        with open("/dev/null", "wb") as f:
            while True:
                f.write(conn.recv_bytes())
                time.sleep(ms / 1e3)
                conn.send_bytes(b"ok")

    def once(self):
        self.conn.send_bytes(self.blob)
        self.conn.recv_bytes()


class Output:
    """Lines into a pipe whose reader is slow."""

    def __init__(self, gpu, ms):
        reader, self.fd = os.pipe()
        fcntl.fcntl(self.fd, F_SETPIPE_SZ, PIPE_BYTES)
        child(self.read, reader, self.fd, ms)
        os.close(reader)

    @staticmethod
    def read(reader, other, ms):
        os.close(other)
        while os.read(reader, PIPE_BYTES):
            time.sleep(ms / 1e3)

    def once(self):
        os.write(self.fd, b"x" * PIPE_BYTES)


class Events:
    """A thread that writes events to a file, behind a queue that is full."""

    def __init__(self, gpu, ms):
        self.queue, self.ms = queue.Queue(4), ms
        threading.Thread(target=self.write, daemon=True).start()

    def write(self):
        with open("/dev/shm/pipetrace-compose.%d" % os.getpid(), "wb") as f:
            os.unlink(f.name)
            while True:
                event = self.queue.get()
                compute(self.ms * 0.4e6)
                time.sleep(self.ms * 0.6e-3)
                f.write(event)
                f.flush()
                f.seek(0)

    def once(self):
        self.queue.put(b"e" * 2000)


def score(ms):
    compute(ms * 1e6)
    return 0.5


class Metrics:
    """Scores that a pool of processes computes, and the loop waits for."""

    def __init__(self, gpu, ms):
        self.ms = ms
        self.pool = concurrent.futures.ProcessPoolExecutor(
            2, mp_context=multiprocessing.get_context("fork"), initializer=die_with_parent)
        self.once()

    def once(self):
        for f in [self.pool.submit(score, self.ms) for _ in range(2)]:
            f.result()


KINDS = {"log_http": Http, "exchange": Exchange, "saver": Saver, "slow_out": Output,
         "events": Events, "metrics": Metrics}
