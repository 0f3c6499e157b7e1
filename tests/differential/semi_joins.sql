-- Rows that matter only beside rows of other tables: whatever is left out for that, and to whichever node each row goes,
-- the answer is that of one server. Here every table that can be is reduced by others.
--! changes data
--! distribution apart: sp HASH (id); sl HASH (o); ss HASH (id); sx ROUND ROBIN; sn REPLICATED; sf HASH (n)
--! distribution lines by part: sp HASH (id); sl HASH (p); ss HASH (zone); sx HASH (v); sn HASH (id); sf ROUND ROBIN
--! distribution other keys: sp HASH (brand); sl ROUND ROBIN; ss HASH (id); sx HASH (b); sn REPLICATED; sf HASH (n)
--! distribution whole supply: sp HASH (id); sl HASH (s); ss REPLICATED; sx HASH (t); sn HASH (zone); sf REPLICATED

CREATE TABLE sp (id int, brand varchar(8), kind char(4), size smallint, price numeric(8, 2), made date);
CREATE TABLE sl (o int, n int, p bigint, s smallint, q int, ship timestamp, word text);
CREATE TABLE ss (id int, name text, zone int, u uuid);
CREATE TABLE sx (v text, t varchar(8), b char(6), m numeric, f float8, u uuid, d date);
CREATE TABLE sn (id int, zone int, name text);
INSERT INTO sp SELECT k, 'b' || k % 7, 'k' || k % 3, k % 11, k * 1.5, date '2024-01-01' + k FROM generate_series(1, 60) k;
INSERT INTO sp VALUES (NULL, 'b1', 'k1', 3, 10, NULL), (61, NULL, NULL, NULL, NULL, NULL);
INSERT INTO sl SELECT k % 70, k, nullif(k * 13 % 64, 9), nullif(k % 12, 7), k % 10, timestamp '2024-01-01' + k * interval '5 hours', 'b' || k % 9 FROM generate_series(1, 300) k;
INSERT INTO ss SELECT k, 's' || k, k % 4, ('00000000-0000-0000-0000-0000000000' || lpad(k::text, 2, '0'))::uuid FROM generate_series(0, 14) k;
INSERT INTO sx SELECT 'b' || k % 9, 'b' || k % 5, 'k' || k % 4, k % 13 + CASE WHEN k % 2 = 0 THEN 0 ELSE 0.0 END, k % 6, ('00000000-0000-0000-0000-0000000000' || lpad((k % 20)::text, 2, '0'))::uuid, date '2024-01-01' + k % 40 FROM generate_series(1, 80) k;
INSERT INTO sx VALUES (NULL, NULL, NULL, NULL, NULL, NULL, NULL);
INSERT INTO sn SELECT k, k % 4, 'z' || k FROM generate_series(0, 9) k;

-- Texts that are equal although their bytes, and so their hashes, differ.
CREATE COLLATION folded (provider = icu, locale = 'und-u-ks-level2', deterministic = false);
CREATE TABLE sf (w text COLLATE folded, n int);
INSERT INTO sf VALUES ('B1', 1), ('b1', 2), ('B2', 3), (NULL, 4);
SELECT count(*) FROM sx JOIN sf ON v = w;
SELECT count(*) FROM sx JOIN sf ON v = w WHERE w = 'B1';
SELECT count(*) FROM sx JOIN sf ON t = w WHERE t = 'b2';
SELECT n, count(*) FROM sf LEFT JOIN sx ON v = w GROUP BY n ORDER BY n;
SELECT count(*) FROM sl JOIN sf ON word = w JOIN sp ON brand = w WHERE n = 1;
SELECT n FROM sf WHERE w IN (SELECT brand FROM sp WHERE id < 9) ORDER BY n;
SELECT count(*) FROM sp WHERE brand IN (SELECT w FROM sf);

