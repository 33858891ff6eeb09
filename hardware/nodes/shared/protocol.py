"""What whoever runs a node needs of it."""

from __future__ import annotations

from typing import Protocol, runtime_checkable


@runtime_checkable
class Node(Protocol):
    """One node: it wires topics to pure code when it is made, and lives as long as its bus spins."""

    def stop(self, why: str) -> str:
        """Begin to come to rest, because of `why`. Returns the sentence for the terminal."""
        ...

    @property
    def at_rest(self) -> bool:
        """Has what `stop` began been done?"""
        ...

    def last_word(self) -> None:
        """Publish what must be said before the node is gone, with no time for more. May be called twice."""
        ...
