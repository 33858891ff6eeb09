"""Cost of recording, and what an open page costs the control loop: `python benchmarks/recording_app.py`.

Frames have two cameras of 128 x 128 and 12 numbers, as of the simulated arm, and pass the code of the app.
For the loop, arm, cameras, safety filter and app run in one thread on the real clock, while a Chromium shows
the page and drives the arm by keys, or does not, in turns. As in the app, the thread runs before other
programs if the system permits it.
Jitter is the 99th percentile of the distance between an interval of the app's ticks and the period, in
percent of the period; app/loop_jitter_percent is its median with the page minus that without, in percentage
points.
Other programs disturb all figures: each line has the load average.

`--soak MINUTES` measures only what grows while a page is left open: the same app and page, cameras
streaming, the arm driven back and forth so that its 3-D view is drawn anew, no episode. 25 times in these
minutes it reads the resident memory of the app's process and of the browser's renderer, the page's JavaScript
heap after a collection of garbage, and what waits: bytes in the page's connection, and requests.
Each slope is a least-squares fit without the first fifth of the time; `error` is its standard error.

`--train RECORDINGS` measures only what an operator gets from ten episodes. For each recording it starts
`robo-rl record`; a scripted operator inserts the peg ten times by keys in Chromium, presses "Train" with the
default settings, lets the policy run in new scenes, labels each by whether the peg is measured in the hole
within 20 s, and takes over. The success is the one that the page shows.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from app_parts.page_training import Measured, session
from common import emit, parser

from hardware.bus.in_process import InProcessWorld
from hardware.description import load_description
from hardware.loop.priority import run_before_other_programs
from hardware.nodes.safety_filter import SafetyFilterNode
from hardware.nodes.sim_cameras import SimCameras
from hardware.nodes.sim_robot import SimArmNode
from policies.remote.address import listen
from robo_rl.apps.recording.callers import DirectCaller
from robo_rl.apps.recording.dataset import open_dataset, spec_of
from robo_rl.apps.recording.episodes import Episodes
from robo_rl.apps.recording.node import RecordAppNode
from robo_rl.apps.recording.requests import PlainRequest
from robo_rl.apps.recording.scene import chain_of
from robo_rl.apps.recording.settings import AppSettings
from robo_rl.apps.recording.shared_state import SharedState
from robo_rl.apps.recording.web.access import Access
from robo_rl.apps.recording.web.review import Review
from robo_rl.apps.recording.web.server import PageServer
from robo_rl.apps.recording.web.serving import ServerThread
from robo_rl.conf.record import RecordingSettings
from robo_rl.eval.stats import SuccessRate
from sim.arms.arm6.body import JOINTS
from sim.arms.arm6.camera import ArmCamera
from sim.arms.arm6.peg_cell import CAMERAS, PegCell

SIDE_PX, FRAMES = 128, 300
QUICK_TRAINING = "steps=20 batch_size=8 image.widths=[8,16] chunk=16 execute=8 threads=1 log_every=10"
WINDOW_S = 6.0  # of one measurement of the jitter; the app's window is 5 s
READINGS, WARM = 25, 5  # of a soak; the first ones, which no slope contains
Work = Callable[
    [RecordAppNode, SharedState, str, str], Any
]  # gets the app, its address and the browser's path


def main() -> None:
    options = parser(__doc__.splitlines()[0])
    options.add_argument("--soak", type=float, metavar="MINUTES", help="measure only the growth of memory")
    options.add_argument("--train", type=int, metavar="RECORDINGS", help="measure only training on the page")
    args = options.parse_args()
    with TemporaryDirectory() as folder:
        if args.train is not None:
            measure_training(Path(folder), recordings=args.train, quick=args.quick)
            return
        if args.soak is not None:
            measure_growth(Path(folder) / "soak", args.soak)
            return
        measure_disk(Path(folder) / "disk", episodes=3 if args.quick else 20)
        measure_loop(Path(folder) / "loop", rounds=1 if args.quick else 6)


def load() -> float:
    return round(os.getloadavg()[0], 1)


def settings(out: Path) -> RecordingSettings:
    return RecordingSettings(robot="sim_arm", out=str(out), min_free_gb=0.1)


def measure_disk(out: Path, episodes: int) -> None:
    """Time of one frame and of one commit; wall time, and for frames the thread's CPU time as well."""
    given = settings(out)
    opened = open_dataset(given, spec_of(given, load_description("sim_arm"), simulated=True))
    recorder = Episodes(opened.writer, opened.tally, FRAMES + 1)
    rng, joints = np.random.default_rng(0), opened.writer.meta.env.obs["state"].shape
    pictures = rng.integers(0, 255, (16, SIDE_PX, SIDE_PX, 3), dtype=np.uint8)
    wall_ms, cpu_ms, commit_s = [], [], []
    for _ in range(episodes):
        recorder.start()
        for i in range(FRAMES + 1):
            obs = {
                "state": np.zeros(joints, np.float32),
                **{f"image.{name}": pictures[(i + k) % 16] for k, name in enumerate(CAMERAS)},
            }
            stamps = dict.fromkeys(opened.writer.meta.stamps[:2], i + 1)
            begun_s, begun_cpu_s = time.perf_counter(), time.thread_time()
            recorder.frame(obs, stamps, np.zeros(6), True, i + 1)
            wall_ms.append(1e3 * (time.perf_counter() - begun_s))
            cpu_ms.append(1e3 * (time.thread_time() - begun_cpu_s))
        begun_s = time.perf_counter()
        recorder.save(True)
        commit_s.append(time.perf_counter() - begun_s)
    count = {"n": len(wall_ms), "load": load()}
    p50 = {"p50": round(float(np.median(wall_ms)), 4), "cpu_p99": round(float(np.percentile(cpu_ms, 99)), 4)}
    emit("app/add_frame_ms_p99", float(np.percentile(wall_ms, 99)), "ms", **p50, **count)
    worst = {"most": round(max(commit_s), 4), "episodes": episodes, "frames": FRAMES, "load": load()}
    emit("app/commit_s", float(np.median(commit_s)), "s", **worst)


