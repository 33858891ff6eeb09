"""Warm starts of a run: networks of an earlier run, and a normaliser that fits the data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from policies.checkpoint import check_compatible, load_policy
from policies.tuned.direct import DirectPolicy
from robo_rl.apps.tuning.encoders.pictures import fresh_encoder
from robo_rl.conf.finetune import ON_POLICY
from robo_rl.core.errors import CheckpointError, ConfigError, DataError
from robo_rl.core.files.state_io import load_state
from robo_rl.core.spec import EnvSpec
from robo_rl.data.normalizer import Normalizer
from robo_rl.data.store import EpisodeStore
from robo_rl.nets.image_encoder import ImageEncoderConfig
from robo_rl.rl.loop import FineTuner
from robo_rl.rl.on_policy.tuner import PpoTuner
from robo_rl.runs.loaded_policy import find_policy
from robo_rl.runs.run_dir import RunDir

_OTHER_VERBS = ("train", "distill", "fly", "swarm", "vision")  # their runs hold other networks


def empty_policy(
    env: EnvSpec,
    init: str | None,
    demos: str | None,
    image: ImageEncoderConfig | None = None,
    seed: int = 0,
) -> DirectPolicy:
    """A policy that acts at random. Its normaliser is that of `init`, or else scaled to the range of
    `demos`. image: settings of an encoder that learns, with weights from `seed`; None: no encoder.
    """

    def made(normalizer: Normalizer | None = None) -> DirectPolicy:
        encoder = None if image is None else fresh_encoder(env, normalizer, image, seed)
        return DirectPolicy(env, normalizer, encoder=encoder).eval()

    policy = made()
    if init is not None:
        finetune_run(init)
        earlier = load_policy(find_policy(init))
        check_compatible(earlier, env)
        if not isinstance(earlier, DirectPolicy):
            raise CheckpointError(
                f"init={init} holds a policy of kind '{earlier.kind}', expected 'direct'. Give it as base= "
                "to a method that improves it (steering, residual)."
            )
        return made(earlier.normalizer)
    if demos is not None:
        episodes = EpisodeStore(demos, complete_only=True)
        check_compatible(policy, episodes.spec, demos)
        if not len(episodes):
            raise DataError(
                f"{demos} holds no complete episode to scale states by. Collect some first, or leave demos= "
                "out."
            )
        seen = {
            key: np.concatenate([episode.obs(key) for episode in episodes]) for key in policy.normalizer.keys
        }
        fitted = Normalizer.fit({key: torch.from_numpy(np.array(value)) for key, value in seen.items()})
        return made(fitted)
    return policy


def start_from(tuner: FineTuner | PpoTuner, init: str | None) -> None:
    """Load the actor, critics and tuned temperature of the run `init` into the learner; optimisers restart.

    Raises ConfigError if the method needs `init` and has none, or cannot use it; DataError if `init` is no
    run, CheckpointError if it has no checkpoint or other networks.
    """
    check_start(tuner.config.warmup, isinstance(tuner, PpoTuner), init)
    if init is None or isinstance(tuner, PpoTuner):
        return
    learner = tuner.learner
    newest = finetune_run(init).latest()
    if newest is None:
        raise CheckpointError(
            f"The run {init} holds no checkpoint to start from. Let it finish, or give another run."
        )
    state: Mapping[str, Any] = load_state(newest[1]).get("tuner", {})
    found, expected = state.get("learner", {}), learner.weights()
    del expected["gate"]  # the gate's margin belongs to this run
    head = expected.pop("ready", None) is not None  # whether it acts, which is no network
    for name in expected:
        if name not in found:
            raise CheckpointError(
                f"The run {init} has no {name} to start from. Expected: a run of robo-rl finetune with an "
                "off-policy method of the same algorithm. Give such a run."
            )
        _check_shapes(init, name, found[name], expected[name])
    ready = {"ready": {"ready": torch.tensor(found["ready"])}} if head else {}
    learner.load_weights({name: found[name] for name in expected} | ready)
    learner.multipliers.start_from(found["multipliers"])
    if learner.scales is not None and "scales" in found:
        learner.scales.load_state_dict(found["scales"])
    tuner.mark_weights_good()


def check_start(warmup: str, ppo: bool, init: str | None) -> None:
    """Raise ConfigError if the method needs `init` and has none, or cannot use it."""
    if init is None and warmup == "actor":
        raise ConfigError("warmup=actor starts with a trained actor: give init=<run>, or method.warmup=base.")
    if init is not None and ppo:
        raise ConfigError(
            "PPO has no action-value critics: init=<run> is for off-policy methods. Leave it out."
        )


def finetune_run(init: str) -> RunDir:
    """The run `init`. Raises DataError if it is no run, CheckpointError if `init=` cannot start from it."""
    run = RunDir.open(init)
    accepted = "init= accepts a run of robo-rl finetune with an off-policy method, e.g. method=sac"
    method = run.config().get("method")
    if not isinstance(method, dict) or "algorithm" not in method:
        words = run.info().get("arguments") or [""]
        verb = f"a run of robo-rl {words[0]}" if words[0] in _OTHER_VERBS else "a run of another kind"
        raise CheckpointError(
            f"{init} is {verb}, which has no action-value critics to start from. {accepted}. Give such a "
            "run, or give this one's policy as base= to a method that improves it (steering, residual)."
        )
    if method["algorithm"] in ON_POLICY:
        raise CheckpointError(
            f"{init} is a run of robo-rl finetune with PPO (method={method.get('name')}), which has no "
            f"action-value critics. {accepted}. Give such a run."
        )
    if method.get("name") == "auto":
        raise CheckpointError(
            f"{init} is a run of method=auto, whose stages are runs of their own. Give one of these: a "
            f"folder run/ below {init}, such as {init}/residual/run."
        )
    return run


def _check_shapes(init: str, name: str, found: Mapping[str, Any], expected: Mapping[str, Any]) -> None:
    shapes = [{key: tuple(value.shape) for key, value in state.items()} for state in (found, expected)]
    if shapes[0] != shapes[1]:
        key = next(
            k for k in sorted(shapes[0].keys() | shapes[1].keys()) if shapes[0].get(k) != shapes[1].get(k)
        )
        raise CheckpointError(
            f"The {name} of the run {init} has {key} of shape {shapes[0].get(key)}, this method's has "
            f"{shapes[1].get(key)}. Give method.learner.hidden, heads, layer_norm and actor as they were "
            "there, and the same environment."
        )
