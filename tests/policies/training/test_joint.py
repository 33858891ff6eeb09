"""One vision-language-action network for several embodiments: padding, shares of a batch, losses, storage."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from policies.checkpoint import load_policy, save_policy
from policies.training.base import BaseTrainConfig, train_base
from policies.training.batches import TensorWindows
from policies.training.joint import JointVla, JointWindows, joint_policy
from policies.vla.config import VlaConfig
from policies.vla.experts import PaddedExpert
from robo_rl.core.errors import ConfigError
from robo_rl.core.protocols import Obs
from robo_rl.core.spec import ActionSpec, ArraySpec, EnvSpec, target_of
from robo_rl.core.text.instruction import INSTRUCTION, INSTRUCTION_SPEC, to_bytes
from robo_rl.data.normalizer import Normalizer
from robo_rl.nets.ranks import Ranks

TP = 4
PICTURE = ArraySpec((16, 16, 3), "uint8")


def embodiment(name: str, actions: int, states: int, cameras: int) -> EnvSpec:
    pictures = {f"image.{i}": PICTURE for i in range(cameras)}
    obs = {"state": ArraySpec((states,)), **pictures, INSTRUCTION: INSTRUCTION_SPEC}
    return EnvSpec(name, obs, ActionSpec((-1.0,) * actions, (1.0,) * actions), 10, 10.0)


ARM, HAND = embodiment("fake/arm", 2, 5, 2), embodiment("fake/hand", 6, 3, 1)
CONFIG = VlaConfig(width=32, layers=2, heads=4, kv_heads=2)
POINTS = replace(CONFIG, spatial=1.0, film=True)


def joint(*envs: EnvSpec, config: VlaConfig = CONFIG, scrambled: bool = True) -> JointVla:
    """scrambled: its expert is not at its zero start."""
    torch.manual_seed(0)
    each = [(env, Normalizer({"state": env.obs["state"].shape})) for env in envs]
    made = joint_policy(each, config, TP, 2, ["go"])
    for parameter in made.policies[0].net.parameters() if scrambled else ():
        torch.nn.init.normal_(parameter, std=0.2)
    return made.eval()


def windows(env: EnvSpec, count: int, seed: int = 0, *, targets: bool = False) -> TensorWindows:
    rng = torch.Generator().manual_seed(seed)
    words = torch.from_numpy(to_bytes("go").copy()).expand(count, 1, -1)
    obs: dict[str, Tensor] = {
        "state": torch.randn(count, 1, *env.obs["state"].shape, generator=rng),
        INSTRUCTION: words,
    }
    for key in env.obs:
        if key.startswith("image"):
            drawn = torch.randint(0, 256, (count, 1, *PICTURE.shape), generator=rng, dtype=torch.uint8)
            obs[key] = drawn
    if targets:
        for key in [key for key in obs if key.startswith("image")]:
            obs[target_of(key)] = torch.rand(count, 1, 2, generator=rng) - 0.5
    return TensorWindows(obs, torch.rand(count, TP, env.action.dim, generator=rng) * 2.0 - 1.0)


def first_batch(source: JointWindows, size: int) -> tuple[Obs, Tensor]:
    batches: Iterator[tuple[Obs, Tensor]] = source.batches(size, 0, 0, 1, torch.device("cpu"))
    return next(batches)


def test_networks_are_shared_and_statistics_are_not() -> None:
    both, alone = joint(ARM, HAND), joint(HAND)
    first, second = both.policies
    assert first.backbone is second.backbone
    assert first.normalizer is not second.normalizer
    shared = {id(each) for each in first.parameters()}
    assert {id(each) for each in second.parameters()} == shared
    assert len(list(both.parameters())) == len(shared)
    assert (first.action_spec.dim, second.action_spec.dim) == (2, 6)
    assert alone.policies[0].embodiment.tolist() == [1.0]
    assert [policy.embodiment.tolist() for policy in both.policies] == [[1.0, 0.0], [0.0, 1.0]]


def test_padded_dimensions_change_nothing() -> None:
    """The weights of dimensions that the arm has not are never read: NaN there leaves its actions as they
    are, and those of the hand are NaN.
    """
    policies = joint(ARM, HAND).policies
    seen = [windows(env, 3).obs for env in (ARM, HAND)]
    noise = [torch.randn(3, TP, env.action.dim) for env in (ARM, HAND)]
    before = policies[0].sample(seen[0], noise[0])
    first, second = (policy.net for policy in policies)
    assert isinstance(first, PaddedExpert)
    assert isinstance(second, PaddedExpert)
    assert first.inner is second.inner
    with torch.no_grad():
        first.inner.last.weight[2:] = torch.nan
    assert torch.equal(policies[0].sample(seen[0], noise[0]), before)
    assert policies[1].sample(seen[1], noise[1]).isnan().any()


def test_rows_of_a_batch_are_shared_by_the_number_of_windows() -> None:
    """30 and 10 windows: 6 and 2 of 8 rows. One of 1,000 gets one row all the same."""
    assert JointWindows((windows(ARM, 30), windows(HAND, 10))).counts(8) == [6, 2]
    assert JointWindows((windows(ARM, 3), windows(HAND, 1))).counts(5) == [4, 1]
    assert JointWindows((windows(ARM, 999), windows(HAND, 1))).counts(16) == [15, 1]
    with pytest.raises(ConfigError, match="batch_size=1 is smaller than the number of embodiments, 2"):
        JointWindows((windows(ARM, 3), windows(HAND, 1))).counts(1)
    with pytest.raises(ConfigError, match="trained in one process"):
        next(JointWindows((windows(ARM, 3),)).batches(2, 0, 0, 1, torch.device("cpu"), Ranks(0, 2)))


def test_every_window_is_seen_once_an_epoch() -> None:
    source = JointWindows((windows(ARM, 6), windows(HAND, 2)))
    seen: list[Tensor] = []
    for obs, action in source.batches(4, 0, 0, 2, torch.device("cpu")):
        assert len(obs["0/state"]) == 3
        assert len(obs["1/state"]) == 1
        assert action[:3, :, 2:].eq(0).all()
        seen.append(obs["0/state"])
    rows, wanted = torch.cat(seen).flatten(1), windows(ARM, 6).obs["state"].flatten(1)
    assert sorted(map(tuple, rows.tolist())) == sorted(map(tuple, wanted.tolist()))


def test_the_loss_is_that_of_each_policy_at_times_over_all_of_0_to_1() -> None:
    """Rows 0 to 5 are the arm's: their stratified u, below 0.75, is stretched to [0, 1)."""
    both = joint(ARM, HAND)
    obs, chunk = first_batch(JointWindows((windows(ARM, 30), windows(HAND, 10))), 8)
    noise, u = torch.randn(8, 2, TP, 6), (torch.arange(8) + 0.5) / 8
    found = both.bc_loss(obs, chunk, noise, u)
    arm = {key.removeprefix("0/"): value for key, value in obs.items() if key.startswith("0/")}
    times = (torch.arange(6) + 0.5) / 6
    wanted = both.policies[0].bc_loss(arm, chunk[:6, :, :2], noise[:6, ..., :2], times)
    torch.testing.assert_close(found[:6], wanted)
    assert found.shape == (8,)


