"""Each verb ends with the command for the next step, which suits its result."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from policies.checkpoint import save_policy
from policies.tuned.one_step import JumpHead, OneStepPolicy
from policies.tuned.residual import ResidualPolicy
from policies.vla.policy import VlaPolicy
from robo_rl.apps.cli.config import load_config
from robo_rl.apps.cli.main import main as robo_rl
from robo_rl.apps.cli.settings_file import expand
from robo_rl.apps.evaluate import Evaluation, next_step
from robo_rl.apps.tuning.distill_rounds import check_head
from robo_rl.apps.tuning.report import advice_label, evaluation_seeds
from robo_rl.apps.tuning.start import with_planning_interval
from robo_rl.conf.distill import DistillVerb
from robo_rl.conf.finetune import FinetuneVerb, MapConfig, MethodConfig
from robo_rl.conf.schema import EvaluateConfig
from robo_rl.conf.train import TrainConfig
from robo_rl.core.action_map import ResidualMap
from robo_rl.core.errors import ConfigError
from robo_rl.core.files.durable import read_json
from robo_rl.data.store import DatasetWriter
from robo_rl.eval.rollout import EvalResult
from robo_rl.eval.stats import PairedTest, ReturnTest, SuccessRate
from robo_rl.eval.timing import Latency
from robo_rl.nets.actor import ActorConfig, make_actor
from robo_rl.rl.mix import MixConfig
from robo_rl.runs.next_step import (
    after_data,
    after_distillation,
    after_evaluation,
    after_tuning,
    after_view,
    train_on,
    winner,
)
from robo_rl.runs.run_dir import RunDir
from tests.policies.small import flow_policy
from tests.policies.small_vla import SPEC as SIDES
from tests.policies.small_vla import small_vla, token_vla
from tests.rl.worlds import SPEC

METHOD = """algorithm: off_policy
map: {kind: residual, scale: 0.1}
env_steps: 600
"""
CONFIG = FinetuneVerb(out="runs/ft", base="runs/base", method=MethodConfig(name="steering", env_steps=12000))


@pytest.fixture(autouse=True)
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Folder of the commands, in which no `out=` exists yet."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def tuned(before: int, after: int, p: float, config: FinetuneVerb = CONFIG) -> str:
    """Next step after a fine-tuning with these successes of 100 episodes."""
    test = PairedTest(0, max(0, before - after), max(0, after - before), 0, p)
    return after_tuning(config, Path(config.out), SuccessRate(before, 100), SuccessRate(after, 100), test)


def test_a_gain_is_distilled() -> None:
    """A significant gain over the base: the fine-tuned policy is the teacher."""
    assert tuned(50, 90, 1e-6) == "robo-rl distill teacher=runs/ft out=runs/head"


def test_a_gain_of_a_single_step_head_is_exported(tmp_path: Path) -> None:
    """FQL's head decides in one call already."""
    save_policy(tmp_path / "policy", OneStepPolicy(flow_policy(SPEC), JumpHead(flow_policy(SPEC))))
    assert after_evaluation(tmp_path / "policy", SuccessRate(9, 10)).startswith("robo-rl export policy=")
    config = replace(CONFIG, method=MethodConfig(name="fql", map=MapConfig("head")))
    assert tuned(50, 90, 1e-6, config) == "robo-rl export policy=runs/ft out=runs/ft/bundle"


@pytest.mark.parametrize(
    ("kind", "said"), [("mine", "robo-rl export policy="), ("privileged", "robo-rl collect policy=")]
)
def test_no_evaluation_advises_a_distillation_that_is_refused(tmp_path: Path, kind: str, said: str) -> None:
    """A head learns neither from a kind of the user's own nor from a policy that sees the true state."""
    save_policy(tmp_path / "policy", flow_policy(SPEC))
    written = read_json(tmp_path / "policy" / "policy.json") | {"kind": kind}
    (tmp_path / "policy" / "policy.json").write_text(json.dumps(written))
    assert after_evaluation(tmp_path / "policy", SuccessRate(10, 10)).startswith(said)


