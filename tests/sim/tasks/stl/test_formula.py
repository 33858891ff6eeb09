"""Signal temporal logic: margins by hand, sound smoothing, formulas as text."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from robo_rl.core.errors import ConfigError
from sim.tasks.stl.formula import Formula, Grid, atoms
from sim.tasks.stl.parse import parse

A = torch.tensor([-1.0, 0.5, 2.0, -3.0, 1.0])
B = torch.tensor([4.0, 3.0, 2.0, 1.0, 0.0])


def exact(text: str, a: Tensor = A, b: Tensor = B) -> list[float]:
    """Margins at all times, one second apart, of one flight."""
    return parse(text).margin({"a": a[:, None], "b": b[:, None]}, Grid(1.0))[:, 0].tolist()


def test_margins_by_hand() -> None:
    """a = -1, 0.5, 2, -3, 1 and b = 4, 3, 2, 1, 0, a second apart."""
    assert exact("a") == [-1.0, 0.5, 2.0, -3.0, 1.0]
    assert exact("!a & b") == [1.0, -0.5, -2.0, 1.0, -1.0]
    assert exact("a | b") == [4.0, 3.0, 2.0, 1.0, 1.0]
    assert exact("F[0,2] a") == [2.0, 2.0, 2.0]
    assert exact("G[1,2] a") == [0.5, -3.0, -3.0]
    assert exact("!F[0,2] a") == exact("G[0,2] !a") == [-2.0, -2.0, -2.0]
    assert exact("G[0,1] F[0,2] a") == [2.0, 2.0]


def test_until_by_hand() -> None:
    """b until a, within 0 ... 2 s: the best of min(-1, 4), min(0.5, 3) and min(2, 2) is 2 at time 0; at 2 s a
    is 2 at once. Between 1 and 3 s a's best is 2 as well, and b lasts 2 until then.
    """
    assert exact("b U[0,2] a") == [2.0, 2.0, 2.0]
    assert exact("b U[1,3] a") == [2.0, 2.0]
    assert exact("b U[3,4] a") == [0.0]  # at 4 s a = 1, but b has fallen to 0


@st.composite
def formulas(draw: st.DrawFn, depth: int = 3) -> str:
    """Random formulas over a and b; no until inside a negation."""
    kind = draw(st.sampled_from(["name", "and", "or", "F", "G", "U"] if depth else ["name"]))
    if kind == "name":
        return draw(st.sampled_from(["a", "b", "!a", "!b"]))
    start = draw(st.integers(0, 2))
    window = f"[{start},{start + draw(st.integers(1, 2))}]"
    first, second = draw(formulas(depth - 1)), draw(formulas(depth - 1))
    if kind in "FG":
        return f"{kind}{window} ({first})"
    sign = {"and": "&", "or": "|", "U": f"U{window}"}[kind]
    return f"(({first}) {sign} ({second}))"


@settings(max_examples=150, deadline=None)
@given(formulas(), st.integers(0, 10_000), st.sampled_from([2.0, 20.0]))
def test_smooth_margins_never_promise_too_much(text: str, seed: int, sharpness: float) -> None:
    """The smooth margin is below the exact one, and close if sharp: a positive one proves the formula."""
    formula = parse(text)
    signals = torch.randn(2, round(formula.horizon_s) + 3, 4, generator=torch.Generator().manual_seed(seed))
    margins = dict(zip("ab", signals, strict=True))
    true = formula.margin(margins, Grid(1.0))
    smooth = formula.margin(margins, Grid(1.0, sharpness))
    assert smooth.shape == true.shape
    assert (smooth <= true + 1e-4).all()
    sharp = formula.margin(margins, Grid(1.0, 1000.0))
    torch.testing.assert_close(sharp, true, atol=0.02, rtol=0.0)


@pytest.mark.parametrize("dt_s", [0.01, 0.1])
@pytest.mark.parametrize(
    "text", ["F[0,1.75] F[0,1.75] a", "F[0,0.25] F[0,0.25] a", "b U[0.15,1.75] G[0.35,1.75] a", "F[0,0.04] a"]
)
def test_horizon_counts_the_samples_that_are_read(text: str, dt_s: float) -> None:
    """1.75 s is 18 steps of 0.1 s (17.5, to the even number): twice as much is 36, not the 35 of 3.5 s."""
    formula, grid = parse(text), Grid(dt_s)
    for sharpness in (None, 20.0):
        signals = torch.zeros(formula.horizon_steps(grid) + 1, 2)
        margin = formula.margin({"a": signals, "b": signals}, Grid(dt_s, sharpness))
        assert margin.shape == (1, 2)
    assert parse("F[0,1.75] F[0,1.75] a").horizon_steps(Grid(0.1)) == 36


@settings(max_examples=50, deadline=None)
@given(formulas())
def test_text_of_a_formula_is_the_formula(text: str) -> None:
    """Printing and parsing changes nothing."""
    formula: Formula = parse(text)
    assert parse(str(formula)) == formula


def test_precedence_and_names() -> None:
    """'|' binds weakest, then '&', then until; a negation and F, G bind what follows at once."""
    assert parse("a | b & c") == parse("a | (b & c)")
    assert parse("F[0,1] a & b") == parse("(F[0,1] a) & b")
    assert parse("a U[0,1] b & c") == parse("(a U[0,1] b) & c")
    assert parse("!F[0,1] (a & b)") == parse("G[0,1] (!a | !b)")
    assert atoms(parse("F[0,1] G & (x_1 U[0,2] !y)")) == {"G", "x_1", "y"}
    assert parse("F[0,5] (a & F[0,2] b)").horizon_s == 7.0


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("F[0,6] ", "ends where a statement is expected"),
        ("(a & b", r"'\(' is not closed"),
        ("a b", "unexpected 'b'"),
        ("F[3,1] a", "a start before its end"),
        ("a & ?", "is not part of a formula"),
        ("& a", "found '&' where"),
        ("!(a U[0,1] b)", "negation of .* is not supported"),
    ],
)
def test_invalid_formulas_are_refused(text: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        parse(text)
