"""A user's own function as the expert of `collect` and `view`, and as a policy of `rr.evaluate`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch

import robo_rl as rr
from policies.checkpoint import save_policy
from robo_rl.apps.cli.main import main
from robo_rl.core.errors import ConfigError, RoboRLError
from robo_rl.core.seeding import EpisodeSeeds
from robo_rl.eval.stats import SuccessRate
from sim.adapters.own_function import OwnFunction, checked
from sim.registry import make_env
from tests.policies.small import flow_policy

ENV = "gym/Dock-v0"
SMALL = {"num_envs": 2, "num_workers": 0}
SCRIPTS = """
import numpy as np

def to_zero(obs):
    return -obs["place"]["at"]

def fails(obs):
    raise KeyError("speed")

class Expert:
    def __init__(self, speed):
        self.speed = speed

    def __call__(self, obs):
        return to_zero(obs)

class Notes:
    pass

def two(obs, step):
    return to_zero(obs)

class Two:
    def __call__(self, obs, step):
        return to_zero(obs)

five = 5
"""


class Dock(gymnasium.Env[Any, Any]):
    """A point on a plane goes to 0. Observation: a nested dict with a picture, keys in no order."""

    metadata = {"render_modes": [], "render_fps": 20}  # noqa: RUF012 (Gymnasium's own field)
    observation_space = gymnasium.spaces.Dict(
        {
            "view": gymnasium.spaces.Box(0, 255, (4, 4, 3), np.uint8),
            "place": gymnasium.spaces.Dict({"at": gymnasium.spaces.Box(-2.0, 2.0, (2,), np.float64)}),
            "count": gymnasium.spaces.Box(0, 99, (1, 1), np.int64),
        }
    )
    action_space = gymnasium.spaces.Box(-0.5, 0.5, (2,), np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.at, self.steps = self.np_random.uniform(-1.0, 1.0, 2), 0
        return self.seen(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.at, self.steps = self.at + action, self.steps + 1
        solved = bool(np.abs(self.at).max() < 0.05)
        return self.seen(), float(solved), solved, False, {"is_success": solved}

    def seen(self) -> dict[str, Any]:
        picture = np.full((4, 4, 3), self.steps, np.uint8)
        return {"view": picture, "place": {"at": self.at.copy()}, "count": np.array([[self.steps]])}


@pytest.fixture(autouse=True)
def _dock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    gymnasium.register("Dock-v0", Dock, max_episode_steps=12)
    (tmp_path / "my_scripts.py").write_text(SCRIPTS)
    monkeypatch.syspath_prepend(tmp_path)
    yield
    gymnasium.registry.pop("Dock-v0")
    sys.modules.pop("my_scripts", None)


def to_zero(obs: dict[str, Any]) -> Any:
    return -obs["place"]["at"]


def test_the_function_gets_the_environments_own_observation(tmp_path: Path) -> None:
    """Keys, nesting, shapes and dtypes of the space; the dataset has those of the contract."""
    seen = []

    def expert(obs: Any) -> Any:
        seen.append(obs)
        return to_zero(obs)

    data = rr.collect(ENV, expert=expert, out=tmp_path / "data", episodes=3, **SMALL)
    assert all(episode.success for episode in data)
    assert data[0].meta.info["by"].endswith("expert")
    for obs in seen:
        assert {key: np.shape(value) for key, value in obs.items() if key != "place"} == {
            "view": (4, 4, 3),
            "count": (1, 1),
        }
        assert (obs["view"].dtype, obs["count"].dtype) == (np.uint8, np.int64)
        assert obs["place"]["at"].dtype == np.float64
        assert (obs["view"] == obs["count"]).all()
    np.testing.assert_allclose(data[0].action[0], np.clip(-data[0].obs("state")[0, 1:], -0.5, 0.5))


def test_noise_is_a_share_of_the_actions_half_range_and_belongs_to_the_episode(tmp_path: Path) -> None:
    """0.2 of +-0.5 is a standard deviation of 0.1; another number of lanes gives the same actions."""
    found = []
    for lanes in (1, 3):
        options = {"noise": 0.2, "episodes": 30, "keep": "all", "num_envs": lanes, "num_workers": 0}
        rr.collect(ENV, expert=lambda obs: np.zeros(2), out=tmp_path / str(lanes), **options)
        found.append(np.concatenate([e.action for e in rr.Dataset(tmp_path / str(lanes))]))
    np.testing.assert_array_equal(*found)
    assert np.std(found[0]) == pytest.approx(0.1, rel=0.1)


class Plain(Dock):
    """The same with a plain array, so that a policy needs no encoder of pictures."""

    observation_space = gymnasium.spaces.Box(-2.0, 2.0, (2,), np.float64)

    def seen(self) -> Any:
        return self.at.copy()


def test_the_function_finishes_episodes_that_a_policy_begins(tmp_path: Path) -> None:
    """Its steps are marked, as those of another expert; they follow the policy's and go to 0."""
    gymnasium.register("Plain-v0", Plain, max_episode_steps=12)
    try:
        policy = flow_policy(make_env("gym/Plain-v0", 1).spec)
        save_policy(tmp_path / "policy", policy)
        options = {"takeover_from": tmp_path / "policy", "takeover": 0.4, "episodes": 8}
        data = rr.collect("gym/Plain-v0", expert=lambda obs: -obs, out=tmp_path / "data", **options, **SMALL)
    finally:
        gymnasium.registry.pop("Plain-v0")
    begun = [episode for episode in data if not episode.intervention[0]]
    assert begun
    for episode in data:
        first = int(np.argmax(episode.intervention))
        assert episode.intervention[first:].all()
        assert episode.success
        own = np.clip(-episode.obs("state")[first : episode.frames], -0.5, 0.5)
        np.testing.assert_allclose(episode.action[first:], own, atol=1e-6)


