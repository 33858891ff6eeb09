"""The Hugging Face Hub: create, commit and download, with its errors turned into sentences.

`huggingface_hub` finds the token (HF_TOKEN, or `hf auth login`) and the server (HF_ENDPOINT).
"""

from __future__ import annotations

import glob
import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from robo_rl.apps.hub.contents import CARD, LISTING, HubContents
from robo_rl.core.errors import ConfigError, DataError, MissingDependencyError, RoboRLError
from robo_rl.core.packages import install_command

ENDPOINT = "https://huggingface.co"
_NEW = frozenset({".gitattributes"})  # content of a new repository


class HubRepo:
    """One repository. repo_type: "model" or "dataset"."""

    def __init__(self, name: str, repo_type: str) -> None:
        if name.count("/") != 1 or not all(name.split("/")):
            raise ConfigError(f"repo={name} is no repository, expected <user or organisation>/<name>.")
        os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")  # read when the package is imported
        try:
            from huggingface_hub import HfApi
        except ModuleNotFoundError as error:
            raise MissingDependencyError(
                f"The Hub needs the package 'huggingface_hub', which is not installed. "
                f"Run: {install_command('huggingface_hub', None)}"
            ) from error
        self.name, self.repo_type = name, repo_type
        self.endpoint = os.environ.get("HF_ENDPOINT", ENDPOINT).rstrip("/")
        self._api: Any = HfApi(endpoint=self.endpoint, library_name="robo-rl")

    def prepare(self, *, private: bool, overwrite: bool) -> tuple[set[str], bool]:
        """Create the repository if it does not exist. Returns its files, which the next commit replaces, and
        whether it is private.

        Raises ConfigError for files that may not be replaced, and if the repository is public but must be
        private.
        """
        with self._explained("push to"):
            self._api.create_repo(self.name, repo_type=self.repo_type, private=private, exist_ok=True)
            found = self._api.repo_info(self.name, repo_type=self.repo_type)
        there = {each.rfilename for each in found.siblings or ()} - _NEW
        if there and LISTING not in there:
            raise ConfigError(
                f"{self.name} holds files that robo-rl did not push. It was not changed; choose another "
                "repository."
            )
        if there and not overwrite:
            raise ConfigError(
                f"{self.name} already holds an earlier push. Add overwrite=true to replace it; its history "
                "keeps the old files. Or choose another repository."
            )
        if private and not found.private:
            raise ConfigError(
                f"{self.name} is public: everybody could read what is pushed. Allow it by private=false, or "
                "make the repository private first."
            )
        return there, bool(found.private)

    def commit(self, contents: HubContents, folder: Path, card: str, old: set[str], message: str) -> str:
        """Write all files in one commit, which also deletes the other files of `old`. Returns the commit's
        address.
        """
        from huggingface_hub import CommitOperationAdd, CommitOperationDelete

        texts = {CARD: card, LISTING: json.dumps(contents.to_json(), indent=1, sort_keys=True)}
        operations: list[Any] = [CommitOperationAdd(name, text.encode()) for name, text in texts.items()]
        operations += [CommitOperationAdd(path, str(folder / path)) for path in contents.files]
        operations += [
            CommitOperationDelete(path) for path in sorted(old - contents.files.keys() - texts.keys())
        ]
        with self._explained("push to"):
            done = self._api.create_commit(
                self.name, operations, commit_message=message, repo_type=self.repo_type
            )
        return str(done.commit_url)

    def listing(self, revision: str) -> tuple[str, HubContents]:
        """Commit that `revision` names, and its listing."""
        with self._explained("pull from"):
            info = self._api.repo_info(self.name, repo_type=self.repo_type, revision=revision)
        source = f"{self.name} ({info.sha[:8]})"
        if LISTING not in {each.rfilename for each in info.siblings or ()}:
            raise DataError(
                f"{source} holds no {LISTING}, so `robo-rl push` did not write it. Only its repositories can "
                "be pulled."
            )
        with self._explained("pull from"), tempfile.TemporaryDirectory() as folder:
            path = self._api.hf_hub_download(
                self.name, LISTING, repo_type=self.repo_type, revision=info.sha, local_dir=folder
            )
            text = Path(path).read_bytes()
        try:
            data = json.loads(text)
        except (ValueError, RecursionError):  # not JSON, or nested too deep
            data = None
        return str(info.sha), HubContents.from_json(data, source)

    def download(self, contents: HubContents, commit: str, folder: Path) -> None:
        """Download the listed files of a commit, and no others, into `folder`."""
        with self._explained("pull from"):
            self._api.snapshot_download(
                self.name,
                repo_type=self.repo_type,
                revision=commit,
                local_dir=folder,
                allow_patterns=[glob.escape(path) for path in contents.files],
            )

    @contextmanager
    def _explained(self, doing: str) -> Iterator[None]:
        """Turn the Hub's errors and a missing network into sentences."""
        from huggingface_hub.errors import HfHubHTTPError, HFValidationError, OfflineModeIsEnabled

        try:
            yield
        except RoboRLError:
            raise
        except HFValidationError as error:  # a ValueError, raised before any transfer
            raise ConfigError(
                f"repo={self.name} is no valid name of a repository: {' '.join(str(error).split())} Choose "
                "another name."
            ) from error
        except OfflineModeIsEnabled as error:
            raise ConfigError(
                "HF_HUB_OFFLINE is set, so the Hub cannot be used. Unset it to push or pull."
            ) from error
        except HfHubHTTPError as error:
            status = getattr(error.response, "status_code", 0)
            raise ConfigError(f"Cannot {doing} {self.name}: {_reason(status, error)}") from error
        except (OSError, ValueError, RuntimeError) as error:
            raise DataError(
                f"Cannot {doing} {self.name}: the transfer from or to {self.endpoint} failed "
                f"({_short(error)}). Check the network and give the command again."
            ) from error
        except Exception as error:
            if type(error).__module__.partition(".")[0] not in ("httpx", "httpx2", "httpcore", "hf_xet"):
                raise
            raise DataError(
                f"Cannot {doing} {self.name}: {self.endpoint} does not answer ({_short(error)}). Check the "
                "network and give the command again."
            ) from error


def _reason(status: int, error: Exception) -> str:
    if status == 401:
        return (
            "the Hub does not know your token (401), or the repository is private or does not exist. Log in "
            "by `hf auth login`, or set HF_TOKEN."
        )
    if status == 403:
        return "your token may not do that (403). Make one that can write to it, on the Hub's page of tokens."
    if status == 404:
        return (
            "no such repository or revision, or your token may not see it (404). Check repo=, kind= and "
            "revision=."
        )
    return f"the Hub answered with an error ({status}: {_short(error)}). Try again later."


def _short(error: Exception) -> str:
    cause = error.__cause__ or error  # the client's own sentence does not state the cause
    return f"{type(cause).__name__}: {' '.join(str(cause).split())[:200]}"
