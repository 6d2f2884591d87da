-- Which boot loader a node gets: auto, ipxe, grub or http.
ALTER TABLE nodes ADD COLUMN chain text NOT NULL DEFAULT 'auto';
