"""Settings say their limits where they are written, and configs built in Python are held to them."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from robo_rl.core.errors import ConfigError
from robo_rl.core.settings import at_least, check_settings, fraction, one_of


@dataclass
class Inner:
    kind: str = one_of("a", "b")
    rank: int | None = at_least(1, None)


@dataclass
class Outer:
    steps: int = at_least(1, 10)
    share: float = fraction(0.5)
    inner: Inner = field(default_factory=Inner)


def test_defaults_and_values_at_the_limit_pass() -> None:
    """The first choice is the default; None is no number and is left alone."""
    check_settings(Outer())
    check_settings(Outer(1, 1.0, Inner("b", 1)))


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (Outer(0), "steps=0 cannot be used, expected: a finite number >= 1"),
        (Outer(float("inf")), "steps=inf"),  # type: ignore[arg-type]
        (Outer(float("nan")), "steps=nan"),  # type: ignore[arg-type]
        (Outer(share=1.01), "share=1.01 cannot be used, expected: a finite number from 0 to 1"),
        (Outer(inner=Inner("c")), r"inner\.kind=c cannot be used, expected: a \| b"),
        (Outer(inner=Inner(rank=0)), r"inner\.rank=0"),
    ],
)
def test_the_message_names_the_key_and_what_was_expected(config: Outer, words: str) -> None:
    """Nested keys by their dotted name; NaN is below every limit."""
    with pytest.raises(ConfigError, match=words):
        check_settings(config)
