# SPDX-License-Identifier: BSD-2-Clause
"""What tests/bench/run measures, a function each: rows of figures (measure.row)."""
import bisect
import json
import os
import random
import re
import select
import statistics
import subprocess
import sys
import time

import library
import measure
import peers
from measure import BUILD, PIPETRACE, PYTHON, TOP, NotRun, interval, not_run, ratio, row

sys.path.insert(0, os.path.join(TOP, "tests"))
from kept import unpack  # noqa: E402

RATE = "of the untraced rate"
MODES = (("standard", []), ("light", ["--mode", "light"]))
LOOPS = (("call cuGraphLaunch", "launches"), ("read", "reads of 4 KiB, cached"),
         ("pipe", "pipe ping-pong"), ("getppid", "getppid"), ("direct", "direct reads of 4 KiB"))
LOOP = dict(LOOPS)
SETTLE_S = 3 # until another tracer is attached


def bracketed(work, loops, tracer):
    """{loop: (ns before, traced, after)}, or NotRun"""
    before = {w: work.ns(w) for w in loops}
    with tracer:
        traced = {w: work.ns(w) for w in loops}
    time.sleep(0.1)
    return {w: (before[w], traced[w], work.ns(w)) for w in loops}


def figure(what, loop, got, all_of_it, **more):
    """What is left of a rate; of launches, which do nothing here, what each takes more."""
    if loop.startswith("call"):
        return row(what, "ns a launch more", interval([t - (a + z) / 2 for a, t, z in got]),
                   interval([z - a for a, _, z in all_of_it]), len(got), **more)
    return row(what, RATE, ratio([(a + z) / 2 / t for a, t, z in got]),
               ratio([a / z for a, _, z in all_of_it]), len(got), **more)


def turns(b, work, loops, tracers, pairs=None):
    """Each tracer in turns, between stretches without. rows"""
    got = {name: {w: [] for w in loops} for name, _, _ in tracers}
    why, out = {}, []
    for turn in range(pairs or b.pairs):
        for name, of, make in tracers[::-1] if turn % 2 else tracers:
            if name in why:
                continue
            try:
                for w, triple in bracketed(work, [w for w in loops if w in of], make()).items():
                    got[name][w].append(triple)
            except NotRun as e:
                why[name] = str(e)
    for w in loops:
        all_of_it = [triple for n in got for triple in got[n][w]]
        for name, of, make in tracers:
            command, what = getattr(make, "command", None), "%s: %s" % (LOOP[w], name)
            if w not in of:
                continue
            if name in why or not got[name][w]:
                out.append(not_run(what, why.get(name, "no turn was left"), command))
            else:
                out.append(figure(what, w, got[name][w], all_of_it, command=command))
    return out


def pipetraces(pid, loops, record=True):
    out = [("pipetrace, " + name, loops, lambda o=options: measure.pipetrace(pid, *o))
           for name, options in MODES]
    if record:
        out.append(("pipetrace record", loops,
                    lambda: measure.pipetrace(pid, command=["record"])))
    return out


def over(what, dear, cheap, bar):
    """A row of how many times as much; without pairs in which noise was more than a cost."""
    got = [d / c for d, c in zip(dear, cheap) if d > 0 and c > 0]
    if not got:
        return not_run(what, "the machine was too noisy")
    return row(what, "times", ratio(got), None, len(got), bar)


# ---- the parts ----------------------------------------------------------------------

