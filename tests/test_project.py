"""Packaging, README and imports of the robot's part."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ET
import zipfile
from pathlib import Path

import pytest
from packaging.utils import canonicalize_name

from hardware.bus.ros.caller import TRIGGER
from hardware.bus.wire import WIRE
from robo_rl.apps.cli.aliases import by_engine
from robo_rl.apps.cli.config import load_config
from robo_rl.apps.cli.help import load_schema
from robo_rl.apps.cli.main import GROUPS
from robo_rl.apps.cli.multirun import expand_sweeps
from robo_rl.apps.cli.verbs import VERBS
from robo_rl.core.packages import PACKAGES
from tests.pins import declared, setup_cfg

ROOT = Path(__file__).resolve().parents[1]
PACKAGED = ("robo_rl", "policies", "sim", "hardware")
TEXT = {
    ".py",
    ".toml",
    ".cfg",
    ".md",
    ".yaml",
    ".yml",
    ".xml",
    ".lock",
    ".cff",
    ".j2",
    ".css",
    ".jsonl",
    ".json",
    "",
}


def tracked() -> list[Path]:
    """Files of the project: what git tracks or would track; all but build products where there is no git."""
    if (ROOT / ".git").exists() and shutil.which("git"):
        done = subprocess.run(
            ["git", "ls-files", "-co", "--exclude-standard"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        )
        return [ROOT / name for name in done.stdout.splitlines() if (ROOT / name).is_file()]
    made = {".venv", "runs", "data", "build", "dist"}
    files = ((path, path.relative_to(ROOT).parts) for path in ROOT.rglob("*") if path.is_file())
    return [path for path, parts in files if parts[0] not in made and "__pycache__" not in parts]


def test_one_version_everywhere() -> None:
    """pip, colcon and the citation state the same version."""
    version = setup_cfg()["metadata"]["version"]
    assert ET.parse(ROOT / "package.xml").findtext("version") == version
    assert f"\nversion: {version}\n" in (ROOT / "CITATION.cff").read_text()


def test_package_xml_fits_colcon() -> None:
    """An invalid e-mail makes colcon treat the project as plain Python, silently; launch/ must not be a
    package.
    """
    package = ET.parse(ROOT / "package.xml")
    maintainer = package.find("maintainer")
    assert maintainer is not None
    assert re.fullmatch(r"[\w.+-]+@[\w-]+(\.[\w-]+)*\.[a-z]{2,}", maintainer.attrib["email"])
    assert package.findtext("export/build_type") == "ament_python"
    depends = {item.text for item in package.findall("exec_depend")}
    packages = {row.ros_type.split("/")[0] for row in WIRE.values()} | {TRIGGER.split("/")[0]}
    ros = {"builtin_interfaces", "geometry_msgs", "rclpy", "launch", "launch_ros", "ament_index_python"}
    ros |= {"lifecycle_msgs", "rcl_interfaces"}
    assert packages | ros | {"python3-numpy", "python3-yaml"} == depends
    assert (ROOT / "resource" / "robo_rl").is_file()
    assert not (ROOT / "launch" / "__init__.py").exists()


def test_doctor_knows_every_dependency() -> None:
    """A package that an extra installs is in doctor's table, under the right extra."""
    wanted = declared()
    for package in PACKAGES:
        if package.distribution in ("omegaconf", "PyYAML"):  # come with hydra-core
            continue
        names = {canonicalize_name(requirement.name) for requirement in wanted[package.extra or "core"]}
        assert canonicalize_name(package.distribution) in names, package
    table = {canonicalize_name(package.distribution) for package in PACKAGES}
    for extra in ("core", "train", "sim", "robot"):
        assert {canonicalize_name(requirement.name) for requirement in wanted[extra]} <= table


