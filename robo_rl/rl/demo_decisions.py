"""Decisions of a demonstrated episode: its steps, or chunks as long as those that the base executes.

Chunks start at every step. Those with the same offset follow each other as in an episode that is planned from
that step on, so sums over several decisions and returns are those of such an episode. At the end a chunk is
shorter, as the last one of a collected episode.

    execute 3, 7 steps:   0-2 3-5 6   |   1-3 4-6   |   2-4 5-6
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from robo_rl.core.action_map import ActionMap, CandidateMap, LatentMap
from robo_rl.core.conditioning import Condition, pooled
from robo_rl.core.protocols import ChunkPolicy
from robo_rl.core.seeding import derive_seed, episode_noise
from robo_rl.core.shapes import Bool, Float, Int
from robo_rl.rl.demo_outcomes import DemoOutcome


@dataclass(frozen=True, slots=True)
class DemoDecisions:
    """Decisions of an episode in the order of storing. k: decisions, l: steps of a whole decision."""

    start: Int[Tensor, " k"]  # first step
    end: Int[Tensor, " k"]  # step after the last one, and number of the observation there
    index: Int[Tensor, "k l"]  # of the steps, beyond the end of the episode too
    inside: Bool[Tensor, "k l"]  # False beyond the end

    @classmethod
    def of(cls, steps: int, length: int, device: torch.device | str = "cpu") -> DemoDecisions:
        """All decisions of an episode of so many steps. length: 1, or the steps of an executed chunk."""
        every = torch.arange(steps, device=device)
        start = every[torch.argsort(every % length, stable=True)]
        index = start.unsqueeze(1) + torch.arange(length, device=device)
        return cls(start, (start + length).clamp(max=steps), index, index < steps)

    def columns(self, outcome: DemoOutcome, action: Float[Tensor, "n a"], gamma: float) -> dict[str, Tensor]:
        """Action, reward, number of steps and end of every decision.

        The reward is the sum of gamma^j r_j. Beyond the end, the last action is repeated, as in the windows
        that base policies are trained on.
        """
        chunk = action[self.index.clamp(max=len(action) - 1)].flatten(1)
        within = self.index.clamp(max=max(0, len(outcome.reward) - 1))
        powers = gamma ** torch.arange(self.index.shape[1], device=action.device).float()
        last = self.end - 1
        return {
            "action": chunk,
            "reward": (outcome.reward[within] * powers * self.inside).sum(1),
            "steps": (self.end - self.start).float(),
            "terminated": outcome.terminated[last],
            "truncated": outcome.truncated[last],
        }

    def observed(
        self, obs: Float[Tensor, "m f"], ctx: Float[Tensor, "m c"], frame: Int[Tensor, " m"] | None
    ) -> dict[str, Tensor]:
        """What is seen at the start of every decision and after it. m: observations of the episode.

        frame: numbers of their pictures; None: there are none.
        """
        # After a termination the next observation is not used, and may be missing.
        after = self.end.clamp(max=len(obs) - 1)
        found = {"obs": obs, "ctx": ctx} | ({} if frame is None else {"frame": frame})
        here = {name: value[self.start] for name, value in found.items()}
        return here | {f"next_{name}": value[after] for name, value in found.items()}

    def any_of(self, steps: Bool[Tensor, " n"]) -> Bool[Tensor, " k"]:
        """Decisions with at least one of these steps."""
        return (steps[self.index.clamp(max=len(steps) - 1)] & self.inside).any(1)

    def cut_before(self, held: Bool[Tensor, " k"]) -> Bool[Tensor, " k"]:
        """Decisions whose successor is not held. held: which decisions are."""
        at = torch.ones(len(held) + 1, dtype=torch.bool, device=held.device)  # after the end there is none
        at[self.start] = held
        return ~at[self.end]


def chunk_contexts(
    blocks: list[Condition], base: ChunkPolicy, action_map: ActionMap, index: int, scale: float
) -> Float[Tensor, "n c"]:
    """Context of a chunk that is decided at any observation of an episode: noise of the base, or draws of it.

    blocks: conditions of the observations, in order. index: of the episode, for its noise. scale: of the
    base's own noise. Other draws have scale 1.
    """
    count, device = sum(map(len, blocks)), pooled(blocks[0]).device
    if not action_map.ctx_dim:
        return torch.zeros(count, 0, device=device)
    shape = (base.chunk, base.action_spec.dim)
    own = episode_noise(index, count, shape).to(device) * scale
    if isinstance(action_map, LatentMap):
        return own.flatten(1)
    noise = own.unsqueeze(1)
    if isinstance(action_map, CandidateMap):
        further = episode_noise(derive_seed("further draws", index), count, (action_map.count - 1, *shape))
        noise = torch.cat([noise, further.to(device)], dim=1)
    contexts, before = [], 0
    for block in blocks:
        here = noise[before : before + len(block)]
        # One draw at a time: copies of a condition for every draw would not fit into memory.
        chunks = [base.sample_from(block, drawn)[:, : base.execute].flatten(1) for drawn in here.unbind(1)]
        contexts.append(torch.cat(chunks, dim=1))
        before += len(block)
    return torch.cat(contexts)
