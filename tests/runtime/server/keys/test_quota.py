"""What is left to a key, by a clock that the test moves."""

import pytest

from caesura.runtime.errors import UsageError
from caesura.runtime.server.http.errors import ApiError
from caesura.runtime.server.keys.access import Door
from caesura.runtime.server.keys.key import Key, read_keys, salted
from caesura.runtime.server.keys.quota import Bucket, Quota, Quotas

ANN = {"Authorization": "Bearer ann-secret"}


def test_a_bucket_fills_in_a_minute_and_holds_no_more():
    bucket = Bucket(60, now=0.0)
    bucket.take(60, 0.0)
    assert bucket.seconds_until(1, 0.0) == pytest.approx(1.0)
    assert bucket.level(30.0) == pytest.approx(30.0)
    assert bucket.level(1000.0) == 60.0
    assert bucket.seconds_until(61, 1000.0) == float("inf")


def test_a_debt_is_paid_before_anything_is_given():
    bucket = Bucket(60, now=0.0)
    bucket.take(120, 0.0)
    assert bucket.level(0.0) == -60.0
    assert bucket.seconds_until(1, 0.0) == pytest.approx(61.0)


def test_a_clock_that_goes_back_gives_nothing():
    bucket = Bucket(60, now=100.0)
    bucket.take(60, 100.0)
    assert bucket.level(40.0) == 0.0
    assert bucket.level(101.0) == pytest.approx(1.0)


def test_requests_in_flight_end():
    quota = Quota(Key("s", in_flight=1), 0.0)
    assert quota.begin(0.0) is None
    refusal = quota.begin(0.0)
    assert refusal is not None and refusal.what == "requests in flight"
    quota.end()
    assert quota.begin(0.0) is None


def test_a_refusal_says_when_to_come_back():
    quota = Quota(Key("s", rpm=2), 0.0)
    assert [quota.begin(0.0) for _ in range(2)] == [None, None]
    refused = quota.begin(0.0)
    error = refused.error()
    assert (error.status, error.code, error.headers) == (
        429,
        "rate_limit_exceeded",
        {"Retry-After": "30"},
    )
    assert quota.begin(refused.seconds) is None


def test_what_is_refused_costs_nothing():
    quota = Quota(Key("s", rpm=1, in_flight=1), 0.0)
    assert quota.begin(0.0) is None
    assert quota.begin(0.0) is not None
    quota.end()
    assert quota.begin(60.0) is None


def test_tokens_are_counted_behind_a_request():
    quota = Quota(Key("s", tpm=600), 0.0)
    assert quota.begin(0.0) is None
    quota.spend(1200, 0.0)
    assert quota.begin(0.0).what == "tokens in a minute"
    assert quota.begin(59.0) is not None
    assert quota.begin(60.2) is None


def test_answers_tell_what_is_left_under_openais_names():
    now = 0.0
    keys = [Key("ann-secret", rpm=60, tpm=600), Key("bob")]
    quotas = Quotas(keys, lambda: now)
    ann, bob = (Door(keys).sender(each) for each in (ANN, {"x-api-key": "bob"}))
    assert len(quotas) == 1
    quotas.begin(ann)
    quotas.spend(ann, 300)
    assert quotas.headers(ann) == {
        "x-ratelimit-limit-requests": "60",
        "x-ratelimit-remaining-requests": "59",
        "x-ratelimit-reset-requests": "1.000s",
        "x-ratelimit-limit-tokens": "600",
        "x-ratelimit-remaining-tokens": "300",
        "x-ratelimit-reset-tokens": "30.000s",
    }
    assert quotas.headers(bob) == {}
    for _ in range(59):
        quotas.begin(ann)
    with pytest.raises(ApiError, match="at most 60 requests in a minute"):
        quotas.begin(ann)


@pytest.mark.parametrize(
    ("secret", "shown"),
    [("ann-secret\n", "ann-secret"), ("clé-à", "clé-à".encode().decode("latin-1"))],
)
def test_a_key_keeps_its_limits_however_it_is_written(secret, shown):
    door = Door([Key(secret, in_flight=1)])
    sender = door.sender({"Authorization": f"Bearer {shown}"})
    assert door.quotas.of(sender) is not None


def test_salts_tell_tenants_and_their_own_salts_apart():
    assert len({salted("a", None), salted("b", None), salted("a", ""), salted("a", "x")}) == 4
    assert salted("a", "x") == salted("a", "x")


def test_a_file_names_keys_and_bounds_them(tmp_path):
    file = tmp_path / "keys"
    file.write_text("anns-secret name=ann rpm=60 tpm=1000 in_flight=8 weight=2  # hers\ntwo\n")
    ann, two = read_keys(file)
    assert ann == Key("anns-secret", "ann", 2.0, in_flight=8, rpm=60, tpm=1000)
    assert (ann.who, two.who) == ("ann", f"key {two.tenant[:8]}")
    assert ann.is_limited and not two.is_limited
    assert "secret" not in repr(ann)


@pytest.mark.parametrize(
    ("line", "wrong"),
    [
        ("hidden rpm=0", "rpm of key 1 must be a whole number above 0, got '0'"),
        ("hidden rpm=-1", "rpm of key 1"),
        ("hidden tpm=many", "tpm of key 1"),
        ("hidden key", "behind key 1 there may only be name=, weight="),
        ("hidden speed=1", "behind key 1 there may only be"),
        (f"hidden name={'x' * 65}", "the name of key 1 has more than 64 characters"),
        ("hidden name=ann\nsecret name=ann", "two keys have the name 'ann'"),
    ],
)
def test_a_wrong_line_is_refused_without_showing_the_key(tmp_path, line, wrong):
    file = tmp_path / "keys"
    file.write_text(line)
    with pytest.raises(UsageError) as caught:
        read_keys(file)
    assert wrong in str(caught.value)
    assert "hidden" not in str(caught.value)
