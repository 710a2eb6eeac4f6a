#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""One training loop, told what to do by lines on standard input.

    loops.py NAME torch|sim

Lines in: "profile PATH" begins a profile, "stop" ends it and writes the Chrome
trace, "between A B" asks for the steps that ended in [A, B) (CLOCK_MONOTONIC, ns),
"quit". Every answer is one line of JSON. The loop goes on all the time.
"""

import array
import bisect
import ctypes
import json
import os
import select
import sys
import time

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
NAMES = ("input_bound", "balanced", "launch_bound", "sync_bound", "transfer_bound")
MARK = "pt_mark "
WARM_S, WARM_STEPS, WARM_MAX_S = 3, 20, 60


# ---- PyTorch -------------------------------------------------------------------

class SlowItems:
    """A data set whose items cost CPU time."""

    def __init__(self, torch, cpu_s, side):
        self.torch, self.cpu_s, self.side = torch, cpu_s, side

    def __len__(self):
        return 1 << 30

    def __getitem__(self, i):
        end = time.thread_time() + self.cpu_s
        while time.thread_time() < end:
            pass
        return self.torch.full((3, self.side, self.side), float(i % 7))


class TorchLoop:
    def __init__(self, name):
        import torch
        self.torch = torch
        torch.manual_seed(1)
        self.dev = torch.device("cuda")
        self.step = getattr(self, name)
        self.n, self.prof, self.path = 0, None, None
        make = getattr(self, "make_" + name, None)
        if make:
            make()

    # A loader's cost and the network's size decide who waits for whom.
    def loader_and_net(self, cpu_s, side, batch, width):
        torch = self.torch
        nn = torch.nn
        self.data = iter(torch.utils.data.DataLoader(
            SlowItems(torch, cpu_s, side), batch_size=batch, num_workers=2,
            pin_memory=True))
        self.net = nn.Sequential(
            nn.Conv2d(3, width, 3, padding=1), nn.ReLU(),
            nn.Conv2d(width, width, 3, padding=1), nn.ReLU(),
            nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 10)).to(self.dev)
        self.opt = torch.optim.SGD(self.net.parameters(), lr=1e-4)
        self.losses = 0.0

    def train(self):
        x = next(self.data).to(self.dev, non_blocking=True)
        self.opt.zero_grad()
        loss = self.net(x).square().mean()
        loss.backward()
        self.opt.step()
        self.losses += loss.item()

    def make_input_bound(self):
        self.loader_and_net(0.004, 64, 16, 32)

    def make_balanced(self):
        self.loader_and_net(0.0, 96, 64, 128)

    input_bound = balanced = train

    def make_launch_bound(self):
        self.x = self.torch.zeros(64, device=self.dev)

    def launch_bound(self):
        for _ in range(200):
            self.x.add_(1.0)
        self.n += 1
        if self.n % 20 == 0:
            self.x.sum().item()

    def make_sync_bound(self):
        self.a = self.torch.rand(512, 512, device=self.dev)

    def sync_bound(self):
        for _ in range(30):
            self.a.mm(self.a)[0, 0].item()

    def make_transfer_bound(self):
        self.host = self.torch.zeros(16 << 20)  # 64 MiB, pageable

    def transfer_bound(self):
        self.host.to(self.dev).sum().item()

    def mark(self):
        for _ in range(5):
            with self.torch.profiler.record_function(MARK + str(time.monotonic_ns())):
                pass

    def profile(self, path):
        p = self.torch.profiler
        self.path = path
        self.prof = p.profile(activities=[p.ProfilerActivity.CPU,
                                          p.ProfilerActivity.CUDA])
        self.prof.start()
        self.mark()

    def stop(self):
        self.mark()
        self.torch.cuda.synchronize()
        self.prof.stop()
        self.prof.export_chrome_trace(self.path)
        self.prof = None


# ---- the simulated runtime -----------------------------------------------------

class Dim3(ctypes.Structure):
    _fields_ = [(c, ctypes.c_uint) for c in "xyz"]


class SimLoop:
    """The same loops in ctypes; its truth is the device's log, put into the
    form of the profiler's trace."""

    def __init__(self, name):
        self.log = os.environ["PT_SIM_LOG"]
        # CUPTI's stand-in looks for the device among the global symbols
        self.rt = ctypes.CDLL(os.path.join(TOP, "build/sim/libcudart.so.12"),
                              mode=ctypes.RTLD_GLOBAL)
        self.rt.ptsim_set_kernel_ns.argtypes = [ctypes.c_uint64]
        self.rt.cudaLaunchKernel.argtypes = [
            ctypes.c_void_p, Dim3, Dim3, ctypes.c_void_p, ctypes.c_size_t,
            ctypes.c_void_p]
        self.rt.cudaMemcpyAsync.argtypes = [
            ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int,
            ctypes.c_void_p]
        self.host = ctypes.create_string_buffer(64 << 20)
        self.device = ctypes.c_void_p()
        self.check(self.rt.cudaMalloc(ctypes.byref(self.device),
                                      ctypes.c_size_t(64 << 20)))
        self.step = getattr(self, name)
        self.n, self.path, self.marks = 0, None, []

    @staticmethod
    def check(err):
        if err:
            raise RuntimeError("error %d of the simulated runtime" % err)

    def launch(self, count, ns):
        self.rt.ptsim_set_kernel_ns(ns)
        for _ in range(count):
            self.check(self.rt.cudaLaunchKernel(1 << 20, Dim3(1, 1, 1), Dim3(32, 1, 1),
                                                None, 0, None))

    def up(self, size):
        self.check(self.rt.cudaMemcpyAsync(self.device, self.host, size, 1, None))

    def item(self):
        """As tensor.item(): the copy, then a sync."""
        self.check(self.rt.cudaMemcpyAsync(self.host, self.device, 8, 2, None))
        self.check(self.rt.cudaStreamSynchronize(None))

    def input_bound(self):
        time.sleep(0.02)
        self.up(1 << 20)
        self.launch(10, 300000)
        self.item()

    def balanced(self):
        self.up(1 << 20)
        self.launch(20, 500000)
        self.item()

    def launch_bound(self):
        self.launch(100, 2000)
        self.n += 1
        if self.n % 20 == 0:
            self.item()

    def sync_bound(self):
        for _ in range(30):
            self.launch(1, 20000)
            self.item()

    def transfer_bound(self):
        self.up(64 << 20)
        self.launch(1, 100000)
        self.item()

    def profile(self, path):
        self.path, self.marks = path, [time.monotonic_ns()] * 2

    def stop(self):
        self.marks += [time.monotonic_ns()] * 2
        self.check(self.rt.cudaDeviceSynchronize())
        time.sleep(1.2)         # the log is written every half second
        with open(self.log, encoding="utf-8") as f:
            events = chrome_events(f, self.marks[0], self.marks[-1])
        # a clock of its own, as the profiler's is
        base = self.marks[0] - 987654321000
        for t in self.marks:
            events.append({"ph": "X", "cat": "user_annotation", "name": MARK + str(t),
                           "ts": t, "dur": 1000, "args": {}})
        for e in events:
            e["ts"], e["dur"] = (e["ts"] - base) / 1000, e["dur"] / 1000
        with open(self.path, "w", encoding="utf-8") as f:
            json.dump({"schemaVersion": 1, "traceEvents": events}, f)


