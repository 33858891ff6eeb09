from __future__ import annotations

import re
import shutil
import subprocess
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from policies.c import export as c_export
from policies.c.export import CExport, FlightMemory, forward, verify_c_header, write_c_header
from robo_rl.core.errors import CheckpointError, ConfigError, MissingDependencyError
from sim.engines.quad.craft import load_craft
from sim.engines.quad.layout import POS, QUAT, RATE, STATE_SIZE, VEL
from sim.flight.command import motors_hover
from sim.flight.memory import blank_memory
from sim.tasks.flight.observation import FlightSenses, observe, remember

NOTE = {
    "craft": "cf21",
    "observation": "position [m], R (rows), velocity [m/s], rates [rad/s]",
    "rate": "100 Hz",
}
needs_c = pytest.mark.skipif(not any(map(shutil.which, c_export.COMPILERS)), reason="no C compiler")


def network(*widths: int, gain: float = 1.0) -> tuple[list[tuple[Tensor, Tensor]], Tensor]:
    rng = torch.Generator().manual_seed(3)
    layers = [
        (gain * torch.randn(b, a, generator=rng) / a**0.5, 0.1 * torch.randn(b, generator=rng))
        for a, b in pairwise(widths)
    ]
    return layers, 0.5 + torch.rand(widths[0], generator=rng)


def written(path: Path, *widths: int, memory: FlightMemory | None = None) -> CExport:
    layers, scale = network(*widths)
    return write_c_header(path, "fly", layers, scale, torch.randn(3, widths[0]), NOTE, memory)


def run(language: str, folder: Path, main: str, given: bytes = b"") -> bytes:
    """Compile `main` with the header without a warning, run it, return what it printed."""
    compiler, standard = {"c": ("gcc", "c99"), "c++": ("g++", "c++11")}[language]
    flags = [f"-std={standard}", "-O1", "-Wall", "-Wextra", "-Werror", "-pedantic", "-I", str(folder)]
    text = f'#include <stdio.h>\n#include "fly.h"\n{main}'
    command = [compiler, "-x", language, *flags, "-", "-lm", "-o", str(folder / "main")]
    subprocess.run(command, input=text.encode(), check=True)
    return subprocess.run([str(folder / "main")], input=given, capture_output=True, check=True).stdout


@needs_c
@pytest.mark.parametrize("widths", [(53, 64, 64, 4), (18, 32, 4), (7, 5), (3, 9, 2, 8, 1)])
def test_c_equals_torch(tmp_path: Path, widths: tuple[int, ...]) -> None:
    """1,000 random observations through the compiled header; one layer, odd widths and a network as it is
    flown.
    """
    layers, scale = network(*widths, gain=2.0)
    export = write_c_header(tmp_path / "fly.h", "fly", layers, scale, torch.randn(3, widths[0]), NOTE)
    assert verify_c_header(tmp_path / "fly.h", "fly", layers, scale, num=1000) < 1e-5
    assert export.layers == widths
    assert export.macs == sum(a * b for a, b in pairwise(widths))
    constants = widths[0] + export.macs + sum(widths[1:]) + 3 * (widths[0] + widths[-1])
    assert export.flash_bytes == 4 * constants


@needs_c
def test_weights_are_bit_identical(tmp_path: Path) -> None:
    """Nine digits name every float32: the smallest, the largest, a subnormal one and minus zero, too."""
    values = torch.tensor([0.1, 1 / 3, -0.0, 1.0, 1.17549435e-38, 1e-44, 3.4028235e38, 16777217.0])
    export = write_c_header(
        tmp_path / "fly.h", "fly", [(torch.ones(1, 8), torch.zeros(1))], values, torch.zeros(1, 8), {}
    )
    write = "fwrite(fly_scale, sizeof fly_scale, 1, stdout); return fly_weights_crc32() != FLY_CRC32;"
    assert run("c", tmp_path, f"int main(void) {{ {write} }}") == values.numpy().tobytes()
    assert re.search(rf"FLY_CRC32 0x{export.crc32}u", (tmp_path / "fly.h").read_text())


