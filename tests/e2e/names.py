#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""Bytes carry the path that the job read them by.

namejob opens, reads and closes thousands of small files, each once and within a
millisecond, from several threads; then files that were open before, renamed,
deleted, linked twice, of reused inode numbers, with hostile names, deep in a tree,
mapped, in tmpfs, in another mount namespace and on an overlay. What it logged is
compared with what the model made of the records, for every read door that this
kernel opens.

    names.py [--files N] [--threads N] [--door DOOR]

Needs root and a build. Ends with "N passed, N failed, N skipped".
"""
import argparse
import collections
import os
import shutil
import subprocess
import sys
import tempfile
import time

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
DUMP = os.path.join(TOP, "build/tests/e2e/dump_files")
JOB = os.path.join(TOP, "build/tests/e2e/namejob")
DOORS = ("fexit", "kprobe", "pages", "syscall")
RIGHT = 0.999  # of the bytes, as the project promises
# The tracepoint of page ranges lies behind the page cache of a file system.
BLIND = {"pages": {"tmpfs"}}
LIMIT = 120

File = collections.namedtuple("File", "calls bytes faults major fetched wait text")


class Broken(Exception):
    pass


def prepare(where, files):
    """The small files: 100 to 7,700 bytes, so that most have a size of their own."""
    for i in range(64):
        os.makedirs("%s/small/%02u" % (where, i))
    for i in range(files):
        with open("%s/small/%02u/%06u" % (where, i % 64, i), "wb") as f:
            f.write(b"x" * (100 + 13 * i % 7600))


def line(proc):
    text = proc.stdout.readline()
    if not text:
        raise Broken("%s ended early" % os.path.basename(proc.args[0]))
    return text.strip().decode()


def read_truth(path):
    """{path: [case, bytes, faulted]}"""
    truth = {}
    with open(path) as f:
        for row in f:
            case, size, faulted, name = row.rstrip("\n").split(" ")
            t = truth.setdefault(bytes.fromhex(name), [case, 0, 0])
            t[1] += int(size)
            t[2] += int(faulted)
    return truth


def read_dump(text):
    """({path: File}, bytes without a name, lost, fault door)"""
    seen, nameless, lost, door = {}, 0, 0, 0
    for row in text.splitlines():
        part = row.split(" ")
        if part[0] == "lost":
            lost = int(part[1])
        elif part[0] == "door":
            door = int(part[2])
        elif part[0] == "file":
            f = File(*map(int, part[3:10]))
            if part[10] == "-":
                nameless += f.bytes
                continue
            path = bytes.fromhex(part[10])
            old = seen.get(path)
            seen[path] = File(*(a + b for a, b in zip(old, f))) if old else f
    return seen, nameless, lost, door


def trace(where, door, files, threads):
    truth = os.path.join(where, "truth")
    procs = []
    try:
        job = subprocess.Popen([JOB, where, str(files), str(threads), truth, "mounts"],
                               stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        procs.append(job)
        if line(job) != "ready":
            raise Broken("the job is not ready")
        dump = subprocess.Popen([DUMP, str(job.pid), "full", door], stdin=subprocess.PIPE,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        procs.append(dump)
        if dump.stdout.readline() != b"attached\n":
            err = dump.stderr.read().decode().strip()
            if dump.wait(20) == 77:
                return None
            raise Broken("dump_files: " + err)
        job.stdin.write(b"g")
        job.stdin.flush()
        begin = time.monotonic()
        if line(job) != "done":
            raise Broken("the job failed")
        took = time.monotonic() - begin
        out, _ = dump.communicate(timeout=LIMIT)
        job.communicate(timeout=20)
        return read_truth(truth), read_dump(out.decode()), took
    finally:
        for p in procs:
            if p.poll() is None:
                p.kill()
                p.wait()


def right(cases, truth, seen):
    """(bytes under the right path, bytes that the job read), of some cases."""
    good = total = 0
    for path, (case, size, _) in truth.items():
        if case in cases and size:
            total += size
            good += min(size, seen[path].bytes) if path in seen else 0
    return good, total


class Judge:
    def __init__(self):
        self.passed = self.failed = self.skipped = 0

    def check(self, ok, name, detail):
        self.passed += bool(ok)
        self.failed += not ok
        print("%s %s: %s" % ("ok" if ok else "not ok", name, detail), flush=True)

    def skip(self, name, why):
        self.skipped += 1
        print("skip %s: %s" % (name, why), flush=True)


def judge_reads(j, door, truth, seen, where):
    for case in sorted({t[0] for t in truth.values() if t[1]}):
        if case in BLIND.get(door, ()):
            j.skip("%s %s" % (door, case), "this door does not see it")
            continue
        good, total = right({case}, truth, seen)
        j.check(good >= RIGHT * total, "%s %s" % (door, case),
                "%d of %d bytes under the right path (%.3f %%)" %
                (good, total, 100 * good / total))
        if good < RIGHT * total:
            for path, t in sorted(truth.items()):
                if t[0] == case and t[1] and (path not in seen or seen[path].bytes < t[1]):
                    print("    missing: %r %s" % (path, seen.get(path)))
                    break
    # under a name of the job's folder that it did not read: another's bytes
    wrong = sum(max(0, f.bytes - (truth[p][1] if p in truth else 0))
                for p, f in seen.items() if p.startswith(where))
    total = sum(t[1] for t in truth.values())
    j.check(wrong <= (1 - RIGHT) * total, "%s wrong names" % door,
            "%d bytes too many under a name" % wrong)


def judge_faults(j, door, truth, seen, fault_door):
    if not fault_door:
        j.skip("%s faults" % door, "no door to page faults")
        return
    for path, (case, _, faulted) in sorted(truth.items()):
        if not faulted:
            continue
        f = seen.get(path)
        j.check(f and f.fetched == faulted and f.major and f.text == 0,
                "%s faults %s" % (door, case), "%r: %s of %d bytes in %s faults, text %s" % (
                    os.path.basename(path), f and f.fetched, faulted, f and f.major,
                    f and f.text))


def run(j, door, args, parent):
    where = tempfile.mkdtemp(prefix="names-", dir=parent)
    try:
        prepare(where, args.files)
        found = trace(where, door, args.files, args.threads)
        if not found:
            j.skip(door, "this kernel does not open the door")
            return
        truth, (seen, nameless, lost, fault_door), took = found
        print("%s: %d files in %.2f s, %d records lost, %d bytes without a name" %
              (door, len(truth), took, lost, nameless), flush=True)
        judge_reads(j, door, truth, seen, os.fsencode(where))
        judge_faults(j, door, truth, seen, fault_door)
    except (Broken, subprocess.TimeoutExpired) as e:
        j.check(False, door, str(e))
    finally:
        shutil.rmtree(where, ignore_errors=True)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--files", type=int, default=20000)
    ap.add_argument("--threads", type=int, default=8)
    ap.add_argument("--door", action="append", choices=DOORS)
    args = ap.parse_args()
    if os.geteuid():
        print("needs root")
        return 77
    parent = os.path.join(TOP, "build/e2e")
    os.makedirs(parent, exist_ok=True)
    j = Judge()
    for door in args.door or DOORS:
        run(j, door, args, parent)
    print("%d passed, %d failed, %d skipped" % (j.passed, j.failed, j.skipped))
    return 1 if j.failed else 0


if __name__ == "__main__":
    sys.exit(main())
