-- Cursors, and portals with a row limit, over rows of several nodes. Their names differ by one letter: in tests one of
-- three neighbouring texts has its rows passed on to a connection of its own, and the others keep them.
--! distribution spread: cu HASH (k); co ROUND ROBIN; cr REPLICATED
--! distribution one copy each: cu REPLICATED; co HASH (o); cr REPLICATED
--! changes data

CREATE TABLE cu (k int PRIMARY KEY, t text, n numeric(9, 2), d timestamptz);
CREATE TABLE co (o int, k int, x float8);
CREATE TABLE cr (k int PRIMARY KEY, name text);
INSERT INTO cu SELECT n, 't' || n % 7, n * 1.5, '2024-07-01 12:00:00+00'::timestamptz + n * interval '1 hour' FROM generate_series(1, 30) n;
INSERT INTO co SELECT n, 1 + n % 40, n / 3.0 FROM generate_series(1, 90) n;
INSERT INTO cr SELECT n, 'name ' || n FROM generate_series(1, 10) n;

-- Forwards, while its transaction goes on.
BEGIN;
DECLARE c CURSOR FOR SELECT cu.k, t, o, x FROM cu JOIN co ON co.k = cu.k + 1 ORDER BY cu.k, o;
FETCH 3 FROM c;
UPDATE cu SET t = 'changed' WHERE k > 3;
DELETE FROM co WHERE o > 20;
INSERT INTO co VALUES (100, 3, 1);
FETCH 4 FROM c;
SELECT count(*), count(*) FILTER (WHERE t = 'changed') FROM cu;
MOVE 2 IN c;
FETCH FORWARD 2 FROM c;
SAVEPOINT s;
FETCH 1 FROM c;
SELECT 1 / 0;
ROLLBACK TO s;
FETCH 1 FROM c;
SET TimeZone = 'Asia/Tokyo';
SET LOCAL extra_float_digits = -9;
FETCH 2 FROM c;
RESET TimeZone;
DECLARE c CURSOR FOR SELECT 1;
ROLLBACK TO s;
FETCH ALL FROM c;
FETCH c;
CLOSE c;
FETCH c;
ROLLBACK;

-- In all directions.
BEGIN;
DECLARE c SCROLL CURSOR FOR SELECT cu.k, d, n, co.o FROM cu LEFT JOIN co ON co.k = cu.k WHERE co.o < 70 OR co.o IS NULL ORDER BY n DESC, co.o;
FETCH LAST FROM c;
FETCH PRIOR FROM c;
FETCH BACKWARD 3 FROM c;
SET DateStyle = 'German';
FETCH ABSOLUTE 5 FROM c;
FETCH RELATIVE -2 FROM c;
RESET DateStyle;
FETCH FIRST FROM c;
MOVE ALL IN c;
FETCH BACKWARD ALL FROM c;
FETCH ABSOLUTE -1 FROM c;
COMMIT;
FETCH NEXT FROM c;

-- Savepoints end those that were declared behind them.
BEGIN;
SAVEPOINT one;
DECLARE c CURSOR FOR SELECT k, t FROM cu ORDER BY k;
FETCH 2 FROM c;
SAVEPOINT two;
DECLARE cc CURSOR FOR SELECT o FROM co ORDER BY o;
FETCH 2 FROM cc;
ROLLBACK TO two;
FETCH 2 FROM c;
FETCH 2 FROM cc;
ROLLBACK TO two;
RELEASE two;
FETCH 2 FROM c;
ROLLBACK TO one;
FETCH 2 FROM c;
ROLLBACK;

-- Errors in the middle.
BEGIN;
DECLARE c NO SCROLL CURSOR FOR SELECT cu.k, 10 / (cu.k - 5) AS q FROM cu JOIN co ON co.o = cu.k ORDER BY cu.t || cu.k, 1;
SAVEPOINT s;
FETCH ALL FROM c;
ROLLBACK TO s;
FETCH 1 FROM c;
ROLLBACK TO s;
SELECT count(*) FROM cu;
COMMIT;
BEGIN;
DECLARE c NO SCROLL CURSOR FOR SELECT k FROM cu ORDER BY k;
FETCH 2 FROM c;
SAVEPOINT s;
FETCH PRIOR FROM c;
ROLLBACK TO s;
FETCH 1 FROM c;
ROLLBACK;

