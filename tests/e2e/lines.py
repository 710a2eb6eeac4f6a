#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""Lines of Python in a trace, on a real DataLoader whose functions log what they took:
the line that the verdict names, shares and sleeps against that log, a replay that says the
same, and what is left behind. Forked and spawned workers. Then threads and processes that
compute all the time in functions that know their times (spinjob.py), which are sampled in the
kernel.

    lines.py [--seconds S] [--sample]
    lines.py --spin PYTHON [METHOD ...] [--seconds S]      one row a method, of any CPython
"""
import argparse
import ctypes
import errno
import json
import os
import platform
import re
import struct
import subprocess
import sys
import tempfile
import time

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
E2E = os.path.join(TOP, "tests/e2e")
PIPETRACE = os.path.join(TOP, "build/pipetrace")
CUDART = os.path.join(TOP, "build/sim/libcudart.so.12")
passed, failed = 0, 0


def say(good, what, more=""):
    global passed, failed
    passed, failed = passed + bool(good), failed + (not good)
    if not good:
        print("FAIL %s %s" % (what, more), flush=True)


def line_of(text):
    with open(os.path.join(E2E, "linesdata.py"), encoding="utf-8") as f:
        lines = f.read().splitlines()
    return [i + 1 for i, line in enumerate(lines) if text in line]


def traced_part(job, seconds, *more):
    """The job is traced; the share that it tells of itself then."""
    subprocess.run([PIPETRACE, "-p", str(job.pid), "-d", seconds, *more],
                   capture_output=True, timeout=60, check=True)
    job.stdin.write("\n")
    job.stdin.flush()
    return float(job.stdout.readline())


class Job:
    def __init__(self, method):
        self.p = subprocess.Popen(
            [sys.executable, os.path.join(E2E, "linesjob.py"), CUDART, "2", method],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            # the tracker of its semaphores outlives it, and would speak behind our summary
            env=dict(os.environ, PYTHONWARNINGS="ignore:resource_tracker"))
        if self.p.stdout.readline().strip() != "READY":
            raise RuntimeError("the job did not start")

    def sums(self):
        self.p.stdin.write("\n")
        self.p.stdin.flush()
        return json.loads(self.p.stdout.readline())

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.p.stdin.close()
        try:
            self.p.wait(10)
        except subprocess.TimeoutExpired:
            self.p.kill()
            self.p.wait()


def left_behind():
    """Processes that look at lines, of this program's; one that is just being ended has some
    seconds for that."""
    until = time.monotonic() + 5
    while lookers() and time.monotonic() < until:
        time.sleep(0.1)
    return lookers()


def lookers():
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open("/proc/%s/stat" % pid, encoding="utf-8") as f:
                text = f.read()
            with open("/proc/%s/cmdline" % pid, encoding="utf-8") as f:
                mine = PIPETRACE in f.read()
        except OSError:
            continue
        if "(pipetrace-lines)" in text and mine:
            found.append(pid)
    return found


def rows(report, **what):
    return [l for l in report["lines"] if all(l[k] == v for k, v in what.items())]


def at(sums, t):
    """What the functions had taken by then, between two notes of it."""
    after = next((i for i, s in enumerate(sums) if s[0] >= t), len(sums) - 1)
    a, b = sums[max(after - 1, 0)], sums[after]
    part = min(1, max(0, (t - a[0]) / (b[0] - a[0]))) if b[0] > a[0] else 1
    return [x + part * (y - x) for x, y in zip(a[1:], b[1:])]


def judge(report, sums, name):
    """Against what the functions counted meanwhile."""
    c = report["capture"]
    took = [b - a for a, b in zip(at(sums, c["begin_ns"] / 1e9), at(sums, c["end_ns"] / 1e9))]
    cpu = rows(report, who="worker", pid=None, cause="cpu")
    looks = cpu[0]["looks"] if cpu else 0
    truth = took[0] / (took[0] + took[1])
    say(cpu and cpu[0]["function"] == "RandomAugment.__call__" and
        cpu[0]["line"] in line_of("begin + 0.006") and
        cpu[0]["file"].endswith("tests/e2e/linesdata.py"), name + ": the first line", cpu[:2])
    got = sum(l["share"] for l in cpu if l["function"].startswith("RandomAugment"))
    rest = sum(l["share"] for l in cpu if l["function"].startswith("Decode"))
    if looks < 100:
        print("skip %s: shares of two functions: %d looks in a busy machine's time" % (name, looks))
    else:
        say(abs(got / (got + rest) - truth) < 0.15, name + ": shares of two functions",
            (got, rest, truth, looks))
    asleep = rows(report, who="worker", pid=None, cause="sleep")
    say(asleep and asleep[0]["function"] == "fetch" and
        asleep[0]["line"] in line_of("time.sleep(0.01)"), name + ": where it sleeps", asleep[:2])
    seconds = asleep[0]["seconds"] if asleep else 0
    say(0.9 * took[3] <= seconds <= 1.05 * took[2], name + ": seconds asleep", (seconds, took))
    say(asleep and asleep[0]["low_s"] <= asleep[0]["seconds"] <= asleep[0]["high_s"] + 1e-6,
        name + ": bounds", asleep[:1])
    loop = rows(report, who="trainer", data_wait=True, function="train")
    say(sum(l["seconds"] for l in loop) > 0.5 * report["data_wait"]["blocked"],
        name + ": the loop's line", loop)
    own = [w["lines"] for w in report["workers"] if w["lines"]]
    say(own and {l["function"] for w in own for l in w} >= {"RandomAugment.__call__", "fetch"},
        name + ": a worker's own lines", own)
    for w in report["workers"]:
        say(sum(l["share"] for l in w["lines"] or []) <= 1.01, name + ": of its time", w["lines"])


def judge_scope(scope, name):
    """By the format's own rules, and that a worker's stack is whole."""
    frames, stacks = scope["shared"]["frames"], []
    for p in scope["profiles"]:
        say(p["type"] == "sampled" and len(p["samples"]) == len(p["weights"]) and
            sum(p["weights"]) <= p["endValue"], name + ": a profile", p["name"])
        stacks += [[frames[i]["name"] for i in s] for s in p["samples"]]
    deep = [s for s in stacks if "RandomAugment.__call__" in s]
    say(len(scope["profiles"]) >= 3 and deep and
        all(s.index("Images.__getitem__") < s.index("RandomAugment.__call__") for s in deep) and
        any("_worker_loop" in s for s in deep), name + ": whole stacks", deep[:1])


def trace(job, seconds, tmp, *more):
    out = os.path.join(tmp, "report.json")
    p = subprocess.run([PIPETRACE, "-p", str(job.p.pid), "-d", str(seconds), "--json", out] +
                       list(more), capture_output=True, text=True, timeout=seconds + 60)
    if p.returncode:
        raise RuntimeError(p.stderr)
    with open(out, encoding="utf-8") as f:
        report = json.load(f)
    os.remove(out)
    return report


def judge_stacks(text, report, name):
    """Folded stacks have the seconds of the report's lines."""
    for function, cause, end in (("RandomAugment.__call__", "cpu", ""), ("fetch", "sleep", ";sleep")):
        got = whole = 0
        for line in text.splitlines():
            stack, us = line.rsplit(" ", 1)
            frames = stack[:len(stack) - len(end)].split(";")
            while len(frames) > 1 and ".so" in frames[-1]:  # what the function called
                frames.pop()
            if stack.endswith(end) and frames[-1].startswith(function + " ("):
                got += int(us) / 1e6
                # of a thread that runs meanwhile some frames may be missing
                whole += any(f.startswith("_worker_loop (") for f in frames) * int(us) / 1e6
        say(whole > 0.6 * got, "%s: callers of %s" % (name, function), (whole, got))
        want = sum(l["seconds"] for l in rows(report, who="worker", pid=None, cause=cause,
                                              function=function))
        say(want and abs(got - want) < 0.03 * want + 0.01, "%s: folded %s" % (name, function),
            (got, want))


