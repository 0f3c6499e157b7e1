-- The current time, which is one in all of a statement, and its names.
--! distribution apart: sales HASH (id); ev ROUND ROBIN
--! distribution mixed: sales REPLICATED; ev HASH (id)

CREATE TABLE sales (id int PRIMARY KEY, date date, amt int);
CREATE TABLE ev (id int, at timestamptz, d date, kind text);
INSERT INTO sales SELECT g, date '2026-11-20' + g % 7, g FROM generate_series(1, 50) g;
INSERT INTO ev SELECT g, now() - g * interval '1 hour', current_date - g, 'now' FROM generate_series(1, 60) g;
SELECT sum(amt), CURRENT_DATE = now()::date FROM sales GROUP BY date ORDER BY date DESC LIMIT 2;
SELECT count(*) FROM (SELECT CURRENT_DATE, sum(amt) FROM sales GROUP BY date ORDER BY date DESC LIMIT 2) q WHERE sum IN (189, 182);
SELECT count(q.current_date), count(q.date) FROM (SELECT CURRENT_DATE, date, count(*) FROM sales GROUP BY date ORDER BY date) q;
SELECT q.now = now(), q.count FROM (SELECT now(), count(*) FROM sales) q;
SELECT q.now = now()::date FROM (SELECT now()::date, count(*) FROM ev) q;
SELECT count(*) FROM ev CROSS JOIN (SELECT now()) l WHERE l.now > at;
SELECT max(q.now) = now() FROM (SELECT id, now() FROM ev) q;
SELECT count(now.now), bool_and(now = CURRENT_TIMESTAMP) FROM ev, now();
SELECT count(current_date), bool_and(current_date = now()::date) FROM ev, CURRENT_DATE;
SELECT count(*) FROM ev WHERE at <= 'now' AND 'now'::timestamptz = now() AND d < 'today' AND kind = 'now';
SELECT count(*) FROM ev WHERE at BETWEEN 'yesterday' AND 'now' OR d IN ('today', 'tomorrow') AND at IS DISTINCT FROM 'now';
SELECT count(*) FROM ev WHERE d >= CURRENT_DATE - 10;
SELECT d = CURRENT_DATE - 1, count(*) FROM ev GROUP BY d = CURRENT_DATE - 1 ORDER BY 1;
SELECT count(*) FROM ev WHERE age(d::timestamp) > interval '3 days';
SELECT count(*) FROM ev WHERE at < LOCALTIMESTAMP(0) AND at::time <> LOCALTIME AND at <> CURRENT_TIMESTAMP(3);
UPDATE ev SET at = 'now', kind = 'x' WHERE at <= 'now';
SELECT count(DISTINCT at), count(*), max(at) < now() FROM ev WHERE kind = 'x';
UPDATE ev SET at = statement_timestamp(), d = 'today', kind = 'today';
SELECT count(DISTINCT at), bool_and(d = CURRENT_DATE), min(kind) FROM ev;
BEGIN;
SELECT count(*) FROM ev WHERE id = 1;
SELECT pg_sleep(0.1);
SELECT DISTINCT statement_timestamp() - now() > interval '0.1 s' FROM ev;
SELECT count(*) FROM ev WHERE statement_timestamp() > now() AND at < now();
INSERT INTO ev SELECT 100 + g, now() FROM generate_series(1, 20) g;
SELECT count(*) FROM ev WHERE id > 100 AND at <= 'now';
UPDATE ev SET kind = 'y' WHERE id > 100 AND at <= 'now';
SELECT count(*) FROM ev WHERE kind = 'y';
DELETE FROM ev WHERE id > 100 AND at = 'now';
SELECT count(*) FROM ev;
ROLLBACK;
CREATE SCHEMA mock;
CREATE FUNCTION mock.now() RETURNS timestamptz LANGUAGE sql IMMUTABLE AS $$ SELECT '2020-01-01 00:00+00'::timestamptz $$;
SET search_path = mock, pg_catalog, public;
SELECT now(), id FROM ev WHERE id < 4 ORDER BY id;
SELECT count(*) FROM ev WHERE at < now();
UPDATE ev SET at = now() WHERE id < 9;
SELECT count(*) FROM ev WHERE at = '2020-01-01 00:00+00';
