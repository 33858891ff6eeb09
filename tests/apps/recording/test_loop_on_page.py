"""Record, train, run, intervene: the whole loop of `robo-rl record` on its page, without leaving it."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from robo_rl.data.store import EpisodeStore
from tests.hardware.domains import free_domain

playwright = pytest.importorskip("playwright.sync_api", reason="the browser test needs playwright")
pytest.importorskip("uvicorn", reason="the page needs the extra app: pip install '.[app]'")
pytest.importorskip("cyclonedds", reason="the nodes need the extra dds: pip install '.[dds]'")
pytest.importorskip("mujoco", reason="the simulated arm needs the extra sim: pip install '.[sim]'")
ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "benchmarks"))
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
TRAIN = "steps=300 batch_size=16 image.widths=[8,16] chunk=16 execute=8 threads=1 log_every=20"
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed on this machine"),
]


@contextmanager
def running_verb(folder: Path) -> Iterator[str]:
    """`robo-rl record robot=sim_arm`; yields the page's address."""
    words = [f"out={folder / 'data'}", "port=0", "open=false", "min_free_gb=0", f"train={TRAIN}"]
    with free_domain() as domain:
        process = subprocess.Popen(
            [sys.executable, "-m", "robo_rl", "record", "robot=sim_arm", "task=insert the peg", *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=ROOT,
            env=os.environ | {"ROS_DOMAIN_ID": str(domain)},
        )
        assert process.stdout is not None
        try:
            said: list[str] = []
            while (found := re.search(r"the page is at (\S+)", line := process.stdout.readline())) is None:
                assert line, said
                said.append(line)
            yield found[1]
        finally:
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=60)


def wait(page: Any, condition: Callable[[], bool], longest_s: float = 60.0) -> None:
    """Wait while the page's messages come in."""
    until_s = time.monotonic() + longest_s
    while not condition():
        assert time.monotonic() < until_s, "the condition did not come true in time"
        page.wait_for_timeout(50)


def test_record_train_run_and_intervene(tmp_path: Path) -> None:
    """Two insertions by keys are saved, the button trains on them, the new policy moves the arm, the operator
    takes over and hands back, and the episode tells who acted when.
    """
    from app_parts.peg_operator import PegOperator

    with running_verb(tmp_path) as address, playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1280, "height": 720})
        operator = PegOperator(page)
        page.goto(address)
        page.wait_for_selector("body[data-ready][data-role=driver]")
        for number in range(2):
            wait(page, lambda: operator.ready)
            operator.look()
            page.keyboard.press("Space")
            page.wait_for_selector("body[data-state=recording]")
            assert operator.insert()
            page.keyboard.press("Enter")
            page.wait_for_selector(f"#tally:has-text('{number + 1} saved')")
        page.click("button.train")
        page.wait_for_selector("code.command:has-text('robo-rl train')")
        wait(page, lambda: operator.view["training"]["state"] in ("done", "failed"), 300.0)
        assert operator.view["training"]["state"] == "done"
        wait(page, lambda: operator.ready and operator.view["policy"]["state"] == "ready")
        operator.look()
        page.keyboard.press("t")
        wait(page, lambda: operator.view["drive"]["control"] == "policy")
        page.keyboard.press("Space")
        page.wait_for_selector("body[data-state=recording]")
        start = np.array(operator.view["robot"]["measured"])
        wait(page, lambda: bool(np.abs(operator.view["robot"]["measured"] - start).max() > 0.05))
        page.keyboard.press("t")
        wait(page, lambda: operator.view["drive"]["control"] == "human")
        height_m = operator.tool_m("commanded")[2]
        page.keyboard.down("w")
        wait(page, lambda: bool(operator.tool_m("commanded")[2] > height_m + 0.03))
        page.keyboard.up("w")
        page.keyboard.press("t")
        wait(page, lambda: "policy" in operator.view["robot"]["filter"]["reason"])
        page.keyboard.press("f")
        page.wait_for_selector("#tally:has-text('3 saved')")
        browser.close()
    demonstrated, _, tried = EpisodeStore(tmp_path / "data")
    assert demonstrated.intervention.all()
    assert tried.intervention.any()
    assert not tried.intervention[:3].any()
    assert str(tried.meta.info["policy"]).endswith("bundle")
