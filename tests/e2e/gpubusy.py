#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""Random GPU jobs, and whether the busy share that is reported for each device
holds what the device's own log says.

    gpubusy.py [--jobs N] [--seed N] [--keep DIR] [--cupti]    trace; needs root
    gpubusy.py --replay DIR                                    judge again what was kept

A seed decides what a job does (build/sim/gpujob --seed N --dry-run says it), and
whether a second process shares its device. The job runs before the trace begins
and goes on behind its end, so work is queued at both.

The rules, which decide the exit status: the true share lies inside `hard` in
every job; inside `likely` in 95 of 100 (one miss is allowed in fewer than 20
jobs); the median width of `likely` is at most 10 points where a sync occurs at
least every 20 steps. With --cupti: `hard`; `share` within 1 point wherever it is
called measured, and in every job, unless an untraced process used the device or the
job never waits for it. One that is estimated and farther off runs once more, and if
tasks waited for a core for over 15 % of both runs (the kernel's own figure), that is
said instead of counted.

Every job is a row; the last line is "N passed, N failed, N skipped".
"""

import argparse
import itertools
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(TOP, "tests"))
from noise import pressure_s  # noqa: E402

LEAD_S, TRACE_S, TAIL_S = 0.5, 2.5, 30   # the tail is cut short by SIGTERM
HALF_S = 1.9             # a job of two phases changes then, inside the trace
EPS = 0.0005             # the report's shares are rounded
NOISY = 0.15             # quiet runs: 0.01 to 0.06; with two hogs: 0.23 to 0.62
LIKELY_MIN, WIDTH_MAX, EXACT_MAX = 0.95, 0.10, 0.01
SYNCS = ("device", "stream", "event", "item", "mix")


class Broken(Exception):
    """The run could not be judged."""


# ---- truth ---------------------------------------------------------------------

def intervals(path):
    """{device: [(start, end), ...]} of one process's log."""
    out = {}
    with open(path, encoding="utf-8") as f:
        for line in f:
            if line.startswith("# lost"):
                raise Broken("the device's log has gaps")
            v = line.rstrip("\n").split(",")
            if line[0] == "#" or v[0] in ("op", "host") or len(v) < 8:
                continue
            device = int(v[8]) if len(v) > 8 else 0
            out.setdefault(device, []).append((int(v[3]), int(v[4])))
    return out


def busy_share(spans, begin, end):
    """Share of [begin, end) in which at least one operation ran."""
    total, upto = 0, begin
    for a, b in sorted(spans):
        a, b = max(a, upto), min(b, end)
        if b > a:
            total, upto = total + b - a, b
    return total / (end - begin)


def truth(logs, begin, end):
    """{device: busy share} by the logs of all processes on the machine."""
    spans = {}
    for path in logs:
        for device, v in intervals(path).items():
            spans.setdefault(device, []).extend(v)
    return {d: busy_share(v, begin, end) for d, v in spans.items()}


# ---- one job -------------------------------------------------------------------

def draw(seed):
    """What is not the job's own: a neighbour on the device, who is traced."""
    r = random.Random("pair %d" % seed)
    if r.random() >= 0.08:
        return {"seeds": [seed], "traced": 1}
    return {"seeds": [seed, seed + 1000000], "traced": r.choice((1, 2, 2))}


class Job:
    """One gpujob process; it is ended by its id whatever happens."""

    def __init__(self, o, seed, log, env):
        argv = [os.path.join(o.build, "sim/gpujob"), "--seed", str(seed)]
        if o.cupti and '"api": "hip"' in subprocess.run(
                [*argv, "--dry-run"], capture_output=True, text=True, timeout=10,
                check=True).stdout:
            argv += ["--api", "driver"]    # HIP has no CUPTI
        self.p = subprocess.Popen(
            argv + ["--seconds", str(2 * HALF_S), "--then", str(TAIL_S)],
            env=dict(os.environ, PT_SIM_LOG=log, **env, LD_LIBRARY_PATH=os.path.join(
                o.build, "sim/cuda")), text=True, # where CUPTI lies
            stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.plan = None

    def read_plan(self):
        self.plan = json.loads(self.p.stdout.readline() or "{}")
        if "seed" not in self.plan:
            raise Broken("the job did not start: " + self.p.stderr.read()[-200:])

    def end(self):
        if self.p.poll() is None:
            self.p.send_signal(signal.SIGTERM)
        try:
            out, err = self.p.communicate(timeout=20)
        except subprocess.TimeoutExpired as e:
            raise Broken("the job did not end") from e
        if self.p.returncode or '"end"' not in out:
            raise Broken("the job failed: " + err[-200:])

    def kill(self):
        if self.p.poll() is None:
            self.p.kill()
        self.p.communicate()


def run_job(o, seed, d):
    """Trace one; leaves NAME.raw, NAME.json, NAME.meta.json, NAME.N.csv in d."""
    name = "job%d" % seed
    stem = os.path.join(d, name)
    meta = draw(seed)
    logs = ["%s.%d.csv" % (stem, i) for i in range(len(meta["seeds"]))]
    env, share = {}, "/dev/shm/pipetrace-gpubusy-%d" % os.getpid()
    if len(logs) > 1:
        env["PT_SIM_SHARED"] = share
    for path in logs:
        if os.path.exists(path):
            os.unlink(path)
    jobs = []
    try:
        for s, log in zip(meta["seeds"], logs):
            jobs.append(Job(o, s, log, env))
            jobs[-1].read_plan()
        time.sleep(LEAD_S)
        pids = [str(j.p.pid) for j in jobs[:meta["traced"]]]
        at, waited = time.monotonic(), pressure_s()
        t = subprocess.run(
            [os.path.join(o.build, "pipetrace"), "-p", ",".join(pids), "-d",
             str(TRACE_S), "--raw-stream", stem + ".raw", "--json",
             stem + ".json"] + ["--cupti"] * o.cupti,
            capture_output=True, text=True, timeout=60, check=False)
        # where the kernel does not say, nothing is excused
        meta["waited"] = 0 if waited is None else \
            (pressure_s() - waited) / (time.monotonic() - at)
        for j in jobs:
            j.end()
    finally:
        for j in jobs:
            j.kill()
        if os.path.exists(share):
            os.unlink(share)
    if t.returncode:
        raise Broken("pipetrace: " + t.stderr.strip()[-200:])
    meta.update(name=name, plans=[j.plan for j in jobs],
                pids=[j.p.pid for j in jobs])
    with open(stem + ".meta.json", "w", encoding="utf-8") as f:
        json.dump(meta, f)
    with open(stem + ".json", encoding="utf-8") as f:
        return meta, json.load(f), logs


def replay_job(o, path):
    with open(path, encoding="utf-8") as f:
        meta = json.load(f)
    stem = path[:-len(".meta.json")]
    t = subprocess.run([os.path.join(o.build, "pipetrace"), "report", "--raw-stream",
                        stem + ".raw", "--json", "-"], capture_output=True, text=True,
                       timeout=120, check=False)
    if t.returncode:
        raise Broken("pipetrace: " + t.stderr.strip()[-200:])
    logs = ["%s.%d.csv" % (stem, i) for i in range(len(meta["seeds"]))]
    return meta, json.loads(t.stdout), logs


# ---- judgement -----------------------------------------------------------------

def pair(v):
    """Bounds that say nothing when they are not there."""
    return (0.0, 1.0) if not v or None in v else (v[0], v[1])


def inside(x, bounds):
    return bounds[0] - EPS <= x <= bounds[1] + EPS


def judge_device(true, entry):
    busy = entry["busy"]
    hard, likely = pair(busy.get("hard")), pair(busy.get("likely"))
    share = busy.get("share")
    return {"true": true, "hard": hard, "likely": likely,
            "hard_ok": inside(true, hard), "likely_ok": inside(true, likely),
            "width": likely[1] - likely[0],
            "measured": busy.get("certainty") == "measured",
            "error": 1.0 if share is None else abs(share - true)}


def judge(meta, report, logs):
    """Per device what judge_device() says; Broken when devices are missing."""
    c = report["capture"]
    if c["lost"]["total"]:
        raise Broken("records were lost")
    true = truth(logs, c["begin_ns"], c["end_ns"])
    # the devices of the process that the report speaks of, if it used them meanwhile
    own = logs[meta["pids"].index(report["target"]["trainer"])]
    devices = sorted(d for d, v in intervals(own).items()
                     if busy_share(v, c["begin_ns"], c["end_ns"]))
    entries = [g for g in report["gpu"]]
    unnumbered = all(g["index"] is None for g in entries)
    if not entries or len(entries) > len(devices) or (
            len(entries) < len(devices) and not unnumbered):
        raise Broken("%d devices in the report, %d in the log"
                     % (len(entries), len(devices)))
    plan = meta["plans"][meta["pids"].index(report["target"]["trainer"])]
    if unnumbered or plan.get("set_once"):
        # chosen before the trace began: which is which cannot be known, and those
        # that cannot be told apart have one entry, whose bounds hold for each
        best = max((p for p in itertools.product(entries, repeat=len(devices))
                    if all(any(e is x for x in p) for e in entries)),
                   key=lambda p: sum(judge_device(true[d], e)["hard_ok"] * 2
                                     + judge_device(true[d], e)["likely_ok"]
                                     for d, e in zip(devices, p)))
        return {d: judge_device(true[d], e) for d, e in zip(devices, best)}
    by_index = {g["index"] or 0: g for g in entries}
    if sorted(by_index) != devices:
        raise Broken("devices %s in the report, %s in the log"
                     % (sorted(by_index), devices))
    return {d: judge_device(true[d], by_index[d]) for d in devices}


def often_synced(meta):
    """A sync of some kind at least every 20 steps, all the time."""
    return all(f["sync"] in SYNCS and f["every"] <= 20
               for p in meta["plans"] for f in p["phases"])


def describe(meta):
    p = meta["plans"][0]
    what = [p["api"], "%dd" % p["devices"] + ("t" if p["threads"] else ""),
            "%d%s" % (p["streams"], p["stream_kind"][0])]
    what += ["%s/%d" % (f["sync"], f["every"]) for f in p["phases"]]
    what += [k for k in ("concurrent", "graph", "helper") if p[k]]
    if len(meta["seeds"]) > 1:
        what.append("shared,%d traced" % meta["traced"])
    return " ".join(what)


def points(b):
    return "%5.1f..%5.1f" % (100 * b[0], 100 * b[1])


def row(meta, devices):
    out = []
    for d, v in devices.items():
        out.append("%-8s %d true %5.1f  hard %s%s likely %s%s  %s" % (
            meta["name"], d, 100 * v["true"], points(v["hard"]),
            " " if v["hard_ok"] else "!", points(v["likely"]),
            " " if v["likely_ok"] else "!", describe(meta)))
    return "\n".join(out)


def unmeasured(meta, devices):
    """A device is called estimated, and is off by more than a measured one may be, for
    which nothing but noise can be the cause. Of a job that never waits, work queued long before the trace may run all along."""
    never = any(f["sync"] == "never" for p in meta["plans"] for f in p["phases"])
    return not never and meta["traced"] == len(meta["seeds"]) and not all(
        d["measured"] or d["error"] <= EXACT_MAX for d in devices.values())


def allowed_misses(n):
    return max(1, int(n * (1 - LIKELY_MIN) + 1e-9))


def summary(results, broken, cupti):
    """(lines, number of broken rules, number of rules)."""
    jobs = [list(v.values()) for _, v in results]
    n = len(jobs) + broken
    hard = sum(all(d["hard_ok"] for d in j) for j in jobs)
    likely = sum(all(d["likely_ok"] for d in j) for j in jobs)
    widths = [statistics.mean(d["width"] for d in v.values())
              for m, v in results if often_synced(m)]
    width = statistics.median(widths) if widths else 0.0
    rules = [("inside hard: %d of %d" % (hard, n), hard == n)]
    if cupti:
        told = [d for j in jobs for d in j if d["measured"]]
        exact = sum(d["error"] <= EXACT_MAX for d in told)
        rules.append(("within 1 point where measured: %d of %d devices"
                      % (exact, len(told)), told and exact == len(told)))
        left = [m for m, v in results if unmeasured(m, v)]
        busy = [m for m in left if min(m["waited"], m.get("waited_first", 0)) > NOISY]
        rules.append(("measured, or as near: %d of %d jobs%s" % (
            n - broken - len(left), n, "".join(
                "; %s: not on a machine this busy (tasks waited for a core %.0f %% of "
                "the time)" % (m["name"], 100 * m["waited"]) for m in busy)),
                      not broken and len(left) == len(busy) < n))
    else:
        rules.append(("inside likely: %d of %d" % (likely, n),
                      n - likely <= allowed_misses(n)))
        rules.append(("median width of likely: %.1f points (%d jobs with a sync at "
                      "least every 20 steps)" % (100 * width, len(widths)),
                      bool(widths) and width <= WIDTH_MAX))
    lines = ["%s %s" % ("ok" if ok else "not ok", text) for text, ok in rules]
    return lines, sum(not ok for _, ok in rules), len(rules)


def everything(o, d):
    if o.replay:
        metas = sorted(os.path.join(o.replay, f) for f in os.listdir(o.replay)
                       if f.endswith(".meta.json"))
        todo = [lambda p=p: replay_job(o, p) for p in metas]
    else:
        todo = [lambda s=s: run_job(o, s, d)
                for s in range(o.seed, o.seed + o.jobs)]
    results, broken = [], 0
    for i, work in enumerate(todo):
        try:
            meta, report, logs = work()
            results.append((meta, judge(meta, report, logs)))
            if o.cupti and not o.replay and unmeasured(*results[-1]):
                print(row(*results[-1]) + "\n# once more", flush=True)
                first = meta["waited"]
                meta, report, logs = work()
                meta["waited_first"] = first
                results[-1] = (meta, judge(meta, report, logs))
            print(row(*results[-1]), flush=True)
        except (Broken, OSError, ValueError, KeyError,
                subprocess.TimeoutExpired) as e:
            broken += 1
            name = os.path.basename(metas[i])[:-10] if o.replay else "job%d" % (o.seed + i)
            print("%-8s could not be judged: %s" % (name, e), flush=True)
    return results, broken


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--jobs", type=int, default=8)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--keep", metavar="DIR")
    p.add_argument("--replay", metavar="DIR")
    p.add_argument("--cupti", action="store_true")
    p.add_argument("--build", default=os.path.join(TOP, "build"))
    o = p.parse_args()
    if not os.path.exists(os.path.join(o.build, "pipetrace")):
        print("needs a build")
        return 77
    if not o.replay and os.geteuid() != 0:
        print("needs root")
        return 77
    if o.keep:
        os.makedirs(o.keep, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="pipetrace-gpubusy-") as tmp:
        results, broken = everything(o, o.keep or tmp)
    lines, failed, n = summary(results, broken, o.cupti)
    print("\n".join(lines))
    print("%d passed, %d failed, 0 skipped" % (n - failed, failed))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
