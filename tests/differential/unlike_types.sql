-- Columns that are merged or put together of several types: they are compared, and computed with, in a type that may be
-- none of theirs, so nothing that is concluded of them holds of the tables' own columns.
--! changes data
--! distribution by key: ui HASH (id); un HASH (k); uc HASH (id); ut HASH (s); w1 HASH (k); w2 HASH (id); w3 HASH (k3); wr REPLICATED; q1 HASH (k); q2 HASH (id); q3 HASH (id); q4 HASH (id)
--! distribution other: ui HASH (k); un HASH (id); uc HASH (s); ut HASH (id); w1 HASH (id); w2 HASH (k); w3 ROUND ROBIN; wr HASH (id); q1 HASH (id); q2 HASH (k); q3 REPLICATED; q4 HASH (k)

CREATE TABLE ui (id int, k int);
CREATE TABLE un (id int, k numeric);
CREATE TABLE uc (id int, s char(8));
CREATE TABLE ut (id int, s text);
INSERT INTO ui SELECT g, g FROM generate_series(1, 60) g;
INSERT INTO un SELECT g, g + 40 FROM generate_series(1, 60) g;
INSERT INTO uc SELECT g, 'q' || g FROM generate_series(1, 10) g;
INSERT INTO ut SELECT g, 'q' || g || repeat(' ', g % 3) FROM generate_series(1, 60) g;

-- USING and NATURAL.
SELECT k FROM ui JOIN un USING (k) WHERE k / 2 = 22.5;
SELECT count(*) FROM ui JOIN un USING (k) WHERE k / 2 < 30;
SELECT k FROM ui NATURAL JOIN (SELECT k FROM un) un WHERE k / 4 * 4 = 45;
SELECT count(*) FROM ui LEFT JOIN un USING (k) WHERE k / 2 < 3;
SELECT count(*) FROM un RIGHT JOIN ui USING (k) WHERE k / 2 < 3;
SELECT count(*) FROM ui JOIN un USING (k) WHERE k * 1000000000 > 50000000000;
SELECT k / 2, count(*) FROM ui JOIN un USING (k) GROUP BY k / 2 ORDER BY 1;
SELECT k / 2 FROM ui JOIN un USING (k) ORDER BY k / 2 DESC LIMIT 3;
SELECT count(*) FROM uc RIGHT JOIN ut USING (s) WHERE s = 'q20';
SELECT s FROM uc NATURAL RIGHT JOIN (SELECT s FROM ut) ut WHERE s IN ('q20', 'q30');
SELECT count(*) FROM ut LEFT JOIN uc USING (s) WHERE s = 'q20';
SELECT count(*) FROM uc FULL JOIN ut USING (s) WHERE s = 'q20';
CREATE TABLE w1 (id int, k int8);
CREATE TABLE w2 (id int, k float8);
CREATE TABLE w3 (id int, k3 int8);
CREATE TABLE wr (id int, k float8);
INSERT INTO w1 SELECT g, 9007199254740990 + g FROM generate_series(1, 30) g;
INSERT INTO w2 SELECT g, 9007199254740990 + g FROM generate_series(1, 30) g;
INSERT INTO w3 SELECT g, 9007199254740990 + g FROM generate_series(1, 90) g;
INSERT INTO wr SELECT g, 9007199254740990 + g FROM generate_series(1, 10) g;
SELECT count(*) FROM w1 JOIN w2 USING (k) JOIN w3 ON w3.k3 = k;
SELECT count(*) FROM w1 LEFT JOIN w2 USING (k) LEFT JOIN w3 ON w3.k3 = k;
SELECT count(*) FROM w3 WHERE k3 IN (SELECT k FROM w1 JOIN w2 USING (k));
SELECT k, count(*) FROM w1 LEFT JOIN wr USING (k) GROUP BY k ORDER BY 1, 2;
SELECT count(*) FROM (SELECT DISTINCT k FROM w1 JOIN wr USING (k)) x;
SELECT w1.id FROM w1 JOIN wr USING (k) WHERE k = 9007199254740995 ORDER BY 1;

-- UNION, INTERSECT and EXCEPT.
SELECT count(*) FROM ui WHERE k IN (SELECT k FROM ui UNION ALL SELECT k FROM un);
SELECT count(*) FROM ui WHERE k IN (SELECT k FROM ui WHERE k < 9 UNION SELECT k FROM un);
SELECT count(*) FROM ui WHERE k IN (SELECT id FROM ui INTERSECT SELECT k - 10 FROM un);
SELECT count(*) FROM ui WHERE k IN (SELECT id FROM ui EXCEPT SELECT k FROM un);
SELECT count(*) FROM ui LEFT JOIN (SELECT id AS z FROM uc UNION ALL SELECT k FROM un) u ON u.z = ui.k;
SELECT count(*) FROM (SELECT id AS z FROM uc UNION ALL SELECT k FROM un) u LEFT JOIN ui ON u.z = ui.k;
WITH u AS (SELECT id AS z FROM uc UNION ALL SELECT k FROM un) SELECT count(*) FROM ui, u WHERE u.z = ui.k;
SELECT u.id FROM (SELECT id, s FROM uc UNION ALL SELECT id, s FROM ut) u WHERE s = 'q2' ORDER BY 1;
SELECT u.id FROM (SELECT id, s FROM uc UNION ALL SELECT id, s FROM ut) u WHERE s = 'q2  ' ORDER BY 1;
SELECT * FROM (SELECT k FROM w1 UNION ALL SELECT k FROM wr) q WHERE k = 9007199254740995 ORDER BY 1;

-- Some tables to every node, and another by its rows' keys.
CREATE TABLE q1 (id int, k int, x int, y int);
CREATE TABLE q2 (id int, k int);
CREATE TABLE q3 (id int, k int);
CREATE TABLE q4 (id int, k int);
INSERT INTO q1 SELECT g, g, g, g FROM generate_series(1, 90) g;
INSERT INTO q2 SELECT g, g FROM generate_series(1, 20) g;
INSERT INTO q3 SELECT g, g FROM generate_series(1, 20) g;
INSERT INTO q4 SELECT g, g FROM generate_series(1, 20) g;
SELECT count(*) FROM q1 JOIN q2 ON q2.k = q1.x JOIN q3 ON q3.k = q1.y JOIN q4 ON q4.k = q1.k;
SELECT count(*) FROM q1 JOIN q4 ON q4.k = q1.k JOIN q2 ON q2.k = q1.x JOIN q3 ON q3.k = q1.y;
SELECT count(*) FROM q2 JOIN q1 ON q2.k = q1.x LEFT JOIN q3 ON q3.k = q1.y LEFT JOIN q4 ON q4.k = q1.k;
SELECT q1.id FROM q1, q2, q3, q4 WHERE q2.k = q1.x AND q3.k = q1.y AND q4.k = q1.k ORDER BY 1 LIMIT 3;

-- What is computed for rows around it fails where there are some.
SELECT count(*) FROM q2, LATERAL (SELECT * FROM q1 WHERE q1.k = q2.k AND 1 / (q1.id - 10) = 0 LIMIT 1) x WHERE q2.id < 0;
