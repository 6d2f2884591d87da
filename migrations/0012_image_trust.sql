-- Whose signature an image bears, and why it must not be used any more. The truth is in the data folder: the signature
-- beside the manifest, and keys/trust.toml; this is what the server found there last.
ALTER TABLE images
    -- minisign's key id; none: not looked at since this column came.
    ADD COLUMN signer text,
    -- A sentence that follows the image's name; none: it may be used.
    ADD COLUMN unusable text;
