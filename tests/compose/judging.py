# SPDX-License-Identifier: BSD-2-Clause
"""Compare a report with what the job's log says."""

import collections

LOUD = ("warning", "critical")
DATA = frozenset("""gpu_starved io_bound cpu_bound too_few_workers cpu_oversubscribed
slow_worker hung_worker slow_file network_bound page_fault_io main_thread_loading ipc_bound
lock_bound slow_first_batch loader_restart slow_item""".split())
CRITERIA = ("root", "alarm", "wait", "steps", "supplier")
WAIT_WALL, WAIT_PART = 0.015, 0.02  # whichever is larger
STEPS_EDGE = 1
SUPPLIER = 0.5
FEW_STEPS = 5  # so few, and that they are too few is right as well
NEAR = 0.2


def root_of(report):
    for v in report["verdicts"]:
        if not v["consequence_of"]:
            return v["id"], v["certainty"]
    return "none", None


def told_of(report, trainer):
    """What is told of this rank."""
    return next((r for r in report.get("ranks") or [] if r["pid"] == trainer), report)


def told_wait(report, trainer):
    return told_of(report, trainer)["breakdown"]["data_wait"]["share"]


def told_suppliers(report, trainer):
    """{(pid, tid): share of the wait}"""
    out, total = collections.Counter(), 0
    for c in told_of(report, trainer)["data_wait"]["causes"] or []:
        total += c["seconds"] or 0
        subject = c["subject"] or {}
        if subject.get("pid") is not None:
            out[subject["pid"], subject.get("tid")] += c["seconds"] or 0
    return {k: v / total for k, v in out.items()} if total else {}


def supplier(truth, report, f):
    """None: there is nobody to name."""
    true = truth.suppliers()
    if truth.wait_share() < 0.1 or not true or true[0][1] == truth.main or \
            truth.spec["transport"] == "inline" or \
            truth.spec["work"] == "subprocess" or truth.causes()["restart"] > 0.3:
        return None
    # helpers in the same process, outside of the trainer, are one supplier
    pid = true[0][1][0]
    apart = pid == truth.main[0]
    share = sum(s for s, w in true if (w == true[0][1] if apart else w[0] == pid))
    if share < SUPPLIER * (1 + NEAR):
        return None
    told = collections.Counter()
    for (p, t), s in told_suppliers(report, truth.main[0]).items():
        told[t if p == truth.main[0] else p] += s
    want = true[0][1][1] if apart else pid
    best = told.most_common(1)
    f["supplier"] = "%s %.2f/%.2f" % (want, told.get(want, 0), share)
    return bool(best) and best[0][0] == want


def right_roots(truth, truths):
    """With several ranks, one that the others wait for is right as well, and so is
    why it is late."""
    out = truth.roots()
    late = [t for t in truths if t.losses()["collective"] >= 0.08]
    if late:
        out.add("rank_straggler")
        for t in truths:
            if t not in late:
                out |= t.roots()
    return out


def judge(truths, report):
    """({criterion: True, False or None where it says nothing}, figures); truths are
    the ranks'."""
    truth = next((t for t in truths if t.main[0] == report["target"]["trainer"]), truths[0])
    f, ok = {}, dict.fromkeys(CRITERIA)
    f["right"] = sorted(right_roots(truth, truths))
    few = max(truth.steps()) < FEW_STEPS
    if few:
        f["right"].append("insufficient_data")
    f["root"], f["certainty"] = root_of(report)
    ok["root"] = f["root"] in f["right"]
    loud = [v["id"] for v in report["verdicts"] if v["severity"] in LOUD]
    there = {v["id"] for v in report["verdicts"]}
    if truth.spec["transport"] in ("none", "server"):
        f["alarms"] = sorted(there & DATA)
        ok["alarm"] = not f["alarms"]
    if truth.quiet():
        f["alarms"] = sorted(set(f.get("alarms", [])) | set(loud))
        ok["alarm"] = not f["alarms"]
    true = truth.wait_share()
    told = told_wait(report, truth.main[0])
    told = float("nan") if told is None else told
    right = [true]
    if truth.spec["transport"] == "inline" and not truth.reads():
        right.append(0.0)  # nothing shows that the main thread loads
    ok["wait"] = any(abs(told - x) <= max(WAIT_WALL, WAIT_PART * x) for x in right)
    f["wait"] = told, true
    steps, counts = report["steps"]["count"], sorted(truth.steps())
    ok["steps"] = steps is not None and any(
        abs(steps - n) <= STEPS_EDGE for n in counts)
    f["steps"] = steps, counts
    if few and f["root"] == "insufficient_data":
        ok["wait"] = ok["steps"] = None
    ok["supplier"] = None if few else supplier(truth, report, f)
    f["busy"] = truth.busy_share()
    return ok, f
