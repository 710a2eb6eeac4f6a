# SPDX-License-Identifier: BSD-2-Clause
"""The other side of a scenario, outside the traced job: a data server that
answers late, or a client that asks an inference server now and then.

    peer.py serve DELAY_MS           prints the port; answers each request
    peer.py ask PORT MEAN_MS SEED    asks until the server hangs up
"""

import ctypes
import random
import socket
import struct
import sys
import threading
import time


def answer(conn, delay):
    with conn:
        while True:
            head = conn.recv(8)
            if len(head) < 8:
                return
            time.sleep(delay)
            conn.sendall(bytes(struct.unpack("<Q", head)[0]))


def serve(delay_ms):
    listener = socket.create_server(("127.0.0.1", 0), backlog=64)
    print(listener.getsockname()[1], flush=True)
    while True:
        conn, _ = listener.accept()
        threading.Thread(target=answer, args=(conn, delay_ms / 1e3),
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
        serve(float(sys.argv[2]))
    else:
        ask(int(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4]))
