"""Velocity policy, flight filter and a simulated craft with its camera, in virtual time; inference is
scripted.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from hardware.checks.flight_contract import check_flight, check_ground, check_link, level_of
from hardware.loop.flight_observation import CameraFlightObserver
from hardware.loop.velocity_plan import BRAKE_S, VelocityPlan
from hardware.messages import Image, Odometry, Text
from hardware.quads.link import quad_link
from hardware.safety.flight import FlightPhase
from hardware.safety.reasons import Reason
from hardware.topics import TASK
from policies.deploy.bundle import Bundle
from robo_rl.apps.nodes.quads.hover_cell import HOVER, SimulatedQuad
from robo_rl.apps.nodes.quads.seek_cell import FrontCamera
from robo_rl.apps.nodes.quads.velocity_loop import make_robot_loop
from robo_rl.core.errors import CheckpointError
from robo_rl.core.spec import ArraySpec
from robo_rl.core.text.instruction import INSTRUCTION, to_text
from sim.engines.quad.craft import load_craft
from sim.flight.robot import QuadBody
from sim.flight.seek.body import SeekRoom
from sim.flight.seek.task import ENVELOPE
from sim.flight.seek.vec_env import CAMERA, SeekVecEnv
from tests.hardware.bundles import quad_bundle
from tests.hardware.nodes.velocity_flight import AHEAD, CHUNK, DELAY_S, TO_BALL, Flight, on_the_ground


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    """Contract of a bundle of `drone/seek`; its graph is not run."""
    small = quad_bundle(tmp_path_factory.mktemp("bundles") / "bundle")
    env = SeekVecEnv("seek", 1).spec
    keys = ("state", CAMERA, INSTRUCTION)
    contract = type(env)(env.name, {key: env.obs[key] for key in keys}, env.action, 240, 20.0)
    return Bundle(small.folder, small.manifest, contract, 1, CHUNK, 2, "zero", ENVELOPE)


def test_an_instruction_without_a_known_word_begins_no_flight(bundle: Bundle, tmp_path: Path) -> None:
    """And one of which a word is known is followed, with the others named in the status."""
    config = {"vla": {"tokens": "words"}, "vocabulary": ["ball", "the", "to"]}
    (tmp_path / "policy.json").write_text(json.dumps({"config": config}))
    flight = Flight(replace(bundle, folder=tmp_path), words="wave hello")
    flight.until(1.0)
    assert not flight.inference.decisions
    assert "The policy knows no word of the instruction 'wave hello'" in flight.sentence
    tell = TASK.publisher(flight.bus["task"])
    tell(Text(""))
    flight.until(1.6)
    assert "no instruction has been published" in flight.sentence
    tell(Text("to a ball"))
    flight.until(3.1)
    assert flight.inference.decisions
    assert flight.sentence.endswith("reads them all alike: a")


def test_the_status_names_the_missing_instruction_until_the_policy_is_stopped(bundle: Bundle) -> None:
    """Also while the policy loads and before the filter is armed: there is time to publish one."""
    flight = Flight(bundle, arm=False, words="")
    flight.inference.ready = False
    flight.until(0.6)
    assert flight.sentence == "waits for the topic 'task': no instruction has been published"
    flight.bus["task"].call("quad_policy/stop", 1.0)
    flight.until(1.2)
    assert flight.sentence == "stopped"


def test_a_stopped_policy_shows_no_earlier_fault(bundle: Bundle) -> None:
    flight = Flight(bundle, takeoff_m=50.0)
    flight.inference.always = AHEAD
    flight.until(1.1)
    flight.policy._faults.begin("the policy gave numbers that are not finite", flight.world.now())
    flight.until(1.6)
    assert "not finite" in flight.sentence
    flight.bus["task"].call("quad_policy/stop", 1.0)
    flight.until(2.4)
    assert flight.sentence == "stopped"


@pytest.mark.long
def test_a_craft_flies_to_the_ball_and_stops(bundle: Bundle) -> None:
    """Through camera, policy, velocity loop, filter and rate loop, as the environment scores it; the filter
    changes no command.
    """
    flight = Flight(bundle)
    for step in range(1, 121):
        flight.until(0.1 * step)
        if bool(flight.room.verdict().ended):
            break
    assert bool(flight.room.verdict().success)
    assert set(flight.filter.filter.counts) <= {Reason.NOT_ARMED, Reason.NO_STATE}
    assert flight.inference.decisions[:3] == [0, 1, 2]
    assert flight.inference.seen[0][CAMERA].shape == (1, 64, 64, 3)
    assert to_text(flight.inference.seen[0][INSTRUCTION][0]) == TO_BALL
    assert flight.sentence == "deciding"


def test_the_policy_sees_what_it_saw_in_training(bundle: Bundle) -> None:
    """State and picture of a tilted, turned and moving craft equal those of the environment."""
    env = SeekVecEnv("seek", 1)
    env.reset(0)
    for _ in range(6):
        obs, *_ = env.step(torch.tensor([[1.0, -0.6, 0.3, 1.2]]))
    room = SeekRoom(QuadBody(env.craft, level="rates", hover=HOVER), int(env._episode_seed[0]))
    room.body.put(env._state)
    message = SimulatedQuad(room.body).read(0.0)
    seen = CameraFlightObserver(bundle.env.obs).build(message, {CAMERA: Image(0.0, room.picture(64))}, "go")
    np.testing.assert_allclose(seen["state"], obs["state"][0], atol=2e-6)
    np.testing.assert_array_equal(seen[CAMERA], obs[CAMERA][0])
    assert abs(float(obs["state"][0, 4])) > 0.02, "the craft should be tilted"


def test_the_robot_follows_velocities_as_the_environment_does(bundle: Bundle) -> None:
    """With an autopilot's rate loop at 200 Hz in place of the environment's own at 100 Hz, a second of
    turning flight ends within 5 cm and 0.05 m/s of it.
    """
    env = SeekVecEnv("seek", 1)
    env.reset(0)
    room = SeekRoom(QuadBody(env.craft, level="rates", hover=HOVER), int(env._episode_seed[0]))
    loop, wanted = make_robot_loop(env.craft), np.array([0.6, 0.3, 0.2, 0.8])
    for _ in range(20):
        env.step(torch.tensor(wanted).float()[None])
        for _ in range(5):
            values = loop(SimulatedQuad(room.body).read(0.0), wanted)
            values[0] *= HOVER
            room.body.command(values)
            room.body.advance(0.01)
    ours, theirs = room.body.state[:, 0], env._state[:, 0]
    assert float((ours[:3] - theirs[:3]).norm()) < 0.05
    assert float((ours[7:10] - theirs[7:10]).norm()) < 0.05


def test_a_craft_on_the_ground_climbs_first(bundle: Bundle) -> None:
    flight = on_the_ground(bundle)
    flight.until(1.5)
    assert flight.inference.decisions == [], "no decision before the take-off is over"
    flight.until(5.0)
    assert flight.inference.decisions[0] == 0
    assert flight.filter.filter.phase is FlightPhase.FLYING
    assert float(flight.inference.seen[0]["state"][0, 0]) == pytest.approx(1.0, abs=0.1)


@pytest.mark.parametrize("cause", ["pictures", "process", "numbers", "words"])
def test_a_craft_without_decisions_stops_and_lands(bundle: Bundle, cause: str) -> None:
    """It follows the chunk to its end, brakes, then commands end and the filter lands."""
    flight = Flight(bundle)
    flight.inference.always = AHEAD
    flight.until(1.0)
    assert flight.filter.filter.phase is FlightPhase.FLYING
    if cause == "pictures":
        flight.cameras._cameras.clear()
    elif cause == "process":
        flight.inference.fault = "the inference process has died"
    elif cause == "words":
        TASK.publisher(flight.world.bus("rival"))(Text("\x07"))
    else:
        flight.inference.always = np.full(4, np.nan)
    age_s = 0.15 if cause == "pictures" else 0.0
    flight.until(1.0 + age_s + CHUNK / 20.0 + DELAY_S + 0.15 + 0.6)
    assert flight.filter.filter.phase is FlightPhase.FLYING, "brakes"
    assert np.linalg.norm(flight.room.body.read()[2]) < 0.25
    flight.until(1.0 + age_s + CHUNK / 20.0 + DELAY_S + BRAKE_S + 0.6)
    assert flight.filter.filter.phase is FlightPhase.LANDING
    assert flight.filter.filter.reason is Reason.NO_COMMAND
    words = {"pictures": "No picture of the camera 'front'", "process": "has died", "numbers": "not finite",
             "words": "The topic 'task' cannot be followed"}  # fmt: skip
    assert words[cause] in " ".join(flight.said)
    assert flight.status[-1].status[0].level == (2 if cause == "process" else 1)


def test_nothing_is_sent_without_an_instruction(bundle: Bundle) -> None:
    """Nor before the filter passes commands."""
    waiting = Flight(bundle, words="")
    waiting.until(2.0)
    assert waiting.sent == []
    assert "no instruction has been published" in waiting.sentence
    unarmed = Flight(bundle, arm=False)
    unarmed.until(1.0)
    assert unarmed.sent == []
    assert unarmed.inference.decisions == []
    assert unarmed.bus["task"].call("flight_filter/arm", 1.0)[0]
    unarmed.until(1.5)
    assert len(unarmed.sent) > 30


def test_new_words_are_followed_at_once(bundle: Bundle) -> None:
    """Long before the chunk that is being flown is due for the next."""
    flight = Flight(replace(bundle, execute=CHUNK))
    flight.until(1.0)
    asked = len(flight.inference.seen)
    TASK.publisher(flight.bus["task"])(Text("to the other ball"))
    flight.until(1.12)
    told = [to_text(seen[INSTRUCTION][0]) for seen in flight.inference.seen[asked:]]
    assert told == ["to the other ball"]


@pytest.mark.parametrize("lacks", ["process", "ready", "words", "pictures", "size"])
def test_a_craft_does_not_take_off_without_all_that_it_flies_by(bundle: Bundle, lacks: str) -> None:
    """Armed on the ground, it gets no command, also after a reset and a start."""
    flight = on_the_ground(bundle, words="" if lacks == "words" else TO_BALL)
    if lacks == "process":
        flight.inference.fault = "the inference process has died"
    elif lacks == "ready":
        flight.inference.ready = False
    elif lacks == "pictures":
        flight.cameras._cameras.clear()
    elif lacks == "size":
        flight.cameras._cameras["front"] = FrontCamera(flight.room, 48)
    flight.until(0.7)
    assert flight.filter.filter.phase is FlightPhase.FLYING, "armed"
    for service in ("reset", "start"):
        flight.bus["task"].call(f"quad_policy/{service}", 1.0)
    flight.until(1.4)
    assert flight.sent == []
    said = {"pictures": "No picture of the camera", "size": "the policy is shown (64, 64, 3)"}
    assert said.get(lacks, "") in " ".join(flight.said)


def test_a_climb_that_does_not_end_is_given_up(bundle: Bundle) -> None:
    """With a hover thrust that is 14 % too low, commands end, and the reason is said."""
    flight = on_the_ground(bundle, takeoff_m=0.3)
    flight.policy._hover = 0.43
    flight.until(4.0)
    assert "has not reached takeoff=0.3 m in time: see that hover=" in " ".join(flight.said)
    assert flight.filter.filter.phase is not FlightPhase.FLYING


@pytest.mark.parametrize("odom_hz", [25.0, 50.0])
def test_a_chunk_is_flown_to_its_end_at_every_rate_of_states(bundle: Bundle, odom_hz: float) -> None:
    """Without pictures: one command for each state until the craft has braked."""
    flight = Flight(bundle, odom_hz=odom_hz)
    flight.inference.always = AHEAD
    flight.until(1.0)
    flight.cameras._cameras.clear()
    sent = len(flight.sent)
    flight.until(2.0)
    assert len(flight.sent) - sent == pytest.approx(odom_hz, abs=2)
    assert flight.filter.filter.counts[Reason.LATE_COMMAND] == 0


def test_states_slower_than_the_bundle_are_reported(bundle: Bundle) -> None:
    """Chunks last too short then, as each is followed for a number of decisions."""
    flight = Flight(bundle, odom_hz=15.0)
    flight.until(3.0)
    assert flight.sentence == "odom comes at less than the 20 Hz of the bundle"
    assert float(flight.status[-1].status[0].values["decision_hz"]) == pytest.approx(15.0, rel=0.05)


def test_an_inference_slower_than_its_chunk_is_no_flight(bundle: Bundle) -> None:
    """Its actions would all be over, and the craft would hover for ever."""
    flight = Flight(bundle)
    flight.inference.delay_s = 1.1 * CHUNK / 20.0
    flight.until(2.0)
    assert flight.sent == []
    assert "an inference takes longer than its chunk lasts" in " ".join(flight.said)


def test_a_state_that_is_not_finite_changes_nothing(bundle: Bundle) -> None:
    """A climb goes on."""
    flight = on_the_ground(bundle)
    flight.until(0.8)
    assert len(flight.sent) > 10
    good = SimulatedQuad(flight.room.body).read(0.8)
    flight.policy._on_state(replace(good, position_m=np.full(3, np.nan)), 0.8)
    flight.until(1.2)
    assert flight.inference.decisions == []


def test_actions_of_the_past_are_left_out() -> None:
    """Action k holds from k to k + 1 periods after the state; then the craft brakes, then nothing is sent."""
    plan, chunk = VelocityPlan(0.05), np.arange(12.0).reshape(3, 4)
    assert plan.at(0.0) is None
    plan.take(chunk, 1.0)
    for now_s, row in ((1.0, 0), (1.049, 0), (1.05, 1), (1.12, 2), (0.9, 0)):
        np.testing.assert_array_equal(plan.at(now_s), chunk[row])
    for now_s in (1.151, 1.149 + BRAKE_S):
        np.testing.assert_array_equal(plan.at(now_s), np.zeros(4))
    assert plan.at(1.16 + BRAKE_S) is None
    plan.hover(5.0)
    np.testing.assert_array_equal(plan.at(4.99 + BRAKE_S), np.zeros(4))
    plan.reset()
    assert plan.at(5.0) is None


def test_the_middle_of_a_wide_picture_is_used(bundle: Bundle) -> None:
    """Cameras give 640 x 480: the middle 480 x 480 are scaled to 64 x 64."""
    pixels = np.zeros((480, 640, 3), np.uint8)
    pixels[:, 80:560] = 200
    still = Odometry(0.0, np.zeros(3), np.array([1.0, 0.0, 0.0, 0.0]), np.zeros(3), np.zeros(3))
    seen = CameraFlightObserver(bundle.env.obs).build(still, {CAMERA: Image(0.0, pixels)}, "go")
    assert seen[CAMERA].shape == (64, 64, 3)
    assert (seen[CAMERA] == 200).all()


def test_velocities_are_kept_within_the_bundle(bundle: Bundle) -> None:
    """A chunk beyond the action limits is clipped, as the environment clips it: 1 m/s forward."""
    flight = Flight(bundle)
    flight.inference.always = np.array([30.0, 0.0, 0.0, 0.0])
    flight.until(1.6)
    speed = np.linalg.norm(flight.room.body.read()[2])
    assert 0.8 < speed < 1.1


def test_stop_reset_and_the_closing_sentence(bundle: Bundle) -> None:
    flight = Flight(bundle)
    flight.until(1.0)
    assert flight.bus["task"].call("quad_policy/reset", 1.0)[0]
    flight.until(1.3)
    assert 0 in flight.inference.decisions[1:], "the reset begins an episode"
    assert flight.filter.filter.phase is FlightPhase.FLYING
    assert flight.bus["task"].call("quad_policy/stop", 1.0)[0]
    sent = len(flight.sent)
    flight.until(2.0)
    assert len(flight.sent) == sent
    assert flight.filter.filter.phase is FlightPhase.LANDING
    assert "chunks were inferred, the last in 80.0 ms" in flight.policy.stop("Ctrl-C")
    flight.policy.finish()
    assert flight.inference.closed


def test_states_of_another_frame_end_the_flight(bundle: Bundle) -> None:
    """The node sends nothing for a state in NED, or in a frame that changed."""
    flight = Flight(bundle)
    flight.until(0.5)
    state = SimulatedQuad(flight.room.body).read(0.5)
    sent = len(flight.sent)
    for frame in ("odom_ned", "map"):  # other axes, and another name in flight
        flight.policy._on_state(replace(state, frame=frame), 0.5)
    assert len(flight.sent) == sent


def test_the_contract_with_a_link(bundle: Bundle) -> None:
    """Velocities go out as body rates, for which a bundle needs an envelope."""
    assert level_of(bundle) == "rates"
    check_flight(bundle, "rates")
    check_link(bundle, quad_link("crazyflie", {}))
    with pytest.raises(CheckpointError, match="commands velocities"):
        check_flight(bundle, "motors")
    check_ground(bundle, 0.02)
    with pytest.raises(CheckpointError, match="Give ground=0"):
        check_ground(bundle, -0.6)
    blank = Bundle(bundle.folder, bundle.manifest, bundle.env, 1, CHUNK, 2, "zero", None)
    with pytest.raises(CheckpointError, match="Export its policy again"):
        check_flight(blank, "rates")


@pytest.mark.parametrize(("key", "spec", "sentence"), [
    ("state", ArraySpec((9,)), "a velocity policy is shown 7 numbers"),
    ("points.front", ArraySpec((64, 3)), "which no node of a quadcopter publishes"),
])  # fmt: skip
def test_an_observation_that_no_node_provides_is_refused(
    key: str, spec: ArraySpec, sentence: str, bundle: Bundle
) -> None:
    with pytest.raises(CheckpointError, match=sentence):
        CameraFlightObserver({**bundle.env.obs, key: spec})


def test_a_room_names_its_balls() -> None:
    """Three of the four colours, with the told one among them; a reset goes to the next room."""
    room = SeekRoom(QuadBody(load_craft("cf2x_l2f"), level="rates"), seed=0)
    rooms = []
    for _ in range(4):
        assert len(room.balls) == 3
        assert any(colour in room.instruction for colour in room.balls)
        rooms.append((room.balls, room.instruction))
        room.reset()
    assert len(set(rooms)) > 1
