-- Aggregates that nodes compute of their own rows, and the first rows of each node: what is put together is what one
-- server says, with its types, collations and spaces.
--! distribution apart: pt HASH (k); p2 HASH (k); pr REPLICATED
--! distribution mixed: pt HASH (k); p2 REPLICATED; pr HASH (id)
--! distribution replicated: pt REPLICATED; p2 REPLICATED; pr REPLICATED

CREATE TABLE pt (k int PRIMARY KEY, i int, s smallint, b bigint, n numeric, m numeric(10, 3), f float8, t text, c text COLLATE "C",
    v varchar(8), p char(6), d date, z timestamptz, o bool, u uuid, iv interval, y bytea, ar int[], j jsonb);
CREATE TABLE p2 (k int PRIMARY KEY, x int, w text);
CREATE TABLE pr (id int PRIMARY KEY, name text);
INSERT INTO pt SELECT k, nullif(k % 7, 6) - 3, nullif(k % 5, 4), (k % 3) * 1099511627776, nullif(k, 9) / 7.0, k % 11 / 8.0,
    k % 4 / 2.0, (ARRAY['a', 'B', 'b', 'Z', 'z z', '', 'NULL', '"q"', E'\\x', '{a,b}', NULL])[k % 11 + 1],
    (ARRAY['a', 'B', 'b', 'Z', NULL])[k % 5 + 1], 'v' || k % 3, 'p' || repeat(' ', k % 3), date '2024-01-30' + k % 4,
    timestamptz '2024-03-31 00:30:00+00' + k % 3 * interval '1 hour', nullif(k % 3, 2) = 1,
    ('00000000-0000-0000-0000-00000000000' || k % 4)::uuid, (k % 3) * interval '1 mon -2 days', decode(lpad((k % 3)::text, 2, '0'), 'hex'),
    ARRAY[k % 2, NULL], jsonb_build_object('a', k % 2) FROM generate_series(1, 200) k;
INSERT INTO p2 SELECT k, k % 4, 'w' || k % 3 FROM generate_series(1, 200, 2) k;
INSERT INTO pr SELECT k, 'n' || k FROM generate_series(-4, 4) k;

