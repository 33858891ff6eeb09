"""Commands for the step after a verb, which it prints at its end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from policies.checkpoint import read_policy_json
from policies.deploy.bundle import MANIFEST
from robo_rl.conf.finetune import FinetuneVerb
from robo_rl.eval.stats import PairedTest, ReturnTest, SuccessRate
from robo_rl.runs.loaded_policy import find_policy, trained_env_spec
from robo_rl.runs.run_dir import RunDir

SIGNIFICANT = 0.05  # p below which a difference is taken as real
GOOD_ENOUGH = 0.97  # success above which fine-tuning has little to gain
AGAIN = 4  # factor on episodes, for a comparison that was not significant
BASES = ("generative", "vla")  # kinds of policies that robo-rl train makes
FLIGHTS = ("flight", "swarm", "vision")  # kinds of policies that are run in another simulator next
BETTER_BASE = (  # a base that never succeeds shows no reward to reinforcement learning
    "robo-rl train data=<more demonstrations> steps=<more> out=<new run>   (a base that succeeds at times)"
)
INDENT = "\n        "


def after_view(env: str) -> str:
    """Demonstrations of the environment."""
    task = env.partition(":")[0].rpartition("/")[2]
    return f"robo-rl collect env={env} out=data/{task}"


def after_data(info: dict[str, Any]) -> str:
    """A policy of the dataset; with an interrupted or no episode, its repair or its recording."""
    if info["interrupted"]:
        return f"robo-rl data validate path={info['path']} recover=true"
    if not info["episodes"]:
        return f"robo-rl collect env={info['env']} out={info['path']}"
    return f"robo-rl train data={info['path']} out=runs/base"


def after_evaluation(folder: Path, rate: SuccessRate | None) -> str:
    """What follows for a policy of this kind: fine-tuning, distillation, export or another simulator.

    rate: None where the environment reports no success.
    """
    if (folder / MANIFEST).is_file():
        return f"robo-rl run bundle={folder}"
    data, run = read_policy_json(folder), _run_of(folder)
    kind = data["kind"]
    if kind in FLIGHTS:
        return f"robo-rl transfer run={run}"
    if (
        kind in ("single_step", "direct", "one_step")
        or data["config"].get("vla", {}).get("process", {}).get("steps") == 1
    ):
        return f"robo-rl export policy={run} out={run / 'bundle'}"
    if kind in BASES and rate is not None and rate.k == 0:
        return BETTER_BASE
    if kind in BASES and (rate is None or rate.rate < GOOD_ENOUGH):
        return f"robo-rl finetune base={run}{_demos_of(run)} out={run.parent / 'tuned'}"
    return f"robo-rl distill teacher={run} out={run.parent / 'head'}"


def after_tuning(
    config: FinetuneVerb,
    run: Path,
    before: SuccessRate | None,
    after: SuccessRate,
    test: PairedTest | ReturnTest | None,
) -> str:
    """A gain is distilled, a small one confirmed first; without a gain, other ways to improve the base.

    A policy that decides in a single step is exported, and one that sees the true state teaches another
    one. test: of the base to the result, by returns where the environment reports no success.
    """
    if before is None or test is None:
        return f"robo-rl evaluate policy={run} episodes={AGAIN * config.final_episodes}"
    head = Path(config.out).parent / "head"
    by_return = isinstance(test, ReturnTest)
    gained = test.mean_difference < 0 if isinstance(test, ReturnTest) else after.rate > before.rate
    if config.method.privileged and gained:
        return _teaching(config, run)
    if gained and test.p_value < SIGNIFICANT:
        if config.method.map.kind == "head":  # it decides in a single step already
            return f"robo-rl export policy={run} out={run / 'bundle'}"
        return f"robo-rl distill teacher={run} out={head}"
    if gained:
        more = f"robo-rl evaluate policy={run} against={config.base} episodes={AGAIN * config.final_episodes}"
        return f"{more}   (the gain over the base may be chance)"
    keep = f"robo-rl distill teacher={config.base} out={head}   (keep the base)"
    if not by_return and before.rate >= GOOD_ENOUGH:
        return keep
    other = "method=residual demos=<dataset>" if config.method.name != "residual" else "method=steering"
    if config.method.name == "auto":
        other = "demos=<dataset>" if config.demos is None else "method=steering"
    steps = config.env_steps or config.method.env_steps
    longer = f"method={config.method.name} env_steps={2 * steps}"
    ways = (
        "the result is not better than the base; one of:",
        f"robo-rl finetune base={config.base} {longer} out={run}-longer   (your other settings with it)",
        f"robo-rl finetune base={config.base} {other} out={run}-other   (docs/methods.md)",
        keep if by_return or before.k else BETTER_BASE,
    )
    return INDENT.join(ways)


def _teaching(config: FinetuneVerb, run: Path) -> str:
    """Commands that let a policy learn from one that sees the true state."""
    env = config.env or trained_env_spec(find_policy(str(config.base))).name
    data = Path(config.out).parent / "taught"
    ways = (
        "this policy runs in simulation only; one that sees what the robot measures learns from it:",
        f"robo-rl collect policy={run} env={env} takeover=0.5 episodes=300 out={data}",
        f"robo-rl train data=[{config.demos},{data}] out={data.parent / 'pupil'}  (the base's settings)",
    )
    return INDENT.join(ways)


def _demos_of(run: Path) -> str:
    """The setting `demos=` with the dataset that a run of `train` learned from; empty if it is gone."""
    if not (run / "config.yaml").is_file():
        return ""
    data = RunDir(run).config().get("data")
    return f" demos={data}" if isinstance(data, str) and Path(data, "dataset.json").is_file() else ""


def _run_of(folder: Path) -> Path:
    """The run that holds a policy folder; the folder itself outside a run."""
    return folder.parent if (folder.parent / "run.json").is_file() else folder
