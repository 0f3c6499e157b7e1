--! setup: shop
--! changes data
-- Temporary tables, alone and together with the shop's.

CREATE TEMP TABLE tmp (a int, b text);
INSERT INTO tmp VALUES (1, 'x'), (2, 'y'), (3, NULL);
SELECT * FROM tmp ORDER BY a;
SELECT t.b, i.name FROM tmp t JOIN items i ON i.item_id = t.a ORDER BY 1;
SELECT t.b, c.name FROM tmp t JOIN customers c ON c.customer_id = t.a ORDER BY 1;
SELECT count(*) FROM orders WHERE customer_id IN (SELECT a FROM tmp);
INSERT INTO tmp SELECT customer_id, name FROM customers WHERE customer_id > 10;
UPDATE tmp SET b = upper(b) WHERE a > 10 RETURNING *;
DELETE FROM tmp WHERE a = 2;
SELECT count(*) FROM tmp;
CREATE TEMP TABLE made AS SELECT status, count(*) AS n FROM orders GROUP BY status;
SELECT * FROM made ORDER BY 1;
CREATE TEMPORARY TABLE IF NOT EXISTS tmp (x int);
CREATE INDEX ON tmp (a);
COPY tmp FROM STDIN;
50	copied
51	copied
\.
COPY (SELECT * FROM tmp ORDER BY a) TO STDOUT;
BEGIN;
CREATE TEMP TABLE gone (a int) ON COMMIT DROP;
INSERT INTO gone VALUES (1);
SELECT * FROM gone;
COMMIT;
SELECT * FROM gone;
CREATE TEMP SEQUENCE tmp_seq;
SELECT nextval('tmp_seq');
CREATE TEMP VIEW tmp_view AS SELECT a FROM tmp WHERE a < 20;
SELECT * FROM tmp_view ORDER BY a;
CREATE TEMP TABLE items (item_id int);
INSERT INTO items VALUES (1000);
SELECT * FROM items;
SELECT count(*) FROM public.items;
DROP TABLE items;
SELECT count(*) FROM items;
TRUNCATE tmp;
SELECT count(*) FROM tmp;
DROP TABLE tmp CASCADE;
SELECT * FROM tmp;
DISCARD TEMP;
SELECT * FROM made;
