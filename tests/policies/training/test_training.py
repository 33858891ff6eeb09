"""Base training: it learns, is a function of (seed, step), and a resumed run equals an uninterrupted one."""

from __future__ import annotations

import math
import os
import signal
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.utils.data import Dataset

from policies.base.diffusion import Diffusion, DiffusionConfig
from policies.training.base import BaseTrainConfig, BaseTrainer, learning_rate, train_base
from policies.training.batches import LoaderWindows, TensorWindows, batch_indices, draws
from robo_rl.core.errors import CheckpointError, ConfigError, DataError, RoboRLError
from robo_rl.core.files.state_io import load_state, save_state
from robo_rl.core.spec import ActionSpec
from tests.policies.worlds import CAMERA_ENV, ENV, policy_of, windows_of


def _short(**changes: float) -> BaseTrainConfig:
    settings = {
        "steps": 12,
        "batch_size": 16,
        "warmup_steps": 2,
        "checkpoint_every": 4,
        "log_every": 1,
    } | changes
    return BaseTrainConfig(**settings)  # type: ignore[arg-type]  # a mapping of mixed numbers


class _Log:
    def __init__(self) -> None:
        self.loss: dict[int, float] = {}

    def log(self, step: int, values: Mapping[str, float | Tensor]) -> None:
        self.loss[step] = float(values["base/loss"])


@pytest.mark.parametrize(
    ("process", "net"), [("flow", "mlp"), ("diffusion-sample", "mlp"), ("flow", "transformer")]
)
def test_one_batch_can_be_overfitted(process: str, net: str) -> None:
    """A policy that cannot memorise 16 windows has an error between data and loss."""
    policy, data = policy_of(process, net), windows_of(ENV, 16)
    config = _short(steps=400, batch_size=16, lr=1e-2, checkpoint_every=0, ema_max=0.95)
    trained = train_base(policy, data, config)
    noise = torch.randn(16, 8, 2, generator=torch.Generator().manual_seed(0))
    error = (trained.sample(data.obs, noise) - data.action).abs().mean().item()
    untrained = (policy_of(process, net).sample(data.obs, noise) - data.action).abs().mean().item()
    assert error < 0.25 * untrained


def test_no_bound_of_the_gradient_is_no_gradient_of_zero() -> None:
    """grad_clip=0 is no bound, as for other learners: the losses equal those of a very large bound."""
    data, logs = windows_of(ENV, 16), list[dict[int, float]]()
    for bound in (0.0, 1e9):
        log = _Log()
        train_base(policy_of(), data, _short(grad_clip=bound, lr=1e-2), logger=log)
        logs.append(log.loss)
    assert logs[0] == logs[1]
    assert logs[0][12] < logs[0][1]


def test_pictures_train_through_a_loader() -> None:
    """Image windows come from a DataLoader, physical actions and all; the encoder learns too."""

    class Windows(Dataset[dict[str, Tensor]]):
        data = windows_of(CAMERA_ENV, 24)

        def __len__(self) -> int:
            return 24

        def __getitem__(self, index: int) -> dict[str, Tensor]:
            return {k: v[index] for k, v in self.data.obs.items()} | {
                "action": 10.0 * self.data.action[index]
            }

    policy, log = policy_of(env=CAMERA_ENV), _Log()
    before = [p.clone() for p in policy.encoder.parameters()]
    spec = ActionSpec((-10.0, -10.0), (10.0, 10.0))
    train_base(policy, LoaderWindows(Windows(), spec), _short(steps=30, lr=3e-3), logger=log)
    assert sum(log.loss[i] for i in range(21, 31)) < sum(log.loss[i] for i in range(1, 11))
    assert all(not torch.equal(a, b) for a, b in zip(before, policy.encoder.parameters(), strict=True))


def test_loader_and_tensors_give_the_same_run() -> None:
    """Same order, same draws: the source of windows must not change the result."""
    data = windows_of(ENV, 40)

    class Windows(Dataset[dict[str, Tensor]]):
        def __len__(self) -> int:
            return 40

        def __getitem__(self, index: int) -> dict[str, Tensor]:
            return {k: v[index] for k, v in data.obs.items()} | {"action": data.action[index]}

    unit = ActionSpec((-1.0, -1.0), (1.0, 1.0))
    fast, slow = _Log(), _Log()
    train_base(policy_of(), data, _short(), logger=fast)
    train_base(policy_of(), LoaderWindows(Windows(), unit), _short(), logger=slow)
    assert slow.loss == pytest.approx(fast.loss, rel=1e-5)


