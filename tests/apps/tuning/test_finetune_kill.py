"""Fine-tuning killed at critical moments resumes to the same bits; `finetune/` kills a real process, too."""

from __future__ import annotations

import json
import shutil
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from policies.checkpoint import load_policy, save_policy
from robo_rl.apps import finetune
from robo_rl.apps.tuning import check, evaluations, loop, report
from robo_rl.apps.tuning.rewards import progress
from robo_rl.conf.finetune import FinetuneVerb, MapConfig, MethodConfig
from robo_rl.core.errors import RoboRLError
from robo_rl.core.files import state_io
from robo_rl.data.store import DatasetWriter
from robo_rl.rl.denoising.config import DenoisingConfig
from robo_rl.rl.loop import FineTuner
from robo_rl.rl.mix import MixConfig
from robo_rl.rl.off_policy.config import LearnerConfig
from robo_rl.rl.on_policy.ppo import PpoConfig
from robo_rl.rl.on_policy.ppo_learner import PpoLearner
from robo_rl.rl.on_policy.tuner import PpoTuner
from robo_rl.rl.progress.model import fit_progress
from robo_rl.runs.run_dir import RunDir
from tests.apps.tuning.dying import Killed, dying
from tests.apps.tuning.killed_runs import Death, config, die, same_run, toy_task
from tests.policies.small import flow_policy
from tests.rl.worlds import SPEC


@pytest.fixture(autouse=True)
def toy(monkeypatch: pytest.MonkeyPatch) -> None:
    """The toy task under every environment name."""
    toy_task(monkeypatch)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("kill") / "base"
    save_policy(folder, flow_policy(SPEC))
    return folder