-- Inner joins, by columns of several types.
SELECT count(*), sum(q) FROM sl, sp WHERE p = id AND brand = 'b3';
SELECT sl.n, sp.id FROM sl JOIN sp ON sp.id = sl.p WHERE sp.size = 3 AND q < 4 ORDER BY n;
SELECT sl.n, ss.name FROM sl JOIN ss ON ss.id = sl.s AND ss.zone = 2 ORDER BY n LIMIT 9;
SELECT sp.id, sx.d FROM sp JOIN sx ON sx.v = sp.brand WHERE sp.id < 5 ORDER BY 1, 2;
SELECT sp.id, sx.d FROM sp JOIN sx ON sx.t = sp.brand WHERE sp.id BETWEEN 3 AND 6 ORDER BY 1, 2;
SELECT sp.id, sx.d FROM sp JOIN sx ON sx.b = sp.kind WHERE sp.id = 4 ORDER BY 1, 2;
-- any order: 3 and 3.0 are equal
SELECT sp.id, sx.m FROM sp JOIN sx ON sx.m = sp.price WHERE sx.m > 2 ORDER BY 1, 2;
SELECT ss.id, sx.d FROM ss JOIN sx ON sx.u = ss.u WHERE ss.zone = 1 ORDER BY 1, 2;
SELECT sp.id, sx.f FROM sp JOIN sx ON sx.d = sp.made WHERE sp.brand = 'b2' ORDER BY 1, 2;
SELECT sp.id, sx.f FROM sp JOIN sx ON sx.f = sp.size WHERE sp.brand = 'b2' AND sx.v = 'b1' ORDER BY 1, 2;
SELECT sp.brand, count(*), sum(sl.q), avg(ss.zone) FROM sp, sl, ss WHERE sp.id = sl.p AND ss.id = sl.s AND sp.kind = 'k1' GROUP BY sp.brand ORDER BY 1;
SELECT sp.id, sl.n, ss.name, sn.name FROM sp, sl, ss, sn WHERE sp.id = sl.p AND ss.id = sl.s AND sn.zone = ss.zone AND sp.brand = 'b5' AND sn.id = 3 ORDER BY 2;
SELECT count(*) FROM sp, sl, sx WHERE sp.id = sl.p AND sx.v = sl.word AND sp.brand = 'b5' AND sx.f = 2;
SELECT count(*) FROM sp NATURAL JOIN ss;
SELECT count(*) FROM sl JOIN (SELECT id AS p, size FROM sp WHERE brand = 'b1') x USING (p) WHERE size > 1;
SELECT * FROM sp CROSS JOIN ss WHERE sp.id = ss.id AND ss.zone = 3 ORDER BY sp.id;
SELECT sp.id FROM sp JOIN sl ON (sp.id, sp.size) = (sl.p, sl.q) ORDER BY 1;

-- Outer joins: rows without a partner stay.
SELECT sp.id, count(sl.n) FROM sp LEFT JOIN sl ON sl.p = sp.id AND sl.q = 3 WHERE sp.brand = 'b4' GROUP BY sp.id ORDER BY 1;
SELECT sp.id, count(n), sum(q) FROM sp LEFT OUTER JOIN sl ON sp.id = p AND word NOT LIKE '%3' GROUP BY sp.id ORDER BY 1 NULLS FIRST;
SELECT c, count(*) FROM (SELECT sp.id, count(n) FROM sp LEFT JOIN sl ON sp.id = p AND word NOT LIKE '%3%' GROUP BY sp.id) AS x (id, c) GROUP BY c ORDER BY 1;
SELECT sl.n, sp.id FROM sl LEFT JOIN sp ON sp.id = sl.p AND sp.brand = 'b4' WHERE sl.n < 30 ORDER BY 1;
SELECT sl.n, sp.id FROM sl LEFT JOIN sp ON sp.id = sl.p WHERE sp.brand = 'b4' ORDER BY 1;
SELECT sl.n, sp.id FROM sl LEFT JOIN sp ON sp.id = sl.p WHERE sp.brand IS NULL ORDER BY 1;
SELECT sl.n, sp.id FROM sp RIGHT JOIN sl ON sp.id = sl.p AND sl.q = 1 ORDER BY 1 LIMIT 25;
SELECT count(*), count(sp.id), count(n) FROM sp FULL JOIN sl ON sp.id = sl.p;
SELECT count(*), count(sp.id), count(n) FROM sp FULL JOIN sl ON sp.id = sl.p WHERE sp.brand = 'b1' OR sl.q = 2;
SELECT count(*) FROM sp LEFT JOIN sl ON sl.p = sp.id LEFT JOIN ss ON ss.id = sl.s AND ss.zone = 1;
SELECT count(ss.id) FROM sp LEFT JOIN (sl JOIN ss ON ss.id = sl.s) ON sl.p = sp.id WHERE sp.size = 4;
SELECT sp.id, x.n FROM sp LEFT JOIN (SELECT p, max(n) AS n FROM sl GROUP BY p) x ON x.p = sp.id WHERE brand = 'b6' ORDER BY 1;
SELECT sp.id, x.n FROM sp LEFT JOIN (SELECT p, max(n) AS n FROM sl GROUP BY ROLLUP (p)) x ON x.p = sp.id WHERE brand = 'b6' ORDER BY 1;
SELECT sp.id, x.c FROM sp LEFT JOIN (SELECT s.id AS p, count(*) AS c FROM sl LEFT JOIN sp s ON s.id = sl.p GROUP BY s.id) x ON x.p = sp.id ORDER BY 1;

