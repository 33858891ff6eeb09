"""Race through the gates of a track, lap after lap, each gate through its opening in its direction.

Crossing the plane of any gate within the frame's outer border but outside the opening is a crash; the craft
is as wide as its propellers reach. Seen: the current and the next gate with their directions, in body axes.

The cost has no term for passing or crashing, whose gradients are zero almost everywhere. What is
differentiable says the same: progress towards the gate along a funnel that opens against its direction, and
distance from the middle of the opening where the plane is near.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from robo_rl.core.errors import ConfigError
from sim.engines.quad.craft import GRAVITY_M_S2, Craft
from sim.engines.quad.layout import EXTERNAL_SIZE, POS
from sim.tasks.flight.course import (
    ATTITUDE_NUMBERS,
    FRONT_SCALES,
    FRONT_UNITS,
    body_front,
    disturbance,
    from_body_front,
    handling_terms,
    in_body,
    pay,
    pick,
    upright,
)
from sim.tasks.flight.path import lap_reference
from sim.tasks.flight.protocol import FlightOutcome, FlightStep, FlightTransition, Score
from sim.tasks.flight.track import RaceTrack

GATE_SIZE = 5  # position [m, world], direction (cos, sin of the heading)
PASSED, FIRST, CRASHED, CLOCK = range(4)


@dataclass(frozen=True, slots=True)
class RaceTask:
    """Fly `track`. Success: `laps` laps without a crash, timed from gate 0 to gate 0."""

    track: RaceTrack
    craft_radius_m: float = 0.07
    size: float = 1.0  # of the track, next to one for a Crazyflie: what is seen is divided by it
    laps: int = 2
    baseline_speed_m_s: float = 1.5  # of the path that classical controllers follow
    start_anywhere: bool = False  # training: a flight may begin before any gate, at speed
    start_before_m: float = 0.7  # in front of gate 0
    start_m: float = 0.1
    start_tilt_rad: float = 0.3
    start_rate_rad_s: float = 0.5
    gate_shift_m: float = 0.0  # every gate of every flight is moved by up to this along each axis
    force_std: float = 0.02
    torque_std: float = 1e-4
    max_steps: int = 2000
    train_steps: int = 400
    dt_s: float = 0.01
    most_speed_m_s: float = 3.5
    funnel: float = 0.5  # how far in front of the plane to come in from, per distance from the gate's axis
    w_alive: float = 5.0  # what a step is worth, so that ending a flight early is never cheap
    w_progress: float = 1.0
    w_centre: float = 3.0
    w_rate: float = 0.003
    w_action: float = 0.01
    w_action_rate: float = 0.1
    w_speed: float = 1.0
    w_edge: float = 5.0

    @property
    def name(self) -> str:
        return "race"

    @property
    def moves(self) -> bool:
        return True

    @property
    def num(self) -> int:
        return len(self.track.gates)

    @property
    def free_m(self) -> float:
        """Largest distance from a gate's axis at which the craft's middle may pass."""
        return self.track.opening_m / 2.0 - self.craft_radius_m

    @property
    def scene(self) -> tuple[tuple[float, float, float], float]:
        return self.track.room.scene

    @property
    def start_numbers(self) -> int:
        return ATTITUDE_NUMBERS + 6 + 3 * self.num

    @property
    def task_state_size(self) -> int:
        """Gates passed, gate that was the first, crashed, clock."""
        return 4

    @property
    def scales(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        far, fast = 1.0 / self.size, 1.0 / math.sqrt(self.size)
        sizes = (far,) * 3 + (1.0,) * 3 + (fast,) * 3 + (1.0,) * 3
        front = tuple(scale * size for scale, size in zip(FRONT_SCALES, sizes, strict=True))
        return front, (1.0,) * 3 + (0.7 * far,) * 3 + (1.0,) * 3

    @property
    def units(self) -> tuple[str, str]:
        return FRONT_UNITS, "direction of the gate 1, next gate m, its direction 1"

    def start(
        self, craft: Craft, unit: Float[Tensor, "u n"]
    ) -> tuple[Float[Tensor, "17 n"], Float[Tensor, "e n"]]:
        """Before gate 0 at rest, or before any gate at speed; below the disturbance the gates, then the
        first.
        """
        both = 2.0 * unit - 1.0
        gates = self._gates(both[21:])
        first = (unit[18] * self.num).floor() if self.start_anywhere else torch.zeros_like(unit[0])
        gate = pick(gates, first, GATE_SIZE)
        position = gate[0:3] - self.start_before_m * _normal(gate)
        velocity = torch.zeros_like(position)
        if self.start_anywhere:
            last = pick(gates, torch.remainder(first - 1.0, self.num), GATE_SIZE)
            way = gate[0:3] - last[0:3]
            at_speed = last[0:3] + (0.05 + 0.85 * unit[19]) * way
            # A fifth begins as measured flights do.
            moving = unit[20] > 0.2
            speed = ((unit[20] - 0.2) / 0.8).clamp(min=0.0) * 0.8 * self.most_speed_m_s
            position = torch.where(moving, at_speed, position)
            velocity = torch.where(moving, speed * way / way.norm(dim=0), velocity)
        position = position + both[15:18] * self.start_m + both[12:15] * (self.start_anywhere * self.start_m)
        state = upright(
            position, velocity, unit[0:6], self.start_tilt_rad, self.start_rate_rad_s, craft.hover_speed
        )
        pushed = disturbance(craft, unit[6:12], self.force_std, self.torque_std)
        return state, torch.cat([pushed, gates, first.unsqueeze(0)])

    def _gates(self, shift: Float[Tensor, "s n"]) -> Float[Tensor, "g n"]:
        rows = []
        for k, gate in enumerate(self.track.gates):
            place = torch.tensor(gate.position_m).unsqueeze(1) + self.gate_shift_m * shift[3 * k : 3 * k + 3]
            rows += [place, torch.tensor(gate.normal).unsqueeze(1).expand(2, shift.shape[1])]
        return torch.cat(rows)

    def first(self, external: Tensor) -> Tensor:
        zero = torch.zeros_like(external[:1])
        return torch.cat([zero, external[-1:], zero, zero])

    def gate(self, external: Tensor, task_state: Tensor, later: int = 0) -> Float[Tensor, "5 n"]:
        """The gate to fly through, or one that comes later."""
        index = torch.remainder(task_state[PASSED] + task_state[FIRST] + later, self.num)
        return pick(external[EXTERNAL_SIZE:-1], index, GATE_SIZE)

    def advance(self, before: Tensor, after: Tensor, external: Tensor, task_state: Tensor) -> Tensor:
        passed, _ = self.crossing(self.gate(external, task_state), before[POS], after[POS])
        hit = torch.zeros_like(passed)
        for k in range(self.num):
            at = EXTERNAL_SIZE + GATE_SIZE * k
            hit = hit | self.crossing(external[at : at + GATE_SIZE], before[POS], after[POS])[1]
        return torch.stack(
            [
                task_state[PASSED] + passed.to(task_state.dtype),
                task_state[FIRST],
                torch.maximum(task_state[CRASHED], hit.to(task_state.dtype)),
                task_state[CLOCK] + self.dt_s,
            ]
        )

    def crossing(
        self, gate: Float[Tensor, "5 n"], before_m: Float[Tensor, "3 n"], after_m: Float[Tensor, "3 n"]
    ) -> tuple[Bool[Tensor, " n"], Bool[Tensor, " n"]]:
        """(through the opening in the gate's direction, into the frame from either side) between two
        places.
        """
        start, end = (gate_axes(gate, place) for place in (before_m, after_m))
        forward, backward = (start[0] < 0.0) & (end[0] >= 0.0), (start[0] >= 0.0) & (end[0] < 0.0)
        share = start[0] / torch.where(forward | backward, start[0] - end[0], 1.0)
        side, up = (a + share * (b - a) for a, b in zip(start[1:], end[1:], strict=True))
        off = torch.maximum(side.abs(), up.abs())
        outer = self.track.outer_m / 2.0 + self.craft_radius_m
        return forward & (off <= self.free_m), (forward | backward) & (off > self.free_m) & (off <= outer)

    def relative(self, state: Tensor, external: Tensor, task_state: Tensor) -> Tensor:
        return torch.cat([state[POS] - self.gate(external, task_state)[0:3], state[3:]])

    def view(self, seen: Tensor, external: Tensor, task_state: Tensor) -> tuple[Tensor, Tensor]:
        """Observations in body axes; behind the memory the gate's direction, the next gate's middle and
        direction.
        """
        gate, following = self.gate(external, task_state), self.gate(external, task_state, 1)
        ahead = following[0:3] - gate[0:3] - seen[0:3]
        parts = (_normal(gate), ahead, _normal(following))
        return body_front(seen), torch.cat([in_body(seen, part) for part in parts])

    def measured(self, obs: Tensor, state: Tensor, external: Tensor, task_state: Tensor) -> Tensor:
        return from_body_front(obs, state, self.gate(external, task_state)[0:3])

    def reference(self, external: Tensor, task_state: Tensor) -> Float[Tensor, "10 n"]:
        """The smooth path through all gates, at its time."""
        path = lap_reference(
            self.track, self.baseline_speed_m_s, self.dt_s, self.max_steps, self.start_before_m
        )
        step = (task_state[CLOCK] / self.dt_s).round().long().clamp(max=self.max_steps)
        return torch.cat([path[:, step], torch.zeros_like(task_state[:1])])

    def terms(self, transition: FlightTransition) -> dict[str, Tensor]:
        """Cost terms by name, each (n,). Progress is towards the gate that was aimed at when the step
        began.
        """
        gate = self.gate(transition.external, transition.task_state_before)
        before, after = gate_axes(gate, transition.before[POS]), gate_axes(gate, transition.after[POS])
        off = sum(
            (torch.relu(x.abs() / self.free_m - 0.4).square() for x in after[1:]), torch.zeros_like(after[0])
        )
        near = torch.exp(-(after[0] / self.track.opening_m).square() * 4.0)
        return {
            "alive": torch.full_like(transition.after[0], -self.w_alive),
            "progress": self.w_progress * (self.way_left(after) - self.way_left(before)) / self.dt_s,
            "centre": self.w_centre * near * off,
            "edge": self.w_edge * self.track.room.edge(transition.after[POS], 0.3),
            **handling_terms(
                transition, self.w_rate, self.w_action, self.w_action_rate, self.w_speed, self.most_speed_m_s
            ),
        }

    def way_left(self, place: tuple[Tensor, Tensor, Tensor]) -> Float[Tensor, "*n"]:
        """Potential of a place in the gate's axes: sqrt((s + f l)^2 + l^2), l the distance from the axis.

        On the axis it is the distance to the plane. Off the axis it is least at s = -f l, so that a craft
        comes in from the front, whatever side it is on.
        """
        along, side, up = place
        off = (side * side + up * up + 1e-4).sqrt()
        return ((along + self.funnel * off).square() + off * off).sqrt()

    def cost(self, transition: FlightTransition) -> Float[Tensor, " n"]:
        return sum(self.terms(transition).values(), torch.zeros_like(transition.after[0]))

    def reward(self, cost: Float[Tensor, " n"]) -> Float[Tensor, " n"]:
        """Reward of a step by `pay`: the cost already contains the value of staying in flight."""
        return pay(cost, self.w_alive)

    def over(self, transition: FlightTransition) -> tuple[Bool[Tensor, " n"], Bool[Tensor, " n"]]:
        ended = self.track.room.outside(transition.after[POS]) | (transition.task_state[CRASHED] > 0.0)
        return ended, ended

    def score(self, flown: FlightOutcome) -> Score:
        """Success: so many laps before anything ended the flight. Lap times are those of flying laps."""
        passed = flown.task_state[:, PASSED].masked_fill(flown.left, 0.0).cummax(0).values
        done = (((passed - 1.0) / self.num).floor()).clamp(min=0.0)[-1]
        times = self.lap_times(passed)
        flying = ~flown.left
        speed = flown.velocity_m_s.norm(dim=1)[flying]
        crashed = ((flown.task_state[:, CRASHED] > 0.0) & (flown.left.cumsum(0) <= 1)).any(
            0
        )  # not after the end
        facts = {
            "lap_time_best_s": float(times.min()) if len(times) else None,
            "lap_time_s": float(times.median()) if len(times) else None,
            "laps_per_flight": float(done.mean()),
            "hit_a_gate": float(crashed.float().mean()),
            "mean_speed_m_s": float(speed.mean()) if len(speed) else None,
            "max_speed_m_s": float(speed.max()) if len(speed) else None,
        }
        return Score(torch.zeros(0), flown.left.any(0), done >= self.laps, facts)

    def tally(self, tally: Float[Tensor, " n"], flying: FlightStep) -> Float[Tensor, " n"]:
        """1 once the laps have been flown."""
        done = (flying.task_state[PASSED] >= 1 + self.laps * self.num) & ~flying.left
        return torch.maximum(tally, done.to(tally.dtype))

    def verdict(
        self, tally: Float[Tensor, " n"], flying: FlightStep
    ) -> tuple[Bool[Tensor, " n"], Float[Tensor, " n"] | None]:
        """Verdict of a step; events after the last gate or point do not change it."""
        return tally > 0.0, None

    def lap_times(self, passed: Float[Tensor, "t n"]) -> Float[Tensor, " laps"]:
        """Seconds between passages of gate 0, of all drones."""
        marks = []
        lap = 0
        while (passed >= lap * self.num + 1).any():
            there = passed >= lap * self.num + 1
            step = torch.where(there.any(0), there.int().argmax(0).to(torch.float32), math.nan)
            marks.append(step * self.dt_s)
            lap += 1
        if len(marks) < 2:
            return torch.zeros(0)
        times = torch.stack(marks).diff(dim=0).flatten()
        return times[~times.isnan()]


def gate_axes(gate: Float[Tensor, "5 n"], place_m: Float[Tensor, "3 n"]) -> tuple[Tensor, Tensor, Tensor]:
    """A place as seen from a gate [m]: along its direction, to its left, up."""
    x, y, z = (place_m - gate[0:3]).unbind(0)
    c, s = gate[3], gate[4]
    return c * x + s * y, c * y - s * x, z


def _normal(gate: Float[Tensor, "5 n"]) -> Float[Tensor, "3 n"]:
    return torch.cat([gate[3:5], torch.zeros_like(gate[:1])])


def check_race(task: RaceTask, craft: Craft) -> None:
    """Raises ConfigError for gates that the craft does not fit through, and for speeds that it cannot turn
    at.
    """
    if task.free_m <= 0.0:
        raise ConfigError(
            f"Craft '{craft.name}' is {2 * task.craft_radius_m:.2f} m wide and does not fit through the "
            f"gates of track '{task.track.name}', {task.track.opening_m:.2f} m. Choose a larger track_scale."
        )
    push = math.sqrt(max(0.0, (0.9 * craft.thrust_to_weight) ** 2 - 1.0)) * GRAVITY_M_S2
    reach_m = (
        max(high - low for low, high in zip(task.track.room.low_m, task.track.room.high_m, strict=True)) / 2.0
    )
    most = math.sqrt(push * reach_m)
    if not 0.0 < task.most_speed_m_s <= most:
        raise ConfigError(
            f"speed_m_s = {task.most_speed_m_s:g} is impossible on track '{task.track.name}': craft "
            f"'{craft.name}' can turn around within {reach_m:.1f} m at no more than {most:.1f} m/s. Choose a "
            "speed above 0 and below that."
        )


def craft_radius_m(craft: Craft) -> float:
    """From the middle to the tip of a propeller; where its size is not known, half the way between two
    rotors.
    """
    arm = max(math.hypot(x, y) for x, y in craft.rotors_m)
    half_gap = min(math.dist(craft.rotors_m[0], rotor) for rotor in craft.rotors_m[1:]) / 2.0
    return arm + (craft.prop_radius_m or 0.9 * half_gap)
