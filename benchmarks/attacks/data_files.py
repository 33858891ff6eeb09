"""Attack of the readers of datasets and replay buffers by files that lie.

Each try changes one thing in a good dataset or zarr v2 buffer, and runs a verb on it in a child process with
little memory and time. Allowed is a result, or one sentence and exit code 2. A payload that runs code leaves
a mark.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import pickle
import random
import resource
import shutil
import signal
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
import zarr

from robo_rl.apps.cli.main import main as robo_rl
from robo_rl.core.spec import ActionSpec, ArraySpec, EnvSpec
from robo_rl.data.store import DatasetWriter

ENV = EnvSpec("benchmark/files", {"state": ArraySpec((2,))}, ActionSpec((-1.0,) * 2, (1.0,) * 2), 10, 10.0)
MEMORY_BYTES, CPU_S, WALL_S = 8 << 30, 20, 60.0
DIGITS = "9" * 6000
DEEP = "[" * 200 + "]" * 200
HOSTILE: tuple[Any, ...] = (
    None, True, -1, 0, 10**12, 2**63, 1e308, float("nan"), float("inf"), "", "O", "|O", "|O8", "object",
    "<U9",
    "../../canary", "/etc/passwd", "a" * 100_000, "\0", [], [-1], [10**9, 10**9], [[1]], {}, {"id": "pickle"},
    [{"id": "vlen-utf8"}, {"id": "pickle", "protocol": 5}], [{"name": "numcodecs.pickle"}],
    "zarr.codecs.pickle",
)  # fmt: skip
Change = Callable[[Path, random.Random], str]


class Payload:
    """Runs code where it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self._mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (f"touch {self._mark}",)


