"""Chains in ggml's graphs: which nodes become parts of an operation, which do not and why, and what comes out."""

from __future__ import annotations

import re

import pytest

from tests.patched_ggml import DOUBLED, RUNS, Graphs, every_form, source
from tests.profiles import rows

pytestmark = pytest.mark.slow

# Relative to the largest number of a tensor.
ERROR = 3e-6

# Random parts of models at each level: where they start, how many; and by each of Winograd's methods.
SEEDS = [(0, 100), (100, 100)]
WINOGRAD_SEEDS = (300, 40)

# What the hook says why a chain is no longer.
NO_PATTERN = "no pattern has what follows"
READ_OR_WANTED = "its result is read by several, or wanted"
LAID_OUT = "what follows lays it out anew"
PART_OF_ELSE = "what follows is a part of something else"
ON_WHAT_IS_READ = "the result would take the place of what is read"
OVERWRITTEN = "what is read does not stay"
IN_PLACE_OF_OTHERS = "what it is made in the place of is read by others"

# What is taken: the operations that nodes were made parts of, in the order of their first nodes.
PATTERNS: dict[str, tuple[str, ...]] = {
    "conv_bias": ("CONV_2D + ADD",),
    "conv_resblock": ("MUL_MAT + ADD", "CONV_2D + ADD + ADD + ADD + SILU"),
    "conv_resblock_apart": ("MUL_MAT + ADD", "CONV_2D + ADD + ADD + ADD + SILU"),
    "conv_resblock_late": ("CONV_2D + ADD + ADD + ADD + SILU", "MUL_MAT + ADD"),
    "conv_f16": ("MUL_MAT + ADD", "CONV_2D + ADD + ADD + ADD + SILU"),
    "conv_1x1": ("CONV_2D + ADD + ADD + RELU",),
    "conv_batched": ("CONV_2D + ADD + ADD + SILU",),
    "conv_residual_left": ("CONV_2D + ADD + ADD",),
    "conv_in_place_of_residual": ("CONV_2D + ADD + ADD + SILU",),
    "conv_scale": ("CONV_2D + SCALE + ADD + ADD + SILU + MUL",),
    "conv_two_biases": ("CONV_2D + ADD + ADD + ADD",),
    "conv_no_bias": ("CONV_2D + ADD",),
    "conv_clamp": ("CONV_2D + ADD + CLAMP",),
    "conv_factor_left": ("CONV_2D + ADD + MUL",),
    "linear_bias": ("MUL_MAT + ADD",),
    "linear_residual": ("MUL_MAT + ADD + ADD",),
    "linear_residual_left": ("MUL_MAT + ADD + ADD",),
    "linear_residual_view": ("MUL_MAT + ADD + ADD",),
    "linear_gate": ("MUL_MAT + ADD", "MUL_MAT + ADD + MUL + ADD"),
    "linear_gate_batched": ("MUL_MAT + ADD", "MUL_MAT + ADD + MUL + ADD"),
    "linear_gate_apart": ("MUL_MAT + ADD + MUL + ADD", "MUL_MAT + ADD"),
    "linear_add_by_batch": ("MUL_MAT + ADD", "MUL_MAT + ADD + ADD"),
    "linear_f16": ("MUL_MAT + ADD + ADD",),
    "linear_all": ("MUL_MAT + ADD", "MUL_MAT + SCALE + ADD + MUL + ADD + SILU + MUL"),
    "linear_few_rows": ("MUL_MAT + ADD", "MUL_MAT + ADD + MUL + ADD + SILU + MUL"),
    "linear_two_biases": ("MUL_MAT + ADD + ADD",),
    "linear_gelu": ("MUL_MAT + ADD + GELU",),
    "linear_gelu_quick": ("MUL_MAT + ADD + GELU_QUICK",),
    "linear_gelu_erf": ("MUL_MAT + ADD + GELU_ERF",),
    "linear_tanh": ("MUL_MAT + ADD + TANH",),
    "linear_sigmoid": ("MUL_MAT + ADD + SIGMOID",),
    "linear_relu": ("MUL_MAT + ADD + RELU",),
    "linear_leaky": ("MUL_MAT + ADD + LEAKY_RELU",),
    "group_norm": ("GROUP_NORM + MUL + ADD + SILU",),
    "group_norm_batched": ("GROUP_NORM + MUL + ADD + SILU",),
    "group_norm_bias": ("GROUP_NORM + ADD",),
    "norm": ("NORM + MUL + ADD",),
    "norm_apart": ("NORM + MUL + ADD",),
    "rms_norm": ("RMS_NORM + MUL",),
    "rms_norm_bias": ("RMS_NORM + MUL + ADD",),
    "norm_modulated": ("MUL_MAT + ADD", "NORM + MUL + ADD + ADD"),
    "norm_modulated_late": ("NORM + MUL + ADD + ADD", "MUL_MAT + ADD"),
    "norm_modulated_weight": ("MUL_MAT + ADD", "NORM + MUL + MUL + ADD + ADD"),
    "rms_norm_modulated": ("MUL_MAT + ADD", "RMS_NORM + MUL + MUL + ADD"),
    "elements": ("MUL + ADD + SILU + MUL",),
    "elements_apart": ("MUL + ADD + SILU + MUL",),
    "elements_of_views": ("ADD + SILU + MUL",),
    "elements_scale": ("SCALE + MUL + ADD + MUL",),
    "elements_gate": ("MUL_MAT + ADD", "MUL + ADD + SILU + MUL"),
    "elements_by_row": ("ADD + MUL",),
    "elements_left": ("SILU + MUL",),
    "elements_function": ("GELU_ERF + MUL",),
}

