"""`robo-rl run robot=...`: the graph of nodes that runs on a robot, in one process, around a simulated robot.

policy (in a process of its own) -> head -> safety filter -> simulated robot, in real time. The filter's
actions and the reason for a stop are reported at the end; nothing here can switch the filter off.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from hardware.bus.in_process import InProcessWorld
from hardware.bus.protocol import Bus
from hardware.loop.timing import LoopTiming, all_ms
from hardware.nodes.shared.protocol import Node
from hardware.safety.reasons import Reason, in_words
from policies.deploy.bundle import Bundle
from robo_rl.apps.nodes.node_life import leave, listening, live
from robo_rl.conf.schema import RunConfig
from robo_rl.core.errors import ConfigError, UnknownNameError
from robo_rl.core.files.durable import write_json
from robo_rl.core.provenance import commit, machine
from robo_rl.core.text.durations import Durations

_START_S = 60.0  # longest time to load a policy
# time within which the filter stops after a policy died, unless it never received a command of it
_HOLD_S = 3.0
ROBOTS = {
    "sim_arm": "robo_rl.apps.nodes.run_arm:arm_cell",
    "sim_quad": "robo_rl.apps.nodes.quads.cells:quad_cell",
}


@runtime_checkable
class Task(Protocol):
    """Task of the robot, with its score."""

    success: list[bool]  # of the episodes that began; the last one's may still change
    ended: bool  # True when the running episode is decided before its time is over

    def begin(self, episode: int) -> None: ...


@dataclass
class Cell:
    """A robot, its nodes in stopping order, and its task."""

    nodes: list[tuple[Node, Bus]]
    task: Task
    ready: Callable[[], bool]  # True when it may be armed
    fault: Callable[[], str]  # reason why it will not become ready; else empty
    arm: Callable[[], tuple[bool, str]]
    stopped: Callable[[], Reason | None]  # reason why the filter has stopped
    counts: Mapping[Reason, int]
    timing: Callable[[], Any]
    figures: Callable[
        [], dict[str, float]
    ]  # the same as numbers, with the keys of `policies.deploy.runner.LoopReport`
    next: str  # next command for the user
    episode_s: float


def run_robot(config: RunConfig, bundle: Bundle) -> int:
    """Run and report. Returns 0, or 3 when the filter stopped the robot or the policy's process died."""
    if config.env is not None or config.rate_hz is not None:
        raise ConfigError(
            "robot=... runs the robot's own task at the bundle's rate; leave env and rate_hz out."
        )
    if config.realtime and (config.robot != "sim_arm" or bundle.chunk == 1):
        raise ConfigError("realtime=true is for robot=sim_arm and a bundle of chunks; leave it out.")
    if config.remote and bundle.chunk == 1:
        raise ConfigError("remote=<host>:<port> is for bundles of chunks; leave it out.")
    if config.robot not in ROBOTS:
        if Path(str(config.robot)).suffix in (".yaml", ".yml"):
            raise ConfigError(
                f"Only {' and '.join(ROBOTS)} run in this process, not what {config.robot} describes. For "
                "the simulated arm with its limits and cameras: robo-rl up arm_sim bundle=... "
                f"robot={config.robot}"
            )
        raise UnknownNameError("simulated robot", str(config.robot), ROBOTS)
    from importlib import import_module

    module, function = ROBOTS[config.robot].split(":")
    world, made = InProcessWorld(clock=time.monotonic, warn=print), list[tuple[Cell, _Director]]()
    with listening() as ending:
        cell: Cell = getattr(import_module(module), function)(config, bundle, world)
        made.append((cell, _Director(config, cell, cell.nodes[0][1])))
        live(cell.nodes, ending, until=made[0][1].over, done=made[0][1].why)
    if not ending.started:
        for loaded, _ in made:
            leave(loaded.nodes)
        print(f"robo-rl: {ending.why} while the nodes were being loaded: nothing was sent.", file=sys.stderr)
        return ending.code
    cell, director = made[0]
    return _report(config, bundle, cell, ending.why or director.why(), director)


