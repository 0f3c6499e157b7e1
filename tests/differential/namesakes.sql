-- Tables of several schemas with one name: told apart by schemas, which rows on their way have none of.
--! distribution apart: o HASH (id); ar.o HASH (c); pd HASH (id)
--! distribution together: o HASH (id); ar.o HASH (id); pd HASH (id)
--! distribution mixed: o REPLICATED; ar.o HASH (c); pd ROUND ROBIN

CREATE SCHEMA ar;
CREATE TABLE o (id int, c int, s text);
CREATE TABLE ar.o (id int, c int, s text);
CREATE TABLE pd (id int, c int);
INSERT INTO o SELECT g, g % 4, 'x' FROM generate_series(1, 40) g;
INSERT INTO ar.o SELECT g, g % 7, 'a' FROM generate_series(1, 10) g;
INSERT INTO pd SELECT g, g FROM generate_series(1, 40) g;
SELECT count(*) FROM o WHERE EXISTS (SELECT 1 FROM ar.o WHERE ar.o.id = public.o.id);
SELECT * FROM public.o WHERE NOT EXISTS (SELECT 1 FROM ar.o WHERE ar.o.id = public.o.id) ORDER BY id;
SELECT public.o.id, (SELECT max(ar.o.s) FROM ar.o WHERE ar.o.id = public.o.id) FROM public.o ORDER BY 1;
SELECT public.o.*::text, ar.o.id FROM public.o JOIN ar.o ON ar.o.id = public.o.id ORDER BY public.o.id;
SELECT o, (SELECT count(*) FROM ar.o) FROM public.o WHERE id < 3 ORDER BY id;
SELECT public.o.*, ar.o.c FROM public.o LEFT JOIN ar.o ON ar.o.c = public.o.c ORDER BY 1, 2, 3, 4;
SELECT count(*) FROM public.o, LATERAL (SELECT 1 FROM ar.o WHERE ar.o.id = public.o.id) q;
SELECT count(*) FILTER (WHERE EXISTS (SELECT 1 FROM pd AS o WHERE o.id = public.o.id + 30)) FROM public.o;
SELECT count(*) FROM public.o WHERE EXISTS (SELECT 1 FROM (VALUES (1), (2)) AS o (k) WHERE o.k = public.o.id);
WITH o AS (SELECT 1 AS k) SELECT count(*) FROM public.o WHERE EXISTS (SELECT 1 FROM o WHERE o.k = public.o.id);
SELECT ar.o.c, count(*), stddev(public.o.id) FROM public.o JOIN ar.o ON ar.o.id = public.o.id GROUP BY ar.o.c ORDER BY 1;
SELECT public.o.id, o.c FROM o ORDER BY o.c DESC, public.o.id LIMIT 3;
COPY (SELECT count(*) FROM public.o WHERE EXISTS (SELECT 1 FROM ar.o WHERE ar.o.id = public.o.id)) TO STDOUT;
INSERT INTO ar.o SELECT * FROM public.o WHERE NOT EXISTS (SELECT 1 FROM ar.o WHERE ar.o.id = public.o.id);
SELECT count(*), min(c), max(s) FROM ar.o;
DELETE FROM ar.o WHERE id > 10;
DELETE FROM pd WHERE id IN (SELECT public.o.id FROM public.o WHERE EXISTS (SELECT 1 FROM ar.o WHERE ar.o.id = public.o.id));
SELECT count(*), min(id) FROM pd;
UPDATE public.o SET s = ar.o.s FROM ar.o WHERE ar.o.id = public.o.id;
SELECT s, count(*) FROM public.o GROUP BY s ORDER BY s;
DELETE FROM public.o USING ar.o WHERE ar.o.id = public.o.id;
SELECT count(*), min(id) FROM public.o;
UPDATE pd SET c = 0 FROM pd WHERE pd.id = 1;
UPDATE public.pd SET c = 0 FROM public.pd WHERE public.pd.id = 1;
SELECT count(*) FROM pd, pd;
SELECT count(*) FROM (o NATURAL JOIN pd) WHERE EXISTS (SELECT 1 FROM o WHERE o.id = 11);
SELECT count(*) FROM (o JOIN pd ON o.id = pd.id) AS x WHERE EXISTS (SELECT 1 FROM o WHERE o.c > 0);
SELECT c, count(*), current_user = session_user FROM pd GROUP BY c, current_user ORDER BY c LIMIT 3;
UPDATE pd SET c = $1;
SELECT id AS o, c FROM public.o WHERE c > (SELECT avg(c) FROM public.o) ORDER BY o DESC LIMIT 3;
SELECT c, count(*) AS o FROM public.o WHERE id > (SELECT avg(id) FROM o) GROUP BY c ORDER BY o DESC, c;
SELECT public.o.id % 5 AS o, ar.o.id % 5 AS p, count(*) FROM public.o JOIN ar.o ON ar.o.c = public.o.c GROUP BY o, p ORDER BY o DESC, p LIMIT 4;
UPDATE o SET s = ar.o.s FROM ar.o WHERE o.id = ar.o.id;
DELETE FROM o USING ar.o WHERE o.id = o.c;
SELECT o FROM public.o JOIN ar.o ON ar.o.id = public.o.id;
SELECT count(*) FROM pd JOIN pd ON pd.id = pd.c;
SELECT pd FROM pd UNION ALL SELECT pd FROM pd WHERE c = 1 ORDER BY pd LIMIT 3;
SELECT * FROM pd NATURAL JOIN (SELECT id, max(c) AS c FROM pd GROUP BY id) m ORDER BY id LIMIT 3;