def launch(b):
    """ns that a launch costs more, over those of an empty program at the cheapest place."""
    rows, base = [], {}
    with b.work() as work:
        cost = {name: {k: [] for k in ("place", "entry", "standard", "light")}
                for name in library.BEGINS}
        skip, noise = {}, {name: [] for name in library.BEGINS}
        for _ in range(b.pairs):
            for name in library.BEGINS:
                base[name] = work.ns("call " + name)
                for at in ("place", "0"):
                    behind = int(work.ask("probe %s %s" % (name, at))[0])
                    skip[name] = behind or skip.get(name, 0)
                    with_it = work.ns("call " + name)
                    work.ask("free 0")
                    none = work.ns("call " + name)
                    cost[name]["entry" if at == "0" else at].append(
                        with_it - (base[name] + none) / 2)
                    noise[name].append(none - base[name])
                    base[name] = none
            for mode, options in MODES:
                with measure.pipetrace(work.pid, *options):
                    for name in library.BEGINS:
                        cost[name][mode].append(work.ns("call " + name) - base[name])
    for name, (begin, _) in library.BEGINS.items():
        c = cost[name]
        rows.append(row("%s: empty program, %s" % (
            begin, "%d bytes behind the entry" % skip[name] if skip[name] else "at the entry"),
            "ns a launch", interval(c["place"]), interval(noise[name]), b.pairs))
        if skip[name]:
            rows.append(row(begin + ": empty program at the entry", "ns a launch",
                            interval(c["entry"]), interval(noise[name]), b.pairs))
            rows.append(over(begin + ": the entry over the cheapest place", c["entry"],
                             c["place"], ">= 5"))
        for mode, _ in MODES:
            rows.append(row("%s: pipetrace, %s" % (begin, mode), "ns a launch",
                            interval(c[mode]), interval(noise[name]), b.pairs))
        bar = "<= 1.30" if "libcuda" in begin else "<= 1.25"
        rows.append(over(begin + ": pipetrace, standard, over an empty program", c["standard"],
                         c["place"], bar))
        rows.append(over(begin + ": pipetrace, light, over an empty program", c["light"],
                         c["place"], "<= 1.10"))
    return rows


def work(b):
    """What a traced job's own work becomes."""
    loops = [name for name, _ in LOOPS if name != "getppid"]
    with b.work() as w:
        return turns(b, w, loops, pipetraces(w.pid, loops))


