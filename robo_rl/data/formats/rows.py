"""One episode as plain arrays: what converters write into other formats and read from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import google_crc32c
import numpy as np
from numpy import ndarray

from robo_rl.core.errors import DataError
from robo_rl.core.shapes import Bool, Float32, Int64, Shaped
from robo_rl.core.spec import EnvSpec
from robo_rl.data.episodes.dataset_writer import DatasetWriter
from robo_rl.data.episodes.reader import Episode, EpisodeStore
from robo_rl.data.episodes.schema import DatasetMeta, EpisodeMeta
from robo_rl.data.episodes.shard import row_bytes
from robo_rl.data.episodes.whole_numbers import require_in_range

SIDECAR = "robo_rl"  # name under which an export keeps our contract and labels, for an exact import
_LABELS = ("success", "complete", "task", "seed", "operator", "recorded_at", "info")


@dataclass(frozen=True, slots=True)
class EpisodeRows:
    """Arrays of one episode in the shapes of the dataset; images decoded. n = frames.

    obs: (n, ...) or, with the observation after the last action, (n + 1, ...). stamps: [ns] by column.
    """

    obs: dict[str, Shaped[ndarray, "rows ..."]]
    action: Float32[ndarray, "n a"]
    reward: Float32[ndarray, " n"]
    terminated: Bool[ndarray, " n"]
    intervention: Bool[ndarray, " n"]
    stamps: dict[str, Int64[ndarray, " n"]] = field(default_factory=dict)
    labels: EpisodeMeta = field(default_factory=lambda: EpisodeMeta(complete=True))

    @property
    def frames(self) -> int:
        return len(self.action)

    @property
    def has_final_obs(self) -> bool:
        return any(len(rows) > self.frames for rows in self.obs.values())

    def final_obs(self) -> dict[str, Shaped[ndarray, "..."]]:
        """The observation after the last action; empty without one."""
        return {key: rows[-1] for key, rows in self.obs.items()} if self.has_final_obs else {}

    def with_final_obs(self, last: Mapping[str, Shaped[ndarray, "..."]]) -> EpisodeRows:
        """The same episode with the observation after its last action."""
        return replace(self, obs={k: np.concatenate([rows, last[k][None]]) for k, rows in self.obs.items()})


def rows_of(episode: Episode) -> EpisodeRows:
    """Arrays of a stored episode, as memory maps where possible. Raises DataError if a checksum differs."""
    return EpisodeRows(
        {key: episode.obs(key) for key in episode.dataset.env.obs},
        episode.action,
        episode.reward,
        episode.terminated,
        episode.intervention,
        episode.stamps(),
        episode.meta,
    )


def write_rows(writer: DatasetWriter, rows: EpisodeRows) -> int:
    """Commit an episode into a dataset; returns its number."""
    labels = rows.labels
    with writer.episode(
        task=labels.task,
        seed=labels.seed,
        operator=labels.operator,
        info=labels.info,
        recorded_at=labels.recorded_at or None,
    ) as episode:
        for i in range(rows.frames):
            episode.add(
                {key: values[i] for key, values in rows.obs.items()},
                rows.action[i],
                reward=rows.reward[i],
                terminated=bool(rows.terminated[i]),
                intervention=bool(rows.intervention[i]),
                stamps={name: int(column[i]) for name, column in rows.stamps.items()},
            )
        return episode.commit(
            success=labels.success, final_obs=rows.final_obs() or None, complete=labels.complete
        )


def raw_bytes(store: EpisodeStore) -> int:
    """Size of all arrays of a dataset with decoded images."""
    env = store.spec
    per_row = sum(row_bytes(spec.dtype, tuple(spec.shape)) for spec in env.obs.values())
    return sum(each.obs_rows * per_row + each.frames * 4 * (env.action.dim + 2) for each in store)


def checksum(rows: EpisodeRows, *, images: bool = True) -> int:
    """CRC-32C of all values of an episode. images: False leaves those out that a video has changed."""
    crc = 0
    arrays = {f"obs {key}": values for key, values in rows.obs.items()}
    arrays |= {"action": rows.action, "reward": rows.reward, "terminated": rows.terminated}
    arrays |= {"intervention": rows.intervention} | {f"stamp {k}": v for k, v in rows.stamps.items()}
    for name in sorted(arrays):
        if images or not name.startswith("obs image."):
            crc = google_crc32c.extend(crc, name.encode())
            crc = google_crc32c.extend(crc, np.ascontiguousarray(arrays[name]).tobytes())
    return int(crc)


def action_checksum(action: Float32[ndarray, "n a"]) -> int:
    """CRC-32C of the actions of an episode, by which other programs' changes of the order are noticed."""
    return int(google_crc32c.value(np.ascontiguousarray(action, dtype=np.float32).tobytes()))


