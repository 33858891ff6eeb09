"""Episodes of the recording app: each frame goes to the disk as it comes, and a label commits them.

idle -> recording <-> paused -> ended -> idle. The action of a frame is the command that was sent by the next
tick, as in `hardware.recording.frames`. The last frame waits for the label: a success has reward 1 there.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy import ndarray

from robo_rl.core.errors import DataError, DiskFullError
from robo_rl.core.shapes import Float
from robo_rl.core.text.instruction import to_bytes
from robo_rl.data.episodes.dataset_writer import DatasetWriter
from robo_rl.data.episodes.disk import how_to_salvage
from robo_rl.data.episodes.episode_writer import EpisodeWriter
from robo_rl.data.episodes.reader import EpisodeStore
from robo_rl.data.episodes.reward_marks import RewardMark, with_mark

Seen = dict[str, ndarray]
IDLE, RECORDING, PAUSED, ENDED = "idle", "recording", "paused", "ended"
EDITING = "editing"  # committed episodes are being changed


class UnreachableError(DataError):
    """A dataset whose folder cannot be read or written now.

    A folder that was moved can be put back. The files that are open on a disk that was unplugged stay broken
    when it is connected again, so only a restart helps.
    """

    def __init__(self, path: Path, error: OSError) -> None:
        super().__init__(
            f"The dataset {path} cannot be reached ({error.strerror or error}). If its folder was moved, put "
            "it back and go on. If its disk was unplugged, connect it and restart the app, which salvages "
            "the episode; do not discard it."
        )


@dataclass(frozen=True)
class PendingFrame:
    """One frame that is complete but for its reward."""

    obs: Seen
    action: Float[ndarray, " a"]
    intervention: bool
    stamps_ns: Mapping[str, int]


@dataclass
class Tally:
    """Episodes of the dataset by their labels. An interrupted one is counted as such, unless it failed,
    because `robo-rl train` leaves it out as well.
    """

    episodes: int = 0
    successes: int = 0
    failures: int = 0
    interrupted: int = 0

    def count(self, success: bool | None, complete: bool = True) -> None:
        """Add one episode."""
        self.episodes += 1
        self.failures += success is False
        self.interrupted += not complete and success is not False
        self.successes += complete and success is True

    def trainable(self, rule: str) -> int:
        """Number of the episodes that `robo-rl train learn_from=<rule>` learns from."""
        if rule == "all":
            return self.episodes
        return self.successes if rule == "success" else self.episodes - self.failures - self.interrupted


def tally_of(path: Path) -> Tally:
    """Counts of a dataset."""
    tally = Tally()
    for episode in EpisodeStore(path):
        tally.count(episode.success, episode.meta.complete)
    return tally


def checked_instruction(text: str) -> str:
    """The instruction without surrounding blanks. Raises ConfigError for one that no policy could read."""
    if text.strip():
        to_bytes(text)
    return text.strip()


class Episodes:
    """Writes episodes into a dataset. most_frames: length at which an episode ends by itself.

    committed: called with (number, frames, success) after each commit. Methods return a sentence for the
    operator; they raise no error for a full disk, which ends and commits the running episode. While the
    folder of the dataset cannot be reached they raise DataError, and keep the running episode.
    """

    def __init__(
        self,
        writer: DatasetWriter,
        tally: Tally,
        most_frames: int,
        operator: str = "",
        info: Callable[[], dict[str, Any]] = dict,
    ) -> None:
        self.state, self.instruction, self.tally = IDLE, "", tally
        self._writer, self._operator, self._most, self._info = writer, operator, most_frames, info
        self._running: EpisodeWriter | None = None
        self._seen: tuple[Seen, Mapping[str, int]] | None = None  # observation that has no action yet
        self._held: PendingFrame | None = None  # last frame, which waits for its reward
        self.frames = self.marks = 0
        self.version = tally.episodes  # changes when the committed episodes do
        self.intervened = False  # a human controlled the arm in some frame of this episode
        self.saved = ""  # sentence on the last commit

    def require_idle(self) -> None:
        """Raise DataError while there is an episode."""
        if self.state == EDITING:
            raise DataError("The dataset is being edited; wait a moment.")
        if self.state != IDLE:
            raise DataError(f"An episode is {self.state} already: save or discard it first.")

    def require_paused(self) -> None:
        """Raise DataError unless there is a pause to end."""
        if self.state != PAUSED:
            raise DataError(f"No pause to end: the episode is {self.state}.")

    def start(self) -> str:
        """Begin an episode. Raises DiskFullError below the floor, DataError while one runs."""
        self.require_idle()
        with self._reachable():
            number = self._writer.next_number
            self._running = self._writer.episode(
                task=self.instruction, operator=self._operator, info=self._info()
            )
        self._seen = self._held = None
        self.state, self.frames, self.marks, self.intervened = RECORDING, 0, 0, False
        return f"recording episode {number}"

    def frame(
        self,
        obs: Seen,
        stamps_ns: Mapping[str, int],
        action: Float[ndarray, " a"],
        intervention: bool,
        command_ns: int,
    ) -> str:
        """Take the observation of this tick; `action` belongs to the frame of the tick before.

        Returns a sentence when this ended the episode, else "".
        """
        if self.state != RECORDING or self._running is None:
            return ""
        if self._seen is not None:
            seen, seen_ns = self._seen
            frame = PendingFrame(seen, action, intervention, {**seen_ns, "t_command_ns": command_ns})
            try:
                with self._reachable():
                    self._write_held(0.0, False)
            except DiskFullError as error:
                return self._end_full(error)
            self._held = frame
            self.frames += 1
            self.intervened |= intervention
        self._seen = obs, stamps_ns
        if self.frames >= self._most:
            self.end()
            return f"the episode has the longest length, {self.frames} frames, and was ended"
        return ""

    def mark(self, reward: float) -> str:
        """Mark the present frame with a reward. Raises DataError unless something is being recorded."""
        if self.state != RECORDING or self._running is None:
            raise DataError(
                f"Only a frame that is being recorded can be marked; the episode is {self.state}."
            )
        at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        mark = RewardMark(self.frames, reward, self._operator, at)
        with self._reachable():
            self._running.annotate(with_mark(self._running.info, mark))
        self.marks += 1
        return f"marked frame {self.frames} with reward {reward:+g}"

    def pause(self) -> str:
        """Take no frames until `resume`."""
        if self.state != RECORDING:
            raise DataError(f"Nothing is being recorded: the episode is {self.state}.")
        self.state, self._seen = PAUSED, None
        return "paused"

    def resume(self) -> str:
        """Continue after a pause."""
        self.require_paused()
        self.state = RECORDING
        return "recording continues"

    def end(self) -> str:
        """End the episode, which then waits for its label."""
        if self.state not in (RECORDING, PAUSED):
            raise DataError(f"Nothing is being recorded: the episode is {self.state}.")
        self.state = ENDED
        return "ended: save it as a success or a failure, or discard it"

    def instruct(self, text: str) -> str:
        """Set the instruction of the present episode, also for one that is salvaged, and of the next ones.
        Raises ConfigError.
        """
        checked = checked_instruction(text)
        if self._running is not None:
            with self._reachable():
                self._running.annotate(task=checked)
        self.instruction = checked
        return f"instruction: {self.instruction or 'none'}"

    def save(
        self,
        success: bool | None,
        complete: bool = True,
        full: str = "Then save again: the frames are kept.",
    ) -> str:
        """Commit the episode with its label. complete: False for one that was interrupted. full: what to do
        once a full disk has space again.
        """
        if self._running is None:
            raise DataError("There is no episode to save: start one first.")
        if self._held is None and not self._running.frames:
            self.discard()
            return "the episode had no complete frame and was discarded"
        final_obs = None if self._seen is None else self._seen[0]
        try:
            with self._reachable():
                self._write_held(float(success is True), success is True)
                number = self._running.commit(
                    success=success, final_obs=final_obs, complete=complete, task=self.instruction
                )
        except DiskFullError as error:
            self.state = ENDED
            return f"{error.fact} {full}"
        except UnreachableError as error:
            self.state = ENDED
            raise DataError(f"{error} Once the folder is back, save again: the frames are kept.") from error
        frames, self._running, self._seen, self.state = self.frames, None, None, IDLE
        self.tally.count(success, complete)
        self.version += 1
        label = {True: "success", False: "failure", None: "no label"}[success]
        self.saved = f"saved episode {number}: {frames} frames, {label}"
        return self.saved

    def discard(self) -> str:
        """Delete the episode."""
        if self._running is None:
            raise DataError("There is no episode to discard.")
        with self._reachable():
            self._running.discard()
        self._running, self._seen, self._held, self.state = None, None, None, IDLE
        return "the episode was discarded"

    def close(self, why: str) -> str:
        """Commit what is running, as the app ends. Returns a sentence."""
        outcome = f"{why}: nothing was being recorded"
        if self._running is not None:
            ended = self.state == ENDED
            try:
                outcome = f"{why}: {self.save(None, ended, how_to_salvage(self._writer.path))}"
            except DataError:
                outcome = f"{why}: {self._writer.path} cannot be reached; the next start salvages the episode"
        if self._running is not None:  # the frames stay in staging, for `recover`
            self._running.close()
            self._running = None
        self._writer.close()
        return outcome

    def release(self) -> None:
        """Close the dataset for an edit, until `reopen`. Raises DataError while there is an episode."""
        self.require_idle()
        self._writer.close()
        self.state = EDITING

    def reopen(self) -> None:
        """Open the dataset again, and count its episodes. Raises LockedError while another process writes it,
        and DataError while it cannot be read; it is closed then as before.
        """
        options = self._writer.options
        with self._reachable():
            writer = DatasetWriter.open(
                self._writer.path, min_free_bytes=options.min_free_bytes, durable=options.durable
            )
            self.tally = tally_of(writer.path)
        self._writer, self.state = writer, IDLE
        self.version += 1

    @contextmanager
    def _reachable(self) -> Iterator[None]:
        """Context manager that turns an error of the dataset's folder into UnreachableError."""
        try:
            yield
        except OSError as error:
            raise UnreachableError(self._writer.path, error) from error

    def _write_held(self, reward: float, terminated: bool) -> None:
        """Write the frame that waits; after an error it waits on."""
        if self._held is not None and self._running is not None:
            held = self._held
            self._running.add(
                held.obs,
                held.action.astype(np.float32),
                reward=reward,
                terminated=terminated,
                intervention=held.intervention,
                stamps=held.stamps_ns,
            )
            self._held = None

    def _end_full(self, error: DiskFullError) -> str:
        """Commit without the frames that do not fit on the disk."""
        self._held = self._seen = None
        running, self._running, self.state = self._running, None, IDLE
        assert running is not None
        try:
            with self._reachable():
                if not running.frames:
                    running.discard()
                    return f"{error.fact} The episode had no frame yet, and was discarded."
                number = running.commit(complete=False, task=self.instruction)
        except (DiskFullError, UnreachableError):
            running.close()
            return f"{error.fact} {how_to_salvage(self._writer.path)}"
        self.tally.count(None, complete=False)
        self.version += 1
        saved = f"ended and saved with {running.frames} frames, without a label"
        return f"{error.fact} Episode {number} was {saved}."
