"""What the pages show in a real browser: sizes of pictures, and sentences that fit the state."""

from __future__ import annotations

from typing import Any

import pytest

from tests.apps.recording.live import LiveCell
from tests.apps.recording.test_page import open_page
from tests.apps.recording.test_phone_page import open_phone

pytestmark = pytest.mark.slow


def test_two_cameras_stand_side_by_side_on_a_small_screen(browser: Any, live: LiveCell) -> None:
    """1024 x 768: they stood one below the other, 85 pixels high, between black bars."""
    page = open_page(browser, live, width=1024, height=768)
    boxes = [figure.bounding_box() for figure in page.locator("#cameras figure").all()]
    assert len(boxes) == 2
    assert min(box["height"] for box in boxes) > 150
    page.context.close()


def test_a_played_episode_is_not_below_the_head_of_its_window(browser: Any, live: LiveCell) -> None:
    """An episode that was chosen far down in the list: the head covered the upper part of its pictures."""
    page, cell = open_page(browser, live, width=1024, height=500), live.cell
    page.keyboard.press("Space")
    live.wait(lambda: cell.node.episodes.frames > 5)
    page.keyboard.press("Enter")
    page.wait_for_selector("body[data-state=idle]")
    page.keyboard.press("v")
    page.wait_for_selector("#episodes button")
    page.evaluate("document.querySelector('#episodes').style.paddingTop = '1500px'")
    page.locator("#episodes button").scroll_into_view_if_needed()
    page.evaluate("document.querySelector('#episodes button').click()")
    page.wait_for_selector("#player output:has-text('Episode 0')")
    head, player = (page.locator(name).bounding_box() for name in ("#review > .row", "#player"))
    assert player["y"] >= head["y"] + head["height"] - 1
    page.context.close()


def test_a_phone_says_that_the_arm_is_held(browser: Any, live: LiveCell) -> None:
    """In a pause it said that a drag moves the tool; with a pressed stop, to release "no new state"."""
    page = open_phone(browser, live)
    page.click("#episode-buttons [data-do=start]")
    page.click("#episode-buttons [data-do=pause]")
    page.wait_for_selector("#hint:has-text('The arm is held. Resume, or save what is recorded.')")
    live.cell.ask(kind="end")
    page.wait_for_selector("#hint:has-text('The arm is held. Save the episode, or discard it.')")
    live.cell.ask(kind="stop")
    page.wait_for_selector("#hint:has-text('Press Arm, then drag.')")
    page.click("#estop")
    page.wait_for_selector(
        "#hint:has-text('The emergency stop is pressed. Release it, press Arm, then drag.')"
    )
    page.context.close()
