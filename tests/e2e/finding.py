#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""A GPU library is found wherever it is and whatever it is called, each call
counts once, and kernels have the names that can be had from outside.

findjob launches kernels through the stand-ins of the runtime and the driver:
linked in, in a container's own mount and pid namespace, deleted or replaced
on disk, twice in one process, under other names, loaded late. What the device
logged and what the job counted for each kernel, the report must say, exactly.

    finding.py [NAME...]

Needs root and a build. Ends with "N passed, N failed, N skipped".
"""

import argparse
import collections
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time

from layers import Broken, device_log

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PIPETRACE = os.path.join(TOP, "build/pipetrace")
SIM = os.path.join(TOP, "build/sim")
CUDA = os.path.join(SIM, "cuda")
NAMES = {"_Z8add_tilePfi": "add_tile(float*, int)",
         "_Z5scaleIdEvPT_": "void scale<double>(double*)",
         "reduce_rows": "reduce_rows"}
LINGER = 0.7  # s, for the names of the last kernels
LATE_GAP_MAX = 0.5  # s; without mapping events it takes up to a second

Case = collections.namedtuple("Case", "name prepare named")


# ---- where the libraries are: each gives argv, and may do more -----------------

def runtime(tmp, name="libcudart.so.12"):
    """A copy of the runtime that has a device of its own."""
    path = os.path.join(tmp, name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    shutil.copy(os.path.join(SIM, "libcudart.so.12"), path)
    return path


def findjob(kind=""):
    return os.path.join(CUDA, "findjob" + kind)


def plain(tmp):
    return [findjob(), runtime(tmp)]


def static(tmp):
    return [findjob("_static")]


def stripped(tmp):
    return [findjob("_stripped")]


def stripped_job(tmp):
    """Its own functions have no symbols; the runtime is another file."""
    job = os.path.join(tmp, "job")
    subprocess.run(["strip", "-o", job, findjob()], check=True)
    return [job, runtime(tmp)]


def driver(tmp):
    return [findjob(), "-m", "-l", "1500", os.path.join(CUDA, "libcuda.so.1")]


def driver_before(tmp):
    return [findjob(), "-m", os.path.join(CUDA, "libcuda.so.1")]


def over(tmp):
    return [findjob(), os.path.join(CUDA, "libcudart.so.12")]


def hashed(tmp):
    """As pip's wheels rename it."""
    return [findjob(), runtime(tmp, "libcudart-d0da41ae.so.11.0")]


def wheel(tmp):
    return [findjob(), runtime(
        tmp, "site-packages/nvidia/cuda_runtime/lib/libcudart.so.12")]


def renamed(tmp):
    return [findjob(), runtime(tmp, "anything.so")]


def renamed_late(tmp):
    return [findjob(), "-l", "1500", runtime(tmp, "anything.so")]


def no_soname(tmp):
    """Neither the file's name nor its own says what it is: its functions do."""
    path = runtime(tmp, "plugin.bin")
    with open(path, "rb") as f:
        data = f.read()
    # The name that the loader knows it by, and that versions are named after;
    # as long as before.
    data = data.replace(b"\0libcudart.so.12\0", b"\0libanything.xyz\0")
    with open(path, "wb") as f:
        f.write(data)
    return [findjob(), path]


def two_copies(tmp):
    return [findjob(), runtime(tmp, "venv/lib/libcudart.so.12"),
            runtime(tmp, "conda/lib/libcudart.so.12")]


def static_and_shared(tmp):
    """A program with a runtime of its own that also loads another one."""
    return [findjob("_static"), runtime(tmp)]


def deleted(tmp):
    return [findjob(), runtime(tmp)]


def delete(tmp, job):
    os.unlink(os.path.join(tmp, "libcudart.so.12"))


def replace(tmp, job):
    """An upgrade under a running job: another file of that name, whose
    functions are elsewhere."""
    new = os.path.join(tmp, "new")
    shutil.copy(os.path.join(SIM, "libcudart.so.13"), new)
    os.rename(new, os.path.join(tmp, "libcudart.so.12"))


def container(tmp):
    """A root of its own on a file system that only its namespace has."""
    root = os.path.join(tmp, "root")
    os.makedirs(root)
    files = {findjob(), os.path.join(SIM, "libcudart.so.12")}
    for f in list(files):
        out = subprocess.run(["ldd", f], capture_output=True, text=True).stdout
        files |= {w for w in out.split() if w.startswith("/")}
    lines = ["set -e", "mount --make-rprivate /", "mount -t tmpfs none " + root,
             "mkdir -p %s/log %s/opt %s/proc" % (root, root, root),
             "mount --bind %s %s/log" % (tmp, root)]
    for f in sorted(files):
        at = root + ("/opt/" + os.path.basename(f) if f.startswith(SIM)
                     else os.path.dirname(f) + "/" + os.path.basename(f))
        lines.append("mkdir -p %s && cp -L %s %s" % (os.path.dirname(at), f, at))
    lines.append("exec chroot %s /opt/findjob /opt/libcudart.so.12" % root)
    script = os.path.join(tmp, "enter.sh")
    with open(script, "w") as f:
        f.write("\n".join(lines) + "\n")
    return ["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", script]


