"""One node per camera of a set, by the robot's description or the arguments."""

from __future__ import annotations

import re

import pytest

from robo_rl.apps.nodes.node_sets import load_set
from robo_rl.core.errors import ConfigError


@pytest.mark.parametrize("name", ["arm", "teleop"])
def test_one_node_per_camera(name: str, seeing_robot: str) -> None:
    """By the description or the arguments; the recorder records all of them, whoever publishes their
    images.
    """
    given = {"robot": seeing_robot, "record": "r"} | ({"bundle": "b"} if name == "arm" else {})

    def cameras(**more: str) -> dict[str, dict[str, str]]:
        commands = load_set(name).commands(given | more)
        return {node: dict(word.split("=", 1) for word in words[1:]) for node, words in commands.items()}

    own = {
        "width": "64",
        "height": "48",
        "fps": "20",
        "name": "camera_wrist",
        "source": "pattern",
        "camera": "wrist",
    }
    found = cameras()
    assert own.items() <= found["camera_wrist"].items()
    assert {"source": "2", "camera": "front", "width": "84", "fps": "10"}.items() <= found[
        "camera_front"
    ].items()
    assert found["recorder"]["cameras"] == "wrist+front"
    swapped = cameras(camera="/dev/video1+pattern", camera_name="front+wrist")
    assert swapped["camera_front"]["source"] == "/dev/video1"
    assert swapped["camera_wrist"]["source"] == "pattern"
    one = cameras(camera="a+b.mp4", camera_name="front")  # the only one: a + of its own
    assert [node for node in one if node.startswith("camera")] == ["camera"]
    assert (one["camera"]["source"], one["camera"]["camera"]) == ("a+b.mp4", "front")
    assert one["recorder"]["cameras"] == "front+wrist"


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ({"camera": "0"}, "camera=0: the description has wrist, front. Say which is which by camera_name="),
        ({"camera": "0", "camera_name": "wrist+front"}, "camera=0 is 1 for the 2 cameras wrist, front"),
        ({"camera_name": "wrist+wrist"}, "camera_name=wrist+wrist names a camera twice"),
        ({"camera_name": "wrist,front"}, "'wrist,front' is no camera's name. Join names by +"),
        ({"calibration": "a.yaml"}, "calibration=a.yaml is 1 for the 2 cameras wrist, front"),
        (
            {"robot": "ur5e", "camera": "0+2"},
            "the description has no cameras. Say which is which by camera_name=",
        ),
    ],
)
def test_ambiguous_cameras_are_refused(words: dict[str, str], sentence: str, seeing_robot: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(sentence)):
        load_set("teleop").commands({"robot": seeing_robot} | words)
