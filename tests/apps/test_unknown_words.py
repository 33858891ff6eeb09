"""Instructions with words that a policy was not trained on: named, and refused where it knows none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from policies.checkpoint import save_policy
from policies.told import unread_words, vocabulary_in
from robo_rl.apps import evaluate
from robo_rl.conf.schema import EvaluateConfig
from robo_rl.core.errors import ConfigError
from robo_rl.eval.timing import Latency
from tests.policies.small_vla import WORDS, sides_env, small_vla

pytest.importorskip("transformers", reason="transformers is not installed: pip install 'robo-rl[vla]'")


@pytest.fixture(scope="module")
def config() -> dict[str, Any]:
    return small_vla().config()


def test_evaluate_names_unknown_words_and_refuses_them_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a known word every instruction is the same to the policy, and its success says nothing."""
    monkeypatch.setattr(evaluate, "make_env", lambda *given, **options: sides_env(1))
    monkeypatch.setattr(evaluate, "latencies_on", lambda *given: [Latency(1.0, 1.0, 1, 1)])
    save_policy(tmp_path, small_vla(), {})
    quick = {"episodes": 1, "num_envs": 1, "device": "cpu"}
    for text, unread in (("go Right", []), ("right zzz, qqq zzz", ["zzz", "qqq"])):
        done = evaluate.run_evaluation(EvaluateConfig(str(tmp_path), instruction=text, **quick))  # type: ignore[arg-type]
        assert done.unread.get(tmp_path, []) == unread
        assert ("does not know these words of the instruction" in str(done)) is bool(unread)
    with pytest.raises(ConfigError, match=r"knows no word of .*'zzz qqq'.*: go, left, right, side, the, to$"):
        evaluate.run_evaluation(EvaluateConfig(str(tmp_path), instruction="zzz qqq"))


def test_the_vocabulary_of_a_base_counts_and_bytes_have_none(config: dict[str, Any]) -> None:
    assert vocabulary_in({"env": {}, "base": {"kind": "vla", "config": config}}) == list(WORDS)
    for change in ({"tokens": "bytes"}, {"backbone": "/models/smolvlm"}):
        other = config | {"vla": config["vla"] | change}
        assert vocabulary_in(other) == []
        assert unread_words("zzz", other) == []
    assert unread_words("zzz", {"env": {}}) == []  # a policy that is no VLA
