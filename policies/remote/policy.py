"""A policy that another process or machine computes."""

from __future__ import annotations

import torch
from torch import Tensor

from policies.remote.address import Address
from policies.remote.client import PolicyConnection
from policies.remote.contract import PolicyContract, in_words
from robo_rl.core.errors import CheckpointError, ConfigError
from robo_rl.core.protocols import Obs
from robo_rl.core.shapes import Float
from robo_rl.core.spec import EnvSpec

_NO_FEATURES = (
    "A remote policy provides no features for learning. Fine-tune or distil its policy folder where it is."
)


class RemotePolicy:
    """chunk = answer of the server to (observation, noise). A `protocols.ChunkPolicy`.

    Equal, bit for bit, to the policy in the server's process for the same batch. Tensors are on the CPU.
    """

    def __init__(self, address: Address) -> None:
        self._connection = PolicyConnection(address)
        self.contract = contract = self._connection.contract
        self.env, self.obs_spec, self.action_spec = contract.env, contract.env.obs, contract.env.action
        self.obs_steps, self.chunk, self.execute = contract.obs_steps, contract.chunk, contract.execute

    @property
    def address(self) -> Address:
        return self._connection.address

    def check(self, env: EnvSpec) -> None:
        """Raise CheckpointError, with every reason, if the served policy does not fit `env`."""
        if faults := self.contract.faults(env):
            raise CheckpointError(
                f"The policy '{self.contract.name}' at {self.address} was made for {self.env.name} and does "
                f"not fit {env.name}: {in_words(faults)}. Serve a policy of this environment."
            )

    def check_is(self, expected: PolicyContract) -> None:
        """Raise CheckpointError, with every reason, if the served policy is not the expected one."""
        if faults := self.contract.differences(expected):
            raise CheckpointError(
                f"The policy '{self.contract.name}' at {self.address} is not '{expected.name}': "
                f"{in_words(faults)}. Serve the policy of this bundle."
            )

    def features(self, obs: Obs) -> Float[Tensor, "b f"]:
        raise ConfigError(_NO_FEATURES)

    def sample_from(
        self, features: Float[Tensor, "b f"], noise: Float[Tensor, "b Tp a"]
    ) -> Float[Tensor, "b Tp a"]:
        raise ConfigError(_NO_FEATURES)

    def sample(self, obs: Obs, noise: Float[Tensor, "b Tp a"]) -> Float[Tensor, "b Tp a"]:
        arrays = {key: obs[key].contiguous().numpy() for key in self.obs_spec}
        return torch.from_numpy(self._connection.sample(arrays, noise.contiguous().numpy()))

    def refine(self, obs: Obs, action: Float[Tensor, "b a"]) -> Float[Tensor, "b a"]:
        if not self.contract.refines:
            return action
        arrays = {key: obs[key].contiguous().numpy() for key in self.obs_spec}
        return torch.from_numpy(self._connection.refine(arrays, action.contiguous().numpy()))

    def close(self) -> None:
        """Close the connection. May be called twice."""
        self._connection.close()