CASES = [
    Case("plain", plain, True),
    Case("over", over, True),
    Case("static", static, True),
    Case("static_stripped", stripped, False),
    Case("static_and_shared", static_and_shared, True),
    Case("stripped_job", stripped_job, False),
    Case("driver_by_name", driver, True),
    Case("driver_named_before", driver_before, False),
    Case("hashed_name", hashed, True),
    Case("wheel", wheel, True),
    Case("renamed", renamed, True),
    Case("renamed_late", renamed_late, True),
    Case("no_soname", no_soname, True),
    Case("two_copies", two_copies, True),
    Case("deleted", deleted, True),
    Case("replaced", deleted, True),
    Case("container", container, True),
]
MEANWHILE = {"deleted": delete, "replaced": replace}


# ---- running ----------------------------------------------------------------

def outer_pid(starter, inner):
    """The id here of the job that a container started."""
    pid = starter
    for _ in range(200):
        with open("/proc/%d/status" % pid) as f:
            ns = [l for l in f if l.startswith("NSpid:")][0].split()[1:]
        with open("/proc/%d/comm" % pid) as f:
            comm = f.read().strip()
        if comm == "findjob" and int(ns[-1]) == inner:
            return pid
        with open("/proc/%d/task/%d/children" % (pid, pid)) as f:
            kids = f.read().split()
        if kids:
            pid = int(kids[0])
        else:
            time.sleep(0.01)
    raise Broken("the container's process was not found")