def traced(method, seconds):
    with tempfile.TemporaryDirectory() as tmp, Job(method) as job:
        file = os.path.join(tmp, "x.ptr")
        report = trace(job, seconds, tmp, "-o", file)
        after = job.sums()
        judge(report, after["sums"], method)
        say(report["capture"]["hooks"].get("python") == "perf_event", method + ": the hook",
            report["capture"]["hook_notes"].get("python"))
        say(not left_behind(), method + ": left behind", left_behind())
        again = subprocess.run([PIPETRACE, "report", file, "--json", "-"],
                               capture_output=True, text=True, timeout=60)
        say(json.loads(again.stdout)["lines"] == report["lines"], method + ": a replay differs")
        scope = subprocess.run([PIPETRACE, "export", file, "--speedscope", "-"],
                               capture_output=True, text=True, timeout=60)
        judge_scope(json.loads(scope.stdout), method)
        folded = subprocess.run([PIPETRACE, "export", file, "--stacks", "-"],
                                capture_output=True, text=True, timeout=60)
        judge_stacks(folded.stdout, report, method)
        text = subprocess.run([PIPETRACE, "report", file], capture_output=True, text=True,
                              timeout=60).stdout
        say("linesdata.py:%d" % line_of("begin + 0.006")[0] in text, method + ": the text", text)
        if method == "fork":
            bare = trace(job, 1, tmp, "--no-python")
            say(bare["lines"] == [] and "python" not in bare["capture"]["hooks"],
                "--no-python", bare["lines"])
        say(job.sums()["steps"] > after["steps"], method + ": the job goes on")


