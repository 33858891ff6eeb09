"""`python -m robo_rl` is `robo-rl`."""

from __future__ import annotations

import sys


def main() -> int:
    """Ctrl-C is answered in a sentence from here on: the command line takes a moment to import."""
    try:
        from robo_rl.apps.cli import main as cli
    except KeyboardInterrupt:
        print("robo-rl: stopped; nothing was begun.", file=sys.stderr)
        return 130
    return cli.main()


if __name__ == "__main__":
    sys.exit(main())
