"""The Isaac Gym engine through its whole protocol, against a worker that has C MuJoCo behind it."""

from __future__ import annotations

import ast
import gc
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from robo_rl.core.errors import ConfigError, EnvError, MissingDependencyError
from sim.engines.isaacgym import protocol
from sim.engines.isaacgym.engine import IsaacGymEngine
from sim.engines.isaacgym.process import WORKER
from sim.engines.mujoco.engine import MujocoEngine
from sim.engines.protocol import Engine
from sim.engines.scene import Scene
from tests.sim.engines.warp_scenes import grasping, random_targets, resting, scene_of

MOCK = Path(__file__).with_name("isaacgym_mock.py")
SLOW_START_S = 60.0


@pytest.fixture(scope="module")
def scene() -> Scene:
    return scene_of("peg_insert")


@pytest.fixture()
def build(scene: Scene, tmp_path: Path) -> Iterator:
    """A function that starts engines; none outlives the test."""
    path = tmp_path / "scene.xml"
    path.write_text(scene.xml)
    engines: list[IsaacGymEngine] = []

    def start(fails: str = "", worlds: int = 2, timeout_s: float = SLOW_START_S) -> IsaacGymEngine:
        environ = {"MOCK_SCENE": str(path), "MOCK_FAILS": fails}
        command = [sys.executable, str(MOCK)]
        engines.append(IsaacGymEngine(scene, worlds, timeout_s=timeout_s, command=command, environ=environ))
        return engines[-1]

    yield start
    for engine in engines:
        engine.close()


def is_gone(pid: int) -> bool:
    """Neither running nor a zombie."""
    return not Path(f"/proc/{pid}").exists()


def test_physics_go_through_the_protocol(build, scene: Scene) -> None:  # noqa: ANN001 - a fixture
    """Starts, commands, fixtures, touch and other masses reach the worker, and its states come back in float32."""
    engine, c = build(), MujocoEngine(scene, 2)
    assert isinstance(engine, Engine)
    start = grasping(scene, "peg_insert", 2)
    heavy = {"mass_scale": torch.full((1, scene.model.nbody), 1.5), "kp_scale": torch.full((1, scene.model.nu), 0.8)}
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


def test_some_worlds_begin_anew(build, scene: Scene) -> None:  # noqa: ANN001 - a fixture
    """The others go on; bodies of the new ones are shown at once, and pictures show them."""
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


def test_saved_worlds_go_on(build, scene: Scene) -> None:  # noqa: ANN001 - a fixture
    """In another worker; solvers that keep contacts may differ in the last digits."""
    engine, other = build(), build()
    start = resting(scene, "peg_insert", 2)
    engine.set_state(torch.arange(2), start)
    engine.step(start.ctrl + 0.1, 5)
    other.load(engine.save())
    assert torch.equal(engine.physics().body_m, other.physics().body_m)
    for each in (engine, other):
        each.step(start.ctrl, 10)
    assert torch.allclose(engine.physics().qpos, other.physics().qpos, atol=1e-4)


@pytest.mark.parametrize(
    ("fails", "message"),
    [
        ("segfault:2", r"died during STEP \(SIGSEGV\).*Its last words:\n.*the GPU is on fire.*Segmentation fault"),
        ("raise:2", r"failed in STEP: Traceback.*PhysX has lost its device.*the GPU is on fire"),
        ("exit:2", r"died during STEP \(exit code 7\).*the GPU is on fire"),
        ("babble:2", r"answered to STEP what is no message \(a message of 4294967295 bytes\)"),
        ("hang:2", r"did not answer to STEP within 1 s, and was ended.*the GPU is on fire"),
    ],
)
def test_a_worker_that_fails_says_its_last_words(build, scene: Scene, fails: str, message: str) -> None:  # noqa: ANN001
    """One error, at the step that failed, and no process or zombie stays."""
    engine = build(fails)
    engine._timeout_s = 1.0 if fails.startswith("hang") else SLOW_START_S
    pid = engine._worker.pid
    ctrl = torch.zeros(2, scene.model.nu)
    engine.step(ctrl, 1)
    with pytest.raises(EnvError, match=f"(?s){message}"):
        engine.step(ctrl, 1)
    assert is_gone(pid)
    engine.close()  # has nothing left to do


