"""A user's function in the place of a policy, for evaluations."""

from __future__ import annotations

from torch import Tensor

from robo_rl.core.lanes import Lanes
from robo_rl.core.protocols import LaneIds, NoiseSource, Obs
from robo_rl.core.shapes import Float
from robo_rl.core.spec import EnvSpec
from sim.adapters.own_function import Function, OwnFunction


class FunctionPolicy:
    """A chunk policy of one action per decision, see `robo_rl.core.protocols.ChunkPolicy`; `features` and
    `sample_from` are not there.
    """

    obs_steps = chunk = execute = 1

    def __init__(self, function: Function, spec: EnvSpec) -> None:
        self.function, self.spec = function, spec
        self.obs_spec, self.action_spec = spec.obs, spec.action
        self._one = OwnFunction(function, spec)

    def sample(self, obs: Obs, noise: Float[Tensor, "1 1 a"]) -> Float[Tensor, "1 1 a"]:
        """First decision of an episode in one lane; the noise is not used. obs: (1, 1, *shape)."""
        self._one.begin([0])
        action = self._one.act({key: value[:, 0] for key, value in obs.items()})
        return self.action_spec.normalize(action).unsqueeze(1)

    def refine(self, obs: Obs, action: Float[Tensor, "b a"]) -> Float[Tensor, "b a"]:
        return action


class FunctionExecutor:
    """Calls the function once per step and lane, see `robo_rl.core.protocols.Executor`."""

    def __init__(self, policy: FunctionPolicy, num_envs: int) -> None:
        self._own, self._action = OwnFunction(policy.function, policy.spec), policy.action_spec
        self._num_envs, self._obs = num_envs, dict[str, Tensor]()

    def reset(self, obs: Obs, lanes: Lanes | LaneIds | None = None) -> None:
        self._obs = obs
        ids = lanes.ids if isinstance(lanes, Lanes) else lanes
        self._own.begin(range(self._num_envs) if ids is None else ids.tolist())

    def observe(self, obs: Obs) -> None:
        self._obs = obs

    def act(self, noise: NoiseSource) -> Float[Tensor, "n a"]:
        return self._action.normalize(self._own.act(self._obs))
