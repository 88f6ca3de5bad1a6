"""Login attempts are rate limited by name and by address, and the counters expire. Each test uses
its own addresses."""

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from uuid import uuid4

import pytest
from django.test import Client

from audit.models import AuditRecord
from tests.ui.pages import text
from tools.accounts.login import lockout
from tools.accounts.login.lockout import (
    ADDRESS_LIMIT,
    NAME_LIMIT,
    PAIR_LIMIT,
    SECOND_FACTOR,
    LoginAttempt,
    TooManyAttempts,
    limit_attempts,
)
from tools.models import User

GOOD = "correct horse"


@pytest.fixture
def address() -> Callable[[], str]:
    """A new address for each call."""
    return lambda: f"2001:db8:{uuid4().hex[:4]}:{uuid4().hex[:4]}::1"


def fail(name: str, address: str, times: int = 1) -> None:
    for _ in range(times):
        with limit_attempts(username=name, source_ip=address):
            pass


def succeed(name: str, address: str) -> None:
    with limit_attempts(username=name, source_ip=address) as attempt:
        attempt.succeeded()


def wait_of(name: str, address: str) -> int:
    """Seconds for which the next attempt is refused."""
    with (
        pytest.raises(TooManyAttempts) as refused,
        limit_attempts(username=name, source_ip=address),
    ):
        raise AssertionError("the password was looked at")
    return int(refused.value.details["resets_in_s"])


def let_pass(*keys: str) -> None:
    """End the lockout and the one-second pause between two attempts from a known address."""
    for key in keys:
        lockout._connection().hset(key, mapping={"until": "0", "next": "0"})


def enter(address: str, user: User, password: str = GOOD):
    data = {"username": user.username, "password": password}
    return Client().post("/login/", data, REMOTE_ADDR=address)


def test_the_next_try_is_refused_with_how_long(admin_user: User, address) -> None:
    here = address()
    for _ in range(PAIR_LIMIT.most):
        assert enter(here, admin_user, "wrong").status_code == 401
    answer = enter(here, admin_user)
    assert answer.status_code == 429
    assert 0 < int(answer["Retry-After"]) <= lockout.FIRST_LOCKOUT_S
    assert f"Try again in {answer['Retry-After']} seconds" in text(answer)


def test_an_unknown_username_is_refused_alike(admin_user: User, address) -> None:
    here, unknown_user = address(), User(username=f"nobody-{uuid4().hex}")
    for user in (admin_user, unknown_user):
        for _ in range(PAIR_LIMIT.most):
            enter(here, user, "wrong")
    known, unknown = (enter(here, user, "wrong") for user in (admin_user, unknown_user))
    assert (known.status_code, unknown.status_code) == (429, 429)
    assert abs(int(known["Retry-After"]) - int(unknown["Retry-After"])) <= 30


def test_each_while_is_twice_as_long_up_to_an_end(admin_user: User, address) -> None:
    name, here = admin_user.username, address()
    pair = lockout.counter_keys(name, here)[0]
    waits = []
    for _ in range(8):
        fail(name, here, PAIR_LIMIT.most)
        waits.append(wait_of(name, here))
        let_pass(pair)
    wanted = [60, 120, 240, 480, 960, 1920, 3600, 3600]
    for waited, most in zip(waits, wanted, strict=True):
        assert most - 20 < waited <= most, waits  # the failures took a moment to be recorded


def test_a_success_forgets_the_failures_of_its_name_and_address(admin_user: User, address) -> None:
    name, here = admin_user.username, address()
    fail(name, here, PAIR_LIMIT.most - 1)
    succeed(name, here)
    assert lockout._connection().exists(lockout.counter_keys(name, here)[0]) == 0


def test_an_address_with_many_names_is_slowed_down_and_never_closed(
    admin_user: User, address
) -> None:
    here = address()
    fail_with_many_names(here)
    of_address = lockout.counter_keys("", here)[1]
    for longest in (1, 2, 4, 8, 8, 8):
        assert wait_of(admin_user.username, here) <= longest
        let_pass(of_address)
        fail(f"nobody-{uuid4().hex}", here)
    let_pass(of_address)
    succeed(admin_user.username, here)
    succeed(admin_user.username, address())


def fail_with_many_names(address: str) -> None:
    nearly(lockout.counter_keys("", address)[1], ADDRESS_LIMIT)
    fail(f"nobody-{uuid4().hex}", address)


def nearly(key: str, bound: lockout.LockoutLimit) -> None:
    """One failure fewer than the lockout threshold."""
    now_ms = lockout._connection().time()[0] * 1000
    lockout._connection().hset(key, mapping={"began": now_ms, "failures": bound.most - 1})


