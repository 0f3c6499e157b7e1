-- Groups by a primary key, whose other columns may stand ungrouped; and by columns that USING has merged.
--! distribution apart: status HASH (id); ticket HASH (id); orders HASH (id); events HASH (id); cc1 HASH (k); cc2 HASH (k)
--! distribution mixed: status HASH (id); ticket REPLICATED; orders REPLICATED; events HASH (id); cc1 REPLICATED; cc2 HASH (k)

CREATE TABLE orders (id int PRIMARY KEY, region int, status text);
CREATE TABLE events (id int PRIMARY KEY, region int, status text, kind text);
CREATE VIEW evv AS SELECT *, now() AS asked FROM events;
INSERT INTO orders SELECT g, g % 2, 'open' FROM generate_series(1, 4) g;
INSERT INTO events SELECT g, g % 2, 's' || g % 3, 'k' || g % 2 FROM generate_series(1, 12) g;
SELECT e.kind, o.id, upper(o.status), count(*), max(e.status) FROM orders o JOIN events e ON e.region = o.region
    GROUP BY e.kind, o.id, upper(o.status) ORDER BY o.id;
SELECT e.kind, o.id, left(o.status, 1), count(*) FROM orders o JOIN events e ON e.region = o.region WHERE e.status <> 's9'
    GROUP BY 1, 2, left(o.status, 1) HAVING left(o.status, 1) = 'o' ORDER BY 2;
SELECT e.kind, o.id, o.status, count(*) FROM orders o JOIN events e ON e.region = o.region GROUP BY e.kind, o.id ORDER BY 2;
SELECT o.id, o.status, e.kind, count(*) FROM orders o JOIN events e ON e.region = o.region GROUP BY o.id, e.id ORDER BY 1, 3, 2 LIMIT 9;
SELECT o.id, o.status, count(*) FROM orders o JOIN evv e ON e.region = o.region GROUP BY o.id ORDER BY 1;
SELECT e.kind, q.n FROM events e
    JOIN (SELECT o.id, o.status AS n, count(*) FROM orders o JOIN orders p USING (region) GROUP BY o.id) q ON q.id = e.id ORDER BY 1, 2;
SELECT row_to_json(a), count(*) FROM orders a JOIN events b ON b.region = a.id GROUP BY a.id ORDER BY a.id;
SELECT to_jsonb(a.*), json_agg(b.id ORDER BY b.id) FROM orders a LEFT JOIN events b ON b.region = a.id GROUP BY a.id ORDER BY a.id;
SELECT id, row_to_json(orders), count(*) FROM orders GROUP BY id ORDER BY id;
SELECT a.id, count(*) FROM orders a JOIN events b USING (region) GROUP BY a.id HAVING a IS NOT NULL ORDER BY a;