FUNCTIONS = ("heavy", "middle", "light")
SIGMAS = 4  # and a hundredth: what begins and ends with the trace is not quite the same


def computing(folded):
    """Of folded stacks the us in which a thread ran, by its innermost function."""
    got = dict.fromkeys(FUNCTIONS, 0)
    rest = 0
    for line in folded.splitlines():
        stack, us = line.rsplit(" ", 1)
        last = stack.split(";")[-1]
        if not last.endswith(")"):
            continue  # a state in which it did not run
        frames = stack.split(";")
        while ".so" in frames[-1]:  # a library that the function called, and where there
            frames.pop()
        last = frames[-1]
        name = last.split(" ")[0].split(".")[-1]
        if name in got:
            got[name] += int(us)
        else:
            rest += int(us)
    return [got[f] for f in FUNCTIONS], rest


PERF_EVENT_OPEN = {"x86_64": 298, "aarch64": 241}
LD_NR, JEQ, RET = (0x20, 0, 0, 0), 0x15, 0x06


def without_perf():
    """From now on perf_event_open() is refused to this process, as a container's filter does."""
    code = [LD_NR, (JEQ, 0, 1, PERF_EVENT_OPEN[platform.machine()]),
            (RET, 0, 0, 0x00050000 | errno.EACCES), (RET, 0, 0, 0x7fff0000)]
    text = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *c) for c in code))
    filters = ctypes.create_string_buffer(struct.pack("HP", len(code), ctypes.addressof(text)))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(22, 2, ctypes.c_void_p(ctypes.addressof(filters)), 0, 0):  # PR_SET_SECCOMP
        raise OSError(ctypes.get_errno(), "no filter")


