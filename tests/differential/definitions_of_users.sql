--! distribution by_key: things HASH (k); later HASH (k); drawn HASH (k); shown HASH (k)
--! changes data
-- Functions, operators, aggregates and types of users' that match more exactly than PostgreSQL's own of their names: what
-- PostgreSQL has stored keeps its meaning. And what may be defined, and where it is known then.

CREATE TABLE things (k int PRIMARY KEY, v int, s text[], arr int[]);
INSERT INTO things SELECT n, n % 3, ARRAY['x', 'y'], ARRAY[n, n % 3] FROM generate_series(1, 60) n;
CREATE TABLE drawn (k text DEFAULT concat('a', 1), v int, w text DEFAULT (7 || 'y'));
CREATE VIEW joined AS SELECT max(array_to_string(s, '-')) AS m FROM things;
CREATE VIEW found AS SELECT k FROM things WHERE arr @> ARRAY[1] ORDER BY k LIMIT 5;
CREATE VIEW counted AS SELECT count(v) AS n, max(k || 'x') AS m FROM things;
CREATE VIEW distinguished AS SELECT count(*) AS n FROM things WHERE k IS DISTINCT FROM 5;
SELECT * FROM joined;
SELECT * FROM found;
SELECT * FROM counted;
CREATE FUNCTION array_to_string(text[], text) RETURNS text LANGUAGE sql IMMUTABLE AS $$ SELECT 'mine' $$;
CREATE FUNCTION concat(text, int) RETURNS text LANGUAGE sql IMMUTABLE AS $$ SELECT 'mine' $$;
CREATE FUNCTION never(int[], int[]) RETURNS boolean LANGUAGE sql IMMUTABLE AS $$ SELECT false $$;
CREATE FUNCTION users(int, text) RETURNS text LANGUAGE sql IMMUTABLE AS $$ SELECT 'USER' $$;
CREATE FUNCTION add_value(bigint, int) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$ SELECT $1 + $2 $$;
CREATE OPERATOR @> (LEFTARG = int[], RIGHTARG = int[], FUNCTION = never);
CREATE OPERATOR || (LEFTARG = int, RIGHTARG = text, FUNCTION = users);
CREATE AGGREGATE count(int) (SFUNC = add_value, STYPE = bigint, INITCOND = '0');
SELECT * FROM joined;
SELECT * FROM found;
SELECT * FROM counted;
SELECT * FROM distinguished;
-- What a client writes means the user's.
SELECT max(array_to_string(s, '-')) FROM things;
SELECT count(*) FROM things WHERE arr @> ARRAY[1];
SELECT count(v), max(k || 'x'::text) FROM things;
INSERT INTO drawn (v) VALUES (1);
INSERT INTO drawn (v) SELECT v FROM things WHERE k < 4;
SELECT * FROM drawn ORDER BY k, v;
SELECT count(*) FROM drawn WHERE k = 'a1';
UPDATE drawn SET w = DEFAULT WHERE k = 'a1';
SELECT DISTINCT w FROM drawn;
DROP VIEW joined, found, counted, distinguished;
DROP OPERATOR @> (int[], int[]);
DROP OPERATOR || (int, text);
DROP AGGREGATE count(int);
DROP FUNCTION concat(text, int);
DROP FUNCTION array_to_string(text[], text);
-- A superuser may put them among PostgreSQL's own.
CREATE TABLE shown (k varchar(10) PRIMARY KEY, v int);
INSERT INTO shown SELECT 's' || n, n % 3 FROM generate_series(1, 30) n;
CREATE FUNCTION begins_alike(varchar, varchar) RETURNS boolean LANGUAGE sql IMMUTABLE AS
    $$ SELECT pg_catalog.left($1, 2)::text OPERATOR(pg_catalog.=) pg_catalog.left($2, 2)::text $$;
CREATE FUNCTION add_length(bigint, varchar) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$ SELECT $1 + length($2) $$;
CREATE OPERATOR pg_catalog.= (LEFTARG = varchar, RIGHTARG = varchar, FUNCTION = begins_alike);
CREATE AGGREGATE pg_catalog.max(varchar) (SFUNC = public.add_length, STYPE = bigint, INITCOND = '0');
SELECT count(*) FROM shown WHERE k OPERATOR(pg_catalog.=) 's1';
DELETE FROM shown WHERE k OPERATOR(pg_catalog.=) 's2';
SELECT max(k) FROM shown;
SELECT v, max(k) FROM shown GROUP BY v ORDER BY v;
DROP AGGREGATE pg_catalog.max(varchar);
DROP OPERATOR pg_catalog.= (varchar, varchar);
SELECT max(k) FROM shown;
CREATE FUNCTION reversed(int, int) RETURNS int LANGUAGE sql IMMUTABLE AS $$ SELECT btint4cmp($2, $1) $$;
-- Defined by themselves they are known on all nodes.
CREATE OPERATOR CLASS backwards FOR TYPE int USING btree AS
    OPERATOR 1 >, OPERATOR 2 >=, OPERATOR 3 =, OPERATOR 4 <=, OPERATOR 5 <, FUNCTION 1 reversed(int, int);