# What is next to them, and why it is no part of the operation.
NEXT_TO_PATTERNS: dict[str, tuple[str, tuple[str, ...]]] = {
    "head_read_twice": (READ_OR_WANTED, ("CONV_2D",)),
    "bias_read_twice": (READ_OR_WANTED, ("CONV_2D + ADD",)),
    "head_wanted": (READ_OR_WANTED, ("MUL_MAT",)),
    "bias_wanted": (READ_OR_WANTED, ("MUL_MAT + ADD",)),
    "residual_wanted": (READ_OR_WANTED, ("MUL_MAT + ADD + ADD",)),
    "norm_wanted": (READ_OR_WANTED, ("NORM",)),
    "elements_read_twice": (READ_OR_WANTED, ("MUL + ADD", "SILU + MUL")),
    "linear_in_place_of_view": (LAID_OUT, ("MUL_MAT + ADD",)),
    "view_between": (NO_PATTERN, ("CONV_2D + ADD",)),
    "conv_residual_view": (NO_PATTERN, ("CONV_2D + ADD",)),
    "conv_residual_transposed": (NO_PATTERN, ("CONV_2D + ADD",)),
    "linear_residual_transposed": (NO_PATTERN, ("MUL_MAT + ADD",)),
    "elements_transposed": (NO_PATTERN, ("SILU",)),
    "conv_embedding_batched": (LAID_OUT, ("MUL_MAT + ADD", "CONV_2D + ADD", "ADD + SILU")),
    "conv_three_biases": (NO_PATTERN, ("CONV_2D + ADD + ADD",)),
    "conv_by_column": (NO_PATTERN, ("CONV_2D + ADD",)),
    "linear_by_row": (NO_PATTERN, ("MUL_MAT + ADD",)),
    "linear_half_repeated": (NO_PATTERN, ("MUL_MAT + ADD",)),
    "elements_half_repeated": (NO_PATTERN, ("SILU",)),
    "linear_scale_with_bias": (NO_PATTERN, ("MUL_MAT",)),
    "scale_after_bias": (NO_PATTERN, ("MUL_MAT + ADD",)),
    "doubled_by_addition": (READ_OR_WANTED, ("CONV_2D + ADD",)),
    "squared": (READ_OR_WANTED, ("MUL_MAT + ADD",)),
    "norm_bias_first": (NO_PATTERN, ("GROUP_NORM + ADD", "MUL")),
    "norm_function": (NO_PATTERN, ("NORM + MUL + ADD",)),
    "norm_modulated_read_again": (READ_OR_WANTED, ("MUL_MAT + ADD", "NORM")),
    "norm_modulated_wanted": (READ_OR_WANTED, ("MUL_MAT + ADD", "NORM")),
    "norm_modulated_twice": (READ_OR_WANTED, ("MUL_MAT + ADD", "NORM + MUL + ADD")),
    "elements_modulated": (READ_OR_WANTED, ("MUL_MAT + ADD", "SILU", "MUL + ADD + MUL")),
    "two_residuals": (NO_PATTERN, ("MUL_MAT + ADD",)),
    "function_twice": (NO_PATTERN, ("MUL_MAT + SILU",)),
    "input_added": (NO_PATTERN, ("MUL_MAT + ADD + ADD",)),
    "input_added_conv": (NO_PATTERN, ("CONV_2D + ADD + ADD",)),
}

