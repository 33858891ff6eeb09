"""Record, train and run on the page of `robo-rl record robot=sim_arm`, with its default settings.

`session` does all three; `recorded` and `tried` only record, and only let a given policy run.

Chromium shows the page and a scripted operator presses its keys. After the training it lets the policy run in
new scenes, and labels each episode by whether the peg is measured in the hole in time; the page counts the
labels.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from app_parts.peg_operator import PegOperator
from policies.deploy.bundle import MANIFEST

READY_S, TRAINING_S, TRIAL_S = (
    60.0,
    3600.0,
    20.0,
)  # longest waits; of a trial: as long as the operator may take
TICKS = os.sysconf("SC_CLK_TCK")
RATE = re.compile(r"(\d+)/(\d+)")  # in the page's words: successes/episodes


@dataclass(frozen=True)
class Measured:
    """Figures of one session at the page."""

    episode_s: float  # median length of a demonstration
    train_s: float  # from the button to the loaded policy
    train_cpu_s: float
    steps: int
    loss: float
    shown: str  # success as the page shows it
    successes: int
    trials: int
    taken_over: bool  # the operator stopped the running policy, and moved the arm


def session(folder: Path, chromium: str, seed: int, episodes: int, trials: int, train: str = "") -> Measured:
    """Record, press the button, wait, let the policy run. train: settings of the button; empty: default."""
    words = [f"train={train}"] if train else []
    with app(folder, seed, words) as address, at_the_page(address, chromium) as operator:
        page = operator.page
        lengths_s = demonstrate(operator, episodes)
        begun_s = time.monotonic()
        cpu_s = trained(operator, address, folder / "data-policies" / "1")
        train_s = time.monotonic() - begun_s
        for _ in range(trials):
            attempt(operator)
        shown = page.text_content(".rate-of-policy") or ""
        taken_over = trials == 0 or take_over(operator)
        training = operator.view["training"]
    successes, counted = counts(shown)
    return Measured(
        float(np.median(lengths_s)),
        train_s,
        cpu_s,
        int(training["step"]),
        float(training["loss"]),
        shown,
        successes,
        counted,
        taken_over,
    )


def recorded(folder: Path, chromium: str, seed: int, episodes: int) -> list[float]:
    """Record insertions into `folder`/data; returns their lengths [s]."""
    with app(folder, seed, []) as address, at_the_page(address, chromium) as operator:
        return demonstrate(operator, episodes)


def tried(
    folder: Path, chromium: str, seed: int, bundle: Path, trials: int, longest_s: float
) -> tuple[int, int]:
    """Let a bundle run in new scenes, through the robot's nodes; returns successes and trials."""
    with app(folder, seed, [f"policy={bundle}"]) as address, at_the_page(address, chromium) as operator:
        wait(operator, lambda: operator.view.get("policy", {}).get("state") == "ready")
        for _ in range(trials):
            attempt(operator, longest_s)
        return counts(operator.page.text_content(".rate-of-policy") or "")


def counts(shown: str) -> tuple[int, int]:
    """Successes and episodes in the page's words."""
    found = RATE.search(shown)
    return (int(found[1]), int(found[2])) if found else (0, 0)


@contextmanager
def at_the_page(address: str, chromium: str) -> Iterator[PegOperator]:
    """An operator who has the page open and the controls."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        operator = PegOperator(browser.new_page(viewport={"width": 1280, "height": 720}))
        operator.page.goto(address)
        operator.page.wait_for_selector("body[data-ready][data-role=driver]")
        yield operator
        browser.close()


@contextmanager
def app(folder: Path, seed: int, words: list[str]) -> Iterator[str]:
    """`robo-rl record`, its lines in `record.log`; yields the page's address. words: more settings."""
    words = [f"out={folder / 'data'}", "port=0", "open=false", "min_free_gb=0.1", f"seed={seed}", *words]
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "record.log").open("w") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "robo_rl", "record", "robot=sim_arm", "task=insert the peg", *words],
            stdout=log,
            stderr=subprocess.STDOUT,
        )
        try:
            yield _address(process, folder / "record.log")
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(60)


def _address(process: subprocess.Popen[bytes], log: Path) -> str:
    """Address of the page, which the app says when it serves it."""
    until_s = time.monotonic() + READY_S
    while time.monotonic() < until_s and process.poll() is None:
        if found := re.search(r"the page is at (\S+)", log.read_text()):
            return found[1]
        time.sleep(0.1)
    raise SystemExit(f"robo-rl record did not start; its lines are in {log}.")


