"""Writes synthetic checkpoints: Stable Diffusion 1.5, or its tiny U-Net and TAESD, with random weights.

Time and memory do not depend on what the weights are, so a picture of noise measures as well as one of a cat, and the
file needs no download. All weights are windows into one pool of random numbers (safetensors allows tensors to overlap),
which keeps a model of 2 GB in a file of 100 MB. The same arguments write the same bytes.
"""

import argparse
import json
import math
import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

MODELS = Path(__file__).resolve().parent.parent / "build" / "models"
DTYPES = ("f16", "bf16", "f32")
SEED = 1

TEXT_WIDTH = 768
TIME_WIDTH = 1280
LATENT_CHANNELS = 4


class Tensor(NamedTuple):
    name: str
    shape: tuple[int, ...]
    value: float | None = None  # of all elements; None for random ones

    @property
    def size(self) -> int:
        return math.prod(self.shape)


def norm(name: str, width: int) -> Iterator[Tensor]:
    yield Tensor(f"{name}.weight", (width,), 1.0)
    yield Tensor(f"{name}.bias", (width,))


def linear(name: str, inputs: int, outputs: int, bias: bool = True) -> Iterator[Tensor]:
    yield Tensor(f"{name}.weight", (outputs, inputs))
    if bias:
        yield Tensor(f"{name}.bias", (outputs,))


def conv(name: str, inputs: int, outputs: int, size: int = 3, bias: bool = True) -> Iterator[Tensor]:
    yield Tensor(f"{name}.weight", (outputs, inputs, size, size))
    if bias:
        yield Tensor(f"{name}.bias", (outputs,))


def clip() -> Iterator[Tensor]:
    root = "cond_stage_model.transformer.text_model"
    yield Tensor(f"{root}.embeddings.token_embedding.weight", (49408, TEXT_WIDTH))
    yield Tensor(f"{root}.embeddings.position_embedding.weight", (77, TEXT_WIDTH))
    for i in range(12):
        layer = f"{root}.encoder.layers.{i}"
        for projection in ("q_proj", "k_proj", "v_proj", "out_proj"):
            yield from linear(f"{layer}.self_attn.{projection}", TEXT_WIDTH, TEXT_WIDTH)
        yield from linear(f"{layer}.mlp.fc1", TEXT_WIDTH, 4 * TEXT_WIDTH)
        yield from linear(f"{layer}.mlp.fc2", 4 * TEXT_WIDTH, TEXT_WIDTH)
        yield from norm(f"{layer}.layer_norm1", TEXT_WIDTH)
        yield from norm(f"{layer}.layer_norm2", TEXT_WIDTH)
    yield from norm(f"{root}.final_layer_norm", TEXT_WIDTH)


def unet_resnet(name: str, inputs: int, outputs: int) -> Iterator[Tensor]:
    yield from norm(f"{name}.in_layers.0", inputs)
    yield from conv(f"{name}.in_layers.2", inputs, outputs)
    yield from linear(f"{name}.emb_layers.1", TIME_WIDTH, outputs)
    yield from norm(f"{name}.out_layers.0", outputs)
    yield from conv(f"{name}.out_layers.3", outputs, outputs)
    if inputs != outputs:
        yield from conv(f"{name}.skip_connection", inputs, outputs, 1)


def unet_transformer(name: str, width: int) -> Iterator[Tensor]:
    yield from norm(f"{name}.norm", width)
    yield from conv(f"{name}.proj_in", width, width, 1)
    block = f"{name}.transformer_blocks.0"
    for i, context in ((1, width), (2, TEXT_WIDTH)):
        yield from linear(f"{block}.attn{i}.to_q", width, width, bias=False)
        yield from linear(f"{block}.attn{i}.to_k", context, width, bias=False)
        yield from linear(f"{block}.attn{i}.to_v", context, width, bias=False)
        yield from linear(f"{block}.attn{i}.to_out.0", width, width)
    yield from linear(f"{block}.ff.net.0.proj", width, 8 * width)
    yield from linear(f"{block}.ff.net.2", 4 * width, width)
    for i in (1, 2, 3):
        yield from norm(f"{block}.norm{i}", width)
    yield from conv(f"{name}.proj_out", width, width, 1)


