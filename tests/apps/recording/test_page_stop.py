"""The emergency stop of the pages in a real browser: its buttons and keys only press, one button releases."""

from __future__ import annotations

from typing import Any

import pytest

from tests.apps.recording.live import LiveCell
from tests.apps.recording.test_page import open_page
from tests.apps.recording.test_phone_page import open_phone

pytestmark = pytest.mark.slow


def start_episode(page: Any, live: LiveCell) -> None:
    """Begin an episode by a key, and wait for its first frames."""
    page.keyboard.press("Space")
    page.wait_for_selector("body[data-state=recording]")
    live.wait(lambda: live.cell.node.episodes.frames > 3)


def pressed(live: LiveCell) -> bool:
    return bool(live.cell.shared.view["estop"])


def test_a_double_click_and_a_key_after_it_do_not_release_the_stop(browser: Any, live: LiveCell) -> None:
    """A frightened operator clicks twice: the arm stays stopped, and Space starts an episode as ever."""
    page, cell = open_page(browser, live), live.cell
    page.dblclick("#estop")
    live.wait(lambda: not cell.armed)
    page.wait_for_selector("#banner button:has-text('Release')")
    page.click("#estop")
    page.keyboard.press("Shift+Escape")
    page.keyboard.press("Space")
    page.wait_for_selector("body[data-state=recording]")
    page.keyboard.press("x")
    assert pressed(live)
    assert cell.said.count("EMERGENCY STOP pressed") == 4
    page.click("#banner button:has-text('Release')")
    live.wait(lambda: not pressed(live))
    assert not cell.armed
    page.keyboard.press("m")
    live.wait(lambda: cell.armed)
    page.context.close()


def check_double_click(page: Any, live: LiveCell) -> None:
    """A double click on the stop presses it, and Release is shown below it; a click there releases it."""
    stop = page.locator("#estop").bounding_box()
    page.mouse.dblclick(stop["x"] + stop["width"] / 2, stop["y"] + stop["height"] / 2)
    release = page.wait_for_selector("#banner button:has-text('Release')")
    assert release.bounding_box()["y"] >= stop["y"] + stop["height"]
    assert pressed(live)
    release.click()
    live.wait(lambda: not pressed(live))
    page.wait_for_selector("#banner", state="hidden")  # or the next press would find this Release


def test_the_release_lies_where_no_second_click_lands(browser: Any, live: LiveCell) -> None:
    """Not under the stop that was clicked, on a wide, a narrow and a phone's screen."""
    page = open_page(browser, live)
    for width, height in ((1280, 720), (800, 600), (390, 844)):
        page.set_viewport_size({"width": width, "height": height})
        check_double_click(page, live)
    page.context.close()


def test_the_stop_of_the_phones_page_only_presses(browser: Any, live: LiveCell) -> None:
    """Its banner releases, too."""
    page = open_phone(browser, live)
    check_double_click(page, live)
    page.context.close()


@pytest.mark.parametrize("key", ["Enter", "Space"])
def test_a_key_presses_the_button_that_has_the_focus(browser: Any, live: LiveCell, key: str) -> None:
    """Enter on the emergency stop saved a success, and the arm went on; so on Discard."""
    page, cell = open_page(browser, live), live.cell
    start_episode(page, live)
    page.focus("#estop")
    page.keyboard.press(key)
    live.wait(lambda: not cell.armed)
    assert cell.node.episodes.state == "recording"
    page.focus("button[data-do=discard]")
    page.keyboard.press(key)
    page.wait_for_selector("body[data-state=idle]")
    assert len(cell.store()) == 0
    page.context.close()


def test_enter_saves_after_a_click_on_any_button(browser: Any, live: LiveCell) -> None:
    """A button that was clicked, or has opened a list, does not keep the focus."""
    page, cell = open_page(browser, live), live.cell
    start_episode(page, live)
    page.click("#mode-joints")
    page.click("#open-review")
    page.keyboard.press("Escape")
    page.wait_for_selector("#review:not([open])", state="attached")
    page.keyboard.press("Enter")
    page.wait_for_selector("#tally:has-text('1 saved: 1')")
    assert cell.store().episode(0).success
    page.context.close()


def test_the_stop_is_pressed_while_an_instruction_is_typed(browser: Any, live: LiveCell) -> None:
    """Shift+Esc in the field; what was typed stays there, and no key of the page is an action in it."""
    page, cell = open_page(browser, live), live.cell
    page.fill("#instruction", "pull")
    page.focus("#instruction")
    page.keyboard.press("Shift+Escape")
    live.wait(lambda: not cell.armed)
    page.keyboard.type(" it")
    assert page.input_value("#instruction") == "pull it"
    assert pressed(live)
    assert cell.node.episodes.state == "idle"
    page.context.close()


def test_who_watches_presses_and_is_offered_no_release(browser: Any, live: LiveCell) -> None:
    """The page that drives releases, and hands the controls over when it is asked."""
    page = open_page(browser, live)
    second = browser.new_page()
    second.goto(live.address)
    second.wait_for_selector("body[data-ready][data-role=watcher]")
    second.click("#estop")
    second.wait_for_selector("#banner:has-text('the page with the controls releases it')")
    assert second.locator("#banner button").all_inner_texts() == ["Ask for them"]
    second.click("#banner button")
    second.wait_for_selector("#banner:has-text('waiting for the other operator')")
    page.click("#banner button:has-text('Release')")
    page.click("#banner button:has-text('Hand over')")
    live.wait(lambda: not pressed(live))
    second.wait_for_selector("body[data-role=driver]")
    second.close()
    page.context.close()


@pytest.mark.parametrize("phone", [False, True])
def test_of_two_pages_that_watch_one_takes_the_controls_and_releases(
    browser: Any, live: LiveCell, phone: bool
) -> None:
    """The page that drove is closed while the stop is pressed."""
    page, others = open_page(browser, live), [browser.new_page() for _ in range(2)]
    for other in others:
        other.goto(f"{live.address}phone" if phone else live.address)
        other.wait_for_selector("body[data-ready]")
        other.wait_for_selector("#banner:has-text('you are watching')")
    page.click("#estop")
    live.wait(lambda: pressed(live))
    page.context.close()
    for other in others:
        other.wait_for_selector("#banner button:has-text('Take them')")
    others[0].click("#banner button:has-text('Take them')")
    others[0].click("#banner button:has-text('Release')")
    live.wait(lambda: not pressed(live))
    for other in others:
        other.close()
