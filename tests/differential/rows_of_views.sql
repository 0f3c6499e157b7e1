--! distribution by_key: vr_a HASH (id); vr_b HASH (id)
--! distribution elsewhere: vr_a HASH (t); vr_b REPLICATED
--! changes data
-- Views over spread tables: whole rows of them are of their type whether the view is read on each node or written out, and what
-- is said twice of one is the same.

CREATE TABLE vr_a (id int, t text);
CREATE TABLE vr_b (id int, n int);
INSERT INTO vr_a SELECT g, 't' || g % 3 FROM generate_series(0, 9) g;
INSERT INTO vr_b SELECT g, g % 4 FROM generate_series(0, 12) g;
CREATE VIEW vr_plain AS SELECT id, t FROM vr_a;
CREATE VIEW vr_groups AS SELECT t, count(*) AS n FROM vr_a GROUP BY t;
CREATE VIEW vr_joined AS SELECT a.id, b.n FROM vr_a a LEFT JOIN vr_b b ON a.id = b.n AND b.id < 4;
CREATE VIEW vr_over AS SELECT g, g.n + 1 AS more FROM vr_groups g;

-- The same subquery twice.
SELECT (SELECT max(q.id) FROM vr_plain q WHERE q.id = b.n) g, count(*) FROM vr_b b GROUP BY (SELECT max(q.id) FROM vr_plain q WHERE q.id = b.n) ORDER BY 1;
SELECT b.n + (SELECT max(q.id) FROM vr_plain q WHERE q.id = b.n) g, a.t, count(*) FROM vr_b b RIGHT JOIN vr_a a ON b.n = a.id GROUP BY ROLLUP (b.n + (SELECT max(q.id) FROM vr_plain q WHERE q.id = b.n), a.t) ORDER BY 1, 2;
SELECT DISTINCT ON ((SELECT max(q.id) FROM vr_plain q WHERE q.id = b.n)) (SELECT max(q.id) FROM vr_plain q WHERE q.id = b.n), b.id FROM vr_b b ORDER BY (SELECT max(q.id) FROM vr_plain q WHERE q.id = b.n), b.id;
SELECT DISTINCT (SELECT max(q.id) FROM vr_plain q WHERE q.id = b.n) FROM vr_b b ORDER BY (SELECT max(q.id) FROM vr_plain q WHERE q.id = b.n);
SELECT (SELECT max(q.n) FROM vr_groups q WHERE q.n > b.n) g, count(*) FROM vr_b b GROUP BY (SELECT max(q.n) FROM vr_groups q WHERE q.n > b.n) ORDER BY 1;
SELECT x.id, y.t FROM vr_plain x JOIN vr_plain y ON y.id = x.id + 1 WHERE x.t = 't1' AND y.id < 6 ORDER BY 1;

-- Rows of the view's type.
SELECT g, pg_typeof(g)::text FROM vr_groups g ORDER BY 1;
SELECT vr_groups, pg_typeof(vr_groups)::text FROM vr_groups ORDER BY 1;
SELECT vr_groups FROM vr_groups ORDER BY vr_groups.t;
SELECT pg_typeof(j)::text, pg_typeof(p)::text FROM vr_joined j, vr_plain p WHERE p.id = j.id AND j.n = 1;
SELECT (array_agg(g ORDER BY t))[1].n FROM vr_groups g;
SELECT array_agg(g ORDER BY t) FROM vr_groups g;
SELECT pg_typeof(o)::text, pg_typeof(o.g)::text, (o.g).n FROM vr_over o ORDER BY more, (o.g).t;
SELECT o FROM vr_over o ORDER BY o.more, (o.g).t;
SELECT row_to_json(g), to_jsonb(g.*) FROM vr_groups g ORDER BY g.t;
SELECT count(g), count(g.*), count(DISTINCT g) FROM vr_groups g;
SELECT g.* FROM vr_groups g ORDER BY t;
SELECT ROW(g.*), ROW(g)::text, (g).t FROM vr_groups g ORDER BY t;
SELECT g, count(*) FROM vr_groups g GROUP BY g ORDER BY g;
SELECT DISTINCT g FROM vr_groups g ORDER BY g;
SELECT n AS g FROM vr_groups g ORDER BY g;
SELECT t FROM vr_groups g WHERE g = ROW('t0', 4)::vr_groups;
SELECT g.t, h.t FROM vr_groups g JOIN vr_groups h ON g = h ORDER BY 1;
SELECT max(coalesce(g.*::text, 'none')) FROM vr_groups g;
SELECT coalesce(g, NULL::vr_groups) FROM vr_groups g ORDER BY 1;
SELECT NULL::vr_groups, g FROM vr_groups g ORDER BY t;
SELECT CASE WHEN n > 3 THEN g END FROM vr_groups g ORDER BY t;

-- Of an outer join: nothing, not a row of nothing.
SELECT b.id, g, g IS NULL, pg_typeof(g)::text FROM vr_b b LEFT JOIN vr_groups g ON g.n = b.id ORDER BY 1, g;
SELECT count(g), count(*) FROM vr_b b LEFT JOIN vr_groups g ON g.n = b.id;
SELECT b.id, j FROM vr_b b FULL JOIN vr_joined j ON j.id = b.id AND j.n > 1 ORDER BY 1, j.id;

-- A column, or an output, that is called so.
SELECT vr_groups FROM (SELECT 1 AS vr_groups) x, vr_groups WHERE t = 't0';
SELECT t AS vr_groups FROM vr_groups ORDER BY vr_groups;
SELECT n AS g, count(*) FROM vr_groups g GROUP BY g ORDER BY 1;
SELECT DISTINCT ON (g) n AS g, t FROM vr_groups g ORDER BY g, t;
SELECT g AS row, n AS g FROM vr_groups g ORDER BY t;
SELECT g, min(n) FROM vr_groups g GROUP BY GROUPING SETS ((g), ()) ORDER BY g;
WITH c AS (SELECT g FROM vr_groups g) SELECT (c.g).n, pg_typeof(c.g)::text FROM c ORDER BY (c.g).t;
SELECT x.g, pg_typeof(x.g)::text FROM (SELECT g FROM vr_groups g UNION ALL SELECT g FROM vr_groups g WHERE n > 3) x ORDER BY 1;
SELECT (SELECT g FROM vr_groups g WHERE g.n = b.n ORDER BY t LIMIT 1) FROM vr_b b ORDER BY b.id;
-- types: int8
-- bind: 3
SELECT g FROM vr_groups g WHERE n = $1 ORDER BY t;
CREATE TABLE vr_made AS SELECT g FROM vr_groups g;
SELECT (g).n, pg_typeof(g)::text FROM vr_made ORDER BY (g).t;
DROP TABLE vr_made;
DROP VIEW vr_over, vr_joined, vr_groups, vr_plain;
