"""Small prefix network with new weights: convolutions for pictures, whole words, SmolVLM's text model.

The text model is built from its configuration in `transformers`, without a download. Words come first, so
that pictures attend to them; positions of pictures do not depend on the number of words.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from policies.vla.config import VlaConfig
from policies.vla.pictures import crop_side, cut
from policies.vla.spatial import PointHead
from policies.vla.tokens import ByteTokens, WordTokens
from robo_rl.core.errors import MissingDependencyError
from robo_rl.core.packages import pip_install
from robo_rl.core.shapes import Bool, Float, UInt8
from robo_rl.core.text.instruction import MOST_BYTES
from robo_rl.nets.image_encoder import ResidualStage, SpatialSoftmax

KEYPOINTS = 32
# keys, values, mask, pooled features, and outputs of the moment tokens, side by side
Prefix = tuple[
    tuple[Tensor, ...],
    tuple[Tensor, ...],
    Bool[Tensor, "b L"],
    Float[Tensor, "b s"],
    Float[Tensor, "b c"],
]


class PictureTokens(nn.Module):
    """Picture (b, h, w, 3) uint8 -> tokens, and key points.

    Tokens: a grid of 1/16 of the picture's side, and one of the key points. Key points: x and y in [-1, 1].
    film: the words scale and shift the channels of the convolutions, f' = (1 + g) f + h with (g, h) linear in
    the normalised mean of their embeddings, as in RT-1 (Brohan et al. 2022, 2212.06817) with the embedding of
    a sentence. It starts at g = h = 0. Without normalising, one word of eight hardly changes the mean.
    """

    def __init__(self, side: tuple[int, int], width: int, crop: float, film: bool = False) -> None:
        super().__init__()
        self.crop = crop_side(side, crop)
        self.stem = nn.Conv2d(3, 16, 5, stride=2, padding=2)
        self.fine = nn.Sequential(ResidualStage(16, 32), ResidualStage(32, 64))
        self.coarse = ResidualStage(64, 64)
        self.points = nn.Sequential(nn.Conv2d(64, KEYPOINTS, 1), SpatialSoftmax())
        self.of_points = nn.Linear(2 * KEYPOINTS, width)
        self.of_cells = nn.Linear(64, width)
        rows, columns = (-(-length // 16) for length in self.crop)
        self.position = nn.Parameter(0.02 * torch.randn(rows * columns + 1, width))
        self.film = (
            nn.Sequential(nn.LayerNorm(width, elementwise_affine=False), nn.Linear(width, 2 * 64))
            if film
            else None
        )
        for parameter in () if self.film is None else self.film.parameters():
            nn.init.zeros_(parameter)

    def forward(
        self,
        picture: UInt8[Tensor, "b h w 3"],
        instruction: Float[Tensor, "b w"],
        crop: Float[Tensor, "b 2"] | None,
    ) -> tuple[Float[Tensor, "b n c"], Float[Tensor, "b p"]]:
        x = cut(picture, self.crop, crop).permute(0, 3, 1, 2).float() / 127.5 - 1.0
        fine = self.fine(F.relu(self.stem(x)))
        if self.film is not None:
            scale, shift = self.film(instruction)[..., None, None].chunk(2, dim=1)
            fine = (1.0 + scale) * fine + shift
        cells = self.of_cells(self.coarse(fine).flatten(2).transpose(1, 2))
        points = self.points(fine)
        tokens: Tensor = torch.cat([cells, self.of_points(points).unsqueeze(1)], 1) + self.position
        return tokens, points


class TinyBackbone(nn.Module):
    """Prefix of pictures and words; see the module.

    cut_words: on a CPU, texts are cut to the longest of the batch, which gives the same prefix in less time;
    False: computed as on a GPU.
    """

    def __init__(
        self, sides: list[tuple[int, int]], config: VlaConfig, vocabulary: Sequence[str] = ()
    ) -> None:
        super().__init__()
        width = config.width
        self.cut_words = True
        self.layers, self.heads, self.kv_heads = config.layers, config.heads, config.kv_heads
        self.head_dim = width // config.heads
        self.cameras = nn.ModuleList([PictureTokens(side, width, config.crop, config.film) for side in sides])
        self.tokens = WordTokens(vocabulary) if config.tokens == "words" else ByteTokens()
        self.words = nn.Embedding(self.tokens.count, width)
        nn.init.normal_(self.words.weight, std=0.02)
        self.text = text_model(config)
        self.point_heads = (
            nn.ModuleList([PointHead(width, 2 * KEYPOINTS) for _ in sides]) if config.spatial > 0.0 else None
        )

    def forward(
        self,
        pictures: list[UInt8[Tensor, "b h w 3"]],
        text: UInt8[Tensor, "b n"],
        crop: Float[Tensor, "b cameras 2"] | None = None,
        moments: Float[Tensor, "m w"] | None = None,
    ) -> Prefix:
        """pictures: of the first cameras, all but for embodiments with fewer. text: bytes, 0 is padding.
        crop: positions in [0, 1). moments: tokens at the end of the prefix.

        The pooled features are the mean of the outputs and the key points. The mean alone hardly shows where
        objects are, so critics and actors that see nothing else cannot tell good corrections from bad ones.
        With policy.spatial the predicted points (b, 2 c) come last.
        """
        words = self.tokens(text)
        # On a GPU the length would be read from the device; an exported graph has words of full length.
        if self.cut_words and words.device.type == "cpu" and not torch.compiler.is_exporting():
            words = words[:, : max(1, int((words != 0).sum(1).max()))]
        mask, embedded = words != 0, self.words(words)
        count = mask.sum(1, keepdim=True).clamp(min=1)  # of words; an empty text has the mean zero
        instruction = (embedded * mask.unsqueeze(-1)).sum(1) / count
        each = [
            camera(picture, instruction, None if crop is None else crop[:, i])
            for i, (camera, picture) in enumerate(zip(self.cameras[: len(pictures)], pictures, strict=True))
        ]
        seen, points = [tokens for tokens, _ in each], [found for _, found in each]
        if moments is not None:
            seen.append(moments.expand(words.shape[0], -1, -1))
        tokens = torch.cat([embedded, *seen], dim=1)
        others = tokens.shape[1] - words.shape[1]
        mask = F.pad(mask, (0, others), value=True)
        place = torch.arange(words.shape[1] + others, device=words.device)
        place = torch.where(place < words.shape[1], place, place + (MOST_BYTES - words.shape[1]))
        out = self.text(
            inputs_embeds=tokens,
            attention_mask=causal(mask),
            position_ids=place.expand(tokens.shape[0], -1),
            use_cache=True,
        )
        keys, values, mask, mean, moment = prefix_of(out, mask, 0 if moments is None else len(moments))
        pooled = [mean, *points]
        if self.point_heads is not None:
            last = words.shape[1] - 1
            heads, cameras = self.point_heads[: len(points)], self.cameras[: len(points)]
            for head, camera, found in zip(heads, cameras, points, strict=True):
                assert isinstance(camera, PictureTokens)
                last += len(camera.position)  # the token of key points is a picture's last
                pooled.append(head(out.last_hidden_state[:, last], found))
        return keys, values, mask, torch.cat(pooled, dim=1), moment


def causal(mask: Bool[Tensor, "b L"]) -> Bool[Tensor, "b 1 L L"]:
    """Attention of each token to the tokens of `mask` up to itself. `transformers` would read the device to
    find out whether any token is masked.
    """
    earlier = torch.ones(mask.shape[1], mask.shape[1], dtype=torch.bool, device=mask.device).tril()
    return mask[:, None, None, :] & earlier


def prefix_of(out: Any, mask: Bool[Tensor, "b L"], moments: int = 0) -> Prefix:
    """Prefix of the outputs of a text model of `transformers`; its pooled features are the outputs' mean.
    moments: number of tokens at the end.
    """
    cached = (out.cache if "cache" in out else out.past_key_values).layers  # renamed in transformers 5.2x
    weight = mask.unsqueeze(-1).to(out.last_hidden_state.dtype)
    pooled = (out.last_hidden_state * weight).sum(1) / weight.sum(1)
    moment = out.last_hidden_state[:, mask.shape[1] - moments :].flatten(1)
    return (
        tuple(layer.keys for layer in cached),
        tuple(layer.values for layer in cached),
        mask,
        pooled,
        moment,
    )


def text_model(config: VlaConfig) -> nn.Module:
    """SmolVLM's text model (Llama) of this size. Raises MissingDependencyError without `transformers`."""
    try:
        llama: Any = import_module("transformers.models.llama")
    except ModuleNotFoundError as error:
        raise MissingDependencyError(
            f"A vision-language-action policy needs the package '{error.name}', which is not installed. "
            f"Run: {pip_install('vla')}"
        ) from error
    settings = llama.LlamaConfig(
        vocab_size=1,  # words are embedded by `TinyBackbone`
        hidden_size=config.width,
        intermediate_size=3 * config.width,
        num_hidden_layers=config.layers,
        num_attention_heads=config.heads,
        num_key_value_heads=config.kv_heads,
        head_dim=config.width // config.heads,
        max_position_embeddings=1024,
        pad_token_id=0,
        bos_token_id=None,
        eos_token_id=None,
        attn_implementation="sdpa",
        initializer_range=config.width**-0.5,  # unit variance: with the default of 0.02 attention starts flat
    )
    model: nn.Module = llama.LlamaModel(settings)
    model.embed_tokens.requires_grad_(False)
    return model
