--! distribution replicated: papers REPLICATED; kept ROUND ROBIN
--! distribution by_id: papers HASH (id); into_spread HASH (tenant); kept HASH (tenant)
--! distribution by_tenant: papers HASH (tenant); into_spread HASH (n); kept HASH (n)
-- What another role's view shows is what policies show to that role, and needs no right on its table, whatever statement reads it.
--@ postgres
CREATE ROLE test_owner LOGIN;
CREATE ROLE test_lender LOGIN;
CREATE ROLE test_reader LOGIN;
GRANT CREATE ON SCHEMA public TO test_owner, test_lender, test_reader;
--@ owner
CREATE TABLE papers (id int, tenant text, size int);
INSERT INTO papers SELECT n, 't' || n % 3, n FROM generate_series(1, 90) n;
ALTER TABLE papers ENABLE ROW LEVEL SECURITY;
CREATE POLICY small ON papers TO test_reader USING (size < 10);
CREATE POLICY large ON papers TO test_lender USING (size > 80);
GRANT SELECT ON papers TO test_lender, test_reader;
--@ lender
CREATE VIEW lent AS SELECT id, tenant, size FROM papers;
GRANT SELECT ON lent TO test_reader;
--@ reader
CREATE TABLE into_home (tenant text, n bigint);
CREATE TABLE into_spread (tenant text, n bigint);
SELECT min(size), max(size), count(*) FROM papers;
SELECT min(size), max(size), count(*) FROM lent;
SELECT size FROM lent ORDER BY size LIMIT 2;
SELECT tenant, count(*) FROM lent GROUP BY tenant ORDER BY tenant;
COPY (SELECT size FROM lent ORDER BY size LIMIT 2) TO STDOUT;
COPY (SELECT tenant, count(*), min(size) FROM lent GROUP BY tenant ORDER BY tenant) TO STDOUT;
COPY (SELECT count(*) FROM lent) TO STDOUT;
BEGIN;
DECLARE c CURSOR FOR SELECT min(size), max(size) FROM lent;
FETCH ALL FROM c;
DECLARE d CURSOR FOR SELECT tenant, size FROM lent ORDER BY size;
FETCH 3 FROM d;
SELECT count(*), sum(size) FROM lent;
COMMIT;
INSERT INTO into_home SELECT tenant, size FROM lent;
INSERT INTO into_home SELECT tenant, count(*) FROM lent GROUP BY tenant;
SELECT * FROM into_home ORDER BY n, tenant;
INSERT INTO into_spread SELECT tenant, size FROM lent;
INSERT INTO into_spread SELECT tenant, count(*) FROM lent GROUP BY tenant;
SELECT * FROM into_spread ORDER BY n, tenant;
CREATE TABLE kept AS SELECT 'all'::text AS tenant, count(*) AS n FROM lent;
SELECT * FROM kept;
CREATE TABLE kept_at_home AS SELECT min(size), max(size), count(*) FROM lent;
SELECT * FROM kept_at_home;
CREATE TEMPORARY TABLE kept_temporarily AS SELECT min(size), max(size), count(*) FROM lent;
SELECT * FROM kept_temporarily;
--@ owner
REVOKE SELECT ON papers FROM test_reader;
--@ reader
SELECT count(*) FROM papers;
SELECT count(*) FROM lent;
COPY (SELECT tenant, count(*) FROM lent GROUP BY tenant ORDER BY tenant) TO STDOUT;
BEGIN;
DECLARE c CURSOR FOR SELECT min(size), max(size) FROM lent;
FETCH ALL FROM c;
COMMIT;
INSERT INTO into_home SELECT tenant, count(*) FROM lent GROUP BY tenant;
CREATE TABLE kept_too AS SELECT tenant, count(*) AS n FROM lent GROUP BY tenant;
SELECT * FROM kept_too ORDER BY tenant;
COPY (SELECT count(*) FROM papers) TO STDOUT;
INSERT INTO into_home SELECT tenant, count(*) FROM papers GROUP BY tenant;
--@ lender
INSERT INTO into_home SELECT 'not mine', 1;
COPY (SELECT count(*) FROM lent) TO STDOUT;
