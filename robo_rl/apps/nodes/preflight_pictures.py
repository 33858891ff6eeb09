"""Check that a node of the set publishes each bundle's images; a policy without them sends no commands."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hardware.loop.observation import DEPTH, IMAGE
from robo_rl.core.errors import ConfigError

if TYPE_CHECKING:
    from policies.deploy.bundle import Bundle

_SENSES = {"rgb": IMAGE, "depth": DEPTH}
_BUNDLE_NODES = ("arm_policy", "action_head")  # nodes that give a bundle its observation


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
            if any(node == "sim_robot" for node, _ in sources) or (sources and not needed & sent):
                raise ConfigError(_refusal(bundle, lacking, sent))
            yield (
                f"the bundle needs {_words(lacking)}, which none of these nodes publishes: it waits until "
                "another program does."
            )


def _sent(node: str, given: Any) -> Iterator[str]:
    """Keys of published pictures, as in a bundle's observation."""
    if node == "camera":
        yield IMAGE + given.camera
        return
    for camera in filter(None, given.cameras.split("+")):
        yield from (_SENSES[sense] + camera for sense in given.senses.split("+"))


def _refusal(bundle: Bundle, lacking: Sequence[str], sent: set[str]) -> str:
    cameras = "+".join(sorted({key.partition(".")[2] for key in lacking}))
    return (
        f"The bundle '{bundle.name}' needs {_words(lacking)}, and these nodes publish "
        f"{_words(sorted(sent)) or 'none'}: give cameras={cameras} (and senses=) for the simulated arm, or "
        f"camera_name={cameras} for other cameras."
    )


def _words(keys: Sequence[str]) -> str:
    return ", ".join(
        f"{'depths' if key.startswith(DEPTH) else 'pictures'} of '{key.partition('.')[2]}'" for key in keys
    )
