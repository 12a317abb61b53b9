-- Which era each server speaks. `wanted` is a JSON array of [variant, digest] pairs.

-- name: put_era
-- Verdicts on definitions that this variant has not had for a month go.
DELETE FROM eras WHERE variant = :variant AND digest <> :digest AND seen_at < :seen_at - 30 * 86400;
INSERT INTO eras (variant, digest, era, version, seen_at) VALUES (:variant, :digest, :era, :version, :seen_at)
ON CONFLICT (variant, digest) DO UPDATE
SET era = excluded.era, version = excluded.version, seen_at = excluded.seen_at;

-- name: eras
SELECT variant, digest, era, version, seen_at
FROM json_each(:wanted) AS pair
JOIN eras ON variant = json_extract(pair.value, '$[0]') AND digest = json_extract(pair.value, '$[1]');
