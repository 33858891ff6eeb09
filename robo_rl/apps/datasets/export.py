"""`robo-rl data export`: a dataset in the format of another program."""

from __future__ import annotations

from pathlib import Path

from robo_rl.conf.datasets.exchange import DataExportConfig
from robo_rl.core.errors import ConfigError
from robo_rl.core.text.counts import counted
from robo_rl.data.episodes.atomic_dataset import refuse_inside
from robo_rl.data.formats.export_plan import bytes_of, plan_export
from robo_rl.data.formats.registry import FORMATS, load_part
from robo_rl.runs.outputs import check_new
from robo_rl.runs.progress import progress_callback


def main(config: DataExportConfig) -> int:
    """Export, and print the number of episodes and the command that reads the export again."""
    check_new("out", config.out)
    refuse_inside(config.out)
    if config.format != "lerobot":
        refuse_picture_settings(config)
    write = load_part(config.format, "writer")
    options = {"video": config.images == "video", "crf": config.crf} if config.format == "lerobot" else {}
    if config.dry_run:
        with progress_callback("read", "episode") as advance:
            plan = plan_export(config.path, config.out, config.format, progress=advance, **options)
        print(
            f"Would write {counted(plan.episodes, 'episode')} ({counted(plan.frames, 'frame')}) as "
            f"{FORMATS[config.format].what} into {config.out}, about {plan.bytes / 1e6:.1f} MB"
        )
        print(f"For other programs {FORMATS[config.format].loses}.")
        print("Nothing was written. Leave out dry_run=true to carry it out.")
        return 0
    with progress_callback("export", "episode") as advance:
        count = write(config.path, config.out, progress=advance, **options)
    size = bytes_of(Path(config.out))
    print(f"{config.out}: {counted(count, 'episode')} as {config.format}, {size / 1e6:.1f} MB")
    return 0


def refuse_picture_settings(config: DataExportConfig) -> None:
    """Raise ConfigError for settings of LeRobot's pictures, which the other formats do not read."""
    default = DataExportConfig()
    for name in ("images", "crf"):
        if (given := getattr(config, name)) != getattr(default, name):
            raise ConfigError(
                f"{name}={given} is of format=lerobot and has no effect on format={config.format}. Leave it "
                "out."
            )
