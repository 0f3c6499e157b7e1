-- INSERT, UPDATE and DELETE in WITH, on several nodes: one part after the other, and what they return goes on.
--! changes data
--! distribution apart: wa HASH (id); wb HASH (id); wc HASH (k); wr REPLICATED; wh HOME
--! distribution mixed: wa HASH (id); wb REPLICATED; wc ROUND ROBIN; wr HASH (id); wh HASH (id)
--! distribution replicated: wa REPLICATED; wb REPLICATED; wc REPLICATED; wr REPLICATED; wh REPLICATED
--! distribution home: wa HASH (id); wb HOME; wc HASH (k); wr HOME; wh HOME

CREATE DOMAIN filled AS text NOT NULL CHECK (value <> '');
CREATE TABLE wa (id int PRIMARY KEY, v int, t text COLLATE "C", z timestamptz DEFAULT '2026-01-01 00:00+00', ar int[], c char(4), n numeric(10, 3), f float8, j jsonb);
CREATE TABLE wb (id int PRIMARY KEY, aid int, v int, w filled DEFAULT 'w');
CREATE TABLE wc (k int, v int DEFAULT 7, what text);
CREATE TABLE wr (id int PRIMARY KEY, v int);
CREATE TABLE wh (id int PRIMARY KEY, v int);
INSERT INTO wa SELECT g, g % 10, nullif('x' || g, 'x7'), timestamptz '2026-01-01 00:00+00' + g * interval '1 hour', ARRAY[g, NULL], 'c' || g % 3, g / 8.0, g / 4.0, jsonb_build_object('g', g) FROM generate_series(1, 60) g;
INSERT INTO wb SELECT g, g % 70, g % 7 FROM generate_series(1, 100) g;
INSERT INTO wr SELECT g, g FROM generate_series(1, 20) g;
INSERT INTO wh SELECT g, g * 2 FROM generate_series(1, 10) g;

-- Rows that go on to another table.
WITH gone AS (DELETE FROM wa WHERE v = 4 RETURNING id, v, t) INSERT INTO wc SELECT id, v, t FROM gone;
SELECT * FROM wc ORDER BY k;
WITH gone AS (DELETE FROM wa WHERE v = 3 RETURNING *) INSERT INTO wc (k, what) SELECT id, t || c || ar::text FROM gone RETURNING k, v, what;
WITH made AS (INSERT INTO wa (id, v) VALUES (101, 1), (102, 2), (103, NULL) RETURNING id, z) INSERT INTO wb (id, aid) SELECT id + 1000, id FROM made RETURNING *;
WITH made AS (INSERT INTO wh VALUES (11, 1), (12, 2) RETURNING *), more AS (INSERT INTO wb SELECT id + 2000, v, 0 FROM made RETURNING id) INSERT INTO wr SELECT id, 0 FROM more RETURNING *;
WITH up AS (UPDATE wa SET v = 100 WHERE id = 8 RETURNING *) INSERT INTO wa (id, v, t) SELECT 8, 1, 'new' WHERE NOT EXISTS (SELECT FROM up) RETURNING *;
WITH up AS (UPDATE wa SET v = 100 WHERE id = 208 RETURNING *) INSERT INTO wa (id, v, t) SELECT 208, 1, 'new' WHERE NOT EXISTS (SELECT FROM up) RETURNING *;
WITH up (a, b) AS (UPDATE wa AS x SET v = v + 1 WHERE v = 5 RETURNING x.id, x) UPDATE wb SET v = (b).v * 10 FROM up WHERE wb.aid = a RETURNING wb.id, wb.v;
-- refused in home: the nodes that change rows do not have the type of a table of node 1
WITH gone AS (DELETE FROM wb WHERE id < 10 RETURNING aid) DELETE FROM wa USING gone WHERE wa.id = gone.aid RETURNING wa.id, wa.n, wa.f;
-- refused in home: the nodes that change rows do not have the type of a table of node 1
WITH gone AS (DELETE FROM wr WHERE id > 15 RETURNING id) DELETE FROM wa WHERE id IN (SELECT id FROM gone) RETURNING id;