SELECT count(*), count(i), sum(i), sum(s), sum(b), sum(n), sum(m), avg(i), avg(s), avg(b), avg(n), avg(m) FROM pt;
SELECT min(i), max(s), min(b), max(n), min(m), max(f), min(t), max(c), min(v), max(p), min(d), max(z), min(iv), max(ar) FROM pt;
SELECT bool_and(o), bool_or(o), every(o IS NULL), bit_and(i), bit_or(s) FROM pt;
SELECT count(*) FILTER (WHERE o), sum(i) FILTER (WHERE i > 0), avg(n) FILTER (WHERE NOT o), max(t) FILTER (WHERE false) FROM pt;
SELECT t, count(*), sum(i) FROM pt GROUP BY t ORDER BY t;
SELECT c, count(*), avg(b) FROM pt GROUP BY c ORDER BY c;
SELECT c AS t, count(*) FROM pt GROUP BY c ORDER BY t DESC NULLS LAST LIMIT 3;
SELECT v, p, m, count(*) FROM pt GROUP BY v, p, m ORDER BY v, m, p LIMIT 9 OFFSET 2;
SELECT q.w, max(q.m) FROM (SELECT v AS w, m FROM pt) q GROUP BY q.w ORDER BY 1;
SELECT p || '|', max(p) || '|' FROM pt GROUP BY p ORDER BY 1;
SELECT d, z, u, iv, y, count(*) FROM pt GROUP BY d, z, u, iv, y ORDER BY 1, 2, 3, 4, 5;
SELECT ar, count(*) FROM pt GROUP BY ar ORDER BY ar;
SELECT ar, count(*) FROM pt WHERE false GROUP BY ar;
SELECT min(ar), count(*) FROM pt WHERE false;
SELECT min(ar) FROM pt WHERE false GROUP BY i;
SELECT j, count(*) FROM pt GROUP BY j ORDER BY j;
SELECT upper(t), i % 2 = 0, count(*) FROM pt GROUP BY upper(t), 2 ORDER BY 1, 2;
SELECT date_trunc('month', z) AS month, sum(m * n) FROM pt GROUP BY month ORDER BY month;
SELECT k % 3 AS t, count(*) FROM pt GROUP BY t ORDER BY 1, 2;
SELECT t AS k, count(*) FROM pt GROUP BY k ORDER BY 1, 2 LIMIT 5;
SELECT i + 1, -(i + 1), (i + 1)::text || count(*) FROM pt GROUP BY i + 1 ORDER BY i + 1;
SELECT i FROM pt GROUP BY i HAVING count(*) > 30 AND sum(b) IS NOT NULL ORDER BY sum(k), i;
SELECT DISTINCT count(*) FROM pt GROUP BY i ORDER BY 1;
SELECT 1 FROM pt HAVING count(*) > 3;
SELECT 'x', NULL, count(*) FROM pt GROUP BY 1;
SELECT sum(i + s), sum(i * 2.5), sum(CASE WHEN o THEN i ELSE s END), sum(coalesce(i, 0)), avg(b - 1), sum(-i), sum(1) FROM pt;
SELECT sum(b), sum(b * b) FROM pt;
SELECT sum(9223372036854775807) FROM pt;
SELECT sum((i + 4)::bigint * 1000000000000000000) FROM pt;
SELECT sum(length(t)), avg(abs(i)), sum(iv), count(DISTINCT i), array_agg(k ORDER BY k) FILTER (WHERE k < 4) FROM pt;
SELECT coalesce(sum(i), 0) / nullif(count(*), 0), CASE WHEN bool_or(o) THEN max(d) END FROM pt WHERE k > 500;
SELECT x, count(*), sum(i) FROM pt JOIN p2 USING (k) GROUP BY x ORDER BY x;
SELECT x, w, count(t), max(n) FROM pt LEFT JOIN p2 USING (k) GROUP BY w, x ORDER BY 1, 2;
SELECT w, count(i), count(p2.k) FROM p2 LEFT JOIN pt ON pt.k = p2.k GROUP BY w ORDER BY w;
SELECT name, count(*), avg(s) FROM pt JOIN pr ON pr.id = pt.i GROUP BY name ORDER BY name;
SELECT name, count(pt.k) FROM pr LEFT JOIN pt ON pr.id = pt.i GROUP BY name ORDER BY name;
SELECT count(*), min(a.k) FROM pt a JOIN pt b ON a.k = b.k WHERE b.i > 0;
SELECT count(*) FROM pt a JOIN pt b ON a.i = b.s;
SELECT i, count(*) FROM pt WHERE i IN (SELECT id FROM pr WHERE name > 'n1') GROUP BY i ORDER BY i;
SELECT i, count(*) FROM pt WHERE EXISTS (SELECT FROM p2 WHERE p2.k = pt.k) GROUP BY i ORDER BY i;
SELECT x, max(n) FROM (SELECT pt.i AS x, pt.n FROM pt WHERE o) q GROUP BY x ORDER BY x;
SELECT x.i, sum(x.n) FROM (SELECT i, count(*) AS n FROM pt GROUP BY i, k) x GROUP BY x.i ORDER BY 1;
SELECT i, count(*), (SELECT max(id) FROM pr) FROM pt GROUP BY i ORDER BY i;
SELECT i, count(*), sum(count(*)) OVER (ORDER BY i) FROM pt GROUP BY i ORDER BY i;
SELECT k, t, count(*) FROM pt GROUP BY k ORDER BY k LIMIT 3;
CREATE VIEW pv AS SELECT i, count(*) AS n, max(c) AS c FROM pt GROUP BY i;
SELECT * FROM pv ORDER BY i;
SELECT max(n), min(c) FROM pv;
DROP VIEW pv;
INSERT INTO p2 SELECT 1000 + count(*), min(i), max(t) FROM pt;
SELECT * FROM p2 WHERE k > 999;
BEGIN;
UPDATE pt SET i = 5 WHERE k <= 10;
SELECT i, count(*) FROM pt GROUP BY i ORDER BY i;
ROLLBACK;
SELECT v, count(*) FROM (SELECT v FROM pt UNION ALL SELECT w FROM p2) q GROUP BY v ORDER BY v;
SELECT m, count(*) FROM (SELECT m FROM pt UNION ALL SELECT n FROM pt) q GROUP BY m ORDER BY m LIMIT 5;
SELECT m::numeric(4, 1), v::varchar(1), coalesce(p, 'x'), count(*) FROM pt GROUP BY 1, 2, 3 ORDER BY 1, 2, 3;
SELECT coalesce(m, 0), ARRAY[v], v || p FROM pt GROUP BY m, v, p ORDER BY 1, 2, 3;
SELECT DISTINCT pt.v FROM pt GROUP BY v, i ORDER BY pt.v;
SELECT i, max(100 / i) FROM pt GROUP BY i HAVING i <> 0 AND count(*) > 1 ORDER BY i;
SELECT max(1 / (k - 1)) FROM pt LIMIT 0;
SELECT max(1 / (k - 1)) FROM pt HAVING false;
SELECT t COLLATE "C" < c, count(*) FROM pt GROUP BY t COLLATE "C", c ORDER BY 1, 2;
SELECT max(t COLLATE "C") < 'b' FROM pt;
SELECT pt.count FROM pt;
SELECT count(*) FROM pt GROUP BY 'pt'::regclass::oid;
SELECT count(*) FROM pt GROUP BY current_setting('port') IS NULL, 'now'::date IS NULL;
SELECT count(*) FROM pt GROUP BY ('n' || 'ow')::timestamptz;
SELECT z::date, d::timestamp, count(*) FROM pt GROUP BY 1, 2 ORDER BY 1, 2;
SELECT min(inet_server_port()) = max(inet_server_port()) FROM pt;
SET array_nulls = off;
SELECT nullif(t, 'a'), count(*) FROM pt GROUP BY 1 ORDER BY 1, 2;
SELECT max(i) FILTER (WHERE false), max(t) FILTER (WHERE false) FROM pt;
RESET array_nulls;
SET timezone = 'Asia/Kolkata';
SET datestyle = 'German';
SET intervalstyle = sql_standard;
SET extra_float_digits = -3;
SET bytea_output = 'escape';
SELECT max(z), min(d), max(iv), max(f / 3), count(*) FROM pt;
SELECT f / 3, y, count(*) FROM pt GROUP BY 1, 2 ORDER BY 1, 2;
RESET timezone;
RESET datestyle;
RESET intervalstyle;
RESET extra_float_digits;
RESET bytea_output;

