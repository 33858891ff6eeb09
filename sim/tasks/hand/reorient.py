"""Reorient: four fingers turn a cube on the palm to a goal orientation.

Randomisation: position and heading of the cube; the goal. Observation `state` (57,): joint positions (16) and
speeds (16); the cube's middle relative to a cube at rest on the palm (3); directions of its x and y axes in
the world (6) and relative to the goal (6); its velocity [world] (3) and rates [cube] (3); contact of each
fingertip (4); m, rad, m/s and rad/s. Success: within 0.1 rad of the goal about any axis, for 5 steps in a
row. A cube that falls off the palm ends the episode as a failure. Dense reward: weighted terms of angle to
the goal and distance of the cube from the palm's middle.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from robo_rl.core.errors import ConfigError, UnknownNameError
from robo_rl.core.shapes import Bool, Float
from sim.arms.chain import damped_step
from sim.bodies.rotation import about_z, conjugate, multiply, rotate, to_rotvec, yaw_of
from sim.engines.protocol import Start
from sim.hands.gait import Gait, GaitState, tip_goals
from sim.hands.view import HandView, HandWiring
from sim.tasks.scripted import between

GOALS = ("upright", "any")
REST_M, FALLEN_M = 0.1575, 0.13  # height of the cube's middle on the palm; of the palm
_CLOSE_RAD = 0.1  # angle to the goal that counts as success
_FURTHEST_M = 0.025  # largest motion of a fingertip per step


@dataclass(frozen=True)
class ReorientTask:
    """The cube starts within 5 mm of the palm's middle, at a random heading.

    goal: `upright` is the start turned about the vertical by a random angle; `any` is a random orientation,
    for which there is no scripted expert. Raises UnknownNameError for other values.
    """

    goal: str = "upright"
    name: str = "reorient"
    scene: str = "reorient.xml"
    numbers: int = 6
    max_steps: int = 120
    hold_steps: int = 5
    gait: Gait = field(default_factory=Gait)
    obs_parts: tuple[tuple[str, int, str], ...] = (
        ("joints", 16, "rad"),
        ("joint speeds", 16, "rad/s"),
        ("cube", 3, "m"),
        ("cube axes", 6, "1"),
        ("cube axes from goal", 6, "1"),
        ("cube velocity", 3, "m/s"),
        ("cube rates", 3, "rad/s"),
        ("touching", 4, "1"),
    )
    weights: Mapping[str, float] = field(default_factory=lambda: {"turned": 0.8, "centred": 0.2})

    def __post_init__(self) -> None:
        if self.goal not in GOALS:
            raise UnknownNameError("goal", self.goal, GOALS)

    def edit(self, spec: Any) -> None:
        """Nothing to change in the MJCF."""

    def start(
        self, uniform: Float[Tensor, "k 6"], start: Start, wiring: HandWiring
    ) -> tuple[Start, Float[Tensor, "k 4"]]:
        uniform = uniform.to(start.qpos)
        quat = about_z(between(uniform[:, 0], -math.pi, math.pi))
        cube = wiring.loose["cube"][0]
        start.qpos[:, cube.start : cube.start + 2] = between(uniform[:, 1:3], -0.005, 0.005)
        start.qpos[:, cube.start + 3 : cube.stop] = quat
        if self.goal == "any":
            goal = uniform_quat(uniform[:, 3:])
        else:
            goal = multiply(about_z(between(uniform[:, 3], -math.pi, math.pi)), quat)
        start.fixture_quat[:, wiring.scene.fixture("goal")] = goal
        return start, goal

    def observe(self, view: HandView) -> Float[Tensor, "n 57"]:
        cube = view.object_pose("cube")
        rest_m = cube.m.new_tensor([0.0, 0.0, REST_M])
        return torch.cat([
            view.q_rad, view.dq_rad_s, cube.m - rest_m, _axes(cube.quat),
            _axes(multiply(conjugate(view.goal), cube.quat)), view.speed_m_s("cube"), view.spin_rad_s("cube"),
            view.touching.to(cube.m),
        ], -1)  # fmt: skip

    def solved(self, view: HandView) -> Bool[Tensor, " n"]:
        solved: Tensor = self.off_rad(view) < _CLOSE_RAD
        return solved

    def failed(self, view: HandView) -> Bool[Tensor, " n"]:
        """Mask of worlds where the cube fell off the palm."""
        fallen: Tensor = view.object_pose("cube").m[:, 2] < FALLEN_M
        return fallen

    def off_rad(self, view: HandView) -> Float[Tensor, " n"]:
        """Angle [rad] between the cube's orientation and the goal."""
        off: Tensor = to_rotvec(multiply(view.goal, conjugate(view.object_pose("cube").quat))).norm(dim=-1)
        return off

    def terms(self, view: HandView) -> dict[str, Float[Tensor, " n"]]:
        aside_m = view.object_pose("cube").m[:, :2].norm(dim=-1)
        return {"turned": 1.0 - self.off_rad(view) / math.pi, "centred": 1.0 - torch.tanh(20.0 * aside_m)}

    def expert(self, view: HandView) -> Float[Tensor, "n 16"]:
        """Joint targets of the finger gait, by damped inverse kinematics that stays near the rest pose.

        Raises ConfigError for goal=any.
        """
        if self.goal != "upright":
            raise ConfigError(
                "The script of hand/reorient turns the cube about the vertical only, found goal=any; "
                "leave out goal, or give a policy."
            )
        cube = view.object_pose("cube")
        tips_m = view.tips_m
        to_go_rad = yaw_of(multiply(view.goal, conjugate(cube.quat)))
        seen = GaitState(tips_m, view.touching, cube.m, yaw_of(cube.quat), to_go_rad)
        way_m = (tip_goals(seen, self.gait) - tips_m).clamp(-_FURTHEST_M, _FURTHEST_M)
        n, f, _ = tips_m.shape
        away_rad = (view.rest_rad - view.q_rad).view(n * f, -1)
        step = damped_step(view.jacobian().flatten(0, 1), way_m.flatten(0, 1), away_rad, 3e-3, 0.2)
        return step.view(n, -1)


def uniform_quat(uniform: Float[Tensor, "k 3"]) -> Float[Tensor, "k 4"]:
    """Uniform random orientations, wxyz: Shoemake, "Uniform random rotations", Graphics Gems III, 1992."""
    low, high = (1.0 - uniform[:, 0]).sqrt(), uniform[:, 0].sqrt()
    a, b = 2.0 * math.pi * uniform[:, 1], 2.0 * math.pi * uniform[:, 2]
    return torch.stack([high * b.cos(), low * a.sin(), low * a.cos(), high * b.sin()], -1)


def _axes(quat: Float[Tensor, "n 4"]) -> Float[Tensor, "n 6"]:
    """First two columns of the rotation matrix of a quaternion (wxyz)."""
    x, y = torch.eye(3).to(quat)[:2]
    return torch.cat([rotate(quat, x), rotate(quat, y)], -1)