def verified(rows: EpisodeRows, crc: int, where: str, *, images: bool = True) -> EpisodeRows:
    """`rows`. Raises DataError if their checksum differs from that of the export."""
    if checksum(rows, images=images) != crc:
        raise DataError(
            f"{where}: the values differ from those that were exported; a file is damaged or was changed. "
            "Copy it again, or give env= or robot= to import it as a foreign dataset."
        )
    return rows


def labels_json(meta: EpisodeMeta) -> dict[str, Any]:
    """Labels of an episode as JSON."""
    data = asdict(meta)
    return {key: data[key] for key in _LABELS} | {"final_obs": meta.final_obs}


def labels_from(data: Any) -> EpisodeMeta:
    """Inverse of `labels_json`. Raises DataError for anything else: it comes from a foreign file."""
    try:
        success, seed = data["success"], data["seed"]
        if success not in (True, False, None) or not (seed is None or 0 <= int(seed) < 2**63):
            raise ValueError("success or seed")
        return EpisodeMeta(
            success=success,
            complete=bool(data["complete"]),
            task=str(data["task"]),
            seed=None if seed is None else int(seed),
            operator=str(data["operator"]),
            recorded_at=str(data["recorded_at"])[:40],
            info=dict(data["info"]),
            final_obs=bool(data["final_obs"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(
            f"The labels of an episode in the export are broken ({error!r}). Export the dataset again."
        ) from error


@dataclass(frozen=True, slots=True)
class ExportedEpisode:
    """Labels of an exported episode, the checksum of its values, and that of its actions; None in exports of
    older releases.
    """

    labels: EpisodeMeta
    crc32c: int
    action_crc32c: int | None = None


def sidecar(store: EpisodeStore, checksums: Sequence[int]) -> dict[str, Any]:
    """Contract, labels and checksums of a dataset as JSON, which an export carries beside its own
    metadata.
    """
    entries = [
        {
            **labels_json(episode.meta),
            "crc32c": crc,
            "action_crc32c": action_checksum(episode.action),
        }
        for episode, crc in zip(store, checksums, strict=False)
    ]
    return {"dataset": store.meta.to_json(), "episodes": entries}


def exported_episode(data: Any) -> ExportedEpisode:
    """An entry of `sidecar`. Raises DataError for a broken one: it comes from a foreign file."""
    labels = labels_from(data)
    if not isinstance(data.get("crc32c"), int):
        raise DataError("The export states no checksum of an episode. Export the dataset again.")
    of_actions = data.get("action_crc32c")
    return ExportedEpisode(labels, data["crc32c"], of_actions if isinstance(of_actions, int) else None)


def from_sidecar(data: Any) -> tuple[DatasetMeta, list[ExportedEpisode]]:
    """Inverse of `sidecar`. Raises DataError for a broken one: it comes from a foreign file."""
    try:
        meta = DatasetMeta.from_json(data["dataset"])
        episodes = [exported_episode(entry) for entry in data["episodes"]]
    except DataError:
        raise
    except Exception as error:  # any structure may come from outside
        raise DataError(f"The contract in the export is broken ({error!r}). Export it again.") from error
    return meta, episodes


def short_name(env: EnvSpec, key: str) -> str:
    """Name of an observation in other formats: that of the camera for images, unless it is taken."""
    name = key.removeprefix("image.")
    return key if name in env.obs or name in ("action", "actions", "reward", "terminated") else name


def matching(
    env: EnvSpec, rows: EpisodeRows, where: str, names: Mapping[str, str] | None = None
) -> EpisodeRows:
    """`rows` in the types of the contract. names: observation -> its name in the source, for the advice.

    Raises DataError for other observations, and one that names the first array of another shape.
    """
    expected = {key: (tuple(spec.shape), spec.dtype) for key, spec in env.obs.items()}
    if rows.obs.keys() != expected.keys():
        pairs = ",".join(f"{key}:{(names or {}).get(key, '<its name in the source>')}" for key in expected)
        raise DataError(
            f"{where} has the observations {', '.join(sorted(rows.obs))}; expected {', '.join(expected)}. "
            f"Choose and rename them by keys=[{pairs}]; others are then left out."
        )
    arrays = {**rows.obs, "action": rows.action}
    expected["action"] = ((env.action.dim,), "float32")
    for key, values in arrays.items():
        shape, dtype = expected[key]
        integers = values.dtype.kind in "iu" and np.dtype(dtype).kind in "iu"
        if values.shape[1:] != shape or not (integers or np.can_cast(values.dtype, dtype, "same_kind")):
            raise DataError(
                f"{where}: '{key}' is {values.dtype}{list(values.shape[1:])}, the contract expects "
                f"{dtype}{list(shape)}. Choose another env=, robot= or keys=."
            )
        require_in_range(f"{where}: {key}", values, dtype)
    return replace(
        rows,
        obs={key: np.asarray(values, dtype=expected[key][1]) for key, values in rows.obs.items()},
        action=np.asarray(rows.action, dtype=np.float32),
    )
