"""Contents of a repository for push and pull: files of known types, with their checksums in robo-rl.json.

robo-rl.json = {"format": 1, "kind": "run|policy|bundle|dataset", "files": {<path>: {"sha256", "bytes"}}}
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from policies.deploy.bundle import MANIFEST, load_bundle, sha256_of
from policies.saved_files import POLICY_FILE
from robo_rl.core.errors import DataError
from robo_rl.core.files.describe_path import not_a
from robo_rl.data.episodes.schema import DATASET_JSON, EPISODES, STAGING, DatasetMeta
from robo_rl.runs.run_dir import POLICIES, SAVED, RunDir

LISTING, CARD = "robo-rl.json", "README.md"
FORMAT = 1
KINDS = {
    "dataset": DATASET_JSON,
    "bundle": MANIFEST,
    "run": "run.json",
    "policy": POLICY_FILE,
}  # file of each
WITHOUT_POLICY = {  # verb whose run holds no policy -> what to push instead
    "mission": "Push the run whose policy flew: that of run=, or the folder tracker in it.",
    "pretrain": "Push the run of a policy that was trained with its encoder.",
}
# Files that hold data and no code: reading them neither unpickles nor executes anything.
SAFE_SUFFIXES = frozenset({
    ".c", ".csv", ".h", ".jpg", ".json", ".jsonl", ".mp4", ".onnx", ".png", ".safetensors", ".svg", ".txt",
    ".webp", ".yaml", ".yml",
})  # fmt: skip
_CHUNK = re.compile(r"c(\.\d+)*")  # chunk of a zarr array
_NOT_SENT = frozenset({"checkpoints", "tb", "wandb", "episodes", CARD, LISTING, "logger.json"})  # of policies
LARGEST_FILE_BYTES = 2**63
MOST_FILES = 100_000  # what the Hub recommends at most; bounds the memory and time of a foreign listing


@dataclass(frozen=True)
class HubContents:
    """Files of one push, with sizes and checksums."""

    kind: str  # key of KINDS
    files: dict[str, dict[str, Any]]  # path -> {"sha256", "bytes"}

    @property
    def repo_type(self) -> str:
        """Type of the repository, in the Hub's words."""
        return "dataset" if self.kind == "dataset" else "model"

    @property
    def bytes(self) -> int:
        return sum(entry["bytes"] for entry in self.files.values())

    def to_json(self) -> dict[str, Any]:
        return {"format": FORMAT, "kind": self.kind, "files": self.files}

    @classmethod
    def from_json(cls, data: Any, source: str) -> HubContents:
        """Listing of a repository. Raises DataError if it is malformed or names unsafe files."""
        try:
            kind, files = data["kind"], dict(data["files"])
            known = data["format"] == FORMAT and kind in KINDS
            for path, entry in files.items():
                known &= isinstance(path, str) and re.fullmatch(r"[0-9a-f]{64}", entry["sha256"]) is not None
                known &= isinstance(entry["bytes"], int) and 0 <= entry["bytes"] < LARGEST_FILE_BYTES
        except (KeyError, TypeError, ValueError, AttributeError):
            known = False
        if known and len(files) > MOST_FILES:
            raise DataError(
                f"{source} lists {len(files)} files, more than the {MOST_FILES} that are downloaded. Ask its "
                "owner to push it in parts."
            )
        if not known:
            raise DataError(
                f"{LISTING} of {source} cannot be parsed. It was damaged, or written by a newer robo-rl: "
                "push it again, or update robo-rl."
            )
        for path in files:
            if not is_safe(path):
                raise DataError(
                    f"{source} lists the file '{path[:100]}', which is refused: only relative paths with the "
                    f"types {' '.join(sorted(SAFE_SUFFIXES))} are accepted. Ask its owner."
                )
        if KINDS[kind] not in files:
            raise DataError(f"{source} is listed as a {kind} but holds no {KINDS[kind]}. Push it again.")
        return cls(kind, files)


def kind_of(folder: Path) -> str:
    """Key of KINDS. Raises DataError for a folder of none of these kinds, or an unfinished run."""
    kind = next((kind for kind, mark in KINDS.items() if (folder / mark).is_file()), None)
    if kind is None:
        raise DataError(
            f"{not_a(folder, 'a run, a policy folder, a bundle or a dataset')} Give the folder that a verb "
            "of robo-rl wrote."
        )
    if kind == "run" and not (folder / "policy" / POLICY_FILE).is_file():
        if (verb := RunDir.open(folder).info().get("verb")) in WITHOUT_POLICY:
            raise DataError(
                f"{folder} is a run of `robo-rl {verb}`, which holds no policy. {WITHOUT_POLICY[verb]}"
            )
        raise DataError(
            f"{folder} is a run without a policy, because it was stopped before its end, has failed or is "
            "still running. Continue a stopped one by the command that started it and resume=true, then push "
            "it."
        )
    return kind


def contents_of(folder: Path) -> HubContents:
    """Files of `folder` that a push sends, after a check that they can be read."""
    kind = kind_of(folder)
    check_kind(kind, folder)
    paths = sorted(_paths(kind, folder))
    if len(paths) > MOST_FILES:
        way = "Remove files that do not belong to it."
        if kind == "dataset":
            way = (
                f"Write it with fewer files by `robo-rl data export path={folder} format=lerobot out=...`, "
                "and upload that by `hf upload`."
            )
        raise DataError(
            f"{folder} has {len(paths)} files, more than the {MOST_FILES} that a repository may hold. {way}"
        )
    files = {
        path: {"sha256": sha256_of(folder / path), "bytes": (folder / path).stat().st_size} for path in paths
    }
    return HubContents(kind, files)


def check_kind(kind: str, folder: Path) -> None:
    """Raise the reader's error if a bundle or a dataset cannot be read."""
    if kind == "bundle":
        load_bundle(folder)
    if kind == "dataset":
        DatasetMeta.load(folder)


def complete(kind: str, folder: Path) -> None:
    """Create what the Hub does not store: the empty staging folder of a dataset."""
    if kind == "dataset":
        (folder / STAGING).mkdir(exist_ok=True)


def is_safe(path: str) -> bool:
    """True for a relative path without hidden parts, to a file of a known type."""
    parts = path.split("/")
    if path == SAVED:
        return True
    if any(
        part in ("", "..") or part.startswith(".") or "\\" in part or not part.isprintable() for part in parts
    ):
        return False
    chunk = parts[0] == EPISODES and _CHUNK.fullmatch(parts[-1]) is not None
    return chunk or PurePosixPath(path).suffix in SAFE_SUFFIXES


def _paths(kind: str, folder: Path) -> Iterator[str]:
    if kind == "dataset":
        yield DATASET_JSON
        yield from _below(folder, folder / EPISODES)
        return
    if kind == "run" and (folder / SAVED).exists():
        yield SAVED  # so that resume=true reports missing checkpoints instead of starting anew
    yield from (path for path in _below(folder, folder) if _is_sent(path))


def _is_sent(path: str) -> bool:
    """False for what a run holds beside its policies, at any depth. A robot's policy may have any name: it is
    that of its dataset.
    """
    parts = path.split("/")
    return not _NOT_SENT & set(parts[2:] if parts[0] == POLICIES else parts)


def _below(folder: Path, path: Path) -> Iterator[str]:
    """Safe files at or below `path`, relative to `folder`. Links are left out: they may lead anywhere."""
    for each in [path] if path.is_file() else sorted(path.rglob("*")):
        name = each.relative_to(folder).as_posix()
        if each.is_file() and not each.is_symlink() and name != SAVED and is_safe(name):
            yield name
