--! distribution replicated:
--! distribution together: target HASH (id); source HASH (id); copied REPLICATED; spread ROUND ROBIN; texts HASH (k); longs HASH (k); times HASH (k); numbers HASH (k); text_source HASH (k)
--! distribution apart: target HASH (id); source HASH (v); copied REPLICATED; spread HASH (w); texts HASH (k); longs HASH (k); times HASH (k); numbers HASH (k); text_source REPLICATED
--! distribution one_side: target HASH (id); source REPLICATED; copied HASH (v); spread REPLICATED; texts HASH (k); longs HASH (k); times HASH (k); numbers HASH (k); text_source ROUND ROBIN
--! distribution ranges: target RANGE (id) SPLIT AT VALUES (3, 6, 11); source RANGE (id) SPLIT AT VALUES (3, 6, 11); copied REPLICATED; spread RANGE (w) SPLIT AT VALUES (2); texts HASH (k); longs RANGE (k) SPLIT AT VALUES (2, 5); times RANGE (k) SPLIT AT VALUES ('2024-01-02', '2024-03-01'); numbers HASH (k); text_source REPLICATED
--! changes data
-- MERGE: each row of the source acts on the node of its key alone.

CREATE TABLE target (id int PRIMARY KEY, v int, t text DEFAULT 'none', at timestamptz DEFAULT now(), twice int GENERATED ALWAYS AS (v * 2) STORED);
CREATE TABLE source (id int, v int, t text);
CREATE TABLE copied (id int, v int, t text);
CREATE TABLE spread (id int, w int, t text);
CREATE TABLE texts (k varchar(5) PRIMARY KEY, v int);
CREATE TABLE longs (k bigint PRIMARY KEY, v text);
CREATE TABLE times (k timestamptz(0) PRIMARY KEY, v text);
CREATE TABLE numbers (k numeric(8,2) PRIMARY KEY, v text);
CREATE TABLE text_source (k text, v int);
INSERT INTO target (id, v) SELECT i, i FROM generate_series(1, 20) i;
INSERT INTO source SELECT i, i * 10, 's' || i FROM generate_series(11, 30) i;
INSERT INTO copied SELECT i, i * 100, 'c' || i FROM generate_series(5, 40, 5) i;
INSERT INTO spread SELECT i, i % 7, 'w' || i FROM generate_series(1, 60, 3) i;
INSERT INTO text_source VALUES ('a', 1), ('b ', 2), ('c', 3), ('abc', 4), ('dd  ', 5), ('e', 6), ('f', 7);
INSERT INTO texts VALUES ('a', 10), ('b', 20), ('abc', 30);
INSERT INTO longs VALUES (1, 'one'), (5000000000, 'big');
INSERT INTO numbers VALUES (1, 'one'), (2.50, 'two and a half');

-- matched alone
MERGE INTO target USING source ON target.id = source.id WHEN MATCHED THEN UPDATE SET v = source.v;
SELECT id, v, t, twice FROM target ORDER BY id;
MERGE INTO target t USING copied c ON t.id = c.id WHEN MATCHED AND c.v > 1000 THEN DELETE WHEN MATCHED THEN UPDATE SET t = c.t;
MERGE INTO target t USING copied c ON t.v = c.id WHEN MATCHED THEN UPDATE SET t = 'by value';
MERGE INTO target t USING spread s ON t.id = s.id WHEN MATCHED THEN UPDATE SET t = s.t, v = t.v + s.w WHEN NOT MATCHED THEN DO NOTHING;
MERGE INTO target t USING copied c ON t.v < c.id AND c.id = 5 WHEN MATCHED THEN UPDATE SET t = 'small';
MERGE INTO target t USING target o ON t.id = o.v WHEN MATCHED THEN UPDATE SET t = 'self';
SELECT id, v, t, twice FROM target ORDER BY id;
-- a row that is met twice
MERGE INTO target t USING copied c ON t.v < c.id WHEN MATCHED THEN UPDATE SET t = 'small';
MERGE INTO target t USING (VALUES (1), (1)) v(id) ON t.id = v.id WHEN MATCHED THEN UPDATE SET t = 'small';
MERGE INTO target t USING (VALUES (77), (77)) v(id) ON t.id = v.id WHEN NOT MATCHED THEN INSERT (id) VALUES (v.id);

