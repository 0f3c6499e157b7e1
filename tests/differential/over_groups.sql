--! distribution by_key: og HASH (id); oh HASH (g); names REPLICATED
--! distribution by_group: og HASH (g); oh HASH (g); names REPLICATED
--! distribution elsewhere: og HASH (x); oh HASH (id); names HASH (id)
--! distribution by_range: og RANGE (id) SPLIT AT VALUES (200, 400); oh RANGE (g) SPLIT AT VALUES (10); names REPLICATED
--! changes data
-- Queries over groups: of subqueries in FROM and in WITH, alone and several, and rows that are inserted from them.

CREATE TABLE og (id int, g int, h text, x int, n numeric(8, 2), f float8, d date, at timestamptz);
CREATE TABLE oh (id int, g int, w text);
CREATE TABLE names (id int PRIMARY KEY, name text);
CREATE TABLE into_home (g int, c bigint, s numeric, at date DEFAULT '2026-05-05');
CREATE TABLE into_text (a varchar(3), b text);
INSERT INTO og SELECT k, nullif(k % 31, 30), 'h' || k % 4, k % 50, k % 13 / 4.0, k % 7 / 3.0, '2026-01-01'::date + k % 9, '2026-01-01 10:00+00'::timestamptz + k * interval '5 hours' FROM generate_series(1, 600) k;
INSERT INTO oh SELECT k, nullif(k % 41, 40), 'w' || k % 3 FROM generate_series(1, 160) k;
INSERT INTO names SELECT k, 'name ' || 40 - k FROM generate_series(0, 40) k;

