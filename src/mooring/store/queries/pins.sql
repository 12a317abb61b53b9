-- Pinned definitions of tools, for access.pins. `rows` is a JSON array of [tool, definition, pending, why].

-- name: put_pins
INSERT INTO pins (variant, tool, definition, pending, why, seen_at)
SELECT
    :variant,
    json_extract(value, '$[0]'),
    json_extract(value, '$[1]'),
    json_extract(value, '$[2]'),
    json_extract(value, '$[3]'),
    :now
FROM json_each(:rows)
WHERE true
ON CONFLICT (variant, tool) DO UPDATE
SET definition = excluded.definition, pending = excluded.pending, why = excluded.why, seen_at = excluded.seen_at;

-- name: pins
SELECT tool, definition, pending, why, seen_at FROM pins WHERE variant = :variant ORDER BY tool;

-- name: pending_pins
SELECT variant, tool, why FROM pins WHERE pending IS NOT NULL ORDER BY variant, tool;
