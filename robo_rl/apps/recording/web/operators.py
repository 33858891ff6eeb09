"""Controls among several open pages: one operator has them, the others watch and may ask for them."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable

GRACE_S = 5.0  # time in which the operator's page may come back, as after a reload


class Operators:
    """Pages by the name that each chose for itself. Not thread-safe: used by the server's thread."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._pages = clock, Counter[str]()
        self.driver: str | None = None
        self.asker: str | None = None  # who asks for the controls
        self._left_s = 0.0

    def join(self, page: str) -> None:
        """A page connects; the first one gets the controls."""
        self._pages[page] += 1
        if self.vacant:
            self.driver, self.asker = page, None

    def leave(self, page: str) -> bool:
        """A page disconnects. Returns True if it had the controls."""
        self._pages[page] -= 1
        if self._pages[page] > 0:
            return False
        del self._pages[page]
        if self.asker == page:
            self.asker = None
        if self.driver != page:
            return False
        self._left_s = self._clock()
        if self.asker is not None:
            self.driver, self.asker = self.asker, None
        return True

    def drives(self, page: str) -> bool:
        """True if this page has the controls."""
        return self.driver == page

    def ask(self, page: str) -> None:
        """Ask for the controls; they are given at once while nobody has them."""
        if self.vacant:
            self.driver, self.asker = page, None
        elif page != self.driver:
            self.asker = page

    def hand_over(self, page: str) -> bool:
        """The operator gives the controls to who asked. Returns True if they changed hands."""
        if page != self.driver or self.asker is None:
            return False
        self.driver, self.asker = self.asker, None
        return True

    def keep(self, page: str) -> None:
        """The operator keeps the controls."""
        if page == self.driver:
            self.asker = None

    def view(self, page: str) -> dict[str, object]:
        """What a page shows about this. The only open page gets controls that nobody has."""
        if len(self._pages) == 1 and page in self._pages and self.vacant:
            self.driver = page
        return {
            "role": "driver" if self.drives(page) else "watcher",
            "watchers": max(0, len(self._pages) - (self.driver in self._pages)),
            "asked": self.asker is not None and self.drives(page),
            "asking": self.asker == page,
            "vacant": self.vacant,
        }

    @property
    def vacant(self) -> bool:
        """True while nobody has the controls, and the last operator did not come back in time."""
        if self.driver is None:
            return True
        return self.driver not in self._pages and self._clock() - self._left_s > GRACE_S
