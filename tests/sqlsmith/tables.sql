-- What sqlsmith's statements are about; placements.sql spreads all but home1.
CREATE TABLE h (id int PRIMARY KEY, g int, t text, n numeric, d timestamp, j jsonb);
CREATE TABLE h2 (id int, hid int, v float8, b bool, a int[], PRIMARY KEY (hid, id));
CREATE TABLE r (id int PRIMARY KEY, name text);
CREATE TABLE rr (x int, y text, z date);
CREATE TABLE home1 (id int, w text);
CREATE TABLE s2 (a int, b int, c text, PRIMARY KEY (a, b));
CREATE TABLE gk (e text, v int, k text GENERATED ALWAYS AS (lower(e)) STORED);
CREATE TABLE span (at date, n int8, note varchar(20));
INSERT INTO h SELECT i, i % 7, 't' || i, i * 1.5, timestamp '2026-01-01' + i * interval '1 day', jsonb_build_object('a', i)
    FROM generate_series(1, 60) i;
INSERT INTO h2 SELECT i % 3, i / 3, i / 7.0, i % 2 = 0, array[i, i + 1] FROM generate_series(1, 90) i;
INSERT INTO r SELECT i, 'r' || i FROM generate_series(1, 20) i;
INSERT INTO rr SELECT i, 'y' || i, date '2026-01-01' + i FROM generate_series(1, 50) i;
INSERT INTO home1 SELECT i, 'w' || i FROM generate_series(1, 10) i;
INSERT INTO s2 SELECT i % 5, i, 'c' || i FROM generate_series(1, 40) i;
INSERT INTO gk SELECT 'E' || i, i FROM generate_series(1, 30) i;
INSERT INTO span SELECT date '2026-01-01' + i, i * 3, nullif('n' || i % 9, 'n4') FROM generate_series(1, 100) i;
ANALYZE;
