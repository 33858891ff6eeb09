"""`robo-rl info`: versions, and all names that settings accept."""

from __future__ import annotations

import json
from collections import defaultdict
from textwrap import fill
from typing import Any

from policies.base.process import PROCESSES
from policies.registry import POLICIES
from robo_rl.apps.cli.config import CONF
from robo_rl.apps.cli.help import page_width
from robo_rl.conf.schema import InfoConfig
from robo_rl.core.provenance import commit, machine, versions
from robo_rl.nets.registry import NETS
from sim.registry import list_envs, skilled

OWN_ENVIRONMENTS = (
    "gym/<module>:<id> for a Gymnasium environment that importing <module> registers "
    "(docs/own-robot-task-engine.md)"
)


def main(config: InfoConfig) -> int:
    """Print the facts, as text or JSON."""
    facts = gather()
    print(json.dumps(facts, indent=2) if config.json else text(facts))
    return 0


def gather() -> dict[str, Any]:
    """Versions and registered names."""
    return {
        "versions": versions(),
        "commit": commit(),
        "machine": machine(),
        "environments": list_envs(),
        "experts": skilled(),
        "processes": sorted(PROCESSES),
        "nets": sorted(NETS),
        "policies": sorted(POLICIES),
        "methods": sorted(path.stem for path in (CONF / "method").glob("*.yaml")),
    }


def text(facts: dict[str, Any]) -> str:
    """Names in columns, environments by suite."""
    suites: dict[str, list[str]] = defaultdict(list)
    for name in facts["environments"]:
        suite, task = name.split("/", 1)
        suites[suite].append(task)
    blocks = {f"environments {suite}/": tasks for suite, tasks in suites.items()}
    blocks["your own environments"] = [OWN_ENVIRONMENTS]
    blocks |= {"scripted experts for": facts["experts"]}
    blocks |= {key: facts[key] for key in ("processes", "nets", "policies", "methods") if facts[key]}
    blocks["versions"] = [f"{package} {version}" for package, version in facts["versions"].items()]
    blocks["commit"], blocks["machine"] = [facts["commit"]], [facts["machine"]]
    width = max(map(len, blocks)) + 2
    return "\n".join(
        fill(
            ", ".join(names),
            page_width(),
            initial_indent=f"{title:<{width}}",
            subsequent_indent=" " * width,
            break_on_hyphens=False,
        )
        for title, names in blocks.items()
    )
