--! setup: lahman
-- Analytical reads over the baseball tables.

SELECT count(*) FROM batting;
SELECT count(*) FROM fielding;
SELECT count(*), sum("SO"), avg("ERA") FROM pitching;
SELECT * FROM batting WHERE "playerID" = 'ansonca01' ORDER BY "yearID", stint;
SELECT "yearID", "teamID", "HR" FROM batting WHERE "playerID" = 'ansonca01' AND "yearID" BETWEEN 1872 AND 1876 ORDER BY 1;
SELECT "yearID", count(*), sum("H"), sum("AB"), round(sum("H")::numeric / nullif(sum("AB"), 0), 4) FROM batting GROUP BY "yearID" ORDER BY 1;
SELECT "playerID", sum("HR") AS hr FROM batting GROUP BY "playerID" ORDER BY hr DESC, "playerID" LIMIT 10;
SELECT "teamID", count(DISTINCT "playerID") FROM batting GROUP BY "teamID" ORDER BY 2 DESC, 1 LIMIT 8;
SELECT "lgID", "yearID", max("RBI"), min("RBI") FROM batting GROUP BY 1, 2 ORDER BY 1, 2;
SELECT "playerID" FROM batting GROUP BY "playerID" HAVING count(*) >= 12 ORDER BY 1;
SELECT "playerID", "yearID", count(*) FROM batting GROUP BY 1, 2 HAVING count(*) > 1 ORDER BY 1, 2 LIMIT 20;
SELECT b."playerID", b."yearID", b."HR", p."W" FROM batting b JOIN pitching p ON p."playerID" = b."playerID" AND p."yearID" = b."yearID" AND p.stint = b.stint WHERE b."HR" > 2 ORDER BY 1, 2, 3, 4;
SELECT count(*) FROM batting b JOIN fielding f USING ("playerID", "yearID", stint);
SELECT f."POS", count(*), sum(b."H") FROM batting b JOIN fielding f USING ("playerID", "yearID", stint) GROUP BY 1 ORDER BY 1;
SELECT count(*) FROM batting b WHERE NOT EXISTS (SELECT FROM fielding f WHERE f."playerID" = b."playerID" AND f."yearID" = b."yearID");
SELECT count(DISTINCT "playerID") FROM pitching WHERE "playerID" IN (SELECT "playerID" FROM batting WHERE "HR" > 3);
SELECT "teamID" FROM batting EXCEPT SELECT "teamID" FROM pitching ORDER BY 1;
SELECT "playerID" FROM batting INTERSECT SELECT "playerID" FROM pitching ORDER BY 1 LIMIT 15;
SELECT "yearID", "playerID", "HR" FROM (SELECT *, rank() OVER (PARTITION BY "yearID" ORDER BY "HR" DESC, "playerID") AS r FROM batting) x WHERE r = 1 ORDER BY 1;
SELECT "playerID", "yearID", sum("H") OVER (PARTITION BY "playerID" ORDER BY "yearID", stint) FROM batting WHERE "playerID" LIKE 'a%' ORDER BY 1, 2, 3;
SELECT percentile_cont(ARRAY[0.25, 0.5, 0.75]) WITHIN GROUP (ORDER BY "ERA") FROM pitching WHERE "IPouts" > 100;
SELECT "yearID" / 10 * 10 AS decade, "lgID", sum("W") FROM pitching GROUP BY ROLLUP (1, 2) ORDER BY 1, 2;
SELECT width_bucket("ERA", 0, 10, 5) AS bucket, count(*) FROM pitching GROUP BY 1 ORDER BY 1;
SELECT "2B", "3B", count(*) FROM batting WHERE "2B" > 20 GROUP BY "2B", "3B" ORDER BY 1, 2;
SELECT max("2B" + 2 * "3B" + 3 * "HR") FROM batting;
SELECT count(*) FILTER (WHERE "SO" IS NULL), count("SO") FROM batting;
SELECT "teamID", "yearID", string_agg("playerID", ',' ORDER BY "playerID") FROM pitching WHERE "yearID" < 1875 GROUP BY 1, 2 ORDER BY 2, 1;
WITH team AS (SELECT "teamID", "yearID", sum("R") AS r FROM batting GROUP BY 1, 2), best AS (SELECT "yearID", max(r) AS r FROM team GROUP BY 1) SELECT team.* FROM team JOIN best USING ("yearID", r) ORDER BY 2, 1;
SELECT a."playerID", a."yearID", b."yearID" FROM batting a JOIN batting b ON a."playerID" = b."playerID" AND b."yearID" = a."yearID" + 5 AND a.stint = 1 AND b.stint = 1 WHERE a."HR" < b."HR" AND b."HR" > 4 ORDER BY 1, 2;
SELECT "playerID", (SELECT max(p."W") FROM pitching p WHERE p."playerID" = b."playerID") FROM batting b WHERE "yearID" = 1871 AND "teamID" = 'BS1' ORDER BY 1;
SELECT DISTINCT ON ("teamID") "teamID", "playerID", "G" FROM fielding ORDER BY "teamID", "G" DESC, "playerID", "POS", "yearID" LIMIT 12;
SELECT "POS", avg("E")::numeric(8,4), stddev("E")::numeric(8,4) FROM fielding GROUP BY "POS" ORDER BY 1;
SELECT "yearID", count(*) FROM (SELECT "yearID" FROM batting UNION ALL SELECT "yearID" FROM pitching UNION ALL SELECT "yearID" FROM fielding) u GROUP BY 1 ORDER BY 1;
SELECT corr("AB", "H")::numeric(8,6), regr_slope("H", "AB")::numeric(8,6) FROM batting;
SELECT "playerID" FROM batting ORDER BY "AB" DESC, "playerID", "yearID" LIMIT 5 OFFSET 10;
SELECT "playerid" FROM batting;
SELECT playerID FROM batting;
SELECT "playerID" FROM batting WHERE yearid = 1871;
-- bind: ansonca01
-- bind: nobody
SELECT "yearID", "H" FROM batting WHERE "playerID" = $1 ORDER BY "yearID";
-- bind: 1871 | BS1
SELECT "playerID" FROM batting WHERE "yearID" = $1 AND "teamID" = $2 ORDER BY 1;
-- rows at a time: 500
SELECT "playerID", "yearID", stint FROM batting ORDER BY 1, 2, 3;
COPY (SELECT "playerID", "yearID", stint, "HR" FROM batting WHERE "yearID" < 1873) TO STDOUT;
COPY pitching TO STDOUT (FORMAT csv, HEADER);
COPY fielding ("playerID", "yearID", "POS") TO STDOUT (FORMAT binary);
COPY (SELECT "teamID", count(*) FROM batting GROUP BY 1 ORDER BY 1) TO STDOUT (FORMAT csv);
