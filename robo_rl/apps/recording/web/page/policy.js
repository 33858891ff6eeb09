// The policy in the loop: choose one, let it run, take over; train one on the saved episodes.
const name = (bundle) => bundle.replace(/\/bundle$/, "").split("/").slice(-2).join("/");

// Number of the episodes from which `robo-rl train` learns by its setting learn_from=.
export function trainable({ count, successes, failures, interrupted }, rule) {
  return rule === "all" ? count : rule === "success" ? successes : count - failures - interrupted;
}

const needs = (rule) => `needs 2 ${rule === "all" ? "saved episodes" : rule === "success" ? "successes" : "that are complete and did not fail"}`;

export class Policy {
  constructor(place, send) {
    place.innerHTML = `
      <div class="row"><select aria-label="policy"></select><span class="quiet state-of-policy"></span>
        <button class="control"></button></div>
      <span class="rate-of-policy"></span>
      <div class="row training"><button class="train">Train a policy</button><progress max="1" value="0" hidden></progress><span class="quiet told"></span></div>
      <code class="command" hidden></code>`;
    const find = (selector) => place.querySelector(selector);
    Object.assign(this, {
      place, send, select: find("select"), said: find(".state-of-policy"), rate: find(".rate-of-policy"), control: find(".control"), train: find(".train"),
      bar: find("progress"), told: find(".told"), command: find("code"), keys: "", bundle: "", running: false,
    });
    this.select.onchange = () => {
      send({ kind: "policy", bundle: this.select.value });
      this.select.value = this.bundle; // what runs, until a view says that it changed: a bundle may be refused
    };
    this.control.onclick = () => { send({ kind: this.human ? "let_run" : "take_over" }); this.control.blur(); };
    this.train.onclick = () => { send({ kind: this.running ? "stop_training" : "train" }); this.train.blur(); };
  }

  show(view) {
    this.place.hidden = !view.policy || !view.drive;
    if (this.place.hidden) return;
    const driver = view.operators.role === "driver", { policy, training } = view;
    this.human = view.drive.control === "human";
    const keys = JSON.stringify([policy.known, policy.bundle]);
    if (keys !== this.keys) {
      this.keys = keys;
      this.bundle = policy.bundle;
      this.select.replaceChildren(new Option("no policy", ""), ...policy.known.map((bundle) => new Option(name(bundle), bundle)));
      this.select.value = policy.bundle;
    }
    this.select.disabled = !driver;
    this.said.textContent = policy.state === "loading" ? "loading …" : policy.said ?? "";
    this.said.title = this.said.textContent;
    this.rate.textContent = policy.success ? `acting alone: ${policy.success}` : "";
    this.control.hidden = policy.state === "none";
    this.control.disabled = !driver || (this.human && policy.state !== "ready");
    this.control.className = this.human ? "control" : "control bad";
    this.control.textContent = this.human ? "Let it run" : "Take over";
    this.control.insertAdjacentHTML("beforeend", " <kbd>T</kbd>");
    this.running = training.state === "training" || training.state === "exporting";
    const usable = trainable(view.episode, training.learn_from);
    this.train.disabled = !driver || (!this.running && usable < 2);
    this.train.textContent = this.running ? "Stop training" : `Train on ${usable} ${usable === 1 ? "episode" : "episodes"}`;
    this.bar.hidden = !this.running;
    this.bar.value = training.steps ? training.step / training.steps : 0;
    const loss = training.loss === null ? "" : `, loss ${training.loss}`, left = training.left_s;
    const rest = left ? `, ${left < 90 ? `${left} s` : `${Math.round(left / 60)} min`} left` : "";
    this.told.textContent = {
      none: usable < 2 ? needs(training.learn_from) : "", training: training.step ? `step ${training.step} of ${training.steps}${loss}${rest}` : "starting …",
      exporting: "exporting the bundle …", done: `done${loss}`, stopped: "stopped", failed: "failed: see the messages",
    }[training.state];
    this.command.hidden = training.state === "none" || training.state === "done";
    this.command.textContent = training.command;
  }
}
