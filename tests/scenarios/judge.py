# SPDX-License-Identifier: BSD-2-Clause
"""Compare a report with a labelled run."""

import bisect
import os
import statistics

import truth as truth_log

WAIT_SHARE, WAIT_STEP_MS = 0.01, 0.5
F1, GUILTY = 0.99, 0.98
CAUSE_WORST = 0.10
BUSY_SLACK = 0.005      # the log clips operations at the window's edges
MIN_STEPS = 10          # fewer say nothing about shares of steps
LOUD = ("warning", "critical")


def matches(told, true, tolerance):
    """How many can be paired, each once, within the tolerance; both sorted."""
    n = i = 0
    for t in true:
        while i < len(told) and told[i] < t - tolerance:
            i += 1
        if i < len(told) and told[i] <= t + tolerance:
            n += 1
            i += 1
    return n


def step_f1(truth, report):
    true = truth.boundaries()
    told = sorted(s["begin_ns"] for s in report["steps"].get("list") or [])
    if len(true) < MIN_STEPS:
        return None
    period = statistics.median(b - a for a, b in zip(true, true[1:]))
    tolerance = max(1e6, 0.02 * period)
    # the first and last told may be the window's edge, not a step's begin
    low, high = true[0] - tolerance, true[-1] + tolerance
    told = [t for t in told if low <= t <= high]
    hit = matches(told, true, tolerance)
    return 2 * hit / (len(told) + len(true))


def told_causes(report, truth):
    """The report's charges in the log's terms: what passes outside the
    worker that makes the batch is the hand-over."""
    out = dict.fromkeys(("cpu", "run_queue", "disk", "page_fault", "network",
                         "lock", "sleep", "handover", "idle"), 0.0)
    wait = report["data_wait"]
    total = sum(c["seconds"] for c in wait["causes"])
    makers = {w["tid"] for w in report["workers"] if w["role"] == "loader"}
    makers |= set(truth.workers)  # threads of the trainer, by their ids
    for c in wait["causes"]:
        subject = c["subject"] or {}
        name = {"unknown": "sleep", "sleep": "sleep", "worker_idle": "idle",
                "prefetch_full": "idle",
                # for lack of a core, whoever keeps it: the log's clocks
                "throttle": "run_queue"}.get(c["cause"], c["cause"])
        outside = truth.workers and subject.get("tid") is not None \
            and subject["tid"] not in makers
        if name == "ipc" or outside or name not in out:
            name = "handover"
        out[name] += c["seconds"] / total if total else 0
    return out


def root_of(report):
    for v in report["verdicts"]:
        if not v["consequence_of"]:
            return v["id"]
    return "none"


def severity_of(report, name):
    for v in report["verdicts"]:
        if v["id"] == name:
            return v["severity"]
    return None


def check_peer(s, report, wrong):
    """The runner's server, and what it makes slow: its rate, or its delay."""
    v = next(v for v in report["verdicts"] if v["id"] == "network_bound")
    kind = "send" if s.net_rate else "answer"
    if not (v["subject"]["peer"] or "").startswith("127.0.0.1:"):
        wrong.append("peer: %s" % v["subject"]["peer"])
    if not v["title"].endswith(" to %s." % kind):
        wrong.append("peer: not slow to %s: %s" % (kind, v["title"]))


def check_root(s, truth, report, f, wrong):
    f["labels"] = sorted(s.roots or truth.roots())
    f["root"] = root_of(report)
    f["loss"] = {k: round(v, 3) for k, v in truth.losses().items() if v > .005}
    if "root" in s.checks and f["root"] not in f["labels"]:
        wrong.append("root: %s, by the log %s %s" % (
            f["root"], "/".join(f["labels"]), f["loss"]))
    if s.net_ms and f["root"] == "network_bound" and \
            "sockets" in report["capture"]["hooks"]:
        check_peer(s, report, wrong)
    if f["labels"] == ["balanced"]:
        loud = [v["id"] for v in report["verdicts"] if v["severity"] in LOUD
                and v["id"] not in s.also and v["id"] != "unstable_steps"]
        if loud:
            wrong.append("alarm: balanced, but warned of " + ", ".join(loud))
    there = {v["id"] for v in report["verdicts"]}
    for name in s.also:
        if name not in there:
            wrong.append("also: no " + name)
    if "severity" in s.checks and f["labels"] != ["balanced"]:
        told = severity_of(report, "gpu_starved")
        right = truth.severities()
        if truth.losses()["starved"] > 0.13 and told not in right:
            wrong.append("severity: gpu_starved %s, by the log %s (%.3f)" % (
                told, "/".join(map(str, right)), f["loss"].get("starved", 0)))


def check_wait(truth, report, f, wrong):
    true = truth.wait_ns() / 1e6
    told = report["breakdown"]["data_wait"]["seconds"]
    told = float("nan") if told is None else told * 1e3
    steps = max(len(truth.boundaries()), 1)
    limit = max(WAIT_SHARE * true, WAIT_STEP_MS * steps)
    f["wait"] = (told, true)
    if not abs(told - true) <= limit:
        wrong.append("wait: %.1f ms, truth %.1f ms (%+.1f %%, %+.2f ms/step)" %
                     (told, true, 100 * (told / true - 1) if true else 0,
                      (told - true) / steps))


