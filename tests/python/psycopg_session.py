"""psycopg 3 against the gateway: what an application's driver does.

Usage: psycopg_session.py CONNECTION_STRING

Each function is one check, named for what must hold; a failed assertion ends the program.
The tables are distributed so that statements meet one node, several, and all.
"""

import asyncio
import datetime as dt
import decimal
import ipaddress
import sys
import uuid

import psycopg
from psycopg import sql
from psycopg.rows import dict_row, namedtuple_row
from psycopg.types.json import Jsonb
from psycopg.types.range import Range

TABLES = [
    "CREATE TABLE person (id int PRIMARY KEY, name text NOT NULL, born date, tags text[],"
    " profile jsonb, height float8, debt numeric(12,2)) DISTRIBUTE BY HASH (id)",
    "CREATE TABLE country (code text PRIMARY KEY, name text) DISTRIBUTE BY REPLICATED",
    "CREATE TABLE event (at timestamptz, what text, payload bytea) DISTRIBUTE BY ROUND ROBIN",
    "CREATE TABLE token (id uuid PRIMARY KEY, owner int) DISTRIBUTE BY HASH (id)",
]


def create_tables(url):
    with psycopg.connect(url, autocommit=True) as connection:
        for statement in TABLES:
            connection.execute(statement)


def connection_tells_about_the_server(url):
    with psycopg.connect(url) as connection:
        assert connection.info.server_version >= 150000, connection.info.server_version
        assert connection.info.dbname == "postgres"
        assert connection.info.user == "postgres"
        assert connection.info.encoding == "utf-8"
        assert connection.info.parameter_status("standard_conforming_strings") == "on"
        assert connection.info.backend_pid > 0
        assert connection.info.transaction_status.name == "IDLE"
        connection.execute("SELECT 1")
        assert connection.info.transaction_status.name == "INTRANS"


def parameters_of_many_types_come_back(url):
    values = [
        (1, "int4"), (2**40, "int8"), (-5, "int2"), ("text ‘é’", "text"), (True, "bool"), (None, "text"),
        (1.5, "float8"), (decimal.Decimal("123.450"), "numeric"), (b"\x00\xff", "bytea"),
        (dt.date(2024, 2, 29), "date"), (dt.time(1, 2, 3), "time"),
        (dt.datetime(2024, 2, 29, 1, 2, 3, 456789), "timestamp"),
        (dt.datetime(2024, 2, 29, 1, 2, 3, tzinfo=dt.timezone.utc), "timestamptz"),
        (dt.timedelta(days=3, seconds=5), "interval"), (uuid.UUID(int=7), "uuid"),
        ([1, 2, None], "int4[]"), (["a", 'b"c'], "text[]"), (ipaddress.ip_address("10.0.0.1"), "inet"),
        (Range(1, 5), "int4range"), (Jsonb({"a": [1, None]}), "jsonb"),
    ]
    with psycopg.connect(url, autocommit=True) as connection:
        for binary in (False, True):
            for value, name in values:
                query = sql.SQL("SELECT %s::{}").format(sql.SQL(name))
                with connection.cursor(binary=binary) as cursor:
                    found = cursor.execute(query, [value]).fetchone()[0]
                expected = value.obj if isinstance(value, Jsonb) else value
                assert found == expected, (name, binary, found, expected)


