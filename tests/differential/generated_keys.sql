--! distribution none:
--! distribution one: gk_users HASH (email_key); gk_events HASH (month); gk_orders HASH (email_key); gk_parts HASH (k); gk_typed HASH (k); gk_spelt HASH (k); gk_collated HASH (k); gk_domains HASH (k)
--! distribution several: gk_users HASH (email_key, tenant); gk_events HASH (month, kind); gk_orders HASH (email_key, tenant); gk_parts HASH (region, k); gk_typed HASH (k, s); gk_spelt HASH (k); gk_collated HASH (k, id); gk_domains HASH (k)
--! changes data
-- Tables that are distributed by generated columns: by what a function makes of others.

CREATE TABLE gk_users (tenant int DEFAULT 7, email varchar(40), name text, email_key text GENERATED ALWAYS AS (lower(email)) STORED,
    UNIQUE (email_key, tenant));
INSERT INTO gk_users (email, name) VALUES ('Ann@X.org', 'Ann'), ('BOB@x.org', 'Bob'), (NULL, 'nobody');
INSERT INTO gk_users VALUES (8, 'Cecil@X.org', 'Cecil', DEFAULT), (8, 'dora@x.org', 'Dora', DEFAULT) RETURNING *;
INSERT INTO gk_users (email, name) VALUES ('ann@x.ORG', 'again');
INSERT INTO gk_users (email, name, email_key) VALUES ('e@x.org', 'E', 'e@x.org');
INSERT INTO gk_users (email, name) SELECT 'User' || i || '@Mail.net', 'u' || i FROM generate_series(1, 60) i;
INSERT INTO gk_users (email, name) VALUES (repeat('x', 41), 'too long');
-- types: int4 | text | text
-- bind: 9 | Eve@X.org | Eve
-- bind: 9 | FRED@X.org | Fred
-- bind: 9 | eve@x.ORG | Eve again
INSERT INTO gk_users (tenant, email, name) VALUES ($1, $2, $3) RETURNING email_key, tenant;
INSERT INTO gk_users (email, name) VALUES ('ANN@x.org', 'other') ON CONFLICT (email_key, tenant) DO UPDATE SET name = excluded.name || '!' RETURNING name, email;
INSERT INTO gk_users (email, name) VALUES ('ANN@x.org', 'other'), ('new@x.org', 'New') ON CONFLICT DO NOTHING;
-- refused in one, several: the row could belong elsewhere
INSERT INTO gk_users (email, name) VALUES ('ANN@x.org', 'other') ON CONFLICT (email_key, tenant) DO UPDATE SET email = 'moved@x.org';
SELECT count(*), count(email_key), min(email_key), max(email) FROM gk_users;
SELECT name FROM gk_users WHERE email_key = 'ann@x.org' AND tenant = 7;
SELECT name FROM gk_users WHERE lower(email) = 'ann@x.org' AND tenant = 7;
SELECT name FROM gk_users WHERE tenant = 7 AND pg_catalog.lower(gk_users.email) = 'bob@x.org';
SELECT name FROM gk_users u WHERE lower(u.email) IN ('ann@x.org', 'cecil@x.org', 'nobody') ORDER BY name;
SELECT name FROM gk_users u WHERE (lower(u.email), tenant) IN (('ann@x.org', 7), ('cecil@x.org', 8)) ORDER BY name;
SELECT name FROM gk_users WHERE email = 'BOB@x.org';
SELECT name FROM gk_users WHERE lower(name) = 'ann';
SELECT name FROM gk_users WHERE upper(email) = 'ANN@X.ORG';
-- bind: user7@mail.net | 7
-- bind: User7@mail.net | 7
-- bind: NULL | 7
SELECT name FROM gk_users WHERE lower(email) = $1 AND tenant = $2;
SELECT name FROM gk_users WHERE lower(email) IS NULL;
SELECT a.name, b.name FROM gk_users a LEFT JOIN gk_users b ON b.tenant = 8 AND a.email_key < b.email_key WHERE coalesce(b.email, 'cecil@x.org') = 'cecil@x.org' AND a.tenant = 8 ORDER BY 1, 2;
SELECT a.name, b.name FROM gk_users a LEFT JOIN gk_users b ON lower(b.email) = 'dora@x.org' AND b.tenant = a.tenant WHERE a.tenant = 8 ORDER BY 1;
SELECT email_key, count(*) FROM gk_users GROUP BY email_key HAVING count(*) > 1 ORDER BY 1;
UPDATE gk_users SET name = upper(name) WHERE lower(email) = 'user3@mail.net' AND tenant = 7 RETURNING name;
UPDATE gk_users SET email = 'Moved3@X.org' WHERE lower(email) = 'user3@mail.net' RETURNING email_key, name;
UPDATE gk_users SET email = upper(email) WHERE email_key LIKE 'user1%';
UPDATE gk_users SET email = replace(email, '2', '_') WHERE email_key LIKE 'user2%' RETURNING email_key;
UPDATE gk_users SET email = NULL, tenant = 1 WHERE email_key = 'user40@mail.net' RETURNING *;
UPDATE gk_users SET email_key = 'x' WHERE tenant = 8;
UPDATE gk_users SET email_key = DEFAULT WHERE tenant = 8 RETURNING email_key, name;
UPDATE gk_users SET email = 'ann@x.org' WHERE email_key = 'bob@x.org';
UPDATE gk_users SET email = email WHERE tenant = 8;
DELETE FROM gk_users WHERE lower(email) = 'moved3@x.org' RETURNING name;
SELECT count(*), count(email_key), min(email_key), max(email), sum(length(email_key)) FROM gk_users;

