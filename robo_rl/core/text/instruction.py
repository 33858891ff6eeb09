"""Instructions to a policy as an observation: UTF-8 bytes, padded with zeros to a fixed size.

An array of fixed size passes through stores, windows, vector environments and replay like any other.
"""

from __future__ import annotations

import unicodedata
from dataclasses import replace

import numpy as np

from robo_rl.core.errors import ConfigError
from robo_rl.core.shapes import UInt8
from robo_rl.core.spec import ArraySpec, EnvSpec, sense_of

INSTRUCTION = "instruction"  # key of the observation
TASK_NOTE = "env_task"  # in the note of an episode: its task, in an environment of several
MOST_BYTES = 128
INSTRUCTION_SPEC = ArraySpec((MOST_BYTES,), "uint8", "UTF-8 bytes, padded with zeros")


def to_bytes(text: str, *, stored: bool = False) -> UInt8[np.ndarray, " 128"]:
    """Array of an instruction. Raises ConfigError for one that is empty, too long, without a letter or digit,
    or holds control characters. stored: one of older data or of a bundle, which may have no letter.
    """
    text = text.strip()
    if not text:
        raise ConfigError("The instruction is empty. Say what to do, such as instruction='open the drawer'.")
    if control := [character for character in text if unicodedata.category(character)[0] == "C"]:
        raise ConfigError(
            f"The instruction holds the control character {control[0]!r}; only printable text was expected, "
            "on one line. Remove it."
        )
    if not stored and not any(character.isalnum() for character in text):  # of any script
        raise ConfigError(
            f"The instruction '{text}' has no letter and no digit, so no policy can read a word in it. Say "
            "what to do, such as instruction='open the drawer'."
        )
    if (length := len(text.encode())) > MOST_BYTES:
        raise ConfigError(
            f"The instruction has {length} bytes, at most {MOST_BYTES} were expected: '{text[:40]}...'. "
            "Say it in fewer words."
        )
    return padded(text)


def padded(text: str) -> UInt8[np.ndarray, " 128"]:
    """Array of a text of at most 128 bytes that need not be an instruction, such as one of older data."""
    return np.frombuffer(text.encode().ljust(MOST_BYTES, b"\0"), np.uint8)


def with_instruction(env: EnvSpec) -> EnvSpec:
    """The contract with an instruction among its observations."""
    return env if INSTRUCTION in env.obs else replace(env, obs={**env.obs, INSTRUCTION: INSTRUCTION_SPEC})


def suits_vla(env: EnvSpec) -> bool:
    """True for what a vision-language-action policy reads: pictures, an instruction and states, no more."""
    senses = {sense_of(key, array) for key, array in env.for_policies().obs.items()}
    return INSTRUCTION in env.obs and senses == {"image", "text", "state"}


def to_text(data: UInt8[np.ndarray, " 128"]) -> str:
    """Instruction of an array; bytes that are no UTF-8 become the replacement character."""
    return bytes(np.asarray(data, np.uint8)).rstrip(b"\0").decode(errors="replace")
