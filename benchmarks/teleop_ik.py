"""Inverse kinematics of Cartesian teleoperation, beside a library where one is installed.

    python benchmarks/teleop_ik.py            # pip install mink 'qpsolvers[daqp]' for the second rows

The same hands move the tool of the simulated arm by `hardware.teleop` (dls) and by mink, a solver of
quadratic programs over MuJoCo, with the same gain and the same limits of range and speed. Hands: `inside` the
reach, with rotations; `wrist` through the singular position in which axes 4 and 6 are in line; `beyond` the
stretched arm and back. Names: teleop_ik/<hand>/<solver>/<value>: root mean square of the distance
(error_mm) and angle (error_mrad) to the hand, largest share of a joint's speed limit (speed_share), largest
change of a joint's speed from tick to tick (change_rad_s), and CPU time per tick (cpu_us).
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy import ndarray

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from common import cpu_seconds, emit, parser

from hardware.description import load_description
from hardware.kinematics import tool_pose
from hardware.teleop.device import HandPose, OperatorInput
from hardware.teleop.drive import OperatorDrive
from hardware.teleop.hand_motion import GAIN_HZ
from hardware.teleop.rotations import turn_of, vector_of
from robo_rl.core.shapes import Float
from sim.arms.arm6.body import arm_model

ROBOT, DT_S = load_description("sim_arm"), 0.02
SPEED_RAD_S, POSE = ROBOT.column("velocity_rad_s"), tool_pose(ROBOT)
STARTS = {
    "inside": np.array([0.1, 0.6, 1.0, 0.3, 0.8, 0.0]),
    "wrist": np.array([0.0, 0.4, 1.2, 0.0, 0.3, 0.0]),
    "beyond": np.array([0.0, 0.6, 1.0, 0.0, 0.6, 0.0]),
}
Hand = tuple[Float[ndarray, " 3"], Float[ndarray, " 3"]]  # motion since the start [m], rotation vector [rad]
Solver = Callable[[Hand, ndarray], ndarray]  # (hand, position) -> next position


def hands(kind: str, rng: np.random.Generator, ticks: int) -> list[Hand]:
    """Smooth motion of a hand, at most 0.2 m/s and 0.8 rad/s."""
    times_s = DT_S * np.arange(ticks)
    way_m, turn_rad = 0.06 * rng.uniform(-1.0, 1.0, 3), 0.3 * rng.uniform(-1.0, 1.0, 3)
    wave = np.sin(2.0 * np.pi * 0.3 * times_s)
    if kind == "wrist":
        way_m, turn_rad = 0.3 * way_m, np.array([0.05 * rng.standard_normal(), -0.6, 0.05])
    if kind == "beyond":
        way_m, turn_rad = np.array([0.5, 0.1 * rng.standard_normal(), 0.1]), np.zeros(3)
        wave = np.interp(times_s, [0.0, 3.0, 6.0], [0.0, 1.0, 0.0])
    return [(share * way_m, share * turn_rad) for share in wave]


def dls() -> Solver:
    """Solver of this project."""
    drive = OperatorDrive(ROBOT)

    def step(hand: Hand, at_rad: ndarray) -> ndarray:
        place_m, turn_rad = hand
        angle = float(np.linalg.norm(turn_rad))
        half = np.sin(0.5 * angle) / max(angle, 1e-12) * turn_rad
        pose = HandPose(place_m, np.array([np.cos(0.5 * angle), *half]))
        found = drive.next(OperatorInput(True, pose=pose), at_rad, None, DT_S)
        assert found is not None
        return found

    return step


def mink(start_rad: ndarray) -> Solver:
    """Solver of the library, with the costs of a metre and of a radian as here."""
    import mink as library

    model = arm_model()
    configuration = library.Configuration(model)
    task = library.FrameTask("tool", "site", 1.0, 0.2, gain=GAIN_HZ * DT_S, lm_damping=1e-2)
    speeds = dict(zip(ROBOT.names, SPEED_RAD_S.tolist(), strict=True))
    limits = [library.ConfigurationLimit(model), library.VelocityLimit(model, speeds)]
    place_m, turn = POSE(start_rad)

    def step(hand: Hand, at_rad: ndarray) -> ndarray:
        configuration.update(at_rad)
        rotation = library.SO3.from_matrix(turn_of(hand[1]) @ turn)
        task.set_target(library.SE3.from_rotation_and_translation(rotation, place_m + hand[0]))
        speed = library.solve_ik(configuration, [task], DT_S, "daqp", 1e-6, limits=limits)
        return at_rad + speed * DT_S

    return step


def drive(solver: Solver, path: list[Hand], start_rad: ndarray) -> dict[str, float]:
    """Errors, speeds and CPU time of one hand."""
    place_m, turn = POSE(start_rad)
    at_rad, places, errors = start_rad, [start_rad], []
    begun_s = cpu_seconds()
    for hand in path:
        at_rad = solver(hand, at_rad)
        places.append(at_rad)
    spent_s = cpu_seconds() - begun_s
    for hand, position_rad in zip(path, places[1:], strict=True):
        tool_m, tool_turn = POSE(position_rad)
        angle = vector_of(turn_of(hand[1]) @ turn @ tool_turn.T)
        errors.append((np.linalg.norm(place_m + hand[0] - tool_m), np.linalg.norm(angle)))
    speed_rad_s = np.diff(np.array(places), axis=0) / DT_S
    metres, radians = np.sqrt(np.mean(np.square(errors), axis=0))
    return {
        "error_mm": 1e3 * float(metres),
        "error_mrad": 1e3 * float(radians),
        "speed_share": float((np.abs(speed_rad_s) / SPEED_RAD_S).max()),
        "change_rad_s": float(np.abs(np.diff(speed_rad_s, axis=0)).max()),
        "cpu_us": 1e6 * spent_s / len(path),
    }


UNITS = {
    "error_mm": "mm",
    "error_mrad": "mrad",
    "speed_share": "share",
    "change_rad_s": "rad/s",
    "cpu_us": "us",
}


def main() -> None:
    options = parser(__doc__.splitlines()[0])
    options.add_argument("--hands", type=int, default=30, help="hands of each kind")
    args = options.parse_args()
    count, ticks = (3, 300) if args.quick else (args.hands, 300)
    solvers: dict[str, Callable[[ndarray], Solver]] = {"dls": lambda start_rad: dls()}
    if find_spec("mink") is not None:
        solvers["mink"] = mink
    for kind, start_rad in STARTS.items():
        for name, make in solvers.items():
            found: list[dict[str, Any]] = []
            for seed in range(count):
                path = hands(kind, np.random.default_rng(seed), ticks)
                found.append(drive(make(start_rad), path, start_rad))
            for key, unit in UNITS.items():
                values = np.array([result[key] for result in found])
                worst = key in ("speed_share", "change_rad_s")
                value = float(values.max() if worst else np.median(values))
                emit(f"teleop_ik/{kind}/{name}/{key}", value, unit, hands=count)


if __name__ == "__main__":
    main()