-- WITH HOLD.
BEGIN;
DECLARE c SCROLL CURSOR WITH HOLD FOR SELECT cu.k, t, o, x FROM cu JOIN co ON co.k = cu.k ORDER BY cu.k, o;
FETCH 2 FROM c;
UPDATE cu SET t = 'later' WHERE k < 5;
COMMIT;
FETCH 2 FROM c;
SET extra_float_digits = -5;
FETCH 3 FROM c;
RESET extra_float_digits;
BEGIN;
UPDATE cu SET t = 't' || k % 7 WHERE k < 5;
FETCH 2 FROM c;
ROLLBACK;
FETCH PRIOR FROM c;
FETCH LAST FROM c;
UPDATE cu SET t = 't' || k % 7 WHERE k < 5;
CLOSE c;
FETCH c;
DECLARE c CURSOR
  WITH  HOLD FOR SELECT o, k FROM co WHERE x > 3 ORDER BY o;
FETCH 2 FROM c;
BEGIN;
DECLARE cc CURSOR WITH HOLD FOR SELECT o FROM co ORDER BY o DESC;
FETCH 1 FROM cc;
ROLLBACK;
FETCH 1 FROM cc;
FETCH 2 FROM c;
CLOSE ALL;
FETCH c;
BEGIN;
DECLARE c CURSOR WITH HOLD FOR SELECT cu.k, 10 / (cu.k - 5) AS q FROM cu JOIN co ON co.o = cu.k ORDER BY cu.t || cu.k, 1;
UPDATE cu SET t = 'never' WHERE k < 5;
COMMIT;
FETCH c;
SELECT count(*) FROM cu WHERE t = 'never';
DECLARE c CURSOR FOR SELECT k FROM cu ORDER BY k;

-- Other isolation levels; a binary one.
BEGIN ISOLATION LEVEL REPEATABLE READ;
DECLARE c BINARY CURSOR FOR SELECT k, n FROM cu ORDER BY k;
FETCH 2 FROM c;
DECLARE cc CURSOR FOR SELECT cu.k, name FROM cu JOIN cr ON cr.k = cu.k ORDER BY 1;
FETCH 2 FROM cc;
COMMIT;
BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY;
DECLARE c CURSOR FOR SELECT cu.k, o FROM cu JOIN co USING (k) ORDER BY 1, 2;
FETCH 2 FROM c;
COMMIT;

-- Forwards, while its transaction goes on.
BEGIN;
DECLARE d CURSOR FOR SELECT cu.k, t, o, x FROM cu JOIN co ON co.k = cu.k + 1 ORDER BY cu.k, o;
FETCH 3 FROM d;
UPDATE cu SET t = 'changed' WHERE k > 3;
DELETE FROM co WHERE o > 20;
INSERT INTO co VALUES (100, 3, 1);
FETCH 4 FROM d;
SELECT count(*), count(*) FILTER (WHERE t = 'changed') FROM cu;
MOVE 2 IN d;
FETCH FORWARD 2 FROM d;
SAVEPOINT s;
FETCH 1 FROM d;
SELECT 1 / 0;
ROLLBACK TO s;
FETCH 1 FROM d;
SET TimeZone = 'Asia/Tokyo';
SET LOCAL extra_float_digits = -9;
FETCH 2 FROM d;
RESET TimeZone;
DECLARE d CURSOR FOR SELECT 1;
ROLLBACK TO s;
FETCH ALL FROM d;
FETCH d;
CLOSE d;
FETCH d;
ROLLBACK;