CREATE TABLE cc1 (k int PRIMARY KEY, n numeric(6, 2), l timestamp(0), v varchar(3), w varchar(3));
CREATE TABLE cc2 (k int PRIMARY KEY, n float8, l timestamptz, v char(6), w varchar(9));
INSERT INTO cc1 SELECT g, g % 2, timestamp '2024-01-01' + g % 2 * interval '1 day', 'v' || g % 2, 'w' || g % 2 FROM generate_series(1, 10) g;
INSERT INTO cc2 SELECT g, g % 2, timestamp '2024-01-01' + g % 2 * interval '1 day', 'v' || g % 2, 'w' || g % 2 FROM generate_series(1, 10) g;
SELECT n, count(*) FROM cc1 JOIN cc2 USING (k, n) GROUP BY n ORDER BY n;
SELECT v, count(*) FROM cc1 RIGHT JOIN cc2 USING (k, v) GROUP BY v HAVING v LIKE 'v_' AND count(*) > 1 ORDER BY v;
SELECT concat(v, '|'), count(*) FROM cc1 JOIN cc2 USING (k, v) GROUP BY v ORDER BY 1;
SET timezone = 'Asia/Tokyo';
SELECT extract(epoch FROM l), l = '2024-01-01 00:00+00', count(*) FROM cc1 LEFT JOIN cc2 USING (k, l) GROUP BY l ORDER BY 1;
RESET timezone;
SELECT w, count(*) FROM cc1 JOIN cc2 USING (k, w) GROUP BY w ORDER BY w;
CREATE TABLE status (id int PRIMARY KEY, name text, rank int);
CREATE TABLE ticket (id int PRIMARY KEY, status_id int, status text, region int);
INSERT INTO status SELECT g, 's' || g, g FROM generate_series(1, 4) g;
INSERT INTO ticket SELECT g, g % 4 + 1, 'x' || g % 3, g % 5 FROM generate_series(1, 60) g;
SELECT status.*, count(*), max(t.status) FROM status JOIN ticket t ON t.status_id = status.id GROUP BY status.id ORDER BY 1;
SELECT status.*, count(*) FROM status JOIN ticket t ON t.status_id = status.id JOIN ticket t2 ON t2.id = t.id GROUP BY status.id ORDER BY 1;
SELECT to_jsonb(status.*), count(*), max(t.status) FROM status JOIN ticket t ON t.status_id = status.id GROUP BY status.id ORDER BY status.id;
SELECT row_to_json(c) AS c, json_agg(o.id ORDER BY o.id) AS o FROM status c LEFT JOIN ticket o ON o.status_id = c.id GROUP BY c.id ORDER BY c.id;
SELECT c.*, count(*) AS c FROM status c JOIN ticket o ON o.status_id = c.id GROUP BY c.id ORDER BY c.id;
SELECT c.id, max(o.region) AS c, upper(c.name) FROM status c JOIN ticket o ON o.status_id = c.id GROUP BY c.id ORDER BY c DESC, 1;
SELECT c.*, rank() OVER (ORDER BY c.id) AS c FROM status c JOIN ticket o ON o.status_id = c.id GROUP BY c.id ORDER BY 1;
SELECT t.id % 2, s.id, s.name, count(*) FROM status s JOIN ticket t ON t.status_id = s.id GROUP BY s.id, ROLLUP (t.id % 2) ORDER BY 2, 1;
SELECT s.id, s.name, t.region, count(*) FROM status s JOIN ticket t ON t.status_id = s.id GROUP BY s.id, GROUPING SETS ((t.region), ()) ORDER BY 1, 3;
-- A column in a set is NULL where another leaves it out, though the key outside of the sets says what it is.
SELECT o.id, o.region, o.status, count(*) FROM orders o GROUP BY ROLLUP (o.id, o.region), (o.id) ORDER BY 1, 2;
SELECT o.id, o.region, o.status, array_agg(o.region) FROM orders o GROUP BY o.id, GROUPING SETS ((o.region), ()) ORDER BY 1, 2;
SELECT o.id, o.region AS r, o.status, string_agg(o.status, ',' ORDER BY o.status) FROM orders o GROUP BY o.id, GROUPING SETS ((2, o.status), ()) ORDER BY 1, 2;
SELECT o.id, o.region AS r, count(DISTINCT o.status), GROUPING(o.region) FROM orders o GROUP BY o.id, CUBE (r) ORDER BY 1, 2;
SELECT o.id, o.id, o.status FROM orders o GROUP BY DISTINCT ROLLUP (o.id, o.region), (o.id) ORDER BY 1;
SELECT o.id, o.region FROM orders o GROUP BY DISTINCT ROLLUP ((o.id, o.region), o.status), (o.id) ORDER BY 1, 2;
-- What all sets have decides what may stand beside them.
SELECT o.id, o.status, count(*) FROM orders o GROUP BY GROUPING SETS ((o.id)) ORDER BY 1;
SELECT o.id, o.status, o.region, count(*) FROM orders o GROUP BY GROUPING SETS ((o.id), (o.id, o.region)) ORDER BY 1, 3, 4;
SELECT o.id, o.status FROM orders o GROUP BY GROUPING SETS ((1, o.region), GROUPING SETS ((o.id), (o.region, o.id))) HAVING count(*) > 0 ORDER BY 1, 2;
SELECT o.id, o.status FROM orders o WHERE false GROUP BY GROUPING SETS ((o.id)) ORDER BY 1;
SELECT o.id, o.status FROM orders o GROUP BY GROUPING SETS ((o.id), ());
SELECT o.id, o.status FROM orders o GROUP BY GROUPING SETS ((o.id), (o.region));
SELECT o.id, o.status FROM orders o GROUP BY GROUPING SETS ((o.id), ROLLUP (o.id));
SET tutti.draw = 1;
SELECT o.id, o.region, o.status, count(*) FROM orders o GROUP BY ROLLUP (o.id, o.region), (o.id) ORDER BY 1, 2;
SET tutti.draw = 2;
SELECT o.id, o.region, o.status, count(*) FROM orders o GROUP BY ROLLUP (o.id, o.region), (o.id) ORDER BY 1, 2;
SET tutti.draw = 5;
SELECT o.id, o.region, o.status, count(*) FROM orders o GROUP BY ROLLUP (o.id, o.region), (o.id) ORDER BY 1, 2;
RESET tutti.draw;
SELECT o.id FROM orders o WHERE EXISTS (SELECT t.* FROM events t WHERE t.region = o.region GROUP BY t.id) ORDER BY id;
SELECT o.id FROM orders o WHERE EXISTS (SELECT * FROM events t WHERE t.region = o.region GROUP BY t.id HAVING count(*) = 1) ORDER BY id;
SELECT o.id, o.status, count(*), max(e.kind) FROM orders o JOIN events e ON e.region = o.region GROUP BY o.id ORDER BY o.status, o.id;
