"""Server of a LeRobot checkpoint, run by the Python of LeRobot's own environment.

    <python> lerobot_process.py <socket> <job>

`policies.imported.process` starts it. It needs LeRobot. The modules of the socket, which import nothing but
NumPy, are found beside this file, without adding a path to the environment's.
socket: number of the listening socket. job: JSON with folder, contract, keys (observation -> feature), past,
device, clients and parent.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import types
import zlib
from importlib import import_module
from pathlib import Path
from typing import Any


def find_own_packages() -> None:
    """Make `policies` and `robo_rl` importable from this checkout or installation, and nothing else of it."""
    root = Path(__file__).resolve().parents[2]
    for name in ("policies", "robo_rl"):
        package = types.ModuleType(name)
        package.__path__ = [str(root / name)]
        sys.modules[name] = package


class LerobotPolicy:
    """`sample` of a checkpoint, by LeRobot's own policy and processors.

    past: actions at the beginning of LeRobot's chunk that belong to steps that are over.
    """

    def __init__(self, job: dict[str, Any]) -> None:
        configs = import_module("lerobot.configs.policies")
        factory = import_module("lerobot.policies.factory")
        import torch

        folder, device = job["folder"], job["device"]
        config = configs.PreTrainedConfig.from_pretrained(folder)
        config.device = device
        self._torch, self._keys, self._past = torch, job["keys"], job["past"]
        self._kind, self._images = config.type, list(config.image_features)
        self._policy = factory.get_policy_class(config.type).from_pretrained(folder, config=config)
        self._policy.to(device).eval()
        self._before, self._after = factory.make_pre_post_processors(
            config,
            pretrained_path=folder,
            preprocessor_overrides={"device_processor": {"device": device}},
        )
        action = job["contract"]["env"]["action"]
        self._low, self._high = (torch.tensor(action[end]) for end in ("low", "high"))

    def __call__(self, obs: dict[str, Any], noise: Any) -> Any:
        torch = self._torch
        with torch.no_grad():
            batch = self._before({feature: self._tensor(obs[key]) for key, feature in self._keys.items()})
            chunk = self._after(self._chunk(batch, torch.from_numpy(noise)))
            if self._past:
                chunk = torch.cat([chunk[:, self._past :], chunk[:, -1:].expand(-1, self._past, -1)], dim=1)
            normal = 2.0 * (chunk - self._low) / (self._high - self._low) - 1.0
            return normal.float().contiguous().numpy()

    def _tensor(self, array: Any) -> Any:
        """Pictures as (b, To, 3, h, w) in [0, 1]."""
        tensor = self._torch.from_numpy(array)
        if array.dtype == "uint8":
            tensor = tensor.permute(0, 1, 4, 2, 3).float() / 255.0
        return tensor[:, 0] if self._kind == "act" else tensor  # act reads one step, without its axis

    def _chunk(self, batch: dict[str, Any], noise: Any) -> Any:
        """All actions of LeRobot's chunk, normalised as in its training."""
        torch = self._torch
        if self._kind == "act":
            return self._policy.predict_action_chunk(batch)
        # DDPM draws further noise: a function of the initial one, so that chunks can be repeated.
        torch.manual_seed(zlib.crc32(noise.numpy().tobytes()))
        batch = dict(batch)
        if self._images:
            batch["observation.images"] = torch.stack([batch[key] for key in self._images], dim=-4)
        model = self._policy.diffusion
        cond = model._prepare_global_conditioning(batch)
        return model.conditional_sample(len(cond), global_cond=cond, noise=noise.to(cond.device))


def main(number: int, job: dict[str, Any]) -> None:
    """Serve until SIGINT or SIGTERM, or until the parent ends."""
    find_own_packages()
    from policies.remote.contract import PolicyContract
    from policies.remote.server import PolicyServer, ServedPolicy
    from policies.remote.token import read_token
    from robo_rl.core.process_signals import ended_by, stop_with_parent

    stop_with_parent(job["parent"])
    stopped: list[int] = []
    for each in ended_by():
        signal.signal(each, lambda number, frame: stopped.append(number))
    served = ServedPolicy(PolicyContract.from_json(job["contract"]), LerobotPolicy(job))
    listener = socket.socket(fileno=number)
    server = PolicyServer(served, listener, read_token(None), most_clients=job["clients"], say=print_line)
    print("ready", flush=True)
    server.serve(lambda: bool(stopped))
    print(f"serve: stopped after {server.answered} decisions for {server.clients} clients.", flush=True)


def print_line(sentence: str) -> None:
    print(sentence, file=sys.stderr, flush=True)


if __name__ == "__main__":
    os.environ.setdefault("HF_HUB_OFFLINE", "1")  # a checkpoint is a folder; nothing is downloaded
    main(int(sys.argv[1]), json.loads(sys.argv[2]))
