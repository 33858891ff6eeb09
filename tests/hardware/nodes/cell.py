"""Policy, head, filter and robot nodes in virtual time; only the delay of inference is simulated."""

from __future__ import annotations

from typing import Any

import torch

from hardware.bus.in_process import InProcessWorld
from hardware.loop.inference import Running
from hardware.loop.observation import Seen
from hardware.messages import JointTrajectory
from hardware.nodes.action_head import ActionHeadNode
from hardware.nodes.arm_policy import ArmPolicyNode
from hardware.nodes.safety_filter import SafetyFilterNode
from hardware.nodes.shared.pictures import USUAL, PictureSettings
from hardware.nodes.sim_robot import SimArmNode
from hardware.topics import CHUNK, GOAL, RAW
from policies.deploy.bundle import Bundle
from policies.deploy.runner import OnnxPolicy
from tests.hardware.arm_descriptions import arm
from tests.hardware.nodes.fakes import LagArm


class DelayedInference:
    """The bundle's own graph, with answers `delay_s` of virtual time later."""

    def __init__(self, world: InProcessWorld, bundle: Bundle, delay_s: float) -> None:
        self.ready, self.fault, self.delay_s = True, "", delay_s
        self._world, self._bundle, self._policy = world, bundle, OnnxPolicy(bundle, "cpu")
        self._due: tuple[float, Any] | None = None

    def request(self, seen: Seen, decision: int, running: Running | None = None) -> bool:
        if self._due is not None or self.fault:
            return False
        obs = {key: torch.from_numpy(value)[None] for key, value in seen.items()}
        noise = torch.zeros(1, self._bundle.chunk, self._bundle.env.action.dim)
        chunk = self._bundle.env.action.denormalize(self._policy.sample(obs, noise))[0].numpy()
        self._due = self._world.now() + self.delay_s, chunk
        return True

    def poll(self) -> tuple[Any, float] | None:
        if self._due is None or self.fault or self._world.now() < self._due[0]:
            return None
        (_, chunk), self._due = self._due, None
        return chunk, self.delay_s

    def close(self) -> None:
        """Nothing to end: there is no process."""


class Cell:
    """All four nodes, and a task that publishes the goal."""

    def __init__(
        self, bundle: Bundle, delay_s: float = 0.03, inference: type[DelayedInference] = DelayedInference,
        realtime: bool = False, pictures: PictureSettings = USUAL, heartbeat_s: float | None = None,
        **robot: Any,
    ) -> None:  # fmt: skip
        self.world, self.arm, self.said = InProcessWorld(), LagArm(), list[str]()
        bus = {name: self.world.bus(name) for name in ("robot", "policy", "head", "filter", "task")}
        self.bus, described = bus, arm(start_jump_rad=0.5, **robot)
        self.robot = SimArmNode(bus["robot"], self.arm, 50.0, described)
        self.filter = SafetyFilterNode(bus["filter"], described, arm=True)
        self.inference = inference(self.world, bundle, delay_s)
        if bundle.chunk > 1:
            say = self.said.append
            self.policy = ArmPolicyNode(
                bus["policy"], bundle, described, self.inference, True, say, realtime, pictures
            )
        decides = bundle if bundle.chunk == 1 else None
        self.head = ActionHeadNode(
            bus["head"], described, decides, True, self.said.append, pictures, heartbeat_s
        )
        self.raw: list[JointTrajectory] = []
        self.chunks: list[JointTrajectory] = []
        RAW.subscribe(bus["task"], lambda m, at: self.raw.append(m))
        CHUNK.subscribe(bus["task"], lambda m, at: self.chunks.append(m))
        self.give = GOAL.publisher(bus["task"])

    def until(self, seconds: float) -> None:
        self.bus["task"].spin(lambda: self.world.now() >= seconds)
