--! changes data
--! distribution none:
--! distribution hash: told HASH (id)
--! distribution robin: told ROUND ROBIN
--! distribution replicated: told REPLICATED
-- A prepared statement gives the columns that its client was told of, or none.

CREATE TABLE told (id int, v int);
INSERT INTO told SELECT g, g FROM generate_series(1, 9) g;
PREPARE all_of AS SELECT * FROM told WHERE id = 3;
EXECUTE all_of;
-- Functions, types and operators that names mean.
CREATE SCHEMA one;
CREATE SCHEMA other;
CREATE FUNCTION one.f(int) RETURNS text LANGUAGE sql IMMUTABLE AS 'SELECT ''x'' || $1';
CREATE FUNCTION other.f(int) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT $1 * 7';
CREATE FUNCTION one.g(int) RETURNS TABLE (a int) LANGUAGE sql IMMUTABLE AS 'SELECT $1';
CREATE FUNCTION other.g(int) RETURNS TABLE (a text, b int) LANGUAGE sql IMMUTABLE AS 'SELECT ''x'', $1 * 7';
SET search_path = one, public;
PREPARE calls AS SELECT f(1);
PREPARE rows_of AS SELECT * FROM g(1);
PREPARE of_table (int) AS SELECT f(id) FROM told WHERE id = $1;
EXECUTE calls;
EXECUTE rows_of;
EXECUTE of_table (4);
SET search_path = other, public;
EXECUTE calls;
EXECUTE rows_of;
EXECUTE of_table (4);
EXECUTE of_table (5);
SET search_path = one, public;
EXECUTE calls;
EXECUTE rows_of;
EXECUTE of_table (4);
DEALLOCATE ALL;
RESET search_path;
DROP SCHEMA one CASCADE;
DROP SCHEMA other CASCADE;
DROP TABLE told;
