"""`robo-rl train data=[a,b]`: one policy of several datasets."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from robo_rl import api
from robo_rl.apps import train
from robo_rl.apps.training.train_data import dataset_paths
from robo_rl.core.errors import ConfigError, DataError
from robo_rl.core.spec import ActionSpec, ArraySpec, EnvSpec
from robo_rl.data.joined_windows import JoinedWindows
from robo_rl.data.merge import merge
from robo_rl.data.windows import WindowDataset, WindowSpec
from tests.apps.conftest import mean_pool, train_config
from tests.apps.training.test_learn_from import dataset
from tests.data.recordings import ENV, STATE_ENV

FEW = {"steps": 2, "checkpoint_every": 0, "log_every": 1}


def pair(folder: Path, env: EnvSpec) -> tuple[Path, Path]:
    """Two datasets of different length; some episodes of the second have failed."""
    return dataset(folder / "a", (True, None), env), dataset(folder / "b", (True, False, True), env)


@pytest.mark.parametrize("env", [STATE_ENV, ENV], ids=["states", "pictures"])
def test_two_datasets_are_learned_like_one_merged_from_them(env: EnvSpec, tmp_path: Path) -> None:
    """Bit for bit, with the normaliser, and with the failures left out of both."""
    parts = pair(tmp_path, env)
    merge(parts, tmp_path / "merged")
    both = f"[{parts[0]},{parts[1]}]"
    for data, out in ((both, "both"), (tmp_path / "merged", "one")):
        assert train.main(train_config(Path(str(data)), tmp_path / out, image=mean_pool(), **FEW)) == 0
    weights = [(tmp_path / out / "policy/weights.safetensors").read_bytes() for out in ("both", "one")]
    assert weights[0] == weights[1]
    note = json.loads((tmp_path / "both/policy/policy.json").read_text())["train"]["data"]
    assert note["path"] == both
    assert (note["episodes"], note["left_out"]["failed"]) == (4, 1)


@pytest.mark.parametrize("env", [STATE_ENV, ENV], ids=["states", "pictures"])
def test_the_true_state_of_one_dataset_is_no_difference(env: EnvSpec, tmp_path: Path) -> None:
    """Demonstrations recorded with privileged=true, and episodes without: the policy is the same."""
    known = replace(env, obs={**env.obs, "privileged.x": ArraySpec((2,))})
    with_state = dataset(tmp_path / "known", (True, None), known), dataset(tmp_path / "b", (True,), env)
    plain = dataset(tmp_path / "a", (True, None), env), tmp_path / "b"
    for data, out in ((with_state, "one"), (plain, "other")):
        config = train_config(Path(f"[{data[0]},{data[1]}]"), tmp_path / out, image=mean_pool(), **FEW)
        assert train.main(config) == 0
    weights = [(tmp_path / out / "policy/weights.safetensors").read_bytes() for out in ("one", "other")]
    assert weights[0] == weights[1]


def test_the_python_interface_takes_a_list(tmp_path: Path) -> None:
    parts = pair(tmp_path, STATE_ENV)
    run = api.train(data=parts, out=tmp_path / "run", device="cpu", steps=1)
    assert json.loads((run.path / "data.json").read_text())["episodes"] == 4


def test_joined_windows_are_those_of_their_datasets(tmp_path: Path) -> None:
    """In any order, one by one and in batches."""
    spec = WindowSpec(2, 3)
    parts = [WindowDataset(path, spec) for path in pair(tmp_path, ENV)]
    joined = JoinedWindows(parts)
    assert len(joined) == sum(map(len, parts))
    mixed = [len(parts[0]), 1, len(joined) - 1, 0, len(parts[0]) - 1]
    batch = joined.gather(mixed)
    for row, index in enumerate(mixed):
        second = index >= len(parts[0])
        expected = parts[second][index - len(parts[0]) * second]
        for key, value in joined[index].items():
            assert torch.equal(value, expected[key])
            assert torch.equal(batch[key][row], expected[key])


def test_datasets_of_different_spaces_are_refused(tmp_path: Path) -> None:
    """One sentence that names what differs. Another name or episode length is no difference."""
    first = dataset(tmp_path / "a", (True,))
    other_actions = ActionSpec((-2.0, -1.0), (2.0, 1.0), STATE_ENV.action.unit)
    for name, env in (
        ("limits", replace(STATE_ENV, action=other_actions)),
        ("rate", replace(STATE_ENV, control_hz=2.0 * STATE_ENV.control_hz)),
    ):
        data = Path(f"[{first},{dataset(tmp_path / name, (True,), env)}]")
        with pytest.raises(DataError, match=r"cannot be trained on together .*train one policy for each"):
            train.main(train_config(data, tmp_path / "run", **FEW))
    alike = replace(STATE_ENV, name="another/task", max_episode_steps=STATE_ENV.max_episode_steps + 1)
    data = Path(f"[{first},{dataset(tmp_path / 'alike', (True,), alike)}]")
    assert train.main(train_config(data, tmp_path / "run", **FEW)) == 0


def test_paths_of_data() -> None:
    assert dataset_paths("data/a") == ["data/a"]
    assert dataset_paths("[data/a, 'data/b']") == ["data/a", "data/b"]
    with pytest.raises(ConfigError, match="twice"):
        dataset_paths("[data/a,data/../data/a]")
    with pytest.raises(ConfigError, match="empty folder"):
        dataset_paths("[data/a,]")
