"""`robo-rl data export`: a dataset in the format of another program."""

from __future__ import annotations

from pathlib import Path

from robo_rl.conf.datasets.exchange import DataExportConfig
from robo_rl.core.text.counts import counted
from robo_rl.data.formats.registry import load_part
from robo_rl.runs.progress import progress, show


def main(config: DataExportConfig) -> int:
    """Export, and print the number of episodes and the command that reads the export again."""
    write = load_part(config.format, "writer")
    options = {"video": config.images == "video", "crf": config.crf} if config.format == "lerobot" else {}
    with progress(None, "export", "episode") as bar:
        count = write(config.path, config.out, progress=show(bar), **options)
    out = Path(config.out)
    size = sum(each.stat().st_size for each in (out, *out.rglob("*")) if each.is_file())
    print(f"{config.out}: {counted(count, 'episode')} as {config.format}, {size / 1e6:.1f} MB")
    return 0