SELECT * FROM pt ORDER BY k LIMIT 3;
SELECT k, t FROM pt ORDER BY t DESC NULLS LAST, k LIMIT 5 OFFSET 3;
SELECT k AS i, i AS k FROM pt ORDER BY k, i LIMIT 4;
SELECT i + s AS n, k FROM pt ORDER BY n NULLS FIRST, 2 DESC LIMIT 6;
SELECT upper(t) AS c, k FROM pt ORDER BY c, k LIMIT 6;
SELECT c, k FROM pt ORDER BY c, k LIMIT 6;
SELECT k FROM pt WHERE i > 0 AND t < 'b' ORDER BY n DESC, k LIMIT 4;
SELECT k FROM pt WHERE i IN (SELECT id FROM pr) ORDER BY k DESC LIMIT 4;
SELECT k FROM pt ORDER BY k LIMIT 0;
SELECT k FROM pt ORDER BY k OFFSET 195;
SELECT k FROM pt ORDER BY k LIMIT ALL OFFSET 197;
SELECT k FROM pt ORDER BY k LIMIT NULL OFFSET 197;
SELECT k FROM pt ORDER BY k LIMIT 9223372036854775807 OFFSET 197;
SELECT i FROM pt WHERE k < 30 ORDER BY i FETCH FIRST 2 ROWS WITH TIES;
SELECT k FROM pt ORDER BY k LIMIT -1;
SELECT k FROM pt ORDER BY k LIMIT 2 OFFSET -1;
SELECT t, t FROM pt ORDER BY t NULLS FIRST, k LIMIT 3;
SELECT t AS a, c AS a FROM pt ORDER BY a LIMIT 3;
SELECT q.k FROM pt q ORDER BY q.k % 10, public.q.k LIMIT 3;
SELECT q.k FROM pt AS q (k) ORDER BY q.k % 10, q.k LIMIT 3;
SELECT pt.k FROM public.pt ORDER BY public.pt.k DESC LIMIT 2;
SELECT sum(k) FROM (SELECT k FROM pt ORDER BY k DESC LIMIT 10) x;
SELECT k FROM pt ORDER BY p USING ~<~, k LIMIT 3;
SELECT k FROM pt ORDER BY t COLLATE "C", k LIMIT 7;
PREPARE top (int, int) AS SELECT k, t FROM pt WHERE k > $1 ORDER BY k LIMIT $2;
EXECUTE top (5, 3);
EXECUTE top (5, NULL) ;
PREPARE page (bigint, bigint) AS SELECT k FROM pt ORDER BY k LIMIT $1 OFFSET $2;
EXECUTE page (3, 4);
EXECUTE page (NULL, 197);
EXECUTE page (9223372036854775807, 198);
PREPARE parts (int) AS SELECT i, count(*) + $1, sum(i) FROM pt WHERE k > $1 GROUP BY i HAVING count(*) > $1 ORDER BY i;
EXECUTE parts (3);
DEALLOCATE ALL;

