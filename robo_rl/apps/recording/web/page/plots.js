// Joint plots of the last ten seconds: measured as a line, commanded dashed.
const SPAN_S = 10;
const GAP_PX = 10; // between two columns

export class Plots {
  constructor(canvas, names) {
    this.canvas = canvas;
    this.names = names;
    this.rows = []; // [time, measured, commanded]
  }

  add(atS, measured, commanded) {
    const last = this.rows[this.rows.length - 1];
    if (!measured || (last && atS <= last[0])) return;
    this.rows.push([atS, measured, commanded]);
    while (this.rows.length && this.rows[0][0] < atS - SPAN_S) this.rows.shift();
  }

  draw() {
    const box = this.canvas.getBoundingClientRect();
    if (!box.width || !this.rows.length) return;
    const scale = devicePixelRatio || 1;
    const [width, height] = [Math.round(box.width * scale), Math.round(box.height * scale)];
    if (this.canvas.width !== width || this.canvas.height !== height) Object.assign(this.canvas, { width, height });
    const pen = this.canvas.getContext("2d");
    pen.setTransform(scale, 0, 0, scale, 0, 0);
    pen.clearRect(0, 0, box.width, box.height);
    const columns = box.width > 430 ? 3 : 2;
    const lines = Math.ceil(this.names.length / columns);
    const style = getComputedStyle(this.canvas);
    const [cellWidth, cellHeight] = [(box.width + GAP_PX) / columns, box.height / lines];
    this.names.forEach((name, joint) => {
      const x = (joint % columns) * cellWidth, y = Math.floor(joint / columns) * cellHeight;
      this.cell(pen, style, joint, name, x, y, cellWidth - GAP_PX, cellHeight - 6);
    });
  }

  cell(pen, style, joint, name, x, y, width, height) {
    const values = this.rows.flatMap((row) => [row[1][joint], ...(row[2] ? [row[2][joint]] : [])]);
    const middle = (Math.max(...values) + Math.min(...values)) / 2;
    const half = Math.max((Math.max(...values) - Math.min(...values)) / 2, 0.05) * 1.15;
    const top = y + 15, tall = height - 17, end = this.rows[this.rows.length - 1][0];
    const px = (at) => x + width * (1 - (end - at) / SPAN_S);
    const py = (value) => top + tall * (0.5 - (value - middle) / (2 * half));
    pen.font = "11px system-ui, sans-serif";
    pen.fillStyle = style.getPropertyValue("--quiet");
    pen.textAlign = "left";
    pen.fillText(name, x, y + 10);
    pen.textAlign = "right";
    pen.fillText(this.rows[this.rows.length - 1][1][joint].toFixed(2), x + width, y + 10);
    pen.strokeStyle = style.getPropertyValue("--line");
    pen.lineWidth = 1;
    pen.strokeRect(x + 0.5, top + 0.5, width - 1, tall - 1);
    const line = (column, colour, dash) => {
      pen.strokeStyle = colour;
      pen.lineWidth = 1.5;
      pen.setLineDash(dash);
      pen.beginPath();
      let drawn = false;
      for (const row of this.rows) {
        if (!row[column]) continue;
        pen[drawn ? "lineTo" : "moveTo"](px(row[0]), py(row[column][joint]));
        drawn = true;
      }
      pen.stroke();
      pen.setLineDash([]);
    };
    line(2, style.getPropertyValue("--commanded"), [4, 3]);
    line(1, style.getPropertyValue("--measured"), []);
  }
}
