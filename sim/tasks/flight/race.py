"""Race: fly laps through the gates of a track, each gate through its opening and in its direction.

Crossing the plane of any gate within the frame's outer border but outside the opening is a crash; the craft's
radius reaches to the tips of its propellers. Randomisation: start position, attitude and rates, a constant
force and torque; in training the first gate, the start speed and the positions of the gates. The policy
observes the current and the next gate with their directions, in body axes. Success: `laps` laps without a
crash.

Reward: progress towards the gate along a funnel that opens against its direction, minus the distance from the
middle of the opening near its plane, and handling costs. Passing and crashing have no terms of their own,
because their gradients are zero almost everywhere.
"""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, dataclass

import torch
from torch import Tensor

from robo_rl.core.errors import ConfigError
from robo_rl.core.shapes import Bool, Float
from sim.engines.quad.craft import Craft
from sim.engines.quad.layout import EXTERNAL_SIZE, POS, constants
from sim.tasks.flight.course import (
    ATTITUDE_NUMBERS,
    BODY_SCALES,
    BODY_UNITS,
    CourseTask,
    body_obs,
    horizontal_acceleration_m_s2,
    select_group,
    speed_facts,
    state_from_body_obs,
    world_to_body,
)
from sim.tasks.flight.path import lap_reference
from sim.tasks.flight.protocol import FlightOutcome, FlightStep, FlightTransition, Score
from sim.tasks.flight.track import RaceTrack

GATE_SIZE = 5  # position [m, world], direction (cos, sin of the heading)
PASSED, FIRST, CRASHED, CLOCK = range(4)  # of the task state: gates passed, first gate, crashed, time [s]


