"""Flights in PyBullet, with the tasks, sensors and scoring of the `quad` engine."""

from __future__ import annotations

from sim.engines.bullet.effects import AirEffects
from sim.engines.bullet.step import BulletStep
from sim.engines.quad.craft import Craft
from sim.engines.quad.dynamics import QuadPhysics
from sim.engines.quad.layout import Spread
from sim.flight.command import ON_MOTORS, CommandLevel
from sim.flight.flight import inner_physics
from sim.flight.flights import Flights
from sim.flight.realism import Realism
from sim.tasks.flight.observation import FlightSenses
from sim.tasks.flight.protocol import FlightTask


def bullet_step(
    craft: Craft, task: FlightTask, num: int, scene: AirEffects | None = None, realism: Realism | None = None,
    level: CommandLevel = ON_MOTORS, *, pure: bool = False,
) -> tuple[QuadPhysics, BulletStep]:  # fmt: skip
    """Returns (physics for `Flights`, step) of a task.

    The floor is that of the task's room. Without a room it is as `scene` says, and without a scene 1 m below
    the origin, or lower at the end of the task's picture.
    """
    if scene is None:
        (_, _, middle_m), reach_m = task.scene
        scene = AirEffects(height_m=max(1.0, reach_m - middle_m))
    windy = realism is not None and realism.gust_m_s > 0.0
    physics = QuadPhysics(dt_s=task.dt_s, integrator="euler", substeps=scene.substeps(task.dt_s), wind=windy)
    inner = inner_physics(level, physics)[1]
    return physics, BulletStep(craft, inner, num, scene, pure=pure, floor_m=floor_of(task, scene))


def floor_of(task: FlightTask, scene: AirEffects) -> float:
    """Height of the floor [m, world]: of the task's room, or the scene's."""
    return -scene.height_m if task.floor_m is None else task.floor_m


def bullet_flights(
    craft: Craft, task: FlightTask, senses: FlightSenses, num: int, seed: int, scene: AirEffects, *,
    spread: Spread | None = None, realism: Realism | None = None, level: CommandLevel = ON_MOTORS,
) -> Flights:  # fmt: skip
    """Flights in PyBullet with the same starts and noise as those of the `quad` engine with the same seed."""
    physics, step = bullet_step(craft, task, num, scene, realism, level)
    return Flights(
        craft,
        task,
        senses,
        num,
        seed,
        physics=physics,
        spread=spread,
        realism=realism,
        gradient=False,
        eager=True,
        step=step,
        level=level,
    )
