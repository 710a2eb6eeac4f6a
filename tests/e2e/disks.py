#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""Behind the reads: block requests of the job against its own timings and the
disk's counters, on a loop device below a throttled disk and on that disk itself;
file systems by kind; how much of a file came from memory; writes and fsync
against the job's own clock. Needs root and a build. Counts and names are judged in
any case; times only while the machine is quiet by the kernel's pressure figures, else
they are skipped by name.
"""
import json
import os
import signal
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
TOP = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, HERE)
sys.path.insert(0, os.path.join(TOP, "tests"))
sys.dont_write_bytecode = True
import noise  # noqa: E402
import slow_storage  # noqa: E402

BUILD = os.environ.get("BUILD", os.path.join(TOP, "build"))
PIPETRACE = os.path.join(BUILD, "pipetrace")
SLOWFS = os.path.join(BUILD, "tests/e2e/slowfs")
MIB = 1 << 20
results, skipped = [], []

# Direct random reads by several threads, each one timed.
READER = r"""
import json, mmap, os, random, sys, threading, time
path, threads, size, seconds, log, go = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), \
    float(sys.argv[4]), sys.argv[5], sys.argv[6]
fd = os.open(path, os.O_RDONLY | os.O_DIRECT)
blocks = os.fstat(fd).st_size // size
rows = []
def work(seed):
    rng, buf = random.Random(seed), mmap.mmap(-1, size)
    while not stop.is_set():
        at = rng.randrange(blocks) * size
        t = time.monotonic_ns()
        n = os.preadv(fd, [buf], at)
        rows.append((t, time.monotonic_ns(), n))
while not os.path.exists(go):
    time.sleep(0.02)
stop = threading.Event()
all_ = [threading.Thread(target=work, args=(i,)) for i in range(threads)]
[t.start() for t in all_]
time.sleep(seconds)
stop.set()
[t.join() for t in all_]
json.dump(rows, open(log, "w"))
os.mknod(sys.argv[7])
time.sleep(60)
"""

# Reads files whole with plain reads: `PATH COUNT` each, dropping nothing.
PLAIN = r"""
import os, sys, time
go = sys.argv[1]
while not os.path.exists(go):
    time.sleep(0.02)
for spec in sys.argv[3:]:
    path, times = spec.rsplit("=", 1)
    for i in range(int(times)):
        with open(path, "rb", buffering=0) as f:
            while f.read(131072):
                pass
os.mknod(sys.argv[2])
time.sleep(60)
"""

WRITER = r"""
import json, os, sys, time
go, done, path, log, flushes = sys.argv[1:5] + [int(sys.argv[5])]
while not os.path.exists(go):
    time.sleep(0.02)
calls = synced = 0
took, queued = {"write": 0, "fsync": 0}, {"write": 0, "fsync": 0}
def run_queue():
    with open("/proc/self/schedstat") as f:
        return int(f.read().split()[1])
def timed(what, call):
    q, t = run_queue(), time.monotonic_ns()
    call()
    took[what] += time.monotonic_ns() - t
    queued[what] += run_queue() - q
end = time.monotonic() + 3
while time.monotonic() < end:
    with open(path, "wb", buffering=0) as f:
        for i in range(16):
            timed("write", lambda: f.write(b"x" * 1048576)); calls += 1
        if flushes:
            timed("fsync", lambda: os.fsync(f.fileno())); synced += 1
    time.sleep(0.02)
json.dump({"calls": calls, "write_s": took["write"] / 1e9, "fsync_s": took["fsync"] / 1e9,
           "fsyncs": synced, "queued": {k + "_s": n / 1e9 for k, n in queued.items()}},
          open(log, "w"))
