#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""What an ordinary user can try against the machine through a tracer that is root.

    attacks.py [NAME...] [--tries N] [--program FILE] [--injector FILE]

Each case does an attack as user "nobody" (SECURITY.md lists them) and looks at what
became of what it was aimed at. --tries: of the races (default 100; the record is of
1,000). --program, --injector: of another build, to see that an attack works there.
Needs root and a build. Ends with "N passed, N failed, N skipped".
"""

import argparse
import ctypes
import hashlib
import json
import mmap
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import agent_tools  # noqa: E402

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
B = os.path.join(TOP, "build")
ATTACKER = os.path.join(B, "tests/e2e/attacker")
AGENT = os.path.join(B, "tests/inject/agent.so")
CUDART = os.path.join(B, "sim/libcudart.so.12")
SIMJOB = os.path.join(B, "sim/simjob")
NOBODY = 65534

opts = None
results = []


def as_nobody():
    os.setgroups([])
    os.setgid(NOBODY)
    os.setuid(NOBODY)


def row(name, ok, what):
    results.append(ok)
    print("%-4s %-28s %s" % ("ok" if ok else "FAIL", name, what), flush=True)


def skip(name, why):
    results.append(None)
    print("skip %s: %s" % (name, why), flush=True)


class Place:
    """A folder of root's that everybody may search, and one of nobody's in it."""

    def __enter__(self):
        self.dir = tempfile.mkdtemp(prefix="pt-attack-", dir="/tmp")
        os.chmod(self.dir, 0o755)
        self.theirs = os.path.join(self.dir, "theirs")
        os.mkdir(self.theirs)
        os.chown(self.theirs, NOBODY, NOBODY)
        return self

    def __exit__(self, *_):
        shutil.rmtree(self.dir, ignore_errors=True)

    def file(self, name, mode, content=b"secret\n" * 271, owner=0):
        path = os.path.join(self.dir, name)
        with open(path, "wb") as f:
            f.write(content)
        os.chown(path, owner, owner)
        os.chmod(path, mode)
        return path

    def shared(self, path, name=None):
        """A copy of a program's or library's file that nobody can read."""
        to = os.path.join(self.dir, name or os.path.basename(path))
        shutil.copy(path, to)
        os.chmod(to, 0o755)
        return to


def attack(*argv):
    p = subprocess.Popen(argv, preexec_fn=as_nobody, cwd="/", stdin=subprocess.DEVNULL,
                         stdout=subprocess.PIPE, start_new_session=True)
    line = p.stdout.readline().split()
    if not line or line[0] != b"READY":
        p.kill()
        p.wait()
        raise RuntimeError("the attacker did not start")
    return p


def end(p):
    os.killpg(p.pid, signal.SIGKILL)
    p.wait()
    p.stdout.close()


def looks(path):
    st = os.stat(path)
    with open(path, "rb") as f:
        return (st.st_size, st.st_mode, st.st_uid, hashlib.sha256(f.read()).hexdigest())


# ---- descriptors that are no memory files --------------------------------------------

def inject(pid, *words):
    p = subprocess.run([opts.injector, str(pid), AGENT, *words], stdin=subprocess.DEVNULL,
                       stdout=subprocess.PIPE, timeout=600, check=False)
    return [json.loads(line) for line in p.stdout.decode("utf-8", "replace").splitlines()]


def memfd_one(at, kind, victim):
    """The injector against one kind of descriptor; then pipetrace itself."""
    before = looks(victim)
    p = attack(at.shared(ATTACKER), "memfd", kind, victim, at.shared(CUDART))
    try:
        runs = inject(p.pid)
        err = subprocess.run([opts.program, "-p", str(p.pid), "--cupti", "-d", "1", "-q"],
                             stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                             stderr=subprocess.PIPE, timeout=60, check=False)
        alive = p.poll() is None
    finally:
        end(p)
    after = looks(victim)
    ok = before == after and alive and err.returncode == 0 and all(
        "not its own" in r["said"] for r in runs)
    row("memfd/" + kind, ok, "%s; %s" % (
        "untouched" if before == after else "%d -> %d bytes" % (before[0], after[0]),
        runs[0]["said"] or "loaded"))


def memfd():
    with Place() as at:
        for kind, mode, owner in (("path", 0o600, 0), ("read_only", 0o644, 0),
                                  ("own_file", 0o600, NOBODY), ("tmpfile", 0o600, 0),
                                  ("sealed", 0o600, 0), ("memfd_read_only", 0o600, 0),
                                  ("huge", 0o600, 0)):
            try:
                memfd_one(at, kind, at.file("victim-" + kind, mode, owner=owner))
            except RuntimeError:
                skip("memfd/" + kind, "no such descriptor can be made here")


def memfd_race():
    """The number is a true one's half of the time."""
    with Place() as at:
        victim = at.file("victim", 0o600)
        before = looks(victim)
        p = attack(at.shared(ATTACKER), "memfd", "swap", victim, at.shared(CUDART))
        try:
            runs = inject(p.pid, "cycles=%d" % opts.tries, "point=500")
            harmed = before != looks(victim)
        finally:
            end(p)
        refused = sum("not its own" in r["said"] for r in runs)
        taken = sum("did not take the agent library" in r["said"] for r in runs)
        row("memfd_race", not harmed and refused > 0 and taken > 0 and len(runs) == opts.tries,
            "%d tries, %d refused, %d were true: %s" % (
                len(runs), refused, taken, "HARMED" if harmed else "untouched"))


