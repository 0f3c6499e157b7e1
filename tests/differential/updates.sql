--! setup: shop
--! changes data
-- UPDATE and DELETE in all their forms.

UPDATE customers SET credit = credit + 1 WHERE customer_id = 3;
UPDATE customers SET credit = credit + 1, city = 'Nice' WHERE customer_id = 3 RETURNING *;
UPDATE customers SET credit = 0 WHERE customer_id = 99;
UPDATE customers SET credit = credit * 2;
UPDATE customers SET vip = NOT vip WHERE city = 'London' RETURNING customer_id, vip;
UPDATE customers SET (name, city) = ('Both', 'Bonn') WHERE customer_id IN (1, 2);
UPDATE customers SET (name, city) = (SELECT 'Sub', 'Select') WHERE customer_id = 4;
UPDATE customers SET credit = DEFAULT WHERE customer_id = 5;
UPDATE customers AS c SET name = c.name || '*' WHERE c.customer_id = 6 RETURNING c.name;
UPDATE customers SET tags[1] = 'first' WHERE customer_id = 6;
UPDATE customers SET profile = jsonb_set(profile, '{age}', '37') WHERE profile ? 'age';
SELECT * FROM customers ORDER BY customer_id;
UPDATE orders SET status = 'closed' WHERE customer_id = 8;
UPDATE orders SET status = 'late' WHERE status = 'new' AND order_id < 10;
UPDATE orders SET placed = placed + interval '1 hour' WHERE order_id = 20 RETURNING order_id, placed;
UPDATE orders o SET status = 'vip' FROM customers c WHERE c.customer_id = o.customer_id AND c.customer_id = 5;
SELECT * FROM orders ORDER BY order_id;
UPDATE order_lines SET quantity = quantity + 1 WHERE customer_id = 3 AND order_id = 5;
UPDATE order_lines SET price = price + 0.01 WHERE item_id = 4;
UPDATE order_lines SET quantity = 0 WHERE item_id = 4;
UPDATE order_lines SET quantity = NULL WHERE customer_id = 3;
SELECT sum(quantity), sum(price) FROM order_lines;
UPDATE stock SET quantity = quantity - 1 WHERE item_id = 3 AND warehouse = 'north' RETURNING quantity;
UPDATE stock SET quantity = quantity + 5 WHERE warehouse = 'south';
SELECT * FROM stock ORDER BY 1, 2;
UPDATE accounts SET balance = balance - 10 WHERE account_id = 1;
UPDATE accounts SET balance = balance + CASE account_id WHEN 1 THEN -5 ELSE 5 END WHERE account_id IN (1, 2);
UPDATE accounts SET balance = balance + 1 WHERE kind = 'sav';
SELECT sum(balance), count(*) FROM accounts;
UPDATE visits SET page = 'seen' WHERE page IS NULL;
UPDATE visits SET seconds = 0 WHERE customer_id = 3 RETURNING customer_id, seconds;
SELECT page, count(*) FROM visits GROUP BY 1 ORDER BY 1;
UPDATE items SET price = price * 1.1 WHERE category = 'home' RETURNING item_id, price;
UPDATE items SET price = -1 WHERE item_id = 1;
UPDATE items SET name = 'Same', weight = weight WHERE item_id = 2;
UPDATE customers SET nothing = 1;
UPDATE nowhere SET a = 1;
UPDATE customers SET customer_id = 'x';
UPDATE customers SET name = NULL WHERE customer_id = 1;
UPDATE customers SET credit = 1 / 0 WHERE customer_id = 1;
UPDATE customers SET credit = 99999999999 WHERE customer_id = 1;
-- a key that changes moves the row
UPDATE customers SET customer_id = 212 WHERE customer_id = 12;
-- any order: rows of several nodes
UPDATE customers SET customer_id = customer_id + 100 WHERE customer_id IN (10, 11) RETURNING customer_id, name;
UPDATE customers SET customer_id = 1 WHERE customer_id = 2;
UPDATE orders SET customer_id = 12 WHERE customer_id = 11;
UPDATE stock SET warehouse = 'west' WHERE warehouse = 'east';
SELECT customer_id, name FROM customers ORDER BY 1;
SELECT customer_id, count(*) FROM orders GROUP BY 1 ORDER BY 1;
SELECT warehouse, count(*) FROM stock GROUP BY 1 ORDER BY 1;
-- bind: 9.5 | 3
-- bind: 1.5 | 4
UPDATE customers SET credit = credit + $1 WHERE customer_id = $2;
-- bind: 3
UPDATE customers SET credit = 0 WHERE customer_id = $1 RETURNING name, credit;
DELETE FROM order_lines WHERE customer_id = 4 AND order_id = 2 AND line_no = 1;
DELETE FROM order_lines WHERE customer_id = 4;
DELETE FROM order_lines WHERE item_id = 2 RETURNING order_id, line_no;
DELETE FROM orders WHERE order_id = 7 RETURNING *;
DELETE FROM orders WHERE order_id = 777;
DELETE FROM visits WHERE customer_id IS NULL;
DELETE FROM visits v WHERE v.seconds > 20;
DELETE FROM stock WHERE warehouse = 'west' AND quantity < 10;
DELETE FROM accounts WHERE account_id IN (3, 6, 9) RETURNING account_id, kind;
DELETE FROM items WHERE item_id = 8;
SELECT count(*) FROM order_lines;
SELECT count(*) FROM orders;
SELECT count(*) FROM visits;
SELECT count(*) FROM stock;
SELECT count(*) FROM accounts;
DELETE FROM orders o USING customers c WHERE c.customer_id = o.customer_id AND c.customer_id = 3;
DELETE FROM customers WHERE customer_id IN (SELECT customer_id FROM visits WHERE customer_id = 7);
DELETE FROM nowhere;
DELETE FROM orders WHERE nothing = 1;
-- bind: 5
DELETE FROM orders WHERE customer_id = $1;
SELECT count(*) FROM orders;
DELETE FROM accounts;
SELECT count(*) FROM accounts;
SELECT customer_id, credit FROM customers ORDER BY 1;
