#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""A training or inference job in one of many shapes, with a truth log.

Like tests/e2e/torch_job.py (real DataLoader, real files and CPU work, the
simulated CUDA runtime), with more forms of the loop and a log of phases. The
log is JSON lines, times are time.monotonic_ns():
  {"truth": 1, "pid", "args", "workers"}          first
  {"epoch", "begin", "end", "workers"}            iter(loader)
  {"step": n, "wait_begin", "wait_end",           brackets next(iterator): one
   "compute_begin", "compute_end",                line per batch; compute_end
   "first": bool, "part": "train" | "validate",   is when the next wait begins
   "worker", "load_begin", "load_end",            first: it begins a step (the
   "load_cpu", "items", "phases"}                 others join its GPU work)
  {"pause": what, "begin", "end"}                 checkpoint, barrier, request
  {"update": ns}                                  an optimizer step was queued
  {"memory": bytes, "device": bytes, "at": ns}    kept for ever so far
  {"end": ns, "steps": n}                         last
"""

import argparse
import json
import os
import queue
import random
import signal
import socket
import subprocess
import sys
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "e2e"))
os.environ.setdefault("OMP_NUM_THREADS", "1")  # read when torch is loaded

import torch
from torch.utils.data import DataLoader

import data
import job_data
import job_gpu
import torch_job

now = time.monotonic_ns


class Log:
    """Rows are kept in memory and written at the end: nothing disturbs."""

    def __init__(self, path, args):
        self.path, self.rows, self.step = path, [], 0
        self.rows.append({"truth": 1, "pid": os.getpid(), "args": vars(args),
                          "workers": []})
        self.last = None

    def add(self, **row):
        self.rows.append(row)

    def fetched(self, begin, end, meta, first, part):
        row = {"step": self.step, "wait_begin": begin, "wait_end": end,
               "compute_begin": end, "compute_end": end, "first": first,
               "part": part, "meta": meta}
        self.rows.append(row)
        self.last = row
        self.step += 1

    def worked(self):
        if self.last is not None:
            self.last["compute_end"] = now()

    def close(self):
        self.add(end=now(), steps=self.step)
        if not self.path:
            return
        with open(self.path, "w", encoding="utf-8") as f:
            for row in self.rows:
                if "meta" in row:
                    row.update(data.unpack(row.pop("meta")))
                f.write(json.dumps(row) + "\n")


class Gpu(job_gpu.Gpu):
    """With a second stream, spin between launches, and leaks."""

    def __init__(self, args, seed):
        super().__init__(args.cudart, args.kernel_us, args.launches,
                         args.tensor_kb * 1024)
        self.spin_ns = int(args.host_us * 1000)
        self.vary, self.factor = args.vary, 1.0
        self.rng = random.Random(seed)
        P, V = job_gpu.POINTER, job_gpu.c_void_p
        lib = self.lib
        for name, types in (("cudaStreamCreateWithFlags", [P(V), job_gpu.c_uint]),
                            ("cudaEventCreateWithFlags", [P(V), job_gpu.c_uint]),
                            ("cudaEventRecord", [V, V]),
                            ("cudaStreamWaitEvent", [V, V, job_gpu.c_uint])):
            getattr(lib, name).argtypes = types
            getattr(lib, name).restype = job_gpu.c_int
        self.side, self.ready = V(), V()
        if args.loop == "side":
            self.check(lib.cudaStreamCreateWithFlags(job_gpu.byref(self.side), 1))
            self.check(lib.cudaEventCreateWithFlags(job_gpu.byref(self.ready), 2))

    def launch(self, phase, count):
        count = max(round(count * self.factor), 1)
        if not self.spin_ns:
            return super().launch(phase, count)
        for _ in range(count):
            until = now() + self.spin_ns
            while now() < until:
                pass
            super().launch(phase, 1)

    def new_step(self):
        if self.vary:
            self.factor = 1 + self.vary * (2 * self.rng.random() - 1)

    def upload_aside(self, address, size):
        self.check(self.lib.cudaMemcpyAsync(
            self.input, address, min(size, self.input_bytes), job_gpu.H2D,
            self.side))
        self.check(self.lib.cudaEventRecord(self.ready, self.side))

    def wait_aside(self):
        self.check(self.lib.cudaStreamWaitEvent(self.stream, self.ready, 0))

    def keep_memory(self, size):
        p = job_gpu.c_void_p()
        self.check(self.lib.cudaMalloc(job_gpu.byref(p), size))


class Job:
    def __init__(self, args, gpu, log, dataset):
        self.args, self.gpu, self.log, self.dataset = args, gpu, log, dataset
        self.stop = False
        self.deadline = now() + int(args.seconds * 1e9)
        self.jobs, self.results = queue.SimpleQueue(), queue.SimpleQueue()
        self.steps = 0
        self.kept, self.kept_device = [], 0
        self.peer = socket.socket(fileno=args.barrier_fd) \
            if args.barrier_fd >= 0 else None

    def finished(self):
        return self.stop or now() >= self.deadline

    # ---- parts of a step

    def fetch(self, batches, first=True, part="train"):
        """The next batch, or None at the end of an epoch."""
        self.log.worked()
        begin = now()
        batch = next(batches, None)
        end = now()
        if batch is None:
            return None
        # at once: pinned memory is used again, shared memory must go back
        self.log.fetched(begin, end, batch[1].tolist(), first, part)
        if self.log.step == self.args.warmup:
            print("READY %d" % os.getppid() if self.peer else
                  "READY %d" % os.getpid(), flush=True)
        return batch

    def upload(self, batch, aside=False):
        put = self.gpu.upload_aside if aside else self.gpu.upload
        for x in batch[0]:
            if isinstance(x, torch.Tensor):
                put(x.data_ptr(), x.numel() * x.element_size())
            else:
                put(x.ctypes.data, x.nbytes)

    def backward(self):
        if self.args.loop != "thread":
            return self.gpu.backward()
        self.jobs.put(self.gpu.backward)
        failure = self.results.get()
        if failure is not None:
            raise failure
        return None

    def backward_thread(self):
        self.gpu.enter_thread()
        for work in iter(self.jobs.get, None):
            try:
                work()
                self.results.put(None)
            except Exception as e:  # handed to the main thread, which raises
                self.results.put(e)

    def small_syncs(self):
        """`.item()` in the middle: a float back, then some work of Python's
        before the next kernel is launched."""
        for _ in range(self.args.items_per_step):
            self.gpu.loss_item()
            until = now() + int(self.args.after_item_us * 1000)
            while now() < until:
                pass
            self.gpu.launch(0, 1)

    def update(self):
        gpu, args = self.gpu, self.args
        if self.peer:
            begin = now()
            gpu.sync(False)  # gradients must be there to be exchanged
            met = now()
            try:
                self.peer.sendall(b"g")
                alone = not self.peer.recv(1)
            except ConnectionError:  # told to end between two barriers
                alone = True
            self.stop = self.stop or alone
            self.log.add(pause="barrier", begin=met, end=now(), asked=begin)
        gpu.optimizer()
        self.log.add(update=now())
        self.steps += 1
        if args.loss_item:
            gpu.loss_item()
        if args.sync_every and self.steps % args.sync_every == 0:
            gpu.sync(False)
        if args.leak_kb:
            self.kept.append(bytearray(os.urandom(1024)
                                       * args.leak_kb))
        if args.device_leak_kb:
            gpu.keep_memory(args.device_leak_kb * 1024)
            self.kept_device += args.device_leak_kb * 1024
        if (args.leak_kb or args.device_leak_kb) and self.steps % 10 == 0:
            self.log.add(memory=len(self.kept) * args.leak_kb * 1024,
                         device=self.kept_device, at=now())
        if args.checkpoint_every and self.steps % args.checkpoint_every == 0:
            self.checkpoint()

    def checkpoint(self):
        """Write and fsync until the time that it shall take is over."""
        self.log.worked()
        begin = now()
        until = begin + int(self.args.checkpoint_ms * 1e6)
        path = os.path.join(self.args.data, "checkpoint.%d" % os.getpid())
        with open(path, "wb") as f:
            while now() < until:
                f.write(bytes(512 << 10))
                f.flush()
                os.fsync(f.fileno())
        os.unlink(path)
        self.log.add(pause="checkpoint", begin=begin, end=now())

    def work(self, update=True):
        self.gpu.new_step()
        self.gpu.forward()
        if self.args.items_per_step:
            self.small_syncs()
        self.backward()
        if update:
            self.update()

    # ---- the loop forms: each trains on one epoch

    def plain(self, batches):
        micro, other = 0, None
        if self.args.two_loaders:
            other = iter(self.second)
        while not self.finished():
            batch = self.fetch(batches)
            if batch is None:
                return
            self.upload(batch)
            if other is not None:
                self.upload(self.fetch(other, first=False))
            micro += 1
            self.work(micro % self.args.micro == 0)

    thread = plain

    def group(self, batches):
        """Fetch every micro-batch of an update, then compute."""
        while not self.finished():
            got = []
            for i in range(self.args.micro):
                batch = self.fetch(batches, first=i == 0)
                if batch is None:
                    return
                got.append(batch)
            for i, batch in enumerate(got):
                self.upload(batch)
                self.work(i == len(got) - 1)

    def ahead(self, batches):
        current = self.fetch(batches)
        while current is not None and not self.finished():
            self.upload(current)
            current = self.fetch(batches)
            self.work()

    def side(self, batches):
        """Upload the next batch on a side stream while this one is used."""
        current = self.fetch(batches)
        if current is not None:
            self.upload(current, aside=True)
        while current is not None and not self.finished():
            self.gpu.wait_aside()
            following = self.fetch(batches)
            if following is not None:
                self.upload(following, aside=True)
            self.work()
            current = following

    def infer(self, batches):
        while not self.finished():
            batch = self.fetch(batches)
            if batch is None:
                return
            self.upload(batch)
            self.gpu.new_step()
            self.gpu.forward()
            self.gpu.loss_item()

    def validate(self):
        batches = iter(self.validation)
        for _ in range(self.args.validate):
            batch = self.fetch(batches, part="validate")
            if batch is None or self.finished():
                break
            self.upload(batch)
            self.gpu.forward()
            self.gpu.loss_item()
        self.log.worked()

    def serve(self, listener):
        """An inference server: no request, no work."""
        conn, _ = listener.accept()
        conn.settimeout(1)
        x = torch.zeros(1024)
        ready = False
        while not self.finished():
            begin = now()
            try:
                if not conn.recv(64):
                    return
            except socket.timeout:
                continue
            self.log.add(pause="request", begin=begin, end=now())
            self.gpu.upload(x.data_ptr(), 4096)
            self.gpu.forward()
            self.gpu.loss_item()
            conn.sendall(b"!" * 64)
            self.steps += 1
            if not ready and self.steps >= self.args.warmup:
                ready = True
                print("READY %d" % os.getpid(), flush=True)

    def run(self, loader):
        thread = None
        if self.args.loop == "thread":
            thread = threading.Thread(target=self.backward_thread, daemon=True)
            thread.start()
        epoch = 0
        while not self.finished():
            self.dataset.epoch[0] = epoch
            begin = now()
            batches = iter(loader)
            workers = [w.pid for w in getattr(batches, "_workers", [])]
            self.log.add(epoch=epoch, begin=begin, end=now(), workers=workers)
            getattr(self, self.args.loop)(batches)
            self.log.worked()
            if self.args.validate and not self.finished():
                self.validate()
            epoch += 1
        self.gpu.sync(True)
        if thread is not None:
            self.jobs.put(None)
            thread.join(5)


def parse():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name, kind, default in (
            ("cudart", str, None), ("data", str, None), ("truth", str, None),
            ("cache", str, "cached"), ("loop", str, "plain"),
            ("sharing", str, "file_descriptor"), ("access", str, ""),
            ("pack-mb", int, 256), ("record-kb", int, 64), ("vary-kb", str, ""),
            ("slow", str, ""), ("files", int, 64), ("file-kb", int, 64),
            ("big-every", int, 0), ("big-mb", int, 32), ("workers", int, 2),
            ("batch-size", int, 4), ("parts", int, 1), ("prefetch", int, 2),
            ("items-per-epoch", int, 100000), ("tensor-kb", int, 600),
            ("cpu-ms", float, 0), ("sleep-ms", float, 0),
            ("lock-ms", float, 0), ("jitter", float, 0),
            ("heavy-share", float, 0), ("heavy-factor", float, 1),
            ("warm-ms", float, 0), ("net-port", int, 0), ("net-kb", int, 16),
            ("kernel-us", float, 250), ("launches", int, 40),
            ("host-us", float, 0), ("vary", float, 0), ("sync-every", int, 1),
            ("items-per-step", int, 0), ("after-item-us", float, 0),
            ("micro", int, 1), ("validate", int, 0), ("leak-kb", int, 0),
            ("device-leak-kb", int, 0), ("checkpoint-every", int, 0),
            ("checkpoint-ms", float, 0), ("ranks", int, 1), ("rank", int, 0),
            ("rank-factor", float, 1), ("barrier-fd", int, -1),
            ("warmup", int, 5), ("seconds", float, 60), ("seed", int, 1)):
        p.add_argument("--" + name, type=kind, default=default)
    for name in ("numpy", "pin", "persistent", "loss-item", "lock-sleeps",
                 "two-loaders", "serve", "warm-pack"):
        p.add_argument("--" + name, action="store_true")
    args = p.parse_args()
    args.slow = [float(x) for x in args.slow.split(":")] if args.slow else None
    return args


def launch_ranks(args):
    """As a launcher does: one process per rank, and wait for all."""
    ends = socket.socketpair()
    children = []
    for rank in range(2):
        fd = ends[rank].fileno()
        argv = [sys.executable] + sys.argv + [
            "--ranks", "1", "--rank", str(rank), "--barrier-fd", str(fd)]
        if rank and args.truth:
            argv += ["--truth", args.truth + ".rank1"]
        children.append(subprocess.Popen(argv, pass_fds=[fd]))
    for end in ends:
        end.close()
    signal.signal(signal.SIGTERM,
                  lambda *_: [c.terminate() for c in children])
    return max(c.wait() for c in children)


def build(args):
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)
    torch.multiprocessing.set_sharing_strategy(args.sharing)
    if args.rank:
        args.cpu_ms *= args.rank_factor
        args.seed += 1000
    paths = job_data.make_files(args.data, 64 if args.vary_kb else args.files,
                                args.file_kb, args.seed)
    args.picture = paths[0]
    if args.vary_kb:
        paths = data.vary_files(args.data, args.files,
                                *map(int, args.vary_kb.split(":")))
    if args.access:
        args.pack = data.big_file(args.data, args.pack_mb)
        if args.warm_pack:  # once all of it, as an epoch before would have
            job_data.read_cached(args.pack)
    if args.big_every:
        paths.append(data.big_file(args.data, args.big_mb))
    gpu = Gpu(args, args.seed)
    if args.pin:
        torch_job.pin_for_real(gpu, 4 + 2 * (max(args.workers, 1)
                                             * args.prefetch + args.micro))
    dataset = data.Items(paths, args.items_per_epoch, args,
                         torch.multiprocessing.Lock() if args.lock_ms
                         else None)

    def init_worker(_):
        torch_job.init_worker(_)
        data.pending.clear()
        if args.warm_ms:
            time.sleep(args.warm_ms / 1e3)

    def loader(workers):
        return DataLoader(
            dataset, batch_size=args.batch_size, shuffle=True, drop_last=True,
            num_workers=workers, worker_init_fn=init_worker,
            collate_fn=data.Collate(args.numpy, args.parts),
            pin_memory=args.pin,
            prefetch_factor=args.prefetch if workers else 2,
            persistent_workers=args.persistent and workers > 0)

    job = Job(args, gpu, Log(args.truth, args), dataset)
    job.second = loader(1) if args.two_loaders else None
    job.validation = loader(args.workers) if args.validate else None
    return job, loader(args.workers)


def main():
    args = parse()
    data.die_with_parent()
    if args.ranks > 1:
        return launch_ranks(args)
    job, loader = build(args)

    def stop(_signal, _frame):
        job.stop = True

    signal.signal(signal.SIGTERM, stop)
    try:
        if args.serve:
            listener = socket.create_server(("127.0.0.1", 0))
            print("PORT %d" % listener.getsockname()[1], flush=True)
            job.serve(listener)
        else:
            job.run(loader)
    finally:
        job.log.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