def rows_are_written_and_read_back(url):
    people = [
        (n, f"name {n}", dt.date(2000, 1, 1) + dt.timedelta(n), ["x"] * (n % 3), Jsonb({"n": n}), n / 4,
         decimal.Decimal(n) / 10)
        for n in range(1, 41)
    ]
    with psycopg.connect(url) as connection:
        with connection.cursor() as cursor:
            cursor.executemany("INSERT INTO person VALUES (%s, %s, %s, %s, %s, %s, %s)", people)
            assert cursor.rowcount == 40, cursor.rowcount
            cursor.executemany(
                "INSERT INTO country VALUES (%s, %s) RETURNING code", [("fr", "France"), ("jp", "日本")], returning=True
            )
            codes = [cursor.fetchone()[0]]
            while cursor.nextset():
                codes.append(cursor.fetchone()[0])
            assert codes == ["fr", "jp"], codes
    with psycopg.connect(url, row_factory=dict_row) as connection:
        for binary in (False, True):
            rows = connection.execute("SELECT * FROM person ORDER BY id", binary=binary).fetchall()
            assert len(rows) == 40
            assert rows[4] == {
                "id": 5, "name": "name 5", "born": dt.date(2000, 1, 6), "tags": ["x", "x"], "profile": {"n": 5},
                "height": 1.25, "debt": decimal.Decimal("0.50"),
            }, rows[4]
            one = connection.execute("SELECT name FROM person WHERE id = %s", [17], binary=binary).fetchone()
            assert one == {"name": "name 17"}
        some = connection.execute("SELECT id FROM person WHERE id = ANY (%s) ORDER BY id", [[3, 30, 300]]).fetchall()
        assert [row["id"] for row in some] == [3, 30]
        total = connection.execute("SELECT count(*) AS n, sum(debt) AS debt FROM person").fetchone()
        assert total == {"n": 40, "debt": decimal.Decimal("82.00")}, total
    with psycopg.connect(url, row_factory=namedtuple_row) as connection:
        row = connection.execute("SELECT id, name FROM person WHERE id = 1").fetchone()
        assert (row.id, row.name) == (1, "name 1")


def statements_are_prepared_after_a_few_runs(url):
    with psycopg.connect(url, autocommit=True, prepare_threshold=2) as connection:
        for n in range(1, 25):
            row = connection.execute("SELECT name FROM person WHERE id = %s", [n]).fetchone()
            assert row == (f"name {n}",), row
        connection.execute("UPDATE person SET height = height + 1 WHERE id = %s", [1], prepare=True)
        changed = connection.execute("UPDATE person SET height = height - 1 WHERE id = %s", [1], prepare=True)
        assert changed.rowcount == 1
        # The statement must survive a change of what it reads.
        connection.execute("SELECT * FROM country WHERE code = %s", ["fr"], prepare=True)
        connection.execute("DEALLOCATE ALL")
        connection.execute("CREATE INDEX ON country (name)")
        assert connection.execute("SELECT name FROM person WHERE id = %s", [2]).fetchone() == ("name 2",)


def copy_goes_in_and_out(url):
    with psycopg.connect(url) as connection:
        with connection.cursor() as cursor:
            with cursor.copy("COPY event (at, what, payload) FROM STDIN") as copy:
                for n in range(500):
                    copy.write_row((dt.datetime(2024, 1, 1, tzinfo=dt.timezone.utc), f"what\t{n}", b"\x00" * (n % 5)))
            assert cursor.rowcount == 500, cursor.rowcount
            with cursor.copy("COPY person (id, name) FROM STDIN (FORMAT binary)") as copy:
                copy.set_types(["int4", "text"])
                for n in range(100, 150):
                    copy.write_row((n, f"copied {n}"))
            with cursor.copy("COPY (SELECT id, name FROM person WHERE id >= 100 ORDER BY id) TO STDOUT") as copy:
                copy.set_types(["int4", "text"])
                rows = list(copy.rows())
            assert rows == [(n, f"copied {n}") for n in range(100, 150)], rows[:3]
            with cursor.copy("COPY event TO STDOUT (FORMAT binary)") as copy:
                copy.set_types(["timestamptz", "text", "bytea"])
                assert sorted(row[1] for row in copy.rows()) == sorted(f"what\t{n}" for n in range(500))
        connection.rollback()
        assert connection.execute("SELECT count(*) FROM person").fetchone() == (40,)
        assert connection.execute("SELECT count(*) FROM event").fetchone() == (0,)
        try:
            with connection.cursor() as cursor, cursor.copy("COPY person (id, name) FROM STDIN") as copy:
                copy.write_row((500, "fine"))
                raise KeyError("the client gives up")
        except KeyError:
            pass
        connection.rollback()
        assert connection.execute("SELECT count(*) FROM person WHERE id = 500").fetchone() == (0,)


