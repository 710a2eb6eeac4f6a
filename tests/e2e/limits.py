#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""Recording where there is little room, and where others have been: the job goes on
whatever happens to the file, and nobody else's file is touched.

    limits.py [NAME...]

  size     --max-size: the file stays below it, holds the newest part and what names
           things, and its report is of the capture's end
  fsize    RLIMIT_FSIZE, which ends most programs by a signal
  full     a full disk, while recording and while a file of limited size is rewritten
  owner    under sudo the file belongs to who called it, mode 0600
  shared   in a folder like /tmp: links, hard links, pipes and files of others

Needs root and a build. Ends with "N passed, N failed, N skipped".
"""
import json
import os
import resource
import stat
import subprocess
import sys
import tempfile
import time

from badinput_tools import PIPETRACE, SIMJOB, TOP, Child, run

NOBODY = 65534
LIMIT_KIB = 256
results = {"ok": 0, "not ok": 0, "skip": 0}


def say(verdict, name, detail=""):
    results[verdict] += 1
    print("%s %s%s" % (verdict, name, ": " + str(detail)[:500] if detail else ""), flush=True)


def ok(name, good, detail=""):
    say("ok" if good else "not ok", name, "" if good else detail or "no")
    return good


class Job:
    """A job that makes many records, and its own log of steps."""

    def __init__(self, tmp):
        self.log = os.path.join(tmp, "truth")
        self.child = Child([SIMJOB, "--seconds", "90", "--workers", "2", "--item-cpu-us", "50",
                            "--launches", "60", "--kernel-us", "20", "--truth", self.log],
                           stdout=subprocess.PIPE)

    def __enter__(self):
        self.p = self.child.__enter__()
        self.p.stdout.readline()
        time.sleep(0.3)
        return self

    def __exit__(self, *exc):
        self.child.__exit__(*exc)

    def unharmed(self, name):
        ok(name + ": the job goes on", self.p.poll() is None)

    def ended(self):
        """Its steps, once it was told to end; None where it did not end well."""
        self.p.terminate()
        if self.p.wait(20):
            return None
        with open(self.log, encoding="utf-8") as f:
            return [r for r in map(json.loads, f) if "step" in r]


def report_of(path):
    r = run(["report", path, "--json", "-"], limit=60)
    return r, json.loads(r.out) if r.status == 0 else None


def check_size(tmp):
    path = os.path.join(tmp, "limited")
    biggest = 0
    with Job(tmp) as job:
        with Child([PIPETRACE, "record", "-p", str(job.p.pid), "-d", "12", "-o", path,
                    "--max-size", "%dK" % LIMIT_KIB]) as tracer:
            while tracer.poll() is None:
                for name in os.listdir(tmp):
                    if name.startswith("limited"):
                        try:
                            biggest = max(biggest, os.stat(os.path.join(tmp, name)).st_size)
                        except FileNotFoundError:
                            pass
                time.sleep(0.02)
            ok("size: recorded", tracer.returncode == 0, tracer.returncode)
        end_ns = time.monotonic_ns()
        job.unharmed("size")
        steps = job.ended()
    size = os.path.getsize(path)
    # One chunk may pass the limit before it is seen: docs/recording.md.
    ok("size: %d KiB at the end, %d at most, of %d" % (size >> 10, biggest >> 10, LIMIT_KIB),
       size <= LIMIT_KIB << 10 and biggest <= 2 * LIMIT_KIB << 10)
    ok("size: one file", [n for n in os.listdir(tmp) if n.startswith("limited")] == ["limited"],
       os.listdir(tmp))
    r, report = report_of(path)
    if not ok("size: a report", report, r.describe()):
        return
    said = [x for x in report["capture"]["limits"] if "limited" in x["reason"]]
    ok("size: it says what is missing", said, report["capture"]["limits"])
    begin, end = report["capture"]["begin_ns"], report["capture"]["end_ns"]
    ok("size: what is left is the end, %.1f s of 12" % ((end - begin) / 1e9),
       0 < end - begin < 11.5e9 and end_ns - end < 2e9, (begin, end, end_ns))
    ok("size: nothing counts as lost", report["capture"]["lost"]["total"] == 0,
       report["capture"]["lost"])
    mine = [s for s in steps or [] if begin <= s["wait_begin"] < end]
    ok("size: %s steps, %d by the log of that time" % (report["steps"]["count"], len(mine)),
       mine and abs(report["steps"]["count"] - len(mine)) <= 2)
    ok("size: files and threads have names", report["target"]["cmdline"] and
       report["loader"]["workers"]["value"] == 2, report["loader"])


def check_fsize(tmp):
    path = os.path.join(tmp, "fsize")

    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (64 << 10, 64 << 10))

    def tiny():
        resource.setrlimit(resource.RLIMIT_FSIZE, (16, 16))  # no record may be there

    with Job(tmp) as job:
        r = run(["-p", str(job.p.pid), "-d", "8", "-o", path], limit=40, preexec=limit)
        job.unharmed("fsize")
        ok("fsize: the job ends well", job.ended())
    said = [x for x in r.lines if "too large" in x.lower()]
    ok("fsize: one sentence, status 1", r.status == 1 and len(said) == 1, r.describe())
    ok("fsize: the diagnosis is there", "Steps" in r.out, r.out[:200])
    if not ok("fsize: what was written is there", os.path.exists(path)):
        return
    again, report = report_of(path)
    ok("fsize: what is in the file can be read", report, again.describe())
    for args in (["report", path, "--json", path + ".json"],
                 ["export", path, "--format", "chrome", "-o", path + ".out"]):
        r = run(args, limit=40, preexec=tiny)
        ok("fsize: %s says so" % args[0], r.status == 1 and "too large" in r.err.lower(),
           r.describe())


def mounted(tmp, size):
    place = os.path.join(tmp, "small")
    os.makedirs(place, exist_ok=True)
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=" + size, "none", place],
                      check=False, stderr=subprocess.DEVNULL).returncode:
        return None
    return place


def check_full(tmp):
    raw = os.path.join(tmp, "stream")
    for name, size, args in (("record", "128k", ["--raw-stream", raw]),
                             ("rewrite", "384k", ["--max-size", "%dK" % LIMIT_KIB])):
        place = mounted(tmp, size)
        if not place:
            say("skip", "full: no tmpfs can be mounted here")
            return
        try:
            path = os.path.join(place, "x")
            with Job(tmp) as job:
                # (a recording takes no stream)
                cmd = [] if "--raw-stream" in args else ["record"]
                r = run(cmd + ["-p", str(job.p.pid), "-d", "10", "-o", path] + args, limit=40)
                job.unharmed("full, " + name)
                ok("full, %s: the job ends well" % name, job.ended())
            said = [x for x in r.lines if "No space left" in x]
            kept = os.path.exists(path)
            if name == "record":
                ok("full, record: one sentence, status 1", r.status == 1 and len(said) == 1,
                   r.describe())
                again = run(["report", raw], limit=40)
                ok("full, record: the stream beside it is whole", again.status == 0 and
                   "Steps" in again.out, again.describe())
            else: # the old file may have been given up for room, or kept
                ok("full, rewrite: done, or said", r.status == 0 or len(said) == 1, r.describe())
            ok("full, %s: no other file is left" % name, os.listdir(place) in ([], ["x"]),
               os.listdir(place))
            again, report = report_of(path) if kept else (None, None)
            ok("full, %s: what was recorded before can be read" % name,
               kept and (report or len(again.lines) == 1), again and again.describe())
        finally:
            subprocess.run(["umount", place], check=False)


def check_owner(tmp):
    os.chmod(tmp, 0o755)
    place = os.path.join(tmp, "home")
    os.mkdir(place)
    os.chown(place, NOBODY, NOBODY)
    path, out = os.path.join(place, "mine"), os.path.join(place, "mine.json")
    env = dict(os.environ, SUDO_UID=str(NOBODY), SUDO_GID=str(NOBODY), SUDO_USER="nobody")
    with Job(tmp) as job:
        for args in ([], ["--max-size", "%dK" % LIMIT_KIB]):
            r = run(["-p", str(job.p.pid), "-d", "4", "-o", path, "--json", out] + args,
                    limit=40, env=env)
            name = "owner" + (", limited" if args else "")
            for p in (path, out):
                st = os.stat(p) if os.path.exists(p) else None
                ok("%s: %s is the caller's" % (name, os.path.basename(p)), r.status == 0 and st and
                   (st.st_uid, st.st_gid) == (NOBODY, NOBODY) and not st.st_mode & 0o022,
                   (st, r.describe()))
            ok("%s: only he may read the recording" % name,
               stat.S_IMODE(os.stat(path).st_mode) == 0o600, oct(os.stat(path).st_mode))
        # what sudo says is an environment variable: it may be anything
        root = os.path.join(tmp, "root")
        for uid in ("-1", "4294967295", "4294967296", "x", "", "0"):
            r = run(["-p", str(job.p.pid), "-d", "1", "-o", root], limit=40,
                    env=dict(env, SUDO_UID=uid))
            st = os.stat(root) if os.path.exists(root) else None
            if uid == "0":
                ok("owner: SUDO_UID='0'", st and st.st_uid == 0, r.describe())
            else:
                ok("owner: SUDO_UID=%r is refused" % uid, r.status == 1 and not st and
                   len(r.lines) == 1 and "SUDO_UID" in r.describe(), r.describe())
        # as identity services hand them out
        far = str(NOBODY + (1 << 31))
        os.chown(place, int(far), int(far))
        r = run(["-p", str(job.p.pid), "-d", "1", "-o", os.path.join(place, "far")], limit=40,
                env=dict(env, SUDO_UID=far, SUDO_GID=far))
        st = os.stat(os.path.join(place, "far")) if r.status == 0 else None
        ok("owner: SUDO_UID=%s" % far, st and st.st_uid == int(far), r.describe())
        job.unharmed("owner")


def check_shared(tmp):
    place = os.path.join(tmp, "shared")
    os.mkdir(place)
    os.chmod(place, 0o1777)
    os.chmod(tmp, 0o755)
    victim = os.path.join(tmp, "victim")

    def put(path):
        with open(path, "w", encoding="ascii") as f:
            f.write("mine")

    put(victim)
    at = {n: os.path.join(place, n) for n in ("link", "dangling", "hard", "pipe", "file")}
    os.symlink(victim, at["link"])
    os.symlink(os.path.join(tmp, "made"), at["dangling"])
    os.link(victim, at["hard"])
    os.mkfifo(at["pipe"])
    put(at["file"])
    for n in ("link", "dangling", "pipe", "file"):
        os.chown(at[n], NOBODY, NOBODY, follow_symlinks=False)
    with Job(tmp) as job:
        for n, path in at.items():
            for args in (["-o", path], ["--json", path]):
                r = run(["-p", str(job.p.pid), "-d", "1"] + args, limit=30)
                ok("shared, %s, %s: refused, or made anew" % (n, args[0]),
                   r.status in (0, 1) and (r.status == 0 or len(r.lines) >= 1), r.describe())
                with open(victim, encoding="ascii") as f:
                    ok("shared, %s, %s: nobody else's file is written" % (n, args[0]),
                       f.read() == "mine" and not os.path.exists(os.path.join(tmp, "made")))
        job.unharmed("shared")


def main():
    checks = {"size": check_size, "fsize": check_fsize, "full": check_full,
              "owner": check_owner, "shared": check_shared}
    if os.geteuid() != 0:
        print("needs root")
        return 77
    for name in (PIPETRACE, SIMJOB):
        if not os.path.exists(name):
            print("%s is not built (make)" % os.path.relpath(name, TOP))
            return 77
    for name, check in checks.items():
        if len(sys.argv) < 2 or name in sys.argv[1:]:
            with tempfile.TemporaryDirectory(prefix="pipetrace-limits-") as tmp:
                check(tmp)
    print("%d passed, %d failed, %d skipped" % (results["ok"], results["not ok"],
                                                results["skip"]))
    return 1 if results["not ok"] else 0


if __name__ == "__main__":
    sys.exit(main())
