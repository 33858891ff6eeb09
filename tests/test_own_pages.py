"""The page on one's own robot, task and engine: its code runs unchanged, and its classes fulfil the
contract.
"""

from __future__ import annotations

import math
import re
import sys
from pathlib import Path
from typing import Any

import gymnasium
import mujoco
import pytest
import torch

from robo_rl.apps.cli import main as cli
from robo_rl.core.errors import ConfigError, UnknownNameError
from robo_rl.core.seeding import EpisodeSeeds
from robo_rl.data.store import EpisodeStore
from sim.arms.robot import PANDA
from sim.engines.table import ENGINES
from sim.registry import make_env
from sim.tasks.table import MANIPULATION, suite_of
from sim.vec.conformance import check_vec_env

PAGE = Path(__file__).resolve().parents[1] / "docs" / "own-robot-task-engine.md"
BLOCK = re.compile(r"^```(?:python|yaml)\n(.*?)^```$", flags=re.DOTALL | re.MULTILINE)


def urdf() -> str:
    """The panda's joints, as a URDF with a hand at a fixed joint."""
    model = mujoco.MjModel.from_xml_path(str(PANDA.path))
    parts, parent = [], "base"
    for joint in (model.joint(name) for name in PANDA.joints):
        body = model.body(int(joint.bodyid[0]))
        roll = 2.0 * math.atan2(body.quat[1], body.quat[0])
        low, high = joint.range.tolist()
        parts.append(
            f'<joint name="{joint.name}" type="revolute"><parent link="{parent}"/><child link="{body.name}"/>'
            f'<origin xyz="{" ".join(map(str, body.pos))}" rpy="{roll} 0 0"/><axis xyz="0 0 1"/>'
            f'<limit lower="{low}" upper="{high}" effort="87" velocity="2"/></joint>'
        )
        parent = body.name
    parts.append(
        f'<joint name="wrist" type="fixed"><parent link="{parent}"/><child link="hand"/>'
        '<origin xyz="0 0 0.1"/></joint>'
    )
    inertia = '<inertia ixx="0.01" iyy="0.01" izz="0.01" ixy="0" ixz="0" iyz="0"/>'
    links = [
        f'<link name="{name}"><inertial><mass value="1"/>{inertia}</inertial></link>'
        for name in ("base", *(f"link{i}" for i in range(1, 8)), "hand")
    ]
    return f'<robot name="mine">{"".join(links + parts)}</robot>'


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Write blocks that begin with a file name to that file, and run the others in order. Returns their
    results.
    """
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "my_arm.xml").write_text(PANDA.path.read_text())
    (tmp_path / "my_arm.urdf").write_text(urdf())
    left = []
    try:
        for code in BLOCK.findall(PAGE.read_text()):
            if name := re.match(r"# (\S+\.(?:py|yaml))\n", code):
                (tmp_path / name[1]).write_text(code)
            else:
                space: dict[str, Any] = {}
                exec(compile(code, str(PAGE), "exec"), space)
                left.append(space)
        return left
    finally:
        MANIPULATION.pop("nudge", None)
        ENGINES.pop("counting", None)
        for module in ("my_tasks", "my_engine", "my_envs", "my_wrapped_envs", "my_script"):
            sys.modules.pop(module, None)
        for name in ("Mine-v0", "MineFlat-v0", "MineInCm-v0"):
            gymnasium.registry.pop(name, None)


def test_the_page_runs(made: list[dict[str, Any]]) -> None:
    """The script is recorded, the robot lifts, the expert solves the task, the engine counts."""
    recorded = next(space["data"] for space in made if "data" in space)
    assert [episode.success for episode in recorded] == [True] * 4
    robot, task, engine = (space["env"] for space in made if "env" in space)
    assert "tool x, y, z" in robot.spec.action.unit
    expert = next(space["expert"] for space in made if "expert" in space)
    seeds = EpisodeSeeds(("own", 0))
    obs, solved = task.reset(seeds), 0
    for _ in range(60):
        zero = torch.zeros(4, dtype=torch.long)
        obs, _, _, _, info = task.step(expert.act(obs, zero, zero))
        solved += int((info["final_mask"] & info["success"]).sum())
    assert solved >= 4
    engine.reset(seeds)
    before = engine._engine.substeps
    engine.step(torch.zeros(2, 5))
    assert engine._engine.substeps == before + 10


@pytest.mark.usefixtures("made")
def test_a_urdf_saved_as_the_page_says_is_an_arm(tmp_path: Path) -> None:
    """It reaches, and its tool is where the URDF's hand is: 10 cm beyond the last link and 10 cm further."""
    (tmp_path / "from_urdf.yaml").write_text(
        (tmp_path / "my_arm.yaml")
        .read_text()
        .replace("my_arm.xml", "my_arm_from_urdf.xml")
        .replace("fingers", "#")
    )
    env: Any = make_env(f"arm/reach:robot={tmp_path / 'from_urdf.yaml'}", 1)
    env.reset(iter([1, 2, 3]))
    hand = env.view.body("hand")
    link = env.view.body("link7").m
    assert float((hand.m - link).norm()) == pytest.approx(0.1)
    assert float((env.view.tool.m - link).norm()) == pytest.approx(0.2)
    before_m = env.view.tool.m
    for _ in range(5):
        env.step(torch.zeros(1, 3))
    assert float((env.view.tool.m - before_m).norm()) < 2e-3


