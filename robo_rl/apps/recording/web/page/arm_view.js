// The arm in 3-D, drawn on a plain canvas from joint positions, with the shapes that a simulator tells. Drag to look
// around, wheel to come closer, double-click for the first view; the same by keys. Without told shapes: the chain of the description.
import { EYE, add, along, cross, dot, facesOf, fromQuat, product, rotation, times, turned, unit } from "./solids.js";

const LIGHT = unit([-0.4, 0.5, 0.9]);
const HOME = { azimuth: -2.55, elevation: 0.5, zoom: 1 }; // from behind the arm: its forward is away from the viewer
const FOCAL = 2.6; // 1 / tan(half the field of view)
const [STEP, CLOSER] = [0.1, 1.1]; // of one press of a key: angle [rad], and factor
const SAME_RAD = 4e-4;
const IDLE = 20; // time until the next picture may be drawn, in times of drawing one

export class ArmView {
  constructor(place, chain) {
    Object.assign(this, { place, chain, canvas: place.querySelector("canvas"), look: { ...HOME }, drawn: "", version: -1, q: null, next: 0, floorKey: "", floorImage: document.createElement("canvas") });
    place.hidden = !chain;
    if (!chain) return;
    const steps = chain.joints.map((joint) => Math.hypot(...joint.offset_m));
    this.reach = steps.slice(1).reduce((sum, step) => sum + step, Math.hypot(...chain.tool_m)) || 1;
    this.solids = this.plain();
    this.control();
  }

  // Shapes of the description alone: a rod from each joint to the next, thinner towards the tool.
  plain() {
    const { joints, tool_m } = this.chain, rods = [];
    const ends = [...joints.map((joint) => joint.offset_m), tool_m];
    ends.forEach((end, i) => {
      const length = Math.hypot(...end), radius = this.reach * (0.06 - (0.04 * i) / ends.length);
      if (length < 1e-3) return;
      rods.push(solid("capsule", i - 1, [radius, length / 2], times(end, 0.5), along(end), i % 2 ? [0.86, 0.87, 0.9] : [0.32, 0.51, 0.76]));
    });
    return rods;
  }

  // Load the shapes that a simulator told, when it has told others.
  async follow(version) {
    if (!this.chain || version === undefined || version === this.version) return;
    this.version = version;
    try {
      const { shapes } = await (await fetch("api/scene")).json();
      this.solids = shapes.length ? shapes.map((shape) => ({
        ...solid(shape.kind, shape.link, shape.size_m, shape.pos_m, fromQuat(shape.quat), shape.rgb), slides: shape.slides,
      })) : this.plain();
      this.drawn = "";
    } catch { this.version = -1; } // asked again with the next view
  }

  // Drawing takes at most a twentieth of the time: a slow machine shows fewer pictures per second, and drives as before.
  show(measured) {
    this.q = measured ?? this.q;
    const began = performance.now();
    if (began < this.next) return;
    this.draw();
    this.next = began + IDLE * (performance.now() - began);
  }

