--! distribution by_key: marks HASH (k); others HASH (k); names HASH (name); spans RANGE (k) SPLIT AT VALUES (10, 20)
--! distribution elsewhere: marks RANGE (k) SPLIT AT VALUES (5); others HASH (v); names RANGE (name) SPLIT AT VALUES ('m'); spans HASH (k)
--! changes data
-- Comparisons that are the user's own: what their names say of PostgreSQL's types depends on the search path and on
-- how exactly the types match, so that nothing may be concluded from them about keys.

CREATE TABLE marks (k int, v int);
CREATE TABLE others (k int, v int);
CREATE TABLE names (name varchar(20) COLLATE "C", v int);
CREATE TABLE spans (k int, v int);
INSERT INTO marks SELECT n, n % 4 FROM generate_series(1, 40) n;
INSERT INTO others SELECT n, n FROM generate_series(1, 20) n;
INSERT INTO names SELECT CASE WHEN n % 2 = 0 THEN 'name ' ELSE 'NAME ' END || n / 2, n FROM generate_series(1, 40) n;
INSERT INTO spans SELECT n, n FROM generate_series(1, 40) n;
CREATE FUNCTION last_digit_eq(int, int) RETURNS boolean LANGUAGE sql IMMUTABLE AS $$ SELECT ($1 % 10) OPERATOR(pg_catalog.=) ($2 % 10) $$;
CREATE FUNCTION last_digit_ge(int, int) RETURNS boolean LANGUAGE sql IMMUTABLE AS $$ SELECT ($1 % 10) OPERATOR(pg_catalog.>=) ($2 % 10) $$;
CREATE FUNCTION last_digit_le(int, int) RETURNS boolean LANGUAGE sql IMMUTABLE AS $$ SELECT ($1 % 10) OPERATOR(pg_catalog.<=) ($2 % 10) $$;
CREATE FUNCTION alike(varchar, varchar) RETURNS boolean LANGUAGE sql IMMUTABLE AS $$ SELECT pg_catalog.lower($1) OPERATOR(pg_catalog.=) pg_catalog.lower($2) $$;
-- Nobody has any yet.
SELECT * FROM marks WHERE k = 7;
SELECT * FROM names WHERE name = 'name 3';
SELECT * FROM spans WHERE k BETWEEN 12 AND 13 ORDER BY k;
-- An exact match beats PostgreSQL's own, wherever in the path it is.
CREATE OPERATOR = (LEFTARG = varchar, RIGHTARG = varchar, FUNCTION = alike);
SELECT * FROM names WHERE name = 'name 3' ORDER BY v;
SELECT * FROM names WHERE 'NAME 3' = name ORDER BY v;
SELECT * FROM names WHERE name IN ('name 3', 'NAME 4') ORDER BY v;
SELECT * FROM names WHERE name = ANY (ARRAY['name 3', 'x']::varchar[]) ORDER BY v;
SELECT * FROM names WHERE name OPERATOR(pg_catalog.=) 'name 3' ORDER BY v;
SELECT a.v, b.v FROM names a JOIN names b ON a.name = b.name WHERE a.v < 5 ORDER BY 1, 2;
SELECT a.v, b.v FROM names a JOIN names b USING (name) WHERE a.v < 5 ORDER BY 1, 2;
SELECT count(*) FROM names a NATURAL JOIN (SELECT name FROM names) b;
SELECT count(*) FROM names WHERE name IN (SELECT name FROM names WHERE v = 4);
SELECT count(*) FROM names a WHERE EXISTS (SELECT FROM names b WHERE b.name = a.name AND b.v = 6);
UPDATE names SET v = v + 100 WHERE name = 'name 5';
SELECT * FROM names WHERE v > 100 ORDER BY v;
DELETE FROM names WHERE name = 'NAME 6';
SELECT count(*) FROM names;
DROP OPERATOR = (varchar, varchar);
SELECT * FROM names WHERE name = 'name 3' ORDER BY v;
-- Of integers there is one already: the path decides.
CREATE OPERATOR = (LEFTARG = int, RIGHTARG = int, FUNCTION = last_digit_eq);
SELECT * FROM marks WHERE k = 7 ORDER BY k;
SET search_path = public, pg_catalog;
SELECT * FROM marks WHERE k = 7 ORDER BY k;
SELECT * FROM marks WHERE k IN (7, 8) ORDER BY k;
SELECT * FROM marks WHERE k NOT IN (1, 2, 3, 4, 5, 6, 7) ORDER BY k;
SELECT count(*) FROM marks m JOIN others o ON m.k = o.k;
SELECT count(*) FROM marks m JOIN others o USING (k);
SELECT count(*) FROM marks m LEFT JOIN others o ON m.k = o.k AND o.v = 3;
SELECT count(*) FROM marks WHERE k = 7 AND v = 3;
SELECT m.k, (SELECT count(*) FROM others o WHERE o.k = m.k) FROM marks m ORDER BY m.k LIMIT 4;
SELECT * FROM marks WHERE (k, v) IN ((7, 3), (8, 0)) ORDER BY k;
UPDATE marks SET v = 50 WHERE k = 7;
SELECT count(*) FROM marks WHERE v OPERATOR(pg_catalog.=) 50;
UPDATE marks SET v = 51 FROM others o WHERE marks.k = o.k AND o.v OPERATOR(pg_catalog.=) 2;
SELECT count(*) FROM marks WHERE v OPERATOR(pg_catalog.=) 51;
DELETE FROM marks WHERE k = 3;
SELECT count(*) FROM marks;
CREATE OPERATOR >= (LEFTARG = int, RIGHTARG = int, FUNCTION = last_digit_ge);
CREATE OPERATOR <= (LEFTARG = int, RIGHTARG = int, FUNCTION = last_digit_le);
SELECT count(*) FROM spans WHERE k BETWEEN 12 AND 13;
SELECT count(*) FROM spans WHERE k >= 32 AND k <= 33;
SELECT count(*) FROM spans WHERE k >= 38;
SELECT count(*) FROM spans WHERE 38 <= k;
SELECT count(*) FROM spans WHERE k > 38;
SET search_path = public;
SELECT count(*) FROM spans WHERE k BETWEEN 12 AND 13;
SELECT * FROM marks WHERE k = 8 ORDER BY k;
DROP OPERATOR public.>= (int, int);
DROP OPERATOR public.<= (int, int);
DROP OPERATOR public.= (int, int);
SELECT * FROM marks WHERE k = 8 ORDER BY k;
SELECT count(*) FROM marks m JOIN others o USING (k);
-- What was said by words before an operator of such a name was there, is said of PostgreSQL's own.
CREATE VIEW same_names AS SELECT name, a.v AS av, b.v AS bv FROM names a JOIN names b USING (name);
CREATE VIEW told AS SELECT k, CASE v WHEN 3 THEN 'three' ELSE 'other' END AS what, nullif(v, 2) AS n FROM marks;
CREATE VIEW plain AS SELECT k, v FROM marks WHERE k = 8;
CREATE TABLE drawn (k int DEFAULT (CASE 13 WHEN 3 THEN 1 ELSE 2 END), v int DEFAULT nullif(17, 7));
SELECT count(*) FROM same_names;
SELECT what, count(*), count(n) FROM told GROUP BY what ORDER BY what;
CREATE OPERATOR = (LEFTARG = varchar, RIGHTARG = varchar, FUNCTION = alike);
CREATE OPERATOR = (LEFTARG = int, RIGHTARG = int, FUNCTION = last_digit_eq);
SET search_path = public, pg_catalog;
-- refused in by_key, elsewhere: it compares by words, and might mean another operator where it is written out
SELECT what, count(*), count(n) FROM told GROUP BY what ORDER BY what;
SELECT * FROM plain ORDER BY k;
SET search_path = public;
SELECT * FROM plain ORDER BY k;
DROP OPERATOR public.= (int, int);
DROP OPERATOR = (varchar, varchar);
SELECT count(*) FROM same_names;
INSERT INTO drawn DEFAULT VALUES;
SELECT * FROM drawn;
-- A type of the user's may have the name of PostgreSQL's: temporary ones come first.
SELECT v FROM names WHERE name = 'name 3'::text;
CREATE DOMAIN pg_temp.text AS varchar(4);
SELECT v FROM names WHERE name = 'name 3'::text;
SELECT v FROM names WHERE name = 'name 3'::pg_catalog.text;
DROP DOMAIN pg_temp.text;
SELECT v FROM names WHERE name = 'name 3'::text;
CREATE SCHEMA hiding;
CREATE DOMAIN hiding.text AS varchar(4);
SELECT v FROM names WHERE name = 'name 3'::text;
SET search_path = hiding, pg_catalog, public;
SELECT v FROM names WHERE name = 'name 3'::text;
INSERT INTO names VALUES ('abcdef'::text, 1000);
SELECT * FROM names WHERE name = 'abcd';
DELETE FROM names WHERE v = 1000;
RESET search_path;
DROP SCHEMA hiding CASCADE;
DROP VIEW same_names, told, plain;
DROP TABLE drawn;
-- One over a type of the user's says nothing of others.
CREATE TYPE pair AS (a int, b int);
SELECT * FROM marks WHERE k IN (9, 10) ORDER BY k;
-- One that the session does not see means nothing to it; in its path it does.
CREATE SCHEMA apart;
CREATE OPERATOR apart.= (LEFTARG = int, RIGHTARG = int, FUNCTION = last_digit_eq);
CREATE OPERATOR apart.= (LEFTARG = varchar, RIGHTARG = varchar, FUNCTION = alike);
SELECT count(*) FROM marks m JOIN others o USING (k);
SELECT count(*) FROM names WHERE name = 'name 3';
SELECT count(*) FROM marks WHERE k OPERATOR(apart.=) 7;
SET search_path = public, apart;
SELECT count(*) FROM names WHERE name = 'name 3';
SELECT count(*) FROM marks m JOIN others o USING (k);
SET search_path = apart, pg_catalog, public;
SELECT count(*) FROM marks m JOIN others o USING (k);
RESET search_path;
DROP SCHEMA apart CASCADE;
-- Operators over base types of the users' own, as extensions bring them, say nothing of views that have no such values.
CREATE TYPE folded;
CREATE FUNCTION folded_in(cstring) RETURNS folded LANGUAGE internal IMMUTABLE STRICT AS 'textin';
CREATE FUNCTION folded_out(folded) RETURNS cstring LANGUAGE internal IMMUTABLE STRICT AS 'textout';
CREATE TYPE folded (INPUT = folded_in, OUTPUT = folded_out, LIKE = text);
CREATE FUNCTION folded_eq(folded, folded) RETURNS boolean LANGUAGE internal IMMUTABLE STRICT AS 'texteq';
CREATE VIEW by_words AS SELECT k, m.v, nullif(o.v, 3) AS n, CASE m.v WHEN 1 THEN 'one' END AS c, m.v IN (1, 2) AS few FROM marks m JOIN others o USING (k);
SELECT k, v, n, c, few FROM by_words WHERE k < 6 ORDER BY k;
CREATE OPERATOR = (LEFTARG = folded, RIGHTARG = folded, FUNCTION = folded_eq);
SELECT count(*), count(n), count(c) FROM by_words;
SELECT a.k, b.n FROM by_words a JOIN by_words b ON a.v = b.k ORDER BY 1, 2 LIMIT 5;
DROP VIEW by_words;
DROP TYPE folded CASCADE;
