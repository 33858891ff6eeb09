"""Bundles with a changed manifest: refused with a sentence, or all values are in range."""

from __future__ import annotations

import copy
import json
import math
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hardware.checks.flight_contract import check_link
from hardware.quads.link import QuadLink
from policies.deploy.bundle import Bundle, load_bundle
from robo_rl.core.errors import CheckpointError, ConfigError
from robo_rl.core.flight.envelope import FlightEnvelope
from tests.hardware.bundles import ENVELOPE, rates_bundle

NUMBERS = (math.nan, math.inf, -math.inf, 1e308, -1.0, 0.0, 1e-310, 10**400)
WRONG = st.sampled_from([*NUMBERS, "abc", "1", None, True, [], {}, [1.0], {"a": 1}, -5, 4.0, 2**63])


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    return rates_bundle(tmp_path_factory.mktemp("bundle") / "pd")


def places(value: Any, prefix: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [place for key, item in items for place in ((*prefix, key), *places(item, (*prefix, key)))]


def put(manifest: dict[str, Any], place: tuple[Any, ...], value: Any) -> dict[str, Any]:
    changed = copy.deepcopy(manifest)
    inner = changed
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = value
    return changed


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_changed_manifest_is_valid_or_refused(bundle: Bundle, data: st.DataObject) -> None:
    """A bundle that loads after one change has valid limits; any other is refused with a reason."""
    place = data.draw(st.sampled_from(places(bundle.manifest)))
    path = bundle.folder / "manifest.json"
    path.write_text(json.dumps(put(bundle.manifest, place, data.draw(WRONG))))
    try:
        loaded = load_bundle(bundle.folder)
        check_link(loaded, QuadLink("crazyflie", 100.0, 1.0))
    except CheckpointError:
        return
    finally:
        path.write_text(json.dumps(bundle.manifest))
    assert loaded.envelope is not None
    assert loaded.envelope.tilt_rad <= loaded.envelope.cut_tilt_rad <= math.pi + 1e-5
    assert all(math.isfinite(x) for x in (*loaded.envelope.fence_low_m, *loaded.envelope.fence_high_m))
    assert loaded.envelope.cut_height_m <= 0.3
    assert 0.1 <= loaded.env.control_hz <= 1e5


@pytest.mark.parametrize(
    ("key", "value"),
    [
        *[("tilt_rad", value) for value in (4.0, *NUMBERS, "abc", None, True)],
        *[("rate_rad_s", value) for value in (1e308, math.inf, "1")],
        *[("speed_m_s", value) for value in (1e308, math.nan)],
        *[("cut_height_m", value) for value in (50.0, 0.5, -0.1, math.inf)],
        *[("descend_m_s", value) for value in (0.0, 1e-6, 50.0)],
        *[("cut_tilt_rad", value) for value in (0.1, 4.0, math.inf)],
        *[
            ("fence_low_m", value)
            for value in (-math.inf, "abc", [-math.inf, -1.0, -1.0], [-1.0, -1.0], ["a", -1, -1])
        ],
        *[
            ("fence_high_m", value)
            for value in ([math.inf, 1.0, 1.0], [1e9, 1.0, 1.0], [-5.0, 1.0, 1.0], 3.0)
        ],
    ],
)
def test_an_envelope_limits(key: str, value: Any) -> None:
    """A tilt of 4 rad is impossible, and motors that stop below 50 m stop in the air."""
    with pytest.raises(ConfigError, match=r"flight envelope|geofence|cut_tilt_rad"):
        FlightEnvelope.from_json(json.loads(json.dumps(ENVELOPE.to_json() | {key: value})))
