"""The Crazyflie behind crazyswarm2's server, over its topics: body rates and thrust on cmd_vel_legacy.

The server holds the radio; we stream to it. Guards: ours (`hardware/guard/guard.py`) asks the server to let
the craft's own high-level commander land it; behind it the firmware, as in
`hardware/quads/crazyflie/driver.py`, also when the server dies.
"""

from __future__ import annotations

import math
import time

import numpy as np

from hardware.driver import WATCHDOG_S
from hardware.quads.bounds import QuadLimits, bounded
from hardware.quads.crazyflie.driver import DESCEND_M_S, GROUND_M, LEAST_LANDING_S, MOST_LANDING_S
from hardware.quads.crazyflie.link import ARMED, FAULTS, FLYING
from hardware.quads.crazyflie.packets import FULL_THRUST, thrust_number
from hardware.quads.crazyswarm2.topics import Crazyswarm2Topics
from hardware.states import BodyRates, QuadState, Setpoint
from robo_rl.core.errors import BusError, ConfigError, DriverError

CONNECT_S, ANSWER_S, PARAMETER_S, SETTLE_S = 5.0, 0.2, 2.0, 0.2
LOST_S, STATUS_LOST_S = 1.0, 3.0
ASK_S, ASKS = 0.5, 6
# Roll and pitch of cmd_vel_legacy are rates, and the controller is the only one that follows them.
PARAMETERS = {"flightmode.stabModeRoll": 0, "flightmode.stabModePitch": 0, "stabilizer.controller": 1}
LOGGED = ("vx", "vy", "vz", "rateRoll", "ratePitch", "rateYaw")  # of stateEstimateZ: mm/s, mrad/s
# The server turns the pitch once, and cflib behind the server of that name turns it back.
PITCH_SIGNS = {"cpp": 1.0, "cflib": -1.0}
ONLY_CFLIB = "add_logging"  # a service that the server on cflib offers, and the other does not


