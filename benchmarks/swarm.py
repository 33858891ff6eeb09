"""One policy for swarms among obstacles: success on unseen worlds, speed of the environment, time per drone.

    python benchmarks/swarm.py --seeds 3

Trains with 8 drones, measures with 8 at 20 % and 32 at 80 % obstacle density, five scenarios, 15 s, 100
episodes each. Names: swarm/8x20/success and .../collision (mean over seeds, every seed and every scenario
beside it), swarm/32x80/..., swarm/train_cpu_s, swarm/agent_steps_per_cpu_s (physics, neighbours, observation
and cost; no policy; 8 drones at 20 %; quad-swarm-rl's figure beside it), swarm/policy_us_per_drone/<n>.
"""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path
from statistics import fmean

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
from common import cpu_seconds, emit, parser

from policies.checkpoint import load_policy
from policies.flight.swarm import SwarmPolicy
from robo_rl.conf.swarm import SwarmConfig
from robo_rl.flight.rows import SwarmRow
from robo_rl.flight.swarm.runs import train_all
from robo_rl.flight.swarm.setting import SwarmSetting
from robo_rl.runs.run_dir import RunDir
from sim.tasks.swarm.world import SwarmWorld

PEER_STEPS_PER_CPU_S = 7818  # quad-swarm-rl 9d7beaf, 8 drones with obstacles, numba, one core
WORLDS_STEPPED = 512  # as many as fill a core's cache


def main() -> None:
    options = parser(__doc__.splitlines()[0])
    options.add_argument("--seeds", type=int, default=3, help="trainings, from seed 0")
    options.add_argument(
        "--updates", type=int, default=SwarmConfig().updates, help="updates of each training"
    )
    options.add_argument("--speed", action="store_true", help="measure only the two speeds, without training")
    args = options.parse_args()
    torch.set_num_threads(1)
    config = SwarmConfig(also=["8x80", "16x50", "32x20", "32x80"], seeds=args.seeds, updates=args.updates)
    if args.quick:
        config = SwarmConfig(also=["32x80"], updates=20, eval_episodes=5, eval_s=2.0, eager=True)
    setting = SwarmSetting.of(config)
    policy = setting.policy(config) if args.speed else successes(config, setting)
    stepping(config, setting)
    thinking(config, setting, policy)


def successes(config: SwarmConfig, setting: SwarmSetting) -> SwarmPolicy:
    """Train and measure every seed; returns the first one's policy."""
    with tempfile.TemporaryDirectory() as folder:
        config.out = str(Path(folder) / "run")
        run = RunDir.create(config.out, config)
        rows, _ = train_all(config, setting, run)
        policy = load_policy(run.policy)
    for world in (setting.world, *setting.others):
        report(world, rows)
    trained = sorted({row.train_cpu_s for row in rows})
    emit("swarm/train_cpu_s", round(fmean(trained), 1), "cpu-s", per_seed=trained)
    assert isinstance(policy, SwarmPolicy)
    return policy


def report(world: SwarmWorld, rows: list[SwarmRow]) -> None:
    """Mean over seeds, every seed, and the mean of every scenario."""
    ours = [row for row in rows if (row.drones, row.density) == (world.drones, world.density)]
    whole = [row for row in ours if row.scenario == "all"]
    name = f"swarm/{world.drones}x{round(100 * world.density)}"
    scenarios = dict.fromkeys(row.scenario for row in ours if row.scenario != "all")
    each = {
        key: round(fmean(row.success.rate for row in ours if row.scenario == key), 4) for key in scenarios
    }
    seeds = [f"{row.success.k}/{row.success.n}" for row in whole]
    emit(
        f"{name}/success",
        round(fmean(row.success.rate for row in whole), 4),
        "fraction",
        per_seed=seeds,
        scenarios=each,
    )
    parts = {
        key: round(fmean(getattr(row, key) for row in whole), 4)
        for key in ("hit_drone", "hit_cylinder", "left")
    }
    emit(f"{name}/collision", round(fmean(row.collided for row in whole), 4), "fraction", **parts)


def stepping(config: SwarmConfig, setting: SwarmSetting) -> None:
    """Steps of drones per CPU-second, without a policy."""
    wide = SwarmConfig(worlds=8 if config.eager else WORLDS_STEPPED, eager=config.eager)
    swarm = setting.swarm(wide, setting.world, 0)
    action, steps = torch.zeros(4, swarm.num), 20 if config.eager else 200
    with torch.no_grad():
        for _ in range(5):
            swarm.advance(action)
        start_s = cpu_seconds()
        for _ in range(steps):
            swarm.advance(action)
    rate = steps * swarm.num / (cpu_seconds() - start_s)
    peer = {"quad_swarm_rl": PEER_STEPS_PER_CPU_S, "ratio": round(rate / PEER_STEPS_PER_CPU_S, 1)}
    facts = {"drones": setting.world.drones, "worlds": swarm.worlds} | peer
    emit("swarm/agent_steps_per_cpu_s", round(rate), "agent-steps/cpu-s", **facts)


def thinking(config: SwarmConfig, setting: SwarmSetting, policy: SwarmPolicy) -> None:
    """Microseconds of CPU per drone and decision, with 512 drones at once in swarms of any size."""
    for drones in (8, 16, 32):
        world = SwarmWorld(drones=drones, density=0.2, arm_m=setting.world.arm_m)
        swarm = setting.swarm(SwarmConfig(worlds=64, eager=True), world, 0)
        rounds = 20 if config.eager else 200
        with torch.no_grad():
            for _ in range(10):
                policy.columns(swarm.obs)
            start_s = time.process_time()
            for _ in range(rounds):
                policy.columns(swarm.obs)
        spent_us = 1e6 * (time.process_time() - start_s) / (rounds * swarm.num)
        emit(f"swarm/policy_us_per_drone/{drones}", round(spent_us, 3), "us", drones_at_once=swarm.num)


if __name__ == "__main__":
    main()
