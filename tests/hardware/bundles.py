"""Bundles for tests of the robot side, written in a second."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from policies.base.flow import Flow, FlowConfig
from policies.base.generative import GenerativeConfig, GenerativePolicy
from policies.deploy.bundle import Bundle, load_bundle
from policies.deploy.bundle_writer import write_bundle
from robo_rl.core.flight.envelope import FlightEnvelope
from robo_rl.core.spec import ActionSpec, ArraySpec, EnvSpec, sense_of
from robo_rl.data.normalizer import Normalizer
from robo_rl.nets.denoiser import MlpDenoiserConfig
from tests.hardware.arm_descriptions import NAMES
from tests.shared_folder import made_once

ENVELOPE = FlightEnvelope(0.8, 12.0, 2.0, (-0.8, -0.8, -0.8), (0.8, 0.8, 0.8))


def arm_env(
    names: tuple[str, ...] = NAMES, limit_rad: float = 0.2, control_hz: float = 50.0, **obs: ArraySpec
) -> EnvSpec:
    named = ", ".join(names)
    state = ArraySpec((2 * len(names) + 1,), unit=f"rad: {named}; rad/s: {named}; m: goal")
    action = ActionSpec((-limit_rad,) * len(names), (limit_rad,) * len(names), f"rad: {named}")
    return EnvSpec("test/arm", {"state": state, **obs}, action, 100, control_hz)


def _written_once(folder: Path, asked: str, write: Callable[[Path], Bundle]) -> Bundle:
    """A bundle in `folder`. Exports take seconds, so an identical earlier one is copied.

    asked: all that the bundle depends on.
    """
    shutil.copytree(made_once(hashlib.sha256(asked.encode()).hexdigest(), write), folder)
    return load_bundle(folder)


def arm_bundle(folder: Path, chunk: int = 16, execute: int = 8, env: EnvSpec | None = None) -> Bundle:
    """An untrained flow policy, whose commands are small."""
    env = env or arm_env()
    return _written_once(
        folder, f"arm {chunk} {execute} {env}", lambda f: _arm_bundle(f, chunk, execute, env)
    )


def _arm_bundle(folder: Path, chunk: int, execute: int, env: EnvSpec) -> Bundle:
    torch.manual_seed(0)
    rows = {
        key: torch.rand(64, *spec.shape) for key, spec in env.obs.items() if sense_of(key, spec) == "state"
    }
    config = GenerativeConfig(chunk=chunk, execute=execute, net=MlpDenoiserConfig(width=16, depth=1))
    policy = GenerativePolicy(env, Normalizer.fit(rows), config, Flow(FlowConfig(steps=2))).eval()
    return write_bundle(folder, policy, env, name="small-arm", noise="zero", training={})


def quad_bundle(
    folder: Path, envelope: FlightEnvelope | None = ENVELOPE, training: dict[str, Any] | None = None
) -> Bundle:
    """A flight policy that is an LQR law and hovers without training."""
    asked = f"quad {envelope} {training}"
    return _written_once(folder, asked, lambda f: _quad_bundle(f, envelope, training or {}))


def _quad_bundle(folder: Path, envelope: FlightEnvelope | None, training: dict[str, Any]) -> Bundle:
    from policies.flight.policy import FlightPolicy
    from sim.flight.control.linear_law import linear_law
    from sim.flight.vec_env import QuadVecEnv

    env = QuadVecEnv("hover", 1)
    policy: Any = FlightPolicy(env.spec, hidden=(8,), hover=2.0 * env.craft.hover_speed - 1.0, law=True)
    law = linear_law(env.craft, env.task.dt_s, env.senses)
    policy.set_law(torch.from_numpy(law.weight), torch.from_numpy(law.bias))
    return write_bundle(
        folder, policy, env.spec, name="lqr-hover", noise="zero", training=training, envelope=envelope
    )


def rates_bundle(folder: Path, envelope: FlightEnvelope | None = ENVELOPE, rate_rad_s: float = 4.0) -> Bundle:
    """A flight policy of thrust and body rates: a PD law with an integral, written by hand.

    a = -2.5 p - 2.5 v - I,   thrust = 1 + a_z / g [weights],   w = 6 z^ x (a / g - R z^),   w_z = -2 R_10
    """
    asked = f"rates {envelope} {rate_rad_s}"
    return _written_once(folder, asked, lambda f: _rates_bundle(f, envelope, rate_rad_s))


def _rates_bundle(folder: Path, envelope: FlightEnvelope | None, rate_rad_s: float) -> Bundle:
    from policies.flight.policy import FlightPolicy
    from sim.flight.setting import FlightOptions
    from sim.flight.vec_env import QuadVecEnv

    env = QuadVecEnv("hover", 1, FlightOptions(level="rates", rate_rad_s=rate_rad_s))
    accel = torch.zeros(3, env.spec.obs["state"].shape[0])
    for axis in range(3):
        accel[axis, [axis, 12 + axis, 50 + axis]] = torch.tensor([-2.5, -2.5, -1.0]) / 9.81
    lean = accel.clone()
    lean[0, 5] = lean[1, 8] = -1.0  # R z^ is the third column of the rows from 3 on
    turn = torch.zeros_like(accel[0])
    turn[6] = -2.0
    weight, bias = (
        torch.stack([accel[2], -6.0 * lean[1], 6.0 * lean[0], turn]),
        torch.tensor([1.0, 0.0, 0.0, 0.0]),
    )
    spec, zero = env.spec.action, torch.zeros(4)
    slope = (spec.normalize(torch.ones(4)) - spec.normalize(zero)).unsqueeze(1)  # the same law in [-1, 1]
    policy: Any = FlightPolicy(env.spec, hidden=(8,), hover=env.command.hover, law=True)
    policy.set_law(weight * slope, spec.normalize(bias))
    return write_bundle(
        folder, policy, env.spec, name="pd-rates", noise="zero", training={}, envelope=envelope
    )


def residual_bundle(folder: Path, base: Bundle) -> Bundle:
    """The chunks of `base`, each action corrected by an untrained actor."""
    from policies.checkpoint import load_policy
    from policies.tuned.residual import ResidualPolicy
    from robo_rl.core.action_map import ResidualMap
    from robo_rl.nets.actor import ActorConfig, make_actor

    torch.manual_seed(3)
    policy: Any = load_policy(base.folder)
    dim = base.env.action.dim
    features = int(base.env.obs["state"].shape[0])
    actor = make_actor(ActorConfig("deterministic", features + dim, dim, (8,)))
    torch.nn.init.normal_(actor.net[-1].weight)
    tuned = ResidualPolicy(policy, actor, ResidualMap(dim, 0.2)).eval()
    return write_bundle(folder, tuned, base.env, name="residual", noise="zero", training={})
