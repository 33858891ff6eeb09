"""One sentence for a file or folder that the system refuses."""

from __future__ import annotations

import errno

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


class PathError(RoboRLError):
    """A path that the system refuses."""

    exit_code = 2


def explained(error: OSError) -> RoboRLError | None:
    """The error as a sentence with a remedy; None for one that is a defect of a program."""
    if error.errno in DISK_FULL:
        where = f" ({error.filename})" if error.filename else ""
        return DiskFullError(f"The disk is full{where}. Free some space and start again.")
    if error.errno in NOT_ALLOWED and error.filename is not None:
        return PathError(
            f"{error.strerror}: {error.filename}. Choose another path, or change its permissions."
        )
    return None
