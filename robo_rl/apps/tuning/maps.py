"""Action map of a method over a base, and checks that map, learner and base go together."""

from __future__ import annotations

from typing import Any

from policies.base.generative import GenerativePolicy
from policies.registry import SavedPolicy
from policies.tuned.direct import DirectPolicy
from policies.tuned.fine_tuned import corrects_steps
from policies.tuned.residual import ResidualPolicy
from policies.tuned.steered import SteeredPolicy
from policies.vla.packed import check_packable, has_prefix
from robo_rl.apps.tuning.denoising import chain_map, token_map
from robo_rl.conf.finetune import MapConfig, MethodConfig
from robo_rl.core.action_map import ActionMap, CandidateMap, ChainMap, DirectMap, LatentMap, ResidualMap
from robo_rl.core.errors import ConfigError
from robo_rl.nets.deep.network import one_width
from robo_rl.rl.off_policy.config import LearnerConfig


def build_map(config: MapConfig, base: SavedPolicy) -> ActionMap:
    """Action map of a method over this base."""
    action_dim = base.action_spec.dim
    if config.kind == "steering":
        if isinstance(base, DirectPolicy):
            raise ConfigError(
                "Steering chooses the noise of a generative policy, and nothing here draws any: give "
                "base=<a policy of robo-rl train>."
            )
        if ignores_noise(base):
            raise ConfigError(
                "Steering chooses the base's noise, but this base is already steered from zero noise and "
                "ignores its noise input. Steer its own base, or train a residual on it (method=residual)."
            )
        return LatentMap(base.chunk, action_dim, config.magnitude, config.origin, config.rank)  # type: ignore[arg-type]
    if config.kind in ("chain", "draws", "tokens"):
        return chunk_map(config, base)
    if config.kind in ("candidates", "head"):
        return head_map(base) if config.kind == "head" else _candidate_map(config, base)
    if config.kind == "residual":
        if isinstance(base, DirectPolicy) and base.actor is None:
            raise ConfigError("A residual needs a base to correct: give base=<policy folder>.")
        if config.per_chunk and corrects_steps(base):
            raise ConfigError(
                "This base corrects every step itself, so chunks of it cannot be corrected. Set "
                "method.map.per_chunk=false."
            )
        return ResidualMap(action_dim, config.scale, base.execute if config.per_chunk else 1)
    if not isinstance(base, DirectPolicy):
        raise ConfigError(
            f"This method learns from scratch (method.map.kind=direct), but base= is a policy of kind "
            f"'{base.kind}'. Leave base= out, or choose a method that improves it (method=steering or "
            "method=residual)."
        )
    return DirectMap(action_dim)


def chunk_map(config: MapConfig, base: SavedPolicy) -> ChainMap:
    """Map of chunks that the base's own network makes: as chains, with draws of its loss, or as tokens."""
    if config.kind == "tokens":
        return token_map(base)
    return chain_map(base, config.draws if config.kind == "draws" else 0)


def head_map(base: SavedPolicy) -> ChainMap:
    """Map of the chunks of a single-step head over this base. Raises ConfigError for one without a network of
    its own.
    """
    if not isinstance(base, GenerativePolicy):
        raise ConfigError(
            "A head of method=fql is distilled from a policy of policy=generative, found one of kind "
            f"'{base.kind}'. Choose method=residual."
        )
    return ChainMap(base.chunk, base.action_spec.dim, 0, base.execute)


def _candidate_map(config: MapConfig, base: SavedPolicy) -> CandidateMap:
    if isinstance(base, DirectPolicy) or ignores_noise(base):
        raise ConfigError(
            "Candidates are draws of a generative base, but this one makes the same chunk from every noise. "
            "Give the policy of robo-rl train as base=, or choose method=residual."
        )
    _check_executes_chunks(base, "Give its own base, or choose method=residual.")
    return CandidateMap(base.action_spec.dim, base.execute, config.candidates, config.edit)


def _check_executes_chunks(base: SavedPolicy, remedy: str) -> None:
    """Raise ConfigError for a base that executes other actions than those of the chunks that it samples."""
    if corrects_steps(base):
        raise ConfigError(
            f"This base corrects every step itself, so a chosen chunk is not what it executes. {remedy}"
        )


def ignores_noise(policy: SavedPolicy) -> bool:
    """True if a policy of the stack is steered from zero noise, which makes the noise input unused."""
    layer: Any = policy
    while isinstance(layer, SteeredPolicy | ResidualPolicy):
        if isinstance(layer, SteeredPolicy) and layer.map.origin == "zero":
            return True
        layer = layer.base
    return False


