"""The next step after a fine-tuning: what is gained, kept, trained longer or trained again."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from policies.checkpoint import save_policy
from policies.tuned.one_step import JumpHead, OneStepPolicy
from policies.tuned.residual import ResidualPolicy
from policies.vla.policy import VlaPolicy
from robo_rl.apps.cli.config import load_config
from robo_rl.apps.cli.settings_file import expand
from robo_rl.apps.tuning.distill_rounds import check_head
from robo_rl.apps.tuning.report import evaluation_seeds
from robo_rl.apps.tuning.start import with_planning_interval
from robo_rl.conf.distill import DistillVerb
from robo_rl.conf.finetune import FinetuneVerb, MapConfig, MethodConfig
from robo_rl.conf.schema import EvaluateConfig
from robo_rl.conf.train import TrainConfig
from robo_rl.core.action_map import ResidualMap
from robo_rl.core.errors import ConfigError
from robo_rl.eval.stats import SuccessRate
from robo_rl.nets.actor import ActorConfig, make_actor
from robo_rl.rl.mix import MixConfig
from robo_rl.runs.next_step import after_evaluation, after_tuning
from robo_rl.runs.run_dir import RunDir
from tests.apps.next_step.advice import CONFIG, tuned
from tests.policies.small import flow_policy
from tests.policies.small_vla import small_vla, token_vla
from tests.rl.worlds import SPEC

METHOD = """algorithm: off_policy
map: {kind: residual, scale: 0.1}
env_steps: 600
"""


def test_a_gain_is_distilled() -> None:
    """A significant gain over the base: the fine-tuned policy is the teacher."""
    assert tuned(50, 90, 1e-6) == "robo-rl distill teacher=runs/ft out=runs/head"


def test_a_gain_of_a_single_step_head_is_exported(tmp_path: Path) -> None:
    """FQL's head decides in one call already."""
    save_policy(tmp_path / "policy", OneStepPolicy(flow_policy(SPEC), JumpHead(flow_policy(SPEC))))
    assert after_evaluation(tmp_path / "policy", SuccessRate(9, 10)).startswith("robo-rl export policy=")
    config = replace(CONFIG, method=MethodConfig(name="fql", map=MapConfig("head")))
    assert tuned(50, 90, 1e-6, config) == "robo-rl export policy=runs/ft out=runs/ft/bundle"


NOT_DISTILLED: dict[str, Callable[[], VlaPolicy]] = {  # as small vision-language-action policies
    "tokens": token_vla,
    "memory": partial(small_vla, memory=2),
    "one step": partial(small_vla, steps=1),
}


@pytest.mark.parametrize("name", [*NOT_DISTILLED, "flow"])
def test_distillation_is_advised_where_it_is_possible(name: str, tmp_path: Path) -> None:
    """Other policies are exported: after an evaluation, after a gain, and where the base is kept."""
    policy = NOT_DISTILLED.get(name, small_vla)()
    can = name == "flow"
    with nullcontext() if can else pytest.raises(ConfigError):
        check_head(DistillVerb(teacher="", out=""), policy)
    actor = make_actor(ActorConfig("deterministic", 5, 1, (8,)))
    save_policy(tmp_path / "base", policy)
    save_policy(tmp_path / "ft/policy", ResidualPolicy(policy, actor, ResidualMap(1, 0.3)))
    (tmp_path / "ft/run.json").write_text("{}")
    use = "distill teacher=" if can else "export policy="
    for folder in (tmp_path / "base", tmp_path / "ft/policy"):
        assert after_evaluation(folder, SuccessRate(10, 10)).startswith(f"robo-rl {use}")
    config = replace(CONFIG, base="base", out="ft")
    assert tuned(50, 90, 1e-6, config).startswith(f"robo-rl {use}ft out=")
    for before, after, p in ((50, 50, 1.0), (98, 98, 1.0)):
        said = tuned(before, after, p, config)
        assert f"robo-rl {use}base out=" in said
        assert can or "distill" not in said


