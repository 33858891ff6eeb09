"""Every method is a small file with its paper's values; settings that do not fit together are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from policies.tuned.direct import DirectPolicy
from robo_rl.apps.tuning.compose import check_interventions
from robo_rl.apps.tuning.maps import build_map, check_together
from robo_rl.apps.tuning.report import can_replay_demos
from robo_rl.core.action_map import ResidualMap
from robo_rl.core.errors import ConfigError
from robo_rl.data.store import EpisodeStore
from tests.apps.tuning.methods.published_corrections import PUBLISHED_CORRECTIONS
from tests.apps.tuning.methods.published_from_scratch import PUBLISHED_FROM_SCRATCH
from tests.apps.tuning.methods.published_on_policy import PUBLISHED_ON_POLICY
from tests.apps.tuning.methods.toy_sessions import FILES, METHODS, method, session, small
from tests.policies.small import flow_policy
from tests.policies.small_vla import small_vla
from tests.rl.worlds import SPEC

PAPER = PUBLISHED_CORRECTIONS | PUBLISHED_FROM_SCRATCH | PUBLISHED_ON_POLICY


def read(config: Any, key: str) -> Any:
    for part in key.split("."):
        config = getattr(config, part)
    return config


@pytest.mark.parametrize("path", FILES, ids=[path.stem for path in FILES])
def test_method_file_is_short_and_cites_its_source(path: Path) -> None:
    """At most 20 lines, a comment at the top, its own name inside."""
    text = path.read_text()
    assert len(text.splitlines()) <= 20
    assert text.startswith("# ")
    assert method(path.stem).name == path.stem


@pytest.mark.parametrize("name", PAPER)
def test_method_has_the_values_of_its_paper(name: str) -> None:
    """Value by value; a changed default elsewhere must not change a published recipe."""
    config = method(name)
    wrong = {key: read(config, key) for key, value in PAPER[name].items() if read(config, key) != value}
    assert not wrong


def test_every_published_method_is_checked() -> None:
    """All methods but this project's own."""
    assert set(PAPER) - {"ppo_tokens"} == set(METHODS) - {
        "steering",
        "residual",
        "residual_far",
        "residual_dense",
        "fast_residual",
        "residual_lanes",
        "residual_cautious",
        "denoising",
    }


@pytest.mark.parametrize(
    ("overrides", "word"),
    [
        (["bro", "method.learner.critic_hidden=[8,16]"], "must be equal"),
        (["bro", "method.algorithm=ppo"], "needs method.algorithm=off_policy"),
        (["qc", "method.resets=[10]"], "needs method.algorithm=off_policy"),
        (["bro", "method.encoder=learned"], "not an encoder of pictures"),
        (["simba_v2", "method.guard_window=10"], "weights of a fixed length"),
        (["residual", "method.learner.network=simba_v2"], "weights of a fixed length"),
        (["simba_v2", "method.encoder=learned"], "statistics of stored observations"),
        (["xqc", "method.encoder=learned"], "statistics of stored observations"),
        (["xqc", "method.map.kind=residual"], "weights of a fixed length"),
        (["resip", "method.learner.lr_end=0.5"], "needs method.algorithm=off_policy"),
    ],
)
def test_deep_critics_refuse_what_they_do_not_fit(overrides: list[str], word: str) -> None:
    config = method(*overrides)
    base = DirectPolicy(SPEC) if config.map.kind == "direct" else flow_policy(SPEC)
    with pytest.raises(ConfigError, match=word):
        check_together(config, build_map(config.map, base), base)


def test_dsrl_variants_differ_only_in_the_learner() -> None:
    """DSRL-NA keeps all values of DSRL-SAC, and replays demonstrations if there are some."""
    one, other = method("dsrl_sac"), method("dsrl_na")
    assert other.mix.demo > 0.0
    assert not other.needs_demos
    for name in ("name", "algorithm", "mix", "needs_demos"):
        setattr(other, name, getattr(one, name))
    assert one == other


def test_ppo_refuses_ramp_steps(demos: EpisodeStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """ramp_steps lets the base act at random, but PPO needs the probability of every action."""
    with pytest.raises(ConfigError, match=r"method.ramp_steps=0"):
        session(small("resip", "method.ramp_steps=100"), demos, monkeypatch)


def test_interventions_with_chunks_are_refused() -> None:
    """An intervention inside a chunk cannot be assigned: refused before anything is built."""
    with pytest.raises(ConfigError, match=r"per_chunk=false, or method\.reward_source=task"):
        check_together(method("rlif"), ResidualMap(2, 0.1, 8), flow_policy(SPEC))
    check_together(method("rlif"), ResidualMap(2, 0.1, 1), flow_policy(SPEC))


@pytest.mark.parametrize("name", ["steering", "dsrl_sac", "resip", "dppo"])
def test_interventions_are_not_credited_to_what_was_not_executed(name: str) -> None:
    """Critics of the noise, and PPO, judge the policy's own choice; a human's outcome is not its doing."""
    with pytest.raises(ConfigError, match=r"method\.intervene=none, or choose"):
        check_interventions(method(name, "method.intervene=expert"), "arm/lift")
    for other in ("dsrl_na", "residual"):
        check_interventions(method(other, "method.intervene=expert"), "arm/lift")


def test_rlif_needs_interventions(demos: EpisodeStore) -> None:
    """RLIF without intervene=expert, or without an expert, has no reward, so it is refused. Another method
    may go on without interventions.
    """
    with pytest.raises(ConfigError, match="intervene=expert"):
        check_interventions(method("rlif", "method.intervene=none"), "metaworld/reach-v3")
    for name, instead in (("rlif", "Learn from recorded"), ("rlpd", r"Set method\.intervene=none")):
        config = method(name, "method.intervene=expert")
        with pytest.raises(ConfigError, match=rf"'gym/Hopper-v5' does not have; .*\. {instead}"):
            check_interventions(config, "gym/Hopper-v5")


def test_demonstrations_are_advised_for_methods_that_replay_them() -> None:
    """PPO and GRPO learn from their own rollouts alone, and decisions of a memory are not in a dataset."""
    assert can_replay_demos(method("residual"), flow_policy(SPEC))
    assert not can_replay_demos(method("residual"), small_vla(memory=3))
    for name in ("resip", "dppo", "grpo"):
        assert not can_replay_demos(method(name), flow_policy(SPEC))
