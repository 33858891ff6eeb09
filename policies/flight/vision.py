"""Hover by camera: each image gives a pose, and two poses with the accelerations between them give a
velocity.

    p_i, psi_i = pose(net(image_i), tilt_i)        at t0, t0 - D, t0 - 2 D; D = apart_s
    v = (p_0 - p_2) / 2 D + R_z(psi_0) w           w: velocity now - its mean from t0 - 2 D to t0, level axes
    p = p_0 + age v                                age: of the newest image
    action = teacher(p, R(psi_0, tilt), v, rates, last actions)

w is integrated from accelerations (`gained_velocity`); it turns the slope over images 160 ms apart into the
current velocity. The teacher is frozen: only the pose is learned, with exact labels from the simulator. Tilt
comes from the inertial unit; position and heading come from the images alone. Velocity is computed, not
learned: a network that sees tilts and actions learns their correlation with velocity under the teacher, which
its own errors then break.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from policies.flight.policy import FlightPolicy
from robo_rl.core.errors import ConfigError
from robo_rl.core.protocols import Obs
from robo_rl.core.shapes import Float, UInt8
from robo_rl.core.spec import EnvSpec

IMAGE, STATE = "image.down", "state"
FRAMES = 3  # images of different ages, the channels of one observation, newest first
POSE = 5  # position 3 [m], cos and sin of the heading
ESTIMATE = 8  # position 3 [m], velocity 3 [m/s], cos and sin of the heading
# Slices of `state`; the last actions are between them.
TILT, RATES = slice(0, 3), slice(3, 6)
TILTS, AGE, GAINED = slice(-4 - 3 * FRAMES, -4), slice(-4, -3), slice(-3, None)
POSE_SCALE = (0.3, 0.3, 0.3, 1.0, 1.0)  # units of the network's output


class FrameNet(nn.Module):
    """One grey image (b, 1, h, w) in [0, 1] -> (b, features)."""

    def __init__(self, px: int, width: int, features: int) -> None:
        super().__init__()
        sizes = ((1, width, 5), (width, 2 * width, 3), (2 * width, 2 * width, 3))
        layers = [nn.Conv2d(i, o, k, stride=2, padding=k // 2) for i, o, k in sizes]
        self.layers = nn.Sequential(*(part for layer in layers for part in (layer, nn.ReLU())), nn.Flatten())
        side = px
        for _ in sizes:
            side = (side + 1) // 2
        self.project = nn.Linear(2 * width * side * side, features)

    def forward(self, picture: Float[Tensor, "b 1 h w"]) -> Float[Tensor, "b f"]:
        # Brightness and contrast of an image do not depend on the pose.
        mean, std = picture.mean((2, 3), keepdim=True), picture.std((2, 3), keepdim=True)
        out: Tensor = torch.tanh(self.project(self.layers((picture - mean) / (std + 0.05))))
        return out


class PoseEstimator(nn.Module):
    """One image and the tilt at its time -> the pose of the camera."""

    def __init__(self, px: int, width: int, features: int) -> None:
        super().__init__()
        self.net = FrameNet(px, width, features)
        self.head = nn.Sequential(nn.Linear(features + 3, 64), nn.Tanh(), nn.Linear(64, POSE))

    def forward(self, picture: Float[Tensor, "b 1 h w"], tilt: Float[Tensor, "b 3"]) -> Float[Tensor, "b 5"]:
        return self.pose(self.net(picture), tilt)

    def pose(self, features: Float[Tensor, "b f"], tilt: Float[Tensor, "b 3"]) -> Float[Tensor, "b 5"]:
        out: Tensor = self.head(torch.cat([features, tilt], dim=1))
        return out * out.new_tensor(POSE_SCALE)


class VisionPolicy(nn.Module):
    """One action at a time from `image.down` (px, px, 3) uint8 and `state`; deterministic, its noise input is
    ignored.
    """

    kind = "vision"
    obs_steps = chunk = execute = 1

    def __init__(
        self,
        env: EnvSpec,
        teacher: FlightPolicy,
        period_s: float,
        apart_s: float,
        width: int = 12,
        features: int = 48,
    ) -> None:
        super().__init__()
        if (
            set(env.obs) != {IMAGE, STATE}
            or len(env.obs[IMAGE].shape) != 3
            or env.obs[IMAGE].shape[2] != FRAMES
        ):
            raise ConfigError(
                f"A vision policy needs '{IMAGE}' (h, w, {FRAMES}) and '{STATE}', found {env.obs}."
            )
        if not 0.0 < period_s <= apart_s:
            raise ConfigError(
                f"period_s = {period_s:g} and apart_s = {apart_s:g}: expected 0 < period_s <= apart_s."
            )
        self.env, self.obs_spec, self.action_spec = env, env.obs, env.action
        self.period_s, self.apart_s = period_s, apart_s
        self.sizes = {"width": width, "features": features}
        self.teacher = teacher.requires_grad_(False)
        self.history = teacher.obs_spec[STATE].shape[0] - 18
        rows = env.obs[STATE].shape[0]
        if self.history < 0 or rows != 6 + self.history + 3 * FRAMES + 4:
            raise ConfigError(
                f"'{STATE}' has {rows} numbers; this teacher needs {19 + self.history}, without an integral."
            )
        self.eye = PoseEstimator(env.obs[IMAGE].shape[0], width, features)

    def frames(self, image: UInt8[Tensor, "b h w c"]) -> Float[Tensor, "b cf"]:
        """Features of all images of an observation, concatenated."""
        grey = image.permute(0, 3, 1, 2).float() / 255.0
        return torch.cat([self.eye.net(grey[:, i : i + 1]) for i in range(FRAMES)], dim=1)

    def estimate(self, frames: Float[Tensor, "b cf"], state: Float[Tensor, "b s"]) -> Float[Tensor, "b 8"]:
        """Position [m], velocity [m/s], cos and sin of the heading, not normalised."""
        tilts = state[:, TILTS].split(3, dim=1)
        poses = [self.eye.pose(seen, up) for seen, up in zip(frames.chunk(FRAMES, dim=1), tilts, strict=True)]
        age_s, heading = state[:, AGE] * self.period_s, poses[0][:, 3:5]
        slope = (poses[0][:, :3] - poses[-1][:, :3]) / ((FRAMES - 1) * self.apart_s)
        velocity = slope + turned(state[:, GAINED], heading)
        return torch.cat([poses[0][:, :3] + age_s * velocity, velocity, heading], dim=1)

    def act(self, estimate: Float[Tensor, "b 8"], state: Float[Tensor, "b s"]) -> Float[Tensor, "b a"]:
        """The teacher's action in the estimated state."""
        believed = [
            estimate[:, 0:3],
            attitude(state[:, TILT], estimate[:, 6:8]),
            estimate[:, 3:6],
            state[:, RATES],
        ]
        seen = torch.cat([*believed, state[:, 6 : 6 + self.history]], dim=1)
        action: Tensor = self.teacher.sample_from(seen * self.teacher.scale, torch.zeros(1, 1, 1))[:, 0]
        return action

    def features(self, obs: Obs) -> Float[Tensor, "b f"]:
        return torch.cat([self.frames(obs[IMAGE].flatten(0, 1)), obs[STATE].flatten(0, 1)], dim=1)

    def sample(self, obs: Obs, noise: Float[Tensor, "b 1 a"]) -> Float[Tensor, "b 1 a"]:
        return self.sample_from(self.features(obs), noise)

    def sample_from(
        self, features: Float[Tensor, "b f"], noise: Float[Tensor, "b 1 a"]
    ) -> Float[Tensor, "b 1 a"]:
        split = FRAMES * self.sizes["features"]
        frames, state = features[:, :split], features[:, split:]
        return self.act(self.estimate(frames, state), state).unsqueeze(1) + 0.0 * noise

    def refine(self, obs: Obs, action: Float[Tensor, "b a"]) -> Float[Tensor, "b a"]:
        return action

    def config(self) -> dict[str, Any]:
        times = {"period_s": self.period_s, "apart_s": self.apart_s}
        return {"env": self.env.to_json(), "teacher": self.teacher.config(), **times, **self.sizes}

    @classmethod
    def from_config(cls, data: dict[str, Any]) -> VisionPolicy:
        env, teacher = EnvSpec.from_json(data["env"]), FlightPolicy.from_config(data["teacher"])
        sizes = {name: int(data[name]) for name in ("width", "features")}
        return cls(env, teacher, float(data["period_s"]), float(data["apart_s"]), **sizes)


