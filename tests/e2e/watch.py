#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""`pipetrace watch` on a live job with planted stalls: each is saved, while it runs or when it
is over, and nothing else; the saved recording gives the saved report; what cannot be saved
costs windows, not the job and not the watch; nothing is left behind.

    tests/e2e/watch.py [--minutes M [--stalls N]]

With --minutes the campaign: N stalls (10) in M minutes, and the CPU time and memory that it
took beside that of a light trace of the same job.

Needs root and a build with `make e2e`. Ends with "N passed, N failed, N skipped".
"""
import argparse
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time

from badinput_tools import PIPETRACE, SIMJOB, TOP, Child, bpf_objects, descendants, left_behind, run

# Steps of 20 ms by the device; what counts as a stall no busy machine makes by itself.
JOB = [SIMJOB, "--workers", "2", "--items", "4", "--item-cpu-us", "300", "--kernel-us", "1000"]
WHEN = "step > 1500ms"
STALL_S = 3.0
FILES = ["report.json", "report.txt", "window.ptrace"]
TICK = os.sysconf("SC_CLK_TCK")

results = {"ok": 0, "not ok": 0, "skip": 0}


def ok(name, good, detail=""):
    results["ok" if good else "not ok"] += 1
    print("%s %s%s" % ("ok" if good else "not ok", name, "" if good else ": %s" % (detail,)),
          flush=True)
    return good


class Watch:
    """The program, and what it says line by line."""

    def __init__(self, pid, out, *args):
        self.lines, self.more = [], threading.Condition()
        self.p = subprocess.Popen([PIPETRACE, "watch", "-p", str(pid), "-o", out] + list(args),
                                  stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                  stderr=subprocess.PIPE, text=True)
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self):
        for line in self.p.stderr:
            with self.more:
                self.lines.append(line.strip())
                self.more.notify_all()

    def said(self, pattern):
        return [line for line in self.lines if re.search(pattern, line)]

    def wait_for(self, pattern, n=1, limit=20.0):
        """Until so many lines say it."""
        end = time.monotonic() + limit
        with self.more:
            while len(self.said(pattern)) < n and time.monotonic() < end:
                self.more.wait(0.2)
            return len(self.said(pattern)) >= n

    def end(self, sig=None, limit=30.0):
        if sig:
            self.p.send_signal(sig)
        try:
            self.p.wait(limit)
        except subprocess.TimeoutExpired:
            self.p.kill()
            self.p.wait()
            return None
        self.reader.join(5)
        return self.p.returncode


@contextlib.contextmanager
def job(seconds):
    with Child(JOB + ["--seconds", str(seconds)]) as target:
        end = time.monotonic() + 10
        while time.monotonic() < end and len(descendants(target.pid)) < 2:
            time.sleep(0.05)
        yield target


def stall(pids, seconds=STALL_S):
    """A planted stall: they stand still."""
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    time.sleep(seconds)
    for pid in pids:
        os.kill(pid, signal.SIGCONT)


@contextlib.contextmanager
def full_disk(tmp):
    place = os.path.join(tmp, "full")
    os.mkdir(place)
    mounted = not subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8k", "none", place],
                                 check=False, stderr=subprocess.DEVNULL).returncode
    try:
        yield place if mounted else None
    finally:
        if mounted:
            subprocess.run(["umount", place], check=False)


def check_window(name, path):
    """One that was saved: the report is the recording's, and shows the stall."""
    ok("%s: its files" % name, sorted(os.listdir(path)) == FILES, os.listdir(path))
    ok("%s: nobody else may read them" % name, not any(
        os.stat(os.path.join(path, f)).st_mode & 0o077 for f in FILES + ["."]))
    with open(os.path.join(path, "report.json"), encoding="utf-8") as f:
        text = f.read()
    report = json.loads(text)
    again = run(["report", os.path.join(path, "window.ptrace"), "--json", "-",
                 "--print-steps", "1000000"], limit=60)
    ok("%s: the recording gives the report" % name, again.status == 0 and again.out == text,
       again.describe())
    with open(os.path.join(path, "report.txt"), encoding="utf-8") as f:
        words = f.readline()
    ok("%s: says why it was saved" % name, words.startswith("pipetrace watch: 2") and
       report["labels"].get("watch") in words, (words, report["labels"]))
    return report


