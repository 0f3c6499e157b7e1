--! distribution replicated:
--! distribution by_key: accounts HASH (id); audit ROUND ROBIN; rates REPLICATED
--! distribution spread: accounts ROUND ROBIN; audit HASH (account); rates HASH (code)
-- Rights on tables and columns: what a role may read, write and be told.
--@ postgres
CREATE ROLE test_owner LOGIN;
CREATE ROLE test_reader LOGIN;
CREATE ROLE test_writer LOGIN;
CREATE ROLE test_nobody LOGIN;
GRANT CREATE ON SCHEMA public TO test_owner;
--@ owner
CREATE TABLE accounts (id int NOT NULL, owner text, balance numeric, secret text);
CREATE TABLE audit (account int, what text);
CREATE TABLE rates (code text, rate numeric);
INSERT INTO accounts SELECT n, 'o' || n % 3, n * 10, 'secret ' || n FROM generate_series(1, 12) n;
INSERT INTO audit SELECT n % 12 + 1, 'w' || n FROM generate_series(1, 24) n;
INSERT INTO rates VALUES ('a', 1.5), ('b', 2.5);
GRANT SELECT (id, owner), UPDATE (owner) ON accounts TO test_reader;
GRANT SELECT ON rates TO test_reader, test_writer;
GRANT INSERT ON audit TO test_writer;
GRANT UPDATE ON accounts TO test_writer;
GRANT DELETE ON rates TO test_writer;
--@ nobody
SELECT * FROM accounts;
SELECT id FROM accounts WHERE id = 3;
SELECT count(*) FROM accounts;
SELECT 1 FROM accounts WHERE false;
SELECT 1 FROM accounts WHERE id = NULL;
SELECT 1 FROM accounts LIMIT 0;
SELECT a.id FROM accounts a JOIN audit w ON a.id = w.account;
SELECT a.id FROM accounts a JOIN audit w ON a.owner = w.what WHERE a.id = 1;
INSERT INTO accounts VALUES (99, 'x', 1, 's');
INSERT INTO accounts SELECT 99, 'x', 1, 's' WHERE false;
INSERT INTO accounts SELECT * FROM accounts WHERE false;
UPDATE accounts SET owner = 'x' WHERE id = 1;
UPDATE accounts SET owner = 'x' WHERE false;
DELETE FROM accounts;
DELETE FROM accounts WHERE id = 4;
TRUNCATE accounts;
COPY accounts TO STDOUT;
COPY accounts FROM STDIN;
\.
COPY (SELECT id FROM accounts) TO STDOUT;
LOCK TABLE accounts IN ACCESS SHARE MODE;
EXPLAIN (COSTS OFF) SELECT * FROM accounts;
-- shape only: the number of rows of a plan
ANALYZE accounts;
CREATE INDEX ON accounts (owner);
ALTER TABLE accounts ADD COLUMN more int;
DROP TABLE accounts;
CREATE TABLE own (id int);
GRANT SELECT ON accounts TO test_nobody;
COMMENT ON TABLE accounts IS 'mine';
--@ reader
SELECT id, owner FROM accounts ORDER BY id;
SELECT id FROM accounts WHERE id = 3;
SELECT owner, count(*) FROM accounts GROUP BY owner ORDER BY owner;
SELECT count(*) FROM accounts;
SELECT sum(id) FROM accounts;
SELECT balance FROM accounts;
SELECT balance FROM accounts WHERE id = 3;
SELECT sum(balance) FROM accounts;
SELECT id FROM accounts WHERE secret LIKE '%3';
SELECT id FROM accounts ORDER BY balance;
SELECT * FROM accounts;
SELECT a FROM accounts a;
SELECT a.id, r.code FROM accounts a JOIN rates r ON r.rate * 2 = a.id ORDER BY a.id;
SELECT a.id, r.code FROM accounts a JOIN rates r ON r.rate * 2 = a.balance;
SELECT a.id FROM accounts a JOIN audit w ON a.id = w.account;
SELECT (SELECT max(secret) FROM accounts);
SELECT max(id) FROM accounts a WHERE EXISTS (SELECT FROM accounts b WHERE b.owner = a.owner AND b.id > a.id);
SELECT max(id) FROM accounts a WHERE EXISTS (SELECT FROM accounts b WHERE b.secret = a.owner);
WITH a AS (SELECT id, owner FROM accounts) SELECT count(*) FROM a x JOIN a y USING (owner);
WITH a AS (SELECT * FROM accounts) SELECT count(*) FROM a;
UPDATE accounts SET owner = 'mine' WHERE id = 5;
UPDATE accounts SET owner = 'mine' WHERE id = 5 RETURNING id;
UPDATE accounts SET owner = 'mine' WHERE id = 5 RETURNING balance;
UPDATE accounts SET owner = upper(owner);
UPDATE accounts SET owner = secret WHERE id = 5;
UPDATE accounts SET balance = 0;
UPDATE accounts SET owner = 'q' WHERE balance > 50;
UPDATE accounts SET owner = r.code FROM rates r WHERE r.rate * 2 = accounts.id;
SELECT id, owner FROM accounts WHERE id = 5 FOR UPDATE;
SELECT secret FROM accounts WHERE id = 5 FOR UPDATE;
DELETE FROM accounts WHERE id = 5;
COPY accounts (id, owner) TO STDOUT;
COPY accounts TO STDOUT;
COPY accounts (id, secret) TO STDOUT;
EXPLAIN (COSTS OFF) UPDATE accounts SET balance = 0;
PREPARE p AS SELECT secret FROM accounts WHERE id = 3;
EXECUTE p;
DEALLOCATE p;
--@ writer
INSERT INTO audit VALUES (1, 'new');
INSERT INTO audit VALUES (1, 'new'), (2, 'new'), (3, 'new') ;
INSERT INTO audit VALUES (1, 'new') RETURNING what;
INSERT INTO audit SELECT n, 'g' FROM generate_series(1, 5) n;
INSERT INTO audit SELECT 1, code FROM rates;
INSERT INTO audit SELECT id, owner FROM accounts;
INSERT INTO audit SELECT account, what FROM audit;
COPY audit FROM STDIN;
1	copied
2	copied
\.
COPY audit TO STDOUT;
COPY rates FROM STDIN;
c	1
\.
UPDATE accounts SET balance = 1;
UPDATE accounts SET balance = balance + 1;
UPDATE accounts SET balance = 1 WHERE id = 2;
UPDATE accounts SET balance = 2 RETURNING 1;
UPDATE accounts SET balance = 2 RETURNING id;
DELETE FROM rates;
DELETE FROM rates RETURNING code;
DELETE FROM rates WHERE code = 'a';
DELETE FROM rates USING accounts WHERE accounts.owner = rates.code;
UPDATE rates SET rate = 1;
TRUNCATE audit;
--@ owner
SELECT id, owner, balance FROM accounts ORDER BY id;
SELECT account, what, count(*) FROM audit GROUP BY account, what ORDER BY account, what;
SELECT * FROM rates ORDER BY code;
-- What is taken back is gone at once, also for sessions that are connected and statements that
-- are prepared.
--@ reader
PREPARE p AS SELECT id, owner FROM accounts ORDER BY id LIMIT 2;
EXECUTE p;
PREPARE q (int) AS SELECT owner FROM accounts WHERE id = $1;
EXECUTE q (3);
--@ reader 2
PREPARE p AS SELECT id, owner FROM accounts ORDER BY id LIMIT 2;
EXECUTE p;
--@ owner
REVOKE SELECT (owner) ON accounts FROM test_reader;
--@ reader
EXECUTE p;
EXECUTE q (3);
SELECT owner FROM accounts;
SELECT id FROM accounts ORDER BY id LIMIT 2;
--@ reader 2
EXECUTE p;
--@ owner
GRANT SELECT ON accounts TO test_reader;
--@ reader 2
EXECUTE p;
SELECT secret FROM accounts ORDER BY id;
SELECT count(*) FROM accounts a JOIN accounts b ON a.secret = b.secret;
--@ owner
REVOKE ALL ON accounts FROM test_reader;
--@ reader 2
EXECUTE p;
SELECT count(*) FROM accounts a JOIN accounts b ON a.secret = b.secret;
--@ owner
BEGIN;
GRANT SELECT ON accounts TO test_reader;
--@ reader
SELECT count(*) FROM accounts;
--@ owner
COMMIT;
--@ reader
SELECT count(*) FROM accounts;
--@ postgres
ALTER TABLE accounts OWNER TO test_writer;
--@ owner
SELECT count(*) FROM accounts;
GRANT SELECT ON accounts TO test_nobody;
--@ writer
SELECT count(*) FROM accounts;
GRANT SELECT (id) ON accounts TO test_nobody WITH GRANT OPTION;
--@ nobody
SELECT sum(id) FROM accounts;
GRANT SELECT (id) ON accounts TO test_owner;
GRANT SELECT (secret) ON accounts TO test_owner;
--@ owner
SELECT sum(id) FROM accounts;
SELECT sum(balance) FROM accounts;
