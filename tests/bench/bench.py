#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""How fast pipetrace attaches, reports and lets go, and what it costs.

    tests/bench/bench.py [--runs N] [--seconds S] [--job torch|sim] [--quiet]
                         [--perf-door] [--json FILE]

pipetrace gets a terminal, so that its live line with the provisional verdict is
part of the cost; --quiet measures without it. --perf-door hooks GPU calls as on
kernels before 6.6.

Prints a table; nothing passes or fails here. Needs root, build/pipetrace, and
for the torch job the distribution's python3-torch. Times:

  attach   start of the program to the first record of the target (the report's
           capture.begin_ns, when every hook is open and every thread seeded)
  stop     SIGINT to the last byte of the diagnosis on standard output
  detach   SIGINT to the end of the process
  CPU      of the tracer, user and system, while it traced, as a share of one
           core: from the kernel's accounting (wait4), start-up included
  steady   the same without start-up and report: /proc/PID/stat at two moments
           inside the capture
  rss      the tracer's largest resident set
"""
import argparse
import json
import os
import re
import select
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PIPETRACE = os.path.join(TOP, "build/pipetrace")
SIMJOB = os.path.join(TOP, "build/sim/simjob")
TORCH_JOB = os.path.join(TOP, "tests/e2e/torch_job.py")
PYTHON = "/usr/bin/python3"
TICK = os.sysconf("SC_CLK_TCK")


def torch_works():
    return os.path.exists(TORCH_JOB) and subprocess.run(
        [PYTHON, "-c", "import torch"], stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL).returncode == 0


def start_job(kind, seconds):
    """A running job in steady state."""
    if kind == "torch":
        job = subprocess.Popen([PYTHON, TORCH_JOB, "--workers", "2", "--cpu-ms-per-item", "15",
                                "--jitter", "0.2", "--seconds", str(seconds)],
                               stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                               stderr=subprocess.DEVNULL)
        ready, _, _ = select.select([job.stdout], [], [], 60)
        line = job.stdout.readline() if ready else b""
        m = re.match(rb"READY (\d+)", line)
        if not m:
            job.kill()
            job.wait()
            raise SystemExit("bench: the torch job did not get ready: %r" % line)
        return job, int(m.group(1))
    job = subprocess.Popen([SIMJOB, "--workers", "2", "--seconds", str(seconds)],
                           stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                           stderr=subprocess.DEVNULL)
    time.sleep(2.0)
    return job, job.pid


def cpu_seconds(pid):
    with open("/proc/%d/stat" % pid, "rb") as f:
        fields = f.read().rsplit(b")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICK


def drain(fd, into):
    try:
        while True:
            data = os.read(fd, 4096)
            if not data:
                break
            into.append(data)
    except OSError:  # the other end is closed
        pass
    os.close(fd)


def one_run(pid, seconds, tmp, options):
    report = os.path.join(tmp, "report.json")
    said = []
    out_r, out_w = os.pipe()
    err_r, err_w = os.openpty()
    begin = time.monotonic_ns()
    proc = subprocess.Popen([PIPETRACE, "-p", str(pid), "--json", report] +
                            options, stdin=subprocess.DEVNULL, stdout=out_w, stderr=err_w)
    os.close(out_w)
    os.close(err_w)
    # A terminal that nobody reads would stop its writer.
    reader = threading.Thread(target=drain, args=(err_r, said), daemon=True)
    reader.start()
    # Two readings well inside the capture.
    time.sleep(min(2.0, seconds / 4))
    cpu0, t0 = cpu_seconds(proc.pid), time.monotonic()
    time.sleep(max(seconds - 2 * min(2.0, seconds / 4), 1.0))
    cpu1, t1 = cpu_seconds(proc.pid), time.monotonic()
    stop = time.monotonic_ns()
    proc.send_signal(signal.SIGINT)
    last = stop
    while True:
        ready, _, _ = select.select([out_r], [], [], 60)
        data = os.read(out_r, 65536) if ready else b""
        if not data:
            break
        last = time.monotonic_ns()
    os.close(out_r)
    _, status, usage = os.wait4(proc.pid, 0)
    end = time.monotonic_ns()
    proc.returncode = os.waitstatus_to_exitcode(status)
    reader.join(5)
    if proc.returncode != 0:
        raise SystemExit("bench: pipetrace failed: " +
                         b"".join(said).decode("utf-8", "replace")[-500:])
    with open(report) as f:
        rep = json.load(f)
    cap = rep["capture"]
    wall = (end - begin) / 1e9
    return {
        "attach_ms": (cap["begin_ns"] - begin) / 1e6,
        "stop_ms": (last - stop) / 1e6,
        "detach_ms": (end - stop) / 1e6,
        "cpu_share": (usage.ru_utime + usage.ru_stime) / wall,
        "steady_share": (cpu1 - cpu0) / (t1 - t0),
        "rss_mib": usage.ru_maxrss / 1024,
        "events_per_s": cap["events"] / cap["duration"],
        "lost": cap["lost"]["total"],
        "steps": rep["steps"]["count"] or 0,
        "doors": {n: h if isinstance(h, str) else h.get("door") for n, h in cap["hooks"].items()},
    }


ROWS = (("attach_ms", "attach to first record", "ms", 1), ("stop_ms", "stop to report", "ms", 1),
        ("detach_ms", "stop to process end", "ms", 1), ("cpu_share", "tracer CPU, whole run", "%", 100),
        ("steady_share", "tracer CPU, steady", "%", 100), ("rss_mib", "tracer memory", "MiB", 1),
        ("events_per_s", "records per second", "1/s", 1), ("lost", "records lost", "", 1),
        ("steps", "steps seen", "", 1))


def main():
    ap = argparse.ArgumentParser(description="Measure pipetrace on a running job.")
    ap.add_argument("--runs", type=int, default=5)
    ap.add_argument("--seconds", type=float, default=10)
    ap.add_argument("--job", choices=("torch", "sim"))
    ap.add_argument("--quiet", action="store_true", help="without the live line")
    ap.add_argument("--perf-door", action="store_true", help="without multi-uprobe links")
    ap.add_argument("--json", help="also write the runs there")
    args = ap.parse_args()
    if os.geteuid() != 0:
        raise SystemExit("bench: needs root")
    if not os.path.exists(PIPETRACE):
        raise SystemExit("bench: build/pipetrace is not built")
    options = (["--quiet"] if args.quiet else []) + (
        ["--no-uprobe-multi"] if args.perf_door else [])
    kind = args.job or ("torch" if torch_works() else "sim")

    job, pid = start_job(kind, int(args.runs * (args.seconds + 5)) + 30)
    runs = []
    try:
        with tempfile.TemporaryDirectory(prefix="pipetrace-bench-") as tmp:
            for _ in range(args.runs):
                runs.append(one_run(pid, args.seconds, tmp, options))
    finally:
        job.terminate()
        try:
            job.wait(10)
        except subprocess.TimeoutExpired:
            job.kill()
            job.wait()

    print("%s job, %d runs of %g s, %s, %d cores, Linux %s" % (
        kind, args.runs, args.seconds, "quiet" if args.quiet else "with the live line", os.cpu_count(), os.uname().release))
    print("doors: " + ", ".join("%s %s" % d for d in runs[0]["doors"].items()))
    print("%-26s %10s %10s %10s" % ("", "median", "min", "max"))
    for key, label, unit, scale in ROWS:
        values = [r[key] * scale for r in runs]
        print("%-26s %10.1f %10.1f %10.1f  %s" % (
            label, statistics.median(values), min(values), max(values), unit))
    if args.json:
        with open(args.json, "w") as f:
            json.dump({"job": kind, "seconds": args.seconds, "runs": runs}, f, indent=1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
