--! distribution none:
--! distribution hash: t HASH (a); p HASH (a)
--! distribution replicated: t REPLICATED; p REPLICATED
-- Indexes that are made, dropped and rebuilt without a transaction.

CREATE TABLE t (a int, b text, c int);
INSERT INTO t SELECT g, 'x' || g, g % 7 FROM generate_series(1, 30) g;
CREATE INDEX CONCURRENTLY t_b ON t (b);
CREATE INDEX CONCURRENTLY t_b ON t (b);
CREATE INDEX CONCURRENTLY IF NOT EXISTS t_b ON t (c);
CREATE INDEX CONCURRENTLY ON t (lower(b), a DESC NULLS LAST) INCLUDE (c) WHERE a > 3;
CREATE INDEX CONCURRENTLY ON t USING hash (c);
CREATE UNIQUE INDEX CONCURRENTLY t_unique ON t (c, a);
CREATE UNIQUE INDEX CONCURRENTLY IF NOT EXISTS t_a ON t (a);
SELECT indexname, replace(indexdef, 'public.', '') FROM pg_indexes WHERE tablename = 't' ORDER BY indexname;
INSERT INTO t VALUES (1, 'y', 9);
INSERT INTO t VALUES (1, 'y', 1) ON CONFLICT (a) DO UPDATE SET b = 'z';
INSERT INTO t VALUES (31, 'y', 1), (2, 'y', 2) ON CONFLICT DO NOTHING;
SELECT a, b FROM t WHERE a IN (1, 2, 31) ORDER BY a;
INSERT INTO t VALUES (32, 'q', 40), (33, 'q', 40);
CREATE INDEX CONCURRENTLY nothing ON t (nosuch);
CREATE INDEX CONCURRENTLY nothing ON nosuch (a);
BEGIN;
CREATE INDEX CONCURRENTLY within ON t (c);
ROLLBACK;
BEGIN;
DROP INDEX CONCURRENTLY t_b;
ROLLBACK;
REINDEX INDEX CONCURRENTLY t_b;
REINDEX TABLE CONCURRENTLY t;
DROP INDEX CONCURRENTLY t_b;
DROP INDEX CONCURRENTLY t_b;
DROP INDEX CONCURRENTLY IF EXISTS t_b;
DROP INDEX CONCURRENTLY t_a, t_unique;
DROP INDEX CONCURRENTLY t_a CASCADE;
DROP INDEX CONCURRENTLY t_a;
INSERT INTO t VALUES (1, 'again', 100);
SELECT count(*) FROM t WHERE a = 1;
-- The rows contradict it: the index is there and is invalid.
INSERT INTO t VALUES (1, 'again', 100), (1, 'again', 100);
DROP INDEX CONCURRENTLY t_unique;
INSERT INTO t VALUES (1, 'again', 100), (1, 'again', 100);
CREATE UNIQUE INDEX CONCURRENTLY t_unique ON t (c, a);
DROP INDEX CONCURRENTLY IF EXISTS t_unique;
CREATE TABLE p (a int, b int) PARTITION BY LIST (a);
CREATE INDEX CONCURRENTLY p_b ON p (b);
DROP TABLE p, t;
