"""README.md of a repository on the Hub: contents, measured success, settings, usage."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from policies.checkpoint import read_policy_json
from policies.deploy.bundle import load_bundle
from robo_rl.apps.hub.contents import HubContents
from robo_rl.core.files.durable import read_json
from robo_rl.core.text.counts import counted
from robo_rl.data.info import dataset_info
from robo_rl.eval.stats import SuccessRate
from robo_rl.runs.loaded_policy import trained_env_spec
from robo_rl.runs.run_dir import RunDir
from robo_rl.runs.success_note import measured_elsewhere, read_success_note

_PLACES = (
    "out",
    "data",
    "base",
    "teacher",
    "demos",
    "init",
    "config",
)  # settings that are paths of this machine
_NAMED_PLACES = ("actuator", "backbone", "craft", "randomise", "robot", "track")  # a name, or a path
_RESULTS = {"policy": "policy", "head": "single-step head", "base": "base policy", "teacher": "teacher"}


def card(contents: HubContents, folder: Path, repo: str) -> str:
    """Text of the page for `folder`, beginning with the YAML that the Hub reads."""
    dataset = contents.kind == "dataset"
    name = repo.split("/")[-1]
    tags: dict[str, Any] = {"tags": ["robotics", "robo-rl", contents.kind]}
    if dataset:
        header, body = tags | {"task_categories": ["robotics"]}, _dataset(folder)
        use = [
            f"robo-rl pull kind=dataset repo={repo} out=data/{name}",
            f"robo-rl data info path=data/{name}",
        ]
    else:
        header, body = (
            {"library_name": "robo-rl", "pipeline_tag": "robotics"} | tags,
            _policy(contents.kind, folder),
        )
        verb = "run bundle" if contents.kind == "bundle" else "evaluate policy"
        use = [f"robo-rl pull repo={repo} out=runs/{name}", f"robo-rl {verb}=runs/{name}"]
    lines = ["---", yaml.safe_dump(header, sort_keys=False).strip(), "---", "", f"# {name}", "", *body]
    lines += ["", "## Use", "", "```bash", "pip install robo-rl", *use, "```", ""]
    return "\n".join(lines)


def _policy(kind: str, folder: Path) -> Iterator[str]:
    """Lines about a run, a policy or a bundle."""
    if kind == "bundle":
        bundle = load_bundle(folder)
        env, measured, settings = bundle.env.name, bundle.manifest["measured"], bundle.manifest["training"]
        rate_hz, facts = bundle.env.control_hz, f"`{bundle.manifest['name']}`, exported for deployment"
    else:
        policy = folder / "policy" if kind == "run" else folder
        noted = read_policy_json(policy)
        spec = trained_env_spec(policy)
        env, rate_hz = spec.name, spec.control_hz
        measured, facts = read_success_note(policy), f"policy of kind `{noted['kind']}`"
        settings = RunDir.open(folder).config() if kind == "run" else noted["train"]
    yield f"A robot policy trained with robo-rl: {facts}."
    yield ""
    yield f"- environment: `{env}`, {rate_hz:g} Hz"
    yield ""
    yield "## Measured success"
    yield ""
    yield from _success(measured, folder if kind == "run" else None, env)
    yield ""
    yield "## Settings"
    yield ""
    yield from _block(_without_places({key: value for key, value in settings.items() if key not in _PLACES}))


def _without_places(settings: Mapping[str, Any]) -> dict[str, Any]:
    """`settings` without `image.init`; of a folder or file, such as `policy.backbone=/models/SmolVLM2-500M`
    or `track=tracks/mine.yaml`, the name alone.
    """
    shown: dict[str, Any] = {}
    for key, value in settings.items():
        if key == "init":
            continue
        if isinstance(value, Mapping):
            shown[key] = _without_places(value)
        elif isinstance(value, str) and (key in _NAMED_PLACES or value.startswith(("/", "~", "."))):
            shown[key] = Path(value).name
        else:
            shown[key] = value
    return shown


def _success(measured: Mapping[str, Any] | None, run: Path | None, env: str) -> Iterator[str]:
    """A table with the number of successes k, episodes n and the 95 % Wilson interval; the mean return where
    the environment reports no success.

    env: name of the policy's environment. A measurement in another one, or with another step limit, says so.
    """
    rows, elsewhere = [], ""
    if measured is not None and "mean_return" in measured:
        episodes = counted(measured["n"], "episode")
        where = measured.get("env") or "the task"
        total = measured["mean_return"]
        mean = "not finite" if total is None else f"{total:.4g}"
        yield f"Mean return {mean} in {episodes} of {where}, which reports no success."
        return
    if measured is not None:
        rows.append(("policy", SuccessRate(measured["k"], measured["n"]), str(measured.get("env", ""))))
    elif run is not None and (run / "results.json").is_file():
        found = read_json(run / "results.json")
        found = found if isinstance(found, dict) else {}
        elsewhere = measured_elsewhere(found, env)
        for key, label in _RESULTS.items():
            entry = found.get(key)
            if isinstance(entry, dict) and entry.get("rate") and entry.get("reports_success", True):
                where = elsewhere or str(found.get("env", ""))
                rows.append((label, SuccessRate(entry["rate"]["k"], entry["rate"]["n"]), where))
    if not rows:
        yield "Not measured."
        return
    if elsewhere:
        yield f"Not measured on `{env}` itself, but on {elsewhere}:"
        yield ""
    yield "| what | success | k | n | 95 % interval | episodes of |"
    yield "| --- | --- | --- | --- | --- | --- |"
    for label, rate, where in rows:
        low, high = rate.wilson()
        wilson95 = f"[{low:.3f}, {high:.3f}]"
        yield f"| {label} | {rate.rate:.3f} | {rate.k} | {rate.n} | {wilson95} | {where or 'not recorded'} |"


def _dataset(folder: Path) -> Iterator[str]:
    """Lines about a dataset."""
    found = dataset_info(folder)
    labelled = f"{found['successes']} successes of {found['labelled']} labelled episodes"
    size = f"{counted(found['episodes'], 'episode')}, {counted(found['frames'], 'frame')}"
    yield "A dataset of robot episodes, recorded with robo-rl."
    yield ""
    yield f"- environment or robot: `{found['env']}`, {found['control_hz']:g} Hz"
    yield f"- {size}, {found['seconds']:.0f} s"
    yield f"- {labelled}"
    yield ""
    yield "| key | type | shape | unit |"
    yield "| --- | --- | --- | --- |"
    for key, spec in found["obs"].items():
        yield f"| `{key}` | {spec['dtype']} | {spec['shape']} | {spec['unit']} |"
    yield f"| `action` | float32 | [{found['action']['dim']}] | {found['action']['unit']} |"
    if found["info"]:
        yield ""
        yield from _block(found["info"])


def _block(settings: Mapping[str, Any]) -> Iterator[str]:
    yield "```yaml"
    yield yaml.safe_dump(dict(settings), sort_keys=False).strip()
    yield "```"
