-- What servers offered. `wanted` is a JSON array of [variant, digest] pairs: one query serves a whole plan.

-- name: put_listing
-- Listings of definitions that this variant has not had for a month go.
DELETE FROM listings WHERE variant = :variant AND digest <> :digest AND taken_at < :taken_at - 30 * 86400;
INSERT INTO listings (variant, digest, era, capabilities, identity, listing, taken_at)
VALUES (:variant, :digest, :era, :capabilities, :identity, :listing, :taken_at)
ON CONFLICT (variant, digest, era, capabilities, identity) DO UPDATE
SET listing = excluded.listing, taken_at = excluded.taken_at;

-- name: drop_listing
DELETE FROM listings
WHERE variant = :variant AND digest = :digest AND era = :era AND capabilities = :capabilities AND identity = '';

-- name: listings
SELECT variant, digest, era, capabilities, identity, listing, taken_at
FROM json_each(:wanted) AS pair
JOIN listings ON variant = json_extract(pair.value, '$[0]') AND digest = json_extract(pair.value, '$[1]');
