# SPDX-License-Identifier: BSD-2-Clause
"""Storage that is slow for real, and nothing left of it afterwards.

Two ways: a block I/O throttle on the job's control group (version 1 or 2 of
the interface), which makes real disk waits; or slowfs, a FUSE file system with
a chosen rate. Both offer start(), enter (run in the child before exec, or
None), data (the directory that the job reads), throttle() and stop().
"""

import glob
import os
import re
import signal
import subprocess
import time

PROBE_BYTES = 8 << 20  # the first 0.1 s of a throttle costs nothing
PROBE_RATE = 20 << 20


class Unavailable(Exception):
    pass


def write(path, text):
    with open(path, "w", encoding="ascii") as f:
        f.write(text)


def disk_of(directory):
    """major:minor of the whole disk that holds a directory."""
    dev = os.stat(directory).st_dev
    node = "/sys/dev/block/%d:%d" % (os.major(dev), os.minor(dev))
    if not os.path.isdir(node):
        raise Unavailable("%s is not on a block device" % directory)
    node = os.path.realpath(node)
    if os.path.exists(os.path.join(node, "partition")):
        node = os.path.dirname(node)
    with open(os.path.join(node, "dev"), encoding="ascii") as f:
        return f.read().strip()


def sweep_groups(parent, prefix):
    """Remove what runs that were killed have left: groups named by a process
    that is no more. Those of others who are at work now stay, empty or not."""
    for stale in glob.glob(os.path.join(glob.escape(parent), prefix + "*")):
        pid = os.path.basename(stale)[len(prefix):]
        if not pid.isdigit() or os.path.exists("/proc/" + pid):
            continue
        try:
            os.rmdir(stale)
        except OSError:
            pass  # in use


