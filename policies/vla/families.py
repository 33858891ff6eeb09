"""Pretrained vision-language models by `model_type`: their classes, prompts and pictures.

A prompt is, for each picture, `before`, one placeholder for each of its tokens, and `after`; then `opening`,
the words and `closing`. It is that of the model's own processor for pictures that are not split into tiles,
without a chat template.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from policies.vla.pictures import Side, patches, smart_side
from robo_rl.core.errors import ConfigError
from robo_rl.core.shapes import Bool, Float

KEPT_PROMPTS = 1000  # tokenised instructions that are kept, as in an episode they do not change

Json = Mapping[str, Any]
Pixels = list[Float[Tensor, "b 3 h w"]]  # normalised pictures of each camera


@dataclass(frozen=True)
class Layout:
    """Height and width [px] to which a picture is resized, and its number of tokens."""

    side: Side
    tokens: int


@dataclass(frozen=True)
class Family:
    """How to use one kind of pretrained model; see the module."""

    model: str  # class, below transformers.models
    text: str  # attribute of the model that holds the text model
    layout: Callable[[Json, Any, Side], Layout]  # of (settings of its picture processor, its config, side)
    inputs: Callable[[Pixels, Bool[Tensor, "b L"], Json], dict[str, Tensor]]  # placeholders -> of the model
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    opening: str = ""  # name of a special token of the tokenizer, such as "bos_token"
    closing: str = ""  # text


def smolvlm_layout(settings: Json, config: Any, side: Side) -> Layout:
    """One square picture, not split into tiles."""
    length = int(settings["max_image_size"]["longest_edge"])
    cells = length // config.vision_config.patch_size
    return Layout((length, length), cells**2 // config.scale_factor**2)


def paligemma_layout(settings: Json, config: Any, side: Side) -> Layout:
    height, width = int(settings["size"]["height"]), int(settings["size"]["width"])
    patch = config.vision_config.patch_size
    return Layout((height, width), (height // patch) * (width // patch))


def qwen_layout(settings: Json, config: Any, side: Side) -> Layout:
    """Size near that of the picture, whose sides are multiples of patch_size * merge_size."""
    sizes = settings.get("size") or {}
    least = settings.get("min_pixels") or sizes["shortest_edge"]
    most = settings.get("max_pixels") or sizes["longest_edge"]
    step = int(settings["patch_size"]) * int(settings["merge_size"])
    height, width = smart_side(side, step, int(least), int(most))
    return Layout((height, width), (height // step) * (width // step))


def smolvlm_inputs(pixels: Pixels, placeholders: Bool[Tensor, "b L"], settings: Json) -> dict[str, Tensor]:
    return {"pixel_values": torch.stack(pixels, dim=1)}


def paligemma_inputs(pixels: Pixels, placeholders: Bool[Tensor, "b L"], settings: Json) -> dict[str, Tensor]:
    """Type 0: pictures and words attend to each other in both directions."""
    return {
        "pixel_values": torch.stack(pixels, dim=1).flatten(0, 1),
        "token_type_ids": torch.zeros_like(placeholders, dtype=torch.long),
    }


def qwen_inputs(pixels: Pixels, placeholders: Bool[Tensor, "b L"], settings: Json) -> dict[str, Tensor]:
    """Patches of all pictures of the first row, then of the second, ..., with the grid of each picture."""
    patch, merge, frames = (int(settings[key]) for key in ("patch_size", "merge_size", "temporal_patch_size"))
    flat = torch.cat([patches(each, patch, merge, frames) for each in pixels], dim=1)
    grids = [[1, each.shape[2] // patch, each.shape[3] // patch] for each in pixels]
    return {
        "pixel_values": flat.flatten(0, 1),
        "image_grid_thw": torch.tensor(grids * len(placeholders), device=placeholders.device),
        "mm_token_type_ids": placeholders.int(),
    }


_SMOLVLM_EDGE, _QWEN_START, _QWEN_END = "<fake_token_around_image>", "<|vision_start|>", "<|vision_end|>"
FAMILIES: dict[str, Family] = {
    "smolvlm": Family(
        "smolvlm:SmolVLMForConditionalGeneration",
        "text_model",
        smolvlm_layout,
        smolvlm_inputs,
        before=(_SMOLVLM_EDGE, "<global-img>"),
        after=(_SMOLVLM_EDGE,),
    ),
    "paligemma": Family(
        "paligemma:PaliGemmaForConditionalGeneration",
        "language_model",
        paligemma_layout,
        paligemma_inputs,
        opening="bos_token",
        closing="\n",
    ),
    "qwen2_5_vl": Family(
        "qwen2_5_vl:Qwen2_5_VLForConditionalGeneration",
        "language_model",
        qwen_layout,
        qwen_inputs,
        before=(_QWEN_START,),
        after=(_QWEN_END,),
    ),
    "qwen3_vl": Family(
        "qwen3_vl:Qwen3VLForConditionalGeneration",
        "language_model",
        qwen_layout,
        qwen_inputs,
        before=(_QWEN_START,),
        after=(_QWEN_END,),
    ),
}


class Prompts:
    """Token ids of instructions, kept for each one that was seen."""

    def __init__(
        self, family: Family, tokenizer: Any, placeholder: int, tokens: Sequence[int], where: str
    ) -> None:
        self._tokenizer, self._closing, self._where = tokenizer, family.closing, where
        self._control = {placeholder, *control_tokens(tokenizer)}
        self._ids: dict[str, list[int]] = {}
        before, after = (
            [_id(tokenizer, token, where) for token in each] for each in (family.before, family.after)
        )
        self._start = [i for count in tokens for i in (*before, *[placeholder] * count, *after)]
        if family.opening:
            self._start.append(_id(tokenizer, getattr(tokenizer, family.opening, None), where))

    def ids(self, instruction: str) -> list[int]:
        """Pictures' placeholders and the instruction, not padded. Raises ConfigError for an instruction in
        which the tokenizer finds one of its control tokens.
        """
        if instruction not in self._ids:
            if len(self._ids) >= KEPT_PROMPTS:  # training varies instructions without end
                self._ids.clear()
            words = self._tokenizer(
                instruction + self._closing,
                add_special_tokens=False,
                split_special_tokens=True,  # the name of a control token is text like any other
            )["input_ids"]
            if found := self._control.intersection(words):
                names = self._tokenizer.convert_ids_to_tokens(sorted(found))
                raise ConfigError(
                    f"The instruction '{instruction}' holds {', '.join(names)}, which the tokenizer in "
                    f"{self._where} reads as a control token and not as text. Leave it out."
                )
            self._ids[instruction] = [*self._start, *words]
        return self._ids[instruction]


def control_tokens(tokenizer: Any) -> set[int]:
    """Ids of the special tokens of a tokenizer, without the one that stands for unknown text."""
    added = {number for number, token in tokenizer.added_tokens_decoder.items() if token.special}
    return (added | set(tokenizer.all_special_ids)) - {tokenizer.unk_token_id}


def _id(tokenizer: Any, token: str | None, where: str) -> int:
    """Number of a special token. Raises ConfigError if the tokenizer does not have it."""
    number = tokenizer.get_vocab().get(token)
    if number is None:
        raise ConfigError(
            f"The tokenizer in {where} has no token '{token}', which marks pictures or the start of words "
            "for this model. Copy the tokenizer files of the same model."
        )
    return int(number)
