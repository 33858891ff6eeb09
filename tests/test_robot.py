"""A robot's installation: no trainer, store or simulator. Also runs on Python 3.10 (`make test-robot`)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import torch

from policies.base.generative import GenerativeConfig, GenerativePolicy
from policies.base.noise import EpisodeNoise
from policies.checkpoint import load_policy, save_policy
from policies.executor import ChunkExecutor
from robo_rl.core.packages import PACKAGES
from robo_rl.core.spec import ActionSpec, ArraySpec, EnvSpec
from robo_rl.data.normalizer import Normalizer
from robo_rl.nets.denoiser import MlpDenoiserConfig

ROOT = Path(__file__).resolve().parents[1]
EXTRAS = [package.module for package in PACKAGES if package.extra is not None]
REFUSE = """
import importlib, pkgutil, sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {refused!r} or name.startswith({ours!r}):
            raise ModuleNotFoundError("a robot has no " + name, name=name)
sys.meta_path.insert(0, Refuse())
"""


def on_a_robot(code: str, refused: list[str], ours: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    """Run `code` in a process in which these packages, and modules of ours, cannot be imported."""
    return subprocess.run(
        [sys.executable, "-c", REFUSE.format(refused=refused, ours=ours) + code],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_robot_part_imports_neither_trainer_nor_simulator() -> None:
    """Every module that a robot loads, while everything outside the core is refused.

    The bus over DDS is [dds]: what imports cyclonedds at once is imported when that bus is made, and says so.
    """
    code = """
import robo_rl.core, robo_rl.nets, policies, hardware
OVER_DDS = ("hardware.bus.dds", "hardware.quads.px4.topics", "hardware.quads.crazyswarm2.topics")
for package in (robo_rl.core, robo_rl.nets, policies, hardware):
    for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        if not module.name.startswith(OVER_DDS):
            importlib.import_module(module.name)
importlib.import_module("robo_rl.data.normalizer")
"""
    ours = ("robo_rl.rl", "robo_rl.eval", "robo_rl.apps", "robo_rl.conf", "sim")
    done = on_a_robot(code, [*EXTRAS, "hydra", "omegaconf", "yaml", "tqdm"], ours)
    assert done.returncode == 0, done.stderr


def test_command_line_works_without_extras() -> None:
    """`doctor` and `info` run on a robot; `train` says what to install instead of breaking."""
    refused = [module for module in EXTRAS if module not in ("jinja2",)]
    code = "from robo_rl.apps.cli.main import main; sys.exit(main({arguments!r}))"
    for verb in ("info", "doctor"):
        done = on_a_robot(code.format(arguments=[verb]), [])
        assert done.returncode == 0, done.stderr
    done = on_a_robot(code.format(arguments=["train", "data=d", "out=o"]), refused)
    assert done.returncode == 2
    assert "pip install 'robo-rl[train]'" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_policy_folder_acts_as_it_did_where_it_was_made(tmp_path: Path) -> None:
    """Save, load, and run 20 control steps: the same actions, inside the limits."""
    spec = EnvSpec("arm6/reach", {"state": ArraySpec((3,))}, ActionSpec((-2.0, 0.0), (2.0, 1.0)), 50, 20.0)
    normalizer = Normalizer.fit({"state": torch.rand(20, 3)})
    config = GenerativeConfig(chunk=4, execute=2, net=MlpDenoiserConfig(width=16, depth=1))
    policy = GenerativePolicy.build(spec, normalizer, config).eval()
    save_policy(tmp_path / "policy", policy)
    first, second = (run(p, spec) for p in (policy, load_policy(tmp_path / "policy")))
    assert torch.equal(first, second)
    assert (first >= torch.tensor([-2.0, 0.0])).all()
    assert (first <= torch.tensor([2.0, 1.0])).all()


def run(policy: GenerativePolicy, spec: EnvSpec) -> torch.Tensor:
    """Actions (20, a) on a drifting observation."""
    executor, noise = ChunkExecutor(policy, 1), EpisodeNoise((policy.chunk, spec.action.dim))
    executor.reset({"state": torch.zeros(1, 3)})
    noise.reset([0], [7])
    actions = []
    for step in range(20):
        actions.append(spec.action.denormalize(executor.act(noise)))
        executor.observe({"state": torch.full((1, 3), 0.05 * step)})
    return torch.cat(actions)
