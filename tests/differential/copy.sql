--! setup: shop
--! changes data
--! distribution replicated:
--! distribution by_customer: copied HASH (id); keyless ROUND ROBIN; byword HASH (word); counted HASH (n); dated HASH (at); priced HASH (price)
--! distribution apart: copied REPLICATED; keyless HASH (a); byword HASH (word); counted HASH (what); dated HASH (at, day); priced HASH (short)
-- COPY in and out, in all formats.

COPY customers TO STDOUT;
COPY customers (customer_id, name) TO STDOUT (FORMAT csv);
COPY customers TO STDOUT WITH CSV HEADER;
COPY customers TO STDOUT (FORMAT binary);
COPY orders TO STDOUT (DELIMITER '|', NULL 'nil');
COPY (SELECT * FROM orders WHERE customer_id = 3 ORDER BY order_id) TO STDOUT;
COPY (SELECT status, count(*) FROM orders GROUP BY 1 ORDER BY 1) TO STDOUT (FORMAT csv, HEADER);
COPY (SELECT name FROM customers ORDER BY customer_id) TO STDOUT (FORMAT binary);
COPY (VALUES (1, 'a'), (2, 'b')) TO STDOUT;
COPY (SELECT name, city FROM customers ORDER BY customer_id) TO STDOUT (FORMAT csv, FORCE_QUOTE (name), NULL 'none');
COPY items TO STDOUT;
CREATE TABLE copied (id int PRIMARY KEY, word text, amount numeric(8,2), made date DEFAULT '2024-01-01', ok boolean);
COPY copied FROM STDIN;
1	one	1.5	2024-02-01	t
2	\N	\N	\N	\N
3	tab\there	-3	2024-02-03	f
4	line\nbreak	4	2024-02-04	t
5	back\\slash	5	2024-02-05	t
\.
COPY copied (id, word) FROM STDIN;
11	eleven
12	twelve
13	Émile
\.
COPY copied (word, id) FROM STDIN (FORMAT csv);
"quoted, with comma",21
"say ""hi""",22
plain,23
,24
"",25
"two
lines",26
\.
COPY copied FROM STDIN (FORMAT csv, HEADER, DELIMITER ';', NULL 'nil');
id;word;amount;made;ok
31;nil;3.10;2024-03-01;true
32;x;nil;nil;nil
\.
COPY copied (id, word, ok) FROM STDIN WITH (DELIMITER '|', NULL '-');
41|a|t
42|-|-
\.
SELECT * FROM copied ORDER BY id;
COPY copied FROM STDIN;
51	fine	1	2024-01-01	t
1	duplicate	1	2024-01-01	t
52	fine	1	2024-01-01	t
\.
COPY copied FROM STDIN;
61	fine	1	2024-01-01	t
x	not a number	1	2024-01-01	t
\.
COPY copied FROM STDIN;
62	few
\.
COPY copied FROM STDIN;
63	many	1	2024-01-01	t	more
\.
COPY copied (id, word) FROM STDIN (FORMAT csv);
64,"unterminated
\.
COPY copied (id, amount) FROM STDIN;
65	123456789.00
\.
COPY copied (nothing) FROM STDIN;
1
\.
COPY nowhere FROM STDIN;
1
\.
COPY copied FROM STDIN;
\.
SELECT count(*) FROM copied;
COPY copied TO STDOUT (FORMAT binary);
CREATE TABLE keyless (a int, b text);
COPY keyless FROM STDIN;
1	a
1	a
2	b
\N	\N
3	c
\.
SELECT a, b, count(*) FROM keyless GROUP BY 1, 2 ORDER BY 1, 2;
COPY (SELECT a, b FROM keyless) TO STDOUT (FORMAT binary);
COPY keyless FROM STDIN (FORMAT binary);
\previous
SELECT a, b, count(*) FROM keyless GROUP BY 1, 2 ORDER BY 1, 2;
COPY keyless TO STDOUT;
COPY keyless FROM STDIN;
\previous
SELECT count(*) FROM keyless;
CREATE TABLE byword (word text, n int);
COPY byword FROM STDIN;
été	1
	2
