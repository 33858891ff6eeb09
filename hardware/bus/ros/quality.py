"""Qualities of service as rclpy's profiles."""

from __future__ import annotations

from typing import Any

from hardware.bus.quality import Quality, RequestedQos


def offered(quality: Quality) -> Any:
    """Quality of service of a publisher, as rclpy's QoSProfile."""
    return qos_profile(RequestedQos(quality.offers_reliable, quality.latched), quality.depth)


def qos_profile(requested: RequestedQos, depth: int) -> Any:
    """Reliability and durability as rclpy's QoSProfile, keeping the last `depth` messages."""
    from rclpy.qos import DurabilityPolicy, HistoryPolicy, QoSProfile, ReliabilityPolicy

    return QoSProfile(
        history=HistoryPolicy.KEEP_LAST,
        depth=depth,
        reliability=ReliabilityPolicy.RELIABLE if requested.reliable else ReliabilityPolicy.BEST_EFFORT,
        durability=DurabilityPolicy.TRANSIENT_LOCAL if requested.latched else DurabilityPolicy.VOLATILE,
    )


def silent_events() -> Any:
    """Event callbacks of a subscription that do not log mismatched publishers."""
    try:
        from rclpy.event_handler import SubscriptionEventCallbacks
    except ImportError:  # ROS 2 Humble
        from rclpy.qos_event import SubscriptionEventCallbacks

    return SubscriptionEventCallbacks(use_default_callbacks=False)
