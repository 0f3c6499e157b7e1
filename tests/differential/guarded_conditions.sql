--! distribution by_key: gfacts HASH (id); gkinds HASH (kind); gchosen REPLICATED
--! distribution elsewhere: gfacts ROUND ROBIN; gkinds HASH (factor); gchosen HASH (id)
--! distribution ranges: gfacts RANGE (id) SPLIT AT VALUES (100, 300); gkinds HASH (kind); gchosen ROUND ROBIN
-- Conditions that fail for some rows, which another condition keeps from them: PostgreSQL checks cheap ones first, also
-- those of the queries around. Nodes that collect rows must not meet what it does not meet.

CREATE TABLE gfacts (id int, kind text NOT NULL, value text, doc jsonb, at int, tags text[]);
CREATE TABLE gkinds (kind text, factor int);
CREATE TABLE gchosen (id int, what text);
INSERT INTO gfacts SELECT n, CASE n % 3 WHEN 0 THEN 'number' WHEN 1 THEN 'word' ELSE 'date' END,
    CASE n % 3 WHEN 0 THEN (n * 7 % 100)::text WHEN 1 THEN 'w' || n ELSE '2026-01-' || lpad((n % 28 + 1)::text, 2, '0') END,
    jsonb_build_object('n', n, 'w', 'x' || n % 5), CASE WHEN n % 3 = 0 THEN n % 10 + 1 ELSE 0 END,
    ARRAY['t' || n % 4, 'u' || n % 6]
    FROM generate_series(1, 400) n;
INSERT INTO gkinds VALUES ('number', 2), ('word', 3), ('date', 5);
INSERT INTO gchosen SELECT n, CASE WHEN n % 2 = 0 THEN 'number' ELSE 'word' END FROM generate_series(1, 50) n;

