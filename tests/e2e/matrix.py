#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""Trace a real PyTorch job in every way that its loader can be slow, and
compare each diagnosis with the job's own log.

    matrix.py --sample              a few cells, as `make test` does
    matrix.py --all --seeds 3       everything, three seeds each
    matrix.py cpu2 pin --keep DIR   named cells, keeping what they wrote

Ends with "N passed, N failed, N skipped", of first tries. With --sample a cell whose
times are wrong is skipped, by name, where the machine was busy before or after it by the
kernel's pressure figures; counts are judged in any case. The kept recordings
(tests/golden, tests/replays) decide what is right.
"""

import argparse
import collections
import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import judge_check
import slow_storage
import truth as truth_log

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, os.path.join(ROOT, "tests"))
import noise  # noqa: E402

JOB = os.path.join(HERE, "torch_job.py")
PYTHON = "/usr/bin/python3"  # Debian's, which sees python3-torch

READY_S = 60
STOP_S = 20
HOG_S = 120
OFF_CORE_SOME, OFF_CORE_MUCH = 0.15, 0.4
HOG = """
import os, time
parent, end = os.getppid(), time.monotonic() + %d
while time.monotonic() < end and os.getppid() == parent:
    sum(range(1000000))
"""

# Two workers that compute: about 60 ms of CPU per batch each, 10 ms of GPU.
CPU2 = "--workers 2 --cpu-ms-per-item 15 --jitter 0.2"
# Two workers that read: 1 MiB per batch at a rate of 24 MiB/s for both.
DISK = "--workers 2 --cache dropped --file-kb 256 --cpu-ms-per-item 1"
DISK_KIB_S = 24 * 1024

Cell = collections.namedtuple(
    "Cell", "name job verdicts slow_disk hogs slow_worker bound about")


def cell(name, job, verdicts, about, slow_disk=None, hogs=0, slow_worker=None,
         bound=True):
    return Cell(name, job.split(), verdicts.split(), slow_disk, hogs,
                slow_worker, bound, about)


CELLS = [
    cell("w0", "--workers 0 --cpu-ms-per-item 6 --jitter 0.2",
         "main_thread_loading", "num_workers 0"),
    cell("cpu2", CPU2, "cpu_bound", "2 CPU-bound workers"),
    cell("over4", "--workers 4 --cpu-ms-per-item 15 --jitter 0.2",
         "cpu_oversubscribed", "4 CPU-bound workers on 2 cores"),
    cell("cold", DISK, "io_bound", "cold reads from a slow disk",
         slow_disk="auto"),
    cell("fuse", DISK, "io_bound", "cold reads from a slow file system",
         slow_disk="fuse"),
    cell("slow1of3", "--workers 3 --cpu-ms-per-item 4 --slow-worker 1:6",
         "slow_worker", "one slow worker of 3", slow_worker=1),
    cell("gpu", "--workers 2 --kernel-us 1000 --sync-every 50",
         "balanced", "GPU-bound, a sync every 50 steps", bound=False),
    cell("gpusync", "--workers 2 --kernel-us 1000 --loss-item",
         "balanced", "GPU-bound, a sync every step", bound=False),
    cell("diskhogs", DISK, "io_bound",
         "slow disk beside two CPU hogs of somebody else",
         slow_disk="auto", hogs=2),
    cell("pin", CPU2 + " --pin", "cpu_bound", "pin-thread hand-over"),
    cell("numpy", CPU2 + " --numpy", "cpu_bound", "NumPy batches"),
    cell("fssharing", CPU2 + " --sharing file_system", "cpu_bound",
         "file_system sharing"),
    cell("ahead", CPU2 + " --loop ahead", "cpu_bound",
         "a loop that fetches before it uses"),
    cell("thread", CPU2 + " --loop thread", "cpu_bound",
         "backward launched from a second thread"),
]
# Of a cell with hogs the pressure figures cannot say whether its machine was quiet; golden/diskhogs
# decides that one.
SAMPLE = ("w0", "slow1of3", "pin", "gpu")


class Broken(Exception):
    """The run could not be judged."""


def end(process, grace=5):
    """End a child of ours, politely first. Its exit status."""
    if process is None:
        return None
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(grace)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(10)
    return process.returncode


def tail(path, lines=5):
    try:
        with open(path, encoding="utf-8", errors="replace") as f:
            return " | ".join(f.read().strip().splitlines()[-lines:])
    except OSError:
        return ""


class Run:
    """One cell with one seed: the job, the tracer, and what they wrote."""

    def __init__(self, options, cell_, seed, stem, validator):
        self.options, self.cell, self.seed = options, cell_, seed
        self.validator = validator
        self.stem = stem
        self.storage = None
        self.children = []
        self.foreign = 0.0  # cores in use by others, the tracer included

    def spawn(self, argv, **more):
        process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, **more)
        self.children.append(process)
        return process

    def start_job(self):
        data = os.path.join(self.options.data,
                            "disk" if self.cell.slow_disk else "plain")
        if self.cell.slow_disk:
            slow_storage.prepare(data, 64, 256)
            way = self.cell.slow_disk
            if way == "auto":
                way = self.options.slow_storage
            self.storage = slow_storage.open_storage(
                way, data, DISK_KIB_S,
                os.path.join(self.options.build, "tests/e2e/slowfs"))
            data = self.storage.data
        argv = [PYTHON, JOB, "--truth", self.stem + ".truth.jsonl",
                "--cudart", os.path.join(self.options.build,
                                         "sim/libcudart.so.12"),
                "--data", data, "--seed", str(self.seed), "--die-with-parent",
                "--seconds", str(READY_S + 3 * self.options.duration)]
        out = self.stem + ".job.out"
        with open(out, "wb") as o, open(self.stem + ".job.err", "wb") as e:
            job = self.spawn(argv + self.cell.job, stdout=o, stderr=e,
                             preexec_fn=self.storage and self.storage.enter)
        deadline = time.monotonic() + READY_S
        while time.monotonic() < deadline:
            with open(out, encoding="utf-8") as f:
                if f.read().startswith("READY %d\n" % job.pid):
                    break
            if job.poll() is not None:
                raise Broken("the job ended with status %d: %s" % (
                    job.returncode, tail(self.stem + ".job.err")))
            time.sleep(0.1)
        else:
            raise Broken("the job was not ready within %d s" % READY_S)
        for _ in range(self.cell.hogs):
            self.spawn([sys.executable, "-c", HOG % HOG_S])
        if self.storage:
            self.storage.throttle()
        time.sleep(self.options.settle)
        return job

    def trace(self, job):
        o = self.options
        argv = [os.path.join(o.build, "pipetrace"), "-p", str(job.pid), "-d",
                str(o.duration), "--json", self.stem + ".json",
                "--print-steps", "100000"]
        if o.keep:
            argv += ["--raw-stream", self.stem + ".raw"]
        others = noise.Others(noise.tree(job.pid) + [p.pid for p in self.children])
        with open(self.stem + ".txt", "wb") as out, \
                open(self.stem + ".err", "wb") as err:
            tracer = self.spawn(argv, stdout=out, stderr=err)
        try:
            status = tracer.wait(o.duration + 20)
        except subprocess.TimeoutExpired:
            raise Broken("pipetrace did not end in time") from None
        self.foreign = others.cores()
        if status != 0:
            raise Broken("pipetrace ended with status %d: %s" % (
                status, tail(self.stem + ".err")))
        try:
            with open(self.stem + ".json", encoding="utf-8") as f:
                return json.load(f)
        except (OSError, ValueError) as e:
            raise Broken("no readable report: %s" % e) from e

    def go(self):
        """(figures, list of what is wrong)."""
        try:
            job = self.start_job()
            report = self.trace(job)
            time.sleep(0.5)  # steps behind the capture show that it lives
            status = end(job, STOP_S)
        finally:
            for process in reversed(self.children):
                end(process)
            if self.storage:
                self.storage.stop()
        return judge(self.cell, report, self.stem + ".truth.jsonl", status,
                     self.validator)


# What is wrong begins so where a busy machine may be why.
TIMED = "time: "


def judge(cell_, report, path, status, validator):
    """Compare a report with the truth: (figures, list of what is wrong)."""
    wrong = []
    for e in list(validator.iter_errors(report))[:3]:
        wrong.append("schema: %s: %s" % ("/".join(map(str, e.absolute_path)),
                                         e.message[:200]))
    if wrong:
        return {}, wrong
    capture = report["capture"]
    if capture["begin_ns"] is None or capture["end_ns"] is None:
        return {}, ["the report does not say when the capture began and ended"]
    if not capture["complete"]:
        wrong.append("the capture broke off")
    truth = truth_log.Truth(path, capture["begin_ns"], capture["end_ns"])
    if status != 0 or not truth.complete:
        wrong.append("the job ended with status %s" % status)
    if truth.after == 0:
        wrong.append("the job made no step after the capture")

    # Is the job what the cell is about? If not, nothing below means much.
    share = truth.wait_share()
    if cell_.bound and share < 0.25:
        wrong.append(TIMED + "the job waited only %.0f %% of the time" % (100 * share))
    if not cell_.bound and share > 0.08:
        wrong.append(TIMED + "the job waited %.0f %% of the time" % (100 * share))
    loading = truth.loading_share()
    if cell_.name != "w0" and cell_.bound and loading < 0.6:
        wrong.append(TIMED + "only %.0f %% of the waits were for loading" %
                     (100 * loading))

    # What a job of CPU-bound workers suffers from depends on who else wants
    # the cores: the workers' own CPU clocks say which it was.
    expected = list(cell_.verdicts)
    off_core = truth.off_core_share()
    if expected == ["cpu_bound"] and off_core > OFF_CORE_SOME:
        expected.append("cpu_oversubscribed")
        if off_core > OFF_CORE_MUCH:
            expected.remove("cpu_bound")

    verdicts = report["verdicts"]
    root = verdicts[0]["id"] if verdicts else "none"
    if root not in expected:
        wrong.append(TIMED + "verdict %s, expected %s" % (root, "/".join(expected)))
    if not cell_.bound:
        loud = [v["id"] for v in verdicts if v["severity"] != "info"]
        if loud:
            wrong.append(TIMED + "healthy, but warned of %s" % ", ".join(loud))
    if cell_.slow_worker is not None:
        pid = (verdicts[0].get("subject") or {}).get("pid") if verdicts else None
        if pid != truth.workers[cell_.slow_worker]:
            wrong.append(TIMED + "named process %s as the slow worker, it is %d" % (
                pid, truth.workers[cell_.slow_worker]))

    told, true, tolerated = truth_log.data_wait(truth, report)
    if not abs(told - true) <= tolerated:  # NaN is wrong as well
        wrong.append(TIMED + "data wait %.1f ms, truth %.1f ms, tolerated +-%.1f ms" %
                     (told, true, tolerated))
    steps, count = report["steps"]["count"], truth.count()
    if steps is None or abs(steps - count) > truth_log.EDGE_STEPS:
        wrong.append("%s steps, truth %d" % (steps, count))

    blocked, right, other = truth_log.named(truth, report)
    if cell_.bound and cell_.name != "w0":
        if blocked < 15:
            wrong.append(TIMED + "only %d blocked steps to judge" % blocked)
        elif right < truth_log.GUILTY_SHARE * blocked:
            wrong.append(TIMED + "right worker in %d of %d blocked steps, another one "
                         "in %d" % (right, blocked, other))
    for pid, reported, made in truth_log.batches(truth, report):
        wrong.append("worker %d made %d batches, reported %d" % (pid, made,
                                                                 reported))
    figures = {"root": root, "told": told, "true": true, "steps": steps,
               "count": count, "blocked": blocked, "right": right,
               "share": share, "lost": capture["lost"]["total"],
               "off_core": off_core,
               "period": (capture["end_ns"] - capture["begin_ns"]) / 1e6
               / max(count, 1)}
    return figures, wrong


def line(name, seed, word, f):
    if not f:
        return "%-10s %4d %-5s" % (name, seed, word)
    error = 100 * (f["told"] / f["true"] - 1) if f["true"] else 0
    return ("%-10s %4d %-5s %-20s wait %8.1f / %8.1f ms (%+.2f %%, %+.3f "
            "ms/step)  steps %s/%d  named %d/%d  lost %s  step %.1f ms, "
            "waits %.0f %%, loading off core %.0f %%" %
            (name, seed, word, f["root"], f["told"], f["true"], error,
             (f["told"] - f["true"]) / max(f["count"], 1), f["steps"],
             f["count"], f["right"], f["blocked"], f["lost"], f["period"],
             100 * f["share"], 100 * f["off_core"]))


def attempt(options, cell_, seed, directory, validator):
    """(word, figures); prints the line and what is wrong."""
    before = noise.probe()
    try:
        figures, wrong = Run(options, cell_, seed, os.path.join(
            directory, "%s-%d" % (cell_.name, seed)), validator).go()
    except slow_storage.Unavailable as e:
        print("skip: %s seed %d: %s" % (cell_.name, seed, e), flush=True)
        return "skip", {}
    except Broken as e:
        figures, wrong = {}, [str(e)]
    noisy = noise.too_noisy(before, noise.probe()) if wrong else None
    word = "FAIL" if wrong else "ok"
    if noisy and options.sample and all(w.startswith(TIMED) for w in wrong):
        word = "skip"
        print("skip: %s seed %d: %s" % (cell_.name, seed, noisy))
    print(line(cell_.name, seed, word, figures), flush=True)
    for text in wrong + (["(%s)" % noisy] if noisy else []):
        print("    " + text, flush=True)
    return word, figures


def missing(options):
    """Why the matrix cannot run here, or None."""
    if os.geteuid() != 0:
        return "needs root"
    if not os.path.exists("/sys/kernel/btf/vmlinux"):
        return "this kernel has no BTF"
    if importlib.util.find_spec("jsonschema") is None:
        return "python3-jsonschema is not installed"
    probe = subprocess.run([PYTHON, "-c", "import torch, PIL, numpy"],
                           stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                           stderr=subprocess.DEVNULL, timeout=60, check=False)
    if probe.returncode != 0:
        return "python3-torch, python3-pil or python3-numpy is not installed"
    return None


def parse():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("cells", nargs="*", metavar="CELL",
                   help="one of " + ", ".join(c.name for c in CELLS))
    p.add_argument("--all", action="store_true", help="every cell")
    p.add_argument("--sample", action="store_true",
                   help="only " + ", ".join(SAMPLE))
    p.add_argument("--seeds", type=int, default=1)
    p.add_argument("--first-seed", type=int, default=1)
    p.add_argument("-d", "--duration", type=int, default=12, metavar="SEC")
    p.add_argument("--settle", type=float, default=2.0, metavar="SEC",
                   help="between READY and attaching")
    p.add_argument("--slow-storage", choices=("auto", "blkio", "fuse"),
                   default="auto")
    p.add_argument("--keep", metavar="DIR",
                   help="keep truth, report and raw records there")
    p.add_argument("--build", default=os.path.join(ROOT, "build"))
    p.add_argument("--schema",
                   default=os.path.join(ROOT, "docs/report.schema.json"))
    args = p.parse_args()
    names = {c.name: c for c in CELLS}
    for name in args.cells:
        if name not in names:
            p.error("no cell called " + name)
    args.sample = not args.all and not args.cells
    if args.all:
        args.chosen = CELLS
    else:
        args.chosen = [names[n] for n in args.cells or SAMPLE]
    args.data = os.path.join(args.build, "e2e/data")
    return args


def run_all(options, directory):
    from jsonschema import validators

    with open(options.schema, encoding="utf-8") as f:
        schema = json.load(f)
    kind = validators.validator_for(schema)
    kind.check_schema(schema)
    validator = kind(schema)
    totals = collections.Counter()
    for name, problem in judge_check.check(judge, CELLS, validator):
        totals["FAIL" if problem else "ok"] += 1
        print("judge: %-24s %s" % (name, problem or "ok"), flush=True)
    table = {}
    for cell_ in options.chosen:
        for seed in range(options.first_seed,
                          options.first_seed + options.seeds):
            word, figures = attempt(options, cell_, seed, directory, validator)
            totals[word] += 1
            table.setdefault(cell_.name, []).append((word, figures))
    print("\n%-10s %-46s %-6s %s" % ("cell", "what", "passed", "verdicts"))
    for cell_ in options.chosen:
        results = table[cell_.name]
        print("%-10s %-46s %d/%-4d %s" % (
            cell_.name, cell_.about, sum(w == "ok" for w, _ in results),
            len(results), " ".join(sorted({f.get("root", "-")
                                           for _, f in results}))))
    print("%d passed, %d failed, %d skipped" % (totals["ok"], totals["FAIL"],
                                                totals["skip"]))
    return 1 if totals["FAIL"] else 0


def main():
    options = parse()
    reason = missing(options)
    if reason:
        print("skip: matrix: " + reason)
        print("0 passed, 0 failed, %d skipped" %
              (len(options.chosen) * options.seeds))
        return 0
    for name in ("pipetrace", "sim/libcudart.so.12"):
        if not os.path.exists(os.path.join(options.build, name)):
            print("matrix: build/%s is not built: run make" % name)
            return 1
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    if options.keep:
        os.makedirs(options.keep, exist_ok=True)
        return run_all(options, options.keep)
    directory = tempfile.mkdtemp(prefix="pipetrace-matrix-")
    try:
        return run_all(options, directory)
    finally:
        shutil.rmtree(directory)


if __name__ == "__main__":
    sys.exit(main())
