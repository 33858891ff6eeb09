"""`pytest -p tests.shapes`: every call in our packages is checked against its annotations, including tensor
shapes.

A small policy step then takes twice as long and cannot be compiled, so this is a second run of the pure
parts' tests, by `make shapes`. An int is accepted as a float, as in mypy (PEP 484).
"""

from __future__ import annotations

from typing import Any

from beartype import BeartypeConf, beartype
from jaxtyping import install_import_hook

PACKAGES = ("robo_rl", "policies", "sim", "hardware")
checked: Any = beartype(conf=BeartypeConf(is_pep484_tower=True))

install_import_hook(PACKAGES, f"{__name__}.checked")
