--! setup: shop
--! changes data
--! distribution replicated:
--! distribution by_customer: ledger HASH (account); log HASH (id); notes ROUND ROBIN; pairs HASH (b); words HASH (word); counts HASH (n)
--! distribution apart: ledger HASH (entry); log REPLICATED; notes HASH (body); pairs HASH (a); words REPLICATED; counts HASH (place)
-- INSERT in all its forms.

INSERT INTO customers (customer_id, name, joined) VALUES (101, 'New', '2024-01-01');
INSERT INTO customers VALUES (102, 'Full', 'Rome', '2024-01-02', 5.5, true, '{"x": 1}', '{a,b}');
INSERT INTO customers (name, customer_id, joined) VALUES ('Order', 103, '2024-01-03'), ('Of', 104, '2024-01-03'), ('Columns', 105, '2024-01-03');
INSERT INTO customers (customer_id, name, joined, credit) VALUES (106, 'Defaults', '2024-01-01', DEFAULT), (107, 'Mixed', '2024-01-01', 7);
INSERT INTO customers (customer_id, name, joined) VALUES (108, 'Returned', '2024-01-01') RETURNING *;
INSERT INTO customers (customer_id, name, joined) VALUES (109, 'A', '2024-01-01'), (110, 'B', '2024-01-01'), (111, 'C', '2024-01-01') RETURNING customer_id, name || '!' AS shout, credit;
INSERT INTO customers AS c (customer_id, name, joined) VALUES (112, 'Alias', '2024-01-01') RETURNING c.customer_id;
INSERT INTO customers (customer_id, name, joined) VALUES (50 + 63, upper('expr'), date '2024-01-01' + 1);
INSERT INTO customers (customer_id, name, joined) SELECT 120 + n, 'gen ' || n, date '2024-01-01' + n FROM generate_series(1, 9) n;
INSERT INTO customers (customer_id, name, joined) SELECT customer_id + 200, name, joined FROM customers WHERE customer_id < 4;
INSERT INTO customers (customer_id, name, joined) SELECT customer_id + 300, name, joined FROM customers WHERE customer_id < 3 RETURNING customer_id, name;
SELECT * FROM customers WHERE customer_id > 100 ORDER BY customer_id;
INSERT INTO customers (customer_id, name, joined) VALUES (101, 'Again', '2024-01-01');
INSERT INTO customers (customer_id, name, joined) VALUES (400, 'Whole', '2024-01-01'), (401, 'Or', '2024-01-01'), (101, 'Nothing', '2024-01-01');
SELECT count(*) FROM customers WHERE customer_id BETWEEN 400 AND 499;
INSERT INTO customers (customer_id, name, joined) VALUES (402, 'Twice', '2024-01-01'), (402, 'Twice', '2024-01-01');
INSERT INTO customers (customer_id, name, joined) VALUES (403, NULL, '2024-01-01');
INSERT INTO customers (customer_id, name, joined) VALUES (NULL, 'No key', '2024-01-01');
INSERT INTO customers (name, joined) VALUES ('No key either', '2024-01-01');
INSERT INTO customers (customer_id, nothing) VALUES (404, 1);
INSERT INTO customers (customer_id, name) VALUES (404, 'few'), (405);
INSERT INTO customers VALUES (406, 'short');
INSERT INTO customers VALUES ('x', 'bad');
INSERT INTO nowhere VALUES (1);
INSERT INTO order_lines VALUES (1, 1, 9, 1, 0, 1);
INSERT INTO order_lines VALUES (1, 1, 9, 1, 1, 123456789012.5);
INSERT INTO items VALUES (10, 'Neg', -1, NULL, NULL);
INSERT INTO items VALUES (10, 'Ok', 1.005, NULL, NULL), (11, 'Ok too', 2, 1, 'x') RETURNING item_id, price;
INSERT INTO customers (customer_id, name, joined) VALUES (101, 'Conflict', '2024-01-01') ON CONFLICT DO NOTHING;
INSERT INTO customers (customer_id, name, joined) VALUES (101, 'Conflict', '2024-01-01'), (500, 'Fresh', '2024-01-01') ON CONFLICT (customer_id) DO NOTHING RETURNING customer_id;
INSERT INTO customers (customer_id, name, joined) VALUES (101, 'Updated', '2024-01-01') ON CONFLICT (customer_id) DO UPDATE SET name = excluded.name, credit = customers.credit + 1 RETURNING customer_id, name, credit;
INSERT INTO customers (customer_id, name, joined) VALUES (101, 'Many', '2024-01-01'), (102, 'Many', '2024-01-01'), (501, 'Many', '2024-01-01') ON CONFLICT (customer_id) DO UPDATE SET name = excluded.name WHERE customers.customer_id <> 102;
INSERT INTO customers (customer_id, name, joined) VALUES (502, 'x', '2024-01-01'), (502, 'y', '2024-01-01') ON CONFLICT (customer_id) DO UPDATE SET name = excluded.name;
INSERT INTO customers (customer_id, name, joined) VALUES (503, 'x', '2024-01-01') ON CONFLICT (city) DO NOTHING;
SELECT customer_id, name, credit FROM customers WHERE customer_id > 100 ORDER BY 1;
INSERT INTO stock VALUES (1, 'west', 5), (2, 'west', 6) ON CONFLICT (item_id, warehouse) DO UPDATE SET quantity = stock.quantity + excluded.quantity;
INSERT INTO stock VALUES (1, 'west', 5), (2, 'west', 6), (3, 'west', 7) ON CONFLICT (item_id, warehouse) DO UPDATE SET quantity = stock.quantity + excluded.quantity;
SELECT * FROM stock WHERE warehouse = 'west' ORDER BY 1;
-- bind: 600 | Param
-- bind: 601 | Param too
INSERT INTO customers (customer_id, name, joined) VALUES ($1, $2, '2024-01-01');
-- bind: 602 | 603
INSERT INTO customers (customer_id, name, joined) VALUES ($1, 'one', '2024-01-01'), ($2, 'two', '2024-01-01') RETURNING customer_id, name;
-- bind: 600 | dup
INSERT INTO customers (customer_id, name, joined) VALUES ($1, $2, '2024-01-01');
SELECT customer_id, name FROM customers WHERE customer_id >= 600 ORDER BY 1;

