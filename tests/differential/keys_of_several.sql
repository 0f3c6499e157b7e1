--! distribution none:
--! distribution several: ks_stock HASH (w, item); ks_text HASH (name, day, n); ks_orders HASH (w, o); ks_lines HASH (w, o); ks_other HASH (k); ks_parts HASH (region, id); ks_serial HASH (id, at)
--! distribution unlike: ks_stock HASH (item, w); ks_text HASH (n, name); ks_orders HASH (w); ks_lines HASH (w); ks_other HASH (k, v); ks_parts HASH (id); ks_serial HASH (v, id)
--! changes data
-- Tables that are distributed by several columns together.

CREATE TABLE ks_stock (w int, item bigint, quantity int NOT NULL DEFAULT 10, note text, PRIMARY KEY (w, item));
INSERT INTO ks_stock VALUES (1, 1, 5, 'a'), (1, 2, 6, 'b'), (2, 1, 7, 'c'), (2, 2, 8, NULL), (3, 9000000000, 9, 'far');
INSERT INTO ks_stock (item, note, w) VALUES (3, 'defaults', 1);
INSERT INTO ks_stock SELECT w, i, w * 100 + i, 'n' || i FROM generate_series(4, 9) w, generate_series(1, 8) i;
-- bind: 11 | 1 | 4
-- bind: 11 | 2 | 5
INSERT INTO ks_stock (w, item, quantity) VALUES ($1, $2, $3) RETURNING *;
-- types: int8 | int4
-- bind: 12 | 1
INSERT INTO ks_stock (w, item) VALUES ($1, $2), ($1, $2 + 1), ($1 + 1, 7);
INSERT INTO ks_stock VALUES (1, 1);
INSERT INTO ks_stock VALUES (20, 1), (20, 2), (20, 1);
SELECT count(*), sum(quantity), min(note), max(item) FROM ks_stock;
SELECT * FROM ks_stock WHERE w = 1 AND item = 2;
SELECT * FROM ks_stock WHERE item = 2::smallint AND w = 1::bigint AND quantity > 3;
SELECT * FROM ks_stock WHERE w = 3 AND item = 9000000000;
SELECT * FROM ks_stock WHERE w = 1 AND item = '1';
SELECT * FROM ks_stock WHERE w = 1 AND item = 1.0;
SELECT * FROM ks_stock WHERE w = 1 AND item IS NULL;
SELECT * FROM ks_stock WHERE w = 4 ORDER BY item;
SELECT * FROM ks_stock WHERE item = 4 ORDER BY w;
SELECT * FROM ks_stock WHERE w IN (1, 2) AND item IN (1, 2, 99) ORDER BY w, item;
SELECT * FROM ks_stock WHERE (w, item) IN ((1, 2), (2, 1), (5, 5)) ORDER BY w, item;
SELECT * FROM ks_stock WHERE (w, item) = (5, 5);
SELECT * FROM ks_stock WHERE (w = 1 AND item = 1) OR (w = 6 AND item = 3) ORDER BY w, item;
SELECT * FROM ks_stock WHERE w = 5 AND item BETWEEN 3 AND 5 ORDER BY item;
-- bind: 5 | 5
-- bind: 5 | NULL
-- bind: 500 | 5
SELECT quantity FROM ks_stock WHERE w = $1 AND item = $2;
-- bind: 5
-- bind: 1
SELECT quantity FROM ks_stock WHERE w = $1 AND item = $1;
-- types: int2 | int8
-- bind: 5 | 6
SELECT quantity FROM ks_stock WHERE w = $1 AND item = $2;
-- types: text | text
-- bind: 5 | 6
SELECT quantity FROM ks_stock WHERE w = $1::int AND item = $2::bigint;
SELECT a.w, a.item, b.quantity FROM ks_stock a JOIN ks_stock b USING (w, item) WHERE a.w < 6 ORDER BY a.w, a.item;
SELECT count(*) FROM ks_stock a JOIN ks_stock b ON a.w = b.item AND a.item = b.w;
SELECT w, count(*), sum(quantity) FROM ks_stock GROUP BY w ORDER BY w;
SELECT w, item, count(*) FROM ks_stock GROUP BY w, item HAVING count(*) > 0 ORDER BY w DESC, item LIMIT 5;
SELECT DISTINCT w, item FROM ks_stock ORDER BY w, item LIMIT 4 OFFSET 2;
SELECT w, item, rank() OVER (PARTITION BY w, item ORDER BY quantity) FROM ks_stock WHERE w < 3 ORDER BY w, item;
SELECT * FROM ks_stock WHERE w = 6 AND item = 6 FOR UPDATE;
UPDATE ks_stock SET quantity = quantity + 1 WHERE w = 5 AND item = 5;
UPDATE ks_stock SET quantity = quantity + 1 WHERE w = 5 AND item = 6 RETURNING *;
UPDATE ks_stock SET quantity = 0 WHERE w = 4;
UPDATE ks_stock SET w = 5, item = 5, quantity = 77 WHERE w = 5 AND item = 5 RETURNING *;
-- bind: 5 | 6 | 78
UPDATE ks_stock SET w = $1, item = $2, quantity = $3 WHERE w = $1 AND item = $2 RETURNING *;
UPDATE ks_stock SET w = 50 WHERE w = 5 AND item = 7 RETURNING *;
UPDATE ks_stock SET item = item + 100 WHERE w = 5 AND item = 8;
UPDATE ks_stock SET w = w + 1000, item = item + 1000 WHERE w = 9;
UPDATE ks_stock SET (w, item) = (2000, 7) WHERE w = 8 AND item = 1;
UPDATE ks_stock SET w = 1, item = 1 WHERE w = 8 AND item = 2;
UPDATE ks_stock SET item = 2 WHERE w = 1 AND item = 1;
UPDATE ks_stock AS s SET quantity = s.quantity + o.q FROM (VALUES (1, 1, 50), (2, 2, 60)) o (w, item, q) WHERE s.w = o.w AND s.item = o.item;
DELETE FROM ks_stock WHERE w = 6 AND item = 1 RETURNING *;
DELETE FROM ks_stock WHERE w = 6;
DELETE FROM ks_stock WHERE item = 7 AND w > 100 RETURNING w, item;
SELECT * FROM ks_stock ORDER BY w, item;
INSERT INTO ks_stock VALUES (1, 1, 3, 'again') ON CONFLICT (w, item) DO UPDATE SET quantity = ks_stock.quantity + excluded.quantity, note = excluded.note RETURNING *;
INSERT INTO ks_stock VALUES (1, 1, 3), (1, 77, 3) ON CONFLICT DO NOTHING;
-- refused in several, unlike: it would change the key
INSERT INTO ks_stock VALUES (1, 1, 3) ON CONFLICT (w, item) DO UPDATE SET item = 5;
SELECT * FROM ks_stock WHERE w = 1 ORDER BY item;
BEGIN;
INSERT INTO ks_stock VALUES (70, 1), (71, 1), (72, 1);
UPDATE ks_stock SET w = 73 WHERE w = 71 AND item = 1;
SELECT w, item FROM ks_stock WHERE w >= 70 AND w < 80 ORDER BY w;
SAVEPOINT s;
DELETE FROM ks_stock WHERE w IN (70, 72, 73) AND item = 1;
ROLLBACK TO s;
SELECT w, item FROM ks_stock WHERE w >= 70 AND w < 80 ORDER BY w;
COMMIT;
COPY ks_stock (w, item, quantity, note) FROM STDIN;
80	1	1	first
80	2	2	\N
81	9000000001	3	tab\there
\.
COPY ks_stock (item, w) FROM STDIN WITH (FORMAT csv);
1,82
2,82
\.
COPY ks_stock FROM STDIN;
80	1	1	twice
\.
SELECT * FROM ks_stock WHERE w BETWEEN 80 AND 89 ORDER BY w, item;
SELECT note FROM ks_stock WHERE w = 81 AND item = 9000000001;
COPY (SELECT w, item FROM ks_stock WHERE w = 80 ORDER BY item) TO STDOUT;
CREATE INDEX ks_note ON ks_stock (note);
CREATE UNIQUE INDEX ks_three ON ks_stock (item, w, quantity);
-- refused in several, unlike: it does not contain the key
CREATE UNIQUE INDEX ks_w ON ks_stock (w, quantity, note);
ALTER TABLE ks_stock RENAME COLUMN w TO warehouse;
INSERT INTO ks_stock (warehouse, item) VALUES (90, 1), (91, 1);
SELECT * FROM ks_stock WHERE warehouse = 90 AND item = 1;
ALTER TABLE ks_stock RENAME COLUMN warehouse TO w;
ALTER TABLE ks_stock ADD COLUMN extra int DEFAULT 3;
SELECT extra FROM ks_stock WHERE w = 91 AND item = 1;
PREPARE ks_find (int, bigint) AS SELECT quantity FROM ks_stock WHERE w = $1 AND item = $2;
EXECUTE ks_find(1, 1);
EXECUTE ks_find(90, 1);
DEALLOCATE ks_find;
CREATE VIEW ks_view AS SELECT item AS i, w AS v, quantity FROM ks_stock WHERE w < 1000;
INSERT INTO ks_view VALUES (1, 95, 2), (2, 96, 3);
UPDATE ks_view SET quantity = 4 WHERE v = 95 AND i = 1;
-- refused in several, unlike: the row would go to another node
UPDATE ks_view SET v = 97 WHERE v = 96;
DELETE FROM ks_view WHERE v = 95;
SELECT w, item, quantity FROM ks_stock WHERE w BETWEEN 95 AND 99 ORDER BY w;
DROP VIEW ks_view;
TRUNCATE ks_stock;
INSERT INTO ks_stock (w, item) VALUES (1, 1);
SELECT count(*) FROM ks_stock;