SELECT count(*), sum(c), avg(c) FROM (SELECT g, count(*) AS c FROM og GROUP BY g) AS s;
SELECT max(c), min(s) FROM (SELECT h, count(*), sum(n) FROM og GROUP BY h) AS t (h, c, s);
SELECT c, count(*) FROM (SELECT g, count(*) AS c FROM og GROUP BY g) AS s GROUP BY c ORDER BY c;
SELECT * FROM (SELECT g, sum(n) AS s FROM og GROUP BY g) AS q WHERE s > 30 ORDER BY g;
SELECT * FROM (SELECT g, h, sum(n) AS s FROM og GROUP BY g, h) AS q WHERE g = 3 ORDER BY h;
SELECT q.*, s * 2 AS twice FROM (SELECT g, sum(n) AS s FROM og GROUP BY g) AS q ORDER BY g LIMIT 3;
SELECT h, rank() OVER (ORDER BY s DESC, h) FROM (SELECT h, sum(x) AS s FROM og GROUP BY h) AS q ORDER BY 2;
SELECT name, c FROM (SELECT g, count(*) AS c FROM og GROUP BY g) AS q JOIN names ON names.id = q.g WHERE name LIKE '%3%' ORDER BY name;
SELECT name, c FROM names LEFT JOIN (SELECT g, count(*) AS c FROM og WHERE g < 5 GROUP BY g) AS q ON names.id = q.g ORDER BY name LIMIT 8;
SELECT name FROM names WHERE id IN (SELECT g FROM (SELECT g, count(*) AS c FROM og GROUP BY g) AS q WHERE c > 19) ORDER BY name LIMIT 5;
WITH q AS (SELECT g, count(*) AS c FROM og GROUP BY g) SELECT sum(c) FROM q;
WITH q AS (SELECT g, count(*) AS c FROM og GROUP BY g) SELECT a.g, a.c, b.c FROM q AS a JOIN q AS b ON b.g = a.g + 1 ORDER BY 1 LIMIT 4;
WITH q (k, c) AS MATERIALIZED (SELECT g, count(*) FROM og GROUP BY g) SELECT k, c FROM q WHERE k BETWEEN 4 AND 6 ORDER BY k;
WITH q AS (SELECT g, count(*) AS c FROM og GROUP BY g), r AS (SELECT g, max(w) AS w FROM oh GROUP BY g) SELECT q.g, c, w FROM q JOIN r USING (g) ORDER BY q.g LIMIT 6;
WITH q AS (SELECT g, count(*) AS c FROM og GROUP BY g), r AS (SELECT c, count(*) AS n FROM q GROUP BY c) SELECT * FROM r ORDER BY c;
WITH og AS (SELECT id AS g FROM names), q AS (SELECT g, count(*) AS c FROM og GROUP BY g) SELECT count(*), sum(c) FROM q;
WITH unused AS (SELECT g, 1 / (x - x) AS boom FROM og GROUP BY g, x) SELECT count(*) FROM names;
SELECT * FROM (SELECT g, count(*) FROM og GROUP BY g) AS a, (SELECT g, count(*) FROM oh GROUP BY g) AS b WHERE a.g = b.g AND a.g < 4 ORDER BY 1;
SELECT a.g, a.c, b.s, c.m FROM (SELECT g, count(*) AS c FROM og GROUP BY g) AS a JOIN (SELECT g, sum(x) AS s FROM og GROUP BY g) AS b USING (g) JOIN (SELECT g, min(id) AS m FROM oh GROUP BY g) AS c USING (g) WHERE a.g % 7 = 2 ORDER BY 1;
SELECT g, c, w FROM (SELECT g, count(*) AS c FROM og GROUP BY g) AS q JOIN oh USING (g) WHERE w = 'w1' ORDER BY g, oh.id LIMIT 5;
SELECT avg(c) FROM (SELECT count(*) AS c FROM og GROUP BY g UNION ALL SELECT count(*) FROM oh GROUP BY g) AS q;
SELECT count(*), sum(c) FROM (SELECT * FROM (SELECT g, count(*) AS c FROM og GROUP BY g) AS i WHERE c > 5) AS o;
SELECT count(*) FROM (SELECT DISTINCT g, h FROM og) AS q;
SELECT count(*) FROM (SELECT DISTINCT ON (g) g, id FROM og ORDER BY g, id) AS q;
SELECT count(*), min(id) FROM (SELECT id FROM og ORDER BY id DESC LIMIT 10) AS q;
SELECT sum(s) FROM (SELECT a.g, sum(a.x) AS s FROM og a JOIN oh b ON b.g = a.g GROUP BY a.g ORDER BY s DESC, a.g LIMIT 5) AS q;
SELECT m, sum(c) FROM (SELECT id % 7 AS m, count(*) AS c FROM og GROUP BY 1) AS q GROUP BY m ORDER BY m;
SELECT d, c, sum(c) OVER (ORDER BY d) FROM (SELECT date_trunc('month', at AT TIME ZONE 'UTC') AS d, count(*) AS c FROM og GROUP BY 1) AS q ORDER BY d;
SELECT y, c FROM (SELECT extract(month FROM d) AS y, count(*) FILTER (WHERE h = 'h1') AS c FROM og GROUP BY 1) AS q ORDER BY y;
SELECT sum(a), sum(b) FROM (SELECT g, sum(CASE WHEN h = 'h1' THEN 1 ELSE 0 END) AS a, sum(CASE h WHEN 'h2' THEN x END) AS b FROM og GROUP BY g) AS q;
SELECT k, c FROM (SELECT coalesce(g, -1) AS k, count(*) AS c FROM og GROUP BY 1) AS q ORDER BY k LIMIT 3;
SELECT g FROM (SELECT g, sum(1 / (x - 60)) AS s FROM og GROUP BY g) AS q ORDER BY g LIMIT 3;
SELECT g FROM (SELECT g, sum(1 / (x - g)) AS s FROM og GROUP BY g) AS q ORDER BY g LIMIT 3;
SELECT g, s FROM (SELECT g, sum(1 / (x - 49)) AS s FROM og GROUP BY g) AS q WHERE g = 100 ORDER BY g;
SELECT * FROM (SELECT g, sum(1 / (x - 49)) AS s FROM og GROUP BY g) AS q ORDER BY g;
SELECT count(*) FROM (SELECT 1 / (count(*) - count(*)) AS boom FROM og) AS q;
SELECT * FROM (SELECT 1 / (count(*) - count(*)) AS boom FROM og) AS q;
SELECT q.g, q.h, l.x FROM (SELECT g, min(h) AS h FROM og GROUP BY g) AS q, LATERAL (SELECT max(x) AS x FROM og WHERE og.g = q.g) AS l WHERE q.g < 3 ORDER BY 1;
SELECT name, (SELECT c FROM (SELECT g, count(*) AS c FROM og WHERE g = names.id GROUP BY g) AS q) FROM names ORDER BY id LIMIT 4;
SELECT g, 'x' AS lit, c FROM (SELECT g, count(*) AS c FROM og GROUP BY g) AS q ORDER BY g LIMIT 2;
SELECT pg_typeof(s), pg_typeof(a), pg_typeof(c), pg_typeof(l) FROM (SELECT sum(n) AS s, avg(x) AS a, count(*) AS c, 'l' AS l FROM og) AS q;
SELECT g, s FROM (SELECT g, round(sum(f)::numeric, 6) AS s FROM og GROUP BY g) AS q WHERE s > 18 ORDER BY s DESC, g;
SELECT c FROM (SELECT count(*) AS c FROM og WHERE false) AS q;
SELECT count(*), sum(c) FROM (SELECT g, count(*) AS c FROM og WHERE false GROUP BY g) AS q;
SELECT g, c FROM (SELECT g, count(*) AS c FROM og WHERE at < now() GROUP BY g) AS q WHERE now() IS NOT NULL ORDER BY g LIMIT 3;
SELECT count(*) FROM (SELECT g, h, count(*) FROM og GROUP BY GROUPING SETS ((g), (h), ())) AS q;
SELECT count(*), sum(c) FROM (SELECT g, string_agg(h, ',' ORDER BY id) AS l, count(*) AS c FROM og GROUP BY g) AS q;
SELECT s FROM (SELECT sum(n) AS s FROM og UNION SELECT sum(x) FROM og) AS q ORDER BY s;
-- bind: 10 | 2
-- bind: 0 | 0
-- bind: NULL | 1
SELECT g, c FROM (SELECT g, count(*) AS c FROM og WHERE g < $1::int GROUP BY g) AS q ORDER BY g LIMIT $2::bigint;
-- bind: 3
-- bind: 0
SELECT count(*), sum(c) FROM (SELECT g, count(*) AS c FROM og GROUP BY g ORDER BY g LIMIT $1::bigint) AS q;
CREATE VIEW vg AS SELECT g, count(*) AS c, sum(n) AS s FROM og GROUP BY g;
SELECT count(*), sum(c), max(s) FROM vg;
SELECT name, c FROM vg JOIN names ON names.id = vg.g ORDER BY name LIMIT 3;
WITH a AS (SELECT * FROM vg WHERE c > 19) SELECT count(*) FROM a;