def measure_loop(out: Path, rounds: int) -> None:
    """Jitter of the app's ticks while it records, with the page open and closed in turns; shown pictures."""

    def take_turns(node: RecordAppNode, shared: SharedState, address: str, chromium: str) -> None:
        time.sleep(2.0)
        shared.ask(PlainRequest(kind="start"))
        for _ in range(rounds):
            time.sleep(WINDOW_S)
            jitter["closed"].append(0.1 * node.pulse.jitter_ms / node.pulse.period_s)  # [% of a period]
            with open_page(address, chromium) as page:
                fps.append(page.ask(WINDOW_S))
                jitter["open"].append(0.1 * node.pulse.jitter_ms / node.pulse.period_s)

    jitter: dict[str, list[float]] = {"closed": [], "open": []}
    fps: list[float] = []
    first = beside_the_loop(out, take_turns)
    if first is None:
        return
    open_, closed = (float(np.median(jitter[key])) for key in ("open", "closed"))
    both = {"open": round(open_, 2), "closed": round(closed, 2), "rounds": rounds}
    both |= {"before_other_programs": first, "load": load()}
    emit("app/loop_jitter_percent", open_ - closed, "percentage points of a period", **both)
    emit("app/page_fps", float(np.median(fps)), "pictures/s", cameras=len(CAMERAS), load=load())


def measure_growth(out: Path, minutes: float) -> None:
    """Growth of the app's process and of the page that shows it, and what waits between them."""

    def read(node: RecordAppNode, shared: SharedState, address: str, chromium: str) -> None:
        port = int(address.rstrip("/").rpartition(":")[2])
        with open_page(address, chromium) as page:
            begun_s = time.monotonic()
            for number in range(1, READINGS + 1):
                page.ask(max(0.1, begun_s + 60.0 * minutes * number / READINGS - time.monotonic()))
                waits = {"waiting_bytes": waiting_bytes(port), "requests": shared.waiting}
                memory = {"server_mb": resident_mb("self"), **page.ask("memory")}
                readings.append({"minute": (time.monotonic() - begun_s) / 60.0, **waits, **memory})

    readings: list[dict[str, float]] = []
    if beside_the_loop(out, read) is None:
        return
    for name, column in (("server", "server_mb"), ("page", "heap_mb"), ("renderer", "renderer_mb")):
        slope, error = hourly(readings, column)
        kept = {key: [round(each[key], 2) for each in readings[4::5]] for key in ("minute", column)}
        most = {key: max(each[key] for each in readings) for key in ("waiting_bytes", "requests")}
        emit(
            f"app/soak/{name}_mb_per_hour", slope, "MB/h", error=round(error, 3), **kept, **most, load=load()
        )


