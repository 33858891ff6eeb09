// Entry of the page: connects the parts, shows views, and sends the operator's requests.
import { ArmView } from "./arm_view.js";
import { Cameras } from "./cameras.js";
import { Drive } from "./drive.js";
import { keyHelp, listen } from "./keys.js";
import { Link } from "./link.js";
import { Plots } from "./plots.js";
import { Policy } from "./policy.js";
import { Review } from "./review.js";
import { Instruction, Speed, bannerAt, diskSentence, showHeader, showNotices, showState, stopSentence, watcherWords } from "./show.js";

const $ = (id) => document.getElementById(id);
const facts = await (await fetch("api/facts")).json();
let view = null;
let shownFps = null; // of the last second; null before it

const plots = new Plots($("plots"), facts.joints);
const cameras = new Cameras($("cameras"), facts.cameras);
const arm = new ArmView($("arm-view"), facts.chain);
const link = new Link({
  onView: (message) => { view = message; show(); },
  onPicture: (index, blob) => cameras.show(index, blob),
  onRefused: (sentence) => banner(sentence, 4000),
  facts,
  onState: (open) => { document.body.dataset.link = open ? "open" : "lost"; if (!open) lost(); showBanner(); },
});
const drive = new Drive(link, facts.joints.length);
const review = new Review($("review"), $("episodes"), $("player"), facts, send);
const policy = new Policy($("policy"), send);
const instruction = new Instruction($("instruction"));
const speed = new Speed($("speed"), send);
document.body.dataset.views = facts.cameras.length + (facts.chain ? 1 : 0);
document.body.dataset.drives = facts.drives;
document.body.dataset.cameras = facts.cameras.length;

let passing = "";
let passingTimer = 0;
function banner(sentence, ms) {
  passing = sentence;
  clearTimeout(passingTimer);
  passingTimer = setTimeout(() => { passing = ""; showBanner(); }, ms);
  showBanner();
}

let toastTimer = 0;
// An error or warning shows over the page for a while, because the list of messages may be short or out of sight.
function toast(sentence, level = "error") {
  (document.querySelector("dialog[open]") ?? document.body).append($("toast")); // a dialog covers the page
  $("toast").textContent = sentence;
  $("toast").dataset.level = level;
  $("toast").hidden = false;
  clearTimeout(toastTimer);
  toastTimer = setTimeout(() => { $("toast").hidden = true; }, 7000);
}

function send(request) { if (!link.send(request)) banner("Not sent: the connection to the app is lost.", 3000); }

function lost() {
  drive.drop();
  if (view && document.querySelector("dialog[open]")) toast("Connection to the app lost. Connecting again …");
  view = null;
  cameras.lost();
}

// What an action of a button or key sends.
export function act(name) {
  const state = view?.episode.state;
  const requests = {
    start: { kind: "start" }, end: { kind: "end" }, pause: { kind: "pause" }, resume: { kind: "resume" },
    success: { kind: "save", success: true }, failure: { kind: "save", success: false },
    discard: { kind: "discard" }, again: { kind: "again" }, reset: { kind: "reset" },
    mark_good: { kind: "mark", reward: 1 }, mark_bad: { kind: "mark", reward: -1 },
    arm: { kind: "arm" }, stop: { kind: "stop" },
    estop: { kind: "estop", on: true }, release_estop: { kind: "estop", on: false },
    toggle: { kind: state === "idle" ? "start" : "end" },
    hold: { kind: state === "paused" ? "resume" : "pause" },
    control: { kind: view?.drive?.control === "policy" ? "take_over" : "let_run" },
    ask: { kind: "ask" }, hand_over: { kind: "hand_over" }, keep: { kind: "keep" },
  };
  if (name === "review") review.open(view);
  else if (name === "keys") $("keys").showModal();
  else if (name === "mode") setMode(drive.mode === "tool" ? "joints" : "tool");
  else if (name === "instruction") $("instruction").focus();
  else if (requests[name]) { if (name === "stop" || name === "estop") drive.drop(); send(requests[name]); }
}

function setMode(mode) {
  if (mode === "tool" && view?.drive && !view.drive.tool) mode = "joints";
  drive.setMode(mode);
  $("mode-tool").setAttribute("aria-pressed", mode === "tool");
  $("mode-joints").setAttribute("aria-pressed", mode === "joints");
  $("pads").hidden = mode !== "tool";
  $("gripper").hidden = mode !== "tool" || !facts.gripper;
  $("joint-rows").hidden = mode !== "joints";
}