-- bind: NULL
SELECT k FROM pt WHERE k < 9 ORDER BY k LIMIT $1;
-- bind: 3 | NULL
SELECT k FROM pt ORDER BY k LIMIT $1 OFFSET $2;
-- bind: 3 | 4
SELECT k FROM pt ORDER BY t, k LIMIT $1 OFFSET $2;
-- bind: 2 | x
SELECT i, count(*), max(t) || $2 FROM pt WHERE k > $1 GROUP BY i HAVING count(*) > $1 ORDER BY i;
-- rows at a time: 2
SELECT i, sum(k) FROM pt GROUP BY i ORDER BY i;
-- refused in apart, mixed: it is what marks gaps
SELECT t || 'tutti:gap:0', count(*) FROM pt GROUP BY 1;
-- refused in apart, mixed: it is what marks gaps
SELECT 'tutti:gap:0', stddev(k) FROM pt;

-- Joins by the names of columns.
SELECT k % 3 AS g, count(*), sum(x), max(w), sum(k) FROM pt JOIN p2 USING (k) GROUP BY k % 3 ORDER BY g;
SELECT k, count(*) FROM pt a JOIN pt b USING (k) GROUP BY k HAVING count(*) > 0 ORDER BY k LIMIT 5;
SELECT a.t, count(*), sum(b.i) FROM pt a JOIN pt b USING (k, t) GROUP BY a.t ORDER BY 1;
SELECT k % 4, count(p2.x), count(*) FROM pt LEFT JOIN p2 USING (k) GROUP BY 1 ORDER BY 1;
SELECT k % 4, count(pt.i), count(*) FROM pt RIGHT JOIN p2 USING (k) GROUP BY 1 ORDER BY 1;
SELECT k % 4, count(*) FROM pt FULL JOIN p2 USING (k) GROUP BY 1 ORDER BY 1;
SELECT count(*), min(k) FROM pt JOIN p2 USING (k) JOIN pt c USING (k) WHERE k > 7;
SELECT count(*) FROM pt JOIN p2 USING (k) AS j WHERE j.k < 50;
SELECT count(*), sum(k) FROM pt NATURAL JOIN p2;

