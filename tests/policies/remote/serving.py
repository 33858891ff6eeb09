"""A policy server in a thread of a test, on a free port of the loopback interface."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from policies.deploy.bundle import Bundle
from policies.deploy.runner import OnnxPolicy
from policies.remote.address import Address, listen
from policies.remote.contract import bundle_contract
from policies.remote.server import PolicyServer, ServedPolicy
from robo_rl.apps.serve import Refiner, Sampler


@dataclass
class Running:
    """A server, its address and the lines that it said."""

    server: PolicyServer
    address: Address
    said: list[str]
    ending: threading.Event
    thread: threading.Thread

    def end(self) -> None:
        """End the server, as Ctrl-C does."""
        self.ending.set()
        self.thread.join()


Start = Callable[..., Running]


def connected(running: Running, host: str = "127.0.0.1") -> socket.socket:
    """Connection of a client at the address `host`."""
    return socket.create_connection((running.address.host, running.address.port), 5.0, (host, 0))


def greeted(running: Running) -> socket.socket:
    """Connection whose first frame has begun to arrive: one of a crowd is closed even before that."""
    client = connected(running)
    assert client.recv(1)
    return client


def served(bundle: Bundle) -> ServedPolicy:
    policy, contract = OnnxPolicy(bundle, "cpu"), bundle_contract(bundle)
    return ServedPolicy(contract, Sampler(policy), Refiner(policy) if contract.refines else None)


@contextmanager
def servers() -> Iterator[Start]:
    """Function that starts a server of a `ServedPolicy`; all of them end with the block."""
    all_ = list[Running]()

    def begin(policy: ServedPolicy, token: str | None = None, most_clients: int = 8) -> Running:
        listener, said, ending = listen("127.0.0.1", 0), list[str](), threading.Event()
        server = PolicyServer(policy, listener, token, most_clients=most_clients, say=said.append)
        address = Address("127.0.0.1", listener.getsockname()[1], deadline_s=20.0)
        thread = threading.Thread(target=server.serve, args=(ending.is_set,))
        all_.append(Running(server, address, said, ending, thread))
        thread.start()
        return all_[-1]

    try:
        yield begin
    finally:
        for running in all_:
            running.ending.set()
        for running in all_:
            running.end()
