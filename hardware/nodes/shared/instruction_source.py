"""The instruction of a policy node: of the topic `task`, else the bundle's own."""

from __future__ import annotations

from collections.abc import Callable

from hardware.bus.protocol import Bus
from hardware.loop.observation import words_seen
from hardware.messages import Text
from hardware.nodes.shared.fault_log import FaultLog
from hardware.topics import TASK
from policies.deploy.bundle import Bundle
from policies.vocabulary import unread_sentence, unread_words, vocabulary_at
from robo_rl.core.errors import ConfigError, DataError


class InstructionSource:
    """The newest instruction, and the words of it that the policy does not know, as its bundle says.

    reads: the policy reads an instruction. changed: called with each new instruction.
    """

    def __init__(
        self, bus: Bus, bundle: Bundle, reads: bool, say: Callable[[str], None], changed: Callable[[], None]
    ) -> None:
        self._bus, self._reads, self._changed = bus, reads, changed
        self._known = vocabulary_at(bundle.folder) if reads else []
        self._log = FaultLog(bus.name, say)
        self._take(bundle.instruction or "", "bundle's instruction")
        if reads:
            TASK.subscribe(bus, self._on_task)

    @property
    def waits_for(self) -> str:
        """What the policy waits for; empty with an instruction, and where it reads none."""
        lacks = self._reads and not self._words
        return "waits for the topic 'task': no instruction has been published" if lacks else ""

    def followed(self) -> str:
        """The instruction. Raises DataError if it is none, or if the policy knows no word of it."""
        if self._fault:
            raise DataError(self._fault)
        return self._words

    def remark(self) -> str:
        """Sentence on words that the policy does not know, printed when it first holds; empty without any.

        Call it as often as the node reports.
        """
        if self._unread:
            self._log.begin(self._unread, self._bus.now())
        else:
            self._log.end(self._bus.now())
        return self._unread

    def _on_task(self, message: Text, received_s: float) -> None:
        if message.text != self._words:
            self._take(message.text, "topic 'task'")
            self._changed()

    def _take(self, words: str, source: str) -> None:
        self._words, self._fault, self._unread = words, "", ""
        if not (self._reads and words):
            return
        try:
            words_seen(words)
            self._unread = unread_sentence("the policy", unread_words(words, self._known)).rstrip(".")
        except DataError as error:
            self._fault = str(error)
        except ConfigError as error:
            self._fault = f"The {source} cannot be followed: {error}"