-- Rows that are read.
WITH up AS (UPDATE wa SET v = v + 1 RETURNING *) SELECT count(*), sum(v), min(z), max(n), sum(f), max(c), max(ar) FROM up;
WITH up AS (UPDATE wa SET v = v + 1 WHERE id < 20 RETURNING *) SELECT * FROM up ORDER BY id;
WITH up AS (UPDATE wa SET t = NULL WHERE id > 50 RETURNING id, t, j -> 'g' AS g, c || '|' AS c, wa) SELECT up.id, up.t, g, up.c, (up.wa).n FROM up ORDER BY id;
WITH up AS (UPDATE wa SET v = 0 WHERE id < 30 RETURNING id AS "The Id", v) SELECT up."The Id", wb.w FROM up JOIN wb ON wb.aid = up."The Id" ORDER BY 1, 2;
-- refused in home: the nodes that change rows do not have the table of node 1
WITH up AS (UPDATE wa SET v = wb.v FROM wb WHERE wb.aid = wa.id AND wb.id > 50 RETURNING wa.id, wa.v) SELECT count(*) FROM up;
-- refused in home: the nodes that change rows do not have the table of node 1
WITH ids AS (SELECT aid FROM wb WHERE v = 2), gone AS (DELETE FROM wa WHERE id IN (SELECT aid FROM ids) RETURNING id) SELECT count(*) FROM gone;
WITH n AS (SELECT 5 AS five), up AS (UPDATE wa SET v = five FROM n WHERE id > 40 RETURNING wa.id, wa.v) SELECT up.v - n.five, count(*) FROM up, n GROUP BY 1;
WITH x AS (INSERT INTO wa (id, v) VALUES (12, 0), (301, 0) ON CONFLICT (id) DO UPDATE SET v = 77 RETURNING id, v) SELECT * FROM x ORDER BY id;
WITH x AS (INSERT INTO wa (id, v) VALUES (12, 0), (302, 0) ON CONFLICT DO NOTHING RETURNING id) SELECT count(*) FROM x;
WITH x AS (UPDATE wa SET v = 1 WHERE false RETURNING *) SELECT count(*), max(id) FROM x;
WITH x AS (UPDATE wa SET v = 1 WHERE false RETURNING *) SELECT * FROM x;
WITH x AS (UPDATE wa SET v = 3 WHERE id < 5) SELECT 'done' AS what;
WITH x AS (UPDATE wa SET v = v + 1), y AS (DELETE FROM wr WHERE v = 3), z AS (INSERT INTO wc VALUES (500)) SELECT 1;
SELECT count(*), sum(v) FROM wa;
SELECT count(*) FROM wr;
SELECT * FROM wc ORDER BY k, v;
WITH one AS (UPDATE wa SET v = 1 WHERE id = 1 RETURNING id, v), two AS (UPDATE wb SET v = one.v FROM one WHERE wb.aid = one.id RETURNING wb.id) SELECT one.id, two.id AS b FROM one LEFT JOIN two ON true ORDER BY 2;
WITH x AS (DELETE FROM wa WHERE id > 250 RETURNING *) (SELECT id FROM x UNION ALL SELECT v FROM x) ORDER BY 1;
WITH x AS (UPDATE wa SET v = 3 WHERE id < 15 RETURNING id) SELECT array_agg(id ORDER BY id) FROM x WHERE EXISTS (SELECT FROM wb WHERE wb.aid = x.id);

-- What PostgreSQL computes for each row, and asks rights for, whether anybody reads it or not.
WITH d AS (UPDATE wa SET v = v + 1 RETURNING 1 / (v - v)) SELECT 1;
WITH d AS (UPDATE wa SET v = v + 1 RETURNING 1 / (v - v) AS x) SELECT count(*) FROM d;

