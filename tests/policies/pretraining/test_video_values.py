"""Value learning from video: the TD target, the goals, what a moving dot teaches, and exact resume."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

import pytest
import torch
from torch import Tensor

from policies.pretraining.frames import GoalConfig, VideoFrames, check_videos, pick_frames
from policies.pretraining.trainer import VideoTrainer, VideoValuesConfig
from policies.pretraining.value import VideoValue, expectile_loss, goal_target, value_loss
from robo_rl.core.errors import CheckpointError, DataError, RoboRLError
from robo_rl.core.files.state_io import load_state, save_state
from tests.policies.dot_video import FRAMES, dots, picture, record_dots, small_value


class _Log:
    def __init__(self) -> None:
        self.loss: dict[int, float] = {}

    def log(self, step: int, values: Mapping[str, float | Tensor]) -> None:
        self.loss[step] = float(values["video/loss"])


@pytest.fixture(scope="module")
def frames(tmp_path_factory: pytest.TempPathFactory) -> VideoFrames:
    return dots(record_dots(tmp_path_factory.mktemp("data") / "dots", 12))


def test_the_target_by_hand() -> None:
    """gamma = 0.9, V(s') = -2: one frame more is -1 - 1.8, and the goal itself is 0."""
    target = goal_target(torch.tensor([False, True]), torch.full((2, 2), -2.0), gamma=0.9)
    torch.testing.assert_close(target, torch.tensor([[-2.8, 0.0], [-2.8, 0.0]]))


def test_the_loss_by_hand() -> None:
    """Errors 1 and 2 of two estimates: 0.9 where the step helps, 0.1 where it does not."""
    error = torch.tensor([[1.0, 1.0], [2.0, 2.0]])
    loss = expectile_loss(torch.tensor([0.0, -0.1]), error, expectile=0.9)
    assert float(loss) == pytest.approx(0.5 * (0.9 + 0.1) + 0.5 * (3.6 + 0.4))


class _Known(VideoValue):
    """V(s, g, z) = -|position of g - position of s| for pictures of one brightness, for both estimates."""

    def encode(self, frames: Tensor, crop: Tensor | None = None) -> Tensor:
        return frames[:, 0, 0, :1].float()

    def forward(self, now: Tensor, goal: Tensor, intent: Tensor) -> Tensor:
        return -(goal - now).abs()[:, 0].expand(2, -1)


def test_the_loss_of_known_values() -> None:
    """gamma = 0.5. A step from 3 to 4 with goal 6: the target is -1 + 0.5 * -2 = -2, the value -3.

    For the intention 6 the advantage is -2 - (-3) = 1, so the weight is 0.9. For the intention 0 it is
    (-1 + 0.5 * -4) - (-3) = 0, which counts as help; at the intention itself, 3, it is 0 - 0.
    """
    value = _Known.__new__(_Known)
    torch.nn.Module.__init__(value)
    rows = (
        torch.tensor([3, 4, 6, 6, 3, 4, 6, 0, 3, 4, 6, 3]).view(3, 4).T.flatten()
    )  # now, next, goal, intent
    pictures = rows.to(torch.uint8).view(-1, 1, 1, 1).expand(-1, 2, 2, 3)
    at_intent = torch.tensor([False, False, True])
    loss, logs = value_loss(
        value, value, pictures, torch.zeros(12, 2), torch.zeros(3, dtype=torch.bool), at_intent, 0.5, 0.9
    )
    assert float(loss) == pytest.approx(2 * 0.9)
    assert float(logs["video/helpful"]) == 1.0
    assert float(logs["video/error"]) == pytest.approx(1.0)


def test_goals_are_later_frames_the_frame_itself_or_any_frame() -> None:
    """Shares of 20,000 goals; later goals are geometric: 1 - gamma of them are one frame ahead."""
    lengths = torch.tensor([1, 500, 2, 700])
    ends = lengths.cumsum(0)
    config = GoalConfig(gamma=0.8, future_goals=0.5, current_goals=0.2, same_goal=0.5)
    picks = pick_frames(lengths, 20_000, config, seed=0, step=3)
    video = torch.searchsorted(ends, picks.now, right=True)
    assert (picks.now < ends[video] - 1).all()  # has a next frame
    assert set(video.tolist()) == {1, 2, 3}
    assert float((video == 1).float().mean()) == pytest.approx(499 / 1199, abs=0.02)
    assert float(picks.at_goal.float().mean()) == pytest.approx(0.2, abs=0.02)
    assert float((picks.goal == picks.intent).float().mean()) == pytest.approx(0.5 + 0.5 * 0.06, abs=0.04)
    ahead = picks.intent - picks.now
    assert float((ahead == 1).float().mean()) == pytest.approx(0.5 * 0.2, abs=0.02)
    only = pick_frames(lengths, 2000, GoalConfig(0.999, 1.0, 0.0, 1.0), seed=0, step=0)
    of = torch.searchsorted(ends, only.now, right=True)
    assert (only.goal > only.now).all()
    assert (only.goal < ends[of]).all()
    assert only.goal.equal(only.intent)


def test_frames_depend_on_seed_and_update_only() -> None:
    lengths, config = torch.tensor([9, 9]), GoalConfig()
    one, same, other = (pick_frames(lengths, 8, config, 0, step) for step in (5, 5, 6))
    assert one.order() == same.order() != other.order()
    assert one.crop.equal(same.crop)
    assert one.crops[:8].equal(one.crops[8:16])  # a frame and the next one


def test_frames_of_several_parts_keep_their_order(tmp_path: Path) -> None:
    first, second = (record_dots(tmp_path / name, 1, frames) for name, frames in (("a", 3), ("b", 4)))
    both = VideoFrames([*dots(first)._parts, *dots(second)._parts])
    assert both.lengths.tolist() == [3, 4]
    read = both.read([6, 0, 2, 3])
    columns = read[..., 0].float().sum(1).argmax(-1)
    assert columns.tolist() == [2 + 3, 2 + 0, 2 + 2, 2 + 0]
    assert both[1].equal(both.read([1])[0])


def test_videos_of_one_frame_are_refused() -> None:
    with pytest.raises(DataError, match="data/a holds no video with two frames"):
        check_videos(torch.tensor([1, 1]), "data/a")


def rank_correlation(values: Tensor) -> float:
    """Spearman's, with time."""
    ranks = torch.argsort(torch.argsort(values)).float()
    return float(torch.corrcoef(torch.stack([ranks, torch.arange(len(values)).float()]))[0, 1])


@torch.no_grad()
def measured(value: VideoValue, frames: VideoFrames) -> tuple[float, float]:
    """(mean rank correlation of V(s, last, last) with time, error of a linear probe of x [pixels]).

    The probe is a ridge regression on the first half of the videos, measured on the others.
    """
    features = value.encode(frames.read(range(len(frames))))
    videos = features.unflatten(0, (-1, FRAMES))
    goals = videos[:, -1:].expand_as(videos).flatten(0, 1)
    rise = value(features, goals, goals).mean(0).unflatten(0, (-1, FRAMES))
    x = torch.cat([features, torch.ones(len(features), 1)], dim=1)
    place, half = torch.arange(FRAMES).repeat(len(videos)).float(), len(x) // 2
    known, ridge = x[:half], 1e-2 * torch.eye(x.shape[1])
    weights = torch.linalg.solve(known.T @ known + ridge, known.T @ place[:half])
    error = float((x[half:] @ weights - place[half:]).abs().mean())
    return sum(map(rank_correlation, rise)) / len(rise), error


def test_values_rise_towards_the_goal_and_features_know_the_place(frames: VideoFrames) -> None:
    """140 updates on videos of a dot: V orders the frames in time, and a linear probe of the encoder's
    features finds the dot better than in those of the untrained encoder.
    """
    value = small_value()
    order, error = measured(value, frames)
    assert abs(order) < 0.3
    config = VideoValuesConfig(steps=140, batch_size=32, lr=5e-4, gamma=0.9, tau=0.02, width=32)
    trainer = VideoTrainer(value, frames, config)
    while not trainer.done:
        trainer.advance()
    learned_order, learned_error = measured(value, frames)
    assert learned_order > 0.7
    assert learned_error < 0.75 * error


def short(**changes: float) -> VideoValuesConfig:
    return VideoValuesConfig(**{"steps": 6, "batch_size": 4, "width": 8, "log_every": 1} | changes)  # type: ignore[arg-type]


@pytest.mark.parametrize("workers", [0, 1])
def test_resumed_equals_uninterrupted(frames: VideoFrames, tmp_path: Path, workers: int) -> None:
    """Promise 7, to the last bit: networks, moments and log after a restart at update 2."""
    whole, rest = _Log(), _Log()
    expected = VideoTrainer(small_value(width=8), frames, short(), whole)
    while not expected.done:
        expected.advance()
    first = VideoTrainer(small_value(width=8), frames, short(), workers=workers)
    first.advance()
    first.advance()
    save_state(tmp_path / "two", first.state_dict())
    resumed = VideoTrainer(small_value(9, width=8), frames, short(), rest)
    resumed.load_state_dict(load_state(tmp_path / "two"))
    while not resumed.done:
        resumed.advance()
    assert rest.loss == {step: loss for step, loss in whole.loss.items() if step > 2}
    for name, trainer in (("whole", expected), ("resumed", resumed)):
        save_state(tmp_path / name, trainer.state_dict())
    files = [tmp_path / name / "state.safetensors" for name in ("whole", "resumed")]
    assert files[0].read_bytes() == files[1].read_bytes()
    with pytest.raises(CheckpointError, match=r"gamma=0\.99 and cannot be continued with gamma=0\.5"):
        VideoTrainer(small_value(width=8), frames, short(gamma=0.5)).load_state_dict(first.state_dict())


def test_a_loss_that_is_not_finite_is_reported(frames: VideoFrames) -> None:
    value = small_value(width=8)
    with torch.no_grad():
        value.encoder.stem.weight.fill_(math.nan)
    with pytest.raises(RoboRLError, match="training loss is nan at update 1"):
        VideoTrainer(value, frames, short()).advance()


def test_the_picture_has_its_dot_where_the_video_says() -> None:
    assert picture(5, 7)[..., 0].argmax() == 7 * 16 + 5
