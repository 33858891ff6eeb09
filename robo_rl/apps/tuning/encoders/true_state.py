"""Learning from the simulator's true state: which method and base can, and the scale of the state."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import torch

from policies.tuned.privileged import TrueState, true_spec
from robo_rl.conf.finetune import MethodConfig
from robo_rl.core.errors import ConfigError
from robo_rl.core.spec import EnvSpec
from robo_rl.data.episodes.schema import DatasetMeta
from robo_rl.data.normalizer import Normalizer
from robo_rl.data.store import EpisodeStore
from robo_rl.rl.demo_outcomes import DemoEpisode


def true_state(
    method: MethodConfig, env: EnvSpec, demos: EpisodeStore | None, device: torch.device | str = "cpu"
) -> TrueState | None:
    """What actor and critics see with method.privileged=true; None without it.

    Raises ConfigError if the environment has no hidden state or the demonstrations were recorded without it.
    """
    if not method.privileged:
        return None
    check_privileged(method, None if demos is None else demos.path)
    assert demos is not None
    spec = true_spec(env.obs)
    if not any(key.startswith("privileged.") for key in spec):
        raise ConfigError(
            f"method.privileged=true needs observations privileged.<name>, but {env.name} has only "
            f"{sorted(env.obs)}. Leave it out."
        )
    if missing := sorted(key for key in spec if key not in demos.spec.obs):
        raise ConfigError(
            f"method.privileged=true reads {missing}, which {demos.path} does not hold. Record the "
            "demonstrations by robo-rl collect privileged=true."
        )
    return TrueState(spec, fitted(spec, demos)).to(device)


def fitted(keys: Iterable[str], episodes: Iterable[DemoEpisode]) -> Normalizer:
    """Normaliser of these observations to their range in the episodes."""
    recorded = list(episodes)
    return Normalizer.fit(
        {
            key: torch.from_numpy(np.concatenate([np.array(each.obs(key)) for each in recorded]))
            for key in keys
        }
    )


def check_privileged(method: MethodConfig, demos: str | Path | None) -> None:
    """Raise ConfigError for a method that cannot learn from the true state, or demonstrations without it.

    demos: their folder; None: there are none.
    """
    if not method.privileged:
        return
    if demos is None:
        raise ConfigError(
            "method.privileged=true needs demos=<dataset recorded by robo-rl collect privileged=true>: their "
            "range is the scale of the state."
        )
    steps = method.map.kind == "residual" and not method.map.per_chunk
    if not steps or method.algorithm != "off_policy" or method.encoder != "frozen":
        raise ConfigError(
            "method.privileged=true is for residuals of single steps by off-policy learners: choose "
            "method=residual_lanes, residual or pld, without map.per_chunk and encoder=learned."
        )
    if method.progress_weight > 0.0:
        raise ConfigError(
            "A model of progress reads the base's features, which method.privileged=true does not store. Set "
            "method.progress_weight=0."
        )
    if not any(key.startswith("privileged.") for key in DatasetMeta.load(Path(demos)).env.obs):
        raise ConfigError(
            f"method.privileged=true reads the simulator's true state, which {demos} does not hold. Record "
            "the demonstrations by robo-rl collect privileged=true."
        )
