"""The secret that a policy server and its clients share, and the proofs of knowing it.

The token itself never crosses the connection: each side sends a random number and answers the other's with
an HMAC, so that a robot also knows that the server is its own. The frames after that are not encrypted.
"""

from __future__ import annotations

import hmac
import os
import re
import secrets
from pathlib import Path
from typing import TypeGuard

from robo_rl.core.errors import ConfigError, DataError
from robo_rl.core.files.durable import read_regular

VARIABLE = "ROBO_RL_TOKEN"  # environment variable that holds the token itself
LEAST, MOST = 16, 512  # characters
_NONCE = re.compile(r"[0-9a-f]{1,64}")


def read_token(file: str | Path | None) -> str | None:
    """Token of the file, or of the environment variable without a file; None without both."""
    if file is None:
        value, source = os.environ.get(VARIABLE, "").strip(), f"The environment variable {VARIABLE}"
        return _checked(value, source) if value else None
    try:
        value = read_regular(Path(file)).strip()
    except (OSError, UnicodeDecodeError, DataError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise ConfigError(
            f"The token cannot be read from {file} ({reason}). Give the file that robo-rl serve or robo-rl "
            "record has made by token=<new file>."
        ) from error
    return _checked(value, str(file))


def make_token(file: str | Path) -> str:
    """A new token in a new file that only its owner can read. Raises ConfigError without its folder."""
    check_token_folder(file)
    token = secrets.token_hex(32)
    with open(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as written:
        written.write(token + "\n")
    return token


def check_token_folder(file: str | Path) -> None:
    """Raise ConfigError without the folder of a token's new file."""
    if not (folder := Path(file).absolute().parent).is_dir():
        raise ConfigError(
            f"The token's file {file} cannot be made: the folder {folder} does not exist. Make it, or give "
            "token=<file> in another one."
        )


def nonce() -> str:
    """A random number for one connection."""
    return secrets.token_hex(16)


def is_nonce(value: object) -> TypeGuard[str]:
    """True for what the peer's `nonce` may have made: 1 to 64 hexadecimal digits."""
    return isinstance(value, str) and _NONCE.fullmatch(value) is not None


def proof(token: str, side: str, first: str, second: str) -> str:
    """Proof of knowing the token. side: "client" or "server". first, second: numbers of server and client."""
    return hmac.new(token.encode(), f"robo-rl {side} {first} {second}".encode(), "sha256").hexdigest()


def proves(given: object, token: str, side: str, first: str, second: str) -> bool:
    """True for the right proof; takes the same time for all wrong ones."""
    return isinstance(given, str) and hmac.compare_digest(
        given.encode(errors="replace"), proof(token, side, first, second).encode()
    )


def _checked(token: str, source: str) -> str:
    if not LEAST <= len(token) <= MOST or not (token.isascii() and token.isprintable()):
        raise ConfigError(
            f"{source} holds no token: {LEAST} to {MOST} printable ASCII characters were expected. "
            "robo-rl serve and robo-rl record make one by token=<new file>."
        )
    return token
