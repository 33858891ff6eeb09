"""The recording app's node: it drives and records over the bus, and puts views into `SharedState`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any
from uuid import uuid4

import numpy as np

from hardware.bus.protocol import Answer, Bus
from hardware.messages import Flag, Text
from hardware.topics import EPISODE, ESTOP, RECORDER_REQUEST, SCENE, TASK, TELEOP_FAULT
from robo_rl.apps.recording import snapshot
from robo_rl.apps.recording.callers import Caller
from robo_rl.apps.recording.driving.drive import PageDrive
from robo_rl.apps.recording.driving.handover import Handover
from robo_rl.apps.recording.edits import EditThread
from robo_rl.apps.recording.episodes import IDLE, RECORDING, Episodes, checked_instruction
from robo_rl.apps.recording.frames import GAP_S, FrameTaker
from robo_rl.apps.recording.latency import CommandLatency, LoopPulse
from robo_rl.apps.recording.learning.autonomy import Autonomy
from robo_rl.apps.recording.requests import (
    DeleteRequest,
    DriveRequest,
    EstopRequest,
    HandRequest,
    InstructRequest,
    MarkRequest,
    PlainRequest,
    PolicyRequest,
    PoseRequest,
    RelabelRequest,
    Request,
    SaveRequest,
    SpeedRequest,
)
from robo_rl.apps.recording.scene import parse_scene
from robo_rl.apps.recording.scene_reset import SceneReset
from robo_rl.apps.recording.settings import AppSettings
from robo_rl.apps.recording.shared_state import Notices, SharedState
from robo_rl.apps.recording.streams import RobotStreams
from robo_rl.core.errors import DataError, RoboRLError
from robo_rl.core.packages import pip_install
from robo_rl.data.edit.changes import delete_episodes, relabel_episodes, undo

VIEW_HZ = 20.0


class RecordAppNode:
    """Records `settings.spec` at its rate, and drives at the command rate."""

    def __init__(
        self,
        bus: Bus,
        settings: AppSettings,
        episodes: Episodes,
        shared: SharedState,
        caller: Caller,
        log: Callable[[str], None] = print,
    ) -> None:
        self.autonomy: Autonomy | None = None  # set by the builder, once it can tell this node's notices
        self._bus, self._settings, self._shared, self._caller = bus, settings, shared, caller
        self.episodes, self.notices = episodes, Notices(log)
        self.streams = RobotStreams(bus, settings.robot, settings.cameras, settings.transport)
        self.drive = PageDrive(bus, settings.robot) if settings.drives else None
        self.control = Handover(self.drive, self.streams, episodes, bus.now, self.notices.tell)
        self.pulse, self.latency = LoopPulse(1.0 / settings.robot.command_hz), CommandLatency()
        self.streams.on_command = self.latency.heard
        self._estop, self._pressed = ESTOP.publisher(bus), False
        self._tell_episode, self._tell_task = EPISODE.publisher(bus), TASK.publisher(bus)
        self._id = uuid4().hex  # of this start: pages that stay open begin anew with another one
        self._told_task = ""
        self._scenes = 0  # messages that changed the shapes of the 3-D view
        self._told_frozen: set[str] = set()  # cameras whose freezing was told
        self._disk = snapshot.DiskView(settings.out, self.notices.tell)
        self._silent = ""  # stream whose silence has paused the episode
        self.on_tick: list[Callable[[], None]] = []  # called at the command rate, before requests are read
        self.on_close: list[Callable[[], None]] = []  # called once, before the last episode is committed
        self._closed = False
        self._scene = SceneReset(caller, self.streams, bus.now, lambda text: self.notices.tell(text, "error"))
        self.edits = EditThread(settings.out, episodes, self.notices.tell)
        self._actions = self._table()
        ESTOP.subscribe(bus, self._on_estop)
        SCENE.subscribe(bus, self._on_scene)
        RECORDER_REQUEST.subscribe(bus, self._on_recorder_request)
        TELEOP_FAULT.subscribe(bus, self._on_device_fault)
        for name in ("start", "stop", "success", "failure", "discard"):
            bus.service(f"~/{name}", partial(self._serve, name))
        bus.timer(self.pulse.period_s, self._tick)
        self._frames = FrameTaker(bus, settings.spec, self.streams, episodes, self.notices.tell)
        bus.timer(1.0 / VIEW_HZ, self._publish_view)
        self._tell_episode(Text("idle"))

    def stop(self, why: str) -> str:
        """Let go of the arm, and commit the running episode."""
        if self.drive is not None:
            self.drive.let_go()
        return self._close(why)

    @property
    def at_rest(self) -> bool:
        return True

    def finish(self) -> None:
        """Commit the running episode, and say for the last time whether the emergency stop is pressed."""
        if not self._closed:
            self._close("the app ends")
        self._estop(Flag(self._pressed))  # the end of a publisher that was never heard stops an arm
        if self.drive is not None:
            self.drive.let_go()

    def handle(self, request: Request, received_s: float) -> None:
        """Act on a request of the operator; a mistake becomes a notice."""
        try:
            self._act(request, received_s)
        except RoboRLError as error:
            self.notices.tell(str(error), "error")

    def _close(self, why: str) -> str:
        self._closed = True
        self.edits.close()
        outcome = self.episodes.close(why)
        for close in self.on_close:
            close()
        if self.autonomy is not None:
            self.autonomy.close()
        self._caller.close()
        return outcome

    def _table(self) -> dict[str, Callable[[], str]]:
        """Requests without a value, and what they do."""
        call = self._call
        return {
            "release": self._release,
            "arm": lambda: call("safety_filter/arm"),
            "stop": lambda: call("safety_filter/stop"),
            "reset": self._reset,
            "start": self._start,
            "pause": self._pause,
            "resume": self._resume,
            "end": self.episodes.end,
            "discard": self._discard,
            "again": self._again,
            "take_over": self.control.take_over,
            "abandon": self.control.abandon,
            "let_run": lambda: self.control.let_run(self._autonomy()),
            "undo": self._undo,
            "train": lambda: self._autonomy().training.begin(self.episodes.tally),
            "stop_training": lambda: self._autonomy().training.stop(),
        }

    def _act(self, request: Request, received_s: float) -> None:
        if isinstance(request, DriveRequest | PoseRequest | HandRequest):
            self._drive(request, received_s)
        elif isinstance(request, EstopRequest):
            self._press(request.on)
        elif isinstance(request, SaveRequest | MarkRequest | InstructRequest):
            self._note(request)
        elif isinstance(request, DeleteRequest):
            self.edits.begin(partial(delete_episodes, episodes=request.episodes))
        elif isinstance(request, RelabelRequest):
            self._relabel(request)
        elif isinstance(request, PolicyRequest):
            self._say(self._load(request.bundle))
        elif isinstance(request, SpeedRequest) and self.drive is not None:
            self.drive.speed = request.share
        elif isinstance(request, PlainRequest) and request.kind in self._actions:
            self._say(self._actions[request.kind]())

    def _note(self, request: SaveRequest | MarkRequest | InstructRequest) -> None:
        """Label, mark or instruct the present episode."""
        if isinstance(request, SaveRequest):
            self._say(self._save(request.success))
        elif isinstance(request, MarkRequest):
            self._say(self.episodes.mark(request.reward))
        else:
            self._say(self.episodes.instruct(request.text))

    def _say(self, sentence: str) -> None:
        if sentence:
            self.notices.tell(sentence)

    def _drive(self, request: DriveRequest | PoseRequest | HandRequest, received_s: float) -> None:
        if self.drive is None:
            raise DataError("Another program drives this arm (drive=other); this page records.")
        if isinstance(request, HandRequest):
            return self.drive.follow(request.scale, request.yaw_rad)
        if isinstance(request, PoseRequest):
            self.drive.take_pose(request.model_dump(exclude={"kind", "sent_ms"}))
        else:
            self.drive.take(request.mode, np.array(request.values))
        self.latency.asked(received_s, request.sent_ms)

    def _release(self) -> str:
        if self.drive is not None:
            self.drive.release()
        return ""

    def _start(self) -> str:
        self.episodes.require_idle()
        if self._scene.running:
            self._scene.follow(partial(self._attempt, self._start))
            return "the episode starts when the scene is ready"
        now_s = self._bus.now()
        streams = self.streams.all.items()
        if missing := [name for name, s in streams if s.frozen or s.age_s(now_s) > GAP_S]:
            raise DataError(f"Nothing is recorded yet: {self.streams.fault(missing[0], self._bus.now())}.")
        self.control.begin_then(self.autonomy, lambda: self._attempt(self.episodes.start))
        return ""

    def _pause(self) -> str:
        holds = self.drive is not None
        return f"{self.episodes.pause()}; the arm {'holds' if holds else 'is held by nobody: leave it there'}"

    def _resume(self) -> str:
        self.episodes.require_paused()
        if self.drive is None:
            self._frames.require_in_place()
        self.control.begin_then(self.autonomy, lambda: self._attempt(self.episodes.resume))
        return ""

    def _again(self) -> str:
        """Throw the running episode away, put a simulated robot back, and begin again."""
        if self.episodes.state != IDLE:
            self.episodes.discard()
        if self._settings.resets:
            self._scene.begin(partial(self._attempt, self._start))
            return ""
        return self._start()

    def _attempt(self, action: Callable[[], str]) -> None:
        """Act after a wait; a mistake becomes a notice."""
        try:
            self._say(action())
        except RoboRLError as error:
            self.notices.tell(str(error), "error")

    def _reset(self) -> str:
        if not self._settings.resets:
            raise DataError(
                "Only a simulated robot is put back to its start by the app; drive this one there."
            )
        self.episodes.require_idle()
        self._scene.begin()
        return ""

    def _save(self, success: bool | None) -> str:
        alone = not self.episodes.intervened
        outcome = self.episodes.save(success)
        if self.autonomy is not None and self.episodes.state == IDLE:
            self.autonomy.runner.finished(success, alone)
        self._after_episode()
        if self._settings.resets and self.episodes.state == IDLE:
            self._scene.begin()
        return outcome

    def _discard(self) -> str:
        outcome = self.episodes.discard()
        self._after_episode()
        if self._settings.resets:
            self._scene.begin()
        return outcome

    def _after_episode(self) -> None:
        """Hold a policy that is in control until the next episode."""
        self.control.waits |= self.episodes.state == IDLE and self.control.by_policy

    def _relabel(self, request: RelabelRequest) -> None:
        task = None if request.text is None else checked_instruction(request.text)
        by = self._settings.operator
        self.edits.begin(
            partial(relabel_episodes, episodes=request.episodes, success=request.success, task=task, by=by)
        )

    def _undo(self) -> str:
        self.edits.begin(undo)
        return ""

    def _autonomy(self) -> Autonomy:
        if self.autonomy is None:
            raise DataError(f"Policies run beside the page with the extra train: {pip_install('app,train')}.")
        return self.autonomy

    def _load(self, bundle: str) -> str:
        if self.episodes.state == RECORDING:
            raise DataError("An episode is being recorded: end it before another policy is loaded.")
        self.control.take_over()
        return self._autonomy().runner.load(bundle)

    def _press(self, on: bool) -> None:
        self._estop(Flag(on))
        self._pressed = on
        self._release()
        self.notices.tell(
            "EMERGENCY STOP pressed" if on else "emergency stop released; arm to go on",
            "error" if on else "info",
            each_time=True,  # pressed, released and pressed again within a moment
        )

    def _call(self, service: str) -> str:
        self._caller.call(service, partial(self._on_answer, service))
        return ""

    def _on_answer(self, service: str, answer: Answer) -> None:
        what = service.removeprefix("safety_filter/")
        self.notices.tell(f"{what}: {answer[1]}", "info" if answer[0] else "error")

    def _on_estop(self, message: Flag, received_s: float) -> None:
        self._pressed = message.on

    def _on_scene(self, message: Text, received_s: float) -> None:
        try:
            shapes = parse_scene(message.text, len(self._settings.robot.names))
        except DataError as error:
            self.notices.tell(str(error), "error")
            return
        self._shared.shapes = [shape.model_dump(exclude_none=True) for shape in shapes]
        self._scenes += 1

    def _on_recorder_request(self, message: Text, received_s: float) -> None:
        answer = self._serve(message.text)
        if not answer[0]:
            self.notices.tell(answer[1], "error")

    def _on_device_fault(self, message: Text, received_s: float) -> None:
        if message.text:
            self.notices.tell(message.text, "error")

    def _serve(self, name: str) -> Answer:
        """Services, and buttons of teleoperation devices."""
        services: dict[str, Callable[[], str]] = {
            "start": self._start,
            "stop": lambda: self._save(None),
            "success": lambda: self._save(True),
            "failure": lambda: self._save(False),
            "discard": self._discard,
        }
        if name not in services:
            return False, f"'{name[:40]}' is no request; known: {', '.join(services)}"
        try:
            outcome = services[name]()
        except RoboRLError as error:
            return False, str(error)
        self._say(outcome)
        return True, outcome

    def _tick(self) -> None:
        self.pulse.tick(self._bus.now())
        for tick in self.on_tick:
            tick()
        for request, received_s in self._shared.requests():
            self.handle(request, received_s)
        self._caller.deliver()
        self._scene.tick()
        self.edits.tick()
        if self.autonomy is not None:
            self.autonomy.tick()
        self.control.tick(self.streams.filter.phase == "armed")
        self.latency.published(self._bus.now())
        if self.episodes.instruction != self._told_task:
            self._told_task = self.episodes.instruction
            self._tell_task(Text(self._told_task))

    def _publish_view(self) -> None:
        now_s = self._bus.now()
        for name, stream in self.streams.cameras.items():
            if stream.frozen and name not in self._told_frozen:
                self.notices.tell(
                    f"The {self.streams.fault(name, self._bus.now()).removeprefix('the ')}.", "error"
                )
            (self._told_frozen.add if stream.frozen else self._told_frozen.discard)(name)
        view: dict[str, Any] = {
            "at_s": round(now_s, 4),
            "app_id": self._id,
            "loop": {"hz": round(self.pulse.rate_hz, 1), "jitter_ms": round(self.pulse.jitter_ms, 2)},
            "latency_ms": self.latency.ms,
            "echo_ms": self.latency.echo_ms,
            "disk_gb": self._disk.free_gb(),
            "floor_gb": round(self._settings.floor_bytes / 1e9, 2),
            "estop": self._pressed,
            "scene": self._scenes,
            "robot": snapshot.robot_view(self.streams, now_s),
            "episode": snapshot.episode_view(self.episodes, self._settings.spec.control_hz),
            "drive": None if self.drive is None else snapshot.drive_view(self.drive),
            "notices": snapshot.notices_view(self.notices),
            **({} if self.autonomy is None else self.autonomy.view()),
        }
        self._shared.view = view
        self._shared.pictures = {
            name: picture
            for name in self.streams.cameras
            if (picture := self.streams.picture(name)) is not None
        }
