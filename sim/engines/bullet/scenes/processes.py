"""PyBullet worlds distributed over processes in contiguous blocks: PyBullet holds the GIL, so threads do not
help.

A world is exactly the same in every process. Workers end with their parent, however it ends.
"""

from __future__ import annotations

import multiprocessing as mp
import os
import signal
import traceback
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from itertools import pairwise
from multiprocessing.connection import Connection
from operator import itemgetter
from typing import Any

import mujoco
import numpy as np
import torch
from numpy import ndarray
from torch import Tensor

from robo_rl.core.errors import ConfigError, EnvError, RoboRLError
from robo_rl.core.process_signals import exit_with_parent, leave_to_parent
from robo_rl.core.shapes import Float, Int
from sim.engines.bullet.scenes.check import check_scene
from sim.engines.bullet.scenes.engine import BulletEngine, apart, own_fixtures
from sim.engines.changes import check_changes
from sim.engines.forward_kinematics import place
from sim.engines.mujoco.picture import ScenePictures
from sim.engines.protocol import Engine, Physics, Start
from sim.engines.scene import Scene
from sim.engines.visual_randomisation import VisualRandomisation

_WORLDS_PER_PROCESS = 8  # fewer are not worth starting one for
_START_S, _ANSWER_S = 300.0, 120.0  # imports on a busy machine; the longest of all requests is `load`


