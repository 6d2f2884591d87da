-- Addresses that people gave nodes: the interface that boots gets it, and nobody else does.
CREATE TABLE fixed_addresses (
    node_id uuid PRIMARY KEY REFERENCES nodes ON DELETE CASCADE,
    address text NOT NULL UNIQUE
);
