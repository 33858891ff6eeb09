"""`robo-rl overlay`: the robot in the place of the hand, whole episodes only, refusals in one sentence."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from shutil import rmtree
from typing import Any

import numpy as np
import pytest

from robo_rl.apps import overlay
from robo_rl.conf.datasets.overlay import OverlayConfig
from robo_rl.core.errors import ConfigError, DataError, RoboRLError, UnknownNameError
from robo_rl.core.spec import ActionSpec, ArraySpec, EnvSpec
from robo_rl.data.episodes.schema import Codec
from robo_rl.data.store import DatasetWriter, EpisodeStore, EpisodeWriter
from robo_rl.data.validate import validate

SIDE_PX, SKIN = 24, (222, 158, 122)
PICTURE, MASK = ArraySpec((SIDE_PX, SIDE_PX, 3), "uint8"), ArraySpec((SIDE_PX, SIDE_PX, 1), "uint8")
OBS = {
    "image.front": PICTURE,
    "mask.front": MASK,
    "state": ArraySpec((2,)),
    "hand.position": ArraySpec((3,), unit="m: x, y, z"),
    "hand.quat": ArraySpec((4,)),
    "hand.opening": ArraySpec((1,)),
}
CAMERA = {"position_m": [1.3, 0.0, 0.35], "quat": [0.5, 0.5, 0.5, 0.5], "fovy_rad": math.radians(50.0)}


def record_hands(
    path: Path,
    frames: Sequence[int] = (4, 3),
    leave_out: Sequence[str] = (),
    skin: tuple[int, int, int] = SKIN,
    codec: Codec = "raw",
    **hand: Any,
) -> Path:
    """Episodes of these lengths in which a square in the colour of skin moves over grey noise."""
    rng = np.random.default_rng(0)
    obs = {key: array for key, array in OBS.items() if key not in leave_out}
    spec = EnvSpec("robot/hands", obs, ActionSpec((-1.0,), (1.0,)), 10, 10.0)
    writer = DatasetWriter.create(path, spec, image_codec=codec, stamps=("t_capture_ns",), durable=False)
    background = np.repeat(rng.integers(90, 160, (SIDE_PX, SIDE_PX, 1), np.uint8), 3, -1)
    for number, length in enumerate(frames):
        with writer.episode(task="wipe", seed=number, info={"person": "ann"}) as episode:
            for i in range(length + 1):
                mask = np.zeros((SIDE_PX, SIDE_PX, 1), np.uint8)
                mask[2:6, 4 * i : 4 * i + 4] = 255
                made: dict[str, Any] = {
                    "image.front": np.where(mask > 0, np.array(skin, np.uint8), background),
                    "mask.front": mask,
                    "state": (number, i),
                    "hand.position": (0.5, -0.1 + 0.05 * i, 0.3),
                    "hand.quat": (0.0, 1.0, 0.0, 0.0),
                    "hand.opening": (0.5,),
                } | hand
                seen = {key: made[key] for key in obs}
                if i < length:
                    episode.add(seen, [0.1 * i], reward=i, stamps={"t_capture_ns": 100 + i})
                else:
                    episode.commit(success=True, final_obs=seen)
    writer.close()
    (path / "camera.front.yaml").write_text(json.dumps(CAMERA))
    return path


def config(data: Path, out: Path, **changes: Any) -> OverlayConfig:
    return OverlayConfig(**{"data": str(data), "robot": "arm6", "out": str(out)} | changes)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return record_hands(tmp_path_factory.mktemp("data") / "hands")


def test_the_pictures_hold_the_robot_and_all_else_stays(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """No skin is left, the robot's blue links are there, and the mask is dropped."""
    assert overlay.main(config(data, tmp_path / "out")) == 0
    said = capsys.readouterr().out
    assert "arm6 cannot reach the hand in 0 of 9 frames." in said
    assert "robo-rl pretrain" in said
    made = EpisodeStore(tmp_path / "out")
    assert validate(tmp_path / "out") == []
    assert set(made.spec.obs) == set(OBS) - {"mask.front"}
    for one, two in zip(EpisodeStore(data), made, strict=True):
        before, after = one.obs("image.front"), two.obs("image.front")
        assert (before == SKIN).all(-1).any()
        assert not (after == SKIN).all(-1).any()
        blue = (after[..., 2] > after[..., 0].astype(int) + 40).reshape(len(after), -1)
        assert blue.any(1).all()
        assert (two.meta.success, two.meta.task, two.meta.seed) == (True, "wipe", one.meta.seed)
        assert two.meta.info == {"person": "ann", "overlay_of": one.number}
        for key in made.spec.obs:
            if key != "image.front":
                np.testing.assert_array_equal(one.obs(key), two.obs(key))
        for name in ("action", "reward", "terminated", "intervention", "stamps_ns"):
            np.testing.assert_array_equal(one.array(name), two.array(name))


def test_a_hand_without_masks_is_found_by_its_colour(data: Path, tmp_path: Path) -> None:
    """The same pictures as with masks."""
    plain = record_hands(tmp_path / "plain", leave_out=["mask.front"])
    for source, out in ((data, tmp_path / "masks"), (plain, tmp_path / "colour")):
        overlay.main(config(source, out))
    for one, two in zip(EpisodeStore(tmp_path / "masks"), EpisodeStore(tmp_path / "colour"), strict=True):
        np.testing.assert_array_equal(one.obs("image.front"), two.obs("image.front"))