@dataclass(frozen=True, slots=True)
class RaceTask(CourseTask):
    """`laps` laps of `track` without a crash, timed from gate 0 to gate 0."""

    track: RaceTrack
    craft_radius_m: float = 0.07
    size: float = 1.0  # scale of the track relative to one for a Crazyflie; observations are divided by it
    laps: int = 2
    baseline_speed_m_s: float = 1.5  # speed along the path that classical controllers follow
    start_anywhere: bool = False  # training: a flight may begin before any gate, at speed
    start_before_m: float = 0.7  # distance of the start in front of gate 0
    start_m: float = 0.1  # half-width of the random offset from it, per axis
    gate_shift_m: float = 0.0  # half-width of the random offset of every gate, per axis
    max_steps: int = 2000
    train_steps: int = 400
    most_speed_m_s: float = 3.5
    funnel: float = 0.5  # distance in front of the plane to approach from, per distance from the gate's axis
    w_progress: float = 1.0
    w_centre: float = 3.0
    w_edge: float = 5.0
    _: KW_ONLY
    w_rate: float = 0.003
    w_action: float = 0.01

    @property
    def name(self) -> str:
        return "race"

    @property
    def speed_limit_m_s(self) -> float:
        return self.most_speed_m_s

    @property
    def num(self) -> int:
        """Number of gates."""
        return len(self.track.gates)

    @property
    def free_m(self) -> float:
        """Largest distance from a gate's axis at which the craft's middle may pass."""
        return self.track.opening_m / 2.0 - self.craft_radius_m

    @property
    def scene(self) -> tuple[tuple[float, float, float], float]:
        return self.track.room.scene

    @property
    def floor_m(self) -> float:
        return self.track.room.low_m[2]

    @property
    def start_numbers(self) -> int:
        return ATTITUDE_NUMBERS + 6 + 3 * self.num

    @property
    def task_state_size(self) -> int:
        """4: gates passed, number of the first gate, crashed (0 or 1), time since the start [s]."""
        return 4

    @property
    def scales(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        far, fast = 1.0 / self.size, 1.0 / math.sqrt(self.size)
        sizes = (far,) * 3 + (1.0,) * 3 + (fast,) * 3 + (1.0,) * 3
        front = tuple(scale * size for scale, size in zip(BODY_SCALES, sizes, strict=True))
        return front, (1.0,) * 3 + (0.7 * far,) * 3 + (1.0,) * 3

    @property
    def units(self) -> tuple[str, str]:
        return BODY_UNITS, "direction of the gate 1, next gate m, its direction 1"

    def start(
        self, craft: Craft, uniform: Float[Tensor, "u n"]
    ) -> tuple[Float[Tensor, "17 n"], Float[Tensor, "e n"]]:
        """Start at rest before gate 0, or before any gate at speed.

        After the disturbance come the gates, then the number of the first one.
        """
        both = 2.0 * uniform - 1.0
        gates = self._gates(both[21:])
        first = (uniform[18] * self.num).floor() if self.start_anywhere else torch.zeros_like(uniform[0])
        gate = select_group(gates, first, GATE_SIZE)
        position = gate[0:3] - self.start_before_m * _normal(gate)
        velocity = torch.zeros_like(position)
        if self.start_anywhere:
            last = select_group(gates, torch.remainder(first - 1.0, self.num), GATE_SIZE)
            way = gate[0:3] - last[0:3]
            at_speed = last[0:3] + (0.05 + 0.85 * uniform[19]) * way
            # A fifth of training flights begins as measured flights do, at rest.
            moving = uniform[20] > 0.2
            speed = ((uniform[20] - 0.2) / 0.8).clamp(min=0.0) * 0.8 * self.most_speed_m_s
            position = torch.where(moving, at_speed, position)
            velocity = torch.where(moving, speed * way / way.norm(dim=0), velocity)
        position = position + both[15:18] * self.start_m + both[12:15] * (self.start_anywhere * self.start_m)
        state, pushed = self.start_with(craft, uniform, position, velocity)
        return state, torch.cat([pushed, gates, first.unsqueeze(0)])

    def _gates(self, shift: Float[Tensor, "s n"]) -> Float[Tensor, "g n"]:
        """All gates of each flight, GATE_SIZE components each; shift: in (-1, 1)."""
        parts = []
        for k, gate in enumerate(self.track.gates):
            place = constants(gate.position_m, shift) + self.gate_shift_m * shift[3 * k : 3 * k + 3]
            parts += [place, constants(gate.normal, shift).expand(2, shift.shape[1])]
        return torch.cat(parts)

    def first(self, external: Tensor) -> Tensor:
        zero = torch.zeros_like(external[:1])
        return torch.cat([zero, external[-1:], zero, zero])

    def gate(self, external: Tensor, task_state: Tensor, later: int = 0) -> Float[Tensor, "5 n"]:
        """Current gate (position [m, world], direction), or the one `later` gates after it."""
        index = torch.remainder(task_state[PASSED] + task_state[FIRST] + later, self.num)
        return select_group(external[EXTERNAL_SIZE:-1], index, GATE_SIZE)

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
        """Masks of drones that moved from one place to the other, all in m in the world.

        Returns (passed the opening in the gate's direction, hit the frame from either side).
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
        """Observations in body axes; behind the memory the gate's direction, the next gate, its direction."""
        gate, following = self.gate(external, task_state), self.gate(external, task_state, 1)
        ahead = following[0:3] - gate[0:3] - seen[0:3]
        parts = (_normal(gate), ahead, _normal(following))
        return body_obs(seen), torch.cat([world_to_body(seen, part) for part in parts])

    def measured(self, obs: Tensor, state: Tensor, external: Tensor, task_state: Tensor) -> Tensor:
        return state_from_body_obs(obs, state, self.gate(external, task_state)[0:3])

    def reference(self, external: Tensor, task_state: Tensor) -> Float[Tensor, "10 n"]:
        """The smooth path through all gates at the time since the start."""
        path = lap_reference(
            self.track,
            self.baseline_speed_m_s,
            self.dt_s,
            self.max_steps,
            self.start_before_m,
            task_state.device,
        )
        step = (task_state[CLOCK] / self.dt_s).round().long().clamp(max=self.max_steps)
        return torch.cat([path[:, step], torch.zeros_like(task_state[:1])])

    def course_terms(self, transition: FlightTransition) -> dict[str, Tensor]:
        """Progress is measured towards the gate that was the target when the step began."""
        gate = self.gate(transition.external, transition.task_state_before)
        before, after = gate_axes(gate, transition.before[POS]), gate_axes(gate, transition.after[POS])
        off = sum(
            (torch.relu(x.abs() / self.free_m - 0.4).square() for x in after[1:]), torch.zeros_like(after[0])
        )
        near = torch.exp(-(after[0] / self.track.opening_m).square() * 4.0)
        return {
            "progress": self.w_progress * (self.potential(after) - self.potential(before)) / self.dt_s,
            "centre": self.w_centre * near * off,
            "edge": self.w_edge * self.track.room.edge(transition.after[POS], 0.3),
        }

    def potential(self, place: tuple[Tensor, Tensor, Tensor]) -> Float[Tensor, "*n"]:
        """sqrt((s + f l)^2 + l^2) [m] at s along the gate's direction and l from its axis; f = `funnel`.

        On the axis it is the distance to the plane. At a distance l it is least at s = -f l, in front of the
        gate, so a craft on either side of the plane is led to approach from the front.
        """
        along, side, up = place
        off = (side * side + up * up + 1e-4).sqrt()
        return ((along + self.funnel * off).square() + off * off).sqrt()

    def over(self, transition: FlightTransition) -> tuple[Bool[Tensor, " n"], Bool[Tensor, " n"]]:
        ended = self.track.room.outside(transition.after[POS]) | (transition.task_state[CRASHED] > 0.0)
        return ended, ended

    def score(self, flown: FlightOutcome) -> Score:
        """Success: `laps` laps before the flight ended. Lap times are of laps that start in flight."""
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
            **speed_facts(speed),
        }
        return Score(torch.zeros(0), flown.left.any(0), done >= self.laps, facts)

    def tally(self, tally: Float[Tensor, " n"], flying: FlightStep) -> Float[Tensor, " n"]:
        """1 once the laps have been flown."""
        done = (flying.task_state[PASSED] >= 1 + self.laps * self.num) & ~flying.left
        return torch.maximum(tally, done.to(tally.dtype))

    def verdict(
        self, tally: Float[Tensor, " n"], flying: FlightStep
    ) -> tuple[Bool[Tensor, " n"], Float[Tensor, " n"] | None]:
        """Success once the laps have been flown, whatever happens afterwards; no error."""
        return tally > 0.0, None

    def lap_times(self, passed: Float[Tensor, "t n"]) -> Float[Tensor, " laps"]:
        """Times [s] between passages of gate 0, of all drones; `passed` counts gates at every step."""
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
    """Coordinates of a place [m, world] relative to a gate [m]: along its direction, to its left, up."""
    x, y, z = (place_m - gate[0:3]).unbind(0)
    c, s = gate[3], gate[4]
    return c * x + s * y, c * y - s * x, z