def named(truth, report):
    """(blocked steps, of these: the making worker named, another named).
    Of several batches that one step waits for, the longest wait counts."""
    steps = truth_log.steps_of(report)
    starts = [s[0] for s in steps]
    groups = []
    for s in truth.steps:
        if s.get("first", True) or not groups:
            groups.append([])
        groups[-1].append(s)
    whole = {s["step"] for s in truth.blocked()}
    blocked = right = wrong = 0
    for group in groups:
        s = max(group, key=lambda x: x["wait_end"] - x["wait_begin"])
        if s["step"] not in whole:
            continue
        blocked += 1
        found = truth_log.overlapping(steps, starts, s["wait_begin"],
                                      s["wait_end"])
        if found is None or found.get("worker") is None:
            continue
        right += found["worker"] == s["worker"]
        wrong += found["worker"] != s["worker"]
    return blocked, right, wrong


def check_guilty(truth, report, f, wrong):
    blocked, right, other = named(truth, report)
    f["guilty"] = (right, blocked)
    if blocked >= 20 and right < GUILTY * blocked:
        wrong.append("guilty: right worker in %d of %d blocked waits, another "
                     "in %d" % (right, blocked, other))


def check_causes(truth, report, f, wrong):
    if truth.wait_share() < 0.10 or not truth.workers:
        return
    told = told_causes(report, truth)
    best = None
    for through in (False, True):
        true = truth.causes(through)
        off = max(abs(told[k] - true[k]) for k in true)
        if best is None or off < best[0]:
            best = off, true
    f["cause_error"], true = best
    if f["cause_error"] > CAUSE_WORST:
        wrong.append("causes: %s (told/true)" % ", ".join(
            "%s %.2f/%.2f" % (k, told[k], true[k]) for k in true
            if max(told[k], true[k]) > 0.03))


def check_quota(truth, report, f, wrong):
    """The log's clocks show that its makers had no core. Where the runner gave
    them a quota, most of that is the quota's, and no more than all."""
    told = sum(c["share"] for c in report["data_wait"]["causes"]
               if c["cause"] == "throttle")
    true = truth.causes()["run_queue"]
    f["throttle"] = told, true
    if not 0.5 * true <= told <= true + CAUSE_WORST:
        wrong.append("quota: throttle %.2f, by the log %.2f without a core" %
                     (told, true))


def check_kind(s, report, f, wrong):
    """What the runner made slow is what the verdict names."""
    told = [(v["id"], v.get("kind")) for v in report["verdicts"]
            if v["id"] == s.aim and s.aim in ("io_bound", "slow_file")]
    f["kind"] = told[0][1] if told else None
    if told and told[0][1] not in s.kinds:
        wrong.append("kind: %s of kind %s, not %s" % (
            *told[0], "/".join(map(str, s.kinds))))


def check_file(s, report, f, wrong):
    """The root names the file that the scenario made so."""
    for v in report["verdicts"]:
        if v["id"] != s.aim or v["consequence_of"]:
            continue
        f["file"] = v["subject"].get("file")
        name = os.path.basename(f["file"] or "")
        if name == "x" * len(name) and name:
            return  # a kept recording has no names
        if s.file not in name:
            wrong.append("file: %s names %s" % (v["id"], f["file"]))


def check_pattern(s, report, f, wrong):
    """The job's large file is read in the order that the job says."""
    for file in report["files"]:
        if file["path"] and "/big-" in file["path"]:
            told = file["pattern"] and file["pattern"]["kind"]
            f["pattern"] = told
            if told != s.pattern:
                wrong.append("pattern: %s, the job reads %s" % (told, s.pattern))
            return
    wrong.append("pattern: the large file is not in the table")


def check_busy(truth, report, f, wrong):
    gpus = report["gpu"]
    if not truth.device.known or not gpus or not gpus[0]["busy"]["hard"]:
        return
    low, high = gpus[0]["busy"]["hard"]
    true = truth.device.busy_share()
    f["busy"] = (low, true, high)
    if low is None or high is None:
        return
    late = truth.device.late_share()
    if not low - BUSY_SLACK - late <= true <= high + BUSY_SLACK:
        wrong.append("busy: %.3f is outside the hard bounds [%.3f, %.3f]" %
                     (true, low, high))


def judge(s, truth, report, status, validator):
    """(figures, list of what is wrong)."""
    f, wrong = {}, []
    for e in list(validator.iter_errors(report))[:3]:
        wrong.append("schema: %s: %s" % ("/".join(map(str, e.absolute_path)),
                                         e.message[:200]))
    if not report["capture"]["complete"]:
        wrong.append("run: the capture broke off")
    if status != 0 or not truth.complete:
        wrong.append("run: the job ended with status %s" % status)
    if wrong:
        return f, wrong
    check_root(s, truth, report, f, wrong)
    if "wait" in s.checks:
        check_wait(truth, report, f, wrong)
    if "steps" in s.checks:
        f["f1"] = step_f1(truth, report)
        if f["f1"] is not None and f["f1"] < F1:
            wrong.append("steps: F1 %.3f, %s told, %d true" % (
                f["f1"], report["steps"]["count"], len(truth.boundaries())))
    if "guilty" in s.checks and truth.workers:
        check_guilty(truth, report, f, wrong)
    if "causes" in s.checks:
        check_causes(truth, report, f, wrong)
    if s.quota:
        check_quota(truth, report, f, wrong)
    if s.kinds:
        check_kind(s, report, f, wrong)
    if s.file:
        check_file(s, report, f, wrong)
    if s.pattern:
        check_pattern(s, report, f, wrong)
    if "busy" in s.checks:
        check_busy(truth, report, f, wrong)
    f["lost"] = report["capture"]["lost"]["total"]
    return f, wrong
