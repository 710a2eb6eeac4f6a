#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""The agent is loaded into processes that are hard to load anything into, and
taken out again: they must not notice.

Each target checks its own work and counts it (hazards.c). One table: what the
target is, what became of it, what the user is told. Truth is the target's: its
checks, its counters, its exit status, and /proc for what is left in it.

    inject.py [NAME...] [--sample] [--cycles N] [--kills N] [--json FILE]

--sample: a few short ones (part of `make test`). --cycles: N cycles of loading
and taking out, two in five of them in malloc storms; each target is watched for
10 s afterwards. Needs root and a build. Ends with
"N passed, N failed, N skipped".
"""

import argparse
import hashlib
import json
import mmap
import os
import random
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
INJECTOR = os.path.join(TOP, "build/tests/e2e/injector")
HAZARDS = os.path.join(TOP, "build/tests/e2e/hazards")
AGENT = os.path.join(TOP, "build/tests/inject/agent.so")
STAYS = os.path.join(TOP, "build/tests/inject/agent_stays.so")
REAL = os.path.join(TOP, "build/libpipetrace_agent.so")
CUDA = os.path.join(TOP, "build/sim/cuda/libcudart.so.12")  # with a CUPTI beside it
CUDART = os.path.join(TOP, "build/sim/libcudart.so.12")
PYTHON = "/usr/bin/python3"
LATE_NS = 60000000  # a timed wait more than that beyond an untouched one's

results = []


class Target:
    """A process of hazards.c, and its words."""

    def __init__(self, mode, gpu=True, program=None, wrap=(), preexec=None):
        self.dir = tempfile.mkdtemp(prefix="pt-inject-")
        os.chmod(self.dir, 0o777)
        self.file = os.path.join(self.dir, "words")
        with open(self.file, "wb") as f:
            f.write(bytes(4096))
        os.chmod(self.file, 0o666)
        argv = list(wrap) + [program or HAZARDS, mode, self.file] + ([gpu if isinstance(gpu, str) else CUDART] if gpu else [])
        self.err = open(os.path.join(self.dir, "err"), "w+b")
        self.proc = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                     stderr=self.err, preexec_fn=preexec,
                                     start_new_session=True)
        with open(self.file, "r+b") as f:
            self.map = mmap.mmap(f.fileno(), 4096)
        end = time.monotonic() + 10
        while not self.word(5):
            if self.proc.poll() is not None or time.monotonic() > end:
                raise RuntimeError("target %s did not start" % mode)
            time.sleep(0.01)
        self.pid = self.proc.pid
        if wrap:  # the pid that it sees may be of another namespace
            self.pid = self.leaf(self.proc.pid)

    @staticmethod
    def leaf(pid):
        for _ in range(5):
            with open("/proc/%d/task/%d/children" % (pid, pid)) as f:
                kids = f.read().split()
            if not kids:
                break
            pid = int(kids[0])
        return pid

    def word(self, i):
        return struct.unpack_from("<Q", self.map, 8 * i)[0]

    def ops(self):
        return self.word(1)

    def bad(self):
        return self.word(2)

    def alive(self):
        return self.proc.poll() is None

    def rate(self, seconds):
        a, t = self.ops(), time.monotonic()
        time.sleep(seconds)
        return (self.ops() - a) / (time.monotonic() - t)

    def end(self):
        for sig in (signal.SIGKILL,):
            try:
                os.killpg(self.proc.pid, sig)
            except ProcessLookupError:
                pass
        self.proc.wait()
        self.err.close()
        self.map.close()
        shutil.rmtree(self.dir, ignore_errors=True)


def threads(pid):
    return len(os.listdir("/proc/%d/task" % pid))


def comms(pid):
    """Names of its threads."""
    found = []
    for tid in os.listdir("/proc/%d/task" % pid):
        try:
            with open("/proc/%d/task/%s/comm" % (pid, tid)) as f:
                found.append(f.read().strip())
        except OSError:
            pass
    return found


def descriptors(pid):
    found = []
    for fd in os.listdir("/proc/%d/fd" % pid):
        try:
            found.append(os.readlink("/proc/%d/fd/%s" % (pid, fd)))
        except OSError:
            pass
    return found


def mapped_libs(pid):
    """Agent libraries that are mapped, and the agent's memory."""
    with open("/proc/%d/maps" % pid) as f:
        text = f.read()
    return (len(re.findall(r"r-xp .*memfd:pipetrace-agent-lib", text)),
            len(re.findall(r"memfd:pipetrace-agent \(deleted\)", text)))


def rss_kb(pid):
    with open("/proc/%d/status" % pid) as f:
        return int(re.search(r"VmRSS:\s+(\d+)", f.read()).group(1))


