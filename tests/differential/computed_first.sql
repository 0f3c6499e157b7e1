-- Subqueries that stand for one value and depend on nothing around them: computed first, and the rest with their values.
--! distribution apart: ca HASH (id); cb HASH (k); cr REPLICATED
--! distribution mixed: ca HASH (id); cb ROUND ROBIN; cr HASH (k)
--! distribution by_group: ca HASH (g); cb HASH (k); cr REPLICATED

CREATE TABLE ca (id int NOT NULL, g int, n numeric(12, 4), f float8, z timestamptz, d date, i interval, o bool, t text, u uuid, b bigint);
CREATE TABLE cb (k int, v int, w text COLLATE "C", z timestamp);
CREATE TABLE cr (k int, name text);
INSERT INTO ca SELECT g, g % 9, g * 1.2500, g / 8.0, timestamptz '2026-03-29 00:30:00+00' + g * interval '17 minutes', date '2026-02-27' + g % 5,
    g % 4 * interval '1 month -3 days 02:00', g % 3 = 0, 't' || g % 7, ('00000000-0000-0000-0000-0000000000' || lpad((g % 50)::text, 2, '0'))::uuid, g * 10000000000 FROM generate_series(1, 300) g;
INSERT INTO cb SELECT g, nullif(g % 11, 7), 'w' || g % 5, timestamp '2026-01-01 00:00' + g * interval '1 day' FROM generate_series(1, 120) g;
INSERT INTO cr SELECT g, 'n' || g FROM generate_series(1, 9) g;

