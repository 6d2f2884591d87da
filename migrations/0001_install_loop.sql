-- The install loop: people, images, nodes, boot, deployments, baselines, reports, findings.
-- Digests and hashes are 32 raw bytes; instants are timestamptz (UTC); enumerations are text that the code checks.

CREATE TABLE users (
    id            uuid PRIMARY KEY,
    name          text NOT NULL UNIQUE,
    password_hash text NOT NULL,
    role          text NOT NULL CHECK (role IN ('admin', 'viewer')),
    created_at    timestamptz NOT NULL DEFAULT now()
);

-- Only the SHA-256 of a session token is kept.
CREATE TABLE sessions (
    token_hash bytea PRIMARY KEY,
    user_id    uuid NOT NULL REFERENCES users ON DELETE CASCADE,
    created_at timestamptz NOT NULL DEFAULT now(),
    expires_at timestamptz NOT NULL
);

CREATE TABLE images (
    digest        bytea PRIMARY KEY,
    kind          text NOT NULL CHECK (kind IN ('os', 'deployer', 'agent')),
    name          text NOT NULL,
    version       text NOT NULL,
    description   text,
    architecture  text NOT NULL,
    files         bigint NOT NULL,
    content_bytes bigint NOT NULL,
    stored_bytes  bigint NOT NULL,
    files_by_class jsonb NOT NULL,
    registered_at timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX images_by_name ON images (kind, name, version DESC);

CREATE TABLE nodes (
    id           uuid PRIMARY KEY,
    name         text UNIQUE,
    state        text NOT NULL,
    state_reason text NOT NULL,
    state_since  timestamptz NOT NULL DEFAULT now(),
    inventory    jsonb,
    inventory_at timestamptz,
    -- Kept over re-images, so that a node stays the same machine to everybody who knows it.
    machine_id   text NOT NULL,
    created_at   timestamptz NOT NULL DEFAULT now()
);

-- Who a machine is: MACs, SMBIOS UUID, serial. Never an IP address.
CREATE TABLE node_aliases (
    kind    text NOT NULL CHECK (kind IN ('mac', 'uuid', 'serial', 'asset_tag')),
    value   text NOT NULL,
    node_id uuid NOT NULL REFERENCES nodes ON DELETE CASCADE,
    PRIMARY KEY (kind, value)
);
CREATE INDEX node_aliases_by_node ON node_aliases (node_id);

-- Machines nobody listed: seen, not answered.
CREATE TABLE sightings (
    mac           text PRIMARY KEY,
    first_at      timestamptz NOT NULL DEFAULT now(),
    last_at       timestamptz NOT NULL DEFAULT now(),
    count         bigint NOT NULL DEFAULT 1,
    vendor_class  text,
    architecture  integer,
    relay         text
);
CREATE INDEX sightings_by_last ON sightings (last_at);

CREATE TABLE discovery_windows (
    id         uuid PRIMARY KEY,
    subnet     text NOT NULL,
    expires_at timestamptz NOT NULL,
    nodes_max  integer NOT NULL CHECK (nodes_max > 0),
    nodes_used integer NOT NULL DEFAULT 0,
    armed_by   text NOT NULL,
    armed_at   timestamptz NOT NULL DEFAULT now()
);

-- A node's timeline. Events of machines without a record carry the MAC only.
CREATE TABLE boot_events (
    id      bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    node_id uuid REFERENCES nodes ON DELETE CASCADE,
    mac     text,
    at      timestamptz NOT NULL DEFAULT now(),
    kind    text NOT NULL,
    detail  text NOT NULL
);
CREATE INDEX boot_events_by_node ON boot_events (node_id, id);
CREATE INDEX boot_events_by_mac ON boot_events (mac, id);

CREATE TABLE leases (
    address    text PRIMARY KEY,
    mac        text NOT NULL UNIQUE,
    expires_at timestamptz NOT NULL
);

CREATE TABLE deployments (
    id              uuid PRIMARY KEY,
    node_id         uuid NOT NULL REFERENCES nodes ON DELETE CASCADE,
    image           bytea NOT NULL REFERENCES images,
    agent_layer     bytea NOT NULL REFERENCES images,
    disk_rule       jsonb NOT NULL,
    layout          jsonb NOT NULL,
    state           text NOT NULL CHECK (state IN ('waiting', 'running', 'installed', 'verified', 'failed')),
    reason          text NOT NULL,
    attempt         integer NOT NULL DEFAULT 0,
    attempts_max    integer NOT NULL,
    progress        jsonb,
    outcome         jsonb,
    overlay         bytea,
    requested_by    text NOT NULL,
    created_at      timestamptz NOT NULL DEFAULT now(),
    started_at      timestamptz,
    progress_at     timestamptz,
    finished_at     timestamptz
);
CREATE INDEX deployments_by_node ON deployments (node_id, created_at DESC);
-- One deployment at a time on a node.
CREATE UNIQUE INDEX deployments_open ON deployments (node_id) WHERE state IN ('waiting', 'running');

-- One per boot of the deployer: the same token when its script is fetched again, until it is claimed.
CREATE TABLE boot_tokens (
    id            uuid PRIMARY KEY,
    node_id       uuid NOT NULL REFERENCES nodes ON DELETE CASCADE,
    deployment_id uuid REFERENCES deployments ON DELETE CASCADE,
    attempt       integer,
    mac           text NOT NULL,
    peer          text NOT NULL,
    created_at    timestamptz NOT NULL DEFAULT now(),
    fetched_at    timestamptz NOT NULL DEFAULT now(),
    claimed_at    timestamptz,
    claimed_key   bytea
);
CREATE INDEX boot_tokens_by_node ON boot_tokens (node_id, created_at DESC);

CREATE TABLE certificates (
    fingerprint bytea PRIMARY KEY,
    node_id     uuid NOT NULL REFERENCES nodes ON DELETE CASCADE,
    purpose     text NOT NULL CHECK (purpose IN ('ramdisk', 'agent')),
    token_id    uuid REFERENCES boot_tokens ON DELETE CASCADE,
    issued_at   timestamptz NOT NULL DEFAULT now(),
    not_after   timestamptz NOT NULL,
    revoked_at  timestamptz
);
CREATE INDEX certificates_by_node ON certificates (node_id, purpose);

-- Rendered overlays, by digest.
CREATE TABLE overlays (
    digest   bytea PRIMARY KEY,
    manifest text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE ssh_host_keys (
    node_id    uuid NOT NULL REFERENCES nodes ON DELETE CASCADE,
    public_key text NOT NULL,
    recorded_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (node_id, public_key)
);

CREATE TABLE baselines (
    node_id     uuid PRIMARY KEY REFERENCES nodes ON DELETE CASCADE,
    image       bytea NOT NULL REFERENCES images,
    agent_layer bytea NOT NULL REFERENCES images,
    overlay     bytea NOT NULL REFERENCES overlays,
    digest      bytea NOT NULL,
    since       timestamptz NOT NULL DEFAULT now()
);

-- What the agent said last. Receipt is stamped by the server; order within a boot is by sequence.
CREATE TABLE agents (
    node_id       uuid PRIMARY KEY REFERENCES nodes ON DELETE CASCADE,
    boot_id       uuid NOT NULL,
    sequence      bigint NOT NULL,
    baseline      bytea,
    state         bytea,
    agent_version text NOT NULL,
    rss_max_bytes bigint NOT NULL,
    uptime_secs   bigint NOT NULL,
    clock_skew_ms bigint NOT NULL,
    heartbeat_at  timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE reports (
    id            bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    node_id       uuid NOT NULL REFERENCES nodes ON DELETE CASCADE,
    received_at   timestamptz NOT NULL DEFAULT now(),
    boot_id       uuid NOT NULL,
    sequence      bigint NOT NULL,
    baseline      bytea NOT NULL,
    state         bytea NOT NULL,
    complete      boolean NOT NULL,
    scan          jsonb NOT NULL,
    not_looked_at jsonb NOT NULL
);
CREATE INDEX reports_by_node ON reports (node_id, id DESC);

CREATE TABLE findings (
    node_id      uuid NOT NULL REFERENCES nodes ON DELETE CASCADE,
    group_hash   bytea NOT NULL,
    variant_hash bytea NOT NULL,
    kind         text NOT NULL,
    key          text NOT NULL,
    expected     jsonb,
    actual       jsonb,
    severity     text NOT NULL,
    opened_at    timestamptz NOT NULL DEFAULT now(),
    changed_at   timestamptz NOT NULL DEFAULT now(),
    report_id    bigint NOT NULL REFERENCES reports ON DELETE CASCADE,
    PRIMARY KEY (node_id, group_hash)
);
CREATE INDEX findings_by_group ON findings (group_hash, variant_hash);

CREATE TABLE finding_history (
    id           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    node_id      uuid NOT NULL REFERENCES nodes ON DELETE CASCADE,
    group_hash   bytea NOT NULL,
    variant_hash bytea NOT NULL,
    kind         text NOT NULL,
    key          text NOT NULL,
    event        text NOT NULL CHECK (event IN ('opened', 'changed', 'closed')),
    at           timestamptz NOT NULL DEFAULT now(),
    -- No reference: the history outlives the report it came from.
    report_id    bigint NOT NULL
);
CREATE INDEX finding_history_by_node ON finding_history (node_id, id);
