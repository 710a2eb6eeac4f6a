#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""Simulated nodes, scraped by one real Prometheus on this machine, and what that
costs.

    tests/fleet/scale.py [--nodes 2000] [--jobs 8] [--interval 60] [--minutes 6]
    tests/fleet/scale.py --nodes 100 --interval 6 --minutes 12 --blocks

The second form says how much disk a sample takes: a block of Prometheus holds 2 hours,
120 samples of a series at 60 s, and so it has as many.

The nodes' pages are made by the agent's own code (tools/fleet/simulate.c). Fails where
a scrape fails, where `pipetrace fleet` does not rank what was simulated, or where a
rank that was made slow is not named.
"""
import argparse
import json
import sys
import time

from prom import RULES, Prometheus, Simulate, fleet, get


def line(name, value, unit=""):
    print("%-44s %14s %s" % (name, "%.4g" % value if isinstance(value, float) else value, unit), flush=True)


def page_size(sim):
    return len(get("http://127.0.0.1:%d/0/metrics" % sim.port))


def judge(sim, page):
    """What fails."""
    bad = []
    truth = {t["job_id"]: t for t in sim.truth()}
    jobs = page["jobs"]
    want = sorted((t["wasted"] for t in truth.values()), reverse=True)
    for place, j in enumerate(jobs):
        t = truth.get(j["job_id"])
        if t is None:
            continue  # it ended within the window
        # scraped a moment ago: two samples of a starving job at the most
        if not 0.7 * t["wasted"] - 60 <= j["wasted_gpu_seconds"] <= 1.1 * t["wasted"] + 30:
            bad.append("%s: %g GPU-seconds, simulated %g" % (j["job_id"], j["wasted_gpu_seconds"], t["wasted"]))
        if t["wasted"] < 0.7 * want[min(place, len(want) - 1)] - 60:
            bad.append("%s is not among the first %d" % (j["job_id"], place + 1))
        if t["kind"] in (0, 4):
            bad.append("%s is healthy" % j["job_id"])
    # by node and place: the job before this one had the same fault
    planted = {t["job_id"].split("-")[0] for t in truth.values() if t["straggles"]}
    # five samples are asked for, all of them scraped
    known = {t["job_id"].split("-")[0] for t in truth.values()
             if t["straggles"] and t["gpu"] >= 7 * sim.interval}
    found = {s["job_id"].split("-")[0] for s in page["stragglers"]}
    if found - planted:
        bad.append("no stragglers: %s" % sorted(found - planted)[:5])
    if len(found) < 45 and known - found:
        bad.append("%d of %d stragglers not found" % (len(known - found), len(known)))
    if any(s["reason"] != "data_wait" for s in page["stragglers"]):
        bad.append("stragglers wait for data")
    return bad


def rule_times(p):
    groups = p.api("rules")["data"]["groups"]
    return {g["name"]: g["evaluationTime"] for g in groups}


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--nodes", type=int, default=2000)
    ap.add_argument("--jobs", type=int, default=8)
    ap.add_argument("--interval", type=float, default=60)
    ap.add_argument("--minutes", type=float, default=6)
    ap.add_argument("--blocks", action="store_true", help="measure the disk that samples take")
    args = ap.parse_args()
    sim = Simulate(args.nodes, args.jobs, args.interval)
    with open(RULES, encoding="utf-8") as f:
        rules = f.read()
    rules = rules.replace("interval: 60s", "interval: %gs" % args.interval)
    p = Prometheus(sim.scrape(args.interval), rules, args.interval)
    bad = []
    try:
        if not p.ready():
            print("Prometheus does not start")
            return 1
        time.sleep(args.minutes * 60 * 0.5)
        before = (time.monotonic(), p.cpu(), p.disk(), p.one("prometheus_tsdb_head_samples_appended_total"))
        time.sleep(args.minutes * 60 * 0.5)
        seconds = time.monotonic() - before[0]
        up, nodes = p.one("sum(up{job='pipetrace'})"), p.one("count(up{job='pipetrace'})")
        if up != nodes or nodes != args.nodes:
            bad.append("%g of %g nodes answer" % (up, nodes))
        status = p.api("status/tsdb")["data"]["headStats"]
        samples = p.one("sum(scrape_samples_scraped{job='pipetrace'})")
        line("nodes", args.nodes)
        line("jobs", args.nodes * args.jobs)
        line("bytes of one node's page", page_size(sim))
        line("series of the nodes, as scraped", int(samples))
        line("series per job, mean", samples / (args.nodes * args.jobs))
        line("series in the head, rules' included", status["numSeries"])
        line("samples per second (scrapes)", samples / args.interval)
        for q in (0.5, 0.99, 1):
            line("scrape duration, quantile %g" % q,
                 p.one("quantile(%g, scrape_duration_seconds{job='pipetrace'})" % q) * 1e3, "ms")
        rules_s = rule_times(p)
        for name, t in rules_s.items():
            line("rule evaluation, %s" % name, t, "s")
        line("rule evaluation, all", sum(rules_s.values()), "s")
        line("Prometheus' CPU, rules included", (p.cpu() - before[1]) / seconds, "cores")
        line("Prometheus' resident memory", p.rss() / 2**20, "MiB")
        line("write-ahead log, growth", (p.disk() - before[2]) / seconds / 1024, "KiB/s")
        for more in ([], ["--top", "100"], ["--sort", "share"]):
            used = p.cpu()
            page, took, why, _ = fleet(p.url, "--since", "%ds" % (args.minutes * 60 + 60), "--timeout", "300",
                                       *more, timeout=320)
            line("pipetrace fleet %s" % " ".join(more), took, "s")
            line("... Prometheus' CPU for it, scrapes included", p.cpu() - used, "s")
            if page is None:
                bad.append("pipetrace fleet: " + why.strip())
            elif not more:
                bad += judge(sim, page)
                line("wasted, of the fleet's GPU time", page["totals"]["wasted_gpu_seconds"] /
                     page["totals"]["gpu_seconds"])
        # a block as it is kept: what the head holds now, compacted
        size = blocks(p) if args.blocks else None
        if size:
            line("bytes per sample in a block", size[0] / size[1])
            line("... samples per series there", size[1] / status["numSeries"])
            line("disk per day and job, scraped every 60 s",
                 size[0] / size[1] * status["numSeries"] / (args.nodes * args.jobs) * 1440 / 2**20, "MiB")
    finally:
        p.close()
        sim.close()
    for b in bad:
        print("FAILED: " + b)
    return 1 if bad else 0


def blocks(p):
    """(bytes, samples) of the head, written as a block; None where that is not to
    be had."""
    import os
    import subprocess
    from prom import end
    end(p.proc, 60)
    # compaction of the log at a start is what a snapshot would do; promtool dumps it
    begun = subprocess.Popen(["nice", "prometheus", "--config.file=" + p.dir + "/prometheus.yml",
                              "--storage.tsdb.path=" + p.dir + "/data", "--web.enable-admin-api",
                              "--web.listen-address=127.0.0.1:%d" % p.port],
                             stdout=p.log, stderr=p.log, cwd=p.dir)
    p.proc = begun
    if not p.ready(120):
        return None
    import urllib.request
    from prom import opener
    try:
        done = json.loads(opener.open(urllib.request.Request(
            p.url + "/api/v1/admin/tsdb/snapshot", method="POST"), timeout=120).read())
    except OSError:
        return None
    top = os.path.join(p.dir, "data/snapshots", done["data"]["name"])
    size = count = 0
    for d, _, names in os.walk(top):
        for n in names:
            size += os.path.getsize(os.path.join(d, n))
            if n == "meta.json":
                with open(os.path.join(d, n), encoding="ascii") as f:
                    count += json.load(f)["stats"].get("numSamples", 0)
    return (size, count) if count else None


if __name__ == "__main__":
    sys.exit(main())
