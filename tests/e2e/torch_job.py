#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""A training job with a real PyTorch DataLoader and a truth log.

The loader, its worker processes, the files and the CPU work are real; the GPU
is the simulated CUDA runtime. Prints "READY <pid>" once it trains steadily,
then runs until SIGTERM (exit status 0) or one of its limits.

The truth log is JSON lines, times are time.monotonic_ns():
  {"truth": 1, "pid", "args", "workers"}             first
  {"epoch", "begin", "end", "workers"}               iter(loader) of an epoch
  {"step", "wait_begin", "wait_end",                 brackets next(iterator)
   "compute_begin", "compute_end",                   brackets the GPU calls (with
                                                     --loop ahead, those behind
                                                     the wait)
   "worker", "batch_seq", "load_begin", "load_end",  of the batch waited for
   "load_cpu", "items": [ms]}                        CPU ns of its thread
  {"end": ns, "steps": n}                            last
"""

import argparse
import ctypes
import json
import os
import queue
import signal
import sys
import threading
import time

os.environ.setdefault("OMP_NUM_THREADS", "1")  # read when torch is loaded

import torch
from torch.utils.data import DataLoader

import job_data
import job_gpu

FLUSH_STEPS = 2048
now = time.monotonic_ns


class Truth:
    """Step records, kept in memory; formatting waits for a quiet moment."""

    def __init__(self, path):
        self.file = open(path, "w", encoding="utf-8") if path else None
        self.rows = []
        self.epoch = 0
        self.batch_seq = 0
        self.step = 0

    def line(self, record):
        if self.file:
            self.file.write(json.dumps(record) + "\n")

    def header(self, args):
        self.line({"truth": 1, "pid": os.getpid(), "args": vars(args),
                   "workers": []})
        self.flush()

    def start_epoch(self, begin, end, workers):
        self.flush()
        self.line({"epoch": self.epoch, "begin": begin, "end": end,
                   "workers": workers})
        if self.file:
            self.file.flush()
        self.epoch += 1
        self.batch_seq = 0

    def add(self, wait_begin, wait_end, compute_begin, compute_end, meta):
        self.rows.append((self.step, wait_begin, wait_end, compute_begin,
                          compute_end, self.batch_seq, meta))
        self.step += 1
        self.batch_seq += 1
        if len(self.rows) >= FLUSH_STEPS:
            self.flush()

    def flush(self):
        for step, wb, we, cb, ce, seq, meta in self.rows:
            self.line({"step": step, "wait_begin": wb, "wait_end": we,
                       "compute_begin": cb, "compute_end": ce,
                       "worker": meta[0], "batch_seq": seq,
                       "load_begin": meta[1], "load_end": meta[2],
                       "load_cpu": meta[3],
                       "items": [round(ns / 1e6, 4) for ns in
                                 meta[job_data.META_FIXED:]]})
        self.rows.clear()
        if self.file:
            self.file.flush()

    def close(self):
        self.flush()
        self.line({"end": now(), "steps": self.step})
        if self.file:
            self.file.close()


class Job:
    def __init__(self, args, gpu, truth):
        self.args = args
        self.gpu = gpu
        self.truth = truth
        self.stop = False
        self.deadline = now() + int(args.seconds * 1e9) if args.seconds else None
        self.jobs = queue.SimpleQueue()
        self.results = queue.SimpleQueue()

    def finished(self):
        return (self.stop
                or (self.args.steps and self.truth.step >= self.args.steps)
                or (self.deadline is not None and now() >= self.deadline))

    # ---- the GPU part of a step

    def upload(self, batch):
        x = batch[0]
        if isinstance(x, torch.Tensor):
            self.gpu.upload(x.data_ptr(), x.numel() * x.element_size())
        else:
            self.gpu.upload(x.ctypes.data, x.nbytes)

    def train(self):
        """Everything of a step behind its upload."""
        gpu, args = self.gpu, self.args
        gpu.forward()
        if args.loop == "thread":
            self.jobs.put(gpu.backward)
            failure = self.results.get()
            if failure is not None:
                raise failure
        else:
            gpu.backward()
        gpu.optimizer()
        if args.loss_item:
            gpu.loss_item()
        if args.sync_every and (self.truth.step + 1) % args.sync_every == 0:
            gpu.sync(args.sync_device)

    def backward_thread(self):
        self.gpu.enter_thread()
        while True:
            work = self.jobs.get()
            if work is None:
                return
            try:
                work()
                self.results.put(None)
            except Exception as e:  # handed to the main thread, which raises
                self.results.put(e)

    # ---- the loop forms

    def record(self, wait_begin, wait_end, compute_begin, compute_end, batch):
        self.truth.add(wait_begin, wait_end, compute_begin, compute_end,
                       batch[2].tolist())
        if self.truth.step == self.args.warmup:
            print("READY %d" % os.getpid(), flush=True)

    def epoch_plain(self, batches):
        """for batch in loader: move, train."""
        while not self.finished():
            wait_begin = now()
            try:
                batch = next(batches)
            except StopIteration:
                return
            wait_end = now()
            self.upload(batch)
            self.train()
            compute_end = now()
            self.record(wait_begin, wait_end, wait_end, compute_end, batch)

    def epoch_ahead(self, batches):
        """Move batch k, fetch batch k + 1, then train on batch k."""
        try:
            current = next(batches)
        except StopIteration:
            return
        while current is not None and not self.finished():
            self.upload(current)
            wait_begin = now()
            following = next(batches, None)
            wait_end = now()
            self.train()
            compute_end = now()
            if following is not None:
                self.record(wait_begin, wait_end, wait_end, compute_end,
                            following)
            current = following

    def run(self, loader):
        thread = None
        epoch = self.epoch_ahead if self.args.loop == "ahead" else self.epoch_plain
        if self.args.loop == "thread":
            thread = threading.Thread(target=self.backward_thread, daemon=True)
            thread.start()
        while not self.finished():
            begin = now()
            batches = iter(loader)
            end = now()
            workers = [w.pid for w in getattr(batches, "_workers", [])]
            self.truth.start_epoch(begin, end, workers)
            epoch(batches)
        self.gpu.sync(True)
        if thread is not None:
            self.jobs.put(None)
            thread.join(5)


def pin_for_real(gpu, depth):
    """Make pin_memory=True work where torch has no CUDA.

    The loader's pin thread then runs as it does on a GPU machine: it takes
    every batch from the workers, copies it into page-locked memory of the
    (simulated) runtime and hands it to the main thread.
    """
    pool = job_gpu.PinnedPool(gpu, depth)

    def pin_memory(tensor, device=None):
        size = tensor.numel() * tensor.element_size()
        if size == 0:
            return tensor
        pinned = torch.frombuffer(pool.take(size), dtype=tensor.dtype)
        return pinned.view(tensor.shape).copy_(tensor)

    torch.cuda.is_available = lambda: True
    torch.cuda.current_device = lambda: 0
    torch.cuda.set_device = lambda device: None
    torch.Tensor.pin_memory = pin_memory


def init_worker(_):
    # A worker ends on SIGTERM as usual; only the trainer finishes its step.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    torch.set_num_threads(1)


def slow_worker(text):
    worker, _, factor = text.partition(":")
    return int(worker), float(factor)


def parse():
    here = os.path.dirname(os.path.abspath(__file__))
    root = os.path.dirname(os.path.dirname(here))
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--cudart",
                   default=os.path.join(root, "build/sim/libcudart.so.12"))
    p.add_argument("--data", default=os.path.join(root, "build/e2e/data"),
                   help="directory of the input files")
    p.add_argument("--files", type=int, default=64)
    p.add_argument("--file-kb", type=int, default=64)
    p.add_argument("--cache", choices=sorted(job_data.READERS), default="cached",
                   help="read from the page cache, drop it around each read, "
                        "or read past it (O_DIRECT)")
    p.add_argument("--uncached", dest="cache", action="store_const",
                   const="dropped", help="same as --cache dropped")
    p.add_argument("--workers", type=int, default=2)
    p.add_argument("--batch-size", type=int, default=4)
    p.add_argument("--items-per-epoch", type=int, default=100000)
    p.add_argument("--steps", type=int, default=0, help="0: no limit")
    p.add_argument("--seconds", type=float, default=0, help="0: no limit")
    p.add_argument("--warmup", type=int, default=5, help="steps before READY")
    p.add_argument("--persistent", action="store_true")
    p.add_argument("--prefetch", type=int, default=2)
    p.add_argument("--cpu-ms-per-item", type=float, default=0)
    p.add_argument("--decodes-per-item", type=int, default=1,
                   help="whatever CPU time they take")
    p.add_argument("--sleep-ms", type=float, default=0, help="per item")
    p.add_argument("--jitter", type=float, default=0,
                   help="spread of an item's cost, 0..1")
    p.add_argument("--slow-worker", type=slow_worker, metavar="I:FACTOR")
    p.add_argument("--slow-kind", choices=("cpu", "sleep"), default="cpu")
    p.add_argument("--tensor-kb", type=int, default=600, help="of a batch")
    p.add_argument("--numpy", action="store_true",
                   help="NumPy batches: they go through the result pipe")
    p.add_argument("--sharing", choices=("file_descriptor", "file_system"),
                   default="file_descriptor")
    p.add_argument("--pin", action="store_true", help="with a pin thread")
    p.add_argument("--kernel-us", type=float, default=250)
    p.add_argument("--launches", type=int, default=40, help="per step")
    p.add_argument("--sync-every", type=int, default=1, help="steps; 0: never")
    p.add_argument("--sync-device", action="store_true",
                   help="cudaDeviceSynchronize, not cudaStreamSynchronize")
    p.add_argument("--loss-item", action="store_true",
                   help="copy one float back in every step")
    p.add_argument("--loop", choices=("plain", "ahead", "thread"),
                   default="plain")
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--torch-threads", type=int, default=1)
    p.add_argument("--truth", metavar="FILE")
    p.add_argument("--die-with-parent", action="store_true")
    args = p.parse_args()
    if min(args.batch_size, args.files, args.decodes_per_item) < 1 or args.workers < 0:
        p.error("--batch-size, --files and --decodes-per-item must be positive")
    args.slow = args.slow_worker and args.slow_worker + (args.slow_kind,)
    del args.slow_worker, args.slow_kind
    return args


def main():
    args = parse()
    if args.die_with_parent:
        libc = ctypes.CDLL(None)
        libc.prctl(1, signal.SIGTERM, 0, 0, 0)  # PR_SET_PDEATHSIG
    torch.manual_seed(args.seed)
    torch.set_num_threads(args.torch_threads)
    torch.multiprocessing.set_sharing_strategy(args.sharing)

    paths = job_data.make_files(args.data, args.files, args.file_kb, args.seed)
    gpu = job_gpu.Gpu(args.cudart, args.kernel_us, args.launches,
                      args.tensor_kb * 1024)
    if args.pin:
        pin_for_real(gpu, 4 + 2 * max(args.workers, 1) * args.prefetch)
    loader = DataLoader(
        job_data.Files(paths, args.items_per_epoch, args),
        batch_size=args.batch_size, shuffle=True, drop_last=True,
        num_workers=args.workers, collate_fn=job_data.Collate(args.numpy),
        worker_init_fn=init_worker, pin_memory=args.pin,
        prefetch_factor=args.prefetch if args.workers else 2,
        persistent_workers=args.persistent and args.workers > 0)

    truth = Truth(args.truth)
    truth.header(args)
    job = Job(args, gpu, truth)

    def stop(_signal, _frame):
        job.stop = True

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    try:
        job.run(loader)
    finally:
        truth.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
