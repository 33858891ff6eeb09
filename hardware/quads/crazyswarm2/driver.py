"""Driver of a Crazyflie behind crazyswarm2's server: body rates and thrust on the topic cmd_vel_legacy.

Watchdogs: the guard process (`hardware/guard/guard.py`) requests, through the server, that the craft's
high-level commander lands it. Should it or the server fail, the firmware acts as described in
`hardware/quads/crazyflie/driver.py`.
"""

from __future__ import annotations

import math
import time

import numpy as np

from hardware.driver import WATCHDOG_S
from hardware.quads.arming import ArmedMotors
from hardware.quads.bounds import QuadLimits, bounded_rates, motors_off
from hardware.quads.crazyflie.firmware import (
    ARMED,
    FLYING,
    FULL_THRUST,
    PID,
    check_after_stop,
    check_unlocked,
    fault_of,
    landing_duration_s,
    stands,
    thrust_number,
)
from hardware.quads.crazyswarm2.topics import Crazyswarm2Topics
from hardware.states import BodyRates, QuadState, Setpoint
from robo_rl.core.errors import BusError, ConfigError, DriverError

CONNECT_S, ANSWER_S, PARAMETER_S, SETTLE_S = 5.0, 0.2, 2.0, 0.2
LOST_S, STATUS_LOST_S = 1.0, 3.0  # ages of state and status after which the link counts as lost
REQUEST_S, REQUESTS = 0.5, 6  # period and number of requests to arm
# With these parameters, roll and pitch of cmd_vel_legacy are rates.
PARAMETERS = {"flightmode.stabModeRoll": 0, "flightmode.stabModePitch": 0, "stabilizer.controller": PID}
LOGGED = ("vx", "vy", "vz", "rateRoll", "ratePitch", "rateYaw")  # variables of stateEstimateZ: mm/s, mrad/s
# Both servers invert the pitch; with backend cflib, cflib inverts it again.
PITCH_SIGNS = {"cpp": 1.0, "cflib": -1.0}
ONLY_CFLIB = "add_logging"  # a service that only the server on cflib offers


