"""`robo-rl pretrain`: a picture encoder from pictures alone, with exact resume."""

from __future__ import annotations

from robo_rl.apps.tuning.encoders.initial import ENCODER
from robo_rl.apps.tuning.encoders.video import pretrain
from robo_rl.conf.train import PretrainConfig


def main(config: PretrainConfig) -> int:
    """Pre-train, and print the next command."""
    run = pretrain(config)
    print(
        f"Encoder: {run.path / ENCODER}\n"
        f"Next:    robo-rl train data={config.data} out=<new run> image.init={run.path}"
    )
    return 0
