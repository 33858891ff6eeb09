"""The page for phones and headsets in a real browser: its maths, drags, WebXR, and what stops the arm."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from hardware.kinematics import tool_pose
from robo_rl.apps.recording.driving.drive import PageDrive
from tests.apps.recording.live import LiveCell

pytestmark = pytest.mark.slow
# A browser with WebXR: `xr.step(...)` gives its session a frame with the phone, or a controller, at a place.
XR = """
window.xr = { session: null, callbacks: [], ended: 0 };
window.XRWebGLLayer = class { constructor() { this.framebuffer = null; } };
const at = (p, q) => ({ emulatedPosition: xr.lost, views: [], transform: {
  position: { x: p[0], y: p[1], z: p[2] }, orientation: { x: q[0], y: q[1], z: q[2], w: q[3] } } });
xr.make = () => Object.assign(new EventTarget(), {
  inputSources: xr.sources ?? [], domOverlayState: { type: "screen" }, visibilityState: "visible",
  updateRenderState: async () => {}, requestReferenceSpace: async () => (xr.space = new EventTarget()),
  requestAnimationFrame: (callback) => xr.callbacks.push(callback),
  end: async () => { xr.ended += 1; xr.session.dispatchEvent(new Event("end")); },
});
xr.step = (p, q = [0, 0, 0, 1]) => {
  const due = xr.callbacks; xr.callbacks = [];
  const frame = { getViewerPose: () => at(p, q), getPose: () => at(p, q) };
  due.forEach((callback) => callback(performance.now(), frame));
};
// Moves upwards at 90 Hz, by `rise` metres in so many steps, then stands until `xr.still`.
xr.y = 0;
xr.move = (rise, steps) => {
  let i = 0;
  const timer = setInterval(() => {
    i += 1;
    if (i <= steps) xr.y += rise / steps;
    xr.step([0, xr.y, 0]);
    if (xr.still) clearInterval(timer);
  }, 11);
};
Object.defineProperty(navigator, "xr", { value: {
  isSessionSupported: async (mode) => mode === (xr.mode ?? "immersive-ar"),
  requestSession: async () => (xr.session = xr.make()),
} });
window.felt = []; navigator.vibrate = (pattern) => { felt.push(pattern); return true; };
"""


WALL = """async () => {
  const { Picture } = await import("/picture.js"), seen = document.createElement("canvas");
  const draw = seen.getContext("2d");
  seen.width = seen.height = 64;
  [["rgb(250,0,0)", 0], ["rgb(0,0,250)", 32]].forEach(([colour, y]) => {
    draw.fillStyle = colour; draw.fillRect(0, y, 64, 32);
  });
  const gl = Object.assign(document.createElement("canvas"), { width: 64, height: 64 }).getContext("webgl");
  const eye = [1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1];
  const view = { projectionMatrix: [1, 0, 0, 0, 0, 1, 0, 0, 0, 0, -1, -1, 0, 0, -0.2, 0] };
  view.transform = { inverse: { matrix: eye } };
  const layer = { getViewport: () => ({ x: 0, y: 0, width: 64, height: 64 }) };
  new Picture(gl, seen).draw(layer, [view]);
  return [[32, 40], [32, 24], [4, 32]].map(([x, y]) => {
    const pixel = new Uint8Array(4);
    gl.readPixels(x, y, 1, 1, gl.RGBA, gl.UNSIGNED_BYTE, pixel);
    return [...pixel.slice(0, 3)];
  });
}"""


def open_phone(browser: Any, live: LiveCell, *scripts: str, **size: int) -> Any:
    """The page of an operator who has the controls, on a phone."""
    viewport = {"width": 390, "height": 844} | size
    context = browser.new_context(viewport=viewport, has_touch=True)
    for script in scripts:
        context.add_init_script(script)
    page = context.new_page()
    page.on("pageerror", lambda error: live.faults.append(str(error)))
    page.goto(f"{live.address}phone")
    page.wait_for_selector("body[data-ready][data-role=driver]")
    page.wait_for_selector("#phase:has-text('armed')")
    return page


def drive_of(live: LiveCell) -> PageDrive:
    assert live.cell.node.drive is not None
    return live.cell.node.drive


def height_m(live: LiveCell) -> float:
    return float(tool_pose(live.cell.robot)(live.cell.arm.q_rad)[0][2])


def press(page: Any, selector: str) -> None:
    """Put the mouse, as a finger, on the middle of an element."""
    box = page.locator(selector).bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.mouse.down()


def test_rotations_of_a_device_become_those_of_webxr(browser: Any, live: LiveCell) -> None:
    """Hand-worked: flat on a table with its top to the north, a phone is turned by -90 degrees about x,
    because its screen's normal is then up; a turn of 30 degrees to the left is one about y; an upright phone
    that looks west has the heading of a quarter turn. A turn to where the operator looks takes it away.
    A headset shows a picture the right way round on a wall of 1.2 m at 1.5 m: red above blue, nothing beside.
    """
    page = open_phone(browser, live)
    found = page.evaluate("""async () => {
      const m = await import("/pose.js"), flat = m.fromDevice(0, 0, 0);
      const left = m.fromDevice(30, 0, 0), west = m.fromDevice(90, 90, 0);
      return { flat, up: m.turned(flat, [0, 0, 1]), top: m.turned(left, [0, 1, 0]),
        headings: [flat, left, west].map(m.heading), faced: m.heading(m.facing(west, m.heading(west))),
        pitched: m.multiply(m.fromDevice(0, 20, 0), flat.map((v, i) => (i < 3 ? -v : v))) };
    }""")
    np.testing.assert_allclose(found["flat"], [-math.sqrt(0.5), 0.0, 0.0, math.sqrt(0.5)], atol=1e-9)
    np.testing.assert_allclose(found["up"], [0.0, 1.0, 0.0], atol=1e-9)
    np.testing.assert_allclose(found["top"], [-0.5, 0.0, -math.sqrt(0.75)], atol=1e-9)
    np.testing.assert_allclose(found["headings"], [0.0, math.pi / 6, math.pi / 2], atol=1e-6)
    np.testing.assert_allclose(found["faced"], 0.0, atol=1e-6)
    assert page.evaluate(WALL) == [[250, 0, 0], [0, 0, 250], [0, 0, 0]]
    ten = math.radians(10.0)
    np.testing.assert_allclose(found["pitched"], [math.sin(ten), 0.0, 0.0, math.cos(ten)], atol=1e-9)
    page.context.close()


def test_a_drag_moves_the_tool_and_a_lifted_finger_stops_it(browser: Any, live: LiveCell) -> None:
    """80 pixels upwards are 40 mm; held again elsewhere, nothing jumps; a page without focus lets go."""
    page = open_phone(browser, live)
    before_m = height_m(live)
    press(page, "#pad-strip")
    box = page.locator("#pad-strip").bounding_box()
    page.mouse.move(box["x"] + 40, box["y"] + box["height"] / 2 - 80, steps=20)
    live.wait(lambda: height_m(live) - before_m > 0.01)
    page.wait_for_selector("#pads[data-driving=yes]")
    page.mouse.up()
    live.wait(lambda: not drive_of(live).moving)
    page.wait_for_timeout(200)
    here_rad = live.cell.arm.q_rad.copy()
    press(page, "#pad-plane")
    live.wait(lambda: drive_of(live).moving)
    page.evaluate("dispatchEvent(new Event('blur'))")
    live.wait(lambda: not drive_of(live).moving)
    np.testing.assert_allclose(live.cell.arm.q_rad, here_rad, atol=1e-3)
    page.mouse.up()
    page.context.close()


def test_a_phone_with_webxr_drives_records_and_saves(browser: Any, live: LiveCell) -> None:
    """Frames of a session through the real server: the tool rises with the phone while the button is held.

    Lost tracking and the session's end stop it; the operator feels that it follows and that it lets go.
    """
    page, cell = open_phone(browser, live, XR), live.cell
    page.click("#episode-buttons [data-do=start]")
    page.wait_for_selector("body[data-state=recording]")
    page.click("#xr")
    page.wait_for_selector("body.xr #clutch")
    before_m = height_m(live)
    page.evaluate("xr.move(0.04, 40)")
    page.wait_for_timeout(300)
    assert height_m(live) == pytest.approx(before_m, abs=1e-4)  # nothing is held
    page.evaluate("xr.still = true")
    page.wait_for_timeout(30)
    press(page, "#clutch")
    page.evaluate("xr.still = false; xr.move(0.04, 40)")
    live.wait(lambda: height_m(live) - before_m > 0.01)
    page.wait_for_selector("#clutch[data-driving=yes]")
    page.evaluate("xr.lost = true")
    live.wait(lambda: not drive_of(live).moving)
    page.evaluate("xr.lost = false")
    live.wait(lambda: drive_of(live).moving)
    page.evaluate("xr.session.end()")
    live.wait(lambda: not drive_of(live).moving)
    page.mouse.up()
    page.wait_for_selector("body:not(.xr)")
    page.wait_for_function("felt.includes(30) && felt.includes(15)")
    page.click("#episode-buttons [data-do=success]")
    page.wait_for_selector("#tally:has-text('1 saved: 1')")
    (episode,) = cell.store()
    assert (episode.success, bool(episode.intervention.all())) == (True, True)
    page.context.close()


CONTROLLER = """
xr.mode = "immersive-vr";
xr.pulses = [];
xr.sources = [{ targetRayMode: "tracked-pointer", gripSpace: {}, gamepad: {
  buttons: Array.from({ length: 6 }, () => ({ pressed: false })),
  hapticActuators: [{ pulse: (strength, ms) => xr.pulses.push(ms) }] } }];
