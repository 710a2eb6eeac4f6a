#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""What a probe costs a call at a function's entry and where pipetrace puts it, on
functions that begin as those of GPU libraries do (tests/e2e/places.S), and on a real
libcuda where PT_LIBCUDA names one.

    tests/bench/places.py [--rounds N] [--calls N]

An empty program, one thread, no probe / at the entry / at the place in turns. Prints ns a
call: median (lowest to highest round). Needs root and `make bench-places`.
"""
import argparse
import os
import subprocess
import sys
import tempfile

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.environ.get("BUILD", os.path.join(TOP, "build"))
BEGINS = {
    "cuLaunchKernel": "cmp mem; je",
    "cuCtxSynchronize": "endbr64; push",
    "cuStreamSynchronize": "mov; push",
    "cuMemFree_v2": "push",
    "cuEventRecord": "endbr64; sub rsp",
    "cuStreamQuery": "mov; loop",
}


def measure(title, library, o):
    p = subprocess.run([os.path.join(BUILD, "tests/bench/places"), library, str(o.rounds),
                        str(o.calls), *BEGINS], stdout=subprocess.PIPE, text=True, check=True)
    print("%-22s %-18s %5s %20s %22s %22s" % (title, "begins with", "place", "no probe",
                                              "at the entry", "at the place"))
    for line in p.stdout.splitlines():
        name, skip, *ns = line.split()
        cells = ["%s (%s-%s)" % (ns[k + 1], ns[k], ns[k + 2]) for k in (0, 3, 6)]
        print("%-22s %-18s %5s %20s %22s %22s" % (
            name, BEGINS[name] if title == "made" else "", "+" + skip, *cells))


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--rounds", type=int, default=7)
    p.add_argument("--calls", type=int, default=20000)
    o = p.parse_args()
    if os.geteuid() != 0:
        sys.exit("needs root")
    with tempfile.TemporaryDirectory(prefix="pipetrace-places-") as tmp:
        made = os.path.join(tmp, "libcuda.so.1")
        subprocess.run(["gcc", "-shared", "-nostdlib", "-Wl,-soname,libcuda.so.1", "-o", made,
                        os.path.join(TOP, "tests/e2e/places.S")], check=True)
        measure("made", made, o)
    if os.environ.get("PT_LIBCUDA"):
        measure("libcuda", os.environ["PT_LIBCUDA"], o)


if __name__ == "__main__":
    main()
