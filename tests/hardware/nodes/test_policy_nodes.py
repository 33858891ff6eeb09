"""Policy, head, filter and robot nodes in virtual time; only the delay of inference is simulated."""

from __future__ import annotations

import itertools
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

from hardware.bus.in_process import InProcessWorld
from hardware.loop.head_networks import Residual, SingleStep
from hardware.loop.inference import Running
from hardware.loop.observation import Seen
from hardware.loop.sampler import guided_sampler
from hardware.messages import Diagnostics, Flag, Floats, JointState
from hardware.nodes.action_head import MISSING
from hardware.nodes.arm_policy import STALE, ArmPolicyNode
from hardware.safety.reasons import Reason
from hardware.topics import CHUNK, INTERVENTION, JOINT_STATES, LOOP_STATUS, POLICY_STATUS, SAFETY_STATE
from policies.deploy.bundle import Bundle
from robo_rl.core.errors import CheckpointError
from tests.hardware.arm_descriptions import arm
from tests.hardware.bundles import arm_env
from tests.hardware.nodes.cell import Cell, DelayedInference


class GuidedInference(DelayedInference):
    """Torch inference from the bundle's weights, guided where requested.

    Each decision has its own noise, the same for all actions of a chunk: chunks are smooth, but differ.
    """

    def __init__(self, world: InProcessWorld, bundle: Bundle, delay_s: float) -> None:
        super().__init__(world, bundle, delay_s)
        self._old = torch.zeros(bundle.chunk, bundle.env.action.dim)
        self._sample = guided_sampler(bundle, "cpu", self._old)
        self.asked: list[Running | None] = []

    def request(self, seen: Seen, decision: int, running: Running | None = None) -> bool:
        if self._due is not None:
            return False
        known = 0 if running is None else len(running.action)
        if running is not None:
            self._old[:known] = torch.from_numpy(running.action)
        drawn = torch.randn(1, 1, self._old.shape[1], generator=torch.Generator().manual_seed(decision))
        noise = (0.5 * drawn).expand(1, *self._old.shape)
        obs = {key: torch.from_numpy(value)[None] for key, value in seen.items()}
        chunk = self._sample(obs, noise, 0 if running is None else running.frozen, known)
        self._due = self._world.now() + self.delay_s, self._bundle.env.action.denormalize(chunk)[0].numpy()
        self.asked.append(running)
        return True


def test_chunks_reach_the_arm_without_a_gap(chunks: Bundle) -> None:
    """30 ms of inference, 8 of 16 actions per chunk: one command per tick, followed, without a hold."""
    cell = Cell(chunks)
    cell.give(Floats(np.array([0.5])))
    cell.until(4.0)
    assert len(cell.raw) >= 190
    stamps_s = [m.stamp_s for m in cell.raw]
    assert all(later > before for before, later in itertools.pairwise(stamps_s))
    assert set(cell.filter.filter.counts) <= {
        Reason.WAITING,
        Reason.ACCELERATION,
        Reason.VELOCITY,
        Reason.NO_STATE,
    }
    assert cell.head.head.player.late == 0
    assert len(cell.chunks) == pytest.approx(4.0 / (8 * 0.02), abs=3)
    assert np.abs(cell.arm.place).max() > 0.01


def jumps_rad(cell: Cell) -> np.ndarray:
    """(n,) from each command to the next one, the largest of the joints."""
    commands = np.stack([message.position_rad[0] for message in cell.raw])
    return np.abs(np.diff(commands, axis=0)).max(axis=1)


@pytest.mark.parametrize("delay_s", [0.03, 0.1])
def test_guided_chunks_continue_the_previous_chunk(chunks: Bundle, delay_s: float) -> None:
    """Every chunk has its own noise: without guidance the command jumps where one chunk replaces another."""
    jumps = {}
    for realtime in (False, True):
        cell = Cell(chunks, delay_s, GuidedInference, realtime)
        cell.give(Floats(np.array([0.5])))
        cell.until(6.0)
        jumps[realtime] = np.sort(jumps_rad(cell))[-20:].mean()  # some thirty chunks take over in this time
        asked = cell.inference.asked  # type: ignore[attr-defined]
        assert any(running is not None for running in asked) is realtime
        assert len(cell.raw) >= 270
    assert jumps[True] < 0.8 * jumps[False]  # of a network that never learned what belongs together
    # The old chunk is eight actions further on; frozen: the actions of the delay and one for the phase.
    assert {len(running.action) for running in asked[2:]} == {16 - 8}
    assert {running.frozen for running in asked[3:]} <= {round(delay_s / 0.02) + n for n in (1, 2)}


