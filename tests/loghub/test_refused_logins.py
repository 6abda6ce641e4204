"""Few refused logins have a line in the log, however many there are."""

from loghub.refused_logins import RefusedLogins

MINUTE_S = 60.0


def test_a_refusal_is_news_once_a_minute() -> None:
    refused = RefusedLogins()
    attempts = [refused.is_news("10.0.0.1", "demo", now_s=second) for second in range(130)]
    assert [second for second, is_news in enumerate(attempts) if is_news] == [0, 60, 120]


def test_another_peer_or_name_is_news_of_its_own() -> None:
    refused = RefusedLogins()
    who = [("10.0.0.1", "demo"), ("10.0.0.2", "demo"), ("10.0.0.1", "other")]
    assert [refused.is_news(*one, now_s=0) for one in who * 2] == [True] * 3 + [False] * 3


def test_a_new_name_for_each_attempt_does_not_fill_the_log() -> None:
    refused = RefusedLogins()
    for minute in range(3):
        now_s = minute * MINUTE_S
        assert sum(refused.is_news("10.0.0.1", f"{minute}-{n}", now_s=now_s) for n in range(5000)) == 20
    # Who had no line gets one as soon as there is room.
    assert refused.is_news("10.0.0.1", "2-4999", now_s=3 * MINUTE_S)
