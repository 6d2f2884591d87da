-- The rack plan, what machines say of where they are, discovery by rules and by relay circuits.

-- What is planned of a node. Its name and group are the node's own. Every part may be unknown.
CREATE TABLE rack_plan (
    node_id     uuid PRIMARY KEY REFERENCES nodes ON DELETE CASCADE,
    rack        text,
    unit        integer CHECK (unit > 0),
    serial      text UNIQUE,
    mac         text UNIQUE,
    bmc_address text UNIQUE,
    -- `switch:port`, as LLDP names both.
    switch_port text UNIQUE,
    UNIQUE (rack, unit),
    CHECK (unit IS NULL OR rack IS NOT NULL)
);

ALTER TABLE nodes
    -- Height unit of its lower edge in the rack, as far as known: from the plan, a person, or a rule.
    ADD COLUMN unit integer,
    -- How its DHCP requests came, seen last: the relay's address, and the relay's option 82.
    ADD COLUMN relay text,
    ADD COLUMN relay_circuit text,
    ADD COLUMN relay_remote text,
    -- The discovery rule that placed it, and the image that rule proposes.
    ADD COLUMN discovery_rule text,
    ADD COLUMN image_channel text;
CREATE INDEX nodes_by_rule ON nodes (discovery_rule) WHERE discovery_rule IS NOT NULL;

-- The interfaces of the newest inventory, to find nodes that share a MAC or a switch port. Not an identity.
CREATE TABLE node_nics (
    node_id     uuid NOT NULL REFERENCES nodes ON DELETE CASCADE,
    mac         text NOT NULL,
    name        text NOT NULL,
    driver      text,
    is_boot     boolean NOT NULL,
    switch_port text,
    PRIMARY KEY (node_id, mac)
);
CREATE INDEX node_nics_by_mac ON node_nics (mac);
CREATE INDEX node_nics_by_switch_port ON node_nics (switch_port) WHERE switch_port IS NOT NULL;
INSERT INTO node_nics (node_id, mac, name, driver, is_boot)
SELECT n.id, lower(nic->>'mac'), nic->>'name', nic->>'driver', coalesce((nic->>'boot')::boolean, false)
FROM nodes n CROSS JOIN LATERAL jsonb_array_elements(n.inventory->'nics') nic
WHERE jsonb_typeof(n.inventory->'nics') = 'array' AND nic->>'mac' IS NOT NULL AND nic->>'name' IS NOT NULL
ON CONFLICT DO NOTHING;

ALTER TABLE sightings
    ADD COLUMN relay_circuit text,
    ADD COLUMN relay_remote text;

-- A window is for a subnet or for a relay circuit; the other one is empty.
ALTER TABLE discovery_windows ADD COLUMN relay_circuit text;

-- Every version that was in force; the newest one is.
CREATE TABLE discovery_rules (
    version    bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    content    text NOT NULL,
    applied_by text NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT now()
);
