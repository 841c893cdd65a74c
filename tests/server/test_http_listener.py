"""The socket that an application listens on."""

from __future__ import annotations

import socket

from holdfast.server.http.listener import _bound


def test_an_answer_does_not_wait_for_the_acknowledgement_of_its_first_half() -> None:
    with _bound("127.0.0.1", 0) as listening, socket.create_connection(listening.getsockname()):
        connection, _ = listening.accept()
        with connection:
            assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
