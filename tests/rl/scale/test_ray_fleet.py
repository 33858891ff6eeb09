"""Events of the actors of a Ray cluster, without one: which errors of Ray mean that an actor is lost."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("ray", reason="needs Ray: pip install 'robo-rl[ray]'")

from ray.exceptions import ActorUnschedulableError, NodeDiedError, OutOfMemoryError

from robo_rl.rl.scale import ray_fleet
from robo_rl.rl.scale.ray_fleet import RayFleet
from robo_rl.rl.scale.remote_collector import ActorLost

LOST: dict[str, tuple[Exception, str]] = {
    "by the memory monitor": (OutOfMemoryError("low on memory"), "was ended by Ray for lack of memory"),
    "with its machine": (NodeDiedError("node"), "has died"),
    "before it found a machine": (ActorUnschedulableError("affinity"), "has died"),
}


@pytest.mark.parametrize("how", LOST)
def test_an_actor_that_ray_ends_is_lost_and_not_the_run(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The run continues with a new actor, and the message says why the old one ended."""
    error, cause = LOST[how]

    def get(_: Any) -> None:
        raise error

    actor = SimpleNamespace(about=SimpleNamespace(remote=lambda: "call"))
    made = SimpleNamespace(remote=lambda *_: actor)
    killed: list[Any] = []
    fake = SimpleNamespace(
        remote=lambda **_: lambda _: made,
        put=lambda value: value,
        wait=lambda refs, **_: (refs, []),
        get=get,
        kill=killed.append,
    )
    monkeypatch.setattr(ray_fleet, "ray", fake)
    fleet = RayFleet(lambda *_: None, 1)  # type: ignore[arg-type,return-value]
    fleet.start(0, 0)
    assert fleet.poll(0.0) == [ActorLost(0, cause)]
    assert killed == [actor]
    assert fleet.poll(0.0) == []
