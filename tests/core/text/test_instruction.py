"""Instructions as arrays of bytes: the same text comes back, and what is no instruction is refused."""

from __future__ import annotations

import numpy as np
import pytest

from robo_rl.core.errors import ConfigError
from robo_rl.core.spec import sense_of
from robo_rl.core.text.instruction import INSTRUCTION, INSTRUCTION_SPEC, MOST_BYTES, to_bytes, to_text


@pytest.mark.parametrize(
    "text", ["open the drawer", "öffne die Schublade", "把抽屉打开", "दराज खोलो", "3", "x" * MOST_BYTES]
)
def test_text_survives_as_bytes(text: str) -> None:
    """Padded to a fixed size, and the same text again."""
    data = to_bytes(f"  {text} ")
    assert (data.shape, data.dtype) == (INSTRUCTION_SPEC.shape, np.uint8)
    assert to_text(data) == text


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "empty"),
        ("   ", "empty"),
        ("!!!", "no letter and no digit"),
        (" ... \u2014 ", "no letter and no digit"),
        ("x" * 10_000, "10000 bytes"),
        ("é" * MOST_BYTES, "256 bytes"),
        ("open\x00drawer", "control"),
        ("open\ndrawer", "control"),
        ("open \x1b[31mdrawer", "control"),
        ("open \u202edrawer", "control"),
    ],
)
def test_what_is_no_instruction_is_refused_with_the_reason(text: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        to_bytes(text)


def test_an_instruction_is_text_and_no_picture() -> None:
    """It is uint8 like a picture, and must not reach an image encoder."""
    assert sense_of(INSTRUCTION, INSTRUCTION_SPEC) == "text"
