"""`robo-rl finetune`: improve a base policy by reinforcement learning on the task's success."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from robo_rl.apps.tuning.auto.verb import environments, finetune_auto
from robo_rl.apps.tuning.check import (
    check_config,
    check_pictures_fit,
    check_progress_fits,
    check_steps,
    other_task,
    too_often,
    unread_by_base,
)
from robo_rl.apps.tuning.inputs import check_there, keep_tuning_inputs
from robo_rl.apps.tuning.loop import run_method
from robo_rl.apps.tuning.maps import build_map, check_together
from robo_rl.apps.tuning.remote import opened_cluster
from robo_rl.apps.tuning.report import report
from robo_rl.apps.tuning.start import load_base
from robo_rl.apps.tuning.stores import check_replayed
from robo_rl.conf.finetune import FinetuneVerb
from robo_rl.core.settings import free_keys
from robo_rl.runs.run_dir import RunDir


def main(config: FinetuneVerb) -> int:
    """Fine-tune, save the policy in `out`/policy and compare it with its base on the same episodes."""
    check_there(config.out, {"base": config.base, "init": config.init}, resume=config.resume)
    config = replace(config, num_envs=environments(config))
    check_config(config)
    for sentence in filter(None, (too_often(config), other_task(config), unread_by_base(config))):
        print(sentence)
    torch.set_num_threads(1)  # these networks are too small for threads, and parallel runs would compete
    # Adam's moments of weights without gradients fall below 1e-38, where an operation takes a hundred cycles.
    torch.set_flush_denormal(True)
    try:
        return finetune_auto(config) if config.method.name == "auto" else _finetune(config)
    finally:
        torch.set_flush_denormal(
            False
        )  # the caller may need such numbers: drivers send integers as their bits


def _finetune(config: FinetuneVerb) -> int:
    base = load_base(config)
    check_steps(config)
    check_together(config.method, build_map(config.method.map, base), base)
    check_replayed(config.method, base, config)
    check_progress_fits(config, base)
    check_pictures_fit(config, base)
    free = free_keys("finetune")
    again: dict[str, Any] = {"resume": config.resume, "overwrite": config.overwrite}
    with (
        opened_cluster(config) as actors,
        RunDir.create(config.out, config, **again, free=free) as run,
    ):
        keep_tuning_inputs(run, config)
        outcome = run_method(config, config.method, base, run, actors)
        report(config, base, outcome, run)
    return 0
