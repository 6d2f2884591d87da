-- What a person wants a node to boot, once: the rescue system, the deployer in memory only, or nothing.
CREATE TABLE boot_orders (
    node_id        uuid PRIMARY KEY REFERENCES nodes ON DELETE CASCADE,
    kind           text NOT NULL,
    reason         text NOT NULL,
    ordered_by     text NOT NULL,
    ordered_at     timestamptz NOT NULL DEFAULT now(),
    -- Who may sign in to the rescue system: one line of an authorized_keys file.
    authorized_key text,
    -- The boot that carries it out: its token. The boot after that is an ordinary one again.
    token_id       uuid,
    -- Where the rescue system is, and the key it shows.
    address        text,
    ssh_host_key   text
);

-- A running node is to restart into the network; its agent does it.
CREATE TABLE restart_orders (
    node_id    uuid PRIMARY KEY REFERENCES nodes ON DELETE CASCADE,
    id         uuid NOT NULL,
    ordered_by text NOT NULL,
    ordered_at timestamptz NOT NULL DEFAULT now(),
    -- What the agent said of it.
    answer     text
);
