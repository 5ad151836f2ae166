"""What `caesura demo --kill-engine` tells of its streams."""

from caesura.runtime.cli.kill_engine import Stream


def test_the_silence_around_a_death_is_the_longest_time_without_text_behind_it():
    killed = 10.0
    already_sent = Stream("", times=[1.0, 9.0, 10.5, 14.0, 14.5])
    assert already_sent.silence(killed) == 3.5
    assert Stream("", times=[9.5, 12.0, 12.5]).silence(killed) == 2.0
    assert Stream("", times=[1.0, 10.0]).silence(killed) is None
