#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""A training job with a real DataLoader whose functions know what they took.

    linesjob.py CUDART WORKERS METHOD

For each line on standard input it prints {"sums": [[s, sum, ...], ...], "steps": n}: what the
functions took until then, by the monotonic clock, some 20 times a second. The end of the
input ends it.
"""
import json
import os
import sys
import threading
import time

os.environ.setdefault("OMP_NUM_THREADS", "1")  # read when torch is loaded

from torch.utils.data import DataLoader  # noqa: E402

import job_gpu  # noqa: E402
import linesdata  # noqa: E402

steps = 0


sums = []


def note():
    while True:
        sums.append([time.monotonic()] + list(linesdata.SUMS))
        time.sleep(0.05)


def answer():
    for _ in sys.stdin:
        print(json.dumps({"sums": sums, "steps": steps}), flush=True)
    os._exit(0)


def train(gpu, loader):
    global steps
    for batch in loader:
        for k in range(10):
            gpu.check(gpu.lib.cudaLaunchKernel(gpu.kernels[0][k % 8], gpu.grid, gpu.block,
                                               gpu.args, 0, gpu.stream))
        gpu.check(gpu.lib.cudaStreamSynchronize(gpu.stream))
        steps += 1
        if steps == 5:
            threading.Thread(target=note, daemon=True).start()
            threading.Thread(target=answer, daemon=True).start()
            print("READY", flush=True)


if __name__ == "__main__":
    train(job_gpu.Gpu(sys.argv[1], 200, 10, 4096),
          DataLoader(linesdata.Images(), batch_size=4, num_workers=int(sys.argv[2]),
                     multiprocessing_context=sys.argv[3]))
