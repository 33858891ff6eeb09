"""`robo-rl fly`: a flight policy from nothing, in seconds; flown, filmed, compared, exported as bundle and as
C.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch import Tensor

from policies.checkpoint import load_policy, save_policy
from policies.flight.policy import FlightPolicy
from robo_rl.apps.flight.fly_methods import hand_over, make_trainer, new_policy, total_updates
from robo_rl.apps.flight.fly_report import finish
from robo_rl.apps.flight.fly_setting import FlightSetup, check_own
from robo_rl.apps.runs.progress import progress
from robo_rl.apps.runs.run_dir import FREE_KEYS, RunDir
from robo_rl.apps.runs.signals import stop_between_steps
from robo_rl.conf.fly import FlyConfig
from robo_rl.core.files.state_io import load_state, save_state
from robo_rl.core.provenance import commit
from robo_rl.core.seeding import derive_seed
from robo_rl.eval.stats import SuccessRate
from robo_rl.eval.timing import cpu_seconds
from sim.flight.flights import Flights
from sim.flight.trial import Pilot, Trial, controller_pilot, fly, policy_pilot

__all__ = ["FlightSetup", "FlyRow", "baseline", "evaluated", "main", "row", "train_all"]

CONTROLLERS = ("pid", "geometric")

_FREE = FREE_KEYS | {
    "eval_flights",
    "eval_s",
    "video",
    "checkpoint_every",
}  # these change nothing that is learned


@dataclass(frozen=True)
class FlyRow:
    """One row of the table: a pilot on the shared starts."""

    name: str
    position_error_m: float | None  # None: nobody stayed to the end
    terminated_fraction: float
    held: SuccessRate  # or all waypoints reached, or the laps flown
    train_cpu_s: float = 0.0
    compile_cpu_s: float = 0.0
    env_steps: int = 0
    seed: int | None = None
    facts: dict[str, float | None] = field(default_factory=dict)  # figures of this task alone

    def to_json(self) -> dict[str, Any]:
        data = asdict(self)
        data["held"] = self.held.to_json()
        return data


def main(config: FlyConfig) -> int:
    """Train `seeds` policies, compare them with classical controllers, and leave pictures, bundle and C
    header.
    """
    torch.set_num_threads(1)
    setting = FlightSetup.of(config)
    check_own(config)
    with RunDir.create(
        config.out, config, resume=config.resume, overwrite=config.overwrite, free=_FREE
    ) as run:
        rows, trials = train_all(config, setting, run)
        for name in CONTROLLERS:
            trial = evaluated(config, setting, baseline(name, setting, config.eval_flights))
            rows.append(row(name, trial))
            trials[name] = trial
        return finish(config, setting, run, rows, trials)


def train_all(config: FlyConfig, setting: FlightSetup, run: RunDir) -> tuple[list[FlyRow], dict[str, Trial]]:
    """Every seed one after the other; a resumed run goes on where it was. The first seed's policy is kept."""
    at = run.latest() if config.resume else None
    saved = None if at is None else load_state(at[1])
    done: list[dict[str, Any]] = [] if saved is None else list(saved["done"])
    rows: list[FlyRow] = []
    trials: dict[str, Trial] = {}
    total = total_updates(config) * config.seeds
    with (
        progress(total, "fly", "update", initial=at[0] if at else 0) as bar,
        run.metrics(at[0] if at else None, bar=bar) as metrics,
        stop_between_steps() as stop,
    ):
        metrics.shown = ("train/cost",)
        for index in range(config.seeds):
            seed = config.seed + index
            folder = run.path / f"seed{seed}"
            if index >= len(done):
                policy, note = _train(config, setting, seed, index, done, saved, run, bar, metrics, stop)
                saved = None
                save_policy(folder, policy, note)
                done.append(note)
            trained = load_policy(folder)
            assert isinstance(trained, FlightPolicy)
            trial = evaluated(config, setting, policy_pilot(trained.columns))
            note = done[index]
            rows.append(
                row(
                    "policy", trial, train_cpu_s=note["train_cpu_s"], compile_cpu_s=note["compile_cpu_s"],
                    env_steps=note["env_steps"], seed=seed,
                )
            )  # fmt: skip
            if index == 0:
                save_policy(run.policy, trained, note | {"measured": rows[0].held.to_json()})
                trials["policy"] = trial
    return rows, trials


def _train(
    config: FlyConfig, setting: FlightSetup, seed: int, index: int, done: list[dict[str, Any]],
    saved: dict[str, Any] | None, run: RunDir, bar: Any, metrics: Any, stop: Any,
) -> tuple[FlightPolicy, dict[str, Any]]:  # fmt: skip
    """One policy from nothing. Ctrl-C saves what is there and says how to go on."""
    policy = new_policy(config, setting, seed)
    learner, compile_s = make_trainer(config, setting, policy, seed)
    bar.unpause()  # compiling is no update: it would make the remaining time hours
    used_s = 0.0
    if saved is not None:
        learner.load_state_dict(saved["learner"])
        used_s = float(saved["train_cpu_s"])
    start_s, offset = cpu_seconds(), index * total_updates(config)

    def save() -> None:
        state = {
            "learner": learner.state_dict(),
            "done": done,
            "train_cpu_s": used_s + cpu_seconds() - start_s,
        }
        with run.new_checkpoint(offset + learner.updates, keep=1) as folder:
            save_state(folder, state)

    while not learner.done:
        logs = learner.update()
        bar.update(1)
        if learner.updates % 20 == 0 or learner.done:
            metrics.log(offset + learner.updates, logs | {"train/seed": float(seed)})
        if learner.updates % config.checkpoint_every == 0 and not learner.done:
            save()
        if stop.asked and not learner.done:
            save()
            raise KeyboardInterrupt(
                f"saved update {learner.updates} in {run.path}; the same command with resume=true goes on"
            )
    hand_over(learner, policy)
    note = {
        "verb": "fly",
        "method": config.method.name,
        "task": config.task,
        "craft": setting.craft.name,
        "source": setting.craft.source,
        "env_steps": learner.env_steps,
        "seed": seed,
        "noise": 0.0,
        "train_cpu_s": round(used_s + cpu_seconds() - start_s, 2),
        "compile_cpu_s": round(compile_s, 2),
        "commit": commit(),
        "settings": asdict(config),
    }
    return policy, note


def evaluated(config: FlyConfig, setting: FlightSetup, pilot: Pilot) -> Trial:
    """The shared starts: same states, disturbances and sensor noise for every pilot."""
    flights = setting.flights(
        config.eval_flights, derive_seed("eval", config.eval_seed), config, gradient=False
    )
    with progress(setting.task.max_steps, "measuring", "step") as bar:
        return fly(flights, counted(pilot, bar))


def baseline(name: str, setting: FlightSetup, num: int) -> Pilot:
    """A classical controller that commands what the policy does."""
    return controller_pilot(name, setting.craft, setting.task.dt_s, num, setting.options.level)


def counted(pilot: Pilot, bar: Any) -> Pilot:
    """The same pilot; every decision moves the bar."""

    def act(flights: Flights) -> Tensor:
        bar.update(1)
        return pilot(flights)

    return act


def row(name: str, trial: Trial, **cost: Any) -> FlyRow:
    error = float(trial.error_m.mean()) if len(trial.error_m) else None
    facts = trial.facts | {"mean_action_change": trial.action_change}
    held = SuccessRate(int(trial.held.sum()), len(trial.held))
    return FlyRow(name, error, float(trial.left.float().mean()), held, facts=facts, **cost)
