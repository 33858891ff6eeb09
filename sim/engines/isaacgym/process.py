"""Isaac Gym's worker process: start, requests, failure reports and clean-up."""

from __future__ import annotations

import os
import signal
import subprocess
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from robo_rl.core.errors import EnvError
from sim.engines.isaacgym import protocol
from sim.engines.isaacgym.diagnose import missing

WORKER = Path(__file__).with_name("worker.py")
_GRACE_S = 5.0  # how long a worker may take to close its simulation before it is killed
_DEATH_S = 2.0  # how long the system may take to report a death
_LAST_WORDS = 2000  # characters of its output that an error shows


class GymWorker:
    """command: the interpreter and the script, to which three open files are added.

    Memory of `size_bytes` is shared through a file without a name, which is gone when both sides are.
    """

    def __init__(
        self, command: Sequence[str], size_bytes: int, environ: Mapping[str, str] | None = None
    ) -> None:
        self.python = command[0]
        self.memory = os.memfd_create("isaacgym-slots")
        os.ftruncate(self.memory, max(1, size_bytes))
        self._output = os.memfd_create("isaacgym-output")
        their_commands, self._commands = os.pipe()
        self._answers, their_answers = os.pipe()
        files = (their_commands, their_answers, self.memory)
        try:
            self._process = subprocess.Popen(
                [*command, *map(str, files)],
                pass_fds=files,
                stdin=subprocess.DEVNULL,
                stdout=self._output,
                stderr=self._output,
                env={**os.environ, **(environ or {})},
                start_new_session=True,  # Ctrl-C is ours to handle: it closes the worker
            )
        except OSError as error:
            raise EnvError(f"The worker of isaacgym could not be started: {error}.") from error
        finally:
            os.close(their_commands)
            os.close(their_answers)
        mine = [self._commands, self._answers, self.memory, self._output]
        # Also when the engine is forgotten without close(), and at the end of the program.
        self._end = weakref.finalize(self, _end, self._process, mine)

    def ask(self, command: str, timeout_s: float, **arguments: Any) -> Any:
        """Answer of the worker. Raises EnvError, and ends the worker, when it fails, dies or does not answer
        in time.
        """
        try:
            protocol.send(self._commands, {"do": command, **arguments})
            answer = protocol.receive(self._answers, timeout_s)
        except protocol.Closed:
            raise self._failure(f"died during {command} ({self._cause()})") from None
        except TimeoutError:
            raise self._failure(
                f"did not answer to {command} within {timeout_s:g} s, and was ended"
            ) from None
        except ValueError as error:
            raise self._failure(f"answered to {command} what is no message ({error})") from error
        if "failed" not in answer:
            return answer["done"]
        if answer["failed"] == protocol.MISSING:
            self.end()
            raise missing(self.python, answer["text"])
        raise self._failure(f"failed in {command}: {answer['text'].strip()}")

    @property
    def pid(self) -> int:
        return self._process.pid

    def close(self) -> None:
        """End the worker gracefully: an idle one answers at once. May be called twice."""
        if self._end.alive:
            try:
                self.ask(protocol.CLOSE, _GRACE_S)
                self._process.wait(_GRACE_S)
            except (EnvError, subprocess.TimeoutExpired):
                pass  # it is gone, or goes now
            self.end()

    def end(self) -> None:
        self._end()

    def _cause(self) -> str:
        try:
            code = self._process.wait(_DEATH_S)
        except subprocess.TimeoutExpired:
            return "it closed its connection"
        if code >= 0:
            return f"exit code {code}"
        hint = ", killed from outside or out of memory" if code == -signal.SIGKILL else ""
        return f"{signal.Signals(-code).name}{hint}"

    def _failure(self, what: str) -> EnvError:
        text = self._last_words()
        self.end()
        return EnvError(f"The worker of isaacgym {what}.{text}")

    def _last_words(self) -> str:
        size = os.fstat(self._output).st_size
        text = (
            os.pread(self._output, _LAST_WORDS, max(0, size - _LAST_WORDS)).decode(errors="replace").strip()
        )
        return f" Its last words:\n{text}" if text else ""


def _end(process: subprocess.Popen[bytes], files: Sequence[int]) -> None:
    """Leave no process, zombie or memory behind."""
    if process.poll() is None:
        process.kill()
    process.wait()
    for file in files:
        os.close(file)
