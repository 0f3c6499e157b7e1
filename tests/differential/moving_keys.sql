--! distribution none:
--! distribution spread: moving HASH (k); places HASH (k); names REPLICATED
--! distribution apart: moving HASH (k); places HASH (note); names REPLICATED
--! distribution several: moving HASH (k, v); places HASH (k, note); names REPLICATED
--! distribution ranges: moving RANGE (k) SPLIT AT VALUES (11, 100, 500); places RANGE (k) SPLIT AT VALUES (11, 100, 500); names REPLICATED
--! changes data
-- UPDATEs that change distribution keys, and return rows, or compare with others.

CREATE TABLE moving (k int, v int, note text, twice int GENERATED ALWAYS AS (v * 2) STORED, PRIMARY KEY (k, v));
CREATE TABLE places (k int, note text, PRIMARY KEY (k, note));
CREATE TABLE names (id int PRIMARY KEY, name text);
INSERT INTO moving SELECT n, n, 'n' || n % 5 FROM generate_series(1, 40) n;
INSERT INTO places SELECT n, 'p' || n FROM generate_series(1, 20) n;
INSERT INTO places SELECT n, 'q' || n FROM generate_series(1, 5) n;
INSERT INTO names SELECT n, 'name ' || n FROM generate_series(0, 4) n;

-- any order: rows of several nodes
UPDATE moving SET k = k + 100 WHERE k <= 5 RETURNING *;
-- any order: rows of several nodes
UPDATE moving AS m SET k = m.k + 100, v = m.v + 1 WHERE m.k BETWEEN 6 AND 9 RETURNING m.k, m.*, v + twice AS sum, m, upper(note);
UPDATE moving SET k = 200 WHERE k = 10 RETURNING k, moving.v, public.moving.note, moving;
UPDATE public.moving SET k = public.moving.k + 300, v = moving.v WHERE public.moving.k = 200 RETURNING public.moving.k, v;
UPDATE public.moving SET k = public.moving.k - 300 WHERE public.moving.k = 500 RETURNING *;
UPDATE moving SET k = 300 WHERE k = -1 RETURNING k, note;
UPDATE moving SET k = 11 WHERE k = 11 RETURNING k, note;
UPDATE moving SET (k, note) = (k + 500, 'both') WHERE k IN (12, 13) RETURNING (k), note IS NULL, CASE WHEN k > 3 THEN 'far' END;
-- types: int4 | int4
-- any order: rows of several nodes
-- bind: 7 | 105
-- bind: 1 | 900
UPDATE moving SET k = k + $1 WHERE k >= $2 RETURNING k - $1 AS before, $2::int, note;
-- types: int4
-- bind: 14
UPDATE moving SET k = k + 1000 WHERE k = $1 RETURNING *;
SELECT count(*), sum(k), sum(v), sum(twice), string_agg(note, ',' ORDER BY k, v, note) FROM moving;

-- FROM tables that every node has, and by the key.
-- any order: rows of several nodes
UPDATE moving SET k = id + 2000, note = name FROM names WHERE v % 5 = id AND k BETWEEN 15 AND 25 RETURNING k, v, moving.note;
UPDATE moving m SET k = m.k + 3000, note = l.x FROM (VALUES (26, 'a'), (27, 'b'), (99, 'c')) l (of, x) WHERE m.k = l.of;
WITH most AS (SELECT max(id) AS id FROM names) UPDATE moving SET k = k + most.id FROM most WHERE k = 28;
UPDATE moving SET k = k + 4000 WHERE v IN (SELECT id + 30 FROM names);
-- Several rows of FROM for one row: one of them counts, here they are alike.
UPDATE moving SET k = k + 1 + names.id * 0 FROM names WHERE k > 3000 AND names.id < 3;
-- refused in apart, several: its table is spread otherwise
UPDATE moving m SET k = m.k + 5000 FROM places p WHERE p.k = m.k AND p.note LIKE 'p%';
SELECT count(*), sum(v), sum(twice), string_agg(note, ',' ORDER BY v, note) FROM moving;

-- Errors.
UPDATE moving SET k = k + 1 RETURNING nothing;
UPDATE moving SET k = k + 1 RETURNING names.id;
UPDATE moving SET k = k / 0 RETURNING k;
-- refused in spread, apart, several, ranges: FROM's columns are not where the row is then
UPDATE moving SET k = 6000 FROM names WHERE k > 7000 AND id = v RETURNING name;
-- refused in spread, apart, several, ranges: neither is a subquery's row
UPDATE moving SET k = 6000 WHERE k > 7000 RETURNING (SELECT max(id) FROM names);
BEGIN READ ONLY;
UPDATE moving SET k = k / 0;
ROLLBACK;
BEGIN READ ONLY;
INSERT INTO moving SELECT k / 0, v FROM moving;
ROLLBACK;
BEGIN;
SAVEPOINT s;
-- any order: rows of several nodes
UPDATE moving SET k = -k WHERE k > 100 RETURNING k;
SELECT count(*) FROM moving WHERE k < 0;
ROLLBACK TO s;
SELECT count(*) FROM moving WHERE k < 0;
WITH gone AS (UPDATE moving SET k = k + 1 WHERE k = 29 RETURNING k, note) SELECT * FROM gone;
COMMIT;
SELECT count(*), sum(v), sum(twice) FROM moving;
