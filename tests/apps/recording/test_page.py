"""The page in a real browser: start, drive, label, discard, take over, reload, lose the connection."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from hardware.messages import Text
from hardware.topics import SCENE
from policies.remote.address import listen
from robo_rl.apps.recording.shared_state import SharedState
from robo_rl.apps.recording.web.access import Access
from robo_rl.apps.recording.web.review import Review
from tests.apps.recording.live import LiveCell, page_facts

pytestmark = pytest.mark.slow


def open_page(browser: Any, live: LiveCell, **size: int) -> Any:
    """The page of an operator who has the controls; an error of its scripts fails the test."""
    context = browser.new_context(viewport={"width": 1280, "height": 720} | size)
    page = context.new_page()
    page.on("pageerror", lambda error: live.faults.append(str(error)))
    page.goto(live.address)
    page.wait_for_selector("body[data-ready][data-role=driver]")
    return page


def test_an_operator_records_by_keys(browser: Any, live: LiveCell) -> None:
    """Space starts, an arrow key moves the hand, Enter saves as a success; X throws the next one away."""
    page, cell = open_page(browser, live), live.cell
    page.keyboard.press("Space")
    page.wait_for_selector("body[data-state=recording]")
    before = cell.arm.q_rad.copy()
    page.keyboard.down("ArrowLeft")
    live.wait(lambda: bool(np.abs(cell.arm.q_rad - before).max() > 0.05))
    page.keyboard.up("ArrowLeft")
    page.keyboard.press("Enter")
    page.wait_for_selector("#tally:has-text('1 saved: 1')")
    page.wait_for_selector("body[data-state=idle]")
    live.wait(lambda: cell.armed)
    page.keyboard.press("Space")
    page.wait_for_selector("body[data-state=recording]")
    live.wait(lambda: cell.node.episodes.frames > 3)
    page.keyboard.press("x")
    page.wait_for_selector("body[data-state=idle]")
    (episode,) = cell.store()
    assert (episode.success, episode.meta.task) == (True, "push the button")
    assert episode.intervention.all()
    page.context.close()


def test_the_mouse_drives_and_a_blur_stops(browser: Any, live: LiveCell) -> None:
    """A drag on the pad moves the hand; when the window loses its focus, the arm stands still."""
    page, cell = open_page(browser, live), live.cell
    box = page.locator("#pad-plane").bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.mouse.down()
    page.mouse.move(box["x"] + 6, box["y"] + box["height"] / 2)
    before = cell.arm.q_rad.copy()
    live.wait(lambda: bool(np.abs(cell.arm.q_rad - before).max() > 0.05))
    page.evaluate("dispatchEvent(new Event('blur'))")
    live.wait(lambda: cell.node.drive is not None and not cell.node.drive.moving)
    page.mouse.up()
    page.context.close()


def test_an_episode_survives_a_reload_of_the_page(browser: Any, live: LiveCell) -> None:
    """Frames go on; the reloaded page has the controls again, and the instruction can be edited."""
    page, cell = open_page(browser, live), live.cell
    page.keyboard.press("Space")
    page.wait_for_selector("body[data-state=recording]")
    live.wait(lambda: cell.node.episodes.frames > 3)
    page.reload()
    page.wait_for_selector("body[data-ready][data-role=driver][data-state=recording]")
    page.fill("#instruction", "press it")
    page.keyboard.press("Enter")
    live.wait(lambda: cell.node.episodes.instruction == "press it")
    page.keyboard.press("f")
    page.wait_for_selector("body[data-state=idle]")
    (episode,) = cell.store()
    assert (episode.success, episode.meta.task) == (False, "press it")
    page.context.close()


def test_a_lost_connection_stops_the_arm_and_keeps_the_episode(browser: Any, live: LiveCell) -> None:
    """The page says so; the recording goes on with an arm that is held."""
    page, cell = open_page(browser, live), live.cell
    page.keyboard.press("Space")
    page.wait_for_selector("body[data-state=recording]")
    page.keyboard.down("ArrowLeft")
    live.wait(lambda: cell.node.drive is not None and cell.node.drive.moving)
    live.close_server()
    page.wait_for_selector("#banner[data-level=error]")
    assert "Connection to the app lost" in page.inner_text("#banner")
    assert "emergency stop of this page may have no effect" in page.inner_text("#banner")
    assert page.inner_text(".cameras figure b") == "no connection"
    live.wait(lambda: cell.node.drive is not None and not cell.node.drive.moving)
    frames = cell.node.episodes.frames
    live.wait(lambda: cell.node.episodes.frames > frames)
    page.context.close()


def test_a_refused_instruction_stays_to_be_corrected(browser: Any, live: LiveCell) -> None:
    """10,000 characters and control characters: a sentence, the former instruction goes on, nothing typed is
    lost; Escape shows the former one again.
    """
    page = open_page(browser, live)
    page.keyboard.press("Space")
    page.wait_for_selector("body[data-state=recording]")
    for text, says in (("x" * 10_000, "10000 bytes, at most 128"), ("pick \u202e up", "control character")):
        page.fill("#instruction", text)
        page.keyboard.press("Enter")
        page.wait_for_selector("#instruction[data-refused=yes]")
        page.wait_for_selector(f"#notices li[data-level=error]:has-text('{says}')", state="attached")
        assert says in page.inner_text("#toast")  # over the page, whose list of messages may be short
        assert page.input_value("#instruction") == text
        assert live.cell.node.episodes.instruction == "push the button"
    page.focus("#instruction")
    page.keyboard.press("Escape")
    assert page.input_value("#instruction") == "push the button"
    page.fill("#instruction", " press it ")
    page.keyboard.press("Enter")
    page.wait_for_selector("#instruction[data-refused='']")
    live.wait(lambda: live.cell.node.episodes.instruction == "press it")
    page.context.close()


def serve_again(live: LiveCell, shared: SharedState, token: str | None = None) -> Any:
    """Server of an app that was started again, at the address and with the facts of the former one."""
    from robo_rl.apps.recording.web import server, serving  # need the extra app

    live.close_server()
    port = int(live.address.split(":")[2].strip("/"))
    access = Access.of("127.0.0.1", port, token, loopback=True)
    pages = server.PageServer(shared, access, Review(live.cell.out), page_facts(live.cell))
    return serving.ServerThread(pages, listen("127.0.0.1", port))


@pytest.mark.parametrize(("name", "places"), [("", ["#toast", "#notices"]), ("phone", ["#notice"])])
def test_a_page_left_open_shows_the_messages_of_the_next_start(
    browser: Any, live: LiveCell, name: str, places: list[str]
) -> None:
    """They are numbered anew: as many as before, and the page shows none of the former ones."""
    page = browser.new_page()
    page.on("pageerror", lambda error: live.faults.append(str(error)))
    page.goto(f"{live.address}{name}")
    page.wait_for_selector("body[data-ready][data-role=driver]")
    live.cell.node.notices.tell("told before the kill")
    page.wait_for_selector(f"{places[-1]}:has-text('told before the kill')")
    view, shared = live.cell.shared.view, SharedState()
    news = {"level": "warning", "text": "Episode 0 was interrupted: its 9 frames were salvaged."}
    shared.view = {**view, "app_id": "of another start", "notices": [view["notices"][-1] | news]}
    restarted = serve_again(live, shared)
    try:
        for place in places:
            page.wait_for_selector(f"{place}:has-text('9 frames were salvaged')")
            assert "before the kill" not in page.inner_text(place)
    finally:
        restarted.close()
    page.close()


@pytest.mark.parametrize("name", ["", "phone"])
def test_a_page_left_open_asks_for_the_new_token(browser: Any, live: LiveCell, name: str) -> None:
    """The app was restarted with a token meanwhile: the page does not try for ever, it shows the form."""
    page = browser.new_page()
    page.on("pageerror", lambda error: live.faults.append(str(error)))
    page.goto(f"{live.address}{name}")
    page.wait_for_selector("body[data-ready][data-role=driver]")
    live.close_server()
    page.wait_for_selector("#banner[data-level=error]")
    restarted = serve_again(live, live.cell.shared, "a new token of the night")
    try:
        page.fill("input[name=token]", "a new token of the night")
        page.click("form button")
        page.wait_for_selector("body[data-ready]")
        assert page.url == f"{live.address}{name}"
    finally:
        restarted.close()
    page.close()


def test_the_operator_takes_over_from_a_policy(browser: Any, live: LiveCell) -> None:
    """T lets the policy run and takes over again; the intervention column tells which frames are whose."""
    page, cell = open_page(browser, live), live.cell
    page.keyboard.press("Space")
    page.wait_for_selector("body[data-state=recording]")
    page.keyboard.press("t")
    page.wait_for_selector("button.control:has-text('Take over')")
    frames = cell.node.episodes.frames
    live.wait(lambda: cell.node.episodes.frames > frames + 4)
    page.keyboard.press("t")
    page.wait_for_selector("button.control:has-text('Let it run')")
    frames = cell.node.episodes.frames
    live.wait(lambda: cell.node.episodes.frames > frames + 4)
    page.keyboard.press("f")
    page.wait_for_selector("body[data-state=idle]")
    flags = cell.store().episode(0).intervention
    assert flags.any()
    assert not flags.all()
    page.context.close()


def test_a_phone_shows_everything_within_its_width(browser: Any, live: LiveCell) -> None:
    """390 x 844: nothing is wider than the screen, and a second page watches."""
    page = open_page(browser, live, width=390, height=844)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    second = browser.new_page()
    second.goto(live.address)
    second.wait_for_selector("body[data-ready][data-role=watcher]")
    second.click("#banner button")
    page.click("#banner button:has-text('Hand over')")
    second.wait_for_selector("body[data-role=driver]")
    second.close()
    page.context.close()


def test_a_copy_of_a_tab_takes_the_controls_and_sees_the_speed(browser: Any, live: LiveCell) -> None:
    """One page of two with the same name drives; both sliders show the real speed."""
    page = open_page(browser, live)
    page.fill("#speed", "10")
    live.wait(lambda: live.cell.node.drive is not None and live.cell.node.drive.speed == 0.1)
    with page.context.expect_page() as opened:
        page.evaluate("window.open(location.href)")
    copy = opened.value
    copy.wait_for_selector("body[data-role=driver]")
    page.wait_for_selector("body[data-role=watcher]")
    live.wait(lambda: copy.input_value("#speed") == "10")
    assert page.locator("#speed").is_disabled()
    copy.fill("#speed", "55")
    live.wait(lambda: page.input_value("#speed") == "55")
    page.context.close()


def test_arrow_keys_move_the_focused_slider_and_drive_after_a_drag(browser: Any, live: LiveCell) -> None:
    """With the focus, the slider has its keys and the arm stands still; one that was dragged gives them back,
    also if the pointer is let go beside it.
    """
    page, cell = open_page(browser, live), live.cell
    page.focus("#speed")
    before = cell.arm.q_rad.copy()
    for _ in range(5):
        page.keyboard.press("ArrowLeft", delay=50)
    live.wait(lambda: cell.node.drive is not None and cell.node.drive.speed == 0.95)
    np.testing.assert_allclose(cell.arm.q_rad, before, atol=1e-3)
    box = page.locator("#speed").bounding_box()
    page.mouse.move(box["x"] + 0.9 * box["width"], box["y"] + box["height"] / 2)
    page.mouse.down()
    page.mouse.move(box["x"] + 0.6 * box["width"], box["y"] + 3 * box["height"], steps=3)
    page.mouse.up()
    live.wait(lambda: cell.node.drive is not None and 0.5 < cell.node.drive.speed < 0.75)
    page.keyboard.down("ArrowLeft")
    live.wait(lambda: bool(np.abs(cell.arm.q_rad - before).max() > 0.05))
    page.keyboard.up("ArrowLeft")
    page.context.close()


def test_episodes_are_reviewed_relabelled_and_deleted(browser: Any, live: LiveCell) -> None:
    """V opens the list; an episode plays, gets another label, is found by it, and deleted by two clicks."""
    page, cell = open_page(browser, live), live.cell
    for _ in range(2):
        page.keyboard.press("Space")
        page.wait_for_selector("body[data-state=recording]")
        live.wait(lambda: cell.node.episodes.frames > 5)
        page.keyboard.press("Enter")
        page.wait_for_selector("body[data-state=idle]")
        live.wait(lambda: cell.armed)
    page.keyboard.press("v")
    page.wait_for_selector("#episodes button:has-text('Episode 1')")
    assert page.locator(".undo").is_hidden()  # there is no edit yet
    page.keyboard.press("Enter")  # presses no button that was not chosen
    page.click("#episodes button:has-text('Episode 1')")
    page.wait_for_selector("#player output:has-text('Episode 1')")
    page.fill("#player .edit input", "pull it")
    page.click("#player .bad")  # the field loses the focus, so that both are sent at once
    page.wait_for_selector("#episodes em:has-text('failure')")
    page.wait_for_selector("#episodes small:has-text('pull it')")
    page.select_option("#review .filter", "failure")
    assert page.locator("#episodes li").count() == 1
    page.click("#player .delete")
    page.click("#player .delete")
    page.wait_for_selector("#tally:has-text('1 saved')", state="attached")
    assert [(episode.number, episode.success) for episode in cell.store()] == [(0, True)]
    page.click(".undo")
    page.wait_for_selector("#tally:has-text('2 saved')", state="attached")
    assert [episode.success for episode in cell.store()] == [True, False]
    page.context.close()


def test_a_dialog_hides_neither_the_emergency_stop_nor_errors(browser: Any, live: LiveCell) -> None:
    """Both lists cover the page, so each has a stop and shows errors; Space closes the list of keys."""
    page, cell = open_page(browser, live), live.cell
    page.keyboard.press("?")
    page.keyboard.press("Space")
    page.wait_for_selector("#keys:not([open])", state="attached")
    assert cell.armed
    page.keyboard.press("v")
    page.click("#review .estop")
    page.wait_for_selector("#review .estop:has-text('STOP IS PRESSED')")
    live.wait(lambda: not cell.armed)
    assert page.locator("#review #toast").is_visible()
    live.close_server()
    page.wait_for_selector("#review #toast:has-text('Connection to the app lost')")
    page.context.close()


def test_the_arm_is_drawn_in_3d(browser: Any, live: LiveCell) -> None:
    """The picture changes with the arm, with a drag, and with the scene that a simulator tells; what is no
    scene is told and changes nothing.
    """
    page, cell = open_page(browser, live), live.cell
    picture = "document.querySelector('#arm-view canvas').toDataURL()"
    before = page.evaluate(picture)
    page.keyboard.down("ArrowLeft")
    live.wait(lambda: page.evaluate(picture) != before)
    page.keyboard.up("ArrowLeft")
    live.wait(lambda: cell.node.drive is not None and not cell.node.drive.moving)
    page.wait_for_timeout(300)
    tell = SCENE.publisher(cell.world.bus("sim_scene"))
    shape = {
        "kind": "box",
        "link": -1,
        "size_m": [0.1, 0.1, 0.1],
        "pos_m": [0.3, 0, 0.1],
        "quat": [1, 0, 0, 0],
    }
    tell(Text(json.dumps([shape | {"rgb": [0, 1, 0]}])))
    green = (
        "(() => { const c = document.querySelector('#arm-view canvas');"
        "const d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data; let n = 0;"
        "for (let i = 0; i < d.length; i += 4) n += d[i + 1] > 2 * d[i] && d[i + 1] > 2 * d[i + 2];"
        "return n; })()"
    )
    live.wait(lambda: page.evaluate(green) > 500)
    seen = page.evaluate(picture)
    tell(Text(json.dumps([shape | {"rgb": [0, 1, 0], "link": 7}])))
    page.wait_for_selector("#notices li[data-level=error]:has-text('the arm has 3 joints')")
    assert page.evaluate(picture) == seen
    box = page.locator("#arm-view canvas").bounding_box()
    page.mouse.move(box["x"] + 50, box["y"] + 50)
    page.mouse.down()
    page.mouse.move(box["x"] + 90, box["y"] + 60, steps=3)
    page.mouse.up()
    assert page.evaluate(picture) != seen
    page.keyboard.press("Home")
    assert page.evaluate(picture) == seen
    page.context.close()


@pytest.mark.parametrize("key", ["Shift+ArrowLeft", "Shift+ArrowUp", "+", "-"])
def test_keys_move_the_3d_view_and_not_the_arm(browser: Any, live: LiveCell, key: str) -> None:
    """An operator without a mouse can look around, too; Home shows the first view again."""
    page, cell = open_page(browser, live), live.cell
    picture = "document.querySelector('#arm-view canvas').toDataURL()"
    page.wait_for_timeout(300)
    first, before = page.evaluate(picture), cell.arm.q_rad.copy()
    page.keyboard.press(key)
    assert page.evaluate(picture) != first
    page.wait_for_timeout(200)
    np.testing.assert_array_equal(cell.arm.q_rad, before)
    page.keyboard.press("Home")
    assert page.evaluate(picture) == first
    page.context.close()


GAMEPAD = """
const buttons = Array.from({ length: 17 }, () => ({ pressed: false }));
const pad = { id: "Test Pad", connected: true, axes: [0, 0, 0, 0], buttons };
window.pad = pad;
navigator.getGamepads = () => [window.pad];
"""


def test_a_gamepad_drives_while_its_switch_is_held(browser: Any, live: LiveCell) -> None:
    """The stick alone moves nothing; with a shoulder button it does; unplugged, the arm stands still."""
    context = browser.new_context()
    context.add_init_script(GAMEPAD)
    page, cell = context.new_page(), live.cell
    page.goto(live.address)
    page.wait_for_selector("body[data-ready][data-role=driver]")
    page.wait_for_selector("#device:has-text('Test Pad')")
    page.evaluate("pad.axes[0] = -1")
    before = cell.arm.q_rad.copy()
    page.wait_for_timeout(300)
    np.testing.assert_allclose(cell.arm.q_rad, before, atol=1e-3)
    page.evaluate("pad.buttons[4].pressed = true")
    live.wait(lambda: bool(np.abs(cell.arm.q_rad - before).max() > 0.05))
    page.evaluate("window.pad = null")
    live.wait(lambda: cell.node.drive is not None and not cell.node.drive.moving)
    context.close()
