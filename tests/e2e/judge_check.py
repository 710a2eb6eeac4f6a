# SPDX-License-Identifier: BSD-2-Clause
"""Does the judge notice? A made-up log and the report that fits it pass; the
same report with one thing spoilt must not.

Without this, a judge that accepts everything would look like a tracer that is
always right.
"""

import copy
import json
import os
import tempfile

MS = 1000000
BEGIN = 50 * 10**9
STEPS = 100
TRAINER, WORKERS = 1000, [1001, 1002, 1003]


class AnySchema:
    """Stands in for the validator: the made-up reports are fragments."""

    @staticmethod
    def iter_errors(_report):
        return []


def log(wait_ms, cpu_ms=60):
    """Steps of 40 ms that begin with a wait of wait_ms each."""
    lines = [{"truth": 1, "pid": TRAINER, "args": {}, "workers": []},
             {"epoch": 0, "begin": 0, "end": 1, "workers": WORKERS}]
    for k in range(STEPS + 20):
        begin = BEGIN + (k - 10) * 40 * MS
        end = begin + wait_ms * MS
        lines.append({"step": k, "wait_begin": begin, "wait_end": end,
                      "compute_begin": end, "compute_end": begin + 40 * MS,
                      "worker": WORKERS[k % 3], "batch_seq": k,
                      "load_begin": begin - 60 * MS,
                      "load_end": end - wait_ms * MS // 10,
                      "load_cpu": cpu_ms * MS,
                      "items": [10.0]})
    return lines + [{"end": 0, "steps": STEPS + 20}]


def report(verdict, wait_ms):
    steps = [{"index": k, "begin_ns": BEGIN + k * 40 * MS,
              "end_ns": BEGIN + (k + 1) * 40 * MS, "period_ms": 40.0,
              "data_wait_ms": float(wait_ms), "worker": WORKERS[(k + 10) % 3]}
             for k in range(STEPS)]
    return {"capture": {"begin_ns": BEGIN, "end_ns": BEGIN + STEPS * 40 * MS,
                        "lost": {"total": 0}, "complete": True},
            "verdicts": [{"id": verdict, "severity": "info",
                          "subject": {"pid": WORKERS[1]}}],
            "breakdown": {"data_wait": {"seconds": STEPS * wait_ms / 1e3}},
            "workers": [{"pid": p, "role": "loader", "batches": STEPS // 3}
                        for p in WORKERS],
            "steps": {"count": STEPS, "list": steps}}


def wrong_worker(r, share):
    for s in r["steps"]["list"][:int(STEPS * share)]:
        s["worker"] = TRAINER


SPOILT = [  # name, what to do to the report, a word of the complaint
    ("a window unknown", lambda r: r["capture"].update(end_ns=None), "when"),
    ("a capture cut short", lambda r: r["capture"].update(complete=False),
     "broke off"),
    ("another verdict", lambda r: r["verdicts"][0].update(id="io_bound"),
     "expected"),
    ("no verdict", lambda r: r["verdicts"].clear(), "expected"),
    ("another slow worker",
     lambda r: r["verdicts"][0].update(subject={"pid": WORKERS[0]}),
     "as the slow worker"),
    ("5 % too much wait",
     lambda r: r["breakdown"]["data_wait"].update(seconds=STEPS * .0315),
     "data wait"),
    ("5 % too little wait",
     lambda r: r["breakdown"]["data_wait"].update(seconds=STEPS * .0285),
     "data wait"),
    ("unknown wait",
     lambda r: r["breakdown"]["data_wait"].update(seconds=None), "data wait"),
    ("3 steps too many", lambda r: r["steps"].update(count=STEPS + 3),
     "steps, truth"),
    ("3 steps missing", lambda r: r["steps"].update(count=STEPS - 3),
     "steps, truth"),
    ("unknown steps", lambda r: r["steps"].update(count=None),
     "steps, truth"),
    ("a worker's batches doubled",
     lambda r: r["workers"][2].update(batches=STEPS * 2 // 3), "batches"),
    ("6 % wrong workers", lambda r: wrong_worker(r, .06), "right worker"),
    ("no steps listed", lambda r: r["steps"].update(list=None),
     "right worker"),
]


def check(judge, cells, validator):
    """Yield (name, None or what went wrong)."""
    slow = next(c for c in cells if c.slow_worker == 1)
    healthy = next(c for c in cells if not c.bound)
    fd, path = tempfile.mkstemp(prefix="pipetrace-judge-")

    def write(lines):
        with open(path, "w", encoding="utf-8") as f:
            f.write("".join(json.dumps(x) + "\n" for x in lines))

    def complaints(cell, r, status=0, by=AnySchema):
        return judge(cell, r, path, status, by)[1]

    try:
        os.close(fd)
        write(log(30))
        good = report(slow.verdicts[0], 30)
        found = complaints(slow, copy.deepcopy(good))
        yield "a right report", "; ".join(found) or None
        found = complaints(slow, copy.deepcopy(good), by=validator)
        yield "a fragment", None if "schema" in " ".join(found) else "accepted"
        found = complaints(slow, copy.deepcopy(good), status=1)
        yield "a job that failed", None if found else "accepted"
        for name, spoil, word in SPOILT:
            r = copy.deepcopy(good)
            spoil(r)
            found = complaints(slow, r)
            yield name, None if any(word in f for f in found) else \
                "not noticed: %s" % found
        # 87 ms of loading each: on a core for most of it, or for little.
        busy = next(c for c in cells if c.verdicts == ["cpu_bound"])
        for cpu_ms, verdict, fits in ((80, "cpu_bound", True),
                                      (80, "cpu_oversubscribed", False),
                                      (60, "cpu_oversubscribed", True),
                                      (30, "cpu_oversubscribed", True),
                                      (30, "cpu_bound", False)):
            write(log(30, cpu_ms))
            found = complaints(busy, report(verdict, 30))
            yield "%s at %d ms CPU" % (verdict, cpu_ms), \
                None if fits != bool(found) else "judged wrongly: %s" % found
        found = complaints(healthy, report(healthy.verdicts[0], 30))
        yield "a job off its cell", None if found else "accepted"

        write(log(0))
        good = report(healthy.verdicts[0], 0)
        found = complaints(healthy, copy.deepcopy(good))
        yield "a healthy report", "; ".join(found) or None
        good["verdicts"].append({"id": "gpu_starved", "severity": "warning"})
        found = complaints(healthy, good)
        yield "a false alarm", None if "warned" in " ".join(found) else \
            "not noticed"
        write(log(0)[:-1])
        found = complaints(healthy, report(healthy.verdicts[0], 0))
        yield "a log cut short", None if found else "accepted"
    finally:
        os.unlink(path)