def _normal(gate: Float[Tensor, "5 n"]) -> Float[Tensor, "3 n"]:
    return torch.cat([gate[3:5], torch.zeros_like(gate[:1])])


def check_race(task: RaceTask, craft: Craft) -> None:
    """Raise ConfigError for gates too narrow for the craft and for speeds at which it cannot turn."""
    if task.free_m <= 0.0:
        raise ConfigError(
            f"Craft '{craft.name}' is {2 * task.craft_radius_m:.2f} m wide and does not fit through the "
            f"gates of track '{task.track.name}', {task.track.opening_m:.2f} m. Choose a larger track_scale."
        )
    radius_m = task.track.room.scene[1]
    most = math.sqrt(horizontal_acceleration_m_s2(craft, 0.9) * radius_m)
    if not 0.0 < task.most_speed_m_s <= most:
        raise ConfigError(
            f"speed_m_s = {task.most_speed_m_s:g} is impossible on track '{task.track.name}': craft "
            f"'{craft.name}' can turn around within {radius_m:.1f} m at no more than {most:.1f} m/s. Choose "
            "a speed above 0 and below that."
        )


def craft_radius_m(craft: Craft) -> float:
    """Distance [m] from the craft's middle to the tip of a propeller.

    An unknown propeller radius is taken as 90 % of half the smallest distance between two rotors.
    """
    arm = max(math.hypot(x, y) for x, y in craft.rotors_m)
    half_gap = min(math.dist(craft.rotors_m[0], rotor) for rotor in craft.rotors_m[1:]) / 2.0
    return arm + (craft.prop_radius_m or 0.9 * half_gap)