  control() {
    const { canvas } = this;
    canvas.addEventListener("pointerdown", (event) => canvas.setPointerCapture(event.pointerId));
    canvas.addEventListener("pointermove", (event) => {
      if (canvas.hasPointerCapture(event.pointerId)) this.move(-0.01 * event.movementX, 0.01 * event.movementY);
    });
    canvas.addEventListener("wheel", (event) => { event.preventDefault(); this.move(0, 0, Math.exp(-0.001 * event.deltaY)); }, { passive: false });
    canvas.addEventListener("dblclick", () => this.goHome());
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { this.drawn = ""; this.draw(); });
  }

  // Turn the viewer around the arm and up [rad], and bring it closer by a factor.
  move(around, up, closer = 1) {
    const { look } = this;
    look.azimuth += around;
    look.elevation = Math.max(-0.1, Math.min(1.55, look.elevation + up));
    look.zoom = Math.max(0.4, Math.min(5, look.zoom * closer));
    this.draw();
  }

  goHome() { Object.assign(this.look, HOME); this.draw(); }

  // True if the key moves the viewer: an arrow with Shift, + and −, Home.
  press(event) {
    const around = { ArrowLeft: [STEP, 0], ArrowRight: [-STEP, 0], ArrowUp: [0, STEP], ArrowDown: [0, -STEP] }[event.code];
    const closer = { "+": CLOSER, "=": CLOSER, "-": 1 / CLOSER }[event.key];
    if (!this.chain) return false;
    if (around && event.shiftKey) this.move(...around);
    else if (closer) this.move(0, 0, closer);
    else if (event.code === "Home") this.goHome();
    else return false;
    return true;
  }

  // Frames [origin, rotation] of the joints, by forward kinematics.
  frames() {
    let origin = [0, 0, 0], turn = EYE;
    const frames = [];
    for (const joint of this.chain.joints) {
      origin = add(origin, turned(turn, joint.offset_m));
      turn = product(turn, rotation(joint.axis, this.q[joint.place]));
      frames[joint.place] = [origin, turn];
    }
    this.tool = add(origin, turned(turn, this.chain.tool_m));
    return frames;
  }

  draw() {
    const box = this.canvas.getBoundingClientRect();
    if (!this.chain || !this.q || !box.width || !box.height) return;
    const scale = Math.min(devicePixelRatio || 1, 2), { azimuth, elevation, zoom } = this.look;
    const [width, height] = [Math.round(box.width * scale), Math.round(box.height * scale)];
    const key = [width, height, azimuth, elevation, zoom, ...this.q.map((value) => Math.round(value / SAME_RAD))].join();
    if (key === this.drawn) return; // nothing moved
    this.drawn = key;
    if (this.canvas.width !== width || this.canvas.height !== height) Object.assign(this.canvas, { width, height });
    const pen = this.canvas.getContext("2d"), style = getComputedStyle(this.canvas);
    const colours = Object.fromEntries(["sky", "floor", "tile", "shadow", "quiet"].map((name) => [name, style.getPropertyValue(`--${name}`)]));
    const frames = this.frames(), eye = this.eye(width, height);
    this.ground(width, height, eye, colours, scale);
    pen.drawImage(this.floorImage, 0, 0);
    const pieces = this.pieces(frames, eye);
    this.shadows(pen, eye, colours);
    this.plumb(pen, eye, colours, scale);
    pen.lineWidth = 0.8 * scale; // closes the seams between faces
    for (const { faces } of pieces) {
      for (const face of faces) {
        pen.fillStyle = pen.strokeStyle = face.colour;
        fill(pen, face.corners.map(eye.see), true);
      }
    }
  }

  // A perspective: see(point) -> [x, y] in pixels, depth(point) along the line of sight; place: of the viewer.
  eye(width, height) {
    const { azimuth, elevation, zoom } = this.look, c = Math.cos(elevation);
    const back = [c * Math.cos(azimuth), c * Math.sin(azimuth), Math.sin(elevation)];
    const right = unit(cross([0, 0, 1], back)), up = cross(back, right);
    const middle = [0.24 * this.reach, 0, 0.3 * this.reach], place = add(middle, times(back, (2.0 * this.reach) / zoom));
    const focal = (FOCAL * Math.min(width, 1.2 * height)) / 2;
    const from = (point) => add(point, times(place, -1));
    const depth = (point) => -dot(from(point), back);
    const see = (point) => {
      const away = from(point), far = Math.max(-dot(away, back), 0.02);
      return [width / 2 + (focal * dot(away, right)) / far, height / 2 - (focal * dot(away, up)) / far];
    };
    const pixels = (length, point) => (focal * length) / Math.max(depth(point), 0.02);
    return { see, depth, pixels, place };
  }

  // Pieces of all solids with the faces that are seen, the furthest first.
  pieces(frames, eye) {
    const found = [];
    this.placed = this.solids.map((each) => {
      const [origin, turn] = frames[each.link] ?? [[0, 0, 0], EYE];
      const shift = each.slides ? times(each.slides.axis, this.q[each.slides.joint] ?? 0) : [0, 0, 0];
      return { ...each, place: add(origin, turned(turn, add(each.place, shift))), turn: product(turn, each.turn) };
    });
    for (const { place, turn, faces, rgb } of this.placed) {
      const own = new Map();
      for (const { corners, middle, normal, piece } of faces) {
        const at = add(place, turned(turn, middle)), facing = turned(turn, normal);
        if (!own.has(piece)) own.set(piece, { faces: [], sum: 0, count: 0 });
        const group = own.get(piece);
        group.sum += eye.depth(at);
        group.count += 1;
        if (dot(facing, add(eye.place, times(at, -1))) <= 0) continue;
        const light = 1.08 * (0.5 + 0.5 * Math.max(0, dot(facing, LIGHT)));
        const [r, g, b] = rgb.map((share) => Math.round(255 * Math.min(1, share * light)));
        group.faces.push({ corners: corners.map((corner) => add(place, turned(turn, corner))), colour: `rgb(${r} ${g} ${b})` });
      }
      for (const { faces: seen, sum, count } of own.values()) found.push({ faces: seen, depth: sum / count });
    }
    return found.sort((a, b) => b.depth - a.depth);
  }

  // Shadows of a light from above: long solids as lines, boxes by their upper faces.
  shadows(pen, eye, colours) {
    pen.fillStyle = pen.strokeStyle = colours.shadow;
    pen.lineCap = "round";
    const down = (point) => [point[0], point[1], 0];
    for (const { kind, size, place, turn, faces } of this.placed) {
      if (kind === "box") {
        for (const { corners, normal } of faces) if (turned(turn, normal)[2] > 0.5) fill(pen, corners.map((corner) => eye.see(down(add(place, turned(turn, corner))))));
        continue;
      }
      const half = turned(turn, [0, 0, size[1] ?? 0]);
      pen.lineWidth = eye.pixels(2 * size[0], down(place));
      pen.beginPath();
      pen.moveTo(...eye.see(down(add(place, half))));
      pen.lineTo(...eye.see(down(add(place, times(half, -1)))));
      pen.stroke();
    }
  }

  // Sky and floor, drawn once for each place of the viewer.
  ground(width, height, eye, colours, scale) {
    const key = JSON.stringify([width, height, this.look, colours]);
    if (key === this.floorKey) return;
    this.floorKey = key;
    Object.assign(this.floorImage, { width, height });
    const pen = this.floorImage.getContext("2d");
    pen.fillStyle = colours.sky;
    pen.fillRect(0, 0, width, height);
    this.floor(pen, eye, colours, scale);
  }

  floor(pen, eye, colours, scale) {
    const tile = this.reach / 6, [low, high, side] = [-2, 7, 4];
    for (let i = low; i < high; i += 1) {
      for (let j = -side; j < side; j += 1) {
        pen.fillStyle = (i + j) % 2 ? colours.tile : colours.floor;
        fill(pen, [[i, j], [i + 1, j], [i + 1, j + 1], [i, j + 1]].map(([x, y]) => eye.see([x * tile, y * tile, 0])));
      }
    }
    pen.fillStyle = colours.quiet;
    pen.font = `${11 * scale}px system-ui, sans-serif`;
    pen.textAlign = "center";
    for (const [word, x, y] of [["forward", high - 0.5, 0], ["left", 2.5, side - 0.4], ["right", 2.5, 0.4 - side]]) pen.fillText(word, ...eye.see([x * tile, y * tile, 0]));
  }

  // A line from the tool down to the floor shows how high it is, and over what.
  plumb(pen, eye, colours, scale) {
    const [x, y] = this.tool, ring = Array.from({ length: 24 }, (_, k) => [x + 0.02 * this.reach * Math.cos(k * 0.2618), y + 0.02 * this.reach * Math.sin(k * 0.2618), 0]);
    pen.strokeStyle = colours.quiet;
    pen.lineWidth = 1.2 * scale;
    pen.beginPath();
    ring.map(eye.see).forEach((point, k) => pen[k ? "lineTo" : "moveTo"](...point));
    pen.closePath();
    pen.moveTo(...eye.see([x, y, 0]));
    pen.lineTo(...eye.see(this.tool));
    pen.setLineDash([4 * scale, 3 * scale]);
    pen.stroke();
    pen.setLineDash([]);
  }
}

function solid(kind, link, size, place, turn, rgb) { return { kind, size, link, place, turn, rgb, faces: facesOf(kind, size) }; }

function fill(pen, points, edge = false) {
  pen.beginPath();
  points.forEach((point, k) => pen[k ? "lineTo" : "moveTo"](...point));
  pen.closePath();
  pen.fill();
  if (edge) pen.stroke();
}
