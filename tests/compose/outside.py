# SPDX-License-Identifier: BSD-2-Clause
"""Processes outside of a composed job's tree.

    outside.py serve SPEC INDEX    makes batches for it (Unix socket, TCP, shared memory)
    outside.py http                a store that answers GET /MICROSECONDS so late
"""

import json
import os
import socket
import sys
import threading
import time

sys.dont_write_bytecode = True

import journal
import transport
import work


def serve(spec, index):
    worker = work.Worker(spec, index, {"mp": None, "thread": threading.Lock()})
    if spec["transport"] == "shm_out":
        slots = transport.Named(spec, None)
        slots.prepare()
        print("READY 0", flush=True)
        transport.make_for_ever(spec, worker, slots.sender(index))
    if spec["transport"] == "unix_out":
        path = os.path.join(spec["folder"], "service%d" % index)
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(path)
        listener.listen(4)
        print("READY " + path, flush=True)
    else:
        listener = socket.create_server(("127.0.0.1", 0))
        print("READY %d" % listener.getsockname()[1], flush=True)
    listener.settimeout(60)
    conn, _ = listener.accept()
    conn.settimeout(None)

    def send(batch, data):
        if spec["ask"] and not conn.recv(1):
            sys.exit(0)
        transport.send_bytes(conn, batch, data)

    try:
        transport.make_for_ever(spec, worker, send)
    except ConnectionError:
        pass


def answer(conn):
    with conn:
        f = conn.makefile("rb")
        while True:
            head = f.readline()
            if not head:
                return
            while f.readline() not in (b"\r\n", b""):
                pass
            time.sleep(int(head.split()[1][1:]) / 1e6)
            conn.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 65536\r\n\r\n" + bytes(65536))


def store():
    listener = socket.create_server(("127.0.0.1", 0), backlog=64)
    print("READY %d" % listener.getsockname()[1], flush=True)
    while True:
        conn, _ = listener.accept()
        conn.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        threading.Thread(target=answer, args=(conn,), daemon=True).start()


if __name__ == "__main__":
    journal.die_with_parent()
    if sys.argv[1] == "serve":
        with open(sys.argv[2], encoding="utf-8") as spec_file:
            serve(json.load(spec_file), int(sys.argv[3]))
    else:
        store()