-- In all directions.
BEGIN;
DECLARE d SCROLL CURSOR FOR SELECT cu.k, d, n, co.o FROM cu LEFT JOIN co ON co.k = cu.k WHERE co.o < 70 OR co.o IS NULL ORDER BY n DESC, co.o;
FETCH LAST FROM d;
FETCH PRIOR FROM d;
FETCH BACKWARD 3 FROM d;
SET DateStyle = 'German';
FETCH ABSOLUTE 5 FROM d;
FETCH RELATIVE -2 FROM d;
RESET DateStyle;
FETCH FIRST FROM d;
MOVE ALL IN d;
FETCH BACKWARD ALL FROM d;
FETCH ABSOLUTE -1 FROM d;
COMMIT;
FETCH NEXT FROM d;

-- Savepoints end those that were declared behind them.
BEGIN;
SAVEPOINT one;
DECLARE d CURSOR FOR SELECT k, t FROM cu ORDER BY k;
FETCH 2 FROM d;
SAVEPOINT two;
DECLARE dd CURSOR FOR SELECT o FROM co ORDER BY o;
FETCH 2 FROM dd;
ROLLBACK TO two;
FETCH 2 FROM d;
FETCH 2 FROM dd;
ROLLBACK TO two;
RELEASE two;
FETCH 2 FROM d;
ROLLBACK TO one;
FETCH 2 FROM d;
ROLLBACK;

-- Errors in the middle.
BEGIN;
DECLARE d NO SCROLL CURSOR FOR SELECT cu.k, 10 / (cu.k - 5) AS q FROM cu JOIN co ON co.o = cu.k ORDER BY cu.t || cu.k, 1;
SAVEPOINT s;
FETCH ALL FROM d;
ROLLBACK TO s;
FETCH 1 FROM d;
ROLLBACK TO s;
SELECT count(*) FROM cu;
COMMIT;
BEGIN;
DECLARE d NO SCROLL CURSOR FOR SELECT k FROM cu ORDER BY k;
FETCH 2 FROM d;
SAVEPOINT s;
FETCH PRIOR FROM d;
ROLLBACK TO s;
FETCH 1 FROM d;
ROLLBACK;

-- WITH HOLD.
BEGIN;
DECLARE d SCROLL CURSOR WITH HOLD FOR SELECT cu.k, t, o, x FROM cu JOIN co ON co.k = cu.k ORDER BY cu.k, o;
FETCH 2 FROM d;
UPDATE cu SET t = 'later' WHERE k < 5;
COMMIT;
FETCH 2 FROM d;
SET extra_float_digits = -5;
FETCH 3 FROM d;
RESET extra_float_digits;
BEGIN;
UPDATE cu SET t = 't' || k % 7 WHERE k < 5;
FETCH 2 FROM d;
ROLLBACK;
FETCH PRIOR FROM d;
FETCH LAST FROM d;
UPDATE cu SET t = 't' || k % 7 WHERE k < 5;
CLOSE d;
FETCH d;
DECLARE d CURSOR
  WITH  HOLD FOR SELECT o, k FROM co WHERE x > 3 ORDER BY o;
FETCH 2 FROM d;
BEGIN;
DECLARE dd CURSOR WITH HOLD FOR SELECT o FROM co ORDER BY o DESC;
FETCH 1 FROM dd;
ROLLBACK;
FETCH 1 FROM dd;
FETCH 2 FROM d;
CLOSE ALL;
FETCH d;
BEGIN;
DECLARE d CURSOR WITH HOLD FOR SELECT cu.k, 10 / (cu.k - 5) AS q FROM cu JOIN co ON co.o = cu.k ORDER BY cu.t || cu.k, 1;
UPDATE cu SET t = 'never' WHERE k < 5;
COMMIT;
FETCH d;
SELECT count(*) FROM cu WHERE t = 'never';
DECLARE d CURSOR FOR SELECT k FROM cu ORDER BY k;

