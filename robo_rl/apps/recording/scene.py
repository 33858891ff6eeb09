"""Shapes for the page's 3-D view: the arm's chain of joints, and what a simulator tells on `scene/shapes`."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from hardware.description import RobotDescription
from robo_rl.core.errors import DataError

MOST_SHAPES, LONGEST = 200, 100_000  # of a scene; characters
Metres = Annotated[float, Field(ge=-100.0, le=100.0, allow_inf_nan=False)]
Share = Annotated[float, Field(ge=-1.0, le=1.0, allow_inf_nan=False)]
Place = Annotated[list[Metres], Field(min_length=3, max_length=3)]
SIZES = {"sphere": 1, "capsule": 2, "cylinder": 2, "box": 3}


class Slide(BaseModel):
    """A shape that moves along `axis` of its link by the position of a joint [m]."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    joint: int = Field(ge=0, le=63)
    axis: Place


class Shape(BaseModel):
    """size_m: radius; radius and half-length along z; or half-sizes. quat: wxyz, shape -> link. World: -1."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    kind: Literal["sphere", "capsule", "cylinder", "box"]
    link: int = Field(ge=-1, le=63)
    size_m: list[Annotated[float, Field(ge=0.0, le=100.0, allow_inf_nan=False)]]
    pos_m: Place
    quat: Annotated[list[Share], Field(min_length=4, max_length=4)]
    rgb: Annotated[list[Annotated[float, Field(ge=0.0, le=1.0)]], Field(min_length=3, max_length=3)]
    slides: Slide | None = None


_SHAPES = TypeAdapter(Annotated[list[Shape], Field(max_length=MOST_SHAPES)])


def parse_scene(text: str, links: int = 64) -> list[Shape]:
    """Shapes of a message. links: number of the arm's joints. Raises DataError with what is wrong."""
    if len(text) > LONGEST:
        raise DataError(f"A scene of {len(text)} characters; at most {LONGEST} are read.")
    try:
        shapes = _SHAPES.validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        raise DataError(
            f"scene/shapes: {'.'.join(map(str, first['loc'])) or 'the text'}: {first['msg']}."
        ) from error
    for shape in shapes:
        if len(shape.size_m) != SIZES[shape.kind]:
            raise DataError(
                f"scene/shapes: a {shape.kind} has {SIZES[shape.kind]} sizes, not {len(shape.size_m)}."
            )
        if shape.link >= links or (shape.slides is not None and shape.slides.joint >= links):
            raise DataError(
                f"scene/shapes: a shape belongs to link {shape.link}, but the arm has {links} joints."
            )
    return shapes


def chain_of(robot: RobotDescription) -> dict[str, Any] | None:
    """Joints of the arm for forward kinematics on the page; None where the description has no axes.

    place: number of the joint in the description.
    """
    places = np.flatnonzero(~robot.is_gripper).tolist()
    joints = [(place, robot.joints[place]) for place in places]
    if any(joint.axis is None or joint.offset_m is None for _, joint in joints):
        return None
    return {
        "joints": [
            {"place": place, "axis": list(joint.axis or ()), "offset_m": list(joint.offset_m or ())}
            for place, joint in joints
        ],
        "tool_m": list(robot.tool_m or (0.0, 0.0, 0.0)),
    }
