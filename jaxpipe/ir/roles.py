"""Run the roles of one block side by side, one at a time, the next one chosen by a function.

In: one callable a role; each gets a function `pause(ready)` that it calls where others may go on.
Out: nothing; what a role raises is raised here, and IrError when no role can go on. Roles run in
threads of their own because they pause in the middle of nested loops; the turn is handed over
explicitly, so the order is decided by `choose` alone.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from jaxpipe.errors import IrError

Ready = Callable[[], bool]
Pause = Callable[[Ready], None]
RoleBody = Callable[[Pause], None]


def run_side_by_side(
    names: Sequence[str], bodies: Sequence[RoleBody], choose: Callable[[Sequence[int]], int]
) -> None:
    """Run every body to its end; `choose` picks among the indices of those that can go on."""
    turns = _Turns(names, choose)
    threads = [
        threading.Thread(target=turns.run, args=(i, body), daemon=True)
        for i, body in enumerate(bodies)
    ]
    for thread in threads:
        thread.start()
    turns.hand_over()
    for thread in threads:
        thread.join()
    if turns.error is not None:
        raise turns.error


class _StoppedError(Exception):
    """Ends a role after another has failed."""


class _Turns:
    """Who may go on: `ready[i]` says whether role i can, None that it has ended."""

    def __init__(self, names: Sequence[str], choose: Callable[[Sequence[int]], int]) -> None:
        self.names = names
        self.choose = choose
        self.ready: list[Ready | None] = [lambda: True for _ in names]
        self.turn = [threading.Semaphore(0) for _ in names]
        self.error: Exception | None = None

    def run(self, me: int, body: RoleBody) -> None:
        self.turn[me].acquire()
        try:
            if self.error is None:
                body(lambda ready: self.pause(me, ready))
        except _StoppedError:
            pass
        except Exception as error:
            self.error = error
        self.ready[me] = None
        self.hand_over()

    def pause(self, me: int, ready: Ready) -> None:
        self.ready[me] = ready
        self.hand_over()
        self.turn[me].acquire()
        if self.error is not None:
            raise _StoppedError

    def hand_over(self) -> None:
        """Give the turn to a role that can go on, or to all when one has failed."""
        alive = [i for i, ready in enumerate(self.ready) if ready is not None]
        if self.error is None and alive:
            able = [i for i in alive if (ready := self.ready[i]) is not None and ready()]
            if able:
                self.turn[self.choose(able)].release()
                return
            waiting = ", ".join(self.names[i] for i in alive)
            self.error = IrError(f"deadlock: {waiting} wait for each other")
        for i in alive:
            self.ready[i] = None
            self.turn[i].release()
