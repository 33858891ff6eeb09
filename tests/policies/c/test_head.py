"""The head of an arm as C against the policy that it was written from."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch

from policies.c import export as c_export
from policies.c.export import verify_c_header, write_c_header
from policies.c.head import head_parts, write_c_head
from policies.tuned.direct import DirectPolicy
from robo_rl.core.errors import CheckpointError, ConfigError
from robo_rl.core.spec import ActionSpec, ArraySpec, EnvSpec
from robo_rl.data.normalizer import Normalizer
from robo_rl.nets.actor import ActorConfig, make_actor

needs_c = pytest.mark.skipif(not any(map(shutil.which, c_export.COMPILERS)), reason="no C compiler")
ENV = EnvSpec(
    "arm6/reach",
    {"joints": ArraySpec((7,), unit="rad"), "target": ArraySpec((3,), unit="m")},
    ActionSpec((-0.5, -2.0, 0.0), (0.5, 1.0, 0.08), "rad, rad, m"),
    100,
    50.0,
)


def head(kind: str = "gaussian", clip: float = 5.0, **options: object) -> DirectPolicy:
    torch.manual_seed(1)
    data = {"joints": 2.0 * torch.rand(50, 7) - 1.5, "target": torch.rand(50, 3) + 0.3}
    config = ActorConfig(kind, 10, 3, (64, 64), layer_norm=False, activation="tanh")
    actor = make_actor(ActorConfig.from_json({**config.to_json(), **options}))
    torch.nn.init.normal_(actor.net[-1].get_parameter("weight"), std=0.2)
    return DirectPolicy(ENV, Normalizer.fit(data, clip=clip), actor)


@needs_c
@pytest.mark.parametrize(
    ("kind", "clip"), [("gaussian", 5.0), ("deterministic", 1.0), ("deterministic", float("inf"))]
)
def test_c_speaks_units_like_the_policy(tmp_path: Path, kind: str, clip: float) -> None:
    """1,000 observations about the data, many outside of the clip: the command is the policy's,
    denormalised.
    """
    policy = head(kind, clip)
    export, layers, scale = write_c_head(tmp_path / "arm.h", "arm", policy, {"robot": "test"})
    physical = head_parts(policy)[2]
    assert verify_c_header(tmp_path / "arm.h", "arm", layers, scale, physical=physical) < 1e-5
    assert export.layers == (10, 64, 64, 3)
    obs = {"joints": 3.0 * torch.randn(20, 7), "target": torch.randn(20, 3)}
    flat = torch.cat([obs["joints"], obs["target"]], dim=1)
    with torch.no_grad():
        wanted = ENV.action.denormalize(policy.sample(obs, torch.zeros(20, 1, 3))[:, 0])
        ours = physical.out_of(c_export.forward(layers, scale, physical.into(flat)))
        found = c_export.run_header(tmp_path / "arm.h", "arm", flat, True)[2].view(20, 3)
    torch.testing.assert_close(ours, wanted, atol=1e-6, rtol=0.0)
    torch.testing.assert_close(found, wanted, atol=1e-5, rtol=0.0)


@needs_c
def test_another_range_is_found_out(tmp_path: Path) -> None:
    """The checksum covers the limits: a head written for another arm is not this one's."""
    policy = head()
    layers, scale, physical = head_parts(policy)
    _ = write_c_head(tmp_path / "arm.h", "arm", policy, {})
    other = c_export.Physical(physical.center, physical.reach, physical.low, physical.high + 0.1)
    with pytest.raises(CheckpointError, match="other weights"):
        verify_c_header(tmp_path / "arm.h", "arm", layers, scale, physical=other)


@pytest.mark.wrong_types
def test_what_c_cannot_say_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="activation=relu"):
        head_parts(head(activation="relu"))
    with pytest.raises(ConfigError, match="no actor"):
        head_parts(DirectPolicy(ENV))
    layers, scale, physical = head_parts(head())
    wrong = c_export.Physical(physical.center, physical.reach, physical.high, physical.low)
    with pytest.raises(ConfigError, match="low must be below high"):
        write_c_header(tmp_path / "arm.h", "arm", layers, scale, torch.zeros(1, 10), {}, physical=wrong)
    short = c_export.Physical(physical.center[:4], physical.reach, physical.low, physical.high)
    with pytest.raises(ConfigError, match=r"'center': \(4,\)"):
        write_c_header(tmp_path / "arm.h", "arm", layers, scale, torch.zeros(1, 10), {}, physical=short)
