"""Attack of the running recorder node by SIGKILL, SIGTERM and full disks, over DDS on the loopback.

This process publishes states, commands and pictures without a pause, and asks for episodes by services and by
`episode/ask`. After each end the next recorder starts in the same folder, which `recorder_oracle` reads.
"""

from __future__ import annotations

import errno
import os
import random
import shutil
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

from common import emit

from attacks.recorder_oracle import NEVER, Told, Violation, violations
from attacks.recorder_sides import Recorder, Sender
from attacks.store import small_disk
from hardware import messages as m
from hardware import topics as t
from hardware.bus.dds.bus import DdsBus
from robo_rl.core.errors import BusError
from tests.hardware.domains import free_domain

START_S, ANSWER_S, END_S = 30.0, 10.0, 15.0  # longest times; beyond them the recorder hangs
SETTLE_S = 0.5  # for the discovery between the two processes
# Half of the episodes end in silence. A signal comes beside the bus, so an episode that it ends may lack the
# last messages; a request comes after what was sent before it.
QUIET_S, TAIL = 0.3, 30
PAUSE_S, PAUSED = 4.0, 1 / 4  # the longest time for which a recorder gets no CPU, and in how many episodes
STATUS_S = 3.0  # in which an answer comes on the topic as well
SALVAGE_S = 0.1  # in which a recorder salvages
LOST_S = 1.0  # SAFETY.md: a killed recorder loses the last second at most
FOLDER_TRIES = 20  # a new folder after these, so that reading it all stays quick
DISK_KIB, DISKS_PER_KILL = 64 * 1024, 1 / 3
ENDS = (  # in turn; something is salvaged after recording, committing and discarding
    "recording", "salvaging", "committing", "salvaging", "starting", "beginning", "discarding", "SIGTERM"
)  # fmt: skip
# instant -> bytes that are left of the disk at most
FULL = {"starting": 400_000, "beginning": 120_000, "recording": 400_000, "committing": 100_000}
# what is counted -> its unit
UNITS = {
    "kills": "kills",
    "sigterms": "signals",
    "full_disks": "disks",
    "pauses": "pauses",
    "reported": "episodes",
    "saved": "episodes",
    "salvaged": "episodes",
}
SAVES = ("stop", "success", "failure")
ANSWERS = {
    "start": ("recording episode", "cannot record"),
    "discard": ("discarded", "nothing is"),
} | dict.fromkeys(SAVES, ("saved", "broke off", "nothing is", "is empty"))


