-- The repair loop: groups and racks, reviews, contents, remediation, and notice of every change.

ALTER TABLE nodes
    ADD COLUMN node_group text NOT NULL DEFAULT 'default',
    ADD COLUMN rack text,
    -- A person holds the node back from remediation.
    ADD COLUMN hold_reason text,
    ADD COLUMN hold_by text,
    ADD COLUMN hold_since timestamptz;
CREATE INDEX nodes_by_group ON nodes (node_group);

-- What brought a change of a finding about: a scan, a change seen, a remediation job.
ALTER TABLE finding_history ADD COLUMN cause text NOT NULL DEFAULT 'scan';
CREATE INDEX finding_history_by_group ON finding_history (group_hash, id);
CREATE INDEX finding_history_by_time ON finding_history (at);

ALTER TABLE reports ADD COLUMN after_job uuid;

-- What people decided about findings. Nothing here changes what agents hold.
CREATE TABLE reviews (
    id           uuid PRIMARY KEY,
    kind         text NOT NULL CHECK (kind IN ('acknowledgement', 'waiver', 'acceptance')),
    group_hash   bytea NOT NULL,
    -- None: every variant. An acceptance is of one.
    variant_hash bytea,
    finding_kind text NOT NULL,
    finding_key  text NOT NULL,
    scope        text NOT NULL CHECK (scope IN ('node', 'group', 'everywhere')),
    scope_value  text NOT NULL,
    reason       text NOT NULL,
    made_by      text NOT NULL,
    made_at      timestamptz NOT NULL DEFAULT now(),
    -- Of a waiver.
    expires_at   timestamptz,
    ended_at     timestamptz,
    ended_by     text,
    CHECK (kind <> 'waiver' OR expires_at IS NOT NULL),
    CHECK (kind <> 'acceptance' OR variant_hash IS NOT NULL)
);
CREATE INDEX reviews_by_group ON reviews (group_hash) WHERE ended_at IS NULL;

-- Findings with what people decided: the strongest review that is in force. Expiry needs nobody to come by.
CREATE VIEW judged_findings AS
SELECT f.*, n.name AS node_name, n.node_group, n.rack, coalesce(review.standing, 'open') AS standing,
       review.id AS review_id
FROM findings f
JOIN nodes n ON n.id = f.node_id
LEFT JOIN LATERAL (
    SELECT r.id, CASE r.kind WHEN 'acceptance' THEN 'accepted' WHEN 'waiver' THEN 'waived' ELSE 'acknowledged' END
             AS standing
    FROM reviews r
    WHERE r.group_hash = f.group_hash
      AND (r.variant_hash IS NULL OR r.variant_hash = f.variant_hash)
      AND r.ended_at IS NULL AND (r.expires_at IS NULL OR r.expires_at > now())
      AND (r.scope = 'everywhere'
           OR (r.scope = 'group' AND r.scope_value = n.node_group)
           OR (r.scope = 'node' AND r.scope_value = n.id::text))
    ORDER BY array_position(ARRAY['acceptance', 'waiver', 'acknowledgement'], r.kind), r.made_at DESC
    LIMIT 1
) review ON true;

-- Texts of files, once each. `rendered`: of a node's configuration, needed for repair; never dropped by age.
CREATE TABLE contents (
    digest   bytea PRIMARY KEY,
    content  bytea NOT NULL,
    rendered boolean NOT NULL DEFAULT false,
    added_at timestamptz NOT NULL DEFAULT now()
);

CREATE INDEX findings_by_content ON findings ((actual->>'digest')) WHERE actual->>'digest' IS NOT NULL;

CREATE TABLE remediation_runs (
    id           uuid PRIMARY KEY,
    state        text NOT NULL CHECK (state IN ('running', 'finished', 'stopped')),
    reason       text NOT NULL,
    requested_by text NOT NULL,
    -- What it was asked to repair.
    selection    jsonb NOT NULL,
    limits       jsonb NOT NULL,
    -- Findings it left alone, by reason.
    held         jsonb NOT NULL,
    allowed      bigint NOT NULL,
    created_at   timestamptz NOT NULL DEFAULT now(),
    finished_at  timestamptz
);
-- One at a time: the row is the lease. It cannot be left behind, because any server carries a run on.
CREATE UNIQUE INDEX remediation_runs_one ON remediation_runs ((true)) WHERE state = 'running';