def test_who_got_in_before_gets_in_there_whatever_others_try(admin_user: User, address) -> None:
    """At that address, with that name, from anywhere, and with other names."""
    name, work = admin_user.username, address()
    succeed(name, work)
    pair, _, of_name, _ = lockout.counter_keys(name, work)
    for _ in range(PAIR_LIMIT.most * 3):
        fail(name, work)
        let_pass(pair)
    fail_with_many_names(work)
    nearly(of_name, NAME_LIMIT)
    fail(name, address())
    assert enter(work, admin_user).status_code == 302
    assert enter(work, admin_user).status_code == 302


def test_guesses_at_a_familiar_place_are_looked_at_one_a_second(admin_user: User, address) -> None:
    name, work = admin_user.username, address()
    succeed(name, work)
    fail(name, work)
    assert enter(work, admin_user)["Retry-After"] == "1"
    let_pass(lockout.counter_keys(name, work)[0])
    fail(name, work)
    found = AuditRecord.objects.filter(code="AUTH.LOGIN_FAILED", actor=name, source_ip=work)
    reasons = [*found.order_by("id").values_list("reason", flat=True)]
    assert reasons == ["login_failed", "too_many_attempts", "login_failed"]


def test_a_familiar_place_is_forgotten_for_newer_ones_of_the_same_name_alone(
    admin_user: User, address
) -> None:
    name, work, stranger = admin_user.username, address(), f"somebody-{uuid4().hex}"
    succeed(name, work)
    for _ in range(lockout.FAMILIAR_PLACES + 5):
        succeed(stranger, address())
    fail(name, address(), PAIR_LIMIT.most - 1)
    assert is_familiar(name, work)
    for _ in range(lockout.FAMILIAR_PLACES):
        succeed(name, address())
    assert not is_familiar(name, work)
    places = lockout.counter_keys(name, work)[3]
    assert lockout._connection().zcard(places) == lockout.FAMILIAR_PLACES
    assert 0 < lockout._connection().ttl(places) <= lockout.FAMILIAR_S


def is_familiar(name: str, address: str) -> bool:
    return lockout._is_familiar(lockout.counter_keys(name, address)[3], lockout.network_of(address))


def test_a_familiar_password_spares_no_bound_of_a_second_factor(admin_user: User, address) -> None:
    name, work = admin_user.username, address()
    with limit_attempts(username=name, source_ip=work, what=SECOND_FACTOR) as attempt:
        attempt.succeeded()
    for _ in range(SECOND_FACTOR.bounds[0].most):
        with limit_attempts(username=name, source_ip=work, what=SECOND_FACTOR):
            pass
    with (
        pytest.raises(TooManyAttempts) as refused,
        limit_attempts(username=name, source_ip=work, what=SECOND_FACTOR),
    ):
        raise AssertionError("the code was looked at")
    assert refused.value.details["resets_in_s"] > 30


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("2001:db8:1:2::1", "2001:db8:1:2:ffff::7", True),
        ("2001:db8:1:2::1", "2001:db8:1:3::1", False),
        ("::ffff:192.0.2.7", "192.0.2.7", True),
        ("192.0.2.7", "192.0.2.8", False),
    ],
)
def test_a_customers_network_of_ipv6_is_one_place(one: str, other: str, same: bool) -> None:
    assert (lockout.network_of(one) == lockout.network_of(other)) == same


def test_few_passwords_of_one_address_are_checked_at_once(admin_user: User, address) -> None:
    """Events hold the checks open, so that nothing depends on time."""
    here, data = address(), {"username": admin_user.username, "password": GOOD}
    with checking(here, lockout.CHECKS_OF_ADDRESS):
        refused = enter(here, admin_user)
        assert (refused.status_code, refused["Retry-After"]) == (429, "1")
        token = Client().post(
            "/api/v1/tokens", data | {"label": "x"}, "application/json", REMOTE_ADDR=here
        )
        assert (token.status_code, token["Retry-After"]) == (429, "1")
        assert enter(address(), admin_user).status_code == 302
    assert enter(here, admin_user).status_code == 302


def test_a_familiar_password_is_checked_while_strangers_have_their_places(
    admin_user: User, address
) -> None:
    work = address()
    succeed(admin_user.username, work)
    with ExitStack() as strangers:
        for _ in range(lockout.CHECKS_OF_UNFAMILIAR):
            strangers.enter_context(checking(address(), 1))
        refused = enter(address(), admin_user)
        assert (refused.status_code, refused["Retry-After"]) == (503, "1")
        assert enter(work, admin_user).status_code == 302
    assert enter(address(), admin_user).status_code == 302


