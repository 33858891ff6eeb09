"""What actor and critics see of one observation.

Asymmetric actor-critic (Pinto et al. 2018): the critic is thrown away after training, so it may see what no
sensor tells - the true state, the disturbance - while the actor keeps to what it will have on the robot.
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
