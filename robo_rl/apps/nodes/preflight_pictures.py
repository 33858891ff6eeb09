"""Check that a node of the set publishes each bundle's images; a policy without them sends no commands."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hardware.loop.observation import DEPTH, IMAGE
from robo_rl.core.errors import ConfigError

if TYPE_CHECKING:
    from policies.deploy.bundle import Bundle

SCENES = {"reach": ("view",), "peg": ("view", "front", "wrist")}  # cameras of the simulated arm's scenes
_SENSES = {"rgb": IMAGE, "depth": DEPTH}
_SEEK = "front"  # camera of the simulated quadcopter at scene=seek
_BUNDLE_NODES = ("arm_policy", "action_head", "quad_policy")  # nodes that give a bundle its observation


def check_scene(nodes: Sequence[tuple[str, Any]]) -> None:
    """Raise ConfigError for a camera that the scene of the simulated arm does not have, and for the bundle of
    a simulated arm, which would have no effect.
    """
    for given in (given for node, given in nodes if node == "sim_robot"):
        flies = given.robot == "sim_quad"
        if given.bundle and not flies:
            raise ConfigError("bundle= of sim_robot is for robot=sim_quad; leave it out.")
        scenes = ("empty", "seek") if flies else tuple(SCENES)
        if given.scene not in (*scenes, "reach"):  # reach is the default
            raise ConfigError(
                f"scene={given.scene} is not for robot={given.robot}, which has {', '.join(scenes)}."
            )
    arms = [given for node, given in nodes if node == "sim_robot" and given.robot == "sim_arm"]
    for given in arms:
        for camera in filter(None, given.cameras.split("+")):
            if camera not in SCENES[given.scene]:
                raise ConfigError(
                    f"cameras={given.cameras}: scene={given.scene} has no camera '{camera}'. {_scenes()}"
                )


def check_pictures(nodes: Sequence[tuple[str, Any]]) -> Iterator[str]:
    """Yield a remark for each bundle whose pictures another program must publish.

    nodes: (node, its settings). Raises ConfigError for pictures that no other program will publish: those of
    the simulated arm, and those of a camera that this set has under another name.
    """
    from policies.deploy.bundle import load_bundle

    sources = [(node, given) for node, given in nodes if node in ("sim_robot", "camera")]
    sent = {key for node, given in sources for key in _sent(node, given)}
    for folder in sorted({given.bundle for node, given in nodes if node in _BUNDLE_NODES and given.bundle}):
        bundle = load_bundle(Path(folder))
        needed = {key for key in bundle.env.obs if key.startswith((IMAGE, DEPTH))}
        if lacking := sorted(needed - sent):
            simulated = [given for node, given in sources if node == "sim_robot"]
            if simulated and simulated[0].robot == "sim_quad":
                raise ConfigError(
                    f"The bundle {bundle.folder} needs {_words(lacking)}. The simulated quadcopter has the "
                    f"camera '{_SEEK}' at scene=seek and no other."
                )
            if simulated or (sources and not needed & sent):
                raise ConfigError(_refusal(bundle, lacking, sent, bool(simulated)))
            yield (
                f"the bundle needs {_words(lacking)}, which none of these nodes publishes: it waits until "
                "another program does."
            )


def _scenes() -> str:
    return "Cameras: " + "; ".join(f"scene={name}: {', '.join(has)}" for name, has in SCENES.items()) + "."


def _sent(node: str, given: Any) -> Iterator[str]:
    """Keys of published pictures, as in a bundle's observation."""
    if node == "camera":
        yield IMAGE + given.camera
        return
    if given.robot == "sim_quad" and given.scene == "seek":
        yield IMAGE + _SEEK
    for camera in filter(None, given.cameras.split("+")):
        yield from (_SENSES[sense] + camera for sense in given.senses.split("+"))


def _refusal(bundle: Bundle, lacking: Sequence[str], sent: set[str], simulated: bool) -> str:
    found = (
        f"The bundle {bundle.folder} needs {_words(lacking)}, and these nodes publish "
        f"{_words(sorted(sent)) or 'none'}"
    )
    if not simulated:
        return f"{found}: give camera_name={_names(lacking)}."
    if advised := scene_words(lacking):
        return f"{found}: give {advised}."
    return f"{found}. The simulated arm has no such camera. {_scenes()}"


def scene_words(keys: Sequence[str]) -> str:
    """Arguments of arm_sim that publish these pictures, keys of an observation; empty where no scene does."""
    cameras = {key.partition(".")[2] for key in keys}
    scene = next((name for name, has in SCENES.items() if cameras <= set(has)), None)
    if scene is None or not cameras:
        return ""
    place = "" if scene == "reach" else f"scene={scene} "  # reach is the default
    senses = " senses=rgb+depth" if any(key.startswith(DEPTH) for key in keys) else ""
    return f"{place}cameras={_names(keys)}{senses}"


def _names(keys: Sequence[str]) -> str:
    return "+".join(sorted({key.partition(".")[2] for key in keys}))


def _words(keys: Sequence[str]) -> str:
    return ", ".join(
        f"{'depths' if key.startswith(DEPTH) else 'pictures'} of '{key.partition('.')[2]}'" for key in keys
    )