def leaves(tree: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Paths of all values in a JSON tree, inner nodes included."""
    found = [path] if path else []
    items = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    return found + [deeper for key, value in items for deeper in leaves(value, (*path, key))]


def change_json(file: Path, rng: random.Random) -> str:
    """Replace, delete or add one value; or damage the text itself."""
    text = file.read_text()
    how = rng.randrange(10)
    if how == 0:
        file.write_text(
            rng.choice([DEEP, "", "null", "[]", "{", '"text"', text[: len(text) // 2], "\x00" * 50])
        )
        return "other text"
    tree = json.loads(text)
    if not (paths := leaves(tree)):
        tree, paths = {"zarr_format": 2}, [("zarr_format",)]
    path = rng.choice(paths)
    node = tree
    for key in path[:-1]:
        node = node[key]
    if how == 1 and isinstance(node, dict):
        del node[path[-1]]
        file.write_text(json.dumps(tree))
        return f"without {path}"
    if how == 2:
        node[path[-1]] = "@@"
        file.write_text(json.dumps(tree).replace('"@@"', rng.choice([DIGITS, DEEP, f"-{DIGITS}", "1e999"])))
        return f"{path} is a long number or deep"
    node[path[-1]] = value = rng.choice(HOSTILE)
    file.write_text(json.dumps(tree))
    return f"{path} = {str(value)[:40]!r}"


def change_bytes(file: Path, rng: random.Random) -> str:
    """Flip, cut, extend or empty the file; or put a link or a folder in its place."""
    data, how = bytearray(file.read_bytes()), rng.randrange(6)
    if how < 2 and data:
        for _ in range(rng.randint(1, 4)):
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    elif how == 2:
        del data[rng.randrange(len(data) + 1) :]
    elif how == 3:
        data += rng.randbytes(rng.randint(1, 300))
    else:
        file.unlink()
        if how == 4:
            file.symlink_to(rng.choice(["/etc/passwd", "/dev/zero", "/", file.name, "../../../canary"]))
        else:
            file.mkdir()
        return f"{file.name}: {'a link' if how == 4 else 'a folder'}"
    file.write_bytes(bytes(data))
    return f"{file.name}: other bytes"


def change(root: Path, mark: Path, rng: random.Random) -> str:
    """Change one file below `root`; says what was done."""
    files = sorted(path for path in root.rglob("*") if path.is_file() and "lock" not in path.name)
    file = rng.choice(files)
    is_json = file.suffix == ".json" or file.name.startswith(".z")
    if is_json and rng.random() < 0.85:
        return f"{file.relative_to(root)}: {change_json(file, rng)}"
    if not is_json and rng.random() < 0.3:
        file.write_bytes(pickle.dumps(np.array([Payload(mark)], dtype=object)))
        metadata = next(iter(sorted(file.parent.glob(".zarray")) or sorted(file.parent.rglob("zarr.json"))))
        return f"{file.relative_to(root)} is a pickle; {change_json(metadata, rng)}"
    return f"{file.relative_to(root)}: {change_bytes(file, rng)}"


def make_dataset(path: Path, first_seed: int = 0) -> None:
    writer = DatasetWriter.create(path, ENV, min_free_bytes=0)
    for seed in range(first_seed, first_seed + 2):
        with writer.episode(seed=seed) as episode:
            for row in range(4):
                values = np.array([seed + 0.1 * row, -0.2 * row], np.float32)
                episode.add({"state": values}, values / 4)
            episode.commit(success=True)
    writer.close()


def make_buffer(path: Path) -> None:
    """A Push-T buffer of zarr v2: the format of Diffusion Policy."""
    group = zarr.open_group(path, mode="w", zarr_format=2)
    for name, width in (("state", 5), ("action", 2), ("keypoint", 18)):
        values = np.full((8, width) if name != "keypoint" else (8, 9, 2), 100.0, np.float32)
        group.create_array(f"data/{name}", data=values, chunks=(4, *values.shape[1:]))
    group.create_array("meta/episode_ends", data=np.array([4, 8], np.int64))


def info(path: Path) -> list[str]:
    return ["data", "info", f"path={path}"]


def validate(path: Path) -> list[str]:
    return ["data", "validate", f"path={path}"]


def merge(path: Path) -> list[str]:
    return ["data", "merge", f"sources=[{path},{path.parent / 'good'}]", f"out={path.parent / 'out'}"]


def train(path: Path) -> list[str]:
    small = ["steps=2", "chunk=2", "execute=2", "num_workers=0"]
    return ["train", f"data={path}", f"out={path.parent / 'run'}", *small]


def import_(path: Path) -> list[str]:
    return ["data", "import", f"source={path}", "env=pusht/state", f"out={path.parent / 'out'}"]


# The words of a verb, and what it reads.
VERBS: tuple[tuple[Callable[[Path], list[str]], Callable[[Path], None]], ...] = (
    (info, make_dataset),
    (validate, make_dataset),
    (merge, make_dataset),
    (train, make_dataset),
    (import_, make_buffer),
)


def make_good(path: Path) -> None:
    """What a changed dataset is merged with."""
    make_dataset(path, 2)


def run(words: list[str], report: Path) -> str:
    """How the verb ended in a child: "" if in order, else what went wrong."""
    if (pid := os.fork()) == 0:
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
        resource.setrlimit(resource.RLIMIT_CPU, (CPU_S, CPU_S))
        out = io.StringIO()
        try:
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
                code = robo_rl(words)
        except BaseException as error:
            code = 99
            out.write(repr(error))
        report.write_text(out.getvalue())
        os._exit(code)
    end_s = time.monotonic() + WALL_S
    while (ended := os.waitpid(pid, os.WNOHANG))[0] == 0:
        if time.monotonic() > end_s:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            return "the verb hangs"
        time.sleep(0.005)
    code = os.waitstatus_to_exitcode(ended[1])
    if code < 0:
        return f"the verb dies by {signal.Signals(-code).name}"
    if code in (0, 2):
        return ""
    if code == 1 and "fault" in report.read_text().lower() and words[1] == "validate":
        return ""
    return f"the verb ends with {code}"


def load_verbs(home: Path) -> None:
    """Run every verb on good files in this process, so that the children find its modules loaded."""
    torch.set_num_threads(1)  # a pool of threads does not survive a fork
    for words, make in VERBS:
        root = home / words.__name__
        shutil.copytree(home / make.__name__, root / "bad")
        shutil.copytree(home / make_good.__name__, root / "good")
        out = io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
            code = robo_rl(words(root / "bad"))
        assert code == 0, f"{words.__name__} of good files ends with {code}: {out.getvalue()}"


def attack(tries: int, seed: int) -> tuple[int, Counter[str], str]:
    """Change one thing and run one verb, `tries` times."""
    rng, counts, example = random.Random(seed), Counter[str](), ""
    with TemporaryDirectory(prefix="robo-rl-files-") as name:
        home = Path(name)
        for make in (make_dataset, make_good, make_buffer):
            make(home / make.__name__)
        load_verbs(home)
        for number in range(tries):
            words, make = rng.choice(VERBS)
            root = home / "try"
            shutil.copytree(home / make.__name__, root / "bad")
            if words is merge:
                shutil.copytree(home / make_good.__name__, root / "good")
            mark, report = root / "canary", root / "report"
            done = change(root / "bad", mark, rng)
            found = run(words(root / "bad"), report)
            if mark.exists():
                found = "a file runs code"
            if found:
                counts[f"{words.__name__}: {found}"] += 1
                said = report.read_text().strip().splitlines()[-1:] if report.exists() else []
                example = example or f"number {number}, {words.__name__}, {done}: {found} {said}"
            shutil.rmtree(root)
    return tries, counts, example
