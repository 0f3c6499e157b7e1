--! changes data
--! distribution own: shops HASH (id); sales HASH (id); people HASH (id); coins HASH (id); uses HASH (id); parts HASH (b); wholes HASH (b); late HASH (id); given HASH (id); loose HASH (k); fans HASH (k)
--! distribution other: shops HASH (id); sales HASH (day); people HASH (id); coins HASH (k); uses HASH (coin); parts HASH (n); wholes HASH (a); late HASH (n); given HASH (id); loose HASH (k); fans HASH (k)
--! distribution several: shops HASH (id); sales HASH (id, day); people HASH (id); coins HASH (id); uses HASH (id); parts HASH (b, n); wholes HASH (b); late HASH (id); given HASH (id); loose HASH (shop); fans HASH (k)
--! distribution near: shops REPLICATED; sales HASH (id); people REPLICATED; coins REPLICATED; uses HASH (id); parts REPLICATED; wholes REPLICATED; late HASH (shop); given HASH (id); loose REPLICATED; fans HASH (k)
-- Foreign keys that do not pair the distribution keys, beside one PostgreSQL.

SET tutti.foreign_keys = 'global';
SHOW tutti.foreign_keys;
CREATE TABLE shops (id int PRIMARY KEY, name text);
CREATE TABLE sales (id int, day int, shop int CONSTRAINT sales_shop REFERENCES shops, PRIMARY KEY (id, day));
INSERT INTO shops SELECT g, 's' || g FROM generate_series(1, 30) g;
-- One row at a time.
INSERT INTO sales VALUES (1, 1, 1);
INSERT INTO sales VALUES (2, 1, 99);
INSERT INTO sales VALUES (2, 1, NULL);
INSERT INTO sales VALUES (3, 1, 30) RETURNING *;
UPDATE sales SET shop = 5 WHERE id = 1 AND day = 1;
UPDATE sales SET shop = 77 WHERE id = 1 AND day = 1;
UPDATE sales SET shop = 6 WHERE id = 2 AND day = 1;
DELETE FROM shops WHERE id = 5;
DELETE FROM shops WHERE id = 1;
UPDATE shops SET name = 'other' WHERE id = 5;
UPDATE shops SET id = 100 WHERE id = 2;
UPDATE shops SET id = 200 WHERE id = 5;
DELETE FROM sales WHERE id = 1 AND day = 1;
DELETE FROM shops WHERE id = 5;
SELECT * FROM sales ORDER BY id, day;
SELECT id FROM shops ORDER BY id;
-- Many.
INSERT INTO sales SELECT 100 + g, g % 3, 10 + g % 10 FROM generate_series(1, 40) g;
INSERT INTO sales SELECT 200 + g, g % 3, 25 + g FROM generate_series(1, 10) g;
INSERT INTO sales VALUES (150, 1, 11), (151, 1, 12), (152, 1, 999);
DELETE FROM shops WHERE id BETWEEN 8 AND 12;
DELETE FROM shops WHERE id BETWEEN 3 AND 4;
UPDATE sales SET shop = shop + 1 WHERE id > 100;
UPDATE sales SET shop = shop + 100 WHERE id = 101;
UPDATE sales SET day = day + 10 WHERE id > 110;
UPDATE sales SET id = id + 1000 WHERE id > 120;
SELECT count(*), min(shop), max(shop), sum(id) FROM sales;
DELETE FROM sales WHERE shop = 11;
DELETE FROM shops WHERE id = 11;
DELETE FROM shops WHERE id = 12;
DELETE FROM sales WHERE id > 130;
-- Blocks.
BEGIN;
INSERT INTO shops VALUES (500, 'new');
INSERT INTO sales VALUES (500, 1, 500);
SAVEPOINT a;
DELETE FROM sales WHERE id = 500;
DELETE FROM shops WHERE id = 500;
ROLLBACK TO a;
SELECT count(*) FROM sales WHERE shop = 500;
COMMIT;
DELETE FROM shops WHERE id = 500;
BEGIN;
DELETE FROM sales WHERE shop = 500;
DELETE FROM shops WHERE id = 500;
ROLLBACK;
BEGIN;
INSERT INTO sales VALUES (501, 1, 501);
ROLLBACK;
BEGIN;
DELETE FROM sales WHERE shop = 500;
DELETE FROM shops WHERE id = 500;
COMMIT;
BEGIN ISOLATION LEVEL REPEATABLE READ;
INSERT INTO sales VALUES (502, 1, 20);
DELETE FROM shops WHERE id = 20;
ROLLBACK;
-- Parameters, COPY, WITH, ON CONFLICT, MERGE.
-- bind: 600 | 20
-- bind: 601 | 666
-- bind: 602 | 21
INSERT INTO sales VALUES ($1::int, 1, $2::int);
-- bind: 20
-- bind: 29
DELETE FROM shops WHERE id = $1::int;
COPY sales FROM STDIN;
610	1	21
611	1	22
\.
COPY sales FROM STDIN;
612	1	21
613	1	888
\.
WITH s AS (INSERT INTO shops VALUES (700, 'seven') RETURNING id) INSERT INTO sales SELECT 700, 1, id FROM s;
WITH d AS (DELETE FROM sales WHERE shop = 700) DELETE FROM shops WHERE id = 700;
INSERT INTO sales VALUES (610, 1, 22) ON CONFLICT (id, day) DO UPDATE SET shop = 23;
INSERT INTO sales VALUES (610, 1, 22) ON CONFLICT (id, day) DO UPDATE SET shop = 2300;
INSERT INTO shops VALUES (23, 'x') ON CONFLICT (id) DO UPDATE SET name = excluded.name;
MERGE INTO sales s USING (VALUES (610, 1, 24), (720, 1, 25)) v (id, day, shop) ON s.id = v.id AND s.day = v.day WHEN MATCHED THEN UPDATE SET shop = v.shop;
INSERT INTO sales VALUES (721, 1, 25);
DELETE FROM shops WHERE id = 25;
DELETE FROM sales WHERE shop IN (23, 24, 25);
SELECT id, day, shop FROM sales WHERE id >= 600 ORDER BY id, day;
-- A table that refers to itself.
CREATE TABLE people (id int PRIMARY KEY, boss int REFERENCES people);
INSERT INTO people VALUES (1, NULL), (2, 1), (3, 2), (4, 5), (5, 4);
INSERT INTO people VALUES (6, 66);
DELETE FROM people WHERE id = 1;
UPDATE people SET boss = 3 WHERE id = 1;
DELETE FROM people WHERE id IN (4, 5);
UPDATE people SET boss = NULL WHERE id = 2;
DELETE FROM people WHERE id = 1;
SELECT * FROM people ORDER BY id;
DELETE FROM people;
-- By a value that is unique over all nodes.
CREATE TABLE coins (id int, k int, code text, PRIMARY KEY (id, k));
CREATE UNIQUE INDEX coins_code ON coins (code) WITH (tutti.global_unique);
INSERT INTO coins SELECT g, g % 5, 'c' || g FROM generate_series(1, 20) g;
CREATE TABLE uses (id int, coin varchar(20), n int, PRIMARY KEY (id, coin));
INSERT INTO uses SELECT g, 'c' || (1 + g % 7), g FROM generate_series(1, 30) g;
ALTER TABLE uses ADD CONSTRAINT uses_coin FOREIGN KEY (coin) REFERENCES coins (code);
INSERT INTO uses VALUES (31, 'c20', 1);
INSERT INTO uses VALUES (32, 'c21', 1);
DELETE FROM coins WHERE code = 'c20';
DELETE FROM coins WHERE code = 'c19';
UPDATE coins SET code = 'new' WHERE code = 'c1';
UPDATE coins SET id = id + 100, k = k + 1 WHERE code IN ('c1', 'c2', 'c3');
DELETE FROM uses WHERE coin = 'c20';
DELETE FROM coins WHERE code = 'c20';
SELECT code, id FROM coins ORDER BY code;
BEGIN;
TRUNCATE uses, coins;
INSERT INTO uses VALUES (1, 'c1', 1);
ROLLBACK;
DROP INDEX coins_code;
ALTER TABLE uses DROP CONSTRAINT uses_coin;
DROP INDEX coins_code;
INSERT INTO uses VALUES (33, 'c21', 1);
-- Of several columns, and of texts.
CREATE TABLE wholes (a text, b int, n int, PRIMARY KEY (a, b));
CREATE TABLE parts (n int, a text, b int, PRIMARY KEY (n, b));
INSERT INTO wholes SELECT 'a' || g, g, g FROM generate_series(1, 12) g;
INSERT INTO parts SELECT g, 'a' || (g % 12 + 1), g % 12 + 1 FROM generate_series(1, 40) g;
INSERT INTO parts VALUES (50, NULL, 99), (51, 'a1', 2);
ALTER TABLE parts ADD CONSTRAINT parts_fk FOREIGN KEY (a, b) REFERENCES wholes (a, b);
DELETE FROM parts WHERE n = 51;
ALTER TABLE parts ADD CONSTRAINT parts_fk FOREIGN KEY (a, b) REFERENCES wholes;
INSERT INTO parts VALUES (52, 'a1', 1);
INSERT INTO parts VALUES (53, 'a1', 2);
DELETE FROM wholes WHERE a = 'a1';
DELETE FROM parts WHERE a = 'a1';
DELETE FROM wholes WHERE a = 'a1';
UPDATE wholes SET n = n + 1;
UPDATE parts SET a = 'a5' WHERE a = 'a6';
UPDATE parts SET a = 'a5', b = 5 WHERE a = 'a6';
SELECT n, a, b FROM parts ORDER BY n LIMIT 20;
-- A column that is added with what its rows refer to.
CREATE TABLE given (id int PRIMARY KEY);
INSERT INTO given SELECT generate_series(1, 9);
ALTER TABLE given ADD COLUMN shop int DEFAULT 21 REFERENCES shops DEFERRABLE INITIALLY DEFERRED, ADD COLUMN n int NOT NULL DEFAULT 1;
ALTER TABLE given ADD COLUMN other int DEFAULT 9999 CHECK (other > 0) CONSTRAINT other_shop REFERENCES shops;
DELETE FROM shops WHERE id = 21;
BEGIN;
UPDATE given SET shop = 9999 WHERE id = 1;
UPDATE given SET shop = 22 WHERE id = 1;
COMMIT;
SELECT conname, condeferrable, condeferred, convalidated FROM pg_constraint WHERE conrelid = 'given'::regclass AND contype = 'f';
DROP TABLE given;
-- Rows without a key.
CREATE TABLE loose (k int, shop int REFERENCES shops);
INSERT INTO loose VALUES (NULL, 21), (NULL, 21), (1, 22), (1, 22), (NULL, NULL);
UPDATE loose SET shop = 23 WHERE k IS NULL AND shop = 21;
DELETE FROM shops WHERE id = 22;
DELETE FROM loose WHERE k = 1;
DELETE FROM shops WHERE id = 22;
UPDATE loose SET k = 5;
DELETE FROM loose;
DROP TABLE loose;
-- Deferred.
CREATE TABLE late (id int, n int, shop int, PRIMARY KEY (id, n, shop));
ALTER TABLE late ADD CONSTRAINT late_shop FOREIGN KEY (shop) REFERENCES shops DEFERRABLE INITIALLY DEFERRED;
INSERT INTO late VALUES (1, 1, 4000);
BEGIN;
INSERT INTO late VALUES (1, 1, 4000);
INSERT INTO shops VALUES (4000, 'late');
COMMIT;
BEGIN;
DELETE FROM shops WHERE id = 4000;
SET CONSTRAINTS late_shop IMMEDIATE;
ROLLBACK;
BEGIN;
DELETE FROM shops WHERE id = 4000;
INSERT INTO shops VALUES (4000, 'again');
COMMIT;
BEGIN;
SET CONSTRAINTS late_shop IMMEDIATE;
INSERT INTO late VALUES (2, 1, 4001);
ROLLBACK;
BEGIN;
DELETE FROM shops WHERE id = 4000;
COMMIT;
SELECT count(*) FROM shops WHERE id = 4000;
-- Changes of the schema.
TRUNCATE shops;
BEGIN;
TRUNCATE shops CASCADE;
SELECT count(*) FROM sales;
SELECT count(*) FROM shops;
INSERT INTO sales VALUES (1, 1, 1);
ROLLBACK;
SELECT count(*) FROM late;
DELETE FROM shops WHERE id = 4000;
TRUNCATE sales, late, shops;
INSERT INTO shops VALUES (1, 'one');
INSERT INTO sales VALUES (1, 1, 1);
DROP TABLE shops;
ALTER TABLE sales DROP CONSTRAINT sales_shop;
INSERT INTO sales VALUES (2, 1, 2);
ALTER TABLE sales ADD CONSTRAINT sales_shop FOREIGN KEY (shop) REFERENCES shops;
DELETE FROM sales WHERE id = 2;
ALTER TABLE sales ADD FOREIGN KEY (shop) REFERENCES shops;
INSERT INTO sales VALUES (2, 1, 2);
ALTER TABLE sales RENAME CONSTRAINT sales_shop_fkey TO shop_of_sale;
INSERT INTO sales VALUES (2, 1, 2);
ALTER TABLE sales RENAME TO bills;
INSERT INTO bills VALUES (2, 1, 2);
ALTER TABLE bills RENAME TO sales;
ALTER TABLE sales ADD COLUMN note text;
ALTER TABLE sales DROP COLUMN shop;
INSERT INTO sales VALUES (2, 1, 'x');
DROP TABLE late, shops;
-- One statement that drops a key and adds it, and TRUNCATE of tables that refer to each other.
INSERT INTO people VALUES (1, NULL), (2, 1);
ALTER TABLE people DROP CONSTRAINT people_boss_fkey, ADD CONSTRAINT boss FOREIGN KEY (boss) REFERENCES people;
ALTER TABLE people DROP CONSTRAINT boss, ADD CONSTRAINT boss FOREIGN KEY (boss) REFERENCES people DEFERRABLE INITIALLY DEFERRED;
ALTER TABLE people ADD COLUMN other int;
ALTER TABLE people DROP COLUMN other, ADD COLUMN other int REFERENCES people;
ALTER TABLE people DROP COLUMN other, ADD COLUMN other int REFERENCES people;
INSERT INTO people VALUES (3, 2, 2), (4, 3, 99);
INSERT INTO people VALUES (3, 2, 2);
DELETE FROM people WHERE id = 2;
CREATE TABLE fans (k int, person int CONSTRAINT fans_person REFERENCES people);
INSERT INTO fans VALUES (1, 1), (2, 2);
TRUNCATE people;
TRUNCATE people CASCADE;
SELECT (SELECT count(*) FROM people), (SELECT count(*) FROM fans);
INSERT INTO people VALUES (1, NULL), (2, 1);
INSERT INTO fans VALUES (1, 1), (2, 2), (3, 3);
INSERT INTO fans VALUES (1, 1), (2, 2);
BEGIN;
TRUNCATE people, fans;
ROLLBACK;
SELECT (SELECT count(*) FROM people), (SELECT count(*) FROM fans);
TRUNCATE people, fans;
DROP TABLE fans;
DROP TABLE people;
DROP TABLE wholes CASCADE;
INSERT INTO parts VALUES (53, 'a1', 2);
DROP TABLE parts, sales, coins, uses;
