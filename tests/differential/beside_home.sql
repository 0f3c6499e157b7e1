--! changes data
--! only where tables are at home
--! distribution spread: bills HASH (id); lines HASH (bill); rates RANGE (day) SPLIT AT VALUES ('2026-01-15', '2026-02-01'); codes REPLICATED
--! distribution others: bills HASH (shop); lines ROUND ROBIN; rates HASH (day); codes REPLICATED
--! distribution several: bills HASH (id, shop); lines HASH (n); rates HASH (code); codes HASH (code)
-- Tables on several nodes that are changed by what is in tables at home: `people`, `words` and `odd` are nowhere else.

CREATE TABLE bills (id int, shop int, total numeric(10,2) NOT NULL DEFAULT 0, note text, at timestamptz, PRIMARY KEY (id, shop));
CREATE TABLE lines (bill int, n int, price numeric, what varchar(20));
CREATE TABLE rates (day date, code text, rate float8, PRIMARY KEY (day, code));
CREATE TABLE codes (code text PRIMARY KEY, name text);
CREATE TABLE people (id int PRIMARY KEY, name text COLLATE "C", born date, weight real, span interval, paid boolean, code char(5), data jsonb, big numeric, seen timestamptz, raw bytea, uid uuid);
CREATE TABLE words (word text, n bigint);
CREATE TABLE odd (id int, tags text[], mood xml);
CREATE VIEW adults AS SELECT id, upper(name) AS name, code, span FROM people WHERE born < '2000-01-01';
INSERT INTO bills SELECT g, g % 7, g, 'note ' || g % 5, '2026-01-01 12:00+00'::timestamptz + g * interval '1 hour' FROM generate_series(1, 60) g;
INSERT INTO lines SELECT 1 + g % 60, g, g * 1.5, 'what ' || g % 9 FROM generate_series(1, 200) g;
INSERT INTO rates SELECT '2026-01-01'::date + g, 'c' || g % 4, g / 3.0 FROM generate_series(0, 59) g;
INSERT INTO codes SELECT 'c' || g, 'code ' || g FROM generate_series(0, 3) g;
INSERT INTO people SELECT g, chr(64 + g % 50) || 'x"\ ,{}' || g, '1990-01-01'::date + g * 300, g / 7.0, g * interval '1 day 3 hours', g % 3 = 0, 'c' || g % 4,
  jsonb_build_object('k', g, 'q', '"\'), g / 7.0, '2026-01-01 00:00+00'::timestamptz + g * interval '7 hours', decode(lpad(to_hex(g), 4, '0'), 'hex'), ('00000000-0000-0000-0000-0000000000' || lpad(g::text, 2, '0'))::uuid FROM generate_series(1, 40) g;
INSERT INTO people (id) VALUES (41), (42);
INSERT INTO words VALUES ('note 1', 1), ('note 2', 2), (NULL, 3), ('note 9', NULL);
INSERT INTO odd VALUES (1, '{a,b}', NULL), (2, NULL, NULL);
-- UPDATE
UPDATE bills SET note = p.name FROM people p WHERE p.id = bills.id AND p.born < '2010-01-01';
SELECT id, shop, note FROM bills ORDER BY id, shop;
UPDATE bills b SET total = b.total + w.n FROM words w WHERE w.word = b.note;
UPDATE bills SET note = (SELECT name FROM people WHERE people.id = bills.id - 1) WHERE id BETWEEN 10 AND 20;
UPDATE bills SET total = (SELECT count(*) FROM people WHERE weight > bills.id / 3.0), note = NULL WHERE shop = 2 RETURNING id, shop, total;
UPDATE bills b SET at = p.seen + p.span FROM people p, codes c WHERE p.id = b.id AND c.code = p.code AND p.paid;
SELECT id, at AT TIME ZONE 'UTC' FROM bills WHERE at < '2026-01-01' OR at > '2026-01-05' ORDER BY id;
SELECT id, shop, total, note FROM bills ORDER BY id, shop;
UPDATE rates SET rate = p.weight * 2 FROM people p WHERE p.born + 9000 < rates.day AND p.code = rates.code AND p.id = (SELECT max(q.id) FROM people q WHERE q.code = rates.code AND q.born + 9000 < rates.day);
SELECT day, code, rate FROM rates ORDER BY day, code;
-- bind: 5
-- bind: 12
UPDATE lines SET what = 'p' || people.id FROM people WHERE people.id = lines.bill AND people.id = $1::int;
UPDATE lines l SET price = l.price + a.big FROM people a JOIN adults d USING (id) WHERE l.bill = a.id AND d.name > 'D';
SELECT bill, n, price, what FROM lines WHERE what LIKE 'p%' OR price <> n * 1.5 ORDER BY n;
-- What is compared by a collation of its column.
UPDATE lines SET what = 'up' WHERE EXISTS (SELECT FROM people p WHERE p.id = lines.bill AND p.name > 'a');
SELECT count(*) FROM lines WHERE what = 'up';
UPDATE lines SET what = 'max' WHERE bill = (SELECT id FROM people WHERE name = (SELECT max(name) FROM people));
SELECT DISTINCT bill FROM lines WHERE what = 'max';
-- DELETE
DELETE FROM lines USING words w WHERE lines.n = w.n;
DELETE FROM lines WHERE bill IN (SELECT id FROM people WHERE NOT paid AND born > '2015-01-01') RETURNING bill, n;
DELETE FROM lines WHERE bill NOT IN (SELECT id FROM people);
DELETE FROM bills WHERE id = 3 AND EXISTS (SELECT FROM people WHERE people.id = bills.id);
WITH x AS (SELECT id FROM people WHERE id < 6) DELETE FROM bills USING x WHERE bills.id = x.id;
WITH old AS (DELETE FROM bills WHERE id IN (SELECT id FROM people WHERE id BETWEEN 20 AND 25) RETURNING id) SELECT count(*), sum(id) FROM old;
SELECT count(*), sum(n) FROM lines;
SELECT count(*), sum(id), sum(total) FROM bills;
-- Beside own changes, and at other levels.
BEGIN;
UPDATE people SET name = 'mine' WHERE id = 30;
INSERT INTO people (id, name) VALUES (50, 'fifty');
UPDATE bills SET note = people.name FROM people WHERE people.id = bills.id AND bills.id IN (30, 31, 50);
SELECT id, note FROM bills WHERE id IN (30, 31, 50) ORDER BY id;
ROLLBACK;
BEGIN ISOLATION LEVEL REPEATABLE READ;
UPDATE bills SET note = people.name FROM people WHERE people.id = bills.id AND bills.id > 30;
DELETE FROM lines USING people p WHERE p.id = lines.bill AND p.paid;
COMMIT;
SELECT id, note FROM bills WHERE id > 28 ORDER BY id;
-- MERGE
MERGE INTO bills b USING people p ON b.id = p.id AND b.shop = p.id % 7 WHEN MATCHED AND p.paid THEN DELETE WHEN MATCHED THEN UPDATE SET total = b.total + 1, note = p.name;
SELECT id, shop, total, note FROM bills ORDER BY id, shop;
MERGE INTO rates r USING (SELECT '2026-03-01'::date + n::int AS day, coalesce(word, 'none') AS word FROM words WHERE n IS NOT NULL) w ON r.day = w.day AND r.code = w.word
  WHEN MATCHED THEN UPDATE SET rate = 0 WHEN NOT MATCHED THEN INSERT (day, code, rate) VALUES (w.day, w.word, 7);
MERGE INTO rates r USING (SELECT '2026-03-01'::date + n::int AS day, coalesce(word, 'none') AS word FROM words WHERE n < 3) w ON r.day = w.day AND r.code = w.word
  WHEN MATCHED THEN UPDATE SET rate = 0 WHEN NOT MATCHED THEN INSERT (day, code, rate) VALUES (w.day, w.word, 7);
SELECT * FROM rates WHERE day >= '2026-03-01' ORDER BY day, code;
-- Without the rows of what inherits, or of partitions; without columns; blanks at the end; a view that gives others each time.
CREATE TABLE elders (k int, v bpchar);
CREATE TABLE younger (x int) INHERITS (elders);
CREATE TABLE parted (k int) PARTITION BY LIST (k);
CREATE TABLE parted_1 PARTITION OF parted FOR VALUES IN (31, 32, 33);
CREATE TABLE nothing ();
CREATE VIEW drawn AS SELECT k, random() AS r FROM elders;
INSERT INTO elders VALUES (31, 'ab  '), (32, ' ');
INSERT INTO younger VALUES (33, 'c', 5), (34, 'd', 6);
INSERT INTO parted VALUES (31), (32);
UPDATE bills SET note = 'elder' FROM ONLY elders e WHERE e.k = bills.id;
SELECT id, note FROM bills WHERE note = 'elder' ORDER BY id;
UPDATE bills SET total = (SELECT count(*) FROM ONLY elders a, elders b) WHERE id IN (31, 40) RETURNING id, total;
UPDATE bills SET note = octet_length(e.v) || '|' || e.v || '|' FROM elders e WHERE e.k = bills.id;
SELECT id, note FROM bills WHERE id BETWEEN 31 AND 34 ORDER BY id;
UPDATE bills SET note = 'part' FROM ONLY parted p WHERE p.k = bills.id;
UPDATE bills SET note = 'part' FROM parted p WHERE p.k = bills.id;
DELETE FROM bills WHERE id = 36 AND NOT EXISTS (SELECT FROM ONLY parted);
MERGE INTO bills b USING ONLY elders e ON e.k = b.id WHEN MATCHED THEN UPDATE SET note = 'merged';
SELECT count(*) FROM bills WHERE note = 'merged';
UPDATE bills SET total = total + 1 WHERE NOT EXISTS (SELECT FROM nothing) AND id = 40;
UPDATE bills SET total = total + 1 FROM nothing WHERE id = 40;
UPDATE bills SET total = (SELECT count(*) FROM drawn a, drawn b WHERE a.r = b.r) WHERE id = 40 RETURNING total;
BEGIN;
INSERT INTO lines (bill, n) SELECT e.k, 9000 + e.k FROM ONLY elders e JOIN bills b ON b.id = e.k RETURNING n;
CREATE TABLE only_elders AS SELECT e.k, b.id FROM bills b JOIN ONLY elders e ON e.k = b.id;
SELECT count(*) FROM only_elders;
ROLLBACK;
-- Errors are the same.
UPDATE bills SET total = 1 / (p.id - 7) FROM people p WHERE p.id = bills.id;
UPDATE bills SET total = p.name::numeric FROM people p WHERE p.id = bills.id;
-- refused in spread, others, several: arrays are read by the session's settings
UPDATE bills SET note = array_to_string(o.tags, '-') FROM odd o WHERE o.id = bills.id - 30;
UPDATE bills SET note = 'odd' FROM odd o WHERE o.id = bills.id - 30;
-- refused in spread, others, several: keys that change
UPDATE bills SET id = bills.id + 1000, shop = 1 FROM people p WHERE p.id = bills.id;
-- refused in spread, others, several: which rows these are may differ by node
DELETE FROM lines WHERE bill IN (SELECT id FROM people ORDER BY weight LIMIT 2);
SELECT count(*), sum(id), sum(total), count(note) FROM bills;
