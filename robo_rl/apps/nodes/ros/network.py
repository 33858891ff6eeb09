"""Network on which nodes on rclpy discover others: programs of this machine, unless told otherwise."""

from __future__ import annotations

from collections.abc import Mapping

from robo_rl.core.errors import ConfigError

NETWORKS = ("loopback", "lan")
RANGE, HUMBLE = "ROS_AUTOMATIC_DISCOVERY_RANGE", "ROS_LOCALHOST_ONLY"  # Humble knows the second alone
# Variables by which a user has chosen the network already.
CHOSEN = (
    RANGE,
    HUMBLE,
    "ROS_STATIC_PEERS",
    "ROS_DISCOVERY_SERVER",
    "CYCLONEDDS_URI",
    "FASTRTPS_DEFAULT_PROFILES_FILE",
    "FASTDDS_DEFAULT_PROFILES_FILE",
    "ZENOH_SESSION_CONFIG_URI",
)


def network_variables(network: str, bus: str, environment: Mapping[str, str]) -> dict[str, str]:
    """Variables to add to the environment of the nodes; none where the user has set one of `CHOSEN`.

    network: of `NETWORKS`. Raises ConfigError for a network that bus=dds takes by its name.
    """
    if bus == "dds":
        if network != "loopback":
            raise ConfigError(
                f"network={network} is for nodes on rclpy. Nodes with bus=dds take the name of the network's "
                "interface: ROBO_RL_INTERFACE=eth0."
            )
        return {}
    if network == "lan" or any(environment.get(name) for name in CHOSEN):
        return {}
    return {HUMBLE: "1"} if environment.get("ROS_DISTRO") == "humble" else {RANGE: "LOCALHOST"}


def network_notice(variables: Mapping[str, str]) -> str:
    """Sentence on what the added variables do; empty where none was added."""
    if not variables:
        return ""
    ((name, value),) = variables.items()
    return (
        f"nodes discover programs of this machine alone ({name}={value}). If a node of this robot runs on "
        "another machine: network=lan."
    )
