--! distribution replicated:
--! distribution by_key: people HASH (id); logs ROUND ROBIN; cities REPLICATED; numbered HASH (k); orders HASH (person); dated HASH (id)
--! distribution by_name: people HASH (name); logs HASH (person); cities REPLICATED; numbered HASH (k); orders HASH (id); dated HASH (id)
--! changes data
-- Writes through views that PostgreSQL writes through by itself.

CREATE TABLE people (id int, name text, city text DEFAULT 'none', age int, double int GENERATED ALWAYS AS (age * 2) STORED, PRIMARY KEY (id, name));
CREATE TABLE logs (person int, what text);
CREATE TABLE cities (city text PRIMARY KEY, country text);
CREATE TABLE numbered (k int PRIMARY KEY, n serial, t text);
CREATE TABLE orders (id int, person int, total int);
CREATE TABLE dated (id int PRIMARY KEY, v int, made timestamptz DEFAULT now());
INSERT INTO people (id, name, city, age) SELECT i, 'p' || i, CASE i % 3 WHEN 0 THEN 'Oslo' WHEN 1 THEN 'Rome' ELSE 'Paris' END, i * 2 FROM generate_series(1, 30) i;
INSERT INTO logs SELECT i % 10, 'w' || i FROM generate_series(1, 30) i;
INSERT INTO cities VALUES ('Oslo', 'Norway'), ('Rome', 'Italy'), ('Paris', 'France');
INSERT INTO numbered (k, t) SELECT i, 't' || i FROM generate_series(1, 10) i;
INSERT INTO orders SELECT i, i % 12, i * 10 FROM generate_series(1, 40) i;
CREATE VIEW everyone AS SELECT * FROM people;
CREATE VIEW romans AS SELECT name, id AS number, age AS years FROM people WHERE city = 'Rome';
CREATE VIEW adults AS SELECT id, name, age, city FROM people WHERE age >= 18 WITH CASCADED CHECK OPTION;
CREATE VIEW old_adults AS SELECT id, name, age, city FROM adults WHERE age < 50 WITH LOCAL CHECK OPTION;
CREATE VIEW in_italy WITH (security_barrier) AS SELECT id, name, city FROM people WHERE city IN (SELECT city FROM cities WHERE country = 'Italy');
CREATE VIEW invoked WITH (security_invoker) AS SELECT id, name, age + 1 AS next, age FROM people;
CREATE VIEW keyless AS SELECT age, city FROM people;
CREATE VIEW all_logs AS SELECT what, person FROM logs;
CREATE VIEW with_default AS SELECT id, name, city, age FROM people;
ALTER VIEW with_default ALTER COLUMN city SET DEFAULT 'of the view';
CREATE VIEW numbers_shown AS SELECT n, t, k FROM numbered;
CREATE VIEW numbers_hidden AS SELECT t, k FROM numbered;
CREATE VIEW dates AS SELECT made, id, v FROM dated;
CREATE VIEW undated AS SELECT id, v FROM dated;
CREATE VIEW counted AS SELECT city, count(*) FROM people GROUP BY city;
CREATE VIEW limited AS SELECT id, name FROM people LIMIT 5;

-- one row
UPDATE everyone SET age = 1 WHERE id = 3 AND name = 'p3';
UPDATE everyone SET age = 2 WHERE id = 3 AND name = 'p3' RETURNING *;
UPDATE romans SET years = years + 1 WHERE number = 4 RETURNING name, years;
UPDATE romans SET years = years + 1 WHERE number = 5 RETURNING name, years;
DELETE FROM romans WHERE number = 7 RETURNING *;
-- bind: 10
-- bind: 11
UPDATE romans r SET years = $1 WHERE r.number = $1 RETURNING r.name, r.years;
-- bind: p13
UPDATE romans SET years = 100 WHERE name = $1 RETURNING number;
INSERT INTO everyone (id, name, age) VALUES (101, 'x1', 5) RETURNING id, name, city, age, double;
INSERT INTO romans (number, name) VALUES (102, 'x2') RETURNING *;
INSERT INTO romans VALUES ('x3', 103, 7);
-- bind: 104 | x4
-- bind: 105 | x5
INSERT INTO everyone (id, name) VALUES ($1, $2) RETURNING id, city;
SELECT id, name, city, age FROM people ORDER BY id;

