"""Requests for chunks of actions at the pace of a bundle, their answers, and the status of both."""

from __future__ import annotations

from numpy import ndarray

from hardware.bus.protocol import Bus
from hardware.loop.inference import Inference, Running
from hardware.loop.observation import Seen
from robo_rl.core.shapes import Float
from robo_rl.core.text.durations import Durations

POLL_S = 0.005  # period of `poll`
_HUNG_S = 2.0  # an inference that takes longer is reported as hanging


class ChunkRequests:
    """One request at a time, `execute` control periods after the one before it.

    does: word for a node that infers, in its status.
    """

    def __init__(self, bus: Bus, inference: Inference, execute: int, does: str) -> None:
        self._bus, self._inference, self._execute, self._does = bus, inference, execute, does
        self.took, self._last_s = Durations(), 0.0  # seconds of all inferences, and of the newest
        self.episode = self.inferred = 0
        self._decision = self._wait = 0
        # (time of the observed state, time of the request, episode) of the pending request
        self._pending: tuple[float, float, int] | None = None

    @property
    def ready(self) -> bool:
        """True when the inference process can answer."""
        return self._inference.ready and not self._inference.fault

    @property
    def fault(self) -> str:
        """Why inference has ended; empty while it works."""
        return self._inference.fault

    @property
    def summary(self) -> str:
        """Number of chunks that were inferred, and the time of the last."""
        last = f", the last in {1e3 * self._last_s:.1f} ms" if self.inferred else ""
        return f"{self.inferred} chunks were inferred{last}"

    @property
    def start_word(self) -> str:
        """Answer to ~/start."""
        return self._does if self._inference.ready else "starting: the policy is being loaded"

    def begin_episode(self) -> None:
        """Refuse the pending answer, and let the next period request a chunk that begins an episode."""
        self.episode, self._decision, self._wait = self.episode + 1, 0, 0

    def request_now(self) -> None:
        """Let the next period request a chunk."""
        self._wait = 0

    def tick(self) -> bool:
        """Count one control period; True when a request is due. It stays due until one is made."""
        self._wait -= 1
        return self._wait <= 0

    def request(self, stacked: Seen, state_s: float, running: Running | None = None) -> bool:
        """Request a chunk for a state of time `state_s`; False while an answer is pending."""
        if not self._inference.request(stacked, self._decision, running):
            return False
        self._pending = state_s, self._bus.now(), self.episode
        self._decision += 1
        self._wait = self._execute
        return True

    def poll(self) -> tuple[Float[ndarray, "k a"], float] | None:
        """(chunk, time of the state that it begins at), once; None without one of this episode."""
        answer = self._inference.poll()
        if self._inference.fault or answer is None or self._pending is None:
            return None
        chunk, self._last_s = answer
        self.took.add(self._last_s)
        self.inferred += 1
        (state_s, _, episode), self._pending = self._pending, None
        return (chunk, state_s) if episode == self.episode else None

    def status(self, enabled: bool, wrong: str, remark: str) -> tuple[int, str, dict[str, str]]:
        """(level, sentence, values) of a status. wrong: present fault of the node; remark: what a user should
        know of a policy that infers. Both are empty without one.
        """
        waits_s = 0.0 if self._pending is None else self._bus.now() - self._pending[1]
        hangs = f"inference has not answered for {waits_s:.0f} s" if waits_s > _HUNG_S else ""
        infers = enabled and self.ready
        does = self._does if infers else "loading the policy" if enabled else "stopped"
        wrong = wrong or (remark if infers else "")
        sentence = self.fault or hangs or wrong or does
        level = 2 if self.fault or hangs else 1 if wrong or not infers else 0
        values = {"inference_ms": f"{1e3 * self._last_s:.2f}", "chunks": str(self.inferred)}
        return level, sentence, values