INSERT INTO into_home (g, c, s) SELECT g, count(*), sum(n) FROM og GROUP BY g;
SELECT * FROM into_home ORDER BY g LIMIT 4;
INSERT INTO into_home (g, c) SELECT g, count(*) FROM og GROUP BY g HAVING count(*) > 19 ORDER BY g LIMIT 3 RETURNING g, c, at;
INSERT INTO into_home SELECT * FROM (SELECT g, count(*), sum(n) FROM oh JOIN og USING (g) GROUP BY g) AS q;
WITH q AS (SELECT h, count(*) AS c FROM og GROUP BY h) INSERT INTO into_home (g, c) SELECT c, length(h) FROM q;
SELECT count(*), sum(g), sum(c), sum(s) FROM into_home;
INSERT INTO into_text SELECT h, count(*) FROM og GROUP BY h;
INSERT INTO into_text SELECT h || 'xx', count(*) FROM og GROUP BY h;
INSERT INTO into_text SELECT 'lit', max(w) FROM oh;
SELECT * FROM into_text ORDER BY a, b;
INSERT INTO og (id, g, h, n) SELECT 1000 + coalesce(g, 99), g, max(h), sum(n) FROM og GROUP BY g;
SELECT count(*), sum(id), sum(n), max(h) FROM og;
INSERT INTO og (id, g, n) SELECT 2000 + row_number() OVER (ORDER BY s), c, s FROM (SELECT h, count(*) AS c, sum(n) AS s FROM og GROUP BY h) AS q RETURNING id, g, n;
INSERT INTO og (id, n) SELECT 3000, 1000 * sum(n) FROM og;
INSERT INTO og (id) SELECT min(id) FROM og;
INSERT INTO og (id, g) SELECT min(id), 5 FROM og GROUP BY h ON CONFLICT DO NOTHING;
INSERT INTO names SELECT max(id) + 100, min(h) FROM og;
SELECT count(*), sum(id), max(name) FROM names;
CREATE TABLE made AS SELECT g, count(*) AS c, avg(n) AS a FROM og GROUP BY g;
SELECT count(*), sum(c), round(sum(a), 9) FROM made;
CREATE TABLE made_of AS WITH q AS (SELECT h, count(*) AS c FROM og GROUP BY h) SELECT * FROM q JOIN names ON names.id = q.c % 5;
SELECT * FROM made_of ORDER BY h, id;
BEGIN;
INSERT INTO into_home (g, c, s) SELECT -1, count(*), sum(n) FROM og WHERE g = 3;
SELECT count(*), sum(c) FROM (SELECT g, count(*) AS c FROM into_home GROUP BY g) AS q;
INSERT INTO og (id, g) VALUES (5000, 3);
SELECT sum(c) FROM (SELECT g, count(*) AS c FROM og GROUP BY g) AS q;
SELECT sum(c), sum(n) FROM (SELECT g, count(*) AS c FROM og GROUP BY g) AS q JOIN (SELECT g, count(*) AS n FROM oh GROUP BY g) AS r USING (g);
ROLLBACK;
COPY (SELECT g, count(*), sum(n), max(h) FROM og GROUP BY g ORDER BY g) TO STDOUT;
COPY (SELECT h, count(*) FROM og GROUP BY h HAVING count(*) > 1 ORDER BY h LIMIT 3) TO STDOUT WITH (FORMAT csv, HEADER);
COPY (SELECT 'it''s \ ' || h AS q, count(*) FROM og GROUP BY 1 ORDER BY 1) TO STDOUT;
COPY (SELECT count(*), sum(c) FROM (SELECT g, count(*) AS c FROM og GROUP BY g) AS q) TO STDOUT;
COPY (SELECT h FROM og WHERE false GROUP BY h) TO STDOUT;
BEGIN;
DECLARE c SCROLL CURSOR FOR SELECT g, count(*), sum(n) FROM og GROUP BY g ORDER BY g;
FETCH 3 FROM c;
FETCH LAST FROM c;
FETCH PRIOR FROM c;
DECLARE d CURSOR WITH HOLD FOR SELECT h, c FROM (SELECT h, count(*) AS c FROM og GROUP BY h) AS q ORDER BY c DESC, h;
INSERT INTO og (id, g, h) VALUES (6000, 3, 'h0');
FETCH ABSOLUTE 4 FROM c;
FETCH ALL FROM d;
COMMIT;
MOVE BACKWARD ALL IN d;
CLOSE d;
CREATE TABLE beside (k int, t text);
INSERT INTO beside SELECT k, 't' || k % 3 FROM generate_series(1, 20) k;
CREATE VIEW half_home AS SELECT og.id, og.g, beside.t FROM og JOIN beside ON beside.k = og.g;
SELECT sum(c) FROM (SELECT t, count(*) AS c FROM half_home GROUP BY t) AS q;
SELECT * FROM (SELECT t, max(id) FROM half_home GROUP BY t) AS q ORDER BY t;
SELECT * FROM (SELECT DISTINCT ON (g) g, t FROM half_home ORDER BY g, id) AS q ORDER BY g LIMIT 4;
SELECT t, c FROM (SELECT g, count(*) AS c FROM og GROUP BY g) AS q JOIN beside ON beside.k = q.g ORDER BY k LIMIT 5;
WITH q AS (SELECT g, count(*) AS c FROM og GROUP BY g), r AS (SELECT t, count(*) AS n FROM beside GROUP BY t) SELECT t, sum(c) FROM q, r GROUP BY t ORDER BY t;
INSERT INTO into_home (g, c) SELECT max(g), count(*) FROM half_home GROUP BY t;
SELECT count(*), sum(g), sum(c) FROM into_home;
SELECT 'og' AS t, count(*) FROM og UNION ALL SELECT 'oh', count(*) FROM oh UNION ALL SELECT 'names', count(*) FROM names ORDER BY t;
SELECT g, count(*) FROM og GROUP BY g EXCEPT SELECT g, count(*) FROM oh GROUP BY g ORDER BY 1 LIMIT 4;
(SELECT g, count(*) AS c FROM og GROUP BY g ORDER BY c DESC, g LIMIT 3) UNION ALL (SELECT g, count(*) FROM oh GROUP BY g ORDER BY 2, 1 LIMIT 2) ORDER BY 1, 2;
SELECT max(d) FROM og UNION SELECT '2030-01-01' ORDER BY 1;
SELECT '2030-01-01', count(*) FROM og UNION SELECT max(d), 1 FROM og ORDER BY 1;
SELECT NULL, count(*) FROM og UNION ALL SELECT max(d), 1 FROM og ORDER BY 1;
SELECT DISTINCT '2030-01-01' FROM og UNION SELECT max(d) FROM og ORDER BY 1;
SELECT sum(c), string_agg(t, ',' ORDER BY t) FROM (SELECT 'a' AS t, count(*) AS c FROM og UNION ALL SELECT 'b', max(id) FROM oh INTERSECT SELECT 'b', 160) AS q;
SELECT sum(n) FROM og UNION SELECT sum(1 / (x - x)) FROM og WHERE false ORDER BY 1;
SELECT sum(n) FROM og UNION SELECT sum(1 / (x - x)) FROM og;
(SELECT 1 UNION ALL SELECT sum(1 / (x - x)) FROM og) LIMIT 1;
CREATE TABLE summed AS SELECT 'og' AS t, count(*) AS c, max(n) AS m FROM og UNION ALL SELECT 'oh', count(*), NULL FROM oh;
SELECT * FROM summed ORDER BY t;
