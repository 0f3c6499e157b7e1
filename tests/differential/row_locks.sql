--! distribution by_key: jobs HASH (id); logs HASH (at); steps HASH (id); kinds REPLICATED
--! distribution apart: jobs HASH (queue); logs ROUND ROBIN; steps HASH (queue); kinds REPLICATED
--! distribution replicated: jobs REPLICATED; logs REPLICATED; steps REPLICATED; kinds REPLICATED
-- FOR UPDATE with ORDER BY and LIMIT, by itself and within others.

CREATE TABLE jobs (
  id int NOT NULL,
  queue text NOT NULL,
  state text NOT NULL,
  prio numeric,
  due timestamptz NOT NULL,
  tags text[],
  PRIMARY KEY (id, queue));
CREATE TABLE logs (at int, said text);
CREATE TABLE steps (id int, queue text, due timestamptz);
CREATE TABLE kinds (k int PRIMARY KEY);
INSERT INTO jobs SELECT n, 'q' || n % 4, CASE n % 5 WHEN 0 THEN 'done' ELSE 'new' END, nullif(n % 7, 0) / 2.0, timestamptz '2020-01-01 UTC' + n * interval '1 day', ARRAY['a', n::text, NULL] FROM generate_series(1, 60) n;
INSERT INTO steps SELECT n, 'q' || n % 4, timestamptz '2020-01-01 UTC' FROM generate_series(1, 60, 3) n;
INSERT INTO kinds SELECT n FROM generate_series(1, 60, 2) n;
INSERT INTO logs SELECT n % 20, 'log ' || n FROM generate_series(1, 40) n;