class Throttle:
    """A limit on what the job may read from its disk."""

    name = "blkio"
    prefix = "pipetrace-test-"

    def __init__(self, data, kib_per_s, requests=0):
        """requests: so many a second, and as many bytes as they have."""
        self.data = data
        self.rate, self.requests = kib_per_s * 1024, requests
        self.disk = disk_of(data)
        leaf = self.prefix + str(os.getpid())
        if os.path.exists("/sys/fs/cgroup/blkio/blkio.throttle.read_bps_device"):
            self.group = "/sys/fs/cgroup/blkio/" + leaf
            self.version = 1
        elif os.path.exists("/sys/fs/cgroup/cgroup.subtree_control"):
            self.group = "/sys/fs/cgroup/" + leaf
            self.version = 2
        else:
            raise Unavailable("no control group for block I/O")
        self.undo = None

    def limit(self, rate):
        if self.version == 1:
            write(self.group + "/blkio.throttle.read_bps_device",
                  "%s %d" % (self.disk, rate))
        else:
            write(self.group + "/io.max", "%s rbps=%s" % (self.disk,
                                                          rate or "max"))

    def start(self):
        """Make the group; Unavailable when a limit has no effect here."""
        try:
            if self.version == 2:
                control = "/sys/fs/cgroup/cgroup.subtree_control"
                with open(control, encoding="ascii") as f:
                    if "io" not in f.read().split():
                        write(control, "+io")
                        self.undo = control
            sweep_groups(os.path.dirname(self.group), self.prefix)
            os.mkdir(self.group)
            self.limit(PROBE_RATE)
            took = self.probe()
            self.limit(0)
        except OSError as e:
            self.stop()
            raise Unavailable("block I/O throttle: %s" % e.strerror) from e
        if took < 0.6 * PROBE_BYTES / PROBE_RATE:
            self.stop()
            raise Unavailable("the block I/O throttle has no effect here")

    def probe(self):
        """Seconds that a read of PROBE_BYTES past the cache takes inside."""
        path = os.path.join(self.data, "probe.tmp.%d" % os.getpid())
        try:
            with open(path, "wb") as f:
                f.write(os.urandom(PROBE_BYTES))
                f.flush()
                os.fsync(f.fileno())
            begin = time.monotonic()
            subprocess.run(["dd", "if=" + path, "of=/dev/null", "bs=128k",
                            "iflag=direct"], preexec_fn=self.enter, timeout=30,
                           check=True, stdin=subprocess.DEVNULL,
                           stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            return time.monotonic() - begin
        except subprocess.SubprocessError as e:
            raise Unavailable("block I/O throttle: the probe failed") from e
        finally:
            if os.path.exists(path):
                os.unlink(path)

    def enter(self):
        write(self.group + "/cgroup.procs", "0")

    def throttle(self):
        if not self.requests:
            self.limit(self.rate)
        elif self.version == 1:
            write(self.group + "/blkio.throttle.read_iops_device",
                  "%s %d" % (self.disk, self.requests))
        else:
            write(self.group + "/io.max", "%s riops=%d" % (self.disk, self.requests))

    def stop(self):
        for _ in range(50):  # members may still be on their way out
            try:
                os.rmdir(self.group)
                break
            except FileNotFoundError:
                break
            except OSError:
                time.sleep(0.1)
        else:
            raise RuntimeError("cannot remove " + self.group)
        if self.undo:
            write(self.undo, "-io")
            self.undo = None


class SlowFs:
    """The same directory through a slow file system."""

    name = "fuse"
    enter = None

    def __init__(self, data, kib_per_s, program, latency_us=0, slow=None):
        if not os.path.exists("/dev/fuse"):
            raise Unavailable("no /dev/fuse")
        if not os.access(program, os.X_OK):
            raise Unavailable("%s is not built" % os.path.basename(program))
        self.source = os.path.realpath(data)
        self.data = "%s.slow-%d" % (self.source, os.getpid())
        self.argv = [program, self.source, self.data, str(kib_per_s),
                     str(latency_us)] + list(map(str, slow or ()))
        self.process = None

    @staticmethod
    def mounts():
        """Where file systems are mounted. A mount whose server was killed
        cannot be asked with stat, so os.path.ismount() misses it."""
        with open("/proc/self/mountinfo", "rb") as f:
            points = [line.split()[4] for line in f]
        return {os.fsdecode(re.sub(rb"\\([0-7]{3})",
                                   lambda m: bytes([int(m[1], 8)]), p))
                for p in points}

    def mounted(self):
        return self.data in self.mounts()

    def remove(self, path):
        if path in self.mounts():
            subprocess.run(["umount", "-l", path], check=True, timeout=10)
        if os.path.isdir(path):
            os.rmdir(path)

    def sweep(self):
        """Remove what a run that was killed has left."""
        parent, base = os.path.split(self.source + ".slow-")
        for name in os.listdir(parent):
            pid = name[len(base):]
            if name.startswith(base) and pid.isdigit() and \
                    not os.path.exists("/proc/" + pid):
                self.remove(os.path.join(parent, name))

    def start(self):
        self.sweep()
        os.makedirs(self.data, exist_ok=True)
        self.process = subprocess.Popen(self.argv, stdin=subprocess.DEVNULL,
                                        stdout=subprocess.DEVNULL,
                                        stderr=subprocess.DEVNULL)
        for _ in range(50):
            if self.mounted():
                self.read_ahead()
                return
            if self.process.poll() is not None:
                break
            time.sleep(0.1)
        self.stop()
        raise Unavailable("slowfs could not be mounted")

    def read_ahead(self):
        """A request as large as a read, so that latency is not by the piece."""
        dev = os.stat(self.data).st_dev
        try:
            write("/sys/class/bdi/%d:%d/read_ahead_kb" % (
                os.major(dev), os.minor(dev)), "1024")
        except OSError:
            pass  # smaller requests, then

    def throttle(self):
        pass  # always slow

    def stop(self):
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(5)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait(5)
        self.process = None
        self.remove(self.data)


class MemoryLimit:
    """Little room for the pages of a job's files: a memory limit on its control
    group (version 1 or 2), set once the job has its own memory."""

    prefix = "pipetrace-test-mem-"

    def __init__(self):
        leaf = self.prefix + str(os.getpid())
        if os.path.exists("/sys/fs/cgroup/memory/memory.limit_in_bytes"):
            self.group, self.version = "/sys/fs/cgroup/memory/" + leaf, 1
        elif os.path.exists("/sys/fs/cgroup/cgroup.subtree_control"):
            self.group, self.version = "/sys/fs/cgroup/" + leaf, 2
        else:
            raise Unavailable("no control group for memory")
        sweep_groups(os.path.dirname(self.group), self.prefix)
        try:
            os.mkdir(self.group)
        except OSError as e:
            raise Unavailable("memory limit: %s" % e.strerror) from e
        if not os.path.exists(os.path.join(self.group, "memory.stat")):
            self.stop()
            raise Unavailable("the memory controller is not on")

    def enter(self):
        write(self.group + "/cgroup.procs", "0")

    def held(self):
        """Bytes in it that are not pages of files."""
        with open(self.group + "/memory.stat", encoding="ascii") as f:
            stat = dict(line.split() for line in f)
        names = ("total_rss", "total_shmem") if self.version == 1 else \
            ("anon", "shmem", "kernel")
        return sum(int(stat.get(n, 0)) for n in names)

    def tighten(self, room):
        limit = str(self.held() + room)
        name = "memory.limit_in_bytes" if self.version == 1 else "memory.max"
        for _ in range(20):  # it takes what it can now, and is asked again
            try:
                write(os.path.join(self.group, name), limit)
                return
            except OSError:
                time.sleep(0.1)
        raise Unavailable("the memory limit cannot be set")

    def stop(self):
        for _ in range(50):
            try:
                os.rmdir(self.group)
                return
            except FileNotFoundError:
                return
            except OSError:
                time.sleep(0.1)


def open_storage(way, data, kib_per_s, slowfs, latency_us=0, slow=None, requests=0):
    """A started slow storage; way: "blkio", "fuse" or "auto" (the first that
    works); slow: one file's (name, us more a read), which FUSE alone can do; requests:
    so many a second and no limit of bytes, which a throttle can do. Raises
    Unavailable, saying why."""
    reasons = []
    for name in ("blkio", "fuse") if way == "auto" else (way,):
        try:
            if name == "blkio":
                storage = Throttle(data, kib_per_s, requests)
            else:
                storage = SlowFs(data, kib_per_s, slowfs, latency_us, slow)
            storage.start()
            return storage
        except Unavailable as e:
            reasons.append(str(e))
    raise Unavailable("; ".join(reasons))


def prepare(data, files, file_kib):
    """Make the input files, so that the job finds them behind a read-only
    or slow file system."""
    import job_data  # loads torch: only where it is needed

    job_data.make_files(data, files, file_kib, 1)