-- Parts that would see one another.
-- refused in apart, mixed, home: one server takes rows away and adds them in turn
WITH d AS (DELETE FROM wa WHERE id IN (22, 23) RETURNING *) INSERT INTO wa (id) SELECT 23 FROM d LIMIT 1;
-- refused in apart, mixed, home: rows that were added before would be changed
WITH i AS (INSERT INTO wa (id, v) VALUES (400, 9), (401, 9) RETURNING id) UPDATE wa SET v = 1 FROM i WHERE wa.v = 9;
-- refused in apart, mixed, home: PostgreSQL may add the rows before others are taken away
WITH d AS (DELETE FROM wa WHERE id IN (20, 21)) INSERT INTO wa (id) VALUES (20), (21);
-- refused in apart, mixed, home: it reads what another part has changed
WITH d AS (DELETE FROM wa WHERE id < 30 RETURNING id) SELECT count(*) FROM d, wa;
-- refused: a table is filled by a statement of its own
CREATE TABLE wd AS WITH d AS (DELETE FROM wa WHERE id < 30 RETURNING *) SELECT id FROM d;
-- refused: the same
WITH d AS (DELETE FROM wa WHERE id < 30 RETURNING *) SELECT id INTO wd FROM d;

-- By parameters.
-- bind: 5 | 30
-- bind: NULL | 30
WITH up AS (UPDATE wa SET v = v + $1 WHERE id < $2 RETURNING id, v) SELECT count(*), sum(v), $1 + 1 AS more FROM up WHERE id > $1;
-- bind: 16
-- rows at a time: 3
WITH gone AS (DELETE FROM wa WHERE id < $1 RETURNING id, z) SELECT * FROM gone ORDER BY id;

-- Keys that are on several nodes, and that only parameters say.
-- bind: 17 | 18 | 19
-- bind: 17 | 17 | NULL
WITH up AS (UPDATE wa SET v = v + 1 WHERE id IN ($1, $2, $3) RETURNING id, v) SELECT * FROM up;
-- bind: 17 | 18
WITH up AS (UPDATE wa SET v = v + 1 WHERE id = ANY (ARRAY[$1::int, $2::int, NULL]) RETURNING id) SELECT id FROM up;
-- bind: 17 | 18
-- bind: 18 | 17
WITH a AS (UPDATE wa SET v = v + 1 WHERE id = $1 RETURNING id), b AS (DELETE FROM wb WHERE id = $2 RETURNING id) SELECT a.id, b.id FROM a LEFT JOIN b ON true;

-- The last portion's rows are counted, of which there may be none.
-- bind: 40
-- rows at a time: 1
UPDATE wa SET v = v WHERE id < $1 RETURNING id;
-- bind: 200
-- rows at a time: 1
INSERT INTO wb VALUES ($1, 1, 1), ($1 + 1, 1, 1), ($1 + 2, 1, 1) RETURNING id;
-- bind: 200
-- rows at a time: 5
DELETE FROM wb WHERE id >= $1;

-- Errors undo all of it.
WITH gone AS (DELETE FROM wa RETURNING id) INSERT INTO wr SELECT 1, id FROM gone;
WITH made AS (INSERT INTO wa (id) SELECT 20 RETURNING id) INSERT INTO wc SELECT id FROM made;
WITH gone AS (DELETE FROM wa RETURNING id) INSERT INTO wc SELECT 1 / (id - id) FROM gone;
WITH gone AS (DELETE FROM wa RETURNING nothing) SELECT * FROM gone;
WITH gone AS (DELETE FROM wa RETURNING id) SELECT nothing FROM gone;
WITH gone AS (DELETE FROM wa) SELECT * FROM gone;
WITH made AS (INSERT INTO wb (id, w) VALUES (5000, '') RETURNING id) SELECT * FROM made;
SELECT count(*), sum(id) FROM wa;
BEGIN;
WITH gone AS (DELETE FROM wa WHERE v > 3 RETURNING *) INSERT INTO wc SELECT id, v FROM gone;
SELECT count(*) FROM wa;
SAVEPOINT s;
WITH gone AS (DELETE FROM wa RETURNING id) INSERT INTO wr SELECT 1, id FROM gone;
ROLLBACK TO s;
SELECT count(*) FROM wa;
ROLLBACK;
SELECT count(*), sum(id) FROM wa;
BEGIN ISOLATION LEVEL REPEATABLE READ;
WITH gone AS (DELETE FROM wa WHERE v > 3 RETURNING *) INSERT INTO wc SELECT id, v FROM gone;
COMMIT;
SELECT count(*), sum(k) FROM wc;
DROP TABLE wa, wb, wc, wr, wh;
DROP DOMAIN filled;