-- A key by which rows refer to each other.
CREATE TABLE gk_orders (id int, tenant int, email text, total numeric, email_key text GENERATED ALWAYS AS (lower(email)) STORED);
INSERT INTO gk_orders SELECT i, 7, 'USER' || i % 30 || '@mail.net', i * 1.5 FROM generate_series(1, 90) i;
SELECT u.name, count(*), sum(o.total) FROM gk_users u JOIN gk_orders o ON o.email_key = u.email_key AND o.tenant = u.tenant GROUP BY u.name ORDER BY u.name LIMIT 7;
SELECT u.name, o.id FROM gk_users u JOIN gk_orders o ON lower(o.email) = lower(u.email) AND o.tenant = u.tenant WHERE o.id < 9 ORDER BY 2;
SELECT u.name, o.id FROM gk_users u LEFT JOIN gk_orders o USING (email_key, tenant) WHERE u.tenant = 7 AND o.id IS NULL ORDER BY u.name LIMIT 9;
UPDATE gk_orders o SET total = o.total + 1 FROM gk_users u WHERE u.email_key = o.email_key AND u.tenant = o.tenant AND u.name LIKE 'u5%';
SELECT sum(total) FROM gk_orders;
COPY gk_orders (id, tenant, email, total) FROM STDIN;
101	7	Copied@X.org	5
102	7	\N	6
103	8	COPIED@x.org	7.25
\.
COPY gk_orders (id, email) FROM STDIN WITH (FORMAT csv, HEADER);
id,email
104,"Quoted,Mail@x.org"
105,
106,""
\.
SELECT id, tenant, email_key FROM gk_orders WHERE id > 100 ORDER BY id;
SELECT id FROM gk_orders WHERE email_key = 'copied@x.org' AND tenant = 8;
SELECT id FROM gk_orders WHERE lower(email) = 'quoted,mail@x.org';
COPY gk_orders (id, tenant, email, email_key) FROM STDIN;
COPY (SELECT id, email_key FROM gk_orders WHERE id > 103 ORDER BY id) TO STDOUT;

-- Of times.
CREATE TABLE gk_events (id int, at timestamp NOT NULL, kind text DEFAULT 'click', month timestamp GENERATED ALWAYS AS (date_trunc('month', at)) STORED,
    PRIMARY KEY (id, month, kind));
