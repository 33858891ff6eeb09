"""MetaWorld with cameras: pictures beside the state, which may be limited to what a robot measures."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from itertools import count

import pytest
import torch

from robo_rl.core.errors import ConfigError, UnknownNameError
from sim.registry import make_env, make_expert, option_of
from sim.vec.conformance import check_vec_env

TASK = "metaworld/peg-insert-side-v3"
SEEN = f"{TASK}:cameras=corner3+gripperPOV,image_size=32,state=robot"


def seeds() -> Iterator[int]:
    return count(40)


def test_states_are_those_without_cameras_and_pictures_follow_the_motion() -> None:
    """Two episodes, 12 steps of the expert: the two parts of the state are the whole state, bit for bit."""
    with closing(make_env(TASK, 2)) as plain, closing(make_env(SEEN, 2)) as seen:
        assert seen.spec.obs["image.corner3"].shape == (32, 32, 3)
        assert seen.spec.name == SEEN
        expert = make_expert(SEEN, 0.1)
        obs, whole = seen.reset(seeds()), plain.reset(seeds())
        first = obs
        for step in range(12):
            parts = torch.cat([obs["state"], obs["privileged.task"]], dim=1)
            torch.testing.assert_close(parts, whole["state"], rtol=0.0, atol=0.0)
            action = expert.act(obs, torch.tensor([40, 41]), torch.full((2,), step))
            obs, whole = seen.step(action)[0], plain.step(action)[0]
        for key in ("image.corner3", "image.gripperPOV"):
            assert (obs[key] != first[key]).float().mean() > 0.02  # the hand moved
            assert (first[key][0] != first[key][1]).any()  # peg and box lie elsewhere


@pytest.mark.slow
def test_contract_holds_with_pictures() -> None:
    """Seeds, resets, snapshots and restores reproduce pictures, too."""
    with closing(make_env(SEEN, 2, max_episode_steps=5)) as env:
        check_vec_env(env)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ("cameras=front", UnknownNameError, "Unknown camera of metaworld 'front'"),
        ("cameras=corner,image_size=4", ConfigError, "image_size is 4; expected 8 to 1024 pixels"),
        ("state=none", UnknownNameError, "Unknown state of metaworld 'none'"),
        ("camera=corner", UnknownNameError, "option of metaworld environments 'camera'"),
    ],
)
def test_options_that_cannot_be_are_refused(options: str, error: type[Exception], message: str) -> None:
    """Each with a sentence, before a simulator starts."""
    with pytest.raises(error, match=message):
        make_env(f"{TASK}:{options}", 1)


def test_options_are_read_from_the_name() -> None:
    """Also defaults, and none of a suite without options."""
    assert option_of(SEEN, "image_size") == 32
    assert option_of(TASK, "cameras") == ""
    assert option_of("gym/Pendulum-v1", "cameras") is None
