"""Attention in ggml's graphs: what is made one, where its memory is used again, and what is next to the pattern."""

from __future__ import annotations

import re

import pytest

from tests.patched_ggml import RUNS, Graphs, every_form, source

# Relative to the largest number of a tensor.
ERROR = 2e-6

# Random graphs of each level: where they start, how many.
SEEDS = [(0, 200), (200, 200)]

# FLASH_ATTN_EXT.
TAKEN_ONES = [
    "flash_f32",
    "flash_depth_40",
    "flash_f16",
    "flash_bf16",
    "flash_mixed",
    "flash_fused",
    "flash_grouped",
    "flash_values_deeper",
    "flash_masked",
    "flash_masked_by_head",
    "flash_masked_query",
    "flash_max_bias",
    "flash_softcap",
    "flash_sinks",
    "flash_all",
    "flash_one_query",
]
LEFT_ONES = ["flash_q8_0", "flash_q4_0_keys"]

# The nodes of one attention, with memory as ggml hands it out.
PATTERNS = [
    "self",
    "cross",
    "four_dimensions",
    "masked",
    "masked_by_head",
    "causal",
    "causal_of_many",
    "masked_by_some_heads",
    "masked_by_part",
    "batched",
    "batched_masked",
    "batched_grouped",
    "grouped",
    "made",
    "made_batched",
    "unmerged",
    "unscaled",
    "not_in_place",
    "given_mask",
    "given_mask_f16",
    "given_longer_mask",
    "given_mask_by_head",
    "given_scale",
    "sinks",
    "one_query",
    "one_key",
    "one_head",
    "transposed_after",
    "output_wanted",
    "product_wanted",
    "product_read_twice",
    "q_read_twice",
    "k_wanted",
    "q_from_read_twice",
    "half_keys",
    "keys_of_one_batch",
    "keys_of_one_batch_4d",
]
NEXT_TO_PATTERNS = [
    "v_read_twice",
    "scores_read_twice",
    "scaled_read_twice",
    "masked_read_twice",
    "weights_read_twice",
    "scores_wanted",
    "scaled_wanted",
    "masked_wanted",
    "weights_wanted",
    "scale_with_bias",
    "half_scores",
    "quantized_keys",
    "values_not_copied",
    "swapped",
    "mask_of_one_row",
    "transposed_mask",
    "batched_masked_by_head",
    "flattened_by_copies",
]

# Those with memory of their own making: how many attentions, how many of their inputs and outputs are copied. An input
# that is a product, and read by nothing else, is written where it would be copied to.
PLACED: dict[str, tuple[int, int, int]] = {
    "output_on_q": (1, 0, 1),
    "output_on_k": (1, 0, 1),
    "output_on_v": (1, 0, 1),
    "output_on_mask": (1, 0, 1),
    "output_on_scores": (1, 0, 0),
    "product_on_q": (1, 0, 1),
    "q_overwritten": (1, 0, 0),
    "k_overwritten": (1, 0, 0),
    "v_overwritten": (1, 0, 0),
    "q_read_twice_and_overwritten": (1, 1, 0),
    "k_read_twice_and_overwritten": (1, 1, 0),
    "v_read_twice_and_overwritten": (1, 1, 0),
    "q_read_twice_all_overwritten": (1, 1, 0),
    "all_overwritten": (1, 0, 0),
    "q_overwritten_output_on_copy": (1, 0, 1),
    "copy_overwritten": (1, 0, 0),
    "q_and_copy_overwritten": (0, 0, 0),
    "made_overwritten": (0, 0, 0),
    "mask_overwritten": (0, 0, 0),
    "mask_overwritten_late": (0, 0, 0),
    "sinks_overwritten": (0, 0, 0),
    "output_on_sinks": (1, 0, 1),
    "values_on_mask": (0, 0, 0),
    "doubled_on_q": (1, 0, 0),
    "chained": (2, 0, 0),
    "chained_scores": (1, 0, 0),
    "chained_scores_of_one_key": (1, 0, 0),
    "soft_max_of_no_product": (0, 0, 0),
}

# Not of the hook's error, but of ggml's: the products before and after go through half precision or 8 bits.
COARSE = {"half_scores": 2e-3, "quantized_keys": 2e-2}


