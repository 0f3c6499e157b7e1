--! changes data
--! only where tables are at home
--! distribution hash: a HASH (id); bb HASH (a_id); r REPLICATED
--! distribution apart: a HASH (n); bb ROUND ROBIN; r REPLICATED
--! distribution mixed: a HASH (id)
-- Materialized views over tables of several nodes: made, filled, read, changed and dropped.

CREATE TABLE a (id int, v text NOT NULL, n int CHECK (n < 1000), g int GENERATED ALWAYS AS (n * 2) STORED, at timestamptz DEFAULT '2024-01-01 12:00+00', list text[], "Odd, ""name" numeric(8,2));
CREATE TABLE bb (a_id int, amount numeric, note text);
CREATE TABLE r (n int, name text);
CREATE TABLE h (n int, label text);
INSERT INTO a (id, v, n, list, "Odd, ""name") SELECT i, 'x' || i, i % 7, ARRAY['a', NULL, 'bb' || i, 'NULL', ''], i / 3.0 FROM generate_series(1, 40) i;
INSERT INTO a (id, v, n, at, list) VALUES (41, E'tab\t"quoted" \\ back, (paren)', NULL, NULL, '{}');
INSERT INTO bb SELECT i % 40 + 1, i * 1.5, nullif('note ' || i % 5, 'note 3') FROM generate_series(1, 120) i;
INSERT INTO r SELECT i, 'r' || i FROM generate_series(0, 6) i;
INSERT INTO h SELECT i, 'h' || i FROM generate_series(0, 6, 2) i;
CREATE MATERIALIZED VIEW whole AS SELECT * FROM a;
SELECT * FROM whole ORDER BY id;
CREATE MATERIALIZED VIEW counted AS SELECT n, count(*), max(v), sum("Odd, ""name") AS s FROM a GROUP BY n;
SELECT * FROM counted ORDER BY n;
CREATE MATERIALIZED VIEW joined (who, what, much) AS SELECT r.name, h.label, sum(bb.amount) FROM a JOIN bb ON bb.a_id = a.id JOIN r USING (n) LEFT JOIN h USING (n) GROUP BY 1, 2 ORDER BY 1;
SELECT * FROM joined ORDER BY who;
CREATE MATERIALIZED VIEW counted AS SELECT 1 FROM a;
CREATE MATERIALIZED VIEW IF NOT EXISTS counted AS SELECT 1 FROM a;
CREATE MATERIALIZED VIEW empty AS SELECT id, v FROM a WITH NO DATA;
SELECT * FROM empty;
SELECT relname, relkind, relispopulated FROM pg_class WHERE relname IN ('empty', 'counted') ORDER BY 1;
REFRESH MATERIALIZED VIEW CONCURRENTLY empty;
REFRESH MATERIALIZED VIEW empty;
SELECT count(*), min(v) FROM empty;
REFRESH MATERIALIZED VIEW empty WITH NO DATA;
SELECT * FROM empty;
REFRESH MATERIALIZED VIEW CONCURRENTLY counted;
CREATE UNIQUE INDEX counted_n ON counted (n);
INSERT INTO a (id, v, n) SELECT i, 'y' || i, i % 7 FROM generate_series(101, 130) i;
DELETE FROM a WHERE id BETWEEN 5 AND 9;
UPDATE a SET v = 'z' || v WHERE n = 3;
SELECT * FROM counted ORDER BY n;
REFRESH MATERIALIZED VIEW CONCURRENTLY counted;
SELECT * FROM counted ORDER BY n;
DELETE FROM a WHERE n = 2;
REFRESH MATERIALIZED VIEW CONCURRENTLY counted;
SELECT * FROM counted ORDER BY n;
REFRESH MATERIALIZED VIEW CONCURRENTLY counted WITH NO DATA;
REFRESH MATERIALIZED VIEW a;
REFRESH MATERIALIZED VIEW nowhere;
REFRESH MATERIALIZED VIEW joined;
SELECT * FROM joined ORDER BY who;
-- Read with other tables.
SELECT a.id, c.count FROM a JOIN counted c USING (n) WHERE a.id < 12 ORDER BY a.id;
SELECT r.name, c.max FROM r JOIN counted c USING (n) ORDER BY 1;
SELECT h.label, c.max FROM h LEFT JOIN counted c USING (n) ORDER BY 1;
SELECT id FROM a WHERE n IN (SELECT n FROM counted WHERE count > 5) ORDER BY id LIMIT 5;
SELECT count(*) FROM whole JOIN bb ON bb.a_id = whole.id;
SELECT max(count) FROM counted;
CREATE VIEW over AS SELECT c.n, a.v FROM counted c JOIN a USING (n);
SELECT * FROM over ORDER BY n, v LIMIT 4;
-- bind: 1
-- bind: 3
SELECT count FROM counted WHERE n = $1;
-- Over views, subqueries, WITH and set operations.
CREATE VIEW upper AS SELECT id, upper(v) AS v, n FROM a WHERE n > 1;
CREATE MATERIALIZED VIEW over_view AS SELECT n, count(DISTINCT v) AS d FROM upper GROUP BY n;
SELECT * FROM over_view ORDER BY n;
CREATE MATERIALIZED VIEW over_both AS WITH x AS (SELECT id FROM a UNION ALL SELECT a_id FROM bb) SELECT id, count(*) AS c, rank() OVER (ORDER BY count(*) DESC, id) FROM x WHERE EXISTS (SELECT FROM r WHERE r.n = x.id % 8) GROUP BY id;
SELECT * FROM over_both ORDER BY id;
CREATE MATERIALIZED VIEW over_m AS SELECT m.n, count(a.id) FROM counted m LEFT JOIN a USING (n) GROUP BY m.n;
SELECT * FROM over_m ORDER BY n;
CREATE MATERIALIZED VIEW fails AS SELECT id / (id - 20) FROM a;
SELECT * FROM fails;
CREATE MATERIALIZED VIEW fails AS SELECT nothing FROM a;
CREATE MATERIALIZED VIEW fails AS SELECT id, id FROM a;
CREATE TEMP TABLE t (id int);
CREATE MATERIALIZED VIEW fails AS SELECT a.id FROM a JOIN t USING (id);
-- In transaction blocks, with what the transaction has done itself.
BEGIN;
INSERT INTO a (id, v, n) VALUES (500, 'mine', 500), (501, 'mine', 500);
REFRESH MATERIALIZED VIEW counted;
SELECT * FROM counted WHERE n = 500;
SAVEPOINT s;
INSERT INTO a (id, v, n) VALUES (502, 'mine', 500);
REFRESH MATERIALIZED VIEW CONCURRENTLY counted;
SELECT * FROM counted WHERE n = 500;
ROLLBACK TO s;
SELECT * FROM counted WHERE n = 500;
CREATE MATERIALIZED VIEW in_block AS SELECT count(*) FROM a WHERE n = 500;
SELECT * FROM in_block;
COMMIT;
SELECT * FROM counted WHERE n = 500;
SELECT * FROM in_block;
BEGIN ISOLATION LEVEL REPEATABLE READ;
DELETE FROM a WHERE n = 500;
REFRESH MATERIALIZED VIEW in_block;
REFRESH MATERIALIZED VIEW over_m;
SELECT * FROM in_block;
ROLLBACK;
SELECT * FROM in_block;
BEGIN ISOLATION LEVEL REPEATABLE READ;
DELETE FROM a WHERE n = 500;
REFRESH MATERIALIZED VIEW in_block;
COMMIT;
SELECT * FROM in_block;
BEGIN READ ONLY;
REFRESH MATERIALIZED VIEW in_block;
ROLLBACK;
BEGIN READ ONLY;
CREATE MATERIALIZED VIEW fails AS SELECT 1 AS x FROM a;
ROLLBACK;
BEGIN;
CREATE MATERIALIZED VIEW gone AS SELECT * FROM a;
ROLLBACK;
SELECT * FROM gone;
BEGIN;
REFRESH MATERIALIZED VIEW nowhere;
SELECT 1;
ROLLBACK;
BEGIN;
CREATE TABLE new_one (x int);
INSERT INTO new_one VALUES (1);
CREATE MATERIALIZED VIEW of_new AS SELECT x, count(a.id) FROM new_one LEFT JOIN a ON a.id > 20 GROUP BY x;
COMMIT;
SELECT * FROM of_new;
-- What a view is not.
INSERT INTO counted VALUES (1);
UPDATE counted SET n = 1;
DELETE FROM counted;
COPY counted FROM STDIN;
\.
SELECT n FROM counted ORDER BY n FOR UPDATE;
COPY (SELECT * FROM counted ORDER BY n) TO STDOUT (FORMAT csv, HEADER);
TRUNCATE counted;
DROP VIEW counted;
DROP TABLE counted;
-- Changes of it.
COMMENT ON MATERIALIZED VIEW counted IS 'how many';
SELECT obj_description('counted'::regclass);
SELECT matviewname, hasindexes, ispopulated, definition FROM pg_matviews WHERE matviewname = 'counted';
SELECT indexdef FROM pg_indexes WHERE tablename = 'counted';
CREATE INDEX ON counted (max);
ANALYZE counted;
VACUUM counted;
ALTER MATERIALIZED VIEW counted RENAME TO tallied;
ALTER MATERIALIZED VIEW tallied RENAME COLUMN max TO most;
REFRESH MATERIALIZED VIEW tallied;
SELECT most FROM tallied ORDER BY n;
ALTER MATERIALIZED VIEW tallied SET (fillfactor = 80);
ALTER MATERIALIZED VIEW tallied ALTER COLUMN most SET STATISTICS 10;
CREATE SCHEMA s;
ALTER MATERIALIZED VIEW tallied SET SCHEMA s;
SELECT count(*) FROM tallied;
SELECT count(*) FROM s.tallied;
REFRESH MATERIALIZED VIEW CONCURRENTLY s.tallied;
-- Changes of what it reads.
ALTER TABLE a RENAME TO renamed;
REFRESH MATERIALIZED VIEW s.tallied;
SELECT count(*) FROM s.tallied;
ALTER TABLE renamed RENAME TO a;
ALTER TABLE a ADD COLUMN more int DEFAULT 3;
ALTER TABLE a DROP COLUMN at;
ALTER TABLE a DROP COLUMN list;
ALTER TABLE a ALTER COLUMN v TYPE varchar(100);
DROP MATERIALIZED VIEW whole;
ALTER TABLE a DROP COLUMN list;
UPDATE a SET more = id WHERE id > 100;
REFRESH MATERIALIZED VIEW s.tallied;
CREATE MATERIALIZED VIEW wide AS SELECT * FROM a;
SELECT count(*), sum(more), count(DISTINCT v) FROM wide;
DROP TABLE a;
DROP MATERIALIZED VIEW wide, over_m;
DROP MATERIALIZED VIEW IF EXISTS wide;
DROP MATERIALIZED VIEW s.tallied;
DROP VIEW over;
DROP MATERIALIZED VIEW s.tallied;
-- refused in hash, apart, mixed: rows of other nodes are in a child meanwhile
CREATE MATERIALIZED VIEW no AS SELECT id FROM ONLY a;
-- refused in hash, apart, mixed: and have a number of their own
CREATE MATERIALIZED VIEW no AS SELECT tableoid::regclass AS t FROM a;
-- refused in hash, apart, mixed: the same, otherwise said
CREATE MATERIALIZED VIEW no AS SELECT tableoid(a)::regclass AS t FROM a;
-- refused in hash, apart, mixed: and so
CREATE MATERIALIZED VIEW no AS SELECT (a).tableoid::regclass AS t FROM a;
CREATE FUNCTION counts_some() RETURNS bigint LANGUAGE plpgsql AS $$ BEGIN RETURN (SELECT count(*) FROM ONLY a)\; END $$;
-- refused in hash, apart, mixed: by code
CREATE MATERIALIZED VIEW no AS SELECT counts_some() AS n, count(*) FROM a;
-- refused in hash, apart, mixed: a file of one node
COPY (UPDATE a SET id = id RETURNING id) TO '/tmp/no/such/folder';
-- refused in hash, apart, mixed: the same
COPY (WITH x AS (DELETE FROM a RETURNING id) SELECT * FROM x) TO PROGRAM 'true';
-- refused in hash, apart, mixed: a sample of what is where
CREATE MATERIALIZED VIEW no AS SELECT id FROM a TABLESAMPLE BERNOULLI (50);
DROP TABLE a CASCADE;
SELECT matviewname FROM pg_matviews ORDER BY 1;
SELECT relname FROM pg_class WHERE relname LIKE 'lent%';
DROP SCHEMA s;
