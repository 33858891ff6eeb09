"""Arm policies in other engines, by the verb: table, figures, video, and refused settings."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from hardware.checks.faulty_disk import full_disk
from policies.checkpoint import save_policy
from policies.deploy.bundle import MANIFEST
from robo_rl.apps.cli import main as cli
from robo_rl.conf.transfer import TransferConfig
from robo_rl.eval.rollout import EvalResult, compare
from robo_rl.flight.transfer.arm import EngineResult, next_step
from robo_rl.runs.device import pick_device
from robo_rl.runs.loaded_policy import open_policy
from robo_rl.runs.next_step import after_evaluation
from sim.registry import make_env
from tests.policies.small import flow_policy


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A base policy of a few dozen updates; its success does not matter here."""
    folder = tmp_path_factory.mktemp("arm")
    data, run = folder / "data", folder / "run"
    assert cli.main(["collect", "task=lift", f"out={data}", "episodes=3", "num_envs=3", "num_workers=0"]) == 0
    assert cli.main(["train", f"data={data}", f"out={run}", "steps=60", "net.width=32"]) == 0
    return run


@pytest.mark.slow
@pytest.mark.pybullet
def test_transfer_of_an_arm_policy(base: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "transfer"
    assert cli.main(["transfer", f"run={base}", f"out={out}", "engines=mujoco,pybullet", "episodes=3"]) == 0
    printed = capsys.readouterr().out
    assert "3 starts, the same in every engine" in printed
    results = json.loads((out / "results.json").read_text())
    assert [row["engine"] for row in results["rows"]] == ["mujoco", "pybullet"]
    assert all(row["n"] == 3 for row in results["rows"])
    assert results["rows"][1]["mcnemar_p"] is not None
    assert (out / "mujoco.mp4").stat().st_size > 1000
    assert (out / "pybullet.mp4").stat().st_size > 1000


def test_a_full_disk_costs_the_files_but_not_the_table(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The episodes are minutes of work; their table used to be lost with results.json."""
    monkeypatch.setattr("robo_rl.flight.transfer.arm.measure", lambda *_: [measured("mujoco", 10)])
    with full_disk(tmp_path, room_bytes=100):
        assert cli.main(["transfer", f"run={base}", f"out={tmp_path / 'out'}", "episodes=20"]) == 4
    said = capsys.readouterr()
    assert "The disk is full" in said.err
    assert "20 starts, the same in every engine" in said.out


def measured(engine: str, solved: int, first: EvalResult | None = None, episodes: int = 20) -> EngineResult:
    """A result of episodes of which the first `solved` succeed."""
    success, n = tuple(i < solved for i in range(episodes)), episodes
    result = EvalResult(tuple(range(n)), success, (9,) * n, (0.0,) * n, None, 9 * n, 1.0, 1.0)
    return EngineResult(engine, result, None if first is None else compare(first, result))


def after_a_loss(run: str) -> str:
    """Next step of a policy that never succeeds in PyBullet."""
    actor, home = open_policy(run, pick_device("cpu")), measured("mujoco", 10)
    return next_step(TransferConfig(run=run), actor, [home, measured("pybullet", 0, home.result)])


@pytest.mark.parametrize(
    ("inside", "given", "base", "out"),
    [
        ("", "run@40", "run@40", "tuned-pybullet"),
        ("run", ".", "HERE/run", "HERE/tuned-pybullet"),
        ("run", ".@40", "HERE/run@40", "HERE/tuned-pybullet"),
        ("run/policy", ".", "HERE/run", "HERE/tuned-pybullet"),
    ],
)
def test_no_next_step_writes_into_the_run(
    inside: str, given: str, base: str, out: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The policy of a checkpoint, and a run that is given as the current folder."""
    env = make_env("arm/lift", 1)
    policy = flow_policy(env.spec)
    env.close()
    run = tmp_path / "run"
    for folder in (run / "policy", run / "checkpoints/0000000040/policy"):
        save_policy(folder, policy)
    (run / "run.json").write_text("{}")
    monkeypatch.chdir(tmp_path / inside)
    said, there = after_a_loss(given), tmp_path.resolve()
    words = f"base={base} env=arm/lift:engine=pybullet out={out}".replace("HERE", str(there))
    assert said.startswith(f"robo-rl finetune {words}   (")


def test_the_next_step_suits_the_loss(base: Path) -> None:
    """Fine-tuning in the engine where success is significantly lower; else that of an evaluation."""
    config, actor = TransferConfig(run=str(base)), open_policy(str(base), pick_device("cpu"))
    home = measured("mujoco", 10)
    some, none = (measured("pybullet", solved, home.result) for solved in (9, 0))
    said = next_step(config, actor, [home, some, none])
    assert said.startswith(f"robo-rl finetune base={base} env=arm/lift:engine=pybullet out=")
    assert next_step(config, actor, [home, some]) == after_evaluation(actor.folder, home.result.rate)


@pytest.mark.parametrize(
    ("solved", "episodes", "says"),
    [
        ((0, 0), 20, "robo-rl finetune base=<a policy that succeeds at times> "),
        ((2, 1), 20, "robo-rl finetune base=<the run of the bundle> env=arm/lift out="),
        ((3, 0), 3, "robo-rl finetune base=<the run of the bundle> env=arm/lift:engine=pybullet out="),
        ((18, 17), 20, "robo-rl run bundle="),
    ],
)
def test_a_bundle_that_seldom_succeeds_is_not_sent_to_a_robot(
    solved: tuple[int, int], episodes: int, says: str, base: Path, tmp_path: Path
) -> None:
    """A loss in three episodes is not significant, but no reason to go on."""
    folder = tmp_path / "bundle"
    shutil.copytree(open_policy(str(base), pick_device("cpu")).folder, folder)
    (folder / MANIFEST).write_text("{}")
    actor = replace(open_policy(str(base), pick_device("cpu")), folder=folder)
    home = measured("mujoco", solved[0], episodes=episodes)
    results = [home, measured("pybullet", solved[1], home.result, episodes)]
    assert next_step(TransferConfig(bundle=str(folder)), actor, results).startswith(says)


def test_a_policy_on_a_server_has_no_next_step(base: Path) -> None:
    """Its files are not here; the measurement used to end with an error about them."""
    actor = replace(open_policy(str(base), pick_device("cpu")), folder=Path("remote:127.0.0.1:1"))
    home = measured("mujoco", 10)
    for solved in (9, 0):
        results = [home, measured("pybullet", solved, home.result)]
        assert next_step(TransferConfig(run="remote:127.0.0.1:1"), actor, results) == ""


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["engines=mujoco,bulet"], "Did you mean 'pybullet'"),
        (["bundle=x"], "not both"),
        (["effects=none", "rate_hz=480"], "effects=none, rate_hz=480.0 cannot be used: it is for flights"),
        (["controllers=[pid]"], "controllers=['pid'] cannot be used: it is for flights"),
        (["randomize=0.2"], "options in env="),
    ],
)
def test_mistakes_print_one_sentence(
    base: Path, words: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["transfer", f"run={base}", "episodes=1", *words]) != 0
    assert says in capsys.readouterr().err.replace("\n", " ")


def test_missing_policy_is_reported_before_engines(capsys: pytest.CaptureFixture[str]) -> None:
    """Without a policy, engines= used to give an error about flights."""
    assert cli.main(["transfer", "engines=mujoco,pybullet"]) != 0
    assert "Give run=<folder of a run> or bundle=<folder>" in capsys.readouterr().err.replace("\n", " ")


def test_unusable_engine_is_reported_before_any_episode(
    base: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A missing package of the second engine must not cost the episodes of the first."""
    monkeypatch.setattr("robo_rl.flight.transfer.arm.evaluate", None)
    given = [f"run={base}", "env=arm/lift:actuator=dc_motor", "engines=mujoco,isaacgym", "episodes=1"]
    assert cli.main(["transfer", *given]) != 0
    assert (
        "The engine isaacgym supports only the friction of actuator models"
        in capsys.readouterr().err.replace("\n", " ")
    )
