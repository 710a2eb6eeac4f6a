#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""What-if against reality: trace a real PyTorch job once, make the change that
pipetrace asked about, and measure what it really won.

    whatif.py                      every set-up
    whatif.py one pin --seeds 2    named ones
    whatif.py --list

The real speed-up comes from the job's own log: mean step time of the run that
was traced over that of a second run with the change made. Where the change is
a worker count, the count is the one that pipetrace calls best, or one that the
set-up names (to see that no gain is told where there is none). A set-up passes
when the measured speed-up lies in the predicted range and the range is no
wider than 1.25 to 1; it is skipped, with the reason, when pipetrace says that
it cannot tell. In both runs the job has a high priority, so that other work on
the machine disturbs it less; a set-up that fails while others used the cores is
made once more.

Needs root. Takes about half a minute for each set-up; not part of `make test`.
Ends with "N passed, N failed, N skipped".
"""

import argparse
import collections
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
E2E = os.path.join(ROOT, "tests/e2e")
sys.path.insert(0, E2E)
sys.dont_write_bytecode = True
import matrix  # noqa: E402
import slow_storage  # noqa: E402

WIDEST = 1.25
QUOTA_US, PERIOD_US = 25000, 100000   # a quarter of a core
CPU_GROUPS = "/sys/fs/cgroup/cpu"
MOST_WORKERS = 16                     # what a test machine's memory carries
FOREIGN_CORES = 0.35
DISK_KIB_S = 16 * 1024
NICE, SHARES = -15, 16384             # over other work

# job: today's options; change: the report's; apply: options that make it real
# (for a worker count they follow from it); count: the number of workers to ask
# for, where it is not the one that pipetrace calls best; shapes: a job of
# tests/scenarios/job.py, which knows more of them; env: of the job.
Setup = collections.namedtuple("Setup", "name job change apply storage quota "
                               "count shapes env")


def setup(name, job, change="workers", apply=None, storage=False, quota=False,
          count=None, shapes=False, env=None):
    return Setup(name, job, change, apply, storage, quota, count, shapes,
                 env or {})


# Items mostly sleep, so that two cores carry many workers; where they compute,
# cores or quotas are the limit, and the prediction has to know it.
SETUPS = [
    setup("one", "--workers 1 --sleep-ms 8"),
    setup("two", "--workers 2 --sleep-ms 15 --jitter 0.3"),
    setup("three", "--workers 3 --sleep-ms 20 --jitter 0.4"),
    setup("jitter", "--workers 1 --sleep-ms 6 --jitter 0.8"),
    setup("own", "--workers 0 --sleep-ms 8"),
    setup("owncpu", "--workers 0 --cpu-ms-per-item 4 --jitter 0.2"),
    setup("cpu1", "--workers 1 --cpu-ms-per-item 5 --jitter 0.2"),
    setup("pin", "--workers 1 --sleep-ms 8 --pin"),
    setup("numpy", "--workers 2 --sleep-ms 12 --numpy"),
    setup("ahead", "--workers 1 --sleep-ms 8 --loop ahead"),
    setup("thread", "--workers 2 --sleep-ms 12 --loop thread"),
    setup("quota1", "--workers 1 --cpu-ms-per-item 1.5", quota=True),
    setup("quota2", "--workers 2 --cpu-ms-per-item 3 --jitter 0.2", quota=True),
    setup("slow3", "--workers 3 --sleep-ms 4 --slow-worker 1:6 --slow-kind sleep",
          "slow_worker_fixed", "--workers 3 --sleep-ms 4"),
    setup("slow4", "--workers 4 --sleep-ms 8 --slow-worker 2:4 --slow-kind sleep",
          "slow_worker_fixed", "--workers 4 --sleep-ms 8"),
    setup("disk", "--workers 2 --cache dropped --file-kb 256", "no_disk_wait",
          "--workers 2 --cache cached --file-kb 256", storage=True),
    setup("sync", "--workers 0 --cpu-ms-per-item 3", "fewer_syncs",
          "--workers 0 --cpu-ms-per-item 3 --sync-every 50"),
    setup("item", "--workers 0 --cpu-ms-per-item 2 --loss-item --sync-every 0",
          "fewer_syncs", "--workers 0 --cpu-ms-per-item 2 --sync-every 50"),
    setup("syncdev", "--workers 0 --cpu-ms-per-item 1.5 --jitter 0.5 "
          "--sync-device", "fewer_syncs",
          "--workers 0 --cpu-ms-per-item 1.5 --jitter 0.5 --sync-every 50"),
    setup("quota3", "--workers 3 --cpu-ms-per-item 1.5 --jitter 0.3 "
          "--kernel-us 150", quota=True),
    setup("fewer", "--workers 4 --cpu-ms-per-item 3", quota=True, count=2),
    setup("slowq", "--workers 3 --cpu-ms-per-item 0.8 --slow-worker 1:5",
          "slow_worker_fixed", "--workers 3 --cpu-ms-per-item 0.8", quota=True),
    # no gain is an answer, too: more workers than cores, or behind one lock
    setup("past", "--workers 2 --cpu-ms-per-item 5 --jitter 0.2", count=4),
    setup("over", "--workers 6 --cpu-ms-per-item 4 --jitter 0.2", count=2),
    setup("lock", "--workers 4 --lock-ms 7", count=8, shapes=True),
    setup("lock2", "--workers 2 --lock-ms 3 --lock-sleeps --sleep-ms 6",
          count=4, shapes=True),
    setup("copies", "--workers 2 --cpu-ms 0.5 --tensor-kb 3000",
          "transfers_overlapped",
          "--workers 2 --cpu-ms 0.5 --tensor-kb 3000 --pin --loop side",
          shapes=True, env={"PT_SIM_H2D_GBPS": "0.5"}),
    setup("bus", "--workers 2 --cpu-ms 0.5 --tensor-kb 7000",
          "transfers_overlapped",
          "--workers 2 --cpu-ms 0.5 --tensor-kb 7000 --pin --loop side",
          shapes=True, env={"PT_SIM_H2D_GBPS": "0.5"}),
]


class Quota:
    """Each process of a job in a CPU quota of its own."""

    def __init__(self):
        self.groups = []

    def add(self, pid):
        group = os.path.join(CPU_GROUPS, "pipetrace-whatif-%d-%d" %
                             (os.getpid(), pid))
        os.mkdir(group)
        self.groups.append(group)
        for name, value in (("cpu.cfs_period_us", PERIOD_US),
                            ("cpu.cfs_quota_us", QUOTA_US),
                            ("cpu.shares", SHARES),
                            ("cgroup.procs", pid)):
            slow_storage.write(os.path.join(group, name), str(value))

    def stop(self):
        for group in self.groups:
            for _ in range(50):
                try:
                    os.rmdir(group)
                    break
                except FileNotFoundError:
                    break
                except OSError:
                    time.sleep(0.1)


class Run:
    """One run of the job; traced, or only timed."""

    def __init__(self, options, setup_, extra, seed, stem):
        self.options, self.setup, self.extra = options, setup_, extra
        self.seed, self.stem = seed, stem
        self.job = self.storage = None
        self.quota = Quota()
        self.foreign = 0.0

    def start(self):
        o = self.options
        data = os.path.join(o.data, "whatif-disk" if self.setup.storage
                            else "plain")
        enter = None
        if self.setup.storage:
            slow_storage.prepare(data, 64, 256)
        if self.setup.storage and "--cache dropped" in self.extra:
            self.storage = slow_storage.open_storage(
                o.slow_storage, data, DISK_KIB_S,
                os.path.join(o.build, "tests/e2e/slowfs"))
            data, enter = self.storage.data, self.storage.enter

        def first():
            os.setsid()
            os.setpriority(os.PRIO_PROCESS, 0, NICE)
            if os.path.exists("/proc/self/autogroup"):  # weighs sessions
                slow_storage.write("/proc/self/autogroup", str(NICE))
            if enter:
                enter()

        job = [os.path.join(HERE, "job.py")] if self.setup.shapes else \
            [matrix.JOB, "--die-with-parent"]
        argv = [matrix.PYTHON] + job + [
            "--truth", self.stem + ".truth.jsonl", "--cudart",
            os.path.join(o.build, "sim/libcudart.so.12"), "--data", data,
            "--seed", str(self.seed), "--seconds",
            str(60 + 3 * o.duration)] + self.extra.split()
        with open(self.stem + ".out", "wb") as out, \
                open(self.stem + ".err", "wb") as err:
            # pylint: disable=consider-using-with
            self.job = subprocess.Popen(argv, stdin=subprocess.DEVNULL,
                                        stdout=out, stderr=err,
                                        env={**os.environ, **self.setup.env},
                                        preexec_fn=first)
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            with open(self.stem + ".out", encoding="utf-8") as f:
                if f.read().startswith("READY"):
                    break
            if self.job.poll() is not None:
                raise matrix.Broken("the job ended: " +
                                    matrix.tail(self.stem + ".err"))
            time.sleep(0.1)
        else:
            raise matrix.Broken("the job was not ready in time")
        if self.setup.quota:
            for pid in matrix.tree(self.job.pid)[1:]:
                self.quota.add(pid)
        if self.storage:
            self.storage.throttle()
        time.sleep(o.settle)

    def watch(self, trace):
        """The report, or None; and the window in ns."""
        ours = matrix.tree(self.job.pid)
        before = matrix.all_ticks() - matrix.ticks(ours)
        begin = time.monotonic_ns()
        report = None
        if trace:
            done = subprocess.run(
                [os.path.join(self.options.build, "pipetrace"), "-p",
                 str(self.job.pid), "-d", str(self.options.duration), "--json",
                 self.stem + ".json"] + (
                     ["--raw-stream", self.stem + ".raw"]
                     if self.options.keep else []),
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE, timeout=self.options.duration + 30,
                check=False)
            if done.returncode:
                raise matrix.Broken("pipetrace ended with status %d: %s" % (
                    done.returncode, done.stderr.decode("utf-8", "replace")))
            with open(self.stem + ".json", encoding="utf-8") as f:
                report = json.load(f)
            window = (report["capture"]["begin_ns"],
                      report["capture"]["end_ns"])
        else:
            time.sleep(self.options.duration)
            window = (begin, time.monotonic_ns())
        self.foreign = ((matrix.all_ticks() - matrix.ticks(ours) - before)
                        / os.sysconf("SC_CLK_TCK")
                        / ((time.monotonic_ns() - begin) / 1e9))
        return report, window

    def go(self, trace):
        """(report or None, true mean step in ms)."""
        try:
            self.start()
            report, window = self.watch(trace)
        finally:
            matrix.end(self.job, 20)
            self.quota.stop()
            if self.storage:
                self.storage.stop()
        with open(self.stem + ".truth.jsonl", encoding="utf-8") as f:
            at = [r["wait_begin"] for r in map(json.loads, f) if "step" in r]
        at = [t for t in at if window[0] <= t < window[1]]
        if len(at) < 20:
            raise matrix.Broken("only %d steps" % len(at))
        return report, (at[-1] - at[0]) / 1e6 / (len(at) - 1)


def wanted(report, setup_):
    """(row or None, why not)."""
    what = report["whatif"]
    rows = [r for r in what["changes"] if r["change"] == setup_.change]
    if not rows:
        reasons = [x["reason"] for x in report["capture"]["limits"]
                   if x["what"] == "whatif"]
        return None, reasons[0] if reasons else "was not asked"
    if setup_.count:
        rows = [r for r in rows if r["value"] == setup_.count]
    elif setup_.change == "workers":
        told = [r for r in rows if r["speedup"]["value"] is not None
                and r["value"] <= MOST_WORKERS]
        if what["best_workers"] is not None:
            told = [r for r in told if r["value"] <= what["best_workers"]]
        told.sort(key=lambda r: r["value"])
        now = int(report["loader"]["workers"]["value"])
        if what["best_workers"] is None and \
                max([r["value"] for r in told] or [0]) <= now:
            return None, rows[-1]["note"]
        return told[-1], None
    if rows[0]["speedup"]["value"] is None:
        return None, rows[0]["note"]
    return rows[0], None


def one(options, setup_, seed, stem):
    """(word, text, error of the point or None, busy)."""
    first = Run(options, setup_, setup_.job, seed, stem + "-before")
    report, before = first.go(True)
    told = report["steps"]["period_ms"]["mean"]
    row, why = wanted(report, setup_)
    if row is None:
        return "skip", "cannot tell: %s" % why, None, first.foreign
    today = setup_.job.split()
    if setup_.change == "workers":
        today[today.index("--workers") + 1] = str(row["value"])
    extra = " ".join(today) if setup_.apply is None else setup_.apply
    second = Run(options, setup_, extra, seed, stem + "-after")
    _, after = second.go(False)
    s = row["speedup"]
    real = before / after
    inside = s["low"] <= real <= s["high"]
    narrow = s["high"] <= WIDEST * s["low"]
    text = ("%s%s: step %.1f ms (told %.1f) -> %.1f, told %.1f; predicted "
            "%.2f [%.2f %.2f], real %.2f, point off %+.1f %%" % (
                row["change"], " %d" % row["value"] if row["value"] else "",
                before, told, after, row["step_ms"], s["value"], s["low"],
                s["high"], real, 100 * (s["value"] / real - 1)))
    return ("ok" if inside and narrow else "FAIL", text,
            abs(s["value"] / real - 1), max(first.foreign, second.foreign))


def run_all(options, directory):
    totals = collections.Counter()
    errors, inside = [], 0
    for setup_ in options.chosen:
        for seed in range(options.first_seed,
                          options.first_seed + options.seeds):
            for again in (False, True):
                stem = os.path.join(directory, "%s-%d%s" % (
                    setup_.name, seed, "-again" if again else ""))
                error = None
                try:
                    word, text, error, busy = one(options, setup_, seed, stem)
                except slow_storage.Unavailable as e:
                    word, text, busy = "skip", str(e), 0
                except matrix.Broken as e:
                    word, text, busy = "FAIL", str(e), 0
                print("%-8s %3d %-4s %s  (others used %.2f cores)%s" % (
                    setup_.name, seed, word, text, busy,
                    "  (second run)" if again else ""), flush=True)
                if word != "FAIL" or busy <= FOREIGN_CORES:
                    break
                if not again:
                    print("         others used the cores: once more",
                          flush=True)
            totals[word] += 1
            if error is not None:
                errors.append(error)
                inside += word == "ok"
    if errors:
        print("%d predictions: median error of the point %.1f %%, worst %.1f "
              "%%; %d of %d in the range" % (
                  len(errors), 100 * statistics.median(errors),
                  100 * max(errors), inside, len(errors)))
    print("%d passed, %d failed, %d skipped" % (totals["ok"], totals["FAIL"],
                                                totals["skip"]))
    return 1 if totals["FAIL"] else 0


def parse():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    names = {s.name: s for s in SETUPS}
    p.add_argument("setups", nargs="*", metavar="NAME")
    p.add_argument("--list", action="store_true")
    p.add_argument("--seeds", type=int, default=1)
    p.add_argument("--first-seed", type=int, default=1)
    p.add_argument("-d", "--duration", type=int, default=8, metavar="SEC")
    p.add_argument("--settle", type=float, default=2.0, metavar="SEC")
    p.add_argument("--slow-storage", choices=("auto", "blkio", "fuse"),
                   default="auto")
    p.add_argument("--keep", metavar="DIR")
    p.add_argument("--build", default=os.path.join(ROOT, "build"))
    args = p.parse_args()
    for name in args.setups:
        if name not in names:
            p.error("no set-up called " + name)
    args.chosen = [names[n] for n in args.setups] or SETUPS
    args.data = os.path.join(args.build, "e2e/data")
    return args


def main():
    options = parse()
    if options.list:
        for s in options.chosen:
            print("%-8s %s -> %s" % (s.name, s.job, s.apply or s.change))
        return 0
    reason = matrix.missing(options)
    if reason:
        print("skip: whatif: " + reason)
        print("0 passed, 0 failed, %d skipped" % len(options.chosen))
        return 0
    if not os.path.isfile(os.path.join(CPU_GROUPS, "cpu.cfs_quota_us")) and \
            not os.path.isdir(CPU_GROUPS):
        for s in [s for s in options.chosen if s.quota]:
            print("skip: %s: no version 1 control group for CPU" % s.name)
        options.chosen = [s for s in options.chosen if not s.quota]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    if options.keep:
        os.makedirs(options.keep, exist_ok=True)
        return run_all(options, options.keep)
    with tempfile.TemporaryDirectory(prefix="pipetrace-whatif-") as directory:
        return run_all(options, directory)


if __name__ == "__main__":
    sys.exit(main())