class Stepping:
    """Goes to 0 from its third step on."""

    def __init__(self) -> None:
        self.steps = 0

    def __call__(self, obs: dict[str, Any]) -> Any:
        assert self.steps == obs["count"][0, 0]
        self.steps += 1
        return to_zero(obs) if self.steps > 2 else np.zeros(2)


def test_a_class_gives_an_object_for_every_episode(tmp_path: Path) -> None:
    """A script with phases begins anew in each lane and episode, as an expert and as a policy."""
    data = rr.collect(ENV, expert=Stepping, out=tmp_path / "data", episodes=5, **SMALL)
    assert all((episode.action[:2] == 0.0).all() and episode.success for episode in data)
    assert rr.evaluate(Stepping, env=ENV, episodes=5, **SMALL).rate == SuccessRate(5, 5)


def test_the_command_line_names_the_function(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """<module>:<name>, which is stored as the source of the data."""
    out = tmp_path / "data"
    words = ["collect", f"env={ENV}", f"out={out}", "episodes=2", "num_envs=1", "expert=my_scripts:to_zero"]
    assert main(words) == 0
    assert rr.Dataset(out)[0].meta.info["by"] == "my_scripts:to_zero"
    assert "Next:   robo-rl train" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("expert", "says"),
    [
        (
            "my_scripts:to_zeros",
            "Unknown function or class of my_scripts 'to_zeros'. Did you mean 'to_zero'?",
        ),
        ("my_scripts:expert", "Did you mean 'Expert'? Known: Expert, Two, fails, to_zero, two."),
        ("no_module:to_zero", "names the module 'no_module', which is neither installed"),
        ("to_zero", "expected: <module>:<name> of a function or class"),
        ("my_scripts:five", "expert=my_scripts:five is of the type int"),
        ("my_scripts:Notes", "expert=my_scripts:Notes is a class without __call__"),
        ("my_scripts:Expert", "Expert cannot be called: missing a required argument: 'speed'. Expected arg"),
        (
            "my_scripts:two",
            "two cannot be called: missing a required argument: 'step'. Expected arguments: one",
        ),
        (
            "my_scripts:Two",
            "Two cannot be called: missing a required argument: 'step'. Expected arguments: one",
        ),
    ],
)
def test_a_name_without_a_function_is_one_sentence(
    expert: str, says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """And leaves no dataset."""
    assert main(["collect", f"env={ENV}", f"out={tmp_path / 'data'}", f"expert={expert}"]) == 2
    said = capsys.readouterr().err
    assert says in said
    assert "Traceback" not in said
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize(
    ("action", "says"),
    [
        (np.zeros(3), "returned an action of the shape (3,), expected (2,)"),
        (np.zeros((1, 2)), "the function gets one observation, not a batch"),
        ([0.0, np.nan], "is not finite, [0.0, nan]"),
        (None, "returned None, expected: an array of 2 numbers"),
        ({"a": 1}, "a result of the type dict"),
    ],
)
def test_a_result_that_is_no_action_is_one_sentence(action: Any, says: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        rr.collect(ENV, expert=lambda obs: action, out=tmp_path / "data", **SMALL)
    assert says in str(caught.value)


def test_a_function_of_other_arguments_is_one_sentence(tmp_path: Path) -> None:
    """A class that needs some, and a function that takes two; an error inside a function stays as it is."""
    with pytest.raises(ConfigError, match=r"Expert cannot be called: .*'speed'\. Expected arguments: none"):
        rr.collect(ENV, expert="my_scripts:Expert", out=tmp_path / "data", **SMALL)
    with pytest.raises(ConfigError, match=r"cannot be called: .*Expected arguments: one argument, the obs"):
        rr.collect(ENV, expert=lambda obs, step: obs, out=tmp_path / "data", **SMALL)
    with pytest.raises(TypeError):
        rr.collect(ENV, expert=lambda obs: 1 + "a", out=tmp_path / "data", **SMALL)  # type: ignore[operator]


def test_an_error_inside_the_function_names_its_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["collect", f"env={ENV}", f"out={tmp_path / 'data'}", "num_envs=1", "expert=my_scripts:fails"]
    assert main(words) == 2
    assert "my_scripts.py line 8" in capsys.readouterr().err


def test_an_expert_that_cannot_start_leaves_no_dataset(tmp_path: Path) -> None:
    """Neither where its class raises, nor at a wrong first action; a dataset that was there is kept."""

    class Broken:
        def __init__(self) -> None:
            raise RuntimeError("no table")

        def __call__(self, obs: Any) -> Any:
            return to_zero(obs)

    for expert in (Broken, lambda obs: None):
        with pytest.raises((RuntimeError, ConfigError)):
            rr.collect(ENV, expert=expert, out=tmp_path / "data", **SMALL)
        assert not (tmp_path / "data").exists()
    rr.collect(ENV, expert=to_zero, out=tmp_path / "data", episodes=1, **SMALL)
    with pytest.raises(RuntimeError, match="no table"):
        rr.collect(ENV, expert=Broken, out=tmp_path / "data", episodes=2, **SMALL)
    assert len(rr.Dataset(tmp_path / "data")) == 1


def test_only_one_may_act(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot both act: leave one of them out"):
        rr.collect(ENV, expert=to_zero, policy="runs/base", out=tmp_path / "data", **SMALL)
    with pytest.raises(ConfigError, match="expert is of the type int"):
        rr.collect(ENV, expert=5, out=tmp_path / "data")  # type: ignore[arg-type]
    assert main(["view", f"env={ENV}", "expert=my_scripts:to_zero", "pilot=random"]) == 2


def test_the_message_for_an_environment_without_expert_tells_of_it(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"obs -> action, by expert=<module>:<name>.*own script"):
        rr.collect(ENV, out=tmp_path / "data", **SMALL)


def test_other_environments_give_the_state_or_a_dict() -> None:
    """arm6/reach has the state alone, metaworld with a camera has more."""
    with_state = make_env("arm6/reach", 2)
    seen: list[Any] = []

    def still(obs: Any) -> Any:
        seen.append(obs)
        return obs[:6]

    own = OwnFunction(still, with_state.spec)
    obs = with_state.reset(EpisodeSeeds("own"))
    own.begin([0, 1])
    np.testing.assert_allclose(own.act(obs), obs["state"][:, :6])
    assert [each.shape for each in seen] == [(15,), (15,)]


def test_a_function_is_measured_on_the_episodes_of_every_policy(tmp_path: Path) -> None:
    """Same seeds, paired test; a torch tensor is an action, too."""

    def half(obs: Any) -> Any:
        return torch.as_tensor(to_zero(obs)) * (obs["place"]["at"][0] > 0)

    done = rr.evaluate(to_zero, against=half, env=ENV, episodes=20, out=tmp_path / "all.json", **SMALL)
    assert done.rate == SuccessRate(20, 20)
    assert done.against is not None
    assert done.against.seeds == done.policy.seeds
    assert 0 < done.against.rate.k < 20
    assert done.difference is not None
    assert done.difference.p_value < 0.05
    assert (tmp_path / "all.json").is_file()


def test_mistakes_with_a_measured_function_are_one_sentence() -> None:
    with pytest.raises(RoboRLError, match="no environment of its own: give env="):
        rr.evaluate(to_zero)
    with pytest.raises(RoboRLError, match=r"noise=0\.0 is for saved policies, not for a function"):
        rr.evaluate(to_zero, env=ENV, noise=0.0)


class Static:
    @staticmethod
    def __call__(obs: Any) -> Any:
        return np.zeros(2)


class OfClass:
    @classmethod
    def __call__(cls, obs: Any) -> Any:
        return np.zeros(2)


@pytest.mark.parametrize("made", [Static, OfClass])
def test_a_call_without_an_object_takes_the_observation_alone(made: Any) -> None:
    """The class, whose objects are called, and an object."""
    assert checked(made, "expert=") is made
    assert isinstance(checked(made(), "expert="), made)