def test_gripper_may_share_the_joint_states_topic(chunks: Bundle, single: Bundle) -> None:
    """It publishes its own joint alone, between the arm's states, which are neither replaced nor refreshed by
    it.
    """
    for bundle in (chunks, single):
        cell = Cell(bundle)
        gripper = cell.world.bus("gripper")
        tell = JOINT_STATES.publisher(gripper)
        gripper.timer(0.007, partial(tell, JointState(0.0, ("finger",), np.zeros(1))))
        cell.give(Floats(np.array([0.5])))
        cell.until(2.0)
        assert len(cell.raw) >= 90
        assert len(cell.said) <= 1  # before the arm was heard
        cell.world.kill("robot")
        cell.until(2.2)
        sent = len(cell.raw)
        cell.until(2.5)
        assert len(cell.raw) == sent


def test_policy_waits_for_the_goal(chunks: Bundle) -> None:
    """No goal is invented: the arm holds, and the status names the reason."""
    cell, heard = Cell(chunks), list[Diagnostics]()
    POLICY_STATUS.subscribe(cell.bus["task"], lambda m, at: heard.append(m))
    cell.until(1.1)
    assert not cell.chunks
    assert "waits for the topic 'goal'" in heard[-1].status[0].message
    assert np.array_equal(cell.arm.place, np.zeros(3))
    cell.bus["task"].call("policy/stop", 1.0)
    cell.until(1.7)
    assert heard[-1].status[0].message == "stopped"


def test_a_stopped_policy_shows_no_earlier_fault(chunks: Bundle) -> None:
    """The states have ended, and then the policy is stopped."""
    cell, heard = Cell(chunks), list[Diagnostics]()
    POLICY_STATUS.subscribe(cell.bus["task"], lambda m, at: heard.append(m))
    cell.give(Floats(np.array([0.5])))
    cell.until(1.0)
    cell.world.kill("robot")
    cell.until(1.6)
    assert heard[-1].status[0].message == STALE
    cell.bus["task"].call("policy/stop", 1.0)
    cell.until(2.2)
    assert heard[-1].status[0].message == "stopped"


def test_hanging_inference_leads_to_a_hold(chunks: Bundle) -> None:
    """The rest of the last chunk is played, then the filter holds; nothing blocks."""
    cell = Cell(chunks)
    cell.give(Floats(np.array([0.5])))
    cell.until(1.0)
    cell.inference.delay_s = 1e9
    cell.until(1.8)
    assert cell.filter.filter.reason is Reason.STALE_COMMAND
    cell.until(5.0)
    assert cell.filter.at_rest


def test_dead_inference_is_reported_once(chunks: Bundle) -> None:
    cell = Cell(chunks)
    cell.give(Floats(np.array([0.5])))
    cell.until(1.0)
    cell.inference.fault = "the inference process has died"
    cell.until(2.0)
    assert cell.said == ["policy: the inference process has died", f"head: {MISSING}"]
    assert cell.bus["task"].call("policy/start", 1.0) == (
        False,
        "not started: the inference process has died",
    )


def test_reset_drops_the_pending_chunk(chunks: Bundle) -> None:
    """A chunk requested before the reset is not played after it; the head pauses for 6 periods."""
    cell = Cell(chunks, delay_s=0.1)
    cell.give(Floats(np.array([0.5])))
    cell.until(1.0)
    assert cell.bus["task"].call("policy/reset", 1.0) == (True, "episode 1")
    assert cell.bus["task"].call("head/reset", 1.0) == (True, "episode 1")
    before = len(cell.chunks)
    cell.until(1.6)
    assert all(message.stamp_s > 1.0 for message in cell.chunks[before:])
    stamps_s = [m.stamp_s for m in cell.raw]
    last, first = max(t for t in stamps_s if t <= 1.0), min(t for t in stamps_s if t > 1.0)
    assert first - last > 6 * 0.02
    assert stamps_s == sorted(stamps_s)


