#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""The agent watches a job all the time ([watch] when = ...): a planted stall between two samples
becomes evidence with its recording, report and page, one line and one count; a watch that is
killed costs the job and the agent nothing; without the key there is none; nothing is left
behind. Needs root and a build.
"""
import json
import os
import signal
import sys
import tempfile
import time

from agent_tools import Agent, start_job
from badinput_tools import PIPETRACE, SIMJOB, bpf_objects, left_behind, run

SHAPE = "--workers 2 --items 4 --item-cpu-us 300 --kernel-us 1000"
WATCH = "[watch]\nwhen = %s\nkeep = 4s\ncooldown = 1s\njobs = 1\n"
STALL_S = 3.0
results = []


def ok(name, good, detail=""):
    results.append(bool(good))
    print("%s %s%s" % ("ok" if good else "not ok", name, "" if good else ": " + str(detail)),
          flush=True)
    return good


def watches(agent):
    """The processes that watch: {pid: the job that they were given}."""
    return {pid: int(args[args.index(b"-p") + 1]) for pid, args in agent.started().items()
            if args[1:2] == [b"watch"] and b"-p" in args}


def windows(agent):
    return [e for e in agent.page("/evidence")["evidence"] if "watch" in e]


def stall(pid):
    os.kill(pid, signal.SIGSTOP)
    time.sleep(STALL_S)
    os.kill(pid, signal.SIGCONT)


def check_window(agent, tmp):
    kept = agent.until(lambda: [e for e in windows(agent) if "html" in e["bytes"]], 45)
    if not ok("a stall between samples is kept, with a page", kept, agent.text()):
        return
    kept = kept[0]
    ok("... says what was out of the ordinary", "a step of process" in kept["watch"], kept)
    ok("... is counted once", agent.value("pipetrace_watch_windows_total") == 1,
       agent.get("/metrics").decode())
    lines = [line for line in agent.text().splitlines() if kept["id"] in line]
    ok("... and told in one line", len(lines) == 1 and kept["watch"] in lines[0], lines)
    report = json.loads(agent.get("/evidence/%s.json" % kept["id"]))
    ok("the report names it, too", report["labels"]["watch"] == kept["watch"], report["labels"])
    path = os.path.join(tmp, "served.ptrace")
    with open(path, "wb") as f:
        f.write(agent.get("/evidence/%s.ptrace" % kept["id"]))
    again = run(["report", path, "--json", "-", "--print-steps", "1000000"], limit=60)
    longest = max(s["period_ms"] for s in json.loads(again.out)["steps"]["list"])
    ok("the stall is in the recording", longest >= 500 * STALL_S, longest)


def check(agent, tmp, jobs):
    by_pid = agent.until(lambda: len(watches(agent)) == 1 and watches(agent), 60)
    if not ok("one job of two is watched, as configured", by_pid, agent.text()):
        return
    child, pid = by_pid.popitem()
    ok("it is one of ours", pid in [j.pid for j in jobs], pid)
    ok("... and that is told", agent.until(
        lambda: agent.value("pipetrace_agent_watches") == 1, 20), agent.get("/metrics").decode())
    time.sleep(8)  # 20 steps, and what is usual
    stall(pid)
    check_window(agent, tmp)
    os.kill(child, signal.SIGKILL)
    ok("a watch that was killed is told of", agent.until(
        lambda: "the watch of job" in agent.text(), 20), agent.text())
    ok("... and its CPU time stays counted",
       agent.value("pipetrace_agent_watch_cpu_seconds_total") > 0, agent.get("/metrics").decode())
    other = agent.until(lambda: watches(agent), 20)
    ok("the other job is watched now", other and list(other.values()) != [pid], other)
    agent.configure(otlp="")
    agent.proc.send_signal(signal.SIGHUP)
    ok("without conditions nothing is watched",
       agent.until(lambda: not watches(agent), 20), watches(agent))
    ok("... and no metric of it is there", agent.until(
        lambda: agent.value("pipetrace_agent_watches") is None, 20))
    ok("the window is still evidence", len(windows(agent)) == 1, windows(agent))
    agent.configure(otlp=WATCH % "step > 3x median")
    agent.proc.send_signal(signal.SIGHUP)
    ok("the key starts them again", agent.until(lambda: watches(agent), 20), agent.text())


def main():
    if os.geteuid() != 0:
        print("needs root")
        return 77
    if not os.access(PIPETRACE, os.X_OK) or not os.access(SIMJOB, os.X_OK):
        print("build/pipetrace is not built")
        return 1
    before = bpf_objects()
    with tempfile.TemporaryDirectory(prefix="pipetrace-agent-") as tmp:
        agent = Agent(tmp, interval="20s", sample="1s",
                      otlp=WATCH % "step > 1500ms, worker silent > 50s")
        jobs = [start_job(tmp, name, SHAPE, 290)[0] for name in ("one", "two")]
        try:
            time.sleep(1)
            if ok("it starts", agent.start(), agent.text()):
                check(agent, tmp, jobs)
                children = agent.children()
                status, took = agent.end()
                ok("SIGTERM ends it in 5 s, with its watches", status == 0 and took < 5 and not
                   [p for p in children if os.path.exists("/proc/%d" % p)], (status, took))
                left = left_behind(before, [agent.proc.pid])
                ok("no BPF object is left", not left, left)
                odd = [f for f in os.listdir(os.path.join(tmp, "state/evidence"))
                       if f.startswith(".")]
                ok("nor a folder of a watch", not odd, odd)
            ok("the jobs never noticed", all(j.poll() is None for j in jobs))
        finally:
            agent.close()
            for job in jobs:
                job.terminate()
                job.wait()
    failed = results.count(False)
    print("%d passed, %d failed, 0 skipped" % (len(results) - failed, failed))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