def test_steering_is_advised_for_bases_that_draw_noise(tmp_path: Path) -> None:
    """A residual over a residual cannot be steered."""
    actor = make_actor(ActorConfig("deterministic", 5, 1, (8,)))
    save_policy(tmp_path / "tuned", ResidualPolicy(flow_policy(SPEC), actor, ResidualMap(1, 0.3)))
    save_policy(tmp_path / "flow", flow_policy(SPEC))
    for base, advised in (("tuned", False), ("flow", True)):
        config = replace(CONFIG, base=str(tmp_path / base), method=MethodConfig(name="residual"))
        assert ("method=steering" in tuned(50, 40, 0.1, config)) is advised


def test_another_method_fits_a_base_with_a_memory(tmp_path: Path) -> None:
    """It plans at the interval of its training, and no demonstrations hold what it remembers."""
    base = small_vla(memory=2)
    save_policy(tmp_path / "base", base)
    for tried, method in (("residual", "steering"), ("idql", "residual"), ("auto", "steering")):
        given_demos = None if tried == "auto" else "data/buttons"
        config = replace(CONFIG, base="base", method=MethodConfig(name=tried), demos=given_demos)
        [said] = [line for line in tuned(50, 40, 0.1, config).splitlines() if f"method={method}" in line]
        words = said.partition("   (")[0].split()[2:]
        given = load_config("finetune", expand(words, "finetune")[0], FinetuneVerb)
        assert (given.base, given.demos) == ("base", None)
        assert given.method.mix == MixConfig()  # no demonstrations
        assert with_planning_interval(base, given.method.execute or base.execute) is base


def test_a_policy_that_sees_the_true_state_teaches() -> None:
    method = MethodConfig(name="residual_lanes", privileged=True)
    said = tuned(50, 90, 1e-6, replace(CONFIG, method=method, env="metaworld/mt6", demos="data/mt6"))
    assert (
        "robo-rl collect policy=runs/ft env=metaworld/mt6 takeover=0.5 episodes=300 out=runs/taught" in said
    )
    assert "robo-rl train 'data=[data/mt6,runs/taught]' out=runs/pupil" in said


def test_a_gain_that_may_be_chance_is_measured_again() -> None:
    """More episodes decide before the policy is used."""
    said = tuned(50, 55, 0.4)
    assert said.startswith("robo-rl evaluate policy=runs/ft against=runs/base episodes=400")


@pytest.mark.parametrize("eval_seed", [0, 7])
def test_a_gain_is_confirmed_on_other_episodes(eval_seed: int) -> None:
    """The run's own episodes are those whose luck is in doubt, so none of them may count again."""
    config = replace(CONFIG, eval_seed=eval_seed)
    for said in (tuned(50, 55, 0.4, config), after_tuning(config, Path("r"), None, SuccessRate(1, 2), None)):
        words = dict(word.split("=", 1) for word in said.partition("   (")[0].split()[2:])
        given = load_config("evaluate", [f"{key}={value}" for key, value in words.items()], EvaluateConfig)
        own = evaluation_seeds("arm/lift", eval_seed, config.final_episodes)
        assert not set(own) & set(evaluation_seeds("arm/lift", given.seed, given.episodes))


@pytest.mark.parametrize("name", ["robot/mine", "arm6/peg", "arm6/peg:seconds=4"])
def test_what_follows_takes_the_environment_of_the_run(name: str, tmp_path: Path) -> None:
    """The contract of a fine-tuned policy is its base's, which may be of a robot without a simulator."""
    save_policy(tmp_path / "base", flow_policy(replace(SPEC, name=name)))
    config = replace(CONFIG, base=str(tmp_path / "base"), env="arm6/peg")
    said = [tuned(50, after, p, config) for after, p in ((90, 1e-6), (55, 0.4), (50, 1.0))]
    assert all(("env=arm6/peg " in each) is (name != "arm6/peg") for each in said)
    keeping = [line for line in said[2].splitlines() if "method=residual" in line or "distill" in line]
    assert [" env=arm6/peg " in line for line in keeping] == 2 * [name != "arm6/peg"]


def test_without_a_gain_the_fine_tuned_policy_is_not_recommended() -> None:
    """More steps, another method, or the base."""
    said = tuned(50, 50, 1.0)
    assert "teacher=runs/ft" not in said
    assert "robo-rl finetune config=runs/ft/config.yaml env_steps=24000 out=runs/ft-longer" in said
    assert "method=residual demos=<dataset>" in said
    assert "method=residual demos=data/peg out=" in tuned(50, 50, 1.0, replace(CONFIG, demos="data/peg"))
    assert "robo-rl distill teacher=runs/base" in said
    assert "method=steering out=" in tuned(50, 40, 0.1, replace(CONFIG, method=MethodConfig(name="residual")))
    auto = replace(CONFIG, method=MethodConfig(name="auto"))
    assert "base=runs/base demos=<dataset> out=" in tuned(50, 40, 0.1, auto)
    assert "base=runs/base method=steering out=" in tuned(50, 40, 0.1, replace(auto, demos="data"))


