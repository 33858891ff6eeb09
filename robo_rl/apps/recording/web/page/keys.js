// Keys: what drives goes to the drive, the rest are actions.
const ACTIONS = {
  Space: "toggle", Enter: "success", KeyF: "failure", KeyX: "discard", Backspace: "discard", KeyR: "again", KeyP: "hold",
  KeyN: "reset", KeyM: "arm", Escape: "stop", KeyT: "control", KeyI: "instruction", KeyV: "review", KeyJ: "mode", KeyH: "keys",
  KeyG: "mark_good", KeyB: "mark_bad",
};
const HELP = [
  ["Space", "start and end an episode"], ["Enter", "save it as a success"], ["F", "save it as a failure"],
  ["X", "discard it"], ["R", "discard it and record again"], ["P", "pause, and continue"],
  ["G B", "mark this moment as good or bad: reward +1 or −1"],
  ["N", "new scene (simulated robot)"], ["I", "edit the instruction"], ["T", "take over, or let the policy run"],
  ["M", "arm the safety filter"], ["Esc", "stop the arm"], ["Shift+Esc", "EMERGENCY STOP (its banner releases it)"],
  ["← ↑ ↓ →", "move the hand"], ["W S", "up, down"], ["A D", "turn"], ["Q E", "tilt"], ["Z C", "roll"],
  ["O L", "open, close the gripper"],
  ["J", "drive the hand or the joints"], ["1 … 9", "joints: turn up; with Shift, down"],
  ["Shift+← ↑ ↓ →", "3-D view: look around"], ["+ −", "3-D view: closer, further"], ["Home", "3-D view: as at first"],
  ["V", "review episodes"], ["?", "these keys"],
  ["gamepad", "hold a shoulder button: left stick moves, right stick lifts and turns, A closes and B opens the gripper"],
];

const SLIDER_KEYS = /^(Arrow\w+|Page(Up|Down)|Home|End)$/; // move a slider that has the focus; the others act, also Esc

export function keyHelp(place) {
  for (const [key, meaning] of HELP) {
    const term = document.createElement("dt"), text = document.createElement("dd");
    term.append(Object.assign(document.createElement("kbd"), { textContent: key }));
    text.textContent = meaning;
    place.append(term, text);
  }
}

export function listen(drive, view, act) {
  addEventListener("keydown", (event) => {
    if (event.code === "Escape" && event.shiftKey) {
      event.preventDefault();
      if (!event.repeat) act("estop");
      return;
    }
    const typing = event.target.closest?.("input:not([type=range]), textarea, select");
    const slides = SLIDER_KEYS.test(event.code) && event.target.closest?.("input[type=range]");
    if (typing || slides || document.querySelector("dialog[open]") || event.ctrlKey || event.altKey || event.metaKey) return;
    const drives = drive.keys.has(event.code); // a key that drives already: Shift does not change that
    if ((!drives && view.press(event)) || drive.press(event)) { event.preventDefault(); return; }
    const name = event.key === "?" ? "keys" : ACTIONS[event.code];
    const presses = event.code === "Space" || event.code === "Enter"; // a button or link that has the focus
    if (!name || event.repeat || (presses && event.target.closest?.("button, a, summary"))) return;
    event.preventDefault();
    act(name);
  });
  addEventListener("keyup", (event) => drive.lift(event));
  // A button that was clicked gives the focus away, before it opens a dialog: the next Space or Enter is an action.
  addEventListener("click", (event) => { if (event.detail) event.target.closest?.("button:not(dialog *)")?.blur(); }, true);
  // So does a slider that was dragged, wherever the pointer is let go: the next arrow key drives.
  addEventListener("pointerup", () => {
    if (document.activeElement?.matches("input[type=range]:not(dialog *)")) document.activeElement.blur();
  }, true);
}
