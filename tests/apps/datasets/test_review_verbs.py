"""`robo-rl data list|show|stats|edit|repair|replay` end to end."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import av
import cv2
import numpy as np
import pytest
import torch

from robo_rl.apps.cli.main import main
from robo_rl.data.edit.listing import list_episodes
from robo_rl.data.review.one_episode import episode_at
from robo_rl.data.review.replay_difference import replay_differences
from robo_rl.data.store import DatasetWriter
from tests.data.recordings import STATE_ENV, add_frames, interrupt, record


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return record(tmp_path_factory.mktemp("review") / "set", [12, 5], codec="jpeg")


def test_list_shows_every_episode(dataset: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "list", f"path={dataset}"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split()[:6] == ["000000", "12", "0.6", "yes", "6", "(6)"]
    assert "human frames (parts)" in lines[0]
    assert "2 episodes, 1/2 successful" in lines[3]
    assert main(["data", "list", f"path={dataset}", "--json"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(row["number"], row["frames"], row["interventions"]) for row in rows] == [(0, 12, 6), (1, 5, 2)]


def test_an_episode_without_its_facts_is_deleted_by_the_printed_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`data list` and the error name commands that run as they are printed."""
    path = record(tmp_path / "a set", [3, 4], env=STATE_ENV)
    (path / "episodes/000000/episode.json").unlink()
    assert main(["data", "list", f"path={path}"]) == 0
    assert shlex.split(capsys.readouterr().out)[-3:] == ["repair", f"path={path}", "dry_run=true"]
    assert main(["data", "info", f"path={path}"]) == 2
    advice = shlex.split(capsys.readouterr().err.partition("delete it: robo-rl ")[2])
    assert main(advice) == 0
    assert main(["data", "info", f"path={path}"]) == 0


def test_list_says_what_is_recorded_now_and_what_was_interrupted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line says what waits in staging/ and what to do; a copy without the empty folder is listed, too."""

    def listed() -> str:
        assert main(["data", "list", f"path={path}"]) == 0
        assert main(["data", "info", f"path={path}"]) == 0
        return capsys.readouterr().out

    path = record(tmp_path / "set", [3], env=STATE_ENV)
    assert "staging" not in listed()
    with closing(DatasetWriter.open(path, min_free_bytes=0)) as writer:
        with writer.episode() as episode:
            add_frames(episode, 1, 3, STATE_ENV)
            assert listed().count("1 episode, one being recorded now") == 2
            episode.discard()
        interrupt(writer, 1, 3, STATE_ENV)
    assert (
        listed().count(f"1 episode, interrupted. Recover: robo-rl data validate path={path} recover=true")
        == 2
    )
    shutil.rmtree(path / "staging")
    assert "staging" not in listed()


def test_a_dollar_in_a_name_is_a_letter(tmp_path: Path) -> None:
    """Two of them made matplotlib read a formula, and `$\\no$` ended the command with a traceback."""
    env = replace(STATE_ENV, action=replace(STATE_ENV.action, unit=r"rad: $\no$, $x$"))
    writer = DatasetWriter.create(tmp_path / "set", env, min_free_bytes=0)
    with closing(writer), writer.episode(task=r"press $\no$", seed=0) as episode:
        add_frames(episode, 0, 4, env)
        episode.commit(success=True)
    assert main(["data", "show", f"path={tmp_path / 'set'}", f"out={tmp_path / 'a.png'}"]) == 0


def test_show_writes_text_a_picture_and_a_video(
    dataset: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The picture has curves and images; the video one frame per observation."""
    assert main(["data", "show", f"path={dataset}", f"out={tmp_path / 'a.png'}"]) == 0
    assert "12 frames, 0.6 s at 20 Hz" in capsys.readouterr().out
    picture = cv2.imread(str(tmp_path / "a.png"))
    assert picture is not None
    assert picture.shape[1] > 1000
    assert main(["data", "show", f"path={dataset}", "episode=1", f"out={tmp_path / 'a.mp4'}"]) == 0
    with av.open(str(tmp_path / "a.mp4")) as video:
        assert sum(1 for _ in video.decode(video=0)) == 6
    assert main(["data", "show", f"path={dataset}", "episode=9"]) == 2
    assert "no episode 9" in capsys.readouterr().err
    assert main(["data", "show", f"path={dataset}", "out=x.gif"]) == 2