# Those with memory of their own making.
PLACED: dict[str, tuple[str, tuple[str, ...]]] = {
    "conv_on_input": (ON_WHAT_IS_READ, ("CONV_2D + ADD",)),
    "conv_on_weights": (ON_WHAT_IS_READ, ("CONV_2D + ADD",)),
    "conv_on_bias": (ON_WHAT_IS_READ, ("CONV_2D + ADD",)),
    "conv_on_embedding": (ON_WHAT_IS_READ, ("MUL_MAT + ADD", "CONV_2D + ADD + ADD")),
    "conv_on_residual": (NO_PATTERN, ("CONV_2D + ADD + ADD",)),
    "conv_on_residual_batched": (NO_PATTERN, ("CONV_2D + ADD + ADD + SILU",)),
    "conv_partly_on_residual": (ON_WHAT_IS_READ, ("CONV_2D + ADD + ADD",)),
    "conv_scaled_on_residual": (NO_PATTERN, ("CONV_2D + SCALE + ADD",)),
    "conv_on_factor": (NO_PATTERN, ("CONV_2D + ADD",)),
    "conv_on_input_added": (ON_WHAT_IS_READ, ("CONV_2D + ADD",)),
    "linear_on_input": (ON_WHAT_IS_READ, ("MUL_MAT + ADD",)),
    "linear_partly_on_input": (ON_WHAT_IS_READ, ("MUL_MAT + ADD",)),
    "linear_on_weights": (ON_WHAT_IS_READ, ("MUL_MAT + ADD",)),
    "linear_on_bias": (ON_WHAT_IS_READ, ("MUL_MAT + ADD",)),
    "linear_on_residual": (NO_PATTERN, ("MUL_MAT + ADD + ADD + SILU",)),
    "linear_few_rows_on_residual": (NO_PATTERN, ("MUL_MAT + ADD + ADD + SILU + MUL",)),
    "linear_gate_on_residual": (NO_PATTERN, ("MUL_MAT + ADD", "MUL_MAT + ADD + MUL")),
    "linear_partly_on_residual": (ON_WHAT_IS_READ, ("MUL_MAT + ADD + ADD",)),
    "group_norm_on_input": (NO_PATTERN, ("GROUP_NORM + MUL + ADD + SILU",)),
    "group_norm_partly_on_input": (ON_WHAT_IS_READ, ("GROUP_NORM + MUL + ADD", "SILU")),
    "group_norm_on_weight": (ON_WHAT_IS_READ, ("GROUP_NORM + MUL + ADD", "SILU")),
    "norm_on_input": (NO_PATTERN, ("NORM + MUL + ADD",)),
    "norm_partly_on_input": (ON_WHAT_IS_READ, ("NORM + MUL",)),
    "norm_modulated_on_input": (NO_PATTERN, ("MUL_MAT + ADD", "NORM + MUL + ADD + ADD")),
    "norm_modulated_on_gate": (ON_WHAT_IS_READ, ("MUL_MAT + ADD", "NORM + MUL + ADD")),
    "gate_of_norm_overwritten": (OVERWRITTEN, ("MUL_MAT + ADD", "NORM + MUL + ADD")),
    "elements_on_input": (NO_PATTERN, ("ADD + SILU + MUL",)),
    "elements_on_residual": (NO_PATTERN, ("ADD + SILU + MUL",)),
    "elements_on_factor": (NO_PATTERN, ("ADD + SILU + MUL",)),
    "elements_partly_on_input": (ON_WHAT_IS_READ, ("ADD", "SILU")),
    "elements_partly_on_residual": (ON_WHAT_IS_READ, ("ADD", "SILU")),
    "elements_on_weight": (ON_WHAT_IS_READ, ("MUL + ADD", "SILU")),
    "input_overwritten": (OVERWRITTEN, ("CONV_2D",)),
    "input_overwritten_late": (OVERWRITTEN, ("CONV_2D + ADD",)),
    "weights_overwritten": (OVERWRITTEN, ("MUL_MAT",)),
    "bias_overwritten": (OVERWRITTEN, ("CONV_2D + ADD",)),
    "residual_overwritten": (OVERWRITTEN, ("MUL_MAT + ADD + ADD",)),
    "gate_overwritten": (OVERWRITTEN, ("MUL_MAT + ADD", "MUL_MAT + ADD + MUL")),
    "norm_input_overwritten": (OVERWRITTEN, ("GROUP_NORM", "SCALE", "MUL + ADD + SILU")),
    "norm_weight_overwritten": (OVERWRITTEN, ("GROUP_NORM + MUL", "ADD + SILU")),
    "elements_overwritten": (OVERWRITTEN, ("ADD", "SCALE", "SILU + MUL")),
    "hole": (OVERWRITTEN, ("CONV_2D + ADD + ADD",)),
}

