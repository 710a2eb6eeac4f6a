#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""One composed job: job.py SPEC.json (tests/compose/run makes the file).

Trains on the simulated CUDA runtime until SIGTERM, and writes down what its
threads do (journal.py). Rows of the trainer, beside phases: "obtain" (with the
batch that came), "step", "eval", "pause", "host", "ckpt", "meet", "request",
"restart".
"""

import ctypes
import json
import os
import queue
import selectors
import signal
import socket
import subprocess
import sys
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "e2e"))
sys.dont_write_bytecode = True
os.environ.setdefault("OMP_NUM_THREADS", "1")

import beside
import job_gpu
import transport
from journal import cpu_now, die_with_parent, journal, now, phase
from work import compute, compute_python

WARM = 6  # steps before it is ready to be traced


class Gpu(job_gpu.Gpu):
    def __init__(self, spec):
        super().__init__(spec["cudart"], spec["gpu_ms"] * 1000 / spec["launches"],
                         spec["launches"], spec["batch_kb"] * 1024)
        self.spec = spec
        self.pinned = self.host_buffer(spec["batch_kb"] * 1024) \
            if spec["copies"] == "pinned" else None
        self.graph = None

    def capture(self):
        V, P, lib = ctypes.c_void_p, ctypes.POINTER, self.lib
        lib.cudaStreamCreateWithFlags.argtypes = [P(V), ctypes.c_uint]
        lib.cudaStreamBeginCapture.argtypes = [V, ctypes.c_int]
        lib.cudaStreamEndCapture.argtypes = [V, P(V)]
        lib.cudaGraphInstantiate.argtypes = [P(V), V, ctypes.c_ulonglong]
        lib.cudaGraphLaunch.argtypes = [V, V]
        self.stream = V()
        self.check(lib.cudaStreamCreateWithFlags(ctypes.byref(self.stream), 1))
        self.check(lib.cudaStreamBeginCapture(self.stream, 0))
        self.launch(0, self.launches)
        graph = V()
        self.check(lib.cudaStreamEndCapture(self.stream, ctypes.byref(graph)))
        self.graph = V()
        self.check(lib.cudaGraphInstantiate(ctypes.byref(self.graph), graph, 0))

    def loss_item(self):
        """Behind the graph, which has a stream of its own."""
        if not self.graph:
            return super().loss_item()
        self.check(self.lib.cudaMemcpyAsync(ctypes.addressof(self.loss), self.input, 4,
                                            job_gpu.D2H, self.stream))
        return self.sync(False)

    def use(self, data):
        """Copy a batch to the device."""
        size = len(data)
        if isinstance(data, (bytes, bytearray)):
            hold = (ctypes.c_char * size).from_buffer_copy(data) \
                if isinstance(data, bytes) else (ctypes.c_char * size).from_buffer(data)
            address = ctypes.addressof(hold)
        else:
            hold, address = data, data.ctypes.data
        if self.pinned:
            if self.spec.get("collate"):  # else it is there already, as a pin thread has it
                with phase("copy"):
                    ctypes.memmove(self.pinned, address, size)
            address = self.pinned
        self.upload(address, size)


def doze():
    die_with_parent()
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    while True:
        time.sleep(0.05)


class Job:
    def __init__(self, spec, rank):
        self.spec, self.rank = spec, rank
        self.stop, self.steps, self.shown = False, 0, False
        self.peer = None
        if spec["feature"] == "ranks":
            self.peer = socket.socket(fileno=int(sys.argv[3]))
            if rank:
                spec["cost_ms"] *= spec["rank_factor"]
                spec["reads"] = max(round(spec["reads"] * spec["rank_factor"]), 1)
                spec["seed"] += 1000
        self.source = transport.source(spec) if spec["transport"] in transport.KINDS \
            else None
        if spec["pin"]:
            import torch_job
            self.gpu = Gpu(spec)
            torch_job.pin_for_real(self.gpu, 2 + 2 * spec["workers"] * 4)
        for _ in range(spec.get("sleepers", 0)):
            transport.fork.Process(target=doze, daemon=True).start()
        if self.source:
            self.source.start()
        if not spec["pin"]:
            self.gpu = Gpu(spec)
        if spec["feature"] == "graph":
            self.gpu.capture()
        self.beside = beside.KINDS[spec["feature"]](self.gpu, spec["pause_ms"]) \
            if spec["feature"] in beside.KINDS else None
        self.writer = queue.SimpleQueue()
        if spec["feature"] == "ckpt_thread":
            threading.Thread(target=self.write_for_ever, daemon=True).start()

    # ---- parts of a step

    def obtain(self):
        begin, cpu = now(), cpu_now()
        if self.spec["feature"] == "restart" and self.steps and \
                self.steps % self.spec["every"] == 0 and self.fresh:
            self.fresh = False
            with phase("restart"):
                self.source.stop()
                self.source.start()
        batch, data = self.source.get()
        journal().add("obtain", begin, now(), cpu_now() - cpu, batch)
        self.fresh = True
        return data

    def forward(self, count):
        if self.gpu.graph:
            self.gpu.check(self.gpu.lib.cudaGraphLaunch(self.gpu.graph, self.gpu.stream))
        else:
            self.gpu.launch(0, count)

    def compute(self):
        n = self.gpu.launches
        if self.spec["feature"] == "item":
            self.forward(n // 2)
            for _ in range(self.spec["items"]):
                self.gpu.loss_item()
                with phase("host", more="after item"):
                    compute_python(self.spec["after_item_us"] * 1000)
            self.gpu.launch(1, n - n // 2)
        else:
            self.forward(n)

    def update(self):
        s = self.spec
        if self.peer:
            self.gpu.sync(False)
            begin = now()
            try:
                self.peer.sendall(b"g")
                alone = not self.peer.recv(1)
            except OSError:
                alone = True
            self.stop |= alone
            journal().add("meet", begin, now())
        if not self.gpu.graph:
            self.gpu.launch(2, 2)
        self.steps += 1
        if s["sync"] == "each" or s["sync"] == "every_n" and \
                self.steps % s["sync_n"] == 0:
            self.gpu.sync(False)
        elif s["sync"] == "item":
            self.gpu.loss_item()
        if self.steps % s["every"] == 0:
            self.between()
        if self.steps >= WARM and not self.shown:
            self.shown = True
            print("READY", flush=True)

    def between(self):
        s, f = self.spec, self.spec["feature"]
        if f == "log_sleep":
            with phase("pause", more="sleep"):
                time.sleep(s["pause_ms"] / 1e3)
        elif f == "log_cpu":
            with phase("pause", more="cpu"):
                compute_python(s["pause_ms"] * 1e6)
        elif self.beside:
            self.gpu.sync(False)
            with phase("pause", more=f):
                self.beside.once()
        elif f == "ckpt":
            self.checkpoint()
        elif f == "ckpt_thread":
            self.writer.put(1)
        elif f == "eval":
            for _ in range(s["evals"]):
                begin = now()
                if self.source:
                    self.gpu.use(self.obtain())
                self.gpu.launch(0, self.gpu.launches // 3 + 1)
                self.gpu.loss_item()
                journal().add("eval", begin, now())

    def checkpoint(self):
        begin = now()
        until = begin + int(self.spec["pause_ms"] * 1e6)
        path = os.path.join(self.spec["data"], "checkpoint.%d" % os.getpid())
        with open(path, "wb") as f:
            while now() < until:
                f.write(bytes(512 << 10))
                f.flush()
                os.fsync(f.fileno())
        os.unlink(path)
        journal().add("ckpt", begin, now())

    def write_for_ever(self):
        while self.writer.get():
            self.checkpoint()

    def host(self):
        """The job has no input: the host does other work in each step."""
        s = self.spec
        with phase("host", more=s["host"]):
            if s["host"] == "sleep":
                time.sleep(s["cost_ms"] / 1e3)
            else:
                compute_python(s["cost_ms"] * 1e6)

    # ---- loops

    def run(self):
        s, held, micro = self.spec, None, 0
        if s["feature"] == "ahead" and self.source:
            held = self.obtain()
        while not self.stop:
            begin, cpu = now(), cpu_now()
            if not self.source:
                if s["cost_ms"]:
                    self.host()
            elif held is not None:
                self.gpu.use(held)
                held = self.obtain()
            else:
                self.gpu.use(self.obtain())
            micro += 1
            self.compute()
            if s["feature"] != "accum" or micro % s["accum"] == 0:
                self.update()
                journal().add("step", begin, now(), cpu_now() - cpu)
            else:
                journal().add("micro", begin, now(), cpu_now() - cpu)

    def serve(self):
        """An inference server: clients are elsewhere."""
        listener = socket.create_server(("127.0.0.1", 0))
        print("PORT %d" % listener.getsockname()[1], flush=True)
        chosen, requests = selectors.DefaultSelector(), queue.SimpleQueue()
        chosen.register(listener, selectors.EVENT_READ)
        body = bytes(self.spec["batch_kb"] * 1024)

        def ready():
            for key, _ in chosen.select(0.5):
                if key.fileobj is listener:
                    chosen.register(listener.accept()[0], selectors.EVENT_READ)
                elif key.fileobj.recv(64):
                    yield key.fileobj
                else:
                    chosen.unregister(key.fileobj)

        def batching():
            while not self.stop:
                for conn in ready():
                    requests.put(conn)

        if self.spec["batching"]:
            threading.Thread(target=batching, daemon=True).start()
        while not self.stop:
            begin = now()
            got = []
            while not got and not self.stop:
                if self.spec["batching"]:
                    try:
                        got = [requests.get(timeout=0.5)]
                    except queue.Empty:
                        pass
                else:
                    got = list(ready())
            journal().add("request", begin, now())
            begin = now()
            self.gpu.use(body)
            self.gpu.launch(0, self.gpu.launches)
            self.gpu.loss_item()
            for conn in got:
                conn.sendall(b"!" * 64)
            self.steps += 1
            journal().add("step", begin, now())
            if self.steps == WARM:
                print("READY", flush=True)


def launch(spec):
    ends = socket.socketpair()
    ranks = [subprocess.Popen([sys.executable, sys.argv[0], sys.argv[1], str(r),
                               str(ends[r].fileno())], pass_fds=[ends[r].fileno()])
             for r in range(2)]
    for end in ends:
        end.close()
    signal.signal(signal.SIGTERM, lambda *_: [r.terminate() for r in ranks])
    return max(r.wait() for r in ranks)


def main():
    die_with_parent()
    with open(sys.argv[1], encoding="utf-8") as f:
        spec = json.load(f)
    if spec["feature"] == "ranks" and len(sys.argv) == 2:
        return launch(spec)
    rank = int(sys.argv[2]) if len(sys.argv) > 2 else 0
    sys.setswitchinterval(0.005)
    job = Job(spec, rank)

    def stop(*_):
        job.stop = True

    signal.signal(signal.SIGTERM, stop)
    journal().write({"trainer": rank})
    if spec["transport"] == "server":
        job.serve()
    else:
        job.run()
    journal().write({"done": job.steps})
    os._exit(0)  # daemon threads and children end with it


if __name__ == "__main__":
    sys.exit(main())
