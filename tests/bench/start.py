#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""What a trace costs before it has seen anything: pipetrace for a second on a process
that sleeps and on a simulated GPU job, and as the agent calls it.

    tests/bench/start.py [--runs N] [--only WORDS] [--against PIPETRACE] [--json FILE]

--against measures another build in turns with this one, and tells the ratio. Prints
median (lowest to highest run); nothing passes or fails here. Needs root and build/.

  CPU       user and system time of the program and all of its children (wait4)
  kernel    the system's part of it
  resident  the largest resident set of any one of them
  attach    start of the program to the begin of the capture
  end       end of the capture to the end of the process: report, and taking all out
  openings  of the kernel's type information, and
  loads     of programs, tries included: counted by strace in one more run, if it is there
"""
import argparse
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.environ.get("BUILD", os.path.join(TOP, "build"))
SECONDS = 1
SLEEP = ["sleep", "100000"]
JOB = [os.path.join(BUILD, "sim/simjob"), "--seconds", "0"]
# As user/agent/sampling.c starts it.
AGENT = ["--print-steps", "4096", "--max-size", "67108864"]
CASES = (("sleeping process", SLEEP, []), ("sleeping process, light", SLEEP, ["--mode", "light"]),
         ("GPU job", JOB, []), ("GPU job, light", JOB, ["--mode", "light"]),
         ("GPU job, by the agent", JOB, AGENT))
FIGURES = (("cpu", "CPU", "ms"), ("kernel", "kernel", "ms"), ("resident", "resident", "MiB"),
           ("attach", "attach", "ms"), ("end", "end", "ms"))


def command(program, pid, options, report):
    return [program, "-p", str(pid), "-d", str(SECONDS), "--json", report] + options


def one(program, pid, options, tmp):
    report = os.path.join(tmp, "report.json")
    null = os.open(os.devnull, os.O_RDWR)
    begin = time.monotonic_ns()
    child = os.posix_spawn(program, command(program, pid, options, report), os.environ,
                           file_actions=[(os.POSIX_SPAWN_DUP2, null, n) for n in range(3)])
    _, status, usage = os.wait4(child, 0)
    end = time.monotonic_ns()
    os.close(null)
    if status:
        raise SystemExit("start: %s failed" % program)
    with open(report) as f:
        cap = json.load(f)["capture"]
    return {"cpu": 1e3 * (usage.ru_utime + usage.ru_stime), "kernel": 1e3 * usage.ru_stime,
            "resident": usage.ru_maxrss / 1024, "attach": (cap["begin_ns"] - begin) / 1e6,
            "end": (end - cap["begin_ns"]) / 1e6 - 1e3 * cap["duration"]}


def counts(program, pid, options, tmp):
    log = os.path.join(tmp, "calls")
    subprocess.run(["strace", "-f", "-o", log, "-e", "trace=open,openat,bpf"] +
                   command(program, pid, options, os.path.join(tmp, "report.json")),
                   stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                   stderr=subprocess.DEVNULL, check=True)
    with open(log, errors="replace") as f:
        text = f.read()
    return (len(re.findall(r'open(?:at)?\([^\n]*"/sys/kernel/btf/vmlinux"', text)),
            len(re.findall(r"bpf\(BPF_PROG_LOAD", text)))


def measure(case, programs, runs, tmp):
    title, job, options = case
    target = subprocess.Popen(job, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                              stderr=subprocess.DEVNULL)
    got = {p: [] for p in programs}
    time.sleep(2)
    try:
        for turn in range(runs):
            for p in programs[::-1] if turn % 2 else programs:
                got[p].append(one(p, target.pid, options, tmp))
        calls = {p: counts(p, target.pid, options, tmp) if shutil.which("strace") else None
                 for p in programs}
    finally:
        target.kill()
        target.wait()
    for p in programs:
        print("%-24s" % title + "".join("%9.0f (%.0f-%.0f)" % (
            statistics.median(r[f] for r in got[p]), min(r[f] for r in got[p]),
            max(r[f] for r in got[p])) for f, _, _ in FIGURES) +
            ("  %d openings, %d loads" % calls[p] if calls[p] else ""))
    if len(programs) > 1:
        ratios = [a["cpu"] / b["cpu"] for a, b in zip(got[programs[1]], got[programs[0]])]
        print("%-24s %.2f (%.2f-%.2f) of the CPU" % ("", statistics.median(ratios),
                                                     min(ratios), max(ratios)))
    return {"case": title, "runs": got, "calls": calls}


def main():
    ap = argparse.ArgumentParser(description="What a trace costs that sees nothing.")
    ap.add_argument("--runs", type=int, default=10)
    ap.add_argument("--only", default="", help="the cases with this in their name")
    ap.add_argument("--against", help="another pipetrace, measured first in each turn")
    ap.add_argument("--json", help="also write the runs there")
    args = ap.parse_args()
    if os.geteuid():
        raise SystemExit("start: needs root")
    programs = [args.against] if args.against else []
    programs.append(os.path.join(BUILD, "pipetrace"))
    print("%d runs of %d s, %d cores, Linux %s" % (args.runs, SECONDS, os.cpu_count(),
                                                   os.uname().release))
    print(" " * 24 + "".join("%20s" % ("%s, %s" % (t, u)) for _, t, u in FIGURES))
    with tempfile.TemporaryDirectory(prefix="pipetrace-start-") as tmp:
        all_of_it = [measure(c, programs, args.runs, tmp) for c in CASES if args.only in c[0]]
    if args.json:
        with open(args.json, "w") as f:
            json.dump(all_of_it, f, indent=1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
