"""Control of the arm while the recording app records: by a page, a device, a policy, or nobody."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from hardware.messages import JointJog, Text
from hardware.nodes.shared.intervention_flag import InterventionFlag
from hardware.topics import JOINT_JOG, RECORDER_REQUEST, TELEOP_FAULT
from robo_rl.apps.recording.learning.child import Child
from robo_rl.apps.recording.learning.policies import PolicyRunner
from tests.apps.recording.cell import RecordingCell, make_cell
from tests.apps.recording.live import WillingPolicy


def test_an_episode_is_not_resumed_elsewhere(tmp_path: Path) -> None:
    """A gamepad goes on driving in the pause: row i + 1 would not be the result of the action of frame i."""
    cell = make_cell(tmp_path / "data", drives=False)
    operator = InterventionFlag(bus := cell.world.bus("pad"))
    operator.set(True)
    jog, speed = JOINT_JOG.publisher(bus), np.array([1.0, 0.0, 0.0])
    bus.timer(0.02, lambda: jog(JointJog(0.0, cell.robot.names, speed)))
    cell.ask(kind="start")
    cell.run(0.3)
    cell.ask(kind="pause")
    assert cell.said[-1] == "paused; the arm is held by nobody: leave it there"
    cell.run(0.5)
    cell.ask(kind="resume")
    assert (cell.node.episodes.state, "rad in the pause" in cell.said[-1]) == ("paused", True)
    speed[0] = -1.0
    cell.run(0.5)
    cell.ask(kind="resume")
    assert cell.node.episodes.state == "recording"
    cell.run(0.3)
    cell.ask(kind="save", success=True)
    assert np.abs(np.diff(cell.store().episode(0).obs("state")[:, 0])).max() < 0.2


def test_input_that_stops_coming_stops_the_arm(cell: RecordingCell) -> None:
    """Dead-man switch: released, the arm gets the same command at the next tick; silent, after 0.2 s."""
    cell.drive(0.5)
    cell.run(0.06)
    place = cell.arm.q_rad.copy()
    cell.run(0.5)
    np.testing.assert_allclose(cell.arm.q_rad, place, atol=1e-6)
    cell.ask(kind="drive", mode="joints", values=[1.0, 0.0, 0.0])
    cell.run(1.5)
    assert 0.0 < cell.arm.q_rad[0] - place[0] < 0.25
    assert cell.armed


def test_the_emergency_stop_disarms(cell: RecordingCell) -> None:
    """Pressed, the filter stops; released, it has to be armed again."""
    cell.ask(kind="estop", on=True)
    cell.run(1.0)
    assert not cell.armed
    cell.ask(kind="arm")
    assert not cell.armed
    cell.ask(kind="estop", on=False)
    cell.run(0.1)
    cell.ask(kind="arm")
    assert cell.armed
    cell.ask(kind="estop", on=True)
    assert cell.said.count("EMERGENCY STOP pressed") == 2  # each one is told, however soon


def test_a_policy_acts_within_episodes_alone(cell: RecordingCell) -> None:
    """The arm is held in a pause, and after an episode until the next one starts; no frame of the policy's
    counts as an intervention. A page that is left stops the policy.
    """
    policy = WillingPolicy()
    cell.node.autonomy = policy  # type: ignore[assignment]
    streams = cell.node.streams
    cell.ask(kind="let_run")
    cell.ask(kind="start")
    cell.run(0.5)
    assert not streams.intervention
    cell.ask(kind="pause")
    cell.run(0.2)
    assert streams.intervention
    cell.ask(kind="resume")
    cell.run(0.5)
    cell.ask(kind="save", success=False)
    cell.run(2.0)
    assert streams.intervention
    assert policy.trials == [(False, True)]
    cell.ask(kind="start")
    cell.run(0.5)
    assert not streams.intervention
    cell.ask(kind="abandon")
    cell.run(0.2)
    assert streams.intervention
    assert "no operator's page is open: the policy is stopped" in cell.said
    cell.ask(kind="save", success=None)
    first, second = cell.store()
    assert not first.intervention.any()
    assert second.intervention.any()
    assert not second.intervention[:5].any()


def test_a_policy_in_control_stays_in_control_when_another_is_refused(
    cell: RecordingCell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only an accepted bundle gives the arm to the operator, before the nodes of the present one end."""
    policy, ended = WillingPolicy(), list[bool]()
    runner = PolicyRunner(
        cell.world.bus("app"),
        lambda bundle: None,
        lambda bundle: {},
        lambda name, given: Child(name, given, print),
        print,
    )
    monkeypatch.setattr(runner, "close", lambda: ended.append(cell.node.control.by_policy))
    monkeypatch.setattr(policy, "load", runner.load, raising=False)
    cell.node.autonomy = policy  # type: ignore[assignment]
    cell.ask(kind="let_run")
    assert cell.node.control.by_policy
    cell.ask(kind="policy", bundle="no/bundle")
    assert "no/bundle is no bundle" in cell.said[-1]
    assert (cell.node.control.by_policy, ended) == (True, [])
    cell.ask(kind="policy", bundle="")
    assert (cell.node.control.by_policy, ended) == (False, [False])


@pytest.mark.parametrize(("word", "success"), [("success", True), ("failure", False), ("stop", None)])
def test_a_label_by_a_button_of_a_device_is_as_one_of_the_page(
    cell: RecordingCell, word: str, success: bool | None
) -> None:
    """The policy that acted alone gets its trial and is held; the simulated arm goes back to its start."""
    policy = WillingPolicy()
    cell.node.autonomy = policy  # type: ignore[assignment]
    cell.drive(0.5)
    assert cell.arm.q_rad[0] > 0.2
    cell.ask(kind="let_run")
    cell.ask(kind="start")
    cell.run(0.5)
    RECORDER_REQUEST.publisher(cell.world.bus("device"))(Text(word))
    cell.run(1.0)
    assert policy.trials == [(success, True)]
    assert cell.node.streams.intervention
    assert cell.arm.q_rad[0] == pytest.approx(0.1, abs=1e-3)
    assert cell.store().episode(0).success is success


def test_a_device_that_is_unplugged_is_named_and_the_episode_is_kept(cell: RecordingCell) -> None:
    """The page shows the sentence of the node that reads the device; an empty one says that it is over."""
    tell = TELEOP_FAULT.publisher(cell.world.bus("teleop"))
    cell.ask(kind="start")
    cell.drive(0.5)
    told = len(cell.said)
    tell(Text("The gamepad js0 is gone."))
    cell.run(0.2)
    tell(Text(""))
    cell.run(0.2)
    assert cell.said[told:] == ["The gamepad js0 is gone."]
    cell.ask(kind="save", success=False)
    assert cell.store().episode(0).meta.complete
