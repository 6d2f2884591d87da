-- Channels: names that move from one image version to another; what a group of nodes is to have; images that are gone.

-- Every move of every channel, for as long as anybody may ask. Images are named and not referred to: the history outlives
-- them.
CREATE TABLE channel_moves (
    id           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    channel      text NOT NULL,
    kind         text NOT NULL CHECK (kind IN ('set', 'back', 'removed')),
    from_image   bytea,
    from_version text,
    to_image     bytea,
    to_version   text,
    -- The move that named what came before `to_image`: where the next `back` leads.
    earlier      bigint REFERENCES channel_moves,
    reason       text NOT NULL,
    moved_by     text NOT NULL,
    moved_at     timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX channel_moves_by_channel ON channel_moves (channel, id DESC);

-- `name` is that of the image and that of the channel: `debian-12-gpu/stable`.
CREATE TABLE channels (
    name     text PRIMARY KEY,
    image    bytea NOT NULL REFERENCES images,
    -- What `back` leads to; kept for that.
    previous bytea REFERENCES images,
    -- The move that named `image`.
    set_by_move  bigint NOT NULL REFERENCES channel_moves,
    -- The newest move.
    last_move    bigint NOT NULL REFERENCES channel_moves
);
CREATE TRIGGER notice AFTER INSERT OR UPDATE OR DELETE ON channels
    FOR EACH STATEMENT EXECUTE FUNCTION notice_statement('image');

-- The image that nodes of a group are to have: a channel, a name, or a digest, as a person wrote it.
CREATE TABLE group_images (
    node_group text PRIMARY KEY,
    image      text NOT NULL,
    set_by     text NOT NULL,
    set_at     timestamptz NOT NULL DEFAULT now()
);

-- The channel a deployment was asked for by; its image is what the channel named then.
ALTER TABLE deployments ADD COLUMN channel text;

-- An image whose data are removed stays as long as old deployments name it.
ALTER TABLE images ADD COLUMN removed_at timestamptz;

-- Which channel an installed node follows: the one it was installed by, else its group's.
CREATE VIEW node_channels AS
SELECT n.id AS node_id, coalesce(n.name, n.id::text) AS node_name, n.node_group, b.image,
       coalesce(d.channel, g.image) AS channel
FROM nodes n
JOIN baselines b ON b.node_id = n.id
LEFT JOIN LATERAL (
    SELECT channel FROM deployments d WHERE d.node_id = n.id AND d.state IN ('installed', 'verified')
    ORDER BY d.created_at DESC LIMIT 1
) d ON true
LEFT JOIN group_images g ON g.node_group = n.node_group;
