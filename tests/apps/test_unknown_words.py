"""Instructions with words that a policy was not trained on: named, and refused where it knows none."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from policies.checkpoint import save_policy
from policies.vocabulary import unread_sentence, unread_words, vocabulary_in
from robo_rl.apps import distill, evaluate, finetune
from robo_rl.apps.tuning.check import unread_by_base
from robo_rl.conf.distill import DistillVerb
from robo_rl.conf.finetune import FinetuneVerb, MethodConfig
from robo_rl.conf.schema import CollectConfig, EvaluateConfig
from robo_rl.core.errors import ConfigError
from robo_rl.eval.timing import Latency
from robo_rl.runs.demonstrators import make_demonstrator
from robo_rl.runs.loaded_policy import unread_in
from tests.policies.small_vla import SPEC, WORDS, sides_env, small_vla

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


NAMED = "arm/reach:cameras=view,instruction="  # an environment whose name has an instruction


def test_an_instruction_in_the_name_of_the_environment_is_checked(tmp_path: Path) -> None:
    """By every verb, before a simulator starts or a folder is made; `instruction=` is told in its place."""
    save_policy(tmp_path / "policy", small_vla(), {})
    vla, out = str(tmp_path / "policy"), str(tmp_path / "out")
    folder = Path(vla)
    assert unread_in(folder, f"{NAMED}right zzz") == ["zzz"]
    assert unread_in(folder, f"{NAMED}zzz", "go qqq") == ["qqq"]
    assert unread_in(folder, "metaworld/mt6") == unread_in(folder, f"{NAMED}go") == []
    assert unread_in(Path("remote:127.0.0.1:5757"), f"{NAMED}zzz") == []
    tuning = FinetuneVerb(out=out, base=vla, env=f"{NAMED}right zzz", method=MethodConfig(name="steering"))
    assert unread_by_base(tuning) == unread_sentence(folder, ["zzz"])
    with pytest.raises(ConfigError, match="knows no word of the instruction 'zzz qqq'"):
        finetune.main(replace(tuning, env=f"{NAMED}zzz qqq"))
    with pytest.raises(ConfigError, match="knows no word of the instruction 'zzz qqq'"):
        distill.main(DistillVerb(teacher=vla, out=out, env=f"{NAMED}zzz qqq"))
    assert not Path(out).exists()


def test_a_policy_that_records_names_unknown_words(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save_policy(tmp_path, small_vla(), {})
    with closing(sides_env(1)) as env:
        for words, unread in (("go right", []), ("right zzz", ["zzz"])):
            env.spec = replace(SPEC, name=f"{NAMED}{words}")
            make_demonstrator(CollectConfig(env.spec.name, str(tmp_path), policy=str(tmp_path)), env)
            assert capsys.readouterr().out.strip() == unread_sentence(tmp_path, unread)
        env.spec = replace(SPEC, name=f"{NAMED}zzz")
        with pytest.raises(ConfigError, match="knows no word"):
            make_demonstrator(CollectConfig(env.spec.name, str(tmp_path), policy=str(tmp_path)), env)


def test_the_vocabulary_of_a_base_counts_and_bytes_have_none(config: dict[str, Any]) -> None:
    assert vocabulary_in({"env": {}, "base": {"kind": "vla", "config": config}}) == list(WORDS)
    for change in ({"tokens": "bytes"}, {"backbone": "/models/smolvlm"}):
        other = config | {"vla": config["vla"] | change}
        assert vocabulary_in(other) == []
    assert vocabulary_in({"env": {}}) == []  # a policy that is no VLA
    assert unread_words("zzz", []) == []
