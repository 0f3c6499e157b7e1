--! changes data
--! distribution own: shops HASH (id); sales HASH (id); items HASH (id); notes HASH (id); people HASH (id); places HASH (a); visits HASH (id); odd HASH (k); kept HASH (id)
--! distribution other: shops HASH (id); sales HASH (day); items HASH (n); notes HASH (item); people HASH (id); places HASH (b); visits HASH (a); odd HASH (k); kept HASH (shop)
--! distribution near: shops REPLICATED; sales HASH (shop); items HASH (n); notes HASH (id); people REPLICATED; places REPLICATED; visits HASH (id); odd HASH (k); kept HASH (id)
-- Foreign keys over nodes that delete rows, or have them refer to nothing, beside one PostgreSQL.

SET tutti.foreign_keys = 'global';
CREATE TABLE shops (id int PRIMARY KEY, name text);
CREATE TABLE sales (id int, day int, shop int REFERENCES shops ON DELETE CASCADE, PRIMARY KEY (id, day, shop));
INSERT INTO shops SELECT g, 's' || g FROM generate_series(1, 40) g;
INSERT INTO sales SELECT g, g % 5, 1 + g % 40 FROM generate_series(1, 200) g;
INSERT INTO sales VALUES (999, 1, 99);
DELETE FROM shops WHERE id = 1;
SELECT count(*), sum(id) FROM sales;
DELETE FROM shops WHERE id IN (2, 3, 4) RETURNING name;
SELECT count(*), sum(id) FROM sales;
DELETE FROM shops USING sales s WHERE s.shop = shops.id AND s.id = 44;
WITH d AS (DELETE FROM shops WHERE id BETWEEN 6 AND 8 RETURNING id) SELECT count(*) FROM d;
-- bind: 9
-- bind: 9
-- bind: 10
DELETE FROM shops WHERE id = $1::int;
SELECT count(*), sum(id) FROM sales;
-- Both in one statement, and what has nothing that refers to it.
INSERT INTO shops VALUES (100, 'none');
DELETE FROM shops WHERE id = 100;
BEGIN;
DELETE FROM sales WHERE shop = 11;
DELETE FROM shops WHERE id = 11;
SAVEPOINT a;
DELETE FROM shops WHERE id < 20;
SELECT count(*) FROM sales;
ROLLBACK TO a;
SELECT count(*) FROM sales;
DELETE FROM shops WHERE id = 12;
COMMIT;
BEGIN ISOLATION LEVEL REPEATABLE READ;
DELETE FROM shops WHERE id = 13;
SELECT count(*) FROM sales;
ROLLBACK;
BEGIN ISOLATION LEVEL REPEATABLE READ;
DELETE FROM shops WHERE id = 13;
INSERT INTO shops VALUES (13, 'again');
INSERT INTO sales VALUES (1013, 1, 13);
COMMIT;
SELECT count(*), sum(id) FROM sales;
-- A key that changes its place with a row that is full of it.
UPDATE shops SET id = 14, name = 'same' WHERE id = 14;
SELECT count(*) FROM sales WHERE shop = 14;
-- On from there: notes of items of shops. What is checked only stops all of it.
CREATE TABLE items (id int, n int, shop int REFERENCES shops ON DELETE CASCADE, PRIMARY KEY (id, n));
CREATE TABLE notes (id int, item int, n int, text text, PRIMARY KEY (id, item), FOREIGN KEY (item, n) REFERENCES items ON DELETE CASCADE);
INSERT INTO items SELECT g, g % 7, 14 + g % 10 FROM generate_series(1, 60) g;
INSERT INTO items VALUES (70, 1, NULL);
INSERT INTO notes SELECT g, 1 + g % 60, (1 + g % 60) % 7, 'note ' || g FROM generate_series(1, 150) g;
DELETE FROM shops WHERE id = 14;
SELECT (SELECT count(*) FROM items), (SELECT count(*) FROM notes), (SELECT sum(id) FROM notes);
DELETE FROM items WHERE id < 10;
SELECT (SELECT count(*) FROM items), (SELECT count(*) FROM notes), (SELECT sum(id) FROM notes);
CREATE TABLE kept (id int, shop int, note int, item int, PRIMARY KEY (id, shop), FOREIGN KEY (note, item) REFERENCES notes);
INSERT INTO kept SELECT 1, 1, id, item FROM notes ORDER BY id LIMIT 1;
SELECT shop FROM items WHERE id = (SELECT item FROM kept);
DELETE FROM shops;
DELETE FROM kept;
DELETE FROM shops WHERE id BETWEEN 15 AND 18;
SELECT (SELECT count(*) FROM items), (SELECT count(*) FROM notes), (SELECT count(*) FROM sales), (SELECT sum(id) FROM notes);
DROP TABLE kept;
-- Rows of one table.
CREATE TABLE people (id int PRIMARY KEY, boss int REFERENCES people ON DELETE CASCADE, name text);
INSERT INTO people SELECT g, nullif(g / 2, 0), 'p' || g FROM generate_series(1, 63) g;
DELETE FROM people WHERE id IN (5, 10, 3) RETURNING name;
SELECT count(*), sum(id) FROM people;
UPDATE people SET boss = 4 WHERE id = 1;
DELETE FROM people WHERE id = 2;
SELECT count(*), sum(id) FROM people;
-- To nothing.
CREATE TABLE places (a int, b int, name text, PRIMARY KEY (a, b));
CREATE TABLE visits (id int, a int, b int, c int, at timestamptz DEFAULT '2026-01-01 12:00+00', PRIMARY KEY (id, a),
  CONSTRAINT visits_fk FOREIGN KEY (c, b) REFERENCES places (a, b) ON DELETE SET NULL);
