"""CUDA code of a column program, built by NVRTC in a second or two and cached on disk.

NVRTC comes with torch's CUDA packages and needs no toolkit. A launch goes to torch's current stream, so
that a CUDA graph records it.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import site
import sys
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from robo_rl.core.errors import EnvError
from robo_rl.core.files.machine_code import make_cache_folder
from sim.compile.column_trace import ColumnProgram
from sim.compile.cuda_code import THREADS, cuda_source_of

FLAGS = ("--std=c++17",)
FEW = 64  # columns per multiprocessor at which small blocks keep more of them busy
Run = Callable[[list[Tensor]], Sequence[Tensor]]


def cuda_source(traced: ColumnProgram, arch: str) -> tuple[str, str]:
    """(source, name of its file): a hash of everything that the machine code depends on.

    arch: architecture of the device, such as sm_90.
    """
    source = cuda_source_of(traced)
    text = "\n".join([source, arch, str(torch.version.cuda), *FLAGS])
    return source, hashlib.sha256(text.encode()).hexdigest()[:24]


def architecture(device: torch.device) -> str:
    """Name of the device's instructions."""
    major, minor = torch.cuda.get_device_capability(device)
    return f"sm_{major}{minor}"


def build_cuda(source: str, path: Path, arch: str) -> None:
    """Compile to `path` atomically. Raises EnvError when NVRTC is missing or fails."""
    code = compile_cuda(nvrtc_library(), source, arch)
    make_cache_folder(path.parent)
    partial = path.with_name(f".{path.stem}-{os.getpid()}.cubin")
    try:
        partial.write_bytes(code)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def compile_cuda(nvrtc: ctypes.CDLL, source: str, arch: str) -> bytes:
    """Machine code (cubin) of the source; needs no device. Raises EnvError with the compiler's message."""
    program, size = ctypes.c_void_p(), ctypes.c_size_t()
    flags = [flag.encode() for flag in (f"--gpu-architecture={arch}", *FLAGS)]
    made = nvrtc.nvrtcCreateProgram(ctypes.byref(program), source.encode(), b"columns.cu", 0, None, None)
    if made:
        raise EnvError(f"NVRTC could not start (its code {made}). Reinstall torch's CUDA packages.")
    try:
        failed = nvrtc.nvrtcCompileProgram(program, len(flags), (ctypes.c_char_p * len(flags))(*flags))
        kind = "ProgramLog" if failed else "CUBIN"
        getattr(nvrtc, f"nvrtcGet{kind}Size")(program, ctypes.byref(size))
        text = ctypes.create_string_buffer(size.value)
        getattr(nvrtc, f"nvrtcGet{kind}")(program, text)
    finally:
        nvrtc.nvrtcDestroyProgram(ctypes.byref(program))
    if failed or not size.value:
        log = text.value.decode(errors="replace").strip() or f"code {failed}"
        raise EnvError(
            f"NVRTC could not build the simulator for {arch}: {log[-600:]}. Check with robo-rl doctor that "
            "torch's CUDA version suits the GPU, or set eager=true."
        )
    return text.raw


@cache
def nvrtc_library() -> ctypes.CDLL:
    """NVRTC of the CUDA version that torch was built for. Raises EnvError where it is missing."""
    major = str(torch.version.cuda).split(".")[0]
    folders = [Path(place) for place in (*sys.path, *site.getsitepackages()) if place]
    own = [path for folder in folders for path in folder.glob(f"nvidia/*/lib/libnvrtc.so.{major}*")]
    for name in [*map(str, own), f"libnvrtc.so.{major}", "libnvrtc.so"]:
        try:
            for part in sorted(Path(name).parent.glob("libnvrtc-builtins.so*")) if "/" in name else ():
                ctypes.CDLL(str(part))  # NVRTC asks for it by its name alone
            return ctypes.CDLL(name)
        except OSError:
            continue
    raise EnvError(
        f"CUDA's run-time compiler libnvrtc.so.{major} was not found. It comes with torch's CUDA packages: "
        "reinstall torch, or set eager=true."
    )


def load_cuda(path: Path, traced: ColumnProgram, device: torch.device) -> Run:
    """The compiled function of inputs on the device, with as many columns as it was traced with."""
    driver, function = _driver(), ctypes.c_void_p()
    module, code = ctypes.c_void_p(), path.read_bytes()
    with torch.cuda.device(device):
        torch.zeros(1, device=device)  # makes torch's context current in this thread
        _check(driver, driver.cuModuleLoadData(ctypes.byref(module), code))
        _check(driver, driver.cuModuleGetFunction(ctypes.byref(function), module, b"run"))
        processors = torch.cuda.get_device_properties(device).multi_processor_count
    launch = _launcher(driver, function, traced, processors)

    def run(inputs: list[Tensor]) -> list[Tensor]:
        made = [torch.empty(shape, device=device) for shape in traced.shapes]
        launch([x.data_ptr() for x in (*inputs, *made)], torch.cuda.current_stream(device).cuda_stream)
        return made

    return run


def _launcher(
    driver: ctypes.CDLL, function: ctypes.c_void_p, traced: ColumnProgram, processors: int
) -> Callable[[list[int], int], None]:
    """launch(addresses of inputs and outputs, stream)."""
    count = len(traced.inputs) + len(traced.shapes)
    threads = min(THREADS, 32 if traced.columns <= FEW * processors else THREADS)
    blocks, columns = -(-traced.columns // threads), ctypes.c_longlong(traced.columns)
    values, parameters = ctypes.c_void_p * count, ctypes.c_void_p * (count + 1)

    def launch(addresses: list[int], stream: int) -> None:
        held = values(*addresses)
        first, step = ctypes.addressof(held), ctypes.sizeof(ctypes.c_void_p)
        given = parameters(*(first + step * k for k in range(count)), ctypes.addressof(columns))
        _check(driver, driver.cuLaunchKernel(
            function, blocks, 1, 1, threads, 1, 1, 0, ctypes.c_void_p(stream), given, None
        ))  # fmt: skip

    return launch


@cache
def _driver() -> ctypes.CDLL:
    return ctypes.CDLL("libcuda.so.1")


def _check(driver: Any, code: int) -> None:
    if code:
        message = ctypes.c_char_p()
        driver.cuGetErrorString(code, ctypes.byref(message))
        raise EnvError(
            f"The GPU's driver refused a kernel of the simulator: {(message.value or b'').decode()} (code "
            f"{code}). Check with robo-rl doctor that the driver suits torch's CUDA version, or set "
            "eager=true."
        )
