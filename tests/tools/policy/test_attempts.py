"""How tries to log in are counted, bounded and forgotten. Each test has addresses of its own."""

import threading
from collections.abc import Callable
from uuid import uuid4

import pytest
from django.test import Client

from audit.models import AuditRecord
from tests.ui.pages import text
from tools.models import User
from tools.policy import attempts
from tools.policy.attempts import OF_ADDRESS, OF_NAME, STRICT, Attempt, TooManyAttempts, guarded

GOOD = "correct horse"


@pytest.fixture
def address() -> Callable[[], str]:
    """One that nobody else has, each time."""
    return lambda: f"2001:db8::{uuid4().hex[:4]}:{uuid4().hex[:4]}:{uuid4().hex[:4]}"


def fail(name: str, address: str, times: int = 1) -> None:
    for _ in range(times):
        with guarded(username=name, source_ip=address):
            pass


def succeed(name: str, address: str) -> None:
    with guarded(username=name, source_ip=address) as attempt:
        attempt.succeeded()


def wait_of(name: str, address: str) -> int:
    """How long the next try is refused for."""
    with pytest.raises(TooManyAttempts) as refused, guarded(username=name, source_ip=address):
        raise AssertionError("the password was looked at")
    return int(refused.value.details["resets_in_s"])


def let_pass(*keys: str) -> None:
    """The while is over."""
    for key in keys:
        attempts._connection().hset(key, "until", "0")


def enter(address: str, user: User, password: str = GOOD):
    data = {"username": user.username, "password": password}
    return Client().post("/login/", data, REMOTE_ADDR=address)


def test_the_next_try_is_refused_with_how_long(admin_user: User, address) -> None:
    here = address()
    for _ in range(STRICT.most):
        assert enter(here, admin_user, "wrong").status_code == 401
    answer = enter(here, admin_user)
    assert answer.status_code == 429
    assert 0 < int(answer["Retry-After"]) <= attempts.FIRST_WHILE_S
    assert f"Try again in {answer['Retry-After']} seconds" in text(answer)


def test_a_name_that_nobody_has_is_refused_alike(admin_user: User, address) -> None:
    here, nobody = address(), User(username=f"nobody-{uuid4().hex}")
    for user in (admin_user, nobody):
        for _ in range(STRICT.most):
            enter(here, user, "wrong")
    known, unknown = (enter(here, user, "wrong") for user in (admin_user, nobody))
    assert (known.status_code, unknown.status_code) == (429, 429)
    assert abs(int(known["Retry-After"]) - int(unknown["Retry-After"])) <= 30


def test_each_while_is_twice_as_long_up_to_an_end(admin_user: User, address) -> None:
    name, here = admin_user.username, address()
    pair = attempts.keys_of(name, here)[0]
    waits = []
    for _ in range(8):
        fail(name, here, STRICT.most)
        waits.append(wait_of(name, here))
        let_pass(pair)
    wanted = [60, 120, 240, 480, 960, 1920, 3600, 3600]
    for waited, most in zip(waits, wanted, strict=True):
        assert most - 20 < waited <= most, waits  # the failures took a moment to be recorded


def test_a_success_forgets_the_failures_of_its_name_and_address(admin_user: User, address) -> None:
    name, here = admin_user.username, address()
    for _ in range(3):
        fail(name, here, STRICT.most - 1)
        succeed(name, here)


def test_many_names_from_one_address_are_refused_and_others_come_in(
    admin_user: User, address
) -> None:
    here = address()
    for _ in range(OF_ADDRESS.most):
        fail(f"nobody-{uuid4().hex}", here)
    assert wait_of(admin_user.username, here) <= 60
    succeed(admin_user.username, address())


def test_an_account_of_ones_own_wins_no_further_tries(admin_user: User, address) -> None:
    here = address()
    for at in range(OF_ADDRESS.most):
        fail(f"nobody-{uuid4().hex}", here)
        if at % 10 == 5:
            succeed(admin_user.username, here)
    wait_of(f"nobody-{uuid4().hex}", here)


