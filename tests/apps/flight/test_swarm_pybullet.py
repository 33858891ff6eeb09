"""Swarms in PyBullet by the verbs: trained there, or trained in `quad` and transferred."""

from __future__ import annotations

import json
import shlex
import shutil
from dataclasses import asdict
from pathlib import Path

import pytest
import torch
import yaml

from hardware.checks.faulty_disk import full_disk
from policies.checkpoint import load_policy
from policies.flight.swarm import SwarmPolicy
from robo_rl.apps.cli.config import load_config
from robo_rl.apps.cli.main import main
from robo_rl.apps.cli.settings_file import expand
from robo_rl.conf.swarm import SwarmConfig
from robo_rl.conf.transfer import TransferConfig
from robo_rl.flight.swarm.runs import evaluate_worlds
from robo_rl.flight.swarm.setting import SwarmSetting
from robo_rl.flight.transfer.swarm import SwarmDrop, load_swarm, next_step
from sim.engines.quad.layout import POS
from sim.flight.swarm.swarm_trial import SwarmTrial

pytest.importorskip("pybullet")

SMALL = [
    "drones=3",
    "worlds=2",
    "horizon=3",
    "width=8",
    "token=4",
    "heads=2",
    "neighbours=2",
    "cylinders=2",
    "history=1",
    "train_s=0.2",
    "eval_episodes=4",
    "eval_s=0.3",
    "video=false",
    "eager=true",
    "updates=2",
]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same short training in both engines."""
    folder = tmp_path_factory.mktemp("swarms")
    for engine in ("quad", "pybullet"):
        assert main(["train", "task=swarm", f"engine={engine}", *SMALL, f"out={folder / engine}"]) == 0
    return folder


@pytest.mark.slow
def test_swarm_training_and_evaluation_in_pybullet(runs: Path) -> None:
    """Results and bundle name the engine; from the same start, the weights differ from those of `quad`."""
    for engine, name in (("quad", "quad/swarm"), ("pybullet", "quad/swarm:engine=pybullet")):
        assert json.loads((runs / engine / "results.json").read_text())["engine"] == engine
        manifest = json.loads((runs / engine / "bundle" / "manifest.json").read_text())
        assert manifest["env"]["name"] == name
    one, two = (load_policy(runs / engine / "policy") for engine in ("quad", "pybullet"))
    assert isinstance(one, SwarmPolicy)
    assert isinstance(two, SwarmPolicy)
    apart = [(one.state_dict()[key] - value).abs().max() for key, value in two.state_dict().items()]
    assert 0.0 < max(apart) < 0.2


@pytest.mark.parametrize(("away", "advises"), [(0.2, True), (0.9, False)])
def test_a_clear_loss_advises_a_training_in_pybullet(away: float, advises: bool, tmp_path: Path) -> None:
    """9 of 10 drones succeed in quad."""
    (tmp_path / "run.json").write_text("{}")
    trained = SwarmConfig(worlds=2, downwash=True)  # which PyBullet refuses
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(asdict(trained)))
    drop, config = SwarmDrop("all", trial(0.9), trial(away)), TransferConfig(eval_s=9.0)
    said = next_step(config, trained, tmp_path / "policy", drop)
    assert bool(said) is advises
    if advises:
        assert said.startswith(
            f"robo-rl swarm config={tmp_path}/config.yaml eval_s=9.0 engine=pybullet downwash=false "
            "updates=300 out="
        )
        words, _ = expand(shlex.split(said.partition("   (")[0])[2:], "swarm")
        again = load_config("swarm", words, SwarmConfig)
        assert (again.engine, again.updates, again.worlds) == ("pybullet", 300, 2)
        assert SwarmSetting.of(again)
        assert not next_step(config, again, tmp_path / "policy", drop)


def trial(rate: float) -> SwarmTrial:
    """40 worlds of 10 drones with this success."""
    reached = torch.arange(10).lt(10 * rate).repeat(40, 1)
    hit = torch.zeros_like(reached)
    return SwarmTrial(torch.zeros(40, dtype=torch.int64), reached, hit, hit, hit, torch.zeros(40, 10))


def test_zero_policy_hovers_at_its_start() -> None:
    """No weights and the hover bias: without effects no drone moves in PyBullet, as in `quad`."""
    config = SwarmConfig(
        drones=3, worlds=2, eval_episodes=2, eval_s=1.0, engine="pybullet", eager=True, density=0.1
    )
    setting = SwarmSetting.of(config)
    policy = setting.policy(config)
    with torch.no_grad():
        policy.last.weight.zero_()
    swarm = setting.swarm(config, setting.world, 1)
    action = policy.columns(swarm.obs)
    assert action.sub(2.0 * setting.craft.hover_speed - 1.0).abs().max() < 1e-6
    began = swarm.now.state[POS].clone()
    for _ in range(50):
        swarm.advance(policy.columns(swarm.obs))
    assert (swarm.now.state[POS] - began)[0:2].abs().max() < 1e-3
    trial, _ = evaluate_worlds(config, setting, setting.world, policy.columns)
    assert trial.reached.shape == (2, 3)


@pytest.mark.long
def test_transfer_of_a_swarm_to_pybullet(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One table for both engines, a row per scenario, equal for a run and for a bundle that was moved."""
    moved = shutil.copytree(runs / "quad" / "bundle", tmp_path / "moved")
    found = []
    for given in (f"run={runs / 'quad'}", f"bundle={moved}"):
        out = tmp_path / given.split("=")[0]
        assert main(["transfer", given, "episodes=5", "video=false", f"out={out}"]) == 0
        found.append(json.loads((out / "results.json").read_text()))
        assert (out / "transfer.png").stat().st_size > 0
    assert found[0]["rows"] == found[1]["rows"]
    rows = found[0]["rows"]
    assert [row["scenario"] for row in rows] == ["all", "random", "swap", "same_goal", "formation", "pursuit"]
    assert (rows[0]["quad"]["n"], rows[0]["pybullet"]["n"]) == (15, 15)
    lost = rows[0]["only_home"] - rows[0]["only_away"]
    assert rows[0]["drop_points"] == pytest.approx(100.0 * lost / 15)
    assert found[0]["drop_points"] == rows[0]["drop_points"]
    printed = " ".join(capsys.readouterr().out.split())
    assert "5 worlds, the same in both engines" in printed
    assert "effects: ground, downwash, drag (prop_radius_m, ground_effect" in printed