-- IN, EXISTS and their contraries.
SELECT name FROM ss WHERE id IN (SELECT s FROM sl WHERE p IN (SELECT id FROM sp WHERE brand LIKE 'b2%') AND q > (SELECT 0.5 * sum(q) FROM sl l WHERE l.p = sl.p AND l.s = sl.s)) ORDER BY name;
SELECT name FROM ss WHERE id IN (SELECT s FROM sl WHERE p IN (SELECT id FROM sp WHERE brand = 'b2')) ORDER BY name;
SELECT name FROM ss WHERE id NOT IN (SELECT s FROM sl WHERE s IS NOT NULL AND p IN (SELECT id FROM sp WHERE brand = 'b2')) ORDER BY name;
SELECT name FROM ss WHERE id NOT IN (SELECT s FROM sl WHERE p = 3) ORDER BY name;
SELECT id FROM sp WHERE NOT EXISTS (SELECT FROM sl WHERE sl.p = sp.id AND q = 3) ORDER BY id;
SELECT id FROM sp WHERE EXISTS (SELECT FROM sl WHERE sl.p = sp.id AND q = 3 AND EXISTS (SELECT FROM ss WHERE ss.id = sl.s AND zone = 1)) ORDER BY id;
SELECT id FROM sp WHERE id = ANY (SELECT p FROM sl WHERE s = 3) OR size = 2 ORDER BY id;
SELECT id FROM sp WHERE brand = ANY (SELECT v FROM sx WHERE f = 2) ORDER BY id;
SELECT id FROM sp WHERE id <> ALL (SELECT p FROM sl WHERE p IS NOT NULL AND s = 3) ORDER BY id;
SELECT id FROM sp WHERE (id, size) IN (SELECT p, q FROM sl) ORDER BY id;
SELECT id, id IN (SELECT p FROM sl WHERE s = 3) FROM sp WHERE brand = 'b2' ORDER BY id;
SELECT count(*) FROM sl WHERE (SELECT brand FROM sp WHERE id = p AND brand = 'b3') IS NULL;

-- Subqueries for each row.
SELECT sum(q) / 7.0 FROM sl, sp WHERE id = p AND brand = 'b3' AND kind = 'k0' AND q < (SELECT 1.2 * avg(q) FROM sl WHERE p = id);
SELECT id, (SELECT max(q) FROM sl WHERE p = id) FROM sp WHERE brand = 'b3' ORDER BY id;
SELECT id, (SELECT count(*) FROM sl JOIN ss ON ss.id = s WHERE p = sp.id AND zone = sp.size % 4) FROM sp WHERE kind = 'k2' ORDER BY id;
SELECT sp.id, x.n FROM sp, LATERAL (SELECT n FROM sl WHERE p = sp.id ORDER BY n DESC LIMIT 2) x WHERE brand = 'b0' ORDER BY 1, 2;
SELECT sp.id, x.n FROM sp LEFT JOIN LATERAL (SELECT n FROM sl WHERE p = sp.id AND s = 4 ORDER BY n LIMIT 1) x ON true WHERE brand = 'b0' ORDER BY 1, 2;
SELECT id FROM sp WHERE price > (SELECT avg(s.price) FROM sp s WHERE s.brand = sp.brand) ORDER BY id;
SELECT id FROM sp WHERE id > (SELECT min(p) FROM sl WHERE sl.s = sp.size) ORDER BY id;
SELECT (SELECT string_agg(n::text, ',' ORDER BY n) FROM sl WHERE p = sp.id) FROM sp WHERE size = 5 ORDER BY sp.id;

