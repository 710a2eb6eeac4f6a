#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""The in-target agent library: what it needs of a target, and the layouts that
it reads against CUPTI's real headers, and CUPTI's real library where there is
no driver: refused, and the process goes on. What is not here is skipped.
"""

import ctypes
import os
import re
import subprocess
import sys
import tempfile

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.environ.get("BUILD", os.path.join(TOP, "build"))
CUDA = os.environ.get("CUDA_HOME", "/usr/local/cuda")
AGENT = os.path.join(BUILD, "libpipetrace_agent.so")
DRIVE = os.path.join(BUILD, "tests/e2e/agent_drive")
GLIBC_MAX = (2, 17)
EXPORTS = {"pt_agent_start", "pt_agent_stop", "InitializeInjection"}

# ours, CUPTI's of some versions, {our field: theirs}
LAYOUTS = (
    ("cupti_kernel", ("CUpti_ActivityKernel%d" % i for i in range(5, 11)),
     {"start": "start", "end": "end", "device": "deviceId", "context": "contextId",
      "stream": "streamId", "correlation": "correlationId", "name": "name",
      "graph_node": "graphNodeId", "graph": "graphId"}),
    ("cupti_memcpy", ("CUpti_ActivityMemcpy%d" % i for i in range(4, 7)),
     {"copy_kind": "copyKind", "src_kind": "srcKind", "dst_kind": "dstKind",
      "bytes": "bytes", "start": "start", "end": "end", "device": "deviceId",
      "context": "contextId", "stream": "streamId", "correlation": "correlationId",
      "graph_node": "graphNodeId", "graph": "graphId"}),
    ("cupti_memcpy2", ("CUpti_ActivityMemcpyPtoP%d" % i for i in (3, 4)),
     {"copy_kind": "copyKind", "bytes": "bytes", "start": "start", "end": "end",
      "device": "deviceId", "context": "contextId", "stream": "streamId",
      "correlation": "correlationId", "graph_node": "graphNodeId", "graph": "graphId"}),
    ("cupti_memset", ("CUpti_ActivityMemset%d" % i for i in (3, 4)),
     {"bytes": "bytes", "start": "start", "end": "end", "device": "deviceId",
      "context": "contextId", "stream": "streamId", "correlation": "correlationId",
      "graph_node": "graphNodeId", "graph": "graphId"}),
    ("cupti_sync", ("CUpti_ActivitySynchronization", "CUpti_ActivitySynchronization2"),
     {"type": "type", "start": "start", "end": "end", "correlation": "correlationId",
      "context": "contextId", "stream": "streamId"}),
    ("cupti_overhead", ("CUpti_ActivityOverhead", "CUpti_ActivityOverhead3"),
     {"overhead_kind": "overheadKind", "start": "start", "end": "end"}),
)
SIZES = (("CUPTI_KERNEL_BYTES", ("Kernel8", "Kernel9", "Kernel10")),
         ("CUPTI_MEMCPY_BYTES", ("Memcpy5", "Memcpy5", "Memcpy6")),
         ("CUPTI_MEMSET_BYTES", ("Memset4", "Memset4", "Memset4")),
         ("CUPTI_SYNC_BYTES", ("Synchronization", "Synchronization", "Synchronization2")),
         ("CUPTI_OVERHEAD_BYTES", ("Overhead", "Overhead2", "Overhead3")))
count = {"passed": 0, "failed": 0, "skipped": 0}


def ok(name, good, detail=""):
    count["passed" if good else "failed"] += 1
    if not good:
        print("FAILED: %s: %s" % (name, detail))


def skip(why):
    count["skipped"] += 1
    print("skipped: " + why)


def run(*argv, **more):
    return subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60, **more)


def library():
    dyn = run("objdump", "-T", AGENT).stdout
    versions = re.findall(r"\(?GLIBC_([0-9.]+)\)?", dyn)
    newer = [v for v in versions if tuple(int(x) for x in v.split(".")) > GLIBC_MAX]
    ok("nothing newer than glibc 2.17", versions and not newer, newer)
    undefined = {line.split()[-1] for line in dyn.splitlines() if "*UND*" in line}
    ok("no malloc, stdio or stack protector", not undefined & {
        "malloc", "calloc", "realloc", "free", "printf", "fprintf", "__stack_chk_fail",
        "__tls_get_addr", "__libc_start_main", "abort", "exit"}, undefined)
    exported = {line.split()[-1] for line in dyn.splitlines() if " Base " in line}
    ok("exports", exported == EXPORTS, exported)
    head = run("readelf", "-dlW", AGENT).stdout
    for word in ("INIT_ARRAY", "FINI_ARRAY", "(INIT)", "(FINI)", "TEXTREL", "TLS"):
        ok("no " + word, word not in head)
    needed = re.findall(r"NEEDED.*\[(.*)\]", head)
    ok("needs libc alone", needed == ["libc.so.6"], needed)


def embedded():
    with open(AGENT, "rb") as f:
        agent = f.read()
    with open(os.path.join(BUILD, "pipetrace"), "rb") as f:
        ok("the program carries it", agent in f.read())


def source():
    """One static assertion per field, size and number."""
    lines = []
    for ours, theirs, fields in LAYOUTS:
        for t in theirs:
            for a, b in fields.items():
                lines.append('_Static_assert(offsetof(struct %s, %s) == offsetof(%s, %s), "%s %s");'
                             % (ours, a, t, b, t, b))
    for macro, types in SIZES:
        for major, t in zip((11, 12, 13), types):
            lines.append('_Static_assert(%s(%d) == sizeof(CUpti_Activity%s), "%s %d");'
                         % (macro, major, t, t, major))
    lines.append('_Static_assert(sizeof(struct cupti_subscriber_params) =='
                 ' sizeof(CUpti_SubscriberParams), "params");')
    with open(os.path.join(TOP, "user/inject/agent/cupti_abi.h"), encoding="utf-8") as f:
        ours = f.read()
    numbers = re.findall(r"^#define (CUPTI_(?:ERROR|ACTIVITY)_\w+) ", ours, re.M)
    values = ["enum { ours_%s = %s };" % (n, n) for n in numbers]
    checks = ['_Static_assert(ours_%s == (int)%s, "%s");' % (n, n, n) for n in numbers]
    undef = ["#undef " + n for n in numbers + ["CUPTI_SUCCESS"]]
    ours = ours.replace("} CUpti_Activity;", "} ours_Activity;")
    ours = ours.replace("typedef int CUptiResult;", "")
    ours = ours.replace("CUptiResult;", "ours_result;").replace("CUpti_Activity ", "ours_Activity ")
    return "\n".join(["#include <stddef.h>", ours] + values + undef +
                     ["#include <cuda.h>", "#include <cupti.h>",
                      "#include <cupti_activity_deprecated.h>"] + checks + lines) + "\n"


def layouts():
    inc = os.path.join(CUDA, "include")
    if not os.path.exists(os.path.join(inc, "cupti_activity_deprecated.h")):
        skip("no cupti_activity_deprecated.h below " + inc)
        return
    with tempfile.NamedTemporaryFile("w", suffix=".c") as f:
        text = source()
        f.write(text)
        f.flush()
        done = run("cc", "-fsyntax-only", "-I" + inc, f.name)
        ok("layouts", done.returncode == 0, done.stderr[:2000])
        # and the check would notice: the same with one field moved
        with tempfile.NamedTemporaryFile("w", suffix=".c") as g:
            g.write(text.replace("uint32_t grid_dummy;", "").replace(
                "uint64_t start, end, completed;", "uint64_t completed, start, end;"))
            g.flush()
            ok("a moved field is noticed", run("cc", "-fsyntax-only", "-I" + inc, g.name).returncode)


REAL = r"""
import ctypes, os, sys, time
agent = ctypes.CDLL(sys.argv[1])
assert agent.InitializeInjection() == 1
print(os.getpid(), flush=True)
sys.stdin.readline()
print(sum(range(1000)), flush=True)
"""


def real_cupti():
    """Without a driver the real library refuses; the process does not notice."""
    lib = os.path.join(CUDA, "lib64")
    lib = lib if os.path.exists(lib) else os.path.join(CUDA, "lib")
    if not any(n.startswith("libcupti.so") for n in (os.listdir(lib) if os.path.isdir(lib) else ())):
        skip("no libcupti.so below " + CUDA)
        return
    if not os.path.exists(DRIVE):
        skip("no " + DRIVE)
        return
    try:
        ctypes.CDLL("libcuda.so.1")
        skip("a CUDA driver is here: tests/gpu measures on it")
        return
    except OSError:
        pass
    env = dict(os.environ, LD_LIBRARY_PATH=lib)
    with subprocess.Popen([sys.executable, "-c", REAL, AGENT], stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE, text=True, env=env) as p:
        pid = p.stdout.readline().strip()
        first = run(DRIVE, pid, "3000").stdout
        again = run(DRIVE, pid, "3000").stdout
        p.stdin.write("\n")
        p.stdin.close()
        rest = p.stdout.readline().strip()
        p.wait(20)
    for name, out in (("at first", first), ("again", again)):
        status = out.splitlines()[-1] if out else ""
        ok("the real CUPTI without a driver refuses " + name,
           " state=4 " in status and re.search(r" why=[13] ", status), status)
    ok("the process went on", rest == "499500" and p.returncode == 0, (rest, p.returncode))
    print("CUPTI said: " + first.splitlines()[-1].split("said=")[-1])


def main():
    if not os.path.exists(AGENT):
        print("skipped: no " + AGENT)
        print("0 passed, 0 failed, 1 skipped")
        return 0
    library()
    embedded()
    layouts()
    real_cupti()
    print("%(passed)d passed, %(failed)d failed, %(skipped)d skipped" % count)
    return 1 if count["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
