-- Values on their way between nodes, and what gathered reads must not lose.
--! distribution apart: tr HASH (k); fd HASH (k); fo HASH (k); vt HASH (a); vs HASH (id)
--! distribution mixed: tr HASH (k); fd HASH (k); fo ROUND ROBIN; vt REPLICATED; vs HASH (id)
--! distribution replicated: tr REPLICATED; fd REPLICATED; fo REPLICATED; vt REPLICATED; vs REPLICATED

CREATE TABLE tr (k int PRIMARY KEY, ts timestamptz, f float8, i interval);
INSERT INTO tr VALUES (1, '2024-07-01 12:00:00+05:30', 0.1::float8 + 0.2, '-1 mon +2 days');
SET timezone = 'Asia/Kolkata';
SET datestyle = 'postgres, mdy';
SET intervalstyle = sql_standard;
SET extra_float_digits = 0;
SELECT count(*), max(ts) = '2024-07-01 06:30:00Z' AS same_ts, max(f) = 0.1::float8 + 0.2 AS same_f, max(i) = '-1 mon +2 days' FROM tr;
UPDATE tr SET k = k + 100;
INSERT INTO tr SELECT k + 1, ts, f, i FROM tr;
SELECT k, ts, f, i FROM tr ORDER BY k;
RESET datestyle;
RESET intervalstyle;
RESET extra_float_digits;
SET timezone = 'UTC';
SELECT k, ts, f, i FROM tr ORDER BY k;

CREATE TABLE fd (k int PRIMARY KEY, a text, b int);
CREATE TABLE fo (k int, o int, x int);
INSERT INTO fd SELECT n, 'a' || n % 2, n FROM generate_series(1, 4) n;
INSERT INTO fo SELECT n % 4 + 1, n, n FROM generate_series(1, 12) n;
SELECT fd.*, count(*) FROM fd LEFT JOIN fo ON fo.x = fd.b GROUP BY fd.k ORDER BY 1;
SELECT a, k kk, count(*) FROM fd GROUP BY kk ORDER BY b LIMIT 2;
SELECT a, k, count(*) FROM fd GROUP BY 2 ORDER BY b LIMIT 2;
SELECT a, sum(x) FROM fd, generate_series(1, 2) x GROUP BY fd.k ORDER BY a, fd.k;

CREATE TABLE vt (id int, a int);
CREATE TABLE vs (id int, t text);
CREATE VIEW vv AS SELECT x.id, x.t FROM vs x JOIN vt y ON x.id = y.id;
INSERT INTO vs VALUES (1, 'one'), (2, 'two');
INSERT INTO vt VALUES (2, 3);
INSERT INTO vt (id) SELECT x.id FROM vv x;
SELECT id, a FROM vt ORDER BY a;
WITH RECURSIVE vv (n) AS (VALUES (1) UNION ALL SELECT n + 1 FROM vv WHERE n < 5) SELECT * FROM vv;
DROP VIEW vv;

-- Parameters that nobody gives.
SELECT count(*), $1 FROM fd;
SELECT count(*),
       $1::text, 'ü', $2::int FROM fd;
SELECT k, $1::text FROM fd ORDER BY b LIMIT 2;
INSERT INTO fd (k) SELECT $1;
INSERT INTO fd SELECT fd.k + 100, $1, 1 FROM fd JOIN fo ON fo.x = fd.b;
UPDATE fd SET b = $1 FROM fo WHERE fo.x = fd.b;
DECLARE c CURSOR FOR SELECT count(*), $1 FROM fd;
