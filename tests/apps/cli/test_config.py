"""Overrides become a dataclass; mistakes become sentences."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, is_dataclass
from pathlib import Path

import pytest

from robo_rl.apps.cli.config import load_config, preview
from robo_rl.apps.cli.from_python import place
from robo_rl.apps.cli.help import load_schema
from robo_rl.apps.cli.main import known_keys
from robo_rl.apps.cli.overrides import OF_OTHER_LIBRARIES, SYNONYMS, did_you_mean, split
from robo_rl.apps.cli.verbs import VERBS
from robo_rl.conf import node
from robo_rl.conf.fields import REQUIRED, one_of, setting, settings, variant
from robo_rl.conf.up import UpConfig
from robo_rl.core.errors import ConfigError, UnknownNameError


@dataclass
class _Net:
    """Settings that both networks have."""

    name: str = "small"
    width: int = setting(8, "neurons per layer")


@dataclass
class _DeepNet(_Net):
    name: str = "deep"
    depth: int = setting(5, "layers")


@dataclass
class _Optimizer:
    lr: float = setting(1e-3, "learning rate")
    betas: list[float] = setting([0.9, 0.99], above=0.0, below=1.0)


@dataclass
class _Config:
    """Settings of these tests."""

    data: str = setting(REQUIRED, "where the data are")
    episodes: int = setting(20, "how many", at_least=1)
    keep: str = one_of("success", "all", help="which")
    base: str | None = setting(None, "a policy")
    resume: bool = False
    net: _Net = variant({"small": _Net, "deep": _DeepNet}, "the network")
    optimizer: _Optimizer = field(default_factory=_Optimizer)
    overwrite: bool = False
    parts: list[list[int]] = setting([], "lists of numbers", at_least=0)


def load(*overrides: str) -> _Config:
    return load_config("test", overrides, _Config)


def test_overrides_have_the_types_of_the_dataclass() -> None:
    """Every kind of value, also nested ones and a chosen variant, has the type of the dataclass."""
    config = load(
        "data=d", "episodes=3", "optimizer.lr=1e-4", "resume=true", "net=deep", "net.depth=2", "base=none"
    )
    assert config == _Config("d", 3, "success", None, True, _DeepNet(depth=2), _Optimizer(1e-4))


@pytest.mark.parametrize(
    "path", ["a b/c", "runs/x[1]", "it's", "a~/b=c", "data{1}", "1e-3", "null", "a,b", "back\\slash"]
)
def test_text_needs_no_quotes(path: str) -> None:
    """Paths with characters of hydra's grammar, and text that looks like a number, need no quotes."""
    assert load(f"data={path}").data == path


@pytest.mark.parametrize(
    ("word", "value"),
    [
        ("episodes=1e4", 10000),
        ("episodes=3.0", 3),
        ("episodes=2.5e1", 25),
        ("parts=[[1e1,2],[3.0]]", [[10, 2], [3]]),
    ],
)
def test_whole_numbers_may_be_written_as_floats(word: str, value: object) -> None:
    """As in `steps=1e4`, and `steps=total / 2` in Python."""
    assert getattr(load("data=d", word), word.partition("=")[0]) == value


@pytest.mark.parametrize("verb", ["train", "pretrain", "finetune", "collect", "evaluate", "distill", "fly"])
def test_a_seed_below_zero_is_refused(verb: str) -> None:
    seed = settings(load_schema(VERBS[verb]))["seed"]
    assert seed.allows(0)
    assert not seed.allows(-1)


@pytest.mark.parametrize(
    ("verb", "name", "meant"),
    [
        ("train", "total_timesteps", "steps"),
        ("train", "learning_rate", "lr"),
        ("train", "output_dir", "out"),
        ("train", "policy.path", "init"),
        ("finetune", "total_timesteps", "env_steps"),
        ("finetune", "learning_rate", "method.learner.lr_actor"),
        ("finetune", "n_envs", "num_envs"),
        ("finetune", "seeds", "seed"),
        ("evaluate", "policy.path", "policy"),
        ("evaluate", "n_envs", "num_envs"),
    ],
)
def test_names_of_other_libraries_are_known(verb: str, name: str, meant: str) -> None:
    """Names of Stable-Baselines3 and LeRobot, and of equally similar settings that without a dot."""
    assert did_you_mean(name, list(known_keys(verb))) == f" Did you mean '{meant}'?"
    assert (
        did_you_mean("n_envs", list(known_keys("train"))) == ""
    )  # it has none, and policy.tokens is no help
    assert did_you_mean("stesp", ["net.steps", "steps"]) == " Did you mean 'steps'?"
    assert did_you_mean("wdith", ["net.width", "width", "policy.width"]) == " Did you mean 'width'?"


