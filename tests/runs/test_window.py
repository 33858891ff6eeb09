"""`robo-rl view` on a screen, without the window: keys, and conditions for a window."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count

import mujoco
import numpy as np
import pytest

from robo_rl.apps.view import UninformedDemonstrator
from robo_rl.core.errors import ConfigError
from robo_rl.runs import window
from robo_rl.runs.window import Keys, Staged, show
from sim.registry import make_env
from tests.sim.engines.worlds import ENGINES

_SPACE, _RIGHT, _NEXT = 32, 262, 78


def test_space_pauses_and_the_arrow_steps() -> None:
    keys = Keys()
    assert keys.may_step()
    keys(_SPACE)
    assert not keys.may_step()
    keys(_RIGHT)
    assert [keys.may_step(), keys.may_step()] == [True, False]
    keys(_SPACE)
    assert keys.may_step()


@pytest.mark.parametrize("engine", ENGINES)
def test_bodies_stand_where_the_engine_has_them(engine: str) -> None:
    """Including fixtures, for every engine."""
    env = make_env(f"arm/peg_insert:engine={engine}", 1)
    env.reset(count(3))
    assert isinstance(env, Staged)
    data = mujoco.MjData(env.model)
    env.pose_bodies(data)
    mouth = env.view.body("hole").m[0].numpy()  # type: ignore[attr-defined]
    np.testing.assert_allclose(data.body("hole").xpos, mouth, atol=1e-6)
    np.testing.assert_allclose(data.xpos, env.view.physics.body_m[0].numpy(), atol=1e-6)  # type: ignore[attr-defined]
    env.close()


def test_episodes_go_on_until_the_window_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two of 5 steps and part of a third; `n` starts the next episode without counting this one."""
    drawn = []

    @contextmanager
    def opened(env: Staged, keys: Keys) -> Iterator[tuple[Callable[[], bool], Callable[[], None]]]:
        def is_open() -> bool:
            if len(drawn) == 3:
                keys(_NEXT)
            return len(drawn) < 15

        yield is_open, lambda: drawn.append(env.model.nq)

    monkeypatch.setattr(window, "_viewer", opened)
    monkeypatch.setattr(window, "has_screen", lambda: True)
    env = make_env("arm/lift", 1, max_episode_steps=5)
    assert show(env, UninformedDemonstrator(env.spec.action, moves=True), [1, 2], "arm/lift") == [
        False,
        False,
    ]
    env.close()


def test_missing_screen_or_scene_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(window, "has_screen", lambda: False)
    arm, drone = make_env("arm/lift", 1), make_env("quad/hover", 1)
    for env, says in ((arm, "no screen"), (drone, "manipulation")):
        with pytest.raises(ConfigError, match=says):
            show(env, UninformedDemonstrator(env.spec.action, moves=False), [1], env.spec.name)
        env.close()
