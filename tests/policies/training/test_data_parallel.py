"""Data-parallel training in real processes: the weights are those of one process, and resuming is exact."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

from policies.training.base import BaseTrainer, _Loss
from policies.training.batches import batch_indices, draws
from policies.training.data_parallel import averaged_loss
from robo_rl.core.errors import ConfigError
from robo_rl.core.files.state_io import load_state
from robo_rl.core.spec import EnvSpec
from robo_rl.nets.ranks import Ranks
from robo_rl.rl.scale.process_group import RankError
from robo_rl.rl.scale.torchrun import launch
from tests.policies.small_vla import drawn, seen, small_vla
from tests.policies.training.train_in_ranks import SHARDED, WINDOWS, Losses, config
from tests.policies.worlds import CAMERA_ENV, ENV, NETS, policy_of, windows_of

PROGRAM = str(Path(__file__).with_name("train_in_ranks.py"))


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    """The program of the ranks imports `tests`, which is no installed package."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[3]))


def equal(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[key], other[key]) for key in one)


def test_shards_of_all_ranks_are_the_batch_of_one_process() -> None:
    """Every window of an epoch belongs to exactly one rank, with the random numbers that it has in one
    process.
    """
    ranks = [Ranks(rank, 4) for rank in range(4)]
    for index in batch_indices(WINDOWS, 24, 0, 0, 4):
        assert torch.equal(torch.cat([each.shard(index) for each in ranks]), index)
    action = torch.zeros(24, 8, 2)
    whole = draws(0, 3, action, 1)
    parts = [draws(0, 3, each.shard(action), 1, each) for each in ranks]
    for name in ("noise", "u", "crop"):
        assert torch.equal(torch.cat([getattr(part, name) for part in parts]), getattr(whole, name))


def test_shards_of_a_vla_have_the_losses_of_one_process() -> None:
    """Draw j of a window takes the noise of another window of the entire batch, also where that is another
    rank's.
    """
    policy, ranks, rows = small_vla().requires_grad_(True), [Ranks(rank, 2) for rank in range(2)], 8
    obs, action = seen(*("left", "right") * 4), drawn(rows).clamp(-1.0, 1.0)

    def losses(each: Ranks) -> torch.Tensor:
        trainer = BaseTrainer(policy, windows_of(ENV, rows), config(), ranks=each)
        own, mine = each.shard(action), {key: each.shard(value) for key, value in obs.items()}
        draw = trainer._draws(own)
        return policy.bc_loss(mine, own, draw.noise, draw.u, draw.crop).detach()

    whole = losses(Ranks())
    torch.testing.assert_close(torch.cat([losses(each) for each in ranks]), whole)
    draw = draws(0, 0, action, policy.cameras)  # one noise for each window
    torch.testing.assert_close(policy.bc_loss(obs, action, draw.noise, draw.u, draw.crop), whole)


def test_a_batch_that_cannot_be_divided_is_refused() -> None:
    with pytest.raises(ConfigError, match="batch_size=24 cannot be divided equally between 5 processes"):
        BaseTrainer(policy_of(), windows_of(ENV, WINDOWS), config(), ranks=Ranks(0, 5))


@pytest.fixture
def group_of_one() -> Iterator[None]:
    """A process group of this process alone."""
    store = dist.HashStore()  # type: ignore[attr-defined]  # missing in torch's __all__
    dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.parametrize(("net", "env"), [*((net, ENV) for net in NETS), ("mlp", CAMERA_ENV)])
def test_every_parameter_takes_part_in_the_loss(group_of_one: None, net: str, env: EnvSpec) -> None:
    """DistributedDataParallel waits for a gradient of each parameter, so one without would stop it. The
    rehearsal leaves weights and gradients as they were.
    """
    policy, data = policy_of(net=net, env=env), windows_of(env, 8)
    before = {key: value.clone() for key, value in policy.state_dict().items()}
    example = (data.obs, data.action, draws(0, 0, data.action, len(policy.encoder.cameras)))
    averaged_loss(_Loss(policy), example)
    assert equal(policy.state_dict(), before)
    assert all(parameter.grad is None for parameter in policy.parameters())


