"""The helper for requests, clients/python/tutti_request.py, while connections are lost under it.

usage: request_helper.py URL DIRECTORY-OF-THE-HELPER
Prints one line for each check that has passed.
"""

import itertools
import sys

import psycopg

url, directory = sys.argv[1:]
sys.path.insert(0, directory)
from tutti_request import NoAnswer, execute_once  # noqa: E402


def connect():
    return psycopg.connect(url)


def value(sql):
    with psycopg.connect(url, autocommit=True) as connection:
        return connection.execute(sql).fetchone()[0]


def passed(what):
    print("passed:", what)


def end_other(connection):
    """Ends the session of this connection, as a gateway that dies would."""
    with psycopg.connect(url, autocommit=True) as other:
        other.execute("SELECT pg_terminate_backend(%s)", (connection.info.backend_pid,))


with psycopg.connect(url, autocommit=True) as setup:
    setup.execute("CREATE TABLE bought (id int PRIMARY KEY, item int) DISTRIBUTE BY HASH (id)")
    setup.execute("CREATE TABLE left_over (item int PRIMARY KEY, n int) DISTRIBUTE BY HASH (item)")
    setup.execute("INSERT INTO left_over SELECT g, 10 FROM generate_series(1, 20) g")

runs = []


def buy(number, lose=lambda attempt, connection: None):
    def run(connection):
        runs.append(number)
        for item in (1, 2, 3):
            connection.execute("UPDATE left_over SET n = n - 1 WHERE item = %s", (item,))
        connection.execute("INSERT INTO bought VALUES (%s, 1)", (number,))
        lose(runs.count(number), connection)
        return {"order": number, "attempt": runs.count(number)}

    return run


answer = execute_once(connect, "plain", buy(1), is_first=True)
assert answer == {"order": 1, "attempt": 1}, answer
again = execute_once(connect, "plain", buy(1))
assert again == answer and runs.count(1) == 1, (again, runs)
passed("who asks again, from the start, gets the first answer")


def lose_twice(attempt, connection):
    if attempt < 3:
        end_other(connection)


answer = execute_once(connect, "lost", buy(2, lose_twice))
assert answer == {"order": 2, "attempt": 3}, answer
passed("a request whose connections are lost goes on")

again = execute_once(connect, "lost", buy(2))
assert again == answer and runs.count(2) == 3
passed("another process is given the same answer")


class Answerless(psycopg.Connection):
    """The answer to COMMIT is lost: it was carried out."""

    def execute(self, query, *arguments, **named):
        cursor = super().execute(query, *arguments, **named)
        if query == "COMMIT":
            self.close()
            raise psycopg.OperationalError("the connection is lost")
        return cursor


connections = itertools.chain([Answerless], itertools.repeat(psycopg.Connection))
answer = execute_once(lambda: next(connections).connect(url), "unanswered", buy(3))
assert answer == {"order": 3, "attempt": 1} and runs.count(3) == 1, (answer, runs)
passed("whose commit was not answered is not executed again")


def fail(connection):
    connection.execute("SELECT 1 / 0")


try:
    execute_once(connect, "wrong", fail)
    raise AssertionError("it cannot succeed")
except psycopg.errors.DivisionByZero:
    passed("an error that no attempt can help is the caller's")

try:
    execute_once(connect, "impatient", buy(4, lambda attempt, it: end_other(it)), patience_s=0.2)
    raise AssertionError("it cannot succeed")
except NoAnswer:
    answer = execute_once(connect, "impatient", buy(4))
    assert answer["order"] == 4, answer
    passed("a request without an answer can be taken up later")

ahead = psycopg.connect(url, autocommit=True)
ahead.execute("SELECT tutti_begin('ahead', 9000000000000000000)")
answer = execute_once(connect, "ahead", buy(5))
assert answer["order"] == 5, answer
ahead.close()
passed("an attempt whose clock is far ahead keeps nobody from the request")

assert execute_once(connect, "nothing to tell", lambda connection: None) is None
assert value("SELECT count(*) FROM bought") == 5
assert value("SELECT sum(n) FROM left_over") == 20 * 10 - 5 * 3
passed("nothing was done twice")