@needs_c
def test_self_test_catches_a_changed_weight(tmp_path: Path) -> None:
    """One weight is edited in the text: the self test reports the first wrong example."""
    path = tmp_path / "fly.h"
    layers, scale = network(4, 8, 2)
    examples = torch.tensor(
        [[0.0, 1.0, 1.0, 1.0], [1.0, 1.0, 1.0, 1.0]]
    )  # the first one does not feel column 0
    write_c_header(path, "fly", layers, scale, examples, NOTE)
    path.write_text(re.sub(r"(fly_weight_1\[32\] = \{\n  )[^,]+", r"\g<1>0.75f", path.read_text()))
    with pytest.raises(CheckpointError, match="self test at example 2"):
        verify_c_header(path, "fly", layers, scale)


@needs_c
def test_a_header_of_another_policy_is_refused(tmp_path: Path) -> None:
    """The self test succeeds, so only the checksum detects it; also for other shapes."""
    written(tmp_path / "fly.h", 6, 8, 2)
    for widths in ((6, 8, 2), (5, 8, 3)):
        layers, scale = network(*widths, gain=1.1)
        with pytest.raises(CheckpointError, match="other weights"):
            verify_c_header(tmp_path / "fly.h", "fly", layers, scale)


@needs_c
@pytest.mark.parametrize(("history", "integral"), [(8, True), (3, False), (0, True), (0, False)])
def test_memory_in_c_is_that_of_the_simulator(tmp_path: Path, history: int, integral: bool) -> None:
    """50 steps of random flight with a saturated integral: every observation is equal bit for bit."""
    craft, senses = load_craft("cf21"), FlightSenses(history, integral, integral_limit=0.02)
    memory = FlightMemory(history, integral, 0.02, 0.01, 2.0 * craft.hover_speed - 1.0)
    export = written(tmp_path / "fly.h", senses.obs_size, 6, 4, memory=memory)
    assert export.layers[0] == memory.obs_size
    rng = torch.Generator().manual_seed(0)
    kept, wanted, given = blank_memory(1, motors_hover(craft), senses), [], []
    for _ in range(50):
        state, action = torch.randn(STATE_SIZE, 1, generator=rng), torch.rand(4, 1, generator=rng) * 2.0 - 1.0
        state[QUAT] /= state[QUAT].norm()
        kept = remember(kept, action, state[POS], senses, 0.01)
        wanted.append(torch.cat([observe(state, torch.zeros(18, 1)), kept]))
        given.append(torch.cat([action, state[POS], state[QUAT], state[VEL], state[RATE]]))
    main = """int main(void) {
      float in[17], obs[FLY_OBS];
      fly_state state;
      fly_reset(&state);
      while (fread(in, sizeof in, 1, stdin) == 1) {
        fly_remember(&state, in, in + 4);
        fly_observe(&state, in + 4, in + 7, in + 11, in + 14, obs);
        fwrite(obs, sizeof obs, 1, stdout);
      }
      return 0;
    }"""
    found = np.frombuffer(run("c", tmp_path, main, torch.cat(given).numpy().tobytes()), "<f4")
    np.testing.assert_array_equal(found, torch.cat(wanted)[:, 0].numpy())


@needs_c
def test_the_header_is_cpp_too(tmp_path: Path) -> None:
    """PX4 and Betaflight use C++, whose compiler must accept comments and macros."""
    if shutil.which("g++") is None:
        pytest.skip("no C++ compiler")
    written(tmp_path / "fly.h", 53, 8, 4, memory=FlightMemory(8, True, 0.3, 0.01, 0.1))
    run("c++", tmp_path, "int main() { return fly_self_test(); }")


@needs_c
def test_notes_cannot_break_out_of_their_comment(tmp_path: Path) -> None:
    """A glob or a comment end in a note is text, and a prefix in a note is not replaced."""
    layers, scale = network(3, 2)
    note = {"runs": "runs/*/name_7 */ int broken; /*", "long": "word " * 60}
    write_c_header(tmp_path / "fly.h", "fly", layers, scale, torch.zeros(1, 3), note)
    verify_c_header(tmp_path / "fly.h", "fly", layers, scale)
    assert "name_7" in (tmp_path / "fly.h").read_text()


