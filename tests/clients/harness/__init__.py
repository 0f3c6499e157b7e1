"""Running client test suites that others wrote against Tutti and against plain PostgreSQL.

Owns: servers, fetching, outcomes, the comparison and the report. Never: knows one suite's ways;
those are in `suites/`. Start reading at `comparison.py`, then `suite.py`.
"""
