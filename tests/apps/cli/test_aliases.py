"""`train task=... engine=...` selects the verb that trains in this engine."""

from __future__ import annotations

import pytest

from robo_rl.apps.cli.aliases import by_engine
from robo_rl.apps.cli.main import main
from robo_rl.core.errors import ConfigError, UnknownNameError


def test_engine_selects_the_verb() -> None:
    """Flights go to `fly`, swarms to `swarm`; words without an engine are unchanged."""
    assert by_engine("train", ["data=d", "out=r"]) == ("train", ["data=d", "out=r"])
    assert by_engine("fly", ["task=race"]) == ("fly", ["task=race"])
    assert by_engine("train", ["task=trajectory", "engine=quad", "seeds=2"]) == (
        "fly", ["task=figure8", "engine=quad", "seeds=2"]
    )  # fmt: skip
    assert by_engine("train", ["engine=quad"]) == ("fly", ["task=hover", "engine=quad"])
    assert by_engine("train", ["engine=pybullet", "task=race"]) == ("fly", ["task=race", "engine=pybullet"])
    assert by_engine("train", ["engine=pybullet", "task=vision_hover"]) == ("vision", [])
    assert by_engine("train", ["engine=quad", "task=swarm", "drones=4"]) == (
        "swarm",
        ["engine=quad", "drones=4"],
    )
    assert by_engine("train", ["task=swarm", "engine=pybullet"]) == ("swarm", ["engine=pybullet"])


@pytest.mark.parametrize(
    ("task", "verb", "words"),
    [
        ("hover", "fly", ["task=hover"]),
        ("trajectory", "fly", ["task=figure8"]),
        ("waypoints", "fly", ["task=waypoints"]),
        ("race", "fly", ["task=race"]),
        ("obstacles", "fly", ["task=obstacles"]),
        ("swarm", "swarm", []),
        ("mission", "mission", []),
        ("vision", "vision", []),
    ],
)
def test_train_task_without_an_engine(task: str, verb: str, words: list[str]) -> None:
    """`robo-rl train task=race` trains that flight with its settings; no dataset is needed."""
    assert by_engine("train", [f"task={task}", "seeds=2", "out=r"]) == (verb, [*words, "seeds=2", "out=r"])
    with pytest.raises(ConfigError, match="without data="):
        by_engine("train", [f"task={task}", "data=d"])


def test_task_words_become_an_environment_name() -> None:
    """Task, engine, robot, control and clearance become the environment's name, in any verb that accepts
    one.
    """
    assert by_engine("finetune", ["task=peg_insert", "engine=mujoco", "num_envs=64"]) == (
        "finetune", ["env=arm/peg_insert:engine=mujoco", "num_envs=64"]
    )  # fmt: skip
    assert by_engine("view", ["task=lift"]) == ("view", ["env=arm/lift"])
    assert by_engine("collect", ["control=joint_velocity", "out=d", "task=lift"]) == (
        "collect", ["env=arm/lift:control=joint_velocity", "out=d"]
    )  # fmt: skip
    words = ["policy=runs/base", "task=reach the ball", "out=d"]
    assert by_engine("collect", words) == ("collect", words)  # an instruction, in the policy's environment
    with pytest.raises(UnknownNameError, match="Did you mean 'stack'"):
        by_engine("view", ["task=stck"])
    with pytest.raises(ConfigError, match="not both"):
        by_engine("view", ["task=lift", "env=arm/stack"])
    assert by_engine("collect", ["env=metaworld/reach-v3", "cameras=corner", "out=d", "state=robot"]) == (
        "collect", ["env=metaworld/reach-v3:cameras=corner,state=robot", "out=d"]
    )  # fmt: skip
    assert by_engine("view", ["env=arm/lift:engine=pybullet", "cameras=view"]) == (
        "view", ["env=arm/lift:engine=pybullet,cameras=view"]
    )  # fmt: skip
    note = ["env=arm/stack", "task=put it there"]
    assert by_engine("collect", note) == ("collect", note)
    same = ["env=arm/stack:engine=pybullet", "task=stack"]
    assert by_engine("collect", same) == ("collect", same)
    with pytest.raises(ConfigError, match=r"task=lift with env=metaworld/reach-v3 would be an instruction"):
        by_engine("collect", ["task=lift", "env=metaworld/reach-v3"])
    with pytest.raises(ConfigError, match="robo-rl collect task=lift"):
        by_engine("train", ["task=lift", "engine=mujoco"])


def test_unsupported_engine_error_names_the_supported_one() -> None:
    """Missions run in one engine and cameras in the other; other names get the list of known ones."""
    with pytest.raises(ConfigError, match="task=mission runs in engine=quad only"):
        by_engine("train", ["task=mission", "engine=pybullet"])
    with pytest.raises(UnknownNameError, match="Did you mean 'quad'"):
        by_engine("train", ["engine=quadd"])
    with pytest.raises(ConfigError, match="runs in engine=pybullet only"):
        by_engine("train", ["task=vision", "engine=quad"])
    for words in (["engine=quad", "task=waypoint"], ["task=waypoint"]):
        with pytest.raises(UnknownNameError, match="waypoints"):
            by_engine("train", words)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["train", "task=trajectory", "steps=abc"], "robo-rl train task=trajectory has no setting 'steps'."),
        (["train", "task=race", "updates=abc"], "updates=abc cannot be used, expected: whole number"),
        (["fly", "task=hover", "step=10"], "robo-rl fly has no setting 'step'. Did you mean 'updates'?"),
        (["train", "data=d", "out=r", "step=10"], "Did you mean 'steps'?"),
    ],
)
def test_messages_name_the_verb_that_was_typed(
    words: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A flight that is trained by `train` is one of `fly`, which the user has not typed."""
    assert main(words) == 2
    said = capsys.readouterr().err
    assert says in said
    if words[1] == "task=trajectory":
        assert "Did you mean 'updates'? See: robo-rl train task=trajectory --help" in said
        assert "robo-rl fly" not in said


def test_fly_has_the_names_of_flights_that_train_has() -> None:
    """`train --help` lists them."""
    assert by_engine("fly", ["task=trajectory", "seeds=2"]) == ("fly", ["task=figure8", "seeds=2"])