def test_forward_is_tanh_after_every_layer() -> None:
    """Worked by hand: tanh(3 tanh(2 * 0.5 * 1 + 0) - 1)."""
    layers = [(torch.tensor([[2.0]]), torch.tensor([0.0])), (torch.tensor([[3.0]]), torch.tensor([-1.0]))]
    expected = torch.tanh(3.0 * torch.tanh(torch.tensor([[1.0]])) - 1.0)
    torch.testing.assert_close(forward(layers, torch.tensor([0.5]), torch.tensor([[1.0]])), expected)


def test_unsupported_policies_are_refused(tmp_path: Path) -> None:
    """Refused before writing, with what was found and expected."""
    path, (layers, scale) = tmp_path / "fly.h", network(5, 8, 4)
    examples, memory = torch.zeros(2, 5), FlightMemory(8, True, 0.3, 0.01, 0.1)

    def write(**changes: object) -> None:
        given = {
            "name": "fly",
            "layers": layers,
            "input_scale": scale,
            "examples": examples,
            "note": NOTE,
        } | changes
        write_c_header(path, **given)  # type: ignore[arg-type]

    for name in ("", "2fast", "Fly", "fly-cf", "_fly", "fly__x", "fly_"):
        with pytest.raises(ConfigError, match="cannot begin"):
            write(name=name)
    with pytest.raises(ConfigError, match="no layer"):
        write(layers=[])
    with pytest.raises(ConfigError, match=r"Layer 2 has a weight of shape \(4, 7\).*\(out, 8\)"):
        write(layers=[layers[0], (torch.zeros(4, 7), torch.zeros(4))])
    with pytest.raises(ConfigError, match=r"Layer 1 .* bias of shape \(3,\)"):
        write(layers=[(layers[0][0], torch.zeros(3)), layers[1]])
    with pytest.raises(ConfigError, match=r"input_scale has shape \(1, 5\)"):
        write(input_scale=scale[None])
    with pytest.raises(ConfigError, match=r"examples have shape \(2, 4\)"):
        write(examples=torch.zeros(2, 4))
    with pytest.raises(ConfigError, match="k at least 1"):
        write(examples=examples[:0])
    with pytest.raises(ConfigError, match="53 observations and 4 actions"):
        write(memory=memory)
    with pytest.raises(ConfigError, match="other numbers finite"):
        write(memory=FlightMemory(8, True, float("nan"), 0.01, 0.1))
    broken = layers[1][0].clone()
    broken[1, 2] = torch.nan
    with pytest.raises(CheckpointError, match="weight of layer 2: 1 of 32 numbers"):
        write(layers=[layers[0], (broken, layers[1][1])])
    with pytest.raises(CheckpointError, match="not finite in float32"):
        write(layers=[(layers[0][0].double() * 1e300, layers[0][1]), layers[1]])
    assert not path.exists()


def test_missing_compiler_error_has_the_install_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(tmp_path / "fly.h", 3, 2)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MissingDependencyError, match="apt-get install gcc"):
        verify_c_header(tmp_path / "fly.h", "fly", *network(3, 2))


@needs_c
def test_a_header_that_does_not_compile_is_refused(tmp_path: Path) -> None:
    """Warnings are failures: firmware is built with -Werror."""
    written(tmp_path / "fly.h", 3, 2)
    path = tmp_path / "fly.h"
    path.write_text(path.read_text().replace("return 0;", "int unused; return 0;"))
    with pytest.raises(CheckpointError, match=r"does not compile .*unused"):
        verify_c_header(path, "fly", *network(3, 2))


@needs_c
def test_a_difference_is_refused_with_its_size(tmp_path: Path) -> None:
    """A tolerance of 0 refuses rounding."""
    written(tmp_path / "fly.h", 53, 64, 4)
    with pytest.raises(CheckpointError, match=r"differs from torch by .*float64"):
        verify_c_header(tmp_path / "fly.h", "fly", *network(53, 64, 4), tolerance=-1.0)
