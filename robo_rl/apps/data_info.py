"""`robo-rl data info`: what a dataset holds."""

from __future__ import annotations

import json
from typing import Any

from robo_rl.conf.schema import DataInfoConfig
from robo_rl.data.info import dataset_info


def main(config: DataInfoConfig) -> int:
    """Print the facts, for people or as JSON."""
    info = dataset_info(config.path)
    print(json.dumps(info, indent=2) if config.json else text(info))
    return 0


def text(info: dict[str, Any]) -> str:
    """One fact per line; only those that say something."""
    frames, action = info["frames_per_episode"], info["action"]
    lines = {
        "dataset": info["path"],
        "environment": f"{info['env']}, {info['control_hz']:g} Hz",
        "episodes": f"{info['episodes']}, of which {info['incomplete']} incomplete",
        "frames": f"{info['frames']} ({info['seconds'] / 60:.1f} min)",
        "per episode": f"{frames['min']} to {frames['max']} frames, median {frames['median']:g}" if frames else "",
        "success": f"{info['successes']}/{info['labelled']} labelled episodes" if info["labelled"] else "not labelled",
        "interrupted": f"{info['interrupted']}: robo-rl data validate recover=true" if info["interrupted"] else "",
        "interventions": f"{info['intervention_frames']} frames" if info["intervention_frames"] else "",
        "size": f"{info['bytes'] / 1e6:.1f} MB, images {info['image_codec']}",
        "action": f"{action['dim']} dimensions {action['unit']}".strip(),
    }
    for key, spec in info["obs"].items():
        lines[f"obs {key}"] = f"{spec['dtype']} {tuple(spec['shape'])} {spec['unit']}".strip()
    for pair, delay in info["delays_ms"].items():
        lines[f"delay {pair}"] = f"{delay['p50']:.1f} ms (p99 {delay['p99']:.1f} ms)"
    shown = {name: value for name, value in lines.items() if value}
    width = max(map(len, shown))
    return "\n".join(f"{name:<{width}}  {value}" for name, value in shown.items())