class _Director:
    """Arms the filter when all nodes are ready, then runs one episode after the other."""

    def __init__(self, config: RunConfig, cell: Cell, bus: Bus) -> None:
        self._config, self._cell, self._bus = config, cell, bus
        self._wanted = config.episodes if config.episodes or config.seconds else 1
        self._made_s, self._begun_s = bus.now(), None  # type: float, float | None
        self._episode_s = self._made_s  # start of the running episode
        self.success: list[bool] = []  # of the episodes that ended; one that the filter cut short failed
        self.stopped: Reason | None = None
        self.died, self._died_s = (
            "",
            float("inf"),
        )  # fault of a policy whose process died, and since when

    def why(self) -> str:
        """Reason for the end, when nobody requested it."""
        if self.stopped:
            return f"the safety filter: {self.stopped.sentence}"
        if self.died:
            return f"a fault: {self.died}"
        done = self._wanted is not None and len(self.success) >= self._wanted
        return "all episodes are done" if done else "the time is over"

    def over(self) -> bool:
        """Called after every callback: continues the episodes, and returns True at the end."""
        now_s, cell = self._bus.now(), self._cell
        if self._begun_s is None:
            return self._begin(now_s)
        self.stopped = cell.stopped()
        if self.stopped is not None:
            self.success.append(False)
            return True
        if self._is_gone(now_s):
            self.success.append(False)
            return True
        since_s = now_s - self._begun_s
        if ended := cell.task.ended or now_s - self._episode_s >= cell.episode_s:
            self.success.append(cell.task.success[-1])
        if self._wanted is not None and len(self.success) >= self._wanted:
            return True
        if self._config.seconds is not None and since_s >= self._config.seconds:
            return True
        if ended:
            self._episode_s = now_s
            cell.task.begin(len(self.success))
        return False

    def _is_gone(self, now_s: float) -> bool:
        """True when the policy's process died and the filter did not stop because of it."""
        if fault := self._cell.fault():
            self._died_s = min(self._died_s, now_s)
            if now_s - self._died_s > _HOLD_S:
                self.died = fault
        return bool(self.died)

    def _begin(self, now_s: float) -> bool:
        if fault := self._cell.fault():
            raise ConfigError(f"The robot does not start: {fault}")
        if now_s - self._made_s > _START_S:
            raise ConfigError(f"The policy was not ready after {_START_S:.0f} s, so nothing was armed.")
        if self._cell.ready() and self._cell.arm()[0]:
            self._begun_s = self._episode_s = now_s
            self._cell.task.begin(0)
        return False


def _report(config: RunConfig, bundle: Bundle, cell: Cell, end: str, director: _Director) -> int:
    success, failed = director.success, director.stopped is not None or bool(director.died)
    rate = f"{sum(success)}/{len(success)} episodes succeeded" if success else "no episode ended"
    print(f"{bundle.folder} on {config.robot}: {rate}; {cell.timing()}")
    print(f"safety filter: {in_words(cell.counts)}")
    print(f"ended: {end}")
    if config.out:
        counts = {reason.name.lower(): count for reason, count in cell.counts.items()}
        body = {
            "bundle": bundle.name,
            "robot": config.robot,
            "success": success,
            "ended_by": end,
            "filter": counts,
        }
        write_json(Path(config.out), body | cell.figures() | {"machine": machine(), "commit": commit()})
    if not failed:
        print(f"Next:   {cell.next}")
    return 3 if failed else 0


def loop_figures(timing: LoopTiming, decisions: Durations | None = None) -> dict[str, float]:
    """Timing of a loop over the entire run. decisions: of the policy, if ticks do not decide themselves."""
    kept = timing.figures()
    half, most = (kept["work_ms_p50"], kept["work_ms_p99"]) if decisions is None else all_ms(decisions)
    counts = {key: kept[key] for key in ("ticks", "missed", "skipped", "late_ms_p99")}
    times = {"decision_ms_p50": half, "decision_ms_p99": most, "tick_ms_p99": kept["work_ms_p99"]}
    return {"rate_hz": 1.0 / timing.period_s, **counts, **times}