os.mknod(done)
time.sleep(60)
"""


def ok(name, good, detail=""):
    results.append(bool(good))
    print("%s %s%s" % ("ok" if good else "not ok", name, "" if good else ": " + str(detail)),
          flush=True)


def timed(watch, name, good, detail=""):
    """A check of times since the watch began."""
    noisy = None if good else noise.too_noisy(watch.share())
    if noisy:
        skip(name, noisy)
    else:
        ok(name, good, detail)


def skip(name, why):
    skipped.append(name)
    print("skip %s: %s" % (name, why), flush=True)


def run(argv, **kw):
    return subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, timeout=60, check=True, **kw)


def wait_for(path, seconds, what):
    end = time.monotonic() + seconds
    while not os.path.exists(path):
        if time.monotonic() > end:
            raise RuntimeError("%s took more than %d s" % (what, seconds))
        time.sleep(0.02)


def traced(tmp, code, args, mode="standard", enter=None):
    """The report of a job that begins its work under the trace and is stopped
    after it, and of the disks' counters before and after."""
    name = "%d" % time.monotonic_ns()
    go, done, out = (os.path.join(tmp, name + x) for x in (".go", ".done", ".json"))
    argv = [a.replace("@GO", go).replace("@DONE", done) for a in args]
    job = subprocess.Popen([sys.executable, "-I", "-c", code] + argv, stdin=subprocess.DEVNULL,
                           stderr=subprocess.PIPE, preexec_fn=enter)
    tracer = None
    try:
        time.sleep(0.3)
        with open(os.path.join(tmp, name + ".err"), "w+b") as err:
            tracer = subprocess.Popen([PIPETRACE, "-p", str(job.pid), "--mode", mode, "--json",
                                       out, "-d", "50"], stdin=subprocess.DEVNULL,
                                      stdout=subprocess.DEVNULL, stderr=err)
            end = time.monotonic() + 20
            while b"attached" not in open(err.name, "rb").read():
                if time.monotonic() > end or tracer.poll() is not None:
                    raise RuntimeError("the tracer did not attach: %r"
                                       % open(err.name, "rb").read()[-300:])
                time.sleep(0.05)
            before = counters()
            os.mknod(go)
            wait_for(done, 45, "the job")
            after = counters()
            time.sleep(0.3)
            tracer.send_signal(signal.SIGINT)
            tracer.wait(30)
    finally:
        for p in (tracer, job):
            if p is not None and p.poll() is None:
                p.kill()
                p.wait(10)
        job.stderr.close()
    with open(out, encoding="utf-8") as f:
        return json.load(f), before, after


def counters():
    """Reads, bytes and ms of each disk, by its own counters."""
    out = {}
    with open("/proc/diskstats", encoding="ascii") as f:
        for line in f:
            v = line.split()
            out[v[2]] = [int(v[3]), int(v[5]) * 512, int(v[6])]
    return out


def disk_of(report, name):
    return next((d for d in report["disks"] if d["name"] == name), None)


def file_of(report, end, table="files"):
    return next((f for f in report[table] if (f["path"] or "").endswith(end)), None)


class Loop:
    """An ext4 file system on a loop device whose file lies on the slow disk."""

    def __init__(self, tmp, mib):
        self.image, self.at = os.path.join(tmp, "image"), os.path.join(tmp, "mnt")
        self.dev = None
        with open(self.image, "wb") as f:
            f.truncate(mib * MIB)
        run(["mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=0", self.image])
        os.mkdir(self.at)
        done = run(["losetup", "--direct-io=on", "--show", "-f", self.image])
        self.dev = done.stdout.decode().strip()
        try:
            run(["mount", "-t", "ext4", "-o", "noatime", self.dev, self.at])
        except (subprocess.SubprocessError, OSError):
            self.stop()
            raise
        self.name = os.path.basename(self.dev)

    def stop(self):
        if self.at in slow_storage.SlowFs.mounts():
            subprocess.run(["umount", "-l", self.at], timeout=20, check=False)
        if self.dev:
            subprocess.run(["losetup", "-d", self.dev], timeout=20, check=False)


def blob(path, mib, drop=True):
    with open(path, "wb") as f:
        for _ in range(mib):
            f.write(os.urandom(MIB))
        f.flush()
        os.fsync(f.fileno())
        if drop:
            os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    return path


def depth_truth(rows):
    """Reads in flight when one began, itself included: mean."""
    marks = sorted([(a, 1) for a, b, n in rows] + [(b, -1) for a, b, n in rows])
    now = total = 0
    for _, step in marks:
        now += step
        total += now if step > 0 else 0
    return total / len(rows)


def blind():
    """Some sandboxes' kernels run no BPF program while a thread of their first
    process is the current task, interrupts that hit it included: such threads are
    switched, but never seen to be."""
    def switches():
        total = 0
        for tid in os.listdir("/proc/1/task"):
            with open("/proc/1/task/%s/status" % tid, encoding="utf-8") as f:
                total += sum(int(line.split()[1]) for line in f if "ctxt_switches" in line)
        return total
    before = switches()
    out = subprocess.run([os.path.join(BUILD, "tests/e2e/dump_records"), "1", "3", "light"],
                         stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60,
                         errors="replace", check=False).stdout
    did = switches() - before
    # bit 0: still open, told by the walk over all tasks
    seen = sum(1 for line in out.splitlines() if line.startswith("OFF ") and " tgid=1 " in line
               and not int(line.split(" flags=")[1].split()[0]) & 1)
    print("# the first process: %d switches, %d seen" % (did, seen), flush=True)
    return did >= 10 and seen < did // 10


