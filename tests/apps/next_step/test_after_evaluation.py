"""The next step after an evaluation, and after a distillation, suits its result."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from policies.checkpoint import save_policy
from policies.tuned.one_step import JumpHead, OneStepPolicy
from policies.tuned.residual import ResidualPolicy
from robo_rl.apps.cli.config import load_config
from robo_rl.apps.cli.main import main as robo_rl
from robo_rl.apps.cli.settings_file import expand
from robo_rl.apps.evaluate import Evaluation, next_step
from robo_rl.apps.tuning.report import advice_label
from robo_rl.conf.distill import DistillVerb
from robo_rl.core.action_map import ResidualMap
from robo_rl.core.files.durable import read_json
from robo_rl.eval.rollout import EvalResult
from robo_rl.eval.stats import PairedTest, ReturnTest, SuccessRate
from robo_rl.eval.timing import Latency
from robo_rl.nets.actor import ActorConfig, make_actor
from robo_rl.runs.next_step import after_distillation, after_evaluation, winner
from robo_rl.runs.run_dir import RunDir
from tests.apps.next_step.advice import BETTER, CONFIG, WORSE, tuned
from tests.policies.small import flow_policy
from tests.rl.worlds import SPEC


@pytest.mark.parametrize(
    ("kind", "said"), [("mine", "robo-rl export policy="), ("privileged", "robo-rl collect policy=")]
)
def test_no_evaluation_advises_a_distillation_that_is_refused(tmp_path: Path, kind: str, said: str) -> None:
    """A head learns neither from a kind of the user's own nor from a policy that sees the true state."""
    save_policy(tmp_path / "policy", flow_policy(SPEC))
    written = read_json(tmp_path / "policy" / "policy.json") | {"kind": kind}
    (tmp_path / "policy" / "policy.json").write_text(json.dumps(written))
    assert after_evaluation(tmp_path / "policy", SuccessRate(10, 10)).startswith(said)
    if kind == "privileged":  # without a success there is nothing to teach
        assert "no episode succeeded" in after_evaluation(tmp_path / "policy", SuccessRate(0, 10))


def test_the_policy_of_a_further_seed_is_named_by_its_folder(tmp_path: Path) -> None:
    """`robo-rl fly` and `vision` save one for each seed; the run itself would be that of the first seed."""
    for name in ("policy", "seed1"):
        save_policy(tmp_path / "run" / name, flow_policy(SPEC))
        written = read_json(tmp_path / "run" / name / "policy.json") | {"kind": "vision"}
        (tmp_path / "run" / name / "policy.json").write_text(json.dumps(written))
    (tmp_path / "run/run.json").write_text("{}")
    for name, policy in (("policy", "run"), ("seed1", "run/seed1")):
        following = after_evaluation(Path("run", name), SuccessRate(9, 10))
        assert following == f"robo-rl export policy={policy} out={policy}/bundle"


def test_a_tuned_policy_is_distilled_once_it_succeeds(tmp_path: Path) -> None:
    """Only the base inside it names the environment. Without a success there is nothing to distil."""
    actor = make_actor(ActorConfig("deterministic", 5, 1, (8,)))
    save_policy(tmp_path / "policy", ResidualPolicy(flow_policy(SPEC), actor, ResidualMap(1, 0.3)))
    assert after_evaluation(tmp_path / "policy", SuccessRate(1, 1)).startswith("robo-rl distill teacher=")
    assert "no episode succeeded" in after_evaluation(tmp_path / "policy", SuccessRate(0, 1))


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


@pytest.mark.parametrize("name", ["robot/mine", "metaworld/reach-v3:max_episode_steps=9"])
def test_a_policy_of_a_robot_learns_on_where_it_was_evaluated(name: str, tmp_path: Path) -> None:
    """There is no simulation of `robot/<name>`; other policies go on in the one that they were trained in."""
    save_policy(tmp_path / "policy", flow_policy(replace(SPEC, name=name)))
    for solved, verb in ((5, "finetune"), (20, "distill")):
        said = next_step(evaluated(solved, places=(tmp_path / "policy",), trained_in=name))
        assert said.startswith(f"robo-rl {verb} ")
        assert (" env=metaworld/reach-v3 " in said) is name.startswith("robot/")


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
        save_policy(Path("runs/vla/policy"), policy, {"task_instructions": told})
        return after_evaluation(Path("runs/vla/policy"), SuccessRate(50, 100))

    begins = "robo-rl finetune base=runs/vla/policy"
    assert said("arm6/peg", ["insert the peg", "pull it out"]).startswith(f"{begins} 'env={name}' out=")
    for env, task in (("robot/arm", "insert the peg"), ("arm6/peg", "pull, then insert")):
        assert said(env, [task]).startswith(f"{begins} out=")  # no name can hold the instruction
    for key in ("task_instructions", "told"):  # told: of earlier checkouts
        policy.env = replace(policy.env, name="robot/arm")
        save_policy(Path("runs/vla/policy"), policy, {key: ["insert the peg"]})
        for given, needed in (
            ("arm/lift:cameras=view", "arm/lift:cameras=view,instruction=insert the peg"),
            (f"{name}", f"{name}"),
            ("metaworld/mt6", "metaworld/mt6"),
        ):
            words = after_evaluation(Path("runs/vla/policy"), SuccessRate(50, 100), given)
            assert f"env={needed}" in shlex.split(words)
    told = replace(CONFIG, env=name)
    for before, after, p in ((50, 90, 0.001), (50, 55, 0.4), (98, 98, 1.0)):
        assert f"env={name}" in shlex.split(tuned(before, after, p, told))
