"""Outputs of `robo-rl vision`: results.json, plots, a video with its camera image, the bundle."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from policies.checkpoint import load_policy, read_policy_json
from policies.deploy.bundle_writer import write_bundle
from policies.flight.vision import IMAGE, STATE, VisionPolicy
from robo_rl.eval.flight.flight_plots import write_flight_plots
from robo_rl.eval.video import VideoWriter, caption
from robo_rl.flight.fly.report import flight_log, write_results
from robo_rl.flight.fly.table import LABELS
from robo_rl.flight.rows import FlyRow
from robo_rl.flight.transfer.film import FPS, inset, poses_of, viewpoint
from robo_rl.runs.run_dir import RunDir
from sim.engines.bullet.floor_view import FloorView
from sim.flight.trial import Trial

if TYPE_CHECKING:
    from robo_rl.conf.vision import VisionConfig
    from robo_rl.flight.vision.training import VisionSetup

SIZE = (640, 480)
_ENLARGED = 192  # side of the onboard image in the video [pixels]


def write_outputs(
    config: VisionConfig, setup: VisionSetup, run: RunDir, rows: list[FlyRow], trials: dict[str, Trial]
) -> str:
    """Write all files of the run; returns a line with their names."""
    out = run.path
    write_results(out / "results.json", config, rows)
    logs = [flight_log(setup.task, name, trial) for name, trial in trials.items()]
    write_flight_plots(
        out / "flight.png", logs, f"hover by camera: {setup.craft.name}, {config.eval_episodes} starts"
    )
    if config.video:
        film(out / "flight.mp4", setup, trials["policy"])
    policy = load_policy(run.policy)
    assert isinstance(policy, VisionPolicy)
    note = read_policy_json(run.policy)["train"]
    write_bundle(
        out / "bundle",
        policy,
        policy.env,
        name=f"vision-hover-{setup.craft.name}",
        noise="zero",
        training=note,
        measured=note["measured"] | {"env": policy.env.name, "noise": 0.0},
        rates_hz={IMAGE: config.camera_hz, STATE: policy.env.control_hz},
        example=_example(policy),
    )
    return f"Pictures: {out}/flight.png{', flight.mp4' if config.video else ''}; bundle: {out}/bundle"


def film(path: Path, setup: VisionSetup, trial: Trial) -> Path:
    """Film drone 0 in real time from outside, with its enlarged camera image in the corner."""
    poses = poses_of(trial)
    outside, onboard = (FloorView(setup.eye, -setup.scene.height_m) for _ in range(2))
    outside.show(setup.craft)
    middle, eye = viewpoint(poses.position_m)
    every = max(1, round(1.0 / (FPS * setup.task.dt_s)))
    with VideoWriter(path, 1.0 / (every * setup.task.dt_s)) as writer:
        for i in range(0, poses.position_m.shape[1], every):
            place, turn = poses.position_m[:, i], poses.turn[:, :, i]
            scene = outside.from_outside(place, poses.quat_wxyz[:, i], eye, middle, *SIZE)
            seen = onboard.look(place[:, None], turn[:, :, None], np.ones(1, dtype=bool))[0]
            scale = max(1, _ENLARGED // setup.eye.px)
            large = np.repeat(np.repeat(seen, scale, 0), scale, 1)[..., None].repeat(3, 2)
            error_cm = 100.0 * float(np.linalg.norm(place))
            writer.add(
                caption(inset(scene, large), f"{LABELS['policy']} | its camera in the corner",
                        f"{(i + 1) * setup.task.dt_s:.2f} s, {error_cm:.1f} cm", None)
            )  # fmt: skip
    outside.close()
    onboard.close()
    return path


def _example(policy: VisionPolicy) -> dict[str, torch.Tensor]:
    """Observations for the comparison of graph and torch: noise images, level flight."""
    rng = torch.Generator().manual_seed(0)
    image = torch.randint(0, 256, (8, 1, *policy.obs_spec[IMAGE].shape), generator=rng, dtype=torch.uint8)
    state = 0.1 * torch.randn(8, 1, *policy.obs_spec[STATE].shape, generator=rng)
    state[..., 2] = 1.0
    return {IMAGE: image, STATE: state}