def test_jpeg_pictures_stay_jpeg(data: Path, tmp_path: Path) -> None:
    """With the losses of two compressions."""
    overlay.main(config(data, tmp_path / "raw"))
    overlay.main(config(record_hands(tmp_path / "hands", codec="jpeg"), tmp_path / "jpeg"))
    raw, lossy = (EpisodeStore(tmp_path / name) for name in ("raw", "jpeg"))
    assert lossy.meta.image_codec == "jpeg"
    one, two = (store.episode(0).obs("image.front").astype(int) for store in (raw, lossy))
    assert np.abs(one - two).mean() < 8.0


def test_frames_out_of_reach_are_counted_and_too_many_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The links behind the shoulder are 0.76 m long, and the hand is 0.747, 0.748, 0.753 and 0.762 m away."""
    hands = record_hands(tmp_path / "hands", [3], leave_out=["hand.quat"])
    overlay.main(config(hands, tmp_path / "out", base_m=[-0.24, -0.1, 0.0], tolerance_m=0.001))
    assert "1 of 4 frames, the nearest pose is drawn." in capsys.readouterr().out
    with pytest.raises(DataError, match=r"arm6 cannot reach the hand in 4 of 4 frames of .* by base_m="):
        overlay.main(config(hands, tmp_path / "none", base_m=[-3.0, 0.0, 0.0]))
    assert not (tmp_path / "none").exists()


def test_an_interrupted_run_leaves_whole_episodes_and_continues(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stopped inside the second episode, it holds the first; the same command adds the second alone."""
    out, add = tmp_path / "out", EpisodeWriter.add

    def stopping(writer: EpisodeWriter, *given: Any, reward: float, **more: Any) -> None:
        if writer.info["overlay_of"] == 1 and reward == 2:
            raise KeyboardInterrupt
        add(writer, *given, reward=reward, **more)

    monkeypatch.setattr(EpisodeWriter, "add", stopping)
    with pytest.raises(KeyboardInterrupt, match=r"1 of 2 episodes are in .*; the same command continues"):
        overlay.main(config(data, out))
    first = EpisodeStore(out).episode(0).path / "episode.json"
    assert len(EpisodeStore(out)) == 1
    assert staged(out)
    before = first.stat().st_mtime_ns
    monkeypatch.undo()
    overlay.main(config(data, out))
    assert [episode.frames for episode in EpisodeStore(out)] == [4, 3]
    assert not staged(out)
    assert first.stat().st_mtime_ns == before
    overlay.main(config(data, out))  # nothing is left to do
    assert len(EpisodeStore(out)) == 2


def staged(out: Path) -> list[Path]:
    """Unfinished episodes."""
    return [path for path in (out / "staging").iterdir() if path.is_dir()]


def test_another_run_is_not_continued(data: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    overlay.main(config(data, out))
    with pytest.raises(DataError, match=r"begun with other settings \(robot, fill\)"):
        overlay.main(config(data, out, robot="panda", fill="telea"))
    with pytest.raises(DataError, match="robo-rl overlay has not made"):
        overlay.main(config(data, data))
    copy = record_hands(tmp_path / "hands", [4, 2])
    other = tmp_path / "other"
    overlay.main(config(copy, other))
    rmtree(copy)
    record_hands(copy, [4, 3])
    with pytest.raises(DataError, match=r"has changed since .* episode 1 had 2 frames, now 3"):
        overlay.main(config(copy, other))


@pytest.mark.parametrize(
    ("made", "changes", "kind", "says"),
    [
        ({"leave_out": ["hand.position"]}, {}, DataError, "has no observation hand.position, only image"),
        ({"leave_out": ["hand.opening"]}, {}, DataError, "has no observation hand.opening"),
        ({"leave_out": ["image.front"]}, {}, DataError, "holds no pictures"),
        ({"frames": []}, {}, DataError, "holds no episodes"),
        ({"hand.position": (np.nan, 0, 0)}, {}, DataError, "hand.position of frame 0 .* is not finite"),
        ({"hand.opening": (5.0,)}, {}, DataError, "hand.opening of frame 0 .* is 5; expected 0"),
        ({"hand.quat": (0, 0, 0, 0)}, {}, DataError, "hand.quat of frame 0 .* is zero"),
        (
            {"leave_out": ["mask.front"], "skin": (10, 20, 200)},
            {},
            DataError,
            "has no mask.front, and none of its pixels is in the range hsv_low=",
        ),
        ({}, {"camera": "top"}, ConfigError, "camera= top cannot be used: the cameras in .* are front."),
        ({}, {"camera_file": "nowhere.yaml"}, ConfigError, "There is no file nowhere.yaml"),
        ({}, {"robot": "arm7"}, UnknownNameError, "Unknown robot 'arm7'"),
        ({}, {"hsv_low": [1, 2]}, ConfigError, "hsv_low=.* has 2 numbers, expected 3"),
        ({}, {"grow_px": -1}, ConfigError, "grow_px=-1"),
    ],
)
def test_bad_input_is_refused_in_one_sentence(
    made: dict[str, Any], changes: dict[str, Any], kind: type[RoboRLError], says: str, tmp_path: Path
) -> None:
    hands = record_hands(tmp_path / "hands", **made)
    with pytest.raises(kind, match=says):
        overlay.main(config(hands, tmp_path / "out", **changes))
    if (tmp_path / "out").exists():
        assert len(EpisodeStore(tmp_path / "out")) == 0
