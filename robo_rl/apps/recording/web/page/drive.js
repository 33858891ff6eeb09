// Driving by keys, by dragging on pads, and by a gamepad. Something has to be held: a key, a pad or the gamepad's
// switch. When it is let go, and when the page loses focus, "release" is sent at once.
const PERIOD_MS = 33;
const TOOL_KEYS = {
  ArrowUp: [0, 1], ArrowDown: [0, -1], ArrowLeft: [1, 1], ArrowRight: [1, -1],
  KeyW: [2, 1], KeyS: [2, -1], KeyZ: [3, 1], KeyC: [3, -1], KeyQ: [4, 1], KeyE: [4, -1], KeyA: [5, 1], KeyD: [5, -1],
  KeyO: [6, 1], KeyL: [6, -1],
};
const SWITCHES = [4, 5, 6, 7]; // shoulder buttons of a gamepad in the standard layout
const [CLOSE, OPEN] = [0, 1]; // buttons of the gripper
const DEAD_ZONE = 0.12;
const held = (pad, button) => (pad.buttons[button]?.pressed ? 1 : 0);

export class Drive {
  constructor(link, joints) {
    this.link = link;
    this.joints = joints;
    this.mode = "tool";
    this.enabled = false;
    this.keys = new Set();
    this.shift = false;
    this.pads = new Map(); // element -> [axis, value] pairs while it is held
    this.active = false;
    this.source = "";
    addEventListener("blur", () => this.drop());
    addEventListener("pagehide", () => this.drop());
    document.addEventListener("visibilitychange", () => document.hidden && this.drop());
    addEventListener("gamepaddisconnected", () => this.drop());
    setInterval(() => this.tick(), PERIOD_MS);
  }

  setMode(mode) {
    if (mode !== this.mode) { this.drop(); this.mode = mode; }
  }

  // True if the key drives.
  press(event) {
    this.shift = event.shiftKey;
    if (!this.drives(event.code)) return false;
    if (!event.repeat) { this.keys.add(event.code); this.tick(); }
    return true;
  }

  lift(event) {
    this.shift = event.shiftKey;
    if (this.keys.delete(event.code)) this.tick();
  }

  drives(code) {
    return this.mode === "tool" ? code in TOOL_KEYS : /^Digit[1-9]$/.test(code) && Number(code[5]) <= this.joints;
  }

  hold(element, axes) { this.pads.set(element, axes); this.tick(); }

  let(element) { if (this.pads.delete(element)) this.tick(); }

  drop() {
    this.keys.clear();
    this.pads.clear();
    if (this.active) { this.active = false; this.link.send({ kind: "release" }); }
  }

  tick() {
    const values = this.enabled ? this.values() : null;
    if (values) {
      this.active = this.link.send({ kind: "drive", mode: this.mode, values, sent_ms: performance.now() });
    } else if (this.active) {
      this.active = false;
      this.link.send({ kind: "release" });
    }
  }

  // Values of what is held; null when nothing is.
  values() {
    const values = new Array(this.mode === "tool" ? 7 : this.joints).fill(0);
    let held = false;
    const add = (axis, value) => { held = true; if (axis < values.length) values[axis] += value; };
    for (const code of this.keys) {
      if (this.mode === "tool") { if (code in TOOL_KEYS) add(...TOOL_KEYS[code]); }
      else add(Number(code[5]) - 1, this.shift ? -1 : 1);
    }
    if (held) this.source = "keys";
    for (const axes of this.pads.values()) { for (const [axis, value] of axes) add(axis, value); this.source = "drag"; }
    const pad = this.gamepad();
    if (pad) { pad.forEach(([axis, value]) => add(axis, value)); this.source = "gamepad"; }
    return held ? values.map((value) => Math.max(-1, Math.min(1, value))) : null;
  }

  // Axes of a gamepad whose switch is held; null otherwise.
  gamepad() {
    for (const pad of navigator.getGamepads ? navigator.getGamepads() : []) {
      if (!pad || !pad.connected || !SWITCHES.some((button) => pad.buttons[button]?.pressed)) continue;
      const at = (axis) => (Math.abs(pad.axes[axis] ?? 0) > DEAD_ZONE ? pad.axes[axis] : 0);
      if (this.mode === "tool") return [[0, -at(1)], [1, -at(0)], [2, -at(3)], [5, -at(2)], [6, held(pad, OPEN) - held(pad, CLOSE)]];
      return [0, 1, 2, 3].slice(0, this.joints).map((axis) => [axis, at(axis)]);
    }
    return null;
  }

  gamepadName() {
    for (const pad of navigator.getGamepads ? navigator.getGamepads() : []) if (pad?.connected) return pad.id.slice(0, 32);
    return "";
  }

  // A button that drives while it is held.
  attachButton(button, axes) {
    button.addEventListener("pointerdown", (event) => { button.setPointerCapture(event.pointerId); this.hold(button, axes); });
    for (const kind of ["pointerup", "pointercancel", "lostpointercapture"]) button.addEventListener(kind, () => this.let(button));
  }

  // A pad that is dragged: axes(x, y) gives [axis, value] pairs for a position in -1 ... 1, y upwards.
  attach(element, axes) {
    const knob = element.querySelector("i");
    const move = (event) => {
      const box = element.getBoundingClientRect();
      const to = (value) => Math.max(-1, Math.min(1, value));
      const x = to((2 * (event.clientX - box.left)) / box.width - 1);
      const y = to(1 - (2 * (event.clientY - box.top)) / box.height);
      knob.style.left = `${50 + 50 * x}%`;
      knob.style.top = `${50 - 50 * y}%`;
      this.hold(element, axes(x, y));
    };
    const end = () => { knob.style.left = knob.style.top = "50%"; this.let(element); };
    element.addEventListener("pointerdown", (event) => {
      if (!this.enabled) return;
      element.setPointerCapture(event.pointerId);
      event.preventDefault();
      move(event);
    });
    element.addEventListener("pointermove", (event) => element.hasPointerCapture(event.pointerId) && move(event));
    for (const name of ["pointerup", "pointercancel", "lostpointercapture"]) element.addEventListener(name, end);
  }
}
