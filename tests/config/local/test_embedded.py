import os
import signal
from pathlib import Path

import psycopg
import pytest
import redis

from config.env import database_options
from config.local import embedded
from tests.conditions import until
from tests.config.local.processes import alive, using


def connect(data: Path, role: str = "toolcrib") -> psycopg.Connection:
    host = str(database_options(embedded.database_url(data))["HOST"])
    return psycopg.connect(host=host, user=role, dbname="toolcrib", autocommit=True)


@pytest.mark.part("faults")
def test_data_survives_a_stop_and_a_start(tmp_path: Path) -> None:
    with embedded.running_servers(tmp_path):
        with connect(tmp_path) as database:
            database.execute("CREATE TABLE loan AS SELECT 'hammer' AS tool")
        with redis.Redis.from_url(embedded.redis_url(tmp_path)) as broker:
            broker.set("loan", "hammer")
    with embedded.running_servers(tmp_path):
        with connect(tmp_path) as database:
            assert database.execute("SELECT tool FROM loan").fetchone() == ("hammer",)
        with redis.Redis.from_url(embedded.redis_url(tmp_path)) as broker:
            assert broker.get("loan") == b"hammer"
    assert using(tmp_path) == []


def test_the_product_is_no_superuser_and_cannot_become_one(tmp_path: Path) -> None:
    with embedded.running_servers(tmp_path):
        with connect(tmp_path) as database:
            query = "SELECT rolsuper FROM pg_roles WHERE rolname = current_user"
            assert database.execute(query).fetchone() == (False,)
        if os.geteuid() == 0:
            with pytest.raises(psycopg.OperationalError, match="Peer authentication failed"):
                connect(tmp_path, role="owner")


@pytest.mark.part("faults")
def test_committed_data_survives_the_kill_of_the_server(tmp_path: Path) -> None:
    with embedded.running_servers(tmp_path) as supervisor:
        with connect(tmp_path) as database:
            database.execute("CREATE TABLE loan AS SELECT 'hammer' AS tool")
        os.kill(supervisor.managed["postgres"].child.pid, signal.SIGKILL)
    with embedded.running_servers(tmp_path), connect(tmp_path) as database:
        assert database.execute("SELECT tool FROM loan").fetchone() == ("hammer",)


@pytest.mark.part("faults")
def test_a_process_id_that_is_not_postgres_does_not_hinder_the_start(tmp_path: Path) -> None:
    with embedded.running_servers(tmp_path):
        pass
    cluster = tmp_path / "postgres" / "18"
    (cluster / "postmaster.pid").write_text(f"{os.getpid()}\n{cluster}\n", encoding="utf-8")
    with embedded.running_servers(tmp_path), connect(tmp_path) as database:
        assert database.execute("SELECT 1").fetchone() == (1,)


@pytest.mark.part("faults")
def test_a_server_that_outlived_its_supervisor_is_stopped_first(tmp_path: Path) -> None:
    with embedded.running_servers(tmp_path) as supervisor:
        outliving = supervisor.managed["postgres"].child.pid
        (tmp_path / "processes.json").unlink()
        embedded.database_server(tmp_path).before_start()
        until(lambda: not alive(outliving))
    with embedded.running_servers(tmp_path), connect(tmp_path) as database:
        assert database.execute("SELECT 1").fetchone() == (1,)


@pytest.mark.part("faults")
def test_sockets_of_a_long_path_lie_in_a_short_private_directory(tmp_path: Path) -> None:
    data = tmp_path / ("long" * 25)
    assert len(str(embedded.socket_directory(data))) < 40
    with embedded.running_servers(data), connect(data) as database:
        assert database.execute("SELECT 1").fetchone() == (1,)


def test_a_socket_directory_of_another_user_is_refused(tmp_path: Path) -> None:
    if os.geteuid():
        pytest.skip("only root can give a directory away")
    embedded.socket_directory(tmp_path).mkdir()
    os.chown(embedded.socket_directory(tmp_path), 64399, 64399)
    with pytest.raises(embedded.UnsafeDirectory, match="belongs to somebody else"):
        embedded.make_socket_directory(tmp_path)
    embedded.remove_socket_directory(tmp_path)


def test_sockets_of_servers_that_others_run_are_left(tmp_path: Path) -> None:
    directory = embedded.make_socket_directory(tmp_path)
    for place in embedded.SOCKET_DIRECTORIES:
        (directory / place).mkdir()
    embedded.remove_socket_directory(tmp_path, kept=["database"])
    assert [one.name for one in directory.iterdir()] == ["database"]
    embedded.remove_socket_directory(tmp_path)
    assert not directory.exists()


@pytest.mark.parametrize(
    ("url", "for_celery"),
    [
        ("unix:///a%20b/valkey.sock?db=0", "redis+socket:///a%20b/valkey.sock?virtual_host=0"),
        ("redis://cache.example/1", "redis://cache.example/1"),
    ],
)
def test_celery_gets_the_same_server_by_its_own_name(url: str, for_celery: str) -> None:
    assert embedded.broker_url(url) == for_celery
