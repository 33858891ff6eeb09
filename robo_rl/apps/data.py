"""`robo-rl data info|merge|validate`: describe, merge and check datasets."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from robo_rl.conf.schema import DataInfoConfig, DataMergeConfig, DataValidateConfig
from robo_rl.core.text.counts import counted
from robo_rl.data.episodes.recover import recover, staging_sentence
from robo_rl.data.episodes.schema import DatasetMeta
from robo_rl.data.info import dataset_info
from robo_rl.data.merge import merge as merge_datasets
from robo_rl.data.validate import validate as find_faults
from robo_rl.runs.next_step import after_data
from robo_rl.runs.outputs import check_new
from robo_rl.runs.progress import progress_callback


def info(config: DataInfoConfig) -> int:
    """Print the contents of a dataset as text or JSON."""
    found = dataset_info(config.path)
    print(json.dumps(found, indent=2) if config.json else f"{info_text(found)}\nNext:   {after_data(found)}")
    return 0


def merge(config: DataMergeConfig) -> int:
    """Merge datasets and print the number of episodes."""
    check_new("out", config.out)
    with progress_callback("merge", "episode") as advance:
        count = merge_datasets(config.sources, config.out, advance, dry_run=config.dry_run)
    if config.dry_run:
        found = [dataset_info(source) for source in config.sources]
        frames, size = (sum(each[key] for each in found) for key in ("frames", "bytes"))
        print(
            f"Would write {counted(count, 'episode')} ({counted(frames, 'frame')}, {size / 1e6:.1f} MB) into "
            f"{config.out}. Nothing was written. Leave out dry_run=true to carry it out."
        )
        return 0
    print(f"{config.out}: {counted(count, 'episode')}\nNext:   {after_data(dataset_info(config.out))}")
    return 0


def validate(config: DataValidateConfig) -> int:
    """Print the faults; returns 2 if one is an error, 0 if all are warnings."""
    DatasetMeta.load(Path(config.path))  # raises if the folder is no dataset
    if config.recover:
        for episode in recover(config.path):
            state = "complete" if episode.complete else "incomplete"
            frames = counted(episode.frames, "frame")
            print(f"Recovered episode {episode.number:06d}: {frames}, {state}")
    with progress_callback("validate", "episode") as advance:
        faults = find_faults(config.path, advance)
    for fault in faults:
        print(fault)
    errors = sum(fault.severity == "error" for fault in faults)
    found = f"{counted(errors, 'error')}, {counted(len(faults) - errors, 'warning')}" if faults else "sound"
    print(f"{config.path}: {found}")
    return 2 if errors else 0


def _images(info: dict[str, Any]) -> str:
    """Codec of the images; empty for a dataset without images."""
    pictures = any(spec["dtype"] == "uint8" and len(spec["shape"]) == 3 for spec in info["obs"].values())
    return f", images {info['image_codec']}" if pictures else ""


def info_text(info: dict[str, Any]) -> str:
    """Text of the non-empty facts, one per line."""
    frames, action = info["frames_per_episode"], info["action"]
    lines = {
        "dataset": info["path"],
        "environment": f"{info['env']}, {info['control_hz']:g} Hz",
        "episodes": f"{info['episodes']}, of which {info['incomplete']} incomplete",
        "frames": f"{info['frames']} ({info['seconds'] / 60:.1f} min)",
        "per episode": f"{frames['min']} to {frames['max']} frames, median {frames['median']:g}"
        if frames
        else "",
        "success": f"{info['successes']}/{info['labelled']} labelled episodes"
        if info["labelled"]
        else "not labelled",
        "staging": staging_sentence(info["path"]),
        "interventions": counted(info["intervention_frames"], "frame") if info["intervention_frames"] else "",
        "size": f"{info['bytes'] / 1e6:.1f} MB{_images(info)}",
        "action": f"{action['dim']} dimensions {action['unit']}".strip(),
    }
    for key, spec in info["obs"].items():
        lines[f"obs {key}"] = f"{spec['dtype']} {tuple(spec['shape'])} {spec['unit']}".strip()
    for pair, delay in info["delays_ms"].items():
        lines[f"delay {pair}"] = f"{delay['p50']:.1f} ms (p99 {delay['p99']:.1f} ms)"
    shown = {name: value for name, value in lines.items() if value}
    width = max(map(len, shown))
    return "\n".join(f"{name:<{width}}  {value}" for name, value in shown.items())