-- The current time, which is one for all nodes.
SELECT count(*), min(z) FROM pt WHERE z < now() AND d <= CURRENT_DATE;
SELECT count(*) FROM pt WHERE z > now() - interval '1 day' OR z < CURRENT_TIMESTAMP(0) - interval '1 year';
SELECT i, count(*) FILTER (WHERE z < now()), max(z) < now(), now() = CURRENT_TIMESTAMP FROM pt GROUP BY i ORDER BY i;
SELECT now() - z > interval '1 day' AS old, count(*) FROM pt GROUP BY now() - z > interval '1 day' ORDER BY 1;
SELECT round(stddev(k)), count(*) FROM pt WHERE z < now() AND t IS NOT NULL;
SELECT count(DISTINCT now()), count(*) FROM pt WHERE LOCALTIMESTAMP > z AND z::date < CURRENT_DATE AND LOCALTIME >= '00:00';
SELECT pg_typeof(max(now())), pg_typeof(CURRENT_DATE), count(*) FROM pt;
SELECT now() = transaction_timestamp() AS one, sum(b) FROM pt a JOIN p2 USING (k) WHERE a.z < statement_timestamp();
SELECT k FROM pt WHERE z < now() ORDER BY k LIMIT 2;
CREATE VIEW recent AS SELECT k, i FROM pt WHERE z < now();
SELECT i, count(*) FROM recent GROUP BY i ORDER BY i;
BEGIN;
SELECT count(*), count(*) FILTER (WHERE now() = CURRENT_TIMESTAMP) FROM pt WHERE z < now();
COMMIT;

-- What is not computed where no row or group asks for it.
-- bind: 0
SELECT max(1 / (k - k)) FROM pt LIMIT $1;
-- bind: 2
SELECT i, max(k) FROM pt GROUP BY i ORDER BY i LIMIT $1;
SELECT max(1 / (k - k)) FROM pt LIMIT '0';
SELECT max(1 / (k - k)) FROM pt LIMIT (1 - 1);
SELECT max(1 / (k - k)) FROM pt LIMIT 0.4;
SELECT i, max(100 / i) FROM pt GROUP BY i HAVING NOT (i = 0 OR count(*) > 1000) ORDER BY i;
SELECT i, max(100 / i) FROM pt GROUP BY i HAVING (i <> 0 AND count(*) > 1) OR (i <> 0 AND count(*) < 9) ORDER BY i;