a\\b	3
a b	4
\N	5
日本	6
\.
SELECT * FROM byword ORDER BY n;
SELECT * FROM byword WHERE word = 'été';
SELECT * FROM byword WHERE word = '';
SELECT * FROM byword WHERE word = 'a\b';
SELECT * FROM byword WHERE word = '日本';
CREATE TABLE counted (n serial, what text, at timestamptz DEFAULT now());
COPY counted (what) FROM STDIN;
x
y
z
x
\.
SELECT what, count(*), count(at) FROM counted GROUP BY 1 ORDER BY 1;
SELECT count(DISTINCT n), count(DISTINCT at) FROM counted;
INSERT INTO counted (what) VALUES ('w');
SELECT count(DISTINCT n) FROM counted;
BEGIN;
COPY keyless FROM STDIN;
100	in transaction
101	in transaction
\.
SELECT count(*) FROM keyless WHERE a >= 100;
ROLLBACK;
SELECT count(*) FROM keyless WHERE a >= 100;
BEGIN;
COPY keyless FROM STDIN;
bad	row
\.
SELECT 1;
ROLLBACK;
COPY keyless FROM STDIN (FORMAT csv, HEADER, FORCE_NULL (b));
a,b
7,""
8,x
\.
SELECT * FROM keyless WHERE a IN (7, 8) ORDER BY 1;
COPY keyless FROM STDIN WHERE a > 900;
899	no
901	yes
902	yes
\.
SELECT * FROM keyless WHERE a > 800 ORDER BY 1;
COPY paid_orders TO STDOUT;
COPY (SELECT * FROM nowhere) TO STDOUT;
COPY keyless TO STDOUT (FORMAT nonsense);
COPY (DELETE FROM keyless WHERE a = 7 RETURNING a) TO STDOUT;
-- What changes of rows return.
COPY (INSERT INTO copied (id, word, amount) VALUES (901, 'a', 1), (902, E'b,"x\t', 2.5), (903, NULL, NULL), (904, '', 4) RETURNING id, word, amount + 1 AS more) TO STDOUT;
COPY (UPDATE copied SET amount = coalesce(amount, 0) + 10 WHERE id > 901 RETURNING id, word, amount) TO STDOUT (FORMAT csv, HEADER, FORCE_QUOTE (word));
COPY (UPDATE copied SET amount = amount + 1 WHERE id = 902 RETURNING *) TO STDOUT;
COPY (DELETE FROM copied WHERE id IN (901, 903) RETURNING copied.*) TO STDOUT (DELIMITER '|', NULL 'nil');
COPY (DELETE FROM copied WHERE id = 905 RETURNING id) TO STDOUT (FORMAT binary);
COPY (DELETE FROM copied WHERE id = 902 RETURNING id, word) TO STDOUT (FORMAT binary);
COPY (DELETE FROM copied WHERE id = 904) TO STDOUT;
COPY (UPDATE copied SET amount = 1 / (id - 904) WHERE id > 900 RETURNING id) TO STDOUT;
COPY (DELETE FROM copied WHERE id > 900 RETURNING nothing) TO STDOUT;
BEGIN;
COPY (DELETE FROM copied WHERE id > 900 RETURNING id) TO STDOUT;
SELECT count(*) FROM copied WHERE id > 900;
ROLLBACK;
SELECT count(*) FROM copied WHERE id > 900;
BEGIN READ ONLY;
COPY (DELETE FROM copied WHERE id > 900 RETURNING id) TO STDOUT;
ROLLBACK;
COPY (WITH gone AS (DELETE FROM copied WHERE id > 900 RETURNING id, word) SELECT count(*), min(id) FROM gone) TO STDOUT;
SELECT count(*) FROM copied WHERE id > 900;

-- Keys that only a server can read, or that storing changes.
CREATE TABLE dated (at timestamp, day date, note text);
CREATE TABLE priced (price numeric(8,2), short varchar(3), n int DEFAULT 5);
COPY dated FROM STDIN;
2026-01-02 03:04:05	2026-01-02	plain
Jan 3 2026 4:05 PM	3 January 2026	in words
infinity	epoch	far
20260104T050607	20260104	tight
\N	\N	none
2026-01-05 06:07:08.123456789	2026-01-05	fine
\.
SET DateStyle = 'SQL, DMY';
COPY dated (note, day, at) FROM STDIN (FORMAT csv, HEADER);
note,day,at
dmy,04/05/2026,04/05/2026 10:11
again,05/06/2026,2026-06-05 12:13
\.
RESET DateStyle;
SELECT * FROM dated ORDER BY at, note;
SELECT note FROM dated WHERE at = '2026-05-04 10:11:00' AND day = '2026-05-04';
SELECT note FROM dated WHERE at = '2026-01-03 16:05' AND day = '2026-01-03';
COPY priced FROM STDIN;
1.005	abc	1
2	ab	2
-3.999	a  	3
1e3	abc   	4
\.
COPY priced (price, short) FROM STDIN;
7.777	xyz
\.
COPY priced FROM STDIN;
1	abcd	1
\.
COPY priced FROM STDIN;
1.111	abc	1
12345678	abc	1
\.
COPY priced FROM STDIN;
1.239	abc	1
nothing	abc	1
\.
COPY priced FROM STDIN;
1.239	abc	1
1.5	abc
\.
SELECT price, short, n FROM priced ORDER BY price, n;
SELECT n FROM priced WHERE price = 1.01;
SELECT n FROM priced WHERE short = 'a  ';
