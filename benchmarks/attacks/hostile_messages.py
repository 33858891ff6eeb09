"""Random messages that a bus can transport but no correct sender would send."""

from __future__ import annotations

import random
from typing import Any

import numpy as np

from hardware import messages as m

_NUMBERS = (
    0.0,
    1.0,
    -1.0,
    0.3,
    -0.0,
    1e-320,
    1e6,
    -1e6,
    1e308,
    -1e308,
    float("nan"),
    float("inf"),
    -float("inf"),
)
_STAMPS = (0.0, 1e9, 1e9 + 1.0, 1e9 + 60.0, -1.0, 1e-9, -2147483648.0, 2147483645.5, 400_000.0, 5e8)
_TIMES = (0.0, 0.02, 0.01, -0.02, 1.0, 60.0, 400_000.0, 2e9, -2147483648.0, 1e-9)
_SIZES = (0, 1, 2, 3, 4, 6, 7, 50)
_WORDS = (
    "",
    "start",
    "stop",
    "success",
    "failure",
    "discard",
    "\0",
    "ä\u2028",
    "x" * 100_000,
    "../../etc",
    "{}",
    "armed",
)
_JPEG = bytes.fromhex("ffd8ffc00011087d007d0003012200021101031101ffda000c03010002110311003f00ffd9")


class Hostile:
    """Generator of messages. names: joints of the robot that is attacked."""

    def __init__(self, rng: random.Random, names: tuple[str, ...]) -> None:
        self.rng, self.names = rng, names

    def of(self, kind: type[Any]) -> Any:
        """One message of this type."""
        made: Any = getattr(self, f"_{kind.__name__.lower()}")()
        return made

    def numbers(self, *shape: int) -> Any:
        """Ordinary, extreme or non-finite numbers, of one kind or mixed."""
        rng = self.rng
        if rng.random() < 0.4:
            return np.array([rng.uniform(-3.0, 3.0) for _ in range(int(np.prod(shape)))]).reshape(shape)
        if rng.random() < 0.3:
            return np.full(shape, rng.choice(_NUMBERS))
        return np.array([rng.choice(_NUMBERS) for _ in range(int(np.prod(shape)))]).reshape(shape)

    def some_names(self) -> tuple[str, ...]:
        """Joint names: the robot's in any order, with others, without some, twice, or none of them."""
        rng, names = self.rng, list(self.names)
        way = rng.randrange(8)
        if way == 1:
            rng.shuffle(names)
        elif way == 2:
            names.pop(rng.randrange(len(names)))
        elif way == 3:
            names.append("stranger")
        elif way == 4:
            names = names + names
        elif way == 5:
            names = []
        elif way == 6:
            names = [rng.choice(("", "x" * 10_000, "\0", "a/b", "ä")) for _ in names]
        elif way == 7 and rng.random() < 0.1:
            names = [f"j{i}" for i in range(20_000)]
        return tuple(names)

    def _size(self) -> int:
        return 100_000 if self.rng.random() < 0.005 else self.rng.choice(_SIZES)

    def _stamp(self) -> float:
        return self.rng.choice(_STAMPS)

    def _jointstate(self) -> m.JointState:
        names = self.some_names()
        rest = [self.numbers(len(names) * self.rng.randrange(2)) for _ in range(2)]
        return m.JointState(self._stamp(), names, self.numbers(len(names)), *rest)

    def _jointtrajectory(self) -> m.JointTrajectory:
        names = self.some_names()
        count = (
            self.rng.choice((0, 1, 1, 1, 2, 8, 16)) if len(names) > 50 or self.rng.random() < 0.99 else 50_000
        )
        times = np.array([self.rng.choice(_TIMES) for _ in range(count)])
        if self.rng.random() < 0.5:
            times = np.sort(np.abs(times))
        rows = np.zeros((count, len(names)))
        rows[:16] = self.numbers(min(count, 16), len(names))
        frame = self.rng.choice(("", "base_link", "7/3", "x" * 10_000))
        return m.JointTrajectory(self._stamp(), names, rows, times, frame)

    def _jointjog(self) -> m.JointJog:
        names = self.some_names()
        return m.JointJog(self._stamp(), names, self.numbers(self.rng.choice((len(names), 0, 1))))

    def _twist(self) -> m.Twist:
        frame = self.rng.choice(("", "base_link", "tool0", "x" * 10_000))
        return m.Twist(self._stamp(), self.numbers(3), self.numbers(3), frame)

    def _floats(self) -> m.Floats:
        return m.Floats(self.numbers(self._size()))

    def _flightcommand(self) -> m.FlightCommand:
        names = self.rng.choice(((), m.RATES, m.MOTORS, ("x",)))
        return m.FlightCommand(self._stamp(), self.numbers(self._size()), names)

    def _odometry(self) -> m.Odometry:
        frames = [
            self.rng.choice(("world", "base_link", "odom_ned", "", "x" * 10_000, "\0")) for _ in range(2)
        ]
        values = self.numbers(3), self.numbers(4), self.numbers(3), self.numbers(3)
        return m.Odometry(self._stamp(), *values, *frames)

    def _imu(self) -> m.Imu:
        return m.Imu(self._stamp(), self.numbers(4), self.numbers(3), self.numbers(3))

    def _image(self) -> m.Image:
        height, width = self.rng.choice(((0, 0), (1, 1), (8, 8), (1, 5000), (480, 640), (0, 100)))
        return m.Image(self._stamp(), np.full((height, width, 3), self.rng.randrange(256), np.uint8))

    def _compressedimage(self) -> m.CompressedImage:
        data = self.rng.choice((b"", _JPEG, _JPEG[:20], b"\x89PNG\r\n\x1a\n", self.rng.randbytes(200)))
        return m.CompressedImage(self._stamp(), np.frombuffer(data, np.uint8), self.rng.choice(_WORDS))

    def _text(self) -> m.Text:
        return m.Text(self.rng.choice(_WORDS))

    def _flag(self) -> m.Flag:
        return m.Flag(self.rng.random() < 0.5)

    def _diagnostics(self) -> m.Diagnostics:
        def status() -> m.Status:
            name = self.rng.choice((*_WORDS, "safety_filter", f"n{self.rng.randrange(10**9)}"))
            values = {self.rng.choice(("phase", "", "ends")): self.rng.choice(_WORDS) for _ in range(2)}
            return m.Status(
                name,
                self.rng.choice((0, 1, 2, 3, 4, 255)),
                self.rng.choice(_WORDS),
                values,
                self.rng.choice(_WORDS),
            )

        return m.Diagnostics(self._stamp(), tuple(status() for _ in range(self.rng.choice((0, 1, 1, 3)))))
