"""Robot overlays: error of the pasted pictures, speed, and success after pre-training on them.

    python benchmarks/overlay.py
    python benchmarks/overlay.py --train --folder runs/overlay

The scripted expert of arm/lift is recorded twice through one camera: with the robot, and with a hand of
capsules in the colour of skin in its place. `robo-rl overlay` draws the robot into the second recording, and
the pictures are compared with the first. The overlay knows the exact pose, mask and camera, but not the
robot's joints.

--train measures a flow policy with few demonstrations, whose encoder starts from random weights (`plain`), or
from `robo-rl pretrain` on the hand videos (`hand`) or on the overlaid ones (`overlay`), on the same new
episodes. --folder keeps what is finished, and interrupted verbs continue.

Names: overlay/pixel_error/<hand, median or telea>/<robot or rest> (mean absolute difference to the true
picture in grey levels, over the robot's pixels in it and over the others; `hand`: before the overlay),
overlay/fill_error/<median or telea> (the same over the hand's pixels, between the picture without the hand
and the true scene without hand and robot), overlay/frames_per_cpu_s, overlay/<plain, hand or
overlay>/success (mean over seeds).
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

import mujoco
import numpy as np
import torch
from common import cpu_seconds, emit, own_folder, parser, verb
from numpy.typing import NDArray
from video_values import NETWORK, Size, finished, success

from robo_rl.core.files.durable import write_json
from robo_rl.core.seeding import EpisodeSeeds
from robo_rl.core.spec import SEGMENTS, ArraySpec, EnvSpec
from robo_rl.data.overlay.picture import without_hand
from robo_rl.data.store import DatasetWriter, EpisodeStore
from sim.asset_files import ASSETS
from sim.render.renderer import MujocoRenderer
from sim.scenes.task_env import TaskVecEnv, make_task_env

CAMERA, SKIN, OPEN_M = "view", (0.87, 0.62, 0.48, 1.0), 0.04
IMAGE, MASK, SEGMENTATION = f"image.{CAMERA}", f"mask.{CAMERA}", f"segmentation.{CAMERA}"
EMPTY, FILLS = "image.empty", ("median", "telea")
ROBOT = SEGMENTS.index("robot")
BOTH = {"hand": "hands", "overlay": "overlay"}  # how the encoder was pre-trained -> folder of the videos

Picture = NDArray[np.uint8]


FULL = Size(demos=5, videos=50, pretrain_steps=5000)


@dataclass(frozen=True)
class Work:
    """Size of the recordings and of one seed's trainings."""

    episodes: int = 20
    image_size: int = 96
    seeds: int = 3
    training: Size = FULL


QUICK = Work(2, 48, 1, Size(2, 2, image_size=24, pretrain_steps=10, steps=10, batch_size=8, episodes=2))


def main() -> None:
    options = parser(__doc__.splitlines()[0])
    options.add_argument("--train", action="store_true", help="also measure success after pre-training")
    options.add_argument("--folder", type=Path, default=Path("runs/overlay"), help="kept recordings and runs")
    args = options.parse_args()
    work, folder = QUICK if args.quick else Work(), own_folder(args.folder)
    about: dict[str, Any] = {"episodes": work.episodes, "image_size": work.image_size}
    record(folder, work.episodes, work.image_size, seed=0)
    for fill in FILLS:
        start_s, out = cpu_seconds(), folder / fill
        is_new = not out.exists()
        overlay(folder / "hands", out, fill)
        if fill == "median" and is_new:
            frames = EpisodeStore(out).totals.frames
            emit("overlay/frames_per_cpu_s", frames / (cpu_seconds() - start_s), "frames/cpu-s", **about)
    for name in ("hands", *FILLS):
        for place, value in zip(("robot", "rest"), pixel_errors(folder / "true", folder / name), strict=True):
            label = "hand" if name == "hands" else name
            emit(f"overlay/pixel_error/{label}/{place}", value, "grey levels", **about)
    for fill in FILLS:
        emit(f"overlay/fill_error/{fill}", fill_error(folder, fill), "grey levels", **about)
    if args.train:
        size = work.training
        found = [one_seed(seed, size, folder / f"seed{seed}") for seed in range(work.seeds)]
        for name in ("plain", *BOTH):
            rates = [each[name] for each in found]
            emit(f"overlay/{name}/success", fmean(rates), "fraction", per_seed=rates, **asdict(size))


