"""Inference in a separate process, so that it neither delays nor blocks the loop that commands the robot.

A thread would do both, because the interpreter runs one thread at a time. Observations and chunks pass
through shared memory, and a word through a pipe; nothing here waits. A child that dies or hangs appears as a
chunk that does not arrive.
"""

from __future__ import annotations

import contextlib
import multiprocessing as mp
import time
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy import ndarray

from hardware.loop.observation import Seen
from policies.deploy.bundle import Bundle, load_bundle
from policies.deploy.graph import Device
from policies.remote.address import Address
from robo_rl.core.errors import ConfigError, RoboRLError
from robo_rl.core.process_signals import exit_with_parent, leave_to_parent
from robo_rl.core.shapes import Float
from robo_rl.core.text.instruction import INSTRUCTION

_CLOSE_S = 1.0


@dataclass(frozen=True, slots=True)
class Running:
    """Rest of the chunk that is being played: `action` (k, a) in the units of the action, from now on.

    The first `frozen` actions will have been played when the answer to a request made now arrives.
    """

    action: Float[ndarray, "k a"]
    frozen: int


@runtime_checkable
class Inference(Protocol):
    """Turns stacked observations into chunks, asynchronously. Decision 0 starts an episode."""

    ready: bool  # has it said that it can?
    fault: str  # why it no longer answers; empty while it does

    def request(self, seen: Seen, decision: int, running: Running | None = None) -> bool:
        """Ask for a chunk that continues `running`; False while an answer is pending. Never waits."""
        ...

    def poll(self) -> tuple[Float[ndarray, "k a"], float] | None:
        """(chunk in the units of the action, seconds of inference), once; None while there is none.

        Never waits.
        """
        ...

    def close(self) -> None: ...


class InferenceProcess:
    """A bundle in a child process that ends with its parent. seed: of the policy's noise.

    realtime: chunks continue the chunk being played (`policies.base.realtime`), inferred by torch from the
    bundle's weights. remote: server that infers instead of this machine; the bundle is then the contract that
    it must fulfil.
    """

    def __init__(
        self,
        bundle: Bundle,
        device: Device = "auto",
        threads: int = 1,
        seed: int = 0,
        realtime: bool = False,
        remote: Address | None = None,
    ) -> None:
        if realtime and remote is not None:
            raise ConfigError(
                "realtime=true infers from the bundle's weights on this machine; leave it out, or remote=."
            )
        context = mp.get_context("spawn")
        self.ready, self.fault, self._pending = False, "", False
        shapes = {k: ((bundle.obs_steps, *spec.shape), spec.dtype) for k, spec in bundle.env.obs.items()}
        shared = {key: context.RawArray("b", _bytes(*row)) for key, row in shapes.items()}
        answer = ((bundle.chunk, bundle.env.action.dim), "float32")
        out = context.RawArray("b", _bytes(*answer))
        before = context.RawArray("b", _bytes(*answer))
        self._before = _view(before, *answer)
        self._inputs = {key: _view(shared[key], *shapes[key]) for key in shapes}
        self._chunk = _view(out, *answer)
        self._pipe, theirs = context.Pipe()
        arguments = (
            theirs,
            str(bundle.folder),
            device,
            threads,
            seed,
            shared,
            out,
            before if realtime else None,
            remote,
        )
        self.process = context.Process(target=_serve, args=arguments, daemon=True, name="inference")
        self.process.start()
        theirs.close()  # so that the child's death is an end of file here

    def request(self, seen: Seen, decision: int, running: Running | None = None) -> bool:
        if self._pending or not self.ready or self.fault:
            return False
        for key, target in self._inputs.items():
            target[...] = seen[key]
        known = 0 if running is None else min(len(running.action), len(self._before))
        if running is not None:
            self._before[:known] = running.action[:known]
        self._pending = True
        try:
            self._pipe.send((decision, 0 if running is None else min(running.frozen, known), known))
        except OSError:
            self._lost()
        return not self.fault

    def poll(self) -> tuple[Float[ndarray, "k a"], float] | None:
        try:
            if self.fault or not self._pipe.poll():
                return None
            word: Any = self._pipe.recv()
        except (EOFError, OSError):
            self._lost()
            return None
        if word == "ready":
            self.ready = True
            return None
        if isinstance(word, str):
            self.fault = word
            return None
        self._pending = False
        return self._chunk.copy(), float(word)

    def close(self) -> None:
        """End the child. May be called twice."""
        self._pipe.close()
        self.process.terminate()
        self.process.join(_CLOSE_S)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()

    def _lost(self) -> None:
        self.fault = self.fault or "the inference process has died"


def _serve(
    pipe: Connection, folder: str, device: Device, threads: int, seed: int, shared: dict[str, Any], out: Any,
    before: Any, remote: Address | None,
) -> None:  # fmt: skip
    """Serve one request at a time in the child, until the parent closes the pipe."""
    import signal

    exit_with_parent()
    leave_to_parent(signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    with contextlib.suppress(EOFError, OSError):  # the parent is gone
        try:
            _answer(pipe, folder, device, threads, seed, shared, out, before, remote)
        except RoboRLError as error:
            pipe.send(str(error))


def _answer(
    pipe: Connection, folder: str, device: Device, threads: int, seed: int, shared: dict[str, Any], out: Any,
    before: Any, remote: Address | None,
) -> None:  # fmt: skip
    import torch

    from hardware.loop.sampler import RememberingSampler, graph_sampler, guided_sampler, remote_sampler
    from policies.deploy.runner import bundle_noise

    torch.set_num_threads(threads)
    bundle = load_bundle(Path(folder))
    if remote is not None:
        sample = remote_sampler(bundle, remote)
    elif before is None:
        sample = graph_sampler(bundle, device, threads)
    else:
        old = torch.from_numpy(_view(before, (bundle.chunk, bundle.env.action.dim), "float32"))
        sample = guided_sampler(bundle, device, old)
    noise = bundle_noise(bundle)
    noise.reset([0], [seed])
    inputs = {
        key: torch.from_numpy(_view(shared[key], (bundle.obs_steps, *spec.shape), spec.dtype)).unsqueeze(0)
        for key, spec in bundle.env.obs.items()
    }
    chunk = _view(out, (bundle.chunk, bundle.env.action.dim), "float32")
    blank = {key: torch.zeros_like(value) for key, value in inputs.items()}
    if INSTRUCTION in blank:  # a text without words is none, and a policy may answer it by NaN
        blank[INSTRUCTION][..., 0] = ord("a")
    for known in (0, bundle.chunk):  # the first calls allocate memory: do them before a robot waits
        sample(blank, noise.draw([0], [0]), 0, known)
    pipe.send("ready")
    while True:
        decision, frozen, known = pipe.recv()
        if decision == 0 and isinstance(sample, RememberingSampler):
            sample.begin()
        begin_s = time.perf_counter()
        with torch.no_grad():
            normal = sample(inputs, noise.draw([0], [decision]), frozen, known)
        chunk[...] = bundle.env.action.denormalize(normal)[0].numpy()
        pipe.send(time.perf_counter() - begin_s)


def _bytes(shape: tuple[int, ...], dtype: str) -> int:
    return int(np.prod(shape)) * np.dtype(dtype).itemsize


def _view(shared: Any, shape: tuple[int, ...], dtype: str) -> Any:
    return np.frombuffer(shared, dtype=dtype).reshape(shape)
