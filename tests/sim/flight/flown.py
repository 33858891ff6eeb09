"""Crafts flown by controllers and levels of action, from states at rest or disturbed."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from sim.engines.quad.craft import Craft, load_craft
from sim.engines.quad.dynamics import QuadPhysics, make_step
from sim.engines.quad.layout import EXTERNAL_SIZE, POS, QUAT, ROTOR, VEL, parameters, start
from sim.flight.control.controllers import Controller, hold
from sim.flight.control.levels import Level

CF = load_craft("cf2x_l2f")
CRAFTS = ("cf2x_l2f", "cf21", "racer5", "x500")
DT_S = 0.01


def hovering(craft: Craft, num: int) -> Tensor:
    state = start(num)
    state[ROTOR] = craft.hover_speed
    return state


def disturbed(craft: Craft, num: int, seed: int = 0) -> Tensor:
    """0.3 m away, tilted by 20 degrees, moving with 0.5 m/s, all in random directions."""
    draw = torch.Generator().manual_seed(seed)

    def direction(rows: int) -> Tensor:
        return torch.nn.functional.normalize(torch.randn(rows, num, generator=draw), dim=0)

    state = hovering(craft, num)
    state[POS], state[VEL] = 0.3 * direction(3), 0.5 * direction(3)
    half = math.radians(20.0) / 2.0
    state[3], state[4:6] = math.cos(half), math.sin(half) * direction(2)
    return state


def anywhere(num: int, seed: int = 1) -> Tensor:
    """Any attitude, fast, far away, rotors anywhere from stopped to full."""
    draw = torch.Generator().manual_seed(seed)
    state = (
        torch.randn(17, num, generator=draw)
        * torch.tensor([3.0] * 3 + [1.0] * 4 + [5.0] * 6 + [1.0] * 4)[:, None]
    )
    state[QUAT] = torch.nn.functional.normalize(state[QUAT], dim=0)
    state[ROTOR] = torch.rand(4, num, generator=draw)
    state[ROTOR, 0], state[ROTOR, 1] = 0.0, 1.0
    return state


@torch.inference_mode()
def fly(
    craft: Craft,
    controllers: Sequence[Controller],
    state: Tensor,
    steps: int,
    reference: Tensor | None = None,
    external: Tensor | None = None,
) -> Tensor:
    """(steps, controllers, 17, n): each controller flies its own copies, in one step of the (faster) Euler
    physics.
    """
    num, many = state.shape[1], len(controllers)
    step = make_step(craft, QuadPhysics(dt_s=DT_S, integrator="euler"))
    params = parameters(craft, DT_S, many * num)
    outside = (torch.zeros(EXTERNAL_SIZE, num) if external is None else external).repeat(1, many)
    wanted = hold(torch.zeros(3, num))[None].expand(steps, -1, -1) if reference is None else reference
    states, memories, seen = [state] * many, [c.blank(num) for c in controllers], []
    for now in wanted:
        pairs = [c(s, now, m) for c, s, m in zip(controllers, states, memories, strict=True)]
        memories = [memory for _, memory in pairs]
        after = step(torch.cat(states, 1), torch.cat([command for command, _ in pairs], 1), params, outside)
        states = list(after.split(num, 1))
        seen.append(torch.stack(states))
    return torch.stack(seen)


def act(craft: Craft, level: Level, state: Tensor, action: list[float], steps: int) -> Tensor:
    controller = Controller(0, lambda s, reference, memory: (level(s, torch.tensor(action)[:, None]), memory))
    return fly(craft, [controller], state, steps)[-1, 0]


def action_for(level: Level, wanted: list[float]) -> list[float]:
    return level.spec.normalize(torch.tensor(wanted)).tolist()