def overlay(hands: Path, out: Path, fill: str) -> None:
    """Draw the arm of the task over the hands."""
    verb("overlay", data=hands, robot="panda", out=out, fill=fill)


def pixel_errors(true: Path, other: Path) -> tuple[float, float]:
    """Mean absolute difference of two datasets' pictures over the robot's pixels and over the others."""
    sums, counts = np.zeros(2), np.zeros(2)
    for one, two in zip(EpisodeStore(true), EpisodeStore(other), strict=True):
        error = np.abs(one.obs(IMAGE).astype(np.int16) - two.obs(IMAGE)).mean(-1)
        robot = one.obs(SEGMENTATION)[..., 0] == ROBOT
        for i, pixels in enumerate((robot, ~robot)):
            sums[i] += error[pixels].sum()
            counts[i] += pixels.sum()
    return float(sums[0] / counts[0]), float(sums[1] / counts[1])


def fill_error(folder: Path, fill: str) -> float:
    """Mean absolute difference of the hand's pixels, once filled, to the scene without hand and robot."""
    errors: list[NDArray[np.float64]] = []
    for one, two in zip(EpisodeStore(folder / "true"), EpisodeStore(folder / "hands"), strict=True):
        mask = two.obs(MASK)[..., 0] > 0
        filled = without_hand(two.obs(IMAGE), mask, fill)
        errors.append(np.abs(one.obs(EMPTY).astype(np.int16) - filled)[mask].mean(-1))
    return float(np.concatenate(errors).mean())


def one_seed(seed: int, size: Size, folder: Path) -> dict[str, float]:
    """Success of a policy from few demonstrations by the start of its encoder."""
    demos = folder / "demos"
    env = f"arm/lift:cameras={CAMERA},image_size={size.image_size},state=robot"
    finished("collect", demos, env=env, episodes=size.demos, noise=0.3, seed=seed)
    record(folder, size.videos, size.image_size, seed=1000 + seed)
    overlay(folder / "hands", folder / "overlay", "median")
    training = {"batch_size": size.batch_size, "seed": seed, "device": "cpu"}
    starts: dict[str, tuple[str, ...]] = {"plain": NETWORK}
    for name, videos in BOTH.items():
        run = folder / f"{name}-encoder"
        words = {"data": folder / videos, "camera": CAMERA, "steps": size.pretrain_steps}
        finished("pretrain", run, *NETWORK, **words, **training)
        starts[name] = (*NETWORK, f"image.init={run}")
    found = {}
    for name, start in starts.items():
        run = folder / f"{name}-policy"
        finished("train", run, *start, data=demos, steps=size.steps, **training)
        found[name] = success(run, size)
    return found


def record(folder: Path, episodes: int, image_size: int, seed: int) -> None:
    """Datasets `hands` and `true` of the same episodes, the first with the hand's pose and masks.

    Finished recordings are kept, others are made anew.
    """
    if (folder / "hands" / "complete").exists():
        return
    for name in ("hands", "true"):
        shutil.rmtree(folder / name, ignore_errors=True)
    env = make_task_env(
        "lift", 1, cameras=CAMERA, senses="rgb+segmentation", image_size=image_size, state="robot"
    )
    hand, picture = Hand(image_size), ArraySpec((image_size, image_size, 3), "uint8")
    mask = ArraySpec((image_size, image_size, 1), "uint8")
    pose = {"hand.position": ArraySpec((3,), unit="m: x, y, z"), "hand.quat": ArraySpec((4,))}
    poses = {**pose, "hand.opening": ArraySpec((1,))}
    true = _created(folder / "true", env.spec, {IMAGE: picture, EMPTY: picture, SEGMENTATION: mask})
    hands = _created(folder / "hands", env.spec, {IMAGE: picture, MASK: mask, **poses})
    write_json(folder / "hands" / f"camera.{CAMERA}.yaml", camera_pose(env))
    seeds = EpisodeSeeds(("overlay", seed))
    obs = env.reset(seeds)
    for _ in range(episodes):
        ended = False
        with true.episode() as real, hands.episode() as shown:
            while not ended:
                action = env.from_script(env.script())
                seen = {key: obs[key][0].numpy() for key in (IMAGE, SEGMENTATION)}
                shown.add(hand.observed(env), action[0].numpy())
                real.add(seen | {EMPTY: hand.without()}, action[0].numpy())
                obs, _, terminated, truncated, _ = env.step(action)
                ended = bool((terminated | truncated)[0])
            real.commit()
            shown.commit()
    true.close()
    hands.close()
    env.close()
    (folder / "hands" / "complete").touch()


