"""The moving picture on top of README.md: every task of the toolkit, done by its scripted expert.

    python docs/gallery.py        # writes docs/gallery.webp, some minutes without a GPU

Episodes are of different lengths: each is shown whole, at a speed of its own.
"""

from __future__ import annotations

from itertools import chain, count
from pathlib import Path

import cv2
import numpy as np
from numpy import ndarray
from PIL import Image

from robo_rl.conf.fly import FlyConfig
from robo_rl.conf.schema import CollectConfig
from robo_rl.core.protocols import VecEnv
from robo_rl.core.shapes import UInt8
from robo_rl.eval.flight.flight_video import FlightScene
from robo_rl.eval.flight.gates import GateFrame
from robo_rl.flight.fly.report import flight_log
from robo_rl.flight.fly.runs import SharedStarts
from robo_rl.flight.fly.setup import FlightSetup
from robo_rl.runs.demonstrators import make_demonstrator
from robo_rl.runs.progress import progress
from sim.flight.trial import controller_pilot
from sim.registry import make_env
from sim.tasks.flight.race import RaceTask

Frame = UInt8[ndarray, "h w 3"]  # RGB

TASKS = (
    "arm/lift", "arm/stack", "arm/peg_insert", "arm/drawer", "arm/push_t", "arm/unscrew",
    "arm/pour", "hand/reorient", "arm_hand/pick", "mobile/navigate", "mobile/rearrange", "quad/race",
    "drone/seek", "metaworld/assembly-v3",
)  # fmt: skip
COLUMNS, SIDE_PX, FRAMES, FPS, SEED = 7, 150, 48, 12, 0
FLOWN_S = 8.0
_FONT = cv2.FONT_HERSHEY_SIMPLEX


def main() -> None:
    episodes = []
    with progress(len(TASKS), "gallery", "task") as bar:
        for name in TASKS:
            frames = flown() if name.startswith("quad/") else filmed(name)
            episodes.append([labelled(frame, name) for frame in evenly(frames)])
            bar.update()
    pictures = [Image.fromarray(mosaic([episode[i] for episode in episodes])) for i in range(FRAMES)]
    out = Path(__file__).parent / "gallery.webp"
    pictures[0].save(
        out, save_all=True, append_images=pictures[1:], duration=1000 // FPS, loop=0, quality=60, method=6
    )
    print(f"{out}: {out.stat().st_size / 1024:.0f} KB")


def filmed(name: str) -> list[Frame]:
    """One episode of the expert, a picture before each step."""
    scene = name.startswith(("arm/", "hand/", "arm_hand/", "mobile/"))
    env: VecEnv = make_env(name, 1, **({"render_size": 2 * SIDE_PX, "pretty": True} if scene else {}))
    try:
        driver = make_demonstrator(CollectConfig(env=name, out=".", num_envs=1), env)
        obs = env.reset(chain([SEED], count()))
        driver.start([0], [SEED], obs)
        frames, over = [], False
        while not over:
            frames.append(squared(env.render(0).cpu().numpy()))
            obs, _, _, _, info = env.step(driver.act())
            driver.observe(obs)
            over = bool(info["final_mask"][0])
        return frames
    finally:
        env.close()


def flown() -> list[Frame]:
    """A drone through the gates of a track, by a classical controller."""
    config = FlyConfig(task="race", out=".", track="splits", eval_episodes=1, eval_s=FLOWN_S, eager=True)
    setting = FlightSetup.of(config)
    assert isinstance(setting.task, RaceTask)
    track = setting.task.track
    trial = SharedStarts.of(config, setting).fly(
        controller_pilot("geometric", setting.craft, setting.task.dt_s, 1)
    )
    gates = [
        GateFrame(gate.position_m, gate.heading_deg, track.opening_m, track.outer_m) for gate in track.gates
    ]
    log = flight_log(setting.task, "geometric", trial)
    scene = FlightScene(log, drones=1, size=(4 * SIDE_PX, 4 * SIDE_PX), gates=gates)
    return [
        squared(scene.frame(float(time_s))) for time_s in np.linspace(log.time_s[0], log.time_s[-1], FRAMES)
    ]


def squared(frame: Frame) -> Frame:
    """The middle of the picture, at the size of a tile."""
    height, width = frame.shape[:2]
    side = min(height, width)
    top, left = (height - side) // 2, (width - side) // 2
    middle = frame[top : top + side, left : left + side]
    return np.asarray(cv2.resize(middle, (SIDE_PX, SIDE_PX), interpolation=cv2.INTER_AREA))


def evenly(frames: list[Frame]) -> list[Frame]:
    """So many of them, from first to last; the last stays for a moment."""
    rest = FRAMES // 8
    chosen = np.linspace(0, len(frames) - 1, FRAMES - rest).round().astype(int)
    return [frames[i] for i in chosen] + [frames[-1]] * rest


def labelled(frame: Frame, name: str) -> Frame:
    word = name.split(":")[0].split("/")[1].removesuffix("-v3")
    frame = frame.copy()
    for ink, thickness in (((0, 0, 0), 3), ((255, 255, 255), 1)):
        cv2.putText(frame, word, (5, SIDE_PX - 7), _FONT, 0.42, ink, thickness, cv2.LINE_AA)
    return frame


def mosaic(tiles: list[Frame]) -> Frame:
    rows = [np.concatenate(tiles[i : i + COLUMNS], axis=1) for i in range(0, len(tiles), COLUMNS)]
    return np.concatenate(rows)


if __name__ == "__main__":
    main()
