"""Compares what sqlsmith writes on one PostgreSQL and on a Tutti cluster of three nodes.

Usage: ./dev smith [--queries N] [--seed S]; see README.md here. The exit code is 0 if no answer differs. Start reading
at `main`.
"""

import argparse
import collections
import decimal
import os
import pathlib
import re
import subprocess
import sys
import tempfile

import psycopg

# The sources' directory stays as it is.
sys.dont_write_bytecode = True
HOME = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HOME.parent / "clients")]

from harness.servers import Account, Programs, Servers, Template  # noqa: E402

REPOSITORY = HOME.parent.parent
STATEMENT_TIMEOUT_MS = 10_000

# Of functions, sqlsmith takes those that it finds by this name in its path.
WRITERS_VIEW = """
CREATE VIEW information_schema.pg_proc AS SELECT * FROM pg_catalog.pg_proc p
WHERE pronamespace = 'pg_catalog'::regnamespace AND provolatile = 'i' AND NOT proretset
    AND (prokind <> 'f' OR pronargs BETWEEN 1 AND 3)
    AND proname !~ '^(pg_|hash|ts|lo_|.*(recv|send|in|out|sel|support)$|.*(accum|combine|serialize).*|xml|query_to|any_value)'
    AND proname <> ALL ('{array_agg,string_agg,json_agg,jsonb_agg,json_object_agg,jsonb_object_agg,mode,repeat}')
    AND prorettype = ANY (types.known) AND NOT EXISTS (SELECT FROM unnest(proargtypes) t WHERE t <> ALL (types.known))
""".replace(
    "types.known",
    "'{int2,int4,int8,text,name,numeric,float8,bool,date,timestamp,interval,jsonb,int4[]}'::regtype[]",
)

# What may answer otherwise the next time, and by whom it is asked: sqlsmith's tests cannot tell. Windows number rows of
# one rank as they come.
UNSTABLE = re.compile(
    r"\b(pg_(?!catalog\b)\w+|random\w*|\w*timestamp\(|now|timeofday|txid\w*|current_\w+|version|\w+val|lo_\w+|inet_\w+"
    r"|ctid|tableoid|xmin|xmax|cmin|cmax|has_\w+_privilege|row_number|rank|dense_rank|percent_rank|cume_dist|ntile|lag"
    r"|lead|first_value|last_value|nth_value|localtime\w*|session_user|user|set_config|age|array_agg|string_agg"
    r"|json\w*_agg)\b"
)


def arguments():
    parser = argparse.ArgumentParser(prog="./dev smith", description=__doc__.split("\n")[0])
    parser.add_argument("--queries", type=int, default=5_000, help="how many sqlsmith writes (default: 5000)")
    parser.add_argument("--seed", type=int, default=1, help="its seed (default: 1)")
    parser.add_argument("--tutti", default=REPOSITORY / "target/debug/tutti", help="the binary")
    parser.add_argument("--refusals", action="store_true", help="print one statement of each that only Tutti refuses")
    return parser.parse_args()


def main():
    given = arguments()
    with tempfile.TemporaryDirectory(prefix="tutti-sqlsmith-") as place:
        # The servers' account must reach its directories.
        os.chmod(place, 0o755)
        programs, account = Programs(given.tutti), Account()
        template = Template(programs, account, pathlib.Path(place))
        with Servers(programs, template, pathlib.Path(place) / "servers", database="smith") as servers:
            tables = (HOME / "tables.sql").read_text()
            servers.plain.psql([WRITERS_VIEW, tables], database="smith")
            servers.tutti.psql([tables, (HOME / "placements.sql").read_text()], database="smith")
            queries = written(servers.plain, given)
            outcome = compare(servers, queries, given)
    print(", ".join(f"{count} {what}" for what, count in outcome.counts.most_common()))
    for refusal, count in outcome.refusals.most_common():
        print(f"    {count} {refusal}")
    sys.exit(1 if outcome.counts["DIFFER"] else 0)


def written(plain, given):
    """The statements, those left out that cannot be compared, and the others changed so that they can."""
    target = f"host={plain.host} port={plain.port} dbname=smith user=postgres"
    environment = dict(os.environ, PGOPTIONS="-c search_path=information_schema,pg_catalog,public")
    command = ["sqlsmith", f"--target={target}", "--exclude-catalog", "--dry-run"]
    command += [f"--max-queries={given.queries}", f"--seed={given.seed}"]
    said = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
    for query in said.split(";\n"):
        query = re.sub(r"tablesample (system|bernoulli) \([^)]*\)", "", query.strip())
        if query and not UNSTABLE.search(query):
            # Of rows in no order, a LIMIT takes any.
            query = re.sub(
                r"\(select ([\w.]+) from ([\w.]+) limit 1 offset (\d+)\s*\)",
                r"(select \1 from \2 order by 1 fetch first row only)",
                query,
            )
            yield re.sub(r"\blimit \d+", "", query)


class Outcome:
    def __init__(self):
        self.counts = collections.Counter()
        self.refusals = collections.Counter()


def compare(servers, queries, given):
    outcome = Outcome()
    plain, tutti = (Side(endpoint) for endpoint in (servers.plain, servers.tutti))
    for query in queries:
        expected, found = plain.run(query), tutti.run(query)
        if "57014" in (expected[0], found[0]):
            what = "timed out"
        elif expected[0] and found[0]:
            # Which of several errors of a statement is told depends on what is computed first.
            what = "failed"
        elif found[0] == "0A000":
            what = "refused"
            outcome.refusals[found[1]] += 1
            if given.refusals and outcome.refusals[found[1]] == 1:
                print(f"-- {found[1]}\n{query};\n", flush=True)
        elif expected == found:
            what = "the same"
        else:
            what = "DIFFER"
            print(f"-- expected {shown(expected)}\n-- found    {shown(found)}\n{query};\n", flush=True)
        outcome.counts[what] += 1
    return outcome


def shown(answer):
    sqlstate, rest = answer
    if sqlstate:
        return f"{sqlstate}: {rest}"
    rows, count = rest
    return f"{count} rows, of which {len(rows)} are returned: {str(rows)[:300]}"


class Side:
    """One server, and what a statement leads to there; nothing of it stays."""

    def __init__(self, endpoint):
        self._address = f"host={endpoint.host} port={endpoint.port} dbname=smith user=postgres"
        self._connect()

    def _connect(self):
        self._connection = psycopg.connect(self._address)
        self._connection.execute(f"SET statement_timeout = {STATEMENT_TIMEOUT_MS}")
        self._connection.commit()

    def run(self, query):
        """SQLSTATE and message; or neither, and the rows, in an order of ours, with how many there were."""
        try:
            cursor = self._connection.execute(query)
            rows = sorted(tuple(map(text, row)) for row in cursor.fetchall()) if cursor.description else []
            return None, (rows, cursor.rowcount)
        except psycopg.Error as error:
            return error.sqlstate or "a lost connection", str(error).split("\n")[0]
        finally:
            if self._connection.closed:
                self._connect()
            self._connection.rollback()


def text(value):
    # Sums of floating-point numbers depend on the order of rows.
    if isinstance(value, float):
        return f"{value:.9g}"
    return str(value) if isinstance(value, decimal.Decimal) else repr(value)


if __name__ == "__main__":
    main()
