"""The whole loop on arm/lift in MuJoCo Warp: a residual on an untrained flow policy, one update per step.

gpu/finetune/<worlds>/env_steps_per_s: with updates of `batch` decisions. gpu/finetune/<worlds>/collect_...:
without updates. gpu/finetune/memory_gib: the most that torch allocated.
"""

from __future__ import annotations

import torch
from timing import emit, facts, options, seconds, unit

from policies.base.flow import FlowConfig
from policies.base.generative import GenerativeConfig, GenerativePolicy
from policies.base.process import make_process
from robo_rl.apps.cli.config import load_config
from robo_rl.apps.tuning.compose import Tuner, build_session
from robo_rl.conf.finetune import FinetuneVerb
from robo_rl.core.seeding import EpisodeSeeds
from robo_rl.core.spec import EnvSpec
from robo_rl.data.normalizer import Normalizer
from robo_rl.nets.denoiser import MlpDenoiserConfig
from robo_rl.nets.image_encoder import ImageEncoderConfig
from robo_rl.runs.device import train_in_tf32
from sim.registry import make_env
from sim.vec.on_device import env_on


def main() -> None:
    args = options(__doc__)
    train_in_tf32(torch.device(args.device))
    small = args.device == "cpu"
    worlds, batch = (8, 64) if small else (1024 if args.quick else 4096, 8192)
    for label, updates in (("", 1.0), ("collect_", 0.0)):
        tuner = make_tuner(worlds, batch, updates, args.device)
        while tuner.phase != "online":
            tuner.advance()
        taken_s = seconds(tuner.advance, 5 if small else 100, args.device, warm_up=2 if small else 60)
        name = f"gpu/finetune/{worlds}/{label}env_steps_per_{unit(args.device)}"
        emit(
            name,
            round(worlds / taken_s),
            "env steps/s",
            batch=batch,
            updates_per_step=updates,
            **facts(args.device),
        )
    if not small:
        gib = torch.cuda.max_memory_allocated() / 2**30
        emit("gpu/finetune/memory_gib", round(gib, 2), "GiB", worlds=worlds, **facts(args.device))


def make_tuner(worlds: int, batch: int, updates: float, device: str) -> Tuner:
    """A tuner after the reset of its environment."""
    words = ["method=residual", "out=.", "method.env_steps=1000000000", f"method.base_steps={4 * worlds}",
             "method.burn_in=1", "method.mix.demo=0", "method.mix.online=1", "method.guard_window=0",
             f"method.updates_per_step={updates}", f"method.learner.batch={batch}",
             f"method.replay_capacity={max(200_000, 64 * worlds)}"]  # fmt: skip
    method = load_config("finetune", words, FinetuneVerb).method
    env = env_on(make_env("arm/lift:engine=mjwarp", worlds, device=device), torch.device(device))
    if device == "cpu":
        env.keep_on_device()  # type: ignore[attr-defined]
    base = untrained(env.spec).to(device)
    session = build_session(method, base, env, seed=0, demos=None, device=device, masked=True)
    first = EpisodeSeeds(session.seed_root)
    obs = env.reset(EpisodeSeeds(session.seed_root))
    session.tuner.collector.reset(obs, [next(first) for _ in range(worlds)])
    return session.tuner


def untrained(spec: EnvSpec) -> GenerativePolicy:
    """A flow policy of 10 steps over an MLP, with random weights."""
    torch.manual_seed(0)
    normalizer = Normalizer.fit({"state": torch.rand(64, *spec.obs["state"].shape)})
    net = MlpDenoiserConfig(width=256, depth=3)
    config = GenerativeConfig(obs_steps=2, chunk=16, execute=8, net=net, image=ImageEncoderConfig())
    return GenerativePolicy(spec, normalizer, config, make_process(FlowConfig(steps=10))).eval()


if __name__ == "__main__":
    main()