def test_a_killed_worker_is_collected(build, scene: Scene) -> None:  # noqa: ANN001 - a fixture
    """As by the system when memory runs out."""
    engine = build()
    os.kill(engine._worker.pid, signal.SIGKILL)
    with pytest.raises(EnvError, match="SIGKILL, killed from outside or out of memory"):
        engine.step(torch.zeros(2, scene.model.nu), 1)


def test_nothing_stays_of_a_closed_or_forgotten_engine(scene: Scene, build) -> None:  # noqa: ANN001 - a fixture
    """Processes, open files and shared memory, whether close() was called or not."""
    files = len(os.listdir("/proc/self/fd"))
    engine = build()
    pid = engine._worker.pid
    assert "isaacgym-slots" in Path("/proc/self/maps").read_text()
    engine.close()
    engine.close()
    assert is_gone(pid)
    worker = build()._worker
    pid, end = worker.pid, worker._end
    del worker, engine
    build.__closure__[0].cell_contents  # noqa: B018 - the fixture's own list holds the last references
    for cell in build.__closure__:
        if isinstance(cell.cell_contents, list):
            cell.cell_contents.clear()
    gc.collect()
    assert not end.alive
    assert is_gone(pid)
    assert len(os.listdir("/proc/self/fd")) == files
    assert "isaacgym-slots" not in Path("/proc/self/maps").read_text()


def test_a_worker_ends_when_its_engine_is_gone(scene: Scene) -> None:
    """Its pipe closes: what a killed training leaves behind."""
    commands, mine = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(mine)
        sys.path.insert(0, str(WORKER.parent))
        import worker

        worker.serve(commands, 1, 1)
        os._exit(42)
    os.close(commands)
    os.close(mine)
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 42


def test_without_isaac_gym_one_sentence_says_what_it_needs(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """No variable; one that names no program; a Python that has no isaacgym."""
    monkeypatch.delenv("ROBO_RL_ISAACGYM_PYTHON", raising=False)
    with pytest.raises(MissingDependencyError, match=r"Preview 4.*NVIDIA GPU: set ROBO_RL_ISAACGYM_PYTHON"):
        IsaacGymEngine(scene, 1)
    monkeypatch.setenv("ROBO_RL_ISAACGYM_PYTHON", str(tmp_path / "python"))
    with pytest.raises(ConfigError, match="which is no program"):
        IsaacGymEngine(scene, 1)
    monkeypatch.setenv("ROBO_RL_ISAACGYM_PYTHON", sys.executable)
    with pytest.raises(MissingDependencyError, match=r"cannot load Isaac Gym: .*No module named 'isaacgym'.*Preview 4"):
        IsaacGymEngine(scene, 1)


@pytest.mark.parametrize("name", ["protocol", "frames", "worker", "gymsim"])
def test_what_isaac_gyms_python_loads_is_written_for_it(name: str) -> None:
    """Python 3.7's grammar, and nothing imported but the standard library, numpy, its neighbours and the runtime."""
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
    evaluated_at_run_time = {"match", "removeprefix", "walrus"} & {getattr(n, "attr", "") for n in ast.walk(tree)}
    assert not evaluated_at_run_time


def test_slots_do_not_overlap() -> None:
    """Each array is written with its own number, then all are read."""
    sizes = {"n": 3, "nq": 4, "nv": 5, "nu": 2, "nb": 6, "nf": 1, "nt": 0}
    memory = bytearray(protocol.size_bytes(sizes))
    arrays = protocol.slots(memory, sizes)
    for i, array in enumerate(arrays.values()):
        array[:] = i
    assert all((array == i).all() for i, array in enumerate(arrays.values()))
    assert sum(array.nbytes for array in arrays.values()) == len(memory)