# Norms before convolutions, and what becomes of them.
PART, APART = "a part of it", "the result would take the place of what is normed"
NORMED: dict[str, str] = {
    "normed": PART,
    "normed_reused": PART,
    "normed_batched": PART,
    "normed_residual": PART,
    "normed_on_x": PART,
    "normed_on_x_residual": PART,
    "normed_on_x_batched": PART,
    "normed_on_x_fewer": PART,
    "normed_by_1x1": PART,
    "normed_by_5x5": PART,
    "normed_small": "the image is small",
    "normed_on_x_by_1x1": APART,
    "normed_on_x_by_5x5": APART,
    "normed_twice": "it is read by several, or wanted",
    "normed_wanted": "it is read by several, or wanted",
    "normed_in_place": "it is read by several, or wanted",
    "normed_overwritten": "what is normed does not stay",
    "normed_weight_overwritten": "what is normed does not stay",
    "normed_partly_on_x": APART,
    "normed_on_x_fewer_batched": APART,
}

# Those whose result takes the place of what is normed, as only Winograd's method can have it.
NORMED_IN_PLACE = {"normed_batched", "normed_residual", *(case for case in NORMED if "on_x" in case)}

# Norms of what a convolution writes, and how many of them it makes the sums of.
SUMMED = {
    "summed": 2,
    "summed_residual": 1,
    "summed_small": 0,
    "summed_overwritten": 0,
    "summed_by_1x1": 0,
    "summed_as_one_channel": 0,
}

