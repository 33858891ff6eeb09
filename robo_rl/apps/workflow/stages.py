"""Stages of `robo-rl demo`: timed calls of verbs, each resumed after a stop."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import IO, Any, TextIO

from robo_rl.apps.cli import main as cli
from robo_rl.apps.nodes.process import child_command
from robo_rl.conf.demo import DemoConfig
from robo_rl.core.errors import RoboRLError
from robo_rl.core.files.durable import read_json, write_json
from robo_rl.eval.timing import cpu_seconds
from robo_rl.runs.metrics import read_metrics
from robo_rl.runs.progress import progress

STAGES_FILE, STOPPED_FILE, SETTINGS_FILE = "stages.json", "stopped.json", "demo.json"
METHODS = ("steering", "residual")
POLL_S = 2.0
ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


class StageError(RoboRLError):
    """A stage that failed; its error has been printed already."""

    exit_code = 1


class Stages:
    """Finished stages with their times, including parts before Ctrl-C."""

    def __init__(self, folder: Path) -> None:
        self.path, self._stopped_path = folder / STAGES_FILE, folder / STOPPED_FILE
        self.done: dict[str, dict[str, Any]] = read_json(self.path) if self.path.exists() else {}
        self._stopped: dict[str, list[float]] = (
            read_json(self._stopped_path) if self._stopped_path.exists() else {}
        )

    def run(self, name: str, title: str, work: Callable[[], dict[str, Any] | None]) -> dict[str, Any]:
        """Run a stage unless it is done; returns its notes with `wall_s` and `cpu_s`.

        `stopped_s`: the part of `wall_s` before Ctrl-C.
        """
        number = f"{len(self.done) + 1}. " if name not in self.done else ""
        print(f"\n{number}{title}{'' if number else ' (done before)'}", flush=True)
        if name not in self.done:
            before_s, before_cpu_s = self._stopped.get(name, [0.0, 0.0])
            start_s, start_cpu_s = time.monotonic() - before_s, cpu_seconds() - before_cpu_s
            try:
                noted = work() or {}
            except KeyboardInterrupt:
                self._stopped[name] = [time.monotonic() - start_s, cpu_seconds() - start_cpu_s]
                write_json(self._stopped_path, self._stopped)
                raise
            spent = {
                "wall_s": time.monotonic() - start_s,
                "cpu_s": cpu_seconds() - start_cpu_s,
                "stopped_s": before_s,
            }
            self.done[name] = noted | spent
            write_json(self.path, self.done)
        return self.done[name]

    @property
    def wall_s(self) -> float:
        return float(sum(stage["wall_s"] for stage in self.done.values()))


def verb(name: str, *overrides: str) -> None:
    """Call a verb in this process, without its advice on the next command, which the demo itself calls.

    Raises StageError if it fails.
    """
    with redirect_stdout(WithoutAdvice(sys.stdout)):
        code = cli.main([*name.split(), *filter(None, overrides)])
    if code == 130:
        raise KeyboardInterrupt("the same command continues with the stage that was stopped")
    if code != 0:
        raise StageError(
            f"the stage `robo-rl {name}` failed (exit code {code}); start the demo again to continue"
        )


class WithoutAdvice(io.TextIOBase):
    """Text stream that passes on all lines but `Next: ...` and what follows it."""

    def __init__(self, stream: TextIO) -> None:
        self._stream, self._line, self._advice = stream, "", False

    def write(self, text: str) -> int:
        """Pass on the lines that are complete."""
        *lines, self._line = (self._line + text).split("\n")
        for line in lines:
            self._advice |= line.startswith("Next:")
            if not self._advice:
                self._stream.write(line + "\n")
        return len(text)

    def flush(self) -> None:
        self._stream.flush()


def again(run: Path) -> str:
    """Override that resumes the run of a stopped demo."""
    return "resume=true" if (run / "run.json").exists() else ""


def side_by_side(config: DemoConfig, out: Path) -> dict[str, Any]:
    """Train both methods in parallel, each in its own process with one thread."""
    steps = {"steering": config.steering_steps, "residual": config.residual_steps}
    started = time.monotonic()
    logs = {method: (out / f"{method}.log").open("w") for method in METHODS}
    runs = {method: _start(config, out, method, steps[method], logs[method]) for method in METHODS}
    wall_s: dict[str, float] = {}
    try:
        with progress(sum(steps.values()), "fine-tune", "step") as bar:
            while len(wall_s) < len(runs):
                time.sleep(POLL_S)
                bar.update(sum(_step(out / method) for method in METHODS) - bar.n)
                bar.set_postfix_str(
                    ", ".join(f"{method} {_success(out / method)}" for method in METHODS), refresh=False
                )
                for method, run in runs.items():
                    if method not in wall_s and run.poll() is not None:
                        wall_s[method] = time.monotonic() - started
                        _check(method, run.returncode, out)
            bar.update(sum(steps.values()) - bar.n)
    finally:
        for run in runs.values():
            if run.poll() is None:
                run.send_signal(signal.SIGINT)
                run.wait()
        for log in logs.values():
            log.close()
    return {"wall_s_by_method": wall_s}


def _start(config: DemoConfig, out: Path, method: str, steps: int, log: Any) -> subprocess.Popen[bytes]:
    words = [
        "finetune", f"base={out / 'base'}", f"out={out / method}",
        f"method={method}", f"env_steps={steps}", f"demos={out / 'demonstrations'}", f"seed={config.seed}",
        f"eval_every={max(steps // 4, 1)}", "final_episodes=10", *filter(None, [again(out / method)]),
    ]  # fmt: skip
    return begin(words, log)


def begin(words: Sequence[str], log: IO[Any]) -> subprocess.Popen[bytes]:
    """Start `robo-rl <words>` with one thread and its output in `log`; it saves and stops when the demo ends.

    The process has its own session. Otherwise it would receive the terminal's Ctrl-C and then the demo's
    signal, and a second signal stops it at once, without a checkpoint.
    """
    return subprocess.Popen(
        child_command("robo_rl", words), stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
        env=os.environ | ONE_THREAD, start_new_session=True,
    )  # fmt: skip


def _check(method: str, code: int, out: Path) -> None:
    if code != 0:
        tail = "\n".join((out / f"{method}.log").read_text().splitlines()[-15:])
        raise StageError(f"`robo-rl finetune method={method}` failed (exit code {code}):\n{tail}")


def _lines(run: Path) -> Sequence[dict[str, Any]]:
    return list(read_metrics(run / "metrics.jsonl"))


def _step(run: Path) -> int:
    return max((int(line["step"]) for line in _lines(run)), default=0)


def _success(run: Path) -> str:
    rates = [line["eval/success"] for line in _lines(run) if "eval/success" in line]
    return " -> ".join(f"{100 * rate:.0f} %" for rate in rates[-2:]) or "..."