def others(b):
    """The same, by other tracers of Debian's that are asked for the same or less."""
    with b.work() as w:
        return turns(b, w, [name for name, _ in LOOPS], [peer(b, p, w.pid) for p in peers.PEERS],
                     1 if b.quick else max(2, b.pairs // 2))


def peer(b, p, pid):
    out = os.path.join(b.tmp, "peer")

    def make():
        return measure.peer(peers.command(p, pid, b.library, out), SETTLE_S, p.seen,
                            out if p.output else None)
    make.command = peers.shown(p)
    of = ["call cuGraphLaunch" if w == "call" else w for w in p.works]
    return p.name, of, make


def neighbour(b):
    """What a process pays that is not traced, while another one is."""
    loops = ["getppid", "read", "pipe"]
    with b.work() as w, b.work() as target:
        rows = turns(b, w, loops, pipetraces(target.pid, loops, record=False))
    for r in rows:
        if "light" in r["what"] and "value" in r:
            r["bar"] = ">= 0.99"
            r["met"] = measure.met(r["bar"], (r["value"], r["low"], r["high"]))
    return rows


TORCH = [PYTHON, os.path.join(TOP, "tests/e2e/torch_job.py")]
# A decode takes 0.16 ms where the tables were measured. So many, not so much CPU time: in
# that, what hooks take in the thread would count as work.
JOBS = {
    "input-bound DataLoader": TORCH + ["--workers", "1", "--decodes-per-item", "19"],
    "DataLoader that fills both cores": TORCH + ["--workers", "3", "--decodes-per-item", "25"],
    "balanced DataLoader": TORCH + ["--workers", "2", "--kernel-us", "400"],
    "200 launches a step, simulated": [
        os.path.join(BUILD, "sim/simjob"), "--random-jitter", "0", "--workers", "0", "--items",
        "1", "--item-cpu-us", "1000", "--launches", "200", "--kernel-us", "1"],
}
JOB_BARS = {"standard": "<= 0.7", "light": "<= 0.2"}


class Job:
    """One that logs its steps."""

    def __init__(self, argv, tmp):
        self.log = os.path.join(tmp, "truth")
        self.p = subprocess.Popen(argv + ["--seconds", "0", "--truth", self.log],
                                  stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                  stderr=subprocess.DEVNULL, text=True)
        if argv[:2] == TORCH:
            ready, _, _ = select.select([self.p.stdout], [], [], 60)
            m = re.match(r"READY (\d+)", self.p.stdout.readline() if ready else "")
            if not m:
                self.end()
                raise NotRun("the DataLoader job did not start: is python3-torch installed?")
        self.pid = self.p.pid
        time.sleep(2)

    def end(self):
        """Of its steps, ns."""
        self.p.terminate()
        try:
            self.p.wait(30)
        except subprocess.TimeoutExpired:
            self.p.kill()
            self.p.wait()
        self.p.stdout.close()
        ends = []
        if os.path.exists(self.log):
            with open(self.log, encoding="utf-8") as f:
                for line in f:
                    try:
                        ends.append(json.loads(line)["compute_end"])
                    except (ValueError, KeyError):  # cut by its end, or no step
                        continue
        return ends


def steps_a_second(ends, stretch):
    """Whole steps and parts of one."""
    def at(ts):
        i = bisect.bisect_right(ends, ts)
        if not 0 < i < len(ends):
            raise NotRun("the job's log does not cover a stretch")
        return i + (ts - ends[i - 1]) / (ends[i] - ends[i - 1])
    begin, end = stretch
    return (at(end) - at(begin)) / (end - begin) * 1e9


def alone(seconds):
    begin = time.monotonic_ns()
    time.sleep(seconds)
    return begin, time.monotonic_ns()


def watched(b, argv, modes):
    """(% of a job's steps lost, what the reports told, noise in %): by mode, one each turn."""
    j = Job(argv, b.tmp)
    seen, told = [], {mode: [] for mode, _ in modes}
    try:
        for turn in range(b.job_pairs):
            for mode, options in modes[::-1] if turn % 2 else modes:
                before = alone(b.job_s)
                with measure.pipetrace(j.pid, *options) as p:
                    time.sleep(b.job_s)
                cap = p.report["capture"]
                told[mode].append(cap["target_overhead"])
                time.sleep(0.3)  # what detaching leaves
                seen.append((mode, before, (cap["begin_ns"], cap["end_ns"]), alone(b.job_s)))
                time.sleep(0.1)
    finally:
        time.sleep(1.5)  # its log is written in blocks
        ends = j.end()
    rates = [(mode, [steps_a_second(ends, s) for s in three]) for mode, *three in seen]
    lost = {mode: [100 * (1 - 2 * t / (a + c)) for m, (a, t, c) in rates if m == mode]
            for mode, _ in modes}
    return lost, told, [100 * (1 - c / a) for _, (a, _, c) in rates]


def middle(told):
    """(value, low, high) in %, the medians of some reports'; Nones where one tells nothing."""
    return [100 * statistics.median(t[k] for t in told) if all(
        t[k] is not None for t in told) else None for k in ("value", "low", "high")]


def job(b):
    """What a training job loses, by its own log; and what its reports told of that."""
    rows, jobs = [], list(JOBS.items())
    for name, argv in jobs[:1] if b.quick else jobs:
        losses, told, noise = watched(b, argv, MODES)
        noise = interval(noise)
        for mode, _ in MODES:
            lost = losses[mode]
            rows.append(row("%s: steps lost, %s" % (name, mode), "%", interval(lost), noise,
                            len(lost)))
            what = "%s: told, %s" % (name, mode)
            mid = middle(told[mode])
            rows.append(row(what, "%", mid, None, len(lost),
                            JOB_BARS[mode] if argv[:2] == TORCH else None,
                            note="between the bounds of the report") if mid[0] is not None else
                        not_run(what, "the reports tell none"))
    return rows


TOLD_SEED, TOLD_JOBS = 1, 40


def drawn(r, kind):
    """(its name, a job of that kind)"""
    if kind == 0:
        return "input-bound", TORCH + ["--workers", str(r.choice((1, 2))), "--decodes-per-item",
                                       str(r.randint(12, 38))]
    if kind == 1:
        return "fills the cores", TORCH + ["--workers", str(r.choice((3, 4))),
                                           "--decodes-per-item", str(r.randint(19, 38))]
    if kind == 2:
        return "balanced", TORCH + ["--workers", "2", "--kernel-us", str(r.randint(200, 800)),
                                    "--launches", str(r.randint(20, 80))]
    return "launches", [os.path.join(BUILD, "sim/simjob"), "--random-jitter", "0", "--workers",
                        "0", "--items", "1", "--item-cpu-us", str(r.randint(300, 3000)),
                        "--launches", str(r.randint(50, 400)), "--kernel-us",
                        str(r.choice((1, 5, 20)))]


def told(b):
    """Does what reports tell of their cost hold what jobs lost? Jobs drawn from a seed."""
    rows, r, verdicts = [], random.Random(TOLD_SEED), []
    for i in range(4 if b.quick else TOLD_JOBS):
        mode = MODES[i // 4 % 2]
        name, argv = drawn(r, i % 4)
        try:
            losses, reports, _ = watched(b, argv, [mode])
        except NotRun as e:
            rows.append(not_run("job %d, %s" % (i + 1, name), str(e)))
            continue
        lost, (value, low, high) = interval(losses[mode[0]]), middle(reports[mode[0]])
        if value is None:
            rows.append(not_run("job %d, %s" % (i + 1, name), "the reports tell none"))
            continue
        verdicts.append((low <= lost[0] <= high, low <= lost[2] and lost[1] <= high,
                         low > lost[2], high < lost[1]))
        rows.append(row("job %d, %s, %s: steps lost" % (i + 1, name, mode[0]), "%", lost, None,
                        len(losses[mode[0]]), note="told %.2f (%.2f to %.2f) %%" % (
                            value, low, high)))
    if not verdicts:
        return rows
    n = len(verdicts)
    for k, (what, bar) in enumerate((("the bounds hold the mean that was measured", None),
                                     ("bounds and the interval that was measured meet", ">= 95"),
                                     ("all of it was less than told", None),
                                     ("all of it was more than told", None))):
        rows.append(row("of the jobs: " + what, "%",
                        (100 * sum(v[k] for v in verdicts) / n, None, None), None, n, bar))
    return rows


# As user/agent/sampling.c starts it.
AGENT = ["--print-steps", "4096", "--max-size", "67108864"]
SIMJOB = [os.path.join(BUILD, "sim/simjob"), "--seconds", "0"]
CASES = (("sleeping process", ["sleep", "100000"], []),
         ("sleeping process, light", ["sleep", "100000"], ["--mode", "light"]),
         ("simulated GPU job", SIMJOB, []), ("simulated GPU job, light", SIMJOB,
                                             ["--mode", "light"]),
         ("simulated GPU job, by the agent", SIMJOB, AGENT))


# A process begins with the resident memory of who starts it, and its highest counts: so a
# small one does that.
SPENT = """
import os, sys
null = os.open(os.devnull, os.O_RDWR)
child = os.posix_spawn(sys.argv[1], sys.argv[1:], os.environ,
                       file_actions=[(os.POSIX_SPAWN_DUP2, null, n) for n in range(3)])
_, status, u = os.wait4(child, 0)
print(status, u.ru_utime + u.ru_stime, u.ru_stime, u.ru_maxrss)
"""


def spent(argv):
    """ms of CPU, of it the kernel's, MiB resident at most, of it and its children"""
    done = subprocess.run([sys.executable, "-I", "-S", "-c", SPENT, *argv],
                          stdout=subprocess.PIPE, text=True, check=True)
    status, cpu, kernel, kib = map(float, done.stdout.split())
    if status:
        raise NotRun("%s failed" % os.path.basename(argv[0]))
    return 1e3 * cpu, 1e3 * kernel, kib / 1024


def start(b):
    """What a trace of a second takes that sees nothing, whatever its length."""
    rows, report = [], os.path.join(b.tmp, "report.json")
    programs = ([("--against", b.against)] if b.against else []) + [("", PIPETRACE)]
    for title, target, options in CASES[:2] if b.quick else CASES:
        t = subprocess.Popen(target, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                             stderr=subprocess.DEVNULL)
        got = {which: [] for which, _ in programs}
        floor = []
        time.sleep(1 if target[0] == "sleep" else 2)
        try:
            for turn in range(b.starts):
                for which, program in programs[::-1] if turn % 2 else programs:
                    begin = time.monotonic_ns()
                    cpu = spent([program, "-p", str(t.pid), "-d", "1", "--json", report,
                                 *options])
                    end = time.monotonic_ns()
                    with open(report, encoding="utf-8") as f:
                        cap = json.load(f)["capture"]
                    got[which].append((*cpu, (cap["begin_ns"] - begin) / 1e6,
                                       (end - cap["end_ns"]) / 1e6))
                floor.append(spent([PIPETRACE, "--version"])[0])
        finally:
            t.kill()
            t.wait()
        bars = ("<= 120", None, "<= 24", None, None) if options == [] and target[0] == "sleep" \
            else (None,) * 5
        for which, _ in programs:
            for i, (what, unit) in enumerate((("CPU", "ms"), ("of it the kernel's", "ms"),
                                              ("resident", "MiB"), ("start to capture", "ms"),
                                              ("capture to end", "ms"))):
                rows.append(row("%s: %s%s" % (title, what, which and " of " + which), unit,
                                interval([r[i] for r in got[which]]),
                                interval(floor) if i == 0 else None, b.starts, bars[i]))
    return rows


def attach(b):
    """How long it takes to be there, to answer and to be gone; a crowd, and a real loader."""
    rows = []

    def measure_it(title, pid, bars):
        got = []
        for _ in range(b.starts if b.quick else max(5, b.starts // 2)):
            begin = time.monotonic_ns()
            with measure.pipetrace(pid) as p:
                time.sleep(1)
            got.append(((p.report["capture"]["begin_ns"] - begin) / 1e6,
                        (time.monotonic_ns() - p.stopped_ns) / 1e6))
        for i, what in enumerate(("start to the first record", "Ctrl-C to the end")):
            rows.append(row("%s: %s" % (title, what), "ms", interval([g[i] for g in got]), None,
                            len(got), bars[i]))

    with b.work() as w:
        w.ask("crowd 63 31")
        time.sleep(0.5)
        measure_it("64 processes, 1,954 threads, %d entry points" % b.points, w.pid,
                   ("<= 400", "<= 200"))
    try:
        j = Job(JOBS["balanced DataLoader"], b.tmp)
    except NotRun as e:
        return rows + [not_run("DataLoader with two workers", str(e))]
    try:
        measure_it("DataLoader with two workers", j.pid, (None, None))
    finally:
        j.end()
    return rows


def switches(b):
    """What the tracer takes where a crowd of processes switches all the time."""
    rows, n = [], 64 if b.quick else 512
    for mode, options in MODES:
        with b.work() as w:
            w.ask("naps %d 4500" % (n - 1))
            time.sleep(1)
            with measure.pipetrace(w.pid, *options) as p:
                before, begin = switched(), time.monotonic()
                time.sleep(3 if b.quick else 10)
                rate = (switched() - before) / (time.monotonic() - begin)
            cap = p.report["capture"]
            rows.append(row("%d processes, %s: of a core" % (n, mode), "%", (
                100 * cap["tracer_cpu_s"] / cap["duration"], None, None), None, 1,
                None if b.quick else "<= 10",
                note="{:,.0f} switches/s of the machine; {:,} records, {:,} lost".format(
                    rate, cap["events"], cap["lost"]["total"])))
    return rows


def switched():
    with open("/proc/stat", encoding="utf-8") as f:
        return next(int(line.split()[1]) for line in f if line.startswith("ctxt "))


def replay(b, export=False):
    """How fast records become a diagnosis: each golden recording repeated, on one core."""
    rows, program = [], os.path.join(BUILD, "tests/bench/replay")
    folder = os.path.join(TOP, "tests/golden")
    names = sorted(n for n in os.listdir(folder) if n.endswith(".raw.xz"))
    for name in names[::5] if b.quick else names:
        path = unpack(os.path.join(folder, name), os.path.join(b.tmp, "stream.raw"))
        got = []
        for _ in range(1 if b.quick else 3):
            done = subprocess.run([program] + ["-e"] * export + [
                "-n", "300000" if b.quick else "500000", path], stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE, text=True, check=True)
            got.append([float(v) for v in done.stdout.splitlines()[1].split("\t")[1:11]])
        rate = interval([g[2 if export else 6] for g in got])
        rows.append(row(name.split(".")[0], "million events/s" if export else
                        "million records/s", rate, None, len(got),
                        ">= 1" if export else ">= 5"))
    return rows


def export(b):
    """How fast a timeline is written, in Perfetto's format: each golden recording repeated."""
    return replay(b, export=True)


def sustained(b):
    """Launches at a rate, default buffers, somebody who reads: what is lost."""
    rows = []
    for mode, options in MODES:
        for rate in (0, 400000, 200000, 100000):
            with b.work() as w:
                with measure.pipetrace(w.pid, *options) as p:
                    ns, n = w.ask("call cuGraphLaunch %d %d" % (b.sustained_s * 1000, rate),
                                  b.sustained_s + 30)
            lost = p.report["capture"]["lost"]["total"]
            told = sum(o["calls"] for o in p.report.get("operations") or []
                       if o["name"] == "cuGraphLaunch")
            n, at = int(n) + 1, 1e9 / float(ns)
            rows.append(row("%s, %s" % (mode, "as fast as it can" if not rate else
                                        "{:,} a second asked for".format(rate)),
                            "launches/s", (at, None, None), None, 1,
                            ">= 700,000" if not rate else None,
                            note="%d s; records lost %.1f %%; calls told %s" % (
                                b.sustained_s, 100 * lost / max(1, n),
                                "exactly" if told == n else "%d of %d" % (told, n))))
            if not rate:
                rows[-1]["met"] = "no" if lost or at < 700000 else "yes"
            if not lost:
                break
    return rows


HOUR = ["--workers", "2", "--items", "8", "--item-cpu-us", "10", "--item-sleep-us", "300",
        "--launches", "200", "--kernel-us", "22"]  # some 50,000 records a second


def hour(b):
    """An hour at 50,000 records a second: what the tracer takes, and whether that grows."""
    rows, seconds = [], 60 if b.quick else 3600
    for name, command in (("record", ("record",)), ("live", ())):
        with subprocess.Popen(SIMJOB + HOUR, stdin=subprocess.DEVNULL,
                              stdout=subprocess.DEVNULL) as job:
            try:
                time.sleep(1)
                with measure.pipetrace(job.pid, command=command) as p:
                    first, last, resident, end = None, None, [], time.monotonic() + seconds
                    while time.monotonic() < end:
                        time.sleep(5)
                        last = taken(p.pid)
                        first = first or last
                        resident.append(last[2])
                    cpu = 100 * (last[1] - first[1]) / (last[0] - first[0])
                events = p.report and p.report["capture"]["events"] / seconds
            finally:
                job.kill()
        rows.append(row(name + ": of a core", "%", (cpu, None, None), None, 1, "<= 2",
                        note="%d s%s" % (seconds, "; {:,.0f} records/s, {:,} lost".format(
                            events, p.report["capture"]["lost"]["total"]) if events else "")))
        rows.append(row(name + ": resident, at most", "MiB", (max(resident), None, None), None,
                        len(resident), "<= 64", note="at the begin %.0f" % resident[0]))
    return rows


def taken(pid):
    """(now, seconds of CPU, MiB resident) of a process."""
    with open("/proc/%d/stat" % pid, encoding="utf-8", errors="replace") as f:
        fields = f.read().rsplit(")", 1)[1].split()
    return (time.monotonic(), (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK"),
            int(fields[21]) * os.sysconf("SC_PAGESIZE") / 1048576)


def gpu(b):
    """On a machine with an NVIDIA GPU and PyTorch: step rates of the loops of tests/gpu."""
    out = os.path.join(b.tmp, "gpu.json")
    done = subprocess.run([os.path.join(TOP, "tests/gpu/run"), "--json", out, "--repeat",
                           str(max(2, b.job_pairs // 2))], stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if not os.path.exists(out):
        raise NotRun(measure.last_line(done.stdout))
    with open(out, encoding="utf-8") as f:
        loops = json.load(f)["loops"]
    rows = []
    for r in loops:
        for key, how in (("traced", "standard"), ("traced_cupti", "--cupti")):
            got, what = r.get(key), "%s: steps, %s" % (r["loop"], how)
            rows.append(row(what, RATE, (got["median"], got["low"], got["high"]),
                            note="median, lowest to highest") if got else
                        not_run(what, r.get("skipped") or "no rate came of it"))
    return rows


# hour takes two of them, and runs when it is asked for
ALL = (launch, work, others, neighbour, job, told, start, attach, sustained, switches, replay,
       export, gpu, hour)
USUAL = ALL[:-1]