def latency(tmp, where, disk, name, threads, size, enter):
    log = os.path.join(tmp, "log.%d" % time.monotonic_ns())
    watch = noise.Watch()
    report, before, after = traced(tmp, READER,
                                   [where, str(threads), str(size), "4", log, "@GO", "@DONE"],
                                   enter=enter)
    with open(log, encoding="ascii") as f:
        rows = json.load(f)
    d = disk_of(report, disk)
    ok(name + ": the disk is named", d is not None, report["disks"])
    if d is None:
        return
    bytes_ = sum(n for _, _, n in rows)
    ms = [(b - a) / 1e6 for a, b, _ in rows]
    # a read can be cut where the file's extents end, and metadata is read too
    few = 0
    if d["reads"] < len(rows) and blind():
        # such requests are counted when their place is taken again: not the last ones
        few = 4 * threads
        print("# this kernel runs no BPF program in some task's time: %d requests are missing, "
              "%d may be" % (len(rows) - d["reads"], few), flush=True)
    ok(name + ": bytes are the job's", bytes_ - few * size <= d["read_bytes"] <= 1.02 * bytes_ + 64 * 4096,
       (bytes_, d["read_bytes"]))
    ok(name + ": as many requests", len(rows) - few <= d["reads"] <= 1.1 * len(rows) + 64,
       (len(rows), d["reads"]))
    mean, told = sum(ms) / len(ms), d["read_latency_ms"]["mean"]
    # the call has its own cost beside the request's, and waits for a core
    timed(watch, name + ": latency is below the calls' time", told <= 1.01 * mean, (told, mean))
    stat = [y - x for x, y in zip(before[disk], after[disk])]
    true = stat[2] / stat[0]
    # whole milliseconds are counted of each request: half of one off at most
    timed(watch, name + ": latency is the disk's own", abs(told - true) <= 0.05 * true + 0.5, (told, true))
    ok(name + ": the disk's counters", stat[0] <= d["machine"]["reads"] <= stat[0] + 20,
       (stat, d["machine"]))
    ordered = sorted(ms)
    for q in (50, 99):
        real = ordered[min(len(ms) - 1, len(ms) * q // 100)]
        got = d["read_latency_ms"]["p%d" % q]
        # half an octave is the resolution. Where a call waited for a core, too,
        # only the tail is the disk's for sure.
        near = ordered[max(0, len(ms) * q // 100 - len(ms) // 50)] / 1.5 if q > 90 else 0.01
        timed(watch, "%s: p%d" % (name, q), near <= got <= 1.5 * real + 0.5, (got, real))
    depth = depth_truth(rows)
    timed(watch, name + ": queue depth", 0.6 * depth <= d["queue_depth"]["mean"] <= 1.1 * depth + 0.1,
          (d["queue_depth"], depth))
    # metadata's requests may make up the number of those whose completion was not seen
    deepest = d["queue_depth"]["max"]
    hidden = 4 * threads if few or deepest > threads + 4 and blind() else 0
    ok(name + ": no deeper than the job goes", deepest <= threads + 4 + 2 * hidden,
       (d["queue_depth"], hidden))


def on_loop(tmp, loop, throttle):
    path = blob(os.path.join(loop.at, "data"), 24)
    throttle.throttle()
    latency(tmp, path, loop.name, "loop below a throttled disk", 4, 65536, throttle.enter)


def on_disk(tmp, throttle):
    """Buffered reads that the throttle holds back: made by the kernel's thread."""
    name = os.path.basename(os.path.realpath("/sys/dev/block/" + throttle.disk))
    path = blob(os.path.join(tmp, "cold"), 12)
    warm = blob(os.path.join(tmp, "warm"), 12, drop=False)
    with open(warm, "rb") as f:
        while f.read(MIB):
            pass
    throttle.throttle()
    report, _, _ = traced(tmp, PLAIN, ["@GO", "@DONE", path + "=1", warm + "=2"],
                          enter=throttle.enter)
    d = disk_of(report, name)
    ok("throttled disk: reads that were held back are the job's",
       d is not None and 0.9 * 12 * MIB <= d["read_bytes"] <= 14 * MIB, d)
    if report["capture"]["hooks"]["reads"] in ("none", None):
        skip("share of a file that was in memory", "no door to reads")
        return
    cold, hot = file_of(report, "/cold"), file_of(report, "/warm")
    ok("a cold file came from the disk", cold and cold["cached_share"] is not None and
       cold["cached_share"] <= 0.1 and 0.9 * 12 * MIB <= cold["fetched_bytes"] <= 13.5 * MIB, cold)
    ok("a warm file came from memory", hot and hot["cached_share"] is not None and
       hot["cached_share"] >= 0.95, hot)


def kinds(tmp, loop):
    """One file on each kind of file system that this machine offers."""
    wants, spec, mounts = {}, [], []

    def add(label, path, fs, cls, device):
        wants[label] = (os.path.basename(path), fs, cls, device)
        spec.append(path + "=1")

    slow = None
    try:
        add("ext4", blob(os.path.join(loop.at, "k.ext4"), 1), "ext4", "local", loop.name)
        shm = os.path.join(tmp, "shm")
        os.mkdir(shm)
        run(["mount", "-t", "tmpfs", "none", shm])
        mounts.append(shm)
        # tmpfs has no reads at the page door
        full = blob(os.path.join(shm, "k.tmpfs"), 1, False)
        add("tmpfs", full, "tmpfs", "memory", None)
        over = [os.path.join(loop.at, x) for x in ("low", "up", "work")]
        for x in over:
            os.mkdir(x)
        merged = os.path.join(tmp, "merged")
        os.mkdir(merged)
        blob(os.path.join(over[0], "k.overlay"), 1)
        try:
            run(["mount", "-t", "overlay", "none", "-o",
                 "lowerdir=%s,upperdir=%s,workdir=%s" % tuple(over), merged])
            mounts.append(merged)
            add("overlay", os.path.join(merged, "k.overlay"), "overlay", "local", loop.name)
        except subprocess.SubprocessError:
            skip("overlay", "overlayfs cannot be mounted")
        source = os.path.join(tmp, "served")
        os.mkdir(source)
        blob(os.path.join(source, "k.fuse"), 1)
        try:
            slow = slow_storage.SlowFs(source, 4096, SLOWFS)
            slow.start()
            add("FUSE", os.path.join(slow.data, "k.fuse"), "fuse", "user", None)
        except slow_storage.Unavailable as e:
            slow = None
            skip("FUSE", e)
        report, _, _ = traced(tmp, PLAIN, ["@GO", "@DONE"] + spec, mode="full")
    finally:
        if slow:
            slow.stop()
        for m in reversed(mounts):
            subprocess.run(["umount", "-l", m], timeout=20, check=False)
    for label, (name, fs, cls, device) in wants.items():
        f = file_of(report, name)
        got = f and ((f["fs"] or "").split(".")[0], f["fs_class"], f["device"])
        ok("kind of file system: " + label, got == (fs, cls, device), got)


def writes(tmp):
    for mode in ("full", "standard"):
        watch = noise.Watch()
        path, log = os.path.join(tmp, "ckpt." + mode), os.path.join(tmp, "w." + mode)
        report, _, _ = traced(tmp, WRITER, ["@GO", "@DONE", path, log, "1"], mode=mode)
        with open(log, encoding="ascii") as f:
            true = json.load(f)
        w = file_of(report, "/ckpt." + mode, "writes")
        ok("writes, %s mode: the file is named" % mode, w is not None, report["writes"][:3])
        if w is None:
            continue
        if report["capture"]["hooks"]["writes"] == "none":
            ok("writes without a door: calls are unknown, and the limits say so",
               w["calls"] is None and w["write_s"] is None and
               any(x["what"] == "writes" for x in report["capture"]["limits"]), w)
            ok("writes without a door: no more time than the job's",
               0 < w["fsync_s"] <= 1.02 * true["fsync_s"], (w, true))
            ok("writes without a door: about the bytes",
               0.2 * true["calls"] * MIB <= w["bytes"] <= 1.01 * true["calls"] * MIB, (w, true))
            continue
        ok("writes, %s mode: calls and bytes are the job's" % mode,
           w["calls"] == true["calls"] and w["fsyncs"] == true["fsyncs"] and
           w["bytes"] == true["calls"] * MIB, (w, true))
        # what a call costs outside of the hooks; its core may be taken there
        for key in ("write_s", "fsync_s"):
            timed(watch, "writes, %s mode: %s" % (mode, key),
                  0.8 * true[key] - true["queued"][key] <= w[key] <= 1.01 * true[key],
                  (w[key], true[key], true["queued"][key]))


def main():
    if os.geteuid() != 0:
        print("needs root")
        return 77
    if not os.access(PIPETRACE, os.X_OK):
        print("build/pipetrace is not built")
        return 1
    loop = throttle = None
    with tempfile.TemporaryDirectory(prefix="pipetrace-disks-",
                                     dir=os.environ.get("PT_TEST_DISK")) as tmp:
        try:
            try:
                throttle = slow_storage.Throttle(tmp, 8192)
                throttle.start()
            except slow_storage.Unavailable as e:
                throttle = None
                skip("a throttled disk", e)
            try:
                loop = Loop(tmp, 64)
            except (subprocess.SubprocessError, OSError) as e:
                skip("a loop device", e)
            if loop and throttle:
                on_loop(tmp, loop, throttle)
            if throttle:
                on_disk(tmp, throttle)
            if loop:
                kinds(tmp, loop)
            writes(tmp)
        finally:
            if loop:
                loop.stop()
            if throttle:
                throttle.stop()
    print("%d passed, %d failed, %d skipped" % (sum(results), len(results) - sum(results),
                                                len(skipped)))
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
