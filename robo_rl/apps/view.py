"""`robo-rl view`: show or film an environment, driven by its expert, a policy, or random actions."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from itertools import chain, count
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from robo_rl.conf.schema import CollectConfig, ViewConfig
from robo_rl.core.errors import ConfigError
from robo_rl.core.protocols import Obs, VecEnv
from robo_rl.core.seeding import generator
from robo_rl.core.spec import ActionSpec
from robo_rl.core.text.missing_rate import missing_rate
from robo_rl.eval.rollout import eval_seeds
from robo_rl.eval.video import HOLD_S, Recorder, VideoWriter, write_contact_sheet
from robo_rl.runs.demonstrators import Demonstrator, make_demonstrator
from robo_rl.runs.loaded_policy import own_env
from robo_rl.runs.next_step import after_view
from robo_rl.runs.outputs import check_folder
from robo_rl.runs.progress import progress
from robo_rl.runs.window import Staged, has_screen, show
from sim.registry import make_env


class UninformedDemonstrator:
    """Random actions, uniform within the limits and fixed by the seed; or constant ones in the middle of the
    limits.
    """

    def __init__(self, spec: ActionSpec, moves: bool) -> None:
        self._spec, self._moves, self._rng = spec, moves, torch.Generator()

    def start(self, lane_ids: Sequence[int], seeds: Sequence[int], obs: Obs) -> None:
        self._rng = generator("view", seeds[0])

    def observe(self, obs: Obs) -> None:
        """Ignore the observation."""

    def act(self) -> Tensor:
        unit = (
            torch.rand(1, self._spec.dim, generator=self._rng)
            if self._moves
            else torch.full((1, self._spec.dim), 0.5)
        )
        return self._spec.denormalize(2.0 * unit - 1.0)

    def intervened(self) -> None:
        return None


def main(config: ViewConfig) -> int:
    """Show the episodes in a window, or film them and write a sheet of stills."""
    for name in ("policy", "expert"):
        if (given := getattr(config, name)) is not None and config.pilot != "expert":
            raise ConfigError(
                f"{name}={given} and pilot={config.pilot} cannot both act: leave one of them out."
            )
    others = config.expert is not None or config.pilot != "expert"
    name = config.env or own_env(config.policy, "view", others=others)
    config = replace(config, env=name)
    check_folder("out", config.out)
    out = Path(config.out)
    seeds = eval_seeds(config.seed, config.episodes)
    looks: dict[str, Any] = {"render_size": config.size, "pretty": config.pretty or None}
    with closing(make_env(name, 1, max_episode_steps=config.max_episode_steps, **looks)) as env:
        if config.window or (config.window is None and has_screen() and isinstance(env, Staged)):
            shown = show(env, _driver(config, env), seeds, name)
            print(f"{name}: {sum(shown)}/{len(shown)} episodes succeeded{_next(config, name)}")
            return 0
        if rate := missing_rate(name, env.spec.control_hz):
            print(rate)
        recorder, success = film(env, _driver(config, env), seeds, out / "episodes.mp4", name)
    write_contact_sheet(out / "sheet.png", [row for row in recorder.thumbs if row], success)
    print(
        f"{name}: {sum(success)}/{len(success)} episodes succeeded\nvideo: {out / 'episodes.mp4'}, "
        f"stills: {out / 'sheet.png'}{_next(config, name)}"
    )
    return 0


def _next(config: ViewConfig, name: str) -> str:
    """Line with the next step; empty for another driver than the expert."""
    if config.policy is not None or config.pilot != "expert":
        return ""
    return f"\nNext:   {after_view(name, config.expert)}"


def film(
    env: VecEnv, driver: Demonstrator, seeds: Sequence[int], path: Path, name: str
) -> tuple[Recorder, list[bool]]:
    """Film episodes one after another in an environment of one lane; returns the stills and the outcomes."""
    success: list[bool] = []
    fps = env.spec.control_hz
    with VideoWriter(path, fps) as writer, progress(None, "view", "step") as bar:
        recorder = Recorder(writer, name, hold=max(1, round(HOLD_S * fps)), views=True)
        obs = env.reset(chain(seeds, count()))
        driver.start([0], seeds[:1], obs)
        steps = 0
        while len(success) < len(seeds):
            recorder.before_step(env, obs)
            obs, _, _, _, info = env.step(driver.act())
            driver.observe(obs)
            steps += 1
            recorder.after_step(0, bool(info["success"][0]))
            bar.update()
            if bool(info["final_mask"][0]):
                recorder.episode_end(0, int(info["episode_seed"][0]), bool(info["success"][0]), steps)
                success.append(bool(info["success"][0]))
                driver.start([0], [int(info["next_seed"][0])], obs)
                steps = 0
    return recorder, success


def _driver(config: ViewConfig, env: VecEnv) -> Demonstrator:
    if config.pilot != "expert":
        return UninformedDemonstrator(env.spec.action, moves=config.pilot == "random")
    given = CollectConfig(
        env=config.env,
        out=config.out,
        policy=config.policy,
        expert=config.expert,
        noise=config.noise,
        seed=config.seed,
        num_envs=1,
    )
    return make_demonstrator(
        given,
        env,
        "Choose pilot=random, pilot=still, a trained policy by policy=<run>, or a function or class of your "
        "own by expert=<module>:<name>.",
    )