INSERT INTO gk_events (id, at) SELECT i, timestamp '2026-01-10' + i * interval '9 days' FROM generate_series(1, 40) i;
INSERT INTO gk_events (id, at, kind) VALUES (100, '2026-03-31 23:59:59.9', 'last'), (101, 'infinity', 'never');
SET DateStyle = 'SQL, DMY';
INSERT INTO gk_events (id, at, kind) VALUES (110, '04/05/2026 10:00', 'spelt');
COPY gk_events (id, at) FROM STDIN;
111	04/05/2026 11:00
112	30/06/2026 00:00
\.
SELECT id, at, month FROM gk_events WHERE date_trunc('month', at) = '01/05/2026' ORDER BY id;
RESET DateStyle;
SELECT id, at, month FROM gk_events WHERE id > 99 ORDER BY id;
SELECT id FROM gk_events WHERE date_trunc('month', at) = '2026-03-01' ORDER BY id;
SELECT id FROM gk_events WHERE date_trunc('year', at) = '2026-01-01' AND id > 35 ORDER BY id;
SELECT id FROM gk_events WHERE date_trunc('month', at) = timestamp '2026-05-01' AND kind = 'click' ORDER BY id;
SELECT month, count(*) FROM gk_events GROUP BY month ORDER BY month;
SELECT month, kind, count(*) FROM gk_events GROUP BY 1, 2 ORDER BY 1, 2 LIMIT 4;
UPDATE gk_events SET at = at + interval '1 month' WHERE id BETWEEN 5 AND 12;
-- types: int4 | text
-- bind: 20 | 2030-02-03 04:05:06
UPDATE gk_events SET at = $2::timestamp WHERE id = $1 RETURNING id, month;
UPDATE gk_events e SET at = m.at FROM (VALUES (21, timestamp '2031-01-02'), (22, timestamp '2032-02-03')) m (id, at) WHERE e.id = m.id RETURNING e.id, e.month;
UPDATE gk_events SET at = NULL WHERE id = 23;
WITH moved AS (UPDATE gk_events SET at = '2040-04-04' WHERE id IN (24, 25) RETURNING id, month) SELECT * FROM moved ORDER BY id;
SELECT id, at, month FROM gk_events ORDER BY id;
BEGIN;
INSERT INTO gk_events (id, at) VALUES (200, '2050-01-31'), (201, '2050-02-28');
UPDATE gk_events SET at = at + interval '3 days' WHERE id IN (200, 201);
SELECT id, month FROM gk_events WHERE month >= '2050-01-01' ORDER BY id;
DELETE FROM gk_events WHERE date_trunc('month', at) = '2050-03-01';
SELECT id, month FROM gk_events WHERE month >= '2050-01-01' ORDER BY id;
ROLLBACK;

-- Partitions compute it, too.
CREATE TABLE gk_parts (id int, region text, v numeric(6,1), k int GENERATED ALWAYS AS (id % 100) STORED) PARTITION BY LIST (region);
CREATE TABLE gk_parts_eu PARTITION OF gk_parts FOR VALUES IN ('eu');
CREATE TABLE gk_parts_us PARTITION OF gk_parts FOR VALUES IN ('us');
INSERT INTO gk_parts (id, region, v) SELECT i, CASE i % 2 WHEN 0 THEN 'eu' ELSE 'us' END, i / 7.0 FROM generate_series(1, 250) i;
INSERT INTO gk_parts_eu VALUES (1000, 'eu', 99.99);
SELECT k, count(*), sum(v) FROM gk_parts WHERE k IN (7, 8) GROUP BY k ORDER BY k;
SELECT id FROM gk_parts WHERE id % 100 = 42 ORDER BY id;
SELECT id FROM gk_parts WHERE id % 100 = 42 AND region = 'eu' ORDER BY id;
UPDATE gk_parts SET id = id + 1 WHERE id % 100 = 42;
UPDATE gk_parts SET region = 'us' WHERE id = 44 RETURNING *;
SELECT id, region, k FROM gk_parts WHERE k IN (43, 44) ORDER BY id, region;
SELECT tableoid::regclass::text, count(*) FROM gk_parts GROUP BY 1 ORDER BY 1;

-- What is cast on its way into the column is not what the expression says.
CREATE TABLE gk_typed (n int, s varchar(10), k int GENERATED ALWAYS AS (n / 2.0) STORED);
INSERT INTO gk_typed (n, s) SELECT i, 's' || i FROM generate_series(1, 30) i;
SELECT n, k FROM gk_typed WHERE n / 2.0 = 2.5;
SELECT n, k FROM gk_typed WHERE k = 3 ORDER BY n;
SELECT n, k FROM gk_typed WHERE k = 3 AND s = 's5' ORDER BY n;
INSERT INTO gk_typed (n) VALUES (2147483647) RETURNING k;
UPDATE gk_typed SET n = n * 3 WHERE k < 4;
SELECT n, k FROM gk_typed WHERE k < 20 ORDER BY n;
TRUNCATE gk_typed;
SELECT count(*) FROM gk_typed;

