"""Columns of an observation for actor and critic.

Asymmetric actor-critic (Pinto et al. 2018): the critic is used in training only, so it may see values that no
sensor measures (the true state, the disturbance). The actor sees what the robot measures.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Views:
    """Columns of an observation (b, f)."""

    actor: slice
    critic: slice

    def actor_width(self, width: int) -> int:
        return len(range(*self.actor.indices(width)))

    def critic_width(self, width: int) -> int:
        return len(range(*self.critic.indices(width)))


ALL = Views(slice(None), slice(None))