def test_a_base_that_never_succeeds_is_neither_kept_nor_fine_tuned(run: Path) -> None:
    """Reinforcement learning on success needs some: more demonstrations or steps come first."""
    assert "teacher=" not in tuned(0, 0, 1.0)
    assert "robo-rl train data=<more demonstrations>" in tuned(0, 0, 1.0)
    assert after_evaluation(run / "policy", SuccessRate(0, 10)).startswith(
        f"robo-rl train config={run}/config.yaml data=<more"
    )
    data = RunDir(run).config()["data"]
    command = f"robo-rl finetune base={run} demos={data} out={run.parent / 'tuned'}"
    assert after_evaluation(run / "policy", SuccessRate(3, 10)) == command


def made_again(said: str) -> TrainConfig:
    """Settings of the printed training, with values in the place of its blanks."""
    [line] = [line for line in said.splitlines() if "robo-rl train" in line]
    words = shlex.split(re.sub("<[^>]*>", "7", line.partition("   (")[0]))
    return load_config("train", expand(words[words.index("train") + 1 :], "train")[0], TrainConfig)


def test_a_better_base_is_of_the_same_kind(tmp_path: Path) -> None:
    """By the settings of the base's run, also below a fine-tuned policy; without the run, by its shape."""
    vla = small_vla(memory=2, spatial=0.5)
    shape = {"vla": vla.shape, "chunk": vla.chunk, "execute": vla.execute}
    actor = make_actor(ActorConfig("deterministic", 5, 1, (8,)))
    tuned_vla = ResidualPolicy(vla, actor, ResidualMap(1, 0.3))
    save_policy(tmp_path / "pulled", vla)
    save_policy(tmp_path / "again", tuned_vla)
    config = TrainConfig(data="data", out="base", policy=vla.shape, chunk=vla.chunk, execute=vla.execute)
    config = replace(config, lr=0.5)
    with RunDir.create("base", config) as run:
        save_policy(run.policy, vla)
    with RunDir.create("ft", replace(CONFIG, base="base", out="ft")) as run:
        save_policy(run.policy, tuned_vla)
    for base, rate in (("pulled", None), ("again", None), ("base", 0.5), ("ft", 0.5)):
        again = made_again(tuned(0, 0, 1.0, replace(CONFIG, base=base)))
        assert {"vla": again.policy, "chunk": again.chunk, "execute": again.execute} == shape
        assert again.lr == (rate or TrainConfig().lr)
        assert (again.data, again.steps, again.out) == ("7", 7, "7")


def test_a_base_without_room_for_a_gain_is_kept() -> None:
    """A base that solves nearly every episode needs no further training."""
    assert tuned(100, 99, 1.0).startswith("robo-rl distill teacher=runs/base")


def test_a_policy_from_scratch_is_evaluated() -> None:
    """Without a base there is no comparison."""
    assert after_tuning(CONFIG, Path("runs/ft"), None, SuccessRate(1, 2), None).startswith(
        "robo-rl evaluate policy=runs/ft"
    )


def test_longer_training_keeps_an_own_method_and_every_setting(tmp_path: Path) -> None:
    """`method=mine.yaml` is no name that robo-rl knows; the run's config.yaml holds all that was set."""
    (tmp_path / "mine.yaml").write_text(METHOD)
    words = ["base=runs/base", "demos=data/peg", "method=mine.yaml", "seed=3", "out=runs/mine"]
    config = load_config("finetune", words, FinetuneVerb)
    with RunDir.create(config.out, config) as run:
        said = tuned(50, 50, 1.0, config).splitlines()[1].split()
    assert said[:2] == ["robo-rl", "finetune"]
    again = load_config("finetune", expand(said[2:], "finetune")[0], FinetuneVerb)
    assert again == replace(config, env_steps=1200, out=f"{run.path}-longer")
