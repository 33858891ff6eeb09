"""Denoising networks by name. All share one signature: net(x (b, Tp, a), t (b,), cond (b, c)) -> (b, Tp, a).

t is the process time in [0, 1]: 1 = noise, 0 = action. A network class has `Config`, a dataclass whose `name`
is its key in `NETS`, and a constructor (action_dim, chunk, cond_dim, config).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from torch import nn

from robo_rl.core.errors import ConfigError
from robo_rl.core.registry import OWN, Table, lookup
from robo_rl.core.settings import check_settings

NETS: Table = {
    "mlp": ("robo_rl.nets.denoiser:MlpDenoiser", None),
    "guided": ("robo_rl.nets.guided:GuidedNet", None),
    "unet1d": ("robo_rl.nets.unet1d:ConditionalUnet1D", None),
    "transformer": ("robo_rl.nets.transformer:DenoisingTransformer", None),
}


@dataclass
class NetConfig:
    """Base of all network configurations."""

    name: str = "mlp"


def make_net(config: NetConfig, action_dim: int, chunk: int, cond_dim: int) -> nn.Module:
    """Build the network that `config` describes. Raises UnknownNameError or ConfigError."""
    check_settings(config, "net.")
    net = lookup("net", NETS, config.name, OWN)(action_dim, chunk, cond_dim, config)
    assert isinstance(net, nn.Module)
    return net


def net_config(data: Mapping[str, Any]) -> NetConfig:
    """Configuration from the output of `net_config_json`. Raises UnknownNameError, or ConfigError for an
    unknown key.
    """
    cls = lookup("net", NETS, str(data.get("name")), OWN)
    try:
        config = cls.Config(**data)
    except TypeError as error:
        raise ConfigError(
            f"Net '{data.get('name')}' cannot be configured with {dict(data)}: {error}."
        ) from error
    assert isinstance(config, NetConfig)
    return config


def net_config_json(config: NetConfig) -> dict[str, Any]:
    """Configuration as JSON values."""
    return asdict(config)