@pytest.fixture(scope="module")
def whole(base: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("kill") / "whole"
    with pytest.MonkeyPatch.context() as patch:
        toy_task(patch)
        assert finetune.main(config(base, out)) == 0
    return out


DEATHS: dict[str, Death] = {
    "before the first checkpoint": (FineTuner, "advance", 5, False),
    "in the base phase": (FineTuner, "advance", 12, False),
    "in the middle of the burn-in": (FineTuner, "_burn_in", 2, False),
    "after the burn-in": (FineTuner, "_burn_in", 2, True),
    "in the middle of a control step": (FineTuner, "_learn", 20, True),
    "in an evaluation": (evaluations, "measure", 3, False),
    "in the last evaluation": (evaluations, "measure", 6, False),
    "after an evaluation, before its checkpoint": (loop._Training, "_evaluate", 3, True),
    "while a checkpoint is written": (state_io, "write_json", 3, False),
    "between a checkpoint and the removal of the one before": (shutil, "rmtree", 4, False),
    "before the policy is saved": (loop, "save_policy", 1, False),
    "while the policy is saved": (loop, "write_json", 1, False),
}


DENOISING_DEATHS: dict[str, Death] = {
    "in the middle of a rollout": (PpoTuner, "advance", 30, True),
    "in the middle of an update": (PpoLearner, "_step", 5, True),
    "in an evaluation": (evaluations, "measure", 3, False),
}


@pytest.mark.parametrize("death", DENOISING_DEATHS)
def test_denoising_resumes_to_the_same_bits(death: str, base: Path, tmp_path: Path) -> None:
    """Promise 7 for learning inside the denoising, with one drawn step for each rollout and learned noise."""
    method = MethodConfig(
        name="flow_sde", env_steps=140, base_steps=0, burn_in=0, algorithm="denoising",
        map=MapConfig("chain"), learner=LearnerConfig(hidden=[8]),
        ppo=PpoConfig(rollout=14, epochs=2, minibatches=2),
        denoising=DenoisingConfig(random_step="rollout", noise_range=[0.1, 0.2]),
    )  # fmt: skip
    assert finetune.main(config(base, tmp_path / "whole", method=method)) == 0
    die(config(base, tmp_path / "run", method=method), DENOISING_DEATHS[death])
    assert finetune.main(config(base, tmp_path / "run", method=method, resume=True)) == 0
    same_run(tmp_path / "whole", tmp_path / "run")


@pytest.mark.parametrize("death", DEATHS)
def test_resumed_equals_uninterrupted(death: str, base: Path, whole: Path, tmp_path: Path) -> None:
    """Promise 7: weights and all logged values are equal bit for bit."""
    die(config(base, tmp_path / "run"), DEATHS[death])
    assert finetune.main(config(base, tmp_path / "run", resume=True)) == 0
    same_run(whole, tmp_path / "run")


@pytest.mark.parametrize("death", ["before the first checkpoint", "in the middle of a control step"])
def test_with_a_reward_for_progress_resumes_to_the_same_bits(
    death: str, base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The model of progress, here of few updates, is kept in the run and read again."""
    monkeypatch.setattr(fit_progress, "__defaults__", (20,))
    writer = DatasetWriter.create(tmp_path / "data", SPEC)
    for target in (2.0, 3.0):
        with writer.episode() as episode:
            for place in np.linspace(1.0, target, 5, dtype=np.float32)[:-1]:
                episode.add({"state": np.array([target, place])}, np.ones(1, np.float32))
            episode.commit(success=True)

    def verb(out: Path, **changes: Any) -> FinetuneVerb:
        made = config(base, out, demos=str(tmp_path / "data"), **changes)
        made.method.progress_weight, made.method.mix = 0.5, MixConfig(online=0.5, demo=0.5)
        return made

    taught, read = progress.check_taught, list[int]()  # it reads every demonstration

    def counted(*arguments: Any) -> None:
        read.append(1)
        taught(*arguments)

    for module in (check, progress):
        monkeypatch.setattr(module, "check_taught", counted)
    assert finetune.main(verb(tmp_path / "whole")) == 0
    assert len(read) == 1
    die(verb(tmp_path / "run"), DEATHS[death])
    assert finetune.main(verb(tmp_path / "run", resume=True)) == 0
    assert len(read) == 2  # not of the resumed run, which keeps its model
    same_run(tmp_path / "whole", tmp_path / "run")
    note = json.loads((tmp_path / "run" / "results.json").read_text())["progress"]
    assert note["episodes"] == 2
    assert note["held_out_error"] > 0.0


STOPS: dict[str, tuple[Any, str, int, str]] = {
    "while the run is put together": (loop, "start_from", 1, "nothing was saved yet"),
    "in the first evaluation": (evaluations, "measure", 1, "saved step 0 "),
    "in the burn-in": (FineTuner, "_burn_in", 1, "saved step 40 "),
    "online": (FineTuner, "_learn", 3, "saved step 46 "),
    "in the last evaluation": (evaluations, "measure", 6, "saved step 120 "),
}


@pytest.mark.parametrize("stop", STOPS)
def test_stopped_and_resumed_equals_uninterrupted(
    stop: str, base: Path, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SIGTERM at any moment: the next complete state is saved, and resume=true ends with the same bits."""
    where, name, call, said = STOPS[stop]
    real, calls = getattr(where, name), list[int]()

    def stopped(*arguments: Any, **options: Any) -> Any:
        calls.append(1)
        if len(calls) == call:
            signal.raise_signal(signal.SIGTERM)
        return real(*arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(where, name, stopped)
        with pytest.raises(KeyboardInterrupt, match=said):
            finetune.main(config(base, tmp_path / "run"))
    assert len(calls) == call
    assert finetune.main(config(base, tmp_path / "run", resume=True)) == 0
    same_run(whole, tmp_path / "run")


def test_killed_at_the_last_step(base: Path, whole: Path, tmp_path: Path) -> None:
    """The last step has its checkpoint before its evaluation: a repeated evaluation is logged once."""
    run = config(base, tmp_path / "run", checkpoint_every=40)  # 120 steps are three of these
    die(run, DEATHS["before the policy is saved"])
    run.resume = True
    assert finetune.main(run) == 0
    same_run(whole, tmp_path / "run")


Verb = Callable[..., FinetuneVerb]


@pytest.fixture
def offline(base: Path, tmp_path: Path) -> Verb:
    """Settings of a run that learns offline first, in pieces of 100, 100 and 50 updates."""
    writer = DatasetWriter.create(tmp_path / "data", SPEC)
    for success in (True, False):
        with writer.episode() as episode:
            for _ in range(4):
                episode.add({"state": np.ones(2, np.float32)}, np.ones(1, np.float32))
            episode.commit(success=success)

    def verb(out: Path, **changes: Any) -> FinetuneVerb:
        made = config(base, out, demos=str(tmp_path / "data"), **changes)
        made.method.offline_updates, made.method.mix = 250, MixConfig(online=0.5, demo=0.5)
        return made

    return verb


def test_killed_offline_resumes_from_the_last_checkpoint(
    offline: Verb, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Offline learning is most of some methods' time: a kill in its last part must cost that part only."""
    assert finetune.main(offline(tmp_path / "whole", checkpoint_every=100)) == 0
    learn, pieces = FineTuner._learn_offline, list[int]()
    for call in (3, 1):  # in the third piece, and again in the only one that is left
        run = offline(tmp_path / "run", checkpoint_every=100, resume=call == 1)
        die(run, (FineTuner, "_learn_offline", call, True))

    def counted(tuner: FineTuner, updates: int) -> None:
        pieces.append(updates)
        learn(tuner, updates)

    monkeypatch.setattr(FineTuner, "_learn_offline", counted)
    assert finetune.main(offline(tmp_path / "run", checkpoint_every=100, resume=True)) == 0
    assert pieces == [50]
    same_run(tmp_path / "whole", tmp_path / "run")


def test_offline_learning_is_not_repeated(
    offline: Verb, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its end has a checkpoint, although 250 updates are fewer than the steps between two checkpoints."""
    assert finetune.main(offline(tmp_path / "whole", checkpoint_every=1000)) == 0
    die(offline(tmp_path / "run", checkpoint_every=1000), (FineTuner, "advance", 6, False))
    pieces: list[int] = []
    monkeypatch.setattr(FineTuner, "_learn_offline", lambda tuner, n: pieces.append(n))
    assert finetune.main(offline(tmp_path / "run", checkpoint_every=1000, resume=True)) == 0
    assert pieces == []
    same_run(tmp_path / "whole", tmp_path / "run")


def test_stopped_offline_then_killed(
    offline: Verb, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """All offline learning is step 0: updates that are repeated are logged once."""
    verb = offline
    assert finetune.main(verb(tmp_path / "whole")) == 0
    assert "from 1 of the 2 episodes" in capsys.readouterr().out
    learn, pieces = FineTuner._learn_offline, list[int]()

    def interrupted(tuner: FineTuner, updates: int) -> None:
        learn(tuner, updates)
        pieces.append(updates)
        if len(pieces) == 1:
            signal.raise_signal(signal.SIGINT)

    with monkeypatch.context() as patch:
        patch.setattr(FineTuner, "_learn_offline", interrupted)
        with pytest.raises(KeyboardInterrupt, match="saved step 0"):
            finetune.main(verb(tmp_path / "run"))
        # Two pieces, a step, and no checkpoint yet.
        die(verb(tmp_path / "run", resume=True), (FineTuner, "advance", 4, False))
    assert pieces == [100, 100, 50]
    assert finetune.main(verb(tmp_path / "run", resume=True)) == 0
    same_run(tmp_path / "whole", tmp_path / "run")


def test_killed_repeatedly(base: Path, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process dies at every fourth step: the run still ends with the same result."""
    run, deaths = config(base, tmp_path / "run", checkpoint_every=2), 0
    run.method.burn_in = 0  # a burn-in is one piece: no checkpoint lies inside of it
    straight = config(base, tmp_path / "straight", checkpoint_every=2)
    straight.method.burn_in = 0
    assert finetune.main(straight) == 0
    while not (tmp_path / "run" / "policy").exists():
        with monkeypatch.context() as patch:
            patch.setattr(FineTuner, "advance", dying(FineTuner.advance, 15))
            try:
                finetune.main(run)
            except Killed:
                deaths += 1
        run.resume = True
    assert deaths >= 4
    same_run(tmp_path / "straight", tmp_path / "run")


def test_resume_of_a_finished_run_changes_nothing(base: Path, whole: Path, tmp_path: Path) -> None:
    """resume=true on a finished run changes nothing, even if its folder was moved."""
    shutil.copytree(whole, tmp_path / "run")
    assert finetune.main(config(base, tmp_path / "run", resume=True)) == 0
    same_run(whole, tmp_path / "run")


def test_best_evaluation_is_kept(base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Evaluations of 2, 3, 3, 1, ... of 3: the policy is that of the second 3, whatever training did
    later.
    """
    seen: list[torch.Tensor] = []
    met: set[int] = set()
    final: set[int] = set()
    real, rates = report.measure, iter([2, 3, 3, 1, 0, 0])

    def measured(policy: Any, *arguments: Any, **options: Any) -> Any:
        result = real(policy, *arguments, **options)
        (met if len(arguments) == 3 else final).add(arguments[2].eval_seed)
        if len(arguments) == 3:  # of the loop; the final ones name their number of episodes
            seen.append(policy.actor.state_dict()["net.0.weight"].clone())
            k = next(rates)
            return replace(result, success=(True,) * k + (False,) * (3 - k), returns=(float(k),) * 3)
        return result

    monkeypatch.setattr(evaluations, "measure", measured)
    assert finetune.main(config(base, tmp_path / "run")) == 0
    kept: Any = load_policy(tmp_path / "run" / "policy")
    left = kept.state_dict()["actor.net.0.weight"]
    assert torch.equal(left, seen[2])
    assert not torch.equal(left, seen[-1])
    assert met.isdisjoint(final)  # the final episodes took no part in the choice


def test_damaged_checkpoint_is_refused(base: Path, whole: Path, tmp_path: Path) -> None:
    """An incomplete replay must not be used: one sentence that names the folder."""
    shutil.copytree(whole, tmp_path / "run")
    for _, folder in RunDir(tmp_path / "run").steps():
        weights = folder / "state.safetensors"
        weights.write_bytes(weights.read_bytes()[:-10])
    with pytest.raises(
        RoboRLError, match=r"is damaged \(state\.safetensors changed.*no older one.*overwrite=true"
    ):
        finetune.main(config(base, tmp_path / "run", resume=True))
    with pytest.raises(RoboRLError, match="holds no checkpoint, though the run had saved some"):
        finetune.main(config(base, tmp_path / "run", resume=True))
