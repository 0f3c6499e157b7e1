--! distribution replicated:
--! distribution by_tenant: docs HASH (tenant); notes HASH (id); tenants REPLICATED
--! distribution by_id: docs HASH (id); notes HASH (tenant); tenants REPLICATED
--! distribution spread: docs ROUND ROBIN; notes ROUND ROBIN; tenants REPLICATED
-- Row-level security, on every row that any plan collects.
--@ postgres
CREATE ROLE test_owner LOGIN;
CREATE ROLE test_a LOGIN;
CREATE ROLE test_b LOGIN;
CREATE ROLE test_app LOGIN;
CREATE ROLE test_all LOGIN BYPASSRLS;
GRANT CREATE ON SCHEMA public TO test_owner;
--@ owner
CREATE TABLE docs (id int, tenant text, title text, size int);
CREATE TABLE notes (id int, doc int, tenant text, note text);
CREATE TABLE tenants (tenant text, member text, active boolean);
INSERT INTO docs SELECT n, CASE n % 3 WHEN 0 THEN 'test_a' WHEN 1 THEN 'test_b' ELSE 'test_c' END, 'doc ' || n, n FROM generate_series(1, 30) n;
INSERT INTO notes SELECT n, n % 30 + 1, CASE n % 3 WHEN 0 THEN 'test_a' WHEN 1 THEN 'test_b' ELSE 'test_c' END, 'note ' || n FROM generate_series(1, 60) n;
INSERT INTO tenants VALUES ('test_a', 'test_a', true), ('test_b', 'test_b', true), ('test_c', 'test_a', false), ('test_c', 'test_b', true);
GRANT SELECT, INSERT, UPDATE, DELETE ON docs, notes TO test_a, test_b, test_app, test_all;
GRANT SELECT ON tenants TO test_a, test_b, test_app, test_all;
ALTER TABLE docs ENABLE ROW LEVEL SECURITY;
--@ a
SELECT count(*) FROM docs;
--@ owner
CREATE POLICY mine ON docs USING (tenant = current_user);
SELECT count(*) FROM docs;
--@ a
SELECT * FROM docs ORDER BY id;
SELECT * FROM docs WHERE id = 4;
SELECT * FROM docs WHERE id = 3;
SELECT * FROM docs WHERE tenant = 'test_b';
SELECT * FROM docs WHERE tenant = 'test_a' ORDER BY id;
SELECT count(*), sum(size), max(title) FROM docs;
SELECT tenant, count(*) FROM docs GROUP BY tenant ORDER BY tenant;
SELECT d.title, n.note FROM docs d JOIN notes n ON n.doc = d.id ORDER BY n.id;
SELECT count(*) FROM docs a JOIN docs b ON a.size = b.size + 3;
SELECT count(*) FROM notes n LEFT JOIN docs d ON d.id = n.doc WHERE d.id IS NULL;
SELECT count(*) FROM notes WHERE doc NOT IN (SELECT id FROM docs);
SELECT (SELECT count(*) FROM docs), (SELECT count(*) FROM notes);
SELECT DISTINCT tenant FROM docs UNION SELECT DISTINCT tenant FROM notes ORDER BY 1;
WITH d AS (SELECT * FROM docs) SELECT count(*) FROM d x JOIN d y ON x.size < y.size;
COPY docs TO STDOUT;
COPY (SELECT count(*) FROM docs) TO STDOUT;
COPY docs FROM STDIN;
\.
INSERT INTO docs VALUES (100, 'test_a', 'new', 1);
INSERT INTO docs VALUES (101, 'test_b', 'forged', 1);
INSERT INTO docs VALUES (102, 'test_a', 'new', 1), (103, 'test_b', 'forged', 1), (104, 'test_c', 'forged', 1);
INSERT INTO docs SELECT id + 200, tenant, note, 1 FROM notes WHERE tenant = 'test_a';
INSERT INTO docs SELECT id + 300, tenant, note, 1 FROM notes;
UPDATE docs SET size = 1000 WHERE id = 4;
UPDATE docs SET size = size + 1;
UPDATE docs SET tenant = 'test_b' WHERE id = 3 AND false;
DELETE FROM docs WHERE id = 4;
DELETE FROM docs WHERE size > 1 AND id > 200;
UPDATE docs SET title = n.note FROM notes n WHERE n.doc = docs.id AND n.id = 2;
DELETE FROM docs USING notes n WHERE n.doc = docs.id AND n.id = 3;
SELECT count(*) FROM docs;
CREATE POLICY wide ON docs USING (true);
ALTER TABLE docs DISABLE ROW LEVEL SECURITY;
DROP POLICY mine ON docs;
SET row_security = off;
SELECT count(*) FROM docs;
SELECT count(*) FROM docs a JOIN notes n ON n.note = a.title;
SELECT * FROM docs WHERE id = 3;
RESET row_security;
--@ b
SELECT id, tenant, size FROM docs ORDER BY id;
SELECT count(*) FROM docs d JOIN notes n ON n.doc = d.id;
--@ all
SELECT tenant, count(*), sum(size) FROM docs GROUP BY tenant ORDER BY tenant;
SELECT count(*) FROM docs d JOIN notes n ON n.doc = d.id;
SET row_security = off;
SELECT count(*) FROM docs d JOIN notes n ON n.doc = d.id;
--@ owner
SELECT count(*) FROM docs;
ALTER TABLE docs FORCE ROW LEVEL SECURITY;
SELECT count(*) FROM docs;
SELECT count(*) FROM docs d JOIN notes n ON n.doc = d.id;
INSERT INTO docs VALUES (400, 'test_a', 'x', 1);
ALTER TABLE docs NO FORCE ROW LEVEL SECURITY;
--@ postgres
SELECT count(*) FROM docs d JOIN notes n ON n.doc = d.id;
-- By a setting of the session.
--@ owner
DROP POLICY mine ON docs;
CREATE POLICY by_setting ON docs USING (tenant = current_setting('app.tenant', true)) WITH CHECK (tenant = current_setting('app.tenant', true));
ALTER TABLE notes ENABLE ROW LEVEL SECURITY;
CREATE POLICY by_setting ON notes FOR SELECT USING (tenant = current_setting('app.tenant', true));
--@ app
SELECT count(*) FROM docs;
SET app.tenant = 'test_a';
SELECT count(*) FROM docs;
SELECT count(*) FROM docs d JOIN notes n ON n.doc = d.id;
SELECT count(*) FROM docs WHERE id = 3;
BEGIN;
SET LOCAL app.tenant = 'test_b';
SELECT count(*) FROM docs;
SELECT count(*) FROM docs d JOIN notes n ON n.doc = d.id;
INSERT INTO docs VALUES (500, 'test_b', 'local', 1);
COMMIT;
SELECT count(*) FROM docs;
SELECT set_config('app.tenant', 'test_c', false);
SELECT count(*) FROM docs;
SELECT count(*) FROM docs d JOIN notes n ON n.doc = d.id;
INSERT INTO docs VALUES (501, 'test_c', 'set', 1);
INSERT INTO docs VALUES (502, 'test_a', 'set', 1);
BEGIN;
SELECT set_config('app.tenant', 'test_a', true);
SELECT count(*) FROM docs d JOIN notes n ON n.doc = d.id;
SAVEPOINT s;
SET LOCAL app.tenant = 'test_b';
SELECT count(*) FROM docs d JOIN notes n ON n.doc = d.id;
ROLLBACK TO s;
SELECT count(*) FROM docs d JOIN notes n ON n.doc = d.id;
ROLLBACK;
SELECT count(*) FROM docs d JOIN notes n ON n.doc = d.id;
PREPARE p AS SELECT count(*) FROM docs;
EXECUTE p;
PREPARE q AS SELECT count(*) FROM docs d JOIN notes n ON n.doc = d.id;
EXECUTE q;
SET app.tenant = 'test_b';
EXECUTE p;
EXECUTE q;
--@ app 2
SELECT count(*) FROM docs;
SELECT count(*) FROM docs d JOIN notes n ON n.doc = d.id;
SET app.tenant = 'test_a';
SELECT count(*) FROM docs d JOIN notes n ON n.doc = d.id;
--@ app
SELECT count(*) FROM docs d JOIN notes n ON n.doc = d.id;
RESET app.tenant;
SELECT count(*) FROM docs d JOIN notes n ON n.doc = d.id;
SET app.tenant = 'test_b';
DISCARD ALL;
SELECT count(*) FROM docs d JOIN notes n ON n.doc = d.id;
--@ owner
ALTER ROLE test_app SET app.tenant = 'test_c';
--@ app 3
SELECT count(*) FROM docs;
SELECT count(*) FROM docs d JOIN notes n ON n.doc = d.id;
-- By a replicated table of members; and policies by command and by role.
--@ owner
DROP POLICY by_setting ON docs;
DROP POLICY by_setting ON notes;
CREATE POLICY members ON docs FOR SELECT USING (EXISTS (SELECT FROM tenants t WHERE t.tenant = docs.tenant AND t.member = current_user AND t.active));
CREATE POLICY writers ON docs FOR INSERT TO test_a WITH CHECK (tenant IN (SELECT t.tenant FROM tenants t WHERE t.member = current_user));
CREATE POLICY changers ON docs FOR UPDATE USING (tenant = current_user) WITH CHECK (size < 100);
CREATE POLICY narrow ON docs AS RESTRICTIVE FOR SELECT TO test_b USING (size <> 4);
CREATE POLICY readers ON notes FOR SELECT USING (true);
--@ a
SELECT tenant, count(*) FROM docs GROUP BY tenant ORDER BY tenant;
SELECT count(*) FROM docs d JOIN notes n ON n.doc = d.id;
INSERT INTO docs VALUES (600, 'test_c', 'member, not active', 1);
INSERT INTO docs VALUES (601, 'test_b', 'no member', 1);
INSERT INTO docs VALUES (602, 'test_a', 'seen', 1) RETURNING id;
INSERT INTO docs VALUES (603, 'test_c', 'not seen', 1) RETURNING id;
UPDATE docs SET size = 99;
UPDATE docs SET size = 100 WHERE id = 6;
UPDATE docs SET size = 100;
DELETE FROM docs;
--@ b
SELECT tenant, count(*) FROM docs GROUP BY tenant ORDER BY tenant;
SELECT count(*) FROM docs d JOIN notes n ON n.doc = d.id;
INSERT INTO docs VALUES (604, 'test_b', 'no policy', 1);
UPDATE docs SET size = 4 WHERE id = 1;
--@ owner
UPDATE tenants SET active = NOT active;
--@ a
SELECT tenant, count(*) FROM docs GROUP BY tenant ORDER BY tenant;
SELECT count(*) FROM docs d JOIN notes n ON n.doc = d.id;
-- A policy that a session has a prepared statement behind.
PREPARE p AS SELECT count(*) FROM docs d JOIN notes n ON n.doc = d.id;
EXECUTE p;
--@ owner
DROP POLICY members ON docs;
--@ a
EXECUTE p;
--@ owner
CREATE POLICY members ON docs FOR SELECT USING (tenant <> current_user);
--@ a
EXECUTE p;
SELECT count(*) FROM docs WHERE tenant = 'test_a';
--@ owner
-- Views read with their owner's policies, unless they say otherwise.
GRANT SELECT ON docs TO test_owner;
CREATE VIEW titles AS SELECT id, tenant, title FROM docs;
CREATE VIEW own_titles WITH (security_invoker) AS SELECT id, tenant, title FROM docs;
GRANT SELECT ON titles, own_titles TO test_a;
--@ a
SELECT count(*) FROM titles;
SELECT tenant, count(*) FROM titles GROUP BY tenant ORDER BY tenant;
SELECT count(*) FROM own_titles;
SELECT tenant, count(*) FROM own_titles GROUP BY tenant ORDER BY tenant;
SELECT count(*) FROM titles t JOIN notes n ON n.doc = t.id;
SELECT count(*) FROM own_titles t JOIN notes n ON n.doc = t.id;
--@ owner
ALTER TABLE docs DISABLE ROW LEVEL SECURITY;
--@ a
SELECT count(*) FROM own_titles;
