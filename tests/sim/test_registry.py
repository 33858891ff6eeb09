from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from robo_rl.core.errors import ConfigError, MissingDependencyError, UnknownNameError
from robo_rl.core.text.instruction import MOST_BYTES
from sim import registry
from sim.registry import (
    has_dense_reward,
    list_envs,
    longest_instruction,
    make_env,
    make_expert,
    numbers_of,
    task_in,
    tasks_in,
)


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("metaworld/peg-insert-sid-v3", "metaworld/peg-insert-side-v3"),
        ("peg-insert-sid-v3", "metaworld/peg-insert-side-v3"),
        ("metaword/reach-v3", "metaworld/reach-v3"),
        ("metaworld/reach", "metaworld/reach-v3"),  # and not arm/reach
        ("pusht/stat", "pusht/state"),
        ("pusht", "pusht/state"),
    ],
)
def test_a_mistyped_name_is_suggested(name: str, meant: str) -> None:
    """Names are suggested in one sentence, without a worker's traceback."""
    with pytest.raises(UnknownNameError, match=f"Did you mean '{meant}'"):
        make_env(name, 1)


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("Pendulum-v1", "gym/Pendulum-v1"),  # and not gym/InvertedPendulum-v5
        ("Pendulum-v0", "gym/Pendulum-v1"),
        ("Pendulum", "gym/Pendulum-v1"),
        ("gymnasium/Pendulum-v1", "gym/Pendulum-v1"),
        ("my_envs:MyDict-v0", "gym/my_envs:MyDict-v0"),
        ("my.envs:space/Mine-v0", "gym/my.envs:space/Mine-v0"),
    ],
)
def test_a_name_of_gymnasium_needs_its_prefix(name: str, meant: str) -> None:
    with pytest.raises(ConfigError, match=rf"^Unknown environment .* mean '{meant}'\? .* prefix gym/\.$"):
        make_env(name, 1)


def test_a_task_without_its_suite_is_none_of_gymnasium() -> None:
    with pytest.raises(UnknownNameError):
        make_env("lift:engine=mujoco", 1)


@pytest.mark.parametrize("name", ["quad/swarm", "quad/swarm:engine=pybullet"])
def test_a_swarm_is_measured_by_its_own_verbs(name: str) -> None:
    with pytest.raises(ConfigError, match=r"robo-rl swarm trains .* robo-rl transfer .* bundle="):
        make_env(name, 1)


def test_experts_check_names_too() -> None:
    with pytest.raises(UnknownNameError, match="peg-insert-side-v3"):
        make_expert("metaworld/peg-insert-sid-v3")


def test_a_mistyped_option_is_suggested() -> None:
    """A silently dropped option would train another task."""
    with pytest.raises(UnknownNameError, match="Did you mean 'max_episode_steps'"):
        make_env("pusht/state", 1, max_episode_step=10)


def test_options_that_are_none_keep_the_default() -> None:
    """Configurations hold None for unset options."""
    assert make_env("pusht/state", 1, max_episode_steps=None, reward=None).spec.max_episode_steps == 300


