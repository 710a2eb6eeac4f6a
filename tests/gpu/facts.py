# SPDX-License-Identifier: BSD-2-Clause
"""What a machine's GPU libraries do that no document says."""

import ctypes
import os
import re
import struct
import subprocess
import sys
import tempfile

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
LAUNCHES = {"libcudart": ("cudaLaunchKernel", "cudaLaunchKernelExC"),
            "libcuda": ("cuLaunchKernel", "cuLaunchKernelEx")}
ELF_MAX = 4 << 30

# A program of 1000 launches; it says its own maps, then launches.
TORCH_JOB = """
import sys, torch
x = torch.zeros(64, device="cuda"); torch.cuda.synchronize()
print(open("/proc/self/maps").read(), end=""); print("READY", flush=True)
sys.stdin.readline()
for _ in range(1000): x.add_(1.0)
torch.cuda.synchronize()
"""
SIM_JOB = """
import ctypes, sys
rt = ctypes.CDLL(sys.argv[1])
class D(ctypes.Structure): _fields_ = [(c, ctypes.c_uint) for c in "xyz"]
rt.cudaLaunchKernel.argtypes = [ctypes.c_void_p, D, D, ctypes.c_void_p,
                                ctypes.c_size_t, ctypes.c_void_p]
print(open("/proc/self/maps").read(), end=""); print("READY", flush=True)
sys.stdin.readline()
for _ in range(1000): rt.cudaLaunchKernel(1 << 20, D(1, 1, 1), D(1, 1, 1), None, 0, None)
rt.cudaDeviceSynchronize()
"""


# ---- where a function lies in a library's file -----------------------------------

def symbol_offsets(path, names):
    """{name: file offset} of exported functions of a 64-bit ELF file."""
    with open(path, "rb") as f:
        if os.fstat(f.fileno()).st_size > ELF_MAX:
            raise ValueError("too large")
        head = f.read(64)
        if head[:5] != b"\x7fELF\x02":
            raise ValueError("not a 64-bit ELF file")
        shoff, = struct.unpack_from("<Q", head, 40)
        phoff, = struct.unpack_from("<Q", head, 32)
        phsize, phnum, shsize, shnum = struct.unpack_from("<HHHH", head, 54)
        f.seek(phoff)
        ph = f.read(phsize * phnum)
        loads = []
        for i in range(phnum):
            kind, = struct.unpack_from("<I", ph, i * phsize)
            off, addr, _, size = struct.unpack_from("<QQQQ", ph, i * phsize + 8)
            if kind == 1:
                loads.append((addr, size, off))
        f.seek(shoff)
        sh = f.read(shsize * shnum)
        sections = [struct.unpack_from("<IIQQQQIIQQ", sh, i * shsize)
                    for i in range(shnum)]
        found = {}
        for s in sections:
            if s[1] != 11 or s[6] >= len(sections):   # SHT_DYNSYM
                continue
            f.seek(s[4])
            syms = f.read(s[5])
            f.seek(sections[s[6]][4])
            strings = f.read(sections[s[6]][5])
            for at in range(0, len(syms) - 23, 24):
                name, _, _, shndx, value, _ = struct.unpack_from("<IBBHQQ", syms, at)
                text = strings[name:name + 64].split(b"\0")[0].decode("latin-1")
                if text in names and shndx:
                    for addr, size, off in loads:
                        if addr <= value < addr + size:
                            found[text] = value - addr + off
        return found


def libraries(maps):
    """{"libcudart" or "libcuda": path} of a process's maps."""
    out = {}
    for line in maps.splitlines():
        m = re.search(r"(/\S*/(libcudart|libcuda)[-.0-9a-f]*\.so[.0-9]*)$", line)
        if m:
            out.setdefault(m.group(2), m.group(1))
    return out


# ---- counting calls with the kernel's own probes ---------------------------------

