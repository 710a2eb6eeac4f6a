#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""The agent on three live jobs: one healthy, one that starves, one with a slow worker.
What it says is compared with the jobs' own logs; it is told to reload, its samples and
itself are killed, and nothing may be left of either. Needs root and a build.
"""
import json
import os
import shutil
import signal
import sys
import tempfile
import time

from agent_tools import Agent, Collector, collect, slowest, start_job, wait_share
from badinput_tools import LIBCUDART, PIPETRACE, SIMJOB, bpf_objects, left_behind, run

results = []
SAMPLE_S = 2


def ok(name, good, detail=""):
    results.append(bool(good))
    print("%s %s%s" % ("ok" if good else "not ok", name, "" if good else ": " + str(detail)),
          flush=True)
    return good


SHAPES = {
    "healthy": "--workers 2 --items 8 --item-cpu-us 10 --launches 20 --kernel-us 1000",
    "starved": "--workers 2 --items 16 --item-cpu-us 0 --item-sleep-us 3000 --launches 4 "
               "--kernel-us 200",
    "slow": "--workers 3 --items 16 --item-cpu-us 10 --item-sleep-us 300 --slow-worker 1:8 "
            "--launches 10 --kernel-us 100",
}
SLURM = {"SLURM_JOB_ID": "4711", "SLURM_STEP_ID": "0", "SLURM_PROCID": "3", "SLURM_NTASKS": "16"}


def sampled(agent, jobs, at_least=1):
    def look():
        now = agent.jobs()
        mine = [now.get(j.pid) for j in jobs.values()]
        return all(j and j["samples"] >= at_least for j in mine) and now
    return agent.until(look, 60)  # a busy machine attaches slowly


def verdicts(job):
    return {v["id"]: v["severity"] for v in job["verdicts"] or []}


def judge(agent, jobs, logs):
    now = sampled(agent, jobs)
    if not ok("every job is sampled", now, agent.text()):
        return
    said = {name: verdicts(now[j.pid]) for name, j in jobs.items()}
    share = {name: wait_share(log) for name, log in logs.items()}
    ok("the healthy job waits for nothing, by its log", share["healthy"] < 0.1, share)
    ok("... and so it is told", not set(said["healthy"]) & {"gpu_starved", "slow_worker"} and
       "critical" not in said["healthy"].values(), said["healthy"])
    ok("the starved job waits, by its log", share["starved"] > 0.5, share)
    ok("... and so it is told", said["starved"].get("gpu_starved") == "critical",
       said["starved"])
    ratio = slowest(logs["slow"])
    ok("one worker is slow, by its job's log", ratio > 3 and share["slow"] > 0.3,
       (ratio, share))
    ok("... and so it is told", "slow_worker" in said["slow"], said["slow"])
    labels(agent, jobs)
    counters(agent, jobs)


def labels(agent, jobs):
    # what is served may be a second old
    def info():
        return {int(dict(l)["pid"]): dict(l) for (n, l) in agent.metrics()
                if n == "pipetrace_job_info"}
    mine = info().get(jobs["slow"].pid, {})
    ok("rank, world and Slurm's job are labels, by the environment",
       (mine.get("rank"), mine.get("world_size"), mine.get("slurm_job")) == ("3", "16", "4711"), mine)
    ok("the group is Slurm's job and step", mine.get("group") == "slurm:4711.0", mine)
    ok("user and free labels are there", mine.get("user") == "root" and
       mine.get("cluster") == "test", mine)
    ok("nothing else is sampled", set(info()) == {j.pid for j in jobs.values()}, info())


def counters(agent, jobs):
    for name, job in jobs.items():
        mine = agent.jobs()[job.pid]
        low = mine["samples"] * SAMPLE_S * 0.9
        ok("%s: what was seen is samples times their length" % name,
           low < mine["observed_s"] < mine["samples"] * (SAMPLE_S + 3), mine)
        ok("%s: it stands for more than was seen" % name,
           mine["observed_s"] <= mine["covered_s"] + 1e-6, mine)
    failed = [j["failed"] for j in agent.jobs().values()]
    ok("no sample failed", not any(failed), agent.text())


def evidence(agent, jobs):
    ids = {j["pid"]: j["job"] for j in agent.jobs().values()}

    def listed():
        rows = [e for e in agent.page("/evidence")["evidence"]
                if e["job"] == ids[jobs["starved"].pid] and "html" in e["bytes"]]
        return rows and rows[0]
    kept = agent.until(listed, 20)
    if not ok("the starved job's sample is kept, with a page", kept, agent.text()):
        return
    ok("... with its verdict", "gpu_starved" in [v["id"] for v in kept["verdicts"]], kept)
    report = json.loads(agent.get("/evidence/%s.json" % kept["id"]))
    ok("the report is served", report["target"]["pid"] == jobs["starved"].pid, report["target"])
    page = agent.get("/evidence/%s.html" % kept["id"])
    ok("the page is served", page[:15].lower() == b"<!doctype html>", page[:40])
    recording = os.path.join(agent.tmp, "served.ptrace")
    with open(recording, "wb") as f:
        f.write(agent.get("/evidence/%s.ptrace" % kept["id"]))
    again = run(["report", recording, "--json", "-"])
    ok("the recording is served, and gives the same verdicts", again.status == 0 and
       [v["id"] for v in json.loads(again.out)["verdicts"]] ==
       [v["id"] for v in report["verdicts"]], again.describe())
    folder = os.path.join(agent.tmp, "state/evidence")
    modes = {os.stat(os.path.join(folder, f)).st_mode & 0o777 for f in os.listdir(folder)}
    ok("nobody else can read it", modes == {0o600} and
       os.stat(folder).st_mode & 0o777 == 0o700, modes)
    return kept["id"]


def pushed(agent, kept):
    """A change of a verdict is told with its evidence, and metrics come by themselves."""
    def told():
        return [b for path, b in Collector.got if path == "/v1/logs" and b"gpu_starved" in b]
    ok("a record tells of gpu_starved", agent.until(told, 10), len(Collector.got))
    ok("... and names what is kept of it", any((kept or "?").encode() in b for b in told()), kept)
    ok("metrics are pushed", any(path == "/v1/metrics" and b"pipetrace" in b
                                 for path, b in Collector.got), len(Collector.got))


def first_kept(agent, jobs):
    """The first sample of the starved job that was kept."""
    ids = {j["pid"]: j["job"] for j in agent.jobs().values()}
    rows = [e["id"] for e in agent.page("/evidence")["evidence"]
            if e["job"] == ids[jobs["starved"].pid]]
    return rows and rows[-1]


def reload(agent):
    with open(agent.conf, "a", encoding="ascii") as f:
        f.write("[agent]\nspeed = 11\n")
    at = len(agent.text())
    agent.proc.send_signal(signal.SIGHUP)
    agent.until(lambda: "stays as it was" in agent.text(at), 5)
    ok("a bad configuration is refused in one line that names it",
       "<3>" in agent.text(at) and "agent.conf:" in agent.text(at) and
       "speed" in agent.text(at), agent.text(at))
    ok("... and the old one is still there",
       agent.value("pipetrace_job_info", cluster="test") is not None, agent.get("/metrics"))
    agent.configure(label="other")
    agent.proc.send_signal(signal.SIGHUP)
    ok("a good one is taken", agent.until(
        lambda: agent.value("pipetrace_job_info", cluster="other"), 5), agent.text(at))


def budget(agent):
    """1 % of a core is less than three jobs every 6 s take."""
    grown = agent.until(lambda: agent.value("pipetrace_agent_interval_seconds") > 6, 45)
    ok("over its budget it samples less often", grown, agent.text())
    ok("... and says so once", "<4>pipetrace: sampling took" in agent.text(), agent.text())


def kill_sample(agent):
    # at its end it may have its report written, and then counts
    child = agent.sampling(30, begins=True)
    if not ok("a sample runs", child, agent.text()):
        return
    before = agent.value("pipetrace_agent_jobs")
    os.kill(child, signal.SIGKILL)
    failed = agent.until(lambda: sum(j["failed"] for j in agent.jobs().values()), 10)
    ok("a sample that was killed is counted as failed", failed == 1, failed)
    ok("... and the agent goes on", agent.value("pipetrace_agent_jobs") == before, agent.text())


def kill_job(agent, tmp):
    """A job that dies in its sample: what was seen counts, nothing failed."""
    job, _ = start_job(tmp, "dies", SHAPES["starved"], 100)
    try:
        hit = agent.until(lambda: agent.attached(job.pid), 60)
        time.sleep(SAMPLE_S * 0.5)
    finally:
        job.kill()
        job.wait()
    ok("a fourth job is found and sampled", hit, agent.text())

    def over():
        mine = agent.jobs().get(job.pid)
        return mine and mine["ended"] and not mine["sampling"] and mine
    mine = agent.until(over, 15)
    ok("its end in a sample is no failure, and what was seen counts",
       mine and mine["failed"] == 0 and 0.2 < mine["observed_s"], mine)


def kill_agent(agent, jobs, kept, before):
    child = agent.sampling(30)
    old = {j["pid"]: j for j in agent.jobs().values()}
    agent.proc.kill()
    agent.proc.wait()
    end = time.monotonic() + 5
    while child and os.path.exists("/proc/%d" % child) and time.monotonic() < end:
        time.sleep(0.05)
    ok("killed in a sample, it takes that along", child and
       not os.path.exists("/proc/%d" % child), child)
    left = left_behind(before, [agent.proc.pid])
    ok("... and every BPF object", not left, left)
    agent.configure(cpu="1")
    if not ok("it starts again", agent.start(), agent.text()):
        return
    now = sampled(agent, jobs)
    ok("the jobs have the names that they had",
       now and all(now[j.pid]["job"] == old[j.pid]["job"] for j in jobs.values()), now)
    ok("counters begin anew", now and all(now[j.pid]["samples"] <= 2 for j in jobs.values()), now)
    rows = [e["id"] for e in agent.page("/evidence")["evidence"]]
    ok("the evidence is still listed", kept in rows, rows)


def stop(agent, before):
    agent.configure(cpu="100")
    agent.proc.send_signal(signal.SIGHUP)
    agent.sampling(15)
    children = agent.children()
    status, took = agent.end()
    ok("SIGTERM ends it in 5 s, in a sample", status == 0 and took < 5, (status, took))
    ok("no process is left", not [p for p in children if os.path.exists("/proc/%d" % p)],
       children)
    left = left_behind(before, [agent.proc.pid])
    ok("no BPF object is left", not left, left)
    folder = os.path.join(agent.tmp, "state/evidence")
    odd = [f for f in os.listdir(folder) if f.startswith(".")]
    ok("no half of a file is left", not odd, odd)
    said = agent.said
    ok("its manager was told", any(s.startswith("READY=1") for s in said) and
       "WATCHDOG=1" in said and said[-1] == "STOPPING=1", said[-3:])


def main():
    if os.geteuid() != 0:
        print("needs root")
        return 77
    if not os.access(PIPETRACE, os.X_OK) or not os.access(SIMJOB, os.X_OK):
        print("build/pipetrace is not built")
        return 1
    before = bpf_objects()
    jobs, logs = {}, {}
    with tempfile.TemporaryDirectory(prefix="pipetrace-agent-") as tmp:
        server = collect()
        agent = Agent(tmp, otlp="[otlp]\nendpoint = http://127.0.0.1:%d\ninterval = 2s\n"
                      % server.server_port)
        try:
            gone = os.path.join(tmp, "gone")
            os.mkdir(gone)
            for path in (SIMJOB, LIBCUDART):
                shutil.copy(path, gone)
            for name, shape in SHAPES.items():
                env = dict(os.environ, **(SLURM if name == "slow" else {}))
                program = os.path.join(gone, "simjob") if name == "starved" else SIMJOB
                jobs[name], logs[name] = start_job(tmp, name, shape, 290, env, program)
            time.sleep(1)
            # as in a container, or behind an update: what is mapped has no name any
            # more, and only the kept capabilities open it
            shutil.rmtree(gone)
            if not ok("it starts", agent.start(), agent.text()):
                return 1
            judge(agent, jobs, logs)
            open_at_first = agent.fewest()
            kept = evidence(agent, jobs)
            pushed(agent, first_kept(agent, jobs))
            kill_sample(agent)
            kill_job(agent, tmp)
            # two samples that run have three each
            last = agent.fewest()
            ok("no descriptor is left of all that", last <= open_at_first + 6,
               (open_at_first, last))
            reload(agent)
            kill_agent(agent, jobs, kept, before)
            budget(agent)
            stop(agent, before)
            for name, job in jobs.items():
                ok("%s: the job never noticed" % name, job.poll() is None)
        finally:
            agent.close()
            server.shutdown()
            for job in jobs.values():
                job.terminate()
                job.wait()
    failed = results.count(False)
    print("%d passed, %d failed, 0 skipped" % (len(results) - failed, failed))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