def longest_ms(report):
    """Of its steps, the first and the one that still ran among them."""
    return max([s["period_ms"] for s in report["steps"]["list"]] + [0])


def check_live(tmp):
    before = bpf_objects()
    out = os.path.join(tmp, "out")
    kept = ["20250102T030405Z-step", "20250102T030406Z-step"]   # of an earlier run
    for name, file in zip(kept, ("report.txt", "notes.txt")):
        os.makedirs(os.path.join(out, name))
        with open(os.path.join(out, name, file), "w", encoding="ascii"):
            pass
    with job(120) as target, full_disk(tmp) as full:
        pid = str(target.pid)
        w = Watch(pid, out, "--when", WHEN, "--when", "worker silent > 50s", "--keep", "7s",
                  "--cooldown", "1s", "--max-windows", "2")
        f = Watch(pid, full, "--when", WHEN, "--keep", "4s", "--cooldown", "1s") if full else None
        ok("it knows the steps", w.wait_for("the median is"), w.lines)
        if f:
            f.wait_for("the median is")
        time.sleep(1)
        stall([descendants(target.pid)[0][0]])      # a worker
        ok("a stall is saved", w.wait_for("(took|has run for) [2-9].*: saved "), w.lines)
        stall([target.pid])                         # the trainer
        ok("another one", w.wait_for(": saved ", 2), w.lines)
        if f:
            ok("a full disk costs the windows, a line each", f.wait_for("not saved: .*space", 2),
               f.lines)
            ok("that watch goes on", f.p.poll() is None)
        os.kill(target.pid, signal.SIGSTOP)         # one that does not end
        ok("one that runs still is saved", w.wait_for(": saved ", 3) and
           "has run for" in w.lines[-1], w.lines)
        os.kill(target.pid, signal.SIGCONT)
        time.sleep(2)
        status = w.end(signal.SIGTERM)
        ok("ended by a signal", status == 0 and w.lines[-1].endswith("windows saved: 3"),
           (status, w.lines))
        ok("the job goes on", target.poll() is None)
        if f:
            target.send_signal(signal.SIGTERM)
            status = f.end()
            ok("the job's end ends it, with status 1 for what was lost", status == 1 and
               f.lines[-1].endswith("windows saved: 0"), (status, f.lines))
            ok("nothing is left on the full disk", not os.listdir(full), os.listdir(full))
        else:
            results["skip"] += 1
            print("skip full disk: no tmpfs can be mounted here")
    ok("one line for each", len(w.said(": saved ")) == 3 and len(w.lines) == 6, w.lines)
    names = sorted(os.listdir(out))
    ok("what an earlier run left went, but for somebody else's", names[:1] == kept[1:], names)
    names = names[1:]
    ok("the oldest window went", len(names) == 2 and all(
        re.fullmatch(r"\d{8}T\d{6}Z-step", n) for n in names), names)
    for name, least in zip(names, (STALL_S * 900, 1500)):
        report = check_window(name, os.path.join(out, name))
        ok("%s: the stall is in it" % name, longest_ms(report) >= least, longest_ms(report))
        ok("%s: and what was before it" % name, report["steps"]["count"] >= 10 and
           6 < report["capture"]["duration"] < 15, report["steps"]["count"])
    left = left_behind(before, [])
    ok("nothing is left in the kernel", not left, left)


def check_refused(tmp):
    out = os.path.join(tmp, "no")
    for args, word in ((["--when", "step > 3"], "'step > 3x median'"), ([], "-o DIR"),
                       (["--when", "wait > 200%"], "'wait > 20%'"), (["--keep", "1h"], "--keep")):
        r = run(["watch", "-p", str(os.getpid())] + args + (["-o", out] if args else []))
        ok("refused: %s" % " ".join(args), r.status == 2 and len(r.lines) == 1 and word in r.err,
           r.describe())
    with open(os.path.join(tmp, "file"), "w", encoding="ascii"):
        pass
    r = run(["watch", "-p", str(os.getpid()), "-o", os.path.join(tmp, "file")])
    ok("refused: a file for a folder", r.status == 1 and len(r.lines) == 1, r.describe())
    ok("and nothing was made", not os.path.exists(out))


