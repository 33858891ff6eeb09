"""Limits of settings are written with the field and checked for configs built in Python."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import pytest

from robo_rl.core.errors import ConfigError
from robo_rl.core.settings import check_settings, one_of, setting


@dataclass
class Inner:
    kind: str = one_of("a", "b")
    rank: int | None = setting(None, at_least=1)


@dataclass
class Outer:
    steps: int = setting(10, at_least=1)
    share: float = setting(0.5, at_least=0.0, at_most=1.0)
    beta: float = setting(0.9, above=0.0, below=1.0)
    widths: list[int] = setting([8, 8], at_least=1)
    inner: Inner = field(default_factory=Inner)


def test_defaults_and_values_at_the_limit_pass() -> None:
    """The first choice is the default; None is no number and is not checked."""
    check_settings(Outer())
    check_settings(Outer(1, 1.0, 0.5, [1], Inner("b", 1)))


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (Outer(0), "steps=0 cannot be used, expected: a whole number >= 1"),
        (Outer(float("inf")), "steps=inf"),  # type: ignore[arg-type]
        (Outer(float("nan")), "steps=nan"),  # type: ignore[arg-type]
        (Outer(share=1.01), "share=1.01 cannot be used, expected: a number from 0 to 1"),
        (Outer(beta=1.0), "beta=1.0 cannot be used, expected: a number > 0 and < 1"),
        (Outer(widths=[8, 0]), r"widths=\[8, 0\] cannot be used, expected: a whole number >= 1"),
        (Outer(inner=Inner("c")), r"inner\.kind=c cannot be used, expected: a \| b"),
        (Outer(inner=Inner(rank=0)), r"inner\.rank=0"),
    ],
)
def test_error_names_key_and_expected_value(config: Outer, words: str) -> None:
    """Nested keys by their dotted name; NaN is below every limit."""
    with pytest.raises(ConfigError, match=words):
        check_settings(config)


def test_a_list_is_copied_for_every_instance() -> None:
    """Changing the list of one instance does not change the default."""
    first = Outer()
    first.widths.append(3)
    assert Outer().widths == [8, 8]


def test_infinity_passes_only_without_limits() -> None:
    """`clip=inf` means no clipping; NaN is a mistake everywhere."""

    @dataclass
    class Clip:
        clip: float = setting(1.0)

    check_settings(Clip(math.inf))
    with pytest.raises(ConfigError, match="clip=nan cannot be used, expected: a number, and finite"):
        check_settings(Clip(math.nan))
