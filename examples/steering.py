"""Improve an imitated base by steering: an actor chooses the noise from which the base samples its actions.

    PYTHONPATH=examples python examples/steering.py

The base's weights do not change. Apart from the method, this equals `base_and_residual.py`.
"""

from __future__ import annotations

from pathlib import Path

from base_and_residual import main

if __name__ == "__main__":
    main(Path("runs/examples/steering"), method="steering")
