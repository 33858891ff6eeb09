"""A swarm that is saved and goes on in another, in whatever engine."""

from __future__ import annotations

from pathlib import Path

from torch import Tensor

from robo_rl.core.files.state_io import load_state, save_state
from sim.flight.swarm.swarm import Swarm


def check_goes_on(one: Swarm, two: Swarm, given: Tensor, saved_after: int, folder: Path) -> None:
    """`two` takes over what `one` has saved: from then on the same costs and observations, to the bit.

    given: (steps, 4, n) actions.
    """
    for action in given[:saved_after]:
        one.step(action)
    save_state(folder, one.state_dict())
    two.load_state_dict(load_state(folder))
    for action in given[saved_after:]:
        first, second = one.step(action)[0], two.step(action)[0]
        assert first.equal(second)
    assert one.obs.equal(two.obs)
