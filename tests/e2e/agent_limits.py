#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""The agent where something is short or odd: a disk that is full, memory below what a
sample takes, ranks that are to be sampled together, a job with a hostile name, launchers,
bad configurations. Needs root and a build.
"""
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from agent_tools import Agent, start_job
from badinput_tools import LIBCUDART, PIPETRACE, SIMJOB, bpf_objects, left_behind, run

results, skipped = [], []
STARVED = ("--workers 2 --items 16 --item-cpu-us 0 --item-sleep-us 2000 --launches 4 "
           "--kernel-us 200")
HOSTILE = 'x"} 1\n# TYPE'


def ok(name, good, detail=""):
    results.append(bool(good))
    print("%s %s%s" % ("ok" if good else "not ok", name, "" if good else ": " + str(detail)),
          flush=True)
    return good


def add(agent, section, lines):
    """More lines for a section of the configuration."""
    with open(agent.conf, encoding="ascii") as f:
        text = f.read()
    head = "[%s]\n" % section
    with open(agent.conf, "w", encoding="ascii") as f:
        f.write(text.replace(head, head + lines, 1))


class Running:
    """An agent and its jobs, in a folder of their own; none outlives the block."""

    def __init__(self, prefix):
        self.folder = tempfile.TemporaryDirectory(prefix="pipetrace-%s-" % prefix)
        self.tmp = self.folder.name
        self.agent, self.jobs = Agent(self.tmp), []

    def __enter__(self):
        return self

    def job(self, name, env=None, program=SIMJOB, args=STARVED):
        job, _ = start_job(self.tmp, name, args, 60, dict(os.environ, **(env or {})), program)
        self.jobs.append(job)
        return job

    def __exit__(self, *exc):
        self.agent.close()
        for job in self.jobs:
            job.kill()
            job.wait()
        self.folder.cleanup()


def samples(agent, pid):
    mine = agent.jobs().get(pid)
    return mine["samples"] if mine else 0


def full_disk():
    with Running("full") as r:
        state = os.path.join(r.tmp, "state")
        os.mkdir(state)
        done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m,mode=0700", "none", state],
                              stderr=subprocess.DEVNULL, check=False)
        if done.returncode:
            print("# skipped: a full disk: nothing can be mounted here")
            skipped.append(1)
            return
        try:
            job = r.job("a")
            if ok("full disk: it starts", r.agent.start(), r.agent.text()):
                ok("full disk: samples go on", r.agent.until(
                    lambda: samples(r.agent, job.pid) >= 2, 60), r.agent.text())
                ok("full disk: it says so, once", r.agent.text().count("nearly full") == 1,
                   r.agent.text())
                ok("full disk: no sample failed", not r.agent.jobs()[job.pid]["failed"],
                   r.agent.text())
                ok("full disk: nothing is listed", not r.agent.page("/evidence")["evidence"])
            r.agent.close()
        finally:
            subprocess.run(["umount", state], check=False)


def little_memory():
    """A budget that is just above what the agent and a sample take."""
    with Running("memory") as r:
        job = r.job("a")
        if not ok("little memory: it starts", r.agent.start(), r.agent.text()):
            return
        r.agent.until(lambda: samples(r.agent, job.pid), 60)
        takes = r.agent.value("pipetrace_agent_resident_memory_bytes")
        add(r.agent, "budget", "memory = %dK\n" % (takes * 1.02 / 1024))
        r.agent.proc.send_signal(signal.SIGHUP)

        def shorter():
            mine = r.agent.jobs().get(job.pid)
            return mine and mine["sample_s"] < 2 and mine
        mine = r.agent.until(shorter, 60)
        ok("little memory: samples become shorter, and it says so",
           mine and "MiB, near the budget" in r.agent.text(), (mine, r.agent.text()))


def together():
    """Two ranks of one Slurm step, one place: both at the same second nevertheless."""
    with Running("aligned") as r:
        r.agent.configure(at_once=1, interval="8s")
        add(r.agent, "agent", "aligned = yes\n")
        env = {"SLURM_JOB_ID": "12", "SLURM_STEP_ID": "3", "SLURM_NTASKS": "2"}
        ranks = [r.job("r%d" % i, dict(env, SLURM_PROCID=str(i))) for i in range(2)]
        time.sleep(0.5)
        if not ok("aligned: it starts", r.agent.start(), r.agent.text()):
            return
        ok("aligned: both are sampled", r.agent.until(
            lambda: all(samples(r.agent, j.pid) for j in ranks), 60), r.agent.text())
        begins = {}
        for e in r.agent.page("/evidence")["evidence"]:
            report = json.loads(r.agent.get("/evidence/%s.json" % e["id"]))
            begins.setdefault(report["target"]["pid"], report["capture"]["begin_unix_ns"])
        begins = [int(b) / 1e9 for b in begins.values()]
        if not ok("aligned: of each a sample is kept", len(begins) == 2, begins):
            return
        apart = abs(begins[0] - begins[1])
        ok("aligned: they saw the same time", apart < 1.5, apart)
        late = [b % 8 for b in begins]  # attaching takes a while
        ok("aligned: at a multiple of the interval of the clock", max(late) < 3, late)


def launcher():
    """Two ranks of one launcher are one job; its own label is the group's."""
    with Running("launch") as r:
        logs = [os.path.join(r.tmp, "l%d.jsonl" % i) for i in range(2)]
        script = "".join("RANK=%d WORLD_SIZE=2 MASTER_ADDR=n1 MASTER_PORT=29 "
                         "TORCHELASTIC_RUN_ID=run9 '%s' --seconds 50 %s --truth '%s' & "
                         % (i, SIMJOB, STARVED, log) for i, log in enumerate(logs)) + "wait"
        top = subprocess.Popen(["/bin/sh", "-c", script], stdout=subprocess.DEVNULL,
                               stderr=subprocess.DEVNULL, start_new_session=True)
        try:
            time.sleep(1)
            if not ok("launcher: it starts", r.agent.start(), r.agent.text()):
                return
            jobs = r.agent.until(lambda: list(r.agent.jobs().values()), 15)
            ok("launcher: two ranks are one job", len(jobs) == 1 and jobs[0]["ranks"] == 2 and
               jobs[0]["root"] == top.pid, jobs)
            ok("launcher: the group has the run's name, and there is no rank",
               jobs and jobs[0]["group"] == "torch:run9@n1:29" and jobs[0]["rank"] == -1 and
               jobs[0]["world"] == 2, jobs)
            ok("launcher: it is sampled", r.agent.until(
                lambda: [j for j in r.agent.jobs().values() if j["samples"]], 25),
               r.agent.text())
        finally:
            os.killpg(top.pid, 9)
            top.wait()