def test_wheel_holds_code_and_data(tmp_path: Path) -> None:
    """What pip installs: four packages with py.typed, templates and groups, no tests; ROS 2's files under
    share/.
    """
    source = tmp_path / "source"
    for path in tracked():
        target = source / path.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, target)
    build = "import setuptools.build_meta as b, sys; b.build_wheel(sys.argv[1])"
    subprocess.run(
        [sys.executable, "-W", "ignore", "-c", build, str(tmp_path)],
        cwd=source,
        check=True,
        capture_output=True,
    )
    wheel = next(tmp_path.glob("robo_rl-*.whl"))
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {name.split("/")[0] for name in names if not name.split("/")[0].startswith("robo_rl-")} == set(
        PACKAGED
    )
    data = [
        path
        for path in tracked()
        if path.suffix not in (".py", ".pyc") and path.relative_to(ROOT).parts[0] in PACKAGED
    ]
    assert data
    assert {str(path.relative_to(ROOT)) for path in data} <= names
    assert {str(path.relative_to(ROOT)) for path in (ROOT / "robo_rl").rglob("*.py")} <= names
    assert any(name.endswith("data/share/ament_index/resource_index/packages/robo_rl") for name in names)
    assert any(name.endswith("data/share/robo_rl/package.xml") for name in names)
    for path in (ROOT / "launch").glob("*.launch.py"):
        assert any(name.endswith(f"data/share/robo_rl/launch/{path.name}") for name in names), path


def test_no_file_names_a_machine() -> None:
    """No path, index or address of a development machine."""
    forbidden = re.compile(
        "|".join(
            [
                "/ro" + "ot/",
                "/ho" + "me/\\w",
                "/wo" + "rk/",
                "/opt/" + "rr",
                "index" + "-url",
                "find" + "-links",
            ]
        )
    )
    found = [
        f"{path.relative_to(ROOT)}: {line.strip()[:100]}"
        for path in tracked()
        if path.suffix in TEXT
        for line in path.read_text(errors="ignore").splitlines()
        if forbidden.search(line)
    ]
    assert not found, "\n".join(found)


def test_config_files_are_short() -> None:
    """Hydra groups have at most 20 lines; a set of nodes has one for each argument and node."""
    for path in (ROOT / "robo_rl" / "conf").rglob("*.yaml"):
        assert len(path.read_text().splitlines()) <= (30 if path.parent.name == "node_sets" else 20), path


def readme_commands() -> list[list[str]]:
    blocks = re.findall(r"```bash\n(.*?)```", (ROOT / "README.md").read_text(), flags=re.DOTALL)
    lines = "\n".join(blocks).splitlines()
    return [line.split("#")[0].split()[1:] for line in lines if line.startswith("robo-rl ")]


@pytest.mark.parametrize("command", readme_commands(), ids=" ".join)
def test_readme_commands_are_valid(command: list[str]) -> None:
    """Every command of the tour has existing verbs and settings."""
    words = 2 if command[0] in GROUPS else 1
    name, overrides = by_engine(" ".join(command[:words]), command[words:])
    load_config(name, overrides, load_schema(VERBS[name]))


@pytest.mark.parametrize("name", list(VERBS))
def test_examples_of_verbs_are_valid(name: str) -> None:
    """The examples in `--help` are valid."""
    for example in VERBS[name].examples:
        overrides = [word for word in example.split()[1 + len(name.split()) :] if not word.startswith("--")]
        verb, given = by_engine(name, [word for word in overrides if word != "-m"])
        for words in expand_sweeps(verb, given) if "-m" in overrides else [given]:
            load_config(verb, words, load_schema(VERBS[verb]))


def test_the_architecture_page_shows_every_folder() -> None:
    """The folder table of docs/architecture.md is the file tree."""
    page = (ROOT / "docs" / "architecture.md").read_text()
    folders = {path.relative_to(ROOT).parts for path in tracked()}
    shown = {"/".join(parts[: 2 if parts[0] == "robo_rl" else 1]) for parts in folders if len(parts) > 1}
    for folder in sorted(shown):
        if not folder.startswith((".", "resource")) and "." not in folder:
            assert f"\n{folder} " in page, folder
