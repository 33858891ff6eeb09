"""A tracked hand as messages: their check, the clutch, their age, and the TCP link that carries them."""

from __future__ import annotations

import contextlib
import json
import math
import select
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hardware.description import load_description
from hardware.teleop.device import Feedback, OperatorInput, Teleoperator
from hardware.teleop.input_check import checked
from hardware.teleop.pose_link import PoseLink, make_pose_link
from hardware.teleop.pose_stream import AGE_S, PoseStream
from robo_rl.core.errors import ConfigError, DataError, DriverError

ROBOT = load_description("sim_arm")
TOKEN = "a token of the test"


def pose(seq: int, clutch: bool = True, place: Any = (0.0, 0.0, 0.0), **more: Any) -> dict[str, Any]:
    return {"seq": seq, "clutch": clutch, "position_m": list(place), "quat_xyzw": [0.0, 0.0, 0.0, 1.0]} | more


class Clock:
    """Time of the test."""

    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_axes_of_a_headset_become_those_of_the_base(clock: Clock) -> None:
    """Forward is -z, left is -x, up is y; a turn about the vertical stays one."""
    quarter = [0.0, math.sin(0.25 * math.pi), 0.0, math.cos(0.25 * math.pi)]
    for yaw_rad, sign in ((0.0, 1.0), (math.pi, -1.0)):
        stream = PoseStream(yaw_rad=yaw_rad, clock=clock)
        stream.put(pose(0, place=(-2.0, 3.0, -1.0), quat_xyzw=quarter))
        found = stream.get_action(0.0)
        assert found.pose is not None
        assert found.pose.position_m == pytest.approx([sign * 1.0, sign * 2.0, 3.0])
        assert found.pose.quat_wxyz == pytest.approx([quarter[3], 0.0, 0.0, quarter[1]])
    stream = PoseStream(frame="base", clock=clock)
    stream.put(pose(0, place=(1.0, 2.0, 3.0)))
    found = stream.get_action(0.0)
    assert found.pose is not None
    assert found.pose.position_m.tolist() == [1.0, 2.0, 3.0]


def test_clutch_is_released_without_a_recent_message(clock: Clock) -> None:
    stream = PoseStream(clock=clock)
    assert isinstance(stream, Teleoperator)
    assert not stream.get_action(0.0).held
    stream.put(pose(0))
    assert stream.get_action(AGE_S).held
    assert not stream.get_action(AGE_S + 0.001).held
    stream.put(pose(1))
    stream.lose()
    assert not stream.get_action(0.0).held
    stream.put(pose(0))  # a new sender counts from 0
    assert stream.get_action(0.0).held


def test_short_release_of_the_clutch_is_seen(clock: Clock) -> None:
    """Released and pressed between two ticks: a new engagement, so that the tool does not jump."""
    stream = PoseStream(clock=clock)
    for seq, clutch in enumerate((True, False, True)):
        stream.put(pose(seq, clutch))
    assert [stream.get_action(0.0).held for _ in range(2)] == [False, True]


def test_buttons_count_once_and_old_messages_not_at_all(clock: Clock) -> None:
    stream = PoseStream(clock=clock)
    stream.put(pose(5, gripper=0.25, gripper_toggle=True, request="success"))
    stream.put(pose(5, gripper_toggle=True))
    stream.put(pose(4, False))
    found = stream.get_action(0.0)
    assert (found.held, found.gripper, found.gripper_toggle, found.recorder_request) == (
        True,
        0.25,
        True,
        "success",
    )
    found = stream.get_action(0.0)
    assert (found.gripper_toggle, found.recorder_request) == (False, "")
    for seq in range(6, 1000):
        stream.put(pose(seq, gripper_toggle=seq == 7))  # a queue that overflows
    assert stream.get_action(0.0).gripper_toggle


@pytest.mark.parametrize(
    ("item", "says"),
    [
        ([], "is a JSON object, found list"),
        ({}, "needs seq, clutch, position_m, quat_xyzw"),
        (pose(1, speed=2), "has no key 'speed'"),
        (pose(1) | {"seq": True}, "a whole number that grows"),
        (pose(-1), "a whole number that grows"),
        (pose(1) | {"clutch": 1}, "clutch of a pose is true or false"),
        (pose(1, place=(0, 0)), "position_m of a pose is 3 finite numbers"),
        (pose(1, place=(0, 0, math.nan)), "3 finite numbers"),
        (pose(1, place=(0, 0, 10**400)), "3 finite numbers"),
        (pose(1, place=(0, 0, 200.0)), "100 m away"),
        (pose(1, quat_xyzw=[0, 0, 0, 0.0]), "has not the length 1"),
        (pose(1, quat_xyzw="abcd"), "quat_xyzw of a pose is 4 finite numbers"),
        (pose(1, gripper=2.0), "a number from 0 to 1"),
        (pose(1, request="rm"), "request of a pose is one of start, success"),
    ],
)
def test_messages_that_make_no_sense_are_refused(item: Any, says: str) -> None:
    with pytest.raises(DataError, match=says):
        PoseStream().put(item)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.fixed_dictionaries(dict.fromkeys(pose(0), JSON), optional={"gripper": JSON, "request": JSON}))
