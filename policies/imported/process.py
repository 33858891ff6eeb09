"""A LeRobot checkpoint served by LeRobot itself, in a process of LeRobot's own environment."""

from __future__ import annotations

import json
import os
import socket
import subprocess
from pathlib import Path

from policies.imported import lerobot_process
from policies.imported.checkpoint import CONFIG, LerobotCheckpoint
from policies.remote.contract import PolicyContract, normalizer_id
from policies.remote.token import VARIABLE
from robo_rl.core.errors import CheckpointError, ConfigError, RemoteError
from robo_rl.core.spec import EnvSpec

KINDS = {"act": "chunk_size", "diffusion": "horizon"}  # type -> key of its chunk's length
_END_S = 15.0


def lerobot_contract(read: LerobotCheckpoint, env: EnvSpec, keys: dict[str, str]) -> PolicyContract:
    """Contract of a checkpoint that LeRobot runs. Raises ConfigError for a type that is not supported."""
    if read.kind not in KINDS:
        raise ConfigError(
            f"{read.folder} is a policy of type '{read.kind}'; LeRobot's act and diffusion can be served."
        )
    if read.config.get("temporal_ensemble_coeff") is not None:
        raise ConfigError(
            f"{read.folder} averages over its chunks (temporal_ensemble_coeff), which is not part of a "
            f"policy here. Set it to null in a copy of {CONFIG}, and evaluate with ensemble=<its number>."
        )
    obs_steps, chunk = read.number("n_obs_steps"), read.number(KINDS[read.kind])
    execute = read.number("n_action_steps")
    if past_actions(read) + execute > chunk:
        raise CheckpointError(f"{read.folder} executes {execute} actions of a chunk of {chunk}.")
    statistics = {key: read.center_and_scale(feature) for key, feature in keys.items()}
    return PolicyContract(
        str(read.folder),
        env,
        obs_steps,
        chunk,
        execute,
        noise=0.0 if read.kind == "act" else 1.0,  # act uses no noise
        normalizer=normalizer_id({key: (c.numpy(), s.numpy()) for key, (c, s) in statistics.items()}),
        refines=False,
        runtime="LeRobot",
    )


def past_actions(read: LerobotCheckpoint) -> int:
    """Actions at the beginning of a chunk that belong to steps that are over."""
    return read.number("n_obs_steps") - 1 if read.kind == "diffusion" else 0


class LerobotProcess:
    """The process that serves a checkpoint on `listener`. It ends with this one.

    python: interpreter of an environment with lerobot. Raises ConfigError if it cannot be run, and
    RemoteError if LeRobot does not load the checkpoint.
    """

    def __init__(
        self, python: str, read: LerobotCheckpoint, contract: PolicyContract, keys: dict[str, str],
        listener: socket.socket, *, token: str | None = None, device: str = "cpu", clients: int = 8,
    ) -> None:  # fmt: skip
        job = {
            "folder": str(read.folder.resolve()),
            "contract": contract.to_json(),
            "keys": keys,
            "past": past_actions(read),
            "device": device,
            "clients": clients,
            "parent": os.getpid(),
        }
        # Not this environment's paths; the token is not a word of the command line, which others can read.
        environment = {
            key: value
            for key, value in os.environ.items()
            if key not in ("PYTHONPATH", "PYTHONHOME", VARIABLE)
        } | ({} if token is None else {VARIABLE: token})
        command = [python, str(Path(lerobot_process.__file__)), str(listener.fileno()), json.dumps(job)]
        try:
            self.process = subprocess.Popen(
                command, env=environment, pass_fds=[listener.fileno()], stdout=subprocess.PIPE, text=True
            )
        except OSError as error:
            raise ConfigError(
                f"python={python} cannot be run ({error.strerror}). Give the python of an environment in "
                "which lerobot is installed, such as <venv>/bin/python."
            ) from error
        assert self.process.stdout is not None
        for line in self.process.stdout:  # LeRobot may print before
            if line == "ready\n":
                return
        self.close()
        raise RemoteError(
            f"LeRobot in {python} did not load {read.folder} (exit code {self.process.returncode}); its "
            "reason is above."
        )

    def close(self) -> str:
        """End the process; returns the rest of what it printed."""
        self.process.terminate()
        try:
            output, _ = self.process.communicate(timeout=_END_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            output, _ = self.process.communicate()
        return output.strip()
