"""Nodes around the simulated arm, and its task: successive goals, from an initial state of the task."""

from __future__ import annotations

from typing import Any, cast

import numpy as np

from hardware.bus.in_process import InProcessWorld
from hardware.bus.protocol import Bus
from hardware.checks.arm_contract import check_contract, check_goal, goal_names
from hardware.description import RobotDescription, load_description
from hardware.loop.inference import InferenceProcess
from hardware.loop.sampler import check_guidable
from hardware.messages import Floats
from hardware.nodes.action_head import ActionHeadNode
from hardware.nodes.arm_policy import ArmPolicyNode
from hardware.nodes.safety_filter import SafetyFilterNode
from hardware.nodes.shared.protocol import Node
from hardware.nodes.sim_robot import SimArmNode
from hardware.safety.phase import Phase
from hardware.topics import GOAL
from policies.deploy.bundle import Bundle
from policies.remote.address import parse_address
from robo_rl.apps.nodes.preflight_goal import SIM_GOAL, SIM_TASK
from robo_rl.apps.nodes.run_robot import Cell, loop_figures
from robo_rl.conf.schema import RunConfig
from robo_rl.core.errors import CheckpointError
from robo_rl.core.seeding import derive_seed
from robo_rl.core.text.commands import command
from sim.arms.arm6.body import HOME_RAD, SimulatedArm
from sim.arms.arm6.lanes import start_of
from sim.arms.arm6.reach import CONTROL_HZ, Arm6ReachTask


class ReachScorer:
    """Publishes goals and scores them as the environment does; `on_reset` is called before each new one."""

    def __init__(self, bus: Bus, body: SimulatedArm, seed: int, on_reset: Any) -> None:
        self.task, self.success, self.ended = Arm6ReachTask(HOME_RAD), list[bool](), False
        self._bus, self._body, self._seed, self._on_reset = bus, body, seed, on_reset
        self._tell, self._elsewhere = GOAL.publisher(bus), SimulatedArm()
        self._goal_m, self._held = np.zeros(SIM_GOAL), 0
        bus.timer(1.0 / CONTROL_HZ, self._look)

    def place(self) -> None:
        """Move the arm to the start of the task's first episode; at its home position the goal may be reached
        already.
        """
        self._body.place(self._drawn(0)[0])

    def begin(self, episode: int) -> None:
        """Publish another goal; the arm stays where it is."""
        _, self._goal_m = self._drawn(episode)
        self._held = 0
        self.success.append(False)
        self._on_reset()
        self._tell(Floats(self._goal_m))

    def _drawn(self, episode: int) -> tuple[Any, Any]:
        """(start [rad], goal [m]), sampled as the environment does for this episode."""
        return start_of(self.task, self._elsewhere, derive_seed("eval", self._seed, episode))

    def _look(self) -> None:
        if self.success:
            there = self.task.is_there(self._body.tool_m(), self._goal_m)
            self._held = self._held + 1 if there else 0
            self.success[-1] = self.success[-1] or self._held >= self.task.hold_steps


def arm_cell(config: RunConfig, bundle: Bundle, world: InProcessWorld) -> Cell:
    """Build the cell.

    Raises CheckpointError before any process starts when the bundle does not fit the arm.
    """
    robot, body = load_description("sim_arm"), SimulatedArm()
    check_contract(bundle, robot)
    if not goal_names(bundle):
        raise CheckpointError(
            f"robo-rl run robot=sim_arm scores how a policy reaches its goal, and the bundle {bundle.folder} "
            f"observes no goal. Run it without a score: robo-rl up arm_sim bundle={bundle.folder}"
        )
    check_goal(bundle, SIM_GOAL, SIM_TASK)
    buses = {
        name: world.bus(name) for name in ("sim_robot", "arm_policy", "action_head", "safety_filter", "task")
    }
    sim = SimArmNode(buses["sim_robot"], body, robot.state_hz, robot)
    safety = SafetyFilterNode(buses["safety_filter"], robot)
    policy, head = _deciders(config, bundle, robot, buses)
    task_bus, resets = buses["task"], [f"{name}/reset" for name in ("arm_policy", "action_head")]
    offered = resets if policy is not None else resets[1:]

    def reset() -> None:
        for name in offered:
            task_bus.call(name, 1.0)

    scorer = ReachScorer(task_bus, body, config.seed, reset)
    scorer.place()
    nodes: list[tuple[Node, Bus]] = [(safety, buses["safety_filter"]), (head, buses["action_head"])]
    nodes += [] if policy is None else [(policy, buses["arm_policy"])]
    return Cell(
        nodes=[*nodes, (sim, buses["sim_robot"])],
        task=scorer,
        ready=lambda: policy is None or policy.infers,
        fault=lambda: "" if policy is None else policy.fault,
        arm=lambda: task_bus.call("safety_filter/arm", 1.0),
        stopped=lambda: safety.filter.reason if safety.filter.phase is not Phase.ARMED else None,
        counts=safety.filter.counts,
        timing=lambda: head.head.timing,
        figures=lambda: loop_figures(head.head.timing, None if policy is None else policy.requests.took),
        next=f"{command('up arm_sim', bundle=bundle.folder)}   (the same nodes as processes on a bus)",
        episode_s=scorer.task.max_steps / CONTROL_HZ,
    )


def _deciders(
    config: RunConfig, bundle: Bundle, robot: RobotDescription, buses: dict[str, Any]
) -> tuple[ArmPolicyNode | None, ActionHeadNode]:
    """Nodes that decide: the head for a bundle of single actions, else the head and an inference process."""
    # Without a limit on heartbeats: policy and head share a thread, and end together.
    head = ActionHeadNode(buses["action_head"], robot, bundle, heartbeat_s=0.0)
    if bundle.chunk == 1:
        return None, head
    if config.realtime:
        check_guidable(bundle)
    remote = parse_address(config.remote) if config.remote else None
    inference = InferenceProcess(
        bundle, cast(Any, config.device), config.threads, config.seed, config.realtime, remote
    )
    policy = ArmPolicyNode(
        buses["arm_policy"], bundle, robot, inference, start=True, realtime=config.realtime
    )
    return policy, head