class Tracefs:
    """The tracing file system: where it is mounted, or on a mount of our own."""

    def __init__(self):
        self.own = None
        for path in ("/sys/kernel/tracing", "/sys/kernel/debug/tracing"):
            if os.path.exists(os.path.join(path, "uprobe_events")):
                self.path = path
                return
        self.path = self.own = tempfile.mkdtemp(prefix="pipetrace-tracefs-")
        if subprocess.run(["mount", "-t", "tracefs", "none", self.own], check=False,
                          stderr=subprocess.DEVNULL).returncode:
            os.rmdir(self.own)
            raise OSError("no tracing file system")

    def close(self):
        if self.own:
            subprocess.run(["umount", self.own], check=False)
            os.rmdir(self.own)

    def write(self, name, text):
        # O_TRUNC would clear all probes of the machine; a seek is refused
        fd = os.open(os.path.join(self.path, name), os.O_WRONLY | os.O_APPEND)
        try:
            os.write(fd, (text + "\n").encode())
        finally:
            os.close(fd)

    def hits(self):
        with open(os.path.join(self.path, "uprobe_profile"), encoding="ascii",
                  errors="replace") as f:
            return {v[1]: int(v[2]) for v in map(str.split, f) if len(v) >= 3}


def count_calls(argv, env=None):
    """{"library symbol": calls} of a program that says its maps and waits."""
    job = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                           stderr=subprocess.DEVNULL, text=True, env=env)
    group, events, fs = "ptgpu%d" % os.getpid(), {}, None
    try:
        maps = []
        for line in job.stdout:
            if line.strip() == "READY":
                break
            maps.append(line)
        fs = Tracefs()
        for lib, path in libraries("".join(maps)).items():
            for symbol, off in symbol_offsets(path, LAUNCHES[lib]).items():
                event = "%s_%s" % (lib, symbol)
                fs.write("uprobe_events", "p:%s/%s %s:0x%x" % (group, event, path, off))
                events[event] = lib + " " + symbol
                fs.write("events/%s/%s/enable" % (group, event), "1")
        if not events:
            raise OSError("no library with a launch is mapped")
        job.communicate("\n", timeout=60)
        hits = fs.hits()
        return {name: hits.get(event, 0) for event, name in events.items()}
    finally:
        if job.poll() is None:
            job.kill()
            job.wait()
        for event in events:
            try:
                fs.write("events/%s/%s/enable" % (group, event), "0")
                fs.write("uprobe_events", "-:%s/%s" % (group, event))
            except OSError:
                pass
        if fs:
            fs.close()


def launch_layers(simulate):
    """A sentence: which exported launches a runtime's launch passes."""
    if simulate:
        rt = os.path.join(TOP, "build/sim/cuda/libcudart.so.12")
        argv = [sys.executable, "-c", SIM_JOB, rt]
    else:
        argv = [sys.executable, "-c", TORCH_JOB]
    try:
        calls = count_calls(argv)
    except (OSError, ValueError, struct.error, subprocess.TimeoutExpired) as e:
        return "not known: %s" % e
    return "1000 launches of a program: " + ", ".join(
        "%s %d" % x for x in sorted(calls.items()))


# ---- NVML ------------------------------------------------------------------------

def nvml(simulate):
    """{what: value}; empty when there is no NVML."""
    name = "libnvidia-ml.so.1"
    if simulate:
        name = os.path.join(TOP, "build/sim/cuda", name)
    try:
        lib = ctypes.CDLL(name)
    except OSError:
        return {}
    if lib.nvmlInit_v2():
        return {}
    out, text = {}, ctypes.create_string_buffer(96)
    device, n = ctypes.c_void_p(), ctypes.c_uint()
    if not lib.nvmlSystemGetDriverVersion(text, 96):
        out["driver"] = text.value.decode("latin-1")
    if not lib.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(device)):
        if not lib.nvmlDeviceGetName(device, text, 96):
            out["device"] = text.value.decode("latin-1")
        pair = (ctypes.c_uint * 2)()
        if not lib.nvmlDeviceGetUtilizationRates(device, pair):
            out["utilisation_percent"] = pair[0]
        for what, kind in (("sm_mhz", 1), ("memory_mhz", 2)):
            if not lib.nvmlDeviceGetClockInfo(device, kind, ctypes.byref(n)):
                out[what] = n.value
        if not lib.nvmlDeviceGetPowerUsage(device, ctypes.byref(n)):
            out["power_w"] = n.value / 1000
        mask = ctypes.c_ulonglong()
        if not lib.nvmlDeviceGetCurrentClocksThrottleReasons(device, ctypes.byref(mask)):
            out["throttle_reasons"] = hex(mask.value)
    lib.nvmlShutdown()
    return out