@contextmanager
def checking(address: str, count: int) -> Iterator[None]:
    """So many password checks for the address are in progress."""
    with ExitStack() as held:
        for _ in range(count):
            one = limit_attempts(username=f"nobody-{uuid4().hex}", source_ip=address)
            held.enter_context(one)
        yield


def test_an_account_of_ones_own_wins_no_further_tries(admin_user: User, address) -> None:
    here = address()
    for at in range(ADDRESS_LIMIT.most):
        fail(f"nobody-{uuid4().hex}", here)
        if at % 10 == 5:
            succeed(admin_user.username, here)
    wait_of(f"nobody-{uuid4().hex}", here)


def test_a_name_from_many_addresses_is_slowed_down(admin_user: User, address) -> None:
    name = admin_user.username
    of_name = lockout.counter_keys(name, "")[2]
    nearly(of_name, NAME_LIMIT)
    fail(name, address())
    assert wait_of(name, address()) == 1
    lockout._connection().hset(of_name, "times", 40)
    let_pass(of_name)
    fail(name, address())
    assert wait_of(name, address()) <= NAME_LIMIT.longest_s
    let_pass(of_name)
    succeed(name, address())


def test_good_passwords_are_never_counted(admin_user: User, address) -> None:
    here = address()
    for _ in range(ADDRESS_LIMIT.most + 5):
        succeed(admin_user.username, here)
    succeed(admin_user.username, here)


def test_a_success_at_the_bound_takes_back_what_it_reached(admin_user: User, address) -> None:
    here = address()
    for _ in range(ADDRESS_LIMIT.most - 1):
        fail(f"nobody-{uuid4().hex}", here)
    succeed(admin_user.username, here)
    succeed(admin_user.username, here)
    fail(f"nobody-{uuid4().hex}", here)
    assert wait_of(f"nobody-{uuid4().hex}", here) == 1


def test_tries_at_once_do_not_all_pass(admin_user: User, address) -> None:
    here, passed, refused = address(), list[LoginAttempt](), list[str]()
    together = threading.Barrier(PAIR_LIMIT.most)

    def several() -> None:
        together.wait()
        for _ in range(3):
            one = lockout._run_script(
                lockout._COUNT_SCRIPT,
                lockout.counter_keys(admin_user.username, here),
                [*lockout.PASSWORD.script_arguments, "here", 60],
            )
            (refused.append("no") if one[0] else passed.append(LoginAttempt()))

    threads = [threading.Thread(target=several) for _ in range(PAIR_LIMIT.most)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(passed), len(refused)) == (PAIR_LIMIT.most, 2 * PAIR_LIMIT.most)


def test_every_failure_is_on_record_and_each_while_once(admin_user: User, address) -> None:
    name, here = admin_user.username, address()
    fail(name, here, PAIR_LIMIT.most)
    for _ in range(5):
        wait_of(name, here)
    found = AuditRecord.objects.filter(code="AUTH.LOGIN_FAILED", actor=name, source_ip=here)
    reasons = [*found.order_by("id").values_list("reason", flat=True)]
    assert reasons == ["login_failed"] * PAIR_LIMIT.most + ["too_many_attempts"]


def test_what_is_counted_is_forgotten_when_it_stops_mattering(admin_user: User, address) -> None:
    """Guesses from many addresses must not fill the memory that logins and calls need."""
    keys = lockout.counter_keys(admin_user.username, here := address())[:3]
    fail(admin_user.username, here)
    for key, bound in zip(keys, lockout.LIMITS, strict=True):
        assert 0 < lockout._connection().ttl(key) <= bound.window_s
    lockout._connection().hset(keys[0], "times", 40)
    fail(admin_user.username, here, PAIR_LIMIT.most - 1)
    assert PAIR_LIMIT.longest_s < lockout._connection().ttl(keys[0]) <= 2 * PAIR_LIMIT.longest_s


def test_the_addresses_others_name_in_headers_count_for_nothing(admin_user: User, address) -> None:
    here, name = address(), admin_user.username
    for at in range(PAIR_LIMIT.most):
        data = {"username": name, "password": "wrong"}
        headers = {"X-Forwarded-For": f"10.1.1.{at}"}
        Client().post("/login/", data, headers=headers, REMOTE_ADDR=here)
    assert enter(here, admin_user).status_code == 429


def test_the_administration_has_no_door_of_its_own(admin_user: User, address) -> None:
    here = address()
    fail(admin_user.username, here, PAIR_LIMIT.most)
    data = {"username": admin_user.username, "password": GOOD, "next": "/admin/"}
    there = Client().post("/admin/login/", data, REMOTE_ADDR=here)
    assert there["Location"].startswith("/login/?next=")
    assert Client().post("/login/", data, REMOTE_ADDR=here).status_code == 429
