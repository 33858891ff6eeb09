"""Observations of manipulation environments: depths, clouds, appearance, delays, and states without
privileged entries.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from robo_rl.core.errors import ConfigError, UnknownNameError
from robo_rl.core.seeding import EpisodeSeeds
from robo_rl.core.spec import SEGMENTS
from sim.registry import make_env
from sim.render.renderer import MujocoRenderer
from sim.scenes.segments import classes
from sim.scenes.task_env import TaskVecEnv, make_task_env
from sim.vec.conformance import check_vec_env
from tests.sim.engines.worlds import ENGINES


def _env(num_envs: int = 2, image_size: int = 48, **options: object) -> TaskVecEnv:
    env = make_task_env("lift", num_envs, image_size=image_size, compiled=False, **options)
    env.reset(EpisodeSeeds(("senses", 0)))
    return env


def _preset(folder: Path, text: str) -> str:
    path = folder / "ranges.yaml"
    path.write_text(text)
    return str(path)


def test_every_sense_keeps_the_contract(tmp_path: Path) -> None:
    """With random appearance, sensor noise and delayed observations, also restored from a snapshot."""
    path = _preset(
        tmp_path, "{obs_delay: [0, 2], camera_m: 0.02, camera_rad: 0.05, colour: [0.5, 2], noise: {m: 0.01}}"
    )
    senses = "senses=rgb+depth+points+segmentation,points=64,image_size=24"
    words = f"cameras=view,{senses},state=robot,randomise={path}"
    check_vec_env(make_env(f"arm/lift:{words}", 2, max_episode_steps=5), steps=12)


@pytest.mark.parametrize("engine", ENGINES)
def test_colour_and_depth_are_drawn_once(engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two cameras in two worlds give four renderings, which equal those of each sense alone bit for bit."""
    alone = {sense: _env(cameras="view+front", senses=sense, engine=engine) for sense in ("rgb", "depth")}
    both = _env(cameras="view+front", senses="rgb+depth", engine=engine)
    seen = [env._obs for env in (*alone.values(), both)]
    assert seen[0].keys() | seen[1].keys() == seen[2].keys()
    for key in seen[2].keys() - {"state"}:
        assert seen[2][key].equal(seen[0][key] if key in seen[0] else seen[1][key]), key
    drawn: list[object] = []
    draw = MujocoRenderer._draw
    monkeypatch.setattr(MujocoRenderer, "_draw", lambda self: (drawn.append(self), draw(self))[1])
    both.step(torch.zeros(2, both.spec.action.dim))
    assert len(drawn) == 4


def test_objects_that_are_not_there_are_named() -> None:
    """One sentence with the objects that there are, in place of a KeyError."""
    view = _env(1).view
    for read in (view.object_pose, view.speed_m_s, view.spin_rad_s):
        with pytest.raises(
            UnknownNameError, match=r"^Unknown free object 'cub'. Did you mean 'cube'\? Known: cube"
        ):
            read("cub")


@pytest.mark.parametrize("camera", ["view", "front"])
def test_point_cloud_lies_on_the_surfaces(camera: str) -> None:
    """Above the table, within the box; and the points near the cube are on its faces, to a pixel's width."""
    env = _env(1, cameras=camera, senses="points", points=2048)
    points = env.reset(EpisodeSeeds(("cloud", 0)))[f"points.{camera}"][0]
    cube = env.view.object_pose("cube")
    assert float(points[:, 2].min()) >= 0.005
    off = (points - cube.m[0].float()).abs()
    near = off[off.norm(dim=-1) < 0.035]
    assert len(near) > 10
    assert float(near[:, 2].max()) < 0.022
    assert float(near.norm(dim=-1).max()) < 0.035
    assert bool((near.amax(1) > 0.012).all())  # none inside


@pytest.mark.parametrize("engine", ENGINES)
def test_segmentation_classes_in_every_engine(engine: str) -> None:
    """Equal in every engine: a cabinet is fixed, its drawer moves, the arm is the robot; table and sky are
    neither.
    """
    env = make_task_env("drawer", 1, image_size=96, cameras="front", senses="segmentation", engine=engine)
    obs = env.reset(EpisodeSeeds(("classes", 0)))
    seen, model = obs["segmentation.front"][0, ..., 0], env.model
    assert seen.dtype == torch.uint8
    assert env.spec.obs["segmentation.front"].unit == "0 background, 1 fixture, 2 object, 3 robot"
    assert seen.unique().tolist() == [0, 1, 2, 3]
    bodies = env._engine.render(0, "front", 96, 96, "segment")
    for name, number in (("cabinet", 1), ("drawer", 2), ("link0", 3), ("world", 0)):
        mine = seen[bodies == model.body(name).id]
        assert len(mine) > 0, name
        assert bool((mine == number).all()), name
    assert bool((seen[bodies == -1] == 0).all())
    env.close()


def test_segmentation_class_of_each_body() -> None:
    """By hand: loose bodies are objects, also a cap on its thread; a bowl, a goal and a box are fixed."""
    for task, expected in (
        ("push_t", {"tee": "object", "target": "fixture", "hand": "robot", "world": "background"}),
        ("pour", {"bead3": "object", "bowl": "fixture"}),
        ("unscrew", {"cap": "object", "post": "fixture"}),
        ("reorient", {"cube": "object"}),
        ("navigate", {"base": "robot", "box0": "fixture"}),
    ):
        model = make_task_env(task, 1).model
        found = classes(model)
        assert {name: SEGMENTS[found[model.body(name).id]] for name in expected} == expected, task


