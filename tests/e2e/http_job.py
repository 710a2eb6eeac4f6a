#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""A training job whose PyTorch DataLoader reads its items by HTTP ranges.

    http_job.py LOG PORT [--host ADDR] [--steps N] [--workers N] [--items N]
                [--kib N] [--way keep|new|threads|asyncio] [--tls CERT] ...

  keep     a connection for each worker, by http.client
  new      one for each item
  threads  each worker fetches a batch with four threads, a connection each
  asyncio  each worker fetches a batch in an event loop (epoll)

The GPU is the simulated CUDA runtime. Each process appends JSON lines to LOG:
{"pid", "request": ns of its begin, "first": ns until its answer began, "end",
"blocked": ns off the CPU but not on the run queue} for each item, the last but
for asyncio and threads; and {"steps", "begin", "end", "wait": ns} at its end.
"""
import argparse
import asyncio
import http.client
import json
import os
import socket
import ssl
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
from torch.utils.data import DataLoader, Dataset

import job_gpu

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
now = time.monotonic_ns


def busy():
    """ns that this thread was on a CPU or waited for one."""
    with open("/proc/thread-self/schedstat", encoding="ascii") as f:
        queued = int(f.read().split()[1])
    return time.thread_time_ns() + queued


class Remote(Dataset):
    def __init__(self, args):
        self.args = args
        self.local = threading.local()
        self.log = self.pool = None

    def __len__(self):
        return self.args.steps * self.args.items

    def setup(self):
        if self.log:
            return
        self.log = open(self.args.log, "a", encoding="utf-8", buffering=1)
        self.pool = ThreadPoolExecutor(4)

    def connect(self):
        a = self.args
        if a.tls:
            context = ssl.create_default_context(cafile=a.tls)
            context.check_hostname = False
            return http.client.HTTPSConnection(a.host, a.port, context=context, timeout=30)
        return http.client.HTTPConnection(a.host, a.port, timeout=30)

    def fetch(self, i):
        a, size = self.args, self.args.kib * 1024
        conn = getattr(self.local, "conn", None)
        begin, ran = now(), busy()
        if conn is None:
            conn = self.connect()
        headers = {"Range": "bytes=%d-%d" % (i * size, (i + 1) * size - 1)}
        if a.way == "new":
            headers["Connection"] = "close"
        data, first = b"", None
        try:
            conn.request("GET", "/data", headers=headers)
            answer = conn.getresponse()
            first = now()
            data = answer.read()
        except (OSError, http.client.HTTPException) as e:
            if not a.hostile:
                raise
            conn.close()
            conn = None
        if a.way == "new" and conn:
            conn.close()
            conn = None
        self.local.conn = conn
        end = now()
        blocked = end - begin - (busy() - ran)
        if not a.hostile and len(data) != size:
            raise ValueError("%d bytes, not %d" % (len(data), size))
        self.log.write(json.dumps({"pid": os.getpid(), "request": begin,
                                   "first": first - begin if first else None, "end": end,
                                   "blocked": blocked}) + "\n")
        return torch.zeros(16)

    async def afetch(self, i):
        a, size = self.args, self.args.kib * 1024
        reader, writer = await asyncio.open_connection(a.host, a.port)
        writer.write(b"GET /data HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
                     b"Range: bytes=%d-%d\r\n\r\n" % (i * size, (i + 1) * size - 1))
        await reader.readuntil(b"\r\n\r\n")
        data = await reader.readexactly(size)
        await reader.read()
        writer.close()
        return len(data)

    async def gather(self, items):
        return await asyncio.gather(*[self.afetch(i) for i in items])

    def __getitems__(self, items):
        self.setup()
        begin, ran = now(), busy()
        if self.args.way == "asyncio":
            asyncio.run(self.gather(items))
        elif self.args.way == "threads":
            list(self.pool.map(self.fetch, items))
        else:
            return [self.fetch(i) for i in items]
        self.log.write(json.dumps({"pid": os.getpid(), "batch": begin, "end": now(),
                                   "blocked": now() - begin - (busy() - ran)}) + "\n")
        return [torch.zeros(16)] * len(items)

    def __getitem__(self, items):  # a batch: the sampler gives lists
        return torch.stack(self.__getitems__(items))


def batches(args):
    return [list(range(s * args.items, (s + 1) * args.items)) for s in range(args.steps)]


def flood(args):
    """Sockets opened and closed as fast as it goes."""
    for _ in range(args.flood):
        s = socket.create_connection((args.host, args.port))
        s.close()


def main():
    p = argparse.ArgumentParser()
    p.add_argument("log")
    p.add_argument("port", type=int)
    p.add_argument("--host", default="127.0.0.1")
    p.add_argument("--steps", type=int, default=60)
    p.add_argument("--workers", type=int, default=2)
    p.add_argument("--items", type=int, default=4)
    p.add_argument("--kib", type=int, default=64)
    p.add_argument("--way", default="keep")
    p.add_argument("--tls")
    p.add_argument("--hostile", action="store_true")
    p.add_argument("--flood", type=int, default=0)
    p.add_argument("--cudart", default=os.path.join(ROOT, "build/sim/libcudart.so.12"))
    args = p.parse_args()
    torch.set_num_threads(1)
    gpu = job_gpu.Gpu(args.cudart, 20, 8, 4096)
    data = Remote(args)
    loader = DataLoader(data, batch_size=None, sampler=batches(args),
                        num_workers=args.workers)
    steps, waited, begin = 0, 0, now()
    if args.flood:
        flood(args)
    it = iter(loader)
    while True:
        asked = now()
        batch = next(it, None)
        waited += now() - asked
        if batch is None:
            break
        gpu.upload(batch.data_ptr(), 64)
        gpu.forward()
        gpu.backward()
        gpu.optimizer()
        gpu.sync(False)
        steps += 1
    with open(args.log, "a", encoding="utf-8") as f:
        f.write(json.dumps({"steps": steps, "begin": begin, "end": now(),
                            "wait": waited}) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
