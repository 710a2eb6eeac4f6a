#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""A real Prometheus scrapes a real agent that watches three simulated-GPU jobs (one
healthy, one starving, one with a slow worker), while others come and go.

    tests/fleet/live.py [--minutes 10]

Everything is ten times faster than in the field: rules, scrapes every 2 s, samples of
2 s in every 6 s. Truth is each job's device log and step log. Holds: alerts for the
right jobs only, the ranking of `pipetrace fleet`, wasted GPU-seconds within 10 %, ended
jobs gone. Needs root, a build, and Debian's prometheus. The rule for tests on a noisy
machine: judged by the jobs' own logs of the same time, which have the noise in them.
"""
import argparse
import json
import os
import shutil
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(os.path.dirname(HERE), "e2e")]
from prom import RULES, Prometheus, end, faster, fleet  # noqa: E402
from agent_tools import Agent, slowest, start_job, wait_share  # noqa: E402

FACTOR = 10
EVERY = 2
SHARE = 0.10  # of what was wasted,
FLOOR = 0.02  # or this share of the GPU time, for a job that wastes next to nothing
SHAPES = {
    "healthy": "--workers 2 --items 8 --item-cpu-us 10 --launches 20 --kernel-us 1000",
    "starved": "--workers 2 --items 16 --item-cpu-us 0 --item-sleep-us 3000 --launches 4 "
               "--kernel-us 200",
    "slow": "--workers 3 --items 16 --item-cpu-us 10 --item-sleep-us 300 --slow-worker 1:8 "
            "--launches 10 --kernel-us 100",
}
results = []


def ok(name, good, detail=""):
    results.append(bool(good))
    print("%s %s%s" % ("ok" if good else "not ok", name, "" if good else ": " + str(detail)[:700]), flush=True)


class Job:
    def __init__(self, tmp, name, shape, seconds):
        self.name, self.shape = name, shape
        self.csv = os.path.join(tmp, name + ".csv")
        self.proc, self.log = start_job(tmp, name, SHAPES[shape], seconds, dict(os.environ, PT_SIM_LOG=self.csv))
        self.pid, self.began = self.proc.pid, time.monotonic()
        self.over = None

    def stop(self):
        end(self.proc, 15)
        self.over = self.over or time.monotonic()

    def idle(self, begin, until):
        """Seconds in which the device had nothing to do, by its log; monotonic s."""
        spans = []
        with open(self.csv, encoding="ascii") as f:
            for line in f:
                v = line.split(",")
                if v[0] in ("kernel", "h2d", "d2h", "d2d", "memset"):
                    spans.append((int(v[3]) / 1e9, int(v[4]) / 1e9))
        busy, last = 0.0, begin
        for b, e in sorted(spans):
            b, e = max(b, last), min(e, until)
            if e > b:
                busy += e - b
                last = e
        return until - begin - busy


def scrape(port):
    return """
  - job_name: pipetrace
    scrape_interval: %ds
    static_configs: [{targets: ['127.0.0.1:%d']}]