CREATE TABLE ledger (entry bigserial, account int NOT NULL, amount int NOT NULL DEFAULT 1, made timestamptz NOT NULL DEFAULT now());
INSERT INTO ledger (account) VALUES (7);
INSERT INTO ledger (account, amount) VALUES (1, 10), (2, 20), (3, 30) RETURNING entry, account, amount;
INSERT INTO ledger (account, amount) SELECT n, n * 100 FROM generate_series(4, 6) n;
INSERT INTO ledger (entry, account) VALUES (DEFAULT, 8);
SELECT entry, account, amount FROM ledger WHERE amount <> 100 ORDER BY account;
SELECT count(*), count(DISTINCT entry), count(DISTINCT account) FROM ledger;
SELECT currval('ledger_entry_seq') > 0, lastval() = currval('ledger_entry_seq');
CREATE TABLE log (id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, what text DEFAULT 'nothing', len int GENERATED ALWAYS AS (length(what)) STORED);
INSERT INTO log (what) VALUES ('one');
INSERT INTO log DEFAULT VALUES;
INSERT INTO log DEFAULT VALUES RETURNING id, what, len;
INSERT INTO log (what) VALUES ('three'), ('four'), (DEFAULT) RETURNING id, len;
INSERT INTO log (id, what) VALUES (100, 'forced');
INSERT INTO log (id, what) OVERRIDING SYSTEM VALUE VALUES (100, 'forced');
INSERT INTO log (id, what) OVERRIDING USER VALUE VALUES (200, 'not forced');
INSERT INTO log (what, len) VALUES ('x', 5);
SELECT * FROM log ORDER BY id;
CREATE TABLE notes (body text, n int);
INSERT INTO notes VALUES ('a', 1), ('b', 2), ('c', 3), ('d', 4), ('e', 5);
INSERT INTO notes (body) VALUES (NULL);
INSERT INTO notes SELECT name, item_id FROM items ORDER BY item_id;
INSERT INTO notes TABLE notes;
INSERT INTO notes VALUES ('only', 9) RETURNING *;
SELECT body, n, count(*) FROM notes GROUP BY 1, 2 ORDER BY 1, 2;
INSERT INTO notes (body) SELECT 1 / 0;
CREATE TABLE pairs (a int, b text, PRIMARY KEY (a, b));
INSERT INTO pairs VALUES (1, 'x'), (1, 'y'), (2, 'x'), (2, 'y');
INSERT INTO pairs SELECT customer_id, status FROM orders ON CONFLICT DO NOTHING;
INSERT INTO pairs VALUES (1, 'x');
SELECT * FROM pairs ORDER BY 1, 2;
CREATE TABLE words (word text PRIMARY KEY, n numeric(4,1), ok boolean DEFAULT true);
INSERT INTO words VALUES ('été', 1.25), ('Été', 2.75), ('', 3), (' ', 4), ('a''b', 5);
INSERT INTO words VALUES ('été', 0);
INSERT INTO words SELECT page || n, n FROM (SELECT DISTINCT page FROM visits WHERE page IS NOT NULL) v, generate_series(1, 3) n;
INSERT INTO words VALUES ('big', 12345);
SELECT * FROM words ORDER BY word COLLATE "C";
WITH v AS (SELECT 700 AS id, 'cte' AS name) INSERT INTO customers (customer_id, name, joined) SELECT id, name, '2024-01-01' FROM v;
WITH v (id) AS (VALUES (701), (702)) INSERT INTO customers (customer_id, name, joined) SELECT id, 'cte ' || id, '2024-01-01' FROM v RETURNING customer_id;
INSERT INTO customers (customer_id, name, joined) VALUES (710, (SELECT name FROM items WHERE item_id = 2), '2024-01-01');
SELECT customer_id, name FROM customers WHERE customer_id >= 700 ORDER BY 1;
-- without a column list
INSERT INTO accounts SELECT n, 1 + n % 12, n * 100, CASE WHEN n % 3 = 0 THEN 'sav' ELSE 'chk' END FROM generate_series(500, 530) n;
INSERT INTO orders SELECT 1 + (n * 7) % 11, n, timestamptz '2024-01-01 08:00+00' + n * interval '31 hours', (ARRAY['new','paid'])[1 + n % 2] FROM generate_series(1000, 1020) n;
INSERT INTO visits SELECT nullif(n % 13, 0), timestamp '2025-03-01' + n * interval '17 minutes' FROM generate_series(1, 30) n;
INSERT INTO order_lines SELECT 1, n, l, 1, 1, 1 FROM generate_series(1000, 1004) n, generate_series(1, 3) l;
SELECT count(*), sum(balance) FROM accounts;
SELECT count(*), max(placed) FROM orders;
SELECT count(*), max(at) FROM visits;
SELECT count(*) FROM order_lines;
-- nor a list of what a function returns
CREATE TABLE counts (n int, place bigint, note text, PRIMARY KEY (n, place));
ALTER TABLE counts ALTER COLUMN place SET DEFAULT 7;
INSERT INTO counts SELECT * FROM generate_series(1, 20);
INSERT INTO counts SELECT * FROM generate_series(101, 120) WITH ORDINALITY;
INSERT INTO counts SELECT * FROM generate_series(201, 203) AS g (n) RETURNING *;
INSERT INTO counts SELECT * FROM unnest(ARRAY[301, 302]) WITH ORDINALITY AS u (a, b);
INSERT INTO counts SELECT * FROM json_to_record('{"a": 401, "b": 2, "c": "x"}') AS r (a int, b bigint, c text);
INSERT INTO counts SELECT * FROM json_to_recordset('[{"a": 501, "b": 2}, {"a": 502}]') AS r (a int, b bigint);
INSERT INTO counts SELECT * FROM jsonb_array_elements_text('["1"]');
-- refused in replicated, by_customer, apart: the planner does not know how many columns several functions have
INSERT INTO counts SELECT * FROM generate_series(601, 602) a, generate_series(1, 2) b;
SELECT count(*), sum(n), sum(place) FROM counts;
SELECT n, place, note FROM counts WHERE n > 200 ORDER BY n, place;
DROP TABLE counts;
