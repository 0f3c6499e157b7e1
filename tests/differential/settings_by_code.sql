--! distribution spread: sc HASH (id)
--! distribution elsewhere: sc ROUND ROBIN
--! changes data
-- Settings that only the server knows, for code has made them: every connection that stays with the session has them.

CREATE TABLE sc (id int, t text DEFAULT current_setting('tests.one', true));
INSERT INTO sc SELECT k, 'there' FROM generate_series(1, 40) k;
CREATE FUNCTION sets(value text, only_here boolean) RETURNS text LANGUAGE plpgsql AS $$BEGIN RETURN set_config('tests.one', value, only_here); END$$;
SET tests.one = 'first';
SELECT DISTINCT current_setting('tests.one') FROM sc;
BEGIN;
SELECT set_config('tests.one', chr(66), false);
COMMIT AND CHAIN;
SELECT DISTINCT current_setting('tests.one') FROM sc;
COMMIT;
SELECT DISTINCT current_setting('tests.one') FROM sc;
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT count(*) FROM sc;
SELECT sets('by code', false);
COMMIT AND CHAIN;
SELECT DISTINCT current_setting('tests.one') FROM sc;
SELECT set_config('tests.one', chr(67), false);
ROLLBACK AND CHAIN;
SELECT DISTINCT current_setting('tests.one') FROM sc;
SELECT set_config('tests.one', chr(68), true);
COMMIT AND CHAIN;
SELECT DISTINCT current_setting('tests.one') FROM sc;
COMMIT;
LISTEN heard;
SELECT set_config('tests.one', chr(69), false);
SELECT DISTINCT current_setting('tests.one') FROM sc;
SELECT sets('heard', false);
SELECT DISTINCT current_setting('tests.one') FROM sc;
INSERT INTO sc (id) SELECT k FROM generate_series(100, 140) k;
SELECT t, count(*) FROM sc GROUP BY t ORDER BY t;
SET tests.two = 'two';
SELECT DISTINCT current_setting('tests.one'), current_setting('tests.two') FROM sc;
BEGIN;
SELECT sets('in a block', false);
COMMIT;
SELECT DISTINCT current_setting('tests.one') FROM sc;
UNLISTEN heard;
SELECT DISTINCT current_setting('tests.one') FROM sc;
DO $$BEGIN PERFORM set_config('tests.one', 'done', false); END$$;
SELECT DISTINCT current_setting('tests.one') FROM sc;
