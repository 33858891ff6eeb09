"""Promises of every engine on a world: a pure function of start, changes and commands; saving, loading,
sensing.
"""

from __future__ import annotations

from contextlib import closing

import numpy as np
import pytest
import torch
from torch import Tensor

from robo_rl.core.errors import ConfigError, UnknownNameError
from sim.asset_files import ASSETS
from sim.engines.protocol import Engine
from sim.engines.scene import Scene, compile_scene
from tests.sim.engines.worlds import ENGINES, begin, engine_of, start_of

READY = [0.0, -0.3, 0.0, -2.2, 0.0, 2.0, 0.785]
_KEPT = ("qpos", "qvel", "body_m", "body_quat", "touch_n")


@pytest.fixture(scope="module")
def lift() -> Scene:
    return compile_scene(ASSETS / "lift.xml", ASSETS / "panda.xml")


@pytest.fixture(scope="module")
def peg() -> Scene:
    return compile_scene(ASSETS / "peg_insert.xml", ASSETS / "panda.xml")


def ready(scene: Scene, **things: list[float]) -> np.ndarray:
    """qpos with the arm over the table, fingers open, and objects at named places."""
    qpos = scene.model.qpos0.copy()
    for joint, value in zip(range(1, 8), READY, strict=True):
        qpos[scene.qpos(f"joint{joint}")] = value
    for finger in ("finger_left", "finger_right"):
        qpos[scene.qpos(finger)] = 0.04
    for name, pose in things.items():
        qpos[scene.qpos(name)] = pose
    return qpos


def told(seed: int, worlds: int = 2) -> list[Tensor]:
    """Commands for six control steps: the arm moves, fingers open and close."""
    draw = np.random.default_rng(seed)
    swing = draw.uniform(-0.4, 0.4, (6, worlds, 7)) + np.array(READY)
    return [
        torch.from_numpy(each)
        for each in np.concatenate([swing, draw.uniform(0.0, 0.04, (6, worlds, 2))], -1)
    ]


def life(engine: Engine, commands: list[Tensor]) -> list[Tensor]:
    """All observations after every command."""
    seen = []
    for ctrl in commands:
        engine.step(ctrl, 10)
        seen += [getattr(engine.physics(), name) for name in _KEPT]
    return seen


def same(one: list[Tensor], other: list[Tensor]) -> bool:
    return len(one) == len(other) and all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize("name", ENGINES)
def test_world_does_not_depend_on_earlier_episodes(name: str, lift: Scene) -> None:
    """A cube falls next to the moving arm; after other contacts the same start gives the same bits."""
    falls = start_of(lift, 2, qpos=ready(lift, cube=[0.5, 0.0, 0.06, 0.9, 0.3, 0.2, 0.1]))
    with closing(begin(name, lift, 2, qpos=ready(lift))) as engine:
        engine.set_state(torch.arange(2), falls)
        first = life(engine, told(0))
        engine.set_state(torch.arange(2), start_of(lift, 2, qpos=ready(lift)))
        assert not same(first, life(engine, told(1)))
        engine.set_state(torch.arange(2), falls)
        assert same(first, life(engine, told(0)))


@pytest.mark.parametrize("name", ENGINES)
def test_worlds_are_independent(name: str, lift: Scene) -> None:
    """World 1 restarts; world 0, and a world 1 that restarted alone, show equal bits."""
    falls = start_of(lift, 1, qpos=ready(lift, cube=[0.5, 0.0, 0.06, 0.9, 0.3, 0.2, 0.1]))
    both, alone, commands = (
        begin(name, lift, 2, qpos=ready(lift)),
        begin(name, lift, 1, qpos=ready(lift)),
        told(0),
    )
    with closing(both), closing(alone):
        life(both, commands[:3])
        both.set_state(torch.tensor([1]), falls)
        alone.set_state(torch.tensor([0]), falls)
        seen = life(both, commands[3:])
        mine = life(alone, [each[1:] for each in commands[3:]])
        assert all(torch.equal(pair[1:], one) for pair, one in zip(seen, mine, strict=True))
        alone.set_state(torch.tensor([0]), start_of(lift, 1, qpos=ready(lift)))
        mine = life(alone, [each[:1] for each in commands])[3 * len(_KEPT) :]
        assert all(torch.equal(pair[:1], one) for pair, one in zip(seen, mine, strict=True))


