"""Choice between a trained policy, one that imitates its successes, and the base, within the run's steps.

Training episodes are evidence that costs nothing: those of the base in `base_steps`, and the last ones of the
trained policy, which still explores. Both have the same step limit, which may be shorter than the task's. A
race on the task's own episodes decides, and training episodes decide a tie. Episodes are compared by their
success, or by their return where the environment reports none.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from policies.base.noise import EpisodeNoise
from policies.executor import ChunkExecutor
from policies.registry import SavedPolicy
from robo_rl.apps.tuning.report import evaluation_seeds
from robo_rl.apps.tuning.start import env_name, env_options
from robo_rl.conf.finetune import FinetuneVerb, MethodConfig
from robo_rl.core.protocols import VecEnv
from robo_rl.core.seeding import derive_seed
from robo_rl.eval.race import Play, Played, Race, race
from robo_rl.eval.rollout import evaluate
from robo_rl.eval.stats import Measure, SuccessRate, chance_of_less, measure_of
from robo_rl.rl.collect import Collector, Experience
from robo_rl.rl.running import CollectedEpisode
from robo_rl.runs.device import device_of
from robo_rl.runs.learning_curve import StageRecord
from robo_rl.runs.loaded_policy import find_policy, trained_noise
from sim.registry import make_env
from sim.vec.on_device import copied_env

RECENT = 100  # last training episodes that count for the trained policy
MOST_PAIRS = 100
LEAST_EARLY = 8  # episodes of the base that began early enough, below which the later ones count as well
GOOD_ENOUGH = 0.97  # success of the last training episodes from which on no successor is trained
CLEARLY = 0.1  # p below which training episodes decide a tie


@dataclass
class TrainingEpisodes:
    """Success (1, 0) of the base's training episodes, and of the last ones of the trained policy, with their
    returns, which count where no success has ever been reported.

    Failures take longer than successes, so the last episodes that end before the base's phase does are mostly
    successes. Those of `base` began early enough to end in any case; `late` holds the others.
    """

    base: list[float] = field(default_factory=list)
    late: list[float] = field(default_factory=list)
    recent: deque[float] = field(default_factory=lambda: deque(maxlen=RECENT))
    returns: dict[str, deque[float]] = field(default_factory=dict)  # of the episodes in base, late and recent
    any_reported: bool = False  # whether any episode was reported as a success or a failure

    def add(self, episodes: Iterable[CollectedEpisode], phase: str, left: int = 0, limit: int = 0) -> None:
        """Add the episodes that ended in a phase of training.

        left: control steps until the base's phase ends. limit: steps of the longest episode; 0: all of the
        base's episodes count as early.
        """
        for episode in episodes:
            early = episode.steps + left >= limit
            name = "recent" if phase != "base" else "base" if early else "late"
            getattr(self, name).append(float(episode.success))
            most = RECENT if name == "recent" else None
            self.returns.setdefault(name, deque(maxlen=most)).append(episode.total_reward)
            self.any_reported |= episode.reported

    @property
    def by_return(self) -> bool:
        """True if returns are compared."""
        return bool(self.returns) and not self.any_reported

    def measures(self) -> dict[str, Measure]:
        """Success (or return) of `base`, in its early episodes if there are enough, and of `policy`, as far
        as known.
        """
        base, late, recent = self.base, self.late, list(self.recent)
        if self.by_return:
            base, late, recent = (list(self.returns.get(name, ())) for name in ("base", "late", "recent"))
        named = {"base": base if len(base) >= LEAST_EARLY else base + late, "policy": recent}
        return {
            name: measure_of(scores, by_return=self.by_return) for name, scores in named.items() if scores
        }

    def sentences(self) -> tuple[str, ...]:
        """The measures in words, if both are known."""
        found = self.measures()
        if len(found) < 2:
            return ()
        return (f"training episodes: base {found['base']}, last ones of the policy {found['policy']}",)

    def favour_policy(self) -> bool:
        """True if the policy's last episodes are better than the base's."""
        found = self.measures()
        return len(found) == 2 and found["policy"].value > found["base"].value

    def wins_ties(self) -> bool:
        """True unless the policy's last episodes are clearly worse than the base's, or are unknown.

        The policy explores in them, and the base does not: a somewhat lower success says nothing.
        """
        found = self.measures()
        return len(found) == 2 and chance_of_less(found["policy"], found["base"]) >= CLEARLY

    def outdo(self, other: Measure) -> bool:
        """True if the policy's last episodes are clearly better than those of another policy."""
        found = self.measures().get("policy")
        return found is not None and chance_of_less(other, found) < CLEARLY

    def good_enough(self) -> bool:
        """True if hardly any of the policy's last episodes fails, although it explores."""
        found = self.measures().get("policy")
        return isinstance(found, SuccessRate) and found.n >= RECENT and found.rate >= GOOD_ENOUGH

    def perfect_base(self, least: int) -> bool:
        """True if the base has succeeded in all of its episodes, at least `least` of them early; never for
        `least` = 0, nor by returns.
        """
        known = 0 < least <= len(self.base) and not self.by_return
        return known and all(self.base) and all(self.late)

    def state_dict(self) -> dict[str, Any]:
        lists = {"base": list(self.base), "late": list(self.late), "recent": list(self.recent)}
        returns = {name: list(values) for name, values in self.returns.items()}
        return lists | {"returns": returns, "any_reported": self.any_reported}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> TrainingEpisodes:
        """Older states have no `late`, and booleans of success."""
        base, late, recent = (list(map(float, state.get(name, ()))) for name in ("base", "late", "recent"))
        returns = {
            name: deque(values, maxlen=RECENT if name == "recent" else None)
            for name, values in state.get("returns", {}).items()
        }
        reported = bool(state.get("any_reported", state.get("told", False)))
        return cls(base, late, deque(recent, maxlen=RECENT), returns, reported)


