"""Actors as processes of a Ray cluster."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

import ray
from ray.exceptions import (
    ActorUnschedulableError,
    NodeDiedError,
    ObjectLostError,
    OutOfMemoryError,
    RayActorError,
    WorkerCrashedError,
)

from robo_rl.core.errors import EnvError, RoboRLError
from robo_rl.core.provenance import versions
from robo_rl.rl.scale.actor import ActorInfo, ActorParts, Failure, RolloutActor, Weights
from robo_rl.rl.scale.remote_collector import ActorLost, ActorReady, Delivered, Event
from robo_rl.rl.scale.schedule import Grant

# Not all are a RayActorError: Ray's memory monitor and the loss of a machine have errors of their own.
_LOST = (
    RayActorError,
    WorkerCrashedError,
    ObjectLostError,
    OutOfMemoryError,
    NodeDiedError,
    ActorUnschedulableError,
)
_MUST_MATCH = ("robo-rl", "torch")


class RayFleet:
    """Actors in a Ray cluster that this process is connected to.

    build(slot, incarnation): makes the parts of an actor, in its process. cpus: that Ray reserves for each.
    """

    def __init__(self, build: Callable[[int, int], ActorParts], cpus: int) -> None:
        self._class = ray.remote(num_cpus=cpus, max_restarts=0, max_task_retries=0)(RolloutActor)
        self._build = ray.put(build)  # the base policy is sent once
        self._actors: dict[int, Any] = {}
        self._calls: dict[int, deque[Any]] = {}
        self._where: dict[int, str] = {}

    def start(self, slot: int, incarnation: int) -> None:
        """Start an actor; its first call builds its environment."""
        actor = self._class.remote(self._build, slot, incarnation)
        self._actors[slot], self._where[slot] = actor, ""
        self._calls[slot] = deque([actor.about.remote()])

    def submit(self, slot: int, grant: Grant, weights: Any) -> None:
        self._calls[slot].append(self._actors[slot].collect.remote(grant, weights))

    def put(self, weights: Weights) -> Any:
        return ray.put(weights)

    def poll(self, timeout_s: float) -> list[Event]:
        """Results of the oldest calls that are done. Raises RoboRLError for one that an actor has raised."""
        running = {calls[0]: slot for slot, calls in self._calls.items() if calls}
        if not running:
            return []
        refs = list(running)
        done, _ = ray.wait(refs, num_returns=1, timeout=timeout_s)
        if done:
            done, _ = ray.wait(refs, num_returns=len(refs), timeout=0)
        return [self._event(running[ref], ref) for ref in done]

    def _event(self, slot: int, ref: Any) -> Event:
        try:
            found = ray.get(ref)
        except _LOST as lost:
            self.end(slot)
            out_of_memory = isinstance(lost, OutOfMemoryError)
            cause = "was ended by Ray for lack of memory" if out_of_memory else "has died"
            return ActorLost(slot, f"{self._where[slot]}{cause}")
        self._calls[slot].popleft()
        if isinstance(found, Failure):
            error = EnvError if found.exit_code == EnvError.exit_code else RoboRLError
            raise error(f"Actor {slot}: {found.sentence}")
        if isinstance(found, ActorInfo):
            self._where[slot] = f"(process {found.pid} on {found.host}) "
            _check_versions(slot, found)
            return ActorReady(slot)
        return Delivered(slot, found)

    def end(self, slot: int) -> None:
        self._calls[slot].clear()
        ray.kill(self._actors[slot])

    def pids(self) -> list[str]:
        """Process and machine of every actor that is ready."""
        return [where.strip("() ") for where in self._where.values() if where]

    def close(self) -> None:
        """End all actors at once."""
        for slot in self._actors:
            self.end(slot)


def _check_versions(slot: int, about: ActorInfo) -> None:
    """Raise EnvError if an actor's machine has another version of robo-rl or torch."""
    mine = versions()
    for name in _MUST_MATCH:
        here, there = mine.get(name), about.versions.get(name)
        if here != there:
            raise EnvError(
                f"Actor {slot} on {about.host} runs {name} {there}, the learner {here}. Install the same "
                "version on all machines."
            )