class Attack:
    """Lives of recorders in one folder after the other."""

    def __init__(self, sender: Sender, domain: int, rng: random.Random) -> None:
        self.sender, self.domain, self.rng = sender, domain, rng
        self.done, self.lost_s = Counter[str](), 0.0
        self.found, self.example = Counter[str](), ""
        self.recorder: Recorder | None = None
        self.way = ""  # in which the recorder is attacked
        self.answer = ""  # to the last request for a start
        self.start_s = 1.0  # time that a start took

    def open(self, folder: Path, log: Path) -> None:
        """Go on in a new folder."""
        self.folder, self.log = folder, log
        self.episodes, self.judged, self.known = list[Told](), set[int](), set[Violation]()

    def violation(self, kind: str, detail: object = "") -> None:
        self.found[kind] += 1
        sentence = f"{kind}: {detail} (recorder {self.done['recorders']}, {self.way})"
        print(sentence, file=sys.stderr)
        self.example = self.example or sentence

    # --- one recorder

    def launch(self) -> Recorder:
        self.done["recorders"] += 1
        self.sender.answers.clear()
        self.recorder = Recorder(self.folder, self.log, self.domain)
        return self.recorder

    def close(self) -> None:
        """End a recorder that an error of the attack left: it would answer the next one's requests."""
        if self.recorder is not None:
            self.recorder.kill()

    def start(self) -> Recorder | None:
        """A recorder that is idle in the folder, whose recordings are then judged. None where it does not
        start.
        """
        begin_s, recorder = time.monotonic(), self.launch()
        self.sender.spin(START_S, lambda: self.sender.heard("idle") or recorder.ended())
        if not self.sender.heard("idle"):
            self.violation("the next recorder does not start", recorder.said()[-300:])
            recorder.kill()
            return None
        self.start_s = time.monotonic() - begin_s
        self.judge()
        self.sender.spin(SETTLE_S)
        return recorder

    def judge(self) -> None:
        """Compare the folder with what was sent; count what was salvaged, and the most that a kill lost."""
        found, kept = violations(self.folder, self.episodes)
        for broken in found:
            if broken not in self.known:  # the folder is judged again at every start
                self.violation(broken.kind, f"{broken.recording} {broken.detail}".strip())
        self.known.update(found)
        self.done["reported"] += sum(
            content.losses > 0 for i, content in kept.items() if i not in self.judged
        )
        self.done["salvaged"] += sum(not self.episodes[i].saved for i in kept if i not in self.judged)
        for i, told in enumerate(self.episodes):
            if told.killed_s is not None and told.due_first < self.sender.next and i not in self.judged:
                last = max(map(max, filter(None, kept[i].numbers.values()))) if i in kept else told.due_first
                self.lost_s = max(self.lost_s, told.killed_s - self.sender.sent_s[last])
        self.judged = set(range(len(self.episodes)))

    def check_log(self, recorder: Recorder) -> None:
        if any(word in recorder.said() for word in ("Traceback", "Exception ignored", "Fatal")):
            self.violation("the recorder has an internal error", recorder.said()[-500:])

    def request(self, word: str) -> str:
        """The recorder's answer to a request by service or topic; empty without one."""
        self.sender.answers.clear()
        if self.rng.random() < 0.5:
            try:
                answer = self.sender.bus.call(f"recorder/{word}", ANSWER_S)[1]
                self.sender.spin(
                    STATUS_S, lambda: self.sender.heard(answer)
                )  # or it looks like the next answer
                return answer
            except BusError as error:
                self.violation(f"no answer to {word} as a service", error)
                return ""
        self.sender.ask(m.Text(word))
        if not self.sender.spin(ANSWER_S, lambda: self.sender.heard(*ANSWERS[word])):
            self.violation(f"no answer to {word} on {t.RECORDER_REQUEST.name}")
        answers = [text for text in self.sender.answers if any(known in text for known in ANSWERS[word])]
        return answers[-1] if answers else ""

    def begin(self) -> Told | None:
        """Begin an episode; None where the recorder says that it cannot."""
        told = Told(self.sender.next)
        self.episodes.append(told)
        self.answer = answer = self.request("start")
        if not answer.startswith("recording"):
            told.last = self.sender.next - 1
            return None
        told.name, told.due_first = answer.split()[1], self.sender.next
        return told

    def end(self, told: Told, word: str) -> str:
        """End an episode by a request."""
        if self.rng.random() < 0.5:
            self.sender.quiet = told.quiet = True
            self.sender.spin(QUIET_S)
        due = self.sender.next - 1
        told.ended_by = word
        answer = self.request(word)
        self.note(told, answer, due)
        self.sender.quiet = False
        return answer

    def note(self, told: Told, answer: str, due: int) -> None:
        """Note an answer that ends an episode."""
        told.last = self.sender.next - 1
        if answer.startswith("saved"):
            told.saved, told.due_last = True, due
            told.messages = int(answer.split(": ")[1].split()[0])
            self.done["saved"] += 1
        elif answer.startswith("discarded"):
            told.discarded = True

    def pause(self, recorder: Recorder) -> None:
        """Let the recorder have no CPU time for a while, as on a machine that is too busy."""
        recorder.process.send_signal(signal.SIGSTOP)
        self.sender.spin(self.rng.uniform(0.0, PAUSE_S))
        recorder.process.send_signal(signal.SIGCONT)
        self.done["pauses"] += 1

    def episode(self, recorder: Recorder, seconds: float) -> None:
        """One that is saved, which has to work."""
        told = self.begin()
        if told is None:
            self.violation("an episode does not begin on a disk with room", self.answer)
            return
        self.sender.spin(seconds)
        if self.rng.random() < PAUSED:
            self.pause(recorder)
        answer = self.end(told, self.rng.choice((*SAVES, *SAVES, "discard")))
        if not answer.startswith(("saved", "discarded")):
            self.violation("an episode is not saved on a disk with room", answer)

    # --- ends of a recorder

    def kill(self, recorder: Recorder, told: Told | None) -> None:
        killed_s = time.monotonic()
        recorder.kill()
        self.done["kills"] += 1
        self.sender.spin(0.02)  # an answer may be on its way
        if told is not None:
            due = self.sender.number_at(killed_s - QUIET_S)
            for text in (text for text in self.sender.answers if told.name and told.name in text):
                self.note(told, text, due)
            if not told.saved and not told.discarded:
                told.last, told.killed_s = self.sender.next - 1, killed_s
                told.losses = f"{told.name}, but" in recorder.said()
                told.due_last = self.sender.number_at(killed_s - LOST_S)
        self.check_log(recorder)

    def terminate(self, recorder: Recorder, told: Told | None) -> None:
        due = self.sender.next - 1 - TAIL
        recorder.process.terminate()
        self.done["sigterms"] += 1
        self.sender.spin(END_S, recorder.ended)
        if not recorder.ended():
            self.violation("the recorder does not end by SIGTERM")
            recorder.kill()
        elif recorder.process.returncode != 0:
            self.violation("SIGTERM ends the recorder with", recorder.process.returncode)
        if told is not None:
            self.note(told, recorder.answer(f"saved {told.name}"), due)
            if not told.saved and told.due_first <= due:
                self.violation("SIGTERM does not save the running episode", recorder.said()[-300:])
        self.check_log(recorder)

    def life(self, how: str) -> None:
        """One recorder from its start to its end."""
        if how in ("starting", "salvaging"):
            return self.kill_early(how)
        if (recorder := self.start()) is None:
            return None
        for _ in range(self.rng.randint(0, 2)):
            self.episode(recorder, self.rng.uniform(0.05, 0.4))
        if how == "beginning":
            told = Told(self.sender.next)
            self.episodes.append(told)
        elif (told := self.begin()) is None:
            self.violation("an episode does not begin on a disk with room", self.answer)
            return recorder.kill()
        self.sender.spin(self.rng.uniform(0.0, 2.0 if how == "recording" else 0.7))
        if how == "SIGTERM":
            return self.terminate(recorder, told)
        words = {"beginning": ("start",), "committing": SAVES, "discarding": ("discard",)}
        if how in words:
            told.ended_by = self.rng.choice(words[how])
            self.sender.answers.clear()
            self.sender.ask(m.Text(told.ended_by))
            self.sender.spin(self.rng.uniform(0.0, 0.02))
        if how == "discarding":
            told.due_first = NEVER
        self.kill(recorder, told)
        return None

    def kill_early(self, how: str) -> None:
        """Kill a recorder that starts, at any instant or just after it has taken the folder's lock."""
        recorder = self.launch()
        if how == "salvaging":
            end_s = time.monotonic() + START_S
            while not recorder.locks() and not recorder.ended() and time.monotonic() < end_s:
                time.sleep(0.0005)
            self.wait_for_changes(self.rng.randint(0, 5))
            time.sleep(self.rng.choice((0.0, self.rng.uniform(0.0, 0.001), self.rng.uniform(0.0, 0.03))))
        else:
            self.sender.spin(self.rng.uniform(0.0, 1.1 * self.start_s))
        self.kill(recorder, None)

    def wait_for_changes(self, count: int) -> None:
        """Wait until folders have appeared, moved or gone so many times, at most a moment."""
        end_s, before = time.monotonic() + SALVAGE_S, self.listing()
        while count > 0 and time.monotonic() < end_s:
            if (now := self.listing()) != before:
                count, before = count - 1, now

    def listing(self) -> set[str]:
        """Folders of the recordings, committed or not."""
        return {f"{at}/{name}" for at in ("", "in_progress") for name in listed(self.folder / at)}

    # --- full disks

    def fill(self, largest_rest: int) -> float:
        """Leave up to so many bytes of the disk, and return the time."""
        disk, rest = self.folder.parent, self.rng.randint(0, largest_rest)
        with (disk / "filler").open("wb") as file:
            while (size := os.statvfs(disk).f_bavail * os.statvfs(disk).f_frsize - rest) > 0:
                try:
                    os.posix_fallocate(file.fileno(), 0, size)
                    break
                except OSError as error:  # the recorder has taken some of it meanwhile
                    if error.errno != errno.ENOSPC:
                        raise
        self.done["full_disks"] += 1
        return time.monotonic()

    def make_room(self) -> None:
        (self.folder.parent / "filler").unlink()

    def full_start(self) -> None:
        """A recorder that starts on a full disk either does, or ends with a sentence."""
        self.fill(FULL["starting"])
        recorder = self.launch()
        self.sender.spin(START_S, lambda: self.sender.heard("idle") or recorder.ended())
        if recorder.ended():
            if recorder.process.returncode in (0, None) or "recorder: " not in recorder.said():
                self.violation("a full disk ends the recorder with", recorder.process.returncode)
        elif not self.sender.heard("idle"):
            self.violation("the recorder hangs at its start on a full disk")
        recorder.kill()
        self.check_log(recorder)
        self.make_room()

    def full_life(self, how: str) -> None:
        """One recorder whose disk fills; it has to report that, to go on after room was made, and to end."""
        if how == "starting":
            return self.full_start()
        if (recorder := self.start()) is None:
            return None
        if how == "beginning":
            full_s, told = self.fill(FULL[how]), self.begin()
        elif (told := self.begin()) is None:
            self.violation("an episode does not begin on a disk with room", self.answer)
            return recorder.kill()
        else:
            self.sender.spin(self.rng.uniform(0.0, 1.5))
            full_s = self.fill(FULL[how])
        if told is not None:
            if how == "committing":
                self.end(told, self.rng.choice(SAVES))
            elif not self.sender.spin(ANSWER_S, lambda: self.sender.heard("broke off")):
                self.violation("a full disk is not reported")
            if not told.saved:
                told.last, told.due_last = self.sender.next - 1, self.sender.number_at(full_s - LOST_S)
        self.make_room()
        self.episode(recorder, 0.1)
        if self.rng.random() < 0.5:
            self.kill(recorder, None)
        else:
            self.terminate(recorder, None)
        return None

    def finish(self) -> None:
        """Start once more, judge, and end."""
        if (recorder := self.start()) is not None:
            self.terminate(recorder, None)


