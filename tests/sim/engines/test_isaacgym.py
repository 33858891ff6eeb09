"""The Isaac Gym engine through its entire protocol, with a worker that simulates with C MuJoCo."""

from __future__ import annotations

import ast
import gc
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
import torch

from robo_rl.core.errors import ConfigError, EnvError, MissingDependencyError
from sim.engines.isaacgym import protocol
from sim.engines.isaacgym.engine import IsaacGymEngine
from sim.engines.isaacgym.process import WORKER
from sim.engines.mujoco.engine import MujocoEngine
from sim.engines.protocol import Engine
from sim.engines.scene import Scene
from sim.engines.table import ENGINES
from sim.registry import make_env
from sim.vec.conformance import check_vec_env
from tests.sim.engines.warp_scenes import grasping, random_targets, resting, scene_of

MOCK = Path(__file__).with_name("isaacgym_mock.py")


@pytest.fixture(scope="module")
def scene() -> Scene:
    return scene_of("peg_insert")


class Builder:
    """Starts engines with mock workers and closes them at the end of the test."""

    def __init__(self, scene: Scene, path: Path) -> None:
        self._scene, self._path = scene, path
        self.engines: list[IsaacGymEngine] = []
        path.write_text(scene.xml)

    def __call__(self, fails: str = "", timeout_s: float = 60.0) -> IsaacGymEngine:
        environ = {"MOCK_SCENE": str(self._path), "MOCK_FAILS": fails}
        command = [sys.executable, str(MOCK)]
        self.engines.append(
            IsaacGymEngine(self._scene, 2, timeout_s=timeout_s, command=command, environ=environ)
        )
        return self.engines[-1]


@pytest.fixture
def build(scene: Scene, tmp_path: Path) -> Iterator[Builder]:
    builder = Builder(scene, tmp_path / "scene.xml")
    yield builder
    for engine in builder.engines:
        engine.close()


def is_gone(pid: int) -> bool:
    """Neither running nor a zombie."""
    return not Path(f"/proc/{pid}").exists()


def test_physics_go_through_the_protocol(build: Builder, scene: Scene) -> None:
    """Starts, commands, fixtures, touch and changed masses reach the worker, and its states return in
    float32.
    """
    engine, c = build(), MujocoEngine(scene, 2)
    assert isinstance(engine, Engine)
    start = grasping(scene, "peg_insert", 2)
    heavy = {
        "mass_scale": torch.full((1, scene.model.nbody), 1.5),
        "kp_scale": torch.full((1, scene.model.nu), 0.8),
    }
    for each in (engine, c):
        each.set_state(torch.arange(2), start)
        each.randomise(torch.tensor([1]), heavy)
    at_start = engine.physics()
    assert torch.allclose(at_start.body_m, c.physics().body_m.float(), atol=1e-6)
    for ctrl in random_targets(scene, start.ctrl, 20, reach_rad=0.05):
        for each in (engine, c):
            each.step(ctrl, 2)
        a, b = engine.physics(), c.physics()
        assert a.qpos.dtype == torch.float32
        assert torch.allclose(a.qpos, b.qpos.float(), atol=1e-4)
        assert torch.allclose(a.body_m, b.body_m.float(), atol=1e-4)
        assert torch.allclose(a.body_quat, b.body_quat.float(), atol=1e-3)
        assert torch.allclose(a.touch_n, b.touch_n.float(), atol=0.5)
    assert float(a.touch_n.max()) > 1.0
    assert not torch.equal(a.qpos[0], a.qpos[1])
    assert not torch.equal(at_start.qpos, a.qpos)  # what was given out stayed as it was


def test_some_worlds_begin_anew(build: Builder, scene: Scene) -> None:
    """The others continue; bodies of new worlds are visible at once, also in images."""
    engine = build()
    start = resting(scene, "peg_insert", 2)
    engine.set_state(torch.arange(2), start)
    for _ in range(5):
        engine.step(start.ctrl + 0.1, 2)
    before = engine.physics()
    one = type(start)(*(None if each is None else each[1:] for each in start))
    one.fixture_m[:, :, 0] = 0.42
    engine.set_state(torch.tensor([1]), one)
    after = engine.physics()
    assert torch.equal(before.qpos[0], after.qpos[0])
    assert torch.allclose(after.qpos[1], start.qpos[1].float())
    assert float(after.body_m[1, scene.body("hole"), 0]) == pytest.approx(0.42)
    assert float(after.qvel[1].abs().max()) == 0.0
    assert not torch.equal(engine.render(0, "view", 32, 32), engine.render(1, "view", 32, 32))


def test_saved_worlds_go_on(build: Builder, scene: Scene) -> None:
    """In another worker; solvers with warm-started contacts may differ in the last digits."""
    engine, other = build(), build()
    start = resting(scene, "peg_insert", 2)
    engine.set_state(torch.arange(2), start)
    engine.step(start.ctrl + 0.1, 5)
    other.load(engine.save())
    assert torch.equal(engine.physics().body_m, other.physics().body_m)
    for each in (engine, other):
        each.step(start.ctrl, 10)
    assert torch.allclose(engine.physics().qpos, other.physics().qpos, atol=1e-4)


