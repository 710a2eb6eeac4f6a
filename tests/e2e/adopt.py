#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""Who is followed from outside of the job's tree (adopt_job.py): a service of 32
processes over TCP on this host, one over a Unix socket, one by a futex in shared
memory, and others of a pool, whom the job never asks; and who is not: another client
of the first, one that sends signals, one that does nothing, this test.

Told by the exported tables: who is outside, that each of these has waits of its own,
that one that ends has an end, that the report from the file is the live one, that no
more than 64 are followed, and that nothing is left in the kernel.

    adopt.py [NAME...]

Needs root and a build. Ends with "N passed, N failed, N skipped".
"""
import collections
import csv
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import badinput_tools as tools  # noqa: E402

BUILD = os.environ.get("BUILD", os.path.join(tools.TOP, "build"))
PIPETRACE = os.path.join(BUILD, "pipetrace")
JOB = os.path.join(HERE, "adopt_job.py")
LIMIT = 60
SECONDS = 6
WAITS_MIN = 3  # of each process that is followed, in that time
MOST = 64


class Wrong(Exception):
    pass


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Cast:
    """The processes of a case, each in a session of its own; gone at the end."""

    def __init__(self, tmp):
        self.tmp, self.procs = tmp, []

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        for p in self.procs:
            try:
                os.killpg(p.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            p.wait()
            p.stdout.close()

    def start(self, *args):
        p = subprocess.Popen([sys.executable, JOB, *map(str, args)], stdin=subprocess.DEVNULL,
                             stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                             start_new_session=True)
        self.procs.append(p)
        if p.stdout.readline() != "ready\n":
            raise Wrong("%s did not start" % args[0])
        return p.pid


def services(cast, n, work_ms=2):
    """Everybody: pid by name. Each part of the first is a child of it."""
    port, words = free_port(), os.path.join(cast.tmp, "words")
    with open(words, "wb") as f:
        f.truncate(4096)
    who = {"tcp": cast.start("tcp", port, n, work_ms),
           "unix": cast.start("unix", os.path.join(cast.tmp, "unix")),
           "shm": cast.start("shm", words)}
    who["job"] = cast.start("job", cast.tmp, port)
    who["client"] = cast.start("client", port)
    who["signals"] = cast.start("signals", who["job"])
    who["idle"] = cast.start("idle")
    return who


def children(pid):
    with open("/proc/%d/task/%d/children" % (pid, pid), encoding="ascii") as f:
        return [int(x) for x in f.read().split()]


def trace(tmp, pid, *more):
    out, report = os.path.join(tmp, "job.ptrace"), os.path.join(tmp, "live.json")
    t = subprocess.run([PIPETRACE, "-q", "-p", str(pid), "-d", str(SECONDS), "--json", report,
                        "-o", out, *more], stdin=subprocess.DEVNULL, capture_output=True,
                       text=True, timeout=LIMIT, check=False)
    if t.returncode:
        raise Wrong("pipetrace %d: %s" % (t.returncode, t.stderr[-300:]))
    return out, report


def tables(tmp, out):
    folder = os.path.join(tmp, "csv")
    subprocess.run([PIPETRACE, "export", "-q", "--force", "--csv", folder, out], check=True,
                   stdin=subprocess.DEVNULL, capture_output=True, timeout=LIMIT)
    rows = {}
    for name in ("processes", "off_cpu"):
        with open(os.path.join(folder, name + ".csv"), encoding="utf-8", newline="") as f:
            rows[name] = list(csv.DictReader(f))
    return rows


def outsiders(rows):
    return {int(r["pid"]) for r in rows["processes"] if r["outside"] == "1"}


def judge_followed(who, parts, tree, rows):
    got = outsiders(rows)
    want = {who[x] for x in ("tcp", "unix", "shm")} | set(parts)
    if got != want:
        raise Wrong("not followed: %r; followed for nothing: %r" % (
            sorted(want - got), sorted(got - want)))
    inside = {int(r["pid"]) for r in rows["processes"]} - got
    if inside != set(tree):
        raise Wrong("the tree is %r, told %r" % (sorted(tree), sorted(inside)))
    waits = collections.Counter(int(r["pid"]) for r in rows["off_cpu"])
    few = {pid: waits[pid] for pid in got if waits[pid] < WAITS_MIN}
    if few:
        raise Wrong("few waits of some: %r" % few)


def judge_replay(tmp, out, report):
    again = os.path.join(tmp, "again.json")
    subprocess.run([PIPETRACE, "report", "-q", "--json", again, out], check=False,
                   stdin=subprocess.DEVNULL, capture_output=True, timeout=LIMIT)
    with open(report, "rb") as a, open(again, "rb") as b:
        if a.read() != b.read():
            raise Wrong("the report from the file is another one")


def case_followed(tmp):
    before = tools.bpf_objects()
    with Cast(tmp) as cast:
        who = services(cast, 32)
        parts, tree = children(who["tcp"]), [who["job"], *children(who["job"])]
        out, report = trace(tmp, who["job"])
        left = tools.left_behind(before, set())
    if left:
        raise Wrong("left in the kernel: %r" % left)
    judge_followed(who, parts, tree, tables(tmp, out))
    judge_replay(tmp, out, report)
    with open(report, encoding="utf-8") as f:
        capture = json.load(f)["capture"]
    if not capture["hooks"].get("outside") or capture["hook_notes"].get("outside"):
        raise Wrong("the report says of it: %r" % (capture,))
    return "%d processes outside" % (len(parts) + 3)


def case_pool(tmp):
    """Two more of the Unix services, whom the job never asks: of the same pool."""
    with Cast(tmp) as cast:
        who = services(cast, 2)
        pool = [cast.start("unix", os.path.join(tmp, "unix%d" % i)) for i in (2, 3)]
        parts = children(who["tcp"])
        out, _ = trace(tmp, who["job"])
    got = outsiders(tables(tmp, out))
    want = {who[x] for x in ("tcp", "unix", "shm")} | set(parts) | set(pool)
    if got != want:
        raise Wrong("not followed: %r; followed for nothing: %r" % (
            sorted(want - got), sorted(got - want)))
    return "%d processes outside" % len(got)


def case_ended(tmp):
    """A service that ends in mid-trace, and its place is somebody else's."""
    with Cast(tmp) as cast:
        who = services(cast, 2)
        t = subprocess.Popen([PIPETRACE, "record", "-p", str(who["job"]), "-d", "5", "-o",
                              os.path.join(tmp, "ended.ptrace")], stdin=subprocess.DEVNULL,
                             stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        for line in t.stderr:
            if "attached" in line:
                break
        time.sleep(2)
        os.kill(who["shm"], signal.SIGKILL)
        err = t.communicate(timeout=LIMIT)[1]
    if t.returncode:
        raise Wrong("pipetrace %d: %s" % (t.returncode, err[-300:]))
    rows = tables(tmp, os.path.join(tmp, "ended.ptrace"))
    row = [r for r in rows["processes"] if r["pid"] == str(who["shm"])]
    if len(row) != 1 or row[0]["outside"] != "1" or not row[0]["died_ns"]:
        raise Wrong("its row is %r" % row)
    return ""


def case_many(tmp):
    """No more than so many, and that is said."""
    with Cast(tmp) as cast:
        who = services(cast, MOST + 8, 1)
        out, report = trace(tmp, who["job"])
    n = len(outsiders(tables(tmp, out)))
    with open(report, encoding="utf-8") as f:
        note = json.load(f)["capture"]["hook_notes"].get("outside")
    if n != MOST or str(MOST) not in (note or ""):
        raise Wrong("%d are followed, and the report says %r" % (n, note))
    return "%d of %d" % (n, MOST + 8 + 3)


def case_off(tmp):
    """--no-adopt: the tree and nobody else."""
    with Cast(tmp) as cast:
        who = services(cast, 2)
        tree = {who["job"], *children(who["job"])}
        out, _ = trace(tmp, who["job"], "--no-adopt")
    rows = tables(tmp, out)["processes"]
    if {int(r["pid"]) for r in rows} != tree or any(r["outside"] != "0" for r in rows):
        raise Wrong("processes: %r" % rows)
    return ""


CASES = {"followed": case_followed, "pool": case_pool, "ended": case_ended, "many": case_many, "off": case_off}


def main():
    if os.geteuid():
        print("ok adopt # SKIP needs root")
        print("0 passed, 0 failed, 1 skipped")
        return 0
    passed = failed = 0
    for name in sys.argv[1:] or CASES:
        with tempfile.TemporaryDirectory(dir=os.path.join(BUILD, "tests")) as tmp:
            try:
                told, wrong = CASES[name](tmp), None
            except (Wrong, OSError, ValueError, KeyError, TypeError, subprocess.SubprocessError) as e:
                told, wrong = "", "%s: %s" % (type(e).__name__, e)
        passed += wrong is None
        failed += wrong is not None
        print("%s %s%s" % ("not ok" if wrong else "ok", name, " (%s)" % told if told else ""))
        if wrong:
            print("    " + wrong)
        sys.stdout.flush()
    print("%d passed, %d failed, 0 skipped" % (passed, failed))
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
