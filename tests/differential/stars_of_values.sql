--! distribution by_key: sources HASH (k); targets HASH (a); wide HASH (a)
--! distribution spread: sources HASH (k); targets ROUND ROBIN; wide REPLICATED
--! changes data
-- All columns of a composite value, which are as many as its type has: none is lost, wherever rows go.

CREATE TYPE pair AS (a int, b text);
CREATE FUNCTION two(int) RETURNS pair LANGUAGE sql IMMUTABLE AS $$ SELECT $1, 'b' || $1 $$;
CREATE TABLE sources (k int PRIMARY KEY, p pair, j jsonb);
INSERT INTO sources SELECT n, ROW(n, 'p' || chr(122 - n))::pair, jsonb_build_object('a', n, 'b', 'j' || n) FROM generate_series(1, 6) n;
CREATE TABLE targets (a int, b text DEFAULT 'default', c int);
CREATE TABLE wide (a int, b text, c int DEFAULT 77, d text DEFAULT 'd');
INSERT INTO targets (a, b, c) SELECT (two(k)).*, 5 FROM sources;
INSERT INTO targets (c, a, b) SELECT k, (p).* FROM sources;
INSERT INTO targets (a, b) SELECT (jsonb_populate_record(NULL::pair, j)).* FROM sources WHERE k < 4;
INSERT INTO wide (a, b, d) SELECT (s.p).*, 'x' FROM sources s ON CONFLICT DO NOTHING;
INSERT INTO wide (a, b) SELECT q.* FROM (SELECT (two(k)).* FROM sources) q;
INSERT INTO wide (a, b) WITH w AS (SELECT (two(k)).* FROM sources) SELECT * FROM w;
INSERT INTO wide (a, b) SELECT (two(k)).* FROM sources UNION ALL SELECT (p).* FROM sources;
SELECT * FROM targets ORDER BY a, b, c;
SELECT * FROM wide ORDER BY a, b, c, d;
SELECT (two(k)).*, k FROM sources ORDER BY k;
SELECT (p).*, count(*) FROM sources GROUP BY p ORDER BY 1, 2;
SELECT DISTINCT (p).* FROM sources ORDER BY 1;
SELECT (p).*, k FROM sources ORDER BY k DESC LIMIT 2;
SELECT (p).*, k FROM sources ORDER BY 2 LIMIT 3;
SELECT k, (p).*, 1 FROM sources ORDER BY 3 LIMIT 2;
SELECT (p).*, k FROM sources ORDER BY b LIMIT 3;
SELECT (p).*, c FROM targets, sources WHERE k = c ORDER BY 2, 1, 3 LIMIT 3;
SELECT (p).*, row_number() OVER (ORDER BY k DESC) FROM sources ORDER BY k LIMIT 3;
SELECT (s.p).*, t.c FROM sources s JOIN targets t ON t.c = s.k ORDER BY s.k, t.b LIMIT 4;
SELECT (max(p)).* FROM sources;
SELECT * FROM (SELECT (p).*, k FROM sources) q (x, y, z) WHERE z > 3 ORDER BY x;
-- refused: how many columns it gives is not known
INSERT INTO targets SELECT (two(k)).* FROM sources;
-- refused: the same
INSERT INTO targets SELECT (two(k)).*, 5 FROM sources;
-- Rows of a view, and the type of its rows.
CREATE VIEW starred AS SELECT k, j FROM sources;
SELECT pg_typeof(starred)::text, starred::text FROM starred WHERE k < 3 ORDER BY k;
SELECT pg_typeof(starred)::text, NULL::starred IS NULL FROM starred WHERE k < 3 ORDER BY k;
SELECT coalesce(NULL::starred, s)::text FROM starred s ORDER BY k;
SELECT count(NULL::starred), max(k) FROM starred;
SELECT (ROW(k, j)::starred)::text, NULL::starred IS NULL FROM starred ORDER BY k;
