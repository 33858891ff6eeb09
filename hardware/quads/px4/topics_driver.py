"""Driver of PX4 over its DDS bridge (uXRCE-DDS, px4_msgs): an offboard stream of body rates and thrust.

Each `write` sends one heartbeat and one setpoint of the stream; when writes end, the stream ends.

Watchdogs: the guard process (`hardware/guard/guard.py`) requests a landing. Should it fail, PX4's own loss of
offboard acts (COM_OF_LOSS_T and COM_OBL_RC_ACT). The topics do not have these parameters, so check them
yourself. When a pilot leaves offboard mode, the pilot keeps control; motors that somebody else disarmed stay
disarmed.
"""

from __future__ import annotations

import time

import numpy as np

from hardware.driver import WATCHDOG_S
from hardware.quads.bounds import QuadLimits, bounded_rates, motors_off
from hardware.quads.px4.offboard import (
    ARM,
    CUSTOM_MODE,
    IN_FLIGHT,
    LAND,
    LOST_S,
    OFFBOARD,
    SET_MODE,
    OffboardStream,
)
from hardware.quads.px4.topics import Px4Topics
from hardware.states import QuadState, Setpoint
from robo_rl.core.errors import DriverError
from robo_rl.core.flight.frames import rotation_of, swap_attitude, swap_body, swap_world

NAV_OFFBOARD, NAV_LAND, ARMED = 14, 18, 2  # nav_state, nav_state, arming_state
NED, BODY_FRD = 1, 3  # frames of VehicleOdometry
HINT = (
    ". Check that no other ground station controls it, that its estimator is ready, and that system= is its "
    "MAV_SYS_ID."
)
CONNECT_S, ANSWER_S = 5.0, 0.2


