"""PyBullet's worlds in worker processes: equal bits, clear errors when a worker dies, nothing left
running.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import numpy as np
import pytest
import torch

from robo_rl.core.errors import ConfigError, EnvError
from sim.engines.bullet.scenes.engine import BulletEngine
from sim.engines.bullet.scenes.processes import ProcessEngine, make_bullet_engine
from sim.engines.protocol import Engine, Physics
from sim.engines.scene import Scene
from tests.sim.engines.worlds import scene_of, start_of

pytest.importorskip("pybullet")

_XML = """<worldbody><geom type="plane" size="2 2 0.1"/>
  <body name="stone" pos="0 0 0.3"><freejoint/><geom type="box" size="0.05 0.04 0.03" mass="0.2"/></body>
  <body name="fixture" mocap="true" pos="0 0.1 0.05"><geom type="sphere" size="0.05"/></body>
  <body name="rod" pos="1 0 1"><joint name="rod" axis="0 1 0" damping="0.1"/>
    <geom type="capsule" fromto="0 0 0 0 0 -0.4" size="0.02" mass="0.5"/></body></worldbody>
  <actuator><position joint="rod" kp="20" kv="2"/></actuator>"""


@pytest.fixture(scope="module")
def scene() -> Scene:
    return scene_of(_XML, timestep=0.005)


@pytest.fixture(scope="module")
def shared(scene: Scene) -> Iterator[ProcessEngine]:
    engine = ProcessEngine(scene, 3, 2)
    yield engine
    engine.close()


def lives(engine: Engine) -> Iterator[Physics]:
    """Starts at different times, changed parameters, a save and a load: what is seen on the way."""
    ctrl = torch.linspace(-1.0, 1.0, 3)[:, None].double()
    engine.set_state(torch.arange(3), start_of(engine.scene, 3, fixture_m=[[0.03, 0.0, 0.05]]))
    engine.step(ctrl, 10)
    yield engine.physics()
    engine.randomise(torch.tensor([2]), {"friction_scale": torch.tensor([0.5])})
    engine.set_state(torch.tensor([0, 2]), start_of(engine.scene, 2, qvel=np.full(7, 0.5)))
    yield engine.physics()
    engine.step(ctrl, 10)
    saved = engine.save()
    engine.step(-ctrl, 10)
    yield engine.physics()
    engine.load(saved)
    yield engine.physics()
    engine.step(-ctrl, 10)
    yield engine.physics()


def test_workers_change_nothing(scene: Scene, shared: ProcessEngine) -> None:
    """Three worlds, in one process and in two: equal bits throughout, and saved states continue equally."""
    alone = BulletEngine(scene, 3)
    seen = list(zip(lives(alone), lives(shared), strict=True))
    for one, other in seen:
        for name in Physics.__dataclass_fields__:
            assert torch.equal(getattr(one, name), getattr(other, name)), name
    assert torch.equal(seen[2][0].qpos, seen[4][1].qpos)
    kept = shared.save()
    assert kept.keys() == alone.save().keys()
    alone.close()


def test_bad_changes_are_refused_before_they_travel(shared: ProcessEngine) -> None:
    with pytest.raises(ConfigError, match="above 0"):
        shared.randomise(torch.tensor([0]), {"friction_scale": torch.tensor([-1.0])})


def test_worker_error_is_reported_and_the_worker_continues(shared: ProcessEngine) -> None:
    """A call that does not exist simulates a defect: its traceback is returned, and the next call works."""
    with pytest.raises(EnvError, match="AttributeError"):
        shared._ask("fly", [(), ()])
    shared.step(torch.zeros(3, 1).double(), 1)


def test_damping_that_needs_too_short_a_step_is_refused_by_the_worker(shared: ProcessEngine) -> None:
    with pytest.raises(ConfigError, match="damped so strongly"):
        shared.randomise(torch.tensor([0]), {"kv_scale": torch.full((1, 1), 1e5)})
    shared.step(torch.zeros(3, 1).double(), 1)


def test_few_worlds_start_no_process(scene: Scene) -> None:
    engine = make_bullet_engine(scene, 3, threads=2)
    assert isinstance(engine, BulletEngine)
    engine.close()
    with pytest.raises(ConfigError, match="threads"):
        make_bullet_engine(scene, 3, threads=-1)


def test_a_dead_worker_is_named_and_none_stays(scene: Scene) -> None:
    """Killed from outside: the message names the lost worlds; closing leaves no process."""
    engine = ProcessEngine(scene, 2, 2)
    os.kill(engine._workers[1][0].pid, signal.SIGKILL)
    with pytest.raises(EnvError, match=r"worlds 1 to 1 has died \(exit code -9\)"):
        engine.step(torch.zeros(2, 1).double(), 1)
    engine.close()
    for process, _ in engine._workers:
        assert not process.is_alive()
