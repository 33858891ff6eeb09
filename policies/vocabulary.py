"""Words of instructions, and those that a policy does not know. Robot nodes read them, without torch.

A word is a run of letters and digits, in lower case, compared by its first 16 bytes, as in
`policies.vla.tokens`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from policies.saved_files import POLICY_FILE
from robo_rl.core.errors import ConfigError
from robo_rl.core.files.durable import read_json

WORD_BYTES = 16  # bytes of a word that are compared
SHOWN = 12  # known words in a message


def vocabulary_of(texts: Iterable[str]) -> tuple[str, ...]:
    """The words of these instructions, sorted."""
    return tuple(sorted({word for text in texts for word in words_in(text)}))


def words_in(text: str) -> list[str]:
    """Words of an instruction in lower case, as `policies.vla.tokens.spelled` separates them."""
    return [word.decode() for word in re.findall(rb"[a-z0-9\x80-\xff]+", text.encode().lower())]


def unknown_words(text: str, vocabulary: Iterable[str]) -> list[str]:
    """Words of an instruction that are not in the vocabulary, in their order."""
    known = {word.encode()[:WORD_BYTES] for word in vocabulary}
    return [word for word in dict.fromkeys(words_in(text)) if word.encode()[:WORD_BYTES] not in known]


def unread_words(instruction: str, known: Sequence[str]) -> list[str]:
    """Words of the instruction that a policy of this vocabulary does not know, in their order; none for an
    empty one. Raises ConfigError if it knows none of them.
    """
    unknown = unknown_words(instruction, known) if known else []
    if unknown and len(unknown) == len(set(words_in(instruction))):
        shown = ", ".join(known[:SHOWN]) + (", ..." if len(known) > SHOWN else "")
        raise ConfigError(
            f"The policy knows no word of the instruction '{instruction}' and cannot tell it from others. "
            f"Use words of its training instructions: {shown}"
        )
    return unknown


def unread_sentence(who: str | Path, words: Sequence[str]) -> str:
    """Sentence on words that a policy does not know; empty for none."""
    if not words:
        return ""
    some = ", ".join(words)
    return f"{who} does not know these words of the instruction and reads them all alike: {some}."


def vocabulary_in(config: Mapping[str, Any]) -> list[str]:
    """Known words of the vision-language-action policy in a configuration, which may be that of a base; empty
    without one, and for one that reads bytes or has the tokenizer of a pretrained model.
    """
    vla = config.get("vla")
    if isinstance(vla, Mapping):
        words = vla.get("tokens") == "words" and vla.get("backbone", "tiny") == "tiny"
        return list(config["vocabulary"]) if words else []
    parts = (part for part in config.values() if isinstance(part, Mapping))
    return next((found for part in parts if (found := vocabulary_in(part))), [])


def vocabulary_at(folder: Path) -> list[str]:
    """Known words of the policy or bundle in a folder, as `vocabulary_in`; empty where its files are not
    here.
    """
    path = folder / POLICY_FILE
    return vocabulary_in(read_json(path)["config"]) if path.is_file() else []