def measure_training(folder: Path, recordings: int, quick: bool) -> None:
    """Record, train, run and take over on the page, with default settings unless `quick`."""
    chromium = browser_path()
    if chromium is None:
        return
    episodes, trials, train = (2, 2, QUICK_TRAINING) if quick else (10, 20, "")
    done: list[Measured] = []
    for seed in range(recordings):
        done.append(session(folder / str(seed), chromium, seed, episodes, trials, train))
        print(f"app: recording {seed}: {done[-1]}", file=sys.stderr, flush=True)
    how = {"recordings": recordings, "episodes": episodes, "updates": done[0].steps, "load": load()}
    each_s, cpu_s = [round(each.train_s, 1) for each in done], [round(each.train_cpu_s, 1) for each in done]
    emit("app/train_s", float(np.median(each_s)), "s", each_s=each_s, cpu_s=cpu_s, **how)
    rate = SuccessRate(sum(each.successes for each in done), sum(each.trials for each in done))
    shown = {"each": [each.shown for each in done], "taken_over": all(each.taken_over for each in done)}
    interval = [round(bound, 3) for bound in rate.wilson()]
    emit("app/trained_success", rate.rate, "share", k=rate.k, n=rate.n, wilson95=interval, **shown, **how)


def hourly(readings: list[dict[str, float]], column: str) -> tuple[float, float]:
    """Slope of a column per hour, and its standard error."""
    hours, values = (np.array([each[key] for each in readings[WARM:]]) for key in ("minute", column))
    (slope, _), covariance = np.polyfit(hours / 60.0, values, 1, cov=True)
    return float(slope), float(np.sqrt(covariance[0, 0]))


def resident_mb(process: int | str) -> float:
    """Resident memory of a process."""
    pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
    return 1e-6 * pages * os.sysconf("SC_PAGESIZE")


def waiting_bytes(port: int) -> int:
    """Bytes in the kernel's queues of a TCP port's connections, at both ends: not read yet."""
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    rows = [row for row in rows if f":{port:04X}" in (row[1][-5:], row[2][-5:])]
    return sum(int(number, 16) for row in rows for number in row[4].split(":"))


def beside_the_loop(out: Path, work: Work) -> bool | None:
    """Do work in a thread beside the app, whose loop has the main thread, which also owns the rendering.

    Returns whether the loop runs before other programs, and None without a browser.
    """
    if (chromium := browser_path()) is None:
        return None
    world, over = InProcessWorld(clock=time.monotonic), threading.Event()
    node, shared = running_app(world, out)
    address, server = served(shared, out)
    try:
        done = ThreadPoolExecutor(1).submit(work, node, shared, address, chromium)
        done.add_done_callback(lambda _: over.set())
        first = run_before_other_programs()
        world.run(over.is_set)
        done.result()
    finally:
        server.close()
        node.stop("measured")
    return first


def browser_path() -> str | None:
    """Chromium of this machine; None, with a line on stderr, without one."""
    found = shutil.which("chromium") or shutil.which("google-chrome")
    if found is None:
        print("app: no Chromium on this machine, so nothing is measured on a page", file=sys.stderr)
    return found