SELECT * FROM jobs WHERE state = 'new' ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED;
SELECT id, tags FROM jobs WHERE state = 'new' ORDER BY prio DESC NULLS LAST, id DESC LIMIT 5 FOR UPDATE SKIP LOCKED;
SELECT id, tags FROM jobs WHERE state = 'new' ORDER BY prio NULLS FIRST, id LIMIT 5 OFFSET 3 FOR UPDATE;
SELECT j.id AS n, upper(j.queue) AS q, j FROM jobs j WHERE j.due < now() ORDER BY q DESC, 1 LIMIT 7 FOR NO KEY UPDATE OF j NOWAIT;
SELECT id FROM jobs ORDER BY lower(queue) || state, id LIMIT 6 FOR SHARE;
SELECT id FROM jobs ORDER BY id FOR UPDATE;
SELECT id FROM jobs ORDER BY id OFFSET 50 FOR UPDATE;
SELECT id FROM jobs ORDER BY id LIMIT ALL OFFSET 55 FOR UPDATE;
SELECT id FROM jobs ORDER BY id LIMIT 0 FOR UPDATE;
SELECT id FROM jobs ORDER BY id LIMIT -1 FOR UPDATE;
SELECT id FROM jobs ORDER BY id LIMIT 1 OFFSET -1 FOR UPDATE;
SELECT id FROM jobs ORDER BY id LIMIT 5 OFFSET 9223372036854775807 FOR UPDATE NOWAIT;
SELECT id FROM jobs ORDER BY id FETCH FIRST ROW ONLY FOR KEY SHARE;
SELECT id FROM jobs WHERE state = 'none' ORDER BY id LIMIT 3 FOR UPDATE;
-- shape only: any rows will do
SELECT state FROM jobs WHERE state = 'done' LIMIT 4 FOR UPDATE SKIP LOCKED;
-- shape only: any rows will do
SELECT state FROM jobs LIMIT 4 OFFSET 2 FOR UPDATE;
SELECT at, said FROM logs ORDER BY at, said LIMIT 4 FOR UPDATE;
SELECT at, said FROM logs ORDER BY said DESC LIMIT 4 FOR UPDATE SKIP LOCKED;
-- refused in by_key, apart: rows of another table elsewhere decide
SELECT id FROM jobs WHERE queue IN (SELECT 'q' || at % 4 FROM logs WHERE at < 3) ORDER BY id LIMIT 3 FOR UPDATE;
SELECT id FROM jobs WHERE id > 5 AND NOT EXISTS (SELECT 1 FROM steps s WHERE s.id = jobs.id AND s.queue = jobs.queue) ORDER BY id LIMIT 3 FOR UPDATE;
SELECT id FROM jobs j WHERE EXISTS (SELECT 1 FROM steps s WHERE s.id = j.id AND s.queue = j.queue AND s.due < now()) ORDER BY prio, id DESC LIMIT 3 FOR UPDATE SKIP LOCKED;
SELECT id FROM jobs j WHERE id = ANY (SELECT k FROM kinds WHERE k > 10) ORDER BY id DESC FOR UPDATE;
-- bind: 3 | 2
SELECT id FROM jobs j WHERE id IN (SELECT k FROM kinds WHERE k > $1) ORDER BY id LIMIT $2 FOR UPDATE NOWAIT;
-- bind: new | 3 | 0
-- bind: new | 2 | 4
-- bind: done | NULL | 9
-- bind: done | -1 | 0
-- bind: new | 0 | NULL
SELECT id, due, prio FROM jobs WHERE state = $1 ORDER BY prio, id DESC LIMIT $2 OFFSET $3 FOR UPDATE;
-- bind: new | 3
-- bind: none | 3
SELECT id, due, prio FROM jobs WHERE state = $1 ORDER BY due DESC LIMIT $2::int FOR UPDATE SKIP LOCKED;
SELECT count(*), min(id) FROM (SELECT id FROM jobs WHERE state = 'new' ORDER BY id DESC LIMIT 4 FOR UPDATE) AS s;
SELECT count(*) FROM (SELECT id FROM jobs WHERE state = 'new' FOR UPDATE) AS s;
SELECT * FROM (SELECT id, due FROM jobs WHERE state = 'new' ORDER BY id DESC LIMIT 4 FOR UPDATE) AS s ORDER BY id;
WITH j AS (SELECT id, queue FROM jobs WHERE state = 'done' ORDER BY id LIMIT 3 FOR UPDATE SKIP LOCKED) SELECT queue, count(*) FROM j GROUP BY 1 ORDER BY 1;
BEGIN;
DECLARE c CURSOR FOR SELECT id FROM jobs ORDER BY id DESC LIMIT 3 FOR UPDATE;
FETCH ALL FROM c;
UPDATE jobs SET state = 'taken' WHERE id = (SELECT id FROM jobs WHERE state = 'new' ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED) RETURNING *;
SAVEPOINT s;
UPDATE jobs SET state = 'taken', due = now() WHERE (id, queue) IN (SELECT id, queue FROM jobs WHERE state = 'new' AND due <= now() ORDER BY prio DESC NULLS LAST, id LIMIT 3 FOR UPDATE SKIP LOCKED) RETURNING id;
ROLLBACK TO s;
SELECT id FROM jobs WHERE state = 'taken' ORDER BY id LIMIT 5 FOR UPDATE;
COMMIT;
BEGIN READ ONLY;
SELECT id FROM jobs WHERE state = 'nothing of the kind' ORDER BY id LIMIT 3 FOR SHARE;
ROLLBACK;
BEGIN;
DECLARE c SCROLL CURSOR FOR SELECT id FROM jobs WHERE state = 'new' FOR KEY SHARE;
ROLLBACK;
BEGIN;
DECLARE c INSENSITIVE CURSOR FOR SELECT id FROM jobs FOR NO KEY UPDATE;
ROLLBACK;
BEGIN;
DECLARE c CURSOR WITH HOLD FOR SELECT id FROM jobs ORDER BY id LIMIT 3 FOR SHARE;
ROLLBACK;
WITH j AS (SELECT id FROM jobs WHERE state = 'new' ORDER BY id LIMIT 2 FOR UPDATE SKIP LOCKED) UPDATE jobs SET state = 'taken' FROM j WHERE jobs.id = j.id RETURNING jobs.id;
UPDATE jobs AS j SET state = 'taken' FROM (SELECT id FROM jobs WHERE state = 'new' ORDER BY id LIMIT 2 FOR UPDATE) AS s WHERE j.id = s.id RETURNING j.id, j.state;
DELETE FROM jobs WHERE id IN (SELECT id FROM jobs WHERE state = 'done' ORDER BY id DESC LIMIT 3 FOR UPDATE SKIP LOCKED) RETURNING id;
-- bind: new | 2
-- bind: none | 2
UPDATE jobs SET state = $1 || 'er' WHERE id IN (SELECT id FROM jobs WHERE state = $1 ORDER BY due, id LIMIT $2 FOR UPDATE) RETURNING id;
INSERT INTO logs SELECT id, state FROM jobs WHERE state = 'new' ORDER BY id LIMIT 3 FOR UPDATE SKIP LOCKED;
SELECT said, count(*) FROM logs WHERE said = 'new' GROUP BY 1;
UPDATE jobs SET state = 'last' WHERE id IN (SELECT id FROM jobs j WHERE state = 'new' AND NOT EXISTS (SELECT 1 FROM steps s WHERE s.id = j.id AND s.queue = j.queue) AND id IN (SELECT k FROM kinds) ORDER BY id LIMIT 2 FOR UPDATE SKIP LOCKED) RETURNING id;
SELECT id, state FROM jobs ORDER BY id;
BEGIN READ ONLY;
SELECT id FROM jobs ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED;
ROLLBACK;
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT id FROM jobs ORDER BY id LIMIT 2 FOR UPDATE;
UPDATE jobs SET state = 'seen' WHERE id = (SELECT id FROM jobs WHERE state = 'new' ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED) RETURNING id;
COMMIT;
DROP TABLE jobs, logs, steps, kinds;
