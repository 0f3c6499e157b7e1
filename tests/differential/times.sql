-- The current time, which is one in all of a statement, and its names.
--! distribution apart: kept HASH (id); sales HASH (id); ev ROUND ROBIN; tm_one HASH (a); tm_key HASH (a, at)
--! distribution mixed: kept REPLICATED; sales REPLICATED; ev HASH (id); tm_one HASH (a); tm_key HASH (a, at)

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
RESET search_path;
CREATE FUNCTION now(tz text) RETURNS text LANGUAGE sql IMMUTABLE AS $$ SELECT 'x' || $1 $$;
SELECT id, now(kind) FROM ev WHERE id < 3 ORDER BY id;
UPDATE ev SET kind = now(kind) WHERE id < 4;
SELECT count(*) FROM ev WHERE now(kind) = 'xxtoday';
INSERT INTO sales (id) SELECT g FROM generate_series(101, 106) g;
CREATE TABLE kept (id int PRIMARY KEY, at timestamptz, d date, note text);
INSERT INTO kept SELECT g FROM generate_series(1, 20) g;
INSERT INTO kept (id) VALUES (1), (2), (3), (4), (5), (6) ON CONFLICT (id) DO UPDATE SET at = now(), d = 'today', note = 'now';
SELECT count(DISTINCT at), count(DISTINCT d), min(note) FROM kept WHERE at IS NOT NULL;
INSERT INTO kept SELECT g FROM generate_series(1, 9) g ON CONFLICT (id) DO UPDATE SET (at, d) = (CURRENT_TIMESTAMP, CURRENT_DATE), note = excluded.id;
SELECT count(DISTINCT at), bool_and(d = CURRENT_DATE) FROM kept WHERE at IS NOT NULL;
INSERT INTO kept SELECT g FROM generate_series(31, 36) g ON CONFLICT DO NOTHING RETURNING now() = CURRENT_TIMESTAMP, CURRENT_DATE = now()::date;
UPDATE kept SET (at, d) = ('now', 'today');
SELECT count(DISTINCT at), count(DISTINCT d) FROM kept;
UPDATE kept SET (at, d) = ROW ('now', 'today'), note = 'now';
SELECT count(DISTINCT at), count(DISTINCT d), min(note) FROM kept;
-- A literal is a time by what stands beside it, wherever that is.
UPDATE kept SET at = greatest(at, 'now');
SELECT count(DISTINCT at), count(*) FROM kept;
DELETE FROM kept WHERE now() <> 'now' OR nullif(now(), 'now') IS NOT NULL;
SELECT count(*) FROM kept;
BEGIN;
SELECT count(*) FROM kept WHERE id = 1;
SELECT pg_sleep(0.1);
INSERT INTO kept (id, at, d) SELECT id + 100, 'now', 'today' FROM kept;
SELECT count(DISTINCT at), bool_and(at = now()), count(DISTINCT d) FROM kept WHERE id > 100;
UPDATE kept SET at = CASE WHEN id > 100 THEN 'now' ELSE now() END, note = 'now';
SELECT count(DISTINCT at), bool_and(at = now()), min(note) FROM kept;
SELECT count(*) FROM kept WHERE ('now', id) = (now(), id) AND 'now' = ANY (ARRAY[now(), at]) AND 'now' IN (SELECT now()) AND at = coalesce(NULL, 'now');
SELECT count(*) FROM kept WHERE now() IN (SELECT 'now' UNION SELECT now()) AND now() IN (VALUES (now()), ('now'));
ROLLBACK;
-- refused in apart: each node would read it as its own time
UPDATE kept SET note = 'early' WHERE tstzrange('now', NULL) @> (at - interval '1 day');
-- refused in apart: each node would read it as its own time
SELECT count(*) FROM kept WHERE age('now', at) > interval '1 day';
-- refused in apart: a cast by another name
UPDATE kept SET at = timestamptz(text 'now');
SELECT count(*) FROM kept WHERE note || 'now' = 'nownow' OR note LIKE 'today%' OR lower('Tomorrow') = note;
-- One statement has one time, also where its rows go through the gateway.
CREATE TABLE tm_one (a int, b int, at timestamptz DEFAULT now());
CREATE TABLE tm_key (a int, at timestamptz DEFAULT now());
INSERT INTO tm_one (a, b) VALUES (1, 1), (2, 2), (3, 3) RETURNING at = now() AS same, a;
INSERT INTO tm_one VALUES (4, 1, now()), (5, 2, now()) RETURNING at = now() AS same, a;
INSERT INTO tm_one SELECT n, n, now() FROM generate_series(6, 9) n RETURNING at = now() AS same, a;
INSERT INTO tm_key (a) VALUES (7) RETURNING at = now() AS same;
INSERT INTO tm_key (a) VALUES (8), (9) RETURNING at = now() AS same, a;
SELECT count(*) FROM tm_key k WHERE EXISTS (SELECT FROM tm_key o WHERE o.a = k.a AND o.at = k.at);
DROP TABLE tm_one, tm_key;
