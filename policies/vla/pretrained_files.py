"""Folder of a pretrained vision-language model: its files are read without downloads and pickles."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from torch import nn

from policies.vla.families import FAMILIES, Family
from robo_rl.core.errors import ConfigError, DataError, MissingDependencyError
from robo_rl.core.files.durable import read_json
from robo_rl.core.packages import pip_install

TOKENIZERS = ("tokenizer.json", "tokenizer.model", "vocab.json")  # one of these holds the vocabulary
PROCESSORS = ("preprocessor_config.json", "processor_config.json")
_UNREADABLE = (OSError, ValueError, KeyError, TypeError, AttributeError, RuntimeError, SafetensorError)


class PretrainedFolder:
    """Files of a model. Raises ConfigError, with the remedy, for a folder that cannot be used."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        if not self.path.is_dir():
            raise ConfigError(
                f"policy.backbone={path} is neither 'tiny' nor a folder. Nothing is downloaded: give the "
                f"folder of a pretrained model ({', '.join(FAMILIES)})."
            )
        config = self._json("config.json", "which says what model it is")
        kind = str(config.get("model_type"))
        if kind not in FAMILIES:
            raise ConfigError(
                f"{self.path} holds a model of type '{kind}', expected one of: {', '.join(FAMILIES)}."
            )
        self.family: Family = FAMILIES[kind]
        if "quantization_config" in config:
            raise ConfigError(
                f"{self.path} holds quantised weights. Use the model's folder without quantisation."
            )
        if not any((self.path / name).is_file() for name in TOKENIZERS):
            raise ConfigError(
                f"{self.path} has no tokenizer ({' or '.join(TOKENIZERS)}). Copy the tokenizer files of the "
                "model into it."
            )
        self.weights = sorted(self.path.glob("*.safetensors"))
        if not self.weights:
            raise ConfigError(
                f"{self.path} has no weights (*.safetensors). Pickled ones are not read, because they can "
                "run code: save the model by its save_pretrained."
            )

    def picture_settings(self) -> Mapping[str, Any]:
        """Settings of the model's picture processor."""
        for name in PROCESSORS:
            if (self.path / name).is_file():
                found = self._json(name, "")
                return found.get("image_processor", found) if name == PROCESSORS[1] else found
        raise ConfigError(
            f"{self.path} has no picture processor ({' or '.join(PROCESSORS)}), which says how pictures are "
            "resized and normalised. Copy that file of the model into it."
        )

    def tokenizer(self) -> Any:
        """The model's own tokenizer."""
        auto = package("transformers").AutoTokenizer
        with self._read("tokenizer"):
            return auto.from_pretrained(self.path, local_files_only=True, trust_remote_code=False)

    def model(self, layers: int) -> nn.Module:
        """The model in float32, without its language head. layers: number of text layers; 0: all."""
        module, name = self.family.model.split(":")
        cls = getattr(package(f"transformers.models.{module}"), name)
        with self._read("configuration"):
            config = cls.config_class.from_pretrained(self.path, local_files_only=True)
            text = config.get_text_config()
            if layers > text.num_hidden_layers:
                raise ConfigError(
                    f"policy.backbone_layers={layers} exceeds the {text.num_hidden_layers} text layers of "
                    f"{self.path}."
                )
            if layers:
                text.num_hidden_layers = layers
                if getattr(text, "layer_types", None):
                    text.layer_types = text.layer_types[:layers]
        with self._read("weights"), no_progress_bar():
            model, report = cls.from_pretrained(
                self.path,
                config=config,
                local_files_only=True,
                use_safetensors=True,
                dtype=torch.float32,
                attn_implementation="sdpa",
                output_loading_info=True,
            )
        if missing := sorted(name for name in report["missing_keys"] if not name.startswith("lm_head")):
            raise ConfigError(
                f"{self.path} lacks the weights of {len(missing)} tensors, such as '{missing[0]}'. Copy all "
                "*.safetensors files of the model."
            )
        inner: nn.Module = model.model
        return inner

    def checksum(self) -> int:
        """CRC-32 of the weights."""
        total = 0
        for path in self.weights:
            with path.open("rb") as file:
                while block := file.read(1 << 24):
                    total = zlib.crc32(block, total)
        return total

    def _json(self, name: str, purpose: str) -> dict[str, Any]:
        try:
            found = read_json(self.path / name)
        except DataError as error:
            raise ConfigError(
                f"{self.path} needs a readable {name}{purpose and ', ' + purpose}: {error}"
            ) from error
        if not isinstance(found, dict):
            raise ConfigError(
                f"{self.path / name} holds {type(found).__name__}, expected a mapping of settings."
            )
        return found

    @contextmanager
    def _read(self, what: str) -> Iterator[None]:
        """Turn the package's errors into one sentence."""
        try:
            yield
        except _UNREADABLE as error:
            reason = " ".join(str(error).split())[:300]
            raise ConfigError(f"The {what} in {self.path} cannot be read: {reason}") from error


@contextmanager
def no_progress_bar() -> Iterator[None]:
    """Hide the package's bar over tensors, which is shown even for a small model."""
    words = package("transformers.utils.logging")
    shown = words.is_progress_bar_enabled()
    words.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            words.enable_progress_bar()


def package(name: str) -> Any:
    """A module of `transformers`. Raises MissingDependencyError where it is not installed."""
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        raise MissingDependencyError(
            f"A vision-language-action policy needs the package '{error.name}', which is not installed. "
            f"Run: {pip_install('vla')}"
        ) from error
