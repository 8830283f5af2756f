/* What the tests need and Python cannot do: calling a kernel with registers and stack watched, threads, memory between guard
 * pages, and sums in a fixed order. */
#ifndef SDGEN_TEST_SUPPORT_H
#define SDGEN_TEST_SUPPORT_H

/* What a kernel did not leave as the System V ABI asks, one bit each; tests/sdgen_native.py lists them in the same order. */
#define SDGEN_TEST_RBX (1 << 0)
#define SDGEN_TEST_RBP (1 << 1)
#define SDGEN_TEST_R12 (1 << 2)
#define SDGEN_TEST_R13 (1 << 3)
#define SDGEN_TEST_R14 (1 << 4)
#define SDGEN_TEST_R15 (1 << 5)
#define SDGEN_TEST_RSP (1 << 6)
#define SDGEN_TEST_STACK_ABOVE (1 << 7)
#define SDGEN_TEST_STACK_BELOW (1 << 8)
#define SDGEN_TEST_DIRECTION (1 << 9)
#define SDGEN_TEST_MXCSR (1 << 10)
#define SDGEN_TEST_X87 (1 << 11)
#define SDGEN_TEST_UPPER_YMM (1 << 12)
/* Of a team: some threads waited at a barrier that the others never came to. */
#define SDGEN_TEST_BARRIER (1 << 13)
/* Of a team: its queue is not as it was before. */
#define SDGEN_TEST_QUEUE (1 << 14)

/* Stack that a kernel may use, below its return address. */
#define SDGEN_TEST_STACK 32768

#ifndef __ASSEMBLER__

#include <stddef.h>
#include <stdint.h>

#include "kernel.h"
#include "sdgen.h"

#define SDGEN_TEST_API __attribute__((visibility("default")))

struct sdgen_test_report {
    uint32_t broken;  /* of SDGEN_TEST_* */
    int32_t signal;   /* that ended the call; 0: it returned */
    int32_t wrote;    /* the access that faulted was a write */
    uint64_t address; /* that it faulted at */
};

/* The trampoline itself (trampoline.S): returns what was broken. */
uint32_t sdgen_test_trampoline(void (*function)(void), const uint64_t arguments[6], int has_avx);

/* Calls the function with six integer arguments through the trampoline; a fault ends the call, not the process. */
SDGEN_TEST_API void sdgen_test_call(void (*function)(void), const uint64_t arguments[6], struct sdgen_test_report *report);

typedef void sdgen_test_operation(const struct sdgen_plan *plan, const void *op, const struct sdgen_team *team);

/* Runs an operation on nth threads. The thread `slow` (-1: none) sleeps at the start and at every barrier, so that the others
 * take most of the work. */
SDGEN_TEST_API void sdgen_test_team_run(sdgen_test_operation *operation, const struct sdgen_plan *plan, const void *op, int nth,
                                        int slow, void *work, size_t work_size, struct sdgen_test_report *report);

/* How long an operation takes a team whose thread i takes factors[i] times as long for everything, in time that is counted, not
 * measured: kernels compute nothing and cost what simulate.c says, anything else nothing, and what the threads do to memory they
 * share they do in the order of their times. Of the plan's kernels is taken which there are; no array of the operation is touched. */
SDGEN_TEST_API double sdgen_test_simulate(sdgen_test_operation *operation, const struct sdgen_plan *plan, const void *op, int nth,
                                          const double *factors, void *work, size_t work_size);

/* Hands out a queue's items to threads that come in the order given, again and again until each has found it empty; to those that judge
 * their speed by what they take where `tallied`. Returns how many ranges it took; -1 where one did not begin where the one before ended, or
 * was empty, longer than `most` or beyond the count; -2 where the queue was not new in the end. */
SDGEN_TEST_API int64_t sdgen_test_queue(int64_t count, int64_t whole, int64_t most, int nth, bool tallied, const unsigned char *order,
                                        size_t length);

/* Whole pages of zeros, no fewer than size bytes, between two pages that may not be touched; NULL if there are none to have.
 * Pages cost memory only when touched. */
SDGEN_TEST_API void *sdgen_test_map(size_t size);
SDGEN_TEST_API void sdgen_test_unmap(void *start, size_t size);

/* The tile that kernel.h promises, one chain of fmaf for each element; columns comes from the epilogue. */
SDGEN_TEST_API void sdgen_test_gemm(size_t rows, size_t width, size_t k, const float *a, const float *b, float *c, size_t c_stride,
                                    const struct sdgen_epilogue *epilogue);

/* sizeof(struct NAME), 0 for a name it does not know: the Python declarations are compared with it. */
SDGEN_TEST_API size_t sdgen_test_sizeof(const char *name);

#endif

#endif
