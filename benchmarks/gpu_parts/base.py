"""Updates per second of a base policy's behaviour cloning, on the device and on one CPU core.

gpu/base/<net>/updates_per_s (batch 256, chunks of 16 x 8, history 2) and gpu/base/<net>/ratio_to_cpu_core.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from timing import emit, facts, options, seconds, unit

from policies.base.flow import FlowConfig
from policies.base.generative import GenerativeConfig, GenerativePolicy
from policies.base.process import make_process
from policies.training.base import BaseTrainConfig, BaseTrainer
from policies.training.batches import TensorWindows
from robo_rl.core.spec import ActionSpec, ArraySpec, EnvSpec
from robo_rl.data.normalizer import Normalizer
from robo_rl.nets.denoiser import MlpDenoiserConfig
from robo_rl.nets.image_encoder import ImageEncoderConfig
from robo_rl.nets.registry import NetConfig
from robo_rl.nets.unet1d import Unet1dConfig
from robo_rl.runs.device import train_in_tf32

SPEC = EnvSpec("robot/bench", {"state": ArraySpec((32,))}, ActionSpec((-1.0,) * 8, (1.0,) * 8), 100, 20.0)
NETS: dict[str, NetConfig] = {
    "mlp": MlpDenoiserConfig(width=512, depth=4),
    "unet1d": Unet1dConfig(widths=(128, 256, 512)),
}
BATCH, WINDOWS = 256, 8192


def main() -> None:
    args = options(__doc__)
    train_in_tf32(torch.device(args.device))
    for name, net in NETS.items():
        calls = 3 if args.quick else 10
        cpu_s = seconds(update(net, "cpu"), calls if name == "mlp" else 2, "cpu", warm_up=1)
        if args.device == "cpu":
            emit(f"gpu/base/{name}/updates_per_cpu-s", round(1.0 / cpu_s, 2), "updates/s", **facts("cpu"))
            continue
        taken_s = seconds(update(net, args.device), 30 * calls, args.device, warm_up=10)
        emit(
            f"gpu/base/{name}/updates_per_{unit(args.device)}",
            round(1.0 / taken_s, 1),
            "updates/s",
            **facts(args.device),
        )
        emit(f"gpu/base/{name}/ratio_to_cpu_core", round(cpu_s / taken_s, 1), "ratio", **facts(args.device))


def update(net: NetConfig, device: str) -> Callable[[], object]:
    """One update of `robo-rl train` on random windows."""
    torch.manual_seed(0)
    normalizer = Normalizer.fit({"state": torch.rand(64, 32)})
    config = GenerativeConfig(obs_steps=2, chunk=16, execute=8, net=net, image=ImageEncoderConfig())
    policy = GenerativePolicy(SPEC, normalizer, config, make_process(FlowConfig(steps=10))).to(device)
    windows = TensorWindows({"state": torch.rand(WINDOWS, 2, 32)}, torch.rand(WINDOWS, 16, 8) * 2.0 - 1.0)
    recipe = BaseTrainConfig(steps=1_000_000, batch_size=BATCH, log_every=1_000_000)
    return BaseTrainer(policy, windows, recipe).advance


if __name__ == "__main__":
    main()
