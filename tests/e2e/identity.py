#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""A report made from a recorded file is the live one, byte for byte, whatever the
capture held.

    identity.py [odd doors devices disks ranks parts ending]

One job after another, each with something else in its records: device times of CUPTI,
NVTX ranges, short reads that are summed, page faults of a mapped file, network peers,
disks, writes, samples of NVML, several ranks, parts of a schedule, steps, the function
that marks them. Each is traced live with --json and -o; then the file is reported.
Text and JSON must be equal in every byte; that the report really has what the case is
about is checked, too. What may differ is listed in docs/recording.md and in MAY.
`make test` takes a sample.

Needs root and a build. Ends with "N passed, N failed, N skipped".
"""
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading

import badinput_tools as tools
import ranks_job
from badinput_tools import PIPETRACE, SIMJOB, TOP, Child, run

CUDA = os.path.join(TOP, "build/sim/cuda")
CHECKER = os.path.join(TOP, "tests/unit/schema_check.py")
# Nothing of a whole capture: the processor time of the tracer is that at its end in
# both. Only a tracer that was killed leaves another, and then there is no live report.
MAY = ()
results = {"ok": 0, "not ok": 0, "skip": 0}

# Reads, maps, receives, writes and names ranges; trains on the simulated runtime.
ODD_JOB = r"""
import ctypes, mmap, os, socket, sys, time
gpu, nvtx = ctypes.CDLL(sys.argv[1]), ctypes.CDLL(sys.argv[2])
place, port, seconds = sys.argv[3], int(sys.argv[4]), float(sys.argv[5])
device, host = ctypes.c_void_p(), ctypes.create_string_buffer(65536)
gpu.cudaMalloc(ctypes.byref(device), ctypes.c_size_t(65536))
small, big = os.path.join(place, "small"), os.path.join(place, "big")
for path, size in ((small, 1 << 20), (big, 8 << 20)):
    with open(path, "wb") as f:
        f.write(os.urandom(size))
        os.fsync(f.fileno())
fd, data = os.open(small, os.O_RDONLY), os.open(big, os.O_RDONLY)
view = mmap.mmap(data, 0, prot=mmap.PROT_READ)
s = socket.create_connection(("127.0.0.1", port))
out = open(os.path.join(place, "out"), "wb")
print("ready", flush=True)
end, step = time.monotonic() + seconds, 0
while time.monotonic() < end:
    nvtx.nvtxRangePushA(b"load \xff\n")
    for i in range(60):                        # short ones, one after the other
        os.pread(fd, 512, (step * 60 + i) * 512 % (1 << 20))
    if not step % 10:
        view = mmap.mmap(data, 0, prot=mmap.PROT_READ)
        os.posix_fadvise(data, 0, 0, os.POSIX_FADV_DONTNEED)
    sum(view[(step * 37 + i) * 4096 % (8 << 20)] for i in range(20))
    s.sendall(b"x")
    got = 0
    while got < 4096:
        got += len(s.recv(4096 - got))
    nvtx.nvtxRangePop()
    nvtx.nvtxRangePushA(b"train")
    gpu.cudaMemcpy(device, host, ctypes.c_size_t(65536), 1)
    gpu.cudaDeviceSynchronize()
    nvtx.nvtxRangePop()
    if not step % 20:
        out.write(bytes(1 << 16))
        out.flush()
        os.fsync(out.fileno())
    step += 1
