// Faces of simple solids, and vector arithmetic for them. A face: corners, their middle, its normal, and the number of its piece: a
// solid is cut into convex pieces, of which the nearest is drawn last. All in the solid's frame.
export const add = (a, b) => [a[0] + b[0], a[1] + b[1], a[2] + b[2]];
export const times = (a, s) => [a[0] * s, a[1] * s, a[2] * s];
export const dot = (a, b) => a[0] * b[0] + a[1] * b[1] + a[2] * b[2];
export const cross = (a, b) => [a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]];
export const unit = (a) => times(a, 1 / (Math.hypot(...a) || 1));
export const turned = (m, a) => [dot(m[0], a), dot(m[1], a), dot(m[2], a)]; // rows of a matrix
export const product = (m, n) => m.map((row) => [0, 1, 2].map((k) => row[0] * n[0][k] + row[1] * n[1][k] + row[2] * n[2][k]));
export const EYE = [[1, 0, 0], [0, 1, 0], [0, 0, 1]];

export function rotation(axis, angle) { // Rodrigues' formula
  const [x, y, z] = unit(axis), s = Math.sin(angle), c = Math.cos(angle), t = 1 - c;
  return [[c + x * x * t, x * y * t - z * s, x * z * t + y * s], [y * x * t + z * s, c + y * y * t, y * z * t - x * s], [z * x * t - y * s, z * y * t + x * s, c + z * z * t]];
}

export function fromQuat([w, x, y, z]) {
  return [
    [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
    [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
    [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
  ];
}

// A rotation whose z axis points along a direction.
export function along(direction) {
  const z = unit(direction), x = unit(cross(Math.abs(z[2]) < 0.9 ? [0, 0, 1] : [1, 0, 0], z)), y = cross(z, x);
  return [0, 1, 2].map((k) => [x[k], y[k], z[k]]);
}

const AROUND = 14;

// A body of revolution from rings [radius, height], from the bottom up; radius 0 is a point. ends: rings of each end
// that belong to one piece.
function lathe(rings, ends) {
  const faces = [];
  const at = ([radius, z], k) => [radius * Math.cos((2 * Math.PI * k) / AROUND), radius * Math.sin((2 * Math.PI * k) / AROUND), z];
  for (let i = 0; i + 1 < rings.length; i += 1) {
    for (let k = 0; k < AROUND; k += 1) {
      const corners = [at(rings[i], k), at(rings[i], k + 1), at(rings[i + 1], k + 1), at(rings[i + 1], k)];
      const normal = unit(cross(add(corners[2], times(corners[0], -1)), add(corners[3], times(corners[1], -1))));
      faces.push({ corners, normal, middle: times(corners.reduce(add), 0.25), piece: Math.min(Math.max(i, ends - 1), rings.length - 1 - ends) });
    }
  }
  return faces;
}

const dome = (radius, from, to, middle) => Array.from({ length: 4 }, (_, i) => {
  const angle = from + ((to - from) * i) / 3;
  return [radius * Math.cos(angle), middle + radius * Math.sin(angle)];
});

// Heights at which a long solid is cut.
function stations(half) {
  const count = Math.max(1, Math.ceil(half / 0.05));
  return Array.from({ length: count + 1 }, (_, i) => -half + (2 * half * i) / count);
}

function box([x, y, z]) {
  const faces = [], sizes = [x, y, z];
  for (let axis = 0; axis < 3; axis += 1) {
    for (const side of [1, -1]) {
      const normal = [0, 0, 0], u = [0, 0, 0], v = [0, 0, 0];
      normal[axis] = side; u[(axis + 1) % 3] = sizes[(axis + 1) % 3]; v[(axis + 2) % 3] = sizes[(axis + 2) % 3];
      const middle = times(normal, sizes[axis]);
      faces.push({ normal, middle, piece: 0, corners: [[-1, -1], [1, -1], [1, 1], [-1, 1]].map(([p, q]) => add(middle, add(times(u, p), times(v, q)))) });
    }
  }
  return faces;
}

export function facesOf(kind, size) {
  if (kind === "box") return box(size);
  const [radius, half = 0] = size;
  if (kind === "cylinder") return lathe([[0, -half], ...stations(half).map((z) => [radius, z]), [0, half]], 2);
  const middle = kind === "capsule" ? stations(half).slice(1, -1).map((z) => [radius, z]) : [];
  return lathe([...dome(radius, -Math.PI / 2, 0, -half), ...middle, ...dome(radius, 0, Math.PI / 2, half)], 4);
}
