"""`robo-rl data show`: one episode as text, as a picture of images and curves, or as a video."""

from __future__ import annotations

from pathlib import Path

from robo_rl.apps.datasets.episode_picture import episode_picture, episode_video
from robo_rl.conf.datasets.replay import DataShowConfig
from robo_rl.core.errors import ConfigError
from robo_rl.core.text.commands import command
from robo_rl.core.text.counts import counted
from robo_rl.data.episodes.reader import Episode
from robo_rl.data.episodes.reward_marks import reward_marks
from robo_rl.data.review.one_episode import episode_at
from robo_rl.runs.outputs import check_file


def main(config: DataShowConfig) -> int:
    """Print the facts of the episode; write a picture or a video to `out`."""
    check_file("out", config.out)
    episode = episode_at(config.path, config.episode)
    print(episode_text(episode))
    if config.out is None:
        print(f"Picture: {command('data show', path=config.path, episode=episode.number, out='episode.png')}")
        return 0
    out = Path(config.out)
    if out.suffix not in (".png", ".mp4"):
        raise ConfigError(f"out={config.out} must end in .png (images and curves) or .mp4 (cameras).")
    if out.suffix == ".mp4":
        episode_video(episode, out)
    else:
        episode_picture(episode, out)
    print(f"Wrote {out}")
    return 0


def episode_text(episode: Episode) -> str:
    """Facts of an episode, one per line."""
    meta, env = episode.meta, episode.dataset.env
    seconds = episode.frames / env.control_hz
    human = int(episode.intervention.sum())
    label = {True: "success", False: "failure", None: "not labelled"}[meta.success]
    lines = {
        "episode": f"{episode.number} of {episode.path.parent.parent}",
        "length": f"{counted(episode.frames, 'frame')}, {seconds:.1f} s at {env.control_hz:g} Hz",
        "label": label + ("" if meta.complete else ", interrupted and salvaged"),
        "task": meta.task or "-",
        "operator": meta.operator,
        "recorded": meta.recorded_at,
        "seed": "" if meta.seed is None else str(meta.seed),
        "return": f"{float(episode.reward.sum()):.4g}",
        "interventions": counted(human, "frame") if human else "",
        "reward marks": ", ".join(f"{m.reward:+g} at frame {m.frame}" for m in reward_marks(meta)),
        "earlier labels": str(len(meta.info["labels"])) if isinstance(meta.info.get("labels"), list) else "",
    }
    for key in env.obs:
        spec = env.obs[key]
        lines[f"obs {key}"] = f"{spec.dtype} {(episode.obs_rows, *spec.shape)} {spec.unit}"
    lines["action"] = f"float32 {(episode.frames, env.action.dim)} {env.action.unit}"
    shown = {name: value.strip() for name, value in lines.items() if value}
    width = max(map(len, shown))
    return "\n".join(f"{name:<{width}}  {value}" for name, value in shown.items())
