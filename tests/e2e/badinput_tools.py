# SPDX-License-Identifier: BSD-2-Clause
"""What badinput.py needs to look at a machine from outside: running pipetrace
with limits, what BPF objects and breakpoints it left, targets that die on cue.
"""
import json
import os
import re
import signal
import struct
import subprocess
import time

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PIPETRACE = os.path.join(TOP, "build/pipetrace")
SANITIZED = os.path.join(TOP, "build/san/pipetrace")
SIMJOB = os.path.join(TOP, "build/sim/simjob")
LIBCUDART = os.path.join(TOP, "build/sim/libcudart.so.12")


class Run:
    """A finished command."""

    def __init__(self, status, out, err, seconds):
        self.status, self.out, self.err, self.seconds = status, out, err, seconds

    @property
    def lines(self):
        return [l for l in self.err.splitlines() if l.strip()]

    def describe(self):
        return "status %s, %.1f s, stderr %r, stdout %r" % (
            self.status, self.seconds, self.err[-600:], self.out[-200:])


def decode(data):
    return data.decode("utf-8", "backslashreplace")


def run(args, limit=20.0, prefix=(), stdout=None, stdin=subprocess.DEVNULL, env=None,
        binary=PIPETRACE, preexec=None):
    """Run pipetrace; status None when it did not end within `limit` seconds."""
    begin = time.monotonic()
    proc = subprocess.Popen(list(prefix) + [binary] + list(args), stdin=stdin,
                            stdout=subprocess.PIPE if stdout is None else stdout,
                            stderr=subprocess.PIPE, env=env, preexec_fn=preexec)
    return finish(proc, limit, begin)


def finish(proc, limit, begin=None):
    begin = time.monotonic() if begin is None else begin
    try:
        out, err = proc.communicate(timeout=limit)
        status = proc.returncode
    except subprocess.TimeoutExpired:
        proc.kill()
        out, err = proc.communicate()
        status = None
    return Run(status, decode(out or b""), decode(err or b""), time.monotonic() - begin)


class Child:
    """A child process that never outlives the block."""

    def __init__(self, argv, **kw):
        kw.setdefault("stdin", subprocess.DEVNULL)
        kw.setdefault("stdout", subprocess.DEVNULL)
        kw.setdefault("stderr", subprocess.DEVNULL)
        self.proc = subprocess.Popen(argv, **kw)

    def __enter__(self):
        return self.proc

    def __exit__(self, *exc):
        if self.proc.poll() is None:
            tree = descendants(self.proc.pid)
            self.proc.send_signal(signal.SIGCONT)
            self.proc.terminate()
            try:
                self.proc.wait(5)
            except subprocess.TimeoutExpired:
                self.proc.kill()
                self.proc.wait()
            for pid, start in tree:
                if start is not None and start_time(pid) == start:
                    os.kill(pid, signal.SIGKILL)
        for pipe in (self.proc.stdout, self.proc.stderr):
            if pipe:
                pipe.close()


def start_time(pid):
    try:
        with open("/proc/%d/stat" % pid, "rb") as f:
            return f.read().rsplit(b")", 1)[1].split()[19]
    except OSError:
        return None


def descendants(pid):
    """(pid, start time) of every process below `pid`, now."""
    children = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open("/proc/%s/stat" % name, "rb") as f:
                    ppid = int(f.read().rsplit(b")", 1)[1].split()[1])
            except OSError:
                continue
            children.setdefault(ppid, []).append(int(name))
    found, todo = [], [pid]
    while todo:
        for c in children.get(todo.pop(), []):
            found.append((c, start_time(c)))
            todo.append(c)
    return found


def free_pid():
    """A process id that is not in use, and unlikely to be soon."""
    with open("/proc/sys/kernel/pid_max") as f:
        top = int(f.read())
    for pid in range(top - 1, 1, -1):
        if not os.path.exists("/proc/%d" % pid):
            return pid
    raise RuntimeError("every process id is taken")


# ---- what is loaded in the kernel -------------------------------------------

def bpftool(*args):
    for path in ("/usr/sbin/bpftool", "/sbin/bpftool", "bpftool"):
        try:
            out = subprocess.run([path, "-j"] + list(args), stdout=subprocess.PIPE,
                                 stderr=subprocess.DEVNULL, timeout=30).stdout
            return json.loads(out or b"[]")
        except FileNotFoundError:
            continue
    raise RuntimeError("bpftool is not there")


