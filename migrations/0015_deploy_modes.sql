-- What a deployment does with what is on the disk. The release before this one always wipes.
ALTER TABLE deployments ADD COLUMN mode text NOT NULL DEFAULT 'wipe' CHECK (mode IN ('in_place', 'wipe'));
-- Paths that stay, with all below them.
ALTER TABLE deployments ADD COLUMN keep jsonb NOT NULL DEFAULT '[]';
