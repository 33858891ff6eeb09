"""`robo-rl data import` of a replay buffer of one's own robot, with its description and without a
simulator.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import yaml
import zarr

from robo_rl.apps.cli.main import main
from robo_rl.apps.imports import data_import
from robo_rl.core.spec import ActionSpec, ArraySpec, EnvSpec
from robo_rl.data.store import EpisodeStore
from tests.data.recordings import record

JOINTS = ("base", "elbow")
KEYS = "keys=['state:data/joints','action:data/target']"


@pytest.fixture
def robot(tmp_path: Path) -> str:
    joint = {"low_rad": -1.0, "high_rad": 2.0, "velocity_rad_s": 2.0, "acceleration_rad_s2": 20.0}
    body = {
        "name": "mine",
        "command_hz": 50,
        "state_hz": 100,
        "joints": [{"name": n, **joint} for n in JOINTS],
    }
    camera = {"top": {"width_px": 4, "height_px": 2, "rate_hz": 10}}
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(body | {"cameras": camera}))
    return str(tmp_path / "mine.yaml")


@pytest.fixture
def buffer(tmp_path: Path) -> str:
    """Two episodes of 3 and 4 frames: 2 joint angles and velocities, targets, and one camera."""
    group = zarr.open_group(tmp_path / "buffer.zarr", mode="w", zarr_format=2)
    group.create_array("data/joints", data=np.arange(28, dtype="float32").reshape(7, 4) / 28)
    group.create_array("data/target", data=np.linspace(-1, 2, 14, dtype="float32").reshape(7, 2))
    group.create_array("data/rgb", data=np.full((7, 2, 4, 3), 9, "uint8"))
    group.create_array("meta/episode_ends", data=np.array([3, 7]))
    return str(tmp_path / "buffer.zarr")


def _import(*words: str) -> int:
    return main(["data", "import", *words])


def test_import_of_a_buffer_with_a_robot_description(
    buffer: str, robot: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Limits, units and rate are those of the description, which is said of the rate; the width of the state
    shows that it has velocities.
    """
    assert _import(f"source={buffer}", f"robot={robot}", KEYS, f"out={tmp_path / 'set'}") == 0
    rate = f"The source states no rate. That of the description of {robot} was taken for it: 50 Hz. If it is"
    assert rate in capsys.readouterr().out
    spec = EpisodeStore(tmp_path / "set").spec
    assert (spec.name, spec.control_hz, spec.max_episode_steps) == ("robot/mine", 50.0, 4)
    assert spec.obs["state"].unit == "rad: base, elbow; rad/s: base, elbow"
    assert (spec.action.low, spec.action.high, spec.action.unit) == (
        (-1.0, -1.0),
        (2.0, 2.0),
        "rad: base, elbow",
    )
    assert main(["data", "validate", f"path={tmp_path / 'set'}"]) == 0


