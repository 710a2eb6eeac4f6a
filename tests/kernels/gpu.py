# SPDX-License-Identifier: BSD-2-Clause
"""Context switches, GPU calls and CUPTI's stand-in in an emulated machine.

What the job's device did is in its own log (docs/simulated-gpu.md), written by the
device's thread; the report must have each call, once.
"""
import glob
import json
import os
import shutil

STEPS = 60
LOADERS = ("ld-linux-aarch64.so.1", "ld-linux-x86-64.so.2")
OPS = ("kernel", "h2d", "d2h", "d2d", "memset")
PART = """
echo "begin switches"; timeout 200 /bin/switches; echo "end switches $?"
mkdir -p /data/items /data/gpu
job="/sim/simjob --steps %(steps)d --seconds 0 --workers 2 --items 4 --item-bytes 20000"
job="$job --item-cpu-us 200 --kernel-us 300 --launches 7 --read-dir /data/items --files 16"
gpu() { # name, options of pipetrace
	echo "begin gpu $1"; name=$1; api=$2; shift 2
	rm -f /tmp/log.* /tmp/go /tmp/text /tmp/g.json; mkfifo /tmp/go
	LD_LIBRARY_PATH=$libs PT_SIM_LOG=/tmp/log.%%%%p timeout 300 $job --api $api --hold < /tmp/go > /dev/null 2>&1 &
	exec 9> /tmp/go
	sleep 1
	pid=$(pidof simjob | tr ' ' '\n' | sort -n | head -n 1)
	timeout 300 /bin/pipetrace -p $pid "$@" --json /tmp/g.json > /tmp/text 2>&1 &
	i=0; while ! grep -q attached /tmp/text && [ $i -lt 600 ]; do usleep 100000; i=$((i+1)); done
	sleep 1
	echo go >&9
	exec 9>&-
	wait
	sed 's/^/text /' /tmp/text; sed 's/^/json /' /tmp/g.json
	cat /tmp/log.* | sed 's/^/log /'
	echo "end gpu 0"
}
gpu runtime runtime
gpu over over
gpu perf over --no-uprobe-multi
gpu none runtime --no-gpu-probes
libs=/sim/cuda
gpu borrowed runtime --cupti
export CUDA_INJECTION64_PATH=/sim/libpipetrace_agent.so
gpu cupti runtime --cupti
""" % {"steps": STEPS}


def put(build, sysroot, top):
    """The job, its libraries and what the loader needs of the C library."""
    for folder in ("sim", "sim/cuda"):
        to = os.path.join(top, folder)
        os.makedirs(to, exist_ok=True)
        for f in glob.glob(os.path.join(build, folder, "*.so*")) + \
                glob.glob(os.path.join(build, folder, "simjob")):
            shutil.copy(f, to)
    shutil.copy(os.path.join(build, "static/libpipetrace_agent.so"), os.path.join(top, "sim"))
    shutil.copy(os.path.join(build, "static/tests/kernels/switches"), os.path.join(top, "bin"))
    lib = os.path.join(top, "lib")
    os.makedirs(lib, exist_ok=True)
    for name in LOADERS + ("libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0"):
        for f in glob.glob(os.path.join(sysroot, "lib/*-linux-gnu", name)):
            shutil.copy(os.path.realpath(f), os.path.join(lib, name))
    os.symlink("lib", os.path.join(top, "lib64"))


def calls_of(part):
    """call -> how often the device was asked by it, from its log."""
    out = {}
    for line in part:
        f = line[4:].split(",") if line.startswith("log ") else []
        if len(f) >= 8 and f[0] in OPS:
            out[f[7]] = out.get(f[7], 0) + 1
    return out


def outer(name):
    """The runtime's function that a driver's comes from."""
    return {"cuLaunchKernel": "cudaLaunchKernel"}.get(name, name)


def verdicts(kernel):
    out = []
    part = kernel.parts.get("switches", [])
    out.append((part[-1:] == ["ok"], "switches: " + "; ".join(part[-4:])))
    for name in ("runtime", "over", "perf", "none", "borrowed", "cupti"):
        part = kernel.parts.get("gpu " + name, [])
        report = kernel.report("gpu " + name)
        text = [x[5:] for x in part if x.startswith("text ")]
        if not report:
            out.append((False, "gpu %s: no report: %s" % (name, " | ".join(text)[-400:])))
            continue
        hooks = report["capture"]["hooks"]
        want = {}
        for api, n in calls_of(part).items():
            want[outer(api)] = want.get(outer(api), 0) + n
        have = {o["name"]: o["calls"] for o in report["operations"] if o["kind"] == "api"}
        if name == "none":
            out.append((hooks["gpu"] == "none" and not have,
                        "gpu none: nothing is hooked, %d reads in files are seen" % sum(
                            f["reads"] for f in report["files"])))
            continue
        launches = {k: v for k, v in want.items() if "Launch" in k}
        wrong = ["%s: %s for %d" % (k, have.get(k), v) for k, v in want.items()
                 if have.get(k) != v and (k in launches or name in ("runtime", "borrowed", "cupti"))]
        lost = report["capture"]["lost"]["total"]
        out.append((bool(launches) and not wrong and not lost,
                    "gpu %s by %s: %s; %d steps, %d lost%s" % (
                        name, hooks["gpu"], ", ".join("%s %s" % (k, have.get(k))
                                                      for k in sorted(want)),
                        report["steps"]["count"] or 0, lost,
                        "; wrong: " + "; ".join(wrong) if wrong else "")))
        if name in ("borrowed", "cupti"):
            g = (report["gpu"] or [{}])[0]
            busy = (g.get("busy") or {}).get("certainty")
            kernels = sum(n for k, n in want.items() if "Launch" in k)
            out.append((hooks.get("gpu_times") == "cupti" and g.get("kernels") == kernels,
                        name + " by %s: %s of %d kernels have their times (busy: %s)%s" % (
                            hooks.get("gpu_times"), g.get("kernels"), kernels, busy,
                            "; " + json.dumps(report["capture"]["limits"])[:300]
                            if g.get("kernels") != kernels else "")))
    return out
