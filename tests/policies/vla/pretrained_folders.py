"""Small folders of vision-language models as `save_pretrained` writes them: random weights, own tokenizer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch

TEXT = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "vocab_size": 300,
    "max_position_embeddings": 512,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
SPECIAL = ["<pad>", "<bos>", "<eos>", "<image>", "<fake_token_around_image>", "<global-img>"]
SPECIAL += ["<|image_pad|>", "<|vision_start|>", "<|vision_end|>"]
IMAGE, QWEN_IMAGE, QWEN_START = SPECIAL.index("<image>"), SPECIAL.index("<|image_pad|>"), 7
HALF = [0.5, 0.5, 0.5]


def tokenizer() -> Any:
    """Byte-level tokenizer with the special tokens of all families."""
    from tokenizers import AddedToken, Tokenizer
    from tokenizers.decoders import ByteLevel as Decoder
    from tokenizers.models import BPE
    from tokenizers.pre_tokenizers import ByteLevel
    from transformers import PreTrainedTokenizerFast

    vocabulary = {token: i for i, token in enumerate([*SPECIAL, *sorted(ByteLevel.alphabet())])}
    made = Tokenizer(BPE(vocabulary, [], unk_token=None))
    made.pre_tokenizer, made.decoder = ByteLevel(add_prefix_space=False), Decoder()
    made.add_special_tokens([AddedToken(token, special=True) for token in SPECIAL])
    names = {"pad_token": "<pad>", "bos_token": "<bos>", "eos_token": "<eos>"}
    return PreTrainedTokenizerFast(tokenizer_object=made, **names)


def write_folder(kind: str, folder: Path, seed: int = 0) -> Path:
    """Model of this `model_type`, its tokenizer and the settings of its picture processor."""
    torch.manual_seed(seed)
    model, processor = MAKERS[kind]()
    model.save_pretrained(folder)
    tokenizer().save_pretrained(folder)
    (folder / "preprocessor_config.json").write_text(json.dumps(processor))
    return folder


def smolvlm() -> tuple[Any, dict[str, Any]]:
    from transformers import SmolVLMConfig, SmolVLMForConditionalGeneration

    vision = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
    config = SmolVLMConfig(
        vision_config=vision | {"image_size": 32, "patch_size": 8},
        text_config=TEXT | {"model_type": "llama"},
        image_token_id=IMAGE,
        scale_factor=2,
        pad_token_id=0,
    )
    settings = {
        "size": {"longest_edge": 128},
        "max_image_size": {"longest_edge": 32},
        "do_image_splitting": False,
        "image_mean": HALF,
        "image_std": HALF,
    }
    return SmolVLMForConditionalGeneration(config), settings


def paligemma() -> tuple[Any, dict[str, Any]]:
    from transformers import PaliGemmaConfig, PaliGemmaForConditionalGeneration

    vision = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
    config = PaliGemmaConfig(
        vision_config=vision
        | {"model_type": "siglip_vision_model", "image_size": 32, "patch_size": 8, "projection_dim": 32},
        text_config=TEXT | {"model_type": "gemma"},
        image_token_index=IMAGE,
        projection_dim=32,
        hidden_size=32,
        vocab_size=300,
    )
    config.image_token_id = IMAGE
    settings = {"size": {"height": 32, "width": 32}, "image_mean": HALF, "image_std": HALF}
    return PaliGemmaForConditionalGeneration(config), settings


QWEN = {
    "size": {"shortest_edge": 32 * 32, "longest_edge": 64 * 64},
    "patch_size": 8,
    "temporal_patch_size": 2,
    "merge_size": 2,
    "image_mean": [0.48, 0.46, 0.41],
    "image_std": [0.27, 0.26, 0.28],
}
ROPE = {"rope_type": "default", "rope_theta": 1e4}


def qwen2_5_vl() -> tuple[Any, dict[str, Any]]:
    from transformers import Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration

    config = Qwen2_5_VLConfig(
        vision_config={
            "depth": 2,
            "hidden_size": 32,
            "intermediate_size": 48,
            "num_heads": 4,
            "out_hidden_size": 32,
            "patch_size": 8,
            "window_size": 32,
            "fullatt_block_indexes": [1],
        },
        text_config={k: v for k, v in TEXT.items() if k != "head_dim"}
        | {"rope_parameters": ROPE | {"mrope_section": [1, 1, 2]}},
        image_token_id=QWEN_IMAGE,
        vision_start_token_id=QWEN_START,
    )
    return Qwen2_5_VLForConditionalGeneration(config), QWEN


def qwen3_vl() -> tuple[Any, dict[str, Any]]:
    from transformers import Qwen3VLConfig, Qwen3VLForConditionalGeneration

    config = Qwen3VLConfig(
        vision_config={
            "depth": 2,
            "hidden_size": 32,
            "intermediate_size": 48,
            "num_heads": 4,
            "out_hidden_size": 32,
            "patch_size": 8,
            "num_position_embeddings": 16,
            "deepstack_visual_indexes": [0],
        },
        text_config=TEXT
        | {"rope_parameters": ROPE | {"mrope_section": [2, 1, 1], "mrope_interleaved": True}},
        image_token_id=QWEN_IMAGE,
        vision_start_token_id=QWEN_START,
    )
    return Qwen3VLForConditionalGeneration(config), QWEN


MAKERS = {"smolvlm": smolvlm, "paligemma": paligemma, "qwen2_5_vl": qwen2_5_vl, "qwen3_vl": qwen3_vl}
