"""`robo-rl collect`: the data do not depend on how they are recorded, and committed episodes are kept."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest

from robo_rl.apps import collect
from robo_rl.apps.collect import count_words, first_index
from robo_rl.core.errors import ConfigError, DataError, EnvError
from robo_rl.core.seeding import derive_seed
from robo_rl.data.episodes.reader import EpisodeStore
from robo_rl.data.validate import validate
from tests.apps.conftest import ENV, collect_config

ROOT = Path(__file__).resolve().parents[2]


def frames(folder: Path) -> list[bytes]:
    """State and action of every episode, as bytes."""
    return [episode.obs("state").tobytes() + episode.action.tobytes() for episode in EpisodeStore(folder)]


def test_collected_episodes_are_complete_and_successful(dataset: Path) -> None:
    """Seeds in order, a final observation, one reward at the end, labels, no fault for `validate`."""
    store = EpisodeStore(dataset)
    assert [episode.meta.seed for episode in store] == [derive_seed("collect", 0, i) for i in range(3)]
    for episode in store:
        assert episode.meta.success is True
        assert episode.has_final_obs
        assert episode.meta.info == {"by": "expert", "noise": 0.1}
        assert episode.reward[-1] == 1.0
        assert episode.reward[:-1].sum() == 0.0
        assert episode.terminated.tolist() == [False] * (episode.frames - 1) + [True]
        assert (np.abs(episode.action) <= 1.0).all()
    assert not [fault for fault in validate(dataset) if fault.severity == "error"]


def test_data_do_not_depend_on_lanes_or_interruptions(dataset: Path, tmp_path: Path) -> None:
    """One lane, two parts, a worker process: the same bytes, so a collection can be stopped and continued."""
    collect.main(collect_config(tmp_path / "a", num_envs=1, episodes=1))
    collect.main(collect_config(tmp_path / "a", num_envs=2, num_workers=1))
    assert frames(tmp_path / "a") == frames(dataset)
    collect.main(collect_config(tmp_path / "a"))  # nothing is missing, so nothing happens
    assert len(EpisodeStore(tmp_path / "a")) == 3


def test_other_settings_for_a_dataset_that_has_episodes_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A full dataset gets none, and one with room gets a mixture: both say what differs."""
    out = tmp_path / "data"
    collect.main(collect_config(out, episodes=1))
    assert "Note" not in capsys.readouterr().out
    collect.main(collect_config(out, episodes=1))
    said = capsys.readouterr().out
    assert f"nothing to record: {out} has 1 episode already. For more" in said
    collect.main(collect_config(out, episodes=1, noise=0.9, seed=77))
    said = capsys.readouterr().out
    assert "has 1 episode already (1 by the scripted expert with noise=0.1). For more, raise" in said
    assert "for episodes by the scripted expert with noise=0.9, choose another out=." in said
    collect.main(collect_config(out, episodes=2, noise=0.05))
    said = capsys.readouterr().out
    assert (
        f"Note: {out} has 1 episode already (1 by the scripted expert with noise=0.1). The new ones" in said
    )
    assert "The new ones are recorded by the scripted expert with noise=0.05." in said
    assert f"{out}: 2 episodes (1 new, of 1 tried)" in said