-- A table in several places: what one of them leaves out another may need.
SELECT count(*) FROM sl a, sl b, sp WHERE a.p = sp.id AND b.p = sp.id AND sp.brand = 'b1' AND a.n < b.n;
SELECT count(*) FROM sl a, sl b WHERE a.p = b.p AND a.q = 1 AND b.q = 2;
SELECT a.n, b.n FROM sl a LEFT JOIN sl b ON b.n = a.n + 1 AND b.q = 3 WHERE a.q = 2 ORDER BY 1;
SELECT count(*), count(b.id) FROM sp a LEFT JOIN sp b ON a.size = b.size AND b.brand = 'b1' WHERE a.kind = 'k1';
SELECT count(*) FROM sp a WHERE a.brand = 'b1' AND EXISTS (SELECT FROM sl JOIN sp b ON b.id = sl.p WHERE b.size = a.size AND b.brand = 'b2');
SELECT brand, count(*) FROM sp WHERE id IN (SELECT p FROM sl WHERE q = 1) AND id IN (SELECT p FROM sl WHERE q = 5) GROUP BY brand ORDER BY 1;
WITH few AS (SELECT * FROM sp WHERE brand = 'b1') SELECT (SELECT count(*) FROM few), (SELECT count(*) FROM sl JOIN few ON few.id = p), (SELECT sum(price) FROM few WHERE size > 3);
WITH few AS (SELECT * FROM sp WHERE brand = 'b1') SELECT count(*) FROM sl JOIN few ON few.id = p;
WITH lines AS (SELECT * FROM sl) SELECT (SELECT count(*) FROM lines), (SELECT count(*) FROM lines JOIN sp ON id = p AND brand = 'b1');
WITH RECURSIVE r AS (SELECT id, 1 AS depth FROM sp WHERE id = 1 UNION ALL SELECT sl.o, depth + 1 FROM r JOIN sl ON sl.p = r.id WHERE depth < 3) SELECT count(*), max(id) FROM r;
SELECT id, n FROM (SELECT p, n FROM sl WHERE q = 1 UNION ALL SELECT o, n FROM sl WHERE q = 2) x JOIN sp ON sp.id = x.p WHERE brand = 'b3' ORDER BY 1, 2;
SELECT id, n FROM (SELECT p, n FROM sl WHERE q = 1 UNION SELECT id, zone FROM ss) x JOIN sp ON sp.id = x.p WHERE brand = 'b3' ORDER BY 1, 2;
SELECT id FROM sp WHERE brand = 'b3' INTERSECT SELECT p FROM sl ORDER BY 1;
SELECT id FROM sp WHERE brand = 'b3' EXCEPT SELECT p FROM sl WHERE q < 5 ORDER BY 1;

-- OR of what several tables must be.
SELECT sum(q) FROM sl, sp WHERE (id = p AND brand = 'b1' AND q BETWEEN 1 AND 4) OR (id = p AND brand = 'b2' AND kind IN ('k1', 'k2') AND q > 6) OR (id = p AND brand = 'b3' AND size < 4);
SELECT count(*) FROM sl JOIN sp ON id = p WHERE (brand = 'b1' AND q = 2) OR (brand = 'b4' AND size = 4);
SELECT count(*) FROM sl JOIN sp ON id = p WHERE (brand = 'b1' AND q = 2) OR size = 4;
SELECT count(*) FROM sl JOIN sp ON id = p WHERE (brand = 'b1' AND q = 2) OR q = 4;
SELECT count(*) FROM sp LEFT JOIN sl ON id = p WHERE (brand = 'b1' AND q = 2) OR (brand = 'b2' AND q IS NULL);
SELECT count(*) FROM sp LEFT JOIN sl ON id = p AND ((brand = 'b1' AND q = 2) OR (brand = 'b2' AND q = 3));
SELECT count(*) FROM sl JOIN sp ON id = p WHERE (size <> 0 AND q = 1 AND 10 / size > 1) OR (size = 0 AND q = 2);
SELECT count(*) FROM sl a JOIN sl b ON a.o = b.o WHERE (a.q = 1 AND b.q = 2) OR (a.q = 3 AND b.q = 4);
SELECT count(*) FROM sl JOIN sp ON id = p WHERE NOT (brand = 'b1' OR q = 2);

