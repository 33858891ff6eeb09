"""One tree of a compiled scene as MJCF of the plainest kind: bodies, hinges, slides and the shapes that can
touch.
"""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree as Xml

import mujoco
from numpy import ndarray

_PLANE = int(mujoco.mjtGeom.mjGEOM_PLANE)
SHAPES = {  # those that Isaac Gym knows; a plane becomes a box, since its own ground knows no filter
    int(mujoco.mjtGeom.mjGEOM_SPHERE): ("sphere", 1),
    int(mujoco.mjtGeom.mjGEOM_CAPSULE): ("capsule", 2),
    int(mujoco.mjtGeom.mjGEOM_CYLINDER): ("cylinder", 2),
    int(mujoco.mjtGeom.mjGEOM_BOX): ("box", 3),
    _PLANE: ("box", 3),
}
_PLANE_HALF_HEIGHT_M = 0.05
_ENDLESS_M = 10.0  # half the side of a plane without end
_JOINTS = {int(mujoco.mjtJoint.mjJNT_HINGE): "hinge", int(mujoco.mjtJoint.mjJNT_SLIDE): "slide"}


def shapes_of(model: Any, row: int) -> list[int]:
    """Geoms of a body that can touch something, in their order."""
    start, count = int(model.body_geomadr[row]), int(model.body_geomnum[row])
    return [g for g in range(start, start + count) if model.geom_contype[g] or model.geom_conaffinity[g]]


def tree_mjcf(model: Any, rows: list[int]) -> str:
    """rows: a body and all its descendants. The root stands at the origin; where it is, its actor says."""
    top = Xml.Element("mujoco", model=f"a{rows[0]}")
    Xml.SubElement(top, "compiler", angle="radian")
    parent = Xml.SubElement(top, "worldbody")
    root_moves = any(int(model.jnt_type[j]) in _JOINTS for j in _joints(model, rows[0]))
    if root_moves:  # a base for it, which has mass and no shape
        parent = Xml.SubElement(parent, "body", name="base")
        Xml.SubElement(parent, "inertial", pos="0 0 0", mass="1", diaginertia="1 1 1")
    elements: dict[int, Xml.Element] = {}
    for row in rows:
        above = elements.get(int(model.body_parentid[row]), parent) if row != rows[0] else parent
        elements[row] = _body(model, row, above, at_origin=row == rows[0])
    return Xml.tostring(top, encoding="unicode")


def _body(model: Any, row: int, parent: Xml.Element, at_origin: bool) -> Xml.Element:
    body = Xml.SubElement(parent, "body", name=f"b{row}")
    if not at_origin:
        body.set("pos", _text(model.body_pos[row]))
        body.set("quat", _text(model.body_quat[row]))
    if model.body_mass[row] > 0.0:
        inertial = {
            "pos": model.body_ipos[row],
            "quat": model.body_iquat[row],
            "diaginertia": model.body_inertia[row],
        }
        numbers = {"mass": repr(float(model.body_mass[row]))} | {
            key: _text(each) for key, each in inertial.items()
        }
        Xml.SubElement(body, "inertial", attrib=numbers)
    for j in _joints(model, row):
        kind = _JOINTS.get(int(model.jnt_type[j]))
        if kind is not None:
            axis, pos = _text(model.jnt_axis[j]), _text(model.jnt_pos[j])
            Xml.SubElement(body, "joint", name=f"j{j}", type=kind, axis=axis, pos=pos)
    for g in shapes_of(model, row):
        _shape(model, g, body)
    return body


def _shape(model: Any, g: int, body: Xml.Element) -> None:
    kind, numbers = SHAPES[int(model.geom_type[g])]
    size, pos = model.geom_size[g].copy(), model.geom_pos[g].copy()
    if int(model.geom_type[g]) == _PLANE:
        size[:2] = [side if side > 0.0 else _ENDLESS_M for side in size[:2]]
        size[2] = _PLANE_HALF_HEIGHT_M
        normal = model.geom_quat[g]
        down = pos.copy()
        mujoco.mju_rotVecQuat(down, [0.0, 0.0, -_PLANE_HALF_HEIGHT_M], normal)
        pos = pos + down
    Xml.SubElement(
        body, "geom", type=kind, size=_text(size[:numbers]), pos=_text(pos), quat=_text(model.geom_quat[g])
    )


def _joints(model: Any, row: int) -> range:
    start = int(model.body_jntadr[row])
    return range(start, start + int(model.body_jntnum[row])) if start >= 0 else range(0)


def _text(numbers: ndarray) -> str:
    return " ".join(repr(float(number)) for number in numbers)
