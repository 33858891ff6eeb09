"""Velocity policy, flight filter and a simulated craft with its camera, in virtual time; inference is
scripted.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from numpy import ndarray

from hardware.bus.in_process import InProcessWorld
from hardware.checks.flight_contract import check_flight, check_link, level_of
from hardware.loop.flight_observation import CameraFlightObserver
from hardware.loop.velocity_plan import BRAKE_S
from hardware.messages import Diagnostics, FlightCommand, Odometry, Text
from hardware.nodes.flight_filter import FlightFilterNode
from hardware.nodes.shared.pictures import PictureSettings
from hardware.nodes.sim_cameras import SimCameras
from hardware.nodes.sim_robot import SimQuadNode
from hardware.nodes.velocity_policy import VelocityPolicyNode
from hardware.quads.link import quad_link
from hardware.safety.flight import FlightFilter, FlightPhase
from hardware.safety.landing import RatesLander
from hardware.safety.reasons import Reason
from hardware.topics import FLIGHT_RAW, POLICY_STATUS, TASK
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
from sim.flight.seek.task import ENVELOPE, SeekScene
from sim.flight.seek.vec_env import ACTION, CAMERA, SeekVecEnv
from tests.hardware.bundles import quad_bundle

DELAY_S, CHUNK = 0.08, 8
TO_BALL, AHEAD = "to the ball", np.array([0.5, 0.0, 0.0, 0.0])


class ScriptedInference:
    """Answers after `DELAY_S`: a velocity towards the told ball, or `always`."""

    def __init__(self, world: InProcessWorld, room: SeekRoom) -> None:
        self.ready, self.fault, self.always = True, "", None  # type: bool, str, Any
        self.seen: list[dict[str, ndarray]] = []
        self.decisions: list[int] = []
        self._world, self._room, self._due_s, self._answer = world, room, None, np.zeros(0)  # type: Any, Any, Any, Any
        self.closed = False

    def request(self, seen: Any, decision: int, running: Any = None) -> bool:
        if self._due_s is not None or self.fault:
            return False
        self.seen.append(seen)
        self.decisions.append(decision)
        self._due_s = self._world.now() + DELAY_S
        self._answer = self._towards() if self.always is None else np.asarray(self.always)
        return True

    def _towards(self) -> ndarray:
        """As `SeekExpert`, held for the whole chunk."""
        body, scene = self._room.body, self._room._scene
        assert isinstance(scene, SeekScene)
        position, quat, _, _ = body.read()
        way = scene.balls_m[0, :, 0].double().numpy() - position
        far = np.linalg.norm(way)
        ahead = 2.0 * np.arctan2(quat[3], quat[0])
        cos, sin = np.cos(ahead), np.sin(ahead)
        level = np.array([cos * way[0] + sin * way[1], cos * way[1] - sin * way[0], way[2]])
        speed = np.clip(1.0 * (far - 0.5), -0.6, 0.6)
        return np.array([*(speed * level / far), 0.0])

    def poll(self) -> Any:
        if self._due_s is None or self._world.now() < self._due_s or self.fault:
            return None
        self._due_s = None
        return np.tile(self._answer.astype(np.float32), (CHUNK, 1)), DELAY_S

    def close(self) -> None:
        self.closed = True


class Flight:
    """A craft in the room of seed 3, its camera, filter and policy."""

    def __init__(
        self, bundle: Bundle, takeoff_m: float = 0.0, arm: bool = True, words: str = TO_BALL
    ) -> None:
        self.world, self.said = InProcessWorld(), list[str]()
        bus = {name: self.world.bus(name) for name in ("sim", "quad_policy", "flight_filter", "task")}
        self.bus = bus
        env = SeekVecEnv("seek", 1)
        self.room = SeekRoom(QuadBody(env.craft, level="rates", hover=HOVER), seed=3)
        self.robot = SimQuadNode(bus["sim"], SimulatedQuad(self.room.body), 100.0)
        self.cameras = SimCameras(bus["sim"], {"front": FrontCamera(self.room, 64)}, "rgb", 20.0)
        judge = FlightFilter(ENVELOPE, RatesLander(HOVER), 100.0, 100.0, "rates")
        self.filter = FlightFilterNode(bus["flight_filter"], judge, 100.0, arm=arm, say=self.said.append)
        self.inference = ScriptedInference(self.world, self.room)
        self.policy = VelocityPolicyNode(
            bus["quad_policy"], bundle, self.inference, make_robot_loop(env.craft), HOVER, PictureSettings(),
            takeoff_m, say=self.said.append,
        )  # fmt: skip
        self.sent: list[FlightCommand] = []
        self.status: list[Diagnostics] = []
        FLIGHT_RAW.subscribe(bus["task"], lambda m, at: self.sent.append(m))
        POLICY_STATUS.subscribe(bus["task"], lambda m, at: self.status.append(m))
        if words:
            TASK.publisher(bus["task"])(Text(words))

    def until(self, seconds: float) -> None:
        self.bus["task"].spin(lambda: self.world.now() >= seconds)

    @property
    def sentence(self) -> str:
        return self.status[-1].status[0].message


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    """Contract of a bundle of `drone/seek`; its graph is not run."""
    small = quad_bundle(tmp_path_factory.mktemp("bundles") / "bundle")
    env = SeekVecEnv("seek", 1).spec
    keys = ("state", CAMERA, INSTRUCTION)
    contract = type(env)(env.name, {key: env.obs[key] for key in keys}, env.action, 240, 20.0)
    return Bundle(small.folder, small.manifest, contract, 1, CHUNK, 2, "zero", ENVELOPE)


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
    seen = CameraFlightObserver(bundle.env.obs).build(
        message, {CAMERA: type("P", (), {"pixels": room.picture(64)})()}, "go"
    )
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
    flight = Flight(bundle, takeoff_m=1.0)
    state = flight.room.body.state.clone()
    state[2] = 0.0
    flight.room.body.put(state)
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
    age_s = 0.5 if cause == "pictures" else 0.0
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
    flight = Flight(bundle)
    flight.until(1.0)
    asked = len(flight.inference.seen)
    TASK.publisher(flight.bus["task"])(Text("to the other ball"))
    flight.until(1.15)
    told = [to_text(seen[INSTRUCTION][0]) for seen in flight.inference.seen[asked:]]
    assert told[0] == "to the other ball"


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
    flight.policy.last_word()
    assert flight.inference.closed


def test_states_of_another_frame_end_the_flight(bundle: Bundle) -> None:
    """The node sends nothing for a state in NED."""
    flight = Flight(bundle)
    flight.until(0.5)
    state = SimulatedQuad(flight.room.body).read(0.5)
    wrong = Odometry(
        0.5, state.position_m, state.quat_wxyz, state.velocity_body_m_s, state.rates_rad_s, "odom_ned"
    )
    sent = len(flight.sent)
    flight.policy._on_state(wrong, 0.5)
    assert len(flight.sent) == sent


def test_the_contract_with_a_link(bundle: Bundle) -> None:
    """Velocities go out as body rates, for which a bundle needs an envelope."""
    assert level_of(bundle) == "rates"
    check_flight(bundle, "rates")
    check_link(bundle, quad_link("crazyflie", {}))
    with pytest.raises(CheckpointError, match="commands velocities"):
        check_flight(bundle, "motors")
    blank = Bundle(bundle.folder, bundle.manifest, bundle.env, 1, CHUNK, 2, "zero", None)
    with pytest.raises(CheckpointError, match="Export its policy again"):
        check_flight(blank, "rates")


@pytest.mark.parametrize(("key", "spec", "sentence"), [
    ("state", ArraySpec((9,)), "a velocity policy is shown 7 numbers"),
    ("points.front", ArraySpec((64, 3)), "which no node of a craft publishes"),
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


def test_actions_have_the_unit_of_velocities() -> None:
    """By which the nodes know them."""
    assert ACTION.unit.startswith("m/s forward, left, up")
