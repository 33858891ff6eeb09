"""The page of a repository on the Hub shows no folder of the machine that pushed it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import yaml

from robo_rl.apps.hub import contents
from robo_rl.apps.hub.card import card
from robo_rl.runs.success_note import EVALUATION_FILE, read_success_note, write_success_note


@pytest.mark.parametrize("backbone", ["/models/of/mine/SmolVLM2-500M", "models/of/mine/SmolVLM2-500M"])
def test_the_card_shows_no_folder_of_this_machine(made: Path, tmp_path: Path, backbone: str) -> None:
    """The page shows a pretrained backbone by its name without a folder, and no run of `image.init`."""
    run = shutil.copytree(made / "run", tmp_path / "run")
    settings = (run / "config.yaml").read_text().replace("init: null", "init: runs/of/mine")
    settings = settings.replace("policy:\n", f"policy:\n  backbone: {backbone}\n")
    (run / "config.yaml").write_text(settings)
    page = card(contents.contents_of(run), run, "me/vla")
    assert "\n  backbone: SmolVLM2-500M\n" in page
    assert "of/mine" not in page


@pytest.mark.parametrize("reported", [True, False])
def test_the_card_shows_no_folder_in_the_options_of_an_environment(
    made: Path, tmp_path: Path, reported: bool
) -> None:
    """The page shows the file of robot= by its name alone, wherever it names the environment."""
    run, name = shutil.copytree(made / "run", tmp_path / "run"), "gym/point_env:Point-v0"
    env, other = (f"arm/reach:history=2,robot=/srv/alice/my=arm/{each}.yaml" for each in ("a", "b"))
    saved = run / "policy" / "policy.json"
    saved.write_text(saved.read_text().replace(name, env))
    settings = yaml.safe_load((run / "config.yaml").read_text())
    settings |= {"env": env, "ray_address": "alice-pc:6379", "tracks": ["/srv/alice/x.yaml", other]}
    (run / "config.yaml").write_text(yaml.safe_dump(settings))
    note = read_success_note(run / "policy")
    assert note is not None
    if not reported:
        note = {"mean_return": 1.0, "n": 4}
    write_success_note(run / "policy", note | {"env": env})
    page = card(contents.contents_of(run), run, "me/reach")
    assert "- environment: `arm/reach:history=2,robot=a.yaml`, 10 Hz" in page
    assert "\nenv: arm/reach:history=2,robot=a.yaml\n" in page
    assert "\n- x.yaml\n- arm/reach:history=2,robot=b.yaml\n" in page
    assert page.count("robot=a.yaml") == 3
    assert "alice" not in page
    (run / "policy" / EVALUATION_FILE).unlink()
    rate = {"rate": {"k": 1, "n": 2}}
    (run / "results.json").write_text(json.dumps({"head": rate, "env": other}))
    page = card(contents.contents_of(run), run, "me/reach")
    assert "on `arm/reach:history=2,robot=a.yaml` itself, but on arm/reach:history=2,robot=b.yaml:" in page
    assert "alice" not in page


def test_the_card_of_a_dataset_shows_no_folder(made: Path, tmp_path: Path) -> None:
    """In the environment's name, and in the notes of the command that made it."""
    data = shutil.copytree(made / "data", tmp_path / "data")
    text = json.loads((data / "dataset.json").read_text())
    text["env"]["name"] = "arm/reach:robot=/srv/alice/arm.yaml"
    text["info"] = {"overlay": {"data": "data/of/alice", "robot": "/srv/alice/arm.yaml"}}
    (data / "dataset.json").write_text(json.dumps(text))
    page = card(contents.contents_of(data), data, "me/reach")
    assert "`arm/reach:robot=arm.yaml`, 10 Hz" in page
    assert "alice" not in page
