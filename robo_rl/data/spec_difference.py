"""Differences of two contracts, for error messages."""

from __future__ import annotations

from collections.abc import Iterator

from robo_rl.core.spec import ArraySpec, EnvSpec

MOST_DIFFERENCES = 4  # more are counted


def differences(found: EnvSpec, expected: EnvSpec) -> str:
    """Differing keys with both values, e.g. "control_hz: 80, expected 50; name: a, expected b"; empty if the
    contracts are equal.
    """
    every = [f"{key}: {one}, expected {two}" for key, one, two in _pairs(found, expected) if one != two]
    more = f"; and {len(every) - MOST_DIFFERENCES} more" if len(every) > MOST_DIFFERENCES else ""
    return "; ".join(every[:MOST_DIFFERENCES]) + more


def _pairs(found: EnvSpec, expected: EnvSpec) -> Iterator[tuple[str, str, str]]:
    """(key, found, expected) of every part of a contract."""
    yield "name", found.name, expected.name
    yield "control_hz", f"{found.control_hz:g}", f"{expected.control_hz:g}"
    yield "max_episode_steps", str(found.max_episode_steps), str(expected.max_episode_steps)
    for key in sorted(found.obs.keys() | expected.obs.keys()):
        yield f"obs.{key}", *_arrays(found.obs.get(key), expected.obs.get(key))
    one, two = found.action, expected.action
    yield "action.dim", str(one.dim), str(two.dim)
    if one.dim == two.dim:
        yield "action.low", str(list(one.low)), str(list(two.low))
        yield "action.high", str(list(one.high)), str(list(two.high))
    yield "action.unit", one.unit or "none", two.unit or "none"


def _arrays(found: ArraySpec | None, expected: ArraySpec | None) -> tuple[str, str]:
    """Types and shapes; units if these are equal."""
    one, two = _array(found), _array(expected)
    if found is not None and expected is not None and one == two:
        return f"{one} '{found.unit}'", f"{two} '{expected.unit}'"
    return one, two


def _array(spec: ArraySpec | None) -> str:
    return "none" if spec is None else f"{spec.dtype} {tuple(spec.shape)}"