def test_stats_are_those_of_the_arrays(dataset: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "stats", f"path={dataset}", "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    action = np.concatenate([episode_at(dataset, i).action for i in range(2)])
    for i, row in enumerate(found["numbers"]["action"]):
        assert (row["min"], row["max"]) == pytest.approx((action[:, i].min(), action[:, i].max()))
        assert row["mean"] == pytest.approx(action[:, i].mean(), abs=1e-6)
    assert found["at_limit"][1] == pytest.approx(np.mean(np.abs(action[:, 1]) >= 2.0 - 0.04))
    assert set(found["images"]) == {"image.front", "image.wrist"}
    assert main(["data", "stats", f"path={dataset}"]) == 0
    assert "2 episodes" not in (text := capsys.readouterr().out)
    assert "success: 1 yes, 1 no" in text


def test_stats_leave_out_rows_that_are_not_finite(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One bad row makes no column unknown, and is named."""
    path = record(tmp_path / "set", [3], env=STATE_ENV)
    with closing(DatasetWriter.open(path, min_free_bytes=0)) as writer, writer.episode() as episode:
        for i in range(4):
            bad = np.nan if i == 2 else 0.0
            episode.add({"state": np.array([bad, 0, 0], np.float32)}, [0.0, 0.0], reward=bad)
        episode.commit()
    assert main(["data", "stats", f"path={path}"]) == 0
    said = capsys.readouterr().out
    assert "'state' is not finite in 1 row, first in row 2 of episode 000001: left out here." in said
    assert "'reward' is not finite in 1 row" in said
    assert "nan" not in said.replace("not finite", "")


def test_edit_by_words_and_mistakes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = record(tmp_path / "set", [3, 3, 3])
    assert main(["data", "edit", f"path={path}", "delete=[0,2]", "dry_run=true"]) == 0
    assert f"{path}: 2 episodes would be deleted, 1 left." in capsys.readouterr().out
    assert main(["data", "edit", f"path={path}", "delete=[0,2]"]) == 0
    assert "undo=true" in capsys.readouterr().out
    assert main(["data", "edit", f"path={path}", "relabel=[1]", "success=none", "task=push"]) == 0
    assert [(row.number, row.success, row.task) for row in list_episodes(path)] == [(1, None, "push")]
    for words, said in (
        ([], "give one"),
        (["delete=[1]", "undo=true"], "delete and undo"),
        (["delete=[1]", "success=true"], "does not apply"),
        (["split=1"], "needs frame="),
        (["delete=[x]"], "expected numbers"),
    ):
        assert main(["data", "edit", f"path={path}", *words]) == 2
        assert said in capsys.readouterr().err
    assert main(["data", "repair", f"path={path}"]) == 0


def test_a_replay_in_the_simulator_repeats_the_episode(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Same seed and actions: the same states. With another seed it differs, and the exit code says so."""
    pytest.importorskip("gym_pusht")
    from sim.registry import make_env

    path, rng = tmp_path / "set", np.random.default_rng(0)
    with closing(make_env("pusht/state", 1)) as env:
        writer = DatasetWriter.create(path, env.spec, stamps=(), min_free_bytes=0)
        obs = env.reset(iter([5] * 10))
        with writer.episode(seed=5) as episode:
            for _ in range(6):
                action = rng.uniform(100, 400, 2).astype(np.float32)
                episode.add({"state": obs["state"][0].numpy()}, action)
                obs = env.step(torch.from_numpy(action[None]))[0]
            episode.commit(success=False, final_obs={"state": obs["state"][0].numpy()})
        writer.close()
    assert main(["data", "replay", f"path={path}"]) == 0
    said = capsys.readouterr().out
    assert "6 frames replayed in pusht/state, seed 5" in said
    assert "largest difference 0 " in said
    assert main(["data", "replay", f"path={path}", "seed=12345"]) == 1
    assert main(["data", "replay", f"path={path}", "env=nonsense"]) == 2


@pytest.mark.parametrize("quality", [95, 60])
def test_an_exact_replay_of_compressed_pictures_differs_in_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], quality: int
) -> None:
    """The loss of JPEG, up to three fifths of the range here, was reported as a difference of the replay."""
    from sim.registry import make_env

    path, rng = tmp_path / "set", np.random.default_rng(0)
    with closing(make_env("drone/seek", 1)) as env:
        keys = env.spec.obs
        writer = DatasetWriter.create(
            path, env.spec, image_codec="jpeg", jpeg_quality=quality, stamps=(), min_free_bytes=0
        )
        obs = env.reset(iter([5] * 10))
        with writer.episode(seed=5) as episode:
            for _ in range(6):
                action = rng.uniform(-0.5, 0.5, 4).astype(np.float32)
                episode.add({key: obs[key][0].numpy() for key in keys}, action)
                obs = env.step(torch.from_numpy(action[None]))[0]
            episode.commit(success=False, final_obs={key: obs[key][0].numpy() for key in keys})
        writer.close()
    assert main(["data", "replay", f"path={path}"]) == 0
    assert "image.front              largest difference 0 " in capsys.readouterr().out
    assert main(["data", "replay", f"path={path}", "seed=12345"]) == 1
    assert re.search(r"image\.front .*differs", capsys.readouterr().out)


def test_the_largest_difference_is_found(dataset: Path) -> None:
    episode = episode_at(dataset, 0)
    seen = [{key: episode.obs(key, i, i + 1)[0].copy() for key in episode.dataset.env.obs} for i in range(13)]
    seen[7]["state"] = seen[7]["state"] + np.float32(0.5)
    found = {each.key: each for each in replay_differences(episode, seen)}
    assert (found["state"].largest, found["state"].row) == (0.5, 7)
    assert found["image.front"].largest == 0.0
