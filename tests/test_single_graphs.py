"""Operations that are taken one by one in ggml's graphs: none of them is left to ggml."""

from __future__ import annotations

import re

import pytest

from tests.patched_ggml import RUNS, Graphs, every_form, source
from tests.profiles import rows

# Relative to the largest number of a tensor; of what is left to ggml, which rounds an image to half precision.
ERROR = 3e-6
COARSE = {"matrix_is_small": 3e-3, "channels_apart": 3e-3}

# The rows of the profile, without extents, and how many calls of each there are.
CASES: dict[str, dict[str, int]] = {
    "soft_max": {"softmax": 1},
    "soft_max_in_place": {"softmax": 2},
    "soft_max_masked": {"softmax": 4},
    "soft_max_of_view": {"softmax": 1},
    "upscale": {"upscale": 4},
    "upscale_between": {"ggml UPSCALE": 1},
    "padded": {"padding": 3},
    "frames_convolved": {"conv3x3x3 6->7@13x11x5": 1},
    "frames_convolved_otherwise": {
        "conv3x2x3/2 4->5@7x10x6": 1,
        "conv1x1x3 4->5@14x12x9": 1,
        "conv2x2x2 8->3@8x6x3": 1,
        "copy": 1,
    },
    "frames_transformed": {"conv3x3x3 40->32@20x18x3 F3": 1, "copy": 1},
    "frames_padded": {"conv3x3x3 6->7@13x11x5": 2},
    "frames_padded_after": {"conv3x3x3 6->7@13x11x5": 1, "padding": 1, "copy": 1, "map": 1},
    "frames_padded_overwritten": {"conv3x3x3 6->7@13x11x5": 1, "padding": 1, "map": 1},
    "frames_padded_on_image": {"conv3x3x3 6->7@13x11x5": 1, "copy": 1, "map": 1},
    "padding_read_twice": {"conv3x3 6->7@13x11": 1, "ggml PAD": 1},
    "image_padded": {"conv3x3 6->7@42x30": 1, "conv3x3/2 6->7@20x15": 1, "padding": 1, "copy": 1},
    "frames_convolved_directly": {"conv3x3x2 6->7@13x6x3": 1, "conv3x3x2 6->7@9x8x7": 1},
    "images_convolved": {"conv7x7/2 3->20@4x4": 1, "conv3x3 6->9@13x11": 1, "copy": 1},
    "rows_convolved": {"conv5x1/2 12->17@65x1": 1},
    "image_doubled_and_convolved": {"conv3x3 up 6->7@24x20": 1, "copy": 1},
    "frames_on_image": {"conv3x3x3 6->7@13x11x5": 1, "copy": 1},
    "image_overwritten": {"conv3x3 6->7@13x11": 1, "copy": 1, "ggml SCALE": 1},
    "image_overwritten_late": {"conv3x3 6->7@13x11": 1, "copy": 1, "ggml SCALE": 1},
    "matrix_is_small": {"ggml IM2COL": 1, "ggml MUL_MAT": 1, "ggml SCALE": 1},
    "convolution_product_wanted": {"conv3x3 6->7@13x11": 1},
    "matrix_read_twice": {"ggml IM2COL": 1, "linear 7x143x54": 1},
    "weights_on_the_left": {"ggml IM2COL": 1, "linear 143x7x54": 1},
    "other_weights": {"ggml IM2COL": 1, "linear 5x143x54": 1},
    "channels_apart": {"ggml IM2COL": 1, "ggml MUL_MAT": 1},
    "norms": {"group norm": 1, "layer norm": 2},
    "sums_and_products": {"map": 5},
    "functions": {"map": 10},
    "concatenations": {"permutation": 6},
    "permutations": {"permutation": 24},
}

# What the graphs themselves are made with.
MADE = ("ggml NEG", "ggml CONT", "permutation", "nothing")

SHAPE = re.compile(r" (?:\d+x){3}\d+$")


@every_form
@pytest.mark.parametrize("case", CASES)
def test_single_operations_are_taken(graphs: Graphs, case: str, form: dict[str, str]) -> None:
    done = graphs.run(case, SDGEN_PROFILE="1", **form)
    assert done.error <= COARSE.get(case, ERROR)
    calls: dict[str, int] = {}
    for described, row in rows(done.said).items():
        name = SHAPE.sub("", described)
        calls[name] = calls.get(name, 0) + row.calls
    made = [name for name in calls if name in MADE and name not in CASES[case]]
    assert {name: count for name, count in calls.items() if name not in made} == {
        name: RUNS * count for name, count in CASES[case].items()
    }


def test_every_case_is_run() -> None:
    """The program has no case that is not run here."""
    names = re.findall(r'^    \{"(\w+)", ', source("single-graphs").read_text(), re.MULTILINE)
    assert names == [*CASES]
