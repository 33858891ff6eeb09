// Episodes that were saved: a list with pictures, and a player.
import { Strip } from "./strip.js";

// A label that an interrupted episode was given later does not hide that its end is missing.
export function labelOf({ success, complete }) {
  const label = success === null ? "" : success ? "success" : "failure";
  return [label, complete ? "" : "interrupted"].filter(Boolean).join(", ") || "no label";
}

export class Review {
  constructor(dialog, list, player, facts, send) {
    Object.assign(this, { dialog, list, player, facts, send, version: -1, playing: 0, number: null, rows: [], shown: "" });
    this.undo = dialog.querySelector(".undo");
    this.filter = dialog.querySelector(".filter");
    this.undo.onclick = () => send({ kind: "undo" });
    this.filter.onchange = () => { this.shown = this.filter.value; this.fill(); };
    dialog.addEventListener("close", () => this.stop());
  }

  open(view) {
    this.dialog.showModal();
    this.dialog.focus(); // not a button: Space and Enter would press it
    this.version = -1;
    if (!this.rows.length) this.say("Reading the episodes …"); // of a large dataset, or a slow disk
    this.update(view);
  }

  async update(view) {
    if (!this.dialog.open || !view || view.episode.version === this.version) return;
    this.version = view.episode.version;
    const found = await this.read();
    if (!found) return;
    const { episodes, undo } = found;
    this.rows = episodes.reverse();
    this.undo.hidden = !undo;
    const chosen = this.rows.find((episode) => episode.number === this.number);
    if (!chosen) { this.stop(); this.player.hidden = true; this.number = null; }
    this.fill();
    if (chosen) this.edits(chosen);
  }

  // Episodes and whether an edit can be undone; null, with a sentence in the place of the list, if they cannot be read.
  async read() {
    let answer, said;
    try {
      answer = await fetch("api/episodes");
      if (answer.ok) return await answer.json();
      said = (await answer.json()).error;
    } catch { said = "The app does not answer."; }
    if (answer?.status === 401) { location.reload(); return null; } // the token is asked for again
    this.say(`The episodes cannot be shown. ${said ?? ""} Close this window, and open it to try again.`);
    return null;
  }

  say(sentence) {
    this.list.replaceChildren(Object.assign(document.createElement("li"), { className: "none quiet", textContent: sentence }));
  }

  // The list, of one label or of all; the filter counts each label that occurs.
  fill() {
    const counts = new Map();
    for (const episode of this.rows) counts.set(labelOf(episode), (counts.get(labelOf(episode)) ?? 0) + 1);
    if (!counts.has(this.shown)) this.shown = "";
    this.filter.replaceChildren(new Option(`all (${this.rows.length})`, ""), ...[...counts].map(([label, count]) => new Option(`${label} (${count})`, label)));
    this.filter.value = this.shown;
    this.filter.hidden = counts.size < 2;
    const rows = this.rows.filter((episode) => !this.shown || labelOf(episode) === this.shown);
    this.list.replaceChildren(...rows.map((episode) => this.row(episode, this.facts.cameras[0])));
    const none = "No episode is saved yet. Close this window, press Space to start one, and Enter to save it.";
    if (!this.rows.length) this.say(none);
  }

  row(episode, camera) {
    const row = document.createElement("li"), button = document.createElement("button");
    if (camera) {
      const picture = document.createElement("img");
      picture.src = `api/episodes/${episode.number}/${camera}/${Math.floor(episode.frames / 2)}.jpg`;
      picture.alt = "";
      picture.loading = "lazy";
      button.append(picture);
    }
    const label = labelOf(episode);
    const text = document.createElement("span");
    text.innerHTML = "<b></b><em></em><small></small>";
    text.querySelector("b").textContent = `Episode ${episode.number}`;
    text.querySelector("em").textContent = label;
    text.querySelector("em").dataset.label = label;
    text.querySelector("small").textContent = `${episode.seconds} s · ${episode.task || "no instruction"}`;
    button.append(text);
    button.dataset.number = episode.number;
    button.setAttribute("aria-current", episode.number === this.number);
    button.onclick = () => this.play(episode);
    row.append(button);
    return row;
  }