-- What each node would compute otherwise.
SELECT count(*) FROM (SELECT inet_server_port() AS x FROM pt) q GROUP BY x + 0;
SELECT min(x) = max(x) FROM (SELECT 'now'::timestamptz AS x FROM pt) q;
CREATE FUNCTION moment_of() RETURNS timestamptz LANGUAGE sql STABLE AS 'SELECT now()';
CREATE VIEW pv AS SELECT k, moment_of() AS x FROM pt;
SELECT count(*) FROM pv GROUP BY x;
SELECT min(x) = max(x) FROM pv;
CREATE DOMAIN dts AS timestamptz;
SELECT min(('no' || 'w')::dts) = max(('no' || 'w')::dts) FROM pt;
SELECT count(*) FROM pt WHERE inet_server_port() = (SELECT inet_server_port());
SELECT k FROM pt ORDER BY (k % 2 = inet_server_port() - inet_server_port()), k LIMIT 3;
-- Distinct values, variances, floats, and columns of subqueries.
SELECT count(DISTINCT i), count(*), sum(b) FROM pt;
SELECT o, count(DISTINCT t), sum(DISTINCT i), avg(n) FROM pt GROUP BY o ORDER BY o;
SELECT v, count(DISTINCT i) FILTER (WHERE o), avg(DISTINCT s), min(DISTINCT m), bool_and(DISTINCT o) FROM pt GROUP BY v ORDER BY v;
SELECT count(DISTINCT i) FROM pt WHERE false;
SELECT count(DISTINCT i), count(DISTINCT s), sum(DISTINCT b) FROM pt;
SELECT count(DISTINCT p), count(DISTINCT u) FROM pt HAVING count(DISTINCT i) > 2;
SELECT i % 2, sum(DISTINCT n) FROM pt GROUP BY i % 2 HAVING i % 2 IS NOT NULL ORDER BY count(DISTINCT t) DESC, 1;
SELECT count(DISTINCT $$x$$ || i), count(DISTINCT (i, s)) FROM pt;
SELECT variance(i), var_samp(s), var_pop(b), stddev(n), stddev_samp(m), stddev_pop(i) FROM pt;
SELECT t, variance(n), stddev(m), stddev_pop(n), var_pop(s) FROM pt GROUP BY t ORDER BY t;
SELECT k, stddev(i), var_samp(n), var_pop(m), stddev_pop(n) FROM pt WHERE k < 5 GROUP BY k + 0, k ORDER BY k;
SELECT variance(i), stddev_pop(n) FROM pt WHERE false;
SELECT variance(x), stddev(x) FROM (SELECT nullif(n, 1) AS x, k FROM pt) q WHERE k < 30;
SELECT variance(k + 1000000), stddev(k * 1000003 + 0.1) FROM pt;
SELECT stddev(CASE WHEN k = 9 THEN 'NaN'::numeric ELSE n END), variance(CASE WHEN k = 9 THEN 'Infinity'::numeric ELSE n END) FROM pt;
SELECT stddev(i) FILTER (WHERE o), variance(DISTINCT i) FROM pt;
SELECT sum(f), avg(f), sum(f + i), avg(f * 2), sum(f::float4), avg(f::float4) FROM pt;
SELECT o, avg(f), sum(f), count(f) FROM pt GROUP BY o ORDER BY o;
SELECT avg(f) FROM pt WHERE false;
SELECT q.w, q.x, sum(q.y), avg(q.z) FROM (SELECT v AS w, m AS x, n AS y, f AS z FROM pt) q GROUP BY q.w, q.x ORDER BY 1, 2;
SELECT q.p, count(DISTINCT q.i) FROM (SELECT * FROM pt WHERE k > 10) q GROUP BY q.p ORDER BY 1;
SELECT pt.v, count(DISTINCT p2.w), stddev(x) FROM pt JOIN p2 ON p2.k = pt.k GROUP BY pt.v ORDER BY 1;
-- Distinct rows, grouping sets, and windows over groups.
SELECT DISTINCT v, o FROM pt ORDER BY v, o;
SELECT DISTINCT i % 3 AS r, upper(t) FROM pt WHERE k < 100 ORDER BY r DESC, 2 LIMIT 7 OFFSET 1;
SELECT DISTINCT 'x', p, m > 1 FROM pt ORDER BY 2, 3;
SELECT DISTINCT c FROM pt ORDER BY c COLLATE "C" DESC;
SELECT DISTINCT i FROM pt ORDER BY i + 1;
SELECT DISTINCT i FROM pt WHERE false;
SELECT DISTINCT pt.v, w FROM pt JOIN p2 USING (k) ORDER BY 1, 2;
SELECT count(*) FROM (SELECT DISTINCT v, i FROM pt) q;
SELECT v, o, sum(i), count(*), GROUPING(v, o) FROM pt GROUP BY ROLLUP (v, o) ORDER BY GROUPING(v, o), v, o;
SELECT v, p, avg(n), count(DISTINCT i) FROM pt GROUP BY CUBE (v, p) HAVING count(*) > 1 ORDER BY v, p;
SELECT v AS x, i % 2 AS y, min(t) FROM pt GROUP BY GROUPING SETS ((v), (i % 2), ()) ORDER BY 1, 2;
SELECT v, upper(v), sum(b) FROM pt GROUP BY ROLLUP (v) HAVING v = 'v1' OR v IS NULL ORDER BY 1;
SELECT v, o, count(*) FROM pt GROUP BY GROUPING SETS ((v, o), (v)), i % 2 ORDER BY 1, 2, 3;
SELECT count(*), GROUPING(v) FROM pt WHERE false GROUP BY GROUPING SETS ((v), ());
SELECT v, sum(i), rank() OVER (ORDER BY sum(i) DESC, v), sum(sum(b)) OVER (ORDER BY v) FROM pt GROUP BY v ORDER BY v;
SELECT o, count(*) * 100 / sum(count(*)) OVER () AS share FROM pt GROUP BY o ORDER BY share, o;
SELECT v, o, count(*), first_value(count(*)) OVER w, row_number() OVER (w ROWS UNBOUNDED PRECEDING) FROM pt GROUP BY v, o
    WINDOW w AS (PARTITION BY v ORDER BY count(*), o) ORDER BY 1, 2;
