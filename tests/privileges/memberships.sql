--! distribution replicated:
--! distribution by_key: ledger HASH (id); logs ROUND ROBIN
--! distribution spread: ledger ROUND ROBIN; logs HASH (entry)
-- Membership, and who a session is.
--@ postgres
CREATE ROLE test_group;
CREATE ROLE test_other_group;
CREATE ROLE test_member LOGIN INHERIT IN ROLE test_group;
CREATE ROLE test_formal LOGIN NOINHERIT IN ROLE test_group, test_other_group;
CREATE ROLE test_stranger LOGIN;
CREATE ROLE test_admin LOGIN SUPERUSER;
GRANT CREATE ON SCHEMA public TO test_group;
CREATE TABLE ledger (id int, entry text, who text DEFAULT current_user);
CREATE TABLE logs (entry text);
INSERT INTO ledger (id, entry) SELECT n, 'e' || n FROM generate_series(1, 9) n;
INSERT INTO logs SELECT 'e' || n FROM generate_series(1, 5) n;
GRANT SELECT, INSERT ON ledger TO test_group;
GRANT SELECT ON logs TO test_other_group;
--@ member
SELECT count(*) FROM ledger;
SELECT count(*) FROM logs;
SELECT count(*) FROM ledger l JOIN logs g ON g.entry = l.entry;
SET ROLE test_group;
SELECT current_user, session_user;
SELECT DISTINCT current_user::text, session_user::text FROM ledger;
INSERT INTO ledger (id, entry) VALUES (10, 'ten');
INSERT INTO ledger (id, entry) SELECT n, 'many' FROM generate_series(11, 15) n;
RESET ROLE;
INSERT INTO ledger (id, entry) VALUES (16, 'sixteen');
SELECT who, count(*) FROM ledger GROUP BY who ORDER BY who;
SET ROLE test_other_group;
SET ROLE test_admin;
SET SESSION AUTHORIZATION test_stranger;
SET SESSION AUTHORIZATION test_member;
--@ formal
SELECT count(*) FROM ledger;
SET ROLE test_group;
SELECT count(*) FROM ledger;
SELECT count(*) FROM ledger l JOIN logs g ON g.entry = l.entry;
PREPARE p AS SELECT count(*) FROM ledger;
EXECUTE p;
SET ROLE test_other_group;
EXECUTE p;
SELECT count(*) FROM logs;
SELECT count(*) FROM ledger;
RESET ROLE;
EXECUTE p;
BEGIN;
SET LOCAL ROLE test_group;
SELECT count(*) FROM ledger;
EXECUTE p;
COMMIT;
SELECT count(*) FROM ledger;
BEGIN;
SET ROLE test_group;
SELECT current_user;
ROLLBACK;
SELECT current_user;
SELECT set_config('role', 'test_group', false);
SELECT current_user, count(*) FROM ledger;
SELECT set_config('role', 'none', false);
SELECT current_user;
SELECT count(*) FROM ledger;
SET ROLE test_group;
DISCARD ALL;
SELECT current_user;
SELECT count(*) FROM ledger;
SET ROLE test_group;
RESET ALL;
SELECT current_user;
CREATE TABLE made (id int);
SELECT relowner::regrole::text FROM pg_class WHERE relname = 'made';
RESET ROLE;
DROP TABLE made;
SELECT * FROM made;
--@ formal 2
SELECT current_user;
SELECT count(*) FROM ledger;
--@ stranger
SET ROLE test_group;
SELECT count(*) FROM ledger;
--@ postgres
GRANT test_group TO test_stranger;
--@ stranger
SELECT count(*) FROM ledger;
SET ROLE test_group;
SELECT count(*) FROM ledger;
--@ postgres
REVOKE test_group FROM test_stranger;
--@ stranger
SET ROLE NONE;
SELECT count(*) FROM ledger;
SET ROLE test_group;
--@ admin
SET SESSION AUTHORIZATION test_stranger;
SELECT current_user, session_user;
SELECT count(*) FROM ledger;
SELECT count(*) FROM ledger a JOIN ledger b ON a.entry = b.entry;
SET ROLE test_group;
RESET SESSION AUTHORIZATION;
SELECT current_user, session_user;
SELECT count(*) FROM ledger;
SET ROLE test_group;
SET SESSION AUTHORIZATION test_member;
SELECT current_user, session_user;
SELECT DISTINCT current_user::text, session_user::text FROM ledger;
SELECT count(*) FROM logs;
SET SESSION AUTHORIZATION DEFAULT;
SELECT current_user, session_user;
BEGIN;
SET LOCAL SESSION AUTHORIZATION test_stranger;
SELECT current_user;
ROLLBACK;
SELECT current_user;
SELECT count(*) FROM ledger;
SET ROLE test_stranger;
SELECT count(*) FROM ledger;
ALTER TABLE ledger ADD COLUMN x int;
--@ admin 2
SELECT current_user, session_user;
SELECT count(*) FROM ledger;
-- Default privileges.
--@ postgres
ALTER DEFAULT PRIVILEGES FOR ROLE test_member IN SCHEMA public GRANT SELECT ON TABLES TO test_stranger;
GRANT CREATE ON SCHEMA public TO test_member;
--@ member
CREATE TABLE shared_later (id int);
INSERT INTO shared_later SELECT n FROM generate_series(1, 5) n;
--@ stranger
SELECT sum(id) FROM shared_later;
INSERT INTO shared_later VALUES (6);
--@ postgres
ALTER DEFAULT PRIVILEGES FOR ROLE test_member IN SCHEMA public REVOKE SELECT ON TABLES FROM test_stranger;
--@ member
CREATE TABLE kept (id int);
--@ stranger
SELECT * FROM kept;
--@ postgres
REASSIGN OWNED BY test_member TO test_admin;
DROP OWNED BY test_member;
--@ member
SELECT * FROM kept;
