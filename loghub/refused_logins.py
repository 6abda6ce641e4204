"""Refused logins, which clients repeat several times a second: few of them get a line in the log."""

from collections import OrderedDict, deque

_QUIET_S = 60.0
_MOST = 1000
_MOST_LINES = 20  # within `_QUIET_S`, for all clients together


class RefusedLogins:
    """Who was refused lately, by peer and by what it gave as its name or did wrong."""

    def __init__(self) -> None:
        self._logged: OrderedDict[tuple[str, str], float] = OrderedDict()
        self._lines: deque[float] = deque(maxlen=_MOST_LINES)

    def is_news(self, peer: str, what: str, *, now_s: float) -> bool:
        """Whether this refusal deserves a line: the first one, and then one a minute, as long as
        `_MOST_LINES` a minute are enough for all: an attacker may give a new name each time."""
        last_s = self._logged.get((peer, what))
        if last_s is not None and now_s - last_s < _QUIET_S:
            return False
        if len(self._lines) == _MOST_LINES and now_s - self._lines[0] < _QUIET_S:
            return False
        self._lines.append(now_s)
        self._logged[peer, what] = now_s
        self._logged.move_to_end((peer, what))
        while len(self._logged) > _MOST:
            self._logged.popitem(last=False)
        return True
