--! distribution replicated:
--! distribution by_key: orders HASH (customer); lines HASH (customer); items REPLICATED
--! distribution apart: orders HASH (customer); lines HASH (line); items HASH (item)
--! distribution spread: orders ROUND ROBIN; lines ROUND ROBIN; items ROUND ROBIN
-- Views lend their owner's rights, unless they say otherwise; functions likewise.
--@ postgres
CREATE ROLE test_owner LOGIN;
CREATE ROLE test_reader LOGIN;
CREATE ROLE test_direct LOGIN;
GRANT CREATE ON SCHEMA public TO test_owner, test_reader;
--@ owner
CREATE TABLE orders (customer int, day date, amount numeric, secret text);
CREATE TABLE lines (line int, customer int, item int);
CREATE TABLE items (item int, name text);
INSERT INTO orders SELECT n % 7, date '2026-01-01' + n % 3, n, 's' || n FROM generate_series(1, 21) n;
INSERT INTO lines SELECT n, n % 7, n % 4 FROM generate_series(1, 28) n;
INSERT INTO items SELECT n, 'item ' || n FROM generate_series(0, 3) n;
CREATE VIEW plain AS SELECT customer, day, amount FROM orders WHERE amount > 3;
CREATE VIEW renamed (who, much) AS SELECT customer, amount * 2 FROM orders;
CREATE VIEW over_plain AS SELECT customer, amount FROM plain WHERE amount < 20;
CREATE VIEW invoker WITH (security_invoker) AS SELECT customer, amount FROM orders;
CREATE VIEW barrier WITH (security_barrier) AS SELECT customer, amount FROM orders WHERE customer < 3;
CREATE VIEW sums AS SELECT day, sum(amount) AS total FROM orders GROUP BY day;
CREATE VIEW joined AS SELECT o.customer, o.amount, l.line FROM orders o JOIN lines l ON l.customer = o.customer;
CREATE VIEW named AS SELECT l.line, i.name FROM lines l JOIN items i ON i.item = l.item;
CREATE VIEW item_names AS SELECT name FROM items;
GRANT SELECT ON plain, renamed, over_plain, invoker, barrier, item_names TO test_reader;
GRANT SELECT ON orders, lines TO test_direct;
--@ reader
SELECT * FROM plain ORDER BY amount;
SELECT * FROM plain WHERE customer = 3 ORDER BY amount;
SELECT count(*), sum(amount) FROM plain;
SELECT day, count(*) FROM plain GROUP BY day ORDER BY day;
SELECT count(*) FROM plain a JOIN plain b ON a.amount = b.amount + 1;
SELECT count(*) FROM plain a JOIN renamed b ON a.customer = b.who;
SELECT who, sum(much) FROM renamed GROUP BY who ORDER BY who;
SELECT who, sum(much) FROM renamed WHERE who = 5 GROUP BY who;
SELECT max(amount) FROM over_plain;
SELECT customer, max(amount) FROM over_plain GROUP BY customer ORDER BY customer;
SELECT * FROM barrier ORDER BY customer, amount;
SELECT sum(amount) FROM barrier;
SELECT name FROM item_names ORDER BY name;
SELECT count(*) FROM item_names a, item_names b;
SELECT * FROM invoker;
SELECT sum(amount) FROM invoker;
SELECT * FROM orders;
SELECT secret FROM plain;
SELECT * FROM sums;
SELECT * FROM joined;
SELECT * FROM plain p JOIN orders o ON o.amount = p.amount;
SELECT customer FROM plain WHERE customer IN (SELECT customer FROM orders);
INSERT INTO plain VALUES (1, '2026-01-01', 5);
UPDATE plain SET amount = 0;
DELETE FROM plain;
COPY (SELECT customer, amount FROM plain) TO STDOUT;
COPY (SELECT sum(amount) FROM plain) TO STDOUT;
PREPARE p AS SELECT sum(amount) FROM plain;
EXECUTE p;
--@ owner
GRANT INSERT, UPDATE (amount), DELETE ON plain, invoker, barrier TO test_reader;
--@ reader
INSERT INTO plain VALUES (1, '2026-01-01', 5), (2, '2026-01-01', 6), (3, '2026-01-01', 7);
INSERT INTO plain SELECT customer, day, amount + 100 FROM plain WHERE amount < 8;
UPDATE plain SET amount = amount + 1 WHERE customer = 2;
UPDATE plain SET amount = amount + 1 RETURNING customer, amount;
UPDATE plain SET day = '2026-01-02';
DELETE FROM plain WHERE amount > 100;
INSERT INTO barrier VALUES (1, 50), (5, 51), (6, 52);
UPDATE barrier SET amount = 60 WHERE amount = 50;
INSERT INTO invoker VALUES (1, 5), (2, 6);
UPDATE invoker SET amount = 0;
DELETE FROM invoker;
UPDATE orders SET amount = 0;
SELECT sum(amount), count(*) FROM plain;
--@ direct
SELECT count(*) FROM orders;
SELECT * FROM plain;
SELECT count(*) FROM plain;
SELECT sum(amount) FROM over_plain;
SELECT sum(amount) FROM invoker;
--@ owner
REVOKE SELECT ON plain FROM test_reader;
GRANT SELECT (customer) ON plain TO test_reader;
GRANT SELECT ON invoker TO test_direct;
--@ reader
EXECUTE p;
SELECT count(*) FROM plain;
SELECT sum(customer) FROM plain;
SELECT sum(amount) FROM plain;
SELECT sum(amount) FROM over_plain;
--@ direct
SELECT sum(amount) FROM invoker;
-- A view of a role over a view that it may read.
--@ reader
CREATE VIEW my_view AS SELECT customer FROM over_plain;
CREATE VIEW my_orders AS SELECT * FROM orders;
SELECT count(*) FROM my_view;
SELECT count(*) FROM my_orders;
SELECT * FROM my_orders;
-- Functions.
--@ owner
CREATE FUNCTION open_names() RETURNS SETOF text LANGUAGE sql STABLE AS $$SELECT name FROM items ORDER BY name$$;
CREATE FUNCTION lent_names() RETURNS SETOF text LANGUAGE sql STABLE SECURITY DEFINER AS $$SELECT name FROM items ORDER BY name$$;
CREATE FUNCTION closed(int) RETURNS int LANGUAGE sql IMMUTABLE AS $$SELECT $1 + 1$$;
CREATE FUNCTION who() RETURNS text LANGUAGE sql STABLE SECURITY DEFINER AS $$SELECT current_user || ' for ' || session_user$$;
REVOKE EXECUTE ON FUNCTION closed(int) FROM PUBLIC;
--@ reader
SELECT * FROM open_names();
-- refused in apart, spread: a function that reads a distributed table
SELECT * FROM lent_names();
SELECT closed(1);
SELECT closed(customer) FROM over_plain;
SELECT sum(closed(amount::int)) FROM over_plain;
SELECT who();
SELECT DISTINCT who() FROM over_plain;
SELECT who(), count(*) FROM over_plain;
CREATE FUNCTION leak(numeric) RETURNS boolean LANGUAGE plpgsql COST 0.0000001 AS $$BEGIN IF $1 > 17 THEN RAISE EXCEPTION 'leaked %', $1; END IF; RETURN true; END$$;
SELECT sum(amount) FROM barrier WHERE leak(amount);
SELECT * FROM barrier WHERE leak(amount) ORDER BY amount;
DO $$BEGIN PERFORM 1 FROM pg_class; END$$;
CREATE OR REPLACE FUNCTION closed(int) RETURNS int LANGUAGE sql AS $$SELECT 0$$;
DROP FUNCTION closed(int);
ALTER FUNCTION closed(int) OWNER TO test_reader;
CREATE FUNCTION low() RETURNS int LANGUAGE c AS 'none';
