"""LeRobot's diffusion policy as one of ours: its U-Net, DDIM grid and normalisation, number for number."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from policies.base.diffusion import Diffusion, DiffusionConfig, training_table
from policies.base.generative import GenerativeConfig, GenerativePolicy
from policies.checkpoint import load_weights
from policies.imported.checkpoint import ACTION, ENV_STATE, STATE, WEIGHTS, LerobotCheckpoint
from robo_rl.core.errors import CheckpointError, ConfigError
from robo_rl.core.protocols import Obs
from robo_rl.core.shapes import Float, Int
from robo_rl.core.spec import EnvSpec
from robo_rl.data.normalizer import Normalizer
from robo_rl.nets.unet1d import Unet1dConfig

_NO_CLIP = 1e9  # LeRobot bounds no observation
_EXPECTED = {  # settings of LeRobot that change the network or the process -> the one that ours has
    "use_film_scale_modulation": True,
    "n_groups": 8,
    "clip_sample": True,
    "beta_start": 0.0001,
    "beta_end": 0.02,
}
_BLOCK = {  # layer of our residual block -> of LeRobot's
    "first.conv": "conv1.block.0",
    "first.norm": "conv1.block.1",
    "second.conv": "conv2.block.0",
    "second.norm": "conv2.block.1",
    "film.1": "cond_encoder.1",
    "skip": "residual_conv",
}


class ImportedDiffusionPolicy(nn.Module):
    """chunk = gain * x[past:] + offset, where x is the chunk of `inner`. A `protocols.ChunkPolicy`.

    LeRobot's chunks begin at the oldest observation: the first `past` actions are those of steps that are
    over. In their place the last action is repeated at the end, so that chunk and noise keep one length.
    gain and offset map LeRobot's normalised actions to [-1, 1], the limits of the action space.
    """

    kind = "imported_diffusion"
    gain: Tensor
    offset: Tensor

    def __init__(self, inner: GenerativePolicy, past: int) -> None:
        super().__init__()
        self.inner, self.past = inner, past
        self.env, self.obs_spec, self.action_spec = inner.env, inner.obs_spec, inner.action_spec
        self.obs_steps, self.chunk, self.execute = inner.obs_steps, inner.chunk, inner.execute
        if past + inner.execute > inner.chunk:
            raise ConfigError(
                f"execute={inner.execute} actions after the first {past} exceed the chunk of {inner.chunk}."
            )
        self.register_buffer("gain", torch.ones(inner.action_spec.dim))
        self.register_buffer("offset", torch.zeros(inner.action_spec.dim))

    def features(self, obs: Obs) -> Float[Tensor, "b f"]:
        return self.inner.features(obs)

    def sample(self, obs: Obs, noise: Float[Tensor, "b Tp a"]) -> Float[Tensor, "b Tp a"]:
        return self.sample_from(self.features(obs), noise)

    def sample_from(
        self, features: Float[Tensor, "b f"], noise: Float[Tensor, "b Tp a"]
    ) -> Float[Tensor, "b Tp a"]:
        chunk = self.inner.sample_from(features, noise)
        if self.past:
            chunk = torch.cat([chunk[:, self.past :], chunk[:, -1:].expand(-1, self.past, -1)], dim=1)
        return self.gain * chunk + self.offset

    def refine(self, obs: Obs, action: Float[Tensor, "b a"]) -> Float[Tensor, "b a"]:
        """The action, unchanged."""
        return action

    def config(self) -> dict[str, Any]:
        inner = self.inner.config()
        return {"env": inner.pop("env"), "past": self.past, "inner": inner}

    @classmethod
    def from_config(cls, data: dict[str, Any]) -> ImportedDiffusionPolicy:
        inner = GenerativePolicy.from_config({**data["inner"], "env": data["env"]})
        return cls(inner, int(data["past"]))


def native_fault(read: LerobotCheckpoint) -> str:
    """Why this checkpoint has no equal among our classes; empty if it has one."""
    if read.kind != "diffusion":
        return f"it is a policy of type '{read.kind}', and only 'diffusion' has the layout of a class here"
    if other := sorted(read.inputs.keys() - {STATE, ENV_STATE}):
        return f"it reads {', '.join(other)} by a network that no class here has"
    for key, wanted in _EXPECTED.items():
        if (found := read.config.get(key, wanted)) != wanted:
            return f"its {key} is {found!r}, and the class here has {wanted!r}"
    return ""


def import_diffusion(
    read: LerobotCheckpoint, env: EnvSpec, keys: dict[str, str], steps: int | None = None
) -> ImportedDiffusionPolicy:
    """The checkpoint as a policy of `env`. keys: observation of `env` -> feature of the checkpoint.

    steps: sample by DDIM in so many steps; None: as the checkpoint says, which must then be DDIM. Raises
    CheckpointError, or ConfigError for a checkpoint that no class here equals.
    """
    if fault := native_fault(read):
        raise ConfigError(f"{read.folder} cannot be imported: {fault}.")
    if steps is None and read.config.get("noise_scheduler_type") != "DDIM":
        raise ConfigError(
            f"{read.folder} samples by {read.config.get('noise_scheduler_type')}, which draws noise at every "
            "step; policies here are functions of their initial noise. Give steps=10 to sample the same "
            "network by DDIM."
        )
    obs_steps, horizon = read.number("n_obs_steps"), read.number("horizon")
    train_steps = read.number("num_train_timesteps")
    process = DiffusionConfig(
        steps=steps or _inference_steps(read, train_steps),
        train_steps=train_steps,
        schedule=str(read.config.get("beta_schedule")),
        prediction=str(read.config.get("prediction_type")),
        clip=float(read.config.get("clip_sample_range", 1.0)),
        spacing="leading",
    )
    net = Unet1dConfig(
        widths=list(read.config["down_dims"]),
        kernel=read.number("kernel_size"),
        time_dim=read.number("diffusion_step_embed_dim"),
        time_scale=float(train_steps),
    )
    config = GenerativeConfig(obs_steps, horizon, read.number("n_action_steps"), net, process)
    normalizer = Normalizer({key: env.obs[key].shape for key in env.obs if key in keys}, clip=_NO_CLIP)
    for i, key in enumerate(normalizer.keys):
        center, scale = read.center_and_scale(keys[key])
        normalizer.get_buffer(f"center_{i}").copy_(center)
        normalizer.get_buffer(f"scale_{i}").copy_(scale)
    inner = GenerativePolicy(env, normalizer, config, Diffusion(process))
    policy = ImportedDiffusionPolicy(inner, past=obs_steps - 1)
    weights = net_weights(read.weights(), net, columns(inner, keys, net.time_dim))
    load_weights(inner.net, weights, str(read.folder / WEIGHTS))
    assert isinstance(inner.process, Diffusion)
    inner.process.alphas_cumprod.copy_(training_table(process))
    low, high = torch.tensor(env.action.low), torch.tensor(env.action.high)
    center, scale = read.center_and_scale(ACTION)
    policy.gain.copy_(2.0 * scale / (high - low))
    policy.offset.copy_(2.0 * (center - low) / (high - low) - 1.0)
    return policy.eval().requires_grad_(False)


def columns(policy: GenerativePolicy, keys: dict[str, str], time_dim: int) -> Int[Tensor, " c"]:
    """Column of LeRobot's condition that is each column of ours.

    LeRobot: time embedding, then per observation step state and environment state. Ours: time embedding, then
    per key all steps.
    """
    sizes = {keys[key]: policy.obs_spec[key].shape[0] for key in policy.encoder.float_keys}
    width, begin, at = sum(sizes.values()), 0, {}
    for feature in (STATE, ENV_STATE):
        if feature in sizes:
            at[feature], begin = begin, begin + sizes[feature]
    found = list(range(time_dim))
    for key in policy.encoder.float_keys:
        for step in range(policy.obs_steps):
            first = time_dim + step * width + at[keys[key]]
            found += range(first, first + sizes[keys[key]])
    return torch.tensor(found)


def net_weights(weights: dict[str, Tensor], net: Unet1dConfig, order: Int[Tensor, " c"]) -> dict[str, Tensor]:
    """Weights of our U-Net from LeRobot's. Tensors that belong to none of its layers stay, under their names,
    and are refused by the loader.
    """
    left = {name.removeprefix("diffusion.unet."): tensor for name, tensor in weights.items()}
    made: dict[str, Tensor] = {}
    for ours, theirs in layers(len(net.widths)):
        for part in ("weight", "bias"):
            if (tensor := left.pop(f"{theirs}.{part}", None)) is not None:
                sees_cond = ours.endswith("film.1") and part == "weight" and tensor.shape[1] == len(order)
                made[f"{ours}.{part}"] = tensor[:, order] if sees_cond else tensor
    return made | left


def layers(levels: int) -> Iterator[tuple[str, str]]:
    """(layer of our U-Net, the same of LeRobot's). Layers that the last level lacks are among them."""
    blocks = [(f"middle.{number}", f"mid_modules.{number}") for number in range(2)]
    for level in range(levels):
        for number in range(2):
            blocks.append((f"down.{level}.{number}", f"down_modules.{level}.{number}"))
            blocks.append((f"up.{level}.{number}", f"up_modules.{level}.{number}"))
        yield f"shrink.{level}", f"down_modules.{level}.2"
        yield f"grow.{level}", f"up_modules.{level}.2"
    for ours, theirs in blocks:
        yield from ((f"{ours}.{layer}", f"{theirs}.{other}") for layer, other in _BLOCK.items())
    yield "time.1", "diffusion_step_encoder.1"
    yield "time.3", "diffusion_step_encoder.3"
    yield "last.0.conv", "final_conv.0.block.0"
    yield "last.0.norm", "final_conv.0.block.1"
    yield "last.1", "final_conv.1"


def _inference_steps(read: LerobotCheckpoint, train_steps: int) -> int:
    steps = read.config.get("num_inference_steps")
    if steps is not None and (type(steps) is not int or not 1 <= steps <= train_steps):
        raise CheckpointError(
            f"{read.folder} has num_inference_steps = {steps!r}, at most {train_steps} exist."
        )
    return train_steps if steps is None else int(steps)
