"""What `robo-rl record` starts for which settings."""

from __future__ import annotations

import pytest

from robo_rl.apps.record import app_words, check, robot_words, with_device
from robo_rl.conf.record import RecordConfig
from robo_rl.core.errors import ConfigError


@pytest.mark.parametrize("driver", [None, "arm.yaml"])
def test_a_local_device_gets_its_settings(driver: str | None) -> None:
    """For the simulated arm and a real one; the page then shows what drives, and does not drive itself."""
    config = RecordConfig(
        driver=driver,
        device="leader",
        leader="leader.yaml",
        device_settings="pad.yaml",
        record_input="in.jsonl",
    )
    words = robot_words(config)["teleop"]
    assert {"device=leader", "leader=leader.yaml", "settings=pad.yaml", "record_input=in.jsonl"} <= set(words)
    assert len({word.split("=")[0] for word in words}) == len(words)  # nothing is given twice
    assert {"drives=False", "device=leader"} <= {word.replace("false", "False") for word in app_words(config)}


def test_settings_of_a_device_that_is_not_started_are_refused() -> None:
    """Without device=, and with attach=true, they would do nothing."""
    with pytest.raises(ConfigError, match="give device="):
        robot_words(RecordConfig(leader="leader.yaml"))
    with pytest.raises(ConfigError, match="without attach=true"):
        with_device({}, RecordConfig(attach=True, device="leader", leader="leader.yaml"))


@pytest.mark.parametrize(
    ("train", "says"),
    [("stepz=3", "Did you mean 'steps'"), ("steps='3", "No closing quotation"), ("steps=abc", "steps")],
)
def test_settings_of_the_training_are_checked_at_the_start(train: str, says: str) -> None:
    """Not when the button is pressed, an hour of episodes later."""
    with pytest.raises(ConfigError, match=says):
        check(RecordConfig(train=train))


def test_good_settings_of_the_training_pass() -> None:
    """Those of docs/recording.md with other numbers."""
    check(RecordConfig(train="steps=500 image.widths=[8,16] batch_size=16 chunk=16 execute=8 threads=1"))