function jointRows() {
  facts.joints.forEach((name, joint) => {
    const row = document.createElement("div");
    row.innerHTML = "<span></span><button>−</button><button>+</button>";
    row.querySelector("span").textContent = name.replaceAll("_", "_\u200b"); // a long name breaks at its underscores
    if (joint < 9) row.querySelector("span").append(Object.assign(document.createElement("kbd"), { textContent: joint + 1 }));
    row.querySelectorAll("button").forEach((button, side) => {
      button.setAttribute("aria-label", `${name} ${side ? "up" : "down"}`);
      drive.attachButton(button, [[joint, side ? 1 : -1]]);
    });
    $("joint-rows").append(row);
  });
}

let shownApp = ""; // whose views were shown last
function show() {
  if (view.app_id !== shownApp) { shownApp = view.app_id; arm.version = review.version = -1; } // started again: it counts anew
  document.body.dataset.state = view.episode.state;
  document.body.dataset.role = view.operators.role;
  drive.enabled = view.operators.role === "driver" && view.drive !== null;
  showHeader(view, { fps: facts.cameras.length ? shownFps : null, roundMs: view.echo_ms && drive.active ? performance.now() - view.echo_ms : null });
  showState(view, facts);
  instruction.show(view.episode.instruction);
  speed.show(view);
  showNotices(view, toast);
  cameras.ages(view.robot.cameras);
  arm.follow(view.scene);
  if (!document.hidden) arm.show(view.robot.measured);
  plots.add(view.at_s, view.robot.measured, view.robot.commanded);
  if (!document.hidden) plots.draw(); // with each view, 20 times a second: no more often than there is something new
  policy.show(view);
  review.update(view);
  $("device").textContent = !facts.drives ? `driven by ${facts.device || "another program"}` : drive.active ? `driving by ${drive.source}` : drive.gamepadName() || "keys, drag or gamepad";
  if (view.drive && !view.drive.tool && drive.mode === "tool") setMode("joints");
  $("mode-tool").disabled = !!view.drive && !view.drive.tool;
  showBanner();
}

function showBanner() {
  const say = bannerAt($("banner"), act);
  if (document.body.dataset.link !== "open") return say("Connection to the app lost. What this page drives is held, a policy stops after 20 s at most, and what is recorded is kept. The emergency stop of this page may have no effect: use the robot's. Connecting again …", "error");
  if (passing && view?.operators.role !== "watcher") return say(passing, "error");
  if (!view) return say("", "");
  if (view.estop) return say(...stopSentence(view));
  if (view.operators.asked) return say("Another operator asks for the controls.", "warning", ["Hand over", "hand_over"], ["Keep them", "keep"]);
  if (view.operators.role === "watcher") {
    const [told, ...buttons] = watcherWords(view.operators);
    return say(told, "info", ...buttons);
  }
  return say(diskSentence(view), "error");
}

$("robot").textContent = facts.robot;
$("out").textContent = facts.out;
document.querySelectorAll("[data-do]").forEach((button) => { button.onclick = () => { act(button.dataset.do); button.blur(); }; });
document.querySelectorAll("[data-sim]").forEach((button) => { button.dataset.simulated = facts.resets; });
document.querySelectorAll("[data-close]").forEach((button) => { button.onclick = () => button.closest("dialog").close(); });
$("estop").onclick = () => act("estop");
$("open-review").onclick = () => act("review");
$("open-keys").onclick = () => act("keys");
$("mode-tool").onclick = () => setMode("tool");
$("mode-joints").onclick = () => setMode("joints");
const words = $("instruction");
words.onchange = () => { instruction.sent(words.value); send({ kind: "instruct", text: words.value }); };
words.onkeydown = (event) => {
  if (event.shiftKey && event.key === "Escape") return; // the emergency stop: what is typed stays
  if (event.key === "Escape") instruction.restore();
  if (event.key === "Enter" || event.key === "Escape") words.blur();
};
drive.attach($("pad-plane"), (x, y) => [[0, y], [1, -x]]);
drive.attach($("pad-height"), (x, y) => [[2, y]]);
drive.attach($("pad-turn"), (x, y) => [[5, y]]);
drive.attachButton($("gripper-open"), [[6, 1]]);
drive.attachButton($("gripper-close"), [[6, -1]]);
$("gripper").hidden = !facts.gripper;
jointRows();
keyHelp($("key-list"));
listen(drive, arm, act);
let counted = 0;
setInterval(() => { shownFps = cameras.count - counted; counted = cameras.count; }, 1000);
addEventListener("resize", () => { plots.draw(); arm.draw(); });
window.shownPictures = () => cameras.count; // for measurements
document.body.dataset.ready = "yes";
