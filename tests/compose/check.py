#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""Do the generator, the rules and the judge hold? Draws without an empty cell, made-up
logs whose root is plain, and reports that are wrong in one known way each. No root, no
job is run. Without this, a judge that accepts everything would look like a tracer that
is always right."""

import collections
import copy
import json
import os
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.dont_write_bytecode = True
sys.path.insert(0, HERE)

import grammar
import judging
import logs

MS = 1000000
BEGIN, STEP, STEPS = 50 * 10**9, 50 * MS, 100
END = BEGIN + STEPS * STEP
MAIN, A, B, FEEDER = (1000, 1000), (1001, 1001), (1002, 1002), (1000, 1005)
SPEC = {"transport": "mppipe", "work": "cpu", "workers": 2, "feature": "plain",
        "sync": "each"}


def job(wait=25, maker=None, workers=(A, B), load=95, feeder=False, more=None,
        extra=(), born=None, place=lambda k: 0):
    """Steps of 50 ms that begin with a wait of so many ms. maker(k, begin, end): the
    rows of batch k's making, which takes `load` ms, the last of it in the wait."""
    threads = collections.defaultdict(list)
    maker = maker or (lambda k, b, e: [["cpu", b, e, e - b, k, None]])
    for k in range(-5, STEPS + 5):
        begin = BEGIN + k * STEP
        end = begin + int((wait(k) if callable(wait) else wait) * MS)
        who = workers[k % len(workers)] if workers else MAIN
        made = end - MS // 10
        took = load(k) if callable(load) else load
        start = made - int(took * MS)
        threads[who] += maker(k, start, made) + [["made", start, made, None, k, place(k)]]
        if feeder:
            threads[FEEDER] += [["take", end - STEP + MS // 20, end - MS // 20, 0, k, None],
                                ["cpu", end - MS // 20, end - MS // 40, 0, k, None],
                                ["formed", end - MS // 20, end - MS // 40, None, k, None]]
        threads[MAIN] += [["obtain", begin, end, 0, k, None],
                          ["step", begin, begin + STEP, 0, None, None]]
        for r in more(k, begin, end) if more else ():
            threads[MAIN].append(r)
    for who, rows in extra:
        threads[who] += rows
    out = [{"compose": 1}]
    for who, rows in threads.items():
        out.append({"pid": who[0], "tid": who[1]})
        if who == MAIN:
            out.append({"trainer": 0})
        out += rows
    return out + [{"done": STEPS}]


def device(idle=25, after_sync=True):
    """Busy from `idle` ms behind each step's begin until the next one's."""
    out = []
    for k in range(-5, STEPS + 5):
        b = BEGIN + k * STEP
        ms = idle(k) if callable(idle) else idle
        out.append("kernel,0,0,%d,%d,0,0,x\n" % (b + int(ms * MS), b + STEP))
        if after_sync:
            out.append("host,0,0,%d,%d,0,0,x\n" % (b, b + STEP + MS // 10))
    return out


def sleeping(k, b, e):
    return [["sleep", b, e, 0, k, None]]


def queued(k, b, e):
    return [["cpu", b, e, (e - b) // 2, k, None]]


def locked(k, b, e):
    """Half of the time it waits for the other, then it holds the lock."""
    mid = (b + e) // 2
    return [["lock", b, mid, 0, k, None], ["cpu", mid, e, e - mid, k, None],
            ["held", mid, e, 0, k, None]]


def kind(name):
    return lambda k, b, e: [[name, b, e, 0, k, None]]


def pause(ms):
    return lambda k, b, e: [["pause", e, e + int(ms * MS), 0, None, "sleep"]]


ROOTS = (  # name, spec, log, device, the right roots
    ("two that compute", {}, job(), device(), {"cpu_bound"}),
    ("one that computes", {"workers": 1}, job(workers=(A,), load=48), device(),
     {"too_few_workers"}),
    ("without a core", {}, job(maker=queued), device(),
     {"cpu_oversubscribed"}),
    ("a program for each item, and no core", {"work": "subprocess"},
     job(maker=lambda k, b, e: [["child", b, e, int((e - b) * 0.85), k, None]]), device(),
     {"cpu_bound", "cpu_oversubscribed"}),
    ("a program for each item, and a core", {"work": "subprocess", "workers": 1},
     job(workers=(A,), load=48, maker=lambda k, b, e: [["child", b, e, int((e - b) * 0.95), k, None]]),
     device(), {"too_few_workers"}),
    ("asleep", {"work": "sleep"}, job(maker=sleeping), device(),
     {"too_few_workers", "gpu_starved"}),
    ("a disk", {"work": "read"}, job(maker=kind("read")), device(), {"io_bound"}),
    ("mapped pages", {"work": "mapped"}, job(maker=kind("fault")), device(),
     {"page_fault_io"}),
    ("a server", {"work": "http"}, job(maker=kind("net")), device(), {"network_bound"}),
    ("a lock", {"work": "lock_mp"}, job(maker=locked), device(), {"lock_bound"}),
    ("a lock, and no core for more", {"work": "lock_mp", "foreign": 0.9},
     job(maker=locked), device(), {"lock_bound", "cpu_bound"}),
    ("a slow worker", {"work": "sleep"}, job(wait=lambda k: 40 if k % 3 == 0 else 1,
                                             maker=sleeping, workers=(A, B, B),
                                             load=lambda k: 100 if k % 3 == 0 else 20),
     device(lambda k: 40 if k % 3 == 0 else 1), {"slow_worker"}),
    ("a slow place among workers that are started anew", {"work": "sleep", "feature": "restart"},
     job(wait=lambda k: 40 if k % 2 == 0 else 1, maker=sleeping, place=lambda k: k % 2,
         workers=tuple((2000 + i, 2000 + i) for i in range(8)),
         load=lambda k: 100 if k % 2 == 0 else 20),
     device(lambda k: 40 if k % 2 == 0 else 1), {"slow_worker"}),
    ("a few slow items", {"work": "sleep"},
     job(maker=sleeping, load=lambda k: 900 if k % 10 == 0 else 10), device(),
     {"slow_item"}),
    ("behind a feeder", {"work": "read"}, job(maker=kind("read"), feeder=True), device(),
     {"io_bound"}),
    ("in the main thread", {"transport": "inline", "work": "read", "sync": "never"},
     job(maker=kind("read"), workers=(), load=24), device(), {"main_thread_loading"}),
    ("in the main thread, and a sync each step", {"transport": "inline", "work": "read"},
     job(maker=kind("read"), workers=(), load=24), device(),
     {"main_thread_loading", "sync_bound"}),
    ("nothing that reads in the main thread", {"transport": "inline", "sync": "never"},
     job(workers=(), load=24), device(), {"main_thread_loading", "host_bound"}),
    ("restarts", {}, job(extra=[(MAIN, [["restart", BEGIN + k * STEP + MS // 2,
                                         BEGIN + k * STEP + 22 * MS, 0, None, None]
                                        for k in range(STEPS)])]), device(),
     {"loader_restart"}),
    ("healthy", {}, job(wait=1), device(1), {"balanced"}),
    ("waits that queued work hides", {}, job(wait=25), device(1), {"balanced"}),
    ("pauses", {}, job(wait=1, more=pause(20)), device(22, False), {"host_bound"}),
    ("pauses of each step, behind a sync of their own",
     {"feature": "slow_out", "every": 1, "sync": "never"},
     job(wait=1, more=pause(20)), device(22, False), {"host_bound", "sync_bound"}),
    ("... of some steps", {"feature": "slow_out", "every": 4, "sync": "never"},
     job(wait=1, more=pause(20)), device(22, False), {"host_bound"}),
    ("work behind each .item()", {"feature": "item", "sync": "never"},
     job(wait=1, more=lambda k, b, e: [["host", e, e + 20 * MS, 20 * MS, None, "cpu"]]),
     device(22), {"host_bound", "sync_bound"}),
    ("syncs", {}, job(wait=1, maker=sleeping), device(15), {"sync_bound", "launch_bound"}),
    ("nobody asks", {"transport": "server"},
     job(wait=0, extra=[(MAIN, [["request", BEGIN + k * STEP, BEGIN + k * STEP + 30 * MS,
                                 0, None, None] for k in range(STEPS)])]), device(30),
     {"no_demand"}),
)


def report(root="cpu_bound", wait=0.5, steps=STEPS, by=((1001, 0.5), (1002, 0.5))):
    return {"target": {"trainer": 1000}, "ranks": [],
            "capture": {"begin_ns": BEGIN, "end_ns": END},
            "verdicts": [{"id": root, "severity": "critical", "certainty": "high",
                          "consequence_of": None},
                         {"id": "gpu_starved", "severity": "critical",
                          "certainty": "high", "consequence_of": root}],
            "breakdown": {"data_wait": {"seconds": wait * 5, "share": wait}},
            "data_wait": {"causes": [{"cause": "cpu", "seconds": s * wait * 5,
                                      "subject": {"pid": p, "tid": p}} for p, s in by]},
            "steps": {"count": steps}}


SPOILT = (  # name, what to do to a right report, the criterion that must fail
    ("another root", lambda r: r["verdicts"][0].update(id="io_bound"), "root"),
    ("a consequence is no root", lambda r: r["verdicts"].pop(0), "root"),
    ("no verdict", lambda r: r["verdicts"].clear(), "root"),
    ("5 points too much wait",
     lambda r: r["breakdown"]["data_wait"].update(share=0.55), "wait"),
    ("no wait told", lambda r: r["breakdown"]["data_wait"].update(share=None), "wait"),
    ("twice the steps", lambda r: r["steps"].update(count=2 * STEPS), "steps"),
    ("5 % of the steps missing", lambda r: r["steps"].update(count=95), "steps"),
    ("no steps", lambda r: r["steps"].update(count=None), "steps"),
)


class Made:
    """Files of a made-up job."""

    def __init__(self, folder):
        self.stem = os.path.join(folder, "job")

    def truth(self, spec, rows, work):
        with open(self.stem + ".truth.jsonl", "w", encoding="utf-8") as f:
            f.writelines(json.dumps(r) + "\n" for r in rows)
        with open("%s.gpu.%d.csv" % (self.stem, MAIN[0]), "w", encoding="ascii") as f:
            f.writelines(work)
        return logs.Truth(logs.Log(self.stem + ".truth.jsonl"), dict(SPEC, **spec), BEGIN,
                          END, self.stem, foreign=spec.get("foreign", 0))


def draws():
    for first in (0, 12345, 3579000):
        cells = collections.defaultdict(collections.Counter)
        for seed in range(first, first + 500):
            d = grammar.chosen(seed)
            if not grammar.possible(d):
                yield "seed %d" % seed, "impossible: %s" % d
            for name, value in d.items():
                cells[name][value] += 1
        empty = ["%s %s: %d" % (n, v, cells[n][v]) for n, values in
                 grammar.DIMENSIONS.items() for v in values if cells[n][v] < 5]
        yield "500 draws from %d" % first, ", ".join(empty) or None
    same = all(grammar.drawn(s) == grammar.drawn(s) for s in range(50))
    yield "the same seed, the same job", None if same else "another job"
    other = len({json.dumps(grammar.drawn(s), sort_keys=True) for s in range(50)})
    yield "other seeds, other jobs", None if other == 50 else "only %d" % other
    for name, make in grammar.ROWS.items():
        s = make(1)
        dims = {n: s[n] for n in grammar.DIMENSIONS}
        yield "row " + name, None if grammar.possible(dims) else "impossible"
    wrong = [s for s in range(500) for x in [grammar.drawn(s)]
             if not (0 <= x["cost_ms"] < 3000 and x["feeders"] >= 0 and x["gpu_ms"] > 0)]
    yield "numbers", None if not wrong else "seeds %s" % wrong


def checks(folder):
    """Yield (name, None or what is wrong)."""
    yield from draws()
    made = Made(folder)
    for name, spec, rows, work, right in ROOTS:
        found = made.truth(spec, rows, work).roots()
        yield name, None if found == right else "right by the log: %s" % sorted(found)
    t = made.truth({}, job(), device())
    ok, _ = judging.judge([t], report())
    yield "a right report", None if False not in ok.values() else str(ok)
    for name, spoil, criterion in SPOILT:
        r = copy.deepcopy(report())
        spoil(r)
        ok, _ = judging.judge([t], r)
        yield name, None if ok[criterion] is False else "not noticed: %s" % ok
    t = made.truth({"workers": 1}, job(workers=(A,), load=48), device())
    for name, by, want in (("the right supplier", ((1001, 1.0),), True),
                           ("another supplier", ((1002, 1.0),), False),
                           ("no supplier", (), False)):
        ok, _ = judging.judge([t], report("too_few_workers", by=by))
        yield name, None if ok["supplier"] is want else str(ok)
    t = made.truth({}, job(wait=1), device(1))
    for name, root, want in (("healthy, and nothing is said", "balanced", True),
                             ("healthy, and alarmed", "sync_bound", False)):
        r = report(root, 0.02)
        r["verdicts"] = [{"id": root, "severity": "info" if want else "warning",
                          "certainty": "high", "consequence_of": None}]
        ok, _ = judging.judge([t], r)
        yield name, None if ok["alarm"] is want else str(ok)
    t = made.truth({"transport": "none"}, job(wait=0, more=pause(20)), device(22, False))
    for name, root, want in (("no input, and the host told", "host_bound", True),
                             ("no input, and data told", "main_thread_loading", False)):
        r = report(root, 0.0)
        del r["verdicts"][1]
        ok, _ = judging.judge([t], r)
        yield name, None if ok["alarm"] is want else str(ok)


def main():
    """(passed, failed)"""
    failed = passed = 0
    with tempfile.TemporaryDirectory(prefix="pipetrace-compose-check-") as d:
        for name, problem in checks(d):
            if problem:
                print("FAIL: compose: %s: %s" % (name, problem))
            failed += bool(problem)
            passed += not problem
    return passed, failed
