"""`python -m robo_rl`, the same as `robo-rl`."""

from __future__ import annotations

import sys


def main() -> int:
    """Run the command line; Ctrl-C during its imports is answered by a sentence."""
    try:
        from robo_rl.apps.cli import main as cli
        from robo_rl.apps.cli.warned import print_sentences
    except KeyboardInterrupt:
        print("robo-rl: stopped; nothing was started.", file=sys.stderr)
        return 130
    print_sentences()
    return cli.main()


if __name__ == "__main__":
    sys.exit(main())
