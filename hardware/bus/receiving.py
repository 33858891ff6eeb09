"""Receive buffers of the DDS sockets of this process, and the count of what they could not hold.

The kernel discards datagrams that arrive while the buffer of a socket is full, which happens when the process
gets no CPU time. CycloneDDS reports neither that nor a queue of messages that was overwritten.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from contextlib import suppress

from hardware.bus.dds.loopback import OWN_FILES, open_ports

BUFFER_BYTES = 16 * 2**20  # half a second of raw pictures of 640 x 480 at 30 Hz
SO_RCVBUFFORCE, SO_MEMINFO = 33, 55  # asm-generic/socket.h; Python has no names for them
MEMINFO_BYTES, DROPS = 36, 8  # nine numbers of 32 bits, and the place of SK_MEMINFO_DROPS in them


def enlarge_buffers(domain: int) -> None:
    """Raise the receive buffers, to `net.core.rmem_max` at most where this process lacks CAP_NET_ADMIN."""
    for made in _sockets(domain):
        with made:
            if made.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) >= 2 * BUFFER_BYTES:  # twice what is set
                continue
            try:
                made.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, BUFFER_BYTES)
            except PermissionError:
                made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER_BYTES)


def discarded_datagrams(domain: int) -> int:
    """Number of datagrams that the kernel discarded at the open sockets; 0 without Linux 4.12 or later."""
    count = 0
    for made in _sockets(domain):
        with made, suppress(OSError):  # closed meanwhile, or an old kernel
            info = made.getsockopt(socket.SOL_SOCKET, SO_MEMINFO, MEMINFO_BYTES)
            count += struct.unpack("9I", info)[DROPS]
    return count


def _sockets(domain: int) -> Iterator[socket.socket]:
    """Duplicates of the receiving sockets of this process; none on other systems than Linux."""
    if OWN_FILES.is_dir():
        for _, made in open_ports(domain):
            yield made