def status(pid, key):
    with open("/proc/%d/status" % pid) as f:
        m = re.search(r"^%s:\s+(\S+)" % key, f.read(), re.M)
    return m.group(1) if m else None


def inject(pid, agent=AGENT, timeout=120, **words):
    argv = [INJECTOR, str(pid), agent] + ["%s=%s" % kv for kv in words.items()]
    p = subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                       timeout=timeout, check=False)
    return [json.loads(l) for l in p.stdout.decode("utf-8", "replace").splitlines()]


def said(runs):
    """What the user is told, in short."""
    got = []
    for r in runs:
        text = r["said"] if r["inject"] else "loaded at %s" % r["point"]
        if not r["inject"] and r["retract"] not in (0, 99):
            text += "; " + ("the library stays mapped" if r["retract"] == 1 else
                            r["retract_said"] or "no reason given (%d)" % r["retract"])
        if text not in got:
            got.append(text)
    return "; ".join(got[:3])


def left(pid, agent_stays=False):
    """What an injection left there that it should not have, or ''."""
    libs, shm = mapped_libs(pid)
    fds = [d for d in descriptors(pid) if "pipetrace" in d]
    trouble = []
    if libs > (1 if agent_stays else 0):
        trouble.append("%d libraries mapped" % libs)
    if shm:
        trouble.append("the agent's memory is mapped")
    if fds:
        trouble.append("descriptors: %s" % ", ".join(fds))
    if status(pid, "TracerPid") != "0":
        trouble.append("still traced")
    return "; ".join(trouble)


def row(name, target, told, ok, why=""):
    results.append({"name": name, "target": target, "told": told, "ok": ok, "why": why})
    print("%-4s %-24s %-44s %s%s" % ("ok" if ok else "FAIL", name, target, told,
                                     "  <-- " + why if why else ""), flush=True)


def skip(name, why):
    results.append({"name": name, "ok": None, "why": why})
    print("skip %s: %s" % (name, why), flush=True)


class Case:
    """A target, how it is injected, and what is to come of it."""

    def __init__(self, mode, expect="ok", cycles=3, gpu=True, points=0, settle=0.6,
                 watch=1.0, slow=0.0, program=None, wrap=(), preexec=None, agent=AGENT,
                 name=None, ends=None, words=None, threads=0):
        self.mode, self.expect, self.cycles, self.gpu = mode, expect, cycles, gpu
        self.points, self.settle, self.watch, self.slow = points, settle, watch, slow
        self.program, self.wrap, self.preexec, self.agent = program, wrap, preexec, agent
        self.more_threads = threads  # of CUPTI's own, which stay
        self.name, self.ends, self.words = name or mode, ends, words or {}

    def run(self):
        t = Target(self.mode, self.gpu, self.program, self.wrap, self.preexec)
        # what a busy machine does to the same waits, with nothing loaded
        self.control = Target(self.mode, self.gpu) if self.mode == "timed" else None
        try:
            self.judge(t)
        finally:
            t.end()
            if self.control:
                self.control.end()

    def late(self, runs):
        """How late a wait may be, ns: as an untouched one, and as long as it was
        stopped."""
        return (self.control.word(3) + LATE_NS +
                1000 * max([max(r["us"], r["us_out"]) for r in runs] or [0]))

    def judge(self, t):
        before = t.rate(self.settle)
        n_threads = threads(t.pid)
        n_fds = len(descriptors(t.pid))
        a, begin = t.ops(), time.monotonic()
        runs = inject(t.pid, self.agent, cycles=self.cycles, points=self.points, **self.words)
        during = (t.ops() - a) / (time.monotonic() - begin)
        after = t.rate(self.watch) if t.alive() else 0
        why = []
        done = sum(1 for r in runs if not r["inject"])
        if self.expect == "ok" and not done:
            why.append("it was not loaded once in %d" % len(runs))
        if self.expect not in ("ok", "any") and (
                done or not any(re.search(self.expect, r["said"]) for r in runs)):
            why.append("expected \"%s\"" % self.expect)
        if t.bad():
            why.append("%d of its results are wrong" % t.bad())
        if not t.alive() and self.ends is None:
            why.append("it died (status %s)" % t.proc.returncode)
        if self.ends is not None:
            end = time.monotonic() + 5
            while t.alive() and time.monotonic() < end:
                time.sleep(0.02)
            if t.proc.poll() != self.ends:
                why.append("it ended with %s" % t.proc.poll())
        if t.alive():
            lost = left(t.pid, self.agent != AGENT)
            if lost:
                why.append(lost)
            same = self.mode not in ("forks", "exec")
            if same and threads(t.pid) > n_threads + self.more_threads:
                why.append("%d threads more" % (threads(t.pid) - n_threads))
            if same and len(descriptors(t.pid)) > n_fds:
                why.append("%d descriptors more" % (len(descriptors(t.pid)) - n_fds))
            if before and after < 0.25 * before:
                why.append("it works no longer")
            if self.control and (t.word(4) or t.word(3) > self.late(runs)):
                why.append("%d waits early, the latest %.1f ms late" %
                           (t.word(4), t.word(3) / 1e6))
        what = "%d/%d loaded, %d ops, 0 wrong" % (done, len(runs), t.ops())
        if t.bad():
            what = what.replace(" 0 wrong", " %d WRONG" % t.bad())
        if before:
            what += ", rate x%.2f" % (during / before)
        if self.mode == "timed":
            what += ", latest +%.1f ms (untouched +%.1f)" % (
                t.word(3) / 1e6, self.control.word(3) / 1e6)
        if runs and any(not r["inject"] for r in runs):
            what += ", stopped %.1f ms" % max(max(r["us"], r["us_out"]) / 1e3 for r in runs)
        row(self.name, what, said(runs), not why, "; ".join(why))


