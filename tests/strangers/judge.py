# SPDX-License-Identifier: BSD-2-Clause
"""A report of a strange job against the job's own log, the device's and the kernel's.

Which verdicts are right is decided by what leaves the device idle: for each kind of row
the share of the time in which it and no kernel was at work. The job says which verdicts
explain which kind (stranger.job).
"""
import csv
import glob
import json

import stranger
from spans import Spans

LOSS = 0.10           # of the time: less is no loss
NEAR = 0.8            # of a threshold: from here on both sides of it are right
RIVAL = 0.6           # of the largest loss: naming this one first is right as well
FREE, CROWDED = 0.75, 0.25  # cores left over; share of the makers' time in the run queue
WAIT, WAIT_OF = 0.015, 0.02
STEPS, STEPS_OF = 2, 0.01
NOISY = 0.4           # cores that others used, the tracer among them
NONE = 0.02           # a data wait below it is none
DATA = set("io_bound cpu_bound too_few_workers cpu_oversubscribed slow_worker hung_worker "
           "slow_file network_bound page_fault_io main_thread_loading ipc_bound slow_item "
           "loader_restart gpu_starved".split())
# They may stand beside a root, and are true or not by themselves.
ASIDE = set("unstable_steps host_memory_growth gpu_memory_growth slow_first_batch".split())


def device(stem, pid, begin, end):
    """When kernels ran, and when anything did."""
    kernels, work = [], []
    for path in glob.glob("%s.gpu.%d.csv" % (stem, pid)):
        with open(path, encoding="ascii", errors="replace") as f:
            for row in csv.reader(f):
                if len(row) != 8 or row[0] == "host" or not row[4].isdigit():
                    continue
                span = max(int(row[3]), begin), min(int(row[4]), end)
                work.append(span)
                if row[0] in ("kernel", "memset", "d2d"):
                    kernels.append(span)
    return Spans(kernels), Spans(work)


class Truth:
    def __init__(self, stem, log, begin, end):
        self.pid, self.facts, self.drawn = log["pid"], log["facts"], log["drawn"]
        self.wall = end - begin
        rows = [(k, max(b, begin), min(e, end)) for k, b, e in log["rows"]
                if k not in ("step", "micro") and b < end and e > begin]
        kernels, work = device(stem, self.pid, begin, end)
        idle = Spans(kernels.gaps(begin, end))
        self.kinds, self.idle = {}, {}
        for kind in sorted({r[0] for r in rows}):
            s = Spans((b, e) for k, b, e in rows if k == kind)
            self.kinds[kind] = s.total() / self.wall
            self.idle[kind] = s.common(idle) / self.wall
        self.busy = kernels.total() / self.wall
        self.copying = (work.total() - kernels.total()) / self.wall
        self.idle["rest"] = max(idle.total() / self.wall - sum(self.idle.values()), 0)
        moments = [k for k, b, _ in log["rows"] if k in ("step", "micro") and begin <= b < end]
        n, micro = moments.count("step"), moments.count("micro")
        self.steps = sorted({n, micro, n + micro} - {0}) or [0]
        self.data = self.kinds.get("data", 0.0)


def computing(job, machine):
    """Which of the three that mean "the makers compute" is right."""
    if machine.get("foreign", 0) > NOISY:  # what further workers would find is not known
        return set(stranger.CPU.split())
    ids = set()
    if machine["free"] >= NEAR * FREE:
        ids.add("too_few_workers")
    if (machine["free"] <= FREE / NEAR or job.threads) and machine["queued"] <= CROWDED / NEAR:
        ids.add("cpu_bound")
    if machine["queued"] >= NEAR * CROWDED:
        ids.add("cpu_oversubscribed")
    return ids


def right(job, t, machine):
    """The root verdicts that are right."""
    ids, largest = set(), max(t.idle.values(), default=0)
    for kind, share in t.idle.items():
        if share >= NEAR * LOSS and share >= RIVAL * largest:
            mine = set(job.accept.get(kind, ()))
            if set(stranger.CPU.split()) <= mine:
                mine = mine - set(stranger.CPU.split()) | computing(job, machine)
            if kind == "rest" and t.copying >= NEAR * LOSS:
                mine.add("transfer_bound")
            ids |= mine
    if largest <= LOSS / NEAR:
        ids.add("balanced")
    return ids


def explains(job, t, verdict):
    """Whether a further root names a loss that is there."""
    return verdict in job.accept.get("beside", ()) or any(share >= NEAR * LOSS and verdict in job.accept.get(kind, ())
               for kind, share in t.idle.items())


