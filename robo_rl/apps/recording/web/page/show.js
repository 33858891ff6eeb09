// The header's meters, the episode's state, and messages.
const $ = (id) => document.getElementById(id);

function meter(id, text, level) {
  const place = $(id);
  place.querySelector("dd").textContent = text;
  place.dataset.level = level;
}

// A function that shows one sentence with buttons [label, request], and leaves the place alone while it stays the same.
export function bannerAt(place, act) {
  return (sentence, level, ...buttons) => {
    const key = sentence + buttons.join();
    place.hidden = !sentence;
    place.dataset.level = level;
    if (place.dataset.key === key) return;
    place.dataset.key = key;
    place.replaceChildren(Object.assign(document.createElement("span"), { textContent: sentence }),
      ...buttons.map(([label, name]) => Object.assign(document.createElement("button"), { textContent: label, onclick: () => act(name) })));
  };
}

// A sentence on a disk that is nearly full, or a dataset that cannot be reached; else "".
export function diskSentence({ disk_gb, floor_gb, episode }) {
  if (disk_gb === null) return "The dataset's folder cannot be reached: nothing can be recorded. If it was moved, put it back. If its disk was unplugged, connect it and restart the app, which salvages the episode: do not discard it.";
  if (disk_gb >= floor_gb) return "";
  const what = episode.state === "idle" ? `no episode starts below ${floor_gb} GB` : `this episode ends by itself at ${+(floor_gb / 4).toFixed(2)} GB, and is kept`;
  return `Only ${disk_gb} GB are free on the disk: ${what}.`;
}

// What a page that watches is told, and its button to get the controls.
export function watcherWords({ vacant, asking }) {
  if (vacant) return ["Nobody has the controls.", ["Take them", "ask"]]; // also one that asked somebody who left
  if (asking) return ["Asked for the controls; waiting for the other operator."];
  return ["Another operator has the controls; you are watching.", ["Ask for them", "ask"]];
}

// The banner of a pressed emergency stop. Its button alone releases it: the stop's own buttons and keys only press.
export function stopSentence({ operators }) {
  if (operators.role !== "driver") {
    const [words, ...buttons] = watcherWords(operators);
    return [`Emergency stop: the arm is stopped; the page with the controls releases it. ${words}`, "error", ...buttons];
  }
  return ["Emergency stop: the arm is stopped. Release it, then arm.", "error", ["Release", "release_estop"]];
}

export function showHeader(view, page) {
  const { phase, reason } = view.robot.filter;
  meter("meter-filter", phase, phase === "armed" ? (reason.startsWith("following") ? "ok" : "warning") : "error");
  meter("meter-loop", `${view.loop.hz.toFixed(0)} Hz ±${view.loop.jitter_ms.toFixed(0)} ms`, "ok");
  const round = page.roundMs === null ? "" : ` · ${page.roundMs.toFixed(0)} ms round trip`;
  meter("meter-latency", view.latency_ms === null ? "–" : `${view.latency_ms.toFixed(0)} ms`, "ok");
  $("meter-latency").title = `from the receipt of an input to the command that was sent${round}`;
  meter("meter-page", page.fps === null ? "–" : `${page.fps} fps`, page.fps === null || page.fps > 4 ? "ok" : "warning");
  meter("meter-disk", view.disk_gb === null ? "unreachable" : `${view.disk_gb.toFixed(view.disk_gb < 10 ? 1 : 0)} GB`, view.disk_gb < view.floor_gb ? "error" : view.disk_gb < 2 * view.floor_gb ? "warning" : "ok");
  const drops = view.robot.filter.drops;
  $("filter-reason").textContent = `Safety filter: ${reason.replace("it goes on after safety_filter/arm", "press Arm to go on").replace("following teleop", "following the operator")}.${drops ? ` Dropped: ${drops}.` : ""}`;
  $("filter-reason").dataset.level = drops ? "error" : "";
  const pressed = view.estop;
  for (const button of document.querySelectorAll(".estop")) {
    button.textContent = pressed ? "STOP IS PRESSED" : "EMERGENCY STOP";
    button.dataset.pressed = pressed;
  }
}

// What to do now, in one sentence.
function hintOf(view) {
  const { state, count } = view.episode, { phase } = view.robot.filter;
  if (view.operators.role !== "driver" || view.estop) return "";
  if (view.drive && phase === "unknown") return "The safety filter is not heard: are the robot's nodes running?";
  if (view.drive && phase !== "armed") return phase === "stopping" ? "The arm is stopping." : "The arm is stopped. Arm it to drive.";
  if (view.drive?.control === "policy" && state === "idle") return "The policy acts from the start of the next episode.";
  return {
    idle: count ? "Start the next episode." : view.drive ? "Try to move the hand first; then start an episode." : "Start an episode, and drive by the device.",
    recording: view.drive?.control === "policy" ? "The policy acts. Take over at any time." : "Do the task, then save it with a label.",
    paused: view.drive ? "The arm is held. Resume, or save what is recorded." : "Nobody holds the arm: leave it where it is, and resume, or save what is recorded.",
    ended: "Did it succeed? Save it with a label, or discard it.",
    editing: "The dataset is being changed.",
  }[state];
}

