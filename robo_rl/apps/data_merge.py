"""`robo-rl data merge`: several datasets become one."""

from __future__ import annotations

from robo_rl.apps.progress import progress, show
from robo_rl.conf.schema import DataMergeConfig
from robo_rl.data.merge import merge


def main(config: DataMergeConfig) -> int:
    """Merge, and say what came of it."""
    with progress(None, "merge", "episode") as bar:
        count = merge(config.sources, config.out, show(bar))
    print(f"{config.out}: {count} episodes\nNext:   robo-rl train data={config.out} out=runs/base")
    return 0
