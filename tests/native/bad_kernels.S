/* Kernels that the trampoline must find fault with, each named after the SDGEN_TEST_ bit that it must set; one that keeps
 * every rule; and three that fault. */
#include "support.h"

    .text

    .macro kernel name
    .globl sdgen_test_\name
    .type sdgen_test_\name, @function
    .balign 16
sdgen_test_\name:
    .endm

    .macro bad_register register
kernel bad_\register
    notq %\register
    ret
    .endm

bad_register rbx
bad_register rbp
bad_register r12
bad_register r13
bad_register r14
bad_register r15

kernel bad_rsp
    ret $8

kernel bad_stack_above
    notq 8(%rsp)
    ret

kernel bad_stack_below
    notb -(SDGEN_TEST_STACK + 1)(%rsp)
    ret

kernel bad_direction
    std
    ret

kernel bad_mxcsr
    stmxcsr -8(%rsp)
    orl $0x8000, -8(%rsp) /* flush to zero */
    ldmxcsr -8(%rsp)
    ret

kernel bad_x87
    fnstcw -8(%rsp)
    xorw $0x300, -8(%rsp) /* precision control */
    fldcw -8(%rsp)
    ret

kernel bad_upper_ymm
    vpcmpeqd %xmm0, %xmm0, %xmm0
    vinsertf128 $1, %xmm0, %ymm15, %ymm15
    ret

    /* Touches all that it may, and leaves it as the ABI asks. */
kernel good
    pushq %rbx
    pushq %rbp
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    subq $(SDGEN_TEST_STACK - 48), %rsp
    movq $0, (%rsp)
    addq $(SDGEN_TEST_STACK - 48), %rsp
    .irp register, rax, rbx, rcx, rdx, rsi, rdi, rbp, r8, r9, r10, r11, r12, r13, r14, r15
    xorq %\register, %\register
    .endr
    movl $3, %eax
    cvtsi2ssl %eax, %xmm0
    rcpss %xmm0, %xmm1
    divss %xmm0, %xmm1 /* inexact: a status flag, no control bit */
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbp
    popq %rbx
    ret

    /* float loaded(const float *rdi), void stored(float *rdi): at the address itself. */
kernel load
    movl (%rdi), %eax
    ret

kernel store
    movl $0, (%rdi)
    ret

kernel illegal
    ud2

    .section .note.GNU-stack, "", @progbits
