/* uint32_t sdgen_test_trampoline(void (*function)(void), const uint64_t arguments[6], int has_avx)
 *
 * The frame, from the stack pointer that the function is called with:
 *
 *   CANARY bytes of pattern, which the function must leave alone (it has no arguments on the stack)
 *   has_avx, MXCSR and x87 control word of the caller
 *   the caller's registers
 *
 * Below, SDGEN_TEST_STACK bytes that the function may use, and CANARY bytes of pattern again. Where the frame lies is kept
 * in thread-local memory, since no register can be trusted after the call. */
#include "support.h"

#define CANARY 128
#define HAS_AVX CANARY
#define MXCSR (CANARY + 4)
#define X87 (CANARY + 8)
#define FRAME (CANARY + 24)
#define BELOW (-8 - SDGEN_TEST_STACK - CANARY)

#define DEFAULT_MXCSR 0x1f80
#define MXCSR_CONTROL 0xffc0
#define DIRECTION 0x400

#define CANARY_PATTERN 0x5ca1ab1e0ddba115
#define RBX_PATTERN 0xb1b1b1b1deadbee1
#define RBP_PATTERN 0xb2b2b2b2deadbee2
#define R12_PATTERN 0xb3b3b3b3deadbee3
#define R13_PATTERN 0xb4b4b4b4deadbee4
#define R14_PATTERN 0xb5b5b5b5deadbee5
#define R15_PATTERN 0xb6b6b6b6deadbee6
#define GARBAGE 0xbaadf00dbaadf00d

    .section .tbss, "awT", @nobits
    .balign 8
frame:
    .zero 8

    /* Adds the bit to the result in ecx unless the register holds the pattern. */
    .macro check_register register, pattern, bit
    movabsq $\pattern, %rdx
    cmpq %rdx, \register
    je 1f
    orl $\bit, %ecx
1:
    .endm

    .macro fill_canary offset
    .set at, 0
    .rept CANARY / 8
    movq %rax, \offset + at(%rsp)
    .set at, at + 8
    .endr
    .endm

    /* Adds the bit to the result unless all of the canary holds the pattern in rdx. */
    .macro check_canary offset, bit
    .set at, 0
    .rept CANARY / 8
    cmpq %rdx, \offset + at(%rsp)
    jne 1f
    .set at, at + 8
    .endr
    jmp 2f
1:
    orl $\bit, %ecx
2:
    .endm

    .text
    .globl sdgen_test_trampoline
    .hidden sdgen_test_trampoline
    .type sdgen_test_trampoline, @function
sdgen_test_trampoline:
    pushq %rbx
    pushq %rbp
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    subq $FRAME, %rsp
    movl %edx, HAS_AVX(%rsp)
    stmxcsr MXCSR(%rsp)
    fnstcw X87(%rsp)
    movq frame@gottpoff(%rip), %rax
    movq %rsp, %fs:(%rax)

    movabsq $CANARY_PATTERN, %rax
    fill_canary 0
    fill_canary BELOW

    /* Known control state, and vector registers that hold NaN, with clean upper halves. */
    movl $DEFAULT_MXCSR, -8(%rsp)
    ldmxcsr -8(%rsp)
    cld
    testl %edx, %edx
    jz 1f
    vzeroupper
1:
    .irp n, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15
    pcmpeqd %xmm\n, %xmm\n
    .endr

    movq %rdi, %r10
    movq %rsi, %r11
    movq 0(%r11), %rdi
    movq 8(%r11), %rsi
    movq 16(%r11), %rdx
    movq 24(%r11), %rcx
    movq 32(%r11), %r8
    movq 40(%r11), %r9
    movabsq $RBX_PATTERN, %rbx
    movabsq $RBP_PATTERN, %rbp
    movabsq $R12_PATTERN, %r12
    movabsq $R13_PATTERN, %r13
    movabsq $R14_PATTERN, %r14
    movabsq $R15_PATTERN, %r15
    movabsq $GARBAGE, %rax
    movq %rax, %r11
    call *%r10

    xorl %ecx, %ecx
    movq frame@gottpoff(%rip), %rax
    movq %fs:(%rax), %rax
    cmpq %rax, %rsp
    je 1f
    orl $SDGEN_TEST_RSP, %ecx
1:
    movq %rax, %rsp
    check_register %rbx, RBX_PATTERN, SDGEN_TEST_RBX
    check_register %rbp, RBP_PATTERN, SDGEN_TEST_RBP
    check_register %r12, R12_PATTERN, SDGEN_TEST_R12
    check_register %r13, R13_PATTERN, SDGEN_TEST_R13
    check_register %r14, R14_PATTERN, SDGEN_TEST_R14
    check_register %r15, R15_PATTERN, SDGEN_TEST_R15
    movabsq $CANARY_PATTERN, %rdx
    check_canary 0, SDGEN_TEST_STACK_ABOVE
    check_canary BELOW, SDGEN_TEST_STACK_BELOW

    pushfq
    popq %rax
    testl $DIRECTION, %eax
    jz 1f
    orl $SDGEN_TEST_DIRECTION, %ecx
1:
    cld
    stmxcsr -8(%rsp)
    movl -8(%rsp), %eax
    xorl $DEFAULT_MXCSR, %eax
    testl $MXCSR_CONTROL, %eax
    jz 1f
    orl $SDGEN_TEST_MXCSR, %ecx
1:
    fnstcw -8(%rsp)
    movw -8(%rsp), %ax
    cmpw X87(%rsp), %ax
    je 1f
    orl $SDGEN_TEST_X87, %ecx
1:
    /* A kernel that leaves upper halves dirty slows the SSE code behind it down. Whether they are dirty shows only in their
     * values: data must not be zero there. */
    cmpl $0, HAS_AVX(%rsp)
    je 2f
    vextractf128 $1, %ymm0, %xmm0
    .irp n, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15
    vextractf128 $1, %ymm\n, %xmm\n
    vpor %xmm\n, %xmm0, %xmm0
    .endr
    vptest %xmm0, %xmm0
    jz 1f
    orl $SDGEN_TEST_UPPER_YMM, %ecx
1:
    vzeroupper
2:
    ldmxcsr MXCSR(%rsp)
    fldcw X87(%rsp)
    movl %ecx, %eax
    addq $FRAME, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbp
    popq %rbx
    ret
    .size sdgen_test_trampoline, . - sdgen_test_trampoline

    .section .note.GNU-stack, "", @progbits
