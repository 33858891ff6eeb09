"""Formatting of numbers in the terminal and in the report."""

from __future__ import annotations

from robo_rl.eval.stats import SuccessRate

NONE = "–"


def seconds(value_s: float) -> str:
    """Duration as 0.4 s, 48 s, 3 min 12 s, 1 h 05 min; a dash for 0."""
    if value_s <= 0:
        return NONE
    if value_s < 10:
        return f"{value_s:.1f} s"
    whole = round(value_s)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def milliseconds(value_ms: float) -> str:
    """Three significant digits without exponents: 0.081, 2.05, 31.4, 412."""
    if value_ms <= 0:
        return NONE
    digits = 3 if value_ms < 1 else 2 if value_ms < 10 else 1 if value_ms < 100 else 0
    return f"{value_ms:.{digits}f}"


def p_value(p: float | None) -> str:
    if p is None:
        return NONE
    return "< 0.001" if p < 1e-3 else f"{p:.3f}" if p < 0.1 else f"{p:.2f}"


def p_equals(p: float | None) -> str:
    """`p = 0.03`, or `p < 0.001`."""
    shown = p_value(p)
    return f"p {shown}" if shown.startswith("<") else f"p = {shown}"


def count(value: int) -> str:
    """Integer with thin spaces between thousands (SI style), at which no line breaks."""
    return f"{value:,}".replace(",", "\u202f") if value else NONE


def percent(rate: SuccessRate) -> str:
    return f"{100 * rate.rate:.{0 if rate.n <= 100 else 1}f} %"


def interval(rate: SuccessRate) -> str:
    low, high = rate.wilson()
    return f"{100 * low:.0f}–{100 * high:.0f}"