CREATE TABLE ks_text (name varchar(6), day date, n numeric(6,2), v int);
INSERT INTO ks_text VALUES ('one', '2024-01-31', 1.5, 1), ('two  ', '2024-02-29', 2, 2), (NULL, '2024-03-01', 3, 3), ('four', NULL, 4, 4), (NULL, NULL, NULL, 5), ('é', 'infinity', 'NaN', 6);
INSERT INTO ks_text VALUES ('cut      ', '2024-01-31', 1.555, 7);
INSERT INTO ks_text SELECT 'r' || i, date '2024-01-01' + i, i / 4.0, i FROM generate_series(10, 30) i;
INSERT INTO ks_text (day, v) SELECT date '2025-01-01' + i, i FROM generate_series(100, 105) i;
INSERT INTO ks_text VALUES ('too long to fit', '2024-01-31', 1, 8);
INSERT INTO ks_text VALUES ('wrong', 'no date', 1, 8);
SELECT * FROM ks_text WHERE name = 'one' AND day = '2024-01-31' AND n = 1.50;
SELECT * FROM ks_text WHERE name = 'one' AND day = date 'Jan 31, 2024' AND n = 1.5;
SELECT * FROM ks_text WHERE name = 'cut   ' AND day = '2024-01-31' AND n = 1.56;
SELECT * FROM ks_text WHERE name = 'two  '::text AND day = '2024-02-29' AND n = 2;
SELECT * FROM ks_text WHERE name = 'two' AND day = '2024-02-29' AND n = 2;
SELECT * FROM ks_text WHERE name = 'é' AND day = 'infinity' AND n = 'NaN';
SELECT * FROM ks_text WHERE name IS NULL AND day = '2024-03-01' AND n = 3;
SELECT * FROM ks_text WHERE name IS NOT DISTINCT FROM NULL AND day IS NULL ORDER BY v;
-- bind: r12 | 2024-01-13 | 3
-- bind: r12 | 2024-01-13 | 3.00
-- bind: r12 | 13 Jan 2024 | 3
-- bind: NULL | 2024-01-13 | 3
SELECT v FROM ks_text WHERE name = $1 AND day = $2 AND n = $3;
-- bind: p | 2024-05-05 | 5.004 | 50
-- bind: q | 5 May 2024 | 5.5 | 51
-- bind: NULL | NULL | NULL | 52
INSERT INTO ks_text VALUES ($1, $2, $3, $4) RETURNING *;
UPDATE ks_text SET n = NULL WHERE v = 50;
UPDATE ks_text SET day = day + 1 WHERE name = 'q' AND day = '2024-05-05' AND n = 5.5;
SELECT * FROM ks_text ORDER BY v;
COPY ks_text FROM STDIN;
c1	2024-01-31	\N	60
\N	\N	7.12	61
\.
SELECT * FROM ks_text WHERE v >= 60 AND v < 70 ORDER BY v;
DELETE FROM ks_text WHERE name = 'c1' AND day = '2024-01-31' AND n IS NULL;
DELETE FROM ks_text WHERE name IS NULL RETURNING v;

