"""Control of the arm, between the operator and a policy.

A policy that is in control acts from the start of an episode to its end. Before, and in a pause, the
operator's zero velocity holds the arm, because nobody expects motion while the scene is prepared.
"""

from __future__ import annotations

from collections.abc import Callable

from robo_rl.apps.recording.driving.drive import PageDrive
from robo_rl.apps.recording.episodes import ENDED, PAUSED, Episodes
from robo_rl.apps.recording.learning.autonomy import Autonomy
from robo_rl.apps.recording.streams import RobotStreams
from robo_rl.core.errors import DataError

LONGEST_S = 1.0  # wait for the end of the intervention on the bus, so that the first frame is the policy's


class Handover:
    """drive: None where another program drives. waits: the policy is held until the next episode starts."""

    def __init__(
        self,
        drive: PageDrive | None,
        streams: RobotStreams,
        episodes: Episodes,
        clock: Callable[[], float],
        say: Callable[[str, str], None],
    ) -> None:
        self._drive, self._streams, self._episodes = drive, streams, episodes
        self._clock, self._say = clock, say
        self.waits = self._reported_drop = False
        self._then: tuple[Callable[[], None], float] | None = None  # what follows, and until when it waits

    @property
    def by_policy(self) -> bool:
        """True while a policy is in control."""
        return self._drive is not None and not self._drive.human

    @property
    def held(self) -> bool:
        """True while the arm is held, whoever is in control."""
        return self._episodes.state in (PAUSED, ENDED) or (self.by_policy and self.waits)

    def take_over(self) -> str:
        """Give control to the operator."""
        self._then, self.waits = None, False
        if self._drive is None or self._drive.human:
            return ""
        self._drive.hand(True)
        return "you are in control"

    def abandon(self) -> str:
        """Stop a policy that no operator watches."""
        return "no operator's page is open: the policy is stopped" if self.take_over() else ""

    def let_run(self, autonomy: Autonomy) -> str:
        """Give control to the policy, which begins where the arm is. Raises DataError without one."""
        if self._drive is None:
            raise DataError("Another program drives this arm; it hands over by teleop/intervention.")
        autonomy.begin(self._let_run, self._fail)
        return ""

    def begin_then(self, autonomy: Autonomy | None, then: Callable[[], None]) -> None:
        """Call `then`, which starts or resumes an episode; a policy in control begins anew before.

        Raises DataError if the policy is not ready.
        """
        if not self.by_policy or autonomy is None:
            then()
            return
        self.waits = True

        def go() -> None:
            self.waits, self._then = False, (then, self._clock() + LONGEST_S)

        autonomy.begin(go, self._fail)

    def tick(self, armed: bool) -> None:
        """Send the operator's velocity, or nothing while the policy acts."""
        if self._drive is not None:
            if self._drive.was_ended():
                self._say("Another program ended your control of the arm. Take over again to drive.", "error")
            self._drive.tick(armed, self.held and self._then is None, self._streams.sent_rad(self._clock()))
        self._tell_drops()
        if self._then is not None and (not self._streams.intervention or self._clock() > self._then[1]):
            then, self._then = self._then[0], None
            then()

    def _tell_drops(self) -> None:
        """Say once why the arm does not follow a policy in control."""
        drops = self._streams.filter.drops if self.by_policy and not self.held else ""
        if drops and not self._reported_drop:
            self._say(
                f"The safety filter drops the policy's commands, and the arm stays: {drops}. A policy that "
                "was trained briefly, or is far from its demonstrations, asks for such jumps: train it "
                "longer, or bring the arm to where demonstrations start.",
                "error",
            )
        self._reported_drop = bool(drops) or (self._reported_drop and self.by_policy)

    def _let_run(self) -> None:
        if self._drive is not None:
            self.waits = False
            self._drive.hand(False)
            self._say("the policy is in control; take over at any time", "info")

    def _fail(self, why: str) -> None:
        self._say(why, "error")
