#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""Ranks that meet in collectives, and the one that is late to them.

    ranks.py [--all] [NAME...]

Ranks of one simulated job really wait for each other: the kernels of their
all-reduces end together. One rank is late for a reason that the test gave it: a slow
loader, work of its host, a slow GPU. Each rank logs when it called a collective, its
device when the kernel began; who was late by how much follows from these logs alone,
and the report must say so: which rank, how much, why. Even ranks get no verdict. A
slow GPU does not show in calls: without device times the report must say that.

`make test` takes a sample, in which times are judged only while the machine is quiet by
the kernel's pressure figures; which ranks met, how often and by which clock always is.
--all takes each reason with 2, 4 and 8 ranks and judges everything, at the first try.
Needs root and a build. Ends with "N passed, N failed, N skipped".
"""

import argparse
import collections
import json
import os
import subprocess
import sys
import tempfile
import time

import ranks_job

TOP = ranks_job.TOP
sys.path.insert(0, os.path.join(TOP, "tests"))
import noise  # noqa: E402

PIPETRACE = os.path.join(TOP, "build/pipetrace")
LATE = 1  # the rank
SECONDS = 4
Case = collections.namedtuple("Case", "name ranks own reason cupti clip")
OWN = {"loader": (["--item-sleep-us", "6000"], "data_wait"),
       "host": (["--host-sleep-us", "20000"], "host"),
       "gpu": (["--kernel-us", "2500"], "gpu"),
       "even": ([], None)}


def case(what, ranks, cupti=False, clip=False):
    name = "%s%d%s%s" % (what, ranks, "_device" if cupti else "", "_clip" if clip else "")
    return Case(name, ranks, *OWN[what], cupti, clip)


SAMPLE = [case("loader", 4), case("host", 2), case("gpu", 8, True), case("gpu", 2),
          case("gpu", 4, clip=True), case("even", 4, True), case("even", 4)]
ALL = [case(w, n, c) for w in OWN for n in (2, 4, 8) for c in (False, True)]
ALL += [case("gpu", n, clip=True) for n in (2, 4, 8)]


class Broken(Exception):
    """The run could not be judged."""


def trace(c, tmp):
    """(report, the job with whole logs)"""
    out = os.path.join(tmp, "report.json")
    args = ["--kernel-us", "800", "--collectives", "2"] + (["--clip"] if c.clip else [])
    job = ranks_job.Job(c.ranks, args, {LATE: c.own}, tmp)
    try:
        job.wait_ready()
        t = subprocess.run([PIPETRACE, "-p", ",".join(map(str, job.pids())), "-d",
                            str(SECONDS), "--json", out, *(["--cupti"] if c.cupti else [])],
                           stdin=subprocess.DEVNULL, capture_output=True, text=True,
                           timeout=60, check=False)
        time.sleep(0.2)
    finally:
        status = job.end()
    if t.returncode:
        raise Broken("pipetrace: " + t.stderr.strip()[-300:])
    if any(status):
        raise Broken("a rank failed: %s" % status)
    with open(out, encoding="utf-8") as f:
        return json.load(f), job


def limits(report):
    return [x["what"] for x in report["capture"]["limits"]]


def judge_ranks(c, report, true, wrong, timed):
    """Each rank's share of the lateness, per meeting, against the logs."""
    told = {r["rank"]: r["collectives"] for r in report["ranks"]}
    if sorted(told) != list(range(c.ranks)) or None in told.values():
        wrong.append("collectives were not joined: " + ", ".join(limits(report)))
        return
    source = "device" if c.cupti else "host"
    logs = true[source]
    for rank, k in told.items():
        if (k["source"] == "device") != c.cupti:
            wrong.append("rank %d was judged by %s" % (rank, k["source"]))
        if k["certainty"] == "low":
            timed.append("rank %d: low certainty" % rank)
        if k["count"] < 20 or logs["n"] < 20:
            raise Broken("only %d collectives" % min(k["count"], logs["n"]))
        # What is random in the logs themselves: the ranks that nobody made late.
        noise = max(logs["held"][r] for r in range(c.ranks)
                    if r != LATE or not c.own) / logs["n"]
        is_ms = 1000 * k["held_others_s"] / k["count"]
        was_ms = 1000 * logs["held"][rank] / logs["n"]
        if abs(is_ms - was_ms) > 0.05 * was_ms + 1000 * noise + 0.1:
            timed.append("rank %d held the others up %.3f ms a time, by the log %.3f"
                         % (rank, is_ms, was_ms))
    if c.reason and told[LATE]["lost_s"] > 0.2 and told[LATE]["reason"] != c.reason:
        timed.append("the reason is %s" % told[LATE]["reason"])