# ---- a library that becomes another ----------------------------------------------------

def library_race():
    """Its name leads to a file of root's now and then; constants of another process, which
    has that one mapped, are where the library's functions are."""
    with Place() as at:
        mine = os.path.join(at.theirs, "libcudart.so.12")
        shutil.copy(CUDART, mine)
        os.chown(mine, NOBODY, NOBODY)
        size = os.path.getsize(CUDART) + 4095 & ~4095
        other = at.file("constants", 0o644, bytes(size))
        with open(other, "rb") as f:
            constants = mmap.mmap(f.fileno(), size, mmap.MAP_PRIVATE, mmap.PROT_READ |
                                  mmap.PROT_EXEC)
        p = attack(at.shared(ATTACKER), "library", mine, other)
        hit = probes = runs = 0
        try:
            while probes < opts.tries:
                t = subprocess.Popen([opts.program, "-p", str(p.pid), "-d", "1", "-q",
                                      "--no-uprobe-multi"], stdin=subprocess.DEVNULL,
                                     stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
                seen = 0
                while t.poll() is None:
                    if constants[:] != bytes(size):
                        hit = max(hit, size - constants[:].count(0))
                    seen = max(seen, hooked())
                    time.sleep(0.02)
                if t.returncode:
                    row("library_race", False, "pipetrace ended with %d" % t.returncode)
                    return
                runs += 1
                probes += max(seen, 1)
        finally:
            end(p)
        row("library_race", not hit and probes > 10 * runs,
            "%d probes of %d traces: %d constants of another process overwritten" %
            (probes, runs, hit))


def hooked():
    """Probes that the tracer has now."""
    p = subprocess.run(["/usr/sbin/bpftool", "-j", "link"], stdout=subprocess.PIPE,
                       stderr=subprocess.DEVNULL, check=False)
    try:
        return sum(1 for link in json.loads(p.stdout) if link.get("type") == "perf_event")
    except ValueError:
        return 0


# ---- a library that keeps its reader waiting, or sends him elsewhere -----------------------

IN_OPEN = 0x20


class Opened:
    """Has anybody opened the file?"""

    def __init__(self, path):
        self.libc = ctypes.CDLL(None, use_errno=True)
        self.fd = self.libc.inotify_init1(os.O_NONBLOCK)
        if self.fd < 0 or self.libc.inotify_add_watch(self.fd, path.encode(), IN_OPEN) < 0:
            raise OSError(ctypes.get_errno(), "inotify")

    def told(self):
        try:
            return len(os.read(self.fd, 4096)) > 0
        except BlockingIOError:
            return False
        finally:
            os.close(self.fd)


def lease():
    """The files are of no known name, so that they are looked into."""
    with Place() as at:
        files = [os.path.join(at.theirs, "%d.so" % i) for i in range(2)]
        for f in files:
            shutil.copy(CUDART, f)
            os.chown(f, NOBODY, NOBODY)
        victim = at.file("victim", 0o600)
        for name, args in (("lease", files[:1]), ("lease_link", [files[1], victim])):
            p, begin, opened = attack(at.shared(ATTACKER), "lease", *args), time.monotonic(), \
                Opened(victim)
            try:
                t = subprocess.run([opts.program, "-p", str(p.pid), "-d", "1", "-q"], timeout=120,
                                   stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                   stderr=subprocess.DEVNULL, check=False)
                took = time.monotonic() - begin
            finally:
                end(p)
            hit = opened.told()
            row(name, t.returncode == 0 and took < 20 and not hit, "a second's trace took %.0f s; root's file, "
                "to which the library's name leads, was %s" % (took, "OPENED" if hit else "not opened"))


# ---- outputs under sudo -------------------------------------------------------------

SUDO = dict(os.environ, SUDO_UID=str(NOBODY), SUDO_GID=str(NOBODY), SUDO_USER="nobody")


def by_sudo(*args):
    """pipetrace as sudo starts it for nobody: (exit status, what it said)."""
    p = subprocess.run([opts.program, *args], env=SUDO, stdin=subprocess.DEVNULL,
                       stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, timeout=60, check=False)
    return p.returncode, p.stderr.decode("utf-8", "replace")


def outputs():
    with Place() as at:
        p = attack(at.shared(ATTACKER), "memfd", "path", at.file("any", 0o600),
                   at.shared(CUDART))
        try:
            outputs_of(at, p.pid)
            killed(at, p.pid)
        finally:
            end(p)


def outputs_of(at, pid):
    root = os.path.join(at.dir, "roots")
    os.mkdir(root)
    there = at.file("roots/there", 0o644)
    # a folder that all may write to, where nobody cannot come
    closed = os.path.join(at.dir, "closed")
    os.mkdir(closed, 0o700)
    os.mkdir(os.path.join(closed, "open"))
    os.chmod(os.path.join(closed, "open"), 0o777)
    trace = ["-p", str(pid), "-d", "1", "-q"]
    rec = os.path.join(at.theirs, "mine.ptrace")
    code, said = by_sudo("record", *trace, "-o", rec)
    ok = code == 0 and os.stat(rec).st_uid == NOBODY
    before = looks(there)
    for name in ("new", "there"):
        to = os.path.join(root, name)
        for args in (["report", rec, "--json", to], ["report", rec, "--html", to],
                     ["export", rec, "--force", "--sqlite", to], ["export", rec, "--csv", to],
                     ["export", rec, "--force", "--perfetto", to], [*trace, "--json", to],
                     ["record", *trace, "-o", to]):
            code, said = by_sudo(*args)
            if code == 0 or os.listdir(root) != ["there"] or looks(there) != before:
                row("outputs", False, "%s: status %d, %s" % (" ".join(args), code,
                                                             os.listdir(root)))
                return
    for args in (["record", *trace, "-o"], [*trace, "--json"], [*trace, "--html"],
                 ["watch", *trace, "-o"]):
        said = by_sudo(*args, closed + "/open/new")[1]
        there, lacks = by_sudo(*args, closed + "/there/x")[1], by_sudo(*args, closed + "/x/x")[1]
        if os.listdir(closed + "/open") or there.replace("/there", "/x") != lacks:
            row("outputs_closed", False, "%s: %s, %s, %s" % (" ".join(args), said, there, lacks))
            return
    row("outputs_closed", True, "neither written nor told of: " + said.strip()[-80:])
    # a file of root's in the caller's own folder is not for him to replace either
    foreign = at.file("theirs/foreign", 0o600)
    mine = at.file("theirs/mine", 0o600, owner=NOBODY)
    refused = by_sudo("report", rec, "--json", foreign)[0]
    replaced = by_sudo("report", rec, "--json", mine)[0]
    ok = ok and refused == 1 and os.path.getsize(foreign) == 1897
    ok = ok and replaced == 0 and looks(mine)[1:3] == (0o100600, NOBODY)
    row("outputs", ok and not [n for n in os.listdir(at.theirs) if n.endswith(".tmp")],
        "14 into a folder of root's: none written; own file replaced, root's not: %s" % said[:80])


def killed(at, pid):
    place = os.path.join(at.theirs, "killed")
    os.mkdir(place)
    os.chown(place, NOBODY, NOBODY)
    for ms in (300, 700, 1200):
        p = subprocess.Popen([opts.program, "-p", str(pid), "-q", "--json", place + "/x",
                              "--html", place + "/y"], env=SUDO, stdin=subprocess.DEVNULL,
                             stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(ms / 1000)
        p.send_signal(signal.SIGKILL)
        p.wait()
    row("outputs_killed", not os.listdir(place), "left behind: %s" % (os.listdir(place) or "nothing"))


# ---- places of the agent --------------------------------------------------------------

def slots():
    """One user's processes that map a file called libcuda.so.1, more than there are places;
    then another's job comes."""
    with Place() as at:
        fake = os.path.join(at.theirs, "libcuda.so.1")
        shutil.copy(at.file("any", 0o644, bytes(8192)), fake)
        os.chmod(fake, 0o755)
        agent_tools.PIPETRACE = opts.program
        agent = agent_tools.Agent(at.dir)
        with open(agent.conf, encoding="ascii") as f:
            text = f.read()
        with open(agent.conf, "w", encoding="ascii") as f:
            f.write(text.replace("[agent]\n", "[agent]\nmax-jobs = 8\n", 1))
        p, job = attack(at.shared(ATTACKER), "maps", fake, "100"), None
        try:
            agent.start()
            full = agent.until(lambda: len(agent.jobs()) >= 8, 20)
            job, _ = agent_tools.start_job(at.dir, "real", "--workers 2 --items 16 --item-cpu-us 0 "
                                           "--launches 4 --kernel-us 200", 60, os.environ, SIMJOB)
            seen = agent.until(lambda: job.pid in agent.jobs(), 20)
            told = re.search(r"(\d+) jobs are not sampled.*user (\w+)", agent.text())
            row("slots", full and seen and told and told.group(2) == "nobody",
                "the other's job is %s; the log: %s" % ("there" if seen else "NOT THERE",
                                                        told and told.group(0)))
        finally:
            agent.close()
            end(p)
            if job:
                job.kill()
                job.wait()


CASES = {"slots": slots, "lease": lease, "outputs": outputs, "library_race": library_race, "memfd": memfd, "memfd_race": memfd_race}


def main():
    global opts
    ap = argparse.ArgumentParser(description="Attacks of an ordinary user.")
    ap.add_argument("name", nargs="*")
    ap.add_argument("--tries", type=int, default=100, metavar="N")
    ap.add_argument("--program", default=os.path.join(B, "pipetrace"), metavar="FILE")
    ap.add_argument("--injector", default=os.path.join(B, "tests/e2e/injector"), metavar="FILE")
    opts = ap.parse_args()
    if os.geteuid():
        print("needs root")
        return 77
    for f in (ATTACKER, AGENT, CUDART):
        if not os.path.exists(f):
            print("needs %s: make all e2e" % os.path.relpath(f, TOP))
            return 77
    for name, run in CASES.items():
        if opts.name and name not in opts.name:
            continue
        run()
    ok, bad = results.count(True), results.count(False)
    print("%d passed, %d failed, %d skipped" % (ok, bad, len(results) - ok - bad))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
