--! distribution none:
--! distribution by_range: r_int RANGE (k) SPLIT AT VALUES (-5, 0, 10, 25); r_small RANGE (k) SPLIT AT VALUES (-5, 0, 10, 25); r_text RANGE (k) SPLIT AT VALUES ('', 'B', 'a', 'it''s', 'é'); r_varchar RANGE (k) SPLIT AT VALUES ('m', 'y'); r_date RANGE (k) SPLIT AT VALUES ('1999-12-31', '2024-01-01', '2024-07-01'); r_ts RANGE (k) SPLIT AT VALUES ('2024-01-01', '2024-07-01 12:00'); r_tstz RANGE (k) SPLIT AT VALUES ('2024-01-01 00:00+00', '2024-07-01 12:00+02'); r_uuid RANGE (k) SPLIT AT VALUES ('55555555-5555-5555-5555-555555555555', 'aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa'); r_null RANGE (k) SPLIT AT VALUES (1, 2); parents RANGE (id) SPLIT AT VALUES (10, 20, 30); children RANGE (parent) SPLIT AT VALUES (10, 20, 30); others HASH (k); parts RANGE (k) SPLIT AT VALUES (10, 20)
--! distribution unlike: r_int RANGE (k) SPLIT AT VALUES (0); r_small RANGE (k) SPLIT AT VALUES (3, 5); r_text RANGE (k) SPLIT AT VALUES ('b'); r_varchar HASH (k); r_date RANGE (v) SPLIT AT VALUES (3); r_ts HASH (k); r_tstz RANGE (k) SPLIT AT VALUES ('2024-03-01 00:00+00'); r_uuid RANGE (v) SPLIT AT VALUES (2); r_null RANGE (k) SPLIT AT VALUES (0); parents RANGE (id) SPLIT AT VALUES (5, 10, 15, 20); children RANGE (parent) SPLIT AT VALUES (5, 10, 15, 20); others RANGE (k) SPLIT AT VALUES (100); parts RANGE (k) SPLIT AT VALUES (15)
--! changes data
-- Tables that are distributed by ranges of their keys.

