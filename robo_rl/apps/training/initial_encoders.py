"""Picture encoders of a new policy that start from a run of `robo-rl pretrain`."""

from __future__ import annotations

from pathlib import Path

from policies.base.generative import GenerativePolicy
from policies.pretraining.saved_encoder import SavedEncoder, load_encoder, start_encoders
from robo_rl.core.errors import CheckpointError
from robo_rl.core.files.describe_path import not_a
from robo_rl.core.files.state_io import has_state
from robo_rl.runs.run_dir import RunDir


def start_from(policy: GenerativePolicy, source: str) -> None:
    """Give every camera of a new policy the weights of the encoder in `source`."""
    start_encoders(policy.encoder, find_encoder(source), source)


def find_encoder(source: str) -> SavedEncoder:
    """Encoder of a run of `robo-rl pretrain`, or of its folder encoder/."""
    for folder in (RunDir(Path(source)).encoder, Path(source)):
        if has_state(folder):
            return load_encoder(folder)
    if (Path(source) / "run.json").is_file():
        raise CheckpointError(
            f"image.init={source} is a run without a pre-trained encoder. Give a finished run of robo-rl "
            "pretrain."
        )
    raise CheckpointError(
        f"image.init: {not_a(Path(source), 'a run of robo-rl pretrain')} Give the out= of such a run."
    )
