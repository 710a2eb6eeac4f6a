/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Functions by the driver's names that begin as compilers' functions do, byte for byte.
 * places.py says where a probe on each is to stand, and counts. Each returns 0.
 */
	.macro function name
	.globl \name
	.type \name, @function
	.p2align 4
\name:
	.endm

	.macro done name
	.size \name, . - \name
	.endm

	.text

/* as in NVIDIA's driver library: je is 10 bytes behind */
function cuLaunchKernel
	cmpl $0x321cba00, armed(%rip)
	je 1f
	jmp *implementation(%rip)
	.byte 0x66, 0x0f, 0x1f, 0x44, 0, 0
1:	mov $4, %eax
	ret
done cuLaunchKernel

	.type launch, @function
launch:
	push %rbp
	mov %rsp, %rbp
	xor %eax, %eax
	pop %rbp
	ret
done launch

function cuCtxSynchronize
	endbr64
	push %rbp
	mov %rsp, %rbp
	xor %eax, %eax
	pop %rbp
	ret
done cuCtxSynchronize

function cuStreamSynchronize
	mov %rdi, %rax
	push %r12
	mov %rax, %r12
	xor %eax, %eax
	pop %r12
	ret
done cuStreamSynchronize

/* it gives something in memory; what is read after it returned must be it */
function cuMemAlloc_v2
	endbr64
	test %rdi, %rdi
	je 1f
	movq $4096, (%rdi)
1:	xor %eax, %eax
	ret
done cuMemAlloc_v2

function cuMemFree_v2
	push %rbp
	mov %rsp, %rbp
	xor %eax, %eax
	pop %rbp
	ret
done cuMemFree_v2

/* the stack's top has moved */
function cuEventRecord
	endbr64
	sub $24, %rsp
	test %rsi, %rsi
	je 1f
	nop
1:	xor %eax, %eax
	add $24, %rsp
	ret
done cuEventRecord

/* the jump is cheap, and taken three times a call */
function cuStreamQuery
	mov $3, %eax
1:	sub $1, %eax
	jne 1b
	ret
done cuStreamQuery

/* an argument has gone */
function cuEventQuery
	xor %edi, %edi
	push %rbp
	pop %rbp
	xor %eax, %eax
	ret
done cuEventQuery

/* a part elsewhere comes back to the second instruction */
function cuEventSynchronize
	mov $2, %eax
again:	sub $1, %eax
	jne cold
	ret
done cuEventSynchronize

/* nothing but the end */
function cuMemcpyHtoDAsync_v2
	mov $0, %eax
	ret
done cuMemcpyHtoDAsync_v2

	.section .text.unlikely, "ax", @progbits
	.type cold, @function
cold:	test %eax, %eax
	jmp again
done cold

	.data
	.p2align 3
armed:	.quad 0
implementation:
	.quad launch

	.section .note.GNU-stack, "", @progbits
