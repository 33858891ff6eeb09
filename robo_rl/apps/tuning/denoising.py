"""Parts of a run that learns inside the denoising or the tokens of its base: a copy to train, its chains, its
noise.
"""

from __future__ import annotations

import copy
from dataclasses import replace

import torch
from torch import nn

from policies.base.chain import Explore
from policies.base.generative import GenerativePolicy
from policies.base.tokens import Tokens
from policies.registry import SavedPolicy
from policies.vla.packed import PackedPolicy
from policies.vla.policy import VlaPolicy
from robo_rl.core.action_map import ChainMap
from robo_rl.core.errors import ConfigError
from robo_rl.nets.guided import GuidedConfig
from robo_rl.nets.noise_net import NoiseNet
from robo_rl.nets.registry import make_net, net_config_json
from robo_rl.rl.denoising.config import DenoisingConfig, check_denoising, check_tokens
from robo_rl.rl.denoising.draws import DrawHead, GuidedDrawHead
from robo_rl.rl.denoising.head import ChainHead
from robo_rl.rl.denoising.tokens import TokenHead
from robo_rl.rl.off_policy.networks import drawn_seed


def chain_map(base: SavedPolicy, draws: int = 0) -> ChainMap:
    """Map of chains over this base, or of `draws` of its training loss.

    Raises ConfigError for a base without a denoising network of its own, and for draws with a
    vision-language-action policy, whose training loss is not computed here.
    """
    if not isinstance(base, GenerativePolicy | VlaPolicy):
        raise ConfigError(
            "Learning inside the denoising needs a diffusion, flow or vision-language-action policy as "
            f"base=, found a policy of kind '{base.kind}'. Give the policy of robo-rl train, or choose "
            "method=residual."
        )
    if isinstance(base.process, Tokens):
        raise ConfigError(
            "A policy of action tokens (policy.head=tokens) has no denoising. Choose method=ppo_tokens, or "
            "train the base with policy.head=flow."
        )
    if draws and not isinstance(base, GenerativePolicy):
        raise ConfigError(
            "Methods that learn by the loss of behaviour cloning (fpo, awr, recap) need a policy of "
            f"policy=generative as base=, found one of kind '{base.kind}'. Choose method=flow_sde."
        )
    return ChainMap(base.chunk, base.action_spec.dim, base.process.steps, base.execute, draws)


def token_map(base: SavedPolicy) -> ChainMap:
    """Map of the chunks of action tokens. Raises ConfigError for a base without tokens."""
    if not isinstance(base, VlaPolicy) or not isinstance(base.process, Tokens):
        raise ConfigError(
            "PPO on tokens needs a vision-language-action policy of action tokens as base=, found one of "
            f"kind '{base.kind}' without them. Train it with policy=vla policy.head=tokens, or choose "
            "method=flow_sde."
        )
    return ChainMap(base.chunk, base.action_spec.dim, 0, base.execute)


def token_head(policy: VlaPolicy, config: DenoisingConfig, clip: float, acting: PackedPolicy) -> TokenHead:
    """Head over the decoder of this policy. acting: the policy with the features that are stored."""
    check_tokens(config)
    module = nn.ModuleDict({"net": policy.net})
    return TokenHead(acting.token_sampler(), module, token_map(policy), config, clip)


def tunable(
    base: SavedPolicy, guidance: float = 0.0, generator: torch.Generator | None = None
) -> GenerativePolicy | VlaPolicy:
    """The base with a copy of its denoising network that can be trained; what encodes observations is
    shared. guidance: weight of the guidance of a network with labels, see `GuidedNet`, whose initial weights
    follow from `generator`; 0: none.
    """
    assert isinstance(base, GenerativePolicy | VlaPolicy)
    policy = copy.copy(base.eval().requires_grad_(False))
    policy._modules = dict(base._modules)
    policy.net = copy.deepcopy(base.net).requires_grad_(True)
    if guidance > 0.0 and isinstance(policy, GenerativePolicy):
        assert generator is not None
        _add_labels(policy, guidance, generator)
    return policy


def _add_labels(policy: GenerativePolicy, guidance: float, generator: torch.Generator) -> None:
    """Put the policy's network into a `GuidedNet`; one that is in it already gets this weight."""
    trained, known = policy.net, policy.shape.net
    inner = known.inner if isinstance(known, GuidedConfig) else net_config_json(known)
    config = GuidedConfig(inner=inner, weight=guidance)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(drawn_seed(generator))
        net = make_net(config, policy.action_spec.dim, policy.chunk, policy.encoder.dim)
    target = net if isinstance(known, GuidedConfig) else net.inner
    assert isinstance(target, nn.Module)
    target.load_state_dict(trained.state_dict())
    policy.net = net.to(next(trained.parameters()))
    policy._config = replace(policy.shape, net=config)


def chain_head(
    policy: GenerativePolicy | VlaPolicy,
    features: int,
    config: DenoisingConfig,
    clip: float,
    generator: torch.Generator,
    draws: int = 0,
    acting: GenerativePolicy | PackedPolicy | None = None,
) -> ChainHead | DrawHead:
    """Head over the denoising network of this policy, and that of the noise if it is learned.

    features: width of those that critics see. acting: the policy with the features that are stored, None for
    `policy` itself. draws: 0 for the transitions of chains, else the number of draws of the training loss.
    Raises ConfigError for draws with a vision-language-action policy.
    """
    check_denoising(config, draws)
    if draws:
        action_map, module = chain_map(policy, draws), nn.ModuleDict({"net": policy.net})
        assert isinstance(policy, GenerativePolicy)  # or the map would have been refused
        if config.guidance > 0.0:
            return GuidedDrawHead(policy, module, action_map, config, clip)
        return DrawHead(policy, module, action_map, config.reduce, clip)
    total = policy.process.steps
    steps = tuple(range(total - min(config.trained_steps or total, total), total))
    module, noise = nn.ModuleDict({"net": policy.net}), None
    if config.noise_range:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(drawn_seed(generator))
            shape, (low, high) = (policy.chunk, policy.action_spec.dim), config.noise_range
            noise = NoiseNet(shape, features, low, high, config.noise_hidden)
        module["noise"] = noise.to(next(policy.net.parameters()))
    sampled = acting or policy
    assert isinstance(sampled, GenerativePolicy | PackedPolicy)
    chains = sampled.chain_sampler(Explore(config.level, steps, config.min_std, noise))
    return ChainHead(chains, module, chain_map(policy), config, clip, generator)
