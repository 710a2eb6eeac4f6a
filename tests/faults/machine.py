# SPDX-License-Identifier: BSD-2-Clause
"""Faults of the machine around a trace: full maps and rings, numbers that come again, the
clock of the day, CPUs that come and go."""
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time

from job import LIBCUDART, PIPETRACE, SIMJOB, Child, Job, Skip, breakpoints
from badinput_tools import TOP, bpf_objects, left_behind

CHURN = os.path.join(TOP, "build/tests/e2e/churn")
TARGETS = 16384  # PT_MAX_TARGETS
TRIES = 12


class Trace:
    """pipetrace beside its job, and what it says."""

    def __init__(self, tmp, pid, seconds, *more):
        self.file = os.path.join(tmp, "t-%d.json" % random.getrandbits(40))
        self.p = subprocess.Popen(
            [PIPETRACE, "-p", str(pid), "-d", str(seconds), "--json", self.file, *more],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        self.said = ""

    def attached(self):
        for line in self.p.stderr:
            self.said += line
            if "attached to" in line:
                return self
        raise RuntimeError("not attached: " + self.said)

    def end(self, timeout=90):
        """Its report, or None; what is wrong with its end, or None."""
        try:
            self.said += self.p.communicate(timeout=timeout)[1]
        except subprocess.TimeoutExpired:
            self.p.kill()
            self.p.communicate()
            return None, "the tracer hangs"
        if self.p.returncode:
            return None, "the tracer ended with %d: %s" % (self.p.returncode, self.said[-300:])
        with open(self.file, encoding="utf-8") as f:
            return json.load(f), None


def told(report, what):
    """The limit of that name, as the user reads it."""
    return next((x["reason"] for x in report["capture"]["limits"] if x["what"] == what), None)


def calls(report, name):
    return sum(x["calls"] for x in report["operations"] if x["name"] == name)


def truth(path):
    with open(path, encoding="utf-8") as f:
        return [json.loads(line) for line in f if line.startswith('{"step"') and line.endswith("}\n")]


# ---- full ----------------------------------------------------------------------------

def check_ring(tmp):
    """The tracer is stopped while its job launches: the times of most launches are lost, not
    one from the count."""
    harmed, before, steps, launches = [], bpf_objects(), 400, 2000
    with Child([SIMJOB, "--hold", "--steps", str(steps), "--launches", str(launches),
                "--kernel-us", "1", "--workers", "0", "--items", "1", "--item-cpu-us", "10"],
               stdin=subprocess.PIPE) as job:
        t = Trace(tmp, job.pid, 60).attached()
        job.stdin.write(b"\n")
        job.stdin.flush()
        time.sleep(0.1)
        t.p.send_signal(signal.SIGSTOP)
        status = job.wait(120)
        t.p.send_signal(signal.SIGCONT)
        r, wrong = t.end()
    if wrong:
        return 1, [wrong], left_behind(before, []), ""
    lost, made = r["capture"]["lost"], steps * launches
    seen = calls(r, "cudaLaunchKernel")
    if status:
        harmed.append("the job ended with %d" % status)
    if set(lost["by_cause"]) != {"ring_full"}:
        harmed.append("lost %s" % lost)
    if seen != made:
        harmed.append("%d launches, %d told" % (made, seen))
    if not told(r, "records"):
        harmed.append("nobody is told")
    if any(v["certainty"] == "high" for v in r["verdicts"]):
        harmed.append("surely: %s" % [v["id"] for v in r["verdicts"]])
    return 1, harmed, left_behind(before, []), "%d of %d launches counted; told: \"%s\"" % (
        seen, made, told(r, "records"))


def check_crowd(tmp):
    """More processes than can be followed, when the trace begins and while it runs."""
    harmed, before, first, more = [], bpf_objects(), TARGETS + 100, 50
    with Child([CHURN, "crowd", str(first), str(more)], stdout=subprocess.PIPE) as job:
        pid = int(job.stdout.readline())
        got = int(job.stdout.readline().split()[0])
        if got < first:
            raise Skip("%d processes can be made here, and it takes %d" % (got, first))
        t = Trace(tmp, pid, 20).attached()
        job.send_signal(signal.SIGUSR1)
        got += int(job.stdout.readline().split()[0])
        t.p.send_signal(signal.SIGINT)
        r, wrong = t.end()
        alive = job.poll() is None
    if wrong:
        return 1, [wrong], left_behind(before, []), ""
    if not alive:
        harmed.append("the job ended")
    lost = r["capture"]["lost"]["by_cause"].get("targets_full")
    if lost != got + 1 - TARGETS:
        harmed.append("%d processes, %s not followed, room for %d" % (got + 1, lost, TARGETS))
    if not told(r, "processes"):
        harmed.append("nobody is told")
    return 1, harmed, left_behind(before, []), "told: \"%s\"" % told(r, "processes")


# ---- numbers that come again ---------------------------------------------------------

LAST_PID = "/proc/sys/kernel/ns_last_pid"

# Starts what it is told to, one at a time; its end is asked after with the next line.
PARENT = """
import subprocess, sys
child = None
for line in sys.stdin:
    if line == "ask\\n":
        child.wait()
        print("asked", flush=True)
        continue
    child = subprocess.Popen(line.split(), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                             stderr=subprocess.DEVNULL)
    print(child.pid, flush=True)
"""


class Parent:
    """A job that starts processes, and asks after their end when it is told to."""

    def __init__(self):
        self.child = Child([sys.executable, "-c", PARENT], stdin=subprocess.PIPE,
                           stdout=subprocess.PIPE)

    def __enter__(self):
        self.p = self.child.__enter__()
        return self

    def __exit__(self, *exc):
        self.p.stdin.close()
        self.child.__exit__(*exc)

    def say(self, line):
        self.p.stdin.write((line + "\n").encode())
        self.p.stdin.flush()
        return self.p.stdout.readline().decode().strip()


@contextlib.contextmanager
def stranger(pid):
    """A process of the number `pid`, which nobody has, that uses the GPU: a child of ours."""
    for _ in range(200):
        with open(LAST_PID, "w", encoding="ascii") as f:
            f.write(str(pid - 1))
        with Child([SIMJOB, "--seconds", "600", "--workers", "1", "--items", "4",
                    "--launches", "10"]) as p:
            if p.pid == pid:
                time.sleep(0.3)
                yield p
                return
    raise Skip("the number of an ended process was not handed out again")


def touched(pid):
    """What a tracer did to a process that it was not asked to trace; None: nothing."""
    changed, compared = breakpoints(pid, LIBCUDART)
    if changed or not compared:
        return "break points in %s (of %d)" % (changed[:3], compared)
    with open("/proc/%d/maps" % pid, encoding="utf-8") as f:
        if "pipetrace" in f.read():
            return "an agent is in it"
    return None


def judge_stranger(t, raw, pid, what):
    """Watched for two seconds, then the trace's end and its records are looked at."""
    bad, end = [], time.time() + 2
    while time.time() < end and not bad:
        bad += [x for x in [touched(pid)] if x]
        time.sleep(0.1)
    t.p.send_signal(signal.SIGINT)
    wrong = t.end()[1]
    with open(raw, "rb") as f:
        data = f.read()
    if wrong:
        bad.append(wrong)
    if b"simjob" in data or b"libcudart" in data:
        bad.append("its records are in the trace")
    return ["%s: %s" % (what, x) for x in bad]


def pid_of_worker(tmp, more, zombie, stop):
    """A child of the job ends; its number is taken. `zombie`: it had ended when the trace
    began. `stop`: the tracer sleeps meanwhile."""
    raw = os.path.join(tmp, "raw-%d" % random.getrandbits(40))
    with Parent() as job:
        child = int(job.say("sleep 600"))
        if zombie:
            os.kill(child, signal.SIGKILL)
            time.sleep(0.1)
        t = Trace(tmp, job.p.pid, 30, "--raw-stream", raw, *more).attached()
        if stop:
            t.p.send_signal(signal.SIGSTOP)
        if not zombie:
            os.kill(child, signal.SIGKILL)
        job.say("ask")
        with stranger(child) as other:
            t.p.send_signal(signal.SIGCONT)
            return judge_stranger(t, raw, other.pid, "worker %s" % dict(
                more=more, zombie=zombie, stop=stop))


def pid_of_root(tmp, more, stop_after):
    """Of two processes that are asked for one ends; its number is taken. `stop_after`: the
    tracer was stopped that many seconds after its start, else when it was attached. None: it
    did not know of the process yet."""
    raw = os.path.join(tmp, "raw-%d" % random.getrandbits(40))
    with Parent() as job, Child(["sleep", "600"]) as first:
        t = Trace(tmp, "%d,%d" % (first.pid, job.p.pid), 30, "--raw-stream", raw, *more)
        held = True
        if stop_after is None:
            t.attached()
        else:
            time.sleep(stop_after)
            t.p.send_signal(signal.SIGSTOP)
            held = holds(t.p.pid, first.pid)
        first.kill()
        first.wait()
        if not held:  # as if the stranger had been asked for
            t.p.kill()
            t.p.communicate()
            return None
        with stranger(first.pid) as other:
            t.p.send_signal(signal.SIGCONT)
            what = "process %s, stopped after %s s" % (more, stop_after)
            if stop_after is not None and not wait_attached(t):
                return [] if "is no process" in t.said or "ended" in t.said else [
                    "%s: %s" % (what, t.said[-200:])]
            return judge_stranger(t, raw, other.pid, what)


def holds(tracer, pid):
    """Has it taken hold of the process, so that its number does not matter any more?"""
    for fd in os.listdir("/proc/%d/fdinfo" % tracer):
        with contextlib.suppress(OSError), open("/proc/%d/fdinfo/%s" % (tracer, fd),
                                                encoding="utf-8") as f:
            if "Pid:\t%d\n" % pid in f.read():
                return True
    return False


def wait_attached(t):
    try:
        t.attached()
        return True
    except RuntimeError:
        t.p.wait()
        return False


def check_pids(tmp, few):
    if not os.access(LAST_PID, os.W_OK):
        raise Skip("%s cannot be written" % LAST_PID)
    harmed, before, tried = [], bpf_objects(), 0
    for more in (["--cupti"],) if few else ([], ["--no-uprobe-multi"], ["--cupti"]):
        for zombie, stop in ((False, False), (True, False), (False, True)):
            harmed += pid_of_worker(tmp, more, zombie, stop)
            tried += 1
        harmed += pid_of_root(tmp, more, None)
        tried += 1
    for _ in range(0 if few else TRIES):
        bad = pid_of_root(tmp, random.choice(([], ["--cupti"])), random.uniform(0, 0.8))
        harmed += bad or []
        tried += bad is not None
    return tried, harmed, left_behind(before, []), ""


# ---- the clock of the day ------------------------------------------------------------

@contextlib.contextmanager
def clock_kept():
    """The clock of the day goes on behind it as if it had not been set."""
    day, run = time.time(), time.monotonic()
    try:
        yield lambda by: time.clock_settime(time.CLOCK_REALTIME,
                                            day + time.monotonic() - run + by)
    finally:
        time.clock_settime(time.CLOCK_REALTIME, day + time.monotonic() - run)


def compare_steps(r, log):
    """Steps and their length against the job's own log of that time."""
    c = r["capture"]
    ends = [s["compute_end"] for s in truth(log)
            if c["begin_ns"] <= s["compute_end"] < c["end_ns"]]
    mean = (ends[-1] - ends[0]) / (len(ends) - 1) / 1e6
    bad = []
    if abs(r["steps"]["count"] - len(ends)) > 2:
        bad.append("%d steps for %d" % (r["steps"]["count"], len(ends)))
    if abs(r["steps"]["period_ms"]["mean"] / mean - 1) > 0.01:
        bad.append("steps of %.3f ms for %.3f" % (r["steps"]["period_ms"]["mean"], mean))
    return bad


def check_clock(tmp):
    harmed, before, seconds = [], bpf_objects(), 8
    out = os.path.join(tmp, "clock.ptrace")
    sets = (3600, -3600, 86400, -86400, 0.5, -0.5)
    with Job(tmp) as job:
        t = Trace(tmp, job.p.pid, seconds, "-o", out).attached()
        begin = time.monotonic()
        try:
            with clock_kept() as step:
                for by in sets:
                    step(by)
                    time.sleep(0.5)
        except PermissionError as e:
            t.p.kill()
            t.p.communicate()
            raise Skip("the clock cannot be set: %s" % e) from e
        r, wrong = t.end()
        took = time.monotonic() - begin
        if wrong:
            return len(sets), [wrong], left_behind(before, []), ""
        harmed += [x for x in [job.harm()] if x] + compare_steps(r, job.log)
    d = r["capture"]["duration"]
    if not seconds - 0.1 <= d <= took + 1:
        harmed.append("%.2f s traced, by the report; %d asked for, %.2f taken" % (d, seconds, took))
    if r["capture"]["lost"]["total"]:
        harmed.append("lost %s" % r["capture"]["lost"])
    again = subprocess.run([PIPETRACE, "report", out, "--json", "-"], capture_output=True,
                           check=False, timeout=60)
    same = ("steps", "data_wait", "breakdown", "verdicts")
    if again.returncode or any(json.loads(again.stdout)[k] != r[k] for k in same):
        harmed.append("the recorded file tells something else")
    return len(sets), harmed, left_behind(before, []), "%.2f s and %d steps, as the job has them" % (
        d, r["steps"]["count"])


# ---- CPUs ----------------------------------------------------------------------------

@contextlib.contextmanager
def cpu_kept(online):
    try:
        yield
    finally:
        for _ in range(50):
            with contextlib.suppress(OSError), open(online, "w", encoding="ascii") as f:
                f.write("1")
            with open(online, encoding="ascii") as f:
                if f.read().strip() == "1":
                    break
            time.sleep(0.1)


def check_cpus(tmp):
    """A CPU goes and comes back; then a job maps its GPU library there."""
    online = "/sys/devices/system/cpu/cpu1/online"
    if not os.access(online, os.W_OK):
        raise Skip("there is no second CPU that can be taken offline")
    harmed, before, late_log = [], bpf_objects(), os.path.join(tmp, "late")
    with Job(tmp) as job, Child([SIMJOB, "--hold", "--late", "1", "--seconds", "60", "--workers", "0",
                                 "--items", "1", "--launches", "10", "--truth", late_log],
                                stdin=subprocess.PIPE) as late:
        traces = [Trace(tmp, p.pid, 14).attached() for p in (job.p, late)]
        with cpu_kept(online):
            try:
                with open(online, "w", encoding="ascii") as f:
                    f.write("0")
            except OSError as e:
                for t in traces:
                    t.p.kill()
                    t.p.communicate()
                raise Skip("cpu1 cannot be taken offline: %s" % e) from e
            time.sleep(2.5)
        with open(online, encoding="ascii") as f:
            if f.read().strip() != "1":
                harmed.append("cpu1 DOES NOT COME BACK")
        time.sleep(2.5)
        with contextlib.suppress(OSError):  # which is one more thing that is wrong
            os.sched_setaffinity(late.pid, {1})
        late.stdin.write(b"\n")
        late.stdin.flush()
        (r, wrong), (s, wrong2) = traces[0].end(), traces[1].end()
        harmed += [x for x in (wrong, wrong2, job.harm()) if x]
        if not wrong:
            harmed += compare_steps(r, job.log)
        made = 0
        if not wrong2:
            made = 10 * sum(1 for x in truth(late_log)
                            if x["step"] > 0 and x["compute_end"] <= s["capture"]["end_ns"])
            seen = calls(s, "cudaLaunchKernel")
            if not 0.99 * made <= seen <= made + 20 or not made:
                harmed.append("%d of %d launches by a library that was mapped on it" % (seen, made))
    return 1, harmed, left_behind(before, []), "%d launches by a library that was mapped there " \
        "afterwards, all seen" % made
