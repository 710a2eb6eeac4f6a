# SPDX-License-Identifier: BSD-2-Clause
"""The job's own log, and the comparison of a report with it.

All times are CLOCK_MONOTONIC nanoseconds, as in the report.
"""

import bisect
import json

BLOCKED_NS = 1000000     # a wait above this counts as blocked
WAIT_SHARE = 0.02        # tolerance of the data wait: this share of it,
WAIT_STEP_MS = 1.0       # or this much per step, whichever is larger
GUILTY_SHARE = 0.95
START_NS = 5000000       # from a loader's start to the first wait
EDGE_STEPS = 2           # one step at each end of the capture
EDGE_BATCHES = 4         # begun before it, or never trained on behind it


class Truth:
    def __init__(self, path, begin, end):
        """The steps of a log that overlap [begin, end)."""
        self.begin, self.end = begin, end
        self.pid = None
        self.workers = []
        self.complete = False
        steps, started = [], None
        with open(path, encoding="utf-8") as f:
            for line in f:
                record = json.loads(line)
                if "truth" in record:
                    self.pid = record["pid"]
                elif "epoch" in record:
                    self.workers = record["workers"]
                    started = record
                elif "step" in record:
                    # starting the loader is part of obtaining its first batch
                    if started and record["wait_begin"] - \
                            started.get("end", 0) < START_NS:
                        record["wait_begin"] = started["begin"]
                    started = None
                    steps.append(record)
                elif "end" in record:
                    self.complete = True
        self.after = sum(s["wait_begin"] >= end for s in steps)
        self.all = steps
        self.steps = [s for s in steps
                      if s["wait_begin"] < end and s["compute_end"] > begin]

    def count(self):
        """Steps that began in the window."""
        return sum(self.begin <= s["wait_begin"] < self.end for s in self.steps)

    def wait_ns(self):
        return sum(max(0, min(s["wait_end"], self.end)
                       - max(s["wait_begin"], self.begin)) for s in self.steps)

    def wait_share(self):
        return self.wait_ns() / (self.end - self.begin)

    def blocked(self):
        """Steps whole in the window that waited for a batch in the making."""
        return [s for s in self.steps
                if s["wait_begin"] >= self.begin and s["wait_end"] <= self.end
                and s["wait_end"] - s["wait_begin"] > BLOCKED_NS
                and s["load_end"] > s["wait_begin"]]

    def loading_share(self):
        """Share of the waits that passed before the batch was made; the rest
        is its way to the trainer. None without waits."""
        waits = loading = 0
        for s in self.steps:
            waits += s["wait_end"] - s["wait_begin"]
            loading += max(0, min(s["load_end"], s["wait_end"])
                           - s["wait_begin"])
        return loading / waits if waits else None


    def off_core_share(self):
        """Share of the loading that its thread was not on a CPU. In a job that
        neither reads cold files nor sleeps, that is time without a core."""
        wall = sum(s["load_end"] - s["load_begin"] for s in self.steps)
        cpu = sum(s["load_cpu"] for s in self.steps)
        return 1 - cpu / wall if wall else 0.0


def steps_of(report):
    """The report's steps in order of time: (begin, end, step)."""
    out = [(s["begin_ns"], s["end_ns"], s)
           for s in report["steps"].get("list") or []]
    out.sort(key=lambda s: s[0])
    return out


def overlapping(steps, starts, begin, end):
    """The reported step that shares most time with [begin, end), or None."""
    best, most = None, 0
    i = max(bisect.bisect_right(starts, begin) - 2, 0)
    while i < len(steps) and steps[i][0] < end:
        shared = min(steps[i][1], end) - max(steps[i][0], begin)
        if shared > most:
            best, most = steps[i][2], shared
        i += 1
    return best


def named(truth, report):
    """(blocked steps, of these: the making worker named, another named)."""
    steps = steps_of(report)
    starts = [s[0] for s in steps]
    right = wrong = 0
    blocked = truth.blocked()
    for s in blocked:
        found = overlapping(steps, starts, s["wait_begin"], s["wait_end"])
        if found is None or found.get("worker") is None:
            continue
        if found["worker"] == s["worker"]:
            right += 1
        else:
            wrong += 1
    return len(blocked), right, wrong


def batches(truth, report):
    """[(worker pid, reported batches, made in the window)] that disagree."""
    wrong = []
    for w in report["workers"]:
        if w["pid"] not in truth.workers or w["role"] != "loader":
            continue
        made = sum(s["worker"] == w["pid"]
                   and truth.begin <= s["load_end"] < truth.end
                   for s in truth.all)
        if w["batches"] is not None and abs(w["batches"] - made) > EDGE_BATCHES:
            wrong.append((w["pid"], w["batches"], made))
    return wrong


def data_wait(truth, report):
    """(reported ms, true ms, tolerated ms)."""
    steps = max(truth.count(), 1)
    true = truth.wait_ns() / 1e6
    told = report["breakdown"]["data_wait"]["seconds"]
    told = float("nan") if told is None else told * 1e3
    return told, true, max(WAIT_SHARE * true, WAIT_STEP_MS * steps)
