"""The dataset that the app records into: created with the robot's contract, or opened to add episodes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from hardware.description import RobotDescription
from hardware.loop.observation import IMAGE
from robo_rl.apps.imports.recordings_layout import described_camera, robot_spec
from robo_rl.apps.recording.episodes import Tally, tally_of
from robo_rl.conf.record import RecordingSettings
from robo_rl.core.spec import ROBOT_SUITE, EnvSpec
from robo_rl.data.episodes.dataset_writer import (
    DatasetWriter,
    check_contract_of,
    never_filled,
    refuse_taken,
)
from robo_rl.data.episodes.recover import recover
from robo_rl.data.episodes.schema import DATASET_JSON, STAMP_COLUMNS, Codec, DatasetMeta

SIMULATED = "sim_arm"  # the arm that the app simulates, with a peg and a block


@dataclass(frozen=True)
class OpenDataset:
    """A writer, the episodes that are there already, and sentences on what was salvaged."""

    writer: DatasetWriter
    tally: Tally
    salvaged: tuple[str, ...]

    def report_salvaged(self, tell: Callable[[str, str], None]) -> None:
        """Tell what was salvaged. tell: called with (sentence, level)."""
        for sentence in self.salvaged:
            tell(sentence, "warning")


def camera_names(cameras: str, robot: RobotDescription) -> tuple[str, ...]:
    """Cameras of the setting `cameras`. Raises ConfigError for one that the description lacks."""
    names = tuple(robot.cameras) if cameras == "auto" else tuple(name for name in cameras.split("+") if name)
    for name in names:
        described_camera(robot, IMAGE + name, "leave it out of cameras=")
    return names


def spec_of(config: RecordingSettings, robot: RobotDescription, simulated: bool) -> EnvSpec:
    """Contract of what is recorded; the same as that of imported recordings of this robot.

    simulated: the app's own simulator runs. Recordings of sim_arm then have the name of the environment with
    the same contract, in which their policies can be evaluated and fine-tuned.
    """
    pictures = [IMAGE + name for name in camera_names(config.cameras, robot)]
    spec = robot_spec(robot, pictures, config.image_width, config.velocities, "", config.rate_hz)
    name = environment_of(spec) if simulated and robot.name == SIMULATED else spec.name
    return replace(spec, name=name, max_episode_steps=max(1, round(config.longest_s * spec.control_hz)))


def environment_of(spec: EnvSpec) -> str:
    """Name of the simulated arm's environment with this contract; where there is none, that of the contract.

    A description of one's own may have other cameras and limits than the simulator.
    """
    from sim.arms.arm6.peg_cell import CAMERAS
    from sim.arms.arm6.peg_lane import PegLanes

    pictures = [key.removeprefix(IMAGE) for key in spec.obs if key.startswith(IMAGE)]
    if not set(pictures) <= set(CAMERAS):
        return spec.name
    lanes = PegLanes(
        cameras="+".join(pictures) or "none",
        velocities=spec.obs["state"].shape[0] > spec.action.dim,
        control_hz=spec.control_hz,
    )
    if pictures:
        lanes = replace(lanes, image_size=spec.obs[IMAGE + pictures[0]].shape[0])
    made = lanes.spec.for_datasets()
    return made.name if (made.obs, made.action) == (spec.obs, spec.action) else spec.name


def stamp_columns(spec: EnvSpec) -> tuple[str, ...]:
    """Stamps of each frame: capture, receipt and command, and capture and receipt of each picture."""
    pictures = [key for key in spec.obs if key.startswith(IMAGE)]
    return (
        *STAMP_COLUMNS,
        *(f"t_capture_ns.{key}" for key in pictures),
        *(f"t_receive_ns.{key}" for key in pictures),
    )


def longest_frames(config: RecordingSettings, spec: EnvSpec) -> tuple[int, str]:
    """Frames after which an episode ends by itself, and a sentence if that is not after `longest_s`.

    spec: of the dataset, whose episodes have at most `max_episode_steps` frames.
    """
    wanted, most = max(1, round(config.longest_s * spec.control_hz)), spec.max_episode_steps
    if wanted <= most:
        return wanted, ""
    return most, (
        f"Episodes of {config.out} end after {most / spec.control_hz:g} s, as it was created, not after "
        f"longest_s={config.longest_s:g}. For longer ones, record into another out= and merge the two."
    )


def opens(path: Path) -> bool:
    """True for a dataset to add episodes to; False if one is created there, which replaces one without any
    episode. Raises DataError if neither is possible.
    """
    if (path / DATASET_JSON).exists() and not never_filled(path):
        return True
    refuse_taken(path, renew=True)
    return False


def check_takes(path: Path, spec: EnvSpec) -> None:
    """Raise DataError if episodes of `spec` cannot be recorded into the folder `path`."""
    if opens(path):
        check_fits(path, spec)


def check_fits(path: Path, spec: EnvSpec) -> EnvSpec:
    """Contract of the dataset in `path`, which has its own longest episode. Raises DataError where its
    episodes have another contract than `spec`.
    """
    known = DatasetMeta.load(path).env
    if known.name == f"{ROBOT_SUITE}/{SIMULATED}":  # of a version without an environment
        spec = replace(spec, name=known.name)
    check_contract_of(path, known, replace(spec, max_episode_steps=known.max_episode_steps))
    return known


def open_dataset(config: RecordingSettings, spec: EnvSpec) -> OpenDataset:
    """Create the dataset, or open it and salvage what a killed app left. One without any episode is created
    again: an earlier app may have had other settings.

    Raises DataError if it holds episodes of another contract, LockedError while another process writes it,
    and DiskFullError below the floor.
    """
    path, floor = Path(config.out), round(config.min_free_gb * 1e9)
    if not opens(path):
        codec: Codec = "jpeg" if config.image_codec == "jpeg" else "raw"
        stamps = stamp_columns(spec)
        writer = DatasetWriter.create(
            path, spec, image_codec=codec, stamps=stamps, min_free_bytes=floor, renew=True
        )
        return OpenDataset(writer, Tally(), ())
    writer = DatasetWriter.open(path, check_fits(path, spec), min_free_bytes=floor)
    salvaged = [
        f"Episode {each.number} was interrupted: its {each.frames} frames were salvaged, without a label."
        for each in recover(path)
    ]
    return OpenDataset(writer, tally_of(path), tuple(salvaged))