CREATE TABLE r_int (k int, v int, note text, PRIMARY KEY (k, v));
CREATE TABLE r_small (k smallint, v int);
INSERT INTO r_int SELECT n, n * n % 7, 'n' || n FROM generate_series(-20, 40) n;
INSERT INTO r_int VALUES (-2147483648, 1, 'least'), (2147483647, 1, 'most');
INSERT INTO r_small SELECT n, n FROM generate_series(-9, 30, 3) n;
SELECT * FROM r_int WHERE k = -5;
SELECT * FROM r_int WHERE k = -6;
SELECT * FROM r_int WHERE k = 0;
SELECT * FROM r_int WHERE k = 10::bigint;
SELECT * FROM r_int WHERE k = '25';
SELECT * FROM r_int WHERE k = 24.0;
SELECT * FROM r_int WHERE k = 3000000000;
SELECT * FROM r_int WHERE k IN (-7, 9, 10, 26) ORDER BY k;
SELECT * FROM r_int WHERE k IN (11, 12) ORDER BY k;
SELECT * FROM r_int WHERE k >= 10 AND k < 25 ORDER BY k;
SELECT * FROM r_int WHERE k > 9 AND k <= 24 ORDER BY k;
SELECT * FROM r_int WHERE k BETWEEN 11 AND 12 ORDER BY k;
SELECT * FROM r_int WHERE k BETWEEN 12 AND 11 ORDER BY k;
SELECT * FROM r_int WHERE k BETWEEN SYMMETRIC 12 AND 11 ORDER BY k;
SELECT * FROM r_int WHERE k NOT BETWEEN -19 AND 39 ORDER BY k;
SELECT * FROM r_int WHERE k < -5 ORDER BY k;
SELECT * FROM r_int WHERE k <= -5 ORDER BY k;
SELECT * FROM r_int WHERE -5 >= k ORDER BY k;
SELECT * FROM r_int WHERE k > 24 ORDER BY k;
SELECT * FROM r_int WHERE 25 <= k ORDER BY k;
SELECT * FROM r_int WHERE k >= 24.5 ORDER BY k;
SELECT * FROM r_int WHERE k < 3000000000 AND k > 38 ORDER BY k;
SELECT * FROM r_int WHERE k > '38' ORDER BY k;
SELECT * FROM r_int WHERE k > NULL;
SELECT * FROM r_int WHERE k > 38 OR k < -18 ORDER BY k;
SELECT * FROM r_int WHERE NOT k < 39 ORDER BY k;
SELECT count(*), sum(v) FROM r_int WHERE k >= 12 AND k < 20;
SELECT v, count(*) FROM r_int WHERE k >= 12 AND k < 20 GROUP BY v ORDER BY v;
SELECT count(*) FROM r_int WHERE k > 30 HAVING count(*) > 3;
-- bind: 10 | 24
-- bind: 5 | 15
-- bind: 24 | 10
-- bind: NULL | 10
SELECT * FROM r_int WHERE k BETWEEN $1 AND $2 ORDER BY k;
-- types: int8 | int2
-- bind: 10 | 25
-- bind: 3000000000 | 5
SELECT * FROM r_int WHERE k >= $1 AND k < $2 ORDER BY k;
-- types: numeric
-- bind: 38.5
SELECT * FROM r_int WHERE k > $1 ORDER BY k;
-- types: int4
-- bind: 38
-- bind: NULL
-- bind: -30
SELECT * FROM r_int WHERE k > $1 ORDER BY k;
SELECT a.k, b.v FROM r_int a JOIN r_small b ON a.k = b.k ORDER BY 1;
SELECT a.k, b.v FROM r_int a JOIN r_small b ON a.k = b.k WHERE a.k >= 10 AND a.k < 20 ORDER BY 1;
SELECT a.k, b.v FROM r_int a LEFT JOIN r_small b ON a.k = b.k AND b.k < 0 WHERE a.k < -3 ORDER BY 1;
SELECT a.k, b.v FROM r_int a LEFT JOIN r_small b ON a.k = b.k AND a.k < 0 WHERE a.v = 1 ORDER BY 1;
SELECT a.k, b.v FROM r_small b RIGHT JOIN r_int a ON a.k = b.k AND b.k > 25 WHERE a.k > 20 ORDER BY 1;
SELECT k FROM r_small WHERE k IN (SELECT k FROM r_int WHERE k > 10) ORDER BY 1;
SELECT k FROM r_small s WHERE NOT EXISTS (SELECT FROM r_int i WHERE i.k = s.k AND i.k < 10) ORDER BY 1;
SELECT * FROM (SELECT k, max(v) AS m FROM r_int GROUP BY k) q WHERE k > 35 ORDER BY 1;
SELECT k FROM (SELECT k FROM r_int WHERE k > 35 UNION ALL SELECT k FROM r_small WHERE k < 0) q ORDER BY 1;
SELECT k, row_number() OVER (ORDER BY k) FROM r_int WHERE k > 30 ORDER BY k;
SELECT k FROM r_int ORDER BY k DESC LIMIT 5;
SELECT count(DISTINCT v), min(k), max(k) FROM r_int;

UPDATE r_int SET v = v + 100 WHERE k >= 30 AND k < 35;
UPDATE r_int SET k = 5 WHERE k = -20;
UPDATE r_int SET k = 11 WHERE k = 11;
UPDATE r_int SET k = 12, v = 9 WHERE k <= 12 AND k >= 12;
-- any order: rows of several nodes
UPDATE r_int SET k = k + 30 WHERE k BETWEEN 1 AND 4 RETURNING k, v, note;
UPDATE r_int SET k = k - 100 WHERE k > 36 AND k < 40;
DELETE FROM r_int WHERE k > 20 AND k < 23;
DELETE FROM r_int WHERE k < -60 RETURNING note;
-- types: int4 | int4
-- bind: 13 | 15
-- bind: 15 | 30
DELETE FROM r_int WHERE k >= $1 AND k < $2;
SELECT * FROM r_int ORDER BY k, v;
INSERT INTO r_int VALUES (5, 1, 'again') ON CONFLICT (k, v) DO UPDATE SET note = excluded.note || '!' RETURNING note;
INSERT INTO r_int VALUES (5, 1, 'twice'), (-7, 0, 'seven'), (99, 1, 'new') ON CONFLICT DO NOTHING;
INSERT INTO r_int VALUES (5, 1, 'thrice'), (-7, 0, 'seven') ON CONFLICT (k, v) DO UPDATE SET note = excluded.note;
INSERT INTO r_int VALUES (5, 1, 'error');
INSERT INTO r_int SELECT k, 77, 'copied' FROM r_small;
INSERT INTO r_int SELECT k + 1, 78, 'copied' FROM r_small;
COPY r_int FROM STDIN;
-100	3	copied in
0	3	copied in
24	3	copied in
25	3	copied in
\.
SELECT * FROM r_int ORDER BY k, v;
MERGE INTO r_int t USING (VALUES (24, 3), (25, 33), (-99, 5)) AS s (k, v) ON t.k = s.k AND t.v = s.v WHEN MATCHED THEN UPDATE SET note = 'merged' WHEN NOT MATCHED THEN INSERT VALUES (s.k, s.v, 'merged in');
MERGE INTO r_int t USING r_small s ON t.k = s.k AND t.v = 1 WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT VALUES (s.k, 1, 'merged in');
SELECT * FROM r_int ORDER BY k, v;
BEGIN;
DELETE FROM r_int WHERE k BETWEEN -10 AND 10;
SELECT count(*) FROM r_int WHERE k < 11;
ROLLBACK;
SELECT count(*) FROM r_int WHERE k < 11;

