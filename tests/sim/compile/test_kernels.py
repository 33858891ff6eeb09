"""Compiled kernels equal their functions, are built once, and report failures."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch._inductor import config as inductor

from robo_rl.core.errors import ConfigError
from robo_rl.core.files import machine_code
from sim.compile import kernels
from sim.compile.kernels import Kernel, compile_kernel, differentiable


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ROBO_RL_CACHE", str(tmp_path))
    return tmp_path


def wave(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
    """Arithmetic of columns, and a sum over them that only inductor compiles."""
    a, b = x.unbind(0)
    return torch.stack([a * y.sin(), b + y + 0.0 * y.sum()]), a * b


EXAMPLES = (torch.linspace(-1.0, 1.0, 16).view(2, 8), torch.linspace(0.0, 3.0, 8))


def columns(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
    """`wave` without the sum over columns."""
    a, b = x.unbind(0)
    return torch.stack([a * y.sin(), b + y]), a * b


FNS = {"columns": columns, "graph": wave}
KINDS = ["columns", pytest.param("graph", marks=pytest.mark.slow)]  # inductor takes half a minute


@pytest.fixture(scope="module", params=KINDS)
def built(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[tuple[Kernel, Path, list[str]]]:
    """A compiled function, its cache folder and the messages of the build, compiled once for all tests.

    Without torch's precompiled headers, which pay off from the third kernel on.
    """
    fn = FNS[request.param]
    folder, said = tmp_path_factory.mktemp("cache"), list[str]()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ROBO_RL_CACHE", str(folder))
        patch.setattr(inductor.aot_inductor, "precompile_headers", False)
        kernel = compile_kernel(fn, EXAMPLES, say=said.append)
        patch.setitem(FNS, "built", fn)
        yield kernel, folder, said


def test_a_kernel_is_built_once_and_equals_its_function(built: tuple[Kernel, Path, list[str]]) -> None:
    """A second request finds the file; another formula has another key."""
    first, folder, said = built
    fn = FNS["built"]
    again = compile_kernel(fn, EXAMPLES, say=said.append)
    assert first.compile_s > 0.0
    assert again.compile_s == 0.0
    assert len(said) == (fn is wave)
    for ours, theirs in zip(again(*EXAMPLES), fn(*EXAMPLES), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-6)
    assert len(list((folder / "kernels").iterdir())) == 1


def test_another_formula_is_another_file(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file's name holds the formula, and for inductor the shapes of its inputs."""
    paths: list[Path] = []

    def stop(graph: object, examples: Sequence[Tensor], path: Path) -> None:
        paths.append(path)
        raise ConfigError("not built in this test")

    monkeypatch.setattr(kernels, "build_kernel", stop)
    monkeypatch.setattr(kernels, "build_columns", lambda source, path: stop(source, (), path))
    shorter = tuple(x[..., :4].contiguous() for x in EXAMPLES)
    for fn, examples in (
        (wave, EXAMPLES), (wave, shorter), (lambda x, y: (x[0] * y.sum(),), EXAMPLES),
        (columns, EXAMPLES), (columns, shorter), (lambda x, y: (x[0] * y,), EXAMPLES),
    ):  # fmt: skip
        with pytest.raises(ConfigError, match="not built"):
            compile_kernel(fn, examples)
    assert len(set(paths)) == 5


