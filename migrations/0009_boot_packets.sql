-- The last DHCP messages of each node, as they were on the wire: for whoever wonders what was really said.
CREATE TABLE boot_packets (
    id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    mac         text NOT NULL,
    at          timestamptz NOT NULL,
    source      text NOT NULL,
    destination text NOT NULL,
    payload     bytea NOT NULL
);
CREATE INDEX boot_packets_mac ON boot_packets (mac, id);