# Products of one input: how many are computed together, and whether they normalize it; why a norm is none of theirs.
READ_BY_OTHERS = "its result is read by others, or wanted"
NOT_TOGETHER = "the products that read it cannot be computed together"
NOT_STAYING = "what it reads does not stay"
SHARED: dict[str, tuple[list[tuple[int, bool]], str]] = {
    "norm_linear": ([(1, True)], ""),
    "rms_norm_linear": ([(1, True)], ""),
    "modulated_products": ([(2, True)], ""),
    "norm_gated": ([(1, True)], ""),
    "three_products": ([(3, True)], ""),
    "five_products": ([(4, False)], NOT_TOGETHER),
    "read_between": ([(2, True)], ""),
    "read_between_on_first": ([], NOT_TOGETHER),
    "read_by_the_second": ([], NOT_TOGETHER),
    "read_between_on_input": ([(2, False)], NOT_STAYING),
    "norm_linear_on_input": ([], NOT_STAYING),
    "normalized_overwritten": ([], NOT_STAYING),
    "weight_of_norm_overwritten": ([], NOT_STAYING),
    "weights_overwritten_between": ([(2, True)], ""),
    "norm_read_by_others": ([(2, False)], READ_BY_OTHERS),
    "normalized_wanted": ([], READ_BY_OTHERS),
    "norm_reshaped": ([], ""),
    "norm_in_place": ([(1, True)], ""),
    "read_where_normalized": ([], IN_PLACE_OF_OTHERS),
    "norm_few_rows": ([], ""),
    "norm_as_weights": ([], READ_BY_OTHERS),
    "shared_and_wanted": ([(3, False)], ""),
    "attention_of_one_input": ([(3, True)], ""),
    "two_groups": ([(2, False)], ""),
}

# Of several chains, copies, attentions and doublings.
SEVERAL: dict[str, tuple[str, ...]] = {
    "one_addition_of_two": ("MUL_MAT + ADD + ADD + SILU", "MUL_MAT + ADD"),
    "skip_convolved": ("CONV_2D + ADD", "CONV_2D + ADD + ADD", "CONV_2D + ADD"),
    "gated": ("MUL_MAT + ADD + CONT + GELU + MUL", "MUL_MAT + ADD + ADD"),
    "gated_apart": ("MUL_MAT + ADD + CONT + GELU + MUL",),
    "copied": ("CONT + SILU",),
    "copied_onto_wider": ("SILU",),
    "copied_onto_itself": ("CONT + SILU",),
    "copied_overwritten": ("SCALE", "SILU"),
    "copied_transposed": ("SILU",),
    "copied_for_two": ("SILU", "SCALE"),
    "attention_scaled": ("MUL_MAT", "SCALE + ADD"),
    "attention_unmerged_scaled": ("SILU", "SCALE"),
    "around_attention": ("NORM + MUL + ADD", "MUL_MAT + ADD", "MUL_MAT + ADD + ADD"),
    "doubled_image": ("CONV_2D + ADD + ADD + SILU",),
    "doubled_on_image": ("CONV_2D + ADD + ADD",),
    "doubled_overwritten": ("CONV_2D + ADD + ADD",),
    "read_where_it_was": ("SCALE", "ADD"),
    "wanted_where_it_was": ("SCALE", "ADD"),
    "half_on_the_left": ("MUL_MAT + ADD",),
    "half_factor": ("MUL_MAT + ADD",),
    "permuted": (),
    "joined": (),
    "attention_unbiased": ("RMS_NORM", "MUL_MAT", "MUL_MAT", "MUL_MAT", "MUL_MAT + ADD + ADD"),
    "normed_resblock": (
        *("MUL_MAT", "GROUP_NORM + MUL + ADD + SILU", "CONV_2D + ADD + ADD"),
        *("GROUP_NORM + MUL + ADD + SILU", "CONV_2D + ADD + ADD"),
    ),
}