CREATE TABLE r_text (k text COLLATE "C" PRIMARY KEY, v int);
INSERT INTO r_text VALUES ('', 1), (' ', 2), ('a', 3), ('A', 4), ('é', 5), ('e', 6), ('日本', 7), ('it''s', 8), ('Z', 9), ('zz', 10), (E'back\\slash', 11), (E'tab\t', 12);
SELECT v FROM r_text WHERE k = '';
SELECT v FROM r_text WHERE k = 'é';
SELECT v FROM r_text WHERE k = 'it''s';
SELECT v FROM r_text WHERE k = E'back\\slash';
SELECT v FROM r_text WHERE k >= 'a' ORDER BY v;
SELECT v FROM r_text WHERE k < 'B' ORDER BY v;
SELECT v FROM r_text WHERE k BETWEEN 'b' AND 'i' ORDER BY v;
SELECT v FROM r_text WHERE k > 'b' COLLATE "en_US" AND v IN (4, 9) ORDER BY v;
SELECT v FROM r_text WHERE k COLLATE "POSIX" < 'B' ORDER BY v;
SELECT v FROM r_text WHERE k LIKE 'a%' ORDER BY v;
-- bind: b
-- bind: 日
SELECT v FROM r_text WHERE k > $1 ORDER BY v;
UPDATE r_text SET k = 'x' || k WHERE v < 4;
SELECT k, v FROM r_text ORDER BY k;
CREATE TABLE r_varchar (k varchar(3) COLLATE "C", v int);
INSERT INTO r_varchar VALUES ('abc', 1), ('x  ', 2), ('xyz  ', 3), (NULL, 4), ('y', 5);
INSERT INTO r_varchar VALUES ('toolong', 6);
SELECT v FROM r_varchar WHERE k = 'xyz';
SELECT v FROM r_varchar WHERE k = 'x  ';
SELECT v FROM r_varchar WHERE k >= 'x' ORDER BY v;
SELECT r_text.v, r_varchar.v FROM r_text JOIN r_varchar USING (k) ORDER BY 1, 2;

