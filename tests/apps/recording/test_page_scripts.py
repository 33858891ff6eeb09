"""Scripts of the page without a browser: what keys do, and what is shown of the episodes. Needs node."""

from __future__ import annotations

import json
import shutil
import subprocess
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

# Playwright, a package of the tests, brings a node of its own.
DRIVER = Path(str(files("playwright"))) / "driver" / "node" if find_spec("playwright") else Path()
NODE = shutil.which("node") or (str(DRIVER) if DRIVER.is_file() else None)
pytestmark = pytest.mark.skipif(NODE is None, reason="node runs the page's scripts")
# Events of the keyboard: a target of one element, which `closest` finds if the selector names it.
KEYBOARD = """
const listeners = {}, acted = [];
globalThis.addEventListener = (kind, listener) => { listeners[kind] = listener; };
globalThis.document = { querySelector: () => null };
const pushes = ({ code }) => code === "ArrowLeft" && acted.push("drive") > 0;
const drive = { keys: new Map(), press: pushes, lift: () => {} };
listen(drive, { press: () => false }, (name) => acted.push(name));
const press = (code, element, more = {}) => listeners.keydown({ code, key: code, preventDefault: () => {},
  target: { closest: (selector) => selector.split(", ").includes(element) ? {} : null }, ...more });
"""


@pytest.fixture(scope="module")
def scripts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page's folder, as modules of node."""
    folder = tmp_path_factory.mktemp("page")
    shutil.copytree(str(files("robo_rl.apps.recording.web") / "page"), folder, dirs_exist_ok=True)
    (folder / "package.json").write_text('{"type": "module"}')
    return folder


