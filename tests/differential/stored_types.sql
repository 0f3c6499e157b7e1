--! distribution none:
--! distribution spread: k HASH (id); rk REPLICATED; rr ROUND ROBIN; src HASH (id)
--! distribution mixed: k HASH (id); rk HASH (id); rr REPLICATED; src REPLICATED
--! changes data
-- Values that are too long for a domain, or for a part of a type, are refused wherever they come from, and not cut.

CREATE DOMAIN d3 AS varchar(3);
CREATE DOMAIN c3 AS char(3);
CREATE DOMAIN b3 AS bit(3);
CREATE DOMAIN vb2 AS varbit(2);
CREATE DOMAIN dd AS d3 CHECK (VALUE <> 'no');
CREATE DOMAIN da AS varchar(3)[];
CREATE DOMAIN n2 AS numeric(6, 2);
CREATE DOMAIN small AS int CHECK (VALUE < 100);
CREATE TYPE pair AS (x int, y varchar(3));
CREATE DOMAIN dpair AS pair;
CREATE TABLE k (id int PRIMARY KEY, d d3, c c3, b b3, vb vb2, dd dd, da da, ad d3[], p pair, dp dpair, n n2, s small, v varchar(3));
CREATE TABLE rk (id int PRIMARY KEY, d d3, p pair);
CREATE TABLE rr (id int, d d3, b b3);
CREATE TABLE src (id int PRIMARY KEY, short text, long text, bits varbit, f float8);
INSERT INTO src SELECT i, 'ok', 'toolong', B'101', i + 0.6 FROM generate_series(1, 9) i;
INSERT INTO k (id, d) SELECT i, 'abc' FROM generate_series(1, 12) i;

INSERT INTO k (id, d) SELECT id + 1000, long FROM src;
INSERT INTO k (id, c) SELECT id + 1000, long FROM src;
INSERT INTO k (id, b) SELECT id + 1000, bits || B'1' FROM src;
INSERT INTO k (id, b) SELECT id + 1000, B'1' FROM src;
INSERT INTO k (id, vb) SELECT id + 1000, bits FROM src;
INSERT INTO k (id, dd) SELECT id + 1000, long FROM src;
INSERT INTO k (id, da) SELECT id + 1000, ARRAY[short, long] FROM src;
INSERT INTO k (id, ad) SELECT id + 1000, ARRAY[long] FROM src;
INSERT INTO k (id, p) SELECT id + 1000, ROW(id, long) FROM src;
INSERT INTO k (id, dp) SELECT id + 1000, ROW(id, long) FROM src;
INSERT INTO k (id, v) SELECT id + 1000, long FROM src;
INSERT INTO rk (id, d) SELECT id, long FROM src;
INSERT INTO rk (id, p) SELECT id, ROW(id, long) FROM src;
INSERT INTO rr (id, d) SELECT id, long FROM src ORDER BY id LIMIT 3;
INSERT INTO rr (id, d) SELECT (SELECT max(id) FROM src), (SELECT max(long) FROM src);
WITH x AS (INSERT INTO k (id, d) VALUES (51, 'abc'), (52, 'abc'), (53, 'abc') RETURNING id) INSERT INTO rk (id, d) SELECT id + 500, 'toolong' FROM x;
-- What fits is stored as an assignment stores it.
INSERT INTO k (id, d, c, b, vb, dd, da, ad, p, dp, n, s, v) SELECT id + 100, short, short, bits::bit(3), bits::varbit(2), id, ARRAY[short], ARRAY[short, NULL], ROW(id, short), ROW(id, NULL), f, f, short FROM src;
INSERT INTO k (id, d, n) SELECT id + 200, id % 2 = 0, f * 3 FROM src WHERE id IN (1, 3);
SELECT * FROM k WHERE id > 100 ORDER BY id;
INSERT INTO rk (id, d, p) SELECT id, short || 'x', ROW(id, 'abc') FROM src;
INSERT INTO rr (id, d, b) SELECT id, f, bits FROM src WHERE id < 4;
SELECT * FROM rk ORDER BY id;
SELECT * FROM rr ORDER BY id;
UPDATE k SET id = id + 2000, d = 'toolong' WHERE id < 13;
UPDATE k SET id = id + 2000, b = B'10101' WHERE id < 13;
UPDATE k SET id = id + 2000, b = B'1' WHERE id < 13;
UPDATE k SET id = id + 2000, p = ROW(1, 'toolong') WHERE id < 13;
UPDATE k SET id = id + 2000, dp = ROW(1, 'toolong') WHERE id < 13;
UPDATE k SET id = id + 2000, ad = ARRAY['toolong'] WHERE id < 13;
UPDATE k SET id = id + 2000, d = 12345 WHERE id < 13;
UPDATE k SET id = id + 2000, dd = 'no' WHERE id < 13;
UPDATE k SET id = id + 2000, d = 'new', c = 'c', p = ROW(id, 'abc'), dp = (7, 'x'), n = 7.777, s = 9.6, ad = ARRAY['a', 'b'] WHERE id < 13;
SELECT * FROM k ORDER BY id;
SELECT count(*) FROM k;
-- A name of ours is a client's.
ALTER TABLE k RENAME TO tutti_rows;
UPDATE tutti_rows SET id = id + 100 WHERE id > 2000;
UPDATE rk AS tutti_rows SET id = id + 10;
SELECT min(id), max(id) FROM tutti_rows;
