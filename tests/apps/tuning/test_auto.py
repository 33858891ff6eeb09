"""`method=auto`: the probe chooses, stages follow, and the best policy is saved."""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import yaml

pytest.importorskip("metaworld", reason="needs MetaWorld: pip install 'robo-rl[sim]'")

from policies.base.generative import GenerativePolicy
from policies.checkpoint import load_policy, save_policy
from robo_rl.apps.cli.main import main as robo_rl
from robo_rl.apps.tuning import comparison, loop, report, start, training_lanes
from robo_rl.apps.tuning.auto import imitation, verb
from robo_rl.apps.tuning.auto import stages as auto
from robo_rl.apps.tuning.start import with_planning_interval
from robo_rl.conf.finetune import FinetuneVerb, MethodConfig
from robo_rl.core.errors import ConfigError
from robo_rl.core.files.durable import read_json
from robo_rl.data.store import DatasetWriter, EpisodeStore
from robo_rl.eval.probe import Probe
from robo_rl.eval.race import Race
from robo_rl.eval.rollout import eval_seeds
from robo_rl.eval.stats import SuccessRate
from robo_rl.runs.learning_curve import LearningCurve
from robo_rl.runs.run_dir import RunDir
from tests.policies.small import flow_policy
from tests.rl.worlds import SPEC, make_env

TOTAL = 360


