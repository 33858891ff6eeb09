// A session of WebXR: the phone itself (augmented reality) or a headset's controller is the hand.
import { Picture } from "./picture.js";

const MODES = ["immersive-ar", "immersive-vr"];
const [TRIGGER, SQUEEZE, STICK, A, B] = [0, 1, 3, 4, 5]; // buttons of the xr-standard layout
const ACTIONS = new Map([[A, "toggle_save"], [B, "failure"], [STICK, "discard"]]);

// Mode that this browser has; empty if none, as without HTTPS.
export async function xrMode() {
  for (const mode of MODES) {
    try { if (await navigator.xr?.isSessionSupported(mode)) return mode; } catch { /* the browser refuses to tell */ }
  }
  return "";
}

export class XrHand {
  // act(name): buttons of a controller. picture: canvas that a headset without a view of the room shows.
  constructor(hand, overlay, picture, act, onChange) {
    Object.assign(this, { hand, overlay, picture, act, onChange, session: null, pose: null, pressed: new Map(), engaged: null });
  }

  // Begin a session; throws what the browser throws if it or its user refuses.
  async start(mode) {
    const session = await navigator.xr.requestSession(mode, {
      requiredFeatures: ["local"], optionalFeatures: ["dom-overlay"], domOverlay: { root: this.overlay },
    });
    try {
      const gl = document.createElement("canvas").getContext("webgl", { xrCompatible: true });
      this.layer = new XRWebGLLayer(session, gl);
      await session.updateRenderState({ baseLayer: this.layer });
      this.space = await session.requestReferenceSpace("local");
      this.gl = gl;
      this.screen = mode === "immersive-vr" ? new Picture(gl, this.picture) : null;
    } catch (error) {
      await session.end();
      throw error;
    }
    this.session = session;
    this.hand.drop();
    this.hand.framed = true;
    this.space.addEventListener("reset", () => this.hand.drop()); // the origin moved
    session.addEventListener("visibilitychange", () => session.visibilityState !== "visible" && this.hand.drop());
    session.addEventListener("end", () => this.ended());
    if (!session.domOverlayState) { // the screen cannot show a button: a touch of it is the switch
      session.addEventListener("selectstart", (event) => this.isScreen(event.inputSource) && this.hand.hold("screen"));
      session.addEventListener("selectend", () => this.hand.let("screen"));
    }
    this.overlay.addEventListener("beforexrselect", (event) => event.preventDefault());
    session.requestAnimationFrame((time, frame) => this.frame(frame));
    this.onChange(mode);
  }

  stop() { this.session?.end(); }

  ended() {
    this.session = this.pose = this.engaged = null;
    this.pressed.clear();
    this.hand.drop();
    this.hand.framed = false;
    this.onChange("");
  }

  isScreen(source) { return source.targetRayMode === "screen"; }

  frame(frame) {
    const { session, gl, hand } = this;
    if (!session) return;
    session.requestAnimationFrame((time, next) => this.frame(next));
    gl.bindFramebuffer(gl.FRAMEBUFFER, this.layer.framebuffer);
    gl.clearColor(0, 0, 0, 0);
    gl.clear(gl.COLOR_BUFFER_BIT | gl.DEPTH_BUFFER_BIT);
    const viewer = frame.getViewerPose(this.space);
    if (viewer && this.screen) this.screen.draw(this.layer, viewer.views);
    const controllers = [...session.inputSources].filter((source) => source.gripSpace && source.gamepad);
    if (this.engaged && !controllers.includes(this.engaged)) this.let(); // switched off
    if (controllers.length) controllers.forEach((source) => this.buttons(source));
    const found = controllers.length ? this.engaged && frame.getPose(this.engaged.gripSpace, this.space) : viewer;
    this.pose = this.tracked(found);
    hand.tick();
  }

  // Pose of what is tracked; null while its position is a guess.
  tracked(found) {
    if (!found || found.emulatedPosition) return null;
    const { position: p, orientation: q } = found.transform;
    return { position: [p.x, p.y, p.z], quat: [q.x, q.y, q.z, q.w] };
  }

  // Squeeze holds, the trigger opens or closes the gripper, A, B and the stick act on the episode.
  buttons(source) {
    const now = source.gamepad.buttons.map((button) => button.pressed), before = this.pressed.get(source) ?? now;
    this.pressed.set(source, now);
    const hold = now.length > SQUEEZE ? SQUEEZE : TRIGGER;
    if (now[hold] && !before[hold] && !this.engaged) { this.engaged = source; this.pose = null; this.hand.hold("squeeze"); }
    if (!now[hold] && this.engaged === source) this.let();
    if (hold !== TRIGGER && now[TRIGGER] && !before[TRIGGER]) this.hand.toggleGripper();
    for (const [button, name] of ACTIONS) if (now[button] && !before[button]) this.act(name);
  }

  let() { this.engaged = null; this.hand.let("squeeze"); }

  // Let the operator's hand feel something.
  pulse(ms) {
    for (const source of this.session?.inputSources ?? []) source.gamepad?.hapticActuators?.[0]?.pulse?.(0.6, ms);
  }
}
