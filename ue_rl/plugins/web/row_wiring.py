"""RowWiring: a page's one connection for all envs, on which steps are binary where the page announced it."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ue_rl.connections.tcp.link import Link
from ue_rl.connections.tcp.numbers import AnswerNumbers
from ue_rl.connections.tcp.wirings import SharedWiring
from ue_rl.plugins.web.page_socket import ROWS_CAME, PageSocket
from ue_rl.plugins.web.rows import RowCodec, shown
from ue_rl.protocol.buffers import Resets, StepBuffers
from ue_rl.protocol.text import Codec
from ue_rl.system.errors import MalformedMessage


class RowWiring(SharedWiring):
    """See the module's docstring. A step of all envs is asked in binary, all else in text.

    An answer to text is text. One to a binary step is binary, or text where the game has more to say than rows hold.

    Args:
        page: the socket of `link`, on which binary messages may come from now on.
        link, codec, buffers, numbers: see SharedWiring.
    """

    name = "shared channel, binary steps"

    def __init__(
        self, page: PageSocket, link: Link, codec: Codec, buffers: StepBuffers, numbers: AnswerNumbers
    ) -> None:
        super().__init__(link, codec, buffers, numbers=numbers)
        self._page = page
        self._rows = RowCodec(codec.spec, codec.kernels == "compiled")
        self._order = numbers
        self._in_rows = False  # the last request was binary
        page.take_rows(self._rows.longest)

    def send(self, actions: NDArray[np.float32] | None, resets: Resets | None, deadline: float) -> None:
        """See SharedWiring."""
        self._in_rows = actions is not None and resets is None
        if actions is None or resets is not None:
            super().send(actions, resets, deadline)
            return
        number = self._link.number + 1
        message = self._rows.encode_step(actions, number)
        self._link.number = number
        if self.before:
            line = self.before
            self.before = b""
            self._link.send(line, deadline)
        self._link.send(message, deadline)

    def receive(self, due: int, deadline: float) -> None:
        """See SharedWiring."""
        link = self._link
        while due:
            message = self._at_once()
            if message is not None:
                due -= self._read(message)
                continue
            start, end = link.next_span(deadline)
            if link.lines.data[end - 1] == ROWS_CAME:
                due -= self._read(self._page.next_rows())
            else:
                due -= self._read_line(link.lines.data, start, end)

    def _at_once(self) -> bytes | None:
        """The answer, where it is binary and next."""
        if not self._in_rows or len(self._link.lines):
            return None
        try:
            return self._page.receive_rows()
        except OSError as error:
            raise self._link.gone(error) from error

    def _read(self, message: bytes) -> int:
        """The envs that a binary message answers for."""
        if self._in_rows:
            answered = self._rows.read_usual(message, self._buffers, self._link.number)
            if answered:
                return answered
        head = self._rows.read_head(message)
        if not self._in_rows:
            raise MalformedMessage(
                "a request of text was answered by a binary message",
                fault="engine",
                expected="a line of text",
                got=shown(message),
            )
        if not self._order.is_due(head.number, self._link.number, message):
            return 0
        return self._rows.decode_states(message, head, self._buffers)

    def _read_line(self, data: Any, start: int, end: int) -> int:
        """The envs that a line answers for."""
        number = self._link.number
        answered = self._codec.decode_states(data, self._buffers, None, start, end, number)
        if not answered:
            self._order.end_of_rows(data, start, end, number)  # raises, or the line is dropped
        self.heard(data, start, end)
        return answered