CREATE INDEX things_backwards ON things (v backwards);
CREATE TEXT SEARCH DICTIONARY plain (TEMPLATE = simple, STOPWORDS = english);
CREATE TEXT SEARCH CONFIGURATION told (COPY = english);
ALTER TEXT SEARCH CONFIGURATION told ALTER MAPPING FOR asciiword WITH plain;
SELECT count(*) FROM things WHERE to_tsvector('told', 'the running ' || k) @@ to_tsquery('told', 'running & 7');
-- And if no table was on several nodes when they were defined, as soon as there is one.
DROP TABLE things, drawn, shown;
CREATE OPERATOR CLASS sideways FOR TYPE int USING btree AS
    OPERATOR 1 >, OPERATOR 2 >=, OPERATOR 3 =, OPERATOR 4 <=, OPERATOR 5 <, FUNCTION 1 reversed(int, int);
CREATE OPERATOR CLASS hashed FOR TYPE int USING hash AS OPERATOR 1 =, FUNCTION 1 hashint4(int);
CREATE TEXT SEARCH DICTIONARY later_plain (TEMPLATE = snowball, LANGUAGE = 'english');
CREATE TEXT SEARCH CONFIGURATION later_told (PARSER = "default");
ALTER TEXT SEARCH CONFIGURATION later_told ADD MAPPING FOR asciiword, word WITH later_plain, simple;
DROP TEXT SEARCH CONFIGURATION told;
DROP TEXT SEARCH DICTIONARY plain;
CREATE TEXT SEARCH PARSER own_parser (START = prsd_start, GETTOKEN = prsd_nexttoken, END = prsd_end, HEADLINE = prsd_headline, LEXTYPES = prsd_lextype);
CREATE TEXT SEARCH TEMPLATE own_template (INIT = dsnowball_init, LEXIZE = dsnowball_lexize);
CREATE TEXT SEARCH DICTIONARY own_words (TEMPLATE = own_template, LANGUAGE = 'english');
CREATE TEXT SEARCH CONFIGURATION own_told (PARSER = own_parser);
ALTER TEXT SEARCH CONFIGURATION own_told ADD MAPPING FOR asciiword WITH own_words;
CREATE TYPE boxed AS (x int);
CREATE FUNCTION boxed_hash(boxed) RETURNS int LANGUAGE sql IMMUTABLE AS $$ SELECT hashint4(($1).x) $$;
CREATE FUNCTION boxed_eq(boxed, boxed) RETURNS boolean LANGUAGE plpgsql IMMUTABLE AS $$ BEGIN RETURN ($1).x = ($2).x; END $$;
CREATE FUNCTION boxed_ne(boxed, boxed) RETURNS boolean LANGUAGE plpgsql IMMUTABLE AS $$ BEGIN RETURN ($1).x <> ($2).x; END $$;
CREATE OPERATOR ==== (LEFTARG = boxed, RIGHTARG = boxed, FUNCTION = boxed_eq, COMMUTATOR = ====, NEGATOR = !====, HASHES);
CREATE OPERATOR !==== (LEFTARG = boxed, RIGHTARG = boxed, FUNCTION = boxed_ne, COMMUTATOR = !====, NEGATOR = ====);
CREATE OPERATOR CLASS boxed_class DEFAULT FOR TYPE boxed USING hash AS OPERATOR 1 ====, FUNCTION 1 boxed_hash(boxed);
DROP OPERATOR CLASS backwards USING btree;
DROP OPERATOR FAMILY backwards USING btree;
CREATE TABLE later (k int PRIMARY KEY, v int, body text);
INSERT INTO later SELECT n, n % 5, CASE WHEN n % 3 = 0 THEN 'running water' ELSE 'still' END FROM generate_series(1, 30) n;
CREATE INDEX later_sideways ON later (v sideways);
CREATE INDEX later_hashed ON later USING hash (v hashed);
CREATE INDEX later_body ON later USING gin (to_tsvector('later_told', body));
SELECT count(*) FROM later WHERE to_tsvector('later_told', body) @@ to_tsquery('later_told', 'run');
SELECT count(*) FROM later WHERE to_tsvector('own_told', body) @@ to_tsquery('own_told', 'run');
CREATE TABLE left_boxes (id int PRIMARY KEY, k boxed);
CREATE TABLE right_boxes (id int PRIMARY KEY, k boxed);
INSERT INTO left_boxes SELECT n, ROW(n)::boxed FROM generate_series(1, 5) n;
INSERT INTO right_boxes SELECT n, ROW(n)::boxed FROM generate_series(3, 8) n;
SELECT l.id, r.id FROM left_boxes l FULL JOIN right_boxes r ON r.k ==== l.k ORDER BY 1, 2;
SELECT count(*) FROM left_boxes WHERE NOT k ==== ROW(2)::boxed;
SELECT count(*) FROM later WHERE v = 3;
SELECT count(*) FROM later WHERE to_tsvector('told', body) @@ to_tsquery('told', 'run');
CREATE TEXT SEARCH CONFIGURATION told (COPY = later_told);
CREATE OPERATOR FAMILY backwards USING btree;
DROP OPERATOR FAMILY backwards USING btree;
SELECT count(*) FROM later WHERE to_tsvector('told', body) @@ to_tsquery('told', 'run');