@every_form
@pytest.mark.parametrize("case", TAKEN_ONES)
def test_one_node_is_taken(graphs: Graphs, case: str, form: dict[str, str]) -> None:
    done = graphs.run(case, **form)
    assert done.taken == (RUNS, RUNS) and done.made == (0, 0, 0)
    assert done.error <= ERROR


@pytest.mark.parametrize("case", LEFT_ONES)
def test_one_node_is_left(graphs: Graphs, case: str) -> None:
    done = graphs.run(case)
    assert done.taken == (0, RUNS)
    assert done.error == done.ggml_error


@every_form
@pytest.mark.parametrize("case", PATTERNS)
def test_several_nodes_are_made_one(graphs: Graphs, case: str, form: dict[str, str]) -> None:
    done = graphs.run(case, **form)
    assert done.made[0] == RUNS and done.taken[0] == done.taken[1]
    assert done.error <= ERROR


@pytest.mark.parametrize("case", NEXT_TO_PATTERNS)
def test_what_is_next_to_the_pattern_is_computed_node_by_node(graphs: Graphs, case: str) -> None:
    done = graphs.run(case)
    assert done.made == (0, 0, 0)
    assert done.error <= COARSE.get(case, ERROR)


@every_form
@pytest.mark.parametrize("case", PLACED)
def test_memory_used_again(graphs: Graphs, case: str, form: dict[str, str]) -> None:
    done = graphs.run(case, **form)
    attentions, inputs, outputs = PLACED[case]
    assert done.made == (RUNS * attentions, RUNS * inputs, RUNS * outputs)
    assert done.error <= ERROR


@pytest.mark.slow
@every_form
@pytest.mark.parametrize(("first", "count"), SEEDS)
def test_random_graphs(graphs: Graphs, first: int, count: int, form: dict[str, str]) -> None:
    """The program ends with an error where a number is off; here only that there was enough of everything."""
    done = graphs.run("random", first, count, **form)
    assert done.taken[0] == done.taken[1]
    attentions, inputs, outputs = done.made
    assert attentions > count / 2 and inputs > count / 4 and outputs > count / 2


# ---- what is said ----


@pytest.mark.parametrize(
    ("case", "line"),
    [
        (
            "self",
            r'attention of CONT \+ CONT \+ CONT \+ MUL_MAT \+ SCALE \+ SOFT_MAX \+ MUL_MAT \+ CONT [\dx]+ "leaf_\d+"; '
            r"\d+ queries, \d+ keys, \d+ heads of \d+(; .*)?",
        ),
        ("output_on_q", r"attention of .*; its output copied last"),
        ("q_overwritten", r"attention of .*; 1 of its inputs laid out anew first, .*"),
        ("batched", r"attention of .* heads of \d+, batch of 2(; .*)?"),
        ("flash_depth_40", r'attention of FLASH_ATTN_EXT [\dx]+ "leaf_\d+"; .* heads of 40'),
        ("flash_values_deeper", r"attention of FLASH_ATTN_EXT .* heads of \d+ and \d+"),
        (
            "flash_q8_0",
            r"no attention of FLASH_ATTN_EXT .*: queries, keys or values are of a type that is not computed with",
        ),
        ("weights_wanted", r"no attention of SOFT_MAX .*: what is between the products is read by others, or wanted"),
        ("scale_with_bias", r"no attention of SOFT_MAX .*: the scores are scaled with a bias"),
        ("mask_of_one_row", r"no attention of SOFT_MAX .*: the mask is not one of queries and keys"),
        ("mask_overwritten", r"no attention of SOFT_MAX .*: the mask does not stay until the result is computed"),
        ("made_overwritten", r"no attention of SOFT_MAX .*: queries, keys or values do not stay until .*"),
        ("soft_max_of_no_product", r"no attention of SOFT_MAX .*: the scores are not made by a product"),
    ],
)
def test_attentions_are_listed(graphs: Graphs, case: str, line: str) -> None:
    said = graphs.run(case, SDGEN_VERBOSE="2").said
    assert re.search(rf"^sdgen: {line}$", said, re.MULTILINE), said
    assert not re.search(r"^sdgen: (no )?attention of", graphs.run(case).said, re.MULTILINE)


def test_every_case_is_run() -> None:
    """The program has no case that is not run here."""
    names = re.findall(r'^    \{"(\w+)", ', source("graphs").read_text(), re.MULTILINE)
    assert sorted(names) == sorted([*TAKEN_ONES, *LEFT_ONES, *PATTERNS, *NEXT_TO_PATTERNS, *PLACED])
