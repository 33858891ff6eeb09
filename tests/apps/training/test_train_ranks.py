"""`robo-rl train launcher=torchrun`: two processes as a user starts, stops and kills them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from robo_rl.apps.cli.main import main as robo_rl
from robo_rl.apps.training.train_ranks import check_equal, check_processes, launch_training
from robo_rl.conf.train import TrainConfig
from robo_rl.core.errors import ConfigError, DataError
from robo_rl.data.store import DatasetWriter
from robo_rl.nets.ranks import Ranks
from robo_rl.rl.scale.process_group import LAUNCHER, rank_device, speaks
from robo_rl.runs.metrics import read_metrics
from tests.rl.worlds import SPEC

ROOT = Path(__file__).resolve().parents[3]
LONG_S = 120.0
RUN = ("batch_size=32", "device=cpu", "log_every=10")
SMALL = (*RUN, "net.width=16", "net.depth=1")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("ranks") / "data"
    writer, rng = DatasetWriter.create(folder, SPEC), np.random.default_rng(0)
    for _ in range(3):
        with writer.episode() as episode:
            for state in rng.normal(size=(25, 2)).astype(np.float32):
                episode.add({"state": state}, np.tanh(state[:1]))
            episode.commit(success=True)
    return folder


def words(data: Path, out: Path, *more: str) -> list[str]:
    return ["train", f"data={data}", f"out={out}", "steps=400", *SMALL, *more]


TWO, OFTEN = ("launcher=torchrun", "processes=2"), "checkpoint_every=40"


@pytest.fixture(scope="module")
def whole(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Uninterrupted run of two processes."""
    out = tmp_path_factory.mktemp("ranks") / "whole"
    assert robo_rl(words(data, out, *TWO)) == 0
    return out


def started(words: list[str], *program: str) -> subprocess.Popen[str]:
    here = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        [sys.executable, *program, "-m", "robo_rl", *words],
        cwd=ROOT,
        env=here,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def ranks_of(launcher: int) -> dict[int, int]:
    """Rank -> process id of the launcher's children."""
    found = {}
    for task in Path(f"/proc/{launcher}/task").iterdir():
        for pid in map(int, (task / "children").read_text().split()):
            pairs = (Path(f"/proc/{pid}/environ").read_text().split("\0")) if pid else []
            variables = dict(pair.split("=", 1) for pair in pairs if "=" in pair)
            if "RANK" in variables:
                found[int(variables["RANK"])] = pid
    return found


def wait_for(path: Path, process: subprocess.Popen[str]) -> None:
    deadline_s = time.monotonic() + LONG_S
    while not path.exists():
        assert process.poll() is None, "the run ended too early"
        assert time.monotonic() < deadline_s
        time.sleep(0.01)


def listening(pid: int) -> set[str]:
    """Local addresses, in hex, of the TCP sockets on which a process listens."""
    inodes = set()
    for link in Path(f"/proc/{pid}/fd").iterdir():
        if (target := os.readlink(link)).startswith("socket:"):
            inodes.add(target[8:-1])
    rows = [
        line.split()
        for name in ("tcp", "tcp6")
        for line in Path(f"/proc/{pid}/net/{name}").read_text().splitlines()[1:]
    ]
    return {row[1].split(":")[0] for row in rows if row[3] == "0A" and row[9] in inodes}


def same_run(one: Path, other: Path) -> None:
    for name in ("policy/weights.safetensors", "metrics.jsonl"):
        assert (one / name).read_bytes() == (other / name).read_bytes(), name


@pytest.mark.slow
def test_two_processes_train_the_policy_of_one(whole: Path, data: Path, tmp_path: Path) -> None:
    """The same batches: losses and weights agree up to rounding."""
    out = tmp_path / "one"
    assert robo_rl(words(data, out)) == 0
    for one, two in zip(
        read_metrics(out / "metrics.jsonl"), read_metrics(whole / "metrics.jsonl"), strict=True
    ):
        assert two == pytest.approx(one, rel=1e-4)
    weights, expected = (load_file(run / "policy" / "weights.safetensors") for run in (whole, out))
    for name, value in expected.items():
        torch.testing.assert_close(weights[name], value, rtol=0.0, atol=1e-4)


