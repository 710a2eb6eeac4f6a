# SPDX-License-Identifier: BSD-2-Clause
"""Do the rules themselves hold? Made-up logs whose label is plain, and a
judge that must notice what is spoilt. Without this, a judge that accepts
everything would look like a tracer that is always right."""

import copy
import json
import os
import tempfile

import catalog
import judge
import labels

MS = 1000000
BEGIN, STEP, STEPS = 50 * 10**9, 50 * MS, 120
TRAINER, WORKERS = 1000, [1001, 1002]


class AnySchema:
    @staticmethod
    def iter_errors(_report):
        return []


def phases(kind, begin, end, cpu_share=None):
    """One phase; it computes fully, not at all, or for a share."""
    if cpu_share is None:
        cpu_share = 1 if kind == "cpu" else 0
    return [[kind, begin, end, int((end - begin) * cpu_share)]]


def file_rows(k, files, load, begin, made):
    """Each batch reads one of four files for a millisecond, and file 0, which is so
    many times as large, for 40 ms: while it is waited for, or before."""
    times, waited = files
    end = made if waited else begin - 30 * MS
    return [[0, 100000 * times, end - 40 * MS, end],
            [1 + k % 4, 100000, load, load + MS]]


def log(wait_ms, kind="cpu", load_ms=95, workers=WORKERS, cpu_share=None,
        item_ms=10.0, pause=None, slow=None, sending=0.01, files=None, tail=None):
    """Steps of 50 ms that begin with a wait, of which the share `sending` is
    behind the making; the GPU works for the rest. files: as in file_rows().
    tail: (n, factor): every nth batch takes so much longer, and only it is
    waited for."""
    rows = [{"truth": 1, "pid": TRAINER, "args": {}, "workers": []},
            {"epoch": 0, "begin": 0, "end": 1, "workers": workers}]
    for k in range(STEPS + 10):
        begin = BEGIN + (k - 5) * STEP
        end = begin + int(wait_ms * MS)
        if slow is not None and k % 2 == 0:
            end = begin
        made = end - int(wait_ms * MS * sending)
        ms = slow if slow is not None and k % 2 == 0 else load_ms
        if tail:
            heavy = k % tail[0] == 0
            end = begin + (int(wait_ms * MS) if heavy else MS)
            made, ms = end - MS // 4, 10 * (tail[1] if heavy else 1)
        load = int(made - ms * MS)
        rows.append({
            "step": k, "wait_begin": begin, "wait_end": end,
            "compute_begin": end, "compute_end": begin + STEP,
            "worker": workers[k % len(workers)] if workers else TRAINER,
            "load_begin": load, "load_end": int(made),
            "load_cpu": sum(p[3] for p in phases(kind, load, int(made),
                                                 cpu_share)),
            "items": [item_ms],
            "files": file_rows(k, files, load, begin, made) if files else [],
            "phases": phases(kind, load, int(made), cpu_share)})
        if pause:
            rows.append({"pause": pause, "begin": begin + STEP // 2,
                         "end": begin + STEP})
    return rows + [{"end": 0, "steps": STEPS + 10}]