class Crazyswarm2Driver:
    """name: of the craft in crazyflies.yaml. Connect on the ground.

    backend: of the server, cpp or cflib. namespace: of the server on cflib. log: the custom topic with
    `LOGGED`. frame: the server's reference_frame. arm, max_rate_rad_s ...: as `CrazyflieDriver`.
    """

    names: tuple[str, ...] = ()

    def __init__(
        self,
        name: str,
        namespace: str = "",
        backend: str = "cpp",
        log: str = "robo_rl",
        frame: str = "world",
        arm: bool = False,
        max_rate_rad_s: float = 6.0,
        max_tilt_rad: float = 0.6,
        max_speed_m_s: float = 1.5,
        thrust_low: float = 0.0,
        thrust_high: float = 0.9,
        watchdog_s: float = WATCHDOG_S,
    ) -> None:
        if backend not in PITCH_SIGNS:
            raise ConfigError(
                f"backend='{backend}' is no server of crazyswarm2 that flies, expected cpp or cflib."
            )
        if namespace and backend == "cpp":
            raise ConfigError(
                f"namespace='{namespace}' with backend=cpp: that server heeds parameters only under the name "
                "/crazyflie_server, and roll and pitch would be angles. Start it without a namespace, or on "
                "cflib."
            )
        self._limits = QuadLimits(max_rate_rad_s, max_tilt_rad, max_speed_m_s, thrust_low, thrust_high)
        self._where, self._backend, self._frame, self._arm = (name, namespace, log), backend, frame, arm
        self._robot = f"the Crazyflie '{name}' of crazyswarm2"
        self._topics: Crazyswarm2Topics | None = None
        self._unlocked, self._wrote, self._stopped = False, False, False
        self._asked_s, self._asks, self._landed_s = -math.inf, 0, -math.inf

    def connect(self) -> None:
        self.close()
        self._topics = topics = Crazyswarm2Topics(*self._where)
        try:
            self._wait_for(topics)
            if fault := self.read().fault:
                raise DriverError(f"{fault}. Then connect again.")
            self._check_backend(topics)
            self._set_parameters(topics)
            if not self._info(topics) & FLYING:
                # The firmware locks the thrust until it has seen none. In the air that would stop the motors.
                topics.command((0.0, 0.0, 0.0), 0.0)
                time.sleep(0.05)  # the server reads topics and services in different threads
                topics.notify_setpoints_stop(PARAMETER_S)
                self._unlocked = True
        except BusError as error:
            self.close()
            raise DriverError(f"{self._robot}: {error}") from error
        except DriverError:
            self.close()
            raise

    def read(self) -> QuadState:
        topics = self._open()
        assert topics.pose is not None
        assert topics.log is not None
        assert topics.status is not None
        (pose, pose_s), (log, log_s), (status, status_s) = topics.pose, topics.log, topics.status
        now_s, received_s = time.monotonic(), min(pose_s, log_s)
        if now_s - received_s > LOST_S or now_s - status_s > STATUS_LOST_S:
            raise DriverError(
                f"{self._robot} is silent: its pose for {now_s - pose_s:.1f} s, its custom topic for "
                f"{now_s - log_s:.1f} s, its status for {now_s - status_s:.1f} s. Without setpoints it "
                "levels after 0.5 s and stops its motors after 2 s; check server and radio, and connect "
                "again on the ground."
            )
        self._check_frame(pose.header.frame_id)
        if len(log.values) != len(LOGGED):
            raise DriverError(
                f"The custom topic of {self._robot} has {len(log.values)} values, expected those of "
                f"stateEstimateZ: {', '.join(LOGGED)}, in this order. See docs/drivers.md for its lines in "
                "crazyflies.yaml."
            )
        place, turn, logged = pose.pose.position, pose.pose.orientation, np.asarray(log.values, float) / 1e3
        quat = np.array([turn.w, turn.x, turn.y, turn.z])
        if not abs(float(np.linalg.norm(quat)) - 1.0) < 0.05:
            raise DriverError(
                f"{self._robot} tells no attitude: {quat} is of no unit length. Is its estimator ready?"
            )
        info = int(status.supervisor_info)
        return QuadState(
            received_s,
            np.array([place.x, place.y, place.z]),
            quat / np.linalg.norm(quat),
            logged[:3],
            logged[3:] * [1.0, -1.0, 1.0],  # its pitch is positive nose up
            battery_v=float(status.battery_voltage),
            armed=bool(info & ARMED),
            flying=bool(info & FLYING),
            controlled=self._wrote and not self._stopped and bool(info & ARMED),
            fault=self._fault(info),
        )

    def write(self, command: Setpoint) -> Setpoint:
        topics = self._open()
        if self._stopped:
            raise DriverError(f"{self._robot} was told to land. Connect again when it is on the ground.")
        sent = bounded(command, self._limits, self._robot)
        if not isinstance(sent, BodyRates):
            raise DriverError(
                f"{self._robot} takes BodyRates here, no {type(sent).__name__}. Nothing was sent."
            )
        state = self.read()
        if state.fault:
            raise DriverError(f"{state.fault}. Nothing was sent.")
        if not self._unlocked:
            raise DriverError(
                f"{self._robot} flew already when it was connected, so its thrust may be locked: a thrust of "
                "0 unlocks it, and would drop it. Land, connect on the ground, take off. Nothing was sent."
            )
        self._ask_to_arm(topics, state)
        number = thrust_number(sent.thrust)
        roll, pitch, yaw = np.degrees(sent.rates_rad_s).tolist()
        topics.command(
            (PITCH_SIGNS[self._backend] * pitch, roll, float(number)), -yaw
        )  # its yaw rate is to the right
        self._wrote = True
        return BodyRates(sent.rates_rad_s, number / FULL_THRUST)

    def stop(self, reason: str) -> None:
        topics = self._topics
        if topics is None or self._stopped or not self._wrote:
            return
        self._stopped = True
        height_m = 0.5 if topics.pose is None else float(topics.pose[0].pose.position.z)
        if not self._info(topics) & FLYING and height_m < GROUND_M:
            topics.command((0.0, 0.0, 0.0), 0.0)  # a landing from the ground would spin the motors up
            return
        duration_s = min(max(height_m / DESCEND_M_S, LEAST_LANDING_S), MOST_LANDING_S)
        for _ in range(3):  # best effort: a server that does not answer leaves it to the firmware
            try:
                # First the priority: a low-level setpoint outranks the high-level commander as long as it is
                # the last.
                topics.notify_setpoints_stop(ANSWER_S)
                topics.land(duration_s, ANSWER_S)
            except BusError:
                continue
            self._landed_s = time.monotonic() + duration_s
            return

    def close(self) -> None:
        topics = self._topics
        if topics is not None:
            self.stop("closed")
            self._wait_until_down(topics)
            topics.close()
        self._topics, self._unlocked, self._wrote, self._stopped = None, False, False, False
        self._asked_s, self._asks, self._landed_s = -math.inf, 0, -math.inf

    def _open(self) -> Crazyswarm2Topics:
        if self._topics is None:
            raise DriverError(f"{self._robot} is not connected. Call connect() first.")
        return self._topics

    def _info(self, topics: Crazyswarm2Topics) -> int:
        return 0 if topics.status is None else int(topics.status[0].supervisor_info)

    def _fault(self, info: int) -> str:
        return next((f"{self._robot} {words}" for bit, words in FAULTS.items() if info & bit), "")

    def _wait_for(self, topics: Crazyswarm2Topics) -> None:
        late_s = time.monotonic() + CONNECT_S
        while lacking := topics.lacking():
            if time.monotonic() > late_s:
                raise DriverError(
                    f"{self._robot} lacks {', '.join(lacking)} after {CONNECT_S:g} s. Does its server run in "
                    "this ROS_DOMAIN_ID with RMW_IMPLEMENTATION=rmw_cyclonedds_cpp, is the name that of "
                    "crazyflies.yaml, and are pose, status and the custom topic logged there "
                    "(docs/drivers.md)?"
                )
            time.sleep(0.01)

    def _check_frame(self, frame: str) -> None:
        if frame.lstrip("/") != self._frame:
            raise DriverError(
                f"{self._robot} tells its place in frame '{frame}', expected '{self._frame}': set "
                "reference_frame in crazyflies.yaml, or frame= if that one is level, with z up."
            )

    def _check_backend(self, topics: Crazyswarm2Topics) -> None:
        """Raise DriverError for the other server: its pitch would have the other sign."""
        late_s = time.monotonic() + SETTLE_S
        while not (is_cflib := topics.offers(ONLY_CFLIB)) and time.monotonic() < late_s:
            time.sleep(0.01)
        if is_cflib != (self._backend == "cflib"):
            raise DriverError(
                f"The server of {self._robot} is that on {'cflib' if is_cflib else 'cpp'}, and "
                f"backend={self._backend} was said: they turn the pitch to opposite sides. Set "
                f"backend={'cflib' if is_cflib else 'cpp'}."
            )

    def _set_parameters(self, topics: Crazyswarm2Topics) -> None:
        for name, value in PARAMETERS.items():
            if why := topics.set_parameter(name, value, PARAMETER_S):
                raise DriverError(f"The server of {self._robot} did not set {name} = {value}: {why}")
        time.sleep(SETTLE_S)  # it answers before the radio has them

    def _ask_to_arm(self, topics: Crazyswarm2Topics, state: QuadState) -> None:
        """Where the firmware asks for it, without waiting for an answer."""
        now_s = time.monotonic()
        if state.armed or not self._arm:
            self._asks = 0
        elif now_s - self._asked_s > ASK_S:
            if self._asks >= ASKS:
                raise DriverError(
                    f"{self._robot} did not arm though it was asked {ASKS} times. Nothing was sent."
                )
            self._asked_s, self._asks = now_s, self._asks + 1
            topics.ask_to_arm(True)

    def _wait_until_down(self, topics: Crazyswarm2Topics) -> None:
        """Stay until a landing that we asked for is over, then disarm what we armed."""
        if self._landed_s == -math.inf:
            return
        while time.monotonic() < self._landed_s + 1.0 and self._info(topics) & FLYING:
            time.sleep(0.05)
        if self._arm and not self._info(topics) & FLYING:
            topics.ask_to_arm(False)
            time.sleep(0.05)  # what was asked leaves before we do
