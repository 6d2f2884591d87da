-- Tables that change with every heartbeat and every scan: PostgreSQL's defaults wait for a fifth of the rows, and the
-- out-of-line storage of `jsonb` is vacuumed by settings of its own. Rows stay small: nothing large is ever updated, a
-- report is written once and deleted, a finding is written when it changes.

-- A row a node, rewritten every 30 s, of which no column is indexed: room on the page keeps it there.
ALTER TABLE agents SET (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 500);
ALTER TABLE reports SET (
    autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_insert_scale_factor = 0.05, autovacuum_analyze_scale_factor = 0.05,
    toast.autovacuum_vacuum_scale_factor = 0.02, toast.autovacuum_vacuum_threshold = 1000);
ALTER TABLE findings SET (
    autovacuum_vacuum_scale_factor = 0.05, autovacuum_analyze_scale_factor = 0.05,
    toast.autovacuum_vacuum_scale_factor = 0.05);
ALTER TABLE remediation_jobs SET (
    autovacuum_vacuum_scale_factor = 0.05, toast.autovacuum_vacuum_scale_factor = 0.05);