"""


def say(verdict, name, detail=""):
    results[verdict] += 1
    print("%s %s%s" % (verdict, name, ": " + str(detail)[:600] if detail else ""), flush=True)


class Store:
    """Answers each byte that comes with 4 KiB, a moment later."""

    def __init__(self):
        self.s = socket.create_server(("127.0.0.1", 0))
        self.port = self.s.getsockname()[1]
        self.thread = threading.Thread(target=self.serve, daemon=True)
        self.thread.start()

    def serve(self):
        try:
            c, _ = self.s.accept()
            with c:
                while c.recv(1):
                    c.sendall(bytes(4096))
        except OSError:
            pass

    def close(self):
        self.s.close()


def paths(value, at=""):
    """{path: leaf} of a report."""
    if isinstance(value, dict):
        return {p: x for k, v in value.items() for p, x in paths(v, at + "." + k).items()}
    if isinstance(value, list):
        return {p: x for k, v in enumerate(value)
                for p, x in paths(v, "%s[%d]" % (at, k)).items()}
    return {at: value}


def difference(a, b):
    a, b = paths(a), paths(b)
    return ["%s: live %r, from the file %r" % (p, a.get(p, "(none)"), b.get(p, "(none)"))
            for p in sorted(set(a) | set(b)) if a.get(p, a) != b.get(p, b) and p not in MAY]


def compare(name, pids, tmp, args, again=None, has=None, env=None, seconds=3):
    """Trace, report the file, compare. `again`: options of the live trace that the
    report needs, too. `has`: what must be in the report."""
    path = os.path.join(tmp, name)
    shown = ["--print-steps", "100000"]
    live = run(["-p", ",".join(map(str, pids)), "-o", path, "--json", path + ".live"]
               + (["-d", str(seconds)] if seconds else []) + args + shown, limit=60, env=env)
    if live.status != 0:
        return say("not ok", name, live.describe())
    back = run(["report", path, "--json", path + ".back"] + (again or []) + shown, limit=60)
    if back.status != 0:
        return say("not ok", name, back.describe())
    with open(path + ".live", "rb") as f, open(path + ".back", "rb") as g:
        a, b = f.read(), g.read()
    report = json.loads(a)
    wrong = []
    if a != b:
        wrong += difference(report, json.loads(b))[:4] or ["JSON differs in its form"]
    if live.out != back.out:
        wrong.append("the text differs: " + next(
            "%r, %r" % x for x in zip(live.out.splitlines() + [""],
                                      back.out.splitlines() + [""]) if x[0] != x[1]))
    if has and not has(report):
        wrong.append("the report lacks what this is about")
    checked = subprocess.run([CHECKER, path + ".back"], stdout=subprocess.PIPE, timeout=60,
                             stderr=subprocess.STDOUT, check=False)
    if checked.returncode:
        wrong.append("by the schema: %s" % checked.stdout[-300:])
    if wrong:
        keep = os.environ.get("PT_TEST_KEEP")
        if keep:
            for end in ("", ".live", ".back"):
                shutil.copyfile(path + end, os.path.join(keep, name + end))
        return say("not ok", name, "; ".join(wrong))
    return say("ok", "%s (%d bytes, %d records)" % (name, len(a), report["capture"]["events"]))


def started(child):
    child.stdout.readline()
    return child


def simjob(args, **env):
    return Child([SIMJOB, "--seconds", "60"] + args, stdout=subprocess.PIPE,
                 env=dict(os.environ, **env))


def odd(tmp):
    """Everything that is not the GPU's, in one job."""
    odd_by(tmp, "odd", [])


def doors(tmp):
    """... by other doors and options."""
    odd_by(tmp, "odd_marker", ["--step-marker", "nvtxRangePop"])
    odd_by(tmp, "odd_perf", ["--no-uprobe-multi"])
    odd_by(tmp, "odd_light", ["--mode", "light"])


def odd_by(tmp, name, args):
    store = Store()
    place = os.path.join(tmp, name + ".data")
    os.mkdir(place)
    try:
        with Child(["/usr/bin/python3", "-c", ODD_JOB,
                    os.path.join(TOP, "build/sim/libcudart.so.13"),
                    os.path.join(CUDA, "libnvToolsExt.so.1"), place, str(store.port), "60"],
                   stdout=subprocess.PIPE) as job:
            started(job)
            compare(name, [job.pid], tmp, args, None, lambda r: name != "odd" or all((
                r["peers"], r["writes"], any(f["reads"] or 0 for f in r["files"]),
                any(f["path"].endswith("/big") and f["faults"] for f in r["files"]),
                any(o["kind"] == "nvtx" for o in r["operations"]))))
    finally:
        store.close()


def devices(tmp):
    with simjob(["--api", "over"], LD_LIBRARY_PATH=CUDA) as job:
        started(job)
        compare("cupti", [job.pid], tmp, ["--cupti"],
                has=lambda r: r["capture"]["hooks"]["gpu_times"] != "none" and
                any(o["kind"] == "kernel" and o["gpu_s"] for o in r["operations"]))
        compare("cupti_window", [job.pid], tmp, ["--cupti", "--steps", "5..30"],
                ["--steps", "5..30"], lambda r: r["steps"]["count"] == 26, seconds=20)
    state = os.path.join(tmp, "state")
    with simjob([], PT_SIM_NVML=state) as job:
        started(job)
        compare("nvml", [job.pid], tmp, [], has=lambda r: r["gpu"][0]["utilization"],
                env=dict(os.environ, PT_SIM_NVML=state, LD_LIBRARY_PATH=CUDA))