def as_nobody():
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)


NO_POINT = "no safe moment"
CASES = [
    Case("gpu", cycles=5),
    Case("gpu", name="gpu_stays", agent=STAYS, cycles=5),
    Case("gpu", name="gpu_cupti", gpu=CUDA, agent=REAL, cycles=5, words={"hold": 100},
         threads=1),
    Case("spin_gpu"),
    Case("spin", NO_POINT, cycles=1, gpu=False),
    Case("storm1_gpu", cycles=5),
    Case("storm4_gpu", cycles=5),
    Case("storm1_poll", cycles=5, gpu=False),
    Case("storm4_poll", cycles=5, gpu=False),
    Case("storm1_poll", name="idle_gpu", cycles=3),  # it has a GPU library, unused
    Case("storm1", NO_POINT, cycles=1, gpu=False),
    Case("storm_handler", NO_POINT, cycles=1, gpu=False),
    Case("read", NO_POINT, cycles=1, gpu=False),
    Case("futex", NO_POINT, cycles=1, gpu=False),
    Case("timed", gpu=False, cycles=8),
    Case("endless", gpu=False, points=4, cycles=8),
    Case("endless_epoll", gpu=False, points=4, cycles=8),
    # the thread that calls the GPU is no place for it, another one is
    Case("small_endless", points=5, cycles=4),
    Case("alarm", cycles=5),
    Case("small_stack", "", cycles=1),
    Case("forks", cycles=3),
    Case("exec", "any", cycles=40, settle=0.1, words={"point": 500, "hold": 1}),
    *[Case("exit", "any", name="exit_%d" % k, cycles=100, settle=0.1, ends=42,
           words={"point": 500, "hold": 1}) for k in range(4)],
    Case("seccomp_all", cycles=2),
    Case("seccomp_335", "seccomp filter does not allow", cycles=1),
    Case("seccomp_memfd", "seccomp filter does not allow .* memfd_create", cycles=1),
    Case("gpu", name="other_user", preexec=as_nobody, cycles=2),
    Case("gpu", name="container", cycles=2,
         wrap=("unshare", "--mount", "--pid", "--fork", "--mount-proc")),
]
SAMPLE = ["gpu", "storm4_gpu", "storm_handler", "timed", "endless", "seccomp_335",
          "trace_cupti", "trace_cupti_filtered", "trace_cupti_listed", "trace_cupti_unlisted",
          "trace_cupti_ended"]


# ---- targets made on the spot ------------------------------------------------------

STATIC = "#include <unistd.h>\n#include <poll.h>\n#include <fcntl.h>\n#include <sys/mman.h>\n" \
    "#include <stdint.h>\nint main(int c, char **v){int f=open(v[2],O_RDWR);uint64_t *o=" \
    "mmap(0,4096,3,1,f,0);(void)c;o[5]=1;for(;;){poll(0,0,5);o[1]++;}}\n"


