-- Joins, orders and counts of tables that are spread by different columns: parts of each node, with some tables brought
-- to every node or without, say what one server says. Which way is taken is drawn by the statement's text.
--! changes data
--! distribution apart: wc HASH (id); wo HASH (id); wl HASH (o); wr REPLICATED
--! distribution other: wc HASH (id); wo HASH (total); wl ROUND ROBIN; wr HASH (id)
--! distribution joined: wc HASH (id); wo HASH (c); wl HASH (p); wr ROUND ROBIN
--! distribution mixed: wc REPLICATED; wo HASH (id); wl HASH (o); wr HASH (id)

CREATE TABLE wc (id int PRIMARY KEY, name varchar(9), region int, born date, tags int[], note char(5), j json);
CREATE TABLE wo (id int NOT NULL, c int, total numeric(8, 2), at timestamptz, state text COLLATE "C");
CREATE TABLE wl (o int, n int, p int, q smallint, price float8);
CREATE TABLE wr (id int, name text);
INSERT INTO wc SELECT k, 'c' || k % 17, k % 5, date '2000-01-01' + k * 10, ARRAY[k, NULL], 'n' || k % 3, NULL FROM generate_series(1, 60) k;
INSERT INTO wo SELECT k, nullif(k * 7 % 66, 3), k % 23 * 1.25, timestamptz '2024-01-01 12:00+00' + k * interval '7 hours',
    (ARRAY['open', 'Paid', 'sent', NULL])[k % 4 + 1] FROM generate_series(1, 180) k;
INSERT INTO wl SELECT k % 190, k, k % 60, k % 9, (k % 16) / 4.0 FROM generate_series(1, 420) k;
INSERT INTO wr SELECT k, 'r' || k FROM generate_series(0, 6) k;

