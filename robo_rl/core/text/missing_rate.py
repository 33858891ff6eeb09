"""Notice that an environment gives no control rate, for verbs that use it."""

from __future__ import annotations

_GYMNASIUM = ("gym/", "gymrobotics/")
_WITHOUT = 1.0  # [Hz] of an environment that gives none


def missing_rate(name: str, control_hz: float) -> str:
    """Sentence for a Gymnasium environment that seems to give no rate, else empty."""
    if not name.startswith(_GYMNASIUM) or control_hz != _WITHOUT:
        return ""
    return (
        f'{name} runs at 1 Hz, the rate of an environment without metadata["render_fps"]. If this is not its '
        'control rate, set metadata["render_fps"] in its class.'
    )
