# SPDX-License-Identifier: BSD-2-Clause
"""The other side of a scenario, outside the traced job: a data server that
answers late or sends slowly, or a client that asks an inference server now and then.

    peer.py serve DELAY_MS [RATE]    prints the port; answers each request, RATE
                                     bytes a second on each connection
    peer.py ask PORT MEAN_MS SEED    asks until the server hangs up
"""

import ctypes
import random
import socket
import struct
import sys
import threading
import time


PIECE = 16384


def send(conn, size, rate):
    """Paced against the clock, so that it keeps to the rate on average."""
    begin, sent = time.monotonic(), 0
    while sent < size:
        n = min(PIECE, size - sent) if rate else size
        conn.sendall(bytes(n))
        sent += n
        if rate:
            time.sleep(max(0, begin + sent / rate - time.monotonic()))


def answer(conn, delay, rate):
    with conn:
        while True:
            head = conn.recv(8)
            if len(head) < 8:
                return
            time.sleep(delay)
            send(conn, struct.unpack("<Q", head)[0], rate)


def serve(delay_ms, rate):
    listener = socket.create_server(("127.0.0.1", 0), backlog=64)
    print(listener.getsockname()[1], flush=True)
    while True:
        conn, _ = listener.accept()
        threading.Thread(target=answer, args=(conn, delay_ms / 1e3, rate),
                         daemon=True).start()


def ask(port, mean_ms, seed):
    rng = random.Random(seed)
    conn = socket.create_connection(("127.0.0.1", port))
    try:
        while True:
            conn.sendall(b"?" * 64)
            if not conn.recv(64):
                return
            time.sleep(rng.expovariate(1e3 / mean_ms))
    except ConnectionError:
        return


if __name__ == "__main__":
    ctypes.CDLL(None).prctl(1, 15, 0, 0, 0)  # PR_SET_PDEATHSIG
    if sys.argv[1] == "serve":
        serve(float(sys.argv[2]), float(sys.argv[3]) if sys.argv[3:] else 0)
    else:
        ask(int(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4]))
