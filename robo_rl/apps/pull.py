"""`robo-rl pull`: download a run, policy, bundle or dataset from the Hugging Face Hub into a new folder.

Files are downloaded into a folder next to `out` and compared with the checksums of their listing. Only a
complete and readable folder is renamed to `out`. An empty folder that exists may be a mount point or the
current folder, which no other can replace: the download is then a folder in it, and its files are moved.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from policies.deploy.bundle import sha256_of
from robo_rl.apps.hub.contents import KINDS, HubContents, check_kind, complete
from robo_rl.apps.hub.remote import HubRepo
from robo_rl.conf.history import PullConfig
from robo_rl.core.errors import ConfigError, DataError
from robo_rl.core.files.durable import fsync_dir
from robo_rl.core.files.lock import LOCK_FILE, FolderLock
from robo_rl.core.text.commands import command
from robo_rl.core.text.counts import counted
from robo_rl.runs.outputs import check_folder

_DRAFT = ".pull"  # end of the name of the folder of a download
_NEXT = {  # verb and its setting
    "run": ("evaluate", "policy"),
    "policy": ("evaluate", "policy"),
    "bundle": ("run", "bundle"),
    "dataset": ("data info", "path"),
}


def main(config: PullConfig) -> int:
    """Download, check and rename; print what was downloaded."""
    out = Path(config.out)
    _check_free(out)
    repo = HubRepo(config.repo, "dataset" if config.kind == "dataset" else "model")
    commit, contents = repo.listing(config.revision)
    exists = out.is_dir()
    draft = out.absolute() / _DRAFT if exists else out.absolute().with_name(f".{out.absolute().name}{_DRAFT}")
    draft.mkdir(parents=True, exist_ok=True)
    with FolderLock(draft, "folder"):  # two pulls into one folder
        try:
            shutil.rmtree(draft / "files", ignore_errors=True)  # from a pull that was killed
            repo.download(contents, commit, draft / "files")
            _check(contents, draft / "files", config.repo)
            _check_free(out)
            if exists:
                _move(draft / "files", out, last=KINDS[contents.kind])
            else:
                (draft / "files").rename(out.absolute())  # `out` is absent, or empty since
                fsync_dir(out.absolute().parent)
        finally:
            (draft / LOCK_FILE).unlink(missing_ok=True)
            shutil.rmtree(draft, ignore_errors=True)
    size = f"{counted(len(contents.files), 'file')}, {contents.bytes / 1e6:.1f} MB"
    print(f"{contents.kind} {config.repo} at {commit[:8]} -> {out} ({size})")
    verb, setting = _NEXT[contents.kind]
    print(f"Next:   {command(verb, **{setting: out})}")
    return 0


def _check_free(out: Path) -> None:
    """Raise ConfigError if `out` exists and is not an empty folder."""
    check_folder("out", str(out))
    holds = out.is_dir() and any(path.name != _DRAFT for path in out.iterdir())
    if out.is_symlink() or out.is_file() or holds:
        raise ConfigError(f"out={out} exists already, and nothing is replaced. Choose a new folder.")


def _move(source: Path, target: Path, last: str) -> None:
    """Move the contents of `source`. last: file by which the kind of folder is known, so that a killed move
    leaves a folder of no kind.
    """
    for path in sorted(source.iterdir(), key=lambda path: path.name == last):
        path.rename(target / path.name)
    fsync_dir(target)


def _check(contents: HubContents, folder: Path, source: str) -> None:
    """Delete files that are not listed, compare checksums, and read the rest as its kind.

    Raises DataError for a file that is missing or differs.
    """
    shutil.rmtree(folder / ".cache", ignore_errors=True)  # metadata of the download
    for file in folder.rglob("*"):
        if not file.is_dir() and file.relative_to(folder).as_posix() not in contents.files:
            file.unlink()
    for path, entry in contents.files.items():
        file = folder / path
        if not file.is_file() or file.is_symlink():
            raise DataError(f"{source} lists {path}, which it does not hold. Its owner has to push it again.")
        if sha256_of(file) != entry["sha256"]:
            raise DataError(
                f"{path} of {source} differs from its checksum: it was changed or truncated. Pull again; if "
                "that does not help, its owner has to push it again."
            )
    complete(contents.kind, folder)
    check_kind(contents.kind, folder)
