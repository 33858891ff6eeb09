"""LeRobot datasets of version 2.0 and 2.1, as most of the Hub: the same episodes as in version 3."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
import yaml

from robo_rl.apps.cli.main import main
from robo_rl.core.errors import DataError
from robo_rl.core.spec import ArraySpec
from robo_rl.data.formats.lerobot.reader import describe_lerobot, import_lerobot
from robo_rl.data.formats.lerobot.writer import export_lerobot
from robo_rl.data.store import EpisodeStore
from tests.data.formats.differences import VIDEO_ERROR, errors
from tests.data.formats.lerobot_v2 import write_v2
from tests.data.recordings import ENV, STATE_ENV, record

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

TABLE = "data/chunk-000/episode_000001.parquet"
MP4 = "videos/chunk-000/observation.images.front/episode_000001.mp4"
LIST = "meta/episodes.jsonl"


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return record(tmp_path_factory.mktemp("recorded") / "set", [6, 5, 4])


@pytest.fixture(scope="module")
def written(recorded: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_v2(recorded, tmp_path_factory.mktemp("v2") / "plain")


@pytest.fixture
def v2(written: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(written, tmp_path / "plain"))


def _v3(dataset: Path, out: Path, *, video: bool = True) -> Path:
    """The dataset as another program would have written it in version 3."""
    export_lerobot(dataset, out, video=video)
    for name in ("robo_rl.json", "robo_rl_final.parquet"):
        (out / "meta" / name).unlink(missing_ok=True)
    return out


def _differences(one: Path, other: Path, tolerance: int = 0) -> list[str]:
    """As `errors`; of the labels those that LeRobot keeps, as the others hold the time of the import."""
    labels = [
        [(each.success, each.meta.task, each.meta.complete) for each in EpisodeStore(path)]
        for path in (one, other)
    ]
    found = [each for each in errors(one, other, tolerance) if not each.endswith(": labels")]
    return found + ["labels"] * (labels[0] != labels[1])


@pytest.mark.parametrize("pictures", ["video", "image"])
@pytest.mark.parametrize("version", ["v2.0", "v2.1"])
def test_version_2_imports_the_episodes_of_version_3(
    version: str, pictures: str, recorded: Path, tmp_path: Path
) -> None:
    """Rate, contract, values, instructions, labels and notes are the same; images in MP4 within its error."""
    _v3(recorded, tmp_path / "v3/plain", video=pictures == "video")
    write_v2(recorded, tmp_path / "v2/plain", version, pictures=pictures)
    notes: dict[str, list[str]] = {"v2": [], "v3": []}
    for name, said in notes.items():
        assert import_lerobot(tmp_path / name / "plain", tmp_path / name / "out", notes=said) == 3
    tolerance = 2 * VIDEO_ERROR if pictures == "video" else 0
    assert _differences(tmp_path / "v3/out", tmp_path / "v2/out", tolerance) == []
    assert notes["v2"] == notes["v3"]
    one, other = (describe_lerobot(tmp_path / name / "plain") for name in notes)
    assert (one.obs, one.rate_hz, one.longest) == (other.obs, other.rate_hz, other.longest)


def test_an_export_in_version_2_is_still_exact(recorded: Path, tmp_path: Path) -> None:
    """A program that writes an export in version 2 keeps the files that LeRobot ignores."""
    export_lerobot(recorded, tmp_path / "v3", video=False)
    v2 = write_v2(recorded, tmp_path / "v2", pictures="image")
    for name in ("robo_rl.json", "robo_rl_final.parquet"):
        shutil.copy(tmp_path / "v3/meta" / name, v2 / "meta" / name)
    import_lerobot(v2, tmp_path / "out")
    assert errors(recorded, tmp_path / "out") == []


def test_with_a_robot_as_version_3(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Names put the numbers in the order of the description; another rate is refused; the report names the
    version.
    """
    named = {"state": ArraySpec((3,), "float32", "rad: base, elbow; m: x")}
    env = replace(STATE_ENV, obs=named, action=replace(STATE_ENV.action, unit="rad: base, elbow"))
    dataset = record(tmp_path / "set", [4, 3], env=env)
    joint = {"low_rad": -2.0, "high_rad": 2.0, "velocity_rad_s": 2.0, "acceleration_rad_s2": 20.0}
    body = {"name": "mine", "command_hz": 50, "state_hz": 100}
    joints = [{"name": name, **joint} for name in ("elbow", "base")]
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump({**body, "joints": joints}))
    sources = {"v2.1": write_v2(dataset, tmp_path / "v2.1"), "v3.0": _v3(dataset, tmp_path / "v3.0")}
    said = {}
    for version, source in sources.items():
        words = ["data", "import", f"source={source}", f"robot={tmp_path / 'mine.yaml'}", "goal=m: x"]
        out = f"out={tmp_path / version / 'out'}"
        assert main([*words, out, "rate_hz=30"]) == 2
        assert "states 20 Hz, and its frames are imported one by one" in capsys.readouterr().err
        assert main([*words, out, "rate_hz=20", "task=push"]) == 0
        said[version] = capsys.readouterr().out.replace(version, "")
        assert f"(LeRobotDataset {version})" not in said[version]
    assert said["v2.1"] == said["v3.0"]
    assert "'action' were put in the order of robot/mine" in said["v2.1"]
    assert _differences(tmp_path / "v3.0/out", tmp_path / "v2.1/out") == []
    episode = EpisodeStore(tmp_path / "v2.1/out").episode(1)
    assert episode.meta.task == "push"
    np.testing.assert_array_equal(episode.action, EpisodeStore(dataset).episode(1).action[:, ::-1])


