"""One sentence for a file or folder that the system refuses."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from robo_rl.core.errors import DiskFullError, RoboRLError

DISK_FULL = (errno.ENOSPC, errno.EDQUOT)
NOT_ALLOWED = (
    errno.EACCES,
    errno.EPERM,
    errno.EROFS,
    errno.ENOTDIR,
    errno.EISDIR,
    errno.EEXIST,
    errno.ENAMETOOLONG,
    errno.ELOOP,
)


_MOST_LINKS = 40  # that Linux follows
_BY_PERMISSIONS = (errno.EACCES, errno.EPERM)


class PathError(RoboRLError):
    """A path that the system refuses."""

    exit_code = 2


def explained(error: OSError) -> RoboRLError | None:
    """The error as a sentence with a remedy; None for one that is a defect of a program."""
    if error.errno in DISK_FULL:
        where = f" ({error.filename})" if error.filename else ""
        return DiskFullError(f"The disk is full{where}. Free some space.", "Then start again.")
    if not isinstance(error.filename, str | bytes | os.PathLike):  # none, or the number of an open file
        return None
    path = Path(os.fsdecode(error.filename))
    if error.errno in (errno.EEXIST, errno.ENOENT) and (gone := dangling(path)):
        return PathError(f"{gone} Choose another path, or make the folder that the link names.")
    if error.errno in NOT_ALLOWED:
        ways = "Choose a shorter one" if error.errno == errno.ENAMETOOLONG else "Choose another path"
        more = ", or change its permissions" if error.errno in _BY_PERMISSIONS else ""
        return PathError(f"{error.strerror}: {path}. {ways}{more}.")
    return None


def dangling(path: Path) -> str:
    """Sentence on the link in `path` whose target does not exist; empty without one, and for links that lead
    back to themselves.
    """
    link = next((each for each in (path, *path.parents) if each.is_symlink() and not each.exists()), None)
    if link is None:
        return ""
    for _ in range(_MOST_LINKS):
        if not (target := link.parent / os.readlink(link)).is_symlink():
            return f"{link} is a link to {os.readlink(link)}, which does not exist."
        link = target  # a link to a link: the last one is to be mended
    return ""