def turned(level: Float[Tensor, "b 3"], heading: Float[Tensor, "b 2"]) -> Float[Tensor, "b 3"]:
    """From level axes (x ahead) to the world's. heading: cos and sin, of any length."""
    c, s = (heading / heading.norm(dim=1, keepdim=True).clamp(min=1e-6)).unbind(1)
    x, y, z = level.unbind(1)
    return torch.stack([c * x - s * y, s * x + c * y, z], dim=1)


def gained_velocity(
    acceleration_m_s2: Float[Tensor, "t b 3"], dt_s: float, span: int
) -> Float[Tensor, "b 3"]:
    """Velocity now minus its mean over the `span` steps before the newest image.

    acceleration_m_s2: in level axes, without gravity, of all steps since the oldest image, oldest first. With
    p' = v, v(now) - mean v = the integral of k(t) a(t), where k rises from 0 to 1 over the span and is 1
    after it.
    """
    weight = ((torch.arange(len(acceleration_m_s2)) + 0.5) / span).clamp(max=1.0)
    return dt_s * (weight.to(acceleration_m_s2)[:, None, None] * acceleration_m_s2).sum(0)


def attitude(up: Float[Tensor, "b 3"], heading: Float[Tensor, "b 2"]) -> Float[Tensor, "b 9"]:
    """Rotation matrix, body -> world, row by row, from the up vector in body axes and the heading (cos, sin).

    R = R_z(heading) R_y(pitch) R_x(roll), whose last row is `up`: sin pitch = -up_x, tan roll = up_y / up_z.
    """
    up = up / up.norm(dim=1, keepdim=True).clamp(min=1e-6)
    c, s = (heading / heading.norm(dim=1, keepdim=True).clamp(min=1e-6)).unbind(1)
    x, y, z = up.unbind(1)
    flat = torch.sqrt(y * y + z * z + 1e-12)
    sr, cr, zero = y / flat, z / flat, torch.zeros_like(x)
    ahead, left = torch.stack([flat, -x * sr, -x * cr], 1), torch.stack([zero, cr, -sr], 1)
    c, s = c.unsqueeze(1), s.unsqueeze(1)
    return torch.cat([c * ahead - s * left, s * ahead + c * left, up], dim=1)