def test_a_tuned_policy_is_distilled_once_it_succeeds(tmp_path: Path) -> None:
    """Only the base inside it names the environment. Without a success there is nothing to distil."""
    actor = make_actor(ActorConfig("deterministic", 5, 1, (8,)))
    save_policy(tmp_path / "policy", ResidualPolicy(flow_policy(SPEC), actor, ResidualMap(1, 0.3)))
    assert after_evaluation(tmp_path / "policy", SuccessRate(1, 1)).startswith("robo-rl distill teacher=")
    assert "no episode succeeded" in after_evaluation(tmp_path / "policy", SuccessRate(0, 1))


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


def test_data_with_instructions_train_a_policy_that_reads_them(tmp_path: Path) -> None:
    """Advice after a collection, for a better base, and for the pupil of a privileged teacher."""
    numbers = replace(SIDES, obs={key: array for key, array in SIDES.obs.items() if "image" not in key})
    for name, spec in (("told", SIDES), ("plain", SPEC), ("numbers", numbers)):
        DatasetWriter.create(tmp_path / name, spec).close()
    assert train_on("told") == "robo-rl train policy=vla data=told out=runs/base"
    assert train_on("plain") == "robo-rl train data=plain out=runs/base"
    assert train_on("numbers") == "robo-rl train data=numbers out=runs/base"  # policy=vla needs pictures
    actor = make_actor(ActorConfig("deterministic", 2, 1, (8,)))
    save_policy(tmp_path / "vla", small_vla())
    save_policy(tmp_path / "tuned", ResidualPolicy(small_vla(), actor, ResidualMap(1, 0.3)))
    save_policy(tmp_path / "flow", flow_policy(SPEC))
    better = "robo-rl train policy=vla data=<more demonstrations>"
    assert after_evaluation(tmp_path / "vla", SuccessRate(0, 10)).startswith(better)
    privileged = MethodConfig(name="residual_lanes", privileged=True)
    for base, demos, told in (
        ("vla", None, True),
        ("tuned", None, True),
        ("flow", "told", True),
        ("flow", None, False),
    ):
        config = replace(CONFIG, base=base, demos=demos)
        assert (better in tuned(0, 0, 1.0, config)) is told
        config = replace(config, method=privileged, env="metaworld/mt6", demos=demos or "plain")
        assert ("robo-rl train policy=vla 'data=[" in tuned(50, 90, 1e-6, config)) is told


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


def test_commands_can_be_pasted_into_a_shell(tmp_path: Path) -> None:
    """Spaces and commas in a path, and folders that exist: the verb gets the path, and a free `out`."""
    home = tmp_path / "my runs"
    out = home / "a b,v=2"
    for taken in ("head", "head-2"):
        (home / taken).mkdir(parents=True)
    said = tuned(50, 90, 1e-6, replace(CONFIG, out=str(out)))
    given = load_config("distill", shlex.split(said)[2:], DistillVerb)
    assert (given.teacher, given.out) == (str(out), str(home / "head-3"))
    Path("runs/base").mkdir(parents=True)
    info = {"path": "my data/peg", "env": "arm6/reach", "interrupted": 0, "episodes": 3}
    assert after_data(info) == "robo-rl train 'data=my data/peg' out=runs/base-2"
    Path("data/lift").mkdir(parents=True)
    assert after_view("arm/lift") == "robo-rl collect env=arm/lift out=data/lift-2"


@pytest.mark.parametrize(
    ("changes", "command"),
    [
        ({}, "robo-rl train data=data/peg out=runs/base"),
        ({"interrupted": 1}, "robo-rl data validate path=data/peg recover=true"),
        ({"episodes": 0}, "robo-rl collect env=arm6/reach out=data/peg"),
    ],
)
def test_a_dataset_is_repaired_filled_or_trained_on(changes: dict[str, Any], command: str) -> None:
    """In this order."""
    assert (
        after_data({"path": "data/peg", "env": "arm6/reach", "interrupted": 0, "episodes": 3} | changes)
        == command
    )


def test_a_viewed_environment_is_collected_from() -> None:
    """Options of the environment stay; the folder is named by the task."""
    assert (
        after_view("arm/lift:engine=pybullet") == "robo-rl collect env=arm/lift:engine=pybullet out=data/lift"
    )


