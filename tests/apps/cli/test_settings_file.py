"""Settings from files: `config=mine.yaml` for every verb, `method=mine.yaml` for a group; repeated keys."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from policies.training.base import FREE_SETTINGS
from robo_rl.apps.cli.config import load_config, preview
from robo_rl.apps.cli.main import known_keys, main
from robo_rl.apps.cli.settings_file import expand
from robo_rl.conf.finetune import FinetuneVerb
from robo_rl.conf.train import TrainConfig
from robo_rl.core.errors import ConfigError
from robo_rl.core.settings import free_keys


def _file(folder: Path, text: str, name: str = "mine.yaml") -> str:
    path = folder / name
    path.write_text(text)
    return str(path)


@pytest.mark.parametrize(
    "words", [["data=a", "data=b"], ["episodes=1", "episodes=2"], ["seed=1", "seed=1"], ["seed=1", "+seed=2"]]
)
def test_repeated_key_is_refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """One of the two values would be lost silently, for any verb."""
    assert main(["evaluate", "policy=p", *words]) == 2
    assert "is given twice, found " in capsys.readouterr().err


def test_command_line_overrides_the_file(tmp_path: Path) -> None:
    """Nested and dotted keys, lists, none and text have their types; `seed` is that of the command line."""
    file = _file(
        tmp_path,
        "data: my data\nout: runs/x\nnet: {name: unet1d, widths: [32, 64]}\nprocess.steps: 4\n"
        "lr: 1e-4\nseed: 3\nresume: false\n",
    )
    words, origin = expand([f"config={file}", "seed=5"], "train")
    config = load_config("train", words, TrainConfig)
    assert (config.data, config.seed, config.lr, config.process.steps) == ("my data", 5, 1e-4, 4)
    assert (config.net.name, config.net.widths) == ("unet1d", [32, 64])  # type: ignore[attr-defined]
    assert "seed" not in origin


def test_positional_word_stays_first(tmp_path: Path) -> None:
    """`up arm_sim config=mine.yaml`: the set is the first word."""
    assert expand(["arm_sim", f"config={_file(tmp_path, 'record: r')}"], "up")[0] == ["arm_sim", "record=r"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("epsiodes: 3", ["mine.yaml holds 'epsiodes'", "Did you mean 'episodes'?"]),
        ("episodes: [", ["mine.yaml is not valid YAML, line 1, column 12:"]),
        ("- 3", ["mine.yaml holds no settings"]),
        ("episodes: many", ["episodes=many cannot be used", "whole number"]),
    ],
)
def test_error_names_the_file_and_the_key(
    text: str, words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The error names the file, the key and the nearest setting."""
    assert main(["evaluate", "policy=p", f"config={_file(tmp_path, text)}"]) == 2
    said = capsys.readouterr().err
    assert all(word in said for word in words), said


def test_missing_file_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    """No traceback."""
    assert main(["evaluate", "config=nowhere.yaml"]) == 2
    assert "nowhere.yaml is not a file" in capsys.readouterr().err


def test_method_file(tmp_path: Path) -> None:
    """Its values are applied to the schema's defaults, as those of a built-in method, and it is named like
    the file.
    """
    file = _file(tmp_path, "map: {kind: residual, scale: 0.3}\nlearner: {gamma: 0.97}\n", "strong.yaml")
    method = load_config("finetune", [f"method={file}", "out=x", "method.utd=2"], FinetuneVerb).method
    assert (method.name, method.map.kind, method.map.scale) == ("strong", "residual", 0.3)
    assert (method.learner.gamma, method.utd) == (0.97, 2.0)
    assert preview("finetune", [f"method={file}"], FinetuneVerb)["method.map.scale"] == 0.3


def test_unknown_key_of_a_method_file_is_refused(tmp_path: Path) -> None:
    """The error names the nearest setting."""
    file = _file(tmp_path, "learner: {gama: 0.9}")
    with pytest.raises(
        ConfigError, match=r"holds 'method.learner.gama'.* Did you mean 'method.learner.gamma'"
    ):
        load_config("finetune", [f"method={file}", "out=x"], FinetuneVerb)


