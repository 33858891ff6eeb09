"""`robo-rl train`: a base policy from datasets, with exact resume."""

from __future__ import annotations

from collections.abc import Sequence

from policies.checkpoint import read_policy_json
from robo_rl.apps.training.base_run import train
from robo_rl.apps.training.train_data import dataset_paths
from robo_rl.conf.train import TrainConfig
from robo_rl.core.spec import EnvSpec
from robo_rl.core.text.commands import command
from robo_rl.data.store import EpisodeStore
from robo_rl.rl.scale.process_group import speaks
from robo_rl.runs.metrics import read_metrics
from robo_rl.runs.run_dir import RunDir

HIGH_LOSS = 20.0  # of normalised chunks, or of tokens in nats; untrained networks begin below 10


def main(config: TrainConfig) -> int:
    """Train, and print the next command."""
    run = train(config)
    if not speaks():
        return 0
    losses = [row["base/loss"] for row in read_metrics(run.path / "metrics.jsonl") if "base/loss" in row]
    if warning := loss_warning(losses):
        print(warning)
    env = EpisodeStore(dataset_paths(config.data)[0]).spec
    print(f"Policy: {run.policy}\nNext:   {next_step(run, env)}")
    return 0


def loss_warning(losses: Sequence[float]) -> str:
    """A sentence for a training whose loss did not fall; empty for a usual one. losses: in logged order."""
    if not losses or losses[-1] <= min(2.0 * losses[0], HIGH_LOSS):
        return ""
    return (
        f"Warning: the loss began at {losses[0]:.3g} and ended at {losses[-1]:.3g}, so the policy has "
        "learned little or nothing from the data. Train again with a smaller lr."
    )


def next_step(run: RunDir, env: EnvSpec) -> str:
    """The next command: evaluate on a simulated task, export for a robot. A policy of recorded tasks is told
    the first of them.
    """
    instructions = read_policy_json(run.policy)["train"].get("task_instructions")
    instruction = None if instructions is None else instructions[0]
    if env.simulated:
        return command("evaluate", policy=run.policy, instruction=instruction)
    out = run.path / "bundle"
    return command("export", policy=run.policy, noise="zero", instruction=instruction, out=out)
