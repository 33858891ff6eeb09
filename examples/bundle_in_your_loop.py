"""Run an exported bundle in a control loop of your own, with ONNX Runtime and without torch's training code.

PYTHONPATH=examples python examples/bundle_in_your_loop.py
"""

from __future__ import annotations

from pathlib import Path

import gymnasium as gym
import torch
from point_env import record

import robo_rl as rr
from policies.deploy.runner import OnnxPolicy, bundle_noise
from policies.executor import ChunkExecutor


def main(out: Path, quick: bool = False) -> int:
    data = record(out / "data", episodes=3 if quick else 40)
    base = rr.train(data=data, out=out / "base", steps=10 if quick else 1500, chunk=4, execute=2)
    bundle = rr.export(base.path, out=out / "bundle", noise="zero")
    policy, noise = OnnxPolicy(bundle), bundle_noise(bundle)
    # queues the actions of a chunk and plans again when the queue is empty
    executor = ChunkExecutor(policy, 1)
    env, solved = gym.make("Point-v0"), 0
    episodes = 2 if quick else 20
    for seed in range(episodes):
        obs, _ = env.reset(seed=1000 + seed)
        executor.reset({"state": torch.as_tensor(obs)[None]})
        noise.reset([0], [seed])
        ended = False
        while not ended:
            action = bundle.env.action.denormalize(executor.act(noise))[0]
            obs, _, success, timeout, _ = env.step(action.numpy())
            executor.observe({"state": torch.as_tensor(obs)[None]})
            ended, solved = success or timeout, solved + int(success)
    print(f"{solved} of {episodes} episodes solved")
    return solved


if __name__ == "__main__":
    main(Path("runs/examples/bundle_in_your_loop"))