def base_phase(collector: Experience, base_steps: int) -> tuple[int, int]:
    """Control steps that are left of the base's phase, and those of the longest episode; 0 and 0 for actors,
    which do not step together.
    """
    if not isinstance(collector, Collector):
        return 0, 0
    lanes = collector.num_lanes
    left = math.ceil(base_steps / lanes) - collector.env_steps // lanes
    return max(0, left), collector.env.spec.max_episode_steps


@dataclass(frozen=True)
class ComparedPolicy:
    """A policy with the scale of its initial noise."""

    name: str  # for messages
    policy: SavedPolicy
    noise_scale: float


@dataclass(frozen=True)
class Choice:
    """The policy that is kept, and what was found out about it."""

    kept: ComparedPolicy
    env_steps: int
    sentences: tuple[str, ...]
    cpu_s: float = 0.0  # CPU seconds of the successor's training
    stages: tuple[StageRecord, ...] = ()  # the successor's


@dataclass(frozen=True)
class Trained:
    """Policy and episodes of a training that has ended, and the environment steps that it took of `total`."""

    policy: SavedPolicy
    noise_scale: float
    episodes: TrainingEpisodes
    base_suffices: bool  # training ended because the base never failed
    steps: int
    total: int
    limit: int | None  # steps of its episodes; None: the task's own


# Makes another policy from the episodes of the training: it, and the CPU seconds. None: there is none.
Successor = Callable[[], tuple[SavedPolicy, float] | None]


