"""Vision-language-action policy: pictures, an instruction and states -> chunk of actions, by flow matching or
token by token.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from policies.base.chain import deterministic_path, deterministic_sample
from policies.base.flow import Flow
from policies.base.tokens import Tokens
from policies.vla.backbone import TINY, make_backbone
from policies.vla.cond import Cond
from policies.vla.config import JointSizes, VlaConfig, VlaFlowConfig, check_config, check_joint
from policies.vla.expert import ActionExpert, ExpertSizes
from policies.vla.experts import Experts, PaddedExpert, check_experts, make_expert
from policies.vla.memory import MomentMemory
from policies.vla.pictures import crop_side
from policies.vla.spatial import point_loss
from policies.vla.tiny import Prefix
from policies.vla.token_expert import TokenExpert
from robo_rl.core.conditioning import HELD, MEMORY
from robo_rl.core.errors import CheckpointError, ConfigError
from robo_rl.core.protocols import Obs
from robo_rl.core.shapes import Float
from robo_rl.core.spec import EnvSpec, sense_of, target_of
from robo_rl.core.text.instruction import INSTRUCTION
from robo_rl.data.normalizer import Normalizer

Crop = Float[Tensor, "b cameras 2"]


class VlaPolicy(nn.Module):
    """chunk = endpoint of the process from the noise, given a prefix of pictures and words, and the state. A
    `protocols.ChunkPolicy` whose `sample_from` takes the `Cond` of `encode`.

    With a memory (`config.memory`), an observation holds what was made of earlier decisions: sampling is a
    pure function of that, too.

    The prefix is encoded once per chunk; the action expert then runs once per transition of the process: a
    step of the flow, or a token with `config.head` = tokens. As in `GenerativePolicy`, nothing is drawn
    inside, and actions are in [-1, 1].

    joint: sizes of the network, if other embodiments share it; see `policies.training.joint`.
    """

    kind = "vla"
    reads_every_step = False  # see `protocols.reads_every_step`
    obs_steps = 1
    embodiment: Float[Tensor, " n"]  # one-hot; n = 0 if no other embodiment shares the network

    def __init__(
        self,
        env: EnvSpec,
        normalizer: Normalizer,
        config: VlaConfig,
        chunk: int,
        execute: int,
        vocabulary: Sequence[str] = (),
        joint: JointSizes | None = None,
    ) -> None:
        super().__init__()
        check_config(config, chunk, execute)
        one_hot = torch.zeros(0)
        if joint is not None:
            check_joint(config)
            one_hot = torch.eye(joint.embodiments)[joint.embodiment]
        self.register_buffer("embodiment", one_hot, persistent=False)
        check_experts(config.experts, env.action.dim)
        self.env, self.obs_spec, self.action_spec = env, env.obs, env.action
        self.chunk, self.execute, self.shape, self.joint = chunk, execute, config, joint
        self.vocabulary = tuple(vocabulary)  # known words, for policy.tokens=words
        senses = {key: sense_of(key, array) for key, array in env.obs.items()}
        self.states, self.pictures = (
            [key for key, sense in senses.items() if sense == wanted] for wanted in ("state", "image")
        )
        check_observation(senses, env.name)
        self.normalizer = normalizer
        self.sides = [(env.obs[key].shape[0], env.obs[key].shape[1]) for key in self.pictures]
        sides = self.sides if joint is None else list(joint.pictures)
        self.backbone = make_backbone(sides, config, self.vocabulary)
        self.memory = (
            MomentMemory(config.memory, config.moments, config.width, config.heads) if config.memory else None
        )
        sizes = ExpertSizes(
            config.width,
            self.backbone.heads,
            self.backbone.kv_heads,
            self.backbone.head_dim,
            self.backbone.layers,
            state=(state_numbers(env) if joint is None else joint.inputs) + self._points_read,
            recalled=0 if self.memory is None else self.memory.dim,
        )
        self.net: ActionExpert | Experts | PaddedExpert | TokenExpert
        self.process: Flow | Tokens
        if config.head == "tokens":
            self.process = Tokens(config.bins, chunk * env.action.dim)
            self.net = TokenExpert(self.process, env.action.dim, sizes)
            return
        self.process = Flow(config.process)
        if joint is None:
            self.net = make_expert(config.experts, env.action.dim, chunk, sizes)
        else:
            self.net = PaddedExpert(ActionExpert(joint.action, chunk, sizes), joint.action)

    @property
    def cameras(self) -> int:
        """Number of pictures in an observation; each has a random crop in training."""
        return len(self.pictures)

    @property
    def points_dim(self) -> int:
        """Coordinates of the predicted points of all cameras; 0 without policy.spatial."""
        return 2 * self.cameras if self.shape.spatial > 0.0 else 0

    @property
    def _points_read(self) -> int:
        """Coordinates of points that the network reads: in a joint one, those of the most cameras."""
        cameras = self.cameras if self.joint is None else len(self.joint.pictures)
        return 2 * cameras if self.shape.spatial > 0.0 else 0

    @property
    def memory_shape(self) -> tuple[int, int] | None:
        """Shape of the memory in an observation; see `robo_rl.core.conditioning`."""
        return None if self.memory is None else self.memory.shape

    # Acting

    def encode(self, obs: Obs, crop: Crop | None = None) -> Cond:
        """obs (b, 1, *shape) -> keys and values of the prefix, state and pooled features."""
        self.check(obs)
        return self.condition(self.prefix(obs, crop), obs)

    def prefix(self, obs: Obs, crop: Crop | None = None) -> Prefix:
        """Prefix of the newest pictures and instruction."""
        pictures, words = [obs[key][:, -1] for key in self.pictures], obs[INSTRUCTION][:, -1]
        more = () if self.memory is None else (self.memory.tokens,)
        out: Prefix = self.backbone(pictures, words, crop, *more)
        return out

    def condition(self, prefix: Prefix, obs: Obs) -> Cond:
        """Condition of a prefix and the states of an observation. Points of cameras that this embodiment does
        not have are zero.
        """
        (keys, values, mask, pooled, moment), state = prefix, self._state(obs)
        if self.points_dim:
            pooled, points = pooled[:, : -self.points_dim], pooled[:, -self.points_dim :]
            state = torch.cat([state, F.pad(points, (0, self._points_read - self.points_dim))], dim=-1)
        if self.memory is not None:
            state = torch.cat([state, self.memory(obs[MEMORY], moment)], dim=-1)
        return Cond(keys, values, mask, state, torch.cat([pooled, state], dim=-1), moment)

    def features(self, obs: Obs) -> Float[Tensor, "b f"]:
        """Pooled features of prefix and state."""
        return self.encode(obs).pooled

    def sample(
        self, obs: Obs, noise: Float[Tensor, "b Tp a"], steps: int | None = None
    ) -> Float[Tensor, "b Tp a"]:
        """Endpoint of the process for this noise in `steps` transitions; None: the configured K."""
        return self.sample_from(self.encode(obs), noise, steps)

    def sample_from(
        self, features: Any, noise: Float[Tensor, "b Tp a"], steps: int | None = None
    ) -> Float[Tensor, "b Tp a"]:
        """`sample` from the `Cond` of `encode`. Raises ConfigError for pooled features, from which no action
        follows.
        """
        if not isinstance(features, Cond):
            raise ConfigError(
                f"Actions follow from the Cond of `encode`, found {type(features).__name__}. Pooled features "
                "are for critics; encode the observation."
            )
        cond = features
        if noise.shape != (cond.pooled.shape[0], self.chunk, self.action_spec.dim):
            raise ConfigError(
                f"Noise has shape {tuple(noise.shape)}, expected ({len(cond)}, {self.chunk}, "
                f"{self.action_spec.dim}): one full-length draw per observation."
            )
        steps = self.process.steps if steps is None else steps
        if isinstance(self.net, TokenExpert):
            if steps != self.process.steps:
                raise ConfigError(
                    f"A chunk has {self.process.steps} tokens, found steps={steps}. Leave steps out."
                )
            return self.net.sample(cond, noise)
        return deterministic_sample(self._flow(), self._velocity(cond), cond.pooled, noise, steps)

    def path(
        self, features: Any, noise: Float[Tensor, "b Tp a"]
    ) -> tuple[list[Float[Tensor, "b Tp a"]], list[float]]:
        """Points of the deterministic path and their process times, from 1 = noise to 0 = action. Raises
        ConfigError for tokens, which have none.
        """
        flow, net = self._flow(), self._velocity(features)
        times = [*flow.transitions(flow.steps).times.tolist(), 0.0]
        return deterministic_path(flow, net, features.pooled, noise, flow.steps), times

    def _flow(self) -> Flow:
        if not isinstance(self.process, Flow):
            raise ConfigError(
                "A policy of action tokens (policy.head=tokens) has no path from noise to action. Train with "
                "policy.head=flow."
            )
        return self.process

    def refine(self, obs: Obs, action: Float[Tensor, "b a"]) -> Float[Tensor, "b a"]:
        """The action, unchanged."""
        return action

    # Learning

    def bc_loss(
        self,
        obs: Obs,
        chunk: Float[Tensor, "b Tp a"],
        noise: Float[Tensor, "b *draws Tp a"],
        u: Float[Tensor, " b"],
        crop: Crop | None = None,
    ) -> Float[Tensor, " b"]:
        """Behaviour-cloning loss of each sample: the cross-entropy of tokens, or the flow's loss, the mean
        over `draws` noises and times for one prefix.

        noise: (b, draws, Tp, a), or one for each row (b, Tp, a), of which draw j takes that of another row.
        Draw j has the time u + j / draws modulo 1. With a memory, obs is that of this and of earlier
        decisions; see `remembered`.
        """
        cond = self.encode(obs, crop) if self.memory is None else self.remembered(obs, crop)
        if isinstance(self.net, TokenExpert):
            loss = self.net.loss(cond, chunk)
        else:
            loss = self._flow_loss(cond, chunk, noise, u)
        return loss + self.shape.spatial * self._point_loss(cond, obs, crop) if self.points_dim else loss

    def _flow_loss(self, cond: Cond, chunk: Tensor, noise: Tensor, u: Tensor) -> Float[Tensor, " b"]:
        draws = self.shape.draws
        each = noise.unbind(1) if noise.ndim == 4 else [noise.roll(j, 0) for j in range(draws)]
        noises = torch.cat(list(each))
        times = torch.cat([(u + j / draws) % 1.0 for j in range(draws)])
        chunks, many = chunk.repeat(draws, 1, 1), cond.repeat(draws)
        loss = self._flow().bc_loss(self._velocity(many), many.pooled, chunks, noises, times)
        return loss.view(draws, -1).mean(0)

    def predicted_points(self, cond: Cond) -> Float[Tensor, "b c 2"]:
        """Predicted points to act at, in the crops of all pictures."""
        first = self.net.state_dim - self._points_read
        points: Tensor = cond.state[:, first : first + self.points_dim].unflatten(1, (-1, 2))
        return points

    def _point_loss(self, cond: Cond, obs: Obs, crop: Crop | None) -> Float[Tensor, " b"]:
        """Error of `predicted_points` against obs["target.<camera>"] (b, t, 2), the newest of them. In a
        joint network, an embodiment may have pictures without targets, which have no error.
        """
        keys = [target_of(key) for key in self.pictures]
        targets = [None if self.joint is not None and key not in obs else obs[key][:, -1] for key in keys]
        parts = [crop_side(side, self.shape.crop) for side in self.sides]
        return point_loss(self.predicted_points(cond), targets, self.sides, parts, crop)

    def remembered(self, obs: Obs, crop: Crop | None = None) -> Cond:
        """`encode` of the newest of K + 1 observations (b, K + 1, *shape), with the moments of the others as
        its memory. obs["held"] (b, K): False for decisions before the episode.

        Gradients pass through all observations: the moments are learned from what later actions need.
        """
        assert self.memory is not None
        count = self.memory.decisions + 1
        seen = {key: obs[key].flatten(0, 1).unsqueeze(1) for key in self.pictures}
        words = obs[INSTRUCTION][:, -1:].repeat_interleave(count, 0)
        crops = None if crop is None else crop.repeat_interleave(count, 0)
        keys, values, mask, pooled, moment = self.prefix({**seen, INSTRUCTION: words}, crops)
        moments, newest = moment.unflatten(0, (-1, count)), slice(count - 1, None, count)
        held = obs[HELD].to(moment.dtype).unsqueeze(-1)
        past = torch.cat([held, held * moments[:, :-1]], dim=-1)
        prefix = (
            tuple(layer[newest] for layer in keys),
            tuple(layer[newest] for layer in values),
            mask[newest],
            pooled[newest],
            moment[newest],
        )
        return self.condition(prefix, {**{key: obs[key][:, -1:] for key in self.states}, MEMORY: past})

    def _velocity(self, cond: Cond) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
        """The action experts as a network of the process, whose condition is then `cond`."""

        def net(x: Tensor, t: Tensor, pooled: Tensor) -> Tensor:
            out: Tensor = self.net(x, t, cond)
            return out

        return net

    def _state(self, obs: Obs) -> Float[Tensor, "b s"]:
        values = self.normalizer.normalize({key: obs[key] for key in self.states})
        state = torch.cat([values[key].flatten(1) for key in self.states], dim=-1)
        if (joint := self.joint) is None:
            return state
        padded = F.pad(state, (0, joint.state - state.shape[1]))
        return torch.cat([padded, self.embodiment.expand(state.shape[0], -1)], dim=-1)

    def check(self, obs: Obs) -> None:
        """Raise ConfigError unless every key is present with shape (b, 1, *shape)."""
        for key, array in self.obs_spec.items():
            if key not in obs:
                raise ConfigError(f"The policy needs observation '{key}', found only {sorted(obs)}.")
            if tuple(obs[key].shape[1:]) != (1, *array.shape):
                raise ConfigError(
                    f"Observation '{key}' has shape {tuple(obs[key].shape)}, expected (batch, "
                    f"{', '.join(map(str, (1, *array.shape)))})."
                )
        if self.memory is not None:
            self.memory.check(obs.get(MEMORY), len(obs[INSTRUCTION]))

    # Checkpoint

    def config(self) -> dict[str, Any]:
        return {
            "env": self.env.to_json(),
            "chunk": self.chunk,
            "execute": self.execute,
            "vla": asdict(self.shape),
            "vocabulary": list(self.vocabulary),
            "normalizer": self.normalizer.config(),
            **({} if self.joint is None else {"joint": self.joint.to_json()}),
        }

    @classmethod
    def from_config(cls, data: dict[str, Any]) -> VlaPolicy:
        env, vla = EnvSpec.from_json(data["env"]), {"tokens": "bytes"} | data["vla"]
        config = VlaConfig(**{**vla, "process": VlaFlowConfig(**vla["process"])})
        if config.backbone != TINY and not Path(config.backbone).is_dir():
            raise CheckpointError(
                f"The policy reads the pretrained weights in {config.backbone}, which is no folder any more; "
                "its own files hold none of them. Put that model back in this place, or a link to it."
            )
        words = data.get("vocabulary", ())  # policies saved before there were words read bytes
        normalizer = Normalizer.from_config(data["normalizer"], env.obs)
        joint = JointSizes.from_json(data["joint"]) if "joint" in data else None
        return cls(env, normalizer, config, int(data["chunk"]), int(data["execute"]), words, joint)


def state_numbers(env: EnvSpec) -> int:
    """Count of the numbers in all states of an observation."""
    return sum(math.prod(array.shape) for key, array in env.obs.items() if sense_of(key, array) == "state")


def check_observation(senses: dict[str, str], name: str) -> None:
    """Raise ConfigError unless there are pictures, an instruction and states, and nothing else."""
    missing = [sense for sense in ("image", "text", "state") if sense not in senses.values()]
    if missing or INSTRUCTION not in senses:
        words = {"image": "pictures (image.<camera>)", "text": f"'{INSTRUCTION}'", "state": "a state"}
        raise ConfigError(
            f"A vision-language-action policy reads pictures, an instruction and a state; {name} has "
            f"{sorted(senses)}, without {' and '.join(words[sense] for sense in missing)}. Collect with "
            "suite=metaworld/mt6, or train policy=generative."
        )
    if other := sorted(key for key, sense in senses.items() if sense not in ("image", "text", "state")):
        raise ConfigError(f"A vision-language-action policy cannot read {other} of {name}. Record without.")
