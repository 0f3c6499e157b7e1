--! only where tables are at home
--! distribution by_key: things HASH (k); placed HASH (id); names REPLICATED; latter.it HASH (c); many HASH (k)
--! changes data
-- Where tables are at home unless they say otherwise: what blocks define is on all nodes, or refused; and what node 1 alone
-- has is not taken for something else of its name.

CREATE TABLE things (k int PRIMARY KEY, v int, note text);
INSERT INTO things SELECT n, n % 3 FROM generate_series(1, 60) n;
-- Blocks may not change what other nodes have.
CREATE DOMAIN positive AS int;
CREATE TYPE pair AS (a int, b int);
CREATE COLLATION ordered (LOCALE = 'C');
CREATE SCHEMA aside;
CREATE FUNCTION alike(int, int) RETURNS boolean LANGUAGE sql IMMUTABLE AS $$ SELECT $1 % 10 = $2 % 10 $$;
CREATE OPERATOR === (LEFTARG = int, RIGHTARG = int, FUNCTION = alike);
-- refused in by_key: it would be so on node 1 alone
DO $$ BEGIN ALTER DOMAIN positive ADD CONSTRAINT c CHECK (value > 0) NOT VALID; END $$;
-- refused in by_key: the same
DO $$ BEGIN ALTER OPERATOR === (int, int) SET SCHEMA aside; END $$;
-- refused in by_key: the same
DO $$ BEGIN ALTER TYPE pair ADD ATTRIBUTE c int; END $$;
-- refused in by_key: the same
DO $$ BEGIN ALTER TYPE pair RENAME ATTRIBUTE a TO z; END $$;
-- refused in by_key: the same
DO $$ BEGIN ALTER COLLATION ordered RENAME TO other; END $$;
-- refused in by_key: the same
DO $$ BEGIN CREATE TYPE shell; END $$;
-- refused in by_key: the same
DO $$ BEGIN CREATE OPERATOR FAMILY kin USING btree; END $$;
-- refused in by_key: the same
DO $$ BEGIN CREATE TEXT SEARCH CONFIGURATION cfg (COPY = pg_catalog.english); END $$;
-- What they make is made on all.
DO $$ BEGIN
    CREATE DOMAIN small AS int CHECK (value < 100);
    CREATE TYPE triple AS (a int, b int, c int);
    CREATE FUNCTION unlike(int, int) RETURNS boolean LANGUAGE sql IMMUTABLE AS 'SELECT $1 % 10 <> $2 % 10';
    CREATE OPERATOR !=== (LEFTARG = int, RIGHTARG = int, FUNCTION = unlike, NEGATOR = ===);