def compared(
    config: FinetuneVerb,
    method: MethodConfig,
    base: SavedPolicy,
    found: Trained,
    successor: Successor | None = None,
) -> Choice:
    """Choice between the trained policy and the base, within the steps of the run that are left.

    successor: unless training has reached `GOOD_ENOUGH`, its policy races against the trained one first, in
    half of the steps. It takes its place if it solves more episodes, and on a tie unless the training
    episodes are clearly better.
    """
    plain = ComparedPolicy("the base without noise", base, method.base_noise)
    if method.base_noise != 0.0:
        plain = ComparedPolicy(f"the base with noise {method.base_noise:g}", base, method.base_noise)
    episodes = found.episodes
    if found.base_suffices:
        sentence = (
            f"The base succeeds in {episodes.measures()['base']} of its episodes. Training ends after "
            f"{found.steps} steps: there is nothing to learn from."
        )
        return Choice(plain, 0, (sentence,))
    left = min(found.total - found.steps, int(method.compare_share * found.total))
    contender = ComparedPolicy("the trained policy", found.policy, found.noise_scale)
    sentences, stages = list(episodes.sentences()), list[StageRecord]()
    spent, cpu_s = 0, 0.0
    if successor is not None and not episodes.good_enough() and (made := successor()) is not None:
        policy, cpu_s = made
        heir = ComparedPolicy("the policy that imitates its successes", policy, 0.0)
        raced = race_of(heir, contender, config, left // 2, found.limit)
        spent += raced.env_steps
        after, before = raced.measures() or (None, None)
        stages.append(StageRecord("imitation", raced.env_steps, before, after, "comparison"))
        stays = raced.lead == 0 and after is not None and episodes.outdo(after)
        succeeds = raced.lead >= 0 and not stays
        why = ", by its training episodes" if stays else ", on a tie" if raced.lead == 0 else ""
        sentences.append(_sentence(raced, heir, contender, succeeds, why))
        contender = heir if succeeds else contender
    own_noise = trained_noise(find_policy(str(config.base)))
    bases = (
        [plain] if own_noise == method.base_noise else [ComparedPolicy("the base", base, own_noise), plain]
    )
    choice = choose(contender, bases, episodes.favour_policy(), config, left - spent, episodes.wins_ties())
    sentences += choice.sentences
    return Choice(choice.kept, spent + choice.env_steps, tuple(sentences), cpu_s, tuple(stages))


def choose(
    trained: ComparedPolicy,
    bases: Sequence[ComparedPolicy],
    better: bool,
    config: FinetuneVerb,
    most_steps: int,
    wins_ties: bool,
) -> Choice:
    """Race the trained policy against its base within `most_steps`; the better one is kept.

    bases: the base as it is deployed, and perhaps as it acts in training. The latter has training episodes of
    its own, so it races only if these do not favour the trained policy. better: whether they do. wins_ties:
    whether the trained policy is kept if both solve as many episodes.
    """
    others = bases[:1] if better else bases
    kept, spent, sentences = trained, 0, []
    for i, other in enumerate(others):
        found = race_of(kept, other, config, (most_steps - spent) // (len(others) - i))
        spent += found.env_steps
        stays = found.lead > 0 or (found.lead == 0 and (kept is not trained or wins_ties))
        sentences.append(_sentence(found, kept, other, stays, "" if found.lead else ", on a tie"))
        kept = kept if stays else other
    return Choice(kept, spent, tuple(sentences))


def selection_seeds(config: FinetuneVerb) -> list[int]:
    """Seeds of the episodes on which policies are compared; the final ones are others."""
    return evaluation_seeds(env_name(config), derive_seed("selection", config.eval_seed), MOST_PAIRS)


def race_of(
    first: ComparedPolicy,
    second: ComparedPolicy,
    config: FinetuneVerb,
    most_steps: int,
    limit: int | None = None,
) -> Race:
    """Race of two policies within `most_steps`. limit: steps of an episode; None: the task's own limit."""
    options = env_options(config) | ({} if limit is None else {"max_episode_steps": limit})
    with closing(make_env(env_name(config), 1, 0, **options)) as env:
        one, other = (player(each, env, config) for each in (first, second))
        return race(one, other, selection_seeds(config), most_steps, env.spec.max_episode_steps)


def player(contender: ComparedPolicy, env: VecEnv, config: FinetuneVerb) -> Play:
    """Runs single episodes of a policy as it will be deployed. env: with one lane, so no step is lost."""
    policy = contender.policy
    device = device_of(policy)
    shape = (policy.chunk, policy.action_spec.dim)
    executor = partial(ChunkExecutor, device=device, masked=False)
    lane = copied_env(env, device)

    def play(seed: int) -> Played:
        noise = EpisodeNoise(shape, contender.noise_scale, device=device)
        found = evaluate(lane, policy, executor, noise, [seed])
        return Played(found.success[0], found.env_steps, found.returns[0], found.reports_success)

    return play


def _sentence(found: Race, kept: ComparedPolicy, other: ComparedPolicy, stays: bool, why: str) -> str:
    """Result of a race in words. why: what decided besides."""
    winner = kept if stays else other
    if (measures := found.measures()) is None:
        return f"no steps are left to compare {kept.name} with {other.name}: {winner.name} is kept"
    result = f"{kept.name} {measures[0]}, {other.name} {measures[1]} on the same episodes"
    return f"{result}: {winner.name} is kept{why}"
