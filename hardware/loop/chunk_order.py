"""Order of chunks and the action at which each begins, from the stamps of the states behind them."""

from __future__ import annotations

import math

from hardware.loop.player import Counter

AHEAD_S = 1.0  # a chunk is of a state that was received, or of one that is still under way
ODD = 3  # refused chunks in a row, after which it is no delay


class ChunkOrder:
    """Accepts chunks of ever later states of this episode.

    fault: why chunks are refused, without a final full stop; empty while one late chunk may explain it.
    """

    def __init__(self) -> None:
        self.fault = ""
        self._counter, self._odd = Counter(), 0
        self._newest_s = self._chunk_s = -math.inf  # stamps of the newest state and chunk

    def reset(self) -> None:
        """Begin an episode: chunks of states before its first one are refused."""
        self._counter.reset()
        self._newest_s = self._chunk_s = -math.inf

    def see(self, stamp_s: float, played: int) -> None:
        """Take a state. played: number of actions played by then.

        A clock that was set back, such as a simulator's, begins anew: chunks of before are ahead of it.
        """
        if stamp_s < self._newest_s - AHEAD_S:
            self.reset()
        self._newest_s = stamp_s
        self._counter.see(stamp_s, played)

    def start(self, stamp_s: float) -> int | None:
        """Number of the action at which a chunk begins; None for one that is refused, see `fault`."""
        start = self._counter.find(stamp_s)
        wrong = self._wrong(stamp_s, start)
        self._odd = self._odd + 1 if wrong else 0
        self.fault = wrong if self._odd >= ODD else ""
        if wrong:
            return None
        self._chunk_s = stamp_s
        return start

    def _wrong(self, stamp_s: float, start: int | None) -> str:
        give = "give it the stamp of the joint_states that the policy observed"
        if start is None and self._newest_s > -math.inf:
            return f"its stamp is earlier than that of every state since the reset: {give}"
        if start is None:
            return "no joint_states have come since the reset"
        if stamp_s > self._newest_s + AHEAD_S:
            return (
                f"its stamp is {stamp_s - self._newest_s:.3g} s later than that of the newest state: {give}"
            )
        if stamp_s <= self._chunk_s:
            return "its stamp is not later than that of the chunk before: infer from a newer state"
        return ""