INSERT INTO places SELECT g, g % 4, 'place ' || g FROM generate_series(1, 30) g;
INSERT INTO visits SELECT g, g % 11, (1 + g % 30) % 4, 1 + g % 30 FROM generate_series(1, 90) g;
DELETE FROM places WHERE a IN (3, 4);
SELECT count(*), count(b), count(c), sum(c) FROM visits;
DELETE FROM places WHERE a = 5;
SELECT id, a, b, c FROM visits WHERE c IS NULL ORDER BY id;
ALTER TABLE visits DROP CONSTRAINT visits_fk;
ALTER TABLE visits ADD CONSTRAINT visits_fk FOREIGN KEY (c, b) REFERENCES places ON DELETE SET NULL (c);
DELETE FROM places WHERE a BETWEEN 6 AND 9;
SELECT count(*), count(b), count(c), sum(c), sum(b) FROM visits;
UPDATE visits SET c = 20, b = 0 WHERE id = 1;
UPDATE visits SET c = 21, b = 0 WHERE id = 1;
UPDATE places SET name = 'other' WHERE a = 20;
DELETE FROM places WHERE a = 20;
SELECT id, a, b, c FROM visits WHERE id = 1;
TRUNCATE places;
TRUNCATE places, visits;
INSERT INTO places VALUES (1, 1, 'one');
INSERT INTO visits VALUES (1, 1, 1, 1);
DELETE FROM places;
SELECT * FROM visits;
-- Triggers of what refers.
CREATE FUNCTION stamp() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN NEW.at := '2030-01-01 12:00+00'; RETURN NEW; END $$;
CREATE TRIGGER stamp BEFORE UPDATE ON visits FOR EACH ROW EXECUTE FUNCTION stamp();
INSERT INTO places SELECT g, g % 4, 'place ' || g FROM generate_series(1, 5) g;
INSERT INTO visits SELECT 10 + g, g, g % 4, g FROM generate_series(1, 5) g;
DELETE FROM places WHERE a < 4;
SELECT id, a, b, c, at AT TIME ZONE 'UTC' FROM visits ORDER BY id;
-- Names.
CREATE TABLE odd (k varchar(10) COLLATE "POSIX" PRIMARY KEY, "50%s ""of' $1" varchar(10) COLLATE "POSIX");
ALTER TABLE odd ADD CONSTRAINT "%s" FOREIGN KEY ("50%s ""of' $1") REFERENCES odd ON DELETE SET NULL;
INSERT INTO odd VALUES ('a%s', NULL), ('b', 'a%s'), ('c', 'b'), ('d', 'a%s');
DELETE FROM odd WHERE k = 'a%s';
SELECT * FROM odd ORDER BY 1;
ALTER TABLE odd RENAME TO plain;
DELETE FROM plain WHERE k = 'b';
SELECT * FROM plain ORDER BY 1;
SELECT conname, confdeltype, confupdtype FROM pg_constraint WHERE contype = 'f' AND connamespace = 'public'::regnamespace AND conname <> 'tutti' ORDER BY conname;
-- Dropped, and dropped with all.
ALTER TABLE items DROP CONSTRAINT items_shop_fkey;
DELETE FROM shops WHERE id = 19;
SELECT (SELECT count(*) FROM items), (SELECT count(*) FROM notes), (SELECT count(*) FROM sales);
DROP TABLE notes;
DROP TABLE shops CASCADE;
DELETE FROM sales WHERE id < 10;