CREATE TABLE ks_orders (w int, o int, customer text, PRIMARY KEY (w, o));
CREATE TABLE ks_lines (w int, o int, l int, amount numeric, PRIMARY KEY (w, o, l), FOREIGN KEY (w, o) REFERENCES ks_orders ON DELETE CASCADE);
CREATE TABLE ks_other (k int, v int);
INSERT INTO ks_orders SELECT w, o, 'c' || (w * o) % 7 FROM generate_series(1, 5) w, generate_series(1, 6) o;
INSERT INTO ks_lines SELECT w, o, l, w + o / 10.0 + l / 100.0 FROM ks_orders, generate_series(1, 3) l;
INSERT INTO ks_other SELECT i, i % 5 FROM generate_series(1, 20) i;
INSERT INTO ks_lines VALUES (1, 99, 1, 5);
INSERT INTO ks_lines VALUES (1, 1, 9, 5), (2, 2, 9, 6);
SELECT o.w, o.o, customer, sum(amount) FROM ks_orders o JOIN ks_lines l ON o.w = l.w AND o.o = l.o GROUP BY o.w, o.o ORDER BY 1, 2;
SELECT customer, count(*), sum(amount) FROM ks_orders JOIN ks_lines USING (w, o) GROUP BY customer ORDER BY customer;
SELECT o.w, o.o, l.l FROM ks_orders o LEFT JOIN ks_lines l ON o.w = l.w AND o.o = l.o AND l.l > 3 WHERE o.w < 3 ORDER BY 1, 2, 3;
SELECT w, o FROM ks_orders o WHERE EXISTS (SELECT FROM ks_lines l WHERE l.w = o.w AND l.o = o.o AND l.l = 9) ORDER BY w, o;
SELECT w, o FROM ks_orders o WHERE NOT EXISTS (SELECT FROM ks_lines l WHERE l.w = o.w AND l.o = o.o AND amount > 3) ORDER BY w, o;
SELECT w, o, (SELECT sum(amount) FROM ks_lines l WHERE l.w = o.w AND l.o = o.o) FROM ks_orders o WHERE customer = 'c1' ORDER BY w, o;
SELECT * FROM ks_orders o JOIN ks_lines l ON o.w = l.w AND o.o = l.o WHERE o.w = 2 AND o.o = 3 ORDER BY l;
SELECT count(*) FROM ks_orders o JOIN ks_lines l ON o.w = l.w;
SELECT count(*) FROM ks_orders o JOIN ks_lines l ON o.w = l.o AND o.o = l.w;
SELECT count(*) FROM ks_orders o JOIN ks_other k ON o.o = k.v;
SELECT (SELECT count(*) FROM ks_orders) + (SELECT count(*) FROM ks_other WHERE v = 1 AND k = 1);
UPDATE ks_lines l SET amount = amount + 1 FROM ks_orders o WHERE l.w = o.w AND l.o = o.o AND customer = 'c2';
DELETE FROM ks_lines l USING ks_orders o WHERE l.w = o.w AND l.o = o.o AND customer = 'c3' AND l > 2;
DELETE FROM ks_orders WHERE w = 5 AND o = 5;
DELETE FROM ks_orders WHERE w = 4;
SELECT w, count(*), sum(amount) FROM ks_lines GROUP BY w ORDER BY w;
INSERT INTO ks_orders SELECT w + 10, o, customer FROM ks_orders WHERE w = 1;
INSERT INTO ks_lines SELECT w + 10, o, l, amount FROM ks_lines WHERE w = 1;
SELECT count(*), sum(amount) FROM ks_lines WHERE w = 11;
-- refused in several: nothing says on which node a row of the source is
MERGE INTO ks_orders t USING (VALUES (1, 1, 'm'), (30, 1, 'n')) s (w, o, c) ON t.w = s.w AND t.o = s.o WHEN MATCHED THEN UPDATE SET customer = s.c WHEN NOT MATCHED THEN INSERT VALUES (s.w, s.o, s.c);
MERGE INTO ks_orders t USING (VALUES (1, 2, 'm'), (2, 2, 'n')) s (w, o, c) ON t.w = s.w AND t.o = s.o WHEN MATCHED THEN UPDATE SET customer = s.c;
SELECT * FROM ks_orders WHERE o = 2 ORDER BY w;
-- refused in several: it may change the key
MERGE INTO ks_orders t USING (VALUES (1, 2, 'm')) s (w, o, c) ON t.w = s.w AND t.o = s.o WHEN MATCHED THEN UPDATE SET o = 77;
CREATE TABLE ks_copy AS SELECT w, o, count(*) AS n FROM ks_lines GROUP BY w, o;
SELECT count(*), sum(n) FROM ks_copy;

