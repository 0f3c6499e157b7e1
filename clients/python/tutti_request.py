"""Requests that are executed once, however often they are sent, for psycopg 3 and Tutti.

Owns: the attempts at one request: their numbers, and which errors another may follow.
Never: chooses the request's name, or where to connect: the caller does.
Start reading at `execute_once`. The protocol is docs/protocol/exactly-once.md.
"""

import json
import random
import time

import psycopg

# Nothing was committed, or it is not known: the next attempt finds out. (Class 08 as well.)
_RETRIED = {"40001", "40P01", "40000", "57P01", "57P02", "57P03", "55006", "53300", "55P03", "25P03"}


class NoAnswer(Exception):
    """It is not known what became of the request: no attempt in time was answered. It may be executed again."""


def execute_once(connect, name, run, *, is_first=False, patience_s=60.0):
    """Executes a request once, and returns what its one execution has returned.

    connect: opens a connection to whichever gateway serves; called for each attempt.
    name: the request's; all attempts at it, of this process and others, have the same.
    run: called with a connection in a transaction; what it returns must be JSON. It may be called
        several times, and is committed once. What it raises but errors of the database ends the request.
    is_first: nobody can have tried this request before: a question to the cluster is saved.

    Raises: NoAnswer; errors of the database that no attempt can help; what `run` raises.
    """
    give_up = time.monotonic() + patience_s
    instance = 1 if is_first else _number()
    pause_s, longest_s = 0.01, 0.0
    while True:
        begun = time.monotonic()
        try:
            return _attempt(connect, name, instance, run)
        except psycopg.Error as error:
            is_lost = isinstance(error, psycopg.OperationalError) and error.sqlstate is None
            if not (is_lost or _is_retried(error.sqlstate)):
                raise
            if give_up < time.monotonic():
                raise NoAnswer(f"no answer to request {name!r}") from error
        # Another client of the same request ends this attempt, and this one that one's: the longer they have come,
        # the longer one of them is to be left alone.
        longest_s = max(longest_s, time.monotonic() - begun)
        time.sleep(pause_s * random.uniform(0.5, 1.5))
        pause_s = min(2 * pause_s, max(1.0, 4 * longest_s))
        instance = max(_number(), instance + 1, _latest(connect, name) + 1)


def _number():
    """A number that is larger than that of any attempt before, as far as clocks agree: microseconds."""
    return time.time_ns() // 1000


def _latest(connect, name):
    """The largest number that is known of the request's attempts: another process's clock may be ahead."""
    try:
        with connect() as connection:
            connection.autocommit = True
            known = connection.execute("SELECT tutti.tutti_request(%s)", (name,)).fetchall()
        return max((int(row[0]) for row in known), default=0)
    except psycopg.Error:
        return 0


def _is_retried(sqlstate):
    return sqlstate in _RETRIED or (sqlstate or "").startswith("08")


def _attempt(connect, name, instance, run):
    # Closed in any case: what it has not committed is over with it.
    with connect() as connection:
        connection.autocommit = True
        begun = connection.execute("SELECT tutti.tutti_begin(%s, %s)", (name, instance)).fetchone()
        if begun[0] == "committed":
            return _value(begun[2])
        try:
            result = run(connection)
            connection.execute("SELECT tutti.tutti_remember(%s)", (json.dumps(result),))
            connection.execute("COMMIT")
        except BaseException:
            if not connection.closed:
                try:
                    connection.execute("ROLLBACK")
                except psycopg.Error:
                    pass
            raise
        return result


def _value(remembered):
    return None if remembered is None else json.loads(remembered)