def test_numbers_of_episodes_may_have_gaps_and_paths_other_names(recorded: Path, tmp_path: Path) -> None:
    """The folder of an episode follows from its number, the file from the pattern of info.json."""
    paths = ("tables/{episode_index:04d}.parquet", "films/{episode_chunk}/{video_key}-{episode_index}.mp4")
    write_v2(recorded, tmp_path / "usual")
    write_v2(recorded, tmp_path / "other/usual", paths=paths, numbers=(0, 3, 11))
    assert (tmp_path / "other/usual/films/5/observation.images.front-11.mp4").is_file()
    import_lerobot(tmp_path / "usual", tmp_path / "a")
    import_lerobot(tmp_path / "other/usual", tmp_path / "b")
    assert _differences(tmp_path / "a", tmp_path / "b") == []


def test_instructions_of_the_rows_are_read_where_the_list_has_none(v2: Path, tmp_path: Path) -> None:
    entries = [json.loads(line) for line in (v2 / LIST).read_text().splitlines()]
    for entry in entries:
        del entry["tasks"]
    (v2 / LIST).write_text("\n".join(map(json.dumps, reversed(entries))))
    import_lerobot(v2, tmp_path / "out")
    found = [episode.meta.task for episode in EpisodeStore(tmp_path / "out")]
    assert found == ["task 0", "task 1", "task 0"]
    (v2 / "meta/tasks.jsonl").unlink()
    import_lerobot(v2, tmp_path / "without")
    assert [episode.meta.task for episode in EpisodeStore(tmp_path / "without")] == ["", "", ""]


def test_a_table_without_numbers_of_frames_is_read(v2: Path, tmp_path: Path) -> None:
    """GR00T's datasets have none; the table holds one episode anyway."""
    for path in v2.glob("data/*/*.parquet"):
        pq.write_table(pq.read_table(path).drop_columns(["frame_index", "index"]), path)
    assert import_lerobot(v2, tmp_path / "out") == 3


@pytest.mark.parametrize("version", [2, 3])
def test_other_totals_than_those_listed_are_said(
    version: int, v2: Path, recorded: Path, tmp_path: Path
) -> None:
    """A list that lost its end would lose episodes without a message."""
    source = v2 if version == 2 else _v3(recorded, tmp_path / "v3")
    _edit(source / "meta/info.json", lambda info: info.update(total_episodes=5, total_frames=99))
    notes: list[str] = []
    assert import_lerobot(source, tmp_path / "out", notes=notes) == 3
    said = "meta/info.json states 5 episodes of 99 frames in all, but 3 episodes of 15 frames are listed: "
    assert [note for note in notes if note.startswith(said)] != []


