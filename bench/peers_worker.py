"""Times the parts of Stable Diffusion 1.5 in PyTorch or in OpenVINO; bench/peers.py starts it, in build/peers-venv.

On stdout it writes a line of JSON for each event: {"progress": ...}, {"failed": why}, {"ready": {...}}, and then, for
each line that it reads from stdin, {"step_seconds": ..., "decode_seconds": ...}. What libraries print goes to stderr.
"""

import argparse
import importlib
import json
import os
import re
import sys
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import IO, Any, NamedTuple

import checkpoint

# Of SD 1.5's configuration what differs from diffusers' defaults.
UNET = {"sample_size": 64, "cross_attention_dim": checkpoint.TEXT_WIDTH}
VAE = {
    "sample_size": 512,
    "block_out_channels": [128, 256, 512, 512],
    "layers_per_block": 2,
    "down_block_types": 4 * ["DownEncoderBlock2D"],
    "up_block_types": 4 * ["UpDecoderBlock2D"],
}
TOKENS = 77
TIME = 500.0
# Pixels to a side of a latent, and of the smallest picture that the UNet takes; all others are multiples of it.
SCALE = 8
LEAST_SIZE = 64
# In OpenVINO's names of what computes. MLAS chooses instructions by itself, and nothing keeps it from AVX-512.
BEYOND_AVX2 = re.compile(r"avx512|amx|mlas")


class Failure(Exception):
    """Why the peer cannot be measured."""


class Peer(NamedTuple):
    notes: list[str]
    evaluate: Callable[[int], Any]  # the UNet, for the first or the second text
    decode: Callable[[], Any]
    finite: Callable[[Any], bool]  # whether a result is finite


class Reporter:
    """Writes events to what stdout was, and takes stdout for stderr."""

    def __init__(self) -> None:
        self.file: IO[str] = os.fdopen(os.dup(1), "w")
        os.dup2(2, 1)

    def __call__(self, **event: Any) -> None:
        print(json.dumps(event), file=self.file, flush=True)