# Images made of tokens: why no more becomes of the copy that makes them, and the operations, the copies at the end.
READS_TOKENS = "it reads tokens"
TOKENS: dict[str, tuple[str, tuple[str, ...]]] = {
    "tokens_of_transformer": (
        READS_TOKENS,
        (
            *("GROUP_NORM + MUL + ADD", "CONV_2D + ADD", "RMS_NORM", "MUL_MAT + ADD", "ADD"),
            *("CONV_2D + ADD + ADD", "CONT + CONV_2D + ADD + ADD"),
        ),
    ),
    "tokens_convolved": (READS_TOKENS, ("CONV_2D + ADD + ADD", "CONT + CONV_2D + ADD + ADD")),
    "tokens_with_gaps": (READS_TOKENS, ("CONV_2D + ADD + ADD", "CONT + CONV_2D + ADD + ADD")),
    "tokens_with_larger_kernel": (READ_OR_WANTED, ("CONV_2D + ADD + ADD",)),
    "tokens_copied_as_they_are": (READ_OR_WANTED, ("CONV_2D + ADD + ADD",)),
    "tokens_for_two": (READ_OR_WANTED, ("CONV_2D + ADD + ADD", "CONT")),
    "tokens_wanted": (READ_OR_WANTED, ("CONV_2D + ADD + ADD", "CONT")),
    "tokens_overwritten": (
        "what is copied does not stay until it is read",
        ("SCALE", "CONV_2D + ADD + ADD", "CONT"),
    ),
    "tokens_under_result": (
        "its reader's result would take the place of what is copied",
        ("CONV_2D + ADD + ADD", "CONT"),
    ),
}

# Images doubled in convolutions, and for how many of them the image is copied.
DOUBLINGS = {"doubled_image": (1, 0), "doubled_on_image": (1, 1), "doubled_overwritten": (1, 1)}

# Not of the hook's error, but of ggml's: the result goes through half precision.
COARSE = {"half_on_the_left": 1e-3, "half_factor": 1e-3}

NORM = re.compile(r'^sdgen: norm before \w+ [\dx]+ ".*": (.*)$', re.MULTILINE)
SUMS = re.compile(r'^sdgen: sums of a norm by \w+ [\dx]+ ".*"$', re.MULTILINE)
CHAIN = re.compile(
    r'^sdgen: (?:chain of )?([A-Z0-9_]+(?: \+ [A-Z0-9_]+)*) [\dx]+ "(.*)"(?:; no more| alone): (.*)$', re.MULTILINE
)


ONE_INPUT = re.compile(r'^sdgen: one input of (\d+) products?, \w+ [\dx]+ ".*"(, normalized)?$', re.MULTILINE)
NO_PART = re.compile(r'^sdgen: \w+ [\dx]+ ".*" is no part of the products after it: (.*)$', re.MULTILINE)


