"""Choice of the OpenGL backend on machines without a display, before libraries are loaded for good."""

from __future__ import annotations

import ctypes
import os
from contextlib import suppress
from functools import cache
from importlib import import_module
from typing import Any

from robo_rl.core.errors import ConfigError, MissingDependencyError

BACKENDS = ("egl", "osmesa", "glfw")  # in the order of preference
# other words with which MuJoCo can be imported; the first ones import no OpenGL
_IMPORTABLE = ("disable", "disabled", "off", "false", "0", "enable", "enabled", "on", "true", "1", "glx")
_DEVICE_PLATFORM = 0x313F  # EGL_PLATFORM_DEVICE_EXT
_MAX_DEVICES = 16
_SMALL_PX2 = 256 * 256


def check_gl_name() -> None:
    """Raise ConfigError for a MUJOCO_GL that MuJoCo does not know, on which its import fails."""
    name = os.environ.get("MUJOCO_GL", "").lower().strip()
    if name and name not in (*BACKENDS, *_IMPORTABLE):
        raise _unknown(name)


def _unknown(name: str) -> ConfigError:
    return ConfigError(f"MUJOCO_GL is '{name}'; expected one of {', '.join(BACKENDS)}, or leave it unset.")


@cache
def backend() -> str:
    """OpenGL backend: MUJOCO_GL when it is set; else EGL, OSMesa, or GLFW on a display, the first that works.

    Raises ConfigError for an unknown MUJOCO_GL, MissingDependencyError with the command that installs one
    when there is none.
    """
    if name := os.environ.get("MUJOCO_GL", "").lower().strip():
        if name not in BACKENDS:
            raise _unknown(name)
        return name
    if _egl_works():
        return "egl"
    if _osmesa_works():
        return "osmesa"
    if os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"):
        return "glfw"
    raise MissingDependencyError(
        "Rendering needs OpenGL, but neither EGL nor OSMesa works here and there is no display. "
        "Run: apt-get install libegl1 libgl1-mesa-dri   (or: apt-get install libosmesa6)"
    )


def make_context(width: int, height: int) -> Any:
    """An offscreen OpenGL context of MuJoCo's own kind, with `make_current` and `free`.

    The first context of a process decides how Mesa renders without a GPU: for small images in the calling
    thread, because handing work to other threads takes a quarter of a frame's time. LP_NUM_THREADS is
    respected if set.
    """
    if width * height <= _SMALL_PX2:
        os.environ.setdefault("LP_NUM_THREADS", "0")
    try:
        return import_module(f"mujoco.{backend()}").GLContext(width, height)
    except (ImportError, RuntimeError, OSError, AttributeError) as error:
        raise unusable(error) from error


def unusable(error: Exception) -> MissingDependencyError:
    """The error to raise when the chosen OpenGL backend does not work."""
    return MissingDependencyError(
        f"OpenGL through '{backend()}' does not work here ({error}). Unset MUJOCO_GL to have one chosen, "
        "or run: apt-get install libegl1 libgl1-mesa-dri libosmesa6"
    )


def _egl_works() -> bool:
    """True if any EGL device initialises. Uses ctypes, because PyOpenGL fixes its platform on import."""
    with suppress(OSError, AttributeError):
        egl = ctypes.CDLL("libEGL.so.1")
        egl.eglGetProcAddress.restype = ctypes.c_void_p
        pointers = [
            egl.eglGetProcAddress(name) for name in (b"eglQueryDevicesEXT", b"eglGetPlatformDisplayEXT")
        ]
        if not all(pointers):
            return False
        devices, found = (ctypes.c_void_p * _MAX_DEVICES)(), ctypes.c_int(0)
        query = ctypes.CFUNCTYPE(ctypes.c_uint, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)(pointers[0])
        display_of = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)(
            pointers[1]
        )
        if not query(_MAX_DEVICES, devices, ctypes.byref(found)):
            return False
        egl.eglInitialize.argtypes = [ctypes.c_void_p] * 3
        displays = (display_of(_DEVICE_PLATFORM, device, None) for device in devices[: found.value])
        return any(display and egl.eglInitialize(display, None, None) for display in displays)
    return False


def _osmesa_works() -> bool:
    for name in ("libOSMesa.so.8", "libOSMesa.so.6", "libOSMesa.so"):
        with suppress(OSError):
            ctypes.CDLL(name)
            return True
    return False
