--! setup: shop
-- Subqueries, CTEs, recursion.

SELECT (SELECT count(*) FROM orders);
SELECT (SELECT max(order_id) FROM orders) - (SELECT min(order_id) FROM orders) AS spread;
SELECT name, (SELECT count(*) FROM orders o WHERE o.customer_id = c.customer_id) AS n FROM customers c ORDER BY customer_id;
SELECT name, (SELECT count(*) FROM visits v WHERE v.customer_id = c.customer_id) AS n FROM customers c ORDER BY customer_id;
SELECT name FROM customers c WHERE credit > (SELECT avg(credit) FROM customers) ORDER BY 1;
SELECT name FROM customers c WHERE credit > (SELECT avg(credit) FROM customers d WHERE d.city = c.city) ORDER BY 1;
SELECT order_id FROM orders o WHERE placed = (SELECT max(placed) FROM orders p WHERE p.customer_id = o.customer_id) ORDER BY 1;
SELECT i.name FROM items i WHERE i.price > (SELECT avg(l.price) FROM order_lines l WHERE l.item_id = i.item_id) ORDER BY 1;
SELECT i.name FROM items i WHERE (SELECT sum(quantity) FROM stock s WHERE s.item_id = i.item_id) > 100 ORDER BY 1;
SELECT ARRAY(SELECT order_id FROM orders WHERE customer_id = 3 ORDER BY order_id);
SELECT name, ARRAY(SELECT order_id FROM orders o WHERE o.customer_id = c.customer_id ORDER BY 1) FROM customers c ORDER BY customer_id;
SELECT EXISTS (SELECT 1 FROM orders WHERE customer_id = 12), EXISTS (SELECT 1 FROM orders WHERE customer_id = 3);
SELECT (SELECT (c.customer_id, c.name) FROM customers c WHERE c.customer_id = 2);
SELECT x.a FROM (SELECT customer_id AS a FROM customers WHERE city = 'Paris') x ORDER BY 1;
SELECT count(*) FROM (SELECT * FROM orders WHERE status = 'new' LIMIT 5) x;
SELECT * FROM (SELECT customer_id, count(*) AS n FROM orders GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT 2) x ORDER BY n;
SELECT max(n) FROM (SELECT customer_id, count(*) AS n FROM (SELECT DISTINCT customer_id, item_id FROM order_lines) d GROUP BY 1) x;
SELECT (SELECT name FROM customers WHERE customer_id = o.customer_id) AS name, count(*) FROM orders o GROUP BY 1 ORDER BY 1;
SELECT CASE WHEN EXISTS (SELECT 1 FROM stock WHERE quantity = 0) THEN 'empty' ELSE 'full' END;
SELECT name FROM customers WHERE customer_id = (SELECT customer_id FROM orders WHERE order_id = 5);
SELECT name FROM customers WHERE customer_id = (SELECT max(customer_id) FROM visits);
SELECT name FROM customers WHERE ROW(customer_id, vip) = (SELECT 1, true);
SELECT order_id FROM orders WHERE customer_id = 3 AND order_id IN (SELECT order_id FROM order_lines WHERE customer_id = 3 AND line_no = 2) ORDER BY 1;
WITH paris AS (SELECT * FROM customers WHERE city = 'Paris') SELECT p.name, o.order_id FROM paris p JOIN orders o USING (customer_id) ORDER BY 2;
WITH c AS (SELECT customer_id FROM orders WHERE status = 'paid'), d AS (SELECT customer_id FROM visits) SELECT count(*) FROM c JOIN d USING (customer_id);
WITH x AS MATERIALIZED (SELECT count(*) AS n FROM orders) SELECT n, n * 2 FROM x;
WITH x AS NOT MATERIALIZED (SELECT * FROM customers) SELECT name FROM x WHERE customer_id = 4;
WITH a AS (SELECT customer_id, sum(quantity) AS q FROM order_lines GROUP BY 1), b AS (SELECT avg(q) AS m FROM a) SELECT a.customer_id, a.q FROM a, b WHERE a.q > b.m ORDER BY 1;
WITH customers AS (SELECT 1 AS customer_id, 'shadow' AS name) SELECT * FROM customers;
WITH customers AS (SELECT * FROM customers WHERE customer_id < 3) SELECT name FROM customers ORDER BY 1;
WITH v(k) AS (VALUES (1), (2)) SELECT name FROM customers JOIN v ON k = customer_id ORDER BY 1;
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 5) SELECT * FROM n ORDER BY 1;
WITH RECURSIVE chain(id, depth) AS (SELECT customer_id, 1 FROM customers WHERE customer_id = 1 UNION ALL SELECT c.customer_id, depth + 1 FROM customers c JOIN chain ON c.customer_id = chain.id + 2) SELECT * FROM chain ORDER BY depth;
WITH RECURSIVE reach(id) AS (SELECT order_id FROM orders WHERE order_id = 1 UNION SELECT o.order_id FROM orders o JOIN reach ON o.order_id = reach.id * 2) SELECT id FROM reach ORDER BY 1;
WITH RECURSIVE t(n, path) AS (SELECT 1, ARRAY[1] UNION ALL SELECT n + 1, path || n + 1 FROM t WHERE n < 3) SEARCH DEPTH FIRST BY n SET o SELECT n, path FROM t ORDER BY n;
SELECT * FROM (WITH w AS (SELECT customer_id FROM orders) SELECT count(*) FROM w) x;
SELECT name FROM customers WHERE customer_id IN (WITH w AS (SELECT customer_id FROM orders WHERE status = 'returned') SELECT * FROM w) ORDER BY 1;
SELECT c.name FROM customers c WHERE 2 <= (SELECT count(*) FROM orders o WHERE o.customer_id = c.customer_id AND EXISTS (SELECT 1 FROM order_lines l WHERE l.order_id = o.order_id AND l.customer_id = o.customer_id AND l.line_no = 3)) ORDER BY 1;
SELECT a.owner, (SELECT string_agg(b.account_id::text, ',' ORDER BY b.account_id) FROM accounts b WHERE b.owner = a.owner) FROM accounts a GROUP BY a.owner ORDER BY 1;
SELECT * FROM ROWS FROM (generate_series(1, 3), unnest(ARRAY['a', 'b'])) AS r(n, t) ORDER BY 1;
SELECT g, count(o.order_id) FROM generate_series('2024-01-01'::timestamptz, '2024-02-20', '1 week') g LEFT JOIN orders o ON o.placed >= g AND o.placed < g + interval '1 week' GROUP BY g ORDER BY g;
-- bind: 3
SELECT name, (SELECT count(*) FROM orders o WHERE o.customer_id = $1) FROM customers WHERE customer_id = $1;
-- bind: 2
WITH c AS (SELECT * FROM customers WHERE customer_id = $1) SELECT c.name, o.order_id FROM c JOIN orders o USING (customer_id) ORDER BY 2;
SELECT (SELECT customer_id FROM customers);
SELECT (SELECT customer_id, name FROM customers WHERE customer_id = 1);
WITH x AS (SELECT 1) SELECT * FROM y;
SELECT * FROM (SELECT 1) ORDER BY nothing;
SELECT name FROM customers WHERE customer_id IN (SELECT * FROM orders);

