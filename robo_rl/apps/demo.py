"""`robo-rl demo`: the entire workflow, from demonstrations to a single-step policy, with a report.

Each stage is a call of the verb that a user would type. Finished stages are recorded in `out`/stages.json and
kept when the demo is started again with the same settings. Training then continues from its checkpoint, and
the time of a stage before Ctrl-C counts.
"""

from __future__ import annotations

from pathlib import Path

from robo_rl.apps.workflow.checks import check_env, check_out, check_same, check_steps
from robo_rl.apps.workflow.report import finish
from robo_rl.apps.workflow.stages import STAGES_FILE, Stages, again, side_by_side, verb
from robo_rl.conf.demo import DemoConfig
from robo_rl.core.files.lock import FolderLock
from robo_rl.runs import replaced
from robo_rl.runs.outputs import check_folder


def main(config: DemoConfig) -> int:
    """Run every stage, print the table and write report.html, results.json and bundle/ into `out`."""
    out = Path(config.out)
    check_folder("out", config.out)
    check_out(out)
    check_steps(config)
    if not (out / STAGES_FILE).exists():
        check_env(config.env)
    out.mkdir(parents=True, exist_ok=True)
    with FolderLock(out, "folder"):
        if config.overwrite and replaced.contents(out):
            aside = replaced.move_aside(out)
            print(f"The previous demo in {out} is kept in {aside} until this one is done.")
        check_same(config, out)
        code = run_stages(config, out)
        replaced.drop(out)
    return code


def run_stages(config: DemoConfig, out: Path) -> int:
    """Run every stage that is not done yet, then the report."""
    stages = Stages(out)
    data, base = out / "demonstrations", out / "base"
    stages.run(
        "collect",
        f"Collect {config.demos} demonstrations of {config.env}",
        lambda: verb(
            "collect",
            f"env={config.env}",
            f"out={data}",
            f"episodes={config.demos}",
            f"noise={config.expert_noise}",
            f"seed={config.seed}",
        ),
    )
    stages.run("train", "Train a flow base policy on them", lambda: verb(
        "train", f"data={data}", f"out={base}", f"steps={config.base_updates}", f"seed={config.seed}",
        again(base)))  # fmt: skip
    stages.run("finetune", "Fine-tune the base: noise steering and a residual, side by side",
               lambda: side_by_side(config, out))  # fmt: skip
    return finish(config, out, stages)
