from __future__ import annotations

import os
import subprocess
import sys

import mujoco
import numpy as np
import pytest
import torch

from robo_rl.core.errors import ConfigError, MissingDependencyError
from robo_rl.core.seeding import EpisodeSeeds
from sim.adapters.metaworld import MetaWorldLanes
from sim.registry import make_env
from sim.render import gl
from sim.render.renderer import MujocoRenderer


def opengl_works() -> bool:
    try:
        gl.make_context(64, 64).free()
    except MissingDependencyError:
        return False
    return True


needs_opengl = pytest.mark.skipif(
    not opengl_works(), reason="no OpenGL: apt-get install libegl1 libgl1-mesa-dri"
)


@needs_opengl
def test_metaworld_image_is_upright() -> None:
    """The package mounts camera corner2 upside down. The far wall is plain, table and floor are not: the wall
    is on top.
    """
    lane = MetaWorldLanes("peg-insert-side-v3", render_size=96)()
    lane.reset(0)
    picture = lane.render().astype(float)
    assert picture.shape == (96, 96, 3)
    assert picture[:15].std(axis=(0, 1)).max() < 3.0
    assert picture[-15:].std(axis=(0, 1)).min() > 20.0
    lane.close()


@needs_opengl
def test_fewer_facets_for_small_images_do_not_change_the_model() -> None:
    """The same scene drawn large and scaled down: facets are invisible, and a viewer's model is unchanged."""
    model = mujoco.MjModel.from_xml_string(
        "<mujoco><worldbody><light pos='0 0 3'/><geom type='capsule' size='0.2 0.3'/>"
        "<camera name='c' pos='0 -2 0' xyaxes='1 0 0 0 0 1'/></worldbody></mujoco>"
    )
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    visual = model.vis
    before = (
        visual.quality.numslices,
        visual.quality.offsamples,
        visual.global_.offwidth,
        visual.global_.offheight,
    )
    small, large = (MujocoRenderer(model, data, side, side, "c") for side in (96, 192))
    after = (
        visual.quality.numslices,
        visual.quality.offsamples,
        visual.global_.offwidth,
        visual.global_.offheight,
    )
    assert after == before
    shrunk = large.render().reshape(96, 2, 96, 2, 3).mean((1, 3))
    assert np.abs(small.render() - shrunk).mean() < 3.0
    assert shrunk.std() > 10.0
    small.close()
    large.close()


@needs_opengl
def test_downward_camera_is_not_flipped() -> None:
    """Its up axis is level: a tiny tilt to either side changes no image, and depths stay at their points."""
    xml = """<mujoco><worldbody><geom type="plane" size="2 2 0.1" rgba="0.2 0.2 0.2 1"/>
    <geom type="box" size="0.1 0.1 0.1" pos="0.3 0.4 0.1" rgba="1 0 0 1"/>
    <body><joint axis="1 0 0"/><geom size="0.01" pos="0 0 3"/><camera name="down" pos="0 0 2"/></body>
    </worldbody></mujoco>"""
    model = mujoco.MjModel.from_xml_string(xml)
    data = mujoco.MjData(model)
    renderer = MujocoRenderer(model, data, 64, 64, "down")
    near = []
    for lean_rad in (1e-4, -1e-4):
        data.qpos[0] = lean_rad
        mujoco.mj_forward(model, data)
        depth_m = renderer.depth_m()
        near.append(depth_m < 1.9)
        rows, columns = near[-1].nonzero()
        assert rows.mean() < 32 < columns.mean()  # the box stands to the right and ahead
        assert np.array_equal(near[-1], renderer.render()[..., 0] > renderer.render()[..., 1] + 20)
    assert np.array_equal(*near)
    renderer.close()


@needs_opengl
def test_rendering_does_not_change_the_episode() -> None:
    """Recording a video must not change what happens in it."""
    runs = []
    for looks in (False, True):
        env = make_env("gym/Hopper-v5", 1, render_size=48)
        env.reset(EpisodeSeeds("video"))
        states = []
        for _ in range(5):
            states.append(env.step(torch.full((1, 3), 0.3))[0]["state"])
            if looks:
                assert env.render().shape == (48, 48, 3)
        env.close()
        runs.append(torch.stack(states))
    torch.testing.assert_close(runs[0], runs[1], rtol=0, atol=0)


def test_pusht_needs_no_opengl() -> None:
    """Its pictures are drawn by pygame."""
    env = make_env("pusht/state", 1, render_size=128)
    env.reset(EpisodeSeeds("picture"))
    assert env.render().shape == (128, 128, 3)
    assert env.render().float().std() > 10


def test_missing_opengl_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """MuJoCo's own error names neither the package nor a remedy; training continues without images."""
    for name in ("MUJOCO_GL", "DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(gl, "_egl_works", lambda: False)
    monkeypatch.setattr(gl, "_osmesa_works", lambda: False)
    gl.backend.cache_clear()
    try:
        env = make_env("metaworld/reach-v3", 1)
        env.reset(EpisodeSeeds("dark"))
        with pytest.raises(MissingDependencyError, match="apt-get install libegl1"):
            env.render()
        env.step(torch.zeros(1, 4))
    finally:
        gl.backend.cache_clear()


def test_the_choice_of_the_user_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """MUJOCO_GL is what MuJoCo users know."""
    gl.backend.cache_clear()
    monkeypatch.setenv("MUJOCO_GL", "OSMesa")
    try:
        assert gl.backend() == "osmesa"
        gl.backend.cache_clear()
        monkeypatch.setenv("MUJOCO_GL", "vulkan")
        with pytest.raises(ConfigError, match="egl, osmesa, glfw"):
            gl.backend()
    finally:
        gl.backend.cache_clear()


def test_an_unknown_backend_is_refused_before_mujoco_is_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    """MuJoCo's import fails on it, in a worker with an end of file as the only message."""
    for known in ("", "egl", "OSMesa", "disabled", "0"):
        monkeypatch.setenv("MUJOCO_GL", known)
        gl.check_gl_name()
    monkeypatch.setenv("MUJOCO_GL", "vulkan")
    with pytest.raises(ConfigError, match="MUJOCO_GL is 'vulkan'; expected one of egl, osmesa, glfw"):
        gl.check_gl_name()


@pytest.mark.parametrize("num_workers", [0, 2])
def test_a_verb_names_an_unknown_backend(num_workers: int) -> None:
    """MuJoCo's import fails on it: in the verb's own modules, or in the process that starts workers."""
    words = ["evaluate", "policy=random", "env=gym/Hopper-v5", f"num_workers={num_workers}"]
    code = f"from robo_rl.apps.cli.main import main; raise SystemExit(main({words}))"
    environment = os.environ | {"MUJOCO_GL": "vulkan"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stderr.count("MUJOCO_GL is 'vulkan'")) == (2, 1)