  play(episode) {
    this.stop();
    this.number = episode.number;
    this.list.querySelectorAll("button").forEach((button) => button.setAttribute("aria-current", Number(button.dataset.number) === episode.number));
    this.player.hidden = false;
    this.player.innerHTML = `<div class=pictures></div><div class=row><button class=toggle>Pause</button><input type=range min=0 value=0 aria-label=frame><output></output></div>
      <canvas class=strip role=img hidden></canvas><p class='strip-legend quiet' hidden></p><p class='marks quiet'></p>
      <div class='row edit'><input type=text aria-label=instruction placeholder="no instruction"><button class=good><span>Success</span></button><button class=bad><span>Failure</span></button><button class=plain><span>No label</span></button><button class=delete>Delete</button></div>`;
    new Strip(this.player).load(episode, this.facts.rate_hz);
    const pictures = this.facts.cameras.map((camera) => {
      const picture = document.createElement("img");
      picture.alt = `camera ${camera}`;
      this.player.querySelector(".pictures").append(picture);
      return [camera, picture];
    });
    this.edits(episode);
    const slider = this.player.querySelector("input[type=range]"), output = this.player.querySelector("output");
    slider.max = episode.frames - 1;
    const marks = episode.marks.map(([frame, reward]) => `${reward > 0 ? "+" : ""}${reward} at ${(frame / this.facts.rate_hz).toFixed(1)} s`);
    this.player.querySelector(".marks").textContent = marks.length ? `Reward marks: ${marks.join(", ")}` : "";
    const show = (frame) => {
      slider.value = frame;
      output.textContent = `Episode ${episode.number} · ${(frame / this.facts.rate_hz).toFixed(1)} s`;
      for (const [camera, picture] of pictures) picture.src = `api/episodes/${episode.number}/${camera}/${frame}.jpg`;
    };
    const step = Math.max(1, Math.round(this.facts.rate_hz / 10));
    const run = () => { this.playing = setInterval(() => {
      if (pictures.some(([, picture]) => !picture.complete)) return;
      const next = Number(slider.value) + step;
      if (next >= episode.frames) this.stop(); else show(next);
    }, (1000 * step) / this.facts.rate_hz); };
    slider.oninput = () => { this.stop(); show(Number(slider.value)); };
    this.player.querySelector(".toggle").onclick = () => {
      if (this.playing) { this.stop(); return; }
      if (Number(slider.value) + step >= episode.frames) show(0);
      run();
      this.label();
    };
    show(0);
    run();
    this.player.scrollIntoView({ block: "nearest" });
  }

  // Edits write the dataset anew and exchange it; "Undo the last edit" takes one back.
  edits(episode) {
    const find = (selector) => this.player.querySelector(`.edit ${selector}`), episodes = [episode.number];
    const relabel = (success) => () => this.send({ kind: "relabel", episodes, success });
    for (const [kind, success] of [["good", true], ["bad", false], ["plain", null]]) {
      find(`.${kind}`).onclick = relabel(success);
      find(`.${kind}`).setAttribute("aria-pressed", episode.success === success);
    }
    const remove = find(".delete"), words = find("input");
    delete remove.dataset.sure;
    remove.textContent = "Delete";
    remove.onclick = () => {
      if (remove.dataset.sure) this.send({ kind: "delete", episodes });
      else { remove.dataset.sure = "yes"; remove.textContent = "Really delete?"; }
    };
    if (document.activeElement !== words) words.value = episode.task;
    words.onchange = () => this.send({ kind: "relabel", episodes, text: words.value });
  }

  label() { const toggle = this.player.querySelector(".toggle"); if (toggle) toggle.textContent = this.playing ? "Pause" : "Play"; }

  stop() { clearInterval(this.playing); this.playing = 0; this.label(); }
}
