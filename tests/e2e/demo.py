#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""`pipetrace demo`, from the build folder and from an installed copy: a diagnosis
appears, the demo job is gone afterwards, nothing stays in the kernel.

Needs root and a build.
"""
import os
import subprocess
import sys
import tempfile

from badinput_tools import PIPETRACE, TOP, bpf_objects, left_behind, run

VERDICTS = ("gpu_starved", "cpu_bound", "io_bound", "slow_worker", "cpu_oversubscribed",
            "main_thread_loading", "balanced", "GPU")
results = []


def ok(name, good, detail=""):
    results.append(bool(good))
    print("%s %s%s" % ("ok" if good else "not ok", name, "" if good else ": " + detail))


def demo_jobs():
    """Processes that run the demo's job."""
    found = set()
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            if os.path.basename(os.readlink("/proc/%s/exe" % pid)) == "simjob":
                found.add(int(pid))
        except OSError:
            pass
    return found


def check(name, binary):
    before, jobs = bpf_objects(), demo_jobs()
    r = run(["demo"], limit=45, binary=binary)
    ok(name + ": ends with status 0", r.status == 0, r.describe())
    ok(name + ": prints a diagnosis", any(v in r.out for v in VERDICTS), r.describe())
    ok(name + ": counts steps", "step" in r.out, r.describe())
    ok(name + ": its job is gone", not demo_jobs() - jobs, "left: %s" % (demo_jobs() - jobs))
    left = left_behind(before, [])
    ok(name + ": no BPF object left", not left, ", ".join(left))


def main():
    if os.geteuid() != 0:
        print("needs root")
        return 77
    check("demo", PIPETRACE)
    env = {k: v for k, v in os.environ.items() if not k.startswith("MAKE") and k != "MFLAGS"}
    with open(os.path.join(TOP, "build/.flags.cc")) as f:
        werror = ["WERROR=1"] if "-Werror" in f.read() else []
    with tempfile.TemporaryDirectory(prefix="pipetrace-demo-") as tmp:
        done = subprocess.run(["make", "-C", TOP, "install", "DESTDIR=" + tmp] + werror, env=env,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=120)
        installed = os.path.join(tmp, "usr/local/bin/pipetrace")
        if done.returncode or not os.path.exists(installed):
            ok("make install", False, done.stdout.decode("utf-8", "replace")[-400:])
        else:
            check("installed demo", installed)
    failed = results.count(False)
    print("%d passed, %d failed, 0 skipped" % (len(results) - failed, failed))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