-- inserts
MERGE INTO target t USING source s ON t.id = s.id WHEN MATCHED THEN UPDATE SET t = s.t WHEN NOT MATCHED THEN INSERT (id, v, t) VALUES (s.id, s.v, s.t);
SELECT id, v, t, twice FROM target ORDER BY id;
SELECT count(DISTINCT at) FROM target WHERE id > 20;
MERGE INTO target AS t USING copied AS c ON c.id = t.id WHEN NOT MATCHED AND c.v % 1000 = 0 THEN DO NOTHING WHEN NOT MATCHED THEN INSERT (id, t) VALUES (c.id, DEFAULT) WHEN MATCHED AND t.v > 200 THEN DELETE WHEN MATCHED THEN UPDATE SET (v, t) = (c.v, DEFAULT), at = '2020-01-01';
SELECT id, v, t, twice FROM target ORDER BY id;
MERGE INTO target t USING spread s ON t.id = s.id AND s.w < 5 WHEN MATCHED THEN UPDATE SET v = 0 WHEN NOT MATCHED AND s.id > 40 THEN INSERT (v, id) VALUES (s.w, s.id);
SELECT id, v, t, twice FROM target ORDER BY id;
MERGE INTO target t USING (SELECT id, count(*) AS n, max(t) AS t FROM source GROUP BY id) s ON t.id = s.id WHEN MATCHED THEN UPDATE SET v = s.n WHEN NOT MATCHED THEN INSERT (id, v, t) VALUES (s.id, s.n, s.t);
MERGE INTO target t USING (SELECT DISTINCT ON (w) w + 100 AS id, t FROM spread ORDER BY w, spread.id DESC) s ON t.id = s.id WHEN MATCHED THEN UPDATE SET t = s.t WHEN NOT MATCHED THEN INSERT (id, t) VALUES (s.id, s.t);
MERGE INTO target t USING (SELECT id + 200 AS id, v FROM copied ORDER BY id LIMIT 4) s ON t.id = s.id WHEN NOT MATCHED THEN INSERT (id, v) VALUES (s.id, s.v);
MERGE INTO target t USING (SELECT s.id, c.t FROM source s LEFT JOIN copied c ON c.id = s.id UNION ALL SELECT 300, 'x') s ON t.id = s.id WHEN MATCHED THEN UPDATE SET t = s.t WHEN NOT MATCHED THEN INSERT (id, t) VALUES (s.id, s.t);
WITH c AS (SELECT id + 400 AS id, t FROM source WHERE v > 200) MERGE INTO target t USING c ON t.id = c.id WHEN NOT MATCHED THEN INSERT (id, t) VALUES (c.id, c.t) WHEN MATCHED THEN DELETE;
SELECT id, v, t, twice FROM target ORDER BY id;
MERGE INTO target t USING (VALUES (1, 'a'), (501, 'b'), (502, 'c'), (503, NULL)) s (id, t) ON t.id = s.id WHEN MATCHED THEN UPDATE SET t = s.t WHEN NOT MATCHED THEN INSERT (id, t) VALUES (id, s.t);
MERGE INTO target t USING (VALUES (1, 'aa')) s (id, t) ON t.id = s.id WHEN MATCHED THEN UPDATE SET t = s.t WHEN NOT MATCHED THEN INSERT (id, t) VALUES (s.id, s.t);
MERGE INTO target t USING (SELECT 510 AS id, 'x' AS t) s ON t.id = s.id WHEN MATCHED THEN UPDATE SET t = s.t WHEN NOT MATCHED THEN INSERT (id, t) VALUES (s.id, s.t);
MERGE INTO target t USING (SELECT 1) s ON t.id = 511 WHEN MATCHED THEN UPDATE SET v = t.v + 1 WHEN NOT MATCHED THEN INSERT (id, v) VALUES (511, 1);
MERGE INTO target t USING (SELECT 1) s ON t.id = 511 WHEN MATCHED THEN UPDATE SET v = t.v + 1 WHEN NOT MATCHED THEN INSERT (id, v) VALUES (511, 1);
MERGE INTO target t USING generate_series(515, 525) AS g ON t.id = g.g WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT (id, v) VALUES (g.g, g.g);
MERGE INTO target t USING generate_series(520, 530) AS g (n) ON t.id = n WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT (id, v) VALUES (n, n);
MERGE INTO target t USING jsonb_to_recordset('[{"id": 1, "t": "j"}, {"id": 600, "t": "k"}]') AS j (id int, t text) ON t.id = j.id WHEN MATCHED THEN UPDATE SET t = j.t WHEN NOT MATCHED THEN INSERT (id, t) VALUES (j.id, j.t);
SELECT id, v, t, twice FROM target ORDER BY id;
-- bind: {601,602,603} | {a,b,NULL}
-- bind: {602,603,604} | {d,e,f}
-- bind: {} | {}
MERGE INTO target t USING unnest($1::int[], $2::text[]) AS u (id, t) ON t.id = u.id WHEN MATCHED THEN UPDATE SET t = u.t WHEN NOT MATCHED THEN INSERT (id, t) VALUES (u.id, u.t);
-- bind: 610 | one
-- bind: 610 | two
-- bind: NULL | none
MERGE INTO target t USING (SELECT $1::int AS id, $2::text AS t) s ON t.id = s.id WHEN MATCHED THEN UPDATE SET t = s.t WHEN NOT MATCHED THEN INSERT (id, t) VALUES (s.id, s.t);
-- bind: 611 | 5
-- bind: 611 | 6
MERGE INTO target t USING (VALUES ($1::int, $2::int)) s (id, v) ON t.id = s.id WHEN MATCHED AND s.v > 5 THEN DELETE WHEN NOT MATCHED THEN INSERT (id, v) VALUES (s.id, s.v);
-- bind: 612 | 613
-- bind: 613 | 614
MERGE INTO target t USING (VALUES ($1::int), ($2::int)) s (id) ON t.id = s.id WHEN MATCHED THEN UPDATE SET v = -1 WHEN NOT MATCHED THEN INSERT (id, v) VALUES (s.id, 0);
-- bind: 615
-- bind: 615
MERGE INTO target t USING (SELECT 1) s ON t.id = $1 WHEN MATCHED THEN UPDATE SET v = t.v + 1 WHEN NOT MATCHED THEN INSERT (id, v) VALUES ($1, 1);
SELECT id, v, t, twice FROM target WHERE id > 550 ORDER BY id;
PREPARE m (int, text) AS MERGE INTO target t USING (SELECT $1 AS id, $2 AS t) s ON t.id = s.id WHEN MATCHED THEN UPDATE SET t = s.t || t.t WHEN NOT MATCHED THEN INSERT (id, t) VALUES (s.id, s.t);
EXECUTE m (620, 'p');
EXECUTE m (620, 'q');
EXECUTE m (621, 'r');
SELECT id, t FROM target WHERE id >= 620 ORDER BY id;

