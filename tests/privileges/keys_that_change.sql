--! distribution replicated:
--! distribution by_key: items HASH (id); other HASH (id)
--! distribution by_other: items HASH (id); other HASH (tag)
-- UPDATE of a distribution key takes a row to another node, INSERT … SELECT rows between tables.
--@ postgres
CREATE ROLE test_owner LOGIN;
CREATE ROLE test_mover LOGIN;
CREATE ROLE test_updater LOGIN;
CREATE ROLE test_deleter LOGIN;
GRANT CREATE ON SCHEMA public TO test_owner;
--@ owner
CREATE TABLE items (id int, tag text, size int);
CREATE TABLE other (id int, tag text, size int);
INSERT INTO items SELECT n, 't' || n % 3, n FROM generate_series(1, 12) n;
GRANT SELECT, INSERT, UPDATE, DELETE ON items TO test_mover;
GRANT SELECT ON items TO test_updater;
GRANT UPDATE ON items TO test_updater;
GRANT SELECT, INSERT, DELETE ON items TO test_deleter;
GRANT INSERT ON other TO test_mover;
--@ mover
UPDATE items SET id = id + 100 WHERE id = 3;
UPDATE items SET id = id + 100 WHERE size < 3;
SELECT id, tag, size FROM items ORDER BY size, id;
INSERT INTO other SELECT * FROM items;
INSERT INTO other SELECT * FROM items RETURNING id;
INSERT INTO other SELECT * FROM other;
INSERT INTO items SELECT id, tag, size FROM other;
INSERT INTO other (id, tag) SELECT size, tag FROM items WHERE id > 100;
--@ deleter
UPDATE items SET id = id + 1000;
UPDATE items SET id = 7 WHERE id = 8;
UPDATE items SET size = 0;
INSERT INTO other SELECT * FROM items;
INSERT INTO other SELECT * FROM items WHERE false;
--@ updater
-- refused in by_key, by_other: the move of a row to another node needs INSERT and DELETE (3005 is on another)
UPDATE items SET id = id + 3000 WHERE id = 5;
UPDATE items SET size = size + 1 WHERE id = 5;
--@ owner
SELECT id, tag, size FROM items ORDER BY size, id;
SELECT id, tag, size FROM other ORDER BY id, size;
ALTER TABLE items ENABLE ROW LEVEL SECURITY;
CREATE POLICY seen ON items FOR SELECT USING (true);
CREATE POLICY into_hundreds ON items FOR INSERT WITH CHECK (true);
CREATE POLICY away ON items FOR DELETE USING (true);
CREATE POLICY changed ON items FOR UPDATE USING (tag = 't1') WITH CHECK (id < 50);
--@ mover
-- refused in by_key, by_other: policies for UPDATE are not those for DELETE and INSERT
UPDATE items SET id = id + 60 WHERE id = 4;
-- refused in by_key, by_other: the same
UPDATE items SET id = id + 20 WHERE id = 4;
UPDATE items SET size = 70 WHERE id = 4;
UPDATE items SET size = 80 WHERE id = 5;
--@ owner
SELECT id, tag, size FROM items ORDER BY size, id;
