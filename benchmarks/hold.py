"""Two ways to hold a simulated arm whose commands end: `python benchmarks/hold.py`.

`command` is what the safety filter does: it brakes the commands and stays there. `measured` brings them back
to where the arm can stop, computed from its measured position and speed, within the same limits. Both begin
from the same motions: targets drawn anew every period, as restless as the policy of `benchmarks/attack.py
--part processes`, and sines near the speed limit. Prints the 99th percentile, over the motions, of the
control periods until the commands and until the arm stay within 10 mrad of their end, and of the largest
distance that a joint travels.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from numpy import ndarray

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from common import emit, parser

from hardware.description import load_description
from hardware.safety.limits import ArmLimits, Move, Target, next_move
from robo_rl.core.shapes import Float
from sim.arms.arm6.body import SimulatedArm

ROBOT = load_description("sim_arm")
LIMITS, PERIOD_S = ArmLimits.of(ROBOT), 1.0 / ROBOT.command_hz
STATES = round(ROBOT.state_hz * PERIOD_S)  # per command
HELD_RAD, NOISE_RAD, SINE_RAD, SINE_HZ = 0.01, 0.25, np.array([0.9, 0.45, 0.45, 0.9, 0.45, 0.9]), 1.0
MOVING, LONGEST_HOLD = (60, 90), 75  # periods
RESULTS = ("command_periods", "arm_periods", "travel_rad")
Track = Float[ndarray, "n j"]


def targets(motion: str, rng: np.random.Generator, count: int) -> Track:
    """Offsets from the home position, one row per period."""
    if motion == "noise":
        return rng.uniform(-NOISE_RAD, NOISE_RAD, (count, len(ROBOT.joints)))
    phase = rng.uniform(0.0, 2.0 * np.pi, len(ROBOT.joints))
    times_s = np.arange(count)[:, None] * PERIOD_S
    return SINE_RAD * np.sin(2.0 * np.pi * SINE_HZ * times_s + phase)


def hold(motion: str, way: str, seed: int) -> tuple[float, float, float]:
    """RESULTS of one motion that ends at a random instant."""
    rng, arm = np.random.default_rng(seed), SimulatedArm()
    home = arm.read()[0]
    last, sent, places = Move(home, np.zeros_like(home)), list[ndarray](), list[ndarray]()

    def step(target: Target | None) -> None:
        nonlocal last
        last = next_move(last, arm.read()[0], target, PERIOD_S, LIMITS, None)
        arm.command(last.position_rad)
        sent.append(last.position_rad)
        for _ in range(STATES):
            arm.advance(PERIOD_S / STATES)
            places.append(arm.read()[0])

    goals = home + targets(motion, rng, int(rng.integers(*MOVING)))
    speeds = np.diff(goals, axis=0, prepend=goals[:1]) / PERIOD_S * (motion == "sine")
    for goal, speed in zip(goals, speeds, strict=True):
        step(Target(goal, speed))
    begin, speed = arm.read()
    rest = begin + speed * np.abs(speed) / (2.0 * LIMITS.acceleration_rad_s2)
    del sent[:], places[:]
    for _ in range(LONGEST_HOLD):
        step(None if way == "command" else Target(rest, np.zeros_like(rest)))
    travel_rad = float(np.abs(np.array(places) - begin).max())
    return periods(np.array(sent)), periods(np.array(places)) / STATES, travel_rad


def periods(track: Track) -> float:
    """Number of rows before the track stays where it ends."""
    far = np.flatnonzero(np.abs(track - track[-1]).max(axis=1) > HELD_RAD)
    return float(far[-1] + 1) if len(far) else 0.0


def main() -> None:
    """Measure every motion and way."""
    options = parser(__doc__ or "")
    options.add_argument("--motions", type=int, default=200, help="motions of each kind")
    args = options.parse_args()
    count = 10 if args.quick else args.motions
    for motion in ("noise", "sine"):
        for way in ("command", "measured"):
            rows = np.array([hold(motion, way, seed) for seed in range(count)])
            for name, column in zip(RESULTS, rows.T, strict=True):
                unit = "rad" if name.endswith("rad") else "periods"
                emit(f"hold/{motion}/{way}/{name}_p99", float(np.percentile(column, 99)), unit, motions=count)


if __name__ == "__main__":
    main()