@pytest.mark.slow
def test_two_processes_train_a_policy_further_as_one_does(whole: Path, data: Path, tmp_path: Path) -> None:
    """The policy of init= and the same batches: weights agree up to rounding."""
    further = ["train", f"data={data}", f"init={whole}", "steps=100", "lr=1.0e-3", *RUN]
    assert robo_rl([*further, f"out={tmp_path / 'one'}"]) == 0
    assert robo_rl([*further, f"out={tmp_path / 'two'}", *TWO]) == 0
    one, two = (load_file(tmp_path / out / "policy" / "weights.safetensors") for out in ("one", "two"))
    start = load_file(whole / "policy" / "weights.safetensors")
    for name, value in one.items():
        torch.testing.assert_close(two[name], value, rtol=0.0, atol=1e-4)
    assert any(not torch.allclose(value, start[name], atol=1e-2) for name, value in one.items())


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("rank", [0, 1])
def test_a_killed_rank_ends_the_run_which_resumes_to_the_same_bits(
    rank: int, whole: Path, data: Path, tmp_path: Path
) -> None:
    """One sentence, exit code 1, no process left behind; every socket had been bound to loopback."""
    out = tmp_path / "run"
    process = started(words(data, out, *TWO, OFTEN))
    wait_for(out / ".saved", process)
    ranks = ranks_of(process.pid)
    assert sorted(ranks) == [0, 1]
    addresses = listening(process.pid) | listening(ranks[0]) | listening(ranks[1])
    assert addresses == {"0100007F"}
    os.kill(ranks[rank], signal.SIGKILL)
    _, said = process.communicate(timeout=LONG_S)
    assert process.returncode == 1, said
    sentence = said.splitlines()[-1].rpartition("robo-rl: ")[2]
    assert sentence.startswith(f"Rank {rank} of 2 (process {ranks[rank]}) was ended by SIGKILL")
    assert "the same command with resume=true continues it" in sentence
    assert "Traceback" not in said
    assert not any(Path(f"/proc/{pid}/cmdline").exists() for pid in ranks.values())
    assert robo_rl(words(data, out, *TWO, OFTEN, "resume=true")) == 0
    same_run(whole, out)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_saves_on_all_ranks(number: signal.Signals, whole: Path, data: Path, tmp_path: Path) -> None:
    """Exit code 130 and the step that was saved, said once; resumed, the run has the same bits."""
    out = tmp_path / "run"
    process = started(words(data, out, *TWO))
    log = out / "metrics.jsonl"
    wait_for(log, process)
    while not log.read_text():
        time.sleep(0.01)
    process.send_signal(number)
    _, said = process.communicate(timeout=LONG_S)
    assert process.returncode == 130, said
    assert said.count("resume=true continues it") == 1
    assert "Traceback" not in said
    assert robo_rl(words(data, out, *TWO, "resume=true")) == 0
    same_run(whole, out)


@pytest.mark.slow
def test_shards_train_the_same_policy_and_resume_to_the_same_bits(
    whole: Path, data: Path, tmp_path: Path
) -> None:
    """Up to rounding that of whole copies; stopped by SIGTERM and resumed, that of an uninterrupted run."""
    shards = (*TWO, "shard=true")
    assert robo_rl(words(data, tmp_path / "shards", *shards)) == 0
    found, expected = (
        load_file(run / "policy" / "weights.safetensors") for run in (tmp_path / "shards", whole)
    )
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, rtol=0.0, atol=1e-4)
    out = tmp_path / "stopped"
    process = started(words(data, out, *shards, OFTEN))
    wait_for(out / ".saved", process)
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=LONG_S)
    assert process.returncode == 130, said
    assert robo_rl(words(data, out, *shards, OFTEN, "resume=true")) == 0
    same_run(tmp_path / "shards", out)


