"""Checks of the names of nodes, topics, services and domains, by the rules of ROS 2."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable

from robo_rl.core.errors import BusError, BusNameError
from robo_rl.core.text.nearest import nearest

WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
RULE = "use letters, digits and underscores, not a digit first, with / between"


def node_name(name: str) -> str:
    """The name, unchanged. Raises BusNameError for a name that ROS would refuse."""
    if not WORD.fullmatch(name):
        raise BusNameError(f"{name!r} cannot be the name of a node; {RULE[:52]}.")
    return name


def namespace_of(namespace: str) -> str:
    """The namespace as "" or "/robot/left". Raises BusNameError for a namespace that ROS would refuse."""
    words = [word for word in namespace.split("/") if word]
    if not all(map(WORD.fullmatch, words)):
        raise BusNameError(f"{namespace!r} cannot be a namespace; {RULE}.")
    return "".join(f"/{word}" for word in words)


def resolve(name: str, namespace: str, node: str) -> str:
    """The full name: "joint_states" below the namespace, "~/start" below the node, "/estop" unchanged.

    Raises BusNameError for a name that ROS would refuse.
    """
    if name.startswith("~/"):
        full = f"{namespace}/{node}/{name[2:]}"
    else:
        full = name if name.startswith("/") else f"{namespace}/{name}"
    if not all(map(WORD.fullmatch, full[1:].split("/"))):
        raise BusNameError(f"{name!r} cannot be the name of a topic or service; {RULE}.")
    return full


def domain_id(given: int | None) -> int:
    """`given`, otherwise ROS_DOMAIN_ID, otherwise 0. Raises BusNameError unless it is from 0 to 232."""
    text = str(given) if given is not None else os.environ.get("ROS_DOMAIN_ID", "") or "0"
    if not (text.isdecimal() and int(text) <= 232):
        raise BusNameError(f"ROS_DOMAIN_ID is '{text}'; expected a whole number from 0 to 232.")
    return int(text)


def unknown_service(service: str, offered: Iterable[str], waited_s: float) -> BusError:
    """The error for a Trigger service without a server. offered: names of known services.

    `offered` may contain the name itself, because ROS also lists the services of clients.
    """
    names = sorted(set(offered) - {service})
    last = service.rsplit("/", 1)[1]
    near = nearest(service, names, 1) or [name for name in names if name.rsplit("/", 1)[1] == last]
    if len(near) == 1:
        hint = f"Did you mean '{near[0]}'?"
    elif names:
        hint = f"Known services: {', '.join(near or names)}."
    else:
        hint = "No services were found: start its node, and compare ROS_DOMAIN_ID on both sides."
    error = BusNameError if names else BusError  # without any node, nothing is wrong with the name
    return error(f"The service '{service}' was not found (waited {waited_s:g} s). {hint}")
