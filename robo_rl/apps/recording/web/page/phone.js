// Entry of the page for a phone or a headset: a hand that is moved, the episode's buttons, and what the arm does.
import { Cameras } from "./cameras.js";
import { Hand, PadHand, attachHold, attachPad } from "./hand.js";
import { Link } from "./link.js";
import * as maths from "./pose.js";
import { Speed, bannerAt, diskSentence, stopSentence, tallyWords, watcherWords } from "./show.js";
import { XrHand, xrMode } from "./xr.js";

const $ = (id) => document.getElementById(id);
const facts = await (await fetch("api/facts")).json();
const mode = await xrMode();
let view = null;
let refused = "";
let told = { app: "", number: 0, atMs: 0 }; // newest message, of which start of the app, and when it came
let felt = { driving: false, slowedMs: 0 };

const cameras = new Cameras($("cameras"), facts.cameras);
if (!facts.cameras.length) $("cameras").replaceChildren();
const link = new Link({
  onView: (message) => { view = message; show(); },
  onPicture: (index, blob) => cameras.show(index, blob),
  onRefused: (sentence) => say(sentence),
  facts,
  onState: (open) => {
    document.body.dataset.link = open ? "open" : "lost";
    if (!open) { if (hand.driving) feel([120, 60, 120]); hand.enabled = false; hand.drop(); view = null; cameras.lost(); $("hint").textContent = ""; document.body.dataset.role = "watcher"; }
    showBanner();
  },
});
const pads = new PadHand(maths);
const speed = new Speed($("speed"), send);
let xr = null;
const hand = new Hand(link, () => (xr?.session ? xr.pose : pads.pose()), () => pads.engage());
xr = new XrHand(hand, $("phone"), document.querySelector("#cameras canvas") ?? document.createElement("canvas"), act, onXr);

function say(sentence) {
  refused = sentence;
  setTimeout(() => { refused = ""; showBanner(); }, 4000);
  showBanner();
}

function send(request) { if (!link.send(request)) say("Not sent: the connection to the app is lost."); }

function feel(pattern) {
  navigator.vibrate?.(pattern); // an iPhone has no such function
  xr?.pulse(Array.isArray(pattern) ? pattern[0] : pattern);
}

function act(name) {
  const idle = view?.episode.state === "idle";
  const requests = {
    start: { kind: "start" }, pause: { kind: "pause" }, resume: { kind: "resume" }, discard: { kind: "discard" }, again: { kind: "again" }, reset: { kind: "reset" },
    success: { kind: "save", success: true }, failure: { kind: "save", success: false }, arm: { kind: "arm" },
    estop: { kind: "estop", on: true }, release_estop: { kind: "estop", on: false }, ask: { kind: "ask" }, hand_over: { kind: "hand_over" }, keep: { kind: "keep" },
    take_over: { kind: "take_over" }, toggle_save: idle ? { kind: "start" } : { kind: "save", success: true },
  };
  if (name === "estop") hand.drop();
  send(requests[name]);
}

function follow() {
  const scale = Number($("scale").value) / 100;
  $("scale-words").textContent = scale.toFixed(2);
  if (view?.operators.role === "driver") { hand.drop(); send({ kind: "hand", scale, yaw_rad: Number($("yaw").value) }); }
}

function show() {
  const { operators, drive, robot, episode } = view;
  const driver = operators.role === "driver", phase = robot.filter.phase;
  if (driver && document.body.dataset.role !== "driver") { document.body.dataset.role = "driver"; follow(); }
  document.body.dataset.role = operators.role;
  document.body.dataset.state = episode.state;
  hand.enabled = driver && !!drive?.hand && drive.control === "human" && phase === "armed";
  $("phase").textContent = phase;
  $("arm").hidden = phase === "armed";
  $("arm").disabled = !driver || view.estop;
  $("estop").textContent = view.estop ? "PRESSED" : "STOP";
  $("estop").dataset.pressed = view.estop;
  $("state").textContent = { idle: "ready", recording: "recording", paused: "paused", ended: "ended", editing: "editing" }[episode.state];
  $("clock").textContent = episode.state === "idle" ? "" : `${episode.seconds.toFixed(1)} s`;
  $("tally").textContent = tallyWords(episode);
  document.querySelectorAll("#episode-buttons button").forEach((button) => {
    button.hidden = !button.dataset.when.split(" ").includes(episode.state) || ("sim" in button.dataset && !facts.resets);
    button.disabled = !driver;
  });
  speed.show(view);
  cameras.ages(robot.cameras);
  showNotice(view.app_id, view.notices[view.notices.length - 1]);
  showHand(drive?.hand);
  showBanner();
}