def test_task_contract(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Scene, resets, the expert's view and snapshots of a real task; without the solver's warm start, up to 1
    mm.
    """

    def engine_of(scene: Scene, num_envs: int) -> IsaacGymEngine:
        (tmp_path / "scene.xml").write_text(scene.xml)
        environ = {"MOCK_SCENE": str(tmp_path / "scene.xml")}
        return IsaacGymEngine(scene, num_envs, command=[sys.executable, str(MOCK)], environ=environ)

    kind = ModuleType("isaacgym_mock_engine")
    kind.build = engine_of  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, kind.__name__, kind)
    monkeypatch.setitem(ENGINES, "isaacgym", (f"{kind.__name__}:build", None))
    env = make_env("arm/lift:engine=isaacgym", 3, max_episode_steps=9)
    check_vec_env(env, steps=20, atol=1e-3)
    env.close()


@pytest.mark.parametrize(
    ("fails", "message"),
    [
        (
            "segfault:2",
            r"died during STEP \(SIGSEGV\).*Its last words:\n.*the GPU is on fire.*Segmentation fault",
        ),
        ("raise:2", r"failed in STEP: Traceback.*PhysX has lost its device.*the GPU is on fire"),
        ("exit:2", r"died during STEP \(exit code 7\).*the GPU is on fire"),
        ("babble:2", r"answered to STEP what is no message \(a message of 4294967295 bytes\)"),
        ("hang:2", r"did not answer to STEP within 1 s, and was ended.*the GPU is on fire"),
    ],
)
def test_failing_worker_error_has_its_last_output(
    build: Builder, scene: Scene, fails: str, message: str
) -> None:
    """One error, at the failing step, and no process or zombie remains."""
    engine = build(fails)
    engine._timeout_s = 1.0 if fails.startswith("hang") else 60.0
    pid = engine._worker.pid
    ctrl = torch.zeros(2, scene.model.nu)
    engine.step(ctrl, 1)
    with pytest.raises(EnvError, match=f"(?s){message}"):
        engine.step(ctrl, 1)
    assert is_gone(pid)
    engine.close()  # has nothing left to do


def test_a_killed_worker_is_collected(build: Builder, scene: Scene) -> None:
    """As by the system when memory runs out."""
    engine = build()
    os.kill(engine._worker.pid, signal.SIGKILL)
    with pytest.raises(EnvError, match="SIGKILL, killed from outside or out of memory"):
        engine.step(torch.zeros(2, scene.model.nu), 1)


def test_nothing_stays_of_a_closed_or_forgotten_engine(build: Builder) -> None:
    """Processes, open files and shared memory, whether close() was called or not."""

    def held() -> tuple[int, int]:
        gc.collect()
        return len(os.listdir("/proc/self/fd")), Path("/proc/self/maps").read_text().count("isaacgym-slots")

    before = held()
    closed, forgotten = build(), build()
    pids = [engine._worker.pid for engine in build.engines]
    assert held() == (before[0] + 8 + 2, before[1] + 2)  # mmap keeps a descriptor of its own
    closed.close()
    closed.close()
    del closed, forgotten
    build.engines.clear()
    assert held() == before
    assert all(is_gone(pid) for pid in pids)


def test_a_worker_ends_when_its_engine_is_gone() -> None:
    """The worker's pipe closes, as after a killed training."""
    theirs, mine = os.pipe()
    worker = subprocess.Popen([sys.executable, str(WORKER), str(theirs), "1", "1"], pass_fds=[theirs])
    os.close(theirs)
    assert worker.poll() is None
    os.close(mine)
    assert worker.wait(30.0) == 0


def test_missing_isaac_gym_is_reported(scene: Scene, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No variable; one that names no program; a Python without isaacgym."""
    monkeypatch.delenv("ROBO_RL_ISAACGYM_PYTHON", raising=False)
    with pytest.raises(MissingDependencyError, match=r"Preview 4.*NVIDIA GPU: set ROBO_RL_ISAACGYM_PYTHON"):
        IsaacGymEngine(scene, 1)
    monkeypatch.setenv("ROBO_RL_ISAACGYM_PYTHON", str(tmp_path / "python"))
    with pytest.raises(ConfigError, match="which is no program"):
        IsaacGymEngine(scene, 1)
    monkeypatch.setenv("ROBO_RL_ISAACGYM_PYTHON", sys.executable)
    with pytest.raises(
        MissingDependencyError, match=r"cannot load Isaac Gym: .*No module named 'isaacgym'.*Preview 4"
    ):
        IsaacGymEngine(scene, 1)


@pytest.mark.parametrize("name", ["protocol", "frames", "worker", "gymsim"])
def test_worker_modules_fit_python_3_7(name: str) -> None:
    """Python 3.7's grammar, and nothing imported but the standard library, numpy, its neighbours and the
    runtime.
    """
    tree = ast.parse((WORKER.parent / f"{name}.py").read_text(), feature_version=(3, 7))
    imported = {
        (alias.name if isinstance(node, ast.Import) else node.module).split(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    }
    neighbours = {"protocol", "frames", "worker", "gymsim"}
    runtime = {"isaacgym", "torch"} if name == "gymsim" else set()
    assert imported - neighbours - runtime - {"numpy"} <= set(sys.stdlib_module_names)
    assert "collections" not in imported  # classes of collections.abc take no parameters before Python 3.9


def test_slots_do_not_overlap() -> None:
    """Each array is written with its own number, then all are read."""
    sizes = {"n": 3, "nq": 4, "nv": 5, "nu": 2, "nb": 6, "nf": 1, "nt": 0}
    memory = bytearray(protocol.size_bytes(sizes))
    arrays = protocol.slots(memory, sizes)
    for i, array in enumerate(arrays.values()):
        array[:] = i
    assert all((array == i).all() for i, array in enumerate(arrays.values()))
    assert sum(array.nbytes for array in arrays.values()) == len(memory)
