"""Trigger services of the nodes; the table in docs/topics.md is generated from this file."""

from __future__ import annotations

# Trigger services: node -> (name below the node's own, effect).
SERVICES: dict[str, tuple[tuple[str, str], ...]] = {
    "safety_filter": (
        ("~/arm", "hold the arm, then follow commands"),
        ("~/stop", "brake, send the final position, then send nothing more"),
    ),
    "arm_policy": (
        ("~/start", "start inference"),
        ("~/stop", "stop inference; the head drops its chunk, and the filter holds"),
        ("~/reset", "start a new episode: clear the observation history"),
    ),
    "action_head": (
        ("~/start", "start sending commands"),
        ("~/stop", "stop sending commands"),
        ("~/reset", "start a new episode, after a pause of 6 periods"),
    ),
    "quad_policy": (
        ("~/start", "start sending commands"),
        ("~/stop", "stop sending commands"),
        ("~/reset", "clear the observation history"),
    ),
    "recorder": (
        ("~/start", "start a recording"),
        ("~/stop", "save the recording"),
        ("~/success", "save the recording, marked as a success"),
        ("~/failure", "save the recording, marked as a failure"),
        ("~/discard", "delete the recording"),
    ),
    "record_app": (
        ("~/start", "start an episode"),
        ("~/stop", "save the episode without a label"),
        ("~/success", "save the episode as a success"),
        ("~/failure", "save the episode as a failure"),
        ("~/discard", "delete the episode"),
    ),
    "robot_driver": (
        ("~/connect", "connect again after a stop or a lost connection"),
        ("~/stop", "hold, or land, and follow no commands until ~/connect"),
    ),
    "controller_driver": (("~/connect", "command the controller again after a fault of it"),),
    "flight_filter": (("~/arm", "let the policy fly"), ("~/stop", "land, then switch the motors off")),
    "sim_robot": (("~/reset", "reset the simulated robot to its start"),),
}