@pytest.mark.parametrize(
    ("name", "reward", "dense"),
    [
        ("metaworld/reach-v3", None, False),
        ("metaworld/reach-v3", "dense", True),
        ("pusht/state", None, True),
        ("pusht/state", "sparse", False),
        ("gym/Hopper-v5", None, True),
        ("recall/buttons", None, False),
        ("recall/buttons", "dense", False),  # it has no such option
        ("drone/seek", "dense", False),
        ("quad/hover", None, True),
    ],
)
def test_whether_every_step_pays(name: str, reward: str | None, dense: bool) -> None:
    """It decides whether demonstrations are replayed with recorded rewards or as successes."""
    assert has_dense_reward(name, reward) is dense


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("metaworld/reach-v3:max_episode_steps=1e2", "max_episode_steps is '1e2'; expected a whole number"),
        ("metaworld/mt6:max_episode_steps=5.0", "max_episode_steps is 5.0; expected a whole number"),
        ("arm6/peg:max_episode_steps=abc", "max_episode_steps is 'abc'; expected a whole number"),
        ("arm6/reach:max_episode_steps=true", "max_episode_steps is True; expected a whole number"),
        ("metaworld/reach-v3:terminate_on_success=maybe", "terminate_on_success is 'maybe'; expected true"),
        ("metaworld/mt6:terminate_on_success=1", "terminate_on_success is 1; expected true or false"),
        ("metaworld/mt6:picture_px=big", "picture_px is 'big'; expected 8 to 1024 pixels"),
        ("metaworld/reach-v3:image_size=2", "image_size is 2; expected 8 to 1024 pixels"),
        ("arm/reach:radius_m=0.02,radius_m=0.03", "gives the option radius_m 2 times"),
        ("quad/hover:history=2,craft=cf21, history=3", "gives the option history 2 times"),
        ("arm/reach:radius_m= ,state=robot", "cannot be read"),
        ("arm/reach:state=body #3", "option state='body #3' cannot be read"),
        ("arm/reach:state=#3", "option state='#3' cannot be read"),
        ("arm/reach:state=@x", "option state='@x' cannot be read"),
        ("arm/reach:state=[", r"option state='\[' cannot be read"),
        ("arm/reach:radius_m=2026-13-45", "option radius_m='2026-13-45' cannot be read"),
    ],
)
def test_options_of_a_wrong_form_are_refused(name: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        make_env(name, 1)


def test_spaces_around_options_do_not_matter() -> None:
    env = make_env("arm/reach: radius_m = 0.03, state=robot", 1)
    assert env.spec.name == "arm/reach:radius_m=0.03,state=robot"


def test_recall_pays_for_success_only() -> None:
    with pytest.raises(ConfigError, match="recall tasks pay for success only, not 'dense'"):
        make_env("recall/buttons", 1, reward="dense")
    make_env("recall/buttons", 1, reward="sparse")


def test_a_missing_package_comes_with_its_command(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also with workers: one sentence, no traceback of a worker."""

    def no_metaworld(package: str) -> Any:
        return None if package == "metaworld" else object()

    monkeypatch.setattr(registry, "find_spec", no_metaworld)
    for make in (lambda: make_env("metaworld/reach-v3", 2, 2), lambda: make_expert("metaworld/reach-v3")):
        with pytest.raises(MissingDependencyError, match=r"pip install 'robo-rl\[sim\]'"):
            make()


def test_the_list_is_complete() -> None:
    """Every listed name is valid; building all of them would take minutes."""
    names = list_envs()
    suites = {"metaworld/mt6", "metaworld/mt10"}
    assert suites <= set(names)
    assert len([name for name in names if name.startswith("metaworld/") and name not in suites]) == 50
    assert {"pusht/state", "pusht/keypoints", "pusht/pixels", "gym/Hopper-v5"} <= set(names)


def test_listing_and_refusing_names_imports_no_simulator() -> None:
    """`robo-rl --help` and a typo are answered at once, also without simulators."""
    code = (
        "import sys; from sim.registry import list_envs; list_envs()\n"
        "print([m for m in ('metaworld', 'mujoco', 'gymnasium', 'gym_pusht', 'pygame') if m in sys.modules])"
    )
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=root, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("name", "meant"), [("arm/navigate", "mobile/navigate"), ("reorient", "hand/reorient")]
)
def test_a_task_is_found_in_another_suite(name: str, meant: str) -> None:
    with pytest.raises(UnknownNameError, match=f"Known: {meant}"):
        make_env(name, 1)


def test_a_part_of_a_tasks_name_finds_it_in_its_suite() -> None:
    """A task of another suite with exactly this name is not the only one that may be meant."""
    names = "arm6/peg, metaworld/peg-insert-side-v3, metaworld/peg-unplug-side-v3"
    with pytest.raises(UnknownNameError, match=f"Known: {names}\\.$"):
        make_env("metaworld/peg", 1)


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("peg insert", "metaworld/peg-insert-side-v3"),
        ("metaworld/insert peg", "metaworld/peg-insert-side-v3"),
        ("open the door", "metaworld/door-open-v3"),
        ("half cheetah", "gym/HalfCheetah-v5"),
        ("hopper", "gym/Hopper-v5"),
        ("drawer", "arm/drawer"),
    ],
)
def test_suggestion_by_parts_of_the_name(name: str, meant: str) -> None:
    """A task's plain name is enough to find its full name among the suggestions."""
    with pytest.raises(UnknownNameError) as caught:
        make_env(name, 1)
    assert meant in str(caught.value)
    assert "Did you mean" in str(caught.value)


def test_a_slip_among_many_names_shows_the_nearest_alone() -> None:
    """The message lists the five nearest names and the command that lists all, `robo-rl info`."""
    with pytest.raises(UnknownNameError) as caught:
        make_env("metaworld/peg-inser-side-v3", 1)
    said = str(caught.value)
    assert "Did you mean 'metaworld/peg-insert-side-v3'? Nearest of " in said
    assert said.endswith("All of them: robo-rl info")
    assert len(said) < 400
    with pytest.raises(
        UnknownNameError, match=r"Unknown environment 'xx'\. There are \d+\. All of them: robo-rl info"
    ):
        make_env("xx", 1)


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("gym/dock_env.py:Dock-v0", "gym/dock_env:Dock-v0"),
        ("dock_env.py:Dock-v0", "gym/dock_env:Dock-v0"),
        ("dock_env.py", "gym/dock_env:Dock-v1"),
        ("./dock_env.py", "gym/dock_env:Dock-v1"),
        ("envs/dock_env.py:Dock-v0", "gym/envs.dock_env:Dock-v0"),
        ("not_there.py", "gym/not_there:<id that it registers>"),
    ],
)
def test_a_file_is_answered_by_the_name_of_its_module(
    name: str, meant: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The name can be pasted; the id is read from the file where it is left out."""
    (tmp_path / "dock_env.py").write_text('import gymnasium\n\ngymnasium.register(\n    "Dock-v1", Dock)\n')
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=re.escape(f"Write the module without .py: {meant}") + "$"):
        make_env(name, 1)


def test_an_id_of_ones_own_needs_its_module() -> None:
    """A module that was not imported has not registered it, so the id alone is not known."""
    with pytest.raises(UnknownNameError, match=r"robo-rl info\. If .* too: env=gym/<module>:Dock-v0$"):
        make_env("Dock-v0", 1)
    with pytest.raises(UnknownNameError) as caught:
        make_env("peg-insert-side-v2", 1)
    assert "<module>" not in str(caught.value)


@pytest.mark.parametrize("name", ["gym/my_envs:Mine-v0", "robot/arm:left", "quad/hover:history=2"])
def test_an_environment_of_one_task_is_asked_for_its_tasks(name: str) -> None:
    """Also where the colon is no mark of options: every verb asks for the tasks before it begins."""
    assert tasks_in(name) == ()
    assert task_in(name, 3) == 0
    assert numbers_of(name, ()) == []
    assert longest_instruction(name) == MOST_BYTES