def built(compiler, flags):
    d = tempfile.mkdtemp(prefix="pt-inject-")
    src, exe = os.path.join(d, "t.c"), os.path.join(d, "t")
    with open(src, "w") as f:
        f.write(STATIC)
    p = subprocess.run([compiler, "-O1", src, "-o", exe] + flags, check=False,
                       stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    return (exe, d) if p.returncode == 0 else (None, d)


def other_programs(wanted):
    for name, compiler, flags, expect in (
            ("static", "gcc", ["-static"], "static program"),
            ("32_bit", "gcc", ["-m32"], "32-bit"),
            ("musl", "musl-gcc", [], "musl"),
            ("musl_static", "musl-gcc", ["-static"], "static program")):
        if not wanted(name):
            continue
        if not shutil.which(compiler):
            skip(name, "no " + compiler)
            continue
        exe, d = built(compiler, flags)
        if not exe:
            skip(name, "%s %s makes no program here" % (compiler, " ".join(flags)))
        else:
            Case("x", expect, cycles=1, gpu=False, program=exe, name=name).run()
        shutil.rmtree(d, ignore_errors=True)


# ---- somebody else traces it ----------------------------------------------------------

def traced():
    t = Target("gpu")
    strace = None
    try:
        code = ("import ctypes,sys,time\nl=ctypes.CDLL(None,use_errno=True)\n"
                "r=l.ptrace(0x4206,%d,0,0)\nprint(r,flush=True)\ntime.sleep(20)" % t.pid)
        strace = subprocess.Popen([PYTHON, "-c", code], stdout=subprocess.PIPE)
        if strace.stdout.readline().strip() != b"0":
            skip("traced", "another tracer cannot be made here")
            return
        runs = inject(t.pid)
        ok = runs[0]["inject"] != 0 and "traced by process %d" % strace.pid in runs[0]["said"]
        ok = ok and t.alive() and not t.bad()
        row("traced", "alive %s, %d wrong" % (t.alive(), t.bad()), said(runs), ok)
    finally:
        if strace:
            strace.kill()
            strace.wait()
        t.end()


# ---- stopped and continued by others ------------------------------------------------------

def stops():
    """Job control at every moment of it."""
    t = Target("gpu")
    p = None
    try:
        before = t.rate(0.5)
        code = ("import os,time,random\nwhile True:\n os.kill(%d,19);time.sleep(random.random()*"
                ".006)\n os.kill(%d,18);time.sleep(random.random()*.03)" % (t.pid, t.pid))
        p = subprocess.Popen([PYTHON, "-c", code], stderr=subprocess.DEVNULL)
        runs = inject(t.pid, cycles=15, timeout=300)
        p.kill()
        p.wait()
        os.kill(t.pid, signal.SIGCONT)
        after = t.rate(1.0)
        done = sum(1 for r in runs if not r["inject"])
        again = inject(t.pid)
        why = []
        if not t.alive() or t.bad() or after < 0.25 * before:
            why.append("alive %s, %d wrong, rate x%.2f" % (t.alive(), t.bad(), after / before))
        elif again[0]["inject"] or left(t.pid, True):
            why.append("the next: %s; %s" % (again[0]["said"], left(t.pid, True)))
        if not done:
            why.append("it was not loaded once")
        row("stops", "%d/%d loaded, %d ops, %d wrong, rate x%.2f after" % (
            done, len(runs), t.ops(), t.bad(), after / before), said(runs), not why,
            "; ".join(why))
    finally:
        if p and p.poll() is None:
            p.kill()
            p.wait()
        t.end()


# ---- the loader's lock is held --------------------------------------------------------

def loader():
    """dlopen() has to wait for seconds: it is let go, comes back, and is cleared up."""
    t = Target("loader")
    try:
        before = t.rate(0.5)
        runs = inject(t.pid, call=300, points=1)
        time.sleep(3.5)
        after = t.rate(1.0)
        why = []
        if not any(r["inject"] == -110 and "by itself" in r["said"] for r in runs):
            why.append("expected a call that does not return in time")
        if not t.alive() or t.bad() or after < 0.25 * before:
            why.append("alive %s, %d wrong, rate x%.2f" % (t.alive(), t.bad(), after / before))
        if t.alive() and status(t.pid, "SigBlk") != "0000000000000800":
            why.append("signals are blocked: %s" % status(t.pid, "SigBlk"))
        again = inject(t.pid, call=8000, points=1)
        if again[0]["inject"] or left(t.pid, True):
            why.append("the next: %s; %s" % (again[0]["said"], left(t.pid, True)))
        if t.bad():
            why.append("%d wrong" % t.bad())
        row("loader", "%d ops, %d wrong, rate x%.2f after" % (t.ops(), t.bad(), after / before),
            said(runs) + "; " + said(again), not why, "; ".join(why))
    finally:
        t.end()


# ---- the tracer is killed ----------------------------------------------------------------

def killed(name, mode, gpu, points, words):
    """It is killed at a moment; the target goes on, and the next one cleans up."""
    t = Target(mode, gpu)
    try:
        before = t.rate(0.3)
        runs = inject(t.pid, points=points, **words)
        after = t.rate(0.5)
        why = []
        if not t.alive():
            why.append("it died (status %s)" % t.proc.returncode)
        elif t.bad():
            why.append("%d of its results are wrong" % t.bad())
        elif after < 0.25 * before:
            why.append("it works no longer")
        elif status(t.pid, "TracerPid") != "0":
            why.append("still traced")
        else:
            end = time.monotonic() + 8
            while True:  # an agent that started retires after 3 s
                again = inject(t.pid, points=points)
                if not again[0]["inject"] or time.monotonic() > end:
                    break
                time.sleep(0.5)
            if again[0]["inject"]:
                why.append("not to be loaded again: " + again[0]["said"])
            elif t.alive() and left(t.pid, True):
                why.append(left(t.pid, True))
            elif not t.alive() or t.bad():
                why.append("wrong afterwards")
        return not why, "; ".join(why), runs
    finally:
        t.end()


def kills(n, seed):
    rng = random.Random(seed)
    for mode, gpu, points in (("storm4_gpu", True, 0), ("endless", False, 4),
                              ("timed", False, 0)):
        bad = []
        for stage in range(1, 11):
            ok, why, _ = killed("stage %d" % stage, mode, gpu, points, {"kill": stage})
            if not ok:
                bad.append("stage %d: %s" % (stage, why))
        row("killed_stages/" + mode, "10 stages, %d bad" % len(bad), "(the tracer is gone)",
            not bad, "; ".join(bad))
    bad, moments = [], []
    for _ in range(n):
        ms = rng.choice((rng.uniform(0, 15), rng.uniform(0, 60)))
        moments.append(ms)
        ok, why, _ = killed("%d ms" % ms, "storm4_gpu", True, 0, {"killms": int(ms)})
        if not ok:
            bad.append("%d ms: %s" % (ms, why))
    row("killed_moments", "%d moments, %d bad" % (n, len(bad)), "(the tracer is gone)",
        not bad, "; ".join(bad))


# ---- PyTorch -----------------------------------------------------------------------------

def pytorch(cycles):
    if subprocess.run([PYTHON, "-c", "import torch"], stderr=subprocess.DEVNULL,
                      check=False).returncode:
        skip("pytorch", "no torch for " + PYTHON)
        return
    d = tempfile.mkdtemp(prefix="pt-inject-")
    truth = os.path.join(d, "truth")
    job = subprocess.Popen([PYTHON, os.path.join(TOP, "tests/e2e/torch_job.py"), "--cudart",
                            CUDART, "--data", os.path.join(d, "data"), "--workers", "2",
                            "--truth", truth, "--seconds", "120", "--die-with-parent"],
                           stdout=subprocess.PIPE, stdin=subprocess.DEVNULL)
    try:
        line = job.stdout.readline().split()
        if not line or line[0] != b"READY":
            row("pytorch", "did not start", "", False)
            return
        pid = int(line[1])
        n = threads(pid)
        fds = len(descriptors(pid))
        runs = inject(pid, cycles=cycles)
        done = sum(1 for r in runs if not r["inject"])
        time.sleep(1)
        why = []
        if job.poll() is not None:
            why.append("it died (%s)" % job.returncode)
        else:
            lost = left(pid)
            if lost:
                why.append(lost)
            if threads(pid) > n:
                why.append("threads more")
            job.send_signal(signal.SIGTERM)
            if job.wait(20):
                why.append("it ended with %d" % job.returncode)
        if done < cycles:
            why.append("loaded %d of %d times" % (done, cycles))
        with open(truth) as f:
            steps = sum(1 for l in f if '"step"' in l)
        row("pytorch", "%d/%d loaded, %d steps, %d descriptors before" %
            (done, len(runs), steps, fds), said(runs), not why, "; ".join(why))
    finally:
        if job.poll() is None:
            job.kill()
            job.wait()
        shutil.rmtree(d, ignore_errors=True)


# ---- another glibc ------------------------------------------------------------------------

OLD = ("import time,hashlib,os,struct\nf=os.open('/tmp/words',os.O_RDWR)\nn=bad=0\n"
       "while True:\n"
       "    bad+=hashlib.sha256(bytes(100000)).hexdigest()[:8]!='%s'\n"
       "    n+=1\n    time.sleep(0.005)\n"
       "    os.pwrite(f,struct.pack('<QQ',n,bad),8)\n")


def other_glibc():
    """PT_TEST_CHROOT: a directory with another Debian and its python3, /proc mounted
    (debootstrap --variant=minbase --include=python3-minimal bullseye DIR)."""
    root = os.environ.get("PT_TEST_CHROOT")
    if not root:
        skip("other_glibc", "PT_TEST_CHROOT names no directory with another glibc")
        return

    words = os.path.join(root, "tmp/words")
    with open(words, "wb") as f:
        f.write(bytes(4096))
    code = OLD % hashlib.sha256(bytes(100000)).hexdigest()[:8]
    p = subprocess.Popen(["chroot", root, "/usr/bin/python3", "-c", code],
                         stdin=subprocess.DEVNULL)
    try:
        time.sleep(1)
        with open("/proc/%d/maps" % p.pid) as f:
            libc = sorted(set(re.findall(r"libc[-.][0-9so.]+", f.read())))
        runs = inject(p.pid, REAL, cycles=5)
        newer = inject(p.pid, AGENT)  # needs this system's glibc
        time.sleep(0.5)
        with open(words, "rb") as f:
            n, bad = struct.unpack("<8xQQ", f.read(24))
        why = []
        if any(r["inject"] for r in runs):
            why.append("not loaded")
        if not newer[0]["inject"] or "GLIBC" not in newer[0]["said"]:
            why.append("a library of a newer glibc was taken")
        if p.poll() is not None or bad or not n:
            why.append("it died, or is wrong")
        elif left(p.pid):
            why.append(left(p.pid))
        row("other_glibc", "%s: %d/5 loaded, %d ops, %d wrong" %
            (" ".join(libc), sum(not r["inject"] for r in runs), n, bad),
            said(runs) + "; " + said(newer), not why, "; ".join(why))
    finally:
        p.kill()
        p.wait()


# ---- traced as every job is --------------------------------------------------------------

THROWS = r"""
#include <dlfcn.h>
#include <fcntl.h>
#include <stdexcept>
#include <stdint.h>
#include <sys/mman.h>
#include <thread>
#include <unistd.h>
struct dim3 { unsigned x, y, z; };
static uint64_t *out;
static int (*launch)(const void *, dim3, dim3, void **, size_t, void *);
static int (*sync_all)(void *);
static __attribute__((noinline)) int deep(int n)
{
	if (!n) {
		launch((const void *)&deep, dim3{1, 1, 1}, dim3{1, 1, 1}, nullptr, 0, nullptr);
		if (sync_all(nullptr))
			return 1;
		throw std::runtime_error("through");
	}
	return deep(n - 1) + 1;
}
static void work()
{
	for (;;) {
		int ok = 0;
		try { deep(20); } catch (const std::runtime_error &) { ok = 1; }
		__atomic_add_fetch(&out[1], 1, 0);
		if (!ok) __atomic_add_fetch(&out[2], 1, 0);
	}
}
int main(int, char **v)
{
	int f = open(v[2], O_RDWR);
	out = (uint64_t *)mmap(nullptr, 4096, 3, 1, f, 0);
	void *h = dlopen(v[3], RTLD_NOW);
	*(void **)&launch = dlsym(h, "cudaLaunchKernel");
	*(void **)&sync_all = dlsym(h, "cudaStreamSynchronize");
	out[5] = 1;
	std::thread a(work), b(work);
	work();
}
"""


def trace(pid, *more, seconds=2):
    """A trace as a user makes it: (exit status, report, standard error)."""
    with tempfile.TemporaryDirectory() as d:
        out = os.path.join(d, "r.json")
        p = subprocess.run([os.path.join(TOP, "build/pipetrace"), "-p", str(pid), "-d",
                            str(seconds), "--json", out] + list(more), timeout=60,
                           stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                           stderr=subprocess.PIPE, check=False)
        try:
            with open(out) as f:
                report = json.load(f)
        except (OSError, ValueError):
            report = {"capture": {"hooks": {}, "hook_notes": {}}, "gpu": []}
    return p.returncode, report, p.stderr.decode("utf-8", "replace")


def traced_as_ever(name, t, want_door=None, want_note="", cupti=False, more=()):
    try:
        before = t.rate(0.5)
        code, report, err = trace(t.pid, *(["--cupti"] if cupti else []), *more)
        door = report["capture"]["hooks"].get("gpu_times")
        note = report["capture"]["hook_notes"].get("gpu_times", "")
        kernels = sum(g["kernels"] or 0 for g in report["gpu"])
        after = t.rate(0.5)
        why = []
        if not t.alive():
            why.append("it died (status %s)" % t.proc.returncode)
        elif t.bad() or after < 0.25 * before:
            why.append("%d wrong, rate x%.2f" % (t.bad(), after / before))
        elif left(t.pid, True):
            why.append(left(t.pid, True))
        if code:
            why.append("the trace ended with %d: %s" % (code, err.strip()[-200:]))
        if not kernels and not more:
            why.append("no kernel was seen")
        if door != want_door or not re.search(want_note, note):
            why.append("gpu_times is %s: %s" % (door, note))
        row(name, "%d ops, %d wrong, %d kernels seen" % (t.ops(), t.bad(), kernels),
            "%s %s" % (door or "", note), not why, "; ".join(why))
    finally:
        t.end()


def traces(wanted):
    if wanted("trace_throws"):
        d = tempfile.mkdtemp(prefix="pt-inject-")
        src, exe = os.path.join(d, "t.cc"), os.path.join(d, "t")
        with open(src, "w") as f:
            f.write(THROWS)
        if not shutil.which("g++") or subprocess.run(
                ["g++", "-O1", "-pthread", src, "-o", exe, "-ldl"], check=False).returncode:
            skip("trace_throws", "no g++")
        else:
            traced_as_ever("trace_throws", Target("x", program=exe))
        shutil.rmtree(d, ignore_errors=True)
    for mode in ("seccomp_335", "seccomp_all"):
        if wanted("trace_" + mode):
            traced_as_ever("trace_" + mode, Target(mode))
    if wanted("trace_cupti"):
        traced_as_ever("trace_cupti", Target("gpu", CUDA), "cupti", "stays mapped", True)
    if wanted("trace_cupti_no_probes"):
        # it launches nothing, and is borrowed where it waits
        traced_as_ever("trace_cupti_no_probes", Target("storm1_poll", CUDA), "cupti",
                       "stays mapped", True, ["--no-gpu-probes"])
    # a filter that allows it, as a container's does: the tracer has one, too
    if wanted("trace_cupti_filtered"):
        traced_as_ever("trace_cupti_filtered", Target("seccomp_all", CUDA), "cupti",
                       "stays mapped", True)
    # one that kills for what it does not list, with and without all that an agent takes
    if wanted("trace_cupti_listed"):
        traced_as_ever("trace_cupti_listed", Target("seccomp_list", CUDA), "cupti",
                       "stays mapped", True)
    if wanted("trace_cupti_unlisted"):
        traced_as_ever("trace_cupti_unlisted", Target("seccomp_short", CUDA), "none",
                       "seccomp filter does not allow the system call prctl", True)
    if wanted("trace_cupti_refused"):
        traced_as_ever("trace_cupti_refused", Target("seccomp_335"), "none",
                       "seccomp filter does not allow", True)
    if wanted("trace_cupti_ended"):
        trace_ended()
    if wanted("trace_cupti_killed"):
        trace_killed()


def trace_killed():
    """pipetrace itself is killed while it traces with an agent."""
    bad = []
    for ms in (150, 300, 600, 1200):
        t = Target("gpu", CUDA)
        try:
            before = t.rate(0.3)
            p = subprocess.Popen([os.path.join(TOP, "build/pipetrace"), "-p", str(t.pid),
                                  "--cupti", "-d", "20", "-q"], stdin=subprocess.DEVNULL,
                                 stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            time.sleep(ms / 1000)
            p.kill()
            p.wait()
            time.sleep(4.5)  # the agent retires
            if not t.alive() or t.bad() or t.rate(0.5) < 0.25 * before:
                bad.append("%d ms: it died or is wrong" % ms)
            else:
                code, report, _ = trace(t.pid, "--cupti", seconds=1)
                if code or report["capture"]["hooks"].get("gpu_times") != "cupti":
                    bad.append("%d ms: the next trace: %s" % (
                        ms, report["capture"]["hook_notes"].get("gpu_times")))
                elif left(t.pid, True):
                    bad.append("%d ms: %s" % (ms, left(t.pid, True)))
        finally:
            t.end()
    row("trace_cupti_killed", "4 moments, %d bad" % len(bad), "(the tracer is gone)", not bad,
        "; ".join(bad))


def trace_ended():
    """The job ends under the trace: nobody is waited for who cannot answer. The quickest of
    three counts, as other load only makes it slower."""
    took, why = [], []
    for _ in range(3):
        t = Target("gpu", CUDA)
        with tempfile.TemporaryDirectory() as d:
            out = os.path.join(d, "r.json")
            p = subprocess.Popen([os.path.join(TOP, "build/pipetrace"), "-p", str(t.pid), "--cupti",
                                  "-d", "60", "-q", "--json", out], stdin=subprocess.DEVNULL,
                                 stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            try:
                end = time.monotonic() + 20
                while "pt-agent" not in comms(t.pid) and time.monotonic() < end:
                    time.sleep(0.05)
                time.sleep(1)
            finally:
                t.end()
            begin = time.monotonic()
            code = p.wait(60)
            took.append(time.monotonic() - begin)
            with open(out) as f:
                capture = json.load(f)["capture"]
        door, note = (capture[k].get("gpu_times") for k in ("hooks", "hook_notes"))
        if code or door != "cupti" or note:
            why.append("status %d, gpu_times is %s: %s" % (code, door, note))
        if took[-1] < 1.9:
            break
    if min(took) >= 1.9:
        why.append("the report came late")
    row("trace_cupti_ended", "the report came after %.1f s" % min(took), "(the job is gone)",
        not why, "; ".join(why))


# ---- many cycles ----------------------------------------------------------------------------

def many(total):
    """Two in five in malloc storms. Every target is watched for 10 s afterwards."""
    plan = [("storm1_gpu", True, AGENT), ("storm4_gpu", CUDA, REAL),
            ("storm1_poll", False, AGENT), ("storm4_poll", False, STAYS),
            ("gpu", True, AGENT), ("gpu", CUDA, REAL), ("alarm", True, AGENT),
            ("timed", False, AGENT), ("endless", False, AGENT), ("spin_gpu", True, STAYS)]
    for k, (mode, gpu, agent) in enumerate(plan):
        n = total // 10 + (1 if k < total % 10 else 0)
        t = Target(mode, gpu)
        try:
            before = t.rate(0.5)
            inject(t.pid, agent, cycles=2)  # what the first ones leave is not growth
            n_threads, n_fds, rss = threads(t.pid), len(descriptors(t.pid)), rss_kb(t.pid)
            runs = inject(t.pid, agent, timeout=1200, cycles=n, hold=5, pause=5,
                          points=4 if mode == "endless" else 0)
            end = time.monotonic() + 10
            while t.alive() and time.monotonic() < end:
                time.sleep(0.1)
            why = []
            done = sum(1 for r in runs if not r["inject"])
            out = sum(1 for r in runs if r["retract"] in (0, 1))
            if not t.alive():
                why.append("it died (status %s)" % t.proc.returncode)
            else:
                lost = left(t.pid, agent != AGENT)
                if lost:
                    why.append(lost)
                if threads(t.pid) != n_threads:
                    why.append("%d threads, not %d" % (threads(t.pid), n_threads))
                if len(descriptors(t.pid)) != n_fds:
                    why.append("%d descriptors, not %d" % (len(descriptors(t.pid)), n_fds))
                # a storm's heap itself moves by its blocks: 4 threads x 64 x 60 KiB
                grown = rss_kb(t.pid) - rss
                if grown > 16384:
                    why.append("%d KiB more memory" % grown)
                if t.rate(0.5) < 0.25 * before:
                    why.append("it works no longer")
            if t.bad():
                why.append("%d of its results are wrong" % t.bad())
            if done != out:
                why.append("taken out %d of %d times" % (out, done))
            if done < 0.9 * len(runs):
                why.append("loaded %d of %d times: %s" % (done, len(runs), said(runs)))
            row("cycles/%s%s" % (mode, {STAYS: "_stays", REAL: "_cupti"}.get(agent, "")),
                "%d/%d loaded, %d taken out, %d ops, %d wrong, %+d KiB" %
                (done, n, out, t.ops(), t.bad(), rss_kb(t.pid) - rss if t.alive() else 0),
                said([r for r in runs if r["inject"]]), not why, "; ".join(why))
        finally:
            t.end()


def main():
    ap = argparse.ArgumentParser(description="Load the agent into hard targets.")
    ap.add_argument("name", nargs="*")
    ap.add_argument("--sample", action="store_true")
    ap.add_argument("--cycles", type=int, default=0, metavar="N")
    ap.add_argument("--kills", type=int, default=20, metavar="N")
    ap.add_argument("--seed", type=int, default=1)
    ap.add_argument("--json", metavar="FILE")
    a = ap.parse_args()
    if os.geteuid():
        print("needs root")
        return 77
    for f in (INJECTOR, HAZARDS, AGENT, CUDART):
        if not os.path.exists(f):
            print("needs %s: make e2e" % os.path.relpath(f, TOP))
            return 77
    names = SAMPLE if a.sample else a.name

    def wanted(name):
        return not names or name in names

    if a.cycles:
        many(a.cycles)
    else:
        for c in CASES:
            if wanted(c.name):
                c.run()
        other_programs(wanted)
        if wanted("traced"):
            traced()
        if wanted("stops"):
            stops()
        if wanted("loader"):
            loader()
        if wanted("pytorch"):
            pytorch(5)
        if wanted("other_glibc"):
            other_glibc()
        traces(wanted)
        if wanted("killed") or not names:
            kills(a.kills, a.seed)
    if a.json:
        with open(a.json, "w") as f:
            json.dump(results, f, indent=1)
    ok = sum(1 for r in results if r["ok"])
    bad = sum(1 for r in results if r["ok"] is False)
    print("%d passed, %d failed, %d skipped" % (ok, bad, len(results) - ok - bad))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
