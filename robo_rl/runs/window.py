"""Window of `robo-rl view`: MuJoCo's viewer driven by an environment of any engine."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain, count
from typing import Any, Protocol, runtime_checkable

from robo_rl.core.errors import ConfigError, MissingDependencyError
from robo_rl.core.protocols import VecEnv
from robo_rl.runs.demonstrators import Demonstrator

HELP = "space: pause    right: one step    n: next episode    drag: turn, move    close the window to end"
_CLOSING_S = 10.0
_SPACE, _RIGHT, _NEXT = 32, 262, 78  # GLFW key codes


@runtime_checkable
class Staged(Protocol):
    """An environment whose bodies MuJoCo can draw."""

    @property
    def model(self) -> Any:
        """The mujoco.MjModel, read-only."""
        ...

    def pose_bodies(self, data: Any, lane: int = 0) -> None:
        """Set the bodies of `data` (mujoco.MjData) to those of a lane."""
        ...


def has_screen() -> bool:
    """True if a window can be opened; on Linux a display must be set."""
    return sys.platform != "linux" or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


class Keys:
    """Requests by keys of the viewer, which calls it in its own thread."""

    def __init__(self) -> None:
        self.paused, self.steps, self.next = False, 0, False

    def __call__(self, key: int) -> None:
        if key == _SPACE:
            self.paused = not self.paused
        elif key == _RIGHT:
            self.steps += 1
        elif key == _NEXT:
            self.next = True

    def may_step(self) -> bool:
        """True if the environment may step: it runs, or a single step was requested while paused."""
        if self.paused and self.steps:
            self.steps -= 1
            return True
        return not self.paused


def show(env: VecEnv, driver: Demonstrator, seeds: Sequence[int], name: str) -> list[bool]:
    """Show episodes in real time until the window is closed; returns the outcomes of complete ones.

    env: of one lane. The first episodes use `seeds`. Raises ConfigError without a screen, or for an
    environment that cannot be drawn.
    """
    if not isinstance(env, Staged):
        raise ConfigError(
            f"The window shows manipulation tasks only, which {name} is not. Use window=false for a video."
        )
    if not has_screen():
        raise ConfigError("There is no screen here (DISPLAY is not set). Use window=false for a video.")
    obs = env.reset(chain(seeds, count(max(seeds) + 1)))
    driver.start([0], seeds[:1], obs)
    success: list[bool] = []
    keys, period_s = Keys(), 1.0 / env.spec.control_hz
    print(f"{name}: {HELP}")
    with _viewer(env, keys) as (is_open, draw):
        while is_open():
            begun_s = time.monotonic()
            if keys.next:
                keys.next = False
                seed = seeds[0] + len(success) + 1_000_003
                obs = env.reset(count(seed))
                driver.start([0], [seed], obs)
            elif keys.may_step():
                obs, _, _, _, info = env.step(driver.act())
                driver.observe(obs)
                if bool(info["final_mask"][0]):
                    success.append(bool(info["success"][0]))
                    driver.start([0], [int(info["next_seed"][0])], obs)
            draw()
            time.sleep(max(0.0, period_s - (time.monotonic() - begun_s)))
    return success


@contextmanager
def _viewer(env: Staged, keys: Keys) -> Iterator[tuple[Callable[[], bool], Callable[[], None]]]:
    """(True while the window is open, function that draws lane 0)."""
    import mujoco

    try:
        from mujoco import viewer
    except ImportError as error:
        raise MissingDependencyError("The window needs the package 'glfw'. Run: pip install glfw") from error
    data = mujoco.MjData(env.model)
    env.pose_bodies(data)
    before = set(threading.enumerate())
    try:
        window = viewer.launch_passive(
            env.model, data, key_callback=keys, show_left_ui=False, show_right_ui=False
        )
    except (RuntimeError, mujoco.FatalError) as error:
        raise ConfigError(f"No window can be opened here ({error}). Use window=false for a video.") from error

    def draw() -> None:
        with window.lock():
            env.pose_bodies(data)
        window.sync()

    try:
        yield window.is_running, draw
    finally:
        window.close()
        for thread in set(threading.enumerate()) - before:  # the viewer must not draw while GLFW shuts down
            thread.join(_CLOSING_S)
