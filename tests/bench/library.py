# SPDX-License-Identifier: BSD-2-Clause
"""A driver's library for tests/bench/run: every entry point of it that pipetrace knows.

Five launches begin as real libraries' functions do; all others with push. Each does
nothing and returns 0.
"""
import os
import re
import subprocess

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

# name: (how its beginning is called, its instructions)
BEGINS = {
    "cuGraphLaunch": ("push", "push %rbp; mov %rsp, %rbp; xor %eax, %eax; pop %rbp; ret"),
    "cuLaunchKernel_ptsz": ("endbr64, push", "endbr64; push %rbp; mov %rsp, %rbp; "
                                             "xor %eax, %eax; pop %rbp; ret"),
    "cuLaunchCooperativeKernel_ptsz": ("mov, push", "mov %rdi, %rax; push %r12; "
                                       "mov %rax, %r12; xor %eax, %eax; pop %r12; ret"),
    "cuLaunchCooperativeKernel": ("endbr64, sub of the stack pointer",
                                  "endbr64; sub $24, %rsp; test %rsi, %rsi; je 1f; nop; "
                                  "1: xor %eax, %eax; add $24, %rsp; ret"),
    "cuLaunchKernel": ("cmp with memory, je (NVIDIA's libcuda)",
                       "cmpl $0x321cba00, armed(%rip); je 1f; jmp *implementation(%rip); "
                       ".byte 0x66, 0x0f, 0x1f, 0x44, 0, 0; 1: mov $4, %eax; ret"),
}
PUSH = BEGINS["cuGraphLaunch"][1]
DATA = """
	.type inner, @function
inner:	%s
	.data
	.p2align 3
armed:	.quad 0
implementation: .quad inner
	.section .note.GNU-stack, "", @progbits
""" % PUSH


def names():
    with open(os.path.join(TOP, "user/gpu/api.def"), encoding="utf-8") as f:
        return re.findall(r"^PT_API\((cu[A-Z]\w+),", f.read(), re.M)


def make(folder):
    """(the library, how many entry points it has)"""
    text, known = ["\t.text"], names()
    for name in known:
        text += ["\t.globl %s" % name, "\t.type %s, @function" % name, "\t.p2align 4",
                 "%s:\t%s" % (name, BEGINS.get(name, (0, PUSH))[1]),
                 "\t.size %s, . - %s" % (name, name)]
    path = os.path.join(folder, "libcuda.so.1")
    subprocess.run(["gcc", "-shared", "-nostdlib", "-Wl,-soname,libcuda.so.1", "-x",
                    "assembler", "-o", path, "-"], input="\n".join(text) + DATA, text=True,
                   check=True)
    return path, len(known)