def test_keys_select_the_pictures(buffer: str, robot: str, tmp_path: Path) -> None:
    """Size and rate are those of the camera's description; a missing camera is named."""
    keys = KEYS.replace("]", ",'image.CAMERA:data/rgb']")
    given = [f"source={buffer}", f"robot={robot}", f"out={tmp_path / 'set'}"]
    assert _import(*given, keys.replace("CAMERA", "top")) == 0
    spec = EpisodeStore(tmp_path / "set").spec
    assert (spec.obs["image.top"].shape, spec.control_hz) == ((2, 4, 3), 10.0)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([KEYS.replace("joints", "q")], "has no array 'data/q'. It has data/joints, "),
        (
            [KEYS.replace("]", ",'image.side:data/rgb']")],
            "The camera 'side' is not in the description of 'mine', which has top: add it there, with "
            "width_px, height_px and rate_hz, or leave it out or rename it by keys=.",
        ),
        (["keys=[action:data/target]"], "keys names no array of the state. Add state:data/<array>; "),
        ([KEYS, "gap_s=1"], "gap_s= does not apply to a replay buffer"),
        (
            [KEYS, "velocities=false"],
            "'state' is float32[4], the contract expects float32[2]. Choose another env=, robot= or keys=.",
        ),
        ([KEYS.replace("target", "joints")], "'action' is float32[4], the contract expects float32[2]. Cho"),
        ([KEYS.replace("]", ",reward:data/joints]")], "'reward' has the shape [4] per frame, expected one n"),
        ([], "/buffer.zarr for each key of "),
    ],
)
def test_mistakes_print_one_sentence(
    words: list[str], said: str, buffer: str, robot: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _import(f"source={buffer}", f"robot={robot}", f"out={tmp_path / 'set'}", *words) == 2
    err = capsys.readouterr().err
    assert said in err
    assert "import: 0episode" not in err  # the empty progress bar was printed twice before the sentence
    assert not (tmp_path / "set").exists()


def test_the_rate_of_an_environment_is_named(
    buffer: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    state = {"state": ArraySpec((4,), "float32")}
    spec = EnvSpec("arm/two", state, ActionSpec((-1.0, -1.0), (2.0, 2.0), ""), 9, 30.0)
    monkeypatch.setattr(data_import, "_simulated", lambda env: spec)
    assert _import(f"source={buffer}", "env=arm/two", KEYS, f"out={tmp_path / 'set'}") == 0
    said = "The source states no rate. That of arm/two was taken for it: 30 Hz."
    assert said in capsys.readouterr().out


def test_import_of_a_buffer_without_robot_and_environment(buffer: str, tmp_path: Path) -> None:
    """The contract is inferred from the arrays; limits are 5 % wider than the actions, from -1 to 2."""
    keys = KEYS.replace("]", ",'image.top:data/rgb']")
    assert _import(f"source={buffer}", keys, "rate_hz=20", f"out={tmp_path / 'set'}") == 0
    store = EpisodeStore(tmp_path / "set")
    assert (store.spec.name, store.spec.control_hz, store.spec.max_episode_steps) == ("robot/buffer", 20.0, 4)
    shapes = {key: (spec.shape, spec.dtype) for key, spec in store.spec.obs.items()}
    assert shapes == {"state": ((4,), "float32"), "image.top": ((2, 4, 3), "uint8")}
    low = np.array([-1.0, -1.0 + 3 / 13])
    np.testing.assert_allclose(store.spec.action.low, low - 0.05 * 36 / 13, rtol=1e-6)
    assert [episode.frames for episode in store] == [3, 4]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([KEYS], "states no rate. Give rate_hz=<frames per second>"),
        (["rate_hz=20"], "/buffer.zarr for each key: keys="),
        (["rate_hz=20", "keys=['state:data/joints']"], "keys names no array of actions. Add action:data/"),
        (["rate_hz=20", "keys=['action:data/target']"], "has no observations"),
        (
            ["rate_hz=20", KEYS.replace("joints", "q")],
            "has no array 'data/q'. It has data/joints, data/rgb, data/target. Name one of these in keys=.",
        ),
        ([KEYS, "goal=m"], "goal= does not apply to a replay buffer without robot="),
    ],
)
def test_mistakes_without_robot_and_environment(
    words: list[str], said: str, buffer: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _import(f"source={buffer}", f"out={tmp_path / 'set'}", *words) == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "set").exists()


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("demo.npz", "is a numpy file, which is not read."),
        ("plain", "is in no format that is read: expected recordings"),
        ("script.py", "is in no format that is read: expected recordings"),
        ("logs", "is an export for the Rerun viewer, which no program imports."),
        ("mine.zarr", "is not a replay buffer"),
    ],
)
def test_other_sources_are_named_without_errors_of_zarr(
    name: str, expected: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """All but the last were called broken replay buffers, whatever the user meant to import."""
    if name == "demo.npz":
        np.savez(tmp_path / name, state=np.zeros(3))
    elif name == "script.py":
        (tmp_path / name).write_text("print()")
    else:
        (tmp_path / name).mkdir()
    if name == "logs":
        (tmp_path / name / "000000.rrd").write_bytes(b"RRF2")
    assert _import(f"source={tmp_path / name}", f"out={tmp_path / 'set'}") == 2
    said = capsys.readouterr().err
    assert expected in said
    assert "PosixPath" not in said


@pytest.mark.parametrize(
    ("source", "advice"),
    [
        (
            "lerobot/svla_so100",
            "hf download lerobot/svla_so100 --repo-type dataset --local-dir downloads/svla_so100, then "
            "robo-rl data import source=downloads/svla_so100 robot=sim_arm out=",
        ),
        ("here/is/nothing", None),
        ("./nothing", None),
        ("downloads/nothing", None),
    ],
)
def test_a_missing_source_that_may_be_of_the_hub_is_downloaded_first(
    source: str,
    advice: str | None,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """`data import` reads files only. A name in a folder that exists is not one of the Hub."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "downloads").mkdir()
    assert _import(f"source={source}", "robot=sim_arm", f"out={tmp_path / 'set'}") == 2
    said = capsys.readouterr().err
    assert f"source={source} does not exist. Give a folder of recordings" in said
    assert "a LeRobot or RLDS folder" in said
    assert ("hf download" in said) == (advice is not None)
    assert (advice or "") in said


@pytest.mark.parametrize(("out", "said"), [("set", "exists already."), ("file/set", "is a file, expected")])
def test_a_wrong_out_stops_the_import_before_the_source_is_read(
    out: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The contract of a foreign dataset needs all of its actions; reading them may take an hour."""
    (tmp_path / "set").mkdir()
    (tmp_path / "file").write_text("")
    (tmp_path / "broken" / "meta").mkdir(parents=True)
    (tmp_path / "broken" / "meta" / "info.json").write_text("{")  # would be the first complaint
    assert _import(f"source={tmp_path / 'broken'}", f"out={tmp_path / out}") == 2
    assert said in capsys.readouterr().err


def test_a_group_of_zarr_format_3_needs_no_suffix(
    robot: str, buffer: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Such a buffer with robot= was called no recordings."""
    group = zarr.open_group(tmp_path / "plain", mode="w", zarr_format=3)
    old = zarr.open_group(buffer, mode="r")
    for name in ("data/joints", "data/target", "meta/episode_ends"):
        group.create_array(name, data=old[name][:])
    assert _import(f"source={tmp_path / 'plain'}", f"robot={robot}", KEYS, f"out={tmp_path / 'set'}") == 0
    assert len(EpisodeStore(tmp_path / "set")) == 2


def test_a_dataset_of_our_own_needs_no_import(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It was taken for a replay buffer, whose keys were asked for."""
    record(tmp_path / "set", [2])
    assert _import(f"source={tmp_path / 'set'}", "env=arm6/reach", f"out={tmp_path / 'out'}") == 2
    said = capsys.readouterr().err
    assert f"is a dataset of robo-rl, which needs no import: robo-rl train data={tmp_path / 'set'}." in said
