"""Fine-tuning with real Ray: a local cluster, one of two nodes, and what is killed in the middle."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(2400)]
SMALL = {
    "method": "sac",
    "env": "gym/Pendulum-v1",
    "launcher": "ray",
    "actors": "2",
    "num_envs": "2",
    "eval_every": "0",
    "eval_episodes": "2",
    "final_episodes": "2",
    "method.base_steps": "200",
    "method.learner.hidden": "[16]",
    "checkpoint_every": "200",
    "block_steps": "16",
}


@pytest.fixture
def short() -> Iterator[Path]:
    """A folder with a short name, which Ray's sockets need."""
    with tempfile.TemporaryDirectory(prefix="rr-", dir="/tmp") as folder:
        yield Path(folder)


@pytest.fixture(autouse=True)
def ray_is_installed() -> None:
    if find_spec("ray") is None:
        pytest.fail("These tests need Ray. Run: pip install 'robo-rl[ray]'")


def words(out: Path, **settings: object) -> list[str]:
    """Command line of a small run."""
    given = SMALL | {name: str(value) for name, value in settings.items()}
    return ["finetune", f"out={out}", *(f"{name}={value}" for name, value in given.items())]


def started(command: list[str], folder: Path) -> subprocess.Popen[str]:
    """`robo-rl` in a process; `folder` is its home and its place for temporary files."""
    (folder / "tmp").mkdir(exist_ok=True)
    env = os.environ | {"TMPDIR": str(folder / "tmp"), "HOME": str(folder), "RAY_TMPDIR": str(folder)}
    return subprocess.Popen(
        [sys.executable, "-m", "robo_rl", *command],
        env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip


def children(pid: int) -> list[int]:
    """All processes below this one."""
    found = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in map(int, task.read_text().split()):
            found += [child, *children(child)]
    return found


def titles(pid: int) -> dict[int, str]:
    """Process id and command line of all processes below this one."""
    return {
        child: Path(f"/proc/{child}/cmdline").read_bytes().decode(errors="replace").replace("\0", " ")
        for child in children(pid)
    }


def wait_for(path: Path, step: int, process: subprocess.Popen[str], seconds: float = 400.0) -> None:
    """Wait until a run has saved this step."""
    for _ in range(int(seconds / 0.2)):
        if any(int(folder.name.split(".")[0]) >= step for folder in (path / "checkpoints").glob("[0-9]*")):
            return
        assert process.poll() is None, process.communicate()[0]
        time.sleep(0.2)
    raise AssertionError(f"the run did not reach step {step}")


def actors_of(out: Path) -> Any:
    return json.loads((out / "actors.json").read_text())


def alive(pids: list[int]) -> list[int]:
    """Those of these processes that run: neither gone nor waiting to be collected."""
    running = []
    for pid in pids:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            continue
        running += [pid] if state not in "ZX" else []
    return running


def listening(pids: list[int]) -> set[str]:
    """Local addresses, in hexadecimal, of the TCP sockets on which these processes listen."""
    inodes = set()
    for pid in pids:
        for link in Path(f"/proc/{pid}/fd").glob("*"):
            try:
                inodes.add(os.readlink(link).removeprefix("socket:[").rstrip("]"))
            except OSError:
                continue
    rows = [
        line.split()
        for name in ("tcp", "tcp6")
        for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]
    ]
    return {row[1].split(":")[0] for row in rows if row[3] == "0A" and row[9] in inodes}