def test_a_run_is_resumed_with_its_own_settings(tmp_path: Path) -> None:
    """What the run was told about other runs is not taken over; without resume=true nothing is."""
    (tmp_path / "config.yaml").write_text("out: elsewhere\nseed: 3\nresume: false\noverwrite: true\n")
    place = f"out={tmp_path}"
    assert expand(["resume=true", place, "device=cpu"], "train")[0] == [
        "seed=3",
        "resume=true",
        place,
        "device=cpu",
    ]
    for words in ([place], [place, "resume=false"], ["resume=true"]):
        assert expand(words, "train")[0] == words
    missing = [f"out={tmp_path / 'none'}", "resume=true"]
    with pytest.raises(ConfigError, match="none does not exist"):
        expand(missing, "train")
    assert expand([place, "resume=true", "seed=1,2"], "train", sweeps=True)[0][-1] == "seed=1,2"


@pytest.mark.parametrize(
    ("verb", "saved", "inputs"),
    [
        ("train", "data: d", ["data=d"]),
        ("pretrain", "data: d", ["data=d"]),
        ("distill", "teacher: t", ["teacher=t"]),
        ("finetune", "base: b\nenv: e", ["base=b"]),
        ("finetune", "base: null\nenv: arm/lift", ["env=arm/lift", "task=lift", "suite=arm/lift"]),
        ("fly", "task: race", ["task=race"]),
        ("swarm", "drones: 4", []),
        ("vision", "teacher: null", []),
        ("mission", "run: null", []),
    ],
)
def test_other_settings_are_added_to_the_runs_if_the_input_is_missing(
    verb: str, saved: str, inputs: list[str], tmp_path: Path
) -> None:
    """Words with the input repeat the command of the run, and are compared as they are."""
    (tmp_path / "config.yaml").write_text(f"{saved}\nseed: 3\nmethod: {{name: a, map: {{scale: 1}}}}\n")
    again = [f"out={tmp_path}", "resume=true"]
    filled = expand([*again, "seed=4"], verb)[0]
    assert filled[-3:] == [*again, "seed=4"]
    assert "method.map.scale=1" in filled
    assert "seed=3" not in filled
    for given in inputs:
        assert expand([*again, "seed=4", given], verb)[0] == [*again, "seed=4", given]
    other = expand([*again, "method=b"], verb)[0]
    assert not [word for word in other if word.startswith("method.")], "the run's method would replace it"


@pytest.mark.parametrize("spelling", ["true", "True", "TRUE", "yes", "on", "1", "'true'"])
def test_resume_is_recognised_as_hydra_spells_it(spelling: str, tmp_path: Path) -> None:
    """Else the run's settings would be missing, and the error would name one of them."""
    (tmp_path / "config.yaml").write_text("data: d\n")
    again = [f"resume={spelling}", f"out={tmp_path}"]
    assert expand(again, "train")[0] == ["data=d", *again]


@pytest.mark.parametrize("verb", ["train", "pretrain", "finetune", "distill", "fly", "swarm"])
def test_a_setting_that_may_change_is_given_with_the_run_alone(verb: str, tmp_path: Path) -> None:
    """The page on runs lists these settings; each is one of the verb, and keeps its value."""
    page = (Path(__file__).parents[3] / "docs" / "resume-and-runs.md").read_text()
    table = page.partition("| settings that may differ |")[2].partition("\n\n")[0]
    rows = [line for line in table.splitlines() if line.startswith(("| every verb", f"| `{verb}`"))]
    listed = {word for row in rows for word in re.findall(r"`(\w+)`", row)} - {verb}
    assert listed == free_keys(verb)
    assert listed - {"device", "num_workers"} <= known_keys(verb)
    (tmp_path / "config.yaml").write_text("seed: 3\n")
    for key in listed - {"out", "resume"}:
        again = ["resume=true", f"out={tmp_path}", f"{key}=5"]
        assert expand(again, verb)[0] == ["seed=3", *again]


def test_settings_that_a_checkpoint_of_train_accepts_may_change() -> None:
    """The trainer compares its own settings with the checkpoint's, too."""
    assert free_keys("train") >= FREE_SETTINGS
