"""`robo-rl push`: a run, policy, bundle or dataset to the Hugging Face Hub, in one commit."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

from robo_rl.apps.hub.card import card
from robo_rl.apps.hub.contents import contents_of, kind_of
from robo_rl.apps.hub.remote import HubRepo
from robo_rl.conf.history import PushConfig
from robo_rl.core.files.lock import FolderLock
from robo_rl.core.text.counts import counted


def main(config: PushConfig) -> int:
    """Push the folder and print its address."""
    folder = Path(config.path)
    written = kind_of(folder) in ("run", "dataset")
    with FolderLock(folder, "folder") if written else nullcontext():  # no other process writes it meanwhile
        _push(config, folder)
    return 0


def _push(config: PushConfig, folder: Path) -> None:
    contents = contents_of(folder)
    repo = HubRepo(config.repo, contents.repo_type)
    text = card(contents, folder, config.repo)
    old, private = repo.prepare(private=config.private, overwrite=config.overwrite)
    message = config.message or f"Push {contents.kind} {folder.resolve().name}"
    address = repo.commit(contents, folder, text, old, message)
    size = f"{counted(len(contents.files), 'file')}, {contents.bytes / 1e6:.1f} MB"
    print(f"{contents.kind} {folder} -> {address} ({size})")
    if private and not config.private:
        print(
            f"{config.repo} is still private: private=false is for new repositories. Publish it on its page."
        )
    kind = " kind=dataset" if contents.kind == "dataset" else ""
    print(f"Next:   robo-rl pull repo={config.repo}{kind} out=...")