def check_together(method: MethodConfig, action_map: ActionMap, base: SavedPolicy) -> None:
    """Raise ConfigError for settings of the learner that do not apply to this map or base."""
    learner = method.learner
    heads = method.map.kind == "head"
    if heads and method.algorithm != "off_policy":
        raise ConfigError("A head is learned by off-policy critics: set method.algorithm=off_policy.")
    if not heads and (method.algorithm == "denoising") != isinstance(action_map, ChainMap):
        raise ConfigError(
            f"method.algorithm={method.algorithm} does not fit method.map.kind={method.map.kind}: chains are "
            "learned by method.algorithm=denoising, and nothing else is."
        )
    if method.reward_source == "interventions" and action_map.timescale == "chunk":
        raise ConfigError(
            "Rewards before an intervention belong to a single step, but this map decides entire chunks. Set "
            "method.map.per_chunk=false, or method.reward_source=task."
        )
    _check_deep(method)
    _check_phases(method)
    if packs_prefixes(method, base):
        check_packable(base)
    if method.algorithm == "noise_aliased":
        _check_executes_chunks(base, "Give its own base, or choose method=dsrl_sac or residual.")
    candidates = isinstance(action_map, CandidateMap)
    _check_expectile(method, candidates=candidates)
    if (candidates and method.algorithm != "off_policy") or (
        (candidates or heads) and method.encoder == "learned"
    ):
        raise ConfigError(
            "Candidates and heads are learned by off-policy critics of the base's features: set "
            "method.algorithm=off_policy and method.encoder=frozen."
        )
    if learner.gate and not isinstance(action_map, ResidualMap):
        raise ConfigError(
            f"Only a residual policy is deployed with its critics: with method.map.kind={method.map.kind} "
            "the policy would be trained with a gate and deployed without. Set method.learner.gate=false."
        )
    spread = learner.actor == "deterministic" and learner.explore_min_scale != 1.0
    if (learner.explore_correlation != 0.0 or spread) and action_map.timescale == "chunk":
        raise ConfigError(
            "Correlated exploration noise, and noise scales per lane, need a decision at every step; this "
            "map decides once per chunk. Set method.learner.explore_correlation=0 and "
            "method.learner.explore_min_scale=1."
        )


def packs_prefixes(method: MethodConfig, base: SavedPolicy) -> bool:
    """True if a store of decisions holds the prefixes of a vision-language-action policy, because the method
    samples chunks from stored decisions.
    """
    return method.algorithm in ("noise_aliased", "denoising") and has_prefix(base)


def _check_phases(method: MethodConfig) -> None:
    """Raise ConfigError where the base would act in phases of a map that has no u = 0 for it."""
    ramped, kind = method.takeover > 0.0 or method.ramp_steps > 0, method.map.kind
    if kind == "direct" and ramped:
        raise ConfigError(
            "There is no base that could act first: set method.takeover=0 and method.ramp_steps=0."
        )
    if kind == "head" and (ramped or method.warmup_noise > 0.0):
        raise ConfigError(
            "A head decides the chunk itself and has no u = 0 for the base: set method.ramp_steps=0, "
            "method.warmup_noise=0 and method.takeover=0."
        )
    if kind == "head" and method.burn_in < 1:
        raise ConfigError(
            "A head is like its base only after it was distilled: set method.burn_in above 0, such as 3000."
        )


def _check_expectile(method: MethodConfig, *, candidates: bool) -> None:
    learner = method.learner
    if learner.expectile == 0.0:
        return
    if not candidates:
        raise ConfigError(
            f"method.learner.expectile is of methods that choose among candidates, found method.map.kind="
            f"{method.map.kind}. Set it to 0, or method.map.kind=candidates."
        )
    for name in ("target_reduce", "target_subset") if method.burn_in_target == "mc" else ():
        value, usual = getattr(learner, name), getattr(LearnerConfig(), name)
        if value != usual:
            raise ConfigError(
                f"Targets of the expectile value have no use for method.learner.{name}={value}. Set it to "
                f"{usual}, or method.learner.expectile=0."
            )


def _check_deep(method: MethodConfig) -> None:
    """Raise ConfigError for networks, resets or optimism where the learner has networks of another kind."""
    learner = method.learner
    plain = method.algorithm == "off_policy" and method.map.kind in ("direct", "residual", "steering")
    settings = {
        f"learner.network={learner.network}": learner.network != "mlp",
        f"learner.critic_loss={learner.critic_loss}": learner.critic_loss == "quantile",
        "learner.optimism=true": learner.optimism,
        "learner.normalize_obs=true": learner.normalize_obs,
        f"learner.reward_scaling={learner.reward_scaling}": learner.reward_scaling != "none",
        f"learner.lr_end={learner.lr_end}": learner.lr_end != 1.0,
        f"resets={method.resets}": bool(method.resets),
    }
    found = [name for name, used in settings.items() if used]
    if found and not plain:
        raise ConfigError(
            f"method.{found[0]} needs method.algorithm=off_policy with method.map.kind=direct, residual or "
            f"steering, found {method.algorithm} with {method.map.kind}."
        )
    for widths in (learner.hidden, learner.critic_hidden):
        if widths is not None and learner.network in ("bronet", "simba_v2"):
            one_width(learner.network, widths)
    fixed = learner.network in ("simba_v2", "xqc")
    if fixed and (method.map.kind != "direct" or method.guard_window):
        raise ConfigError(
            f"method.learner.network={learner.network} has weights of a fixed length, so its actor cannot "
            "start at the base's action or return to it: set method.map.kind=direct and "
            "method.guard_window=0, or method.learner.network=bronet."
        )
    if (learner.normalize_obs or learner.network == "xqc") and method.encoder == "learned":
        raise ConfigError(
            "method.learner.normalize_obs and network=xqc keep statistics of stored observations, and "
            "method.encoder=learned makes features when a batch is drawn: set method.encoder=frozen over a "
            "base policy. From scratch, method=sac and td3 learn from pictures."
        )
    if method.resets and method.encoder == "learned":
        raise ConfigError(
            "method.resets start actor and critics anew, but not an encoder of pictures: set "
            "method.resets=[], or method.encoder=frozen over a base policy."
        )
