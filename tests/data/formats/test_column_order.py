"""Numbers of a LeRobot dataset reach the joint that has their name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from robo_rl.core.spec import ActionSpec, ArraySpec, EnvSpec
from robo_rl.data.formats.lerobot.reader import import_lerobot
from robo_rl.data.formats.lerobot.writer import export_lerobot
from robo_rl.data.store import EpisodeStore
from tests.data.recordings import record

pytest.importorskip("pyarrow")

NAMED = EnvSpec(
    "robot/two",
    {"state": ArraySpec((3,), "float32", "rad: base, elbow; m: x")},
    ActionSpec((-1.0, -2.0), (1.0, 2.0), "rad: base, elbow"),
    100,
    20.0,
)


def _named(tmp_path: Path, action: Any, state: Any, ours: bool) -> Path:
    """A LeRobot dataset that states these names."""
    source = tmp_path / "export"
    export_lerobot(record(tmp_path / "set", [4, 3], env=NAMED), source)
    if not ours:
        for name in ("robo_rl.json", "robo_rl_final.parquet"):
            (source / "meta" / name).unlink()
    info = json.loads((source / "meta/info.json").read_text())
    info["features"]["action"]["names"] = action
    info["features"]["observation.state"]["names"] = state
    (source / "meta/info.json").write_text(json.dumps(info))
    return source


@pytest.mark.parametrize("ours", [True, False])
@pytest.mark.parametrize(
    ("action", "state"),
    [
        (["elbow", "base"], ["x", "elbow", "base"]),
        (["elbow.pos", "base.pos"], ["x", "elbow.pos", "base.pos"]),
        ({"motors": ["elbow", "base"]}, {"goal": ["x"], "motors": ["elbow", "base"]}),
        ({"base": 1, "elbow": 0}, {"base": 2, "elbow": 1, "x": 0}),
    ],
)
def test_numbers_come_in_the_order_of_the_contract(
    action: Any, state: Any, ours: bool, tmp_path: Path
) -> None:
    """Otherwise joint 1 gets the command of another joint, without a message."""
    notes: list[str] = []
    import_lerobot(_named(tmp_path, action, state, ours), tmp_path / "out", env=NAMED, notes=notes)
    for one, other in zip(EpisodeStore(tmp_path / "set"), EpisodeStore(tmp_path / "out"), strict=True):
        np.testing.assert_array_equal(one.action[:, ::-1], other.action)
        rows = len(other.obs("state"))
        np.testing.assert_array_equal(one.obs("state")[:rows, ::-1], other.obs("state"))
        assert other.has_final_obs == ours
        assert other.success == one.success
    assert [note.partition("were ")[0] for note in notes] == [
        "The numbers of 'state' ", "The numbers of 'action' "
    ]  # fmt: skip


@pytest.mark.parametrize(("action", "words"), [(["a", "b"], "names them a, b"), (None, "does not name them")])
def test_other_names_are_said_and_positions_stay(action: Any, words: str, tmp_path: Path) -> None:
    notes: list[str] = []
    source = _named(tmp_path, action, ["base", "elbow", "x"], ours=False)
    import_lerobot(source, tmp_path / "out", env=NAMED, notes=notes)
    one, other = (EpisodeStore(tmp_path / name).episode(0) for name in ("set", "out"))
    np.testing.assert_array_equal(one.action, other.action)
    said = f"'action' are taken by position: the dataset {words}, and robot/two has base, elbow."
    assert [note for note in notes if said in note] == notes
    assert len(notes) == 1
