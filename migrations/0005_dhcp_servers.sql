-- Other DHCP servers, as machines name them in their requests (option 54).
CREATE TABLE dhcp_servers (
    address text PRIMARY KEY,
    first_at timestamptz NOT NULL DEFAULT now(),
    last_at timestamptz NOT NULL DEFAULT now(),
    count bigint NOT NULL DEFAULT 1,
    -- The machine that named it last.
    last_mac text NOT NULL
);
