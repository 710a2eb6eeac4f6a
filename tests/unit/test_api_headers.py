#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""Hold user/gpu/api.def against the headers that this machine has: cuda.h,
cuda_runtime_api.h and nccl.h below CUDA_HOME, hip_runtime_api.h below ROCM_PATH.

For every line whose function a header declares: the slots that the table names
are those where the System V x86-64 ABI passes the parameters of the right type
or name. And the offsets behind pointers are those of the structs.
"""

import os
import re
import subprocess
import sys

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
CUDA = os.environ.get("CUDA_HOME", "/usr/local/cuda")
ROCM = os.environ.get("ROCM_PATH", "/opt/rocm")
SUFFIX = re.compile(r"_(ptsz|ptds|spt)$")
# By value and larger than a register: eightbytes, and whether in registers.
BY_VALUE = {"dim3": (2, True), "struct cudaPitchedPtr": (4, False),
            "struct cudaExtent": (3, False), "cudaExtent": (3, False),
            "ncclUniqueId": (16, False), "hipExtent": (3, False),
            "hipPitchedPtr": (4, False)}
STREAM = {"cudaStream_t", "CUstream", "hipStream_t"}
EVENT = {"cudaEvent_t", "CUevent", "hipEvent_t"}
KIND = {"enum cudaMemcpyKind", "hipMemcpyKind", "enum hipMemcpyKind"}
BYTES = {"count", "ByteCount", "sizeBytes", "size", "bytesize", "bytes", "N",
         "sendcount", "recvcount", "sizeByte"}
FUNC = {"func", "f", "function_address", "fPtr", "hostFunction"}


def table():
    """[(symbol, class, {stream, v0, v1, v2: slot or None}, how)]"""
    lines = []
    with open(os.path.join(TOP, "user/gpu/api.def")) as f:
        for m in re.finditer(r"^PT_API\((.*)\)$", f.read(), re.M):
            v = [x.strip() for x in m.group(1).split(",")]
            slots = {n: None if x == "N" else int(x)
                     for n, x in zip(("stream", "v0", "v1", "v2"), v[3:7])}
            lines.append((v[0], v[1], slots, v[7]))
    return lines


def declarations(header, *flags):
    """{function: [(type, name)]} of a header."""
    text = subprocess.run(["cc", "-E", "-P", "-x", "c", *flags, header],
                          capture_output=True, text=True, check=True).stdout
    text = re.sub(r"__attribute__\s*\(\(.*?\)\)", " ", text)
    text = re.sub(r"__declspec\s*\(.*?\)", " ", text)
    found = {}
    for m in re.finditer(r"\b((?:cu|cuda|hip|nccl)[A-Z]\w*)\s*\(([^(){};]*)\)\s*;",
                         text):
        args = []
        for a in m.group(2).split(","):
            a = " ".join(a.replace("*", " * ").replace("const", " ").split())
            if a in ("void", ""):
                continue
            a = re.sub(r"\[\w*\]$", "", a).strip()
            t = re.match(r"(.*?)(\w+)$", a)
            args.append((t.group(1).strip(), t.group(2)) if t and t.group(1)
                        else (a, ""))
        found[m.group(1)] = args
    return found


def slots_of(args):
    """[(slot, type, name)]; stack slots from 6 on."""
    out, reg, stack = [], 0, 6
    for kind, name in args:
        words, in_regs = BY_VALUE.get(kind, (1, True))
        if in_regs and reg + words <= 6:
            out.append((reg, kind, name))
            reg += words
        else:
            out.append((stack, kind, name))
            stack += words
    return out


def wants(cls, slots, how, where):
    """[(what, slot in the table, slots that would be right)]"""
    def typed(types):
        return [s for s, t, _ in where if t in types]

    def named(names):
        return [s for s, _, n in where if n in names]

    w = []
    config = "VIA(CONFIG)" in how
    if typed(STREAM) or slots["stream"] is not None:
        right = [0] if config else typed(STREAM)
        w.append(("stream", slots["stream"], right))
    if cls == "LAUNCH":
        w.append(("function", slots["v0"], named(FUNC)))
    elif cls in ("EVENT_RECORD", "SYNC_EVENT", "STREAM_WAIT"):
        what = slots["v0"]
        w.append(("event", what, typed(EVENT)))
    elif cls in ("COPY_SYNC", "COPY_ASYNC"):
        if typed(KIND):
            w.append(("kind", slots["v2"], typed(KIND)))
        if "AREA" in how:
            w.append(("width", slots["v1"], named({"width", "Width"})))
            w.append(("height", slots["v0"], named({"height", "Height"})))
        elif "VIA" not in how:
            w.append(("bytes", slots["v1"], named(BYTES)))
    elif cls in ("MEMSET", "ALLOC") and "VOLUME" in how:
        extent = [s for s, t, _ in where if t.endswith("Extent")]
        w.append(("extent", slots["v1"], extent))
        w.append(("its height", slots["v0"], [x + 1 for x in extent]))
        w.append(("its depth", slots["v2"], [x + 2 for x in extent]))
    elif cls in ("MEMSET", "ALLOC") and "AREA" in how:
        w.append(("width", slots["v1"], named({"width", "Width",
                                               "WidthInBytes"})))
        w.append(("height", slots["v0"], named({"height", "Height"})))
    elif cls == "MEMSET" or (cls == "ALLOC" and slots["v1"] is not None):
        w.append(("bytes", slots["v1"], named(BYTES | {"sizeBytes", "n"})))
    elif cls == "EVENT_END":
        w.append(("event", slots["v0"], typed(EVENT)))
    elif cls in ("PREFETCH", "MAP", "UNMAP"):
        w.append(("bytes", slots["v1"], named(BYTES)))
    elif cls == "COPY_BATCH":
        w.append(("copies", slots["v0"], named({"count", "numOps"})))
    elif cls == "GRAPH_UPDATE":
        w.append(("executable", slots["v0"],
                  typed({"cudaGraphExec_t", "CUgraphExec", "hipGraphExec_t"})))
    elif cls == "FUNCTION":
        w.append(("handle", slots["v0"], [0]))
        w.append(("what it is made of", slots["v1"],
                  named({"name", "kernel", "symbolPtr", "entryFuncAddr"})))
    elif cls == "COLLECTIVE":
        w.append(("communicator", slots["v0"], typed({"ncclComm_t"})))
        w.append(("elements", slots["v1"], typed({"size_t"})))
        w.append(("data type", slots["v2"], typed({"ncclDataType_t"})))
    return w


STRUCTS = """
#include <stddef.h>
#include <cuda.h>
#include <cuda_runtime_api.h>
#define AT(type, field, offset) \\
    _Static_assert(offsetof(type, field) == offset, #type "." #field)
AT(cudaLaunchConfig_t, stream, 32);
AT(CUlaunchConfig, hStream, 32);
AT(struct cudaMemcpy3DParms, extent, 128);
AT(struct cudaMemcpy3DParms, kind, 152);
AT(struct cudaMemcpy3DPeerParms, extent, 144);
AT(CUDA_MEMCPY2D, srcMemoryType, 16);
AT(CUDA_MEMCPY2D, dstMemoryType, 72);
AT(CUDA_MEMCPY2D, WidthInBytes, 112);
AT(CUDA_MEMCPY2D, Height, 120);
AT(CUDA_MEMCPY3D, srcMemoryType, 32);
AT(CUDA_MEMCPY3D, dstMemoryType, 120);
AT(CUDA_MEMCPY3D, WidthInBytes, 176);
AT(CUDA_MEMCPY3D, Depth, 192);
AT(CUDA_MEMCPY3D_PEER, srcMemoryType, 32);
AT(CUDA_MEMCPY3D_PEER, dstMemoryType, 120);
AT(CUDA_MEMCPY3D_PEER, WidthInBytes, 176);
_Static_assert(CU_MEMORYTYPE_HOST == 1 && CU_MEMORYTYPE_DEVICE == 2 &&
               CU_MEMORYTYPE_ARRAY == 3 && CU_MEMORYTYPE_UNIFIED == 4, "types");
_Static_assert(cudaMemcpyHostToHost == 0 && cudaMemcpyHostToDevice == 1 &&
               cudaMemcpyDeviceToHost == 2 && cudaMemcpyDeviceToDevice == 3 &&
               cudaMemcpyDefault == 4, "kinds");
_Static_assert((unsigned long)CU_STREAM_PER_THREAD == 2 &&
               (unsigned long)cudaStreamPerThread == 2 &&
               (unsigned long)cudaStreamLegacy == 1, "streams");
"""
NCCL_SIZES = "Int8 1 Uint8 1 Int32 4 Uint32 4 Int64 8 Uint64 8 Float16 2 " \
             "Float32 4 Float64 8 Bfloat16 2 Float8e4m3 1 Float8e5m2 1"


def compiles(source, *flags):
    r = subprocess.run(["cc", "-x", "c", "-fsyntax-only", *flags, "-"],
                       input=source, capture_output=True, text=True)
    if r.returncode:
        print(r.stderr)
    return r.returncode == 0


def nccl_source():
    """The order of ncclDataType_t is the one that api.c has sizes for."""
    names = NCCL_SIZES.split()[::2]
    with open(os.path.join(TOP, "user/gpu/api.c")) as f:
        sizes = re.search(r"size\[\] = \{([^}]*)\}", f.read()).group(1)
    if [int(x) for x in sizes.split(",")] != \
            [int(x) for x in NCCL_SIZES.split()[1::2]]:
        return "#error the sizes of api.c are others\n"
    return "#include <nccl.h>\n" + "".join(
        '_Static_assert(nccl%s == %d, "%s");\n' % (n, i, n)
        for i, n in enumerate(names))


def main():
    passed = failed = skipped = 0
    declared = {}
    inc = os.path.join(CUDA, "include")
    for name, need, flags in (
            ("cuda_runtime_api.h", "cuda", ["-I" + inc]),
            ("cuda.h", "cu", ["-I" + inc]),
            ("nccl.h", "nccl", ["-I" + inc])):
        path = os.path.join(inc, name)
        if os.path.exists(path):
            declared.update(declarations(path, *flags))
        else:
            print("skipped: no", path)
            skipped += 1
    hip = os.path.join(ROCM, "include/hip/hip_runtime_api.h")
    if os.path.exists(hip):
        declared.update(declarations(hip, "-I" + os.path.join(ROCM, "include"),
                                     "-D__HIP_PLATFORM_AMD__"))
    else:
        print("skipped: no", hip)
        skipped += 1
    checked = set()
    for symbol, cls, slots, how in table():
        args = declared.get(symbol)
        if args is None:
            args = declared.get(SUFFIX.sub("", symbol))
        if args is None:
            continue
        where = slots_of(args)
        bad = ["%s in slot %s, the header says %s" % (what, have, right)
               for what, have, right in wants(cls, slots, how, where)
               if have not in right]
        checked.add(symbol)
        if bad:
            failed += 1
            print("FAILED: %s: %s" % (symbol, "; ".join(bad)))
        else:
            passed += 1
    unknown = [s for s, *_ in table() if s not in checked]
    print("no header declares: " + (" ".join(unknown) or "none"))
    if os.path.exists(os.path.join(inc, "cuda.h")):
        ok = compiles(STRUCTS, "-I" + inc)
        passed, failed = passed + ok, failed + (not ok)
    if os.path.exists(os.path.join(inc, "nccl.h")):
        ok = compiles(nccl_source(), "-I" + inc)
        passed, failed = passed + ok, failed + (not ok)
    print("%d passed, %d failed, %d skipped" % (passed, failed, skipped))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
