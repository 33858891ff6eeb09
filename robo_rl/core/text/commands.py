"""Commands of robo-rl in printed hints: they can be pasted into a shell."""

from __future__ import annotations

import shlex


def command(verb: str, **settings: object) -> str:
    """`robo-rl <verb> key=value ...`, quoted for a shell where a value needs it.

    A setting that is None is left out, and a list becomes [a,b]. A value <in angle brackets> is for the
    reader to replace, and is not quoted.
    """
    words = [_word(key, value) for key, value in settings.items() if value is not None]
    return " ".join(["robo-rl", verb, *words])


def _word(key: str, value: object) -> str:
    text = f"[{','.join(map(str, value))}]" if isinstance(value, list) else str(value)
    word = f"{key}={str(value).lower() if isinstance(value, bool) else text}"
    return word if text.startswith("<") and text.endswith(">") else shlex.quote(word)