def unet(tiny: bool) -> Iterator[Tensor]:
    """The tiny one has one block less everywhere, and no deepest level and no middle."""
    root = "model.diffusion_model"
    widths = (320, 640, 1280) if tiny else (320, 640, 1280, 1280)
    blocks = 1 if tiny else 2
    attention_levels = 3
    yield from linear(f"{root}.time_embed.0", widths[0], TIME_WIDTH)
    yield from linear(f"{root}.time_embed.2", TIME_WIDTH, TIME_WIDTH)
    yield from conv(f"{root}.input_blocks.0.0", LATENT_CHANNELS, widths[0])
    # Blocks are numbered as if every level had two and then a step down, or three with a step up.
    width = widths[0]
    skips = [width]
    for level, outputs in enumerate(widths):
        for i in range(blocks):
            name = f"{root}.input_blocks.{1 + 3 * level + i}"
            yield from unet_resnet(f"{name}.0", width, outputs)
            width = outputs
            if level < attention_levels:
                yield from unet_transformer(f"{name}.1", width)
            skips.append(width)
        if level < len(widths) - 1:
            yield from conv(f"{root}.input_blocks.{3 + 3 * level}.0.op", width, width)
            skips.append(width)
    if not tiny:
        yield from unet_resnet(f"{root}.middle_block.0", width, width)
        yield from unet_transformer(f"{root}.middle_block.1", width)
        yield from unet_resnet(f"{root}.middle_block.2", width, width)
    for step, level in enumerate(reversed(range(len(widths)))):
        for i in range(blocks + 1):
            name = f"{root}.output_blocks.{3 * step + i}"
            yield from unet_resnet(f"{name}.0", width + skips.pop(), widths[level])
            width = widths[level]
            if level < attention_levels:
                yield from unet_transformer(f"{name}.1", width)
        if level > 0:
            yield from conv(f"{root}.output_blocks.{3 * step + 2}.{1 if step == 0 else 2}.conv", width, width)
    yield from norm(f"{root}.out.0", width)
    yield from conv(f"{root}.out.2", width, LATENT_CHANNELS)


def vae_resnet(name: str, inputs: int, outputs: int) -> Iterator[Tensor]:
    yield from norm(f"{name}.norm1", inputs)
    yield from conv(f"{name}.conv1", inputs, outputs)
    yield from norm(f"{name}.norm2", outputs)
    yield from conv(f"{name}.conv2", outputs, outputs)
    if inputs != outputs:
        yield from conv(f"{name}.nin_shortcut", inputs, outputs, 1)


def vae_decoder() -> Iterator[Tensor]:
    root = "first_stage_model.decoder"
    widths = (128, 256, 512, 512)
    width = widths[-1]
    yield from conv("first_stage_model.post_quant_conv", LATENT_CHANNELS, LATENT_CHANNELS, 1)
    yield from conv(f"{root}.conv_in", LATENT_CHANNELS, width)
    yield from vae_resnet(f"{root}.mid.block_1", width, width)
    yield from norm(f"{root}.mid.attn_1.norm", width)
    for projection in ("q", "k", "v", "proj_out"):
        yield from conv(f"{root}.mid.attn_1.{projection}", width, width, 1)
    yield from vae_resnet(f"{root}.mid.block_2", width, width)
    for level in reversed(range(len(widths))):
        for i in range(3):
            yield from vae_resnet(f"{root}.up.{level}.block.{i}", width, widths[level])
            width = widths[level]
        if level > 0:
            yield from conv(f"{root}.up.{level}.upsample.conv", width, width)
    yield from norm(f"{root}.norm_out", width)
    yield from conv(f"{root}.conv_out", width, 3)