-- Views that are written out, as drivers name their columns.
CREATE VIEW ar.sums AS SELECT c, count(*) AS n FROM public.o GROUP BY c;
SELECT "ar"."sums"."c", "ar"."sums"."n" FROM "ar"."sums" WHERE "ar"."sums"."c" < 3 ORDER BY "ar"."sums"."c";
SELECT ar.sums.*, o.id FROM ar.sums JOIN o ON o.id = ar.sums.c ORDER BY ar.sums.c;
SELECT count(*) FROM pd WHERE EXISTS (SELECT 1 FROM ar.sums WHERE ar.sums.n > public.pd.c);
SELECT s.c, ar.sums.n FROM ar.sums JOIN ar.sums s ON s.c = ar.sums.c ORDER BY 1;
DELETE FROM pd WHERE pd.c IN (SELECT ar.sums.c FROM ar.sums);
SELECT public.o.c FROM ar.o JOIN pd w ON o.id = w.c JOIN public.o ON w.id = public.o.c ORDER BY 1;
SELECT count(*) FROM ar.o JOIN public.o ON o.id = 1;
CREATE VIEW vw AS SELECT id, c, s FROM o;
CREATE VIEW ar.vw AS SELECT id, c FROM ar.o;
SELECT public.vw.id FROM public.vw WHERE public.vw.c IN (SELECT public.vw.c FROM public.vw WHERE public.vw.id < 9) ORDER BY public.vw.id LIMIT 4;
SELECT public.vw.id FROM public.vw WHERE id < 3 UNION ALL SELECT public.vw.c FROM public.vw WHERE public.vw.id > 38 ORDER BY 1;
SELECT count(*) FROM public.vw WHERE EXISTS (SELECT FROM ar.vw WHERE ar.vw.id = public.vw.id);
SELECT count(*) FROM public.vw WHERE EXISTS (SELECT FROM ar.vw WHERE ar.vw.id = ar.vw.c);
SELECT "public"."vw"."id", q.n FROM "public"."vw", LATERAL (SELECT count(*) AS n FROM pd WHERE pd.c = "public"."vw"."c") q WHERE "public"."vw"."id" < 4 ORDER BY 1;
WITH vw AS (SELECT 1 AS id) SELECT public.vw.id FROM vw;
SELECT public.vw.id FROM ar.vw;
SELECT count(*) FROM public.vw TABLESAMPLE SYSTEM (100);