def make_bullet_engine(scene: Scene, num_envs: int, threads: int = 0) -> Engine:
    """Engine with at most `threads` processes, 0 for one per processor, and none for a few worlds."""
    if threads < 0:
        raise ConfigError(f"threads is {threads}; expected 0 (as many as there are processors) or more.")
    count = min(threads or os.cpu_count() or 1, num_envs // _WORLDS_PER_PROCESS)
    return ProcessEngine(scene, num_envs, count) if count > 1 else BulletEngine(scene, num_envs)


class ProcessEngine:
    """See `sim.engines.protocol.Engine`. Raises EnvError when a worker dies or does not answer."""

    def __init__(self, scene: Scene, num_envs: int, processes: int) -> None:
        check_scene(scene)
        self.scene, self.num_envs, self.device = scene, num_envs, torch.device("cpu")
        bounds = [round(i * num_envs / processes) for i in range(processes + 1)]
        self._blocks = [range(low, high) for low, high in pairwise(bounds)]
        self._pictures = ScenePictures(scene.model)
        self._fixtures = np.tile(own_fixtures(mujoco.MjData(scene.model)), (num_envs, 1, 1))
        context = mp.get_context(
            "forkserver"
        )  # imports once; not fork: the parent may hold threads and a GPU
        context.set_forkserver_preload([__name__])
        self._workers: list[tuple[Any, Connection]] = []
        self._stop = weakref.finalize(self, _stop, self._workers)
        for block in self._blocks:
            ours, theirs = context.Pipe()
            process = context.Process(target=_serve, args=(theirs, scene, len(block)), daemon=True)
            process.start()
            theirs.close()
            self._workers.append((process, ours))
        self._physics = _joined(self._answers(range(processes), _START_S))

    def step(self, ctrl: Float[Tensor, "n nu"], substeps: int) -> None:
        self._physics = _joined(
            self._ask("step", [(ctrl[_cut(block)].clone(), substeps) for block in self._blocks])
        )

    def physics(self) -> Physics:
        return Physics(**{name: value.clone() for name, value in _parts(self._physics).items()})

    def set_state(self, worlds: Int[Tensor, " k"], start: Start) -> None:
        self._fixtures[worlds.numpy()] = torch.cat([start.fixture_m, start.fixture_quat], -1).numpy()
        mine = [
            (worlds[row] - block.start, Start(*(_mapped(part, Tensor, itemgetter(row)) for part in start)))
            for row, block in zip(self._rows(worlds), self._blocks, strict=True)
        ]
        self._physics = _joined(self._ask("set_state", mine))

    def randomise(self, worlds: Int[Tensor, " k"], changes: Mapping[str, Tensor]) -> None:
        check_changes(self.scene, changes, len(worlds))
        mine = [
            (worlds[row] - block.start, {name: value[row] for name, value in changes.items()})
            for row, block in zip(self._rows(worlds), self._blocks, strict=True)
        ]
        self._ask("randomise", mine)

    def save(self) -> dict[str, Tensor]:
        """As `BulletEngine.save`; either engine loads the other's."""
        parts: list[dict[str, Tensor]] = self._ask("save", [() for _ in self._blocks])
        longest = max(part["substeps"].shape[1] for part in parts)
        for part in parts:
            missing = longest - part["substeps"].shape[1]
            part["commands"] = torch.nn.functional.pad(part["commands"], (0, 0, 0, missing))
            part["substeps"] = torch.nn.functional.pad(part["substeps"], (0, missing))
        return {name: torch.cat([part[name] for part in parts]) for name in parts[0]}

    def load(self, saved: Mapping[str, Tensor]) -> None:
        self._fixtures[:] = saved["start_fixtures"].numpy()
        mine = [
            ({name: value[_cut(block)].clone() for name, value in saved.items()},) for block in self._blocks
        ]
        self._physics = _joined(self._ask("load", mine))

    def render(
        self,
        world: int,
        camera: str,
        height: int,
        width: int,
        kind: str = "rgb",
        visuals: VisualRandomisation | None = None,
    ) -> Tensor:
        data = self._pictures.data
        place(self.scene.model, data, self._physics.qpos[world].numpy(), *apart(self._fixtures[world]))
        mujoco.mj_camlight(self.scene.model, data)
        return self._pictures.take(camera, height, width, kind, visuals)

    def close(self) -> None:
        self._pictures.close()
        self._stop()

    def _rows(self, worlds: Int[Tensor, " k"]) -> list[Tensor]:
        """Indices of these worlds within each block."""
        return [((worlds >= block.start) & (worlds < block.stop)).nonzero()[:, 0] for block in self._blocks]

    def _ask(self, call: str, arguments: Sequence[tuple[Any, ...]]) -> list[Any]:
        """Call the same method in every worker at once; answers in their order."""
        for i, (worker, each) in enumerate(zip(self._workers, arguments, strict=True)):
            try:
                worker[1].send((call, arrays(each)))
            except (BrokenPipeError, OSError) as error:
                raise self._dead(i) from error
        return self._answers(range(len(self._workers)), _ANSWER_S)

    def _answers(self, workers: Sequence[int], limit_s: float) -> list[Any]:
        answers, trouble = [], None
        for (
            i
        ) in workers:  # all of them, also after a mistake: an answer that is left would pass for the next one
            connection = self._workers[i][1]
            if not connection.poll(limit_s):
                raise EnvError(
                    f"A PyBullet worker has not answered for {limit_s:g} s. Is the machine overloaded?"
                )
            try:
                error, answer = connection.recv()
            except (EOFError, OSError) as gone:
                raise self._dead(i) from gone
            trouble = trouble or (error(answer) if error else None)
            answers.append(tensors(answer))
        if trouble is not None:
            raise trouble
        return answers

    def _dead(self, worker: int) -> EnvError:
        process, block = self._workers[worker][0], self._blocks[worker]
        process.join(1.0)
        return EnvError(
            f"The PyBullet worker of worlds {block.start} to {block.stop - 1} has died (exit code "
            f"{process.exitcode}). A negative code is a signal, -9 often too little memory; 1 may be a "
            "script without `if __name__ == '__main__'`. With threads=1 all worlds run in this process."
        )


def _serve(connection: Connection, scene: Scene, num_envs: int) -> None:
    """Answer requests in the worker until the parent is gone. Requests that may move bodies
    return the state.
    """
    leave_to_parent(signal.SIGINT, signal.SIGHUP)
    exit_with_parent()
    torch.set_num_threads(1)
    with suppress(
        EOFError, BrokenPipeError, ConnectionResetError
    ):  # the parent has closed the engine, or is gone
        try:
            engine = BulletEngine(scene, num_envs)
            connection.send((None, arrays(engine.physics())))
            while True:
                call, arguments = connection.recv()
                connection.send(_answer(engine, call, tensors(arguments)))
        except RoboRLError as error:
            connection.send((ConfigError, str(error)))


def _answer(
    engine: BulletEngine, call: str, arguments: tuple[Any, ...]
) -> tuple[type[RoboRLError] | None, Any]:
    """(class of what went wrong, if anything; the answer or what to say)"""
    try:
        found = getattr(engine, call)(*arguments)
    except RoboRLError as error:
        return ConfigError, str(error)
    except Exception:
        return EnvError, f"A PyBullet worker failed in {call}:\n{traceback.format_exc()}"
    return None, arrays(engine.physics() if found is None else found)


def arrays(value: Any) -> Any:
    """The same with NumPy arrays in place of tensors, which would be sent as open files."""
    return _mapped(value, Tensor, Tensor.numpy)


def tensors(value: Any) -> Any:
    return _mapped(value, ndarray, torch.from_numpy)


def _mapped(value: Any, kind: type, change: Callable[[Any], Any]) -> Any:
    """`change` of every leaf of this kind in tuples, named tuples, mappings and physics."""
    if isinstance(value, kind):
        return change(value)
    if isinstance(value, Physics):  # with arrays in it too, on the way: a dataclass checks nothing
        return Physics(**{name: change(getattr(value, name)) for name in Physics.__dataclass_fields__})
    if isinstance(value, Mapping):
        return {name: _mapped(each, kind, change) for name, each in value.items()}
    if isinstance(value, Start):
        return Start(*(_mapped(each, kind, change) for each in value))
    return tuple(_mapped(each, kind, change) for each in value) if isinstance(value, tuple) else value


def _stop(workers: list[tuple[Any, Connection]]) -> None:
    for _, connection in workers:
        with suppress(OSError):
            connection.close()  # an idle worker leaves at once
    for process, _ in workers:
        process.join(2.0)
        if process.is_alive():
            process.kill()
            process.join()


def _joined(parts: Sequence[Physics]) -> Physics:
    columns = [_parts(part) for part in parts]
    return Physics(**{name: torch.cat([each[name] for each in columns]) for name in columns[0]})


def _parts(physics: Physics) -> dict[str, Tensor]:
    return {name: getattr(physics, name) for name in Physics.__dataclass_fields__}


def _cut(block: range) -> slice:
    return slice(block.start, block.stop)
