"""Prefix network with the weights of a pretrained vision-language model: frozen, or with LoRA adapters.

A checkpoint holds the adapters, and of the model its folder (in the policy's configuration) and a checksum of
its weights; copies of the policy share the frozen weights.
"""

from __future__ import annotations

import copy
from importlib import import_module
from typing import Any

import torch
from torch import Tensor, nn

from policies.vla.config import VlaConfig
from policies.vla.families import Family, Prompts
from policies.vla.pictures import Side, crop_side, cut, resized
from policies.vla.pretrained_files import PretrainedFolder
from policies.vla.tiny import Prefix, prefix_of
from robo_rl.core.errors import CheckpointError, ConfigError, MissingDependencyError
from robo_rl.core.packages import pip_install
from robo_rl.core.shapes import Bool, Float, Int, UInt8
from robo_rl.core.text.instruction import to_text

CHECKSUM = "checksum"  # name of the buffer
ADAPTED = ["q_proj", "k_proj", "v_proj", "o_proj"]  # layers of attention in the text models of all families


class PretrainedBackbone(nn.Module):
    """Prefix of pictures and words by the model of a folder, with its tokenizer and picture settings.

    Pictures come first, in the order of the cameras, then the words; padding is at the end. Raises
    ConfigError for a folder that cannot be used.
    """

    checksum: Tensor

    def __init__(self, sides: list[Side], config: VlaConfig) -> None:
        super().__init__()
        folder = PretrainedFolder(config.backbone)
        self._where = str(folder.path)
        self._settings = folder.picture_settings()
        self.vlm = folder.model(config.backbone_layers).requires_grad_(False)
        self._family: Family = folder.family
        self._config = config_of(self.vlm)
        self.crops = [crop_side(side, config.crop) for side in sides]
        self._layouts = [self._layout(side) for side in self.crops]
        text = self._config.get_text_config()
        self.layers, self.heads = int(text.num_hidden_layers), int(text.num_attention_heads)
        self.kv_heads = int(text.num_key_value_heads)
        self.head_dim = int(getattr(text, "head_dim", None) or text.hidden_size // self.heads)
        self._placeholder = int(self._config.image_token_id)
        tokenizer = folder.tokenizer()
        if (words := len(tokenizer)) > int(text.vocab_size):
            raise ConfigError(
                f"The tokenizer in {self._where} has {words} tokens, its model {text.vocab_size}. Copy the "
                "tokenizer files of the same model."
            )
        counts = [layout.tokens for layout in self._layouts]
        self._prompts = Prompts(self._family, tokenizer, self._placeholder, counts, self._where)
        if config.lora:
            add_adapters(getattr(self.vlm, self._family.text), config.lora)
        self.register_buffer(CHECKSUM, torch.tensor(folder.checksum()))
        self._trained = {name for name, part in self.named_parameters() if part.requires_grad}
        self._stored = set(self.state_dict())  # without buffers that are computed from the configuration
        hooks: Any = self  # torch declares no types for these two
        hooks.register_state_dict_post_hook(_leave_frozen_out)
        hooks.register_load_state_dict_pre_hook(_add_frozen)

    def forward(
        self,
        pictures: list[UInt8[Tensor, "b h w 3"]],
        words: UInt8[Tensor, "b n"],
        crop: Float[Tensor, "b cameras 2"] | None = None,
    ) -> Prefix:
        """words: bytes, 0 is padding. crop: positions in [0, 1)."""
        ids, mask = self._tokens(words)
        mean, std = (list(self._settings[key]) for key in ("image_mean", "image_std"))
        pixels = []
        for i, (picture, side, layout) in enumerate(zip(pictures, self.crops, self._layouts, strict=True)):
            seen = cut(picture, side, None if crop is None else crop[:, i])
            pixels.append(resized(seen, layout.side, mean, std))
        inputs = self._family.inputs(pixels, ids == self._placeholder, self._settings)
        out = self.vlm(input_ids=ids, attention_mask=mask.long(), use_cache=True, **inputs)
        prefix = prefix_of(out, mask)
        if any(layer.shape[2] != ids.shape[1] for layer in prefix[0]):
            raise ConfigError(
                f"A layer of {self._where} keeps fewer than the prompt's {ids.shape[1]} tokens, because its "
                "attention has a sliding window. Use smaller or fewer pictures."
            )
        return prefix

    def _layout(self, side: Side) -> Any:
        try:
            _ = self._settings["image_mean"], self._settings["image_std"]
            return self._family.layout(self._settings, self._config, side)
        except (KeyError, TypeError, ValueError) as error:
            raise ConfigError(
                f"The picture processor in {self._where} lacks the setting {error}, or it is no number. Copy "
                "the file of the model again."
            ) from error

    def _tokens(self, words: UInt8[Tensor, "b n"]) -> tuple[Int[Tensor, "b L"], Bool[Tensor, "b L"]]:
        """Token ids and mask, padded at the end. Reads the words from the device."""
        rows = [self._prompts.ids(to_text(row)) for row in words.cpu().numpy()]
        longest = max(map(len, rows))
        ids = torch.tensor([row + [0] * (longest - len(row)) for row in rows], device=words.device)
        lengths = torch.tensor([len(row) for row in rows], device=words.device)
        return ids, torch.arange(longest, device=words.device) < lengths[:, None]

    def frozen(self) -> dict[str, Tensor]:
        """Tensors of the model by name, without adapters and checksum."""
        tensors = {**dict(self.named_parameters()), **dict(self.named_buffers())}
        return {name: part for name, part in tensors.items() if name not in self._trained | {CHECKSUM}}

    def __deepcopy__(self, memo: dict[int, Any]) -> PretrainedBackbone:
        """Copy with its own adapters and the same frozen weights."""
        memo.update({id(part): part for part in self.frozen().values()})
        made = type(self).__new__(type(self))
        memo[id(self)] = made
        made.__dict__.update(copy.deepcopy(self.__dict__, memo))
        return made


def config_of(model: Any) -> Any:
    """Configuration of a model of `transformers`."""
    return model.config


def add_adapters(text: nn.Module, rank: int) -> None:
    """LoRA (Hu et al. 2022) of this rank on the attention of a text model, alpha = 2 * rank.

    Raises MissingDependencyError without `peft`.
    """
    try:
        peft: Any = import_module("peft")
    except ModuleNotFoundError as error:
        raise MissingDependencyError(
            f"policy.lora needs the package '{error.name}', which is not installed. "
            f"Run: {pip_install('lora')}"
        ) from error
    peft.inject_adapter_in_model(
        peft.LoraConfig(r=rank, lora_alpha=2 * rank, target_modules=ADAPTED, lora_dropout=0.0), text
    )


def _leave_frozen_out(backbone: nn.Module, state: dict[str, Any], prefix: str, metadata: Any) -> None:
    """Hook of `state_dict`."""
    assert isinstance(backbone, PretrainedBackbone)
    for name in [key for key in state if key.startswith(prefix + "vlm.")]:
        if name.removeprefix(prefix) not in backbone._trained:
            del state[name]


def _add_frozen(backbone: nn.Module, state: dict[str, Any], prefix: str, *rest: Any) -> None:
    """Hook of `load_state_dict`. Raises CheckpointError for other frozen weights than in training."""
    assert isinstance(backbone, PretrainedBackbone)
    found = state.get(prefix + CHECKSUM)
    if found is not None and int(found) != int(backbone.checksum):
        raise CheckpointError(
            f"The weights in {backbone._where} are not those that the policy was trained with (checksum "
            f"{int(backbone.checksum)}, expected {int(found)}). Put the same model there."
        )
    frozen = backbone.frozen()
    state.update({prefix + name: frozen[name] for name in frozen.keys() & backbone._stored})
