--! distribution none:
--! distribution by_key: k_int2 HASH (k); k_int8 HASH (k); k_text HASH (k); k_varchar HASH (k); k_char HASH (k); k_uuid HASH (k); k_date HASH (k); k_ts HASH (k); k_tstz HASH (k); k_numeric HASH (k); k_bool HASH (k); k_bytea HASH (k); k_name HASH (k); k_null HASH (k)
--! distribution by_range: k_int2 RANGE (k) SPLIT AT VALUES (-7, 7); k_int8 RANGE (k) SPLIT AT VALUES (-9223372036854775807, 5, 9223372036854775807); k_text HASH (k); k_varchar HASH (k); k_uuid RANGE (k) SPLIT AT VALUES ('00000000-0000-0000-0000-000000000007', '00000000-0000-0000-0000-000000000012'); k_date RANGE (k) SPLIT AT VALUES ('2024-01-05', '2024-01-15'); k_ts RANGE (k) SPLIT AT VALUES ('2024-01-01 05:00:00.000005', '2024-01-01 12:00'); k_tstz RANGE (k) SPLIT AT VALUES ('2024-01-01 05:00+00', '2024-01-01 12:00+00'); k_null HASH (k)
-- Distribution keys of every type: written in one form, found in all others.

CREATE TABLE k_int2 (k smallint PRIMARY KEY, v int);
INSERT INTO k_int2 SELECT n, n FROM generate_series(-20, 20) n;
SELECT * FROM k_int2 WHERE k = -7;
SELECT * FROM k_int2 WHERE k = 7::bigint;
SELECT * FROM k_int2 WHERE k = '7';
SELECT * FROM k_int2 WHERE k = 7.0;
SELECT * FROM k_int2 WHERE k = 70000;
-- bind: 5
-- bind: -5
SELECT * FROM k_int2 WHERE k = $1;
-- types: int8
-- bind: 5
SELECT * FROM k_int2 WHERE k = $1;
-- types: int4
-- bind: 5
SELECT * FROM k_int2 WHERE k = $1;
CREATE TABLE k_int8 (k bigint PRIMARY KEY, v int);
INSERT INTO k_int8 SELECT n * 10000000000, n FROM generate_series(-9, 9) n;
INSERT INTO k_int8 VALUES (9223372036854775807, 100), (-9223372036854775808, 101), (5, 102);
SELECT * FROM k_int8 WHERE k = 9223372036854775807;
SELECT * FROM k_int8 WHERE k = -9223372036854775808;
SELECT * FROM k_int8 WHERE k = 5;
SELECT * FROM k_int8 WHERE k = 5::smallint;
SELECT * FROM k_int8 WHERE k = -30000000000;
SELECT * FROM k_int8 WHERE k = 5.5;
-- types: int2
-- bind: 5
SELECT * FROM k_int8 WHERE k = $1;
-- types: numeric
-- bind: 5.0
SELECT * FROM k_int8 WHERE k = $1;
SELECT a.v, b.v FROM k_int2 a JOIN k_int8 b ON a.k = b.k;
CREATE TABLE k_text (k text PRIMARY KEY, v int);
INSERT INTO k_text VALUES ('', 1), (' ', 2), ('a', 3), ('A', 4), ('é', 5), ('e' || chr(769), 6), ('日本', 7), ('it''s', 8), (E'tab\t', 9), (repeat('long', 1000), 10);
SELECT v FROM k_text WHERE k = '';
SELECT v FROM k_text WHERE k = ' ';
SELECT v FROM k_text WHERE k = 'é';
SELECT v FROM k_text WHERE k = U&'e\0301';
SELECT v FROM k_text WHERE k = 'it''s';
SELECT v FROM k_text WHERE k = E'tab\t';
SELECT v FROM k_text WHERE k = 'a'::varchar;
SELECT v FROM k_text WHERE k = 'a '::char(2);
SELECT v FROM k_text WHERE k = repeat('long', 1000);
SELECT v FROM k_text WHERE k LIKE 'a%';
SELECT v FROM k_text WHERE lower(k) = 'a' ORDER BY 1;
-- bind: 日本
-- bind: a
-- bind: nothing
SELECT v FROM k_text WHERE k = $1;
CREATE TABLE k_varchar (k varchar(10) PRIMARY KEY, v int);
INSERT INTO k_varchar VALUES ('one', 1), ('two  ', 2), ('three', 3), ('four', 4);
SELECT v FROM k_varchar WHERE k = 'one';
SELECT v FROM k_varchar WHERE k = 'two';
SELECT v FROM k_varchar WHERE k = 'two  ';
SELECT v FROM k_varchar WHERE k = 'three'::text;
-- bind: four
SELECT v FROM k_varchar WHERE k = $1;
CREATE TABLE k_char (k char(6) PRIMARY KEY, v int);
INSERT INTO k_char VALUES ('one', 1), ('two  ', 2), ('', 3), ('sixsix', 4);
SELECT v, k FROM k_char WHERE k = 'one';
SELECT v FROM k_char WHERE k = 'one   ';
SELECT v FROM k_char WHERE k = 'one   '::text;
SELECT v FROM k_char WHERE k = 'two';
SELECT v FROM k_char WHERE k = '';
SELECT v FROM k_char WHERE k = 'sixsix';
-- bind: one
-- bind: one  
SELECT v FROM k_char WHERE k = $1;
-- types: text
-- bind: one
SELECT v FROM k_char WHERE k = $1;
CREATE TABLE k_uuid (k uuid PRIMARY KEY, v int);
INSERT INTO k_uuid SELECT ('00000000-0000-0000-0000-' || lpad(n::text, 12, '0'))::uuid, n FROM generate_series(1, 20) n;
SELECT v FROM k_uuid WHERE k = '00000000-0000-0000-0000-000000000007';
SELECT v FROM k_uuid WHERE k = '{00000000-0000-0000-0000-000000000008}';
SELECT v FROM k_uuid WHERE k = '00000000000000000000000000000009';
-- bind: 00000000-0000-0000-0000-000000000011
SELECT v FROM k_uuid WHERE k = $1;
CREATE TABLE k_date (k date PRIMARY KEY, v int);
INSERT INTO k_date SELECT date '2024-01-01' + n, n FROM generate_series(0, 20) n;
INSERT INTO k_date VALUES ('infinity', 100), ('-infinity', 101), ('4713-01-01 BC', 102);
SELECT v FROM k_date WHERE k = '2024-01-05';
SELECT v FROM k_date WHERE k = 'Jan 6, 2024';
SELECT v FROM k_date WHERE k = date '2024-01-05' + 2;
SELECT v FROM k_date WHERE k = timestamp '2024-01-09';
SELECT v FROM k_date WHERE k = 'infinity';
SELECT v FROM k_date WHERE k = '4713-01-01 BC';
-- bind: 2024-01-10
-- bind: 20240111
SELECT v FROM k_date WHERE k = $1;
SET DateStyle = 'SQL, DMY';
SELECT v FROM k_date WHERE k = '05/01/2024';
INSERT INTO k_date VALUES ('07/03/2025', 50);
-- bind: 07/03/2025
SELECT v, k FROM k_date WHERE k = $1;
RESET DateStyle;
SELECT v FROM k_date WHERE k = '2025-03-07';
CREATE TABLE k_ts (k timestamp PRIMARY KEY, v int);
INSERT INTO k_ts SELECT timestamp '2024-01-01' + n * interval '1 hour 1 microsecond', n FROM generate_series(0, 20) n;
SELECT v FROM k_ts WHERE k = '2024-01-01 05:00:00.000005';
SELECT v FROM k_ts WHERE k = '2024-01-01';
SELECT v FROM k_ts WHERE k = date '2024-01-01';
-- bind: 2024-01-01 06:00:00.000006
SELECT v FROM k_ts WHERE k = $1;
CREATE TABLE k_tstz (k timestamptz PRIMARY KEY, v int);
SET TimeZone = 'UTC';
INSERT INTO k_tstz SELECT timestamptz '2024-01-01 00:00+00' + n * interval '1 hour', n FROM generate_series(0, 20) n;
SELECT v FROM k_tstz WHERE k = '2024-01-01 05:00+00';
SELECT v FROM k_tstz WHERE k = '2024-01-01 05:00';
SET TimeZone = 'Asia/Tokyo';
SELECT v FROM k_tstz WHERE k = '2024-01-01 14:00';
SELECT v FROM k_tstz WHERE k = '2024-01-01 05:00+00';
-- bind: 2024-01-01 15:00
SELECT v, k FROM k_tstz WHERE k = $1;
INSERT INTO k_tstz VALUES ('2024-06-01 09:00', 99);
RESET TimeZone;
SELECT v FROM k_tstz WHERE k = '2024-06-01 00:00+00';
CREATE TABLE k_numeric (k numeric PRIMARY KEY, v int);
INSERT INTO k_numeric VALUES (1, 1), (2.50, 2), (-3.14159, 3), (0, 4), (1e30, 5), ('NaN', 6), (0.000001, 7), ('Infinity', 8);
SELECT v FROM k_numeric WHERE k = 1.000;
SELECT v FROM k_numeric WHERE k = 2.5;
SELECT v FROM k_numeric WHERE k = -3.141590;
SELECT v FROM k_numeric WHERE k = 0.00;
SELECT v FROM k_numeric WHERE k = 1000000000000000000000000000000;
SELECT v FROM k_numeric WHERE k = 'NaN';
SELECT v FROM k_numeric WHERE k = 1e-6;
SELECT v FROM k_numeric WHERE k = 'Infinity';
-- bind: 2.500
-- bind: 1E+30
SELECT v FROM k_numeric WHERE k = $1;
CREATE TABLE k_bool (k boolean PRIMARY KEY, v int);
INSERT INTO k_bool VALUES (true, 1), (false, 2);
SELECT v FROM k_bool WHERE k;
SELECT v FROM k_bool WHERE NOT k;
SELECT v FROM k_bool WHERE k = 'yes';
SELECT v FROM k_bool WHERE k = true;
CREATE TABLE k_bytea (k bytea PRIMARY KEY, v int);
INSERT INTO k_bytea VALUES ('\x', 1), ('\x00', 2), ('\xdeadbeef', 3), ('abc', 4);
SELECT v FROM k_bytea WHERE k = '\xDEADBEEF';
SELECT v FROM k_bytea WHERE k = '\x616263';
SELECT v FROM k_bytea WHERE k = 'abc';
SELECT v FROM k_bytea WHERE k = '\000';
-- bind: \xdeadbeef
SELECT v FROM k_bytea WHERE k = $1;
CREATE TABLE k_name (k name PRIMARY KEY, v int);
INSERT INTO k_name VALUES ('a', 1), ('Name', 2);
SELECT v FROM k_name WHERE k = 'a';
SELECT v FROM k_name WHERE k = 'Name'::text;
CREATE TABLE k_null (k int, v int);
INSERT INTO k_null VALUES (NULL, 1), (NULL, 2), (3, 3);
SELECT v FROM k_null WHERE k IS NULL ORDER BY v;
SELECT v FROM k_null WHERE k = NULL;
SELECT v FROM k_null WHERE k IS NOT DISTINCT FROM NULL ORDER BY v;
SELECT v FROM k_null WHERE k IS NOT DISTINCT FROM 3;
UPDATE k_null SET v = 5 WHERE k IS NULL;
UPDATE k_null SET k = NULL WHERE k = 3;
SELECT * FROM k_null ORDER BY v;
DELETE FROM k_null WHERE k IS NULL AND v = 5;
SELECT * FROM k_null;
