"""Format of the episode store, version 1.

    dataset/
      dataset.json                    contract (observation shapes and units, action limits, rate), codec
      episodes/zarr.json              so that `zarr.open_group("dataset/episodes")` sees all of them
      episodes/000000/                one zarr v3 group per committed episode
        zarr.json  episode.json       frames, success, task, seed, operator, complete, CRC-32C of each array
        state/{zarr.json, c.0.0}      (n or n+1, o) float32
        image.front/{zarr.json, c.0.0.0.0}   (n or n+1, h, w, 3) uint8; with the JPEG codec (bytes,) uint8
        jpeg_ends/                    JPEG only: (n or n+1, cameras) int64, where each image ends in its blob
        action/ reward/ terminated/ intervention/ stamps_ns/    n rows each
      staging/<uuid>/                 an episode being recorded, or one that `recover` will salvage

A frame is an observation and the action that was executed from it. With `final_obs` there is one observation
more than actions: the one after the last action. So row i + 1 is always the next observation of frame i, and
an episode without a final observation has n - 1 transitions. A complete episode without a termination was
truncated.

Each array is one shard without compression (`shard.py`), so plain `zarr.open_group` and `np.memmap` read the
same bytes. A full episode has 2 + 2 x arrays files: 16 for a state and one camera, 18 for two.

    writer = DatasetWriter.create(path, env_spec)
    with writer.episode(task="insert the peg", seed=3) as episode:
        episode.add({"state": state}, action, reward=0.0)
        episode.commit(success=True, final_obs={"state": last_state})
    store = EpisodeStore(path)
"""

from __future__ import annotations

from robo_rl.data.episodes.dataset_writer import DatasetWriter
from robo_rl.data.episodes.episode_writer import EpisodeWriter
from robo_rl.data.episodes.reader import Episode, EpisodeStore, Totals
from robo_rl.data.episodes.recover import Salvaged, recover
from robo_rl.data.episodes.schema import NO_STAMP, STAMP_COLUMNS, DatasetMeta, EpisodeMeta

__all__ = [
    "NO_STAMP",
    "STAMP_COLUMNS",
    "DatasetMeta",
    "DatasetWriter",
    "Episode",
    "EpisodeMeta",
    "EpisodeStore",
    "EpisodeWriter",
    "Salvaged",
    "Totals",
    "recover",
]
