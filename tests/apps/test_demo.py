"""The demo as a whole: what it refuses, keeps and counts. Its stages are tested as the verbs that they are."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path

import pytest

from robo_rl.apps import demo
from robo_rl.apps.stage import begin
from robo_rl.conf.demo import DemoConfig
from robo_rl.core.errors import ConfigError


def test_a_demo_without_time_to_learn_is_refused_before_any_work(tmp_path: Path) -> None:
    """Not after minutes of collecting and training a base."""
    out = tmp_path / "demo"
    with pytest.raises(ConfigError, match="steering_steps=1200 leaves nothing to learn in"):
        demo.main(DemoConfig(out=str(out), steering_steps=1200))
    assert not out.exists()


def test_a_demo_goes_on_only_with_its_own_settings(tmp_path: Path) -> None:
    """Its report would say 50 demonstrations of another task beside a table of what 20 of the first one made."""
    first = DemoConfig(out=str(tmp_path))
    demo.check_same(first, tmp_path)
    demo.check_same(replace(first, env="metaworld/push-v3"), tmp_path)  # nothing was done yet: a slip, mended
    (tmp_path / demo.STAGES_FILE).write_text("{}")
    demo.check_same(replace(first, env="metaworld/push-v3", overwrite=True), tmp_path)
    with pytest.raises(ConfigError, match=r"started with demos=20 and cannot go on with demos=50"):
        demo.check_same(replace(first, env="metaworld/push-v3", demos=50), tmp_path)


def test_a_stage_costs_what_it_cost_before_ctrl_c_too(tmp_path: Path) -> None:
    """A base that was trained in two parts must not stand in the table with the seconds of the second."""

    def stopped() -> None:
        time.sleep(0.2)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        demo.Stages(tmp_path).run("train", "Train", stopped)
    spent = demo.Stages(tmp_path).run("train", "Train", lambda: None)
    assert spent["wall_s"] >= spent["stopped_s"] >= 0.2
    assert demo.Stages(tmp_path).wall_s == spent["wall_s"]


def test_ctrl_c_of_the_terminal_reaches_the_demo_alone(tmp_path: Path) -> None:
    """It passes one signal on; with the terminal's own the fine-tuning would have had two, and have saved nothing."""
    with (tmp_path / "log").open("w") as log:
        process = begin(["--version"], log)
        assert os.getpgid(process.pid) == process.pid != os.getpgrp()
        assert process.wait(60) == 0
    assert "robo-rl" in (tmp_path / "log").read_text()