END $$;
SELECT count(*) FROM things WHERE k !=== 7;
SELECT count(*) FROM things WHERE k === 7 AND k::small > 0;
BEGIN;
CREATE DOMAIN large AS int;
-- refused in by_key: it has been made on all already
DO $$ BEGIN ALTER DOMAIN large ADD CONSTRAINT c CHECK (value > 1000); END $$;
ROLLBACK;
-- Types of rows that node 1 alone has are not taken for others of their name.
CREATE SCHEMA app;
CREATE TABLE app.placed (id int PRIMARY KEY, secret text);
CREATE TABLE placed (id int PRIMARY KEY, v int);
CREATE FUNCTION what(public.placed) RETURNS text LANGUAGE sql IMMUTABLE AS $$ SELECT 'public'::text $$;
CREATE FUNCTION what(app.placed) RETURNS text LANGUAGE sql IMMUTABLE AS $$ SELECT 'app'::text $$;
SET search_path = app, public;
SELECT jsonb_populate_record(NULL::placed, '{"id": 1, "secret": "x", "v": 5}') FROM things WHERE k = 5;
SELECT jsonb_populate_record(NULL::placed, '{"id": 1, "secret": "x", "v": 5}') FROM things WHERE k < 3;
SELECT what(NULL::placed) FROM things WHERE k = 5;
SELECT k FROM things WHERE k = 5 AND what(NULL::placed) = 'app';
SELECT what(NULL) FROM things WHERE k = 5;
SELECT what(NULL::placed), 'things'::regclass::text;
-- refused in by_key: which of the functions is meant is node 1's to say
UPDATE things SET note = what(NULL::app.placed) WHERE k = 5 RETURNING note;
-- refused in by_key: the same
INSERT INTO things VALUES (905, 1, what(NULL::placed)), (906, 1, what(NULL::placed)), (907, 1, what(NULL::placed)) RETURNING note;
SELECT k, ROW(k, note)::placed FROM things WHERE k < 4 ORDER BY k;
SELECT k, n FROM things, jsonb_to_record('{"n": {"id": 1, "secret": "x"}}') AS r(n placed) WHERE k < 4 ORDER BY k;
-- refused in by_key: other nodes would take the other table's type
CREATE VIEW rows_placed AS SELECT k, ROW(k, note)::placed AS r FROM things;
-- refused in by_key: the same
CREATE FUNCTION names_it(placed) RETURNS int LANGUAGE sql AS $$ SELECT 1 $$;
-- refused in by_key: the same
CREATE DOMAIN placed_domain AS placed;
CREATE FUNCTION made_of(int) RETURNS text LANGUAGE sql IMMUTABLE AS $$ SELECT (ROW($1, 'x')::placed)::text $$;
SELECT k, made_of(k) FROM things WHERE k < 4 ORDER BY k;
RESET search_path;
SELECT what(NULL::public.placed) FROM things WHERE k = 5;
CREATE TABLE alone (id int, x text);
CREATE SCHEMA first;
CREATE DOMAIN first.made AS public.alone;
CREATE DOMAIN public.made AS text;
SET search_path = first, public;
SELECT k, ('(007,b)'::made)::text FROM things WHERE k < 4 ORDER BY k;
RESET search_path;
-- Nor those of temporary ones.
CREATE TYPE mood AS ENUM ('a', 'b');
CREATE TYPE pg_temp.mood AS ENUM ('b', 'a');
SELECT count(*) FROM things WHERE 'a'::mood < 'b'::mood;
-- refused in by_key: other nodes would take the other one
CREATE DOMAIN public.moods AS mood;
-- refused in by_key: the same
CREATE FUNCTION public.tells(mood) RETURNS int LANGUAGE sql AS $$ SELECT 1 $$;
DROP TYPE pg_temp.mood;
SELECT count(*) FROM things WHERE 'a'::mood < 'b'::mood;
CREATE TABLE names (id int);
CREATE TEMPORARY TABLE names (id text);
SELECT k, (ROW('0' || k)::names).id FROM things WHERE k < 4 ORDER BY k;
DROP TABLE pg_temp.names;
-- Also where a type of rows is named before its value, or as that of an array's elements.
CREATE SCHEMA former;
CREATE SCHEMA latter;
CREATE TABLE latter.it (c int PRIMARY KEY, x int);
CREATE TABLE former.it (x int, c int);
CREATE TABLE many (k int PRIMARY KEY, v int, t text);
INSERT INTO many SELECT n FROM generate_series(1, 9) n;
SET search_path = former, latter, public;
SELECT k, (it '(1,2)').c FROM many ORDER BY k;
SELECT k, (('{"(1,2)"}'::_it)[1]).c FROM many ORDER BY k;
SELECT k FROM many WHERE (it '(1,2)').c = 2 ORDER BY k;
SELECT k, (x.q[1]).c FROM many, jsonb_to_record('{"q":["(1,2)"]}') AS x(q _it) ORDER BY k;
-- refused in by_key: other nodes have another type of that name
UPDATE many SET v = (it '(1,2)').c;
-- refused in by_key: the same
UPDATE many SET v = (('{"(1,2)"}'::_it)[1]).c WHERE k > 2;
-- refused in by_key: the same
CREATE VIEW public.shows AS SELECT k, (it '(1,2)').c AS q FROM many;
-- refused in by_key: the same
CREATE DOMAIN public.listed AS _it;
-- refused in by_key: the same
CREATE TYPE public.has_list AS (a _it);
-- refused in by_key: the same
CREATE FUNCTION public.of_list(_it) RETURNS int LANGUAGE sql IMMUTABLE AS $$ SELECT 1 $$;
CREATE FUNCTION public.second_of(int) RETURNS int LANGUAGE sql IMMUTABLE AS $$ SELECT (it '(1,2)').c $$;
CREATE FUNCTION public.second_of_list(int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS $$ DECLARE a _it := '{"(1,2)"}'; BEGIN RETURN a[1].c; END $$;
SELECT k, second_of(k) FROM many ORDER BY k;
SELECT k, second_of_list(k) FROM many ORDER BY k;
-- refused in by_key: the same
UPDATE many SET v = second_of_list(k);
RESET search_path;
-- And a session's own types, in its functions.
CREATE DOMAIN precise AS numeric(10, 0);
CREATE DOMAIN pg_temp.precise AS numeric(10, 2);
CREATE FUNCTION rounded(int) RETURNS text LANGUAGE plpgsql IMMUTABLE AS $$ DECLARE x precise := $1 + 0.25; BEGIN RETURN x; END $$;
CREATE FUNCTION rounded_list(int) RETURNS text LANGUAGE plpgsql IMMUTABLE AS $$ DECLARE x precise[] := ARRAY[$1 + 0.25]; BEGIN RETURN x; END $$;
CREATE FUNCTION rounded_sql(int) RETURNS text LANGUAGE sql IMMUTABLE AS $$ SELECT CAST($1 + 0.25 AS precise)::text $$;
SELECT k, rounded(k) FROM many ORDER BY k;
SELECT k, rounded_list(k) FROM many ORDER BY k;
SELECT k, rounded_sql(k) FROM many ORDER BY k;
SELECT k, ('{3.14}'::_precise)::text FROM many ORDER BY k;
-- refused in by_key: the same
UPDATE many SET t = rounded(k);
-- refused in by_key: the same
UPDATE many SET t = ('{3.14}'::_precise)::text;
DROP DOMAIN pg_temp.precise;
