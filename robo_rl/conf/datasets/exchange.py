"""Settings of `robo-rl data export`."""

from __future__ import annotations

from dataclasses import dataclass

from robo_rl.conf.datasets.review import DATASET
from robo_rl.conf.fields import REQUIRED, one_of, setting


@dataclass
class DataExportConfig:
    """`robo-rl data export`."""

    path: str = setting(REQUIRED, DATASET)
    format: str = one_of("lerobot", "zarr", "robomimic", "rlds", "mcap", "rerun", help="format of the export")
    out: str = setting(REQUIRED, "new folder, or file for robomimic")
    images: str = one_of(
        "video", "png", help="images of lerobot: H.264 video, small and lossy; or png, every pixel as it is"
    )
    crf: int = setting(20, "loss of the video, from 0 (none) to 51", at_least=0, at_most=51)
    dry_run: bool = setting(
        False, "read everything and convert two episodes, but only print what would be written"
    )