-- Other isolation levels; a binary one.
BEGIN ISOLATION LEVEL REPEATABLE READ;
DECLARE d BINARY CURSOR FOR SELECT k, n FROM cu ORDER BY k;
FETCH 2 FROM d;
DECLARE dd CURSOR FOR SELECT cu.k, name FROM cu JOIN cr ON cr.k = cu.k ORDER BY 1;
FETCH 2 FROM dd;
COMMIT;
BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY;
DECLARE d CURSOR FOR SELECT cu.k, o FROM cu JOIN co USING (k) ORDER BY 1, 2;
FETCH 2 FROM d;
COMMIT;

-- Forwards, while its transaction goes on.
BEGIN;
DECLARE e CURSOR FOR SELECT cu.k, t, o, x FROM cu JOIN co ON co.k = cu.k + 1 ORDER BY cu.k, o;
FETCH 3 FROM e;
UPDATE cu SET t = 'changed' WHERE k > 3;
DELETE FROM co WHERE o > 20;
INSERT INTO co VALUES (100, 3, 1);
FETCH 4 FROM e;
SELECT count(*), count(*) FILTER (WHERE t = 'changed') FROM cu;
MOVE 2 IN e;
FETCH FORWARD 2 FROM e;
SAVEPOINT s;
FETCH 1 FROM e;
SELECT 1 / 0;
ROLLBACK TO s;
FETCH 1 FROM e;
SET TimeZone = 'Asia/Tokyo';
SET LOCAL extra_float_digits = -9;
FETCH 2 FROM e;
RESET TimeZone;
DECLARE e CURSOR FOR SELECT 1;
ROLLBACK TO s;
FETCH ALL FROM e;
FETCH e;
CLOSE e;
FETCH e;
ROLLBACK;

-- In all directions.
BEGIN;
DECLARE e SCROLL CURSOR FOR SELECT cu.k, d, n, co.o FROM cu LEFT JOIN co ON co.k = cu.k WHERE co.o < 70 OR co.o IS NULL ORDER BY n DESC, co.o;
FETCH LAST FROM e;
FETCH PRIOR FROM e;
FETCH BACKWARD 3 FROM e;
SET DateStyle = 'German';
FETCH ABSOLUTE 5 FROM e;
FETCH RELATIVE -2 FROM e;
RESET DateStyle;
FETCH FIRST FROM e;
MOVE ALL IN e;
FETCH BACKWARD ALL FROM e;
FETCH ABSOLUTE -1 FROM e;
COMMIT;
FETCH NEXT FROM e;

-- Savepoints end those that were declared behind them.
BEGIN;
SAVEPOINT one;
DECLARE e CURSOR FOR SELECT k, t FROM cu ORDER BY k;
FETCH 2 FROM e;
SAVEPOINT two;
DECLARE ee CURSOR FOR SELECT o FROM co ORDER BY o;
FETCH 2 FROM ee;
ROLLBACK TO two;
FETCH 2 FROM e;
FETCH 2 FROM ee;
ROLLBACK TO two;
RELEASE two;
FETCH 2 FROM e;
ROLLBACK TO one;
FETCH 2 FROM e;
ROLLBACK;

-- Errors in the middle.
BEGIN;
DECLARE e NO SCROLL CURSOR FOR SELECT cu.k, 10 / (cu.k - 5) AS q FROM cu JOIN co ON co.o = cu.k ORDER BY cu.t || cu.k, 1;
SAVEPOINT s;
FETCH ALL FROM e;
ROLLBACK TO s;
FETCH 1 FROM e;
ROLLBACK TO s;
SELECT count(*) FROM cu;
COMMIT;
BEGIN;
DECLARE e NO SCROLL CURSOR FOR SELECT k FROM cu ORDER BY k;
FETCH 2 FROM e;
SAVEPOINT s;
FETCH PRIOR FROM e;
ROLLBACK TO s;
FETCH 1 FROM e;
ROLLBACK;

