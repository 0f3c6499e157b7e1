--! changes data
--! distribution hash: readers HASH (id); teams HASH (id); members HASH (team); many HASH (k)
--! distribution key: readers HASH (id); teams REPLICATED; members HASH (number); many HASH (t)
--! distribution home: teams HASH (id); members HASH (team)
--! distribution replicated: readers REPLICATED; teams REPLICATED; members REPLICATED; many REPLICATED
-- Unique indexes that do not contain the distribution key, beside one PostgreSQL where they are plain unique indexes.

CREATE TABLE readers (id int PRIMARY KEY, email text, name text NOT NULL DEFAULT 'x');
INSERT INTO readers SELECT g, 'u' || g, 'n' || g FROM generate_series(1, 40) g;
CREATE UNIQUE INDEX readers_email ON readers (email) WITH (tutti.global_unique);
SELECT count(*) FROM readers;
-- One row at a time.
INSERT INTO readers VALUES (41, 'u41');
INSERT INTO readers VALUES (42, 'u1');
INSERT INTO readers VALUES (42, 'u41');
INSERT INTO readers VALUES (42, NULL);
INSERT INTO readers VALUES (43, NULL);
INSERT INTO readers (id, email) VALUES (44, 'u44') RETURNING id, email, name;
INSERT INTO readers (id, email) VALUES (45, 'u44') RETURNING id, email, name;
UPDATE readers SET email = 'u1' WHERE id = 2;
UPDATE readers SET email = 'new' WHERE id = 2;
INSERT INTO readers VALUES (46, 'u2');
INSERT INTO readers VALUES (47, 'new');
UPDATE readers SET name = 'other' WHERE id = 2;
DELETE FROM readers WHERE id = 3;
INSERT INTO readers VALUES (48, 'u3');
UPDATE readers SET email = NULL WHERE id = 4;
INSERT INTO readers VALUES (49, 'u4');
UPDATE readers SET email = 'u4' WHERE id = 4;
SELECT id, email FROM readers ORDER BY id;
-- Many rows.
INSERT INTO readers VALUES (60, 'a'), (61, 'b'), (62, 'c');
INSERT INTO readers VALUES (63, 'd'), (64, 'b'), (65, 'e');
INSERT INTO readers VALUES (63, 'd'), (64, 'd');
INSERT INTO readers SELECT 100 + g, 'g' || g FROM generate_series(1, 30) g;
INSERT INTO readers SELECT 200 + g, 'g' || g FROM generate_series(30, 40) g;
UPDATE readers SET email = 'x' || email WHERE id > 100;
UPDATE readers SET email = 'same' WHERE id > 100;
UPDATE readers SET name = 'n' || id;
DELETE FROM readers WHERE id BETWEEN 110 AND 120;
INSERT INTO readers SELECT 300 + g, 'xg' || g FROM generate_series(10, 20) g;
SELECT count(*), count(DISTINCT email), count(email) FROM readers;
SELECT id FROM readers WHERE email = 'xg12' ORDER BY id;
-- Rows that go to other nodes.
UPDATE readers SET id = id + 1000 WHERE id IN (1, 2, 5, 6, 7, 8, 9);
INSERT INTO readers VALUES (1, 'u5');
INSERT INTO readers VALUES (1, 'u1001');
UPDATE readers SET id = id + 1000, email = 'moved' || email WHERE id IN (10, 11, 12);
INSERT INTO readers VALUES (2, 'u11');
INSERT INTO readers VALUES (3, 'movedu11');
SELECT id, email FROM readers WHERE id > 999 ORDER BY id;
-- Blocks and savepoints.
BEGIN;
INSERT INTO readers VALUES (70, 'in block');
SAVEPOINT s;
INSERT INTO readers VALUES (71, 'in block');
ROLLBACK TO s;
INSERT INTO readers VALUES (71, 'in block too');
SAVEPOINT t;
DELETE FROM readers WHERE id = 70;
INSERT INTO readers VALUES (72, 'in block');
ROLLBACK TO t;
INSERT INTO readers VALUES (72, 'in block three');
RELEASE s;
COMMIT;
INSERT INTO readers VALUES (73, 'in block');
INSERT INTO readers VALUES (73, 'in block three');
SELECT id, email FROM readers WHERE id BETWEEN 70 AND 79 ORDER BY id;
BEGIN;
DELETE FROM readers WHERE id = 70;
ROLLBACK;
INSERT INTO readers VALUES (73, 'in block');
BEGIN;
DELETE FROM readers WHERE id = 70;
INSERT INTO readers VALUES (73, 'in block');
UPDATE readers SET email = 'again' WHERE id = 73;
UPDATE readers SET email = 'in block' WHERE id = 73;
COMMIT;
SELECT id, email FROM readers WHERE id BETWEEN 70 AND 79 ORDER BY id;
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT count(*) FROM readers WHERE id < 10;
INSERT INTO readers VALUES (74, 'rr');
DELETE FROM readers WHERE email = 'in block too';
INSERT INTO readers VALUES (75, 'in block too');
COMMIT;
-- Parameters.
-- bind: 80 | p80
-- bind: 81 | p80
-- bind: 82 | p82
INSERT INTO readers (id, email) VALUES ($1::int, $2::text);
-- bind: 82 | p80
-- bind: 82 | p83
UPDATE readers SET email = $2::text WHERE id = $1::int;
-- bind: 80
DELETE FROM readers WHERE id = $1::int RETURNING email;
-- bind: 83 | p80
INSERT INTO readers (id, email) VALUES ($1::int, $2::text) RETURNING id, email;
PREPARE add (int, text) AS INSERT INTO readers VALUES ($1, $2);
EXECUTE add (84, 'p84');
EXECUTE add (85, 'p84');
DEALLOCATE add;
-- COPY.
COPY readers (id, email) FROM STDIN;
400	c400
401	c401
402	\N
\.
COPY readers (id, email) FROM STDIN;
403	c403
404	c400
\.
COPY readers (id, email) FROM STDIN;
405	c405
406	c405
\.
SELECT id, email FROM readers WHERE id BETWEEN 400 AND 499 ORDER BY id;
-- WITH, and what conflicts.
WITH d AS (DELETE FROM readers WHERE id = 400 RETURNING email) SELECT email || '!' FROM d;
WITH i AS (INSERT INTO readers VALUES (407, 'c407') RETURNING email) SELECT email FROM i;
WITH i AS (INSERT INTO readers VALUES (406, 'c407') RETURNING email) SELECT email FROM i;
INSERT INTO readers VALUES (408, 'c400');
INSERT INTO readers VALUES (408, 'c408') ON CONFLICT (id) DO UPDATE SET email = excluded.email RETURNING id, email;
INSERT INTO readers VALUES (408, 'c401') ON CONFLICT (id) DO UPDATE SET email = excluded.email;
INSERT INTO readers VALUES (408, 'c409') ON CONFLICT (id) DO NOTHING;
-- refused in hash, key: the row that conflicts may be on another node
INSERT INTO readers VALUES (410, 'c408') ON CONFLICT DO NOTHING;
-- refused in hash, key: the row that conflicts may be on another node
INSERT INTO readers VALUES (410, 'c408') ON CONFLICT (email) DO UPDATE SET name = 'taken';
MERGE INTO readers u USING (VALUES (408, 'm408'), (411, 'm411')) v (id, email) ON u.id = v.id WHEN MATCHED THEN UPDATE SET email = v.email WHEN NOT MATCHED THEN INSERT VALUES (v.id, v.email);
INSERT INTO readers VALUES (412, 'm411');
MERGE INTO readers u USING (VALUES (408, 'u13'), (413, 'm413')) v (id, email) ON u.id = v.id WHEN MATCHED THEN UPDATE SET email = v.email WHEN NOT MATCHED THEN INSERT VALUES (v.id, v.email);
SELECT id, email FROM readers WHERE id BETWEEN 400 AND 499 ORDER BY id;
-- Views.
CREATE VIEW some AS SELECT id, email FROM readers;
INSERT INTO some VALUES (420, 'v420');
INSERT INTO some VALUES (421, 'v420');
UPDATE some SET email = 'v421' WHERE id = 420;
INSERT INTO readers VALUES (422, 'v420');
DELETE FROM some WHERE id = 420;
INSERT INTO readers VALUES (423, 'v421');
DROP VIEW some;
-- What references do.
CREATE TABLE teams (id int PRIMARY KEY);
CREATE TABLE members (team int REFERENCES teams ON DELETE CASCADE, number int, badge varchar(20), PRIMARY KEY (team, number));
CREATE UNIQUE INDEX members_badge ON members (badge) WITH (tutti.global_unique);
INSERT INTO teams SELECT generate_series(1, 9);
INSERT INTO members SELECT t, n, 'b' || t || n FROM generate_series(1, 9) t, generate_series(1, 3) n;
INSERT INTO members VALUES (1, 4, 'b23');
DELETE FROM teams WHERE id = 2;
INSERT INTO members VALUES (1, 4, 'b23');
INSERT INTO members VALUES (1, 5, 'b31');
DELETE FROM teams WHERE id > 5;
INSERT INTO members VALUES (1, 5, 'b91');
SELECT * FROM members WHERE team = 1 ORDER BY number;
TRUNCATE teams, members;
INSERT INTO teams VALUES (1), (2);
INSERT INTO members VALUES (1, 1, 'b31'), (2, 1, 'b32');
INSERT INTO members VALUES (2, 2, 'b31');
-- Several columns and types.
CREATE TABLE many (k int, t text, a numeric(10, 2), b char(4), c timestamptz, d uuid, e bool, PRIMARY KEY (k, t));
INSERT INTO many SELECT g, 't' || g % 3, g / 2.0, 'c' || g, '2026-01-01 00:00 UTC'::timestamptz + g * interval '1 hour', ('00000000-0000-0000-0000-0000000000' || 10 + g)::uuid, g % 2 = 0 FROM generate_series(1, 20) g;
CREATE UNIQUE INDEX many_a ON many (a, e) WITH (tutti.global_unique);
CREATE UNIQUE INDEX many_b ON many (b) WITH (tutti.global_unique);
CREATE UNIQUE INDEX many_c ON many (c DESC) WITH (tutti.global_unique);
CREATE UNIQUE INDEX many_d ON many (d) WITH (tutti.global_unique);
INSERT INTO many VALUES (30, 'x', 1.0, 'n', '2026-05-01', NULL, true);
INSERT INTO many VALUES (30, 'x', 1.00, 'n', '2026-05-01', NULL, false);
INSERT INTO many VALUES (31, 'x', 1, 'm', '2026-05-02', NULL, false);
INSERT INTO many VALUES (31, 'x', 7, 'n   ', '2026-05-02', NULL, NULL);
INSERT INTO many VALUES (31, 'x', 8, NULL, '2026-01-01 02:00+01', NULL, NULL);
SET TIME ZONE 'Asia/Tokyo';
SET datestyle = 'German, DMY';
INSERT INTO many VALUES (31, 'x', 8, NULL, '2026-01-01 11:00+09', NULL, NULL);
INSERT INTO many VALUES (31, 'x', 8, NULL, '01.02.2026 11:00', NULL, NULL);
RESET TIME ZONE;
INSERT INTO many VALUES (32, 'x', 9, NULL, '01.02.2026 02:00 UTC', NULL, NULL);
RESET datestyle;
INSERT INTO many VALUES (32, 'x', 9, NULL, NULL, '00000000-0000-0000-0000-000000000011', NULL);
UPDATE many SET a = a + 100 WHERE k > 10;
UPDATE many SET a = 101, e = true WHERE k IN (12, 14);
UPDATE many SET k = k + 50, t = 'moved' || k WHERE k < 5;
INSERT INTO many VALUES (33, 'x', 0.5, 'y', NULL, NULL, false);
INSERT INTO many VALUES (33, 'x', 0.51, 'y', NULL, NULL, false);
SELECT k, t, a, b, d, e FROM many ORDER BY k;
-- What is made of rows that are there.
CREATE UNIQUE INDEX readers_name ON readers (name) WITH (tutti.global_unique);
DROP INDEX readers_email;
INSERT INTO readers VALUES (500, 'u13', 'n500'), (501, 'u13', 'n501');
CREATE UNIQUE INDEX readers_email ON readers (email) WITH (tutti.global_unique);
DELETE FROM readers WHERE id = 501;
DELETE FROM readers WHERE id = 500;
BEGIN;
CREATE UNIQUE INDEX readers_email ON readers (email) WITH (tutti.global_unique);
INSERT INTO readers VALUES (502, 'u13', 'n502');
ROLLBACK;
INSERT INTO readers VALUES (502, 'u13', 'n502');
DELETE FROM readers WHERE id = 502;
CREATE UNIQUE INDEX readers_email ON readers (email) WITH (tutti.global_unique);
INSERT INTO readers VALUES (502, 'u13', 'n502');
BEGIN;
DROP INDEX readers_email;
INSERT INTO readers VALUES (502, 'u13', 'n502');
ROLLBACK;
INSERT INTO readers VALUES (502, 'u13', 'n502');
ALTER TABLE readers ADD COLUMN more int DEFAULT 3;
INSERT INTO readers VALUES (502, 'u13', 'n502');
ALTER TABLE readers RENAME TO folk;
INSERT INTO folk VALUES (502, 'u13', 'n502');
ALTER INDEX readers_email RENAME TO folk_email;
INSERT INTO folk VALUES (502, 'u13', 'n502');
-- refused in hash, key: what keeps it knows the column by its name
ALTER TABLE folk RENAME COLUMN email TO mail;
-- refused in hash, key: what keeps it would be off
ALTER TABLE folk DISABLE TRIGGER ALL;
INSERT INTO folk VALUES (503, 'n503');
TRUNCATE folk;
INSERT INTO folk VALUES (1, 'u13'), (2, 'u14'), (3, 'u15');
INSERT INTO folk VALUES (4, 'u15');
DROP TABLE folk;
CREATE TABLE readers (id int PRIMARY KEY, email text);
CREATE UNIQUE INDEX readers_email ON readers (email) WITH (tutti.global_unique);
INSERT INTO readers VALUES (1, 'u13'), (2, 'u14'), (3, 'u15');
INSERT INTO readers VALUES (4, 'u15');
DROP TABLE readers, many, teams, members;
