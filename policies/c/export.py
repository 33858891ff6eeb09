"""Export of a small network as one self-contained C99 header, for a microcontroller without other software.

    y = tanh(W_n ... tanh(W_1 (x * scale) + b_1) ... + b_n)

Weights are `static const float`, so they stay in flash. The code uses no malloc, no double, and only tanhf of
libm. For verification the header holds examples with the trainer's outputs and a CRC-32 of all weights. With
a `FlightMemory` it also builds the observation of a flight, so users need not write that code.
"""

from __future__ import annotations

import math
import re
import shutil
import subprocess
import tempfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from policies.c import source as c
from robo_rl.core.errors import CheckpointError, ConfigError, MissingDependencyError
from robo_rl.core.files.durable import write_atomic
from robo_rl.core.seeding import generator
from robo_rl.core.shapes import Float

Layers = Sequence[tuple[Tensor, Tensor]]  # (weight (out, in), bias (out,)) of each layer, in order

TOLERANCE = 1e-5  # largest accepted difference to torch; actions are in [-1, 1]
COMPILERS = ("cc", "gcc", "clang")
# -Wdouble-promotion is among the Crazyflie firmware's own flags: doubles are emulated there, ten times
# slower.
FLAGS = ("-std=c99", "-O2", "-Wall", "-Wextra", "-Werror", "-pedantic", "-Wdouble-promotion")
_NAME = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*")


@dataclass(frozen=True, slots=True)
class FlightMemory:
    """Memory of a flight, for the C functions `remember` and `observe`.

    history: number of last actions in the observation. hover_action: their initial value, in [-1, 1].
    integral: whether the observation has the integral of the position error [m s], limited to
    +-integral_limit. dt_s: control period.
    """

    history: int
    integral: bool
    integral_limit: float
    dt_s: float
    hover_action: float

    @property
    def obs_size(self) -> int:
        """Size of the observation: position, rotation matrix, velocity and rates, followed by the memory."""
        return 18 + 4 * self.history + 3 * self.integral


@dataclass(frozen=True, slots=True)
class CExport:
    """Properties of a header for the manifest."""

    file: str
    name: str
    layers: tuple[int, ...]  # widths of the observation, every hidden layer, the action
    crc32: str  # of scale, then weight (row-major) and bias of each layer, as little-endian float32
    macs: int  # multiply-accumulates per action
    flash_bytes: int  # of all constants, including the stored examples
    stack_bytes: int  # of the two activation buffers

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def write_c_header(
    path: Path,
    name: str,
    layers: Layers,
    input_scale: Tensor,
    examples: Float[Tensor, "k o"],
    note: Mapping[str, str],
    memory: FlightMemory | None = None,
) -> CExport:
    """Write the network to `path`. All names in it begin with `name`, macros with `name` in capitals.

    input_scale: (o,), multiplies the observation. examples: observations, stored with the network's outputs
    for `name_self_test`. note: lines of the comment, such as craft, observation order with units, rate,
    commit. memory: adds `name_observe`, `name_remember` and `name_reset`. Raises ConfigError for wrong shapes
    or names, CheckpointError for numbers that are not finite.
    """
    if not _NAME.fullmatch(name):
        raise ConfigError(
            f"'{name}' cannot begin the names of C functions. Use small letters, digits and single "
            "underscores between them, a letter first, such as 'hover_cf21'."
        )
    layers, scale = _checked(layers, input_scale)
    examples = plain("examples", examples)
    if examples.ndim != 2 or len(examples) == 0 or examples.shape[1] != len(scale):
        raise ConfigError(
            f"examples have shape {tuple(examples.shape)}; the self test needs (k, {len(scale)}), k at least "
            "1."
        )
    widths = [len(scale), *(len(bias) for _, bias in layers)]
    if memory is not None:
        _check_memory(memory, widths[0], widths[-1])
    answers = forward(layers, scale, examples)
    constants = {**_constants(layers, scale), "example_obs": examples, "example_action": answers}
    export = CExport(
        file=path.name,
        name=name,
        layers=tuple(widths),
        crc32=f"{_crc32(layers, scale):08x}",
        macs=sum(weight.numel() for weight, _ in layers),
        flash_bytes=4 * sum(part.numel() for part in constants.values()),
        stack_bytes=4 * max(widths[:-1]) * min(2, len(layers)),
    )
    cost = f"{export.macs} multiply-accumulates, {export.flash_bytes} bytes of flash"
    about = {**note, "network": f"{'-'.join(map(str, widths))}, {cost}", "weights": f"CRC-32 {export.crc32}"}
    macros = _macros(export, len(examples), memory)
    text = c.header(name, widths, constants, macros, about, memory is not None)
    write_atomic(path, text.encode())
    return export