-- WITH HOLD.
BEGIN;
DECLARE e SCROLL CURSOR WITH HOLD FOR SELECT cu.k, t, o, x FROM cu JOIN co ON co.k = cu.k ORDER BY cu.k, o;
FETCH 2 FROM e;
UPDATE cu SET t = 'later' WHERE k < 5;
COMMIT;
FETCH 2 FROM e;
SET extra_float_digits = -5;
FETCH 3 FROM e;
RESET extra_float_digits;
BEGIN;
UPDATE cu SET t = 't' || k % 7 WHERE k < 5;
FETCH 2 FROM e;
ROLLBACK;
FETCH PRIOR FROM e;
FETCH LAST FROM e;
UPDATE cu SET t = 't' || k % 7 WHERE k < 5;
CLOSE e;
FETCH e;
DECLARE e CURSOR
  WITH  HOLD FOR SELECT o, k FROM co WHERE x > 3 ORDER BY o;
FETCH 2 FROM e;
BEGIN;
DECLARE ee CURSOR WITH HOLD FOR SELECT o FROM co ORDER BY o DESC;
FETCH 1 FROM ee;
ROLLBACK;
FETCH 1 FROM ee;
FETCH 2 FROM e;
CLOSE ALL;
FETCH e;
BEGIN;
DECLARE e CURSOR WITH HOLD FOR SELECT cu.k, 10 / (cu.k - 5) AS q FROM cu JOIN co ON co.o = cu.k ORDER BY cu.t || cu.k, 1;
UPDATE cu SET t = 'never' WHERE k < 5;
COMMIT;
FETCH e;
SELECT count(*) FROM cu WHERE t = 'never';
DECLARE e CURSOR FOR SELECT k FROM cu ORDER BY k;

-- Other isolation levels; a binary one.
BEGIN ISOLATION LEVEL REPEATABLE READ;
DECLARE e BINARY CURSOR FOR SELECT k, n FROM cu ORDER BY k;
FETCH 2 FROM e;
DECLARE ee CURSOR FOR SELECT cu.k, name FROM cu JOIN cr ON cr.k = cu.k ORDER BY 1;
FETCH 2 FROM ee;
COMMIT;
BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY;
DECLARE e CURSOR FOR SELECT cu.k, o FROM cu JOIN co USING (k) ORDER BY 1, 2;
FETCH 2 FROM e;
COMMIT;

-- Portals.
-- rows at a time: 4
SELECT k, t, n, d FROM cu ORDER BY k;
-- rows at a time: 7
SELECT cu.k, o, x FROM cu JOIN co ON co.k = cu.k ORDER BY 1, 2;
-- rows at a time: 3
SELECT t, count(*), sum(n) FROM cu GROUP BY t ORDER BY t;
-- rows at a time: 1
SELECT o FROM co WHERE o > 1000;
-- rows at a time: 5
INSERT INTO cu SELECT o + 1000, 'new', 1, NULL FROM co RETURNING k;
-- rows at a time: 30
SELECT k, t FROM cu WHERE k <= 30;
-- rows at a time: 2
DELETE FROM cu WHERE k > 1000 RETURNING k;
-- rows at a time: 2
SELECT 10 / (k - 5) FROM cu ORDER BY t || k;
BEGIN;
-- rows at a time: 10
SELECT o, k, x FROM co;
SELECT count(*) FROM co;
COMMIT;

-- Rows that are inserted in portions.
CREATE TABLE copied AS SELECT cu.k, t, o FROM cu JOIN co ON co.k = cu.k;
SELECT count(*), sum(k), sum(o), min(t) FROM copied;
SELECT k, t, d INTO selected FROM cu WHERE n > 10;
SELECT count(*), sum(k), max(d) FROM selected;
INSERT INTO cu SELECT k + 100, t, n, d FROM cu;
INSERT INTO cu SELECT k + 1, t, n, d FROM cu WHERE k > 120;
SELECT count(*), sum(k) FROM cu;
INSERT INTO co SELECT o + 1, k, x FROM co WHERE k = 3;
INSERT INTO co (k, o) SELECT k, max(o) FROM co GROUP BY k;
SELECT count(*), sum(o), count(x) FROM co;