def test_restarted_policy_is_followed(chunks: Bundle) -> None:
    """The head keeps running, and has received a second of chunks of the previous policy after a reset."""
    cell = Cell(chunks)
    cell.give(Floats(np.array([0.5])))
    cell.bus["task"].call("policy/reset", 1.0)
    cell.until(1.0)
    cell.bus["policy"].close()
    again, asked = cell.world.bus("policy"), len(cell.chunks)
    ArmPolicyNode(again, chunks, arm(), DelayedInference(cell.world, chunks, 0.03), True, cell.said.append)
    cell.until(1.8)
    assert len(cell.chunks) > asked + 2
    assert cell.filter.filter.reason is None


def test_services_start_and_stop(chunks: Bundle) -> None:
    cell = Cell(chunks)
    cell.give(Floats(np.array([0.5])))
    cell.until(1.0)
    for name in ("policy/stop", "head/stop"):
        assert cell.bus["task"].call(name, 1.0) == (True, "stopped")
    cell.until(1.05)
    sent = len(cell.raw)
    cell.until(1.5)
    assert len(cell.raw) == sent
    assert cell.bus["task"].call("policy/start", 1.0) == (True, "inferring")


def test_start_reports_a_stopped_filter(chunks: Bundle) -> None:
    """The filter stopped after its longest hold; without the report a human would wait in vain."""
    cell, heard = Cell(chunks), list[Diagnostics]()
    SAFETY_STATE.subscribe(cell.bus["task"], lambda m, at: heard.append(m))
    cell.give(Floats(np.array([0.5])))
    cell.until(1.0)
    for name in ("policy/stop", "head/stop"):
        cell.bus["task"].call(name, 1.0)
    cell.until(3.0)
    assert cell.filter.at_rest
    assert heard[-1].status[0].message.endswith("without a policy; it goes on after filter/arm")
    hint = ", but filter is disarmed: arm it by robo-rl call filter/arm"
    assert cell.bus["task"].call("policy/start", 1.0) == (True, f"inferring{hint}")
    assert cell.bus["task"].call("head/start", 1.0) == (True, f"commanding{hint}")
    cell.bus["task"].call("filter/arm", 1.0)
    cell.until(4.0)
    assert cell.filter.filter.reason is None
    assert cell.bus["task"].call("policy/start", 1.0) == (True, "inferring")


def test_non_finite_goal_is_reported(chunks: Bundle, single: Bundle) -> None:
    """Reported once by the node that decides; a valid goal afterwards is followed."""
    for bundle, who in ((chunks, "policy"), (single, "head")):
        cell = Cell(bundle)
        cell.give(Floats(np.array([np.nan])))
        cell.until(1.0)
        assert cell.said == [
            f"{who}: The topic 'goal' holds [nan], not finite numbers, so the policy is not asked."
        ]
        assert not cell.raw
        heard = list[Diagnostics]()
        for topic in (POLICY_STATUS, LOOP_STATUS):
            topic.subscribe(cell.bus["task"], partial(_keep, heard))
        cell.give(Floats(np.array([0.5])))
        cell.until(2.0)
        assert cell.raw
        newest = {status.name: (status.level, status.message) for m in heard for status in m.status}
        assert newest[who] == (0, "inferring" if who == "policy" else "commanding")


def test_refused_chunk_changes_nothing(chunks: Bundle) -> None:
    """A chunk without waypoints, and an old one with the joints in another order, while a valid one is
    played.
    """
    cell = Cell(chunks)
    cell.give(Floats(np.array([0.5])))
    cell.until(1.0)
    good, before = cell.chunks[-1], len(cell.raw)
    say = CHUNK.publisher(cell.bus["task"])
    say(replace(good, names=good.names[::-1]))
    say(replace(good, position_rad=np.zeros((0, 3)), times_s=np.zeros(0), stamp_s=good.stamp_s + 0.02))
    cell.until(1.1)
    assert len(cell.raw) > before + 3
    assert {message.names for message in cell.raw} == {good.names}


