#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""What runs as which user, with which capabilities and filters of system calls, at each
stage of each command: read from /proc of the running processes.

    rights.py [--table]

--table prints the table of SECURITY.md. Needs root and a build. Ends with "N passed,
N failed, N skipped".
"""
import fcntl
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from agent_tools import Agent, start_job
from badinput_tools import LIBCUDART, PIPETRACE, SIMJOB, Child

NOBODY = 65534
F_SETPIPE_SZ = 1031
CAPS = {1: "DAC_OVERRIDE", 2: "DAC_READ_SEARCH", 3: "FOWNER", 19: "SYS_PTRACE", 21: "SYS_ADMIN",
        23: "SYS_NICE", 38: "PERFMON", 39: "BPF", 40: "CHECKPOINT_RESTORE"}
TRACE = {"BPF", "PERFMON", "SYS_PTRACE", "DAC_READ_SEARCH", "CHECKPOINT_RESTORE"}
LOOK = TRACE - {"BPF", "PERFMON"}
FILES = {"DAC_OVERRIDE", "FOWNER"}
INJECT = {"DAC_OVERRIDE"}
HASTE = {"SYS_NICE"}
SUDO = dict(os.environ, SUDO_UID=str(NOBODY), SUDO_GID=str(NOBODY), SUDO_USER="nobody")
PLAIN = {k: v for k, v in os.environ.items() if not k.startswith("SUDO_")}

results, table = [], []


def ok(name, good, detail=""):
    results.append(bool(good))
    print("%s %s%s" % ("ok" if good else "not ok", name, "" if good else ": %s" % (detail,)),
          flush=True)
    return good


def status(pid):
    with open("/proc/%d/status" % pid, encoding="utf-8", errors="replace") as f:
        return dict(line.rstrip("\n").split(":\t", 1) for line in f if ":\t" in line)


def caps(s, which="CapPrm"):
    bits = int(s[which], 16)
    return {CAPS.get(i, str(i)) for i in range(64) if bits >> i & 1}


def name_of(pid):
    try:
        return status(pid)["Name"]
    except OSError:
        return ""


def family(pid):
    """pid and all below it."""
    out = [pid]
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            if int(status(int(name))["PPid"]) == pid:
                out += family(int(name))
        except OSError:
            pass
    return out


def judge(stage, pid, uid, may, comm="pipetrace", of=None, asleep=()):
    """Each process of that name below `pid` is of this user and may do no more; each of its
    threads, too. There is one at least."""
    found = []
    for p in family(pid):
        try:
            s = status(p)
            if s["Name"] != comm:
                continue
            tasks = [status(int(t)) for t in os.listdir("/proc/%d/task" % p)]
        except OSError:
            continue
        found.append(s)
        for t in tasks + [s]:
            uids = {int(u) for u in t["Uid"].split()}
            has = caps(t) | caps(t, "CapEff") | caps(t, "CapInh") | caps(t, "CapAmb")
            if uids != {uid} or has - may or caps(t, "CapEff") & set(asleep) or t["NoNewPrivs"] != "1" or t["Seccomp"] != "2":
                return ok("%s: %s" % (stage, of or comm), False,
                          {k: t[k] for k in ("Pid", "Uid", "CapPrm", "CapEff", "CapInh", "CapAmb",
                                             "NoNewPrivs", "Seccomp")})
    if not ok("%s: %s" % (stage, of or comm), found, "no such process"):
        return False
    s = found[0]
    who = "root" if s["Uid"].startswith("0\t") else "the caller"
    has = " ".join(sorted(caps(s))) or "none"
    if s["Groups"].split() not in ([], ["0"], [str(NOBODY)]):
        ok("%s: groups" % stage, False, s["Groups"])
    table.append((stage, of or comm, who, has, s.get("Seccomp_filters", "?")))
    return True


class Job:
    """A simulated job that outlives whatever is done to its tracer."""

    def __init__(self):
        self.child = Child([SIMJOB, "--seconds", "120", "--workers", "1"],
                           stdout=subprocess.DEVNULL)

    def __enter__(self):
        self.p = self.child.__enter__()
        time.sleep(0.5)
        return self.p

    def __exit__(self, *exc):
        self.child.__exit__(*exc)


class Traced:
    """pipetrace, from when it says that it is attached."""

    def __init__(self, args, env, until="attached to"):
        self.p = subprocess.Popen([PIPETRACE] + args, env=env, stdin=subprocess.DEVNULL,
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        # so that no report fits into it
        fcntl.fcntl(self.p.stdout, F_SETPIPE_SZ, 4096)
        self.until, self.said = until, ""

    def __enter__(self):
        end = time.time() + 30
        while self.until and self.until not in self.said and time.time() < end:
            line = self.p.stderr.readline()
            if not line:
                break
            self.said += line
        return self

    def __exit__(self, *exc):
        if self.p.poll() is None:
            self.p.kill()
        self.p.communicate()


def wait_until(what, seconds=30):
    end = time.time() + seconds
    while time.time() < end:
        if what():
            return True
        time.sleep(0.05)
    return False


def confined(pid):
    """Its reader of ELF files is there, and the filter of system calls, which comes last."""
    try:
        return status(pid)["Seccomp"] == "2" and "pipetrace-elf" in map(name_of, family(pid))
    except OSError:
        return False


def writing(pid):
    """It is stopped in a write: of a pipe that is full."""
    try:
        with open("/proc/%d/wchan" % pid, encoding="ascii") as f:
            if "pipe" in f.read():
                return True
        with open("/proc/%d/syscall" % pid, encoding="ascii") as f:
            return f.read().split()[:2] == ["1", "0x1"]
    except OSError:
        return False


def check_trace(job):
    for name, env, uid, more in (("sudo", SUDO, NOBODY, set()), ("root", PLAIN, 0, FILES)):
        with Traced(["-p", str(job.pid), "-d", "2", "--json", "-", "--print-steps", "100000"],
                    env) as t:
            judge("trace (%s)" % name, t.p.pid, uid, TRACE | HASTE | more)
            judge("trace (%s)" % name, t.p.pid, uid, set() | more, "pipetrace-elf",
                  of="reader of ELF files")
            # it has its name when it has had a core
            wait_until(lambda: "pipetrace-lines" in map(name_of, family(t.p.pid)), 1.5)
            judge("trace (%s)" % name, t.p.pid, uid, LOOK, "pipetrace-lines",
                  of="reader of Python")
            # nobody takes its report: it hangs in the middle of it
            if ok("trace (%s): it writes" % name, wait_until(lambda: writing(t.p.pid))):
                judge("its report (%s)" % name, t.p.pid, uid, more)


def check_record(job, tmp):
    theirs = os.path.join(tmp, "theirs")
    os.mkdir(theirs)
    os.chown(theirs, NOBODY, NOBODY)
    out = os.path.join(theirs, "r.ptrace")
    with Traced(["record", "-p", str(job.pid), "-d", "2", "-o", out], SUDO) as t:
        judge("record (sudo)", t.p.pid, NOBODY, TRACE | HASTE)
        t.p.wait(30)
    st = os.stat(out)
    ok("record (sudo): the file is the caller's", st.st_uid == NOBODY and st.st_mode & 0o777 == 0o600,
       st)
    for cmd in (["report", out, "--json", "-", "--print-steps", "100000"],
                ["export", "--chrome", "-", out]):
        with Traced(cmd, SUDO, None) as t:
            if ok("%s (sudo): it writes" % cmd[0], wait_until(lambda: writing(t.p.pid))):
                judge("%s (sudo)" % cmd[0], t.p.pid, NOBODY, set())
    mine = os.path.join(tmp, "mine.ptrace")
    shutil.copy(out, mine)
    os.chmod(mine, 0o600)
    p = subprocess.run([PIPETRACE, "report", mine], env=SUDO, capture_output=True, text=True,
                       check=False)
    ok("a recording that only root can read is refused",
       p.returncode == 1 and "who called sudo" in p.stderr, p.stderr)
    p = subprocess.run([PIPETRACE, "report", mine], env=PLAIN, capture_output=True, text=True,
                       check=False)
    ok("root reads it", p.returncode == 0, p.stderr)


def check_inject(tmp):
    with Child([SIMJOB, "--seconds", "60", "--workers", "1"], stdout=subprocess.DEVNULL,
               env=dict(os.environ, LD_LIBRARY_PATH=os.path.dirname(LIBCUDART))) as job:
        time.sleep(0.5)
        with Traced(["-p", str(job.pid), "-d", "3", "--cupti"], SUDO) as t:
            judge("trace --cupti (sudo)", t.p.pid, NOBODY, TRACE | HASTE | INJECT, asleep=INJECT)
            _, told = t.p.communicate(timeout=30)
            ok("trace --cupti (sudo): the agent was in the job", "denied" not in told, told)


def check_top(job):
    p = subprocess.Popen([PIPETRACE, "top", "-p", str(job.pid)], env=dict(SUDO, TERM="dumb"),
                         stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                         stderr=subprocess.DEVNULL)
    try:
        wait_until(lambda: confined(p.pid))
        judge("top (sudo)", p.pid, NOBODY, TRACE | HASTE)
        judge("top (sudo)", p.pid, NOBODY, set(), "pipetrace-elf", of="reader of ELF files")
    finally:
        p.send_signal(signal.SIGTERM)
        p.wait(30)


def check_watch(job, tmp):
    out = os.path.join(tmp, "theirs", "caught")
    p = subprocess.Popen([PIPETRACE, "watch", "-p", str(job.pid), "-o", out, "-d", "20", "--keep",
                          "2s", "--when", "step > 1s"], env=SUDO, stdin=subprocess.DEVNULL,
                         stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_until(lambda: confined(p.pid))
        judge("watch (sudo)", p.pid, NOBODY, TRACE | HASTE)
        judge("watch (sudo)", p.pid, NOBODY, set(), "pipetrace-elf", of="reader of ELF files")
        time.sleep(4)
        job.send_signal(signal.SIGSTOP)
        time.sleep(3)
        job.send_signal(signal.SIGCONT)
        ok("watch (sudo): a window is saved", wait_until(lambda: os.listdir(out), 10))
    finally:
        p.send_signal(signal.SIGTERM)
        p.wait(30)
    made = [os.path.join(at, name) for at, dirs, names in os.walk(out) for name in dirs + names]
    ok("watch (sudo): all of it is the caller's", len(made) == 4 and all(
        os.stat(path).st_uid == NOBODY and not os.stat(path).st_mode & 0o077
        for path in made + [out]), made)


def check_agent(tmp):
    agent = Agent(tmp)
    job = None
    try:
        job, _ = start_job(tmp, "a", "--workers 2 --items 16 --launches 4", 60, dict(os.environ),
                           SIMJOB)
        agent.start()
        seen = wait_until(lambda: len([p for p in family(agent.proc.pid)
                                       if name_of(p) == "exe"]) >= 1, 40)
        ok("agent: a sample was seen", seen)
        judge("agent", agent.proc.pid, 0, TRACE)
        judge("agent", agent.proc.pid, 0, TRACE, "exe", of="a sample")
        judge("agent", agent.proc.pid, 0, set(), "pipetrace-elf", of="reader of ELF files")
    finally:
        agent.close()
        if job:
            job.kill()
            job.wait()


def main():
    with tempfile.TemporaryDirectory(prefix="pipetrace-rights-") as tmp:
        os.chmod(tmp, 0o755)
        with Job() as job:
            check_trace(job)
            check_record(job, tmp)
            check_top(job)
            check_watch(job, tmp)
        check_inject(tmp)
        check_agent(tmp)
    if "--table" in sys.argv:
        print("| stage | process | user | capabilities | filters |\n|---|---|---|---|---|")
        for r in table:
            print("| %s |" % " | ".join(r))
    print("%d passed, %d failed, 0 skipped" % (sum(results), len(results) - sum(results)))
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