def test_videos_with_more_images_than_rows_are_said(
    v2: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The format permits them: the image of a row is found by its time. Episode 2 has 4 rows, 1 has 5."""
    last = v2 / MP4.replace("000/", "001/").replace("01.mp4", "02.mp4")
    shutil.copy(v2 / MP4, last)
    assert main(["data", "import", f"source={v2}", f"out={tmp_path / 'out'}"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert f"1 video has more images than the episode has rows, such as {last.relative_to(v2)} with 5" in said
    assert "for 4. Those after the last row were left out" in said
    frames = [EpisodeStore(tmp_path / "out").episode(i).obs("image.front") for i in (1, 2)]
    np.testing.assert_array_equal(frames[0][:4], frames[1][:4])


def _edit(path: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    data = json.loads(path.read_text())
    change(data)
    path.write_text(json.dumps(data))


def _cut(name: str) -> Callable[[Path], Any]:
    return lambda root: os.truncate(root / name, (root / name).stat().st_size // 2)


def _index_first(video: Path) -> None:
    """Put the index of an MP4 file before the images, as for streaming."""
    moved = video.with_name("moved.mp4")
    with av.open(str(video)) as given, av.open(str(moved), "w", options={"movflags": "faststart"}) as file:
        stream = file.add_stream_from_template(given.streams.video[0])
        for packet in given.demux(video=0):
            if packet.dts is not None:
                packet.stream = stream
                file.mux(packet)
    moved.replace(video)


def _lines(change: Callable[[list[str]], list[str]]) -> Callable[[Path], Any]:
    def damage(root: Path) -> None:
        (root / LIST).write_text("\n".join(change((root / LIST).read_text().splitlines())))

    return damage


def _rows(change: Callable[[Any], Any]) -> Callable[[Path], Any]:
    return lambda root: pq.write_table(change(pq.read_table(root / TABLE)), root / TABLE)


DAMAGE: dict[str, tuple[str, Callable[[Path], Any]]] = {
    "no table": ("episode_000001.parquet is missing", lambda root: (root / TABLE).unlink()),
    "cut table": ("episode_000001.parquet cannot be read", _cut(TABLE)),
    "no video": (r"episode_000001.mp4 is missing\. Copy", lambda root: (root / MP4).unlink()),
    "cut video": (r"episode_000001.mp4 is no complete MP4 video: it was cut off, .*\. Copy", _cut(MP4)),
    "cut images": (
        r"episode_000001.mp4 is damaged or was cut off: frame \d cannot be read\. Copy",
        lambda root: (_index_first(root / MP4), _cut(MP4)(root)),
    ),
    "video of another": (
        "episode_000001.mp4 has no image of shape .* for frame 4",
        lambda root: shutil.copy(root / MP4.replace("000/", "001/").replace("01.mp4", "02.mp4"), root / MP4),
    ),
    "no list": ("meta/episodes.jsonl is missing", lambda root: (root / LIST).unlink()),
    "no info": ("info.json is not valid JSON", lambda root: (root / "meta/info.json").write_text("{")),
    "cut list": ("episodes.jsonl, line 3, is broken", _lines(lambda rows: [*rows[:2], rows[2][:9]])),
    "empty list": ("lists no episodes in meta/episodes.jsonl", _lines(lambda _: [])),
    "bytes": ("episodes.jsonl is broken", lambda root: (root / LIST).write_bytes(b"\xff\xfe\n")),
    "no object": ("line 1, is broken .expected an object", _lines(lambda rows: ["[1]", *rows])),
    "deep": ("line 1, is broken", _lines(lambda rows: ["[" * 10**5, *rows])),
    "no length": ("is broken .KeyError", _lines(lambda rows: ['{"episode_index": 0}', *rows[1:]])),
    "negative": ("is broken", _lines(lambda rows: ['{"episode_index": -1, "length": 6}', *rows[1:]])),
    "text": ("is broken", _lines(lambda rows: ['{"episode_index": "../../0", "length": 6}', *rows])),
    "length": (
        "Episode 0 of .* has 1000000 frames by its list, and 6 in its table",
        _lines(lambda rows: [rows[0].replace('"length": 6', '"length": 1000000'), *rows[1:]]),
    ),
    "more rows": ("has 5 frames by its list, and 10 in", _rows(lambda t: pa.concat_tables([t, t]))),
    "other rows": ("rows 0 to 4 are not in its table", _rows(lambda t: pa.concat_tables([t[2:], t[:2]]))),
    "no action": ("lacks one of the columns action", _rows(lambda t: t.drop_columns(["action"]))),
    "tasks": ("tasks.jsonl is broken", lambda root: (root / "meta/tasks.jsonl").write_text("{}")),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_damage_ends_in_one_sentence(
    damage: str, v2: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """No empty progress bar comes before it."""
    words, change = DAMAGE[damage]
    change(v2)
    assert main(["data", "import", f"source={v2}", f"out={tmp_path / 'out'}"]) == 2
    err = capsys.readouterr().err
    assert re.search(words, err)
    assert "import: 0episode" not in err
    assert not (tmp_path / "out").exists()


def test_a_missing_column_of_actions_is_said_with_a_given_contract(v2: Path, tmp_path: Path) -> None:
    _rows(lambda table: table.drop_columns(["action"]))(v2)
    with pytest.raises(DataError, match=r"Episode 1 of .* has no column 'action'"):
        import_lerobot(v2, tmp_path / "out", env=ENV)


OUTSIDE = [
    "../{episode_index}",
    "data/../../x/{episode_index:06d}.parquet",
    "/etc/{episode_index}",
    "C:/{episode_index}",
    "..\\{episode_index}",
    "data/{episode_index.__class__}",
    "data/{episode_index!r}",
    "data/{episode_index:09999999999d}",
    "data/{0}/{episode_index}",
    "data/{{episode_index}}",
    "data/{episode_{video_key}index}",
    "data/file.parquet",
    "data/{episode_index}\0",
    7,
    ["data/{episode_index}"],
]


@pytest.mark.parametrize("field", ["data_path", "video_path"])
@pytest.mark.parametrize("pattern", OUTSIDE)
def test_no_path_leads_out_of_the_dataset(
    field: str, pattern: Any, v2: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor does a pattern read attributes, fill the memory, or name one file for two episodes. No file is
    opened.
    """
    if field == "video_path" and isinstance(pattern, str):
        pattern = pattern + "/{video_key}"
    _edit(v2 / "meta/info.json", lambda info: info.update({field: pattern}))
    monkeypatch.setattr(pq, "read_table", lambda *_, **__: pytest.fail("a table was opened"))
    with pytest.raises(DataError, match="names files as"):
        import_lerobot(v2, tmp_path / "out")


@pytest.mark.parametrize(
    "change",
    [
        {"video_path": "videos/{episode_index}.mp4"},
        {"data_path": "{video_key}/{episode_index}"},
        {"data_path": ""},
    ],
)
def test_a_pattern_has_the_fields_of_its_files(change: dict[str, str], v2: Path, tmp_path: Path) -> None:
    """Two cameras would show one video."""
    _edit(v2 / "meta/info.json", lambda info: info.update(change))
    with pytest.raises(DataError, match="names files as"):
        import_lerobot(v2, tmp_path / "out")


@pytest.mark.parametrize("version", ["v1.6", "v2.2", "v20", "2.1", "v4.0", None, 2.1, ["v2.1"]])
def test_other_versions_are_refused_with_those_that_are_read(version: Any, v2: Path, tmp_path: Path) -> None:
    _edit(v2 / "meta/info.json", lambda info: info.update(codebase_version=version))
    with pytest.raises(DataError, match=r"v2\.0, v2\.1 or v3\.0 was expected") as refused:
        import_lerobot(v2, tmp_path / "out")
    assert repr(version) in str(refused.value)


@pytest.mark.parametrize("size", [0, -3, "many"])
def test_a_wrong_number_of_episodes_in_a_folder_is_refused(size: Any, v2: Path, tmp_path: Path) -> None:
    _edit(v2 / "meta/info.json", lambda info: info.update(chunks_size=size))
    assert main(["data", "import", f"source={v2}", f"out={tmp_path / 'out'}"]) == 2