def test_every_synonym_is_a_setting() -> None:
    """A setting that is renamed must not stay in the table."""
    every = set().union(*(known_keys(verb) for verb in VERBS))
    assert {each for meant in (SYNONYMS | OF_OTHER_LIBRARIES).values() for each in meant} <= every


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("epsiodes=3", ["no setting 'epsiodes'", "'episodes'"]),
        ("lr=3", ["no setting 'lr'", "'optimizer.lr'"]),
        ("optimizer.lrr=3", ["'optimizer.lr'"]),
        ("episodes=abc", ["episodes=abc", "whole number >= 1"]),
        ("episodes=1.5", ["episodes=1.5", "whole number"]),
        ("episodes=1,2", ["episodes=1,2", "whole number"]),
        ("episodes=", ["episodes=", "whole number"]),
        ("episodes=[", ["episodes=[", "whole number"]),
        ("episodes=0", ["episodes=0", ">= 1"]),
        ("optimizer.betas=[0.5,1]", ["optimizer.betas=[0.5, 1.0]", "> 0 and < 1"]),
        ("optimizer.lr=nan", ["optimizer.lr=nan", "number, and finite"]),
        ("optimizer.lr=fast", ["optimizer.lr=fast", "number"]),
        ("optimizer.betas=0.5", ["optimizer.betas=0.5", "Write optimizer.betas=[0.5]"]),
        ("data=", ["data= is empty, expected: text (where the data are)"]),
        ("base=", ["base= is empty, expected: text or none (a policy)"]),
        ("optimizer.betas=[1,x]", ["optimizer.betas", "[number > 0 and < 1, ...]"]),
        ("parts=[0,1]", ["parts=[0,1] cannot be used, expected: [[whole number >= 0, ...], ...]."]),
        ("parts=3", ["parts=3 cannot be used, expected: [[whole number >= 0, ...], ...]."]),
        ("parts=[[0],[-1]]", ["parts=[[0], [-1]] cannot be used"]),
        ("resume=maybe", ["resume=maybe", "true or false"]),
        ("keep=sucess", ["keep=sucess", "Did you mean 'success'"]),
        ("net.depth=3", ["net.depth=3", "the net chosen has no such setting"]),
        ("--episodes", ["--episodes", "key=value", "'episodes=...'"]),
        ("episodes", ["key=value"]),
    ],
)
def test_invalid_override_error_names_key_and_remedy(override: str, words: list[str]) -> None:
    """One sentence: what was found and expected, without hydra's own words."""
    with pytest.raises(ConfigError) as caught:
        load(*([] if override == "data=" else ["data=d"]), override)
    message = str(caught.value)
    assert all(word in message for word in words), message
    assert "\n" not in message
    assert "hydra" not in message.lower()


def test_a_run_is_continued_or_replaced() -> None:
    """Both together would leave open which of them wins."""
    with pytest.raises(ConfigError, match=r"resume=true continues .* overwrite=true replaces it; give one"):
        load("data=d", "resume=true", "overwrite=true")


def test_only_a_number_that_is_not_finite_is_said_to_be_so() -> None:
    """The words "and finite" would mislead where another limit was violated."""
    for override, finite in (
        ("episodes=0", False),
        ("optimizer.betas=[0.5,1]", False),
        ("optimizer.betas=[nan]", True),
    ):
        with pytest.raises(ConfigError) as caught:
            load("data=d", override)
        assert ("finite" in str(caught.value)) == finite, override


def test_unknown_variant_error_lists_the_known_ones() -> None:
    """`net=depe` lists the nets there are."""
    with pytest.raises(UnknownNameError, match=r"Unknown net 'depe'\. Did you mean 'deep'"):
        load("data=d", "net=depe")


def test_missing_setting_error_has_its_help_text() -> None:
    """The field's help text explains the missing setting."""
    with pytest.raises(ConfigError, match=r"needs data=... \(where the data are\)"):
        load("episodes=3")


def test_settings_come_from_the_fields() -> None:
    """Keys, types, defaults, limits and help texts are those of the dataclass fields."""
    found = settings(_Config)
    assert list(found)[:3] == ["data", "episodes", "keep"]
    assert found["data"].default_words == "required"
    assert (found["episodes"].type_words, found["episodes"].default_words) == ("whole number >= 1", "20")
    assert found["keep"].type_words == "success | all"
    assert found["net"].type_words == "small | deep"
    assert found["net.width"].meaning == "neurons per layer"
    assert found["net.depth"].meaning == "[deep] layers"
    assert found["optimizer.lr"].meaning == "learning rate"
    assert found["optimizer.betas"].type_words == "[number > 0 and < 1, ...]"
    assert found["parts"].type_words == "[[whole number >= 0, ...], ...]"
    assert "net.name" not in found