-- What PostgreSQL never comes to fails nobody.
SELECT id, CASE WHEN id > 1000 THEN (SELECT max(n) FROM sl WHERE 1 / (q - 5) > 0) ELSE 0 END FROM sp WHERE brand = 'b1' ORDER BY id;
SELECT id, coalesce(size, (SELECT max(n)::smallint FROM sl WHERE word::int > 3)) FROM sp WHERE brand = 'b1' ORDER BY id;
SELECT id, CASE WHEN id > 1000 THEN EXISTS (SELECT FROM sl WHERE word::int > 3) END FROM sp WHERE brand = 'b1' ORDER BY id;
SELECT id, CASE WHEN id > 1000 THEN id IN (SELECT n FROM sl WHERE word::int > 3) END FROM sp WHERE brand = 'b1' ORDER BY id;
SELECT count(*) FROM sp WHERE id > 1000 AND price > (SELECT max(m) FROM sx WHERE v::int > 3);

-- Values of the client's.
-- bind: b3 | 5
-- bind: b9 | 5
SELECT count(*) FROM sl JOIN sp ON id = p WHERE brand = $1 AND q < $2;
-- bind: 3 | 4
-- bind: 3 | NULL
SELECT id, (SELECT count(*) FROM sl WHERE p = id AND q = $1) FROM sp WHERE size = $2 ORDER BY id;
PREPARE by_brand (text, int) AS SELECT sum(q) FROM sl JOIN sp ON id = p JOIN ss ON ss.id = s WHERE brand = $1 AND zone = $2;
EXECUTE by_brand ('b1', 1);
EXECUTE by_brand ('b9', 1);
DEALLOCATE by_brand;

-- Nothing to reduce by, and nothing left.
SELECT count(*) FROM sl JOIN sp ON id = p WHERE brand = 'none';
SELECT count(*), sum(q) FROM sl JOIN ss ON ss.id = s JOIN sp ON sp.id = p WHERE false;
SELECT sp.id, count(n) FROM sp LEFT JOIN sl ON p = sp.id AND s = 99 GROUP BY sp.id ORDER BY 1 LIMIT 3;

-- In a transaction, behind its own changes.
BEGIN ISOLATION LEVEL REPEATABLE READ;
INSERT INTO sp VALUES (62, 'new', 'k1', 1, 1, NULL);
UPDATE sl SET p = 62 WHERE n = 5;
SELECT count(*), sum(q) FROM sl JOIN sp ON id = p WHERE brand = 'new';
SELECT count(*) FROM sl WHERE p IN (SELECT id FROM sp WHERE brand = 'new');
DECLARE c CURSOR FOR SELECT n, id FROM sl JOIN sp ON id = p WHERE brand = 'new' OR size = 3 ORDER BY n;
FETCH 3 FROM c;
CLOSE c;
COMMIT;
BEGIN;
SELECT count(*), sum(q) FROM sl JOIN sp ON id = p WHERE brand = 'new';
UPDATE sp SET brand = 'newer' WHERE size = 1;
SELECT count(*), sum(q) FROM sl JOIN sp ON id = p WHERE brand = 'newer';
ROLLBACK;

-- Into other tables.
CREATE TABLE sr (id int, n int, name text);
INSERT INTO sr SELECT sp.id, sl.n, ss.name FROM sp, sl, ss WHERE sp.id = sl.p AND ss.id = sl.s AND sp.brand = 'b3';
SELECT * FROM sr ORDER BY n;
UPDATE sl SET word = brand FROM sp WHERE p = id AND kind = 'k1' AND size = 2;
DELETE FROM sl USING sp WHERE p = id AND brand = 'b6' AND size = 1;
SELECT count(*), min(word), max(word) FROM sl;