def spin(python, method, n, seconds, before=None):
    """Shares of three functions, by their own clock and by the samples; and how many these
    were."""
    job = subprocess.Popen([python, os.path.join(E2E, "spinjob.py"), method, str(n)],
                           stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def sums():
        job.stdin.write("\n")
        job.stdin.flush()
        return json.loads(job.stdout.readline())

    try:
        pid = int(job.stdout.readline().split()[1])
        with tempfile.TemporaryDirectory() as tmp:
            file, out = os.path.join(tmp, "x.ptr"), os.path.join(tmp, "report.json")
            p = subprocess.Popen([PIPETRACE, "-p", str(pid), "-d", str(seconds), "-o", file,
                                  "--json", out], stdout=subprocess.DEVNULL,
                                 stderr=subprocess.PIPE, text=True, preexec_fn=before)
            told = iter(p.stderr.readline, "")
            next((x for x in told if "attached to" in x), None)
            begin = sums()
            more = p.communicate(timeout=seconds + 60)[1]
            end = sums()
            if p.returncode:
                raise RuntimeError(more)
            with open(out, encoding="utf-8") as f:
                capture = json.load(f)["capture"]
            folded = subprocess.run([PIPETRACE, "export", file, "--stacks", "-"],
                                    capture_output=True, text=True, timeout=60, check=True).stdout
    finally:
        job.stdin.close()
        job.wait(20)
    took = [sum(b - a for a, b in zip(begin[k::3], end[k::3])) for k in range(3)]
    got, rest = computing(folded)
    note = capture["hook_notes"].get("python", "")
    said = re.match(r"(\d+) samples, ", note)
    return {"truth": [x / sum(took) for x in took], "got": [x / max(sum(got) + rest, 1) for x in got],
            "samples": int(said.group(1)) if said else 0, "hook": capture["hooks"].get("python"),
            "note": note, "cpu_s": sum(took)}


def off(r):
    """By how much a share is further from the truth than so many samples let it be, if it is."""
    n = max(r["samples"], 1)
    return [abs(g - t) > SIGMAS * (t * (1 - t) / n) ** 0.5 + 0.01 for g, t in zip(r["got"], r["truth"])]


def sampled(python, methods, n, seconds, table=False):
    for method in methods:
        r = spin(python, method, n, seconds)
        if table:
            print("%-8s %5d samples  %s  truth %s  at most %.1f points off; %s" % (
                method, r["samples"], " ".join("%5.1f" % (100 * x) for x in r["got"]),
                " ".join("%5.1f" % (100 * x) for x in r["truth"]),
                100 * max(abs(a - b) for a, b in zip(r["got"], r["truth"])), r["note"]))
        say(r["hook"] == "perf_event" and r["samples"] > 0, "spin %s: samples" % method, r)
        # 99 times a second on a core, give or take a tenth
        say(r["samples"] <= 115 * (r["cpu_s"] + n), "spin %s: too many samples" % method, r)
        say(not any(off(r)), "spin %s: shares of three functions" % method, r)
        say(not left_behind(), "spin %s: left behind" % method, left_behind())


def refused(seconds):
    """Without samples in the kernel the stacks are looked at from outside, which is said."""
    r = spin(sys.executable, "thread", 1, seconds, without_perf)
    say(r["hook"] == "process_vm_readv" and r["samples"] == 0, "refused: the hook", r)
    say("the kernel refuses samples: Permission denied" in r["note"], "refused: the note", r)
    say(sum(r["got"]) > 0.5, "refused: the three functions are told", r)
    say(not left_behind(), "refused: left behind", left_behind())


PACKER = """
import os, random, time, zlib
# what comes out fits in memory that malloc() keeps: no time goes to new pages, below libc
data = bytes(random.Random(1).choices(b"acgt", k=1 << 18))
def pack():
    for _ in range(3): zlib.compress(data, 6)
def count():
    sum(i * i for i in range(600000))
print("READY", flush=True)
while True: pack(); count()
"""


def native():
    """A line that calls a library is told with it; one that does not, without."""
    job = subprocess.Popen([sys.executable, "-c", PACKER], stdout=subprocess.PIPE, text=True)
    try:
        job.stdout.readline()
        with tempfile.TemporaryDirectory() as tmp:
            file = os.path.join(tmp, "x.ptr")
            subprocess.run([PIPETRACE, "-p", str(job.pid), "-d", "4", "-o", file],
                           capture_output=True, timeout=60, check=True)
            folded = subprocess.run([PIPETRACE, "export", file, "--stacks", "-"],
                                    capture_output=True, text=True, timeout=60, check=True).stdout
    finally:
        job.kill()
        job.wait()
        job.stdout.close()
    us = {"pack": [0, 0], "count": [0, 0]}
    for line in folded.splitlines():
        stack, n = line.rsplit(" ", 1)
        for name, sums in us.items():
            if ";%s (" % name in stack:
                sums[0] += int(n)
                sums[1] += int(n) if ";libz." in stack else 0
    say(us["pack"][0] > 0 and us["pack"][1] >= 0.8 * us["pack"][0], "native: libz below pack", us)
    say(us["count"][0] > 0 and us["count"][1] == 0, "native: no library below count", us)


BURN = """
#include <time.h>
static double took[2];
static double now() {
    timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}
namespace pack {
template <int N> __attribute__((noinline)) static unsigned squeeze(const unsigned char *p, long n) {
    unsigned s = N;
    for (long i = 0; i < n; i++) s = s * 31 + p[i & 1023] + (s >> 7);
    return s;
}
}
extern "C" __attribute__((noinline)) unsigned plain(const unsigned char *p, long n) {
    unsigned s = 7;
    for (long i = 0; i < n; i++) s = s * 33 ^ p[i & 1023];
    return s;
}
extern "C" unsigned work(const unsigned char *p, long n) {
    double a = now(), b;
    unsigned s = pack::squeeze<3>(p, 3 * n);
    b = now();
    s += plain(p, n);
    took[0] += b - a;
    took[1] += now() - b;
    return s;
}
extern "C" double part() { return took[0] / (took[0] + took[1]); }
"""
BURNER = """
import ctypes, sys, threading
sys.path.insert(0, sys.argv[1])
import job_gpu
gpu = job_gpu.Gpu(sys.argv[2], 200, 10, 4096)
lib = ctypes.CDLL(sys.argv[3])
lib.part.restype = ctypes.c_double
data = bytes(1024)
def answer():
    for _ in sys.stdin: print(lib.part(), flush=True)
def unpack():
    lib.work(data, 200000)
threading.Thread(target=answer, daemon=True).start()
for i in range(1 << 30):
    unpack()
    gpu.check(gpu.lib.cudaLaunchKernel(gpu.kernels[0][i % 8], gpu.grid, gpu.block, gpu.args, 0,
                                       gpu.stream))
    gpu.check(gpu.lib.cudaStreamSynchronize(gpu.stream))
    if i == 5: print("READY", flush=True)
"""


def burn(tmp, *how):
    """A job in a library of its own; by its path, so much of that in one of two functions; what
    a trace of it says, as report, text and folded stacks, and what a replay does."""
    lib = os.path.join(tmp, "libburn.so")
    subprocess.run(["g++", "-O1", "-shared", "-fPIC", "-x", "c++", "-o", lib, *how, "-"],
                   input=BURN, text=True, check=True)
    with subprocess.Popen([sys.executable, "-c", BURNER, E2E, CUDART, lib], text=True,
                          stdin=subprocess.PIPE, stdout=subprocess.PIPE) as job:
        try:
            if job.stdout.readline().strip() != "READY":
                raise RuntimeError("the job did not start")
            # another file comes to its name: what is mapped stays what it is
            subprocess.run(["g++", "-O1", "-shared", "-fPIC", "-x", "c++", "-o", lib + ".new", "-"],
                           input="extern \"C\" int other() { static char v[1 << 16]; return v[9]; }" +
                           "".join("extern \"C\" int f%d(int x) { return x * %d; }" % (i, i)
                                   for i in range(200)), text=True, check=True)
            os.rename(lib + ".new", lib)
            file, out = os.path.join(tmp, "x.ptr"), os.path.join(tmp, "x.json")
            part = traced_part(job, "4", "-o", file, "--json", out)
        finally:
            job.kill()
            job.wait()
    says = [subprocess.run([PIPETRACE] + more, capture_output=True, text=True, timeout=60,
                           check=True).stdout
            for more in (["report", file, "--json", "-"], ["report", file],
                         ["export", file, "--stacks", "-"], ["export", file, "--speedscope", "-"])]
    with open(out, encoding="utf-8") as f:
        live = json.load(f)
    say(json.loads(says[0])["lines"] == live["lines"], "functions: a replay differs")
    at = [l for l in live["lines"] if l["function"] == "unpack" and l["cause"] == "cpu"]
    row = max(at, key=lambda l: l["seconds"], default=None)
    return row, part, says


def functions():
    """In a library that has its symbols the function is told, as its source names it; in one
    that has not, only what it exports, and nothing else under another's name. The file that is
    at the library's path is not the one that is mapped."""
    with tempfile.TemporaryDirectory() as tmp:
        row, part, (_, text, folded, scope) = burn(tmp)
        say(row and row["native"] == "libburn.so" and
            row["native_symbol"] == "pack::squeeze<>", "functions: the one with most", row)
        if row and row["native_symbol"]:
            got = row["native_symbol_share"] / row["native_share"]
            say(abs(got - part) < 0.12, "functions: its part", (got, part, row))
        say(" in its pack::squeeze<>" in text or "libburn.so pack::squeeze<>" in text,
            "functions: the text", text)
        for name in ("pack::squeeze<>", "plain"):
            say(any(";unpack (" in l and ";libburn.so (%s);%s (" % (tmp + "/libburn.so", name) in l
                    for l in folded.splitlines()), "functions: folded " + name, folded)
            say(name in [f["name"] for f in json.loads(scope)["shared"]["frames"]],
                "functions: speedscope " + name)
        row, part, (_, _, folded, _) = burn(tmp, "-s")
        say(row and row["native"] == "libburn.so" and row["native_symbol"] == "plain" and
            abs(row["native_symbol_share"] / row["native_share"] - (1 - part)) < 0.12,
            "functions: stripped", (row, part))
        told = {f.split(" (")[0] for l in folded.splitlines() if ";unpack (" in l
                for f in l.rsplit(" ", 1)[0].split(";") if "libburn.so)" in f}
        say(told <= {"libburn.so", "plain", "work", "part"}, "functions: no other's name", told)


HOLDERS = """
import ctypes, queue, sys, threading, time
sys.path.insert(0, sys.argv[1])
import job_gpu
gpu = job_gpu.Gpu(sys.argv[2], 200, 10, 4096)
held, free = ctypes.PyDLL(sys.argv[3]), ctypes.CDLL(sys.argv[3])
data, ready, took = bytes(1024), queue.Queue(maxsize=4), [0.0, 0.0]
def heavy():
    begin = time.thread_time()
    held.work(data, 700000)
    took[0] += time.thread_time() - begin
def light():
    begin = time.thread_time()
    for i in range(20000): begin + i
    took[1] += time.thread_time() - begin
def produce():
    while True:
        for _ in range(5): heavy(); light()
        ready.put(1)
def let_go():
    while True: free.work(data, 3000000)
def answer():
    for _ in sys.stdin: print(took[0] / sum(took), flush=True)
def own():
    for i in range(20000): i + i
for f in (produce, produce, let_go, answer):
    threading.Thread(target=f, daemon=True).start()
for i in range(1 << 30):
    ready.get()
    own()
    gpu.check(gpu.lib.cudaLaunchKernel(gpu.kernels[0][i % 8], gpu.grid, gpu.block, gpu.args, 0,
                                       gpu.stream))
    gpu.check(gpu.lib.cudaStreamSynchronize(gpu.stream))
    if i == 3: print("READY", flush=True)
"""


def holders(python=sys.executable):
    """Who holds the interpreter's lock, also inside of a library; and not who computes there
    without it."""
    with tempfile.TemporaryDirectory() as tmp:
        lib, file = os.path.join(tmp, "libburn.so"), os.path.join(tmp, "x.ptr")
        subprocess.run(["g++", "-O1", "-shared", "-fPIC", "-x", "c++", "-o", lib, "-"],
                       input=BURN, text=True, check=True)
        job = subprocess.Popen([python, "-c", HOLDERS, E2E, CUDART, lib], text=True,
                               stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        try:
            job.stdout.readline()
            part = traced_part(job, "6", "-o", file)
        finally:
            job.kill()
            job.wait()
        text, report = (subprocess.run([PIPETRACE, "report", file] + more, capture_output=True,
                                       text=True, timeout=60, check=True).stdout
                        for more in ([], ["--json", "-"]))
    locks = [v for v in json.loads(report)["verdicts"] if v["id"] == "lock_bound"]
    if not locks:  # whether the lock is what costs most is not asked here
        print("skip holders: the lock is not what costs most")
        return
    got = {e["metric"]: e["value"] for e in locks[0]["evidence"]}.get("lock.holder_share")
    say(got and abs(got - part) < 0.2, "holders: the share", (got, part, locks))
    place = "heavy (<string>:%d)" % (HOLDERS.split("\n").index("    held.work(data, 700000)") + 1)
    say("Python's lock is in " + place in locks[0]["title"], "holders: the line", locks[0])
    say("holds Python's lock" in " ".join(text.split()), "holders: the text", text)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--spin", nargs="+", metavar=("PYTHON", "METHOD"))
    ap.add_argument("--seconds", type=int, default=6)
    ap.add_argument("--sample", action="store_true", help="forked workers alone")
    args = ap.parse_args()
    begin = time.monotonic()
    if args.spin:
        sampled(args.spin[0], args.spin[1:] or ("thread", "fork", "spawn"), 1, args.seconds, True)
        return 1 if failed else 0
    sampled(sys.executable, ("thread",) if args.sample else ("thread", "fork", "spawn"), 2,
            args.seconds)
    refused(3)
    native()
    functions()
    holders()
    for method in ("fork",) if args.sample else ("fork", "spawn"):
        traced(method, args.seconds)
    print("%.0f s" % (time.monotonic() - begin))
    print("%d passed, %d failed, 0 skipped" % (passed, failed))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