def test_any_json_is_refused_or_can_be_used(item: dict[str, Any]) -> None:
    stream = PoseStream()
    with contextlib.suppress(DataError):
        stream.put(item)
    assert checked(stream.get_action(0.0), ROBOT)[1] == ""


def test_other_frames_are_refused() -> None:
    with pytest.raises(ConfigError, match="expected webxr or base"):
        PoseStream(frame="camera")
    with pytest.raises(ConfigError, match="expected radians"):
        PoseStream(yaw_rad=math.inf)


class Sender:
    """A program that tracks the hand."""

    def __init__(self, link: PoseLink) -> None:
        self.link, self.socket = link, socket.create_connection(("127.0.0.1", link.port))

    def send(self, *lines: Any) -> None:
        text = "".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines)
        self.socket.sendall(text.encode())

    def answers(self) -> list[dict[str, Any]]:
        """What came back so far, at least one line or the end."""
        select.select([self.socket], [], [], 5.0)
        return [json.loads(line) for line in self.socket.recv(65536).splitlines()]


@pytest.fixture
def link(clock: Clock) -> Iterator[PoseLink]:
    made = PoseLink(PoseStream(clock=clock), "127.0.0.1", 0, TOKEN)
    made.connect()
    yield made
    made.close()


def settle(link: PoseLink, now_s: float = 0.0) -> OperatorInput:
    """Input once what was sent has arrived."""
    sender, pending = link._sender, [each.socket for each in link._pending]
    waiting = [link._listener, *pending, *([] if sender is None else [sender])]
    select.select(waiting, [], [], 5.0)
    return link.get_action(now_s)


def test_poses_over_tcp(link: PoseLink) -> None:
    """The token first; faults are answered; a lost connection releases in the same tick."""
    sender = Sender(link)
    sender.send(TOKEN, pose(0), {"seq": 1}, "{", pose(2, place=(0.0, 0.5, 0.0)))
    found = settle(link)
    found = found if found.held else settle(link)
    assert found.held
    assert found.pose is not None
    assert found.pose.position_m == pytest.approx([0.0, 0.0, 0.5])
    link.send_feedback(Feedback(True, 0.25))
    said = sender.answers()
    assert [sorted(item) for item in said] == [["error"], ["error"], ["driving", "slowed"]]
    assert said[-1] == {"driving": True, "slowed": 0.25}
    second = Sender(link)
    second.send(TOKEN)
    settle(link)
    settle(link) if link._pending else None
    assert second.answers() == [{"error": "another sender is connected"}]
    second.socket.close()
    sender.socket.close()
    assert not settle(link).held
    again = Sender(link)
    again.send(TOKEN, pose(0))
    assert settle(link).held or settle(link).held
    again.socket.close()


def test_wrong_token_and_endless_lines_end_the_connection(link: PoseLink) -> None:
    for line, why in (("guess", "wrong token"), (TOKEN + "\n" + "x" * 200_000, "a line is too long")):
        sender = Sender(link)
        sender.socket.setblocking(False)
        sent = (line + "\n").encode()
        while sent:
            try:
                sent = sent[sender.socket.send(sent) :]
            except BlockingIOError:
                settle(link)
            except ConnectionError:
                break
            settle(link)
        while link._sender is not None or link._pending:
            settle(link)
        try:
            assert sender.answers()[-1] == {"error": why}
        except ConnectionResetError:  # the rest of the line was not read any more
            assert why == "a line is too long"
        sender.socket.close()


def test_nobody_is_locked_out(link: PoseLink) -> None:
    """Neither by a connection without a token, nor by a phone that fell silent without ending its own."""
    unknown, first = Sender(link), Sender(link)
    first.send(TOKEN, pose(0))
    while not settle(link).held:
        pass
    link.get_action(2.1)
    assert unknown.answers() == [{"error": "no token came"}]
    first.send(pose(1))
    settle(link, 3.0)
    second = Sender(link)
    second.send(TOKEN, pose(0))
    while not link._sender or link._sender.getpeername() != second.socket.getsockname():
        settle(link, 4.1)
    assert first.answers()[-1] == {"error": "silent for 1 s, and another sender has connected"}
    crowd = [Sender(link) for _ in range(9)]
    while len(link._pending) < 8:
        settle(link, 4.2)
    assert crowd[0].answers() == [{"error": "too many connections"}]
    for each in (unknown, first, second, *crowd):
        each.socket.close()


def test_addresses_of_a_network_need_a_token(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="needs token_file"):
        make_pose_link(ROBOT, listen="0.0.0.0:8770")
    (tmp_path / "token").write_text("short\n")
    with pytest.raises(ConfigError, match="5 characters, expected 16"):
        make_pose_link(ROBOT, token_file=str(tmp_path / "token"))
    with pytest.raises(ConfigError, match="does not exist"):
        make_pose_link(ROBOT, token_file=str(tmp_path / "none"))
    for listen in ("8770", "localhost:x", "localhost:99999"):
        with pytest.raises(ConfigError, match="expected <host>:<port>"):
            make_pose_link(ROBOT, listen=listen)
    closed = make_pose_link(ROBOT, listen="127.0.0.1:0")
    with pytest.raises(DriverError, match="closed"):
        closed.get_action(0.0)


def test_pose_is_finite() -> None:
    stream = PoseStream()
    stream.put(pose(0))
    found = stream.get_action(0.0).pose
    assert found is not None
    assert np.isfinite(found.position_m).all()