SELECT count(*), sum(total) FROM wc JOIN wo ON wo.c = wc.id;
SELECT region, count(*), sum(total), avg(total), max(at) FROM wc JOIN wo ON wo.c = wc.id GROUP BY region ORDER BY region;
SELECT wc.id, wc.name, wc.note, sum(total), count(*) FROM wc JOIN wo ON wo.c = wc.id GROUP BY wc.id ORDER BY wc.id;
SELECT wc.id, upper(wc.name), count(wo.id) FROM wc LEFT JOIN wo ON wo.c = wc.id GROUP BY wc.id HAVING count(*) > 1 AND wc.name <> 'c3' ORDER BY wc.name, wc.id;
SELECT wo.id, wo.state, wo.at, sum(q), min(price) FROM wo JOIN wl ON wl.o = wo.id GROUP BY 1, 2, 3 ORDER BY wo.at DESC LIMIT 7;
SELECT state, sum(q), count(DISTINCT p) FROM wo, wl WHERE wo.id = wl.o AND total > 5 GROUP BY state ORDER BY state;
SELECT r.name, state, sum(price * q) FROM wc c, wo o, wl l, wr r WHERE c.id = o.c AND o.id = l.o AND r.id = c.region AND l.q < 7 GROUP BY r.name, state ORDER BY 1, 2;
SELECT r.name, count(*) FROM wr r LEFT JOIN wc ON wc.region = r.id LEFT JOIN wo ON wo.c = wc.id AND wo.total > 10 GROUP BY r.name ORDER BY r.name;
SELECT wc.name, wo.id, wo.total FROM wc JOIN wo ON wo.c = wc.id ORDER BY wo.total DESC, wo.id LIMIT 10;
SELECT wc.name, wo.id, wo.total FROM wc JOIN wo ON wo.c = wc.id ORDER BY 3, 2 DESC LIMIT 5 OFFSET 4;
SELECT wc.*, wo.id FROM wc JOIN wo ON wo.c = wc.id WHERE wo.id % 9 = 0 ORDER BY wo.id;
SELECT wo.*, wc.name FROM wo LEFT JOIN wc ON wo.c = wc.id ORDER BY wo.id DESC LIMIT 8;
SELECT wo.*, wl.* FROM wo JOIN wl ON wl.o = wo.id ORDER BY wo.id, wl.n LIMIT 8;
SELECT * FROM wo JOIN wl ON wl.o = wo.id ORDER BY wl.n DESC LIMIT 3;
SELECT * FROM wo JOIN wr USING (id) ORDER BY at LIMIT 3;
SELECT *, total * 2 AS twice FROM wo JOIN wl ON wl.o = wo.id ORDER BY twice DESC, n LIMIT 3;
SELECT id, wr.name, upper(wc.name) AS name FROM wc JOIN wr USING (id) ORDER BY name, id LIMIT 4;
SELECT wo.id AS x, wl.n AS id FROM wo JOIN wl ON wl.o = wo.id ORDER BY id LIMIT 3;
SELECT wo.id, wo.total + wl.q AS s FROM wo JOIN wl ON wl.o = wo.id ORDER BY wo.total + wl.q DESC, wo.id, wl.n LIMIT 6;
SELECT wo.id, coalesce(state, '?'), CASE WHEN q > 4 THEN 'many' ELSE note END, total::int FROM wo JOIN wl ON wl.o = wo.id LEFT JOIN wc ON wc.id = wo.c ORDER BY wl.n LIMIT 9;
SELECT wo.id, row_number() OVER (PARTITION BY wc.region ORDER BY wo.total, wo.id), sum(total) OVER w FROM wo JOIN wc ON wc.id = wo.c WINDOW w AS (PARTITION BY state) ORDER BY wo.id LIMIT 11;
SELECT DISTINCT ON (wc.region) wc.region, wo.id, wo.total FROM wc JOIN wo ON wo.c = wc.id ORDER BY wc.region, wo.total DESC, wo.id;
SELECT DISTINCT wc.region, wo.state FROM wc JOIN wo ON wo.c = wc.id ORDER BY 1, 2;
SELECT DISTINCT wc.region, count(*) OVER (PARTITION BY wc.region) FROM wc JOIN wo ON wo.c = wc.id ORDER BY 1;
SELECT count(*) FROM wc WHERE EXISTS (SELECT FROM wo WHERE wo.c = wc.id AND state = 'Paid');
SELECT region, count(*) FROM wc WHERE NOT EXISTS (SELECT FROM wo WHERE wo.c = wc.id) GROUP BY region ORDER BY region;
SELECT id FROM wc WHERE id NOT IN (SELECT c FROM wo WHERE c IS NOT NULL) ORDER BY id;
SELECT id, total FROM wo WHERE c IN (SELECT id FROM wc WHERE region = 2) ORDER BY id;
SELECT state, max(total) FROM wo WHERE c = ANY (SELECT id FROM wc WHERE born > '2001-01-01') GROUP BY state ORDER BY 1;
SELECT wo.id, (SELECT count(*) FROM wl WHERE wl.p = wo.c) FROM wo ORDER BY wo.id LIMIT 5;
SELECT wo.id FROM wo WHERE total > (SELECT avg(q) FROM wl WHERE wl.p = wo.c) ORDER BY wo.id LIMIT 5;
WITH paid AS (SELECT c, total FROM wo WHERE state = 'Paid') SELECT region, sum(total) FROM wc JOIN paid ON paid.c = wc.id GROUP BY region ORDER BY region;
WITH big AS (SELECT * FROM wo WHERE total > 10) SELECT wc.name, big.id, big.total FROM wc JOIN big ON big.c = wc.id ORDER BY big.id LIMIT 5;
WITH big AS (SELECT * FROM wo WHERE total > 20) SELECT count(*) FROM big a JOIN big b ON a.c < b.c;
SELECT s.region, count(*) FROM (SELECT region, wo.id FROM wc JOIN wo ON wo.c = wc.id WHERE total > 3) s JOIN wl ON wl.o = s.id GROUP BY s.region ORDER BY 1;
SELECT a.id, b.id FROM wc a JOIN wc b ON a.region = b.region AND a.id < b.id JOIN wo ON wo.c = a.id ORDER BY a.id, b.id, wo.id LIMIT 12;
SELECT count(*) FROM wo a JOIN wo b ON a.c = b.c AND a.total < b.total;
SELECT count(*) FROM wo a FULL JOIN wl b ON a.id = b.p;
SELECT wo.id, wl.n FROM wo RIGHT JOIN wl ON wl.p = wo.id ORDER BY wl.n LIMIT 6;
SELECT wc.id, tags, wo.id FROM wc JOIN wo ON wo.c = wc.id ORDER BY wo.id LIMIT 4;
SELECT array_agg(wo.id ORDER BY wo.id), string_agg(state, ',' ORDER BY wo.id) FROM wc JOIN wo ON wo.c = wc.id WHERE wc.id < 9;
SELECT wc.name, wo.id FROM wc JOIN wo ON wo.c = wc.id AND wo.at < now() WHERE wo.total = 5 ORDER BY wo.id;
SELECT count(*) FROM wc JOIN wo ON wo.c = wc.id WHERE wo.at < CURRENT_DATE;
SELECT wc.name, wo.id FROM wc JOIN wo ON wo.c = wc.id WHERE wc.id = 7 ORDER BY wo.id;
SELECT wc.id FROM wc JOIN wo ON wo.c = wc.id WHERE 1 / (wo.id - 20) > 0 ORDER BY wc.id LIMIT 1;
SELECT ctid IS NULL FROM wc WHERE false;
-- bind: 5 | 3
SELECT wc.name, wo.id, $1::int + wo.id AS moved FROM wc JOIN wo ON wo.c = wc.id WHERE wo.total > $1 ORDER BY wo.id LIMIT $2;
-- bind: Paid
SELECT region, count(*) FROM wc JOIN wo ON wo.c = wc.id WHERE state = $1 GROUP BY region ORDER BY region;
-- bind: 2
SELECT wo.* FROM wc JOIN wo ON wo.c = wc.id WHERE wc.region = $1 AND wo.id < 40 ORDER BY wo.id;
CREATE VIEW wv AS SELECT wc.region, wo.id AS o, wo.total FROM wc JOIN wo ON wo.c = wc.id;
SELECT region, sum(total) FROM wv GROUP BY region ORDER BY region;
SELECT * FROM wv JOIN wl ON wl.o = wv.o ORDER BY wl.n LIMIT 3;
DROP VIEW wv;
CREATE TABLE wt (region int, n bigint, s numeric);
INSERT INTO wt SELECT region, count(*), sum(total) FROM wc JOIN wo ON wo.c = wc.id GROUP BY region;
INSERT INTO wt SELECT wc.region, wo.id, total FROM wc JOIN wo ON wo.c = wc.id WHERE at < now() ORDER BY wo.id LIMIT 3;
SELECT * FROM wt ORDER BY 1, 2, 3;
BEGIN;
UPDATE wo SET total = total + 1 WHERE id < 20;
SELECT region, sum(total) FROM wc JOIN wo ON wo.c = wc.id GROUP BY region ORDER BY region;
SELECT wc.name, wo.id, wo.total FROM wc JOIN wo ON wo.c = wc.id ORDER BY wo.id LIMIT 4;
ROLLBACK;
BEGIN ISOLATION LEVEL REPEATABLE READ;
UPDATE wo SET total = total + 1 WHERE id < 20;
SELECT region, sum(total) FROM wc JOIN wo ON wo.c = wc.id GROUP BY region ORDER BY region;
SELECT wc.name, wo.id, wo.total FROM wc JOIN wo ON wo.c = wc.id ORDER BY wo.id LIMIT 4;
ROLLBACK;
SET array_nulls = off;
SELECT wc.name, wo.c, state FROM wo LEFT JOIN wc ON wo.c = wc.id WHERE wo.id < 30 ORDER BY wo.id;
RESET array_nulls;
SET DateStyle = 'German';
SELECT wc.born, wo.at FROM wo JOIN wc ON wo.c = wc.id ORDER BY wo.id LIMIT 5;
RESET DateStyle;
SELECT wo.id FROM wo WHERE total > (SELECT avg(q) FROM wl WHERE wl.p = wo.c) ORDER BY wo.id;
SELECT wc.id, (SELECT max(total) FROM wo WHERE wo.c = wc.id), (SELECT state FROM wo WHERE wo.c = wc.id ORDER BY wo.id LIMIT 1) FROM wc ORDER BY wc.id;
SELECT id FROM wc WHERE EXISTS (SELECT * FROM wo JOIN wl ON wl.p = wo.id WHERE wo.c = wc.id AND wl.q > 3) ORDER BY id;
SELECT count(*) FROM wc WHERE NOT EXISTS (SELECT * FROM wo WHERE wo.c = wc.id) AND born > (SELECT avg(born - date '2000-01-01') FROM wc)::int + date '2000-01-01';
SELECT w.region, w.name FROM wc AS w (id, name, region) WHERE w.id IN (SELECT c FROM wo GROUP BY c HAVING count(*) > 2) ORDER BY w.id;
SELECT wc FROM wc WHERE id = (SELECT min(c) FROM wo WHERE wo.total > wc.region) ORDER BY id;
SELECT * FROM wc WHERE id = (SELECT min(c) FROM wo WHERE wo.total > wc.region) ORDER BY id;
SELECT y, count(*), sum(v) FROM (SELECT extract(year FROM at) AS y, total * (1 - q / 100.0) AS v FROM wo JOIN wl ON wl.o = wo.id JOIN wc ON wc.id = wo.c) s GROUP BY y ORDER BY y;
SELECT n, count(*) FROM (SELECT wc.id, count(wo.id) AS n FROM wc LEFT JOIN wo ON wo.c = wc.id AND wo.state <> 'open' GROUP BY wc.id) s GROUP BY n ORDER BY n DESC;
SELECT region, sum(total) AS revenue FROM wc JOIN wo ON wo.c = wc.id GROUP BY region ORDER BY revenue DESC, region LIMIT 3;
SELECT region AS id, count(*) AS name FROM wc GROUP BY region ORDER BY name, id;
SELECT upper(name) AS name, count(*) FROM wc GROUP BY name ORDER BY name;
SELECT upper(name) AS big, count(*) FROM wc GROUP BY big ORDER BY big DESC LIMIT 4;
SELECT count(*) AS count, region FROM wc GROUP BY 2 ORDER BY count, region;
SELECT DISTINCT ON (r) region AS r, id FROM wc ORDER BY r, id DESC;
SELECT id AS k, region FROM wc UNION ALL SELECT id, c FROM wo WHERE id < 5 ORDER BY k, region LIMIT 8;
SELECT state, max(at) FROM wo WHERE false GROUP BY state;
SELECT region, max(tags) FROM wc WHERE false GROUP BY region;
SELECT wc.name, wo.total FROM wc JOIN wo ON wo.c = wc.id WHERE wo.total < 0 ORDER BY wo.id;
SELECT wc.tags, wo.total FROM wc JOIN wo ON wo.c = wc.id WHERE wo.total < 0 ORDER BY wo.id;
SELECT a.id, b.id FROM wc a LEFT JOIN wo b ON b.c = a.id AND b.total > 20 AND a.region = 1 ORDER BY 1, 2 LIMIT 20;
SELECT a.id, b.id, c.name FROM wc a LEFT JOIN wo b ON b.c = a.id JOIN wr c ON c.id = a.region AND b.state IS NULL ORDER BY 1, 2;
SELECT a.id, b.id FROM wo b RIGHT JOIN wc a ON b.c = a.id AND b.total > 20 ORDER BY 1, 2 LIMIT 20;
SELECT wc.id FROM wc WHERE EXISTS (SELECT * FROM wo WHERE wo.c = wc.region GROUP BY wo.id, wo.c, wo.total, wo.at, wo.state) ORDER BY id;
SELECT current_schemas(true), pg_my_temp_schema();
SELECT id, (SELECT sum(price) FROM wl WHERE p = 3) FROM wc WHERE id < 4 ORDER BY id;
SELECT wo.id, s.x FROM wo JOIN (SELECT r.id, avg(r.id::float8 / 7) AS x FROM wr r GROUP BY r.id) s ON s.id = wo.c ORDER BY wo.id;
SELECT id, ARRAY(SELECT r.id FROM wr r ORDER BY r.id) FROM wc WHERE id < 4 ORDER BY id;
SELECT 1 AS prio, wo.state, wo.id FROM wo JOIN wc ON wc.id = wo.c ORDER BY prio, wo.id LIMIT 3;
SELECT 1 AS prio, wo.state, wo.id FROM wo ORDER BY prio, wo.id LIMIT 3;
SELECT wo.state, wo.id, 1 AS one FROM wo ORDER BY one, wo.id DESC LIMIT 3;
SELECT 'x'::text AS k, 1 AS prio, wo.state, wo.id FROM wo ORDER BY 2, wo.id LIMIT 3;
SELECT 7 AS prio, wo.id FROM wo ORDER BY prio, wo.id LIMIT 3;
SELECT 'x' AS kind, -1 AS less, NULL AS none, wo.id FROM wo JOIN wc ON wc.id = wo.c ORDER BY kind, less, none, wo.id DESC LIMIT 3;
SELECT true AS yes, id FROM wc ORDER BY yes DESC, id LIMIT 5;
-- bind: 3
SELECT $1::int AS prio, wo.id FROM wo ORDER BY prio, wo.id LIMIT 3;
CREATE TABLE wx (id int, b bpchar, n name, ch "char", bo bool, iv interval, tz timetz);
INSERT INTO wx SELECT k, 'b' || repeat(' ', k % 3), 'n' || k, chr(65 + k % 3)::"char", k % 2 = 0, k * interval '1 day -3 hours', '12:00+01'::timetz + k * interval '1 hour' FROM generate_series(1, 12) k;
SELECT b || '|', wx.b, n, ch, bo, iv, tz, wc.id FROM wx JOIN wc ON wc.id = wx.id ORDER BY wc.id LIMIT 7;
SELECT wx.*, wc.note FROM wx JOIN wc ON wc.id = wx.id ORDER BY wc.id LIMIT 7;
SELECT ch, n, bo, count(*), max(tz), min(iv) FROM wx JOIN wc ON wc.id = wx.id GROUP BY ch, n, bo ORDER BY n;
CREATE TABLE wy (id int, region int, w int);
INSERT INTO wy SELECT k, k % 5, k * 3 FROM generate_series(1, 20) k;
SELECT wy.*, wc.name FROM wc JOIN wy USING (region) ORDER BY region, wy.id, wc.id LIMIT 4;
SELECT wy.region AS r, wc.region AS s, wc.id FROM wc JOIN wy USING (region) ORDER BY region, wy.w, wc.id LIMIT 4;
SELECT region, wc.region AS x, wy.region AS y, wc.id FROM wc RIGHT JOIN wy USING (region) ORDER BY region DESC, wy.id, wc.id LIMIT 3;
SELECT wc.id AS a, wy.id AS b FROM wc JOIN wy USING (id) ORDER BY id LIMIT 3;