@pytest.mark.usefixtures("made")
def test_the_environment_of_the_page_is_found_by_its_module() -> None:
    """Its file was written by `made`; the control rate is that of its metadata."""
    env = make_env("gym/my_envs:Mine-v0", 1)
    assert (env.spec.control_hz, env.spec.max_episode_steps) == (20.0, 50)
    obs, success = env.reset(EpisodeSeeds(("own", 0))), False
    for _ in range(20):
        obs, _, _, _, info = env.step(-obs["state"])
        success = success or bool(info["success"][0])
    assert success


@pytest.mark.usefixtures("made")
def test_the_script_of_the_page_is_recorded() -> None:
    """The command as it is on the page; the commands after it are checked by tests/test_docs.py."""
    line = next(line for line in PAGE.read_text().splitlines() if line.startswith("robo-rl collect env=gym/"))
    assert cli.main([*line.split()[1:], "num_workers=0"]) == 0
    assert [episode.meta.info["noise"] for episode in EpisodeStore("data/mine")] == [0.3] * 40


@pytest.mark.usefixtures("made")
def test_the_wrappers_of_the_page_make_environments() -> None:
    seeds = EpisodeSeeds(("own", 0))
    flat = make_env("gym/my_wrapped_envs:MineFlat-v0", 1).reset(seeds)["state"]
    in_cm = make_env("gym/my_wrapped_envs:MineInCm-v0", 1).reset(EpisodeSeeds(("own", 0)))["state"]
    torch.testing.assert_close(in_cm, 100 * flat)


def test_a_task_of_ones_own_keeps_the_contract(
    made: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(MANIPULATION, "nudge", ("my_tasks:NudgeTask", None))  # type: ignore[misc]
    check_vec_env(make_env("arm/nudge", 3, max_episode_steps=9), steps=20)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (("def solved", "def solve"), "my_tasks:NudgeTask lacks solved, see docs/own-robot-task-engine.md"),
        (("obs_parts:", "obs_part:"), "my_tasks:NudgeTask lacks obs_parts"),
        (("class NudgeTask", "class NudgTask"), "is my_tasks:NudgeTask, but my_tasks has no NudgeTask"),
        ((">= view.goal", "- view.goal"), "returns float64 of the shape (2,); expected bool"),
        (('"joints", 7', '"joints", 6'), "nudge returns 11 numbers, obs_parts names 10"),
        (('{"way": 1.0}', '{"road": 1.0}'), "weights of nudge names road, terms() returns way"),
    ],
)
def test_a_mistake_in_a_task_is_one_sentence(
    wrong: tuple[str, str], says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task is checked when its environment is made, before an episode is collected."""
    code = next(code for code in BLOCK.findall(PAGE.read_text()) if code.startswith("# my_tasks.py"))
    assert wrong[0] in code
    (tmp_path / "my_tasks.py").write_text(code.replace(*wrong))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(MANIPULATION, "nudge", ("my_tasks:NudgeTask", None))
    monkeypatch.delitem(sys.modules, "my_tasks", raising=False)
    try:
        with pytest.raises(ConfigError, match=re.escape(says)):
            make_env("arm/nudge", 2)
    finally:
        sys.modules.pop("my_tasks", None)


def test_an_unknown_task_names_the_way_to_add_one() -> None:
    with pytest.raises(UnknownNameError, match="task of your own: name its module in ROBO_RL_PLUGINS"):
        make_env("arm/nudge", 1)
    with pytest.raises(UnknownNameError, match="task of your own: name its module in ROBO_RL_PLUGINS"):
        suite_of("nudge")


def test_a_module_of_ones_own_is_loaded_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command line accepts tasks of a plugin, and reports a missing plugin."""
    (tmp_path / "my_plugin_for_a_test.py").write_text(
        'from sim.tasks.table import MANIPULATION\n\nMANIPULATION["mine"] = ("my_tasks:NudgeTask", None)\n'
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("ROBO_RL_PLUGINS", "my_plugin_for_a_test")
    try:
        assert cli.main(["info"]) == 0
        assert "mine" in capsys.readouterr().out
    finally:
        MANIPULATION.pop("mine", None)  # type: ignore[attr-defined]
        sys.modules.pop("my_plugin_for_a_test", None)
    monkeypatch.setenv("ROBO_RL_PLUGINS", "not_there")
    assert cli.main(["info"]) == 2
    assert "not_there" in capsys.readouterr().err
