"""The view of robot and episode that pages show, as JSON."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

from numpy import ndarray

from robo_rl.apps.recording.driving.drive import PageDrive
from robo_rl.apps.recording.episodes import Episodes, UnreachableError
from robo_rl.apps.recording.shared_state import Notices
from robo_rl.apps.recording.streams import RobotStreams, Stream
from robo_rl.core.shapes import Float
from robo_rl.data.episodes.disk import free_bytes


class DiskView:
    """Free space on the disk of the dataset `out`. tell: called with (sentence, level)."""

    def __init__(self, out: Path, tell: Callable[[str, str], None]) -> None:
        self._out, self._tell, self._reached = out, tell, True

    def free_gb(self) -> float | None:
        """None while the folder cannot be reached, which is told when it begins."""
        try:
            free = free_bytes(self._out)
        except OSError as error:
            if self._reached:
                self._tell(str(UnreachableError(self._out, error)), "error")
            self._reached = False
            return None
        self._reached = True
        return round(free / 1e9, 2)


def stream_view(stream: Stream, now_s: float) -> dict[str, Any]:
    """Age, rate and state of one stream."""
    state = "frozen" if stream.frozen else "missing" if not stream.count else "ok"
    if state == "ok" and stream.late(now_s):
        state = "late"
    return {"age_ms": _ms(stream.age_s(now_s)), "hz": round(stream.rate_hz, 1), "state": state}


def robot_view(streams: RobotStreams, now_s: float) -> dict[str, Any]:
    """Joints, streams, and the phase of the safety filter."""
    heard = streams.filter_heard(now_s)
    return {
        "measured": _numbers(streams.measured_rad),
        "velocity": _numbers(streams.velocity_rad_s),
        "commanded": _numbers(streams.commanded_rad),
        "states": stream_view(streams.states, now_s),
        "commands": stream_view(streams.commands, now_s),
        "cameras": {name: stream_view(stream, now_s) for name, stream in streams.cameras.items()},
        "filter": {
            "phase": streams.filter.phase if heard else "unknown",
            "reason": streams.filter.sentence if heard else "the safety filter is not heard",
            "drops": streams.filter.drops,
        },
    }


def episode_view(episodes: Episodes, rate_hz: float) -> dict[str, Any]:
    """State of the running episode, and counts of the dataset."""
    tally = episodes.tally
    return {
        "state": episodes.state,
        "frames": episodes.frames,
        "seconds": round(episodes.frames / rate_hz, 2),
        "marks": episodes.marks,
        "instruction": episodes.instruction,
        "count": tally.episodes,
        "version": episodes.version,
        "successes": tally.successes,
        "failures": tally.failures,
        "interrupted": tally.interrupted,
    }


def drive_view(drive: PageDrive) -> dict[str, Any]:
    """Who controls the arm, and how. `hand` says how the arm follows a tracked hand; None if it cannot."""
    hand = None
    if drive.tracked is not None:
        feedback = drive.tracked.feedback
        hand = {
            "driving": feedback.driving,
            "slowed": round(feedback.slowed, 2),
            "scale": drive.tracked.scale,
            "yaw_rad": drive.tracked.yaw_rad,
        }
    return {
        "hand": hand,
        "control": "human" if drive.human else "policy",
        "tool": drive.tool,
        "mode": drive.mode,
        "moving": drive.moving,
        "speed": drive.speed,
    }


def notices_view(notices: Notices) -> list[dict[str, Any]]:
    """Newest sentences."""
    return [
        {"number": n.number, "level": n.level, "text": n.text, "at_s": round(n.at_s, 1)}
        for n in notices.newest()
    ]


def _numbers(values: Float[ndarray, " v"] | None) -> list[float] | None:
    return None if values is None else [round(float(value), 4) for value in values]


def _ms(age_s: float) -> float | None:
    return round(1e3 * age_s, 1) if math.isfinite(age_s) else None