@pytest.mark.long
def test_the_verbs_print_their_next_step_and_the_runtime_of_their_times(
    dataset: Path, run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`data info`, `evaluate` and `run`; torch and ONNX Runtime are named beside the decision time."""
    assert robo_rl(["data", "info", f"path={dataset}"]) == 0
    said = capsys.readouterr().out
    assert f"Next:   robo-rl train data={dataset}" in said
    assert "images" not in said
    few = ["max_episode_steps=5"]
    assert robo_rl(["evaluate", f"policy={run}", "episodes=2", "num_workers=0", "device=cpu", *few]) == 0
    said = capsys.readouterr().out
    assert "Next:   robo-rl " in said
    assert "batch of 1, torch on cpu" in said
    bundle = tmp_path / "bundle"
    assert robo_rl(["export", f"policy={run}", f"out={bundle}", "noise=gaussian"]) == 0
    capsys.readouterr()
    assert robo_rl(["run", f"bundle={bundle}", "episodes=1", "rate_hz=1000", *few]) == 0
    said = capsys.readouterr().out
    assert "decision times: ONNX Runtime on cpu" in said
    assert "Next:   a bundle for your own robot: docs/robot.md" in said
    assert robo_rl(["evaluate", f"policy={bundle}", "episodes=1", "num_workers=0", "device=cpu", *few]) == 0
    said = capsys.readouterr().out
    assert "batch of 1, ONNX Runtime on cpu" in said
    assert f"Next:   robo-rl run bundle={bundle}" in said
    assert after_evaluation(run / "policy", SuccessRate(10, 10)).startswith(f"robo-rl distill teacher={run}")


@pytest.fixture
def teacher(tmp_path: Path) -> Path:
    """Policy folder of a run, whose noise is N(0, I)."""
    save_policy(tmp_path / "runs/base/policy", flow_policy(SPEC), {"noise": 1.0})
    (tmp_path / "runs/base/run.json").write_text("{}")
    return Path("runs/base/policy")


WORSE, BETTER = PairedTest(60, 24, 7, 9, 0.0005), PairedTest(60, 7, 24, 9, 0.0005)  # of teacher to head


@pytest.mark.parametrize(
    ("test", "exported"),
    [(WORSE, False), (replace(WORSE, p_value=0.2), True), (BETTER, True)],
)
def test_a_head_that_is_worse_than_its_teacher_is_not_exported(
    test: PairedTest, exported: bool, teacher: Path
) -> None:
    """A longer distillation comes first, by a command that runs as it is; the teacher can be exported."""
    config = DistillVerb(teacher="runs/base", out="runs/head", steps=1000, rounds=1)
    with RunDir.create(config.out, config):
        said = after_distillation(config, Path("runs/head"), teacher, test, widens=True).splitlines()
    if exported:
        assert said == ["robo-rl export policy=runs/head out=runs/head/bundle"]
        return
    again = load_config("distill", expand(said[0].split()[2:], "distill")[0], DistillVerb)
    net = replace(config.net, width=512)  # type: ignore[call-arg]
    assert again == replace(config, steps=2000, rounds=3, net=net, out="runs/head-longer")
    assert said[1].strip() == "robo-rl export policy=runs/base out=runs/base/bundle   (the teacher itself)"


def test_only_what_helps_and_can_be_exported_is_named(teacher: Path) -> None:
    """Heads of vision-language-action policies have no net=, and a bundle's noise is scaled by 0 or 1."""
    config = DistillVerb(teacher="runs/base", out="runs/head")
    save_policy(teacher, flow_policy(SPEC), {"noise": 0.5})
    said = after_distillation(config, Path("runs/head"), teacher, WORSE, widens=False)
    assert "net.width" not in said
    assert "export" not in said


@pytest.mark.parametrize(
    ("test", "best"),
    [
        (WORSE, 0),
        (BETTER, 1),
        (replace(BETTER, p_value=0.06), None),
        (ReturnTest(1.0, 0.01), 0),
        (ReturnTest(-1.0, 0.01), 1),
    ],
)
def test_the_winner_of_a_comparison(test: PairedTest | ReturnTest, best: int | None) -> None:
    assert winner(test) == best


def evaluated(solved: int, against: int | None = None, **changes: Any) -> Evaluation:
    """An evaluation with so many successes in 20 episodes."""

    def result(count: int) -> EvalResult:
        success = tuple(i < count for i in range(20))
        returns = tuple(map(float, success))
        return EvalResult(tuple(range(20)), success, (9,) * 20, returns, None, 180, 1.0, 1.0)

    places = (Path("head"), Path("runs/base/policy"))
    second = None if against is None else result(against)
    return replace(Evaluation("metaworld/reach-v3", result(solved), second, (), (), places), **changes)


@pytest.mark.parametrize(
    ("head", "base", "policy"), [(18, 4, "head"), (5, 4, "head"), (4, 18, "runs/base"), (4, 5, "head")]
)
def test_an_evaluation_never_recommends_the_worse_policy(
    head: int, base: int, policy: str, teacher: Path
) -> None:
    """Unless the difference may be chance, what follows is for the better one of both."""
    save_policy(Path("head"), OneStepPolicy(flow_policy(SPEC), JumpHead(flow_policy(SPEC))))
    said = next_step(evaluated(head, base))
    assert said.startswith("robo-rl export policy=head" if policy == "head" else "robo-rl finetune base=runs")
    assert said.endswith("(of the better policy)") is (policy != "head")


@pytest.mark.parametrize(
    ("trained", "name", "same"),
    [
        ("metaworld/peg-insert-side-v3", "metaworld/assembly-v3", False),
        ("metaworld/reach-v3", "metaworld/reach-v3:render_size=64", True),
        ("metaworld/mt6", "metaworld/drawer-open-v3", True),
        ("metaworld/mt6", "metaworld/reach-v3", False),
        ("gym/dock_env:Dock-v0", "gym/Dock-v0", True),
        ("gym/dock_env:Dock-v0", "gym/dock_env:Dock-v1", False),
        ("robot/so100", "arm/lift", True),
        ("", "arm/lift", True),
    ],
)
def test_a_policy_of_another_task_is_known(trained: str, name: str, same: bool) -> None:
    """Its failures there say nothing about its training."""
    assert evaluated(0, env=name, trained_in=trained).same_task is same


def test_another_rate_than_that_of_the_training_is_told() -> None:
    """The policy is measured all the same."""
    measured: dict[str, Any] = {"decisions": (Latency(1.0, 1.0, 1, 1),), "runtimes": ("torch on cpu",)}
    said = str(evaluated(0, **measured, other_rate=(80.0, 20.0)))
    assert "was trained at 80 Hz" in said
    assert "runs at 20 Hz: an action lasts 4 times as long as in training." in said
    assert "Hz" not in str(evaluated(0, **measured))


def test_a_policy_in_another_task_gets_no_advice_on_its_training(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [f"policy={run}", "episodes=1", "num_workers=0", "device=cpu", "max_episode_steps=3"]
    assert robo_rl(["evaluate", *words, "env=metaworld/push-v3"]) == 0
    said = capsys.readouterr().out
    assert said.endswith("This policy was trained in metaworld/reach-v3, not in metaworld/push-v3.\n")
    assert "Next:" not in said


@pytest.mark.parametrize(
    ("test", "label"),
    [(BETTER, "Instead, for more success"), (WORSE, "Advice"), (None, "Advice")],  # of base to result
)
def test_advice_does_not_contradict_the_next_step(test: PairedTest | None, label: str) -> None:
    """A clear gain is used next: advice on more success is another way then."""
    assert advice_label(test) == label


def test_a_policy_of_recorded_tasks_is_told_one_by_its_environment(empty_folder: Path) -> None:
    """Its base in the commands after an evaluation, and the result of a fine-tuning in those after it."""
    policy = flow_policy()
    name = "arm6/peg:instruction=insert the peg"

    def said(env: str, told: list[str]) -> str:
        policy.env = replace(policy.env, name=env)
        save_policy(Path("runs/vla/policy"), policy, {"told": told})
        return after_evaluation(Path("runs/vla/policy"), SuccessRate(50, 100))

    begins = "robo-rl finetune base=runs/vla/policy"
    assert said("arm6/peg", ["insert the peg", "pull it out"]).startswith(f"{begins} 'env={name}' out=")
    for env, task in (("robot/arm", "insert the peg"), ("arm6/peg", "pull, then insert")):
        assert said(env, [task]).startswith(f"{begins} out=")  # no name can hold the instruction
    told = replace(CONFIG, env=name)
    for before, after, p in ((50, 90, 0.001), (50, 55, 0.4), (98, 98, 1.0)):
        assert f"env={name}" in shlex.split(tuned(before, after, p, told))
