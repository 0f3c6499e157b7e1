--! only where tables are at home
--! distribution by_key: hr_spread HASH (id); hr_made HASH (id)
--! distribution copies: hr_spread REPLICATED; hr_made REPLICATED
--! changes data
-- Types of home tables' rows, which other nodes do not have, or have as other types: those of arrays are called as nothing
-- else is.

CREATE TYPE hr_mood AS ENUM ('u', 'v');
CREATE TABLE "_hr_mood" (k int);
CREATE TABLE hr_home (a int, e text);
INSERT INTO hr_home VALUES (1, 'one');
CREATE VIEW hr_view AS SELECT a, e FROM hr_home;
CREATE TABLE hr_spread (id int PRIMARY KEY, m hr_mood, list hr_mood[], t text);
INSERT INTO hr_spread SELECT i, 'u', '{u,v}', 't' || i FROM generate_series(1, 10) i;
SELECT id, pg_typeof(NULL::_hr_mood)::text FROM hr_spread ORDER BY id;
SELECT id FROM hr_spread WHERE pg_typeof(NULL::_hr_mood)::text <> '_hr_mood' ORDER BY id;
SELECT '(5)'::_hr_mood FROM hr_spread WHERE id = 1;
SELECT '(5)'::_hr_mood FROM hr_spread WHERE id = 2;
SELECT '(5)'::_hr_mood FROM hr_spread WHERE id = 3;
SELECT '{u}'::_hr_mood FROM hr_spread WHERE id = 3;
SELECT (ROW(1)::_hr_mood).k FROM hr_spread WHERE id = 4;
SELECT (ROW(id)::public._hr_mood).k FROM hr_spread ORDER BY id;
SELECT '{u}'::hr_mood[] FROM hr_spread WHERE id = 4;
SELECT list FROM hr_spread WHERE id = 5;
SELECT list, m FROM hr_spread ORDER BY id;
-- refused in by_key: other nodes would take it for another
DELETE FROM hr_spread WHERE pg_typeof(NULL::_hr_mood)::text <> '_hr_mood';
-- refused in by_key: the same
UPDATE hr_spread SET t = pg_typeof(NULL::_hr_mood)::text;
SELECT id, t FROM hr_spread ORDER BY id;
SELECT ROW(1, 'a')::hr_home FROM hr_spread WHERE id = 1;
SELECT ROW(1, 'a')::hr_home FROM hr_spread WHERE id = 2;
SELECT ROW(1, 'a')::hr_home FROM hr_spread WHERE id = 3;
SELECT NULL::hr_home, id FROM hr_spread ORDER BY id;
SELECT NULL::public.hr_home FROM hr_spread WHERE id = 4;
SELECT hr_home '(1,a)' FROM hr_spread WHERE id = 5;
SELECT CAST(ROW(1, t) AS hr_home) FROM hr_spread WHERE id = 6;
SELECT ARRAY[ROW(1, t)]::hr_home[] FROM hr_spread WHERE id = 7;
SELECT (ROW(id, 'q')::hr_home).a FROM hr_spread ORDER BY id;
SELECT (jsonb_populate_record(NULL::hr_home, jsonb_build_object('a', id, 'e', t))).* FROM hr_spread ORDER BY id;
SELECT ROW(1, 'a')::hr_view FROM hr_spread WHERE id = 8;
SELECT count(NULL::hr_home), count(*) FROM hr_spread;
SELECT t FROM hr_spread WHERE (ROW(id, t)::hr_home).a > 8 ORDER BY id;
-- refused in by_key, copies: its row is computed where it is stored
INSERT INTO hr_spread (id, t) VALUES (11, (ROW(1, 'of home')::hr_home).e) RETURNING id, t;
INSERT INTO hr_spread (id, t) SELECT id + 20, (ROW(1, t)::hr_home).e FROM hr_spread WHERE id < 4;
SELECT id, t FROM hr_spread WHERE id > 10 ORDER BY id;
-- refused in by_key: its values are node 1's alone
UPDATE hr_spread SET t = (ROW(1, 'x')::hr_home).e WHERE id = 1;
CREATE FUNCTION hr_of(int) RETURNS text LANGUAGE sql IMMUTABLE AS $$ SELECT (ROW($1, 'f')::hr_home)::text $$;
SELECT id, hr_of(id) FROM hr_spread ORDER BY id;
SELECT hr_of(id) FROM hr_spread WHERE id = 3;
CREATE TABLE _hr_humour (k int);
ALTER TYPE hr_mood RENAME TO hr_humour;
SELECT list FROM hr_spread WHERE id = 1;
SELECT list FROM hr_spread WHERE id = 2;
SELECT list FROM hr_spread WHERE id = 3;
SELECT array_agg(m ORDER BY id) FROM hr_spread WHERE id = 4;
DROP TABLE _hr_humour, _hr_mood;
SELECT list FROM hr_spread WHERE id = 1;
SELECT list FROM hr_spread WHERE id = 2;
SELECT list FROM hr_spread WHERE id = 3;
DROP TABLE hr_spread;
-- Made while nothing is spread: the second takes the name that the first one's arrays would have.
CREATE TYPE hr_pair AS ENUM ('a');
CREATE TYPE _hr_pair AS (k int);
CREATE TABLE hr_made (id int PRIMARY KEY, one hr_pair[], two _hr_pair);
INSERT INTO hr_made SELECT i, '{a}', ROW(i) FROM generate_series(1, 6) i;
SELECT * FROM hr_made ORDER BY id;
SELECT one, two FROM hr_made WHERE id = 3;