def test_failures_are_counted_but_not_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An expert that cannot succeed in 5 steps: a sentence after the permitted attempts; keep=all keeps
    them.
    """
    with pytest.raises(EnvError, match="None of 3 episodes succeeded, so none was recorded"):
        collect.main(collect_config(tmp_path / "none", max_episode_steps=5, attempts=3))
    assert len(EpisodeStore(tmp_path / "none")) == 0
    collect.main(collect_config(tmp_path / "all", max_episode_steps=5, keep="all"))
    store = EpisodeStore(tmp_path / "all")
    assert [episode.meta.success for episode in store] == [False] * 3
    assert not any(episode.terminated.any() for episode in store)
    said = capsys.readouterr().out
    assert "3 episodes kept of 3 tried, 0 successes in the dataset; 40 environment steps\n" in said
    assert "For successes, raise episodes=" in said
    assert "learn_from=all   (to learn from failures)" in said  # train refuses it otherwise
    collect.main(collect_config(tmp_path / "some", episodes=1, keep="all"))
    said = capsys.readouterr().out
    assert ", 1 success in the dataset" in said
    assert "learn_from" not in said


def test_a_dataset_without_episodes_takes_other_settings(tmp_path: Path) -> None:
    """Those that the refusal of a command whose episodes all failed advises; not beside files of others."""
    out = tmp_path / "data"
    with pytest.raises(EnvError, match="raise max_episode_steps="):
        collect.main(collect_config(out, max_episode_steps=5, attempts=3))
    (out / "notes.txt").touch()
    with pytest.raises(DataError, match="max_episode_steps: 5, expected 60"):
        collect.main(collect_config(out, max_episode_steps=60, episodes=1))
    (out / "notes.txt").unlink()
    assert collect.main(collect_config(out, max_episode_steps=60, episodes=1)) == 0
    assert [episode.success for episode in EpisodeStore(out)] == [True]
    assert EpisodeStore(out).spec.max_episode_steps == 60
    assert not [fault for fault in validate(out) if fault.severity == "error"]
    with pytest.raises(DataError, match="max_episode_steps: 60, expected 70"):
        collect.main(collect_config(out, max_episode_steps=70, episodes=2))


def test_a_policy_can_collect(run: Path, tmp_path: Path) -> None:
    """A policy's episodes depend on the number of lanes by rounding only: noise belongs to the episode.

    Without env= it acts in the environment in which it was trained.
    """
    for name, lanes in (("one", 1), ("three", 3)):
        options = {
            "env": None,
            "policy": str(run),
            "noise": None,
            "keep": "all",
            "max_episode_steps": 12,
            "num_envs": lanes,
        }
        collect.main(collect_config(tmp_path / name, **options))
    one, three = (
        np.concatenate([e.action for e in EpisodeStore(tmp_path / name)]) for name in ("one", "three")
    )
    np.testing.assert_allclose(one, three, atol=1e-5)


def test_an_expert_takes_over_from_a_policy(run: Path, tmp_path: Path) -> None:
    """The policy's actions until a step of the episode's own, at most 6; the expert's, marked, after it."""
    short = {"keep": "all", "max_episode_steps": 12, "num_envs": 3}
    collect.main(collect_config(tmp_path / "alone", policy=str(run), noise=None, **short))
    collect.main(collect_config(tmp_path / "both", takeover=0.5, takeover_from=str(run), noise=0.0, **short))
    for alone, both in zip(EpisodeStore(tmp_path / "alone"), EpisodeStore(tmp_path / "both"), strict=True):
        at = int((~both.intervention).sum())
        assert both.intervention.tolist() == [False] * at + [True] * (both.frames - at)
        assert at <= 6
        np.testing.assert_array_equal(both.action[:at], alone.action[:at])
        assert not np.allclose(both.action[at], alone.action[at], atol=1e-3)
        assert both.meta.info["begun_by"] == str(run)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"env": "metaworld/reech-v3"}, "Did you mean 'metaworld/reach-v3'"),
        ({"env": "pusht/state"}, "policy=<run>, your own data by DatasetWriter"),
        ({"env": "pusht/state"}, "robo-rl finetune env=pusht/state method=sac"),
        ({"device": "tpu", "policy": "x"}, "device=tpu"),
        ({"policy": "nowhere"}, "nowhere does not exist; the nearest existing folder is"),
        ({"reward": "shaped"}, "shaped"),
        ({"takeover": 0.5}, "takeover_from=, the policy that acts before the expert"),
        ({"takeover_from": "runs/base"}, "set takeover=, e.g. takeover=0.5"),
    ],
)
def test_mistakes_are_reported_and_leave_no_dataset(
    changes: dict[str, str], words: str, tmp_path: Path
) -> None:
    """A command that could not start leaves no empty dataset."""
    with pytest.raises(Exception, match=words) as caught:
        collect.main(collect_config(tmp_path / "data", **changes))
    assert getattr(caught.value, "exit_code", 1) >= 2
    assert not (tmp_path / "data").exists()