def test_single_step_bundle_runs_in_the_head(single: Bundle) -> None:
    """No policy node: one decision per tick, from the newest state."""
    cell = Cell(single)
    cell.give(Floats(np.array([0.5])))
    cell.until(2.0)
    assert len(cell.raw) >= 95
    assert not cell.chunks
    obs = {"state": np.array([[0.1, 0.2, 0.3, 0.0, 0.0, 0.0, 0.5]], np.float32)}
    decided = SingleStep(single)(obs, None)
    assert decided.shape == (3,)
    assert (np.abs(decided) <= 0.2).all()


def test_far_decisions_of_a_slower_head_begin_at_the_arm(
    single: Bundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the start and after a human's control: the filter drops a first command 0.5 rad from the arm, for as
    long as such commands come.
    """
    wanted = np.full(3, 0.9)
    monkeypatch.setattr(SingleStep, "__call__", lambda decide, stacked, action: wanted.copy())
    cell = Cell(replace(single, env=arm_env(control_hz=20.0)))
    control = INTERVENTION.publisher(cell.bus["task"])
    cell.give(Floats(np.array([0.5])))
    cell.until(2.0)
    assert cell.arm.place == pytest.approx(wanted, abs=0.05)
    control(Flag(True))
    wanted[:] = -0.3
    cell.until(2.5)
    assert cell.arm.place == pytest.approx(0.9, abs=0.05)
    control(Flag(False))
    cell.until(5.0)
    assert cell.arm.place == pytest.approx(-0.3, abs=0.05)
    assert Reason.JUMP_AT_START not in cell.filter.filter.counts


def test_head_refuses_a_chunk_bundle(chunks: Bundle) -> None:
    with pytest.raises(CheckpointError, match="decides 16 actions at once"):
        SingleStep(chunks)
    with pytest.raises(CheckpointError, match="corrects nothing"):
        Residual(chunks)


def test_residual_bundle_runs_at_two_rates(tmp_path: Path, chunks: Bundle) -> None:
    """Slow chunks, and every action corrected from the newest state as by the policy itself."""
    from policies.checkpoint import load_policy
    from policies.tuned.residual import ResidualPolicy
    from tests.hardware.bundles import residual_bundle

    bundle = residual_bundle(tmp_path / "residual", chunks)
    policy = load_policy(bundle.folder)
    assert isinstance(policy, ResidualPolicy)
    decide = Residual(bundle)
    state = np.array([[0.1, -0.2, 0.3, 0.5, 0.0, -0.5, 0.9]], np.float32)
    action = np.array([0.05, -0.1, 0.15])
    spec = bundle.env.action
    normal = spec.normalize(torch.from_numpy(action.astype(np.float32))[None])
    with torch.no_grad():
        expected = spec.denormalize(policy.refine({"state": torch.from_numpy(state)[None]}, normal))[
            0
        ].numpy()
    corrected = decide({"state": state}, action)
    np.testing.assert_allclose(corrected, expected, atol=1e-5)
    assert np.abs(corrected - action).max() > 1e-4


def _keep(heard: list[Diagnostics], message: Diagnostics, received_s: float) -> None:
    heard.append(message)


def test_only_after_a_hold_within_an_episode_is_a_far_policy_followed_again(chunks: Bundle) -> None:
    """Its commands catch up at the speed of the joints. In a new episode the filter drops them, because they
    are further than start_jump_rad from the arm, and the arm stays.
    """
    cell = Cell(chunks)
    cell.give(Floats(np.array([0.5])))
    cell.until(1.0)
    far, silent_until_s = cell.arm.place + 0.9, [1.2]

    def command(now_s: float) -> np.ndarray | None:
        return far if now_s >= silent_until_s[0] else None

    cell.head.head._command = command  # type: ignore[method-assign]
    cell.until(2.5)
    assert np.abs(cell.arm.place - far).max() < 0.05
    assert Reason.JUMP_AT_START not in cell.filter.filter.counts
    sent = np.stack([m.position_rad[0] for m in cell.raw if m.stamp_s >= 1.2])
    assert np.abs(np.diff(sent, axis=0)).max() <= 2.0 * 0.02 + 1e-9  # 2 rad/s
    here, silent_until_s[0] = cell.arm.place.copy(), 2.6
    far -= 0.9
    cell.head._reset()
    cell.until(3.2)
    assert cell.filter.filter.counts[Reason.JUMP_AT_START] > 10
    np.testing.assert_allclose(cell.arm.place, here, atol=0.05)
