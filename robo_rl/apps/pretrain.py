"""`robo-rl pretrain`: a picture encoder from pictures alone, with exact resume."""

from __future__ import annotations

from dataclasses import asdict

from robo_rl.apps.training.video import pretrain, trainable
from robo_rl.conf.train import PretrainConfig
from robo_rl.core.text.commands import command
from robo_rl.core.text.setting_changes import setting_changes
from robo_rl.nets.image_encoder import ImageEncoderConfig


def main(config: PretrainConfig) -> int:
    """Pre-train, and print the next command."""
    run = pretrain(config)
    changed = setting_changes(config.image, asdict(ImageEncoderConfig()))
    same = "".join(f" image.{change.key}={change.now}" for change in changed)
    data = config.data if trainable(config.data) else "<demonstrations with the same kind of pictures>"
    print(
        f"Encoder: {run.encoder}\n"
        f"Next:    {command('train', data=data, out='<new run>', **{'image.init': run.path})}{same}"
    )
    return 0
