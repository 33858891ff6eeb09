// The operator's hand: its pose is sent while something is held, and the arm follows its motion since then. Nothing
// held, a hidden page or a lost connection: "release" is sent at once, and the next hold begins anew.
const PERIOD_MS = 16;
const LEAST_MS = 12; // between two poses: a headset draws up to 120 frames per second

export class Hand {
  // read(): {position, quat} in WebXR's frame, or null while tracking is lost. onEngage(): called as a hold begins.
  constructor(link, read, onEngage) {
    Object.assign(this, { link, read, onEngage, enabled: false, framed: false, held: new Set(), active: "", seq: 0 });
    this.frozen = null;
    this.grip = null;
    this.toggle = false;
    this.sentMs = 0;
    addEventListener("blur", () => this.drop());
    addEventListener("pagehide", () => this.drop());
    document.addEventListener("visibilitychange", () => document.hidden && !this.framed && this.drop());
    setInterval(() => { if (!this.framed) this.tick(); }, PERIOD_MS);
  }

  get driving() { return this.active !== ""; }

  // Hold by a finger or a button `name`. gripper: 0 closes it and 1 opens it, without moving the hand.
  hold(name, gripper = null) {
    if (!this.enabled) return;
    if (!this.held.size) this.onEngage();
    if (gripper !== null) {
      this.grip = gripper;
      this.frozen ??= this.read() ?? { position: [0, 0, 0], quat: [0, 0, 0, 1] };
    }
    this.held.add(name);
    this.tick(true);
  }

  let(name) {
    if (!this.held.delete(name)) return;
    if (!this.moves) this.frozen = this.read();
    if (!this.held.size) this.drop();
    else this.tick(true);
  }

  // True while more than the gripper is held.
  get moves() { return [...this.held].some((name) => !name.startsWith("gripper")); }

  // Open or close the gripper at the next pose.
  toggleGripper() { this.toggle = this.driving; }

  drop() {
    this.held.clear();
    this.grip = this.frozen = null;
    this.toggle = false;
    this.release();
  }

  release() {
    if (this.active) { this.active = ""; this.link.send({ kind: "release" }); }
  }

  tick(now = false) {
    if (!this.enabled || !this.held.size) { if (this.driving || this.held.size) this.drop(); return; }
    const way = this.moves ? "move" : "grip", pose = way === "move" ? this.read() : this.frozen;
    if (this.active && (this.active !== way || !pose)) this.release(); // engages anew, so that nothing jumps
    if (!pose || (!now && performance.now() - this.sentMs < LEAST_MS)) return;
    this.sentMs = performance.now();
    this.seq += 1;
    const request = { kind: "pose", seq: this.seq, clutch: true, position_m: pose.position, quat_xyzw: pose.quat, sent_ms: this.sentMs };
    if (this.grip !== null) request.gripper = this.grip;
    if (this.toggle) request.gripper_toggle = true;
    if (this.link.send(request)) { this.active = way; this.toggle = false; this.grip = null; }
  }
}

// The hand that fingers move on the pads: metres and radians per pixel of a drag.
const M_PER_PX = 0.0005, RAD_PER_PX = 0.006;

export class PadHand {
  constructor(maths) { Object.assign(this, { maths, position: [0, 0, 0], quat: [0, 0, 0, 1], turns: false, sensed: null, yaw: 0 }); }

  engage() { if (this.sensed) this.yaw = this.maths.heading(this.sensed); }

  pose() {
    return { position: [...this.position], quat: this.sensed ? this.maths.facing(this.sensed, this.yaw) : this.quat };
  }

  // A drag by (x, y) pixels on the plane (right, up), or by y on the strip.
  drag(strip, x, y) {
    if (!this.turns) {
      this.position[0] += M_PER_PX * x;
      this.position[strip ? 1 : 2] += M_PER_PX * y * (strip ? 1 : -1);
      return;
    }
    const { multiply, turnAbout, unit } = this.maths;
    const turn = strip ? turnAbout(2, -RAD_PER_PX * y) : multiply(turnAbout(1, -RAD_PER_PX * x), turnAbout(0, RAD_PER_PX * y));
    this.quat = unit(multiply(turn, this.quat));
  }
}

// Fingers on a pad: each holds, and its motion is dragged.
export function attachPad(element, hand, pad, strip) {
  const at = new Map();
  element.addEventListener("pointerdown", (event) => {
    if (!hand.enabled) return;
    element.setPointerCapture(event.pointerId);
    event.preventDefault();
    at.set(event.pointerId, [event.clientX, event.clientY]);
    element.classList.add("held");
    hand.hold(`${element.id}-${event.pointerId}`);
  });
  element.addEventListener("pointermove", (event) => {
    const from = at.get(event.pointerId);
    if (!from || !hand.held.has(`${element.id}-${event.pointerId}`)) return;
    pad.drag(strip, event.clientX - from[0], from[1] - event.clientY);
    at.set(event.pointerId, [event.clientX, event.clientY]);
  });
  for (const kind of ["pointerup", "pointercancel", "lostpointercapture"]) {
    element.addEventListener(kind, (event) => {
      at.delete(event.pointerId);
      if (!at.size) element.classList.remove("held");
      hand.let(`${element.id}-${event.pointerId}`);
    });
  }
}

// A button that holds while it is pressed.
export function attachHold(element, hand, name, gripper = null) {
  element.addEventListener("pointerdown", (event) => {
    element.setPointerCapture(event.pointerId);
    event.preventDefault();
    hand.hold(name, gripper);
  });
  for (const kind of ["pointerup", "pointercancel", "lostpointercapture"]) element.addEventListener(kind, () => hand.let(name));
  element.addEventListener("contextmenu", (event) => event.preventDefault());
}