class Crazyswarm2Driver:
    """Driver of a Crazyflie behind crazyswarm2; see `hardware.driver.Driver`. Connect it on the ground.

    name: of the craft in crazyflies.yaml. namespace: of the server, only with backend cflib. backend: of the
    server, cpp or cflib. log: name of the custom topic that has the variables `LOGGED`. frame: the server's
    reference_frame. arm, max_rate_rad_s, thrust_low, thrust_high: as for `CrazyflieDriver`. Raises
    ConfigError for an unknown backend, or a namespace with backend cpp.
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
        thrust_low: float = 0.0,
        thrust_high: float = 0.9,
        watchdog_s: float = WATCHDOG_S,
    ) -> None:
        if backend not in PITCH_SIGNS:
            raise ConfigError(
                f"backend='{backend}' is no server of crazyswarm2 that flies; expected cpp or cflib."
            )
        if namespace and backend == "cpp":
            raise ConfigError(
                f"namespace='{namespace}' with backend=cpp: this server accepts parameters only under the "
                "name /crazyflie_server, so roll and pitch would be angles. Start the server without a "
                "namespace, or with backend cflib."
            )
        self._limits = QuadLimits(max_rate_rad_s, thrust_low=thrust_low, thrust_high=thrust_high)
        self._where, self._backend, self._frame, self._arm = (name, namespace, log), backend, frame, arm
        self._robot = f"the Crazyflie '{name}' of crazyswarm2"
        self._topics: Crazyswarm2Topics | None = None
        self._unlocked, self._wrote, self._stopped, self._off = False, False, False, False
        self._requested_s, self._requests, self._landed_s = -math.inf, 0, -math.inf
        self._motors = ArmedMotors(self._robot)

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
                # The firmware locks the thrust until it gets a thrust of 0. In the air, that would stop the
                # motors.
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
                "levels after 0.5 s and stops its motors after 2 s. Check server and radio, and connect "
                "again on the ground."
            )
        self._check_frame(pose.header.frame_id)
        if len(log.values) != len(LOGGED):
            raise DriverError(
                f"The custom topic of {self._robot} has {len(log.values)} values, expected those of "
                f"stateEstimateZ: {', '.join(LOGGED)}, in this order. docs/drivers.md has the lines for "
                "crazyflies.yaml."
            )
        place, attitude = pose.pose.position, pose.pose.orientation
        logged = np.asarray(log.values, float) / 1e3
        quat = np.array([attitude.w, attitude.x, attitude.y, attitude.z])
        if not abs(float(np.linalg.norm(quat)) - 1.0) < 0.05:
            raise DriverError(
                f"{self._robot} sends the quaternion {quat}, expected length 1. Wait until its estimator is "
                "ready."
            )
        info = int(status.supervisor_info)
        return QuadState(
            received_s,
            np.array([place.x, place.y, place.z]),
            quat / np.linalg.norm(quat),
            logged[:3],
            logged[3:] * [1.0, -1.0, 1.0],  # the firmware's pitch is positive nose up
            battery_v=float(status.battery_voltage),
            armed=bool(info & ARMED),
            flying=bool(info & FLYING),
            controlled=self._wrote and not self._stopped and bool(info & ARMED),
            fault=fault_of(info, self._robot),
        )

    def write(self, command: Setpoint) -> Setpoint:
        topics = self._open()
        check_after_stop(self._stopped, self._robot)
        sent = bounded_rates(command, self._limits, self._robot)
        state = self.read()
        if state.fault:
            raise DriverError(f"{state.fault}. Nothing was sent.")
        check_unlocked(self._unlocked, self._robot)
        self._motors.check(state.armed, motors_off(sent))
        self._request_arming(topics, state)
        number = thrust_number(sent.thrust)
        roll, pitch, yaw = np.degrees(sent.rates_rad_s).tolist()
        # The yaw rate of cmd_vel_legacy is positive to the right.
        topics.command((PITCH_SIGNS[self._backend] * pitch, roll, float(number)), -yaw)
        self._wrote, self._off = True, motors_off(sent)
        return BodyRates(sent.rates_rad_s, number / FULL_THRUST)

    def stop(self, reason: str) -> None:
        topics = self._topics
        if topics is None or self._stopped or not self._wrote:
            return
        self._stopped = True
        height_m = 0.5 if topics.pose is None else float(topics.pose[0].pose.position.z)
        if self._off or stands(self._info(topics), height_m):
            topics.command((0.0, 0.0, 0.0), 0.0)
            return
        duration_s = landing_duration_s(height_m)
        for _ in range(3):  # if the server does not respond, the firmware stops the craft
            try:
                # Low-level setpoints have priority over the high-level commander until this notification.
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
        self._topics = None
        self._unlocked, self._wrote, self._stopped, self._off = False, False, False, False
        self._requested_s, self._requests, self._landed_s = -math.inf, 0, -math.inf
        self._motors = ArmedMotors(self._robot)

    def _open(self) -> Crazyswarm2Topics:
        if self._topics is None:
            raise DriverError(f"{self._robot} is not connected. Call connect() first.")
        return self._topics

    def _info(self, topics: Crazyswarm2Topics) -> int:
        return 0 if topics.status is None else int(topics.status[0].supervisor_info)

    def _wait_for(self, topics: Crazyswarm2Topics) -> None:
        deadline_s = time.monotonic() + CONNECT_S
        while missing := topics.missing():
            if time.monotonic() > deadline_s:
                raise DriverError(
                    f"{self._robot} lacks {', '.join(missing)} after {CONNECT_S:g} s. Check that its server "
                    "runs in this ROS_DOMAIN_ID with RMW_IMPLEMENTATION=rmw_cyclonedds_cpp, that the name is "
                    "that of crazyflies.yaml, and that pose, status and the custom topic are logged there "
                    "(docs/drivers.md)."
                )
            time.sleep(0.01)

    def _check_frame(self, frame: str) -> None:
        if frame.lstrip("/") != self._frame:
            raise DriverError(
                f"{self._robot} sends its pose in frame '{frame}', expected '{self._frame}': set "
                "reference_frame in crazyflies.yaml, or frame= if its z axis points up."
            )

    def _check_backend(self, topics: Crazyswarm2Topics) -> None:
        """Raise DriverError for the server with the other backend, whose pitch has the opposite sign."""
        deadline_s = time.monotonic() + SETTLE_S
        while not (is_cflib := topics.offers(ONLY_CFLIB)) and time.monotonic() < deadline_s:
            time.sleep(0.01)
        found = "cflib" if is_cflib else "cpp"
        if found != self._backend:
            raise DriverError(
                f"The server of {self._robot} has the backend {found}, expected {self._backend}: the two "
                f"have opposite signs of pitch. Set backend={found}."
            )

    def _set_parameters(self, topics: Crazyswarm2Topics) -> None:
        for name, value in PARAMETERS.items():
            if why := topics.set_parameter(name, value, PARAMETER_S):
                raise DriverError(f"The server of {self._robot} did not set {name} = {value}: {why}")
        time.sleep(SETTLE_S)  # the server responds before the parameters are sent by radio

    def _request_arming(self, topics: Crazyswarm2Topics, state: QuadState) -> None:
        """Request armed motors until they are armed once, without waiting for the answer."""
        now_s = time.monotonic()
        if state.armed or not self._arm or self._motors.were_armed:
            self._requests = 0
        elif now_s - self._requested_s > REQUEST_S:
            if self._requests >= REQUESTS:
                raise DriverError(f"{self._robot} did not arm after {REQUESTS} requests. Nothing was sent.")
            self._requested_s, self._requests = now_s, self._requests + 1
            topics.request_arming(True)

    def _wait_until_down(self, topics: Crazyswarm2Topics) -> None:
        """Wait until a requested landing is over, then disarm the motors if this driver armed them."""
        if self._landed_s == -math.inf:
            return
        while time.monotonic() < self._landed_s + 1.0 and self._info(topics) & FLYING:
            time.sleep(0.05)
        if self._arm and not self._info(topics) & FLYING:
            topics.request_arming(False)
            time.sleep(0.05)  # let the request be sent before the topics are closed
