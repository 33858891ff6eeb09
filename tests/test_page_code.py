"""Code of documentation pages: every block runs, in the order of the page, with small settings."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from robo_rl import api
from robo_rl.apps.cli.main import main
from robo_rl.data.store import EpisodeStore

DOCS = Path(__file__).resolve().parents[1] / "docs"
BLOCK = re.compile(r"^```(python|bash)\n(.*?)^```$", flags=re.DOTALL | re.MULTILINE)
NET = {"name": "mlp", "width": 16, "depth": 1, "time_dim": 8}
EPISODES = {"eval_episodes": 1, "num_envs": 2, "max_episode_steps": 4}
SMALL: dict[str, dict[str, Any]] = {  # settings of the functions, in place of those on the page
    "train": {"steps": 2, "batch_size": 8, "net": NET, "process.steps": 2},
    "finetune": {"method.base_steps": 4, "method.burn_in": 1, "env_steps": 12, "eval_every": 0}
    | {"final_episodes": 2}
    | EPISODES,
    "distill": {"net": NET, "rollout_steps": 100, "rounds": 0, "steps": 2} | EPISODES,
}


def blocks(page: str, below: str = "") -> Iterator[tuple[str, str]]:
    """(language, code) of the blocks of a page, or of one of its sections."""
    text = (DOCS / page).read_text()
    if below:
        text = re.split(r"^## ", text.partition(f"## {below}\n")[2], maxsplit=1, flags=re.MULTILINE)[0]
    found = BLOCK.findall(text)
    assert found
    yield from found


def with_small_settings(name: str) -> Callable[..., Any]:
    """Function of the API that replaces some settings."""
    function = getattr(api, name)
    return lambda *given, **settings: function(*given, **settings | SMALL[name])


@pytest.mark.slow
def test_the_page_on_the_python_api_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """From demonstrations to a bundle and a roll-out; then a mistake, whose sentence is printed."""
    monkeypatch.chdir(tmp_path)
    for name in SMALL:
        monkeypatch.setattr(api, name, with_small_settings(name))
    space: dict[str, Any] = {}
    for language, code in blocks("python-api.md"):
        if language == "python":
            exec(compile(code, "python-api.md", "exec"), space)
        else:  # the examples have tests of their own
            assert "examples/" in code
    assert space["tuned"].rate.n == space["tuned"].before.n == 2
    assert space["bundle"].env == space["data"].spec
    assert len(space["solved"]) == 4  # one episode in each lane
    assert (
        "runs/bsae does not exist; the nearest existing folder is runs, with base" in capsys.readouterr().out
    )


@pytest.mark.parametrize(
    ("section", "dataset", "frames"),
    [("Write it", "data/own", [20]), ("From arrays of your own", "data/arrays", [100, 100])],
)
def test_the_page_on_datasets_runs(
    section: str, dataset: str, frames: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Datasets by DatasetWriter and from a replay buffer, both valid, with joints named in their units."""
    monkeypatch.chdir(tmp_path)
    space: dict[str, Any] = {}
    for language, code in blocks("data.md", section):
        if language == "python":
            exec(compile(code, "data.md", "exec"), space)
        else:
            assert main(shlex.split(code)[1:]) == 0
    store = EpisodeStore(dataset)
    assert [episode.frames for episode in store] == frames
    assert store.spec.action.unit.startswith("rad: base, shoulder, elbow")
    assert main(["data", "validate", f"path={dataset}"]) == 0