def running_app(world: InProcessWorld, out: Path) -> tuple[RecordAppNode, SharedState]:
    """The simulated cell with filter and app."""
    robot, given, shared = load_description("sim_arm"), settings(out), SharedState()
    opened = open_dataset(given, spec_of(given, robot, simulated=True))
    cell, arm_bus, bus = PegCell(), world.bus("sim_robot"), world.bus("record_app")
    SimArmNode(arm_bus, cell, robot.state_hz, robot)
    SimCameras(arm_bus, {name: ArmCamera(cell.body, name, SIDE_PX) for name in CAMERAS}, "rgb", 20.0)
    SafetyFilterNode(world.bus("safety_filter"), robot, arm=True, say=lambda line: None)
    app = AppSettings(robot, opened.writer.spec, CAMERAS, out, floor_bytes=10**8)
    episodes = Episodes(opened.writer, opened.tally, 1_000_000)
    return RecordAppNode(bus, app, episodes, shared, DirectCaller(bus), lambda line: None), shared


def served(shared: SharedState, out: Path) -> tuple[str, ServerThread]:
    """Address of the page, and its server."""
    listener = listen("127.0.0.1", 0)
    port = listener.getsockname()[1]
    facts: dict[str, Any] = {"robot": "sim_arm", "joints": list(JOINTS), "cameras": list(CAMERAS)}
    facts |= {"rate_hz": 20.0, "longest_s": 120.0, "out": "data", "drives": True, "resets": False}
    facts["chain"] = chain_of(load_description("sim_arm"))  # the page draws the arm in 3-D
    access = Access.of("127.0.0.1", port, None, loopback=True)
    return f"http://127.0.0.1:{port}/", ServerThread(PageServer(shared, access, Review(out), facts), listener)


class Page:
    """A browser in a process of its own, so that it shares no interpreter with the loop."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def ask(self, what: float | str) -> Any:
        """Shown pictures per second during so many seconds; for "memory" the page's heap and process [MB]."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{what}\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())


@contextmanager
def open_page(address: str, chromium: str) -> Iterator[Page]:
    """The page in Chromium; it is loaded when the block begins."""
    words = [sys.executable, "-c", BROWSER, address, chromium]
    process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        if process.stdout.readline().strip() != "ready":
            raise SystemExit("The browser did not start; is playwright installed (pip install '.[dev]')?")
        yield Page(process)
    finally:
        assert process.stdin is not None
        process.stdin.close()
        process.wait(30)


BROWSER = """
import json, os, sys, time
from pathlib import Path
from playwright.sync_api import sync_playwright

def memory():
    inside.send("HeapProfiler.collectGarbage")
    heap = {each["name"]: each["value"] for each in inside.send("Performance.getMetrics")["metrics"]}
    processes = browser.new_browser_cdp_session().send("SystemInfo.getProcessInfo")["processInfo"]
    pages = [int(Path(f"/proc/{each['id']}/statm").read_text().split()[1]) for each in processes
             if each["type"] == "renderer"]
    resident = 1e-6 * os.sysconf("SC_PAGESIZE") * max(pages)
    return {"heap_mb": 1e-6 * heap["JSHeapUsedSize"], "renderer_mb": resident, "nodes": heap["Nodes"]}

def rate(seconds):
    begun_s, shown = time.monotonic(), page.evaluate("window.shownPictures()")
    swings = max(1, round(seconds / 6.0))
    for key in ("ArrowLeft", "ArrowRight") * swings:  # the arm moves, so its 3-D view is drawn all the time
        page.keyboard.down(key)
        page.wait_for_timeout(5e2 * seconds / swings)
        page.keyboard.up(key)
    return (page.evaluate("window.shownPictures()") - shown) / (time.monotonic() - begun_s)

with sync_playwright() as driver:
    browser = driver.chromium.launch(executable_path=sys.argv[2], args=["--no-sandbox"])
    page = browser.new_page(viewport={"width": 1280, "height": 720})
    inside = page.context.new_cdp_session(page)
    inside.send("Performance.enable")
    page.goto(sys.argv[1])
    page.wait_for_selector("body[data-ready][data-role]")
    page.wait_for_timeout(2000)
    print("ready", flush=True)
    for line in sys.stdin:
        print(json.dumps(memory() if line.strip() == "memory" else rate(float(line))), flush=True)
    browser.close()
"""

if __name__ == "__main__":
    main()