@pytest.mark.parametrize("name", ENGINES)
def test_loaded_world_continues_bit_for_bit(name: str, peg: Scene) -> None:
    """In another engine object; worlds of different ages, and the hole elsewhere."""
    where = {"fixture_m": [[0.6, 0.1, 0.0]], "qpos": ready(peg, peg=[0.55, 0.1, 0.1, 1.0, 0.1, 0.0, 0.0])}
    commands = told(0)
    with closing(begin(name, peg, 2, **where)) as engine, closing(engine_of(name, peg, 2)) as other:
        life(engine, commands[:2])
        engine.set_state(torch.tensor([1]), start_of(peg, 1, **where))
        life(engine, commands[2:4])
        saved = engine.save()
        other.load({key: value.clone() for key, value in saved.items()})
        for field in _KEPT:
            assert torch.equal(getattr(engine.physics(), field), getattr(other.physics(), field)), field
        assert same(life(engine, commands[4:]), life(other, commands[4:]))


@pytest.mark.parametrize("name", ENGINES)
def test_a_start_is_shown_at_once(name: str, peg: Scene) -> None:
    """Fixture, arm and peg are at their start, and no touch is felt yet."""
    pose = [0.45, -0.1, 0.2, 0.5, 0.5, 0.5, 0.5]
    given = {
        "qpos": ready(peg, peg=pose),
        "qvel": np.arange(peg.model.nv) * 0.1,
        "fixture_m": [[0.6, 0.1, 0.02]],
    }
    with closing(begin(name, peg, **given)) as engine:
        seen = engine.physics()
    torch.testing.assert_close(seen.qpos[0], torch.from_numpy(given["qpos"]))
    torch.testing.assert_close(seen.qvel[0], torch.from_numpy(given["qvel"]))
    torch.testing.assert_close(seen.body_m[0, peg.body("hole")], torch.tensor([0.6, 0.1, 0.02]).double())
    torch.testing.assert_close(seen.body_quat[0, peg.body("peg")], torch.tensor(pose[3:]).double())
    assert seen.touch_n.abs().max() == 0.0


@pytest.mark.parametrize("name", ENGINES)
def test_every_engine_takes_the_same_picture(name: str, lift: Scene) -> None:
    with (
        closing(begin(name, lift, 2, qpos=ready(lift))) as engine,
        closing(begin("mujoco", lift)) as reference,
    ):
        reference.set_state(torch.tensor([0]), start_of(lift, 1, qpos=ready(lift)))
        assert torch.equal(engine.render(1, "view", 48, 64), reference.render(0, "view", 48, 64))
        with pytest.raises(UnknownNameError, match="camera"):
            engine.render(0, "side", 48, 64)


@pytest.mark.parametrize("name", ENGINES)
def test_the_arm_reaches_its_commands(name: str, lift: Scene) -> None:
    """Two seconds after a step of up to 0.4 rad every joint is within 5 mrad, fingers within 0.1 mm."""
    with closing(begin(name, lift, 2, qpos=ready(lift))) as engine:
        for command in told(3)[:2]:
            engine.step(command, 400)
            reached = engine.physics().qpos
            arm, fingers = lift.qpos("joint1").start, lift.qpos("finger_left").start
            torch.testing.assert_close(reached[:, arm : arm + 7], command[:, :7], rtol=0.0, atol=0.005)
            torch.testing.assert_close(reached[:, fingers : fingers + 2], command[:, 7:], rtol=0.0, atol=1e-4)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"mass_scal": torch.ones(1, 3)}, "mass_scale"),
        ({"kp_scale": torch.ones(1, 3)}, "shape"),
        ({"friction_scale": torch.zeros(1)}, "above 0"),
    ],
)
@pytest.mark.parametrize("name", ENGINES)
def test_a_change_that_makes_no_sense_is_refused(
    name: str, changes: dict[str, Tensor], says: str, lift: Scene
) -> None:
    with closing(engine_of(name, lift)) as engine, pytest.raises((ConfigError, UnknownNameError), match=says):
        engine.randomise(torch.tensor([0]), changes)