def test_a_name_from_many_addresses_is_refused_but_not_where_its_owner_works(
    admin_user: User, address
) -> None:
    name, work = admin_user.username, address()
    succeed(name, work)
    for _ in range(OF_NAME.most):
        fail(name, address())
    assert wait_of(name, address()) <= 60
    succeed(name, work)
    assert wait_of(name, address()) <= 60


def test_a_while_for_a_name_ends_soon_however_often_it_is_guessed(
    admin_user: User, address
) -> None:
    name = admin_user.username
    of_name = attempts.keys_of(name, "")[2]
    attempts._connection().hset(of_name, "times", 40)
    for _ in range(OF_NAME.most):
        fail(name, address())
    assert OF_NAME.longest_s - 60 < wait_of(name, address()) <= OF_NAME.longest_s
    let_pass(of_name)
    succeed(name, address())


def test_good_passwords_are_never_counted(admin_user: User, address) -> None:
    here = address()
    for _ in range(OF_ADDRESS.most + 5):
        succeed(admin_user.username, here)
    succeed(admin_user.username, here)


def test_a_success_at_the_bound_takes_back_what_it_reached(admin_user: User, address) -> None:
    here = address()
    for _ in range(OF_ADDRESS.most - 1):
        fail(f"nobody-{uuid4().hex}", here)
    succeed(admin_user.username, here)
    succeed(admin_user.username, here)
    fail(f"nobody-{uuid4().hex}", here)
    assert wait_of(admin_user.username, here) <= 60


def test_tries_at_once_do_not_all_pass(admin_user: User, address) -> None:
    here, passed, refused = address(), list[Attempt](), list[str]()
    together = threading.Barrier(STRICT.most)

    def several() -> None:
        together.wait()
        for _ in range(3):
            one = attempts._ask(
                attempts._TAKE,
                attempts.keys_of(admin_user.username, here),
                [*(part for bound in attempts.BOUNDS for part in bound.given), 60, 60],
            )
            (refused.append("no") if one[0] else passed.append(Attempt()))

    threads = [threading.Thread(target=several) for _ in range(STRICT.most)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(passed), len(refused)) == (STRICT.most, 2 * STRICT.most)


def test_every_failure_is_on_record_and_each_while_once(admin_user: User, address) -> None:
    name, here = admin_user.username, address()
    fail(name, here, STRICT.most)
    for _ in range(5):
        wait_of(name, here)
    found = AuditRecord.objects.filter(code="AUTH.LOGIN_FAILED", actor=name, source_ip=here)
    reasons = [*found.order_by("id").values_list("reason", flat=True)]
    assert reasons == ["login_failed"] * STRICT.most + ["too_many_attempts"]


def test_what_is_counted_is_forgotten_in_a_day(admin_user: User, address) -> None:
    keys = attempts.keys_of(admin_user.username, here := address())
    fail(admin_user.username, here)
    for key in keys[:3]:
        assert 0 < attempts._connection().ttl(key) <= attempts.REMEMBERED_S


def test_the_addresses_others_name_in_headers_count_for_nothing(admin_user: User, address) -> None:
    here, name = address(), admin_user.username
    for at in range(STRICT.most):
        data = {"username": name, "password": "wrong"}
        headers = {"X-Forwarded-For": f"10.1.1.{at}"}
        Client().post("/login/", data, headers=headers, REMOTE_ADDR=here)
    assert enter(here, admin_user).status_code == 429


def test_the_administration_has_no_door_of_its_own(admin_user: User, address) -> None:
    here = address()
    fail(admin_user.username, here, STRICT.most)
    data = {"username": admin_user.username, "password": GOOD, "next": "/admin/"}
    there = Client().post("/admin/login/", data, REMOTE_ADDR=here)
    assert there["Location"].startswith("/login/?next=")
    assert Client().post("/login/", data, REMOTE_ADDR=here).status_code == 429