def run(scripts: Path, imports: str, body: str) -> Any:
    """Value that `body` returns, with names imported from modules of the page."""
    (scripts / "test.js").write_text(
        f"{imports}\nconst made = (() => {{ {body} }})();\nconsole.log(JSON.stringify(made));\n"
    )
    done = subprocess.run([str(NODE), "test.js"], cwd=scripts, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_enter_and_space_press_what_has_the_focus(scripts: Path) -> None:
    """They save and start elsewhere alone; the other keys act wherever the focus is."""
    body = (
        KEYBOARD
        + """
    for (const element of ["button", "a", "summary", "div"]) {
      press("Enter", element); press("Space", element); press("KeyF", element);
    }
    return acted;"""
    )
    acted = run(scripts, 'import { listen } from "./keys.js";', body)
    assert acted == ["failure"] * 3 + ["success", "toggle", "failure"]


def test_a_slider_that_has_the_focus_keeps_its_keys(scripts: Path) -> None:
    """An arrow key moves it and not the arm; the other keys act, above all Esc, which stops the arm."""
    body = (
        KEYBOARD
        + """
    for (const code of ["ArrowLeft", "Home", "Escape", "KeyF"]) press(code, "input[type=range]");
    press("ArrowLeft", "div");
    return acted;"""
    )
    assert run(scripts, 'import { listen } from "./keys.js";', body) == ["stop", "failure", "drive"]


def test_the_emergency_stop_is_pressed_from_any_field_and_once(scripts: Path) -> None:
    """A key that is held repeats; plain Esc in a field is the field's."""
    body = (
        KEYBOARD
        + """
    const field = "textarea";
    press("Escape", field, { shiftKey: true });
    press("Escape", field, { shiftKey: true, repeat: true });
    press("Escape", field);
    return acted;"""
    )
    assert run(scripts, 'import { listen } from "./keys.js";', body) == ["estop"]


def test_who_drives_is_offered_the_release_and_who_watches_the_controls(scripts: Path) -> None:
    """Also where nobody has the controls: otherwise no page could release the stop."""
    body = """
    const watcher = { role: "watcher", vacant: false, asking: false };
    const vacant = { vacant: true }, asking = { asking: true };
    const all = [{ role: "driver" }, vacant, { ...vacant, ...asking }, {}, asking];
    return all.map((change) => stopSentence({ operators: { ...watcher, ...change } }));"""
    found = run(scripts, 'import { stopSentence } from "./show.js";', body)
    take, ask = ["Take them", "ask"], ["Ask for them", "ask"]
    assert [banner[2:] for banner in found] == [[["Release", "release_estop"]], [take], [take], [ask], []]
    assert all(banner[0].startswith("Emergency stop: the arm is stopped") for banner in found)
    assert "the page with the controls releases it. Nobody has the controls." in found[1][0]


def test_interrupted_episodes_are_shown_as_such(scripts: Path) -> None:
    """Also with a label, and they are not offered for training, as `robo-rl train` leaves them out."""
    imports = """import { labelOf } from "./review.js";
    import { tallyWords } from "./show.js";
    import { trainable } from "./policy.js";"""
    body = """
    const counts = { count: 6, successes: 2, failures: 1, interrupted: 2 };
    const both = (success) => [true, false].map((complete) => labelOf({ success, complete }));
    const usable = ["unfailed", "success", "all"].map((rule) => trainable(counts, rule));
    return [[null, true, false].flatMap(both), tallyWords(counts), usable];"""
    labels, words, usable = run(scripts, imports, body)
    both = ["success", "success, interrupted", "failure", "failure, interrupted"]
    assert labels == ["no label", "interrupted", *both]
    assert words == "6 saved: 2 ✓ 1 ✗ 1 unlabelled 2 interrupted"
    assert usable == [3, 2, 6]


def test_a_dataset_that_cannot_be_reached_is_told(scripts: Path) -> None:
    """Not as a disk with 0 GB."""
    body = """
    const words = (disk_gb) => diskSentence({ disk_gb, floor_gb: 2, episode: { state: "idle" } });
    return [null, 1, 3].map(words);"""
    gone, full, enough = run(scripts, 'import { diskSentence } from "./show.js";', body)
    assert "cannot be reached" in gone
    assert "restart the app, which salvages the episode: do not discard it" in gone
    assert full.startswith("Only 1 GB are free")
    assert enough == ""


def test_the_list_of_policies_shows_the_one_that_runs(scripts: Path) -> None:
    """A choice is asked for; if it is refused, no view changes, and the list may not show it as loaded."""
    body = """
    globalThis.Option = class { };
    const parts = {}, sent = [];
    const element = () => ({ replaceChildren: () => {}, insertAdjacentHTML: () => {} });
    const place = { querySelector: (selector) => parts[selector] ??= element() };
    const shown = new Policy(place, (request) => sent.push(request.bundle));
    const policy = { known: ["runs/a/bundle", "runs/b/bundle"], bundle: "runs/a/bundle", state: "ready" };
    const training = { state: "none", learn_from: "all" }, episode = { count: 0 };
    const drive = { control: "human" };
    const show = () => shown.show({ policy, training, drive, episode, operators: { role: "driver" } });
    const list = parts.select, seen = [];
    show();
    list.value = "runs/b/bundle";
    list.onchange();
    show();
    seen.push(list.value);
    policy.bundle = "runs/b/bundle";
    show();
    return [sent, [...seen, list.value]];"""
    sent, seen = run(scripts, 'import { Policy } from "./policy.js";', body)
    assert sent == ["runs/b/bundle"]
    assert seen == ["runs/a/bundle", "runs/b/bundle"]


def test_a_silent_app_is_told_and_sent_stops_alone(scripts: Path) -> None:
    """No view for 3 s: the connection counts as lost, though the socket is open; a view ends that. After 15 s
    another socket is opened, and the end of the former one means nothing.
    """
    body = """
    let now_ms = 0, tick = null;
    const sockets = [], states = [], later = [], sent = [];
    Object.defineProperty(globalThis, "performance", { value: { now: () => now_ms } });
    globalThis.location = { protocol: "http:", host: "here" };
    globalThis.sessionStorage = { getItem: () => "page" };
    globalThis.setInterval = (watch) => { tick = watch; };
    globalThis.setTimeout = (then) => { later.push(then); };
    globalThis.WebSocket = class {
      static OPEN = 1; readyState = 1; bufferedAmount = 0;
      constructor() { sockets.push(this); }
      send(text) { sent.push(JSON.parse(text).kind); }
      close() { this.closed = true; }
    };
    const link = new Link({ facts: {}, onView: () => {}, onState: (open) => states.push(open) });
    const [first] = sockets, found = {};
    const after = (ms) => { now_ms += ms; tick(); return states.splice(0); };
    const view = () => { first.onmessage({ data: "{}" }); return states.splice(0); };
    first.onopen();
    found.starting = after(4000);
    found.heard = view();
    found.short = after(2000);
    found.silent = after(2000);
    found.again = after(2000);
    const asked = [["start"], ["drive"], ["estop", false], ["estop", true], ["stop"], ["release"]];
    found.passed = asked.map(([kind, on]) => link.send({ kind, on }));
    found.back = view();
    found.start = link.send({ kind: "start" });
    found.lost = after(4000);
    found.gone = after(12000);
    link.open(); // as `again` does, which was called by the timer
    found.after = after(14000);
    Object.assign(found, { sent, timers: later.length, closed: first.closed, told: first.onclose });
    return { ...found, sockets: sockets.length };"""
    found = run(scripts, 'import { Link } from "./link.js";', body)
    assert found == {
        "starting": [True],
        "heard": [],
        "short": [],
        "silent": [False],
        "again": [],
        "passed": [False, False, False, True, True, True],
        "back": [True],
        "start": True,
        "lost": [False],
        "gone": [False],
        "sent": ["estop", "stop", "release", "start"],
        "closed": True,
        "told": None,
        "timers": 1,
        "sockets": 2,
        "after": [],
    }
