"""`robo-rl view`: films of experts, policies and random actions."""

from __future__ import annotations

from pathlib import Path

import av
import cv2
import pytest

from robo_rl.apps import view
from robo_rl.conf.schema import ViewConfig
from robo_rl.core.errors import ConfigError
from robo_rl.eval.video import STRIP_PX

ENV = "quad/hover"


def config(out: Path, **changes: object) -> ViewConfig:
    return ViewConfig(**({"env": ENV, "out": str(out), "max_episode_steps": 40} | changes))  # type: ignore[arg-type]


def frames(path: Path) -> int:
    with av.open(str(path)) as file:
        return sum(1 for _ in file.decode(video=0))


@pytest.mark.parametrize("pilot", ["expert", "random", "still"])
def test_episodes_are_filmed_one_after_another(
    pilot: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every step is a frame, the last one stays 0.8 s; a row of eight stills per episode."""
    assert view.main(config(tmp_path, pilot=pilot, episodes=2)) == 0
    assert "2 episodes succeeded" in capsys.readouterr().out
    shown = frames(tmp_path / "episodes.mp4")
    assert 2 * 80 < shown <= 2 * (40 + 80)
    sheet = cv2.imread(str(tmp_path / "sheet.png"))
    assert sheet.shape[0] == 2 * (200 + STRIP_PX)
    assert sheet[5:-5].std() > 5.0


def test_an_environment_without_expert_has_other_pilots(tmp_path: Path) -> None:
    """The message names them."""
    with pytest.raises(
        ConfigError, match=r"no scripted expert for 'pusht/state'; .* pilot=random, .* policy=<run>"
    ):
        view.main(config(tmp_path, env="pusht/state"))


def test_two_pilots_are_refused(tmp_path: Path) -> None:
    """Policy and pilot together are refused."""
    with pytest.raises(ConfigError, match="cannot both act"):
        view.main(config(tmp_path, pilot="random", policy="runs/base"))


def test_a_policy_is_filmed_in_its_own_environment(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`view policy=...` needs no env=; neither of them is refused, with both named."""
    view.main(config(tmp_path, env=None, policy=str(run), episodes=1, max_episode_steps=5))
    assert "metaworld/reach-v3: 0/1 episodes succeeded" in capsys.readouterr().out
    with pytest.raises(ConfigError, match=r"view needs env=\.\.\. .*, or policy=\.\.\."):
        view.main(config(tmp_path, env=None))
    with pytest.raises(ConfigError, match=r"lists all\)\. See"):  # a policy could not act beside it
        view.main(config(tmp_path, env=None, pilot="random"))