def test_proprioceptive_state() -> None:
    """The same entries as in the full state: tool, heading, opening and joints."""
    whole, own = _env(), _env(state="robot")
    seeds = ("own", 0)
    state, mine = (env.reset(EpisodeSeeds(seeds))["state"] for env in (whole, own))
    assert "cube" not in own.spec.obs["state"].unit
    assert tuple(mine.shape) == (2, *own.spec.obs["state"].shape)
    torch.testing.assert_close(mine, torch.cat([state[:, :6], state[:, 12:19]], 1))


@pytest.mark.parametrize(("task", "told"), [("reach", "goal from tool"), ("push_t", "stick")])
def test_proprioceptive_state_has_goal_and_grasp(task: str, told: str) -> None:
    assert told in make_task_env(task, 1, state="robot").spec.obs["state"].unit


def test_visual_randomisation_changes_only_images(tmp_path: Path) -> None:
    """The same seed gives the same appearance; without one, the model's own is restored."""
    path = _preset(tmp_path, "{camera_m: 0.03, camera_rad: 0.1, colour: [0.3, 3], light: [0.5, 1.5]}")
    plain, varied = _env(cameras="view"), _env(cameras="view", randomise=path)
    seeds = ("looks", 0)
    a, b, again = (env.reset(EpisodeSeeds(seeds)) for env in (plain, varied, varied))
    assert torch.equal(a["state"], b["state"])
    assert torch.equal(b["image.view"], again["image.view"])
    difference = (a["image.view"].float() - b["image.view"].float()).abs().mean((1, 2, 3))
    assert float(difference.min()) > 5.0
    own = varied._engine.render(0, "view", 48, 48)
    assert torch.equal(own, a["image.view"][0])
    assert not torch.equal(varied.render(), plain.render())  # films show the episode's look, too


def test_a_camera_that_is_off_errs_in_the_cloud(tmp_path: Path) -> None:
    """Clouds are computed where the model has the camera: moved cameras show things elsewhere, by about as
    much.
    """
    path = _preset(tmp_path, "{camera_m: 0.02}")
    plain, moved = (
        _env(1, 200, cameras="view", senses="points", points=9999, randomise=name) for name in ("none", path)
    )
    a, b = (env.reset(EpisodeSeeds(("off", 3)))["points.view"][0] for env in (plain, moved))
    shift = -moved._senses._cameras._visuals[0].camera_m[0]  # type: ignore[union-attr]
    off = torch.cdist(b, a + shift).amin(1)
    assert float(off.median()) < 0.003
    assert float(torch.cdist(b, a).amin(1).median()) > 2 * float(off.median())


def test_late_observations_are_those_of_before(tmp_path: Path) -> None:
    """Two steps of delay: the third observation is the first step's; before it, and after a reset, the first
    one.
    """
    late, prompt = _env(randomise=_preset(tmp_path, "obs_delay: [2, 2]")), _env()
    seeds, action = ("late", 0), torch.tensor([[0.5, 0.2, -0.1, 0.3, 1.0]]).repeat(2, 1)
    told, shown = ([env.reset(EpisodeSeeds(seeds))["state"]] for env in (late, prompt))
    for _ in range(6):
        told.append(late.step(action)[0]["state"])
        shown.append(prompt.step(action)[0]["state"])
    for i in range(7):
        assert torch.equal(told[i], shown[max(0, i - 2)])


@pytest.mark.parametrize(
    ("options", "error", "says"),
    [
        ({"cameras": "view", "senses": "smell"}, UnknownNameError, "smell"),
        ({"senses": "points"}, ConfigError, "cameras=view"),
        ({"cameras": "view+view"}, ConfigError, "cameras=view.view names one twice"),
        ({"cameras": "view", "senses": "rgb+rgb"}, ConfigError, "senses=rgb.rgb names one twice"),
        ({"state": "mine"}, UnknownNameError, "robot"),
        ({"points": 0}, ConfigError, "points"),
    ],
)
def test_wrong_senses_are_refused(options: dict[str, object], error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        make_task_env("lift", 1, **options)


@pytest.mark.parametrize("text", ["camera_m: 2", "camera_rad: [0, 1]", "colour: [0, 1]", "obs_delay: [3, 1]"])
def test_wrong_visual_randomisation_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigError, match=text.partition(":")[0]):
        make_task_env("lift", 1, randomise=_preset(tmp_path, text))


def test_pretty_pictures_have_shadows() -> None:
    """The same scene, darker where the arm's shadow lies; cameras of the observation stay as they are."""
    plain, pretty = (_env(1, cameras="view", pretty=flag) for flag in (False, True))
    a, b = (env.render().float() for env in (plain, pretty))
    assert a.shape == b.shape
    assert float((a - b).clamp_min(0.0).max()) > 20.0
    same = [env.reset(EpisodeSeeds(("pretty", 0)))["image.view"] for env in (plain, pretty)]
    assert torch.equal(*same)
