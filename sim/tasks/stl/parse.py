"""Parser of formulas: `F[0,6] home & G[0,12] !rocks`.

name          letters, digits and _
a & b, a | b  and, or; !a: not; (a): grouping
F[s,e] a      eventually: a at some time between s and e seconds from now
G[s,e] a      always: a at all times between s and e seconds from now
a U[s,e] b    until: b at some time between s and e seconds from now, and a up to that time
"""

from __future__ import annotations

import re

from robo_rl.core.errors import ConfigError
from sim.tasks.stl.formula import Atom, Formula, Junction, Timed, Until

_TOKEN = re.compile(r"\s*([FGU])\s*\[\s*([\d.]+)\s*,\s*([\d.]+)\s*\]|\s*([A-Za-z_]\w*)|\s*([&|!()])")
Token = tuple[str, float, float]


def parse(text: str) -> Formula:
    """The formula of a text. Raises ConfigError with the part that cannot be read."""
    tokens = _tokens(text)
    formula, rest = _either(tokens, text)
    if rest:
        raise _error(text, f"unexpected '{rest[0][0]}'")
    return formula


def _tokens(text: str) -> list[Token]:
    found: list[Token] = []
    at = 0
    while at < len(text.rstrip()):
        match = _TOKEN.match(text, at)
        if match is None:
            raise _error(text, f"'{text[at:].strip()[:12]}' is not part of a formula")
        timed, start, end, name, sign = match.groups()
        if timed and not float(start) < float(end):
            raise _error(text, f"{match.group().strip()} needs a start before its end")
        found.append((timed, float(start), float(end)) if timed else (name or sign, 0.0, 0.0))
        at = match.end()
    return found


def _either(tokens: list[Token], text: str) -> tuple[Formula, list[Token]]:
    return _chain(tokens, text, "|")


def _chain(tokens: list[Token], text: str, sign: str) -> tuple[Formula, list[Token]]:
    below = _until if sign == "&" else lambda rest, text: _chain(rest, text, "&")
    first, rest = below(tokens, text)
    parts = [first]
    while rest and rest[0][0] == sign:
        part, rest = below(rest[1:], text)
        parts.append(part)
    return (first if len(parts) == 1 else Junction(tuple(parts), sign == "&")), rest


def _until(tokens: list[Token], text: str) -> tuple[Formula, list[Token]]:
    left, rest = _unary(tokens, text)
    if rest and rest[0][0] == "U":
        _, start_s, end_s = rest[0]
        right, rest = _unary(rest[1:], text)
        return Until(start_s, end_s, left, right), rest
    return left, rest


def _unary(tokens: list[Token], text: str) -> tuple[Formula, list[Token]]:
    if not tokens:
        raise _error(text, "it ends where a statement is expected")
    (head, start_s, end_s), rest = tokens[0], tokens[1:]
    if head in ("F", "G") and end_s > 0.0:
        part, rest = _unary(rest, text)
        return Timed(start_s, end_s, part, head == "G"), rest
    if head == "!":
        part, rest = _unary(rest, text)
        return part.negated(), rest
    if head == "(":
        inner, rest = _either(rest, text)
        if not rest or rest[0][0] != ")":
            raise _error(text, "a '(' is not closed")
        return inner, rest[1:]
    if head in ("&", "|", ")", "U"):
        raise _error(text, f"found '{head}' where a statement is expected")
    return Atom(head), rest


def _error(text: str, what: str) -> ConfigError:
    return ConfigError(f"The formula '{text}' cannot be read: {what}. Example: F[0,6] home & G[0,12] !rocks")
