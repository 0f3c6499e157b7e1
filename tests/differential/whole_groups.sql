--! distribution by_group: gr HASH (g); gx HASH (g); names REPLICATED
--! distribution by_both: gr HASH (g, h); gx HASH (g); names REPLICATED
--! distribution elsewhere: gr HASH (x); gx HASH (y); names HASH (id)
--! distribution by_range: gr RANGE (g) SPLIT AT VALUES (10, 20); gx RANGE (g) SPLIT AT VALUES (10, 20); names REPLICATED
-- Groups whose rows are on one node, or not: conditions of groups, and the first ones of all.

CREATE TABLE gr (g int, h text, x int, n numeric, f float8, d date);
CREATE TABLE gx (g int, y int, w text);
CREATE TABLE names (id int PRIMARY KEY, name text);
INSERT INTO gr SELECT nullif(k % 31, 30), 'h' || k % 2, k, k % 13 / 4.0, k % 7 / 3.0, '2026-01-01'::date + k % 9 FROM generate_series(1, 500) k;
INSERT INTO gr SELECT 11 + 7 * k % 18, 'h' || k % 3, k, k % 5, k % 3, '2026-02-01' FROM generate_series(1, 60) k WHERE k % 7 < 4;
INSERT INTO gx SELECT nullif(k % 41, 40), k, 'w' || k % 3 FROM generate_series(1, 120) k;
INSERT INTO names SELECT k, 'name ' || 40 - k FROM generate_series(0, 40) k;
SELECT g, count(*) FROM gr GROUP BY g ORDER BY g LIMIT 5;
SELECT g, count(*) FROM gr GROUP BY g ORDER BY g NULLS FIRST LIMIT 3;
SELECT g, count(*) FROM gr GROUP BY g ORDER BY g DESC LIMIT 4 OFFSET 2;
SELECT g, sum(n) AS s FROM gr GROUP BY g HAVING sum(n) % 2 > 1 ORDER BY s DESC, g LIMIT 6;
SELECT g, sum(n) FROM gr GROUP BY g HAVING count(*) = 16 ORDER BY 1;
SELECT g, h, count(*), max(x) FROM gr GROUP BY g, h HAVING max(x) > 490 ORDER BY g, h LIMIT 9;
SELECT h, g, count(*) AS c FROM gr GROUP BY 1, 2 ORDER BY c DESC, h, g LIMIT 7;
SELECT g, avg(n) FROM gr GROUP BY g ORDER BY avg(n) DESC, g LIMIT 5;
SELECT g, round(stddev(f)::numeric, 9) FROM gr GROUP BY g HAVING stddev(f) > 0.6 ORDER BY 2 DESC, 1 LIMIT 5;
SELECT g, count(DISTINCT n), count(DISTINCT d) FROM gr GROUP BY g ORDER BY 2 DESC, 3, 1 LIMIT 5;
SELECT g, count(DISTINCT n) FROM gr GROUP BY g HAVING count(DISTINCT n) > 11 ORDER BY g LIMIT 3;
SELECT g FROM gr GROUP BY g HAVING min(x) < 5 ORDER BY -g LIMIT 2;
SELECT g + 0 AS g, count(*) FROM gr GROUP BY gr.g ORDER BY gr.g LIMIT 3;
SELECT -g AS g, count(*) FROM gr GROUP BY gr.g ORDER BY g LIMIT 3;
SELECT g % 5 AS m, count(*) FROM gr GROUP BY g % 5 ORDER BY m LIMIT 3;
SELECT count(*) FROM gr GROUP BY g ORDER BY count(*) DESC, min(x) LIMIT 3;
SELECT g, count(*) FROM gr GROUP BY g ORDER BY g FETCH FIRST 2 ROWS WITH TIES;
SELECT g, count(*), rank() OVER (ORDER BY count(*) DESC, g) FROM gr GROUP BY g ORDER BY 3 LIMIT 4;
SELECT g, count(*) FROM gr GROUP BY g ORDER BY count(*) DESC, g LIMIT 3;
SELECT g, count(*) FROM gr GROUP BY g ORDER BY 2, 1 DESC LIMIT 3;
SELECT g, sum(1) FROM gr GROUP BY g ORDER BY sum(1) DESC, g LIMIT 3;
SELECT g FROM gr GROUP BY g ORDER BY count(*) FILTER (WHERE h = 'h1') DESC, g LIMIT 3;
SELECT g FROM gr GROUP BY g ORDER BY count(*) * 2 - 1 DESC, g LIMIT 3;
SELECT g, count(*) AS n FROM gr GROUP BY g ORDER BY max(d) DESC, n DESC, g LIMIT 5;
SELECT DISTINCT count(*) FROM gr GROUP BY g ORDER BY 1 LIMIT 2;
SELECT DISTINCT g FROM gr ORDER BY g LIMIT 3;
SELECT g, count(*) FROM gr GROUP BY GROUPING SETS ((g), ()) ORDER BY 2 DESC, 1 LIMIT 3;
SELECT g, count(*) FROM gr GROUP BY g HAVING count(*) > (SELECT avg(c) FROM (SELECT count(*) AS c FROM gx GROUP BY g) q) ORDER BY g LIMIT 4;
SELECT g, count(*) FROM gr GROUP BY g HAVING g IN (SELECT id FROM names WHERE name LIKE '%3%') ORDER BY g LIMIT 4;
SELECT a.g, count(*), sum(b.y) FROM gr a JOIN gx b USING (g) GROUP BY a.g HAVING sum(b.y) > 1000 ORDER BY 3 DESC, 1 LIMIT 5;
SELECT a.g, count(b.y) FROM gr a LEFT JOIN gx b ON b.g = a.g AND b.w = 'w1' GROUP BY a.g HAVING count(b.y) = 16 ORDER BY 1 LIMIT 5;
SELECT b.g, count(a.x) FROM gr a LEFT JOIN gx b ON b.g = a.g AND b.w = 'w1' GROUP BY b.g ORDER BY 2 DESC, 1 LIMIT 3;
SELECT b.g, count(a.x) FROM gr a FULL JOIN gx b ON b.g = a.g GROUP BY b.g HAVING count(*) > 16 ORDER BY 1 LIMIT 3;
SELECT a.g, name, count(*) FROM gr a JOIN names ON names.id = a.g GROUP BY a.g, name ORDER BY name LIMIT 4;
SELECT a.g, count(*) FROM gr a JOIN gx b ON b.y = a.x GROUP BY a.g HAVING count(*) > 3 ORDER BY 2 DESC, 1 LIMIT 4;
SELECT b.y, count(*) FROM gr a JOIN gx b ON b.g = a.x GROUP BY b.y ORDER BY 1 LIMIT 4;
-- bind: 3 | 1
-- bind: 0 | 0
-- bind: NULL | NULL
SELECT g, count(*) FROM gr GROUP BY g ORDER BY g LIMIT $1::bigint OFFSET $2::bigint;
-- bind: 15
-- bind: 17
SELECT g, count(*) FROM gr GROUP BY g HAVING count(*) > $1::int ORDER BY g LIMIT 3;
SELECT g, 1 / (count(*) - 16) FROM gr GROUP BY g ORDER BY g LIMIT 3;
SELECT g, count(*) FROM gr GROUP BY g HAVING 1 / (count(*) - 17) < 0 ORDER BY g LIMIT 3;
CREATE VIEW vg AS SELECT g, count(*) AS c, sum(n) AS s FROM gr GROUP BY g;
SELECT * FROM vg WHERE c > 16 ORDER BY s DESC, g LIMIT 4;
SELECT * FROM (SELECT g, count(*) AS c FROM gr GROUP BY g HAVING sum(x) > 100 ORDER BY c, g LIMIT 9) q WHERE c > 15 ORDER BY g LIMIT 4;
