#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""Four ranks of one job on two nodes (two agents on this machine, each of which sees
two ranks): `pipetrace fleet` names the rank that is late, its node, and whether it waits
for data or its host is slow; with none late it names none.

    tests/fleet/ranks.py [--seconds 40] [loader|host|none]...

Truth: which rank was given the slow part, and by the ranks' own logs whether it was the
last to call the all-reduces. Needs root, a build and Debian's prometheus.
"""
import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(os.path.dirname(HERE), "e2e")]
import ranks_job  # noqa: E402
from agent_tools import Agent  # noqa: E402
from prom import Prometheus, end, fleet  # noqa: E402

RANKS, LATE = 4, 2
CASES = {"loader": (["--item-sleep-us", "6000"], "data_wait"),
         "host": (["--host-sleep-us", "20000"], "host"),
         "none": ([], None)}
results = []


def ok(name, good, detail=""):
    results.append(bool(good))
    print("%s %s%s" % ("ok" if good else "not ok", name, "" if good else ": " + str(detail)[:900]), flush=True)


def start(rank, folder, meet, own):
    env = dict(os.environ, RANK=str(rank), WORLD_SIZE=str(RANKS), LOCAL_RANK=str(rank % 2), MASTER_ADDR="10.1.2.3",
               MASTER_PORT="29500", LD_LIBRARY_PATH=os.path.join(ranks_job.TOP, "build/sim/cuda"), PT_SIM_NCCL=meet,
               PT_SIM_LOG=os.path.join(folder, "gpu%d.csv" % rank))
    # A launcher of its own: ranks that one process launches are one job to the agent.
    # Its command line does not hold what names this test's jobs.
    env["RANK_COMMAND"] = " ".join([ranks_job.SIMJOB, *ranks_job.COMMON, "--kernel-us", "800", "--collectives", "2", *own,
                                    "--truth", os.path.join(folder, "truth%d" % rank)])
    return subprocess.Popen(["sh", "-c", "trap 'kill $c' TERM; $RANK_COMMAND & c=$!; wait $c; wait $c"], env=env,
                            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


class Logs:
    """What ranks_job.truth() takes, of logs in two folders."""

    def __init__(self, folders):
        self.n = RANKS
        self.of = [ranks_job.Job.__new__(ranks_job.Job) for _ in range(RANKS)]
        for r in range(RANKS):
            self.of[r].tmp = folders[r]

    def steps(self, r):
        return self.of[r].steps(r)

    def device(self, r):
        return self.of[r].device(r)


def case(name, seconds):
    own, reason = CASES[name]
    top = tempfile.mkdtemp(prefix="pt-ranks.")
    folders = [os.path.join(top, "node%d" % n) for n in range(2)]
    agents, jobs, p = [], [], None
    try:
        for f in folders:
            os.mkdir(f)
            agents.append(Agent(f))
            if not agents[-1].start():
                ok(name + ": the agent starts", False, agents[-1].text())
                return
        p = Prometheus("  - job_name: pipetrace\n    static_configs: [{targets: [%s]}]\n" % ", ".join(
            "'127.0.0.1:%d'" % a.port for a in agents), None, 2)
        jobs = [start(r, folders[r // 2], os.path.join(top, "meet"), own if r == LATE else []) for r in range(RANKS)]
        ok(name + ": Prometheus starts", p.ready())
        begin = time.monotonic_ns()
        time.sleep(seconds)
        page, _, why, _ = fleet(p.url, "--since", "%ds" % (seconds + 10))
        until = time.monotonic_ns()
        for j in jobs:
            end(j, 20)
        ok(name + ": pipetrace fleet answers", page is not None, why)
        true = ranks_job.truth(Logs([folders[r // 2] for r in range(RANKS)]), begin, until)["host"]
        print("%s: of %d all-reduces each rank was last in %s, by its clock" % (name, true["n"], true["last"]))
        if page:
            judge(name, page, agents, reason, true)
    finally:
        for j in jobs:
            end(j, 20)
        if p:
            p.close()
        for a in agents:
            a.close()
        shutil.rmtree(top, ignore_errors=True)


def judge(name, page, agents, reason, true):
    found = page["stragglers"]
    print("%s: %s" % (name, [(s["rank"], s["reason"], "%.1f ms, median %.1f" % (
        1e3 * s["own_seconds"], 1e3 * s["median_seconds"])) for s in found]))
    ok(name + ": four ranks on two nodes are one group", page["totals"]["groups"] == 1 and
       {j["rank"] for j in page["jobs"]} == set("0123") and len({j["node"] for j in page["jobs"]}) == 2, page["jobs"])
    if reason is None:
        ok(name + ": nobody is late", not found, found)
        return
    ok(name + ": the late rank is the last, by the ranks' logs", true["last"][LATE] > 0.8 * true["n"], true)
    ok(name + ": it is named, with its node and why", len(found) == 1 and found[0]["rank"] == str(LATE) and
       found[0]["node"].endswith(":%d" % agents[LATE // 2].port) and found[0]["reason"] == reason, found)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--seconds", type=int, default=40)
    ap.add_argument("case", nargs="*", choices=list(CASES) + [[]])
    args = ap.parse_args()
    if os.geteuid() or not shutil.which("prometheus"):
        print("skipped: needs root and Debian's prometheus")
        return 77
    for name in args.case or CASES:
        case(name, args.seconds)
    print("%d passed, %d failed, 0 skipped" % (sum(results), len(results) - sum(results)))
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
