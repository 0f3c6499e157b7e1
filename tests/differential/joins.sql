--! setup: shop
-- Joins of every kind.

SELECT c.name, o.order_id FROM customers c JOIN orders o ON o.customer_id = c.customer_id ORDER BY o.order_id;
SELECT c.name, o.order_id FROM customers c JOIN orders o USING (customer_id) WHERE c.customer_id = 8 ORDER BY 2;
SELECT name, order_id, line_no FROM customers JOIN orders USING (customer_id) JOIN order_lines USING (customer_id, order_id) WHERE customer_id = 4 ORDER BY 2, 3;
SELECT count(*) FROM customers NATURAL JOIN orders;
SELECT count(*) FROM orders NATURAL JOIN order_lines;
SELECT c.name, o.order_id FROM customers c LEFT JOIN orders o USING (customer_id) ORDER BY 1, 2;
SELECT c.name, o.order_id FROM orders o RIGHT JOIN customers c USING (customer_id) WHERE o.order_id IS NULL;
SELECT c.customer_id, v.page FROM customers c FULL JOIN visits v ON v.customer_id = c.customer_id AND v.page = 'cart' ORDER BY 1, 2, v.at;
SELECT customer_id, count(*) FROM customers FULL JOIN visits USING (customer_id) GROUP BY 1;
SELECT c.name, i.name FROM customers c CROSS JOIN items i WHERE c.vip AND i.category = 'home' ORDER BY 1, 2;
SELECT a.name, b.name FROM customers a JOIN customers b ON a.city = b.city AND a.customer_id < b.customer_id ORDER BY 1, 2;
SELECT a.order_id, b.order_id FROM orders a JOIN orders b ON a.customer_id = b.customer_id AND a.order_id < b.order_id WHERE a.customer_id = 2 ORDER BY 1, 2;
SELECT o.order_id, i.name, l.quantity FROM orders o JOIN order_lines l USING (customer_id, order_id) JOIN items i USING (item_id) WHERE o.status = 'paid' ORDER BY 1, 2, 3, l.line_no;
SELECT i.name, s.warehouse, s.quantity FROM items i LEFT JOIN stock s USING (item_id) ORDER BY 1, 2;
SELECT i.name, sum(l.quantity) FROM items i LEFT JOIN order_lines l ON l.item_id = i.item_id GROUP BY i.name ORDER BY 1;
SELECT c.name, a.balance FROM customers c JOIN accounts a ON a.owner = c.customer_id ORDER BY 2;
SELECT c.name, a.balance FROM customers c JOIN accounts a ON a.account_id = c.customer_id ORDER BY 2;
SELECT c.name FROM customers c, orders o, order_lines l WHERE c.customer_id = o.customer_id AND o.order_id = l.order_id AND o.customer_id = l.customer_id AND l.quantity = 5 ORDER BY 1;
SELECT c.name FROM customers c WHERE EXISTS (SELECT 1 FROM orders o WHERE o.customer_id = c.customer_id AND o.status = 'returned') ORDER BY 1;
SELECT c.name FROM customers c WHERE NOT EXISTS (SELECT FROM orders o WHERE o.customer_id = c.customer_id) ORDER BY 1;
SELECT name FROM customers WHERE customer_id IN (SELECT customer_id FROM visits WHERE page = 'cart') ORDER BY 1;
SELECT name FROM customers WHERE customer_id NOT IN (SELECT customer_id FROM visits WHERE customer_id IS NOT NULL AND page = 'item') ORDER BY 1;
SELECT name FROM customers WHERE customer_id NOT IN (SELECT customer_id FROM visits) ORDER BY 1;
SELECT name FROM customers WHERE (customer_id, city) IN (SELECT customer_id, 'Paris' FROM orders) ORDER BY 1;
SELECT name FROM items WHERE item_id <> ALL (SELECT item_id FROM order_lines WHERE quantity = 5) ORDER BY 1;
SELECT name FROM items WHERE price > ANY (SELECT price FROM order_lines WHERE line_no = 3) ORDER BY 1;
SELECT c.name, last.order_id FROM customers c, LATERAL (SELECT order_id FROM orders o WHERE o.customer_id = c.customer_id ORDER BY placed DESC LIMIT 1) last ORDER BY 1;
SELECT c.name, last.order_id FROM customers c LEFT JOIN LATERAL (SELECT order_id FROM orders o WHERE o.customer_id = c.customer_id ORDER BY placed LIMIT 2) last ON true ORDER BY 1, 2;
SELECT c.name, t.tag FROM customers c, unnest(c.tags) AS t(tag) ORDER BY 1, 2;
SELECT c.name, t.tag, t.n FROM customers c CROSS JOIN LATERAL unnest(c.tags) WITH ORDINALITY AS t(tag, n) WHERE c.customer_id = 6 ORDER BY 3;
SELECT n, o.order_id FROM generate_series(1, 6) n LEFT JOIN orders o ON o.order_id = n * 5 ORDER BY 1;
SELECT n, c.name FROM generate_series(10, 14) AS g(n) LEFT JOIN customers c ON c.customer_id = n ORDER BY 1;
SELECT v.k, c.name FROM (VALUES (1, 'one'), (4, 'four'), (50, 'fifty')) AS v(k, word) LEFT JOIN customers c ON c.customer_id = v.k ORDER BY 1;
SELECT c.name, x.n FROM customers c JOIN (SELECT customer_id, count(*) AS n FROM orders GROUP BY customer_id) x USING (customer_id) ORDER BY 2 DESC, 1;
SELECT c.name, x.n FROM customers c JOIN (SELECT customer_id, count(*) AS n FROM order_lines GROUP BY customer_id HAVING count(*) > 8) x ON x.customer_id = c.customer_id ORDER BY 1;
SELECT o.order_id FROM orders o JOIN customers c ON c.customer_id = o.customer_id AND c.city = 'Paris' LEFT JOIN order_lines l ON l.order_id = o.order_id AND l.line_no = 3 WHERE l.order_id IS NULL ORDER BY 1;
SELECT count(*) FROM orders a JOIN orders b ON a.order_id = b.order_id;
SELECT count(*) FROM orders a JOIN orders b ON a.customer_id = b.customer_id;
SELECT count(*) FROM order_lines a, order_lines b WHERE a.line_no = b.line_no AND a.item_id = b.item_id;
SELECT count(*) FROM stock s JOIN stock t USING (warehouse);
SELECT s.warehouse, count(DISTINCT l.order_id) FROM stock s JOIN order_lines l USING (item_id) GROUP BY 1 ORDER BY 1;
SELECT j.* FROM (customers c JOIN orders o ON o.customer_id = c.customer_id) AS j WHERE j.order_id = 5;
SELECT c.name, o.order_id FROM (customers c JOIN orders o ON c.customer_id = o.customer_id) WHERE c.customer_id = 10 ORDER BY 2;
SELECT * FROM customer_totals ORDER BY customer_id;
SELECT * FROM customer_totals WHERE customer_id = 5;
SELECT t.name, p.order_id FROM customer_totals t JOIN paid_orders p USING (customer_id) ORDER BY 2;
SELECT count(*) FROM paid_orders WHERE customer_id = 8;
SELECT c.name FROM customers c LEFT JOIN orders o ON o.customer_id = c.customer_id AND o.customer_id = 3 WHERE o.order_id IS NOT NULL ORDER BY o.order_id;
SELECT c.name, o.order_id FROM customers c LEFT JOIN orders o ON o.customer_id = 3 WHERE c.customer_id = 2 ORDER BY 2;
SELECT c.name FROM customers c RIGHT JOIN orders o ON o.customer_id = c.customer_id AND c.customer_id = 3 WHERE o.order_id < 6;
SELECT count(*) FROM customers c FULL JOIN orders o ON c.customer_id = o.customer_id AND c.customer_id = 3;
SELECT count(*) FROM visits a JOIN visits b ON a.customer_id = b.customer_id AND a.at < b.at;
SELECT c.customer_id, o.customer_id FROM customers c JOIN orders o ON c.customer_id = o.customer_id + 1 ORDER BY 1, 2, o.order_id;
SELECT c.customer_id, a.account_id FROM customers c JOIN accounts a ON c.customer_id = a.account_id AND a.account_id = 7;
-- bind: 4
SELECT c.name, o.order_id FROM customers c JOIN orders o USING (customer_id) WHERE c.customer_id = $1 ORDER BY 2;
-- bind: 4 | 4
-- bind: 4 | 5
SELECT count(*) FROM customers c JOIN orders o ON o.customer_id = $2 WHERE c.customer_id = $1;
SELECT name FROM customers JOIN orders USING (order_id);
SELECT customer_id FROM customers JOIN orders ON true;
SELECT c.name FROM customers c JOIN orders c ON true;