@pytest.fixture(scope="module")
def reach(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """(demonstrations, base policy) of a real task, barely trained."""
    folder = tmp_path_factory.mktemp("auto")
    data, out = folder / "data", folder / "base"
    few = ["episodes=3", "num_envs=2", "num_workers=0"]
    assert robo_rl(["collect", "env=metaworld/reach-v3", f"out={data}", *few]) == 0
    assert (
        robo_rl(["train", f"data={data}", f"out={out}", "steps=60", "net.width=16", "process.steps=2"]) == 0
    )
    return data, out


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """(demonstrations, base policy) of the toy task, whose base plans less often than steering."""
    folder = tmp_path_factory.mktemp("toy")
    writer = DatasetWriter.create(folder / "data", SPEC)
    for position in (1.0, 2.0, 3.0):
        with writer.episode() as episode:
            for _ in range(6):
                episode.add({"state": np.array([position, 1.0], np.float32)}, np.ones(1, np.float32))
            episode.commit(success=True)
    save_policy(folder / "base" / "policy", with_planning_interval(flow_policy(SPEC), 4))
    return folder / "data", folder / "base"


@pytest.fixture
def base(made: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """Factory of the toy task under every environment name."""
    for module in (auto, comparison, start, loop, report):
        monkeypatch.setattr(module, "make_env", lambda name, lanes, *_, **__: make_env(lanes))
    monkeypatch.setattr(loop, "has_dense_reward", lambda *_: False)
    return made


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small networks, short stages, four episodes per comparison."""
    recipe = cache(auto.stage_method)  # hydra takes a tenth of a second to compose one

    def shrunk(name: str) -> MethodConfig:
        method = copy.deepcopy(recipe(name))
        if name == "auto":
            return method
        method.learner.hidden, method.burn_in = [16], min(method.burn_in, 20)
        method.env_steps, method.replay_capacity = min(method.env_steps, 120), 1000
        return method

    monkeypatch.setattr(auto, "stage_method", shrunk)
    monkeypatch.setattr(auto, "CHOICE_EPISODES", 4)
    monkeypatch.setattr(auto, "LEAST_STEPS", 40)
    monkeypatch.setattr(imitation, "UPDATES", 20)


def finetune(base: tuple[Path, Path], out: Path, *more: str) -> int:
    """The verb, in this process."""
    usual = (
        f"env_steps={TOTAL}",
        "num_envs=4",
        "eval_every=120",
        "eval_episodes=2",
        "final_episodes=4",
        "max_episode_steps=40",
        "checkpoint_every=80",
    )
    given = {word.partition("=")[0] for word in more}
    words = [word for word in usual if word.partition("=")[0] not in given]
    where = (f"base={base[1]}", f"demos={base[0]}", f"out={out}", "method=auto")
    return robo_rl(["finetune", *where, *words, *more])


def fixed(monkeypatch: pytest.MonkeyPatch, gaussian: int, zero: int, best_of: int) -> None:
    """Set the result of the probe to these successes in 20 episodes."""
    rates = [SuccessRate(k, 20) for k in (gaussian, zero, best_of)]
    found = Probe(*rates, draws=8, env_steps=0, cpu_s=0.0)
    monkeypatch.setattr(auto, "probe", lambda *_, **__: found)


def record_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also record failures: so few steps have no success. They are not imitated, but can be merged."""
    recorded = training_lanes.Recorded

    def keeping(*arguments: Any, **settings: Any) -> Any:
        return recorded(*arguments, **settings | {"keep_all": True})

    monkeypatch.setattr(training_lanes, "Recorded", keeping)


def note(out: Path) -> dict[str, Any]:
    data: dict[str, Any] = json.loads((out / "policy" / "policy.json").read_text())["train"]
    return data


def trained_steps(out: Path) -> int:
    """Steps of a run in stages without those that chose policies."""
    return int(note(out)["env_steps"] - note(out)["selection_env_steps"])


def test_residual_gets_the_steps_after_steering(
    reach: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a real task: the probe recommends steering, its 120 steps are not enough, the residual gets the
    other 240.
    """
    monkeypatch.setattr(auto, "GOOD_ENOUGH", 1.1)
    fixed(monkeypatch, 8, 10, 20)
    assert finetune(reach, tmp_path / "run") == 0
    assert (tmp_path / "run/steering/run/policy").exists()
    assert (tmp_path / "run/residual/run/policy").exists()
    assert trained_steps(tmp_path / "run") == TOTAL
    curve = json.loads((tmp_path / "run/curve.json").read_text())
    assert curve["env_steps"] == sorted(curve["env_steps"])
    assert len(curve["env_steps"]) == len(curve["rates"]) == len(curve["returns"])


def test_training_stops_at_the_target_success(
    base: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Training stops when a policy is good enough."""
    monkeypatch.setattr(auto, "GOOD_ENOUGH", 0.0)
    fixed(monkeypatch, 8, 10, 20)
    assert finetune(base, tmp_path / "run") == 0
    assert not (tmp_path / "run/residual").exists()
    assert trained_steps(tmp_path / "run") == 120


def test_residual_alone_if_no_noise_helps(
    base: tuple[Path, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """If nothing beats the base, the base is the result."""
    monkeypatch.setattr(auto, "GOOD_ENOUGH", 1.1)
    fixed(monkeypatch, 20, 20, 20)
    monkeypatch.setattr(Probe, "recommend", lambda _: auto_choice("residual"))
    monkeypatch.setattr(auto, "rate_of", lambda *_: SuccessRate(0, 4))
    assert finetune(base, tmp_path / "run") == 0
    assert not (tmp_path / "run/steering").exists()
    weights = [(folder / "policy/weights.safetensors").read_bytes() for folder in (tmp_path / "run", base[1])]
    assert weights[0] == weights[1]
    assert "no draw solves" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("total", "expected"),
    [
        (999, []),
        (1000, [1000]),
        (23_999, [24_000]),
        (24_000, [12_000, 12_000]),
        (38_000, [12_668, 12_668, 12_664]),
        (50_000, [12_500] * 4),
    ],
)
def test_steps_are_split_into_rounds(
    total: int, expected: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rounds of at least 12,000 steps, all steps used, in multiples of four lanes; too few steps are not
    used.
    """
    monkeypatch.setattr(auto, "LEAST_STEPS", 1000)
    spent: list[int] = []
    while steps := auto.round_steps(total - sum(spent)):
        spent.append(-(-steps // 4) * 4)
    assert spent == expected


def test_second_residual_corrects_the_imitating_base(
    base: tuple[Path, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Two rounds: successes of the first and the demonstrations train a new base and are replayed."""
    record_all(monkeypatch)
    monkeypatch.setattr(auto, "GOOD_ENOUGH", 1.1)
    monkeypatch.setattr(auto, "ROUND_STEPS", 180)
    monkeypatch.setattr(auto, "rate_of", lambda *_: SuccessRate(2, 4))
    fixed(monkeypatch, 0, 0, 20)
    monkeypatch.setattr(Probe, "recommend", lambda _: auto_choice("residual"))
    assert finetune(base, tmp_path / "run") == 0
    run = tmp_path / "run"
    first, made = EpisodeStore(run / "residual/run/episodes"), EpisodeStore(run / "imitation/data")
    assert len(first) > 0
    assert len(made) == len(EpisodeStore(base[0])) + len(first)
    imitator = load_policy(run / "imitation/run/policy")
    assert isinstance(imitator, GenerativePolicy)
    built, first_base = imitator.config(), load_policy(base[1] / "policy").config()
    assert all(
        built[name] == first_base[name] for name in ("net", "process", "obs_steps", "chunk", "execute")
    )
    settings = yaml.safe_load((run / "residual2/run/config.yaml").read_text())
    assert settings["demos"] == str(run / "imitation/data")
    weights = [
        (run / name / "weights.safetensors").read_bytes()
        for name in ("imitation/run/policy", "residual2/base")
    ]
    assert weights[0] == weights[1]
    assert (run / "imitation2/run/policy").exists()
    assert trained_steps(run) == TOTAL
    assert "imitation: 2/4" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("successes", "corrected"), [(3, "imitation/run/policy"), (2, "residual/run/policy")]
)
def test_much_worse_imitation_is_not_used(
    base: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, successes: int, corrected: str
) -> None:
    """Up to ten points below the best, a policy without corrections is the better base for a residual."""
    record_all(monkeypatch)
    rates = [
        SuccessRate(k, 20) for k in (1, 4, successes, successes, *[1] * 9)
    ]  # start, residual, imitation twice
    monkeypatch.setattr(auto, "GOOD_ENOUGH", 1.1)
    monkeypatch.setattr(auto, "ROUND_STEPS", 180)
    monkeypatch.setattr(auto, "CLOSE", 0.07)
    monkeypatch.setattr(auto, "own_rates", lambda *_: [rates[0]] * 2)
    remaining = iter(rates[1:])
    monkeypatch.setattr(auto, "rate_of", lambda *_: next(remaining))
    fixed(monkeypatch, 0, 0, 20)
    monkeypatch.setattr(Probe, "recommend", lambda _: auto_choice("residual"))
    assert finetune(base, tmp_path / "run") == 0
    weights = [
        (tmp_path / "run" / name / "weights.safetensors").read_bytes()
        for name in (corrected, "residual2/base")
    ]
    assert weights[0] == weights[1]


def test_target_success_is_tested_on_more_episodes(
    base: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """49 of 50 may be chance: training continues if 200 episodes give 0.94 and stops if they give 0.98;
    tested once.
    """
    config, policy, asked = FinetuneVerb(out="unused", base=str(base[1])), flow_policy(SPEC), []
    for successes, is_good_enough in ((188, False), (196, True)):

        def measured(*_: Any, successes: int = successes) -> SuccessRate:
            asked.append(1)
            return SuccessRate(successes, 200)

        monkeypatch.setattr(auto, "rate_of", measured)
        course = auto._AutoRun(
            config,
            policy,
            RunDir(Path("unused")),
            auto.Stage(policy, 0.0, SuccessRate(49, 50)),
            LearningCurve(),
        )
        assert course.is_good_enough() == course.is_good_enough() == is_good_enough
    assert len(asked) == 2


@pytest.mark.parametrize(("successes", "recipe", "scale"), [(17, "residual_far", 0.4), (18, "residual", 0.2)])
def test_weak_base_gets_residual_far(
    base: tuple[Path, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    successes: int,
    recipe: str,
    scale: float,
) -> None:
    """Below 90 % the base's errors may exceed the usual residual's scale."""
    monkeypatch.setattr(auto, "GOOD_ENOUGH", 1.1)
    fixed(monkeypatch, 0, 0, 20)
    monkeypatch.setattr(Probe, "recommend", lambda _: auto_choice("residual"))
    monkeypatch.setattr(auto, "own_rates", lambda *_: [SuccessRate(successes, 20)] * 2)
    assert finetune(base, tmp_path / "run") == 0
    config = yaml.safe_load((tmp_path / "run/residual/run/config.yaml").read_text())
    assert (config["method"]["name"], config["method"]["map"]["scale"]) == (recipe, scale)


def test_stopped_run_resumes_within_its_stage(
    base: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stopped at the start of the residual, moved, resumed: the same policy, without repeating steering, and
    the same count of the steps that compared policies.
    """
    monkeypatch.setattr(auto, "GOOD_ENOUGH", 1.1)
    fixed(monkeypatch, 8, 10, 20)
    assert finetune(base, tmp_path / "whole") == 0
    rate_of, calls = auto.rate_of, []

    def stop(*arguments: Any) -> SuccessRate:
        calls.append(1)
        if len(calls) == 4:
            raise KeyboardInterrupt("here")
        return rate_of(*arguments)

    monkeypatch.setattr(auto, "rate_of", stop)
    stopped = finetune(base, tmp_path / "stopped")
    monkeypatch.setattr(auto, "rate_of", rate_of)
    assert stopped == 130
    (tmp_path / "stopped").rename(tmp_path / "moved")
    assert finetune(base, tmp_path / "moved", "resume=true") == 0
    weights = [(tmp_path / name / "policy/weights.safetensors").read_bytes() for name in ("whole", "moved")]
    assert weights[0] == weights[1]
    notes = [read_json(tmp_path / name / "policy/policy.json")["train"] for name in ("whole", "moved")]
    probed = Probe.from_json(read_json(tmp_path / "whole/probe.json")).env_steps
    assert notes[0]["selection_env_steps"] == notes[1]["selection_env_steps"] > probed


@pytest.mark.parametrize("eval_seed", range(4))
def test_stages_are_not_chosen_on_the_final_episodes(eval_seed: int) -> None:
    """The best of several on 50 episodes is biased upwards: the final 100 must differ."""
    chosen = auto.choice_seed(FinetuneVerb(eval_seed=eval_seed))
    assert not set(eval_seeds(chosen, auto.CONFIRMATION_FACTOR * 50)) & set(eval_seeds(eval_seed, 100))


@pytest.mark.parametrize(
    ("total", "episodes", "draws"),
    [(2_000, 10, 4), (9_999, 10, 4), (10_000, 10, 8), (25_000, 25, 8), (50_000, 50, 8), (400_000, 50, 8)],
)
def test_probe_of_a_short_run_is_short(
    total: int,
    episodes: int,
    draws: int,
    base: tuple[Path, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """At 50,000 steps or more as by default; with 2,000 steps the probe used to take up to 27 times the steps
    of training. Checks the probe's arguments and the number of comparison episodes.
    """
    monkeypatch.setattr(auto, "CHOICE_EPISODES", 50)
    asked: dict[str, Any] = {}

    def probed(*_: Any, **settings: Any) -> Probe:
        asked.update(settings)
        return Probe(*(SuccessRate(1, 2) for _ in range(3)), draws=8, env_steps=0, cpu_s=0.0)

    def measured(*arguments: Any) -> Any:
        asked["compared"] = arguments[-1]
        return SimpleNamespace(rate=SuccessRate(1, 2), env_steps=7)

    monkeypatch.setattr(auto, "probe", probed)
    monkeypatch.setattr(auto, "measure", measured)
    config = FinetuneVerb(out="unused", base=str(base[1]), env_steps=total)
    policy = flow_policy(SPEC)
    auto.probe_base(config, policy, RunDir(tmp_path))
    auto.rate_of(config, policy, 0.0, LearningCurve())
    found = [asked[name] for name in ("episodes", "best_of_seeds", "draws", "compared")]
    assert found == [episodes, episodes // 2, draws, episodes]


@pytest.mark.parametrize(
    ("own_zero", "own_noisy", "zero", "noisy", "execute", "scale"),
    [(5, 5, 5, 5, 2, 0.0), (5, 5, 6, 5, 1, 0.0), (5, 5, 5, 6, 1, 1.0), (5, 7, 6, 6, 2, 1.0)],
)
def test_start_is_the_best_configuration_of_the_base(
    own_zero: int, own_noisy: int, zero: int, noisy: int, execute: int, scale: float,
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """The best of four rates over 20 episodes each; on a tie the base's own planning interval and zero noise.
    A second call reads the stored rates.
    """
    own = iter([own_zero, own_noisy])
    monkeypatch.setattr(auto, "rate_of", lambda *_: SuccessRate(next(own), 20))
    base, run = flow_policy(SPEC), RunDir(tmp_path)
    found = Probe(
        SuccessRate(noisy, 20), SuccessRate(zero, 20), SuccessRate(9, 20), draws=8, env_steps=0, cpu_s=0.0
    )
    for _ in range(2):
        start = auto.best_start(
            FinetuneVerb(), base, with_planning_interval(base, 1), found, run, LearningCurve()
        )
        assert (start.policy.execute, start.noise_scale) == (execute, scale)


def test_method_settings_are_refused(
    base: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Settings that no recipe of `auto` uses are refused before anything is written."""
    assert finetune(base, tmp_path / "run", "method.learner.tau=0.1") == 2
    assert "method=steering" in capsys.readouterr().err
    with pytest.raises(ConfigError, match="init=other continues the networks of one method"):
        verb.check_auto(FinetuneVerb(init="other", method=auto.stage_method("auto")))
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("perfect", [False, True])
def test_many_environments_train_in_lanes(
    base: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, perfect: bool
) -> None:
    """By default 32 environments: every step is within env_steps, and a base that is beaten in the race, or
    never fails, is kept.
    """
    monkeypatch.setattr(verb, "stage_method", auto.stage_method)
    if perfect:
        monkeypatch.setattr(comparison.TrainingEpisodes, "perfect_base", lambda *_: True)
    monkeypatch.setattr(comparison.TrainingEpisodes, "favour_policy", lambda _: False)
    monkeypatch.setattr(comparison, "race", lambda *_: Race((False,), (True,), 7))
    assert finetune(base, tmp_path / "run", "num_envs=0", "env_steps=1500") == 0
    found = read_json(tmp_path / "run/results.json")
    assert found["env_steps"] == sum(found["steps"].values()) <= 1500
    assert found["steps"]["selection"] == (0 if perfect else 14)  # each form of the base races
    assert (found["steps"]["training"] == 0) is perfect
    kept = "there is nothing to learn" if perfect else "the base 1/1"
    assert kept in " ".join(found["decided_by"])
    weights = [(folder / "policy/weights.safetensors").read_bytes() for folder in (tmp_path / "run", base[1])]
    assert weights[0] == weights[1]


def test_number_of_environments(base: tuple[Path, Path]) -> None:
    """32 for auto with demonstrations, 4 without, and what the user says."""
    method = auto.stage_method("auto")
    config = FinetuneVerb(out="unused", base=str(base[1]), demos=str(base[0]), method=method)
    assert verb.environments(config) == 32
    assert verb.environments(replace(config, demos=None)) == 4
    assert verb.environments(replace(config, num_envs=2)) == 2


def auto_choice(method: str) -> Any:
    from robo_rl.eval.probe import Recommendation

    return Recommendation(method, "no draw solves")  # type: ignore[arg-type]