@pytest.mark.long
def test_it_learns_two_embodiments_and_each_policy_is_stored_alone(tmp_path: Path) -> None:
    """Two windows by heart: each policy is near its own chunk, also when it was saved and loaded."""
    sources = [windows(env, 1, seed) for seed, env in enumerate((ARM, HAND))]
    # The tiny picture would be cut to another place every time.
    model = joint(ARM, HAND, config=replace(CONFIG, layers=1, crop=1.0, draws=1), scrambled=False)
    config = BaseTrainConfig(steps=100, batch_size=8, lr=5e-3, ema_max=0.9, log_every=1000)
    trained = train_base(model, JointWindows(tuple(sources)), config)
    assert isinstance(trained, JointVla)
    for number, (policy, source) in enumerate(zip(trained.policies, sources, strict=True)):
        noise = torch.randn(1, TP, policy.action_spec.dim, generator=torch.Generator().manual_seed(5))
        chunk = policy.sample(source.obs, noise)
        assert (chunk - source.action).abs().mean() < 0.45  # of an untrained policy: 0.7
        save_policy(tmp_path / str(number), policy)
        torch.testing.assert_close(load_policy(tmp_path / str(number)).sample(source.obs, noise), chunk)


def test_points_condition_each_embodiment() -> None:
    """The arm has two cameras, the hand one: the second point that the network reads of it is zero."""
    both = joint(ARM, HAND, config=POINTS)
    arm, hand = both.policies
    conds = [policy.encode(windows(policy.env, 3).obs) for policy in both.policies]
    assert [cond.state.shape[1] for cond in conds] == [5 + 2 + 4] * 2
    assert arm.predicted_points(conds[0]).shape == (3, 2, 2)
    assert hand.predicted_points(conds[1]).shape == (3, 1, 2)
    assert torch.equal(conds[1].state[:, 7:9], hand.predicted_points(conds[1])[:, 0])
    assert torch.equal(conds[1].state[:, 9:], torch.zeros(3, 2))
    noise = torch.randn(3, TP, 6)
    moved = replace(conds[1], state=conds[1].state + torch.tensor([0.0] * 7 + [0.5] * 2 + [0.0] * 2))
    assert (hand.sample_from(conds[1], noise) - hand.sample_from(moved, noise)).abs().max() > 1e-3


