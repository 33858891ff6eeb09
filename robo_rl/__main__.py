"""`python -m robo_rl` is `robo-rl`."""

import sys

from robo_rl.apps.cli import main

if __name__ == "__main__":
    sys.exit(main())