def disks(tmp):
    place = os.path.join(TOP, "build", "identity.%d" % os.getpid()) # on a disk
    try:
        with simjob(["--read-dir", place, "--cold", "--item-cpu-us", "50"]) as job:
            started(job)
            compare("cold_files", [job.pid], tmp, [],
                    has=lambda r: any(f["reads"] for f in r["files"]))
        with simjob(["--read-dir", place, "--item-bytes", "512", "--item-cpu-us", "20",
                     "--items", "400"]) as job:
            started(job)
            compare("summed_reads", [job.pid], tmp, [],
                    has=lambda r: sum(f["reads"] or 0 for f in r["files"]) > 5000)
    finally:
        subprocess.run(["rm", "-rf", place], check=False)


def ranks(tmp):
    for name, args in (("ranks", []), ("ranks_cupti", ["--cupti"])):
        place = os.path.join(tmp, name + ".job")
        os.mkdir(place)
        job = ranks_job.Job(3, ["--kernel-us", "800", "--collectives", "1"],
                            {1: ["--item-sleep-us", "4000"]}, place)
        try:
            job.wait_ready()
            compare(name, job.pids(), tmp, args, has=lambda r: len(r["ranks"]) == 3 and
                    all(k["collectives"] for k in r["ranks"]))
        finally:
            job.end()


def parts(tmp):
    with simjob([]) as job:
        started(job)
        compare("steps", [job.pid], tmp, ["--steps", "8..40"], ["--steps", "8..40"],
                lambda r: r["steps"]["count"] == 33, seconds=30)
        compare("schedule", [job.pid], tmp, ["--schedule", "wait=500ms,active=1s,repeat=2"],
                has=lambda r: len(r["windows"]) == 2, seconds=0)
        compare("schedule_steps", [job.pid], tmp,
                ["--schedule", "wait=5,active=15,repeat=2"],
                has=lambda r: len(r["windows"]) == 2, seconds=0)
    with simjob(["--threads"]) as job:
        started(job)
        compare("threads", [job.pid], tmp, [])
    with simjob(["--workers", "0", "--graph"]) as job:
        started(job)
        compare("graph", [job.pid], tmp, [], has=lambda r: r["steps"]["count"])


def ending(tmp):
    """The job ends under the trace, and a tracer that is told to stop."""
    with Child([SIMJOB, "--seconds", "3"], stdout=subprocess.PIPE) as job:
        started(job)
        compare("job_ends", [job.pid], tmp, [], seconds=20)
    path = os.path.join(tmp, "interrupted")
    with simjob([]) as job:
        started(job)
        with Child([PIPETRACE, "-p", str(job.pid), "-o", path, "--json", path + ".live"]) as t:
            try:
                t.wait(3)
            except subprocess.TimeoutExpired:
                t.send_signal(signal.SIGINT)
            t.wait(10)
    r = run(["report", path, "--json", path + ".back"])
    with open(path + ".live", "rb") as f, open(path + ".back", "rb") as g:
        same = f.read() == g.read()
    say("ok" if r.status == 0 and same else "not ok", "interrupted", "" if same else r.describe())


def main():
    groups = {"odd": odd, "doors": doors, "devices": devices, "disks": disks, "ranks": ranks,
              "parts": parts, "ending": ending}
    if os.geteuid() != 0:
        print("needs root")
        return 77
    for name in (PIPETRACE, SIMJOB):
        if not os.path.exists(name):
            print("%s is not built (make e2e)" % os.path.basename(name))
            return 77
    before = tools.bpf_objects()
    for name, check in groups.items():
        if len(sys.argv) < 2 or name in sys.argv[1:]:
            with tempfile.TemporaryDirectory(prefix="pipetrace-identity-") as tmp:
                check(tmp)
    left = tools.left_behind(before, [])
    say("not ok" if left else "ok", "nothing stays in the kernel", left)
    print("%d passed, %d failed, %d skipped" % (results["ok"], results["not ok"],
                                                results["skip"]))
    return 1 if results["not ok"] else 0


if __name__ == "__main__":
    sys.exit(main())