@pytest.mark.parametrize(
    ("inputs", "fault"),
    [
        ((EXAMPLES[0].double(), EXAMPLES[1]), "Input 0 of the compiled kernel is float64 (2, 8) on cpu"),
        ((EXAMPLES[0], EXAMPLES[1][:7]), "Input 1 of the compiled kernel is float32 (7,) on cpu"),
        ((torch.zeros(8, 2).T, EXAMPLES[1]), "float32 (2, 8) on cpu, not contiguous"),
        (EXAMPLES[:1], "takes 2 inputs, found 1"),
    ],
)
def test_a_kernel_refuses_inputs_that_it_was_not_compiled_for(
    built: tuple[Kernel, Path, list[str]], inputs: tuple[Tensor, ...], fault: str
) -> None:
    """Machine code reads memory as the type it was compiled for: a wrong type would give wrong numbers."""
    with pytest.raises(ConfigError, match=re.escape(fault)):
        built[0](*inputs)


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_of_a_kernel_are_those_of_autograd(cache: Path, kind: str) -> None:
    """Compiled backward against autograd through the eager function; inputs not wanted get none."""
    fn = FNS[kind]
    run, _ = differentiable(fn, EXAMPLES, (0,))
    x, y = EXAMPLES[0].clone().requires_grad_(), EXAMPLES[1]
    first, second = run(x, y)
    (first.square().sum() + second.sum()).backward()
    ours = x.grad
    x.grad = None
    first, second = fn(x, y)
    (first.square().sum() + second.sum()).backward()
    torch.testing.assert_close(ours, x.grad, rtol=1e-5, atol=1e-6)


def test_without_a_compiler_it_runs_eagerly_with_a_message(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without g++ flights run slowly, and the message names the package to install."""
    monkeypatch.setattr(machine_code.shutil, "which", lambda name: None)
    with pytest.warns(UserWarning, match=r"apt install g\+\+"):
        kernel = compile_kernel(columns, EXAMPLES)
    assert not kernel.compiled
    torch.testing.assert_close(kernel(*EXAMPLES)[1], columns(*EXAMPLES)[1])


# What ends a build

ASKS = """
import sys
from tests.sim.compile.test_kernels import EXAMPLES, FNS
from robo_rl.runs.signals import stop_between_steps
from robo_rl.core.errors import RoboRLError
from sim.compile.kernels import compile_kernel

with stop_between_steps():
    try:
        compile_kernel(FNS[sys.argv[1]], EXAMPLES)
    except (KeyboardInterrupt, RoboRLError) as end:
        print(f"ended: {end}")
"""


@pytest.fixture(scope="module")
def gpp(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A g++ that, given something of torch's to compile, does what $DOES says first.

    One for all tests: torch asks a compiler that it does not know which vector units it can use, for 5 s.
    """
    made = tmp_path_factory.mktemp("compiler") / "g++"
    made.write_text(
        '#!/bin/sh\ncase "$*" in *TORCH_INDUCTOR*|*"-x c++ -"*) eval "$DOES";; esac\n'
        f'exec {shutil.which("g++")} "$@"\n'
    )
    made.chmod(0o755)
    return made


def building(folder: Path, gpp: Path, does: str, kind: str) -> subprocess.Popen[str]:
    """A process that compiles with that g++. kind: by inductor (graph), or as columns."""
    env = os.environ | {
        "ROBO_RL_CACHE": str(folder),
        "TORCHINDUCTOR_CACHE_DIR": str(gpp.parent / "inductor"),
        "CXX": str(gpp),
        "DOES": does,
    }
    return subprocess.Popen(
        [sys.executable, "-c", ASKS, kind], env=env, start_new_session=True, stdout=subprocess.PIPE, text=True
    )


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_a_stop_ends_the_wait_for_the_compiler(gpp: Path, tmp_path: Path, kind: str) -> None:
    """Ctrl-C in a terminal also reaches the compiler; if signals are handled later, the build still stops at
    once.
    """
    child = building(tmp_path, gpp, f"touch {tmp_path}/began; sleep 60", kind)
    while not (tmp_path / "began").exists():
        assert child.poll() is None
        time.sleep(0.05)
    os.killpg(child.pid, signal.SIGINT)
    said, _ = child.communicate(timeout=30)
    assert said == "ended: \n"
    assert not list(tmp_path.glob("kernels/*"))


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_failing_compiler_is_reported(gpp: Path, tmp_path: Path, kind: str) -> None:
    """The compiler's message is shown, and no partial file remains."""
    child = building(tmp_path, gpp, 'echo "error: no space for a.o" >&2; exit 1', kind)
    said, _ = child.communicate(timeout=120)
    assert re.search(r"^ended: The C\+\+ compiler could not build the simulator.*no space for a.o", said)
    assert not list(tmp_path.glob("kernels/*"))