""" % (EVERY, port)


def alerts(p, pids, seconds):
    """{alert: {name of the job}} of all that fired in the run."""
    fired = {}
    for labels, _ in p.query("max_over_time(ALERTS{alertstate='firing'}[%ds])" % seconds):
        fired.setdefault(labels["alertname"], set()).add(
            pids.get(labels.get("job_id"), labels.get("job_id") or labels.get("instance")))
    return fired


def watch(tmp, p, agent, minutes):
    """Runs the jobs. [Job]."""
    span = minutes * 60
    jobs = [Job(tmp, name, name, span + 60) for name in SHAPES]
    begin, n = time.monotonic(), 0
    while time.monotonic() - begin < span:
        # a short one of each kind in turn, one at a time
        short = Job(tmp, "short%d" % n, ("healthy", "starved")[n % 2], 120)
        jobs.append(short)
        n += 1
        time.sleep(min(25, max(0, begin + span - time.monotonic())))
        short.stop()
        if agent.proc.poll() is not None or p.proc.poll() is not None:
            break
        time.sleep(min(5, max(0, begin + span - time.monotonic())))
    # what the last samples saw is to be scraped
    for j in jobs[:3]:
        j.stop()
    agent.until(lambda: not agent.children(), 20)
    time.sleep(3 * EVERY)
    return jobs


def judge(p, jobs, span):
    # the clocks differ by this
    offset = time.time() - time.monotonic()
    window = span + 60
    info = p.query("last_over_time(pipetrace_job_info[%ds])" % window)
    ids = {int(l["pid"]): l["job_id"] for l, _ in info}
    names = {ids[j.pid]: j.name for j in jobs if j.pid in ids}
    page, took, why, _ = fleet(p.url, "--since", "%ds" % window, "--top", "200")
    ok("pipetrace fleet answers", page is not None, why)
    if page is None:
        return
    print("pipetrace fleet took %.2f s" % took)
    since = {l["job_id"]: v for l, v in p.query(
        "min_over_time(pipetrace_job_counting_start_time_seconds[%ds])" % window)}
    found = {names.get(j["job_id"], j["job_id"]): j for j in page["jobs"]}
    ok("no job that is none of ours", set(found) <= {j.name for j in jobs}, list(found))
    rows = []
    for j in jobs:
        mine = found.get(j.name)
        if mine is None or not mine["covered_seconds"]:
            print("%s was never sampled: it lived %.0f s" % (j.name, j.over - j.began))
            continue
        begin = since[mine["job_id"]] - offset
        # the last sample's end: all before it is covered
        until = min(j.over, begin + mine["covered_seconds"])
        truth, gpu = j.idle(begin, until), until - begin
        rows.append((j, mine, truth, gpu))
        print("%-9s wasted %7.2f s (%.2f..%.2f), truth %7.2f of %6.1f s, %+5.1f %%, %s" % (
            j.name, mine["wasted_gpu_seconds"], mine["wasted_likely"][0], mine["wasted_likely"][1], truth, gpu,
            100 * (mine["wasted_gpu_seconds"] / truth - 1) if truth else 0,
            (mine["verdict"] or {}).get("id")))
    for j, mine, truth, gpu in rows[:3]:
        ok("%s: wasted GPU-seconds within 10 %% of the job's own log" % j.name,
           abs(mine["wasted_gpu_seconds"] - truth) <= max(SHARE * truth, FLOOR * gpu),
           (mine["wasted_gpu_seconds"], truth))
    ok("the long jobs are there", [r[0].name for r in rows[:3]] == list(SHAPES), [r[0].name for r in rows])
    place = {names.get(j["job_id"]): i for i, j in enumerate(page["jobs"])}
    wrong = [(a[0].name, b[0].name) for a in rows for b in rows
             if a[2] > 1.25 * b[2] + 2 and place[a[0].name] > place[b[0].name]]
    ok("ranked as by the jobs' own logs", not wrong, wrong)
    verdicts(p, found, jobs, names, span)


def verdicts(p, found, jobs, names, span):
    share = {j.name: wait_share(j.log) for j in jobs[:3]}
    print("data wait by the jobs' logs: %s; the slow worker takes %.1f times as long" % (
        ", ".join("%s %.0f %%" % (k, 100 * v) for k, v in share.items()), slowest(jobs[2].log)))
    fired = alerts(p, names, span + 60)
    print("alerts: %s" % {k: sorted(map(str, v)) for k, v in fired.items()})
    starved = fired.pop("PipetraceGpuStarved", set())
    ok("the starving job alerts", "starved" in starved, starved)
    ok("... and others only where their log has them wait", starved <= {
        n for n in ("starved", "slow", "healthy") if share[n] > 0.2}, (starved, share))
    ok("the slow worker alerts, nobody else's", fired.pop("PipetraceSlowWorker", set()) == {"slow"}, fired)
    ok("no other alert", not fired, fired)
    said = {n: (found[n]["verdict"] or {}).get("id") for n in SHAPES if n in found}
    ok("slow_worker is the slow job's verdict", said.get("slow") == "slow_worker", said)
    ok("the healthy job has none that warns", (found["healthy"]["verdict"] or {}).get("severity") in
       (None, "info"), found["healthy"]["verdict"])


def expired(p, jobs, agent):
    """Series of jobs that ended a while ago are gone."""
    until = time.monotonic() + float(agent.settings["expire"][:-1]) + 20
    left = None
    while time.monotonic() < until:
        left = p.query("pipetrace_samples_total")
        if not left:
            break
        time.sleep(1)
    ok("series of ended jobs are gone", not left, left)
    rows = p.query("max(max_over_time(count by (job_id) ({job_id!=''})[10m:10s]))")
    ok("at most 61 series per job, and those of rules", rows and rows[0][1] <= 61 + 20, rows)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--minutes", type=float, default=10)
    ap.add_argument("--keep", help="leave the logs here")
    args = ap.parse_args()
    if os.geteuid():
        print("skipped: needs root")
        return 77
    if not shutil.which("prometheus"):
        print("skipped: no prometheus (Debian package)")
        return 77
    tmp = args.keep or tempfile.mkdtemp(prefix="pt-live.")
    os.makedirs(tmp, exist_ok=True)
    agent, p, jobs = Agent(tmp), None, []
    agent.configure(expire="20s")
    try:
        if not agent.start():
            ok("the agent starts", False, agent.text())
            return 1
        with open(RULES, encoding="utf-8") as f:
            p = Prometheus(scrape(agent.port), faster(f.read(), FACTOR), EVERY)
        if not p.ready():
            ok("Prometheus starts", False)
            return 1
        jobs = watch(tmp, p, agent, args.minutes)
        judge(p, jobs, args.minutes * 60)
        expired(p, jobs, agent)
        ok("the agent said nothing of failures", "<3>" not in agent.text() and " failed" not in agent.text(),
           agent.text()[-500:])
    finally:
        for j in jobs:
            end(j.proc)
        if p:
            if args.keep:
                with open(os.path.join(tmp, "rows.json"), "w", encoding="utf-8") as f:
                    json.dump(p.query("last_over_time({__name__=~'pipetrace.*'}[30m])"), f)
            p.close()
        agent.close()
        if not args.keep:
            shutil.rmtree(tmp, ignore_errors=True)
    print("%d passed, %d failed, 0 skipped" % (sum(results), len(results) - sum(results)))
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