CREATE TABLE r_date (k date, v int);
INSERT INTO r_date VALUES ('1999-12-30', 1), ('1999-12-31', 2), ('2000-01-01', 3), ('2023-12-31', 4), ('2024-01-01', 5), ('2024-12-31', 6), ('infinity', 7), ('-infinity', 8), ('0044-03-15 BC', 9), (NULL, 10), ('Jan 2 2024', 11);
SELECT v FROM r_date WHERE k = '2024-01-01';
SELECT v FROM r_date WHERE k = 'Jan 1 2024';
SELECT v FROM r_date WHERE k = DATE '2000-01-01';
SELECT v FROM r_date WHERE k >= '2024-01-01' ORDER BY v;
SELECT v FROM r_date WHERE k >= '2024-01-01' AND k < '2024-07-01' ORDER BY v;
SELECT v FROM r_date WHERE k < '2000-01-01' ORDER BY v;
SELECT v FROM r_date WHERE k < 'infinity' AND k > '2024-06-30' ORDER BY v;
SELECT v FROM r_date WHERE k < TIMESTAMP '2000-01-01 12:00' ORDER BY v;
SELECT v FROM r_date WHERE k IS NULL;
-- types: date
-- bind: 2024-01-01
-- bind: 1.7.2024
SELECT v FROM r_date WHERE k >= $1 ORDER BY v;
SET DateStyle = 'German';
INSERT INTO r_date VALUES ('01.07.2024', 12), ('30.06.2024', 13);
SELECT v FROM r_date WHERE k BETWEEN '30.06.2024' AND '01.07.2024' ORDER BY v;
RESET DateStyle;
COPY r_date FROM STDIN;
2024-07-01	20
2025-05-05	21
\N	22
\.
SELECT * FROM r_date ORDER BY v;
CREATE TABLE r_ts (k timestamp, v int);
INSERT INTO r_ts VALUES ('2023-12-31 23:59:59.999999', 1), ('2024-01-01', 2), ('2024-07-01 11:59', 3), ('2024-07-01 12:00', 4), ('infinity', 5), ('-infinity', 6);
SELECT v FROM r_ts WHERE k = '2024-01-01';
SELECT v FROM r_ts WHERE k >= '2024-01-01' AND k < '2024-07-01 12:00' ORDER BY v;
SELECT v FROM r_ts WHERE k < DATE '2024-01-01' ORDER BY v;
CREATE TABLE r_tstz (k timestamptz, v int);
INSERT INTO r_tstz VALUES ('2024-01-01 01:00+02', 1), ('2024-01-01 00:00+00', 2), ('2024-07-01 10:00+00', 3), ('2024-07-01 11:59+02', 4), ('infinity', 5);
SET TimeZone = 'America/New_York';
INSERT INTO r_tstz VALUES ('2023-12-31 20:00', 6);
SELECT v FROM r_tstz WHERE k = '2023-12-31 20:00';
SELECT v FROM r_tstz WHERE k >= '2023-12-31 20:00' ORDER BY v;
SELECT v FROM r_tstz WHERE k >= '2024-01-01 00:00+00' AND k < '2024-07-01 10:00+00' ORDER BY v;
RESET TimeZone;
CREATE TABLE r_uuid (k uuid, v int);
INSERT INTO r_uuid VALUES ('00000000-0000-0000-0000-000000000000', 1), ('55555555-5555-5555-5555-555555555555', 2), ('{aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaa9}', 3), ('AAAAAAAA-AAAA-AAAA-AAAA-AAAAAAAAAAAA', 4), ('ffffffff-ffff-ffff-ffff-ffffffffffff', 5);
SELECT v FROM r_uuid WHERE k = 'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa';
SELECT v FROM r_uuid WHERE k >= '55555555-5555-5555-5555-555555555555' ORDER BY v;
SELECT v FROM r_uuid WHERE k < 'b0000000-0000-0000-0000-000000000000' ORDER BY v;
CREATE TABLE r_null (k int, v int);
INSERT INTO r_null VALUES (NULL, 1), (0, 2), (1, 3), (NULL, 4), (2, 5);
SELECT v FROM r_null WHERE k IS NULL ORDER BY v;
SELECT v FROM r_null WHERE k < 1 ORDER BY v;
SELECT v FROM r_null WHERE NOT k < 2 ORDER BY v;
UPDATE r_null SET k = NULL WHERE k = 2;
UPDATE r_null SET k = 2 WHERE k IS NULL AND v = 1;
SELECT * FROM r_null ORDER BY v;

CREATE TABLE parents (id int PRIMARY KEY, name text);
CREATE TABLE children (parent int REFERENCES parents ON DELETE CASCADE, n int, PRIMARY KEY (parent, n));
CREATE TABLE others (k int PRIMARY KEY, v int);
INSERT INTO parents SELECT n, 'p' || n FROM generate_series(1, 40) n;
INSERT INTO children SELECT n % 40 + 1, n FROM generate_series(1, 100) n;
INSERT INTO others SELECT n, n FROM generate_series(1, 40, 3) n;
INSERT INTO children VALUES (99, 1);
UPDATE children SET parent = 99 WHERE parent = 7;
UPDATE children SET parent = 33 WHERE parent = 7;
DELETE FROM parents WHERE id BETWEEN 12 AND 14;
SELECT count(*) FROM children;
SELECT p.name, count(c.n) FROM parents p LEFT JOIN children c ON c.parent = p.id GROUP BY p.name ORDER BY 1;
SELECT p.id, o.v FROM parents p JOIN others o ON o.k = p.id WHERE p.id > 20 ORDER BY 1;
SELECT p.id, c.n, o.v FROM parents p JOIN children c ON c.parent = p.id JOIN others o ON o.k = c.n WHERE p.id BETWEEN 21 AND 29 ORDER BY 1, 2;
WITH moved AS (DELETE FROM children WHERE parent > 20 AND parent < 25 RETURNING n) SELECT count(*) FROM moved;
SELECT id FROM parents WHERE id >= 31 AND id < 35 ORDER BY id FOR UPDATE;
CREATE TABLE parts (k int, v int) PARTITION BY LIST (v);
CREATE TABLE parts_1 PARTITION OF parts FOR VALUES IN (1);
CREATE TABLE parts_2 PARTITION OF parts FOR VALUES IN (2);
INSERT INTO parts SELECT n, n % 2 + 1 FROM generate_series(1, 30) n;
SELECT count(*) FROM parts_1 WHERE k >= 20;
SELECT count(*) FROM parts WHERE k = 7;
UPDATE parts SET k = k + 10 WHERE v = 1 AND k < 10;
SELECT * FROM parts ORDER BY k, v;
