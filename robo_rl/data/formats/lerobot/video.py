"""MP4 files of LeRobot datasets: several episodes in sequence, one image per frame at a constant rate."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from types import TracebackType

import numpy as np
from numpy import ndarray

from robo_rl.core.errors import DataError
from robo_rl.core.shapes import UInt8

KEY_FRAME_EVERY = 2  # short distances between key frames make random access cheap


class Mp4Writer:
    """H.264 file of RGB images of one size. Image i is shown at i / fps."""

    def __init__(self, path: Path, fps: float, height: int, width: int, crf: int) -> None:
        import av

        path.parent.mkdir(parents=True, exist_ok=True)
        rate = Fraction(fps).limit_denominator(10_000)
        self.frames, self.bytes = 0, 0  # bytes: of the images encoded so far; the encoder holds some back
        self._av = av
        self._file = av.open(str(path), "w")
        stream = self._file.add_stream("libx264", rate=rate)
        stream.width, stream.height = width, height
        # yuv420p halves the resolution of colours and needs even sides
        stream.pix_fmt = "yuv420p" if height % 2 == 0 and width % 2 == 0 else "yuv444p"
        stream.options = {"crf": str(crf), "g": str(KEY_FRAME_EVERY), "preset": "fast", "bf": "0"}
        stream.codec_context.time_base = 1 / rate
        stream.codec_context.thread_count = 1
        self._stream, self._time_base = stream, 1 / rate

    def add(self, image: UInt8[ndarray, "h w 3"]) -> None:
        frame = self._av.VideoFrame.from_ndarray(np.ascontiguousarray(image), format="rgb24")
        frame.pts, frame.time_base = self.frames, self._time_base
        packets = self._stream.encode(frame)
        self._file.mux(packets)
        self.frames += 1
        self.bytes += sum(packet.size for packet in packets)

    def close(self) -> None:
        self._file.mux(self._stream.encode(None))
        self._file.close()

    def __enter__(self) -> Mp4Writer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        else:
            self._file.close()


class Mp4Reader:
    """Images of a file by position. Reading forwards decodes each image once."""

    def __init__(self, path: Path, fps: float) -> None:
        import av

        self._path, self._fps = path, fps
        try:
            self._file = av.open(str(path), format="mp4")  # other formats may name further files
            self._stream = self._file.streams.video[0]
        except FileNotFoundError as error:
            raise DataError(f"{path} is missing. Copy the dataset again.") from error
        except (av.error.InvalidDataError, IndexError) as error:
            raise DataError(
                f"{path} is no complete MP4 video: it was cut off, or is another kind of file. Copy the "
                "dataset again."
            ) from error
        except (OSError, av.error.FFmpegError) as error:
            raise DataError(f"{path} cannot be read ({error.strerror}). Copy the dataset again.") from error
        self._frames = self._decode()
        self._error = av.error.FFmpegError

    @property
    def frames(self) -> int:
        """Images of the file by its index; 0: the file does not state it."""
        return int(self._stream.frames)

    def _decode(self) -> Iterator[tuple[int, UInt8[ndarray, "h w 3"]]]:
        for frame in self._file.decode(self._stream):
            if frame.time is not None:
                yield round(frame.time * self._fps), frame.to_ndarray(format="rgb24")

    def read(self, first: int, count: int, shape: tuple[int, ...]) -> UInt8[ndarray, "n h w 3"]:
        """Images first ... first + count - 1; calls must go forwards. Raises DataError if one is missing."""
        images = np.empty((count, *shape), dtype=np.uint8)
        done = 0
        try:
            while done < count:
                position, image = next(self._frames)
                if position < first + done:
                    continue
                if position > first + done or image.shape != tuple(shape):
                    break
                images[done] = image
                done += 1
        except StopIteration:
            if first + done < self.frames:
                raise self._damaged(first + done) from None
        except self._error as error:
            raise self._damaged(first + done) from error
        if done < count:
            raise DataError(
                f"{self._path} has no image of shape {list(shape)} for frame {first + done}: rows and "
                "images do not belong together. Record or copy the dataset again."
            )
        return images

    def _damaged(self, frame: int) -> DataError:
        return DataError(
            f"{self._path} is damaged or was cut off: frame {frame} cannot be read. Copy the dataset again."
        )

    def close(self) -> None:
        self._file.close()
