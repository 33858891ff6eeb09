"""MuJoCo Warp on arm/lift: env steps per second with random actions, by number of worlds.

gpu/engine/<worlds>/env_steps_per_s: results stay on the device, and worlds restart by mask.
gpu/engine/<worlds>/copied_env_steps_per_s: results are copied to the host at every step.
"""

from __future__ import annotations

import torch
from timing import emit, facts, options, seconds, unit

from robo_rl.core.seeding import EpisodeSeeds
from sim.registry import make_env


def main() -> None:
    args = options(__doc__)
    sizes = (8,) if args.device == "cpu" else (1024,) if args.quick else (1024, 4096, 16384)
    for worlds in sizes:
        for resident in (True, False):
            env = make_env("arm/lift:engine=mjwarp", worlds, device=args.device)
            if resident and not env.keep_on_device():  # type: ignore[attr-defined]
                raise SystemExit("arm/lift does not keep its results on the device: see TaskVecEnv.")
            env.reset(EpisodeSeeds("gpu"))
            where = args.device if resident else "cpu"
            action = torch.rand(worlds, env.spec.action.dim, device=where) * 2.0 - 1.0
            action = env.spec.action.denormalize(action)
            calls = 5 if args.device == "cpu" else 20 if args.quick else 100
            taken_s = seconds(lambda env=env, action=action: env.step(action), calls, args.device)  # type: ignore[misc]
            name = f"gpu/engine/{worlds}/{'' if resident else 'copied_'}env_steps_per_{unit(args.device)}"
            emit(name, round(worlds / taken_s), "env steps/s", **facts(args.device))
            env.close()


if __name__ == "__main__":
    main()
