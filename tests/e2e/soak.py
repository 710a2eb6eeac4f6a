#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""The agent for a long time, with jobs that come and go: what it costs, whether it
grows, what it leaves. Then one job's throughput with the agent on and off in turns, by
the job's own log. Not a part of `make test`: tests/e2e/soak.py --minutes 30 --jobs 200
is the campaign (root). Needs a build.
"""
import argparse
import math
import os
import random
import statistics
import sys
import tempfile
import time

from agent_tools import Agent, start_job, steps
from badinput_tools import PIPETRACE, SIMJOB, bpf_objects, left_behind

results, skipped = [], []
SHAPES = ("--workers 2 --items 8 --item-cpu-us 10 --launches 20 --kernel-us 1000",
          "--workers 2 --items 16 --item-cpu-us 0 --item-sleep-us 3000 --launches 4",
          "--workers 3 --items 16 --item-cpu-us 10 --item-sleep-us 300 --slow-worker 1:8",
          "--workers 2 --threads --items 8 --item-cpu-us 20 --item-sleep-us 500",
          "--workers 0 --items 8 --item-cpu-us 100 --launches 10 --kernel-us 300")
PROBE = "--workers 2 --items 16 --item-cpu-us 150 --launches 20 --kernel-us 50"


def ok(name, good, detail=""):
    results.append(bool(good))
    print("%s %s%s" % ("ok" if good else "not ok", name, "" if good else ": " + str(detail)),
          flush=True)
    return good


def resident(pid):
    with open("/proc/%d/statm" % pid, encoding="ascii") as f:
        return int(f.read().split()[1]) * os.sysconf("SC_PAGESIZE")


class Churn:
    """Jobs that start and stop: politely, or killed."""

    def __init__(self, tmp, total, seconds, dice):
        self.tmp, self.dice, self.live, self.started = tmp, dice, [], 0
        self.at = sorted(dice.uniform(0, seconds * 0.95) for _ in range(total))

    def tick(self, now):
        while self.at and self.at[0] <= now and len(self.live) < 6:
            self.at.pop(0)
            self.started += 1
            job, _ = start_job(self.tmp, "job%d" % self.started, self.dice.choice(SHAPES), 300)
            self.live.append((now + self.dice.uniform(1, 60), job))
        for end, job in list(self.live):
            if now >= end:
                self.stop(job)
                self.live.remove((end, job))

    def stop(self, job):
        if self.dice.random() < 0.5:
            job.kill()
        else:
            job.terminate()
        job.wait()

    def close(self):
        for _, job in self.live:
            self.stop(job)
        self.live = []


def soak(agent, args, dice):
    churn = Churn(agent.tmp, args.jobs, args.minutes * 60, dice)
    begin, rows = time.monotonic(), []
    cpu = agent.value("pipetrace_agent_cpu_seconds_total")
    try:
        while True:
            now = time.monotonic() - begin
            if now > args.minutes * 60 or agent.proc.poll() is not None:
                break
            churn.tick(now)
            rows.append((now, resident(agent.proc.pid), agent.descriptors()))
            if len(rows) % 60 == 0:
                print("# %4.0f s: %.1f MiB, %d descriptors, %.2f s of CPU, %d jobs started" % (
                    now, rows[-1][1] / 1048576, rows[-1][2],
                    agent.value("pipetrace_agent_cpu_seconds_total") - cpu, churn.started),
                    flush=True)
            time.sleep(0.5)
        wall = time.monotonic() - begin
        cpu = agent.value("pipetrace_agent_cpu_seconds_total") - cpu
    finally:
        churn.close()
    if not ok("the agent is still there", agent.proc.poll() is None, agent.text()[-2000:]):
        return
    print("# %d jobs in %.1f minutes; %.2f %% of a core; %d warnings" % (
        churn.started, wall / 60, 100 * cpu / wall, agent.text().count("<4>")))
    ok("all jobs were started", churn.started >= 0.9 * args.jobs, churn.started)
    budget = float(agent.settings["cpu"]) / 100
    # it learns what a sample costs in its first windows
    ok("it kept its budget", cpu / wall < budget * 1.25, cpu / wall)
    growth(rows)


def growth(rows):
    """Memory of the last quarter against the second; the first is for learning."""
    quarter = len(rows) // 4
    second = [r[1] for r in rows[quarter:2 * quarter]]
    last = [r[1] for r in rows[3 * quarter:]]
    noise = max(second) - min(second)
    print("# resident: %.1f MiB in the second quarter (spread %.1f), %.1f in the last, %.1f at "
          "most" % (statistics.median(second) / 1048576, noise / 1048576,
                    statistics.median(last) / 1048576, max(r[1] for r in rows) / 1048576))
    ok("its memory does not grow", statistics.median(last) <
       statistics.median(second) + max(noise, 1 << 20), (second[-1], last[-1]))


def left(agent, before, open_at_first):
    """Jobs have ended, and are forgotten: so are their descriptors."""
    agent.until(lambda: not agent.jobs() and not agent.children(), 60)
    ok("ended jobs are forgotten", not agent.jobs(), agent.jobs())
    ok("no descriptor is left", agent.until(lambda: agent.descriptors() <= open_at_first, 20),
       (open_at_first, agent.descriptors()))
    status, took = agent.end()
    ok("it ends when it is told", status == 0 and took < 5, (status, took))
    objects = left_behind(before, [agent.proc.pid])
    ok("no BPF object is left", not objects, objects)


def throughput(agent, args):
    """Steps per second of one job, with the agent and without, in turns. A phase begins
    behind the agent's start or end."""
    job, log = start_job(agent.tmp, "probe", PROBE, 0)
    phases = []
    try:
        time.sleep(3)
        for pair in range(args.pairs):
            for on in ((False, True), (True, False))[pair % 2]:
                if on and not agent.start():
                    return ok("the agent starts", False, agent.text()[-500:])
                begin = time.monotonic_ns()
                time.sleep(args.phase)
                phases.append((pair, on, begin, time.monotonic_ns()))
                if on:
                    agent.end()
    finally:
        job.terminate()
        job.wait()
    done = [r["compute_end"] for r in steps(log)]
    rate = {}
    for pair, on, begin, end in phases:
        rate[(pair, on)] = sum(begin <= t < end for t in done) / (end - begin) * 1e9
    ratios = [rate[(p, True)] / rate[(p, False)] for p in range(args.pairs)]
    mean = statistics.mean(ratios)
    half = 2.2 * statistics.stdev(ratios) / math.sqrt(len(ratios)) if len(ratios) > 1 else math.nan
    print("# throughput with the agent over without: %.4f +- %.4f (%d pairs of %d s; a sample of "
          "5 s in each phase of the agent)" % (mean, half, args.pairs, args.phase))
    if not half < 0.05:
        print("# skipped: throughput: this machine is too noisy, or there were too few pairs")
        skipped.append(1)
        return None
    return ok("the job does not notice it, as far as this machine can tell",
              1 - mean - half < 0.02, ratios)


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    p.add_argument("--minutes", type=float, default=30)
    p.add_argument("--jobs", type=int, default=200)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--interval", default="20s")
    p.add_argument("--cpu", default="10", help="the budget, percent of a core")
    p.add_argument("--pairs", type=int, default=6, help="of the throughput part; 0: none")
    p.add_argument("--phase", type=int, default=20, help="s of each of its phases")
    args = p.parse_args()
    if os.geteuid() != 0:
        print("needs root")
        return 77
    if not os.access(PIPETRACE, os.X_OK) or not os.access(SIMJOB, os.X_OK):
        print("build/pipetrace is not built")
        return 1
    before = bpf_objects()
    with tempfile.TemporaryDirectory(prefix="pipetrace-soak-") as tmp:
        agent = Agent(tmp)
        agent.configure(interval=args.interval, sample="5s", cpu=args.cpu, at_once=1,
                        expire="20s")
        try:
            if not ok("it starts", agent.start(), agent.text()):
                return 1
            time.sleep(1)
            open_at_first = agent.descriptors()
            soak(agent, args, random.Random(args.seed))
            left(agent, before, open_at_first)
            if args.pairs:
                throughput(agent, args)
        finally:
            agent.close()
    failed = results.count(False)
    print("%d passed, %d failed, %d skipped" % (len(results) - failed, failed, len(skipped)))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