def load(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except Exception as error:
        raise Failure(f"{name} cannot be imported ({one_line(error)})") from error


def one_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def parameters(*modules: Any) -> int:
    return sum(parameter.numel() for module in modules for parameter in module.parameters())


def models(report: Reporter) -> tuple[Any, Any]:
    """The UNet and the VAE's decoder with random weights, called with tensors and returning a tuple of one."""
    torch, diffusers = load("torch"), load("diffusers")
    report(progress="making the models")
    torch.manual_seed(checkpoint.SEED)
    unet = diffusers.UNet2DConditionModel(**UNET).eval()
    vae = diffusers.AutoencoderKL(**VAE).eval()
    vae.encoder = vae.quant_conv = None
    for name, count, tensors in (
        ("UNet", parameters(unet), checkpoint.unet(tiny=False)),
        ("VAE decoder", parameters(vae), checkpoint.vae_decoder()),
    ):
        if count != (expected := sum(tensor.size for tensor in tensors)):
            raise Failure(f"its {name} has {count} weights, and not {expected}")
    unet.forward = partial(unet.forward, return_dict=False)
    vae.forward = partial(vae.decode, return_dict=False)
    return unet, vae


def inputs(size: int) -> tuple[list[Any], list[Any]]:
    """Those of the UNet, for two texts, and those of the decoder."""
    torch = load("torch")
    generator = torch.Generator().manual_seed(checkpoint.SEED)
    latent = torch.randn(1, checkpoint.LATENT_CHANNELS, size // SCALE, size // SCALE, generator=generator)
    texts = torch.randn(2, 1, TOKENS, checkpoint.TEXT_WIDTH, generator=generator)
    return [(latent, torch.tensor(TIME), text) for text in texts], [(latent,)]


def seconds(function: Callable[[], Any]) -> float:
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def faster_layout(module: Any, values: tuple[Any, ...], small: tuple[Any, ...]) -> str:
    """Leaves the module in the memory format that is faster, and returns its name."""
    torch = load("torch")
    formats = {"contiguous": torch.contiguous_format, "channels_last": torch.channels_last}
    taken = {}
    for name, layout in formats.items():
        module.to(memory_format=layout)
        module(*small)
        taken[name] = seconds(lambda: module(*values))
    best = min(taken, key=lambda name: taken[name])
    module.to(memory_format=formats[best])
    print("seconds by layout:", taken, file=sys.stderr)
    return best


def pytorch(size: int, threads: int, level: str, report: Reporter) -> Peer:
    torch = load("torch")
    torch.set_num_threads(threads)
    # For as long as the process lives.
    torch.inference_mode().__enter__()
    unet, vae = models(report)
    texts, latents = inputs(size)
    small_texts, small_latents = inputs(LEAST_SIZE)
    report(progress="trying layouts of the UNet")
    unet_layout = faster_layout(unet, texts[0], small_texts[0])
    report(progress="trying layouts of the VAE")
    vae_layout = faster_layout(vae, latents[0], small_latents[0])

    capability = torch.backends.cpu.get_cpu_capability()
    if level == "avx2" and capability != "AVX2":
        raise Failure(f"it says that it uses {capability} where it was to keep to AVX2")
    return Peer(
        notes=[torch.__version__, capability, f"UNet {unet_layout}", f"VAE {vae_layout}"],
        evaluate=lambda i: unet(*texts[i])[0],
        decode=lambda: vae(*latents[0])[0],
        finite=lambda result: bool(result.isfinite().all()),
    )


def beyond_avx2(compiled: list[Any]) -> list[str]:
    """What OpenVINO does not keep to AVX2, as far as it tells."""
    kinds: Counter[str] = Counter()
    for model in compiled:
        for node in model.get_runtime_model().get_ops():
            information = node.get_rt_info()
            primitive, layer = (information[key].astype(str) for key in ("primitiveType", "layerType"))
            if BEYOND_AVX2.search(primitive):
                kinds[f"{layer} ({primitive})"] += 1
    return [f"{count} {kind}" for kind, count in sorted(kinds.items())]


def openvino(size: int, threads: int, level: str, report: Reporter) -> Peer:
    # Else what converts a model would tell its maker of it, and leave files in the user's folder.
    sys.modules["openvino_telemetry"] = None  # type: ignore[assignment]
    ov, torch = load("openvino"), load("torch")
    torch.set_num_threads(threads)
    texts, latents = inputs(size)
    small_texts, small_latents = inputs(LEAST_SIZE)
    options = {
        "PERFORMANCE_HINT": "LATENCY",
        "NUM_STREAMS": 1,
        "INFERENCE_PRECISION_HINT": "f32",
        "INFERENCE_NUM_THREADS": threads,
        # Without it, threads that share a core would not count.
        "ENABLE_HYPER_THREADING": True,
    }
    core = ov.Core()
    compiled = []
    with torch.inference_mode():
        modules = list(models(report))
        for name, values, small in (("UNet", texts[0], small_texts[0]), ("VAE", latents[0], small_latents[0])):
            report(progress=f"converting the {name}")
            model = ov.convert_model(modules.pop(0), example_input=small)
            model.reshape({i: list(value.shape) for i, value in enumerate(values)})
            report(progress=f"compiling the {name}")
            compiled.append(core.compile_model(model, "CPU", options))
            del model
    got = {model.get_property("INFERENCE_NUM_THREADS") for model in compiled}
    if got != {threads}:
        raise Failure(f"it takes {' and '.join(map(str, got))} threads and not {threads}")

    arrays = [[value.numpy() for value in values] for values in (*texts, *latents)]
    requests = [model.create_infer_request() for model in compiled]

    def infer(request: Any, values: list[Any]) -> Any:
        request.infer(values)
        return request.get_output_tensor().data

    notes = [ov.__version__.split("-")[0]]
    if level == "avx2" and (others := beyond_avx2(compiled)):
        notes.append("not kept to AVX2: " + ", ".join(others))
    return Peer(
        notes=notes,
        evaluate=lambda i: infer(requests[0], arrays[i]),
        decode=lambda: infer(requests[1], arrays[2]),
        finite=lambda result: bool(torch.from_numpy(result).isfinite().all()),
    )


PEERS = {"pytorch": pytorch, "openvino": openvino}


def serve(peer: Peer, report: Reporter) -> None:
    report(progress="warming up")
    for compute in (partial(peer.evaluate, 0), peer.decode):
        if not peer.finite(compute()):
            raise Failure("its results are not finite")
    report(ready={"notes": peer.notes})
    for _ in sys.stdin:
        step = seconds(lambda: [peer.evaluate(i) for i in range(2)])
        report(step_seconds=step, decode_seconds=seconds(peer.decode))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("peer", choices=PEERS)
    parser.add_argument("--size", type=int, required=True)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--level", required=True)
    arguments = parser.parse_args()
    report = Reporter()
    try:
        serve(PEERS[arguments.peer](arguments.size, arguments.threads, arguments.level, report), report)
    except Failure as failure:
        report(failed=str(failure))
    except Exception as error:
        report(failed=f"{type(error).__name__}: {one_line(error)}")
        raise


if __name__ == "__main__":
    main()
