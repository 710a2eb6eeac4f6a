#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""An object store for the tests: HTTP/1.1 with byte ranges, on loopback.

    http_server.py LOG [--bind ADDR] [--latency-ms MS] [--rate BYTES/S]
                       [--tls CERT KEY] [--garbage]

Prints its port. Each answer begins LATENCY after its request has come; its body
is sent in pieces, at RATE on each connection. LOG gets a JSON line for each
connection when it is over: bytes sent by the kernel's count (TCP_INFO), answers.
With --garbage answers are no HTTP and end early.
"""
import argparse
import ctypes
import json
import os
import re
import socket
import ssl
import struct
import sys
import threading
import time

PIECE = 16384
RANGE = re.compile(rb"(?i)^range: bytes=(\d+)-(\d+)\r?$", re.M)
BYTES_SENT = 200  # offset of tcpi_bytes_sent in struct tcp_info, Linux 4.19


def sent(raw):
    """Payload bytes, those that had to be sent again once."""
    info = raw.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
    return int.__sub__(*struct.unpack_from("<QQ", info, BYTES_SENT))


class Server:
    def __init__(self, args):
        self.args = args
        self.log = open(args.log, "w", encoding="utf-8")
        self.lock = threading.Lock()
        self.tls = None
        if args.tls:
            self.tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self.tls.load_cert_chain(*args.tls)

    def body(self, conn, size):
        """Paced against the clock, so that it keeps to the rate on average."""
        begin, sent = time.monotonic(), 0
        while sent < size:
            n = min(PIECE, size - sent)
            conn.sendall(bytes(n))
            sent += n
            if self.args.rate:
                left = begin + sent / self.args.rate - time.monotonic()
                if left > 0:
                    time.sleep(left)

    def answer(self, conn):
        data = b""
        while b"\r\n\r\n" not in data:
            part = conn.recv(65536)
            if not part:
                return False
            data += part
        time.sleep(self.args.latency_ms / 1e3)
        if self.args.garbage:
            conn.sendall(os.urandom(3000))
            return False
        m = RANGE.search(data)
        size = int(m[2]) - int(m[1]) + 1 if m else 0
        conn.sendall(b"HTTP/1.1 206 Partial Content\r\nContent-Length: %d\r\n"
                     b"Content-Range: bytes %d-%d/*\r\n\r\n" %
                     (size, int(m[1]) if m else 0, int(m[2]) if m else 0))
        self.body(conn, size)
        return b"connection: close" not in data.lower()

    def serve(self, raw):
        answers, conn, count = 0, raw, None
        try:
            raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self.tls:
                conn = self.tls.wrap_socket(raw, server_side=True)
            while self.answer(conn):
                answers += 1
            # what was sent last has come when the other side has said so
            conn.shutdown(socket.SHUT_WR)
            while conn.recv(65536):
                pass
        except OSError:
            pass
        try:
            count = sent(conn)
        except OSError:
            pass
        conn.close()
        with self.lock:
            self.log.write(json.dumps({"sent": count, "answers": answers}) + "\n")
            self.log.flush()

    def run(self):
        family = socket.AF_INET6 if ":" in self.args.bind else socket.AF_INET
        listener = socket.create_server((self.args.bind, 0), family=family, backlog=1024)
        print(listener.getsockname()[1], flush=True)
        while True:
            conn, _ = listener.accept()
            threading.Thread(target=self.serve, args=(conn,), daemon=True).start()


if __name__ == "__main__":
    ctypes.CDLL(None).prctl(1, 15, 0, 0, 0)  # PR_SET_PDEATHSIG
    p = argparse.ArgumentParser()
    p.add_argument("log")
    p.add_argument("--bind", default="127.0.0.1")
    p.add_argument("--latency-ms", type=float, default=0)
    p.add_argument("--rate", type=float, default=0)
    p.add_argument("--tls", nargs=2)
    p.add_argument("--garbage", action="store_true")
    sys.exit(Server(p.parse_args()).run())
