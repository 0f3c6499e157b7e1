-- The demo's shop. Any PostgreSQL client could send this to the gateway; only the words
-- DISTRIBUTE BY are Tutti's. Statements end with a semicolon at the end of a line.

DROP SCHEMA IF EXISTS shop CASCADE;
CREATE SCHEMA shop;

-- Few rows, read everywhere: whole on every node.
CREATE TABLE shop.items (
    item_id int PRIMARY KEY,
    name    text NOT NULL,
    price   numeric(10, 2) NOT NULL
) DISTRIBUTE BY REPLICATED;

-- A customer, with orders and their lines, is on one node: joins by customer stay there.
CREATE TABLE shop.customers (
    customer_id int PRIMARY KEY,
    name        text NOT NULL,
    city        text NOT NULL
) DISTRIBUTE BY HASH (customer_id);

CREATE TABLE shop.orders (
    customer_id int NOT NULL REFERENCES shop.customers (customer_id),
    order_id    int NOT NULL,
    ordered_on  date NOT NULL,
    PRIMARY KEY (customer_id, order_id)
) DISTRIBUTE BY HASH (customer_id);

CREATE TABLE shop.order_lines (
    customer_id int NOT NULL,
    order_id    int NOT NULL,
    line_no     int NOT NULL,
    item_id     int NOT NULL REFERENCES shop.items (item_id),
    quantity    int NOT NULL,
    PRIMARY KEY (customer_id, order_id, line_no),
    FOREIGN KEY (customer_id, order_id) REFERENCES shop.orders (customer_id, order_id)
) DISTRIBUTE BY HASH (customer_id);

CREATE TABLE shop.stock (
    item_id int PRIMARY KEY REFERENCES shop.items (item_id),
    on_hand int NOT NULL
) DISTRIBUTE BY HASH (item_id);

-- The money. A transfer between two accounts mostly writes on two nodes.
CREATE TABLE shop.accounts (
    account_id int PRIMARY KEY,
    balance    bigint NOT NULL
) DISTRIBUTE BY HASH (account_id);