SELECT count(*), sum(n) FROM ca WHERE n > (SELECT avg(n) FROM ca);
SELECT count(*) FROM ca WHERE f >= (SELECT max(f) FROM ca WHERE g = 3);
SELECT count(*) FROM ca WHERE z > (SELECT max(z) - interval '5 hours' FROM ca);
SELECT count(*) FROM ca WHERE d = (SELECT min(d) FROM ca);
SELECT count(*) FROM ca WHERE i > (SELECT min(i) FROM ca);
SELECT count(*) FROM ca WHERE o = (SELECT bool_and(o) FROM ca);
SELECT count(*) FROM ca WHERE t > (SELECT min(w) FROM cb);
SELECT count(*) FROM ca WHERE t > (SELECT min(t) FROM ca WHERE g = 2);
SELECT * FROM ca WHERE id = (SELECT max(id) FROM ca);
SELECT * FROM ca WHERE b = (SELECT max(b) FROM ca) - 10000000000;
SELECT id FROM ca WHERE u = (SELECT u FROM ca WHERE id = 7) ORDER BY id;
SELECT id FROM ca WHERE id = (SELECT id FROM ca);
SELECT id FROM ca WHERE id = (SELECT id FROM ca WHERE id < 0);
SELECT id FROM ca WHERE id IS NOT DISTINCT FROM (SELECT id FROM ca WHERE id < 0);
SELECT id FROM ca WHERE id > (SELECT id FROM ca ORDER BY id DESC OFFSET 3 LIMIT 1) ORDER BY id;
SELECT id FROM ca WHERE id > (SELECT ca.id FROM ca ORDER BY n DESC, id LIMIT 1) - 3 ORDER BY id;
SELECT id FROM ca WHERE id > (SELECT -id AS n FROM ca ORDER BY n LIMIT 1) + 598 ORDER BY id;
SELECT g, sum(n) FROM ca GROUP BY g HAVING sum(n) > (SELECT sum(n) * 0.111 FROM ca) ORDER BY 2 DESC;
SELECT g, count(*) FROM ca JOIN cb ON cb.k = ca.id AND cb.v < (SELECT avg(v) FROM cb) GROUP BY g ORDER BY g;
SELECT g, count(*) FROM ca LEFT JOIN cb ON cb.k = ca.id AND cb.v < (SELECT avg(v) FROM cb) WHERE n < (SELECT avg(n) FROM ca) GROUP BY g ORDER BY g;
SELECT count(*) FROM ca WHERE n BETWEEN (SELECT avg(n) / 2 FROM ca) AND (SELECT avg(n) FROM ca);
SELECT count(*) FROM ca WHERE g IN ((SELECT min(v) FROM cb), (SELECT max(v) FROM cb), 3);
SELECT count(*) FROM ca WHERE NOT (n > (SELECT avg(n) FROM ca) OR id < (SELECT max(k) FROM cb));
SELECT count(*) FROM ca WHERE (id, g) = ((SELECT max(id) FROM ca), (SELECT max(id) % 9 FROM ca));
SELECT count(*) FROM ca WHERE (id, g) = (SELECT max(id), 3 FROM ca);
SELECT count(*) FROM ca WHERE id % 10 = ANY ((SELECT array_agg(DISTINCT v) FROM cb)::int[]);
SELECT count(*) FROM ca WHERE n > (SELECT avg(n) FROM ca WHERE id < (SELECT avg(k) FROM cb));
SELECT count(*) FROM ca WHERE id IN (SELECT k FROM cb WHERE v > (SELECT avg(v) FROM cb));
SELECT count(*) FROM ca WHERE EXISTS (SELECT FROM cb WHERE cb.k = ca.id AND cb.v = (SELECT max(v) FROM cb));
SELECT count(*) FROM ca WHERE n > (SELECT avg(n) FROM ca AS inside WHERE inside.g = ca.g);
SELECT count(*) FROM ca WHERE g > (SELECT avg(v) FROM cb WHERE v < g);
SELECT count(*) FROM ca WHERE n > (SELECT avg(k) FROM cr WHERE k < (SELECT max(v) FROM cb));
SELECT count(*) FROM ca WHERE CASE WHEN id > 0 THEN true ELSE n > (SELECT 1 / 0 FROM ca LIMIT 1) END;
SELECT count(*) FROM ca WHERE n > (SELECT 1 / (max(id) - 300) FROM ca);
SELECT count(*) FROM ca WHERE n > (SELECT max(n) FROM nothing);
SELECT count(*) FROM ca WHERE n > (SELECT max(nothing) FROM cb);
SELECT count(*) FROM ca WHERE n > (SELECT max(w) FROM cb);
SELECT (SELECT max(n) FROM ca), count(*) FROM cb WHERE v > (SELECT min(g) FROM ca);
WITH big AS (SELECT * FROM ca WHERE n > (SELECT avg(n) FROM ca)) SELECT count(*), (SELECT count(*) FROM big) FROM big WHERE f > (SELECT avg(f) FROM big);
SELECT count(*) FROM (SELECT g, max(n) AS m FROM ca WHERE id > (SELECT avg(id) FROM ca) GROUP BY g) q WHERE m > (SELECT min(n) FROM ca);
SELECT k FROM cb WHERE v = (SELECT max(v) FROM cb) UNION SELECT id FROM ca WHERE id = (SELECT min(id) FROM ca) ORDER BY 1;
-- bind: 5 | 20
-- bind: NULL | 20
SELECT count(*), $1 + 1 FROM ca WHERE n > (SELECT avg(n) FROM ca WHERE g = $1) AND id > $2;
BEGIN;
SELECT count(*) FROM ca WHERE n > (SELECT avg(n) FROM ca);
COMMIT;
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT count(*) FROM ca WHERE n > (SELECT avg(n) FROM ca);
INSERT INTO ca (id, g, n) VALUES (1000, 1, 100000);
SELECT count(*), max(id) FROM ca WHERE n > (SELECT avg(n) FROM ca);
SELECT id FROM ca WHERE n = (SELECT max(n) FROM ca);
ROLLBACK;
SET TimeZone = 'America/New_York';
SET DateStyle = 'German';
SET IntervalStyle = 'iso_8601';
SET extra_float_digits = 0;
SELECT count(*) FROM ca WHERE z > (SELECT max(z) - interval '5 hours' FROM ca);
SELECT max(z), max(d), max(i) FROM ca WHERE z <= (SELECT min(z) + interval '90 minutes' FROM ca) AND d >= (SELECT min(d) FROM ca) AND i <= (SELECT max(i) FROM ca);
SELECT count(*) FROM ca WHERE f >= (SELECT max(f) FROM ca WHERE g = 3);
CREATE VIEW cv AS SELECT id, n FROM ca WHERE n > (SELECT avg(n) FROM ca);
SELECT count(*), max(id) FROM cv WHERE id < (SELECT max(id) FROM cv);
DROP VIEW cv;
DROP TABLE ca, cb, cr;
