// Live pictures: the newest of each camera, with its age.
export class Cameras {
  constructor(place, names) {
    this.names = names;
    this.count = 0;
    this.cells = names.map((name) => {
      const cell = document.createElement("figure");
      cell.innerHTML = "<canvas width=128 height=128></canvas><figcaption><span></span><b></b></figcaption>";
      cell.querySelector("span").textContent = name;
      cell.querySelector("canvas").setAttribute("aria-label", `camera ${name}`);
      place.append(cell);
      return { cell, canvas: cell.querySelector("canvas"), badge: cell.querySelector("b"), busy: false, next: null };
    });
    if (!names.length) place.textContent = "This robot's description has no cameras.";
  }

  // Show a picture; one that comes while another is decoded replaces the one that waits.
  async show(index, blob) {
    const cell = this.cells[index];
    if (!cell) return;
    if (cell.busy) { cell.next = blob; return; }
    cell.busy = true;
    try {
      const picture = await createImageBitmap(blob);
      if (cell.canvas.width !== picture.width || cell.canvas.height !== picture.height) {
        Object.assign(cell.canvas, { width: picture.width, height: picture.height });
      }
      cell.canvas.getContext("2d").drawImage(picture, 0, 0);
      picture.close();
      if (index === 0) this.count += 1;
    } finally {
      cell.busy = false;
      const next = cell.next;
      cell.next = null;
      if (next) this.show(index, next);
    }
  }

  // The pictures are old from now on.
  lost() { for (const { cell, badge } of this.cells) { cell.dataset.state = "missing"; badge.textContent = "no connection"; } }

  ages(streams) {
    this.names.forEach((name, index) => {
      const { cell, badge } = this.cells[index], stream = streams[name];
      cell.dataset.state = stream.state;
      const age = stream.age_ms === null ? "" : stream.age_ms < 1000 ? `${Math.round(stream.age_ms)} ms` : `${(stream.age_ms / 1000).toFixed(1)} s`;
      badge.textContent = { ok: `${age} · ${Math.round(stream.hz)} Hz`, late: `late: ${age}`, missing: "no pictures", frozen: "repeats a picture" }[stream.state];
    });
  }
}