-- In a subquery, guarded from around.
SELECT count(*), sum(f.id) FROM (SELECT id, kind, value FROM gfacts WHERE value::numeric > 50) f JOIN gkinds k ON k.kind = f.kind WHERE f.kind = 'number';
SELECT f.id, f.value FROM (SELECT * FROM gfacts WHERE 100 / at > 20) f, gkinds k WHERE f.kind = 'number' AND k.factor = 2 AND f.id < 40 ORDER BY f.id;
SELECT a.id, b.id FROM (SELECT * FROM gfacts WHERE value::int = 7) a JOIN (SELECT * FROM gfacts WHERE value::int = 14) b ON b.at <= a.at WHERE a.kind = 'number' AND b.kind = 'number' AND a.id < 200 ORDER BY 1, 2;
-- From ON, and through two levels.
SELECT count(*) FROM gkinds k JOIN (SELECT * FROM gfacts WHERE value::numeric > 50) f ON f.kind = 'number' AND k.factor = 2;
SELECT count(*), min(g.id) FROM (SELECT * FROM (SELECT * FROM gfacts WHERE value::numeric < 20) f WHERE f.at > 0) g JOIN gkinds k ON k.factor > 1 WHERE g.kind = 'number';
SELECT count(*) FROM (SELECT * FROM (SELECT * FROM gfacts WHERE value::numeric < 20) f) g JOIN gkinds k USING (kind) WHERE g.kind = 'number';
-- In WITH that is read once, and in a view.
WITH f AS (SELECT * FROM gfacts WHERE value::numeric > 90) SELECT count(*) FROM f JOIN gkinds k ON k.factor >= f.at WHERE f.kind = 'number';
CREATE VIEW gnumbers AS SELECT id, kind, at, value::numeric AS value FROM gfacts WHERE value::numeric >= 0;
SELECT count(*), sum(n.value) FROM gnumbers n JOIN gkinds k ON k.factor = n.at WHERE n.kind = 'number';
SELECT n.id, c.what FROM gnumbers n JOIN gchosen c ON c.id = n.at WHERE n.kind = 'number' AND n.id < 60 ORDER BY 1, 2;
-- One operand of UNION ALL.
SELECT count(*) FROM (SELECT id, kind FROM gfacts WHERE value::numeric > 50 UNION ALL SELECT factor, kind FROM gkinds) u JOIN gchosen c ON c.id = u.id WHERE u.kind = 'number';
-- By groups.
SELECT * FROM (SELECT f.kind, count(*) AS n FROM gfacts f JOIN gchosen c ON c.id = f.at WHERE f.value::numeric > 50 GROUP BY f.kind) g WHERE kind = 'number';
SELECT f.kind, count(*) FROM gfacts f JOIN gchosen c ON c.id = f.at WHERE f.value::numeric > 50 GROUP BY f.kind HAVING f.kind = 'number';
-- At the same level, by what other nodes must say.
SELECT count(*) FROM gfacts f JOIN gkinds k ON k.factor >= f.at WHERE f.kind = (SELECT min(kind) FROM gkinds WHERE factor = 2) AND f.value::numeric > 50;
SELECT count(*) FROM gfacts f JOIN gkinds k ON k.factor >= f.at WHERE f.kind NOT IN (SELECT kind FROM gkinds WHERE factor > 2) AND f.value::numeric > 50;
SELECT count(*) FROM gfacts f JOIN gkinds k ON k.factor >= f.at WHERE (SELECT count(*) FROM gchosen) < 0 AND f.value::numeric > 50;
-- Of the side of an outer join that has no row.
SELECT count(*), count(f.id) FROM gkinds k LEFT JOIN gfacts f ON f.at = k.factor AND f.value::numeric > 50 WHERE f.kind = 'number';
-- Of a table that is named twice, some other mention asks for the rows that are kept away.
SELECT value FROM gfacts WHERE value::numeric > 90 AND kind = 'number' UNION SELECT value FROM gfacts WHERE kind = 'word' AND id < 9 ORDER BY 1;
SELECT count(*) FROM (SELECT * FROM gfacts WHERE value::numeric > 20 AND kind = 'number') a FULL JOIN (SELECT * FROM gfacts WHERE kind = 'date' AND id < 90) b ON a.at = b.at + 1;
SELECT a.id, (SELECT max(b.value::int) FROM gfacts b WHERE b.at = a.at AND b.kind = 'number') FROM gfacts a WHERE a.id < 60 AND 10 / a.at > 0 AND a.at <> 0 ORDER BY a.id;
SELECT count(*) FROM gfacts a JOIN gfacts b ON a.at = b.at WHERE NOT (a.value::int < 10 OR a.kind <> 'number') AND b.kind = 'number';
SELECT count(*) FROM gfacts a WHERE a.at IN (SELECT b.at FROM gfacts b WHERE b.value::date > '2026-01-05' AND b.kind = 'date') AND a.value::int BETWEEN 5 AND 50 AND a.value ~ '^[0-9]+$';
WITH x AS (SELECT * FROM gfacts WHERE value::int > 10 AND kind = 'number'), y AS (SELECT * FROM gfacts WHERE kind = 'word' AND id < 50) SELECT count(*) FROM x JOIN y ON x.at = y.at + 1;
SELECT id FROM gfacts WHERE nullif(kind, 'word') = 'number' AND value::int > 90 UNION SELECT id FROM gfacts WHERE id < 3 ORDER BY 1;
SELECT id FROM gfacts WHERE at <> 0 AND 10 / at > 2 UNION SELECT id FROM gfacts WHERE (at > 0 OR at < 0) AND 10 / at > 2 ORDER BY 1;
SELECT id FROM gfacts WHERE at > 0 AND 10 / at > 2 EXCEPT SELECT id FROM gfacts WHERE at < 0 AND 10 / at > 2 ORDER BY 1 LIMIT 5;
-- What cannot fail is checked by the nodes, and says the same.
SELECT count(*) FROM (SELECT * FROM gfacts WHERE lower(kind) = 'number' AND length(value) < 3 AND doc ->> 'w' = 'x3') f JOIN gkinds k ON k.factor >= f.at WHERE f.id > 10;
SELECT count(*) FROM (SELECT * FROM gfacts WHERE doc @> '{"w": "x1"}' AND 't1' = ANY (tags) AND tags && ARRAY['u1', 'u3']) f JOIN gkinds k ON k.factor >= f.at WHERE f.id > 10;
SELECT count(*) FROM (SELECT * FROM gfacts WHERE value ~ '^w1' AND value ILIKE 'W%' AND left(value, 2) IN ('w1', 'w2') AND id = ANY (ARRAY[1, 4, 10, 13, 100])) f JOIN gkinds k ON k.factor >= f.at WHERE f.id > 3;
SELECT count(*) FROM (SELECT * FROM gfacts WHERE nullif(kind, 'word') IS NOT NULL AND greatest(id, at) > 5 AND id::text LIKE '1%' AND id::numeric + 0.5 BETWEEN SYMMETRIC 300 AND 7) f JOIN gkinds k ON k.factor >= f.at WHERE f.id > 3;
-- types: text
-- bind: number
SELECT count(*) FROM (SELECT * FROM gfacts WHERE value::numeric > 50) f JOIN gkinds k ON k.factor >= f.at WHERE f.kind = $1;
-- types: text | numeric
-- bind: number | 50
SELECT count(*) FROM (SELECT * FROM gfacts WHERE value::numeric > $2) f JOIN gkinds k ON k.kind = f.kind WHERE f.kind = $1;
-- Where PostgreSQL fails, Tutti does.
SELECT count(*) FROM gfacts f JOIN gkinds k ON k.factor >= f.at WHERE f.value::numeric > 50;