def judge_verdict(c, report, true, wrong):
    found = [v for v in report["verdicts"] if v["id"] == "rank_straggler"]
    # By calls a slow GPU is late only where the host waits for it first.
    seen = c.reason and (c.cupti or c.reason != "gpu" or c.clip)
    if not seen and found:
        wrong.append("a straggler was found: " + found[0]["title"])
    if c.reason == "gpu" and not seen:
        if "ranks.gpu" not in limits(report):
            wrong.append("that a slow GPU does not show is not said")
        for v in report["verdicts"]:
            if v["id"] == "balanced" and v["certainty"] == "high":
                wrong.append("balanced with high certainty")
    if not seen:
        return
    if not found:
        wrong.append("no straggler, but " +
                     ", ".join(v["id"] for v in report["verdicts"]))
        return
    v, logs = found[0], true["device"]
    if v["subject"]["rank"] != LATE:
        wrong.append("the straggler is rank %s" % v["subject"]["rank"])
    share = next(e["value"] for e in v["evidence"]
                 if e["metric"] == "rank.held_others_excess")
    others = max(x for r, x in enumerate(logs["held"]) if r != LATE)
    was = (logs["held"][LATE] - others) / report["capture"]["duration"]
    # The stretch with device times is shorter than the trace; and calls tell only
    # what the late rank's device had no work for.
    low = (0.75 if c.cupti else 0.85) * was
    if not low - 0.03 <= share <= was + 0.03:
        wrong.append("the others lose %.3f of the time, by their devices' logs %.3f"
                     % (share, was))


def judge_parts(c, report, wrong):
    """Durations that need no common clock name the late rank, too."""
    if not c.reason:
        return
    parts = {r["rank"]: r["parts_ms"] for r in report["ranks"]}
    if c.cupti: # whom the others wait for waits least itself
        waits = {r: p["collective_gpu"]["p50"] for r, p in parts.items()}
        if min(waits, key=waits.get) != LATE:
            wrong.append("kernels of collectives take %s" % waits)
    what = {"data_wait": "data_wait", "host": "own"}.get(c.reason)
    if what:
        took = {r: p[what]["p50"] for r, p in parts.items()}
        if max(took, key=took.get) != LATE:
            wrong.append("%s takes %s ms" % (what, took))


def attempt(c):
    with tempfile.TemporaryDirectory(prefix="pipetrace-ranks-") as tmp:
        report, job = trace(c, tmp)
        true = ranks_job.truth(job, report["capture"]["begin_ns"],
                               report["capture"]["end_ns"])
    wrong, timed = [], []
    judge_ranks(c, report, true, wrong, timed)
    judge_verdict(c, report, true, timed)
    judge_parts(c, report, timed)
    return wrong, timed


def run(c, campaign):
    """ok, not ok or skip; prints a line."""
    watch = noise.Watch()
    try:
        wrong, timed = attempt(c)
    except (Broken, subprocess.TimeoutExpired) as e:
        wrong, timed = [], ["not judged: %s" % e]
    noisy = noise.too_noisy(watch.share())
    if not wrong and not timed:
        print("ok %s" % c.name, flush=True)
        return "ok"
    if wrong or campaign or not noisy:
        print("not ok %s: %s%s" % (c.name, "; ".join(wrong + timed),
                                   " (%s)" % noisy if noisy else ""), flush=True)
        return "not ok"
    print("ok %s # SKIP %s" % (c.name, noisy), flush=True)
    return "skip"


def main():
    p = argparse.ArgumentParser()
    p.add_argument("names", nargs="*")
    p.add_argument("--all", action="store_true")
    a = p.parse_args()
    if os.geteuid():
        print("needs root")
        sys.exit(77)
    cases = ALL if a.all or a.names else SAMPLE
    cases = [c for c in cases if not a.names or c.name in a.names]
    words = [run(c, a.all or a.names) for c in cases]
    print("%d passed, %d failed, %d skipped" % tuple(
        words.count(w) for w in ("ok", "not ok", "skip")))
    sys.exit("not ok" in words or not words)


if __name__ == "__main__":
    main()
