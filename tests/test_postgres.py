"""The server that tests are given."""

import psycopg


def test_it_is_a_real_server_on_loopback_with_a_database_for_each_test(postgres_url):
    with psycopg.connect(postgres_url) as connection:
        assert connection.execute("SELECT current_setting('listen_addresses')").fetchone() == ("127.0.0.1",)
        assert connection.execute("SELECT count(*) FROM pg_tables WHERE schemaname = 'public'").fetchone() == (0,)
        assert connection.info.server_version >= 130000