SELECT DISTINCT v, max(count(*)) OVER (PARTITION BY v) FROM pt GROUP BY v, o ORDER BY v;
SELECT DISTINCT v, rank() OVER (ORDER BY v) FROM pt ORDER BY 1, 2;
SELECT v, lag(sum(i), 1, 0) OVER (ORDER BY v COLLATE "C") FROM pt GROUP BY v ORDER BY v;
SELECT v, sum(i) FILTER (WHERE o), count(*) FILTER (WHERE sum(i) > 0) OVER () FROM pt GROUP BY v ORDER BY v;
SELECT count(a), count(b), sum(c) FROM (SELECT CASE WHEN count(*) > 2 THEN date '2024-01-01' END AS a, date '2024-01-01' AS b, count(*) AS c
    FROM pt GROUP BY CUBE (date '2024-01-01')) q;
SELECT count(v), count(p), count(n), sum(g) FROM (SELECT v, p, pt.v AS n, GROUPING(p) AS g FROM pt GROUP BY ROLLUP (3, p, 1)) q;
SELECT stddev(n), variance(n), stddev_pop(n), stddev(i) FROM (SELECT CASE WHEN k = 9 THEN 'NaN'::numeric ELSE n END AS n, i, k FROM pt) q;
SELECT k % 67, stddev(k * 7919 % 1009), stddev_pop(k * 0.37 + k * k % 101), stddev(b + k), variance(m * k) FROM pt GROUP BY k % 67 ORDER BY 1;
SET extra_float_digits = -12;
SELECT (sum(f / 3) * 1000)::int8, (avg(f / 7) * 100000)::int8 FROM pt;
RESET extra_float_digits;
SELECT count(v), count(w), count(*) FROM (SELECT v, v AS w, sum(i) FROM pt GROUP BY ROLLUP (1, 2)) q;
-- any order: to PostgreSQL the constant is one value in ORDER BY, also where ROLLUP makes it NULL
SELECT 2026 AS year, v, sum(i) FROM pt GROUP BY ROLLUP (1, 2) ORDER BY 1, 2;
BEGIN;
SELECT v, count(*), sum(n), count(DISTINCT i) FROM pt GROUP BY v ORDER BY v;
INSERT INTO p2 VALUES (1001, 1, 'own');
SELECT w, count(*), sum(x) FROM p2 GROUP BY w ORDER BY w;
SELECT pt.v, count(*) FROM pt JOIN pr ON pr.id = pt.i GROUP BY pt.v ORDER BY 1;
ROLLBACK;