// Episodes by their labels; an interrupted one is counted as such, because the training leaves it out.
export function tallyWords({ count, successes, failures, interrupted }) {
  if (!count) return "no episodes yet";
  const plain = count - successes - failures - interrupted;
  return `${count} saved: ${successes} ✓ ${failures} ✗${plain ? ` ${plain} unlabelled` : ""}${interrupted ? ` ${interrupted} interrupted` : ""}`;
}

export function showState(view, facts) {
  const { state, seconds, marks } = view.episode;
  const words = { idle: "ready", recording: "recording", paused: "paused", ended: "ended", editing: "editing" };
  $("state").textContent = words[state];
  const hint = hintOf(view);
  $("hint").textContent = hint;
  $("hint").hidden = !hint;
  $("clock").textContent = state === "idle" ? "" : `${seconds.toFixed(1)} s${marks ? ` · ${marks} marked` : ""}`;
  $("clock").title = `an episode ends by itself after ${facts.longest_s} s`;
  $("tally").textContent = tallyWords(view.episode);
  document.querySelectorAll("#episode-buttons button").forEach((button) => {
    button.hidden = !button.dataset.when.split(" ").includes(state) || button.dataset.simulated === "false";
    button.disabled = view.operators.role !== "driver";
  });
  const driver = view.operators.role === "driver", phase = view.robot.filter.phase;
  const drivable = phase === "armed" || !view.drive;
  $("arm").disabled = !driver || phase === "armed" || view.estop;
  document.querySelector("[data-do=start]").className = drivable ? "primary" : "";
  $("arm").className = $("arm").disabled ? "" : "primary";
  $("stop").disabled = !driver || phase !== "armed";
  $("instruction").disabled = !driver;
}

// The field of the instruction: a text that the app refuses stays in it, marked, to be corrected.
const ANSWER_MS = 1000;
export class Instruction {
  constructor(field) { Object.assign(this, { field, shown: "", waits: null, sentMs: 0 }); }

  sent(text) { this.waits = text.trim(); this.sentMs = performance.now(); }

  restore() { this.waits = null; this.field.value = this.shown; }

  show(instruction) {
    if (instruction !== this.shown || instruction === this.waits) this.waits = null; // accepted, or another was
    this.shown = instruction;
    const refused = this.waits !== null && performance.now() - this.sentMs > ANSWER_MS;
    this.field.dataset.refused = refused ? "yes" : "";
    this.field.setAttribute("aria-invalid", refused);
    this.field.title = refused ? "Refused, see the messages. The episode keeps its former instruction; Esc in this field shows it." : "";
    if (this.waits === null && document.activeElement !== this.field) this.field.value = instruction;
  }
}

// The slider of the driving speed: shows the app's, but not while it is moved and the app has not answered yet.
export class Speed {
  constructor(slider, send) {
    Object.assign(this, { slider, movedMs: -ANSWER_MS });
    slider.oninput = () => { this.movedMs = performance.now(); send({ kind: "speed", share: Number(slider.value) / 100 }); };
  }

  show(view) {
    this.slider.disabled = view.operators.role !== "driver" || !view.drive;
    if (view.drive && performance.now() - this.movedMs > ANSWER_MS) this.slider.value = Math.round(100 * view.drive.speed);
  }
}

let newest = { app: null, number: 0 };
// The list of messages, the newest first. tell: called with the text and level of an error or warning that came while the
// page was open. An app that was started again numbers its messages anew: all of them are new.
export function showNotices({ app_id: app, notices }, tell) {
  const last = notices.length ? notices[notices.length - 1].number : 0;
  if (app === newest.app && last === newest.number) return;
  const seen = app === newest.app ? newest.number : 0;
  const urgent = notices.filter(({ number, level }) => newest.app !== null && number > seen && level !== "info");
  if (urgent.length) tell(urgent[urgent.length - 1].text, urgent[urgent.length - 1].level);
  newest = { app, number: last };
  $("notices").replaceChildren(...notices.slice().reverse().map((notice) => {
    const row = document.createElement("li");
    const time = new Date(1000 * notice.at_s).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" });
    row.append(Object.assign(document.createElement("time"), { textContent: time }), ` ${notice.text}`);
    row.dataset.level = notice.level;
    return row;
  }));
}
