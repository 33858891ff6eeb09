"""Changed settings of a resumed run, where a verb refuses one of them for another reason first."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from robo_rl.apps.cli.overrides import with_home
from robo_rl.core.settings import free_keys


def refuse_changed(verb: str, words: Sequence[str], filled: Collection[str], config: Any) -> None:
    """Raise ChangedSettingsError if `config` resumes a run, and typed settings differ from the run's.

    For the error of a verb that checks its settings before it opens the run: the advice of such a check would
    not continue the run. filled: keys that were not typed. Words of the command that started the run are no
    changes, though the run may have resolved them, such as updates=0.
    """
    from robo_rl.core.text.setting_changes import setting_changes
    from robo_rl.runs.run_dir import RunDir

    if not getattr(config, "resume", False):
        return
    run = RunDir(Path(with_home(config.out)))
    if not (run.path / "run.json").is_file():
        return
    first = set(map(str, run.info().get("arguments", ())))
    typed = {word.partition("=")[0] for word in words if word not in first} - set(filled)
    changes = setting_changes(config, run.config(), free_keys(verb))
    if own := [change for change in changes if any(_is_of(change.key, key) for key in typed)]:
        run.refuse(own)


def _is_of(changed: str, typed: str) -> bool:
    """True for the same setting, and for a group and a setting in it."""
    return changed == typed or changed.startswith(f"{typed}.") or typed.startswith(f"{changed}.")
