"""`robo-rl fly method=... start=...`: every learner writes the same files, and impossible settings give a
sentence.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from robo_rl.apps.cli.main import main
from robo_rl.conf.fly import FlyConfig
from robo_rl.conf.fly_method import FirstOrderMethod, PpoMethod, SacMethod, ShacMethod, Td3Method
from robo_rl.conf.swarm import SwarmConfig
from robo_rl.core.errors import ConfigError
from robo_rl.flight.fly.recipe import resolved
from robo_rl.flight.fly.setup import check_own
from robo_rl.flight.fly.table import print_table
from robo_rl.flight.swarm.setting import SwarmSetting
from sim.tasks.flight.hover import HoverTask

SMALL = [
    "task=hover",
    "hidden=[8]",
    "history=8",
    "eval_episodes=6",
    "video=false",
    "eval_s=0.2",
    "eager=true",
]
REPLAY = [
    "method.lanes=8",
    "method.stride=4",
    "method.updates=4",
    "method.warmup_rounds=1",
    "method.learner.batch=16",
]
LEARNERS = {
    "shac": ["flights=8", "horizon=4"],
    "td3": [*REPLAY, "method.lesson_rounds=2", "method.reward=l2f"],
    "sac": REPLAY,
    "ppo": ["method.lanes=16", "method.ppo.rollout=4"],
}


@pytest.mark.parametrize("method", sorted(LEARNERS))
def test_every_method_writes_the_same_files(method: str, tmp_path: Path) -> None:
    """results.json in the shape of the first-order method, with the method's name; a bundle and a C
    header.
    """
    out = tmp_path / "fly"
    assert main(["fly", *SMALL, f"method={method}", *LEARNERS[method], "updates=3", f"out={out}"]) == 0
    results = json.loads((out / "results.json").read_text())
    assert {
        "position_error_m",
        "terminated_fraction",
        "train_cpu_s",
        "compile_cpu_s",
        "seeds",
    } <= results.keys()
    assert results["method"] == method
    assert results["rows"][0]["env_steps"] > 0
    assert results["rows"][0]["train_cpu_s"] > 0.0
    for name in ("policy.h", "bundle/policy.onnx", "policy/weights.safetensors"):
        assert (out / name).stat().st_size > 0


def test_start_lqr(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It trains and becomes a bundle; the missing C export is reported."""
    out = tmp_path / "fly"
    assert main(["fly", *SMALL, "start=lqr", "flights=8", "horizon=4", "updates=2", f"out={out}"]) == 0
    assert "C: not written" in capsys.readouterr().out
    assert (out / "bundle" / "policy.onnx").stat().st_size > 0


@pytest.mark.parametrize(
    ("name", "value", "instead"),
    [
        ("lr", 0.1, "use method.learner.lr_actor and method.learner.lr_critic"),
        ("horizon", 3, "use method.learner.n_step"),
        ("flights", 7, "use method.lanes"),
        ("grad_clip", 0.5, "use method.learner.grad_clip"),
        ("gamma", 0.9, "use method.learner.gamma"),
        ("final_lr", 0.1, "leave it out"),
        ("value", True, "leave it out"),
        ("bootstrap_terminated", True, "leave it out"),
        ("w_action_rate", 50.0, "use method.reward=task with it"),
    ],
)
def test_settings_that_a_method_does_not_read_are_refused(name: str, value: Any, instead: str) -> None:
    """td3, sac and ppo have settings of their own; a run resumes with the settings that it recorded."""
    for method in (Td3Method(), SacMethod()):
        with pytest.raises(
            ConfigError, match=f"{name}={value} has no effect with method={method.name}.*{instead}"
        ):
            check_own(FlyConfig(method=method, **{name: value}))
        check_own(resolved(FlyConfig(method=method), HoverTask()))
    check_own(FlyConfig(**{"value": True} | {name: value}))
    with pytest.raises(ConfigError, match=r"use method\.ppo\.rollout"):
        check_own(FlyConfig(method=PpoMethod(), horizon=3))
    weighed = FlyConfig(method=Td3Method(reward="task"), w_action_rate=50.0)
    check_own(weighed)
    check_own(resolved(weighed, HoverTask()))


@pytest.mark.parametrize("given", [{"gamma": 0.5}, {"bootstrap_terminated": True}])
def test_settings_of_the_cost_to_go_are_refused_without_it(given: dict[str, Any]) -> None:
    """`fly` and `swarm` learn one with value=true, `method=shac` by default."""
    for method, value in ((FirstOrderMethod(), None), (ShacMethod(), False)):
        with pytest.raises(ConfigError, match=f"{next(iter(given))}=.* without a learned cost-to-go"):
            check_own(FlyConfig(method=method, value=value, **given))
        check_own(resolved(FlyConfig(method=method, value=value), HoverTask()))
    check_own(FlyConfig(method=ShacMethod(), **given))
    with pytest.raises(ConfigError, match=f"{next(iter(given))}=.* without a learned cost-to-go"):
        SwarmSetting.of(SwarmConfig(**given))


@pytest.mark.parametrize("task", ["waypoints", "race", "obstacles"])
def test_integral_of_tasks_without_one_is_refused(task: str) -> None:
    with pytest.raises(ConfigError, match=f"Task {task} has no integral: .* hover, figure8"):
        check_own(FlyConfig(task=task, integral=False))


@pytest.mark.parametrize(("randomize", "note"), [(0.0, False), (0.2, True)])
def test_table_says_that_randomisation_was_not_measured(
    randomize: float, note: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    print_table(FlyConfig(randomize=randomize, out="runs/wide"), [])
    shown = " ".join(capsys.readouterr().out.split())
    assert ("Measured on the nominal craft" in shown) == note
    assert ("robo-rl transfer run=runs/wide randomize=0.2" in shown) == note


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (["method=tdd3"], "td3"),
        (["method=td3", "method.lanse=3"], "method.lanes"),
        (["method=td3", "task=figure8"], "learns task=hover only"),
        (["method=td3", "lr=0.1"], "use method.learner.lr_actor and method.learner.lr_critic"),
        (["start=lqr", "task=figure8"], "linear law around hover"),
        (["start=lqr", "method=ppo"], "method=ppo"),
        (["start=lqr", "craft=cf21"], "Raise history"),
        (["method=td3", "method.learner.activation=relu"], "method.learner.activation=relu cannot be used"),
        (["method=sac", "method.learner.actor_norm=true"], "method.learner.actor_norm=true cannot be used"),
        (["method=ppo", "method.ppo.squash=false"], "method.ppo.squash=false cannot be used"),
    ],
)
def test_mistakes_print_one_sentence(
    wrong: list[str], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = {word.partition("=")[0] for word in wrong}
    small = [word for word in SMALL if word.partition("=")[0] not in given]
    assert main(["fly", *small, "updates=1", *wrong, f"out={tmp_path / 'fly'}"]) != 0
    captured = capsys.readouterr()
    assert words in captured.err + captured.out
    assert "Traceback" not in captured.err + captured.out
