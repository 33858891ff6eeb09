"""What the launcher of ranks says about failures, and what it leaves behind: nothing."""

from __future__ import annotations

import json
import os
import signal
import socket
from pathlib import Path

import pytest
from torch.distributed.elastic.multiprocessing import ProcessFailure

from robo_rl.rl.scale.process_group import LAUNCHER, PEER_LOST, RankError
from robo_rl.rl.scale.torchrun import LOOPBACK, LoopbackRendezvous, _described, launch


def failure(folder: Path, code: int, words: str = "", pid: int = 7) -> ProcessFailure:
    """A failed process, with the error that it has recorded."""
    file = folder / f"{len(list(folder.iterdir()))}.json"
    if words:
        message = {"message": f"DataError: {words}", "extraInfo": {"timestamp": "5"}}
        file.write_text(json.dumps({"message": message}))
    return ProcessFailure(0, pid, code, str(file))


def test_the_first_cause_is_told(tmp_path: Path) -> None:
    """A rank's own sentence comes before a signal, and both before the ranks that lost a peer or that the
    agent ended.
    """
    killed = failure(tmp_path, -signal.SIGKILL, pid=8)
    ended, lost = failure(tmp_path, -signal.SIGTERM), failure(tmp_path, PEER_LOST, "Connection closed\nat x")
    own = failure(tmp_path, 2, "The data: a fault.")
    error = _described({0: ended, 1: killed, 2: own}, 3)
    assert isinstance(error, RankError)
    assert (str(error), error.exit_code, error.own) == ("The data: a fault.", 2, True)
    assert str(_described({0: ended, 1: killed, 2: lost}, 3)) == (
        "Rank 1 of 3 (process 8) was ended by SIGKILL, which ended the run"
    )
    assert str(_described({0: lost}, 2)) == (
        "Rank 0 of 2 (process 7) lost the other ranks (Connection closed), which ended the run"
    )
    full = _described({0: failure(tmp_path, 4), 1: lost}, 2)
    assert isinstance(full, RankError)
    assert (str(full).split(" ended")[1], full.exit_code) == (" with exit code 4, which", 4)
    assert isinstance(_described({0: failure(tmp_path, 130), 1: lost}, 2), KeyboardInterrupt)


def test_the_meeting_point_is_on_loopback() -> None:
    """torch's own rendezvous would listen on all interfaces."""
    meeting = LoopbackRendezvous("run", 60)
    found = meeting.next_rendezvous()
    found.store.set("key", "value")
    assert found.store.get("key") == b"value"
    assert meeting.use_agent_store
    assert found.bootstrap_store_info is not None
    assert found.bootstrap_store_info.master_addr == LOOPBACK
    with socket.socket() as other, pytest.raises(OSError, match="in use"):
        other.bind((LOOPBACK, meeting.master_port))
    with socket.socket() as other:
        other.bind(("127.0.0.2", meeting.master_port))  # refused if it were taken on every address


def test_a_launch_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """The agent replaces signal handlers and makes folders; ranks need variables that later programs must not
    inherit.
    """
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    variables = dict(os.environ)
    check = f"import os; assert os.environ['{LAUNCHER}'] and os.environ['OMP_NUM_THREADS'] == '3'"
    launch(["-S", "-c", f"{check}; print(os.environ.get('TQDM_DISABLE'))"], 1, 1)
    launch(["-S", "-c", f"{check}; print(os.environ.get('TQDM_DISABLE'))"], 1, 1, progress=False)
    assert capfd.readouterr().out == "None\n1\n"
    with pytest.raises(RankError, match=r"^Rank 0 of 1 \(process \d+\) ended with exit code 6"):
        launch(["-S", "-c", "raise SystemExit(6)"], 1, 1)
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == handlers
    assert dict(os.environ) == variables
    assert list(tmp_path.iterdir()) == []
