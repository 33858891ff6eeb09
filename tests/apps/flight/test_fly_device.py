"""`robo-rl fly device=`: what trains on a device, tried on the CPU, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from robo_rl.apps.cli.main import main
from robo_rl.conf.fly import FlyConfig
from robo_rl.conf.fly_method import ShacMethod, Td3Method
from robo_rl.core.errors import ConfigError
from robo_rl.flight.fly.learners import device_training, new_policy
from robo_rl.flight.fly.recipe import resolved
from robo_rl.flight.fly.setup import FlightSetup
from robo_rl.flight.seeds import SeedTraining
from sim.tasks.flight.hover import HoverTask


def training(**changes: object) -> SeedTraining:
    """The training of a GPU, on the CPU."""
    given: dict[str, object] = {"flights": 4, "horizon": 2, "hidden": [8], "updates": 2, "eager": True}
    config = FlyConfig(**given | changes)  # type: ignore[arg-type]
    setting = FlightSetup.of(config)
    policy = new_policy(config, setting, 0)
    return device_training(config, setting, 0, policy, torch.device("cpu"))


@pytest.mark.parametrize("task", ["hover", "figure8", "waypoints", "race", "obstacles"])
def test_every_task_trains_and_its_weights_come_back(task: str) -> None:
    """The policy that is saved keeps its weights until the training ends, and then has the trained ones."""
    made = training(task=task, start="lqr" if task == "hover" else "random")
    before = [value.clone() for value in made.policy.state_dict().values()]  # type: ignore[attr-defined]
    while not made.trainer.done:
        made.trainer.update()
    held = made.policy.state_dict().values()  # type: ignore[attr-defined]
    assert all(map(torch.equal, before, held))
    made.after()
    trained = made.trainer.policy.state_dict().values()  # type: ignore[attr-defined]
    assert all(map(torch.equal, trained, held))
    assert not all(map(torch.equal, before, held))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"method": Td3Method()}, "method=td3 learns on the CPU"),
        ({"method": ShacMethod()}, "needs device=cpu"),
        ({"engine": "pybullet"}, "engine=pybullet simulates on the CPU"),
    ],
)
def test_what_a_device_cannot_train_is_refused(changes: dict[str, object], said: str) -> None:
    """One sentence that names the setting to change."""
    with pytest.raises(ConfigError, match=said):
        training(**changes)


def test_a_gpu_that_is_missing_is_reported_before_a_run_is_made(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """device=cuda without a GPU: one sentence, exit status not 0, and no folder."""
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    assert main(["fly", "task=hover", "device=cuda", f"out={tmp_path / 'run'}"]) != 0
    assert "torch sees 0 GPUs here. Use device=cpu" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_a_gpu_flies_more_at_once() -> None:
    """Default numbers of flights; a number that is given stays."""
    found = [
        resolved(FlyConfig(device=device, flights=given), HoverTask()).flights
        for device, given in (("cpu", 0), ("cuda", 0), ("cuda:1", 64))
    ]
    assert found == [128, 1024, 64]