def test_the_points_of_an_embodiment_without_targets_are_not_in_its_loss() -> None:
    """The weight of policy.spatial changes the losses of the arm, whose windows have targets, alone."""
    source = JointWindows((windows(ARM, 4, targets=True), windows(HAND, 4)))
    obs, chunk = first_batch(source, 8)
    noise, u = torch.randn(8, 2, TP, 6), (torch.arange(8) + 0.5) / 8
    less, more = (
        joint(ARM, HAND, config=replace(POINTS, spatial=weight)).bc_loss(obs, chunk, noise, u)
        for weight in (1.0, 2.0)
    )
    assert (more - less)[:4].min() > 0.0
    assert torch.equal(less[4:], more[4:])


def test_points_of_two_embodiments_are_learned_from_one_batch(tmp_path: Path) -> None:
    """Their errors fall below a twentieth. Each policy is stored alone and acts bit for bit as before."""
    model = joint(ARM, HAND, config=replace(POINTS, layers=1, crop=1.0, draws=1), scrambled=False)
    sources = [windows(env, 2, seed, targets=True) for seed, env in enumerate((ARM, HAND))]
    obs, chunk = first_batch(JointWindows(tuple(sources)), 4)

    def errors() -> list[float]:
        found = []
        for policy, source in zip(model.policies, sources, strict=True):
            wanted = torch.stack([source.obs[target_of(key)][:, 0] for key in policy.pictures], 1)
            points = policy.predicted_points(policy.encode(source.obs)).detach()
            found.append(float((points - wanted).square().mean()))
        return found

    before, optimizer = errors(), torch.optim.Adam(model.parameters(), 3e-3)
    for _ in range(60):
        optimizer.zero_grad()
        model.bc_loss(obs, chunk, torch.randn(4, TP, 6), torch.rand(4)).mean().backward()
        optimizer.step()
    assert all(now < 0.05 * first for now, first in zip(errors(), before, strict=True))
    for number, (policy, source) in enumerate(zip(model.policies, sources, strict=True)):
        save_policy(tmp_path / str(number), policy)
        noise = torch.randn(2, TP, policy.action_spec.dim)
        with torch.no_grad():
            wanted = policy.sample(source.obs, noise)
            assert torch.equal(load_policy(tmp_path / str(number)).sample(source.obs, noise), wanted)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"memory": 2}, "policy.memory=2 cannot be used with several embodiments"),
        ({"head": "tokens"}, "policy.head=tokens cannot"),
    ],
)
def test_settings_of_one_embodiment_are_refused(settings: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        joint(ARM, HAND, config=replace(CONFIG, **settings))  # type: ignore[arg-type]


def test_pictures_of_two_sizes_are_refused() -> None:
    large = replace(HAND, obs={**HAND.obs, "image.0": ArraySpec((32, 16, 3), "uint8")})
    with pytest.raises(
        ConfigError, match=r"image\.0 of fake/hand is 32 x 16, image\.0 of another .* 16 x 16"
    ):
        joint(ARM, large)