def holders():
    """{(kind, id): pids that hold a descriptor of it}."""
    found = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            fds = os.listdir("/proc/%s/fd" % pid)
        except OSError:
            continue
        for fd in fds:
            try:
                if not os.readlink("/proc/%s/fd/%s" % (pid, fd)).startswith("anon_inode:bpf"):
                    continue
                with open("/proc/%s/fdinfo/%s" % (pid, fd)) as f:
                    info = f.read()
            except OSError:
                continue
            # A link's text also names its program.
            for kind in ("link", "prog", "map"):
                m = re.search(r"^%s_id:\s*(\d+)" % kind, info, re.M)
                if m:
                    found.setdefault((kind, int(m.group(1))), set()).add(int(pid))
    return found


def bpf_objects():
    """{(kind, id): (name, pids that hold it)} of all that is loaded."""
    found = {}
    for kind in ("prog", "link", "map"):
        listing = bpftool(kind, "show")
        for obj in listing if isinstance(listing, list) else []:
            if "id" in obj:  # else it went while it was asked for
                found[kind, obj["id"]] = str(obj.get("name") or obj.get("type") or "?")
    # behind the list: what is loaded meanwhile, by another suite, has a holder then
    held = holders()
    return {key: (name, held.get(key, set())) for key, name in found.items()}


def left_behind(before, ours, patience=10.0):
    """New BPF objects that are still there although pipetrace has ended: those
    that nobody else holds, or one of `ours`. The kernel frees them a little
    later than the last close, hence the patience."""
    end = time.monotonic() + patience
    while True:
        left = []
        for key, (name, pids) in bpf_objects().items():
            if key in before or (pids and not pids & set(ours)):
                continue
            left.append("%s %d %s" % (key[0], key[1], name))
        if not left or time.monotonic() > end:
            return left
        time.sleep(0.5)


# ---- breakpoints in a target's code -----------------------------------------

def symbol_offsets(path, names):
    """File offsets of functions in a 64-bit little-endian shared library."""
    with open(path, "rb") as f:
        data = f.read()
    phoff, shoff = struct.unpack_from("<QQ", data, 32)
    phentsize, phnum, shentsize, shnum = struct.unpack_from("<HHHH", data, 54)
    loads = []
    for i in range(phnum):
        ptype, _, off, vaddr, _, filesz = struct.unpack_from("<IIQQQQ", data, phoff + i * phentsize)
        if ptype == 1:
            loads.append((off, vaddr, filesz))
    found = {}
    for i in range(shnum):
        sh = struct.unpack_from("<IIQQQQIIQQ", data, shoff + i * shentsize)
        if sh[1] != 11:  # SHT_DYNSYM
            continue
        strtab = struct.unpack_from("<IIQQQQIIQQ", data, shoff + sh[6] * shentsize)[4]
        for j in range(sh[5] // 24):
            name, _, _, shndx, value, _ = struct.unpack_from("<IBBHQQ", data, sh[4] + j * 24)
            text = data[strtab + name:data.index(b"\0", strtab + name)].decode()
            if shndx and text in names:
                for off, vaddr, size in loads:
                    if vaddr <= value < vaddr + size:
                        found[text] = value - vaddr + off
    return found


def breakpoints(pid, library):
    """Entry points of `library` whose first bytes in the process differ from the
    file's (a probe may stand up to PT_ENTRY_RUN bytes behind), and how many were
    compared."""
    names = set(re.findall(r"^PT_API\((\w+)", open(
        os.path.join(TOP, "user/gpu/api.def")).read(), re.M))
    offsets = symbol_offsets(library, names)
    real = os.path.realpath(library)
    maps = []
    with open("/proc/%d/maps" % pid) as f:
        for line in f:
            parts = line.split(None, 5)
            if len(parts) == 6 and "x" in parts[1] and parts[5].strip() == real:
                lo, hi = (int(x, 16) for x in parts[0].split("-"))
                maps.append((lo, hi - lo, int(parts[2], 16)))
    changed, compared = [], 0
    with open(library, "rb") as lib, open("/proc/%d/mem" % pid, "rb") as mem:
        for name, off in sorted(offsets.items()):
            for lo, size, base in maps:
                if base <= off < base + size:
                    lib.seek(off)
                    mem.seek(lo + off - base)
                    compared += 1
                    n = min(64, base + size - off)
                    if lib.read(n) != mem.read(n):
                        changed.append(name)
    return changed, compared


def breakpoints_left(pid, library, patience=10.0):
    """... although pipetrace has ended: the kernel takes them out as late as it frees links."""
    end = time.monotonic() + patience
    while True:
        changed, compared = breakpoints(pid, library)
        if not changed or time.monotonic() > end:
            return changed, compared
        time.sleep(0.5)
