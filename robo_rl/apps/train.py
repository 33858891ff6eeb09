"""`robo-rl train`: a base policy from datasets, with exact resume."""

from __future__ import annotations

from robo_rl.apps.training.base_run import train
from robo_rl.apps.training.train_data import dataset_paths
from robo_rl.conf.train import TrainConfig
from robo_rl.core.spec import EnvSpec
from robo_rl.data.store import EpisodeStore
from robo_rl.rl.scale.process_group import speaks
from robo_rl.runs.run_dir import RunDir


def main(config: TrainConfig) -> int:
    """Train, and print the next command."""
    run = train(config)
    if not speaks():
        return 0
    env = EpisodeStore(dataset_paths(config.data)[0]).spec
    print(f"Policy: {run.policy}\nNext:   {next_step(run, env)}")
    return 0


def next_step(run: RunDir, env: EnvSpec) -> str:
    """The next command: evaluate on a simulated task, export for a robot."""
    if env.simulated:
        return f"robo-rl evaluate policy={run.policy}"
    return f"robo-rl export policy={run.policy} noise=zero out={run.path / 'bundle'}"