def test_a_loader_draws_its_order_as_it_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The start of a training does not depend on its length."""
    drawn: list[int] = []

    def counted(*arguments: int) -> Iterator[Tensor]:
        for index in batch_indices(*arguments):
            drawn.append(1)
            yield index

    class Windows(Dataset[dict[str, Tensor]]):
        def __len__(self) -> int:
            return 10

        def __getitem__(self, index: int) -> dict[str, Tensor]:
            return {"state": torch.zeros(1, 3), "action": torch.zeros(8, 2)}

    monkeypatch.setattr("policies.training.batches.batch_indices", counted)
    source = LoaderWindows(Windows(), ActionSpec((-1.0, -1.0), (1.0, 1.0)))
    obs, action = next(source.batches(4, 0, 0, 1_000_000, torch.device("cpu")))
    assert (len(drawn), obs["state"].shape, action.shape) == (1, (4, 1, 3), (4, 8, 2))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_loader_survives_a_signal_to_the_process_group(number: signal.Signals) -> None:
    """The parent decides when to stop: it needs its loader for the update after which it saves."""

    class Windows(Dataset[dict[str, Tensor]]):
        def __len__(self) -> int:
            return 100

        def __getitem__(self, index: int) -> dict[str, Tensor]:
            return {"worker": torch.tensor(float(os.getpid())), "action": torch.zeros(8, 2)}

    source = LoaderWindows(Windows(), ActionSpec((-1.0, -1.0), (1.0, 1.0)), workers=1)
    batches = source.batches(2, 0, 0, 40, torch.device("cpu"))
    worker = int(next(batches)[0]["worker"][0])
    assert worker != os.getpid()
    os.kill(worker, number)
    assert sum(1 for _ in batches) == 39
    with pytest.raises(ProcessLookupError):
        os.kill(worker, 0)  # it ended with its work


def test_every_window_is_seen_once_per_epoch() -> None:
    """10 windows in batches of 4: two epochs are five batches, and the first ten indices are a
    permutation.
    """
    batches = list(batch_indices(10, 4, seed=3, start=0, stop=5))
    indices = torch.cat(batches).tolist()
    assert sorted(indices[:10]) == sorted(indices[10:]) == list(range(10))
    assert indices[:10] != indices[10:]
    later = list(batch_indices(10, 4, seed=3, start=3, stop=5))
    assert [b.tolist() for b in later] == [b.tolist() for b in batches[3:]]
    big = next(batch_indices(3, 8, seed=0, start=1, stop=2))
    assert len(big) == 8  # a batch may span several epochs
    with pytest.raises(DataError, match="no window"):
        next(batch_indices(0, 4, 0, 0, 1))


def test_draws_depend_on_seed_and_step_only() -> None:
    """u is stratified: exactly one in each interval [i/b, (i+1)/b)."""
    action = torch.zeros(16, 8, 2)
    first, again, other = draws(1, 5, action, 1), draws(1, 5, action, 1), draws(1, 6, action, 1)
    assert first.noise.equal(again.noise)
    assert not first.noise.equal(other.noise)
    assert (first.u * 16).long().tolist() == list(range(16))
    assert first.crop.shape == (16, 1, 2)


@pytest.mark.parametrize("train_steps", [2, 50, 100, 128, 1000])
def test_no_time_of_the_loss_is_behind_the_last_training_step(train_steps: int) -> None:
    """Update 17,919 of seed 3 draws 255.99999 of 256, which float32 rounds to 256: training step 100 of 0 ...
    99.

    One update in 130,000 is like it at a batch of 256, one in 30,000 at 1,024; each ended the training.
    """
    action = torch.zeros(256, 1, 1)
    drawn = draws(3, 17_919, action, 0)
    assert 0.9999 < float(drawn.u.max()) < 1.0
    process = Diffusion.build(DiffusionConfig(train_steps=train_steps, steps=2))
    loss = process.bc_loss(lambda x, t, cond: x, action[:, 0], action, drawn.noise, drawn.u)
    assert torch.isfinite(loss).all()


def test_learning_rate_by_hand() -> None:
    """Warm-up 10 of 110: 1/10 at the first update, full at the tenth, half way in the middle, the floor at
    the end.
    """
    config = BaseTrainConfig(steps=110, warmup_steps=10, lr=2.0, final_lr=0.1)
    assert learning_rate(0, config) == pytest.approx(0.2)
    assert learning_rate(9, config) == pytest.approx(2.0)
    assert learning_rate(60, config) == pytest.approx(2.0 * (0.1 + 0.9 * 0.5))
    assert learning_rate(110, config) == pytest.approx(0.2)


def test_a_short_training_passes_its_warm_up() -> None:
    """100 of 50 steps would end at half of the rate: a tenth of the steps is the most."""
    short = BaseTrainConfig(steps=50, warmup_steps=100, lr=2.0, final_lr=0.1)
    assert [learning_rate(step, short) for step in (0, 4)] == pytest.approx([0.4, 2.0])
    assert learning_rate(49, short) < 0.21
    assert learning_rate(0, BaseTrainConfig(steps=3, lr=2.0)) == 2.0


def test_resumed_equals_uninterrupted(tmp_path: Path) -> None:
    """Promise 7, to the last bit: weights, average, optimiser and log after a restart at update 4."""
    data, whole, second = windows_of(ENV, 50), _Log(), _Log()
    expected = BaseTrainer(policy_of(), data, _short(), whole)
    _advance(expected, 12)
    first = BaseTrainer(policy_of(), data, _short())
    _advance(first, 4)
    save_state(tmp_path, first.state_dict())
    resumed = BaseTrainer(policy_of(seed=9), data, _short(), second)
    resumed.load_state_dict(load_state(tmp_path))
    _advance(resumed, 8)
    assert resumed.done
    assert second.loss == {step: loss for step, loss in whole.loss.items() if step >= 5}
    save_state(tmp_path / "whole", expected.state_dict())
    save_state(tmp_path / "resumed", resumed.state_dict())
    files = [tmp_path / run / "state.safetensors" for run in ("whole", "resumed")]
    assert files[0].read_bytes() == files[1].read_bytes()
    for key, value in expected.result().state_dict().items():
        assert resumed.result().state_dict()[key].equal(value), key


def _advance(trainer: BaseTrainer, updates: int) -> None:
    for _ in range(updates):
        trainer.advance()


def test_resume_refuses_other_settings_and_other_networks() -> None:
    """Another learning rate would belong to neither run; `log_every` does not change the result."""
    data = windows_of(ENV, 50)
    saved = BaseTrainer(policy_of(), data, _short())
    saved.advance()
    state = saved.state_dict()
    with pytest.raises(CheckpointError, match=r"lr=0\.001 and cannot be continued with lr=0\.5"):
        BaseTrainer(policy_of(), data, _short(lr=0.5)).load_state_dict(state)
    with pytest.raises(CheckpointError, match="lacks the tensors"):
        BaseTrainer(policy_of(net="transformer"), data, _short()).load_state_dict(state)
    resumed = BaseTrainer(policy_of(), data, _short(log_every=3))
    resumed.load_state_dict(state)
    assert resumed.step == 1


def test_nan_data_are_reported() -> None:
    """The first report states that the data are the cause."""
    data = windows_of(ENV, 50)
    broken = TensorWindows(data.obs, data.action * math.nan)
    with pytest.raises(RoboRLError, match="training loss is nan at update 1"):
        train_base(policy_of(), broken, _short())
    with pytest.raises(ConfigError, match="batch_size=0"):
        train_base(policy_of(), data, _short(batch_size=0))


def test_physical_windows_are_normalised_to_the_limits() -> None:
    """Limits (-2, 0)..(2, 10): the action (1, 5) is (0.5, 0) for the policy."""
    windows = {"state": torch.zeros(1, 2, 3), "action": torch.tensor([[[1.0, 5.0]]])}
    data = TensorWindows.from_physical(windows, ENV.action)
    assert data.action.tolist() == [[[0.5, 0.0]]]
    assert list(data.obs) == ["state"]