def chrome_events(lines, begin, end):
    """The device's log as the profiler would tell it; times still in ns."""
    cats = {"kernel": "kernel", "memset": "gpu_memset"}
    names = {"h2d": "Memcpy HtoD (Pageable -> Device)",
             "d2h": "Memcpy DtoH (Device -> Pageable)", "d2d": "Memcpy DtoD"}
    out = []
    rows = [line.strip().split(",") for line in lines if line[0] != "#"]
    rows = [v for v in rows if v[0] != "op" and len(v) >= 8]
    held = sorted((int(v[3]), int(v[4]), v[7]) for v in rows if v[0] == "host")
    for i, v in enumerate(rows):
        submit, a, b = int(v[2]), int(v[3]), int(v[4])
        if v[0] == "host" or b < begin or submit > end:
            continue
        # a call that found the queue full was entered before it submitted
        at = bisect.bisect_right(held, (submit, 1 << 63, "")) - 1
        if at >= 0 and held[at][1] >= submit and held[at][2] == v[7]:
            submit = held[at][0]
        out.append({"ph": "X", "cat": cats.get(v[0], "gpu_memcpy"),
                    "name": names.get(v[0], v[0]), "ts": a, "dur": b - a,
                    "args": {"device": 0, "correlation": i, "bytes": int(v[5])}})
        out.append({"ph": "X", "cat": "cuda_runtime", "name": v[7], "ts": submit,
                    "dur": 1000, "args": {"correlation": i}})
    return out


# ---- the loop ------------------------------------------------------------------

def say(**what):
    print(json.dumps(what), flush=True)


def between(ends, a, b):
    """Steps that ended in [a, b), and how many a second between the first and
    the last of them."""
    i, j = bisect.bisect_left(ends, a), bisect.bisect_left(ends, b)
    n = j - i
    rate = (n - 1) * 1e9 / (ends[j - 1] - ends[i]) if n > 2 else None
    return n, rate


def obey(loop, line, ends):
    """False to end."""
    v = line.split()
    if not v or v[0] == "quit":
        return False
    if v[0] == "profile":
        loop.profile(line.split(None, 1)[1].strip())
        say(profiling=True)
    elif v[0] == "stop":
        loop.stop()
        say(stopped=True)
    elif v[0] == "between":
        n, rate = between(ends, int(v[1]), int(v[2]))
        say(steps=n, rate=rate)
    return True


def main():
    name, kind = sys.argv[1:3]
    if name not in NAMES:
        sys.exit("no such loop: " + name)
    loop = TorchLoop(name) if kind == "torch" else SimLoop(name)
    begin = time.monotonic()
    steps = 0
    while True:
        t = time.monotonic() - begin
        if t > WARM_MAX_S or (t > WARM_S * (1 if kind == "torch" else 0.1)
                              and steps >= WARM_STEPS):
            break
        loop.step()
        steps += 1
    say(ready=True, pid=os.getpid())
    ends = array.array("q")
    while True:
        loop.step()
        ends.append(time.monotonic_ns())
        if select.select([sys.stdin], [], [], 0)[0] and \
                not obey(loop, sys.stdin.readline(), ends):
            break


if __name__ == "__main__":
    main()
