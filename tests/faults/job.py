# SPDX-License-Identifier: BSD-2-Clause
"""The job that faults are tried on, and what is left of a tracer."""
import os
import random
import subprocess
import sys
import time

TESTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(TESTS, "e2e"))
from badinput_tools import LIBCUDART, PIPETRACE, SIMJOB, Child, breakpoints  # noqa: E402

PATIENCE_S = 20


class Skip(Exception):
    """This cannot be tried here; the reason."""


class Job:
    """A simulated job whose steps can be counted while it runs."""

    def __init__(self, tmp, *more):
        self.longest = 0.0  # s, that it had break points behind a tracer's end
        self.log = os.path.join(tmp, "truth-%d" % random.getrandbits(40))
        self.child = Child([SIMJOB, "--seconds", "7200", "--workers", "1", "--items", "4",
                            "--item-cpu-us", "100", "--launches", "10", "--truth", self.log, *more])

    def __enter__(self):
        self.p = self.child.__enter__()
        end = time.time() + 10
        while self.steps() < 3 and time.time() < end:
            time.sleep(0.02)
        return self

    def __exit__(self, *exc):
        self.child.__exit__(*exc)

    def steps(self):
        try:
            with open(self.log, "rb") as f:
                return f.read().count(b'"step"')
        except OSError:
            return 0

    def harm(self):
        """What is wrong with it; None: nothing."""
        if self.p.poll() is not None:
            return "the job ended with %s" % self.p.returncode
        had = self.steps()
        end = time.time() + 5
        while self.steps() <= had:
            if time.time() > end:
                return "the job makes no steps"
            time.sleep(0.01)
        with open("/proc/%d/status" % self.p.pid, encoding="utf-8") as f:
            if "\nTracerPid:\t0\n" not in f.read():
                return "the job is traced"
        begin = time.time()
        while True:  # the kernel takes them out a little later than the last close
            changed, compared = breakpoints(self.p.pid, LIBCUDART)
            took = time.time() - begin
            if not changed and compared:
                self.longest = max(self.longest, took)
                return None
            if took > PATIENCE_S:
                return "break points left in %s (of %d)" % (changed[:3], compared)
            time.sleep(0.02)


def start(args, pid, tmp, env=None, **more):
    """pipetrace in one of its ways; its recorded file, or None."""
    out = None
    args = list(args)
    if "--html" in args:
        args.append(os.path.join(tmp, "page.html"))
    if args[0] == "record":
        out = os.path.join(tmp, "r-%d.ptrace" % random.getrandbits(40))
        args += ["-o", out]
    p = subprocess.Popen([PIPETRACE, *args, "-p", str(pid)], stdin=subprocess.DEVNULL,
                         stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd=tmp, env=env, **more)
    return p, out


def gone(tree, seconds=20):
    """Those of a killed tracer's processes that are still there."""
    end = time.time() + seconds
    while True:
        left = []
        for pid, born in tree:
            try:
                with open("/proc/%d/stat" % pid, "rb") as f:
                    stat = f.read()
                if stat.rsplit(b")", 1)[1].split()[19] == born and b") Z " not in stat:
                    left.append("process %d %s" % (pid, stat.split(b"(")[1].split(b")")[0].decode()))
            except OSError:
                pass
        if not left or time.time() > end:
            return left
        time.sleep(0.05)


def temporary(tmp):
    return ["file %s" % n for n in os.listdir(tmp) if n.startswith(".pipetrace")]