-- many
UPDATE everyone SET age = age + 1;
UPDATE romans SET years = 0 WHERE years > 40 RETURNING number, years;
UPDATE in_italy SET city = 'Milan' WHERE id > 20 RETURNING id, city;
UPDATE invoked SET age = next WHERE age < 20;
UPDATE invoked SET next = 5;
UPDATE keyless SET age = 77 WHERE city = 'Paris';
DELETE FROM keyless WHERE age = 77 AND city = 'none';
UPDATE all_logs SET what = upper(what) WHERE person = 4;
DELETE FROM all_logs WHERE person = 5 RETURNING person;
UPDATE romans r SET years = o.total FROM orders o WHERE o.person = r.number RETURNING r.number;
UPDATE everyone e SET age = c.length FROM (SELECT city, length(country) FROM cities) c WHERE c.city = e.city;
UPDATE romans SET years = (SELECT count(*) FROM logs WHERE person = number);
DELETE FROM everyone e USING orders o WHERE o.person = e.id AND o.total = 250 RETURNING e.id, o.id;
DELETE FROM romans WHERE number IN (SELECT person FROM orders WHERE total < 50);
INSERT INTO dates (id, v) SELECT i, i FROM generate_series(1, 20) i;
SELECT count(DISTINCT made) FROM dated;
UPDATE dates SET made = now() WHERE v > 3;
SELECT count(DISTINCT made) FROM dated;
UPDATE dates SET made = '2020-01-01' WHERE id IN (5, 6, 7) RETURNING *;
INSERT INTO undated VALUES (31, 1);
-- bind: 32
INSERT INTO undated VALUES ($1, 1) RETURNING v;
-- refused in by_key, by_name: each node would give its rows another time
INSERT INTO undated SELECT i, i FROM generate_series(41, 60) i;
UPDATE undated SET v = v + 1;
SELECT id, v FROM dated ORDER BY id;
INSERT INTO everyone (id, name, age) VALUES (201, 'y1', 1), (202, 'y2', 2), (203, 'y3', 3), (204, 'y4', DEFAULT) RETURNING id, name, city, double;
INSERT INTO everyone (id, name, age) SELECT i, 'z' || i, i FROM generate_series(301, 320) i;
INSERT INTO everyone (id, name, age) SELECT id + 400, name, age FROM everyone WHERE id < 10;
INSERT INTO all_logs SELECT what || '!', person FROM logs WHERE person < 3;
INSERT INTO all_logs (person, what) VALUES (91, 'a'), (92, 'b'), (93, 'c');
INSERT INTO everyone (id, name, age) VALUES (201, 'y1', 100), (205, 'y5', 100) ON CONFLICT (id, name) DO UPDATE SET age = EXCLUDED.age RETURNING id, age;
INSERT INTO everyone (id, name) VALUES (201, 'y1'), (206, 'y6') ON CONFLICT DO NOTHING;
SELECT id, name, city, age, double FROM people ORDER BY id, name;
SELECT person, what FROM logs ORDER BY person, what;

-- CHECK OPTION
UPDATE adults SET age = 20 WHERE id = 25;
UPDATE adults SET age = 10 WHERE id = 25;
UPDATE adults SET age = age - 15;
INSERT INTO adults (id, name, age) VALUES (601, 'a', 40), (602, 'b', 41), (603, 'c', 17);
INSERT INTO old_adults (id, name, age) VALUES (601, 'a', 40), (602, 'b', 41), (603, 'c', 60);
INSERT INTO old_adults (id, name, age, city) VALUES (604, 'a', 17, 'Rome');
INSERT INTO old_adults (id, name, age, city) VALUES (605, 'a', 18, 'Rome') RETURNING *;
INSERT INTO adults (id, name, age) SELECT i, 'g', i - 600 FROM generate_series(620, 625) i;
INSERT INTO adults (id, name, age) SELECT i, 'g', i - 620 FROM generate_series(620, 625) i;
SELECT id, name, city, age FROM people WHERE id > 600 ORDER BY id;

-- defaults
INSERT INTO with_default (id, name) VALUES (701, 'd1'), (702, 'd2'), (703, 'd3') RETURNING *;
INSERT INTO with_default (id, name, city) VALUES (704, 'd4', DEFAULT) RETURNING *;
INSERT INTO with_default (id, name) SELECT i, 'd' FROM generate_series(710, 715) i;
INSERT INTO numbers_shown (k, t) VALUES (21, 'a'), (22, 'b'), (23, 'c');
INSERT INTO numbers_shown (k, t) VALUES (24, 'd') RETURNING *;
SELECT id, city FROM people WHERE id > 700 ORDER BY id;
SELECT count(DISTINCT n), max(n) FROM numbered;
-- refused in by_key, by_name: its default must be evaluated once for the whole cluster
INSERT INTO numbers_hidden (k, t) VALUES (31, 'x');
UPDATE numbers_hidden SET t = t || k WHERE k < 5;
DELETE FROM numbers_hidden WHERE k = 6;
SELECT k, t FROM numbered ORDER BY k;
INSERT INTO numbers_shown (k) VALUES (1);
UPDATE with_default SET city = DEFAULT WHERE id = 5;
UPDATE with_default SET city = DEFAULT WHERE age < 5;
SELECT id, city FROM people WHERE city = 'of the view' ORDER BY id;
-- refused in by_key, by_name: each node would evaluate the default
UPDATE with_default SET age = DEFAULT WHERE id = 5;

-- blocks
BEGIN;
UPDATE everyone SET age = 1000 WHERE id < 10;
SAVEPOINT s;
INSERT INTO everyone (id, name) VALUES (801, 'b1'), (802, 'b2'), (803, 'b3');
ROLLBACK TO s;
DELETE FROM everyone WHERE id > 300;
SELECT count(*), sum(age) FROM people;
ROLLBACK;
SELECT count(*), sum(age) FROM people;
BEGIN READ ONLY;
UPDATE everyone SET age = 1000;
ROLLBACK;
PREPARE u (int, int) AS UPDATE romans SET years = $2 WHERE number = $1 RETURNING *;
EXECUTE u (10, 5);
EXECUTE u (11, 5);

-- errors
INSERT INTO everyone (id, name, double) VALUES (901, 'e', 5);
INSERT INTO everyone (id, name, nothing) VALUES (901, 'e', 5);
INSERT INTO everyone (id, name) VALUES (101, 'x1');
INSERT INTO everyone (name) VALUES ('no id');
UPDATE everyone SET nothing = 1;
UPDATE everyone SET double = 1;
UPDATE everyone SET age = 1 / 0;
INSERT INTO invoked (id, name, next) VALUES (1, 'a', 1);
-- refused in by_key, by_name: rows would have to go to another node
UPDATE everyone SET id = id + 1000, name = name || '*';
-- refused in by_key, by_name: a view that PostgreSQL does not write through
UPDATE limited SET name = 'x';
-- refused in by_key, by_name: a view that PostgreSQL does not write through
DELETE FROM counted;
