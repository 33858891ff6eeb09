"""Instructions as goals: their rows, their targets, what two opposite ones teach, and exact resume."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
import torch
from torch import Tensor

from policies.pretraining.frames import GoalConfig, VideoFrames, pick_frames
from policies.pretraining.instructions import InstructionFeatures, VideoInstructions
from policies.pretraining.trainer import VideoTrainer, VideoValuesConfig
from policies.pretraining.value import VideoValue, value_loss
from robo_rl.core.files.state_io import load_state, save_state
from robo_rl.data.windows import WindowDataset, WindowSpec
from robo_rl.nets.image_encoder import ImageEncoder, ImageEncoderConfig
from tests.policies.dot_video import CAMERA, dots, record_dots, small_value
from tests.policies.told_videos import BRIGHTER, DARKER, LEVELS, SIDE, light, record_light

TOLD = VideoInstructions.of(["Go up!", "go down"], [True, False])


@pytest.fixture(scope="module")
def frames(tmp_path_factory: pytest.TempPathFactory) -> VideoFrames:
    path = record_light(tmp_path_factory.mktemp("data") / "light", 2)
    told = VideoInstructions.of([BRIGHTER, DARKER], [True, True])
    return VideoFrames([WindowDataset(path, WindowSpec(1, 1), [CAMERA])], told)


def told_value(frames: VideoFrames, seed: int = 0, width: int = 16) -> VideoValue:
    torch.manual_seed(seed)
    image = ImageEncoderConfig(widths=[8], features=16, pool="mean")
    vocabulary = frames.instructions.vocabulary if frames.instructions else 0
    return VideoValue(ImageEncoder((SIDE, SIDE, 3), image), 16, width, vocabulary)


def test_without_instruction_goals_an_update_is_that_of_frames_alone(tmp_path: Path) -> None:
    """Frames, crops and losses recorded before instructions could be goals."""
    picks = pick_frames(torch.tensor([5, 7]), 6, GoalConfig(), seed=3, step=2)
    now, then = [10, 6, 2, 0, 7, 6], [11, 7, 3, 1, 8, 7]
    assert picks.order() == [*now, *then, *[10, 6, 4, 7, 10, 8], *[11, 7, 4, 9, 11, 6]]
    assert picks.crop[0, 0].tolist() == [0.8468018770217896, 0.517918586730957]
    losses: list[float] = []

    class Log:
        def log(self, step: int, values: Mapping[str, float | Tensor]) -> None:
            losses.append(float(values["video/loss"]))

    config = VideoValuesConfig(steps=2, batch_size=4, width=8, log_every=1)
    value = small_value(width=8)
    assert not any("instruction" in key for key in value.state_dict())
    trainer = VideoTrainer(value, dots(record_dots(tmp_path / "dots", 3)), config, Log())
    while not trainer.done:
        trainer.advance()
    assert losses == pytest.approx([0.14991918206214905, 0.19810721278190613], rel=1e-5)


def test_rows_of_instructions_replace_goals_and_leave_the_others_as_they_were() -> None:
    """20,000 rows: half have the words of their episode. Only the end of the reached video is drawn, in
    `current_goals` of its rows; its next frame, which is not used, exists.
    """
    lengths, config = torch.tensor([500, 700]), GoalConfig(instruction_goals=0.5)
    plain = pick_frames(lengths, 20_000, config, seed=0, step=3)
    picks = pick_frames(lengths, 20_000, config, seed=0, step=3, instructions=TOLD)
    assert picks.words is not None
    assert picks.done is not None
    told, video = picks.words.any(1), (picks.now >= 500).long()
    assert picks.words[told].equal(TOLD.words[video[told]])
    assert float(told.float().mean()) == pytest.approx(0.5, abs=0.02)
    assert picks.done.equal(picks.now == 499)
    assert float(picks.done[told & (video == 0)].float().mean()) == pytest.approx(0.2, abs=0.02)
    assert not (picks.now == 1199).any()
    assert picks.at_goal[told].equal(picks.done[told])
    assert picks.at_intent[told].equal(picks.done[told])
    assert picks.at_goal[~told].equal(plain.at_goal[~told])
    assert picks.now[~picks.done].equal(plain.now[~picks.done])
    assert picks.goal.equal(plain.goal)
    assert picks.intent.equal(plain.intent)
    assert picks.crop.equal(plain.crop)
    assert max(picks.order()) <= 1199
    again = pick_frames(lengths, 20_000, config, seed=0, step=3, instructions=TOLD)
    assert again.order() == picks.order()
    assert again.words is not None
    assert again.words.equal(picks.words)


def test_words_have_numbers_and_their_mean_is_the_instruction() -> None:
    """Case and punctuation are ignored; a longer instruction pads the shorter one."""
    told = VideoInstructions.of(["Go up!", "go up there"], [True, True])
    assert told.vocabulary == 3
    assert told.words.tolist() == [[1, 3, 0], [1, 3, 2]]
    features = InstructionFeatures(3, 4)
    mean = (features.vectors.weight[1] + features.vectors.weight[3]) / 2
    expected = (mean - mean.mean()) / (mean.var(correction=0) + 1e-5).sqrt()
    torch.testing.assert_close(features(told.words)[0], expected)
    assert features(torch.zeros(1, 3, dtype=torch.long)).eq(0).all()


class _Known(VideoValue):
    """V = -|goal - frame| for pictures of one brightness and instructions of one word, their number."""

    def encode(self, frames: Tensor, crop: Tensor | None = None) -> Tensor:
        return frames[:, 0, 0, :1].float()

    def forward(self, now: Tensor, goal: Tensor, intent: Tensor) -> Tensor:
        return -(goal - now).abs()[:, 0].expand(2, -1)


def test_the_loss_of_known_values() -> None:
    """gamma = 0.5, instruction 6. From 3 to 4 the target is -1 + 0.5 * -2 = -2 and the value -3; where it is
    reached, at 5, the target is 0 and the value -1; the goal 0 of the third row is a frame: -1 + 0.5 * -4 for
    a value of -3.
    """
    value = _Known.__new__(_Known)
    torch.nn.Module.__init__(value)
    value.instruction = lambda words: words.float()  # type: ignore[assignment]
    rows = torch.tensor([3, 5, 3, 4, 5, 4, 9, 9, 0, 9, 9, 0]).to(torch.uint8)  # now, next, goal, intention
    pictures = rows.view(-1, 1, 1, 1).expand(-1, 2, 2, 3)
    reached, words = torch.tensor([False, True, False]), torch.tensor([[6], [6], [0]])
    loss, logs = value_loss(value, value, pictures, torch.zeros(12, 2), reached, reached, 0.5, 0.9, words)
    assert float(logs["video/helpful"]) == 1.0
    assert float(loss) == pytest.approx(2 * 0.9 * (1.0 + 1.0 + 0.0) / 3)


@pytest.mark.long
def test_values_rise_towards_the_end_that_the_instruction_names(frames: VideoFrames) -> None:
    """V(s, brighter) rises with the brightness of the picture and V(s, darker) falls, both close to
    -(1 + 0.8 + ... + 0.8^(n - 1)), n frames before the end.
    """
    value = told_value(frames)
    config = VideoValuesConfig(
        steps=400, batch_size=32, lr=2e-3, gamma=0.8, tau=0.05, width=16, instruction_goals=1.0
    )
    trainer = VideoTrainer(value, frames, config)
    while not trainer.done:
        trainer.advance()
    pictures = torch.stack([torch.from_numpy(light(level)) for level in range(LEVELS)])
    assert frames.instructions is not None
    with torch.no_grad():
        seen = value.encode(pictures)
        brighter, darker = (
            value(seen, each.expand_as(seen), each.expand_as(seen)).mean(0)
            for each in value.instruction(frames.instructions.words)[:, None]
        )
    assert (brighter.diff() > 0).all()
    assert (darker.diff() < 0).all()
    exact = (0.8 ** torch.arange(LEVELS) - 1.0) / (1.0 - 0.8)
    torch.testing.assert_close(darker, exact, atol=0.4, rtol=0.0)
    torch.testing.assert_close(brighter, exact.flip(0), atol=0.4, rtol=0.0)


@pytest.mark.parametrize("workers", [0, 1])
def test_resumed_equals_uninterrupted(frames: VideoFrames, tmp_path: Path, workers: int) -> None:
    """Promise 7, to the last bit, with the vectors of words and their moments."""
    config = VideoValuesConfig(steps=5, batch_size=8, width=8, instruction_goals=0.5)
    whole = VideoTrainer(told_value(frames, width=8), frames, config)
    first = VideoTrainer(told_value(frames, width=8), frames, config, workers=workers)
    for trainer, steps in ((whole, 5), (first, 2)):
        for _ in range(steps):
            trainer.advance()
    save_state(tmp_path / "two", first.state_dict())
    resumed = VideoTrainer(told_value(frames, 9, width=8), frames, config)
    resumed.load_state_dict(load_state(tmp_path / "two"))
    while not resumed.done:
        resumed.advance()
    for name, trainer in (("whole", whole), ("resumed", resumed)):
        save_state(tmp_path / name, trainer.state_dict())
    files = [tmp_path / name / "state.safetensors" for name in ("whole", "resumed")]
    assert files[0].read_bytes() == files[1].read_bytes()
    start = told_value(frames, width=8).instruction.vectors.weight
    assert not torch.equal(whole.value.instruction.vectors.weight, start)
