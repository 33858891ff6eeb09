"""Parts of the MuJoCo Warp engine that work without MuJoCo Warp: buffer sizes, and its absence."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from importlib import import_module
from itertools import combinations

import mujoco
import numpy as np
import pytest

from robo_rl.core.errors import EnvError, MissingDependencyError
from sim.engines.mjwarp.buffer_sizes import BufferSizes, buffer_sizes, check_fits, size_bytes

SLIDERS = """<mujoco><option cone="{cone}"/><worldbody>
<geom type="plane" size="1 1 1" condim="1"/>
<body><freejoint/><geom type="box" size=".1 .1 .1"/></body>
<body><joint type="slide" range="0 1" limited="true" frictionloss="{loss}"/>
<geom type="sphere" size=".1" condim="4"/></body>
</worldbody></mujoco>"""


@pytest.mark.parametrize(
    ("cone", "loss", "rows"), [("pyramidal", 0, 16 + 6 + 6 + 1), ("elliptic", 1, 12 + 4 + 4 + 2)]
)
def test_every_pair_may_touch_at_once(cone: str, loss: int, rows: int) -> None:
    """Box on plane: 4 contacts of dimension 3, in a pyramid 4 rows each; sphere with either: one, 6 rows."""
    model = mujoco.MjModel.from_xml_string(SLIDERS.format(cone=cone, loss=loss))
    assert buffer_sizes(model, np.array([[0, 1], [0, 2], [1, 2]])) == BufferSizes(contacts=6, rows=rows)


def test_a_crowd_is_not_taken_to_touch_all_at_once() -> None:
    """100 grains make 4,950 pairs, but each touches few others; users can set the size."""
    grains = "".join(f"<body pos='{i} 0 1'><freejoint/><geom size='.01'/></body>" for i in range(100))
    model = mujoco.MjModel.from_xml_string(f"<mujoco><worldbody>{grains}</worldbody></mujoco>")
    pairs = np.array(list(combinations(range(100), 2)))
    assert buffer_sizes(model, pairs) == BufferSizes(contacts=800, rows=3200)
    assert buffer_sizes(model, pairs, contacts=50) == BufferSizes(contacts=50, rows=200)
    assert buffer_sizes(model, pairs[:0]) == BufferSizes(contacts=1, rows=1)


def test_full_gpu_error_states_how_many_worlds_fit() -> None:
    """10 GiB, 4 MiB a world: 0.9 * 2560 worlds."""
    check_fits(2500, 4.0 * 2**20, 10 * 2**30)
    with pytest.raises(EnvError, match=r"4096 environments need about 16\.0 GiB.*num_envs=2304 or less"):
        check_fits(4096, 4.0 * 2**20, 10 * 2**30)


def test_memory_is_counted_through_nested_parts() -> None:
    """As in MuJoCo Warp's data: arrays, numbers, and contacts with arrays of their own."""

    @dataclass
    class Contact:
        dist: object
        pos: object

    @dataclass
    class Data:
        qpos: object
        nworld: int
        contact: Contact

    def array(size: int) -> object:
        return type("array", (), {"capacity": size})()

    assert size_bytes(Data(array(8), 4, Contact(array(16), array(1)))) == 25


@pytest.mark.parametrize("package", ["mujoco_warp", "warp"])
def test_missing_package_is_named_with_its_command(monkeypatch: pytest.MonkeyPatch, package: str) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    if package == "warp":
        monkeypatch.delitem(sys.modules, "mujoco_warp", raising=False)
        monkeypatch.setitem(sys.modules, "mujoco_warp", type(sys)("mujoco_warp"))
    monkeypatch.delitem(sys.modules, "sim.engines.mjwarp.engine", raising=False)
    with pytest.raises(MissingDependencyError, match=rf"'{package}'.*pip install 'robo-rl\[gpu\]'"):
        import_module("sim.engines.mjwarp.engine")
