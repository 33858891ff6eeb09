"""Interface of a node for the program that runs it."""

from __future__ import annotations

from typing import Protocol, runtime_checkable


@runtime_checkable
class Node(Protocol):
    """One node: it connects topics to pure code when it is made, and lives as long as its bus spins."""

    def stop(self, why: str) -> str:
        """Begin to come to rest, because of `why`. Returns the sentence for the terminal."""
        ...

    @property
    def at_rest(self) -> bool:
        """True once what `stop` began is done."""
        ...

    def finish(self) -> None:
        """Publish the last message before the node is gone, without waiting. May be called twice."""
        ...
