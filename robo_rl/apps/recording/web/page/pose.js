// Rotations of a tracked hand as quaternions [x, y, z, w], in WebXR's frame: x right, y up, z backwards.
const half = (degrees) => (degrees * Math.PI) / 360;
const about = (axis, angle) => {
  const quat = [0, 0, 0, Math.cos(angle)];
  quat[axis] = Math.sin(angle);
  return quat;
};

export function multiply([ax, ay, az, aw], [bx, by, bz, bw]) {
  return [
    aw * bx + ax * bw + ay * bz - az * by, aw * by - ax * bz + ay * bw + az * bx,
    aw * bz + ax * by - ay * bx + az * bw, aw * bw - ax * bx - ay * by - az * bz,
  ];
}

export function unit(quat) {
  const length = Math.hypot(...quat);
  return quat.map((value) => value / length);
}

// The vector, turned by the quaternion.
export function turned(quat, [x, y, z]) {
  const [i, j, k, w] = quat;
  return multiply(multiply(quat, [x, y, z, 0]), [-i, -j, -k, w]).slice(0, 3);
}

// Rotation about an axis of WebXR's frame by an angle in rad.
export const turnAbout = (axis, rad) => about(axis, rad / 2);

// Rotation of a device that reports DeviceOrientation angles in degrees: Z-X'-Y'' in a frame with z up.
export function fromDevice(alpha, beta, gamma) {
  const inEarth = multiply(multiply(about(2, half(alpha)), about(0, half(beta))), about(1, half(gamma)));
  return unit(multiply(about(0, -Math.PI / 4), inEarth));
}

// Angle about the vertical of where the device's top edge points, or, if it is upright, its back; forward is 0.
export function heading(quat) {
  let [x, , z] = turned(quat, [0, 1, 0]);
  if (Math.hypot(x, z) < 0.5) [x, , z] = turned(quat, [0, 0, -1]);
  return Math.atan2(-x, -z);
}

// The rotation as seen by an operator who looks into the direction `yaw`.
export const facing = (quat, yaw) => unit(multiply(turnAbout(1, -yaw), quat));
