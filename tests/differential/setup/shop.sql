--! distribution replicated:
--! distribution by_customer: customers HASH (customer_id); orders HASH (customer_id); order_lines HASH (customer_id); items REPLICATED; stock HASH (item_id); accounts HASH (account_id); visits HASH (customer_id)
--! distribution apart: customers HASH (customer_id); orders HASH (order_id); order_lines HASH (line_no); items HASH (item_id); stock HASH (warehouse); accounts REPLICATED; visits ROUND ROBIN
-- The shop. Three distributions: everything everywhere; colocated by customer; nothing colocated.

CREATE TABLE customers (
  customer_id int PRIMARY KEY,
  name text NOT NULL,
  city text,
  joined date NOT NULL,
  credit numeric(10,2) NOT NULL DEFAULT 0,
  vip boolean NOT NULL DEFAULT false,
  profile jsonb,
  tags text[]);
CREATE TABLE items (
  item_id int PRIMARY KEY,
  name text NOT NULL,
  price numeric(10,2) NOT NULL CHECK (price >= 0),
  weight float8,
  category text);
CREATE TABLE orders (
  customer_id int NOT NULL,
  order_id int NOT NULL,
  placed timestamptz NOT NULL,
  status text NOT NULL DEFAULT 'new',
  PRIMARY KEY (order_id, customer_id));
CREATE TABLE order_lines (
  customer_id int NOT NULL,
  order_id int NOT NULL,
  line_no int NOT NULL,
  item_id int NOT NULL,
  quantity int NOT NULL CHECK (quantity > 0),
  price numeric(10,2) NOT NULL,
  PRIMARY KEY (customer_id, order_id, line_no));
CREATE TABLE stock (
  item_id int NOT NULL,
  warehouse text NOT NULL,
  quantity int NOT NULL,
  PRIMARY KEY (item_id, warehouse));
CREATE TABLE accounts (
  account_id bigint PRIMARY KEY,
  owner int NOT NULL,
  balance bigint NOT NULL,
  kind char(3) NOT NULL);
CREATE TABLE visits (
  customer_id int,
  at timestamp NOT NULL,
  page text,
  seconds real);
CREATE INDEX orders_by_customer ON orders (customer_id);
CREATE INDEX ON order_lines (item_id);

COPY customers FROM STDIN;
1	Ada	London	2020-01-15	100.50	t	{"age": 36, "langs": ["en", "fr"]}	{early,vip}
2	Bob	Paris	2020-02-20	0.00	f	{"age": 41}	{}
3	Chloé	Paris	2021-03-05	250.00	f	\N	{new}
4	Dmitri	\N	2021-03-05	-20.25	f	{"age": null, "city": {"name": "Omsk"}}	\N
5	Émile	Lyon	2021-07-14	75.00	t	{"age": 29, "langs": []}	{vip,fr}
6	Fatima	Tunis	2022-05-01	1000.00	t	{"langs": ["ar", "fr", "en"]}	{vip,early,"a,b"}
7	george	London	2022-05-01	12.34	f	[1, 2, 3]	{lower}
8	Hiro	東京	2022-12-31	0.00	f	"text"	{}
9	O'Neil	Dublin	2023-01-01	5.55	f	{}	{"quo\\"te"}
10	Zoë	\N	2023-06-30	42.00	f	{"age": 36}	{NULL,x}
11	émilie	lyon	2023-06-30	42.00	f	null	{fr}
12	Nil	\N	2024-02-29	0.01	f	\N	\N
\.
COPY items FROM STDIN;
1	Lamp	19.99	1.5	home
2	Chair	49.50	7.25	home
3	Pen	1.20	0.02	office
4	Desk	199.00	32	office
5	Mug	8.00	0.3	\N
6	Rug	89.95	4.75	home
7	Gift card	25.00	\N	\N
8	Stapler	12.00	0.4	office
\.
INSERT INTO orders (customer_id, order_id, placed, status)
SELECT 1 + (n * 7) % 11, n, timestamptz '2024-01-01 08:00+00' + n * interval '31 hours',
       (ARRAY['new','paid','shipped','returned'])[1 + n % 4]
FROM generate_series(1, 40) n;
INSERT INTO order_lines (customer_id, order_id, line_no, item_id, quantity, price)
SELECT 1 + (n * 7) % 11, n, l, 1 + (n * 3 + l * 5) % 8, 1 + (n + l) % 5, round(1.5 + (n * l) % 23 + 0.1 * l, 2)
FROM generate_series(1, 40) n, generate_series(1, 3) l
WHERE l <= 1 + n % 3;
INSERT INTO stock (item_id, warehouse, quantity)
SELECT i, w, (i * 37 + length(w) * 11) % 100
FROM generate_series(1, 8) i, unnest(ARRAY['north','south','east']) w
WHERE (i + length(w)) % 4 <> 0;
INSERT INTO accounts (account_id, owner, balance, kind)
SELECT n, 1 + n % 12, n * 100, CASE WHEN n % 3 = 0 THEN 'sav' ELSE 'chk' END
FROM generate_series(1, 30) n;
INSERT INTO visits (customer_id, at, page, seconds)
SELECT nullif(n % 13, 0), timestamp '2024-03-01' + n * interval '17 minutes',
       (ARRAY['home','cart','item',NULL])[1 + n % 4], n * 0.5
FROM generate_series(1, 60) n;
CREATE VIEW customer_totals AS
SELECT c.customer_id, c.name, count(o.order_id) AS orders
FROM customers c LEFT JOIN orders o USING (customer_id)
GROUP BY c.customer_id, c.name;
CREATE VIEW paid_orders AS SELECT * FROM orders WHERE status = 'paid';
