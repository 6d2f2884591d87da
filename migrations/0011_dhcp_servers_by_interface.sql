-- Other DHCP servers, by the interface that they are heard on: two stray routers on two segments have one address.
-- `dhcp_servers` stays for the release before this one, which counts by address alone.
CREATE TABLE dhcp_servers_heard (
    address text NOT NULL,
    -- Where it was heard: an interface of the boot plane, and the relay if there is one between; empty: from before.
    interface text NOT NULL,
    first_at timestamptz NOT NULL DEFAULT now(),
    last_at timestamptz NOT NULL DEFAULT now(),
    count bigint NOT NULL DEFAULT 1,
    -- The machine that it spoke to last, or that named it.
    last_mac text NOT NULL,
    PRIMARY KEY (address, interface)
);
INSERT INTO dhcp_servers_heard (address, interface, first_at, last_at, count, last_mac)
SELECT address, '', first_at, last_at, count, last_mac FROM dhcp_servers;