def pipelines_keep_their_order(url):
    with psycopg.connect(url, autocommit=True) as connection:
        with connection.pipeline() as pipeline:
            cursors = [connection.execute("SELECT id, name FROM person WHERE id = %s", [n]) for n in range(1, 31)]
            counted = connection.execute("SELECT count(*) FROM person")
            pipeline.sync()
            for n, cursor in enumerate(cursors, 1):
                assert cursor.fetchone() == (n, f"name {n}")
            assert counted.fetchone() == (40,)
        try:
            with connection.pipeline():
                connection.execute("INSERT INTO person (id, name) VALUES (900, 'gone')")
                connection.execute("SELECT 1 / 0")
                connection.execute("INSERT INTO person (id, name) VALUES (901, 'gone')")
            raise AssertionError("no error")
        except psycopg.errors.DivisionByZero:
            pass
        left = connection.execute("SELECT count(*) FROM person WHERE id >= 900").fetchone()
        assert left == (0,), left
    with psycopg.connect(url) as connection:
        with connection.pipeline(), connection.transaction():
            for n in range(910, 930):
                connection.execute("INSERT INTO person (id, name) VALUES (%s, %s)", [n, "pipelined"])
        assert connection.execute("SELECT count(*) FROM person WHERE id >= 900").fetchone() == (20,)
        assert connection.execute("DELETE FROM person WHERE id >= 900").rowcount == 20


def cursors_on_the_server_fetch_in_pieces(url):
    with psycopg.connect(url) as connection:
        with connection.cursor("pieces") as cursor:
            cursor.itersize = 7
            cursor.execute("SELECT id FROM person ORDER BY id")
            assert [row[0] for row in cursor] == list(range(1, 41))
        with connection.cursor("scrolling", scrollable=True) as cursor:
            cursor.execute("SELECT id FROM person ORDER BY id")
            cursor.scroll(10)
            assert cursor.fetchone() == (11,)
            cursor.scroll(-5)
            assert cursor.fetchone() == (7,)
        with connection.cursor() as cursor:
            rows = [row[0] for row in cursor.stream("SELECT id FROM person ORDER BY id")]
            assert rows == list(range(1, 41))


def transactions_nest_and_roll_back(url):
    with psycopg.connect(url) as connection:
        with connection.transaction():
            connection.execute("UPDATE person SET debt = debt + 1")
            try:
                with connection.transaction():
                    connection.execute("UPDATE person SET debt = 0")
                    raise KeyError("inner")
            except KeyError:
                pass
            try:
                with connection.transaction("named"):
                    connection.execute("INSERT INTO person (id, name) VALUES (1, 'twice')")
            except psycopg.errors.UniqueViolation:
                pass
            with connection.transaction():
                connection.execute("UPDATE person SET debt = debt + 1 WHERE id = 1")
        total = connection.execute("SELECT sum(debt) FROM person").fetchone()
        assert total == (decimal.Decimal("123.00"),), total
        connection.commit()
        try:
            with connection.transaction():
                connection.execute("DELETE FROM person")
                raise psycopg.Rollback()
        except psycopg.Rollback:
            pass
        assert connection.execute("SELECT count(*) FROM person").fetchone() == (40,)
        connection.commit()
        connection.execute("UPDATE person SET debt = debt - 1")
        connection.execute("UPDATE person SET debt = debt - 1 WHERE id = 1")
        connection.commit()
        connection.isolation_level = psycopg.IsolationLevel.READ_COMMITTED
        connection.read_only = True
        try:
            connection.execute("DELETE FROM person")
            raise AssertionError("read only, and yet deleted")
        except psycopg.errors.ReadOnlySqlTransaction:
            connection.rollback()