-- What the final statement asks of tables is not there where these were brought to the nodes. By several ways each.
SET tutti.draw = 6;
SELECT wo.id FROM wo ORDER BY wo.id OFFSET (SELECT count(*) / 2 FROM wl);
SELECT wo.id FROM wo JOIN wl ON wl.o = wo.id ORDER BY 1 OFFSET (SELECT count(*) / 2 FROM wl);
SELECT wo.c, count(*) FROM wo JOIN wl ON wl.o = wo.id GROUP BY wo.c ORDER BY 1 OFFSET (SELECT count(*) - 2 FROM wc WHERE id < 6);
SET tutti.draw = 7;
SELECT wo.id FROM wo ORDER BY wo.id OFFSET (SELECT count(*) / 2 FROM wl);
SELECT wo.id FROM wo JOIN wl ON wl.o = wo.id ORDER BY 1 OFFSET (SELECT count(*) / 2 FROM wl);
SELECT wo.c, count(*) FROM wo JOIN wl ON wl.o = wo.id GROUP BY wo.c ORDER BY 1 OFFSET (SELECT count(*) - 2 FROM wc WHERE id < 6);
SET tutti.draw = 8;
SELECT wo.id FROM wo ORDER BY wo.id OFFSET (SELECT count(*) / 2 FROM wl);
SELECT wo.id FROM wo JOIN wl ON wl.o = wo.id ORDER BY 1 OFFSET (SELECT count(*) / 2 FROM wl);
SELECT wo.c, count(*) FROM wo JOIN wl ON wl.o = wo.id GROUP BY wo.c ORDER BY 1 OFFSET (SELECT count(*) - 2 FROM wc WHERE id < 6);
SET tutti.draw = 9;
SELECT wo.id FROM wo ORDER BY wo.id OFFSET (SELECT count(*) / 2 FROM wl);
SELECT wo.id FROM wo JOIN wl ON wl.o = wo.id ORDER BY 1 OFFSET (SELECT count(*) / 2 FROM wl);
SELECT wo.c, count(*) FROM wo JOIN wl ON wl.o = wo.id GROUP BY wo.c ORDER BY 1 OFFSET (SELECT count(*) - 2 FROM wc WHERE id < 6);
RESET tutti.draw;