def test_killed_actors_are_replaced_and_a_killed_learner_resumes(tmp_path: Path, short: Path) -> None:
    """One long run: all ports are on loopback; an actor is killed and replaced; SIGTERM saves and ends with
    130; the learner is killed without warning; the last one ends at the steps that were asked for. Nothing is
    left behind, except after SIGKILL: Ray's folder.
    """
    out = tmp_path / "run"
    command = words(out, env_steps=2400)
    run = started(command, short)
    wait_for(out, 400, run)
    every = children(run.pid)
    assert listening([run.pid, *every]) <= {"0100007F", "0000000000000000FFFF00000100007F"}
    first = [pid for pid, title in titles(run.pid).items() if title.startswith("ray::RolloutActor")]
    assert len(first) == 2
    os.kill(first[0], signal.SIGKILL)
    now = int(max(folder.name for folder in (out / "checkpoints").glob("[0-9]*")).split(".")[0])
    wait_for(out, now + 400, run)
    run.send_signal(signal.SIGTERM)
    said, _ = run.communicate(timeout=400)
    assert run.returncode == 130, said
    assert re.search(
        r"Actor \d \(process \d+ on .*\) has died: its running episodes and at most \d+ steps", said
    )
    assert "the same command with resume=true continues it" in said
    time.sleep(1.0)
    assert not alive(every)
    assert not list((short / "tmp").glob("robo-rl-*"))
    assert not (short / ".ray").exists()

    run = started([*command, "resume=true"], short)
    saved = int(max(folder.name for folder in (out / "checkpoints").glob("[0-9]*")).split(".")[0])
    wait_for(out, saved + 200, run)
    every = children(run.pid)
    run.kill()
    run.communicate()
    for _ in range(300):
        if not alive(every):
            break
        time.sleep(0.3)
    assert not alive(every)

    run = started([*command, "resume=true"], short)
    said, _ = run.communicate(timeout=600)
    assert run.returncode == 0, said
    result = json.loads((out / "results.json").read_text())
    assert 2400 <= result["steps"]["base"] + result["steps"]["training"] < 2404
    assert actors_of(out)["replaced"] == 1
    assert actors_of(out)["most_behind"] <= 4
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    updates = [line["train/updates"] for line in lines if "train/updates" in line]
    assert updates == sorted(updates)
    assert updates[-1] <= 2204 * 1.0


@pytest.fixture
def two_nodes(short: Path) -> Iterator[str]:
    """Address of a cluster of two nodes with one CPU each."""
    program = Path(__file__).parents[2] / "rl" / "scale" / "ray_cluster_of_two.py"
    process = subprocess.Popen(
        [sys.executable, str(program), str(short / "ray")],
        env=os.environ | {"HOME": str(short)}, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    yield process.stdout.readline().strip()
    process.communicate()


def test_a_cluster_of_two_nodes(two_nodes: str, tmp_path: Path, short: Path) -> None:
    """Two actors run on the two nodes; more do not fit; the cluster outlives the run and a SIGINT; another
    version of Ray is refused. Each mistake leaves no run behind.
    """
    out = tmp_path / "run"
    command = words(out, env_steps=600, ray_address=two_nodes)
    run = started(words(out, actors=3, ray_address=two_nodes), short)
    said, _ = run.communicate(timeout=400)
    assert run.returncode == 2
    assert "3 actors with 1 CPU each do not fit" in said
    assert not out.exists()

    program = (
        "import ray, sys; ray.__version__ = '2.0.0'; from robo_rl.__main__ import main; sys.exit(main())"
    )
    env = os.environ | {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
    asked = [sys.executable, "-c", program, *command]
    other = subprocess.run(asked, env=env, capture_output=True, text=True, timeout=400)
    assert other.returncode == 2
    assert re.search(r"has another version: .*Ray: 2\.0\.0", other.stderr), other.stderr
    assert not out.exists()

    run = started(command, short)
    wait_for(out, 200, run)
    run.send_signal(signal.SIGINT)
    said, _ = run.communicate(timeout=400)
    assert run.returncode == 130, said
    run = started([*command, "resume=true"], short)
    said, _ = run.communicate(timeout=400)
    assert run.returncode == 0, said
    assert actors_of(out)["replaced"] == 0


def test_an_error_of_an_environment_is_told(tmp_path: Path, short: Path) -> None:
    """An actor that cannot build its environment ends the run with its own sentence."""
    run = started(words(tmp_path / "run", num_workers=3), short)
    said, _ = run.communicate(timeout=400)
    assert run.returncode == 2, said
    assert "Actor " in said
    assert "num_workers <= num_envs" in said
