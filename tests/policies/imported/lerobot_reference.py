"""Checkpoints made by LeRobot's own classes, with weights by a formula, and the chunks that LeRobot computes.

    <python of an environment with lerobot> tests/policies/imported/lerobot_reference.py <folder>

writes <folder>/<kind>/ (a checkpoint) and <folder>/<kind>.json: its files of JSON, names and shapes of its
tensors, and the chunk, for `diffusion` and `act`. `reference/` beside this file holds the JSON of LeRobot
0.4.4, from which the quick tests rebuild the checkpoint of `diffusion` without LeRobot.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

ROWS = 2
STATE, ENV, ACTION = 3, 4, 2


def numbers(name: str, shape: tuple[int, ...], scale: float = 1.0) -> Any:
    """Float32 array that follows from its name and shape alone."""
    phase = sum((place + 1) * code for place, code in enumerate(name.encode())) % 1000
    count = int(np.prod(shape))
    return (
        (scale * np.sin(0.7 * phase + 1.3 * np.arange(count, dtype=np.float64)))
        .astype(np.float32)
        .reshape(shape)
    )


def weights(shapes: dict[str, Any]) -> dict[str, Any]:
    """Tensors of a model: scaled by their inputs, and norms near one."""
    made = {}
    for name, shape in shapes.items():
        norm = len(shape) == 1 and name.endswith(
            ("norm.weight", "block.1.weight", "norm1.weight", "norm2.weight")
        )
        fan_in = max(1, int(np.prod(shape[1:])))
        made[name] = np.float32(norm) + numbers(name, tuple(shape), 0.1 if norm else 1.5 / fan_in**0.5)
    return made


def statistics(image: bool) -> dict[str, dict[str, Any]]:
    sizes = {"observation.state": STATE, "action": ACTION}
    sizes |= {} if image else {"observation.environment_state": ENV}
    found = {}
    for i, (key, size) in enumerate(sizes.items()):
        low = np.linspace(-1.0, 0.0, size, dtype=np.float32) + i
        high = low + np.linspace(1.0, 2.0, size, dtype=np.float32)
        found[key] = {"min": low, "max": high, "mean": (low + high) / 2, "std": (high - low) / 4}
    if image:
        ones = np.ones((3, 1, 1), np.float32)
        found["observation.image"] = {"min": 0 * ones, "max": ones, "mean": 0.5 * ones, "std": 0.2 * ones}
    return found


def observations(steps: int, image: bool) -> dict[str, Any]:
    """Raw observations (b, To, ...), with pictures as here: (h, w, 3) uint8."""
    obs = {"state": numbers("state", (ROWS, steps, STATE))}
    if image:
        pixels = numbers("image", (ROWS, steps, 32, 32, 3), 127.0) + 128.0
        return obs | {"image.camera": pixels.astype(np.uint8)}
    return obs | {"environment_state": numbers("environment", (ROWS, steps, ENV)) + 2.0}


def main(folder: Path) -> None:
    """Make all references. Imports LeRobot."""
    for kind in ("diffusion", "act"):
        reference = make(kind, folder / kind)
        (folder / f"{kind}.json").write_text(json.dumps(reference, separators=(",", ":")) + "\n")


def make(kind: str, folder: Path) -> dict[str, Any]:
    import lerobot
    import torch
    from lerobot.configs.types import FeatureType, PolicyFeature

    torch.set_num_threads(1)
    image = kind == "act"
    inputs = {"observation.state": PolicyFeature(FeatureType.STATE, (STATE,))}
    if image:
        inputs["observation.image"] = PolicyFeature(FeatureType.VISUAL, (3, 32, 32))
    else:
        inputs["observation.environment_state"] = PolicyFeature(FeatureType.ENV, (ENV,))
    outputs = {"action": PolicyFeature(FeatureType.ACTION, (ACTION,))}
    policy, processors, steps = {"diffusion": diffusion, "act": act}[kind](inputs, outputs)
    shapes = {name: list(tensor.shape) for name, tensor in policy.state_dict().items()}
    if not image:
        policy.load_state_dict({name: torch.from_numpy(array) for name, array in weights(shapes).items()})
    stats = {
        key: {name: torch.from_numpy(np.array(value)) for name, value in entry.items()}
        for key, entry in statistics(image).items()
    }
    before, after = processors(policy.config, stats)
    for part in (policy, before, after):
        part.save_pretrained(folder)
    obs = observations(steps, image)
    batch = {"observation.state": torch.from_numpy(obs["state"])}
    with torch.no_grad():
        if image:
            pixels = torch.from_numpy(obs["image.camera"]).permute(0, 1, 4, 2, 3).float() / 255.0
            batch = {key: value[:, 0] for key, value in (batch | {"observation.image": pixels}).items()}
            chunk = after(policy.eval().predict_action_chunk(before(batch)))
        else:
            batch["observation.environment_state"] = torch.from_numpy(obs["environment_state"])
            noise = torch.from_numpy(numbers("noise", (ROWS, policy.config.horizon, ACTION), 1.5))
            chunk = after(policy.eval().diffusion.generate_actions(before(batch), noise=noise))
    files = {path.name: json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))}
    return {"lerobot": lerobot.__version__, "files": files, "shapes": shapes, "chunk": chunk.tolist()}


def diffusion(inputs: Any, outputs: Any) -> tuple[Any, Any, int]:
    from lerobot.policies.diffusion.configuration_diffusion import DiffusionConfig
    from lerobot.policies.diffusion.modeling_diffusion import DiffusionPolicy
    from lerobot.policies.diffusion.processor_diffusion import make_diffusion_pre_post_processors

    config = DiffusionConfig(
        input_features=inputs, output_features=outputs, n_obs_steps=2, horizon=8, n_action_steps=4,
        down_dims=(16, 32), diffusion_step_embed_dim=16, kernel_size=3, noise_scheduler_type="DDIM",
        num_inference_steps=7, device="cpu", push_to_hub=False,
    )  # fmt: skip
    return DiffusionPolicy(config), make_diffusion_pre_post_processors, 2


def act(inputs: Any, outputs: Any) -> tuple[Any, Any, int]:
    from lerobot.policies.act.configuration_act import ACTConfig
    from lerobot.policies.act.modeling_act import ACTPolicy
    from lerobot.policies.act.processor_act import make_act_pre_post_processors

    config = ACTConfig(
        input_features=inputs, output_features=outputs, chunk_size=6, n_action_steps=4, dim_model=32,
        n_heads=2, dim_feedforward=64, n_encoder_layers=1, n_decoder_layers=1, n_vae_encoder_layers=1,
        latent_dim=8, pretrained_backbone_weights=None, device="cpu", push_to_hub=False,
    )  # fmt: skip
    return ACTPolicy(config), make_act_pre_post_processors, 1


if __name__ == "__main__":
    main(Path(sys.argv[1]))