def test_a_full_disk_costs_the_files_but_not_the_table(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The flights are minutes of work; their table used to be lost with results.json."""
    drops = [SwarmDrop("all", trial(0.9), trial(0.8))]
    monkeypatch.setattr("robo_rl.flight.transfer.swarm.measure", lambda *_: (drops, None))
    with full_disk(tmp_path, room_bytes=100):
        assert main(["transfer", f"run={runs / 'quad'}", "episodes=40", f"out={tmp_path / 'out'}"]) == 4
    said = capsys.readouterr()
    assert "The disk is full" in said.err
    assert "40 worlds, the same in both engines" in said.out


@pytest.mark.long
def test_transferred_policy_has_the_trained_weights(runs: Path) -> None:
    """Equal weights, and the settings of the training except engine and length of the measurement."""
    _, policy, settings = load_swarm(TransferConfig(run=str(runs / "quad"), episodes=7, seed=3))
    trained = load_policy(runs / "quad" / "policy")
    assert isinstance(trained, SwarmPolicy)
    assert all(value.equal(trained.state_dict()[key]) for key, value in policy.state_dict().items())
    assert (settings.drones, settings.history, settings.eval_episodes, settings.eval_seed) == (3, 1, 7, 3)


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        (
            ["transfer", "run=RUN", "above_m=1"],
            "above_m=1.0 cannot be used: it is for single drones, not for a swarm",
        ),
        (["transfer", "run=RUN", "effects=wind"], "wind"),
        (["swarm", "engine=pybullet", "downwash=true"], "downwash=true is for engine=quad"),
        (["swarm", "engine=gazebo"], "quad | pybullet"),
    ],
)
def test_mistakes_print_one_sentence(
    words: list[str], answer: str, runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Refused before the first flight."""
    given = [word.replace("RUN", str(runs / "quad")) for word in words]
    assert main([*given, f"out={tmp_path / 'out'}"]) == 2
    assert answer in " ".join(capsys.readouterr().err.split())
