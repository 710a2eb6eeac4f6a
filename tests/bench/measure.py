# SPDX-License-Identifier: BSD-2-Clause
"""Intervals, rows, the work that is measured, and tracers that come and go."""
import contextlib
import json
import math
import os
import re
import select
import signal
import statistics
import subprocess
import tempfile
import time

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.environ.get("BUILD", os.path.join(TOP, "build"))
PIPETRACE = os.path.join(BUILD, "pipetrace")
WORK = os.path.join(BUILD, "tests/bench/work")
PYTHON = "/usr/bin/python3"  # the one that has the distribution's torch
# Student's t, two-sided 95 %, by degrees of freedom
T95 = (math.nan, 12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23, 2.20, 2.18, 2.16,
       2.14, 2.13, 2.12, 2.11, 2.10, 2.09, 2.09)


class NotRun(Exception):
    """This cannot be measured here; why, in a sentence."""


# ---- figures ---------------------------------------------------------------------

def interval(values):
    """(mean, low, high): 95 % of the mean, by Student."""
    n, mean = len(values), statistics.mean(values)
    if n < 2:
        return mean, None, None
    half = (T95[n - 1] if n <= len(T95) else 2.0) * statistics.stdev(values) / math.sqrt(n)
    return mean, mean - half, mean + half


def ratio(values):
    """The same of ratios: twice and half lie equally far from one."""
    got = interval([math.log(v) for v in values])
    return tuple(None if v is None else math.exp(v) for v in got)


def row(what, unit, got, floor=None, n=None, bar=None, command=None, note=None):
    """A figure: got and floor are (value, low, high); bar is such as "<= 1.25"."""
    out = {"what": what, "unit": unit, "value": got[0], "low": got[1], "high": got[2],
           "n": n}
    if floor:
        out["floor"] = [floor[1], floor[2]] if floor[1] is not None else [floor[0], floor[0]]
    if bar:
        out["bar"], out["met"] = bar, met(bar, got)
    if command:
        out["command"] = command
    if note:
        out["note"] = note
    return out


def met(bar, got):
    """Yes, no, or not told by this interval."""
    sense, bound = bar.split()[0], float(bar.split()[1].replace(",", ""))
    ends = [v for v in got if v is not None]
    fits = [v <= bound if sense == "<=" else v >= bound for v in ends]
    return "yes" if all(fits) else "no" if not any(fits) else "open"


def not_run(what, why, command=None):
    return {"what": what, "not_run": why, "command": command}


def scrub(text):
    """Without this machine's paths and its kernel's full name."""
    for path in (BUILD, TOP, tempfile.gettempdir()):
        text = text.replace(path, "...")
    release = os.uname().release
    text = text.replace(release, ".".join(release.split(".")[:2]))
    text = re.sub(r"\x1b\[[0-9;]*m", "", text)
    return re.sub(r"(\.\.\.|/(tmp|root|home|work))/[\w./+-]+", "FILE", text)


def last_line(text):
    lines = [s.strip() for s in text.splitlines() if s.strip()]
    return scrub(lines[-1])[:200] if lines else "it said nothing"


# ---- the work ---------------------------------------------------------------------

class Work:
    """A process of tests/bench/work.c."""

    def __init__(self, library, path):
        self.path = path
        self.p = subprocess.Popen([WORK, library, path], stdin=subprocess.PIPE,
                                  stdout=subprocess.PIPE, text=True, bufsize=1)
        self.pid = self.p.pid
        self.answer(20)

    def answer(self, limit):
        ready, _, _ = select.select([self.p.stdout], [], [], limit)
        line = self.p.stdout.readline() if ready else ""
        if not line:
            raise NotRun("the work ended or did not answer")
        return line.split()

    def ask(self, line, limit=60):
        self.p.stdin.write(line + "\n")
        self.p.stdin.flush()
        return self.answer(limit)

    def ns(self, what, ms=40, bursts=5):
        """ns each: the median of some bursts, so that one interruption does no harm."""
        got = []
        for _ in range(bursts):
            got.append(float(self.ask("%s %g" % (what, ms))[0]))
            time.sleep(0.01)  # for whoever reads what was recorded
        return statistics.median(got)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.p.kill()
        self.p.wait()
        self.p.stdin.close()
        self.p.stdout.close()
        os.unlink(self.path) # it is made anew: work overwrites no file


# ---- tracers ----------------------------------------------------------------------

def quiet_end(p, limit=30):
    if p.poll() is None:
        p.send_signal(signal.SIGINT)
    try:
        p.wait(limit)
    except subprocess.TimeoutExpired:
        p.kill()
        p.wait()
        return False
    return True


@contextlib.contextmanager
def pipetrace(pid, *options, command=()):
    """Traces as long as the block runs; what it is given has the report in .report after."""
    with tempfile.TemporaryDirectory(prefix="pipetrace-bench-") as tmp:
        out = os.path.join(tmp, "out")
        end = ["-o", out] if command else ["--json", out]
        p = subprocess.Popen([PIPETRACE, *command, "-p", str(pid), *end, *options],
                             stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                             stderr=subprocess.PIPE, text=True)
        # not a terminal: it says when it is there
        said, until = "", time.monotonic() + 30
        while "attached to process" not in said:
            ready, _, _ = select.select([p.stderr], [], [], max(0, until - time.monotonic()))
            line = p.stderr.readline() if ready else ""
            if not line:
                quiet_end(p)
                raise NotRun("pipetrace: " + last_line(said))
            said += line
        time.sleep(0.1)
        p.report = None
        try:
            yield p
        finally:
            p.stopped_ns = time.monotonic_ns()
            fine = quiet_end(p)
            said += p.stderr.read()
            p.stderr.close()
        if not fine or p.returncode:
            raise NotRun("pipetrace: " + last_line(said))
        if not command:
            with open(out, encoding="utf-8") as f:
                p.report = json.load(f)


@contextlib.contextmanager
def peer(argv, settle, seen, output=None):
    """Another tracer; NotRun with its last sentence where it ends by itself or saw nothing.
    output: it writes there, else to standard output."""
    with tempfile.TemporaryFile("w+", errors="replace") as out:
        try:
            p = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=out, stderr=out)
        except OSError as e:
            raise NotRun("not installed" if isinstance(e, FileNotFoundError) else
                         str(e)) from None
        try:
            time.sleep(settle)
            if p.poll() is not None:
                out.seek(0)
                raise NotRun(last_line(out.read()))
            yield p
        finally:
            quiet_end(p)
        out.seek(0)
        text = out.read()
        if output and os.path.exists(output):
            with open(output, errors="replace", encoding="utf-8") as f:
                text = f.read()
            os.unlink(output)
        if not re.search(seen, text):
            raise NotRun("it did not see the work: " + last_line(text))
