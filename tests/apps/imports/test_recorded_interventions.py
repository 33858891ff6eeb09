"""From a recorded take-over to the rewards of a replay (RLIF)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import yaml

pytest.importorskip("rosbags", reason="rosbags is not installed: pip install 'robo-rl[dds]'")

from hardware import messages as m
from policies.tuned.direct import DirectPolicy
from robo_rl.apps.cli.main import main
from robo_rl.apps.tuning.compose import check_interventions
from robo_rl.apps.tuning.stores import build_stores, feature_dim, store_widths
from robo_rl.core.action_map import DirectMap
from robo_rl.core.errors import ConfigError
from robo_rl.data.store import DatasetWriter, EpisodeStore
from tests.apps.tuning.methods.toy_sessions import method
from tests.data.recordings import STATE_ENV, action, obs
from tests.hardware.arm_descriptions import NAMES
from tests.hardware.recording.made import S_NS, Said, commands, record, states

METHOD = ("method.reward_source=interventions",)


@pytest.fixture
def imported(tmp_path: Path) -> EpisodeStore:
    """Two seconds in which a policy drives, and a human from 1 s to 1.5 s, as the recorder saves them."""
    joint = {"low_rad": -1.0, "high_rad": 1.0, "velocity_rad_s": 2.0, "acceleration_rad_s2": 20.0}
    body = {
        "name": "mine",
        "command_hz": 50,
        "state_hz": 100,
        "joints": [{"name": n, **joint} for n in NAMES],
    }
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(body))
    flag: list[Said] = [
        ("teleop/intervention", m.Flag(True), S_NS),
        ("teleop/intervention", m.Flag(False), 3 * S_NS // 2),
    ]
    source = record(tmp_path / "bag", [*states(), *commands(), *commands(topic="command/raw"), *flag])
    words = [f"source={source}", f"robot={tmp_path / 'mine.yaml'}", f"out={tmp_path / 'data'}"]
    assert main(["data", "import", *words, "idle_s=null"]) == 0
    return EpisodeStore(tmp_path / "data")


def test_a_recorded_take_over_is_a_reward_of_minus_one(imported: EpisodeStore) -> None:
    """-1 at the last step of the policy, 0 elsewhere; steps of the human alone count as demonstrated."""
    (episode,) = imported
    human = np.asarray(episode.intervention)
    assert human.any()
    assert not human.all()
    base, action_map = DirectPolicy(imported.spec).eval(), DirectMap(imported.spec.action.dim)
    widths = store_widths(base, feature_dim(base, imported.spec), action_map)
    config = method("calql_offline", *METHOD)
    check_interventions(config, "metaworld/reach-v3")
    demo = build_stores(config, base, 1, widths, action_map, imported, dense_reward=False)["demo"]
    steps = int(demo.head[0])
    expected = np.zeros(steps, np.float32)
    expected[np.flatnonzero(human)[0] - 1] = -1.0
    np.testing.assert_array_equal(demo.data["reward"][0, :steps].numpy(), expected)
    np.testing.assert_array_equal(demo.data["demo"][0, :steps].numpy(), human[:steps])


def test_a_dataset_without_a_take_over_is_refused(tmp_path: Path) -> None:
    """A demonstrator alone was never a correction."""
    writer = DatasetWriter.create(tmp_path / "data", STATE_ENV, min_free_bytes=0, durable=False)
    with writer.episode(task="", seed=0) as episode:
        for i in range(3):
            episode.add(obs(0, i, STATE_ENV), action(0, i), intervention=True)
        episode.commit(success=True)
    writer.close()
    base, action_map = DirectPolicy(STATE_ENV).eval(), DirectMap(STATE_ENV.action.dim)
    widths = store_widths(base, feature_dim(base, STATE_ENV), action_map)
    store = EpisodeStore(tmp_path / "data")
    with pytest.raises(ConfigError, match=r"No human takes over from a policy"):
        build_stores(method("calql_offline", *METHOD), base, 1, widths, action_map, store, dense_reward=False)


def test_learning_online_from_interventions_needs_a_human() -> None:
    """While training acts and nobody can take over, the reward is 0 whatever the policy does."""
    with pytest.raises(ConfigError, match=r"method.intervene=expert, or learn from recorded ones alone"):
        check_interventions(method("rlpd", *METHOD), "metaworld/reach-v3")