def wait_told(report, pid):
    for rank in report.get("ranks") or ():
        if rank["pid"] == pid and rank["breakdown"]:
            return rank["breakdown"]["data_wait"]["share"]
    return report["breakdown"]["data_wait"]["share"]


def supplier(report):
    """(pid, share) of whom most of the data wait is charged to."""
    shares = {}
    for c in report["data_wait"]["causes"]:
        if c["subject"]:
            pid = c["subject"]["pid"]
            shares[pid] = shares.get(pid, 0) + c["share"]
    return max(shares.items(), key=lambda i: i[1], default=(None, 0))


def judge(name, stem, meta, report):
    """What was told, what is true, and how they agree: a dict."""
    job, c = stranger.JOBS[name], report["capture"]
    truths = [Truth(stem, log, c["begin_ns"], c["end_ns"]) for log in meta["logs"]
              if log["rows"]]
    if not truths:
        return {"word": "faulty", "why": "the job left no log"}
    worst = max(truths, key=lambda t: t.data)
    ok = right(job, worst, meta["machine"])
    roots = [v for v in report["verdicts"] if v["consequence_of"] is None]
    main = roots[0]
    sure = [v for v in roots if v["severity"] != "info" or v["certainty"] == "high"]
    false = [v["id"] for v in sure[0 if main not in sure else 1:]
             if v["severity"] != "info" and v["id"] not in ok | ASIDE
             and not explains(job, worst, v["id"])]
    if worst.data < NONE:
        false += [v["id"] for v in sure if v["id"] in DATA and v["id"] not in false]
    f = {"roots": ["%s/%s/%s" % (v["id"], v["certainty"], v["severity"]) for v in roots],
         "ok": sorted(ok), "false": false, "idle": worst.idle, "busy": worst.busy,
         "waits": [(wait_told(report, t.pid), t.data) for t in truths],
         "steps": (report["steps"]["count"], worst.steps), "free": meta["machine"]["free"],
         "queued": meta["machine"]["queued"],
         "foreign": meta["machine"].get("foreign", 0), "lost": c["lost"]["total"]}
    f["wait_ok"] = all(told is not None and abs(told - true) <= max(WAIT, WAIT_OF * true)
                       for told, true in f["waits"])
    f["steps_ok"] = f["steps"][0] is not None and any(
        abs(f["steps"][0] - n) <= max(STEPS, STEPS_OF * n) for n in worst.steps)
    want = worst.facts.get("supplier")
    if want and worst.idle.get("data", 0) >= LOSS:
        f["supplier"] = (supplier(report), want)
        f["supplier_ok"] = supplier(report)[0] == want
    if main["id"] in ok:
        f["word"] = "confidently wrong" if false else "right"
    elif main["id"] in ("insufficient_data", "gpu_starved") and not false:
        f["word"] = "wrong"  # it says that the reason was not found
    else:
        f["word"] = "confidently wrong" if main in sure or false else "wrong"
    return f


def words(name, f):
    if "roots" not in f:
        return "%-15s FAULTY %s" % (name, f["why"])
    bits = ["told " + " + ".join(f["roots"]), "right: " + "|".join(f["ok"]),
            "wait " + ", ".join("%s/%.1f %%" % ("-" if a is None else "%.1f" % (100 * a),
                                                100 * b) for a, b in f["waits"])
            + ("" if f["wait_ok"] else " OFF"),
            "steps %s/%s" % (f["steps"][0], "|".join(map(str, f["steps"][1])))
            + ("" if f["steps_ok"] else " OFF"),
            "idle " + " ".join("%s %.0f %%" % (k, 100 * v) for k, v in f["idle"].items()),
            "free %.1f queued %.0f %%" % (f["free"], 100 * f["queued"])]
    if "supplier" in f:
        (pid, share), want = f["supplier"]
        bits.append("supplier %s (%.0f %%)/%d%s" % (pid, 100 * share, want,
                                                   "" if f["supplier_ok"] else " OFF"))
    if f["false"]:
        bits.append("FALSE " + ",".join(f["false"]))
    if f["foreign"] > NOISY:
        bits.append("others used %.1f cores" % f["foreign"])
    if f["lost"]:
        bits.append("lost %d" % f["lost"])
    return "%-15s %-17s %s" % (name, f["word"].upper() if f["word"] != "right" else "right",
                               " · ".join(bits))


def load(stem):
    with open(stem + ".meta.json", encoding="utf-8") as f:
        return json.load(f)