def chains_of(graphs: Graphs, case: str, form: dict[str, str]) -> list[tuple[str, str]]:
    """What became of a case's operations: their nodes, and why no more."""
    done = graphs.run(case, SDGEN_VERBOSE="2", **form)
    assert done.taken[0] == done.taken[1]
    assert done.error <= COARSE.get(case, ERROR)
    found = [(nodes, why) for nodes, _, why in CHAIN.findall(done.said)]
    once = found[: len(found) // RUNS]
    assert found == once * RUNS
    return once


@every_form
@pytest.mark.parametrize("case", PATTERNS)
def test_patterns_are_taken(graphs: Graphs, case: str, form: dict[str, str]) -> None:
    found = chains_of(graphs, case, form)
    assert tuple(nodes for nodes, _ in found) == PATTERNS[case]


@every_form
@pytest.mark.parametrize("case", NEXT_TO_PATTERNS)
def test_what_is_next_to_a_pattern_ends_it(graphs: Graphs, case: str, form: dict[str, str]) -> None:
    why, chains = NEXT_TO_PATTERNS[case]
    found = chains_of(graphs, case, form)
    assert tuple(nodes for nodes, _ in found) == chains
    assert why in [reason for _, reason in found]


@every_form
@pytest.mark.parametrize("case", PLACED)
def test_memory_used_again(graphs: Graphs, case: str, form: dict[str, str]) -> None:
    why, chains = PLACED[case]
    found = chains_of(graphs, case, form)
    assert tuple(nodes for nodes, _ in found) == chains
    assert why in [reason for _, reason in found]


@every_form
@pytest.mark.parametrize("case", SHARED)
def test_products_of_one_input(graphs: Graphs, case: str, form: dict[str, str]) -> None:
    done = graphs.run(case, SDGEN_VERBOSE="2", **form)
    assert done.taken[0] == done.taken[1]
    assert done.error <= ERROR
    groups, why = SHARED[case]
    assert [(int(count), bool(norm)) for count, norm in ONE_INPUT.findall(done.said)] == groups * RUNS
    assert NO_PART.findall(done.said) == ([why] if why else []) * RUNS


@every_form
@pytest.mark.parametrize("case", SEVERAL)
def test_several(graphs: Graphs, case: str, form: dict[str, str]) -> None:
    assert tuple(nodes for nodes, _ in chains_of(graphs, case, form)) == SEVERAL[case]


@every_form
@pytest.mark.parametrize("case", NORMED)
@pytest.mark.parametrize("winograd", [0, 2, 4])
def test_norms_before_convolutions(graphs: Graphs, case: str, winograd: int, form: dict[str, str]) -> None:
    done = graphs.run(case, SDGEN_VERBOSE="2", SDGEN_TUNE=f"winograd={winograd}", **form)
    assert done.error <= ERROR
    expected = NORMED[case] if winograd or case not in NORMED_IN_PLACE else APART
    assert NORM.findall(done.said) == [expected] * RUNS


@pytest.mark.parametrize("winograd", [2, 4])
def test_norms_of_a_resblock(graphs: Graphs, winograd: int) -> None:
    """Memory that is used again is no hindrance."""
    done = graphs.run("normed_resblock", SDGEN_VERBOSE="2", SDGEN_TUNE=f"winograd={winograd}")
    assert NORM.findall(done.said) == [PART] * 2 * RUNS


@every_form
@pytest.mark.parametrize("case", SUMMED)
def test_sums_by_convolutions(graphs: Graphs, case: str, form: dict[str, str]) -> None:
    done = graphs.run(case, SDGEN_VERBOSE="2", SDGEN_TUNE="winograd=2", **form)
    assert done.error <= ERROR
    assert len(SUMS.findall(done.said)) == SUMMED[case] * RUNS


@every_form
@pytest.mark.parametrize("case", TOKENS)
def test_images_of_tokens(graphs: Graphs, case: str, form: dict[str, str]) -> None:
    why, chains = TOKENS[case]
    found = chains_of(graphs, case, form)
    assert tuple(nodes for nodes, _ in found) == chains
    assert found[-1][1] == why


@pytest.mark.parametrize("case", DOUBLINGS)
def test_doublings_in_chains(graphs: Graphs, case: str) -> None:
    doubled = DOUBLED.search(graphs.run(case).said)
    assert doubled and (int(doubled[1]), int(doubled[2])) == tuple(RUNS * count for count in DOUBLINGS[case])


@every_form
@pytest.mark.parametrize(("first", "count"), SEEDS)
def test_random_networks(graphs: Graphs, first: int, count: int, form: dict[str, str]) -> None:
    """The program ends with an error where a number is off; here only that there was enough of everything."""
    done = graphs.run("networks", first, count, SDGEN_VERBOSE="2", **form)
    assert done.taken[0] == done.taken[1]
    lengths = [nodes.count("+") for nodes, _, _ in CHAIN.findall(done.said)]
    assert all(lengths.count(more) > count for more in (1, 2, 3))
    doubled = DOUBLED.search(done.said)
    assert doubled and int(doubled[1]) > count / 4 and done.made[0] > count / 4
    groups = [(int(products), bool(norm)) for products, norm in ONE_INPUT.findall(done.said)]
    assert sum(norm for _, norm in groups) > count / 4 and sum(products > 1 for products, _ in groups) > count / 8


@pytest.mark.parametrize("winograd", [2, 3, 4])
def test_random_networks_by_winograd(graphs: Graphs, winograd: int) -> None:
    graphs.run("networks", *WINOGRAD_SEEDS, SDGEN_TUNE=f"winograd={winograd}")


@every_form
def test_too_little_working_memory(graphs: Graphs, form: dict[str, str]) -> None:
    """What does not fit is left to ggml."""
    done = graphs.run("tight", 0, 60, **form)
    assert 0.5 < done.taken[0] / done.taken[1] < 1


@every_form
def test_pieces(graphs: Graphs, form: dict[str, str]) -> None:
    """A graph cut in two: what the second part reads was written by the first."""
    graphs.run("pieces", **form)


@every_form
def test_too_little_working_memory_for_each_case(graphs: Graphs, form: dict[str, str]) -> None:
    graphs.run("cramped", **form)


@pytest.mark.parametrize("case", [*PATTERNS, *SHARED, *SEVERAL, *TOKENS])
def test_without_fusion_each_node_is_computed(graphs: Graphs, case: str) -> None:
    done = graphs.run(case, SDGEN_TUNE="fuse=0", SDGEN_VERBOSE="2", SDGEN_PROFILE="1")
    # Small nodes by themselves are left to ggml, whose GELU is a table of half precision.
    assert done.error <= (1e-3 if "gelu" in case else COARSE.get(case, ERROR))
    assert not CHAIN.search(done.said) and not ONE_INPUT.search(done.said) and not done.made[0]
    assert not [name for name in rows(done.said) if name.startswith("nothing ") or "gated" in name or "norm +" in name]


def test_aborted(graphs: Graphs) -> None:
    """Ended early, and computed again."""
    graphs.run("aborted")


# ---- what is said ----


def test_chains_are_listed(graphs: Graphs) -> None:
    """With the shape of the result and the name of the weights, or of what they are made of."""
    said = graphs.run("conv_partly_on_residual", SDGEN_VERBOSE="2").said
    line = rf'^sdgen: chain of CONV_2D \+ ADD \+ ADD 13x11x20x1 "leaf_\d+"; no more: {ON_WHAT_IS_READ}$'
    assert re.search(line, said, re.MULTILINE), said
    assert not CHAIN.search(graphs.run("conv_partly_on_residual").said)


def test_an_operation_alone_is_listed(graphs: Graphs) -> None:
    said = graphs.run("attention_scaled", SDGEN_VERBOSE="2").said
    assert re.search(r'^sdgen: MUL_MAT 500x300x1x1 "leaf_\d+" alone: ', said, re.MULTILINE), said


@pytest.mark.parametrize(
    ("case", "shapes"),
    [
        ("permuted", ["16x20x15x1", "20x16x15x1", "240x20x1x1"]),
        ("joined", ["21x9x20x2", "9x16x20x3", "9x16x27x2", "9x19x20x2"]),
    ],
)
def test_copies_that_lay_out_anew_are_taken(graphs: Graphs, case: str, shapes: list[str]) -> None:
    table = rows(graphs.run(case, SDGEN_PROFILE="1").said)
    found = [name.split()[1] for name in table if name.startswith("permutation")]
    assert sorted(found) == shapes


def test_every_case_is_run() -> None:
    """The program has no case that is not run here."""
    names = re.findall(r'^    \{"(\w+)", ', source("chain-graphs").read_text(), re.MULTILINE)
    assert names == [*PATTERNS, *NEXT_TO_PATTERNS, *PLACED, *NORMED, *SHARED, *SEVERAL, *SUMMED, *TOKENS]