def wait(operator: PegOperator, condition: Callable[[], bool], longest_s: float = READY_S) -> None:
    """Wait while the page's messages come in. Raises TimeoutError."""
    until_s = time.monotonic() + longest_s
    while not condition():
        if time.monotonic() > until_s:
            raise TimeoutError(f"Not within {longest_s:g} s; the page shows {operator.view}.")
        operator.page.wait_for_timeout(20)


def begin(operator: PegOperator) -> None:
    """Wait for a new scene, and start an episode in it."""
    wait(operator, lambda: operator.ready)
    operator.look()
    operator.page.keyboard.press("Space")
    wait(operator, lambda: operator.view["episode"]["state"] == "recording")


def save(operator: PegOperator, success: bool) -> None:
    """Save the episode with its label, and wait until the page counts it."""
    count = operator.view["episode"]["count"]
    operator.page.keyboard.press("Enter" if success else "f")
    wait(operator, lambda: operator.view["episode"]["count"] > count)


def demonstrate(operator: PegOperator, episodes: int) -> list[float]:
    """Record insertions; returns their lengths [s]. One that fails is discarded and recorded again."""
    lengths_s: list[float] = []
    while len(lengths_s) < episodes:
        begin(operator)
        if operator.insert():
            lengths_s.append(float(operator.view["episode"]["seconds"]))
            save(operator, True)
        else:
            operator.page.keyboard.press("x")
    return lengths_s


def trained(operator: PegOperator, address: str, run: Path) -> float:
    """Press "Train", close the page, and open it again for the policy. Returns CPU time of the training [s].

    Chromium without a GPU takes half a core for the 3-D view, and a training does not need the page.
    """
    operator.page.click("button.train")
    wait(operator, lambda: operator.view["training"]["state"] == "training")
    operator.page.goto("about:blank")
    used_s: dict[int, float] = {}
    bundle, until_s = run / "bundle" / MANIFEST, time.monotonic() + TRAINING_S
    while not bundle.exists():
        if time.monotonic() > until_s:
            raise TimeoutError(f"No policy within {TRAINING_S:g} s; see the lines in record.log.")
        used_s.update(cpu_of(str(run)))
        time.sleep(1.0)
    operator.view = {}
    operator.page.goto(address)
    operator.page.wait_for_selector("body[data-ready][data-role=driver]")
    wait(operator, lambda: operator.view.get("policy", {}).get("state") == "ready")
    return sum(used_s.values())


def cpu_of(run: str) -> dict[int, float]:
    """CPU time of the processes whose command names a run, by process [s]."""
    used_s = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            if run in stat.with_name("cmdline").read_text():
                fields = stat.read_text().rpartition(")")[2].split()
                used_s[int(stat.parent.name)] = (int(fields[11]) + int(fields[12])) / TICKS
        except OSError:  # it has ended
            continue
    return used_s


def attempt(operator: PegOperator, longest_s: float = TRIAL_S) -> None:
    """One episode of the policy alone, with an honest label."""
    if (
        operator.view["robot"]["filter"]["phase"] == "disarmed"
    ):  # after dropped commands; a human arms it, too
        operator.page.keyboard.press("m")
    wait(operator, lambda: operator.ready)
    if operator.view["drive"]["control"] == "human":
        operator.page.keyboard.press("t")
        wait(operator, lambda: operator.view["drive"]["control"] == "policy")
    begin(operator)
    until_s = time.monotonic() + longest_s
    while not (inserted := operator.inserted) and time.monotonic() < until_s:
        operator.page.wait_for_timeout(40)
    save(operator, inserted)


def take_over(operator: PegOperator) -> bool:
    """Stop the policy in the middle of an episode by a key; True if the arm then obeys the operator."""
    begin(operator)
    operator.page.wait_for_timeout(1000)
    operator.page.keyboard.press("t")
    wait(operator, lambda: operator.view["drive"]["control"] == "human")
    height_m = operator.tool_m("commanded")[2]
    operator.page.keyboard.down("w")
    wait(operator, lambda: bool(operator.tool_m("commanded")[2] > height_m + 0.02))
    operator.page.keyboard.up("w")
    save(operator, False)
    return True