def listed(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
    except FileNotFoundError:  # not yet
        return []


def lives(
    attack: Attack, tries: int, folder: Path, live: Callable[[str], None], ways: tuple[str, ...]
) -> None:
    """So many recorders, in a new folder after some; an example of a violation says which life it was."""
    for number in range(tries):
        if number % FOLDER_TRIES == 0:
            attack.open(folder / f"recordings_{number}", folder.parent / "log")
        attack.way = ways[number % len(ways)]
        live(attack.way)
        if number % FOLDER_TRIES == FOLDER_TRIES - 1 or number == tries - 1:
            attack.finish()
            shutil.rmtree(attack.folder, ignore_errors=True)


def attack(tries: int, seed: int) -> tuple[int, Counter[str], str]:
    """End `tries` recorders, and fill a third as many disks."""
    disks = max(1, round(tries * DISKS_PER_KILL))
    with free_domain() as domain, TemporaryDirectory(prefix="robo-rl-recorder-") as name:
        folder = Path(name)
        bus = DdsBus("robot", domain=domain, warn=lambda sentence: None)
        made = Attack(Sender(bus), domain, random.Random(seed))
        try:
            lives(made, tries, folder / "killed", made.life, ENDS)
            with small_disk(folder, DISK_KIB) as disk:
                lives(made, disks, disk, made.full_life, tuple(FULL))
        finally:
            made.close()
            bus.close()
    for what, unit in UNITS.items():
        emit(f"attack/recorder/{what}", made.done[what], unit, seed=seed)
    emit("attack/recorder/lost_s_max", made.lost_s, "s", seed=seed)
    return tries + disks, made.found, made.example
