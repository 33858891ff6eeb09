"""Nodes around the simulated quadcopter, by what the bundle commands."""

from __future__ import annotations

from hardware.bus.in_process import InProcessWorld
from hardware.checks.flight_contract import check_craft, commands_velocity
from policies.deploy.bundle import Bundle
from robo_rl.apps.nodes.run_robot import Cell
from robo_rl.conf.schema import RunConfig
from robo_rl.core.errors import ConfigError


def quad_cell(config: RunConfig, bundle: Bundle, world: InProcessWorld) -> Cell:
    """Cell of a bundle that seeks a ball by velocities, or hovers. Raises CheckpointError for others."""
    check_craft(bundle)
    if commands_velocity(bundle):
        from robo_rl.apps.nodes.quads.seek_cell import seek_cell

        return seek_cell(config, bundle, world)
    if config.remote:
        raise ConfigError("remote=<host>:<port> is for bundles of chunks; leave it out.")
    from robo_rl.apps.nodes.quads.hover_cell import hover_cell

    return hover_cell(config, bundle, world)
