"""A task in tensors whose target is in a picture only, for tests of encoders that learn."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from benchmarks.device_world import DeviceWorld, first_seeds
from policies.base.generative import GenerativePolicy
from policies.registry import SavedPolicy
from policies.tuned.direct import DirectPolicy
from robo_rl.apps.tuning.compose import TuningSession, build_session
from robo_rl.apps.tuning.encoders.pictures import fresh_encoder
from robo_rl.conf.finetune import MapConfig, MethodConfig
from robo_rl.core.protocols import Obs, StepResult
from robo_rl.core.seeding import EpisodeSeeds
from robo_rl.core.spec import ArraySpec
from robo_rl.nets.image_encoder import ImageEncoderConfig
from robo_rl.rl.mix import MixConfig
from robo_rl.rl.off_policy.config import LearnerConfig
from tests.policies.small import flow_policy

LANES = 3
IMAGE = ImageEncoderConfig(widths=[4], features=3, keypoints=2)
HEIGHT, WIDTH = 6, 20


class PictureWorld(DeviceWorld):
    """state: the position; image.view: target red, position white, in columns of 0.25 m."""

    def __init__(self, num_envs: int = LANES) -> None:
        super().__init__(num_envs)
        seen = {"state": ArraySpec((1,), unit="m"), "image.view": ArraySpec((HEIGHT, WIDTH, 3), "uint8")}
        self.spec = replace(self.spec, name="toy/picture", obs=seen)

    def reset(self, seeds: Iterator[int]) -> Obs:
        return observed(super().reset(seeds)["state"])

    def step_wait(self) -> StepResult:
        obs, reward, terminated, truncated, info = super().step_wait()
        info["final_obs"] = observed(info["final_obs"]["state"])
        return observed(obs["state"]), reward, terminated, truncated, info

    def restore(self, snapshot: Mapping[str, Any], seeds: Any = None) -> Obs:
        return observed(super().restore(snapshot)["state"])


def observed(state: Tensor) -> Obs:
    """What a policy sees of (target, position)."""
    columns = torch.arange(WIDTH, device=state.device) / 4.0
    target, position = ((state[:, i : i + 1] - columns).abs() < 0.13 for i in (0, 1))
    picture = torch.stack([target | position, position, position], dim=-1).byte() * 255
    return {
        "state": state[:, 1:].clone(),
        "image.view": picture.unsqueeze(1).expand(-1, HEIGHT, -1, -1).contiguous(),
    }


SPEC = PictureWorld().spec


def method(kind: str, demos: bool = False, env_steps: int = 96, **learner: Any) -> MethodConfig:
    """A tiny run with a learned encoder: 48 steps of the base, 5 updates of burn-in, then online."""
    where = {name: learner.pop(name) for name in list(learner) if name in MapConfig.__dataclass_fields__}
    return MethodConfig(
        env_steps=env_steps, base_steps=48, burn_in=5, replay_capacity=300, name=kind, encoder="learned",
        shift_px=2, map=MapConfig(kind=kind, **where), mix=MixConfig(0.5, 0.0, 0.5) if demos else MixConfig(),
        learner=LearnerConfig(**{"hidden": [16], "batch": 16} | learner), image=IMAGE, guard_window=0,
    )  # fmt: skip


METHODS: dict[str, MethodConfig] = {
    "residual": method("residual", actor="deterministic", gate=True, n_step=3),
    "residual of chunks": method("residual", per_chunk=True, return_floor=True),
    "steering": method("steering", n_step=2),
    "sac": method("direct", auto_alpha=True, entropy_in_target=True),
    "td3": method("direct", actor="deterministic", actor_delay=2, n_step=3),
}


def base() -> GenerativePolicy:
    return flow_policy(SPEC, image=IMAGE)


def base_of(config: MethodConfig) -> SavedPolicy:
    if config.map.kind != "direct":
        return base()
    return DirectPolicy(SPEC, encoder=fresh_encoder(SPEC, None, config.image, 0)).eval()


def session(
    config: MethodConfig, masked: bool | None = None, **settings: Any
) -> tuple[TuningSession, PictureWorld]:
    """A run of this method, before its first reset."""
    env = PictureWorld()
    made = build_session(
        config, settings.pop("base", None) or base_of(config), env, seed=0, demos=settings.pop("demos", None),
        say=lambda _: None, masked=masked, **settings,
    )  # fmt: skip
    return made, env


def begin(made: TuningSession, env: PictureWorld) -> None:
    seeds = EpisodeSeeds(made.seed_root)
    made.tuner.collector.reset(env.reset(seeds), first_seeds(made.seed_root, LANES))  # type: ignore[union-attr]
