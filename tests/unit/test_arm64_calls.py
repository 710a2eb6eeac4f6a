#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""Hold bpf/arm64_calls.h against the kernel's headers: a call has the same name there by
its number of arm64 and here by that of x86-64."""

import os
import re
import sys

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
GENERIC = "/usr/include/asm-generic/unistd.h"
X86 = "/usr/include/x86_64-linux-gnu/asm/unistd_64.h"
# The same work under another name.
OTHER = {"fstatat": "newfstatat", "sync_file_range2": "sync_file_range"}
NONE = {"arch_specific_syscall", "syscalls"}


def numbers(path):
    with open(path) as f:
        found = re.findall(r"^#define\s+__NR(?:3264)?_(\w+)\s+(\d+)", f.read(), re.M)
    return {OTHER.get(n, n): int(v) for n, v in found if n not in NONE}


def main():
    if not os.path.exists(GENERIC) or not os.path.exists(X86):
        print("there are no kernel headers of x86-64")
        return 77
    with open(os.path.join(TOP, "bpf/arm64_calls.h")) as f:
        body = re.search(r"\[512\] = \{(.*?)\[", f.read(), re.S).group(1)
    table = [int(x) for x in re.findall(r"-?\d+", body)]
    generic, x86 = numbers(GENERIC), numbers(X86)
    passed = failed = 0
    for name, nr in sorted(generic.items(), key=lambda x: x[1]):
        if 403 <= nr < 424:
            continue    # of 32-bit processors
        here = nr if nr >= 424 else table[nr] if nr < len(table) else None
        if here == x86.get(name, here if nr >= 424 else -2):
            passed += 1
        else:
            print("not ok %s: %d is %s, not %s" % (name, nr, here, x86.get(name)))
            failed += 1
    for nr, here in enumerate(table):
        if here >= 0 and nr not in generic.values():
            print("not ok %d: arm64 has no such call" % nr)
            failed += 1
    print("%d passed, %d failed, 0 skipped" % (passed, failed))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
