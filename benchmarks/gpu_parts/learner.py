"""Updates per second of SAC and TD3 on random decisions, and of Stable-Baselines3 on the same device.

gpu/learner/<sac|td3>/<batch>/updates_per_s (networks of 256 x 256; one sample of the replay, both losses,
both optimisers). gpu/learner/<name>/256/updates_ratio_vs_sb3 where stable_baselines3 is installed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from timing import emit, facts, options, seconds, unit

from robo_rl.core.action_map import DirectMap
from robo_rl.core.lanes import Lanes
from robo_rl.core.seeding import generator
from robo_rl.data.replay import Replay
from robo_rl.rl.off_policy.config import LearnerConfig
from robo_rl.rl.off_policy.learner import OffPolicyLearner

OBS, ACTION = 32, 8
KINDS = {"sac": {"actor": "gaussian"}, "td3": {"actor": "deterministic", "actor_delay": 2}}


def main() -> None:
    args = options(__doc__)
    batches = (256,) if args.quick else (256, 8192, 32768)
    calls = 20 if args.quick or args.device == "cpu" else 500
    for name in KINDS:
        rates = {}
        for batch in batches:
            rates[batch] = 1.0 / seconds(ours(name, batch, args.device), calls, args.device, warm_up=20)
            line = f"gpu/learner/{name}/{batch}/updates_per_{unit(args.device)}"
            emit(line, round(rates[batch], 1), "updates/s", **facts(args.device))
        try:
            theirs = sb3(name, args.device)
        except ModuleNotFoundError as error:
            print(f"no comparison with Stable-Baselines3: {error.name} is not installed")
            continue
        rate = 1.0 / seconds(theirs, calls, args.device, warm_up=20)
        ratio = round(rates[256] / rate, 2)
        emit(
            f"gpu/learner/{name}/256/updates_ratio_vs_sb3",
            ratio,
            "ratio",
            sb3=round(rate, 1),
            **facts(args.device),
        )


def ours(name: str, batch: int, device: str) -> Callable[[], object]:
    """One update from a full replay."""
    cfg = LearnerConfig(hidden=[256, 256], heads=2, batch=batch, **KINDS[name])
    learner = OffPolicyLearner(OBS, DirectMap(ACTION), cfg, generator("gpu", device=device))
    lanes, rng = Lanes.all(1024, device), generator("gpu", "replay", device=device)
    widths = {"obs": OBS, "next_obs": OBS, "critic_action": ACTION, "action": 0, "ctx": 0, "next_ctx": 0}
    store = Replay(64 * 1024, 1024, widths, device=device)
    one, no = torch.ones(1024, device=device), torch.zeros(1024, dtype=torch.bool, device=device)
    for _ in range(64):
        values = {key: torch.rand(1024, width, device=device) for key, width in widths.items()}
        flags = {"terminated": no, "truncated": no, "cut": no}
        store.add(lanes, values | flags | {"reward": one, "steps": one, "demo": one}, cfg.gamma)
    return lambda: learner.update(store.sample(batch, rng, gamma=cfg.gamma, n_step=cfg.n_step))


def sb3(name: str, device: str) -> Callable[[], object]:
    """One gradient step of Stable-Baselines3 with the same networks and batch."""
    import gymnasium
    import numpy as np
    import stable_baselines3

    class Noise(gymnasium.Env):  # type: ignore[type-arg]
        observation_space = gymnasium.spaces.Box(-1.0, 1.0, (OBS,), np.float32)
        action_space = gymnasium.spaces.Box(-1.0, 1.0, (ACTION,), np.float32)

        def reset(self, *, seed: Any = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
            super().reset(seed=seed)
            return self.observation_space.sample(), {}

        def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
            return self.observation_space.sample(), 1.0, False, False, {}

    kind = getattr(stable_baselines3, name.upper())
    model = kind("MlpPolicy", Noise(), device=device, batch_size=256, learning_starts=500, verbose=0,
                 policy_kwargs={"net_arch": [256, 256]})  # fmt: skip
    model.learn(600)
    return lambda: model.train(gradient_steps=1, batch_size=256)


if __name__ == "__main__":
    main()