def hostile_name():
    with Running("name") as r:
        program = os.path.join(r.tmp, HOSTILE)
        shutil.copy(SIMJOB, program)
        shutil.copy(LIBCUDART, r.tmp)
        job = r.job("a", {"SLURM_JOB_ID": '1"}\n', "RANK": "99999999999999999999",
                          "MASTER_ADDR": "\x1b[2J", "WORLD_SIZE": "2"}, program)
        if not ok("hostile name: it starts", r.agent.start(), r.agent.text()):
            return
        mine = r.agent.until(lambda: r.agent.jobs().get(job.pid), 10)
        ok("hostile name: the job is listed by it", mine and mine["comm"] == HOSTILE[:15], mine)
        ok("hostile name: what is no rank and no job is none", mine and mine["rank"] == -1 and
           mine["group"] == "" and mine["owner"]["slurm_job"] == "", mine)
        ok("hostile name: each line of the metrics is one", r.agent.until(
            lambda: r.agent.value("pipetrace_job_info", pid=str(job.pid)) == 1, 10),
           r.agent.get("/metrics"))


def refused():
    """One sentence and status 2; who may not write it must not own it."""
    with tempfile.TemporaryDirectory(prefix="pipetrace-conf-") as tmp:
        path = os.path.join(tmp, "a.conf")
        for text, mode, word in (("[agent]\ninterval = x\n", 0o600, "a.conf:2"),
                                 ("[agent]\n", 0o666, "write"), ("", None, "No such file")):
            if mode is None:
                path += ".none"
            else:
                with open(path, "w", encoding="ascii") as f:
                    f.write(text)
                os.chmod(path, mode)
            for more in ([], ["--check"]):
                done = run(["agent", "--config", path] + more)
                ok("refused: %r %s" % (text, " ".join(more)), done.status == 2 and
                   len(done.lines) == 1 and word in done.err, done.describe())
        done = run(["agent"])
        ok("refused: no configuration", done.status == 2 and "--config" in done.err,
           done.describe())
        path = os.path.join(tmp, "b.conf")
        with open(path, "w", encoding="ascii") as f:
            f.write("[agent]\nstate = %s/s\n[http]\nlisten = nowhere:x\n" % tmp)
        os.chmod(path, 0o600)
        done = run(["agent", "--config", path])
        ok("refused: no such address", done.status == 1 and len(done.lines) == 1,
           done.describe())
        done = run(["agent", "--config", path], prefix=["setpriv", "--bounding-set=-bpf",
                                                        "--inh-caps=-bpf"])
        ok("refused: without the right to load programs", done.status == 1 and
           "CAP_BPF" in done.err and len(done.lines) == 1, done.describe())


def main():
    if os.geteuid() != 0:
        print("needs root")
        return 77
    if not os.access(PIPETRACE, os.X_OK) or not os.access(SIMJOB, os.X_OK):
        print("build/pipetrace is not built")
        return 1
    before = bpf_objects()
    for case in (refused, full_disk, little_memory, together, launcher, hostile_name):
        case()
    left = left_behind(before, [])
    ok("no BPF object is left", not left, left)
    failed = results.count(False)
    print("%d passed, %d failed, %d skipped" % (len(results) - failed, failed, len(skipped)))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