# ---- the campaign ----------------------------------------------------------------

def cpu_s(pid):
    """Of a process, and of its children that have ended, s."""
    with open("/proc/%d/stat" % pid, encoding="ascii") as f:
        fields = [int(x) for x in f.read().rsplit(")", 1)[1].split()[11:15]]
    return sum(fields[:2]) / TICK, sum(fields[2:]) / TICK


def rss_mib(pid):
    with open("/proc/%d/status" % pid, encoding="ascii") as f:
        return int(re.search(r"VmRSS:\s+(\d+)", f.read()).group(1)) / 1024


def campaign(tmp, minutes, stalls):
    out = os.path.join(tmp, "out")
    every = minutes * 60 / (stalls + 1)
    with job(minutes * 60 + 120) as target:
        w = Watch(target.pid, out, "--when", WHEN, "--keep", "%ds" % min(30, every / 2),
                  "--cooldown", "%ds" % min(60, every * 0.6), "--max-windows", "1000")
        light = subprocess.Popen([PIPETRACE, "-p", str(target.pid), "--mode", "light"],
                                 stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                 stderr=subprocess.DEVNULL)
        ok("it knows the steps", w.wait_for("the median is"), w.lines)
        begin, memory, cpu = time.monotonic(), [], [cpu_s(w.p.pid) + cpu_s(light.pid)]
        for i in range(stalls):
            while time.monotonic() < begin + (i + 1) * every:
                time.sleep(1)
                memory.append(rss_mib(w.p.pid))
            workers = [p for p, _ in descendants(target.pid)]
            stall([target.pid] if i % 2 else workers[:1])
        while time.monotonic() < begin + minutes * 60:
            time.sleep(1)
            memory.append(rss_mib(w.p.pid))
        cpu.append(cpu_s(w.p.pid) + cpu_s(light.pid))
        light.send_signal(signal.SIGINT)
        status = w.end(signal.SIGINT, 90)
        light.wait(120)
        ok("the job goes on", target.poll() is None)
    names = os.listdir(out)
    ok("%d stalls: %d windows, none else" % (stalls, len(names)), status == 0 and
       len(names) == stalls == len(w.said(": saved ")), w.lines)
    for name in sorted(names):
        ok("%s: the stall is in it" % name, longest_ms(check_window(
            name, os.path.join(out, name))) >= STALL_S * 900)
    took = [b - a for a, b in zip(*cpu)]
    print("CPU: watch %.2f s and %.2f s for its windows; a light trace %.2f s" % tuple(took[:3]))
    ok("no more CPU than a light trace", took[0] + took[1] <= took[2], took)
    half = len(memory) // 2
    print("memory: %.1f MiB in the first half at most, %.1f in the second"
          % (max(memory[:half]), max(memory[half:])))
    ok("memory is flat", max(memory[half:]) <= 1.1 * max(memory[:half]), memory[::60])


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--minutes", type=float)
    p.add_argument("--stalls", type=int, default=10)
    args = p.parse_args()
    if os.geteuid() != 0:
        print("needs root")
        return 77
    for name in (PIPETRACE, SIMJOB):
        if not os.path.exists(name):
            print("%s is not built (make)" % os.path.relpath(name, TOP))
            return 77
    with tempfile.TemporaryDirectory(prefix="pipetrace-watch-") as tmp:
        if args.minutes:
            campaign(tmp, args.minutes, args.stalls)
        else:
            check_refused(tmp)
            check_live(tmp)
    print("%d passed, %d failed, %d skipped" % tuple(results[k] for k in ("ok", "not ok", "skip")))
    return 1 if results["not ok"] else 0


if __name__ == "__main__":
    sys.exit(main())
