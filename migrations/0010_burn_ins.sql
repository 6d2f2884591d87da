-- Burn-ins: tests that a node's deployer runs before the node is installed.
CREATE TABLE burn_ins (
    id           uuid PRIMARY KEY,
    node_id      uuid NOT NULL REFERENCES nodes ON DELETE CASCADE,
    -- The boot that runs it.
    token_id     uuid NOT NULL,
    ordered_by   text NOT NULL,
    reason       text NOT NULL,
    -- What is to be run: [{"kind": …, "limit_secs": …}].
    tests        jsonb NOT NULL,
    started_at   timestamptz NOT NULL DEFAULT now(),
    -- When its deployer was last heard, and what it said.
    heard_at     timestamptz NOT NULL DEFAULT now(),
    progress     text,
    ended_at     timestamptz,
    -- Why it ended before its end.
    problem      text,
    -- Who lets the node be installed although it did not pass, and why.
    waived_by    text,
    waived_at    timestamptz,
    waive_reason text
);
CREATE INDEX burn_ins_by_node ON burn_ins (node_id, started_at DESC);
CREATE UNIQUE INDEX burn_ins_running ON burn_ins (node_id) WHERE ended_at IS NULL;

CREATE TABLE burn_in_results (
    burn_in_id uuid NOT NULL REFERENCES burn_ins ON DELETE CASCADE,
    kind       text NOT NULL,
    outcome    text NOT NULL,
    -- As the deployer told it, and as it was judged for the node's group: the whole result, twice.
    told       jsonb NOT NULL,
    result     jsonb NOT NULL,
    at         timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (burn_in_id, kind)
);

-- Tests of an order to commission; none given: those of the configuration.
ALTER TABLE boot_orders ADD COLUMN tests jsonb;

-- Lists of nodes hear when one begins and ends; what a test is doing is only for who looks at that node.
CREATE TRIGGER notice_node AFTER INSERT OR UPDATE OF ended_at, waived_by ON burn_ins
    FOR EACH ROW EXECUTE FUNCTION notice_row('node', 'node_id');
CREATE TRIGGER notice AFTER UPDATE OF heard_at ON burn_ins
    FOR EACH ROW EXECUTE FUNCTION notice_row('burn_in', 'node_id');
