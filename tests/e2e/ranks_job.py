# SPDX-License-Identifier: BSD-2-Clause
"""Ranks of one job, each a simjob whose all-reduces meet on their devices, and
what their own logs say about who was late."""

import json
import os
import signal
import subprocess
import tempfile
import time

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SIMJOB = os.path.join(TOP, "build/sim/simjob")
# Work that hardly needs a core: eight ranks share two of them.
COMMON = ["--api", "over", "--seconds", "0", "--workers", "1", "--items", "4", "--item-bytes", "4096",
          "--item-cpu-us", "0", "--random-jitter", "0", "--launches", "12"]


class Job:
    """`own[rank]`: arguments of that rank. A file per rank of each log."""

    def __init__(self, n, args, own, tmp, env=None):
        self.n, self.tmp, self.p = n, tmp, []
        for rank in range(n):
            e = dict(os.environ, RANK=str(rank), WORLD_SIZE=str(n), LOCAL_RANK=str(rank),
                     LD_LIBRARY_PATH=os.path.join(TOP, "build/sim/cuda"),
                     PT_SIM_NCCL=os.path.join(tmp, "meet"),
                     PT_SIM_LOG=os.path.join(tmp, "gpu%d.csv" % rank), **(env or {}))
            self.p.append(subprocess.Popen(
                [SIMJOB, *COMMON, *args, *own.get(rank, []),
                 "--truth", os.path.join(tmp, "truth%d" % rank)],
                env=e, text=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL))

    def wait_ready(self):
        for p in self.p:
            if "pid" not in p.stdout.readline():
                raise RuntimeError("a rank did not start")
        time.sleep(1.0)

    def pids(self):
        return [p.pid for p in self.p]

    def end(self):
        """The ranks' exit statuses; the logs are whole then."""
        for p in self.p:
            if p.poll() is None:
                p.send_signal(signal.SIGTERM)
        status = []
        for p in self.p:
            try:
                status.append(p.wait(20))
            except subprocess.TimeoutExpired:
                p.kill()
                status.append(p.wait())
            p.stdout.close()
        return status

    def steps(self, rank):
        with open(os.path.join(self.tmp, "truth%d" % rank)) as f:
            return [r for r in map(json.loads, f) if "step" in r]

    def device(self, rank):
        """[(begin, end)] of its collectives' kernels."""
        with open(os.path.join(self.tmp, "gpu%d.csv" % rank)) as f:
            rows = [x.strip().split(",") for x in f]
        return [(int(v[3]), int(v[4])) for v in rows if v[-1] == "ncclAllReduce"]


def truth(job, begin, end):
    """By the ranks' own clocks, of what lies in [begin, end): who was last in how
    many all-reduces, and by how much in all, on the host (calls) and on the devices.
    The k-th one of each rank is the k-th of all: every rank logs from its first."""
    calls = [[c for s in job.steps(r) for c in s["calls"]] for r in range(job.n)]
    begins = [[b for b, _ in job.device(r)] for r in range(job.n)]
    out = {}
    for what, rows in (("host", calls), ("device", begins)):
        last, held, n, before = [0] * job.n, [0.0] * job.n, 0, 0
        for at in zip(*rows):
            order = sorted(at)
            if order[0] >= begin and order[-1] < end:
                who = at.index(order[-1])
                last[who] += 1
                held[who] += (order[-1] - max(order[-2], before)) / 1e9
                n += 1
            before = order[-1]
        out[what] = {"n": n, "last": last, "held": held}
    return out
