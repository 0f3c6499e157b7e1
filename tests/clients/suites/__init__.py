"""The suites, each with its own ways. Add one here."""

from . import asyncpg, lib_pq, node, pg8000, pgjdbc, pgx, psycopg2, sqlalchemy

ALL = [
    asyncpg.Asyncpg(),
    psycopg2.Psycopg2(),
    pg8000.Pg8000(),
    sqlalchemy.SQLAlchemy(),
    pgx.Pgx(),
    lib_pq.LibPq(),
    node.Node(),
    pgjdbc.Pgjdbc(),
]