@pytest.mark.slow
def test_torchrun_itself_gives_the_same_run(whole: Path, data: Path, tmp_path: Path) -> None:
    """`torchrun -m robo_rl train ...`, as on several machines: rank 0 tells the results, once."""
    out = tmp_path / "run"
    torchrun = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2")
    process = started(words(data, out), *torchrun)
    told, said = process.communicate(timeout=LONG_S)
    assert process.returncode == 0, said
    assert told.count("Policy: ") == 1
    same_run(whole, out)


@pytest.mark.slow
def test_another_number_of_processes_may_continue(
    whole: Path, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Batches do not depend on it: the result is the same up to rounding, and a message says so."""
    out = tmp_path / "run"
    process = started(words(data, out, *TWO, OFTEN))
    wait_for(out / ".saved", process)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=LONG_S)
    assert robo_rl(words(data, out, "resume=true")) == 0
    assert "saved with 2 processes and continues with 1" in capsys.readouterr().out
    weights, expected = (load_file(run / "policy" / "weights.safetensors") for run in (whole, out))
    for name, value in expected.items():
        torch.testing.assert_close(weights[name], value, rtol=0.0, atol=1e-4)


def config(data: Path, out: Path, **changes: object) -> TrainConfig:
    small: dict[str, object] = {"data": str(data), "out": str(out), "batch_size": 32, "launcher": "torchrun"}
    return TrainConfig(**small | changes)  # type: ignore[arg-type]  # a mapping of mixed values


def test_mistakes_are_answered_before_a_process_starts(data: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="batch_size=32 cannot be divided equally between 3 processes"):
        launch_training(config(data, tmp_path / "run", processes=3))
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "file").touch()
    with pytest.raises(ConfigError, match="exists and is not a run"):
        launch_training(config(data, tmp_path / "other", processes=2))
    with pytest.raises(ConfigError, match="processes=2 needs launcher=torchrun"):
        check_processes(config(data, tmp_path / "run", launcher="none", processes=2))
    with pytest.raises(ConfigError, match="shard=true divides a policy between several processes"):
        launch_training(config(data, tmp_path / "run", processes=1, shard=True))
    assert not (tmp_path / "run").exists()


def test_ranks_with_other_data_or_settings_are_refused(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every rank compares the same numbers, so all of them end with the sentence."""
    mine = {"episodes": 3, "frames": 75, "numbers_crc32": 7}
    changes: dict[int, int] = {}

    def gather(ranks: Ranks, value: torch.Tensor) -> list[torch.Tensor]:
        other = value.clone()
        for at, by in changes.items():
            other[at] += by
        return [value, other]

    monkeypatch.setattr(Ranks, "gather", gather)
    check_equal(config(data, tmp_path), mine, Ranks(0, 2))
    changes[2] = -5
    with pytest.raises(DataError, match=r"Rank 1 has 3 episodes with 70 frames .* rank 0 has 3 with 75\."):
        check_equal(config(data, tmp_path), mine, Ranks(0, 2))
    changes[0] = 1
    with pytest.raises(ConfigError, match="Rank 1 was started with other settings than rank 0"):
        check_equal(config(data, tmp_path), mine, Ranks(0, 2))


def test_devices_and_voices_of_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rank 0 tells the results, unless the launching verb does; each rank has a GPU of its own."""
    assert speaks()
    for name, value in {"TORCHELASTIC_RUN_ID": "x", "LOCAL_WORLD_SIZE": "2", "LOCAL_RANK": "1"}.items():
        monkeypatch.setenv(name, value)
    for rank, launcher, expected in (("0", None, True), ("1", None, False), ("0", "7", False)):
        monkeypatch.setenv("RANK", rank)
        if launcher is not None:
            monkeypatch.setenv(LAUNCHER, launcher)
        assert speaks() is expected
    assert rank_device("cpu").type == "cpu"
    with pytest.raises(ConfigError, match="device=cuda:1 names one device for all processes"):
        rank_device("cuda:1")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with pytest.raises(ConfigError, match="2 processes need a GPU each, but torch sees 1 here"):
        rank_device("cuda")
