/* A graph of a test, its memory, and what its numbers should be. */
#ifndef SDGEN_TEST_GRAPHS_H
#define SDGEN_TEST_GRAPHS_H

#include "ggml-alloc.h"
#include "ggml.h"

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { MOST_OVERLAYS = 4 };

struct scene {
    struct ggml_context *ctx; /* of headers only */
    struct ggml_cgraph *graph;
    double tolerance;      /* of ggml's results, where they are not of single precision */
    double hook_tolerance; /* of random graphs' results with the hook; 0: the same */
    bool exact_zeros;      /* what should be 0 is to be 0, as where all is masked */
    bool apart;            /* no memory is used again, but by hand */
    /* By hand: a node whose memory is that of another, from an offset in bytes on, instead of its own. */
    struct overlay {
        struct ggml_tensor *node, *on;
        int64_t offset;
    } overlay[MOST_OVERLAYS];
    int overlays;
    /* Exact numbers, of each tensor that was asked for. */
    struct numbers {
        const struct ggml_tensor *of;
        double *at;
    } *numbers;
    int known;
    ggml_gallocr_t allocator;
    char *arena;
};

_Noreturn void die(const char *format, ...);
void *memory(size_t size);

/* Chance. */
int64_t below(int64_t limit);
bool once_in(int64_t times);
int64_t one_of(int count, const int64_t *values);
#define ONE_OF(...) one_of(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t), (int64_t[]){__VA_ARGS__})

/* A tensor of random numbers, of that size. */
struct ggml_tensor *leaf(struct scene *scene, enum ggml_type type, float factor, int64_t n0, int64_t n1, int64_t n2, int64_t n3);
/* The product of a tensor and random weights, of so many rows. */
struct ggml_tensor *projected(struct scene *scene, struct ggml_tensor *x, int64_t rows);

/* Puts what a node needs, and itself, to the graph's end. */
void expand(struct scene *scene, struct ggml_tensor *node);
/* A node whose numbers are compared. */
void want(struct scene *scene, struct ggml_tensor *node);
/* Another node computed between those of what is tested, into the memory of another. */
void clobber(struct scene *scene, struct ggml_tensor *what);

struct ggml_tensor *root(struct ggml_tensor *t);
const double *exact(struct scene *scene, const struct ggml_tensor *t);

/* The attention of queries [depth, tokens, heads] to 15 keys; `product` is its result before heads are laid side by side. */
struct ggml_tensor *as_queries(struct scene *scene, struct ggml_tensor *q, struct ggml_tensor **product);

/* Chains (chain-graphs.c): the name of a case, NULL from their number on; builds one; builds a part of a model by chance. */
const char *chain_case(size_t index);
void build_chain_case(struct scene *scene, size_t index);
void build_network(struct scene *scene);

/* Operations by themselves (single-graphs.c), likewise. */
const char *single_case(size_t index);
void build_single_case(struct scene *scene, size_t index);

#endif