class Px4TopicsDriver:
    """Driver of a PX4 quadcopter over its DDS bridge; see `hardware.driver.Driver`.

    namespace: of the topics, before /fmu; empty for a single craft. system: its MAV_SYS_ID. arm: arm the
    motors once in offboard mode; otherwise a pilot arms and takes off. max_rate_rad_s, thrust_low,
    thrust_high: see `QuadLimits`.
    """

    names: tuple[str, ...] = ()

    def __init__(
        self,
        namespace: str = "",
        system: int = 1,
        arm: bool = False,
        max_rate_rad_s: float = 4.0,
        thrust_low: float = 0.0,
        thrust_high: float = 1.0,
        watchdog_s: float = WATCHDOG_S,
    ) -> None:
        self._limits = QuadLimits(max_rate_rad_s, thrust_low=thrust_low, thrust_high=thrust_high)
        self._namespace, self._system, self._arm = namespace, system, arm
        self._robot = f"the PX4 on the topics {namespace}/fmu"
        self._topics: Px4Topics | None = None
        self._stream = OffboardStream(self._robot, arm)

    def connect(self) -> None:
        self.close()
        self._topics = topics = Px4Topics(self._namespace)
        deadline_s = time.monotonic() + CONNECT_S
        while topics.odometry is None or topics.status is None:
            if time.monotonic() > deadline_s:
                missing = [n for n in ("odometry", "status") if getattr(topics, n) is None]
                self.close()
                raise DriverError(
                    f"{self._robot} sent no vehicle_{' and no vehicle_'.join(missing)} within {CONNECT_S:g} "
                    "s. Check that MicroXRCEAgent runs in this ROS_DOMAIN_ID and namespace, and that "
                    "the autopilot has PX4 1.15 or later."
                )
            time.sleep(0.01)
        if topics.status[0].outdated:
            self.close()
            raise DriverError(
                f"{self._robot} sends the vehicle_status of PX4 1.14 or earlier, which would read our "
                "commands wrongly. Update the autopilot to PX4 1.15 or later, or use driver px4 (MAVLink)."
            )
        try:
            self.read()
        except DriverError:
            self.close()
            raise

    def read(self) -> QuadState:
        topics = self._open()
        assert topics.odometry is not None
        assert topics.status is not None
        (odometry, odometry_s), (status, status_s) = topics.odometry, topics.status
        if time.monotonic() - max(odometry_s, status_s) > LOST_S:
            raise DriverError(
                f"{self._robot} has been silent for more than {LOST_S:g} s. Its failsafe controls it now; "
                "check agent and link, and connect again when it is on the ground."
            )
        if odometry.pose_frame != NED or odometry.velocity_frame not in (NED, BODY_FRD):
            raise DriverError(
                f"{self._robot} sends its position in frame {odometry.pose_frame} and its velocity in frame "
                f"{odometry.velocity_frame}; expected NED (1) for both, or its body (3) for the velocity. "
                "Its estimator needs a heading."
            )
        quat, velocity = swap_attitude(np.asarray(odometry.q, float)), np.asarray(odometry.velocity, float)
        in_world = odometry.velocity_frame == NED
        world = swap_world(velocity) if in_world else rotation_of(quat) @ swap_body(velocity)
        armed = status.arming_state == ARMED
        return QuadState(
            odometry_s,
            swap_world(np.asarray(odometry.position, float)),
            quat,
            world,
            swap_body(np.asarray(odometry.angular_velocity, float)),
            armed=armed,
            flying=armed,
            controlled=armed and status.nav_state == NAV_OFFBOARD,
        )

    def write(self, command: Setpoint) -> Setpoint:
        topics = self._open()
        self._stream.check_open()
        sent = bounded_rates(command, self._limits, self._robot)
        state = self.read()
        offboard = self._is_offboard(topics)
        self._stream.check_mode(offboard)
        self._stream.motors.check(state.armed, motors_off(sent))
        now_s = time.monotonic()
        self._stream.on_setpoint(now_s, motors_off(sent))
        roll, pitch, yaw = swap_body(sent.rates_rad_s).tolist()
        thrust = np.array([0.0, 0.0, -sent.thrust], dtype=np.float32)  # down is positive
        topics.send("offboard_control_mode", body_rate=True)
        topics.send("vehicle_rates_setpoint", roll=roll, pitch=pitch, yaw=yaw, thrust_body=thrust)
        request = self._stream.next_request(now_s, offboard, state.armed, HINT)
        if request == "arm":
            self._send_command(topics, ARM, 1)
        elif request is not None:
            self._send_command(topics, SET_MODE, CUSTOM_MODE, *OFFBOARD)
        return sent

    def stop(self, reason: str) -> None:
        topics = self._topics
        if topics is None or self._stream.stopped or not self._stream.used:
            return
        self._stream.stopped = True
        # Before the next status, a request may have been accepted already.
        requested = self._stream.requests > 0 and not self._stream.was_offboard
        if not (self._is_offboard(topics) or requested):
            return  # a pilot or a failsafe controls the craft
        for _ in range(3):  # commands can be lost, so repeat until the craft is seen to obey
            if self._stream.off:
                self._send_command(topics, ARM, 0, IN_FLIGHT)
            else:
                self._send_command(topics, SET_MODE, CUSTOM_MODE, *LAND)
            deadline_s = time.monotonic() + ANSWER_S
            while time.monotonic() < deadline_s:
                if self._obeys(topics):
                    return
                time.sleep(0.005)

    def close(self) -> None:
        if self._topics is not None:
            self.stop("closed")
            self._topics.close()
        self._topics, self._stream = None, OffboardStream(self._robot, self._arm)

    def _open(self) -> Px4Topics:
        if self._topics is None:
            raise DriverError(f"{self._robot} is not connected. Call connect() first.")
        return self._topics

    def _is_offboard(self, topics: Px4Topics) -> bool:
        return topics.status is not None and topics.status[0].nav_state == NAV_OFFBOARD

    def _obeys(self, topics: Px4Topics) -> bool:
        """True when the craft lands, or has stopped its motors after a setpoint that switched them off."""
        if topics.status is None:
            return False
        status = topics.status[0]
        return status.arming_state != ARMED if self._stream.off else status.nav_state == NAV_LAND

    def _send_command(self, topics: Px4Topics, command: int, *values: float) -> None:
        parameters = {f"param{i}": float(value) for i, value in enumerate(values, 1)}
        topics.send(
            "vehicle_command", command=command, target_system=self._system, target_component=1,
            source_system=self._system, source_component=1, from_external=True, **parameters,
        )  # fmt: skip
