"""The failsafe table of docs/safety.md, written from the code: python -m hardware.safety.table"""

from __future__ import annotations

from hardware.safety.reasons import Effect, Reason

HEADER = "| reason | message | arm | quadcopter |\n| --- | --- | --- | --- |"
WORDS = {
    Effect.LIMITED: "limited",
    Effect.DROPPED: "dropped",
    Effect.REFUSED: "not armed",
    Effect.HOLD: "held, then stopped",
    Effect.STOP: "stopped",
    Effect.LAND: "landed",
    Effect.CUT: "motors off",
}


def failsafe_table() -> str:
    """Markdown table with one row per reason, in the order of the code."""
    rows = []
    for reason in Reason:
        rule, words = reason.value, WORDS[reason.effect]
        quad = words.replace("stopped", "landed") if reason.effect is Effect.HOLD else words
        cells = (
            f"`{reason.name.lower()}`",
            rule.sentence,
            words if rule.arm else "–",
            quad if rule.quad else "–",
        )
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join([HEADER, *rows])


if __name__ == "__main__":
    print(failsafe_table())