// The newest message, for a while.
function showNotice(app, last) {
  const number = last?.number ?? 0;
  if (app !== told.app || number !== told.number) told = { app, number, atMs: performance.now() };
  const shown = performance.now() - told.atMs < 20000 ? last : undefined;
  $("notice").textContent = shown?.text ?? "";
  $("notice").dataset.level = shown?.level ?? "";
}

// Colours and haptics of the arm's answer: a tick as it follows and as it lets go, a buzz where it cannot follow.
function showHand(state) {
  const driving = !!state?.driving && hand.driving, slowed = driving && state.slowed > 0.4;
  for (const place of [$("pads"), $("clutch")]) { place.dataset.driving = driving ? "yes" : ""; place.dataset.slowed = slowed ? "yes" : ""; }
  if (driving !== felt.driving) feel(driving ? 30 : 15);
  if (slowed && performance.now() - felt.slowedMs > 400) { feel([40, 40, 40]); felt.slowedMs = performance.now(); }
  felt.driving = driving;
  const by = xr.session ? (xr.pose ? "" : "tracking is lost: move slowly, with some light; ") : "";
  $("hint").textContent = slowed ? "The arm cannot go there: an end of a joint, or a stretched arm." : driving ? "The arm follows." : hand.held.size && by ? by : words();
}

function words() {
  if (view.operators.role !== "driver") return "";
  if (!view.drive) return "Another program drives this arm; this page records.";
  if (!view.drive.hand) return "The description of this robot has no axes, so its tool cannot be driven. Use the main page.";
  if (view.drive.control === "policy") return "The policy is in control.";
  if (view.estop) return `The emergency stop is pressed. Release it, press Arm, then ${xr.session ? "hold" : "drag"}.`;
  if (view.robot.filter.phase !== "armed") {
    const why = view.robot.filter.reason.replace("; it goes on after safety_filter/arm", "");
    return `${why[0].toUpperCase()}${why.slice(1)}. Press Arm, then ${xr.session ? "hold" : "drag"}.`;
  }
  if (view.episode.state === "paused") return "The arm is held. Resume, or save what is recorded.";
  if (view.episode.state === "ended") return "The arm is held. Save the episode, or discard it.";
  if (xr.session) return "Hold the button and move. Let go, move back, hold again: the tool stays.";
  return pads.turns ? "A drag turns the tool. Lift the finger and the arm stops." : "A drag moves the tool. Lift the finger and the arm stops.";
}

function showBanner() {
  const set = bannerAt($("banner"), act);
  if (document.body.dataset.link !== "open") return set("Connection to the app lost. What you drive is held, a policy stops after 20 s at most. STOP may have no effect: use the robot's. Connecting again …", "error");
  if (refused) return set(refused, "error");
  if (!view) return set("", "");
  if (view.estop) return set(...stopSentence(view));
  const { operators } = view;
  if (operators.asked) return set("Another operator asks for the controls.", "warning", ["Hand over", "hand_over"], ["Keep them", "keep"]);
  if (operators.role === "watcher") {
    const [told, ...buttons] = watcherWords(operators);
    return set(told, "info", ...buttons);
  }
  if (view.drive?.control === "policy") return set("The policy is in control.", "info", ["Take over", "take_over"]);
  return set(diskSentence(view), "error");
}

