"""Manipulation environments: steps and images per CPU-second in each engine, overhead of the interface.

A step is 50 ms of simulated time: ten substeps of 5 ms with control, observation, reward and resets, averaged
over episodes of the scripted expert, whose own time is not counted. For comparison, in alternation on the
same machine: plain C MuJoCo (`mj_step` alone on the states and commands of these episodes), and MetaWorld's
peg task as published. Other load on the machine affects all of them, so compare ratios.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import mujoco
import numpy as np
import torch
from common import cpu_seconds, emit, parser

from robo_rl.core.errors import MissingDependencyError, RoboRLError
from robo_rl.core.seeding import EpisodeSeeds
from sim.bodies.protocol import SUBSTEPS
from sim.engines.table import ENGINES, takes_option
from sim.scenes.task_env import TaskVecEnv, make_task_env
from sim.tasks.table import all_tasks

PEER = "peg-insert-side-v3"
MANY = 1024  # from this number of lanes on, measured in every third round
GPU_LANES = (256, 1024, 4096, 16384)


def commanded(env: TaskVecEnv) -> torch.Tensor:
    """Current action of the expert."""
    return env.from_script(env.script()).to("cpu", torch.float32)


class Runner:
    """Episodes of the expert in one environment; only its steps are timed."""

    def __init__(self, task: str, engine: str, lanes: int, threads: int) -> None:
        given = {"threads": threads} if takes_option(engine, "threads") else {}
        self.env = make_task_env(task, lanes, engine=engine, **given)
        self.env.reset(EpisodeSeeds("benchmark"))
        self.lanes, self.engine_s, self.step_s = lanes, 0.0, 0.0
        inner, self._clock = self.env._engine.step, cpu_seconds if engine == "pybullet" else time.process_time

        def timed(ctrl: Any, substeps: int) -> None:
            start_s = self._clock()
            inner(ctrl, substeps)
            self.engine_s += self._clock() - start_s

        # measures the physics' share of the time
        self.env._engine.step = timed  # type: ignore[method-assign]

    def round(self, steps: int) -> tuple[float, float]:
        """(env steps per CPU-second, non-physics time as a fraction of the physics' time)."""
        self.engine_s = self.step_s = 0.0
        for _ in range(steps):
            action = commanded(self.env)
            start_s = self._clock()
            self.env.step(action)
            self.step_s += self._clock() - start_s
        return steps * self.lanes / self.step_s, (self.step_s - self.engine_s) / self.engine_s


class PlainMujoco:
    """`mj_step` alone, on the states and commands of an expert's episodes, one world after another."""

    def __init__(self, task: str, lanes: int = 16, steps: int = 40) -> None:
        env = make_task_env(task, lanes)
        env.reset(EpisodeSeeds("benchmark"))
        self._model = env._engine.scene.model
        self._data = mujoco.MjData(self._model)
        self._frames: list[tuple[Any, Any, Any, Any]] = []
        for _ in range(steps):
            physics = env.view.physics
            fixture = env._engine.save()["rows"]
            ctrl = env._servo_targets(commanded(env).to(env._memory))
            self._frames += [
                (physics.qpos[i].numpy(), physics.qvel[i].numpy(), ctrl[i].numpy(), fixture[i].numpy())
                for i in range(lanes)
            ]
            env.step(commanded(env))
        self._engine: Any = env._engine

    def round(self) -> float:
        """Env steps per CPU-second."""
        signature, put = self._engine._signature, mujoco.mj_setState
        spent_s = 0.0
        for _, _, ctrl, row in self._frames:
            put(self._model, self._data, row, signature)
            self._data.ctrl[:] = ctrl
            start_s = time.process_time()
            mujoco.mj_step(self._model, self._data, SUBSTEPS)
            spent_s += time.process_time() - start_s
        return len(self._frames) / spent_s


def metaworld_round(budget_s: float) -> float:
    """The package's own step and reset with its own scripted policy, whose time is not counted."""
    from metaworld.env_dict import ALL_V3_ENVIRONMENTS
    from metaworld.policies import ENV_POLICY_MAP

    env, policy = ALL_V3_ENVIRONMENTS[PEER](), ENV_POLICY_MAP[PEER]()  # type: ignore[abstract]
    env._partially_observable, env._freeze_rand_vec, env._set_task_called = False, False, True
    del env.sawyer_observation_space
    steps, spent_s = 0, 0.0
    while spent_s < budget_s:
        start_s = time.process_time()
        obs, _ = env.reset()
        spent_s += time.process_time() - start_s
        for _ in range(100):
            action = np.clip(policy.get_action(obs), -1, 1).astype(np.float32)
            start_s = time.process_time()
            obs, *_ = env.step(action)
            spent_s += time.process_time() - start_s
            steps += 1
    return steps / spent_s


def measure(task: str, engine: str, options: argparse.Namespace) -> None:
    """Rates at 64 lanes with one thread and two, and at 4,096; interleaved, the median of the rounds.

    A round is longer than an episode for any number of lanes, because the part of an episode before the grasp
    is cheaper.
    """
    rounds, steps = (3, 20) if options.quick else (9, 40)
    counts = [(64, 1)] if options.quick or engine != "mujoco" else [(4096, 1), (64, 2), (64, 1)]
    runners = {key: Runner(task, engine, *key) for key in counts}
    plain = PlainMujoco(task) if engine == "mujoco" else None
    rates: dict[Any, list[float]] = {key: [] for key in counts}
    overhead: dict[Any, list[float]] = {key: [] for key in counts}
    plain_rates, peer_rates = [], []
    for i in range(rounds):
        for key, runner in runners.items():
            if key[0] > MANY and i % 3:
                continue
            rate, extra = runner.round(steps)
            rates[key].append(rate)
            overhead[key].append(extra)
        if plain is not None:
            plain_rates.append(plain.round())
            peer_rates.append(metaworld_round(0.3))
    if plain is not None:
        emit(f"engine/plain_mujoco/{task}/env_steps_per_cpu_s", round(statistics.median(plain_rates)),
             "env steps/cpu-s", best=round(max(plain_rates)), rounds=rounds)  # fmt: skip
        emit(
            f"engine/metaworld/{PEER}/env_steps_per_cpu_s",
            round(statistics.median(peer_rates)),
            "env steps/cpu-s",
            best=round(max(peer_rates)),
            rounds=rounds,
        )
    for (lanes, threads), values in rates.items():
        extra = {"num_envs": lanes, "threads": threads, "best": round(max(values)), "rounds": len(values)}
        if plain is not None:
            extra |= {
                "plain_mujoco": round(statistics.median(plain_rates)),
                "ratio_to_plain": round(statistics.median(values) / statistics.median(plain_rates), 3),
                f"metaworld_{PEER}": round(statistics.median(peer_rates)),
            }
        name = f"engine/{engine}/{task}"
        emit(f"{name}/env_steps_per_cpu_s", round(statistics.median(values)), "env steps/cpu-s", **extra)
        if engine == "mujoco":
            percent = 100.0 * statistics.median(overhead[lanes, threads])
            emit("engine/contract_overhead_percent", round(percent, 1), "% of the physics' time", task=task,
                 num_envs=lanes, threads=threads)  # fmt: skip


def measure_wall(task: str, options: argparse.Namespace) -> None:
    """Gain from a second core. These are wall rates, so they need an idle machine."""
    walls, lanes = {}, 64 if options.quick else 256  # for 64, `measure` has compiled the kernels
    for threads in (1, 2):
        env = make_task_env(task, lanes, threads=threads)
        env.reset(EpisodeSeeds("benchmark"))
        action = commanded(env)
        best = 0.0
        for _ in range(3 if options.quick else 10):
            start_s = time.perf_counter()
            for _ in range(5):
                env.step(action)
            best = max(best, 5 * lanes / (time.perf_counter() - start_s))
        walls[threads] = best
    emit(
        f"engine/mujoco/{task}/two_threads_speedup",
        round(walls[2] / walls[1], 2),
        "x, wall",
        one=round(walls[1]),
    )


def measure_pictures(options: argparse.Namespace) -> None:
    """84 x 84 images of one camera, scene of primitive shapes; compared with the renderer settings of a stock
    MuJoCo.
    """
    env = make_task_env("lift", 1, render_size=84)
    env.reset(EpisodeSeeds("benchmark"))
    kinds: dict[str, Callable[[], Any]] = {
        "render84": lambda: env._engine.render(0, "view", 84, 84),
        "depth84": lambda: env._engine.render(0, "view", 84, 84, "depth"),
        "rgbd84": lambda: env._engine.render(0, "view", 84, 84, "rgbd"),
        "segment84": lambda: env._engine.render(0, "view", 84, 84, "segment"),
    }
    for name, take in kinds.items():
        take()
        rates = []
        for _ in range(3 if options.quick else 9):
            start_s = cpu_seconds()
            for _ in range(100):
                take()
            rates.append(100 / (cpu_seconds() - start_s))
        emit(f"engine/mujoco/{name}/frames_per_cpu_s", round(statistics.median(rates)), "frames/cpu-s",
             best=round(max(rates)))  # fmt: skip


def measure_gpu(task: str, options: argparse.Namespace) -> None:
    """Wall rates of `mjwarp` on the GPU, with the expert's commands."""
    for lanes in GPU_LANES[:2] if options.quick else GPU_LANES:
        env: TaskVecEnv = make_task_env(task, lanes, engine="mjwarp")
        env.reset(EpisodeSeeds("benchmark"))
        action = commanded(env)
        for _ in range(5):
            env.step(action)
        torch.cuda.synchronize()
        start_s = time.perf_counter()
        for _ in range(50):
            env.step(action)
        torch.cuda.synchronize()
        rate = 50 * lanes / (time.perf_counter() - start_s)
        emit(f"engine/mjwarp/{task}/env_steps_per_s", round(rate), "env steps/s, wall", num_envs=lanes,
             device=torch.cuda.get_device_name())  # fmt: skip


def main(options: argparse.Namespace) -> None:
    tasks = options.tasks or (["lift", "peg_insert"] if not options.quick else ["lift"])
    if options.gpu:
        if not torch.cuda.is_available():
            raise SystemExit(
                "--gpu needs a CUDA device, and torch sees none here. Leave it out to measure this processor."
            )
        for task in tasks:
            measure_gpu(task, options)
        return
    for task in tasks:
        for engine in options.engines:
            try:
                measure(task, engine, options)
            except MissingDependencyError as error:
                print(f"# {engine} is not measured: {error}")
        if "mujoco" in options.engines:
            measure_wall(task, options)
    if "mujoco" in options.engines:
        measure_pictures(options)


if __name__ == "__main__":
    torch.set_num_threads(1)
    arguments = parser("Environment steps per CPU-second of manipulation tasks, engine by engine.")
    arguments.add_argument("--tasks", nargs="*", choices=all_tasks(), help="none for the usual ones")
    arguments.add_argument(
        "--engines", nargs="*", default=["mujoco"], choices=list(ENGINES), help="engines to measure"
    )
    arguments.add_argument(
        "--gpu", action="store_true", help="MuJoCo Warp on the GPU, 256 to 16,384 environments"
    )
    try:
        main(arguments.parse_args())
    except RoboRLError as error:
        raise SystemExit(str(error)) from error