-- Names that change.
CREATE TABLE gk_spelt (id int, "The Mail" text, k text GENERATED ALWAYS AS (upper("The Mail")) STORED);
INSERT INTO gk_spelt VALUES (1, 'a'), (2, 'b');
ALTER TABLE gk_spelt RENAME COLUMN "The Mail" TO mail;
INSERT INTO gk_spelt (id, mail) SELECT i, chr(96 + i) FROM generate_series(3, 20) i;
ALTER TABLE gk_spelt RENAME TO gk_renamed;
ALTER TABLE gk_renamed RENAME COLUMN k TO key;
INSERT INTO gk_renamed VALUES (21, 'z');
SELECT id FROM gk_renamed WHERE upper(mail) = 'Z';
SELECT id FROM gk_renamed WHERE upper(mail) = 'C' OR key = 'D' ORDER BY id;
UPDATE gk_renamed SET mail = mail || mail WHERE id < 6;
SELECT id, key FROM gk_renamed WHERE key IN ('AA', 'BB', 'CC', 'D') ORDER BY id;
ALTER TABLE gk_renamed ADD COLUMN other text DEFAULT 'o', DROP COLUMN id;
INSERT INTO gk_renamed VALUES ('y', DEFAULT, 'p');
SELECT * FROM gk_renamed WHERE upper(mail) = 'Y';
CREATE VIEW gk_view AS SELECT mail, key, other FROM gk_renamed;
SELECT other FROM gk_view WHERE upper(mail) = 'Y';
UPDATE gk_view SET other = 'q' WHERE key = 'Y';
DELETE FROM gk_view WHERE key = 'Z';
SELECT mail, key, other FROM gk_view WHERE key IN ('Y', 'Z');
-- refused in one, several: the row could belong elsewhere
UPDATE gk_view SET mail = 'w' WHERE key = 'Y';
ALTER TABLE gk_renamed ALTER COLUMN key DROP EXPRESSION;
INSERT INTO gk_renamed (mail, key) VALUES ('free', 'FREE'), ('other', 'another');
UPDATE gk_renamed SET mail = 'anything' WHERE key = 'FREE';
SELECT * FROM gk_renamed WHERE key = 'FREE';
SELECT * FROM gk_renamed WHERE upper(mail) IN ('FREE', 'ANYTHING', 'OTHER') ORDER BY key;

-- Compared, an expression is by another collation than the column.
CREATE COLLATION gk_loose (provider = icu, locale = 'und-u-ks-level1', deterministic = false);
CREATE TABLE gk_collated (id int, email text COLLATE gk_loose, k text GENERATED ALWAYS AS (lower(email)) STORED);
INSERT INTO gk_collated SELECT i, CASE i % 2 WHEN 0 THEN 'É' || i % 9 ELSE 'E' || i % 9 END FROM generate_series(1, 40) i;
SELECT count(*) FROM gk_collated WHERE lower(email) = 'é1';
SELECT count(*) FROM gk_collated WHERE lower(email) IN ('é1', 'e2');
SELECT count(*) FROM gk_collated WHERE k = 'é1';
SELECT count(*) FROM gk_collated a JOIN gk_collated b ON lower(a.email) = lower(b.email);
UPDATE gk_collated SET email = email || '!' WHERE lower(email) = 'e3';
DELETE FROM gk_collated WHERE lower(email) = 'e2';
SELECT count(*), count(DISTINCT k) FROM gk_collated;

-- A header that must be there.
COPY gk_orders (id, email) FROM STDIN WITH (FORMAT csv, HEADER match);
id,email
201,Matched@x.org
\.
COPY gk_orders (id, email) FROM STDIN WITH (FORMAT csv, HEADER match);
id,mail
202,Unmatched@x.org
\.
SELECT id, email_key FROM gk_orders WHERE id > 200 ORDER BY id;
-- Domains that may not be NULL, in columns that no key is made of.
CREATE DOMAIN gk_needed AS text NOT NULL;
CREATE DOMAIN gk_checked AS int CHECK (value IS NOT NULL AND value > 0);
CREATE TABLE gk_domains (e text, d gk_needed, c gk_checked, k text GENERATED ALWAYS AS (lower(e)) STORED);
COPY gk_domains (e, d, c) FROM STDIN;
Abc	x	1
Def	y	2
\.
COPY gk_domains (e, d, c) FROM STDIN;
Ghi	\N	1
\.
COPY gk_domains (e, d, c) FROM STDIN;
Ghi	x	0
\.
SELECT e, d, c, k FROM gk_domains WHERE k = 'abc';
SELECT e, d, c, k FROM gk_domains ORDER BY e;
DROP TABLE gk_domains;
DROP DOMAIN gk_needed;
DROP DOMAIN gk_checked;
