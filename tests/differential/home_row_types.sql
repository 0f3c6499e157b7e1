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
-- Views of such values are on node 1 alone, too.
CREATE VIEW hr_shows AS SELECT 5 AS n, (ROW(1, 'shown')::hr_home).e AS e;
CREATE VIEW hr_adds AS SELECT id + (ROW(70, '')::hr_home).a AS n, t FROM hr_spread;
CREATE VIEW hr_lists AS SELECT ('{"(1,listed)"}'::hr_home[])[1].e AS e WHERE ROW(1, '')::hr_home IS NOT NULL;
SELECT * FROM hr_shows;
SELECT id, e FROM hr_spread, hr_shows ORDER BY id;
SELECT id, e FROM hr_spread, hr_shows WHERE id = 1;
SELECT id, e FROM hr_spread, hr_shows WHERE id = 2;
SELECT id, e FROM hr_spread, hr_shows WHERE id = 3;
SELECT n FROM hr_adds ORDER BY n;
SELECT n FROM hr_adds WHERE t = 't3';
SELECT e FROM hr_lists;
SELECT id, e FROM hr_spread, hr_lists WHERE id < 4 ORDER BY id;
SELECT DISTINCT e FROM hr_spread, hr_lists;
INSERT INTO hr_spread (id, t) SELECT n + 1000, e FROM hr_shows;
SELECT id, t FROM hr_spread WHERE id > 1000;
-- Other spellings of types.
SELECT id, (CAST('{"(1,two)"}' AS hr_home ARRAY))[1].e FROM hr_spread WHERE id = 1;
SELECT id, (CAST('{"(1,two)"}' AS hr_home ARRAY[1]))[1].e FROM hr_spread WHERE id = 2;
SELECT id, (CAST('{"(1,two)"}' AS public.hr_home ARRAY))[1].e FROM hr_spread WHERE id = 3;
SELECT id, ('(1,two)'::SETOF hr_home).e FROM hr_spread WHERE id = 4;
SELECT id, (NULL::SETOF _hr_mood) IS NULL, pg_typeof(NULL::SETOF _hr_mood)::text FROM hr_spread ORDER BY id;
-- refused in by_key: its values are node 1's alone
DELETE FROM hr_spread WHERE pg_typeof(NULL::SETOF _hr_mood)::text <> '_hr_mood';
-- refused in by_key: the same
UPDATE hr_spread SET t = (CAST('{"(1,two)"}' AS hr_home ARRAY))[1].e;
-- Functions of such rows, whoever gives them some.
CREATE FUNCTION hr_default(q hr_home DEFAULT '(1,default)') RETURNS text LANGUAGE sql IMMUTABLE AS $$ SELECT q.e $$;
CREATE FUNCTION hr_count(VARIADIC q hr_home[]) RETURNS int LANGUAGE sql IMMUTABLE AS $$ SELECT cardinality(q) $$;
SELECT id, hr_default() FROM hr_spread ORDER BY id;
SELECT id, hr_default() FROM hr_spread WHERE id = 2;
SELECT id, hr_default() FROM hr_spread WHERE id = 3;
SELECT id, hr_count(ROW(1, t), ROW(2, t)) FROM hr_spread WHERE id < 4 ORDER BY id;
CREATE VIEW hr_gives AS SELECT 5 AS n, hr_default() AS e;
SELECT e FROM hr_gives;
SELECT id, e FROM hr_spread, hr_gives WHERE id = 2;
SELECT id, e FROM hr_spread, hr_gives ORDER BY id;
-- Columns, aliases and PostgreSQL's own types that are called like home tables, or like their arrays.
CREATE TABLE hr_status (a int);
CREATE TABLE _hr_state (a int);
CREATE TABLE int4 (a int);
ALTER TABLE hr_spread ADD COLUMN _hr_status int, ADD COLUMN _hr_state int;
UPDATE hr_spread SET _hr_status = 5, _hr_state = id WHERE id < 5;
UPDATE hr_spread SET t = 'of state' WHERE _hr_status = 5 AND _hr_state = 2;
UPDATE hr_spread SET _hr_state = _hr_status + 1 WHERE ARRAY[id] = '{3}'::_int4;
DELETE FROM hr_spread WHERE _hr_status = 99;
DELETE FROM hr_spread AS _hr_status WHERE _hr_status._hr_state = 1;
SELECT id, t, _hr_status AS _hr_state, _hr_state AS _hr_status FROM hr_spread WHERE id < 6 ORDER BY id;
DROP TABLE int4;
DROP VIEW hr_adds;
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