def forward(layers: Layers, input_scale: Tensor, obs: Float[Tensor, "b o"]) -> Float[Tensor, "b a"]:
    """Output of the same network in torch, at the precision of its arguments."""
    x = obs * input_scale
    for weight, bias in layers:
        x = torch.tanh(torch.nn.functional.linear(x, weight, bias))
    return x


def verify_c_header(
    path: Path,
    name: str,
    layers: Layers,
    input_scale: Tensor,
    num: int = 1000,
    tolerance: float = TOLERANCE,
) -> float:
    """Compile the header, run its self test and `num` random observations; returns the largest difference to
    torch.

    Raises MissingDependencyError without a C compiler, CheckpointError if the header does not compile without
    warnings, fails its self test, holds other weights, or differs from torch by more than `tolerance`.
    """
    layers, scale = _checked(layers, input_scale)
    spread = torch.where(scale == 0.0, torch.ones_like(scale), scale.abs())
    obs = 2.0 * torch.randn(num, len(scale), generator=generator("c header")) / spread
    failed, crc, found = run_header(path, name, obs)
    if failed:
        raise CheckpointError(f"{path.name} fails its self test at example {failed}. Write the header again.")
    if crc != (ours := _crc32(layers, scale)):
        raise CheckpointError(
            f"{path.name} holds other weights than these (CRC-32 {crc:08x}, expected {ours:08x}). "
            "Write the header again, and check which policy it was written from."
        )
    expected = forward(layers, scale, obs)
    found = found.view_as(expected)
    worst = float((found - expected).abs().max())
    if not worst <= tolerance:  # also refuses NaN
        exact = forward([(w.double(), b.double()) for w, b in layers], scale.double(), obs.double())
        raise CheckpointError(
            f"{path.name} differs from torch by {worst:.2g}, allowed are {tolerance:.0e}; float32 torch "
            f"differs from float64 by {float((expected - exact).abs().max()):.2g}. If both are similar, "
            "the network amplifies rounding: train it with smaller weights."
        )
    return worst


def run_header(path: Path, name: str, obs: Float[Tensor, "b o"]) -> tuple[int, int, Float[Tensor, " ba"]]:
    """(result of the self test, CRC-32 of the weights, all actions) of the compiled header."""
    compiler = next((found for found in map(shutil.which, COMPILERS) if found), None)
    if compiler is None:
        raise MissingDependencyError(
            f"Checking a C header needs a C compiler; none of {', '.join(COMPILERS)} is on the PATH. Install "
            "one, such as with: apt-get install gcc"
        )
    with tempfile.TemporaryDirectory() as folder:
        source, program = Path(folder, "main.c"), Path(folder, "check")
        source.write_text(c.with_prefix(c.MAIN, name).replace("HEADER", path.name))
        command = [compiler, *FLAGS, f"-I{path.resolve().parent}", str(source), "-lm", "-o", str(program)]
        built = subprocess.run(command, capture_output=True, text=True, check=False)
        if built.returncode:
            reason = next(
                (line for line in built.stderr.splitlines() if "error" in line), built.stderr.strip()
            )
            raise CheckpointError(f"{path.name} does not compile with {' '.join(FLAGS)}: {reason.strip()}")
        ran = subprocess.run(
            [str(program)], input=obs.float().numpy().tobytes(), capture_output=True, check=True
        )
    failed, crc = (int(value) for value in np.frombuffer(ran.stdout, "<u4", count=2))
    return failed, crc, torch.from_numpy(np.frombuffer(ran.stdout, "<f4", offset=8).copy())