def test_yaml_groups_are_applied(tmp_path: object, monkeypatch: pytest.MonkeyPatch) -> None:
    """`optimizer=fast` takes the values of optimizer/fast.yaml; overrides come on top; other names are
    refused.
    """
    conf = Path(str(tmp_path))
    (conf / "optimizer").mkdir()
    (conf / "optimizer" / "slow.yaml").write_text("lr: 0.001\n")
    (conf / "optimizer" / "fast.yaml").write_text("lr: 0.5\nbetas: [0.5, 0.6]\n")
    (conf / "test.yaml").write_text("defaults: [test_schema, optimizer: slow, _self_]\n")
    monkeypatch.setattr("robo_rl.apps.cli.config.CONF", conf)
    assert load("data=d").optimizer.lr == 0.001
    assert load("data=d", "optimizer=fast", "optimizer.betas=[0.7]").optimizer == _Optimizer(0.5, [0.7])
    with pytest.raises(UnknownNameError, match=r"Unknown optimizer 'fats'\. Did you mean 'fast'"):
        load("data=d", "optimizer=fats")


def test_help_shows_the_values_of_a_choice() -> None:
    """With overrides, `--help` shows the resulting values; settings of other variants are blank."""
    assert preview("test", ["net=deep", "optimizer.lr=0.5"], _Config)["net.depth"] == 5
    shown = preview("test", ["optimizer.lr=0.5"], _Config)
    assert (shown["optimizer.lr"], shown["data"], shown["net"], shown["net.depth"]) == (
        0.5,
        REQUIRED,
        "small",
        "",
    )
    assert preview("test", [], _Config)["episodes"] == 20


@pytest.mark.parametrize("verb", VERBS)
def test_every_setting_has_a_help_text(verb: str) -> None:
    """`--help` explains each setting of each verb."""
    found = settings(load_schema(VERBS[verb]))
    assert not [key for key, each in found.items() if not each.meaning.rpartition("] ")[2]]


def test_every_setting_of_a_node_has_a_help_text() -> None:
    """The same for nodes started by `robo-rl up` or ROS 2."""
    kinds = [kind for kind in vars(node).values() if isinstance(kind, type) and is_dataclass(kind)]
    missing = [
        f"{kind.__name__}.{key}" for kind in kinds for key, each in settings(kind).items() if not each.meaning
    ]
    assert len(kinds) > 10
    assert not missing


def test_empty_settings_of_up_leave_out_what_its_set_has() -> None:
    """`record=` records nothing and `goal=` publishes none, whatever the set says."""
    config = load_config("up", ["set=arm_sim", "record=", "goal=", "camera="], UpConfig)
    assert (config.record, config.goal, config.camera) == ("", "", "")


def test_a_path_without_its_key_is_recognised(tmp_path: Path) -> None:
    """`robo-rl data show data/recorded` is what a user of other programs types."""
    with pytest.raises(ConfigError, match=f"Did you mean 'path={re.escape(str(tmp_path))}'"):
        split("data show", str(tmp_path), ["path", "episode"])


def test_a_leading_tilde_is_the_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In texts, lists of them, and arguments from Python; a ~ elsewhere is text."""
    monkeypatch.setenv("HOME", str(tmp_path))
    schema = load_schema(VERBS["data merge"])
    config = load_config("data merge", ["sources=[~/a,b~/c, ~/d]", "out=~/m"], schema)
    assert config.sources == [f"{tmp_path}/a", "b~/c", f"{tmp_path}/d"]
    quoted = load_config("data merge", ["sources=['~/a','b']", "out=~/m"], schema)  # as Python writes a list
    assert quoted.sources == [f"{tmp_path}/a", "b"]
    assert config.out == f"{tmp_path}/m"
    schema = load_schema(VERBS["train"])
    assert load_config("train", ["data=[~/a,~/b]", "out=a~/"], schema).data == f"[{tmp_path}/a,{tmp_path}/b]"
    assert place("path", Path("~/policy")) == f"{tmp_path}/policy"


@pytest.mark.parametrize(
    ("typed", "sources"),
    [
        ("[a/seed=1/episodes, my data]", ["a/seed=1/episodes", "my data"]),
        ("[dätä,'a,b',\"it's\"]", ["dätä", "a,b", "it's"]),
        ("[1,none]", ["1", "none"]),
    ],
)
def test_a_list_takes_any_path(typed: str, sources: list[str]) -> None:
    """Elements of a list of texts need no quotes but around commas."""
    config = load_config("data merge", [f"sources={typed}", "out=m"], load_schema(VERBS["data merge"]))
    assert config.sources == sources