CREATE TABLE remediation_jobs (
    id          uuid PRIMARY KEY,
    run_id      uuid NOT NULL REFERENCES remediation_runs ON DELETE CASCADE,
    node_id     uuid NOT NULL REFERENCES nodes ON DELETE CASCADE,
    node_group  text NOT NULL,
    rack        text,
    state       text NOT NULL,
    reason      text NOT NULL,
    state_since timestamptz NOT NULL DEFAULT now(),
    steps       jsonb NOT NULL,
    -- The signed job, once its turn has come.
    job         text,
    signature   text,
    begun_at    timestamptz,
    outcome     jsonb,
    -- Findings of the job that the proving scan still showed.
    left_count  bigint,
    finished_at timestamptz,
    UNIQUE (run_id, node_id)
);
CREATE INDEX remediation_jobs_by_node ON remediation_jobs (node_id, begun_at DESC);
CREATE INDEX remediation_jobs_begun ON remediation_jobs (begun_at) WHERE begun_at IS NOT NULL;
-- A node is never under two jobs.
CREATE UNIQUE INDEX remediation_jobs_active ON remediation_jobs (node_id)
    WHERE state IN ('issued', 'working', 'checking');

-- A person looked at a wide-spread finding and lets it be repaired in one group of nodes, for a while.
CREATE TABLE remediation_releases (
    id          uuid PRIMARY KEY,
    node_group  text NOT NULL,
    group_hash  bytea NOT NULL,
    finding_kind text NOT NULL,
    finding_key  text NOT NULL,
    reason      text NOT NULL,
    released_by text NOT NULL,
    released_at timestamptz NOT NULL DEFAULT now(),
    expires_at  timestamptz NOT NULL
);
CREATE INDEX remediation_releases_by_group ON remediation_releases (group_hash);

-- Who decided what, for as long as anybody may ask.
CREATE TABLE audit_events (
    id     bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at     timestamptz NOT NULL DEFAULT now(),
    actor  text NOT NULL,
    action text NOT NULL,
    object text NOT NULL,
    detail text NOT NULL
);

-- Notice of changes, for pages that are open: `topic` or `topic id`. Identical notices of one transaction are one.
CREATE FUNCTION notice_row() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_notify('plumbline', TG_ARGV[0] || coalesce(' ' || (to_jsonb(coalesce(NEW, OLD)) ->> TG_ARGV[1]), ''));
    RETURN NULL;
END $$;
CREATE FUNCTION notice_statement() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_notify('plumbline', TG_ARGV[0]);
    RETURN NULL;
END $$;

CREATE TRIGGER notice AFTER INSERT OR UPDATE OR DELETE ON nodes
    FOR EACH ROW EXECUTE FUNCTION notice_row('node', 'id');
CREATE TRIGGER notice AFTER INSERT ON boot_events
    FOR EACH ROW EXECUTE FUNCTION notice_row('event', 'node_id');
CREATE TRIGGER notice AFTER INSERT OR UPDATE ON deployments
    FOR EACH ROW EXECUTE FUNCTION notice_row('deployment', 'node_id');
CREATE TRIGGER notice AFTER INSERT ON reports
    FOR EACH ROW EXECUTE FUNCTION notice_row('drift', 'node_id');
CREATE TRIGGER notice AFTER INSERT OR UPDATE OR DELETE ON reviews
    FOR EACH STATEMENT EXECUTE FUNCTION notice_statement('review');
CREATE TRIGGER notice AFTER INSERT OR UPDATE ON remediation_runs
    FOR EACH ROW EXECUTE FUNCTION notice_row('run', 'id');
CREATE TRIGGER notice AFTER INSERT OR UPDATE ON remediation_jobs
    FOR EACH ROW EXECUTE FUNCTION notice_row('run', 'run_id');
CREATE TRIGGER notice AFTER INSERT OR UPDATE OR DELETE ON discovery_windows
    FOR EACH STATEMENT EXECUTE FUNCTION notice_statement('discovery');
CREATE TRIGGER notice AFTER INSERT OR UPDATE ON images
    FOR EACH STATEMENT EXECUTE FUNCTION notice_statement('image');
