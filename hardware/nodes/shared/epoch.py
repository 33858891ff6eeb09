"""First epoch of a sender, so that its receivers accept it after a restart."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from hardware.bus.protocol import Bus


@runtime_checkable
class SimulatedTimeBus(Protocol):
    """Bus whose stamps may be the time of a simulator, which starts again at zero."""

    def unix_s(self) -> float:
        """Unix time [s], whatever the stamps are."""
        ...


def first_epoch(bus: Bus) -> int:
    """Time in milliseconds: later than every epoch of an earlier sender in the same place."""
    return int(1e3 * (bus.unix_s() if isinstance(bus, SimulatedTimeBus) else bus.stamp()))