function onXr(running) {
  document.body.classList.toggle("xr", running !== "");
  $("xr").textContent = running ? "End" : xrWords();
  $("modes").hidden = $("tilt").hidden = $("pads").hidden = running !== "";
  $("clutch").hidden = running === "";
}

function xrWords() { return mode === "immersive-vr" ? "Move by a controller" : "Move by the phone or a controller"; }

async function toggleXr() {
  if (xr.session) { xr.stop(); return; }
  try { await xr.start(mode); } catch (error) { say(`The browser begins no session: ${error.message}.`); }
}

// Turn the tool by the phone's own rotation, which an iPhone asks its user about.
async function toggleTilt() {
  hand.drop();
  if (pads.sensed || $("tilt").getAttribute("aria-pressed") === "true") {
    removeEventListener("deviceorientation", sense);
    pads.sensed = null;
    $("tilt").setAttribute("aria-pressed", false);
    return;
  }
  try {
    const asked = await globalThis.DeviceOrientationEvent?.requestPermission?.();
    if (asked === "denied") throw new Error("the browser was told not to give the sensor away");
    addEventListener("deviceorientation", sense);
    $("tilt").setAttribute("aria-pressed", true);
    setTimeout(() => { if (!pads.sensed && $("tilt").getAttribute("aria-pressed") === "true") { toggleTilt(); say("This device reports no rotation."); } }, 1500);
  } catch (error) { say(`No rotation: ${error.message}.`); }
}

function sense(event) {
  if (event.alpha === null || event.beta === null || event.gamma === null) return;
  if (!pads.sensed) hand.drop();
  pads.sensed = maths.fromDevice(event.alpha, event.beta, event.gamma);
}

function setTurns(turns) {
  hand.drop();
  pads.turns = turns;
  $("mode-move").setAttribute("aria-pressed", !turns);
  $("mode-turn").setAttribute("aria-pressed", turns);
  $("plane-words").textContent = turns ? "drag: turn and tilt" : "drag: forward, back, left, right";
  $("strip-words").textContent = turns ? "roll" : "up, down";
}

const port = location.port || (location.protocol === "https:" ? "443" : "80");
$("help").textContent = window.isSecureContext
  ? (mode ? "WebXR is there: press the blue button to move the tool by the device itself. Squeeze of a controller: hold; trigger: gripper; A: start, then save; B: save as a failure; stick pressed: discard."
    : "This browser has no WebXR, as on an iPhone. Drag on the pads; with Tilt the tool turns as the phone does.")
  : `This page was not opened securely, so the browser gives it no motion sensors. Drag works. For motion, either connect an Android phone by USB, run "adb reverse tcp:${port} tcp:${port}" on the computer and open http://localhost:${port}/phone, or start the app with certificate=<file> key=<file> and open it by https.`;
$("robot").textContent = facts.robot;
$("xr").hidden = !mode;
$("xr").textContent = xrWords();
$("xr").onclick = toggleXr;
$("tilt").hidden = !window.isSecureContext || !("DeviceOrientationEvent" in window);
$("tilt").onclick = toggleTilt;
$("mode-move").onclick = () => setTurns(false);
$("mode-turn").onclick = () => setTurns(true);
$("arm").onclick = () => act("arm");
$("estop").onclick = () => act("estop");
$("gripper").hidden = !facts.gripper;
$("scale").oninput = () => { $("scale-words").textContent = (Number($("scale").value) / 100).toFixed(2); };
$("scale").onchange = follow;
$("yaw").onchange = follow;
document.querySelectorAll("[data-do]").forEach((button) => { button.onclick = () => { act(button.dataset.do); button.blur(); }; });
attachPad($("pad-plane"), hand, pads, false);
attachPad($("pad-strip"), hand, pads, true);
attachHold($("clutch"), hand, "clutch");
attachHold($("gripper-close"), hand, "gripper-close", 0);
attachHold($("gripper-open"), hand, "gripper-open", 1);
document.body.dataset.ready = "yes";