def trace(argv, tmp, env, meanwhile=None, contained=False, during=None):
    """(report, what the job said: {kernel: count}, opened, rounds)"""
    out = os.path.join(tmp, "report.json")
    tracer = None
    job = subprocess.Popen(argv, env=env, text=True, stdin=subprocess.PIPE,
                           stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    try:
        line = job.stdout.readline()
        if not line.strip().isdigit():
            raise Broken("the job did not start: " + line)
        pid = outer_pid(job.pid, int(line)) if contained else int(line)
        if meanwhile:
            meanwhile(tmp, job)
        tracer = subprocess.Popen([PIPETRACE, "-p", str(pid), "--json", out],
                                  text=True, stdout=subprocess.DEVNULL,
                                  stderr=subprocess.PIPE)
        told = ""
        while "attached to" not in told:
            line = tracer.stderr.readline()
            if not line:
                raise Broken("pipetrace: " + told[-200:])
            told += line
        job.stdin.write("\n")
        job.stdin.flush()
        if job.stdout.readline() != "done\n":
            raise Broken("the job failed")
        if during:
            during()
        time.sleep(LINGER)
        job.stdin.write("\n")
        job.stdin.flush()
        said = job.stdout.read().splitlines()
        status = job.wait(20)
        told += tracer.communicate(timeout=60)[1]
    finally:
        for p in (job, tracer):
            if p and p.poll() is None:
                p.kill()
                p.wait()
        job.stdout.close()
    if status:
        raise Broken("the job ended with %d" % status)
    if tracer.returncode:
        raise Broken("pipetrace: " + told.strip()[-200:])
    counts = {l.split()[0]: int(l.split()[1]) for l in said[:3]}
    opened = [int(x) / 1e9 for x in said[3].split()[1:]]
    rounds = [int(x) / 1e9 for x in said[4].split()[1:]]
    with open(out) as f:
        return json.load(f), counts, opened, rounds


def judge(c, report, counts, log):
    wrong = []
    if len(report["gpu"]) != 1:
        return ["no device in the report"]
    g = report["gpu"][0]
    ops, _, syncs = log
    if not ops["kernel"] or ops["kernel"] != sum(counts.values()):
        wrong.append("the device ran %d, the job launched %d"
                     % (ops["kernel"], sum(counts.values())))
    for what, told, true in (("kernels", g["kernels"], ops["kernel"]),
                             ("syncs", g["syncs"], syncs)):
        if told != true:
            wrong.append("%s: %s, truth %s" % (what, told, true))
    rows = {o["name"]: o["calls"] for o in report["operations"]
            if o["kind"] == "kernel"}
    limit = any(l["what"] == "kernel.names" for l in report["capture"]["limits"])
    if c.named:
        for symbol, n in counts.items():
            if rows.get(NAMES[symbol]) != n:
                wrong.append("%s: %s, truth %d (rows: %s)" % (
                    NAMES[symbol], rows.get(NAMES[symbol]), n,
                    " ".join(rows)))
        if limit:
            wrong.append("it says that names lack")
    else:
        if set(rows) & set(NAMES.values()):
            wrong.append("names from nowhere: " + " ".join(rows))
        if not limit:
            wrong.append("it does not say that names lack")
    return wrong


def late(tmp):
    """How long a library that is loaded under the trace goes unseen: the job
    launches at once, every half millisecond."""
    log = os.path.join(tmp, "gpu.csv")
    env = dict(os.environ, PT_SIM_LOG=log, PT_SIM_KERNEL_NS="100")
    argv = [findjob(), "-l", "1", "-n", "2000", "-u", "400",
            runtime(tmp)]
    report, counts, opened, rounds = trace(argv, tmp, env)
    missed = sum(counts.values()) - report["gpu"][0]["kernels"]
    at = min(missed // 3, len(rounds) - 1)
    gap = rounds[at] - opened[1] if missed else 0
    wrong = []
    if missed < 0 or device_log(log)[0]["kernel"] != sum(counts.values()):
        wrong.append("counted %d, truth %d" % (report["gpu"][0]["kernels"],
                                               sum(counts.values())))
    if gap > LATE_GAP_MAX:
        wrong.append("unseen for %.1f ms" % (gap * 1e3))
    return wrong, "missed %d of %d, %.1f ms" % (
        missed, sum(counts.values()), gap * 1e3)


def allocations(tmp):
    """Ten times two failures, one of them recovered, on a device of 1 GiB."""
    log = os.path.join(tmp, "gpu.csv")
    env = dict(os.environ, PT_SIM_LOG=log, PT_SIM_MEM=str(1 << 30))
    report, _, _, _ = trace([findjob(), "-a", runtime(tmp)], tmp, env)
    g, mb = report["gpu"][0], 1 << 20
    truth = {"code": 2, "name": "cudaErrorMemoryAllocation", "count": 20,
             "largest_bytes": 2048 * mb, "smallest_bytes": 600 * mb,
             "retried": 10, "recovered": 10, "held_bytes": 600 * mb}
    wrong = []
    if g["failed_allocations"] != 20 or len(g["allocation_failures"]) != 1:
        wrong.append("failed: %s, rows: %d" % (g["failed_allocations"],
                                               len(g["allocation_failures"])))
    for f in g["allocation_failures"]:
        wrong += ["%s: %s, truth %s" % (k, f[k], v) for k, v in truth.items()
                  if f[k] != v]
    return wrong, "20 failures, 10 recovered"


def passer_by(tmp):
    """A process that uses a GPU for a moment, while the trace runs, may have had
    ours: from then on no idle time of it is certain. One that was there alone has
    certain idle time."""
    def pass_by():
        subprocess.run([findjob(), "-l", "1", "-n", "1", runtime(tmp, "libcudart.so.11")],
                       env=env, input="\n\n", text=True, timeout=20, check=True,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    env = dict(os.environ, PT_SIM_KERNEL_NS="2000")
    argv = [findjob(), "-l", "1", "-n", "200", "-u", "1000", runtime(tmp)]
    most = [trace(argv, tmp, env, during=f)[0]["gpu"][0]["busy"]["hard"][1]
            for f in (None, pass_by)]
    wrong = []
    if not most[0] < 0.9:
        wrong.append("alone, and no idle time is certain")
    if most[1] < 1:
        wrong.append("somebody else came by, and idle time is certain")
    return wrong, "busy at most %.0f %%, with a passer-by %.0f %%" % (
        100 * most[0], 100 * most[1])


def run_case(c):
    with tempfile.TemporaryDirectory(prefix="pipetrace-finding-") as tmp:
        log = os.path.join(tmp, "gpu.csv")
        contained = c.name == "container"
        env = dict(os.environ, PT_SIM_KERNEL_NS="2000",
                   PT_SIM_LOG="/log/gpu.csv" if contained else log)
        report, counts, _, _ = trace(c.prepare(tmp), tmp, env,
                                     MEANWHILE.get(c.name), contained)
        return (judge(c, report, counts, device_log(log)),
                "%d kernels" % sum(counts.values()))


def own_mounts():
    """In a chroot the root is no mount, and nothing can be mounted unseen."""
    return not subprocess.run(["unshare", "--mount", "true"],
                              stderr=subprocess.DEVNULL).returncode


def main():
    p = argparse.ArgumentParser()
    p.add_argument("names", nargs="*")
    o = p.parse_args()
    if os.geteuid() != 0:
        print("needs root")
        return 77
    if not os.path.exists(findjob("_stripped")):
        print("needs a build")
        return 77
    passed = failed = skipped = 0
    runs = [(c.name, lambda c=c: run_case(c)) for c in CASES]

    def in_folder(run):
        with tempfile.TemporaryDirectory(prefix="pipetrace-finding-") as tmp:
            return run(tmp)
    runs.append(("late_gap", lambda: in_folder(late)))
    runs.append(("allocations", lambda: in_folder(allocations)))
    runs.append(("passer_by", lambda: in_folder(passer_by)))
    for name, run in runs:
        if o.names and name not in o.names:
            continue
        if name == "container" and not own_mounts():
            skipped += 1
            print("skip container: no mount namespace of its own can be made here")
            continue
        try:
            wrong, said = run()
        except (Broken, OSError, ValueError, IndexError, KeyError,
                subprocess.SubprocessError) as e:
            wrong, said = ["%s: %s" % (type(e).__name__, e)], ""
        passed, failed = passed + (not wrong), failed + bool(wrong)
        print("%s %s: %s%s" % ("not ok" if wrong else "ok", name, said,
                               "; " + "; ".join(wrong) if wrong else ""),
              flush=True)
    print("%d passed, %d failed, %d skipped" % (passed, failed, skipped))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
