"""Contrastive learning of moment tokens before imitation: they alone change, and tell frames apart."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Mapping
from pathlib import Path

import pytest
import torch
from torch import Tensor

from policies.checkpoint import save_policy
from policies.training.base import BaseTrainConfig, BaseTrainer, learning_rate
from policies.training.batches import TensorWindows
from policies.training.moments import TEMPERATURE, moment_logits, moment_loss, moment_steps, relit, views
from policies.vla.config import VlaConfig, check_config
from policies.vla.policy import VlaPolicy
from robo_rl.apps.training.initial_policy import load_initial, with_shape_of
from robo_rl.conf.train import TrainConfig
from robo_rl.core.conditioning import HELD
from robo_rl.core.errors import ConfigError
from robo_rl.core.files.state_io import load_state, save_state
from robo_rl.core.protocols import Obs
from robo_rl.core.text.instruction import INSTRUCTION, to_bytes
from robo_rl.nets.ranks import Ranks
from tests.policies.small_vla import CAMERAS, TP, small_vla

pytest.importorskip("transformers", reason="transformers is not installed: pip install 'robo-rl[vla]'")

K, ROWS, CPU = 2, 12, torch.device("cpu")
TOKENS = "memory.tokens"


def policy(phase: int, crop: float = 0.9) -> VlaPolicy:
    made = small_vla(memory=K)
    config = dataclasses.replace(made.shape, moment_steps=phase, crop=crop)
    if crop != made.shape.crop:
        torch.manual_seed(0)
        made = VlaPolicy(made.env, made.normalizer, config, TP, made.execute, made.vocabulary)
    made.shape = config
    return made.train().requires_grad_(True)


def windows(rows: int = ROWS) -> Obs:
    """Light spots that move, from another place in every window; the first begins with its episode."""
    rng, px = torch.Generator().manual_seed(3), torch.arange(32.0)
    side = torch.randn(rows, 1, 2, generator=rng).sign()
    at_px = 8.0 + 16.0 * torch.rand(rows, 1, 2, generator=rng) + torch.linspace(-3, 3, K + 1)[:, None] * side
    down, right = ((px - at_px[..., i, None]).square() for i in range(2))
    spots = 40.0 + 180.0 * torch.exp(-(down[..., :, None] + right[..., None, :]) / 18.0)
    pictures = spots[..., None].expand(-1, -1, -1, -1, 3).to(torch.uint8)
    words = torch.from_numpy(to_bytes("right").copy()).expand(rows, K + 1, -1)
    held = torch.ones(rows, K, dtype=torch.bool)
    held[0] = False
    state = torch.zeros(rows, K + 1, 3)
    return {"state": state, **dict.fromkeys(CAMERAS, pictures), INSTRUCTION: words, HELD: held}


def source(rows: int = ROWS) -> TensorWindows:
    chunks = torch.rand(rows, TP, 2, generator=torch.Generator().manual_seed(5))
    return TensorWindows(windows(rows), chunks)


class Log:
    """Every logged value."""

    def __init__(self) -> None:
        self.values: dict[int, dict[str, float]] = {}

    def log(self, step: int, values: Mapping[str, float | Tensor]) -> None:
        self.values[step] = {name: float(value) for name, value in values.items()}


def trainer(vla: VlaPolicy, log: Log | None = None, ranks: Ranks | None = None) -> BaseTrainer[VlaPolicy]:
    recipe = BaseTrainConfig(
        steps=6, batch_size=ROWS, lr=1e-2, warmup_steps=0, weight_decay=0.1, log_every=1, ema_max=0.5
    )
    return BaseTrainer(vla, source(), recipe, log, ranks or Ranks())


def advance(made: BaseTrainer[VlaPolicy], until: int) -> BaseTrainer[VlaPolicy]:
    while made.step < until:
        made.advance()
    return made


def test_the_tokens_alone_learn_first() -> None:
    """After the phase every other weight of policy and average is bit for bit as before, in spite of weight
    decay, and AdamW knows no other. The average has the tokens of the policy.
    """
    made = trainer(policy(4))
    before = copy.deepcopy(made.policy.state_dict())
    advance(made, 4)
    for found in (made.policy.state_dict(), made.average.state_dict()):
        changed = {name for name, value in found.items() if not value.equal(before[name])}
        assert changed == {TOKENS}
        assert found[TOKENS].equal(made.policy.state_dict()[TOKENS])
    assert len(made.optimizer.state) == 1
    advance(made, 6)
    after = made.policy.state_dict()
    assert sum(not value.equal(before[name]) for name, value in after.items()) > 50
    steps = {float(state["step"]) for state in made.optimizer.state.values()}
    assert steps == {2.0}  # imitation has begun without the phase's averages of gradients


def test_imitation_after_the_phase_is_imitation_from_its_tokens() -> None:
    """Rates, moving average and optimiser begin anew: the first update after a phase of 4 is that of a new
    training of 2 updates on the same batch and noise.
    """
    log = Log()
    made = advance(trainer(policy(4), log), 4)
    expected = trainer(copy.deepcopy(made.policy))
    expected.policy.shape.moment_steps = 0
    expected.step, expected._first = 4, 4  # the batch of update 4, without an optimiser's past
    advance(expected, 6)
    advance(made, 6)
    for name, value in expected.average.state_dict().items():
        assert made.average.state_dict()[name].equal(value), name
    rates = [log.values[step]["base/lr"] for step in range(1, 7)]
    assert rates == pytest.approx([1e-2] * 5 + [0.505e-2])
    names = [next(iter(log.values[step])) for step in range(1, 7)]
    assert names == ["base/moment_loss"] * 4 + ["base/loss"] * 2


def test_the_cosine_begins_after_the_phase() -> None:
    config = BaseTrainConfig(steps=110, warmup_steps=10, lr=2.0, final_lr=0.1)
    longer = dataclasses.replace(config, steps=130)
    for step in (0, 9, 60, 110):
        assert learning_rate(step + 20, longer, 20) == learning_rate(step, config)


def test_without_the_phase_training_is_as_before() -> None:
    """moment_steps=0: an update is AdamW on the loss of imitation, to the last bit."""
    log = Log()
    made = trainer(policy(0), log)
    batch = next(source().batches(ROWS, 0, 0, 1, CPU))
    plain, draw = copy.deepcopy(made.policy), made._draws(batch[1])
    loss = plain.bc_loss(*batch, draw.noise, draw.u, draw.crop).mean()
    loss.backward()
    advance(made, 1)
    assert log.values[1]["base/loss"] == float(loss.detach())
    optimizer = torch.optim.AdamW(
        plain.parameters(), lr=1e-2, betas=(0.9, 0.99), weight_decay=0.1, fused=True
    )
    torch.nn.utils.clip_grad_norm_(plain.parameters(), 1.0)
    optimizer.step()
    for name, value in plain.state_dict().items():
        assert made.policy.state_dict()[name].equal(value), name


@pytest.mark.parametrize("stop", [2, 4])
def test_a_resumed_phase_equals_an_uninterrupted_one(stop: int, tmp_path: Path) -> None:
    """Through files, in the middle of the phase and at its end."""
    whole, rest = Log(), Log()
    expected = advance(trainer(policy(4), whole), 6)
    save_state(tmp_path, advance(trainer(policy(4)), stop).state_dict())
    resumed = trainer(policy(4), rest)
    resumed.load_state_dict(load_state(tmp_path))
    advance(resumed, 6)
    assert rest.values == {step: values for step, values in whole.values.items() if step > stop}
    for name, value in expected.state_dict()["policy"].items():
        assert resumed.policy.state_dict()[name].equal(value), name
    for name, value in expected.result().state_dict().items():
        assert resumed.result().state_dict()[name].equal(value), name


@torch.no_grad()
def judged(vla: VlaPolicy, rows: int) -> tuple[float, float]:
    """Loss in views of no training, and the rate of frames to which their other view is nearest."""
    drawn = [views(99, draw, rows, len(CAMERAS), CPU) for draw in range(4)]
    logits = [moment_logits(vla, windows(rows), two) for two in drawn]
    right = [each.argmax(1) == torch.arange(rows) for each in logits]
    return float(torch.stack([moment_loss(each) for each in logits]).mean()), float(
        torch.cat(right).float().mean()
    )


def test_tokens_learn_to_tell_frames_apart() -> None:
    """Chance is 1 of 26: the other view, 23 rows and 2 earlier frames. Already the random network finds many;
    twenty updates of its tokens find more, and the loss falls to less than half.
    """
    vla, rows = policy(20), 24
    loss, rate = judged(vla, rows)
    recipe = BaseTrainConfig(steps=21, batch_size=rows, lr=1e-2)
    advance(BaseTrainer(vla, source(rows), recipe), 20)
    learned_loss, learned_rate = judged(vla, rows)
    assert learned_loss < 0.5 * loss
    assert learned_rate > max(rate + 0.05, 10.0 / (rows + K))


@torch.no_grad()
def test_the_loss_by_hand() -> None:
    """Cosines over the temperature: the newest frames of all rows, then the row's own earlier frames; those
    before the episode do not count.
    """
    vla, two = policy(1), views(0, 0, ROWS, len(CAMERAS), CPU)
    logits = moment_logits(vla, windows(), two)
    assert logits.shape == (ROWS, ROWS + K)
    assert logits[0, ROWS:].isneginf().all()
    assert logits[1:].isfinite().all()
    frames = [
        {key: value[:, i : i + 1] for key, value in windows().items() if key != HELD} for i in range(K + 1)
    ]
    first = vla.prefix(frames[K], two[0].crop)[4]
    again, earlier = (vla.prefix(frames[i], two[1].crop)[4] for i in (K, 0))
    near = torch.cosine_similarity(first[3], again[5], dim=0) / TEMPERATURE
    past = torch.cosine_similarity(first[3], earlier[3], dim=0) / TEMPERATURE
    torch.testing.assert_close(logits[3, [5, ROWS]], torch.stack([near, past]), atol=1e-4, rtol=0)
    exact = -torch.log_softmax(logits, 1).diagonal().mean()
    torch.testing.assert_close(moment_loss(logits), exact)


@torch.no_grad()
def test_views_of_pictures_without_crops_differ_in_light() -> None:
    """With crop=1 the crops of a frame are equal, brightness and contrast are not. A draw of 0.5 changes
    nothing, draws of 0 make 255 - 127.5 = 127.5 to 127.5 * 0.8 and take 25.5 off.
    """
    vla, two = policy(1, crop=1.0), views(0, 0, ROWS, len(CAMERAS), CPU)
    assert moment_logits(vla, windows(), two).diagonal().max() < (1.0 - 1e-4) / TEMPERATURE
    picture = windows()[CAMERAS[0]][:, :1]
    assert relit(picture, torch.full((ROWS, 2), 0.5)).equal(picture)
    extremes = relit(torch.full((1, 1, 1, 1, 3), 255, dtype=torch.uint8), torch.tensor([[0.0, 0.0]]))
    assert extremes.unique().tolist() == [204]
    for one, other in zip(views(0, 1, 2, 1, CPU), views(0, 2, 2, 1, CPU), strict=True):
        assert not one.crop.equal(other.crop)


def test_what_cannot_be_trained_so_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"moment_steps=5 .* needs policy\.memory > 0, found 0\."):
        check_config(VlaConfig(moment_steps=5), TP, 2)
    with pytest.raises(ConfigError, match=r"moment_steps=6 must be less than steps=6"):
        trainer(policy(6))
    with pytest.raises(ConfigError, match=r"needs one process, found 2"):
        trainer(policy(2), ranks=Ranks(0, 2))


def test_a_policy_that_is_trained_further_has_its_own_phase(tmp_path: Path) -> None:
    """policy.moment_steps is a setting of the training, not of the shape that init= keeps."""
    save_policy(tmp_path / "with", policy(7))
    save_policy(tmp_path / "without", small_vla())
    for asked in (0, 5):
        kept = load_initial(str(tmp_path / "with"), asked)
        config = TrainConfig(policy=VlaConfig(moment_steps=asked), init=str(tmp_path / "with"))
        assert with_shape_of(kept, config).policy == dataclasses.replace(policy(7).shape, moment_steps=asked)
        assert moment_steps(kept, 6, Ranks()) == asked
    with pytest.raises(ConfigError, match=r"needs policy\.memory > 0"):
        moment_steps(load_initial(str(tmp_path / "without"), 5), 6, Ranks())
