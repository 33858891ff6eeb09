"""Improve an imitated base by steering: an actor chooses the noise from which the base makes its actions.

    PYTHONPATH=examples python examples/steering.py

The base's weights stay as they are. It is `base_and_residual.py` with another method.
"""

from __future__ import annotations

from pathlib import Path

from base_and_residual import main

if __name__ == "__main__":
    main(Path("runs/examples/steering"), method="steering")