def device(wait_ms, busy_ms=None, calls=1, copy_ms=0, sync=True, odd=False,
           every=None):
    """Device rows that fill each step behind its wait, for busy_ms of it,
    in so many kernels; each behind a sync if `sync`. odd: only every
    other step waits; every: only each nth."""
    rows = ["# pipetrace-sim 1 pid=%d" % TRAINER,
            "op,stream,submit_ns,start_ns,end_ns,bytes,tid,api"]
    for k in range(STEPS + 10):
        wait = 0 if odd and k % 2 == 0 else int(wait_ms * MS)
        if every and k % every:
            wait = 0
        begin = BEGIN + (k - 5) * STEP + wait
        rest = STEP - wait
        busy = rest if busy_ms is None else int(busy_ms * MS)
        if copy_ms:
            end = begin + int(copy_ms * MS)
            rows.append("h2d,0,%d,%d,%d,8,1000,cudaMemcpyAsync" % (
                begin, begin, end))
            begin, busy = end, busy - int(copy_ms * MS)
        for c in range(calls):
            at = begin + c * (rest // calls)
            end = at + busy // calls
            rows.append("kernel,0,%d,%d,%d,0,1000,cudaLaunchKernel" % (
                at, at, end))
            if sync:
                rows.append("host,0,%d,%d,%d,0,1000,cudaStreamSynchronize" % (
                    at, at, end + 5000))
    return rows


LABELS = [  # name, job's log, device's log, roots
    ("balanced", log(1), device(1), {"balanced"}),
    ("near the threshold", log(5), device(5), {"balanced", "cpu_bound"}),
    ("cpu", log(25), device(25), {"cpu_bound"}),
    ("a free core", log(25, workers=[1001], load_ms=48), device(25),
     {"too_few_workers"}),
    ("no core", log(25, cpu_share=0.5), device(25), {"cpu_oversubscribed"}),
    ("disk", log(25, "read"), device(25), {"io_bound"}),
    ("faults", log(25, "fault"), device(25), {"page_fault_io"}),
    ("network", log(25, "net"), device(25), {"network_bound"}),
    ("lock", log(25, "lock"), device(25), {"lock_bound"}),
    ("no workers", log(25, workers=[]), device(25), {"main_thread_loading"}),
    ("slow file", log(25, item_ms=1500.0), device(25), {"slow_file"}),
    ("one file slow each time", log(25, "read", files=(1, True)), device(25),
     {"slow_file"}),
    ("one file large, and no slower", log(25, "read", files=(50, True)),
     device(25), {"io_bound"}),
    ("one file slow, and not waited for", log(25, "read", files=(1, False)),
     device(25), {"io_bound"}),
    ("slow worker", log(25, slow=20), device(25, odd=True), {"slow_worker"}),
    ("slow worker, but its sending is waited for",
     log(25, slow=20, sending=0.8), device(25, odd=True),
     {"ipc_bound", "cpu_bound", "too_few_workers"}),
    ("a few slow batches", log(48, tail=(7, 8)), device(48, every=7),
     {"slow_item"}),
    ("a few slow batches, all of one worker", log(48, tail=(7, 8),
     workers=list(range(1001, 1008))), device(48, every=7), {"slow_worker"}),
    ("more than a few slow batches", log(45, tail=(3, 8)), device(45, every=3),
     {"too_few_workers"}),
    ("a few batches, not much slower", log(48, tail=(7, 2.5)),
     device(48, every=7), {"too_few_workers"}),
    ("hidden by queued work", log(25), device(0), {"balanced"}),
    ("short work behind syncs", log(1), device(1, 40, calls=200),
     {"sync_bound"}),
    ("long work behind syncs, as long as the device's", log(1),
     device(1, 25, calls=5), {"sync_bound", "host_bound"}),
    ("long work behind syncs, and little for the device", log(1),
     device(1, 5), {"host_bound"}),
    ("long work without a sync", log(1), device(1, 25, calls=5, sync=False),
     {"host_bound"}),
    ("launches", log(1), device(1, 25, calls=200, sync=False),
     {"launch_bound"}),
    ("copies", log(1), device(1, copy_ms=20), {"transfer_bound"}),
    ("checkpoint", log(1, pause="checkpoint"), device(1, 24),
     {"checkpoint_stall"}),
    ("barrier", log(1, pause="barrier"), device(1, 24), {"rank_straggler"}),
    ("requests", log(1, pause="request"), device(1, 24), {"no_demand"}),
]


def report(wait_ms=25.0):
    steps = [{"index": k, "begin_ns": BEGIN + k * STEP,
              "end_ns": BEGIN + (k + 1) * STEP, "data_wait_ms": wait_ms,
              "worker": WORKERS[(k + 5) % 2]} for k in range(STEPS)]
    total = STEPS * wait_ms / 1e3
    return {"capture": {"begin_ns": BEGIN, "end_ns": BEGIN + STEPS * STEP,
                        "lost": {"total": 0}, "complete": True},
            "verdicts": [{"id": "cpu_bound", "severity": "critical",
                          "consequence_of": None},
                         {"id": "gpu_starved", "severity": "critical",
                          "consequence_of": "cpu_bound"}],
            "breakdown": {"data_wait": {"seconds": total}},
            "data_wait": {"causes": [{"cause": "cpu", "seconds": total,
                                      "subject": {"pid": 1001, "tid": 1001}}]},
            "workers": [{"pid": p, "tid": p, "role": "loader"}
                        for p in WORKERS],
            "gpu": [{"busy": {"hard": [0.45, 0.55]}}],
            "steps": {"count": STEPS, "list": steps}}


def shift(r, ms):
    for s in r["steps"]["list"]:
        s["begin_ns"] += ms * MS


def other_worker(r, share):
    for s in r["steps"]["list"][:int(STEPS * share)]:
        s["worker"] = TRAINER


SPOILT = [  # name, what to do to the report, the check that must fail
    ("a capture cut short", lambda r: r["capture"].update(complete=False),
     "run"),
    ("another root", lambda r: r["verdicts"][0].update(id="io_bound"), "root"),
    ("no verdict", lambda r: r["verdicts"].clear(), "root"),
    ("a lower severity", lambda r: r["verdicts"][1].update(severity="info"),
     "severity"),
    ("3 % too much wait",
     lambda r: r["breakdown"]["data_wait"].update(seconds=STEPS * .02578),
     "wait"),
    ("no wait told",
     lambda r: r["breakdown"]["data_wait"].update(seconds=None), "wait"),
    ("steps 2 ms late", lambda r: shift(r, 2), "steps"),
    ("5 % of the steps missing", lambda r: r["steps"]["list"].__delitem__(
        slice(20, 26)), "steps"),
    ("no steps", lambda r: r["steps"].update(list=[]), "steps"),
    ("3 % other workers", lambda r: other_worker(r, 0.03), "guilty"),
    ("another cause", lambda r: r["data_wait"]["causes"][0].update(
        cause="disk"), "causes"),
    ("busy bounds off", lambda r: r["gpu"][0]["busy"].update(hard=[.6, .7]),
     "busy"),
]


def write(path, rows):
    with open(path, "w", encoding="utf-8") as f:
        for r in rows:
            f.write((r if isinstance(r, str) else json.dumps(r)) + "\n")


def checks(directory):
    """Yield (name, None or what went wrong)."""
    job = os.path.join(directory, "job")
    gpu = os.path.join(directory, "gpu")

    def truth(job_rows, device_rows):
        write(job, job_rows)
        write(gpu, device_rows)
        return labels.Scenario(job, BEGIN, BEGIN + STEPS * STEP, gpu, 2)

    for name, job_rows, device_rows, right in LABELS:
        found = truth(job_rows, device_rows).roots()
        yield name, None if found == right else "labelled %s" % found
    s = next(s for s in catalog.SCENARIOS if s.name == "cpu2")
    t = truth(log(25), device(25))

    def complaints(scenario, t, r):
        return judge.judge(scenario, t, r, 0, AnySchema)[1]

    found = complaints(s, t, report())
    yield "a right report", "; ".join(found) or None
    for name, spoil, word in SPOILT:
        r = copy.deepcopy(report())
        spoil(r)
        found = complaints(s, t, r)
        yield name, None if any(f.startswith(word + ":") for f in found) \
            else "not noticed: %s" % found
    t = truth(log(1), device(1))
    r = report(1.0)
    r["verdicts"] = [{"id": "balanced", "severity": "info",
                      "consequence_of": None}]
    r["gpu"][0]["busy"]["hard"] = [0.9, 1]
    found = complaints(s, t, r)
    yield "a healthy report", "; ".join(found) or None
    r["verdicts"].append({"id": "sync_bound", "severity": "warning",
                          "consequence_of": None})
    found = complaints(s, t, r)
    yield "a false alarm", None if "alarm" in " ".join(found) \
        else "not noticed"
    for s in catalog.SCENARIOS:  # every draw gives arguments
        import random
        rng = random.Random(1)
        s.draw(rng.uniform, rng.randint).split()
    names = [s.name for s in catalog.SCENARIOS]
    yield "names", None if len(set(names)) == len(names) else "twice the same"


def main():
    failed = passed = 0
    with tempfile.TemporaryDirectory(prefix="pipetrace-rules-") as d:
        for name, problem in checks(d):
            if problem:
                print("FAIL: rule: %s: %s" % (name, problem))
            failed += bool(problem)
            passed += not problem
    print("%d passed, %d failed, 0 skipped" % (passed, failed))
    return 1 if failed else 0