def errors_tell_what_and_where(url):
    with psycopg.connect(url, autocommit=True) as connection:
        cases = [
            ("SELECT * FROM nowhere", psycopg.errors.UndefinedTable),
            ("SELEC 1", psycopg.errors.SyntaxError),
            ("INSERT INTO person (id, name) VALUES (1, 'x')", psycopg.errors.UniqueViolation),
            ("INSERT INTO person (id, name) VALUES (2000, 'x'), (1, 'x')", psycopg.errors.UniqueViolation),
            ("INSERT INTO person (id) VALUES (2000)", psycopg.errors.NotNullViolation),
            ("SELECT 1 / (id - 5) FROM person", psycopg.errors.DivisionByZero),
            ("CREATE TABLE person (id int)", psycopg.errors.DuplicateTable),
        ]
        for statement, error in cases:
            try:
                connection.execute(statement)
                raise AssertionError(f"no error from {statement}")
            except error as found:
                assert found.diag.message_primary and found.diag.severity == "ERROR"
                if error is psycopg.errors.UniqueViolation:
                    assert found.diag.constraint_name == "person_pkey", found.diag.constraint_name
                    assert found.diag.table_name == "person"
        try:
            connection.execute("SELECT nothing FROM person")
        except psycopg.errors.UndefinedColumn as found:
            assert found.diag.statement_position == "8", found.diag.statement_position
        assert connection.execute("SELECT count(*) FROM person").fetchone() == (40,)


def notices_and_notifications_arrive(url):
    with psycopg.connect(url, autocommit=True) as connection:
        notices = []
        connection.add_notice_handler(lambda diagnostic: notices.append(diagnostic.message_primary))
        connection.execute("DO $$ BEGIN RAISE NOTICE 'one'; RAISE WARNING 'two'; END $$")
        connection.execute("DROP TABLE IF EXISTS nowhere")
        assert notices == ["one", "two", 'table "nowhere" does not exist, skipping'], notices
        connection.execute("LISTEN news")
        with psycopg.connect(url, autocommit=True) as other:
            other.execute("SELECT pg_notify('news', 'hello')")
        found = next(connection.notifies(timeout=10))
        assert (found.channel, found.payload) == ("news", "hello"), found


def distribution_keys_of_uuid_route_alike_in_text_and_binary(url):
    tokens = [uuid.UUID(int=n * 7919 << 64 | n) for n in range(1, 30)]
    with psycopg.connect(url, autocommit=True) as connection:
        for n, token in enumerate(tokens):
            form = "%b" if n % 2 else "%t"
            connection.execute(f"INSERT INTO token VALUES ({form}, {form})", [token, n])
        for n, token in enumerate(tokens):
            for form in ("%b", "%t", "%s"):
                row = connection.execute(f"SELECT owner FROM token WHERE id = {form}", [token]).fetchone()
                assert row == (n,), (token, form, row)


def asynchronous_connections_work(url):
    async def one(n):
        async with await psycopg.AsyncConnection.connect(url) as connection:
            async with connection.cursor() as cursor:
                await cursor.execute("SELECT count(*) FROM person WHERE id <= %s", [n])
                return (await cursor.fetchone())[0]

    async def all_of_them():
        return await asyncio.gather(*(one(n) for n in range(1, 11)))

    assert asyncio.run(all_of_them()) == list(range(1, 11))


CHECKS = [
    create_tables,
    connection_tells_about_the_server,
    parameters_of_many_types_come_back,
    rows_are_written_and_read_back,
    statements_are_prepared_after_a_few_runs,
    copy_goes_in_and_out,
    pipelines_keep_their_order,
    cursors_on_the_server_fetch_in_pieces,
    transactions_nest_and_roll_back,
    errors_tell_what_and_where,
    notices_and_notifications_arrive,
    distribution_keys_of_uuid_route_alike_in_text_and_binary,
    asynchronous_connections_work,
]

if __name__ == "__main__":
    for check in CHECKS:
        check(sys.argv[1])
        print(check.__name__, flush=True)