def taesd_decoder() -> Iterator[Tensor]:
    root, width = "decoder.layers", 64
    yield from conv(f"{root}.0", LATENT_CHANNELS, width)
    for layer in (2, 3, 4, 7, 8, 9, 12, 13, 14, 17):
        for i in (0, 2, 4):
            yield from conv(f"{root}.{layer}.conv.{i}", width, width)
    for layer in (6, 11, 16):
        yield from conv(f"{root}.{layer}", width, width, bias=False)
    yield from conv(f"{root}.18", width, 3, bias=False)
    yield Tensor(f"{root}.18.bias", (3,), 0.5)  # a middle gray


def to_dtype(values: NDArray[np.float32], dtype: str) -> bytes:
    if dtype == "f32":
        return values.tobytes()
    if dtype == "f16":
        return values.astype(np.float16).tobytes()
    bits = values.view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16).tobytes()


def write(path: Path, tensors: list[Tensor], dtype: str, deviation: float) -> None:
    """Writes the tensors to a safetensors file; the random ones have this standard deviation."""
    rng = np.random.default_rng(SEED)
    # A quarter more than the largest tensor, so that it too has a place of its own.
    pool = rng.standard_normal(max(tensor.size for tensor in tensors) * 5 // 4, dtype=np.float32)
    parts = [pool * np.float32(deviation)]
    constant_starts: dict[float | None, int] = {}
    for value in sorted({tensor.value for tensor in tensors if tensor.value is not None}):
        constant_starts[value] = sum(part.size for part in parts)
        longest = max(tensor.size for tensor in tensors if tensor.value == value)
        parts.append(np.full(longest, value, np.float32))

    itemsize = 4 if dtype == "f32" else 2
    header = {}
    for tensor in tensors:
        random_start = int(rng.integers(pool.size - tensor.size + 1))
        start = constant_starts.get(tensor.value, random_start)
        offsets = [start * itemsize, (start + tensor.size) * itemsize]
        header[tensor.name] = {"dtype": dtype.upper(), "shape": list(tensor.shape), "data_offsets": offsets}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)

    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    with part.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.write(to_dtype(np.concatenate(parts), dtype))
    part.replace(path)
    print(f"checkpoint: wrote {path} ({path.stat().st_size >> 20} MiB, {len(tensors)} tensors)", file=sys.stderr)


def sd15(dtype: str = "f16", folder: Path = MODELS) -> Path:
    """The path of the SD 1.5 checkpoint, which is written unless it is there."""
    path = folder / f"sd15-{dtype}.safetensors"
    if not path.exists():
        write(path, [*clip(), *unet(tiny=False), *vae_decoder()], dtype, 0.02)
    return path


def tiny(dtype: str = "f16", folder: Path = MODELS) -> tuple[Path, Path]:
    """The paths of the tiny U-Net's checkpoint and of TAESD's, which are written unless they are there."""
    model, taesd = folder / f"tiny-{dtype}.safetensors", folder / f"taesd-{dtype}.safetensors"
    if not model.exists():
        write(model, [*clip(), *unet(tiny=True)], dtype, 0.02)
    if not taesd.exists():
        # TAESD normalizes nowhere: with this its output neither vanishes nor leaves a picture's range.
        write(taesd, list(taesd_decoder()), dtype, 0.037)
    return model, taesd


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", choices=("sd15", "tiny"), help="tiny writes two files, the second one for --taesd")
    parser.add_argument("--dtype", choices=DTYPES, default="f16", help="of all tensors (default: %(default)s)")
    parser.add_argument("--out", type=Path, default=MODELS, metavar="DIR", help="(default: build/models)")
    arguments = parser.parse_args()
    if arguments.model == "sd15":
        print(sd15(arguments.dtype, arguments.out))
    else:
        print(*tiny(arguments.dtype, arguments.out), sep="\n")


if __name__ == "__main__":
    main()
