// A strip below an episode's slider: which frames a human drove, which a policy, and where rewards were marked.
export class Strip {
  constructor(player) {
    this.canvas = player.querySelector(".strip");
    this.legend = player.querySelector(".strip-legend");
  }

  async load(episode, rateHz) {
    if (!episode.policy && !episode.marks.length) return; // a human drove it all, and marked nothing
    const answer = await fetch(`api/episodes/${episode.number}/curves`);
    if (!answer.ok) return;
    const { frames, rows, intervention } = await answer.json();
    const style = getComputedStyle(document.body), colour = (name) => style.getPropertyValue(`--${name}`);
    const pen = this.canvas.getContext("2d"), width = 1000, height = 10;
    this.canvas.hidden = this.legend.hidden = false;
    Object.assign(this.canvas, { width, height });
    rows.forEach((row, k) => {
      const end = k + 1 < rows.length ? rows[k + 1] : frames;
      pen.fillStyle = colour(intervention[k] ? "measured" : "commanded");
      pen.fillRect((width * row) / frames, 2, (width * (end - row)) / frames + 1, 6);
    });
    for (const [frame, reward] of episode.marks) {
      pen.fillStyle = colour(reward > 0 ? "good" : "bad");
      pen.fillRect((width * frame) / frames - 3, 0, 6, height);
    }
    const human = intervention.filter(Boolean).length / intervention.length, seconds = (human * frames) / rateHz;
    const occurs = { measured: human > 0, commanded: human < 1, good: episode.marks.some(([, reward]) => reward > 0), bad: episode.marks.some(([, reward]) => reward <= 0) };
    const words = { measured: "human", commanded: "policy", good: "marked good", bad: "marked bad" };
    this.legend.replaceChildren(...Object.keys(words).filter((name) => occurs[name]).map((name) => {
      const entry = Object.assign(document.createElement("span"), { textContent: words[name] });
      entry.prepend(document.createElement("i"));
      entry.dataset.colour = name;
      return entry;
    }));
    this.canvas.setAttribute("aria-label", `a human drove ${seconds.toFixed(1)} s of ${(frames / rateHz).toFixed(1)} s`);
  }
}
