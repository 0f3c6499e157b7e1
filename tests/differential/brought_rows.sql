--! changes data
--! distribution referred: br_parents REPLICATED; br_a_children REPLICATED; br_c_spread HASH (id)
--! distribution alone: br_parents REPLICATED; br_a_children REPLICATED; br_c_spread REPLICATED
-- Rows of replicated tables that node 1 computes and others are brought: with what they refer to before them, whatever
-- their tables are called.

CREATE TABLE br_parents (id int PRIMARY KEY, seen float8, n int);
CREATE TABLE br_a_children (id int PRIMARY KEY, parent int REFERENCES br_parents ON UPDATE CASCADE);
CREATE TABLE br_c_spread (id int PRIMARY KEY, parent int REFERENCES br_parents);
INSERT INTO br_parents VALUES (1, 0, 0), (2, 0, 0), (3, 0, 0);
INSERT INTO br_a_children VALUES (1, 1), (2, 2);
INSERT INTO br_c_spread VALUES (1, 3);
UPDATE br_parents SET seen = random(), n = 1 WHERE id = 2;
SELECT id, n FROM br_parents ORDER BY id;
-- refused in referred: its row could not be taken out on other nodes, where rows refer to it
UPDATE br_parents SET seen = random(), id = 20 WHERE id = 1;
UPDATE br_parents SET id = 30 WHERE id = 2;
SELECT * FROM br_a_children WHERE id > 1 ORDER BY id;
WITH p AS (INSERT INTO br_parents VALUES (7, random(), 0) RETURNING id) INSERT INTO br_a_children SELECT id, id FROM p;
WITH p AS (INSERT INTO br_parents VALUES (8, 0, 0) RETURNING id) INSERT INTO br_a_children SELECT id, id FROM p;
SELECT * FROM br_a_children WHERE id > 2 ORDER BY id;
SELECT id, n FROM br_parents WHERE id > 2 ORDER BY id;
DELETE FROM br_a_children WHERE id = (SELECT 7 + (random() * 0)::int);
SELECT count(*) FROM br_a_children;
