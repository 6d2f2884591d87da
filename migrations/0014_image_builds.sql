-- Builds of images as jobs of the server. What a build says is a file in the data folder.
CREATE TABLE image_builds (
    id           uuid PRIMARY KEY,
    -- The name of a folder below images.recipes_dir.
    recipe       text NOT NULL,
    state        text NOT NULL CHECK (state IN ('queued', 'running', 'done', 'failed', 'cancelled')),
    requested_by text NOT NULL,
    requested_at timestamptz NOT NULL DEFAULT now(),
    started_at   timestamptz,
    finished_at  timestamptz,
    -- What it is doing, or did last.
    stage        text NOT NULL DEFAULT '',
    detail       text NOT NULL DEFAULT '',
    -- How far that is: of how many of what; none where nobody knows.
    done         bigint,
    total        bigint,
    unit         text,
    -- Bytes that its log has.
    log_bytes    bigint NOT NULL DEFAULT 0,
    -- Who wants it to end.
    cancelled_by text,
    -- The image that came of it; it may have been removed since.
    image        bytea,
    error        text
);
CREATE INDEX image_builds_queued ON image_builds (id) WHERE state = 'queued';
-- One at a time.
CREATE UNIQUE INDEX image_builds_running ON image_builds (state) WHERE state = 'running';
CREATE TRIGGER notice AFTER INSERT OR UPDATE OR DELETE ON image_builds
    FOR EACH ROW EXECUTE FUNCTION notice_row('build', 'id');