def _macros(export: CExport, num_examples: int, memory: FlightMemory | None) -> dict[str, str | int]:
    obs, *hidden, actions = export.layers
    values: dict[str, str | int] = {
        "OBS": obs,
        "ACTIONS": actions,
        "WIDEST": max([obs, *hidden]),
        "MACS": export.macs,
    }
    values |= {"EXAMPLES": num_examples, "CRC32": f"0x{export.crc32}u"}
    if memory is not None:
        numbers = {
            "DT_S": memory.dt_s,
            "INTEGRAL_LIMIT": memory.integral_limit,
            "HOVER_ACTION": memory.hover_action,
        }
        values |= {"HISTORY": memory.history, "INTEGRAL": int(memory.integral)}
        values |= {
            key: c.literal(torch.tensor(value, dtype=torch.float32).item()) for key, value in numbers.items()
        }
    return values


def _constants(layers: Layers, scale: Tensor) -> dict[str, Tensor]:
    """Name -> values, in the order of the checksum."""
    named = {"scale": scale}
    for i, (weight, bias) in enumerate(layers, 1):
        named |= {f"weight_{i}": weight, f"bias_{i}": bias}
    return named


def _crc32(layers: Layers, scale: Tensor) -> int:
    parts = _constants(layers, scale).values()
    return zlib.crc32(b"".join(part.numpy().astype("<f4").tobytes() for part in parts))


def _checked(layers: Layers, input_scale: Tensor) -> tuple[list[tuple[Tensor, Tensor]], Tensor]:
    """Float32 copies of the layers on the CPU. Raises ConfigError for layers that do not form a network."""
    if not layers:
        raise ConfigError("There is no layer to export.")
    scale = plain("input_scale", input_scale)
    copies, width = [], scale.numel()
    if scale.ndim != 1 or width == 0:
        raise ConfigError(
            f"input_scale has shape {tuple(scale.shape)}; expected (o,), one factor per observation."
        )
    for i, (weight, bias) in enumerate(layers, 1):
        if (
            weight.ndim != 2
            or weight.shape[1] != width
            or bias.shape != weight.shape[:1]
            or bias.numel() == 0
        ):
            raise ConfigError(
                f"Layer {i} has a weight of shape {tuple(weight.shape)} and a bias of shape "
                f"{tuple(bias.shape)}; expected (out, {width}) and (out,)."
            )
        copies.append((plain(f"The weight of layer {i}", weight), plain(f"The bias of layer {i}", bias)))
        width = len(bias)
    return copies, scale


def plain(what: str, values: Tensor) -> Tensor:
    """A float32 copy on the CPU. Raises CheckpointError for numbers that are not finite."""
    copy = values.detach().to("cpu", torch.float32).contiguous()
    if bad := int((~copy.isfinite()).sum()):
        raise CheckpointError(
            f"{what}: {bad} of {copy.numel()} numbers are not finite in float32. Such a policy must not fly; "
            "use an earlier checkpoint."
        )
    return copy


def _check_memory(memory: FlightMemory, obs: int, actions: int) -> None:
    if memory.history < 0 or not all(
        map(math.isfinite, (memory.integral_limit, memory.dt_s, memory.hover_action))
    ):
        raise ConfigError(f"{memory} is impossible: history must be at least 0, the other numbers finite.")
    if (obs, actions) != (memory.obs_size, 4):
        raise ConfigError(
            f"The network maps {obs} numbers to {actions}; a flight with {memory.history} remembered actions "
            f"and integral={memory.integral} has {memory.obs_size} observations and 4 actions."
        )