-- keys that are assigned, and stay
MERGE INTO target t USING source s ON t.id = s.id WHEN MATCHED THEN UPDATE SET id = s.id, t = 'kept' WHEN NOT MATCHED THEN INSERT (id, t) VALUES (s.id, 'new');
MERGE INTO target t USING copied s ON t.id = s.id WHEN MATCHED THEN UPDATE SET id = t.id, t = 'kept again';

-- other types of keys
MERGE INTO texts t USING text_source s ON t.k = s.k WHEN MATCHED THEN UPDATE SET v = t.v + s.v WHEN NOT MATCHED AND s.k NOT LIKE '% ' THEN INSERT VALUES (s.k, s.v);
SELECT k, v, length(k) FROM texts ORDER BY k;
MERGE INTO texts t USING (VALUES ('longer than five')) s (k) ON t.k = s.k WHEN NOT MATCHED THEN INSERT (k) VALUES (s.k);
MERGE INTO texts t USING (VALUES ('x       '), ('y   '), ('z')) s (k) ON t.k = s.k WHEN NOT MATCHED THEN INSERT (k) VALUES (s.k);
SELECT k, v, length(k) FROM texts ORDER BY k;
SELECT k, v FROM texts WHERE k = 'x    ';
SELECT k, v FROM texts WHERE k = 'y   ';
MERGE INTO longs l USING copied c ON l.k = c.id WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT VALUES (c.id, c.t);
MERGE INTO longs l USING (VALUES (5000000000, 'x'), (5, 'y'), (6::bigint, 'z')) s (id, t) ON l.k = s.id WHEN MATCHED THEN UPDATE SET v = s.t WHEN NOT MATCHED THEN INSERT VALUES (s.id, s.t);
SELECT * FROM longs ORDER BY k;
SELECT * FROM longs WHERE k = 5000000000;
MERGE INTO times t USING (VALUES ('2020-01-01 10:00:00.4+00'::timestamptz), ('2020-01-01 11:00:00.6+00')) s (k) ON t.k = s.k WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT (k, v) VALUES (s.k, 'x');
MERGE INTO times t USING (VALUES ('2020-01-01'::date), ('2020-01-02')) s (k) ON t.k = s.k WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT (k, v) VALUES (s.k, 'day');
SELECT * FROM times ORDER BY k;
SELECT * FROM times WHERE k = '2020-01-01 11:00:01+00';
MERGE INTO numbers n USING (VALUES (1, 'a'), (2, 'b')) s (k, v) ON n.k = s.k WHEN MATCHED THEN UPDATE SET v = s.v WHEN NOT MATCHED THEN INSERT VALUES (s.k, s.v);
MERGE INTO numbers n USING (VALUES (2.5, 'c'), (3.001, 'd'), (3.999, 'e')) s (k, v) ON n.k = s.k WHEN MATCHED THEN UPDATE SET v = s.v WHEN NOT MATCHED THEN INSERT VALUES (s.k, s.v);
SELECT * FROM numbers ORDER BY k;
SELECT * FROM numbers WHERE k = 3;