def test_dataset_of_another_task_is_refused(dataset: Path) -> None:
    """A dataset with episodes of two contracts could not be trained on."""
    with pytest.raises(DataError, match="name: metaworld/reach-v3, expected metaworld/push-v3"):
        collect.main(collect_config(dataset, env="metaworld/push-v3"))


def test_ctrl_c_keeps_committed_episodes(
    dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Committed episodes stay, and the same command continues to the same data as an uninterrupted one."""
    commit = collect.Collection._commit

    def interrupted(collection: collect.Collection, wanted: int, most: int) -> None:
        commit(collection, wanted, most)
        if collection.kept == 2:
            signal.raise_signal(signal.SIGINT)

    with monkeypatch.context() as patch:
        patch.setattr(collect.Collection, "_commit", interrupted)
        with pytest.raises(KeyboardInterrupt, match=r"2 of 3 episodes are in .*the same command continues"):
            collect.main(collect_config(tmp_path / "data", num_envs=1))
    assert len(EpisodeStore(tmp_path / "data")) == 2
    collect.main(collect_config(tmp_path / "data", num_envs=1))
    assert frames(tmp_path / "data") == frames(dataset)


@pytest.mark.slow
def test_ctrl_c_of_a_terminal_ends_the_workers(tmp_path: Path) -> None:
    """A real process group: code 130, a sentence, a valid dataset."""
    out = tmp_path / "data"
    command = ["collect", f"env={ENV}", f"out={out}", "episodes=500", "num_workers=1", "num_envs=2"]
    process = subprocess.Popen(
        [sys.executable, "-m", "robo_rl.apps.cli.main", *command],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    deadline_s = time.monotonic() + 90
    while not (out / "episodes" / "000001" / "episode.json").exists() and time.monotonic() < deadline_s:
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to the workers, too
    _, said = process.communicate(timeout=180)
    assert process.returncode == 130, said
    assert "Traceback" not in said
    assert "the same command continues" in said
    assert len(EpisodeStore(out)) >= 2
    assert not [fault for fault in validate(out) if fault.severity == "error"]


def test_more_workers_than_lanes_is_refused(tmp_path: Path) -> None:
    """More workers than lanes."""
    with pytest.raises(ConfigError, match="num_workers"):
        collect.main(collect_config(tmp_path / "data", num_envs=1, num_workers=2))


def test_rare_success_is_not_recorded_twice() -> None:
    """One success in hundreds of attempts: the same command continues after it, however far that is."""
    kept = [SimpleNamespace(meta=SimpleNamespace(seed=derive_seed("collect", 3, i))) for i in (2, 700)]
    elsewhere = SimpleNamespace(meta=SimpleNamespace(seed=derive_seed("collect", 4, 9)))
    assert first_index(3, cast(EpisodeStore, kept)) == 701
    assert first_index(3, cast(EpisodeStore, [*kept, elsewhere])) == 701
    assert first_index(3, cast(EpisodeStore, [])) == 0


@pytest.mark.parametrize(
    ("counts", "words"),
    [
        ((50, 50, 50), "50 episodes kept of 50 tried"),
        ((1, 1, 3), "1 episode kept of 3 tried"),
        ((80, 30, 33), "80 episodes (30 new, of 33 tried)"),
    ],
)
def test_the_result_says_how_many_were_kept(counts: tuple[int, int, int], words: str) -> None:
    """counts: episodes in the dataset, those that this call kept, and those it tried."""
    assert count_words(*counts) == words