def test_a_prefix_whose_last_layer_takes_no_part(group_of_one: None) -> None:
    """A VLA's expert reads keys and values; the output of the prefix's last layer is for critics."""
    pytest.importorskip("transformers", reason="transformers is not installed: pip install 'robo-rl[vla]'")
    from tests.policies.vla import test_policy as vla

    policy, obs = vla.policy().train(), vla.observation("open the drawer", "close the drawer")
    action = torch.zeros(2, vla.TP, 2)
    module = averaged_loss(_Loss(policy), (obs, action, draws(0, 0, action, policy.cameras)))
    for step in range(2):
        module(obs, action, draws(0, step, action, policy.cameras)).backward()
    lacking = {name for name, each in policy.named_parameters() if each.requires_grad and each.grad is None}
    assert lacking
    assert all(name.startswith(("backbone.text.layers.1.", "backbone.text.norm")) for name in lacking)


@pytest.mark.slow
def test_two_ranks_train_the_policy_of_one(tmp_path: Path) -> None:
    """Same global batch: weights and losses agree to 1e-5, both ranks hold the same weights, and a vote of
    rank 1 reaches both at the same step.
    """
    launch([PROGRAM, str(tmp_path), "train"], 2, 1)
    losses = Losses()
    alone = BaseTrainer(policy_of(), windows_of(ENV, WINDOWS), config(), losses)
    while not alone.done:
        alone.advance()
    first, second = (load_state(tmp_path / f"rank{rank}") for rank in range(2))
    assert equal(first["policy"], second["policy"])
    assert (first["stop_at"], second["stop_at"]) == (10, 10)
    assert first["losses"] == pytest.approx(losses.values, rel=1e-5)
    for name in ("policy", "average"):
        for key, value in alone.state_dict()[name].items():
            torch.testing.assert_close(first[name][key], value, rtol=0.0, atol=1e-5)
    untrained = policy_of().state_dict()
    assert any((first["policy"][key] - untrained[key]).abs().max() > 1e-2 for key in untrained)


@pytest.mark.slow
def test_three_ranks_resume_to_the_same_bits(tmp_path: Path) -> None:
    """Sums of three gradients depend on their grouping, which must be that of the uninterrupted training."""
    launch([PROGRAM, str(tmp_path), "train"], 3, 1)
    launch([PROGRAM, str(tmp_path), "resume"], 3, 1)
    whole = load_state(tmp_path / "rank0")
    for rank in range(3):
        assert equal(load_state(tmp_path / f"resumed{rank}")["policy"], whole["policy"])
    assert equal(load_state(tmp_path / "resumed0")["average"], whole["average"])


@pytest.mark.slow
def test_shards_train_the_policy_of_one_process(tmp_path: Path) -> None:
    """Every network: losses agree, and where rounding is not magnified, the weights to 1e-5; each rank holds
    about half of the numbers; a resumed training has the same bits.
    """
    launch([PROGRAM, str(tmp_path), "shards"], 2, 1)
    for name, env in SHARDED.items():
        policy = policy_of(net="mlp" if name == "pictures" else name, env=env)
        losses = Losses()
        alone = BaseTrainer(policy, windows_of(env, WINDOWS), config(), losses)
        while not alone.done:
            alone.advance()
        found, resumed = (load_state(tmp_path / f"{name}-{step}") for step in (12, "resumed"))
        for part in ("policy", "average"):
            for key, value in alone.state_dict()[part].items():
                atol = 1e-5 if name in ("mlp", "unet1d") else 2e-3
                torch.testing.assert_close(found[part][key], value, rtol=0.0, atol=atol)
            assert equal(resumed[part], found[part]), (name, part)
        assert found["losses"] == pytest.approx(losses.values, rel=1e-4)
        numbers = sum(each.numel() for each in policy.parameters())
        held = [load_state(tmp_path / f"{name}-held-{rank}")["numbers"] for rank in range(2)]
        assert sum(held) == numbers
        assert max(held) <= 0.6 * numbers


@pytest.mark.slow
def test_the_error_of_a_rank_is_raised_by_the_launcher(tmp_path: Path) -> None:
    """Rank 0 only lost its peer: the sentence and the exit code are rank 1's."""
    with pytest.raises(RankError, match=r"^Rank 1 found a fault: in its data\.$") as caught:
        launch([PROGRAM, str(tmp_path), "fail"], 2, 1)
    assert (caught.value.exit_code, caught.value.own) == (2, True)
