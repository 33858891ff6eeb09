"""Updates per second on random decisions: operation by operation, as CUDA graphs, and in half precision.

gpu/learner/<sac|td3|fast_td3|fast_sac>/<batch>/updates_per_s: one sample of the replay, all losses and
optimisers, two hidden layers of 256; the fast methods with their own networks. On a GPU this is a graph of 8
updates, and .../graph_ratio compares it with single operations, .../bfloat16_ratio with float32. .../equal is
1 if graphs and single operations give the same bits. gpu/learner/<sac|td3>/256/updates_ratio_vs_sb3 where
stable_baselines3 is installed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from timing import emit, facts, options, seconds, unit

from robo_rl.apps.cli.config import load_config
from robo_rl.conf.finetune import FinetuneVerb
from robo_rl.core.action_map import DirectMap
from robo_rl.core.lanes import Lanes
from robo_rl.core.seeding import generator
from robo_rl.data.replay import Replay
from robo_rl.nets.optim.graphs import update_graphs
from robo_rl.rl.mix import ReplayMix
from robo_rl.rl.off_policy.config import LearnerConfig
from robo_rl.rl.off_policy.learner import OffPolicyLearner
from robo_rl.rl.update_runner import UpdateRunner
from robo_rl.runs.device import train_in_tf32

OBS, ACTION, TOGETHER = 32, 8, 8
METHODS = ("sac", "td3", "fast_td3", "fast_sac")


def main() -> None:
    args = options(__doc__)
    train_in_tf32(torch.device(args.device))
    small = args.device == "cpu" or args.quick
    calls = 2 if args.device == "cpu" else 10 if args.quick else 60
    for name in METHODS:
        rates = {}
        for batch in (256,) if small else (256, 8192, 32768):
            taken_s = {
                kind: seconds(lambda made=made: made.update(TOGETHER), calls, args.device, warm_up=5)  # type: ignore[misc]
                / TOGETHER
                for kind, made in variants(name, batch, args.device).items()
            }
            rates[batch] = 1.0 / taken_s["graph"]
            line = f"gpu/learner/{name}/{batch}"
            about = facts(args.device)
            emit(f"{line}/updates_per_{unit(args.device)}", round(rates[batch], 1), "updates/s", **about)
            for kind, label in (("single", "graph_ratio"), ("half", "bfloat16_ratio")):
                if kind in taken_s:
                    emit(f"{line}/{label}", round(taken_s[kind] / taken_s["graph"], 3), "ratio", **about)
        if args.device == "cuda":
            emit(f"gpu/learner/{name}/equal", float(equal(name)), "1 or 0", **facts(args.device))
        if name in ("sac", "td3"):
            compare(name, rates[256], calls * TOGETHER, args.device)


def variants(name: str, batch: int, device: str) -> dict[str, UpdateRunner]:
    """The same updates in their forms; the CPU has no graphs, and there half precision is a benchmark of its
    own.
    """
    if device == "cpu":
        return {"graph": ours(name, batch, device)}
    return {
        "graph": ours(name, batch, device),
        "single": ours(name, batch, device, graphs="off"),
        "half": ours(name, batch, device, precision="bfloat16"),
    }


def equal(name: str) -> bool:
    """True if 64 updates as graphs give the weights of 64 updates as single operations, bit by bit."""
    made = [ours(name, 256, "cuda", graphs=graphs) for graphs in ("auto", "off")]
    for each in made:
        for _ in range(8):
            each.update(TOGETHER)
    first, second = (each.learner for each in made)
    pairs = zip(first.weights().values(), second.weights().values(), strict=True)
    return all(torch.equal(a[key], b[key]) for a, b in pairs for key in a)


def ours(name: str, batch: int, device: str, graphs: str = "auto", **settings: Any) -> UpdateRunner:
    """Updates of a method from a full replay."""
    cfg: LearnerConfig = load_config("finetune", [f"method={name}", "out=."], FinetuneVerb).method.learner
    cfg.batch = batch
    for key, value in settings.items():
        setattr(cfg, key, value)
    learner = OffPolicyLearner(OBS, DirectMap(ACTION), cfg, generator("gpu", device=device))
    lanes, rng = Lanes.all(1024, device), generator("gpu", "replay", device=device)
    widths = {"obs": OBS, "next_obs": OBS, "critic_action": ACTION, "action": 0, "ctx": 0, "next_ctx": 0}
    store = Replay(64 * 1024, 1024, widths, device=device)
    one, no = torch.ones(1024, device=device), torch.zeros(1024, dtype=torch.bool, device=device)
    flags = {"terminated": no, "truncated": no, "cut": no}
    for _ in range(64):
        values = {key: torch.rand(1024, width, generator=rng, device=device) for key, width in widths.items()}
        store.add(lanes, values | flags | {"reward": one, "steps": one, "demo": one}, cfg.gamma)
    mix = ReplayMix({"online": store}, {"online": 1.0})
    captured = update_graphs(torch.device(device), graphs, (learner.generator, rng))
    return UpdateRunner(learner, mix, rng, captured)


def compare(name: str, rate: float, calls: int, device: str) -> None:
    """gpu/learner/<name>/256/updates_ratio_vs_sb3."""
    try:
        theirs = sb3(name, device)
    except ModuleNotFoundError as error:
        print(f"no comparison with Stable-Baselines3: {error.name} is not installed")
        return
    their_rate = 1.0 / seconds(theirs, calls, device, warm_up=20)
    emit(
        f"gpu/learner/{name}/256/updates_ratio_vs_sb3",
        round(rate / their_rate, 2),
        "ratio",
        sb3=round(their_rate, 1),
        **facts(device),
    )


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