-- A bare name is a column of any level before it is the whole row of a nearer one.
SELECT c.customer_id, (SELECT city FROM orders city WHERE city.customer_id = c.customer_id AND city.order_id > 0 LIMIT 1) FROM customers c ORDER BY 1;
SELECT c.customer_id, (SELECT max(city) FROM orders city WHERE city.customer_id = c.customer_id) FROM customers c ORDER BY 1;
SELECT c.customer_id FROM customers c WHERE EXISTS (SELECT FROM items name WHERE name.item_id = c.customer_id AND name > 'a') ORDER BY 1;
SELECT c.customer_id FROM customers c WHERE c.customer_id IN (SELECT credit.customer_id FROM visits credit WHERE credit >= 0) ORDER BY 1;
SELECT c.customer_id, l.* FROM customers c, LATERAL (SELECT name AS called, count(*) FROM orders name WHERE name.customer_id = c.customer_id GROUP BY 1) l ORDER BY 1;
SELECT c.customer_id, (SELECT count(vip) FROM visits vip WHERE vip.customer_id <= c.customer_id) FROM customers c ORDER BY 1;
-- With no such column it is the row.
SELECT c.customer_id, (SELECT count(v) FROM visits v WHERE v.customer_id = c.customer_id) FROM customers c ORDER BY 1;
SELECT count(c), (SELECT count(o) FROM orders o WHERE o.customer_id = max(c.customer_id)) FROM customers c;
