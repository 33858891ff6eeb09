"""The help fits the terminal."""

from __future__ import annotations

import pytest

from robo_rl.apps.cli.help import load_schema, overview, setting_rows, verb_help
from robo_rl.apps.cli.verbs import VERBS

EXAMPLES = {example.strip() for verb in VERBS.values() for example in verb.examples}


def too_long(text: str, width: int) -> list[str]:
    """Lines beyond the terminal, without examples, which are commands to copy."""
    return [line for line in text.splitlines() if len(line) > width and line.strip() not in EXAMPLES]


@pytest.mark.parametrize("width", [60, 80, 100, 120])
def test_no_line_is_longer_than_the_terminal(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The table of settings becomes a list where its last column would be narrow."""
    monkeypatch.setenv("COLUMNS", str(width))
    assert not too_long(overview(), width)
    for verb in ("collect", "data merge", "finetune", "record"):
        listed = verb_help(verb, everything=True)
        assert not too_long(listed, width)
        found = [line.split()[0] for line in listed.splitlines() if line[:2] == "  " != line[2:4]]
        assert {key for key, *_ in setting_rows(verb, load_schema(VERBS[verb]), ())} <= set(found)


def test_a_list_of_settings_has_types_and_values(monkeypatch: pytest.MonkeyPatch) -> None:
    """The list shows types and defaults as the table does, and the values of settings that are typed."""
    monkeypatch.setenv("COLUMNS", "80")
    assert "\n  episodes  (whole number >= 1, default 20)\n      number of" in verb_help("collect")
    assert "\n  out  (text, required)\n" in verb_help("collect")
    assert "\n  episodes  (whole number >= 1, value 7)\n" in verb_help("collect", ["episodes=7"])
    assert "\n  Setting " not in verb_help("collect")
    monkeypatch.setenv("COLUMNS", "100")
    assert "\n  Setting " in verb_help("collect")