def _created(path: Path, env: EnvSpec, obs: dict[str, ArraySpec]) -> DatasetWriter:
    return DatasetWriter.create(path, replace(env, obs=obs), stamps=(), durable=False)


def camera_pose(env: TaskVecEnv) -> dict[str, Any]:
    """The task's camera as `robo-rl overlay` reads it."""
    camera = env.model.camera(CAMERA)
    return {
        "position_m": camera.pos.tolist(),
        "quat": camera.quat.tolist(),
        "fovy_rad": float(np.radians(camera.fovy[0])),
    }


class Hand:
    """The scene of the task with a forearm, a palm, a thumb and two fingers instead of the robot."""

    def __init__(self, image_size: int) -> None:
        spec = mujoco.MjSpec.from_file(str(ASSETS / "lift.xml"))
        palm = spec.worldbody.add_body(name="hand")
        palm.add_freejoint(name="hand")
        _capsule(palm, (0, -0.03, -0.11, 0, 0.03, -0.11), 0.025)
        _capsule(palm, (0, 0, -0.13, -0.12, 0, -0.4), 0.035)
        for name, side, places in (("thumb", -1.0, (0.0,)), ("fingers", 1.0, (-0.012, 0.012))):
            part = palm.add_body(name=name)
            part.add_joint(name=name, type=mujoco.mjtJoint.mjJNT_SLIDE, axis=[0.0, side, 0.0])
            for x_m in places:
                _capsule(part, (x_m, 0.01 * side, 0.0, x_m, 0.03 * side, -0.11), 0.01)
        self._model: Any = spec.compile()
        self._data: Any = mujoco.MjData(self._model)
        self._renderer = MujocoRenderer(self._model, self._data, image_size, image_size, CAMERA, sites=False)
        self._bodies = [self._model.body(name).id for name in ("hand", "thumb", "fingers")]

    def observed(self, env: TaskVecEnv) -> dict[str, Picture | NDArray[np.float32]]:
        """Picture, mask, pose and opening of the hand where the gripper of the environment is."""
        tool, cube, opening_m = env.view.tool, env.view.object_pose("cube"), float(env.view.opening_m[0])
        for name, pose in (("hand", tool), ("cube", cube)):
            self._data.joint(name).qpos[:] = torch.cat([pose.m[0], pose.quat[0]]).numpy()
        for name in ("thumb", "fingers"):
            self._data.joint(name).qpos[:] = opening_m
        self._place()
        return {
            IMAGE: self._renderer.render(),
            MASK: np.isin(self._renderer.bodies(), self._bodies)[..., None].astype(np.uint8),
            "hand.position": tool.m[0].numpy().astype(np.float32),
            "hand.quat": tool.quat[0].numpy().astype(np.float32),
            "hand.opening": np.clip([opening_m / OPEN_M], 0.0, 1.0).astype(np.float32),
        }

    def without(self) -> Picture:
        """Picture of the last scene without the hand."""
        self._data.joint("hand").qpos[:3] = (0.0, 0.0, 100.0)
        self._place()
        picture: Picture = self._renderer.render()
        return picture

    def _place(self) -> None:
        mujoco.mj_kinematics(self._model, self._data)
        mujoco.mj_camlight(self._model, self._data)


def _capsule(body: Any, ends_m: Sequence[float], radius_m: float) -> None:
    body.add_geom(
        type=mujoco.mjtGeom.mjGEOM_CAPSULE, fromto=list(ends_m), size=[radius_m, 0.0, 0.0], rgba=list(SKIN)
    )


if __name__ == "__main__":
    main()
