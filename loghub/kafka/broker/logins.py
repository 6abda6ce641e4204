"""Refused logins, which clients repeat several times a second: each is delayed, and few are logged."""

from collections import OrderedDict

_QUIET_S = 60.0
_MOST = 1000


class RefusedLogins:
    """Who was refused lately, by peer and user."""

    def __init__(self) -> None:
        self._logged: OrderedDict[tuple[str, str], float] = OrderedDict()

    def is_news(self, peer: str, user: str, *, now_s: float) -> bool:
        """Whether this refusal deserves a line: the first one, and then one a minute."""
        last_s = self._logged.get((peer, user))
        if last_s is not None and now_s - last_s < _QUIET_S:
            return False
        self._logged[peer, user] = now_s
        self._logged.move_to_end((peer, user))
        while len(self._logged) > _MOST:
            self._logged.popitem(last=False)
        return True
