#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""A real DataLoader on a memory-mapped array that is not in memory.

Two workers copy blocks of an np.memmap in random order, on a disk that is slow
for real; the report must say page_fault_io and name the array. What it says of
the file is held against the job's own log: the bytes against what became
resident (mincore) while it ran, and what the kernel's own trace (tracefs) says was
evicted meanwhile: it may reclaim pages that were read ahead and not used (DAMON); the faults against the major faults that the
kernel counted for the workers, the waiting against wall time less CPU time less
run-queue delay around each copy. A library that a worker loads from the same
cold disk is program text, not data.

    mapped.py [--seconds 10] [--keep DIR]

Needs root, a build, python3-torch and a block I/O control group; where one is
missing it says so. Ends with "N passed, N failed, N skipped".
"""
import argparse
import ctypes
import json
import mmap
import os
import random
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
TOP = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, HERE)
sys.dont_write_bytecode = True
import slow_storage  # noqa: E402

PIPETRACE = os.path.join(TOP, "build/pipetrace")
CUDART = os.path.join(TOP, "build/sim/libcudart.so.12")
BLOCK = 64 << 10
BLOCKS = 4096  # 256 MiB
RATE_KIB = 8 << 10
LIBRARY = "/usr/lib/x86_64-linux-gnu/libsqlite3.so.0"
PAGE = mmap.PAGESIZE


# ---- the job -------------------------------------------------------------------

def resident(path):
    """Bytes of the file that are in the page cache."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p]
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int,
                          ctypes.c_int, ctypes.c_long]
    libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    size = os.path.getsize(path)
    fd = os.open(path, os.O_RDONLY)
    at = libc.mmap(None, size, mmap.PROT_READ, mmap.MAP_SHARED, fd, 0)
    os.close(fd)
    vec = (ctypes.c_ubyte * ((size + PAGE - 1) // PAGE))()
    if libc.mincore(at, size, vec):
        raise OSError(ctypes.get_errno(), "mincore")
    libc.munmap(at, size)
    return sum(b & 1 for b in vec) * PAGE


def settled(path):
    """The same, once what is being read ahead has come."""
    last, end = -1, time.monotonic() + 10
    while time.monotonic() < end:
        now = resident(path)
        if now == last:
            break
        last = now
        time.sleep(0.5)
    return last


def run_delay():
    """ns that this thread waited for a CPU."""
    with open("/proc/thread-self/schedstat", encoding="ascii") as f:
        return int(f.read().split()[1])


def job(data, library, truth, seconds, advice):
    """Train on blocks of the array until the time is over."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    import resource
    import numpy as np
    import torch
    from torch.utils.data import DataLoader, Dataset, get_worker_info
    import job_gpu

    # of each worker: ns off the CPU in copies, of them on the run queue, major
    # faults; also of batches that nobody uses in the end
    cost = torch.zeros(2, 3, dtype=torch.int64).share_memory_()
    stop = torch.zeros(1, dtype=torch.int64).share_memory_()

    class Blocks(Dataset):
        def __init__(self):
            self.array = None

        def __len__(self):
            return BLOCKS

        def __getitem__(self, i):
            if stop[0]:
                return torch.zeros(BLOCK, dtype=torch.uint8)
            if self.array is None:
                ctypes.CDLL(library)
                self.array = np.memmap(data, dtype=np.uint8, mode="r")
                if advice == "random":
                    self.array._mmap.madvise(mmap.MADV_RANDOM)
            use = resource.getrusage(resource.RUSAGE_THREAD)
            delay, cpu, wall = run_delay(), time.thread_time_ns(), time.monotonic_ns()
            block = np.array(self.array[i * BLOCK:(i + 1) * BLOCK])
            wall = time.monotonic_ns() - wall
            cpu, delay = time.thread_time_ns() - cpu, run_delay() - delay
            after = resource.getrusage(resource.RUSAGE_THREAD)
            cost[get_worker_info().id] += torch.tensor(
                [wall - cpu, delay, after.ru_majflt - use.ru_majflt])
            return torch.from_numpy(block)

    order = list(range(BLOCKS))
    random.Random(7).shuffle(order)
    gpu = job_gpu.Gpu(CUDART, 300, 6, BLOCK)
    before = resident(data)
    steps, end = 0, time.monotonic() + seconds
    batches = iter(DataLoader(Blocks(), batch_size=4, num_workers=2,
                              sampler=order * 100))  # on, once all is in memory
    for x in batches:
        gpu.upload(x.data_ptr(), BLOCK)
        gpu.forward()
        gpu.backward()
        gpu.optimizer()
        gpu.sync(False)
        steps += 1
        if time.monotonic() > end:
            break
    stop[0] = 1
    for _ in range(8):  # no worker is in a copy any more, and no page on its way
        next(batches)
    batches._shutdown_workers()
    total = cost.sum(0)
    after, at = settled(data), time.monotonic_ns()
    with open(truth, "w", encoding="ascii") as f:
        json.dump({"before": before, "after": after, "after_ns": at, "steps": steps,
                   "library": resident(library), "wait_ns": int(total[0]),
                   "delay_ns": int(total[1]), "majflt": int(total[2])}, f)


# ---- the test -------------------------------------------------------------------

def die_with_parent():
    ctypes.CDLL(None).prctl(1, 9, 0, 0, 0)  # PR_SET_PDEATHSIG, SIGKILL


class Evictions:
    """Bytes of files that left the page cache, by the kernel's own trace: read
    through a process that has tracefs mounted for itself alone. With no tracefs it
    is None: then some may have. The files are of one file system."""

    HOLD = "mount -t tracefs none %s && echo on && exec sleep 600"
    EVENT = "events/filemap/mm_filemap_delete_from_page_cache"
    PREFIX = "pipetrace-test-"

    def __init__(self, paths, where):
        self.at = self.instance = None
        mount = os.path.join(where, "tracefs")
        os.makedirs(mount, exist_ok=True)
        self.holder = subprocess.Popen(
            ["unshare", "-m", "--propagation", "private", "sh", "-c",
             self.HOLD % shlex.quote(mount)], stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, preexec_fn=die_with_parent)
        if not self.holder.stdout.readline():
            return
        top = "/proc/%d/root%s" % (self.holder.pid, os.path.realpath(mount))
        slow_storage.sweep_groups(os.path.join(top, "instances"), self.PREFIX)
        at = os.path.join(top, "instances", self.PREFIX + str(os.getpid()))
        files = [os.stat(path) for path in paths]
        dev = os.major(files[0].st_dev) << 20 | os.minor(files[0].st_dev)
        try:
            os.mkdir(at)
            self.instance = at
            slow_storage.write(os.path.join(at, "trace_clock"), "mono")
            slow_storage.write(os.path.join(at, self.EVENT, "filter"),
                               "s_dev == %d && (%s)" % (dev, " || ".join(
                                   "i_ino == %d" % st.st_ino for st in files)))
            slow_storage.write(os.path.join(at, self.EVENT, "enable"), "1")
            self.at = at
        except OSError:
            pass

    def bytes(self, path, until_ns):
        """Of one of them, until then (CLOCK_MONOTONIC)."""
        if not self.at:
            return None
        with open(os.path.join(self.at, "trace"), encoding="ascii", errors="replace") as f:
            rows = re.findall(r" (\d+)\.(\d{6}): mm_filemap_delete_from_page_cache:"
                              r" dev \S+ ino ([0-9a-f]+) .*?(?:order=(\d+))?$",
                              f.read(), re.M)
        mine = os.stat(path).st_ino
        return sum(PAGE << int(order or 0) for s, us, inode, order in rows
                   if int(inode, 16) == mine and
                   int(s) * 10**9 + int(us) * 1000 <= until_ns)

    def stop(self):
        if self.at:
            slow_storage.write(os.path.join(self.at, self.EVENT, "enable"), "0")
        if self.instance:
            os.rmdir(self.instance)
        self.holder.kill()
        self.holder.wait()
        self.holder.stdout.close()


class Judge:
    def __init__(self):
        self.passed = self.failed = self.skipped = 0

    def check(self, ok, name, detail):
        self.passed += bool(ok)
        self.failed += not ok
        print("%s %s: %s" % ("ok" if ok else "not ok", name, detail), flush=True)


def cold(path):
    fd = os.open(path, os.O_RDONLY)
    os.fsync(fd)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(fd)
    return resident(path) == 0


def trace(where, storage, seconds, advice):
    data, library = os.path.join(where, "array.dat"), os.path.join(where, "libcold.so")
    truth, report = os.path.join(where, "truth.json"), os.path.join(where, "report.json")
    with open(data, "wb") as f:
        for i in range(BLOCKS // 16):
            f.write(bytes([i % 251 + 1]) * (16 * BLOCK))
    shutil.copyfile(os.path.realpath(LIBRARY), library)
    if not (cold(data) and cold(library)):
        raise RuntimeError("the files cannot be dropped from memory")
    gone = Evictions((data, library), where)
    try:
        done = run_traced(where, storage, seconds, advice, (data, library, truth, report))
        if done.returncode or not os.path.exists(truth):
            raise RuntimeError("status %d: %s" % (done.returncode, done.stderr[-800:]))
        with open(truth, encoding="ascii") as f, open(report, encoding="utf-8") as g:
            log = json.load(f)
            log["evicted"] = gone.bytes(data, log["after_ns"])
            log["library_evicted"] = gone.bytes(library, log["after_ns"])
            return data, library, log, json.load(g), done.stdout
    finally:
        gone.stop()


def run_traced(where, storage, seconds, advice, paths):
    data, library, truth, report = paths
    storage.throttle()
    argv = [PIPETRACE, "--json", report, "-o", os.path.join(where, "mapped.ptrace"), "--",
            "/usr/bin/python3", os.path.abspath(__file__), "job", data, library, truth,
            str(seconds), advice]
    return subprocess.run(argv, preexec_fn=storage.enter, timeout=seconds + 90,
                          stdin=subprocess.DEVNULL, capture_output=True, text=True)


def judge(j, how, data, library, truth, report, text):
    check = lambda ok, name, detail: j.check(ok, "%s %s" % (how, name), detail)
    found = {v["id"]: v for v in report["verdicts"]}
    # The kernel reads ahead as far as the disk is set up for. Where that is megabytes, few
    # batches fault, and these are what is slow.
    right = ("page_fault_io", "slow_item")[:1 if how == "random" else 2]
    check(any(v in found for v in right), "verdict", "%s" % list(found))
    v = next((found[v] for v in right if v in found), {"subject": {}})
    check(v["subject"].get("file") == data, "subject", "%s" % v["subject"])
    rows = {f["path"]: f for f in report["files"]}
    f = rows.get(data)
    if not f:
        check(False, "file", "not among %s" % sorted(map(str, rows))[:5])
        return
    check(f["text"] is False, "data", "text is %s" % f["text"])
    fetched, gone = truth["after"] - truth["before"], truth["evicted"]
    if gone is None:
        check(f["fault_bytes"] >= fetched, "bytes", "%d, %d are resident (no tracefs here to "
              "say what was evicted)" % (f["fault_bytes"], fetched))
    else:
        check(f["fault_bytes"] == fetched + gone, "bytes", "%d of %d: %d resident, %d evicted"
              % (f["fault_bytes"], fetched + gone, fetched, gone))
    # A fault that meets the mark of the last read-ahead begins the next one,
    # though its own page is there: one to each at most.
    most = truth["majflt"] * (1 if how == "random" else 2)
    check(truth["majflt"] <= f["faults"] <= most, "faults",
          "%d, the kernel counted %d" % (f["faults"], truth["majflt"]))
    # What the job sees beside the waiting is its own measuring; its run-queue
    # delay says how uncertain that is.
    wait, queued = (truth["wait_ns"] - truth["delay_ns"]) / 1e9, truth["delay_ns"] / 1e9
    check(abs(f["fault_s"] - wait) <= 0.02 * wait + queued, "wait",
          "%.3f s, the job's own %.3f s, %.3f s of run queue left out" %
          (f["fault_s"], wait, queued))
    lib = rows.get(library)
    most = truth["library"] + (truth["library_evicted"] or 0)
    check(lib and lib["text"] is True and 0 < lib["fault_bytes"] <= most,
          "library", "%s of %d resident bytes, those evicted meanwhile among them, text %s" %
          (lib and lib["fault_bytes"], most, lib and lib["text"]))
    every = sum(x["fault_s"] for x in report["files"])
    workers = sum(w["page_fault"] for w in report["workers"])
    check(f["fault_s"] <= workers <= every * 1.02 + queued, "workers",
          "page_fault %.3f s, %.3f s by file" % (workers, every))
    check(os.path.basename(data) in text, "text", "the file is named")


def rate(where, how):
    """KiB/s. A disk may be set to read megabytes around each fault: then as much
    faster, for a fault is not to take a second."""
    if how == "random":
        return RATE_KIB
    node = "/sys/dev/block/%s/queue/read_ahead_kb" % slow_storage.disk_of(where)
    with open(node, encoding="ascii") as f:
        return min(max(RATE_KIB, 8 * int(f.read())), 8 * RATE_KIB)


def main():
    if sys.argv[1:2] == ["job"]:
        job(*sys.argv[2:5], float(sys.argv[5]), sys.argv[6])
        return 0
    ap = argparse.ArgumentParser()
    ap.add_argument("--seconds", type=int, default=10)
    ap.add_argument("--advice", action="append", choices=("normal", "random"),
                    help="what madvise is told: read ahead, or page by page")
    ap.add_argument("--keep", help="keep the report and the recording in this folder")
    args = ap.parse_args()
    if os.geteuid():
        print("needs root")
        return 77
    try:
        import torch  # noqa: F401
    except ImportError:
        print("needs python3-torch")
        return 77
    if not os.path.exists(LIBRARY):
        print("needs " + LIBRARY)
        return 77
    parent = os.path.join(TOP, "build/e2e")
    os.makedirs(parent, exist_ok=True)
    where = tempfile.mkdtemp(prefix="mapped-", dir=parent)
    j = Judge()
    storage = None
    try:
        for how in args.advice or ("normal", "random"):
            storage = slow_storage.open_storage("blkio", where, rate(where, how), None)
            judge(j, how, *trace(where, storage, args.seconds, how))
            storage.stop()
            storage = None
    except slow_storage.Unavailable as e:
        print("no slow disk: %s" % e)
        return 77
    except (RuntimeError, subprocess.TimeoutExpired, ValueError) as e:
        j.check(False, "trace", str(e))
    finally:
        if storage:
            storage.stop()
        if args.keep:
            os.makedirs(args.keep, exist_ok=True)
            for name in ("report.json", "truth.json", "mapped.ptrace"):
                if os.path.exists(os.path.join(where, name)):
                    shutil.copy(os.path.join(where, name), args.keep)
        shutil.rmtree(where, ignore_errors=True)
    print("%d passed, %d failed, %d skipped" % (j.passed, j.failed, j.skipped))
    return 1 if j.failed else 0


if __name__ == "__main__":
    sys.exit(main())
