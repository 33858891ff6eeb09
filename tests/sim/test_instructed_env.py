"""An environment whose name has an instruction: the same one, with the words in every observation."""

from __future__ import annotations

import pytest
import torch

from robo_rl.core.errors import ConfigError, UnknownNameError
from robo_rl.core.text.instruction import INSTRUCTION, to_text
from sim.registry import has_dense_reward, make_env, make_expert, same_task, task_in, with_option
from sim.vec.conformance import check_vec_env

TOLD = "arm6/reach:instruction=go to the point"


def test_it_is_the_same_environment_with_words() -> None:
    """Same episodes, and the words at the end of one, too; the name in the contract makes it again."""
    plain, told = make_env("arm6/reach", 2, max_episode_steps=3), make_env(TOLD, 2, max_episode_steps=3)
    assert told.spec.name == TOLD
    seen, obs = plain.reset(7), told.reset(7)
    for _ in range(4):
        torch.testing.assert_close(obs["state"], seen["state"], rtol=0, atol=0)
        assert [to_text(row.numpy()) for row in obs[INSTRUCTION]] == ["go to the point"] * 2
        action = torch.zeros(2, 6)
        seen, (obs, _, _, _, info) = plain.step(action)[0], told.step(action)
        assert to_text(info["final_obs"][INSTRUCTION][0].numpy()) == "go to the point"
    check_vec_env(told, steps=6)
    plain.close()
    told.close()


def test_other_options_and_the_expert_stay() -> None:
    name = with_option("arm/reach:state=body", "instruction", "touch the ball")
    env = make_env(name, 1)
    assert env.spec.name == "arm/reach:state=body,instruction=touch the ball"
    assert set(env.spec.obs) == {"state", INSTRUCTION}
    env.reset(0)
    make_expert(name, env=env)  # it watches the environment itself
    assert same_task(name, "arm/reach")
    assert not has_dense_reward(name)
    assert task_in(name, 3) == 0
    env.close()


@pytest.mark.parametrize(
    "words",
    [
        "put the cube into bin #3",
        '"reach',
        "@home go",
        "`x`",
        "& go",
        "%d",
        "*go",
        "!go",
        "open: it",
        "a=b",
        "[go]",
        "- go",
        "0x10",
        "2026-01-01",
        "null",
    ],
)
def test_every_text_is_told_as_it_is_written(words: str) -> None:
    """Also where YAML would read a comment, a tag, a number or nothing; the name in the contract makes it
    again.
    """
    name = f"arm/reach:state=body,instruction={words}"
    env = make_env(name, 1)
    assert to_text(env.reset(0)[INSTRUCTION][0].numpy()) == words
    assert env.spec.name == name
    assert with_option(name, "instruction", words) == name
    env.close()


@pytest.mark.parametrize(
    ("name", "error", "says"),
    [
        ("arm6/reach:instruction=", ConfigError, "instruction is empty"),
        ("arm/reach:state=body, instruction= ", ConfigError, "instruction is empty"),
        ("arm6/reach:instruction=open\nit", ConfigError, r"control character '\\n'"),
        ("arm6/reach:instruction=open\x07it", ConfigError, r"control character '\\x07'"),
        ("arm6/reach:instruction=open it, then stop", ConfigError, "Commas separate options"),
        ("arm6/reach:instruction=" + "go " * 60, ConfigError, "at most 128"),
        ("metaworld/mt6:instruction=open it", ConfigError, "gives instructions itself"),
        ("arm6/reach:instructon=open it", UnknownNameError, "instructon"),
    ],
)
def test_what_is_no_instruction_is_refused(name: str, error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        make_env(name, 1)
