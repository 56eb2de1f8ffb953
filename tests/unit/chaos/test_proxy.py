"""The proxy of the crash suite forwards, cuts, and tears a piece in its middle."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import closing

import pytest

from tests.support.eventually import eventually
from tests.support.proxy import Proxy

SIZE = 10_000


@pytest.fixture
def received() -> Iterator[tuple[int, list[bytes]]]:
    """A server that answers every connection with a greeting: its port, and what it received on each one."""
    got: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve(connection: socket.socket) -> None:
            data = b""
            with connection:
                connection.sendall(b"hello")
                try:
                    while piece := connection.recv(65_536):
                        data += piece
                except ConnectionError:
                    pass
                got.append(data)

        def accept() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                threading.Thread(target=serve, args=(connection,), daemon=True).start()

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        yield server.getsockname()[1], got
        server.shutdown(socket.SHUT_RDWR)
    thread.join()


def connected(proxy: Proxy) -> socket.socket:
    """A client that has been greeted through the proxy."""
    client = socket.create_connection(("127.0.0.1", proxy.port), timeout=10)
    assert client.recv(5) == b"hello"
    return client


def ended(client: socket.socket) -> bool:
    """Whether the connection ends, by a reset or in order."""
    try:
        return client.recv(1) == b""
    except ConnectionError:
        return True


def test_cut_ends_every_connection_and_new_ones_are_served(received: tuple[int, list[bytes]]) -> None:
    """Both clients are reset; the next one is greeted."""
    with Proxy(received[0]) as proxy, closing(connected(proxy)) as one, closing(connected(proxy)) as two:
        assert proxy.cut() == 2
        assert ended(one)
        assert ended(two)
        connected(proxy).close()


def test_a_torn_piece_arrives_by_half(received: tuple[int, list[bytes]]) -> None:
    """Of the piece that is large enough the first half arrives, and then nothing; a smaller one passes."""
    port, got = received
    with Proxy(port) as proxy, closing(connected(proxy)) as client:
        tearing = threading.Thread(target=proxy.tear, args=(SIZE, 10.0))
        tearing.start()
        client.sendall(b"small")
        while tearing.is_alive():
            try:
                client.sendall(b"x" * (2 * SIZE))
            except ConnectionError:
                break
            tearing.join(0.05)
        tearing.join()
        assert ended(client)
    (data,) = eventually(lambda: got)
    assert data.startswith(b"small")
    assert (len(data) - 5) % (2 * SIZE) != 0


def test_a_silent_network_holds_back_what_is_sent(received: tuple[int, list[bytes]]) -> None:
    """Nothing arrives and nobody is cut off while it lasts; afterwards everything does."""
    port, got = received
    with Proxy(port) as proxy, closing(connected(proxy)) as client:
        with proxy.silent():
            client.sendall(b"hello?")
            client.settimeout(0.5)
            with pytest.raises(TimeoutError):
                client.recv(1)
            assert not any(got)
        client.shutdown(socket.SHUT_WR)
    (data,) = eventually(lambda: got)
    assert data == b"hello?"