xr.button = (i, pressed) => { xr.sources[0].gamepad.buttons[i].pressed = pressed; };
"""


def test_a_controller_of_a_headset_drives_while_it_is_squeezed(browser: Any, live: LiveCell) -> None:
    """A starts the episode, squeeze moves the tool, a lost connection stops it in the page and on the arm."""
    page, cell = open_phone(browser, live, XR, CONTROLLER), live.cell
    page.click("#xr")
    page.wait_for_selector("body.xr")
    page.evaluate("xr.move(0.04, 40)")
    page.wait_for_timeout(50)
    page.evaluate("xr.button(4, true)")
    page.wait_for_selector("body[data-state=recording]")
    before_m = height_m(live)
    page.evaluate("xr.still = true")
    page.wait_for_timeout(30)
    page.evaluate("xr.still = false; xr.button(1, true); xr.move(0.04, 40)")
    live.wait(lambda: height_m(live) - before_m > 0.01)
    page.wait_for_function("xr.pulses.includes(30)")
    live.close_server()
    page.wait_for_selector("#banner[data-level=error]", state="attached")
    live.wait(lambda: not drive_of(live).moving)
    assert cell.node.episodes.state == "recording"
    page.context.close()


def test_a_second_operator_watches_and_everything_fits(browser: Any, live: LiveCell) -> None:
    """390 x 844 without scrolling sideways; the pads of a watcher move nothing until the controls are his."""
    page = open_phone(browser, live)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    page.locator("summary").click()
    assert "no WebXR" in page.inner_text("#help")
    second = browser.new_page()
    second.goto(f"{live.address}phone")
    second.wait_for_selector("body[data-ready][data-role=watcher]")
    press(second, "#pad-plane")
    second.wait_for_timeout(200)
    assert not drive_of(live).moving
    second.mouse.up()
    second.click("#banner button")
    page.click("#banner button:has-text('Hand over')")
    second.wait_for_selector("body[data-role=driver]")
    second.locator("summary").click()
    second.fill("#scale", "50")
    second.select_option("#yaw", "3.14159")
    tracked = drive_of(live).tracked
    assert tracked is not None
    live.wait(lambda: (tracked.scale, tracked.yaw_rad) == (0.5, 3.14159))
    second.close()
    page.context.close()


def test_a_lost_connection_and_an_emergency_stop_are_told(browser: Any, live: LiveCell) -> None:
    """Arm waits for the release of the stop; without a connection the pictures are called old."""
    page = open_phone(browser, live)
    page.click("#estop")
    page.wait_for_selector("#hint:has-text('Release it, press Arm')")
    assert page.locator("#arm").is_disabled()
    page.click("#banner button:has-text('Release')")
    page.wait_for_selector("#arm:enabled")
    live.close_server()
    page.wait_for_selector(".cameras figure b:has-text('no connection')")
    assert page.inner_text("#hint") == ""
    page.context.close()
