--! setup: shop
-- Reads by key and by other columns.

SELECT * FROM customers WHERE customer_id = 3;
SELECT * FROM customers WHERE customer_id = 99;
SELECT name, credit FROM customers WHERE customer_id IN (1, 5, 9);
SELECT name FROM customers WHERE customer_id = 1 OR customer_id = 12;
SELECT name FROM customers WHERE customer_id BETWEEN 3 AND 5;
SELECT name FROM customers WHERE customer_id = ANY (ARRAY[2, 4, 6]);
SELECT name FROM customers WHERE customer_id = 2 + 2;
SELECT name FROM customers WHERE customer_id = '7';
SELECT name FROM customers WHERE customer_id = 7.0;
SELECT name FROM customers WHERE customer_id = 7::bigint;
SELECT name FROM customers WHERE customer_id = 7::smallint;
SELECT name FROM customers WHERE customer_id::bigint = 7;
SELECT name FROM customers WHERE 7 = customer_id;
SELECT name FROM customers WHERE customer_id = 7 AND city = 'London';
SELECT name FROM customers WHERE customer_id = 7 AND customer_id = 8;
SELECT name FROM customers WHERE customer_id = 7 AND false;
SELECT name FROM customers WHERE customer_id = NULL;
SELECT name FROM customers WHERE customer_id IS NULL;
SELECT name FROM customers WHERE NOT customer_id = 7;
SELECT name FROM customers WHERE city IS NULL;
SELECT name FROM customers WHERE city IS NOT DISTINCT FROM NULL;
SELECT name FROM customers WHERE city ILIKE 'l%';
SELECT name FROM customers WHERE name ~ '^[A-Z]o';
SELECT name FROM customers WHERE name = 'O''Neil';
SELECT name FROM customers WHERE vip;
SELECT count(*) FROM customers;
SELECT * FROM orders WHERE customer_id = 3 ORDER BY order_id;
SELECT * FROM orders WHERE customer_id = 8 AND order_id = 1;
SELECT * FROM orders WHERE order_id = 12;
SELECT * FROM order_lines WHERE customer_id = 8 AND order_id = 1 AND line_no = 1;
SELECT * FROM stock WHERE item_id = 3 AND warehouse = 'north';
SELECT * FROM stock WHERE warehouse = 'east' ORDER BY item_id;
SELECT * FROM accounts WHERE account_id = 17;
SELECT account_id FROM accounts WHERE kind = 'sav' ORDER BY 1;
SELECT account_id FROM accounts WHERE kind = 'sav ' ORDER BY 1;
SELECT * FROM visits WHERE customer_id = 5 ORDER BY at;
SELECT * FROM visits WHERE customer_id IS NULL ORDER BY at;
SELECT * FROM items WHERE item_id = 4;
SELECT name FROM items WHERE price BETWEEN 10 AND 50 ORDER BY price DESC;
TABLE items;
TABLE ONLY stock;
SELECT * FROM ONLY items WHERE item_id = 1;
SELECT FROM customers WHERE customer_id < 4;
SELECT c.* FROM customers AS c WHERE c.customer_id = 6;
SELECT "c"."name" AS "The Name" FROM "customers" "c" WHERE "c"."customer_id" = 6;
SELECT public.customers.name FROM public.customers WHERE public.customers.customer_id = 6;
SELECT customers FROM customers WHERE customer_id = 2;
SELECT (customers).name FROM customers WHERE customer_id = 2;
SELECT c.name, c.customer_id AS id FROM customers c (customer_id, name) WHERE customer_id = 1;
-- bind: 5
SELECT * FROM customers WHERE customer_id = $1;
-- bind: 1
-- bind: 2
-- bind: 3
-- bind: NULL
-- types: int4
SELECT name, $1 AS asked FROM customers WHERE customer_id = $1;
-- bind: 4 | Dmitri
-- bind: 4 | nobody
-- types: int8 | text
SELECT customer_id, name FROM customers WHERE customer_id = $1 AND name = $2;
-- bind: {1,3,5}
-- types: int4[]
SELECT name FROM customers WHERE customer_id = ANY ($1);
-- bind: 2 | 3
SELECT order_id FROM orders WHERE customer_id IN ($1, $2) ORDER BY order_id;
-- bind: 2 | 2
SELECT order_id FROM orders WHERE customer_id IN ($1, $2) ORDER BY order_id;
-- bind: 2
-- rows at a time: 1
SELECT order_id FROM orders WHERE customer_id = $1 ORDER BY order_id;
-- rows at a time: 7
SELECT order_id, customer_id FROM orders ORDER BY order_id;
-- rows at a time: 5
SELECT count(*), status FROM orders GROUP BY status ORDER BY status;
-- bind: paid | 3
SELECT * FROM orders WHERE status = $1 ORDER BY order_id LIMIT $2;
-- bind: x
-- types: text
SELECT $1 || 'y';
-- bind: 12.5
-- types: numeric
SELECT item_id FROM items WHERE price > $1 ORDER BY 1;
-- bind: not a number
SELECT * FROM customers WHERE customer_id = $1;
-- bind: 99999999999
SELECT * FROM customers WHERE customer_id = $1;
SELECT * FROM customers WHERE customer_id = 99999999999;
SELECT * FROM customers WHERE customer_id = 'x';
SELECT * FROM customers WHERE customer_id = 1 / 0;
SELECT * FROM customers WHERE 1 / (customer_id - 5) > 0;
SELECT nothing FROM customers WHERE customer_id = 1;
SELECT * FROM nowhere;
SELECT * FROM nowhere.customers;
SELECT name FROM customers WHERE;
SELEC name FROM customers;
SELECT customer_id FROM customers, orders;
SELECT nofunction(customer_id) FROM customers;
SELECT upper(customer_id) FROM customers;
SELECT sum(name) FROM customers;
SELECT name, count(*) FROM customers;
SELECT * FROM customers WHERE customer_id = 'x'::int;
SELECT '{'::jsonb FROM customers;
SELECT * FROM customers WHERE (SELECT customer_id FROM orders) = 1;
