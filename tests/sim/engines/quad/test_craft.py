"""Craft files: impossible values are refused, with the key and the valid range."""

from __future__ import annotations

import re
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

import pytest
import yaml

from robo_rl.core.errors import ConfigError
from sim.engines.quad.craft import FOLDER, Craft, list_crafts, load_craft
from sim.engines.quad.layout import Spread, even_spread

ROW = re.compile(r"^\| `(\w+)` \| (yes|no) \|", re.MULTILINE)
DATA: dict[str, Any] = yaml.safe_load((FOLDER / "cf21.yaml").read_text())


def _file(folder: Path, data: dict[str, Any]) -> str:
    path = folder / "mine.yaml"
    path.write_text(yaml.safe_dump(data))
    return str(path)


@pytest.mark.parametrize("name", list_crafts())
def test_every_craft_that_comes_with_it_can_be_copied_and_flown(name: str, tmp_path: Path) -> None:
    copied = load_craft(_file(tmp_path, yaml.safe_load((FOLDER / f"{name}.yaml").read_text())))
    assert copied.to_json() == load_craft(name).to_json() | {"name": "mine"}


def test_the_page_names_every_key_of_a_craft_file() -> None:
    """docs/flight.md: the keys in the order of the dataclass, and which of them are needed."""
    page = (Path(__file__).parents[4] / "docs" / "flight.md").read_text()
    section = page.split("### A craft of your own")[1].split("\n## ")[0]
    keys = {item.name: "yes" if item.default is MISSING else "no" for item in fields(Craft)}
    del keys["name"]
    assert ROW.findall(section) == list(keys.items())


@pytest.mark.wrong_types
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"mass_kg": -0.03}, r"mass_kg = -0.03 of craft 'mine' is impossible"),
        ({"mass_kg": "heavy"}, r"mass_kg = 'heavy', expected finite numbers"),
        ({"mass_kg": float("nan")}, r"mass_kg = nan, expected finite numbers"),
        ({"mass_kg": [0.03]}, r"mass_kg = \[0.03\], expected a number"),
        ({"inertia_kg_m2": 1e-5}, r"inertia_kg_m2 = 1e-05, expected a list"),
        ({"inertia_kg_m2": [1e-5, 1e-5]}, r"inertia_kg_m2 of craft 'mine' has 2 values, expected 3"),
        ({"rotors_m": [1.0, 2.0, 3.0, 4.0]}, r"rotors_m = .*, expected a list of \[x, y\]"),
        ({"linear_drag_n_s_m": [-0.01, 0.0]}, r"linear_drag_n_s_m\[0\] = -0.01 .* must not be below 0"),
        ({"mass_kgg": 0.03}, r"it has no 'mass_kgg'; did you mean 'mass_kg'\?"),
        ({"mass_kg": 5.0}, r"cannot take off"),
        ({"rotors_m": [[0.0, 0.0]] * 4}, r"craft 'mine' cannot give three torques: check rotors_m"),
        ({"rotors_m": [[0.03 * i, 0.02 * i] for i in range(4)]}, r"cannot give three torques"),
        ({"rotors_m": [[0.09, -0.03], [0.03, -0.03], [0.03, 0.03], [0.09, 0.03]]}, r"surround its centre"),
        ({"yaw_sign": [1, 1, 1, 1]}, r"cannot give three torques: check rotors_m and yaw_sign"),
        ({"yaw_sign": [-2, 2, -2, 2]}, r"yaw_sign = \(-2.0, 2.0, .* each must be \+1 or -1"),
    ],
)
def test_impossible_values_are_refused(changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=message):
        load_craft(_file(tmp_path, DATA | changes))


def test_missing_keys_are_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"mine.yaml does not describe a craft: it lacks mass_kg, rise_s"):
        load_craft(
            _file(tmp_path, {key: value for key, value in DATA.items() if key not in ("mass_kg", "rise_s")})
        )
    with pytest.raises(ConfigError, match=r"nowhere.yaml does not exist"):
        load_craft(str(tmp_path / "nowhere.yaml"))


@pytest.mark.parametrize(
    ("width", "message"),
    [
        (1.0, r"randomize=1 .* mass_kg = 0.027 .* down to 0, .* less than 1"),
        (1.5, r"randomize=1.5 .* down to -0.0135"),
        (float("nan"), r"randomize=nan .* less than 1"),
        (0.5, r"randomize=0.5 .* 0.75 times its weight, .* less than 0.38"),
    ],
)
def test_no_randomised_craft_is_impossible(width: float, message: str) -> None:
    """A mass that may vanish, or a thrust to weight of 2.248 (1 - w) / (1 + w) below 1, is refused with its
    bound.
    """
    craft = load_craft("cf2x_l2f")
    with pytest.raises(ConfigError, match=message):
        even_spread(width, craft)
    assert even_spread(0.0, craft) is None
    assert even_spread(0.38, craft) == Spread(0.38, 0.38, 0.38, 0.38, 0.38)
