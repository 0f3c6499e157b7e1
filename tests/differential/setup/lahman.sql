--! distribution replicated:
--! distribution by_player: batting HASH ("playerID"); fielding HASH ("playerID"); pitching HASH ("playerID")
--! distribution round_robin: batting ROUND ROBIN; fielding ROUND ROBIN; pitching ROUND ROBIN
-- The first 3,000 rows of each file. No keys, as in the paper, and names in mixed case.

CREATE TABLE batting (
  "playerID" text, "yearID" int, stint int, "teamID" text, "lgID" text, "G" int, "AB" int, "R" int,
  "H" int, "2B" int, "3B" int, "HR" int, "RBI" int, "SB" int, "CS" int, "BB" int, "SO" int,
  "IBB" text, "HBP" int, "SH" int, "SF" int, "GIDP" int);
CREATE TABLE fielding (
  "playerID" text, "yearID" int, stint int, "teamID" text, "lgID" text, "POS" text, "G" int,
  "GS" int, "InnOuts" int, "PO" int, "A" int, "E" int, "DP" int, "PB" int, "WP" int, "SB" int,
  "CS" int, "ZR" int);
CREATE TABLE pitching (
  "playerID" text, "yearID" int, stint int, "teamID" text, "lgID" text, "W" int, "L" int, "G" int,
  "GS" int, "CG" int, "SHO" int, "SV" int, "IPouts" int, "H" int, "ER" int, "HR" int, "BB" int,
  "SO" int, "BAOpp" text, "ERA" numeric, "IBB" text, "WP" int, "HBP" text, "BK" int, "BFP" int,
  "GF" int, "R" int, "SH" text, "SF" text, "GIDP" text);
COPY batting FROM STDIN (FORMAT csv, HEADER);
\file Batting.csv 3000
COPY fielding FROM STDIN (FORMAT csv, HEADER);
\file Fielding.csv 3000
COPY pitching FROM STDIN (FORMAT csv, HEADER);
\file Pitching.csv 3000
