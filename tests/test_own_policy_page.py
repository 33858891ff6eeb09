"""The page on one's own policy, network and method: its code and commands run, with small settings."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import robo_rl as rr
from policies.checkpoint import load_policy
from policies.registry import POLICIES
from robo_rl.apps.cli.main import main
from robo_rl.conf import train
from robo_rl.conf.finetune import FinetuneVerb
from robo_rl.core.errors import UnknownNameError
from robo_rl.nets.registry import NETS

PAGE = Path(__file__).resolve().parents[1] / "docs" / "own-policy-network-method.md"
BLOCK = re.compile(r"^```(python|bash|yaml)\n(.*?)^```$", flags=re.DOTALL | re.MULTILINE)
TUNING = "env_steps=12 method.base_steps=4 method.burn_in=1 final_episodes=2 eval_every=0 eval_episodes=1"
LANES = "num_envs=2 max_episode_steps=4"
SMALL = {  # verb -> settings in place of those on the page
    "collect": "episodes=2 num_workers=0",
    "train": "steps=2 batch_size=8",
    "evaluate": f"episodes=2 num_workers=0 {LANES}",
    "finetune": f"{TUNING} {LANES}",
    "export": "",
}
MODULES = ("my_net", "my_plugin", "my_policy")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Folder with the files and demonstrations of the page, in which the tests run in the page's order."""
    path = tmp_path_factory.mktemp("page")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(path)
        for _, code in BLOCK.findall(PAGE.read_text()):
            if name := re.match(r"# (\S+\.(?:py|yaml))\n", code):
                (path / name[1]).write_text(code)
        run_commands("")
        yield path
        for table, name in ((NETS, "my_net"), (train.NETS, "my_net"), (POLICIES, "my_policy")):
            table.pop(name, None)  # type: ignore[attr-defined]  # typed as read-only
        for module in MODULES:
            sys.modules.pop(module, None)


def blocks(section: str) -> list[tuple[str, str]]:
    """(language, code) of one section; "": of the text above the first."""
    parts = re.split(r"^## (.*)\n", PAGE.read_text(), flags=re.MULTILINE)
    found = BLOCK.findall(parts[0] if not section else parts[1 + parts.index(section)])
    assert found
    return [(str(language), str(code)) for language, code in found]


def run_commands(section: str) -> None:
    """Run every command of a section, with small settings."""
    lines = [code for language, code in blocks(section) if language == "bash"]
    for line in "".join(lines).splitlines():
        if line.startswith("robo-rl "):
            verb, *given = shlex.split(line)[1:]
            words = dict(word.split("=", 1) for word in (*given, *SMALL[verb].split()) if "=" in word)
            helps = [word for word in given if "=" not in word]
            written = [f"{key}={value}" for key, value in words.items()] if not helps else given
            assert main([verb, *written]) == 0, line


def run_code(section: str) -> dict[str, Any]:
    """Names after the Python of a section that is no file."""
    space: dict[str, Any] = {}
    for language, code in blocks(section):
        if language == "python" and not code.startswith("# my_"):
            exec(compile(code.replace("range(3000)", "range(3)"), PAGE, "exec"), space)
    return space


@pytest.mark.usefixtures("folder")
def test_a_function_is_measured(capsys: pytest.CaptureFixture[str]) -> None:
    """A torch module behind a function, against a function; a class with a memory."""
    space = run_code("Measure a function")
    assert space["result"].against.seeds == space["result"].policy.seeds
    assert "0/20 = 0 %" in capsys.readouterr().out


@pytest.fixture
def plugin(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROBO_RL_PLUGINS", "my_plugin")
    assert "export ROBO_RL_PLUGINS=my_plugin" in PAGE.read_text()


@pytest.mark.slow
@pytest.mark.usefixtures("plugin")
def test_a_network_is_trained_measured_and_exported(folder: Path) -> None:
    """Its setting is checked as others are; without the plugin, an error names the way."""
    run_commands("A network")
    policy = load_policy(folder / "runs/my_net/policy")
    assert type(policy.net).__name__ == "MyNet"  # type: ignore[attr-defined]
    assert policy.net.net[0].out_features == 256  # type: ignore[attr-defined]
    assert main(["train", "data=data/reach", "net=my_net", "net.widht=3", "out=runs/x"]) == 2
    row = NETS.pop("my_net")  # type: ignore[attr-defined]
    with pytest.raises(UnknownNameError, match="name its module in ROBO_RL_PLUGINS"):
        load_policy(folder / "runs/my_net/policy")
    NETS["my_net"] = row  # type: ignore[index]


@pytest.mark.slow
@pytest.mark.usefixtures("plugin")
def test_a_policy_is_measured_tuned_and_exported(folder: Path) -> None:
    torch.manual_seed(0)
    space = run_code("A policy")
    assert space["policy"].net[0].out_features == 128
    run_commands("A policy")
    assert rr.load_bundle(folder / "runs/mine/bundle").env.name == "arm6/reach"
    assert (folder / "runs/mine-tuned/policy").is_dir()


@pytest.mark.usefixtures("plugin")
def test_a_method_is_a_file(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All its values arrive, and a run of it has its name."""
    chosen: list[FinetuneVerb] = []
    monkeypatch.setattr("robo_rl.apps.finetune.main", lambda config: chosen.append(config) or 0)
    monkeypatch.setitem(SMALL, "finetune", "")
    run_commands("A method")
    method = chosen[0].method
    assert (method.name, method.map.scale, method.env_steps, method.learner.actor) == (
        "mine",
        0.3,
        30000,
        "deterministic",
    )
    assert (method.mix.demo, method.learner.explore_std) == (0.5, 0.3)