-- transactions
BEGIN ISOLATION LEVEL REPEATABLE READ;
MERGE INTO target t USING spread s ON t.id = s.id + 700 WHEN MATCHED THEN DELETE;
MERGE INTO target t USING (SELECT id + 700 AS id FROM spread) s ON t.id = s.id WHEN NOT MATCHED THEN INSERT (id) VALUES (s.id);
SAVEPOINT a;
MERGE INTO target t USING (SELECT id + 700 AS id FROM spread) s ON t.id = s.id WHEN MATCHED THEN DELETE;
MERGE INTO target t USING (VALUES (1), (1)) v (id) ON t.id = v.id WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT (id) VALUES (v.id);
ROLLBACK TO a;
SELECT count(*) FROM target WHERE id > 700;
COMMIT;
SELECT count(*) FROM target WHERE id > 700;
BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY;
MERGE INTO target t USING source s ON t.id = s.id WHEN MATCHED THEN DELETE;
ROLLBACK;

-- errors
MERGE INTO target t USING source s ON t.id = s.id WHEN MATCHED THEN UPDATE SET v = 1 / 0 WHEN NOT MATCHED THEN INSERT (id) VALUES (s.id);
-- refused in together, apart, one_side, ranges: whether it is a column only the nodes know
MERGE INTO target t USING source s ON t.id = s.nothing WHEN NOT MATCHED THEN INSERT (id) VALUES (s.id);
MERGE INTO target t USING source s ON t.id = s.id WHEN NOT MATCHED THEN INSERT (id) VALUES (s.id, 5);
MERGE INTO target t USING source s ON t.id = s.id WHEN NOT MATCHED THEN INSERT (id, twice) VALUES (s.id, 5);
MERGE INTO target t USING source s ON t.id = s.id WHEN MATCHED THEN UPDATE SET nothing = 5;
MERGE INTO target t USING (VALUES ('a')) s (id) ON t.id = s.id WHEN NOT MATCHED THEN INSERT (id) VALUES (s.id);
MERGE INTO target t USING (VALUES (1), (NULL)) s (id) ON t.id = s.id WHEN NOT MATCHED THEN INSERT (id) VALUES (s.id);
MERGE INTO nowhere t USING source s ON t.id = s.id WHEN MATCHED THEN DELETE;
-- refused in together, apart, one_side, ranges: it may be a table that node 1 has
MERGE INTO target t USING nowhere s ON t.id = s.id WHEN MATCHED THEN DELETE;
SELECT id, v, t FROM target ORDER BY id;

-- refused in together, apart, one_side, ranges: what matches may be on any node
MERGE INTO target t USING source s ON t.v = s.v WHEN NOT MATCHED THEN INSERT (id, v) VALUES (s.id, s.v);
-- refused in together, apart, one_side, ranges: the row may belong to another node than the one that finds no match
MERGE INTO target t USING source s ON t.id = s.id WHEN NOT MATCHED THEN INSERT (id, v) VALUES (s.id + 1000, s.v);
-- refused in together, apart, one_side, ranges: rows would have to go to another node
MERGE INTO target t USING source s ON t.id = s.id WHEN MATCHED THEN UPDATE SET id = t.id + 1000;
-- refused in together, apart, one_side, ranges: the key must be an integer
MERGE INTO target t USING (VALUES (1.5), (2)) s (id) ON t.id = s.id WHEN NOT MATCHED THEN INSERT (id) VALUES (s.id);
-- refused in together, apart, one_side, ranges: each node would find another source
MERGE INTO target t USING (SELECT (random() * 5)::int + 800 AS id) s ON t.id = s.id WHEN NOT MATCHED THEN INSERT (id) VALUES (s.id);
