"""Files with the rows and images of each episode: v3 keeps many episodes in a file, v2 has files for each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from robo_rl.core.errors import DataError
from robo_rl.core.text.counts import counted
from robo_rl.data.formats.lerobot import layout
from robo_rl.data.formats.lerobot.layout import LeRobotInfo
from robo_rl.data.formats.lerobot.tables import read_json_lines, read_table

_COLUMNS = ("episode_index", "length", "dataset_from_index", "data/chunk_index", "data/file_index", "tasks")


@dataclass(frozen=True, slots=True)
class EpisodeFiles:
    """Files of one episode.

    first: `index` of its first row in a table of several episodes; None: the table holds no other episode.
    videos: file and time of the first image [s], by camera.
    """

    length: int
    first: int | None
    table: Path
    tasks: tuple[str, ...]
    videos: dict[str, tuple[Path, float]]


def episode_files(info: LeRobotInfo) -> list[EpisodeFiles]:
    """Episodes in order. Raises DataError if their table is missing, empty or broken."""
    found = list(_separate(info) if info.file_per_episode else _together(info))
    if not found:
        where = layout.EPISODES_V2 if info.file_per_episode else "meta/episodes"
        raise DataError(f"{info.root} lists no episodes in {where}. Copy the dataset again.")
    return found


def task_names(info: LeRobotInfo) -> dict[int, str]:
    """Instructions by `task_index`; empty if the dataset does not list them."""
    path = info.root / (layout.TASKS_V2 if info.file_per_episode else layout.TASKS)
    if not path.is_file():
        return {}
    if info.file_per_episode:
        return dict(_task(entry, path) for entry in read_json_lines(path))
    table = read_table(path, None)
    text = next((name for name in table.column_names if name != "task_index"), None)
    if text is None or "task_index" not in table.column_names:
        return {}
    return dict(zip(table["task_index"].to_pylist(), map(str, table[text].to_pylist()), strict=True))


def count_differences(info: LeRobotInfo, places: list[EpisodeFiles]) -> list[str]:
    """A sentence, if info.json states other numbers of episodes or frames than are listed."""
    listed = len(places), sum(place.length for place in places)
    stated = tuple(have if count is None else count for have, count in zip(listed, info.totals, strict=True))
    if stated == listed:
        return []
    wanted, there = (
        f"{counted(episodes, 'episode')} of {counted(frames, 'frame')}"
        for episodes, frames in (stated, listed)
    )
    return [f"{layout.INFO} states {wanted} in all, but {there} are listed: others are not imported."]


def _together(info: LeRobotInfo) -> Iterator[EpisodeFiles]:
    """v3: tables of episodes, which name files and the position inside."""
    cameras = _cameras(info)
    parts = ("chunk_index", "file_index", "from_timestamp")
    wanted = [*_COLUMNS, *(f"videos/{camera}/{part}" for camera in cameras for part in parts)]
    for path in sorted((info.root / "meta/episodes").glob("chunk-*/file-*.parquet")):
        for row in read_table(path, wanted).to_pylist():
            try:
                yield _place_together(info, row, cameras)
            except (KeyError, TypeError, ValueError) as error:
                raise _broken(path, error) from error


def _place_together(info: LeRobotInfo, row: Mapping[str, Any], cameras: list[str]) -> EpisodeFiles:
    def place(of: str) -> dict[str, int]:
        return {part: _whole(row[f"{of}/{part}"]) for part in ("chunk_index", "file_index")}

    videos = {
        camera: (
            info.root / layout.VIDEO.format(video_key=camera, **place(f"videos/{camera}")),
            float(row[f"videos/{camera}/from_timestamp"]),
        )
        for camera in cameras
    }
    return EpisodeFiles(
        _whole(row["length"], 1),
        _whole(row["dataset_from_index"]),
        info.root / layout.DATA.format(**place("data")),
        _tasks(row),
        videos,
    )


def _separate(info: LeRobotInfo) -> Iterator[EpisodeFiles]:
    """v2: a line for each episode; files follow from its number. A later line replaces an earlier one of the
    same number, as in LeRobot.
    """
    path, found = info.root / layout.EPISODES_V2, {}
    for row in read_json_lines(path):
        try:
            number = _whole(row["episode_index"])
            chunk = {"episode_chunk": number // info.chunk_episodes, "episode_index": number}
            videos = {
                camera: (info.root / info.video_path.format(video_key=camera, **chunk), 0.0)
                for camera in _cameras(info)
            }
            table = info.root / info.data_path.format(**chunk)
            found[number] = EpisodeFiles(_whole(row["length"], 1), None, table, _tasks(row), videos)
        except (KeyError, TypeError, ValueError) as error:
            raise _broken(path, error) from error
    yield from (found[number] for number in sorted(found))


def _cameras(info: LeRobotInfo) -> list[str]:
    return [each.name for each in info.pictures if each.dtype == "video"]


def _tasks(row: Mapping[str, Any]) -> tuple[str, ...]:
    tasks = row.get("tasks") or ()
    return (tasks,) if isinstance(tasks, str) else tuple(str(task) for task in tasks)


def _task(entry: Mapping[str, Any], path: Path) -> tuple[int, str]:
    try:
        return _whole(entry["task_index"]), str(entry["task"])
    except (KeyError, ValueError) as error:
        raise _broken(path, error) from error


def _whole(value: Any, least: int = 0) -> int:
    if not isinstance(value, int) or not least <= value < 2**40:
        raise ValueError(f"found {value!r}, expected a whole number of at least {least}")
    return value


def _broken(path: Path, error: Exception) -> DataError:
    return DataError(f"{path} is broken ({error!r}). Copy the dataset again.")