CREATE TABLE ks_parts (region text, id int, v int, PRIMARY KEY (region, id)) PARTITION BY LIST (region);
CREATE TABLE ks_parts_a PARTITION OF ks_parts FOR VALUES IN ('a', 'b');
CREATE TABLE ks_parts_z PARTITION OF ks_parts DEFAULT;
INSERT INTO ks_parts SELECT chr(97 + i % 5), i, i * i FROM generate_series(1, 30) i;
SELECT * FROM ks_parts WHERE region = 'b' AND id = 6;
SELECT tableoid::regclass::text, count(*) FROM ks_parts GROUP BY 1 ORDER BY 1;
UPDATE ks_parts SET region = 'z' WHERE region = 'b' AND id = 6 RETURNING *;
UPDATE ks_parts SET v = 0 WHERE region = 'z' AND id = 6;
DELETE FROM ks_parts_a WHERE region = 'a';
SELECT region, count(*), sum(v) FROM ks_parts GROUP BY region ORDER BY region;

CREATE TABLE ks_serial (id serial, at timestamptz, v int DEFAULT 7);
INSERT INTO ks_serial (at) VALUES ('2024-01-01 00:00+00'), ('2024-01-02 00:00+00');
INSERT INTO ks_serial (at, v) SELECT timestamptz '2024-02-01 00:00+00' + i * interval '1 hour', i FROM generate_series(1, 10) i ORDER BY i;
INSERT INTO ks_serial VALUES (DEFAULT, '2024-01-03 00:00+00', DEFAULT) RETURNING id, v;
SELECT id, v FROM ks_serial WHERE id = 1 AND at = '2024-01-01 01:00+01';
SELECT count(*), max(id) FROM ks_serial;
COPY ks_serial (at, v) FROM STDIN;
2024-03-01 00:00+00	1
2024-03-02 00:00+00	2
\.
SELECT id, v FROM ks_serial WHERE at >= '2024-03-01 00:00+00' ORDER BY id;

-- refused in several, unlike: a column of the key
ALTER TABLE ks_serial DROP COLUMN id;
-- refused in several: a column of the key
ALTER TABLE ks_serial ALTER COLUMN at TYPE timestamp;
SELECT count(*) FROM ks_serial;
DROP TABLE ks_stock, ks_text, ks_lines, ks_orders, ks_other, ks_copy, ks_parts, ks_serial;
